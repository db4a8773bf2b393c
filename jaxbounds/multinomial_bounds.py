"""What a ball says of a retrained softmax model: scores, differences of two classes, labels, probabilities."""

import functools
from typing import Any

import jax
import numpy as np

from jaxbounds.array import on_host, put, squared, to_host, xp
from jaxbounds.bounds import published
from jaxbounds.classes import argmax
from jaxbounds.inputs import rows_of
from jaxbounds.multinomial import products
from jaxbounds.pytree import in_float64, pytree
from jaxbounds.rounding import TINY, U, dot_error, growth, norm_down, norm_up, root, up
from jaxbounds.status import Status


@pytree
class MultinomialBounds:
    """Guaranteed intervals for the softmax model that retraining on the changed data would give.

    Numbers are the old ones; added columns follow. Removed columns have coefficients [0, 0].

    Attributes:
        gap: upper bound of the new duality gap at the old coefficients.
        radius: upper bound of ||W_new - centre||_F. dual_radius: of the dual variables' distance, in the norm of c.
        status: int32; `jb.Status(code).advice` says what it means.
        method: the method asked for. touched: how many rows, columns and elements the change set, added and removed.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> X, y = np.repeat(np.eye(3), 4, axis=0), np.repeat([0, 1, 2], 4)
        >>> model = jb.fit(jb.Problem(jb.losses.softmax(3), jb.penalties.l2(0.1)), X, y)
        >>> bounds = jb.bound(model, jb.set_targets([0], [1]))
        >>> bounds.scores(np.eye(3)).lower.shape, bounds.decided(np.eye(3)).tolist()
        ((3, 3), [False, True, True])
    """

    centre: Any  # (K, d)
    metric_radius: Any  # in the metric lam
    lam: Any  # (d,), infinite in removed columns
    old: Any  # (K, d) the old coefficients
    gap: Any
    radius: Any
    dual_radius: Any
    status: Any
    inputs: Any = None  # of the model, as its rows are written
    touched: Any = None  # (kinds,) int32 sizes of the change, see `wording.touched`
    method: Any = None

    @published
    def w(self):
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
        matrix = rows_of(self, X, self.lam.shape[0], on_host(self, X))
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
    first = argmax(middle)
    others = xp.where(first[:, None] == np.arange(middle.shape[1], dtype=np.int32)[None, :], -xp.inf, middle)
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
    gone = xp.sum(xp.where(kept, 0.0, bounds.old) ** 2)
    moved = xp.sum(xp.where(kept, bounds.centre - bounds.old, 0.0) ** 2)
    terms = K * d + 8
    rounding = norm_up(xp.sum(xp.where(kept, (4 * U * bounds.old) ** 2, 0.0)), terms)
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
