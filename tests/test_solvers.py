"""Solvers: optimality by the duality gap and by independent optima, over loss x penalty x solver x dense/sparse."""

import functools
from collections import namedtuple

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
import scipy.sparse as sp

from jaxbounds import losses, penalties
from jaxbounds import matrix as matrix_module
from jaxbounds.matrix import as_matrix
from jaxbounds.solvers import (
    DualCoordinate,
    DualNewton,
    NewtonCG,
    ProximalGradient,
    Task,
    curved,
    default_solver,
    linear,
)
from jaxbounds.solvers.common import start_scores
from jaxbounds.solvers.linear import column_scale, conjugate_gradients, sample_rows, sample_size, sampled, solve_with
from jaxbounds.status import Status

pytestmark = pytest.mark.slow  # compiles many solvers

Problem = namedtuple("Problem", "loss penalty")
N, D = 48, 12
RNG = np.random.default_rng(0)
X = np.where(RNG.random((N, D)) < 0.5, RNG.normal(size=(N, D)), 0.0)
X[3], X[:, 5] = 0.0, 0.0
LABELS = np.where(X @ RNG.normal(size=D) + 0.5 * RNG.normal(size=N) > 0, 1.0, -1.0)
REALS = X @ RNG.normal(size=D) + RNG.normal(size=N)
WEIGHTS = RNG.uniform(0.3, 2.0, N) / N


def _phi(m, scale):
    return scale * jnp.logaddexp(0.0, -m / scale)


def _hinge(m):
    return jnp.maximum(1.0 - m, 0.0)


def _bowl(w, lam):
    return lam * (jnp.cosh(w) - 1.0)


LOSSES = {  # the numbers are those of ORACLE below
    "smoothed_hinge": lambda: losses.smoothed_hinge(0.5),
    "hinge": losses.hinge,
    "squared_hinge": losses.squared_hinge,
    "logistic": losses.logistic,
    "squared": losses.squared,
    "huber": lambda: losses.huber(0.7),
    "own": lambda: losses.from_margin(_phi, smoothness=0.5, params=(0.5,), domain=(0.0, 1.0)),
    "own_hinge": lambda: losses.from_margin(_hinge, domain=(0.0, 1.0)),
}
PENALTIES = {
    "l2": lambda: penalties.l2(0.05),
    "l2_vector": lambda: penalties.l2(np.geomspace(0.01, 1.0, D)),
    "elastic_net": lambda: penalties.elastic_net(0.03, 0.02),
    "l1": lambda: penalties.l1(0.03),
    "lq1.5": lambda: penalties.lq(0.05, 1.5),
    "lq3": lambda: penalties.lq(0.05, 3.0),
    "own": lambda: penalties.from_function(_bowl, strong_convexity=0.1, params=(0.1,)),
}
ORACLE = {
    "l2": {"penalty": "l2", "lam": 0.05},
    "l2_vector": {"penalty": "l2", "lam": np.geomspace(0.01, 1.0, D)},
    "elastic_net": {"penalty": "elastic_net", "lam": 0.03, "l1": 0.02},
    "l1": {"penalty": "l1", "kappa": 0.03},
    "lq1.5": {"penalty": "lq", "lam": 0.05, "q": 1.5},
    "lq3": {"penalty": "lq", "lam": 0.05, "q": 3.0},
}


def _optimum(loss, penalty):
    """The optimum by the oracle, None where it does not know the functions."""
    loss = "hinge" if loss == "own_hinge" else loss
    if "own" in (loss, penalty):
        return None
    y = LABELS if loss in oracle.MARGIN_LOSSES else REALS
    param = {"smoothed_hinge": 0.5, "huber": 0.7}.get(loss)
    return oracle.solve(oracle.Problem(loss, X, y, WEIGHTS, param=param, **ORACLE[penalty]))


# the fast compiler: nearly all of the time of these tests is compilation
@functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
def _solve(solver, problem, matrix, y, c, w0, alpha0, tol, max_steps):
    return solver.solve(problem, matrix, y, c, w0, alpha0, tol, max_steps)


def _matrix(kind="dense"):
    return as_matrix(X if kind == "dense" else sp.csr_array(X))


def _args(loss, penalty, kind="dense"):
    problem = Problem(LOSSES[loss](), PENALTIES[penalty]())
    y = LABELS if problem.loss.classification else REALS
    return problem, _matrix(kind), jnp.asarray(y), jnp.asarray(WEIGHTS)


def _fit(solver, loss, penalty, kind="dense", tol=1e-12, max_steps=500):
    with jax.enable_x64(True):
        args = _args(loss, penalty, kind)
        solver.check(args[0])
        return _solve(solver, *args, jnp.zeros(D), jnp.zeros(N), tol, max_steps), args


def _numpy_gap(solution, problem, y):
    """P - D from the definitions, in NumPy."""
    w, alpha = np.asarray(solution.w), np.asarray(solution.alpha)
    with jax.enable_x64(True):
        y_ = jnp.asarray(y)
        q = problem.loss.coordinate(jnp.asarray(X @ w), y_)
        value, conjugate = problem.loss.value(q, y_), problem.loss.conjugate(jnp.asarray(alpha), y_)
        shift = problem.loss.coordinate(jnp.zeros(N), y_)  # <alpha, q> is <t, s> plus this
        o = np.asarray(problem.loss.orientation(y_))
        v = X.T @ (WEIGHTS * o * alpha)
        psi = np.asarray(problem.penalty.value(jnp.asarray(w)))
        psi_star = np.asarray(problem.penalty.conjugate(jnp.asarray(v)))
    primal = WEIGHTS @ np.asarray(value) + np.sum(psi)
    dual = -(WEIGHTS @ (np.asarray(conjugate) + alpha * np.asarray(shift))) - np.sum(psi_star)
    return primal, primal - dual


CASES = (
    [(NewtonCG(), loss, "l2") for loss in ("smoothed_hinge", "squared_hinge", "logistic", "huber", "own")]
    + [(NewtonCG(), "logistic", "l2_vector"), (NewtonCG(), "squared", "own")]
    + [(DualNewton(), loss, "l2") for loss in ("smoothed_hinge", "squared", "own")]
    + [(DualNewton(), "logistic", "l2_vector")]
    + [(ProximalGradient(), "logistic", penalty) for penalty in ("elastic_net", "l1", "lq1.5", "lq3")]
    + [(ProximalGradient(), loss, "l1") for loss in ("squared", "own")]
    + [(DualCoordinate(), "hinge", penalty) for penalty in ("l2", "elastic_net")]
    + [(DualCoordinate(), "own_hinge", "l2"), (DualCoordinate(epochs=3), "squared_hinge", "l2")]
)
SPARSE = (
    (NewtonCG(), "logistic", "l2"),
    (DualNewton(), "logistic", "l2"),
    (ProximalGradient(), "squared", "l1"),
    (DualCoordinate(), "hinge", "elastic_net"),
)


@pytest.mark.parametrize(
    ("solver", "loss", "penalty", "kind"),
    [(*case, "dense") for case in CASES] + [(*case, "sparse") for case in SPARSE],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_gap(solver, loss, penalty, kind):
    solution, (problem, _, y, _) = _fit(solver, loss, penalty, kind)
    assert Status(int(solution.status)) == Status.CONVERGED
    assert 0 <= float(solution.gap) <= 1e-12 * float(solution.primal)
    primal, gap = _numpy_gap(solution, problem, y)
    np.testing.assert_allclose(float(solution.primal), primal, rtol=1e-13)
    assert abs(gap) <= 1e-11 * primal  # finite: alpha and v are feasible
    assert all(leaf.dtype in (np.float64, np.int32) for leaf in jax.tree.leaves(solution))
    if problem.loss.defined_by_ref and problem.loss.smoothness is not None:
        with jax.enable_x64(True):
            np.testing.assert_array_equal(problem.loss.dual(solution.ref, y), solution.alpha)
    best = _optimum(loss, penalty)
    if best is not None:
        np.testing.assert_allclose(solution.w, best.w, atol=1e-6)
        np.testing.assert_allclose(solution.primal, best.primal, rtol=1e-12)
    if penalty in ("l1", "elastic_net"):
        assert 0 < np.count_nonzero(np.asarray(solution.w)) < D


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_plain_sdca_converges(kind):
    solution, _ = _fit(DualCoordinate(polish=False), "squared_hinge", "l2", kind, tol=1e-6, max_steps=3000)
    assert int(solution.status) == Status.CONVERGED


@pytest.mark.slow
def test_conjugate_gradients_on_a_large_problem_without_factoring():
    rng = np.random.default_rng(1)
    wide = rng.normal(size=(700, 600)) * np.geomspace(1.0, 30.0, 600)
    y = np.where(wide @ rng.normal(size=600) > 0, 1.0, -1.0)
    for solver, problem in (
        (NewtonCG(), Problem(losses.logistic(), penalties.l2(1e-2))),
        (ProximalGradient(), Problem(losses.logistic(), penalties.l1(0.3))),
    ):
        with jax.enable_x64(True):
            solution = _solve(
                solver, problem, as_matrix(wide), jnp.asarray(y), jnp.full(700, 1 / 700), jnp.zeros(600),
                jnp.zeros(700), 1e-12, 500,
            )  # fmt: skip
        assert int(solution.status) == Status.CONVERGED


def test_warm_start_takes_no_steps():
    for solver, loss, penalty in (
        (NewtonCG(), "logistic", "l2"),
        (DualNewton(), "logistic", "l2"),
        (DualCoordinate(), "hinge", "l2"),
    ):
        solution, args = _fit(solver, loss, penalty)
        with jax.enable_x64(True):
            again = _solve(solver, *args, solution.w, solution.alpha, 1e-10, 500)
        assert int(again.n_steps) == 0 and int(again.status) == Status.CONVERGED


def test_a_start_at_zero_needs_no_scores():
    """The shortcut for w = 0 is the product it stands for, also where a batch of starts holds both kinds."""
    starts = np.stack([np.zeros(D), np.full(D, 0.3), -np.zeros(D)])
    with jax.enable_x64(True):
        problem, matrix, y, c = _args("logistic", "l2", "sparse")
        for intercept in (False, True):
            task = Task(problem.loss, problem.penalty, matrix, y, c, intercept)
            found = jax.jit(jax.vmap(start_scores, (None, 0)))(task, jnp.asarray(starts))
            for w, s in zip(starts, found, strict=True):
                np.testing.assert_allclose(s, task.balanced(jnp.asarray(X @ w)), rtol=1e-12, atol=1e-15)
        batch = jax.vmap(_solve, (None, None, None, None, None, 0, None, None, None))
        args = NewtonCG(), problem, matrix, y, c, jnp.asarray(starts), jnp.zeros(N), 1e-12, 100
        found = batch(*args)
    optimum = _optimum("logistic", "l2")
    for w in found.w:
        np.testing.assert_allclose(w, optimum.w, atol=1e-6)


@pytest.mark.parametrize("intercept", [False, True])
def test_column_scale_of_sparse_data(intercept):
    for dtype, rtol in ((np.float32, 1e-6), (np.float64, 1e-13)):
        with jax.enable_x64(True):
            matrices = [as_matrix(make(X.astype(dtype))) for make in (sp.csr_array, np.asarray)]
            for weights in (WEIGHTS, np.full(N, 1 / N)):  # equal ones are not gathered
                found, expected = (column_scale(matrix, jnp.asarray(weights), intercept) for matrix in matrices)
                np.testing.assert_allclose(found, expected, rtol=rtol)


@pytest.mark.parametrize(("kind", "intercept"), [("dense", True), ("sparse", False)])
def test_sampled_hessian_as_preconditioner(monkeypatch, kind, intercept):
    """Far fewer CG steps than with the diagonal on correlated columns, to the optimum of the factored Hessian."""
    n, d = 1200, 12
    rng = np.random.default_rng(7)
    X = (rng.normal(size=(n, d)) * np.geomspace(1e-2, 3.0, d)) @ rng.normal(size=(d, d))
    y = np.where(X @ rng.normal(size=d) + rng.normal(size=n) > 0, 1.0, -1.0)
    X = X.astype(np.float32)
    with jax.enable_x64(True):
        matrix, c = as_matrix(X if kind == "dense" else sp.csr_array(X)), jnp.asarray(rng.uniform(0.3, 2.0, n) / n)
        task = Task(losses.logistic(), penalties.l2(1e-4), matrix, jnp.asarray(y), c, intercept)
        args = task, task.matrix, task.y, c, jnp.zeros(d), jnp.zeros(n), 1e-12, 100

        def solve(max_cg):  # another number, another compilation
            options = {"xla_backend_optimization_level": 0}
            return jax.jit(NewtonCG(max_cg=max_cg).solve, compiler_options=options)(*args)

        factored = solve(250)
        monkeypatch.setattr(linear, "_DIRECT_WORK", 0.0)
        monkeypatch.setattr(linear, "_SMALL_WORK", 0.0)
        found = solve(249)
        weights, diagonal = c / 4, jnp.full(d, 1e-4)
        rows, mask = task.rows(weights), jnp.ones(d, bool)
        apply = lambda p: (diagonal * p + rows.normal(weights, p), rows.matvec(p))  # noqa: E731
        some = sampled(rows, weights, diagonal, mask)
        scale = diagonal + column_scale(matrix, weights, intercept)
        steps = [
            int(conjugate_gradients(apply, jnp.ones(d), precondition, 1e-2, 200)[2])
            for precondition in (solve_with(some), lambda r: r / scale)
        ]
    assert steps[0] <= 5 and 2 * steps[0] <= steps[1], steps
    assert Status(int(found.status)) == Status.CONVERGED
    np.testing.assert_allclose(found.w, factored.w, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found.primal, factored.primal, rtol=1e-11)


def test_sampled_hessian_only_where_it_pays():
    with jax.enable_x64(True):
        assert sample_size(as_matrix(X)) is None  # too few rows
        assert sample_size(as_matrix(sp.random_array((4000, 200), density=0.001, rng=RNG))) is None  # too few entries
        assert sample_size(as_matrix(np.ones((2000, 2)))) == 32


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_rows_are_sampled_by_their_weight(make):
    """Few rows with a weight are all there, with it; of many, those that are certain are, and the total stays."""
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(500, 3)), np.zeros((3, 500))
    few = rng.choice(500, 20, replace=False)
    weights[0, few] = rng.uniform(0.1, 1.0, 20)
    weights[1] = rng.uniform(0.1, 1.0, 500)
    weights[1, 7] = 1e3
    with jax.enable_x64(True):
        rows, chosen = jax.vmap(lambda w: sample_rows(as_matrix(make(X)), w, 32))(jnp.asarray(weights))
        rows, chosen = np.asarray(rows.values), np.asarray(chosen)
    hessians = np.einsum("kij,ki,kil->kjl", rows, chosen, rows)
    np.testing.assert_allclose(hessians[0], (X.T * weights[0]) @ X, rtol=1e-12)
    np.testing.assert_allclose(chosen[1].max(), 1e3)
    np.testing.assert_array_equal(rows[1][np.argmax(chosen[1])], X[7])
    np.testing.assert_allclose(np.sort(chosen[1])[:-1].sum(), weights[1].sum() - 1e3, rtol=0.1)
    np.testing.assert_array_equal(chosen[2], 0.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_in_one_pass_over_curved_rows(monkeypatch, dtype):
    """Large dense data: X^T D (X p - shift), whatever rows count, also for several problems at once."""
    monkeypatch.setattr(matrix_module, "_TALL", 0)
    monkeypatch.setattr(curved, "_BLOCK", 64)
    rng = np.random.default_rng(1)
    X, p = rng.normal(size=(101, 3)).astype(dtype), rng.normal(size=3)
    weights = rng.uniform(0.5, 1.0, (4, 101)) * np.array([[1.0], [1.0], [0.0], [1.0]])
    weights[1, rng.choice(101, 60, replace=False)] = 0.0
    weights[3, 1:] = 0.0
    with jax.enable_x64(True):
        matrix = as_matrix(X)

        def product(weights, flat):
            times, along = curved.curved_products(matrix, weights, lambda p: jnp.sum(p), flat)
            return times(jnp.asarray(p))[0], along(jnp.asarray(p), times(jnp.asarray(p))[1])

        found = jax.vmap(lambda w: product(w, True))(jnp.asarray(weights))
        whole = product(jnp.asarray(weights[0]), False)
        back = matrix.rmatvec(jnp.asarray(weights[0]))
    wide = X.astype(np.float64)
    scores = wide @ p
    expected = (weights * (scores - p.sum())) @ wide
    np.testing.assert_allclose(found[0], expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(found[1], np.tile(scores, (4, 1)), rtol=1e-12)
    np.testing.assert_allclose(whole[0], expected[0], rtol=1e-12)
    np.testing.assert_allclose(back, weights[0] @ wide, rtol=1e-12)


def test_max_steps_chunks_and_statuses():
    with jax.enable_x64(True):
        problem, matrix, y, c = _args("logistic", "l2")
        task = Task(problem.loss, problem.penalty, matrix, y, c)
        solver = NewtonCG()
        state = solver.init(task, jnp.zeros(D), jnp.zeros(N))
        gaps = [float(state.best.gap)]
        for steps in (1, 2, 20):
            state = jax.jit(solver.run)(task, state, 1e-12, steps)
            gaps.append(float(state.best.gap))
        assert gaps == sorted(gaps, reverse=True)
        chunked = solver.finish(task, state, 1e-12)
    whole, _ = _fit(solver, "logistic", "l2")
    np.testing.assert_allclose(chunked.w, whole.w, atol=1e-9)
    short, _ = _fit(solver, "logistic", "l2", max_steps=1)
    assert int(short.status) == Status.MAX_STEPS and int(short.n_steps) == 1
    impossible, _ = _fit(solver, "logistic", "l2", tol=0.0)
    assert int(impossible.status) in (Status.STALLED, Status.CONVERGED)
    with jax.enable_x64(True):
        broken = _solve(solver, problem, matrix, y * jnp.nan, c, jnp.zeros(D), jnp.zeros(N), 1e-12, 500)
    assert int(broken.status) == Status.NONFINITE


def test_vmap_over_the_penalty():
    lams = np.array([0.01, 0.1, 1.0])
    with jax.enable_x64(True):
        _, matrix, y, c = _args("logistic", "l2")

        def solve(lam):
            problem = Problem(losses.logistic(), penalties.L2(lam))
            return NewtonCG().solve(problem, matrix, y, c, jnp.zeros(D), jnp.zeros(N), 1e-12, 100)

        batch = jax.jit(jax.vmap(solve))(jnp.asarray(lams))
        assert np.all(np.asarray(batch.status) == Status.CONVERGED)
        np.testing.assert_allclose(batch.w[1], jax.jit(solve)(lams[1]).w, atol=1e-10)


@pytest.mark.parametrize(
    ("solver", "loss", "penalty"),
    [
        (NewtonCG(), losses.SmoothedHinge, penalties.L2),
        (DualNewton(), losses.SmoothedHinge, penalties.L2),
        (ProximalGradient(), losses.Huber, lambda lam: penalties.ElasticNet(lam, 0.05)),
        (DualCoordinate(), None, penalties.L2),
    ],
    ids=["newton", "dual_newton", "proximal", "dual"],
)
def test_implicit_derivatives(solver, loss, penalty):
    """A combination of all outputs, differentiated outside the 64-bit scope in the parameters and in the weights."""
    with jax.enable_x64(True):
        y = jnp.asarray(REALS if loss is losses.Huber else LABELS)
        parameters = jnp.asarray([0.5, 0.07]), jnp.asarray(WEIGHTS), jnp.asarray(X)
        u, r = jnp.cos(jnp.arange(D, dtype=jnp.float64)), jnp.sin(jnp.arange(N, dtype=jnp.float64)) / N

    @jax.jit
    def value(numbers, c, data):
        with jax.enable_x64(True):
            own = losses.hinge() if loss is None else loss(numbers[0])
            problem = Problem(own, penalty(numbers[1]))
            out = solver.solve(problem, as_matrix(data), y, c, jnp.zeros(D), jnp.zeros(N), 1e-22, 300)
            return jnp.sum(u * out.w) + jnp.sum(r * out.alpha) + out.primal

    grads = jax.jit(jax.grad(value, argnums=(0, 1, 2)))(*parameters)
    rng = np.random.default_rng(5)
    for k, grad in enumerate(grads):
        way = rng.normal(size=grad.shape) * (np.asarray(grad) != 0)
        moved = []
        for h in (1e-6, -1e-6):
            with jax.enable_x64(True):
                at = [p + h * jnp.asarray(way) if i == k else p for i, p in enumerate(parameters)]
            moved.append(float(value(*at)))
        slope = (moved[0] - moved[1]) / 2e-6
        np.testing.assert_allclose(np.sum(np.asarray(grad) * way), slope, rtol=2e-5)


def test_checks_name_the_missing_property():
    hinge, l1 = losses.hinge(), penalties.l1(0.1)
    for solver, problem, words in (
        (NewtonCG(), Problem(hinge, penalties.l2(0.1)), "differentiable loss, and hinge"),
        (NewtonCG(), Problem(losses.logistic(), l1), "smooth penalty, and l1"),
        (NewtonCG(), Problem(losses.logistic(), penalties.lq(0.1, 3.0)), "strongly convex penalty, and lq"),
        (DualNewton(), Problem(hinge, penalties.l2(0.1)), "differentiable loss, and hinge"),
        (DualNewton(), Problem(losses.logistic(), penalties.lq(0.1, 3.0)), "L2 penalty, and lq"),
        (ProximalGradient(), Problem(hinge, l1), "differentiable loss, and hinge"),
        (DualCoordinate(), Problem(hinge, l1), "strongly convex penalty, and l1"),
    ):
        with pytest.raises(ValueError, match=words):
            solver.check(problem)


def test_default_solver():
    for loss, penalty, kind in (
        ("logistic", "l2", NewtonCG),
        ("squared", "own", NewtonCG),
        ("logistic", "l1", ProximalGradient),
        ("squared_hinge", "elastic_net", ProximalGradient),
        ("hinge", "elastic_net", DualCoordinate),
    ):
        problem = Problem(LOSSES[loss](), PENALTIES[penalty]())
        solver = default_solver(problem, 63_000, 47_000, True)
        assert isinstance(solver, kind)
        solver.check(problem)


def test_default_solver_for_few_rows_and_many_columns():
    ridge = Problem(losses.logistic(), penalties.l2(0.1))
    for n, d, sparse, kind in (
        (38, 3051, False, DualNewton),
        (256, 2048, False, DualNewton),
        (257, 4000, False, NewtonCG),
        (38, 300, False, NewtonCG),
        (38, 3051, True, NewtonCG),
    ):
        assert isinstance(default_solver(ridge, n, d, sparse), kind)
    assert isinstance(default_solver(Problem(losses.logistic(), PENALTIES["own"]()), 38, 3051, False), NewtonCG)


def test_dual_newton_on_golub(shared):
    """The Gram matrix is formed in float64, also from float32 data; rows may repeat."""
    with np.load(shared / "data" / "r" / "golub.npz") as file:
        genes, classes = file["X"], file["y"]
    data = np.concatenate([genes, genes[:3]])
    y = np.where(np.concatenate([classes, classes[:3]]) == classes[0], 1.0, -1.0)
    n, d = data.shape
    for dtype, lam in ((np.float64, 1e-3), (np.float32, np.geomspace(1e-3, 1.0, d))):
        with jax.enable_x64(True):
            matrix, problem = as_matrix(data.astype(dtype)), Problem(losses.smoothed_hinge(0.5), penalties.l2(lam))
            args = matrix, jnp.asarray(y), jnp.full(n, 1.0 / n), jnp.zeros(d), jnp.zeros(n), 1e-12, 100
            ours, other = (_solve(solver, problem, *args) for solver in (DualNewton(), NewtonCG()))
            assert int(ours.status) == Status.CONVERGED
            np.testing.assert_allclose(ours.w, other.w, atol=1e-7)


def test_dual_newton_starts_from_either_point():
    solution, args = _fit(DualNewton(), "logistic", "l2")
    with jax.enable_x64(True):
        for w0, alpha0 in ((solution.w, jnp.zeros(N)), (jnp.zeros(D), solution.alpha)):
            assert int(_solve(DualNewton(), *args, w0, alpha0, 1e-10, 500).n_steps) == 0


def test_gram_of_large_sparse_data(monkeypatch):
    from jaxbounds.solvers import gram, linear

    with jax.enable_x64(True):
        scale, matrix = jnp.linspace(1.0, 2.0, D), _matrix("sparse")
        small = gram.gram(matrix, scale)
        monkeypatch.setattr(linear, "DENSE_ENTRIES", 1)
        np.testing.assert_allclose(gram.gram(matrix, scale), small, atol=1e-13)
        np.testing.assert_allclose(small, (X * np.asarray(scale)) @ X.T, atol=1e-13)


@pytest.mark.slow
def test_newton_factors_where_conjugate_gradients_are_slow(monkeypatch):
    """The same optimum whether the Hessian is factored from the start, late or never; blocks of rows overlap."""
    from jaxbounds.solvers import common, linear, newton

    rng = np.random.default_rng(2)
    tall = rng.normal(size=(400, 60)) @ (rng.normal(size=(60, 60)) * np.geomspace(1e-2, 3.0, 60))
    y = jnp.asarray(np.where(tall @ rng.normal(size=60) > 0, 1.0, -1.0), jnp.float32)
    monkeypatch.setattr(linear, "_BLOCK_ENTRIES", 60 * 150)
    for transposed in (False, True):
        data = tall.T[:, :300] if transposed else tall
        n, d = data.shape
        found = []
        for patience in (0, 8, None):
            monkeypatch.setattr(newton, "break_even", lambda matrix, patience=patience: patience)
            monkeypatch.setattr(common, "is_direct", lambda matrix: False)
            with jax.enable_x64(True):
                solve = jax.jit(
                    NewtonCG(max_cg=2000).solve, compiler_options={"xla_backend_optimization_level": 0}
                )  # its own cache
                problem, c = Problem(losses.logistic(), penalties.l2(1e-3)), jnp.full(n, 1.0 / n)
                start = jnp.zeros(d), jnp.zeros(n)
                found.append(solve(problem, as_matrix(data), y[:n].astype(jnp.float64), c, *start, 1e-12, 500))
            assert int(found[-1].status) == Status.CONVERGED
            np.testing.assert_allclose(found[-1].w, found[0].w, atol=1e-6)
