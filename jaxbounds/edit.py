"""A change as the certificates see it: touched rows, touched columns and touched elements, whatever its kind.

`prepare` runs on NumPy for concrete changes (sizes padded to powers of two, so that few shapes are compiled) and on
jax.numpy inside jit and vmap (sizes static). The later parts of a combined change win.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbounds import kinds as ch
from jaxbounds.array import on_host, scatter_add, scatter_set, segment_sum, xp
from jaxbounds.batches import Flat
from jaxbounds.draft import Draft, collect
from jaxbounds.inputs import read_any
from jaxbounds.matrix import Dense
from jaxbounds.merge import base, member, merge, slots_of
from jaxbounds.model import Model
from jaxbounds.penalties import Penalty
from jaxbounds.pytree import pytree, static


@pytree
class Twins:
    """Elements `at` whose row (or column) another element `of` has too: it holds the slot of both.

    Every other element holds a slot of its own, in the order of the elements, so that sums over a slot's elements are
    the values themselves but for a few. Numbers past the end are padding.
    """

    at: Any  # (M,) int32
    of: Any  # (M,) int32

    def total(self, x):
        """Sums over the elements of each slot; 0 in the slots that nobody holds."""
        if not self.at.shape[0]:
            return x
        moved = xp.where(self.at < x.shape[0], x[xp.minimum(self.at, x.shape[0] - 1)], 0.0)
        return scatter_add(scatter_set(x, self.at, xp.zeros(self.at.shape)), self.of, moved)

    def spread(self, x):
        """The slots' values, at the elements."""
        if not self.at.shape[0]:
            return x
        return scatter_set(x, self.at, x[xp.minimum(self.of, x.shape[0] - 1)])


@pytree
class Edit:
    """Touched rows (R slots), touched columns (Q slots) and touched elements (E); numbers past the end are padding.

    Sorted `rows` and `cols`; `row` and `col` of an element are slots. A `full` row lists all its entries, another row
    only those that change. Removed rows have weight 0, removed columns only zeros.

    An edit may hold many candidates, one after the other: then `owner_r` and `owner_q` say whose a slot is, and
    `unit`, `valid` and the penalty have a leading axis. `total_*` sum over a candidate's slots, `to_*` hand a
    candidate's number to its slots; for a single change they are `sum` and the identity.
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
    owner_r: Any  # (R,) candidate, None for a single change
    owner_q: Any  # (Q,)
    terms: Any  # (row slots, column slots, elements) of each candidate, for rounding; None for a single change
    n: int = static()  # rows, added ones included
    d: int = static()  # columns, added ones included
    all_rows: bool = static()  # the slots are all rows
    all_cols: bool = static()  # the slots are all columns
    euclidean: bool = static()  # L2 with a scalar lam before and after: w - u moves by multiples of stored vectors
    rest: bool = static()  # only elements change: alpha may move in rows that are not full (L2)
    each_penalty: bool = static()  # the penalty's parameters have a leading axis over the candidates
    row_twins: Twins | None = None  # rows that elements share, where the slots lie as the elements do
    col_twins: Twins | None = None
    each: int = static(default=0)  # slots and elements of every candidate, 0 where they differ

    @property
    def count(self) -> int | None:
        """Number of candidates, None for a single change."""
        return None if self.owner_r is None else self.valid.shape[0]

    @property
    def sizes(self):
        """Numbers of row slots, column slots and elements (of each candidate), for rounding."""
        if self.each:
            return (bucket(self.each),) * 3
        return (self.rows.shape[0], self.cols.shape[0], self.row.shape[0]) if self.terms is None else self.terms

    def total_r(self, x):
        """Sum over the row slots."""
        return self._total(x, self.owner_r)

    def total_q(self, x):
        """Sum over the column slots."""
        return self._total(x, self.owner_q)

    def total_e(self, x):
        """Sum over the elements."""
        return self._total(x, None if self.owner_r is None else self.owner_r[self.row])

    def _total(self, x, owner):
        if self.each:
            return x if self.each == 1 else xp.sum(x.reshape(-1, self.each), axis=1)
        return x.sum() if owner is None else segment_sum(x, owner, self.valid.shape[0])

    def to_r(self, x):
        """A candidate's number at its row slots."""
        return self._to(x, self.owner_r)

    def to_q(self, x):
        """A candidate's number at its column slots."""
        return self._to(x, self.owner_q)

    def _to(self, x, owner):
        if np.ndim(x) == 0 or self.each == 1:
            return x
        return xp.repeat(x, self.each) if self.each else x if owner is None else x[owner]

    def by_row(self, x):
        """Sums over the elements of each row slot."""
        return segment_sum(x, self.row, self.rows.shape[0]) if self.row_twins is None else self.row_twins.total(x)

    def by_col(self, x):
        """Sums over the elements of each column slot."""
        return segment_sum(x, self.col, self.cols.shape[0]) if self.col_twins is None else self.col_twins.total(x)

    def of_row(self, x):
        """What the row slots hold, at the elements."""
        return xp.take(x, self.row, mode="clip") if self.row_twins is None else self.row_twins.spread(x)

    def of_col(self, x):
        """What the column slots hold, at the elements."""
        return xp.take(x, self.col, mode="clip") if self.col_twins is None else self.col_twins.spread(x)

    def rows_where(self, flags):
        """(n,) bool: the rows whose slots have a flag."""
        return scatter_set(np.zeros(self.n), self.rows, xp.where(flags, 1.0, 0.0)) > 0

    def cols_where(self, flags):
        """(d,) bool: the columns whose slots have a flag."""
        return scatter_set(np.zeros(self.d), self.cols, xp.where(flags, 1.0, 0.0)) > 0

    def penalty_slots(self) -> Penalty:
        """The new penalty, for the column slots."""
        if not self.each_penalty:
            return self.penalty.take(self.cols)
        columns = np.minimum(self.cols, self.d - 1)
        return jax.tree.map(
            lambda leaf: leaf[self.owner_q, columns] if np.ndim(leaf) == 2 else self.to_q(leaf), self.penalty
        )


def prepare(model: Model, change: ch.Change | Flat, whole: bool = False, host: bool | None = None) -> Edit:
    """The edit of a change to a model; the host checks its indices and values, tracers carry a flag.

    A `Flat` of many changes gives one edit of all, each with its flag. `whole` also lists the whole rows and columns
    of single elements. `host` says that both are on the host, or not, if that has been seen.
    """
    change = read_any(model, change)
    if isinstance(change, Flat):
        return _prepare_flat(model, change, whole)
    host = on_host(model, change) if host is None else host
    parts = change.parts()
    draft = Draft(model, ch.added(parts), np if host else jnp)
    for part in parts:
        collect(draft, part)
    if draft.n_count < 1 or draft.sizes[0] <= sum(rows.shape[0] for rows in draft.gone[0]):
        raise ValueError("remove_rows leaves no row at all; keep at least one")
    if draft.sizes[1] <= sum(cols.shape[0] for cols in draft.gone[1]):
        raise ValueError("remove_columns leaves no column at all; keep at least one")
    edit = _assemble(draft, model, whole)
    return pad(edit) if host else edit


def _prepare_flat(model: Model, changes: Flat, whole: bool) -> Edit:
    count = changes.count
    rows, cols = ch.added(changes.flat)
    draft = Draft(model, (rows // count, cols // count), np, count)
    for part, owner in zip(changes.flat, changes.owners, strict=True):
        collect(draft, part, owner)
    for size, gone in zip(draft.sizes, draft.gone, strict=True):
        draft.valid &= sum(np.bincount(numbers // size, minlength=count) for numbers in gone) < size
    draft.valid &= draft.n_count > 0
    draft.n_count = np.maximum(draft.n_count, 1)
    return _assemble(draft, model, whole)


def _assemble(draft: Draft, model: Model, whole: bool) -> Edit:
    """Merge the collected parts into sorted slots, one element a position."""
    problem, xp, (n, d), (old_n, _) = model.problem, draft.xp, draft.sizes, draft.old
    if draft.empty:
        raise ValueError("the change is empty")
    each_penalty = draft.count is not None and draft.penalty is not None
    penalty = problem.penalty if draft.penalty is None else draft.penalty
    _check_penalty_size(penalty, model, d, each_penalty)
    fine = penalty.in_range()
    valid = draft.valid & (fine.reshape(draft.count, -1).all(axis=1) if each_penalty else fine.all())
    unit = 1.0 / draft.n_count if problem.scale == "mean" else np.ones(np.shape(draft.n_count))
    spot = draft.columns_only and not whole
    listed_cols = draft.zeroed[1] + (draft.touched[1] if whole else [])
    rescaled = np.any(unit != problem.unit(old_n)) or draft.penalty is not None
    euclidean = scalar_l2(problem.penalty, 0) and scalar_l2(penalty, int(each_penalty))
    bounded = penalty.dual_bound is not None
    # the other entries of an element's row are at hand only with the data
    full_rows = draft.full_rows + ([] if spot or model.data is None else draft.touched[0])
    dense = model.data is not None and isinstance(model.data.matrix, Dense)
    all_cols = bool((rescaled and not euclidean) or bounded or (dense and full_rows))
    all_rows = bool(bounded or (listed_cols and dense))

    parts = base(draft, full_rows, listed_cols) + [
        (r, c, xp.zeros(r.shape[0]) if old is None else old, new) for r, c, old, new in draft.puts
    ]
    rows, cols, old, new = merge(parts, draft) if parts else (xp.zeros(0, int),) * 2 + (xp.zeros(0),) * 2
    if model.data is not None:  # new values are stored in the data's dtype, as `apply` does
        new = new.astype(model.data.matrix.dtype).astype(np.float64)

    blocks = draft.count or 1
    row_slots, slot_of_row = slots_of(rows, [*full_rows, *draft.touched[0]], blocks * n, all_rows, xp)
    col_slots, slot_of_col = slots_of(cols, listed_cols, blocks * d, all_cols, xp)

    at = draft.local(row_slots, 0)
    inside = xp.minimum(at, old_n - 1)
    target, weight = (
        xp.where(at < old_n, xp.asarray(memory)[inside], fill)
        for memory, fill in ((model.rows.target, 1.0), (model.rows.weight, 0.0))
    )
    for numbers, value in draft.targets:
        target = scatter_set(target, xp.searchsorted(row_slots, numbers), value)
    for numbers, value in draft.weights:
        weight = scatter_set(weight, xp.searchsorted(row_slots, numbers), value)
    return Edit(
        at.astype(np.int32), draft.local(col_slots, 1).astype(np.int32), slot_of_row.astype(np.int32),
        slot_of_col.astype(np.int32), old, new, member(row_slots, full_rows, xp), target, weight,
        member(row_slots, draft.gone[0], xp), member(col_slots, draft.gone[1], xp),
        member(col_slots, listed_cols + draft.added_cols, xp), xp.asarray(unit), valid, penalty,
        draft.owner(row_slots, 0), draft.owner(col_slots, 1),
        _terms(draft, row_slots, col_slots, rows), n, d, all_rows, all_cols, euclidean,
        spot and euclidean and not draft.gone[1] and model.data is not None, each_penalty,
    )  # fmt: skip


def _terms(draft: Draft, row_slots, col_slots, rows):
    """Row slots, column slots and elements of each candidate, rounded up as `pad` does."""
    if draft.count is None:
        return None
    owners = draft.owner(row_slots, 0), draft.owner(col_slots, 1), draft.owner(rows, 0)
    return tuple(_bucket_each(np.bincount(owner, minlength=draft.count)) for owner in owners)


def _bucket_each(sizes):
    return 2 ** np.ceil(np.log2(np.maximum(sizes, 1))).astype(np.int64)


def scalar_l2(penalty: Penalty, batch_axes: int) -> bool:
    """Whether the penalty is L2 with one lam (for each candidate, if it has a leading axis)."""
    return penalty.quadratic and np.ndim(penalty.strong_convexity) == batch_axes


def _check_penalty_size(penalty: Penalty, model: Model, d: int, each: bool) -> None:
    for leaf in jax.tree.leaves(penalty):
        if np.ndim(leaf) == 1 + each and leaf.shape[-1] != d:
            raise ValueError(
                f"penalty has a parameter of length {leaf.shape[-1]}, but the new problem has {d} columns (added ones "
                "last, removed ones included); combine the change with set_penalty"
            )


def bucket(size: int) -> int:
    """The next power of two: few shapes, few compilations."""
    return 1 << max(size - 1, 0).bit_length() if size else 1


def padded(size: int) -> int:
    """The size that slots are padded to: a power of two, or an eighth of one more often where padding costs time."""
    step = max(bucket(size) // 8, 1) if size > 1024 else bucket(size)
    return -(-size // step) * step or 1


def pad(edit: Edit, least: Sequence[int] = (0, 0, 0)) -> Edit:
    """Pad row slots, column slots and elements to few sizes; padding points past the end and changes nothing."""

    def filled(array, size, value):
        missing = size - array.shape[0]
        return np.concatenate([array, np.full(missing, value, array.dtype)]) if missing else array

    rows, cols, elements = map(max, edit.sizes, least)
    R = edit.n if edit.all_rows else padded(rows)
    Q = edit.d if edit.all_cols else padded(cols)
    E = padded(elements)
    return replace(
        edit,
        rows=filled(edit.rows, R, edit.n),
        cols=filled(edit.cols, Q, edit.d),
        row=filled(edit.row, E, R),
        col=filled(edit.col, E, Q),
        old=filled(edit.old, E, 0.0),
        new=filled(edit.new, E, 0.0),
        full=filled(edit.full, R, False),
        target=filled(edit.target, R, 1.0),
        weight=filled(edit.weight, R, 0.0),
        row_removed=filled(edit.row_removed, R, False),
        col_removed=filled(edit.col_removed, Q, False),
        whole=filled(edit.whole, Q, False),
    )
