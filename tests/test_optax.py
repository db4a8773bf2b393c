"""Optax transformations as solvers: optimality, statuses, tracing and compilations."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import oracle
import pytest
import scipy.sparse as sp

import jaxbounds as jb

pytestmark = pytest.mark.slow  # compiles many solvers

N, D = 40, 6
RNG = np.random.default_rng(1)
X = np.where(RNG.random((N, D)) < 0.7, RNG.normal(size=(N, D)), 0.0)
Y = np.where(X @ RNG.normal(size=D) + 0.5 * RNG.normal(size=N) > 0, 1.0, -1.0)
LOGISTIC = jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.05))
BEST = oracle.solve(oracle.Problem("logistic", X, Y, np.full(N, 1 / N), lam=0.05))
LBFGS = jb.solvers.Optax(optax.lbfgs())
SGD = jb.solvers.Optax(optax.sgd(0.5, momentum=0.9))

TRANSFORMATIONS = {
    "lbfgs": lambda: optax.lbfgs(),
    "backtracking": lambda: optax.chain(optax.sgd(1.0), optax.scale_by_backtracking_linesearch(15, store_grad=True)),
    "scaled_after_search": lambda: optax.chain(optax.lbfgs(), optax.scale(0.7)),
    "momentum": lambda: optax.sgd(0.5, momentum=0.9, nesterov=True),
    "schedule": lambda: optax.chain(
        optax.clip_by_global_norm(1.0), optax.adam(optax.warmup_cosine_decay_schedule(0.0, 0.1, 30, 2000))
    ),
    "polyak": lambda: optax.polyak_sgd(1.0),
    "injected": lambda: optax.inject_hyperparams(optax.sgd)(learning_rate=0.5),
    "contrib": lambda: optax.contrib.dog(),
}


@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_optimum(name):
    model = jb.fit(LOGISTIC, X, Y, tol=1e-9, solver=jb.solvers.Optax(TRANSFORMATIONS[name]()))
    assert int(model.status) == jb.Status.CONVERGED
    assert 0 <= float(model.gap) <= 1e-9 * float(model.primal)
    np.testing.assert_allclose(np.asarray(model.w), BEST.w, atol=1e-4)
    np.testing.assert_allclose(float(model.primal), BEST.primal, rtol=1e-9)


@pytest.mark.parametrize("loss", ["smoothed_hinge", "squared_hinge", "squared", "huber"])
def test_losses_and_smooth_penalties(loss):
    """Also penalties that are not quadratic, which Newton-CG may refuse."""
    make = getattr(jb.losses, loss)
    loss = make(0.5) if loss in ("smoothed_hinge", "huber") else make()
    for penalty in (jb.penalties.l2(np.geomspace(0.02, 1.0, D)), jb.penalties.lq(0.1, 3.0)):
        model = jb.fit(jb.Problem(loss, penalty), X, Y, tol=1e-10, solver=LBFGS)
        other = jb.fit(jb.Problem(loss, penalty), X, Y, tol=1e-10)
        assert int(model.status) == jb.Status.CONVERGED
        np.testing.assert_allclose(float(model.primal), float(other.primal), rtol=1e-9)


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_data(kind, dtype, x64):
    data = X.astype(dtype)
    with jax.enable_x64(x64):
        model = jb.fit(LOGISTIC, data if kind == "dense" else sp.csr_array(data), Y, solver=LBFGS)
    assert int(model.status) == jb.Status.CONVERGED
    assert model.w.dtype == dtype and model.alpha.dtype == np.float64
    np.testing.assert_allclose(np.asarray(model.w), BEST.w, atol=1e-3)


def test_divergence_keeps_the_best_point():
    steep = jb.solvers.Optax(optax.sgd(1e300))
    with pytest.warns(jb.FitWarning, match="overflowed"):
        model = jb.fit(LOGISTIC, X, Y, solver=steep)
    assert int(model.status) == jb.Status.NONFINITE
    assert np.all(np.isfinite(np.asarray(model.w))) and np.isfinite(float(model.gap))


def test_stopping():
    still = jb.solvers.Optax(optax.set_to_zero())
    with pytest.warns(jb.FitWarning):
        model = jb.fit(LOGISTIC, X, Y, solver=still)
    assert int(model.status) == jb.Status.STALLED and int(model.n_steps) == 1
    with pytest.warns(jb.FitWarning, match="stopped after 2 steps"):
        model = jb.fit(LOGISTIC, X, Y, tol=1e-12, solver=jb.solvers.Optax(optax.sgd(0.01), updates=5), max_steps=2)
    assert int(model.status) == jb.Status.MAX_STEPS
    again = jb.fit(LOGISTIC, X, Y, tol=1e-8, warm_start=jb.fit(LOGISTIC, X, Y, tol=1e-10), solver=LBFGS)
    assert int(again.n_steps) == 0


def test_callback():
    seen = []
    solver = jb.solvers.Optax(optax.sgd(0.5, momentum=0.9))
    model = jb.fit(LOGISTIC, X, Y, tol=1e-9, solver=solver, callback=seen.append)
    assert int(model.status) == jb.Status.CONVERGED and int(model.n_steps) == seen[-1]["step"] > 1


def test_on_tracers():
    """fit inside jit, vmap and grad of the user's own, in float32 outside."""
    data, y = jnp.asarray(X, jnp.float32), jnp.asarray(Y, jnp.float32)

    def train(lam, solver=LBFGS):
        return jb.fit(jb.Problem(jb.losses.logistic(), jb.penalties.l2(lam)), data, y, tol=1e-10, solver=solver)

    lams = jnp.asarray([0.02, 0.05, 0.2], jnp.float32)
    for solver in (LBFGS, SGD):
        batch = jax.jit(jax.vmap(lambda lam, solver=solver: train(lam, solver)))(lams)
        assert np.all(np.asarray(batch.status) == jb.Status.CONVERGED)
        np.testing.assert_allclose(np.asarray(batch.w)[1], BEST.w, atol=1e-4)

    slope = jax.jit(jax.grad(lambda lam: jnp.sum(train(lam).w ** 2)))(lams[1])
    newton = jax.jit(jax.grad(lambda lam: jnp.sum(train(lam, jb.solvers.NewtonCG()).w ** 2)))(lams[1])
    np.testing.assert_allclose(float(slope), float(newton), rtol=1e-4)


def test_one_trace_for_a_transformation():
    """Numbers, and new config objects around the same transformation, do not trace again."""
    traces = []
    inner = optax.sgd(0.5)

    def update(updates, state, params=None):
        traces.append(1)
        return inner.update(updates, state, params)

    counted = optax.GradientTransformation(inner.init, update)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jb.FitWarning)
        jb.fit(LOGISTIC, X, Y, solver=jb.solvers.Optax(counted))
        first = len(traces)
        for lam in (0.1, 0.3):
            problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(lam))
            jb.fit(problem, X, Y, tol=1e-6, solver=jb.solvers.Optax(counted), max_steps=500)
    assert first > 0 and len(traces) == first


def test_refusals():
    for problem, words in (
        (jb.Problem(jb.losses.hinge(), jb.penalties.l2(0.1)), "differentiable loss, and hinge"),
        (jb.Problem(jb.losses.logistic(), jb.penalties.l1(0.1)), "smooth penalty, and l1"),
    ):
        with pytest.raises(ValueError, match=words):
            jb.fit(problem, X, Y, solver=LBFGS)
    with pytest.raises(TypeError, match="needs an optax.GradientTransformation"):
        jb.fit(LOGISTIC, X, Y, solver=jb.solvers.Optax(optax.adam))
    with pytest.raises(ValueError, match="updates must be a whole number of at least 1, got 0"):
        jb.fit(LOGISTIC, X, Y, solver=jb.solvers.Optax(optax.adam(0.1), updates=0))
