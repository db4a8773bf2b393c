"""Leave-one-out in closed form against true retrains, refined in extended precision, and ridge in 60 digits."""

import functools
import warnings

import exact
import jax
import numpy as np
import oracle
import pytest
import scipy.sparse as sp
import sklearn.datasets

import jaxbounds as jb
from jaxbounds.array import put
from jaxbounds.certificates import whitened as inverse_module
from jaxbounds.certificates.leave_one_out import EXACT, SECOND_ORDER, WIDE, leave_one_out, removed_scores
from jaxbounds.certificates.whitened import inverse
from jaxbounds.matrix import as_matrix
from jaxbounds.model import Data, remember

LOSSES = {
    "smoothed_hinge": jb.losses.smoothed_hinge, "squared_hinge": lambda _: jb.losses.squared_hinge(),
    "huber": jb.losses.huber, "squared": lambda _: jb.losses.squared(), "logistic": lambda _: jb.losses.logistic(),
}  # fmt: skip
LONG = np.longdouble


def ridge_of(lam, n, scale, keep_n):
    """The penalty of the retrained model's objective where rows count with their sample weights."""
    return np.asarray(lam, float) * (1 if scale == "sum" else n if keep_n else n - 1)


def retrained_score(loss, param, X, y, weight, ridge, k, w):
    """x_k.w of the model retrained without row k, and how far the truth can be from it, ||x_k|| ||gradient||."""
    kept, param_ = np.delete(np.arange(len(y)), k), None if param is None else LONG(param)
    margin, ridge = loss in oracle.MARGIN_LOSSES, np.zeros(X.shape[1], LONG) + ridge
    A, t, c, x = X[kept].astype(LONG), y[kept].astype(LONG), weight[kept].astype(LONG), X[k].astype(LONG)
    z, best, w = t if margin else np.ones_like(t), (np.nan, np.inf), w.astype(LONG)

    stuck = 0

    def coordinate(w):
        return t * (A @ w) if margin else A @ w - t

    def objective(w):
        return c @ oracle.loss_value(loss, param_, coordinate(w)) + np.sum(ridge * w * w) / 2

    for _ in range(60):
        q = coordinate(w)
        g = ridge * w - A.T @ (c * z * oracle.loss_dual(loss, param_, q))
        error = float(np.sqrt(np.sum(g * g / ridge) * np.sum(x * x / ridge)))
        stuck = 0 if error < 0.5 * best[1] else stuck + 1
        best = min(best, (x @ w, error), key=lambda found: found[1])
        if error == 0 or (stuck and error < 1e-12 * (1 + abs(best[0]))) or stuck == 6:
            break
        H = (X[kept].T * (weight[kept] * oracle.loss_second(loss, param, q.astype(float)))) @ X[kept].astype(float)
        try:
            p = -np.linalg.solve(H + np.diag(ridge.astype(float)), g.astype(float)).astype(LONG)
        except np.linalg.LinAlgError:
            break
        size, start = 1.0, objective(w)
        while error > 1e-9 and size > 1e-4 and objective(w + size * p) > start + 1e-4 * size * (g @ p):
            size /= 2
        w = w + size * p
    return best


def check(
    model, loss, param, X, y, weight, lam, scale="mean", keep_n=False, rows=None, found=None, share=0.8, start=None
):
    """Every answer holds the truth; returns the answers."""
    rows = np.arange(len(y)) if rows is None else np.asarray(rows)
    found = leave_one_out(model, rows, keep_n) if found is None else found
    assert np.all(found.lower <= found.upper)
    ridge, known = ridge_of(lam, len(y), scale, keep_n), 0
    start = np.asarray(model.w, float) if start is None else start
    for i, k in enumerate(rows):
        score, error = retrained_score(loss, param, X, y, weight, ridge, k, start)
        known += error < 1e-6 * (1 + abs(score))
        assert found.lower[i] - error <= score <= found.upper[i] + error, (k, found.how[i], score, error)
    assert known >= share * rows.size
    return found


@functools.cache
def digits():
    X, y = sklearn.datasets.load_digits(return_X_y=True)
    return (X / np.linalg.norm(X, axis=1)[:, None])[:1437], np.where(y % 2 == 0, 1.0, -1.0)[:1437]


@functools.cache
def breast_cancer():
    X, y = sklearn.datasets.load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return X / np.linalg.norm(X, axis=1)[:, None], np.where(y == 1, 1.0, -1.0)


def fit(loss, param, lam, X, y, tol=1e-10, scale="mean", **options):
    problem = jb.Problem(LOSSES[loss](param), jb.penalties.l2(lam), scale=scale)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jb.FitWarning)
        return jb.fit(problem, X, y, tol=tol, **options)


# ---------------------------------------------------------------- real data


@pytest.mark.parametrize("lam", [1e-1, 1e-2, 1e-3, 1e-4])
@pytest.mark.parametrize("name", ["digits", "breast_cancer"])
def test_every_row_of_a_smoothed_hinge_is_exact(name, lam):
    X, y = digits() if name == "digits" else breast_cancer()
    model = fit("smoothed_hinge", 0.5, lam, X, y)
    found = leave_one_out(model)
    if name == "digits" or lam >= 1e-3:
        assert np.all(found.how == EXACT)
    assert np.median(found.upper - found.lower) < 1e-10 and np.max(found.upper - found.lower) < 2e-8
    rows = np.arange(5, len(y), 197)
    one = type(found)(*(part[rows] for part in found))
    check(model, "smoothed_hinge", 0.5, X, y, np.ones(len(y)), lam, rows=rows, found=one)


@pytest.mark.full
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("lam", [1e-1, 1e-2, 1e-3, 1e-4])
@pytest.mark.parametrize("name", ["digits", "breast_cancer"])
def test_every_row_of_real_data(name, lam, loss):
    X, y = digits() if name == "digits" else breast_cancer()
    model = fit(loss, 0.5, lam, X, y)
    for keep_n in (False, True):
        check(model, loss, 0.5, X, y, np.ones(len(y)), lam, keep_n=keep_n)


@pytest.mark.parametrize("lam", [1e-3, 1e-4])
def test_logistic_decides_the_labels_of_digits(lam):
    X, y = digits()
    model = fit("logistic", None, lam, X, y)
    found = leave_one_out(model)
    assert not np.any((found.lower <= 0) & (found.upper >= 0)) and np.mean(found.how == SECOND_ORDER) > 0.99
    rows = np.append(np.argsort(np.minimum(np.abs(found.lower), np.abs(found.upper)))[:3], [7, 900])
    one = type(found)(*(part[rows] for part in found))
    check(model, "logistic", None, X, y, np.ones(len(y)), lam, rows=rows, found=one)


@pytest.mark.parametrize("loss", LOSSES)
def test_half_trained_models(loss):
    X, y = breast_cancer()
    X, y = X[::6], y[::6]
    for tol in (1e-2, 1e-4, 1e-6):
        found = check(fit(loss, 0.5, 1e-2, X, y, tol), loss, 0.5, X, y, np.ones(len(y)), 1e-2, rows=np.arange(0, 95, 6))
        assert np.mean(found.how >= (SECOND_ORDER if loss == "logistic" else EXACT)) > 0.9 or tol > 1e-3


# ---------------------------------------------------------------- random problems


def draw(rng, n, d, loss, size=1.0):
    X = rng.normal(size=(n, d)) * size
    if rng.random() < 0.3:
        X = np.round(2 * X) / 2
    score = X @ rng.normal(size=d) / size + rng.normal(size=n) * rng.choice([0.1, 1.0, 5.0])
    y = np.where(score > 0, 1.0, -1.0) if loss in oracle.MARGIN_LOSSES else score
    if n > 3 and rng.random() < 0.5:
        X[1], y[1] = X[0], y[0]
        X[2] = 0.0
    return X, y


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_random_problems(loss):
    kinds = set()
    for seed in range(8):
        rng = np.random.default_rng([list(LOSSES).index(loss), seed])
        n, d = int(rng.choice([3, 12, 30])), int(rng.choice([2, 8, 40]))
        X, y = draw(rng, n, d, loss)
        X = X.astype(np.float32) if seed % 3 == 0 else X
        lam = 10.0 ** rng.uniform(-4, 0) * (np.geomspace(1, 5, d) if seed % 4 == 0 else 1.0)
        weight, scale = rng.choice([0.3, 1.0, 2.5], n), str(rng.choice(["mean", "sum"]))
        model = fit(loss, 0.4, lam, X, y, 10.0 ** rng.uniform(-12, -2), scale, sample_weight=weight)
        for keep_n in (False, True):
            kinds |= set(check(model, loss, 0.4, X, y, weight, lam, scale, keep_n).how)
    assert (SECOND_ORDER if loss == "logistic" else EXACT) in kinds


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("huge", [1e8, 1e-8])
def test_rows_of_extreme_norm(loss, huge):
    rng = np.random.default_rng(3)
    X, y = draw(rng, 25, 6, loss)
    X[4] *= huge
    model = fit(loss, 0.5, 0.05, X, y, 1e-8)
    share = 0.8 if huge < 1 else 0.0  # the truth itself has only float64 Newton steps
    found = check(model, loss, 0.5, X, y, np.ones(25), 0.05, rows=np.delete(np.arange(25), 4), share=share)
    if huge < 1 and loss != "logistic":
        assert np.all(found.how == EXACT)
    lower, upper = removed_scores(model)
    assert np.all(lower <= upper)


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_more_columns_than_rows_use_the_kernel(loss, monkeypatch):
    rng = np.random.default_rng(5)
    X, y = draw(rng, 20, 200, loss, 0.1)
    X = np.where(rng.random(X.shape) < 0.2, X, 0.0)
    model = fit(loss, 0.5, 0.02, sp.csr_array(X) if loss != "huber" else X, y)
    found = check(model, loss, 0.5, X, y, np.ones(20), 0.02, rows=np.arange(0, 20, 3))
    monkeypatch.setattr(inverse_module, "_KERNEL_FROM", 10**6)
    other = leave_one_out(model, np.arange(0, 20, 3))
    np.testing.assert_array_equal(found.how, other.how)
    np.testing.assert_allclose(found.lower, other.lower, rtol=1e-7, atol=1e-7)


def pair(problem, X, y, w, alpha):
    """The model of any coefficients and dual variables."""
    with jax.enable_x64(True):
        return remember(problem, put(Data(as_matrix(X), y, np.ones(len(y)))), put(w), put(alpha))


def test_any_pair_of_w_and_alpha_will_do():
    rng = np.random.default_rng(11)
    for loss in LOSSES:
        X, y = draw(rng, 30, 5, loss)
        for w in (np.zeros(5), rng.normal(size=5), 100 * rng.normal(size=5)):
            problem = jb.Problem(LOSSES[loss](0.5), jb.penalties.l2(0.1))
            alpha = oracle.loss_dual(loss, 0.5, y * (X @ w) if loss in oracle.MARGIN_LOSSES else X @ w - y)
            model = pair(problem, X, y, w, alpha)
            rows = np.arange(0, 30, 4)
            check(model, loss, 0.5, X, y, np.ones(30), 0.1, keep_n=True, rows=rows, start=np.zeros(5))


def test_a_row_at_its_kink():
    X = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [0.5, 1.0], [2.0, 0.0]])
    y = np.array([1.0, -1.0, 1.0, 1.0, 1.0])
    for w in ([1.0, 0.5], [0.5, 0.25], [0.5, 0.0]):  # margins exactly 1 and 1 - gamma
        problem = jb.Problem(jb.losses.smoothed_hinge(0.5), jb.penalties.l2(0.1))
        model = pair(problem, X, y, np.array(w), np.full(5, 0.5))
        check(model, "smoothed_hinge", 0.5, X, y, np.ones(5), 0.1)


# ---------------------------------------------------------------- formulas


@pytest.mark.parametrize("keep_n", [False, True])
def test_ridge_in_sixty_digits(keep_n):
    for seed in range(24):
        rng = np.random.default_rng([seed, keep_n])
        n, d = int(rng.integers(2, 9)), int(rng.integers(1, 5))
        X, y = draw(rng, n, d, "squared", 10.0 ** rng.uniform(-3, 3))
        lam, weight, scale = 10.0 ** rng.uniform(-6, 1), rng.uniform(0.1, 3, n), ["mean", "sum"][seed % 2]
        model = fit("squared", None, lam, X, y, 10.0 ** rng.uniform(-14, -1), scale, sample_weight=weight)
        found = leave_one_out(model, keep_n=keep_n)
        A, t, c = exact.array(X), exact.array(y), exact.array(weight)
        ridge = exact.number(lam) * (1 if scale == "sum" else n if keep_n else n - 1)
        for k in range(n):
            kept = np.delete(np.arange(n), k)
            H = exact.MP.matrix((A[kept].T * c[kept] @ A[kept] + ridge * np.eye(d)).tolist())
            w = exact.MP.lu_solve(H, exact.MP.matrix((A[kept].T @ (c[kept] * t[kept])).tolist()))
            score = sum((A[k, j] * w[j] for j in range(d)), exact.MP.zero)
            assert exact.number(found.lower[k]) <= score <= exact.number(found.upper[k]), (seed, k)


def test_widths_are_those_of_the_formula():
    X, y = breast_cancer()
    lam, n = 1e-2, len(y)
    model = fit("logistic", None, lam, X, y, 1e-13)
    found, w = leave_one_out(model), np.asarray(model.w)
    p = oracle.loss_dual("logistic", None, y * (X @ w))
    ridge, a = lam * (n - 1), p * (1 - p)
    H, f = (X.T * a) @ X + ridge * np.eye(X.shape[1]), ridge * w - X.T @ (y * p)
    G = np.linalg.solve(H, np.column_stack([X.T, f]))
    e, h, phi = np.einsum("ij,ji->i", X, G[:, :-1]), X @ G[:, -1], f @ G[:, -1]
    den, t = 1 - a * e, y * p
    nu = np.sqrt(t**2 * e / den + 2 * t * h / den + phi + a * h**2 / den)
    q = nu * np.array([np.sqrt(np.max(np.delete(e, k)) / den[k]) for k in range(n)])
    T = -np.log1p(-q)
    centre, half = X @ w - T * (2 - q) / (2 * q) * (t * e + h) / den, T / 2 * nu * np.sqrt(e / den)
    plain = found.how == SECOND_ORDER
    assert np.mean(plain) > 0.9
    assert np.all((found.upper - found.lower)[plain] <= (2 * half * (1 + 1e-9) + 1e-12)[plain])
    assert np.all(found.lower[plain] >= (centre - half)[plain] - 1e-12)


@pytest.mark.parametrize("kernel", [False, True])
def test_products_in_the_metric_of_the_inverse(kernel, monkeypatch):
    monkeypatch.setattr(inverse_module, "_KERNEL_FROM", 0 if kernel else 10**6)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n, d = (4, 7) if kernel else (7, 4)
        X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-4, 4, (n, 1) if seed % 2 else (1, d))
        weight, ridge = rng.uniform(0, 2, n) * (rng.random(n) < 0.7), 10.0 ** rng.uniform(-3, 1, d)
        last = rng.normal(size=d)
        inv = inverse(X, weight, ridge, 0.0, last, lambda root: 0.0)
        if inv is None:
            assert kernel
            continue
        A, c = exact.array(X), exact.array(weight)
        H = exact.MP.matrix((A.T * c @ A + np.diag(exact.array(ridge))).tolist())
        V = exact.MP.matrix(np.vstack([A, exact.array(last)]).T.tolist())
        true = V.T * (H**-1) * V
        every = np.arange(n + 1)
        N = inv.products(every, every)
        for i in every:
            assert exact.number(inv.root[i]) ** 2 >= true[int(i), int(i)]
            for j in every:
                assert abs(exact.number(N[i, j]) - true[int(i), int(j)]) <= exact.number(inv.error(i, j))


# ---------------------------------------------------------------- what is outside, and arguments


@pytest.mark.parametrize("case", ["hinge", "elastic_net", "user"])
def test_other_problems_get_the_mid_ball(case):
    X, y = breast_cancer()
    X, y = X[::20], y[::20]
    loss = {"hinge": jb.losses.hinge, "user": lambda: jb.losses.from_margin(lambda m: jax.numpy.logaddexp(0.0, -m))}
    penalty = jb.penalties.elastic_net(0.1, 0.01) if case == "elastic_net" else jb.penalties.l2(0.1)
    problem = jb.Problem(loss.get(case, lambda: jb.losses.smoothed_hinge(0.5))(), penalty)
    model = pair(problem, X, y, 0.1 * np.ones(X.shape[1]), np.full(len(y), 0.5))
    found, rows = leave_one_out(model, [3, 7, 20]), [3, 7, 20]
    scores = jb.bound_each(model, jb.each_row_removed(model, rows), X[rows]).scores()
    np.testing.assert_allclose(found.lower, np.diag(np.asarray(scores.lower)), rtol=1e-9)
    np.testing.assert_allclose(found.upper, np.diag(np.asarray(scores.upper)), rtol=1e-9)
    assert np.all(found.how == WIDE)


def test_rows_and_errors():
    X, y = breast_cancer()
    X, y = X[::8], y[::8]
    model = fit("smoothed_hinge", 0.5, 1e-3, X, y)
    every, some = leave_one_out(model), leave_one_out(model, [9, 2])
    for a, b in zip(every, some, strict=True):
        np.testing.assert_allclose(a[[9, 2]], b, atol=1e-10)
    lower, upper = removed_scores(model)
    np.testing.assert_array_equal(lower, every.lower)
    np.testing.assert_array_equal(upper, every.upper)
    for call, message in (
        (lambda: leave_one_out(model, [len(y)]), "is not a row"), (lambda: leave_one_out(model, [1, 1]), "repeated"),
        (lambda: leave_one_out(model.without_data()), "needs a model with its data"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            call()
    alone = leave_one_out(fit("squared", None, 0.1, X[:1], y[:1]))
    assert alone.lower[0] == -np.inf and alone.upper[0] == np.inf  # no row is left
    alone = leave_one_out(fit("squared", None, 0.1, X[:1], y[:1], scale="sum"))
    assert -1e-10 < alone.lower[0] <= 0.0 <= alone.upper[0] < 1e-10 and alone.how[0] == EXACT
