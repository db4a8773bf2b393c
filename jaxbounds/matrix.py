"""Data matrices: one small protocol over dense and sparse data.

Both classes offer ``shape``, ``dtype``, ``nnz``, ``matvec``, ``rmatvec``, ``normal``, ``map``, ``rows``, ``columns``,
``row_terms``, ``col_terms``, ``to_dense`` and ``to_scipy``. Values keep their own dtype (float32 or float64); products
take float64 vectors and return float64, casting the values inside. Numerical methods assume that the caller opened
``jax.enable_x64(True)``; ``as_matrix`` opens it itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jax import lax

from jaxbounds.arguments import as_array, as_numbers, checked_sparse
from jaxbounds.array import is_spread
from jaxbounds.chunks import Chunks, check_positions, grid, make_chunks
from jaxbounds.pytree import in_float64, is_traced, pytree, static
from jaxbounds.row_blocks import RowBlocks
from jaxbounds.storable import check_shape, dtype_for, from_jax_sparse, not_finite

_Product: TypeAlias = Callable[[jax.Array], jax.Array]
_BLOCK_ENTRIES = 1 << 14  # entries of a dense float32 matrix handled by one step of a scan
_TALL = 1 << 22  # entries from which on CPUs stream a dense matrix by blocks


def _dot(a: jax.Array, b: jax.Array) -> jax.Array:
    """Matrix product in full precision on every device; its gradient may be taken outside the 64-bit scope."""
    return lax.dot_general(a, b, (((a.ndim - 1,), (0,)), ((), ())), precision=lax.Precision.HIGHEST)


def _linear(forward: _Product, backward: _Product, x: jax.Array, size: int) -> jax.Array:
    """forward(x), of the given size, with backward as its transpose.

    The gradient of a gather cannot be taken outside the 64-bit scope, and would be slow. A linear solve knows its
    transpose: (x, 0) -> (x, forward(x)) solves a unit triangular system. The compiler removes the concatenation.
    """
    k = x.shape[0]

    def matvec(z):
        return jnp.concatenate([z[:k], z[k:] - forward(z[:k])])

    def solve(_, z):
        return jnp.concatenate([z[:k], z[k:] + forward(z[:k])])

    def transpose_solve(_, z):
        return jnp.concatenate([z[:k] + backward(z[k:]), z[k:]])

    both = jnp.concatenate([x, jnp.zeros(size, x.dtype)])
    return lax.custom_linear_solve(matvec, both, solve, transpose_solve)[k:]


@pytree
class Dense:
    """A dense data matrix.

    Attributes:
        values: (n, d) array, float32 or float64.
        shards: devices among which the rows are dealt evenly; blocks of rows are taken from each at once.
        one_way: see the function of this name.
    """

    values: Any
    shards: int = static(default=1)
    one_way: bool = static(default=False)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self.values.shape[0], self.values.shape[1]

    @property
    def dtype(self) -> Any:
        """The dtype of the stored values."""
        return self.values.dtype

    @property
    def nnz(self) -> int:
        """Number of stored entries, n d."""
        return self.shape[0] * self.shape[1]

    @property
    def row_terms(self) -> int:
        """Most summands in a row sum (for rounding allowances)."""
        return self.shape[1]

    @property
    def col_terms(self) -> int:
        """Most summands in a column sum (for rounding allowances)."""
        return self.shape[0]

    def blocks(self, entries: int) -> tuple[int, int]:
        """(number of row blocks, rows of a block on each device); the last block overlaps the one before it."""
        n, d = self.shape[0] // self.shards, self.shape[1]
        size = max(1, min(n, entries // d))
        return -(-n // size), size

    def block(self, i: jax.Array, size: int) -> jax.Array:
        """Row block i as float64."""
        return self.part(self.values, i, size).astype(jnp.float64)

    def part(self, array: jax.Array, i: jax.Array, size: int) -> jax.Array:
        """The rows of block i of an array with a leading axis of n."""
        part = lax.dynamic_slice_in_dim(self._dealt(array), self._start(i, size), size, 1)
        return part.reshape(-1, *array.shape[1:])

    def fresh(self, vector: jax.Array, i: jax.Array, size: int) -> jax.Array:
        """The part of a vector in block i, 0 in the rows that the block before has seen."""
        new = jnp.tile(self._start(i, size) + jnp.arange(size) >= i * size, self.shards)
        return jnp.where(new, self.part(vector, i, size), 0.0)

    def _start(self, i: jax.Array, size: int) -> jax.Array:
        return jnp.minimum(i * size, self.shape[0] // self.shards - size)

    def _dealt(self, array: jax.Array) -> jax.Array:
        return array.reshape(self.shards, -1, *array.shape[1:])

    def matvec(self, w: Any) -> jax.Array:
        """X w: float64 (n,) from float64 (d,)."""
        if self._in_one():
            return _dot(self.values.astype(jnp.float64), w)
        if self.shards > 1 or self.one_way:
            return self._blocked_matvec(w)
        return _linear(self._blocked_matvec, self._blocked_rmatvec, w, self.shape[0])

    def rmatvec(self, t: Any) -> jax.Array:
        """X^T t: float64 (d,) from float64 (n,)."""
        forward: Any = self._blocked_rmatvec
        backward: Any = self._blocked_matvec
        if self.tall and self.dtype == jnp.float64:  # XLA's code for CPUs takes twice as long on whole matrices
            forward = partial(lax.platform_dependent, cpu=forward, default=partial(_dot, b=self.values))
            backward = self.matvec
        elif self._in_one():
            return _dot(t, self.values.astype(jnp.float64))
        if self.shards > 1 or self.one_way:
            return forward(t)
        return _linear(forward, backward, t, self.shape[1])

    @property
    def tall(self) -> bool:
        """Whether the data are on one device, larger than its caches, and of many more rows than columns."""
        return self.shards == 1 and self.nnz >= _TALL and self.shape[0] >= 16 * self.shape[1]

    def _in_one(self) -> bool:
        """Whether products are single dots: no large float64 copy of float32 data is needed."""
        return self.dtype == jnp.float64 or self.blocks(_BLOCK_ENTRIES)[0] == 1

    def _blocked_matvec(self, w: jax.Array) -> jax.Array:
        count, size = self.blocks(_BLOCK_ENTRIES)

        def step(out, i):
            part = self._dealt(_dot(self.block(i, size), w))
            return lax.dynamic_update_slice_in_dim(out, part, self._start(i, size), 1), None

        out = self._dealt(jnp.zeros(self.shape[0], jnp.float64))
        return lax.scan(step, out, jnp.arange(count))[0].reshape(-1)

    def _blocked_rmatvec(self, t: jax.Array) -> jax.Array:
        count, size = self.blocks(_BLOCK_ENTRIES)

        def step(out, i):
            return out + _dot(self.fresh(t, i, size), self.block(i, size)), None

        return lax.scan(step, jnp.zeros(self.shape[1], jnp.float64), jnp.arange(count))[0]

    def normal(self, weights: jax.Array, p: jax.Array) -> jax.Array:
        """X^T diag(weights) X p: float64 (d,); float32 data are read and cast once."""
        if self._in_one():
            return self.rmatvec(weights * self.matvec(p))
        count, size = self.blocks(_BLOCK_ENTRIES)

        def step(out, i):
            rows = self.block(i, size)
            return out + _dot(self.fresh(weights, i, size) * _dot(rows, p), rows), None

        return lax.scan(step, jnp.zeros(self.shape[1], jnp.float64), jnp.arange(count))[0]

    def sample(self, most: int, weights: jax.Array) -> tuple[Dense, jax.Array]:
        """Every k-th row, and its weight times k, so that about `most` rows stand for all."""
        stride = max(1, self.shape[0] // most)
        values, weights = (self._dealt(x)[:, ::stride] for x in (self.values, weights))
        return replace(self, values=values.reshape(-1, self.shape[1])), weights.reshape(-1) * stride

    def map(self, fn: Callable[[jax.Array], jax.Array]) -> Dense:
        """The matrix with fn applied to each entry (fn(0) = 0)."""
        return replace(self, values=fn(self.values))

    def rows(self, idx: Any) -> tuple[Any, Any, Any]:
        """Entries of the rows idx: (slot in idx, column, value), each flat with len(idx) d entries."""
        d = self.shape[1]
        if isinstance(idx, np.ndarray) and not is_traced(self.values):
            k = idx.shape[0]
            slot, other = np.repeat(np.arange(k, dtype=np.int32), d), np.tile(np.arange(d, dtype=np.int32), k)
            return slot, other, np.asarray(self.values)[idx].reshape(-1)
        idx = jnp.asarray(idx)
        return *grid(idx.shape[0], d), self.values.at[idx].get(mode="clip").reshape(-1)

    def at(self, rows: Any, cols: Any) -> Any:
        """X[rows, cols], for positions in bounds."""
        values, d = self.values, self.shape[1]
        if isinstance(values, np.ndarray) and isinstance(rows, np.ndarray) and values.flags.c_contiguous:
            return values.reshape(-1).take(rows.astype(np.int64) * d + cols)  # faster than two indices
        return values[rows, cols]

    def columns(self, idx: Any) -> tuple[Any, Any, Any]:
        """Entries of the columns idx: (slot in idx, row, value), each flat with len(idx) n entries."""
        n = self.shape[0]
        if isinstance(idx, np.ndarray) and not is_traced(self.values):
            k = idx.shape[0]
            slot, other = np.repeat(np.arange(k, dtype=np.int32), n), np.tile(np.arange(n, dtype=np.int32), k)
            return slot, other, np.asarray(self.values)[:, idx].T.reshape(-1)
        idx = jnp.asarray(idx)
        return *grid(idx.shape[0], n), self.values.at[:, idx].get(mode="clip").T.reshape(-1)

    def to_dense(self) -> jax.Array:
        """The (n, d) array, in its own dtype."""
        return self.values

    def to_scipy(self) -> np.ndarray:
        """The (n, d) NumPy array (host only)."""
        return np.asarray(self.values)


@pytree
class Sparse:
    """A sparse data matrix, stored by rows and again by columns, so that both products only gather.

    Attributes:
        by_row: the entries (column, value) of each row.
        by_col: the entries (row, value) of each column.
        count: () int32 number of entries.
        one_way: see the function of this name.
    """

    by_row: Chunks
    by_col: Chunks
    count: jax.Array
    one_way: bool = static(default=False)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self.by_row.start.shape[0] - 1, self.by_col.start.shape[0] - 1

    @property
    def dtype(self) -> Any:
        """The dtype of the stored values."""
        return self.by_row.data.dtype

    @property
    def nnz(self) -> int:
        """Number of stored entries (host only)."""
        return int(self.count)

    @property
    def row_terms(self) -> int:
        """Bound of the number of summands in a row sum (for rounding allowances)."""
        return self.by_row.terms

    @property
    def col_terms(self) -> int:
        """Bound of the number of summands in a column sum (for rounding allowances)."""
        return sum(part.terms for part in self.by_col.parts())

    def matvec(self, w: Any) -> jax.Array:
        """X w: float64 (n,) from float64 (d,)."""
        if self.one_way:
            return self.by_row.reduce(w)
        return _linear(self.by_row.reduce, self.by_col.reduce, w, self.shape[0])

    def rmatvec(self, t: Any) -> jax.Array:
        """X^T t: float64 (d,) from float64 (n,)."""
        if self.one_way:
            return self.by_col.reduce(t)
        return _linear(self.by_col.reduce, self.by_row.reduce, t, self.shape[1])

    def normal(self, weights: jax.Array, p: jax.Array) -> jax.Array:
        """X^T diag(weights) X p: float64 (d,)."""
        return self.rmatvec(weights * self.matvec(p))

    def map(self, fn: Callable[[jax.Array], jax.Array]) -> Sparse:
        """The matrix with fn applied to each entry (fn(0) = 0); the structure is shared."""
        return replace(self, by_row=self.by_row.map(fn), by_col=self.by_col.map(fn))

    def rows(self, idx: Any) -> tuple[Any, Any, Any]:
        """Entries of the rows idx: (slot in idx, column, value), flat; exact on NumPy idx, else padded (0, value 0)."""
        return self.by_row.entries(idx)

    def at(self, rows: Any, cols: Any) -> Any:
        """X[rows, cols], for positions in bounds."""
        return self.by_row.at(rows, cols)

    def columns(self, idx: Any) -> tuple[Any, Any, Any]:
        """Entries of the columns idx: (slot in idx, row, value), flat; exact on NumPy idx, else padded (0, value 0)."""
        return self.by_col.entries(idx)

    def to_dense(self) -> jax.Array:
        """The (n, d) array, in its own dtype."""
        zero, part = jnp.zeros(self.shape, self.dtype), self.by_row
        return zero.at[part.owner[:, None], part.indices].add(part.data, mode="promise_in_bounds")

    def to_scipy(self) -> sp.csr_array:
        """The scipy.sparse.csr_array of the non-zero entries (host only)."""
        data, indices, start = (np.asarray(part) for part in (self.by_row.data, self.by_row.indices, self.by_row.start))
        kept = data != 0  # the rest is padding; what is kept is in the order of the rows
        before = np.concatenate([[0], np.cumsum(np.count_nonzero(kept, axis=1))])
        return sp.csr_array((data[kept], indices[kept], before[start]), shape=self.shape)


Matrix: TypeAlias = Dense | Sparse | RowBlocks


def one_way(matrix: Matrix) -> Matrix:
    """The matrix for programs that take no derivative of its products, which trace and compile in half the time."""
    return matrix if isinstance(matrix, RowBlocks) else replace(matrix, one_way=True)


@in_float64
def as_matrix(X: Any, name: str = "X") -> Matrix:
    """Data in the library's own layout: Dense from arrays, Sparse from any sparse matrix.

    Integers and booleans become float64, half types float32; duplicate sparse entries are added up. Data are copied,
    never aliased or changed. Tracers give a Dense that is not checked.

    Args:
        X: (n, d) NumPy or jax array, nested lists, scipy.sparse, jax BCOO/BCSR, Dense or Sparse.
        name: how error messages call it.

    Returns:
        Dense or Sparse.

    Raises:
        TypeError: complex, text or object data.
        ValueError: not two-dimensional, empty, not finite (names the first bad entry), or too large for 32-bit indices.

    Example:
        >>> import numpy as np, scipy.sparse as sp
        >>> from jaxbounds.matrix import as_matrix
        >>> matrix = as_matrix(sp.csr_array(np.array([[1, 0], [0, 2]])))
        >>> matrix.shape, matrix.nnz, str(matrix.dtype)
        ((2, 2), 2, 'float64')
    """
    if isinstance(X, RowBlocks):
        X.check_files()  # before a compiled program reads them, whose errors are jax's
    if isinstance(X, (Dense, Sparse, RowBlocks)):
        return X
    if type(X).__module__.startswith("jax.experimental.sparse"):
        return _dense(X.todense(), name) if is_traced(X) else _sparse(from_jax_sparse(X, name), name)
    return _sparse(X, name) if sp.issparse(X) else _dense(X, name)


def _dense(X: Any, name: str) -> Dense:
    if is_traced(X):
        return Dense(X.astype(dtype_for(X.dtype, name)))
    if is_spread(X):
        return _spread(X, name)
    where = X.sharding if isinstance(X, jax.Array) else None
    array = as_array(X, name, "rows of real numbers, equally long")
    dtype = dtype_for(array.dtype, name, lambda: as_numbers(array, name))
    check_shape(array.shape, name)
    array = np.array(array, dtype, order="C")
    finite = np.isfinite(array)
    if not finite.all():
        row, col = np.argwhere(~finite)[0]
        raise ValueError(not_finite(name, int(row), int(col), array[row, col]))
    return Dense(jax.device_put(array, where))  # compiles nothing, unlike jnp.asarray


def _spread(X: jax.Array, name: str) -> Dense:
    """Data that lie on several devices are checked there; no device ever holds them whole."""
    check_shape(X.shape, name)
    X = X.astype(dtype_for(X.dtype, name))
    if not jnp.isfinite(X).all():
        raise ValueError(f"{name} has entries that are not finite: drop or impute them")
    return Dense(X, X.shape[0] // X.sharding.shard_shape(X.shape)[0])


def _sparse(X: Any, name: str) -> Sparse:
    dtype = dtype_for(X.dtype, name)
    check_shape(X.shape, name)
    X = checked_sparse(X, name)
    check_positions(int(X.nnz), name)
    csr = X.tocsr()
    if not csr.has_canonical_format:
        csr = csr.tocsc().tocsr() if csr is X else csr  # a sorted copy: the caller's matrix is left alone
        csr.sum_duplicates()
    values = csr.data.astype(dtype, copy=False)
    finite = np.isfinite(values)
    if not finite.all():
        at = int(np.argmin(finite))
        row = int(np.searchsorted(csr.indptr, at, side="right")) - 1
        raise ValueError(not_finite(name, row, int(csr.indices[at]), values[at]))
    csr = sp.csr_array((values, csr.indices, csr.indptr), shape=X.shape)
    if not np.all(values):
        csr = csr.copy()
        csr.eliminate_zeros()
    by_col = make_chunks(csr.tocsc(), name, ends=True)  # first: its temporary arrays are gone before the rest is there
    return Sparse(make_chunks(csr, name), by_col, jax.device_put(np.int32(csr.nnz)))
