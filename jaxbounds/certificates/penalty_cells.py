"""Where scores must lie for every penalty of a cell, from one trial point: no retraining, one product with the data.

Penalties are lam_j = lambda m_j and l1_j = mu k_j. For a trial point p (any vector), a feasible t with
F = sum_i c_i FY_i at (p, t), and v = sum_i c_i t_i x_i, convexity of the loss gives at the optimum w*, v* in d psi(w*)

    sum_j (p_j - w*_j) (v*_j - v_j) >= -F.

Strong convexity of psi_j bounds each term from above: with sigma_j in the subdifferential of |.| at p_j and E_j = 0,
or, by Fenchel and Young, with sigma_j = clip(v_j, -l1_j, l1_j) / l1_j and E_j = |p_j| l1_j (1 - sign(p_j) sigma_j),

    (p_j - w*_j) (v*_j - v_j) <= lam_j [(p_j - u_j)^2 / 4 - (w*_j - (p_j + u_j)/2)^2] + E_j,
    u = kappa s / m,  kappa = 1/lambda,  s = v - mu k sigma.

So in the norm ||x||_m^2 = sum_j m_j x_j^2, with sqrt(a^2 + b^2) <= a + b, the score x.w* is at most

    f(kappa, s) = x.(p + kappa s/m)/2 + ||x||_{1/m} (||p - kappa s/m||_m / 2 + sqrt(kappa (F + E)))

Here p, v and F do not depend on the penalty and E never falls as mu grows. With the root at its largest, f is convex in
kappa and convex in s: over a cell it is largest at the corners. As mu runs over its range s moves on a segment, but for
coordinates that cross their threshold; these leave it by no more than their own size. Where lambda and mu keep their
ratio, kappa s = kappa v - (mu kappa) k sigma is linear in kappa, and two corners are enough. With a smooth loss
t = a(p), and F is zero but for rounding: for L2 this is the half ball of the gradient at p.

With an intercept b, chosen best for p, the dual point has sum_i c_i t_i = eps, rounding alone; F grows by
|eps| |b - b*|, and b* lies between the roots of sum_i c_i l'(x_i.w + b) at both ends of the training scores.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxbounds.certificates.inverse import product, transposed
from jaxbounds.certificates.unpenalised import intercept_range
from jaxbounds.conjugate import soft
from jaxbounds.host import HostMatrix
from jaxbounds.intercept import balanced_intercept
from jaxbounds.model import coordinate_pad, fenchel_bounds
from jaxbounds.rounding import TINY, U, growth, norm_up, up


@dataclass(frozen=True)
class Cells:
    """K cells of penalties; a rectangle each, or its diagonal where `diagonal`.

    Attributes:
        lam: (2, K) least and largest factor lambda. l1: (2, K) least and largest factor mu.
    """

    lam: np.ndarray
    l1: np.ndarray
    diagonal: bool

    @property
    def kappa(self) -> np.ndarray:
        """(2, K) 1/lambda at the two ends of lambda, rounded outward."""
        return 1.0 / self.lam * np.array([[1 + 2 * U], [1 - 2 * U]])

    def corners(self):
        """(kappa (K,), which end of mu) of each corner that counts."""
        low, high = self.kappa
        if self.diagonal:
            return [(low, 0), (high, 1)]
        return [(kappa, end) for kappa in (low, high) for end in (0, 1)]


@dataclass(frozen=True)
class Rows:
    """A matrix with the norm of its rows in the dual metric: ||x||_{1/m}, rounded up."""

    matrix: HostMatrix
    reach: np.ndarray
    empty: np.ndarray

    @staticmethod
    def of(matrix: HostMatrix, metric: np.ndarray) -> "Rows":
        """The rows of a matrix."""
        square = matrix.map(np.square).matvec(1.0 / metric)
        empty = matrix.map(np.abs).matvec(np.ones(metric.size)) == 0
        return Rows(matrix, np.where(empty, 0.0, norm_up(square, matrix.row_terms + 4)), empty)


@dataclass(frozen=True)
class Training:
    """The training data: loss, rows, targets, c_i, and the bases m and k of the penalty (k None without an l1 part)."""

    loss: Any
    rows: Rows
    y: np.ndarray
    c: np.ndarray
    metric: np.ndarray
    l1: np.ndarray | None
    intercept: bool
    column: np.ndarray  # upper bounds of (sum_i c_i x_ij^2)^(1/2)

    @staticmethod
    def of(problem, matrix: HostMatrix, y, weight, metric, l1) -> "Training":
        """Training data on the host, `problem` with NumPy leaves."""
        c = weight * problem.unit(matrix.shape[0])
        column = norm_up(matrix.map(np.square).rmatvec(c), matrix.col_terms + 8)
        return Training(problem.loss, Rows.of(matrix, metric), y, c, metric, l1, problem.intercept, column)

    @property
    def smooth(self) -> bool:
        """Whether t = a(p) is known to be near the optimum."""
        return self.loss.smoothness is not None


@dataclass(frozen=True)
class Trials:
    """K trial points with their dual points."""

    p: np.ndarray  # (d, K)
    score: Any  # (n, K) x_i.p
    p_norm: np.ndarray  # (K,) ||p||_m
    v: Any  # (d, K)
    v_pad: np.ndarray  # (d, K) bound on the error of v
    F: np.ndarray  # (K,) upper bound
    b: np.ndarray  # (K,) intercepts
    eps: np.ndarray  # (K,) upper bound of |sum_i c_i t_i|, 0 without an intercept


def try_points(training: Training, p, alpha) -> Trials:
    """The trial points p (d, K); t = a(p) for a smooth loss, else alpha (n, K)."""
    loss, c, matrix = training.loss, training.c[:, None], training.rows.matrix
    n, y = matrix.shape[0], np.broadcast_to(training.y[:, None], (matrix.shape[0], p.shape[1]))
    score, b = product(matrix, p), np.zeros(p.shape[1])
    if training.intercept:
        b = np.array([balanced_intercept(loss, s, training.y, training.c) for s in score.T])
    p_norm = norm_up(np.sum(training.metric[:, None] * p**2, axis=0), p.shape[0] + 4)
    # Cauchy: |x|.|p| <= ||x||_{1/m} ||p||_m
    size = training.rows.reach[:, None] * p_norm[None, :]
    pad = growth(matrix.row_terms + 4) * (size + np.abs(b)[None, :]) + matrix.row_terms * TINY
    q = loss.coordinate(score + b[None, :], y)
    if training.smooth:
        alpha = loss.dual(q, y)
    else:
        alpha = loss.clip(alpha, y)
    fenchel = fenchel_bounds(loss, q, coordinate_pad(q, pad), alpha, y, q if training.smooth else None)[0]
    t = c * loss.orientation(y) * alpha
    t_norm = norm_up(np.sum(c * alpha**2, axis=0), n + 8)
    # Cauchy again; a user's derivative is trusted to 64 roundings
    relative = growth(matrix.col_terms + 6) + 64 * U
    v_pad = up(relative * training.column[:, None] * t_norm[None, :]) + matrix.col_terms * TINY
    eps = np.zeros(p.shape[1])
    if training.intercept:
        eps = np.abs(np.sum(t, axis=0)) + up((growth(n + 8) + 64 * U) * np.sum(np.abs(t), axis=0), n)
    return Trials(p, score, p_norm, transposed(matrix, t), v_pad, up(np.sum(c * fenchel, axis=0), n + 8), b, eps)


def cell_scores(training: Training, trials: Trials, cells: Cells, test: Rows):
    """(lower, upper), (K, m) each: the score x.w* + b* of every test row, whatever the penalty of the cell."""
    metric, p, v = training.metric[:, None], trials.p, trials.v
    high = cells.kappa[0]
    ends, excess, crossing = [v], np.zeros(p.shape[1]), np.zeros_like(p)  # s at the ends of mu
    if training.l1 is not None:
        least, most = (end[None, :] * training.l1[:, None] for end in cells.l1)
        sign = np.sign(p)
        # sigma = sign(p) where that costs less than E
        follow = (p != 0) & (high * ((least + most) / 2 - sign * v) < 2 * np.abs(p) * metric)
        excess = _excess(trials, np.where(follow, 0.0, most))
        ends = [np.where(follow, v - end * sign, soft(v, end)) for end in (least, most)]
        crossing = np.where((ends[0] == 0) != (ends[1] == 0), np.abs(ends[0] - ends[1]), 0.0)
        ends = ends[:1] if np.array_equal(least, most) else ends

    def norm(x):
        return norm_up(np.sum(x**2 / metric, axis=0), metric.size + 4)

    sizes, bases = [norm(s) for s in ends], [s / metric for s in ends]
    rounding = growth(test.matrix.row_terms + training.rows.matrix.row_terms + 32)
    slack = high * (norm(crossing) + 3 * norm(trials.v_pad))
    corners = []
    for kappa, which in cells.corners():
        end = min(which, len(ends) - 1)
        e = p - kappa[None, :] * bases[end]
        apart = norm_up(np.sum(metric * e**2, axis=0), metric.size + 4) / 2
        corners.append((kappa, end, up(apart + slack + rounding * (trials.p_norm + high * sizes[end]))))

    def root(F):
        return up(np.sqrt(up(high * up(F + excess))))

    def hull(rows: Rows, at_p, times, more):
        """Lower and upper ends over the corners, (rows, K), for the radii times apart + more."""
        at_ends = [product(rows.matrix, base) for base in bases]
        tiny = np.where(rows.empty, 0.0, rows.matrix.row_terms * TINY)[:, None]
        lower, upper = np.inf, -np.inf
        for kappa, end, apart in corners:
            middle = (at_p + kappa[None, :] * at_ends[end]) / 2
            half = up(rows.reach[:, None] * (times * apart + more)[None, :]) + tiny
            lower, upper = np.minimum(lower, middle - half), np.maximum(upper, middle + half)
        return lower, upper

    F, b_low, b_high = trials.F, 0.0, 0.0
    if training.intercept:
        # inside this ball the constrained optimum obeys the same inequality; in its interior it is w* itself
        scale = 1.0 + np.max(np.abs(trials.b)) + np.max(np.abs(trials.score))
        most = 2 * (root(F) + np.sqrt(up(high * trials.eps * scale))) + TINY
        low_score, high_score = hull(training.rows, trials.score, 2, most)
        # eps is tiny: one range will do
        whole = np.min(low_score, axis=1, keepdims=True), np.max(high_score, axis=1, keepdims=True)
        b_low, b_high = _intercepts(training, *whole)
        away = up(np.maximum(b_high - trials.b, trials.b - b_low))
        F = up(F + trials.eps * np.where(trials.eps > 0, away, 0.0))
        F = np.where(root(F) < most, F, np.inf)
        b_low, b_high = _intercepts(training, *hull(training.rows, trials.score, 1, root(F)))
    lower, upper = hull(test, product(test.matrix, p), 1, root(F))
    lower, upper = lower + b_low, upper + b_high
    if training.intercept:
        lower, upper = lower - 2 * U * np.abs(lower), upper + 2 * U * np.abs(upper)
    lower, upper = np.where(np.isnan(lower), -np.inf, lower), np.where(np.isnan(upper), np.inf, upper)
    vanishes, (b_low, b_high) = _vanishing(training, cells)
    return np.where(vanishes, b_low, lower).T, np.where(vanishes, b_high, upper).T


def _vanishing(training: Training, cells: Cells):
    """The cells (K,) where w* = 0 because |v_j| <= l1_j at w = 0, and the interval of b* there."""
    loss, y, ends = training.loss, training.y, (0.0, 0.0)
    if training.l1 is None or not training.smooth:
        return np.zeros(cells.l1.shape[1], bool), ends
    zero = try_points(training, np.zeros((training.metric.size, 1)), None)
    size = np.abs(zero.v) + zero.v_pad
    if training.intercept:  # the dual point at the true b* lies between those at the ends
        b = _intercepts(training, zero.score, zero.score)
        ends = b[0][0], b[1][0]
        low, high = (loss.dual(loss.coordinate(np.full(y.size, end), y), y) for end in ends)
        apart = np.abs(high - low) + 64 * U * (np.abs(high) + np.abs(low)) + TINY
        size = size + up(training.column[:, None] * norm_up(np.sum(training.c * apart**2), y.size + 8))
    return np.all(size <= cells.l1[0][None, :] * training.l1[:, None] * (1 - 4 * U), axis=0), ends


def _excess(trials: Trials, l1):
    """Upper bound of sum_j |p_j| (l1_j - sign(p_j) clip(v_j, -l1_j, l1_j)), (K,); none where l1_j = 0."""
    size, along = np.abs(trials.p), np.sign(trials.p) * trials.v - trials.v_pad
    room = np.clip(l1 * (1 + 4 * U) - along, 0.0, 2 * l1 * (1 + 4 * U))
    return up(np.sum(size * room, axis=0), size.shape[0] + 8)


def _intercepts(training: Training, lower, upper):
    """(low, high), (K,) each, that hold every best intercept for training scores between lower and upper, (n, K)."""
    middle = lower / 2 + upper / 2
    half = up(np.maximum(upper - middle, middle - lower)) + 4 * U * np.abs(middle)
    known: Any = training  # the loss, targets and c_i are all that is asked
    found = [intercept_range(known, s, r) for s, r in zip(middle.T, half.T, strict=True)]
    return np.array([low for low, _ in found]), np.array([high for _, high in found])
