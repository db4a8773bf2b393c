"""Data on the host: reading and checking what users pass, and the matrix protocol over NumPy and scipy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np
import scipy.sparse as sp

from jaxbounds.array import on_host
from jaxbounds.display import shown
from jaxbounds.matrix import Matrix, Sparse, as_matrix
from jaxbounds.pytree import in_float64
from jaxbounds.row_blocks import RowBlocks


@dataclass(frozen=True)
@shown
class HostMatrix:
    """A data matrix on the host: an ndarray or a CSR array, with the same protocol as Dense and Sparse."""

    values: Any

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self.values.shape

    @property
    def nnz(self) -> int:
        """Stored entries."""
        return self.values.nnz if sp.issparse(self.values) else self.values.size

    @cached_property
    def row_terms(self) -> int:
        """Most summands in a row sum (for rounding allowances)."""
        return self._terms(1)

    @cached_property
    def col_terms(self) -> int:
        """Most summands in a column sum (for rounding allowances)."""
        return self._terms(0)

    def _terms(self, axis: int) -> int:
        if not sp.issparse(self.values):
            return self.shape[axis]
        counts = np.bincount(self.values.indices, minlength=1) if axis == 0 else np.diff(self.values.indptr)
        return int(counts.max())

    def matvec(self, w):
        """X w: float64 (n,) from float64 (d,)."""
        return self.values @ w if self.values.dtype == np.float64 else self.values.astype(np.float64) @ w

    def matmat(self, columns: sp.csc_array):
        """X C: a float64 array (n, k) from a sparse (d, k); a column of the result depends on its column of C alone."""
        if sp.issparse(self.values):
            return (self.values.astype(np.float64) @ columns).toarray()
        return np.ascontiguousarray((columns.T @ self.values.T.astype(np.float64)).T)

    def rmatvec(self, t):
        """X^T t: float64 (d,) from float64 (n,)."""
        return self.values.T @ t if self.values.dtype == np.float64 else self.values.T.astype(np.float64) @ t

    def entries(self):
        """(row, column, value) of every entry."""
        if sp.issparse(self.values):
            coo = self.values.tocoo()
            return coo.row, coo.col, coo.data
        n, d = self.shape
        return np.repeat(np.arange(n), d), np.tile(np.arange(d), n), self.values.reshape(-1)

    def map(self, fn: Callable) -> HostMatrix:
        """The matrix with fn applied to each entry in float64 (fn(0) = 0)."""
        if not sp.issparse(self.values):
            return HostMatrix(fn(self.values.astype(np.float64, copy=False)))
        data = fn(self.values.data.astype(np.float64, copy=False))
        return HostMatrix(sp.csr_array((data, self.values.indices, self.values.indptr), shape=self.shape))


@dataclass(frozen=True)
class InPlace:
    """Large sparse data as they lie on the CPU: compiled products of NumPy vectors, for which nothing is copied."""

    matrix: Sparse
    fn: Callable | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self.matrix.shape

    @cached_property
    def row_terms(self) -> int:
        """Most summands in a row sum (for rounding allowances)."""
        return self.matrix.by_row.longest()

    @cached_property
    def col_terms(self) -> int:
        """Most summands in a column sum (for rounding allowances)."""
        return self.matrix.by_col.longest()

    @in_float64
    def matvec(self, w):
        """X w: float64 (n,) from float64 (d,)."""
        return np.asarray(self.matrix.by_row.reduce(w, self.fn))

    @in_float64
    def rmatvec(self, t):
        """X^T t: float64 (d,) from float64 (n,)."""
        return np.asarray(self.matrix.by_col.reduce(t, self.fn))

    def map(self, fn: Callable) -> InPlace:
        """The matrix with fn applied to each entry in float64 (fn(0) = 0), whenever it is read."""
        assert self.fn is None
        return InPlace(self.matrix, fn)


def host_matrix(matrix: Matrix | HostMatrix) -> Matrix | HostMatrix:
    """The matrix on the host if it is concrete, itself otherwise."""
    if isinstance(matrix, HostMatrix | RowBlocks) or not on_host(matrix):
        return matrix
    return HostMatrix(matrix.to_scipy())


def matrix_of(X: Any, host: bool, name: str = "X") -> Matrix | HostMatrix:
    """Checked data, on the host if the rest of the computation runs there."""
    if isinstance(X, HostMatrix):
        return X if host else as_matrix(X.values, name)
    return host_matrix(as_matrix(X, name)) if host else as_matrix(X, name)


def on_device(tree: Any) -> Any:
    """The tree with matrices that jax can carry in place of those on the host."""

    def moved(leaf):
        return as_matrix(leaf.values) if isinstance(leaf, HostMatrix) else leaf

    return jax.tree.map(moved, tree)
