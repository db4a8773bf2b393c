"""X^T D X p on dense data larger than the caches, in one pass over the rows where D is not 0."""

from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import sequential_vmap

from jaxbounds.matrix import Dense, Matrix
from jaxbounds.solvers.linear import dot

_BLOCK = 1 << 15  # entries handled at a time

Map: TypeAlias = Callable[[jax.Array], jax.Array]


def curved_products(matrix: Matrix, weights: jax.Array, shift: Map, flat: bool):
    """(times, along): times(p) = (X^T D s, part) with s = X p - shift(p), and along(p, the same sum of parts) = X p.

    Args:
        matrix: the (n, d) data.
        weights: (n,) diagonal of D, not negative.
        shift: a scalar linear in p, the answer of an intercept.
        flat: whether weights may be 0 because the loss has straight pieces.
    """

    def plain(p):
        scores = matrix.matvec(p)
        return matrix.rmatvec(weights * (scores - shift(p))), scores

    if not isinstance(matrix, Dense) or not matrix.tall:
        return plain, lambda p, scores: scores
    n = weights.shape[0]
    order, count = _kept(weights > 0) if flat else (jnp.arange(n, dtype=jnp.int32), jnp.asarray(n, jnp.int32))
    blocks = lambda p: _one_pass(matrix.values, weights, order, count, p, shift(p))  # noqa: E731
    inside = lambda p: lax.platform_dependent(p, cpu=blocks, default=lambda p: plain(p)[0])  # noqa: E731
    return lambda p: (inside(p), jnp.zeros((), jnp.float64)), lambda p, _: matrix.matvec(p)


def _kept(keep: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(where keep is True, in order, then zeros; how often)."""
    n = keep.shape[0]
    rank = jnp.cumsum(keep.astype(jnp.int32), dtype=jnp.int32)
    order = jnp.zeros(n, jnp.int32).at[jnp.where(keep, rank - 1, n)].set(jnp.arange(n, dtype=jnp.int32), mode="drop")
    return order, rank[-1]


@sequential_vmap  # several problems at once would copy each block of rows for each of them
def _one_pass(values, weights, order, count, p, shift):
    """X^T D (X p - shift) over the first `count` rows of order."""
    n, d = values.shape
    size = min(n, max(16, _BLOCK // d))
    get = lambda array, rows: array.at[rows].get(mode="promise_in_bounds")  # noqa: E731

    def step(k, total):
        first = jnp.minimum(k * size, n - size).astype(jnp.int32)  # the last block may overlap the one before it
        at, rows = first + jnp.arange(size, dtype=jnp.int32), lax.dynamic_slice_in_dim(order, first, size)
        part = jnp.where((at >= k * size) & (at < count), get(weights, rows), 0.0)
        X = get(values, rows).astype(jnp.float64)
        return total + dot(part * (dot(X, p) - shift), X)

    return lax.fori_loop(jnp.zeros((), jnp.int32), (count + (size - 1)) // size, step, jnp.zeros(d, jnp.float64))
