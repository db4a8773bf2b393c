"""Inverses of Hessians whose error is known: H = diag(ridge) + M X^T diag(h) X M, M = diag(mask).

    H P = I - E  with  ||E|| <= eps < 1   gives   ||H^-1 b - P b|| <= eps ||b|| / mu,   mu = (1 - eps) / ||P|| <= H.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbounds.array import squared, uses_jax, xp
from jaxbounds.certificates.linear import conjugate_gradients
from jaxbounds.host import HostMatrix
from jaxbounds.matrix import Dense
from jaxbounds.pytree import pytree, static
from jaxbounds.rounding import TINY, U, dot_error, growth, norm_up, up
from jaxbounds.row_blocks import RowBlocks

_SIDE = 4096  # inverses up to this side are formed
_STEPS = 200  # of conjugate gradients where none is formed


@pytree
class Hessian:
    """H as an operator, with what is needed to bound the error of its products."""

    matrix: Any
    magnitude: Any
    h: Any  # (n,) c_i times a slope
    ridge: Any  # (d,) 1 where the mask is False: there H is the identity
    mask: Any  # (d,) columns that move

    def times(self, p):
        """H p for a (d, k) array."""
        data = transposed(self.matrix, self.h[:, None] * product(self.matrix, self.moving(p)))
        return self.ridge[:, None] * p + self.moving(data)

    def moving(self, p):
        """The rows of p whose columns move, zeros elsewhere."""
        return xp.where(self.mask[:, None], p, 0.0)

    def residual(self, b, p):
        """(b - H p, bound on the norm of that and its rounding) for (d, k) arrays."""
        r = b - self.times(p)
        terms = self.matrix.row_terms + self.matrix.col_terms + 8
        size = transposed(self.magnitude, self.h[:, None] * product(self.magnitude, xp.abs(p)))
        size = dot_error(size + self.ridge[:, None] * xp.abs(p) + xp.abs(b), terms)
        return r, norm_up(xp.sum((xp.abs(r) + size) ** 2, axis=0), b.shape[0] + 4)


@pytree
class Inverse:
    """An approximate inverse of H: `apply` multiplies by P, whatever it is made of."""

    hessian: Hessian
    P: Any  # (d, d), or (n, n) inverse of the Gram form, or the diagonal of a preconditioner
    eps: Any  # bound of ||I - H P||, of I - G P in the Gram form, inf where it is not known beforehand
    mu: Any  # lower bound of the least eigenvalue of H
    K: Any  # (n, n) X diag(1/ridge) X^T in the Gram form
    kind: str = static()

    def apply(self, b):
        """P b for a (d, k) array."""
        if self.kind == "full":
            return dot(self.P, b)
        if self.kind == "gram":
            at, scaled = self.hessian, b / self.hessian.ridge[:, None]
            root = xp.sqrt(at.h)[:, None]
            inner = root * dot(self.P, root * product(at.matrix, at.moving(scaled)))
            return scaled - at.moving(transposed(at.matrix, inner)) / at.ridge[:, None]
        columns = {"total": lambda x: xp.sum(x, axis=0), "spread": lambda x: x[None, :]}
        return conjugate_gradients(self.hessian.times, b, _STEPS, self.P[:, None], **columns)

    def solve(self, b):
        """(x, bound of ||H^-1 b - x||) for one vector b, refined once."""
        b = b[:, None]
        x = self.apply(b)
        x = x + self.apply(self.hessian.residual(b, x)[0])
        return x[:, 0], up(self.hessian.residual(b, x)[1][0] / self.mu)

    def solve_rows(self, b):
        """(X, bounds of ||H^-1 b_k - x_k||) for the columns b_k of a (d, k) array."""
        x = self.apply(b)
        if self.kind == "full":
            return x, up(norm_up(xp.sum(b**2, axis=0), b.shape[0] + 4) * self.error)
        return x, up(self.hessian.residual(b, x)[1] / self.mu)

    def row_scores(self, matrix):
        """(X H^-1 t for the rows t of a matrix, bound on the norm of each column's error), from n x n products alone.

        With k = X diag(1/ridge) t and G = I + h^(1/2) K h^(1/2) it is k - K h^(1/2) G^-1 h^(1/2) k.
        """
        at, n = self.hessian, self.P.shape[0]
        scale = xp.where(at.mask, 1.0 / at.ridge, 0.0)
        k, size = cross(at.matrix, scale, matrix), cross(at.magnitude, scale, matrix.map(xp.abs))
        root = xp.sqrt(at.h)[:, None]
        z = dot(self.P, root * k)
        y = k - dot(self.K, root * z)
        most, trace = xp.max(root), xp.sum(xp.diag(self.K))
        off = growth(at.matrix.row_terms + 8) * norm_up(xp.sum(size**2, axis=0), n) * (1 + trace * most**2)
        own = growth(n + 4) * xp.sqrt(xp.sum(self.P**2)) + growth(2 * n + at.matrix.row_terms + 8)  # of P, and of K
        rounding = (self.eps + own) * norm_up(xp.sum((root * k) ** 2, axis=0), n)
        return y, up(off + trace * most * rounding + growth(n + 4) * norm_up(xp.sum(k**2, axis=0), n), 16)

    @property
    def error(self):
        """Bound of ||H^-1 - P||, products with P in floating point included."""
        size = xp.sqrt(xp.sum(self.P**2))
        return up(self.eps / self.mu + growth(self.P.shape[0] + 4) * size, self.P.size)


def invert(hessian: Hessian, definite: bool = True) -> Inverse:
    """The inverse in the cheapest form: d x d, n x n (if the ridge is positive), or conjugate gradients."""
    (n, d), matrix = hessian.matrix.shape, hessian.matrix
    least = xp.min(xp.where(hessian.mask, hessian.ridge, xp.inf))
    if d <= min(_SIDE, max(n, 256)):
        return _full(hessian, least)
    if n <= _SIDE and definite:
        root = xp.sqrt(hessian.h)[:, None]
        K = cross(matrix, xp.where(hessian.mask, 1.0 / hessian.ridge, 0.0), matrix)
        G = root * K * root.T + xp.eye(n)
        P = inverse_of(G)
        trace = xp.sum(hessian.h * xp.diag(K))
        eps = residual_norm(G, P, growth(matrix.row_terms + 8) * trace)
        return Inverse(hessian, xp.where(xp.isfinite(P), P, 0.0), eps, least, K, "gram")
    diagonal = hessian.ridge + matrix.map(squared).rmatvec(hessian.h)
    return Inverse(hessian, 1.0 / xp.where(hessian.mask, diagonal, 1.0), xp.asarray(xp.inf), least, None, "iterative")


def _full(hessian: Hessian, least) -> Inverse:
    """P with ||I - H P|| from the product itself; the rounding of H counts as a part of E."""
    (n, d), mask = hessian.matrix.shape, hessian.mask
    inside = mask[:, None] & mask[None, :]
    ridge = hessian.ridge
    H = xp.where(inside, gram(hessian.matrix, hessian.h), 0.0) + xp.diag(ridge)
    P = inverse_of(H)
    trace = xp.sum(hessian.h * hessian.magnitude.map(squared).matvec(xp.ones(d)))
    eps = residual_norm(H, P, growth(n + 8) * trace + 4 * U * xp.max(ridge))
    return Inverse(hessian, xp.where(xp.isfinite(P), P, 0.0), eps, least_eigenvalue(P, eps, least), None, "full")


def least_eigenvalue(P, eps, least):
    """Lower bound of the least eigenvalue of H, given one that is known and P with ||I - H P|| <= eps."""
    size = xp.sqrt(xp.sum(P**2)) * (1 + growth(P.size + 4))
    return xp.where(xp.isfinite(eps), xp.maximum(least, (1 - eps) / size * (1 - 8 * U)), least)


def residual_norm(H, P, off):
    """Upper bound of ||I - H P|| for an H that is known within `off`; inf unless it is below 1/2."""
    d = H.shape[0]
    size = xp.sqrt(xp.sum(P**2)) * (1 + growth(d * d + 4))
    off = off + growth(d + 4) * xp.sqrt(xp.sum(H**2)) + d * TINY
    eps = up(norm_up(xp.sum((xp.eye(d) - dot(H, P)) ** 2), d * d + 4) + off * size, d)
    return xp.where(eps < 0.5, eps, xp.inf)  # also where it is not a number


def dot(a, b):
    """Matrix product in full precision on every device."""
    if uses_jax((a, b)):
        return jnp.dot(a, b, precision=jax.lax.Precision.HIGHEST)
    return a @ b


def product(matrix, b):
    """X B for a (d, k) array."""
    if isinstance(matrix, HostMatrix):
        return matrix.values @ b
    if isinstance(matrix, Dense):
        return dot(matrix.values.astype(jnp.float64), b)
    return jax.vmap(matrix.matvec, 1, 1)(b)


def transposed(matrix, b):
    """X^T B for an (n, k) array."""
    if isinstance(matrix, HostMatrix):
        return matrix.values.T @ b
    if isinstance(matrix, Dense):
        return dot(matrix.values.astype(jnp.float64).T, b)
    return jax.vmap(matrix.rmatvec, 1, 1)(b)


def gram(matrix, h):
    """X^T diag(h) X, (d, d)."""
    if isinstance(matrix, HostMatrix) and not isinstance(matrix.values, np.ndarray):
        return (matrix.values.multiply(h[:, None]).tocsr().T @ matrix.values).toarray()
    X = dense(matrix)
    return dot((h[:, None] * X).T, X)


def cross(left, scale, right):
    """A diag(scale) B^T for two matrices."""
    if isinstance(left, HostMatrix) and not isinstance(left.values, np.ndarray):
        product = left.values.multiply(scale[None, :]).tocsr() @ right.values.T
        return product if isinstance(product, np.ndarray) else product.toarray()
    return dot(dense(left) * scale[None, :], dense(right).T)


def dense(matrix):
    """The entries as one float64 array."""
    if isinstance(matrix, HostMatrix):
        values = matrix.values if isinstance(matrix.values, np.ndarray) else matrix.values.toarray()
        return values.astype(np.float64, copy=False)
    if isinstance(matrix, RowBlocks):
        return matrix.to_dense()  # says what to do instead
    if isinstance(matrix, Dense):
        return matrix.values.astype(jnp.float64)
    return jax.vmap(matrix.matvec, 1, 1)(jnp.eye(matrix.shape[1]))


def inverse_of(H):
    """The inverse of a positive definite matrix, NaN where rounding hides that it is one."""
    if uses_jax((H,)):
        eye = jnp.eye(H.shape[0], dtype=H.dtype)
        return jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(H), True), eye)
    try:
        return np.linalg.inv(H)
    except np.linalg.LinAlgError:
        return np.full_like(H, np.nan)
