"""Columns and labels by name: changes that wait for a model that knows the names."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jaxbounds.classes import ClassModel
from jaxbounds.kinds import Change, Combined, RemoveColumns, SetColumns
from jaxbounds.matrix import Dense, as_matrix
from jaxbounds.messages import brief, few
from jaxbounds.own_labels import Codes, codes_of, in_targets
from jaxbounds.pytree import is_traced, pytree, static


def frame_order(X: Any) -> tuple[str, ...] | None:
    """The columns of a data frame as text, also where they are numbers or tuples; None for anything else."""
    columns = getattr(X, "columns", None)
    if columns is None or callable(columns) or is_traced(X) or not hasattr(X, "__len__"):
        return None
    return tuple(map(str, columns)) or None


def frame_columns(X: Any) -> tuple[str, ...] | None:
    """The column names of a data frame (pandas, polars, ...) if all are text, None for anything else."""
    order = frame_order(X)
    return None if order is None or not all(isinstance(name, str) for name in X.columns) else order


def row_as_frame(X: Any) -> Any:
    """A series that is one row of a data frame, indexed by the columns' names, as a frame; anything else as it is."""
    if not hasattr(X, "to_frame") or getattr(X, "ndim", 0) != 1 or text(getattr(X, "index", None)) is None:
        return X
    return X.to_frame().T


def refuse_repeated(names: tuple[str, ...], what: str) -> None:
    """Raise if two columns of a data frame have one name."""
    if len(set(names)) < len(names):
        twice = next(name for k, name in enumerate(names) if name in names[:k])
        raise ValueError(f"{what} has several columns named {brief(twice)}; rename all but one, or pass "
                         f"{what}.to_numpy(), which goes by position")  # fmt: skip


@dataclass(frozen=True, eq=False)
class NamedRows:
    """The rows of a data frame, copied: as much of one as `Inputs.rows` reads by name."""

    values: np.ndarray
    columns: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.values)

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype)

    def __getitem__(self, names):
        return NamedRows(self.values[:, [self.columns.index(name) for name in names]], tuple(names))


def text(values: Any) -> tuple[str, ...] | None:
    """The values as text if they are text, None otherwise."""
    if isinstance(values, str):
        return (values,)
    if is_traced(values) or not hasattr(values, "__len__"):
        return None
    try:
        array = np.asarray(values)
    except Exception:  # whatever it is, it is no text
        return None
    if array.dtype.kind in "biufc" or array.ndim != 1 or not array.size:
        return None
    return tuple(str(value) for value in array.tolist()) if all(isinstance(v, str) for v in array.tolist()) else None


@pytree
class Named(Change):
    """A change whose columns or labels are names; a model that knows them turns them into numbers.

    In `change`, column k stands for columns[k] and target k for labels[k]; `order` names the columns of its blocks.
    """

    change: Any
    columns: tuple[str, ...] | None = static(default=None)
    labels: tuple[str, ...] | None = static(default=None)
    order: tuple[str, ...] | None = static(default=None)

    def resolve(self, names: tuple[str, ...] | None, codes: dict[Any, Any] | None, constant: Any = None) -> Change:
        """The change in numbers: columns by `names` and `constant`, see `positions`; targets as `codes` has them."""
        change = self.change
        if self.columns is not None:
            numbers = np.array(positions(self.columns, names, "cols", constant), np.int32)
            change = replace(change, cols=numbers[np.asarray(change.cols)])
        if self.labels is not None:
            which = np.asarray(change.target, np.int64)
            targets = np.array([_target(label, codes, which == k) for k, label in enumerate(self.labels)])
            change = replace(change, target=targets[which])
        more = int(constant is None and not isinstance(change, SetColumns | RemoveColumns))
        return self._in_order(change, self._wanted(change, names, constant), more)

    def _in_order(self, change: Any, wanted: tuple[str, ...] | None, more: int) -> Change:
        """The change with the columns of its data frames where they belong; `more` may be an added one, without name.
        """
        if self.order is None or wanted is None or self.order == wanted:
            return change
        what = "X_new" if hasattr(change, "matrix") else "old_values"
        refuse_repeated(self.order, what)
        missing, unknown = sorted(set(wanted) - set(self.order)), sorted(set(self.order) - set(wanted))
        if not missing and len(unknown) <= more:
            wanted = (*wanted, *unknown)
        elif missing or unknown:
            whose = "that cols names" if isinstance(change, SetColumns | RemoveColumns) else "of the training data"
            raise ValueError(f"{what} must have the columns {whose}: missing {few(missing)}, unknown {few(unknown)}; "
                             f"{what}.to_numpy() goes by position")  # fmt: skip
        place = positions(wanted, self.order, what)
        blocks = {key: getattr(change, key, None) for key in ("matrix", "old_values")}
        moved = {key: _columns_of(block, place) for key, block in blocks.items() if block is not None}
        return replace(change, **moved)

    def _wanted(self, change: Any, names: tuple[str, ...] | None, constant: Any) -> tuple[str, ...] | None:
        """The names of the columns that its blocks must have, in this order; None where they are not known."""
        if not isinstance(change, SetColumns | RemoveColumns):
            return names
        if self.columns is not None or names is None or is_traced(change.cols):
            return self.columns
        known = dict(enumerate(names)) | ({} if constant is None else {constant[1]: constant[0]})
        return tuple(known.get(j, str(j)) for j in np.asarray(change.cols).tolist())

    def write(self, table):
        words = {label: label for label in self.labels or ()} if table.words else None
        self.resolve(frame_columns(table.given), words).write(table)


def positions(wanted, names, what: str, constant: tuple[str, int] | None = None) -> list[int]:
    """The number of each column that is named; `constant` is the name and number of one that is not in `names`."""
    place = {name: j for j, name in enumerate(names or ())} | ({} if constant is None else dict([constant]))
    unknown = [name for name in wanted if name not in place]
    if names is None and unknown:
        raise ValueError(f"{what} holds names ({brief(unknown[0])}, ...), and these data have none; pass column "
                         "numbers, or train the model on a data frame")  # fmt: skip
    for k, name in enumerate(wanted):
        if name not in place:
            also = "; one that is not penalised is the attribute intercept" if name == "intercept" else ""
            raise ValueError(f"{what}[{k}] = {brief(name)} is not a column of the training data; they are {few(place)}"
                             f"{also}")  # fmt: skip
    return [place[name] for name in wanted]


def _target(label: str, codes: dict[Any, Any] | None, where: np.ndarray) -> Any:
    """-1 or +1, or the class number if there are more than two."""
    at = f"y_new[{where.argmax()}] = {brief(label)}"
    if codes is None:
        raise ValueError(f"{at} is a word, and the targets are numbers here: -1 and +1, or class numbers; pass these")
    if label not in codes:
        raise ValueError(f"{at} is not one of the classes {few(codes)}; a new class needs a new fit")
    return codes[label]


def _columns_of(matrix: Any, order: list[int]) -> Any:
    if isinstance(matrix, Dense):
        return Dense(matrix.values[..., np.asarray(order)])
    return as_matrix(matrix.to_scipy().tocsc()[:, order])


def named(change: Change, columns=None, labels=None, X: Any = None, old: Any = None) -> Change:
    """The change itself, or one that waits for the meaning of the names in it; X and old may be data frames."""
    order, before = frame_order(X), frame_order(old)
    if X is None:
        order = before
    elif old is not None and before != order:
        raise ValueError("old_values must have the columns of X_new, in the same order; pass both as data frames, or "
                         "both as arrays (frame.to_numpy()), which go by position")  # fmt: skip
    if columns is None and labels is None and order is None:
        return change
    return Named(change, columns, labels, order)


def resolved(change: Change, names: tuple[str, ...] | None, codes: Codes | None, constant: Any = None) -> Change:
    """The change with all its names turned into numbers."""
    if isinstance(change, Named):
        return change.resolve(names, codes, constant)
    if isinstance(change, Combined) and any(isinstance(part, Named) for part in change.parts()):
        return Combined(tuple(resolved(part, names, codes, constant) for part in change.parts()))
    return change


def numbered(model: Any, change: Change) -> Change:
    """The change with names turned into numbers, and the classes' own numbers into targets."""
    inputs, codes = inputs_of(model), own_codes(model)
    names, constant = (None, None) if inputs is None else (inputs.names, inputs.constant_place)
    return with_targets(resolved(change, names, codes, constant), codes)


def with_targets(change: Any, codes: Codes | None, raises: bool = True) -> Any:
    """The change with numbers as its user wrote them turned into targets."""
    if isinstance(change, Combined):
        return Combined(tuple(with_targets(part, codes, raises) for part in change.parts()))
    if codes is None or not getattr(change, "own", False):
        return change
    return replace(change, target=in_targets(change.target, codes, raises), own=False)


def named_columns(model: Any, j: Any) -> Any:
    """The numbers of columns that may be named, of the same shape; anything but names as it is."""
    names = text(j)
    if names is None:
        return j
    inputs = inputs_of(model)
    known, constant = (None, None) if inputs is None else (inputs.names, inputs.constant_place)
    numbers = positions(names, known, "j", constant)
    return np.int32(numbers[0]) if isinstance(j, str) else np.array(numbers, np.int32)


def inputs_of(model: Any) -> Any:
    """How the rows of a model (or monitor) are written, None if as its data."""
    return getattr(model.models[0] if hasattr(model, "models") else model, "inputs", None)


def own_codes(model: Any) -> Codes | None:
    """The target of each class of a model (or monitor), None where the library's own labels are all that is known."""
    classes = model.classes_ if hasattr(model, "classes_") else getattr(inputs_of(model), "classes", None)
    return None if classes is None else codes_of(classes, isinstance(model, ClassModel))
