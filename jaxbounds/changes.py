"""What can change in the training data: plain pytrees that also know how to change the data itself (`apply`)."""

from abc import abstractmethod
from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from jaxbounds.array import put
from jaxbounds.matrix import Matrix, as_matrix
from jaxbounds.penalties import Penalty
from jaxbounds.problem import as_sample_weight, as_vector
from jaxbounds.pytree import in_float64, is_traced, pytree, static


class Change:
    """A change of the training data; combine several with `combine`."""

    def apply(self, X, y, sample_weight=None):
        """The new data, for retraining elsewhere (host only).

        Args:
            X: (n, d) numpy, jax or scipy data. y: (n,). sample_weight: (n,) or None.

        Returns:
            (X, y, sample_weight) of the new problem in compact numbers: removed rows and columns are gone, added ones
            follow the old. X is an ndarray, or a CSR array if it was sparse; sample_weight is None if nothing set it.

        Example:
            >>> import numpy as np, jaxbounds as jb
            >>> X, y, _ = jb.set_targets([1], [-1.0]).apply(np.eye(2), np.ones(2))
            >>> y.tolist()
            [1.0, -1.0]
        """
        table = Table(X, y, sample_weight)
        for part in self.parts():
            part.write(table)
        return table.result()

    def parts(self) -> "tuple[Change, ...]":
        """The elementary changes, left to right."""
        return (self,)

    @abstractmethod
    def write(self, table: "Table") -> None:
        """Carry the change out on the host."""


class Table:
    """Data under change on the host; rows and columns keep their old numbers until `result`."""

    def __init__(self, X, y, sample_weight):
        matrix = X.to_scipy() if isinstance(X, Matrix) else as_matrix(X).to_scipy()
        self.sparse = sp.issparse(matrix)
        self.n, self.d = matrix.shape
        self.X = sp.csr_array(matrix) if self.sparse else np.array(matrix)
        self.y = np.array(y, dtype=np.float64)
        self.weight = None if sample_weight is None else np.array(sample_weight, dtype=np.float64)
        if self.y.shape != (self.n,):
            raise ValueError(f"y must have shape ({self.n},), got {self.y.shape}")
        if self.weight is not None and self.weight.shape != (self.n,):
            raise ValueError(f"sample_weight must have shape ({self.n},), got {self.weight.shape}")
        self.kept_rows = np.ones(self.n, bool)
        self.kept_columns = np.ones(self.d, bool)

    def result(self):
        X = self.X[self.kept_rows][:, self.kept_columns]
        weight = None if self.weight is None else self.weight[self.kept_rows]
        return X, self.y[self.kept_rows], weight

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

    def scale(self, rows, cols):
        """Zero whole rows or columns."""
        row, col = np.ones(self.X.shape[0]), np.ones(self.X.shape[1])
        row[rows], col[cols] = 0.0, 0.0
        if self.sparse:
            self.X = sp.csr_array(sp.diags_array(row) @ self.X @ sp.diags_array(col))
            self.X.eliminate_zeros()
        else:
            self.X[row == 0] = 0.0
            self.X[:, col == 0] = 0.0

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
            self.weight = np.ones(self.X.shape[0])
        return self.weight

    def check_rows(self, rows):
        check_range(rows, self.n, "rows", "row")
        check_alive(rows, np.flatnonzero(~self.kept_rows), "row")

    def check_cols(self, cols):
        check_range(cols, self.d, "cols", "column")
        check_alive(cols, np.flatnonzero(~self.kept_columns), "column")


@pytree
class SetElements(Change):
    """X[rows, cols] = values."""

    rows: Any
    cols: Any
    values: Any
    old_values: Any = None

    def write(self, table):
        rows, cols = np.asarray(self.rows), np.asarray(self.cols)
        table.check_rows(rows), table.check_cols(cols)
        table.overwrite((rows, cols, np.asarray(self.values)))


@pytree
class SetRows(Change):
    """X[rows] = matrix, and y[rows] = target if given."""

    rows: Any
    matrix: Matrix
    target: Any = None
    old_values: Any = None

    def write(self, table):
        rows = np.asarray(self.rows)
        table.check_rows(rows)
        check_shape(self.matrix, (None, table.d), "X_new")
        table.scale(rows, [])
        slot, cols, values = self.matrix.rows(np.arange(len(rows)))
        table.overwrite((rows[slot], cols, values))
        if self.target is not None:
            table.y[rows] = np.asarray(self.target)


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
        table.scale([], cols)
        row, slot, values = entries(self.matrix)
        table.overwrite((row, cols[slot], values))


@pytree
class SetTargets(Change):
    """y[rows] = target."""

    rows: Any
    target: Any
    old_values: Any = None

    def write(self, table):
        table.check_rows(np.asarray(self.rows))
        table.y[np.asarray(self.rows)] = np.asarray(self.target)


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

    def write(self, table):
        k, width = self.matrix.shape
        n, d = table.X.shape
        if width not in (table.d, d):
            raise ValueError(f"X_new of add_rows must have {table.d} columns like the data, got {width}")
        table.grow(k, 0)
        row, col, values = entries(self.matrix)
        table.overwrite((n + row, col, values))
        table.y = np.append(table.y, np.asarray(self.target))
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
        if not table.kept_rows.any():
            raise ValueError("remove_rows leaves no row at all; keep at least one")


@pytree
class AddColumns(Change):
    """New columns at the end."""

    matrix: Matrix

    def write(self, table):
        height, k = self.matrix.shape
        n, d = table.X.shape
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
        if not table.kept_columns.any():
            raise ValueError("remove_columns leaves no column at all; keep at least one")


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


def entries(matrix: Matrix):
    """All entries of a host matrix as (row, column, value)."""
    return matrix.rows(np.arange(matrix.shape[0]))


def check_range(index, size: int, name: str, what: str):
    """Raise on the first index outside [0, size)."""
    bad = np.flatnonzero((index < 0) | (index >= size))
    if bad.size:
        raise ValueError(f"{name}[{bad[0]}] = {index[bad[0]]} is not a {what} of the data, which has {size}")


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


def _index(index, name: str):
    """A 1-d int32 index array without repetitions on the host."""
    if is_traced(index):
        return jnp.atleast_1d(jnp.asarray(index))
    array = np.asarray(index)
    if array.dtype == bool or array.dtype.kind not in "iu":
        if array.size:
            raise TypeError(f"{name} must hold integers, got dtype {array.dtype}; use np.flatnonzero for a mask")
        raise ValueError(f"{name} is empty; name at least one")
    if array.ndim > 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {array.shape}")
    array = np.atleast_1d(array)
    if array.size == 0:
        raise ValueError(f"{name} is empty; name at least one")
    bad = np.flatnonzero((array < 0) | (array >= 2**31 - 1))
    if bad.size:
        raise ValueError(f"{name}[{bad[0]}] = {array[bad[0]]} is out of range; numbers count from 0 to 2**31 - 2")
    return jnp.asarray(array.astype(np.int32))


def _distinct(index, name: str):
    if not is_traced(index):
        array = np.asarray(index)
        order = np.argsort(array, kind="stable")
        repeated = order[1:][array[order][1:] == array[order][:-1]]
        if repeated.size:
            k = int(repeated.min())
            raise ValueError(f"{name}[{k}] = {array[k]} is repeated; name each only once")
    return index


def _unique_index(index, name):
    return _distinct(_index(index, name), name)


def _values(values, size, name):
    if not is_traced(values) and np.ndim(values) == 0:
        values = np.full(size, np.asarray(values))
    return as_vector(values, size, name)


def _block(X, shape, name) -> Matrix:
    """A data block of the given shape (None: any); one row or column may come as a vector."""
    if not is_traced(X) and not sp.issparse(X) and not hasattr(X, "to_scipy") and np.ndim(X) == 1:
        X = np.asarray(X)[None, :] if shape[0] == 1 else np.asarray(X)[:, None] if shape[1] == 1 else X
    matrix = as_matrix(X, name)
    check_shape(matrix, shape, name)
    return matrix


def _old_block(X, shape):
    return None if X is None else _block(X, shape, "old_values")


@in_float64
def set_elements(rows, cols, values, *, old_values=None) -> Change:
    """Scattered elements: X[rows[k], cols[k]] = values[k].

    Args:
        rows, cols: (m,) integers, old numbers, no pair twice. values: (m,) or one number for all.
        old_values: (m,), needed only if the model was stored without its data.

    Returns:
        a change for `bound`, `refit`, `combine` and `apply`.

    Raises:
        ValueError: an index is negative or repeated, a value is not finite, lengths differ.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> jb.set_elements([0, 1], [1, 0], [5.0, 6.0]).apply(np.zeros((2, 2)), np.ones(2))[0].tolist()
        [[0.0, 5.0], [6.0, 0.0]]

    Source: Hanada et al. 2016, scenario (a), spot modification.
    """
    rows, cols = _index(rows, "rows"), _index(cols, "cols")
    if rows.shape != cols.shape:
        raise ValueError(f"rows and cols must have the same length, got {rows.shape[0]} and {cols.shape[0]}")
    if not is_traced(rows, cols):
        pairs = np.asarray(rows, np.int64) << 32 | np.asarray(cols, np.int64)
        _, first = np.unique(pairs, return_index=True)
        if first.size < pairs.size:
            k = int(np.setdiff1d(np.arange(pairs.size), first)[0])
            raise ValueError(f"element {k}, ({rows[k]}, {cols[k]}), is repeated; name each element only once")
    old = None if old_values is None else _values(old_values, rows.shape[0], "old_values")
    return put(SetElements(rows, cols, _values(values, rows.shape[0], "values"), old))


@in_float64
def set_rows(rows, X_new, y_new=None, *, old_values=None) -> Change:
    """Whole rows: X[rows] = X_new, and y[rows] = y_new if given.

    Args:
        rows: (k,) integers. X_new: (k, d) data of any kind that `fit` takes. y_new: (k,) or None.
        old_values: (k, d), needed only if the model was stored without its data.

    Returns:
        a change.

    Raises:
        ValueError: an index is negative or repeated, shapes differ, a value is not finite.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> jb.set_rows([1], [[7.0, 8.0]]).apply(np.zeros((2, 2)), np.ones(2))[0].tolist()
        [[0.0, 0.0], [7.0, 8.0]]

    Source: Hanada et al. 2016, scenario (b), instance modification.
    """
    rows = _unique_index(rows, "rows")
    k = rows.shape[0]
    target = None if y_new is None else _values(y_new, k, "y_new")
    return put(SetRows(rows, _block(X_new, (k, None), "X_new"), target, _old_block(old_values, (k, None))))


@in_float64
def set_columns(cols, X_new, *, old_values=None) -> Change:
    """Whole columns: X[:, cols] = X_new.

    Args:
        cols: (k,) integers. X_new: (n, k). old_values: (n, k), needed only without data.

    Returns:
        a change.

    Raises:
        ValueError: an index is negative or repeated, shapes differ, a value is not finite.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> jb.set_columns([0], [[7.0], [8.0]]).apply(np.zeros((2, 2)), np.ones(2))[0].tolist()
        [[7.0, 0.0], [8.0, 0.0]]

    Source: Hanada et al. 2016, scenario (c), feature modification.
    """
    cols = _unique_index(cols, "cols")
    k = cols.shape[0]
    return put(SetColumns(cols, _block(X_new, (None, k), "X_new"), _old_block(old_values, (None, k))))


@in_float64
def set_targets(rows, y_new, *, old_values=None) -> Change:
    """New labels or targets: y[rows] = y_new.

    Args:
        rows: (k,) integers. y_new: (k,) labels -1/+1 for margin losses, numbers otherwise.
        old_values: (k, d), the rows of X; needed only if the model was stored without its data.

    Returns:
        a change.

    Raises:
        ValueError: an index is negative or repeated, a value is not finite.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> jb.set_targets([0], [-1]).apply(np.eye(2), np.ones(2))[1].tolist()
        [-1.0, 1.0]
    """
    rows = _unique_index(rows, "rows")
    k = rows.shape[0]
    return put(SetTargets(rows, _values(y_new, k, "y_new"), _old_block(old_values, (k, None))))


@in_float64
def set_weights(rows, weights, *, old_values=None) -> Change:
    """New sample weights: sample_weight[rows] = weights.

    Args:
        rows: (k,) integers. weights: (k,) positive. old_values: (k, d) rows of X, needed only without data.

    Returns:
        a change.

    Raises:
        ValueError: an index is negative or repeated, a weight is not positive.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> jb.set_weights([0], [3.0]).apply(np.eye(2), np.ones(2))[2].tolist()
        [3.0, 1.0]
    """
    rows = _unique_index(rows, "rows")
    k = rows.shape[0]
    return put(SetWeights(rows, as_sample_weight(_values(weights, k, "weights"), k, "weights"), _old_block(old_values, (k, None))))


@in_float64
def add_rows(X_new, y_new, sample_weight=None) -> Change:
    """New rows; they are numbered n, n+1, ... in the bounds.

    Args:
        X_new: (k, d). y_new: (k,). sample_weight: (k,) positive, ones by default.

    Returns:
        a change.

    Raises:
        ValueError: shapes differ, a value is not finite, a weight is not positive.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> jb.add_rows([[1.0, 1.0]], [1]).apply(np.eye(2), np.ones(2))[0].shape
        (3, 2)
    """
    matrix = as_matrix(X_new, "X_new")
    k = matrix.shape[0]
    weight = None if sample_weight is None else as_sample_weight(sample_weight, k)
    return put(AddRows(matrix, _values(y_new, k, "y_new"), weight))


@in_float64
def remove_rows(rows, keep_n: bool = False, *, old_values=None) -> Change:
    """Rows that leave: in mean scale the new problem divides by n - k, or still by n with `keep_n`.

    Args:
        rows: (k,) integers. keep_n: keep 1/n in mean scale. old_values: (k, d), needed only without data.

    Returns:
        a change.

    Raises:
        ValueError: an index is negative or repeated, or no row would be left.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> jb.remove_rows([0]).apply(np.eye(2), np.ones(2))[0].tolist()
        [[0.0, 1.0]]
    """
    rows = _unique_index(rows, "rows")
    return put(RemoveRows(rows, _old_block(old_values, (rows.shape[0], None)), bool(keep_n)))


@in_float64
def add_columns(X_new) -> Change:
    """New columns; they are numbered d, d+1, ... in the bounds.

    Args:
        X_new: (n, k).

    Returns:
        a change.

    Raises:
        ValueError: shapes differ or a value is not finite.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> jb.add_columns([[1.0], [2.0]]).apply(np.eye(2), np.ones(2))[0].shape
        (2, 3)
    """
    return put(AddColumns(as_matrix(X_new, "X_new")))


@in_float64
def remove_columns(cols, *, old_values=None) -> Change:
    """Columns that leave; `distance` counts their coefficients.

    Args:
        cols: (k,) integers. old_values: (n, k), needed only without data.

    Returns:
        a change.

    Raises:
        ValueError: an index is negative or repeated, or no column would be left.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> jb.remove_columns([0]).apply(np.eye(2), np.ones(2))[0].tolist()
        [[0.0], [1.0]]
    """
    cols = _unique_index(cols, "cols")
    return put(RemoveColumns(cols, _old_block(old_values, (None, cols.shape[0]))))


def set_penalty(penalty: Penalty) -> Change:
    """Another penalty, for example another lambda.

    Args:
        penalty: any of `jb.penalties`.

    Returns:
        a change.

    Raises:
        TypeError: `penalty` is not a penalty.

    Example:
        >>> import jaxbounds as jb
        >>> change = jb.set_penalty(jb.penalties.l2(0.1))
    """
    if not isinstance(penalty, Penalty):
        raise TypeError(f"penalty must come from jb.penalties, got {type(penalty).__name__}")
    return SetPenalty(penalty)


def combine(*changes: Change) -> Change:
    """Several changes as one, applied left to right; where two touch the same thing the later wins.

    Args:
        changes: at least one; row and column numbers always refer to the old data.

    Returns:
        a change.

    Raises:
        TypeError: an argument is not a change. ValueError: there is none.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> both = jb.combine(jb.set_targets([0], [-1]), jb.remove_rows([1]))
        >>> both.apply(np.eye(2), np.ones(2))[1].tolist()
        [-1.0]
    """
    if not changes:
        raise ValueError("combine needs at least one change")
    for k, change in enumerate(changes):
        if not isinstance(change, Change):
            raise TypeError(f"changes[{k}] is not a change, got {type(change).__name__}")
    return Combined(tuple(changes))
