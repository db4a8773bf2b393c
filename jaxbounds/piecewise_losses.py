"""More losses made of straight and quadratic pieces: squared epsilon-insensitive, smoothed quantile, modified Huber."""

import jax

from jaxbounds.array import xp
from jaxbounds.conjugate import parameter, soft
from jaxbounds.interfaces import Loss
from jaxbounds.pytree import in_float64, is_traced, pytree
from jaxbounds.rounding import U
from jaxbounds.secant import piecewise_curvature, piecewise_secant, usable


def _complement(slope, pad):
    """1 - slope, padded for its rounding but exact at 0 and 1."""
    between = (slope > 0) & (slope < 1)
    return xp.where(between, xp.clip(1.0 - slope + pad, 0.0, 1.0), 1.0 - slope)


@pytree
class SquaredEpsilonInsensitive(Loss):
    """max(0, |r| - epsilon)^2 / 2, r = s - y. See `squared_epsilon_insensitive`."""

    epsilon: jax.Array
    name = "squared_epsilon_insensitive"
    classification = False
    piecewise_quadratic = True

    @property
    def smoothness(self):
        return xp.ones_like(self.epsilon)

    @property
    def kinks(self):
        return -self.epsilon, self.epsilon

    def value(self, q, y):
        return xp.maximum(xp.abs(q) - self.epsilon, 0.0) ** 2 / 2

    def dual(self, q, y):
        return -soft(q, self.epsilon)

    def conjugate(self, alpha, y):
        return self.feasible(alpha, y, xp.abs(alpha) * (xp.abs(alpha) / 2 + self.epsilon))

    def domain(self, y):
        return xp.full_like(y, -xp.inf), xp.full_like(y, xp.inf)

    def fenchel_young(self, q, alpha, y, ref=None):
        a = self.dual(q, y)
        distance = xp.abs(alpha - a) + U * xp.abs(a)
        inside = self.epsilon + xp.sign(alpha) * xp.clip(q, -self.epsilon, self.epsilon)
        return self.feasible(alpha, y, distance**2 / 2 + xp.abs(alpha) * inside)

    def second(self, q, y):
        return xp.where(xp.abs(q) >= self.epsilon, 1.0, 0.0)

    def curvature(self, lo, hi, y):
        flat = piecewise_curvature(lo, hi, -self.epsilon, self.epsilon, 1.0, 0.0)
        return xp.where(self.epsilon > 0, 1.0 - flat[1], 1.0), 1.0 - flat[0]

    def secant(self, q, lo, hi, y):
        kinks = (-self.epsilon, 0.0), (self.epsilon, 0.0)
        low, high = piecewise_secant(q, lo, hi, y, *kinks, 2.0 * self.epsilon, 1.0)  # of the piece that is missing
        no_kink = (self.epsilon == 0) & usable(q, lo, hi, y)
        return xp.where(no_kink, 1.0, _complement(high, -U)), _complement(low, U)

    def dual_step(self, q, alpha, y, kappa):
        return soft(kappa * alpha - q, self.epsilon) / (1.0 + kappa)


@pytree
class SmoothedQuantile(Loss):
    """The pinball loss smoothed over a length gamma. See `smoothed_quantile`."""

    tau: jax.Array
    rest: jax.Array  # 1 - tau, rounded once
    gamma: jax.Array
    name = "smoothed_quantile"
    classification = False
    piecewise_quadratic = True

    @property
    def smoothness(self):
        return 1.0 / self.gamma

    @property
    def kinks(self):
        return -self.gamma * self.tau, self.gamma * self.rest

    def _slope(self, z):
        return xp.clip(z, -self.tau, self.rest)

    def value(self, q, y):
        a = self._slope(q / self.gamma)
        return a * (q - self.gamma * a / 2)

    def dual(self, q, y):
        return -self._slope(q / self.gamma)

    def conjugate(self, alpha, y):
        return self.feasible(alpha, y, self.gamma * alpha * alpha / 2)

    def domain(self, y):
        return xp.zeros_like(y) - self.rest, xp.zeros_like(y) + self.tau

    def fenchel_young(self, q, alpha, y, ref=None):
        z = q / self.gamma
        rounding = 4 * U * xp.abs(z)
        flat = (z < -self.tau * (1 + 8 * U)) | (z > self.rest * (1 + 8 * U))  # there the slope is an end
        distance = xp.abs(alpha + self._slope(z)) + xp.where(flat, 0.0, rounding)
        left = self.gamma * xp.maximum(-self.tau - z + rounding, 0.0)
        right = self.gamma * xp.maximum(z - self.rest + rounding, 0.0)
        value = self.gamma / 2 * distance**2 + left * (self.tau - alpha) + right * (self.rest + alpha)
        return self.feasible(alpha, y, value)

    def second(self, q, y):
        z = q / self.gamma
        return xp.where((z >= -self.tau) & (z <= self.rest), 1.0 / self.gamma, 0.0)

    def curvature(self, lo, hi, y):
        return piecewise_curvature(lo, hi, *self.kinks, 1.0 / self.gamma, self.gamma)

    def secant(self, q, lo, hi, y):
        # the kinks are products, off by a rounding: the range over both sides of it
        def between(scale):
            left, right = -self.gamma * self.tau * scale, self.gamma * self.rest * scale
            return piecewise_secant(q, lo, hi, y, (left, 0.0), (right, 0.0), right - left, 1.0 / self.gamma)

        (low, high), (other_low, other_high) = between(1 - 4 * U), between(1 + 4 * U)
        return xp.minimum(low, other_low), xp.maximum(high, other_high)

    def dual_step(self, q, alpha, y, kappa):
        return xp.clip(alpha - (q + self.gamma * alpha) / (self.gamma + kappa), -self.rest, self.tau)


@pytree
class ModifiedHuber(Loss):
    """max(0, 1 - m)^2 for m >= -1, -4 m below. See `modified_huber`."""

    name = "modified_huber"
    piecewise_quadratic = True

    @property
    def smoothness(self):
        return xp.full((), 2.0, xp.float64)

    @property
    def kinks(self):
        return -xp.ones((), xp.float64), xp.ones((), xp.float64)

    def value(self, q, y):
        return xp.where(q < -1.0, -4.0 * q, xp.maximum(1.0 - xp.maximum(q, -1.0), 0.0) ** 2)

    def dual(self, q, y):
        return 2.0 * xp.clip(1.0 - q, 0.0, 2.0)

    def conjugate(self, alpha, y):
        return self.feasible(alpha, y, alpha * (alpha / 4 - 1.0))

    def domain(self, y):
        return xp.zeros_like(y), xp.full_like(y, 4.0)

    def fenchel_young(self, q, alpha, y, ref=None):
        a = self.dual(q, y)
        distance = xp.abs(alpha - a) + xp.where(q > -1.0, 2 * U * a, 0.0)
        value = distance**2 / 4 + alpha * xp.maximum(q - 1.0, 0.0) + (4.0 - alpha) * xp.maximum(-1.0 - q, 0.0)
        return self.feasible(alpha, y, value)

    def second(self, q, y):
        return xp.where((q >= -1.0) & (q <= 1.0), 2.0, 0.0)

    def curvature(self, lo, hi, y):
        return piecewise_curvature(lo, hi, -1.0, 1.0, 2.0, 0.0)

    def secant(self, q, lo, hi, y):
        return piecewise_secant(q, lo, hi, y, (-1.0, 0.0), (1.0, 0.0), 2.0, 2.0)

    def dual_step(self, q, alpha, y, kappa):
        return xp.clip(alpha + (1.0 - q - alpha / 2) / (0.5 + kappa), 0.0, 4.0)


def squared_epsilon_insensitive(epsilon) -> SquaredEpsilonInsensitive:
    """Squared epsilon-insensitive loss of support vector regression, l(s, y) = max(0, |s - y| - epsilon)^2 / 2.

    1-smooth; dual variable alpha = y - s moved towards 0 by epsilon, in R. (LinearSVR's loss is twice this one.)

    Args:
        epsilon: half-width of the tube without loss, a number of at least 0 (or a tracer), in units of the target.

    Returns:
        a loss, a pytree whose leaf epsilon is a float64 scalar.

    Raises:
        TypeError, ValueError: epsilon is negative or not finite.

    Example:
        >>> import jaxbounds as jb
        >>> float(jb.losses.squared_epsilon_insensitive(0.5).value(2.0, 0.0))
        1.125

    Source: the L2-loss support vector regression, Ho and Lin 2012.
    """
    return SquaredEpsilonInsensitive(parameter("epsilon", epsilon, at_least=0.0))


@in_float64
def smoothed_quantile(tau, gamma) -> SmoothedQuantile:
    """Pinball loss of quantile regression with its kink smoothed over a length gamma.

    With r = s - y the pinball loss is max(-tau r, (1 - tau) r), smallest at the tau-quantile. Its Moreau envelope is

        l(s, y) = r^2 / (2 gamma)                          for -gamma tau <= r <= gamma (1 - tau)
                  -tau r - gamma tau^2 / 2                 for r < -gamma tau
                  (1 - tau) r - gamma (1 - tau)^2 / 2      for r > gamma (1 - tau),

    at most gamma max(tau, 1 - tau)^2 / 2 below it. 1/gamma-smooth; dual variable in [tau - 1, tau].

    Args:
        tau: the quantile, strictly between 0 and 1 (or a tracer).
        gamma: length of the quadratic piece, a positive number (or a tracer), in units of the target.

    Returns:
        a loss, a pytree whose leaves tau, rest = 1 - tau and gamma are float64 scalars. Where 1 - tau rounds, the loss
        is the one with the rounded slope.

    Raises:
        TypeError, ValueError: tau is not between 0 and 1, or gamma is not a positive finite number.

    Example:
        >>> import jaxbounds as jb
        >>> loss = jb.losses.smoothed_quantile(tau=0.75, gamma=0.1)
        >>> float(loss.smoothness), float(loss.value(-1.0, 0.0)) < 0.75
        (10.0, True)

    Source: Koenker and Bassett 1978; Moreau envelope.
    """
    tau = parameter("tau", tau)
    if not is_traced(tau) and not float(tau) < 1.0:
        raise ValueError(f"tau = {float(tau):g} is not allowed; choose a quantile strictly between 0 and 1")
    return SmoothedQuantile(tau, 1.0 - tau, parameter("gamma", gamma))


def modified_huber() -> ModifiedHuber:
    """scikit-learn's modified Huber loss, l(s, y) = max(0, 1 - m)^2 for m = y s >= -1, and -4 m below.

    2-smooth; dual variable in [0, 4]. It is 4 times `smoothed_hinge(2)`.

    Returns:
        a loss, a pytree without leaves.

    Example:
        >>> import jaxbounds as jb
        >>> float(jb.losses.modified_huber().value(-3.0, 1.0))
        12.0

    Source: Zhang 2004; scikit-learn's SGDClassifier(loss="modified_huber").
    """
    return ModifiedHuber()
