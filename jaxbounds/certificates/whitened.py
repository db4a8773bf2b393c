"""Products x_i.H^-1 x_j with guaranteed errors, for H = X^T diag(weight) X + diag(ridge) (host, NumPy float64).

Two ways to the same numbers:

    whitened:  any T with T H T^T = I + E, ||E|| <= eps < 1, gives H^-1 = T^T (I + E)^-1 T, so with features T x
               x.H^-1 y = (T x).(T y)  within  eps/(1 - eps) ||T x|| ||T y||
    kernel:    K = X diag(1/ridge) X^T, B = diag(weight)^(1/2), M = I + B K B (Woodbury; more columns than rows)
               x_i.H^-1 x_j = K_ij - (B K_i).M^-1 (B K_j),  M^-1 whitened

In the features the rounding errors of long sums are relative to a trace of at most d, whatever the condition of H.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from jaxbounds.rounding import U, growth, norm_up, up

_LARGEST = 4000  # rows or columns of the factor
_KERNEL_FROM = 100  # with fewer columns the features are cheap, and more accurate
_GOOD = 1e-10  # an eps below which whitening once more is not worth its time


@dataclass(frozen=True)
class Inverse:
    """What H^-1 makes of rows i = 0, ..., n-1 and of one more vector, number n.

    The computed product of i and j is within share r_i r_j + blur_i r_j + r_i blur_j of x_i.H^-1 x_j, r = `size`.
    """

    features: np.ndarray | None  # (n+1, d)
    kernel: np.ndarray | None  # (n+1, n+1), instead
    size: np.ndarray
    blur: np.ndarray
    share: float
    root: np.ndarray  # upper bounds of sqrt(x_i.H^-1 x_i)

    def products(self, i, j) -> np.ndarray:
        """x_i.H^-1 x_j for the numbers i and j, as a matrix."""
        if self.kernel is not None:
            return self.kernel[np.ix_(i, j)]
        assert self.features is not None
        return self.features[i] @ self.features[j].T

    def with_last(self) -> tuple[np.ndarray, np.ndarray]:
        """(diagonal, products with vector n) of the rows 0, ..., n-1."""
        if self.kernel is not None:
            return np.diag(self.kernel)[:-1], self.kernel[:-1, -1]
        assert self.features is not None
        rows = self.features[:-1]
        return np.einsum("ij,ij->i", rows, rows), rows @ self.features[-1]

    def error(self, i, j):
        """Bound on the error of the computed product of i and j."""
        r, blur = self.size, self.blur
        return up(self.share * r[i] * r[j] + blur[i] * r[j] + r[i] * blur[j])


def inverse(X, weight, ridge, weight_error: float, last, last_error) -> Inverse | None:
    """The products of the rows of X, and of the vector `last`, in the metric of H^-1; None if H is too ill-conditioned.

    Args:
        X: (n, d) dense array or CSR; weight: (n,) >= 0, ridge: (d,) > 0, both within a relative `weight_error`.
        last: (d,); last_error: maps root (n,) to a bound on the error of `last` in the metric of H^-1.
    """
    n, d = X.shape
    kernel = n < d and d > _KERNEL_FROM
    if (n if kernel else d) > _LARGEST:
        return None
    with np.errstate(all="ignore"):
        if kernel:
            return _kernel(X, weight, ridge, weight_error, last, last_error)
        X = X if isinstance(X, np.ndarray) else X.toarray()
        return _whitened(X, weight, ridge, weight_error, last, last_error)


def blocks(n: int) -> list[slice]:
    """About sqrt(n) pieces of 0, ..., n-1, so that a sum over them rounds 2 sqrt(n) times and not n times."""
    size = max(1, round(np.sqrt(n)))
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def block_terms(n: int) -> int:
    """Roundings of a sum over blocks."""
    parts = blocks(n)
    return len(parts) + parts[0].stop + 2


def _whiten(make, product):
    """(T, rows T x, blur of the rows, eps) from H and make(T) -> (T H T^T, ...); None if eps < 1 cannot be had."""
    T = np.eye(len(product))
    for _ in range(5):  # each factor takes away what rounding left of the last one's condition
        try:
            T = solve_triangular(_cholesky(product), T, lower=True)
        except (np.linalg.LinAlgError, ValueError):
            return None
        made = make(T)
        product = made[0]
        if made[-1] <= _GOOD:
            break
    return (T, *made[1:]) if made[-1] <= 0.1 else None


def _cholesky(A):
    """The Cholesky factor of A, moved towards definiteness where rounding has made it indefinite."""
    step = 8 * len(A) * U * float(np.max(np.diag(A)))
    for shift in (0.0, step, 100 * step):
        try:
            return cholesky(A + shift * np.eye(len(A)), lower=True)
        except np.linalg.LinAlgError:
            continue
    raise np.linalg.LinAlgError


def _frobenius(A) -> float:
    return float(norm_up(np.sum(A * A), A.size))


def _row_norms(A):
    """Upper bounds of the norms of the rows."""
    return norm_up(np.einsum("ij,ij->i", A, A), A.shape[1])


def _gram(Y, weight):
    """Y^T diag(weight) Y, summed over blocks of rows."""
    gram = np.zeros((Y.shape[1], Y.shape[1]))
    for part in blocks(len(Y)):
        gram += Y[part].T @ (weight[part, None] * Y[part])
    return gram


def _whitened(X, weight, ridge, weight_error, last, last_error) -> Inverse | None:
    n, d = X.shape
    long, short, size = block_terms(n), growth(d + 2), np.abs(X)

    def make(T):
        """(T H T^T, features, their errors, bound on ||T H T^T - I||)."""
        Y = X @ T.T
        blur = up(short * _row_norms(size @ np.abs(T).T), d)
        gram = _gram(Y, weight)
        first, TR = gram, T * ridge
        gram = gram + TR @ T.T
        off = _frobenius(gram - np.eye(d))
        trace, ridge_trace = float(weight @ _row_norms(Y) ** 2), float(np.sum(TR * T))
        rounding = growth(long + 4) * up(trace, n) + growth(d + 6) * up(ridge_trace, d * d) + 2 * d * U
        spread = norm_up(np.sum(weight * blur**2), n)
        top = np.sqrt(min(1.0 + off + rounding, up(float(np.trace(first)), d) + rounding))
        eps = off + rounding + 2 * spread * top + spread**2
        return gram, Y, blur, float(up(eps + 1.1 * weight_error * (1 + eps), 16))

    found = _whiten(make, _gram(X, weight) + np.diag(ridge))
    if found is None:
        return None
    T, Y, blur, eps = found
    size_of = up(_row_norms(Y) + blur)
    root = up(size_of / np.sqrt(1 - eps))
    y = T @ last
    y_blur = norm_up(np.sum((short * (np.abs(T) @ np.abs(last))) ** 2), d) + np.sqrt(1 + eps) * last_error(root)
    y_size = up(norm_up(np.sum(y * y), d) + y_blur)
    return Inverse(
        np.vstack([Y, y]), None, np.append(size_of, y_size), np.append(blur, up(y_blur)),
        float(up(eps / (1 - eps) + growth(d + 4))), np.append(root, up(y_size / np.sqrt(1 - eps))),
    )  # fmt: skip


def _kernel(X, weight, ridge, weight_error, last, last_error) -> Inverse | None:
    n, d = X.shape
    scaled = X * (1 / np.sqrt(ridge)) if isinstance(X, np.ndarray) else (X * (1 / np.sqrt(ridge))[None]).tocsr()
    end = last / np.sqrt(ridge)
    K = np.empty((n + 1, n + 1))
    rows = scaled @ scaled.T
    K[:n, :n] = rows if isinstance(rows, np.ndarray) else rows.toarray()
    K[:n, n] = K[n, :n] = scaled @ end
    K[n, n] = end @ end
    short = growth(d + 12)
    rho = norm_up(np.maximum(np.diag(K), 0.0), d + 12) * (1 + short)
    B = np.sqrt(weight)
    trace = up(float(np.sum(weight * rho[:n] ** 2)), n)
    M = np.eye(n) + B[:, None] * K[:n, :n] * B
    first = (short + weight_error + 8 * U) * trace + n * 2 * U  # of M, relative to ||T||^2 <= 1 + eps

    def make(T):
        product = T @ M @ T.T
        rounding = growth(2 * n + 4) * _frobenius(np.abs(T) @ np.abs(M) @ np.abs(T).T)
        eps = _frobenius(product - np.eye(n)) + rounding
        return product, float(up((eps + first) / max(1 - first, 1e-300), 16))

    found = _whiten(make, M)
    if found is None:
        return None
    T, eps = found
    BK = B[:, None] * K[:n]
    G = T @ BK  # (n, n+1)
    blur = norm_up(np.sum((growth(n + 3) * (np.abs(T) @ np.abs(BK))) ** 2, axis=0), n)
    blur = up(blur + (1 + eps) * (short + weight_error + 8 * U) * np.sqrt(trace) * rho)
    N = K - G.T @ G
    N = (N + N.T) / 2
    share = short + eps / (1 - eps) * (1 + eps) + growth(n + 8) * 2
    size = up(rho + blur)
    root = np.sqrt(np.maximum(np.diag(N), 0.0) + up(share * size**2 + 2 * blur * size)) * (1 + 8 * U)
    # what `last` itself is off by is an error in the metric of H^-1 alone; there r_i may be as small as root_i
    off = float(up(last_error(root[:n])))
    root[n] = up(root[n] + off)
    blur = blur.copy()
    blur[n] += off
    size[n] = up(size[n] + off)
    return Inverse(None, N, size, blur, float(up(share)), root)
