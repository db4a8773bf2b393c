"""Rows that are numbered for life, and where they are now."""

from dataclasses import replace
from typing import Any

import numpy as np

from jaxbounds.kinds import AddRows, Change, RemoveRows


def in_slots(part: Any, numbers: np.ndarray, there: np.ndarray, following: int) -> Change:
    """A part of a change with positions among `numbers` in place of lifetime numbers.

    Args:
        part: one elementary change. numbers: (n,) lifetime numbers, increasing. there: (n,) False for removed rows.
        following: the number that the next new row gets.

    Raises:
        ValueError: a row was removed, or never was.
    """
    if not hasattr(part, "rows"):
        return part
    rows = np.asarray(part.rows).astype(np.int64)
    slots = np.minimum(np.searchsorted(numbers, rows), numbers.shape[0] - 1)
    found = (numbers[slots] == rows) & there[slots]
    if not found.all():
        k = int(np.argmin(found))
        known = 0 <= rows[k] < following
        why = "was removed by an earlier push" if known else f"does not exist; rows are 0 to {following - 1}"
        raise ValueError(f"rows[{k}] = {rows[k]} {why}; `rows` of the monitor lists those that are there")
    return replace(part, rows=slots.astype(np.int32))


def moves(parts: tuple[Any, ...]) -> tuple[int, int, int]:
    """(rows that come, rows that go, those among the latter for which the mean still counts)."""
    added = sum(part.matrix.shape[0] for part in parts if isinstance(part, AddRows))
    left = [part for part in parts if isinstance(part, RemoveRows)]
    kept = sum(part.rows.shape[0] for part in left if part.keep_n)
    return added, sum(part.rows.shape[0] for part in left), kept
