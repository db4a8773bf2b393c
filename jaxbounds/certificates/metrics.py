"""Inner products in the inverse of the penalty's or the Hessian's metric, with bounds on their errors (host, NumPy)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from jaxbounds.certificates.row_changes import ENTRIES, SIDE, Case, Intercept, sum_rows
from jaxbounds.certificates.whitened import Inverse, inverse
from jaxbounds.rounding import U, growth, norm_up, up

_PAIRS = 1 << 22  # products of test and training rows held at a time
_RIDGE = 1e-6  # of the curvature in the intercept: makes H definite in it, also where rows are fewer than columns


@dataclass(frozen=True)
class Metric:
    """Products in H^-1 of the training rows x_i with test rows x, and of both with f and p.

    The computed x.H^-1 x_i is within (share size_x + blur_x) size_i + size_x blur_i of the exact one; `root` bounds
    the norms from above.
    """

    rows: Any  # features of the training rows, None if `inverse` has them
    tests: Any  # those of the test rows, or their numbers in `inverse`
    inverse: Inverse | None
    share: float
    size: np.ndarray  # (n,)
    blur: np.ndarray
    root: np.ndarray
    size_x: np.ndarray  # (m,)
    blur_x: np.ndarray
    root_x: np.ndarray
    xf: np.ndarray  # (m,) x.H^-1 f and its error
    xf_pad: np.ndarray
    xp: np.ndarray
    xp_pad: np.ndarray
    f_size: float  # upper bounds of the norms
    p_size: float
    loose: float = 0.0  # H without the ridge of the intercept is at least (1 - loose) H

    def products(self, part: slice) -> np.ndarray:
        """x.H^-1 x_i for some test rows and all training rows."""
        if self.inverse is not None:
            return self.inverse.products(self.tests[part], np.arange(self.size.size))
        found = self.tests[part] @ self.rows.T
        return found.toarray() if sp.issparse(found) else found

    def pad_of_products(self, part: slice) -> np.ndarray:
        """Bounds on the errors of `products`."""
        size, blur = self.size_x[part][:, None], self.blur_x[part][:, None]
        return up((self.share * size + blur) * self.size + size * self.blur)


def penalty_metric(case: Case, tests) -> Metric:
    """H = the penalty's strong convexity."""
    scale = 1 / np.sqrt(case.ridge)
    d = scale.size
    rows, at = _times(case.X, scale), _times(tests, scale)
    root, root_x = _norms(rows, d), _norms(at, d)
    share, none = growth(d + 12), np.zeros_like
    f, p = case.f * scale, case.p * scale
    f_size, p_size = (float(norm_up(np.sum(v * v), d + 8)) for v in (f, p))
    f_pad = float(case.f_pad + up(np.sum(case.own_pad * root), root.size))
    return Metric(
        rows, at, None, share, root, none(root), root, root_x, none(root_x), root_x,
        at @ f, up(root_x * (share * f_size + f_pad)), at @ p, up(root_x * (share * p_size + case.p_pad)),
        up(f_size + f_pad), up(p_size + case.p_pad),
    )  # fmt: skip


def hessian_metric(case: Case, tests) -> Metric | None:
    """H = hess F(w), with a small ridge on an unpenalised intercept; None where it is too large or ill-conditioned."""
    n, m, d = case.y.size, tests.shape[0], case.ridge.size
    if not case.hessian or (n + m) * d > ENTRIES:
        return None
    ends: list[Any] = [case.X, tests, case.p[None]]
    ridge, f, f_pad = case.ridge, case.f, case.f_pad
    if case.intercept is not None:
        if not ridge_of_intercept(case) > 0:
            return None
        ends, ridge, f, f_pad = _with_intercept(case, case.intercept, tests)
    stacked: Any = sp.vstack([sp.csr_array(part) for part in ends], "csr") if sp.issparse(case.X) else np.vstack(ends)
    weight = np.concatenate([case.c * case.second, np.zeros(stacked.shape[0] - n)])

    def f_error(root):
        in_b = 0.0 if case.intercept is None else case.intercept.f_pad * root[n + m]
        return f_pad + in_b + up(np.sum(case.own_pad * root[:n]), n)

    inv = inverse(stacked, weight, ridge, 40 * U, f, f_error)  # the rounding of l''
    if inv is None:
        return None
    return in_inverse(case, inv, np.arange(n, n + m))


def ridge_of_intercept(case: Case) -> float:
    """What H has more than the Hessian in the direction of an unpenalised intercept."""
    return _RIDGE * float(np.sum(case.c * case.second))


def centre(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """(h, m): slopes and the mean of the rows with the weights c_i h_i, about which an intercept is uncoupled."""
    h = case.second if np.any(case.second > 0) else np.ones(case.y.size)
    weight = case.c * h
    return h, sum_rows(case.X, weight)[0] / float(np.sum(weight))


def _with_intercept(case: Case, intercept: Intercept, tests):
    """(vectors, ridge, f, bound on f's rounding) with b as one more coordinate, after the test rows its unit vector.

    Dense rows are taken from their mean, b at that mean, which leaves H well-conditioned.
    """
    X, f, f_pad = case.X, case.f, case.f_pad
    if isinstance(X, np.ndarray):
        mean = centre(case)[1]
        X, tests, moved = X - mean, tests - mean, mean * intercept.f
        error = np.abs(mean) * intercept.f_pad + 4 * U * (np.abs(f) + np.abs(moved))
        f, f_pad = f - moved, f_pad + float(norm_up(np.sum(error**2 / case.ridge), f.size + 8))
    pairs = (X, 1.0), (tests, 1.0), (np.zeros((1, f.size)), 1.0), (case.p[None], 0.0)
    vectors = [_widened(*pair) for pair in pairs]
    return vectors, np.append(case.ridge, ridge_of_intercept(case)), np.append(f, intercept.f), f_pad


def _widened(part, end: float):
    """The rows with one more column."""
    column = np.full((part.shape[0], 1), end)
    return sp.hstack([part, sp.csr_array(column)], "csr") if sp.issparse(part) else np.hstack([part, column])


def in_inverse(case: Case, inv: Inverse, at) -> Metric:
    """The metric of a Hessian with the vectors of these numbers for test rows; its last two vectors are p and f."""
    n = case.y.size
    own, last = np.array([inv.size.size - 2]), np.array([inv.size.size - 1])
    loose = 0.0 if case.intercept is None else up(ridge_of_intercept(case) * inv.root[-3] ** 2)
    return Metric(
        None, at, inv, inv.share, inv.size[:n], inv.blur[:n], inv.root[:n], inv.size[at], inv.blur[at], inv.root[at],
        inv.products(at, last)[:, 0], inv.error(at, last), inv.products(at, own)[:, 0],
        up(inv.error(at, own) + inv.root[at] * case.p_pad), float(inv.root[-1]), float(up(inv.root[-2] + case.p_pad)),
        float(loose),
    )  # fmt: skip


def _times(X, scale):
    return X * scale if isinstance(X, np.ndarray) else (X * scale[None]).tocsr()


def _norms(X, d: int) -> np.ndarray:
    square = X * X if isinstance(X, np.ndarray) else X.multiply(X).tocsr()
    return norm_up(square @ np.ones(d), d + 12)


def metrics_of(case: Case, tests) -> list[Metric]:
    """The metrics that apply."""
    found = hessian_metric(case, tests)
    return [penalty_metric(case, tests)] + ([] if found is None else [found])


def blocks_of_tests(case: Case, m: int) -> list[slice]:
    """Test rows that are looked at together: products with all training rows stay within 32 MB."""
    n, d = case.y.size, case.ridge.size
    size = max(1, _PAIRS // n)
    if case.hessian and n < d:
        size = min(size, SIDE - n - 2)
    return [slice(start, min(start + size, m)) for start in range(0, m, size)]
