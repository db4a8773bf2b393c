"""How objects show themselves: small tables as text, and as HTML in notebooks.

Interval ends and upper bounds are rounded outward to four digits, so that what is printed holds too. Nothing here fails
or computes on tracers: what is not known yet is shown by its type.
"""

import dataclasses
import decimal
import html as markup
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

_FEW = 6  # entries of an array that are listed
_DOWN, _UP, _NEAR = (
    decimal.Context(prec=4, rounding=mode)
    for mode in (decimal.ROUND_FLOOR, decimal.ROUND_CEILING, decimal.ROUND_HALF_EVEN)
)
Rows = list[tuple[str, str]]


def number(value: Any, context: decimal.Context = _NEAR) -> str:
    """A number with four digits, rounded as the context says."""
    value = float(value)
    return f"{float(context.create_decimal_from_float(value)):.4g}" if np.isfinite(value) else str(value)


def interval_text(lower: Any, upper: Any) -> str:
    """[lower, upper], rounded outward."""
    return f"[{number(lower, _DOWN)}, {number(upper, _UP)}]"


def _traced(value: Any) -> bool:
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(value))


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def short(value: Any) -> str:
    """One value in a few words."""
    if _is_interval(value):
        return _interval(value)
    if type(value).__name__ in _KINDS:
        return type(value).__name__
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _inline(value)
    if isinstance(value, float):
        return number(value)
    if isinstance(value, tuple | list):
        return f"{_counted(len(value), 'item')}" if len(value) > _FEW or any(map(_large, value)) else (
            f"({', '.join(map(short, value))}{',' if len(value) == 1 else ''})")  # fmt: skip
    if isinstance(value, Tracer) or not isinstance(value, np.ndarray | np.generic | jax.Array):
        return _kind(value) if isinstance(value, Tracer) else repr(value)
    return _array(value)


def _kind(value: Any) -> str:
    return f"{value.dtype}[{','.join(map(str, value.shape))}] (traced)"


def _array(value: Any) -> str:
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        return repr(value)
    if array.ndim == 0:
        return number(array) if array.dtype.kind == "f" else str(array[()])
    kind = f"{array.dtype}[{','.join(map(str, array.shape))}]"
    if array.ndim == 1 and 0 < array.size <= _FEW:
        return f"[{', '.join(number(x) if array.dtype.kind == 'f' else str(x) for x in array)}]"
    if array.dtype.kind == "b":
        return f"{kind}, {int(array.sum())} of {array.size} true"
    if not array.size:
        return f"{kind}, empty"
    return f"{kind}, {_array(array.min())} to {_array(array.max())}"


def _large(value: Any) -> bool:
    return any(np.size(leaf) > _FEW for leaf in jax.tree.leaves(value)) if not isinstance(value, str) else False


def _is_interval(value: Any) -> bool:
    return type(value).__name__ == "Interval" and hasattr(value, "lower")


def _interval(value: Any) -> str:
    if _traced(value):
        return f"interval of {_kind(value.upper) if isinstance(value.upper, Tracer) else short(value.upper)}"
    lower, upper = np.asarray(value.lower), np.asarray(value.upper)
    if upper.ndim == 0:
        return interval_text(lower, upper)
    if upper.ndim == 1 and upper.size <= _FEW:
        return ", ".join(map(interval_text, lower, upper))
    with np.errstate(all="ignore"):
        widest = number(np.max(upper - lower, initial=0.0), _UP)
    return f"{upper.size} intervals of shape {upper.shape}, widest {widest}"


def _fields(value: Any) -> list[tuple[str, Any]]:
    return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]


def _inline(value: Any) -> str:
    """Name(field=value, ...), without the fields that have their default."""
    shown = []
    for field in dataclasses.fields(value):
        held = getattr(value, field.name)
        if not (held is None or (isinstance(held, bool | int | str) and held == field.default)):
            shown.append(f"{field.name}={held!r}" if isinstance(held, str) else f"{field.name}={short(held)}")
    return f"{type(value).__name__}({', '.join(shown)})"


# ---------------------------------------------------------------- what each kind of object tells


def _of_interval(interval: Any) -> tuple[str, Rows]:
    if _traced(interval) or np.ndim(interval.upper) != 1 or np.size(interval.upper) <= 1:
        return f"Interval {_interval(interval)}", []
    lower, upper = np.asarray(interval.lower), np.asarray(interval.upper)
    listed = range(min(upper.size, _FEW))
    rows = [(str(k), interval_text(lower[k], upper[k])) for k in listed]
    if upper.size > _FEW:
        rows.append(("...", f"{upper.size} in all, widest {number(np.max(upper - lower), _UP)}"))
    return f"Interval of shape {upper.shape}", rows


def _status(code: Any) -> str:
    from jaxbounds.status import Status

    if _traced(code):
        return _kind(code)
    codes = np.asarray(code)
    if codes.ndim:
        counts = {Status(int(k)).name: int(np.sum(codes == k)) for k in np.unique(codes)}
        return ", ".join(f"{count} {name}" for name, count in counts.items())
    status = Status(int(codes))
    return f"{status.name}: {status.advice}"


def _upper(value: Any) -> str:
    return short(value) if _traced(value) or np.ndim(value) else number(value, _UP)


def _problem(problem: Any) -> str:
    parts = [short(problem.loss), short(problem.penalty), f"scale {problem.scale}"]
    return ", ".join(parts + (["intercept"] if problem.intercept else []))


def _of_model(model: Any) -> tuple[str, Rows]:
    n, d = model.alpha.shape[-1], model.w.shape[-1]
    sizes = f"{_counted(n, 'row')}, {_counted(d, 'column')}, {model.w.dtype}"
    rows = [("problem", _problem(model.problem)), ("data", sizes + ("" if model.data is not None else ", not stored"))]
    if model.inputs is not None:
        steps = ", ".join(model.inputs.steps) or "no scaler"
        named = "columns by name" if model.inputs.names is not None else "columns by number"
        rows.append(("inputs", f"{steps}; {named}"))
    rows += [("w", short(model.w))] + ([("intercept", short(model.intercept))] if model.problem.intercept else [])
    gap = _upper(model.gap)
    if not _traced((model.gap, model.primal)) and not np.ndim(model.gap):
        gap += f" ({number(float(model.gap) / max(abs(float(model.primal)), 1e-300), _UP)} of the objective)"
    return "Model", rows + [("gap", gap), ("status", _status(model.status)), ("steps", short(model.n_steps))]


def _of_bounds(bounds: Any) -> tuple[str, Rows]:
    rows = [("gap", _upper(bounds.gap)), ("radius", _upper(bounds.radius)), ("dual radius", _upper(bounds.dual_radius))]
    leaves = jax.tree.leaves((bounds.gap, bounds.model))
    concrete = not _traced(leaves) and not np.ndim(bounds.gap)
    if concrete and all(device.platform == "cpu" for leaf in leaves if isinstance(leaf, jax.Array)
                        for device in leaf.devices()):  # fmt: skip
        rows.append(("distance", _interval(bounds.distance)))
    return "Bounds on the retrained model", rows + [("status", _status(bounds.status))]


def _of_each(bounds: Any) -> tuple[str, Rows]:
    farthest: Any = bounds.moved[1]
    distance = short(farthest) if _traced(farthest) else number(np.max(np.asarray(farthest), initial=0.0), _UP)
    rows = [("method", short(bounds.method)), ("gap", short(bounds.gap)), ("radius", short(bounds.radius)),
            ("distance", f"at most {distance}"), ("status", _status(bounds.status))]  # fmt: skip
    return f"Bounds of {bounds.status.shape[0]} changes", rows


def _of_decision(decision: Any) -> tuple[str, Rows]:
    answer = short(decision.answer)
    if isinstance(decision.answer, np.ndarray | jax.Array) and not _traced(decision.answer):
        labels = np.asarray(decision.answer)
        answer = f"{_counted(labels.size, 'label')}, {int(np.sum(labels == 0))} undecided"
    rows = [("answer", answer), ("status", decision.status), ("method", short(decision.method).strip("'"))]
    for k, step in enumerate(decision.steps):
        rows.append((f"step {k + 1}", f"{step.name}: {step.seconds:.3g} s, radius {number(step.radius, _UP)}, "
                                      f"{step.open} open"))  # fmt: skip
    return "Decision", rows


def _of_left_out(found: Any) -> tuple[str, Rows]:
    rows = [("rows", short(found.rows)), ("loss", short(found.loss)), ("scores", short(found.scores))]
    if found.errors is not None:
        rows += [("errors", short(found.errors)), ("undecided", short(found.undecided))]
    if not _traced(found.how):
        rows.append(("answered by", ", ".join(f"{name} {count}" for name, count in found.used().items())))
    return type(found).__name__, rows


def _of_what_if(found: Any) -> tuple[str, Rows]:
    classes = [] if found.classes is None else [str(label) for label in found.classes]
    rows: Rows = [("classes", ", ".join(classes))] if classes else []
    for k, bounds in enumerate(found.bounds):
        name = "distance" if len(found.bounds) == 1 else f"distance, {classes[k]}"
        rows.append((name, _interval(bounds.distance)))
    return "What if", [*rows, ("gap", number(found.gap, _UP)), ("status", _status(int(found.status)))]


def _of_worst_case(found: Any) -> tuple[str, Rows]:
    if _traced(found.ends):
        return "WorstCase", [("scores", short(found.ends[1]))]
    certain = np.asarray(found.labels) != 0
    rows = [(f"k = {k + 1}", f"{int(line.sum())} of {_counted(line.size, 'label')} certain")
            for k, line in enumerate(certain[:_FEW])]  # fmt: skip
    return "WorstCase: any k rows", rows + ([("...", f"up to k = {len(certain)}")] if len(certain) > _FEW else [])


def _of_influence(found: Any) -> tuple[str, Rows]:
    scores = short(found.ends[1]) if _traced(found.ends) else short(found.scores)
    return "Influence of training rows on test scores", [("rows", short(found.rows)), ("scores", scores)]


def _of_ranks(found: Any) -> tuple[str, Rows]:
    rows = [("best", short(found.best)), ("worst", short(found.worst))]
    return "RowRanks", rows if _traced(found.ends) else [*rows, ("certain", short(found.certain))]


def _of_path(path: Any) -> tuple[str, Rows]:
    models = list(zip(path.penalties, path.models, strict=True))
    rows = [(short(penalty), f"gap {_upper(model.gap)}, {short(model.n_steps)} steps") for penalty, model in models]
    more = [("...", f"{len(rows)} in all")] if len(rows) > 2 * _FEW else []
    return f"Path of {_counted(len(rows), 'model')}", rows[: 2 * _FEW] + more


_KINDS: dict[str, Callable[[Any], tuple[str, Rows]]] = {
    "Interval": _of_interval, "Model": _of_model, "Bounds": _of_bounds, "EachBounds": _of_each,
    "Decision": _of_decision, "LeaveOneOut": _of_left_out, "CrossValidation": _of_left_out, "WhatIf": _of_what_if,
    "WorstCase": _of_worst_case, "Influence": _of_influence, "RowRanks": _of_ranks, "Path": _of_path,
}  # fmt: skip


def facts(value: Any) -> tuple[str, Rows]:
    """(title, rows) of a table about the object; no rows if the title says all."""
    describe = _KINDS.get(type(value).__name__)
    if describe is not None:
        return describe(value)
    if not any(_large(held) or _is_interval(held) for _, held in _fields(value)):
        return _inline(value), []
    rows = [(name, _status(held) if name == "status" else short(held)) for name, held in _fields(value)]
    return type(value).__name__, rows


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


def shown(cls: type) -> None:
    """Give a class these representations, unless it has its own."""
    for name, show in (("__repr__", text), ("_repr_html_", html)):
        if name not in cls.__dict__:
            setattr(cls, name, show)
