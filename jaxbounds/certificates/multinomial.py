"""The ball for softmax with an L2 penalty: the four-point inequality in Frobenius norms, at the old coefficients.

With t = onehot - softmax(W x) in every row of the new problem all Fenchel-Young terms vanish, and with the gradient
g = lam W - V of the new problem, rho = 2 gamma lam / sigma^2 (gamma = 2, the loss being 1/2-smooth):

    ||W* - C||_lam <= ||g||_{1/lam} / (2 + rho),    C = W - (1 + rho)/(2 + rho) g / lam.

The classes' dual variables sum to 0 in each row, so sum_k w*_k = 0, and C may be projected: then a score x.w*_k lies
within sqrt(1 - 1/K) ||x|| R of x.c_k, and a difference of two classes within sqrt(2) ||x|| R.
"""

import dataclasses
import functools
from typing import Any

import jax
import numpy as np

from jaxbounds.array import on_host, put, segment_sum, to_host, xp
from jaxbounds.certificates.cached import Cached
from jaxbounds.certificates.centre import new_rows
from jaxbounds.certificates.linear import conjugate_gradients
from jaxbounds.certificates.newton_pass import Pass
from jaxbounds.certificates.renewed import new_matrix
from jaxbounds.classes import check_targets, is_class
from jaxbounds.edit import Edit, prepare
from jaxbounds.inputs import read_any
from jaxbounds.kinds import Change, SetPenalty
from jaxbounds.model import Data, score_pad
from jaxbounds.multinomial import (
    MultinomialModel,
    check_multinomial,
    dual_sums,
    dual_with_pad,
    gradient,
    metric,
    metric_norm,
    objective,
    products,
    sums,
)
from jaxbounds.multinomial_bounds import MultinomialBounds
from jaxbounds.problem import Problem
from jaxbounds.pytree import in_float64, pytree
from jaxbounds.rounding import TINY, U, down, growth, root, up
from jaxbounds.status import Status
from jaxbounds.wording import touched

_GAMMA = 2.0  # the loss is 1/2-smooth


@pytree
class _Rows:
    target: Any
    weight: Any


@pytree
class _Outline:
    """What an edit asks of a model: sizes, targets, weights and the data."""

    problem: Problem
    w: Any
    alpha: Any
    rows: _Rows
    data: Data
    inputs: None = None


def outline_of(model: MultinomialModel) -> Any:
    """The model as an edit sees it."""
    return _Outline(model.problem, model.v[0], model.target, _Rows(model.target, model.weight), model.data)


@in_float64
def bound_multinomial(model: MultinomialModel, change: Change, method: Any = None) -> MultinomialBounds:
    """Bounds on the retrained softmax model; see `jb.bound`."""
    method = Cached() if method is None else method
    if not isinstance(method, Cached | Pass):
        raise ValueError(f"method: softmax has the methods Cached() and Pass() only, got {type(method).__name__}")
    method.check(model.problem)
    if isinstance(change, Change):
        change = read_any(model, change)
    check_targets(change, model)
    for part in change.parts():
        if isinstance(part, SetPenalty):
            check_multinomial(Problem(model.problem.loss, part.penalty, model.problem.scale))  # type: ignore[arg-type]
    steps = method.cg_steps if isinstance(method, Pass) else 0
    if on_host(model, change):
        found = put(certify(to_host(model), to_host(change), steps))
    else:
        found = _certify_jit(model, change, steps)
    return dataclasses.replace(found, touched=touched(change), method=method, inputs=model.inputs)


def certify(model: MultinomialModel, change: Change, steps: int) -> MultinomialBounds:
    """The ball at the old coefficients, 0 in removed columns; with steps that after a Newton step, if it is smaller."""
    edit = prepare(outline_of(model), change, whole=steps > 0)
    K, d = model.classes, edit.d
    lam = metric(edit.penalty, d)
    gone = edit.cols_where(edit.col_removed)[None, :]
    w_old = xp.concatenate([model.w.astype(xp.float64), xp.zeros((K, d - model.w.shape[1]))], axis=1)
    w = xp.where(gone, 0.0, w_old)
    v, v_pad, sigma_sq = moved_sums(model, edit, w_old, w)
    v, v_pad = xp.where(gone, 0.0, v), xp.where(gone, 0.0, v_pad)
    ball = gradient_ball(lam, gone, w, v, v_pad, sigma_sq)
    if steps:
        second = gradient_ball(lam, gone, *newton_point(model, edit, lam, gone, w, steps), sigma_sq)
        smaller = second[1] < ball[1]
        ball = tuple(xp.where(smaller, new, old) for new, old in zip(second, ball, strict=True))
    centre, radius, gap = ball

    fine = edit.valid & xp.all((edit.rows >= edit.n) | edit.row_removed | is_class(edit.target, K))
    status = xp.where(xp.isfinite(gap), int(Status.CONVERGED), int(Status.VACUOUS))
    status = xp.where(fine, status, int(Status.INVALID)).astype(xp.int32)
    radius, gap = (xp.where(fine & ~xp.isnan(x), x, xp.inf) for x in (radius, gap))
    return MultinomialBounds(
        centre, radius, xp.where(gone, xp.inf, lam)[0], w_old, gap, up(radius / root(xp.min(lam))),
        up(root(gap / (2 * _GAMMA))), status,
    )  # fmt: skip


_certify_jit = functools.partial(jax.jit, static_argnames="steps")(certify)


def gradient_ball(lam, gone, w, v, v_pad, sigma_sq):
    """(centre, radius in the metric lam, gap) from the gradient at w."""
    K = w.shape[0]
    g, size, error = gradient(lam, w, v, v_pad)
    rho = down(2 * _GAMMA * xp.min(lam) / xp.maximum(sigma_sq, 1e-6 * xp.min(lam)))
    centre = w - (1 + rho) / (2 + rho) * g / lam
    rounding = metric_norm((K + 12) * U * lam * (xp.abs(w) + xp.abs(g / lam)), lam)
    centre = xp.where(gone, 0.0, centre - xp.sum(centre, axis=0)[None, :] / K)
    return centre, up(size / (2 + rho) + error + rounding), up((size + error) ** 2 / 2)


def newton_point(model: MultinomialModel, edit: Edit, lam, gone, w, steps: int):
    """(W, V, bound on its error) after a damped Newton step by conjugate gradients, with passes over all data."""
    loss: Any = model.problem.loss
    outline = outline_of(model)
    matrix, (y, c) = new_matrix(outline, edit), new_rows(outline, edit)
    s, _, _, v, _ = dual_sums(loss, matrix, y, c, w)
    p = loss.probabilities(s)

    def times(flat):
        move = flat.reshape(w.shape)
        ds = products(matrix, move)
        bent = p * (ds - xp.sum(p * ds, axis=1)[:, None])
        return xp.where(gone, 0.0, lam * move + sums(matrix, c[:, None] * bent)).reshape(-1)

    b = xp.where(gone, 0.0, v - lam * w).reshape(-1)
    move = conjugate_gradients(times, b, steps).reshape(w.shape)
    ds, best, level = products(matrix, move), w, objective(loss, y, c, lam, w, s)
    for size in (1.0, 0.5, 0.25, 0.1, 0.02):
        value = objective(loss, y, c, lam, w + size * move, s + size * ds)
        best, level = xp.where(value < level, w + size * move, best), xp.minimum(value, level)
    _, _, _, v, v_pad = dual_sums(loss, matrix, y, c, best)
    return best, xp.where(gone, 0.0, v), xp.where(gone, 0.0, v_pad)


def moved_sums(model: MultinomialModel, edit: Edit, w_old, w):
    """(V, bound on its error, sigma^2) of the new problem at coefficients w: the touched rows take t afresh."""
    loss: Any = model.problem.loss
    n, R, E = model.target.shape[0], edit.rows.shape[0], edit.row.shape[0]
    K, d = w.shape
    inside = edit.rows < n
    at = xp.minimum(edit.rows, n - 1)
    row, col = xp.minimum(edit.row, R - 1), edit.cols[xp.minimum(edit.col, edit.cols.shape[0] - 1)]
    live = (edit.row < R) & (edit.col < edit.cols.shape[0]) & (col < d)
    col = xp.minimum(col, d - 1)
    new, old = xp.where(live, edit.new, 0.0)[:, None], xp.where(live, edit.old, 0.0)[:, None]

    def by(index, values, size):
        """Sums of the rows of values (E, K) with the same index."""
        flat = index[:, None].astype(xp.int64) * K + np.arange(K)[None, :]
        return segment_sum(values.reshape(-1), flat.reshape(-1), size * K).reshape(size, K)

    # scores of the touched rows
    keep = (inside & ~edit.full)[:, None]
    base = xp.where(keep, model.score[at], 0.0)
    base_abs = xp.where(keep[:, 0], model.score_abs[at], 0.0)
    now, was = new * w.T[col], xp.where(edit.full[row][:, None], 0.0, old * w_old.T[col])
    s = base + by(row, now - was, R)
    s_abs = base_abs + xp.max(by(row, xp.abs(now) + xp.abs(was), R), axis=1)
    terms = min(E, d)
    y = xp.where(is_class(edit.target, K), edit.target, 0.0)
    t, t_pad = dual_with_pad(loss, s, score_pad(s_abs, model.row_terms + terms + 4), y)

    # what the touched rows add to V: c t x - c_old t_old x_old, entry by entry
    kappa = edit.unit / model.problem.unit(n)
    c = (edit.weight * edit.unit)[:, None]
    c_old = xp.where(inside, model.weight[at], 0.0)[:, None] * edit.unit
    t_old = model.alpha[at]
    slot, place, value = model.data.matrix.rows(at)
    value = xp.where(inside[slot], value.astype(xp.float64), 0.0)[:, None]
    whole, change = (c * t - c_old * t_old)[slot] * value, (c * t)[row] * (new - old)
    whole_abs = (c * xp.abs(t) + c_old * xp.abs(t_old))[slot] * xp.abs(value)
    change_abs = (c * xp.abs(t))[row] * (xp.abs(new) + xp.abs(old))
    moved = by(place, whole, d) + by(col, change, d)
    size = by(place, whole_abs, d) + by(col, change_abs, d)
    # the old t is off by no more than the stored error of its row allows
    _, old_pad = dual_with_pad(loss, model.score[at], score_pad(model.score_abs[at], model.row_terms), model.target[at])
    pads = by(place, (c * t_pad + c_old * old_pad)[slot] * xp.abs(value), d) + by(
        col, (c * t_pad)[row] * (xp.abs(new) + xp.abs(old)), d
    )
    terms = slot.shape[0] + E + 12
    stretch = xp.zeros((K, d - model.v.shape[1]))
    v = kappa * xp.concatenate([model.v, stretch], axis=1)
    v_pad = kappa * xp.concatenate([model.v_pad, stretch], axis=1) + 8 * U * xp.abs(v)
    v_pad = up(v_pad + (growth(min(terms, n + d + 12) + 12) * size + pads).T, 16 + min(terms, 2 * n + 12)) + TINY

    # rows come anew: their squared norms on top of the old bound
    square = segment_sum(value[:, 0] ** 2, slot, R)
    gain, loss_sq = segment_sum(new[:, 0] ** 2, row, R), segment_sum(old[:, 0] ** 2, row, R)
    norms = xp.maximum(square + gain - loss_sq, 0.0) + growth(terms) * (square + gain + loss_sq)
    sigma_sq = up(kappa * model.sigma_sq + xp.sum(c[:, 0] * norms), R + 16)
    return v + moved.T, v_pad, sigma_sq


def new_start(model: MultinomialModel, change: Change):
    """(coefficients to start from, problem, factor of the weights, the columns that stay) of a retraining."""
    check_targets(change, model)
    edit = prepare(outline_of(to_host(model)), change)
    columns = np.flatnonzero(~np.asarray(edit.cols_where(np.asarray(edit.col_removed))))
    w = np.asarray(model.w, np.float64)
    w = np.pad(w, ((0, 0), (0, edit.d - w.shape[1])))[:, columns]
    problem = dataclasses.replace(model.problem, penalty=put(edit.penalty.take(columns)))
    removed = int(np.asarray(edit.rows_where(np.asarray(edit.row_removed))).sum())
    return w, problem, float(edit.unit) / problem.unit(edit.n - removed), columns
