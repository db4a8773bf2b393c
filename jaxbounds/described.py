"""What each kind of object tells about itself: `TABLES` of a title and rows, and `LINES` that say all."""

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxbounds.array import on_host
from jaxbounds.display import (
    DOWN,
    FEW,
    UP,
    Rows,
    counted,
    interval_text,
    intervals,
    is_unknown,
    listed,
    number,
    shape_of,
    short,
    traced,
    upper,
    widest,
)
from jaxbounds.wording import after, batch_size, phrase, touched

Table = tuple[str, Rows]


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


def _known(*trees: Any) -> bool:
    return not is_unknown(trees)


def _rest(count: int) -> Rows:
    return [("...", f"{count:,} in all")] if count > FEW else []


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
    if model.inputs is not None:
        steps = ", ".join(model.inputs.steps) or "no scaler"
        named = "columns by name" if model.inputs.names is not None else "columns by number"
        rows.append(("inputs", f"{steps}; {named}"))
    rows += [("w", short(model.w))] + ([("intercept", short(model.intercept))] if model.problem.intercept else [])
    return "Model", [
        *rows,
        ("gap", _gap(model)),
        ("status", status_text(model.status)),
        ("steps", short(model.n_steps)),
    ]


def _of_multinomial(model: Any) -> Table:
    rows = [("problem", _problem(model.problem)), ("data", _sizes(model, model.alpha.shape[-2])), ("w", short(model.w))]
    rows += [("gap", _gap(model)), ("status", status_text(model.status)), ("steps", short(model.n_steps))]
    return f"MultinomialModel of {model.w.shape[-2]} classes", rows


def _of_one_vs_rest(found: Any) -> Table:
    first = found.models[0]
    rows = [("problem", _problem(first.problem)), ("data", _sizes(first, first.alpha.shape[-1]))]
    for k, model in enumerate(found.models[:FEW]):
        name = "" if not _known(model.status) or np.ndim(model.status) else f", {_status_name(model.status)}"
        rows.append((f"class {k}", f"gap {upper(model.gap)}, {short(model.n_steps)} steps{name}"))
    return f"OneVsRest of {counted(len(found.models), 'class')}", rows + _rest(len(found.models))


def _status_name(code: Any) -> str:
    return status_text(code).split(":")[0]


def _of_path(path: Any) -> Table:
    models = list(zip(path.penalties, path.models, strict=True))
    rows = [(short(penalty), f"gap {upper(model.gap)}, {short(model.n_steps)} steps") for penalty, model in models]
    return f"Path of {counted(len(rows), 'model')}", rows[:FEW] + _rest(len(rows))


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


def _of_bounds(bounds: Any) -> Table:
    rows = [("gap", upper(bounds.gap)), ("radius", upper(bounds.radius)), ("dual radius", upper(bounds.dual_radius))]
    if on_host(bounds.gap, bounds.model) and not np.ndim(bounds.gap):  # elsewhere it would have to be compiled
        rows.append(("distance", intervals(bounds.distance)))
    head = _head(bounds.parts[0][0].penalty, bounds)
    return f"Bounds on the retrained model{head}", [*rows, ("status", status_text(bounds.status))]


def _of_multinomial_bounds(bounds: Any) -> Table:
    rows = [("gap", upper(bounds.gap)), ("radius", upper(bounds.radius)), ("dual radius", upper(bounds.dual_radius))]
    if on_host(bounds) and not np.ndim(bounds.gap):
        rows.append(("distance", intervals(bounds.distance)))
    title = f"Bounds on the retrained model of {bounds.centre.shape[-2]} classes{_head(None, bounds)}"
    return title, [*rows, ("status", status_text(bounds.status))]


def _of_class_bounds(found: Any) -> Table:
    first, rows = found.bounds[0], []
    for k, bounds in enumerate(found.bounds[:FEW]):
        rows.append((f"class {k}", f"gap {upper(bounds.gap)}, radius {upper(bounds.radius)}"))
    rows += _rest(len(found.bounds))
    if on_host(*((one.gap, one.model) for one in found.bounds)) and not np.ndim(first.gap):
        rows += [("distance", intervals(found.distance)), ("status", status_text(found.status))]
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
    rows += _rest(len(found.bounds))
    head = _head(found.bounds[0].parts[0][0].penalty, *found.bounds)
    return f"What if{head}", [*rows, ("gap", number(found.gap, UP)), ("status", status_text(int(found.status)))]


def _of_region(region: Any) -> Table:
    rows = [(name, upper(getattr(region, field))) for name, field in
            (("gap", "gap"), ("radius", "radius"), ("dual radius", "dual_radius"))]  # fmt: skip
    return type(region).__name__, rows


# ---------------------------------------------------------------- changes


def _of_combined(change: Any) -> Table:
    parts = change.parts()
    rows = [(str(k + 1), phrase(part)) for k, part in enumerate(parts[:FEW])] + _rest(len(parts))
    many = batch_size(change)
    return f"{'Change' if many is None else f'{many:,} changes, each'} of {counted(len(parts), 'part')}", rows


def _change_line(change: Any) -> str:
    many = batch_size(change)
    return f"Change({phrase(change)})" if many is None else f"Changes({many:,}, each: {phrase(change)})"


def _of_batch(batch: Any) -> Table:
    rows = [(counted(group.count, "change"), after(touched(group), None) + (" in all" if group.count > 1 else ""))
            for group in batch.groups[:FEW]]  # fmt: skip
    return f"ChangeBatch of {counted(batch.size, 'change')}", rows + _rest(len(batch.groups))


# ---------------------------------------------------------------- answers


def _of_decision(decision: Any) -> Table:
    answer = short(decision.answer)
    if isinstance(decision.answer, np.ndarray) or hasattr(decision.answer, "dtype"):
        labels = np.asarray(decision.answer)
        answer = f"{counted(labels.size, 'label')}, {int(np.sum(labels == 0))} undecided"
    rows = [("answer", answer), ("status", decision.status), ("method", str(short(decision.method)).strip("'"))]
    return "Decision", rows + [(f"step {k + 1}", _step(step)) for k, step in enumerate(decision.steps)]


def _step(step: Any) -> str:
    return f"{step.name}: {step.seconds:.3g} s, radius {number(step.radius, UP)}, {step.open} open"


def _reply_line(reply: Any) -> str:
    return f"Reply(final={reply.final}, open={reply.open}, need={number(reply.need)})"


def _labels_known(question: Any) -> str:
    share = "" if question.fraction == 1 else f", fraction={number(question.fraction)}"
    return f"LabelsKnown(X={_entries(question.X)}{share})"


def _entries(matrix: Any) -> str:
    """float64[40,9], or float64[40,9], 57 stored."""
    values: Any = getattr(matrix, "values", matrix)
    count: Any = getattr(matrix, "count", getattr(values, "nnz", None))
    if count is None or is_unknown(count) or np.ndim(count):
        return shape_of(values)
    return f"{shape_of(values)}, {int(count):,} stored"


def _matrix(matrix: Any) -> str:
    return f"{type(matrix).__name__}({_entries(matrix)})"


def _push(push: Any) -> str:
    said = [f"number={push.number}", f"certified={push.certified}"]
    said += [] if push.answer is not None else ["answer=None"]
    said += [f"method={push.method!r}", f"lower={number(push.lower, DOWN)}", f"upper={number(push.upper, UP)}"]
    said += [f"{name}={getattr(push, name)}" for name in ("open", "broken") if getattr(push, name)]
    said += [f"rows={push.rows}"] if push.rows[0] != push.rows[1] else []
    return f"Push({', '.join(said + (['retrained=True'] if push.retrained else []))})"


def _of_left_out(found: Any) -> Table:
    rows = [("rows", short(found.rows)), ("loss", short(found.loss)), ("scores", short(found.scores))]
    if found.errors is not None:
        rows += [("errors", short(found.errors)), ("undecided", _count_of(found.undecided))]
    if _known(found.how):
        rows.append(("answered by", ", ".join(f"{name} {count}" for name, count in found.used().items())))
    return type(found).__name__, rows


def _count_of(mask: Any) -> str:
    if is_unknown(mask):
        return traced(mask)
    return f"{int(np.sum(np.asarray(mask))):,} of {counted(np.size(mask), 'row')}"


def _of_label_errors(found: Any) -> Table:
    rows, margin = np.asarray(found.rows), np.asarray(found.margin)
    low, high = np.asarray(found.scores.lower), np.asarray(found.scores.upper)
    said = [(f"row {row}", f"by at least {number(margin[k], DOWN)}, score in {interval_text(low[k], high[k])}")
            for k, row in enumerate(rows[:FEW])]  # fmt: skip
    left = len(found.undecided)
    head = f"{counted(rows.size, 'row')} contradicted, {left if left else 'none'} undecided"
    return f"LabelErrors: {head}", said + _rest(rows.size)


def _of_worst_case(found: Any) -> Table:
    if is_unknown(found.ends):
        return "WorstCase", [("scores", short(found.ends[1]))]
    certain = np.asarray(found.labels) != 0
    rows = [(f"k = {k + 1}", f"{int(line.sum()):,} of {counted(line.size, 'label')} certain")
            for k, line in enumerate(certain[:FEW])]  # fmt: skip
    return "WorstCase: any k rows", rows + ([("...", f"up to k = {len(certain)}")] if len(certain) > FEW else [])


def _of_influence(found: Any) -> Table:
    scores = short(found.ends[1]) if is_unknown(found.ends) else short(found.scores)
    return "Influence of training rows on test scores", [("rows", short(found.rows)), ("scores", scores)]


def _of_ranks(found: Any) -> Table:
    if is_unknown((found.ends, found.best)):
        return "RowRanks", [("best", short(found.best)), ("worst", short(found.worst))]
    best, worst = np.asarray(found.best), np.asarray(found.worst)
    first = np.argsort(best, kind="stable")[:FEW]
    rows = [(f"row {k}", f"rank {best[k]}" + ("" if best[k] == worst[k] else f" to {worst[k]}")) for k in first]
    rows += _rest(best.size)
    return f"RowRanks: {int(np.sum(best == worst)):,} of {counted(best.size, 'rank')} certain", rows


def _attack(attack: Any) -> str:
    what = "flips the label" if attack.flips else "does not flip the label"
    return f"Attack({counted(len(attack.rows), 'row')}: {listed(attack.rows)}; score {intervals(attack.score)}, {what})"


def _of_sweep(found: Any) -> Table:
    rows = [] if found.errors is None else [("errors", _least(found.errors))]
    return f"PenaltySweep of {np.shape(found.loss.upper)[-1]} penalties", [
        *rows, ("loss", _least(found.loss)), ("scores", short(found.scores))]  # fmt: skip


def _least(interval: Any) -> str:
    """The intervals in a line, and that of their least value."""
    if is_unknown(interval):
        return intervals(interval)
    low, high = np.asarray(interval.lower), np.asarray(interval.upper)
    return f"{intervals(interval)}; the least in {interval_text(low.min(), high.min())}"


def _of_best(best: Any) -> Table:
    ends = {0: "within eps of the best", 1: "stopped before that", 2: "no piece can be cut any further"}
    status = int(best.status)
    return "BestPenalty", [
        ("penalty", short(best.penalty)), ("error", intervals(best.error)),
        ("lower", f"{number(best.lower, DOWN)}: no penalty of the range is below it"),
        ("trained", f"{counted(int(best.n_trained), 'model')}, {int(best.n_refined)} refined"),
        ("model", f"{counted(best.model.alpha.shape[0], 'row')}, gap {upper(best.model.gap)}"),
        ("pieces", f"{len(best.pieces.lower)}"),
        ("status", f"{_status_name(best.status)}: {ends.get(status, '')}"),
    ]  # fmt: skip


def _of_pieces(pieces: Any) -> Table:
    (lam, l1), lower = ((np.asarray(x.lower), np.asarray(x.upper)) for x in (pieces.lam, pieces.l1)), pieces.lower
    rows = [(f"lam {interval_text(lam[0][k], lam[1][k])}",
             (f"l1 {interval_text(l1[0][k], l1[1][k])}, " if l1[1][k] > 0 else "") + f"at least {number(low, DOWN)}")
            for k, low in enumerate(np.asarray(lower)[:FEW])]  # fmt: skip
    return f"Pieces: {len(lower)}", rows + _rest(len(lower))


TABLES: dict[str, Callable[[Any], Table]] = {
    "Interval": _of_interval, "Model": _of_model, "MultinomialModel": _of_multinomial, "OneVsRest": _of_one_vs_rest,
    "Path": _of_path, "Bounds": _of_bounds, "MultinomialBounds": _of_multinomial_bounds,
    "OneVsRestBounds": _of_class_bounds, "EachBounds": _of_each, "WhatIf": _of_what_if, "Ball": _of_region,
    "Ellipsoid": _of_region, "Combined": _of_combined, "ChangeBatch": _of_batch, "Decision": _of_decision,
    "LeaveOneOut": _of_left_out, "CrossValidation": _of_left_out, "LabelErrors": _of_label_errors,
    "WorstCase": _of_worst_case, "Influence": _of_influence, "RowRanks": _of_ranks, "PenaltySweep": _of_sweep,
    "BestPenalty": _of_best, "Pieces": _of_pieces,
}  # fmt: skip
LINES: dict[str, Callable[[Any], str]] = dict.fromkeys(
    ("SetElements", "SetRows", "SetColumns", "SetTargets", "SetWeights", "AddRows", "RemoveRows", "AddColumns",
     "RemoveColumns", "SetPenalty", "Named"), _change_line,
) | {
    "LabelsKnown": _labels_known, "Step": lambda step: f"Step({_step(step)})", "Reply": _reply_line,
    "HostMatrix": _matrix, "Dense": _matrix, "Sparse": _matrix, "Push": _push, "Attack": _attack,
}  # fmt: skip
