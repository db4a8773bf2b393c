"""Leave-one-out with an unpenalised intercept, in O(log n) a row after some products with the data (host, NumPy).

Nobody penalises b, so any vector mu may be taken off all rows: x_i.w + b = (x_i - mu).w + (b + mu.w). With
a_i = c_i l''_i and mu = sum a_i x_i / sum a_i, w and b are independent to first order. Scaled as in leave_one_out.py,

    F_k(w, b) = sum_{i != k} c_i l_i + sum_j ridge_j w_j^2 / 2,      p_i = c_i l'_i,     x_i stands for x_i - mu.

First b moves to its new best value but for second-order terms: by -g_b/m_k, g_b = sum_{i != k} p_i,
m_k = sum_{i != k} a_i. There the gradient is, up to such terms, (q, 0) with

    q = sum p_i x_i + ridge w - (p_k - sigma g_b) x_k,    sigma = a_k/m_k.

Let (D, beta) lead from there to the optimum, kappa_i be the secant slopes of c_i l' on the way, S >= 0 their weighted
covariance, m = sum_{i != k} kappa_i and y = sum_{i != k} kappa_i x_i / m. For a gradient (q, g) the optimum has

    (S + diag(ridge)) D = -(q - g y),     beta = -g/m - y.D,     y = -sigma x_k within eta,

so in the metric of ridge D lies within ||q||/2 of -q/(2 ridge), and the score moves by (1 + sigma) x_k.D - g_b/m_k
within eta ||D||, up to what g leaves. How far kappa_i is from a_i, a_i - v-_i <= kappa_i <= a_i + v+_i, depends on
||D|| <= rho and |beta| <= zeta rho. The optimum over that set obeys ||D||^2 + (q - g y).D + m B^2 + g B <= 0,
B = beta + y.D, with slopes of the same kind: if this puts it into the interior, it is the optimum itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxbounds.array import to_host
from jaxbounds.certificates.row_changes import gradient
from jaxbounds.host import host_matrix
from jaxbounds.logistic import Logistic
from jaxbounds.model import Model, coordinate_pad, lam_of, score_pad
from jaxbounds.pytree import in_float64
from jaxbounds.rounding import TINY, U, growth, norm_up, up

_TRIALS = 10  # radii tried for the set that holds the optimum
_ROUNDS = 4  # times that it is shrunk


def intercept_applies(model: Model) -> bool:
    """Whether `intercept_scores` does: an intercept, L2, a logistic or piecewise quadratic loss, the data at hand."""
    problem = model.problem
    known = problem.loss.piecewise_quadratic or isinstance(problem.loss, Logistic)
    return problem.intercept and problem.penalty.quadratic and known and model.data is not None


def stored_slopes(model: Any, keep_n: bool):
    """(ridge, lip, q, pad, p, p_pad, a): p_i = c_i l'_i and a_i = c_i l''_i at the stored scores, c the sample weights.

    ridge (d,) is lam in the same units, lip >= l'', and the pads bound what the coordinates q and p are off by.
    """
    problem, memory, loss = model.problem, model.rows, model.problem.loss
    n, y, c = memory.score.size, model.data.target, model.data.weight
    ridge = np.asarray(lam_of(problem.penalty, model.w.size), np.float64)
    ridge = ridge * (1 if problem.scale == "sum" else n if keep_n else n - 1)
    lip, q = float(loss.smoothness) * (1 + 8 * U), loss.coordinate(memory.score, y)
    pad = coordinate_pad(q, score_pad(memory.score_abs, model.row_terms))
    p, a = -c * loss.orientation(y) * loss.dual(q, y), c * loss.second(q, y)
    return ridge, lip, q, pad, p, up(c * lip * pad + 20 * U * np.abs(p)) + TINY, a


@in_float64
def intercept_scores(model: Model, rows, keep_n: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(lower, upper) of x_k.w + b without row k, and where a bound that looks at all rows again may be tighter.

    Args:
        rows: (m,) integers. keep_n: as in `remove_rows`.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> from jaxbounds.certificates.left_out_intercept import intercept_scores
        >>> problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(1e3), intercept=True)
        >>> model = jb.fit(problem, np.array([[0.0], [1.0], [-1.0]]), np.array([1.0, 2.0, 3.0]), tol=1e-12)
        >>> lower, upper, _ = intercept_scores(model, np.array([0]), True)
        >>> bool(lower[0] < 2.5 < upper[0]), bool(upper[0] - lower[0] < 1e-3)
        (True, True)

    Source: theory 5 (intercept) and 4.4, with w and b made independent by centring.
    """
    here: Any = to_host(model)
    matrix: Any = host_matrix(here.data.matrix)
    loss, (n, d), c, memory = here.problem.loss, matrix.shape, here.data.weight, here.rows
    X, w, terms = matrix.values.astype(np.float64), here.w.astype(np.float64), 2 * d + 32
    ridge, lip, q, pad, p, p_pad, a = stored_slopes(here, keep_n)
    M, G_b = float(np.sum(a)), float(np.sum(p))
    M_off, G_b_off = growth(n + 8) * M, growth(n + 8) * float(np.sum(np.abs(p))) + float(up(np.sum(p_pad), n))

    # all that the rows share, in the metric of 1/ridge
    zero, center_sum = np.zeros(d), gradient(X, a, ridge, np.zeros(d))
    mu = center_sum[0] / M if M > 0 else zero
    mu_sq = float(np.sum(mu * mu / ridge))
    mu_norm = norm_up(mu_sq, d + 8)
    x_sq = matrix.map(np.square).matvec(1 / ridge)
    length = norm_up(x_sq, d + 8)
    reach, mean_length = length + mu_norm, float(a @ length) / M if M > 0 else 0.0
    t_sq, t_off = x_sq - 2 * (X @ (mu / ridge)) + mu_sq, growth(terms) * reach**2
    tau = norm_up(np.maximum(t_sq, 0.0) + up(t_off), 8)
    center_off = center_sum[1] + 4 * U * norm_up(np.sum(center_sum[0] ** 2 / ridge), d) + M_off * mu_norm
    G, G_off = gradient(X, p, ridge, w)
    G = G - G_b * mu
    G_size = norm_up(np.sum(G * G / ridge), d + 8)
    G_off = G_off + 4 * U * (G_size + 2 * abs(G_b) * mu_norm) + G_b_off * mu_norm + float(up(p_pad @ tau, n))
    along = X @ (G / ridge) - float(mu @ (G / ridge))  # x_k.G
    along_off = growth(terms) * reach * G_size

    # from here on one number for each row that leaves
    all_rows = q, pad, a, c * lip, tau
    p, p_pad, a, t_sq, t_off, tau = (values[rows] for values in (p, p_pad, a, t_sq, t_off, tau))
    along, along_off = along[rows], along_off[rows]
    m, g_b = M - a, G_b - p
    sigma, g_size = a / m, np.abs(g_b) + up(G_b_off + p_pad) + 4 * U * (np.abs(p) + abs(G_b))
    push = p - sigma * g_b
    push_off = up(p_pad + sigma * (g_size - np.abs(g_b)) + 16 * U * (np.abs(p) + sigma * g_size))
    square = G_size**2 - 2 * push * along + push**2 * t_sq
    off = 2 * np.abs(push) * along_off + push**2 * t_off + growth(terms) * (G_size + np.abs(push) * tau) ** 2
    size = norm_up(np.maximum(square, 0.0) + up(off), 8) + up(G_off + push_off * tau)  # of q

    g_off = g_size - np.abs(g_b)
    second, leave = np.full(rows.size, np.inf), Leave(M_off, center_off, m, sigma, tau, np.abs(g_b) / m, g_off, size)
    for zeta in _zetas(M, all_rows[2], all_rows[4]):
        left = np.flatnonzero(~np.isfinite(second) & (m > 0))
        vary = (_kinks if loss.piecewise_quadratic else _self_concordant)(loss, *all_rows, zeta)
        second[left] = leave.some(left).second_order(vary, zeta, float(np.max(all_rows[4])))
    first = (1 + sigma) * tau * size / 2
    score, move = memory.score[rows], push * t_sq - along
    rounding = (1 + sigma) * (along_off + np.abs(push) * t_off + push_off * tau**2 + G_off * tau)
    rounding = rounding + score_pad(memory.score_abs[rows], here.row_terms)
    rounding = rounding + 32 * U * (np.abs(score) + (1 + sigma) * (np.abs(move) + np.abs(push) * tau**2) + g_size / m)
    half = up(first + second + rounding, 64)
    half = np.where(np.isnan(half), np.inf, half)
    middle = np.where(np.isfinite(half), score + (1 + sigma) * move / 2 - g_b / m, 0.0)
    # a ball around w and what it leaves of b, which take no account of each other
    other = size / 2 * (length[rows] + mean_length)
    return middle - half, middle + half, ~(half <= other)


def _zetas(M: float, a, tau) -> list[float]:
    """Ratios of |beta| to ||D|| that may hold: beta is little more than a mean of the |x_i.D|, and usually far less."""
    if not M > 0:
        return []
    least, mean = 2.5 / np.sqrt(M), float(a @ tau) / M
    return [least + part for part in (mean / 8, mean / 4, mean / 2, float(np.max(tau)))]


Variation = Callable[[Any, Any], tuple[Any, Any, Any]]  # (rho, shift) to sums of v-_i, v+_i and of both times ||x_i||


@dataclass(frozen=True)
class Leave:
    """What the second order needs of each row that leaves: upper bounds in the metric of ridge, and m_k itself."""

    sum_off: float  # of sum a_i, and of sum a_i x_i = 0
    center_off: float
    m: np.ndarray
    sigma: np.ndarray
    tau: np.ndarray  # ||x_k||
    shift: np.ndarray  # |g_b|/m_k
    g_off: np.ndarray  # of g_b
    size: np.ndarray  # ||q||

    def some(self, at) -> Leave:
        """That of some of the rows."""
        parts = (self.m, self.sigma, self.tau, self.shift, self.g_off, self.size)
        return Leave(self.sum_off, self.center_off, *(part[at] for part in parts))

    def second_order(self, vary: Variation, zeta: float, longest: float):
        """What of the half-width is not first order; infinite where no ||D|| <= rho, |beta| <= zeta rho is certain."""
        m, tau, longest = self.m, self.tau, longest * (1 + 16 * U)
        less, more, moved = vary(self.shift / zeta, 0.0)  # while b moves
        g = up(self.shift * (np.maximum(less, more) + self.sum_off) + self.g_off + 8 * U * self.shift * m, 16)
        q_off = up(self.shift * (moved + self.center_off), 16)

        def around(rho):
            """(m, eta, ||y||, ||q - g y||) where ||D|| <= rho and |beta| <= zeta rho."""
            less, more, moved = vary(rho, self.shift)
            less, more = less + self.sum_off, more + self.sum_off
            low = np.where(m - less > 0, m - less, np.nan) * (1 - 8 * U)
            apart = up(np.maximum(less / (m * low), more / (m * (m + more))), 16)  # of 1/m and 1/m_k
            eta = up((self.center_off + moved) / low + self.sigma * m * tau * apart, 16)
            mean = np.minimum(self.sigma * tau + eta, longest)  # y is a mean of rows
            return low, np.minimum(eta, self.sigma * tau + longest), mean, up(self.size + q_off + g * mean, 16)

        rho, fits = 1.01 * self.size, np.zeros(m.size, bool)
        for _ in range(_TRIALS):
            low, _, mean, most = around(rho)
            half = np.sqrt(most**2 / 4 + g**2 / (4 * low))
            far = up(most / 2 + half, 16)
            found = np.maximum(far, up(g / (2 * low) + half / np.sqrt(low) + mean * far, 16) / zeta)
            fits = found < rho
            if np.all(fits):
                break
            rho = np.where(fits, rho, np.fmax(1.2 * found, rho))
        for _ in range(_ROUNDS):
            low, _, mean, most = around(rho)
            rho = np.fmin(rho, np.maximum(most, up(g / low + mean * most, 16) / zeta))
        low, eta, mean, most = around(rho)
        second = (1 + self.sigma) * tau * (q_off + g * mean) + g / low + eta * most
        return np.where(fits & np.isfinite(second), second, np.inf)


def _self_concordant(loss: Any, q, pad, a, lip, tau, zeta: float) -> Variation:
    """The logistic loss: f'' changes by a factor of at most e^r over a length r, its secants by (e^r - 1)/r."""
    del loss, q, lip
    way = tau + zeta
    top, first, second = np.max(way, initial=0.0), up(a @ way, a.size), up((a * way) @ tau, a.size)
    own = float(np.expm1(np.max(pad, initial=0.0))) + 64 * U  # of the computed a_i themselves
    total = up(np.array([np.sum(a), a @ tau]), a.size)
    own = own * total

    def vary(rho, shift):
        r = np.maximum(up(rho * top), 1e-4)  # (e^r - 1 - r)/r^2 rises
        slope, before = rho * (np.expm1(r) - r) / r**2 * (1 + 1e-7) * np.exp(shift), np.expm1(shift) * (1 + 8 * U)
        both = slope * first + before * total[0] + own[0]
        return both, both, slope * second + before * total[1] + own[1]

    return vary


def _kinks(loss: Any, q, pad, a, lip, tau, zeta: float) -> Variation:
    """Piecewise quadratic losses: the part of the way beyond a kink counts, 1 - dist/r of a length r."""
    gaps = [np.abs(q - kink) - 4 * U * (np.abs(q) + abs(kink) + 1.0) - pad for kink in map(float, loss.kinks)]
    dist = np.maximum(np.min(gaps, axis=0), 0.0) if gaps else np.full(q.shape, np.inf)
    start = dist / (tau + zeta) * (1 - 8 * U)
    order = np.argsort(start, kind="stable")
    order = order[np.isfinite(start[order])]
    start, lip, own = start[order], lip[order], 64 * U * np.array([np.sum(a), np.sum(a), a @ tau])

    # a slope falls only where it is not flat, and rises only where it is not the steepest
    a = a[order]
    weights = np.stack([np.where(a > 0, lip, 0.0), np.where(a < lip * (1 - 32 * U), lip, 0.0), lip * tau[order]])
    weights = np.concatenate([np.zeros((3, 1)), weights], axis=1)
    whole, before = np.cumsum(weights, axis=1), np.cumsum(weights * np.append(0.0, start), axis=1)
    noise = growth(2 * q.size + 16)

    def vary(rho, shift):
        rho = np.maximum(rho, 1e-300)
        far = rho + up(shift / zeta)  # all that lies within `shift` of the way's start counts as beyond it
        count = np.searchsorted(start, far, side="right")
        part = whole[:, count] * (1 + noise) - before[:, count] / far * (1 - noise)
        return tuple(np.maximum(part, 0.0) * up(far / rho) + own[:, None])

    return vary
