"""Not vacuous: radii against the formulas of theory section 4.2 in 60 digits, and where intervals may be infinite."""

import dataclasses

import exact
import numpy as np
import oracle
import pytest
import table

import jaxbounds as jb

pytestmark = pytest.mark.slow  # many cells

# change -> the rows (of the bounds' numbering) at which the dual may be re-evaluated
KINDS = ("set_rows", "set_rows_targets", "set_targets", "set_weights", "set_elements", "remove_rows",
         "remove_rows_keep_n", "add_rows", "set_penalty")  # fmt: skip
PAIRS = [
    ("logistic", "l2"), ("smoothed_hinge", "l2"), ("squared_hinge", "l2"), ("squared", "l2"), ("huber", "l2"),
    ("hinge", "l2"), ("logistic", "elastic_net"), ("smoothed_hinge", "elastic_net"), ("squared", "vector_l2"),
]  # fmt: skip
ROOM = 1 + 1e-9 + 0.05  # what the formula gives, rounding, and at most 5 % of padding


def cell_of(loss, penalty, change, scale="mean"):
    return table.Cell(loss, penalty, change, "float64", "dense", scale)


def touched_rows(made) -> np.ndarray:
    """Rows (bounds' numbering) that the change touches."""
    rows = [np.asarray(a["rows"]) for _, a in made.changes if "rows" in a] + [np.arange(len(made.y), made.n)]
    return np.unique(np.concatenate(rows)).astype(int)


def new_weights(made) -> np.ndarray:
    """The exact c of the new problem: sample weight over the number of rows, not rounded."""
    _, _, weight, _ = oracle.apply_change(made.old.X, made.y, made.sample_weight, made.changes, made.cell.scale)
    kept = [a for kind, a in made.changes if kind == "remove_rows" and a.get("keep_n")]
    n = len(weight) + sum(len(a["rows"]) for a in kept)
    return exact.weights(weight, n if made.cell.scale == "mean" else 1)


def trial_pairs(made, w, alpha):
    """(kept, re-evaluated) exact certificates of the new problem; added rows have no kept dual."""
    new, c = made.new, new_weights(made)
    w = np.append(w, np.zeros(made.d - len(w)))[made.cols]
    fresh = exact.evaluate(new, w, c=c).a
    touched = np.isin(made.rows, touched_rows(made))
    kept = np.array([exact.number(a) for a in np.append(alpha, np.zeros(made.n - len(alpha)))])[made.rows]
    added = made.rows >= len(made.y)
    return [exact.evaluate(new, w, np.where(mask, fresh, kept), c) for mask in (added, touched)]


def usable(made, pairs):
    """The trial pairs that `Cached` may take at the cost of the change.

    A re-evaluated alpha moves v along the whole row. For single elements the rest of their rows is not read: with L2
    the stored row norms and products give the move of one row exactly; otherwise only the kept dual is promised.
    """
    smooth, spot = made.problem.loss.smoothness is not None, made.cell.change == "set_elements"
    exact_spot = made.cell.penalty == "l2" and touched_rows(made).size == 1
    return pairs if smooth and (not spot or exact_spot) else pairs[:1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("loss", "penalty"), PAIRS, ids="-".join)
def test_radius(loss, penalty, kind):
    """Radii from the optimum and from an inexact pair, by turns; the kept dual is what theorem 1 uses."""
    made = table.make(cell_of(loss, penalty, kind))
    turn = (KINDS.index(kind) + PAIRS.index((loss, penalty))) % 2
    model = made.inexact(np.random.default_rng(0)) if turn else made.model()
    every = trial_pairs(made, np.asarray(model.w, float), np.asarray(model.alpha, float))
    pairs = usable(made, every)
    first, mid = (jb.bound(model, made.change(), method) for method in (jb.Theorem1(), jb.Cached()))
    assert float(every[0].r_P) <= float(first.radius) * (1 + 1e-12)
    assert float(first.radius) <= float(every[0].r_P) * ROOM + 1e-12
    assert float(first.gap) <= float(every[0].G) * ROOM**2 + 1e-20
    assert float(mid.radius) <= min(float(pair.R) for pair in pairs) * ROOM + 1e-12
    if made.problem.loss.smoothness is not None:
        assert float(mid.dual_radius) <= min(float(pair.R_C) for pair in pairs) * ROOM + 1e-12
    width = np.subtract(*(np.asarray(e) for e in (mid.scores(made.X_test).upper, mid.scores(made.X_test).lower)))
    for x, have in zip(made.X_test[:, made.cols], width, strict=True):
        ends = [pair.scores(x) for pair in pairs]
        assert have <= min(float(high - low) for low, high in ends) * ROOM + 1e-12
    if made.problem.loss.smoothness is None:
        return
    duals = mid.alpha()
    width = (np.asarray(duals.upper) - np.asarray(duals.lower))[made.rows]
    boxes = [pair.dual_box() for pair in pairs]
    assert np.all(width <= np.min([(high - low).astype(float) for low, high in boxes], axis=0) * ROOM + 1e-12)
    if penalty == "l2" and not turn and kind != "set_elements":  # t = a everywhere: the joint boxes are exact
        lower, upper = pairs[1].boxes()
        width = (np.asarray(mid.w().upper) - np.asarray(mid.w().lower))[made.cols]
        assert np.all(width <= (upper - lower).astype(float) * ROOM + 1e-7)


@pytest.mark.parametrize("change", ["set_elements", "set_targets"])
def test_one_row_re_evaluated(change):
    """One touched row among many: the better of the kept and the re-evaluated dual, whichever kind of change it is."""
    rng = np.random.default_rng(5)
    n, d = 40, 4
    made = table.make(cell_of("logistic", "l2", change), 0, n, d)
    name, args = ("set_elements", {"rows": np.array([3, 3]), "cols": np.array([0, 2]), "values": np.array([4.0, -4.0])})
    if change == "set_targets":
        name, args = "set_targets", {"rows": np.array([3]), "y_new": -made.y[[3]]}
    new = oracle.changed_problem(made.old, made.sample_weight, [(name, args)], "mean")
    made = dataclasses.replace(made, changes=[(name, args)], penalties=[None], new=new)
    model = made.inexact(rng, 1e-6)
    kept, fresh = trial_pairs(made, np.asarray(model.w, float), np.asarray(model.alpha, float))
    radius = float(jb.bound(model, made.change()).radius)
    assert radius <= min(float(fresh.R), float(kept.R)) * ROOM
    assert radius >= float(fresh.R) * 0.5  # the smoothness shrink cannot do more


@pytest.mark.parametrize("loss", [name for name in table.LOSSES if name not in ("from_margin", "from_score")])
@pytest.mark.parametrize("penalty", table.PENALTIES)
def test_finite(loss, penalty):
    """Built-in losses are bounded below by 0, so every interval is finite, with each property alone too."""
    turn = list(table.LOSSES).index(loss) * 5 + table.PENALTIES.index(penalty) * 3
    kind = table.CHANGES[turn % len(table.CHANGES)]
    cell = cell_of(loss, penalty, kind)
    if not table.possible(cell):
        pytest.skip("neither property holds")
    made = table.make(cell)
    for method in (jb.Theorem1(), jb.Cached()):
        bounds = jb.bound(made.model(), made.change(), method)
        assert int(bounds.status) == jb.Status.CONVERGED and np.isfinite(float(bounds.gap))
        for interval in (bounds.w(), bounds.alpha(), bounds.scores(made.X_test), bounds.distance):
            assert np.all(np.isfinite(interval.lower)) and np.all(np.isfinite(interval.upper))
        assert np.isfinite(float(bounds.radius)) == table.strong(made.cell.penalty) or kind == "other_penalty"
        assert np.isfinite(float(bounds.dual_radius)) == (made.problem.loss.smoothness is not None)
