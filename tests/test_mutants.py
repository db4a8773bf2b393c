"""What the other tests were found not to notice (benchmarks/mutation.py): allowances and formulas, one by one.

Containment alone does not guard a rounding allowance: the others beside it usually have room. Here each is compared
with its formula, in exact arithmetic.
"""

from fractions import Fraction

import numpy as np
import pytest

from jaxbounds import rounding
from jaxbounds.rounding import TINY, TINY_NORM, U

EPS = Fraction(U)
NUMBERS = (0.0, 1e-300, 0.3, 1.0, 7.25, 1e200)
TERMS = (1, 2, 8, 1000, 10**7)


def g(k):
    """k u / (1 - k u), exactly."""
    return k * EPS / (1 - k * EPS)


def near(value, exact, unit=EPS):
    """Whether a float is within a few rounding errors of an exact number."""
    return abs(Fraction(float(value)) - exact) <= 4 * unit * abs(exact) + Fraction(5e-324)


def test_allowances_are_those_of_the_formula():
    assert U == np.finfo(float).eps / 2 and TINY >= np.finfo(float).tiny and TINY_NORM**2 >= TINY
    for k in TERMS:
        assert near(rounding.growth(k), g(k))
        for x in NUMBERS:
            # the factors differ from 1 by a multiple of 2 u, so the allowance k + 2 is told from its neighbours
            assert near(rounding.up(x, k), Fraction(x) * (1 + g(k + 2)), EPS / 2) and rounding.up(x, k) >= x
            assert near(rounding.down(x, k), Fraction(x) * (1 - g(k + 2)), EPS / 2) and rounding.down(x, k) <= x
            exact = g(k + 2) * Fraction(x) * (1 + g(k + 2)) + k * Fraction(TINY)
            assert near(rounding.dot_error(x, k), exact, 8 * EPS)


@pytest.mark.parametrize("size", [0, 1, 4, 10**6])
def test_norms_lose_what_vanishes_below_the_smallest_square(size):
    lost = np.sqrt(max(size, 1)) * TINY_NORM
    assert rounding.norm_up(0.0, size) == lost and rounding.norm_down(0.0, size) == 0
    for square in (1e-307, 4.0, 1e200):
        length = np.sqrt(square)
        np.testing.assert_allclose(rounding.norm_up(square, size), length + lost, rtol=1e-9)
        np.testing.assert_allclose(rounding.norm_down(square, size), max(length - lost, 0), rtol=1e-9)
        for bound, sign in ((rounding.norm_up, 1), (rounding.norm_down, -1)):
            room = sign * (Fraction(float(bound(square, size))) / Fraction(float(length)) - 1)
            assert square < 1 or g(size + 1) <= room <= g(size + 4)
