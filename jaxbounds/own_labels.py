"""Labels in the user's own classes, words or numbers: what they are as targets of changes, and back again.

Targets are -1 and +1, or class numbers 0, ..., K - 1. Where the classes are numbers, numbers in changes are classes;
targets are taken as well unless one is also the number of another class, as +1 is if the classes are 1 and 2.
"""

import abc
import math
from typing import Any

import numpy as np

from jaxbounds.arguments import as_array
from jaxbounds.array import put, readable, xp
from jaxbounds.messages import brief, few, first_bad
from jaxbounds.pytree import is_traced

Codes = dict[Any, float]  # the target of each class


def codes_of(classes: tuple, several: bool) -> Codes:
    """The target of each class: its number, or -1 and +1 where one model tells two apart."""
    return {label: float(k if several else 2 * k - 1) for k, label in enumerate(classes)}


def kept_classes(classes: Any, several: bool) -> tuple | None:
    """An estimator's classes_ as Python values, None where they are the targets already."""
    found = np.asarray(classes).tolist()
    codes = codes_of(tuple(found), several)
    return None if all(label == target for label, target in codes.items()) else tuple(found)


def is_classes(classes: Any, count: int) -> bool:
    """Whether this is None or a tuple of so many different classes; for what is read from files."""
    if classes is None:
        return True
    kinds = isinstance(classes, tuple) and all(isinstance(label, str | bool | int | float) for label in classes)
    return kinds and len(classes) == count == len(set(classes))


def _numbers(codes: Codes) -> Codes:
    """The target of each class that is a number, or a word that looks like one."""
    found: Codes = {}
    for label, code in codes.items():
        try:
            number = float(label)
        except (ValueError, OverflowError):
            continue
        if number in found:
            raise ValueError(f"the classes {few(codes)} are not all different numbers in float64; fit on words, as "
                             "y.astype(str)")  # fmt: skip
        if math.isfinite(number):
            found[number] = code
    return found


def _ambiguous(codes: Codes) -> bool:
    """Whether a target is also the number of another class."""
    known = set(codes.values())
    return any(number in known and number != code for number, code in _numbers(codes).items())


def in_targets(target: Any, codes: Codes, raises: bool = True) -> Any:
    """Numbers as a user wrote them as targets; what is no class where only classes are taken is NaN, or raises."""
    numbers = _numbers(codes)
    if not numbers:
        return target
    target, strict = readable(target), _ambiguous(codes)
    found = target * xp.nan if strict else target
    for number, code in numbers.items():
        found = xp.where(target == number, code, found)
    if strict and raises and not is_traced(target):
        first_bad(np.isnan(found), np.asarray(target), "y_new", f"is not one of the classes {few(codes)}",
                  "numbers are classes here; a new class needs a new fit")  # fmt: skip
    return put(found)


def remedy(classes: tuple | None) -> str:
    """What to do about a target that is none, where the classes are known."""
    return "" if classes is None else f"; write y_new in the classes {few(classes)}"


def check_labels(target: Any, codes: Codes) -> Any:
    """The targets of a change on the host, if each is that of a class."""
    array = np.asarray(target)
    bad = ~np.isin(array, list(codes.values()))
    known = few(map(int, codes.values()))
    first_bad(bad, array, "y_new", "is not a label", f"labels are {known}{remedy(tuple(codes))}")
    return target


class Labelled(abc.ABC):
    """A model that knows the classes of its training data, as they were given, and the names of its columns."""

    inputs: Any
    w: Any
    undecided = 0  # what `labels(X)` says where intervals do not tell

    @property
    def classes_(self) -> tuple | None:
        """The classes as they were given, of -1 and +1 or of the class numbers; None if these are all that is known."""
        return None if self.inputs is None else self.inputs.classes

    @property
    def names(self) -> tuple[str, ...]:
        """(d,) the name of each column, its number as text if it has none; "intercept" for a penalised intercept."""
        d = self.w.shape[-1]
        return tuple(map(str, range(d))) if self.inputs is None else self.inputs.column_names(d)

    @abc.abstractmethod
    def _codes(self) -> Codes:
        """The target of each class."""

    def encode_labels(self, labels) -> np.ndarray:
        """Labels in the classes of the training data as numbers that y_new of a change takes, inside jit too.

        Args:
            labels: words or numbers of `classes_`, of any shape.

        Returns:
            float64 of the same shape: -1 and +1, or class numbers if there are more than two; the labels themselves
            where such a number would mean another class, as +1 does if the classes are 1 and 2.

        Raises:
            ValueError: a label is none of the classes, or the targets are no classes.
        """
        return encode(labels, self._codes())

    def decode_labels(self, labels) -> np.ndarray:
        """What `labels(X)` of bounds returns in the classes of the training data.

        Args:
            labels: -1, +1 and 0 for what is undecided; of more than two classes class numbers, and -1 for that.

        Returns:
            objects of the same shape, None for what is undecided.

        Raises:
            ValueError: a number is none of a class, or the targets are no classes.

        Example:
            >>> import numpy as np, jaxbounds as jb
            >>> from sklearn.linear_model import RidgeClassifier
            >>> X, y = np.array([[1.0], [2.0], [-1.0], [-2.0]]), np.array(["yes", "yes", "no", "no"])
            >>> model = jb.from_sklearn(RidgeClassifier().fit(X, y), X, y)
            >>> bounds = jb.bound(model, jb.set_targets([0], ["no"]), jb.Curvature())
            >>> model.decode_labels(bounds.labels([[9.0], [-9.0]])).tolist(), model.decode_labels([0]).tolist()
            (['yes', 'no'], [None])
        """
        return decode(labels, self._codes(), self.undecided)


def encode(labels: Any, codes: Codes) -> np.ndarray:
    """Labels in their own classes as numbers that changes take, float64."""
    array, keep = as_array(labels, "labels", "labels"), _ambiguous(codes)
    found = np.empty(array.shape)
    for k, label in enumerate(array.reshape(-1).tolist()):
        if not isinstance(label, str | bool | int | float) or label not in codes:
            raise ValueError(f"labels[{k}] = {brief(label)} is not one of the classes {few(codes)}; a new class needs "
                             "a new fit")  # fmt: skip
        found.reshape(-1)[k] = float(label) if keep else codes[label]
    return found


def decode(labels: Any, codes: Codes, undecided: int) -> np.ndarray:
    """Certified labels in their own classes, objects; None for what is undecided."""
    array = as_array(labels, "labels", "labels")
    back: dict[Any, Any] = {int(code): label for label, code in codes.items()} | {undecided: None}
    found = np.empty(array.shape, object)
    for k, label in enumerate(array.reshape(-1).tolist()):
        if isinstance(label, bool) or not isinstance(label, int | float) or label not in back:
            raise ValueError(f"labels[{k}] = {brief(label)} is not a label of this model; pass what labels(X) returns, "
                             f"{few(sorted(back))}")  # fmt: skip
        found.reshape(-1)[k] = back[label]
    return found
