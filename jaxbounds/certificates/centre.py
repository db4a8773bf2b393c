"""The centre of a ball written out over all columns, and products of the new data with it."""

from typing import Any

from jaxbounds.array import scatter_set, segment_sum, squared, xp
from jaxbounds.edit import Edit
from jaxbounds.host import host_matrix
from jaxbounds.model import Data, Model, lam_of
from jaxbounds.pytree import pytree
from jaxbounds.rounding import U, dot_error, growth, norm_up, up


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


def new_rows(model: Model, edit: Edit):
    """(targets, c) of all rows of the new problem; c is 0 in removed ones."""
    added = xp.ones(edit.n - model.alpha.shape[0])
    y = scatter_set(xp.concatenate([model.rows.target, added]), edit.rows, edit.target)
    return y, scatter_set(extend(model.rows.weight, edit.n), edit.rows, edit.weight) * edit.unit


def rest_of_rows(model: Model, edit: Edit, region: Any):
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


def coefficients(model: Model, edit: Edit, region: Any) -> Coefficients:
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


def new_scores(model: Model, edit: Edit, region: Any):
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
        base = xp.where(edit.rows_where(edit.full), 0.0, extend(matrix.map(power).matvec(vector[:d_old]), edit.n))
        factor = vector[xp.minimum(edit.cols, edit.d - 1)][col]
        change = xp.where(live, (power(edit.new) - xp.where(full, 0.0, power(edit.old))) * factor, 0.0)
        size = xp.where(live, (xp.abs(power(edit.new)) + xp.abs(power(edit.old))) * xp.abs(factor), 0.0)
        return base + segment_sum(change, target, edit.n), segment_sum(size, target, edit.n)

    terms = matrix.row_terms + min(edit.row.shape[0], edit.d) + 8
    middle, moved = total(lambda x: x, at.centre)
    size, _ = total(xp.abs, xp.abs(at.centre))
    pads, _ = total(xp.abs, at.centre_pad)
    square, square_moved = total(squared, 1.0 / at.lam)
    length = norm_up(xp.maximum(square, 0.0) + growth(terms) * (xp.abs(square) + square_moved), terms)
    pad = dot_error(xp.abs(size) + 2 * moved, terms) + up(xp.abs(pads), terms) + growth(terms) * moved
    half = up(region.radius * length + pad)
    return middle - half, middle + half
