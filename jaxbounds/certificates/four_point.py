"""The four-point inequality at a trial pair (w, t) of the new problem, from touched rows, columns and elements alone.

    G = F + B >= lam/2 ||w-w*||^2 + lam/2 ||u-w*||^2 + gamma/2 ||t-t*||_C^2 + gamma/2 ||a(w)-t*||_C^2

Everything below is an upper bound in exact arithmetic on the stored floats; see `jaxbounds.rounding`.
"""

from typing import Any

import numpy as np

from jaxbounds.array import hold, xp
from jaxbounds.certificates.ball import Ball
from jaxbounds.certificates.ledger import Ledger, Point
from jaxbounds.model import excess_bounds
from jaxbounds.pytree import pytree
from jaxbounds.rounding import TINY, U, down, growth, norm_down, norm_up, root, up


@pytree
class Move:
    """How e = w - u moves: e_delta delta + e_w w^ everywhere, `e` at the touched columns."""

    e_delta: Any
    e_w: Any
    e: Any  # (Q,)
    e_pad: Any  # (Q,) bound on its error
    excess: Any  # upper bound of sum_j [B_j - lam_j/2 e_j^2]
    off_sq: Any  # ||e||^2 over the untouched columns, and its rounding
    off_slack: Any
    square: Any  # sum_j lam_j e_j^2, and its rounding
    slack: Any
    pad: Any  # bound on the metric norm of the error of e


def euclidean_move(ledger: Ledger, point: Point, dv, dv_pad) -> Move:
    """L2 with scalar lam before and after: everything follows from ||delta||^2, delta.w^ and ||w^||^2."""
    model, edit, old, totals = ledger.model, ledger.edit, ledger.old, ledger.model.totals
    lam_old, lam_new = model.problem.penalty.strong_convexity, edit.penalty.strong_convexity
    e_delta = ledger.kappa * lam_old / lam_new
    e_w = 1.0 - e_delta
    still = (ledger.kappa == 1.0) & (lam_old == lam_new)
    e_w_pad = xp.where(still, 0.0, 8 * U * (1.0 + e_delta))
    by_delta, by_w, lam, step = edit.to_q(e_delta), edit.to_q(e_w), edit.to_q(lam_new), point.w - old.w
    kept = by_delta * old.delta + by_w * old.w
    e = kept + step - dv / lam
    size = xp.abs(by_delta * old.delta) + xp.abs(by_w * old.w) + xp.abs(step) + xp.abs(dv) / lam
    delta_pad = old.v_pad / lam_old + 8 * U * (xp.abs(old.w) + xp.abs(old.delta))
    e_pad = up(by_delta * delta_pad + dv_pad / lam + edit.to_q(e_w_pad) * xp.abs(old.w) + 8 * U * size)
    pad = e_delta * totals.delta_pad / root(lam_old) + e_w_pad * root(totals.w_w)
    pad = (pad + 8 * U * e_delta * root(totals.delta_delta)) * root(lam_new)
    whole = e_delta**2 * totals.delta_delta + 2 * e_delta * e_w * totals.delta_w + e_w**2 * totals.w_w
    bulk = (e_delta * root(totals.delta_delta) + xp.abs(e_w) * root(totals.w_w)) ** 2
    off_sq, off_slack = whole - edit.total_q(kept**2), growth(edit.d + 16) * bulk
    return _settle(ledger, e_delta, e_w, e, e_pad, xp.zeros(()), off_sq, off_slack, pad, lam_new)


def general_move(ledger: Ledger, point: Point, v, v_pad) -> Move:
    """Any penalty: what is not touched keeps its e, unless all columns are touched."""
    model, edit, old, totals, lam = ledger.model, ledger.edit, ledger.old, ledger.model.totals, ledger.lam
    live = ledger.live
    terms, e, e_pad = excess_bounds(ledger.penalty_slots, point.w, v, v_pad, lam)
    excess = up(edit.total_q(xp.where(live, terms, 0.0)), ledger.terms_q)
    off_sq, off_slack = totals.delta_delta - edit.total_q(old.delta**2), growth(edit.d + 16) * totals.delta_delta
    if not edit.all_cols:
        was = excess_bounds(model.problem.penalty.take(edit.cols), old.w, old.v, old.v_pad, lam)[0]
        was = edit.total_q(xp.where(live, was, 0.0))
        excess = excess + xp.maximum(up(totals.excess) - down(was, 64), 0.0)
    return _settle(ledger, xp.ones(()), xp.zeros(()), e, e_pad, excess, off_sq, off_slack, totals.delta_pad, None)


def _settle(ledger: Ledger, e_delta, e_w, e, e_pad, excess, off_sq, off_slack, pad, lam) -> Move:
    """Join touched and untouched columns in the metric sum_j lam_j e_j^2 (`lam` scalar, or None for lam_j)."""
    edit, totals, live = ledger.edit, ledger.model.totals, ledger.live
    zero = xp.zeros(())
    e, e_pad = xp.where(live, e, 0.0), xp.where(live, e_pad, 0.0)
    off_sq, off_slack, pad = (zero,) * 3 if edit.all_cols else (xp.maximum(off_sq, 0.0), off_slack, pad)
    lost = 4 * edit.d * TINY * (1.0 + e_delta + xp.abs(e_w)) ** 2  # squares that vanish, by themselves or times lam
    if lam is not None:
        square, slack = lam * (off_sq + edit.total_q(e**2)), lam * (off_slack + lost)
    else:
        off, slack, by_root = zero, lost, root(ledger.lam)
        if not edit.all_cols:
            off = xp.maximum(totals.delta_metric - edit.total_q((by_root * ledger.old.delta) ** 2), 0.0)
            slack = slack + growth(edit.d + 16) * totals.delta_metric
        square = off + edit.total_q((by_root * e) ** 2)
    pad = up(root(edit.total_q((root(ledger.lam) * e_pad) ** 2)) + pad, ledger.terms_q)
    return hold(Move(e_delta, e_w, e, e_pad, excess, off_sq, off_slack, square, slack, pad))


def region(ledger: Ledger, point: Point, mid: bool = True, whole_rows: bool = False) -> Ball:
    """The region that the four-point inequality gives at a trial pair, or theorem 1's (`mid` False).

    `whole_rows`: alpha moves in rows that are not full, so v gains multiples of whole old rows (`edit.rest`).
    """
    model, edit, old, gamma = ledger.model, ledger.edit, ledger.old, ledger.gamma
    v, v_pad, dv, dv_pad, beta, shrink, (moved, new, kept) = ledger.columns(point)
    point = Point(point.w, shrink * point.alpha, point.ref)
    score, s_pad = ledger.scores(point.w)
    F, T, P, a, a_pad = ledger.fenchel(point, score, s_pad)
    if edit.euclidean:
        move = euclidean_move(ledger, point, dv, dv_pad)
    else:
        move = general_move(ledger, point, v, v_pad)
    square, slack, pad, excess = move.square, move.slack, move.pad, move.excess
    alone, spare = xp.asarray(True), xp.zeros(())
    if whole_rows:
        lam = edit.penalty.strong_convexity
        square, slack, more_pad, alone, spare = spot_norm(ledger, beta, moved, new, kept, move.e_delta, move.e_w)
        square, slack, pad = square * lam, slack * lam, pad + more_pad * root(lam)
    E = hold(norm_up(xp.maximum(square, 0.0) + slack, ledger.terms_q + 8) + pad)

    half = xp.maximum(F - gamma / 4 * T, 0.0) + excess
    gap = hold(up(F + excess + E**2 / 2, 16))
    joint = xp.stack([F + excess + E**2 / 4, F + excess + E**2 / 4 + 2 * root(F * gap)])
    safe_lam = xp.where(ledger.lam_min > 0, ledger.lam_min, 1.0)
    if mid:
        theta, radius_sq = shrunk_ball(ledger, F, excess, E, gap, half)
        mu, dual_sq = xp.full((), 0.5), (half + E**2 / 4)
    else:
        theta, radius_sq, mu, dual_sq = xp.zeros_like(gap), 2 * gap, xp.zeros(()), 2 * gap
    safe_gamma = xp.where(gamma > 0, gamma, 1.0)
    radius = up(root(radius_sq), 16) + theta * up(pad) + 8 * U * theta * E
    dual = up(root(dual_sq / safe_gamma), 16)
    v_radius = up(xp.minimum(dual + mu * root(2 * F / safe_gamma), root(2 * gap / safe_gamma)), 16)

    # ||c - w^||: untouched columns move by theta e, touched ones also by the step; columns that leave are not counted
    stays = ledger.live & ~edit.col_removed
    here = (point.w - old.w - edit.to_q(theta) * move.e) ** 2
    off_slack = move.off_slack
    near = theta**2 * (move.off_sq + off_slack) + edit.total_q(xp.where(stays, here, 0.0))
    if whole_rows:
        near, off_slack = theta**2 * (square + slack) / safe_lam, slack / safe_lam
    far_pad = theta * pad / root(safe_lam) + theta * root(off_slack)
    offset = norm_up(near, ledger.terms_q + 8)
    near = norm_down(xp.maximum(near - 2 * theta**2 * spare, 0.0), edit.d + 24)  # a row's terms may cancel
    offset_low = xp.where(alone, xp.maximum(near - 2 * far_pad, 0.0), 0.0)
    return hold(Ball(
        gap=gap, radius=radius, lam_min=safe_lam, theta=theta, dual_radius=dual, mu=mu, v_radius=v_radius,
        joint=up(joint, 16), offset_low=offset_low, offset_up=up(offset + far_pad),
        reach=up((theta * E + radius) / root(safe_lam)), objective=objective(ledger, P, point.w),
        e_delta=move.e_delta, e_w=move.e_w, v_scale=ledger.kappa * shrink, w=point.w, e=move.e, e_pad=move.e_pad, v=v,
        v_pad=v_pad, alpha=point.alpha, a=a, a_pad=a_pad, score=score, score_pad=s_pad,
        beta=beta, beta_size=xp.abs(new) + xp.abs(kept),
        primal=edit.penalty.strong_convexity is not None, dual=model.problem.loss.smoothness is not None,
    ))  # fmt: skip


def shrunk_ball(ledger: Ledger, F, excess, E, gap, half):
    """(theta, radius^2): the best of the mid ball and the two smoothness-shrunk balls (theory 4.2)."""
    sigma_sq = ledger.sigma_sq()
    rho = down(ledger.gamma * ledger.lam_min / xp.maximum(sigma_sq, TINY), 8)
    rho = xp.where(sigma_sq > 1e-300, xp.minimum(rho, 1e9), 0.0)
    best = None
    for top, shrink in ((half, 0.0), (F + excess, rho), (F + excess + 2 * root(F * gap), 2 * rho)):
        theta, square = hold(((1 + shrink) / (2 + shrink), 2 * top / (2 + shrink) + (E / (2 + shrink)) ** 2))
        if best is None:
            best = theta + xp.zeros(()), square
        else:
            better = square < best[1]
            best = xp.where(better, theta, best[0]), xp.where(better, square, best[1])
    return best[0], up(best[1], 16)


def spot_norm(ledger: Ledger, beta, moved, new, kept, e_delta, e_w):
    """||w - u||^2 when v gains whole old rows, from stored norms and products; the triangle inequality joins rows.

    Returns:
        the square, its rounding slack, a bound on the error of w - u itself, whether only one row is touched (then
        the value is exact and not only an upper bound), and what the square then holds to spare for its rounding.
    """
    model, old, totals, edit = ledger.model, ledger.old, ledger.model.totals, ledger.edit
    lam = edit.penalty.strong_convexity
    by_delta, by_w = edit.to_q(e_delta), edit.to_q(e_w)
    base = edit.of_col(by_delta * old.delta + by_w * old.w)
    own = edit.of_row(new) * (edit.new - edit.old)  # what the elements themselves add to v
    dots = beta * (edit.to_r(e_delta) * old.cross + edit.to_r(e_w) * old.score) + edit.by_row(own * base)
    inner, own_sq = edit.by_row(own * edit.old), edit.by_row(own**2)
    squares = beta**2 * old.row_norm_sq + 2 * beta * inner + own_sq
    k = model.row_terms + ledger.row_sum_terms + 16
    width = model.row_terms + np.minimum(ledger.terms_e, edit.d) + 16
    row_norm = root(old.row_norm_sq)
    size = xp.abs(beta) * row_norm + root(own_sq)
    norms = root(xp.maximum(squares, 0.0) + growth(k) * size**2)
    bulk = e_delta * root(totals.delta_delta) + xp.abs(e_w) * root(totals.w_w)
    whole = e_delta**2 * totals.delta_delta + 2 * e_delta * e_w * totals.delta_w + e_w**2 * totals.w_w
    total, bulk = hold((edit.total_r(norms) / lam, bulk))
    e_sq = whole - 2 * edit.total_r(dots) / lam + total**2
    slack = 2 * bulk * edit.total_r(size) / lam + total**2
    slack = growth(edit.d + 16) * bulk**2 + growth(width + ledger.terms_r) * slack
    error = edit.total_r((xp.abs(new) + xp.abs(kept)) * row_norm + edit.by_row(xp.abs(moved)))
    alone = edit.total_r(xp.where(edit.rows < edit.n, 1.0, 0.0)) <= 1
    spare = edit.total_r(growth(k) * size**2) / lam**2
    return hold((xp.maximum(e_sq, 0.0), slack, growth(16) * error / lam, alone, spare))


def objective(ledger: Ledger, losses, w):
    """Upper bound of P~(w), for penalties without strong convexity."""
    model, edit = ledger.model, ledger.edit
    values = edit.total_q(xp.where(ledger.live, ledger.penalty_slots.value(w), 0.0))
    if not edit.all_cols:
        was = edit.total_q(xp.where(ledger.live, ledger.penalty_slots.value(ledger.old.w), 0.0))
        psi = model.totals.psi
        if edit.euclidean:  # the new penalty may be a multiple of the old one
            psi = up(psi * (edit.penalty.strong_convexity / model.problem.penalty.strong_convexity))
        values = up(values, ledger.terms_q + 8) + xp.maximum(psi - down(was, ledger.terms_q + 64), 0.0)
    return up(losses + values, ledger.terms_q + 64)
