"""The result of a solver, with derivatives of the optimum by the implicit function theorem."""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import lax

from jaxbounds.array import carry
from jaxbounds.conjugate import bracket
from jaxbounds.intercept import balanced_intercept, has_intercept
from jaxbounds.solvers.common import (
    TINY,
    Progress,
    Solution,
    Task,
    coordinate_step,
    kinks,
    report,
    second,
    step_slope,
)
from jaxbounds.solvers.linear import conjugate_gradients, factored, is_direct
from jaxbounds.status import Status


def with_derivatives(task: Task, w: jax.Array) -> jax.Array:
    """w unchanged, with the derivatives of the optimum by the implicit function theorem.

    The root is of psi'(w) - X^T(c o alpha(w)) on the coordinates that are not held at a kink, and of w on the others.
    An intercept is part of alpha(w), and brings its own derivatives.
    """
    loss, y = task.loss, task.y
    frozen = lax.stop_gradient(task)
    w0 = lax.stop_gradient(w)
    free = ~kinks(frozen.penalty, w.shape[0]) | (w0 != 0)

    def residual(w):
        w = jnp.where(free, w, 0.0)
        pull = task.v(loss.dual(loss.coordinate(task.scores(w), y), y))
        return jnp.where(free, task.penalty.subgradient(w)[0] - pull, w)

    def tangent_solve(_, b):
        weights = frozen.c * frozen.loss.second(frozen.q(frozen.scores(w0)), frozen.y)
        rows = frozen.rows(weights)
        diagonal = jnp.where(free, second(frozen.penalty, w0), 1.0)

        def apply(p):
            inside = rows.normal(weights, jnp.where(free, p, 0.0))
            return diagonal * p + jnp.where(free, inside, 0.0)

        if is_direct(frozen.matrix):
            precondition = factored(rows, weights, diagonal, free)
        else:
            jacobi = diagonal + jnp.where(free, frozen.matrix.map(jnp.square).rmatvec(weights), 0.0)
            precondition = lambda r: r / jacobi  # noqa: E731
        return symmetric_solve(apply, b, precondition)

    return lax.custom_root(residual, w0, lambda _, start: start, tangent_solve)


def symmetric_solve(apply, b, precondition=lambda r: r) -> jax.Array:
    """A tight solution of apply(z) = b by CG, for a symmetric positive definite map; differentiable."""

    def solve(_, b):
        both = lambda z: (apply(z), jnp.zeros((), jnp.float64))  # noqa: E731
        return conjugate_gradients(both, b, precondition, 1e-14, 10 * b.shape[0])[0]

    return lax.custom_linear_solve(apply, b, solve, symmetric=True)


def _legendre(task: Task, found: Solution, tol) -> Solution:
    """For a user's loss whose dual point was scaled: the same with alpha = -f'(ref) exactly."""
    if not task.loss.defined_by_ref or task.penalty.dual_bound is None:
        return found
    task = lax.stop_gradient(task)
    lo, _, attained, _ = bracket(lambda r: -task.loss.dual(r, task.y), -found.alpha)
    ref = jnp.where(attained, lo, found.ref)
    alpha = task.loss.dual(ref, task.y)
    gap = task.gap(found.w, task.q(task.scores(found.w)), alpha, task.v(alpha), ref)
    reached = gap <= tol * jnp.maximum(jnp.abs(found.primal), TINY)
    status = jnp.where(found.status == Status.CONVERGED, jnp.where(reached, found.status, Status.STALLED), found.status)
    return replace(found, alpha=alpha, ref=ref, gap=gap, status=status.astype(jnp.int32))


def finish(task: Task, best: Progress, tol) -> Solution:
    """The result of a smooth loss: the best point, with implicit derivatives of w, alpha, ref, primal and intercept."""
    found = _legendre(task, report(lax.stop_gradient(best), tol), tol)
    w = with_derivatives(task, found.w) if task.differentiable else found.w
    s, b, status = task.matrix.matvec(w), found.intercept, found.status
    if task.intercept:
        b = balanced_intercept(task.loss, s, task.y, task.c)
        frozen = lax.stop_gradient(task)
        finite = has_intercept(frozen.loss, lax.stop_gradient(s), frozen.y, frozen.c)
        known = finite | (status == Status.NONFINITE)
        status = jnp.where(known, status, Status.NO_INTERCEPT).astype(jnp.int32)
    if not task.differentiable:
        return replace(found, intercept=b, status=status)
    q = task.q(s + b)
    alpha, ref = carry(found.alpha, lambda: task.loss.dual(q, task.y)), carry(found.ref, lambda: q)
    primal = carry(found.primal, lambda: task.primal(w, q))
    return Solution(w, alpha, ref, found.gap, primal, found.n_steps, status, b)


def finish_kinked(task: Task, best: Progress, tol) -> Solution:
    """The best point with implicit derivatives through the dual: rows off their kinks and bounds stay fixed."""
    found = report(lax.stop_gradient(best), tol)
    if not task.differentiable:
        return found
    frozen = lax.stop_gradient(task)
    kappa = jnp.ones_like(found.alpha)

    def coordinates(task, alpha):
        return task.q(task.matrix.matvec(task.penalty.grad_conjugate(task.v(alpha))))

    e = step_slope(frozen.loss, coordinates(frozen, found.alpha), found.alpha, frozen.y, kappa)
    lo, hi = frozen.loss.domain(frozen.y)
    free = (e > 0) & (found.alpha > lo) & (found.alpha < hi)
    e = jnp.where(free, e, 1.0)

    def residual(alpha):
        alpha = jnp.where(free, alpha, found.alpha)
        step = coordinate_step(task.loss, coordinates(task, alpha), alpha, task.y, kappa)
        return jnp.where(free, task.c * (alpha - step) / e, 0.0)

    def tangent_solve(linear, b):
        return symmetric_solve(lambda z: jnp.where(free, linear(z), z), jnp.where(free, b, 0.0))

    alpha = lax.custom_root(residual, found.alpha, lambda _, start: start, tangent_solve)
    model = task.penalty.grad_conjugate(task.v(alpha))
    w = carry(found.w, lambda: model)
    q = task.q(task.matrix.matvec(w))
    primal, ref = carry(found.primal, lambda: task.primal(w, q)), carry(found.ref, lambda: q)
    return replace(found, w=w, alpha=alpha, ref=ref, primal=primal)
