"""Data whose rows change: the old matrix stays as it is, under a pool of newer rows.

Writing k rows costs their entries, whatever the size of the matrix; room is doubled when it runs out, and the pool is
swept when more than half of it is out of date.
"""

from typing import Any

import numpy as np
import scipy.sparse as sp

from jaxbounds.matrix import Dense, Matrix


def grown(array: np.ndarray, size: int, fill: Any = 0) -> np.ndarray:
    """The array itself if it has room for `size` entries, else a copy with twice the room."""
    if array.shape[0] >= size:
        return array
    bigger = np.full(max(size, 2 * array.shape[0]), fill, array.dtype)
    bigger[: array.shape[0]] = array
    return bigger


class Overlay:
    """Rows 0, 1, ..., the first ones from a matrix that nothing changes, and newer ones where there are.

    Args:
        matrix: the old data; never written to.
    """

    def __init__(self, matrix: Matrix):
        self.base, self.size, self.dtype = matrix, matrix.shape[0], np.dtype(matrix.dtype)
        self.width = matrix.shape[1]
        self.place = np.full(self.size, -1, np.int64)  # of each row in the pool, -1 for a row of the matrix
        self.first, self.count, self.used = np.zeros(0, np.int64), np.zeros(0, np.int64), 0  # pool rows
        self.cols, self.values, self.filled = np.zeros(0, np.int32), np.zeros(0, self.dtype), 0
        self.stale = 0  # entries of the pool that no row has any more

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        return self.size, self.width

    @property
    def by_row(self) -> "Overlay":
        """What single entries are looked up in."""
        return self

    def rows(self, idx) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(slot in idx, column, value) of all entries of rows, in no particular order."""
        place = self.place[idx]
        old, new = np.flatnonzero(place < 0), np.flatnonzero(place >= 0)
        slot, cols, values = np.zeros(0, int), self.cols[:0], self.values[:0]
        if old.size:
            slot, cols, values = self.base.rows(idx[old])
        first, count = self.first[place[new]], self.count[place[new]]
        at = np.arange(count.sum()) + np.repeat(first - (np.cumsum(count) - count), count)
        return (
            np.concatenate([old[slot], np.repeat(new, count)]),
            np.concatenate([cols, self.cols[at]]),
            np.concatenate([values, self.values[at]]),
        )

    def at(self, rows, cols) -> np.ndarray:
        """Single entries; rows may repeat."""
        slot, col, value = self.rows(rows)
        return np.bincount(slot, np.where(col == cols[slot], value, 0), minlength=rows.shape[0])

    def write(self, rows, slot, cols, values) -> None:
        """New contents of distinct rows: (slot in rows, column, value), sorted by slot. Rows past the end are added."""
        size = max(self.size, int(rows.max()) + 1)
        self.place = grown(self.place, size, -1)
        old = self.place[rows[rows < self.size]]
        self.stale += int(self.count[old[old >= 0]].sum())
        self.size = size
        k, m = rows.shape[0], cols.shape[0]
        self.first, self.count = grown(self.first, self.used + k), grown(self.count, self.used + k)
        self.cols, self.values = grown(self.cols, self.filled + m), grown(self.values, self.filled + m)
        count = np.bincount(slot, minlength=k)
        here = slice(self.used, self.used + k)
        self.first[here], self.count[here] = self.filled + np.cumsum(count) - count, count
        self.cols[self.filled : self.filled + m], self.values[self.filled : self.filled + m] = cols, values
        self.place[rows] = np.arange(self.used, self.used + k)
        self.used, self.filled = self.used + k, self.filled + m
        if self.stale > max(self.filled // 2, 1024):
            self._sweep()

    def _sweep(self) -> None:
        """Copy what is still valid."""
        rows = np.flatnonzero(self.place[: self.size] >= 0)
        slot, cols, values = self.rows(rows)
        count = np.bincount(slot, minlength=rows.shape[0])
        self.first, self.count, self.used = np.cumsum(count) - count, count, rows.shape[0]
        self.cols, self.values, self.filled, self.stale = cols, values, cols.shape[0], 0
        self.place[rows] = np.arange(rows.shape[0])

    def take(self, idx) -> Any:
        """Rows as an ndarray or a CSR array, as the matrix was."""
        slot, cols, values = self.rows(idx)
        shape = idx.shape[0], self.width
        if isinstance(self.base, Dense):
            out = np.zeros(shape, self.dtype)
            out[slot, cols] = values
            return out
        return sp.csr_array((values, (slot, cols)), shape=shape)
