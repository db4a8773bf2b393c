"""How users write rows and changes of a model: columns by name, in units before a scaler, without a constant column.

A model whose `inputs` are set holds its data after a scaler (stored = (raw - mean) / deviation, or the like) and with a
last column of constants where the intercept is penalised. Users write raw rows; `read` and `Inputs.rows` turn them into
the model's own. The scaler is the fitted one: a change does not fit it anew.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from jaxbounds.array import on_host, to_host, xp
from jaxbounds.batches import Flat
from jaxbounds.class_weights import Present, present_of, weighted
from jaxbounds.classes import ClassModel, each_target
from jaxbounds.host import HostMatrix, matrix_of
from jaxbounds.kinds import AddRows, Change, Combined, SetColumns, SetElements, SetRows, added
from jaxbounds.matrix import Dense, Matrix, Sparse, as_matrix
from jaxbounds.messages import few
from jaxbounds.names import (
    NamedRows,
    frame_columns,
    frame_order,
    numbered,
    own_codes,
    refuse_repeated,
    with_targets,
)
from jaxbounds.own_labels import check_labels
from jaxbounds.pytree import is_traced, pytree, static

_STEPS = {
    "subtract": lambda values, by: values - by,
    "divide": lambda values, by: values / by,
    "multiply": lambda values, by: values * by,
    "add": lambda values, by: values + by,
}


@pytree
class Inputs:
    """The meaning of the columns that users write.

    Attributes:
        vectors: a (width,) float64 array for each step of the scaler.
        steps: "subtract", "divide", "multiply" or "add", in the order of application.
        width: columns of the user's rows, without added ones.
        constant: what the model's column number `width` holds, or None if there is no such column.
        names: the columns' names, or None.
        classes: the user's labels of -1 and +1, or of the class numbers; None if they are these.
        class_weights: (classes,) what sample weights are multiplied by, or None; NaN for a rest of several classes that
            differ in it.
    """

    vectors: tuple
    steps: tuple[str, ...] = static()
    width: int = static()
    constant: float | None = static(default=None)
    names: tuple[str, ...] | None = static(default=None)
    classes: tuple | None = static(default=None)
    class_weights: Any = None

    def check(self, d: int) -> None:
        """Raise unless these can be the inputs of a model of d columns; for what is read from files."""
        vectors, width = [np.asarray(vector) for vector in self.vectors], self.width + int(self.constant is not None)
        fine = (
            isinstance(self.width, int) and isinstance(self.constant, float | None) and width <= d
            and len(vectors) == len(self.steps) and set(self.steps) <= set(_STEPS)
            and all(v.shape == (self.width,) and v.dtype == np.float64 and np.all(np.isfinite(v)) for v in vectors)
            and isinstance(self.names, tuple | None) and all(isinstance(name, str) for name in self.names or ())
            and (self.names is None or len(self.names) == self.width)
        )  # fmt: skip
        if not fine:
            raise ValueError("its inputs (scaler, names of columns) do not fit its columns")

    @property
    def constant_place(self) -> tuple[str, int] | None:
        """The name and number of the constant column, which is the penalised intercept; no user's column has that name.
        """
        if self.constant is None:
            return None
        name = "intercept"
        while name in (self.names or ()):
            name = f"({name})"
        return name, self.width

    def column_names(self, d: int) -> tuple[str, ...]:
        """The name of each of d columns: the user's, that of the penalised intercept, else the number as text."""
        known = dict(enumerate(self.names or ()))
        if self.constant_place is not None:
            name, j = self.constant_place
            known[j] = name
        return tuple(known.get(j, str(j)) for j in range(d))

    def rows(self, X: Any, width: int, host: bool, name: str) -> Matrix | HostMatrix:
        """The user's rows as a matrix of the model; `width` counts the model's columns and the added ones.

        What is already a matrix of the library is taken to be the model's own.
        """
        if isinstance(X, Dense | Sparse | HostMatrix):
            return matrix_of(X, host, name)
        order, extra = frame_order(X), int(self.constant is not None)
        if order is not None and self.names is not None:
            X = NamedRows(np.asarray(X), order) if frame_columns(X) is None else X
            X = X[self._known(order, width - extra - self.width, name)]
        matrix = as_matrix(X, name)
        if matrix.shape[1] not in (width, width - extra):
            raise ValueError(f"{name} must have {width - extra} columns like the training data, got {matrix.shape[1]}")
        return matrix_of(self._block(matrix, matrix.shape[1] < width), host, name)

    def _known(self, order: tuple[str, ...], more: int, name: str) -> list[str]:
        """The names of a frame's columns in the model's order; `more` columns are added ones."""
        names = self.names or ()
        refuse_repeated(order, name)
        missing = sorted(set(names) - set(order))
        if missing:
            raise ValueError(f"{name} lacks the columns {few(missing)} of the training data; {name}.to_numpy() goes by "
                             "position")  # fmt: skip
        others = [column for column in order if column not in names]
        constant = [column for column in others if self.constant_place is not None and column == self.constant_place[0]]
        others = [column for column in others if column not in constant]
        if len(others) > more:
            raise ValueError(f"{name} has the columns {few(others)}, which the training data lack; drop them")
        if len(others) > 1:
            raise ValueError(f"{name} has the columns {few(others)} beside those of the training data, and added ones "
                             f"have no names that would tell them apart; put {name} in the order of the model's "
                             f"columns and pass {name}.to_numpy()")  # fmt: skip
        return [*names, *constant, *others]

    def part(self, part: Any, more: int = 0) -> Any:
        """An elementary change in the model's units, where the whole change adds `more` columns."""
        if isinstance(part, SetElements):
            old = None if part.old_values is None else self._values(part.old_values, part.cols)
            return replace(part, values=self._values(part.values, part.cols), old_values=old)
        if isinstance(part, SetColumns):
            part = replace(part, matrix=self._columns(part.matrix, part.cols))
        if isinstance(part, SetRows):
            part = replace(part, matrix=self._whole(part.matrix))
        if isinstance(part, AddRows):
            self._check_new(part.matrix.shape[-1], more)
            part = replace(part, matrix=self._whole(part.matrix, more))
        old = getattr(part, "old_values", None)
        if old is None:
            return part
        return replace(part, old_values=self._whole(old) if hasattr(part, "rows") else self._columns(old, part.cols))

    def kept(self, columns: Any) -> "Inputs":
        """The inputs after only these of the model's columns (and added ones) stay."""
        columns = np.asarray(columns)
        old = columns[columns < self.width]
        constant = self.constant if np.any(columns == self.width) else None
        names = None if self.names is None else tuple(self.names[j] for j in old)
        vectors = tuple(np.asarray(vector)[old] for vector in self.vectors)
        return Inputs(vectors, self.steps, len(old), constant, names, self.classes, self.class_weights)

    def _values(self, values, cols):
        """Scattered values of the given columns; the constant's and added columns have no scale."""
        if not self.steps or not self.width:
            return values
        inside = cols < self.width
        scaled = values = xp.asarray(values, dtype=xp.float64)
        for step, vector in zip(self.steps, self.vectors, strict=True):
            scaled = _STEPS[step](scaled, xp.take(vector, xp.minimum(cols, self.width - 1)))
        return xp.where(inside, scaled, values)

    def _whole(self, matrix: Any, more: int = 0) -> Any:
        """Whole rows, with or without the constant and added columns."""
        return self._block(matrix, self.constant is not None and matrix.shape[-1] in (self.width, self.width + more))

    def _check_new(self, columns: int, more: int) -> None:
        """Raise where one more value than the user's columns may be the constant or that of an added column."""
        if self.constant is not None and more == 1 and columns == self.width + 1:
            raise ValueError(f"X_new of add_rows has {columns} columns beside a column that is added: the last may be "
                             f"its value or the model's constant; give all {columns + 1}, or {self.width}")  # fmt: skip

    def _columns(self, matrix: Any, cols) -> Any:
        """Whole columns (n, k)."""
        if not self.steps:
            return matrix
        if _is_sparse(matrix):
            matrix = _dense(matrix)
        return replace(matrix, values=self._values(matrix.values, cols[..., None, :]))

    def _block(self, matrix: Any, insert: bool) -> Any:
        """Rows with their first columns scaled, and the constant in its place if it is to be inserted."""
        if not self.steps and not insert:
            return matrix
        sparse = _is_sparse(matrix)
        if sparse and ("subtract" in self.steps or "add" in self.steps):
            matrix, sparse = _dense(matrix), False
        if sparse:
            return self._sparse_block(matrix, insert)
        values = matrix.values
        values = self._values(values, np.broadcast_to(np.arange(values.shape[-1]), values.shape))
        if insert:
            column = xp.full((*values.shape[:-1], 1), self.constant, xp.float64)
            parts = values[..., : self.width], column, values[..., self.width :]
            values = xp.concatenate([part.astype(xp.float64) for part in parts], axis=-1)
        return replace(matrix, values=values)

    def _sparse_block(self, matrix: Any, insert: bool) -> Any:
        """The same for sparse rows, which only products and quotients leave sparse."""
        if is_traced(matrix):
            raise ValueError("sparse rows cannot be scaled inside jit, vmap or grad; pass dense ones")
        host = isinstance(matrix, HostMatrix)
        values: Any = sp.csr_array(matrix.values if host else matrix.to_scipy(), dtype=np.float64, copy=True)
        values.data = np.asarray(self._values(values.data, values.indices))
        if insert:
            column = np.full((values.shape[0], 1), self.constant)
            values = sp.hstack([values[:, : self.width], column, values[:, self.width :]], "csr")
        return HostMatrix(values) if host else as_matrix(values)


def frame_inputs(X: Any) -> Inputs | None:
    """What a model keeps of training data that are a data frame, the names of its columns; None for anything else."""
    names = frame_columns(X)
    if names is None:
        return None
    refuse_repeated(names, "X")
    return Inputs((), (), len(names), names=names)


def _is_sparse(matrix: Any) -> bool:
    return sp.issparse(matrix.values) if isinstance(matrix, HostMatrix) else not isinstance(matrix, Dense)


def _dense(matrix: Any) -> Any:
    if isinstance(matrix, HostMatrix):
        return HostMatrix(matrix.values.toarray())
    return Dense(matrix.to_dense())


def read_any(model: Any, change: Any, present: Present | None = None) -> Any:
    """A change as its user wrote it, in the numbers and units of the model's own data.

    `present` gives the targets and weights of rows, by default those of the model.
    """
    inputs = _inputs_of(model)
    if isinstance(change, Flat):
        if inputs is None:
            return change
        codes = own_codes(model)
        flat, owners = tuple(with_targets(part, codes, raises=False) for part in change.flat), change.owners
        if inputs.class_weights is not None:
            flat, owners = _weighted(model, inputs, flat, owners, present)
        return replace(change, flat=tuple(map(inputs.part, flat)), owners=owners)
    change = numbered(model, change)
    if inputs is None or not (inputs.steps or inputs.constant is not None or inputs.class_weights is not None):
        return change
    if on_host(inputs, change):
        inputs, change = to_host((inputs, change))
    parts, more = change.parts(), added(change.parts())[1]
    if inputs.class_weights is not None:
        parts, _ = _weighted(model, inputs, parts, (None,) * len(parts), present)
    parts = tuple(inputs.part(part, more) for part in parts)
    return parts[0] if len(parts) == 1 else Combined(parts)


def _weighted(model: Any, inputs: Inputs, parts, owners, present: Present | None):
    several = isinstance(model, ClassModel)
    return weighted(parts, owners, inputs.class_weights, several, present or present_of(model))


def read(model: Any, change: Change, present: Present | None = None) -> Change:
    """`read_any` of one change on the host, whose targets must be labels where the classes are known."""
    change, codes = read_any(model, change, present), own_codes(model)
    return change if codes is None else each_target(change, lambda target: check_labels(target, codes))


def _inputs_of(model: Any) -> Inputs | None:
    """One-vs-rest leaves them to its models."""
    return getattr(model, "inputs", None)


def rows_of(model: Any, X: Any, width: int, host: bool, name: str = "X") -> Matrix | HostMatrix:
    """Rows that a user wrote, as a matrix of the model; its caller checks the width."""
    return matrix_of(X, host, name) if model.inputs is None else model.inputs.rows(X, width, host, name)
