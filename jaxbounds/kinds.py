"""The kinds of change as pytrees, and what each does to the data itself (`apply`, on the host).

`own` says that targets are numbers as a user wrote them: a model that knows its classes reads them, once.
"""

from abc import abstractmethod
from typing import Any

import jax
import numpy as np
import scipy.sparse as sp

from jaxbounds.matrix import Matrix, as_matrix
from jaxbounds.penalties import Penalty
from jaxbounds.problem import as_sample_weight, as_vector
from jaxbounds.pytree import pytree, static
from jaxbounds.row_blocks import RowBlocks
from jaxbounds.row_files import stacked


class Change:
    """A change of the training data; combine several with `combine`."""

    on_host = True  # its arrays are NumPy's: moving them to jax costs more than a bound

    def apply(self, X, y, sample_weight=None):
        """The new data, for retraining elsewhere (host only).

        Args:
            X: (n, d) numpy, jax or scipy data, or a data frame, whose columns the change may name.
            y: (n,) in the labels that the change is written in, words or numbers: those of an estimator stay its own.
            sample_weight: (n,) or None, without class weights.

        Returns:
            (X, y, sample_weight) of the new problem in compact numbers: removed rows and columns are gone, added ones
            follow the old. X is an ndarray, or a CSR array if it was sparse, or RowBlocks that read the old file past
            the rows that changed (columns cannot); sample_weight is None if nothing set it.

        Example:
            >>> import numpy as np, jaxbounds as jb
            >>> X, y, _ = jb.set_targets([1], [-1.0]).apply(np.eye(2), np.ones(2))
            >>> y.tolist()
            [1.0, -1.0]
        """
        table = (BlockTable if isinstance(X, RowBlocks) else Table)(X, y, sample_weight)
        for part in self.parts():
            part.write(table)
        return table.result()

    def parts(self) -> "tuple[Change, ...]":
        """The elementary changes, left to right."""
        return (self,)

    @abstractmethod
    def write(self, table: "Table") -> None:
        """Carry the change out on the host."""


def check_change(change: Any) -> None:
    """Raise unless it is one change."""
    if not isinstance(change, Change):
        raise TypeError(f"change must come from set_rows, remove_rows, ..., combine; got {type(change).__name__}")
    if any(is_stacked(part) for part in change.parts() if not isinstance(part, SetPenalty)):
        raise ValueError("change is a batch of changes; pass it to bound_each, or map over it with jax.vmap")


def is_stacked(part: Any) -> bool:
    """Whether an elementary change has a leading axis over candidates."""
    if isinstance(part, SetPenalty):
        return True
    if isinstance(part, AddColumns):
        return np.ndim(jax.tree.leaves(part)[0]) == 3
    numbers: Any = next((getattr(part, name) for name in ("rows", "cols", "target") if hasattr(part, name)), None)
    return np.ndim(numbers) == 2


class Table:
    """Data under change on the host; rows and columns keep their old numbers until `result`."""

    def __init__(self, X, y, sample_weight):
        self.given = X
        matrix: Any = as_matrix(X).to_scipy()
        self.sparse = sp.issparse(matrix)
        self.n, self.d = matrix.shape
        self.dtype = matrix.dtype
        self.X: Any = sp.csr_array(matrix) if self.sparse else np.array(matrix)
        self._take_targets(y, sample_weight)

    def _take_targets(self, y, sample_weight):
        words = np.asarray(y, object) if isinstance(y, list | tuple | np.ndarray) or hasattr(y, "to_numpy") else None
        self.words = words is not None and words.shape == (self.n,) and all(isinstance(one, str) for one in words)
        self.y: Any = words.copy() if self.words else np.array(as_vector(y, self.n, "y"))  # type: ignore[union-attr]
        self.weight = None if sample_weight is None else np.array(as_sample_weight(sample_weight, self.n))
        self.kept_rows = np.ones(self.n, bool)
        self.kept_columns = np.ones(self.d, bool)

    @property
    def shape(self):
        """(rows, columns), added ones included."""
        return self.X.shape

    def result(self):
        if not self.kept_rows.any():
            raise ValueError("remove_rows leaves no row at all; keep at least one")
        if not self.kept_columns.any():
            raise ValueError("remove_columns leaves no column at all; keep at least one")
        X = self.X[self.kept_rows][:, self.kept_columns].astype(self.dtype, copy=False)
        return X, *self._vectors()

    def _vectors(self):
        y = self.y.astype(str) if self.words else self.y
        return y[self.kept_rows], None if self.weight is None else self.weight[self.kept_rows]

    def labels(self, target):
        """New targets, words if y holds words."""
        target = np.asarray(target)
        if self.words and target.dtype.kind not in "OU":
            raise ValueError("y holds words, and y_new numbers; write y_new in words")
        return target

    def overwrite(self, entries):
        """X[rows, cols] = values, sparse or dense."""
        rows, cols, values = entries
        if not self.sparse:
            self.X[rows, cols] = values
            return
        old = sp.coo_array(self.X)
        key = old.coords[0].astype(np.int64) * self.X.shape[1] + old.coords[1]
        keep = ~np.isin(key, rows.astype(np.int64) * self.X.shape[1] + cols)
        r, c = (np.concatenate([old.coords[k][keep], new]) for k, new in ((0, rows), (1, cols)))
        self.X = sp.csr_array((np.concatenate([old.data[keep], values]), (r, c)), shape=self.X.shape)

    def clear(self, rows, cols):
        """Zero X[rows, :d] and X[:n, cols], old numbers: what was added stays."""
        if not self.sparse:
            self.X[rows, : self.d] = 0.0
            self.X[: self.n, cols] = 0.0
            return
        old = sp.coo_array(self.X)
        r, c = old.coords
        keep = ~(np.isin(r, rows) & (c < self.d)) & ~(np.isin(c, cols) & (r < self.n))
        self.X = sp.csr_array((old.data[keep], (r[keep], c[keep])), shape=self.X.shape)

    def grow(self, rows: int, cols: int):
        n, d = self.X.shape
        if self.sparse:
            self.X.resize((n + rows, d + cols))
        else:
            self.X = np.pad(self.X, ((0, rows), (0, cols)))
        self.kept_rows = np.append(self.kept_rows, np.ones(rows, bool))
        self.kept_columns = np.append(self.kept_columns, np.ones(cols, bool))

    def weights(self):
        if self.weight is None:
            self.weight = np.ones(self.shape[0])
        return self.weight

    def check_rows(self, rows):
        check_range(rows, self.n, "rows", "row")
        check_alive(rows, np.flatnonzero(~self.kept_rows), "row")

    def check_cols(self, cols):
        check_range(cols, self.d, "cols", "column")
        check_alive(cols, np.flatnonzero(~self.kept_columns), "column")


class BlockTable(Table):
    """Row blocks under change: touched and added rows are held in memory, and the file is read past them."""

    def __init__(self, X: RowBlocks, y, sample_weight):
        self.given, self.base, self.dtype, self.sparse = X, X, X.dtype, X.sparse
        self.n, self.d = X.shape
        self.number = np.zeros(1, np.int64)  # the rows held in X; a table is never empty
        self.X: Any = X.take(self.number).astype(X.dtype)
        self.added = 0
        self._take_targets(y, sample_weight)

    @property
    def shape(self):
        """(rows, columns), added ones included."""
        return self.n + self.added, self.d

    def result(self):
        if not self.kept_columns.all():
            self._refuse_columns()
        if not self.kept_rows.any():
            raise ValueError("remove_rows leaves no row at all; keep at least one")
        number = np.arange(self.shape[0])
        number[self.number] = self.n + np.arange(self.number.size)
        return self.base.with_rows(number[self.kept_rows], self.X.astype(self.dtype, copy=False)), *self._vectors()

    def overwrite(self, entries):
        rows, cols, values = entries
        super().overwrite((self._held(rows), cols, values))

    def clear(self, rows, cols):
        if len(cols):
            self._refuse_columns()
        super().clear(self._held(rows), cols)

    def grow(self, rows: int, cols: int):
        if cols:
            self._refuse_columns()
        self.number = np.append(self.number, np.arange(self.shape[0], self.shape[0] + rows))
        self.added += rows
        super().grow(rows, 0)

    def _held(self, rows):
        """Where these rows are in X, read from the file if they are not there yet."""
        missing = np.setdiff1d(rows, self.number)
        if missing.size:
            self.X = stacked([self.X, self.base.take(missing).astype(self.dtype)])
            self.number = np.append(self.number, missing)
        order = np.argsort(self.number)
        return order[np.searchsorted(self.number[order], rows)]

    def _refuse_columns(self):
        raise ValueError("RowBlocks cannot be put together anew after a change of columns: write a file of the new "
                         "data, and fit on that")  # fmt: skip


@pytree
class SetElements(Change):
    """X[rows, cols] = values."""

    rows: Any
    cols: Any
    values: Any
    old_values: Any = None

    def write(self, table):
        rows, cols = np.asarray(self.rows), np.asarray(self.cols)
        table.check_rows(rows)
        table.check_cols(cols)
        table.overwrite((rows, cols, np.asarray(self.values)))


@pytree
class SetRows(Change):
    """X[rows] = matrix, and y[rows] = target if given."""

    rows: Any
    matrix: Matrix
    target: Any = None
    old_values: Any = None
    own: bool = static(default=False)

    def write(self, table):
        rows = np.asarray(self.rows)
        table.check_rows(rows)
        check_shape(self.matrix, (None, table.d), "X_new")
        table.clear(rows, [])
        slot, cols, values = self.matrix.rows(np.arange(len(rows)))
        table.overwrite((rows[slot], cols, values))
        if self.target is not None:
            table.y[rows] = table.labels(self.target)


@pytree
class SetColumns(Change):
    """X[:, cols] = matrix."""

    cols: Any
    matrix: Matrix
    old_values: Any = None

    def write(self, table):
        cols = np.asarray(self.cols)
        table.check_cols(cols)
        check_shape(self.matrix, (table.n, None), "X_new")
        table.clear([], cols)
        row, slot, values = entries(self.matrix)
        table.overwrite((row, cols[slot], values))


@pytree
class SetTargets(Change):
    """y[rows] = target."""

    rows: Any
    target: Any
    old_values: Any = None
    own: bool = static(default=False)

    def write(self, table):
        table.check_rows(np.asarray(self.rows))
        table.y[np.asarray(self.rows)] = table.labels(self.target)


@pytree
class SetWeights(Change):
    """sample_weight[rows] = weight."""

    rows: Any
    weight: Any
    old_values: Any = None

    def write(self, table):
        table.check_rows(np.asarray(self.rows))
        table.weights()[np.asarray(self.rows)] = np.asarray(self.weight)


@pytree
class AddRows(Change):
    """New rows at the end."""

    matrix: Matrix
    target: Any
    weight: Any = None
    own: bool = static(default=False)

    def write(self, table):
        k, width = self.matrix.shape
        n, d = table.shape
        if width not in (table.d, d):
            raise ValueError(f"X_new of add_rows must have {table.d} columns like the data, got {width}")
        table.grow(k, 0)
        row, col, values = entries(self.matrix)
        table.overwrite((n + row, col, values))
        table.y = np.append(table.y, table.labels(self.target))
        if self.weight is not None or table.weight is not None:
            new = np.ones(k) if self.weight is None else np.asarray(self.weight)
            table.weight = np.append(np.ones(n) if table.weight is None else table.weight, new)


@pytree
class RemoveRows(Change):
    """Rows that leave the data."""

    rows: Any
    old_values: Any = None
    keep_n: bool = static(default=False)

    def write(self, table):
        table.check_rows(np.asarray(self.rows))
        table.kept_rows[np.asarray(self.rows)] = False


@pytree
class AddColumns(Change):
    """New columns at the end."""

    matrix: Matrix

    def write(self, table):
        height, k = self.matrix.shape
        n, d = table.shape
        if height not in (table.n, n):
            raise ValueError(f"X_new of add_columns must have {table.n} rows like the data, got {height}")
        table.grow(0, k)
        row, col, values = entries(self.matrix)
        table.overwrite((row, d + col, values))


@pytree
class RemoveColumns(Change):
    """Columns that leave the data."""

    cols: Any
    old_values: Any = None

    def write(self, table):
        table.check_cols(np.asarray(self.cols))
        table.kept_columns[np.asarray(self.cols)] = False


@pytree
class SetPenalty(Change):
    """Another penalty; the data stays."""

    penalty: Penalty

    def write(self, table):
        pass


@pytree
class Combined(Change):
    """Several changes, left to right; the later wins."""

    changes: tuple

    def parts(self):
        return tuple(part for change in self.changes for part in change.parts())

    def write(self, table):
        for part in self.parts():
            part.write(table)


def added(parts) -> tuple[int, int]:
    """Rows and columns that the parts add."""
    rows = sum(part.matrix.shape[0] for part in parts if isinstance(part, AddRows))
    return rows, sum(part.matrix.shape[1] for part in parts if isinstance(part, AddColumns))


def entries(matrix: Matrix):
    """All entries of a host matrix as (row, column, value)."""
    return matrix.rows(np.arange(matrix.shape[0]))


def check_range(index, size: int, name: str, what: str):
    """Raise on the first index outside [0, size)."""
    if index.size == 1 and 0 <= index.item() < size:  # one number, seen in a tenth of the time of its extremes
        return
    if index.size and (index.min() < 0 or index.max() >= size):
        k = np.flatnonzero((index < 0) | (index >= size))[0]
        raise ValueError(f"{name}[{k}] = {index[k]} is not a {what} of the data, which has {size}; numbers "
                         f"run from 0 to {size - 1}")  # fmt: skip


def check_alive(index, removed, what: str):
    """Raise if a change touches a row or column that an earlier part of it removed."""
    bad = index[np.isin(index, removed)]
    if bad.size:
        raise ValueError(f"{what} {bad[0]} was removed by an earlier part of the change; drop one of the two parts")


def check_shape(matrix: Matrix, shape, name: str):
    """Raise if a matrix has not the wanted number of rows or columns (None: any)."""
    for have, want, what in zip(matrix.shape, shape, ("rows", "columns"), strict=True):
        if want is not None and have != want:
            raise ValueError(f"{name} must have {want} {what}, got {have}")
