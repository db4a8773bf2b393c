"""The storage of sparse data: lists of (index, value) pairs cut into chunks, and the products on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxbounds.array import hold, reinterpret, uses_jax, xp
from jaxbounds.pytree import is_traced, pytree, static

INT32_MAX = 2**31 - 1
_SHORT = 4096  # entries of one owner that are compared at once sooner than by bisection
_BLOCK = 256  # chunks that are made dense at a time
_LARGE = 1 << 22  # entries from which on products read
_AT_ONCE = 1 << 13  # so many chunks at once
_MANY = 1 << 18  # chunks whose padding takes more memory than is gained by sharing code
_WIDE, _NARROW = 8, 2  # entries of a chunk of large data: wider ones take no less time, and are padded more
_GATHER = lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,))


def take(vector: jax.Array, index: jax.Array) -> jax.Array:
    """vector[index] for indices known to be in bounds (any shape of index, no bounds handling)."""
    return lax.gather(vector, index[..., None], _GATHER, (1,), mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS)


def grid(k: int, size: int) -> tuple[jax.Array, jax.Array]:
    """Flat (slot, position) of a k x size grid, int32."""
    slot = lax.broadcasted_iota(jnp.int32, (k, size), 0).reshape(-1)
    return slot, lax.broadcasted_iota(jnp.int32, (k, size), 1).reshape(-1)


@pytree
class Chunks:
    """Lists of (index, value) pairs, one list an owner, cut into chunks of L pairs and padded with (0, value 0).

    The number of chunks is rounded up (by a sixteenth at most, a large one by a 256th), so that data of similar size
    share compiled code.

    Attributes:
        data: (N, L) values; the true entries of an owner come first in its chunks.
        indices: (N, L) int32.
        owner: (N,) int32 owner of each chunk, sorted.
        start: (owners + 1,) int32 first chunk of each owner.
        terms: bound of the number of (padded) entries of an owner.
        rest: the last entries of lists that are cut into full chunks alone, in narrow ones; None where these hold all.
    """

    data: jax.Array
    indices: jax.Array
    owner: jax.Array
    start: jax.Array
    terms: int = static()
    rest: Chunks | None = None

    def parts(self) -> tuple[Chunks, ...]:
        """Those of one width each."""
        return (self,) if self.rest is None else (replace(self, rest=None), self.rest)

    def map(self, fn: Callable[[jax.Array], jax.Array]) -> Chunks:
        """The lists with fn applied to each value (fn(0) = 0)."""
        return replace(self, data=fn(self.data), rest=None if self.rest is None else self.rest.map(fn))

    def reduce(self, vector: jax.Array | None, fn: Callable | None = None) -> jax.Array:
        """sum over the entries of each owner of fn(value) * vector[index], for a finite vector; None is all ones.

        fn(0) = 0. It sees float64 values as they are read: those of `map` would all be stored first.
        """
        return _reduce(self, vector, fn)

    def longest(self) -> int:
        """Most entries of an owner, at least 1 (host only); with a rest a few more."""
        if self.rest is not None:
            return sum(part.longest() for part in self.parts())
        start = np.asarray(self.start)
        chunks, width = np.diff(start), self.data.shape[1]
        last = np.asarray(self.data)[start[1:][chunks == chunks.max()] - 1]
        return max(1, int((chunks.max() - 1) * width + np.count_nonzero(last, axis=1).max()))

    def entries(self, idx: Any) -> tuple[Any, Any, Any]:
        """Entries of the owners idx: (slot in idx, index, value), flat; exact on NumPy idx, else padded."""
        if self.rest is not None:
            both = [part.entries(idx) for part in self.parts()]
            slot, other, value = (xp.concatenate(part) for part in zip(*both, strict=True))
            order = xp.argsort(slot, stable=True)
            return slot[order], other[order], value[order]
        width = self.data.shape[1]
        if isinstance(idx, np.ndarray) and not is_traced(self.data):
            start = np.asarray(self.start)  # gathered before it is cast: nothing here may cost O(n)
            first, last = start[idx].astype(np.int64), start[idx + 1].astype(np.int64)
            first, size = first * width, (last - first) * width
            slot, ends = np.repeat(np.arange(idx.shape[0], dtype=np.int32), size), np.cumsum(size)
            at = np.arange(slot.shape[0]) + np.repeat(first - (ends - size), size)
            value = np.asarray(self.data).reshape(-1)[at]
            keep = value != 0
            return slot[keep], np.asarray(self.indices).reshape(-1)[at[keep]], value[keep]
        idx = jnp.asarray(idx)
        first = self.start.at[idx].get(mode="clip") * width
        size = self.start.at[idx + 1].get(mode="clip") * width - first
        slot, step = grid(idx.shape[0], self.terms)
        at, real = jnp.repeat(first, self.terms) + step, step < jnp.repeat(size, self.terms)
        value, other = self.data.reshape(-1).at[at].get(mode="clip"), self.indices.reshape(-1).at[at].get(mode="clip")
        return slot, jnp.where(real, other, 0), jnp.where(real, value, 0)

    def dense(self, idx: jax.Array, size: int) -> jax.Array:
        """The entries of the owners idx as a float64 array (size, len(idx)): a block of chunks at a time."""
        if self.rest is not None:
            one, other = (part.dense(idx, size) for part in self.parts())
            return one + other
        first, k = take(self.start, idx), idx.shape[0]
        ends = jnp.cumsum(take(self.start, idx + 1) - first, dtype=jnp.int32)
        shift = jnp.concatenate([first[:1], first[1:] - ends[:-1]])  # from the chunks in a row to those stored

        def step(i, out):
            at = i * _BLOCK + jnp.arange(_BLOCK, dtype=jnp.int32)
            slot = jnp.minimum(jnp.sum(at[:, None] >= ends[None, :], axis=1, dtype=jnp.int32), k - 1)
            chunk = jnp.minimum(at + take(shift, slot), self.data.shape[0] - 1)
            value = jnp.where((at < ends[-1])[:, None], self.data[chunk], 0).astype(jnp.float64)
            place = self.indices[chunk] * k + slot[:, None]
            return out.at[place.reshape(-1)].add(value.reshape(-1), mode="promise_in_bounds")

        blocks = (ends[-1] + (_BLOCK - 1)) // _BLOCK
        out = lax.fori_loop(jnp.zeros((), jnp.int32), blocks, step, jnp.zeros(size * k, jnp.float64))
        return out.reshape(size, k)

    def at(self, idx, index):
        """The value at `index` of each owner in idx (in bounds), 0 where none is stored: bisection."""
        if self.rest is not None:
            one, other = (part.at(idx, index) for part in self.parts())
            return one + other
        width = self.data.shape[1]
        if idx.shape == (1,) and not uses_jax((idx, self.start)):
            owned = slice(self.start.item(idx.item()), self.start.item(idx.item() + 1))
            if (owned.stop - owned.start) * width <= _SHORT:  # padding has the value 0
                values = self.data[owned]
                return values[self.indices[owned] == index].sum(keepdims=True, dtype=values.dtype)
        indices, values, index = self.indices.reshape(-1), self.data.reshape(-1), index.astype(np.int32)
        low, stop = self.start[idx] * width, self.start[idx + 1] * width  # fit in 32 bits, as all positions do
        longest = self.terms if uses_jax((low,)) else int(np.max(stop - low, initial=0))
        low, last = xp.minimum(low, indices.shape[0] - 1), xp.maximum(stop, 1) - 1
        empty = stop == self.start[idx] * width
        for step in (1 << k for k in reversed(range(max(longest - 1, 0).bit_length()))):
            ahead = xp.minimum(low + step, last)
            # as unsigned numbers padding (index 0) lies past every index; an owner's first entry is never moved to
            low = hold(xp.where(reinterpret(indices[ahead] - 1, np.uint32) < reinterpret(index, np.uint32), ahead, low))
        return xp.where(empty | (indices[low] != index), xp.zeros((), values.dtype), values[low])


@partial(jax.jit, static_argnames="fn")  # traced once for all the products of a program
def _reduce(part: Chunks, vector: jax.Array | None, fn: Callable | None) -> jax.Array:
    """Chunks.reduce. On CPUs large lists are read by blocks: whole columns of chunks, cast to float64, take memory."""
    owners, parts = part.start.shape[0] - 1, part.parts()

    def whole():
        one, *more = (
            jax.ops.segment_sum(_sums(a.data, a.indices, vector, fn), a.owner, owners, indices_are_sorted=True,
                                mode="promise_in_bounds")
            for a in parts
        )  # fmt: skip
        return sum(more, one)

    def step(a, out, k):
        first = jnp.minimum(k * _AT_ONCE, a.owner.shape[0] - _AT_ONCE)  # the last block overlaps the one before it
        data, indices, owner = (lax.dynamic_slice_in_dim(x, first, _AT_ONCE) for x in (a.data, a.indices, a.owner))
        new = first + jnp.arange(_AT_ONCE) >= k * _AT_ONCE
        sums = jnp.where(new, _sums(data, indices, vector, fn), 0.0)
        return out.at[owner].add(sums, indices_are_sorted=True, mode="promise_in_bounds"), None

    def blocks():
        out = jnp.zeros(owners, jnp.float64)
        for a in parts:
            out = lax.scan(partial(step, a), out, jnp.arange(-(-a.owner.shape[0] // _AT_ONCE)))[0]
        return out

    small = part.data.size < _LARGE or min(a.owner.shape[0] for a in parts) < _AT_ONCE
    return whole() if small else lax.platform_dependent(cpu=blocks, default=whole)


def _sums(data: jax.Array, indices: jax.Array, vector: jax.Array | None, fn: Callable | None) -> jax.Array:
    """The sum of each chunk. That over L is unrolled: XLA's CPU code for it is twice as fast as for a reduction."""
    sums = jnp.zeros(data.shape[0], jnp.float64)
    for k in range(data.shape[1]):
        value = data[:, k].astype(jnp.float64)
        value = value if fn is None else fn(value)
        sums = sums + (value if vector is None else value * take(vector, indices[:, k]))
    return sums


def _round_up(count: int) -> int:
    """Smallest number of at most five significant bits (nine of large ones) that is >= count (at least 1)."""
    unit = 1 << max(0, count.bit_length() - (5 if count < _MANY else 9))
    return max(1, -(-count // unit) * unit)


def check_positions(count: int, name: str) -> None:
    if count > INT32_MAX:
        raise ValueError(f"{name} needs {count} stored entries (with padding); positions are 32-bit integers, "
                         f"so there can be at most {INT32_MAX}: split the rows into several data sets")  # fmt: skip


def _zeros(size: int, dtype: Any) -> np.ndarray:
    """Zeros at an address that jax takes over as it is: elsewhere it would make a copy."""
    nbytes = size * np.dtype(dtype).itemsize
    raw = np.zeros(nbytes + 64, np.uint8)
    first = -raw.ctypes.data % 64
    return raw[first : first + nbytes].view(dtype)


def make_chunks(compressed: Any, name: str, ends: bool = False) -> Chunks:
    """Chunks of a canonical scipy csr (owners = rows) or csc (owners = columns) array.

    With ``ends`` those of large data are full, and the ends of the lists lie in the rest: short lists need less memory.
    """
    lengths, values, indices = np.diff(compressed.indptr), compressed.data, compressed.indices
    large = values.size >= _LARGE
    widths = (_WIDE, 4, 2) if large else (32, 16, 8, 4, 2)
    if not (large and ends):
        # least work: padded entries, plus about four entries' worth for every chunk
        width = min(widths, key=lambda width: int(np.sum(-(-lengths // width))) * (width + 4))
        return _chunks(lengths, values, indices, width, name)
    last = lengths % _WIDE
    inner = np.repeat(np.tile([True, False], lengths.size), np.stack([lengths - last, last], axis=1).reshape(-1))
    full = _chunks(lengths - last, values, indices, _WIDE, name, inner)
    return replace(full, rest=_chunks(last, values, indices, _NARROW, name, np.logical_not(inner, out=inner)))


def _chunks(lengths: Any, values: Any, indices: Any, width: int, name: str, picked: Any = slice(None)) -> Chunks:
    """Lists of these lengths, whose entries follow each other where they are picked, in chunks of this width."""
    owners, counts = lengths.size, -(-lengths // width)
    start = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    used = int(start[-1])
    size = _round_up(used)
    check_positions(size * width, name)
    owner = _zeros(size, np.int32)
    owner[:used], owner[used:] = np.repeat(np.arange(owners, dtype=np.int32), counts), owners - 1
    real: Any = slice(None)
    if used * width > np.sum(lengths):  # all but the ends of the last chunks; no int for each entry
        real, some = np.ones((used, width), bool), counts > 0
        real[start[1:][some] - 1] = np.tri(width + 1, width, -1, bool)[(lengths - (counts - 1) * width)[some]]
        real = real.reshape(-1)

    def filled(found, dtype):
        out = _zeros(size * width, dtype)
        out[: used * width][real] = found[picked]
        return out.reshape(size, width)

    data, other = filled(values, values.dtype), filled(indices, np.int32)
    data, other, owner, start = jax.device_put((data, other, owner, start.astype(np.int32)))
    return Chunks(
        data=data,
        indices=other,
        owner=owner,
        start=start,
        terms=_round_up(int(np.max(counts)) * width),
    )
