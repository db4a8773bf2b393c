"""The logistic loss; its Fenchel-Young term is a relative entropy and needs care in floating point."""

from jaxbounds.array import xp
from jaxbounds.conjugate import h, log1p, newton_root, sigmoid_pair, softplus, xlogx
from jaxbounds.interfaces import Loss
from jaxbounds.pytree import pytree
from jaxbounds.rounding import U

_SMALL = 1e-300  # a probability below this may be flushed to zero


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
        return self.feasible(alpha, y, _entropy(p, d, a, q) + _entropy(n, -d, 1.0 - a, -q))

    def second(self, q, y):
        p, n = sigmoid_pair(q)
        return p * n

    def curvature(self, lo, hi, y):
        near = xp.where((lo <= 0) & (hi >= 0), 0.0, xp.minimum(xp.abs(lo), xp.abs(hi)))
        far = xp.maximum(xp.abs(lo), xp.abs(hi))
        return self.second(far, y) * (1 - 16 * U), xp.minimum(self.second(near, y) * (1 + 16 * U), 0.25)

    def step_point(self, q, alpha, y, kappa):
        def residual(m):
            return m - q - kappa * (sigmoid_pair(m)[0] - alpha)

        def slope(m):
            return 1.0 + kappa * self.second(m, y)

        lo, hi = q - kappa * alpha, q + kappa * (1.0 - alpha)
        return newton_root(residual, slope, lo, hi, xp.clip(xp.zeros_like(lo), lo, hi))

    def dual_step(self, q, alpha, y, kappa):
        return self.dual(self.step_point(q, alpha, y, kappa), y)


def _entropy(p, d, b, negative_log):
    """p h(d/p) = b log(b/p) - b + p for b = p + d; where p underflows, from -log p = negative_log, rounded up."""
    tiny = p < _SMALL
    regular = xp.where(tiny, 1.0, p)
    value = regular * h(xp.maximum(xp.where(tiny, 0.0, d) / regular, -1.0), xp.where(tiny, 1.0, b) / regular)
    some = xp.where(tiny & (b > 0), b, 1.0)
    ratio = xp.log(some) + xp.where(tiny, negative_log, 0.0) + 1e-12
    return xp.where(tiny, xp.maximum(xp.where(b > 0, some * (ratio - 1.0), 0.0) + p, 0.0), value)
