"""Independent truth for the tests: optima, changed data and the shared cases, in plain NumPy.

Nothing here imports jax or jaxbounds, so an error in the library cannot hide in its own test.
Natural coordinate of a row: q = y*s (margin losses) or q = s - y (regression); alpha = -dl/dq is the paper's dual.
"""

import itertools
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

MARGIN_LOSSES = ("smoothed_hinge", "hinge", "squared_hinge", "logistic", "modified_huber")
LOSSES = (*MARGIN_LOSSES[:4], "squared", "huber")  # exact.py has these too
MORE_LOSSES = ("modified_huber", "squared_epsilon_insensitive", "smoothed_quantile", "log_cosh")
PENALTIES = ("l2", "elastic_net", "l1", "lq")

Change = tuple[str, dict[str, Any]]  # the name of the contract's constructor, and its keyword arguments


@dataclass(frozen=True, eq=False)
class Problem:
    """sum_i c_i l(x_i.w, y_i) + psi(w); lam, l1 and kappa are scalars or (d,).

    param is gamma, delta, epsilon, (tau, gamma), or (bound, y) for poisson, which no other function here changes.
    """

    loss: str
    X: np.ndarray
    y: np.ndarray
    c: np.ndarray
    penalty: str = "l2"
    param: Any = None
    lam: Any = None
    l1: Any = 0.0
    kappa: Any = None
    q: Any = None

    @property
    def margin(self) -> bool:
        return self.loss in MARGIN_LOSSES

    @property
    def orientation(self) -> np.ndarray:
        return self.y if self.margin else np.ones_like(self.y)

    def coordinate(self, w: np.ndarray) -> np.ndarray:
        s = self.X @ w
        return self.y * s if self.margin else s - self.y


class Optimum(NamedTuple):
    """w, alpha (the paper's sign), the duality gap at (w, alpha) and the primal value."""

    w: np.ndarray
    alpha: np.ndarray
    gap: float
    primal: float


# ---------------------------------------------------------------- losses and penalties


def loss_value(loss: str, p: Any, q: np.ndarray) -> np.ndarray:
    h = np.maximum(1 - q, 0)
    if loss == "smoothed_hinge":
        return np.where(h < p, h * h / (2 * p), h - p / 2)
    if loss == "hinge":
        return h
    if loss == "squared_hinge":
        return h * h / 2
    if loss == "modified_huber":
        return np.where(q < -1, -4 * q, h * h)
    if loss == "logistic":
        return np.logaddexp(0 * q, -q)
    if loss == "squared_epsilon_insensitive":
        return np.maximum(np.abs(q) - p, 0) ** 2 / 2
    if loss == "smoothed_quantile":
        slope = np.clip(q / p[1], -p[0], 1 - p[0])
        return slope * q - p[1] * slope**2 / 2
    if loss == "poisson":
        s, z = q + p[1], np.maximum(q + p[1] - p[0], 0)
        return np.exp(np.minimum(s, p[0])) * (1 + z + z * z / 2) - p[1] * s
    if loss == "log_cosh":
        return np.logaddexp(q, -q) - np.log(2)
    if loss == "squared":
        return q * q / 2
    return np.where(np.abs(q) <= p, q * q / 2, p * np.abs(q) - p * p / 2)


def loss_dual(loss: str, p: Any, q: np.ndarray) -> np.ndarray:
    """alpha = -f'(q); the hinge takes 0 at its kink."""
    if loss == "smoothed_hinge":
        return np.clip((1 - q) / p, 0, 1)
    if loss == "hinge":
        return np.where(q < 1, 1.0, 0.0)
    if loss == "squared_hinge":
        return np.maximum(1 - q, 0)
    if loss == "modified_huber":
        return 2 * np.clip(1 - q, 0, 2)
    if loss == "logistic":
        return expit(-q)
    if loss == "squared_epsilon_insensitive":
        return -np.sign(q) * np.maximum(np.abs(q) - p, 0)
    if loss == "smoothed_quantile":
        return -np.clip(q / p[1], -p[0], 1 - p[0])
    if loss == "poisson":
        s = q + p[1]
        return p[1] - np.exp(np.minimum(s, p[0])) * (1 + np.maximum(s - p[0], 0))
    if loss == "log_cosh":
        return -np.tanh(q)
    return -q if loss == "squared" else -np.clip(q, -p, p)


def loss_second(loss: str, p: Any, q: np.ndarray) -> np.ndarray:
    if loss == "smoothed_hinge":
        return np.where((q < 1) & (q > 1 - p), 1 / p, 0.0)
    if loss == "squared_hinge":
        return np.where(q < 1, 1.0, 0.0)
    if loss == "modified_huber":
        return np.where(np.abs(q) < 1, 2.0, 0.0)
    if loss == "logistic":
        return expit(q) * expit(-q)
    if loss == "squared_epsilon_insensitive":
        return np.where(np.abs(q) > p, 1.0, 0.0)
    if loss == "smoothed_quantile":
        return np.where((q > -p[0] * p[1]) & (q < (1 - p[0]) * p[1]), 1 / p[1], 0.0)
    if loss == "poisson":
        return np.exp(np.minimum(q + p[1], p[0]))
    if loss == "log_cosh":
        return 4 * expit(2 * q) * expit(-2 * q)
    return np.where(np.abs(q) <= p, 1.0, 0.0) if loss == "huber" else np.ones_like(q)


def loss_conjugate(loss: str, p: Any, alpha: np.ndarray) -> np.ndarray:
    """f*(-alpha) for f in the natural coordinate, +inf outside the domain."""
    if loss == "poisson":
        rate, top = np.maximum(p[1] - alpha, 0), np.exp(p[0])
        low = np.minimum(rate, top)
        entropy = np.where(low > 0, low * np.log(np.where(low > 0, low, 1)), 0) - low
        beyond = np.maximum(rate - top, 0) * (p[0] + np.maximum(rate / top - 1, 0) / 2)
        return np.where(alpha > p[1], np.inf, alpha * p[1] + entropy + beyond)
    lo, hi = loss_domain(loss, p)
    a = np.clip(alpha, lo, hi)
    if loss == "logistic":
        parts = [np.where(b > 0, b * np.log(np.where(b > 0, b, 1)), 0) for b in (a, 1 - a)]
        value = parts[0] + parts[1]
    elif loss == "log_cosh":
        parts = [np.where(b > 0, b * np.log(np.where(b > 0, b, 1)), 0) for b in (1 + a, 1 - a)]
        value = (parts[0] + parts[1]) / 2
    elif loss == "squared_epsilon_insensitive":
        value = a * a / 2 + p * np.abs(a)
    elif loss == "smoothed_quantile":
        value = p[1] * a * a / 2
    elif loss in ("squared", "huber"):
        value = a * a / 2
    else:
        curvature = {"smoothed_hinge": p, "hinge": 0.0, "squared_hinge": 1.0, "modified_huber": 0.5}[loss]
        value = curvature * a * a / 2 - a
    return np.where((alpha < lo) | (alpha > hi), np.inf, value)


def loss_domain(loss: str, p: Any) -> tuple[float, float]:
    if loss == "huber":
        return -float(p), float(p)
    if loss == "smoothed_quantile":
        return p[0] - 1.0, p[0]
    ends = {"squared_hinge": (0.0, np.inf), "modified_huber": (0.0, 4.0), "log_cosh": (-1.0, 1.0)}
    everywhere = ("squared", "squared_epsilon_insensitive", "poisson")
    return (-np.inf, np.inf) if loss in everywhere else ends.get(loss, (0.0, 1.0))


def smoothness(loss: str, p: Any) -> float | None:
    """Upper bound of f'' (1/gamma), None for the hinge."""
    if loss == "smoothed_quantile":
        return 1 / p[1]
    if loss == "poisson":
        return np.exp(p[0])
    known = {"smoothed_hinge": 1 / p if p else None, "hinge": None, "logistic": 0.25, "modified_huber": 2.0}
    return known.get(loss, 1.0)


def penalty_value(pr: Problem, w: np.ndarray) -> np.ndarray:
    """psi_j(w_j), coordinate by coordinate."""
    if pr.penalty == "l1":
        return pr.kappa * np.abs(w)
    if pr.penalty == "lq":
        return pr.lam / pr.q * np.abs(w) ** pr.q
    return pr.lam / 2 * w * w + (pr.l1 * np.abs(w) if pr.penalty == "elastic_net" else 0)


def penalty_conjugate(pr: Problem, v: np.ndarray) -> np.ndarray:
    if pr.penalty == "l1":
        return np.where(np.abs(v) <= pr.kappa, 0.0, np.inf)
    if pr.penalty == "lq":
        r = pr.q / (pr.q - 1)
        return pr.lam / r * (np.abs(v) / pr.lam) ** r
    z = np.maximum(np.abs(v) - (pr.l1 if pr.penalty == "elastic_net" else 0), 0)
    return z * z / (2 * pr.lam)


def primal_point(pr: Problem, v: np.ndarray) -> np.ndarray:
    """u = grad psi*(v); not for L1."""
    if pr.penalty == "lq":
        return np.sign(v) * (np.abs(v) / pr.lam) ** (1 / (pr.q - 1))
    return np.sign(v) * np.maximum(np.abs(v) - (pr.l1 if pr.penalty == "elastic_net" else 0), 0) / pr.lam


def primal(pr: Problem, w: np.ndarray) -> float:
    return float(pr.c @ loss_value(pr.loss, pr.param, pr.coordinate(w)) + penalty_value(pr, w).sum())


def dual_objective(pr: Problem, alpha: np.ndarray) -> float:
    shift = 0.0 if pr.margin else alpha * pr.y
    v = pr.X.T @ (pr.c * pr.orientation * alpha)
    return float(-(pr.c @ (loss_conjugate(pr.loss, pr.param, alpha) - shift)) - penalty_conjugate(pr, v).sum())


def gap(pr: Problem, w: np.ndarray, alpha: np.ndarray) -> float:
    """P - D in extended precision, grouped row by row and column by column."""
    X, y, c, w, alpha = (np.asarray(a, np.longdouble) for a in (pr.X, pr.y, pr.c, w, alpha))
    ext = replace(pr, X=X, y=y, c=c)
    q, v = ext.coordinate(w), X.T @ (c * ext.orientation * alpha)
    rows = loss_value(pr.loss, pr.param, q) + loss_conjugate(pr.loss, pr.param, alpha) + alpha * q
    columns = penalty_value(ext, w) + penalty_conjugate(ext, v) - w * v
    return float((c * rows).sum() + columns.sum())


def _dual_sum(pr: Problem, alpha: np.ndarray) -> np.ndarray:
    """v in extended precision."""
    t = np.asarray(pr.c, np.longdouble) * pr.orientation * alpha
    return np.asarray(pr.X, np.longdouble).T @ t


def dual_point(pr: Problem, w: np.ndarray) -> np.ndarray:
    """alpha = -f'(q(w)), rescaled into the dual's domain for L1."""
    alpha = loss_dual(pr.loss, pr.param, pr.coordinate(w))
    if pr.penalty == "l1":
        v = np.abs(_dual_sum(pr, alpha)) / pr.kappa
        alpha = alpha * min(1.0, float((1 - 4e-16) / max(v.max(), 1e-300)))
        spread = np.abs(pr.X).T @ (pr.c * np.abs(alpha)) / pr.kappa  # alpha itself is rounded again
        alpha = alpha * (1 - 3e-16 * spread.max()) if np.any(np.abs(_dual_sum(pr, alpha)) > pr.kappa) else alpha
    return alpha


# ---------------------------------------------------------------- the optimum


def solve(pr: Problem, tol: float = 1e-13, w0: np.ndarray | None = None) -> Optimum:
    """The optimum to a relative duality gap of tol (or to rounding); raises ArithmeticError if that fails."""
    if pr.loss == "hinge":
        best = _solve_hinge(pr, tol)
    else:
        w = np.zeros(pr.X.shape[1]) if w0 is None else np.array(w0, float)
        w = _newton_lq(pr, w) if pr.penalty == "lq" else _newton_prox(pr, w)
        best = _optimum(pr, w, dual_point(pr, w))
    if not best.gap <= tol * abs(best.primal) + _rounding(pr, best):
        raise ArithmeticError(f"gap {best.gap:.2e} at primal {best.primal:.2e} for {pr.loss} with {pr.penalty}")
    return best


def _rounding(pr: Problem, best: Optimum) -> float:
    """What the last digits of w and alpha can cost where the gap is of first order in them (hinge, L1)."""
    eps, A = 1e-15, np.abs(pr.X)
    if pr.loss == "hinge":
        return eps * float(pr.c @ (1 + A @ np.abs(best.w)))
    if pr.penalty == "l1":
        size = np.abs(best.alpha) + (smoothness(pr.loss, pr.param) or 0.0) * (A @ np.abs(best.w) + np.abs(pr.y))
        return eps * abs(best.primal) * float((A.T @ (pr.c * size) / pr.kappa).max())
    return 1e-300


def _optimum(pr: Problem, w: np.ndarray, alpha: np.ndarray) -> Optimum:
    return Optimum(w, alpha, gap(pr, w, alpha), primal(pr, w))


def _slope(pr: Problem, w: np.ndarray) -> np.ndarray:
    """Gradient of the loss part."""
    return -pr.X.T @ (pr.c * pr.orientation * loss_dual(pr.loss, pr.param, pr.coordinate(w)))


def _hessian(pr: Problem, w: np.ndarray) -> np.ndarray:
    return (pr.X.T * (pr.c * loss_second(pr.loss, pr.param, pr.coordinate(w)))) @ pr.X


def _vectors(pr: Problem) -> tuple[np.ndarray, np.ndarray]:
    """(ridge, l1) per coordinate of lam/2 w^2 + l1 |w|."""
    zero = np.zeros(pr.X.shape[1])
    if pr.penalty == "l1":
        return zero, zero + pr.kappa
    return zero + pr.lam, zero + (pr.l1 if pr.penalty == "elastic_net" else 0.0)


def _minimal(g: np.ndarray, w: np.ndarray, l1: np.ndarray) -> np.ndarray:
    """The shortest subgradient of a smooth part with gradient g plus l1 |w|."""
    at_zero = np.sign(g) * np.maximum(np.abs(g) - l1, 0)
    return np.where(w != 0, g + l1 * np.sign(w), at_zero)


def _newton_prox(pr: Problem, w: np.ndarray) -> np.ndarray:
    """Semismooth proximal Newton with a line search; runs until rounding stops it."""
    ridge, l1 = _vectors(pr)
    best, best_norm, stuck, first, value = w, np.inf, 0, None, np.inf
    for _ in range(1000):
        g = _slope(pr, w) + ridge * w
        norm = float(np.linalg.norm(_minimal(g, w, l1)))
        first = max(norm, 1e-300) if first is None else first
        last, value = value, primal(pr, w)
        stuck = 0 if norm < 0.5 * best_norm or value < last - 1e-9 * abs(last) else stuck + 1
        if norm < best_norm:
            best, best_norm = w, norm
        if norm == 0 or (stuck >= 4 and norm <= 1e-10 * first) or stuck >= 40:
            break
        H = _hessian(pr, w) + np.diag(ridge)
        if not np.all(ridge > 0):
            H = H + np.eye(w.size) * (1e-3 * np.trace(H) / w.size + 1e-12) * max(min(1.0, norm / first), 1e-9)
        p = _lasso_qp(H, g - H @ w, l1, w) - w
        decrease = g @ p + l1 @ (np.abs(w + p) - np.abs(w))
        w = _line_search(pr, lambda s, w=w, p=p: w + s * p, decrease, norm, lambda z: _slope(pr, z) + ridge * z, l1)
    return best


def _line_search(pr, path, decrease, norm, gradient, l1):
    """The first of 1, 1/2, 1/4, ... with enough decrease, or a smaller subgradient once rounding hides it."""
    start = primal(pr, path(0.0))
    noise = 1e-14 * (1 + abs(start))
    for k in range(60):
        w = path(0.5**k)
        value = primal(pr, w)
        if value < start + min(1e-4 * 0.5**k * decrease, 0.0):
            return w if k == 0 else _best_step(pr, path, gradient, l1, 0.5**k)
        if value <= start + noise and np.linalg.norm(_minimal(gradient(w), w, l1)) <= 0.9 * norm:
            return w
    return path(0.0)


def _best_step(pr, path, gradient, l1, step):
    """Bisection for the minimiser along a straight path that descends up to step; never worse than step."""
    p, lo, hi = path(1.0) - path(0.0), 0.0, 1.0
    for _ in range(40):
        s = (lo + hi) / 2
        z = path(s)
        lo, hi = (s, hi) if p @ (gradient(z) + l1 * np.sign(z)) < 0 else (lo, s)
    return min((path(hi), path(lo), path(step)), key=lambda w: primal(pr, w))


def _lasso_qp(H: np.ndarray, b: np.ndarray, l1: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Exact minimiser of w.H.w/2 + b.w + l1.|w| by feature-sign search (H positive definite)."""
    if not np.any(l1):
        return np.linalg.solve(H, -b)
    w, theta = w.copy(), np.sign(w)
    theta[(l1 == 0) & (theta == 0)] = 1.0
    tol = 1e-15 * (np.abs(b).max() + l1.max())
    for _ in range(50 * w.size + 50):
        active = np.flatnonzero(theta)
        if active.size:
            target = np.zeros_like(w)
            A = H[np.ix_(active, active)]
            target[active] = np.linalg.solve(A, -b[active] - (l1 * theta)[active])
            crossed = active[(l1[active] > 0) & (target[active] * theta[active] < 0)]
            if crossed.size:
                steps = {1.0}
                for j in crossed:
                    steps.add(float(w[j] / (w[j] - target[j])))
                ends = [(w + s * (target - w), s) for s in sorted(steps)]
                for end, s in ends:
                    hit = [j for j in crossed if s == float(w[j] / (w[j] - target[j]))]
                    end[hit] = 0.0
                w = min((e for e, _ in ends), key=lambda z: z @ H @ z / 2 + b @ z + l1 @ np.abs(z))
                theta = np.where(l1 > 0, np.sign(w), theta)
                continue
            w = target
        excess = np.where(theta == 0, np.abs(H @ w + b) - l1, -np.inf)
        j = int(np.argmax(excess))
        if excess[j] <= tol:
            break
        theta[j] = -np.sign((H @ w + b)[j])
    return w


def _newton_lq(pr: Problem, w: np.ndarray) -> np.ndarray:
    """Newton for (lam/q) sum |w|^q: in v = psi'(w) where that is the better variable (q < 2, near 0)."""
    lam, q = np.zeros(w.size) + pr.lam, float(pr.q)
    none = np.zeros(w.size)

    def outer(z):
        return lam * np.sign(z) * np.abs(z) ** (q - 1)

    v, best, best_norm, stuck, first, value = outer(w), w, np.inf, 0, None, np.inf
    for _ in range(1000):
        r = _slope(pr, w) + v
        norm = float(np.linalg.norm(r))
        first = max(norm, 1e-300) if first is None else first
        last, value = value, primal(pr, w)
        stuck = 0 if norm < 0.5 * best_norm or value < last - 1e-9 * abs(last) else stuck + 1
        if norm < best_norm:
            best, best_norm = w, norm
        if norm == 0 or (stuck >= 6 and norm <= 1e-10 * first) or stuck >= 200:
            break
        H = _hessian(pr, w)
        if q >= 2:
            D = lam * (q - 1) * np.abs(w) ** (q - 2)
            mu = 1e-3 * (np.trace(H) + D.sum() + lam.max()) / w.size * max(min(1.0, norm / first) ** 2, 1e-12)
            p = np.linalg.solve(H + np.diag(D + mu), -r)
            dv, keep = none, np.ones(w.size, bool)
        else:
            slope = (np.abs(v) / lam) ** ((2 - q) / (q - 1)) / (lam * (q - 1))
            dv = np.linalg.solve(np.eye(w.size) + H * slope, -r)
            p = slope * dv
            keep = (w != 0) & (np.sign(w + p) == np.sign(w)) & (np.abs(w + p) > 0.5 * np.abs(w))

        def path(s, w=w, v=v, p=p, dv=dv, keep=keep):
            return np.where(keep, w + s * p, primal_point(pr, v + s * dv))

        w = _line_search(pr, path, r @ p, norm, lambda z: _slope(pr, z) + outer(z), none)
        v = outer(w)
    return best


def _solve_hinge(pr: Problem, tol: float) -> Optimum:
    """Hinge: smooth it, read off which rows sit at the kink, and solve those KKT equations exactly."""
    if pr.penalty == "l1":
        raise ValueError("hinge with L1 alone has neither property A nor B")
    w, best = np.zeros(pr.X.shape[1]), None
    for gamma in 10.0 ** -np.arange(0, 9):
        smooth = replace(pr, loss="smoothed_hinge", param=float(gamma))
        w = _newton_lq(smooth, w) if pr.penalty == "lq" else _newton_prox(smooth, w)
        alpha = loss_dual("smoothed_hinge", gamma, pr.coordinate(w))
        for cut in (1e-9, 1e-6, 1e-3):
            for candidate in (_hinge_kkt(pr, w, alpha, cut), _optimum(pr, w, alpha)):
                if best is None or candidate.gap < best.gap:
                    best = candidate
        if best.gap <= tol * 1e-2 * abs(best.primal):
            break
    assert best is not None
    return best


def _hinge_kkt(pr: Problem, w: np.ndarray, alpha: np.ndarray, cut: float) -> Optimum:
    """Newton on grad psi(w) = v(alpha), m_i = 1 for the rows whose alpha is strictly inside (0, 1)."""
    ridge, l1 = (pr.lam, 0.0) if pr.penalty == "lq" else _vectors(pr)
    inside = (alpha > cut) & (alpha < 1 - cut)
    alpha = np.where(inside, alpha, np.round(alpha))
    on = np.abs(w) > 1e-12 * np.abs(w).max()
    w = np.where(on, w, 0.0)
    E = (pr.y[:, None] * pr.X)[inside][:, on]
    for _ in range(20 if pr.penalty == "lq" else 2):
        ws = w[on]
        if pr.penalty == "lq":
            lam, a = (np.zeros(w.size) + pr.lam)[on], np.abs(ws)
            d, grad = lam * (pr.q - 1) * a ** (pr.q - 2), lam * np.sign(ws) * a ** (pr.q - 1)
        else:
            d, grad = ridge[on], ridge[on] * ws + l1[on] * np.sign(ws)
        v = (pr.X.T @ (pr.c * pr.y * alpha))[on]
        K = np.block([[np.diag(d), -E.T * pr.c[inside]], [E, np.zeros((len(E), len(E)))]])
        step = np.linalg.lstsq(K, np.concatenate([v - grad, 1 - E @ ws]), rcond=None)[0]
        w[on] += step[: ws.size]
        alpha[inside] += step[ws.size :]
        if pr.penalty == "lq" and np.any(w[on] == 0):
            break
    return _optimum(pr, w, np.clip(alpha, 0.0, 1.0))


# ---------------------------------------------------------------- changed data


def numbering(n: int, d: int, changes: list[Change]) -> tuple[np.ndarray, np.ndarray]:
    """Numbers (old ones first, added ones after them) of the rows and the columns that remain."""
    rows, cols = np.arange(n), np.arange(d)
    for kind, a in changes:
        if kind == "add_rows":
            rows = np.append(rows, max(n, rows.max(initial=-1) + 1) + np.arange(len(a["X_new"])))
        elif kind == "add_columns":
            cols = np.append(cols, max(d, cols.max(initial=-1) + 1) + np.arange(np.shape(a["X_new"])[1]))
        elif kind == "remove_rows":
            rows = np.setdiff1d(rows, a["rows"])
        elif kind == "remove_columns":
            cols = np.setdiff1d(cols, a["cols"])
    return rows, cols


def apply_change(X, y, sample_weight, changes: list[Change], scale: str = "mean"):
    """The new (X, y, sample_weight, c), changes taken from left to right; numbers refer to the old data.

    Rows and columns added together meet in zeros unless the later block is wide (long) enough to say otherwise.
    remove_rows(keep_n=True) keeps its rows in the divisor of c ("mean"); sample_weight itself is never rescaled.
    """
    X, y = np.array(X, float), np.array(y, float)
    (n, d), sw = X.shape, np.ones(len(y)) if sample_weight is None else np.array(sample_weight, float)
    gone_rows, gone_cols, divisor = set(), set(), n

    def rows_of(a):
        rows = np.asarray(a["rows"], int)
        if len(set(rows.tolist())) != rows.size or np.any((rows < 0) | (rows >= n)):
            raise ValueError(f"rows out of range or repeated: {rows}")
        if gone_rows & set(rows.tolist()):
            raise ValueError(f"rows were removed: {sorted(gone_rows & set(rows.tolist()))}")
        return rows

    def columns_of(a):
        cols = np.asarray(a["cols"], int)
        if np.any((cols < 0) | (cols >= d)) or gone_cols & set(cols.tolist()):
            raise ValueError(f"columns out of range or removed: {cols}")
        return cols

    for kind, a in changes:
        if kind == "set_elements":
            rows, cols = np.asarray(a["rows"], int), columns_of(a)
            rows_of({"rows": np.unique(rows)})
            X[rows, cols] = a["values"]
        elif kind == "set_rows":
            X[rows_of(a), :d] = a["X_new"]
            if a.get("y_new") is not None:
                y[rows_of(a)] = a["y_new"]
        elif kind == "set_columns":
            X[:n, columns_of(a)] = a["X_new"]
        elif kind == "set_targets":
            y[rows_of(a)] = a["y_new"]
        elif kind == "set_weights":
            sw[rows_of(a)] = a["weights"]
        elif kind == "add_rows":
            block = np.asarray(a["X_new"], float)
            block = np.pad(block, ((0, 0), (0, X.shape[1] - block.shape[1])))
            extra = a.get("sample_weight")
            X, y = np.vstack([X, block]), np.append(y, a["y_new"])
            sw = np.append(sw, np.ones(len(block)) if extra is None else extra)
            divisor += len(block)
        elif kind == "add_columns":
            block = np.asarray(a["X_new"], float)
            X = np.hstack([X, np.pad(block, ((0, X.shape[0] - block.shape[0]), (0, 0)))])
        elif kind == "remove_rows":
            rows = rows_of(a)
            gone_rows |= set(rows.tolist())
            divisor -= 0 if a.get("keep_n", False) else rows.size
        elif kind == "remove_columns":
            gone_cols |= set(columns_of(a).tolist())
        elif kind != "set_penalty":
            raise ValueError(f"unknown change {kind!r}")
    rows, cols = numbering(n, d, changes)
    sw = sw[rows]
    return X[np.ix_(rows, cols)], y[rows], sw, sw / divisor if scale == "mean" else sw.copy()


def changed_problem(pr: Problem, sample_weight, changes: list[Change], scale: str = "mean") -> Problem:
    """The new problem: new data, and the last set_penalty (dict of penalty, lam, l1, kappa, q) if there is one."""
    X, y, _, c = apply_change(pr.X, pr.y, sample_weight, changes, scale)
    cols = numbering(*pr.X.shape, changes)[1]
    new = replace(pr, X=X, y=y, c=c)
    for kind, a in changes:
        new = replace(new, **a) if kind == "set_penalty" else new
    vectors = {k: np.asarray(getattr(new, k)) for k in ("lam", "l1", "kappa") if np.ndim(getattr(new, k)) == 1}
    return replace(new, **{k: v[cols] for k, v in vectors.items() if v.size != cols.size})


def embed(values: np.ndarray, numbers: np.ndarray, size: int) -> np.ndarray:
    """Spread compact new values over the old-and-added numbering; removed places are 0."""
    out = np.zeros(size)
    out[numbers] = values
    return out


# ---------------------------------------------------------------- the shared cases

CASES = tuple(f"1_{i:03d}" for i in range(60))


@dataclass(frozen=True, eq=False)
class SharedCase:
    """One shared case; sample_weight is what a fit at this scale is to be given, t_* are -dl/ds."""

    name: str
    kind: str
    scale: str
    old: Problem
    new: Problem
    sample_weight: np.ndarray
    changes: list[Change]
    w_old: np.ndarray
    w_new: np.ndarray
    t_old: np.ndarray
    t_new: np.ndarray
    X_test: np.ndarray
    scores_new: np.ndarray
    values: dict[str, float]

    @property
    def moves(self) -> bool:
        return bool(np.linalg.norm(self.w_new - self.w_old) > 1e-9)


def shared_folder() -> Path:
    """The shared folder; without it the test is skipped, or fails under JAXBOUNDS_REQUIRE_SHARED=1."""
    import pytest

    folder = Path(os.environ.get("JAXBOUNDS_SHARED") or Path(__file__).resolve().parents[2] / "shared")
    if not (folder / "cases").is_dir():
        text = f"no shared cases in {folder}: set JAXBOUNDS_SHARED to the folder that holds cases/"
        if os.environ.get("JAXBOUNDS_REQUIRE_SHARED") == "1":
            pytest.fail(text)
        pytest.skip(text)
    return folder


def load_case(name: str) -> SharedCase:
    base = shared_folder() / "cases" / f"case_{name}"
    info = json.loads(base.with_suffix(".json").read_text())
    with np.load(base.with_suffix(".npz")) as z:
        a = {k: z[k] for k in z.files}
    unit = 1 / len(a["y"]) if info["scale"] == "sum" else 1.0
    penalty = "elastic_net" if info["l1"] > 0 else "l2"
    old = Problem(info["loss"], a["X"], a["y"], a["c_old"], penalty, info["loss_param"], info["lam"], info["l1"])
    changes = list(itertools.chain.from_iterable(_translate(k, v, unit, penalty) for k, v in info["change"].items()))
    changed = {k: v for kind, c in changes for k, v in c.items() if kind == "set_penalty"}
    new = replace(old, X=a["X_new"], y=a["y_new"], c=a["c_new"], **changed)
    return SharedCase(
        name, info["kind"], info["scale"], old, new, a["sample_weight"] * unit, changes, a["w_old"], a["w_new"],
        a["dual_old"], a["dual_new"], a["X_test"], a["scores_new"],
        {k: float(a[k]) for k in ("P_old", "P_new_at_new", "P_new_at_old")},
    )  # fmt: skip


def _translate(key: str, v: list, unit: float, penalty: str) -> list[Change]:
    """A change of the shared files in the contract's names; unit is the weight of one row at this scale."""
    if key == "elements":
        return [("set_elements", {"rows": np.array(v[0]), "cols": np.array(v[1]), "values": np.array(v[2])})]
    if key == "rows":
        return [("set_rows", {"rows": np.array(v[0]), "X_new": np.array(v[1])})]
    if key == "columns":
        return [("set_columns", {"cols": np.array(v[0]), "X_new": np.array(v[1]).T})]
    if key == "targets":
        return [("set_targets", {"rows": np.array(v[0]), "y_new": np.array(v[1])})]
    if key == "weights":
        return [("set_weights", {"rows": np.array(v[0]), "weights": np.array(v[1]) * unit})]
    if key == "add_rows":
        args = {"X_new": np.array(v[0]), "y_new": np.array(v[1]), "sample_weight": np.full(len(v[1]), unit)}
        return [("add_rows", args)]
    if key == "remove_rows":
        return [("remove_rows", {"rows": np.array(v)})]
    if key == "penalty":
        return [("set_penalty", {"penalty": penalty, "lam": v[0], "l1": v[1]})]
    raise ValueError(f"unknown change {key!r}")
