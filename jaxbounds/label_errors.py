"""Rows that the model retrained without them contradicts, with guarantees: `find_label_errors`."""

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxbounds.array import put
from jaxbounds.certificates import Method
from jaxbounds.left_out import checked, interval_of, settled
from jaxbounds.left_out_scores import row_scores
from jaxbounds.messages import brief
from jaxbounds.model import Model
from jaxbounds.problem import as_number
from jaxbounds.pytree import is_traced, pytree
from jaxbounds.rounding import TINY, U


@pytree
class LabelErrors:
    """Rows whose own left-out prediction certainly disagrees with their target, the surest first.

    Attributes:
        rows: (k,) the rows.
        margin: (k,) guaranteed size of the disagreement: y_i s_i <= -margin_i, or |s_i - y_i| >= threshold + margin_i.
        scores: Interval (k,) of their left-out scores s_i.
        undecided: (u,) the rows of which these bounds do not say whether they disagree: numbers, where
            `LeaveOneOut.undecided` is a mask.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> X, y = np.array([[1.0], [2.0], [-1.0], [-2.0], [1.5]]), np.array([1, 1, -1, -1, -1])
        >>> model = jb.fit(jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1)), X, y)
        >>> jb.find_label_errors(model).rows.tolist()
        [4]
    """

    rows: Any
    margin: Any
    scores: Any
    undecided: Any


def find_label_errors(
    model: Model,
    method: Method | None = None,
    rows=None,
    *,
    threshold: float | None = None,
    keep_n: bool = False,
    resolve: bool | float = False,
    callback: Callable | None = None,
) -> LabelErrors:
    """Rows that the model retrained without them certainly contradicts (host only).

    Classification: y_i s_i < 0 for the left-out score s_i. Regression: |s_i - y_i| > threshold.

    Args:
        model, method, rows, keep_n, callback: as in `leave_one_out`; `callback=jb.progress()` draws a bar.
        threshold: for regression, in units of the target.
        resolve: True settles rows that are open, as in `leave_one_out`; a number also those whose score's interval is
            wider than that.

    Returns:
        LabelErrors, by falling guaranteed margin.

    Raises:
        TypeError: inside jit (the number of rows found is not known there: use `leave_one_out`), or an argument has the
        wrong kind. ValueError: as in `leave_one_out`; a threshold is missing, negative, or given for labels.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> X, y = np.arange(1.0, 9.0)[:, None], np.array([1, 2, 3, 9, 5, 6, 7, 8.0])
        >>> model = jb.fit(jb.Problem(jb.losses.huber(1.0), jb.penalties.l2(1e-3)), X, y)
        >>> jb.find_label_errors(model, threshold=2.0).rows.tolist()
        [3]
    """
    rows, method = checked(model, method, rows, keep_n, resolve, callback)
    if is_traced(model):
        raise TypeError("find_label_errors runs on the host: inside jit the number of rows is not known; "
                        "use leave_one_out(model).correct there")  # fmt: skip
    classification, y = model.problem.loss.classification, np.asarray(model.rows.target)
    if classification and threshold is not None:
        raise ValueError("threshold is for regression; labels disagree where the score has the wrong sign")
    if threshold is not None:
        threshold = float(as_number(threshold, "threshold"))
    if not classification and (threshold is None or threshold < 0):
        raise ValueError(f"threshold must be a finite number >= 0 in units of the target, got {brief(threshold)}")

    def margins(lower, upper, rows):
        """(least, largest) disagreement beyond what is allowed."""
        target = y[rows]
        if classification:
            return np.where(target > 0, -upper, lower), np.where(target > 0, -lower, upper)
        apart, far = np.maximum(lower - target, target - upper), np.maximum(upper - target, target - lower)
        slack = 4 * U * (np.abs(target) + threshold) + TINY
        apart, far = apart - threshold, far - threshold
        return apart - 4 * U * np.abs(apart) - slack, far + 4 * U * np.abs(far) + slack

    def is_open(lower, upper, rows):
        least, most = margins(lower, upper, rows)
        return ~(least > 0) & ~(most < 0)

    lower, upper, _ = row_scores(model, rows, method, keep_n, settled(resolve, is_open), callback)
    least, _ = margins(lower, upper, rows)
    found = np.flatnonzero(least > 0)
    found = found[np.argsort(-least[found], kind="stable")]
    found_rows, margin, still = put((rows[found], least[found], rows[is_open(lower, upper, rows)]))
    return LabelErrors(found_rows, margin, interval_of(lower[found], upper[found]), still)
