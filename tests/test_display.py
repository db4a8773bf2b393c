"""How objects show themselves: short tables whose intervals hold, never an exception; and the progress bar."""

import io
import sys

import jax
import numpy as np
import pytest

import jaxbounds as jb
from jaxbounds import display

PROBLEM = jb.Problem(jb.losses.smoothed_hinge(0.5), jb.penalties.l2(0.1))
X = np.random.default_rng(2).normal(size=(8, 3))
Y = np.where(X @ np.array([1.0, -1.0, 0.5]) > 0, 1.0, -1.0)


@pytest.fixture(scope="module")
def model():
    return jb.fit(PROBLEM, X, Y)


@pytest.mark.parametrize(("value", "below", "above"), [
    (0.123456, "0.1234", "0.1235"), (-0.123456, "-0.1235", "-0.1234"), (2.0, "2", "2"), (123456.0, "1.234e+05",
     "1.235e+05"), (0.0, "0", "0"), (np.inf, "inf", "inf"), (-np.inf, "-inf", "-inf"), (np.nan, "nan", "nan"),
    (9.9996, "9.999", "10"),
])  # fmt: skip
def test_what_is_printed_holds(value, below, above):
    assert display.interval_text(value, value) == f"[{below}, {above}]"
    if np.isfinite(value):
        assert float(below) <= value <= float(above)


def test_printed_intervals_hold_for_any_number():
    rng = np.random.default_rng(4)
    for x in rng.normal(size=300) * 10.0 ** rng.integers(-12, 12, 300):
        low, high = (float(end) for end in display.interval_text(x, x)[1:-1].split(", "))
        assert low <= x <= high and high - low <= 2e-3 * abs(x)


def test_results_are_small_tables(model):
    bounds = jb.bound(model, jb.remove_rows([1]))
    lines = repr(bounds).split("\n")
    assert lines[0] == "Bounds on the retrained model"
    assert [line.split()[0] for line in lines[1:]] == ["gap", "radius", "dual", "distance", "status"]
    assert "CONVERGED: All is well" in lines[-1]
    upper = float(bounds.distance.upper)
    assert float(lines[4].split("[")[1].rstrip("]").split(", ")[1]) == pytest.approx(upper, rel=2e-3)
    text = repr(model)
    for part in ("SmoothedHinge(gamma=0.5), L2(lam=0.1), scale mean", "8 rows, 3 columns, float64", "of the objective"):
        assert part in text
    assert "not stored" in repr(model.without_data())
    shown = {
        "interval": bounds.scores(X), "number": bounds.distance,
        "each": jb.bound_each(model, jb.each_row_removed(model)),
        "decision": jb.decide(model, jb.remove_rows([1]), jb.LabelsKnown(X)), "left": jb.leave_one_out(model),
        "distance": jb.decide(model, jb.remove_rows([1]), jb.DistanceBelow(10.0)),
        "errors": jb.find_label_errors(model),
        "worst": jb.worst_case_removals(model, X, 2), "influence": jb.influence(model, X[:2]),
        "ranks": jb.rank_rows(model, X[:1]), "sweep": jb.penalty_sweep(model, [jb.penalties.l2(0.2)], X, Y),
        "penalty": jb.penalties.elastic_net(0.1, 0.2), "change": jb.set_rows([1], X[[2]]),
        "solver": jb.solvers.NewtonCG(),
        "vector": jb.penalties.l2(np.ones(9)), "path": jb.penalty_path.Path((model,), (PROBLEM.penalty,)),
    }  # fmt: skip
    for name, value in shown.items():
        text = repr(value)
        assert len(text.split("\n")) <= 12 and max(map(len, text.split("\n"))) < 220, name
        assert "Array(" not in text and not text.startswith("<"), name
        assert value._repr_html_().startswith(("<table>", "<pre>")), name
    assert repr(shown["number"]).startswith("Interval [")
    assert repr(shown["interval"]).split("\n")[-1].startswith("  ...  8 in all, widest")
    assert repr(shown["penalty"]) == "ElasticNet(lam=0.1, l1=0.2)" and repr(shown["solver"]) == "NewtonCG()"
    assert "8 CONVERGED" in repr(shown["each"]) and "step 1" in repr(shown["decision"])
    assert "exact" in repr(shown["left"]) and "k = 2" in repr(shown["worst"])


def test_html_escapes():
    class Name:
        pass

    assert display.html(Name()) == "<pre>&lt;Name&gt;</pre>"
    table = jb.Interval(np.zeros(9), np.ones(9))._repr_html_()
    assert table.count("<tr>") == 7 and "<b>Interval of shape (9,)</b>" in table


def test_tracers_and_batches_show_their_types(model):
    seen = []

    def gap(value):
        change = jb.set_elements([0], [1], value)
        bounds = jb.bound(model, change)
        seen.extend(repr(x) for x in (change, bounds, bounds.distance, jb.Interval(value, value)))
        return bounds

    jax.eval_shape(gap, np.ones(1))
    assert len(seen) == 4 and all("traced" in text and "<" not in text for text in seen)
    spread = jax.tree.map(lambda leaf: np.stack([np.asarray(leaf)] * 2), jb.bound(model, jb.remove_rows([1])))
    assert "2 CONVERGED" in repr(spread) and "distance" not in repr(spread)
    for holes in (None, object()):
        hollow = jax.tree.map(lambda leaf, holes=holes: holes, jb.bound(model, jb.remove_rows([1])))
        for broken in (hollow, hollow.model, jb.Interval(holes, holes), jb.penalties.L2(holes)):
            assert repr(broken) and broken._repr_html_()


# ---------------------------------------------------------------- progress


def test_progress_draws_what_callbacks_say(model):
    out = io.StringIO()
    bar = jb.progress("working", file=out, mininterval=0)
    bar({"step": 1, "gap": 1e-1, "primal": 1.0, "tol": 1e-5})
    assert bar._bar.n == 0
    bar({"step": 2, "gap": 1e-3, "primal": 1.0, "tol": 1e-5})
    assert bar._bar.n == 50
    bar({"step": 3, "gap": 1e-9, "primal": 1.0, "tol": 1e-5})
    assert bar._bar is None and "working: 100%" in out.getvalue() and "gap 1.0e-09" in out.getvalue()
    jb.bound_each(model, jb.each_row_removed(model), callback=bar)
    assert "8/8" in out.getvalue() and bar._bar is None
    jb.leave_one_out(model, callback=bar)
    assert bar._bar is None
    with jb.progress(file=out) as bar:
        bar({"n_trained": 3, "penalty": PROBLEM.penalty, "lower": 0.125, "upper": 0.25})
        assert bar._bar.n == 3
    assert bar._bar is None and "lower 0.125" in out.getvalue()
    done = jb.fit(PROBLEM, X, Y, callback=jb.progress(disable=True))
    assert int(done.status) == jb.Status.CONVERGED


def test_progress_without_tqdm(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(ImportError, match=r"jaxbounds\[progress\]"):
        jb.progress()
