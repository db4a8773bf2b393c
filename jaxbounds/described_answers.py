"""What answers tell about themselves: decisions, pushes, left-out rows, worst cases, sweeps; see `described`."""

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxbounds.display import (
    DOWN,
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
    traced,
    upper,
)


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
    return f"LabelsKnown(X={entries(question.X)}{share})"


_VERDICTS = {None: "not decided", True: "certified", False: "certified to fail"}


def _watched(record: dict[str, Any]) -> Rows:
    """What is known after a push: the distance, and the watched labels that are not certain to stay."""
    rows = [("distance", f"||w_new - w_old|| in {interval_text(record['lower'], record['upper'])}")]
    labels = [f"{record['open']:,} not decided"] if record["open"] else []
    labels += [f"{record['broken']:,} certain to change"] if record["broken"] else []
    return rows + ([("watched labels", ", ".join(labels))] if labels else [])


def _of_push(push: Any) -> Table:
    rows, (first, end) = _watched(vars(push)), push.rows
    if first != end:
        rows.append(("rows added", f"{first}" if end == first + 1 else f"{first} to {end - 1}"))
    if push.retrained:
        rows.append(("retrained", "after that, on the data with this push"))
    return f"Push {push.number}: deployed model {_VERDICTS[push.answer]} by {push.method}", rows


def _of_monitor(monitor: Any) -> Table:
    watch, trail, path = monitor._watch, monitor.trail, monitor._path
    watches = [] if watch.theta is None else [f"||w_new - w_old|| below {number(watch.theta)}"]
    watches += [] if watch.X is None else [f"the labels of {counted(watch.X.shape[0], 'row')}"]
    rows: Rows = [("watches", " and ".join(watches))]
    if trail and trail[-1]["op"] == "push":
        rows += [("now", f"{_VERDICTS[trail[-1]['answer']]} by {trail[-1]['method']}"), *_watched(trail[-1])]
    else:
        rows.append(("now", "no push since the deployed model was trained"))
    refits = counted(sum(record["op"] == "refit" for record in trail), "refit")
    title = f"Monitor of {counted(monitor.rows.shape[0], 'row')}, {counted(monitor._number, 'push')}, {refits}"
    return title, [*rows, ("file", "none" if path is None else path)]


def _of_left_out(found: Any) -> Table:
    return type(found).__name__, _left_out(found)


def _of_folds(found: Any) -> Table:
    if is_unknown(found.fold):
        return "CrossValidation", _left_out(found)
    sizes = np.unique(np.asarray(found.fold), return_counts=True)[1]
    least, most = sizes.min(), sizes.max()
    each = counted(int(most), "row") if least == most else f"{least:,} to {most:,} rows"
    return f"CrossValidation of {counted(sizes.size, 'fold')} of {each}", _left_out(found)


def _left_out(found: Any) -> Rows:
    rows = [("rows", short(found.rows)), ("mean loss", short(found.loss)), ("scores", short(found.scores))]
    if found.errors is not None:
        rows += [("errors", _share(found.errors, np.size(found.rows))), ("undecided rows", _marked(found))]
    if not is_unknown(found.how):
        rows.append(("answered by", ", ".join(f"{name} {count}" for name, count in found.used().items())))
    return rows


def _share(count: Any, total: int) -> str:
    """3 of 40 (7.5 %), or 3 to 5 of 40 (7.5 to 12.5 %)."""
    if is_unknown(count):
        return intervals(count)
    low, high = int(count.lower), int(count.upper)
    if low == high:
        return f"{low:,} of {total:,} ({number(100 * low / total)} %)"
    least, most = number(100 * low / total, DOWN), number(100 * high / total, UP)
    return f"{low:,} to {high:,} of {total:,} ({least} to {most} %)"


def _marked(found: Any) -> str:
    """The rows where the mask `undecided` is True."""
    if is_unknown(found.undecided):
        return traced(found.undecided)
    return _some(np.asarray(found.rows)[np.asarray(found.undecided)])


def _some(rows: Any) -> str:
    """49: 0, 3, 4, 7, 8, 9, ..."""
    return f"{len(rows):,}: {listed(rows)}" if len(rows) else "none"


def _of_label_errors(found: Any) -> Table:
    rows, margin = np.asarray(found.rows), np.asarray(found.margin)
    low, high = np.asarray(found.scores.lower), np.asarray(found.scores.upper)
    beyond = [f"beyond the limit by at least {number(one, DOWN)}" for one in margin[:FEW]]
    said = [(f"row {row}", f"{beyond[k]}, score in {interval_text(low[k], high[k])}")
            for k, row in enumerate(rows[:FEW])]  # fmt: skip
    said += [*rest(rows.size), ("undecided rows", _some(np.asarray(found.undecided)))]
    return f"LabelErrors: {counted(rows.size, 'row')} contradicted", said


def _of_worst_case(found: Any) -> Table:
    if is_unknown(found.ends):
        return "WorstCase", [("scores", short(found.ends[1]))]
    certain = np.asarray(found.labels) != 0
    rows = [(f"k = {k + 1}", f"{int(line.sum()):,} of {counted(line.size, 'label')} certain")
            for k, line in enumerate(certain[:FEW])]  # fmt: skip
    return "WorstCase: any k rows", rows + ([("...", f"up to k = {len(certain)}")] if len(certain) > FEW else [])


def _of_influence(found: Any) -> Table:
    title = "Influence: what a test score changes by without a training row"
    if is_unknown((found.ends, found.rows)) or np.ndim(found.rows) != 2:
        return title, [("rows", short(found.rows)), ("scores", short(found.ends[1]))]
    rows, low, high = (np.asarray(one) for one in (found.rows, found.scores.lower, found.scores.upper))

    def line(i: int) -> str:
        each = [f"row {rows[k, i]} {interval_text(low[k, i], high[k, i])}" for k in range(min(len(rows), 3))]
        return "; ".join(each + (["..."] if len(rows) > 3 else []))

    few = range(rows.shape[1])[:FEW]
    return f"{title}, {len(rows)} each", [(f"test row {i}", line(i)) for i in few] + rest(rows.shape[1])


def _of_ranks(found: Any) -> Table:
    if is_unknown((found.ends, found.best)):
        return "RowRanks", [("best", short(found.best)), ("worst", short(found.worst))]
    best, worst = np.asarray(found.best), np.asarray(found.worst)
    first = np.lexsort((best, worst - best))[:FEW]  # the surest
    rows = [(f"row {k}", f"rank {best[k]}" + ("" if best[k] == worst[k] else f" to {worst[k]}")) for k in first]
    rows += rest(best.size)
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
        ("status", f"{status_name(best.status)}: {ends.get(status, '')}"),
    ]  # fmt: skip


def _of_pieces(pieces: Any) -> Table:
    (lam, l1), lower = ((np.asarray(x.lower), np.asarray(x.upper)) for x in (pieces.lam, pieces.l1)), pieces.lower
    rows = [(f"lam {interval_text(lam[0][k], lam[1][k])}",
             (f"l1 {interval_text(l1[0][k], l1[1][k])}, " if l1[1][k] > 0 else "") + f"at least {number(low, DOWN)}")
            for k, low in enumerate(np.asarray(lower)[:FEW])]  # fmt: skip
    return f"Pieces: {len(lower)}", rows + rest(len(lower))


ANSWERS: dict[str, Callable[[Any], Table]] = {
    "Decision": _of_decision, "Push": _of_push, "Monitor": _of_monitor, "LeaveOneOut": _of_left_out,
    "CrossValidation": _of_folds, "LabelErrors": _of_label_errors, "WorstCase": _of_worst_case,
    "Influence": _of_influence, "RowRanks": _of_ranks, "PenaltySweep": _of_sweep, "BestPenalty": _of_best,
    "Pieces": _of_pieces,
}  # fmt: skip
ANSWER_LINES: dict[str, Callable[[Any], str]] = {
    "LabelsKnown": _labels_known, "Step": lambda step: f"Step({_step(step)})", "Reply": _reply_line, "Attack": _attack,
}  # fmt: skip
