"""Whole numbers on the host put in order and told apart, in a few passes each: the grouping of elements."""

import numpy as np

_SPARSE = 64  # numbers that are possible for each that is there, up to which counting is faster than sorting
_SPREAD = 8  # the same, up to which it is faster than a hash table; and places of that table for each number
_GOLDEN = np.int64(-7046029254386353131)  # 2^64 over the golden ratio: its multiples differ in their highest bits


def order_of(key, top: int):
    """Where the keys, int64 below `top`, stand in ascending order, equal ones as they come; a slice if they do so."""
    descents = np.count_nonzero(key[1:] < key[:-1])
    if not descents:
        return slice(None)
    bits = (key.size - 1).bit_length()
    if descents * 8 < key.size or top >> 63 - bits:  # few runs, which are merged
        return np.argsort(key, kind="stable")
    packed = (key << bits) + np.arange(key.size)  # one array to sort is twice as fast as one and its numbers
    packed.sort()
    return packed & (1 << bits) - 1


def edges(ordered):
    """Where another number begins in an array in order: bool, the first included."""
    first = np.empty(ordered.size, bool)
    first[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return first


def distinct(numbers, size: int):
    """(distinct numbers, which of them each is) of numbers below `size`."""
    if numbers.size < 2:
        return numbers, np.zeros(numbers.size, np.int64)
    if size > _SPARSE * numbers.size:
        order = order_of(numbers.astype(np.int64, copy=False), size)
        ordered = numbers[order]
        first = edges(ordered)
        place = np.empty(numbers.size, np.int64)
        place[order] = np.cumsum(first) - 1
        return ordered[first], place
    numbers = numbers.astype(np.int64, copy=False)  # others would be converted at each use
    used = np.zeros(size, bool)
    used[numbers] = True
    found = np.flatnonzero(used)
    place = np.empty(size, np.int64)
    place[found] = np.arange(found.size)
    return found, place.take(numbers)


def grouped(numbers, size: int):
    """`distinct` with the distinct numbers in any order, in a time that does not grow with `size`."""
    if size <= _SPREAD * numbers.size:
        return distinct(numbers, size)
    leader = leaders(numbers)
    first = leader == np.arange(numbers.size)
    return numbers[first], (np.cumsum(first) - 1).take(leader)


def repeated(numbers) -> bool:
    """Whether two of the numbers (int64) are equal."""
    place = np.arange(numbers.size, dtype=np.int32)
    found = _last(numbers, place)
    lost = np.flatnonzero(found != place)  # few; of equal numbers all but one, which the others find or are beside
    left = numbers[lost]
    if (numbers[found[lost]] == left).any():
        return True
    left.sort()
    return bool((left[1:] == left[:-1]).any())


def _last(numbers, place):
    """All are written into a hash table, and read what the last one wrote: the place of that one."""
    bits = (_SPREAD * numbers.size).bit_length()
    slot = ((numbers * _GOLDEN).view(np.uint64) >> np.uint64(64 - bits)).view(np.int64)
    table = np.empty(1 << bits, np.int32)
    table[slot] = place
    return table.take(slot)


def leaders(numbers):
    """Where one that equals each of the numbers (int64) stands, the same one for equal numbers.

    The few that find another number in the hash table are sorted.
    """
    leader = _last(numbers, np.arange(numbers.size, dtype=np.int32))
    lost = np.flatnonzero(numbers.take(leader) != numbers)
    if lost.size:
        lost = lost[np.argsort(numbers[lost], kind="stable")]
        first = edges(numbers[lost])
        leader[lost] = lost[first][np.cumsum(first) - 1]
    return leader


def members(ordered, groups):
    """Which of the distinct numbers, in order, are in one of the groups: bool."""
    found = np.zeros(ordered.size, bool)
    for numbers in groups if ordered.size else ():
        at = np.searchsorted(ordered[:-1], numbers)
        found[at[ordered[at] == numbers]] = True
    return found
