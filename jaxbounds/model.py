"""The trained model and the O(n + d) memory from which every bound is computed."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np

from jaxbounds.array import Array, fori_loop, on_host, put, readable, squared, to_host, uses_jax, xp
from jaxbounds.host import HostMatrix, InPlace, host_matrix, matrix_of
from jaxbounds.intercept import balanced_intercept
from jaxbounds.losses import Loss
from jaxbounds.matrix import Matrix, Sparse
from jaxbounds.own_labels import Codes, Labelled, codes_of
from jaxbounds.penalties import Penalty
from jaxbounds.problem import Problem, dual_vector
from jaxbounds.pytree import in_float64, is_traced, pytree, static
from jaxbounds.rounding import TINY, U, dot_error, down, growth, up
from jaxbounds.row_blocks import RowBlocks
from jaxbounds.status import Status

_LARGE = 1 << 23  # entries of sparse data for which programs are compiled sooner than they are copied and read


@pytree
class Data:
    """The training data as arrays: matrix (n, d), target (n,), weight (n,) (sample weights)."""

    matrix: Matrix
    target: Array
    weight: Array


@pytree
class Rows:
    """What is kept of each row i: (n,) float64 vectors."""

    target: Array
    weight: Array  # sample weight
    score: Array  # x_i.w + b
    score_abs: Array  # |x_i|.|w| + |b|, the scale of the score's rounding error
    cross: Array  # x_i.delta
    norm_sq: Array  # ||x_i||^2
    fenchel: Array  # upper bound of FY_i
    square: Array  # lower bound of (alpha_i - a_i)^2


@pytree
class Columns:
    """What is kept of each column j: (d,) float64 vectors."""

    v: Array  # sum_i c_i t_i x_ij
    v_pad: Array  # bound on the rounding error of v_j
    delta: Array  # w_j - u_j
    norm_sq: Array  # sum_i c_i x_ij^2
    negative: Array  # S-_j = sum_i c_i min(z_ij, 0), rounded down
    positive: Array  # S+_j = sum_i c_i max(z_ij, 0), rounded up


@pytree
class Totals:
    """Float64 scalars: sums over all rows or columns (metric: weighted by the strong convexity lam_j)."""

    fenchel: Array  # upper bound of sum_i c_i FY_i
    square: Array  # lower bound of sum_i c_i (alpha_i - a_i)^2
    excess: Array  # upper bound of sum_j [B_j - lam_j/2 delta_j^2]
    delta_metric: Array  # sum_j lam_j delta_j^2
    delta_delta: Array  # ||delta||^2
    delta_w: Array  # delta.w
    w_w: Array  # ||w||^2
    delta_pad: Array  # bound on the metric norm of delta's rounding error
    lam_min: Array  # min_j lam_j (0 without strong convexity)
    sigma_sq: Array  # upper bound of ||C^(1/2) X||_2^2
    loss: Array  # upper bound of sum_i c_i max(l_i, 0)
    psi: Array  # upper bound of psi(w)


@pytree
class Model(Labelled):
    """A trained model, or any other pair (w, alpha), with what the bounds need.

    Attributes:
        problem: the loss, penalty and scale.
        w: (d,) coefficients in the data's dtype; one of them is a penalised intercept, if there is one (see `names`).
        intercept: float64 scalar, the best one for w, which is not penalised; 0 without one.
        alpha: (n,) float64 dual variables in the paper's sign.
        gap: upper bound of P(w) - D(alpha); bounds are valid however large it is.
        primal: P(w). n_steps: int32, of the solver.
        status: int32; `jb.Status(int(model.status)).name` and `.advice` say in words how training ended, and so does
            the printed model.
        data: matrix, target and sample weights, or None after `without_data()`.
        factor: of the Hessian at w, or None; see `with_factor`.
        inputs: how rows and changes are written where not as the data: before a scaler, by name; or None.
        source: the kind of the estimator that the coefficients came from, None if they were fitted here.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0))
        >>> model = jb.fit(problem, np.array([[1.0], [2.0]]), np.array([1.0, 2.0]))
        >>> round(float(model.w[0]), 6)
        0.714286
    """

    problem: Problem
    w: Array
    intercept: Array
    alpha: Array
    ref: Array  # the coordinate at which alpha was taken (user losses define alpha by it)
    gap: Array
    primal: Array
    status: Array
    n_steps: Array
    rows: Rows
    columns: Columns
    totals: Totals
    data: Data | None
    factor: Any = None
    row_terms: int = static(default=0)  # most summands in a score (the intercept is one), for rounding
    inputs: Any = None
    source: str | None = static(default=None)

    def _codes(self) -> Codes:
        if self.classes_ is None and not self.problem.loss.classification:
            raise ValueError(f"the loss {self.problem.loss.name} has no labels: its targets are numbers")
        return codes_of((-1, 1) if self.classes_ is None else self.classes_, False)

    @in_float64
    def scores(self, X):
        """X w + b, the model's scores: (m, d) data to (m,) float64."""
        matrix = self.rows_like(X, on_host(self), "X")
        w, intercept = to_host((self.w, self.intercept)) if isinstance(matrix, HostMatrix) else (self.w, self.intercept)
        return put(matrix.matvec(w.astype(xp.float64)) + intercept)

    @in_float64
    def labels(self, X):
        """The sign of each score, as `predict` of scikit-learn has it: (m,) int32, +1, and -1 for a score of 0 or less.

        Args:
            X: (m, d) data. Where the model was trained on other labels, `decode_labels` turns the result into them.

        Raises:
            ValueError: the training data have numbers and no labels.
        """
        y, known = self.rows.target, self.problem.loss.classification or self.classes_ is not None
        if not (known or is_traced(y) or np.all(np.abs(y) == 1)):
            raise ValueError(f"the loss {self.problem.loss.name} has no labels: its targets are numbers; use scores(X)")
        score = readable(self.scores(X))
        return put(xp.where(score > 0, 1, xp.where(score <= 0, -1, 0)).astype(xp.int32))

    def rows_like(self, X, host: bool, name: str) -> Matrix | HostMatrix:
        """X as a matrix of as many columns as the training data, on the host if the rest runs there."""
        d = self.w.shape[0]
        matrix = matrix_of(X, host, name) if self.inputs is None else self.inputs.rows(X, d, host, name)
        if matrix.shape[1] != d:
            raise ValueError(f"{name} must have {d} columns like the training data, got {matrix.shape[1]}")
        return matrix

    def without_data(self) -> "Model":
        """The same model without its data matrix; a change must then bring its `old_values`."""
        return replace(self, data=None)

    def save(self, path, data: bool = True) -> None:
        """Write the model to a sealed .npz file, whole or not at all: an old file stays until the new one is on disk.

        Args:
            path: the file, written under exactly this name. data: False to leave the training data out, as
                `without_data` does.

        Raises:
            OSError: the file cannot be written; the old one is then still there. ValueError: the data are `RowBlocks`.

        Example:
            >>> import os, tempfile, numpy as np, jaxbounds as jb
            >>> problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0))
            >>> path = os.path.join(tempfile.mkdtemp(), "model.npz")
            >>> jb.fit(problem, np.eye(2), np.ones(2)).save(path, data=False)
            >>> jb.load(path).data is None
            True
        """
        from jaxbounds.storage import save_model  # it needs every class that a model is made of

        if data and self.data is not None and isinstance(self.data.matrix, RowBlocks):
            raise ValueError("the data of this model are in the files of its RowBlocks and stay there; use data=False")
        save_model(self, path, data)


def score_pad(score_abs, terms: int):
    """Bound on the rounding error of a score."""
    return dot_error(score_abs, terms)


def coordinate_pad(q, pad):
    """Bound on the error of q = y s or s - y, given that of s."""
    return up(pad + 2 * U * xp.abs(q) + TINY)


def fenchel_bounds(loss: Loss, q, pad, alpha, y, ref):
    """(upper bound of FY, lower bound of (alpha - a)^2) for every coordinate within `pad` of q (FY is convex in q)."""
    left, right = q - pad, q + pad
    fy = xp.maximum(loss.fenchel_young(left, alpha, y, ref), loss.fenchel_young(right, alpha, y, ref))
    a_high, a_low = loss.dual(left, y), loss.dual(right, y)
    pad_a = 16 * U * xp.maximum(xp.abs(a_high), xp.abs(a_low))
    distance = xp.maximum(xp.maximum(alpha - a_high, a_low - alpha) - pad_a, 0.0)
    return up(fy, 16), down(distance**2)


def known_ref(loss: Loss, penalty: Penalty, ref):
    """`ref` where alpha = -f'(ref) holds exactly: not after alpha was shrunk, nor at the kinks of a loss."""
    return None if penalty.dual_bound is not None or loss.smoothness is None else ref


def loss_bound(loss: Loss, q, pad, y):
    """Upper bound of max(l, 0) for every coordinate within `pad` of q (l is convex)."""
    return xp.maximum(xp.maximum(loss.value(q - pad, y), loss.value(q + pad, y)), 0.0)


def gamma_of(loss: Loss):
    """gamma = 1 / smoothness, 0 for a loss that is not smooth (property A missing)."""
    return xp.zeros(()) if loss.smoothness is None else 1.0 / xp.asarray(loss.smoothness)


def lam_of(penalty: Penalty, size: int):
    """(d,) strong convexity, 0 where property B is missing."""
    lam = penalty.strong_convexity
    return xp.zeros(size) if lam is None else xp.broadcast_to(lam, (size,))


def excess_bounds(penalty: Penalty, w, v, v_pad, lam):
    """(upper bound of B - lam/2 (w-u)^2, w - u, bound on the error of w - u) for every dual within v_pad of v."""
    u = penalty.grad_conjugate(v)
    if penalty.strong_convexity is None:
        b = xp.maximum(penalty.fenchel_young(w, v - v_pad), penalty.fenchel_young(w, v + v_pad))
        return up(b, 16), xp.zeros_like(w), xp.zeros_like(w)
    pad = up(v_pad / lam + 4 * U * (xp.abs(u) + xp.abs(w)))
    if penalty.quadratic:
        return xp.zeros_like(w), w - u, pad
    # the excess is Lipschitz in v: |d/dv| <= 2 |w - u| + error
    excess = xp.maximum(penalty.excess(w, v - v_pad), penalty.excess(w, v + v_pad))
    return up(excess, 16) + 2 * U * xp.abs(w * v), w - u, pad


def spectral_bound(magnitude: Matrix, c, steps: int = 3):
    """Upper bound of ||C^(1/2) X||_2^2 from |X|: max_j (|X|^T C |X| x)_j / x_j, x positive (Collatz-Wielandt)."""
    used = magnitude.rmatvec(c) > 0

    def product(x):
        return magnitude.rmatvec(c * magnitude.matvec(x))

    def step(_, x):
        x = product(x)
        return xp.where(used, xp.maximum(x / xp.max(x), 1e-12), 0.0)

    x = fori_loop(0, steps, step, xp.where(used, 1.0, 0.0))
    ratio = xp.max(xp.where(used, product(x) / xp.where(used, x, 1.0), 0.0))
    return up(ratio, magnitude.row_terms + magnitude.col_terms + 8)


def balanced(problem: Problem, data: Data, alpha):
    """alpha with the heavier sign of t shrunk until sum_i c_i t_i = 0 to rounding: every domain contains 0.

    Scores of a large size and slope leave more than that; users' losses keep it, their alpha must be -f'(ref).
    """
    if not problem.intercept or problem.loss.defined_by_ref:
        return alpha
    t = data.weight * problem.loss.orientation(data.target) * alpha
    above, below = xp.sum(xp.maximum(t, 0.0)), xp.sum(xp.maximum(-t, 0.0))
    less = xp.minimum(above, below)
    return alpha * xp.where(t > 0, less / xp.maximum(above, TINY), less / xp.maximum(below, TINY))


def feasible(problem: Problem, data: Data, alpha, unit: float):
    """alpha, balanced, and shrunk until v lies in the domain of psi* whatever the rounding."""
    alpha = balanced(problem, data, alpha)
    bound, matrix = problem.penalty.dual_bound, data.matrix
    if bound is None:
        return alpha
    v = dual_vector(problem.loss, matrix, data.target, data.weight * unit, alpha)
    pad = dual_vector_pad(matrix.map(xp.abs), data.weight * unit, alpha)
    room = bound / xp.maximum(xp.abs(v) + 2 * pad, TINY)
    return alpha * xp.minimum(1.0, xp.min(room) * (1 - 16 * U))


def dual_vector_pad(magnitude: Matrix, c, alpha):
    """Bound on the rounding error of v, from |X|."""
    size, terms = magnitude.rmatvec(c * xp.abs(alpha)), magnitude.col_terms
    return up((growth(terms + 6) + 64 * U) * size, terms) + terms * TINY


def _one_signed(matrix: Matrix, magnitude: Matrix, c, z):
    """(lower bound on the sum of the negative c_i z_i x_ij, upper bound on that of the positive ones)."""
    used, signed = magnitude.rmatvec(c), matrix.rmatvec(c * z)
    slack = growth(matrix.col_terms + 6) * used + matrix.col_terms * TINY
    return (signed - used) / 2 - slack, (signed + used) / 2 + slack


def _memory(problem: Problem, data: Data, w, b, alpha, ref, unit: float):
    """Rows, Columns, Totals of (w, b, alpha) in one pass over the data."""
    loss, penalty, matrix = problem.loss, problem.penalty, data.matrix
    n, d = matrix.shape
    y, c = data.target, data.weight * unit
    w = w.astype(xp.float64)
    magnitude, square = matrix.map(xp.abs), matrix.map(squared)
    terms = _score_terms(problem, matrix)
    score, score_abs = matrix.matvec(w) + b, up(magnitude.matvec(xp.abs(w)) + xp.abs(b), terms)
    q = loss.coordinate(score, y)
    pad = coordinate_pad(q, score_pad(score_abs, terms))
    fenchel, gap_square = fenchel_bounds(loss, q, pad, alpha, y, known_ref(loss, penalty, ref))

    lam = lam_of(penalty, d)
    v = dual_vector(loss, matrix, y, c, alpha)
    v_pad = dual_vector_pad(magnitude, c, alpha)
    excess, delta, delta_pad = excess_bounds(penalty, w, v, v_pad, lam)
    excess, delta_pad = up(xp.sum(excess), d), up(xp.sqrt(xp.sum(lam * delta_pad**2)), d)
    psi = xp.sum(penalty.value(w))
    rows = Rows(y, data.weight, score, score_abs, matrix.matvec(delta), square.matvec(xp.ones(d)), fenchel, gap_square)
    columns = Columns(v, v_pad, delta, square.rmatvec(c), *_one_signed(matrix, magnitude, c, loss.orientation(y)))
    totals = Totals(
        fenchel=up(xp.sum(c * fenchel), n + 4),
        square=down(xp.sum(c * gap_square), n + 4),
        excess=excess,
        delta_metric=xp.sum((xp.sqrt(lam) * delta) ** 2),
        delta_delta=xp.sum(delta**2),
        delta_w=xp.sum(delta * w),
        w_w=xp.sum(w**2),
        delta_pad=delta_pad,
        lam_min=xp.min(lam),
        sigma_sq=spectral_bound(magnitude, c),
        loss=up(xp.sum(c * loss_bound(loss, q, pad, y)), n + 16),
        psi=up(psi, d + 16),
    )
    primal = xp.sum(c * loss.value(q, y)) + psi
    gap = up(totals.fenchel + totals.excess + 0.5 * up((xp.sqrt(totals.delta_metric) + totals.delta_pad) ** 2, d))
    return rows, columns, totals, gap, primal


_memory_jit = partial(jax.jit, static_argnames="unit")(_memory)


def _score_terms(problem: Problem, matrix: Matrix | HostMatrix) -> int:
    """Most summands in a score."""
    return matrix.row_terms + int(problem.intercept)


def _best_intercept(problem: Problem, data: Data, w):
    unit = problem.unit(data.matrix.shape[0])
    scores = data.matrix.matvec(w.astype(xp.float64))
    return balanced_intercept(problem.loss, scores, data.target, data.weight * unit)


_best_intercept_jit = jax.jit(_best_intercept)


@in_float64
def best_intercept(problem: Problem, data: Data, w):
    """The intercept that minimises the loss at w; 0 for a problem without one."""
    if not problem.intercept:
        return np.zeros(())
    if not on_host(problem, data, w):
        return _best_intercept_jit(problem, data, w)
    problem, here, w = to_host((problem, data, w))
    return _best_intercept(problem, replace(here, matrix=_to_read(data.matrix)), w)


def _to_read(matrix: Any) -> Any:
    """The matrix on the host; large sparse data where they lie, read by compiled programs."""
    large = isinstance(matrix, Sparse) and matrix.nnz >= _LARGE
    return InPlace(matrix) if large else host_matrix(matrix)


def certain(penalty: Penalty, w, status):
    """(w, status), or (NaN, INVALID) for a penalty out of its range, which only tracers can be: then no bound holds."""
    fine = readable(penalty).in_range().all()
    if not uses_jax((fine,)) and fine:  # nothing to compile
        return w, status
    invalid = xp.asarray(Status.INVALID, dtype=xp.int32)
    return xp.where(fine, w, xp.nan), xp.where(fine, xp.asarray(status, dtype=xp.int32), invalid)


def remember(problem: Problem, data: Data, w, alpha, ref=None, status=0, n_steps=0, b=None) -> Model:
    """The model of a pair (w, alpha): any w and any feasible alpha give valid bounds; b is the best one for w.

    Losses that define alpha by `ref` take it at ref, by default at the scores of w, whatever `alpha` was given.
    """
    unit, terms = problem.unit(data.matrix.shape[0]), _score_terms(problem, data.matrix)
    w, status = certain(problem.penalty, w, status)
    b = best_intercept(problem, data, w) if b is None else b
    memory, on, here, at, intercept = _memory_jit, problem, data, w, b
    if on_host(problem, data, w, alpha, b):
        memory, (on, here, at, intercept, alpha, ref) = _memory, to_host((problem, data, w, b, alpha, ref))
        here = replace(here, matrix=_to_read(data.matrix))
    if ref is None:
        ref = on.loss.coordinate(here.matrix.matvec(at.astype(xp.float64)) + intercept, here.target)
        if on.loss.defined_by_ref and on.loss.smoothness is not None:  # alpha must be the one that ref defines
            alpha = on.loss.dual(ref, here.target)
    alpha = feasible(on, here, alpha, unit)
    with np.errstate(all="ignore"):  # as in jax
        rows, columns, totals, gap, primal = memory(on, here, at, intercept, alpha, ref, unit)
    status, n_steps = xp.asarray(status, dtype=xp.int32), xp.asarray(n_steps, dtype=xp.int32)
    return put(
        Model(problem, w, b, alpha, ref, gap, primal, status, n_steps, rows, columns, totals, data, row_terms=terms)
    )
