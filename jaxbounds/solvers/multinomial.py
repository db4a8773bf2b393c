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
class Objective:
    """sum_i c_i l(W x_i, y_i) + sum_kj lam_j/2 W_kj^2."""

    loss: Softmax
    matrix: Matrix
    y: Array
    c: Array
    lam: Array  # (1, d)

    def scores(self, w):
        """X W^T: (n, K)."""
        return jax.vmap(self.matrix.matvec, 0, 1)(w)

    def sums(self, t):
        """t^T X: (K, d)."""
        return jax.vmap(self.matrix.rmatvec, 1, 0)(t)

    def value(self, w, s):
        """The objective at w with scores s."""
        return jnp.sum(self.c * self.loss.value(s, self.y)) + jnp.sum(self.lam * w * w) / 2

    def gradient(self, w, s):
        """lam W - sum_i c_i t_i x_i."""
        return self.lam * w - self.sums(self.c[:, None] * self.loss.dual(s, self.y))

    def curvature(self, s):
        """p -> (Hessian times p, scores of p)."""
        b = self.loss.probabilities(s)

        def times(p):
            ds = self.scores(p)
            bent = b * (ds - jnp.sum(b * ds, axis=1)[:, None])
            return self.lam * p + self.sums(self.c[:, None] * bent), ds

        return times

    def scale(self):
        """An upper bound of the Hessian's diagonal, for preconditioning."""
        return self.lam + 0.25 * column_scale(self.matrix, self.c, False)[None, :]


@pytree
class State:
    """An iterate, and the best one so far; gap = ||g||^2/2 in the metric 1/lam, with t = onehot - softmax(W x)."""

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

    def reached(self, tol):
        """Whether the best gap is small enough."""
        return self.best_gap <= tol * jnp.maximum(jnp.abs(self.best_primal), TINY)


def newton_cg(loss: Softmax, matrix: Matrix, y, c, lam, w0, tol, max_steps):
    """The optimum from w0: (W, status, steps); differentiable in everything but the start (implicit functions)."""
    problem = Objective(loss, matrix, y, c, lam[None, :])
    frozen, start, tol, max_steps = lax.stop_gradient((problem, w0, tol, max_steps))
    w, status, steps = minimise(frozen, start, tol, max_steps)

    g = problem.gradient(w, problem.scores(w))  # of fixed coefficients: what the data and lam do to it
    times, scale = frozen.curvature(frozen.scores(w)), frozen.scale()
    step = lax.custom_linear_solve(
        lambda p: times(p)[0], g - lax.stop_gradient(g),
        lambda _, b: conjugate_gradients(times, b, lambda r: r / scale, 1e-10, _CG_STEPS)[0], symmetric=True,
    )  # fmt: skip
    return w - step, status, steps


def minimise(problem: Objective, w0, tol, max_steps):
    """Damped Newton steps, each by conjugate gradients."""
    scale = problem.scale()

    def measure(w, s):
        g = problem.gradient(w, s)
        return g, problem.value(w, s), jnp.sum(g * g / problem.lam) / 2

    def start(w):
        s, zero = problem.scores(w), jnp.zeros((), jnp.int32)
        g, primal, gap = measure(w, s)
        return State(w, s, g, primal, gap, w, gap, primal, zero, zero)

    def step(state: State) -> State:
        rtol = jnp.clip(jnp.sqrt(state.gap / jnp.maximum(jnp.abs(state.primal), TINY)), 1e-10, 0.1)
        times = problem.curvature(state.s)
        move, ds, *_ = conjugate_gradients(times, -state.g, lambda r: r / scale, rtol, _CG_STEPS)
        slope, noise = jnp.sum(state.g * move), 1e-14 * jnp.abs(state.primal)

        def too_far(t):
            value = problem.value(state.w + t * move, state.s + t * ds)
            return ~(value <= state.primal + 1e-4 * t * slope + noise) & (t > 1e-12)

        t = lax.while_loop(too_far, lambda t: t / 2, jnp.ones((), jnp.float64))
        w = state.w + t * move
        s = problem.scores(w)
        g, primal, gap = measure(w, s)
        better = gap < state.best_gap
        waited = jnp.where(gap < 0.9 * state.best_gap, 0, state.waited + 1).astype(jnp.int32)
        best = (jnp.where(better, w, state.best_w), jnp.where(better, gap, state.best_gap),
                jnp.where(better, primal, state.best_primal))  # fmt: skip
        return State(w, s, g, primal, gap, *best, state.steps + 1, waited)

    def going(state: State):
        unfinished = ~state.reached(tol) & (state.steps < max_steps)
        return unfinished & (state.waited < _PATIENCE) & jnp.isfinite(state.gap)

    state = lax.while_loop(going, step, start(w0))
    stopped = jnp.where(state.waited >= _PATIENCE, int(Status.STALLED), int(Status.MAX_STEPS))
    stopped = jnp.where(jnp.isfinite(state.gap), stopped, int(Status.NONFINITE))
    status = jnp.where(state.reached(tol), int(Status.CONVERGED), stopped).astype(jnp.int32)
    return state.best_w, status, state.steps
