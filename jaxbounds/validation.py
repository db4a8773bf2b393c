"""Losses, their mean and error rates of rows whose scores are known to lie in intervals."""

import numpy as np

from jaxbounds.array import uses_jax, xp
from jaxbounds.rounding import TINY, U, growth

_BLOCK = 1 << 18  # scores whose losses are taken at a time


def error_rate(lower, upper, y):
    """(lower, upper) of the fraction of mistakes over the last axis: y s <= 0 is one.

    Whole numbers of mistakes over the number of rows, rounded to nearest, so that they compare with np.mean of a mask.
    """
    low, high = xp.where(y > 0, lower, -upper), xp.where(y > 0, upper, -lower)
    wrong, right = high <= 0, low > 0
    m = y.shape[0]
    fractions = np.arange(m + 1) / m  # looked up: compiled, k / m may become k * (1 / m), which rounds twice
    return xp.take(fractions, xp.sum(wrong, axis=-1)), xp.take(fractions, m - xp.sum(right, axis=-1))


def mean_loss(loss, lower, upper, y):
    """(lower, upper) of the mean loss over the last axis; convex, so largest at an end of a score's interval."""
    if uses_jax((lower, upper, y)) or lower.size <= _BLOCK or lower.ndim != 2:
        return _mean_loss(loss, lower, upper, y)
    size = max(1, _BLOCK // lower.shape[1])  # on the host in blocks: its terms are twenty arrays of that size
    starts = range(0, lower.shape[0], size)
    parts = [_mean_loss(loss, lower[k : k + size], upper[k : k + size], y) for k in starts]
    low, high = zip(*parts, strict=True)
    return np.concatenate(low), np.concatenate(high)


def _mean_loss(loss, lower, upper, y):
    least, most = loss_range(loss, lower, upper, xp.broadcast_to(y, lower.shape))
    error = growth(y.shape[0] + 4)
    low, high = xp.mean(least, axis=-1), xp.mean(most, axis=-1)
    size = xp.mean(xp.abs(least), axis=-1), xp.mean(xp.abs(most), axis=-1)
    return low - error * size[0], high + error * size[1]


def loss_range(loss, lower, upper, y):
    """(lower bound of the least, upper bound of the largest) loss of scores in an interval.

    A convex function is largest at an end, and above both its tangents at the ends.
    """
    q = loss.coordinate(lower, y), loss.coordinate(upper, y)
    left, right = xp.minimum(*q), xp.maximum(*q)
    if not loss.classification:  # s - y rounds
        left, right = left - 2 * U * xp.abs(left) - TINY, right + 2 * U * xp.abs(right) + TINY
    f_left, f_right, width = loss.value(left, y), loss.value(right, y), right - left
    a_left, a_right = loss.dual(left, y), loss.dual(right, y)  # -l'
    # tangents f_left - a_left z and f_right + a_right (width - z) meet if the first falls and the second rises
    meet = a_left * f_right - a_right * f_left + a_left * a_right * width
    meet = meet / xp.where(a_left > a_right, a_left - a_right, 1.0)
    least = xp.where(a_left <= 0, f_left, xp.where(a_right >= 0, f_right, meet))
    slack = 64 * U * (xp.abs(f_left) + xp.abs(f_right) + (xp.abs(a_left) + xp.abs(a_right)) * width) + TINY
    most = xp.maximum(f_left, f_right) + 64 * U * xp.maximum(xp.abs(f_left), xp.abs(f_right)) + TINY
    least, floor = least - slack, 0.0 if loss.nonnegative else -xp.inf
    return xp.where(least > floor, least, floor), xp.where(xp.isnan(most), xp.inf, most)
