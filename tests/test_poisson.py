"""Poisson regression with a score bound, whose domain differs from row to row, end to end against the oracle."""

import numpy as np
import oracle
import pytest
import scipy.sparse as sp
import table

import jaxbounds as jb
from jaxbounds.array import to_host

KINDS = (
    "set_rows", "set_targets", "set_elements", "set_weights", "add_rows", "remove_rows", "set_columns", "set_penalty",
)  # fmt: skip


def penalty_of(name, factor):
    fields = {
        "l2": {"penalty": "l2", "lam": 0.1 * factor},
        "elastic_net": {"penalty": "elastic_net", "lam": 0.1 * factor, "l1": 0.05 * factor},
        "l1": {"penalty": "l1", "kappa": 0.05 * factor},
    }[name]
    return fields, getattr(jb.penalties, name)(**{key: v for key, v in fields.items() if key != "penalty"})


def inside(interval, truth, what):
    lower, upper, room = np.asarray(interval.lower), np.asarray(interval.upper), 3e-9 * (1 + np.abs(truth))
    assert np.all(lower <= truth + room) and np.all(truth - room <= upper), (what, lower, truth, upper)


def check(rng, kind, name, scale, sparse, bound, rough):
    n, d, unit = 14, 5, 1.0 if scale == "mean" else 14.0
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.7)
    y = rng.poisson(np.exp(np.minimum(X @ rng.normal(size=d) * 0.7, 3))).astype(float)
    weight, rows = rng.uniform(0.5, 2, n), rng.permutation(n)[:2]
    fields, penalty = penalty_of(name, unit)
    args = {
        "set_rows": {"rows": rows, "X_new": rng.normal(size=(2, d))},
        "set_targets": {"rows": rows, "y_new": rng.poisson(2.0, 2).astype(float)},
        "set_elements": {"rows": rows, "cols": rows % d, "values": rng.normal(size=2)},
        "set_weights": {"rows": rows, "weights": rng.uniform(0.5, 2, 2)},
        "add_rows": {"X_new": rng.normal(size=(2, d)), "y_new": np.array([0.0, 3.0])},
        "remove_rows": {"rows": rows},
        "set_columns": {"cols": rows[:1] % d, "X_new": rng.normal(size=(n, 1))},
    }
    after, changes = fields, []
    if kind == "set_penalty":
        after, new = penalty_of(name, 1.2 * unit)
        change = jb.set_penalty(new)
    else:
        changes, change = [(kind, args[kind])], getattr(jb, kind)(**args[kind])
    Xn, yn, _, cn = oracle.apply_change(X, y, weight, changes, scale)
    c = weight / n if scale == "mean" else weight
    old = oracle.solve(oracle.Problem("poisson", X, y, c, param=(bound, y), **fields))
    new = oracle.solve(oracle.Problem("poisson", Xn, yn, cn, param=(bound, yn), **after))
    w = old.w + rough * rng.normal(size=d)
    problem = jb.Problem(jb.losses.poisson(bound), penalty, scale)
    alpha = to_host(problem.loss).dual(X @ w, y)
    model = table.model_of(problem, sp.csr_array(X) if sparse else X, y, weight, w, alpha)
    rows, _ = oracle.numbering(n, d, changes)
    X_test, widths = rng.normal(size=(4, d)), {}
    for method in (jb.Theorem1(), jb.Cached(), jb.Partial(), jb.Curvature(), *([] if name == "l1" else [jb.Pass()])):
        bounds, what = jb.bound(model, change, method), (kind, name, scale, sparse, bound, rough, method)
        inside(bounds.w(), new.w, what)
        inside(bounds.alpha(), oracle.embed(new.alpha, rows, max(n, rows.max() + 1)), what)
        inside(bounds.scores(X_test), X_test @ new.w, what)
        inside(bounds.distance, np.linalg.norm(new.w - w), what)
        widths[type(method).__name__] = float(bounds.radius)
    if name != "l1":
        assert widths["Curvature"] <= widths["Partial"] <= widths["Cached"] <= widths["Theorem1"], widths
    return widths["Curvature"] / max(widths["Cached"], 1e-12)


def test_poisson_bounds_hold():
    rng, shares = np.random.default_rng(0), []
    for k, kind in enumerate(KINDS):
        name, scale = ("l2", "elastic_net", "l1")[k % 3], ("mean", "sum")[k // 3 % 2]
        share = check(rng, kind, name, scale, bool(k % 2), (-1.0, 0.5, 3.0)[k // 2 % 3], (0.0, 0.02)[k // 5 % 2])
        shares += [] if name == "l1" else [share]
    assert np.median(shares) < 0.2


@pytest.mark.slow
def test_poisson_bounds_hold_on_many_problems():
    rng = np.random.default_rng(1)
    for kind in KINDS * 3:
        name, scale = str(rng.choice(["l2", "elastic_net", "l1"])), str(rng.choice(["mean", "sum"]))
        bound, rough = float(rng.choice([-1.0, 0.5, 3.0])), 10.0 ** -float(rng.integers(1, 12))
        check(rng, kind, name, scale, bool(rng.integers(2)), bound, rough)


@pytest.mark.slow
def test_below_the_bound_it_is_poisson_regression():
    from sklearn.linear_model import PoissonRegressor

    rng = np.random.default_rng(2)
    X = rng.normal(size=(40, 3)) / 2
    y = rng.poisson(np.exp(X @ np.array([0.5, -0.4, 0.2]) + 1)).astype(float)
    X = np.c_[X, np.ones(40)]
    theirs = PoissonRegressor(alpha=0.1, fit_intercept=False, tol=1e-12, max_iter=10_000).fit(X, y)
    for bound, same in ((4.0, True), (0.0, False)):
        model = jb.fit(jb.Problem(jb.losses.poisson(bound), jb.penalties.l2(0.1)), X, y, tol=1e-12)
        below = bool(np.max(np.asarray(model.scores(X))) <= bound)
        assert below == same == np.allclose(np.asarray(model.w), theirs.coef_, atol=1e-5)


def test_bad_targets_are_refused():
    problem = jb.Problem(jb.losses.poisson(1.0), jb.penalties.l2(0.1))
    with pytest.raises(ValueError, match=r"y\[1\] = -1.0 is below 0, the least target of the loss poisson"):
        jb.fit(problem, np.eye(2), np.array([1.0, -1.0]))
