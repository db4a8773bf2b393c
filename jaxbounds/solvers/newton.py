"""Line-search Newton-CG on the primal, for a differentiable loss and a smooth strongly convex penalty."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxbounds.pytree import pytree, static
from jaxbounds.solvers.common import (
    Progress,
    Smooth,
    Solution,
    Task,
    column_scale,
    line_search,
    newton_direction,
    run,
)
from jaxbounds.solvers.implicit import finish


@pytree
class _State:
    best: Progress
    w: jax.Array
    s: jax.Array
    alpha: jax.Array
    v: jax.Array
    scale: jax.Array


def forcing(progress: Progress, tol) -> jax.Array:
    """How accurately to solve for a Newton step: the square root of the relative gap, but no further than tol asks."""
    relative = jnp.maximum(progress.relative_gap(), 1e-300)
    return jnp.clip(jnp.maximum(jnp.sqrt(relative), 0.3 * jnp.sqrt(tol / relative)), 1e-10, 0.1)


def newton_step(
    task: Task, smooth: Smooth, w, s, v, scale, rtol, primal, max_cg, mask=None, damping: Any = 0.0
):
    """One Newton step with line search on the masked coordinates: (w, s, whether it moved, CG steps)."""
    q = task.q(s)
    mask = jnp.ones(w.shape, bool) if mask is None else mask
    rhs = v - task.penalty.subgradient(w)[0]
    p, ds, steps = newton_direction(task, smooth, w, q, rhs, mask, scale, rtol, damping, max_cg)
    t = line_search(task, smooth, w, q, p, task.loss.orientation(task.y) * ds, primal)
    return w + t * p, s + t * ds, t > 0, steps


@pytree
class NewtonCG:
    """Newton's method with conjugate gradients and a line search on scores; needs no step size.

    Each step solves (psi'' + X^T diag(c f'') X) p = -gradient to a tolerance that tightens with the gap, then walks to
    a near minimum along p. Piecewise quadratic losses are treated as semismooth. Small Hessians (fewer than 513 rows
    or columns) are factored.

    Args:
        max_cg: most conjugate gradient steps for one direction.

    Example:
        >>> from jaxbounds.solvers import NewtonCG
        >>> NewtonCG().max_cg
        250
    """

    max_cg: int = static(default=250)

    def check(self, problem: Any) -> None:
        """Raise unless the loss is differentiable and the penalty smooth and strongly convex."""
        loss, penalty = problem.loss, problem.penalty
        if loss.smoothness is None:
            raise ValueError(
                f"NewtonCG needs a differentiable loss, and {loss.name} declares no smoothness; use DualCoordinate, or "
                "a smoothed loss"
            )
        if not penalty.smooth or penalty.strong_convexity is None:
            missing = "smooth" if not penalty.smooth else "strongly convex"
            raise ValueError(f"NewtonCG needs a {missing} penalty, and {penalty.name} is not; use ProximalGradient")

    def init(self, task: Task, w0, alpha0) -> _State:
        """The state at w0 (alpha0 is not used: the dual point follows from w)."""
        s = task.matrix.matvec(w0)
        alpha, v, gap, primal = self._evaluate(task, w0, s)
        best = Progress.start(w0, alpha, task.q(s), gap, primal)
        return _State(best, w0, s, alpha, v, column_scale(task.matrix, task.c))

    def step(self, task: Task, state: _State, tol) -> _State:
        """One Newton step."""
        best = state.best
        rtol = forcing(best, tol)
        w, s, moved, _ = newton_step(
            task, task.loss, state.w, state.s, state.v, state.scale, rtol, best.primal, self.max_cg
        )
        alpha, v, gap, primal = self._evaluate(task, w, s)
        best = best.update(w, alpha, task.q(s), gap, primal, moved)
        return _State(best, w, s, alpha, v, state.scale)

    def _evaluate(self, task: Task, w, s):
        q = task.q(s)
        alpha = task.loss.dual(q, task.y)
        v = task.v(alpha)
        return alpha, v, task.gap(w, q, alpha, v, q), task.primal(w, q)

    def run(self, task: Task, state: _State, tol, max_steps) -> _State:
        """Step until done."""
        return run(self, task, state, tol, max_steps)

    def finish(self, task: Task, state: _State, tol) -> Solution:
        """The result of a state."""
        return finish(task, state.best, tol)

    def solve(self, problem: Any, matrix, y, c, w0, alpha0, tol, max_steps) -> Solution:
        """Minimise from w0; traceable, and differentiable in everything but the start."""
        task = Task(problem.loss, problem.penalty, matrix, y, c)
        frozen = lax.stop_gradient(task)
        state = self.run(frozen, self.init(frozen, lax.stop_gradient(w0), alpha0), tol, max_steps)
        return self.finish(task, state, tol)
