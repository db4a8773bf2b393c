"""The score x_k.w of row k in the model retrained without row k, for many rows k at once: the mid ball, the pass.

Only row k's own score is asked for, so nothing of the size of rows x rows or rows x columns is ever formed.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jaxbounds.array import to_host
from jaxbounds.certificates.linear import conjugate_gradients
from jaxbounds.certificates.renewed import Gradient, NewProblem
from jaxbounds.certificates.steps import active_set
from jaxbounds.edit import scalar_l2
from jaxbounds.host import HostMatrix, host_matrix
from jaxbounds.model import Model, gamma_of, lam_of
from jaxbounds.rounding import TINY, TINY_NORM, U, dot_error, down, growth, norm_up, root, up

_BLOCK = 1 << 22  # numbers of a block of scores or coefficients
_ROWS = 4096  # rows whose vectors stay in the cache


def ball_applies(model: Model) -> bool:
    """Whether `ball_scores` does: L2 with one lam, no intercept."""
    return scalar_l2(model.problem.penalty, 0) and not model.problem.intercept


def pass_applies(model: Model) -> bool:
    """Whether `pass_scores` does: a smooth loss, L2 or elastic net, no intercept, the data at hand."""
    problem = model.problem
    fine = problem.loss.smoothness is not None and problem.penalty.strong_convexity is not None
    return fine and problem.penalty.piecewise_quadratic and not problem.intercept and model.data is not None


def unit_without_one(model: Model, keep_n: bool) -> float:
    """c_i of a sample weight of one after one row has left."""
    n = model.alpha.shape[0]
    return model.problem.unit(n if keep_n else n - 1)


def ball_scores(model: Model, rows, keep_n: bool) -> tuple[np.ndarray, np.ndarray]:
    """(lower, upper) of x_k.w without row k by the mid ball (theory 4.2), in O(1) a row and without the data (host).

    If row k leaves, w - u is e = kappa delta + (1 - kappa) w^ + t x_k, kappa = c_new/c_old, t = c_k t_k/lam. With

        g = kappa x_k.delta + (1 - kappa) x_k.w^,      x_k.e = g + t ||x_k||^2,
        ||e||^2 = ||kappa delta + (1 - kappa) w^||^2 + t (g + x_k.e)

    all is in the stored numbers of row k, and x_k.w within ||x_k|| R of x_k.w^ - theta x_k.e.
    """
    old, orient = model.rows, model.problem.loss.orientation
    vectors = orient(old.target) * model.alpha, old.weight, old.fenchel, old.square, old.norm_sq
    vectors = *vectors, old.cross, old.score, old.score_abs
    if rows.size < model.alpha.size or np.any(rows[1:] < rows[:-1]):
        vectors = tuple(vector[rows] for vector in vectors)
    lower, upper, ends = np.empty(rows.size), np.empty(rows.size), _ball(model, unit_without_one(model, keep_n))
    for k in range(0, rows.size, _ROWS):
        part = slice(k, k + _ROWS)
        low, high = ends(*(vector[part] for vector in vectors))
        lower[part], upper[part] = np.fmax(low, -np.inf), np.fmin(high, np.inf)  # NaN says nothing
    return lower, upper


def _ball(model: Model, unit: float):
    """`ball_scores` as a function of blocks of the rows' stored numbers, with what all rows share made once."""
    totals, loss, d = model.totals, model.problem.loss, model.w.size
    lam, gamma, terms = float(model.totals.lam_min), float(gamma_of(loss)), int(model.row_terms)
    kappa = unit / model.problem.unit(model.alpha.size)
    by_w, by_w_pad = 1 - kappa, 0.0 if kappa == 1 else 8 * U * (1 + kappa)
    base_sq = kappa**2 * totals.delta_delta + 2 * kappa * by_w * totals.delta_w + by_w**2 * totals.w_w
    delta_size, w_size = float(root(totals.delta_delta)), float(root(totals.w_w))
    bulk, close = kappa * delta_size + abs(by_w) * w_size, growth(terms + 24)
    base_sq = max(float(base_sq), 0.0) + growth(d + 16) * bulk**2
    pad = kappa * totals.delta_pad / root(lam) + by_w_pad * w_size + 8 * U * kappa * delta_size
    pad, tiny = float(up(pad)) + 8 * TINY_NORM, np.sqrt(terms + 4.0) * TINY_NORM
    fenchel = float(up(kappa * totals.fenchel, 16) / lam)
    square = float(down(kappa * totals.square, 16) * gamma / (4 * lam))
    least, most = down(unit / lam, 12), up(unit * gamma / (4 * lam), 12)
    sigma_sq = up(kappa * float(totals.sigma_sq), 17)
    rho = min(down(gamma * lam / max(sigma_sq, TINY)), 1e9) if sigma_sq > 1e-300 else 0.0
    above, last = 1 + growth(24), 1 + growth(64)
    rounding = up(growth(2 * terms + 80), terms + d)

    def ends(dual, weight, fenchels, squares, norm_sq, cross, score, score_abs):
        t, length = weight * dual * (unit / lam), np.sqrt(norm_sq) * (1 + growth(terms + 6)) + tiny
        g = kappa * cross + by_w * score
        reach, size = g + t * norm_sq, np.abs(t) * length
        e_sq = np.maximum(base_sq + t * (g + reach), 0.0) + close * size * (size + 2 * bulk)
        off = growth(16) * size + pad  # of e itself
        e = np.sqrt(e_sq) * above + off
        F = np.maximum(fenchel - least * (weight * fenchels), 0.0)
        T = np.maximum(square - most * (weight * squares), 0.0)
        # the mid ball, and those that smoothness shrinks
        e_sq = e * e
        theta, R_sq = 0.5, np.maximum(F - T, 0.0) + 0.25 * e_sq
        if rho > 0:
            joint = F + 2 * above * np.sqrt(F * (F + 0.5 * e_sq))
            for top, shrink in ((F, rho), (joint, 2 * rho)):
                other = (2 / (2 + shrink)) * top + (1 / (2 + shrink) ** 2) * e_sq
                better = other < R_sq
                R_sq = np.minimum(R_sq, other)
                theta = np.where(better, (1 + shrink) / (2 + shrink), theta)
        R = above * np.sqrt(R_sq) + theta * (above * off + 8 * U * e)
        middle = score - theta * reach
        size = (kappa * delta_size + size) * length + abs(by_w) * score_abs
        half = last * R * length + rounding * (score_abs + theta * size) + 4 * terms * TINY
        return middle - half, middle + half

    return ends


def pass_scores(model: Model, rows, keep_n: bool, steps: int = 5, told=None) -> tuple[np.ndarray, np.ndarray]:
    """(lower, upper) of x_k.w without row k by the pass certificate (theory 4.4), many rows k in one pass (host).

    A block of problems shares each product with the data: conjugate gradients on every row's own Hessian, then one
    exact gradient at every row's own end point. Costs about 2 steps + 5 products with the data and one vector a row.

    Args:
        told: called with the number of rows done after each block; True stops there.
    """
    model = to_host(model)
    data: Any = model.data
    matrix: Any = host_matrix(data.matrix).map(lambda x: x)  # in float64
    magnitude, (n, d) = matrix.map(np.abs), matrix.shape
    lower, upper = np.full(rows.size, -np.inf), np.full(rows.size, np.inf)
    size, unit = max(1, min(256, _BLOCK // (n + d))), unit_without_one(model, keep_n)
    sigma_sq = up(unit / model.problem.unit(n) * model.totals.sigma_sq)
    for start in range(0, rows.size, size):
        part = slice(start, start + size)
        problem = _without_each(model, matrix, magnitude, rows[part], unit)
        at = _newton_points(model, problem, rows[part], unit, steps)
        lower[part], upper[part] = _own_scores(problem, at, matrix.values[rows[part]], sigma_sq)
        if told is not None and told(min(start + size, rows.size)):
            break
    return lower, upper


def _without_each(model: Model, matrix: HostMatrix, magnitude: HostMatrix, rows, unit: float) -> NewProblem:
    """The problems without each of the rows side by side: y and c are (n, B), what belongs to columns is (d, 1)."""
    (n, d), count, penalty = matrix.shape, rows.size, model.problem.penalty
    y = np.broadcast_to(model.rows.target[:, None], (n, count))
    c = np.repeat(model.rows.weight[:, None] * unit, count, axis=1)
    c[rows, np.arange(count)] = 0.0
    lam = lam_of(penalty, d)[:, None]
    penalty = jax.tree.map(lambda leaf: leaf[:, None] if np.ndim(leaf) == 1 else leaf, penalty)
    return NewProblem(model.problem.loss, penalty, matrix, magnitude, y, c, lam, np.ones((d, 1), bool), False)


def _newton_points(model: Model, problem: NewProblem, rows, unit: float, steps: int) -> Gradient:
    """The gradient of every problem after a Newton step from w^ by conjugate gradients; any end point is valid."""
    loss, matrix, (n, count) = problem.loss, problem.matrix, problem.c.shape
    y = model.rows.target
    q = loss.coordinate(model.rows.score, y)
    t = loss.orientation(y) * loss.dual(q, y)
    c = model.rows.weight * unit
    own = _dense(matrix.values[rows]).T
    v = matrix.rmatvec(c * t)[:, None] - own * (c * t)[rows]
    w = np.broadcast_to(model.w.astype(np.float64)[:, None], v.shape)
    low, high = problem.subgradient(w)
    none, g = np.zeros(0), np.clip(v, low, high) - v
    start = Gradient(w, none, none, np.broadcast_to(q[:, None], (n, count)), none, none, v, g, none)

    moving, leaving, b = active_set(problem, start)
    weights, ridge = problem.slope_weights(start.q), problem.ridge(w)

    def times(p):
        return np.where(moving, ridge * p + matrix.rmatvec(weights * matrix.matvec(p)), 0.0)

    end = w + leaving + conjugate_gradients(times, b, steps, total=lambda x: x.sum(axis=0))
    if not problem.penalty.smooth:
        end = np.where(w * end < 0, 0.0, end)  # stops at a kink that it would cross
    return problem.gradient(end)


def _own_scores(problem: NewProblem, at: Gradient, rows, sigma_sq):
    """Each problem's ball around its point, as `gradient_ball` has it, asked for its own row only."""
    lam, x, d = problem.lam, _dense(rows).T, problem.lam.shape[0]
    rho = np.zeros(())
    if problem.penalty.quadratic:
        rho = down(2 * np.min(lam) / (problem.loss.smoothness * np.maximum(sigma_sq, TINY)), 8)
        rho = np.where(sigma_sq > 1e-300, np.minimum(rho, 1e9), 0.0)
    centre = at.w - (1 + rho) / (2 + rho) * at.g / lam

    def length(squares):
        return norm_up(np.sum(squares, axis=0), d + 4)

    radius = up(length(at.g**2 / lam) / (2 + rho) + length(at.pad**2 / lam), 16)
    rounding = up(4 * U * length((np.abs(at.w) + np.abs(at.g) / lam) ** 2))
    half = radius * length(x**2 / lam) + rounding * length(x**2)
    half = up(half + dot_error(np.sum(np.abs(x * centre), axis=0), d + 4))
    middle = np.sum(x * centre, axis=0)
    return middle - half, middle + half


def _dense(rows) -> np.ndarray:
    return np.asarray(rows if isinstance(rows, np.ndarray) else rows.toarray(), np.float64)
