"""Certificates against any k rows, against retraining on every set of them; and attacks, which end in retraining."""

import itertools
import warnings
from dataclasses import replace

import jax
import numpy as np
import oracle
import pytest
import scipy.sparse as sp

import jaxbounds as jb
from jaxbounds.array import put, to_host
from jaxbounds.certificates import any_rows, metrics, row_changes
from jaxbounds.host import HostMatrix
from jaxbounds.matrix import as_matrix
from jaxbounds.model import Data, remember

LOSSES = {
    "smoothed_hinge": lambda: jb.losses.smoothed_hinge(0.5), "squared_hinge": jb.losses.squared_hinge,
    "huber": lambda: jb.losses.huber(0.7), "squared": jb.losses.squared, "logistic": jb.losses.logistic,
}  # fmt: skip
PARAMS = {"smoothed_hinge": 0.5, "huber": 0.7}
N, D = 10, 3


def retrained(loss, X, y, C, lam, start):
    """Optima (sets, d) for the weights C (sets, n) by damped Newton steps, and how far each can be from the truth."""
    z, param = y if loss in oracle.MARGIN_LOSSES else np.ones_like(y), PARAMS.get(loss)
    metric = np.where(lam > 0, lam, 1e-6)  # an intercept has no penalty; its curvature is far above this
    W = np.repeat(np.asarray(start, float)[None], len(C), 0)
    diagonal = np.arange(X.shape[1])

    def coordinate(W):
        return y * (W @ X.T) if loss in oracle.MARGIN_LOSSES else W @ X.T - y

    def objective(W):
        return np.sum(C * oracle.loss_value(loss, param, coordinate(W)), 1) + np.sum(lam * W * W, 1) / 2

    def gradient(W):
        return lam * W - (C * z * oracle.loss_dual(loss, param, coordinate(W))) @ X

    for _ in range(60):
        H = np.einsum("sn,ni,nj->sij", C * oracle.loss_second(loss, param, coordinate(W)), X, X)
        H[:, diagonal, diagonal] += lam
        step, size, before = -np.linalg.solve(H, gradient(W)[..., None])[..., 0], np.ones(len(C)), objective(W)
        for _ in range(40):
            worse = objective(W + size[:, None] * step) > before + 1e-13 * np.abs(before)
            if not worse.any():
                break
            size[worse] /= 2
        W = W + size[:, None] * step
        if np.abs(size[:, None] * step).max() < 1e-14 * (1 + np.abs(W).max()):
            break
    return W, np.sqrt(np.sum(gradient(W) ** 2 / metric, 1))


def extremes(loss, X, y, c, lam, start, X_test, K, rescale=True, relabel=False, intercept=None):
    """(lower, upper), (K, m) each: what scores surely do over all sets of at most k rows."""
    n, low, high = len(y), np.inf, -np.inf
    if intercept is not None:
        X, X_test = (np.hstack([part, np.ones((len(part), 1))]) for part in (X, X_test))
        lam, start = np.append(lam, 0.0), np.append(start, intercept)
    lows, highs = [], []
    for k in range(K + 1):
        C = np.ones((len(list(itertools.combinations(range(n), k))), n))
        for i, rows in enumerate(itertools.combinations(range(n), k)):
            C[i, list(rows)] = 0
        if relabel:
            data, targets, C = np.vstack([X, X]), np.concatenate([y, -y]), np.hstack([C * c, (1 - C) * c])
        else:
            data, targets, C = X, y, C * c * (n / (n - k) if rescale else 1.0)
        W, error = retrained(loss, data, targets, C, lam, start)
        S = W @ X_test.T
        length = np.sqrt(np.sum(X_test**2 / np.where(lam > 0, lam, 1e-6), 1))
        error = error[:, None] * length + 1e-15 * (1 + np.abs(S))
        assert np.max(error) < 1e-6
        low, high = np.minimum(low, (S + error).min(0)), np.maximum(high, (S - error).max(0))
        lows.append(low)
        highs.append(high)
    return np.array(lows[1:]), np.array(highs[1:])


def setting(loss, rng, n=N, d=D, dtype=np.float64):
    X = rng.normal(size=(n, d)).astype(dtype)
    y = np.where(X @ rng.normal(size=d) + rng.normal(size=n) > 0, 1.0, -1.0)
    if loss not in oracle.MARGIN_LOSSES:
        y = X @ rng.normal(size=d) + rng.normal(size=n)
    return X, y, np.vstack([rng.normal(size=(4, d)), X[:1]])


def fit(problem, X, y, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jb.FitWarning)
        return jb.fit(problem, X, y, **options)


def check(found, truth):
    """The intervals hold the truth, labels follow them; returns the ratio of widths."""
    low, high = np.asarray(found.scores.lower), np.asarray(found.scores.upper)
    assert np.all(low <= truth[0]) and np.all(high >= truth[1])
    labels = np.asarray(found.labels)
    assert np.all((labels == 1) <= (truth[0] > 0)) and np.all((labels == -1) <= (truth[1] < 0))
    certain = np.where((truth[0] > 0) | (truth[1] < 0), np.arange(1, len(low) + 1)[:, None], 0).max(axis=0)
    assert np.all(np.asarray(found.largest) <= certain)
    return np.median((high - low) / (truth[1] - truth[0]), axis=1)


@pytest.mark.parametrize("scale", ["mean", "sum"])
@pytest.mark.parametrize("keep_n", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_every_set_of_rows(loss, keep_n, scale):
    rng = np.random.default_rng([17, keep_n, scale == "sum"])
    X, y, X_test = setting(loss, rng)
    weight = rng.uniform(0.3, 3.0, size=N) if keep_n else None
    lam = np.array([0.2, 0.5, 1.0]) if scale == "sum" else np.full(D, 0.3)
    c = (np.ones(N) if weight is None else weight) / (N if scale == "mean" else 1)
    problem = jb.Problem(LOSSES[loss](), jb.penalties.l2(lam), scale=scale)
    for tol in (1e-1, 1e-12):
        model = fit(problem, X, y, sample_weight=weight, tol=tol)
        truth = extremes(loss, X, y, c, lam, model.w, X_test, 3, scale == "mean" and not keep_n)
        ratio = check(jb.worst_case_removals(model, X_test, 3, keep_n=keep_n), truth)
        assert tol > 1e-2 or np.all(ratio < 40)


@pytest.mark.parametrize("loss", ["smoothed_hinge", "squared_hinge", "logistic"])
def test_every_set_of_labels(loss):
    rng = np.random.default_rng(29)
    X, y, X_test = setting(loss, rng)
    weight = rng.uniform(0.3, 3.0, size=N)
    for scale in ("mean", "sum"):
        model = fit(jb.Problem(LOSSES[loss](), jb.penalties.l2(0.5), scale=scale), X, y, sample_weight=weight, tol=1e-9)
        c = weight / (N if scale == "mean" else 1)
        truth = extremes(loss, X, y, c, np.full(D, 0.5), model.w, X_test, 2, relabel=True)
        ratio = check(jb.worst_case_relabels(model, X_test, 2), truth)
        assert np.all(ratio < 30)


@pytest.mark.parametrize(
    "loss, scale, relabel",
    [("logistic", "mean", False), ("logistic", "sum", True),
     pytest.param("squared", "sum", False, marks=pytest.mark.slow),
     pytest.param("squared_hinge", "mean", True, marks=pytest.mark.slow)],
)  # fmt: skip
def test_every_set_with_an_intercept(loss, scale, relabel):
    rng = np.random.default_rng(67)
    n = 14
    X, y, X_test = setting(loss, rng, n=n)
    X, X_test, weight = X + 2, X_test + 2, rng.uniform(0.3, 3.0, size=n)
    lam = np.array([0.2, 0.5, 1.0]) * (1 if scale == "mean" else n)
    c = weight / (n if scale == "mean" else 1)
    problem = jb.Problem(LOSSES[loss](), jb.penalties.l2(lam), scale=scale, intercept=True)
    for tol in (1e-1, 1e-12):
        model = fit(problem, X, y, sample_weight=weight, tol=tol)
        options = {"relabel": relabel, "intercept": model.intercept, "rescale": scale == "mean" and not relabel}
        truth = extremes(loss, X, y, c, lam, model.w, X_test, 2, **options)
        find = jb.worst_case_relabels if relabel else jb.worst_case_removals
        ratio = check(find(model, X_test, 2), truth)
        assert np.all(ratio < 60)


def test_an_intercept_without_the_hessian(monkeypatch):
    """The penalty's metric alone, as for large data: sparse and dense data agree, and no other set is outside."""
    rng = np.random.default_rng(71)
    n = 16
    X, y, X_test = setting("logistic", rng, n=n)
    X[np.abs(X) < 0.3] = 0
    X, X_test = X.astype(np.float32) + np.float32(2), X_test + 2
    problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.3), intercept=True)
    model = fit(problem, X, y, tol=1e-12)
    tight = jb.worst_case_removals(model, X_test, 2)
    monkeypatch.setattr(any_rows, "hessian_metric", lambda case, tests: None)
    sparse = remember(problem, put(Data(as_matrix(sp.csr_array(X)), y, np.ones(n))), model.w, model.alpha)
    found, other = (jb.worst_case_removals(m, X_test, 2) for m in (model, sparse))
    np.testing.assert_allclose(found.scores.lower, other.scores.lower, rtol=1e-9)
    given = X.astype(float), y, np.full(n, 1 / n), np.full(D, 0.3), model.w, X_test
    truth = extremes("logistic", *given, 2, intercept=model.intercept)
    assert np.all(check(found, truth) < 8) and check(tight, truth)[0] < 2
    far = fit(problem, X + np.float32(500), y, tol=1e-12)  # where the origin lies does not matter
    width = np.asarray(found.scores.upper - found.scores.lower)
    moved = jb.worst_case_removals(far, X_test + 500, 2).scores
    assert np.all(np.asarray(moved.upper - moved.lower) < 1.3 * width)
    near = jb.worst_case_relabels(model, X_test, 3).scores
    assert np.all(np.diff(np.asarray(near.upper - near.lower), axis=0) > 0) and np.isfinite(near.upper).all()
    # with the last row of its label gone no intercept is finite, and nothing is certain
    alone = fit(problem, X, np.where(np.arange(n) < 2, 1.0, -1.0), tol=1e-9)
    scores = jb.worst_case_removals(alone, X_test, 2).scores
    assert np.isfinite(scores.upper[0]).all() and np.isinf(scores.upper[1]).all() and np.isinf(scores.lower[1]).all()
    assert np.all(np.asarray(jb.largest_certified_removal(alone, X_test)) <= 1)


@pytest.mark.slow
def test_an_intercept_and_an_elastic_net():
    rng = np.random.default_rng(73)
    X, y, X_test = setting("logistic", rng, n=10)
    X, y[:2] = X + 1, [1.0, -1.0]
    problem = jb.Problem(jb.losses.logistic(), jb.penalties.elastic_net(0.3, 0.05), intercept=True)
    model = fit(problem, X, y, tol=1e-10)
    low, high = np.full(len(X_test), np.inf), np.full(len(X_test), -np.inf)
    for row in range(10):
        new = jb.refit(model, jb.remove_rows([row]), tol=1e-11)
        scores = np.asarray(new.scores(X_test))
        low, high = np.minimum(low, scores), np.maximum(high, scores)
    scores = jb.worst_case_removals(model, X_test, 1).scores
    assert np.all(np.asarray(scores.lower)[0] <= low + 1e-5) and np.all(np.asarray(scores.upper)[0] >= high - 1e-5)
    assert np.median(np.asarray(scores.upper - scores.lower)[0] / (high - low)) < 12


@pytest.mark.parametrize(
    "loss, penalty, keep_n",
    [("logistic", "elastic_net", False), ("squared", "elastic_net", True), ("hinge", "l2", False)],
)
def test_half_balls_of_other_penalties_and_losses(loss, penalty, keep_n):
    rng = np.random.default_rng(31)
    n = 6
    X, y, X_test = setting(loss, rng, n=n)
    made = jb.penalties.l2(0.3) if penalty == "l2" else jb.penalties.elastic_net(0.3, 0.05)
    model = fit(jb.Problem(jb.losses.hinge() if loss == "hinge" else LOSSES[loss](), made), X, y, tol=1e-10)
    low, high = np.full(len(X_test), np.inf), np.full(len(X_test), -np.inf)
    for rows in itertools.chain.from_iterable(itertools.combinations(range(n), k) for k in (0, 1, 2)):
        kept = np.setdiff1d(np.arange(n), rows)
        c = np.full(kept.size, 1 / (n if keep_n else kept.size))
        found = oracle.solve(oracle.Problem(loss, X[kept], y[kept], c, penalty, lam=0.3, l1=0.05))
        assert found.gap < 1e-12
        low, high = np.minimum(low, X_test @ found.w), np.maximum(high, X_test @ found.w)
    scores = jb.worst_case_removals(model, X_test, 2, keep_n=keep_n).scores
    slack = 1e-5 * np.linalg.norm(X_test, axis=1)  # sqrt(2 gap / lam)
    assert np.all(np.asarray(scores.lower)[1] <= low + slack) and np.all(np.asarray(scores.upper)[1] >= high - slack)
    assert np.median(np.asarray(scores.upper - scores.lower)[1] / (high - low)) < 12


def test_one_row_of_least_squares_is_nearly_tight_and_the_hessian_matters():
    rng = np.random.default_rng(37)
    X, y, X_test = setting("squared", rng, n=200, d=4)
    model = fit(jb.Problem(jb.losses.squared(), jb.penalties.l2(0.01)), X, y, tol=1e-13)
    found = jb.worst_case_removals(model, X_test, 1)
    truth = retrained("squared", X, y, (1 - np.eye(200)) / 199, np.full(4, 0.01), model.w)[0] @ X_test.T
    width = np.asarray(found.scores.upper - found.scores.lower)[0]
    assert np.all(found.scores.lower[0] <= truth.min(0)) and np.all(found.scores.upper[0] >= truth.max(0))
    assert np.all(width < 1.25 * (truth.max(0) - truth.min(0)))
    with jax.enable_x64(True):
        case, tests = row_changes.prepared(to_host(model), HostMatrix(X_test), False)
        metric = metrics.penalty_metric(case, tests)
        alone = any_rows.moves(case, metric, slice(0, 5), (1,), any_rows.factors(case, [metric], 1))
    assert np.all((alone[1] - alone[0])[0] > 10 * width)


def test_float32_sparse_and_several_blocks_agree(monkeypatch):
    rng = np.random.default_rng(41)
    X, y, X_test = setting("logistic", rng, dtype=np.float32)
    X[np.abs(X) < 0.3] = 0
    problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.3))
    dense = fit(problem, X, y, tol=1e-6)
    sparse = remember(problem, put(Data(as_matrix(sp.csr_array(X)), y, np.ones(N))), dense.w, dense.alpha)
    truth = extremes("logistic", X.astype(float), y, np.full(N, 1 / N), np.full(D, 0.3), dense.w, X_test, 2)
    first = jb.worst_case_removals(dense, X_test, 2)
    check(first, truth)
    monkeypatch.setattr(metrics, "_PAIRS", 2 * N)
    second = jb.worst_case_removals(sparse, sp.csr_array(X_test), 2)
    check(second, truth)
    for a, b in ((first.scores.lower, second.scores.lower), (first.scores.upper, second.scores.upper)):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    for k in (1, 2):
        labels = np.asarray(jb.worst_case_removal(dense, k, X_test))
        assert labels.dtype == np.int32 and np.array_equal(labels, np.asarray(first.labels)[k - 1])


def test_the_largest_number_is_that_of_the_scan():
    rng = np.random.default_rng(43)
    X, y, X_test = setting("logistic", rng, n=60)
    model = fit(jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1)), X, y, tol=1e-10)
    X_test = np.vstack([X_test, X_test * 1e-12, np.zeros((1, D))])
    scan, found = jb.worst_case_removals(model, X_test, 59), np.asarray(jb.largest_certified_removal(model, X_test))
    assert np.array_equal(found, np.asarray(scan.largest)) and found[-1] == 0 and found.max() >= 5
    assert np.array_equal(found[:5], found[5:10])  # scores of any size
    flips = np.asarray(jb.largest_certified_relabel(model, X_test))
    assert np.array_equal(flips, np.asarray(jb.worst_case_relabels(model, X_test, 59).largest))


def test_attacks_and_jit_with_an_intercept():
    rng = np.random.default_rng(79)
    n = 14
    X, y, X_test = setting("logistic", rng, n=n)
    X_test = X_test[:3]
    model = fit(jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.3), intercept=True), X + 1, y, tol=1e-12)
    given = X + 1, y, np.full(n, 1 / n), np.full(D, 0.3), model.w, X_test
    low, high = extremes("logistic", *given, 2, intercept=model.intercept)
    sign = np.sign(np.asarray(model.scores(X_test)))
    flipped = (sign > 0) & (low < 0) | (sign < 0) & (high > 0)
    true = [int(np.argmax(some)) + 1 if some.any() else 3 for some in flipped.T]
    sizes = [a.rows.size if a.flips else 3 for a in jb.attack_removal(model, 2, X_test)]
    certified = np.asarray(jb.largest_certified_removal(model, X_test))
    assert np.all(certified < true) and np.all(np.array(true) <= sizes) and np.sum(np.array(sizes) == true) >= 2
    few = fit(model.problem, X, np.where(np.arange(n) == 3, 1.0, -1.0), tol=1e-12)
    assert jb.attack_removal(few, 1, X_test[:1])[0].rows.tolist() != [3]  # one class would be left
    with jax.enable_x64(True):
        scores = jax.jit(lambda model, x: jb.worst_case_removals(model, x, 2).scores)(model, put(X_test))
    found = jb.worst_case_removals(model, X_test, 2).scores
    np.testing.assert_allclose(scores.lower, found.lower, rtol=1e-12)
    np.testing.assert_allclose(scores.upper, found.upper, rtol=1e-12)


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_certified_is_at_most_true_is_at_most_attacked(loss):
    rng = np.random.default_rng(47)
    X, y, X_test = setting(loss, rng)
    lam = np.full(D, 0.3)
    model = fit(jb.Problem(LOSSES[loss](), jb.penalties.l2(0.3)), X, y, tol=1e-12)
    for relabel in (False, True):
        low, high = extremes(loss, X, y, np.full(N, 1 / N), lam, model.w, X_test, 4, relabel=relabel)
        sign = np.sign(np.asarray(model.scores(X_test)))
        flipped = (sign > 0) & (low < 0) | (sign < 0) & (high > 0)
        true = [int(np.argmax(some)) + 1 if some.any() else 5 for some in flipped.T]
        attacks = jb.attack_relabel(model, 4, X_test) if relabel else jb.attack_removal(model, 4, X_test)
        certified = jb.largest_certified_relabel if relabel else jb.largest_certified_removal
        exact = 0
        for attack, most, smallest in zip(attacks, np.asarray(certified(model, X_test)), true, strict=True):
            assert most < smallest
            assert attack.score.lower <= attack.score.upper
            if attack.flips:
                assert smallest <= attack.rows.size <= 4
                exact += attack.rows.size == smallest
            else:
                exact += smallest == 5
        assert exact >= 4


def test_inside_jit_and_vmap():
    rng = np.random.default_rng(53)
    X, y, X_test = setting("logistic", rng)
    model = fit(jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.3)), X, y, tol=1e-10)
    found = jb.worst_case_removals(model, X_test, 2)

    @jax.jit
    def traced(model, X_test):
        found = jb.worst_case_removals(model, X_test, 2)
        labels = jb.worst_case_removal(model, 2, X_test), jb.worst_case_relabel(model, 2, X_test)
        return found.scores, found.labels, found.largest, labels, jb.largest_certified_removal(model, X_test)

    with jax.enable_x64(True):
        scores, labels, largest, single, most = traced(model, put(X_test))
    np.testing.assert_allclose(scores.lower, found.scores.lower, rtol=1e-12)
    np.testing.assert_allclose(scores.upper, found.scores.upper, rtol=1e-12)
    assert np.array_equal(labels, found.labels) and np.array_equal(largest, found.largest)
    assert np.array_equal(single[0], found.labels[1])
    assert np.array_equal(most, jb.largest_certified_removal(model, X_test))
    assert np.array_equal(single[1], jb.worst_case_relabel(model, 2, X_test))
    narrow = jax.jit(lambda model: jb.worst_case_removals(model, X_test, 2).scores)(model)
    assert np.all(np.asarray(narrow.lower, float) <= found.scores.lower)
    assert np.all(np.asarray(narrow.upper, float) >= found.scores.upper)
    np.testing.assert_allclose(narrow.lower, found.scores.lower, rtol=1e-6)
    with jax.enable_x64(True):
        nothing = jax.jit(lambda x: jb.worst_case_removal(model, 1, x))(put(np.full((2, D), np.nan)))
    assert np.array_equal(nothing, [0, 0])


def test_hostile_input():
    rng = np.random.default_rng(59)
    X, y, X_test = setting("logistic", rng)
    l2, logistic = jb.penalties.l2(0.3), jb.losses.logistic()
    model = fit(jb.Problem(logistic, l2), X, y)

    def other(loss, penalty, **options):
        return replace(model, problem=jb.Problem(loss, penalty, **options))

    with pytest.raises(ValueError, match="intercept=True needs a smooth loss"):
        jb.worst_case_removal(other(jb.losses.hinge(), l2, intercept=True), 1, X_test)
    with pytest.raises(ValueError, match="strongly convex"):
        jb.worst_case_removal(other(logistic, jb.penalties.l1(0.01)), 1, X_test)
    with pytest.raises(ValueError, match="not linear in the rows"):
        jb.worst_case_removal(other(jb.losses.hinge(), jb.penalties.elastic_net(0.3, 0.1)), 1, X_test)
    with pytest.raises(ValueError, match="smooth"):
        jb.worst_case_relabel(other(jb.losses.hinge(), l2), 1, X_test)
    squared = other(jb.losses.squared(), l2)
    for find, name in ((lambda: jb.worst_case_relabel(squared, 1, X_test), "worst_case_relabel"),
                       (lambda: jb.largest_certified_relabel(squared, X_test), "largest_certified_relabel"),
                       (lambda: jb.attack_relabel(squared, 1, X_test), "attack_relabel")):  # fmt: skip
        with pytest.raises(ValueError, match=f"{name} flips labels, and squared has none; use"):
            find()
    own = other(jb.losses.from_margin(softplus, 0.25), l2)
    with pytest.raises(ValueError, match="inside jit, vmap or grad with your own functions"):
        jax.jit(lambda x: jb.worst_case_removal(own, 1, x))(X_test)
    for k in (0, -1, N):
        with pytest.raises(ValueError, match=f"k = {k} must lie between 1 and {N - 1}"):
            jb.worst_case_removal(model, k, X_test)
    for k in (1.0, True, "2", None):
        with pytest.raises(TypeError, match="k must be a whole number"):
            jb.worst_case_relabel(model, k, X_test)
    with pytest.raises(ValueError, match="stored without its data"):
        jb.worst_case_removal(model.without_data(), 1, X_test)
    with pytest.raises(ValueError, match="X_test must have 3 columns"):
        jb.worst_case_removal(model, 1, X_test[:, :2])
    with pytest.raises(ValueError, match=r"X_test\[0, 0\]"):
        jb.worst_case_removal(model, 1, np.full((1, D), np.nan))
    with pytest.raises(TypeError, match="model must come from fit"):
        jb.worst_case_removals(None, X_test, 1)
    with pytest.raises(TypeError, match="keep_n"):
        jb.worst_case_removal(model, 1, X_test, keep_n=1)
    with pytest.raises(ValueError, match="attack_removal retrains on the host"):
        jax.jit(lambda x: jb.attack_removal(model, 1, x))(X_test)
    with pytest.raises(ValueError, match="k = 0"):
        jb.attack_relabel(model, 0, X_test)


def softplus(m):
    """log(1 + e^-m)."""
    return jax.numpy.logaddexp(0 * m, -m)


@pytest.mark.slow
def test_adversarial_problems():
    rng = np.random.default_rng(61)
    for _ in range(24):
        loss, intercept = list(LOSSES)[rng.integers(5)], bool(rng.random() < 0.5)
        X, y, X_test = setting(loss, rng)
        kind = rng.integers(5)
        X[1:4] = X[0] if kind == 0 else X[1:4]
        X[0] *= 1e3 if kind == 1 else 0 if kind == 2 else 1
        X = np.round(X) if kind == 3 else X
        lam, tol = 10.0 ** rng.uniform(-3, 1), 10.0 ** rng.choice([-1, -4, -12])
        weight = rng.uniform(0.3, 3, size=N)
        problem = jb.Problem(LOSSES[loss](), jb.penalties.l2(lam), intercept=intercept)
        model = fit(problem, X, y, sample_weight=weight, tol=tol)
        b = float(model.intercept) if intercept else None
        truth = extremes(loss, X, y, weight / N, np.full(D, lam), model.w, X_test, 2, intercept=b)
        check(jb.worst_case_removals(model, X_test, 2), truth)
