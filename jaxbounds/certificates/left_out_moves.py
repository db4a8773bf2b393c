"""Where a test row's score moves when one training row leaves, for all pairs of both, in closed form (host, NumPy).

With the notation of any_rows.py for S = {i}, a_i = sw_i l''_i, H' = H - a_i x_i x_i^T the Hessian at w without row i:

    P = x.H^-1 x_i, e = x_i.H^-1 x_i, h = x_i.H^-1 f, den = 1 - a_i e, kappa = (push_i + a_i h)/den
    x.H'^-1 g = x.H^-1 f + kappa P,      ||x||'^2 = ||x||^2 + a_i P^2/den     (Sherman and Morrison)
    nu^2 = g.H'^-1 g = f.H^-1 f + 2 push_i h + push_i^2 e + a_i (h + push_i e)^2/den

    x.(w_new - w)  lies in  -theta x.H'^-1 g  -+  rho nu ||x||'

logistic, q = nu max_j sqrt(e_j/den) < 1, T = -log(1-q):       theta = T(2-q)/(2q), rho = T/2   (self-concordance)
piecewise quadratic, and delta bounds what rows that may cross a kink change in the metric of H':
    theta = (b+a)/2, rho = (b-a)/2 with a = 1/(1+delta), b = 1/(1-delta); exact where nobody can cross.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from jaxbounds.certificates.metrics import Metric, blocks_of_tests, metrics_of
from jaxbounds.certificates.row_changes import Case, damped_newton, gradient
from jaxbounds.logistic import Logistic
from jaxbounds.model import coordinate_pad, score_pad
from jaxbounds.rounding import TINY, TINY_NORM, U, down, growth, norm_up, up

_FEW, _STEPS = 1000, 20  # columns up to which a row gets Newton steps of its own, and how many
_BUDGET = 3e8  # n d^2 summed over the rows that get them: about a second
_WIDE = 0.02  # widths relative to the move that call for them
_TRIALS = 1.0 + 1e-9, 1.1, 1.5, 2.0, 4.0  # radii of the ball that holds the new optimum, in units of nu


class Local(NamedTuple):
    """What the closed form needs of each row left out: (n,) each; infinite rho where it says nothing."""

    kappa: np.ndarray
    kappa_pad: np.ndarray
    grown: np.ndarray  # a_i/den, upper bounds
    nu: np.ndarray
    theta: np.ndarray
    rho: np.ndarray


def without_one(case: Case) -> Case:
    """The case with the penalty of one row less, where the mean divides by what is left."""
    if not case.shrinks:
        return case
    n = case.y.size
    ridge, f = case.ridge * ((n - 1) / n), case.f - case.p
    pad = 8 * U * norm_up(np.sum((np.abs(case.f) + np.abs(case.p)) ** 2 / ridge), f.size + 8)
    pad = float(up(pad + (case.f_pad + case.p_pad) * np.sqrt(n / (n - 1))))
    least = float(down(case.least * (n - 1) / n))  # lam/(lam + most) of a smaller lam
    return replace(case, ridge=ridge, f=f, f_pad=pad, least=least, shrinks=False)


def local(case: Case, metric: Metric) -> Local | None:
    """The numbers of the closed form; None for losses that have none."""
    inv, n = metric.inverse, case.y.size
    if inv is None or not (case.loss.piecewise_quadratic or isinstance(case.loss, Logistic)):
        return None
    e, h = (values[:n] for values in inv.with_last())
    rows, last = np.arange(n), np.full(n, inv.size.size - 1)
    e_pad, h_pad = inv.error(rows, rows) + 4 * U * np.abs(e), inv.error(rows, last) + 4 * U * np.abs(h)
    e_up = np.minimum(up(e + e_pad), up(metric.root**2))
    a, push, pad = up(case.c * case.second), case.push, case.push_pad
    size = np.abs(push) + pad
    den = 1 - a * e
    low = den - up(a * e_pad + 8 * U * (1 + a * e_up))
    low = np.where(low > 0, low, np.nan)
    kappa = (push + a * h) / den
    kappa_pad = pad + a * h_pad + np.abs(kappa) * (den - low) + 16 * U * (size + a * np.abs(h))
    kappa_pad = up(kappa_pad / low) + 8 * U * np.abs(kappa) + TINY
    phi = inv.root[-1] ** 2
    flat = phi + 2 * push * h + push**2 * e
    off = 2 * size * h_pad + 2 * pad * np.abs(h) + size**2 * e_pad + 2 * size * pad * e_up
    off = off + 16 * U * (phi + 2 * size * np.abs(h) + size**2 * e_up)
    top = np.abs(h + push * e) + h_pad + size * e_pad + pad * e_up + 8 * U * (np.abs(h) + size * e_up)
    square = np.maximum(flat + up(off, 16), 0.0) + a * top**2 / low
    nu = np.sqrt(up(square, 16)) * (1 + 8 * U) + TINY_NORM
    grown = up(a / low)
    theta, rho = (_kinks if case.loss.piecewise_quadratic else _self_concordant)(case, metric, nu, low)
    known = np.isfinite(nu) & np.isfinite(kappa) & np.isfinite(kappa_pad) & np.isfinite(rho)
    kappa, kappa_pad, grown, nu, theta = (np.where(known, part, 0.0) for part in (kappa, kappa_pad, grown, nu, theta))
    return Local(kappa, kappa_pad, grown, nu, theta, np.where(known, rho, np.inf))


def _self_concordant(case: Case, metric: Metric, nu, low):
    """(theta, rho) for the logistic loss."""
    order = np.argsort(metric.root)
    widest = np.full(nu.size, metric.root[order[-1]])
    widest[order[-1]] = metric.root[order[-2]] if nu.size > 1 else 0.0
    q = up(widest / np.sqrt(low) * nu, 16) + 1e-300
    T = -np.log1p(-np.where(q < 1, q, 0.5))
    rho = np.where(q < 1, up(T / 2, 16), np.inf)
    return np.where(q < 1, T * (2 - q) / (2 * q), 0.0), rho


def _kinks(case: Case, metric: Metric, nu, low):
    """(theta, rho) where rows that come within the ball of a kink may change their slopes."""
    root = metric.root
    kinks = [float(kink) for kink in case.loss.kinks]
    gaps = [np.abs(case.q - kink) - 8 * U * (np.abs(case.q) + abs(kink) + 1) - case.pad for kink in kinks]
    gap = np.min(gaps, axis=0) if gaps else np.full(nu.size, np.inf)
    never = np.where(gap > 0, np.inf, -np.inf)  # where root underflows
    gap = np.where(root > 0, gap / root * (1 - np.sign(gap) * 4 * U), never)
    order = np.argsort(gap, kind="stable")
    lever = up(case.c * float(case.loss.smoothness) * (1 + 16 * U) * root**2)
    total = np.concatenate([[0.0], up(np.cumsum(lever[order]), nu.size)])
    theta, rho, open_ = np.zeros(nu.size), np.full(nu.size, np.inf), np.isfinite(nu)
    for trial in _TRIALS:
        reach = trial * nu / np.sqrt(low) * (1 + 8 * U)
        reach = np.where(open_, reach, 0.0)
        count, inside = np.searchsorted(gap[order], reach, side="right"), gap <= reach
        own = np.where(inside, lever * (1 - growth(nu.size + 16)), 0.0)  # the row itself has left
        delta = up(np.maximum(total[count] - own, 0.0) + 4 * U * total[count]) / low * (1 + 4 * U)
        delta = np.where(count == inside, 0.0, delta)
        fits = open_ & (delta < 1) & (up(nu / np.where(delta < 1, 1 - delta, 1.0), 16) <= trial * nu)
        a, b = down(1 / (1 + delta)), up(1 / np.where(delta < 1, 1 - delta, 1.0))
        exact = delta == 0
        theta = np.where(fits, np.where(exact, 1.0, (a + b) / 2), theta)
        rho = np.where(fits, np.where(exact, 0.0, (b - a) / 2 + 4 * U), rho)
        open_ = open_ & ~fits
    return theta, rho


def left_out_moves(metric: Metric, found: Local, part: slice) -> tuple[np.ndarray, np.ndarray]:
    """(lower, upper) of x.(w_new - w): (test rows of the part, n)."""
    P, P_pad = metric.products(part), metric.pad_of_products(part)
    reach = np.abs(P) + P_pad
    xf, xf_pad = metric.xf[part][:, None], metric.xf_pad[part][:, None]
    centre = -found.theta * (xf + found.kappa * P)
    size = np.abs(found.kappa) + found.kappa_pad
    off = found.theta * (xf_pad + found.kappa_pad * reach + np.abs(found.kappa) * P_pad)
    off = off + 16 * U * found.theta * (np.abs(xf) + size * reach)
    length = np.sqrt(up(metric.root_x[part][:, None] ** 2 + found.grown * reach**2, 16)) * (1 + 8 * U)
    half = up(found.rho * found.nu * length + off, 16) + 8 * U * np.abs(centre) + TINY
    half = np.where(np.isfinite(found.rho), half, np.inf)
    return centre - half, centre + half


def single_moves(case: Case, metric: Metric, part: slice) -> tuple[np.ndarray, np.ndarray]:
    """(lower, upper) of x.(w_new - w) in the penalty's metric: (test rows of the part, n)."""
    middle, half = (1 + case.least) / 2, (1 - case.least) / 2 + 8 * U
    P, P_pad = metric.products(part), metric.pad_of_products(part)
    R, xf = metric.root_x[part][:, None], metric.xf[part][:, None]
    size = np.abs(case.push) + case.push_pad
    centre = -middle * (xf + case.push * P)
    wide = half * R * (metric.f_size + size * metric.root) + R * case.slack
    off = metric.xf_pad[part][:, None] + case.push_pad * (np.abs(P) + P_pad) + np.abs(case.push) * P_pad
    wide = up(wide + middle * off, 16) + 16 * U * (np.abs(xf) + np.abs(case.push * P)) + TINY
    return centre - wide, centre + wide


class Stepped(NamedTuple):
    """Rows with Newton steps of their own: how far w went, (r, d), and what is left of the gradient there."""

    rows: np.ndarray
    move: np.ndarray
    size: np.ndarray  # (d,) scale of the rounding of `move`, for each row
    rest: np.ndarray  # norms of the gradients in the metric of 1/ridge, upper bounds


def stepped(case: Case, metric: Metric, closed: Local | None, rows) -> Stepped:
    """Newton steps for the given rows whose intervals are wide, the widest first, as far as time goes."""
    n, d = case.y.size, case.ridge.size
    if not case.hessian or d > _FEW:
        return Stepped(np.empty(0, int), np.empty((0, d)), np.empty((0, d)), np.empty(0))
    wide = np.full(n, np.inf) if closed is None else closed.rho / np.maximum(closed.theta, TINY)
    rows = rows[wide[rows] > _WIDE]
    rows = rows[np.argsort(-wide[rows], kind="stable")][: int(_BUDGET / (n * d * d))]
    found = [_newton(case, metric.root, i) for i in rows]
    move, size, rest = (np.array([part[j] for part in found]) for j in range(3))
    return Stepped(rows, move.reshape(-1, d), size.reshape(-1, d), rest)


def _newton(case: Case, norms, i: int):
    """(w_new - w, scale of its rounding, norm of the gradient left) after damped Newton steps without row i."""
    loss, y, ridge = case.loss, case.y, case.ridge
    X = case.X if isinstance(case.X, np.ndarray) else case.X.toarray()
    c, z = np.where(np.arange(y.size) == i, 0.0, case.c), loss.orientation(y)

    def derivatives(w):
        q = loss.coordinate(X @ w, y)
        return -c * z * loss.dual(q, y), c * loss.second(q, y)

    kept = damped_newton(X, ridge, case.w, derivatives, _STEPS)
    return kept - case.w, np.abs(kept) + np.abs(case.w), _gradient_norm(case, c, kept, norms)


def _gradient_norm(case: Case, c, w, norms) -> float:
    """Upper bound of the norm of the gradient at any w for the weights c, in the metric of 1/ridge."""
    loss, y, ridge, n, d = case.loss, case.y, case.ridge, case.y.size, w.size
    q = loss.coordinate(case.X @ w, y)
    off = coordinate_pad(q, score_pad(up(abs(case.X) @ np.abs(w), d), d))
    b = -c * loss.orientation(y) * loss.dual(q, y)
    off = up(c * float(loss.smoothness) * off + 40 * U * np.abs(b)) + TINY
    g, summing = gradient(case.X, b, ridge, w)
    return float(up(norm_up(np.sum(g**2 / ridge), d + 8) + summing + up(off @ norms, n)))


def stepped_moves(metric: Metric, found: Stepped, tests) -> tuple[np.ndarray, np.ndarray]:
    """(lower, upper) of x.(w_new - w), (test rows, r): strong convexity puts w_new within the gradient of the end."""
    centre, size = tests @ found.move.T, abs(tests) @ found.size.T
    half = metric.root_x[:, None] * found.rest + growth(2 * tests.shape[1] + 8) * up(size) + TINY
    return centre - up(half), centre + up(half)


def score_moves(case: Case, metrics: list, closed: Local | None, extra: Stepped, tests):
    """(lower, upper) of x.(w_new - w), (test rows, n): the intersection of all that is known."""
    whole = slice(0, tests.shape[0])
    lower, upper = single_moves(case, metrics[0], whole)
    if closed is not None:
        low, high = left_out_moves(metrics[1], closed, whole)
        lower, upper = np.fmax(lower, low), np.fmin(upper, high)
    low, high = stepped_moves(metrics[0], extra, tests)
    lower[:, extra.rows] = np.fmax(lower[:, extra.rows], low)
    upper[:, extra.rows] = np.fmin(upper[:, extra.rows], high)
    return lower, upper


def moves_of_tests(case: Case, tests, rows):
    """The intervals of `score_moves` for blocks of test rows, given the rows whose own influence is asked for."""
    extra = None
    for block in blocks_of_tests(case, tests.shape[0]):
        metrics = metrics_of(case, tests[block])
        closed = local(case, metrics[1]) if len(metrics) > 1 else None
        extra = stepped(case, metrics[0], closed, rows) if extra is None else extra
        yield block, *score_moves(case, metrics, closed, extra, tests[block])
