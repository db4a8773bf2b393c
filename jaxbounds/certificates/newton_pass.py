"""A few conjugate-gradient steps on the new problem, and the ball that one exact gradient gives there."""

from typing import Any

from jaxbounds.arguments import as_whole
from jaxbounds.array import scatter_set, xp
from jaxbounds.certificates.ellipsoid import Diagonal, Ellipsoid, Shape, interval
from jaxbounds.certificates.ledger import Ledger
from jaxbounds.certificates.partial import Partial, primal_step
from jaxbounds.certificates.region import Method
from jaxbounds.certificates.renewed import Gradient, NewProblem, old_w, renew
from jaxbounds.certificates.steps import cg_step
from jaxbounds.pytree import pytree, static
from jaxbounds.rounding import TINY, U, down, norm_up, root, up


@pytree
class Pass(Method):
    """A Newton step by conjugate gradients, one exact gradient g there, and the ball that g gives.

    Strong convexity puts w* into the ball with a diameter from w to w - g/lam; smoothness shrinks it to the centre
    w - (1+rho)/(2+rho) g/lam and the radius ||g||/(lam (2+rho)), rho = 2 gamma lam / ||C^(1/2) X||^2. The touched
    columns are re-optimised first. Costs about 2 cg_steps + 8 products with the data; intersected with `Partial`.

    Args:
        cg_steps: conjugate-gradient steps, a positive number.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1))
        >>> model = jb.fit(problem, np.eye(3), np.array([1.0, -1.0, 1.0]), tol=1e-12)
        >>> change = jb.set_targets([0], [-1.0])
        >>> float(jb.bound(model, change, jb.Pass()).radius) < 0.1 * float(jb.bound(model, change).radius)
        True

    Source: strong monotonicity and co-coercivity of the gradient (Nesterov 2004, theorem 2.1.12).
    """

    cg_steps: int = static(default=5)
    flat = False

    def check(self, problem):
        as_whole(self.cg_steps, "cg_steps", 1)
        need_smooth(problem, "Pass")
        if problem.penalty.strong_convexity is None:
            raise ValueError(
                f"Pass needs a strongly convex penalty (property B), and {problem.penalty.name} is not; use Partial()"
            )

    def missing(self, model, change):
        return no_data(model, "Pass")

    def edits(self, model, change):
        return Partial().edits(model, change)

    def certify(self, model, edits):
        *cheaper, (edit, regions) = Partial().certify(model, edits)
        ledger, problem = Ledger(model, edit), renew(model, edit)
        w = _touched_columns(ledger, old_w(model, edit))
        sigma_sq = ledger.sigma_sq()
        at = cg_step(problem, problem.gradient(w), sigma_sq, self.cg_steps)
        return (*cheaper, (edit, (*regions, gradient_ball(problem, at, sigma_sq))))


def need_smooth(problem, name: str) -> None:
    """Raise, naming the missing property, unless the loss is smooth."""
    if problem.loss.smoothness is None:
        raise ValueError(f"{name} needs a smooth loss (property A), and {problem.loss.name} is not; use Partial()")


def no_data(model, name: str) -> str | None:
    """What a method that reads all data says of a model without them."""
    return f"{name} needs the data, and this model was stored without it; use Cached()" if model.data is None else None


def _touched_columns(ledger: Ledger, w):
    """w with the touched columns re-optimised."""
    columns = xp.where(ledger.edit.col_removed, 0.0, ledger.old.w)
    return scatter_set(w, ledger.edit.cols, primal_step(ledger, columns))


def gradient_ball(problem: NewProblem, at: Gradient, sigma_sq) -> Ellipsoid:
    """The ball of one gradient: half the way to w - g/lam, and shrunk if the penalty is a quadratic."""
    lam, d = problem.lam, problem.lam.shape[0]
    rho = xp.zeros(())
    if problem.penalty.quadratic:
        rho = down(2 * xp.min(lam) / (problem.loss.smoothness * xp.maximum(sigma_sq, TINY)), 8)
        rho = xp.where(sigma_sq > 1e-300, xp.minimum(rho, 1e9), 0.0)
    centre = at.w - (1 + rho) / (2 + rho) * at.g / lam
    # the centre moves with the error of g, by less than that
    radius = norm_up(xp.sum(at.g**2 / lam), d + 4) / (2 + rho) + norm_up(xp.sum(at.pad**2 / lam), d + 4)
    rounding = 4 * U * norm_up(xp.sum((xp.abs(at.w) + xp.abs(at.g) / lam) ** 2), d + 4)
    return explicit(problem, at, up(radius, 16), Diagonal(lam), up(rounding), centre, ~problem.free)


def explicit(
    problem: NewProblem, at: Gradient, radius, shape: Shape, pad, centre, still, b_half: Any = 0.0, slack: Any = 0.0,
    lengths=None,
) -> Ellipsoid:  # fmt: skip
    """The ellipsoid, with what it says of the training rows and with the dual ball at t = a(w), where F = 0.

    `lengths` are upper bounds of the training rows in the shape, where they are known.
    """
    matrix = problem.matrix
    lengths = shape.of_rows(matrix) if lengths is None else lengths
    low, high = interval(matrix, problem.magnitude, radius * lengths, pad, centre, b_half)
    excess, square = problem.excess(at)
    excess = excess + slack  # what an imbalance of the dual point costs
    terms = at.w.shape[0] + 8
    gap, dual = up(excess + square / 2, terms), up((excess + square / 4) * problem.loss.smoothness, terms)
    return Ellipsoid(
        gap, radius, shape, pad, centre, still, b_half, at.a, at.a_pad, low, high, up(root(dual)), problem.intercept
    )
