"""Numerical pieces that losses and penalties share: accurate functions, safe inversion, bounds on Bregman terms.

Everything here is elementwise, assumes float64 inputs in a 64-bit scope, and errs upwards where it feeds a certificate.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from jaxbounds.arguments import as_array, is_real
from jaxbounds.array import fori_loop, reinterpret, stop_gradient, uses_jax, while_loop, xp
from jaxbounds.messages import brief, cut
from jaxbounds.pytree import is_traced
from jaxbounds.rounding import U
from jaxbounds.traceable import traced_as

_TERMS = 20  # z^2 <= 1/9, and 9^-20 is far below the unit roundoff
NOISE = 16 * U  # relative error granted to a user's function and its derivative
_FAR, _EDGES = 1e300, (1.0, 1e3, 1e9, 1e30, 1e100)  # where a solution is looked for, and what is tried first
_REACHES = 1 << 6, 1 << 20, 1 << 40  # floats
_STEPS = 256  # more than bisection takes
_APART = 1 << 52  # pairs of floats between numbers that differ by a factor of 4
_TINY = 2.3e-308  # a normal number; smaller ones may be flushed to 0


def parameter(name: str, value, *, above: float | None = 0.0, at_least: float | None = None, max_ndim: int = 0):
    """`value` as a checked float64 jax array; a tracer is converted but not checked.

    Args:
        name: of the argument, for the message.
        value: a number, or with max_ndim=1 also a vector.
        above, at_least: exclusive and inclusive lower limits, None for none.

    Raises:
        TypeError: not a real number. ValueError: wrong shape, not finite, or below the limit.
    """
    with jax.enable_x64(True):
        if is_traced(value):
            return 1.0 * value.astype(jnp.float64)  # an operation: vmap would hand a NumPy array through as it is
        shapes = "a number" if max_ndim == 0 else "a number or a vector (one entry a column)"
        array = None if isinstance(value, str | bytes | bool) else as_array(value, name, shapes)
        if array is None or array.dtype.kind == "b" or not is_real(array.dtype):
            raise TypeError(f"{name} must be {shapes}, got {brief(value)}; pass an int, a float or an array of them")
        with np.errstate(over="ignore"):  # a long double beyond float64 becomes inf, which is refused
            array = array.astype(np.float64)
        if array.ndim > max_ndim or array.size == 0:
            raise ValueError(f"{name} must be {shapes}, got an array of shape {array.shape}")
        limit, ok = "finite", np.isfinite(array)
        if at_least is not None:
            limit, ok = f"finite and at least {at_least:g}", ok & (array >= at_least)
        elif above is not None:
            limit, ok = f"finite and greater than {above:g}", ok & (array > above)
        if not ok.all():
            bad = () if array.ndim == 0 else (int(np.argmin(ok)),)
            where = f"{name}[{bad[0]}]" if bad else name
            raise ValueError(f"{where} = {array[bad]:g} is not allowed; choose values that are {limit}")
        return jax.device_put(array)


def parameters(params) -> tuple:
    """The extra arguments of a user's function as float64 arrays."""
    if not isinstance(params, (tuple, list)):
        raise TypeError(f"params must be a tuple of numbers, got {brief(params)}; write params=(value,) for one number")
    return tuple(parameter(f"params[{i}]", p, above=None, max_ndim=8) for i, p in enumerate(params))


def domain_ends(domain):
    """A user's (lo, hi) of the feasible alpha as two float64 scalars, or None."""
    if domain is None:
        return None
    if not isinstance(domain, (tuple, list)) or len(domain) != 2:
        raise TypeError(f"domain must be a pair (lo, hi) of the feasible alpha, got {brief(domain)}; write (0.0, 1.0)")
    with jax.enable_x64(True):
        if is_traced(domain):
            return tuple(jnp.asarray(end, jnp.float64) for end in domain)
        try:
            ends = np.array([float(end) for end in domain])
        except (TypeError, ValueError):
            raise TypeError(f"domain must be a pair of numbers, got {brief(domain)}; write (0.0, 1.0)") from None
        if not ends[0] < ends[1]:
            raise ValueError(f"domain = {brief(domain)} is empty; give the lower end first")
        return tuple(jax.device_put(ends))


def check_callable(required: dict, **optional) -> None:
    """Raise unless every given function can be called; None stands for an optional one that was not supplied."""
    for name, fn in {**required, **optional}.items():
        if not callable(fn) and (fn is not None or name in required):
            raise TypeError(f"{name} must be a function, got {brief(fn)}; pass a module-level function of jax numbers")


# ---------------------------------------------------------------- accurate elementary functions


def _atanh_series(z2, first: int):
    """sum_k z2^k / (2k + first) for z2 <= 1/9."""
    total = xp.full_like(z2, 1.0 / (2 * _TERMS + first))
    for k in range(_TERMS - 1, -1, -1):
        total = total * z2 + 1.0 / (2 * k + first)
    return total


def log1p(x):
    """log(1 + x) within 4 units of roundoff (XLA's own is 240 off on CPU)."""
    small = (x > -0.5) & (x < 1.0)
    s = xp.where(small, x, 0.0)
    z = s / (2.0 + s)
    return xp.where(small, 2.0 * z * _atanh_series(z * z, 1), xp.log(1.0 + xp.where(small, 1.0, x)))


def h(x, one=None):
    """h(x) = (1 + x) log(1 + x) - x for x >= -1, accurate everywhere; h(-1) = 1, h(0) = 0.

    Pass `one`, an accurate 1 + x, where x itself is rounded: h is steep at -1.
    With z = x/(2+x) and t = sum z^2k/(2k+3): h = 2 z^2/(1-z) (1 + z^2 t + z t) near 0; the plain form elsewhere.
    """
    small = (x > -0.5) & (x < 1.0)
    s = xp.where(small, x, 0.0)
    z = s / (2.0 + s)
    series = 2.0 * z * z / (1.0 - z) * (1.0 + (z * z + z) * _atanh_series(z * z, 3))
    one = xp.where(small, 1.0, 1.0 + x if one is None else one)
    positive = one > 0
    one = xp.where(positive, one, 1.0)
    return xp.where(small, series, xp.where(positive, one * (xp.log(one) - 1.0) + 1.0, 1.0))


def sigmoid_pair(m):
    """(sigma(-m), sigma(m)), each with a small relative error, never one minus the other."""
    e = xp.exp(xp.where(m > 0, -m, m))  # not abs: its gradient at 0 is 0
    small, large = e / (1.0 + e), 1.0 / (1.0 + e)
    return xp.where(m > 0, small, large), xp.where(m > 0, large, small)


def softplus(m):
    """log(1 + e^m), within a few units of roundoff."""
    return xp.where(m > 0, m, 0.0) + log1p(xp.exp(xp.where(m > 0, -m, m)))


def mean_decay(x):
    """(1 - e^-x) / x for x >= 0, the mean of e^-z over [0, x], with a small relative error; 1 at 0."""
    small = x < 0.5
    s, mean = xp.where(small, x, 0.0), xp.ones_like(x)
    for k in range(15, 1, -1):
        mean = 1.0 - s * mean * (1.0 / k)
    large = xp.where(small, 1.0, x)
    return xp.where(small, mean, (1.0 - xp.exp(-large)) / large)


def xlogx(x):
    """x log x, 0 at 0."""
    positive = x > 0
    return xp.where(positive, x * xp.log(xp.where(positive, x, 1.0)), 0.0)


def power(x, exponent):
    """x^exponent for x >= 0, with a finite (zero) gradient at x = 0."""
    positive = x > 0
    return xp.where(positive, xp.where(positive, x, 1.0) ** exponent, xp.where(exponent > 0, 0.0, xp.inf))


def soft(v, threshold):
    """Soft threshold: v moved towards 0 by at most `threshold`."""
    return v - xp.clip(v, -threshold, threshold)


# ---------------------------------------------------------------- monotone functions


def _ordinal(x):
    """float64 -> int64, increasing."""
    bits = reinterpret(x, xp.int64)
    return xp.where(bits < 0, xp.iinfo(xp.int64).min - bits, bits)


def _from_ordinal(n):
    bits = xp.where(n < 0, xp.iinfo(xp.int64).min - n, n)
    return reinterpret(bits, xp.float64)


def bracket(fn, target):
    """(lo, hi, found, safe): fn(lo) <= target <= fn(hi) for a non-decreasing elementwise fn.

    fn is granted an error of NOISE, and lo, hi enclose the solution all the same, as closely as that allows; only where
    the target is an extreme value of fn are the computed values taken at their word, and then safe[0] (for lo) or
    safe[1] (for hi) is False. Where `found` is False no finite float attains the target, and lo, hi are meaningless.

    The search is over the floats themselves, so no scale has to be guessed; it goes far out only as needed, because
    functions overflow in their own ways there. A NaN of fn counts as overshooting (away from 0), and so do a value that
    contradicts those on both sides and the target itself: of several solutions that nearest to 0 is found. An infinite
    value is an overflow, and no end is safe by it. The result carries no gradient.
    """
    target = stop_gradient(target)
    slack = NOISE * xp.abs(target)
    first = _ordinal(xp.full_like(target, -_FAR))
    far = xp.where(xp.isfinite(target), -first, first + 1)  # no solution to look for where it is not

    def evaluate(x):
        return stop_gradient(fn(x))

    edges = [_ordinal(xp.full_like(target, sign * edge)) for edge in _EDGES for sign in (1, -1)]
    kinks = [xp.full_like(first, n) for n in (0, 1, -1)]  # most kinks are at 0
    a, b, at_a = _neighbours(evaluate, target - slack, first, far, [*edges[:2], *kinks, *edges[2:], far - 1, first + 1])
    below = xp.isfinite(at_a)  # else nothing was seen below the goal, and a, b are where fn overflows
    near = [xp.where(below, b + reach, 0) for reach in _REACHES]  # the second solution mostly is next to the first
    start = xp.where(below, a, first)
    second_a, second_b, _ = _neighbours(evaluate, target + slack, start, far, [*near, *edges, far - 1, first + 1])
    # compiled programs take denormal numbers for 0
    lo, second_lo = (xp.where(xp.abs(x) <= _TINY, -_TINY, x) for x in map(_from_ordinal, (a, second_a)))
    hi, second_hi = (xp.where(xp.abs(x) <= _TINY, _TINY, x) for x in map(_from_ordinal, (second_b, b)))

    def choose(first, second, beyond, attains):
        at_first, at_second = evaluate(first), evaluate(second)
        safe = beyond(at_first) & xp.isfinite(at_first) & (xp.abs(first) < _FAR)
        return xp.where(safe, first, second), safe, attains(at_second) & xp.isfinite(at_second)

    # the same point may give another rounding here than in the loop
    lo, safe_lo, near_lo = choose(lo, second_lo, lambda f: f <= target - slack / 2, lambda f: f <= target + slack)
    hi, safe_hi, near_hi = choose(hi, second_hi, lambda f: f >= target + slack / 2, lambda f: f >= target - slack)
    found = (safe_lo | near_lo) & (safe_hi | near_hi)
    return stop_gradient((xp.minimum(lo, hi), xp.maximum(lo, hi), found, (safe_lo, safe_hi)))


def _neighbours(fn, goal, a, b, probes):
    """(a, b, fn(a)): the neighbouring floats, as ordinals, between which a non-decreasing fn passes the goal.

    After the probes, as far as they are inside, secant steps in pairs, the second twice as long, so that both ends come
    near; after a pair that has not cut the bracket to an eighth, up to three pairs of bisections of the ordinals. As
    long as an end is far out, where fn may be wrong, nothing but the probes and what is next to the ends is tried.
    """
    last, probes = len(probes) - 1, xp.stack(probes)
    unknown, far = xp.full_like(goal, xp.nan), _ordinal(xp.full_like(goal, _FAR))

    def open_(a, b):
        return b > a + 1  # b - a may overflow

    def step(state):
        k, a, b, at_a, at_b, before, bisect = state
        wide, even = (b >> 1) - (a >> 1), k % 2 == 0
        bisect = xp.where(even, (wide > before >> 3) & (k % 8 != 0), bisect)
        x_a, x_b, from_a = _from_ordinal(a), _from_ordinal(b), goal - at_a < at_b - goal
        rise = xp.where(at_b > at_a, at_b - at_a, xp.nan)
        length = (goal - xp.where(from_a, at_a, at_b)) * ((x_b - x_a) / rise)
        secant = xp.where(from_a, x_a, x_b) + xp.where(even, 1.0, 2.0) * length
        usable = ~bisect & (secant >= x_a) & (secant <= x_b)
        at = xp.clip(_ordinal(xp.where(usable, secant, 0.0)), a + 1, b - 1)
        at = xp.where(usable, at, (a >> 1) + (b >> 1) + (a & b & 1))
        probe = probes[xp.minimum(k, last)]
        inside, out = (probe > a) & (probe < b), (a <= -far) | (b >= far)
        at = xp.where((k <= last) & (inside | out), xp.clip(probe, a + 1, b - 1), at)
        x = _from_ordinal(at)
        value = fn(x)
        fallen = (value > at_b + 2 * NOISE * xp.abs(at_b)) | (value < at_a - 2 * NOISE * xp.abs(at_a))
        value = xp.where(fallen & (wide > _APART), xp.nan, value)  # closer ends may differ by roundings alone
        below = xp.where(xp.isnan(value) | (value == goal), x < 0, value < goal)
        low, high = below & open_(a, b), ~below & open_(a, b)
        return (k + 1, xp.where(low, at, a), xp.where(high, at, b), xp.where(low, value, at_a),
                xp.where(high, value, at_b), xp.where(even, wide, before), bisect)  # fmt: skip

    first = (xp.zeros((), xp.int32), a, b, unknown, unknown, xp.zeros_like(a), xp.zeros_like(a, bool))
    return while_loop(lambda state: xp.any(open_(state[1], state[2])) & (state[0] < _STEPS), step, first)[1:4]


def newton_root(fn, slope, lo, hi, x, steps: int = 16):
    """Root of an increasing fn in [lo, hi] by Newton steps guarded by bisection; the last step carries the gradient.

    Steps that turn round must have halved the bracket since the last turn, or it is halved: they could go in circles.
    """

    def step(_, state):
        lo, hi, x, side, width = state
        value = fn(x)
        lo, hi = xp.where(value <= 0, x, lo), xp.where(value >= 0, x, hi)
        new = x - value / slope(x)
        settled = xp.abs(new - x) <= 4 * U * xp.abs(x)
        turned = xp.sign(value) * side < 0
        newton = (new > lo) & (new < hi) & (~turned | (hi - lo <= width / 2))
        new = xp.where(settled, x, xp.where(newton, new, lo + (hi - lo) / 2))
        return lo, hi, new, xp.sign(value), xp.where(turned, hi - lo, width)

    frozen = stop_gradient((lo, hi, x, xp.zeros_like(x), xp.full_like(x, xp.inf)))
    x = stop_gradient(fori_loop(0, steps, step, frozen, lambda old, new: np.array_equal(old[2], new[2]))[2])
    return implicit(x, fn(x), slope(x))


def exact_step(dual, second, q, alpha, kappa, steps: int):
    """m = q + kappa (dual(m) - alpha): where an exact dual step takes coordinate q, for dual = -f', second = f''."""

    def residual(m):
        return m - q + kappa * (alpha - dual(m))

    first = residual(q)  # the residual grows at least like m, so the root is at most this far
    lo, hi = xp.minimum(q, q - first), xp.maximum(q, q - first)
    return newton_root(residual, lambda m: 1.0 + kappa * second(m), lo, hi, q, steps)


def implicit(x, residual, slope):
    """x unchanged, with the gradient of the root of `residual` (implicit function theorem); none where slope is 0."""
    good = xp.isfinite(slope) & (slope > 0)
    change = xp.where(good, residual, 0.0) / stop_gradient(xp.where(good, slope, 1.0))
    return x - (change - stop_gradient(change))


def bregman_bound(f_x, f_r, slope, step, curvature):
    """Upper bound of f(x) - f(r) - f'(r)(x - r), given its parts: step = x - r, curvature >= f'' or None.

    The difference is padded for the roundings of f, and (x-r)^2 curvature/2 replaces it where that is smaller.
    """
    linear = slope * step
    bound = xp.maximum(f_x - f_r - linear, 0.0) + NOISE * (xp.abs(f_x) + xp.abs(f_r) + xp.abs(linear))
    if curvature is None:
        return bound
    return xp.minimum(bound, curvature_bound(curvature, step))


def curvature_bound(curvature, step):
    """Upper bound of curvature/2 step^2."""
    return 0.5 * curvature * step * step * (1.0 + NOISE)


def enclosed_bound(f_x, x, target, values, slopes, ends):
    """Upper bound of f(x) + f*(target) - target x, given f and f' at two ends that enclose the maximiser of f*.

    With g(p) = f(p) - target p and its minimiser in [lo, hi]: min g >= g(p) - |g'(p)| (hi - lo) at either end p.
    """
    width = ends[1] - ends[0]
    bounds = []
    for value, slope, end in zip(values, slopes, ends, strict=True):
        linear = target * (x - end)
        pad = xp.abs(slope - target) * width + NOISE * (xp.abs(f_x) + xp.abs(value) + xp.abs(linear))
        bounds.append(xp.maximum(f_x - value - linear, 0.0) + pad)
    return xp.minimum(*bounds)


# ---------------------------------------------------------------- users' functions


def elementwise(fn, args, params, columns: bool = False):
    """fn(*args, *params) entry by entry; with `columns`, 1-d params are per entry too. Returns float64."""
    axes = (0,) * len(args) + tuple(0 if columns and np.ndim(p) == 1 else None for p in params)
    if uses_jax((args, params)):
        shape = jnp.broadcast_shapes(*(jnp.shape(a) for a in args))
        flat = [jnp.broadcast_to(jnp.asarray(a, jnp.float64), shape).reshape(-1) for a in args]
        return jnp.asarray(jax.vmap(fn, in_axes=axes)(*flat, *params), jnp.float64).reshape(shape)
    shape = np.broadcast_shapes(*(np.shape(a) for a in args))
    size = math.prod(shape)
    if size == 0:
        return np.zeros(shape)

    def pad(a):  # to a power of two: few compilations
        return np.concatenate([a, np.broadcast_to(a[-1:], (max(1 << (size - 1).bit_length(), 8) - size,))])

    flat = [pad(np.broadcast_to(np.asarray(a, np.float64), shape).reshape(-1)) for a in args]
    more = [pad(p) if axis == 0 else p for p, axis in zip(params, axes[len(args) :], strict=True)]
    with jax.enable_x64(True):
        out = _mapped(fn, axes)(*flat, *more)
    return np.asarray(out, np.float64)[:size].reshape(shape)


@functools.lru_cache(maxsize=256)
def _mapped(fn, axes):
    """One compiled map for each function of the user's."""
    return jax.jit(jax.vmap(fn, in_axes=axes))


@functools.lru_cache(maxsize=256)
def derivative_of(fn):
    """jax.grad(fn), one object for each function, so that it compiles once."""
    return jax.grad(fn)


def check_scalar(name: str, fn, n_args: int, params, columns: bool = False) -> None:
    """Raise unless fn maps n_args scalars and the params to a scalar (nothing is computed)."""
    with jax.enable_x64(True):
        scalar = jax.ShapeDtypeStruct((), xp.float64)
        shapes = [scalar if columns and p.ndim == 1 else jax.ShapeDtypeStruct(p.shape, p.dtype) for p in params]
        with traced_as(name):
            out = jax.eval_shape(fn, *([scalar] * n_args), *shapes)
    if getattr(out, "shape", None) != () or not xp.issubdtype(out.dtype, xp.floating):
        raise ValueError(f"{name} must map a number to one real number, got {cut(str(out))}; write it for scalars, jax "
                         "maps it")  # fmt: skip
