"""Error rate and mean loss on validation rows whose scores are known to lie in intervals."""

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
    y = xp.broadcast_to(y, lower.shape)
    ends = loss.coordinate(lower, y), loss.coordinate(upper, y)
    a, b = xp.minimum(*ends), xp.maximum(*ends)
    a, b = a - 4 * U * (xp.abs(a) + xp.abs(y)), b + 4 * U * (xp.abs(b) + xp.abs(y))
    noise = 64 * U
    at_a, at_b = loss.value(a, y), loss.value(b, y)
    most = xp.maximum(at_a, at_b)
    most = most + noise * xp.abs(most) + TINY
    # where the loss falls, its least value is at b, where it rises at a, else above both tangents
    fall, rise = loss.dual_interval(a, y)[1], -loss.dual_interval(b, y)[0]
    tangents = _crossing(at_a, fall, at_b, rise, b - a)
    least = xp.where(rise <= 0, at_b, xp.where(fall <= 0, at_a, tangents))
    least = xp.where(xp.isfinite(a) & xp.isfinite(b), least, -xp.inf)
    least = least - noise * (xp.abs(least) + xp.where(xp.isfinite(least), xp.abs(at_a) + xp.abs(at_b), 0.0)) - TINY
    if loss.nonnegative:
        least = xp.maximum(least, 0.0)
    m = y.shape[-1]
    error = growth(m + 4)
    low, high = xp.mean(least, axis=-1), xp.mean(most, axis=-1)
    size = xp.mean(xp.abs(least), axis=-1), xp.mean(xp.abs(most), axis=-1)
    return low - error * size[0], high + error * size[1]


def _crossing(at_a, fall, at_b, rise, width):
    """The height at which the line from at_a with slope -fall meets the line to at_b with slope rise."""
    total = fall + rise
    safe = xp.where(total > 0, total, 1.0)
    # at_a - fall t = at_b - rise (width - t)
    t = xp.clip((at_a - at_b + rise * width) / safe, 0.0, width)
    return xp.where(total > 0, xp.minimum(at_a - fall * t, at_b - rise * (width - t)), xp.minimum(at_a, at_b))
