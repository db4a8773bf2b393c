"""How objects show themselves: short tables whose intervals hold, never an exception; and the progress bar."""

import io
import json
import sys

import jax
import numpy as np
import optax
import pytest

import jaxbounds as jb
from jaxbounds import display

PROBLEM = jb.Problem(jb.losses.smoothed_hinge(0.5), jb.penalties.l2(0.1))
X = np.random.default_rng(2).normal(size=(8, 3))
Y = np.where(X @ np.array([1.0, -1.0, 0.5]) > 0, 1.0, -1.0)


@pytest.fixture(scope="module")
def model():
    return jb.fit(PROBLEM, X, Y)


@pytest.mark.parametrize(("low", "high", "text"), [
    (0.123456, 0.123456, "[0.123456, 0.123456]"), (-0.1234567891, -0.1234567891, "[-0.12345679, -0.12345678]"),
    (2.0, 2.0, "[2, 2]"), (123456.0, 123456.0, "[123456, 123456]"), (9.9996, 9.9996, "[9.9996, 9.9996]"),
    (0.029131234, 0.029138765, "[0.02913, 0.02914]"), (0.0291345678912, 0.0291345679012, "[0.029134567, 0.029134568]"),
    (0.029134, 0.029136, "[0.029134, 0.029136]"), (-0.029136, -0.029134, "[-0.029136, -0.029134]"),
    (1.23456789, 345.6789, "[1.234, 345.7]"), (0.0, 5e-324, "[0, 4.941e-324]"), (-np.inf, 0.123456, "[-inf, 0.1235]"),
    (-np.inf, np.inf, "[-inf, inf]"), (np.nan, 0.123456, "[nan, 0.1235]"), (-1.7e308, 1.7e308, "[-1.7e+308, 1.7e+308]"),
    (np.int32(123456), np.int32(123457), "[123456, 123457]"),
])  # fmt: skip
def test_the_width_of_an_interval_is_seen(low, high, text):
    assert display.interval_text(low, high) == text


def test_printed_intervals_hold_for_any_number():
    rng = np.random.default_rng(4)
    for x, width in zip(rng.normal(size=400) * 10.0 ** rng.integers(-12, 12, 400), 10.0 ** rng.integers(-18, 2, 400),
                        strict=True):  # fmt: skip
        y = x + width * abs(x)
        low, high = (float(end) for end in display.interval_text(x, y)[1:-1].split(", "))
        assert low <= x <= y <= high and high - low <= 1.5000001 * (y - x) + 2e-7 * abs(y)


LOGISTIC = jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1))
CLASSES = np.array([0, 1, 2, 0, 1, 2, 0, 1])


@pytest.fixture(scope="module")
def logistic():
    return jb.fit(LOGISTIC, X, Y)


@pytest.fixture(scope="module")
def several():
    """A softmax model and one-vs-rest models."""
    softmax = jb.fit(jb.Problem(jb.losses.softmax(3), jb.penalties.l2(0.1)), X, CLASSES)
    return softmax, jb.fit_one_vs_rest(LOGISTIC, X, CLASSES)


def lines_of(value) -> list[str]:
    """The lines of a repr that is short, is no dump, and has its HTML counterpart."""
    text = repr(value)
    lines = text.split("\n")
    assert len(lines) <= 12 and max(map(len, lines)) <= 150, text
    assert not any(sign in text for sign in ("rray(", "<", "None", "object at", " items")), text
    assert str(value) == text
    assert value._repr_html_() == display.html(value) and value._repr_html_().startswith(("<table>", "<pre>"))
    return lines


@pytest.fixture(scope="module")
def results(model, logistic, several):
    """One of each kind of object, by a name."""
    change, pair = jb.remove_rows([1]), jb.stack([jb.remove_rows([1]), jb.set_rows([2, 3], X[:2])])
    bounds = jb.bound(model, change)
    grid = [jb.penalties.l2(lam) for lam in np.logspace(-2, 0, 9)]
    best = jb.best_penalty(LOGISTIC, X, Y, X, Y, 0.1, 0.2)
    softmax, rest = several
    decision = jb.decide(model, change, jb.LabelsKnown(X))
    return {
        "Model of": jb.with_factor(logistic), "MultinomialModel of 3 classes": softmax,
        "OneVsRest of 3 classes": rest, "MultinomialModel": jb.bound(softmax, jb.set_targets([0], [1])),
        "rest bounds": jb.bound(rest, jb.set_targets([0], [1])), "interval": bounds.scores(X),
        "number": bounds.distance, "square": jb.Interval(np.zeros((2, 5)), np.ones((2, 5))),
        "nothing": jb.Interval(np.zeros(0), np.ones(0)), "each": jb.bound_each(model, jb.each_row_removed(model)),
        "batch": pair, "of batch": jb.bound_each(model, pair), "decision": decision, "step": decision.steps[0],
        "distance": jb.decide(model, change, jb.DistanceBelow(10.0)), "labels": jb.LabelsKnown(X),
        "below": jb.DistanceBelow(0.1), "left": jb.leave_one_out(model), "folds": jb.cross_validate(model, 2),
        "errors": jb.find_label_errors(model), "no errors": jb.find_label_errors(model, rows=[0]),
        "worst": jb.worst_case_removals(model, X, 2), "influence": jb.influence(model, X[:2]),
        "attack": jb.attack_removal(model, 2, X[:1])[0], "ranks": jb.rank_rows(model, X[:1]),
        "sweep": jb.penalty_sweep(model, grid, X, Y), "best": best, "pieces": best.pieces,
        "path": jb.penalty_path.Path((model,) * 9, tuple(grid)), "penalty": jb.penalties.elastic_net(0.1, 0.2),
        "solver": jb.solvers.NewtonCG(), "vector": jb.penalties.l2(np.ones(9)), "problem": LOGISTIC,
        "data": model.data, "matrix": model.data.matrix, "ball": bounds.parts[0][1][0],
        "bounds": bounds,
    }  # fmt: skip


def test_results_are_small_tables(results):
    bounds = results["bounds"]
    lines = lines_of(bounds)
    assert lines[0] == "Bounds on the retrained model: Cached, 1 row removed"
    assert [line.split()[0] for line in lines[1:]] == ["gap", "radius", "dual", "distance", "status"]
    assert "CONVERGED: All is well" in lines[-1]
    upper = float(bounds.distance.upper)
    assert upper <= float(lines[4].split("[")[1].rstrip("]").split(", ")[1]) <= upper * 1.002
    text = {name: "\n".join(lines_of(value)) for name, value in results.items()}
    assert text["number"].startswith("Interval [") and text["nothing"] == "Interval no interval"
    assert text["interval"].split("\n")[-1].startswith("  ...  8 in all, widest")
    assert text["square"].split("\n")[1] == "  0, 0  [0, 1]"
    assert text["penalty"] == "ElasticNet(lam=0.1, l1=0.2)" and text["solver"] == "NewtonCG()"
    assert text["each"].startswith("Bounds of 8 changes: Cached, 1 row removed each") and "8 CONVERGED" in text["each"]
    assert text["of batch"].split("\n")[1] == "  changes   1 change: 1 row removed; 1 change: 2 rows set"
    assert "step 1" in text["decision"] and text["labels"] == "LabelsKnown(X=float64[8,3])"
    assert text["below"] == "DistanceBelow(theta=0.1)" and text["matrix"] == "Dense(float64[8,3])"
    assert "exact" in text["left"] and "k = 2" in text["worst"] and "label" in text["attack"]
    assert text["no errors"].startswith("LabelErrors: 0 rows contradicted\n  undecided rows  ")
    assert "of 3 classes: Cached, 1 target set" in text["MultinomialModel"] and "class 2" in text["rest bounds"]


HOST_ONLY = "Decision", "Attack"  # they answer with NumPy arrays and Python numbers
APART = "Interval", "LabelsKnown", "Ball"  # what was given, and what certificates are made of
ASKED = "w", "alpha", "scores", "labels", "decided", "inactive_rows", "inactive_columns"


def test_interval_ends_are_numpy_while_x64_is_off_and_all_else_is_jax(results):
    """The rule of docs/faq.md, over whatever results show and answer."""
    wide, seen = jax.config.jax_enable_x64, set()
    for kind, value in ((type(value).__name__, value) for value in results.values()):
        if kind in APART:
            continue
        found = {name: getattr(value, name) for name in dir(value) if not name.startswith("_") and name != "touched"}
        for name in ASKED:
            if callable(found.get(name)):
                found[name] = found[name](X) if name in ("scores", "labels", "decided") else found[name]()
        for name, item in found.items():
            whole = isinstance(item, jb.Interval)
            ends = whole or (kind, name) == ("Pieces", "lower")
            for one in (item.lower, item.upper) if whole else (item,):
                if not isinstance(one, np.ndarray | np.generic | jax.Array):
                    continue
                numpy = not wide if ends else kind in HOST_ONLY
                assert isinstance(one, jax.Array) != numpy, (kind, name, type(one))
                assert one.dtype == np.float64 if ends and name != "errors" else one.dtype != np.float32, (kind, name)
                seen.add((kind, name))
    assert len(seen) > 90 and {("LeaveOneOut", "errors"), ("Bounds", "scores"), ("Attack", "score")} <= seen, len(seen)


def test_every_public_class_is_shown():
    ours = {name for name in jb.__all__ if isinstance(getattr(jb, name), type)}
    own = {name for name in ours if getattr(jb, name).__repr__ is display.text}
    assert ours - own == {"FitWarning", "RowBlocks", "Status"}


def test_models_say_what_they_hold(model, logistic):
    text = repr(model)
    for part in ("SmoothedHinge(gamma=0.5), L2(lam=0.1), scale mean", "8 rows, 3 columns, float64", "of the objective"):
        assert part in text
    assert "not stored" in repr(model.without_data())
    assert "factor kept" in repr(jb.with_factor(logistic)) and "factor" not in repr(logistic)


@pytest.mark.parametrize(("change", "says"), [
    (lambda: jb.remove_rows([3, 5]), "Change(remove 2 rows: 3, 5)"),
    (lambda: jb.remove_rows([3], keep_n=True), "Change(remove 1 row: 3 (n kept))"),
    (lambda: jb.remove_rows(np.arange(7)), "Change(remove 7 rows: 0, 1, 2, 3, 4, 5, ...)"),
    (lambda: jb.add_rows(X[:2], Y[:2]), "Change(add 2 rows)"),
    (lambda: jb.add_rows(X[:1], Y[:1], sample_weight=[2.0]), "Change(add 1 row with weights)"),
    (lambda: jb.set_rows([1], X[:1]), "Change(set 1 row: 1)"),
    (lambda: jb.set_rows([1, 4], X[:2], Y[:2]), "Change(set 2 rows with targets: 1, 4)"),
    (lambda: jb.set_elements([0, 1], [2, 0], 3.0), "Change(set 2 elements: (0, 2), (1, 0))"),
    (lambda: jb.set_targets([2], [1.0], old_values=[-1.0]), "Change(set 1 target: row 2 (old values given))"),
    (lambda: jb.set_targets([2, 4], "yes"), "Change(set 2 targets: rows 2, 4 to 'yes')"),
    (lambda: jb.set_weights([0, 3], 2.0), "Change(set 2 weights: rows 0, 3)"),
    (lambda: jb.set_columns([1], X[:, :1]), "Change(set 1 column: 1)"),
    (lambda: jb.set_columns(["age"], X[:, :1]), "Change(set 1 column: age)"),
    (lambda: jb.add_columns(X[:, :2]), "Change(add 2 columns)"),
    (lambda: jb.remove_columns([0]), "Change(remove 1 column: 0)"),
    (lambda: jb.set_penalty(jb.penalties.l2(0.5)), "Change(set the penalty to L2(lam=0.5))"),
    (lambda: jb.combine(jb.remove_rows([3]), jb.set_targets([1], [1.0])),
     "Change of 2 parts\n  1  remove 1 row: 3\n  2  set 1 target: row 1"),
    (lambda: jb.stack([jb.remove_rows([k]) for k in range(4)]), "Batch of 4 changes, each: remove 1 row"),
    (lambda: jb.stack([jb.add_rows(X[:1], Y[:1])] * 3), "Batch of 3 changes, each: add 1 row"),
    (lambda: jb.stack([jb.add_columns(X[:, :2])] * 3), "Batch of 3 changes, each: add 2 columns"),
    (lambda: jb.each_penalty([jb.penalties.l2(lam) for lam in (0.1, 0.2)]),
     "Batch of 2 changes, or a single change: set the penalty to L2(lam=[0.1, 0.2])"),
    (lambda: jb.stack([jb.set_penalty(jb.penalties.l2(np.ones(3)))] * 2),
     "Batch of 2 changes, each: set the penalty to L2(lam=float64[2,3], 1 to 1)"),
    (lambda: jb.set_penalty(jb.penalties.elastic_net(0.1, np.ones(3))),
     "Change(set the penalty to ElasticNet(lam=0.1, l1=[1, 1, 1]))"),
    (lambda: jb.stack([jb.combine(jb.remove_rows([k]), jb.set_penalty(jb.penalties.l2(0.2))) for k in range(2)]),
     "Batch of 2 changes, each of 2 parts\n  1  remove 1 row\n  2  set the penalty to L2(lam=[0.2, 0.2])"),
    (lambda: jb.stack([jb.remove_rows([0]), jb.remove_rows([1, 2]), jb.set_weights([1], 2.0)]),
     "ChangeBatch of 3 changes\n  2 changes  3 rows removed in all\n  1 change   1 weight set"),
])  # fmt: skip
def test_changes_say_what_they_do(change, says):
    assert "\n".join(lines_of(change())) == says


def test_bounds_name_the_method_and_the_change(model):
    def head(change, method=None):
        return repr(jb.bound(model, change, method)).split("\n")[0].removeprefix("Bounds on the retrained model: ")

    change = jb.combine(jb.set_elements([0, 1], [0, 1], 1.0), jb.add_rows(X[:1], Y[:1]), jb.remove_rows([4, 5]))
    assert head(change, jb.Theorem1("ii")) == "Theorem1(case='ii'), 2 elements set, 1 row added, 2 rows removed"
    assert head(jb.set_penalty(jb.penalties.l2(0.2)), jb.Pass(3)) == "Pass(cg_steps=3), penalty L2(lam=0.2)"
    assert head(jb.set_columns([1], X[:, :1])) == "Cached, 1 column set"
    # the removed row has no dual variable left to optimise, and no column is touched
    assert head(jb.remove_rows([1]), jb.Partial()) == "Partial, answered by Cached, 1 row removed"
    assert head(jb.set_rows([1], -X[:1]), jb.Partial()) == "Partial, 1 row set"


def test_a_fallback_is_visible(logistic):
    factored, method = jb.with_factor(logistic), jb.SelfConcordant()
    small, large = jb.set_weights([0], 1.01), jb.set_weights([0], 1e6)
    kept, fallen = (jb.bound(factored, change, method) for change in (small, large))
    assert repr(kept).startswith("Bounds on the retrained model: SelfConcordant, 1 weight set\n")
    assert repr(fallen).startswith("Bounds on the retrained model: SelfConcordant, answered by Cached, 1 weight set\n")
    assert float(fallen.radius) == float(jb.bound(factored, large).radius)  # Cached's
    both = jb.stack([small, large, large])
    in_jit = jax.jit(jax.vmap(lambda change: jb.bound(factored, change, method).fallback))  # compiles little else
    assert in_jit(both).tolist() == [0, 1, 1]
    batch = jax.tree.map(lambda *leaves: np.stack(leaves), kept, fallen, fallen)
    assert repr(batch).startswith(
        "Bounds on the retrained model: SelfConcordant, answered by Cached in 2 of 3, 1 weight set\n")  # fmt: skip
    each = jb.bound_each(factored, both, method=method)
    assert each.fallback.tolist() == [0, 1, 1]
    assert lines_of(each)[0] == "Bounds of 3 changes: SelfConcordant, answered by Cached in 2 of 3, 1 weight set each"
    classes = jb.OneVsRestBounds((kept, fallen, kept))
    assert "of 3 classes: SelfConcordant, answered by Cached in 1 of 3, 1 weight set" in repr(classes)
    # what was done travels as numbers, not in the structure: a branch may choose between two changes
    other = jb.bound(factored, jb.set_targets([0], -Y[:1]), method)
    assert jax.tree.structure(kept) == jax.tree.structure(other)


def test_printed_bounds_are_rounded_outward():
    rng, codes = np.random.default_rng(0), np.zeros(6, np.int32)
    gap, radius = rng.random((2, 6))
    model = jb.fit(PROBLEM, X, Y)
    changes = jb.stack([jb.remove_rows([k]) for k in range(6)])
    bounds = jb.EachBounds(model, changes, jb.Cached(), None, codes, gap, radius, radius, (radius, radius), None)
    for name, values in (("gap", gap), ("radius", radius)):
        line = next(line for line in repr(bounds).split("\n") if line.split()[0] == name)
        printed = [float(number) for number in line.split("[")[1].rstrip("]").split(",")]
        assert np.all(printed >= values) and np.all(printed <= values + 1e-3)
    errors = jb.LabelErrors(np.arange(1), radius[:1], jb.Interval(-gap[:1], gap[:1]), np.zeros(0, np.int32))
    least = float(repr(errors).split("at least ")[1].split(",")[0])
    assert radius[0] - 1e-3 <= least <= radius[0]
    push = jb.Push(None, "Cached", gap[0], gap[0] + radius[0], 2, 0, (8, 9), 3, 0.1, True)
    low, high = map(float, repr(push).split(" in [")[1].split("]")[0].split(", "))
    assert low <= gap[0] and high >= gap[0] + radius[0]
    step = jb.decisions.Step("Cached", 0.1, radius[0], 1)
    assert float(repr(step).split("radius ")[1].split(",")[0]) >= radius[0]


def test_pushes_and_monitors_say_of_what(model, tmp_path):
    path = tmp_path / "watched"
    with jb.Monitor(model, theta=0.5, X_watch=X[:3], path=path) as monitor:
        assert lines_of(monitor) == [
            "Monitor of 8 rows, 0 pushes, 0 refits", "  watches  ||w_new - w_old|| below 0.5 and the labels of 3 rows",
            "  now      no push since the deployed model was trained", f"  file     {path}",
        ]  # fmt: skip
        push = monitor.push(jb.add_rows(0.01 * X[:2], Y[:2]))
        first, distance, added = lines_of(push)
        assert first == "Push 1: deployed model certified by Cached" and added == "  rows added  8 to 9"
        assert distance.startswith("  distance    ||w_new - w_old|| in [")
        title, _, now, known, _ = lines_of(monitor)
        assert title == "Monitor of 10 rows, 1 push, 0 refits" and now == "  now       certified by Cached"
        assert known.split("in ")[1] == distance.split("in ")[1]
        monitor.push(jb.combine(jb.remove_rows([9]), jb.set_targets([0], -Y[:1])))
        said = "after 2 pushes: 1 target set, 2 rows added, 1 row removed"
        assert repr(monitor.bounds()).startswith(f"Bounds on the retrained model: Cached, {said}\n")
    with jb.Monitor.load(path) as again:
        assert said in repr(again.bounds()) and repr(again) == repr(monitor)
        again.refit()
        assert lines_of(again)[0] == "Monitor of 9 rows, 2 pushes, 1 refit" and "  now      no push" in repr(again)
        assert repr(again.bounds()).startswith("Bounds on the retrained model: Cached, no change\n")
    undecided = jb.Push(None, "Pass", 0.0, 1.0, 2, 1, (8, 9), 3, 0.1, True)
    assert lines_of(undecided) == [
        "Push 3: deployed model not decided by Pass", "  distance        ||w_new - w_old|| in [0, 1]",
        "  watched labels  2 not decided, 1 certain to change", "  rows added      8",
        "  retrained       after that, on the data with this push",
    ]  # fmt: skip
    assert "model certified to fail by" in repr(jb.Push(False, "Pass", 2.0, 3.0, 0, 0, (8, 8), 3, 0.1))


def test_left_out_rows_say_their_share_of_mistakes():
    names = "rows", "scores", "loss", "errors", "labels", "correct", "undecided", "how"
    mask = np.isin(np.arange(40), [3, 21])
    values = (np.arange(40), jb.Interval(-np.ones(40), np.ones(40)), jb.Interval(0.5, 0.75),
              jb.Interval(np.int32(3), np.int32(5)), mask, mask, mask, np.zeros(40, np.int8))  # fmt: skip
    known = dict(zip(names, values, strict=True))
    assert lines_of(jb.LeaveOneOut(**known)) == [
        "LeaveOneOut", "  rows            int64[40], 0 to 39", "  mean loss       [0.5, 0.75]",
        "  scores          40 intervals of shape (40,), widest 2", "  errors          3 to 5 of 40 (7.5 to 12.5 %)",
        "  undecided rows  2: 3, 21", "  answered by     Cached 40",
    ]  # fmt: skip
    certain = known | {"errors": jb.Interval(np.int32(3), np.int32(3)), "undecided": mask & False}
    folds = lines_of(jb.CrossValidation(**certain, fold=np.arange(40) % 3))
    assert folds[0] == "CrossValidation of 3 folds of 13 to 14 rows" and folds[4].endswith("  3 of 40 (7.5 %)")
    assert folds[5] == "  undecided rows  none"
    even = lines_of(jb.CrossValidation(**certain, fold=np.arange(40) % 5))
    assert even[0] == "CrossValidation of 5 folds of 8 rows"
    assert "(33.33 to 66.67 %)" in repr(jb.LeaveOneOut(**known | {
        "errors": jb.Interval(np.int32(1), np.int32(2)), "rows": np.arange(3), "undecided": mask[:3]}))  # fmt: skip


def test_a_status_prints_its_name():
    status = jb.Status.MAX_STEPS
    assert str(status) == f"{status}" == "{}".format(status) == "%s" % status == "MAX_STEPS"  # noqa: UP031, UP032
    assert f"{status:>10}" == " MAX_STEPS" and f"{status:d}" == "%d" % status == "1"  # noqa: UP031
    assert status == 1 and status + 1 == 2 and int(status) == 1 and repr(status) == "<Status.MAX_STEPS: 1>"
    assert json.dumps([status]) == "[1]"


def test_functions_show_their_names():
    loss = jb.losses.from_margin(jax.nn.softplus, smoothness=0.25)
    solver = jb.solvers.Optax(optax.sgd(0.1))
    assert "fn=softplus" in repr(loss) or "softplus" in repr(loss)
    for value in (loss, solver):
        assert "<" not in repr(value) and len(repr(value)) < 120


def test_html_escapes():
    class Name:
        pass

    assert display.html(Name()) == "<pre>&lt;Name&gt;</pre>"
    table = jb.Interval(np.zeros(9), np.ones(9))._repr_html_()
    assert table.count("<tr>") == 7 and "<b>Interval of shape (9,)</b>" in table


def test_tracers_and_batches_show_their_types(model, several):
    seen = []

    def gap(value):
        change = jb.set_elements([0], [1], value)
        bounds = jb.bound(model, change)
        seen.extend((change, bounds, bounds.distance, jb.Interval(value, value)))
        seen.extend(jb.bound(one, change) for one in several)
        seen.append(jb.bound_each(model, jb.stack([change, change])))
        x = value[0]
        parts = jb.set_rows([0], x * X[:1]), jb.add_columns(x * X[:, :1]), jb.add_rows(x * X[:1], Y[:1])
        seen.extend((*parts, jb.combine(*parts), jb.set_penalty(jb.penalties.l2(x)), jb.stack([parts[2]] * 2)))
        seen[:] = [(repr(one), display.html(one)) for one in seen]
        return bounds

    jax.eval_shape(gap, np.ones(1))
    assert len(seen) == 13 and all("traced" in text and "<" not in text for text, _ in seen)
    assert seen[0][0] == "Change(set 1 element (traced))"
    assert seen[1][0].startswith("Bounds on the retrained model: Cached, 1 element set\n")
    assert all(html.startswith(("<table>", "<pre>")) and "&lt;" not in html for _, html in seen)
    spread = jax.tree.map(lambda leaf: np.stack([np.asarray(leaf)] * 2), jb.bound(model, jb.remove_rows([1])))
    assert "2 CONVERGED" in repr(spread) and "distance" not in repr(spread) and "1 row removed" in repr(spread)
    twice = jax.tree.map(lambda a, b: np.stack([a, b]), jb.bound(model, jb.set_weights([1], 2.0)),
                         jb.bound(model, jb.set_targets([1], -Y[1:2])))  # fmt: skip
    assert "Cached, several changes" in repr(twice)
    for holes in (None, object()):
        hollow = jax.tree.map(lambda leaf, holes=holes: holes, jb.bound(model, jb.remove_rows([1])))
        broken = [hollow, hollow.model, jb.Interval(holes, holes), jb.penalties.L2(holes)]
        for whole in (*several, jb.remove_rows([1]), jb.add_rows(X[:1], Y[:1]), jb.leave_one_out(model)):
            broken.append(jax.tree.map(lambda leaf, holes=holes: holes, whole))
        for one in broken:
            assert repr(one) and one._repr_html_()


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
