"""Many changes at once: `stack`, `each_row_removed`, `each_target_flipped`, `each_penalty`, `ChangeBatch`."""

import dataclasses
import operator
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from jaxbounds.arguments import as_flag
from jaxbounds.array import put, to_host
from jaxbounds.changes import check_distinct, check_index, set_penalty
from jaxbounds.classes import ClassModel, not_a_model
from jaxbounds.host import HostMatrix
from jaxbounds.kinds import (
    AddColumns,
    AddRows,
    Change,
    Combined,
    RemoveColumns,
    RemoveRows,
    SetColumns,
    SetPenalty,
    SetTargets,
    added,
    check_range,
    is_stacked,
)
from jaxbounds.matrix import Dense, Sparse, as_matrix
from jaxbounds.messages import brief
from jaxbounds.model import Model
from jaxbounds.names import Named, numbered, own_codes
from jaxbounds.penalties import Penalty
from jaxbounds.pytree import in_float64, is_traced, pytree, static

_COLUMN_KINDS: Any = SetColumns, AddColumns, RemoveColumns


@pytree
class Flat:
    """Many changes with the same kinds of parts, laid end to end.

    Attributes:
        flat: the parts, each holding the rows, columns or elements of all candidates.
        owners: for each part the candidate of each row, column or element, ascending; None for penalties, whose
            parameters have a leading axis.
        members: (count,) the candidates' numbers in the batch.
    """

    flat: tuple
    owners: tuple
    members: Any
    count: int = static()

    def parts(self) -> tuple:
        """The parts, left to right, as a change has them."""
        return self.flat

    def cut(self, start: int, stop: int) -> "Flat":
        """The candidates start, ..., stop - 1."""
        flat, owners = [], []
        for part, owner in zip(self.flat, self.owners, strict=True):
            if owner is None:
                flat.append(jax.tree.map(lambda leaf: leaf[start:stop], part))
                owners.append(None)
                continue
            low, high = np.searchsorted(owner, (start, stop))
            flat.append(_per_index(lambda value, axis, at=slice(low, high): _slice(value[0], axis, at), part))
            owners.append(owner[low:high] - start)
        return Flat(tuple(flat), tuple(owners), self.members[start:stop], stop - start)

    def pick(self, members) -> "Flat":
        """The candidates of some numbers, ascending."""
        flat, owners = [], []
        for part, owner in zip(self.flat, self.owners, strict=True):
            if owner is None:
                flat.append(jax.tree.map(lambda leaf: leaf[members], part))
                owners.append(None)
                continue
            at = np.flatnonzero(np.isin(owner, members))
            flat.append(_per_index(lambda value, axis, at=at: _slice(value[0], axis, at), part))
            owners.append(np.searchsorted(members, owner[at]))
        return Flat(tuple(flat), tuple(owners), self.members[members], len(members))

    def change(self, k: int) -> Change:
        """Candidate k as a change of its own."""
        one = self.cut(k, k + 1)
        parts = []
        for part, owner in zip(one.flat, one.owners, strict=True):
            if owner is None:
                parts.append(jax.tree.map(lambda leaf: leaf[0], part))
            else:
                parts.append(_per_index(lambda value, _: _stored(value[0]), part))
        return put(parts[0] if len(parts) == 1 else Combined(tuple(parts)))


@pytree
class ChangeBatch:
    """Changes of different kinds and sizes: flat elements, whole rows and whole columns with their candidates.

    Made by `stack`, for `bound_each`; `len(batch)` counts the changes and `batch[b]` is one of them.

    Example:
        >>> import jaxbounds as jb
        >>> batch = jb.stack([jb.remove_rows([0]), jb.set_elements([1, 2], [0, 0], 5.0)])
        >>> len(batch), batch[1].rows.tolist()
        (2, [1, 2])
    """

    groups: tuple  # of Flat
    size: int = static()

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, b: int) -> Change:
        b = operator.index(b)
        if not -self.size <= b < self.size:
            raise IndexError(f"change {b} of a batch of {self.size}")
        group, at = next((g, at[0]) for g in self.groups if (at := np.flatnonzero(g.members == b % self.size)).size)
        return group.change(int(at))


def _per_index(fn, *parts) -> Any:
    """The first part with fn(values, axis) for what the parts hold of each of their rows, columns or elements."""
    along = 1 if isinstance(parts[0], _COLUMN_KINDS) else 0
    new = {}
    for field in dataclasses.fields(parts[0]):
        values = [getattr(part, field.name) for part in parts]
        if values[0] is not None and not field.metadata.get("static"):
            new[field.name] = fn(values, along if isinstance(values[0], Dense | Sparse | HostMatrix) else 0)
    return dataclasses.replace(parts[0], **new)


def _slice(value, axis: int, at):
    if isinstance(value, HostMatrix):
        return HostMatrix(value.values[at] if axis == 0 else value.values[:, at])
    return value[at]


def _stored(value):
    return as_matrix(value.values) if isinstance(value, HostMatrix) else value


def _join(values, axis: int):
    """Arrays or matrices of several candidates end to end, on the host."""
    if not isinstance(values[0], Dense | Sparse):
        return np.concatenate([np.asarray(value) for value in values])
    blocks = [value.to_scipy() for value in values]
    if not any(sp.issparse(block) for block in blocks):
        return HostMatrix(np.concatenate(blocks, axis))
    blocks = [sp.csr_array(block) for block in blocks]
    return HostMatrix(sp.vstack(blocks, "csr") if axis == 0 else sp.hstack(blocks, "csc"))


def _length(part: Any) -> int:
    """Number of rows, columns or elements of a part."""
    if isinstance(part, AddRows | AddColumns):
        return part.matrix.shape[int(isinstance(part, AddColumns))]
    return (part.cols if isinstance(part, _COLUMN_KINDS) else part.rows).shape[0]


def _make(part) -> tuple:
    """What two parts must have in common to be laid end to end."""
    if isinstance(part, SetPenalty):
        leaves, structure = jax.tree.flatten(part)
        return structure, tuple(np.shape(leaf) for leaf in leaves)
    fields = dataclasses.fields(part)
    shape = tuple(
        getattr(part, f.name) if f.metadata.get("static") else getattr(part, f.name) is None for f in fields
    )
    across = part.matrix.shape[int(not isinstance(part, _COLUMN_KINDS))] if hasattr(part, "matrix") else 0
    added = _length(part) if isinstance(part, AddRows | AddColumns) else 0
    return type(part), shape, across, added


def _lay(changes: list[Change], members) -> Flat:
    """Changes with the same kinds of parts as one Flat."""
    flat, owners = [], []
    for parts in zip(*(change.parts() for change in changes), strict=True):
        if isinstance(parts[0], SetPenalty):
            flat.append(jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *parts))
            owners.append(None)
            continue
        flat.append(_per_index(_join, *parts))
        owners.append(np.repeat(np.arange(len(parts)), [_length(part) for part in parts]))
    return Flat(tuple(flat), tuple(owners), np.asarray(members), len(changes))


@in_float64
def stack(changes, model: Model | None = None) -> Any:
    """Many changes for `bound_each`.

    Args:
        changes: a sequence of changes. Equal kinds and shapes give a change whose arrays have a leading axis, which
            `jax.vmap` takes too; anything else a `ChangeBatch`.
        model: whose names of columns and labels are meant, where changes hold names.

    Returns:
        a change with a leading axis, or a ChangeBatch.

    Raises:
        TypeError: an item is not a change. ValueError: there is none, or it holds names that nobody knows.

    Example:
        >>> import jaxbounds as jb
        >>> jb.stack([jb.remove_rows([0]), jb.remove_rows([3])]).rows.tolist()
        [[0], [3]]
    """
    if isinstance(changes, Change) or not isinstance(changes, Iterable):
        raise TypeError(f"changes must be a sequence of changes, got {type(changes).__name__}")
    if not isinstance(model, Model | ClassModel | None):
        raise TypeError(not_a_model(model))
    changes = list(changes)
    if not changes:
        raise ValueError("changes is empty; pass at least one change")
    for k, change in enumerate(changes):
        if not isinstance(change, Change):
            raise TypeError(f"changes[{k}] is not a change, got {type(change).__name__}; use set_rows, ...")
        if any(isinstance(part, Named) for part in change.parts()):
            if model is None:
                raise ValueError(f"changes[{k}] has names of columns or labels; say whose they are, "
                                 "stack(changes, model), or pass numbers and arrays")  # fmt: skip
            changes[k] = numbered(model, change)
    structures = {jax.tree.structure(change) for change in changes}
    shapes = {tuple((np.shape(x), x.dtype) for x in jax.tree.leaves(change)) for change in changes}
    if len(structures) == len(shapes) == 1:
        with jax.enable_x64(True):
            if is_traced(changes):
                return jax.tree.map(lambda *leaves: jnp.stack(leaves), *changes)
            return put(jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *changes))
    if is_traced(changes):
        raise ValueError("changes differ in kind or shape; inside jit, vmap or grad only equal ones can be stacked")
    makes: dict = {}
    for b, change in enumerate(changes):
        makes.setdefault(tuple(map(_make, change.parts())), []).append(b)
    return ChangeBatch(tuple(_lay([changes[b] for b in members], members) for members in makes.values()), len(changes))


@in_float64
def each_row_removed(model: Model, rows=None, keep_n: bool = False) -> Change:
    """One change for each row: the removal of that row alone (leave-one-out).

    Args:
        model: the model whose rows are meant. rows: (m,) integers, all rows by default.
        keep_n: as in `remove_rows`.

    Returns:
        a change with a leading axis, for `bound_each` and `jax.vmap`.

    Raises:
        ValueError: a row is out of range.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0))
        >>> model = jb.fit(problem, np.eye(3), np.ones(3))
        >>> jb.bound_each(model, jb.each_row_removed(model)).distance.upper.shape
        (3,)
    """
    rows = _rows_of(model, rows)
    if model.data is None:
        raise ValueError("each_row_removed needs a model with its data; stack changes with old_values instead")
    return put(RemoveRows(rows[:, None], None, as_flag(keep_n, "keep_n")))


@in_float64
def each_target_flipped(model: Model, rows=None) -> Change:
    """One change for each row: its label flipped (margin losses).

    Args:
        model: a classifier. rows: (m,) integers, all rows by default.

    Returns:
        a change with a leading axis, for `bound_each` and `jax.vmap`.

    Raises:
        ValueError: the model is a regression, or a row is out of range.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(1.0))
        >>> model = jb.fit(problem, np.eye(2), np.array([1.0, -1.0]))
        >>> jb.each_target_flipped(model).target.tolist()
        [[-1.0], [1.0]]
    """
    if not isinstance(model, Model):
        raise TypeError(not_a_model(model))
    if not model.problem.loss.classification and own_codes(model) is None:
        raise ValueError(f"{model.problem.loss.name} has no labels to flip; stack set_targets changes instead")
    rows = _rows_of(model, rows)
    if model.data is None:
        raise ValueError("each_target_flipped needs a model with its data; stack changes with old_values instead")
    target = model.rows.target if is_traced(rows, model) else np.asarray(model.rows.target)
    return put(SetTargets(rows[:, None], -target[rows][:, None]))


def _rows_of(model: Model, rows):
    if not isinstance(model, Model):
        raise TypeError(not_a_model(model))
    n = model.alpha.shape[0]
    if rows is None:
        return np.arange(n, dtype=np.int32)
    rows = check_index(rows, "rows")
    if not is_traced(rows):
        check_range(rows, n, "rows", "row")
        check_distinct(rows, "rows")
    return rows


def each_penalty(penalties) -> Any:
    """One change for each penalty: the same data under another lambda.

    Args:
        penalties: a sequence of penalties, or one whose parameters have a leading axis, as `jax.vmap(l2)(lams)` gives
            (a single `l2(vector)` is read so too: put it in a list if one lam a column is meant).

    Returns:
        a change with a leading axis (a ChangeBatch if the penalties differ in kind).

    Raises:
        TypeError: not penalties. ValueError: there is none, or the leading axes differ.

    Example:
        >>> import jax, jax.numpy as jnp, jaxbounds as jb
        >>> jb.each_penalty(jax.vmap(jb.penalties.l2)(jnp.array([0.1, 1.0]))).penalty.strong_convexity.shape
        (2,)
    """
    if not isinstance(penalties, Penalty):
        return stack([set_penalty(penalty) for penalty in listed_penalties(penalties)])
    sizes = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(penalties)}
    if len(sizes) != 1 or () in sizes or (0,) in sizes:
        raise ValueError("penalties must be a sequence, or one penalty whose parameters share a leading axis, as "
                         "jax.vmap(jb.penalties.l2)(lams) gives")  # fmt: skip
    return SetPenalty(penalties)


def listed_penalties(penalties) -> list[Penalty]:
    """A sequence of penalties as a list, checked."""
    remedy = "write [jb.penalties.l2(lam) for lam in lams]"
    if isinstance(penalties, str) or not isinstance(penalties, Iterable):
        raise TypeError(f"penalties must be a sequence of penalties, got {brief(penalties)}; {remedy}")
    penalties = list(penalties)
    if not penalties:
        raise ValueError(f"penalties is empty; pass at least one: {remedy}")
    for k, penalty in enumerate(penalties):
        if not isinstance(penalty, Penalty):
            raise TypeError(f"penalties[{k}] must be a penalty, got {type(penalty).__name__}; {remedy}")
    return penalties


def size_of(changes) -> int:
    """Number of candidates of a batch, checked."""
    if isinstance(changes, ChangeBatch):
        return changes.size
    if not isinstance(changes, Change):
        raise TypeError(f"changes must come from stack, each_row_removed, ...; got {type(changes).__name__}")
    sizes = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(changes)}
    if len(sizes) != 1 or () in sizes or not all(map(is_stacked, changes.parts())):
        raise ValueError("changes is a single change; stack([change, ...]) makes a batch of it")
    return next(iter(sizes))[0]


def added_columns(changes) -> set[int]:
    """The numbers of columns that candidates add."""
    if isinstance(changes, ChangeBatch):
        return {added(group.flat)[1] // group.count for group in changes.groups}
    return {added(candidate(changes, 0).parts())[1]}


def groups_of(changes) -> tuple[Flat, ...]:
    """The batch on the host, laid end to end."""
    if isinstance(changes, ChangeBatch):
        return changes.groups
    count = size_of(changes)
    parts = changes.parts()
    if any(isinstance(getattr(p, name, None), Sparse) for p in parts for name in ("matrix", "old_values")):
        return (_lay([candidate(changes, b) for b in range(count)], np.arange(count)),)
    flat, owners = [], []
    for part in to_host(parts):
        if isinstance(part, SetPenalty):
            flat.append(part)
            owners.append(None)
            continue
        flat.append(_per_index(lambda value, axis: _end_to_end(value[0], axis), part))
        owners.append(np.repeat(np.arange(count), _length(flat[-1]) // count))
    return (Flat(tuple(flat), tuple(owners), np.arange(count), count),)


def _end_to_end(value, axis: int):
    """A stacked array or matrix with its candidates one after the other."""
    if not isinstance(value, Dense):
        return value.reshape(-1)
    values = value.values
    if axis == 0:
        return HostMatrix(values.reshape(-1, values.shape[2]))
    return HostMatrix(values.transpose(1, 0, 2).reshape(values.shape[1], -1))


def candidate(changes, b: int) -> Change:
    """Change b of a batch."""
    return changes[b] if isinstance(changes, ChangeBatch) else jax.tree.map(lambda leaf: leaf[b], changes)
