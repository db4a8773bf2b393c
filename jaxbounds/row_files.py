"""Where blocks of rows come from: arrays in memory or mapped from files, and iterables that can be read again.

Each source has ``pieces()``, its rows in order in blocks of bounded size (ndarray or CSR), and ``take(rows)``.
"""

import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from jaxbounds.arguments import as_array

Block: TypeAlias = Any  # an ndarray or a csr_array

_DENSE, _SPARSE = 1 << 18, 1 << 20  # entries of a piece
_PER_COLUMN = 2  # at least so many for each column: a product with sparse data writes all columns once a piece


CHANGED = "the data of RowBlocks have changed since they were checked; make the RowBlocks anew"


class Unchanged:
    """The files that are mapped, as they were when they were opened: a shorter one would end the process.

    A file that was renamed, deleted or replaced as a whole is still what is mapped, and does not count.
    """

    def __init__(self, *paths: str):
        self.seen = {path: _stamp(path) for path in paths}

    def check(self) -> None:
        """Raise RuntimeError if one was written to."""
        for path, (file, *stamp) in self.seen.items():
            try:
                now, *other = _stamp(path)
            except OSError:
                continue
            if now == file and other != stamp:
                raise RuntimeError(f"{CHANGED} ({path} was written to)")


def _stamp(path: str) -> tuple[Any, int, int]:
    found = os.stat(path)
    return (found.st_dev, found.st_ino), found.st_size, found.st_mtime_ns


class DenseRows:
    """The rows of an array, which may be a memory map."""

    sparse = False

    def __init__(self, values: np.ndarray, files: Unchanged | None = None):
        self.values, self.files = values, files or Unchanged()

    def pieces(self) -> Iterator[Block]:
        """Blocks of rows."""
        self.files.check()
        size = max(1, _DENSE // max(1, self.values.shape[1]))
        for start in range(0, self.values.shape[0], size):
            yield _aligned(self.values[start : start + size])

    def take(self, rows: np.ndarray) -> Block:
        """The rows with these numbers."""
        self.files.check()
        return np.asarray(self.values[rows])


class SparseRows:
    """CSR data whose arrays may be memory maps; row pointers are held in memory."""

    sparse = True

    def __init__(
        self, values: np.ndarray, indices: np.ndarray, start: np.ndarray, columns: int, files: Unchanged | None = None
    ):
        if indices.dtype.kind not in "iu":
            raise TypeError(f"the column numbers (indices) of CSR data must be integers, not {indices.dtype}")
        self.values, self.indices, self.columns, self.files = values, indices, columns, files or Unchanged()
        self.start = np.array(start, np.int64)
        rising = bool(np.all(self.start[1:] >= self.start[:-1]))
        if not (self.start.size and self.start[0] == 0 and rising and self.start[-1] <= min(len(values), len(indices))):
            raise ValueError("the row pointers (indptr) of the CSR data do not rise from 0 to at most their entries")

    def pieces(self) -> Iterator[Block]:
        """Blocks of rows."""
        self.files.check()
        n, at = self.start.size - 1, 0
        most = max(_SPARSE, _PER_COLUMN * self.columns)
        while at < n:
            stop = int(np.searchsorted(self.start, self.start[at] + most, side="right")) - 1
            stop = max(stop, at + 1)
            yield self._between(at, stop)
            at = stop

    def _between(self, first: int, stop: int) -> Block:
        low, high = self.start[first], self.start[stop]
        values, indices = _aligned(self.values[low:high]), _aligned(self.indices[low:high])
        return csr_block(values, indices, self.start[first : stop + 1] - low, self.columns)

    def take(self, rows: np.ndarray) -> Block:
        """The rows with these numbers."""
        self.files.check()
        first, size = self.start[rows], self.start[rows + 1] - self.start[rows]
        ends = np.cumsum(size)
        at = np.arange(int(np.sum(size))) + np.repeat(first - (ends - size), size)
        return csr_block(self.values[at], self.indices[at], np.concatenate([[0], ends]), self.columns)


def csr_block(values: Any, indices: Any, start: Any, columns: int) -> Block:
    """A CSR array of parts that were checked before: scipy's constructor takes longer than a product."""
    if indices.dtype.itemsize > 4 and indices.size and max(abs(int(indices.min())), int(indices.max())) >= columns:
        low, high = indices.min(), indices.max()
        raise ValueError(f"the CSR data hold columns {low} to {high}; they run from 0 to {columns - 1}")
    block: Any = sp.csr_array((start.size - 1, columns), dtype=values.dtype)
    block.data, block.indices, block.indptr = values, indices.astype(np.int32, copy=False), start.astype(np.int32)
    return block


def _aligned(values: np.ndarray) -> np.ndarray:
    """The values at an address that products can read; a part of a zip file may be anywhere."""
    plain = np.asarray(values)
    return plain if plain.flags.aligned else plain.view(np.uint8).copy().view(plain.dtype)


class Stream:
    """Blocks from an iterable that starts anew at each `iter`."""

    sparse = None  # its blocks tell

    def __init__(self, blocks: Iterable | Callable[[], Iterable]):
        self.blocks, self.first = blocks, None

    def pieces(self) -> Iterator[Block]:
        """Blocks of rows: those of the iterable, cut where they are large; RuntimeError if they begin otherwise."""
        begun = False
        for block in self.blocks() if callable(self.blocks) else self.blocks:
            for piece in rows_in(block).pieces():
                if not begun:  # a loader that shuffles, or whose source was written to
                    begun, first = True, _checksum(piece)
                    self.first = first if self.first is None else self.first
                    if first != self.first:
                        raise RuntimeError(f"{CHANGED} (the iterable brought other rows at first than before)")
                yield piece

    def take(self, rows: np.ndarray) -> Block:
        """The rows with these numbers, found by reading everything once."""
        order, start, found = np.argsort(rows, kind="stable"), 0, []
        ordered = rows[order]
        for block in self.pieces():
            inside = ordered[(ordered >= start) & (ordered < start + block.shape[0])]
            found.append(block[inside - start])
            start += block.shape[0]
        return stacked(found)[np.argsort(order, kind="stable")]


class Changed:
    """Rows of other data, some left out, some replaced and some added at the end.

    Args:
        base: has pieces() and take(). number: (n,) for each row its number in base, or m + k for row k of `new`, where
            base has m rows; numbers of base rise. new: (k, d) block.
    """

    def __init__(self, base: Any, rows: int, number: np.ndarray, new: Block):
        self.base, self.rows, self.number, self.new, self.sparse = base, rows, number, new, base.sparse

    def pieces(self) -> Iterator[Block]:
        """Blocks of rows."""
        start, at = 0, 0
        replaced = np.flatnonzero(self.number >= self.rows)
        old = np.delete(self.number, replaced)  # rises
        place = np.delete(np.arange(self.number.size), replaced)
        for block in self.base.pieces():
            start += block.shape[0]
            count = int(np.searchsorted(old, start))
            stop = self.number.size if count == old.size else int(place[count])
            if start == self.rows:
                stop = self.number.size
            number = self.number[at:stop]
            if number.size:
                yield self._chosen(block, start - block.shape[0], number)
            at = stop

    def _chosen(self, block: Block, first: int, number: np.ndarray) -> Block:
        ours = number >= self.rows
        if number.size == block.shape[0] and not ours.any():
            return block
        local = np.where(ours, block.shape[0] + np.cumsum(ours) - 1, number - first)
        return stacked([block, self.new[number[ours] - self.rows]])[local]

    def take(self, rows: np.ndarray) -> Block:
        """The rows with these numbers."""
        number = self.number[rows]
        ours = number >= self.rows
        count = int(np.sum(~ours))
        local = np.where(ours, count + np.cumsum(ours) - 1, np.cumsum(~ours) - 1)
        return stacked([self.base.take(number[~ours]), self.new[number[ours] - self.rows]])[local]


def stacked(blocks: list) -> Block:
    """Blocks below each other."""
    return sp.csr_array(sp.vstack(blocks, "csr")) if sp.issparse(blocks[0]) else np.concatenate(blocks)


def _checksum(block: Block) -> int:
    """Of what a block holds."""
    parts = (block.data, block.indices, block.indptr) if sp.issparse(block) else (block,)
    found = 0
    for part in parts:
        found = zlib.crc32(np.ascontiguousarray(part).tobytes(), found)
    return found


def rows_in(block: Any, files: Unchanged | None = None) -> DenseRows | SparseRows:
    """One block in memory or mapped."""
    if sp.issparse(block):
        csr: Any = block.tocsr()
        return SparseRows(csr.data, csr.indices, csr.indptr, csr.shape[1])
    values = as_array(block, "a block")
    if values.ndim != 2:
        raise ValueError(f"each block must be a two-dimensional array or scipy.sparse, got shape {values.shape}")
    return DenseRows(values, files)


def open_rows(source: Any, columns: int | None) -> list:
    """The sources of what a user passes to `RowBlocks`."""
    if isinstance(source, str | os.PathLike):
        return [_open_file(os.fspath(source), columns)]
    if sp.issparse(source) or hasattr(source, "__array__"):
        return [rows_in(source)]
    if isinstance(source, list | tuple) and source:
        return [part for block in source for part in open_rows(block, columns)]
    if callable(source):
        makes: Any = source
        return [Stream(makes)]
    if not isinstance(source, Iterable):
        raise TypeError(f"source must be a path, an array, a list of these, or an iterable of blocks, got "
                        f"{type(source).__name__}")  # fmt: skip
    if iter(source) is source:
        raise TypeError(f"source is a {type(source).__name__}, which can be read only once; pass the function that "
                        "makes it, or an object whose __iter__ starts anew")  # fmt: skip
    return [Stream(source)]


def _open_file(path: str, columns: int | None) -> DenseRows | SparseRows:
    if os.path.isdir(path):
        names = [os.path.join(path, f"{name}.npy") for name in ("data", "indices", "indptr")]
        files = Unchanged(*names)
        data, indices, indptr = (np.load(name, mmap_mode="r") for name in names)
        if columns is None:
            raise ValueError(f"columns is missing: the arrays in {path} do not say how many columns there are")
        return SparseRows(data, indices, indptr, columns, files)
    if path.endswith(".npz"):
        return _open_npz(path)
    files = Unchanged(path)
    return rows_in(np.load(path, mmap_mode="r"), files)


def _open_npz(path: str) -> SparseRows:
    """The file of scipy.sparse.save_npz, mapped."""
    files = Unchanged(path)
    with zipfile.ZipFile(path) as archive:
        members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
        if not {"format", "shape", "data", "indices", "indptr"} <= set(members):
            raise ValueError(f"{path} holds no CSR matrix; write one with scipy.sparse.save_npz(path, X.tocsr(), "
                             "compressed=False)")  # fmt: skip
        with archive.open(members["format"]) as file:
            kind = bytes(np.lib.format.read_array(file).item()).decode()
        with archive.open(members["shape"]) as file:
            shape = np.lib.format.read_array(file)
    if kind != "csr" or any(members[name].compress_type != zipfile.ZIP_STORED for name in ("data", "indices")):
        raise ValueError(f"{path} is compressed or not stored by rows; write it with "
                         "scipy.sparse.save_npz(path, X.tocsr(), compressed=False)")  # fmt: skip
    data, indices = (_mapped(path, members[name].header_offset) for name in ("data", "indices"))
    with np.load(path) as arrays:
        return SparseRows(data, indices, arrays["indptr"], int(shape[1]), files)


def _mapped(path: str, offset: int) -> np.ndarray:
    """The array of a stored member of a zip file."""
    with open(path, "rb") as file:
        file.seek(offset + 26)  # the local header: 30 bytes, then a name and extra fields of these lengths
        name, extra = np.frombuffer(file.read(4), "<u2")
        file.seek(offset + 30 + int(name) + int(extra))
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
        return np.memmap(path, dtype, "r", file.tell(), shape)
