"""The logistic loss; its Fenchel-Young term is a relative entropy and needs care in floating point."""

from jaxbounds.array import stop_gradient, xp
from jaxbounds.conjugate import h, log1p, mean_decay, newton_root, sigmoid_pair, softplus, xlogx
from jaxbounds.interfaces import Loss
from jaxbounds.pytree import pytree
from jaxbounds.rounding import TINY, U
from jaxbounds.secant import usable

_SMALL = 1e-300  # a probability below this may be flushed to zero
_PAD = 16 * U  # relative error granted to products of two probabilities


@pytree
class Logistic(Loss):
    """log(1 + e^-m). See `logistic`."""

    name = "logistic"

    @property
    def smoothness(self):
        return xp.full((), 0.25, xp.float64)

    def value(self, q, y):
        return softplus(-q)

    def dual(self, q, y):
        return sigmoid_pair(q)[0]

    def dual_interval(self, q, y):
        lo, hi = super().dual_interval(q, y)
        return lo, xp.maximum(hi, 1e-307)  # never exactly 0, even where exp underflows

    def conjugate(self, alpha, y):
        a = xp.clip(alpha, 0.0, 1.0)
        small = a < 0.5  # there 1 - a may round to 1
        rest = xp.where(small, (1.0 - a) * log1p(-xp.where(small, a, 0.0)), xlogx(1.0 - a))
        return self.feasible(alpha, y, xlogx(a) + rest)

    def domain(self, y):
        return xp.zeros_like(y), xp.ones_like(y)

    def fenchel_young(self, q, alpha, y, ref=None):
        a = xp.clip(alpha, 0.0, 1.0)
        p, n = sigmoid_pair(q)
        d = xp.where(p <= 0.5, a - p, n - (1.0 - a))
        d = d + xp.where(d < 0, -3 * U, 3 * U) * xp.minimum(p, n)  # the rounding of p or n, on the safe side
        return self.feasible(alpha, y, entropy(p, d, a, q) + entropy(n, -d, 1.0 - a, -q))

    def second(self, q, y):
        p, n = sigmoid_pair(q)
        return p * n

    def curvature(self, lo, hi, y):
        near = xp.where((lo <= 0) & (hi >= 0), 0.0, xp.minimum(xp.abs(lo), xp.abs(hi)))
        far = xp.maximum(xp.abs(lo), xp.abs(hi))
        return self.second(far, y) * (1 - 16 * U), xp.minimum(self.second(near, y) * (1 + 16 * U), 0.25)

    def secant(self, q, lo, hi, y):
        known = usable(q, lo, hi, y)
        q, lo, hi = (xp.where(known, x, safe) for x, safe in ((q, 0.0), (lo, -1.0), (hi, 1.0)))
        mirror = q < 0  # f'' is even
        q, lo, hi = xp.where(mirror, -q, q), xp.where(mirror, -hi, lo), xp.where(mirror, -lo, hi)

        def slope(d):
            """(lower bound, upper bound) of the slope at d, and of f'' there."""
            u = xp.clip(q + d, -1e4, 1e4)  # further out, only sigma's zeros and ones
            right = d > 0
            value = chord(xp.where(right, q, u), xp.where(right, u, q), xp.where(right, d, -d))
            pad = _PAD + xp.where(right, 0.0, 2 * U * xp.maximum(u, 0.0))  # the rounding of u, in e^-u
            return _around(value, pad), _around(self.second(u, y), _PAD + 2 * U * xp.abs(u))

        # the slope is unimodal in d; with q >= 0 its peak has q + d <= 0
        ((low_lo, high_lo), (second_lo, _)), ((low_hi, high_hi), (_, second_hi)) = slope(lo), slope(hi)
        monotone = (q + lo >= 0) | (second_lo > high_lo) | ((hi < 0) & (second_hi < low_hi))
        high = xp.maximum(xp.maximum(high_lo, high_hi), xp.where(monotone, 0.0, _peak(q)))
        return xp.where(known, xp.minimum(low_lo, low_hi), 0.0), xp.where(known, xp.minimum(high, 0.25), 0.25)

    def step_point(self, q, alpha, y, kappa):
        def residual(m):
            return m - q - kappa * (sigmoid_pair(m)[0] - alpha)

        def slope(m):
            return 1.0 + kappa * self.second(m, y)

        lo, hi = q - kappa * alpha, q + kappa * (1.0 - alpha)
        return newton_root(residual, slope, lo, hi, xp.clip(xp.zeros_like(lo), lo, hi))

    def dual_step(self, q, alpha, y, kappa):
        return self.dual(self.step_point(q, alpha, y, kappa), y)


def _around(value, pad):
    """(lower bound, upper bound) of a number in [0, inf) with relative error `pad`."""
    return xp.maximum(value * (1.0 - pad) - TINY, 0.0), value * (1.0 + pad) + TINY


def chord(a, b, x):
    """(sigma(b) - sigma(a)) / x for x = b - a >= 0: sigma(b) sigma(-a) (1 - e^-x) / x, with no cancellation."""
    return sigmoid_pair(b)[1] * sigmoid_pair(a)[0] * mean_decay(x)


def _peak(q):
    """An upper bound of every secant slope at q >= 0, attained but for roundings.

    The largest slope is that of the line through (q, sigma(q)) that touches sigma, at some u in [-q, 0]. As sigma is
    convex there, no slope is above s + (1 - u/q) max(c - s, 0) for any u, with c the chord and s = sigma'(u).
    """
    q = xp.clip(q, 1e-9, 1e300)  # closer to 0 the peak is 1/4 - q^2/64; further out it falls
    frozen = stop_gradient(q)
    u = -log1p(frozen * ((1.0 + frozen) / (2.0 + frozen)))
    for _ in range(3):  # Newton steps: 1e-11 from this start
        p, n = sigmoid_pair(u)
        u = u + (chord(u, frozen, frozen - u) / (p * n) - 1.0) / xp.tanh(-u / 2)
        u = xp.clip(u, -frozen, -xp.minimum(frozen, 1.0) / 4)
    p, n = sigmoid_pair(u)
    line = chord(u, q, q - u)
    low, high = _around(p * n, _PAD)
    bound = high + 2.0 * xp.maximum(_around(line, _PAD)[1] - low, 0.0)
    return line + stop_gradient(bound - line)


def entropy(p, d, b, negative_log):
    """p h(d/p) = b log(b/p) - b + p for b = p + d; where p underflows, from -log p = negative_log, rounded up."""
    tiny = p < _SMALL
    regular = xp.where(tiny, 1.0, p)
    value = regular * h(xp.maximum(xp.where(tiny, 0.0, d) / regular, -1.0), xp.where(tiny, 1.0, b) / regular)
    some = xp.where(tiny & (b > 0), b, 1.0)
    ratio = xp.log(some) + xp.where(tiny, negative_log, 0.0) + 1e-12
    return xp.where(tiny, xp.maximum(xp.where(b > 0, some * (ratio - 1.0), 0.0) + p, 0.0), value)
