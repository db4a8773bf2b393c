"""Proximal gradient steps under the squared loss, where v = X^T t is linear in w: a step is one product X^T D X p."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxbounds.losses import Squared
from jaxbounds.pytree import pytree
from jaxbounds.solvers.common import TINY, Task, second
from jaxbounds.solvers.curved import curved_products
from jaxbounds.solvers.linear import answer

_FAST = 0.3  # steps go on as long as one shrinks the gap to this part
_QUICK = 0.1  # momentum only holds up steps whose squares shrink to this part


def is_quadratic(problem: Any) -> bool:
    """Whether the loss of a problem or task is q^2 / 2."""
    return isinstance(problem.loss, Squared)


@pytree
class _At:
    """A point, and what is linear in it: v, and the parts from which `curved_products` makes scores."""

    w: jax.Array
    v: jax.Array
    part: jax.Array

    def towards(self, other: "_At", t) -> "_At":
        """self + t (other - self)."""
        return jax.tree.map(lambda a, b: a + t * (b - a), self, other)


def _lowest(penalty, old: _At, now: _At, end: _At) -> tuple[_At, jax.Array]:
    """(the lowest point of the plane through three points by its curvature, whether it has their support and is lower).

    As long as the support stays these are conjugate gradients, preconditioned by the metric.
    """
    moves = end.w - now.w, now.w - old.w
    pulls = now.v - end.v, old.v - now.v
    slope, curvature = now.v - penalty.subgradient(now.w)[0], second(penalty, now.w)
    H = lambda i, j: jnp.sum(moves[i] * (pulls[j] + curvature * moves[j]))  # noqa: E731
    (aa, ab, bb), (a, b) = (H(0, 0), H(0, 1), H(1, 1)), (jnp.sum(slope * move) for move in moves)
    det = aa * bb - ab * ab
    regular = det > 1e-10 * aa * bb
    det = jnp.where(regular, det, 1.0)
    along, beyond = (bb * a - ab * b) / det, (aa * b - ab * a) / det
    new = jax.tree.map(lambda x, y, z: y + along * (z - y) + beyond * (y - x), old, now, end)
    sides = jnp.sign(jnp.stack([old.w, now.w, end.w, new.w]))

    def change(point: _At):
        return jnp.sum(penalty.value(point.w) - penalty.value(now.w) - 0.5 * (now.v + point.v) * (point.w - now.w))

    return new, regular & jnp.all(sides == sides[1:2]) & (change(new) <= change(end))


def quadratic_steps(task: Task, w, s, v, metric, lipschitz, least, most, goal):
    """(w, s, v, lipschitz, gap) after accelerated proximal gradient steps, until the relative gap is at most goal.

    At least `least` and at most `most` steps. With p from the point to that of the proximal step and
    L = p^T X^T D X p / p^T diag(metric) p, a step that is too long for L is cut to the part that is not; no product is
    spent on trying again. As the loss is q^2 / 2, its value changes by -(v + v')^T (w' - w) / 2, and a dual point
    shrunk by sigma has the rows' gap (1 - sigma)^2 times it: so the gap is known without the rows.
    """
    penalty, weights = task.penalty, task.c
    rows = task.rows(weights)
    times, along = curved_products(task.matrix, weights, shift := answer(rows), False)
    value = jnp.sum(weights * task.loss.value(task.q(s), task.y))

    def gap_of(point: _At):
        sigma, pull = task.feasible(jnp.ones(()), point.v)
        loss = jnp.maximum(value - 0.5 * jnp.sum((v + point.v) * (point.w - w)), 0.0)
        gap = (1.0 - sigma) ** 2 * loss + jnp.sum(penalty.fenchel_young(point.w, pull))
        return gap / jnp.maximum(jnp.abs(loss + jnp.sum(penalty.value(point.w))), TINY)

    def going(state):
        k, _, _, _, _, gap, before, whole, _ = state
        return (k < most) & (gap > goal) & ((k < least) | (gap <= _FAST * before) | ~whole)

    def one(state):
        k, now, old, theta, length, gap, _, _, size = state
        theta_new = (1.0 + jnp.sqrt(1.0 + 4.0 * theta * theta)) / 2.0
        at = now.towards(old, (1.0 - theta) / theta_new)
        end = penalty.prox(at.w + at.v / (length * metric), 1.0 / (length * metric))
        p = end - at.w
        inside, part = times(p)
        before, size = size, jnp.sum(metric * p * p)
        needed = jnp.sum(p * inside) / jnp.maximum(size, TINY)
        t = jnp.minimum(1.0, length / jnp.maximum(needed, TINY))
        aim = _At(end, at.v - inside, at.part + part)
        new = at.towards(aim, t)
        uphill = jnp.sum(metric * (at.w - new.w) * (new.w - now.w)) > 0
        plane, lower = _lowest(penalty, old, now, aim)
        lower = lower & (theta == 1.0)  # without momentum `at` is `now`
        new = jax.tree.map(lambda a, b: jnp.where(lower, a, b), plane, new)
        restart = uphill | lower | (size <= _QUICK * before)  # from the new point without momentum
        theta, length = jnp.where(restart, 1.0, theta_new), jnp.maximum(0.95 * length, needed)
        return k + 1, new, now, theta, length, gap_of(new), gap, lower | (t == 1.0), size

    part = jax.eval_shape(times, w)[1]
    start = _At(w, v, jnp.zeros(part.shape, part.dtype))
    unit, far = jnp.ones((), jnp.float64), jnp.asarray(jnp.inf, jnp.float64)
    first = (jnp.zeros((), jnp.int32), start, start, unit, lipschitz, far, far, jnp.asarray(False), far)
    _, end, _, _, length, gap, *_ = lax.while_loop(going, one, first)
    moved = end.w - w
    return end.w, task.balanced(s + along(moved, end.part) - shift(moved)), end.v, length, gap
