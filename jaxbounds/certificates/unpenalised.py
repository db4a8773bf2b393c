"""Problems with an unpenalised intercept b: one more column of ones, which the penalty does not see.

Every point is taken at its best b, so sum_i c_i t_i = eps is zero but for rounding. Monotonicity of the gradient gives

    sum_j lam_j (w*_j - c_j)^2 <= sum_j g_j^2 / (4 lam_j) + eps |b - b*|,    c_j = w_j - g_j / (2 lam_j)

and b* lies between the roots of sum_i c_i l'(x_i.w* + b) at the two ends of the x_i.w* that such a ball leaves.
"""

from dataclasses import replace

import numpy as np

from jaxbounds.array import uses_jax, xp
from jaxbounds.certificates.ball import alpha_range
from jaxbounds.certificates.curvature import Curvature, Formed, second_order
from jaxbounds.certificates.ellipsoid import Diagonal, Ellipsoid
from jaxbounds.certificates.newton_pass import Pass, explicit
from jaxbounds.certificates.partial import Partial
from jaxbounds.certificates.region import Method
from jaxbounds.certificates.renewed import Gradient, NewProblem, old_w, renew
from jaxbounds.certificates.steps import cg_step
from jaxbounds.certificates.theorem1 import Theorem1
from jaxbounds.edit import Edit, prepare
from jaxbounds.intercept import balanced_intercept
from jaxbounds.kinds import Change
from jaxbounds.model import Model, spectral_bound
from jaxbounds.rounding import TINY, U, growth, norm_up, root, up

_FEW = 4  # of them that are tried alone at first, on the host
_TRIES = 26  # outward steps, each eight times as long, until the sign of a slope is certain


def check_intercept(problem) -> None:
    """Raise, naming the missing property, if no bound is known for this problem with an intercept."""
    if problem.intercept and problem.penalty.strong_convexity is None:
        raise ValueError(
            f"bounds with intercept=True need a strongly convex penalty (property B), and {problem.penalty.name} is "
            "not; add an L2 part (elastic_net, l1_ratio < 1 in scikit-learn), or take intercept=False and a column of "
            "ones in X, which penalises the intercept (in scikit-learn fit_intercept=False, with such a column)"
        )


def certify_with_intercept(method: Method, model: Model, change: Change):
    """The edit and its regions: what each method adds to the ones before it, in passes over the data."""
    if model.data is None:
        raise ValueError("bounds with intercept=True need the data, and this model was stored without it")
    edit = prepare(model, change, whole=True)
    problem = renew(model, edit)
    start = problem.gradient(old_w(model, edit))
    sigma_sq = spectral_bound(problem.magnitude, problem.c)
    if isinstance(method, Theorem1):
        return ((edit, (paper_ball(problem, start),)),)
    found = [ball_with_intercept(problem, start)]
    if isinstance(method, Partial | Pass | Curvature):
        found.append(ball_with_intercept(problem, _touched(problem, edit, start, sigma_sq)))
    if isinstance(method, Pass):
        found.append(ball_with_intercept(problem, cg_step(problem, start, sigma_sq, method.cg_steps)))
    if isinstance(method, Curvature):
        low, high = found[0].low, found[0].high
        for ball in found[1:]:
            low, high = xp.maximum(low, ball.low), xp.minimum(high, ball.high)
        found += second_order(
            Formed(problem, sigma_sq), start.w, low, high, lambda at: ball_with_intercept(problem, at)
        )
    return ((edit, tuple(found)),)


def _touched(problem: NewProblem, edit: Edit, start: Gradient, sigma_sq) -> Gradient:
    """The gradient after the touched columns were re-optimised."""
    touched = xp.concatenate([edit.cols_where(edit.whole), xp.ones(1) > 0])
    own = replace(problem, free=problem.free & touched)
    return problem.gradient(cg_step(own, start, sigma_sq, 10).w)


def ball_with_intercept(problem: NewProblem, at: Gradient) -> Ellipsoid:
    """The half ball of the gradient at a point with its best intercept, and the interval of b*."""
    d = problem.lam.shape[0] - 1
    lam = xp.concatenate([problem.lam[:d], xp.full(1, xp.inf)])
    shape, eps = Diagonal(lam), xp.abs(at.g[d]) + at.pad[d]
    length = norm_up(xp.sum(at.g**2 / lam), d + 4)
    error = norm_up(xp.sum(at.pad**2 / lam), d + 4)
    scores, reach = at.score - at.w[d], shape.of_rows(problem.matrix)
    pads = at.score_pad + 4 * U * (xp.abs(at.score) + xp.abs(at.w[d]))

    # inside this ball the constrained optimum obeys the same inequality; if it ends up in the interior it is w* itself
    trial = 2 * (length + error) + 2 * root(eps)
    low, high = intercept_range(problem, scores, up(trial * reach + pads))
    away = _away(at.w[d], low, high)
    radius = up(root(up((length + error) ** 2 / 4 + eps * away)) + error)
    radius = xp.where(radius + (length + error) / 2 < trial, radius, xp.inf)
    centre = at.w - xp.where(xp.isinf(lam), 0.0, at.g / (2 * problem.lam + xp.where(xp.isinf(lam), 1.0, 0.0)))
    middle = problem.matrix.matvec(centre) - centre[d]
    size = problem.magnitude.matvec(xp.abs(at.w) + xp.abs(centre))  # the centre itself is rounded
    for _ in range(2):
        half = up(radius * reach + growth(problem.matrix.row_terms + 6) * size + TINY)
        ends = intercept_range(problem, middle, half)
        low, high = xp.maximum(low, ends[0]), xp.minimum(high, ends[1])
        away = _away(at.w[d], low, high)
        radius = xp.minimum(radius, up(root(up((length + error) ** 2 / 4 + eps * away)) + error))
    rounding = 4 * U * norm_up(xp.sum((xp.abs(at.w) + xp.abs(centre)) ** 2), d + 4)
    b = xp.where(xp.isfinite(low) & xp.isfinite(high), low / 2 + high / 2, at.w[d])
    b_half = up(xp.maximum(high - b, b - low)) + 4 * U * xp.abs(b)
    centre = xp.concatenate([centre[:d], b[None]])
    return explicit(problem, at, up(radius), shape, up(rounding), centre, ~problem.free, b_half, up(eps * away))


def paper_ball(problem: NewProblem, at: Gradient) -> Ellipsoid:
    """Theorem 1's ball: twice the radius, around w itself."""
    ball = ball_with_intercept(problem, at)
    centre = xp.concatenate([at.w[:-1], ball.centre[-1:]])
    args = 2 * ball.radius, ball.shape, ball.pad, centre, ball.still, ball.b_half, 2 * ball.gap
    return explicit(problem, at, *args)


def _away(b, low, high):
    return up(xp.maximum(high - b, b - low))


def intercept_range(problem: NewProblem, scores, half):
    """(low, high) that hold every best intercept for scores within `half` of the given ones."""
    loss, y, c = problem.loss, problem.y, problem.c

    def slope(s, b):
        """sum_i c_i l'(s_i + b) for each b, and a bound on its error."""
        s = s[None, :] + b[:, None]
        rows = xp.broadcast_to(y[None, :], s.shape)
        # the ends of -f' over the rounding of the coordinate
        pad = 8 * U * (xp.abs(s) + xp.abs(rows) + xp.abs(b)[:, None])
        low, high = alpha_range(loss, s - pad, s + pad, rows)
        weight = c[None, :] * loss.orientation(rows)
        ends = weight * low, weight * high
        size = xp.sum(xp.maximum(xp.abs(ends[0]), xp.abs(ends[1])), axis=1)
        noise = growth(y.shape[0] + 8) * up(size, y.shape[0]) + y.shape[0] * TINY
        return -xp.sum(xp.maximum(*ends), axis=1) - noise, -xp.sum(xp.minimum(*ends), axis=1) + noise

    def beyond(s, direction):
        """The nearest tried b on one side whose slope surely has that side's sign, infinite if there is none."""
        known = xp.all(xp.isfinite(s))
        s = xp.where(known, s, xp.zeros_like(s))
        middle = balanced_intercept(loss, s, y, c)
        unit = direction * 4 * U * (xp.abs(middle) + xp.max(xp.abs(s)) + TINY)
        for tries in (_TRIES,) if uses_jax((middle,)) else (_FEW, _TRIES):
            tried = middle + unit * xp.asarray([8.0**k for k in range(tries)])
            least, most = slope(s, tried)
            sure = (least > 0) if direction > 0 else (most < 0)
            if tries < _TRIES and np.any(sure):  # the nearest is among the first
                break
        far = xp.where(sure, xp.abs(tried - middle), xp.inf)
        return xp.where(known, middle + direction * xp.min(far), direction * xp.inf)

    return beyond(scores + half, -1.0), beyond(scores - half, 1.0)
