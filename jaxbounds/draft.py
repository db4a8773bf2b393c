"""A change being collected, part by part, with its indices and values checked: the first half of an edit."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbounds import kinds as ch
from jaxbounds.matrix import Dense, Matrix
from jaxbounds.model import Model
from jaxbounds.problem import LABELS
from jaxbounds.pytree import pytree, static

_NOWHERE = 2**31 - 1  # a number past every row and column


@pytree
class Draft:
    """A change being collected: lists of arrays, in order."""

    puts: tuple = ()  # (rows, cols, old or None, new)
    zero_rows: tuple = ()  # rows whose old entries vanish
    zero_cols: tuple = ()
    full_rows: tuple = ()
    touched_rows: tuple = ()  # rows and columns of single elements
    touched_cols: tuple = ()
    added_cols: tuple = ()
    row_blocks: tuple = ()  # (rows, old values), when the model has no data
    col_blocks: tuple = ()
    targets: tuple = ()  # (rows, values)
    weights: tuple = ()
    gone_rows: tuple = ()
    gone_cols: tuple = ()
    valid: tuple = ()
    penalty: Any = None
    columns_only: tuple = ()  # one flag a part
    n: int = static(default=0)
    d: int = static(default=0)
    n_count: int = static(default=0)  # rows the mean divides by


def collect(draft: Draft, part: ch.Change, model: Model, xp, host: bool) -> Draft:
    """Add one elementary change to the draft."""
    n, d = model.alpha.shape[0], model.w.shape[0]

    def index(values, size, removed, name, what):
        values = xp.asarray(values)
        if host:
            ch.check_range(values, size, name, what)
            for gone in removed:
                ch.check_alive(values, gone, what)
            return values.astype(np.int64), ()
        values = values.astype(jnp.int64)
        ordered = jnp.sort(values)
        ok = jnp.all((values >= 0) & (values < size)) & jnp.all(ordered[1:] != ordered[:-1])
        for gone in removed:
            ok &= ~jnp.any(jnp.isin(values, gone))
        return jnp.clip(values, 0, size - 1), (ok,)

    def rows_of(part):
        return index(part.rows, n, draft.gone_rows, "rows", "row")

    def cols_of(part):
        return index(part.cols, d, draft.gone_cols, "cols", "column")

    def values_ok(values):
        return () if host else (jnp.all(jnp.isfinite(values)),)

    def targets(rows, target):
        if not model.problem.loss.classification:
            return ((rows, xp.asarray(target)),), values_ok(target)
        if host:
            bad = np.flatnonzero(np.abs(np.asarray(target)) != 1)
            if bad.size:
                value = np.asarray(target)[bad[0]]
                raise ValueError(f"y_new[{bad[0]}] = {value} is not a label; {LABELS.format('y_new')}")
            return ((rows, xp.asarray(target)),), ()
        return ((rows, target),), (jnp.all(jnp.abs(target) == 1),)

    def block(matrix: Matrix, name):
        return tuple(xp.asarray(a) for a in entries(matrix, host)), () if host else values_ok(entries(matrix, host)[2])

    def placed(rows, cols, values):
        # the place was emptied before, so zeros need not be written
        return hide_zeros(rows, values, xp), hide_zeros(cols, values, xp), None, values.astype(np.float64)

    def old_rows(rows, part):
        if model.data is None and part.old_values is None:
            raise ValueError("old_values is missing: this model was stored without its data, so the change must bring "
                             "the old rows (or columns, or elements) it touches")  # fmt: skip
        if model.data is not None:
            return ()
        ch.check_shape(part.old_values, (None, d), "old_values")
        return ((rows, part.old_values),)

    match part:
        case ch.SetElements():
            rows, cols = xp.asarray(part.rows), xp.asarray(part.cols)
            if host:
                rows, _ = rows_of(part)
                cols, _ = cols_of(part)
                ok = ()
            else:
                rows, cols = rows.astype(jnp.int64), cols.astype(jnp.int64)
                inside = (rows >= 0) & (rows < n) & (cols >= 0) & (cols < d)
                rows, cols = jnp.clip(rows, 0, n - 1), jnp.clip(cols, 0, d - 1)
                key = jnp.sort(rows * d + cols)
                ok = (jnp.all(inside), jnp.all(key[1:] != key[:-1]))
                for gone, values in [(g, rows) for g in draft.gone_rows] + [(g, cols) for g in draft.gone_cols]:
                    ok += (~jnp.any(jnp.isin(values, gone)),)
            if model.data is None:
                if part.old_values is None:
                    old_rows(rows, part)
                old = xp.asarray(part.old_values)
            else:
                old = lookup(model.data.matrix, rows, cols, xp)
            return replace(
                draft,
                puts=draft.puts + ((rows, cols, old, xp.asarray(part.values)),),
                touched_rows=draft.touched_rows + (rows,),
                touched_cols=draft.touched_cols + (cols,),
                valid=draft.valid + ok + values_ok(part.values),
                columns_only=draft.columns_only + (True,),
            )
        case ch.SetRows():
            rows, ok = rows_of(part)
            ch.check_shape(part.matrix, (None, d), "X_new")
            (slot, col, value), fine = block(part.matrix, "X_new")
            new_targets, right = ((), ()) if part.target is None else targets(rows, part.target)
            return replace(
                draft,
                puts=_forget(draft.puts, xp, rows=rows, d=d) + (placed(rows[slot], col, value),),
                zero_rows=draft.zero_rows + (rows,),
                full_rows=draft.full_rows + (rows,),
                row_blocks=draft.row_blocks + old_rows(rows, part),
                targets=draft.targets + new_targets,
                valid=draft.valid + ok + fine + right,
                columns_only=draft.columns_only + (False,),
            )
        case ch.SetColumns() | ch.RemoveColumns():
            cols, ok = cols_of(part)
            if model.data is None and part.old_values is None:
                old_rows(cols, part)
            if part.old_values is not None:
                ch.check_shape(part.old_values, (n, None), "old_values")
            blocks = () if model.data is not None else ((cols, part.old_values),)
            leaves = isinstance(part, ch.RemoveColumns)
            draft = replace(
                draft,
                puts=_forget(draft.puts, xp, cols=cols, n=draft.n if leaves else n),
                zero_cols=draft.zero_cols + (cols,),
                col_blocks=draft.col_blocks + blocks,
                columns_only=draft.columns_only + (True,),
            )
            if leaves:
                return replace(draft, gone_cols=draft.gone_cols + (cols,), valid=draft.valid + ok)
            ch.check_shape(part.matrix, (n, None), "X_new")
            (row, slot, value), fine = block(part.matrix, "X_new")
            return replace(
                draft,
                puts=draft.puts + (placed(row, cols[slot], value),),
                valid=draft.valid + ok + fine,
            )
        case ch.SetTargets():
            rows, ok = rows_of(part)
            new_targets, right = targets(rows, part.target)
            return replace(
                draft,
                full_rows=draft.full_rows + (rows,),
                row_blocks=draft.row_blocks + old_rows(rows, part),
                targets=draft.targets + new_targets,
                valid=draft.valid + ok + right,
                columns_only=draft.columns_only + (False,),
            )
        case ch.SetWeights():
            rows, ok = rows_of(part)
            weight = xp.asarray(part.weight)
            return replace(
                draft,
                full_rows=draft.full_rows + (rows,),
                row_blocks=draft.row_blocks + old_rows(rows, part),
                weights=draft.weights + ((rows, weight),),
                valid=draft.valid + ok + (() if host else (jnp.all(jnp.isfinite(weight) & (weight > 0)),)),
                columns_only=draft.columns_only + (False,),
            )
        case ch.RemoveRows():
            rows, ok = rows_of(part)
            return replace(
                draft,
                full_rows=draft.full_rows + (rows,),
                row_blocks=draft.row_blocks + old_rows(rows, part),
                weights=draft.weights + ((rows, xp.zeros(rows.shape[0])),),
                gone_rows=draft.gone_rows + (rows,),
                valid=draft.valid + ok,
                n_count=draft.n_count - (0 if part.keep_n else rows.shape[0]),
                columns_only=draft.columns_only + (False,),
            )
        case ch.AddRows():
            k, width = part.matrix.shape
            if width not in (d, draft.d):
                raise ValueError(f"X_new of add_rows must have {d} columns like the data, got {width}")
            (slot, col, value), fine = block(part.matrix, "X_new")
            rows = xp.arange(draft.n, draft.n + k)
            new_targets, right = targets(rows, part.target)
            weight = xp.ones(k) if part.weight is None else xp.asarray(part.weight)
            return replace(
                draft,
                puts=draft.puts + (placed(rows[slot], col, value),),
                full_rows=draft.full_rows + (rows,),
                targets=draft.targets + new_targets,
                weights=draft.weights + ((rows, weight),),
                valid=draft.valid + fine + right,
                n=draft.n + k,
                n_count=draft.n_count + k,
                columns_only=draft.columns_only + (False,),
            )
        case ch.AddColumns():
            height, k = part.matrix.shape
            if height not in (n, draft.n):
                raise ValueError(f"X_new of add_columns must have {n} rows like the data, got {height}")
            (row, slot, value), fine = block(part.matrix, "X_new")
            cols = xp.arange(draft.d, draft.d + k)
            return replace(
                draft,
                puts=draft.puts + (placed(row, cols[slot], value),),
                added_cols=draft.added_cols + (cols,),
                valid=draft.valid + fine,
                d=draft.d + k,
                columns_only=draft.columns_only + (True,),
            )
        case ch.SetPenalty():
            return replace(draft, penalty=part.penalty)
    raise TypeError(f"change must come from jaxbounds (set_rows, remove_rows, ...), got {type(part).__name__}")


def entries(matrix: Matrix, host: bool):
    """(row, column, value) of every entry."""
    return matrix.rows(np.arange(matrix.shape[0]) if host else jnp.arange(matrix.shape[0]))


def _forget(puts, xp, rows=None, cols=None, n=None, d=None):
    """Zero what earlier parts wrote into whole rows (of d columns) or columns (of n rows) that are now replaced."""

    def zero(put):
        r, c, old, new = put
        hit = xp.isin(r, rows) & (c < d) if rows is not None else xp.isin(c, cols) & (r < n)
        return r, c, old, xp.where(hit, 0.0, new)

    return tuple(zero(put) for put in puts)


def lookup(matrix: Matrix, rows, cols, xp):
    """X[rows, cols] as float64."""
    if isinstance(matrix, Dense):
        values = np.asarray(matrix.values) if xp is np else matrix.values
        return values[rows, cols].astype(np.float64)
    slot, col, value = matrix.rows(rows)
    value = xp.where(col.astype(np.int64) == cols[slot], value, xp.zeros((), value.dtype)).astype(np.float64)
    if xp is np:
        return np.bincount(slot, value, minlength=len(rows))
    return jax.ops.segment_sum(value, slot, num_segments=rows.shape[0])


def hide_zeros(numbers, values, xp):
    """Row or column numbers of zero entries moved past the end: sparse data pad their rows with zeros at column 0."""
    return xp.where(values == 0, _NOWHERE, numbers.astype(np.int64))
