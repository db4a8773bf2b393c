"""A change being collected, part by part, with its indices and values checked: the first half of an edit.

Many changes at once are one change of a block-diagonal problem: row i of candidate b is row b n + i, column j is
column b d + j, where n and d count the added ones. Nothing else tells a batch from a single change.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbounds import kinds as ch
from jaxbounds.array import are_plain, to_host
from jaxbounds.host import HostMatrix
from jaxbounds.matrix import Matrix, Sparse
from jaxbounds.model import Model
from jaxbounds.own_labels import remedy
from jaxbounds.problem import LABELS

_NOWHERE = 2**31 - 1  # a number past every row and column


class Draft:
    """The parts of a change, in order, in the numbering of the new problem.

    Args:
        model: the model that changes.
        added: (rows, columns) that each candidate adds.
        xp: numpy, or jax.numpy under tracing (no batches there).
        count: number of candidates, or None for a single change.

    A single change on the host raises on the first bad index or value; tracers and batches carry flags (`valid`).
    """

    def __init__(self, model: Model, added: tuple[int, int], xp, count: int | None = None):
        self.model, self.xp, self.count = model, xp, count
        self.raises = xp is np and count is None
        self.old = model.alpha.shape[0], model.w.shape[0]
        self.sizes = self.old[0] + added[0], self.old[1] + added[1]
        self.numbered = list(self.old)  # rows and columns numbered so far
        self.n_count: Any = self.old[0] if count is None else np.full(count, self.old[0])  # what the mean divides by
        self.valid: Any = xp.asarray(True) if count is None else np.ones(count, bool)
        self.puts: list = []  # (rows, cols, old or None, new)
        self.zeroed: tuple[list, list] = [], []  # rows, columns whose old entries vanish
        self.gone: tuple[list, list] = [], []
        self.full_rows: list = []
        self.touched: tuple[list, list] = [], []  # rows and columns of single elements
        self.added_cols: list = []
        self.blocks: tuple[list, list] = [], []  # (rows or columns, old values), when the model has no data
        self.targets: list = []  # (rows, values)
        self.weights: list = []  # (rows, values)
        self.penalty: Any = None
        self.columns_only = True
        self.empty = True

    def place(self, numbers, owner, axis: int):
        """Numbers in the block-diagonal problem."""
        return numbers if owner is None else numbers + owner.astype(np.int64) * self.sizes[axis]

    def local(self, numbers, axis: int):
        """Numbers within the candidate."""
        return numbers if self.count in (None, 1) else numbers % self.sizes[axis]

    def owner(self, numbers, axis: int) -> Any:
        """The candidates of rows (axis 0) or columns (axis 1)."""
        return None if self.count is None else numbers // self.sizes[axis]

    def across(self, numbers, other, axis: int):
        """`other`, numbers of the other axis within the candidates of `numbers`."""
        return self.place(other.astype(np.int64), self.owner(numbers, axis), 1 - axis)

    def require(self, ok, owner):
        """Note the candidates where a condition fails."""
        if self.count is None:
            self.valid = self.valid & self.xp.all(ok)
        else:
            self.valid[owner[~ok]] = False

    def require_distinct(self, key, owner):
        """Note the candidates that name something twice."""
        order = self.xp.argsort(key)
        ordered = key[order]
        self.require(ordered[1:] != ordered[:-1], None if owner is None else owner[order[1:]])

    def number(self, values, owner, axis: int, distinct: bool = True):
        """Checked old rows (axis 0) or columns (axis 1)."""
        xp, size = self.xp, self.old[axis]
        name, what = ("rows", "row") if axis == 0 else ("cols", "column")
        values = xp.asarray(values)
        if self.raises:
            ch.check_range(values, size, name, what)
        else:
            self.require((values >= 0) & (values < size), owner)
        placed = self.place(xp.clip(values.astype(np.int64), 0, size - 1), owner, axis)
        for gone in self.gone[axis]:
            if self.raises:
                ch.check_alive(placed, gone, what)
            else:
                self.require(~xp.isin(placed, gone), owner)
        if distinct and not self.raises:
            self.require_distinct(placed, owner)
        return placed

    def finite(self, values, owner):
        """The values as float64; those that are not finite make a candidate invalid."""
        values = self.xp.asarray(values).astype(np.float64)
        if self.raises:  # checked by the constructors
            return values
        ok = self.xp.isfinite(values)
        self.require(ok, owner)
        return self.xp.where(ok, values, 0.0)

    def set_targets(self, rows, target, owner):
        """New targets, checked against the model's loss."""
        xp, target = self.xp, self.finite(target, owner)
        classes = getattr(self.model, "classes_", None)
        if self.model.problem.loss.classification or classes is not None:
            right = xp.abs(target) == 1
            if self.raises and not right.all():
                k = int(np.argmin(right))
                raise ValueError(f"y_new[{k}] = {target[k]} is not a label; {LABELS.format('y_new')}{remedy(classes)}")
            if not self.raises:
                self.require(right, owner)
            target = xp.where(right, target, 1.0)
        self.targets.append((rows, target))

    def set_weights(self, rows, weight, owner):
        """New sample weights, positive."""
        weight = self.finite(weight, owner)
        if not self.raises:
            self.require(weight > 0, owner)
        self.weights.append((rows, weight))

    def put(self, rows, cols, values, owner):
        """Write the entries of a block where all old entries vanish: zeros need not be written."""
        values = self.finite(values, owner)
        rows, cols, values = nonzero(rows, cols, values, self.xp)
        self.puts.append((rows, cols, None, values))

    def forget(self, numbers, axis: int, leave: bool = False):
        """Zero what earlier parts wrote into rows or columns that are replaced (but not in added ones), or leave."""

        def zero(put):
            hit = self.xp.isin(put[axis], numbers)
            if not leave:
                hit &= self.local(put[1 - axis], 1 - axis) < self.old[1 - axis]
            return (*put[:3], self.xp.where(hit, 0.0, put[3]))

        self.puts = [zero(put) for put in self.puts]

    def old_values(self, numbers, part, axis: int):
        """Keep the old values that the change brings if the model has no data."""
        if self.model.data is not None:
            return
        if part.old_values is None:
            raise ValueError("old_values is missing: this model was stored without its data, so the change must bring "
                             "the old rows (or columns, or elements) it touches")  # fmt: skip
        if not isinstance(part, ch.SetElements):
            ch.check_shape(part.old_values, (None, self.old[1]) if axis == 0 else (self.old[0], None), "old_values")
            self.blocks[axis].append((numbers, part.old_values))

    def grow(self, count: int, k: int, owner, axis: int):
        """Numbers of `count` new rows or columns, k for each candidate."""
        fresh = self.numbered[axis] + self.xp.arange(count) % k
        self.numbered[axis] += k
        return self.place(fresh, owner, axis)


def collect(draft: Draft, part: ch.Change, owner=None) -> None:
    """Add one elementary change to the draft; `owner` are the candidates of its rows, columns or elements."""
    xp, (n, d) = draft.xp, draft.old
    match part:
        case ch.SetPenalty():
            draft.penalty, draft.empty = part.penalty, False
            return
        case ch.SetElements():
            rows, cols = draft.number(part.rows, owner, 0, False), draft.number(part.cols, owner, 1, False)
            if not draft.raises:
                draft.require_distinct(rows * draft.sizes[1] + draft.local(cols, 1), owner)
            draft.old_values(rows, part, 0)
            if draft.model.data is None:
                old = xp.asarray(part.old_values)
            else:
                old = lookup(draft.model.data.matrix, draft.local(rows, 0), draft.local(cols, 1), xp)
            draft.puts.append((rows, cols, old, draft.finite(part.values, owner)))
            draft.touched[0].append(rows)
            draft.touched[1].append(cols)
        case ch.SetColumns() | ch.RemoveColumns():
            cols = draft.number(part.cols, owner, 1)
            draft.old_values(cols, part, 1)
            leaves = isinstance(part, ch.RemoveColumns)
            draft.forget(cols, 1, leaves)
            draft.zeroed[1].append(cols)
            if leaves:
                draft.gone[1].append(cols)
            else:
                ch.check_shape(part.matrix, (n, None), "X_new")
                row, slot, value = entries(part.matrix, xp)
                draft.put(draft.across(cols[slot], row, 1), cols[slot], value, _of(owner, slot))
        case ch.AddColumns():
            height, k = part.matrix.shape
            if height not in (n, draft.numbered[0]):
                raise ValueError(f"X_new of add_columns must have {n} rows like the data, got {height}")
            cols = draft.grow(k, k // (draft.count or 1), owner, 1)
            row, slot, value = entries(part.matrix, xp)
            draft.put(draft.across(cols[slot], row, 1), cols[slot], value, _of(owner, slot))
            draft.added_cols.append(cols)
        case ch.AddRows():
            k, width = part.matrix.shape
            if width not in (d, draft.numbered[1]):
                raise ValueError(f"X_new of add_rows must have {d} columns like the data, got {width}")
            each = k // (draft.count or 1)
            rows = draft.grow(k, each, owner, 0)
            slot, col, value = entries(part.matrix, xp)
            draft.put(rows[slot], draft.across(rows[slot], col, 0), value, _of(owner, slot))
            draft.full_rows.append(rows)
            draft.set_targets(rows, part.target, owner)
            draft.set_weights(rows, xp.ones(k) if part.weight is None else part.weight, owner)
            draft.n_count = draft.n_count + each
            draft.columns_only = False
        case ch.SetRows() | ch.SetTargets() | ch.SetWeights() | ch.RemoveRows():
            rows = draft.number(part.rows, owner, 0)
            draft.full_rows.append(rows)
            draft.old_values(rows, part, 0)
            draft.columns_only = False
            if isinstance(part, ch.SetRows):
                ch.check_shape(part.matrix, (None, d), "X_new")
                draft.forget(rows, 0)
                draft.zeroed[0].append(rows)
                slot, col, value = entries(part.matrix, xp)
                draft.put(rows[slot], draft.across(rows[slot], col, 0), value, _of(owner, slot))
            if isinstance(part, ch.SetRows | ch.SetTargets) and part.target is not None:
                draft.set_targets(rows, part.target, owner)
            if isinstance(part, ch.SetWeights):
                draft.set_weights(rows, part.weight, owner)
            if isinstance(part, ch.RemoveRows):
                draft.weights.append((rows, xp.zeros(rows.shape[0])))
                draft.gone[0].append(rows)
                if not part.keep_n:
                    gone = rows.shape[0] if owner is None else np.bincount(owner, minlength=draft.count or 0)
                    draft.n_count = draft.n_count - gone
        case _:
            raise TypeError(f"change must come from jaxbounds (set_rows, remove_rows, ...), got {type(part).__name__}")
    draft.empty = False


def _of(owner, slot):
    return None if owner is None else owner[slot]


def entries(matrix: Matrix | HostMatrix, xp):
    """(row, column, value) of every entry."""
    if isinstance(matrix, HostMatrix):
        return matrix.entries()
    if xp is np and isinstance(matrix, Sparse) and matrix.shape[1] < matrix.shape[0]:  # a few columns of many rows
        col, row, value = matrix.columns(np.arange(matrix.shape[1]))
        return row, col, value
    return matrix.rows(xp.arange(matrix.shape[0]))


def lookup(matrix: Matrix, rows, cols, xp):
    """X[rows, cols] as float64, for positions in bounds."""
    if xp is np and not are_plain(jax.tree.leaves(matrix)[:1]):
        matrix = to_host(matrix)
    return matrix.at(rows, cols).astype(np.float64)


def nonzero(rows, cols, values, xp):
    """The entries that are not zero, values as float64; under tracing the others are moved past the end."""
    rows, cols = (numbers.astype(np.int64, copy=False) for numbers in (rows, cols))
    values = values.astype(np.float64, copy=False)
    if xp is np:
        keep = values != 0
        return (rows, cols, values) if keep.all() else (rows[keep], cols[keep], values[keep])
    # sparse data pad their rows with zeros at column 0, which nothing may touch
    return jnp.where(values == 0, _NOWHERE, rows), jnp.where(values == 0, _NOWHERE, cols), values
