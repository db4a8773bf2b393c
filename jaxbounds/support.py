"""What a region says about coefficients, scores, dual variables and the distance moved: its support function."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from jaxbounds.array import scatter_set, segment_sum, xp
from jaxbounds.certificates.ledger import Ledger, take
from jaxbounds.certificates.region import Region
from jaxbounds.edit import Edit
from jaxbounds.host import HostMatrix, host_matrix
from jaxbounds.matrix import Matrix
from jaxbounds.model import Data, Model, coordinate_pad, gamma_of, lam_of
from jaxbounds.pytree import pytree
from jaxbounds.rounding import TINY, U, dot_error, down, growth, norm_down, norm_up, root, up


@pytree
class Coefficients:
    """The region's primal side written out over all columns, (d,) each."""

    w: Any
    e: Any  # w - u
    e_pad: Any
    v: Any
    v_pad: Any
    lam: Any
    centre: Any
    centre_pad: Any  # rounding of the centre as written out; errors of e itself are in the radius


def extend(vector, size: int):
    """A stored vector with zeros for added rows or columns."""
    return xp.concatenate([vector, xp.zeros(size - vector.shape[0])])


def with_data(model: Model) -> Data:
    """The model's data, which the caller knows to be there."""
    assert model.data is not None
    return model.data


def rest_of_rows(model: Model, edit: Edit, region: Region):
    """sum_i beta_i x_i over whole old rows, and a bound on its rounding error."""
    if not edit.rest:
        return xp.zeros(edit.d), xp.zeros(edit.d)
    n = model.alpha.shape[0]
    data = with_data(model)
    slot, col, value = data.matrix.rows(xp.minimum(edit.rows, n - 1))
    weight = xp.where(edit.rows < n, region.beta, 0.0)[slot]
    part = weight * value.astype(xp.float64)
    size = xp.where(edit.rows < n, region.beta_size, 0.0)[slot] * xp.abs(value.astype(xp.float64))
    return segment_sum(part, col, edit.d), growth(edit.rows.shape[0] + 12) * segment_sum(size, col, edit.d)


def coefficients(model: Model, edit: Edit, region: Region) -> Coefficients:
    """Write the primal side of a region out over all columns."""
    d, penalty = edit.d, edit.penalty
    columns, cols = model.columns, edit.cols

    def write(base, slots):
        return scatter_set(extend(base, d), cols, slots)

    w_old = model.w.astype(xp.float64)
    lam = lam_of(penalty, d)
    safe = xp.where(lam > 0, lam, 1.0)
    v_pad = region.v_scale * columns.v_pad + 4 * U * xp.abs(region.v_scale * columns.v)
    e = region.e_delta * columns.delta + region.e_w * w_old
    size = xp.abs(region.e_delta * columns.delta) + xp.abs(region.e_w * w_old)
    old_lam = lam_of(model.problem.penalty, w_old.shape[0])
    e_pad = region.e_delta * columns.v_pad / xp.where(old_lam > 0, old_lam, 1.0)
    e_pad = up(e_pad + 16 * U * (xp.abs(w_old) + xp.abs(columns.delta) + size))
    w, e, e_pad = write(w_old, region.w), write(e, region.e), write(e_pad, region.e_pad)
    v, v_pad = write(region.v_scale * columns.v, region.v), write(v_pad, region.v_pad)
    rest, rest_pad = rest_of_rows(model, edit, region)
    e, v = e - rest / safe, v + rest
    e_pad = e_pad + rest_pad / safe + 4 * U * xp.abs(rest) / safe
    centre = w - region.theta * e
    centre_pad = 16 * U * (xp.abs(w) + xp.abs(e) + xp.abs(rest) / safe) + region.theta * rest_pad / safe
    return Coefficients(w, e, e_pad, v, v_pad + rest_pad, lam, centre, centre_pad)


def scores(model: Model, edit: Edit, region: Region, matrix: Matrix):
    """(lower, upper) of x.w* for each row x of a matrix."""
    if not region.primal:
        return box_scores(coordinates(model, edit, region), matrix)
    at = coefficients(model, edit, region)
    terms = matrix.row_terms
    magnitude = matrix.map(xp.abs)
    middle = matrix.matvec(at.centre)
    pad = dot_error(magnitude.matvec(xp.abs(at.centre)), terms + 4) + up(magnitude.matvec(at.centre_pad), terms)
    length = norm_up(matrix.map(xp.square).matvec(1.0 / at.lam), terms + 4)
    half = up(region.radius * length + pad)
    return middle - half, middle + half


@dataclass(frozen=True)
class ProjectedRows:
    """A matrix on the host with its products that all candidates and regions share."""

    matrix: HostMatrix
    magnitude: HostMatrix
    square: HostMatrix
    at_w: Any  # X w^, (m,)
    at_delta: Any  # X delta
    size_w: Any  # |X| |w^|
    size_delta: Any  # |X| |delta|
    norm_sq: Any  # ||x||^2


def project(model: Model, matrix: HostMatrix) -> ProjectedRows:
    """The products of test rows with the model's vectors."""
    magnitude, square = matrix.map(np.abs), matrix.map(np.square)
    w, delta = (extend(v.astype(np.float64), matrix.shape[1]) for v in (model.w, model.columns.delta))
    return ProjectedRows(
        matrix, magnitude, square, matrix.matvec(w), matrix.matvec(delta), magnitude.matvec(np.abs(w)),
        magnitude.matvec(np.abs(delta)), square.matvec(np.ones(matrix.shape[1])),
    )  # fmt: skip


def scores_each(model: Model, edit: Edit, region: Region, rows: ProjectedRows):
    """(lower, upper) of x.w* for each row x of a matrix and each candidate: (m, count), never candidates x d.

    x.c = (1 - theta e_w) x.w^ - theta e_delta x.delta + x.(what the touched columns and the whole old rows add).
    """
    theta, by_w, by_delta = region.theta, region.theta * region.e_w, region.theta * region.e_delta
    w, delta = take(model.w.astype(np.float64), edit.cols), take(model.columns.delta, edit.cols)
    col, owner = edit.cols, edit.owner_q
    value = region.w - edit.to_q(theta) * region.e - (w - edit.to_q(by_w) * w - edit.to_q(by_delta) * delta)
    size = np.abs(region.w) + edit.to_q(theta) * np.abs(region.e)
    size = size + (1 + edit.to_q(np.abs(by_w))) * np.abs(w) + edit.to_q(by_delta) * np.abs(delta)
    if edit.rest:
        n = model.alpha.shape[0]
        slot, column, x = with_data(model).matrix.rows(np.minimum(edit.rows, n - 1))
        x = np.where(edit.rows[slot] < n, edit.to_r(theta / edit.penalty.strong_convexity)[slot] * x, 0.0)
        col, owner = np.concatenate([col, column]), np.concatenate([owner, edit.owner_r[slot]])
        value = np.concatenate([value, region.beta[slot] * x])
        size = np.concatenate([size, region.beta_size[slot] * np.abs(x)])

    def gathered(matrix, value):
        return matrix.matmat(sp.csc_array((value, (col, owner)), shape=(edit.d, edit.count)))

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
    half = up(region.radius * length + pad)
    return middle - half, middle + half


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


def coordinates(model: Model, edit: Edit, region: Region):
    """(lower, upper) of every coefficient: the ball, the joint box, and v through the domain of alpha and grad psi*."""
    penalty, loss = edit.penalty, model.problem.loss
    at = coefficients(model, edit, region)
    ledger = Ledger(model, edit)
    low, high = xp.full(edit.d, -xp.inf), xp.full(edit.d, xp.inf)
    if region.primal:
        half = up(region.radius / root(at.lam) + at.centre_pad)
        low, high = at.centre - half, at.centre + half

    def write(base, slots):
        return scatter_set(extend(base, edit.d), edit.cols, slots)

    n_terms = model.alpha.shape[0] + 8
    norm_sq = write(up(ledger.kappa * model.columns.norm_sq, n_terms), ledger.column_norms_sq())
    negative, positive = ledger.domain_sums()
    negative = write(ledger.kappa * model.columns.negative * (1 + 8 * U), negative)
    positive = write(ledger.kappa * model.columns.positive * (1 + 8 * U), positive)
    v_low, v_high = domain_range(loss, negative, positive)
    if region.dual:
        reach = up(root(norm_sq) * region.v_radius + at.v_pad + 8 * U * xp.abs(at.v))
        v_low, v_high = xp.maximum(v_low, at.v - reach), xp.minimum(v_high, at.v + reach)
    if penalty.quadratic:
        u_low, u_high = v_low / at.lam, v_high / at.lam
        u_low, u_high = u_low - 2 * U * xp.abs(u_low), u_high + 2 * U * xp.abs(u_high)
        if region.primal and region.dual:
            box = joint_box(region, at, norm_sq, gamma_of(loss))
            low, high = xp.maximum(low, box[0]), xp.minimum(high, box[1])
    else:
        u_low, u_high = penalty.conjugate_interval(v_low, v_high)
        u_low, u_high = u_low - 8 * U * xp.abs(u_low), u_high + 8 * U * xp.abs(u_high)
    low, high = xp.maximum(low, u_low), xp.minimum(high, u_high)
    if loss.nonnegative and (level := penalty.level(region.objective)) is not None:
        level = up(level, 16)
        low, high = xp.maximum(low, -level), xp.minimum(high, level)
    gone = write(xp.zeros(model.w.shape[0]), xp.where(edit.col_removed, 1.0, 0.0)) > 0
    return xp.where(gone, 0.0, low), xp.where(gone, 0.0, high)


def domain_range(loss, negative, positive):
    """The values v can take while alpha stays in its domain; 0 times infinity is 0."""
    lo, hi = loss.domain(xp.ones(()))
    if loss.defined_by_ref:  # the domain may differ from row to row
        lo, hi = xp.full((), -xp.inf), xp.full((), xp.inf)

    def product(bound, total):
        return xp.where(total == 0, 0.0, bound * total)

    low = product(hi, negative) + product(lo, positive)
    high = product(hi, positive) + product(lo, negative)
    return low - 4 * U * xp.abs(low), high + 4 * U * xp.abs(high)


def joint_box(region: Region, at: Coefficients, norm_sq, gamma):
    """lam (w - c)^2 + share gamma lam^2/(2 N) (w - u)^2 <= joint for share 1 and 2, solved for w."""
    low, high = -xp.inf, xp.inf
    for share in (1, 2):
        k = xp.minimum(share * gamma * at.lam / (2 * xp.maximum(norm_sq, 1e-280)), 1e280)
        part = k / (1 + k)
        middle = at.w - at.e * (0.5 + 0.5 * part)  # c = w - e/2, u = w - e
        apart = xp.maximum(xp.abs(at.e) / 2 - at.e_pad, 0.0)
        square = region.joint[share - 1] / (at.lam * (1 + k)) - down(part / (1 + k) * apart**2, 16)
        half = up(root(up(xp.maximum(square, 0.0), 16)), 16) + at.e_pad
        half = half + 32 * U * (xp.abs(at.w) + xp.abs(at.e)) + 8 * U * half
        low, high = xp.maximum(low, middle - half), xp.minimum(high, middle + half)
    return low, high


def duals(model: Model, edit: Edit, region: Region):
    """(lower, upper) of every alpha: the dual ball, the domain, and -l' of the score's interval."""
    loss, n_old = model.problem.loss, model.alpha.shape[0]
    rows = edit.rows

    def write(base, slots):
        return scatter_set(extend(base, edit.n), rows, slots)

    y = scatter_set(xp.concatenate([model.rows.target, xp.ones(edit.n - n_old)]), rows, edit.target)
    c = write(model.rows.weight, edit.weight) * edit.unit
    low, high = loss.domain(y)
    low, high = xp.broadcast_to(low, y.shape), xp.broadcast_to(high, y.shape)
    score_old, terms = model.rows.score, model.row_terms
    pad_old = dot_error(model.rows.score_abs, terms)
    q_old = loss.coordinate(score_old, model.rows.target)
    if region.dual:
        a_old = loss.dual(q_old, model.rows.target)
        a_pad = up(coordinate_pad(q_old, pad_old) * loss.smoothness + 16 * U * xp.abs(a_old))
        alpha, a = write(model.alpha, region.alpha), write(a_old, region.a)
        a_pad = write(a_pad, region.a_pad)
        middle = (1 - region.mu) * alpha + region.mu * a
        noise = 64 * U if loss.defined_by_ref else 4 * U  # a user's derivative is trusted to a few roundings
        half = up(region.dual_radius / root(xp.where(c > 0, c, 1.0)) + region.mu * a_pad + noise * xp.abs(middle))
        half = xp.where(c > 0, half, xp.inf)
        low, high = xp.maximum(low, middle - half), xp.minimum(high, middle + half)
    if region.primal:
        ledger = Ledger(model, edit)
        norm = write(root(up(model.rows.norm_sq, terms + 4)), root(ledger.row_norms_sq()))
        score, pad = write(score_old, region.score), write(pad_old, region.score_pad)
        reach = up(norm * region.reach + pad, terms)
        s_low, s_high = score - reach, score + reach
        if model.data is not None:
            s = new_scores(model, edit, region)
            s_low, s_high = xp.maximum(s_low, s[0]), xp.minimum(s_high, s[1])
        q_low, q_high = loss.coordinate(s_low, y), loss.coordinate(s_high, y)
        q_low, q_high = xp.minimum(q_low, q_high), xp.maximum(q_low, q_high)
        q_low, q_high = q_low - 4 * U * xp.abs(q_low), q_high + 4 * U * xp.abs(q_high)
        a_low, a_high = loss.dual_interval(q_high, y)[0], loss.dual_interval(q_low, y)[1]
        # zeros are exact (screening); other ends may lie among the denormals
        a_low = a_low - xp.where(a_low == 0, 0.0, 16 * U * xp.abs(a_low) + TINY)
        a_high = a_high + xp.where(a_high == 0, 0.0, 16 * U * xp.abs(a_high) + TINY)
        low, high = xp.maximum(low, a_low), xp.minimum(high, a_high)
    gone = write(xp.zeros(n_old), xp.where(edit.row_removed, 1.0, 0.0)) > 0
    return xp.where(gone, 0.0, low), xp.where(gone, 0.0, high)


def new_scores(model: Model, edit: Edit, region: Region):
    """(lower, upper) of x~_i.w* for every row of the new data."""
    at = coefficients(model, edit, region)
    matrix, d_old = host_matrix(with_data(model).matrix), model.w.shape[0]
    R, Q = edit.rows.shape[0], edit.cols.shape[0]
    row, col = xp.minimum(edit.row, R - 1), xp.minimum(edit.col, Q - 1)
    live = (edit.row < R) & (edit.col < Q)
    target = xp.where(live, edit.rows[row], edit.n)
    full = edit.full[row]

    def total(power, vector):
        """X~.map(power) @ vector: the old product, without full rows, with the elements' new values."""
        dropped = scatter_set(xp.zeros(edit.n), edit.rows, xp.where(edit.full, 1.0, 0.0)) > 0
        base = xp.where(dropped, 0.0, extend(matrix.map(power).matvec(vector[:d_old]), edit.n))
        factor = vector[xp.minimum(edit.cols, edit.d - 1)][col]
        change = xp.where(live, (power(edit.new) - xp.where(full, 0.0, power(edit.old))) * factor, 0.0)
        size = xp.where(live, (xp.abs(power(edit.new)) + xp.abs(power(edit.old))) * xp.abs(factor), 0.0)
        return base + segment_sum(change, target, edit.n), segment_sum(size, target, edit.n)

    terms = matrix.row_terms + min(edit.row.shape[0], edit.d) + 8
    middle, moved = total(lambda x: x, at.centre)
    size, _ = total(xp.abs, xp.abs(at.centre))
    pads, _ = total(xp.abs, at.centre_pad)
    square, square_moved = total(xp.square, 1.0 / at.lam)
    length = norm_up(xp.maximum(square, 0.0) + growth(terms) * (xp.abs(square) + square_moved), terms)
    pad = dot_error(xp.abs(size) + 2 * moved, terms) + up(xp.abs(pads), terms) + growth(terms) * moved
    half = up(region.radius * length + pad)
    return middle - half, middle + half


def distance(model: Model, edit: Edit, region: Region):
    """(lower, upper) of ||w* - w^||, coefficients of removed columns counted in full."""
    w = take(model.w, edit.cols).astype(xp.float64)
    gone = edit.total_q(xp.where(edit.col_removed, w**2, 0.0))
    if region.primal:
        radius = up(region.radius / root(region.lam_min))
        near, far = xp.maximum(region.offset_low - radius, 0.0), region.offset_up + radius
    else:
        low, high = coordinates(model, edit, region)
        base = extend(model.w.astype(xp.float64), edit.d)
        base = scatter_set(base, edit.cols, xp.where(edit.col_removed, 0.0, take(base, edit.cols)))
        near = root(xp.sum(xp.maximum(xp.maximum(low - base, base - high), 0.0) ** 2))
        far = norm_up(xp.sum(xp.maximum(high - base, base - low) ** 2), edit.d)
    k = edit.d + 8
    return norm_down(gone + near**2, k), norm_up(gone + far**2, k)
