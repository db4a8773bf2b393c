"""The unpenalised intercept: the root of sum_i c_i l'(s_i + b, y_i) = 0, which keeps dual points feasible.

Without a penalty on b, a dual point t needs sum_i c_i t_i = 0. At the best intercept b of given scores, t_i =
-l'(s_i + b) has that property, and the duality gap of (w, b, t) is the sum of Fenchel-Young terms as ever.
"""

from jaxbounds.array import carry, stop_gradient, while_loop, xp
from jaxbounds.conjugate import implicit
from jaxbounds.interfaces import Loss
from jaxbounds.pytree import in_float64
from jaxbounds.rounding import U

_STEPS = 256  # guarded Newton steps; five to ten are usual
_OPEN = 8  # Newton steps before the search for a bracket only doubles
_DOUBLINGS = 60  # of the range in which the slope must change its sign


def _slope(loss: Loss, s, y, c, b):
    """(g, g', scale of g) of g(b) = sum_i c_i l'(s_i + b, y_i), which never falls."""
    q = loss.coordinate(s + b, y)
    t = c * loss.orientation(y) * loss.dual(q, y)
    return -xp.sum(t), xp.sum(c * loss.second(q, y)), xp.sum(xp.abs(t))


def _reach(s, y):
    """An intercept of this size can move every score past its target."""
    return 1.0 + xp.max(xp.abs(s)) + xp.max(xp.abs(y))


@in_float64
def balanced_intercept(loss: Loss, s, y, c):
    """The intercept b that minimises sum_i c_i l(s_i + b, y_i): sum_i c_i l'(s_i + b, y_i) = 0 up to rounding.

    Where the minimisers fill an interval, one of them; where a loss without a second derivative has a kink there, the
    kink; where there is none (`has_intercept`), a number so large that the slopes vanish in floating point.

    Args:
        s: (n,) scores without intercept; y: (n,) targets; c: (n,) weights; all NumPy, or jax arrays and tracers.

    Returns:
        a float64 scalar, differentiable in everything.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> from jaxbounds.intercept import balanced_intercept
        >>> float(balanced_intercept(jb.losses.squared(), np.zeros(4), np.array([1.0, 2.0, 3.0, 6.0]), np.ones(4)))
        3.0

    Source: section "Changes", unpenalised intercept, of the library's theory.
    """
    fixed = stop_gradient((loss, s, y, c))

    def body(state):
        k, b, last, low, high, move, _ = state
        g, curvature, size = _slope(*fixed, b)
        low, high = xp.where(g <= 0, b, low), xp.where(g >= 0, b, high)
        enclosed = xp.isfinite(low) & xp.isfinite(high)
        newton = b - g / xp.where(curvature > 0, curvature, 1.0)
        # Newton while it at least halves its steps (flat tails and kinks stop that), then bisection or doubling
        good = (curvature > 0) & (xp.abs(newton - b) <= 0.5 * move) & (newton > low) & (newton < high)
        good = good & (enclosed | (k < _OPEN))
        beyond = xp.where(g < 0, b + move, b - move)
        new = xp.where(good, newton, xp.where(enclosed, low + 0.5 * (high - low), beyond))
        move = xp.where(good, xp.abs(newton - b), xp.where(enclosed, high - low, 2.0 * move))
        new = xp.where(xp.abs(g) <= 4 * U * size, b, new)
        new = xp.where(xp.isnan(g), last, new)  # b was out of the reach of a user's function
        return k + 1, new, b, low, high, move, (new == b) | xp.isnan(g)

    move = 2.0 * _reach(*fixed[1:3])
    zero = xp.zeros_like(move)
    first = xp.zeros_like(zero, int), zero, zero, zero - xp.inf, zero + xp.inf, move, zero > 0
    b = while_loop(lambda state: ~state[-1] & (state[0] < _STEPS), body, stop_gradient(first))[1]
    return carry(b, lambda: implicit(b, *_slope(loss, s, y, c, b)[:2]))


@in_float64
def has_intercept(loss: Loss, s, y, c):
    """Whether finite intercepts are best: not if the loss goes on falling in one direction, as with one class only."""

    def turns(reach):
        return (_slope(loss, s, y, c, -reach)[0] < 0) & (_slope(loss, s, y, c, reach)[0] > 0)

    def double(state):
        k, reach, _ = state
        return k + 1, 2.0 * reach, turns(2.0 * reach)

    reach = _reach(s, y)
    first = xp.zeros_like(reach, int), reach, turns(reach)
    return while_loop(lambda state: ~state[2] & (state[0] < _DOUBLINGS), double, first)[2]
