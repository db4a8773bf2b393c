"""The inverse of users' derivatives encloses the solution as closely as their roundings allow, with few calls."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

import jaxbounds as jb
from jaxbounds.conjugate import NOISE, bracket

SOLVED = {  # a function and its exact inverse
    "sinh": (np.sinh, mpmath.asinh),
    "cbrt": (np.cbrt, lambda t: t**3),
    "scaled": (lambda x: 1e-30 * x, lambda t: t * mpmath.mpf(10) ** 30),
    "steep": (lambda x: 1e30 * x, lambda t: t / mpmath.mpf(10) ** 30),
    "tanh": (np.tanh, mpmath.atanh),
    "sign": (lambda x: np.sign(x) + x, lambda t: 0 if abs(t) <= 1 else t - np.sign(t)),
}
TARGETS = np.array([0.3, -0.3, 1e-9, -1e-5, 0.99, 0.75, -0.01])


@pytest.mark.parametrize("name", SOLVED)
def test_the_solution_is_enclosed_within_roundings_by_few_calls(name):
    fn, inverse = SOLVED[name]
    calls = []
    lo, hi, found, safe = bracket(lambda x: calls.append(0) or fn(x), TARGETS)
    assert found.all() and all(s.all() for s in safe)
    with mpmath.workdps(40):
        exact = [inverse(mpmath.mpf(t)) for t in TARGETS]
        assert all(a <= x <= b for a, b, x in zip(lo, hi, exact, strict=True))
    np.testing.assert_array_less(hi - lo, 64 * NOISE * np.abs(np.array(exact, float)) + 1e-300)
    assert len(calls) <= 60  # bisecting all floats twice takes 128


def test_extremes_kinks_and_values_that_are_not_there():
    huber = lambda x: np.clip(x, -1.0, 1.0)  # noqa: E731
    with np.errstate(all="ignore"):  # as all bounds are computed
        lo, hi, found, (safe_lo, safe_hi) = bracket(huber, np.array([1.0, -1.0, 1.5, -1.5, np.inf, np.nan]))
    np.testing.assert_array_equal(found, [True, True, False, False, False, False])
    np.testing.assert_array_equal(safe_lo[:2], [True, False])
    np.testing.assert_array_equal(safe_hi[:2], [False, True])
    np.testing.assert_allclose(hi[:2], [1.0, -1.0], rtol=4 * NOISE)

    flat = lambda x: np.minimum(x + 1.0, 0.0)  # noqa: E731  all x >= -1 give 0, and the nearest to 0 is 0
    lo, hi, found, _ = bracket(flat, np.array([0.0]))
    assert found[0] and lo[0] <= 0.0 <= hi[0] and hi[0] - lo[0] < 1e-300

    wild = lambda x: np.where(np.abs(x) > 5.0, np.nan, x)  # noqa: E731
    lo, hi, found, _ = bracket(wild, np.array([2.0, -2.0]))
    assert found.all() and (lo <= [2.0, -2.0]).all() and (hi >= [2.0, -2.0]).all() and (hi - lo < 1e-13).all()


def test_functions_that_overflow_far_out_are_not_looked_at_there():
    saturating = lambda x: x / np.cbrt(1.0 + np.abs(x) ** 3)  # noqa: E731  0 instead of 1 from 1e103 on
    target = np.array([0.99, -0.99, 0.5, -0.999])
    with np.errstate(over="ignore"):
        lo, hi, found, _ = bracket(saturating, target)
    assert found.all()
    np.testing.assert_allclose(lo, target / np.cbrt(1.0 - np.abs(target) ** 3), rtol=1e-11)
    np.testing.assert_allclose(hi, lo, rtol=1e-11)


U = 2.0**-53
OVERFLOWS = {  # computed values fall back to 0 or go to infinity where the true ones go on; targets, solutions
    "1e154": (lambda x: x / np.sqrt(1.0 + x * x), [-1 + 8 * U, 1 - 8 * U, -0.6], [-2.37e7, 2.37e7, -0.75]),
    "355": (lambda x: np.sinh(x) / np.sqrt(1.0 + np.sinh(x) ** 2), [-1 + 8 * U], [-17.37]),
    "1e274": (lambda x: x / np.sqrt(1.0 + (x / 1e120) ** 2), [-1e119, 1e119], [-1.00503782e119, 1.00503782e119]),
    "1e77": (lambda x: x**3 / np.sqrt(1.0 + x**4), [1e50, -1e50], [1e50, -1e50]),
    "710": (lambda x: np.log1p(np.exp(x)), [750.0, 700.0], [750.0, 700.0]),
}


@pytest.mark.parametrize("name", OVERFLOWS)
def test_no_end_is_safe_by_a_value_that_overflowed(name):
    fn, target, exact = OVERFLOWS[name]
    with np.errstate(all="ignore"):
        lo, hi, found, (safe_lo, safe_hi) = bracket(fn, np.array(target))
    exact = np.array(exact)
    slack = 1e-8 * np.abs(exact)  # of the solutions above
    assert np.where(safe_lo, lo <= exact + slack, True).all() and np.where(safe_hi, hi >= exact - slack, True).all()
    np.testing.assert_array_equal(found, exact != 750.0)


def test_the_interval_of_a_users_penalty_that_overflows():
    penalty = jb.penalties.from_function(pseudo_huber)
    lo, hi = penalty.conjugate_interval(np.array([-0.5, -1.0]), np.array([-1 + 8 * U, -1 + 8 * U]))
    assert (hi >= -2.3727e7).all() and lo[0] <= -0.5773502 and lo[1] <= -2.3726e7


def pseudo_huber(w):
    return jnp.sqrt(1.0 + w * w) - 1.0


def test_a_constant_and_a_kink_at_0():
    lo, hi, _, _ = bracket(np.ones_like, np.array([1.0]))
    assert lo <= hi  # every x is a solution
    with jax.enable_x64(True):  # which takes denormal numbers for 0
        found = jax.jit(lambda t: bracket(lambda x: jnp.sign(x) + x, t))(jnp.array([0.0, 0.5, -0.5]))
    lo, hi, found, _ = jax.tree.map(np.asarray, found)
    assert found.all() and (lo <= 0.0).all() and (hi >= 0.0).all() and (hi - lo < 1e-300).all()


def test_numpy_and_jax_agree():
    with jax.enable_x64(True):
        traced = jax.jit(lambda t: bracket(lambda x: x + x**3, t))(jnp.asarray(TARGETS))
        for a, b in zip(jax.tree.leaves(traced), jax.tree.leaves(bracket(lambda x: x + x**3, TARGETS)), strict=True):
            np.testing.assert_allclose(a, b, rtol=NOISE)
