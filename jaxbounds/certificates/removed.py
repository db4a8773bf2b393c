"""The score x_k.w of row k in the model retrained without row k, for many rows k at once: the mid ball, the pass.

Only row k's own score is asked for, so nothing of the size of rows x rows or rows x columns is ever formed.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jaxbounds.array import to_host, xp
from jaxbounds.certificates.four_point import region
from jaxbounds.certificates.ledger import Ledger
from jaxbounds.certificates.linear import conjugate_gradients
from jaxbounds.certificates.renewed import Gradient, NewProblem
from jaxbounds.certificates.steps import active_set
from jaxbounds.edit import Edit, scalar_l2
from jaxbounds.host import HostMatrix, host_matrix
from jaxbounds.model import Model, lam_of
from jaxbounds.rounding import TINY, U, dot_error, down, growth, norm_up, root, up
from jaxbounds.threads import in_threads

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


def ball_scores(model: Model, rows, keep_n: bool) -> tuple[Any, Any]:
    """(lower, upper) of x_k.w without row k by the mid ball (theory 4.2), in O(1) a row and without the data.

    If row k leaves, w - u = e_delta delta + e_w w^ + t_k c_k x_k / lam: all norms and products with x_k are stored.
    """
    lower, upper = np.empty(rows.size), np.empty(rows.size)

    def write(at, ends):
        lower[at], upper[at] = ends

    pieces = [slice(k, k + _ROWS) for k in range(0, rows.size, _ROWS)]
    if pieces:
        in_threads(lambda at: _ball_scores(model, rows[at], keep_n), pieces, write)
    return lower, upper


def _ball_scores(model: Model, rows, keep_n: bool):
    ledger = Ledger(model, _unlisted(model, rows, unit_without_one(model, keep_n)))
    edit, old, totals, lam = ledger.edit, ledger.old, model.totals, ledger.lam_min
    ball = region(ledger, ledger.keep(), whole_rows=True)
    terms, length = model.row_terms, norm_up(old.row_norm_sq, model.row_terms + 4)
    by_delta, by_w, by_x = ball.theta * ball.e_delta, ball.theta * ball.e_w, ball.theta * ball.beta / lam
    middle = old.score - by_delta * old.cross - by_w * old.score + by_x * old.row_norm_sq
    size = (1 + xp.abs(by_w)) * old.score_abs + by_delta * length * norm_up(totals.delta_delta, edit.d)
    size = size + ball.theta * ball.beta_size / lam * length**2
    half = ball.radius * length / root(lam) + growth(2 * terms + 64) * up(size, terms + 16) + 4 * terms * TINY
    half = up(half, 16)
    return middle - half, middle + half


def _unlisted(model: Model, rows, unit: float) -> Edit:
    """The removals of single rows, one a candidate, whose entries are not listed: v loses whole rows."""
    n, d, count = model.alpha.shape[0], model.w.shape[0], rows.shape[0]
    none, nothing = np.zeros(0, np.int32), np.zeros(0)
    return Edit(
        rows, none, none, none, nothing, nothing, np.zeros(count, bool), model.rows.target[rows], np.zeros(count),
        np.ones(count, bool), np.zeros(0, bool), np.zeros(0, bool), np.full(count, unit), np.ones(count, bool),
        model.problem.penalty, np.arange(count), np.zeros(0, np.int64), (1, 1, 1), n, d,
        all_rows=False, all_cols=False, euclidean=True, rest=True, each_penalty=False,
    )  # fmt: skip


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
