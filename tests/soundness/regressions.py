"""What the campaign found, made small: every case here once broke a bound, and must not again."""

import numpy as np
import oracle

from soundness.draw import Case


def case(loss, X, y, lam, w, alpha, change, scale="sum", shift=0, param=None, penalty="l2", l1=0.0, intercept=False):
    """A case of one change, dense float64 data of weight 1, and the unit vectors as test rows."""
    X, y = np.array(X), np.array(y)
    pr = oracle.Problem(loss, X, y, np.ones(len(y)) / (len(y) if scale == "mean" else 1), penalty, param, lam, l1)
    d = X.shape[1]
    return Case(pr, scale, np.ones(len(y)), np.array(w), 0.0, np.array(alpha), (change,), np.eye(d), "float64", False,
                intercept, shift, {}, np.zeros(d + intercept))  # fmt: skip


def number(*values):
    return np.array(values)


CASES = {
    # joint / (lam (1 + k)) was 0 where the denominator overflows: "the coefficient is 0"
    "joint box": case(
        "squared", [[1.0, 1e-30]], [100.0], 3e4, [0.0, 0.0], [0.0],
        [("set_elements", {"rows": number(0), "cols": number(0), "values": number(1.0)})], shift=415),
    # what a row loses by its change cancels what it gains by its new alpha: the lower end of the distance
    "cancelling row": case(
        "log_cosh", [[0.5]], [-0.6], 3.0, [0.0], [0.0],
        [("set_columns", {"cols": number(0), "X_new": number([4e-10])})]),
}  # fmt: skip
