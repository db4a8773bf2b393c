"""Many what-ifs in one call: `bound_each`."""

import dataclasses
import functools
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from jaxbounds.arguments import as_array, as_whole, check_callback, refuse_labels
from jaxbounds.array import COMPUTE_ONCE, is_spread, on_host, put, readable, to_host
from jaxbounds.batches import Flat, added_columns, candidate, groups_of, size_of
from jaxbounds.bounds import Bounds, bound, certify, check_method, intersect, labels_of, published, summary
from jaxbounds.certificates import Cached, Method, Partial, Theorem1
from jaxbounds.certificates.fallback import fallback
from jaxbounds.changes import set_penalty
from jaxbounds.classes import not_a_model
from jaxbounds.edit import prepare, scalar_l2
from jaxbounds.host import HostMatrix
from jaxbounds.inputs import rows_of
from jaxbounds.kinds import Change, SetElements
from jaxbounds.large import each_alone, large, new_penalty, touched
from jaxbounds.matrix import Matrix
from jaxbounds.model import Model
from jaxbounds.names import named_columns
from jaxbounds.often import Ready, ready
from jaxbounds.projected import ProjectedRows, project
from jaxbounds.pytree import in_float64, is_traced, pytree, static
from jaxbounds.spots import Spots, are_spots, blocks, by_size, spots_of
from jaxbounds.status import Status
from jaxbounds.threads import CORES, in_threads

_BUDGET = 1 << 24  # numbers that all batches in work may hold at a time (128 MB)
_LEAST = 1 << 18  # numbers of a batch that is worth a thread of its own
_VMAPPED = 64  # candidates at a time where bound is vmapped
_BLOCK = 4096  # elements at a time in a compiled program: its vectors then stay in the cache
_BLOCKS = 16  # of a piece of compiled work
_SUMMARY = "status", "gap", "radius", "dual_radius", "fallback"
_COPIES = 48  # vectors over its slots that a certificate holds at a time


@pytree
class EachBounds:
    """Guaranteed intervals for the retrained model of each candidate change, as `bound` gives them one by one.

    Attributes:
        status: (B,) int32; a change that does not fit the model is INVALID and leaves the others alone.
        gap, radius, dual_radius, fallback: (B,) as in `Bounds`.

    `len(bounds)` is B and `bounds[b]` the Bounds of candidate b, which raises what is wrong with an INVALID one. What
    is asked of large batches is computed again in pieces: no candidate's vectors are kept.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0))
        >>> model = jb.fit(problem, np.eye(3), np.ones(3))
        >>> bounds = jb.bound_each(model, jb.each_row_removed(model), X=np.eye(3))
        >>> bounds.scores().lower.shape, len(bounds), bounds[0].status.item()
        ((3, 3), 3, 0)
    """

    model: Model
    changes: Any
    method: Method
    matrix: Any  # the rows X, or None
    status: Any
    gap: Any
    radius: Any
    dual_radius: Any
    moved: Any  # (lower, upper) of the distance, (B,) each
    at_matrix: Any  # (lower, upper) of the scores of X, (B, m) each
    batch_size: int | None = static(default=None)
    fallback: Any = None

    def __len__(self) -> int:
        return self.status.shape[0]

    def __getitem__(self, b: int) -> Bounds:
        b = operator.index(b)
        if not -len(self) <= b < len(self):
            raise IndexError(f"candidate {b} of a batch of {len(self)}")
        return bound(self.model, candidate(self.changes, b % len(self)), self.method)

    @property
    @published
    def distance(self):
        """Interval (B,) for ||w_new - w_old||_2 of each candidate."""
        return readable(self.moved)

    @published
    def scores(self, X=None):
        """Interval (B, m) for the retrained scores of the rows of X.

        Args:
            X: (m, d) data; by default the X given to `bound_each`.

        Raises:
            ValueError: there is no X, or it has the wrong number of columns.
        """
        return self._scores(X)

    @in_float64
    def labels(self, X=None):
        """Certified labels of the rows of X: (B, m) int32, +1, -1, or 0 where the bounds do not decide."""
        return labels_of(*self._scores(X))

    @in_float64
    def decided(self, X=None):
        """Whether each label is certain: (B, m) bool."""
        return self.labels(X) != 0

    @published
    def w(self, j=None):
        """Interval for coefficients, candidate by candidate: (B, d), or (B, ...) for those numbered j."""
        return self._ask(_ask_w, named_columns(self.model, j), "j")

    @published
    def alpha(self, i=None):
        """Interval for dual variables, candidate by candidate: (B, n), or (B, ...) for those numbered i."""
        return self._ask(_ask_alpha, i, "i")

    def _ask(self, question, index, name):
        refuse_labels(index, name)
        index = index if index is None or is_traced(index) else as_array(index, name, "integers")
        if isinstance(self.changes, Change) and not on_host(self.model, self.changes, index):
            return _vmapped(self.model, self.changes, self.method, index, question, self.batch_size or _VMAPPED)
        changes = [candidate(self.changes, b) for b in range(len(self))]
        return _loop(self.model, changes, self.method, question, index, np.asarray(self.status) != Status.INVALID)

    def _scores(self, X):
        if X is None:
            if self.at_matrix is None:
                raise ValueError("X is missing: give it here or to bound_each")
            return readable(self.at_matrix)
        matrix = _test_rows(self.model, self.changes, X)
        return readable(_sweep(self.model, self.changes, self.method, matrix, self.batch_size)["scores"])


@in_float64
def bound_each(
    model: Model, changes: Any, X=None, method: Method | None = None, batch_size: int | None = None,
    callback: Callable | None = None,
) -> EachBounds:  # fmt: skip
    """The bounds of every change of a batch: what a loop of `bound` gives, at a fraction of its cost.

    On the CPU batches run in as many threads as there are cores, and all candidates of a batch are one block-diagonal
    change: their touched rows, columns and elements lie end to end, and sums are taken over each candidate's own. The
    model's vectors are shared. Values agree with `bound` to 1e-9 of the values they hold (sums are taken in another
    order; `Partial` to 1e-4, its inner solvers stop early) and depend on no other candidate, nor on `batch_size`.
    Many changes of single elements (L2 with one lam; 32,768 elements or more by now, no X) run in a program compiled
    once for each loss and number of elements, in a second or two. Changes of 2,048 elements or more (L2 part, no X, no
    intercept, `Cached` or `Theorem1`) are asked one at a time, as `bound` answers them: compiled when they come often,
    and their last bits may then change. The rest is NumPy and compiles nothing.
    Changes of single elements count each element as a row and a column of its own, so that their allowances for
    rounding are larger than `bound`'s where elements share a row (distances by up to 1e-5 of their lower ends), and
    their last bit may depend on whether all candidates have as many elements.
    Inside jit, vmap and grad, and on accelerators, `bound` is vmapped.

    Args:
        model: the trained model.
        changes: B changes: from `stack`, `each_row_removed`, `each_target_flipped` or `each_penalty`.
        X: (m, d) rows whose scores are wanted, or None.
        method: as in `bound`.
        batch_size: candidates at a time in each thread; by default as many as fit 128 MB in all.
        callback: called after each batch with a dict of `done` and `total` candidates (host only).

    Returns:
        EachBounds.

    Raises:
        TypeError: an argument has the wrong kind. ValueError: the method does not apply, or X has the wrong width.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0))
        >>> model = jb.fit(problem, np.eye(3), np.ones(3))
        >>> changes = jb.stack([jb.set_targets([0], [2.0]), jb.remove_rows([1, 2])])
        >>> jb.bound_each(model, changes).status.tolist()
        [0, 0]
    """
    if not isinstance(model, Model):
        raise TypeError(not_a_model(model))
    batch_size = None if batch_size is None else as_whole(batch_size, "batch_size", 1, none="for a size that fits")
    check_callback(callback)
    size_of(changes)
    method = check_method(Cached() if method is None else method, model.problem)
    matrix = None if X is None else _test_rows(model, changes, X)
    if callback is not None and not on_host(model, changes, matrix):
        raise ValueError("callback is called on the host and cannot be used inside jit, vmap or grad; leave it out")
    found = _sweep(model, changes, method, matrix, batch_size, callback)
    return EachBounds(
        model, changes, method, matrix, *put([found[k] for k in ("status", "gap", "radius", "dual_radius")]),
        *put((found["distance"], found.get("scores"))), batch_size=batch_size, fallback=put(found["fallback"]),
    )  # fmt: skip


def _test_rows(model: Model, changes, X) -> Matrix | HostMatrix:
    """The rows X, of as many columns as every candidate has."""
    widths = {model.w.shape[0] + added for added in added_columns(changes)}
    matrix = rows_of(model, X, max(widths), on_host(model, changes, X))
    if widths != {matrix.shape[1]}:
        wanted = " or ".join(map(str, sorted(widths)))
        raise ValueError(f"X must have {wanted} columns (old and added ones), got {matrix.shape[1]}")
    return matrix


def _sweep(model: Model, changes, method: Method, matrix, batch_size: int | None, callback=None) -> dict:
    """status, gap, radius, dual_radius, distance and scores of every candidate."""
    if not on_host(model, changes, matrix):
        if isinstance(changes, Change):
            return _vmapped(model, changes, method, matrix, _summary, batch_size or _VMAPPED)
        return _loop(model, [changes[b] for b in range(changes.size)], method, _summary, matrix)
    known, shared = ready(model) or Ready(model), dataclasses.replace(model, factor=None)
    model, changes = to_host((model, changes))
    rows = None if matrix is None else project(model, matrix)
    total, done, found, pieces = size_of(changes), 0, None, []
    for group in groups_of(changes):
        if rows is None and (alone := large(model, group, method)).any():
            members = np.flatnonzero(alone)
            size = batch_size or -(-len(members) // (4 * CORES))
            solve = functools.partial(each_alone, model, known, method)
            pieces += _cut(group if alone.all() else group.pick(members), size, solve)
            if alone.all():
                continue
            group = group.pick(np.flatnonzero(~alone))
        if isinstance(method, Cached | Theorem1) and are_spots(model, group):
            pieces += _spot_pieces(known, shared, group, method, rows, batch_size)
            continue
        # the penalties of a group have a leading axis, which only flat methods expect
        check_method(method, model.problem, group if method.flat else candidate(changes, int(group.members[0])))
        size = batch_size or _batch_size(group.count, _work(model, group, method, matrix))
        pieces += _cut(group, size, functools.partial(_solve, model, method, rows))

    def take(piece, answer):
        nonlocal done, found
        members, _ = piece
        if found is None:
            found = jax.tree.map(lambda part: np.empty((total, *part.shape[1:]), part.dtype), answer)
        jax.tree.map(lambda out, part: out.__setitem__(members, part), found, answer)
        done += len(members)
        if callback is not None:
            callback({"done": done, "total": total})

    in_threads(lambda piece: piece[1](), pieces, take)
    assert found is not None  # a batch is never empty
    return found


def _batch_size(count: int, work: float) -> int:
    """Candidates of a batch: an even share for each core, within the memory, and no smaller than is worth a thread."""
    share = max(-(-count // CORES), int(_LEAST / work))
    return max(1, min(share, int(_BUDGET / CORES / work)))


def _cut(group: Flat, size: int, solve: Callable) -> list:
    """Pieces of `size` candidates: their numbers, and what finds what is known of them."""
    cut = [group.cut(start, min(start + size, group.count)) for start in range(0, group.count, size)]
    return [(piece.members, functools.partial(solve, piece)) for piece in cut]


def _solve(model: Model, method: Method, rows: ProjectedRows | None, piece: Flat) -> dict:
    """What is known of the candidates of one piece."""
    # no ball, but boxes of all coefficients, or a pass over the data for each: one by one
    if new_penalty(model, piece).strong_convexity is None or not method.flat or model.problem.intercept:
        changes, matrix = [piece.change(k) for k in range(piece.count)], None if rows is None else rows.matrix
        return _loop(model, changes, method, _summary, matrix, prepare(model, piece).valid)
    return _known(model, method, certify(method, model, piece)[0], rows)


def _known(model: Model, method: Method, parts, rows: ProjectedRows | None) -> dict:
    """What the regions of many candidates say."""
    gap, radius, dual, status = summary(parts)
    found = {"status": status, "gap": gap, "radius": radius, "dual_radius": dual}
    found["fallback"] = fallback(method, model.problem, parts)
    found["distance"] = intersect(model, parts, status, "distance", ())
    if rows is not None:
        lower, upper = intersect(model, parts, status, "scores_each", (rows,))
        found["scores"] = lower.T, upper.T
    return found


def _spot_pieces(known: Ready, shared: Model, group: Flat, method: Method, rows, batch_size: int | None):
    """Pieces of candidates that change single elements: compiled where there are many and no scores are asked."""
    pieces = []
    for members, each in by_size(group):
        count, block = len(members), max(1, _BLOCK // each)
        compiled = rows is None and each <= _BLOCK and known.often(each, count * each)
        work = _COPIES * each + (0 if rows is None else 8 * rows.matrix.shape[0])
        size = batch_size or _batch_size(count, work)
        size = min(size, _BLOCKS * block) if compiled else size
        for start in range(0, count, size):
            part = members[start : start + size]
            solve = functools.partial(_compiled_spots, shared, block) if compiled else functools.partial(_spots, rows)
            pieces.append((group.members[part], functools.partial(solve, known.host, group, method, part, each)))
    return pieces


def _spots(rows, model: Model, group: Flat, method: Method, members, each: int) -> dict:
    edit = spots_of(model, group, members, each).edit(model)
    return _known(model, method, method.certify(model, (edit,)), rows)


def _compiled_spots(shared: Model, block: int, model: Model, group: Flat, method: Method, members, each: int) -> dict:
    spots, used = blocks(spots_of(model, group, members, each), block, _BLOCKS)
    found = to_host(_each_block(shared, method, spots, np.asarray(used)))
    return jax.tree.map(lambda values: values.reshape(-1)[: len(members)], found)


@functools.partial(jax.jit, compiler_options=COMPUTE_ONCE)
def _each_block(model: Model, method: Method, spots: Spots, used):
    def solve(k):
        edit = jax.tree.map(lambda leaf: leaf[k], spots).edit(model)
        return _known(model, method, method.certify(model, (edit,)), None)

    def step(k, found):
        return jax.tree.map(lambda out, part: out.at[k].set(part), found, solve(k))

    like = jax.eval_shape(solve, 0)
    nothing = jax.tree.map(lambda part: jnp.zeros((spots.valid.shape[0], *part.shape), part.dtype), like)
    return jax.lax.fori_loop(0, used, step, nothing)


def _summary(bounds: Bounds, matrix) -> dict:
    found: dict[str, Any] = {key: getattr(bounds, key) for key in _SUMMARY}
    found["distance"] = _ends(bounds.distance)
    if matrix is not None:
        found["scores"] = _ends(bounds.scores(matrix))
    return found


def _ask_w(bounds: Bounds, j):
    return _ends(bounds.w(j))


def _ask_alpha(bounds: Bounds, i):
    return _ends(bounds.alpha(i))


def _ends(interval: Any):
    return interval.lower, interval.upper


def _loop(model: Model, changes, method: Method, question, about, valid=None) -> Any:
    """question(bounds, about) of every change, stacked; nothing is known of those that are not valid."""
    if is_traced(model, changes, about):
        raise ValueError("changes differ in kind or shape; inside jit, vmap or grad only equal ones can be bounded")
    known = range(len(changes)) if valid is None else np.flatnonzero(valid)
    answers = {k: to_host(question(bound(model, changes[k], method), about)) for k in known}
    if len(answers) < len(changes):
        like = next(iter(answers.values())) if answers else to_host(
            question(bound(model, set_penalty(model.problem.penalty), method), about))  # fmt: skip
        answers |= {k: _nothing(like) for k in range(len(changes)) if k not in answers}
    if len({tuple(map(np.shape, jax.tree.leaves(answer))) for answer in answers.values()}) > 1:
        raise ValueError("the candidates differ in their numbers of rows or columns; name those that are meant")
    return jax.tree.map(lambda *values: np.stack(values), *(answers[k] for k in range(len(changes))))


def _nothing(like):
    """What is known of an INVALID candidate, in the form of another answer."""
    if isinstance(like, tuple):
        return np.full_like(like[0], -np.inf), np.full_like(like[1], np.inf)
    codes = {"status": int(Status.INVALID), "fallback": 0}
    return {key: _nothing(value) if isinstance(value, tuple) else np.full_like(value, codes.get(key, np.inf))
            for key, value in like.items()}  # fmt: skip


def _vmapped(model: Model, changes: Change, method: Method, about, question, batch_size: int):
    """question(bounds, about) of every change; candidates that are dealt among devices stay where they are."""
    dealt = next((leaf.sharding for leaf in jax.tree.leaves(changes) if is_spread(leaf)), None)
    if is_spread(model.rows.score):  # whose data each device would otherwise copy whole
        dealt = None
    if isinstance(dealt, NamedSharding) and dealt.spec and dealt.spec[0] is not None:
        return _map_on_devices(model, changes, method, about, question, batch_size, dealt.mesh, dealt.spec[0])
    return _map(model, changes, method, about, question, batch_size)


@functools.partial(jax.jit, static_argnames=("question", "batch_size"))
def _map(model: Model, changes: Change, method: Method, about, question, batch_size: int):
    return jax.lax.map(lambda change: question(bound(model, change, method), about), changes, batch_size=batch_size)


@functools.partial(jax.jit, static_argnames=("question", "batch_size", "mesh", "axis"))
def _map_on_devices(model, changes, method, about, question, batch_size: int, mesh, axis):
    def local(model, changes, about):
        return _map(model, changes, method, about, question, batch_size)

    one, each = PartitionSpec(), PartitionSpec(axis)
    return jax.shard_map(
        local, mesh=mesh, in_specs=(one, each, one), out_specs=each, check_vma=False
    )(model, changes, about)  # fmt: skip


def _work(model: Model, group: Flat, method: Method, matrix) -> float:
    """About how many numbers a candidate of the group holds at a time."""
    n, d = model.alpha.shape[0], model.w.shape[0]
    new = any(owner is None for owner in group.owners)
    euclidean = scalar_l2(model.problem.penalty, 0) and scalar_l2(new_penalty(model, group), int(new))
    slots = 0.0 if euclidean else d  # other penalties may list every column
    if isinstance(method, Partial) and any(isinstance(part, SetElements) for part in group.flat):  # lists whole rows
        data = model.data
        each = n + d if data is None else min(d, data.matrix.row_terms) + min(n, data.matrix.col_terms)
        slots += each * max(len(owner) for owner in group.owners if owner is not None) / group.count
    slots += touched(model, group).max()
    return 1 + _COPIES * slots + (0 if matrix is None else 8 * matrix.shape[0])
