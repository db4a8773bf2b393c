"""Stochastic dual coordinate ascent, finished by proximal point steps in the dual; for any loss, also plain hinge."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxbounds.arguments import as_flag, as_whole
from jaxbounds.interfaces import Loss
from jaxbounds.pytree import pytree, static
from jaxbounds.solvers import compiled_rows
from jaxbounds.solvers.base import Solver
from jaxbounds.solvers.common import (
    TINY,
    Progress,
    Smooth,
    Solution,
    Task,
    coordinate_step,
    step_slope,
)
from jaxbounds.solvers.compiled import due
from jaxbounds.solvers.implicit import finish, finish_kinked
from jaxbounds.solvers.newton import newton_step
from jaxbounds.solvers.proximal import Path, proximal_steps, start_path, support_step
from jaxbounds.solvers.sdca import block_curvature, epoch

_ACCURACY = 0.5  # a subproblem is done when its own gap is this part of the whole gap
_SHRINK, _GROW = 0.2, 2.0  # of gamma, after cheap and dear subproblems
_CHEAP, _DEAR = 20, 100  # CG steps of a subproblem
_PATIENCE = 60
_MOST = 64  # compiled epochs between two looks at the gap


@pytree
class Centred:
    """The smooth loss max_a [-f*(-a) - q a - gamma/2 (a - centre)^2]: the loss of a proximal point step in the dual."""

    loss: Loss
    centre: jax.Array
    gamma: jax.Array

    def dual(self, q, y):
        """The maximiser a, minus the derivative in q."""
        return coordinate_step(self.loss, q, self.centre, y, self.gamma)

    def value(self, q, y):
        """The maximum."""
        a = self.dual(q, y)
        return -self.loss.conjugate(a, y) - q * a - self.gamma / 2 * (a - self.centre) ** 2

    def second(self, q, y):
        """Its second derivative in q."""
        return step_slope(self.loss, q, self.centre, y, self.gamma)


@pytree
class _State:
    best: Progress
    path: Path  # w and its scores
    alpha: jax.Array  # dual point of the epochs and of the proximal point steps
    rows_gap: jax.Array  # gap = rows_gap + columns_gap; the second is the gap of the subproblem
    columns_gap: jax.Array
    centre: jax.Array  # of the proximal point step
    gamma: jax.Array
    cg: jax.Array  # CG steps of this subproblem
    kappa: jax.Array
    v: Any  # of alpha, None unless compiled
    passes: Any  # of the next compiled epochs, 0 when they no longer pay; None unless compiled


@pytree
class DualCoordinate(Solver):
    """Stochastic dual coordinate ascent (SDCA), then proximal point steps in the dual solved by Newton's method.

    Epochs take exact coordinate steps in blocks of 32 rows: one row after the other on dense data, jointly with a safe
    curvature on sparse data. The final phase minimises psi(w) + sum_i c_i f_k(q_i), where f_k is the loss smoothed
    around the present dual point (an augmented Lagrangian method); for a differentiable loss it is Newton's method.

    Args:
        epochs: SDCA epochs before the final phase.
        polish: whether there is a final phase; without it the solver is plain SDCA.
        max_cg: most conjugate gradient steps for one Newton direction.
        compiled: whether epochs are C code that visits single rows, on the CPU, and go on as long as they shrink the
            gap well; for the logistic loss and those of straight and quadratic pieces with L2 or the elastic net. It is
            compiled when it is first used, and asks for a C compiler on the PATH.

    Example:
        >>> from jaxbounds.solvers import DualCoordinate
        >>> DualCoordinate().polish
        True

    Source: Shalev-Shwartz and Zhang 2013 (SDCA); Rockafellar 1976 (proximal point, augmented Lagrangian).
    """

    epochs: int = static(default=2)
    polish: bool = static(default=True)
    max_cg: int = static(default=250)
    compiled: bool = static(default=False)

    beyond = 1.0

    def check(self, problem: Any) -> None:
        """Raise unless the penalty is strongly convex and there is no intercept."""
        as_whole(self.epochs, "epochs", 0)
        as_whole(self.max_cg, "max_cg", 1)
        as_flag(self.polish, "polish")
        if as_flag(self.compiled, "compiled"):
            compiled_rows.check(problem)
        if getattr(problem, "intercept", False):
            raise ValueError(
                "DualCoordinate cannot train an unpenalised intercept: its steps would leave sum_i c_i t_i = 0; use "
                "NewtonCG or ProximalGradient, or intercept=False and a column of ones in X (a penalised intercept)"
            )
        if problem.penalty.strong_convexity is None:
            raise ValueError(
                f"DualCoordinate needs a strongly convex penalty, and {problem.penalty.name} is not; use "
                "ProximalGradient, or add an L2 part (elastic_net)"
            )

    def init(self, task: Task, w0, alpha0) -> _State:
        """The state at (w0, alpha0), alpha0 cut to its domain."""
        one = jnp.ones((), jnp.float64)
        path = start_path(task, w0)
        alpha = task.loss.clip(alpha0, task.y)
        if self.compiled:
            kappa = compiled_rows.curvature(task)
        else:
            kappa = block_curvature(task) if self.epochs or not self.polish else jnp.zeros_like(alpha)
        v, passes, zero = None, None, jnp.zeros((), jnp.int32)
        if self.compiled:
            v, passes = lax.cond(jnp.any(alpha != 0), task.v, lambda _: jnp.zeros_like(path.w), alpha), zero + 1
        point, rows, columns = self._gap(task, path, alpha)
        return _State(Progress.start(*point), path, alpha, rows, columns, alpha, one, zero, kappa, v, passes)

    def step(self, task: Task, state: _State, tol) -> _State:
        """One epoch, or one Newton step of the final phase."""
        if not self.polish:
            return self._epoch(task, state, tol)
        if not self.epochs:
            return self._newton(task, state, tol)
        early = state.passes > 0 if self.compiled else state.best.n_steps < self.epochs
        return lax.cond(early, lambda: self._epoch(task, state, tol), lambda: self._newton(task, state, tol))

    def _gap(self, task: Task, path: Path, alpha):
        """The point to record, and its gap split into rows and columns; a smooth loss brings its own dual point."""
        q, ref = task.q(path.s), None
        if task.loss.smoothness is not None:
            alpha, ref = task.loss.dual(q, task.y), q
        rows = task.loss.fenchel_young(q, alpha, task.y, ref)
        rows = jnp.sum(task.c * rows)
        columns = jnp.sum(task.penalty.fenchel_young(path.w, task.v(alpha)))
        return (path.w, alpha, q, rows + columns, task.primal(path.w, q)), rows, columns

    def _epoch(self, task: Task, state: _State, tol) -> _State:
        if self.compiled:
            alpha, v = compiled_rows.epochs(task, state.alpha, state.v, state.kappa, state.passes, state.best.n_steps)
        else:
            alpha = epoch(task, state.alpha, task.v(state.alpha), state.kappa, state.best.n_steps)
            v = task.v(alpha)
        w = task.penalty.grad_conjugate(v)
        path = replace(state.path, w=w, s=task.matrix.matvec(w))
        point, rows, columns = self._gap(task, path, alpha)
        best = state.best.update(*point, patience=_PATIENCE if self.polish else 50 * _PATIENCE)
        if self.compiled:
            goal = self.beyond * tol * jnp.abs(best.primal)
            passes = due(state.passes, state.best.last_gap, best.last_gap, goal, _MOST, self.polish)
            state = replace(state, v=v, passes=passes)
        return replace(state, best=best, path=path, alpha=alpha, rows_gap=rows, columns_gap=columns, centre=alpha)

    def _newton(self, task: Task, state: _State, tol) -> _State:
        smooth: Smooth = task.loss
        if task.loss.smoothness is None:
            smooth = Centred(task.loss, state.centre, state.gamma)
        best, path = state.best, state.path
        goal = jnp.maximum(_ACCURACY * state.rows_gap, 0.1 * tol * jnp.abs(best.primal))
        rtol = jnp.clip(0.3 * jnp.sqrt(goal / jnp.maximum(state.columns_gap, TINY)), 1e-10, 0.25)
        if task.penalty.smooth:
            v = task.v(smooth.dual(task.q(path.s), task.y))
            damping = path.metric * (1e-3 / state.gamma) * jnp.minimum(best.relative_gap(), 1.0)
            w, s, _, steps, _ = newton_step(
                task, smooth, path.w, path.s, v, path.metric, rtol, best.primal, self.max_cg, damping=damping
            )
            path = replace(path, w=w, s=s)
        else:
            path = proximal_steps(task, smooth, path)
            path, full, steps = support_step(task, smooth, path, rtol, state.columns_gap, best.primal, self.max_cg)
            inner = jnp.where(full, 1, jnp.minimum(2 * path.inner + 1, 20)).astype(jnp.int32)
            path = replace(path, inner=inner)
        alpha = smooth.dual(task.q(path.s), task.y)
        point, rows, columns = self._gap(task, path, alpha)
        done = columns <= _ACCURACY * rows
        cg = state.cg + steps
        factor = jnp.where(cg <= _CHEAP, _SHRINK, jnp.where(cg > _DEAR, _GROW, 1.0))
        return replace(
            state,
            best=best.update(*point, patience=_PATIENCE),
            path=path,
            alpha=alpha,
            rows_gap=rows,
            columns_gap=columns,
            centre=jnp.where(done, alpha, state.centre),
            gamma=jnp.where(done, jnp.clip(state.gamma * factor, 1e-8, 10.0), state.gamma),
            cg=jnp.where(done, 0, cg).astype(jnp.int32),
        )

    def finish(self, task: Task, state: _State, tol) -> Solution:
        """The result of a state."""
        if task.loss.smoothness is None:
            return finish_kinked(task, state.best, tol)
        return finish(task, state.best, tol)
