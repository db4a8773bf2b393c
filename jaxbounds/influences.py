"""How much each training row matters, as guaranteed intervals: `influence`, `rank_rows`."""

from typing import Any

import jax
import numpy as np

from jaxbounds.arguments import as_flag, as_whole
from jaxbounds.array import on_host, put, readable, xp
from jaxbounds.batches import each_row_removed
from jaxbounds.bounds import check_method, published
from jaxbounds.callbacks import on_the_host, own_functions
from jaxbounds.certificates.left_out_moves import moves_of_tests, without_one
from jaxbounds.certificates.row_changes import prepared
from jaxbounds.classes import not_a_model
from jaxbounds.host import HostMatrix, matrix_of
from jaxbounds.model import Model, score_pad
from jaxbounds.problem import as_targets
from jaxbounds.pytree import in_float64, is_traced, pytree
from jaxbounds.rounding import U, down, norm_down, norm_up, up
from jaxbounds.sweeps import bound_each
from jaxbounds.validation import loss_range

_WIDEST = 1024  # columns up to which distances are bounded coefficient by coefficient


@pytree
class Influence:
    """What leaving out one training row does to a test score.

    Attributes:
        rows: (r, m) int32, the training rows meant, test row by test row.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0), scale="sum")
        >>> model = jb.fit(problem, np.array([[1.0], [1.0], [2.0]]), np.array([1.0, 2.0, 2.0]), tol=1e-12)
        >>> found = jb.influence(model, np.array([[1.0]]))
        >>> found.rows.shape, round(float(found.scores.lower[1, 0]), 9)
        ((3, 1), -0.166666667)
    """

    rows: Any
    ends: Any  # (lower, upper), (r, m) each

    @property
    @published
    def scores(self):
        """Interval (r, m): x.w without the row, minus the stored model's x.w."""
        return readable(self.ends)

    @property
    @published
    def size(self):
        """Interval (r, m) of the absolute values."""
        lower, upper = readable(self.ends)
        return _absolute(lower, upper)


@pytree
class RowRanks:
    """Which rows matter most: rank 1 has the largest effect.

    Attributes:
        best, worst: (r,) int32, the least and the largest rank that each row can have.
        certain: (r,) bool, where both agree.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0), scale="sum")
        >>> model = jb.fit(problem, np.array([[1.0], [1.0], [2.0]]), np.array([1.0, 2.0, 3.0]), tol=1e-12)
        >>> ranks = jb.rank_rows(model)
        >>> ranks.best.tolist(), ranks.certain.tolist()
        ([3, 2, 1], [True, True, True])
    """

    ends: Any  # (lower, upper) of the effects
    best: Any
    worst: Any

    @property
    @published
    def effects(self):
        """Interval (r,) of the size of each row's effect."""
        return readable(self.ends)

    @property
    @in_float64
    def certain(self):
        """(r,) bool: whether the rank is known."""
        return self.best == self.worst


@in_float64
def influence(
    model: Model, X_test, rows=None, top: int | None = None, method: Any = None, keep_n: bool = False
) -> Influence:
    """Intervals for what leaving out each training row does to each test score, without retraining.

    For the row i and the test row x the interval holds x.w_i - x.w, w_i the optimum without row i and w the stored
    coefficients; for an inexact model this includes what is left of its own training. With the Hessian H' without row i
    at w and its gradient g, x.(w_i - w) is -x.H'^-1 g up to second order (logistic), exactly (squared, and piecewise
    quadratic losses where no row crosses a kink). Other losses and penalties get a half ball of the gradient, and
    problems with an intercept or without strong convexity `bound_each`. One factorisation, then O(1) a pair besides the
    products x.H^-1 x_i; rows that this leaves wide get a few Newton steps of their own as far as a second goes. Inside
    jit the computation is a callback to the host.

    Args:
        model: with its data.
        X_test: (m, d) data of any kind that `fit` takes.
        rows: (r,) integers, all rows by default.
        top: keep for each test row only the `top` rows with the largest lower ends of |effect|, the largest first,
            ties by the upper end; then r = top, and no (n, m) array is held. Where intervals overlap the true order
            may be another, and a row that is left out may have a larger effect than one that is kept: it certainly
            has not where its upper end is below that one's lower end. `rank_rows` says which ranks are certain.
        method: a certificate for `bound_each` instead of the closed form.
        keep_n: as in `remove_rows`.

    Returns:
        Influence.

    Raises:
        ValueError: a row is out of range, X_test or `top` does not fit, the model has no data. TypeError: an argument
            has the wrong kind.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1))
        >>> model = jb.fit(problem, np.eye(3), np.array([1, -1, 1]), tol=1e-12)
        >>> found = jb.influence(model, np.eye(3), top=1)
        >>> found.rows.tolist()
        [[0, 1, 2]]

    Source: Koh and Liang 2017 (influence functions), with certificates: Sherman-Morrison and self-concordance.
    """
    change, rows = _left_out(model, rows, keep_n)
    matrix = _test_rows(model, X_test)
    r, m = change.rows.shape[0], matrix.shape[0]
    top = None if top is None else as_whole(top, "top", 1, r, none="for all rows")
    if method is not None or not _closed(model, matrix):
        method = method if method is None else check_method(method, model.problem, change)
        lower, upper = _asked(model, change, matrix, method)
        return put(_kept(lower, upper, rows, top))
    size = r if top is None else int(top)
    shapes = jax.ShapeDtypeStruct((size, m), np.int32), *2 * [jax.ShapeDtypeStruct((size, m), np.float64)]

    def compute(both, matrix):
        model, rows = both
        case, tests = prepared(model, matrix, keep_n)
        found = [np.empty(shape.shape, shape.dtype) for shape in shapes]
        for block, lower, upper in moves_of_tests(without_one(case), tests, rows):
            kept = _kept(lower.T[rows], upper.T[rows], rows, top)
            found[0][:, block], found[1][:, block], found[2][:, block] = kept.rows, *kept.ends
        return tuple(found)

    numbers, lower, upper = put(on_the_host(compute, shapes, (model, rows), matrix))
    return Influence(numbers, (lower, upper))


@in_float64
def rank_rows(
    model: Model, X_test=None, y_test=None, rows=None, method: Any = None, keep_n: bool = False
) -> RowRanks:
    """Ranks of the training rows by the size of what leaving each out does, with the ranks that are possible.

    The effect of a row is the distance ||w_i - w|| of the coefficients (no X_test), the mean over the test rows of
    |x.w_i - x.w| (X_test alone), or the absolute change of the mean test loss (both). Row i has at least as many rows
    before it as effects lie certainly above its interval, at most as many as may: O(r log r) by sorting the ends.

    Args:
        model: with its data.
        X_test: (m, d) data, or None. y_test: (m,) targets, or None.
        rows: (r,) integers, all rows by default; only these are ranked.
        method, keep_n: as in `influence`.

    Returns:
        RowRanks.

    Raises:
        ValueError, TypeError: as in `influence`; or y_test does not fit.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0))
        >>> model = jb.fit(problem, np.eye(3), np.array([1.0, 2.0, 3.0]), tol=1e-12)
        >>> jb.rank_rows(model, np.eye(3), np.ones(3)).best.shape
        (3,)

    Source: the intervals of `influence`.
    """
    if X_test is None:
        if y_test is not None:
            raise ValueError("y_test needs the test rows X_test it belongs to")
        lower, upper = _distances(model, rows, method, keep_n)
    else:
        found = influence(model, X_test, rows, method=method, keep_n=keep_n)
        if y_test is None:
            lower, upper = _means(*_absolute(*readable(found.ends)))
        else:
            matrix = _test_rows(model, X_test)
            y = as_targets(model.problem.loss, y_test, matrix.shape[0], "y_test")
            lower, upper = _absolute(*_loss_changes(model, matrix, y, *readable(found.ends)))
    best, worst = _ranks(lower, upper)
    return put(RowRanks((lower, upper), best, worst))


def _left_out(model: Model, rows, keep_n: bool) -> tuple[Any, Any]:
    """(one change a row, the rows)."""
    if not isinstance(model, Model):
        raise TypeError(not_a_model(model))
    as_flag(keep_n, "keep_n")
    if model.data is None:
        raise ValueError("influence and rank_rows need the training rows; this model was stored without its data: use "
                         "the one of fit")  # fmt: skip
    if model.alpha.shape[0] < 2:
        raise ValueError("the model has a single row: nothing is left without it")
    change: Any = each_row_removed(model, rows, keep_n)
    numbers = readable(change.rows)[:, 0]
    return change, numbers


def _test_rows(model: Model, X_test) -> Any:
    return model.rows_like(X_test, on_host(model, X_test), "X_test")


def _closed(model: Model, other) -> bool:
    """Whether any_rows.py covers the problem; its callback must not call a user's function."""
    problem = model.problem
    if own_functions(problem) and is_traced(model, other):
        return False
    smooth = problem.loss.smoothness is not None
    strong = problem.penalty.strong_convexity is not None
    return not problem.intercept and strong and (smooth or problem.penalty.quadratic)


def _asked(model: Model, change, matrix, method):
    """(lower, upper), (r, m) each, from `bound_each`."""
    scores: Any = bound_each(model, change, matrix, method).at_matrix
    old, pad = _stored(model, matrix)
    lower, upper = (end - old[None, :] for end in readable(scores))
    pad = pad[None, :] + 2 * U * (xp.abs(lower) + xp.abs(upper))
    return lower - pad, upper + pad


def _stored(model: Model, matrix):
    """The stored model's scores and bounds on their errors."""
    w, b = readable((model.w, model.intercept)) if isinstance(matrix, HostMatrix) else (model.w, model.intercept)
    w = w.astype(xp.float64)
    size = up(matrix.map(xp.abs).matvec(xp.abs(w)) + xp.abs(b), matrix.row_terms + 1)
    return matrix.matvec(w) + b, score_pad(size, matrix.row_terms + 1)


def _kept(lower, upper, rows, top) -> Influence:
    """All pairs, or for each test row those whose effect is certainly largest; the farther end breaks ties."""
    numbers = xp.broadcast_to(rows[:, None], lower.shape).astype(xp.int32)
    if top is None:
        return Influence(numbers, (lower, upper))
    near, far = _absolute(lower, upper)
    order = xp.lexsort((-far, -near), axis=0)[:top]
    return Influence(*(
        xp.take_along_axis(numbers, order, axis=0),
        tuple(xp.take_along_axis(end, order, axis=0) for end in (lower, upper)),
    ))  # fmt: skip


def _absolute(lower, upper):
    """The interval of |x| for x in [lower, upper]."""
    return xp.maximum(xp.maximum(lower, -upper), 0.0), xp.maximum(xp.abs(lower), xp.abs(upper))


def _means(lower, upper):
    """The mean over the test rows, of non-negative intervals."""
    m = lower.shape[1]
    low, high = xp.sum(lower, axis=1) / m, xp.sum(upper, axis=1) / m
    return down(low, m + 4), up(high, m + 4)


def _loss_changes(model: Model, matrix, y, lower, upper):
    """The interval of the change of the mean test loss, (r,) each."""
    loss, m = readable(model.problem.loss), y.shape[0]
    old, pad = _stored(model, matrix)
    low, high = old[None, :] + lower, old[None, :] + upper
    wide = pad[None, :] + 2 * U * (xp.abs(low) + xp.abs(high))
    least, most = loss_range(loss, low - wide, high + wide, xp.broadcast_to(y, low.shape))
    old_least, old_most = loss_range(loss, old - pad, old + pad, y)
    low, high = least - old_most[None, :], most - old_least[None, :]
    slack = 2 * U * m * (xp.abs(low) + xp.abs(high))
    return xp.sum(low - slack, axis=1) / m, xp.sum(high + slack, axis=1) / m


def _distances(model: Model, rows, method, keep_n: bool):
    """The interval of ||w_i - w||, from `bound_each` and, coefficient by coefficient, from the closed form."""
    change, rows = _left_out(model, rows, keep_n)
    lower, upper = bound_each(model, change, method=method).moved
    lower, upper = readable((lower, upper))
    d = model.w.shape[0]
    if method is not None or not _closed(model, rows) or d > _WIDEST:
        return lower, upper
    shape = jax.ShapeDtypeStruct(rows.shape, np.float64)

    def compute(both, units):
        model, rows = both
        case, units = prepared(model, units, keep_n)
        near, far = np.zeros(rows.shape), np.zeros(rows.shape)
        for _, *ends in moves_of_tests(without_one(case), units, rows):
            low, high = _absolute(*ends)
            near, far = near + np.sum(low[:, rows] ** 2, axis=0), far + np.sum(high[:, rows] ** 2, axis=0)
        return norm_down(near, d + 4), norm_up(far, d + 4)

    units = matrix_of(np.eye(d), on_host(model, rows), "units")
    low, high = on_the_host(compute, (shape, shape), (model, rows), units)
    return xp.fmax(lower, low), xp.fmin(upper, high)


def _ranks(lower, upper):
    """(best, worst) rank of each entry, 1 the largest: who is certainly above it, and who may be."""
    r = lower.shape[0]
    lower, upper = xp.where(xp.isnan(lower), -xp.inf, lower), xp.where(xp.isnan(upper), xp.inf, upper)
    above = r - xp.searchsorted(xp.sort(lower), upper, side="right")
    maybe = r - xp.searchsorted(xp.sort(upper), lower, side="left") - 1  # not the row itself
    return (1 + above).astype(xp.int32), (1 + maybe).astype(xp.int32)
