"""Sweeps over penalties, warm-started paths, and the certified choice of a penalty, against retraining."""

import functools
import warnings

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import oracle
import pytest
import scipy.sparse as sp

import jaxbounds as jb
from jaxbounds.array import to_host
from jaxbounds.certificates.penalty_cells import Cells
from jaxbounds.host import HostMatrix, host_matrix
from jaxbounds.path_family import Between, Family, solutions
from jaxbounds.penalty_search import Range
from jaxbounds.validation import error_rate, mean_loss

N, D, M = 60, 6, 40


def data(seed=0, regression=False):
    rng = np.random.default_rng(seed)
    X, V = rng.normal(size=(N, D)), rng.normal(size=(M, D))
    X[3], V[5] = 0.0, 0.0
    X[rng.random((N, D)) < 0.3] = 0.0
    direction = rng.normal(size=D)
    y, z = X @ direction + rng.normal(size=N), V @ direction + rng.normal(size=M)
    if regression:
        return X, y, V, z
    return X, np.where(y > 0, 1.0, -1.0), V, np.where(z > 0, 1.0, -1.0)


LOSSES = {"logistic": jb.losses.logistic, "smoothed_hinge": lambda: jb.losses.smoothed_hinge(0.5),
          "hinge": jb.losses.hinge, "squared": jb.losses.squared}  # fmt: skip
BASE = np.linspace(0.5, 2.0, D)
PENALTIES = {"l2": jb.penalties.l2, "vector": lambda lam: jb.penalties.l2(lam * BASE),
             "elastic_net": lambda lam: jb.penalties.elastic_net(lam, 0.02),
             "ratio": lambda lam: jb.penalties.elastic_net(lam, 0.3 * lam)}  # fmt: skip


def true_w(X, y, loss, penalty, weight=None, scale="mean"):
    """The optimum by the independent solver."""
    c = (np.ones(len(y)) if weight is None else weight) / (len(y) if scale == "mean" else 1)
    l1 = np.asarray(getattr(penalty, "l1", 0.0), float)
    name = "elastic_net" if l1.any() else "l2"
    problem = oracle.Problem(loss, np.asarray(X, float), y, c, name, 0.5, np.asarray(penalty.lam, float), l1)
    return oracle.solve(problem).w


def measures(loss, scores, y):
    """(error rate, mean loss) of scores."""
    q = y * scores if loss in oracle.MARGIN_LOSSES else scores - y
    return np.mean(y * scores <= 0), np.mean(oracle.loss_value(loss, 0.5, q))


def assert_holds(interval, values, slack=1e-9):
    lower, upper = np.asarray(interval.lower, float), np.asarray(interval.upper, float)
    values = np.asarray(values)
    assert (lower <= values + slack).all() and (values - slack <= upper).all()


CASES = [("logistic", "l2", {}), ("logistic", "elastic_net", {"scale": "sum", "weights": True}),
         ("smoothed_hinge", "l2", {"sparse": True, "weights": True}),
         ("smoothed_hinge", "vector", {"dtype": "float32"}), ("logistic", "ratio", {"sparse": True}),
         ("hinge", "l2", {}), ("squared", "elastic_net", {}), ("squared", "vector", {"weights": True})]  # fmt: skip


@pytest.mark.parametrize("several", [False, True], ids=["one model", "three models"])
@pytest.mark.parametrize("loss, penalty, options", CASES)
def test_sweep_holds_retraining(loss, penalty, options, several):
    X, y, V, z = data(regression=loss == "squared")
    X = X.astype(options.get("dtype", "float64"))
    weight = np.linspace(0.5, 2.0, N) if options.get("weights") else None
    scale = options.get("scale", "mean")
    given = sp.csr_array(X) if options.get("sparse") else X
    make = PENALTIES[penalty]
    lams = np.geomspace(0.02, 2.0, 3) if several else [0.2]
    problem = jb.Problem(LOSSES[loss](), make(1.0), scale=scale)
    path = jb.fit_path(problem, given, y, [make(lam) for lam in lams], sample_weight=weight, tol=1e-6)
    grid = np.geomspace(0.02, 2.0, 20)
    sweep = jb.penalty_sweep(path if several else path.models[0], [make(lam) for lam in grid], V, z)
    true = np.stack([V @ true_w(X, y, loss, make(lam), weight, scale) for lam in grid])
    assert_holds(sweep.scores, true, 1e-7)
    error, mean = np.transpose([measures(loss, s, z) for s in true])
    assert_holds(sweep.loss, mean, 1e-7)
    if loss == "squared":
        assert sweep.errors is None
    else:
        assert_holds(sweep.errors, error)


@pytest.mark.parametrize("penalty", ["l2", "elastic_net"])
def test_sweep_with_intercept(penalty):
    X, y, V, z = data(1)
    make, loss = PENALTIES[penalty], jb.losses.logistic()
    problem = jb.Problem(loss, make(1.0), intercept=True)
    path = jb.fit_path(problem, X, y, [make(lam) for lam in (1.0, 0.1)], tol=1e-8)
    grid = np.geomspace(0.1, 1.0, 5)
    sweep = jb.penalty_sweep(path, [make(lam) for lam in grid], V, z)
    fits = jb.fit_path(problem, X, y, [make(lam) for lam in grid], tol=1e-12)
    true = np.stack([np.asarray(model.scores(V)) for model in fits.models])
    assert_holds(sweep.scores, true, 1e-6)
    assert_holds(sweep.errors, np.mean(z * true <= 0, axis=1))
    width = np.asarray(sweep.scores.upper) - np.asarray(sweep.scores.lower)
    assert np.median(width[[0, -1]]) < 1e-3 and np.median(width) < 0.5


def test_sweep_is_tight_near_trained_models():
    X, y, V, z = data(2)
    problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(1.0))
    models = jb.fit_path(problem, X, y, [jb.penalties.l2(lam) for lam in np.geomspace(1.0, 0.01, 5)], tol=1e-10).models
    grid = np.geomspace(0.01, 1.0, 41)
    penalties = [jb.penalties.l2(lam) for lam in grid]
    one, all_ = (jb.penalty_sweep(m, penalties, V, z) for m in (models[2], models))

    def width(interval):
        return np.asarray(interval.upper) - np.asarray(interval.lower)

    assert width(one.errors)[20] <= 1.001 / M  # the trained model itself: only the empty row is open
    assert (width(all_.scores) <= width(one.scores) + 1e-12).all()
    assert np.mean(width(all_.errors)) < 0.25 * np.mean(width(one.errors))
    assert np.max(width(all_.errors)) <= 0.15 and np.max(width(all_.loss)) < 0.1


@pytest.mark.parametrize("wide", [False, True])
def test_sweep_under_jit_equals_the_host(wide):
    X, y, V, z = data(3)
    model = jb.fit(jb.Problem(jb.losses.smoothed_hinge(0.5), jb.penalties.l2(0.1)), X, y)
    lams = np.geomspace(0.05, 0.2, 4)
    with jax.enable_x64(wide):
        penalties = jax.vmap(jb.penalties.l2)(jnp.asarray(lams))
        host = jb.penalty_sweep(model, penalties, V, z)
        traced = jax.jit(jb.penalty_sweep)(model, penalties, jnp.asarray(V), jnp.asarray(z))
        rtol = 1e-9 if wide else 1e-5
        for name in ("errors", "loss", "scores"):
            for end in ("lower", "upper"):
                got, want = (np.asarray(getattr(getattr(s, name), end)) for s in (traced, host))
                if not wide and name == "scores":
                    got = np.where(np.abs(want) < 1e-30, want, got)
                np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)


def test_methods_and_batches():
    X, y, V, z = data(4)
    model = jb.fit(jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1)), X, y, tol=1e-10)
    penalties = [jb.penalties.l2(lam) for lam in (0.05, 0.1, 0.2)]
    plain = jb.penalty_sweep(model, penalties, V, z)
    np.testing.assert_array_equal(
        jb.penalty_sweep(model, penalties, V, z, batch_size=1).scores.lower, plain.scores.lower
    )
    for method in (jb.Pass(), jb.Curvature()):
        sweep = jb.penalty_sweep(model, penalties, V, z, method)
        true = np.stack([V @ true_w(X, y, "logistic", penalty) for penalty in penalties])
        assert_holds(sweep.scores, true, 1e-8)
        assert np.sum(np.asarray(sweep.errors.upper)) <= np.sum(np.asarray(plain.errors.upper))


def test_fit_path():
    X, y, _, _ = data(5)
    problem, lams, seen = jb.Problem(jb.losses.logistic(), jb.penalties.l2(1.0)), np.array([1.0, 0.3, 0.1]), []
    path = jb.fit_path(problem, X, y, jax.vmap(jb.penalties.l2)(jnp.asarray(lams)), tol=1e-10,
                       callback=lambda news: seen.append((news["done"], float(news["model"].gap))))  # fmt: skip
    assert [k for k, _ in seen] == [1, 2, 3] and path.w.shape == (3, D) and np.all(np.asarray(path.gap) < 1e-9)
    for model, lam in zip(path.models, lams, strict=True):
        np.testing.assert_allclose(model.w, true_w(X, y, "logistic", jb.penalties.l2(np.float32(lam))), atol=1e-4)
    short = jb.fit_path(problem, X, y, [jb.penalties.l2(lam) for lam in lams], callback=lambda news: news["done"] == 2)
    assert len(short.models) == len(short.penalties) == 2
    with pytest.raises(TypeError, match="host"):
        jax.jit(lambda X: jb.fit_path(problem, X, y, [jb.penalties.l2(1.0)]))(X)
    with pytest.raises(TypeError, match="problem"):
        jb.fit_path(path.models[0], X, y, [jb.penalties.l2(1.0)])
    with pytest.raises(ValueError, match="empty"):
        jb.fit_path(problem, X, y, [])


def cell_case(seed):
    """Score intervals over random cells of random families, and true scores at random penalties inside."""
    rng = np.random.default_rng(seed)
    loss = ["logistic", "smoothed_hinge", "hinge", "squared"][seed % 4]
    X, y, V, _ = data(seed, regression=loss == "squared")
    X = X * 10 ** rng.uniform(-1, 1)
    if seed % 3 == 0:
        X[1], y[1] = X[0], -y[0]
    net, base = seed % 2 == 1, BASE if seed % 5 == 0 else None
    low = np.array([10 ** rng.uniform(-3, 0), 10 ** rng.uniform(-3, -1) if net else 0.0])
    high = low * 10 ** rng.uniform(0.1, 2.0, size=2)
    ray = net and seed % 4 == 1
    high[1] = low[1] * (high[0] / low[0]) if ray else high[1]
    span = Range(low, high, base, 1.0 if net else None, ray)
    points = span.at(np.repeat(rng.random((4, 1)), 2, axis=1) if span.diagonal else rng.random((4, 2)))
    problem = jb.Problem(LOSSES[loss](), span.penalty(points[0]))
    tol = 10 ** rng.uniform(-8, -1)
    path = jb.fit_path(problem, X, y, [span.penalty(point) for point in points], tol=tol)
    start = rng.random((3, 2))
    stop = np.minimum(start + 10 ** rng.uniform(-3, 0, size=(3, 2)), 1.0)
    if span.diagonal:
        start[:, 1], stop[:, 1] = start[:, 0], stop[:, 0]
    first, last, middle = span.at(start), span.at(stop), span.at((start + stop) / 2)
    cells = Cells(*(np.stack([first[:, k], last[:, k]]) for k in (0, 1)), diagonal=span.diagonal)
    family = Family(np.ones(D) if base is None else base, np.ones(D) if net else None, points, points)
    with jax.enable_x64(True):
        matrix = host_matrix(path.models[0].data.matrix)
        between = Between(to_host(problem), matrix, y, np.ones(N), family, HostMatrix(V))
        lower, upper = between.scores(points, *solutions(path.models), cells, middle)
    true = []
    for k in range(3):
        share = rng.random((7, 1)) if span.diagonal else rng.random((7, 2))
        share = np.concatenate([np.zeros_like(share[:1]), np.ones_like(share[:1]), share])
        inside = span.at(start[k] + (stop[k] - start[k]) * (share + np.zeros(2)))
        true.append([V @ true_w(X, y, loss, span.penalty(point)) for point in inside])
    return lower[:, None, :], upper[:, None, :], np.array(true)


@pytest.mark.parametrize("seed", range(16))
def test_cells_hold_every_penalty_inside(seed):
    lower, upper, true = cell_case(seed)
    slack = 1e-7 * (1 + np.abs(true).max())
    assert (lower <= true + slack).all() and (true - slack <= upper).all()
    assert np.isfinite(lower).all() and np.isfinite(upper).all()


@pytest.mark.parametrize("seed", range(4))
def test_rounding_against_50_digits(seed):
    """Ridge regression at its own optimum: intervals as narrow as floats allow hold the exact scores."""
    rng = np.random.default_rng(seed)
    n, d, size = 12, 4, 10.0 ** rng.uniform(-3, 3)
    X, y, V = size * rng.normal(size=(n, d)), rng.normal(size=n), size * rng.normal(size=(20, d))
    base, lam = 10.0 ** rng.uniform(-1, 1, size=d), size**2 * 10.0 ** rng.uniform(-8, 1)
    w = np.linalg.solve(X.T @ X / n + np.diag(lam * base), X.T @ y / n)
    family = Family(base, None, np.array([[lam, 0.0]]), np.zeros((0, 2)))
    ends = np.broadcast_to(np.array([[[lam]], [[0.0]]]), (2, 2, 1))
    problem = to_host(jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0)))
    with jax.enable_x64(True):
        between = Between(problem, HostMatrix(X), y, np.ones(n), family, HostMatrix(V))
        cells = Cells(ends[0], ends[1], diagonal=True)
        lower, upper = between.scores(family.models, w[:, None], np.zeros((n, 1)), cells, family.models)
    with mpmath.workdps(50):
        A, b = mpmath.matrix(X.tolist()), mpmath.matrix(y.tolist())
        ridge = mpmath.diag([mpmath.mpf(lam) * mpmath.mpf(m) for m in base])
        exact = mpmath.lu_solve(A.T * A / n + ridge, A.T * b / n)
        scores = mpmath.matrix(V.tolist()) * exact
        for k in range(20):
            assert mpmath.mpf(lower[0, k]) <= scores[k] <= mpmath.mpf(upper[0, k])
    reach = np.linalg.norm(V, axis=1) * np.linalg.norm(w)
    condition = np.linalg.norm(X, 2) ** 2 / n / (lam * base.min())
    assert (upper - lower <= 1e-11 * (1 + condition) * reach).all()


def test_user_loss_and_one_class():
    X, y, V, z = data(12)
    problem = jb.Problem(jb.losses.from_margin(soft_margin, smoothness=0.25), jb.penalties.l2(1.0))
    best = jb.best_penalty(problem, X, y, V, z, 0.02, 1.0, eps=0.051, cells=32)
    true = [measures("logistic", V @ true_w(X, y, "logistic", jb.penalties.l2(lam)), z)[0]
            for lam in np.geomspace(0.02, 1.0, 9)]  # fmt: skip
    assert int(best.status) == 0 and float(best.lower) <= min(true) <= float(best.error.upper) + 1e-12
    # no finite intercept exists: nothing is known
    problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(1.0), intercept=True)
    best = jb.best_penalty(problem, X, np.ones(N), V, z, 0.1, 1.0, max_models=4, cells=2)
    assert float(best.lower) == 0.0 and float(best.error.lower) == 0.0 and float(best.error.upper) == 1.0


def soft_margin(m):
    return jnp.logaddexp(0.0, -m)


def test_measures_of_intervals():
    rng = np.random.default_rng(0)
    y = np.where(rng.random(12) < 0.5, 1.0, -1.0)
    lower = rng.normal(size=(5, 12)) * 2
    upper = lower + rng.exponential(size=(5, 12))
    for loss in [make() for make in LOSSES.values()] + [jb.losses.huber(0.5), jb.losses.squared_hinge()]:
        with jax.enable_x64(True):
            low, high = mean_loss(to_host(loss), lower, upper, y)
            t = np.linspace(0, 1, 2001)[:, None, None]
            scores = lower + t * (upper - lower)
            q = y * scores if loss.classification else scores - y
            values = np.asarray(to_host(loss).value(q, np.broadcast_to(y, q.shape)))
        least, most = values.min(axis=0).mean(axis=1), values.max(axis=0).mean(axis=1)
        assert (low <= least + 1e-12).all() and (high >= most - 1e-12).all()
        np.testing.assert_allclose(low, least, atol=1e-5)
        np.testing.assert_allclose(high, most, atol=1e-12)
    low, high = error_rate(np.array([[-1.0, 0.0, 1.0, -1.0]]), np.array([[1.0, 0.0, 2.0, -0.5]]), np.ones(4))
    np.testing.assert_allclose([low[0], high[0]], [0.5, 0.75])  # open, a score of 0, right, wrong


@functools.cache
def real(name):
    """Rows of scikit-learn's data, standardised, 70 % for training."""
    datasets = pytest.importorskip("sklearn.datasets")
    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    y = np.where(y >= (1 if name == "breast_cancer" else 5), 1.0, -1.0)
    X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9) / X.shape[1] ** 0.5
    order, cut = np.random.default_rng(0).permutation(len(y)), len(y) * 7 // 10
    X, y = X[order], y[order]
    return X[:cut], y[:cut], X[cut:], y[cut:]


def assert_certified(best, problem, make, grid, X, y, V, z, measure="error"):
    """The certificate against retraining on a grid; returns the grid's best."""
    low, high, bound = (np.asarray(x) for x in (best.pieces.lam.lower, best.pieces.lam.upper, best.pieces.lower))
    path = jb.fit_path(problem, X, y, [make(lam) for lam in grid[::-1]], tol=1e-10)
    true = []
    for lam, model in zip(grid[::-1], path.models, strict=True):
        scores = np.asarray(model.scores(V))
        loss = np.asarray(problem.loss.value(z * scores, z))
        true.append(np.mean(z * scores <= 0) if measure == "error" else np.mean(loss))
        inside = (low <= lam) & (lam <= high)
        assert inside.any() and (bound[inside] <= true[-1] + 1e-9).all()
    assert float(best.lower) <= min(true) + 1e-9
    return min(true)


@pytest.mark.parametrize("name, loss, measure, intercept, eps, most", [
    ("breast_cancer", "logistic", "error", False, 0.01, 5),
    ("breast_cancer", "smoothed_hinge", "error", False, 0.01, 5),
    ("breast_cancer", "logistic", "loss", False, 0.01, 5), ("breast_cancer", "logistic", "error", True, 0.02, 5),
    ("breast_cancer", "hinge", "error", False, 0.02, 18), ("digits", "logistic", "error", False, 0.01, 6),
    ("digits", "smoothed_hinge", "error", False, 0.01, 8),
])  # fmt: skip
@pytest.mark.slow
def test_best_penalty_of_real_data(name, loss, measure, intercept, eps, most):
    X, y, V, z = real(name)
    problem = jb.Problem(LOSSES[loss](), jb.penalties.l2(1.0), intercept=intercept)
    best = jb.best_penalty(problem, X, y, V, z, 1e-4, 1.0, eps=eps, measure=measure)
    assert int(best.status) == 0 and int(best.n_trained) <= most and int(best.n_refined) <= 40
    assert float(best.error.upper) - float(best.lower) <= eps
    least = assert_certified(best, problem, jb.penalties.l2, np.geomspace(1e-4, 1.0, 100), X, y, V, z, measure)
    assert float(best.error.upper) <= least + eps
    assert_holds(best.error, measures(loss, np.asarray(best.model.scores(V)), z)[measure == "loss"], 1e-6)


@pytest.mark.parametrize("kind", ["l2", "fixed l1", "ratio", "vector", "float32", "sparse, weights, sum"])
def test_best_penalty_of_small_data(kind):
    X, y, V, z = data(6)
    scale, weight, make = "mean", None, jb.penalties.l2
    lo, hi, ratio = 0.01, 1.0, False
    if kind == "fixed l1":
        make = lambda lam: jb.penalties.elastic_net(lam, 0.01)  # noqa: E731
    elif kind == "ratio":
        make, ratio = (lambda lam: jb.penalties.elastic_net(lam, 0.1 * lam)), True
    elif kind == "vector":
        make = lambda lam: jb.penalties.l2(lam * BASE)  # noqa: E731
        lo, hi = make(lo), make(hi)
    elif kind == "float32":
        X = X.astype(np.float32)
    elif kind == "sparse, weights, sum":
        scale, weight, lo, hi, X = "sum", np.linspace(0.5, 2.0, N), 0.6, 60.0, sp.csr_array(X)
    problem = jb.Problem(jb.losses.logistic(), make(1.0), scale=scale)
    test = sp.csr_array(V) if sp.issparse(X) else V
    best = jb.best_penalty(problem, X, y, test, z, lo, hi, eps=0.051, fixed_ratio=ratio, sample_weight=weight)
    assert int(best.status) == 0 and int(best.n_trained) <= 6 and int(best.n_refined) <= 12
    dense = X.toarray() if sp.issparse(X) else X
    span = (0.01, 1.0) if kind == "vector" else (lo, hi)
    true = [measures("logistic", V @ true_w(dense, y, "logistic", make(lam), weight, scale), z)[0]
            for lam in np.geomspace(*span, 25)]  # fmt: skip
    assert float(best.lower) <= min(true) + 1e-9 and float(best.error.upper) <= min(true) + 0.051 + 1e-9
    here = V @ true_w(dense, y, "logistic", best.penalty, weight, scale)
    assert_holds(best.error, measures("logistic", here, z)[0])


def test_best_penalty_in_a_rectangle():
    X, y, V, z = data(7)
    net = jb.penalties.elastic_net
    problem, seen = jb.Problem(jb.losses.logistic(), net(1.0, 0.01)), []
    best = jb.best_penalty(problem, X, y, V, z, net(0.05, 0.001), net(0.5, 0.02), eps=0.051, callback=seen.append)
    assert int(best.status) == 0 and int(best.n_trained) <= 8 and len(seen) == int(best.n_trained) - 4
    for lam in np.geomspace(0.05, 0.5, 4):
        for l1 in np.geomspace(0.001, 0.02, 4):
            true = measures("logistic", V @ true_w(X, y, "logistic", net(lam, l1)), z)[0]
            assert float(best.lower) <= true + 1e-9 and float(best.error.upper) <= true + 0.051 + 1e-9


@pytest.mark.parametrize("intercept", [False, True])
def test_where_the_optimum_vanishes_every_score_is_the_intercept(intercept):
    X, y, V, z = data(8)
    problem = jb.Problem(jb.losses.logistic(), jb.penalties.elastic_net(1.0, 5.0), intercept=intercept)
    best = jb.best_penalty(problem, X, y, V, z, 0.1, 1.0)
    model = jb.fit(problem, X, y, tol=1e-12)
    assert int(best.n_trained) == 2 and not np.asarray(model.w).any()
    true = np.mean(z * float(model.intercept) <= 0)
    np.testing.assert_allclose([float(best.lower), float(best.error.lower), float(best.error.upper)], true)


def test_best_penalty_stops_when_told():
    X, y, V, z = data(9)
    problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(1.0))
    model = jb.fit(problem, X, y)
    asked = {"eps": 0.0, "measure": "loss", "cells": 8}  # nothing is ever certain to the last bit
    few = jb.best_penalty(model, X, y, V, z, 1e-4, 10.0, max_models=4, **asked)
    told = jb.best_penalty(problem, X, y, V, z, 1e-4, 10.0, callback=lambda news: news["n_trained"] >= 3, **asked)
    for best, n in ((few, 4), (told, 3)):
        assert jb.Status(int(best.status)) == jb.Status.MAX_STEPS and int(best.n_trained) == n
        true = [measures("logistic", V @ true_w(X, y, "logistic", jb.penalties.l2(lam)), z)[1]
                for lam in np.geomspace(1e-4, 10.0, 9)]  # fmt: skip
        assert float(best.lower) <= min(true)
    point = jb.best_penalty(problem, X, y, V, z, 0.1, 0.1)
    assert int(point.n_trained) == 1


def test_hostile_input():
    X, y, V, z = data(10)
    problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(1.0))
    model, other = jb.fit(problem, X, y), jb.fit(problem, X, -y)
    l2, net = jb.penalties.l2, jb.penalties.elastic_net

    def best(problem=problem, X=X, y=y, V=V, z=z, lo=0.1, hi=1.0, **options):
        return jb.best_penalty(problem, X, y, V, z, lo, hi, **options)

    for call, error, text in [
        (lambda: best(problem=3), TypeError, "problem must be"),
        (lambda: best(lo=0.0), ValueError, "lo = 0.0 must be positive"),
        (lambda: best(lo=2.0), ValueError, "lo must not be above hi; swap them"),
        (lambda: best(hi=np.inf), ValueError, "hi is not finite|hi = inf"),
        (lambda: best(lo=net(0.1, 0.1)), ValueError, "problem's kind"),
        (lambda: best(lo=l2(BASE), hi=l2(BASE[::-1])), ValueError, "multiple"),
        (lambda: best(lo=l2(np.ones(3)), hi=l2(np.ones(3))), ValueError, "entries"),
        (lambda: best(eps=-1.0), ValueError, "eps"),
        (lambda: best(measure="auc"), ValueError, "measure"),
        (lambda: best(max_models=1), ValueError, "max_models"),
        (lambda: best(cells=0), ValueError, "cells"),
        (lambda: best(callback=1), TypeError, "callback"),
        (lambda: best(warm_start=model), TypeError, "in place of the problem"),
        (lambda: best(max_step=3), TypeError, "no option 'max_step'"),
        (lambda: jb.penalty_sweep(model, 0.1, V, z), TypeError, r"penalties must be a sequence .* got 0.1; write \["),
        (lambda: jb.penalty_sweep(model, None, V, z), TypeError, "penalties must be a sequence .* got None"),
        (lambda: jb.fit_path(problem, X, y, [0.1]), TypeError, r"penalties\[0\] must be a penalty, got float"),
        (lambda: jax.jit(lambda t: (jb.refit(model, jb.remove_rows([0])), t)[1])(0.0), TypeError, "call it outside"),
        (lambda: best(V=V[:, :2]), ValueError, "X_val must have 6 columns"),
        (lambda: best(z=z[:3]), ValueError, "y_val"),
        (lambda: best(z=(z + 1) / 2), ValueError, "y_val must hold labels"),
        (lambda: best(V=np.where(V > 2, np.nan, V)), ValueError, "X_val"),
        (lambda: best(problem=jb.Problem(jb.losses.logistic(), jb.penalties.l1(1.0))), ValueError, "L2 or elastic net"),
        (lambda: best(problem=jb.Problem(jb.losses.squared(), l2(1.0))), ValueError, "measure"),
        (lambda: best(problem=jb.Problem(jb.losses.logistic(), l2(BASE))), ValueError, "for each column"),
        (lambda: jax.jit(lambda X: best(X=X))(X), TypeError, "host"),
        (lambda: jb.penalty_sweep([], [l2(1.0)], V, z), ValueError, "empty"),
        (lambda: jb.penalty_sweep([model, 3], [l2(1.0)], V, z), TypeError, r"model\[1\]"),
        (lambda: jb.penalty_sweep([model, other], [l2(1.0)], V, z), ValueError, "more than its penalty"),
        (lambda: jb.penalty_sweep(model, l2(1.0), V, z), ValueError, "leading axis"),
        (lambda: jb.penalty_sweep(model, [], V, z), ValueError, "empty"),
        (lambda: jb.penalty_sweep(model, [l2(1.0)], V[:, :2], z), ValueError, "X_val must have 6 columns"),
        (lambda: jb.penalty_sweep(model, [l2(1.0)], V, z[:4]), ValueError, "y_val"),
        (lambda: jb.penalty_sweep(model, [l2(1.0)], V, 0.5 * z), ValueError, "y_val"),
        (lambda: jb.penalty_sweep(model, [l2(1.0)], V, z, "cached"), TypeError, "method"),
    ]:  # fmt: skip
        with pytest.raises(error, match=text):
            call()


def test_extreme_problems_stay_sound():
    """Nearly separable, far more columns than rows, tiny lambda, huge values: bounds may be useless, never wrong."""
    rng = np.random.default_rng(11)
    for n, d, size in ((8, 30, 1.0), (40, 2, 1e4), (20, 3, 1e-4)):
        X, V = size * rng.normal(size=(n, d)), size * rng.normal(size=(15, d))
        y, z = np.where(X[:, 0] > 0, 1.0, -1.0), np.where(V[:, 0] > 0, 1.0, -1.0)
        lo, hi = 1e-6 * size**2, 1e-2 * size**2
        problem = jb.Problem(jb.losses.smoothed_hinge(0.5), jb.penalties.l2(1.0))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", jb.FitWarning)
            best = jb.best_penalty(problem, X, y, V, z, lo, hi, eps=0.07, max_models=12, tol=1e-3)
        for lam in np.geomspace(lo, hi, 7):
            scores = V @ true_w(X, y, "smoothed_hinge", jb.penalties.l2(lam))
            inside = (np.asarray(best.pieces.lam.lower) <= lam) & (lam <= np.asarray(best.pieces.lam.upper))
            assert (np.asarray(best.pieces.lower)[inside] <= np.mean(z * scores <= 0) + 1e-9).all()
