"""Leave-one-out in closed form with an unpenalised intercept: the Hessian of (w, b) alone is the metric (host, NumPy).

The formulas of left_out_moves.py, with rows [x_i, 1] and a ridge of zero for b: they need H positive definite and no
strong convexity beyond that. H^-1 is not less than 1/ridge in the columns of w alone, but

    ||(u, v)||_{H^-1} <= ||u||_{1/ridge} + |v| (||mu||_{1/ridge} + 1/sqrt(M)),    M = sum a_i, mu = sum a_i x_i / M

as H in the coordinates (x - mu, 1) is diag(S + diag(ridge), M) with S >= 0; ||mu|| is at most the mean of the ||x_i||.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxbounds.array import to_host
from jaxbounds.certificates.leave_one_out import EXACT, SECOND_ORDER, WIDE
from jaxbounds.certificates.left_out_intercept import intercept_applies, stored_slopes
from jaxbounds.certificates.left_out_moves import local
from jaxbounds.certificates.metrics import in_inverse
from jaxbounds.certificates.row_changes import Case, gradient
from jaxbounds.certificates.whitened import inverse
from jaxbounds.host import host_matrix
from jaxbounds.model import Model, score_pad
from jaxbounds.pytree import in_float64
from jaxbounds.rounding import TINY, U, growth, norm_up, up

_COLUMNS = 100  # up to which the Hessian may have more columns than there are rows


def closed_applies(model: Model) -> bool:
    """Whether `closed_scores` does: as `intercept_applies`, and a Hessian that is formed column by column."""
    n, d = model.alpha.shape[0], model.w.shape[0]
    return intercept_applies(model) and (d < n or d <= _COLUMNS)


@in_float64
def closed_scores(model: Model, rows, keep_n: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(lower, upper, how) of x_k.w + b without row k; infinite where the closed form says nothing.

    Args:
        rows: (m,) integers. keep_n: as in `remove_rows`.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> from jaxbounds.certificates.left_out_closed import closed_scores
        >>> problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0), intercept=True)
        >>> model = jb.fit(problem, np.array([[0.0], [1.0], [-1.0]]), np.array([1.0, 2.0, 3.0]), tol=1e-12)
        >>> lower, upper, _ = closed_scores(model, np.array([0]), True)
        >>> bool(abs(lower[0] - 2.5) < 1e-9), bool(abs(upper[0] - 2.5) < 1e-9)
        (True, True)

    Source: theory 4.6, 4.7 and 5 (b as a coordinate with penalty 0).
    """
    here: Any = to_host(model)
    matrix: Any = host_matrix(here.data.matrix)
    loss, (n, d) = here.problem.loss, matrix.shape
    y, c, memory = here.data.target, here.data.weight, here.rows
    X = matrix.values if isinstance(matrix.values, np.ndarray) else matrix.values.toarray()
    X, w = X.astype(np.float64), here.w.astype(np.float64)

    ridge, _, q, pad, p, p_pad, a = stored_slopes(here, keep_n)
    M = float(np.sum(a)) * (1 - growth(n + 8))
    lower, upper, how = np.full(rows.size, -np.inf), np.full(rows.size, np.inf), np.full(rows.size, WIDE, np.int8)
    if not M > 0:
        return lower, upper, how
    G, summing = gradient(X, p, ridge, w)
    length = norm_up((X * X) @ (1 / ridge), d + 8)
    of_b = growth(n + 8) * float(np.sum(np.abs(p))) * (float(up(a @ length, n)) / M + 1 / np.sqrt(M))
    weight_error = 6 * U if loss.piecewise_quadratic else float(np.max(np.expm1(pad))) + 32 * U

    rows_and_one, none = np.column_stack([X, np.ones(n)]), np.zeros(d + 1)
    f, ridge = np.append(G, np.sum(p)), np.append(ridge, 0.0)
    inv = inverse(rows_and_one, a, ridge, weight_error, f, lambda root: summing + up(of_b) + float(up(p_pad @ root, n)))
    if inv is None:
        return lower, upper, how
    case = Case(
        loss, rows_and_one, y, c, q, pad, loss.second(q, y), -p, p_pad, p_pad, np.append(w, here.intercept), ridge, f,
        0.0, none, 0.0, False, False, 0.0, 0.0, True,
    )  # fmt: skip
    found: Any = local(case, in_inverse(case, inv, np.zeros(0, int)))
    kappa, kappa_pad, grown, nu, theta, rho = (values[rows] for values in found)
    e, h = (values[rows] for values in inv.with_last())
    e_pad, h_pad = inv.error(rows, rows), inv.error(rows, np.full(rows.size, n))
    move, reach, size = -theta * (h + kappa * e), np.abs(e) + e_pad, np.abs(kappa) + kappa_pad
    off = theta * (h_pad + kappa_pad * reach + np.abs(kappa) * e_pad) + 16 * U * theta * (np.abs(h) + size * reach)
    own = np.sqrt(up(inv.root[rows] ** 2 + grown * reach**2, 16)) * (1 + 8 * U)
    half = up(rho * nu * own + off, 16) + 8 * U * np.abs(move) + TINY
    score = memory.score[rows]
    half = up(half + score_pad(memory.score_abs[rows], here.row_terms)) + 4 * U * (np.abs(score) + np.abs(move))
    known = np.isfinite(half) & np.isfinite(rho)
    lower, upper = np.where(known, score + move - half, lower), np.where(known, score + move + half, upper)
    return lower, upper, np.where(known, np.where(rho == 0, EXACT, SECOND_ORDER), how).astype(np.int8)
