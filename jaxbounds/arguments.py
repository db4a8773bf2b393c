"""Reading what users pass from Python: arrays, flags, whole numbers, functions and paths, each at one place."""

import operator
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from jaxbounds.messages import brief


def as_array(value: Any, name: str, what: str = "real numbers") -> np.ndarray:
    """`value` as a NumPy array of whatever dtype; TypeError or ValueError where entries are hidden or rows ragged."""
    rows = isinstance(value, list | tuple)
    if any(_hides(item) for item in value) if rows else _hides(value):
        raise ValueError(f"{name} is a masked array with masked entries; fill or drop them first, for example with "
                         f"{name}.filled(0.)")  # fmt: skip
    try:
        if isinstance(value, Iterator):
            raise TypeError("an iterator is read only once")
        return np.asarray(value)
    except Exception as error:  # a foreign __array__ may raise anything
        if rows and isinstance(error, ValueError):
            raise TypeError(f"{name} must hold {what}, got a ragged sequence; pass one flat array") from None
        raise TypeError(f"{name} must hold {what}, and cannot be read as an array ({error}); pass a NumPy array, or a "
                        "list") from error  # fmt: skip


def _hides(value: Any) -> bool:
    return isinstance(value, np.ma.MaskedArray) and bool(np.ma.is_masked(value))


def is_real(dtype: Any) -> bool:
    """Whether a dtype holds real numbers, the half types of jax among them; durations are none."""
    return dtype.kind in "biuf" or dtype.name == "bfloat16" or dtype.name.startswith(("float8", "int4", "uint4"))


def as_numbers(array: np.ndarray, name: str) -> str:
    """What to do about an array that holds no real numbers; words are nothing that could be converted."""
    place = first_word(array)
    if place is None:
        return f"convert it with {name}.astype(float)"
    said = f"{name}[{', '.join(map(str, place))}] = {brief(array[place])} is text: "
    if array.ndim > 1:
        return said + "encode categories as columns of numbers, for example with pandas.get_dummies or OneHotEncoder"
    if name.startswith("y"):
        return (said + f"write labels as -1 and +1, for example np.where({name} == {brief(array[place])}, 1, -1); "
                "fit_one_vs_rest takes words")  # fmt: skip
    return said + "pass numbers"


def first_word(array: np.ndarray) -> tuple[int, ...] | None:
    """Where the first text stands that is no number, None if there is none."""
    if array.dtype.kind not in "OUST":
        return None
    for place, value in np.ndenumerate(array):
        if isinstance(value, str | bytes):
            try:
                float(value)
            except ValueError:
                return place
    return None


def refuse_labels(index: Any, name: str) -> None:
    """Raise for an index of a data frame: its entries are labels, where the numbers of rows and columns are wanted."""
    if hasattr(index, "get_indexer"):
        raise TypeError(
            f"{name} must hold positions, counted from 0, and got a {type(index).__name__}, which holds labels; pass "
            f"np.flatnonzero(mask), or index.get_indexer(labels); or {name}.to_numpy() if the labels are positions"
        )


def checked_sparse(X: Any, name: str) -> Any:
    """The sparse matrix, whose numbers of rows and columns can be trusted: scipy's own products run past the end."""
    X = X if X.format in ("csr", "csc", "coo", "bsr") else X.tocoo()
    if X.format == "coo":
        sides = zip(X.coords, X.shape, strict=True)
        ok = all(len(numbers) == len(X.data) and _within(numbers, size) for numbers, size in sides)
    else:
        block = X.blocksize if X.format == "bsr" else (1, 1)
        outer, inner = (size // step for size, step in zip(X.shape, block, strict=True))
        if X.format == "csc":
            outer, inner = inner, outer
        start, count = X.indptr, len(X.data)
        ok = start.shape == (outer + 1,) and start[0] == 0 and np.all(start[1:] >= start[:-1])
        ok = ok and start[-1] <= count and start[-1] <= len(X.indices) and _within(X.indices[: start[-1]], inner)
    if not ok:
        raise ValueError(f"{name} is a broken {X.format} matrix: its indices name entries that are not there; build it "
                         "anew from its triples (value, row, column)")  # fmt: skip
    return X


def _within(numbers: Any, size: int) -> bool:
    return not len(numbers) or bool(numbers.min() >= 0 and numbers.max() < size)


def as_flag(value: Any, name: str) -> bool:
    """`value` if it is True or False: other things that Python takes for one of them are rather mistakes."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {brief(value)}")
    return bool(value)


def as_whole(value: Any, name: str, least: int, most: int | None = None, none: str = "") -> int:
    """`value` as an int from `least` to `most`; `none` says in the message what None stands for, if it may be given."""
    found = None
    if not isinstance(value, bool | np.bool_):
        try:
            found = operator.index(value)
        except TypeError:
            pass
    wanted = f"of at least {least}" if most is None else f"between {least} and {most}"
    if found is None or found < least or (most is not None and found > most):
        kind = ValueError if isinstance(value, int | float | np.generic) else TypeError
        raise kind(f"{name} must be a whole number {wanted}{none and f', or None {none}'}, got {brief(value)}")
    return found


def as_positive(value: Any, name: str) -> float:
    """`value` as a positive, finite float."""
    array = as_array(value, name, "a positive number")
    is_number = array.ndim == 0 and is_real(array.dtype) and array.dtype.kind != "b"
    found = float(array) if is_number else 0.0
    if not 0 < found < np.inf:
        raise ValueError(f"{name} must be a positive number, got {brief(value)}")
    return found


def as_choice(value: Any, name: str, choices: tuple) -> Any:
    """`value` if it is one of the choices."""
    if not any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
        *most, last = (f'"{choice}"' if isinstance(choice, str) else str(choice) for choice in choices)
        raise ValueError(f"{name} must be {', '.join(most)} or {last}, got {brief(value)}")
    return value


def check_callback(callback: Any) -> None:
    """Raise unless it is None or a function."""
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be a function of one dict, got {brief(callback)}")


def as_path(path: Any, name: str = "path") -> str:
    """A path as text; a number would be read as an open file of this process."""
    try:
        found = os.fsdecode(path)
    except TypeError:
        raise TypeError(f"{name} must be a path, got {brief(path)}; pass text or a pathlib.Path") from None
    if not found or "\x00" in found:
        raise ValueError(f"{name} = {brief(found)} is no path: it is empty or holds a null; pass the name of a file")
    return found
