"""The epochs of `DualCoordinate(compiled=True)`: single coordinate steps of the dual, in C (sdca.c)."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxbounds.interfaces import Loss
from jaxbounds.logistic import Logistic
from jaxbounds.losses import Hinge
from jaxbounds.matrix import Dense, Sparse
from jaxbounds.solvers.common import Task
from jaxbounds.solvers.compiled import REMEDY, call, check_machine, whole


def _kinks(loss: Loss) -> tuple | None:
    """Where f' bends or jumps, None unless f consists of straight and quadratic pieces."""
    if isinstance(loss, Hinge):
        return (1.0,)
    return tuple(loss.kinks) if loss.piecewise_quadratic else None


def check(problem: Any) -> None:
    """Raise unless the C code knows the loss and the penalty, and the machine can build and run it."""
    loss, penalty = problem.loss, problem.penalty
    if not isinstance(loss, Logistic) and _kinks(loss) is None:
        raise ValueError(f"DualCoordinate(compiled=True) knows the logistic loss and losses of straight and quadratic "
                         f"pieces, not {loss.name}; {REMEDY}")  # fmt: skip
    if not penalty.piecewise_quadratic:
        raise ValueError(f"DualCoordinate(compiled=True) knows L2 and the elastic net, not {penalty.name}; {REMEDY}")
    check_machine()


def _pieces(loss: Loss) -> jax.Array:
    """(9,): the kinks, then level and slope of -f'(q) = level - slope q on the pieces between them."""
    kinks = _kinks(loss)
    if kinks is None:
        return jnp.full(9, jnp.nan)
    kinks = [*(jnp.asarray(k, jnp.float64) for k in kinks), *[jnp.asarray(jnp.inf)] * (2 - len(kinks))]
    low = jnp.where(jnp.isfinite(kinks[0]), kinks[0], 0.0)
    high = jnp.where(jnp.isfinite(kinks[1]), kinks[1], low + 2.0)
    at, one = jnp.stack([low - 1.0, (low + high) / 2, high + 1.0]), jnp.ones(3)
    slope = loss.second(at, one)
    return jnp.concatenate([jnp.stack(kinks), loss.dual(at, one) + slope * at, slope])


def curvature(task: Task) -> jax.Array:
    """(n,) kappa_i = c_i sum_j x_ij^2 / lam_j."""
    inverse = jnp.broadcast_to(1.0 / jnp.asarray(task.penalty.strong_convexity), (task.matrix.shape[1],))
    if isinstance(task.matrix, Sparse):
        return task.c * task.matrix.by_row.reduce(inverse, jnp.square)
    return task.c * task.matrix.map(jnp.square).matvec(inverse)


def epochs(task: Task, alpha: jax.Array, v: jax.Array, kappa: jax.Array, count, seed) -> tuple[jax.Array, jax.Array]:
    """(alpha, v) after so many passes over the rows, each in a new random order."""
    n, d = task.matrix.shape
    lam = jnp.asarray(task.penalty.strong_convexity)
    l1 = jnp.broadcast_to(task.penalty.subgradient(jnp.zeros(d))[1], (d,))
    plain = jnp.all(l1 == 0) & jnp.all(lam == lam.reshape(-1)[0])
    offset = task.loss.coordinate(jnp.zeros(n), task.y)
    orientation = jnp.broadcast_to(task.loss.orientation(task.y), (n,))
    if isinstance(task.matrix, Sparse):
        part = task.matrix.by_row
        data, index, start = part.data, part.indices, part.start
    else:
        assert isinstance(task.matrix, Dense)  # fit refuses RowBlocks
        if task.matrix.shards > 1:
            raise ValueError(f"DualCoordinate(compiled=True) runs on one device, and X lies on several; {REMEDY}")
        data, start = task.matrix.values, jnp.arange(n + 1, dtype=jnp.int32)
        index = jnp.zeros((0, 0), jnp.int32)
    inverse = jnp.broadcast_to(1.0 / lam, (d,))
    numbers = whole(plain), _pieces(task.loss), whole(count), whole(seed)
    vectors = task.c, orientation, offset, kappa, inverse, l1
    return call("sdca", (alpha, v), *vectors, *numbers, data, index, start)
