"""Floating-point allowances: how far a float64 result can be from the exact one (Higham, ch. 3 and 4).

Every certificate is evaluated in float64 on the exact stored floats. A sum of k rounded products is off by at most
`growth(k)` times the sum of the absolute values, in any order of summation, with or without fused multiply-adds.
Numbers of roundings are integers, or NumPy arrays of them.
"""

import numpy as np

from jaxbounds.array import xp

U = 2.0**-53  # unit roundoff of float64
TINY = 2.3e-308  # results below this may be flushed to zero
TINY_NORM = 1.6e-154  # a square below TINY vanishes: the norm of a d-vector may lose sqrt(d) times this


def growth(k):
    """g_k = k u / (1 - k u), the relative error of k roundings in a row."""
    return k * U / (1.0 - k * U)


def up(x, k=8):
    """An upper bound on a non-negative quantity that was computed with k roundings."""
    return x * (1.0 + growth(k + 2))


def down(x, k=8):
    """A lower bound on a non-negative quantity that was computed with k roundings."""
    return x * (1.0 - growth(k + 2))


def root(x):
    """sqrt(x) with gradient 0 at 0, where jax's own is infinite and turns into NaN."""
    zero = x == 0
    return xp.where(zero, 0.0, xp.sqrt(xp.where(zero, 1.0, x)))


def norm_up(sum_of_squares, k):
    """An upper bound on ||x|| from a computed sum of k squares."""
    return up(root(sum_of_squares), k) + np.sqrt(np.maximum(k, 1)) * TINY_NORM


def norm_down(sum_of_squares, k):
    """A lower bound on ||x|| from a computed sum of k squares."""
    return xp.maximum(down(root(sum_of_squares), k) - np.sqrt(np.maximum(k, 1)) * TINY_NORM, 0.0)


def dot_error(abs_dot, k):
    """Bound on the error of a k-term inner product, given the computed inner product of absolute values."""
    return growth(k + 2) * up(abs_dot, k) + k * TINY
