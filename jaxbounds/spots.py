"""Many changes of single elements: slots in the order of the elements, nothing merged or sorted.

Under L2 with one lam an element touches one row and one column, and the sums over a row's or a column's elements have
mostly one term. The same certificates then run on plain vectors, which one compiled program does in tens of
nanoseconds an element.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxbounds import kinds as ch
from jaxbounds.array import hold, uses_jax, xp
from jaxbounds.batches import Flat
from jaxbounds.draft import lookup
from jaxbounds.edit import Edit, Twins, bucket, scalar_l2
from jaxbounds.model import Model
from jaxbounds.pytree import pytree, static

_NO_TWINS = Twins(np.zeros(0, np.int32), np.zeros(0, np.int32))


@pytree
class Spots:
    """Candidates of `each` elements, end to end; numbers past the end are padding.

    Attributes:
        rows, cols: (E,) int32 slots, one an element: past the end where another element of the candidate holds it.
        new: (E,) float64 values.
        valid: (count,) bool: indices in range and distinct, values finite.
        row_twins, col_twins: elements that share a row or a column.
    """

    rows: Any
    cols: Any
    new: Any
    valid: Any
    row_twins: Twins
    col_twins: Twins
    each: int = static()

    def edit(self, model: Model) -> Edit:
        """The change as the certificates see it."""
        n, d = model.alpha.shape[0], model.w.shape[0]
        assert model.data is not None
        never = xp.zeros_like(self.rows, dtype=bool)
        at = self.row_twins.spread(self.rows), self.col_twins.spread(self.cols)
        inside = xp.minimum(at[0], n - 1), xp.minimum(at[1], d - 1)
        namespace = jnp if uses_jax(at) else np
        old = hold(xp.where(at[0] < n, lookup(model.data.matrix, *inside, namespace), 0.0))
        held, row = self.rows < n, xp.minimum(self.rows, n - 1)
        owner = np.repeat(np.arange(self.valid.shape[0]), self.each)
        element = np.arange(self.rows.shape[0])
        target, weight = xp.where(held, model.rows.target[row], 1.0), xp.where(held, model.rows.weight[row], 0.0)
        return Edit(
            self.rows, self.cols, element, element, old, self.new, never, target, weight, never, never, never,
            model.problem.unit(n), self.valid, model.problem.penalty, owner, owner, None, n, d, False, False, True,
            True, False, self.row_twins, self.col_twins, self.each,
        )  # fmt: skip


def are_spots(model: Model, changes: Flat) -> bool:
    """Whether the candidates change single elements alone, and their penalty and data let `Spots` hold them."""
    (part, *more) = changes.flat
    plain = model.inputs is None or not (model.inputs.steps or model.inputs.constant is not None)
    return (not more and isinstance(part, ch.SetElements) and model.data is not None and plain
            and not model.problem.intercept and scalar_l2(model.problem.penalty, 0))  # fmt: skip


def by_size(changes: Flat) -> list[tuple[Any, int]]:
    """[(members, slots each)]: candidates of about as many elements, in powers of two unless all have as many."""
    sizes = np.bincount(changes.owners[0], minlength=changes.count)
    if (sizes == sizes[0]).all():
        return [(np.arange(changes.count), int(sizes[0]))]
    slots = np.array([bucket(int(size)) for size in sizes])
    return [(np.flatnonzero(slots == each), int(each)) for each in np.unique(slots)]


def spots_of(model: Model, changes: Flat, members, each: int) -> Spots:
    """Candidates of at most `each` elements, on the host; their indices and values are checked."""
    (n, d), data, count = (model.alpha.shape[0], model.w.shape[0]), model.data, len(members)
    assert data is not None
    part, owner = changes.flat[0], changes.owners[0]
    rows, cols, new = (np.asarray(x) for x in (part.rows, part.cols, part.values))
    real = None
    if _side_by_side(owner, members, each):
        at = slice(int(members[0]) * each, (int(members[-1]) + 1) * each)
        rows, cols, new = (x[at].reshape(count, each) for x in (rows, cols, new))
    else:
        first, stop = np.searchsorted(owner, members), np.searchsorted(owner, members, "right")
        at = first[:, None] + np.arange(each)
        real = at < stop[:, None]
        rows, cols, new = (np.where(real, x[np.where(real, at, 0)], 0) for x in (rows, cols, new))
    new = new.astype(np.float64, copy=False)
    valid = np.ones(count, bool)
    if not (np.isfinite(new.sum()) and _within(rows, n) and _within(cols, d)):
        bad = ~np.isfinite(new) | (rows < 0) | (rows >= n) | (cols < 0) | (cols >= d)
        rows, cols, new = (np.where(bad, 0, x) for x in (rows, cols, new))
        valid = ~bad.any(axis=1)
    rows, cols = rows.astype(np.int32), cols.astype(np.int32)
    new = new.astype(data.matrix.dtype).astype(np.float64).ravel()  # stored in the data's dtype, as `apply` does
    if real is not None:
        rows, cols = np.where(real, rows, n), np.where(real, cols, d)
    row_twins, row_slots = _twins(rows, n)
    col_twins, col_slots = _twins(cols, d)
    if row_twins.at.size and col_twins.at.size:
        valid &= ~_repeat(rows, cols, row_twins)
    return Spots(row_slots, col_slots, new, valid, row_twins, col_twins, each)


def _side_by_side(owner, members, each: int) -> bool:
    """Whether the members are neighbours, and the elements of member m lie exactly at m each, ..., (m + 1) each - 1.

    That there are `each` times as many elements as candidates does not say so: 4 + 3 + 5 = 3 x 4.
    """
    first = np.asarray(members) * each
    if members[-1] - members[0] != len(members) - 1 or first[-1] + each > len(owner):
        return False
    return bool((owner[first] == members).all() and (owner[first + each - 1] == members).all())


def _within(numbers, size: int) -> bool:
    return numbers.min() >= 0 and numbers.max() < size


def blocks(spots: Spots, each_block: int, capacity: int) -> tuple[Spots, int]:
    """The candidates in blocks of equal size, the leading axis of every leaf, and how many blocks there are.

    Args:
        spots: at most capacity * each_block candidates. each_block: candidates of a block. capacity: blocks to make
            room for, so that one shape serves all batches.
    """
    count, slots = spots.valid.shape[0], each_block * spots.each

    def room(values, width: int, fill):
        whole = np.full((capacity, width), fill, values.dtype)
        whole.reshape(-1)[: values.size] = values
        return whole

    def split(twins: Twins):
        edges = np.searchsorted(twins.at, np.arange(capacity + 1) * slots)
        width = 0 if spots.each == 1 else max(64, bucket(int(np.diff(edges).max())))  # few shapes, few compilations
        place = edges[:-1, None] + np.arange(width)
        here = place < edges[1:, None]
        at, of = (np.full(place.shape, slots, np.int32) for _ in range(2))
        at[here], of[here] = twins.at[place[here]] % slots, twins.of[place[here]] % slots
        return Twins(at, of)

    nowhere = np.iinfo(np.int32).max
    return Spots(
        room(spots.rows, slots, nowhere), room(spots.cols, slots, nowhere),
        room(spots.new, slots, 0.0), room(spots.valid, each_block, False), split(spots.row_twins),
        split(spots.col_twins), spots.each,
    ), -(-count // each_block)  # fmt: skip


def _twins(numbers, size: int):
    """(twins, slots) of the rows or columns of (count, each) elements, `size` where a slot belongs to nobody."""
    count, each = numbers.shape
    if each == 1:
        return _NO_TWINS, numbers.ravel()
    shift = (each - 1).bit_length()
    kind = np.int32 if (size + 1) << shift < 2**31 else np.int64
    key = (numbers.astype(kind) << shift) | np.arange(each, dtype=kind)  # small keys sort in half the time
    key.sort(axis=1)
    number = key >> shift
    same = (number[:, 1:] == number[:, :-1]) & (number[:, 1:] < size)
    if not same.any():
        return _NO_TWINS, numbers.ravel()
    start = np.arange(each) * np.concatenate([np.ones((count, 1), bool), ~same], axis=1)
    owner, place = np.nonzero(same)
    first = np.maximum.accumulate(start, axis=1)[owner, place + 1]
    at, of = (owner * each + key[owner, k] % (1 << shift) for k in (place + 1, first))
    slots = numbers.ravel().copy()
    slots[at] = size
    return Twins(at.astype(np.int32), of.astype(np.int32)), slots


def _repeat(rows, cols, twins: Twins):
    """(count,) whether a candidate names an element twice, which only elements of one row can be."""
    count, each = rows.shape
    at = np.unique(np.concatenate([twins.at, twins.of]))
    owner, row, col = at // each, rows.ravel()[at], cols.ravel()[at]
    order = np.lexsort((col, row, owner))
    owner, row, col = owner[order], row[order], col[order]
    same = (owner[1:] == owner[:-1]) & (row[1:] == row[:-1]) & (col[1:] == col[:-1])
    found = np.zeros(count, bool)
    found[owner[1:][same]] = True
    return found
