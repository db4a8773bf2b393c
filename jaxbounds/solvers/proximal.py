"""Accelerated proximal gradient and Newton steps on working sets, then on all columns: L1, elastic net, L_q, others."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxbounds.arguments import as_flag, as_whole
from jaxbounds.pytree import pytree, static
from jaxbounds.solvers import compiled_columns
from jaxbounds.solvers.base import Solver, require_smooth
from jaxbounds.solvers.common import (
    TINY,
    Progress,
    Smooth,
    Solution,
    Task,
    directional,
    kinks,
    line_search,
    newton_direction,
    run,
    start_scores,
)
from jaxbounds.solvers.compiled import due
from jaxbounds.solvers.implicit import finish
from jaxbounds.solvers.linear import column_scale, is_direct
from jaxbounds.solvers.newton import forcing
from jaxbounds.solvers.quadratic import is_quadratic, quadratic_steps
from jaxbounds.solvers.working_set import in_use, restricted, width, working_set

_INNER = 200  # most steps on one working set
_ROUNDS, _FEW = 10, 2  # most compiled rounds between two looks at the gap, and those while many columns come into use


@pytree
class Path:
    """Where the composite iteration stands.

    Attributes:
        w, s: coefficients and their scores, balanced if there is an intercept.
        metric: (d,) relative curvature of the coordinates; the proximal step of j is 1 / (lipschitz metric_j).
        lipschitz: curvature bound in the metric that the last step met.
        inner: proximal steps to take before the next Newton step.
    """

    w: jax.Array
    s: jax.Array
    metric: jax.Array
    lipschitz: jax.Array
    inner: jax.Array


def start_path(task: Task, w: jax.Array) -> Path:
    """The path at w."""
    smoothness = jnp.ones((), jnp.float64) if task.loss.smoothness is None else task.loss.smoothness
    scale = column_scale(task.matrix, task.c, task.intercept)
    metric = jnp.where(scale > 0, scale, 1.0)
    return Path(w, start_scores(task, w), metric, 1.0 * smoothness, jnp.full((), 5, jnp.int32))


def _bregman(task: Task, smooth: Smooth, new_q, q) -> jax.Array:
    """sum_i c_i (f(q') - f(q) - f'(q) (q' - q)), by f'' where that is accurate enough and by values elsewhere."""
    step = new_q - q
    rows = smooth.value(new_q, task.y) - smooth.value(q, task.y) + smooth.dual(q, task.y) * step
    by_slopes = 0.5 * (smooth.dual(q, task.y) - smooth.dual(new_q, task.y)) * step  # exact for quadratics
    noise = 1e-9 * (jnp.abs(smooth.value(q, task.y)) + jnp.abs(smooth.dual(q, task.y) * step))
    return jnp.sum(task.c * jnp.where(rows > noise, rows, by_slopes))


def proximal_steps(task: Task, smooth: Smooth, path: Path) -> Path:
    """``path.inner`` accelerated proximal gradient steps with backtracking and restarts."""
    penalty, metric = task.penalty, path.metric

    def one(state):
        k, w, s, w_old, s_old, theta, lipschitz = state
        theta_new = (1.0 + jnp.sqrt(1.0 + 4.0 * theta * theta)) / 2.0
        momentum = (theta - 1.0) / theta_new
        at, s_at = w + momentum * (w - w_old), task.balanced(s + momentum * (s - s_old))
        q = task.q(s_at)
        gradient = -task.v(smooth.dual(q, task.y))

        def attempt(lipschitz):
            new = penalty.prox(at - gradient / (lipschitz * metric), 1.0 / (lipschitz * metric))
            return new, task.scores(new)

        def too_short(trial):
            lipschitz, new, s_new, tries = trial
            model = 0.5 * lipschitz * jnp.sum(metric * (new - at) ** 2)
            return (_bregman(task, smooth, task.q(s_new), q) > model * (1 + 1e-9)) & (tries < 60)

        def shorten(trial):
            lipschitz = 2.0 * trial[0]
            return (lipschitz, *attempt(lipschitz), trial[3] + 1)

        first = (lipschitz, *attempt(lipschitz), jnp.zeros((), jnp.int32))
        lipschitz, new, s_new, _ = lax.while_loop(too_short, shorten, first)
        uphill = jnp.sum(metric * (at - new) * (new - w)) > 0
        theta_new = jnp.where(uphill, 1.0, theta_new)
        # after a restart the next step starts from the new point without momentum
        return k + 1, new, s_new, jnp.where(uphill, new, w), jnp.where(uphill, s_new, s), theta_new, lipschitz

    one_ = jnp.ones((), jnp.float64)
    first = (jnp.zeros((), jnp.int32), path.w, path.s, path.w, path.s, one_, 0.7 * path.lipschitz)
    _, w, s, _, _, _, lipschitz = lax.while_loop(lambda state: state[0] < path.inner, one, first)
    return replace(path, w=w, s=s, lipschitz=lipschitz)


def support_step(task: Task, smooth: Smooth, path: Path, rtol, gap, primal, max_cg) -> tuple[Path, Any, Any]:
    """A Newton step on the support of w: (new path, whether it was a full step, CG steps).

    Newton from the point of a proximal step, on its support, is the semismooth Newton step for the proximal fixed
    point. The full step (coordinates that would change sign stop at 0) is taken if the objective falls; otherwise a
    line search along the direction.
    """
    penalty = task.penalty
    w, s = path.w, path.s
    kinked = kinks(penalty, w.shape[0])
    mask = ~kinked | (w != 0)
    q = task.q(s)
    rhs = jnp.where(mask, task.v(smooth.dual(q, task.y)) - penalty.subgradient(w)[0], 0.0)
    relative = jnp.minimum(gap / jnp.maximum(jnp.abs(primal), TINY), 1.0)
    damping = path.metric * path.lipschitz * jnp.maximum(1e-3 * jnp.minimum(relative, 1.0), 1e-14)
    p, ds, steps, _ = newton_direction(task, smooth, w, q, rhs, mask, path.metric, rtol, damping, max_cg)
    crossing = kinked & (w * (w + p) < 0)
    full = jnp.where(crossing, 0.0, w + p)
    s_full = task.balanced(lax.cond(jnp.any(crossing), lambda: task.matrix.matvec(full), lambda: s + ds))
    change = jnp.sum(task.c * (smooth.value(task.q(s_full), task.y) - smooth.value(q, task.y)))
    change = change + jnp.sum(penalty.value(full) - penalty.value(w))
    descent = directional(penalty, w, full - w) - jnp.sum(task.c * smooth.dual(q, task.y) * (task.q(s_full) - q))
    small = jnp.abs(descent) <= 1e-10 * jnp.abs(primal)
    accepted = (change <= 1e-3 * descent) | (small & (descent <= 0))

    def search():
        t = line_search(task, smooth, w, s, p, ds, primal)
        return w + t * p, task.balanced(s + t * ds)

    w, s = lax.cond(accepted, lambda: (full, s_full), search)
    return replace(path, w=w, s=s), accepted, steps


@pytree
class _State:
    best: Progress
    path: Path
    v: jax.Array  # X^T t at the latest point
    outgrown: jax.Array  # whether a working set was too small, or got nowhere
    squares: Any  # (d,) sum_i c_i x_ij^2, None unless compiled
    rounds: Any  # of the next compiled descent, 0 when they no longer pay; None unless compiled


@pytree
class ProximalGradient(Solver):
    """Accelerated proximal gradient with restarts, finished by Newton steps on the support.

    For a differentiable loss and any penalty with a proximal operator. As long as few coefficients are not 0, a step
    finds the optimum on a working set: the columns in use and those that are nearest to it, up to a number that the
    shape of the data fixes. The gap is that of all columns; the dual point is the loss's own, scaled into the domain of
    the penalty's conjugate (L1: |v| <= kappa).

    Args:
        max_cg: most conjugate gradient steps for one Newton direction.
        max_inner: most proximal steps between two Newton steps.
        working_sets: whether to begin on working sets; without them programs compile in half the time.
        compiled: whether working sets are solved by coordinate descent in C, on the CPU, as long as that shrinks the
            gap well; for the squared loss on sparse data with L1 or the elastic net. It is compiled when it is first
            used, and asks for a C compiler on the PATH.

    Example:
        >>> from jaxbounds.solvers import ProximalGradient
        >>> ProximalGradient().max_inner
        50

    Source: Beck and Teboulle 2009 (acceleration); Massias, Gramfort and Salmon 2018 (working sets); Bertrand and
    Massias 2021 (Anderson acceleration of coordinate descent).
    """

    max_cg: int = static(default=100)
    max_inner: int = static(default=50)
    working_sets: bool = static(default=True)
    compiled: bool = static(default=False)

    def check(self, problem: Any) -> None:
        """Raise unless the loss is differentiable."""
        as_whole(self.max_cg, "max_cg", 1)
        as_whole(self.max_inner, "max_inner", 1)
        as_flag(self.working_sets, "working_sets")
        require_smooth(self, problem.loss)
        if as_flag(self.compiled, "compiled"):
            compiled_columns.check(problem)

    def init(self, task: Task, w0, alpha0) -> _State:
        """The state at w0 (alpha0 is not used: the dual point follows from w)."""
        path = start_path(task, w0)
        v = self._pull(task, path)
        squares, rounds = None, None
        if self.compiled:
            squares = column_scale(task.matrix, task.c, False) if task.intercept else path.metric
            rounds = jnp.ones((), jnp.int32)
        return _State(Progress.start(*self._point(task, path, v)), path, v, jnp.zeros((), bool), squares, rounds)

    def step(self, task: Task, state: _State, tol) -> _State:
        """The optimum on a working set, as long as the coefficients in use fit in; else a step on all columns."""
        if self.compiled:
            return lax.cond(
                state.rounds > 0, lambda: self._descend(task, state, tol), lambda: self._step(task, state, tol)
            )
        most = width(task) if self.working_sets else None
        if most is None:
            return self._step(task, state, tol)

        def crowded(w):
            return jnp.sum(in_use(task, w), dtype=jnp.int32) > most - most // 8

        def few():
            new = self._moved(task, state, self._on_few(task, state, most, tol))
            return replace(new, outgrown=crowded(new.path.w) | jnp.all(new.path.w == state.path.w))

        return lax.cond(state.outgrown | crowded(state.path.w), lambda: self._step(task, state, tol), few)

    def _descend(self, task: Task, state: _State, tol) -> _State:
        """Compiled rounds of coordinate descent on a working set."""
        path = state.path
        w = compiled_columns.rounds(task, path.w, path.s, state.v, state.squares, state.rounds)
        new = self._moved(task, state, replace(path, w=w, s=task.scores(w)))
        goal = self.beyond * tol * jnp.abs(new.best.primal)
        rounds = due(state.rounds, state.best.last_gap, new.best.last_gap, goal, _ROUNDS, final=True)
        before, after = (jnp.sum(w != 0, dtype=jnp.int32) for w in (path.w, w))
        grows = after > before + before // 4  # the next working set will be another one
        return replace(new, rounds=jnp.where(grows, _FEW, rounds).astype(jnp.int32))

    def _on_few(self, task: Task, state: _State, most: int, tol) -> Path:
        """The optimum on a working set: as accurate as asked of the whole, for it costs less than to choose the set."""
        path = state.path
        columns = working_set(task, path.w, state.v, path.metric, most)
        small, rows = restricted(task, path.w, path.s, state.v, columns)
        start = self.init(small, path.w[columns], None)
        goal = self.beyond * tol * jnp.abs(state.best.primal) / jnp.maximum(jnp.abs(start.best.primal), TINY)
        end = run(replace(self, working_sets=False, compiled=False), small, start, goal, _INNER, 1.0)
        w = jnp.zeros_like(path.w).at[columns].set(end.best.w, unique_indices=True)
        return replace(path, w=w, s=task.balanced(rows.matvec(end.best.w)))

    def _step(self, task: Task, state: _State, tol) -> _State:
        """Proximal steps on all columns, and a Newton step on their support unless they were enough."""
        best, path, v, done = state.best, state.path, state.v, jnp.zeros((), bool)
        if is_quadratic(task) and not is_direct(task.matrix):
            goal = self.beyond * tol
            limits = path.inner, jnp.maximum(path.inner, self.max_inner)
            w, s, v, lipschitz, gap = quadratic_steps(
                task, path.w, path.s, state.v, path.metric, path.lipschitz, *limits, goal
            )
            path, done = replace(path, w=w, s=s, lipschitz=lipschitz), gap <= goal
        else:
            path = proximal_steps(task, task.loss, path)

        def newton():
            moved, full, _ = support_step(
                task, task.loss, path, forcing(best, tol), best.last_gap, best.primal, self.max_cg
            )
            return moved, full, self._pull(task, moved)

        path, accepted, v = lax.cond(done, lambda: (path, jnp.ones((), bool), v), newton)
        new = self._moved(task, state, path, v)
        fine = accepted & (new.best.last_gap < 0.5 * best.last_gap)
        inner = jnp.where(fine, 1, jnp.minimum(2 * path.inner + 1, self.max_inner)).astype(jnp.int32)
        return replace(new, path=replace(path, inner=inner))

    def _moved(self, task: Task, state: _State, path: Path, v=None) -> _State:
        """The state after a move; v = X^T t there, if it is known."""
        v = self._pull(task, path) if v is None else v
        return replace(state, best=state.best.update(*self._point(task, path, v)), path=path, v=v)

    def _pull(self, task: Task, path: Path) -> jax.Array:
        return task.v(task.loss.dual(task.q(path.s), task.y))

    def _point(self, task: Task, path: Path, v):
        """(w, alpha, ref, gap, primal)."""
        q = task.q(path.s)
        alpha, v = task.feasible(task.loss.dual(q, task.y), v)
        ref = None if task.penalty.dual_bound is not None else q
        return path.w, alpha, q, task.gap(path.w, q, alpha, v, ref), task.primal(path.w, q)

    def finish(self, task: Task, state: _State, tol) -> Solution:
        """The result of a state."""
        return finish(task, state.best, tol)
