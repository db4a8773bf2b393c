"""Losses of the user: a kink where the dual is no derivative, and functions that hold tracers."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

import jaxbounds as jb
from jaxbounds.logistic import Logistic


def kinked(m):
    return jnp.maximum(1.0 - m, 0.0)


def kinked_slope(m):
    return jnp.where(m < 1.0, -1.0, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("method", [jb.Theorem1(), jb.Cached(), jb.Partial()], ids=lambda m: type(m).__name__)
def test_kinked_user_loss_is_sound(method):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 4))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=30) > 0, 1.0, -1.0)
    loss = jb.losses.from_margin(kinked, derivative=kinked_slope, domain=(0.0, 1.0))
    model = jb.fit(jb.Problem(loss, jb.penalties.l2(0.1)), X, y, tol=1e-8)
    built_in = jb.fit(jb.Problem(jb.losses.hinge(), jb.penalties.l2(0.1)), X, y, tol=1e-8)
    np.testing.assert_allclose(np.asarray(model.w), np.asarray(built_in.w), atol=1e-3)
    for change in (jb.set_targets([3], [-y[3]]), jb.remove_rows([5]), jb.set_rows([1], X[:1] + 1.0)):
        new_X, new_y, _ = change.apply(X, y)
        truth = oracle.solve(oracle.Problem("hinge", new_X, new_y, np.full(len(new_y), 1 / len(new_y)), lam=0.1))
        bounds = jb.bound(model, change, method)
        w = bounds.w()
        assert np.all(w.lower <= truth.w + 1e-6) and np.all(truth.w <= w.upper + 1e-6)
        reference = jb.bound(built_in, change, method)
        assert float(np.asarray(bounds.radius)) <= 1.2 * float(np.asarray(reference.radius)) + 1e-3


@pytest.mark.slow
def test_functions_that_hold_tracers():
    """A temperature that is differentiated and vmapped, held by the user's own closure and not by `params`."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 3))
    y = np.sign(X[:, 0] + 0.3 * rng.normal(size=20))

    def ask(temperature):
        def phi(m):
            return temperature * jnp.logaddexp(0.0, -m / temperature)

        loss = jb.losses.from_margin(phi, smoothness=1.0, domain=(0.0, 1.0))
        model = jb.fit(jb.Problem(loss, jb.penalties.l2(0.1)), X, y, tol=1e-12)
        change = jb.set_elements([0], [0], X[:1, 0] + 0.1)
        return jnp.stack([model.w[0], jb.bound(model, change).scores(X[:1]).upper[0]])

    with jax.enable_x64(True):
        at = np.array([0.5, 0.7 - 1e-4, 0.7 + 1e-4])
        each = jax.jit(jax.vmap(ask))(jnp.asarray(at))
        np.testing.assert_allclose(each[:2], [ask(temperature) for temperature in at[:2]], rtol=1e-6)
        slope = (each[2] - each[1]) / 2e-4
        np.testing.assert_allclose(jax.jit(jax.jacfwd(ask))(0.7), slope, rtol=1e-4)
        np.testing.assert_allclose(jax.grad(lambda t: ask(t)[0])(0.7), slope[0], rtol=1e-4)


def tilted(s, y):
    return 0.75 * jnp.logaddexp(0.0, -4.0 * (s - y)) + (s - y)


def test_newton_steps_that_go_in_circles_are_bisected():
    """The dual step of this loss once ended 5.75 away from its root."""
    jb.testing.check_loss(jb.losses.from_score(tilted, smoothness=3.0))


BODIES = {
    "NumPy": lambda m: np.log1p(np.exp(-m)), "math": lambda m: math.exp(-m), "float": lambda m: float(m) ** 2,
    "if": lambda m: 1.0 - m if m < 1.0 else 0.0 * m, "max": lambda m: max(0.0, 1.0 - m),
    "index": lambda m: jnp.ones(3)[range(3)[m.astype(int)]],
}  # fmt: skip
MADE = {
    "phi": jb.losses.from_margin,
    "ell": lambda fn: jb.losses.from_score(lambda s, y: fn(s - y)),
    "derivative": lambda fn: jb.losses.from_margin(kinked, derivative=fn),
    "second": lambda fn: jb.penalties.from_function(lambda w: w**2, second=fn),
    "conjugate": lambda fn: jb.losses.from_margin(kinked, conjugate=fn),
    "curvature_range": lambda fn: jb.losses.from_margin(kinked, curvature_range=lambda lo, hi: (0, fn(hi))),
    "psi_j": jb.penalties.from_function,
}


@pytest.mark.parametrize("name", MADE)
def test_functions_that_jax_cannot_trace_are_refused_by_name(name):
    for body in BODIES.values():
        with pytest.raises(TypeError, match=f"^{name} must be written with jax.numpy.* jnp.where"):
            MADE[name](body)
    MADE[name](jnp.exp)  # nothing else is refused


def test_solvers_and_losses_that_jax_cannot_trace_are_refused_by_name():
    optax = pytest.importorskip("optax")
    problem, X, y = jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1)), np.eye(4), np.array([1, -1, 1, -1])
    numpy_only = optax.GradientTransformation(lambda w: (), lambda grad, state, w=None: (-0.1 * np.sign(grad), state))
    with pytest.raises(TypeError, match="^solver: what Optax calls must be written with jax.numpy"):
        jb.fit(problem, X, y, solver=jb.solvers.Optax(numpy_only))

    class Own(Logistic):
        def value(self, q, y):
            return np.asarray(q) ** 2

    assert Own().value(2.0, 1.0) == 4.0  # NumPy serves where nothing is traced
    with pytest.raises(TypeError, match="^Own.value must be written with jax.numpy"):
        jax.jit(lambda q: Own().value(q, q))(2.0)
