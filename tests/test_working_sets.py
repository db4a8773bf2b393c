"""Working sets: the optimum is the oracle's whatever the set leaves out, and the gap is that of all columns."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
import scipy.sparse as sp

import jaxbounds as jb
from jaxbounds.matrix import Dense, as_matrix
from jaxbounds.solvers import ProximalGradient, Task, working_set
from jaxbounds.status import Status

pytestmark = pytest.mark.slow  # compiles many solvers

N, D, MOST = 30, 45, 8
RNG = np.random.default_rng(3)
X = np.where(RNG.random((N, D)) < 0.6, RNG.normal(size=(N, D)), 0.0)
TRUTH = np.zeros(D)
TRUTH[[3, 17, 40]] = [2.0, -1.5, 1.0]
REALS = X @ TRUTH + 0.1 * RNG.normal(size=N)
LABELS = np.where(REALS > 0, 1.0, -1.0)
C = np.full(N, 1.0 / N)
LARGEST = float(np.max(np.abs(X.T @ (C * REALS))))


@pytest.fixture
def small(monkeypatch):
    """Blocks of 8 columns, and data of any size worth them."""
    for name, value in {"_LEAST": 2, "_MOST": MOST, "_SMALL": 0, "_PASSES": 1e9, "_LESS": 1}.items():
        monkeypatch.setattr(working_set, name, value)


# the fast compiler: nearly all of the time of these tests is compilation
@functools.partial(jax.jit, static_argnames="intercept", compiler_options={"xla_backend_optimization_level": 0})
def _fit(loss, penalty, matrix, y, c, w0, tol, intercept):
    task, solver = Task(loss, penalty, matrix, y, c, intercept), ProximalGradient()
    return solver.solve(task, matrix, y, c, w0, jnp.zeros_like(y), tol, 500)


def fit(loss, penalty, data, y, c=C, w0=None, tol=1e-11, intercept=False):
    with jax.enable_x64(True):
        matrix = as_matrix(data)
        start = np.zeros(matrix.shape[1]) if w0 is None else w0
        found = _fit(loss, penalty, matrix, *map(jnp.asarray, (y, c, start)), tol, intercept)
    assert Status(int(found.status)) == Status.CONVERGED
    return found


def check(found, problem):
    """The value and the scores are those of the optimum, and the gap is one: no less than the oracle's."""
    best = oracle.solve(problem)
    w, alpha = np.asarray(found.w, float), np.asarray(found.alpha, float)
    value = oracle.primal(problem, best.w)
    assert abs(oracle.primal(problem, w) - value) <= 1e-10 * value
    assert np.allclose(problem.X @ w, problem.X @ best.w, rtol=0, atol=1e-5)
    assert abs(oracle.gap(problem, w, alpha) - float(found.gap)) <= 1e-10 * value
    return w


@pytest.mark.slow
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_lasso_on_hard_columns(small, kind):
    """One program for all of these: few in use, more than fit, none, equal columns, empty columns and rows."""
    twice = X.copy()
    twice[:, [4, 18]], twice[:, [6, 7, 41]] = X[:, [3, 17]], 0.0
    weights = np.where(np.arange(N) % 5 == 0, 0.0, C)
    counts = {}
    for name, (level, data, c, w0) in {
        "few": (0.2, X, C, 0.0), "many": (0.002, X, C, 0.0), "none": (1.001, X, C, 0.0), "equal": (0.1, twice, C, 0.0),
        "weights": (0.1, X, weights, 0.0), "own": (np.geomspace(0.05, 2.0, D), X, C, 0.0), "far": (0.2, X, C, 50.0),
    }.items():  # fmt: skip
        kappa = level * LARGEST * np.ones(D)
        solve = functools.partial(fit, jb.losses.squared(), jb.penalties.L1(kappa), kind(data), REALS, c)
        found = solve(w0 * RNG.normal(size=D))
        w = check(found, oracle.Problem("squared", data, REALS, c, penalty="l1", kappa=kappa))
        counts[name] = np.count_nonzero(w)
        again = solve(w)
        assert np.allclose(again.w, w, rtol=0, atol=1e-6)
    assert counts["none"] == 0 < counts["few"] <= MOST < counts["many"]


@pytest.mark.parametrize("rows", [N, 12], ids=["tall", "wide"])
@pytest.mark.parametrize("loss", ["squared", "logistic", "squared_hinge"])
def test_elastic_net_with_free_coefficients(small, rows, loss):
    """Columns without a kink are in every set; blocks of more and of fewer rows than a Gram matrix would have."""
    y = (REALS if loss == "squared" else LABELS)[:rows]
    l1 = np.where(np.isin(np.arange(D), [2, 30]), 0.0, 0.15)
    lam = np.geomspace(0.05, 0.5, D)
    data, c = X[:rows], np.full(rows, 1.0 / rows)
    found = fit(getattr(jb.losses, loss)(), jb.penalties.ElasticNet(lam, l1), data, y, c)
    w = check(found, oracle.Problem(loss, data, y, c, penalty="elastic_net", lam=lam, l1=l1))
    assert np.all(w[[2, 30]] != 0)
    assert np.count_nonzero(w) < D


@pytest.mark.slow
def test_intercept_is_that_of_centred_data(small):
    y, centred = REALS + 5.0, X - X.mean(axis=0)
    kappa = 0.1 * LARGEST * np.ones(D)
    found = fit(jb.losses.squared(), jb.penalties.L1(kappa), X, y, intercept=True)
    best = oracle.solve(oracle.Problem("squared", centred, y - y.mean(), C, penalty="l1", kappa=kappa))
    assert np.allclose(found.w, best.w, rtol=0, atol=1e-6)
    assert abs(float(found.intercept) - (y.mean() - X.mean(axis=0) @ best.w)) < 1e-6


def test_float32_data(small):
    data = X.astype(np.float32)
    kappa = 0.1 * LARGEST * np.ones(D)
    found = fit(jb.losses.squared(), jb.penalties.L1(kappa), data, REALS)
    check(found, oracle.Problem("squared", data.astype(float), REALS, C, penalty="l1", kappa=kappa))


def test_traced_over_penalties(small):
    with jax.enable_x64(True):
        matrix, levels = as_matrix(X), LARGEST * np.array([0.5, 0.1, 0.01])
        args = [jnp.asarray(a) for a in (REALS, C, np.zeros(D))]

        def solve(kappa):
            return _fit(jb.losses.squared(), jb.penalties.L1(kappa), matrix, *args, 1e-11, False).w

        found = np.asarray(jax.vmap(solve)(jnp.asarray(levels)))
    for w, kappa in zip(found, levels, strict=True):
        problem = oracle.Problem("squared", X, REALS, C, penalty="l1", kappa=kappa)
        assert oracle.primal(problem, w) <= (1 + 1e-10) * oracle.primal(problem, oracle.solve(problem).w)


def test_columns_made_dense():
    with jax.enable_x64(True):
        data = sp.random_array((300, 900), density=0.1, rng=np.random.default_rng(0), format="csr")
        data = sp.csr_array(data.multiply(np.arange(900) % 7 != 3))  # empty columns, the first one asked for too
        columns = np.array([3, 899, 0, 17, 24, 500, 1], np.int32)
        for part in (columns, columns[:1], np.arange(900, dtype=np.int32)):
            found = jax.jit(lambda m, i: m.by_col.dense(i, m.shape[0]))(as_matrix(data), jnp.asarray(part))
            assert np.array_equal(found, data.toarray()[:, part])


@pytest.mark.parametrize("size", [9, 64, 1000])
def test_largest_scores(size):
    score = np.random.default_rng(size).integers(0, 20, size).astype(float)
    score[2] = np.inf
    with jax.enable_x64(True):
        for most in (1, 8):
            found = np.asarray(working_set._largest(jnp.asarray(score), most))
            assert len(set(found.tolist())) == most
            assert np.array_equal(np.sort(score[found]), np.sort(score)[-most:])


def test_where_sets_are_used():
    """Not for small data, smooth penalties, rows on several devices, or too many rows."""

    def width(n, d, penalty=None, shards=1, loss=None):
        penalty, matrix = penalty or jb.penalties.l1(0.1), Dense(np.zeros((n, d)), shards)
        return working_set.width(Task(loss or jb.losses.squared(), penalty, matrix, np.zeros(n), np.zeros(n)))

    assert width(38, 3051) == 512
    assert width(38, 400) is None
    assert width(20_000, 1000) == 64
    assert width(20_000, 100) == 64
    assert width(20_000, 100, loss=jb.losses.logistic()) is None
    assert width(10**6, 100) is None
    assert width(38, 3051, jb.penalties.l2(0.1)) is None
    assert width(38, 3051, shards=2) is None
