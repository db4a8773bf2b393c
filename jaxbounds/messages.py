"""What users passed, as error messages quote it: in a few words, however large it is."""

from collections.abc import Iterable
from typing import Any

import numpy as np

_FEW = 6  # entries that are listed
_LONG = 60  # characters of anything else


def cut(text: str) -> str:
    """The text on one line of at most 60 characters."""
    line = " ".join(text[: 4 * _LONG].split())
    return line if len(line) <= _LONG and len(text) <= 4 * _LONG else line[: _LONG - 3] + "..."


def brief(value: Any) -> str:
    """A value as it would be typed, or its kind and size where that is long."""
    kind, shape = type(value).__name__, getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape:
        return f"{kind} of shape {shape}"
    if isinstance(value, list | tuple | dict | set | frozenset) and len(value) > _FEW:
        return f"{kind} of {len(value)} items"
    return cut(repr(value.item() if isinstance(value, np.ndarray | np.generic) else value))


def few(values: Iterable[Any]) -> str:
    """The first of some names as a list."""
    listed = list(values)
    if len(listed) <= _FEW:
        return f"[{', '.join(map(brief, listed))}]"
    return f"[{', '.join(map(brief, listed[:_FEW]))}, ...] ({len(listed)} in all)"


def first_bad(mask: Any, array: Any, name: str, what: str, remedy: str) -> None:
    """Raise for the first entry that the mask holds."""
    if mask.any():
        i = tuple(int(k) for k in np.argwhere(mask)[0])
        where = f"{name}[{', '.join(map(str, i))}]" if i else name
        raise ValueError(f"{where} = {cut(str(array[i]))} {what}; {remedy}")
