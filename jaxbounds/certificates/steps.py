"""Newton steps on the new problem: where a certificate is taken; any end point is valid."""

from jaxbounds.array import xp
from jaxbounds.certificates.inverse import Hessian, invert
from jaxbounds.certificates.linear import conjugate_gradients
from jaxbounds.certificates.renewed import Gradient, NewProblem
from jaxbounds.rounding import TINY


def cg_step(problem: NewProblem, at: Gradient, sigma_sq, steps: int) -> Gradient:
    """The gradient after a damped Newton step by a few conjugate-gradient steps."""
    matrix, (moving, leaving, b) = problem.matrix, active_set(problem, at)
    weights, ridge = problem.slope_weights(at.q), problem.ridge(at.w)

    def times(p):
        return xp.where(moving, ridge * p + matrix.rmatvec(weights * matrix.matvec(p)), 0.0)

    return line_search(problem, at, leaving + conjugate_gradients(times, b, steps), sigma_sq)


def newton_step(problem: NewProblem, at: Gradient, sigma_sq) -> Gradient:
    """The gradient after a damped Newton step with the whole Hessian."""
    moving, leaving, b = active_set(problem, at)
    weights, ridge = problem.slope_weights(at.q), xp.where(moving, problem.ridge(at.w), 1.0)
    inverse = invert(Hessian(problem.matrix, problem.magnitude, weights, ridge, moving), problem.definite)
    return line_search(problem, at, leaving + inverse.apply(b[:, None])[:, 0], sigma_sq)


def active_set(problem: NewProblem, at: Gradient):
    """(columns that move, the step of the columns that go to 0, the right side of Newton's equation on the former).

    Of a penalty with kinks those move that a proximal step leaves away from 0, with the sign it gives them.
    """
    if problem.penalty.smooth:
        return problem.free, xp.zeros_like(at.w), xp.where(problem.free, -at.g, 0.0)
    weights = problem.slope_weights(at.q)
    curvature = problem.matrix.map(xp.square).rmatvec(weights)
    size = 1.0 / (curvature + 1e-12 * xp.max(curvature) + TINY)
    z = problem.prox(at.w + size * at.v, size)
    moving = problem.free & (problem.whole(problem.penalised(z), xp.ones(1)) != 0)
    low, high = problem.subgradient(at.w)
    g, leaving = xp.where((at.w == 0) & (z > 0), high, low) - at.v, xp.where(moving, 0.0, -at.w)
    image = problem.matrix.rmatvec(weights * problem.matrix.matvec(leaving))
    return moving, leaving, xp.where(moving, -g - image, 0.0)


def line_search(problem: NewProblem, at: Gradient, p, sigma_sq) -> Gradient:
    """The gradient at the best of w, a few steps along p, and a proximal gradient step.

    Coordinates stop at a kink that they would cross.
    """
    penalty, scores = problem.penalty, problem.matrix.matvec(p)
    best, level = at.w, problem.value(at.score, at.w)

    def consider(w, scores, best, level):
        value = problem.value(scores, w)
        return xp.where(value < level, w, best), xp.where(value < level, value, level)

    for size in (1.0, 0.5, 0.25, 0.1, 0.02):
        w, s = at.w + size * p, at.score + size * scores
        if not penalty.smooth:
            w = problem.whole(problem.penalised(xp.where(w * at.w < 0, 0.0, w)), w[-1:])
            s = problem.matrix.matvec(w)
        best, level = consider(w, s, best, level)
    if not penalty.smooth:
        size = 1.0 / (problem.loss.smoothness * xp.maximum(sigma_sq, TINY))
        w = xp.where(problem.free, problem.prox(at.w + size * at.v, size), 0.0)
        best, level = consider(w, problem.matrix.matvec(w), best, level)
    return problem.gradient(best)
