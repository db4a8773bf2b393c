"""Influences and ranks of rows, against retraining without each row."""

import warnings

import jax
import numpy as np
import oracle
import pytest
import scipy.sparse as sp
from test_worst_case import LOSSES, PARAMS, fit, retrained, setting

import jaxbounds as jb
from jaxbounds.array import put
from jaxbounds.matrix import as_matrix
from jaxbounds.model import Data, remember

N, D = 24, 3


def moves(loss, X, y, c, lam, w, X_test, rescale):
    """(x.w_i - x.w, its error, w_i - w, its error) for every row i left out."""
    n, w = len(y), np.asarray(w, float)
    X, C = X.astype(float), (1 - np.eye(n)) * c * (n / (n - 1) if rescale else 1.0)
    W, error = retrained(loss, X, y, C, lam, w)
    pad = error[:, None] * np.sqrt(np.sum(X_test**2 / lam, 1)) + 1e-14 * (np.abs(W) + np.abs(w)) @ np.abs(X_test).T
    far = error / np.sqrt(np.min(lam)) + 1e-14 * (np.linalg.norm(W, axis=1) + np.linalg.norm(w))
    return (W - w) @ X_test.T, pad, W - w, far


def check(found, moved, pad):
    """Every interval holds the truth; returns the median width over the true move."""
    lower, upper = np.asarray(found.scores.lower), np.asarray(found.scores.upper)
    rows, at = np.asarray(found.rows), np.arange(moved.shape[1])
    assert np.all(lower <= moved[rows, at] + pad[rows, at]) and np.all(upper >= moved[rows, at] - pad[rows, at])
    return np.median((upper - lower) / np.median(np.abs(moved)))


def check_ranks(ranks, effect, pad):
    """The effects and the ranks hold the true ones."""
    assert np.all(ranks.effects.lower <= effect + pad) and np.all(ranks.effects.upper >= effect - pad)
    surely_above = np.sum((effect - pad)[None] > (effect + pad)[:, None], axis=1)
    perhaps_above = np.sum((effect + pad)[None] >= (effect - pad)[:, None], axis=1) - 1
    assert np.all(np.asarray(ranks.best) <= 1 + perhaps_above) and np.all(np.asarray(ranks.worst) >= 1 + surely_above)
    assert np.array_equal(ranks.certain, np.asarray(ranks.best) == np.asarray(ranks.worst))


@pytest.mark.parametrize("keep_n", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_every_row_and_every_test_row(loss, keep_n):
    rng = np.random.default_rng([7, keep_n])
    X, y, X_test = setting(loss, rng, n=N)
    weight = rng.uniform(0.3, 3.0, size=N) if keep_n else None
    lam = np.array([0.1, 0.3, 0.2])
    for scale in ("mean", "sum"):
        problem = jb.Problem(LOSSES[loss](), jb.penalties.l2(lam), scale=scale)
        c = (np.ones(N) if weight is None else weight) / (N if scale == "mean" else 1)
        for tol in (1e-1, 1e-13):
            model = fit(problem, X, y, sample_weight=weight, tol=tol)
            moved, pad, shift, far = moves(loss, X, y, c, lam, model.w, X_test, scale == "mean" and not keep_n)
            width = check(jb.influence(model, X_test, keep_n=keep_n), moved, pad)
            if tol < 1e-2 and scale == "mean":
                assert width < {"squared": 1e-9, "logistic": 0.2}.get(loss, 0.7)
            check_ranks(jb.rank_rows(model, keep_n=keep_n), np.linalg.norm(shift, axis=1), far)
            check_ranks(jb.rank_rows(model, X_test, keep_n=keep_n), np.abs(moved).mean(1), pad.mean(1))


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_ranks_by_the_validation_loss(loss):
    rng = np.random.default_rng(11)
    X, y, X_test = setting(loss, rng, n=N)
    y_test = np.where(rng.random(len(X_test)) < 0.5, 1.0, -1.0)
    lam = np.full(D, 0.3)
    model = fit(jb.Problem(LOSSES[loss](), jb.penalties.l2(0.3)), X, y, tol=1e-13)
    moved, pad, _, _ = moves(loss, X, y, np.full(N, 1 / N), lam, model.w, X_test, True)
    old = X_test @ np.asarray(model.w, float)

    def mean_loss(scores):
        q = y_test * scores if loss == "logistic" else scores - y_test
        return oracle.loss_value(loss, PARAMS.get(loss), q).mean(axis=-1)

    ranks = jb.rank_rows(model, X_test, y_test)
    check_ranks(ranks, np.abs(mean_loss(old + moved) - mean_loss(old)), 1e-9)
    assert np.mean(ranks.certain) == 1.0 if loss == "squared" else np.mean(ranks.worst - ranks.best) < 8


def test_exact_ranks_of_least_squares_and_rows_that_are_alike():
    rng = np.random.default_rng(13)
    X, y, X_test = setting("squared", rng, n=N)
    problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(0.1))
    assert np.all(jb.rank_rows(fit(problem, X, y, tol=1e-13)).certain)
    X[3], y[3] = X[5], y[5]
    ranks = jb.rank_rows(fit(problem, X, y, tol=1e-13))
    assert np.array_equal(np.flatnonzero(~np.asarray(ranks.certain)), [3, 5])
    assert ranks.best[3] == ranks.best[5] and ranks.worst[3] == ranks.best[3] + 1
    some = jb.rank_rows(fit(problem, X, y, tol=1e-13), rows=[7, 2, 9])
    assert sorted(some.best.tolist()) == [1, 2, 3]


@pytest.mark.parametrize("loss", ["logistic", "smoothed_hinge"])
def test_the_rows_that_matter_most(loss):
    rng = np.random.default_rng(17)
    X, y, X_test = setting(loss, rng, n=60)
    model = fit(jb.Problem(LOSSES[loss](), jb.penalties.l2(0.3)), X, y, tol=1e-12)
    moved, pad, _, _ = moves(loss, X, y, np.full(60, 1 / 60), np.full(D, 0.3), model.w, X_test, True)
    found, every = jb.influence(model, X_test, top=4), jb.influence(model, X_test)
    check(found, moved, pad)
    assert found.rows.shape == found.scores.lower.shape == (4, len(X_test)) and every.rows.shape == moved.shape
    near = np.asarray(found.size.lower)
    assert np.all(np.diff(near, axis=0) <= 0)
    assert np.array_equal(near, -np.sort(-np.asarray(every.size.lower), axis=0)[:4])
    some = jb.influence(model, X_test, rows=[5, 50])
    assert np.array_equal(some.rows, np.repeat([[5], [50]], len(X_test), axis=1))
    np.testing.assert_array_equal(some.scores.lower, np.asarray(every.scores.lower)[[5, 50]])


def test_float32_sparse_wide_and_many_columns():
    rng = np.random.default_rng(19)
    X, y, X_test = setting("logistic", rng, n=N, d=130, dtype=np.float32)
    X[np.abs(X) < 0.8], lam = 0, np.full(130, 0.5)
    problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.5))
    dense = fit(problem, X, y, tol=1e-6)
    sparse = remember(problem, put(Data(as_matrix(sp.csr_array(X)), y, np.ones(N))), dense.w, dense.alpha)
    moved, pad, _, _ = moves("logistic", X, y, np.full(N, 1 / N), lam, dense.w, X_test, True)
    first, second = jb.influence(dense, X_test), jb.influence(sparse, sp.csr_array(X_test))
    check(first, moved, pad)
    np.testing.assert_allclose(first.scores.lower, second.scores.lower, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("case", ["hinge", "elastic_net", "l1", "intercept", "method", "user"])
def test_problems_without_a_closed_form(case):
    rng = np.random.default_rng(23)
    n = 8
    X, y, X_test = setting("logistic", rng, n=n)
    loss = jb.losses.hinge() if case == "hinge" else jb.losses.from_margin(softplus, 0.25) if case == "user" else None
    penalty = {"elastic_net": jb.penalties.elastic_net(0.3, 0.05), "l1": jb.penalties.l1(0.05)}.get(case)
    problem = jb.Problem(loss or jb.losses.logistic(), penalty or jb.penalties.l2(0.3), intercept=case == "intercept")
    model = fit(problem, X, y, tol=1e-11)
    rows = [1, 6]
    found = jb.influence(model, X_test, rows, method=jb.Curvature() if case == "method" else None)
    old = np.asarray(model.scores(X_test))
    for slot, row in enumerate(rows):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", jb.FitWarning)
            new = jb.refit(model, jb.remove_rows([row]), tol=1e-12)
        moved = np.asarray(new.scores(X_test)) - old
        assert np.all(found.scores.lower[slot] <= moved + 1e-4) and np.all(found.scores.upper[slot] >= moved - 1e-4)
    assert case == "l1" or np.all(np.asarray(found.scores.upper - found.scores.lower) < 20)
    ranks = jb.rank_rows(model, rows=rows)
    assert np.all(np.asarray(ranks.best) >= 1) and np.all(np.asarray(ranks.worst) <= 2)


def softplus(m):
    """log(1 + e^-m)."""
    return jax.numpy.logaddexp(0 * m, -m)


def test_inside_jit():
    rng = np.random.default_rng(29)
    X, y, X_test = setting("logistic", rng, n=N)
    model = fit(jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.3)), X, y, tol=1e-10)
    found = jb.influence(model, X_test, top=3)

    @jax.jit
    def traced(model, X_test):
        found = jb.influence(model, X_test, top=3)
        return found.rows, found.scores, jb.rank_rows(model, X_test).best

    narrow = jax.jit(lambda model: jb.influence(model, X_test, top=3).scores)(model)
    assert np.all(np.asarray(narrow.lower, float) <= found.scores.lower)
    np.testing.assert_allclose(narrow.lower, found.scores.lower, rtol=1e-6)
    with jax.enable_x64(True):
        rows, scores, best = traced(model, put(X_test))
    assert np.array_equal(rows, found.rows) and np.array_equal(best, jb.rank_rows(model, X_test).best)
    np.testing.assert_allclose(scores.lower, found.scores.lower, rtol=1e-9)
    np.testing.assert_allclose(scores.upper, found.scores.upper, rtol=1e-9)


@pytest.mark.slow
def test_ranks_by_distance_inside_jit():
    rng = np.random.default_rng(37)
    X, y, _ = setting("logistic", rng, n=N)
    model = fit(jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.3)), X, y, tol=1e-10)
    with jax.enable_x64(True):
        best = jax.jit(lambda model: jb.rank_rows(model).best)(model)
    assert np.array_equal(best, jb.rank_rows(model).best)


def test_hostile_input():
    rng = np.random.default_rng(31)
    X, y, X_test = setting("logistic", rng, n=N)
    model = fit(jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.3)), X, y)
    for top in (0, N + 1, 1.5, True):
        with pytest.raises(ValueError, match="top must be a whole number"):
            jb.influence(model, X_test, top=top)
    with pytest.raises(ValueError, match="is not a row of the data"):
        jb.influence(model, X_test, rows=[N])
    with pytest.raises(ValueError, match="repeated"):
        jb.rank_rows(model, rows=[1, 1])
    with pytest.raises(ValueError, match="X_test must have 3 columns"):
        jb.influence(model, X_test[:, :2])
    with pytest.raises(ValueError, match="X_test"):
        jb.influence(model, np.full((1, D), np.inf))
    with pytest.raises(ValueError, match="data"):
        jb.influence(model.without_data(), X_test)
    with pytest.raises(TypeError, match="model must come from fit"):
        jb.rank_rows(X)
    with pytest.raises(TypeError, match="keep_n"):
        jb.influence(model, X_test, keep_n="no")
    with pytest.raises(TypeError, match="method must be"):
        jb.influence(model, X_test, method="Cached")
    with pytest.raises(ValueError, match="y_test needs"):
        jb.rank_rows(model, y_test=np.ones(3))
    with pytest.raises(ValueError, match="y_test"):
        jb.rank_rows(model, X_test, np.zeros(len(X_test)))
    with pytest.raises(ValueError, match="single row"):
        jb.influence(fit(model.problem, X[:1], y[:1]), X_test)
