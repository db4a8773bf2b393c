"""What each training row adds to the gradient at the stored w when it leaves, or when its label flips (host, NumPy)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from jaxbounds.certificates.whitened import block_terms, blocks
from jaxbounds.host import HostMatrix, host_matrix
from jaxbounds.matrix import Matrix
from jaxbounds.model import Model, coordinate_pad, lam_of, score_pad
from jaxbounds.rounding import TINY, TINY_NORM, U, down, growth, norm_up, up

ENTRIES = 5e7  # numbers of a dense copy of the data, up to which the Hessian's metric is used
SIDE = 4000  # side of its kernel form, as in whitened.py
_FLOPS = 3e10  # n d^2 likewise


@dataclass(frozen=True)
class Intercept:
    """The stored intercept, the derivative f of F by it, and the rounding of f's sum."""

    b: float
    f: float
    f_pad: float


@dataclass(frozen=True)
class Case:
    """The stored model in the scaling above, and what each row adds to the gradient when it leaves (or flips)."""

    loss: Any
    X: Any  # (n, d) float64, dense or CSR
    y: np.ndarray
    c: np.ndarray  # sample weights
    q: np.ndarray  # natural coordinates and their errors
    pad: np.ndarray
    second: np.ndarray  # f''(q)
    push: np.ndarray
    push_pad: np.ndarray
    own_pad: np.ndarray  # errors of sw_i l'_i themselves
    w: np.ndarray
    ridge: np.ndarray  # (d,) strong convexity of n psi
    f: np.ndarray
    f_pad: float  # its rounding, in the metric of 1/ridge
    p: np.ndarray
    p_pad: float
    shrinks: bool  # the penalty counts n - |S| rows
    relabel: bool
    slack: float  # sqrt(sum of Fenchel-Young terms) where the stored dual stands for the derivative
    least: float  # a in the penalty's metric
    hessian: bool  # the Hessian's metric applies
    intercept: Intercept | None = None


def make_case(model: Model, matrix: Any, keep_n: bool, relabel: bool = False) -> Case:
    """The case of a model on the host."""
    data: Any = model.data
    problem, loss, penalty = model.problem, model.problem.loss, model.problem.penalty
    n, d = matrix.shape
    rows = float(n) if problem.scale == "mean" else 1.0
    X, y, c, w = matrix.values.astype(np.float64), data.target, data.weight, model.w.astype(np.float64)
    ridge = np.asarray(lam_of(penalty, d), np.float64) * rows
    z, smooth = loss.orientation(y), loss.smoothness is not None
    b = float(model.intercept)
    s, size = X @ w + b, abs(X) @ np.abs(w) + abs(b)
    q = loss.coordinate(s, y)
    pad = coordinate_pad(q, score_pad(up(size, model.row_terms or d), model.row_terms or d))
    noise = 64 * U if loss.defined_by_ref else 20 * U  # a user's derivative is trusted to a few roundings
    lip = float(loss.smoothness) * (1 + 8 * U) if smooth else 0.0
    t = loss.dual(q, y) if smooth else model.alpha
    push, slack = c * z * t, 0.0
    balance = Intercept(b, -float(np.sum(push)), float(up(growth(n) * np.sum(np.abs(push)), n)) + n * TINY)
    own_pad = up(c * lip * pad + noise * np.abs(push)) + TINY
    if smooth:
        g, g_size = sum_rows(X, -push)
        low, high = (rows * end for end in penalty.subgradient(w))
        own = np.clip(-g, low, high)  # the subgradient that leaves the least
        f, p = own + g, own / n
        trusted = 8 if penalty.piecewise_quadratic else 64
        f_pad = growth(block_terms(n) + 6) * up(g_size, n) + n * TINY + trusted * U * (np.abs(own) + np.abs(g))
        f_pad = float(norm_up(np.sum(f_pad**2 / ridge), d + 8))
    else:  # the stored dual: f = ridge (w - u), and its Fenchel-Young terms widen the ball
        f, p = ridge * model.columns.delta, ridge * w / n
        f_pad = float(up(np.sqrt(rows) * model.totals.delta_pad + 8 * U * norm_up(np.sum(f * f / ridge), d)))
        slack = float(up(np.sqrt(rows * model.totals.fenchel)) + TINY_NORM)
    p_pad = float(16 * U * norm_up(np.sum(p * p / ridge), d))
    least = 0.0
    if smooth and penalty.quadratic:
        most = model.totals.sigma_sq * lip
        least = float(down(model.totals.lam_min / (model.totals.lam_min + most), 8))
    push_pad = own_pad
    if relabel:
        other = -c * z * loss.dual(-q, -y)  # the margin changes its sign, the orientation too
        push_pad = up(own_pad + c * lip * pad + noise * np.abs(other) + 4 * U * np.abs(push)) + TINY
        push = push - other
    hessian = smooth and penalty.quadratic and n * d <= ENTRIES and (n <= SIDE // 2 if n < d else n * d * d <= _FLOPS)
    shrinks = problem.scale == "mean" and not keep_n and not relabel
    return Case(
        loss, X, y, c, q, pad, np.asarray(loss.second(q, y)), push, push_pad, own_pad, w, ridge, f, f_pad, p, p_pad,
        shrinks, relabel, slack, least, hessian, balance if problem.intercept else None,
    )  # fmt: skip


def sum_rows(X, b) -> tuple[np.ndarray, np.ndarray]:
    """X^T b, and the sum of its absolute terms."""
    g, size = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for part in blocks(b.size):
        g, size = g + X[part].T @ b[part], size + abs(X[part]).T @ np.abs(b[part])
    return g, size


def gradient(X, b, ridge, w) -> tuple[np.ndarray, float]:
    """X^T b + ridge w, and a bound on its rounding in the metric of 1/ridge."""
    g, size = sum_rows(X, b)
    g, size = g + ridge * w, size + ridge * np.abs(w)
    pad = growth(block_terms(b.size) + 6) * up(size, b.size) + b.size * TINY
    return g, float(norm_up(np.sum(pad**2 / ridge), w.size + 8))


def damped_newton(X, ridge, w, derivatives, steps: int) -> np.ndarray:
    """Where damped Newton steps on sum_i phi_i(x_i.w) + sum_j ridge_j w_j^2/2 end; derivatives(w) = (phi', phi'')."""
    kept, best, halved = w, np.inf, 0
    for _ in range(steps):
        slope, second = derivatives(w)
        g = X.T @ slope + ridge * w
        size = np.sum(g * g / ridge)
        if size < best:
            best, kept, halved = size, w, 0
            try:
                w = w - np.linalg.solve((X.T * second) @ X + np.diag(ridge), g)
            except np.linalg.LinAlgError:
                break
        elif halved == 3:
            break
        else:
            w, halved = (w + kept) / 2, halved + 1
    return kept


def stored_scores(case: Case, tests) -> tuple[np.ndarray, np.ndarray]:
    """x.w of test rows and bounds on their errors."""
    d, b = case.w.size + 1, 0.0 if case.intercept is None else case.intercept.b
    return tests @ case.w + b, score_pad(up(abs(tests) @ np.abs(case.w) + abs(b), d), d)


def prepared(model: Model, matrix: Matrix | HostMatrix, keep_n: bool, relabel: bool = False) -> tuple[Case, Any]:
    """(case, test rows as float64)."""
    data: Any = model.data
    case = make_case(model, host_matrix(data.matrix), keep_n, relabel)
    tests: Any = host_matrix(matrix)
    tests = tests.values.astype(np.float64)
    if sp.issparse(case.X) and not sp.issparse(tests):
        tests = sp.csr_array(tests)
    elif sp.issparse(tests) and not sp.issparse(case.X):
        tests = tests.toarray()
    return case, tests

