"""Data that are read a block of rows at a time, from files larger than memory: the matrix protocol of `RowBlocks`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from jaxbounds.array import to_host
from jaxbounds.block_product import block_product
from jaxbounds.callbacks import inside_trace, on_the_host
from jaxbounds.chunks import grid
from jaxbounds.pytree import is_traced
from jaxbounds.row_files import CHANGED, Block, Changed, DenseRows, SparseRows, csr_block, open_rows, stacked
from jaxbounds.storable import check_shape, dtype_for, not_finite

_ON_NUMPY: dict[Any, Callable] = {jnp.abs: np.abs, jnp.square: np.square}  # a callback must not call jax
_WHOLE = (
    "this needs the data in memory as a whole, and RowBlocks reads them a block of rows at a time; if they fit, fit on "
    "RowBlocks.load()"
)


@jax.tree_util.register_static
class RowBlocks:
    """Data read a block of rows at a time, so that only the file need be large: memory is O(n + d) and one block.

    `fit`, `refit`, `bound`, `bound_each`, `decide` and `scores` take it wherever they take X. Every product is one pass
    over the file, also inside jit (a callback to the host). The data are read, checked and counted once here; they must
    not change afterwards. Changes of rows, elements, targets, weights and penalties read only the rows they touch;
    changes of columns read everything. What needs the data as a whole (`leave_one_out` and other sweeps over rows,
    `Curvature`, `with_factor`, `DualCoordinate` epochs, `save` with data, refits after changes of columns) is refused
    by name.

    Args:
        source: one of, or a list of, whose rows follow each other:
            the path of an .npy file with an (n, d) array, which is mapped;
            the path of a folder with data.npy, indices.npy and indptr.npy, the arrays of CSR data, mapped (32-bit
            indices and float64 values are read in place, others are converted at every pass);
            the path of an .npz file that scipy.sparse.save_npz(path, X.tocsr(), compressed=False) wrote, mapped
            (slower than a folder: its arrays lie at odd addresses and are copied at every pass);
            an array (a np.memmap, say) or a scipy.sparse matrix in memory, which is then not copied;
            or an iterable of arrays or scipy.sparse blocks that can be read again and again, or a function that makes
            one (a generator function). All blocks are sparse, or none.
        columns: d, needed for folders only.

    Raises:
        TypeError: an iterator that can be read only once, or data that are not real numbers.
        ValueError: blocks of different widths, an entry that is not finite, a row that holds a column twice, a file
            that cannot be mapped.
        RuntimeError: later, if files were written to, an iterable begins otherwise (a loader that shuffles), or blocks
            have other sizes.

    Example:
        >>> import os, tempfile, numpy as np, jaxbounds as jb
        >>> path = os.path.join(tempfile.mkdtemp(), "X.npy")
        >>> np.save(path, np.eye(3, 2))
        >>> problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0))
        >>> model = jb.fit(problem, jb.RowBlocks(path), np.ones(3))
        >>> jb.bound(model, jb.remove_rows([0])).scores(np.eye(2)).lower.shape
        (2,)
    """

    def __init__(self, source: Any, columns: int | None = None):
        self._functions: tuple[Callable, ...] = ()
        try:
            self._parts = open_rows(source, columns)
            self._measure()
        except (TypeError, ValueError) as error:
            raise type(error)(f"source: {error}; pass a path, a matrix, or a list of them") from error

    def _twin(self) -> RowBlocks:
        other = object.__new__(RowBlocks)
        other.__dict__.update(self.__dict__)
        return other

    def _measure(self) -> None:
        """One pass that checks every entry and counts."""
        counts, sizes, width, kinds, dtypes, terms, heights = [], 0, None, set(), set(), 0, []
        per_column = np.zeros(0, np.int64)
        for part in self._parts:
            height = 0
            for block in part.pieces():
                rows, d = block.shape
                check_shape((1, d), "X")
                if width is None:
                    width, per_column = d, np.zeros(d, np.int64)
                if d != width:
                    raise ValueError(f"all blocks must have the same columns; one has {width}, another {d}")
                kinds.add(sp.issparse(block))
                dtypes.add(dtype_for(block.dtype, "X"))
                _check_block(block, sum(heights) + height)
                if sp.issparse(block):
                    terms = max(terms, int(np.max(np.diff(block.indptr), initial=0)))
                    per_column += np.bincount(block.indices, minlength=d)
                counts.append((rows, _entries(block)))
                sizes += counts[-1][1]
                height += rows
            heights.append(height)
        if len(kinds) > 1:
            raise ValueError("all blocks must be sparse, or none; convert some with .toarray() or csr_array")
        self.shape: tuple[int, int] = sum(heights), width or 0
        check_shape(self.shape, "X")
        self.sparse, self.dtype, self.nnz = kinds.pop(), np.result_type(*dtypes), sizes
        self.row_terms = max(terms, 1) if self.sparse else self.shape[1]
        self.col_terms = max(int(per_column.max()), 1) if self.sparse else self.shape[0]
        self._counts, self._starts = counts, np.concatenate([[0], np.cumsum(heights)])

    def __repr__(self) -> str:
        return f"RowBlocks(shape={self.shape}, dtype={self.dtype}, nnz={self.nnz})"

    def __copy__(self) -> RowBlocks:
        return self

    def __deepcopy__(self, memo: Any) -> RowBlocks:
        return self

    def __reduce__(self) -> Any:
        raise TypeError("RowBlocks cannot be pickled, its files stay where they are; pickle model.without_data()")

    def pieces(self) -> Iterator[Block]:
        """The blocks as stored, in order; RuntimeError if they are not those that were checked."""
        k = 0
        for part in self._parts:
            for block in part.pieces():
                if k == len(self._counts) or (block.shape[0], _entries(block)) != self._counts[k]:
                    break
                k += 1
                yield block
        if k < len(self._counts):
            raise RuntimeError(CHANGED)

    def check_files(self) -> None:
        """RuntimeError if a file that is mapped was written to."""
        for part in self._parts:
            if isinstance(part, DenseRows | SparseRows):
                part.files.check()

    def take(self, rows: np.ndarray) -> Block:
        """The rows with these numbers, as stored."""
        part, found = np.searchsorted(self._starts, rows, side="right") - 1, []
        order = np.argsort(part, kind="stable")
        for k in np.unique(part):
            found.append(self._parts[k].take(rows[part == k] - self._starts[k]))
        return stacked(found)[np.argsort(order, kind="stable")] if found else self._nothing()

    def _nothing(self) -> Block:
        empty = np.zeros((0, self.shape[1]), self.dtype)
        return sp.csr_array(empty) if self.sparse else empty

    def load(self) -> Any:
        """The data as a whole, in memory: an ndarray or a csr_array."""
        return stacked([self._own(block) for block in self.pieces()])

    def with_rows(self, number: np.ndarray, new: Block) -> RowBlocks:
        """Other rows: those of this data with the numbers below n, in order, and row k of `new` where it says n + k."""
        other = self._twin()
        other._parts = [Changed(self, self.shape[0], number, new)]
        other._measure()
        return other

    def map(self, fn: Callable) -> RowBlocks:
        """The matrix with fn applied to each entry in float64 (fn(0) = 0), whenever it is read."""
        other = self._twin()
        other._functions = (*self._functions, _ON_NUMPY.get(fn, fn))
        return other

    def matvec(self, w: Any) -> Any:
        """X w: float64 (n,) from float64 (d,)."""
        return self._times(w, False)

    def rmatvec(self, t: Any) -> Any:
        """X^T t: float64 (d,) from float64 (n,)."""
        return self._times(t, True)

    def product(self, vector: np.ndarray, transposed: bool) -> np.ndarray:
        """X w, or X^T t if transposed, on the host."""
        return self._rmatvec(vector) if transposed else self._matvec(vector)

    def normal(self, weights: Any, p: Any) -> Any:
        """X^T diag(weights) X p: float64 (d,)."""
        return self.rmatvec(weights * self.matvec(p))

    def matmat(self, columns: sp.csc_array) -> np.ndarray:
        """X C: a float64 array (n, k) from a sparse (d, k); host only."""
        if self.sparse:
            return np.concatenate([(block @ columns).toarray() for _, _, block in self._read()])
        return np.concatenate([np.ascontiguousarray((columns.T @ block.T).T) for _, _, block in self._read()])

    def rows(self, idx: Any) -> tuple[Any, Any, Any]:
        """Entries of the rows idx: (slot in idx, column, value), flat; exact on NumPy idx, else padded (0, value 0)."""
        return self._entries(self._rows, idx, self.row_terms)

    def columns(self, idx: Any) -> tuple[Any, Any, Any]:
        """Entries of the columns idx: (slot in idx, row, value), flat; exact on NumPy idx, else padded (0, value 0)."""
        return self._entries(self._columns, idx, self.col_terms)

    def at(self, rows: Any, cols: Any) -> Any:
        """X[rows, cols], for positions in bounds."""

        def compute(rows, cols):
            distinct, slot = np.unique(rows, return_inverse=True)
            found = self._own(self.take(distinct))[slot, cols]
            return ((found.toarray() if sp.issparse(found) else np.asarray(found)).astype(self.dtype),)

        return on_the_host(compute, (jax.ShapeDtypeStruct(rows.shape, self.dtype),), rows, cols)[0]

    @property
    def values(self) -> Any:
        """Refused: the data are never in memory as a whole."""
        raise ValueError(_WHOLE)

    def to_dense(self) -> Any:
        """Refused; see `load`."""
        raise ValueError(_WHOLE)

    def to_scipy(self) -> Any:
        """Refused; see `load`."""
        raise ValueError(_WHOLE)

    def _read(self) -> Iterator[tuple[int, int, Block]]:
        """(first row, row past the last, block in float64) of every block."""
        start = 0
        for block in self.pieces():
            stop = start + block.shape[0]
            yield start, stop, self._mapped(block, np.float64)
            start = stop

    def _own(self, block: Block) -> Block:
        return self._mapped(block, np.float64 if self._functions else self.dtype)

    def _mapped(self, block: Block, dtype: Any) -> Block:
        """A block in the given type, with the functions applied."""
        values = (block.data if self.sparse else block).astype(dtype, copy=False)
        for fn in self._functions:
            values = fn(values)
        return csr_block(values, block.indices, block.indptr, self.shape[1]) if self.sparse else values

    def _times(self, vector: Any, transposed: bool) -> Any:
        if is_traced(vector) or inside_trace():
            return block_product(self, vector, transposed)
        return self.product(to_host(vector), transposed)

    def _matvec(self, w: np.ndarray) -> np.ndarray:
        out = np.empty(self.shape[0])
        for start, stop, block in self._read():
            out[start:stop] = block @ w
        return out

    def _rmatvec(self, t: np.ndarray) -> np.ndarray:
        out = np.zeros(self.shape[1])
        for start, stop, block in self._read():
            part = t[start:stop]
            if not self.sparse:
                out += part @ block
            elif block.nnz < self.shape[1]:  # a product would write every column
                np.add.at(out, block.indices, block.data * np.repeat(part, np.diff(block.indptr)))
            else:
                out += block.T @ part
        return out

    def _entries(self, compute: Callable, idx: Any, terms: int) -> tuple[Any, Any, Any]:
        if not (is_traced(idx) or inside_trace()):
            return compute(np.asarray(idx))
        size = idx.shape[0] * terms
        shapes = jax.ShapeDtypeStruct((size,), np.int32), jax.ShapeDtypeStruct((size,), self._value_dtype())

        def padded(idx):
            slot, index, value = compute(np.clip(idx, 0, None))
            place = slot.astype(np.int64) * terms + np.arange(slot.size) - np.searchsorted(slot, slot)
            other, out = np.zeros(size, np.int32), np.zeros(size, shapes[1].dtype)
            other[place], out[place] = index, value
            return other, out

        other, value = on_the_host(padded, shapes, jnp.asarray(idx))
        return grid(idx.shape[0], terms)[0], other, value

    def _value_dtype(self) -> Any:
        return np.float64 if self._functions else self.dtype

    def _rows(self, idx: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        block = self._own(self.take(idx.astype(np.int64)))
        return _flat(block)

    def _columns(self, idx: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """One pass over the data."""
        distinct, slot = np.unique(idx, return_inverse=True)
        found = stacked([self._own(block)[:, distinct] for block in self.pieces()])
        block = found.T[slot]
        return _flat(sp.csr_array(block) if self.sparse else block)


def _flat(block: Block) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(row, column, value) of the entries of a block, row by row."""
    k, d = block.shape
    if not sp.issparse(block):
        slot, other = np.repeat(np.arange(k, dtype=np.int32), d), np.tile(np.arange(d, dtype=np.int32), k)
        return slot, other, block.reshape(-1)
    slot, keep = np.repeat(np.arange(k, dtype=np.int32), np.diff(block.indptr)), block.data != 0
    return slot[keep], block.indices[keep], block.data[keep]


def _entries(block: Block) -> int:
    return block.nnz if sp.issparse(block) else block.size


def _check_block(block: Block, first: int) -> None:
    """Raise on a column that does not exist, an entry that is not finite, or a row that holds a column twice."""
    if sp.issparse(block) and block.nnz and (block.indices.min() < 0 or block.indices.max() >= block.shape[1]):
        bad = block.indices[(block.indices < 0) | (block.indices >= block.shape[1])][0]
        raise ValueError(f"the CSR data hold column {bad}; they run from 0 to {block.shape[1] - 1}")
    values = block.data if sp.issparse(block) else block
    with np.errstate(over="ignore"):  # as they are computed with: what is beyond float64 is infinite there
        finite = np.isfinite(values.astype(dtype_for(values.dtype, "X"), copy=False))
    if not finite.all():
        place = np.unravel_index(int(np.argmin(finite)), values.shape)
        row, col, value = int(place[0]), int(place[-1]), values[place]
        if sp.issparse(block):
            row, col = int(np.searchsorted(block.indptr, row, side="right")) - 1, int(block.indices[row])
        raise ValueError(not_finite("X", first + row, col, value))
    if not sp.issparse(block) or block.has_canonical_format:
        return
    ordered = block.sorted_indices()
    row = np.repeat(np.arange(block.shape[0]), np.diff(ordered.indptr))
    twice = (ordered.indices[1:] == ordered.indices[:-1]) & (row[1:] == row[:-1])
    if twice.any():
        at = int(np.argmax(twice))
        col = ordered.indices[at]
        raise ValueError(f"X[{first + row[at]}] holds column {col} twice; call X.sum_duplicates() first")
