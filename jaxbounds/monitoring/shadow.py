"""Newton steps on the host towards the model of the present data: a better point to measure from, nothing compiled."""

from typing import Any

import numpy as np

from jaxbounds.host import HostMatrix
from jaxbounds.pytree import in_float64

_NEWTON, _CG = 20, 60  # most steps


@in_float64
def approach(loss: Any, X: HostMatrix, target, weight, lam: float, w: np.ndarray, share: float) -> np.ndarray:
    """A w whose gradient of sum_i weight_i l_i + lam/2 ||w||^2 is at most so large a share of that at the given w.

    Damped Newton-CG; it may stop earlier, for any w will do for a certificate.
    """
    coordinate, sign = loss.coordinate, np.asarray(loss.orientation(target))

    def objective(w, score):
        return float(np.sum(weight * np.asarray(loss.value(coordinate(score, target), target))) + lam / 2 * (w @ w))

    score = X.matvec(w)
    value, first = objective(w, score), None
    for _ in range(_NEWTON):
        q = coordinate(score, target)
        gradient = lam * w - X.rmatvec(weight * sign * np.asarray(loss.dual(q, target)))
        size = float(np.linalg.norm(gradient))
        first = size if first is None else first
        if not size > share * first:
            break
        curvature = weight * np.asarray(loss.second(q, target))
        step = _conjugate_gradients(lambda p: lam * p + X.rmatvec(curvature * X.matvec(p)), gradient)  # noqa: B023
        along, slope, length = X.matvec(step), float(gradient @ step), 1.0
        while length > 1e-4:
            new, new_score = w - length * step, score - length * along
            reached = objective(new, new_score)
            if reached <= value - 1e-4 * length * slope:
                break
            length /= 2
        else:
            break  # at the floor of floating point, or not finite
        w, score, value = new, X.matvec(new), reached
    return w


def _conjugate_gradients(product: Any, b: np.ndarray) -> np.ndarray:
    """About A^-1 b, to a hundredth of b."""
    x, r = np.zeros_like(b), b.copy()
    p, rr = r.copy(), float(b @ b)
    stop = 1e-4 * rr
    for _ in range(_CG):
        Ap = product(p)
        bend = float(p @ Ap)
        if not bend > 0:
            break
        a = rr / bend
        x, r = x + a * p, r - a * Ap
        rr, old = float(r @ r), rr
        if rr <= stop:
            break
        p = r + (rr / old) * p
    return x
