"""Newton steps on the new problem: where a certificate is taken; any end point is valid."""

from jaxbounds.array import CONVERGED, fori_loop, ratio, xp
from jaxbounds.certificates.inverse import Hessian, invert, product
from jaxbounds.certificates.renewed import Gradient, NewProblem
from jaxbounds.rounding import TINY


def cg_step(problem: NewProblem, at: Gradient, sigma_sq, steps: int) -> Gradient:
    """The gradient after a damped Newton step by a few conjugate-gradient steps."""
    matrix, (moving, g, leaving) = problem.matrix, active_set(problem, at)
    weights, ridge = problem.slope_weights(at.q), problem.ridge(at.w)

    def multiply(p):
        scores = matrix.matvec(p)
        return xp.where(moving, ridge * p + matrix.rmatvec(weights * scores), 0.0), scores

    def step(_, state):
        p, scores, r, direction, rr = state
        image, along = multiply(direction)
        curvature = xp.sum(direction * image)
        going = (curvature > 0) & (rr > CONVERGED * first)
        size = ratio(rr, curvature, going)
        p, scores, r = p + size * direction, scores + size * along, r - size * image
        new = xp.sum(r * r)
        return p, scores, r, r + ratio(new, rr, going) * direction, new

    image, scores = multiply(leaving)
    b = xp.where(moving, -g - image, 0.0)
    first = xp.sum(b * b)
    p, scores = fori_loop(0, steps, step, (leaving, scores, b, b, first))[:2]
    return problem.gradient(line_search(problem, at, p, scores, sigma_sq))


def newton_step(problem: NewProblem, at: Gradient, sigma_sq) -> Gradient:
    """The gradient after a damped Newton step with the whole Hessian."""
    moving, g, leaving = active_set(problem, at)
    weights, ridge = problem.slope_weights(at.q), xp.where(moving, problem.ridge(at.w), 1.0)
    hessian = Hessian(problem.matrix, problem.magnitude, weights, ridge, moving)
    inverse = invert(hessian, problem.definite)
    image = problem.matrix.rmatvec(weights * problem.matrix.matvec(leaving))
    p = leaving + inverse.apply(xp.where(moving, -g - image, 0.0)[:, None])[:, 0]
    return problem.gradient(line_search(problem, at, p, product(problem.matrix, p[:, None])[:, 0], sigma_sq))


def active_set(problem: NewProblem, at: Gradient):
    """(columns that move, the gradient on them, the step of the columns that go to 0).

    Of a penalty with kinks those move that a proximal step leaves away from 0, with the sign it gives them.
    """
    penalty = problem.penalty
    if penalty.smooth:
        return problem.free, at.g, xp.zeros_like(at.w)
    curvature = problem.matrix.map(xp.square).rmatvec(problem.slope_weights(at.q))
    size = 1.0 / (curvature + 1e-12 * xp.max(curvature) + TINY)
    z = problem.prox(at.w + size * at.v, size)
    moving = problem.free & (problem.whole(problem.penalised(z), xp.ones(1)) != 0)
    low, high = problem.subgradient(at.w)
    own = xp.where((at.w == 0) & (z > 0), high, low)
    return moving, xp.where(moving, own - at.v, 0.0), xp.where(moving, 0.0, -at.w)


def line_search(problem: NewProblem, at: Gradient, p, scores, sigma_sq):
    """The best of w, a few steps along p, and a proximal gradient step; coordinates stop at a kink they would cross."""
    penalty = problem.penalty
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
    return best
