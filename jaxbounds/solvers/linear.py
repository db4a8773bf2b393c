"""Linear algebra of the solvers: Gram matrices, factored Hessians, conjugate gradients, and centred rows."""

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

from jaxbounds.array import Array
from jaxbounds.chunks import take
from jaxbounds.matrix import Dense, Matrix, Sparse
from jaxbounds.pytree import pytree

_DIRECT_SIDE, _DIRECT_WORK = 512, 1e8  # Hessians up to this side and n d min(n, d) are factored
_SMALL_WORK = 1e6  # n d min(n, d) up to which CG is never clearly faster than factoring (455 x 30: within 1.4)
_FACTORED_SIDE = 2048  # NewtonCG tries CG before factoring Hessians up to this side: CG is up to 8 times faster
_BLOCK_ENTRIES = 1 << 18  # entries of the data in one step of a Gram matrix
_SAMPLED = 16  # rows a column in a sampled Hessian
_PACE = 0.25  # CG with an old factor must shrink the residual to this part a step: a new one takes some products
DENSE_ENTRIES = 1 << 23  # sparse data up to this many dense entries may be factored too


@pytree
class Centred:
    """X - 1 centre^T, the rows as they act on the scores when an unpenalised intercept follows the coefficients.

    With D = diag(weights) and centre = X^T D 1 / 1^T D 1, the intercept's answer to a step p is -centre.p, and
    (X - 1 centre^T)^T D (X - 1 centre^T) is the Schur complement of the intercept in [X 1]^T D [X 1].
    """

    matrix: Matrix
    centre: Array

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self.matrix.shape

    def matvec(self, p: jax.Array) -> jax.Array:
        """The change of the scores, intercept included."""
        return self.matrix.matvec(p) - jnp.sum(self.centre * p)

    def rmatvec(self, t: jax.Array) -> jax.Array:
        """(X - 1 centre^T)^T t."""
        return self.matrix.rmatvec(t) - jnp.sum(t) * self.centre

    def normal(self, weights: jax.Array, p: jax.Array) -> jax.Array:
        """(X - 1 centre^T)^T diag(weights) (X - 1 centre^T) p."""
        return self.rmatvec(weights * self.matvec(p))


Rows: TypeAlias = Matrix | Centred


def centred(matrix: Matrix, weights: jax.Array) -> Centred:
    """The rows minus their weighted mean, minus nothing where all weights are 0: the intercept then stays."""
    total = jnp.sum(weights)
    mean = matrix.rmatvec(weights) / jnp.where(total > 0, total, 1.0)
    return Centred(matrix, mean)


def dot(a: jax.Array, b: jax.Array) -> jax.Array:
    """Matrix product in full precision on every device."""
    return jnp.dot(a, b, precision=lax.Precision.HIGHEST)


def answer(rows: "Rows"):
    """p -> centre^T p, by which the intercept falls as the coefficients move by p; 0 without one."""
    return (lambda p: jnp.sum(rows.centre * p)) if isinstance(rows, Centred) else (lambda p: jnp.zeros(()))


def column_scale(matrix: Matrix, c: jax.Array, intercept: bool) -> jax.Array:
    """sum_i c_i x_ij^2 for preconditioning, (d,), about the mean where an intercept takes it out.

    From a few thousand rows if the data are dense.
    """
    if isinstance(matrix, Dense):
        matrix, c = matrix.sample(4096, c)
    if isinstance(matrix, Sparse):
        by_col = matrix.by_col  # neither makes a squared copy of the data, which costs three products
        alike = jnp.all(c == c[0])
        squares = lax.cond(
            alike, lambda: c[0] * by_col.reduce(None, jnp.square), lambda: by_col.reduce(c, jnp.square)
        )
    else:
        squares = matrix.map(jnp.square).rmatvec(c)
    if not intercept:
        return squares
    return jnp.maximum(squares - matrix.rmatvec(c) ** 2 / jnp.sum(c), 1e-6 * squares)


def fits_dense(matrix: Matrix) -> bool:
    """Whether the data are dense, or sparse and small enough to be made dense."""
    small = matrix.shape[0] * matrix.shape[1] <= DENSE_ENTRIES
    return isinstance(matrix, Dense) or (isinstance(matrix, Sparse) and small)


def is_direct(matrix: Matrix) -> bool:
    """Whether Hessians of this size are always factored."""
    n, d = matrix.shape
    return fits_dense(matrix) and min(n, d) <= _DIRECT_SIDE and float(n) * d * min(n, d) <= _DIRECT_WORK


def weighted_gram(matrix: Rows, scale: jax.Array, axis: int) -> jax.Array:
    """X^T diag(scale) X for axis 0, X diag(scale) X^T for axis 1, by blocks and without a float64 copy of the data."""
    matrix, centre = (matrix.matrix, matrix.centre) if isinstance(matrix, Centred) else (matrix, None)
    rows = matrix if isinstance(matrix, Dense) else Dense(matrix.to_dense())
    length, side = rows.shape[axis], rows.shape[1 - axis]
    count, size = rows.blocks(_BLOCK_ENTRIES) if axis == 0 else _in_blocks(length, side)

    def by_rows(k):
        block = rows.block(k, size) if centre is None else rows.block(k, size) - centre[None, :]
        return block.T, rows.fresh(scale, k, size)

    def by_columns(k):
        first = jnp.minimum(k * size, length - size)
        block = lax.dynamic_slice_in_dim(rows.values, first, size, 1).astype(jnp.float64)
        if centre is not None:
            block = block - lax.dynamic_slice_in_dim(centre, first, size)[None, :]
        fresh = first + jnp.arange(size) >= k * size  # the last block overlaps the one before it
        return block, jnp.where(fresh, lax.dynamic_slice_in_dim(scale, first, size), 0.0)

    def step(total, k):
        block, part = (by_columns if axis else by_rows)(k)
        return total + dot(block * part[None, :], block.T), None

    return lax.scan(step, jnp.zeros((side, side), jnp.float64), jnp.arange(count))[0]


def _in_blocks(length: int, side: int) -> tuple[int, int]:
    """(number of blocks, columns in a block)."""
    width = min(length, max(1, _BLOCK_ENTRIES // side))
    return -(-length // width), width


def solve_with(L: jax.Array):
    """b -> p with L L^T p = b."""
    return lambda b: jax.scipy.linalg.cho_solve((L, True), b)


def _column_factor(matrix: Rows, weights: jax.Array, diagonal: jax.Array, mask: jax.Array) -> jax.Array:
    inside = mask[:, None] & mask[None, :]
    return jnp.linalg.cholesky(jnp.where(inside, weighted_gram(matrix, weights, 0), 0.0) + jnp.diag(diagonal))


def factored(matrix: Rows, weights: jax.Array, diagonal: jax.Array, mask: jax.Array):
    """b -> p with (diag(diagonal) + M X^T diag(weights) X M) p = b, M = diag(mask), by Cholesky."""
    n, d = matrix.shape
    if d <= n:
        return solve_with(_column_factor(matrix, weights, diagonal, mask))
    root, scale = jnp.sqrt(weights), jnp.where(mask, 1.0 / diagonal, 0.0)
    L = jnp.linalg.cholesky(root[:, None] * weighted_gram(matrix, scale, 1) * root[None, :] + jnp.eye(n))

    def apply(b):
        inner = root * solve_with(L)(root * matrix.matvec(scale * b))
        return b / diagonal - scale * matrix.rmatvec(inner)

    return apply


def sample_size(matrix: Matrix) -> int | None:
    """How many rows make a preconditioner of few columns; None if that would not pay.

    With 16 rows a column the eigenvalues of the preconditioned Hessian are near (1 -+ 1/4)^2. Forming and factoring it
    takes a multiple of d^3 operations, which are to be no more than a few products with all the data.
    """
    if not isinstance(matrix, Dense | Sparse):
        return None  # rows on disk are read in blocks
    n, d = matrix.shape
    stored = matrix.by_row.data.size if isinstance(matrix, Sparse) else n * d
    spread = isinstance(matrix, Dense) and matrix.shards > 1
    if spread or n < 2 * _SAMPLED * d or float(d) ** 3 > 10.0 * stored:
        return None
    if isinstance(matrix, Sparse) and _SAMPLED * d * matrix.row_terms > stored:
        return None
    return _SAMPLED * d


def sample_rows(matrix: Matrix, weights: jax.Array, most: int) -> tuple[Dense, jax.Array]:
    """At most so many rows, dense, and weights under which they stand for all.

    A systematic sample: a row is drawn with probability min(1, its weight times a constant), and its weight divided by
    that. If few enough rows have a weight, each of them is there with its own.
    """
    rate = most / jnp.maximum(jnp.sum(weights), 1e-200)
    for _ in range(3):  # rows that are certain leave their share to the others
        rate = rate * most / jnp.maximum(jnp.sum(jnp.minimum(1.0, rate * weights)), 1.0)
    part = jnp.minimum(1.0, rate * weights)
    ends, at = jnp.cumsum(part), jnp.arange(most, dtype=jnp.float64) + 0.5
    row = jnp.minimum(jnp.searchsorted(ends, at), weights.shape[0] - 1).astype(jnp.int32)
    chosen = jnp.where(at < ends[-1], take(weights, row) / jnp.maximum(take(part, row), 1e-300), 0.0)
    if not isinstance(matrix, Sparse):
        return Dense(matrix.values.at[row].get(mode="promise_in_bounds")), chosen
    slot, column, value = matrix.rows(row)
    zero = jnp.zeros((most, matrix.shape[1]), matrix.dtype)
    return Dense(zero.at[slot, column].add(value, mode="promise_in_bounds")), chosen


def sampled(matrix: Rows, weights: jax.Array, diagonal: jax.Array, mask: jax.Array) -> jax.Array:
    """The Cholesky factor of the Hessian with some of the rows in place of all, where `sample_size` is not None."""
    whole = matrix.matrix if isinstance(matrix, Centred) else matrix
    most = sample_size(whole)
    assert most is not None
    rows, chosen = sample_rows(whole, weights, most)
    return _column_factor(Centred(rows, matrix.centre) if isinstance(matrix, Centred) else rows, chosen, diagonal, mask)


def conjugate_gradients(apply, b, precondition, rtol, max_steps, start: Any = None, pace: float = 1.0):
    """Preconditioned CG for A p = b until ||r|| <= rtol ||b|| in the preconditioner's norm: (p, B p, steps, r, done).

    ``apply(p)`` returns (A p, B p); B is any linear map that comes free with A. It begins at ``start``, a former
    (p, B p, r), and gives up where ||r|| does not shrink to that part, the pace, at every step but the first.
    """

    def body(state):
        p, along, r, direction, rz, k = state
        image, part = apply(direction)
        curvature = jnp.sum(direction * image)
        a = jnp.where(curvature > 0, rz / jnp.where(curvature > 0, curvature, 1.0), 0.0)
        p, along, r = p + a * direction, along + a * part, r - a * image
        z = precondition(r)
        new = jnp.sum(r * z)
        # no positive curvature left, or not a number: stop
        return p, along, r, z + (new / rz) * direction, jnp.where((a > 0) & (new > 0), new, 0.0), k + 1

    def going(state):
        enough = state[4] <= limit
        if pace < 1.0:
            enough = enough | (state[4] > whole * pace ** (2.0 * (state[5].astype(jnp.float64) - 1.0)))
        return ~enough & (state[5] < max_steps)

    z = precondition(b)
    whole = jnp.sum(b * z)
    limit, rz = rtol * rtol * whole, whole
    if start is None:
        start = jnp.zeros_like(b), jnp.zeros(jax.eval_shape(apply, b)[1].shape, jnp.float64), b
    else:
        z = precondition(start[2])
        rz = jnp.sum(start[2] * z)
    p, along, r, _, rz, steps = lax.while_loop(going, body, (*start, z, rz, jnp.zeros((), jnp.int32)))
    return p, along, steps, r, rz <= limit


def renewed_gradients(apply, b, factor, fresh, rtol, max_steps):
    """CG with a Cholesky factor as long as it shrinks ||r|| well, then with a fresh one: (p, B p, steps, factor)."""
    p, along, first, r, done = conjugate_gradients(apply, b, solve_with(factor), rtol, max_steps, pace=_PACE)

    def renew():
        new = fresh()
        end = conjugate_gradients(apply, b, solve_with(new), rtol, max_steps - first, start=(p, along, r))
        return end[0], end[1], first + end[2], new

    return lax.cond(done | (first >= max_steps), lambda: (p, along, first, factor), renew)


def break_even(matrix: Matrix) -> int | None:
    """How many CG steps cost as much as one factored Hessian; None where the size alone decides (`is_direct`)."""
    n, d = matrix.shape
    side = min(n, d)
    if not fits_dense(matrix) or side > _FACTORED_SIDE or float(n) * d * side <= _SMALL_WORK:
        return None
    return max(8, side // 4)
