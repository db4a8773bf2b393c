"""Predictions that no choice of k training rows can change: `worst_case_removal`, `worst_case_relabel`."""

from typing import Any

import jax
import numpy as np

from jaxbounds.arguments import as_flag
from jaxbounds.array import on_host, put, readable, xp
from jaxbounds.bounds import labels_of, published
from jaxbounds.callbacks import on_the_host, refuse_own_functions
from jaxbounds.certificates.any_rows import factors, metrics_of, moves
from jaxbounds.certificates.metrics import blocks_of_tests
from jaxbounds.certificates.row_changes import prepared, stored_scores
from jaxbounds.classes import not_a_model
from jaxbounds.messages import brief
from jaxbounds.model import Model
from jaxbounds.pytree import in_float64, is_traced, pytree


@pytree
class WorstCase:
    """What every model retrained after a change of at most k rows has in common, for k = 1, ..., K.

    `labels` (K, m) are certified; `largest` (m,) is the largest k <= K up to which each label is certain.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0))
        >>> model = jb.fit(problem, np.ones((8, 1)), np.ones(8))
        >>> found = jb.worst_case_removals(model, np.array([[1.0]]), 3)
        >>> found.labels.tolist(), found.largest.tolist()
        ([[1], [1], [1]], [3])
    """

    ends: Any  # (lower, upper), (K, m) each

    @property
    @published
    def scores(self):
        """Interval (K, m): every score x.w_S + b_S, for all sets S of at most k rows."""
        return readable(self.ends)

    @property
    @in_float64
    def labels(self):
        """(K, m) int32: +1, -1, or 0 where some choice of k rows might change the label."""
        return labels_of(*self.ends)

    @property
    @in_float64
    def largest(self):
        """(m,) int32: the largest k up to which the label is certain, 0 if it is not even for one row."""
        lower, upper = self.ends
        certain = (lower > 0) | (upper < 0)
        k = xp.arange(1, lower.shape[0] + 1)[:, None]
        return put(xp.max(xp.where(certain, k, 0), axis=0).astype(xp.int32))  # at most k rows: no smaller k is worse


def worst_case_removal(model: Model, k: int, X_test, *, keep_n: bool = False):
    """Labels that every model retrained without at most k rows gives, whichever rows they are.

    For k = 1, ..., K at once `worst_case_removals(model, X_test, K)`, whose arguments are in another order.

    With g_S the gradient of the new objective at the stored w and a H^-1 <= K_S^-1 <= b H^-1 for its mean Hessian K_S,
    x.w_S lies within (b-a)/2 ||x|| ||g_S|| of x.w - (a+b)/2 x.H^-1 g_S (norms of H^-1), and what the rows of S add is
    at most the sum of the k largest terms. H is the penalty (a >= 0, b = 1), and for smooth losses with L2 also the
    Hessian at w, which is far tighter while k is small. Costs O(n) a test row besides the products of test rows with
    training rows. Inside jit the computation is a callback to the host.

    With an intercept the scores are x.w_S + b_S. The Hessian's metric then has b as one more coordinate; in that of the
    penalty the rows are centred, and b_S lies between the roots of the most and the least that the sum of the slopes
    can be. Where some set of k rows leaves one class only, no intercept is finite and no label is certain.

    Args:
        model: with its data; inexact training only weakens the answer.
        k: number of rows, 1 <= k < n.
        X_test: (m, d) data of any kind that `fit` takes.
        keep_n: as in `remove_rows`: whether the mean still divides by n.

    Returns:
        (m,) int32: +1, -1, or 0 where some set of k rows might change the label.

    Raises:
        ValueError: k is out of range, X_test does not fit, the model has no data, or the penalty is not strongly
            convex. TypeError: an argument has the wrong kind.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0))
        >>> model = jb.fit(problem, np.ones((8, 1)), np.ones(8))
        >>> jb.worst_case_removal(model, 3, np.array([[1.0], [-1.0], [0.0]])).tolist()
        [1, -1, 0]

    Source: section 5 of the library's theory; pointwise robustness to poisoning as in Rosenfeld et al. 2020.
    """
    k = count(model, k, "k", "worst_case_removal(model, k, X_test)")
    return labels_of(*_ends(model, X_test, (k,), keep_n, False, "worst_case_removal"))[0]


def worst_case_relabel(model: Model, k: int, X_test):
    """Labels that every model retrained after at most k training labels were flipped gives, whichever they are.

    As `worst_case_removal`; a flipped row adds sw_i (l'(s_i, -y_i) - l'(s_i, y_i)) x_i to the gradient. For
    k = 1, ..., K at once `worst_case_relabels(model, X_test, K)`, whose arguments are in another order.

    Args:
        model: a classifier with a smooth margin loss, with its data.
        k: number of labels, 1 <= k < n.
        X_test: (m, d) data.

    Returns:
        (m,) int32: +1, -1, or 0 where some choice of k labels might change the prediction.

    Raises:
        ValueError, TypeError: as in `worst_case_removal`; or the loss has no labels, or is not smooth.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(1.0))
        >>> model = jb.fit(problem, np.ones((20, 1)), np.ones(20))
        >>> jb.worst_case_relabel(model, 3, np.array([[1.0], [-1.0]])).tolist()
        [1, -1]

    Source: section 5 of the library's theory; certified robustness to label flips, Rosenfeld et al. 2020.
    """
    k = count(model, k, "k", "worst_case_relabel(model, k, X_test)")
    return labels_of(*_ends(model, X_test, (k,), True, True, "worst_case_relabel"))[0]


def worst_case_removals(model: Model, X_test, K: int, *, keep_n: bool = False) -> WorstCase:
    """`worst_case_removal(model, k, X_test)` for k = 1, ..., K in one pass, with the scores' intervals.

    Args:
        model, X_test, keep_n: as in `worst_case_removal`. K: the largest number of rows, 1 <= K < n.

    Returns:
        WorstCase.

    Raises:
        ValueError, TypeError: as in `worst_case_removal`.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0))
        >>> model = jb.fit(problem, np.ones((8, 1)), np.ones(8))
        >>> jb.worst_case_removals(model, np.array([[1.0]]), 3).scores.lower.shape
        (3, 1)

    Source: section 5 of the library's theory.
    """
    ks = tuple(range(1, count(model, K, "K", "worst_case_removals(model, X_test, K)") + 1))
    return WorstCase(_ends(model, X_test, ks, keep_n, False, "worst_case_removals"))


def worst_case_relabels(model: Model, X_test, K: int) -> WorstCase:
    """`worst_case_relabel(model, k, X_test)` for k = 1, ..., K in one pass, with the scores' intervals.

    Args:
        model, X_test: as in `worst_case_relabel`. K: the largest number of labels, 1 <= K < n.

    Returns:
        WorstCase.

    Raises:
        ValueError, TypeError: as in `worst_case_relabel`.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(1.0))
        >>> model = jb.fit(problem, np.ones((20, 1)), np.ones(20))
        >>> jb.worst_case_relabels(model, np.array([[1.0]]), 3).largest.tolist()
        [3]

    Source: section 5 of the library's theory.
    """
    ks = tuple(range(1, count(model, K, "K", "worst_case_relabels(model, X_test, K)") + 1))
    return WorstCase(_ends(model, X_test, ks, True, True, "worst_case_relabels"))


def largest_certified_removal(model: Model, X_test, *, keep_n: bool = False):
    """For each test row the largest k found such that no removal of k rows can change its label.

    Doubling, then bisection: about 2 log2(k) times the cost of one `worst_case_removal`.

    Args:
        model, X_test, keep_n: as in `worst_case_removal`.

    Returns:
        (m,) int32; 0 where the label is not certain even for one row.

    Raises:
        ValueError, TypeError: as in `worst_case_removal`.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0), scale="sum")
        >>> model = jb.fit(problem, np.ones((8, 1)), np.ones(8))
        >>> int(jb.largest_certified_removal(model, np.array([[1.0]]))[0]) >= 3
        True

    Source: section 5 of the library's theory.
    """
    return _largest(model, X_test, keep_n, False, "largest_certified_removal")


def largest_certified_relabel(model: Model, X_test):
    """For each test row the largest k found such that no flip of k training labels can change its label.

    Args:
        model, X_test: as in `worst_case_relabel`.

    Returns:
        (m,) int32; 0 where the label is not certain even for one flip.

    Raises:
        ValueError, TypeError: as in `worst_case_relabel`.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(1.0))
        >>> model = jb.fit(problem, np.ones((20, 1)), np.ones(20))
        >>> int(jb.largest_certified_relabel(model, np.array([[1.0]]))[0]) >= 3
        True

    Source: section 5 of the library's theory.
    """
    return _largest(model, X_test, True, True, "largest_certified_relabel")


@in_float64
def _ends(model: Model, X_test, ks: tuple, keep_n: bool, relabel: bool, name: str):
    """(lower, upper), (len(ks), m) each, of the scores."""
    matrix = checked(model, X_test, keep_n, relabel, name)
    shape = jax.ShapeDtypeStruct((len(ks), matrix.shape[0]), np.float64)

    def compute(model, matrix):
        case, tests = prepared(model, matrix, keep_n, relabel)
        lower, upper = (np.empty(shape.shape) for _ in range(2))
        for part in blocks_of_tests(case, matrix.shape[0]):
            lower[:, part], upper[:, part] = _scores(case, tests[part], ks)
        return lower, upper

    return on_the_host(compute, (shape, shape), model, matrix)


@in_float64
def _largest(model: Model, X_test, keep_n: bool, relabel: bool, name: str):
    matrix = checked(model, X_test, keep_n, relabel, name)
    most = model.alpha.shape[0] - 1
    shape = jax.ShapeDtypeStruct((matrix.shape[0],), np.int32)

    def compute(model, matrix):
        case, tests = prepared(model, matrix, keep_n, relabel)
        found = np.zeros(shape.shape, np.int32)
        for part in blocks_of_tests(case, matrix.shape[0]):
            found[part] = _search(case, tests[part], most)
        return (found,)

    return put(on_the_host(compute, (shape,), model, matrix)[0])


def _scores(case, tests, ks):
    """(lower, upper) of x.w_S, the intersection over the metrics; NaN tells nothing."""
    score, pad = stored_scores(case, tests)
    whole = slice(0, tests.shape[0])
    lower, upper = (np.full((len(ks), whole.stop), end) for end in (-np.inf, np.inf))
    metrics = metrics_of(case, tests)
    for metric, ends in zip(metrics, zip(*(factors(case, metrics, k) for k in ks), strict=True), strict=True):
        low, high = moves(case, metric, whole, ks, ends)
        lower, upper = np.fmax(lower, score + low - pad), np.fmin(upper, score + high + pad)
    slack = 2 * np.spacing(np.maximum(np.abs(lower), np.abs(upper)))
    return np.fmax(lower - slack, -np.inf), np.fmin(upper + slack, np.inf)


def _search(case, tests, most: int):
    """The largest certified k of each test row: double until none is left, then bisect."""
    score, pad = stored_scores(case, tests)
    metrics = metrics_of(case, tests)
    known: dict = {}

    def certain(k: int, at):
        """Whether the labels of the test rows `at` are certain for all sets of at most k rows."""
        result = np.zeros(at.size, bool)
        if k not in known:
            known[k] = factors(case, metrics, k)
        for metric, ends in zip(metrics, known[k], strict=True):
            low, high = moves(case, metric, at, (k,), [ends])
            result |= (score[at] + low[0] - pad[at] > 0) | (score[at] + high[0] + pad[at] < 0)
        return result

    low, high = np.zeros(score.size, int), np.full(score.size, most + 1)
    k, at = 1, np.arange(score.size)
    while at.size and k <= most:
        fine = certain(k, at)
        low[at[fine]], high[at[~fine]] = k, k
        at, k = at[fine], 2 * k
    while np.any(high - low > 1):
        middle = (low + high) // 2
        for k in np.unique(middle[high - low > 1]):
            at = np.flatnonzero((middle == k) & (high - low > 1))
            fine = certain(int(k), at)
            low[at[fine]], high[at[~fine]] = k, k
    return low


def checked(model: Any, X_test, keep_n: bool, relabel: bool, name: str) -> Any:
    """The test rows; raises where no guarantee can be given."""
    if not isinstance(model, Model):
        raise TypeError(not_a_model(model))
    as_flag(keep_n, "keep_n")
    problem = model.problem
    if problem.penalty.strong_convexity is None:
        raise ValueError(
            f"{name} needs a strongly convex penalty (property B), and {problem.penalty.name} is not; add an L2 part "
            "(elastic_net)"
        )
    if problem.loss.smoothness is None and not problem.penalty.quadratic:
        raise ValueError(
            f"{name} needs a smooth loss or the penalty l2: with {problem.loss.name} and {problem.penalty.name} the "
            "coefficients that a dual point suggests are not linear in the rows; use a smoothed loss"
        )
    if problem.loss.smoothness is None and problem.intercept:
        raise ValueError(
            f"{name} with intercept=True needs a smooth loss (property A), and {problem.loss.name} is not; use a "
            "smoothed one, or intercept=False and a column of ones in X (a penalised intercept)"
        )
    if relabel and not problem.loss.classification:
        other = name.replace("relabel", "removal")
        raise ValueError(f"{name} flips labels, and {problem.loss.name} has none; use {other}")
    if relabel and problem.loss.smoothness is None:
        raise ValueError(f"{name} needs a smooth loss (property A), and {problem.loss.name} is not; use a smoothed one")
    factors = None if model.inputs is None else model.inputs.class_weights
    if relabel and factors is not None and (is_traced(factors) or np.ptp(np.asarray(factors)) != 0):
        raise ValueError(f"{name} keeps the weight of every row, and with class_weight a flipped label would bring "
                         "that of its new class; fit without class_weight, or bound changes one by one")  # fmt: skip
    if model.data is None:
        raise ValueError(f"{name} needs the training rows; this model was stored without its data: use the one of fit")
    matrix = model.rows_like(X_test, on_host(model, X_test), "X_test")
    refuse_own_functions(problem, name, model, matrix)  # inside jit a constant X_test is traced too
    return matrix


def count(model: Any, k, name: str, order: str) -> int:
    """k, checked; order: how the caller's arguments are written, for those who swapped them."""
    if not isinstance(model, Model):
        raise TypeError(not_a_model(model))
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise TypeError(f"{name} must be a whole number (static under jit), got {brief(k)}; the order is {order}")
    n = model.alpha.shape[0]
    if not 1 <= k < n:
        raise ValueError(f"{name} = {k} must lie between 1 and {n - 1}: at least one of the {n} rows stays")
    return int(k)
