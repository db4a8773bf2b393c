"""Line-search Newton-CG on the primal, for a differentiable loss and a smooth strongly convex penalty."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxbounds.arguments import as_whole
from jaxbounds.interfaces import Loss
from jaxbounds.pytree import pytree, static
from jaxbounds.solvers.base import Solver, require_smooth
from jaxbounds.solvers.common import (
    Progress,
    Smooth,
    Solution,
    Task,
    line_search,
    newton_direction,
    primal_point,
    second,
    start_scores,
)
from jaxbounds.solvers.implicit import finish
from jaxbounds.solvers.linear import break_even, column_scale, is_direct, sample_size

_BLUR, _ROUGH = 1e-2, 0.3  # relative gap down to which curvature is averaged, and how accurate directions are there


@pytree
class _State:
    best: Progress
    w: jax.Array
    s: jax.Array
    v: jax.Array
    scale: jax.Array
    patience: Any  # CG steps before the Hessian is factored: 0 once they did not do; None: the size decides
    reach: jax.Array  # mean move of the scores in the last step
    leaves: jax.Array  # whether the start is on straight pieces of the loss that the first step will leave
    kept: Any  # Cholesky factor of a former Hessian of some rows, None where these do not precondition


@pytree
class _Blurred:
    """A loss with kinks whose second derivative is the mean one over q -+ reach: what a step of that size will meet.

    Newton's own curvature knows nothing of kinks ahead, and its steps then are cut to a third by the line search.
    """

    loss: Loss
    reach: jax.Array
    everywhere: jax.Array  # whether to take the largest curvature for all rows

    kinks = True

    def second(self, q, y):
        """(f'(q + reach) - f'(q - reach)) / (2 reach), and f'' where the reach is 0."""
        far = self.reach > 0
        reach = jnp.where(far, self.reach, 1.0)
        mean = (self.loss.dual(q - reach, y) - self.loss.dual(q + reach, y)) / (2 * reach)
        found = jnp.where(far, jnp.maximum(mean, 0.0), self.loss.second(q, y))
        return jnp.where(self.everywhere, self.loss.smoothness, found)


def _leaves(task: Task, w, s, v) -> jax.Array:
    """Whether all rows are on straight pieces of the loss, and a gradient step would leave them.

    Only asked where the preconditioner makes a first direction with curvature everywhere cheap.
    """
    if not task.loss.kinks or sample_size(task.matrix) is None:
        return jnp.zeros((), bool)
    q = task.q(s)

    def tried():
        step = (v - task.penalty.subgradient(w)[0]) / second(task.penalty, w)
        moved = task.q(task.balanced(s + task.matrix.matvec(step)))
        return jnp.any(task.loss.dual(moved, task.y) != task.loss.dual(q, task.y))

    return lax.cond(jnp.any(task.loss.second(q, task.y) > 0), lambda: jnp.zeros((), bool), tried)


def forcing(progress: Progress, tol) -> jax.Array:
    """How accurately to solve for a Newton step: the square root of the relative gap, but no further than tol asks."""
    relative = jnp.maximum(progress.relative_gap(), 1e-300)
    return jnp.clip(jnp.maximum(jnp.sqrt(relative), 0.3 * jnp.sqrt(tol / relative)), 1e-10, 0.1)


def newton_step(
    task: Task, smooth: Smooth, w, s, v, scale, rtol, primal, max_cg, damping: Any = 0.0, patience=None,
    curved: Any = None, kept: Any = None,
):  # fmt: skip
    """One Newton step with line search: (w, s, whether it moved, CG steps, kept); `curved` has another f''."""
    q = task.q(s)
    rhs = v - task.penalty.subgradient(w)[0]
    p, ds, steps, kept = newton_direction(
        task, curved or smooth, w, q, rhs, jnp.ones(w.shape, bool), scale, rtol, damping, max_cg, patience, kept
    )
    t = line_search(task, smooth, w, s, p, ds, primal)
    return w + t * p, task.balanced(s + t * ds), t > 0, steps, kept


@pytree
class NewtonCG(Solver):
    """Newton's method with conjugate gradients and a line search on scores; needs no step size.

    Each step solves (psi'' + X^T diag(c f'') X) p = -gradient to a tolerance that tightens with the gap, then walks to
    a near minimum along p. Piecewise quadratic losses are treated as semismooth, with f'' averaged over the length of
    the last step as long as the gap is large. Small Hessians are
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
        reach, kept = jnp.zeros((), jnp.float64), None
        if sample_size(task.matrix) is not None and not is_direct(task.matrix):
            kept = jnp.diag(jnp.sqrt(second(task.penalty, w0) + task.loss.smoothness * scale))
        return _State(Progress.start(*point), w0, s, v, scale, patience, reach, _leaves(task, w0, s, v), kept)

    def step(self, task: Task, state: _State, tol) -> _State:
        """One Newton step."""
        best, curved = state.best, None
        relative = best.relative_gap()
        # ahead of a single kink it pays only if directions are cheap
        averaged = len(task.loss.kinks) > (1 if sample_size(task.matrix) is None else 0)
        if averaged:
            reach = jnp.where(relative > _BLUR, state.reach, 0.0)
            curved = _Blurred(task.loss, reach, state.leaves & (best.n_steps == 0))
        quadratic = task.loss.piecewise_quadratic and not task.loss.kinks and task.penalty.quadratic
        if quadratic:  # one direction solves it, and a second one would start CG anew
            rtol = jnp.clip(jnp.sqrt(0.5 * self.beyond * tol / jnp.maximum(relative, 1e-300)), 1e-10, 0.1)
        else:
            rtol = forcing(best, tol)
        if averaged:
            rtol = jnp.where(relative > _BLUR, _ROUGH, rtol)
        w, s, moved, steps, kept = newton_step(
            task, task.loss, state.w, state.s, state.v, state.scale, rtol, best.primal, self.max_cg,
            patience=state.patience, curved=curved, kept=state.kept,
        )  # fmt: skip
        point, v = primal_point(task, w, s)
        best, patience = best.update(*point, moved), state.patience
        if patience is not None:
            patience = jnp.where((steps < patience) & (best.waited < 3), patience, 0).astype(jnp.int32)
        return _State(best, w, s, v, state.scale, patience, jnp.mean(jnp.abs(s - state.s)), state.leaves, kept)

    def finish(self, task: Task, state: _State, tol) -> Solution:
        """The result of a state."""
        return finish(task, state.best, tol)
