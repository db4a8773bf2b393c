"""Losses as functions of one natural coordinate per row, with their duals and Fenchel-Young terms.

    margin losses:    q = y s,    l(s, y) = f(q)      (hinges, logistic, modified_huber, from_margin)
    residual losses:  q = s - y,  l(s, y) = f(q)      (squared, huber, log_cosh, smoothed_quantile, ...)
    score losses:     q = s,      l(s, y) = f(q, y)   (poisson, from_score)

The dual variable of a row is alpha = -f'(q), the paper's sign. What each method means stands in `interfaces.Loss`.
"""

import jax

from jaxbounds.array import xp
from jaxbounds.conjugate import parameter
from jaxbounds.interfaces import Loss
from jaxbounds.logistic import Logistic
from jaxbounds.piecewise_losses import modified_huber, smoothed_quantile, squared_epsilon_insensitive
from jaxbounds.pytree import pytree
from jaxbounds.rounding import U
from jaxbounds.secant import piecewise_curvature, piecewise_secant, usable
from jaxbounds.smooth_losses import log_cosh, poisson
from jaxbounds.softmax import softmax
from jaxbounds.user_functions import from_margin, from_score

__all__ = [
    "Loss", "from_margin", "from_score", "hinge", "huber", "log_cosh", "logistic", "modified_huber", "poisson",
    "smoothed_hinge", "smoothed_quantile", "softmax", "squared",
    "squared_epsilon_insensitive", "squared_hinge",
]  # fmt: skip


def _unit_domain(y):
    return xp.zeros_like(y), xp.ones_like(y)


@pytree
class SmoothedHinge(Loss):
    """Hinge with a quadratic piece of length gamma: 0, (1-m)^2/(2 gamma), 1 - m - gamma/2. See `smoothed_hinge`."""

    gamma: jax.Array
    name = "smoothed_hinge"
    piecewise_quadratic = True

    @property
    def smoothness(self):
        return 1.0 / self.gamma

    @property
    def kinks(self):
        return 1.0 - self.gamma, xp.ones_like(self.gamma)

    def value(self, q, y):
        r = xp.maximum(1.0 - q, 0.0)
        return xp.where(r < self.gamma, r * xp.minimum(r / self.gamma, 1.0) / 2, r - self.gamma / 2)

    def dual(self, q, y):
        return xp.clip((1.0 - q) / self.gamma, 0.0, 1.0)

    def dual_interval(self, q, y):
        a = xp.clip((1.0 - q) / self.gamma, -2.0, 2.0)  # finite for every q
        pad = 4 * U * xp.abs(a)
        return xp.clip(a - pad, 0.0, 1.0), xp.clip(a + pad, 0.0, 1.0)

    def conjugate(self, alpha, y):
        return self.feasible(alpha, y, alpha * (self.gamma * alpha / 2 - 1.0))

    def domain(self, y):
        return _unit_domain(y)

    def fenchel_young(self, q, alpha, y, ref=None):
        # not (1 - q) - gamma: XLA reassociates it where gamma is a constant
        a = (1.0 - q) / self.gamma
        rounding = 4 * U * xp.maximum(a, 0.0)
        distance = xp.abs(alpha - xp.clip(a, 0.0, 1.0)) + xp.where(a < 1 + 8 * U, rounding, 0.0)
        below = self.gamma * xp.maximum(a - 1.0 + rounding, 0.0)
        value = self.gamma / 2 * distance**2 + alpha * xp.maximum(q - 1.0, 0.0) + (1.0 - alpha) * below
        return self.feasible(alpha, y, value)

    def second(self, q, y):
        r = 1.0 - q
        return xp.where((r >= 0) & (r <= self.gamma), 1.0 / self.gamma, 0.0)

    def curvature(self, lo, hi, y):
        return piecewise_curvature(lo, hi, 1.0 - self.gamma, 1.0, 1.0 / self.gamma, 1.0 + self.gamma)

    def secant(self, q, lo, hi, y):
        return piecewise_secant(q, lo, hi, y, (1.0, -self.gamma), (1.0, 0.0), self.gamma, 1.0 / self.gamma)

    def dual_step(self, q, alpha, y, kappa):
        step = (1.0 - q - self.gamma * alpha) / (self.gamma + kappa)
        return xp.clip(alpha + step, 0.0, 1.0)


@pytree
class Hinge(Loss):
    """max(0, 1 - m). See `hinge`."""

    name = "hinge"
    smoothness = None

    def value(self, q, y):
        return xp.maximum(1.0 - q, 0.0)

    def dual(self, q, y):
        return xp.where(xp.isnan(q), q, xp.where(q < 1.0, 1.0, 0.0))

    def dual_interval(self, q, y):
        return self.dual(q, y), xp.where(xp.isnan(q), q, xp.where(q <= 1.0, 1.0, 0.0))

    def conjugate(self, alpha, y):
        return self.feasible(alpha, y, -alpha)

    def domain(self, y):
        return _unit_domain(y)

    def fenchel_young(self, q, alpha, y, ref=None):
        value = alpha * xp.maximum(q - 1.0, 0.0) + (1.0 - alpha) * xp.maximum(1.0 - q, 0.0)
        return self.feasible(alpha, y, value)

    def second(self, q, y):
        return xp.zeros_like(q)

    def curvature(self, lo, hi, y):
        return xp.zeros_like(lo), xp.where((lo <= 1.0) & (hi >= 1.0), xp.inf, 0.0)

    def dual_step(self, q, alpha, y, kappa):
        flat = kappa <= 0
        step = alpha + (1.0 - q) / xp.where(flat, 1.0, kappa)
        return xp.where(flat, self.dual(q, y), xp.clip(step, 0.0, 1.0))


@pytree
class SquaredHinge(Loss):
    """max(0, 1 - m)^2 / 2. See `squared_hinge`."""

    name = "squared_hinge"
    piecewise_quadratic = True

    @property
    def smoothness(self):
        return xp.ones((), xp.float64)

    @property
    def kinks(self):
        return (xp.ones((), xp.float64),)

    def value(self, q, y):
        return xp.maximum(1.0 - q, 0.0) ** 2 / 2

    def dual(self, q, y):
        return xp.maximum(1.0 - q, 0.0)

    def conjugate(self, alpha, y):
        return self.feasible(alpha, y, alpha * (alpha / 2 - 1.0))

    def domain(self, y):
        return xp.zeros_like(y), xp.full_like(y, xp.inf)

    def fenchel_young(self, q, alpha, y, ref=None):
        a = xp.maximum(1.0 - q, 0.0)
        distance = xp.abs(alpha - a) + U * a
        return self.feasible(alpha, y, distance**2 / 2 + alpha * xp.maximum(q - 1.0, 0.0))

    def second(self, q, y):
        return xp.where(q <= 1.0, 1.0, 0.0)

    def curvature(self, lo, hi, y):
        return xp.where(hi < 1.0, 1.0, 0.0), xp.where(lo <= 1.0, 1.0, 0.0)

    def secant(self, q, lo, hi, y):
        return piecewise_secant(q, lo, hi, y, (-xp.inf, 0.0), (1.0, 0.0), xp.inf, 1.0)

    def dual_step(self, q, alpha, y, kappa):
        return xp.maximum(alpha + (1.0 - q - alpha) / (1.0 + kappa), 0.0)


@pytree
class Squared(Loss):
    """(s - y)^2 / 2. See `squared`."""

    name = "squared"
    classification = False
    piecewise_quadratic = True

    @property
    def smoothness(self):
        return xp.ones((), xp.float64)

    def value(self, q, y):
        return q * q / 2

    def dual(self, q, y):
        return -q

    def dual_interval(self, q, y):
        return -q, -q

    def conjugate(self, alpha, y):
        return alpha * alpha / 2

    def domain(self, y):
        return xp.full_like(y, -xp.inf), xp.full_like(y, xp.inf)

    def fenchel_young(self, q, alpha, y, ref=None):
        return self.feasible(alpha, y, (alpha + q) ** 2 / 2)

    def second(self, q, y):
        return xp.ones_like(q)

    def curvature(self, lo, hi, y):
        return xp.ones_like(lo), xp.ones_like(hi)

    def secant(self, q, lo, hi, y):
        return xp.where(usable(q, lo, hi, y), 1.0, 0.0), xp.ones_like(q)

    def dual_step(self, q, alpha, y, kappa):
        return alpha - (q + alpha) / (1.0 + kappa)


@pytree
class Huber(Loss):
    """r^2/2 for |r| <= delta, delta |r| - delta^2/2 beyond, r = s - y. See `huber`."""

    delta: jax.Array
    name = "huber"
    classification = False
    piecewise_quadratic = True

    @property
    def smoothness(self):
        return xp.ones_like(self.delta)

    @property
    def kinks(self):
        return -self.delta, self.delta

    def value(self, q, y):
        r = xp.abs(q)
        return xp.where(r <= self.delta, r * r / 2, self.delta * (r - self.delta / 2))

    def dual(self, q, y):
        return -xp.clip(q, -self.delta, self.delta)

    def dual_interval(self, q, y):
        a = self.dual(q, y)
        return a, a

    def conjugate(self, alpha, y):
        return self.feasible(alpha, y, alpha * alpha / 2)

    def domain(self, y):
        return xp.zeros_like(y) - self.delta, xp.zeros_like(y) + self.delta

    def fenchel_young(self, q, alpha, y, ref=None):
        beyond = xp.maximum(xp.abs(q) - self.delta, 0.0)
        value = (alpha - self.dual(q, y)) ** 2 / 2 + beyond * (self.delta + alpha * xp.sign(q))
        return self.feasible(alpha, y, value)

    def second(self, q, y):
        return xp.where(xp.abs(q) <= self.delta, 1.0, 0.0)

    def curvature(self, lo, hi, y):
        return piecewise_curvature(lo, hi, -self.delta, self.delta, 1.0, 0.0)

    def secant(self, q, lo, hi, y):
        return piecewise_secant(q, lo, hi, y, (-self.delta, 0.0), (self.delta, 0.0), 2.0 * self.delta, 1.0)

    def dual_step(self, q, alpha, y, kappa):
        return xp.clip(alpha - (q + alpha) / (1.0 + kappa), -self.delta, self.delta)


def smoothed_hinge(gamma) -> SmoothedHinge:
    """Hinge loss with its kink smoothed over a length gamma.

    l(s, y) = 0 for m >= 1,  (1 - m)^2 / (2 gamma) for 1 - gamma <= m <= 1,  1 - m - gamma/2 below, with m = y s.
    1/gamma-smooth; dual variable in [0, 1].

    Args:
        gamma: length of the quadratic piece, a positive number (or a tracer).

    Returns:
        a loss, a pytree whose leaf gamma is a float64 scalar.

    Raises:
        TypeError, ValueError: gamma is not a positive finite number.

    Example:
        >>> import jaxbounds as jb
        >>> loss = jb.losses.smoothed_hinge(gamma=0.5)
        >>> float(loss.smoothness)
        2.0

    Source: Shalev-Shwartz and Zhang 2013, equation 1; Hanada et al. 2016, appendix B.
    """
    return SmoothedHinge(parameter("gamma", gamma))


def hinge() -> Hinge:
    """Hinge loss of the support vector machine, l(s, y) = max(0, 1 - y s).

    Not smooth (property A is missing), so it needs a strongly convex penalty; dual variable in [0, 1].

    Returns:
        a loss, a pytree without leaves.

    Example:
        >>> import jaxbounds as jb
        >>> jb.losses.hinge().smoothness is None
        True

    Source: Cortes and Vapnik 1995.
    """
    return Hinge()


def squared_hinge() -> SquaredHinge:
    """Squared hinge loss, l(s, y) = max(0, 1 - y s)^2 / 2.

    1-smooth; dual variable in [0, inf).

    Returns:
        a loss, a pytree without leaves.

    Example:
        >>> import jaxbounds as jb
        >>> float(jb.losses.squared_hinge().smoothness)
        1.0

    Source: the L2-loss support vector machine, Hsieh et al. 2008.
    """
    return SquaredHinge()


def logistic() -> Logistic:
    """Logistic loss, l(s, y) = log(1 + exp(-y s)).

    1/4-smooth; dual variable in [0, 1].

    Returns:
        a loss, a pytree without leaves.

    Example:
        >>> import jaxbounds as jb
        >>> float(jb.losses.logistic().smoothness)
        0.25

    Source: Yu, Huang and Lin 2011, for the dual.
    """
    return Logistic()


def squared() -> Squared:
    """Squared loss, l(s, y) = (s - y)^2 / 2.

    1-smooth; dual variable alpha = y - s in R. Half the squared error: a mean loss that the library returns (of
    leave-one-out, of `penalty_sweep`, ...) is half the mean squared error.

    Returns:
        a loss, a pytree without leaves.

    Example:
        >>> import jaxbounds as jb
        >>> jb.losses.squared().classification
        False

    Source: least squares.
    """
    return Squared()


def huber(delta) -> Huber:
    """Huber loss, l(s, y) = r^2/2 for |r| <= delta, delta |r| - delta^2/2 beyond, with r = s - y.

    1-smooth; dual variable in [-delta, delta].

    Args:
        delta: half-width of the quadratic piece, a positive number (or a tracer).

    Returns:
        a loss, a pytree whose leaf delta is a float64 scalar.

    Raises:
        TypeError, ValueError: delta is not a positive finite number.

    Example:
        >>> import jaxbounds as jb
        >>> float(jb.losses.huber(delta=1.5).delta)
        1.5

    Source: Huber 1964.
    """
    return Huber(parameter("delta", delta))
