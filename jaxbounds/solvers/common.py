"""What the solvers share: the task, its gap, Newton directions and the line search.

A solver is a frozen config with

    check(problem)                                       raises ValueError naming the missing property
    init(task, w0, alpha0) -> state                      a pytree with .w .alpha .ref .gap .primal .n_steps .status
    step(task, state, tol) -> state                      one outer step
    run(task, state, tol, max_steps) -> state            a while_loop of steps; max_steps counts all steps of the state
    solve(problem, matrix, y, c, w0, alpha0, tol, max_steps) -> Solution

``solve`` is init, run and finish. To look at a fit while it runs, call ``run`` (jitted) in chunks with a growing
max_steps and hand the last state to ``finish``. Nothing here raises on numbers; the state carries a status.
"""

import functools
from dataclasses import replace
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import lax

from jaxbounds.array import Array
from jaxbounds.intercept import balanced_intercept
from jaxbounds.interfaces import Loss, Penalty
from jaxbounds.matrix import Matrix, one_way
from jaxbounds.pytree import pytree, static
from jaxbounds.solvers.curved import curved_products
from jaxbounds.solvers.linear import (
    Rows,
    answer,
    centred,
    conjugate_gradients,
    factored,
    is_direct,
    renewed_gradients,
    sample_size,
    sampled,
    solve_with,
)
from jaxbounds.status import Status

TINY = 1e-300  # a primal value below this counts as this
SAFETY = 1e-13  # |v| <= (1 - SAFETY) kappa, so that v recomputed in another order of summation still fits


@pytree
class Solution:
    """What a solver returns.

    Attributes:
        w: (d,) coefficients.
        alpha: (n,) feasible dual point in the paper's sign.
        ref: (n,) coordinates with alpha = -f'(ref), where known.
        gap: duality gap of (w, alpha), a sum of non-negative terms.
        primal: P(w).
        n_steps: int32 outer steps taken.
        status: int32 `Status` code.
        intercept: float64 scalar, 0 without one.
    """

    w: jax.Array
    alpha: jax.Array
    ref: jax.Array
    gap: jax.Array
    primal: jax.Array
    n_steps: jax.Array
    status: jax.Array
    intercept: jax.Array


class Smooth(Protocol):
    """The part of a loss that a Newton step needs: a differentiable convex function of q."""

    def value(self, q: jax.Array, y: jax.Array) -> jax.Array: ...
    def dual(self, q: jax.Array, y: jax.Array) -> jax.Array: ...
    def second(self, q: jax.Array, y: jax.Array) -> jax.Array: ...


@pytree
class Task:
    """One training problem on prepared data: sum_i c_i f(q_i) + psi(w), q = coordinate(X w).

    With an intercept q = coordinate(X w + b), where b always is the best one for w. As a function of w alone the
    problem then is as convex and as smooth as without, its gradient is that at fixed b, sum_i c_i t_i = 0, and its
    Hessian is that of centred rows: solvers see scores that hold b, and need not know.
    """

    loss: Loss
    penalty: Penalty
    matrix: Matrix
    y: Array
    c: Array
    intercept: bool = static(default=False)
    differentiable: bool = static(default=True)

    def constant(self) -> "Task":
        """The same task, of which no derivative is taken."""
        return replace(self, matrix=one_way(self.matrix), differentiable=False)

    def scores(self, w: jax.Array) -> jax.Array:
        """X w, plus the best intercept."""
        return self.balanced(self.matrix.matvec(w))

    def balanced(self, s: jax.Array) -> jax.Array:
        """Scores, shifted by the intercept that minimises the loss."""
        return s + balanced_intercept(self.loss, s, self.y, self.c) if self.intercept else s

    def rows(self, weights: jax.Array) -> Rows:
        """The rows from whose Gram matrix with these weights the Hessian is made."""
        return centred(self.matrix, weights) if self.intercept else self.matrix

    def q(self, s: jax.Array) -> jax.Array:
        """Natural coordinates of scores."""
        return self.loss.coordinate(s, self.y)

    def t(self, alpha: jax.Array) -> jax.Array:
        """The change of the dual vector's weights: c o alpha; also turns score changes into weighted q changes."""
        return self.c * self.loss.orientation(self.y) * alpha

    def v(self, alpha: jax.Array) -> jax.Array:
        """v = sum_i c_i o_i alpha_i x_i."""
        return self.matrix.rmatvec(self.t(alpha))

    def primal(self, w: jax.Array, q: jax.Array) -> jax.Array:
        """P(w)."""
        return jnp.sum(self.c * self.loss.value(q, self.y)) + jnp.sum(self.penalty.value(w))

    def gap(self, w: jax.Array, q: jax.Array, alpha: jax.Array, v: jax.Array, ref: jax.Array | None) -> jax.Array:
        """The duality gap as a sum of Fenchel-Young terms."""
        rows = self.loss.fenchel_young(q, alpha, self.y, ref)
        return jnp.sum(self.c * rows) + jnp.sum(self.penalty.fenchel_young(w, v))

    def feasible(self, alpha: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
        """(alpha, v) shrunk until v lies in the domain of psi*."""
        bound = self.penalty.dual_bound
        if bound is None:
            return alpha, v
        worst = jnp.max(jnp.abs(v) / bound)
        scale = jnp.where(worst > 1.0 - SAFETY, (1.0 - SAFETY) / jnp.maximum(worst, TINY), 1.0)
        return alpha * scale, v * scale


def start_scores(task: Task, w0: jax.Array) -> jax.Array:
    """Balanced scores at a start; a start at 0 needs no product."""
    zero = jnp.zeros(task.y.shape, jnp.float64)
    return task.balanced(lax.cond(jnp.any(w0 != 0), task.matrix.matvec, lambda w: zero, w0))


def primal_point(task: Task, w: jax.Array, s: jax.Array):
    """((w, alpha, ref, gap, primal), v) at w with balanced scores s; the dual point of a smooth loss follows from w."""
    q = task.q(s)
    alpha = task.loss.dual(q, task.y)
    v = task.v(alpha)
    return (w, alpha, q, task.gap(w, q, alpha, v, q), task.primal(w, q)), v


@pytree
class Progress:
    """The best point so far, the counters and the status: the part of a state that every solver shares."""

    w: jax.Array
    alpha: jax.Array
    ref: jax.Array
    gap: jax.Array
    primal: jax.Array
    n_steps: jax.Array
    status: jax.Array
    last_gap: jax.Array
    mark: jax.Array  # the gap when it last fell by a tenth
    waited: jax.Array  # steps since then

    @staticmethod
    def start(w, alpha, ref, gap, primal) -> "Progress":
        """The first point."""
        status = jnp.where(jnp.isfinite(primal), Status.MAX_STEPS, Status.NONFINITE).astype(jnp.int32)
        zero = jnp.zeros((), jnp.int32)
        return Progress(w, alpha, ref, gap, primal, zero, status, gap, gap, zero)

    def update(self, w, alpha, ref, gap, primal, moved: Any = True, patience: int = 60) -> "Progress":
        """After a step: keep the better point; STALLED without progress, NONFINITE when the new point is not finite."""
        better = gap < self.gap
        clearly = gap < 0.9 * self.mark
        keep = lambda new, old: jnp.where(better, new, old)  # noqa: E731
        waited = jnp.where(clearly, 0, self.waited + 1).astype(jnp.int32)
        stalled = ~jnp.asarray(moved) | (waited >= patience)
        status = jnp.where(stalled, Status.STALLED, Status.MAX_STEPS)
        status = jnp.where(jnp.isfinite(primal) & ~jnp.isnan(gap), status, Status.NONFINITE).astype(jnp.int32)
        return Progress(
            keep(w, self.w), keep(alpha, self.alpha), keep(ref, self.ref), keep(gap, self.gap),
            keep(primal, self.primal), self.n_steps + jnp.ones((), jnp.int32), status, gap,
            jnp.where(clearly, gap, self.mark), waited,
        )  # fmt: skip

    def reached(self, tol) -> jax.Array:
        """Whether the relative gap is at most tol."""
        return self.gap <= tol * jnp.maximum(jnp.abs(self.primal), TINY)

    def relative_gap(self) -> jax.Array:
        """Relative gap of the latest point."""
        return self.last_gap / jnp.maximum(jnp.abs(self.primal), TINY)


def run(solver: Any, task: Task, state: Any, tol: Any, max_steps: Any, beyond: float = 0.01) -> Any:
    """Step until the gap is small enough, nothing moves, or the state has made max_steps steps in all.

    The error of w goes with the root of the gap, and near the optimum one more Newton step is cheap: so the gap should
    reach `beyond` times tol, though tol is enough for success, and for stopping once a step gains nothing.
    """

    def going(state):
        best = state.best
        running = (best.status == Status.MAX_STEPS) & ~(best.reached(tol) & (best.waited > 0))
        return running & ~best.reached(beyond * tol) & (best.n_steps < max_steps)

    return lax.while_loop(going, lambda state: solver.step(task, state, tol), state)


def report(best: Progress, tol) -> Solution:
    """The best point, with CONVERGED where it meets the tolerance."""
    status = jnp.where(best.reached(tol), Status.CONVERGED, best.status).astype(jnp.int32)
    zero = jnp.zeros((), jnp.float64)
    return Solution(best.w, best.alpha, best.ref, best.gap, best.primal, best.n_steps, status, zero)


def coordinate_step(loss: Loss, q, alpha, y, kappa) -> jax.Array:
    """loss.dual_step, also at the kinks of a user's function, where the derivative at the new point says nothing."""
    if not (loss.defined_by_ref and loss.smoothness is None):
        return loss.dual_step(q, alpha, y, kappa)
    kappa = jnp.maximum(kappa, 1e-9)
    point = loss.step_point(q, alpha, y, kappa)
    new, slope = loss.clip(alpha + (point - q) / kappa, y), loss.dual(point, y)
    return jnp.where(jnp.abs(new - slope) <= 1e-10 * (1.0 + jnp.abs(slope)), slope, new)


def step_slope(loss: Loss, q, alpha, y, kappa) -> jax.Array:
    """Minus the derivative of coordinate_step in q, one generalised choice."""
    if not (loss.defined_by_ref and loss.smoothness is None):
        return -jax.jvp(lambda q: loss.dual_step(q, alpha, y, kappa), (q,), (jnp.ones_like(q),))[1]
    h = 1e-6 * (1.0 + jnp.abs(q))
    return (coordinate_step(loss, q - h, alpha, y, kappa) - coordinate_step(loss, q + h, alpha, y, kappa)) / (2 * h)


def directional(penalty: Penalty, w: jax.Array, p: jax.Array) -> jax.Array:
    """Derivative of psi at w along p (from the right)."""
    lo, hi = penalty.subgradient(w)
    return jnp.sum(jnp.where(p > 0, hi, lo) * p)


def kinks(penalty: Penalty, d: int) -> jax.Array:
    """(d,) mask of the coordinates whose penalty has a kink at 0."""
    lo, hi = penalty.subgradient(jnp.zeros(d, jnp.float64))
    return hi > lo


def second(penalty: Penalty, w: jax.Array) -> jax.Array:
    """psi'' as a (d,) vector, cut where it is infinite (L_q with q < 2 at 0)."""
    return jnp.minimum(jnp.broadcast_to(penalty.second(w), w.shape), 1e100)


def newton_direction(
    task: Task, smooth: Smooth, w, q, rhs, mask, scale, rtol, damping, max_cg, patience: Any = None, kept: Any = None
):
    """(p, score change, CG steps, kept): (psi'' + X^T diag(c f'') X + damping) p = rhs where masked, p = 0 elsewhere.

    The preconditioner is the Hessian of some rows if there are few columns (the factor that was kept as long as it
    does, or a new one), and diagonal otherwise, from the column scale (d,). Small problems are factored instead. With a
    ``patience``, the Hessian is factored once that many CG steps were not enough; then patience is all the steps say.
    """
    weights = task.c * smooth.second(q, task.y)
    matrix = task.rows(weights)
    diagonal = jnp.where(mask, second(task.penalty, w) + damping, 1.0)
    rhs = jnp.where(mask, rhs, 0.0)
    shift = answer(matrix)
    times, along = curved_products(task.matrix, weights, shift, bool(getattr(smooth, "kinks", ())))

    def apply(p):
        inside, part = times(p)
        return jnp.where(mask, diagonal * p + inside, 0.0), part

    def scores(p, part):
        return along(p, part) - shift(p)

    def solve(precondition, most):
        p, part, steps, *_ = conjugate_gradients(apply, rhs, precondition, rtol, most)
        return p, scores(p, part), steps

    def factor(most):
        return solve(factored(matrix, weights, diagonal, mask), most)

    def iterate(most):
        if sample_size(task.matrix) is None:
            jacobi = diagonal + jnp.where(mask, jnp.sum(weights) / jnp.sum(task.c) * scale, 0.0)
            return *solve(lambda r: r / jacobi, most), None
        fresh = functools.partial(sampled, matrix, weights, diagonal, mask)
        if kept is None:
            return *solve(solve_with(fresh()), most), None
        p, part, steps, new = renewed_gradients(apply, rhs, kept, fresh, rtol, most)
        return p, scores(p, part), steps, new

    if patience is not None:
        p, ds, steps, kept = iterate(patience)
        enough = steps < patience
        p, ds = lax.cond(enough, lambda: (p, ds), lambda: factor(max_cg)[:2])
    elif is_direct(task.matrix):
        p, ds, steps = factor(max_cg)
    else:
        p, ds, steps, kept = iterate(max_cg)
    fine = jnp.all(jnp.isfinite(p)) & (jnp.sum(p * rhs) > 0)

    def steepest():
        down = rhs / (diagonal + jnp.where(mask, scale * jnp.max(weights / task.c), 0.0))
        return down, matrix.matvec(down)

    p, ds = lax.cond(fine, lambda: (p, ds), steepest)
    return p, ds, steps, kept


def line_search(task: Task, smooth: Smooth, w, s, p, ds, primal, accuracy=0.3, steps=50):
    """A step t > 0 along p where the derivative of the objective is within ``accuracy`` of zero, relative to t = 0.

    A guarded Newton iteration on the derivative, which stays accurate near the optimum where differences of the
    objective do not. Returns 0 if no step with a lower objective is found. An intercept is the best one all along the
    line: a fixed direction for it would stop at the first kinks of rows that it could keep where they are.
    """
    c, y, penalty = task.c, task.y, task.penalty
    q, dq = task.q(s), task.loss.orientation(task.y) * ds

    def derivative(t, q):
        at = w + t * p
        slope = directional(penalty, at, p) - jnp.sum(c * smooth.dual(q, y) * dq)
        weights = c * smooth.second(q, y)
        shift = jnp.sum(weights * ds) / jnp.maximum(jnp.sum(weights), TINY) if task.intercept else 0.0
        return slope, jnp.sum(weights * (ds - shift) ** 2) + jnp.sum(second(penalty, at) * p * p)

    def moved(t):
        return task.q(task.balanced(s + t * ds))

    def lower(t):
        rows = c * (smooth.value(moved(t), y) - smooth.value(q, y))
        return jnp.sum(rows) + jnp.sum(penalty.value(w + t * p) - penalty.value(w)) < 0

    start = derivative(jnp.zeros((), jnp.float64), q)[0]
    close = jnp.abs(start) <= 1e-10 * jnp.abs(primal)  # differences of the objective would be rounding

    def judge(t, slope, low):
        small = jnp.abs(slope) <= accuracy * jnp.abs(start)
        doubtful = small & (slope > 0) & (low == 0.0) & ~close
        return lax.cond(doubtful, lambda: lower(t), lambda: small)

    def body(state):
        k, t, low, high, slope, curvature, _ = state
        descending = slope <= 0  # NaN counts as overshooting
        low, high = jnp.where(descending, t, low), jnp.where(descending, high, t)
        newton = t - slope / curvature
        between = jnp.where(low == 0, 0.1 * high, (low + high) / 2)
        guess = jnp.where(jnp.isinf(high), 2.0 * t, between)
        far = jnp.where(jnp.isinf(high), 10.0 * t, high)
        t = jnp.where((newton > low) & (newton < far), newton, guess)
        slope, curvature = derivative(t, moved(t))
        return k + 1, t, low, high, slope, curvature, judge(t, slope, low)

    one, zero = jnp.ones((), jnp.float64), jnp.zeros((), jnp.float64)
    slope, curvature = derivative(one, moved(one))
    first = (jnp.zeros((), jnp.int32), one, zero, one * jnp.inf, slope, curvature, judge(one, slope, zero))
    state = lax.while_loop(lambda state: ~state[6] & (state[0] < steps), body, first)
    _, t, low, _, slope, _, good = state
    best = jnp.where(good | (slope <= 0), t, low)
    return jnp.where(start < 0, best, 0.0)
