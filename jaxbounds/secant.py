"""Secant slopes (f'(q + d) - f'(q)) / d of a loss's derivative over d in [lo, hi]: the pieces that losses share.

The floats q, lo and hi are taken as exact numbers, so which side of a kink q + lo lies on is decided without rounding:
q - kink is kept as a sum of three floats that do not overlap.
"""

from jaxbounds.array import xp
from jaxbounds.rounding import TINY, U

PAD = 8 * U  # relative error granted to a quotient below


def usable(q, lo, hi, y):
    """False where a number is NaN or the range is empty: nothing is known there."""
    return (lo <= hi) & (lo < xp.inf) & (hi > -xp.inf) & xp.isfinite(q) & (y == y)


def reach(q, lo, hi):
    """Floats (left, right) with left <= q + lo and q + hi <= right."""
    left, right = q + lo, q + hi
    return left - (2 * U * xp.abs(left) + TINY), right + (2 * U * xp.abs(right) + TINY)


def sharpened(whole, slope, curvature, noise, q, lo, hi, y):
    """The range `whole` cut with what the ends tell: an extreme slope is one of an end, or equals f'' at its own d.

    Args:
        whole: (low, high) that holds already; slope: f', trusted to the relative error `noise`; curvature: of [a, b].
    """
    ends, at_q = reach(q, lo, hi), slope(q)
    low, high = curvature(*ends)
    for end in ends:
        at_end, d = slope(end), end - q
        known = (xp.abs(d) > 1e-100) & xp.isfinite(d) & xp.isfinite(at_end)  # shorter ones overflow in gradients
        rise, d = xp.where(d < 0, at_q - at_end, at_end - at_q), xp.where(known, xp.abs(d), 1.0)
        pad = noise * (xp.abs(at_q) + xp.abs(at_end)) + TINY  # all there is left where the difference cancels
        low = xp.minimum(low, xp.where(known, (rise - pad) / d * (1 - PAD), -xp.inf))
        high = xp.maximum(high, xp.where(known, (rise + pad) / d * (1 + PAD), xp.inf))
    known = usable(q, lo, hi, y)  # and NaN tells nothing
    return xp.where(known & (low > whole[0]), low, whole[0]), xp.where(known & (high < whole[1]), high, whole[1])


def _two_sum(a, b):
    """(s, e): s is the float nearest to a + b, and s + e = a + b exactly (e = 0 where a is infinite)."""
    s = a + b
    c = s - a
    return s, xp.where(xp.isinf(s), 0.0, (a - (s - c)) + (b - c))


def _minus_q(end, q):
    """end[0] + end[1] - q exactly, as three floats that do not overlap, the largest first."""
    s, e = _two_sum(*end)
    s, f = _two_sum(s, -q)
    g, h = _two_sum(e, f)
    first, rest = _two_sum(s, g)
    return (first, *_two_sum(rest, h))


def _above(d, point):
    """d - point with a small relative error, hence with the right sign; NaN where both are infinite."""
    return ((d - point[0]) - point[1]) - point[2]


def _mirrored(mirror, a, b):
    """(-b, -a) where `mirror`, else (a, b), part by part."""
    pairs = list(zip(a, b, strict=True))
    return tuple(xp.where(mirror, -y, x) for x, y in pairs), tuple(xp.where(mirror, -x, y) for x, y in pairs)


def piecewise_curvature(lo, hi, a, b, value, size):
    """Curvature range of a function with f'' = value on (a, b) and 0 outside; `size` bounds the error of a and b."""
    pad = 4 * U * size
    inside = (lo > a + pad) & (hi < b - pad)
    outside = (hi < a - pad) | (lo > b + pad)
    return xp.where(inside, value, 0.0), xp.where(outside, 0.0, value)


def piecewise_secant(q, lo, hi, y, left, right, width, value):
    """Range of the secant slopes where f'' = value between the kinks left and right, and 0 outside.

    Each kink is a pair of floats that stands for its sum; left may be -inf. width = right - left. The slope is `value`
    times the share of [q, q + d] that is curved: in d it rises to one peak and falls, so its least value is at an end.
    Ranges that cross no kink give exactly 0 or `value` (the float).
    """
    known = usable(q, lo, hi, y)
    q, lo, hi = (xp.where(known, x, safe) for x, safe in ((q, 0.0), (lo, -1.0), (hi, 1.0)))
    # a kink must not be a constant: XLA would reassociate the error-free sums
    left, right = ([xp.where(known, part, 0.0) for part in end] for end in (left, right))
    a, b = _minus_q(left, q), _minus_q(right, q)  # the kinks in the coordinate d
    mirror = a[0] > 0  # q is left of the curved piece
    a, b = _mirrored(mirror, a, b)
    (lo,), (hi,) = _mirrored(mirror, (lo,), (hi,))
    inside = b[0] >= 0  # now a <= 0: q is on the curved piece, or right of it

    def slope(d):
        """(lower bound, upper bound) of the slope at d."""
        below, above = _above(d, a), _above(d, b)
        whole = ~(below < 0) & xp.where(inside, ~(above > 0), d == -xp.inf)
        curved = xp.where(inside, b[0], xp.where(above < 0, above, 0.0))  # signed like d
        curved = xp.where(whole, 0.0, xp.where(below < 0, xp.where(inside, a[0], -width), curved))
        flat = curved == 0  # whole, or nothing curved
        ratio = value * curved / xp.where(flat, 1.0, d)
        low = xp.where(flat, 0.0, xp.maximum(ratio * (1 - PAD) - TINY, 0.0))
        high = xp.where(flat, 0.0, ratio * (1 + PAD) + TINY)
        return xp.where(whole, value, low), xp.where(whole, value, high)

    (low, high), (other_low, other_high) = slope(lo), slope(hi)
    low, high = xp.minimum(low, other_low), xp.maximum(high, other_high)
    first = xp.where(inside, _above(lo, b), _above(lo, a))
    reached = ~(first > 0) & ~(_above(hi, a) < 0) & (inside | (a[0] > -xp.inf))
    most = value * width / xp.where(reached & ~inside, -a[0], 1.0) * (1 + PAD)
    high = xp.where(reached, xp.maximum(high, xp.where(inside, value, most)), high)
    at_kink = ((a[0] == 0) | (b[0] == 0)) & (lo <= 0) & (hi >= 0)  # both one-sided values of f''
    low = xp.where(known & ~at_kink, low, 0.0)
    return low, xp.where(known, xp.minimum(high, value), value)
