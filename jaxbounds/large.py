"""Large changes of a batch, one at a time: as `bound` answers them, compiled where such changes come often.

Laid end to end the vectors of large changes fall out of the processor's caches, and there is little left to share.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from jaxbounds.batches import Flat
from jaxbounds.bounds import summarise
from jaxbounds.certificates import Cached, Method, Theorem1
from jaxbounds.edit import Edit, pad, prepare
from jaxbounds.kinds import AddColumns, AddRows, SetElements, SetPenalty
from jaxbounds.matrix import Sparse
from jaxbounds.model import Model
from jaxbounds.often import Ready
from jaxbounds.penalties import Penalty
from jaxbounds.scattered import Scattered, arranged
from jaxbounds.spots import are_spots
from jaxbounds.status import Status

_LARGE = 1 << 12  # elements of a candidate that are worth a call of their own
_TOGETHER = 1 << 19  # slots and elements of changes that are padded to the same sizes


def new_penalty(model: Model, group: Flat) -> Penalty:
    """The penalty of the candidates, with a leading axis if the change sets it."""
    new = [part.penalty for part in group.flat if isinstance(part, SetPenalty)]
    return new[-1] if new else model.problem.penalty


def large(model: Model, group: Flat, method: Method):
    """(count,) bool: which candidates of a group touch so many elements that they are asked one at a time."""
    strong = all(p.strong_convexity is not None for p in (model.problem.penalty, new_penalty(model, group)))
    if not isinstance(method, Cached | Theorem1) or model.problem.intercept or not strong:
        return np.zeros(group.count, bool)
    return touched(model, group) >= _LARGE


def touched(model: Model, group: Flat):
    """(count,) about how many elements each candidate touches, old and new."""
    total = np.zeros(group.count)
    for part, owner in zip(group.flat, group.owners, strict=True):
        if owner is not None:
            total += np.bincount(owner, _extent(model, part, len(owner)), minlength=group.count)
    return total


def _extent(model: Model, part: Any, count: int):
    """About how many elements each of the rows, columns or elements of a part has."""
    if isinstance(part, SetElements):
        return np.ones(count)
    along = 1 if hasattr(part, "cols") or isinstance(part, AddColumns) else 0
    (n, d), matrix = (model.alpha.shape[0], model.w.shape[0]), None if model.data is None else model.data.matrix
    if not isinstance(matrix, Sparse):
        return np.full(count, (d, n)[along])
    lists = (matrix.by_row, matrix.by_col)[along]
    new = part.matrix.nnz / count if hasattr(part, "matrix") and count else 0.0
    if isinstance(part, AddRows | AddColumns):
        return np.full(count, new)
    at = np.clip(part.cols if along else part.rows, 0, (n, d)[along] - 1)
    return new + sum(cut.data.shape[1] * (cut.start[at + 1] - cut.start[at]) for cut in lists.parts())


def each_alone(model: Model, known: Ready, method: Method, group: Flat) -> dict:
    """What is known of the candidates of a group: status, gap, radius, dual_radius, fallback and distance."""
    several = (_alone(model, known, group, k) for k in range(group.count))
    found = [_answer(known, method, asked) for asked in _alike(several)]
    gap, radius, dual_radius, status, *distance = np.array(found).T
    return {"gap": gap, "radius": radius, "dual_radius": dual_radius, "status": status.astype(np.int32),
            "fallback": np.zeros(group.count, np.int32), "distance": tuple(distance)}  # fmt: skip


def _alike(several: Iterable[Edit | Scattered | None]) -> Iterator[Edit | Scattered | None]:
    """The same, edits padded to the sizes of the largest ones near them: one program answers many.

    Padding at most doubles what there is to compute.
    """
    waiting: list[Edit] = []
    total, most = 0, (0, 0, 0)  # slots and elements of those that wait, and the most of one
    for asked in several:
        if not isinstance(asked, Edit):  # has its final sizes, and does not wait
            yield from _padded(waiting, most)
            waiting, total, most = [], 0, (0, 0, 0)
            yield asked
            continue
        sizes = asked.sizes
        total, larger = total + sum(sizes), tuple(map(max, sizes, most))
        if (len(waiting) + 1) * sum(larger) > min(_TOGETHER, 2 * total):
            yield from _padded(waiting, most)
            waiting, total, larger = [], sum(sizes), sizes
        waiting.append(asked)
        most = larger
    yield from _padded(waiting, most)


def _padded(edits: list[Edit], most: Sequence[int]) -> Iterator[Edit]:
    return (pad(edit, most) for edit in edits)


def _answer(known: Ready, method: Method, asked: Edit | Scattered | None):
    if asked is None:
        return np.array([np.inf, np.inf, np.inf, Status.INVALID, -np.inf, np.inf])
    found = known.answer(summarise, method, asked)
    return np.asarray(summarise(method, known.host, asked) if found is None else found)


def _alone(model: Model, known: Ready, group: Flat, k: int) -> Edit | Scattered | None:
    """Candidate k as a single change, None if it does not fit the model."""
    one = group.cut(k, k + 1)
    if are_spots(model, one):
        part = one.flat[0]
        n, d = model.alpha.shape[0], model.w.shape[0]
        fits = (part.rows >= 0) & (part.rows < n) & (part.cols >= 0) & (part.cols < d) & np.isfinite(part.values)
        return arranged(known, part.rows, part.cols, part.values) if fits.all() else None
    edit = prepare(model, one)
    if not edit.valid[0]:
        return None
    penalty = jax.tree.map(lambda leaf: leaf[0], edit.penalty) if edit.each_penalty else edit.penalty
    return replace(
        edit, unit=edit.unit[0], valid=edit.valid[0], penalty=penalty, owner_r=None, owner_q=None, terms=None,
        each_penalty=False,
    )  # fmt: skip
