"""Predictions of models retrained without a row or a fold, with guarantees: `leave_one_out`, `cross_validate`."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from jaxbounds.arguments import as_flag, check_callback, refuse_labels
from jaxbounds.array import is_spread, on_host, put, to_host, whole, xp
from jaxbounds.bounds import Interval, check_method, published
from jaxbounds.callbacks import inside_trace, refuse_own_functions
from jaxbounds.certificates import Cached, Method
from jaxbounds.certificates.removed import ball_applies
from jaxbounds.changes import check_distinct, check_index, remove_rows
from jaxbounds.classes import not_a_model
from jaxbounds.kinds import check_range
from jaxbounds.left_out_scores import HOW, IsOpen, fold_scores, label_open, row_scores
from jaxbounds.messages import brief
from jaxbounds.model import Model
from jaxbounds.pytree import in_float64, is_traced, is_wide, pytree
from jaxbounds.rounding import TINY, U, growth
from jaxbounds.validation import loss_range


@pytree
class LeaveOneOut:
    """What the models retrained without one row say of that row, certified.

    Attributes:
        rows: (m,) the rows.
        scores: Interval (m,) for x_i.w + b of the model retrained without row i.
        loss: Interval for the mean of l(x_i.w + b, y_i) over these rows, not weighted; of `squared`, whose l is
            (s - y)^2/2, half the mean squared error.
        errors: Interval of two int32: how many of these rows get a score of the wrong sign; None for regression.
            The share of mistakes lies between errors.lower / m and errors.upper / m.
        labels: (m,) int32 certified predictions +1, -1, or 0 where the interval holds 0; None for regression.
        correct: (m,) int32: +1 the prediction is certainly y_i, -1 certainly not, 0 undecided; None for regression.
        undecided: (m,) bool mask: whether the prediction is right is not certain; all False for regression. The rows
            themselves are rows[undecided], which is what `LabelErrors.undecided` holds.
        how: (m,) int8 what decided, or spoke last of, each row: an index into `jaxbounds.left_out_scores.HOW`.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.smoothed_hinge(0.5), jb.penalties.l2(0.1))
        >>> left_out = jb.leave_one_out(jb.fit(problem, np.eye(3), np.array([1, -1, 1])))
        >>> left_out.used(), left_out.undecided.tolist()
        ({'exact': 3}, [True, True, True])
    """

    rows: Any
    scores: Any
    loss: Any
    errors: Any
    labels: Any
    correct: Any
    undecided: Any
    how: Any

    def used(self) -> dict[str, int]:
        """How many rows each method answered (host only)."""
        counts = np.bincount(np.asarray(self.how), minlength=len(HOW))
        return {name: int(count) for name, count in zip(HOW, counts, strict=True) if count}


@pytree
class CrossValidation(LeaveOneOut):
    """What the models retrained without one fold say of the fold's rows, certified; fields as in `LeaveOneOut`.

    Attributes:
        fold: (m,) the fold of each row of `rows`, the one that its score is retrained without.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> model = jb.fit(jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1)), np.eye(4), np.array([1, 1, -1, 1]))
        >>> jb.cross_validate(model, 2).fold.tolist()
        [0, 1, 0, 1]
    """

    fold: Any


def leave_one_out(
    model: Model,
    method: Method | None = None,
    rows=None,
    *,
    keep_n: bool = False,
    resolve: bool | float = False,
    callback: Callable | None = None,
) -> LeaveOneOut:
    """The score of each row in the model retrained without that row, without retraining.

    By default in closed form where there is one (logistic, squared and piecewise quadratic losses with an L2 penalty;
    one factorisation for all rows; sparse data only while that is cheap), else by the mid ball. That costs O(1) a row
    under L2, O(log n) with an intercept, O(d) for other penalties in mean scale. Rows of which it says little with an
    intercept get products with the data of their own, if they are few. `used()` says which it was. Losses of your own
    (`from_margin`, `from_score`) have no closed form and get the wider `Cached` alone, unless you ask for `Pass()`,
    `Curvature()` or `resolve`. Inside jit it runs as a callback to the host.

    `Curvature()` and `resolve` may take seconds to minutes: `callback=jb.progress()` draws a bar. Few rows are open
    after the default, so that `resolve=True` is mostly much quicker than `Curvature()` for each of them.

    Args:
        model: from `fit`; inexact training only widens the intervals.
        method: `Cached()`, `Partial()`, `Pass()` (batched over rows: blocks of them share the products with the data),
            `Curvature()`, or None to choose.
        rows: (m,) integers, all rows by default.
        keep_n: as in `remove_rows`.
        resolve: True settles rows whose label is open, by `Pass`, `Curvature` and at last by retraining without them
            (host only); a number also rows whose interval is wider than that, which is the way to values, and the
            only one for regression. What stays open is beyond float64.
        callback: called with a dict of `method`, `done`, `total` as rows are done; return True to stop, which leaves
            the other rows as they are (host only).

    Returns:
        LeaveOneOut.

    Raises:
        TypeError: an argument has the wrong kind. ValueError: a row is out of range or repeated, the method does not
        apply, the model has only one row, or lacks the data that the method needs.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> X = np.array([[1.0], [1.0], [2.0]])
        >>> model = jb.fit(jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0), scale="sum"), X, np.array([1.0, 2, 2]))
        >>> jb.leave_one_out(model).scores.upper.round(6).tolist()
        [1.0, 0.833333, 2.0]

    Source: Hanada et al. 2016, section 5 (leave-one-out); Rad and Maleki 2020 for the closed form.
    """
    rows, method = checked(model, method, rows, keep_n, resolve, callback)
    if is_spread(model.rows.score):
        model, method = _by_ball(model, method, resolve)
    is_open = settled(resolve, label_open if model.problem.loss.classification else None)
    return LeaveOneOut(**_judged(model, rows, *row_scores(model, rows, method, keep_n, is_open, callback)))


def cross_validate(
    model: Model,
    folds,
    method: Method | None = None,
    *,
    keep_n: bool = False,
    resolve: bool | float = False,
    callback: Callable | None = None,
) -> CrossValidation:
    """The score of each row in the model retrained without that row's fold, without retraining.

    Args:
        model: from `fit`, with its data.
        folds: k for k folds with row i in fold i mod k; a sequence of arrays of rows, no row twice; or (n,) integers,
            the fold of each row, -1 for none.
        method: as in `bound`, `Cached()` by default.
        keep_n: as in `remove_rows`.
        resolve: settle rows whose label is open by `Pass`, `Curvature` and at last by retraining without their fold
            (host only); a number: also rows whose interval is wider than that.
        callback: called with a dict of `method`, `done`, `total` as rows are done; return True to stop, which leaves
            the other rows as they are (host only).

    Returns:
        CrossValidation, its rows in ascending order.

    Raises:
        TypeError: an argument has the wrong kind. ValueError: a row is out of range or in two folds, a fold is empty or
        holds all rows, the method does not apply, or the model has no data.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> X, y = np.array([[1.0], [1.0], [2.0], [-2.0]]), np.array([1, 1, 1, -1])
        >>> model = jb.fit(jb.Problem(jb.losses.logistic(), jb.penalties.l2(1.0)), X, y)
        >>> jb.cross_validate(model, 2, jb.Curvature()).correct.tolist()
        [1, 1, 1, 1]
    """
    _, method = checked(model, method, None, keep_n, resolve, callback)
    if model.data is None:
        raise ValueError("cross_validate needs a model with its data")
    rows, fold = _folds(folds, model.alpha.shape[0])
    is_open = settled(resolve, label_open if model.problem.loss.classification else None)
    ends = fold_scores(model, rows, fold, Cached() if method is None else method, keep_n, is_open, callback)
    return CrossValidation(**_judged(model, rows, *ends), fold=put(fold))


@published
def interval_of(*ends):
    """An Interval in the caller's precision."""
    return ends


@in_float64
def _by_ball(model: Model, method: Method | None, resolve: bool | float) -> tuple[Model, Method]:
    """The model on the host but for its data, which lie on several devices and are not needed by the mid ball."""
    if resolve or not isinstance(method, Cached | None) or not ball_applies(model):
        raise ValueError("the data lie on several devices, where rows are left out by Cached() alone, under L2 with "
                         "one lam and without an intercept; bring them to one device for more")  # fmt: skip
    return put(whole(replace(model, data=None, factor=None))), Cached()


def settled(resolve: bool | float, is_open: IsOpen | None) -> IsOpen | None:
    """Which intervals are to be settled: none, those that leave a question open, or also those above a width."""
    if isinstance(resolve, bool | np.bool_):
        return is_open if resolve else None
    if is_open is None:
        return lambda lower, upper, rows: upper - lower > resolve
    return lambda lower, upper, rows: is_open(lower, upper, rows) | (upper - lower > resolve)


def _judged(model: Model, rows, lower, upper, how) -> dict[str, Any]:
    """The fields of LeaveOneOut."""
    classification = model.problem.loss.classification
    loss, labels, correct = _facts(model, rows, lower, upper)
    errors, undecided = None, xp.zeros_like(how) > 0
    if classification:
        undecided = correct == 0
        errors = _counts(*(xp.sum(mask).astype(np.int32) for mask in (correct < 0, correct <= 0)))
    known = {"rows": rows, "labels": labels, "correct": correct, "undecided": undecided, "how": how}
    return put(known) | {"scores": interval_of(lower, upper), "loss": interval_of(*loss), "errors": errors}


def _counts(lower, upper) -> Interval:
    """An Interval of whole numbers, which every precision holds: not rounded, as `interval_of` would."""
    if is_wide() or is_traced(lower, upper):
        return put(Interval(lower, upper))
    return Interval(np.asarray(lower), np.asarray(upper))


@in_float64
def _facts(model: Model, rows, lower, upper) -> Any:
    """((least, largest) mean loss, certain labels, whether they are right: +1, -1, or 0)."""
    loss, y = model.problem.loss, model.rows.target
    loss, y = (to_host(loss), np.asarray(y)[rows]) if on_host(model) else (loss, y[rows])
    # a user's values may cancel: they keep the allowances of loss_range, which look at both ends
    own = loss.classification and not loss.defined_by_ref and on_host(model, lower, upper)
    falls = own and bool(np.all(loss.domain(y)[0] >= 0))
    low, high = (_range_of_falling if falls else loss_range)(loss, lower, upper, y)
    mean = _mean(low, -1.0), _mean(high, 1.0)
    if not loss.classification:
        return mean, None, None
    labels = xp.where(lower > 0, 1, xp.where(upper < 0, -1, 0)).astype(np.int32)
    return mean, labels, labels * y.astype(np.int32)


def _range_of_falling(loss, lower, upper, y):
    """`loss_range` of a loss of the margin that never rises (alpha >= 0): its values at the ends."""
    least, most = loss.value(np.where(y > 0, upper, -lower), y), loss.value(np.where(y > 0, lower, -upper), y)
    least, floor = least - 64 * U * np.abs(least) - TINY, 0.0 if loss.nonnegative else -np.inf
    most = most + 64 * U * np.abs(most) + TINY
    return np.where(least > floor, least, floor), np.where(np.isnan(most), np.inf, most)


def _mean(values, direction: float):
    """The mean, moved in one direction by more than its rounding."""
    count = values.shape[0]
    size = xp.sum(xp.where(xp.isfinite(values), xp.abs(values), 0.0))
    return (xp.sum(values) + direction * (growth(count + 16) * size + TINY)) / count


# ---------------------------------------------------------------- arguments


@in_float64
def checked(model, method, rows, keep_n: bool, resolve: bool | float, callback) -> tuple[np.ndarray, Method | None]:
    """Checked rows and method."""
    if not isinstance(model, Model):
        raise TypeError(not_a_model(model))
    if is_traced(rows):
        raise TypeError("rows must be known outside jit: close over them, or take all rows")
    n = model.alpha.shape[0]
    if n < 2:
        raise ValueError("the model has one row: no row is left without it")
    if method is not None:
        check_method(method, model.problem, remove_rows([0]))
    as_flag(keep_n, "keep_n")
    if not isinstance(resolve, bool | np.bool_ | int | float | np.integer | np.floating):
        raise TypeError(f"resolve must be True, False or a width of intervals, got {brief(resolve)}")
    if not isinstance(resolve, bool | np.bool_) and not 0 < resolve < np.inf:
        raise ValueError(f"resolve = {brief(resolve)} must be positive: the width that an interval may keep")
    check_callback(callback)
    if (is_traced(model) or inside_trace()) and (resolve or callback is not None):
        raise TypeError("resolve and callback retrain or report on the host; leave them out inside jit")
    refuse_own_functions(model.problem, "leaving rows out", model)
    if resolve and model.data is None:
        raise ValueError("resolve retrains, which needs the data, and this model was stored without it")
    if rows is None:
        return np.arange(n, dtype=np.int32), method
    rows = check_index(rows, "rows")
    check_range(rows, n, "rows", "row")
    return np.asarray(check_distinct(rows, "rows")), method


@in_float64
def _folds(folds, n: int) -> tuple[np.ndarray, np.ndarray]:
    """(rows in ascending order, the fold of each), checked."""
    if is_traced(folds):
        raise TypeError("folds must be known outside jit: close over them")
    refuse_labels(folds, "folds")
    if isinstance(folds, int | np.integer) and not isinstance(folds, bool):
        if not 2 <= folds <= n:
            raise ValueError(f"folds = {folds} must lie between 2 and the number of rows, {n}")
        of_row = np.arange(n) % folds
    elif isinstance(folds, list | tuple) and all(hasattr(rows, "__len__") for rows in folds):
        of_row = np.full(n, -1)
        for f, rows in enumerate(folds):
            rows = np.asarray(check_distinct(check_index(rows, f"folds[{f}]"), f"folds[{f}]"))
            check_range(rows, n, f"folds[{f}]", "row")
            taken = rows[of_row[rows] >= 0]
            if taken.size:
                raise ValueError(f"row {taken[0]} is in folds {of_row[taken[0]]} and {f}; name it in one")
            of_row[rows] = f
    else:
        of_row = np.asarray(folds)
        if of_row.dtype.kind not in "iu" or of_row.shape != (n,):
            raise ValueError(f"folds must be a number of folds, a sequence of arrays of rows, or the fold of each row, "
                             f"({n},) integers; got {of_row.dtype} of shape {of_row.shape}")  # fmt: skip
        if np.any(of_row < -1):
            i = int(np.argmax(of_row < -1))
            raise ValueError(f"folds[{i}] = {of_row[i]} is not a fold; -1 stands for none")
        if np.any(of_row >= 2**31):
            i = int(np.argmax(of_row >= 2**31))
            raise ValueError(f"folds[{i}] = {of_row[i]} is too large a number; number the folds from 0 up, as "
                             "np.unique(folds, return_inverse=True)[1] does")  # fmt: skip
    rows = np.flatnonzero(of_row >= 0).astype(np.int32)
    fold = of_row[rows].astype(np.int32)
    if not rows.size:
        raise ValueError("folds hold no row; number at least one")
    if rows.size == n and np.all(fold == fold[0]):
        raise ValueError("folds has one that holds all rows: none is left to train on; split it")
    return rows, fold
