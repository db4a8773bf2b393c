"""Losses and penalties from the user's own functions: everything that is not supplied is derived, on the safe side.

A conjugate found by numerical maximisation would be a lower bound and unsafe. Here dual points are Legendre pairs
alpha = -f'(ref), and inversions keep an enclosure of the solution, so that all Fenchel-Young terms are upper bounds (a
Fenchel-Young term is convex in its dual argument, hence largest at an end of the enclosure).

A function and its derivative are trusted to a relative error of 16 units of roundoff.
"""

from collections.abc import Callable
from typing import Any

from jaxbounds.arguments import as_flag
from jaxbounds.array import xp
from jaxbounds.conjugate import (
    NOISE,
    bracket,
    bregman_bound,
    check_callable,
    check_scalar,
    curvature_bound,
    derivative_of,
    domain_ends,
    elementwise,
    enclosed_bound,
    exact_step,
    implicit,
    parameter,
    parameters,
)
from jaxbounds.interfaces import Loss, Penalty, check_strength
from jaxbounds.pytree import pytree, static
from jaxbounds.rounding import U
from jaxbounds.secant import sharpened


@pytree
class FunctionLoss(Loss):
    """A user's loss: f(q) = phi(q, *params) of the margin, or ell(q, y, *params) of the score. See `from_margin`."""

    smoothness: Any
    params: tuple
    bounds: tuple | None
    fn: Callable[..., Any] = static()
    derivative: Callable[..., Any] | None = static()
    second_derivative: Callable[..., Any] | None = static()
    conjugate_fn: Callable[..., Any] | None = static()
    curvature_range: Callable[..., Any] | None = static()
    classification: bool = static()
    nonnegative = False
    defined_by_ref = True

    @property
    def name(self):
        return getattr(self.fn, "__name__", "user's loss")

    def coordinate(self, s, y):
        return y * s if self.classification else s + 0.0 * y

    def _map(self, fn, q, y):
        return elementwise(fn, (q,) if self.classification else (q, y), self.params)

    def _slope(self, q, y):
        return self._map(self.derivative or derivative_of(self.fn), q, y)

    def value(self, q, y):
        return self._map(self.fn, q, y)

    def dual(self, q, y):
        return -self._slope(q, y)

    def dual_interval(self, q, y):
        lo, hi = self.domain(y)
        step = 2 * U * xp.abs(q) + 1e-300  # at least to the neighbouring floats, so that a kink at q is seen
        a = xp.stack([self.dual(q + step, y), self.dual(q, y), self.dual(q - step, y)])
        pad = NOISE * xp.max(xp.abs(a), axis=0)
        known = xp.isfinite(pad)  # beyond the reach of the user's function only the domain is known
        low, high = xp.min(a, axis=0) - pad, xp.max(a, axis=0) + pad
        return xp.where(known, xp.maximum(low, lo), lo), xp.where(known, xp.minimum(high, hi), hi)

    def domain(self, y):
        lo, hi = (-xp.inf, xp.inf) if self.bounds is None else self.bounds
        zero = xp.zeros_like(y, xp.float64)
        return zero + lo, zero + hi

    def _enclosed(self, q, alpha, y):
        """(upper bound of f(q) + f*(-alpha) + alpha q, ends that enclose the score of alpha, whether there are any)."""
        lo, hi, found, _ = bracket(lambda r: self._slope(r, y), -alpha)
        ends = xp.where(found, lo, 0.0), xp.where(found, hi, 0.0)
        values, slopes = [self.value(r, y) for r in ends], [self._slope(r, y) for r in ends]
        return enclosed_bound(self.value(q, y), q, -alpha, values, slopes, ends), ends, found

    def _supplied_conjugate(self, alpha, y):
        return self.feasible(alpha, y, self._map(self.conjugate_fn, -alpha, y))

    def conjugate(self, alpha, y):
        if self.conjugate_fn is not None:
            return self._supplied_conjugate(alpha, y)
        zero = xp.zeros_like(alpha)
        bound, _, found = self._enclosed(zero, alpha, y)
        return self.feasible(alpha, y, xp.where(found, bound - self.value(zero, y), xp.inf))

    def fenchel_young(self, q, alpha, y, ref=None):
        if ref is not None:
            return bregman_bound(self.value(q, y), self.value(ref, y), self._slope(ref, y), q - ref, self.smoothness)
        inside, ends, found = self._enclosed(q, alpha, y)
        if self.smoothness is not None:
            inside = xp.minimum(inside, curvature_bound(self.smoothness, xp.maximum(*(xp.abs(q - r) for r in ends))))
        outside = xp.inf
        if self.conjugate_fn is not None:
            parts = self.value(q, y), self._supplied_conjugate(alpha, y), alpha * q
            outside = xp.maximum(sum(parts), 0.0) + NOISE * sum(xp.abs(p) for p in parts)
        return self.feasible(alpha, y, xp.where(found, inside, outside))

    def second(self, q, y):
        return self._map(self.second_derivative or derivative_of(self.derivative or derivative_of(self.fn)), q, y)

    def curvature(self, lo, hi, y):
        fn = self.curvature_range
        if fn is None:
            return xp.zeros_like(lo), xp.zeros_like(lo) + (xp.inf if self.smoothness is None else self.smoothness)
        args = (lo, hi) if self.classification else (lo, hi, y)
        low, high = (elementwise(lambda *a, i=i: fn(*a)[i], args, self.params) for i in (0, 1))  # type: ignore[reportOptionalCall]
        return low * (1 - NOISE), high * (1 + NOISE)

    def secant(self, q, lo, hi, y):
        whole = super().secant(q, lo, hi, y)
        if self.curvature_range is None or self.smoothness is None:
            return whole
        slope, curvature = (lambda r: self._slope(r, y)), (lambda a, b: self.curvature(a, b, y))
        return sharpened(whole, slope, curvature, NOISE, q, lo, hi, y)

    def step_point(self, q, alpha, y, kappa):
        return exact_step(lambda m: -self._slope(m, y), lambda m: self.second(m, y), q, alpha, kappa, steps=32)

    def dual_step(self, q, alpha, y, kappa):
        return self.dual(self.step_point(q, alpha, y, kappa), y)


def _function_loss(name, fn, smoothness, params, derivative, second, conjugate, curvature_range, domain, margin):
    optional = {"derivative": derivative, "second": second, "conjugate": conjugate}
    check_callable({name: fn}, **optional, curvature_range=curvature_range)
    params = parameters(params)
    smoothness = None if smoothness is None else parameter("smoothness", smoothness)
    n_args = 1 if margin else 2
    for key, piece in {name: fn, **optional}.items():
        if piece is not None:
            check_scalar(key, piece, n_args, params)
    if curvature_range is not None:
        for i in (0, 1):  # which may be whole numbers
            check_scalar("curvature_range", lambda *a: 1.0 * curvature_range(*a)[i], n_args + 1, params)  # noqa: B023
    return FunctionLoss(
        smoothness, params, domain_ends(domain), fn, derivative, second, conjugate, curvature_range, margin
    )


def from_margin(
    phi, smoothness=None, params=(), *, derivative=None, second=None, conjugate=None, curvature_range=None, domain=None
) -> FunctionLoss:
    """A loss of the margin from your own convex function: l(s, y) = phi(y s, *params), labels -1 and +1.

    alpha = -phi'(m). Dual points are kept as Legendre pairs (alpha, m), so no conjugate is needed; each piece that you
    supply replaces a derived one. Check the declared properties with `jb.testing.check_loss`.
    One compilation per function object: define phi at module level, and put its numbers into `params`.

    Args:
        phi: phi(m, *params) -> scalar, written in jax for scalars; convex.
        smoothness: upper bound of phi'' (1/gamma), None if there is none.
        params: numbers or arrays, handed to every function; leaves of the pytree, so they never recompile.
        derivative: phi'(m, *params), any subgradient at kinks; default jax.grad(phi).
        second: phi''(m, *params); default jax.grad of the derivative.
        conjugate: phi*(v, *params), +inf outside its domain; only used for dual values that no margin attains.
        curvature_range: (lo, hi, *params) -> (min, max) of phi'' on [lo, hi]; default (0, smoothness).
        domain: (lo, hi) of alpha = -phi', the default is unbounded; (0, 1) for a hinge.

    Returns:
        a loss, a pytree.

    Raises:
        TypeError, ValueError: for a piece that is not a function of scalars, or numbers that are not positive.

    Example:
        >>> import jax.numpy as jnp, jaxbounds as jb
        >>> def phi(m, temperature):
        ...     return temperature * jnp.logaddexp(0.0, -m / temperature)
        >>> loss = jb.losses.from_margin(phi, smoothness=0.5, params=(0.5,), domain=(0.0, 1.0))
        >>> loss.name, float(loss.smoothness)
        ('phi', 0.5)

    Source: section "Conjugates without derivation" of the library's theory; Fenchel-Young as a Bregman divergence.
    """
    return _function_loss("phi", phi, smoothness, params, derivative, second, conjugate, curvature_range, domain, True)


def from_score(
    ell, smoothness=None, params=(), *, derivative=None, second=None, conjugate=None, curvature_range=None, domain=None
) -> FunctionLoss:
    """A loss of the score from your own function ell(s, y, *params), convex in s; targets are any floats.

    alpha = -d ell/ds. Everything else as in `from_margin`.
    One compilation per function object: define ell at module level, and put its numbers into `params`.

    Args:
        ell: ell(s, y, *params) -> scalar, written in jax for scalars.
        smoothness: upper bound of d^2 ell/ds^2 over all s and y (1/gamma), None if there is none.
        params: numbers or arrays, handed to every function; leaves of the pytree.
        derivative: d ell/ds (s, y, *params), any subgradient at kinks; default jax.grad(ell).
        second: second derivative (s, y, *params).
        conjugate: ell*(v, y, *params), +inf outside its domain; only used for dual values that no score attains.
        curvature_range: (lo, hi, y, *params) -> (min, max) of the second derivative for s in [lo, hi].
        domain: (lo, hi) of alpha, valid for every y; the default is unbounded.

    Returns:
        a loss, a pytree.

    Raises:
        TypeError, ValueError: for a piece that is not a function of scalars, or numbers that are not positive.

    Example:
        >>> import jax.numpy as jnp, jaxbounds as jb
        >>> def pseudo_huber(s, y, delta):
        ...     return delta**2 * (jnp.sqrt(1 + ((s - y) / delta) ** 2) - 1)
        >>> loss = jb.losses.from_score(pseudo_huber, smoothness=1.0, params=(2.0,))
        >>> loss.classification
        False

    Source: section "Conjugates without derivation" of the library's theory.
    """
    return _function_loss("ell", ell, smoothness, params, derivative, second, conjugate, curvature_range, domain, False)


@pytree
class FunctionPenalty(Penalty):
    """A user's penalty sum_j psi_j(w_j, *params). See `from_function`."""

    strong_convexity: Any
    params: tuple
    fn: Callable[..., Any] = static()
    derivative: Callable[..., Any] | None = static()
    second_derivative: Callable[..., Any] | None = static()
    conjugate_fn: Callable[..., Any] | None = static()
    smooth: bool = static()

    @property
    def name(self):
        return getattr(self.fn, "__name__", "user's penalty")

    def _map(self, fn, w):
        return elementwise(fn, (w,), self.params, columns=True)

    def _slope(self, w):
        return self._map(self.derivative or derivative_of(self.fn), w)

    def value(self, w):
        return self._map(self.fn, w)

    def conjugate(self, v):
        if self.conjugate_fn is not None:
            return self._map(self.conjugate_fn, v)
        zero = xp.zeros_like(v)
        bound, found = self._enclosed(zero, v)
        return xp.where(found, bound - self.value(zero), xp.inf)

    def _enclosed(self, w, v):
        """(upper bound of psi(w) + psi*(v) - w v by an enclosure of u, whether there is one)."""
        lo, hi, found, _ = bracket(self._slope, v)
        ends = xp.where(found, lo, 0.0), xp.where(found, hi, 0.0)
        values, slopes = [self.value(p) for p in ends], [self._slope(p) for p in ends]
        return enclosed_bound(self.value(w), w, v, values, slopes, ends), found

    def _primal_point(self, v):
        """(u, bound on its error, whether it exists)."""
        lo, hi, found, _ = bracket(self._slope, v)
        error = hi - lo
        if self.strong_convexity is not None:
            error = error + 2 * NOISE * xp.abs(v) / self.strong_convexity
        u = xp.where(found, lo + (hi - lo) / 2, 0.0)
        return xp.where(found, implicit(u, self._slope(u) - v, self.second(u)), xp.sign(v) * xp.inf), error, found

    def grad_conjugate(self, v):
        return self._primal_point(v)[0]

    def conjugate_interval(self, v_lo, v_hi):
        lo, _, _, (safe_lo, _) = bracket(self._slope, v_lo)
        _, hi, _, (_, safe_hi) = bracket(self._slope, v_hi)
        return xp.where(safe_lo, lo, -xp.inf), xp.where(safe_hi, hi, xp.inf)

    def subgradient(self, w):
        step = 2 * U * xp.abs(w) + 1e-300  # at least to the neighbouring floats, so that a kink at w is seen
        slopes = xp.stack([self._slope(w - step), self._slope(w), self._slope(w + step)])
        return xp.min(slopes, axis=0), xp.max(slopes, axis=0)

    def fenchel_young(self, w, v):
        lam, f_w, slope = self.strong_convexity, self.value(w), self._slope(w)
        if self.conjugate_fn is not None:
            parts = f_w, self.conjugate(v), -w * v
            bound = xp.maximum(sum(parts), 0.0) + NOISE * sum(xp.abs(p) for p in parts)
        else:
            bound, found = self._enclosed(w, v)
            bound = xp.where(found, bound, xp.inf)
        if lam is None:
            return bound
        # psi*(v) <= v w - psi(w) + (v - psi'(w))^2 / (2 lam), for any subgradient psi'(w)
        off = xp.abs(v - slope) + NOISE * (xp.abs(v) + xp.abs(slope))
        return xp.minimum(bound, off * off / (2.0 * lam) * (1 + 8 * U))

    def excess(self, w, v):
        bound = self.fenchel_young(w, v)
        lam = self.strong_convexity
        if lam is None:
            return bound
        u, error, found = self._primal_point(v)
        u = xp.where(found, u, w)
        apart = xp.maximum(xp.abs(w - u) - error, 0.0)
        return xp.maximum(bound * (1 + 8 * U) - lam / 2 * apart * apart, 0.0)

    def prox(self, z, step):
        step = step + xp.zeros_like(z)
        lo, hi, found, _ = bracket(lambda w: w + step * self._slope(w), z)
        w = xp.where(found, lo + (hi - lo) / 2, z)
        return implicit(w, w + step * self._slope(w) - z, 1.0 + step * self.second(w))

    def second(self, w):
        return self._map(self.second_derivative or derivative_of(self.derivative or derivative_of(self.fn)), w)

    def level(self, value):
        lam = self.strong_convexity
        if lam is None:
            return None
        sizes = [xp.shape(p) for p in self.params if xp.ndim(p) == 1]
        zero = xp.zeros(sizes[0] if sizes else (), xp.float64)
        start, slope = self.value(zero), xp.abs(self._slope(zero)) * (1 + NOISE)
        room = value - start + NOISE * (xp.abs(value) + xp.abs(start))
        return (slope + xp.sqrt(slope * slope + 2.0 * lam * xp.maximum(room, 0.0))) / lam * (1 + 8 * U)


def from_function(
    psi_j, strong_convexity=None, params=(), *, derivative=None, second=None, conjugate=None, smooth=True
) -> FunctionPenalty:
    """A penalty from your own convex function of one coefficient: psi(w) = sum_j psi_j(w_j, *params).

    u_j = (psi_j')^-1(v_j) is enclosed by bisection over the floats, and every Fenchel-Young term is an upper bound, by
    psi_j*(v) <= v p - psi_j(p) + (v - psi_j'(p))^2 / (2 lam) for any p. Check it with `jb.testing.check_penalty`.
    One compilation per function object: define psi_j at module level, and put its numbers into `params`.

    Args:
        psi_j: psi_j(w, *params) -> scalar, written in jax for scalars; convex.
        strong_convexity: lower bound of psi_j'', a number or (d,); None if there is none (then property B is missing).
        params: numbers, or (d,) vectors with one entry a column; leaves of the pytree.
        derivative: psi_j'(w, *params), any subgradient at kinks; default jax.grad(psi_j).
        second: psi_j''(w, *params) away from kinks; default jax.grad of the derivative.
        conjugate: psi_j*(v, *params), +inf outside its domain; needed only where psi_j' does not attain v.
        smooth: False if psi_j has kinks, then solvers that need a gradient refuse it.

    Returns:
        a penalty, a pytree.

    Raises:
        TypeError, ValueError: for a piece that is not a function of scalars, or numbers that are not positive.

    Example:
        >>> import jax.numpy as jnp, jaxbounds as jb
        >>> def ridge_with_quartic(w, lam):
        ...     return lam / 2 * w**2 + w**4
        >>> penalty = jb.penalties.from_function(ridge_with_quartic, strong_convexity=0.1, params=(0.1,))
        >>> float(penalty.strong_convexity)
        0.1

    Source: section "Conjugates without derivation" of the library's theory.
    """
    check_callable({"psi_j": psi_j}, derivative=derivative, second=second, conjugate=conjugate)
    params = parameters(params)
    for name, piece in {"psi_j": psi_j, "derivative": derivative, "second": second, "conjugate": conjugate}.items():
        if piece is not None:
            check_scalar(name, piece, 1, params, columns=True)
    if strong_convexity is not None:
        strong_convexity = parameter("strong_convexity", strong_convexity, max_ndim=1)
        check_strength("strong_convexity", strong_convexity)
    smooth = as_flag(smooth, "smooth")
    return FunctionPenalty(strong_convexity, params, psi_j, derivative, second, conjugate, smooth)
