"""Multinomial logistic models: training with the softmax loss, and the memory from which bounds are computed."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbounds.array import Array, on_host, put, to_host, xp
from jaxbounds.classes import ClassModel, argmax, as_classes
from jaxbounds.host import HostMatrix, host_matrix
from jaxbounds.inputs import frame_inputs, read, rows_of
from jaxbounds.kinds import Change
from jaxbounds.matrix import Matrix, as_matrix
from jaxbounds.messages import brief
from jaxbounds.model import Data, certain, lam_of, score_pad, spectral_bound
from jaxbounds.problem import Problem, as_sample_weight
from jaxbounds.pytree import in_float64, is_traced, pytree, static
from jaxbounds.rounding import TINY, U, growth, norm_up, up
from jaxbounds.softmax import Softmax
from jaxbounds.solvers.multinomial import newton_cg


@pytree
class MultinomialModel(ClassModel):
    """A trained softmax model, or any other coefficients, with what the bounds need; from `jb.fit`.

    Attributes:
        problem: with the loss `softmax(K)` and an L2 penalty.
        w: (K, d) coefficients in the data's dtype. alpha: (n, K) float64 dual variables onehot(y) - softmax(X w^T).
        gap: upper bound of P(w) - D(alpha). primal: P(w). status, n_steps: int32, see `jb.Status`.
        target, weight: (n,) class numbers and sample weights. score: (n, K). score_abs: (n,) scale of its rounding.
        v, v_pad: (K, d) sum_i c_i alpha_ik x_ij, and a bound on its error. sigma_sq: bound of ||C^(1/2) X||_2^2.
        data: matrix, targets and weights. inputs, source: as in `Model`.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.softmax(3), jb.penalties.l2(0.1))
        >>> jb.fit(problem, np.eye(3), np.array([0, 1, 2])).labels(np.eye(3)).tolist()
        [0, 1, 2]
    """

    problem: Problem
    w: Array
    alpha: Array
    gap: Array
    primal: Array
    status: Array
    n_steps: Array
    target: Array
    weight: Array
    score: Array
    score_abs: Array
    v: Array
    v_pad: Array
    sigma_sq: Array
    data: Data
    row_terms: int = static(default=0)
    inputs: Any = None
    source: str | None = static(default=None)

    @property
    def classes(self) -> int:
        """K."""
        return self.w.shape[0]

    @in_float64
    def scores(self, X):
        """X w^T: (m, d) data to (m, K) float64."""
        matrix = rows_of(self, X, self.w.shape[1], on_host(self, X))
        if matrix.shape[1] != self.w.shape[1]:
            raise ValueError(f"X must have {self.w.shape[1]} columns like the training data, got {matrix.shape[1]}")
        w = to_host(self.w) if isinstance(matrix, HostMatrix) else self.w
        return put(products(matrix, w.astype(xp.float64)))

    @in_float64
    def labels(self, X):
        """The class with the largest score: (m,) int32."""
        return argmax(self.scores(X))

    def without_data(self) -> "MultinomialModel":
        """Raises ValueError: no softmax bound works without the training rows."""
        raise ValueError("bounds of a softmax model need its training data; keep them, as save(path, data=True) does")

    def bound(self, change: Change, method: Any = None):
        """See `jb.bound`; methods are `Cached()` and `Pass()`."""
        from jaxbounds.certificates.multinomial import bound_multinomial

        return bound_multinomial(self, change, method)

    def refit(self, change: Change, **options) -> "MultinomialModel":
        """See `jb.refit`."""
        from jaxbounds.certificates.multinomial import new_start

        change = read(self, change)
        w, problem, keep, columns = new_start(self, change)
        data = self.data
        X, y, weight = change.apply(data.matrix, np.asarray(data.target), np.asarray(data.weight))
        options.setdefault("warm_start", w)
        new = fit_multinomial(problem, X, y, sample_weight=np.asarray(weight) * keep, **options)
        return new if self.inputs is None else dataclasses.replace(new, inputs=put(self.inputs.kept(columns)))


def products(matrix: Matrix | HostMatrix, w):
    """X w^T: (n, K)."""
    return matrix.matvec(w.T) if isinstance(matrix, HostMatrix) else jax.vmap(matrix.matvec, 0, 1)(w)


def sums(matrix: Matrix | HostMatrix, t):
    """t^T X: (K, d)."""
    return matrix.rmatvec(t).T if isinstance(matrix, HostMatrix) else jax.vmap(matrix.rmatvec, 1, 0)(t)


def dual_with_pad(loss: Softmax, s, pad, y):
    """(t, bound on its error) where the scores are known up to `pad` (n,): softmax moves by e^(2 pad) at most."""
    b = loss.probabilities(s)
    away = xp.max(s, axis=1)[:, None] - s
    relative = up(2 * pad[:, None] + (2 * away + 2 * loss.classes + 16) * U)
    t = loss.one_hot(y) - b
    return t, xp.minimum(up(b * xp.expm1(relative)), 1.0) + U * xp.abs(t) + TINY


def check_multinomial(problem: Problem) -> None:
    """Raise, with the remedy, where there are no guarantees for the softmax loss."""
    penalty: Any = problem.penalty
    if not getattr(penalty, "quadratic", False):
        name = getattr(penalty, "name", type(penalty).__name__)
        raise ValueError(f"softmax needs an L2 penalty, and {name} is not; use jb.penalties.l2(lam)")
    if problem.intercept:
        raise ValueError(
            "softmax has no bounds with an unpenalised intercept; use intercept=False and append a column of ones to "
            "X, with a small lam of its own (l2 takes a vector) if it should hardly be penalised"
        )
    if problem.scale not in ("mean", "sum"):
        raise ValueError(f'scale must be "mean" or "sum", got {brief(problem.scale)}')


def metric(penalty: Any, d: int):
    """lam as a row (1, d)."""
    return lam_of(penalty, d)[None, :]


def metric_norm(g, lam):
    """Upper bound of ||g|| in the metric 1/lam."""
    return norm_up(xp.sum(g * g / lam), g.shape[0] * g.shape[1] + 4)


def dual_sums(loss: Softmax, matrix: Any, y, c, w):
    """(scores, scale of their rounding, t, V = sum_i c_i t_i x_i, bound on its error) at coefficients w (K, d)."""
    magnitude, terms = matrix.map(xp.abs), matrix.row_terms
    s = products(matrix, w)
    s_abs = up(xp.max(products(magnitude, xp.abs(w)), axis=1), terms)
    t, t_pad = dual_with_pad(loss, s, score_pad(s_abs, terms), y)
    weighted = c[:, None] * t
    v = sums(matrix, weighted)
    v_pad = growth(matrix.col_terms + 6) * sums(magnitude, xp.abs(weighted)) + sums(magnitude, c[:, None] * t_pad)
    return s, s_abs, t, v, up(v_pad, matrix.col_terms) + matrix.col_terms * TINY


def objective(loss: Softmax, y, c, lam, w, s):
    """P at coefficients w with scores s."""
    return xp.sum(c * loss.value(s, y)) + xp.sum(lam * w * w) / 2


def gradient(lam, w, v, v_pad):
    """(g = lam W - V, upper bounds of its norm and of its error's norm in the metric 1/lam)."""
    g = lam * w - v
    pad = v_pad + 4 * U * (xp.abs(lam * w) + xp.abs(v))
    return g, metric_norm(g, lam), metric_norm(pad, lam)


def _memory(problem: Problem, data: Data, w, status, n_steps) -> MultinomialModel:
    loss: Any = problem.loss
    matrix, y = data.matrix, data.target
    n, d = matrix.shape
    c, lam, exact = data.weight * problem.unit(n), metric(problem.penalty, d), w.astype(xp.float64)
    s, s_abs, t, v, v_pad = dual_sums(loss, matrix, y, c, exact)
    _, size, error = gradient(lam, exact, v, v_pad)
    return MultinomialModel(
        problem, w, t, up((size + error) ** 2 / 2), objective(loss, y, c, lam, exact, s), status, n_steps, y,
        data.weight, s, s_abs, v, v_pad, spectral_bound(matrix.map(xp.abs), c), data, row_terms=matrix.row_terms,
    )  # fmt: skip


_memory_jit = jax.jit(_memory)


def remember_multinomial(problem: Problem, data: Data, w, status=0, n_steps=0) -> MultinomialModel:
    """The model of any coefficients w (K, d)."""
    w, status = certain(problem.penalty, w, status)
    counts = xp.asarray(status, dtype=xp.int32), xp.asarray(n_steps, dtype=xp.int32)
    if not on_host(problem, data, w):
        return _memory_jit(problem, data, w, *counts)
    here = to_host(data)
    here = dataclasses.replace(here, matrix=host_matrix(data.matrix))
    model = _memory(to_host(problem), here, to_host(w), *map(np.asarray, counts))
    return put(dataclasses.replace(model, problem=problem, data=data))


_solve = functools.partial(jax.jit, static_argnames="loss")(newton_cg)


@in_float64
def fit_multinomial(
    problem: Problem, X, y, *, sample_weight=None, tol=1e-8, warm_start=None, max_steps=None, solver=None, callback=None
) -> MultinomialModel:
    """Train with the softmax loss by Newton's method until the relative duality gap is below tol; see `jb.fit`."""
    from jaxbounds.solvers.fit import _check_options, _check_parameters, _warn

    check_multinomial(problem)
    if solver is not None or callback is not None:
        raise ValueError("softmax is trained by its own Newton-CG; leave solver and callback out")
    loss: Any = problem.loss
    inputs, matrix = frame_inputs(X), as_matrix(X)
    n, d = matrix.shape
    y, weight = as_classes(y, n, loss.classes), as_sample_weight(sample_weight, n)
    _check_parameters(problem.penalty, d)
    concrete = not is_traced(problem, matrix, y, weight, warm_start, tol, max_steps)
    if concrete:
        _check_options(tol, max_steps, None)
    w0 = warm_start.w if isinstance(warm_start, MultinomialModel) else warm_start
    w0 = np.zeros((loss.classes, d)) if w0 is None else w0.astype(np.float64)
    if w0.shape != (loss.classes, d):
        raise ValueError(f"warm_start must have shape {(loss.classes, d)}, got {w0.shape}")
    data, w0 = put((Data(matrix, y, weight), w0))
    steps = 1000 if max_steps is None else max_steps
    tol, steps = put((np.float64(tol), np.int32(steps))) if concrete else (tol, steps)
    c, lam = data.weight * problem.unit(n), jnp.broadcast_to(problem.penalty.strong_convexity, (d,))
    w, status, n_steps = _solve(loss, data.matrix, data.target, c, lam, w0, tol, steps)
    model = remember_multinomial(problem, data, w.astype(matrix.dtype), status, n_steps)
    model = dataclasses.replace(model, inputs=inputs)
    if concrete:
        _warn(model, float(tol))  # type: ignore[arg-type]
    return model
