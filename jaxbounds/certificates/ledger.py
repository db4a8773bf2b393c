"""What the certificates read of a change: how scores, v, norms and Fenchel-Young terms move at a trial pair.

Everything is an upper bound in exact arithmetic on the stored floats; see `jaxbounds.rounding`.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from jaxbounds.array import hold, xp
from jaxbounds.edit import Edit
from jaxbounds.model import (
    Model,
    coordinate_pad,
    fenchel_bounds,
    gamma_of,
    known_ref,
    lam_of,
    loss_bound,
    score_pad,
)
from jaxbounds.pytree import pytree
from jaxbounds.recalled import take
from jaxbounds.rounding import TINY, U, down, growth, root, up


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


def recall(model: Model, edit: Edit) -> Old:
    """Gather the touched part of the memory."""
    rows, columns, r, q = model.rows, model.columns, edit.rows, edit.cols
    target, weight = None, None
    if not edit.rest:
        target, weight = take(rows.target, r, 1.0), take(rows.weight, r)
    old = hold(Old(
        take(model.alpha, r), take(model.ref, r), target, weight, take(rows.score, r), take(rows.score_abs, r),
        take(rows.cross, r), take(rows.norm_sq, r), take(rows.fenchel, r), take(rows.square, r),
        take(model.w, q).astype(xp.float64), take(columns.v, q), take(columns.v_pad, q), take(columns.delta, q),
        take(columns.norm_sq, q), take(columns.negative, q), take(columns.positive, q),
    ))  # fmt: skip
    # where only elements change these stay, and what is computed of them is computed once
    return replace(old, target=edit.target, weight=edit.weight) if edit.rest else old


class Ledger:
    """The sums of one edit: how scores, v, norms and Fenchel-Young terms move at a trial pair."""

    def __init__(self, model: Model, edit: Edit):
        problem = model.problem
        self.model, self.edit, self.old = model, edit, recall(model, edit)
        self.loss, self.penalty = problem.loss, edit.penalty
        self.gamma = gamma_of(problem.loss)
        self.kappa = edit.unit / problem.unit(model.alpha.shape[0])
        self.slots_r, self.slots_q = edit.rows.shape[0], edit.cols.shape[0]
        self.terms_r, self.terms_q, self.terms_e = edit.sizes
        self.row_sum_terms = edit.to_r(np.minimum(self.terms_e, edit.d))
        self.col_sum_terms = edit.to_q(np.minimum(self.terms_e, edit.n))
        self.full = self.edit.of_row(edit.full)
        self.live = edit.cols < edit.d
        self.c = edit.weight * edit.to_r(edit.unit)
        self.c_kept = self.old.weight * edit.to_r(edit.unit)  # kappa c of the old row
        self.penalty_slots = edit.penalty_slots()
        self.lam = lam_of(self.penalty_slots, self.slots_q)
        self.lam_min = self._lam_min(edit.penalty.strong_convexity)

    def _lam_min(self, strong):
        if strong is None:
            return xp.zeros(())
        if xp.ndim(strong) == int(self.edit.each_penalty):
            return strong
        # without all columns the penalty is the old one, whose minimum is stored
        return xp.min(strong, axis=-1) if self.edit.all_cols else self.model.totals.lam_min

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
        now, was = edit.new * self.edit.of_col(w), xp.where(self.full, 0.0, edit.old * self.edit.of_col(old.w))
        score = xp.where(edit.full, 0.0, old.score) + self.edit.by_row(now - was)
        size = xp.where(edit.full, 0.0, old.score_abs) + self.edit.by_row(xp.abs(now) + xp.abs(was))
        return hold((score, score_pad(size, self.model.row_terms + self.row_sum_terms + 4)))

    def row_norms_sq(self):
        """Upper bound of ||x~_i||^2 at the touched rows."""
        edit = self.edit
        base = xp.where(edit.full, 0.0, self.old.row_norm_sq)
        gain, loss = self.edit.by_row(edit.new**2), self.edit.by_row(xp.where(self.full, 0.0, edit.old**2))
        k = self.model.row_terms + self.row_sum_terms + 4
        return xp.maximum(base + gain - loss, 0.0) + growth(k) * (base + gain + loss) + TINY

    def column_norms_sq(self):
        """Upper bound of N_j = sum_i c~_i x~_ij^2 at the touched columns."""
        edit = self.edit
        base = edit.to_q(self.kappa) * self.old.norm_sq
        gain = self.edit.by_col(self.edit.of_row(self.c) * edit.new**2)
        loss = self.edit.by_col(self.edit.of_row(self.c_kept) * edit.old**2)
        k = self.model.alpha.shape[0] + self.col_sum_terms + 8
        return xp.maximum(base + gain - loss, 0.0) + growth(k) * (base + gain + loss) + TINY

    def domain_sums(self):
        """(S-_j, S+_j) of the new problem at the touched columns, rounded outward."""
        edit, old, loss = self.edit, self.old, self.loss
        kappa = edit.to_q(self.kappa)
        new = self.edit.of_row(self.c * loss.orientation(edit.target)) * edit.new
        was = self.edit.of_row(self.c_kept * loss.orientation(old.target)) * edit.old
        k = self.model.alpha.shape[0] + self.col_sum_terms + 8
        slack = growth(k) * (kappa * (old.positive - old.negative) + self.edit.by_col(xp.abs(new) + xp.abs(was)))
        low = kappa * old.negative + self.edit.by_col(xp.minimum(new, 0.0) - xp.minimum(was, 0.0)) - slack
        high = kappa * old.positive + self.edit.by_col(xp.maximum(new, 0.0) - xp.maximum(was, 0.0)) + slack
        return low - TINY, high + TINY

    def sigma_sq(self):
        """Upper bound of ||C~^(1/2) X~||_2^2: rows that are full come anew, the others add a Frobenius norm."""
        edit = self.edit
        base = self.kappa * self.model.totals.sigma_sq
        c, kept = self.edit.of_row(self.c), self.edit.of_row(self.c_kept)
        spot = edit.total_e(xp.where(self.full, 0.0, c * (edit.new - edit.old) ** 2))
        fresh = edit.total_e(xp.where(self.full, c * edit.new**2, 0.0))
        moved = edit.total_e((root(c) * edit.new - root(kept) * edit.old) ** 2)
        anew = (root(base) + root(spot)) ** 2 + fresh
        return hold(up(xp.minimum(anew, (root(base) + root(moved)) ** 2), self.terms_e + 16))

    def fenchel(self, point: Point, score, pad):
        """(F, lower bound of ||t - a||_C^2, sum of losses) of the new problem, and a with its error at the slots."""
        edit, old, totals, loss = self.edit, self.old, self.model.totals, self.loss
        y = edit.target
        q = loss.coordinate(score, y)
        q_pad = hold(coordinate_pad(q, pad))
        fy, square = fenchel_bounds(loss, q, q_pad, point.alpha, y, known_ref(loss, edit.penalty, point.ref))
        live = self.c > 0
        k = self.terms_r + 4
        F = up(edit.total_r(xp.where(live, self.c * fy, 0.0)), k)
        T = down(edit.total_r(xp.where(live, self.c * square, 0.0)), k)
        P = up(edit.total_r(xp.where(live, self.c * loss_bound(loss, q, q_pad, y), 0.0)), k)
        if not edit.all_rows:
            gone = down(edit.total_r(self.c_kept * old.fenchel), k)
            F = F + xp.maximum(up(self.kappa * totals.fenchel) - gone, 0.0)
            gone = up(edit.total_r(self.c_kept * old.square), k)
            T = T + xp.maximum(down(self.kappa * totals.square) - gone, 0.0)
            q_old = loss.coordinate(old.score, old.target)
            lost = edit.total_r(self.c_kept * xp.maximum(loss.value(q_old, old.target), 0.0))
            P = P + xp.maximum(up(self.kappa * totals.loss) - down(lost, 64 + k), 0.0)
        a = loss.dual(q, y)
        smooth = 0.0 if loss.smoothness is None else q_pad * loss.smoothness
        return hold((up(F), T, up(P), a, up(smooth + 16 * U * xp.abs(a))))

    def columns(self, point: Point):
        """How v moves: (v, its error, change, error of the change, whole-row multiples, shrink of alpha, parts).

        A bounded domain of psi* (L1) shrinks alpha, and with it v, until v fits.
        """
        edit, old = self.edit, self.old
        new = self.c * self.loss.orientation(edit.target) * point.alpha
        kept = self.c_kept * self.loss.orientation(old.target) * old.alpha
        gain, loss = self.edit.of_row(new) * edit.new, self.edit.of_row(xp.where(edit.full, kept, new)) * edit.old
        dv, dv_abs = self.edit.by_col(gain - loss), self.edit.by_col(xp.abs(gain) + xp.abs(loss))
        kappa = edit.to_q(self.kappa)
        v = kappa * old.v + dv
        dv_pad = growth(self.col_sum_terms + 12) * dv_abs
        v_pad = up(kappa * old.v_pad + dv_pad + 4 * U * xp.abs(kappa * old.v)) + TINY
        beta = xp.where(edit.full, 0.0, new - kept)
        shrink = xp.ones(())
        bound = edit.penalty.dual_bound
        if bound is not None:
            room = bound / xp.maximum(xp.abs(v) + v_pad, TINY)
            shrink = xp.minimum(1.0, xp.min(xp.where(self.live, room, xp.inf)) * (1 - 8 * U))
            v, v_pad = shrink * v, up(shrink * v_pad + 2 * U * xp.abs(v))
        return hold((v, v_pad, dv, dv_pad, beta, shrink, (gain - loss, new, kept)))
