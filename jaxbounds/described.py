"""What each kind of object tells about itself: `TABLES` of a title and rows, and `LINES` that say all."""

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxbounds.array import on_host
from jaxbounds.described_answers import ANSWER_LINES, ANSWERS
from jaxbounds.described_models import bound_status, class_name, classes_row, fit_status, penalised_row
from jaxbounds.display import (
    FEW,
    UP,
    Rows,
    Table,
    counted,
    entries,
    interval_text,
    intervals,
    is_unknown,
    listed,
    number,
    rest,
    short,
    status_name,
    status_text,
    upper,
    widest,
)
from jaxbounds.wording import after, batch_size, may_be_batch, phrase, touched


def _known(*trees: Any) -> bool:
    return not is_unknown(trees)


def _of_interval(interval: Any) -> Table:
    if is_unknown(interval) or np.size(interval.upper) <= 1:
        return f"Interval {intervals(interval)}", []
    low, high = np.asarray(interval.lower), np.asarray(interval.upper)
    first = [np.unravel_index(k, high.shape) for k in range(min(high.size, FEW))]
    rows = [(", ".join(map(str, at)), interval_text(low[at], high[at])) for at in first]
    if high.size > FEW:
        rows.append(("...", f"{high.size:,} in all, widest {widest(low, high)}"))
    return f"Interval of shape {high.shape}", rows


# ---------------------------------------------------------------- models


def _problem(problem: Any) -> str:
    parts = [short(problem.loss), short(problem.penalty), f"scale {problem.scale}"]
    return ", ".join(parts + (["intercept"] if problem.intercept else []))


def _sizes(model: Any, rows: int) -> str:
    said = f"{counted(rows, 'row')}, {counted(model.w.shape[-1], 'column')}, {model.w.dtype}"
    said += "" if model.data is not None else ", not stored"
    return said + (", factor kept" if getattr(model, "factor", None) is not None else "")


def _gap(model: Any) -> str:
    if not _known(model.gap, model.primal) or np.ndim(model.gap):
        return upper(model.gap)
    share = float(model.gap) / max(abs(float(model.primal)), 1e-300)
    return f"{upper(model.gap)} ({number(share, UP)} of the objective)"


def _of_model(model: Any) -> Table:
    rows = [("problem", _problem(model.problem)), ("data", _sizes(model, model.alpha.shape[-1]))]
    if model.inputs is not None and (model.inputs.steps or model.inputs.names is not None):
        steps = ", ".join(model.inputs.steps) or "no scaler"
        named = "columns by name" if model.inputs.names is not None else "columns by number"
        rows.append(("inputs", f"{steps}; {named}"))
    if model.inputs is not None and model.inputs.class_weights is not None:
        rows.append(("class weights", short(model.inputs.class_weights)))
    rows += classes_row(model)
    rows += [("w", short(model.w))] + ([("intercept", short(model.intercept))] if model.problem.intercept else [])
    rows += penalised_row(model)
    return "Model", [
        *rows,
        ("gap", _gap(model)),
        ("status", fit_status(model)),
        ("steps", short(model.n_steps)),
    ]


def _of_multinomial(model: Any) -> Table:
    rows = [("problem", _problem(model.problem)), ("data", _sizes(model, model.alpha.shape[-2])), ("w", short(model.w))]
    rows += [*classes_row(model), ("gap", _gap(model)), ("status", fit_status(model))]
    rows.append(("steps", short(model.n_steps)))
    return f"MultinomialModel of {model.w.shape[-2]} classes", rows


def _of_one_vs_rest(found: Any) -> Table:
    first = found.models[0]
    rows = [("problem", _problem(first.problem)), ("data", _sizes(first, first.alpha.shape[-1]))]
    for k, model in enumerate(found.models[:FEW]):
        name = "" if not _known(model.status) or np.ndim(model.status) else f", {status_name(model.status)}"
        rows.append((class_name(found, k), f"gap {upper(model.gap)}, {short(model.n_steps)} steps{name}"))
    return f"OneVsRest of {counted(len(found.models), 'class')}", rows + rest(len(found.models))


def _of_path(path: Any) -> Table:
    models = list(zip(path.penalties, path.models, strict=True))
    rows = [(short(penalty), f"gap {upper(model.gap)}, {short(model.n_steps)} steps") for penalty, model in models]
    return f"Path of {counted(len(rows), 'model')}", rows[:FEW] + rest(len(rows))


# ---------------------------------------------------------------- bounds


def _method(*each: Any) -> str:
    """Cached, or the method and the weaker one that answered for it, of one bounds or of those of all classes."""
    from jaxbounds.certificates.fallback import FALLBACKS

    said = short(each[0].method).removesuffix("()")
    weaker: list[Any] = [getattr(bounds, "fallback", None) for bounds in each]
    if any(code is None for code in weaker) or is_unknown(weaker):
        return said
    codes = np.concatenate([np.ravel(code) for code in weaker])
    for k, name in enumerate(FALLBACKS[1:]):
        count = int(np.sum(codes == k + 1))
        if count:
            said += f", answered by {name}" + (f" in {count:,} of {codes.size:,}" if codes.size > 1 else "")
    return said


def _head(penalty: Any, *each: Any) -> str:
    """ ": Cached, 2 rows set"."""
    first = each[0]
    if first.method is None:
        return ""
    return f": {_method(*each)}" + ("" if is_unknown(first.touched) else f", {after(first.touched, penalty)}")


def _ball_rows(bounds: Any, model: Any) -> Rows:
    """What bounds know at once, and the distance where it needs no compilation."""
    rows = _radii(bounds)
    known: tuple = ()
    if on_host(bounds.gap, model) and not np.ndim(bounds.gap):
        known = (bounds.distance,)
        rows.append(("distance", intervals(*known)))
    return [*rows, ("status", bound_status(bounds.status, *known))]


def _radii(found: Any) -> Rows:
    return [("gap", upper(found.gap)), ("radius", upper(found.radius)), ("dual radius", upper(found.dual_radius))]


def _of_bounds(bounds: Any) -> Table:
    head = _head(bounds.parts[0][0].penalty, bounds)
    return f"Bounds on the retrained model{head}", _ball_rows(bounds, bounds.model)


def _of_multinomial_bounds(bounds: Any) -> Table:
    title = f"Bounds on the retrained model of {bounds.centre.shape[-2]} classes{_head(None, bounds)}"
    return title, _ball_rows(bounds, bounds)


def _of_class_bounds(found: Any) -> Table:
    first, rows = found.bounds[0], []
    for k, bounds in enumerate(found.bounds[:FEW]):
        rows.append((class_name(found, k), f"gap {upper(bounds.gap)}, radius {upper(bounds.radius)}"))
    rows += rest(len(found.bounds))
    if on_host(*((one.gap, one.model) for one in found.bounds)) and not np.ndim(first.gap):
        status = bound_status(found.status, found.distance)
        rows += [("distance", intervals(found.distance)), ("status", status)]
    else:
        rows.append(("status", status_text(first.status)))
    head = _head(first.parts[0][0].penalty, *found.bounds)
    return f"Bounds on the retrained models of {len(found.bounds)} classes{head}", rows


def _of_each(bounds: Any) -> Table:
    farthest: Any = bounds.moved[1]
    distance = short(farthest) if is_unknown(farthest) else number(np.max(np.asarray(farthest), initial=0.0), UP)
    rows = [("gap", upper(bounds.gap)), ("radius", upper(bounds.radius)), ("distance", f"at most {distance}"),
            ("status", status_text(bounds.status))]  # fmt: skip
    changes = bounds.changes
    if hasattr(changes, "groups"):
        head, rows = "", [("changes", "; ".join(map(": ".join, _of_batch(changes)[1]))), *rows]
    else:
        head = f", {after(touched(changes), getattr(changes, 'penalty', None))} each"
    return f"Bounds of {counted(bounds.status.shape[0], 'change')}: {_method(bounds)}{head}", rows


def _of_what_if(found: Any) -> Table:
    classes = [] if found.classes is None else [str(label) for label in found.classes]
    rows: Rows = [("classes", listed(classes))] if classes else []
    for k, bounds in enumerate(found.bounds[:FEW]):
        name = "distance" if len(found.bounds) == 1 else f"distance, {classes[k]}"
        rows.append((name, intervals(bounds.distance)))
    rows += rest(len(found.bounds))
    head = _head(found.bounds[0].parts[0][0].penalty, *found.bounds)
    status = bound_status(int(found.status), *(one.distance for one in found.bounds))
    return f"What if{head}", [*rows, ("gap", number(found.gap, UP)), ("status", status)]


def _of_region(region: Any) -> Table:
    return type(region).__name__, _radii(region)


# ---------------------------------------------------------------- changes


def _of_combined(change: Any) -> Table:
    parts = change.parts()
    rows = [(str(k + 1), phrase(part)) for k, part in enumerate(parts[:FEW])] + rest(len(parts))
    many = batch_size(change)
    return f"{'Change' if many is None else _batch(many)} of {counted(len(parts), 'part')}", rows


def _change_line(change: Any) -> str:
    many, maybe = batch_size(change), may_be_batch(change)
    if maybe is not None:
        return f"Batch of {counted(maybe, 'change')}, or a single change: {phrase(change)}"
    return f"Change({phrase(change)})" if many is None else f"{_batch(many)}: {phrase(change)}"


def _batch(many: int) -> str:
    return f"Batch of {counted(many, 'change')}, each"


def _of_batch(batch: Any) -> Table:
    rows = [(counted(group.count, "change"), after(touched(group), None) + (" in all" if group.count > 1 else ""))
            for group in batch.groups[:FEW]]  # fmt: skip
    return f"ChangeBatch of {counted(batch.size, 'change')}", rows + rest(len(batch.groups))


def _matrix(matrix: Any) -> str:
    return f"{type(matrix).__name__}({entries(matrix)})"


TABLES: dict[str, Callable[[Any], Table]] = {
    "Interval": _of_interval, "Model": _of_model, "MultinomialModel": _of_multinomial, "OneVsRest": _of_one_vs_rest,
    "Path": _of_path, "Bounds": _of_bounds, "MultinomialBounds": _of_multinomial_bounds,
    "OneVsRestBounds": _of_class_bounds, "EachBounds": _of_each, "WhatIf": _of_what_if, "Ball": _of_region,
    "Ellipsoid": _of_region, "Combined": _of_combined, "ChangeBatch": _of_batch,
} | ANSWERS  # fmt: skip
LINES: dict[str, Callable[[Any], str]] = dict.fromkeys(
    ("SetElements", "SetRows", "SetColumns", "SetTargets", "SetWeights", "AddRows", "RemoveRows", "AddColumns",
     "RemoveColumns", "SetPenalty", "Named"), _change_line,
) | {"HostMatrix": _matrix, "Dense": _matrix, "Sparse": _matrix} | ANSWER_LINES  # fmt: skip
