"""Checks of losses and penalties, above all of the user's own: does each property hold that the bounds rely on?"""

from typing import NoReturn

import jax
import numpy as np

from jaxbounds.arguments import as_array
from jaxbounds.array import to_host
from jaxbounds.interfaces import Loss, Penalty
from jaxbounds.problem import as_vector
from jaxbounds.pytree import is_traced

_SLACK = 1e-9  # relative error that a check forgives


def check_loss(loss, scores=None, targets=None) -> None:
    """Check on a grid what the bounds rely on, and report the first failure.

    Convexity, the derivative (a subgradient, also at kinks), the declared smoothness, the second derivative and its
    range, the domain, the conjugate, and that the Fenchel-Young terms are at least f(q) + f*(-alpha) + alpha q >= 0.

    Args:
        loss: from `jb.losses`; its numbers must be concrete.
        scores: (m,) natural coordinates to test at, default about 150 points in [-60, 60] and likely kinks. Add the
            kinks of your own function.
        targets: (k,) targets, default -1, 0, 1, 2.5 for `from_score`; margin losses do not need any.

    Returns:
        None if no check fails. That is evidence on the grid, not a proof.

    Raises:
        TypeError: not a loss. ValueError: one sentence on the first failure.

    Example:
        >>> import jaxbounds as jb
        >>> jb.testing.check_loss(jb.losses.logistic())

    Source: the assumptions of Hanada et al. 2016, section 2.
    """
    if not isinstance(loss, Loss):
        raise TypeError(f"check_loss needs a loss from jb.losses, got {type(loss).__name__}")
    _concrete(loss, "check_loss")
    if targets is None:
        by_row = loss.domain_by_row or (loss.defined_by_ref and not loss.classification)
        targets = [t for t in (-1.0, 0.0, 1.0, 2.5) if t >= (loss.least_target or t)] if by_row else [1.0]
    grid = _grid(loss, 60.0) if scores is None else _points(scores, "scores")
    for target in _points(targets, "targets"):
        _check_loss_at(to_host(loss), grid, float(target))


def _points(values, name: str):
    """The finite numbers to test at, in ascending order."""
    size = np.size(as_array(values, name))
    if not size:
        raise ValueError(f"{name} is empty; give at least one number")
    return np.unique(as_vector(values, size, name))


def check_penalty(penalty, points=None) -> None:
    """Check on a grid what the bounds rely on, and report the first failure.

    Convexity, subgradients (also at kinks), the declared strong convexity, the conjugate and its gradient, the proximal
    point, and that the Fenchel-Young terms are at least psi_j(w) + psi_j*(v) - w v >= 0.

    Args:
        penalty: from `jb.penalties`; its numbers must be concrete.
        points: (m,) coefficients to test at, default about 120 points in [-20, 20] and likely kinks. Add the kinks of
            your own function.

    Returns:
        None if no check fails. That is evidence on the grid, not a proof.

    Raises:
        TypeError: not a penalty. ValueError: one sentence on the first failure.

    Example:
        >>> import jaxbounds as jb
        >>> jb.testing.check_penalty(jb.penalties.elastic_net(0.1, 0.02))

    Source: the assumptions of Hanada et al. 2016, section 2.
    """
    if not isinstance(penalty, Penalty):
        raise TypeError(f"check_penalty needs a penalty from jb.penalties, got {type(penalty).__name__}")
    _concrete(penalty, "check_penalty")
    grid = _grid(penalty, 20.0) if points is None else _points(points, "points")
    size = max([np.size(leaf) for leaf in jax.tree.leaves(penalty) if np.ndim(leaf) == 1], default=1)
    for column in range(size):
        one = jax.tree.map(lambda leaf, k=column: leaf[k] if np.ndim(leaf) == 1 else leaf, to_host(penalty))
        _check_penalty_at(one, grid, column if size > 1 else None)


# ---------------------------------------------------------------- losses


def _check_loss_at(loss, q, target):
    y = np.full_like(q, target)
    where = "" if loss.classification or not loss.defined_by_ref else f" for the target {target:g}"

    def fail(what, remedy) -> NoReturn:
        raise ValueError(f"the loss {loss.name}{where}: {what}; {remedy}")

    f, a = loss.value(q, y), loss.dual(q, y)
    _finite(fail, q, "q", value=f, derivative=a)
    _convex(fail, q, f, "q")
    _subgradient(fail, q, f, -a, "q", "derivative")
    lo, hi = loss.domain(y)
    _ordered(fail, q, lo, a, hi, "q", "alpha = -f'(q)", "domain")
    lo, hi = loss.dual_interval(q, y)
    _ordered(fail, q, lo, a, hi, "q", "-f'(q)", "dual_interval")
    smoothness = None if loss.smoothness is None else float(loss.smoothness)
    if smoothness is not None:
        _smooth(fail, loss, q, y, f, a, smoothness)
    _second(fail, loss, q, y, a, smoothness)
    _secant(fail, loss, q, y, a)
    _loss_duality(fail, loss, q, y, f, a)
    if smoothness is not None or not loss.defined_by_ref:
        _dual_step(fail, loss, q, y, a)


def _smooth(fail, loss, q, y, f, a, smoothness):
    step = q[None, :] - q[:, None]
    upper = f[:, None] - a[:, None] * step + smoothness / 2 * step**2
    scale = np.abs(f)[:, None] + np.abs(f)[None, :] + np.abs(a[:, None] * step)
    i, j = _worst(f[None, :] - upper, scale)
    if i is not None:
        fail(
            f"the declared smoothness {smoothness:g} is too small, f({q[j]:g}) lies above the parabola at q = {q[i]:g}",
            "declare an upper bound of the second derivative",
        )
    at, step, rise, noise = _zoom(lambda x: -loss.dual(x, y[1:]), q, np.greater)
    bad = ~(rise <= smoothness * step * (1 + 1e-6) + noise)
    if bad.any():
        i = int(np.argmax(bad))
        fail(
            f"the declared smoothness {smoothness:g} is too small, the derivative rises at the rate "
            f"{rise[i] / step[i]:.3g} near q = {at[i]:g}",
            "declare an upper bound of the second derivative, or None if there is a kink",
        )


def _second(fail, loss, q, y, a, smoothness):
    second = loss.second(q, y)
    slack, most = (_SLACK, np.inf) if smoothness is None else (_SLACK * smoothness, smoothness * (1 + 1e-6))
    bad = ~((second >= -slack) & (second <= most))
    if bad.any():
        i = int(np.argmax(bad))
        bound = "at least 0" if smoothness is None else f"in [0, {smoothness:g}]"
        fail(
            f"the second derivative at q = {q[i]:g} is {second[i]:g}, but must be {bound}",
            "correct `second` or `smoothness`, or supply `second` where automatic differentiation fails",
        )
    k = np.arange(len(q) - 1)
    _rise(fail, q, a, k, k + 1, loss.curvature(q[:-1], q[1:], y[1:]), "curvature range")


def _secant(fail, loss, q, y, a):
    k, last = np.arange(len(q)), len(q) - 1
    for reach in (1, 5, 25):
        left, right = np.maximum(k - reach, 0), np.minimum(k + reach, last)
        slopes = loss.secant(q, q[left] - q, q[right] - q, y)
        for other in (left, np.maximum(k - 1, 0), np.minimum(k + 1, last), right):
            _rise(fail, q, a, k, other, slopes, "range of secant slopes")


def _rise(fail, q, a, start, end, slopes, what):
    low, high = slopes[0], np.where(np.isinf(slopes[1]), 1e300, slopes[1])
    step = np.abs(q[end] - q[start])
    rise = (a[start] - a[end]) * np.sign(end - start)
    noise = 1e-12 * (np.abs(a[start]) + np.abs(a[end]))
    bad = ~((rise >= low * step * (1 - 1e-6) - noise) & (rise <= high * step * (1 + 1e-6) + noise))
    if bad.any():
        i = int(np.argmax(bad))
        fail(
            f"between q = {q[start[i]]:g} and {q[end[i]]:g} the derivative rises by {rise[i]:g}, which contradicts the "
            f"{what} [{low[i]:g}, {high[i]:g}] there",
            "correct `curvature_range`, or leave it out",
        )


def _loss_duality(fail, loss, q, y, f, a):
    conjugate = loss.conjugate(a, y)
    total, size = f + conjugate + a * q, 1.0 + np.abs(f) + np.abs(a * q)
    reachable = np.isfinite(conjugate) if loss.defined_by_ref and loss.conjugate_fn is None else np.full(q.shape, True)
    bad = reachable & ~(np.abs(total) <= 1e-8 * size)
    if bad.any():
        i = int(np.argmax(bad))
        fail(
            f"the conjugate is wrong, f(q) + f*(-alpha) + alpha q = {total[i]:g} at q = {q[i]:g} and alpha = {a[i]:g} "
            "= -f'(q), where it must be 0",
            "correct `conjugate`, or leave it out and it is derived",
        )
    i, j = (index.ravel() for index in np.meshgrid(np.arange(len(q)), np.arange(len(q)), indexing="ij"))
    young = loss.fenchel_young(q[i], a[j], y[i], q[j])
    plain = f[i] + conjugate[j] + a[j] * q[i]
    exact = f[i] - f[j] + a[j] * (q[i] - q[j])  # no conjugate: alpha_j is the dual of q_j
    scale = 1 + np.abs(f[i]) + np.abs(f[j]) + np.abs(a[j] * (q[i] - q[j]))
    _young(fail, young, exact, scale, (q[i], a[j]), "q", "alpha")
    bad = ~(plain >= -1e-8 * (1 + np.abs(f[i]) + np.abs(a[j] * q[i])))
    if bad.any():
        k = int(np.argmax(bad))
        fail(
            f"f(q) + f*(-alpha) + alpha q = {plain[k]:g} is negative at q = {q[i[k]]:g} and alpha = {a[j[k]]:g}",
            "correct `conjugate`, or leave it out and it is derived",
        )


def _dual_step(fail, loss, q, y, a):
    kappa = np.full_like(q, 2.0)
    alpha = a[::-1].copy()
    new = loss.dual_step(q, alpha, y, kappa)
    point = q + kappa * (new - alpha)
    lo, hi = loss.dual_interval(point, y)
    scale = 1e-6 * (1 + np.abs(new) + np.abs(point))
    bad = ~((new >= lo - scale) & (new <= hi + scale))
    if bad.any():
        i = int(np.argmax(bad))
        fail(
            f"the dual coordinate step from alpha = {alpha[i]:g} at q = {q[i]:g} gives {new[i]:g}, not the optimum",
            "check the derivative and the second derivative",
        )


# ---------------------------------------------------------------- penalties


def _check_penalty_at(penalty, w, column):
    where = "" if column is None else f" in column {column}"

    def fail(what, remedy) -> NoReturn:
        raise ValueError(f"the penalty {penalty.name}{where}: {what}; {remedy}")

    f = penalty.value(w)
    low, high = penalty.subgradient(w)
    _finite(fail, w, "w", value=f, derivative=low)
    _convex(fail, w, f, "w")
    for slope in (low, high):
        _subgradient(fail, w, f, slope, "w", "subgradient")
    lam = None if penalty.strong_convexity is None else float(np.asarray(penalty.strong_convexity).reshape(-1)[0])
    if lam is not None:
        step = w[None, :] - w[:, None]
        lower = f[:, None] + low[:, None] * step + lam / 2 * step**2
        i, j = _worst(lower - f[None, :], np.abs(f)[:, None] + np.abs(f)[None, :] + np.abs(low[:, None] * step))
        if i is not None:
            fail(
                f"the declared strong convexity {lam:g} is too large, psi_j({w[j]:g}) lies below the parabola at "
                f"w = {w[i]:g}",
                "declare a lower bound of the second derivative",
            )
        at, step, rise, noise = _zoom(lambda x: penalty.subgradient(x)[0], w, np.less)
        bad = ~(rise >= lam * step * (1 - 1e-6) - noise)
        if bad.any():
            i = int(np.argmax(bad))
            fail(
                f"the declared strong convexity {lam:g} is too large, the derivative rises at the rate "
                f"{rise[i] / step[i]:.3g} near w = {at[i]:g}",
                "declare a lower bound of the second derivative",
            )
    v = (low + high) / 2
    _penalty_duality(fail, penalty, w, f, v)
    step = 0.7
    x = penalty.prox(w, step)
    low, high = penalty.subgradient(x)
    force = (w - x) / step
    scale = 1e-6 * (1 + np.abs(force))
    bad = ~((force >= low - scale) & (force <= high + scale))
    if bad.any():
        i = int(np.argmax(bad))
        fail(f"the proximal point of {w[i]:g} is {x[i]:g}, which is not optimal", "check the derivative at kinks")
    second, level = penalty.second(w), penalty.level(f)
    edge = np.full_like(w, np.inf) if level is None else np.broadcast_to(level, w.shape)
    bad = ~((second >= 0) & np.isfinite(second))
    if bad.any():
        i = int(np.argmax(bad))
        fail(
            f"the second derivative at w = {w[i]:g} is {second[i]:g}, but must be finite and at least 0",
            "correct `second`, or supply it where automatic differentiation fails",
        )
    bad = np.abs(w) > edge * (1 + 1e-9) + 1e-12
    if bad.any():
        i = int(np.argmax(bad))
        fail(f"psi_j(w) <= {f[i]:g} holds at w = {w[i]:g}, beyond the level {edge[i]:g}", "check the strong convexity")


def _penalty_duality(fail, penalty, w, f, v):
    conjugate = penalty.conjugate(v)
    derived = getattr(penalty, "conjugate_fn", w) is None
    reachable = np.isfinite(conjugate) if derived else np.full(w.shape, True)
    total, size = f + conjugate - w * v, 1.0 + np.abs(f) + np.abs(w * v)
    bad = reachable & ~(np.abs(total) <= 1e-8 * size)
    if bad.any():
        i = int(np.argmax(bad))
        fail(
            f"the conjugate is wrong, psi_j(w) + psi_j*(v) - w v = {total[i]:g} at w = {w[i]:g} and v = {v[i]:g} in "
            "d psi_j(w), where it must be 0",
            "correct `conjugate`, or leave it out and it is derived",
        )
    i, j = (index.ravel() for index in np.meshgrid(np.arange(len(w)), np.arange(len(w)), indexing="ij"))
    young, excess = penalty.fenchel_young(w[i], v[j]), penalty.excess(w[i], v[j])
    exact = f[i] - f[j] - v[j] * (w[i] - w[j])
    scale = 1 + np.abs(f[i]) + np.abs(f[j]) + np.abs(v[j] * (w[i] - w[j]))
    _young(fail, young, exact, scale, (w[i], v[j]), "w", "v")
    bad = ~((excess >= 0) & (excess <= young * (1 + 1e-6) + 1e-12 * scale))
    if bad.any():
        k = int(np.argmax(bad))
        fail(
            f"the excess is {excess[k]:g} at w = {w[i[k]]:g} and v = {v[j[k]]:g}, outside [0, B]",
            "check the declared strong convexity",
        )
    lo, hi = penalty.conjugate_interval(v, v)
    u = penalty.grad_conjugate(v)
    outside = "the gradient of the conjugate at v = {0:g} is {1:g}, outside its interval [{2:g}, {3:g}]"
    missed = "w = {1:g} is not in the interval [{2:g}, {3:g}] of d psi_j*(v) for v = {0:g} in d psi_j(w)"
    for at, text in ((u, outside), (w, missed)):
        scale = 1e-6 * (1 + np.abs(at))
        bad = ~((at >= lo - scale) & (at <= hi + scale))
        if bad.any():
            k = int(np.argmax(bad))
            fail(text.format(v[k], at[k], lo[k], hi[k]), "check the derivative")


# ---------------------------------------------------------------- shared pieces


def _concrete(tree, name):
    if is_traced(tree):
        raise TypeError(f"{name} runs on the host and needs concrete numbers; call it outside jit, vmap and grad")


def _grid(tree, reach):
    """Points on both sides of 0, denser near it, with 0, 1 and the parameters themselves as likely kinks."""
    parameters = [np.ravel(np.asarray(leaf, np.float64))[:3] for leaf in jax.tree.leaves(tree)]
    special = np.concatenate([np.array([0.0, 0.5, 1.0, 2.0]), *parameters])
    special = special[np.isfinite(special) & (np.abs(special) <= reach)]
    spread = reach * np.sinh(np.linspace(-7.0, 7.0, 101)) / np.sinh(7.0)
    return np.unique(np.concatenate([spread, special, -special, 1.0 - special]) + 0.0)  # no -0


def _zoom(slope, x, better, halvings: int = 20):
    """Shrink each interval of the grid to the half where the slope rises most (np.greater) or least (np.less).

    Returns (at, step, rise, noise): the last left ends, their lengths, the rise of the slope there and its error.
    """
    a, b = x[:-1], x[1:]
    at_a, at_b = slope(a), slope(b)
    for _ in range(halvings):
        mid = a + (b - a) / 2
        at_mid = slope(mid)
        left = better(at_mid - at_a, at_b - at_mid)
        a, b = np.where(left, a, mid), np.where(left, mid, b)
        at_a, at_b = np.where(left, at_a, at_mid), np.where(left, at_mid, at_b)
    return a, b - a, at_b - at_a, 1e-14 * (np.abs(at_a) + np.abs(at_b)) + 1e-300


def _worst(violation, scale):
    """The pair (i, j) that violates most, beyond the slack, or (None, None)."""
    excess = violation - _SLACK * scale
    i, j = np.unravel_index(int(np.argmax(np.where(np.isnan(excess), np.inf, excess))), excess.shape)
    return (int(i), int(j)) if not excess[i, j] <= 1e-12 else (None, None)


def _finite(fail, x, name, **arrays):
    for what, array in arrays.items():
        bad = ~np.isfinite(array)
        if bad.any():
            i = int(np.argmax(bad))
            fail(
                f"the {what} at {name} = {x[i]:g} is {array[i]:g}",
                "write it so that it neither overflows nor gives NaN (for example jnp.logaddexp(0, -m))",
            )


def _convex(fail, x, f, name):
    weight = (x[1:-1] - x[:-2]) / (x[2:] - x[:-2])
    chord = (1 - weight) * f[:-2] + weight * f[2:]
    bad = ~(f[1:-1] <= chord + _SLACK * (np.abs(f[:-2]) + np.abs(f[2:])) + 1e-14)
    if bad.any():
        i = int(np.argmax(bad))
        fail(
            f"it is not convex, at {name} = {x[i + 1]:g} it lies {f[i + 1] - chord[i]:g} above its chord from "
            f"{x[i]:g} to {x[i + 2]:g}",
            "only convex functions have these bounds",
        )


def _subgradient(fail, x, f, slope, name, what):
    step = x[None, :] - x[:, None]
    line = f[:, None] + slope[:, None] * step
    i, j = _worst(line - f[None, :], np.abs(f)[:, None] + np.abs(f)[None, :] + np.abs(slope[:, None] * step))
    if i is not None:
        fail(
            f"the {what} at {name} = {x[i]:g} is {slope[i]:g}, but that line lies above the function at {x[j]:g}",
            "supply `derivative`, one that is a subgradient at kinks too",
        )


def _ordered(fail, x, lo, value, hi, name, what, owner):
    bad = ~((value >= lo) & (value <= hi))
    if bad.any():
        i = int(np.argmax(bad))
        fail(f"{what} = {value[i]:g} at {name} = {x[i]:g} is outside [{lo[i]:g}, {hi[i]:g}]", f"correct `{owner}`")


def _young(fail, young, exact, scale, at, first, second):
    bad = ~((young >= 0) & (young >= exact - 1e-12 * scale))
    if bad.any():
        k = int(np.argmax(bad))
        fail(
            f"the Fenchel-Young term {young[k]:g} at {first} = {at[0][k]:g} and {second} = {at[1][k]:g} is below its "
            f"true value {max(exact[k], 0.0):g}",
            "check the declared smoothness or strong convexity, the derivative and the conjugate",
        )
