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

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from jaxbounds.certificates.whitened import Inverse, block_terms, blocks, inverse
from jaxbounds.host import HostMatrix, host_matrix
from jaxbounds.model import Model, coordinate_pad, lam_of, score_pad
from jaxbounds.rounding import TINY, TINY_NORM, U, down, growth, norm_up, up

_ENTRIES = 5e7  # numbers of a dense copy of the data, up to which the Hessian's metric is used
_FLOPS = 3e10  # n d^2 likewise
_SIDE = 4000  # side of its kernel form, as in whitened.py
_PAIRS = 1 << 22  # products of test and training rows held at a time
_TRIES = 8  # radii tried for the ball that holds every w_S
_HALF = 0.5  # relative changes of a slope beyond which a row is counted by its leverage


@dataclass(frozen=True)
class Case:
    """The stored model in the scaling above, and what each row adds to the gradient when it leaves (or flips)."""

    loss: Any
    X: Any  # (n, d) float64, dense or CSR
    y: np.ndarray
    c: np.ndarray  # sample weights
    q: np.ndarray  # natural coordinates and their errors
    pad: np.ndarray
    second: np.ndarray  # f''(q)
    push: np.ndarray
    push_pad: np.ndarray
    own_pad: np.ndarray  # errors of sw_i l'_i themselves
    w: np.ndarray
    ridge: np.ndarray  # (d,) strong convexity of n psi
    f: np.ndarray
    f_pad: float  # its rounding, in the metric of 1/ridge
    p: np.ndarray
    p_pad: float
    shrinks: bool  # the penalty counts n - |S| rows
    relabel: bool
    slack: float  # sqrt(sum of Fenchel-Young terms) where the stored dual stands for the derivative
    least: float  # a in the penalty's metric
    hessian: bool  # the Hessian's metric applies


def make_case(model: Model, matrix: Any, keep_n: bool, relabel: bool = False) -> Case:
    """The case of a model on the host."""
    data: Any = model.data
    problem, loss, penalty = model.problem, model.problem.loss, model.problem.penalty
    n, d = matrix.shape
    rows = float(n) if problem.scale == "mean" else 1.0
    X, y, c, w = matrix.values.astype(np.float64), data.target, data.weight, model.w.astype(np.float64)
    ridge = np.asarray(lam_of(penalty, d), np.float64) * rows
    z, smooth = loss.orientation(y), loss.smoothness is not None
    s, size = X @ w, abs(X) @ np.abs(w)
    q = loss.coordinate(s, y)
    pad = coordinate_pad(q, score_pad(up(size, model.row_terms or d), model.row_terms or d))
    noise = 64 * U if loss.defined_by_ref else 20 * U  # a user's derivative is trusted to a few roundings
    lip = float(loss.smoothness) * (1 + 8 * U) if smooth else 0.0
    t = loss.dual(q, y) if smooth else model.alpha
    push, slack = c * z * t, 0.0
    own_pad = up(c * lip * pad + noise * np.abs(push)) + TINY
    if smooth:
        g, g_size = sum_rows(X, -push)
        low, high = (rows * end for end in penalty.subgradient(w))
        own = np.clip(-g, low, high)  # the subgradient that leaves the least
        f, p = own + g, own / n
        trusted = 8 if penalty.piecewise_quadratic else 64
        f_pad = growth(block_terms(n) + 6) * up(g_size, n) + n * TINY + trusted * U * (np.abs(own) + np.abs(g))
        f_pad = float(norm_up(np.sum(f_pad**2 / ridge), d + 8))
    else:  # the stored dual: f = ridge (w - u), and its Fenchel-Young terms widen the ball
        f, p = ridge * model.columns.delta, ridge * w / n
        f_pad = float(up(np.sqrt(rows) * model.totals.delta_pad + 8 * U * norm_up(np.sum(f * f / ridge), d)))
        slack = float(up(np.sqrt(rows * model.totals.fenchel)) + TINY_NORM)
    p_pad = float(16 * U * norm_up(np.sum(p * p / ridge), d))
    least = 0.0
    if smooth and penalty.quadratic:
        most = model.totals.sigma_sq * lip
        least = float(down(model.totals.lam_min / (model.totals.lam_min + most), 8))
    push_pad = own_pad
    if relabel:
        other = -c * z * loss.dual(-q, -y)  # the margin changes its sign, the orientation too
        push_pad = up(own_pad + c * lip * pad + noise * np.abs(other) + 4 * U * np.abs(push)) + TINY
        push = push - other
    hessian = smooth and penalty.quadratic and n * d <= _ENTRIES and (n <= _SIDE // 2 if n < d else n * d * d <= _FLOPS)
    shrinks = problem.scale == "mean" and not keep_n and not relabel
    return Case(
        loss, X, y, c, q, pad, np.asarray(loss.second(q, y)), push, push_pad, own_pad, w, ridge, f, f_pad, p, p_pad,
        shrinks, relabel, slack, least, hessian,
    )  # fmt: skip


def sum_rows(X, b) -> tuple[np.ndarray, np.ndarray]:
    """X^T b, and the sum of its absolute terms."""
    g, size = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for part in blocks(b.size):
        g, size = g + X[part].T @ b[part], size + abs(X[part]).T @ np.abs(b[part])
    return g, size


@dataclass(frozen=True)
class Metric:
    """Products in H^-1 of the training rows x_i with test rows x, and of both with f and p.

    The computed x.H^-1 x_i is within (share size_x + blur_x) size_i + size_x blur_i of the exact one; `root` bounds
    the norms from above.
    """

    rows: Any  # features of the training rows, None if `inverse` has them
    tests: Any
    inverse: Inverse | None
    share: float
    size: np.ndarray  # (n,)
    blur: np.ndarray
    root: np.ndarray
    size_x: np.ndarray  # (m,)
    blur_x: np.ndarray
    root_x: np.ndarray
    xf: np.ndarray  # (m,) x.H^-1 f and its error
    xf_pad: np.ndarray
    xp: np.ndarray
    xp_pad: np.ndarray
    f_size: float  # upper bounds of the norms
    p_size: float

    def products(self, part: slice) -> np.ndarray:
        """x.H^-1 x_i for some test rows and all training rows."""
        if self.inverse is not None:
            n, m = self.size.size, self.size_x.size
            return self.inverse.products(np.arange(n, n + m)[part], np.arange(n))
        found = self.tests[part] @ self.rows.T
        return found.toarray() if sp.issparse(found) else found

    def pad_of_products(self, part: slice) -> np.ndarray:
        """Bounds on the errors of `products`."""
        size, blur = self.size_x[part][:, None], self.blur_x[part][:, None]
        return up((self.share * size + blur) * self.size + size * self.blur)


def penalty_metric(case: Case, tests) -> Metric:
    """H = the penalty's strong convexity."""
    scale = 1 / np.sqrt(case.ridge)
    d = scale.size
    rows, at = _times(case.X, scale), _times(tests, scale)
    root, root_x = _norms(rows, d), _norms(at, d)
    share, none = growth(d + 12), np.zeros_like
    f, p = case.f * scale, case.p * scale
    f_size, p_size = (float(norm_up(np.sum(v * v), d + 8)) for v in (f, p))
    return Metric(
        rows, at, None, share, root, none(root), root, root_x, none(root_x), root_x,
        at @ f, up(root_x * (share * f_size + case.f_pad)), at @ p, up(root_x * (share * p_size + case.p_pad)),
        up(f_size + case.f_pad), up(p_size + case.p_pad),
    )  # fmt: skip


def hessian_metric(case: Case, tests) -> Metric | None:
    """H = hess F(w); None where it is too large or too ill-conditioned."""
    n, m, d = case.y.size, tests.shape[0], case.ridge.size
    if not case.hessian or (n + m) * d > _ENTRIES:
        return None
    ends = [case.X, tests, case.p[None]]
    stacked: Any = sp.vstack([sp.csr_array(part) for part in ends], "csr") if sp.issparse(case.X) else np.vstack(ends)
    weight = np.concatenate([case.c * case.second, np.zeros(m + 1)])

    def f_error(root):
        return case.f_pad + up(np.sum(case.own_pad * root[:n]), n)

    inv = inverse(stacked, weight, case.ridge, 40 * U, case.f, f_error)  # the rounding of l''
    if inv is None:
        return None
    at, own, last = np.arange(n, n + m), np.array([n + m]), np.array([n + m + 1])
    return Metric(
        None, None, inv, inv.share, inv.size[:n], inv.blur[:n], inv.root[:n], inv.size[at], inv.blur[at], inv.root[at],
        inv.products(at, last)[:, 0], inv.error(at, last), inv.products(at, own)[:, 0],
        up(inv.error(at, own) + inv.root[at] * case.p_pad), float(inv.root[-1]), float(up(inv.root[-2] + case.p_pad)),
    )  # fmt: skip


def _times(X, scale):
    return X * scale if isinstance(X, np.ndarray) else (X * scale[None]).tocsr()


def _norms(X, d: int) -> np.ndarray:
    square = X * X if isinstance(X, np.ndarray) else X.multiply(X).tocsr()
    return norm_up(square @ np.ones(d), d + 12)


def top_sums(terms, most: int) -> np.ndarray:
    """Sums of the k largest positive terms of each row, (rows, most) for k = 1, ..., most, rounded up."""
    n = terms.shape[-1]
    most_here = min(most, n)
    largest = terms if most_here == n else np.partition(terms, n - most_here, axis=-1)[..., n - most_here :]
    sums = np.cumsum(np.maximum(np.sort(largest, axis=-1)[..., ::-1], 0.0), axis=-1)
    if most > n:
        sums = np.concatenate([sums, np.repeat(sums[..., -1:], most - n, axis=-1)], axis=-1)
    return up(sums, most)


def factors(case: Case, metric: Metric, k: int) -> tuple[float, float]:
    """(a, b) with a H^-1 <= K_S^-1 <= b H^-1 for every set of at most k rows; b = inf where there is none."""
    gone = k / case.y.size * (1 + 4 * U) if case.shrinks else 0.0
    if metric.inverse is None:
        return case.least, float(up(1 / (1 - gone))) if gone < 1 else np.inf
    return _around_hessian(case, metric, k, gone)


def _around_hessian(case: Case, metric: Metric, k: int, gone: float) -> tuple[float, float]:
    """(a, b) around the Hessian: on ||D||_H <= r slopes change little, and r (1 - losses) >= ||g_S|| keeps w_S inside.

    On the sphere D.grad F_S(w + D) >= (1/b) r^2 - r ||g_S|| >= 0, so the minimum of the convex F_S lies in the ball.
    """
    root, c = metric.root, case.c * (1 + 8 * U)
    lever = up(c * root**2)  # times a slope: the norm of that row's part of the Hessian
    length = float(metric.f_size + k * metric.p_size * case.shrinks)
    length = float(up(length + _top((np.abs(case.push) + case.push_pad) * root, k)))
    second = case.second
    r = length
    for _ in range(_TRIES):
        reach = up(root * r) + case.pad
        low, high = case.loss.secant(case.q, -reach, reach, case.y)
        if case.relabel:  # the mirrored margin of the other label
            other = case.loss.secant(-case.q, -reach, reach, -case.y)
            lost = _top(lever * np.maximum(second - other[0], 0.0), k)
            won = _top(lever * np.maximum(other[1] - second, 0.0), k)
        else:
            lost, won = _top(lever * second, k), 0.0
        rest = 1 - up(_relative(second - low, second, lever) + lost + gone, 16)
        if not rest > 0:
            return 0.0, np.inf
        b = up(1 / rest)
        if up(b * length) <= r:
            return float(down(1 / up(1 + _relative(high - second, second, lever) + won))), float(b)
        r = float(up(b * length) * (1 + 1e-9) if r == length else 1.3 * max(r, b * length))
    return 0.0, np.inf


def _relative(change, second, lever) -> float:
    """Upper bound of ||sum_i c_i change_i x_i x_i^T|| in the metric of H >= sum_i c_i second_i x_i x_i^T.

    Small changes relative to a row's own slope count once, all together; others by the leverages of their rows.
    """
    change = np.maximum(change, 0.0) + 8 * U * second * (change != 0)
    small = change <= _HALF * second
    together = np.max(np.where(small & (change > 0), change / np.where(second > 0, second, 1.0), 0.0))
    return float(up(together + up(np.sum(np.where(small, 0.0, change * lever)), lever.size)))


def _top(terms, k: int) -> float:
    return float(top_sums(terms[None], k)[0, -1])


def moves(case: Case, metric: Metric, part: slice, ks, ends) -> tuple[np.ndarray, np.ndarray]:
    """(lower, upper) of x.(w_S - w) over all sets of at most k rows: (len(ks), part), given the factors of each k."""
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
        most = max(ks[j] for j in at)
        up_sums, down_sums = top_sums(spread - middle * P, most), top_sums(spread + middle * P, most)
        for j in at:
            low, high = _shared(case, metric, part, ks[j], middle, half, b)
            lower[j], upper[j] = low - down_sums[:, ks[j] - 1], high + up_sums[:, ks[j] - 1]
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


def stored_scores(case: Case, tests) -> tuple[np.ndarray, np.ndarray]:
    """x.w of test rows and bounds on their errors."""
    d = case.w.size
    return tests @ case.w, score_pad(up(abs(tests) @ np.abs(case.w), d), d)


def metrics_of(case: Case, tests) -> list[Metric]:
    """The metrics that apply."""
    found = hessian_metric(case, tests)
    return [penalty_metric(case, tests)] + ([] if found is None else [found])


def blocks_of_tests(case: Case, m: int) -> list[slice]:
    """Test rows that are looked at together: products with all training rows stay within 32 MB."""
    n, d = case.y.size, case.ridge.size
    size = max(1, _PAIRS // n)
    if case.hessian and n < d:
        size = min(size, _SIDE - n - 1)
    return [slice(start, min(start + size, m)) for start in range(0, m, size)]


def prepared(model: Model, matrix: HostMatrix, keep_n: bool, relabel: bool = False) -> tuple[Case, Any]:
    """(case, test rows as float64)."""
    data: Any = model.data
    case = make_case(model, host_matrix(data.matrix), keep_n, relabel)
    tests = matrix.values.astype(np.float64)
    if sp.issparse(case.X) and not sp.issparse(tests):
        tests = sp.csr_array(tests)
    elif sp.issparse(tests) and not sp.issparse(case.X):
        tests = tests.toarray()
    return case, tests

