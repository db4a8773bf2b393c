"""The Hessian sandwich: H_lo <= K <= H_hi for the Hessian K of secant slopes between a point w and the optimum w*.

    w* - w = -K^-1 g,   H_lo^-1 - M <= K^-1 <= H_lo^-1,   M = H_lo^-1 X^T diag(c (hi - lo)) X H_lo^-1

so eta.w* lies within (1/2) ||eta||_M ||g||_M of eta.(w - H_lo^-1 g + M g / 2). Of a penalty that is not a quadratic
only H_lo is known: then within (1/2) ||eta||_{H_lo^-1} ||g||_{H_lo^-1} of eta.(w - H_lo^-1 g / 2).
"""

from typing import Any

from jaxbounds.array import xp
from jaxbounds.certificates.ellipsoid import Shape, row_norms
from jaxbounds.certificates.inverse import Hessian, Inverse, dense, dot, gram, invert, product, transposed
from jaxbounds.certificates.renewed import Gradient, NewProblem
from jaxbounds.host import HostMatrix
from jaxbounds.pytree import pytree, static
from jaxbounds.rounding import U, growth, norm_up, root, up

_BLOCK = 1 << 22  # numbers of one block of directions
_SOLVES = 4096  # rows for which conjugate gradients are worth their cost


@pytree
class Sandwich(Shape):
    """||eta||_M for the two-sided set, ||eta||_{H_lo^-1} for the one-sided one; columns that do not move count 0."""

    inverse: Inverse
    weight: Any  # (n,) c (hi - lo), rounded up
    S: Any  # (d, d) X^T diag(weight) X, None where directions go through the data
    norm_sq: Any  # upper bound of ||X^T diag(weight) X||
    two_sided: bool = static()

    def of_columns(self, eta):
        """Upper bound for each column of a (d, k) array."""
        hessian = self.inverse.hessian
        eta = hessian.moving(eta)
        x, error = self.inverse.solve_rows(eta)
        d = eta.shape[0]
        if not self.two_sided:
            # eta.H^-1 eta = eta.x + eta.(H^-1 eta - x)
            size = norm_up(xp.sum(eta**2, axis=0), d + 4)
            value = xp.sum(eta * x, axis=0)
            noise = growth(d + 4) * xp.sum(xp.abs(eta * x), axis=0)
            return up(root(xp.maximum(value + noise + size * error, 0.0)))
        return self._lengths(x, error)

    def _lengths(self, x, error):
        """Upper bound of ||W^(1/2) X H_lo^-1 eta|| for columns x that are H_lo^-1 eta within `error`."""
        hessian, d = self.inverse.hessian, x.shape[0]
        if self.S is not None:
            length_sq = xp.sum(x * dot(self.S, x), axis=0)
            slack = growth(hessian.matrix.shape[0] + 2 * d + 16) * self.norm_sq * xp.sum(x**2, axis=0)
            length = root(xp.maximum(length_sq, 0.0) + slack)
        else:
            scores = product(hessian.matrix, hessian.moving(x))
            size = product(hessian.magnitude, xp.abs(x))
            scores = xp.abs(scores) + growth(hessian.matrix.row_terms + 4) * size
            length = norm_up(xp.sum(self.weight[:, None] * scores**2, axis=0), scores.shape[0] + 8)
        return up(length + root(self.norm_sq) * error, 16)

    def of_rows(self, matrix):
        if self.inverse.kind == "full" and self.two_sided:
            x = product(matrix, self.inverse.hessian.moving(self.inverse.P.T)).T
            return self._lengths(x, up(row_norms(matrix) * self.inverse.error))
        if self.inverse.kind == "full":
            return self.of_columns(dense(matrix).T)
        if self.inverse.kind == "gram" and self.two_sided:
            scores, error = self.inverse.row_scores(matrix)
            length = norm_up(xp.sum(self.weight[:, None] * scores**2, axis=0), scores.shape[0] + 8)
            return up(length + xp.sqrt(xp.max(self.weight)) * error)
        if not isinstance(matrix, HostMatrix) or matrix.shape[0] > _SOLVES:
            return up(row_norms(matrix) * self.largest())
        size = max(1, _BLOCK // matrix.shape[1])
        blocks = [HostMatrix(matrix.values[k : k + size]) for k in range(0, matrix.shape[0], size)]
        return xp.concatenate([self.of_columns(dense(block).T) for block in blocks])

    def of_axes(self):
        d = self.inverse.hessian.mask.shape[0]
        if self.inverse.kind != "full":
            return xp.where(self.inverse.hessian.mask, self.largest(), 0.0)
        return self.of_columns(xp.eye(d))

    def of_direction(self, eta):
        return self.of_columns(eta[:, None])[0]

    def largest(self):
        inverse = self.inverse
        if not self.two_sided:
            return up(1.0 / root(inverse.mu))
        crude = up(root(self.norm_sq) / inverse.mu)
        if self.S is None or inverse.kind != "full":
            return crude
        P, (n, d) = inverse.P, inverse.hessian.matrix.shape
        slack = growth(n + 2 * d * d) * self.norm_sq * xp.sum(P**2)
        square = xp.sum(P * dot(self.S, P)) + slack  # the Frobenius norm of S^(1/2) P
        return xp.minimum(crude, up(root(xp.maximum(square, 0.0)) + root(self.norm_sq) * inverse.error, 16))


def sandwich(problem: NewProblem, at: Gradient, low, high, mask, two_sided: bool) -> tuple:
    """(radius, shape, pad, centre) of the set, for slopes between `low` and `high` and columns `mask` that move.

    The columns that do not move must have w* = w.
    """
    c, matrix = problem.c, problem.matrix
    ridge = xp.where(mask, problem.lam, 1.0)
    down_low = xp.maximum(low, 0.0) * (1 - 4 * U)
    hessian = Hessian(matrix, problem.magnitude, c * down_low, ridge, mask)
    inverse = invert(hessian, problem.definite)
    # hi = lo exactly where no kink can be crossed: such rows have no weight
    weight = xp.where(high > low, up(c * (high - low)) + 8 * U * c * high, 0.0) + 8 * U * c * low
    square = up(xp.sum(weight * row_norms(matrix) ** 2), matrix.shape[0] + 8)
    n, d = matrix.shape
    S = gram(matrix, weight) if inverse.kind == "full" and n > d else None
    shape = Sandwich(inverse, weight, S, square, two_sided)

    g, pad = xp.where(mask, at.g, 0.0), xp.where(mask, at.pad, 0.0)
    x, error = inverse.solve(g)
    error = up(error + norm_up(xp.sum(pad**2), d + 4) / inverse.mu)
    if two_sided:
        scores = product(matrix, x[:, None])
        back = xp.where(mask, transposed(matrix, weight[:, None] * scores)[:, 0], 0.0)
        half_step, more = inverse.solve(back)
        size = transposed(problem.magnitude, weight[:, None] * product(problem.magnitude, xp.abs(x)[:, None]))
        rounding = growth(matrix.row_terms + matrix.col_terms + 8) * norm_up(xp.sum(size**2), d + 4)
        step = x - half_step / 2
        length = up(norm_up(xp.sum(weight * xp.abs(scores[:, 0]) ** 2), n + 8) + root(square) * error, 16)
        length = length + up(growth(matrix.row_terms + 4) * root(square) * norm_up(xp.sum(x**2), d + 4))
        # half_step is M g for the computed x: its own error, and that of x once more
        pad = error + more + up((rounding + square * error) / inverse.mu)
    else:
        step = x / 2
        noise = growth(d + 4) * xp.sum(xp.abs(g * x)) + norm_up(xp.sum(g**2), d + 4) * error
        length = up(root(xp.maximum(xp.sum(g * x), 0.0) + noise))
        # an error of g moves w - H^-1 g / 2 and the length, by half of the same each
        pad = error
    centre = at.w - step
    rounding = 4 * U * norm_up(xp.sum((xp.abs(at.w) + xp.abs(step)) ** 2), d + 4)
    radius, pad = up(length / 2), up(pad + rounding)
    unknown = ~(xp.isfinite(radius) & xp.isfinite(pad))
    return xp.where(unknown, xp.inf, radius), shape, xp.where(unknown, xp.inf, pad), xp.where(unknown, at.w, centre)
