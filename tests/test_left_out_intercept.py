"""Rows left out of problems with an unpenalised intercept, against optima by Newton's method that shares no code."""

from dataclasses import replace

import jax
import numpy as np
import oracle
import pytest
import scipy.sparse as sp

import jaxbounds as jb
from jaxbounds.array import put
from jaxbounds.certificates.leave_one_out import EXACT, SECOND_ORDER, WIDE
from jaxbounds.certificates.left_out_closed import closed_applies, closed_scores
from jaxbounds.certificates.left_out_intercept import intercept_applies, intercept_scores
from jaxbounds.matrix import as_matrix
from jaxbounds.model import Data, remember
from jaxbounds.pytree import in_float64

LOSSES = {"logistic": jb.losses.logistic, "smoothed_hinge": lambda: jb.losses.smoothed_hinge(0.5), "squared_hinge":
          jb.losses.squared_hinge, "huber": lambda: jb.losses.huber(0.7), "squared": jb.losses.squared}  # fmt: skip
PARAMS = {"smoothed_hinge": 0.5, "huber": 0.7}


def optimum(loss, X, y, c, ridge, x, z):
    """(x.w + b at the optimum, what its gradient leaves open, (w, b)), by damped Newton steps from z = (w, b)."""
    A, x, ridge = np.column_stack([X, np.ones(len(y))]), np.append(x, 1.0), np.append(ridge, 0.0)
    param, margin = PARAMS.get(loss), loss in oracle.MARGIN_LOSSES
    orient = y if margin else np.ones(len(y))

    def coordinate(z):
        return y * (A @ z) if margin else A @ z - y

    def objective(z):
        return c @ oracle.loss_value(loss, param, coordinate(z)) + np.sum(ridge * z * z) / 2

    best, stuck = (0.0, np.inf, z), 0
    for _ in range(100):
        q = coordinate(z)
        g = ridge * z - A.T @ (c * orient * oracle.loss_dual(loss, param, q))
        H = (A.T * (c * oracle.loss_second(loss, param, q))) @ A + np.diag(ridge)
        flat = H[-1, -1] < 1e-9 * np.sum(c)  # no row is curved: b has no Newton step
        H[-1, -1] += 1e-2 * np.sum(c) * flat
        step, reach = -np.linalg.solve(H, g), np.linalg.solve(H, x)
        error = np.inf if flat else np.sqrt(abs(step @ g) * abs(x @ reach))
        stuck = 0 if error < 0.5 * best[1] else stuck + 1
        best = min(best, (x @ z, error, z), key=lambda found: found[1])
        if error < 1e-13 * (1 + abs(x @ z)) or stuck > 12:
            break
        size, now = 1.0, objective(z)
        while error > 1e-9 and size > 1e-5 and objective(z + size * step) > now + 1e-4 * size * (g @ step):
            size /= 2
        z = z + size * step
    return best


def pair(loss, X, y, weight, lam, scale="mean", rng=None, off=0.0, sparse=False):
    """The model of coefficients near the optimum, made without the library's solvers."""
    n, d = X.shape
    ridge = np.zeros(d) + np.asarray(lam) * (1 if scale == "sum" else n)
    w = optimum(loss, X.astype(float), y, weight, ridge, np.zeros(d), np.zeros(d + 1))[2][:-1]
    w = w if rng is None else w * (1 + off * rng.normal(size=d))
    w = w.astype(X.dtype)
    problem = jb.Problem(LOSSES[loss](), jb.penalties.l2(lam), scale=scale, intercept=True)
    data = put(Data(as_matrix(sp.csr_array(X) if sparse else X), y, weight))
    alpha = np.clip(np.ones(n), *oracle.loss_domain(loss, PARAMS.get(loss)))
    return in_float64(remember)(problem, data, put(w), put(alpha))


def made(loss, n, d, rng, shift=1.0):
    X = rng.normal(size=(n, d)) + shift
    score = X @ rng.normal(size=d) - shift + rng.normal(size=n)
    return X, np.where(score > np.median(score), 1.0, -1.0) if loss in oracle.MARGIN_LOSSES else score


def check(model, loss, X, y, weight, lam, scale, keep_n, rows, found):
    """Every interval holds its truth; how many truths are known."""
    n, known, start = len(y), 0, np.append(np.asarray(model.w, float), float(model.intercept))
    ridge = np.zeros(X.shape[1]) + np.asarray(lam) * (1 if scale == "sum" else n if keep_n else n - 1)
    for low, high, k in zip(*found, rows, strict=True):
        kept = np.arange(n) != k
        if loss in oracle.MARGIN_LOSSES and len(set(y[kept])) < 2:
            continue  # then there is no finite intercept
        score, error, _ = optimum(loss, X[kept], y[kept], weight[kept], ridge, X[k], start)
        if error < 1e-5 * (1 + abs(score)):
            known += 1
            off = 2 * error + 1e-12 * (1 + abs(score))
            assert low - off <= score <= high + off, (k, low, score, high)
    return known


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("scale, sparse", [("mean", False), ("sum", True)])
def test_scores_without_one_row(loss, scale, sparse):
    rng = np.random.default_rng(0)
    n, lam = 120, np.array([1.0, 2.0, 1.0, 3.0]) if sparse else 1.0
    X, y = made(loss, n, 4, rng)
    X, weight = np.where(rng.random(X.shape) < 0.6, X, 0.0) if sparse else X, rng.choice([0.5, 1.0, 2.0], n)
    X = X.astype(np.float32) if sparse else X
    lam = lam * (n if scale == "sum" else 1)
    model = pair(loss, X, y, weight, lam, scale, rng, 1e-4, sparse)
    rows = np.arange(0, n, 6)
    for keep_n in (False, True) if scale == "mean" else (False,):
        lower, upper, loose = intercept_scores(model, rows, keep_n)
        assert check(model, loss, X.astype(float), y, weight, lam, scale, keep_n, rows, (lower, upper)) == rows.size
        assert np.all(np.isfinite(upper - lower)) and (loss == "smoothed_hinge" or np.mean(loose) < 0.1)
        whole = intercept_scores(model, np.arange(n), keep_n)
        np.testing.assert_allclose(whole[0][rows], lower, rtol=1e-12)
    found = jb.leave_one_out(model, jb.Cached(), rows)
    assert found.used() == {"Cached": rows.size}
    if scale == "mean" and loss != "smoothed_hinge":  # no wider than the ball of each row alone and its range of b
        for i in (0, 7, 13):
            alone = jb.bound(model, jb.remove_rows([rows[i]], True), jb.Cached()).scores(X[[rows[i]]])
            assert upper[i] - lower[i] < 0.9 * float(alone.upper[0] - alone.lower[0])


@pytest.mark.parametrize("loss", LOSSES)
def test_closed_form(loss):
    rng = np.random.default_rng(5)
    n, lam = 1000, 0.05
    X, y = made(loss, n, 4, rng)
    model, rows = pair(loss, X, y, np.ones(n), lam, "mean", rng, 1e-5, sparse=loss == "huber"), np.arange(0, n, 70)
    for keep_n in (False, True):
        lower, upper, how = closed_scores(model, rows, keep_n)
        assert check(model, loss, X, y, np.ones(n), lam, "mean", keep_n, rows, (lower, upper)) == rows.size
        wide = intercept_scores(model, rows, keep_n)
        least = 0.4 if loss == "smoothed_hinge" else 0.7  # of its rows many cross a kink for one that leaves
        assert np.mean(upper - lower < 0.2 * (wide[1] - wide[0])) > least
        assert np.mean(how > WIDE) > least and np.all((upper - lower)[how == EXACT] < 1e-8)
        assert np.all(how == SECOND_ORDER) or loss != "logistic"
        assert np.all(how == EXACT) or loss != "squared"
    found = jb.leave_one_out(model, rows=rows, keep_n=True)
    assert np.all(np.asarray(found.scores.upper - found.scores.lower, float) <= (upper - lower) * (1 + 1e-6) + 1e-6)


def test_least_squares_need_no_slopes():
    rng = np.random.default_rng(1)
    X, y = made("squared", 60, 3, rng, shift=30.0)  # far from the origin: only the centred rows count
    model = pair("squared", X, y, np.ones(60), 0.5)
    lower, upper, _ = intercept_scores(model, np.arange(60), True)
    rows, ridge = np.arange(60), np.append(np.full(3, 30.0), 0.0)
    A = np.column_stack([X, np.ones(60)])
    for k in rows:
        kept = rows != k
        z = np.linalg.solve(A[kept].T @ A[kept] + np.diag(ridge), A[kept].T @ y[kept])
        centred, a_k = X[k] - X.mean(axis=0), 1 / 59
        p = (X[k] @ np.asarray(model.w) + float(model.intercept) - y[k]) * (1 + a_k)
        half = (1 + a_k) * np.linalg.norm(centred) * np.linalg.norm(p * centred + ridge[:3] * 0) / 30 / 2
        assert lower[k] <= A[k] @ z <= upper[k] and upper[k] - lower[k] < 2 * half * (1 + 1e-3) + 1e-6


def test_many_rows_near_their_kinks():
    rng = np.random.default_rng(6)
    X, y = made("smoothed_hinge", 3000, 4, rng)
    model = pair("smoothed_hinge", X, y, np.ones(3000), 0.1)
    lower, upper, loose = intercept_scores(model, np.arange(3000), False)
    assert not np.any(loose)
    rows = np.argsort(lower - upper)[[0, 10, 400]]  # the widest
    check(model, "smoothed_hinge", X, y, np.ones(3000), 0.1, "mean", False, rows, (lower[rows], upper[rows]))
    for k in rows:
        alone = jb.bound(model, jb.remove_rows([k]), jb.Cached()).scores(X[[k]])
        assert upper[k] - lower[k] < float(alone.upper[0] - alone.lower[0])


def test_wide_intervals_get_another_look():
    rng = np.random.default_rng(2)
    X, y = made("smoothed_hinge", 24, 3, rng)
    model = pair("smoothed_hinge", X, y, np.ones(24), 1e-3)
    rows = np.arange(0, 24, 5)
    lower, upper, loose = intercept_scores(model, rows, False)
    assert np.any(loose)
    found = jb.leave_one_out(model, jb.Cached(), rows)
    low, high = np.asarray(found.scores.lower, float), np.asarray(found.scores.upper, float)
    assert np.all(high - low <= (upper - lower) * (1 + 1e-6)) and np.all(np.isfinite(high - low))
    check(model, "smoothed_hinge", X, y, np.ones(24), 1e-3, "mean", False, rows, (low, high))


def test_jit_equals_host():
    rng = np.random.default_rng(3)
    X, y = made("logistic", 50, 3, rng)
    model = pair("logistic", X, y, np.ones(50), 0.1)
    here, there = jb.leave_one_out(model), jax.jit(jb.leave_one_out)(model)
    np.testing.assert_allclose(here.scores.lower, there.scores.lower, rtol=1e-6)
    np.testing.assert_allclose(here.scores.upper, there.scores.upper, rtol=1e-6)


def test_what_is_outside():
    rng = np.random.default_rng(4)
    X, y = made("logistic", 20, 3, rng)
    model = pair("logistic", X, y, np.ones(20), 0.1)
    assert closed_applies(model) and not intercept_applies(model.without_data())
    for change in ({"penalty": jb.penalties.elastic_net(0.1, 0.1)}, {"intercept": False}):
        assert not intercept_applies(replace(model, problem=replace(model.problem, **change)))


def test_hostile_problems():
    known = finite = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        n, d, loss = int(rng.choice([3, 6, 12, 40, 150])), int(rng.integers(1, 9)), str(rng.choice(list(LOSSES)))
        X, y = made(loss, n, d, rng, rng.choice([0.0, 1.0, 30.0]))
        X = X * 10.0 ** rng.uniform(-2, 2) * (10.0 ** rng.uniform(-3, 3, (n, 1)) if rng.random() < 0.2 else 1.0)
        X[rng.integers(n)] = X[rng.integers(n)] * rng.integers(0, 2)
        X = np.where(rng.random(X.shape) < rng.choice([0.0, 0.6]), 0.0, X).astype(rng.choice([np.float32, np.float64]))
        lam = 10.0 ** rng.uniform(-4, 2) * (np.geomspace(1, 30, d) if rng.random() < 0.2 else 1.0)
        weight, scale, keep_n = rng.choice([0.1, 1.0, 5.0], n), str(rng.choice(["mean", "sum"])), bool(rng.integers(2))
        off = 10.0 ** rng.uniform(-17, -0.3)
        model = pair(loss, X, y, weight, lam, scale, rng, off, bool(rng.random() < 0.5))
        rows = rng.permutation(n)[:5]
        lower, upper, _ = intercept_scores(model, rows, keep_n)
        assert np.all(lower <= upper)
        finite += np.sum(np.isfinite(upper - lower))
        if closed_applies(model):
            *found, _ = closed_scores(model, rows, keep_n)
            check(model, loss, X.astype(float), y, weight, lam, scale, keep_n, rows, found)
        known += check(model, loss, X.astype(float), y, weight, lam, scale, keep_n, rows, (lower, upper))
    assert known > 150 and finite > 150
