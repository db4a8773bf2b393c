"""The problem after a change, written out over all rows and columns, and its gradient with a bound on its error."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from jaxbounds.array import segment_sum, xp
from jaxbounds.certificates.centre import extend, new_rows, with_data
from jaxbounds.edit import Edit
from jaxbounds.host import HostMatrix, host_matrix
from jaxbounds.intercept import balanced_intercept
from jaxbounds.interfaces import Loss, Penalty
from jaxbounds.matrix import Dense
from jaxbounds.model import Model, coordinate_pad, dual_vector_pad, excess_bounds, lam_of, score_pad
from jaxbounds.problem import dual_vector
from jaxbounds.pytree import pytree, static
from jaxbounds.rounding import TINY, U, up


@pytree
class Patched:
    """Sparse data of which some rows and columns are replaced by listed entries (under tracing)."""

    base: Any  # Sparse or Dense, (old n, old d)
    keep_row: Any  # (n,) 1 where the old row stays
    keep_col: Any  # (d,)
    row: Any
    col: Any
    value: Any

    @property
    def shape(self):
        """(n, d)."""
        return self.keep_row.shape[0], self.keep_col.shape[0]

    @property
    def row_terms(self):
        """Most summands in a row sum."""
        return self.base.row_terms + min(self.value.shape[0], self.shape[1])

    @property
    def col_terms(self):
        """Most summands in a column sum."""
        return self.base.col_terms + min(self.value.shape[0], self.shape[0])

    def matvec(self, w):
        """X w."""
        (n, d), old = self.shape, self.base.shape
        kept = extend(self.base.matvec((self.keep_col * w)[: old[1]]), n) * self.keep_row
        return kept + segment_sum(self.value * xp.take(w, xp.minimum(self.col, d - 1)), self.row, n)

    def rmatvec(self, t):
        """X^T t."""
        (n, d), old = self.shape, self.base.shape
        kept = extend(self.base.rmatvec((self.keep_row * t)[: old[0]]), d) * self.keep_col
        return kept + segment_sum(self.value * xp.take(t, xp.minimum(self.row, n - 1)), self.col, d)

    def map(self, fn):
        """The matrix with fn applied to each entry (fn(0) = 0)."""
        return Patched(self.base.map(fn), self.keep_row, self.keep_col, self.row, self.col, fn(self.value))


def new_matrix(model: Model, edit: Edit) -> Any:
    """X~ of an edit whose elements fill whole rows and columns (`prepare(..., whole=True)`)."""
    matrix, (n, d) = host_matrix(with_data(model).matrix), (edit.n, edit.d)
    R, Q = edit.rows.shape[0], edit.cols.shape[0]
    live = (edit.row < R) & (edit.col < Q)
    row = xp.where(live, edit.rows[xp.minimum(edit.row, R - 1)], n)
    col = xp.where(live, edit.cols[xp.minimum(edit.col, Q - 1)], d)
    value = xp.where(live, edit.new, 0.0)
    keep_row = xp.where(edit.rows_where(edit.full), 0.0, 1.0)
    keep_col = xp.where(edit.cols_where(edit.whole), 0.0, 1.0)
    if not isinstance(matrix, HostMatrix):
        if not isinstance(matrix, Dense):
            return Patched(matrix, keep_row, keep_col, row, col, value)
        old = matrix.values.astype(xp.float64)
        base = xp.zeros_like(old, shape=(n, d)).at[: old.shape[0], : old.shape[1]].set(old)
        # a position may be listed again with zeros: added, in any order
        return Dense((base * keep_row[:, None] * keep_col[None, :]).at[row, col].add(value, mode="drop"))
    row, col, value = row[live], col[live], value[live]
    if not sp.issparse(matrix.values):
        base = np.zeros((n, d))
        base[: matrix.shape[0], : matrix.shape[1]] = matrix.values
        base *= keep_row[:, None]
        base *= keep_col
        base[row, col] = value
        return HostMatrix(base)
    old = matrix.values.tocoo()
    stays = (keep_row[old.row] * keep_col[old.col]) > 0
    parts = ((old.data[stays], value), (old.row[stays], row), (old.col[stays], col))
    data, rows, cols = (np.concatenate(pair) for pair in parts)
    return HostMatrix(sp.csr_array((data.astype(np.float64), (rows, cols)), shape=(n, d)))


@pytree
class Gradient:
    """A point w of the new problem, its scores, and grad P~(w) (the least element of the subdifferential).

    `pad` bounds the error of g for the exact scores of w, and also what replacing them by `score` can change: for any
    w', g + H (w' - w) differs from grad P~(w') by at most `pad`, H the Hessian of secant slopes from `score`.
    """

    w: Any  # (d,)
    score: Any  # (n,) as computed
    score_pad: Any  # (n,) bound on its error
    q: Any  # (n,) natural coordinate
    a: Any  # (n,) -f'(q)
    a_pad: Any  # (n,) bound on its distance from -f' at the exact score
    v: Any  # (d,) sum_i c_i t_i x_i at t = a
    g: Any  # (d,)
    pad: Any  # (d,)


@pytree
class NewProblem:
    """P~ written out: data, targets, c (0 in removed rows) and penalty; `free` columns are not removed."""

    loss: Loss
    penalty: Penalty
    matrix: Any
    magnitude: Any  # |X~|
    y: Any
    c: Any
    lam: Any  # (d,) strong convexity of the penalty
    free: Any  # (d,)
    intercept: bool = static()  # the last column is all ones, and the penalty does not see it

    def gradient(self, w) -> Gradient:
        """The gradient at w, in two products with the data and three with its absolute values."""
        loss, c = self.loss, self.c
        if self.intercept:
            w = xp.concatenate([w[:-1], balanced_intercept(loss, self.matrix.matvec(w) - w[-1], self.y, c)[None]])
        score = self.matrix.matvec(w)
        s_pad = score_pad(self.magnitude.matvec(xp.abs(w)), self.matrix.row_terms)
        q = loss.coordinate(score, self.y)
        a = loss.dual(q, self.y)
        noise = 64 * U if loss.defined_by_ref else 16 * U  # a user's derivative is trusted to a few roundings
        a_pad = loss.smoothness * coordinate_pad(q, s_pad) + noise * xp.abs(a) + TINY
        v = dual_vector(loss, self.matrix, self.y, c, a)
        v_pad = dual_vector_pad(self.magnitude, c, a) + up(self.magnitude.rmatvec(c * a_pad), self.matrix.col_terms)
        low, high = self.subgradient(w)
        own = xp.clip(v, low, high)
        trusted = 8 if self.penalty.piecewise_quadratic else 64  # a user's derivative, or a power
        pad = up(v_pad + trusted * U * (xp.abs(own) + xp.abs(v)))
        g, pad = xp.where(self.free, own - v, 0.0), xp.where(self.free, pad, 0.0)
        return Gradient(w, score, s_pad, q, a, a_pad, v, g, pad)

    def value(self, score, w):
        """P~(w) at given scores."""
        q = self.loss.coordinate(score, self.y)
        return xp.sum(self.c * self.loss.value(q, self.y)) + xp.sum(self.penalty.value(self.penalised(w)))

    @property
    def definite(self) -> bool:
        """Whether the penalty alone makes every Hessian positive definite."""
        return self.penalty.strong_convexity is not None and not self.intercept

    def penalised(self, w):
        """The entries that the penalty sees."""
        return w[:-1] if self.intercept else w

    def whole(self, of_penalised, of_intercept):
        """A vector over the penalised columns, with the entry of the intercept."""
        return xp.concatenate([of_penalised, of_intercept]) if self.intercept else of_penalised

    def subgradient(self, w):
        """(lo, hi) of the penalty's subdifferential, 0 for the intercept."""
        return tuple(self.whole(end, xp.zeros(1)) for end in self.penalty.subgradient(self.penalised(w)))

    def ridge(self, w):
        """The penalty's second derivative, 0 for the intercept."""
        return self.whole(self.penalty.second(self.penalised(w)) + xp.zeros_like(self.penalised(w)), xp.zeros(1))

    def prox(self, z, size):
        """The penalty's proximal step; the intercept stays where z is."""
        return self.whole(self.penalty.prox(self.penalised(z), self.penalised(size + xp.zeros_like(z))), z[-1:])

    def excess(self, at):
        """Upper bounds of sum_j [B_j - lam_j/2 e_j^2] and of sum_j lam_j e_j^2, e = w - u."""
        w, v, pad, lam = map(self.penalised, (at.w, at.v, at.pad, self.lam))
        excess, e, e_pad = excess_bounds(self.penalty, w, v, pad, lam)
        return xp.sum(excess), xp.sum((xp.abs(e) + e_pad) ** 2 * lam)

    def slope_weights(self, q):
        """c_i f''(q_i)."""
        return self.c * self.loss.second(q, self.y)


def renew(model: Model, edit: Edit) -> NewProblem:
    """The new problem of an edit that lists whole rows and columns."""
    matrix, (y, c), free = new_matrix(model, edit), new_rows(model, edit), ~edit.cols_where(edit.col_removed)
    lam, intercept = lam_of(edit.penalty, edit.d), model.problem.intercept
    if intercept:
        matrix, lam = with_ones(matrix), xp.concatenate([lam, xp.zeros(1)])
        free = xp.concatenate([free, xp.ones(1) > 0])
    return NewProblem(model.problem.loss, edit.penalty, matrix, matrix.map(xp.abs), y, c, lam, free, intercept)


def old_w(model: Model, edit: Edit):
    """w^ with zeros in added and removed columns, and the intercept: where the new problem starts."""
    w = extend(model.w.astype(xp.float64), edit.d)
    start = xp.where(edit.cols_where(edit.col_removed), 0.0, w)
    return xp.concatenate([start, model.intercept[None]]) if model.problem.intercept else start


def with_ones(matrix: Any) -> Any:
    """[X 1]: the matrix with a column of ones."""
    n, d = matrix.shape
    if isinstance(matrix, HostMatrix):
        if sp.issparse(matrix.values):
            return HostMatrix(sp.hstack([matrix.values.astype(np.float64), np.ones((n, 1))], "csr"))
        return HostMatrix(np.column_stack([matrix.values, np.ones(n)]))
    if isinstance(matrix, Dense):
        return Dense(jnp.concatenate([matrix.values.astype(jnp.float64), jnp.ones((n, 1))], axis=1))
    if not isinstance(matrix, Patched):
        nothing = np.zeros(0, int)
        matrix = Patched(matrix, np.ones(n), np.ones(d), nothing, nothing, np.zeros(0))
    kind = matrix.row.dtype
    row, col = (
        xp.concatenate([a, b]) for a, b in ((matrix.row, np.arange(n, dtype=kind)), (matrix.col, np.full(n, d, kind)))
    )
    keep = xp.concatenate([matrix.keep_col, np.zeros(1)])
    return Patched(matrix.base, matrix.keep_row, keep, row, col, xp.concatenate([matrix.value, np.ones(n)]))
