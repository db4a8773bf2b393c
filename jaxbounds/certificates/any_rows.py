"""Where a score can move when any few rows leave or change labels: one sandwich for all sets (host, NumPy float64).

With objectives multiplied by their number of rows, the model without the rows S minimises

    F_S(w) = sum_{i not in S} sw_i l_i(x_i.w) + rows psi(w),      rows = 1 ("sum"), n (keep_n) or n - |S|

and w_S = w - K_S^-1 g_S, K_S its mean Hessian between the stored w and w_S, with the gradient at w

    g_S = f + sum_{i in S} push_i x_i - |S| p,    f = grad F(w), push_i = -sw_i l'_i, p = grad psi(w) (0 if rows stay)

(push_i = sw_i times the difference of the derivatives under both labels where labels flip.) In a metric H for which

    a H^-1 <= K_S^-1 <= b H^-1    for every S of at most k rows:
    x.(w_S - w)  lies in  -(a+b)/2 x.H^-1 g_S  -+  (b-a)/2 ||x|| ||g_S||,   norms in H^-1,

a sum over S of terms of single rows, hence at most the sum of the k largest positive terms. Two metrics are used:
that of the penalty (any loss, any strongly convex penalty) and the Hessian at w (smooth losses with L2).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxbounds.certificates.any_rows_intercept import Centred, first_metric
from jaxbounds.certificates.metrics import Metric, hessian_metric, in_inverse
from jaxbounds.certificates.row_changes import Case
from jaxbounds.certificates.top_sums import top_sum, top_sums
from jaxbounds.rounding import TINY, U, down, growth, norm_up, up

_TRIES = 8  # radii tried for the ball that holds every w_S
_HALF = 0.5  # relative changes of a slope beyond which a row is counted by its leverage
_SQUARE, _FEW = 2000, 10  # rows and k up to which the rows' own scores are followed, at a cost of n^2 for each k
_TIGHT = 0.1  # b - a below which that is not worth its time
_ROUNDS = 3


def metrics_of(case: Case, tests) -> list[Metric]:
    """The metrics that apply: the penalty's, and the Hessian's where it is worth its cost."""
    found = hessian_metric(case, tests)
    return [first_metric(case, tests)] + ([] if found is None else [found])


def factors(case: Case, metrics: list, k: int) -> list[tuple[float, float]]:
    """For each metric (a, b) with a H^-1 <= K_S^-1 <= b H^-1 for every set of at most k rows; b = inf for none."""
    gone = k / case.y.size * (1 + 4 * U) if case.shrinks else 0.0
    found = [(case.least, float(up(1 / (1 - gone))) if gone < 1 else np.inf)]
    for metric in metrics[1:]:
        around = _in_ball(case, metric, k, gone)
        if case.y.size <= _SQUARE and k <= _FEW and not _width(around) < _TIGHT:
            around = _followed(case, metric, k, gone, found[0], around)
        found.append(around)
    return found


def _width(around) -> float:
    return around[1] - around[0] if np.isfinite(around[1]) else np.inf


def _in_ball(case: Case, metric: Metric, k: int, gone: float) -> tuple[float, float]:
    """(a, b) around the Hessian: on ||D||_H <= r slopes change little, and r (1 - losses) >= ||g_S|| keeps w_S inside.

    On the sphere D.grad F_S(w + D) >= (1/b) r^2 - r ||g_S|| >= 0, so the minimum of the convex F_S lies in the ball.
    """
    length = float(metric.f_size + k * metric.p_size * case.shrinks)
    length = float(up(length + top_sum((np.abs(case.push) + case.push_pad) * metric.root, k)))
    r = length
    for _ in range(_TRIES):
        reach = up(metric.root * r)
        a, b = _around(case, metric, k, gone, -reach, reach)
        if not np.isfinite(b) or up(b * length) <= r:
            break
        r = float(up(b * length) * (1 + 1e-9) if r == length else 1.3 * max(r, b * length))
    else:
        return 0.0, np.inf
    return a, b


def _followed(case: Case, metric: Metric, k: int, gone: float, first, around) -> tuple[float, float]:
    """(a, b) from where each training row's own score can go: interval Newton steps, at a cost of n^2 each."""
    inv: Any = metric.inverse
    everyone, low, high = slice(0, case.y.size), -np.inf, np.inf

    def follow(own, ends):
        (below,), (above,) = moves(case, own, everyone, (k,), [ends])
        return np.fmax(low, below), np.fmin(high, above)

    low, high = follow(first_metric(case, case.X), first)
    own = in_inverse(case, inv, np.arange(case.y.size))
    for _ in range(_ROUNDS):
        if np.isfinite(around[1]):
            low, high = follow(own, around)
        better = _around(case, metric, k, gone, low, high)
        if not _width(better) < 0.9 * _width(around):
            break
        around = better
    return around


def _around(case: Case, metric: Metric, k: int, gone: float, low, high) -> tuple[float, float]:
    """(a, b) if no row's score x_i.(w_S - w) leaves [low, high]."""
    second, z = case.second, case.loss.orientation(case.y)
    lever = up(case.c * (1 + 8 * U) * metric.root**2)  # times a slope: the norm of that row's part of the Hessian
    low, high = np.where(z < 0, -high, low) - case.pad, np.where(z < 0, -low, high) + case.pad
    low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
    least, most = case.loss.secant(case.q, low, high, case.y)
    if case.relabel:  # the mirrored margin of the other label
        other = case.loss.secant(-case.q, -high, -low, -case.y)
        lost = top_sum(lever * np.maximum(second - other[0], 0.0), k)
        won = top_sum(lever * np.maximum(other[1] - second, 0.0), k)
    else:
        lost, won = top_sum(lever * second, k), 0.0
    rest = 1 - up(_relative(case, metric, second - least, lever) + lost + gone + metric.loose, 16)
    if not rest > 0:
        return 0.0, np.inf
    a = down(1 / up(1 + _relative(case, metric, most - second, lever) + won))
    return float(a), float(up(1 / rest))


def _relative(case: Case, metric: Metric, change, lever) -> float:
    """Upper bound of ||sum_i c_i change_i x_i x_i^T|| in the metric of H >= sum_i c_i second_i x_i x_i^T.

    Small changes relative to a row's own slope count once, all together; others by the leverages of their rows, or,
    where that is much, by the norm of the matrix.
    """
    second = case.second
    change = np.maximum(change, 0.0) + 8 * U * second * (change != 0)
    small = change <= _HALF * second
    together = np.max(np.where(small & (change > 0), change / np.where(second > 0, second, 1.0), 0.0))
    simple = float(up(together + up(np.sum(np.where(small, 0.0, change * lever)), lever.size)))
    inv: Any = metric.inverse
    if simple < _HALF / 10 or not np.isfinite(simple) or inv.features is None:
        return simple
    n, weight = lever.size, case.c * change * (1 + 8 * U)
    Y = np.sqrt(weight)[:, None] * inv.features[:n]
    size = float(np.sum(Y * Y))
    norm = spectral_norm(Y.T @ Y) + growth(n + 8) * up(size, n)
    blur = norm_up(np.sum(weight * metric.blur**2), n)  # of the features, and of H^-1 = T^T (I + E)^-1 T
    return min(simple, float(up((np.sqrt(norm) + blur) ** 2 * (1 + metric.share), 16)))


def spectral_norm(A, depth: int = 4) -> float:
    """Upper bound of ||A|| for a symmetric matrix: ||A||^2 = ||A^2||, and in the end the Frobenius norm."""
    size = float(norm_up(np.sum(A * A), A.size))
    if depth == 0 or not size > 0:
        return size
    square = spectral_norm(A @ A, depth - 1) + growth(len(A) + 2) * size**2
    return float(np.fmin(size, up(np.sqrt(up(square)))))


def moves(case: Case, metric: Metric, part: slice, ks, ends) -> tuple[np.ndarray, np.ndarray]:
    """(lower, upper) of the scores' moves over all sets of at most k rows: (len(ks), part), given each k's factors."""
    if not isinstance(metric, Centred):
        return _moves(case, metric, part, ks, ends)
    found = [_with_intercept(case, metric, part, k, end) for k, end in zip(ks, ends, strict=True)]
    lower, upper = (np.concatenate(side) for side in zip(*found, strict=True))
    return lower, upper


def _with_intercept(case: Case, metric: Centred, part: slice, k: int, end) -> tuple[np.ndarray, np.ndarray]:
    """The moves of x.w + b, the sum of both."""

    def follow(own):
        (low,), (high,) = _moves(case, own, slice(0, case.y.size), (k,), [end])
        return low, high

    wide, b_low, b_high = metric.with_intercept(case, k, end[1], follow)
    low, high = _moves(case, wide, part, (k,), [end])
    low, high = low + b_low, high + b_high
    return low - 2 * U * np.abs(low), high + 2 * U * np.abs(high)


def _moves(case: Case, metric: Metric, part: slice, ks, ends) -> tuple[np.ndarray, np.ndarray]:
    """The moves of x.w, or of x.w + b where the metric knows of b."""
    P = case.push * metric.products(part)
    R = np.maximum(metric.root_x, metric.size_x)[part]
    error = metric.share * metric.size_x[part] + metric.blur_x[part]
    size = np.abs(case.push) + case.push_pad
    lower, upper = np.full((len(ks), R.size), -np.inf), np.full((len(ks), R.size), np.inf)
    for a, b in sorted(set(ends)):
        at = [j for j, end in enumerate(ends) if end == (a, b)]
        if not np.isfinite(b):
            continue
        middle, half = (a + b) / 2, (b - a) / 2 + 4 * U * (a + b)
        own = (half + 32 * U * middle) * size * metric.root + middle * (
            case.push_pad * metric.root + np.abs(case.push) * metric.blur
        )
        spread = R[:, None] * up(own) + error[:, None] * up(middle * size * metric.size)
        counts = [ks[j] for j in at]
        below, above = top_sums(spread + middle * P, counts), top_sums(spread - middle * P, counts)
        for slot, j in enumerate(at):
            low, high = _shared(case, metric, part, ks[j], middle, half, b)
            lower[j], upper[j] = low - below[slot], high + above[slot]
            slack = 8 * U * (np.abs(lower[j]) + np.abs(upper[j])) + TINY
            lower[j], upper[j] = lower[j] - slack, upper[j] + slack
    return lower, upper


def _shared(case: Case, metric: Metric, part: slice, k: int, middle: float, half: float, b: float):
    """What f and p make of every set; convex in the number of rows, so that its ends decide."""
    R, xf, xp = metric.root_x[part], metric.xf[part], metric.xp[part]
    low, high = np.full(R.shape, np.inf), np.full(R.shape, -np.inf)
    for count in {0, k if case.shrinks else 0}:
        centre = -middle * (xf - count * xp)
        width = half * R * (metric.f_size + count * metric.p_size) + np.sqrt(b) * R * case.slack
        width = width + middle * (metric.xf_pad[part] + count * metric.xp_pad[part])
        width = up(width, 16) + 8 * U * middle * (np.abs(xf) + count * np.abs(xp))
        low, high = np.minimum(low, centre - width), np.maximum(high, centre + width)
    return low, high
