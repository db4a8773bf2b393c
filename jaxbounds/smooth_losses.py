"""More losses with curved pieces: log-cosh, and Poisson with a score bound."""

import jax

from jaxbounds.array import xp
from jaxbounds.conjugate import exact_step, h, log1p, mean_decay, newton_root, parameter, sigmoid_pair, xlogx
from jaxbounds.interfaces import Loss
from jaxbounds.logistic import Logistic, chord, entropy
from jaxbounds.pytree import is_traced, pytree
from jaxbounds.rounding import TINY, U
from jaxbounds.secant import usable

_LOGISTIC = Logistic()
_PAD = 16 * U  # relative error granted to products of two exponentials
_LARGEST = 300.0  # e^300 is far beyond what a count can be


def _tanh(q):
    """tanh q with a small relative error."""
    q = xp.clip(q, -400.0, 400.0)  # further out it is 1 and -1
    size = xp.where(q < 0, -q, q)  # not abs: its gradient at 0 is 0
    return 4.0 * q * chord(xp.zeros_like(q), 2.0 * size, 2.0 * size)


def _expm1(x):
    """e^x - 1 with a small relative error."""
    size = xp.where(x < 0, -x, x)
    return x * mean_decay(size) * xp.exp(xp.where(x < 0, 0.0, x))


@pytree
class LogCosh(Loss):
    """log cosh r, r = s - y. See `log_cosh`.

    f(q) = l(2 q) + q - log 2 with the logistic loss l, so that (1 + alpha)/2 is the logistic dual variable at 2 q.
    """

    name = "log_cosh"
    classification = False

    @property
    def smoothness(self):
        return xp.ones((), xp.float64)

    def value(self, q, y):
        size = xp.where(q < 0, -q, q)
        near = size < 1.0
        t = _tanh(xp.where(near, q, 0.0))
        far = xp.where(near, 1.0, size)
        return xp.where(near, -0.5 * log1p(-t * t), far + log1p(xp.exp(-2.0 * far)) - xp.log(2.0))

    def dual(self, q, y):
        return -_tanh(q)

    def conjugate(self, alpha, y):
        a = xp.clip(xp.abs(alpha), 0.0, 1.0)
        return self.feasible(alpha, y, (h(a) + h(-a, 1.0 - a)) / 2)

    def domain(self, y):
        return -xp.ones_like(y), xp.ones_like(y)

    def fenchel_young(self, q, alpha, y, ref=None):
        a = xp.clip(alpha, -1.0, 1.0)
        p, n = sigmoid_pair(2.0 * q)
        left, right = (1.0 + a) / 2, (1.0 - a) / 2
        tanh = _tanh(q)
        middle = (p > 0.25) & (n > 0.25)  # elsewhere the smaller probability is compared with its own kind
        d = xp.where(middle, (a + tanh) / 2, xp.where(p <= 0.25, left - p, n - right))
        rounding = xp.where(middle, 4 * U * xp.abs(tanh), 3 * U * xp.minimum(p, n)) + U * xp.abs(d)
        d = d + xp.where(d < 0, -rounding, rounding)
        return self.feasible(alpha, y, entropy(p, d, left, 2.0 * q) + entropy(n, -d, right, -2.0 * q))

    def second(self, q, y):
        p, n = sigmoid_pair(2.0 * q)
        return 4.0 * p * n

    def curvature(self, lo, hi, y):
        low, high = _LOGISTIC.curvature(2.0 * lo, 2.0 * hi, y)
        return 4.0 * low, 4.0 * high

    def secant(self, q, lo, hi, y):
        low, high = _LOGISTIC.secant(2.0 * q, 2.0 * lo, 2.0 * hi, y)
        return 4.0 * low, 4.0 * high

    def step_point(self, q, alpha, y, kappa):
        def residual(m):
            return m - q + kappa * (_tanh(m) + alpha)

        def slope(m):
            return 1.0 + kappa * self.second(m, y)

        lo, hi = q - kappa * (1.0 + alpha), q + kappa * (1.0 - alpha)
        return newton_root(residual, slope, lo, hi, xp.clip(xp.zeros_like(lo), lo, hi))

    def dual_step(self, q, alpha, y, kappa):
        return self.dual(self.step_point(q, alpha, y, kappa), y)


@pytree
class Poisson(Loss):
    """g(s) - y s with g(s) = e^s up to the bound B and its second-order expansion at B beyond. See `poisson`.

    With s_1 = min(s, B) and z = max(s - B, 0): g = e^(s_1) (1 + z + z^2/2), g' = e^(s_1) (1 + z), g'' = e^(s_1).
    The rate r = y - alpha is the dual variable of g. y - e^s cancels where a row is fitted well, so it is taken from
    s - log y, where a rounding of log y stands for one of y.
    """

    bound: jax.Array
    name = "poisson"
    classification = False
    nonnegative = False
    domain_by_row = True
    least_target = 0.0

    def _top(self):
        return xp.exp(self.bound)

    @property
    def smoothness(self):
        return self._top() * (1 + 4 * U)

    def coordinate(self, s, y):
        return s + 0.0 * y

    def _parts(self, q):
        """(e^(s_1), z)."""
        return xp.exp(xp.minimum(q, self.bound)), xp.maximum(q - self.bound, 0.0)

    def value(self, q, y):
        rate, z = self._parts(q)
        return rate * (1.0 + z * (1.0 + z / 2)) - y * q

    def dual(self, q, y):
        rate, z = self._parts(q)
        log_y = xp.log(xp.where(y > 0, y, 1.0))
        root = self.bound + _expm1(log_y - self.bound)  # where g' = y, if that is beyond B
        near = xp.where(z > 0, self._top() * (root - q), -y * _expm1(xp.where(z > 0, 0.0, q - log_y)))
        return xp.where((y > 0) & (q > -1e300), near, y - rate * (1.0 + z))

    def _of_target(self, y):
        """Bound on what the rounding of log y does to -f'."""
        return 3 * U * xp.abs(y) * (1.0 + xp.abs(xp.log(xp.where(y > 0, y, 1.0))))

    def dual_interval(self, q, y):
        a = self.dual(q, y)
        pad = 8 * U * xp.where(xp.isinf(a), 0.0, xp.abs(a)) + self._of_target(y) + TINY
        return a - pad, xp.minimum(a + pad, y)

    def conjugate(self, alpha, y):
        rate, top = y - alpha, self._top()
        z = xp.maximum(rate / top - 1.0, 0.0)
        low, more = xp.clip(rate, 0.0, top), xp.maximum(rate - top, 0.0)
        return self.feasible(alpha, y, xlogx(low) - low + more * (self.bound + z / 2))

    def domain(self, y):
        return xp.full_like(y, -xp.inf), y

    def fenchel_young(self, q, alpha, y, ref=None):
        # the divergence of g between q and the score of the rate y - alpha, cut at B: both parts and what crosses B
        top, rate, a = self._top(), y - alpha, self.dual(q, y)
        p, z = self._parts(q)
        low, more = xp.clip(rate, 0.0, top), xp.maximum(rate - top, 0.0)
        far = 4.0 * p <= y  # there e^s is lost in y - e^s, but not in (y - alpha) - e^s
        inside, outside = (z == 0) & (more == 0) & ~far, (z > 0) & (more > 0)
        inner, outer = xp.where(inside, a - alpha, low - p), xp.where(outside, alpha - a, more - top * z)
        apart = xp.where((z == 0) & far, p + rate, xp.abs(y) + xp.abs(alpha) + p * (1.0 + z))
        fine = 4 * U * xp.abs(a) + U * xp.abs(alpha) + self._of_target(y)
        rounding = xp.where(inside | outside, fine, 3 * U * apart)
        inner = inner + xp.where(inner < 0, -rounding, rounding)
        outer = xp.where((z > 0) | (more > 0), xp.abs(outer) + rounding, 0.0)
        crossing = more * xp.maximum(self.bound - q, 0.0) + z * xp.maximum(top - low, 0.0)
        entropic = entropy(p, inner, p + inner, -xp.minimum(q, self.bound))
        return self.feasible(alpha, y, entropic + outer**2 / (2.0 * top) + crossing * (1 + 4 * U))

    def second(self, q, y):
        return self._parts(q)[0]

    def curvature(self, lo, hi, y):
        return self.second(lo, y) * (1 - _PAD), xp.minimum(self.second(hi, y) * (1 + _PAD), self.smoothness)

    def secant(self, q, lo, hi, y):
        known = usable(q, lo, hi, y)
        q, lo, hi = (xp.where(known, x, safe) for x, safe in ((q, 0.0), (lo, -1.0), (hi, 1.0)))

        def slope(d):
            """The slope at d, with its relative error: a mean of g'' over [q, q + d], rising in d."""
            u = q + d
            left, right = xp.minimum(q, u), xp.maximum(q, u)
            length, curved = xp.abs(d), xp.minimum(right, self.bound) - xp.minimum(left, self.bound)
            share = xp.where(length > 0, xp.minimum(curved / xp.where(length > 0, length, 1.0), 1.0), 1.0)
            value = self.second(right, y) * (share * mean_decay(curved) + (1.0 - share))
            return value, _PAD + 4 * U * (xp.abs(u) + xp.abs(q) + xp.abs(self.bound))

        finite = (lo > -1e15), (hi < 1e15)
        low, pad_low = slope(xp.where(finite[0], lo, -1.0))
        high, pad_high = slope(xp.where(finite[1], hi, 1.0))
        low = xp.where(known & finite[0], xp.maximum(low * (1.0 - pad_low) - TINY, 0.0), 0.0)
        high = xp.where(known & finite[1], high * (1.0 + pad_high) + TINY, xp.inf)
        return low, xp.minimum(high, self.smoothness)

    def step_point(self, q, alpha, y, kappa):
        return exact_step(lambda m: self.dual(m, y), lambda m: self.second(m, y), q, alpha, kappa, steps=48)

    def dual_step(self, q, alpha, y, kappa):
        return self.dual(self.step_point(q, alpha, y, kappa), y)


def log_cosh() -> LogCosh:
    """Log-cosh loss, l(s, y) = log cosh(s - y): r^2/2 for small residuals r, |r| - log 2 for large ones.

    1-smooth; dual variable alpha = -tanh(s - y) in [-1, 1]. It turns from squared to absolute error at |r| = 1 or so;
    for a turn at delta divide the targets by delta, and multiply the coefficients of the fit by it: with an L2 penalty
    that is the loss delta^2 log cosh((s - y)/delta).

    Returns:
        a loss, a pytree without leaves.

    Example:
        >>> import jaxbounds as jb
        >>> round(float(jb.losses.log_cosh().value(1.0, 0.0)), 6)
        0.433781

    Source: log cosh r = log(1 + e^(-2r)) + r - log 2, the logistic loss with a linear term.
    """
    return LogCosh()


def poisson(bound) -> Poisson:
    """Poisson regression with log link, l(s, y) = e^s - y s, made smooth by a bound on the scores.

    e^s is not smooth on all of R: its second derivative e^s has no upper bound, so property A fails for it. This loss
    is e^s - y s for s <= bound, and beyond it continues e^s by its second-order expansion
    e^bound (1 + z + z^2/2), z = s - bound. It has two continuous derivatives, is e^bound-smooth, and every guarantee
    is about THIS loss. Where all scores of the training rows lie at or below the bound the two losses have the same
    optimum: check that `bounds.scores(X).upper` of the (changed) training rows does not exceed it. A lower bound gives
    tighter certificates; the largest score of the model plus 1 is a good start.

    Dual variable alpha = y - e^s in (-inf, y]; the constant log(y!) of the likelihood is left out.

    Args:
        bound: largest score at which e^s is kept, a number up to 300 (or a tracer).

    Returns:
        a loss, a pytree whose leaf bound is a float64 scalar; its targets are counts or rates of at least 0.

    Raises:
        TypeError, ValueError: bound is not finite, or too large.

    Example:
        >>> import jaxbounds as jb
        >>> loss = jb.losses.poisson(bound=0.0)
        >>> float(loss.value(0.0, 3.0)), float(loss.value(1.0, 3.0)), float(loss.smoothness)
        (1.0, -0.5, 1.0000000000000004)

    Source: Nelder and Wedderburn 1972, for the likelihood.
    """
    value = parameter("bound", bound, above=None)
    if not is_traced(value) and float(value) > _LARGEST:
        raise ValueError(f"bound = {float(value):g} is not allowed; choose a score of at most {_LARGEST:g}")
    return Poisson(value)
