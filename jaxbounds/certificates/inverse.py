"""Inverses of Hessians whose error is known: H = diag(ridge) + M X^T diag(h) X M, M = diag(mask).

    H P = I - E  with  ||E|| <= eps < 1   gives   ||H^-1 b - P b|| <= eps ||b|| / mu,   mu = (1 - eps) / ||P|| <= H.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from jaxbounds.array import CONVERGED, fori_loop, ratio, uses_jax, xp
from jaxbounds.host import HostMatrix
from jaxbounds.matrix import Dense
from jaxbounds.pytree import pytree, static
from jaxbounds.rounding import TINY, U, dot_error, growth, norm_up, up

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
    eps: Any  # bound of ||I - H P||, inf where it is not known beforehand
    mu: Any  # lower bound of the least eigenvalue of H
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
        return conjugate_gradients(self.hessian.times, b, self.P[:, None])

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

    @property
    def error(self):
        """Bound of ||H^-1 - P||, products with P in floating point included."""
        return up((self.eps + growth(self.P.shape[0] + 4)) / self.mu)


def invert(hessian: Hessian, definite: bool = True) -> Inverse:
    """The inverse in the cheapest form: d x d, n x n (if the ridge is positive), or conjugate gradients."""
    (n, d), matrix = hessian.matrix.shape, hessian.matrix
    least = xp.min(xp.where(hessian.mask, hessian.ridge, xp.inf))
    if d <= min(_SIDE, max(n, 256)):
        return _full(hessian, least)
    if n <= _SIDE and definite:
        root = xp.sqrt(hessian.h)[:, None]
        scaled = xp.where(hessian.mask, 1.0 / hessian.ridge, 0.0)
        gram = transposed_gram(matrix, scaled)
        P = inverse_of(root * gram * root.T + xp.eye(n))
        return Inverse(hessian, P, xp.asarray(xp.inf), least, "gram")
    diagonal = hessian.ridge + matrix.map(xp.square).rmatvec(hessian.h)
    return Inverse(hessian, 1.0 / xp.where(hessian.mask, diagonal, 1.0), xp.asarray(xp.inf), least, "iterative")


def _full(hessian: Hessian, least) -> Inverse:
    """P with ||I - H P|| from the product itself; the rounding of H counts as a part of E."""
    (n, d), mask = hessian.matrix.shape, hessian.mask
    inside = mask[:, None] & mask[None, :]
    ridge = hessian.ridge
    H = xp.where(inside, gram(hessian.matrix, hessian.h), 0.0) + xp.diag(ridge)
    P = inverse_of(H)
    E = xp.eye(d) - dot(H, P)
    size = xp.sqrt(xp.sum(P**2)) * (1 + growth(d * d + 4))
    trace = xp.sum(hessian.h * hessian.magnitude.map(xp.square).matvec(xp.ones(d)))
    off = growth(n + 8) * trace + 4 * U * xp.max(ridge)
    off = off + growth(d + 4) * xp.sqrt(xp.sum(H**2))
    eps = up(norm_up(xp.sum(E**2), d * d + 4) + (off + d * TINY) * size, d)
    eps = xp.where(eps < 0.5, eps, xp.inf)  # also where it is not a number
    mu = xp.where(xp.isfinite(eps), xp.maximum(least, (1 - eps) / size * (1 - 8 * U)), least)
    return Inverse(hessian, xp.where(xp.isfinite(P), P, 0.0), eps, mu, "full")


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
    X = dense(matrix)
    return dot((h[:, None] * X).T, X)


def transposed_gram(matrix, scale):
    """X diag(scale) X^T, (n, n)."""
    if isinstance(matrix, HostMatrix) and not isinstance(matrix.values, np.ndarray):
        return np.asarray((matrix.values.multiply(scale[None, :]) @ matrix.values.T).todense())
    X = dense(matrix)
    return dot(X * scale[None, :], X.T)


def dense(matrix):
    """The entries as one float64 array."""
    if isinstance(matrix, HostMatrix):
        return matrix.values if isinstance(matrix.values, np.ndarray) else matrix.values.toarray()
    if isinstance(matrix, Dense):
        return matrix.values.astype(jnp.float64)
    return jax.vmap(matrix.matvec, 1, 1)(jnp.eye(matrix.shape[1]))


def inverse_of(H):
    """The inverse of a positive definite matrix by Cholesky, NaN if it is not."""
    if uses_jax((H,)):
        eye = jnp.eye(H.shape[0], dtype=H.dtype)
        return jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(H), True), eye)
    try:
        return scipy.linalg.cho_solve(scipy.linalg.cho_factor(H, lower=True), np.eye(H.shape[0]))
    except (np.linalg.LinAlgError, ValueError):
        return np.full_like(H, np.nan)


def conjugate_gradients(times, b, jacobi):
    """An approximate solution of times(x) = b for the columns of b, preconditioned by a diagonal."""

    def step(_, state):
        x, r, direction, rz = state
        image = times(direction)
        curvature = xp.sum(direction * image, axis=0)
        going = (curvature > 0) & (rz > CONVERGED * first)
        size = ratio(rz, curvature, going)[None, :]
        x, r = x + size * direction, r - size * image
        z = jacobi * r
        new = xp.sum(r * z, axis=0)
        return x, r, z + ratio(new, rz, going)[None, :] * direction, new

    z = jacobi * b
    first = xp.sum(b * z, axis=0)
    return fori_loop(0, _STEPS, step, (xp.zeros_like(b), b, z, first))[0]
