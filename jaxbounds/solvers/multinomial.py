"""Newton-CG for softmax with an L2 penalty: coefficients (K, d), stopped on the duality gap."""

import jax
import jax.numpy as jnp
from jax import lax

from jaxbounds.array import Array
from jaxbounds.matrix import Matrix
from jaxbounds.pytree import pytree
from jaxbounds.softmax import Softmax
from jaxbounds.solvers.common import TINY
from jaxbounds.solvers.linear import column_scale, conjugate_gradients
from jaxbounds.status import Status

_CG_STEPS = 500
_PATIENCE = 4  # steps without a smaller gap


@pytree
class State:
    """An iterate, and the best one so far."""

    w: Array  # (K, d)
    s: Array  # (n, K) scores
    g: Array  # (K, d) gradient
    primal: Array
    gap: Array
    best_w: Array
    best_gap: Array
    best_primal: Array
    steps: Array
    waited: Array


def newton_cg(loss: Softmax, matrix: Matrix, y, c, lam, w0, tol, max_steps):
    """Minimise sum_i c_i l(W x_i, y_i) + sum_kj lam_j/2 W_kj^2 from w0: (W, status, steps); traceable.

    The gap of (W, t = onehot - softmax(W x)) is ||g||^2/2 in the metric 1/lam, as all Fenchel-Young terms vanish.
    """
    ridge = lam[None, :]
    scores, sums = jax.vmap(matrix.matvec, 0, 1), jax.vmap(matrix.rmatvec, 1, 0)
    scale = ridge + 0.25 * column_scale(matrix, c, False)[None, :]

    def measure(w, s):
        primal = jnp.sum(c * loss.value(s, y)) + jnp.sum(ridge * w * w) / 2
        g = ridge * w - sums(c[:, None] * loss.dual(s, y))
        return g, primal, jnp.sum(g * g / ridge) / 2

    def objective(w, s):
        return jnp.sum(c * loss.value(s, y)) + jnp.sum(ridge * w * w) / 2

    def start(w):
        s = scores(w)
        g, primal, gap = measure(w, s)
        zero = jnp.zeros((), jnp.int32)
        return State(w, s, g, primal, gap, w, gap, primal, zero, zero)

    def step(state: State) -> State:
        p = loss.probabilities(state.s)

        def curvature(direction):
            ds = scores(direction)
            bent = p * (ds - jnp.sum(p * ds, axis=1)[:, None])
            return ridge * direction + sums(c[:, None] * bent), ds

        rtol = jnp.clip(jnp.sqrt(state.gap / jnp.maximum(jnp.abs(state.primal), TINY)), 1e-10, 0.1)
        move, ds, _ = conjugate_gradients(curvature, -state.g, lambda r: r / scale, rtol, _CG_STEPS)
        slope, noise = jnp.sum(state.g * move), 1e-14 * jnp.abs(state.primal)

        def too_far(t):
            value = objective(state.w + t * move, state.s + t * ds)
            return ~(value <= state.primal + 1e-4 * t * slope + noise) & (t > 1e-12)

        t = lax.while_loop(too_far, lambda t: t / 2, jnp.ones((), jnp.float64))
        w = state.w + t * move
        s = scores(w)
        g, primal, gap = measure(w, s)
        better = gap < state.best_gap
        best = jnp.where(better, w, state.best_w)
        waited = jnp.where(gap < 0.9 * state.best_gap, 0, state.waited + 1).astype(jnp.int32)
        gaps = jnp.where(better, gap, state.best_gap), jnp.where(better, primal, state.best_primal)
        return State(w, s, g, primal, gap, best, *gaps, state.steps + 1, waited)

    def reached(state: State):
        return state.best_gap <= tol * jnp.maximum(jnp.abs(state.best_primal), TINY)

    def going(state: State):
        return ~reached(state) & (state.steps < max_steps) & (state.waited < _PATIENCE) & jnp.isfinite(state.gap)

    state = lax.while_loop(going, step, start(w0))
    stopped = jnp.where(state.waited >= _PATIENCE, int(Status.STALLED), int(Status.MAX_STEPS))
    stopped = jnp.where(jnp.isfinite(state.gap), stopped, int(Status.NONFINITE))
    status = jnp.where(reached(state), int(Status.CONVERGED), stopped).astype(jnp.int32)
    return state.best_w, status, state.steps
