"""Second-order certificates: Newton steps on the new problem, and the Hessian sandwich around where they end."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jaxbounds.array import fori_loop, scatter_set, uses_jax, xp
from jaxbounds.certificates.ellipsoid import Ellipsoid, row_norms
from jaxbounds.certificates.factor import Touched, decrement, kept_lengths, relative_set, touched_rows, updated
from jaxbounds.certificates.ledger import Ledger
from jaxbounds.certificates.newton_pass import explicit, gradient_ball, need_smooth, no_data
from jaxbounds.certificates.partial import Partial
from jaxbounds.certificates.region import Method
from jaxbounds.certificates.renewed import Gradient, NewProblem, old_w, renew
from jaxbounds.certificates.sandwich import sandwich
from jaxbounds.certificates.steps import line_search, newton_step
from jaxbounds.edit import Edit, scalar_l2
from jaxbounds.model import Model
from jaxbounds.pytree import pytree
from jaxbounds.recalled import take
from jaxbounds.rounding import U, root, up
from jaxbounds.row_blocks import RowBlocks

_NEWTON = 12  # most Newton steps, half as many on tracers
_ROUNDS = 4  # most sandwiches, half as many on tracers
_STRAY = 1.25  # a stored slope is updated when it is off by more than this factor


@pytree
class Curvature(Method):
    """The Hessian sandwich around a point close to the new optimum: nearly exact, and exact for piecewise quadratics.

    With secant slopes of the loss between lo and hi over all scores that cheaper certificates leave possible,
    eta.w* lies within (1/2) ||eta||_M ||g||_M of eta.(w - H_lo^-1 g + M g/2), M = H_lo^-1 X^T C (hi-lo) X H_lo^-1.
    Newton steps bring w close first. If no row can cross a kink, M = 0 and the answer is the new optimum itself.
    Columns of an L1 part count as smooth once their zeros and signs are certain. Costs a few Hessians: n d^2 each,
    n^2 d if n < d, conjugate gradients if both are large; on the host, with a model from `with_factor` and no column
    changed, d^3 and d^2 for each row that changed its slope or its entries. Intersected with `Partial`.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.squared_hinge(), jb.penalties.l2(0.1))
        >>> model = jb.fit(problem, np.eye(3), np.array([1.0, -1.0, 1.0]), tol=1e-12)
        >>> bounds = jb.bound(model, jb.remove_rows([0]), jb.Curvature())
        >>> float(bounds.radius) < 1e-12
        True

    Source: interval Newton methods; the sandwich of the library's theory, section 4.5.
    """

    flat = False

    def check(self, problem):
        need_smooth(problem, "Curvature")

    def missing(self, model, change):
        if model.data is not None and isinstance(model.data.matrix, RowBlocks):
            return "Curvature needs the data in memory, and RowBlocks reads them a block of rows at a time; use Pass()"
        return no_data(model, "Curvature")

    def edits(self, model, change):
        return Partial().edits(model, change)

    def certify(self, model, edits):
        *cheaper, (edit, regions) = Partial().certify(model, edits)
        ledger, problem = Ledger(model, edit), renew(model, edit)
        scores = [region.scores(model, edit, problem.matrix) for region in regions]
        low, high = scores[0]
        for ends in scores[1:]:
            low, high = xp.maximum(low, ends[0]), xp.minimum(high, ends[1])
        sigma_sq, first = ledger.sigma_sq(), edits[0]
        hessians: Any = Formed(problem, sigma_sq)
        if has_factor(model, first):
            rows = first.rows, touched_rows(model, first)
            hessians = Stored(problem, sigma_sq, model.factor, *rows, float(edit.penalty.strong_convexity))
        found = second_order(
            hessians, old_w(model, edit), low, high, lambda at: gradient_ball(problem, at, sigma_sq)
        )
        return (*cheaper, (edit, (*regions, *found)))


class Hessians:
    """How Newton steps and sandwiches get their Hessians."""

    problem: NewProblem
    sigma_sq: Any
    near: float  # w is near enough to the optimum when its ball is this fraction of the move

    @abstractmethod
    def step(self, at: Gradient) -> Gradient:
        """The gradient after a damped Newton step."""

    @abstractmethod
    def sandwich(self, at: Gradient, low, high) -> Ellipsoid:
        """The set around a point, for new scores between low and high."""


@dataclass(frozen=True)
class Formed(Hessians):
    """Formed anew at each point."""

    problem: NewProblem
    sigma_sq: Any
    near = 1e-2

    def step(self, at):
        return newton_step(self.problem, at, self.sigma_sq)

    def sandwich(self, at, low, high):
        return one_sandwich(self.problem, at, low, high)


@dataclass(frozen=True)
class Stored(Hessians):
    """Low-rank updates of a stored factor, in the rows that changed and those whose slopes strayed (host)."""

    problem: NewProblem
    sigma_sq: Any
    factor: Any
    rows: Any  # (R,) touched rows
    touched: Touched
    lam: float
    near = 1e-4  # steps are cheap

    def step(self, at):
        h = self.problem.loss.second(at.q, self.problem.y)
        found = self._update(h, h)
        if found is None:
            return newton_step(self.problem, at, self.sigma_sq)
        return line_search(self.problem, at, -updated(*found[0]).apply(at.g[:, None])[:, 0], self.sigma_sq)

    def sandwich(self, at, low, high):
        found = self._update(*slope_range(self.problem, at, low, high)[:2])
        if found is None:
            return one_sandwich(self.problem, at, low, high)
        update, *share = found
        reference = updated(*update)
        radius, shape, pad, centre = relative_set(reference, at.w, decrement(reference, at.g, at.pad), *share)
        crude = up(row_norms(self.problem.matrix) / root(self.lam))
        kept = np.concatenate([kept_lengths(self.factor, reference), np.full(crude.size - self.factor.h.size, np.inf)])
        lengths = np.minimum(scatter_set(kept, self.rows, reference.of_columns(self.touched.new)), crude)
        return explicit(self.problem, at, radius, shape, pad, centre, ~self.problem.free, lengths=lengths)

    def _update(self, low, high):
        """(update that makes H, A, B) with A H <= X^T diag(c h) X + lam I <= B H for all slopes h in [low, high].

        None if too many slopes stray.
        """
        low, high = self.problem.c * np.maximum(low, 0.0), self.problem.c * high
        n, live = low.size, self.rows < low.size
        stored = np.zeros(n)
        stored[: self.factor.h.size] = self.touched.kappa * self.factor.h
        stored[self.rows[live]] = 0.0
        near = (stored <= _STRAY * low) & (high <= _STRAY * stored)
        h = np.where(near, stored, low)
        strays = np.setdiff1d(np.flatnonzero(h != stored), self.rows)
        if strays.size + 2 * self.rows.size > n // 4:
            return None
        matrix = self.problem.matrix.values[strays]
        others = (matrix if isinstance(matrix, np.ndarray) else matrix.toarray()).T
        vectors = np.concatenate([self.touched.old, self.touched.new, others], axis=1)
        weights = np.concatenate([-self.touched.h_old, take(h, self.rows), h[strays] - stored[strays]])
        update = self.factor, self.touched.kappa, self.lam, vectors, weights
        moving = (h > 0) | (high > 0)
        with np.errstate(all="ignore"):
            shares = low[h > 0] / h[h > 0], high[moving] / h[moving]
        least, most = shares[0].min(initial=1.0), shares[1].max(initial=1.0)
        return update, least * (1 - 16 * U), up(most, 16)


def has_factor(model: Model, edit: Edit) -> bool:
    """Whether a change on the host can start from the model's stored factor: it leaves all columns as they are."""
    if model.factor is None or uses_jax((model.w, edit.rows)) or not scalar_l2(edit.penalty, 0):
        return False
    return edit.d == model.w.shape[0] and not (np.any(edit.col_removed) or np.any(edit.whole))


def second_order(hessians: Hessians, w, low, high, ball: Callable) -> list[Ellipsoid]:
    """Balls and sandwiches around the end of a few Newton steps from w, given intervals of the new scores.

    `ball` makes the ball of a gradient.
    """
    problem = hessians.problem
    host, at = not uses_jax((w,)), problem.gradient(w)
    if not host:
        at = fori_loop(0, _NEWTON // 2, lambda _, at: hessians.step(at), at)
    strong = problem.penalty.strong_convexity is not None
    found = [ball(at)] if strong else []
    for _ in range(_NEWTON if host else 0):
        if found and _near(hessians, at, w, found[0]):
            break
        at = hessians.step(at)
        found = [ball(at)] if strong else []
    for here in found:
        low, high = xp.maximum(low, here.low), xp.minimum(high, here.high)
    last = xp.inf
    for _ in range(_ROUNDS if host else _ROUNDS // 2):
        found.append(hessians.sandwich(at, low, high))
        low, high = xp.maximum(low, found[-1].low), xp.minimum(high, found[-1].high)
        size = xp.sum(high - low)
        if host and not size < 0.9 * last:
            break
        last = size
    return found


def _near(hessians: Hessians, at: Gradient, start, ball: Ellipsoid) -> bool:
    """Whether another Newton step is not worth its cost: at rounding level, or near enough if steps only converge."""
    loss, floor = hessians.problem.loss, xp.sum(at.g**2) <= 16 * xp.sum(at.pad**2)
    if loss.piecewise_quadratic or loss.defined_by_ref:  # steps end, or slopes may not be known
        return bool(floor)
    moved = xp.sqrt(xp.sum((at.w - start) ** 2))
    return bool(floor | (ball.length <= hessians.near * moved))


def one_sandwich(problem: NewProblem, at: Gradient, low, high) -> Ellipsoid:
    """The sandwich at one point, for new scores between low and high."""
    penalty, mask, two_sided = problem.penalty, problem.free, problem.penalty.quadratic
    if penalty.piecewise_quadratic and not two_sided:
        at, mask, certain = screened(problem, at, low, high)
        two_sided = not uses_jax((at.w,)) and bool(certain)
    slopes = slope_range(problem, at, low, high)[:2]  # of the screened point, which may have moved
    radius, shape, pad, centre = sandwich(problem, at, *slopes, mask, two_sided)
    # with an intercept the dual point balances only up to rounding, which the ball's gap counts
    slack = xp.inf if problem.intercept else 0.0
    return explicit(problem, at, radius, shape, pad, centre, ~mask, slack=slack)


def slope_range(problem: NewProblem, at: Gradient, low, high):
    """(least, largest secant slope, longest move) from each coordinate of a point, for new scores in [low, high]."""
    loss, y = problem.loss, problem.y
    q_low, q_high = loss.coordinate(low, y), loss.coordinate(high, y)
    q_low, q_high = xp.minimum(q_low, q_high), xp.maximum(q_low, q_high)
    d_low = q_low - at.q - 4 * U * (xp.abs(q_low) + xp.abs(at.q))
    d_high = q_high - at.q + 4 * U * (xp.abs(q_high) + xp.abs(at.q))
    return *loss.secant(at.q, d_low, d_high, y), xp.maximum(xp.abs(d_low), xp.abs(d_high))


def screened(problem: NewProblem, at: Gradient, low, high):
    """(gradient of the reduced problem, columns that stay in it, whether all their signs are certain).

    v* lies within |X|^T (c slope move) of v: inside the kink's interval w*_j = 0, beyond it w*_j has that side's sign,
    and psi_j may be taken for a quadratic.
    """
    _, slope, move = slope_range(problem, at, low, high)
    off = at.pad + up(problem.magnitude.rmatvec(up(problem.c * slope * move)), problem.matrix.col_terms)
    left, right = problem.subgradient(xp.zeros_like(at.w))
    reach = off + 4 * U * (xp.abs(at.v) + xp.abs(left) + xp.abs(right))
    zero = (at.v - reach > left) & (at.v + reach < right)  # never the intercept: left = right
    positive, negative = at.v - reach > right, at.v + reach < left
    mask = problem.free & ~zero
    w = xp.where(mask, at.w, 0.0)
    at = problem.gradient(w)
    slope = problem.ridge(w) * w + xp.where(positive, right, left)
    pad = up(at.pad + 8 * U * (xp.abs(slope) + xp.abs(at.v)))
    certain = xp.all(~mask | positive | negative | (left == right))
    return replace(at, g=xp.where(certain, slope - at.v, at.g), pad=xp.where(certain, pad, at.pad)), mask, certain
