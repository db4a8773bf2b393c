"""Ellipsoids around a centre that is written out, as the passes over the data give them."""

from abc import abstractmethod
from typing import Any

from jaxbounds.array import squared, xp
from jaxbounds.certificates.ball import alpha_range
from jaxbounds.certificates.centre import extend, new_rows
from jaxbounds.certificates.region import Region
from jaxbounds.certificates.renewed import with_ones
from jaxbounds.edit import Edit
from jaxbounds.matrix import Matrix
from jaxbounds.model import Model
from jaxbounds.pytree import pytree, static
from jaxbounds.rounding import TINY, U, dot_error, growth, norm_down, norm_up, root, up


class Shape:
    """A seminorm of directions: |eta.(w* - c)| <= radius * (shape of eta)."""

    @abstractmethod
    def of_rows(self, matrix: Matrix) -> Any:
        """Upper bound for each row of a matrix, (m,)."""

    @abstractmethod
    def of_axes(self) -> Any:
        """Upper bound for each coordinate, (d,)."""

    @abstractmethod
    def of_direction(self, eta) -> Any:
        """Upper bound for one direction, (d,) to a scalar."""

    @abstractmethod
    def largest(self) -> Any:
        """Upper bound over all directions of length one."""


@pytree
class Diagonal(Shape):
    """sqrt(sum_j eta_j^2 / lam_j): the ball of the penalty's own metric."""

    lam: Any  # (d,)

    def of_rows(self, matrix):
        return norm_up(matrix.map(squared).matvec(1.0 / self.lam), matrix.row_terms + 4)

    def of_axes(self):
        return up(1.0 / root(self.lam))

    def of_direction(self, eta):
        return norm_up(xp.sum(eta**2 / self.lam), eta.shape[0] + 4)

    def largest(self):
        return up(1.0 / root(xp.min(self.lam)))


@pytree
class Ellipsoid(Region):
    """|eta.(w* - centre)| <= radius * shape(eta) + pad ||eta|| for every direction eta.

    `low`, `high` hold the new scores of the training rows, and alpha* lies within dual_radius / sqrt(c_i) of `a`.
    """

    gap: Any
    radius: Any
    shape: Shape
    pad: Any
    centre: Any  # (d,)
    still: Any  # (d,) columns where w* is 0 for certain, as the centre is
    b_half: Any  # more half-width of the intercept
    a: Any  # (n,)
    a_pad: Any  # (n,)
    low: Any  # (n,)
    high: Any  # (n,)
    dual_radius: Any
    intercept: bool = static()  # directions, centre and still have one more entry, for b
    dual: bool = static(default=True)
    primal = True

    @property
    def length(self):
        """Upper bound of ||w* - centre||_2."""
        return up(self.radius * self.shape.largest() + self.pad)

    def coordinates(self, model: Model, edit: Edit):
        """(lower, upper) of every coefficient."""
        half = up(self.radius * self.shape.of_axes() + self.pad) + 2 * U * xp.abs(self.centre)
        low, high = xp.where(self.still, 0.0, self.centre - half), xp.where(self.still, 0.0, self.centre + half)
        return low[: edit.d], high[: edit.d]

    def offset(self, model: Model, edit: Edit):
        """(lower, upper) of the intercept."""
        if not self.intercept:
            return super().offset(model, edit)
        b = self.centre[-1]
        along = xp.concatenate([xp.zeros(edit.d), xp.ones(1)])
        half = up(self.radius * self.shape.of_direction(along) + self.pad + self.b_half) + 2 * U * xp.abs(b)
        return b - half, b + half

    def scores(self, model: Model, edit: Edit, matrix: Matrix):
        """(lower, upper) of x.w* for each row x of a matrix."""
        matrix = with_ones(matrix) if self.intercept else matrix
        half = self.radius * self.shape.of_rows(matrix)
        return interval(matrix, matrix.map(xp.abs), half, self.pad, self.centre, self.b_half)

    def duals(self, model: Model, edit: Edit):
        """(lower, upper) of every alpha: -l' of the score's interval, and the dual ball."""
        loss, (y, c) = model.problem.loss, new_rows(model, edit)
        half = up(self.dual_radius / root(xp.where(c > 0, c, 1.0)) + self.a_pad)
        half = xp.where(c > 0, half, xp.inf)
        low, high = loss.domain(y)
        low, high = xp.maximum(low, self.a - half), xp.minimum(high, self.a + half)
        ends = alpha_range(loss, self.low, self.high, y)
        low, high = xp.maximum(low, ends[0]), xp.minimum(high, ends[1])
        gone = edit.rows_where(edit.row_removed)
        return xp.where(gone, 0.0, low), xp.where(gone, 0.0, high)

    def distance(self, model: Model, edit: Edit):
        """||w* - w^||: the centre's distance D, the half-width h along it, and the largest radius r across it.

        D - h <= ||w* - w^|| <= sqrt((D + h)^2 + r^2).
        """
        w = extend(model.w.astype(xp.float64), edit.d)
        step = self.centre[: edit.d] - w  # removed columns count in full: centre and w* are 0 there
        far = norm_up(xp.sum(step**2), edit.d + 4)
        near = norm_down(xp.sum(step**2), edit.d + 4)
        rounding = up(2 * U * far)
        along = xp.where(far > 0, 1.0, 0.0) * step / xp.where(far > 0, far, 1.0)
        if self.intercept:
            along = xp.concatenate([along, xp.zeros(1)])
        half = up(self.radius * self.shape.of_direction(along) + self.pad) * (1 + 8 * U)
        across = self.length
        low = xp.maximum(near * (1 - growth(edit.d + 8)) - half - rounding, 0.0)
        low = xp.maximum(low, near - across - rounding)
        high = xp.minimum(norm_up((far + half) ** 2 + across**2, 8), far + across) + rounding
        return low, up(high) + TINY


def interval(matrix: Matrix, magnitude: Matrix, half, pad, centre, b_half):
    """(lower, upper) of x.w* for each row x of a matrix, given the half-width that the shape leaves."""
    terms = matrix.row_terms
    half = half + pad * row_norms(matrix) + b_half
    half = up(half + dot_error(magnitude.matvec(xp.abs(centre)), terms + 4))
    middle = matrix.matvec(centre)
    return middle - half, middle + half


def row_norms(matrix: Matrix):
    """Upper bound of ||x|| for each row."""
    return norm_up(matrix.map(squared).matvec(xp.ones(matrix.shape[1])), matrix.row_terms + 4)
