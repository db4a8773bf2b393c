"""One epoch of stochastic dual coordinate ascent in blocks of rows, on dense and on sparse data."""

import jax
import jax.numpy as jnp
from jax import lax

from jaxbounds.chunks import take
from jaxbounds.matrix import Dense, Sparse
from jaxbounds.solvers.common import Task, coordinate_step

_ROWS = 32  # rows in a block
_TILE = 64  # chunks of a sparse block handled at a time
_PRIMES = (2147483647, 2147483629, 2147483587, 2147483579, 2147483563, 2147483549, 2147483543, 2147483497)


def _blocks(n: int) -> tuple[int, int]:
    """(number of blocks, rows in a block); the last block overlaps the one before it."""
    rows = min(_ROWS, n)
    return -(-n // rows), rows


def _first_row(k, epoch, n: int) -> jax.Array:
    """First row of the k-th block of an epoch: blocks in the order offset + k prime (mod count), a cheap shuffle."""
    count, rows = _blocks(n)
    prime = jnp.asarray(_PRIMES, jnp.int64)[epoch % len(_PRIMES)]
    block = (k.astype(jnp.int64) * prime + epoch.astype(jnp.int64) * 7919) % count
    return jnp.minimum(block * rows, n - rows).astype(jnp.int32)


def _cut(array: jax.Array, first, rows: int) -> jax.Array:
    return lax.dynamic_slice_in_dim(array, first, rows)


def _paste(array: jax.Array, part: jax.Array, first) -> jax.Array:
    return lax.dynamic_update_slice_in_dim(array, part, first, 0)


def _tiles(part, first, rows: int, body, carry):
    """Fold body(carry, data, indices, slot) over the chunks of ``rows`` sparse rows; slot = row - first."""
    low, high = part.start[first], part.start[first + rows]
    size = min(_TILE, part.owner.shape[0])

    def step(state):
        at, carry = state
        start = jnp.minimum(at, part.owner.shape[0] - size)
        chunk = start + jnp.arange(size, dtype=jnp.int32)
        data = jnp.where(((chunk >= at) & (chunk < high))[:, None], _cut(part.data, start, size), 0.0)
        slot = jnp.clip(_cut(part.owner, start, size) - first, 0, rows - 1)
        return at + size, body(carry, data.astype(jnp.float64), _cut(part.indices, start, size), slot)

    return lax.while_loop(lambda state: state[0] < high, step, (low, carry))[1]


def _gather_rows(part, first, rows: int, values):
    """(rows,) sums over each row of data * values(indices)."""

    def body(sums, data, indices, slot):
        return sums.at[slot].add(jnp.sum(data * values(indices), axis=1), mode="promise_in_bounds")

    return _tiles(part, first, rows, body, jnp.zeros(rows, jnp.float64))


def _scatter_rows(part, first, rows: int, weights, out):
    """out + X_block^T weights."""

    def body(out, data, indices, slot):
        return out.at[indices].add(data * take(weights, slot)[:, None], mode="promise_in_bounds")

    return _tiles(part, first, rows, body, out)


def _inverse(task: Task, d: int) -> jax.Array:
    """1 / lam, (d,)."""
    lam = task.penalty.strong_convexity
    assert lam is not None  # DualCoordinate.check
    return jnp.broadcast_to(1.0 / lam, (d,))


def block_curvature(task: Task) -> jax.Array:
    """(n,) kappa_i such that the rows of a block may step together: row sums of |X_b| diag(1/lam) |X_b|^T c.

    For dense data the rows of a block step one after the other, and kappa is c_i ||x_i||^2 / lam.
    """
    n, d = task.matrix.shape
    inverse = _inverse(task, d)
    matrix = task.matrix
    if isinstance(matrix, Dense):
        return task.c * matrix.map(jnp.square).matvec(inverse)
    count, rows = _blocks(n)
    assert isinstance(matrix, Sparse)  # fit refuses RowBlocks
    part = matrix.map(jnp.abs).by_row

    def step(k, state):
        kappa, buffer = state
        first = jnp.minimum(k * rows, n - rows).astype(jnp.int32)
        weights = _cut(task.c, first, rows)
        buffer = _scatter_rows(part, first, rows, weights, buffer)
        sums = _gather_rows(part, first, rows, lambda j: take(buffer, j) * take(inverse, j))

        def clear(out, data, indices, slot):
            return out.at[indices].set(0.0, mode="promise_in_bounds")

        kappa = _paste(kappa, jnp.maximum(sums, _cut(kappa, first, rows)), first)
        return kappa, _tiles(part, first, rows, clear, buffer)

    return lax.fori_loop(0, count, step, (jnp.zeros(n, jnp.float64), jnp.zeros(d, jnp.float64)))[0]


def epoch(task: Task, alpha: jax.Array, v: jax.Array, kappa: jax.Array, number) -> jax.Array:
    """alpha after one pass over the rows, blocks in shuffled order."""
    n, d = task.matrix.shape
    count, rows = _blocks(n)
    orientation = task.loss.orientation(task.y)
    loss, penalty, c, y, matrix = task.loss, task.penalty, task.c, task.y, task.matrix
    inverse = _inverse(task, d)

    def sparse_block(k, state):
        alpha, v = state
        assert isinstance(matrix, Sparse)
        part, first = matrix.by_row, _first_row(k, number, n)
        cut = lambda array: _cut(array, first, rows)  # noqa: E731

        def primal(indices):
            flat = indices.reshape(-1)
            return penalty.take(flat).grad_conjugate(take(v, flat)).reshape(indices.shape)

        q = loss.coordinate(_gather_rows(part, first, rows, primal), cut(y))
        new = coordinate_step(loss, q, cut(alpha), cut(y), cut(kappa))
        weights = cut(c) * cut(orientation) * (new - cut(alpha))
        return _paste(alpha, new, first), _scatter_rows(part, first, rows, weights, v)

    def dense_block(k, state):
        alpha, v = state
        first = _first_row(k, number, n)
        assert isinstance(matrix, Dense)
        X = _cut(matrix.values, first, rows).astype(jnp.float64)
        cut = lambda array: _cut(array, first, rows)  # noqa: E731
        dot = lambda a, b: jnp.dot(a, b, precision=lax.Precision.HIGHEST)  # noqa: E731
        old, targets, curvature, o, weight = cut(alpha), cut(y), cut(kappa), cut(orientation), cut(c)
        q = loss.coordinate(dot(X, penalty.grad_conjugate(v)), targets)
        gram = o[:, None] * dot(X * inverse[None, :], X.T) * (o * weight)[None, :]

        def one(i, state):
            q, a = state
            at = lambda array: lax.dynamic_index_in_dim(array, i, keepdims=False)  # noqa: E731
            new = coordinate_step(loss, at(q), at(a), at(targets), at(curvature))
            column = lax.dynamic_index_in_dim(gram, i, axis=1, keepdims=False)
            return q + column * (new - at(a)), lax.dynamic_update_index_in_dim(a, new, i, 0)

        new = lax.fori_loop(0, rows, one, (q, old))[1]
        return _paste(alpha, new, first), v + dot(weight * o * (new - old), X)

    block = dense_block if isinstance(matrix, Dense) else sparse_block
    return lax.fori_loop(0, count, block, (alpha, v))[0]
