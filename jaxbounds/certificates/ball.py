"""Balls around cheap centres that must hold the new primal and dual optimum, and what they say: support functions."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from jaxbounds.array import scatter_set, squared, xp
from jaxbounds.certificates.centre import Coefficients, coefficients, extend, new_rows, new_scores, with_data
from jaxbounds.certificates.ledger import Ledger
from jaxbounds.certificates.region import Region
from jaxbounds.edit import Edit
from jaxbounds.matrix import Matrix
from jaxbounds.model import Model, coordinate_pad, gamma_of
from jaxbounds.projected import ProjectedRows
from jaxbounds.pytree import pytree, static
from jaxbounds.recalled import take
from jaxbounds.rounding import TINY, U, dot_error, down, growth, norm_down, norm_up, root, up


@pytree
class Ball(Region):
    """sum_j lam_j (w*_j - c_j)^2 <= radius^2 and sum_i c_i (t*_i - m_i)^2 <= dual_radius^2.

    The centres are c = w - theta e with e = w - u, and m = (1 - mu) t + mu a. Only their values at touched rows and
    columns are stored; elsewhere e = e_delta delta + e_w w^ and v = v_scale v^, from the model's own vectors.
    `beta` are multiples of whole old rows that v gains on top (spot changes whose alpha moved).
    For L2, lam (w*_j - w_j + e_j/2)^2 + share gamma/(2 N_j) (lam w*_j - v_j)^2 <= joint, N_j = sum_i c_i x_ij^2,
    for share 1 and 2.
    """

    gap: Any
    radius: Any
    lam_min: Any  # lam_min ||x||^2 <= sum_j lam_j x_j^2
    theta: Any
    dual_radius: Any
    mu: Any
    v_radius: Any  # bound of ||t* - t||_C
    joint: Any  # (2,) right sides for share 1 and 2
    offset_low: Any  # ||c - w^||, columns that leave not counted
    offset_up: Any
    reach: Any  # ||w* - w||
    objective: Any  # upper bound of P~(w)
    e_delta: Any
    e_w: Any
    v_scale: Any
    w: Any  # (Q,)
    e: Any  # (Q,)
    e_pad: Any  # (Q,)
    v: Any  # (Q,)
    v_pad: Any  # (Q,)
    alpha: Any  # (R,)
    a: Any  # (R,)
    a_pad: Any  # (R,)
    score: Any  # (R,) x~_i.w
    score_pad: Any  # (R,)
    beta: Any  # (R,)
    beta_size: Any  # (R,) the scale of beta's rounding error
    primal: bool = static(default=True)  # radius is meaningful
    dual: bool = static(default=True)

    @property
    def length(self):
        """Upper bound of ||w* - c||_2."""
        return up(self.radius / xp.sqrt(self.lam_min))

    def coordinates(self, model: Model, edit: Edit):
        """Every coefficient: the ball, the joint box, and v through the domain of alpha and grad psi*."""
        penalty, loss = edit.penalty, model.problem.loss
        at = coefficients(model, edit, self)
        ledger = Ledger(model, edit)
        low, high = xp.full(edit.d, -xp.inf), xp.full(edit.d, xp.inf)
        if self.primal:
            half = up(self.radius / root(at.lam) + at.centre_pad)
            low, high = at.centre - half, at.centre + half

        def write(base, slots):
            return scatter_set(extend(base, edit.d), edit.cols, slots)

        n_terms = model.alpha.shape[0] + 8
        norm_sq = write(up(ledger.kappa * model.columns.norm_sq, n_terms), ledger.column_norms_sq())
        negative, positive = ledger.domain_sums()
        negative = write(ledger.kappa * model.columns.negative * (1 + 8 * U), negative)
        positive = write(ledger.kappa * model.columns.positive * (1 + 8 * U), positive)
        v_low, v_high = domain_range(loss, negative, positive)
        if self.dual:
            reach = up(root(norm_sq) * self.v_radius + at.v_pad + 8 * U * xp.abs(at.v))
            v_low, v_high = xp.maximum(v_low, at.v - reach), xp.minimum(v_high, at.v + reach)
        if penalty.quadratic:
            u_low, u_high = v_low / at.lam, v_high / at.lam
            u_low, u_high = u_low - 2 * U * xp.abs(u_low), u_high + 2 * U * xp.abs(u_high)
            if self.primal and self.dual:
                box = joint_box(self, at, norm_sq, gamma_of(loss))
                low, high = xp.maximum(low, box[0]), xp.minimum(high, box[1])
        else:
            u_low, u_high = penalty.conjugate_interval(v_low, v_high)
            u_low, u_high = u_low - 8 * U * xp.abs(u_low), u_high + 8 * U * xp.abs(u_high)
        low, high = xp.maximum(low, u_low), xp.minimum(high, u_high)
        if loss.nonnegative and (level := penalty.level(self.objective)) is not None:
            level = up(level, 16)
            low, high = xp.maximum(low, -level), xp.minimum(high, level)
        gone = edit.cols_where(edit.col_removed)
        return xp.where(gone, 0.0, low), xp.where(gone, 0.0, high)

    def scores(self, model: Model, edit: Edit, matrix: Matrix):
        """(lower, upper) of x.w* for each row x of a matrix."""
        if not self.primal:
            return box_scores(self.coordinates(model, edit), matrix)
        at = coefficients(model, edit, self)
        terms = matrix.row_terms
        magnitude = matrix.map(xp.abs)
        middle = matrix.matvec(at.centre)
        pad = dot_error(magnitude.matvec(xp.abs(at.centre)), terms + 4) + up(magnitude.matvec(at.centre_pad), terms)
        length = norm_up(matrix.map(squared).matvec(1.0 / at.lam), terms + 4)
        half = up(self.radius * length + pad)
        return middle - half, middle + half

    def scores_each(self, model: Model, edit: Edit, rows: ProjectedRows):
        """(lower, upper) of x.w* for each row x of a matrix and each candidate: (m, count), never candidates x d.

        x.c = (1 - theta e_w) x.w^ - theta e_delta x.delta + x.(what the touched columns and the whole old rows add).
        """
        theta, by_w, by_delta = self.theta, self.theta * self.e_w, self.theta * self.e_delta
        w, delta = take(model.w.astype(np.float64), edit.cols), take(model.columns.delta, edit.cols)
        col, owner = edit.cols, edit.owner_q
        value = self.w - edit.to_q(theta) * self.e - (w - edit.to_q(by_w) * w - edit.to_q(by_delta) * delta)
        size = np.abs(self.w) + edit.to_q(theta) * np.abs(self.e)
        size = size + (1 + edit.to_q(np.abs(by_w))) * np.abs(w) + edit.to_q(by_delta) * np.abs(delta)
        if edit.rest:
            n = model.alpha.shape[0]
            slot, column, x = with_data(model).matrix.rows(np.minimum(edit.rows, n - 1))
            x = np.where(edit.rows[slot] < n, edit.to_r(theta / edit.penalty.strong_convexity)[slot] * x, 0.0)
            col, owner = np.concatenate([col, column]), np.concatenate([owner, edit.owner_r[slot]])
            value = np.concatenate([value, self.beta[slot] * x])
            size = np.concatenate([size, self.beta_size[slot] * np.abs(x)])

        held = col < edit.d

        def gathered(matrix, value):
            entries = value[held], (col[held], owner[held])
            return matrix.matmat(sp.csc_array(entries, shape=(edit.d, edit.count)))

        terms = rows.matrix.row_terms
        middle = np.outer(rows.at_w, 1 - by_w) - np.outer(rows.at_delta, by_delta) + gathered(rows.matrix, value)
        total = np.outer(rows.size_w, 1 + np.abs(by_w)) + np.outer(rows.size_delta, by_delta)
        total = total + gathered(rows.magnitude, size)
        pad = growth(2 * terms + edit.sizes[0] + 48) * up(total, 2 * terms + 48) + 4 * terms * TINY
        inverse = np.asarray(1.0 / edit.penalty.strong_convexity)
        if inverse.ndim == int(edit.each_penalty):
            length = np.multiply.outer(rows.norm_sq, inverse)
        else:  # lam of every column
            length = rows.square.matvec(inverse.T)
        length = norm_up(length.reshape(rows.matrix.shape[0], -1), terms + 4)
        half = up(self.radius * length + pad)
        return middle - half, middle + half

    def duals(self, model: Model, edit: Edit):
        """(lower, upper) of every alpha: the dual ball, the domain, and -l' of the score's interval."""
        loss = model.problem.loss

        def write(base, slots):
            return scatter_set(extend(base, edit.n), edit.rows, slots)

        y, c = new_rows(model, edit)
        low, high = loss.domain(y)
        low, high = xp.broadcast_to(low, y.shape), xp.broadcast_to(high, y.shape)
        score_old, terms = model.rows.score, model.row_terms
        pad_old = dot_error(model.rows.score_abs, terms)
        q_old = loss.coordinate(score_old, model.rows.target)
        if self.dual:
            a_old = loss.dual(q_old, model.rows.target)
            a_pad = up(coordinate_pad(q_old, pad_old) * loss.smoothness + 16 * U * xp.abs(a_old))
            alpha, a = write(model.alpha, self.alpha), write(a_old, self.a)
            a_pad = write(a_pad, self.a_pad)
            middle = (1 - self.mu) * alpha + self.mu * a
            noise = 64 * U if loss.defined_by_ref else 4 * U  # a user's derivative is trusted to a few roundings
            half = up(self.dual_radius / root(xp.where(c > 0, c, 1.0)) + self.mu * a_pad + noise * xp.abs(middle))
            half = xp.where(c > 0, half, xp.inf)
            low, high = xp.maximum(low, middle - half), xp.minimum(high, middle + half)
        if self.primal:
            ledger = Ledger(model, edit)
            norm = write(root(up(model.rows.norm_sq, terms + 4)), root(ledger.row_norms_sq()))
            score, pad = write(score_old, self.score), write(pad_old, self.score_pad)
            reach = up(norm * self.reach + pad, terms)
            s_low, s_high = score - reach, score + reach
            if model.data is not None:
                s = new_scores(model, edit, self)
                s_low, s_high = xp.maximum(s_low, s[0]), xp.minimum(s_high, s[1])
            a_low, a_high = alpha_range(loss, s_low, s_high, y)
            low, high = xp.maximum(low, a_low), xp.minimum(high, a_high)
        gone = edit.rows_where(edit.row_removed)
        return xp.where(gone, 0.0, low), xp.where(gone, 0.0, high)

    def distance(self, model: Model, edit: Edit):
        """(lower, upper) of ||w* - w^||, coefficients of removed columns counted in full."""
        w = take(model.w, edit.cols).astype(xp.float64)
        gone = edit.total_q(xp.where(edit.col_removed, w**2, 0.0))
        if self.primal:
            radius = up(self.radius / root(self.lam_min))
            near, far = xp.maximum(self.offset_low - radius, 0.0), self.offset_up + radius
        else:
            low, high = self.coordinates(model, edit)
            base = extend(model.w.astype(xp.float64), edit.d)
            base = scatter_set(base, edit.cols, xp.where(edit.col_removed, 0.0, take(base, edit.cols)))
            near = root(xp.sum(xp.maximum(xp.maximum(low - base, base - high), 0.0) ** 2))
            far = norm_up(xp.sum(xp.maximum(high - base, base - low) ** 2), edit.d)
        k = edit.d + 8
        return norm_down(gone + near**2, k), norm_up(gone + far**2, k)


def alpha_range(loss, s_low, s_high, y):
    """The alpha = -f'(q) of every score between s_low and s_high, rounded outward."""
    q_low, q_high = loss.coordinate(s_low, y), loss.coordinate(s_high, y)
    q_low, q_high = xp.minimum(q_low, q_high), xp.maximum(q_low, q_high)
    q_low, q_high = q_low - 4 * U * xp.abs(q_low), q_high + 4 * U * xp.abs(q_high)
    a_low, a_high = loss.dual_interval(q_high, y)[0], loss.dual_interval(q_low, y)[1]
    # zeros are exact (screening); other ends may lie among the denormals
    a_low = a_low - xp.where(a_low == 0, 0.0, 16 * U * xp.abs(a_low) + TINY)
    return a_low, a_high + xp.where(a_high == 0, 0.0, 16 * U * xp.abs(a_high) + TINY)


def box_scores(box, matrix: Matrix):
    """(lower, upper) of x.w over a box; an infinite side counts only where x is not zero."""
    low, high = box
    positive, negative = matrix.map(lambda x: xp.maximum(x, 0)), matrix.map(lambda x: xp.minimum(x, 0))

    def finite(x):
        return xp.where(xp.isfinite(x), x, 0.0)

    def infinite(x):
        return xp.where(xp.isfinite(x), 0.0, 1.0)

    def end(toward, away):
        value = positive.matvec(finite(toward)) + negative.matvec(finite(away))
        size = positive.matvec(xp.abs(finite(toward))) - negative.matvec(xp.abs(finite(away)))
        open_end = positive.matvec(infinite(toward)) - negative.matvec(infinite(away)) > 0
        return value, dot_error(size, 2 * matrix.row_terms), open_end

    value, pad, open_end = end(low, high)
    lower = xp.where(open_end, -xp.inf, value - up(pad) - U * xp.abs(value))
    value, pad, open_end = end(high, low)
    return lower, xp.where(open_end, xp.inf, value + up(pad) + U * xp.abs(value))


def domain_range(loss, negative, positive):
    """The values v can take while alpha stays in its domain; 0 times infinity is 0."""
    lo, hi = loss.domain(xp.ones(()))
    if loss.defined_by_ref or loss.domain_by_row:
        lo, hi = xp.full((), -xp.inf), xp.full((), xp.inf)

    def product(bound, total):
        return xp.where(total == 0, 0.0, bound * total)

    low = product(hi, negative) + product(lo, positive)
    high = product(hi, positive) + product(lo, negative)
    return low - 4 * U * xp.abs(low), high + 4 * U * xp.abs(high)


def joint_box(ball: Ball, at: Coefficients, norm_sq, gamma):
    """lam (w - c)^2 + share gamma lam^2/(2 N) (w - u)^2 <= joint for share 1 and 2, solved for w."""
    low, high = -xp.inf, xp.inf
    for share in (1, 2):
        k = xp.minimum(share * gamma * at.lam / (2 * xp.maximum(norm_sq, 1e-280)), 1e280)
        part = k / (1 + k)
        middle = at.w - at.e * (0.5 + 0.5 * part)  # c = w - e/2, u = w - e
        apart = xp.maximum(xp.abs(at.e) / 2 - at.e_pad, 0.0)
        square = ball.joint[share - 1] / at.lam / (1 + k) + 2 * TINY  # lam (1 + k) may overflow, the quotients vanish
        square = square - down(part / (1 + k) * apart**2, 16)
        half = up(root(up(xp.maximum(square, 0.0), 16)), 16) + at.e_pad
        half = half + 32 * U * (xp.abs(at.w) + xp.abs(at.e)) + 8 * U * half
        low, high = xp.maximum(low, middle - half), xp.minimum(high, middle + half)
    return low, high
