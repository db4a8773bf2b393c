"""A change as the certificates see it: touched rows, touched columns and touched elements, whatever its kind.

`prepare` runs on NumPy for concrete changes (sizes padded to powers of two, so that few shapes are compiled) and on
jax.numpy inside jit and vmap (sizes static). The later parts of a combined change win.
"""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbounds import kinds as ch
from jaxbounds.array import on_host
from jaxbounds.draft import Draft, collect, entries, hide_zeros
from jaxbounds.matrix import Dense
from jaxbounds.model import Model
from jaxbounds.penalties import Penalty
from jaxbounds.pytree import pytree, static


@pytree
class Edit:
    """Touched rows (R slots), touched columns (Q slots) and touched elements (E); numbers past the end are padding.

    Sorted `rows` and `cols`; `row` and `col` of an element are slots. A `full` row lists all its entries, another row
    only those that change. Removed rows have weight 0, removed columns only zeros.
    """

    rows: Any  # (R,) int32
    cols: Any  # (Q,) int32
    row: Any  # (E,) int32 slot
    col: Any  # (E,) int32 slot
    old: Any  # (E,) float64
    new: Any  # (E,) float64
    full: Any  # (R,) bool
    target: Any  # (R,) float64
    weight: Any  # (R,) float64 sample weight
    row_removed: Any  # (R,) bool
    col_removed: Any  # (Q,) bool
    whole: Any  # (Q,) bool: all entries of the column are listed
    unit: Any  # c_i of a sample weight of one in the new problem
    valid: Any  # bool: indices in range and distinct, values finite
    penalty: Penalty
    n: int = static()  # rows, added ones included
    d: int = static()  # columns, added ones included
    all_rows: bool = static()  # the slots are all rows
    all_cols: bool = static()  # the slots are all columns
    rest: bool = static()  # only elements change: alpha may move in rows that are not full (L2)


def prepare(model: Model, change: ch.Change, whole: bool = False) -> Edit:
    """The edit of a change to a model; the host checks its indices and values, tracers carry a flag.

    `whole` also lists the whole rows and columns of single elements.
    """
    host = on_host(model, change)
    xp = np if host else jnp
    n, d = model.alpha.shape[0], model.w.shape[0]
    draft = Draft(n=n, d=d, n_count=n)
    for part in change.parts():
        draft = collect(draft, part, model, xp, host)
    if draft.n_count < 1 or draft.n <= sum(rows.shape[0] for rows in draft.gone_rows):
        raise ValueError("remove_rows leaves no row at all; keep at least one")
    if draft.d <= sum(cols.shape[0] for cols in draft.gone_cols):
        raise ValueError("remove_columns leaves no column at all; keep at least one")
    edit = _assemble(draft, model, xp, whole)
    if host:
        edit = _pad(edit)
    return edit


def _assemble(draft: Draft, model: Model, xp, whole: bool) -> Edit:
    """Merge the collected parts into sorted slots, one element a position."""
    host = xp is np
    problem, n, d = model.problem, draft.n, draft.d
    if not draft.columns_only and draft.penalty is None:
        raise ValueError("the change is empty")
    penalty = problem.penalty if draft.penalty is None else draft.penalty
    _check_penalty_size(penalty, model, d)
    unit = 1.0 / draft.n_count if problem.scale == "mean" else 1.0
    spot = all(draft.columns_only) and not whole
    listed_cols = draft.zero_cols + (draft.touched_cols if whole else ())
    rescaled = unit != problem.unit(model.alpha.shape[0]) or draft.penalty is not None
    euclidean = all(p.quadratic and jnp.ndim(p.strong_convexity) == 0 for p in (penalty, problem.penalty))
    bounded = penalty.dual_bound is not None
    # the other entries of an element's row are at hand only with the data
    full_rows = draft.full_rows + (() if spot or model.data is None else draft.touched_rows)
    dense = model.data is not None and isinstance(model.data.matrix, Dense)
    all_cols = (rescaled and not euclidean) or bounded or (dense and bool(full_rows))
    all_rows = bounded or bool(listed_cols) and dense

    parts = _base(draft, model, full_rows, listed_cols, xp) + [
        (r, c, xp.zeros(r.shape[0]) if old is None else old, new) for r, c, old, new in draft.puts
    ]
    rows, cols, old, new = _merge(parts, d, xp) if parts else (xp.zeros(0, int),) * 2 + (xp.zeros(0),) * 2
    if model.data is not None:  # new values are stored in the data's dtype, as `apply` does
        new = new.astype(model.data.matrix.dtype).astype(np.float64)

    row_slots = xp.arange(n) if all_rows else _unique((rows,) + full_rows + draft.touched_rows, n, xp)
    col_slots = xp.arange(d) if all_cols else _unique((cols,) + listed_cols, d, xp)
    slot_of_row, slot_of_col = xp.searchsorted(row_slots, rows), xp.searchsorted(col_slots, cols)

    old_n = model.alpha.shape[0]
    inside = xp.minimum(row_slots, old_n - 1)
    target, weight = (
        xp.where(row_slots < old_n, _gather(a, inside, host), fill)
        for a, fill in ((model.rows.target, 1.0), (model.rows.weight, 0.0))
    )
    for at, value in draft.targets:
        target = _put(target, xp.searchsorted(row_slots, at), value, host)
    for at, value in draft.weights:
        weight = _put(weight, xp.searchsorted(row_slots, at), value, host)
    valid = xp.asarray(True)
    for ok in draft.valid:
        valid = valid & ok
    return Edit(
        row_slots.astype(np.int32), col_slots.astype(np.int32), slot_of_row.astype(np.int32),
        slot_of_col.astype(np.int32), old, new, _member(row_slots, full_rows, xp), target, weight,
        _member(row_slots, draft.gone_rows, xp), _member(col_slots, draft.gone_cols, xp),
        _member(col_slots, listed_cols + draft.added_cols, xp), xp.asarray(unit), valid,
        penalty, n, d, all_rows, all_cols, spot and euclidean and not draft.gone_cols and model.data is not None,
    )  # fmt: skip


def _check_penalty_size(penalty: Penalty, model: Model, d: int) -> None:
    for leaf in jax.tree.leaves(penalty):
        if jnp.ndim(leaf) == 1 and leaf.shape[0] != d:
            raise ValueError(
                f"penalty has a parameter of length {leaf.shape[0]}, but the new problem has {d} columns (added ones "
                "last, removed ones included); combine the change with set_penalty"
            )


def _base(draft: Draft, model: Model, full_rows, listed_cols, xp) -> list:
    """Old entries of the rows and columns that must be listed in full; they come before every put."""
    host = xp is np
    n, d = model.alpha.shape[0], model.w.shape[0]
    rows, cols = [r for r in full_rows if len(r)], [c for c in listed_cols if len(c)]
    found = []
    if rows:
        if model.data is None:
            found += [(r[slot], col, value) for r, m in draft.row_blocks for slot, col, value in [entries(m, host)]]
        else:
            at = _unique(tuple(rows), n, xp)
            at = at[at < n] if host else at
            if len(at):
                slot, col, value = model.data.matrix.rows(at if host else jnp.minimum(at, n - 1))
                value = value if host else jnp.where(at[slot] < n, value, 0)
                found.append((at[slot], col, value))
    zero_rows = xp.concatenate(draft.zero_rows) if draft.zero_rows else None
    zero_cols = xp.concatenate(draft.zero_cols) if draft.zero_cols else None

    def kept(r, c, v):
        """Old entries stay unless their row or column is replaced."""
        gone = xp.zeros(v.shape, bool)
        for numbers, replaced in ((r, zero_rows), (c, zero_cols)):
            if replaced is not None:
                gone |= xp.isin(numbers, replaced)
        r, c, v = hide_zeros(r, v, xp), hide_zeros(c, v, xp), v.astype(np.float64)
        return r, c, v, xp.where(gone, 0.0, v)

    parts = [kept(*entry) for entry in found]
    if cols:
        if model.data is None:
            blocks = draft.col_blocks
            found = [(row, c[slot], value) for c, m in blocks for row, slot, value in [entries(m, host)]]
        else:
            at = _unique(tuple(cols), d, xp)
            slot, row, value = model.data.matrix.columns(at if host else jnp.minimum(at, d - 1))
            value = value if host else jnp.where(at[slot] < d, value, 0)
            found = [(row, at[slot], value)]
        parts += [kept(*entry) for entry in found]
    return parts


def _merge(parts, d: int, xp):
    """One element a position: the first part's old value and the last part's new value."""
    rows, cols, old, new = (xp.concatenate([xp.asarray(part[k]) for part in parts]) for k in range(4))
    rows, cols = rows.astype(np.int64), cols.astype(np.int64)
    key = rows * d + cols
    order = xp.argsort(key, stable=True)
    key, rows, cols, old, new = key[order], rows[order], cols[order], old[order], new[order]
    edge = key[1:] != key[:-1]
    first = xp.concatenate([xp.ones(1, bool), edge])
    last = xp.concatenate([edge, xp.ones(1, bool)])
    position = xp.where(first, xp.arange(key.shape[0]), 0)
    start = np.maximum.accumulate(position) if xp is np else jax.lax.cummax(position)
    old = old[start]
    live = last & ((old != 0) | (new != 0))
    if xp is np:
        return rows[live], cols[live], old[live], new[live]
    return rows, cols, jnp.where(live, old, 0.0), jnp.where(live, new, 0.0)


def _unique(arrays, size: int, xp):
    """Sorted distinct numbers; under tracing padded with `size`."""
    arrays = [xp.asarray(a).astype(np.int64) for a in arrays]
    merged = xp.concatenate(arrays) if arrays else xp.zeros(0, np.int64)
    if xp is np:
        return np.unique(merged)
    return jnp.unique(merged, size=min(merged.shape[0], size), fill_value=size)


def _member(slots, groups, xp):
    return xp.isin(slots, xp.concatenate(groups)) if groups else xp.zeros(slots.shape[0], bool)


def _gather(array, index, host: bool):
    return np.asarray(array)[index] if host else array[index]


def _put(array, at, value, host: bool):
    if not host:
        return array.at[at].set(value)
    array = array.copy()
    array[at] = value
    return array


def bucket(size: int) -> int:
    """The next power of two: few shapes, few compilations."""
    return 1 << max(size - 1, 0).bit_length() if size else 1


def _pad(edit: Edit) -> Edit:
    """Pad the slots to powers of two; padding points past the end and changes nothing."""

    def pad(array, size, value):
        return np.concatenate([array, np.full(size - array.shape[0], value, array.dtype)])

    R = edit.rows.shape[0] if edit.all_rows else bucket(edit.rows.shape[0])
    Q = edit.cols.shape[0] if edit.all_cols else bucket(edit.cols.shape[0])
    E = bucket(edit.row.shape[0])
    return replace(
        edit,
        rows=pad(edit.rows, R, edit.n),
        cols=pad(edit.cols, Q, edit.d),
        row=pad(edit.row, E, R),
        col=pad(edit.col, E, Q),
        old=pad(edit.old, E, 0.0),
        new=pad(edit.new, E, 0.0),
        full=pad(edit.full, R, False),
        target=pad(edit.target, R, 1.0),
        weight=pad(edit.weight, R, 0.0),
        row_removed=pad(edit.row_removed, R, False),
        col_removed=pad(edit.col_removed, Q, False),
        whole=pad(edit.whole, Q, False),
    )
