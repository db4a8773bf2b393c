"""compiled=True: epochs and rounds in C give the optimum of the other solvers, and refuse what they cannot do."""

import shutil
import threading

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
import scipy.sparse as sp

import jaxbounds as jb
from jaxbounds import chunks
from jaxbounds.solvers import DualCoordinate, ProximalGradient, Task, compiled, compiled_columns, compiled_rows

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

N, D = 60, 23
RNG = np.random.default_rng(3)
X = np.where(RNG.random((N, D)) < 0.4, RNG.normal(size=(N, D)), 0.0)
X[4], X[:, 7], X[9] = 0.0, 0.0, X[8]  # an empty row, an empty column, rows alike
LABELS = np.where(X @ RNG.normal(size=D) + 0.5 * RNG.normal(size=N) > 0, 1.0, -1.0)
REALS = X @ RNG.normal(size=D) + RNG.normal(size=N)
WEIGHTS = RNG.uniform(0.3, 2.0, N)

LOSSES = {
    "hinge": jb.losses.hinge(),
    "smoothed_hinge": jb.losses.smoothed_hinge(0.5),
    "squared_hinge": jb.losses.squared_hinge(),
    "modified_huber": jb.losses.modified_huber(),
    "logistic": jb.losses.logistic(),
    "squared": jb.losses.squared(),
    "huber": jb.losses.huber(0.7),
    "squared_epsilon_insensitive": jb.losses.squared_epsilon_insensitive(0.3),
    "smoothed_quantile": jb.losses.smoothed_quantile(0.8, 0.4),
}
PARAMETERS = {
    "smoothed_hinge": 0.5, "huber": 0.7, "squared_epsilon_insensitive": 0.3, "smoothed_quantile": (0.8, 0.4),
}  # fmt: skip
EACH = np.geomspace(1e-3, 1.0, D)
PENALTIES = {
    "l2": (jb.penalties.l2(1e-3), {"lam": 1e-3}),
    "l2 each": (jb.penalties.l2(EACH), {"lam": EACH}),
    "elastic net": (jb.penalties.elastic_net(1e-2, 5e-3), {"penalty": "elastic_net", "lam": 1e-2, "l1": 5e-3}),
}


def _targets(loss):
    return LABELS if loss.classification else REALS


OPTIMA = [(name, "l2") for name in LOSSES]
OPTIMA += [(name, other) for name in ("hinge", "logistic") for other in ("l2 each", "elastic net")]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "penalty"), OPTIMA)
def test_optimum(name, penalty):
    """w is the oracle's: both are within sqrt(2 gap / lam) of the optimum."""
    loss, (function, terms) = LOSSES[name], PENALTIES[penalty]
    y = _targets(loss)
    c = WEIGHTS / N
    best = oracle.solve(oracle.Problem(name, X, y, c, param=PARAMETERS.get(name), **terms))
    solver, problem = DualCoordinate(compiled=True), jb.Problem(loss, function)
    model = jb.fit(problem, sp.csr_array(X), y, sample_weight=WEIGHTS, tol=1e-10, solver=solver)
    assert int(model.status) == 0
    allowed = sum(np.sqrt(2 * max(float(gap), 0.0) / np.min(terms["lam"])) for gap in (model.gap, best.gap))
    assert np.linalg.norm(np.asarray(model.w) - best.w) <= allowed + 1e-12


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sparse", [False, True])
def test_passes_alone(dtype, sparse):
    """Without a final phase the epochs themselves reach the optimum: alpha stays in its domain and v belongs to it."""
    data = sp.csr_array(X.astype(dtype)) if sparse else X.astype(dtype)
    problem = jb.Problem(jb.losses.smoothed_hinge(0.5), jb.penalties.l2(0.3))
    solver = DualCoordinate(compiled=True, polish=False)
    solver.check(problem)
    with jax.enable_x64(True):
        task = Task(problem.loss, problem.penalty, jb.matrix.as_matrix(data), jnp.asarray(LABELS), jnp.full(N, 1 / N))
        zero = jnp.zeros(N)
        kappa = compiled_rows.curvature(task)
        alpha, v = compiled_rows.epochs(task, zero, jnp.zeros(D), kappa, jnp.asarray(200), jnp.asarray(0))
        assert np.all((np.asarray(alpha) >= 0) & (np.asarray(alpha) <= 1))
        np.testing.assert_allclose(v, task.v(alpha), rtol=0, atol=1e-14)
        w = task.penalty.grad_conjugate(v)
        assert float(task.gap(w, task.q(task.scores(w)), alpha, v, None)) <= 1e-12
        np.testing.assert_array_equal(zero, np.zeros(N))  # the inputs are left alone


@pytest.mark.parametrize("kappa", [0.0, 1e-3, 1.0, 1e3])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_one_step(loss, kappa):
    """The step of the C code on single rows is the loss's own."""
    with jax.enable_x64(True):
        n = 400
        y = np.where(RNG.random(n) < 0.5, 1.0, -1.0) if loss.classification else 3 * RNG.normal(size=n)
        data = np.sqrt(kappa) * np.eye(n)  # rows do not meet, so kappa_i = c_i |x_i|^2 / lam is kappa
        task = Task(loss, jb.penalties.l2(1.0), jb.matrix.as_matrix(data), jnp.asarray(y), jnp.ones(n))
        old = loss.clip(jnp.asarray(2 * RNG.normal(size=n)), task.y)
        q = task.q(task.scores(task.v(old)))
        new, _ = compiled_rows.epochs(task, old, task.v(old), jnp.full(n, kappa), jnp.asarray(1), jnp.asarray(0))
        expected = loss.dual_step(q, old, task.y, jnp.full(n, max(kappa, 1e-300)))
        np.testing.assert_allclose(new, expected, rtol=1e-9, atol=1e-12)


def test_passes_go_on_without_a_final_phase():
    """However slowly the gap falls: rows of norm 7 at lam 1e-3 take hundreds of passes."""
    rng = np.random.default_rng(7)
    y, rows = np.sign(rng.normal(size=200)), rng.normal(size=(200, 50))
    problem = jb.Problem(jb.losses.smoothed_hinge(0.5), jb.penalties.l2(1e-3))
    solver = DualCoordinate(compiled=True, polish=False)
    with pytest.warns(jb.FitWarning):
        short, long = (jb.fit(problem, rows, y, solver=solver, max_steps=steps) for steps in (20, 200))
    assert float(long.gap) < 0.1 * float(short.gap)


def test_first_use_in_threads(monkeypatch):
    """One thread builds for all."""
    built = []
    monkeypatch.setattr(compiled, "_BUILT", [])
    monkeypatch.setattr(jax.ffi, "register_ffi_target", lambda *args, **named: built.append(args))
    threads = [threading.Thread(target=compiled.build) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 2  # both parts of the code, once


def test_several_at_once():
    """vmap runs the C code for one problem after the other."""
    problem = lambda lam: jb.Problem(jb.losses.squared_hinge(), jb.penalties.l2(lam))  # noqa: E731
    fit = lambda lam: jb.fit(problem(lam), X, LABELS, tol=1e-13, solver=DualCoordinate(compiled=True)).w  # noqa: E731
    lams = np.array([1e-2, 1e-1])
    np.testing.assert_allclose(jax.vmap(fit)(lams), np.stack([fit(lam) for lam in lams]), atol=1e-6)


def test_refusals(monkeypatch):
    """What the C code cannot do is named, with the remedy."""
    solver = DualCoordinate(compiled=True)
    fit = lambda loss, penalty, X=X, y=LABELS: jb.fit(jb.Problem(loss, penalty), X, y, solver=solver)  # noqa: E731
    with pytest.raises(ValueError, match="not poisson; leave out compiled"):
        fit(jb.losses.poisson(3.0), jb.penalties.l2(0.1), y=np.abs(np.round(REALS)))
    own = jb.penalties.from_function(lambda w: 0.1 * (jnp.cosh(w) - 1.0), strong_convexity=0.1)
    with pytest.raises(ValueError, match="L2 and the elastic net, not .*; leave out compiled"):
        fit(jb.losses.hinge(), own)
    with pytest.raises(ValueError, match="RowBlocks .* leave out compiled"):
        fit(jb.losses.hinge(), jb.penalties.l2(0.1), jb.RowBlocks([X[:30], X[30:]]))
    with pytest.raises(TypeError, match="compiled"):
        DualCoordinate(compiled="yes").check(jb.Problem(jb.losses.hinge(), jb.penalties.l2(0.1)))
    monkeypatch.setattr(compiled, "_BUILT", [])
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(RuntimeError, match="needs a C compiler .* leave out compiled"):
        fit(jb.losses.hinge(), jb.penalties.l2(0.1))


ROUNDS = ProximalGradient(compiled=True)
LARGEST = float(np.max(np.abs(X.T @ (WEIGHTS / N * REALS))))
SPARSE_PENALTIES = {
    "l1": lambda at: (jb.penalties.l1(at), {"penalty": "l1", "kappa": at}),
    "l1 each": lambda at: (jb.penalties.l1(at * (1 + EACH)), {"penalty": "l1", "kappa": at * (1 + EACH)}),
    "elastic net": lambda at: (
        jb.penalties.elastic_net(0.1 * at, at), {"penalty": "elastic_net", "lam": 0.1 * at, "l1": at}
    ),
    "elastic net each": lambda at: (
        jb.penalties.elastic_net(0.1 * at * EACH, at * (2 - EACH)),
        {"penalty": "elastic_net", "lam": 0.1 * at * EACH, "l1": at * (2 - EACH)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("penalty", SPARSE_PENALTIES)
@pytest.mark.parametrize("part", [0.3, 0.01])
def test_rounds_reach_the_optimum(penalty, part):
    """Weighted and unweighted, in both precisions: P is the oracle's, and the gap says so."""
    function, terms = SPARSE_PENALTIES[penalty](part * LARGEST)
    for data, weights in ((X, WEIGHTS), (X.astype(np.float32), None)):
        c = np.full(N, 1 / N) if weights is None else WEIGHTS / N
        problem = oracle.Problem("squared", data.astype(float), REALS, c, **terms)
        best = oracle.primal(problem, oracle.solve(problem).w)
        model = jb.fit(jb.Problem(jb.losses.squared(), function), sp.csr_array(data), REALS, sample_weight=weights,
                       tol=1e-11, solver=ROUNDS)  # fmt: skip
        assert int(model.status) == 0
        reached = oracle.primal(problem, np.asarray(model.w, float))
        assert abs(reached - best) <= 1e-10 * best
        assert np.asarray(model.w)[7] == 0.0  # the empty column


def test_rounds_with_an_intercept():
    """As on centred data."""
    kappa, y = 0.05 * LARGEST, REALS + 30.0
    c = WEIGHTS / N
    problem = jb.Problem(jb.losses.squared(), jb.penalties.l1(kappa), intercept=True)
    model = jb.fit(problem, sp.csr_array(X), y, sample_weight=WEIGHTS, tol=1e-12, solver=ROUNDS)
    mean = (c @ X / c.sum(), c @ y / c.sum())
    best = oracle.solve(oracle.Problem("squared", X - mean[0], y - mean[1], c, penalty="l1", kappa=kappa))
    np.testing.assert_allclose(model.w, best.w, rtol=0, atol=1e-5)
    assert abs(float(model.intercept) - (mean[1] - mean[0] @ best.w)) < 1e-5


def _wide(n, d, density, seed=0):
    rng = np.random.default_rng(seed)
    data = sp.csr_array(np.where(rng.random((n, d)) < density, rng.random((n, d)), 0.0))
    return data, data @ np.where(rng.random(d) < 0.02, rng.normal(size=d), 0.0) + 0.1 * rng.normal(size=n)


@pytest.mark.slow
@pytest.mark.parametrize("large", [False, True])
def test_rounds_on_wide_data(large, monkeypatch):
    """More columns than a working set holds: the same gap and coefficients as without C, in few steps."""
    if large:  # the ends of the columns lie apart
        monkeypatch.setattr(chunks, "_LARGE", 1)
    data, y = _wide(300, 3000, 0.05)
    kappa = 0.02 * float(np.max(np.abs(data.T @ y))) / y.size
    for penalty in (jb.penalties.l1(kappa), jb.penalties.elastic_net(kappa, kappa)):
        problem = jb.Problem(jb.losses.squared(), penalty)
        ours = jb.fit(problem, data, y, tol=1e-11, solver=ROUNDS)
        other = jb.fit(problem, data, y, tol=1e-11)
        assert int(ours.status) == 0
        assert int(ours.n_steps) <= 15
        assert abs(float(ours.primal) - float(other.primal)) <= float(ours.gap) + float(other.gap)
        assert 100 < np.count_nonzero(ours.w) < 400


def test_rounds_descend():
    """The objective falls from round to round, extrapolations included, and the inputs are left alone."""
    data, y = _wide(100, 400, 0.1)
    ROUNDS.check(jb.Problem(jb.losses.squared(), jb.penalties.l1(1.0)))
    with jax.enable_x64(True):
        kappa = 1e-3 * float(np.max(np.abs(data.T @ y))) / y.size
        task = Task(jb.losses.squared(), jb.penalties.l1(jnp.asarray(kappa)), jb.matrix.as_matrix(data),
                    jnp.asarray(y), jnp.full(y.size, 1 / y.size))  # fmt: skip
        squares = task.matrix.by_col.reduce(task.c, jnp.square)

        @jax.jit
        def once(w):
            s = task.scores(w)
            new = compiled_columns.rounds(task, w, s, task.v(task.loss.dual(task.q(s), task.y)), squares, 1)
            return new, task.primal(new, task.q(task.scores(new)))

        w, values = jnp.zeros(400), []
        for _ in range(60):
            old = np.array(w)
            new, value = once(w)
            np.testing.assert_array_equal(w, old)
            w = new
            values.append(float(value))
        assert all(after <= before * (1 + 1e-12) for before, after in zip(values, values[1:], strict=False))
        problem = oracle.Problem("squared", data.toarray(), y, np.asarray(task.c), penalty="l1", kappa=kappa)
        assert values[-1] <= oracle.primal(problem, oracle.solve(problem).w) * (1 + 1e-2)


def test_few_or_no_coefficients():
    """A penalty above the largest useful one, and targets that are 0."""
    problem = jb.Problem(jb.losses.squared(), jb.penalties.l1(2 * LARGEST))
    model = jb.fit(problem, sp.csr_array(X), REALS, sample_weight=WEIGHTS, solver=ROUNDS)
    assert not np.any(model.w)
    small = jb.Problem(jb.losses.squared(), jb.penalties.l1(0.1))
    model = jb.fit(small, sp.csr_array(X), 0.0 * REALS, solver=ROUNDS)
    assert not np.any(model.w)


def test_slow_rounds_are_left():
    """Columns nearly alike: where coordinate descent crawls, Newton steps finish."""
    rng = np.random.default_rng(1)
    data = rng.normal(size=(80, 1)) + 0.1 * rng.normal(size=(80, 60))
    y = data @ rng.normal(size=60)
    problem = jb.Problem(jb.losses.squared(), jb.penalties.elastic_net(1e-4, 1e-4))
    model = jb.fit(problem, sp.csr_array(data), y, tol=1e-6, solver=ROUNDS)
    assert int(model.status) == 0
    terms = {"penalty": "elastic_net", "lam": 1e-4, "l1": 1e-4}
    exact = oracle.Problem("squared", data, y, np.full(80, 1 / 80), **terms)
    assert oracle.primal(exact, np.asarray(model.w)) <= oracle.primal(exact, oracle.solve(exact).w) * (1 + 1e-6)


@pytest.mark.slow
def test_rounds_traced_over_penalties():
    """vmap runs the C code for one problem after the other."""
    fit = lambda kappa: jb.fit(  # noqa: E731
        jb.Problem(jb.losses.squared(), jb.penalties.l1(kappa)), sp.csr_array(X), REALS, tol=1e-13, solver=ROUNDS
    ).w
    levels = LARGEST * np.array([0.5, 0.1])
    np.testing.assert_allclose(jax.vmap(fit)(levels), np.stack([fit(level) for level in levels]), atol=1e-6)


def test_rounds_refuse():
    """What the C code cannot do is named, with the remedy."""
    data = sp.csr_array(X)
    fit = lambda loss, penalty, X=data, y=REALS: jb.fit(jb.Problem(loss, penalty), X, y, solver=ROUNDS)  # noqa: E731
    with pytest.raises(ValueError, match="squared loss, not logistic; leave out compiled"):
        fit(jb.losses.logistic(), jb.penalties.l1(0.1), y=LABELS)
    with pytest.raises(ValueError, match="L1 and the elastic net, not l2; leave out compiled"):
        fit(jb.losses.squared(), jb.penalties.l2(0.1))
    with pytest.raises(ValueError, match="sparse data, and X is dense; leave out compiled"):
        fit(jb.losses.squared(), jb.penalties.l1(0.1), X)
    with pytest.raises(ValueError, match="RowBlocks .* leave out compiled"):
        fit(jb.losses.squared(), jb.penalties.l1(0.1), jb.RowBlocks([X[:30], X[30:]]))
    with pytest.raises(TypeError, match="compiled"):
        ProximalGradient(compiled=1).check(jb.Problem(jb.losses.squared(), jb.penalties.l1(0.1)))
