"""The four-point inequality at a trial pair (w, t) of the new problem, from touched rows, columns and elements alone.

    G = F + B >= lam/2 ||w-w*||^2 + lam/2 ||u-w*||^2 + gamma/2 ||t-t*||_C^2 + gamma/2 ||a(w)-t*||_C^2

Everything below is an upper bound in exact arithmetic on the stored floats; see `jaxbounds.rounding`.
"""

from typing import Any

from jaxbounds.array import segment_sum, xp
from jaxbounds.certificates.region import Region
from jaxbounds.edit import Edit
from jaxbounds.model import (
    Model,
    coordinate_pad,
    excess_bounds,
    fenchel_bounds,
    gamma_of,
    known_ref,
    lam_of,
    loss_bound,
    score_pad,
)
from jaxbounds.pytree import pytree
from jaxbounds.rounding import TINY, U, down, growth, norm_down, norm_up, root, up


@pytree
class Old:
    """The model's memory at the touched slots (zero for added and padding slots)."""

    alpha: Any
    ref: Any
    target: Any
    weight: Any
    score: Any
    score_abs: Any
    cross: Any
    row_norm_sq: Any
    fenchel: Any
    square: Any
    w: Any
    v: Any
    v_pad: Any
    delta: Any
    norm_sq: Any
    negative: Any
    positive: Any


@pytree
class Point:
    """A trial pair: w at the touched columns, alpha (and where it was taken) at the touched rows."""

    w: Any
    alpha: Any
    ref: Any


def take(vector, slots):
    """vector[slots], zero past the end; nothing else of the vector is read."""
    size = vector.shape[0]
    return xp.where(slots < size, vector[xp.minimum(slots, size - 1)], 0.0)


def recall(model: Model, edit: Edit) -> Old:
    """Gather the touched part of the memory."""
    rows, columns, r, q = model.rows, model.columns, edit.rows, edit.cols
    return Old(
        take(model.alpha, r), take(model.ref, r), xp.where(r < model.alpha.shape[0], take(rows.target, r), 1.0),
        take(rows.weight, r), take(rows.score, r), take(rows.score_abs, r), take(rows.cross, r), take(rows.norm_sq, r),
        take(rows.fenchel, r), take(rows.square, r), take(model.w, q).astype(xp.float64), take(columns.v, q),
        take(columns.v_pad, q), take(columns.delta, q), take(columns.norm_sq, q), take(columns.negative, q),
        take(columns.positive, q),
    )  # fmt: skip


class Ledger:
    """The sums of one edit: how scores, v, norms and Fenchel-Young terms move at a trial pair."""

    def __init__(self, model: Model, edit: Edit):
        problem = model.problem
        self.model, self.edit, self.old = model, edit, recall(model, edit)
        self.loss, self.penalty = problem.loss, edit.penalty
        self.gamma = gamma_of(problem.loss)
        self.kappa = edit.unit / problem.unit(model.alpha.shape[0])
        self.slots_r, self.slots_q = edit.rows.shape[0], edit.cols.shape[0]
        self.row_sum_terms = min(edit.row.shape[0], edit.d)
        self.col_sum_terms = min(edit.row.shape[0], edit.n)
        self.full = edit.full[xp.minimum(edit.row, self.slots_r - 1)]
        self.live = edit.cols < edit.d
        self.c = edit.weight * edit.unit
        self.c_kept = self.old.weight * edit.unit  # kappa c of the old row
        self.penalty_slots = edit.penalty.take(edit.cols)
        self.lam = lam_of(self.penalty_slots, self.slots_q)
        strong = edit.penalty.strong_convexity
        self.lam_min = xp.zeros(()) if strong is None else (xp.min(strong) if edit.all_cols else self._lam_min(strong))
        self.euclidean = both_euclidean(problem.penalty, edit.penalty)

    def _lam_min(self, strong):
        # without all columns the penalty is the old one (its minimum is stored) or a scalar
        return strong if xp.ndim(strong) == 0 else self.model.totals.lam_min

    def by_row(self, x):
        return segment_sum(x, self.edit.row, self.slots_r)

    def by_col(self, x):
        return segment_sum(x, self.edit.col, self.slots_q)

    def of_row(self, x):
        return x[xp.minimum(self.edit.row, self.slots_r - 1)]

    def of_col(self, x):
        return x[xp.minimum(self.edit.col, self.slots_q - 1)]

    def keep(self) -> Point:
        """The old pair: w^ (0 in columns that leave), alpha^ (a(w^) in rows that are new or whose target moved)."""
        old, edit = self.old, self.edit
        w = xp.where(edit.col_removed, 0.0, old.w)
        fresh = edit.rows >= self.model.alpha.shape[0]
        if self.loss.defined_by_ref and not self.loss.classification:
            fresh |= edit.target != old.target  # a flipped label keeps alpha; a moved target needs a new ref
        new = self.suggest(w)
        return Point(w, xp.where(fresh, new.alpha, old.alpha), xp.where(fresh, new.ref, old.ref))

    def suggest(self, w) -> Point:
        """alpha = a(w) in all touched rows: their F is zero."""
        q = self.loss.coordinate(self.scores(w)[0], self.edit.target)
        return Point(w, self.loss.dual(q, self.edit.target), q)

    def scores(self, w):
        """(x~_i.w at the touched rows, bound on its rounding error)."""
        edit, old = self.edit, self.old
        now, was = edit.new * self.of_col(w), xp.where(self.full, 0.0, edit.old * self.of_col(old.w))
        score = xp.where(edit.full, 0.0, old.score) + self.by_row(now - was)
        size = xp.where(edit.full, 0.0, old.score_abs) + self.by_row(xp.abs(now) + xp.abs(was))
        return score, score_pad(size, self.model.row_terms + self.row_sum_terms + 4)

    def row_norms_sq(self):
        """Upper bound of ||x~_i||^2 at the touched rows."""
        edit = self.edit
        base = xp.where(edit.full, 0.0, self.old.row_norm_sq)
        gain, loss = self.by_row(edit.new**2), self.by_row(xp.where(self.full, 0.0, edit.old**2))
        k = self.model.row_terms + self.row_sum_terms + 4
        return xp.maximum(base + gain - loss, 0.0) + growth(k) * (base + gain + loss) + TINY

    def column_norms_sq(self):
        """Upper bound of N_j = sum_i c~_i x~_ij^2 at the touched columns."""
        edit = self.edit
        base = self.kappa * self.old.norm_sq
        gain = self.by_col(self.of_row(self.c) * edit.new**2)
        loss = self.by_col(self.of_row(self.c_kept) * edit.old**2)
        k = self.model.alpha.shape[0] + self.col_sum_terms + 8
        return xp.maximum(base + gain - loss, 0.0) + growth(k) * (base + gain + loss) + TINY

    def domain_sums(self):
        """(S-_j, S+_j) of the new problem at the touched columns, rounded outward."""
        edit, old, loss = self.edit, self.old, self.loss
        new = self.of_row(self.c * loss.orientation(edit.target)) * edit.new
        was = self.of_row(self.c_kept * loss.orientation(old.target)) * edit.old
        k = self.model.alpha.shape[0] + self.col_sum_terms + 8
        slack = growth(k) * (self.kappa * (old.positive - old.negative) + self.by_col(xp.abs(new) + xp.abs(was)))
        low = self.kappa * old.negative + self.by_col(xp.minimum(new, 0.0) - xp.minimum(was, 0.0)) - slack
        high = self.kappa * old.positive + self.by_col(xp.maximum(new, 0.0) - xp.maximum(was, 0.0)) + slack
        return low - TINY, high + TINY

    def sigma_sq(self):
        """Upper bound of ||C~^(1/2) X~||_2^2: rows that are full come anew, the others add a Frobenius norm."""
        edit = self.edit
        base = self.kappa * self.model.totals.sigma_sq
        c, kept = self.of_row(self.c), self.of_row(self.c_kept)
        spot = xp.sum(xp.where(self.full, 0.0, c * (edit.new - edit.old) ** 2))
        fresh = xp.sum(xp.where(self.full, c * edit.new**2, 0.0))
        moved = xp.sum((root(c) * edit.new - root(kept) * edit.old) ** 2)
        anew = (root(base) + root(spot)) ** 2 + fresh
        return up(xp.minimum(anew, (root(base) + root(moved)) ** 2), edit.row.shape[0] + 16)

    def fenchel(self, point: Point, score, pad):
        """(F, lower bound of ||t - a||_C^2, sum of losses) of the new problem, and a with its error at the slots."""
        edit, old, totals, loss = self.edit, self.old, self.model.totals, self.loss
        y = edit.target
        q = loss.coordinate(score, y)
        q_pad = coordinate_pad(q, pad)
        fy, square = fenchel_bounds(loss, q, q_pad, point.alpha, y, known_ref(loss, edit.penalty, point.ref))
        live = self.c > 0
        k = self.slots_r + 4
        F = up(xp.sum(xp.where(live, self.c * fy, 0.0)), k)
        T = down(xp.sum(xp.where(live, self.c * square, 0.0)), k)
        P = up(xp.sum(xp.where(live, self.c * loss_bound(loss, q, q_pad, y), 0.0)), k)
        if not edit.all_rows:
            gone = down(xp.sum(self.c_kept * old.fenchel), k)
            F = F + xp.maximum(up(self.kappa * totals.fenchel) - gone, 0.0)
            gone = up(xp.sum(self.c_kept * old.square), k)
            T = T + xp.maximum(down(self.kappa * totals.square) - gone, 0.0)
            q_old = loss.coordinate(old.score, old.target)
            lost = xp.sum(self.c_kept * xp.maximum(loss.value(q_old, old.target), 0.0))
            P = P + xp.maximum(up(self.kappa * totals.loss) - down(lost, 64 + k), 0.0)
        a = loss.dual(q, y)
        smooth = 0.0 if loss.smoothness is None else q_pad * loss.smoothness
        return up(F), T, up(P), a, up(smooth + 16 * U * xp.abs(a))

    def columns(self, point: Point):
        """How v moves: (v, its error, change, error of the change, whole-row multiples, shrink of alpha, parts).

        A bounded domain of psi* (L1) shrinks alpha, and with it v, until v fits.
        """
        edit, old = self.edit, self.old
        new = self.c * self.loss.orientation(edit.target) * point.alpha
        kept = self.c_kept * self.loss.orientation(old.target) * old.alpha
        gain, loss = self.of_row(new) * edit.new, self.of_row(xp.where(edit.full, kept, new)) * edit.old
        dv, dv_abs = self.by_col(gain - loss), self.by_col(xp.abs(gain) + xp.abs(loss))
        v = self.kappa * old.v + dv
        dv_pad = growth(self.col_sum_terms + 12) * dv_abs
        v_pad = up(self.kappa * old.v_pad + dv_pad + 4 * U * xp.abs(self.kappa * old.v)) + TINY
        beta = xp.where(edit.full, 0.0, new - kept)
        shrink = xp.ones(())
        bound = edit.penalty.dual_bound
        if bound is not None:
            room = bound / xp.maximum(xp.abs(v) + v_pad, TINY)
            shrink = xp.minimum(1.0, xp.min(xp.where(self.live, room, xp.inf)) * (1 - 8 * U))
            v, v_pad = shrink * v, up(shrink * v_pad + 2 * U * xp.abs(v))
        return v, v_pad, dv, dv_pad, beta, shrink, (gain - loss, new, kept)


def both_euclidean(old, new) -> bool:
    """L2 with scalar lam before and after: e moves by multiples of whole stored vectors."""
    return all(p.quadratic and xp.ndim(p.strong_convexity) == 0 for p in (old, new))


def region(ledger: Ledger, point: Point, mid: bool = True, whole_rows: bool = False) -> Region:
    """The region that the four-point inequality gives at a trial pair, or theorem 1's (`mid` False).

    `whole_rows`: alpha moves in rows that are not full, so v gains multiples of whole old rows (`edit.rest`).
    """
    model, edit = ledger.model, ledger.edit
    old, totals, gamma = ledger.old, model.totals, ledger.gamma
    v, v_pad, dv, dv_pad, beta, shrink, (moved, new, kept) = ledger.columns(point)
    point = Point(point.w, shrink * point.alpha, point.ref)
    score, s_pad = ledger.scores(point.w)
    F, T, P, a, a_pad = ledger.fenchel(point, score, s_pad)
    lam, live = ledger.lam, ledger.live
    step = point.w - old.w

    if ledger.euclidean:
        lam_old, lam_new = model.problem.penalty.strong_convexity, edit.penalty.strong_convexity
        e_delta = ledger.kappa * lam_old / lam_new
        e_w = 1.0 - e_delta
        still = (ledger.kappa == 1.0) & (lam_old == lam_new)
        e_w_pad = xp.where(still, 0.0, 8 * U * (1.0 + e_delta))
        e = e_delta * old.delta + e_w * old.w + step - dv / lam_new
        size = xp.abs(e_delta * old.delta) + xp.abs(e_w * old.w) + xp.abs(step) + xp.abs(dv) / lam_new
        delta_pad = old.v_pad / lam_old + 8 * U * (xp.abs(old.w) + xp.abs(old.delta))
        e_pad = up(e_delta * delta_pad + dv_pad / lam_new + e_w_pad * xp.abs(old.w) + 8 * U * size)
        excess = xp.zeros(())
        scale = root(lam_new)
        rest_pad = e_delta * totals.delta_pad / root(lam_old) + e_w_pad * root(totals.w_w)
        rest_pad = (rest_pad + 8 * U * e_delta * root(totals.delta_delta)) * scale
        kept_sq = (e_delta * old.delta + e_w * old.w) ** 2
        whole = e_delta**2 * totals.delta_delta + 2 * e_delta * e_w * totals.delta_w + e_w**2 * totals.w_w
        bulk = (e_delta * root(totals.delta_delta) + xp.abs(e_w) * root(totals.w_w)) ** 2
        rest_sq, rest_metric, slack_sq = whole - xp.sum(kept_sq), None, growth(edit.d + 16) * bulk
    else:
        e_delta, e_w, scale = xp.ones(()), xp.zeros(()), xp.ones(())
        terms, e, e_pad = excess_bounds(ledger.penalty_slots, point.w, v, v_pad, lam)
        excess = up(xp.sum(xp.where(live, terms, 0.0)), ledger.slots_q)
        if not edit.all_cols:
            was = excess_bounds(model.problem.penalty.take(edit.cols), old.w, old.v, old.v_pad, lam)[0]
            excess = excess + xp.maximum(up(totals.excess) - down(xp.sum(xp.where(live, was, 0.0)), 64), 0.0)
        rest_pad = totals.delta_pad
        rest_sq = totals.delta_delta - xp.sum(old.delta**2)
        rest_metric = totals.delta_metric - xp.sum(lam * old.delta**2)
        slack_sq = growth(edit.d + 16) * totals.delta_delta
    e, e_pad = xp.where(live, e, 0.0), xp.where(live, e_pad, 0.0)
    if edit.all_cols:
        rest_sq, slack_sq, rest_metric, rest_pad = (xp.zeros(()),) * 4
    rest_sq = xp.maximum(rest_sq, 0.0)
    if ledger.euclidean:
        e_sq, e_sq_slack = lam_new * (rest_sq + xp.sum(e**2)), lam_new * slack_sq
    else:
        metric_slack = xp.zeros(()) if edit.all_cols else growth(edit.d + 16) * totals.delta_metric
        e_sq, e_sq_slack = xp.maximum(rest_metric, 0.0) + xp.sum(lam * e**2), metric_slack
    pad = up(root(xp.sum(lam * e_pad**2)) + rest_pad, ledger.slots_q)
    off_sq, off_slack = rest_sq, slack_sq  # ||e||^2 over untouched columns

    alone = xp.asarray(True)
    if whole_rows:
        e_sq, more_slack, more_pad, alone = spot_norm(ledger, beta, moved, new, kept, e_delta, e_w)
        e_sq, e_sq_slack, pad = e_sq * lam_new, more_slack * lam_new, pad + more_pad * scale
    E = norm_up(xp.maximum(e_sq, 0.0) + e_sq_slack, ledger.slots_q + 8) + pad

    half = xp.maximum(F - gamma / 4 * T, 0.0) + excess
    gap = up(F + excess + E**2 / 2, 16)
    joint = xp.stack([F + excess + E**2 / 4, F + excess + E**2 / 4 + 2 * root(F * gap)])
    safe_lam = xp.where(ledger.lam_min > 0, ledger.lam_min, 1.0)
    if mid:
        theta, radius_sq = shrunk_ball(ledger, F, excess, E, gap, half)
        mu, dual_sq = xp.full((), 0.5), (half + E**2 / 4)
    else:
        theta, radius_sq, mu, dual_sq = xp.zeros(()), 2 * gap, xp.zeros(()), 2 * gap
    safe_gamma = xp.where(gamma > 0, gamma, 1.0)
    radius = up(root(radius_sq), 16) + theta * up(pad) + 8 * U * theta * E
    dual = up(root(dual_sq / safe_gamma), 16)
    v_radius = up(xp.minimum(dual + mu * root(2 * F / safe_gamma), root(2 * gap / safe_gamma)), 16)

    # ||c - w^||: untouched columns move by theta e, touched ones also by the step; columns that leave are not counted
    stays = live & ~edit.col_removed
    near = theta**2 * (off_sq + off_slack) + xp.sum(xp.where(stays, (step - theta * e) ** 2, 0.0))
    if whole_rows:
        near, off_slack = theta**2 * (e_sq + e_sq_slack) / safe_lam, e_sq_slack / safe_lam
    far_pad = theta * pad / root(safe_lam) + theta * root(off_slack)
    offset = norm_up(near, ledger.slots_q + 8)
    offset_low = xp.where(alone, xp.maximum(norm_down(near, edit.d + 24) - 2 * far_pad, 0.0), 0.0)
    return Region(
        gap=gap, radius=radius, lam_min=safe_lam, theta=theta, dual_radius=dual, mu=mu, v_radius=v_radius,
        joint=up(joint, 16), offset_low=offset_low, offset_up=up(offset + far_pad),
        reach=up((theta * E + radius) / root(safe_lam)), objective=objective(ledger, P, point.w),
        e_delta=e_delta, e_w=e_w, v_scale=ledger.kappa * shrink, w=point.w, e=e, e_pad=e_pad, v=v, v_pad=v_pad,
        alpha=point.alpha, a=a, a_pad=a_pad, score=score, score_pad=s_pad,
        beta=beta, beta_size=xp.abs(new) + xp.abs(kept),
        primal=edit.penalty.strong_convexity is not None, dual=model.problem.loss.smoothness is not None,
    )  # fmt: skip


def shrunk_ball(ledger: Ledger, F, excess, E, gap, half):
    """(theta, radius^2): the best of the mid ball and the two smoothness-shrunk balls (theory 4.2)."""
    sigma_sq = ledger.sigma_sq()
    rho = down(ledger.gamma * ledger.lam_min / xp.maximum(sigma_sq, TINY), 8)
    rho = xp.where(sigma_sq > 1e-300, xp.minimum(rho, 1e9), 0.0)
    best = None
    for top, shrink in ((half, 0.0), (F + excess, rho), (F + excess + 2 * root(F * gap), 2 * rho)):
        theta, square = (1 + shrink) / (2 + shrink), 2 * top / (2 + shrink) + (E / (2 + shrink)) ** 2
        if best is None:
            best = theta + xp.zeros(()), square
        else:
            better = square < best[1]
            best = xp.where(better, theta, best[0]), xp.where(better, square, best[1])
    return best[0], up(best[1], 16)


def spot_norm(ledger: Ledger, beta, moved, new, kept, e_delta, e_w):
    """||w - u||^2 when v gains whole old rows, from stored norms and products; the triangle inequality joins rows.

    Returns:
        the square, its rounding slack, a bound on the error of w - u itself, and whether only one row is touched
        (then the value is exact and not only an upper bound).
    """
    model, old, totals, edit = ledger.model, ledger.old, ledger.model.totals, ledger.edit
    lam = edit.penalty.strong_convexity
    base = ledger.of_col(e_delta * old.delta + e_w * old.w)
    dots = beta * (e_delta * old.cross + e_w * old.score) + ledger.by_row(moved_in(ledger, new) * base)
    inner = ledger.by_row(moved_in(ledger, new) * edit.old)
    own_sq = ledger.by_row(moved_in(ledger, new) ** 2)
    squares = beta**2 * old.row_norm_sq + 2 * beta * inner + own_sq
    k = model.row_terms + ledger.row_sum_terms + 16
    row_norm = root(old.row_norm_sq)
    size = xp.abs(beta) * row_norm + root(own_sq)
    norms = root(xp.maximum(squares, 0.0) + growth(k) * size**2)
    bulk = e_delta * root(totals.delta_delta) + xp.abs(e_w) * root(totals.w_w)
    whole = e_delta**2 * totals.delta_delta + 2 * e_delta * e_w * totals.delta_w + e_w**2 * totals.w_w
    total = xp.sum(norms) / lam
    e_sq = whole - 2 * xp.sum(dots) / lam + total**2
    slack = growth(edit.d + 16) * bulk**2 + growth(k + ledger.slots_r) * (2 * bulk * xp.sum(size) / lam + total**2)
    error = xp.sum((xp.abs(new) + xp.abs(kept)) * row_norm + ledger.by_row(xp.abs(moved)))
    alone = xp.sum(edit.rows < edit.n) <= 1
    return xp.maximum(e_sq, 0.0), slack, growth(16) * error / lam, alone


def moved_in(ledger: Ledger, new):
    """D_e = c~ t~ (x~ - x) of the listed elements of rows that are not full."""
    return ledger.of_row(new) * (ledger.edit.new - ledger.edit.old)


def objective(ledger: Ledger, losses, w):
    """Upper bound of P~(w), for penalties without strong convexity."""
    model, edit = ledger.model, ledger.edit
    values = xp.sum(xp.where(ledger.live, ledger.penalty_slots.value(w), 0.0))
    if not edit.all_cols:
        was = xp.sum(xp.where(ledger.live, ledger.penalty_slots.value(ledger.old.w), 0.0))
        psi = model.totals.psi
        if ledger.euclidean:  # the new penalty may be a multiple of the old one
            psi = up(psi * (edit.penalty.strong_convexity / model.problem.penalty.strong_convexity))
        values = up(values, ledger.slots_q + 8) + xp.maximum(psi - down(was, ledger.slots_q + 64), 0.0)
    return up(losses + values, ledger.slots_q + 64)
