"""Leave-one-out in closed form: where row k's own score ends up in the model retrained without row k.

Without row k the retrained model minimises (the "mean" scale multiplied by its number of rows)

    F_k(w) = sum_{i != k} sw_i l_i(x_i.w) + ridge/2 ||w||^2,    ridge = lam (sum), lam n (keep_n) or lam (n - 1).

With f = grad F(w), H = hess F(w) of all rows at the stored w (each row on the piece its score lies in),
b_k = sw_k l'_k, a_k = sw_k l''_k, e_k = x_k.H^-1 x_k, h_k = x_k.H^-1 f, phi = f.H^-1 f, den = 1 - a_k e_k:

    x_k.H_k^-1 g_k = (h_k - b_k e_k)/den =: -m_k       g_k, H_k: gradient and Hessian of F_k at w
    nu_k^2 = g_k.H_k^-1 g_k = phi - 2 b_k h_k + b_k^2 e_k + a_k (h_k - b_k e_k)^2/den

    squared, and piecewise quadratic where nobody changes its piece:   x_k.w_new = x_k.w + m_k, exactly
    logistic, q = nu_k max_{i != k} sqrt(e_i/den) < 1, T = -log(1-q):  x_k.w + T(2-q)/(2q) m_k -+ T/2 nu_k sqrt(e_k/den)

Every number is an enclosure of its exact value for the stored floats. Rows that change their pieces: crossings.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from jaxbounds.array import to_host
from jaxbounds.certificates.crossings import solve
from jaxbounds.certificates.removed import ball_applies, ball_scores
from jaxbounds.certificates.row_changes import damped_newton, gradient
from jaxbounds.certificates.whitened import Inverse, inverse
from jaxbounds.host import HostMatrix, host_matrix
from jaxbounds.logistic import Logistic
from jaxbounds.model import Model, coordinate_pad, lam_of, score_pad
from jaxbounds.pytree import in_float64
from jaxbounds.rounding import TINY, TINY_NORM, U, growth, up

WIDE, ITERATED, SECOND_ORDER, EXACT = 0, 1, 2, 3
_BLOCK = 256  # candidates at a time where the mid ball is asked
_STEPS = 20  # Newton steps of one row
_FEW = 1000  # columns up to which such steps are worth while
_BUDGET = 3e8  # n d^2 summed over the rows that get them: about a second


class RemovedScores(NamedTuple):
    """lower <= x_k.w of the model retrained without row k <= upper, (m,) each, and how each was found, (m,) int8.

    how: 3 the exact new optimum up to rounding, 2 second order (logistic), 1 iterations of its own (Newton, or an
    active set left unfinished), certified by the gradient they end at, 0 the mid ball.
    """

    lower: np.ndarray
    upper: np.ndarray
    how: np.ndarray


@dataclass(frozen=True)
class State:
    """The old model in coordinates q = x_i.w (rows oriented, X = z x), and what is known of its rounding."""

    loss: Any
    X: Any  # (n, d) oriented
    y: np.ndarray
    c: np.ndarray  # sample weights
    ridge: np.ndarray  # (d,)
    w: np.ndarray
    q: np.ndarray  # coordinates
    pad: np.ndarray  # their errors
    b: np.ndarray  # c f'(q)
    b_pad: np.ndarray
    a: np.ndarray  # c f''(q)
    dist: np.ndarray  # lower bounds of the distance to the next kink, inf without kinks; negative if uncertain
    tau: np.ndarray  # ||x_i|| in the metric of 1/ridge, upper bounds
    lip: float  # Lipschitz constant of f'
    f: np.ndarray  # gradient at w
    summing: float  # bound on the rounding of that sum, in the metric of 1/ridge
    inv: Inverse

    def slopes(self, q, rows=slice(None)) -> tuple[np.ndarray, np.ndarray]:
        """f'(q) and f''(q) of the given rows, all by default."""
        return -self.loss.dual(q, self.y[rows]), self.loss.second(q, self.y[rows])


def removed_scores(model: Model, keep_n: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """(lower, upper), (n,) each: x_k.w of the model retrained without row k, for every row k.

    Args:
        model: with its data; inexact training only widens the intervals.
        keep_n: as in `remove_rows`: whether the mean still divides by n.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> from jaxbounds.certificates.leave_one_out import removed_scores
        >>> problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0), scale="sum")
        >>> model = jb.fit(problem, np.array([[1.0], [1.0], [2.0]]), np.array([1.0, 2.0, 2.0]), tol=1e-12)
        >>> lower, upper = removed_scores(model)
        >>> np.round(lower, 9).tolist(), bool(np.all(upper - lower < 1e-12))
        ([1.0, 0.833333333, 2.0], True)

    Source: theory 4.6 and 4.7: rank-one updates, self-concordance of the logistic loss.
    """
    lower, upper, _ = leave_one_out(model, keep_n=keep_n)
    return lower, upper


@in_float64
def leave_one_out(model: Model, rows=None, keep_n: bool = False) -> RemovedScores:
    """The intervals of `removed_scores` for the given rows, and how each was found.

    Args:
        model: with its data. rows: (m,) integers, all rows by default. keep_n: as in `remove_rows`.

    Returns:
        RemovedScores.

    Raises:
        ValueError: the model has no data, or a row is out of range or repeated.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> from jaxbounds.certificates.leave_one_out import EXACT, leave_one_out
        >>> model = jb.fit(jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0)), np.eye(3), np.ones(3))
        >>> bool(np.all(leave_one_out(model, [0, 2]).how == EXACT))
        True

    Source: Rad and Maleki 2020 (approximate leave-one-out), with certificates.
    """
    from jaxbounds.batches import each_row_removed  # the package imports its certificates first

    change: Any = each_row_removed(model, rows, keep_n)  # checks the rows
    rows = np.asarray(change.rows)[:, 0]
    lower, upper = np.full(rows.size, -np.inf), np.full(rows.size, np.inf)
    how = np.zeros(rows.size, np.int8)
    here = to_host(model)
    matrix: Any = host_matrix(here.data.matrix)
    with np.errstate(all="ignore"):
        state = prepare(here, matrix, keep_n)
        if state is not None:
            lower, upper, how = _closed_form(state, rows)
    ask = np.flatnonzero(how < EXACT)
    low, high = _mid_ball(model, matrix, rows[ask], keep_n)
    lower[ask], upper[ask] = np.maximum(lower[ask], low), np.minimum(upper[ask], high)
    if state is not None:
        with np.errstate(all="ignore"):
            _iterate(state, rows, lower, upper, how)
    return RemovedScores(lower, upper, how)


def prepare(model: Model, matrix: HostMatrix, keep_n: bool) -> State | None:
    """The quantities that all rows share; None where the closed form does not apply."""
    data: Any = model.data
    problem, loss = model.problem, model.problem.loss
    pieces = loss.piecewise_quadratic
    if problem.intercept or not problem.penalty.quadratic or not (pieces or isinstance(loss, Logistic)):
        return None
    n, d = matrix.shape
    rows_kept = 1 if problem.scale == "sum" else n if keep_n else n - 1
    if rows_kept == 0:
        return None
    y, c = data.target, data.weight
    X, w = _oriented(matrix, loss.orientation(y)), model.w.astype(np.float64)
    ridge = np.asarray(lam_of(problem.penalty, d), np.float64) * rows_kept
    size, square = abs(X), X * X if isinstance(X, np.ndarray) else X.multiply(X).tocsr()
    terms = model.row_terms or d
    s = X @ w
    q = s if loss.classification else s - y
    pad = coordinate_pad(q, score_pad(up(size @ np.abs(w), terms), terms))
    tau = np.sqrt(up(square @ (1 / ridge), d)) * (1 + 8 * U) + d * TINY_NORM
    lip, b, a = float(loss.smoothness) * (1 + 8 * U), -c * loss.dual(q, y), c * loss.second(q, y)
    dist = np.where(size @ np.ones(d) == 0, np.inf, _kink_distance(loss, q, pad))  # empty rows do not move
    # f' is off by l'' pad on a certain piece, by lip pad elsewhere, and by its own rounding
    certain = dist > 0
    if not pieces:
        bend = up(a * np.exp(pad) * pad, 16)
        weight_error = float(np.max(np.expm1(pad))) + 32 * U
    else:
        bend, weight_error = np.where(certain, a, c * lip) * pad, 6 * U
    rounding = 20 * U * np.abs(b) + TINY
    f, summing = gradient(X, b, ridge, w)

    def f_error(root):
        """Bound on the error of f in the metric of H^-1: ||X^T A^(1/2) z||_{H^-1} <= ||z||, rows apart otherwise."""
        bent = certain & (a > 0)
        together = np.sqrt(up(np.sum(np.where(bent, bend**2 / np.where(bent, a, 1.0), 0.0)), n))
        apart = np.sum((np.where(bent, 0.0, bend) + rounding) * root)
        return summing + together * (1 + weight_error + 8 * U) + up(apart, n)

    inv = inverse(X, a, ridge, weight_error, f, f_error)
    if inv is None:
        return None
    return State(loss, X, y, c, ridge, w, q, pad, b, up(bend + rounding), a, dist, tau, lip, f, summing, inv)


def _oriented(matrix: HostMatrix, z):
    """z_i x_i in float64."""
    X = matrix.values
    if isinstance(X, np.ndarray):
        return X.astype(np.float64) * z[:, None]
    return (X.astype(np.float64) * z[:, None]).tocsr()


def _kink_distance(loss: Any, q, pad):
    """Lower bounds of the distance from q to the next kink; inf for losses that have none."""
    gaps = [np.abs(q - kink) - 4 * U * (np.abs(q) + abs(kink) + 1.0) - pad for kink in map(float, loss.kinks)]
    return np.min(gaps, axis=0) if gaps else np.full(q.shape, np.inf)


def _closed_form(state: State, rows):
    """(lower, upper, how) of the given rows, in scores."""
    inv, n = state.inv, state.q.size
    e, h = (values[rows] for values in inv.with_last())
    last = np.full(rows.size, n)
    b, b_pad, a = np.abs(state.b[rows]), state.b_pad[rows], state.a[rows]
    e_pad, h_pad = inv.error(rows, rows) + 4 * U * np.abs(e), inv.error(rows, last) + 4 * U * np.abs(h)
    a_pad = a * (32 * U + (np.expm1(state.pad[rows]) if not state.loss.piecewise_quadratic else 0.0))
    e_up = up(e + e_pad)
    den = 1.0 - a * e
    den_pad = up(a * e_pad + a_pad * e_up + 4 * U * (1 + a * e_up))
    low = den - den_pad
    # m = (b e - h)/den with errors of all three
    top = state.b[rows] * e - h
    top_pad = up(b * e_pad + b_pad * e_up + h_pad + 4 * U * (b * e_up + np.abs(h)))
    m = top / den
    m_pad = up((top_pad + np.abs(m) * den_pad) / low + 4 * U * np.abs(m))
    phi = inv.root[n] ** 2
    flat = phi - 2 * state.b[rows] * h + b**2 * e
    flat_pad = (
        2 * (b + b_pad) * h_pad + 2 * b_pad * np.abs(h) + (b + b_pad) ** 2 * e_pad + (2 * b + b_pad) * b_pad * e_up
    )
    flat_pad = flat_pad + 16 * U * (phi + 2 * b * np.abs(h) + b**2 * e_up)
    nu_sq = np.maximum(flat + up(flat_pad, 16), 0.0) + (a + a_pad) * (np.abs(top) + top_pad) ** 2 / low
    nu = np.sqrt(up(nu_sq, 16)) * (1 + 8 * U) + TINY_NORM
    applies = (low > 0) & np.isfinite(m) & np.isfinite(nu)

    base, base_pad = _half_ball(state, rows)
    lower, upper = base - base_pad, base + base_pad
    how = np.full(rows.size, WIDE, np.int8)
    q, q_pad = state.q[rows], state.pad[rows]

    def narrow(at, centre, half, kind):
        centre, half = np.broadcast_to(centre, at.shape), up(half) + 4 * U * (np.abs(centre) + np.abs(half)) + TINY
        better = half <= base_pad[at] / 2
        lower[at] = np.fmax(lower[at], centre - half)
        upper[at] = np.fmin(upper[at], centre + half)
        how[at] = np.where(better | (kind == EXACT), kind, WIDE)

    if not state.loss.piecewise_quadratic:
        widest = np.maximum(_largest_other(inv.root[:n], rows), 0.0)
        product = up(widest / np.sqrt(low) * nu, 16)
        at = np.flatnonzero(applies & (product < 1))
        p = np.maximum(product[at], 1e-300)
        T = -np.log1p(-p)
        theta = T * (2 - p) / (2 * p)
        half = T / 2 * nu[at] * np.sqrt(e_up[at] / low[at]) + theta * (m_pad[at] + 16 * U * np.abs(m[at]))
        narrow(at, q[at] + theta * m[at], half + q_pad[at], SECOND_ORDER)
    else:
        # ||D||_H^2 = nu^2 + a m^2 bounds every move: |x_i.D| <= sqrt(e_i) ||D||_H
        step = np.sqrt(up(nu**2 + (a + a_pad) * (np.abs(m) + m_pad) ** 2, 8)) * (1 + 8 * U)
        reach = state.dist / inv.root[:n] * (1 - 4 * U)
        reach = np.where(reach < 0, -np.inf, reach)
        still = applies & (step < -_largest_other(-reach, rows))
        at = np.flatnonzero(still)
        narrow(at, q[at] + m[at], m_pad[at] + q_pad[at], EXACT)
        rest = np.flatnonzero(applies & ~still)
        centre, half, exact = solve(state, rows[rest], reach, m[rest], m_pad[rest], step[rest])
        narrow(rest, centre, half, np.where(exact, EXACT, ITERATED))
    return *_as_scores(state, rows, lower, upper), how


def _iterate(state: State, rows, lower, upper, how) -> None:
    """Newton steps of their own for rows whose label is open or whose active set is unfinished, as far as time goes."""
    n, d = state.X.shape
    if not isinstance(state.X, np.ndarray) or d > _FEW:
        return
    open_label = (lower <= 0) & (upper >= 0) & state.loss.classification
    asked = np.flatnonzero((how < EXACT) & (open_label | (how == ITERATED)) & (state.tau[rows] > 0))
    asked = asked[np.argsort(upper[asked] - lower[asked], kind="stable")][: int(_BUDGET / (n * d * d))]
    for slot in asked:
        q, half = newton(state, rows[slot])
        low, high = _as_scores(state, rows[[slot]], q - half, q + half)
        if high[0] - low[0] < upper[slot] - lower[slot]:
            lower[slot], upper[slot] = max(lower[slot], low[0]), min(upper[slot], high[0])
            how[slot] = ITERATED


def newton(state: State, k: int) -> tuple[float, float]:
    """(centre, half-width) of q_k from Newton steps on F_k: |x_k.(w_new - w)| <= tau_k ||grad F_k(w)|| for any w."""
    X, ridge, tau = state.X, state.ridge, state.tau
    c, shift = np.where(np.arange(state.c.size) == k, 0.0, state.c), 0.0 if state.loss.classification else state.y

    def derivatives(w):
        slope, second = state.slopes(X @ w - shift)
        return c * slope, c * second

    kept = damped_newton(X, ridge, state.w, derivatives, _STEPS)
    q = X @ kept - shift
    pad = coordinate_pad(q, score_pad(up(np.abs(X) @ np.abs(kept), kept.size), kept.size))
    b = c * state.slopes(q)[0]
    g, summing = gradient(X, b, ridge, kept)
    off = summing + up(np.sum((c * state.lip * pad + 20 * U * np.abs(b) + TINY) * tau), b.size)
    total = np.sqrt(up(np.sum(g * g / ridge), g.size)) * (1 + 8 * U) + off
    return float(q[k]), float(up(tau[k] * total + pad[k]))


def _as_scores(state: State, rows, lower, upper):
    """Intervals of q = y s or s - y as intervals of s."""
    y = state.y[rows]
    if state.loss.classification:
        return np.where(y > 0, lower, -upper), np.where(y > 0, upper, -lower)
    low, high = lower + y, upper + y
    return low - 2 * U * np.abs(low) - TINY, high + 2 * U * np.abs(high) + TINY


def _largest_other(values, rows):
    """max_{i != k} values_i for every k in rows, -inf if there is none."""
    if values.size == 1:
        return np.full(rows.size, -np.inf)
    first = int(np.argmax(values))
    second = np.max(np.delete(values, first))
    return np.where(rows == first, second, values[first])


def _half_ball(state: State, rows):
    """(centre, half-width) of q: the minimum of F_k lies within ||g_k||/2 of w - g_k/(2 ridge), metric ridge."""
    X, f, ridge, tau, b = state.X, state.f, state.ridge, state.tau, state.b
    bad = state.summing + up(np.sum(state.b_pad * tau), tau.size)
    f_size = np.sqrt(up(np.sum(f * f / ridge), f.size)) + bad
    xf = X[rows] @ (f / ridge)
    tau, b, b_pad = tau[rows], b[rows], state.b_pad[rows]
    slack = growth(f.size + 8) * tau * f_size + tau * bad
    square = tau**2 * (1 - growth(2 * f.size + 16))  # below ||x||^2, as tau is above
    g_sq = f_size**2 - 2 * b * xf + 2 * np.abs(b) * slack + (np.abs(b) + b_pad) ** 2 * tau**2
    g_sq = g_sq + 2 * b_pad * (np.abs(xf) + slack) + 16 * U * (f_size**2 + 2 * np.abs(b * xf) + b * b * tau**2)
    g = np.sqrt(up(np.maximum(g_sq, 0.0), 16)) * (1 + 8 * U)
    centre = state.q[rows] - (xf - b * tau**2) / 2
    error = state.pad[rows] + slack + b_pad * tau**2 + np.abs(b) * (tau**2 - square)
    error = error + 8 * U * (np.abs(centre) + np.abs(xf) + np.abs(b) * tau**2)
    return centre, up(tau * g / 2 + error, 8)


def _mid_ball(model: Model, matrix: HostMatrix, rows, keep_n: bool):
    """What `Cached` says of each row's own score."""
    if ball_applies(model) and model.alpha.size > 1:
        return ball_scores(to_host(model), rows, keep_n)
    from jaxbounds.batches import each_row_removed
    from jaxbounds.sweeps import bound_each

    lower, upper = np.empty(rows.size), np.empty(rows.size)
    for start in range(0, rows.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        at = rows[part]
        scores = bound_each(model, each_row_removed(model, at, keep_n), HostMatrix(matrix.values[at])).scores()
        lower[part], upper[part] = np.diag(np.asarray(scores.lower)), np.diag(np.asarray(scores.upper))
    return lower, upper
