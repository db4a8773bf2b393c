"""Line-search Newton-CG on the primal, for a differentiable loss and a smooth strongly convex penalty."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxbounds.arguments import as_whole
from jaxbounds.pytree import pytree, static
from jaxbounds.solvers.base import Solver, require_smooth
from jaxbounds.solvers.common import (
    TINY,
    Progress,
    Smooth,
    Solution,
    Task,
    line_search,
    newton_direction,
    primal_point,
    start_scores,
)
from jaxbounds.solvers.implicit import finish
from jaxbounds.solvers.linear import break_even, column_scale


@pytree
class _State:
    best: Progress
    w: jax.Array
    s: jax.Array
    v: jax.Array
    scale: jax.Array
    patience: Any  # CG steps before the Hessian is factored: 0 once they did not do; None: the size decides


def forcing(progress: Progress, tol) -> jax.Array:
    """How accurately to solve for a Newton step: the square root of the relative gap, but no further than tol asks."""
    relative = jnp.maximum(progress.relative_gap(), 1e-300)
    return jnp.clip(jnp.maximum(jnp.sqrt(relative), 0.3 * jnp.sqrt(tol / relative)), 1e-10, 0.1)


def newton_step(
    task: Task, smooth: Smooth, w, s, v, scale, rtol, primal, max_cg, mask=None, damping: Any = 0.0, patience=None
):
    """One Newton step with line search on the masked coordinates: (w, s, whether it moved, CG steps)."""
    q = task.q(s)
    mask = jnp.ones(w.shape, bool) if mask is None else mask
    rhs = v - task.penalty.subgradient(w)[0]
    p, ds, steps = newton_direction(task, smooth, w, q, rhs, mask, scale, rtol, damping, max_cg, patience)
    t = line_search(task, smooth, w, s, p, ds, primal)
    return w + t * p, task.balanced(s + t * ds), t > 0, steps


@pytree
class NewtonCG(Solver):
    """Newton's method with conjugate gradients and a line search on scores; needs no step size.

    Each step solves (psi'' + X^T diag(c f'') X) p = -gradient to a tolerance that tightens with the gap, then walks to
    a near minimum along p. Piecewise quadratic losses are treated as semismooth. Small Hessians are
    factored (Cholesky); those of side min(n, d) up to 2048 once a direction takes more than min(n, d) / 4 CG steps.
    Where columns are few, the Hessian of some of the rows is the preconditioner.

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
        as_whole(self.max_cg, "max_cg", 1)
        loss, penalty = problem.loss, problem.penalty
        require_smooth(self, loss)
        if not penalty.smooth or penalty.strong_convexity is None:
            missing = "smooth" if not penalty.smooth else "strongly convex"
            raise ValueError(f"NewtonCG needs a {missing} penalty, and {penalty.name} is not; use ProximalGradient")

    def init(self, task: Task, w0, alpha0) -> _State:
        """The state at w0 (alpha0 is not used: the dual point follows from w)."""
        s = start_scores(task, w0)
        point, v = primal_point(task, w0, s)
        scale, patience = column_scale(task.matrix, task.c, task.intercept), break_even(task.matrix)
        patience = None if patience is None else jnp.full((), min(patience, self.max_cg), jnp.int32)
        return _State(Progress.start(*point), w0, s, v, scale, patience)

    def step(self, task: Task, state: _State, tol) -> _State:
        """One Newton step."""
        best = state.best
        # one direction solves a quadratic problem: as accurately as tol asks, since a second one starts CG anew
        quadratic = task.loss.piecewise_quadratic and not task.loss.kinks and task.penalty.quadratic
        enough = 0.3 * jnp.sqrt(tol / jnp.maximum(best.relative_gap(), TINY))
        rtol = jnp.clip(enough, 1e-10, 0.1) if quadratic else forcing(best, tol)
        patience = state.patience
        w, s, moved, steps = newton_step(
            task, task.loss, state.w, state.s, state.v, state.scale, rtol, best.primal, self.max_cg, patience=patience
        )
        point, v = primal_point(task, w, s)
        best = best.update(*point, moved)
        if patience is not None:
            patience = jnp.where((steps < patience) & (best.waited < 3), patience, 0).astype(jnp.int32)
        return _State(best, w, s, v, state.scale, patience)

    def finish(self, task: Task, state: _State, tol) -> Solution:
        """The result of a state."""
        return finish(task, state.best, tol)
