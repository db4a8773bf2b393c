"""The optimum of a changed problem in 60 digits, by Newton steps from a float64 start; nothing of the library is used.

What is returned carries a bound of its own error: ||w - w*|| <= ||minimal subgradient|| / lam under strong convexity.
"""

from dataclasses import dataclass, replace
from typing import Any

import exact
import numpy as np
import oracle
from exact import MP

DIGITS = 1e-24  # the relative error that a truth may have
ROUNDS = 40


@dataclass(frozen=True, eq=False)
class Truth:
    """w, b and alpha of the optimum, and bounds on how far they may be from it (Euclidean norm of w; b)."""

    w: np.ndarray
    b: Any
    alpha: np.ndarray
    error: Any
    error_b: Any


def slope(loss: str, p: Any, q, y) -> Any:
    """alpha = -f'(q) in 60 digits."""
    if loss in oracle.LOSSES:
        return exact.dual(loss, None if p is None else exact.number(p), q)
    if loss == "modified_huber":
        return 2 * min(max(1 - q, MP.zero), MP.mpf(2))
    if loss == "squared_epsilon_insensitive":
        return -MP.sign(q) * max(abs(q) - exact.number(p), MP.zero)
    if loss == "smoothed_quantile":
        tau, gamma = exact.number(p[0]), exact.number(p[1])
        return -min(max(q / gamma, -tau), exact.number(1.0 - p[0]))  # the rounded 1 - tau is the loss's own
    if loss == "log_cosh":
        return -MP.tanh(q)
    bound = exact.number(p)  # poisson: exp(s) up to the bound, its second order expansion above it
    s = q + y
    return y - MP.exp(min(s, bound)) * (1 + max(s - bound, MP.zero))


def float_parameter(loss: str, p: Any, y: np.ndarray) -> Any:
    """The parameter as oracle.py wants it."""
    return (p, y) if loss == "poisson" else p


def optimum(pr: oracle.Problem, c: np.ndarray, intercept: bool = False, start=None) -> Truth | None:
    """The optimum of a problem with exact weights c (rows of weight 0 do not count), None if it is not certain.

    start: floats near it (with the intercept last), from which Newton's steps are tried first.
    """
    keep = np.flatnonzero(c.astype(float) > 0)
    if not keep.size:
        return None
    small = replace(pr, X=pr.X[keep], y=pr.y[keep], c=c[keep].astype(float))
    with np.errstate(all="ignore"):
        try:
            found = None
            if pr.loss == "hinge":
                found = _hinge(small, c[keep])
            elif start is not None and pr.penalty == "l2":
                found = _smooth(small, c[keep], intercept, start)
            if found is None and pr.loss != "hinge":
                found = _smooth(small, c[keep], intercept)
        except (ArithmeticError, np.linalg.LinAlgError, ValueError):
            return None
    if found is None:
        return None
    alpha = exact.array(np.zeros(len(c)))
    alpha[keep] = found.alpha
    return replace(found, alpha=alpha)


def _with_ones(pr: oracle.Problem) -> oracle.Problem:
    """The intercept as one more column without a penalty."""
    d = pr.X.shape[1]
    X = np.hstack([pr.X, np.ones((len(pr.y), 1))])
    return replace(pr, X=X, lam=np.append(np.zeros(d) + pr.lam, 0.0), l1=np.append(np.zeros(d) + pr.l1, 0.0))


def _smooth(pr: oracle.Problem, c: np.ndarray, intercept: bool, start=None) -> Truth | None:
    d = pr.X.shape[1]
    pr = replace(_with_ones(pr) if intercept else pr, param=float_parameter(pr.loss, pr.param, pr.y))
    power = pr.penalty == "lq"
    quick = start is not None
    if not quick:
        start = oracle._newton_lq(pr, np.zeros(d)) if power else oracle._newton_prox(pr, np.zeros(pr.X.shape[1]))
    ridge, l1 = (np.zeros(d), np.zeros(d)) if power else oracle._vectors(pr)
    param = pr.param[0] if pr.loss == "poisson" else pr.param
    X, y, w = exact.array(pr.X), exact.array(pr.y), exact.array(start)
    o = y if pr.margin else exact.array(np.ones(len(y)))
    ridge_, l1_ = exact.array(ridge), exact.array(l1)
    q_, lam_ = (exact.number(pr.q), exact.array(pr.lam, d)) if power else (None, None)
    sign = np.array([MP.sign(z) for z in w])
    on = (start != 0) | (l1 == 0)
    if power:
        on = start != 0

    def gradient(w):
        q = y * (X @ w) if pr.margin else X @ w - y
        alpha = np.array([slope(pr.loss, param, a, b) for a, b in zip(q, y, strict=True)])
        g = -(X.T @ (c * o * alpha))
        if power:
            terms = zip(w, lam_, strict=True)
            return alpha, g + np.array([b * MP.sign(z) * abs(z) ** (q_ - 1) if z else z for z, b in terms])
        return alpha, g + ridge_ * w + l1_ * sign

    def curvature(w):
        at = w.astype(float)
        H = oracle._hessian(pr, at)
        if power:
            return H + np.diag(np.where(on, pr.lam * (pr.q - 1) * np.abs(np.where(on, at, 1.0)) ** (pr.q - 2), 0.0))
        return H + np.diag(ridge)

    norms, step = [], np.full(w.size, np.inf)
    scale = float(max(abs(w), default=MP.zero))
    weak = float(np.min(ridge[:d])) if not power else 0.0
    tail = MP.mpf(10) ** -40
    for _ in range(ROUNDS):
        alpha, g = gradient(w)
        norm = exact.norm(g[on])
        norms.append(norm)
        if norm == 0:
            step = np.zeros(w.size)
            break
        H = curvature(w)[np.ix_(on, on)]
        root = np.sqrt(np.maximum(np.diag(H), 1e-300))
        unit = norm if norm > 0 else MP.one
        right = np.array([float(z / unit) for z in g[on]])
        part = np.linalg.lstsq(H / root[:, None] / root[None, :], right / root, rcond=1e-15)[0] / root
        step = np.zeros(w.size, object)
        step[on] = [unit * exact.number(z) for z in part]
        size = float(exact.norm(step))
        scale = max(scale, float(max(abs(w))))
        if size <= 1e-3 * DIGITS * max(scale, 1e-300) or norm < tail * tail:
            break
        w = w - step
        if len(norms) > 12 and norms[-1] > norms[-8] / 2 or quick and len(norms) > 3 and norms[-1] > norms[-3] / 2:
            return None
    else:
        return None
    if not power and not (np.all(abs(g[~on]) <= l1_[~on]) and np.all((w * sign)[on & (l1 > 0)] > 0)):
        return None
    if power and np.any(abs(g[~on]) > 0):
        return None
    if weak == 0 or intercept:  # a flat Hessian takes no step, wherever it is: the gradient must be 0 as well
        terms = abs(X).T @ (c * abs(alpha)) + ridge_ * abs(w) + l1_
        if norm > exact.number(DIGITS) * exact.norm(terms):
            return None
    size = 10 * exact.norm(np.array([exact.number(z) for z in step]))
    if weak > 0 and not intercept:
        error = exact.norm(g[on]) / exact.number(weak)
    else:
        error = size
    if error > exact.number(DIGITS) * exact.norm(w[:d]):
        return None
    b = w[d] if intercept else MP.zero
    return Truth(w[:d], b, alpha, error, size if intercept else MP.zero)


def _hinge(pr: oracle.Problem, c: np.ndarray) -> Truth | None:
    """The margins of the rows with 0 < alpha < 1 are 1: solved in 60 digits, and judged by the gap there."""
    alpha = oracle._solve_hinge(pr, 1e-13).alpha
    d = pr.X.shape[1]
    X, y, lam, l1 = exact.array(pr.X), exact.array(pr.y), exact.array(pr.lam, d), exact.array(pr.l1, d)
    best = None
    for cut in (1e-9, 1e-6, 1e-12):
        inside = (alpha > cut) & (alpha < 1 - cut)
        a = exact.array(np.where(inside, alpha, np.round(alpha)))
        for _ in range(3):
            v = X.T @ (c * y * a)
            w = np.array([MP.sign(z) * max(abs(z) - b, MP.zero) / r for z, b, r in zip(v, l1, lam, strict=True)])
            if not inside.any():
                break
            on = np.array([z != 0 for z in w])
            Z = (y[:, None] * X)[inside][:, on]
            K = (Z / lam[on]) @ (Z.T * c[inside])
            try:
                step = MP.lu_solve(MP.matrix(K.tolist()), MP.matrix((1 - y * (X @ w))[inside].tolist()))
            except ZeroDivisionError:
                return best
            a[inside] += np.array(list(step))
        a = np.array([min(max(z, MP.zero), MP.one) for z in a])
        v = X.T @ (c * y * a)
        w = np.array([MP.sign(z) * max(abs(z) - b, MP.zero) / r for z, b, r in zip(v, l1, lam, strict=True)])
        G = exact.evaluate(pr, w, a, c).G
        error = exact.root(2 * G / min(lam))
        if float(error) <= 1e-18 * max(float(exact.norm(w)), 1e-200) and (best is None or error < best.error):
            best = Truth(w, MP.zero, a, error, MP.zero)
    return best
