"""What can change in the training data: the constructors users call; `jaxbounds.kinds` holds what they return."""

import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from jaxbounds.arguments import as_array, as_flag, refuse_labels
from jaxbounds.kinds import (
    AddColumns,
    AddRows,
    Change,
    Combined,
    RemoveColumns,
    RemoveRows,
    SetColumns,
    SetElements,
    SetPenalty,
    SetRows,
    SetTargets,
    SetWeights,
    check_shape,
)
from jaxbounds.matrix import Matrix, as_matrix
from jaxbounds.messages import brief
from jaxbounds.names import named, row_as_frame, text
from jaxbounds.penalties import Penalty
from jaxbounds.problem import as_sample_weight, as_vector, no_penalty
from jaxbounds.pytree import in_float64, is_traced


def check_index(index, name: str):
    """A 1-d int32 index array without repetitions on the host."""
    refuse_labels(index, name)
    if is_traced(index):
        array = jnp.atleast_1d(jnp.asarray(index))
        if not jnp.issubdtype(array.dtype, jnp.integer):
            raise TypeError(f"{name} must hold integers, got dtype {array.dtype}; use np.flatnonzero for a mask")
        return array
    array = as_array(index, name, "integers")
    if array.dtype.kind not in "iu":
        if array.size:
            hint = "np.flatnonzero for a mask, .astype(int) for whole numbers"
            raise TypeError(f"{name} must hold integers, got dtype {array.dtype}; use {hint}")
        raise ValueError(f"{name} is empty; name at least one")
    if array.ndim > 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {array.shape}")
    array = np.atleast_1d(array)
    if array.size == 0:
        raise ValueError(f"{name} is empty; name at least one")
    if array.min() < 0 or array.max() >= 2**31 - 1:
        k = np.flatnonzero((array < 0) | (array >= 2**31 - 1))[0]
        raise ValueError(f"{name}[{k}] = {array[k]} is out of range; numbers count from 0 to 2**31 - 2")
    return array.astype(np.int32)


def check_distinct(index, name: str):
    if not is_traced(index) and (k := _first_repeated(np.asarray(index))) is not None:
        raise ValueError(f"{name}[{k}] = {np.asarray(index)[k]} is repeated; name each only once")
    return index


def _first_repeated(values) -> int | None:
    """Where the first value stands that an earlier one equals."""
    ordered = np.sort(values)
    if not (ordered[1:] == ordered[:-1]).any():
        return None
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    return int(order[1:][ordered[1:] == ordered[:-1]].min())


def _unique_index(index, name):
    return check_distinct(check_index(index, name), name)


def _values(values, size, name):
    if not is_traced(values) and (array := as_array(values, name)).ndim == 0:
        values = np.full(size, array)
    return as_vector(values, size, name)


def _numbered(values, distinct: bool = True):
    """(numbers, names) of columns, names None where they are numbers already; repeated names share a number."""
    names = text(values)
    if names is None:
        return values, None
    different = tuple(dict.fromkeys(names))
    if distinct and len(different) < len(names):
        k = next(k for k, name in enumerate(names) if name in names[:k])
        raise ValueError(f"cols[{k}] = {brief(names[k])} is repeated; name each only once")
    return np.array([different.index(name) for name in names], np.int32), different


def _labelled(y_new, size):
    """(targets, labels) of new targets; labels in words are numbered, and their model knows what they mean."""
    labels = text(y_new)
    if labels is None:
        return _targets(y_new, size), None
    different = tuple(dict.fromkeys(labels))
    numbers = [different.index(label) for label in labels]
    return _targets(numbers[0] if isinstance(y_new, str) else np.array(numbers, np.float64), size), different


def _targets(y_new, size):
    """New targets; whether they are labels is checked against the model."""
    if not is_traced(y_new) and as_array(y_new, "y_new").dtype.kind == "b":
        raise TypeError("y_new must hold numbers, got booleans; convert labels with 2 * y_new - 1")
    return _values(y_new, size, "y_new")


def _block(X, shape, name) -> Matrix:
    """A data block of the given shape (None: any); one row or column may come as a vector."""
    matrix = as_matrix(_upright(X, shape, name), name)
    check_shape(matrix, shape, name)
    return matrix


def _upright(X, shape, name):
    """A vector as the one row or column that it is."""
    if is_traced(X) or sp.issparse(X) or hasattr(X, "to_scipy") or type(X).__module__.startswith("jax.experimental"):
        return X
    array = as_array(X, name)
    if array.ndim != 1 or 1 not in shape:
        return X
    return array[None, :] if shape[0] == 1 else array[:, None]


def _old_block(X, shape):
    return None if X is None else _block(X, shape, "old_values")


@in_float64
def set_elements(rows, cols, values, *, old_values=None) -> Change:
    """Scattered elements: X[rows[k], cols[k]] = values[k].

    Args:
        rows, cols: (m,) integers, old numbers, no pair twice; cols may be names of columns.
        values: (m,) or one number for all.
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
    cols, names = _numbered(cols, distinct=False)
    rows, cols = check_index(rows, "rows"), check_index(cols, "cols")
    if rows.shape != cols.shape:
        raise ValueError(f"rows and cols must have the same length, got {rows.shape[0]} and {cols.shape[0]}")
    if not is_traced(rows, cols):
        k = _first_repeated(rows.astype(np.int64) << 32 | cols)
        if k is not None:
            raise ValueError(f"element {k}, ({rows[k]}, {cols[k]}), is repeated; name each element only once")
    old = None if old_values is None else _values(old_values, rows.shape[0], "old_values")
    return named(SetElements(rows, cols, _values(values, rows.shape[0], "values"), old), names)


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
    k, X_new, old_values = rows.shape[0], row_as_frame(X_new), row_as_frame(old_values)
    target, labels = (None, None) if y_new is None else _labelled(y_new, k)
    own = y_new is not None and labels is None
    change = SetRows(rows, _block(X_new, (k, None), "X_new"), target, _old_block(old_values, (k, None)), own)
    return named(change, labels=labels, X=X_new, old=old_values)


@in_float64
def set_columns(cols, X_new, *, old_values=None) -> Change:
    """Whole columns: X[:, cols] = X_new.

    Args:
        cols: (k,) integers, or names for a model that knows the names of its columns.
        X_new: (n, k); a data frame is read by name, its rows by position.
        old_values: (n, k), needed only without data.

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
    cols, names = _numbered(cols)
    cols = _unique_index(cols, "cols")
    k = cols.shape[0]
    change = SetColumns(cols, _block(X_new, (None, k), "X_new"), _old_block(old_values, (None, k)))
    return named(change, names, X=X_new, old=old_values)


@in_float64
def set_targets(rows, y_new, *, old_values=None) -> Change:
    """New labels or targets: y[rows] = y_new.

    Args:
        rows: (k,) integers. y_new: (k,) labels -1/+1 for margin losses, numbers otherwise; for a model that knows the
            classes of its training data (`classes_`) words or numbers of these.
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
    k, old_values = rows.shape[0], row_as_frame(old_values)
    target, labels = _labelled(y_new, k)
    change = SetTargets(rows, target, _old_block(old_values, (k, None)), labels is None)
    return named(change, labels=labels, old=old_values)


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
    k, old_values = rows.shape[0], row_as_frame(old_values)
    weights = as_sample_weight(_values(weights, k, "weights"), k, "weights")
    return named(SetWeights(rows, weights, _old_block(old_values, (k, None))), old=old_values)


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
    target, labels = _labelled(y_new, k)
    return named(AddRows(matrix, target, weight, labels is None), labels=labels, X=X_new)


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
    rows, old_values = _unique_index(rows, "rows"), row_as_frame(old_values)
    old = _old_block(old_values, (rows.shape[0], None))
    return named(RemoveRows(rows, old, as_flag(keep_n, "keep_n")), old=old_values)


@in_float64
def add_columns(X_new) -> Change:
    """New columns; they are numbered d, d+1, ... in the bounds.

    They have no names, also after `refit`: a model that reads data frames by name takes frames with one added column,
    whatever it is called, and arrays beyond that.

    Args:
        X_new: (n, k), a data frame by position.

    Returns:
        a change.

    Raises:
        ValueError: shapes differ or a value is not finite.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> jb.add_columns([[1.0], [2.0]]).apply(np.eye(2), np.ones(2))[0].shape
        (2, 3)
    """
    return AddColumns(as_matrix(X_new, "X_new"))


@in_float64
def remove_columns(cols, *, old_values=None) -> Change:
    """Columns that leave; `distance` counts their coefficients.

    Args:
        cols: (k,) integers, or names of columns. old_values: (n, k), needed only without data.

    Returns:
        a change.

    Raises:
        ValueError: an index is negative or repeated, or no column would be left.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> jb.remove_columns([0]).apply(np.eye(2), np.ones(2))[0].tolist()
        [[0.0], [1.0]]
    """
    cols, names = _numbered(cols)
    cols = _unique_index(cols, "cols")
    return named(RemoveColumns(cols, _old_block(old_values, (None, cols.shape[0]))), names, old=old_values)


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
        raise TypeError(no_penalty(penalty))
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
            raise TypeError(f"changes[{k}] is not a change, got {type(change).__name__}; use set_rows, ...")
    return Combined(tuple(changes))
