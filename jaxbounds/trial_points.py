"""Newton steps that bring a trial point near the optimum of a penalty: no model, a few dozen products with the data."""

import numpy as np

from jaxbounds.certificates.linear import conjugate_gradients
from jaxbounds.certificates.penalty_cells import Training
from jaxbounds.intercept import balanced_intercept

_STEPS = 5  # evaluations of the gradient
_PRODUCTS = 60  # of conjugate gradients in one step
_CLOSE = 1e-9  # of ||p||: a gradient that is no longer worth a step


def refined(training: Training, p: np.ndarray, lam: float, mu: float) -> np.ndarray:
    """p (d,) after Newton steps on sum_i c_i l_i(x_i.p + b) + sum_j lam m_j p_j^2 / 2 + mu k_j |p_j|, b the best one.

    An l1 part is taken as linear on the side on which a coordinate lies (or, at 0, to which it moves); those that would
    cross 0 stop there. Whatever comes out, the certificates say what it is worth.
    """
    ridge, l1 = lam * training.metric, 0.0 if training.l1 is None else mu * training.l1
    best, least = p, np.inf
    for _ in range(_STEPS):
        g, curvature = _gradient(training, p, ridge, l1)
        size = np.sqrt(np.sum(g * g / ridge))
        if not size < least:
            p = (p + best) / 2
            continue
        best, least = p, size
        if size <= _CLOSE * np.sqrt(np.sum(ridge * p * p)):
            break
        side = np.where(p == 0, -np.sign(g), np.sign(p))
        new = p + _newton(training, curvature, ridge, -g, side != 0)
        p = np.where((l1 > 0) & (new * side < 0), 0.0, new)
    return best


def _gradient(training: Training, p, ridge, l1):
    """(the least subgradient at p, c_i l''_i)."""
    loss, matrix, y, c = training.loss, training.rows.matrix, training.y, training.c
    s = matrix.matvec(p)
    q = loss.coordinate(s + balanced_intercept(loss, s, y, c) if training.intercept else s, y)
    g = ridge * p - matrix.rmatvec(c * loss.orientation(y) * loss.dual(q, y))
    at_zero = np.sign(g) * np.maximum(np.abs(g) - l1, 0.0)
    return np.where(p == 0, at_zero, g + l1 * np.sign(p)), c * loss.second(q, y)


def _newton(training: Training, curvature, ridge, target, free):
    """H^-1 target on the free coordinates, by conjugate gradients in the metric of the penalty."""
    matrix, total = training.rows.matrix, np.sum(curvature)

    def product(u):
        s = matrix.matvec(u)
        if training.intercept and total > 0:  # the best intercept moves along
            s = s - np.sum(curvature * s) / total
        return np.where(free, matrix.rmatvec(curvature * s) + ridge * u, 0.0)

    return conjugate_gradients(product, np.where(free, target, 0.0), _PRODUCTS, 1 / ridge)
