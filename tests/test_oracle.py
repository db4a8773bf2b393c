"""The oracle against the shared cases, scikit-learn and its own optimality conditions."""

import itertools

import exact
import numpy as np
import oracle
import pytest
from oracle import Problem, apply_change, solve


def random_problem(loss, penalty, n=40, d=7, seed=0, **more):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    s = X @ rng.normal(size=d) + rng.normal(size=n)
    y = np.where(s > 0, 1.0, -1.0) if loss in oracle.MARGIN_LOSSES else s
    c = rng.uniform(0.2, 2.0, n) / n
    numbers = {"smoothed_hinge": 0.5, "huber": 1.0, "squared_epsilon_insensitive": 0.3, "smoothed_quantile": (0.7, 0.5)}
    parameters = {"param": numbers.get(loss)}
    sizes = {"l2": {"lam": 0.05}, "elastic_net": {"lam": 0.03, "l1": 0.04}, "l1": {"kappa": 0.04}}
    parameters |= sizes.get(penalty, {})
    return Problem(loss, X, y, c, penalty, **(parameters | more))


@pytest.mark.parametrize("name", oracle.CASES)
def test_shared_case(name):
    case = oracle.load_case(name)
    X, y, _, c = apply_change(case.old.X, case.old.y, case.sample_weight, case.changes, case.scale)
    for ours, theirs in ((X, case.new.X), (y, case.new.y), (c, case.new.c)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-14, atol=0)
    n = len(case.old.y)
    np.testing.assert_allclose(case.sample_weight / (n if case.scale == "mean" else 1), case.old.c, rtol=1e-14)
    for pr, w, t in ((case.old, case.w_old, case.t_old), (case.new, case.w_new, case.t_new)):
        best = solve(pr)
        np.testing.assert_allclose(best.w, w, rtol=0, atol=1e-6)
        np.testing.assert_allclose(pr.orientation * best.alpha, t, rtol=0, atol=1e-6)
    np.testing.assert_allclose(case.X_test @ solve(case.new).w, case.scores_new, rtol=0, atol=1e-5)
    np.testing.assert_allclose(oracle.primal(case.old, case.w_old), case.values["P_old"], rtol=1e-12)
    np.testing.assert_allclose(oracle.primal(case.new, case.w_old), case.values["P_new_at_old"], rtol=1e-12)


SOLVABLE = [(lo, pe) for lo, pe in itertools.product(oracle.LOSSES + oracle.MORE_LOSSES, ("l2", "elastic_net", "l1"))
            if (lo, pe) != ("hinge", "l1")]  # fmt: skip


@pytest.mark.parametrize(("loss", "penalty"), SOLVABLE)
@pytest.mark.parametrize(("n", "d"), [(60, 5), (12, 30)])
def test_optimum_gap(loss, penalty, n, d):
    for seed in range(3):
        best = solve(random_problem(loss, penalty, n, d, seed))
        assert -1e-16 <= best.gap <= 1e-13 * best.primal


@pytest.mark.parametrize("loss", oracle.LOSSES)
@pytest.mark.parametrize("q", [1.2, 1.5, 2.0, 3.0, 4.0])
def test_lq_gap(loss, q):
    for seed in range(3):
        pr = random_problem(loss, "lq", seed=seed, lam=0.05, q=q)
        best = solve(pr)
        assert best.gap <= 1e-13 * best.primal
        if q == 2:
            np.testing.assert_allclose(best.w, solve(random_problem(loss, "l2", seed=seed)).w, atol=1e-8)


@pytest.mark.parametrize("penalty", ["l2", "elastic_net", "l1"])
def test_vector_parameters(penalty):
    d = 7
    lam = np.geomspace(0.01, 1.0, d)
    more = {"l2": {"lam": lam}, "elastic_net": {"lam": lam, "l1": lam[::-1] / 20}, "l1": {"kappa": lam / 10}}[penalty]
    pr = random_problem("logistic", penalty, d=d, **more)
    best = solve(pr)
    rng = np.random.default_rng(1)
    for _ in range(50):
        assert oracle.primal(pr, best.w + 1e-3 * rng.normal(size=d)) > best.primal


def test_against_sklearn():
    from sklearn.linear_model import ElasticNet, LogisticRegression, Ridge
    from sklearn.svm import LinearSVC

    pr = random_problem("squared", "elastic_net")
    other = ElasticNet(alpha=0.07, l1_ratio=4 / 7, fit_intercept=False, tol=1e-12, max_iter=100000)
    other.fit(pr.X, pr.y, sample_weight=pr.c * len(pr.y) / pr.c.sum())
    scaled = Problem("squared", pr.X, pr.y, pr.c / pr.c.sum(), "elastic_net", lam=0.03, l1=0.04)
    np.testing.assert_allclose(solve(scaled).w, other.coef_, atol=1e-6)
    ridge = random_problem("squared", "l2")
    fitted = Ridge(alpha=0.05, fit_intercept=False).fit(ridge.X, ridge.y, sample_weight=ridge.c)
    np.testing.assert_allclose(solve(ridge).w, fitted.coef_, atol=1e-10)
    pr = random_problem("logistic", "l2")
    logistic = LogisticRegression(C=1 / 0.05, fit_intercept=False, tol=1e-12, max_iter=1000)
    np.testing.assert_allclose(solve(pr).w, logistic.fit(pr.X, pr.y, sample_weight=pr.c).coef_[0], atol=1e-5)
    pr = random_problem("hinge", "l2")
    svm = LinearSVC(C=1.0, loss="hinge", fit_intercept=False, tol=1e-10, max_iter=1000000)
    svm.fit(pr.X, pr.y, sample_weight=pr.c / 0.05)
    np.testing.assert_allclose(solve(pr).w, svm.coef_[0], atol=1e-5)


def test_apply_change_kinds():
    rng = np.random.default_rng(0)
    X, y, sw = rng.normal(size=(5, 3)), np.arange(5.0), np.arange(1.0, 6.0)

    def run(*changes, scale="mean"):
        return apply_change(X, y, sw, list(changes), scale)

    remove = ("remove_rows", {"rows": [1, 3]})
    np.testing.assert_array_equal(run(remove)[0], X[[0, 2, 4]])
    np.testing.assert_allclose(run(remove)[3], sw[[0, 2, 4]] / 3)
    np.testing.assert_allclose(run(("remove_rows", {"rows": [1, 3], "keep_n": True}))[3], sw[[0, 2, 4]] / 5)
    np.testing.assert_allclose(run(remove, scale="sum")[3], sw[[0, 2, 4]])
    add = ("add_rows", {"X_new": np.ones((2, 3)), "y_new": [7.0, 8.0]})
    np.testing.assert_allclose(run(add)[3], np.append(sw, [1, 1]) / 7)
    wide = ("add_columns", {"X_new": np.full((5, 1), 9.0)})
    both = run(wide, add, remove, ("remove_columns", {"cols": [0]}))
    np.testing.assert_array_equal(both[0][:3], np.column_stack([X[[0, 2, 4], 1:], np.full(3, 9.0)]))
    np.testing.assert_array_equal(both[0][3:], [[1, 1, 0], [1, 1, 0]])
    later = run(("set_rows", {"rows": [2], "X_new": np.zeros((1, 3)), "y_new": [5.0]}),
                ("set_columns", {"cols": [1], "X_new": np.full((5, 1), 4.0)}),
                ("set_elements", {"rows": [2, 0], "cols": [0, 0], "values": [6.0, 7.0]}),
                ("set_weights", {"rows": [4], "weights": [10.0]}))  # fmt: skip
    np.testing.assert_array_equal(later[0][2], [6, 4, 0])
    assert later[0][0, 0] == 7 and later[1][2] == 5 and later[2][4] == 10
    with pytest.raises(ValueError, match="removed"):
        run(remove, ("set_targets", {"rows": [1], "y_new": [0.0]}))
    rows, cols = oracle.numbering(5, 3, [add, remove, wide, ("remove_columns", {"cols": [0]})])
    np.testing.assert_array_equal(rows, [0, 2, 4, 5, 6])
    np.testing.assert_array_equal(cols, [1, 2, 3])
    np.testing.assert_array_equal(oracle.embed(np.ones(3), cols, 4), [0, 1, 1, 1])


def test_changed_problem_penalty():
    pr = random_problem("logistic", "l2", lam=np.geomspace(0.01, 1, 7))
    new = oracle.changed_problem(pr, None, [("remove_columns", {"cols": [2]})])
    np.testing.assert_array_equal(new.lam, np.delete(pr.lam, 2))
    new = oracle.changed_problem(pr, None, [("set_penalty", {"penalty": "elastic_net", "lam": 0.1, "l1": 0.02})])
    assert new.penalty == "elastic_net" and new.lam == 0.1 and new.l1 == 0.02


@pytest.mark.parametrize("loss", oracle.LOSSES)
@pytest.mark.parametrize("penalty", ["l2", "elastic_net", "lq"])
def test_exact_certificates(loss, penalty):
    """exact.py agrees with the oracle's gap, and its sets hold the optimum."""
    rng = np.random.default_rng(3)
    n, d = 10, 4
    vector = {"lam": np.geomspace(0.02, 0.5, d)}
    for more in ({"lam": 0.1, "q": 1.5},) if penalty == "lq" else ({}, vector):
        pr = random_problem(loss, penalty, n, d, seed=2, **more)
        best, tol = solve(pr), 1e-7
        w = best.w + rng.normal(size=d) * 0.1
        noise = rng.normal(size=n) * 0.1
        alpha = np.clip(oracle.loss_dual(loss, pr.param, pr.coordinate(w)) + noise, *oracle.loss_domain(loss, pr.param))
        e = exact.evaluate(pr, w, alpha)
        assert abs(float(e.G) - oracle.gap(pr, w, alpha)) <= 1e-15
        assert min(e.fy) >= -1e-50 and min(e.columns) >= -1e-50
        if e.gamma > 0:
            lower, upper = (z.astype(float) for z in e.dual_box())
            assert np.all((lower - tol <= best.alpha) & (best.alpha <= upper + tol))
            assert np.all(np.abs(alpha - best.alpha) <= e.r_D.astype(float) + tol)
        if penalty == "lq":
            continue
        assert np.linalg.norm(w - best.w) <= float(e.r_P) + tol
        assert float(e.distance(best.w)) <= float(e.R) + tol
        if penalty == "l2":
            lower, upper = (z.astype(float) for z in e.boxes())
            assert np.all((lower - tol <= best.w) & (best.w <= upper + tol))
        if np.ndim(pr.lam) == 0:
            centre, radius = e.shrink(np.linalg.norm(np.sqrt(pr.c)[:, None] * pr.X, 2) ** 2 * (1 + 1e-12))
            assert np.linalg.norm(centre.astype(float) - best.w) <= float(radius) + tol
            assert float(radius) <= float(e.r_P)


def test_exact_weights_are_not_rounded():
    c = exact.weights(np.array([1.0, 2.0]), 3)
    assert c[0] * 3 == 1 or abs(c[0] * 3 - 1) < 1e-59
    assert abs(float(c[0]) - 1 / 3) < 1e-16 and c[0] != exact.number(1 / 3)
