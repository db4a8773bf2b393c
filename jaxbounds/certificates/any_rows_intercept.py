"""Any few rows at once, with an unpenalised intercept: where it and the scores can move (host, NumPy float64).

With b minimised over, F_S(w) = min_b F_S(w, b) is as strongly convex as the penalty. At the stored w the rows that
stay are balanced, sum c_i l'_i(b_S) = 0, so that any one vector m can be taken from every row. With x' = x - m,
l'(q_i + beta) = l'(q_i) + sigma_i beta (sigma_i a secant slope) and beta = b_S - b, the gradient of F_S at w is

    g_S = f' + sum_{i in S} push_i x'_i - |S| p + r,    f' = f - m f_b,
    r = sum_{i not in S} c_i sigma_i beta x'_i.

For m = sum_i c_i h_i x_i / sum_i c_i h_i, h_i = l''_i, most of r cancels; and as its terms c_i sigma_i beta have one
sign and the sum -f_b - sum_S push_i, ||r|| is also at most that sum times the largest ||x'_i||.

The new intercept b* (of scores x'.w + b) is the root of sum_{i not in S} c_i l'(x'_i.w_S + b): between the roots of
the most and the least that this sum can be, with the k rows that matter most gone. With D = w_S - w it also obeys

    (b* - b) sum_{i not in S} c_i sigma_i = -f_b - sum_S push_i - sum_{i not in S} c_i sigma_i x'_i.D.

(Where labels flip, the rows of S stay, with the slopes of the other label.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from jaxbounds.certificates.metrics import Metric, centre, penalty_metric
from jaxbounds.certificates.row_changes import Case, sum_rows
from jaxbounds.certificates.top_sums import top_sum
from jaxbounds.certificates.whitened import block_terms
from jaxbounds.rounding import TINY, TINY_NORM, U, growth, norm_up, up

_DOUBLINGS = 60  # of the distance at which a slope's sign is asked for
_BISECTIONS = 12
_CLOSE = 1.02  # a root is known well enough within this factor of its distance
_ROUNDS = 3
_SQUARE = 1000  # rows up to which each training row's own score is followed, at a cost of n^2 for each k


@dataclass(frozen=True)
class Centred(Metric):
    """The penalty's metric for the vectors x' = x - m; `loss` knows what an intercept adds."""

    shift: tuple = ()  # products of the test rows with m, of the training rows with m, and m.m
    mean_error: float = 0.0  # bound of ||sum_i c_i h_i x'_i||
    slope: Any = None  # (n,) h
    train: Centred | None = None  # the metric of the training rows as test rows, where their number allows it

    def products(self, part: slice) -> np.ndarray:
        """x'.H^-1 x'_i for some test rows and all training rows."""
        test, train, square = self.shift
        return super().products(part) - test[part][:, None] - (train - square)[None, :]

    def with_intercept(self, case: Case, k: int, most: float, follow) -> tuple[Metric, float, float]:
        """The metric with r added to what f is uncertain by, and (lower, upper) of b* - b, for at most k rows.

        Args:
            most: with K^-1 <= most H^-1 for every mean Hessian K of F_S. follow: the moves of x'.w in a metric.
        """
        balance = case.intercept
        assert balance is not None
        noise, still = up(2 * np.sum(case.own_pad), case.y.size), np.zeros(case.y.size)
        beta = max(map(abs, intercepts(case, still, still, k)))
        if not (np.isfinite(beta) and np.isfinite(most)):
            return self, -np.inf, np.inf
        size = np.abs(case.push) + case.push_pad
        uneven, _ = self._uneven(case, still - beta, still + beta, self.root, k)
        moved = up(abs(balance.f) + balance.f_pad + noise + top_sum(size, k))
        r = min(up(beta * (uneven + self.mean_error)), up(moved * np.max(self.root)))
        r = float(up(r + up(2 * np.sum(case.own_pad * self.root), case.y.size)))
        length = up(self.f_size + k * self.p_size * case.shrinks + top_sum(size * self.root, k) + r)
        radius = up(most * length)
        right = up(self.root * radius)
        left = -right
        if self.train is not None:
            ends = follow(self.train.uncertain(r))
            left, right = np.fmax(left, ends[0]), np.fmin(right, ends[1])
        low, high = intercepts(case, left, right, k)
        for _ in range(_ROUNDS):
            uneven, stays = self._uneven(case, left + low, right + high, np.maximum(-left, right), k)
            if not stays > 0:
                break
            drift = up(uneven + radius * self.mean_error) + noise + balance.f_pad
            above = up(max(top_sum(case.push_pad - case.push, k) - balance.f, 0.0) + drift)
            below = up(max(top_sum(case.push_pad + case.push, k) + balance.f, 0.0) + drift)
            low, high = max(low, -float(up(below / stays))), min(high, float(up(above / stays)))
        return self.uncertain(r), low, high

    def uncertain(self, r: float) -> Centred:
        """The metric where f may be off by a vector of norm r more."""
        return replace(self, f_size=float(up(self.f_size + r)), xf_pad=up(self.xf_pad + self.root_x * r))

    def _uneven(self, case: Case, low, high, sizes, k: int) -> tuple[float, float]:
        """Bounds for |sum_i c_i (sigma_i - h_i) a_i| and sum_i c_i sigma_i without S, for scores that move within
        [low, high] and all numbers a_i (or vectors) of these sizes."""
        least, most = slopes(case, low, high)
        away = np.maximum(most - self.slope, self.slope - least) + 4 * U * (most + self.slope)
        uneven = up(np.sum(case.c * away * sizes), case.y.size) + top_sum(case.c * most * sizes, k)
        gone = 0.0 if case.relabel else top_sum(case.c * least, k)
        whole = np.sum(case.c * least) * (1 - growth(case.y.size + 8))
        return float(up(uneven)), float(whole - gone - 8 * U * whole)


def first_metric(case: Case, tests) -> Metric:
    """The penalty's metric, of centred rows with an intercept."""
    if case.intercept is None:
        return penalty_metric(case, tests)
    own = _centred(case, case.X) if case.y.size <= _SQUARE else None
    return own if own is not None and tests is case.X else replace(_centred(case, tests), train=own)


def _centred(case: Case, tests) -> Centred:
    plain = penalty_metric(case, tests)
    scale, d, n = 1 / np.sqrt(case.ridge), case.ridge.size, case.y.size
    h, m = centre(case)
    weight = case.c * h
    total = float(np.sum(weight))
    sums, sizes = sum_rows(case.X, weight)
    rounding = growth(block_terms(n) + 8) * sizes + n * TINY + growth(n + 8) * np.abs(m) * total
    off = np.abs(sums - m * total) + up(rounding)
    at = m * scale
    length = float(norm_up(np.sum(at**2), d + 8))
    share = growth(d + 24)
    rows, tests = plain.rows, plain.tests
    train, test, square = rows @ at, tests @ at, float(at @ at)
    size, size_x = up(plain.root + length), up(plain.root_x + length)
    root, root_x = (
        np.sqrt(np.maximum(_squares(part) - 2 * inner + square, 0.0) + share * whole**2) * (1 + 16 * U) + d * TINY_NORM
        for part, inner, whole in ((rows, train, size), (tests, test, size_x))
    )
    # products are off by share size_i size_x, which may be above share root_i root_x
    blur, blur_x = np.sqrt(share) * size, np.sqrt(share) * size_x
    balance: Any = case.intercept
    f, p = (case.f - m * balance.f) * scale, case.p * scale
    f_pad = case.f_pad + length * balance.f_pad + up(np.sum(case.own_pad * root), n)
    f_pad = up(f_pad + 4 * U * norm_up(np.sum((np.abs(case.f * scale) + np.abs(at * balance.f)) ** 2), d + 8))
    f_size, p_size = (float(norm_up(np.sum(v * v), d + 8)) for v in (f, p))
    return Centred(
        rows, tests, None, share, up(root + blur), blur, root, up(root_x + blur_x), blur_x, root_x,
        tests @ f - at @ f, up(share * size_x * f_size + root_x * f_pad),
        tests @ p - at @ p, up(share * size_x * p_size + root_x * case.p_pad),
        float(up(f_size + f_pad)), float(up(p_size + case.p_pad)), 0.0,
        (test, train, square), float(norm_up(np.sum((off * scale) ** 2), d + 8)), h,
    )  # fmt: skip


def _squares(rows) -> np.ndarray:
    square = rows.multiply(rows).tocsr() if sp.issparse(rows) else rows * rows
    return square @ np.ones(rows.shape[1])


def slopes(case: Case, low, high) -> tuple[np.ndarray, np.ndarray]:
    """(least, largest) secant slope of each row, of both labels where labels flip, for moves within [low, high]."""
    z = case.loss.orientation(case.y)
    low, high = np.where(z < 0, -high, low), np.where(z < 0, -low, high)
    pad = case.pad + 4 * U * (np.abs(low) + np.abs(high))
    low, high = np.minimum(low - pad, 0.0), np.maximum(high + pad, 0.0)
    least, most = case.loss.secant(case.q, low, high, case.y)
    if case.relabel:  # the mirrored margin of the other label
        other = case.loss.secant(-case.q, -high, -low, -case.y)
        least, most = np.minimum(least, other[0]), np.maximum(most, other[1])
    return least, most


def intercepts(case: Case, low, high, k: int) -> tuple[float, float]:
    """(lower, upper) of b* - b for all sets of at most k rows, where scores without b have moved within [low, high]."""
    z, n = case.loss.orientation(case.y), case.y.size
    lip = float(case.loss.smoothness) * (1 + 8 * U)

    def certain(beta: float, side: float) -> bool:
        """Whether every sum of slopes has the sign of that side: all roots lie on the other side of beta."""
        shift = (low if side > 0 else high) + beta
        q = case.q + z * shift
        own = -case.c * z * case.loss.dual(q, case.y)
        other = case.c * z * case.loss.dual(-q, -case.y) if case.relabel else np.zeros(n)
        noise = case.c * lip * (case.pad + 8 * U * (np.abs(q) + np.abs(shift) + abs(beta)))
        noise = noise + 64 * U * np.maximum(np.abs(own), np.abs(other)) + TINY
        total = np.sum(own) * side - top_sum((own - other) * side, k)
        error = np.sum(noise) + growth(n + 8) * np.sum(np.abs(own))
        return bool(total - 2 * up(error, n) - 8 * U * abs(total) > 0)

    return -_distance(case, k, certain, low, high, -1.0), _distance(case, k, certain, low, high, 1.0)


def _distance(case: Case, k: int, certain, low, high, side: float) -> float:
    """A distance from b beyond which no root lies on this side, inf if none was found."""
    if not (np.all(np.isfinite(low)) and np.all(np.isfinite(high))):
        return np.inf
    curved = float(np.sum(case.c * case.second))
    step = (top_sum(np.abs(case.push) + case.push_pad, k) + 1e-12) / curved if curved > 0 else 1.0
    far, near = min(step, 1.0) + float(np.mean(high - low)) / 4, 0.0
    for _ in range(_DOUBLINGS):
        if certain(side * far, side):
            break
        near, far = far, 2 * far
    else:
        return np.inf
    for _ in range(_BISECTIONS):
        if far <= _CLOSE * near or far == 0:
            break
        middle = (near + far) / 2
        near, far = (near, middle) if certain(side * middle, side) else (middle, far)
    return far
