"""The elements that a change lists, one a position and in order, and the rows and columns that they are in."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbounds.draft import Draft, entries, nonzero
from jaxbounds.slots import distinct, edges, members, order_of


def base(draft: Draft, full_rows, listed_cols) -> list:
    """Old entries of the rows and columns that must be listed in full; they come before every put."""
    xp = draft.xp
    data: Any = draft.model.data
    gone = tuple(xp.concatenate(numbers) if numbers else None for numbers in draft.zeroed)

    def listed(numbers, axis: int):
        """All entries of old rows or columns: (numbers, which of them, number on the other axis, value)."""
        size = draft.old[axis]
        at = draft.local(numbers, axis)
        keep = at < size
        if xp is np:
            numbers, at = numbers[keep], at[keep]
        else:
            at = jnp.minimum(at, size - 1)
        slot, other, value = (data.matrix.rows if axis == 0 else data.matrix.columns)(at)
        if xp is jnp:
            value = jnp.where(keep[slot], value, 0)
        return numbers, slot, other, value

    def kept(numbers, slot, other, value, axis: int):
        """(row, column, old value, what stays of it): nothing where the row or column is replaced."""
        if xp is np:
            slot, other, value = nonzero(slot, other, value, np)
        own = numbers[slot]
        across = draft.across(own, other, axis)
        stays = value.astype(np.float64)
        if gone[axis] is not None:
            stays = xp.where(xp.isin(numbers, gone[axis])[slot], 0.0, stays)
        if gone[1 - axis] is not None:
            stays = xp.where(xp.isin(across, gone[1 - axis]), 0.0, stays)
        return *nonzero(*((own, across) if axis == 0 else (across, own)), value, xp), stays

    parts = []
    for axis, wanted in ((0, full_rows), (1, listed_cols)):
        wanted = [numbers for numbers in wanted if len(numbers)]
        if not wanted:
            continue
        if data is not None:
            top = draft.sizes[axis] * (draft.count or 1) if xp is np else draft.old[axis]
            found = [listed(_unique(wanted, top, xp), axis)]
        else:
            found = []
            for numbers, matrix in draft.blocks[axis]:
                row, col, value = entries(matrix, xp)
                found.append((numbers, row, col, value) if axis == 0 else (numbers, col, row, value))
        parts += [kept(*one, axis) for one in found]
    return parts


def merge(parts, draft: Draft):
    """One element a position: the first part's old value and the last part's new value."""
    xp = draft.xp
    rows, cols, old, new = (parts[0] if len(parts) == 1 else
                            (xp.concatenate([part[k] for part in parts]) for k in range(4)))  # fmt: skip
    key = rows * draft.sizes[1] + draft.local(cols, 1)
    if xp is np:
        order = order_of(key, draft.sizes[1] * draft.sizes[0] * (draft.count or 1))
        first = edges(key[order])
        first, last = np.flatnonzero(first), np.flatnonzero(np.append(first[1:], first[:1]))
        first, last = (at if isinstance(order, slice) else order[at] for at in (first, last))
        old, new = old[first], new[last]
        live = (old != 0) | (new != 0)
        if not live.all():
            last, old, new = last[live], old[live], new[live]
        return rows[last], cols[last], old, new
    order = jnp.argsort(key, stable=True)
    key, rows, cols, old, new = key[order], rows[order], cols[order], old[order], new[order]
    edge = key[1:] != key[:-1]
    first = jnp.concatenate([jnp.ones(1, bool), edge])
    last = jnp.concatenate([edge, jnp.ones(1, bool)])
    old = old[jax.lax.cummax(jnp.where(first, jnp.arange(key.shape[0]), 0))]
    live = last & ((old != 0) | (new != 0))
    return rows, cols, jnp.where(live, old, 0.0), jnp.where(live, new, 0.0)


def slots_of(numbers, more, size: int, whole: bool, xp):
    """(slots, the slot of each number): the numbers, and more, once each and in order; all below `size` if `whole`."""
    if whole:
        return xp.arange(size), xp.minimum(numbers, size)
    if xp is np:
        found, place = distinct(np.concatenate([numbers, *more]), size)
        return found, place[: numbers.size]
    found = _unique([numbers, *more], size, xp)
    return found, jnp.searchsorted(found, numbers)


def member(slots, groups, xp):
    """Which of the slots, in order, are in one of the groups."""
    if xp is np:
        return members(slots, groups)
    return jnp.isin(slots, jnp.concatenate(groups)) if groups else jnp.zeros(slots.shape[0], bool)


def _unique(arrays, size: int, xp):
    """The distinct numbers in order; under tracing padded with `size`."""
    merged = xp.concatenate([xp.zeros(0, np.int64), *(xp.asarray(a).astype(np.int64) for a in arrays)])
    if xp is np:
        return distinct(merged, size)[0]
    return jnp.unique(merged, size=min(merged.shape[0], size), fill_value=size)
