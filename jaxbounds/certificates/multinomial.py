"""The ball for softmax with an L2 penalty: the four-point inequality in Frobenius norms, at the old coefficients.

With t = onehot - softmax(W x) in every row of the new problem all Fenchel-Young terms vanish, and with the gradient
g = lam W - V of the new problem, rho = 2 gamma lam / sigma^2 (gamma = 2, the loss being 1/2-smooth):

    ||W* - C||_lam <= ||g||_{1/lam} / (2 + rho),    C = W - (1 + rho)/(2 + rho) g / lam.

The classes' dual variables sum to 0 in each row, so sum_k w*_k = 0, and C may be projected: then a score x.w*_k lies
within sqrt(1 - 1/K) ||x|| R of x.c_k, and a difference of two classes within sqrt(2) ||x|| R.
"""

import functools
from typing import Any

import jax
import numpy as np

from jaxbounds.array import on_host, put, scatter_set, segment_sum, squared, to_host, xp
from jaxbounds.bounds import Interval, published
from jaxbounds.certificates.cached import Cached
from jaxbounds.classes import check_targets, is_class
from jaxbounds.edit import Edit, prepare
from jaxbounds.host import matrix_of
from jaxbounds.kinds import Change, SetPenalty
from jaxbounds.model import Data, score_pad
from jaxbounds.multinomial import MultinomialModel, check_multinomial, dual_with_pad, metric, metric_norm, products
from jaxbounds.problem import Problem
from jaxbounds.pytree import in_float64, pytree
from jaxbounds.rounding import TINY, U, dot_error, down, growth, norm_down, norm_up, root, up
from jaxbounds.status import Status

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


def edit_of(model: MultinomialModel, change: Change) -> Edit:
    """The change in slots of rows, columns and elements."""
    rows = _Rows(model.target, model.weight)
    outline: Any = _Outline(model.problem, model.v[0], model.target, rows, model.data)
    return prepare(outline, change)


@pytree
class MultinomialBounds:
    """Guaranteed intervals for the softmax model that retraining on the changed data would give.

    Numbers are the old ones; added columns follow. Removed columns have coefficients [0, 0].

    Attributes:
        gap: upper bound of the new duality gap at the old coefficients.
        radius: upper bound of ||W_new - centre||_F. dual_radius: of the dual variables' distance, in the norm of c.
        status: int32; `jb.Status(code).advice` says what it means.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> X, y = np.repeat(np.eye(3), 4, axis=0), np.repeat([0, 1, 2], 4)
        >>> model = jb.fit(jb.Problem(jb.losses.softmax(3), jb.penalties.l2(0.1)), X, y)
        >>> bounds = jb.bound(model, jb.set_targets([0], [1]))
        >>> bounds.scores(np.eye(3)).lower.shape, bounds.decided(np.eye(3)).tolist()
        ((3, 3), [True, True, True])
    """

    centre: Any  # (K, d)
    metric_radius: Any  # in the metric lam
    lam: Any  # (d,), infinite in removed columns
    w: Any  # (K, d) the old coefficients
    gap: Any
    radius: Any
    dual_radius: Any
    status: Any

    @published
    def coefficients(self):
        """Interval (K, d) for every coefficient."""
        return _run(self, "coefficients")

    @published
    def scores(self, X):
        """Interval (m, K) for the retrained scores of each row of X (m, d); d counts old and added columns."""
        return _run(self, "scores", self._matrix(X))

    @published
    def probabilities(self, X):
        """Interval (m, K) for the retrained class probabilities of each row of X."""
        return _run(self, "probabilities", self._matrix(X))

    @property
    @published
    def distance(self):
        """Interval for ||W_new - W_old||_F, coefficients of removed columns counted in full."""
        return _run(self, "distance")

    @in_float64
    def labels(self, X):
        """Certified class numbers (m,) int32, -1 where the ball does not decide."""
        return put(_run(self, "labels", self._matrix(X)))

    @in_float64
    def decided(self, X):
        """Whether the class of each row is certain: (m,) bool."""
        return self.labels(X) >= 0

    def _matrix(self, X):
        matrix = matrix_of(X, on_host(self, X))
        if matrix.shape[1] != self.lam.shape[0]:
            raise ValueError(f"X must have {self.lam.shape[0]} columns (old and added ones), got {matrix.shape[1]}")
        return matrix


def _run(bounds: MultinomialBounds, what: str, *args):
    if on_host(bounds, args):
        return _EVALUATE[what](to_host(bounds), *args)
    return _run_jit(bounds, what, args)


_run_jit = functools.partial(jax.jit, static_argnames="what")(lambda bounds, what, args: _EVALUATE[what](bounds, *args))


def _share(bounds):
    """||projection of e_k||: coefficients of all classes sum to 0."""
    return float(up(np.sqrt(1.0 - 1.0 / bounds.centre.shape[0])))


def _coefficients(bounds):
    half = up(bounds.metric_radius * _share(bounds) / root(bounds.lam))[None, :] + 4 * U * xp.abs(bounds.centre)
    return _unless_invalid(bounds, bounds.centre - half, bounds.centre + half)


def _rows(bounds, matrix):
    """(x.c_k (m, K), its error (m,), upper bound of ||x||_{1/lam} R (m,))."""
    terms = matrix.row_terms
    middle = products(matrix, bounds.centre)
    size = xp.max(products(matrix.map(xp.abs), xp.abs(bounds.centre)), axis=1)
    length = norm_up(matrix.map(squared).matvec(1.0 / bounds.lam), terms + 2)
    return middle, dot_error(size, terms) + U * xp.max(xp.abs(middle), axis=1), up(length * bounds.metric_radius)


def _scores(bounds, matrix):
    middle, pad, half = _rows(bounds, matrix)
    half = (up(half * _share(bounds)) + pad)[:, None]
    return _unless_invalid(bounds, middle - half, middle + half)


def _labels(bounds, matrix):
    """The winner x.c_k is certain if it leads every other by sqrt(2) ||x|| R."""
    middle, pad, half = _rows(bounds, matrix)
    first = xp.argmax(middle, axis=1)
    others = xp.where(first[:, None] == np.arange(middle.shape[1])[None, :], -xp.inf, middle)
    lead = xp.max(middle, axis=1) - xp.max(others, axis=1)
    sure = lead * (1 - 4 * U) > up(np.sqrt(2.0) * half) + 2 * pad
    return xp.where(sure & (bounds.status != Status.INVALID), first, -1).astype(xp.int32)


def _probabilities(bounds, matrix):
    """1 / sum_l e^(s_l - s_k), with every difference at its end."""
    middle, pad, half = _rows(bounds, matrix)
    K = middle.shape[1]
    away = (up(np.sqrt(2.0) * half) + 2 * pad)[:, None]
    ends = []
    for sign in (1.0, -1.0):
        total = []
        for k in range(K):
            rise = middle - middle[:, k : k + 1]
            rise = rise + xp.where(np.arange(K)[None, :] == k, 0.0, sign * (away + 2 * U * xp.abs(rise)))
            total.append(xp.sum(xp.exp(xp.minimum(rise, 700.0)), axis=1))
        ends.append(1.0 / xp.stack(total, axis=1))
    slack = growth(2 * K + 2000)  # e^x of |x| up to 700 and a sum
    low, high = ends[0] * (1 - slack) - TINY, xp.minimum(ends[1] * (1 + slack) + 1e-300, 1.0)
    low, high = xp.where(away < xp.inf, xp.maximum(low, 0.0), 0.0), xp.where(away < xp.inf, high, 1.0)
    invalid = bounds.status == Status.INVALID
    return xp.where(invalid, 0.0, low), xp.where(invalid, 1.0, high)


def _distance(bounds):
    kept = xp.isfinite(bounds.lam)[None, :]
    K, d = bounds.centre.shape
    gone, moved = (xp.sum(xp.where(where, x, 0.0) ** 2) for where, x in ((~kept, bounds.w), (kept, bounds.centre - bounds.w)))
    terms = K * d + 8
    rounding = norm_up(xp.sum(xp.where(kept, (4 * U * bounds.w) ** 2, 0.0)), terms)
    near = xp.maximum(norm_down(moved, terms) - bounds.radius - rounding, 0.0)
    far = up(norm_up(moved, terms) + bounds.radius + rounding)
    return _unless_invalid(bounds, norm_down(gone + near**2, terms), norm_up(gone + far**2, terms))


def _unless_invalid(bounds, lower, upper):
    invalid = bounds.status == Status.INVALID
    return xp.where(invalid, -xp.inf, lower), xp.where(invalid, xp.inf, upper)


_EVALUATE = {
    "coefficients": _coefficients, "scores": _scores, "labels": _labels, "probabilities": _probabilities,
    "distance": _distance,
}  # fmt: skip


@in_float64
def bound_multinomial(model: MultinomialModel, change: Change, method: Any = None) -> MultinomialBounds:
    """Bounds on the retrained softmax model; see `jb.bound`."""
    if method is not None and not isinstance(method, Cached):
        raise ValueError(f"softmax has the method Cached() only, got {type(method).__name__}; leave method out")
    check_targets(change, model.classes)
    for part in change.parts():
        if isinstance(part, SetPenalty):
            check_multinomial(Problem(model.problem.loss, part.penalty, model.problem.scale))  # type: ignore[arg-type]
    if on_host(model, change):
        return put(certify(*to_host((model, change))))
    return _certify_jit(model, change)


def certify(model: MultinomialModel, change: Change) -> MultinomialBounds:
    """The ball of the new problem's gradient at the old coefficients, 0 in removed columns."""
    edit = edit_of(model, change)
    K, d = model.classes, edit.d
    lam = metric(edit.penalty, d)
    gone = edit.cols_where(edit.col_removed)[None, :]
    w_old = xp.concatenate([model.w.astype(xp.float64), xp.zeros((K, d - model.w.shape[1]))], axis=1)
    w = xp.where(gone, 0.0, w_old)
    v, v_pad, sigma_sq = moved_sums(model, edit, w_old, w)
    v, v_pad = xp.where(gone, 0.0, v), xp.where(gone, 0.0, v_pad)

    g = lam * w - v
    size, error = metric_norm(g, lam), metric_norm(v_pad + 4 * U * (xp.abs(lam * w) + xp.abs(v)), lam)
    rho = down(2 * _GAMMA * xp.min(lam) / xp.maximum(sigma_sq, 1e-6 * xp.min(lam)))
    centre = w - (1 + rho) / (2 + rho) * g / lam
    rounding = metric_norm((K + 12) * U * lam * (xp.abs(w) + xp.abs(g / lam)), lam)
    centre = xp.where(gone, 0.0, centre - xp.sum(centre, axis=0)[None, :] / K)
    radius = up(size / (2 + rho) + error + rounding)
    gap = up((size + error) ** 2 / 2)

    targets = xp.all((edit.rows >= edit.n) | edit.row_removed | is_class(edit.target, K))
    fine = edit.valid & targets
    status = xp.where(xp.isfinite(gap), int(Status.CONVERGED), int(Status.VACUOUS))
    status = xp.where(fine, status, int(Status.INVALID)).astype(xp.int32)
    radius, gap = (xp.where(fine & ~xp.isnan(x), x, xp.inf) for x in (radius, gap))
    return MultinomialBounds(
        centre, radius, xp.where(gone, xp.inf, lam)[0], w_old, gap, up(radius / root(xp.min(lam))),
        up(root(gap / (2 * _GAMMA))), status,
    )  # fmt: skip


_certify_jit = jax.jit(certify)


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
    """(coefficients to start from, new problem, factor of the weights) of a retraining, in compact numbers."""
    import dataclasses

    check_targets(change, model.classes)
    edit = edit_of(model, change)
    gone = np.asarray(edit.cols_where(np.asarray(edit.col_removed)))
    w = np.asarray(model.w, np.float64)
    w = np.pad(w, ((0, 0), (0, edit.d - w.shape[1])))[:, ~gone]
    problem = dataclasses.replace(model.problem, penalty=put(edit.penalty.take(np.flatnonzero(~gone))))
    removed = int(np.asarray(edit.rows_where(np.asarray(edit.row_removed))).sum())
    return w, problem, float(edit.unit) / problem.unit(edit.n - removed)
