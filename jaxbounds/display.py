"""How objects show themselves: short tables as text, and as HTML in notebooks.

Bounds are rounded outward to four digits, interval ends to as many as show their width, so that what is printed holds
too. Nothing here fails or computes on tracers: what is not known yet is shown by its type. What each kind of object
tells is in `described`.
"""

import dataclasses
import decimal
import html as markup
from typing import Any, TypeVar

import jax
import numpy as np
from jax.core import Tracer

T = TypeVar("T")
Rows = list[tuple[str, str]]
Table = tuple[str, Rows]  # a title and what stands below it

FEW = 6  # entries of an array that are listed
_LINE = 90  # characters of a list of intervals, more is summarised
_DIGITS = 4  # of numbers
_MOST = 8  # of the ends of narrow intervals
_WIDER = 1.5  # than it is an interval may be printed, if that saves digits
DOWN, UP, NEAR = (
    decimal.Context(prec=_DIGITS, rounding=mode)
    for mode in (decimal.ROUND_FLOOR, decimal.ROUND_CEILING, decimal.ROUND_HALF_EVEN)
)


def number(value: Any, context: decimal.Context = NEAR, digits: int = _DIGITS) -> str:
    """A number with so many digits, rounded as the context says."""
    value = float(value)
    if not np.isfinite(value):
        return str(value)
    near = f"{value:.{digits}g}"
    if float(near) == value:
        return near
    rounded = decimal.Context(prec=digits, rounding=context.rounding).create_decimal_from_float(value)
    return f"{float(rounded):.{digits}g}"


def interval_text(lower: Any, upper: Any) -> str:
    """[lower, upper], rounded outward to four digits, or to so many that the width shows; whole numbers as they are."""
    if np.asarray(lower).dtype.kind in "iu":
        return f"[{int(lower)}, {int(upper)}]"
    lower, upper = float(lower), float(upper)
    for digits in range(_DIGITS, _MOST + 1):
        low, high = number(lower, DOWN, digits), number(upper, UP, digits)
        if not float(high) - float(low) > _WIDER * (upper - lower):  # so too if an end is infinite or NaN
            break
    return f"[{low}, {high}]"


def is_unknown(value: Any) -> bool:
    """Whether any array is a tracer."""
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(value))


def counted(count: int, what: str) -> str:
    """3 rows, 1 row, 2 classes, 2 pushes."""
    return f"{count:,} {what}{'' if count == 1 else 'es' if what.endswith(('s', 'sh')) else 's'}"


def listed(items: Any, most: int = FEW) -> str:
    """The first few items."""
    items = [str(item) for item in items[: most + 1]]
    return ", ".join(items if len(items) <= most else [*items[:most], "..."])


def short(value: Any, context: decimal.Context = NEAR) -> str:
    """One value in a few words; numbers are rounded as the context says."""
    from jaxbounds.described import LINES, TABLES

    name = type(value).__name__
    if name in LINES:
        return LINES[name](value)
    if name == "Interval":
        return intervals(value)
    if name in TABLES:
        return name
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _inline(value)
    if isinstance(value, float):
        return number(value, context)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return name
    if isinstance(value, tuple | list):
        return counted(len(value), "item") if len(value) > FEW or any(map(_large, value)) else (
            f"({', '.join(map(short, value))}{',' if len(value) == 1 else ''})")  # fmt: skip
    if isinstance(value, Tracer):
        return traced(value)
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return _array(value, context)
    return getattr(value, "__name__", None) or repr(value)  # functions by their names


def upper(value: Any) -> str:
    """Upper bounds."""
    return short(value, UP)


def traced(value: Any) -> str:
    """A tracer by its type."""
    return f"{shape_of(value)} (traced)"


def shape_of(value: Any) -> str:
    """float64[40,9]."""
    return f"{value.dtype}[{','.join(map(str, value.shape))}]"


def entries(matrix: Any) -> str:
    """float64[40,9], or float64[40,9], 57 stored."""
    values: Any = getattr(matrix, "values", matrix)
    count: Any = getattr(matrix, "count", getattr(values, "nnz", None))
    if count is None or is_unknown(count) or np.ndim(count):
        return shape_of(values)
    return f"{shape_of(values)}, {int(count):,} stored"


def _array(value: Any, context: decimal.Context) -> str:
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        return f"{shape_of(array)}" if array.size > FEW else repr(value)

    def entry(x):
        return number(x, context) if array.dtype.kind == "f" else str(x)

    if array.ndim == 0:
        return entry(array[()])
    if array.ndim == 1 and 0 < array.size <= FEW:
        return f"[{', '.join(map(entry, array))}]"
    if array.dtype.kind == "b":
        return f"{shape_of(array)}, {int(array.sum())} of {array.size} true"
    if not array.size:
        return f"{shape_of(array)}, empty"
    return f"{shape_of(array)}, {entry(array.min())} to {entry(array.max())}"


def _large(value: Any) -> bool:
    return any(np.size(leaf) > FEW for leaf in jax.tree.leaves(value)) if not isinstance(value, str) else False


def intervals(value: Any) -> str:
    """An Interval in a line."""
    if is_unknown(value):
        return f"interval of {traced(value.upper) if isinstance(value.upper, Tracer) else short(value.upper)}"
    low, high = np.asarray(value.lower), np.asarray(value.upper)
    if high.ndim == 0:
        return interval_text(low, high)
    if not high.size:
        return "no interval"
    if high.ndim == 1 and high.size <= FEW:
        each = ", ".join(map(interval_text, low, high))
        if len(each) <= _LINE:
            return each
    return f"{counted(high.size, 'interval')} of shape {high.shape}, widest {widest(low, high)}"


def widest(low: np.ndarray, high: np.ndarray) -> str:
    """The largest width."""
    with np.errstate(all="ignore"):
        return number(np.max(high - low, initial=0.0), UP)


def status_text(code: Any) -> str:
    """The name of a status and its advice; of many, how often each occurs."""
    from jaxbounds.status import Status

    if is_unknown(code):
        return traced(code)
    codes = np.asarray(code)
    if codes.ndim:
        counts = {Status(int(k)).name: int(np.sum(codes == k)) for k in np.unique(codes)}
        return ", ".join(f"{count} {name}" for name, count in counts.items())
    status = Status(int(codes))
    return f"{status.name}: {status.advice}"


def status_name(code: Any) -> str:
    """The name of a status alone."""
    return status_text(code).split(":")[0]


def rest(count: int) -> Rows:
    """A row that says how many there are, if not all are listed."""
    return [("...", f"{count:,} in all")] if count > FEW else []


def _held(value: Any) -> list[tuple[str, Any]]:
    """The fields of a dataclass that are not None and have not their default."""
    found = []
    for field in dataclasses.fields(value):
        held = getattr(value, field.name)
        if not (held is None or (isinstance(held, bool | int | str) and held == field.default)):
            found.append((field.name, held))
    return found


def _inline(value: Any) -> str:
    """Name(field=value, ...)."""
    shown = [f"{name}={held!r}" if isinstance(held, str) else f"{name}={short(held)}" for name, held in _held(value)]
    return f"{type(value).__name__}({', '.join(shown)})"


def facts(value: Any) -> tuple[str, Rows]:
    """(title, rows) of a table about the object; no rows if the title says all."""
    from jaxbounds.described import LINES, TABLES

    name = type(value).__name__
    if name in TABLES:
        return TABLES[name](value)
    if name in LINES:
        return LINES[name](value), []
    held = _held(value)
    if not any(_large(item) or type(item).__name__ == "Interval" for _, item in held):
        return _inline(value), []
    return name, [(key, status_text(item) if key == "status" else short(item)) for key, item in held]


def text(value: Any) -> str:
    """The object as text; never raises."""
    try:
        title, rows = facts(value)
    except Exception:  # half-built objects inside jax's own machinery
        return f"<{type(value).__name__}>"
    width = max((len(name) for name, _ in rows), default=0)
    return "\n".join([title, *(f"  {name:<{width}}  {fact}" for name, fact in rows)])


def html(value: Any) -> str:
    """The object as an HTML table; never raises."""
    try:
        title, rows = facts(value)
    except Exception:
        title, rows = f"<{type(value).__name__}>", []
    escape = markup.escape
    body = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th><td style="text-align:left">{escape(fact)}</td></tr>'
        for name, fact in rows
    )
    caption = f'<caption style="text-align:left"><b>{escape(title)}</b></caption>'
    return f"<table>{caption}{body}</table>" if rows else f"<pre>{escape(title)}</pre>"


def shown(cls: T) -> T:
    """Give a class these representations, unless it has its own; below `dataclass`, which then leaves them alone."""
    for name, show in (("__repr__", text), ("_repr_html_", html)):
        if name not in cls.__dict__:
            setattr(cls, name, show)
    return cls
