"""Decomposable penalties psi(w) = sum_j psi_j(w_j), with conjugates and Fenchel-Young terms.

Parameters are numbers or (d,) vectors (one entry a column). What each method means stands in `interfaces.Penalty`.
"""

import math
from typing import Any

import jax
import numpy as np

from jaxbounds.array import xp
from jaxbounds.conjugate import log1p as accurate_log1p
from jaxbounds.conjugate import newton_root, parameter, power, soft
from jaxbounds.interfaces import LAM_RANGE, Penalty, check_strength
from jaxbounds.pytree import is_traced, pytree
from jaxbounds.rounding import U
from jaxbounds.user_functions import from_function

_LARGEST = 1.7e308
__all__ = ["Penalty", "elastic_net", "from_function", "l1", "l2", "lq"]


_INSTEAD = {
    "l2": "give it a small lam, as 1e-9 of the others: Curvature() bounds it tightly however small that is",
    "l1": "use elastic_net with l1 = 0 and a small lam in that column, and Curvature()",
}


def _penalised(name: str, value, instead: str = "l2") -> Any:
    """A parameter that must be positive in every column: a coefficient without penalty has no ball."""
    if not is_traced(value) and np.ndim(value) == 1 and np.asarray(value).dtype.kind in "iuf":
        zero = np.flatnonzero(np.asarray(value) == 0)
        if zero.size:
            raise ValueError(
                f"{name}[{zero[0]}] = 0 is not allowed: column {zero[0]} would have no penalty, and no ball holds a "
                f"coefficient without one (property B is missing there); {_INSTEAD[instead]} (for a column of ones: "
                "Problem(intercept=True) without that column)"
            )
    checked = parameter(name, value, max_ndim=1)
    if name == "lam":
        check_strength(name, value)
    return checked


def _sign_interval(w):
    """(lo, hi) of the subdifferential of |w|."""
    return xp.where(w > 0, 1.0, -1.0), xp.where(w < 0, -1.0, 1.0)


def _outward(lo, hi, err_lo: Any = 4 * U, err_hi: Any = 4 * U):
    lo, hi = xp.minimum(lo, _LARGEST), xp.maximum(hi, -_LARGEST)  # an overflow bounds from one side only
    return lo - err_lo * xp.abs(lo), hi + err_hi * xp.abs(hi)


@pytree
class L2(Penalty):
    """lam/2 w_j^2. See `l2`."""

    lam: jax.Array
    name = "l2"
    smooth = True
    quadratic = True
    piecewise_quadratic = True

    @property
    def strong_convexity(self):
        return self.lam

    def value(self, w):
        return self.lam / 2 * w * w

    def conjugate(self, v):
        return v * (v / self.lam) / 2

    def grad_conjugate(self, v):
        return v / self.lam

    def conjugate_interval(self, v_lo, v_hi):
        return _outward(v_lo / self.lam, v_hi / self.lam)

    def subgradient(self, w):
        return self.lam * w, self.lam * w

    def fenchel_young(self, w, v):
        return self.lam / 2 * self._distance(w, v) ** 2

    def excess(self, w, v):
        return xp.zeros_like(w + v)

    def prox(self, z, step):
        return z / (1.0 + step * self.lam)

    def second(self, w):
        return xp.zeros_like(w) + self.lam

    def level(self, value):
        return xp.sqrt(2.0 * value / self.lam) * (1 + 8 * U)


@pytree
class ElasticNet(Penalty):
    """lam/2 w_j^2 + l1 |w_j|. See `elastic_net`."""

    lam: jax.Array
    l1: jax.Array
    name = "elastic_net"
    piecewise_quadratic = True

    @property
    def strong_convexity(self):
        return self.lam

    def in_range(self):
        return super().in_range() & (self.l1 >= 0) & (self.l1 < xp.inf)

    def value(self, w):
        return self.lam / 2 * w * w + self.l1 * xp.abs(w)

    def conjugate(self, v):
        u = soft(v, self.l1)
        return u * (u / self.lam) / 2

    def grad_conjugate(self, v):
        return soft(v, self.l1) / self.lam

    def conjugate_interval(self, v_lo, v_hi):
        return _outward(self.grad_conjugate(v_lo), self.grad_conjugate(v_hi))

    def subgradient(self, w):
        lo, hi = _sign_interval(w)
        return self.lam * w + self.l1 * lo, self.lam * w + self.l1 * hi

    def fenchel_young(self, w, v):
        return self.lam / 2 * self._distance(w, v) ** 2 + self.excess(w, v)

    def excess(self, w, v):
        return xp.abs(w) * (self.l1 - xp.sign(w) * xp.clip(v, -self.l1, self.l1))

    def prox(self, z, step):
        return soft(z, step * self.l1) / (1.0 + step * self.lam)

    def second(self, w):
        return xp.zeros_like(w) + self.lam

    def level(self, value):
        root = self.l1 + xp.sqrt(self.l1 * self.l1 + 2.0 * self.lam * value)
        positive = root > 0
        return xp.where(positive, 2.0 * value / xp.where(positive, root, 1.0), 0.0) * (1 + 8 * U)


@pytree
class L1(Penalty):
    """kappa |w_j|. See `l1`."""

    kappa: jax.Array
    name = "l1"
    piecewise_quadratic = True
    strong_convexity = None

    @property
    def dual_bound(self):
        return self.kappa

    def in_range(self):
        return (self.kappa > 0) & (self.kappa < xp.inf)

    def value(self, w):
        return self.kappa * xp.abs(w)

    def conjugate(self, v):
        return xp.where(xp.abs(v) <= self.kappa, 0.0, xp.inf)

    def grad_conjugate(self, v):
        return xp.zeros_like(v + self.kappa)

    def conjugate_interval(self, v_lo, v_hi):
        inside_lo, inside_hi = v_lo > -self.kappa, v_hi < self.kappa
        return xp.where(inside_lo, 0.0, -xp.inf), xp.where(inside_hi, 0.0, xp.inf)

    def subgradient(self, w):
        lo, hi = _sign_interval(w)
        return self.kappa * lo, self.kappa * hi

    def fenchel_young(self, w, v):
        feasible = xp.abs(v) <= self.kappa
        return xp.where(feasible, xp.abs(w) * (self.kappa - xp.sign(w) * v), xp.inf)

    def excess(self, w, v):
        return self.fenchel_young(w, v)

    def prox(self, z, step):
        return soft(z, step * self.kappa)

    def second(self, w):
        return xp.zeros_like(w + self.kappa)

    def level(self, value):
        return value / self.kappa * (1 + 8 * U)


@pytree
class LQ(Penalty):
    """lam/q |w_j|^q, q > 1. See `lq`."""

    lam: jax.Array
    q: jax.Array
    name = "lq"
    strong_convexity = None
    smooth = True

    def in_range(self):
        return (self.lam >= LAM_RANGE[0]) & (self.lam <= LAM_RANGE[1]) & (self.q > 1) & (self.q < xp.inf)

    def _error(self, v):
        """Relative rounding error of u."""
        size = xp.abs(v) / self.lam
        return U * (4.0 + (2.0 + xp.abs(xp.log(xp.where(size > 0, size, 1.0)))) / (self.q - 1.0))

    def value(self, w):
        return self.lam / self.q * power(xp.abs(w), self.q)

    def conjugate(self, v):
        return xp.abs(v) * xp.abs(self.grad_conjugate(v)) * (1.0 - 1.0 / self.q)

    def grad_conjugate(self, v):
        return xp.sign(v) * power(xp.abs(v) / self.lam, 1.0 / (self.q - 1.0))

    def conjugate_interval(self, v_lo, v_hi):
        return _outward(self.grad_conjugate(v_lo), self.grad_conjugate(v_hi), self._error(v_lo), self._error(v_hi))

    def subgradient(self, w):
        slope = self.lam * xp.sign(w) * power(xp.abs(w), self.q - 1.0)
        return slope, slope

    def fenchel_young(self, w, v):
        # with b = |u| and t = |w|/b: B = lam b^q (t^q/q + 1 - 1/q - t), a series in L = log t near t = 1
        q, err = self.q, self._error(v)
        a, b = xp.abs(w), xp.abs(self.grad_conjugate(v))
        product = xp.abs(v) * b  # lam b^q
        parts = self.lam / q * power(a, q), product * (1.0 - 1.0 / q), -w * v
        direct = parts[0] + parts[1] + parts[2]
        direct = xp.maximum(direct, 0.0) + 2 * err * (parts[0] + parts[1] + xp.abs(parts[2]))
        near = (w * v > 0) & (xp.abs(a - b) < 0.5 * b) & xp.isfinite(product)
        ratio = xp.where(near, (a - b) / xp.where(near, b, 1.0), 0.0)
        log_t = accurate_log1p(ratio)
        power_log = q * (log_t + xp.where(log_t < 0, -err, err))
        near = near & (xp.abs(power_log) <= 1.0)
        x = xp.where(near, power_log, 0.0)
        total = xp.zeros_like(x)
        for k in range(22, 1, -1):  # (1 - q^(1-k)) x^k / k!
            total = total * x - xp.expm1((1.0 - k) * xp.log(q)) / float(math.factorial(k))
        return xp.where(near, xp.where(near, product, 0.0) * (x * x * total / q), direct)

    def excess(self, w, v):
        return self.fenchel_young(w, v)

    def prox(self, z, step):
        # convex in w for q >= 2, and in w^(q-1) for q < 2; Newton from the right of the root is then monotone
        e = self.q - 1.0
        concave = e < 1.0
        size, c = xp.abs(z), step * self.lam + xp.zeros_like(z)
        exponent = xp.where(concave, 1.0 / e, e) + xp.zeros_like(z)
        first, second = xp.where(concave, c, 1.0), xp.where(concave, 1.0, c)
        start = xp.minimum(size / first, power(size / second, 1.0 / exponent))
        live = start > 0
        start = xp.where(live, start, 1.0)

        def residual(x):
            return first * x + second * power(x, exponent) - xp.where(live, size, 0.0)

        def slope(x):
            return first + second * exponent * power(x, exponent - 1.0)

        x = newton_root(residual, slope, xp.zeros_like(z), start, start, steps=24)
        flat = z * xp.where(concave, 0.0, 1.0 / (1.0 + xp.where(e > 1.0, 0.0, c)))  # for the gradient at z = 0
        return xp.where(live, xp.sign(z) * xp.where(concave, power(x, exponent), x), flat)

    def second(self, w):
        return self.lam * (self.q - 1.0) * power(xp.maximum(xp.abs(w), 1e-8), self.q - 2.0)

    def level(self, value):
        return power(self.q * value / self.lam, 1.0 / self.q) * (1 + 16 * U)


def l2(lam) -> L2:
    """Ridge penalty, psi(w) = lam/2 ||w||^2 (per column for a vector: sum_j lam_j/2 w_j^2).

    lam-strongly convex; u = v / lam. No column may go without a penalty; one with a tiny lam nearly does, and
    `Curvature()` does not care how small it is (lam_j = 1e-12: intervals as narrow as with 0.1), though balls do.

    Args:
        lam: positive number or (d,) vector, in units of the objective over squared coefficients (or a tracer).

    Returns:
        a penalty, a pytree whose leaf lam is float64.

    Raises:
        TypeError, ValueError: lam is not positive and finite.

    Example:
        >>> import jaxbounds as jb
        >>> float(jb.penalties.l2(0.5).lam)
        0.5

    Source: Hoerl and Kennard 1970.
    """
    return L2(_penalised("lam", lam))


def elastic_net(lam, l1) -> ElasticNet:
    """Elastic net, psi(w) = lam/2 ||w||^2 + l1 ||w||_1.

    lam-strongly convex; u = soft(v, l1) / lam. Columns with l1_j = 0 have a ridge penalty alone.

    Args:
        lam: positive number or (d,) vector (or a tracer).
        l1: number or (d,) vector, at least 0 (or a tracer).

    Returns:
        a penalty, a pytree with float64 leaves lam and l1.

    Raises:
        TypeError, ValueError: lam is not positive, l1 is negative, or one is not finite.

    Example:
        >>> import jaxbounds as jb
        >>> float(jb.penalties.elastic_net(lam=0.5, l1=0.1).strong_convexity)
        0.5

    Source: Zou and Hastie 2005.
    """
    return ElasticNet(_penalised("lam", lam), parameter("l1", l1, at_least=0.0, max_ndim=1))


def l1(kappa) -> L1:
    """Lasso penalty, psi(w) = kappa ||w||_1.

    Not strongly convex (property B is missing), so it needs a smooth loss; psi* is finite for |v_j| <= kappa only.

    Args:
        kappa: positive number or (d,) vector (or a tracer).

    Returns:
        a penalty, a pytree whose leaf kappa is float64.

    Raises:
        TypeError, ValueError: kappa is not positive and finite.

    Example:
        >>> import jaxbounds as jb
        >>> jb.penalties.l1(0.1).strong_convexity is None
        True

    Source: Tibshirani 1996.
    """
    return L1(_penalised("kappa", kappa, "l1"))


def lq(lam, q) -> LQ:
    """Power penalty, psi(w) = lam/q sum_j |w_j|^q with q > 1.

    Not strongly convex on all of R unless q = 2 (then prefer `l2`); u = sign(v) (|v|/lam)^(1/(q-1)).

    Args:
        lam: positive number or (d,) vector (or a tracer).
        q: exponent greater than 1, a number or (d,) vector (or a tracer).

    Returns:
        a penalty, a pytree with float64 leaves lam and q.

    Raises:
        TypeError, ValueError: lam is not positive, q is not greater than 1, or one is not finite.

    Example:
        >>> import jaxbounds as jb
        >>> float(jb.penalties.lq(lam=0.1, q=1.5).q)
        1.5

    Source: bridge regression, Frank and Friedman 1993.
    """
    return LQ(_penalised("lam", lam), parameter("q", q, above=1.0, max_ndim=1))
