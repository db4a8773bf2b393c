"""Bounds with an unpenalised intercept, against optima of (w, b) by an oracle that shares no code."""

from dataclasses import replace

import exact
import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
import table
from pairs import draw
from regions import holds, refined
from test_intercept import Oracle

import jaxbounds as jb
from jaxbounds.model import remember

pytestmark = pytest.mark.slow  # many cells

SLACK = 3e-8  # the oracle's own error
METHODS = (jb.Theorem1(), jb.Cached(), jb.Partial(), jb.Pass(), jb.Curvature())


def usable(cell: table.Cell) -> bool:
    return cell.loss != "hinge" and table.strong(cell.penalty) and table.strong(table.after_penalty(cell))


CELLS = [cell for cell in table.pairwise() if usable(cell)]


def optimum(pr: oracle.Problem):
    """(w, b, alpha, whether b is unique) of P with an unpenalised intercept."""
    d = pr.X.shape[1]
    lam, l1 = np.broadcast_to(pr.lam, d), np.broadcast_to(pr.l1 if pr.penalty == "elastic_net" else 0.0, d)
    best = Oracle(pr.loss, pr.param, lam, l1, pr.X, pr.y, pr.c)
    q = best.pr.coordinate(np.append(best.w, best.b))
    unique = np.sum(pr.c * oracle.loss_second(pr.loss, pr.param, q)) > 1e-3 * np.sum(pr.c)
    return best.w, best.b, oracle.loss_dual(pr.loss, pr.param, q), unique


def both_classes(made) -> bool:
    return not made.old.margin or all(len(set(pr.y[pr.c > 0])) == 2 for pr in (made.old, made.new))


def inside(interval, truth, what):
    lower, upper = np.asarray(interval.lower, float), np.asarray(interval.upper, float)
    assert lower.shape == np.shape(truth) and not np.any(np.isnan(lower) | np.isnan(upper)), what
    room = SLACK * (1 + np.abs(truth))
    assert np.all(lower <= truth + room) and np.all(upper >= truth - room), (what, lower, truth, upper)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_cell(cell):
    made = table.make(cell)
    assert both_classes(made)  # else there is no finite intercept
    w_old, _, alpha, unique = optimum(made.old)
    w, b, alpha_new, unique_new = optimum(made.new)
    assert unique and unique_new
    rng = np.random.default_rng([*map(ord, str(cell))])
    if rng.integers(2):  # a model that is not trained well
        w_old = w_old + 0.02 * rng.normal(size=w_old.size)
    problem = replace(made.problem, intercept=True)
    model = table.model_of(problem, made.X, made.y, made.sample_weight, w_old, alpha)
    w, alpha_new = oracle.embed(w, made.cols, made.d), oracle.embed(alpha_new, made.rows, made.n)
    base = np.append(np.asarray(model.w, float), np.zeros(made.d - model.w.shape[0]))
    radii = []
    for method in METHODS:
        bounds, what = jb.bound(model, made.change(), method), f"{cell} {method}"
        inside(bounds.w(), w, f"{what} w")
        inside(bounds.intercept, b, f"{what} intercept")
        inside(bounds.scores(made.X_test), made.X_test @ w + b, f"{what} scores")
        inside(bounds.alpha(), alpha_new, f"{what} alpha")
        inside(bounds.distance, np.linalg.norm(w - base), f"{what} distance")
        assert np.all(np.abs(w[np.asarray(bounds.inactive_columns())]) <= SLACK), what
        assert np.all(np.abs(alpha_new[np.asarray(bounds.inactive_rows())]) <= SLACK), what
        radii.append(float(bounds.radius))
    assert radii[1] <= radii[0] and all(radius <= radii[1] for radius in radii[2:])
    if cell.loss not in ("from_margin", "from_score") and cell.penalty != "from_function":
        assert radii[4] <= 1e-6 * (1 + np.linalg.norm(w))


def optimum_in_45_digits(task):
    """(w, b) of the new problem by Newton steps from the oracle's, or None where an active set is uncertain."""
    pr, c = task.new
    d = pr.X.shape[1]
    penalties = np.broadcast_to(pr.lam, d), np.broadcast_to(pr.l1, d)
    best = Oracle(pr.loss, pr.param, *penalties, pr.X.astype(float), pr.y, c.astype(float))
    ones = np.column_stack([pr.X, np.ones(len(pr.y))])
    lam, l1 = (np.append(exact.array(value, d), exact.MP.zero) for value in (pr.lam, pr.l1))
    return refined(pr, c, exact.array(np.append(best.w, best.b)), ones, lam, l1)


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("block", range(2))
def test_optimum_to_45_digits_is_inside(block, x64):
    """No end point of any interval may be beyond the exact optimum, not by one bit."""
    known = 0
    with jax.enable_x64(x64):
        for seed in range(300 + 200 * block + 100 * x64, 324 + 200 * block + 100 * x64):
            task = draw(np.random.default_rng(seed))
            if task.pr.loss == "hinge" or len(set(task.new[0].y[task.new[1].astype(float) > 0])) < 2:
                continue
            task = WithIntercept(task)
            z = optimum_in_45_digits(task)
            if z is None:
                continue
            known += 1
            pr, c = task.new
            X = np.vstack([pr.X, np.eye(z.size - 1)])
            old = np.zeros(z.size - 1)
            old[: len(task.w)] = task.w
            for method in METHODS:
                bounds, what = jb.bound(task.model, task.change, method), f"{seed} {method}"
                moved = exact.norm(z[:-1] - exact.array(old))
                for name, interval, value in (
                    ("w", bounds.w(), z[:-1]), ("b", bounds.intercept, z[-1:]),
                    ("scores", bounds.scores(X), exact.array(X) @ z[:-1] + z[-1]),
                    ("distance", bounds.distance, np.array([moved])),
                ):  # fmt: skip
                    holds(name, (np.asarray(interval.lower), np.asarray(interval.upper)), value, value, what)
    assert known >= 6


class WithIntercept:
    """A task of pairs.py with an intercept in its model."""

    def __init__(self, task):
        self.pr, self.new, self.change, self.w = task.pr, task.new, task.change, task.w
        problem = replace(task.model.problem, intercept=True)
        with jax.enable_x64(True), np.errstate(all="ignore"):
            self.model = remember(problem, task.model.data, task.model.w, task.model.alpha, task.model.ref)


def small(loss=None, n=40, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) + [3.0, 0.0, 0.0]
    y = np.where(X @ [1.0, -1.0, 0.5] - 3.0 + rng.normal(size=n) > 0, 1.0, -1.0)
    problem = jb.Problem(loss or jb.losses.logistic(), jb.penalties.l2(0.05), intercept=True)
    return jb.fit(problem, X, y, tol=1e-12), X, y


def test_half_the_gradient():
    """Cached's ball is the half ball of the gradient at w^ with its best intercept: R = ||g|| / (2 lam)."""
    model, X, y = small()
    change = jb.set_targets([0, 1], -y[:2])
    flipped = np.append(-y[:2], y[2:])
    scores, w = X @ np.asarray(model.w), np.asarray(model.w)

    def imbalance(b):
        return np.mean(-flipped / (1 + np.exp(flipped * (scores + b))))

    low, high = -50.0, 50.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if imbalance(middle) < 0 else (low, middle)
    g = 0.05 * w - X.T @ (flipped / (1 + np.exp(flipped * (scores + low)))) / len(y)
    assert float(jb.bound(model, change).radius) == pytest.approx(np.linalg.norm(g) / 0.1, rel=1e-6)


def test_sweeps_and_decisions():
    model, X, y = small(n=20)
    each = jb.bound_each(model, jb.each_row_removed(model, [0, 3]), X[:5], method=jb.Curvature())
    for k, row in enumerate((0, 3)):
        new = jb.refit(model, jb.remove_rows([row]), tol=1e-13)
        scores = np.asarray(new.scores(X[:5]))
        lower, upper = np.asarray(each.scores().lower)[k], np.asarray(each.scores().upper)[k]
        assert np.all(lower <= scores + 1e-7) and np.all(upper >= scores - 1e-7) and np.all(upper - lower < 1e-6)
    decision = jb.decide(model, jb.remove_rows([0]), jb.LabelsKnown(X))
    retrained = np.asarray(jb.refit(model, jb.remove_rows([0]), tol=1e-13).scores(X))
    assert decision.status == "decided" and np.array_equal(decision.answer, np.sign(retrained))


def test_one_class_left():
    """Without one of the classes there is no finite intercept: nothing is known of scores, nothing fails."""
    X = np.array([[0.0], [1.0], [2.0], [3.0]])
    model = jb.fit(jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1), intercept=True), X, [-1.0, 1.0, 1.0, 1.0])
    for method in METHODS:
        bounds = jb.bound(model, jb.remove_rows([0]), method)
        scores = bounds.scores(X)
        assert np.all(np.isinf(scores.upper)) and not np.any(np.isnan(scores.lower)), method
        assert np.all(np.asarray(bounds.labels(X)) == 0) or np.all(np.asarray(bounds.labels(X)) == 1)


@pytest.mark.slow
def test_compiled():
    model, X, y = small(n=16)

    def question(values):
        bounds = jb.bound(model, jb.set_rows(np.array([2]), values), jb.Curvature())
        return bounds.scores(X[:4]).upper, bounds.intercept.lower

    with jax.enable_x64(True):
        values = jnp.asarray(X[5:7, None])
        upper, b_low = jax.jit(jax.vmap(question))(values)
    for k in range(2):
        new = jb.refit(model, jb.set_rows([2], X[5 + k][None]), tol=1e-13)
        assert np.all(np.asarray(upper[k]) >= np.asarray(new.scores(X[:4])) - 1e-8)
        assert float(b_low[k]) <= float(new.intercept) + 1e-8


def test_what_is_missing_is_named():
    X, y = np.eye(3), np.array([1.0, -1.0, 1.0])
    lasso = jb.fit(jb.Problem(jb.losses.logistic(), jb.penalties.l1(0.05), intercept=True), X, y)
    with pytest.raises(ValueError, match=r"with intercept=True need a strongly convex penalty \(property B\), and l1"):
        jb.bound(lasso, jb.remove_rows([0]))
    model = jb.fit(jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1), intercept=True), X, y)
    with pytest.raises(ValueError, match="with intercept=True need the data"):
        jb.bound(model.without_data(), jb.set_rows([0], X[:1], old_values=X[:1]))
