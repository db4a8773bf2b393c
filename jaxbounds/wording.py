"""Changes in words: "remove 3 rows: 3, 8, 21", and what is left of that in the bounds: "3 rows removed"."""

from typing import Any

import jax
import numpy as np

from jaxbounds.display import counted, is_unknown, listed, short

_PARTS = {  # kind: verb, participle, what
    "SetElements": ("set", "set", "element"),
    "SetRows": ("set", "set", "row"),
    "SetColumns": ("set", "set", "column"),
    "SetTargets": ("set", "set", "target"),
    "SetWeights": ("set", "set", "weight"),
    "AddRows": ("add", "added", "row"),
    "RemoveRows": ("remove", "removed", "row"),
    "AddColumns": ("add", "added", "column"),
    "RemoveColumns": ("remove", "removed", "column"),
}
_KINDS = (*_PARTS, "SetPenalty", "Pushes")  # the last: into a monitor, which sums up what they touched


def _index(part: Any) -> Any:
    """The numbers of the rows or columns that a part names, None where it adds them."""
    if type(part).__name__ in ("AddRows", "AddColumns"):
        return None
    return part.cols if hasattr(part, "cols") and not hasattr(part, "rows") else part.rows


def _size(part: Any) -> int:
    """Rows, columns or elements of a part; of each candidate in a batch."""
    name = type(part).__name__
    if name == "SetPenalty":
        return 1
    if name == "AddColumns":
        return np.shape(part.matrix.values)[-1] if hasattr(part.matrix, "values") else part.matrix.shape[1]
    return np.shape(part.target if name == "AddRows" else _index(part))[-1]


def touched(change: Any) -> np.ndarray:
    """(kinds,) int32: how many rows, columns or elements a change sets, adds and removes; known of tracers too."""
    counts = np.zeros(len(_KINDS), np.int32)
    for part in change.parts():
        part = part.change if type(part).__name__ == "Named" else part
        counts[_KINDS.index(type(part).__name__)] += _size(part)
    return counts


def pushed(trail: Any) -> np.ndarray:
    """(kinds,) int32: what the pushes of a monitor's trail touched since its model was deployed, and their number."""
    counts = np.zeros(len(_KINDS), np.int32)
    for record in trail:
        if record["op"] == "refit":
            counts[:] = 0
        else:
            counts[:-1] += np.asarray(record.get("touched", 0), np.int32)  # earlier versions wrote none
            counts[-1] += 1
    return counts


def after(counts: Any, penalty: Any) -> str:
    """ "3 rows removed, 1 target set" from what `touched` says, of one change or a batch; penalty: the new one."""
    counts = np.asarray(counts).reshape(-1, len(_KINDS))
    if not len(counts) or np.any(counts != counts[:1]):
        return "several changes"
    *parts, penalties, pushes = counts[0].tolist()
    said = [f"{counted(k, what)} {done}" for k, (_, done, what) in zip(parts, _PARTS.values(), strict=True) if k]
    new = "a new penalty" if penalty is None else f"penalty {short(penalty)}"
    return (f"after {counted(pushes, 'push')}: " if pushes else "") + (
        ", ".join(said + ([new] if penalties else [])) or "no change")  # fmt: skip


def phrase(change: Any) -> str:
    """ "remove 3 rows: 3, 8, 21", for each candidate of a batch."""
    return "; ".join(map(_said, change.parts()))


def _said(part: Any) -> str:
    columns = labels = None
    if type(part).__name__ == "Named":
        part, columns, labels = part.change, part.columns, part.labels
    name = type(part).__name__
    if name == "SetPenalty":
        return f"set the penalty to {short(part.penalty)}"
    verb, _, what = _PARTS[name]
    said = f"{verb} {counted(_size(part), what)}"
    said += " with targets" if name == "SetRows" and part.target is not None else ""
    said += " with weights" if name == "AddRows" and part.weight is not None else ""
    if is_unknown(part):
        return f"{said} (traced)"
    where = _where(name, part, columns)
    said += f": {where}" if where else ""
    of = "to" if name == "SetTargets" else "labelled"
    said += f" {of} {listed(_distinct(part, labels))}" if labels else ""
    said += " (n kept)" if name == "RemoveRows" and part.keep_n else ""
    return said + (" (old values given)" if getattr(part, "old_values", None) is not None else "")


def _where(name: str, part: Any, columns: Any) -> str:
    """The numbers or names that a part lists, "" in a batch."""
    index = _index(part)
    if index is None or np.ndim(index) != 1:
        return ""
    index = np.asarray(index)
    if name == "SetElements":
        cols = [columns[k] if columns else int(k) for k in np.asarray(part.cols)]
        return listed([f"({row}, {col})" for row, col in zip(index, cols, strict=True)])
    names = [columns[k] for k in index] if columns and hasattr(part, "cols") else index
    of_rows = "" if name not in ("SetTargets", "SetWeights") else "row " if len(index) == 1 else "rows "
    return of_rows + listed(names)


def _distinct(part: Any, labels: Any) -> list:
    return [repr(labels[k]) for k in np.unique(np.asarray(part.target, np.int64))]


def batch_size(change: Any) -> int | None:
    """The number of candidates whose arrays lie along a leading axis of a change, None for a single change."""
    for part in change.parts():
        name = type(part).__name__
        index: Any = part.target if name == "AddRows" else _index(part) if name in _PARTS else None
        if np.ndim(index) == 2:
            return np.shape(index)[0]
        if name == "AddColumns" and np.ndim(jax.tree.leaves(part.matrix)[0]) == 3:
            return part.matrix.shape[0]
        if name == "SetPenalty" and type(part.penalty).__name__ != "FunctionPenalty":  # a user's may have any shape
            shape = max(map(np.shape, jax.tree.leaves(part)), key=len, default=())
            if len(shape) == 2:
                return shape[0]
    return None


def may_be_batch(change: Any) -> int | None:
    """The size of the batch that a lone new penalty may be: its vectors may also hold one number for each column."""
    parts = change.parts()
    if len(parts) > 1 or type(parts[0]).__name__ != "SetPenalty" or batch_size(change) is not None:
        return None
    sizes = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(parts[0])}
    return None if len(sizes) != 1 or () in sizes else next(iter(sizes))[0]
