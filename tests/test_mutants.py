"""What the other tests were found not to notice (benchmarks/mutation.py): allowances and formulas, one by one.

Containment alone does not guard a rounding allowance: the others beside it usually have room. Here each is compared
with its formula, in exact arithmetic.
"""

from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

import jaxbounds as jb
from jaxbounds import rounding
from jaxbounds.array import to_host
from jaxbounds.certificates import inverse as inverse_module
from jaxbounds.certificates.ball import box_scores, joint_box
from jaxbounds.certificates.centre import coefficients, new_scores
from jaxbounds.certificates.crossings import _moves, _norm, _objective, _omega
from jaxbounds.certificates.four_point import region as region_of
from jaxbounds.certificates.four_point import shrunk_ball
from jaxbounds.certificates.inverse import Hessian, residual_norm
from jaxbounds.certificates.leave_one_out import SECOND_ORDER, _closed_form, _half_ball, newton, prepare
from jaxbounds.certificates.ledger import Ledger
from jaxbounds.certificates.newton_pass import gradient_ball
from jaxbounds.certificates.renewed import renew
from jaxbounds.certificates.sandwich import sandwich
from jaxbounds.certificates.steps import cg_step, newton_step
from jaxbounds.edit import prepare as prepare_edit
from jaxbounds.host import HostMatrix, host_matrix
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


@pytest.mark.parametrize("loss", ["smoothed_hinge", "squared_hinge", "huber"])
def test_moves_when_rows_cross_are_those_of_the_dense_formula(loss):
    """D = -H^-1 (f + sum omega_j x_j) from a model that is far from trained, where f counts."""
    rng = np.random.default_rng(4)
    X, n = rng.normal(size=(30, 3)), 30
    y = rng.normal(size=n) if loss == "huber" else np.where(X[:, 0] + rng.normal(size=n) > 0, 1.0, -1.0)
    build = getattr(jb.losses, loss)
    problem = jb.Problem(build() if loss == "squared_hinge" else build(0.7), jb.penalties.l2(0.1))
    model = to_host(jb.fit(problem, X, y, tol=1e-1))
    state = prepare(model, host_matrix(model.data.matrix), False)
    c, S = np.ones(n), np.array([3, 8, 20])
    y = state.y[S]
    H = state.X.T @ (state.a[:, None] * state.X) + np.diag(state.ridge)
    f = state.X.T @ state.b + state.ridge * state.w
    assert np.linalg.norm(f) > 1e-6 and np.allclose(state.f, f)
    np.testing.assert_allclose(state.ridge, 0.1 * (n - 1))
    omegas = rng.normal(size=(2, 3)) / 10
    omegas[:, 0] = omegas[0, 0]
    values, energies = [], []
    for omega in omegas:
        D = -np.linalg.solve(H, f + state.X[S].T @ omega)
        np.testing.assert_allclose(_norm(state.inv, S, omega), np.sqrt(D @ H @ D), rtol=1e-9)
        moves, pads = _moves(state.inv, np.arange(n), S, omega)
        np.testing.assert_allclose(moves, state.X @ D, rtol=1e-9, atol=1e-12)
        assert np.all(pads < 1e-10)
        value, slope = _omega(state, S, state.X[S] @ D)
        bend = -c[S] * state.loss.dual(state.q[S] + state.X[S] @ D, y) - state.b[S] - state.a[S] * (state.X[S] @ D)
        bend[0] = -state.b[3] - state.a[3] * (state.X[3] @ D)
        np.testing.assert_allclose(value, bend)
        step = 1e-7
        ahead = _omega(state, S, state.X[S] @ D + step)[0]
        np.testing.assert_allclose(slope, (ahead - value) / step, atol=1e-5)
        # F_k at w + D, row 3 left out, the rows outside S on their quadratic pieces
        d = state.X @ D
        values.append(_objective(state, S, state.inv.products(S, S), state.inv.products(S, [n])[:, 0], omega))
        total = state.ridge @ (state.w + D) ** 2 / 2
        rest = np.delete(np.arange(n), S)
        total += np.sum(state.b[rest] * d[rest] + state.a[rest] * d[rest] ** 2 / 2)
        energies.append(total + np.sum(state.loss.value(state.q[S[1:]] + d[S[1:]], y[1:])))
    np.testing.assert_allclose(np.diff(values), np.diff(energies), rtol=1e-7)


@pytest.mark.parametrize("loss", ["squared", "huber", "logistic"])
def test_newton_of_one_removed_row_ends_at_its_optimum(loss):
    """Residual losses take their targets off the scores, also where the step's end is certified."""
    rng = np.random.default_rng(6)
    X, w = rng.normal(size=(25, 3)), np.array([2.0, -1.0, 0.5])
    y = X @ w + 3.0 if loss != "logistic" else np.where(X @ w > 0, 1.0, -1.0)
    build = getattr(jb.losses, loss)
    model = jb.fit(jb.Problem(build(0.7) if loss == "huber" else build(), jb.penalties.l2(0.1)), X, y, tol=1e-2)
    here = to_host(model)
    state = prepare(here, host_matrix(here.data.matrix), False)
    for k in (0, 7):
        truth = X[k] @ np.asarray(jb.refit(model, jb.remove_rows([k]), tol=1e-13).w)
        truth = truth * y[k] if loss == "logistic" else truth - y[k]
        centre, half = newton(state, k)
        assert half < 1e-9 and abs(centre - truth) <= half + 1e-5


def whole(model, change):
    """(model on the host, edit that lists whole rows, new problem)."""
    model, change = to_host((model, change))
    edit = jb.Curvature().edits(model, change)[-1]
    return model, edit, renew(model, edit)


def test_ball_of_a_gradient_is_that_of_the_formula():
    """Centre w - (1 + rho)/(2 + rho) g/lam and radius ||g||/(2 + rho), rho = 2 lam/(L sigma^2)."""
    rng = np.random.default_rng(1)
    X, n, lam = rng.normal(size=(20, 3)), 20, 0.3
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    model = jb.fit(jb.Problem(jb.losses.logistic(), jb.penalties.l2(lam)), X, y, tol=1e-10)
    model, edit, problem = whole(model, jb.set_rows([4], X[[5]], [-y[5]]))
    Z, z = X.copy(), y.copy()
    Z[4], z[4] = X[5], -y[5]
    w, sigma_sq = rng.normal(size=3), 2.5
    g = lam * w - Z.T @ (z / (1 + np.exp(z * (Z @ w)))) / n
    rho = 2 * lam / (0.25 * sigma_sq)
    ball = gradient_ball(problem, problem.gradient(w), sigma_sq)
    np.testing.assert_allclose(ball.centre, w - (1 + rho) / (2 + rho) * g / lam, rtol=1e-12)
    np.testing.assert_allclose(ball.radius, np.linalg.norm(g) / np.sqrt(lam) / (2 + rho), rtol=1e-12)
    np.testing.assert_allclose(ball.length, np.linalg.norm(g) / lam / (2 + rho), rtol=1e-12)
    # alpha* is within dual_radius / sqrt(c_i) of a_i, whatever the scores say; (excess + square/4) L with no excess
    w = np.asarray(model.w) + 0.01
    at = problem.gradient(w)
    ball = replace(gradient_ball(problem, at, sigma_sq), low=np.full(n, -1e3), high=np.full(n, 1e3))
    a, half = 1 / (1 + np.exp(z * (Z @ w))), np.linalg.norm(at.g) * np.sqrt(0.25 / 4 / lam * n)
    low, high = ball.duals(model, edit)
    assert half < 0.4
    np.testing.assert_allclose(low, np.maximum(a - half, 0), atol=1e-12)
    np.testing.assert_allclose(high, np.minimum(a + half, 1), atol=1e-12)


def test_shrunk_ball_takes_the_best_of_three():
    """Theory 4.2: tops G - T, F + B and F + B + 2 sqrt(F G) with shrinks 0, rho and 2 rho."""
    ledger = SimpleNamespace(gamma=4.0, lam_min=0.5, sigma_sq=lambda: 1.6)
    rho, best = 4.0 * 0.5 / 1.6, []
    for F, excess, E, gap, half in ((0.0, 0.2, 1.3, 1.0, 2.0), (0.5, 0.1, 1.3, 3.0, 0.9), (0.3, 0.0, 0.1, 2.0, 0.05)):
        tops = (half, F + excess, F + excess + 2 * np.sqrt(F * gap))
        shrinks = (0.0, rho, 2 * rho)
        every = [2 * top / (2 + s) + (E / (2 + s)) ** 2 for top, s in zip(tops, shrinks, strict=True)]
        best.append(int(np.argmin(every)))
        theta, square = shrunk_ball(ledger, F, excess, E, gap, half)
        np.testing.assert_allclose(square, min(every), rtol=1e-12)
        np.testing.assert_allclose(theta, (1 + shrinks[best[-1]]) / (2 + shrinks[best[-1]]), rtol=1e-12)
    assert best == [2, 1, 0]


def test_known_error_of_a_matrix_counts_by_the_norm_of_its_inverse():
    """||I - H P|| for an H that is known within `off`: off ||P|| on top, whether ||P|| is above or below 1."""
    for scale in (1e-2, 1e2):
        H = scale * np.diag([1.0, 2.0, 5.0])
        size = np.linalg.norm(np.linalg.inv(H))
        for share in (1e-3, 0.4):
            np.testing.assert_allclose(residual_norm(H, np.linalg.inv(H), share / size), share, rtol=1e-10)
        assert residual_norm(H, np.linalg.inv(H), 0.6 / size) == np.inf


def test_slopes_far_out_are_not_flushed_to_zero():
    """A slope near the smallest normal number is rounded up by what flushing could take away."""
    loss, d = to_host(jb.losses.huber(0.7)), np.array([1e306, 1e307])
    low, high = loss.secant(np.zeros(2), d, d, np.zeros(2))
    assert np.all(high >= 0.7 / d + TINY) and np.all(low <= np.maximum(0.7 / d - TINY, 0)) and np.all(low >= 0)


def test_kept_dual_shrinks_into_the_domain_of_an_l1_penalty():
    """x = 1 becomes 4: v = 4 alpha = 2 is four times too large for kappa = 1/2, and alpha/4 is the new optimum's."""
    problem = jb.Problem(jb.losses.squared(), jb.penalties.l1(0.5))
    model = jb.fit(problem, np.ones((1, 1)), np.ones(1), tol=1e-10)
    bounds = jb.bound(model, jb.set_rows([0], [[4.0]]), jb.Theorem1())
    np.testing.assert_allclose(bounds.gap, 0.75 - (0.125 - 0.125**2 / 2), rtol=1e-4)


def test_scores_of_the_new_data_count_what_old_elements_cancel():
    """1e9 becomes 1: the stored product loses digits of the old size, and the allowance must be as large."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(8, 3))
    X[2, 0] = 1e9
    y = np.sign(X[:, 0] + rng.normal(size=8))
    model = jb.fit(jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1)), X, y, tol=1e-3)
    model = replace(model, w=rng.normal(size=3))
    lost = 0
    for value in rng.normal(size=20):
        change = jb.set_elements([2], [0], [value])
        here, change = to_host((model, change))
        edit = prepare_edit(here, change)
        region = replace(region_of(Ledger(here, edit), Ledger(here, edit).keep()), radius=0.0)
        low, high = new_scores(here, edit, region)
        centre = coefficients(here, edit, region).centre
        Z = X.copy()
        Z[2, 0] = value
        exact = sum(Fraction(float(a)) * Fraction(float(b)) for a, b in zip(Z[2], centre, strict=True))
        assert Fraction(float(low[2])) <= exact <= Fraction(float(high[2]))
        lost += abs(float((low[2] + high[2]) / 2 - float(exact))) > 1e-9
    assert lost > 5


def test_scores_over_a_box_are_infinite_only_where_the_row_reaches_an_open_side():
    low, high = np.array([-np.inf, 0.0]), np.array([1.0, 2.0])
    X = np.array([[0.0, 1.0], [1.0, 1.0], [-1.0, -1.0], [2.0, 0.0]])
    lower, upper = box_scores((low, high), HostMatrix(X))
    np.testing.assert_allclose(lower, [0.0, -np.inf, -3.0, -np.inf], atol=1e-12)
    np.testing.assert_allclose(upper, [2.0, 3.0, np.inf, 2.0], atol=1e-12)


def test_joint_box_solves_both_inequalities():
    """lam (w - c)^2 + share gamma lam^2/(2 N) (w - u)^2 <= joint, c = w0 - e/2, u = w0 - e, for each of the shares."""
    lam, gamma, N, w0, e = 0.5, 4.0, np.array([0.3, 5.0]), np.array([1.0, -2.0]), np.array([0.4, 0.1])
    at = SimpleNamespace(lam=lam, w=w0, e=e, e_pad=0.0)
    for joint in ((0.3, 9.0), (9.0, 0.3), (0.3, 0.35)):
        low, high = joint_box(SimpleNamespace(joint=joint), at, N, gamma)
        ends = []
        for share, right in zip((1, 2), joint, strict=True):
            k = share * gamma * lam**2 / (2 * N)
            b, c = -2 * (lam * (w0 - e / 2) + k * (w0 - e)), lam * (w0 - e / 2) ** 2 + k * (w0 - e) ** 2 - right
            ends.append([(-b + sign * np.sqrt(b * b - 4 * (lam + k) * c)) / (2 * (lam + k)) for sign in (-1, 1)])
        np.testing.assert_allclose(low, np.maximum(ends[0][0], ends[1][0]), rtol=1e-10)
        np.testing.assert_allclose(high, np.minimum(ends[0][1], ends[1][1]), rtol=1e-10)


def logistic_state():
    rng = np.random.default_rng(8)
    X, n = rng.normal(size=(40, 4)), 40
    y = np.where(X[:, 0] + rng.normal(size=n) > 0, 1.0, -1.0)
    model = to_host(jb.fit(jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.2)), X, y, tol=1e-4))
    return prepare(model, host_matrix(model.data.matrix), False)


def test_half_ball_of_a_removed_row_is_that_of_the_formula():
    """x_k.(w - g_k/(2 ridge)) within tau_k ||g_k||/2, g_k = f - b_k x_k, in the metric of the ridge."""
    state = logistic_state()
    rows = np.arange(40)
    g = state.f - state.b[:, None] * state.X
    centre, half = _half_ball(state, rows)
    np.testing.assert_allclose(centre, state.q - np.sum(state.X * g, axis=1) / (2 * state.ridge[0]), rtol=1e-9)
    exact = np.linalg.norm(state.X, axis=1) * np.linalg.norm(g, axis=1) / (2 * state.ridge[0])
    assert np.all(half >= exact)
    np.testing.assert_allclose(half, exact, rtol=1e-9)


def test_second_order_intervals_of_removed_rows_are_those_of_the_formula():
    """x_k.w + T (2-p)/(2p) m_k -+ T/2 nu_k sqrt(e_k/den), p = nu_k max_i sqrt(e_i/den), T = -log(1-p)."""
    state = logistic_state()
    rows = np.arange(40)
    X, b, a, f, q = state.X, state.b, state.a, state.f, state.q
    inverse = np.linalg.inv(X.T @ (a[:, None] * X) + np.diag(state.ridge))
    e, h = np.einsum("ij,jk,ik->i", X, inverse, X), X @ inverse @ f
    den = 1 - a * e
    m = (b * e - h) / den
    nu = np.sqrt(f @ inverse @ f - 2 * b * h + b**2 * e + a * (h - b * e) ** 2 / den)
    others = np.array([np.max(np.delete(e, k)) for k in rows])
    p = nu * np.sqrt(others / den)
    T = -np.log1p(-p)
    centre, half = q + T * (2 - p) / (2 * p) * m, T / 2 * nu * np.sqrt(e / den)
    base, base_pad = _half_ball(state, rows)
    expect = np.maximum(centre - half, base - base_pad), np.minimum(centre + half, base + base_pad)
    lower, upper, how = _closed_form(state, rows)
    lower, upper = np.where(state.y > 0, lower, -upper), np.where(state.y > 0, upper, -lower)
    assert np.all(p < 1) and np.sum(how == SECOND_ORDER) > 20
    np.testing.assert_allclose(lower, expect[0], atol=1e-10)
    np.testing.assert_allclose(upper, expect[1], atol=1e-10)


def test_conjugate_gradient_steps_solve_least_squares():
    """Scores move along with the point: as many steps as columns end at the ridge solution."""
    rng = np.random.default_rng(2)
    X, y, n, lam = rng.normal(size=(20, 4)), rng.normal(size=20), 20, 0.3
    model = jb.fit(jb.Problem(jb.losses.squared(), jb.penalties.l2(lam)), X, y, tol=1e-2)
    _, _, problem = whole(model, jb.set_targets([3], [5.0]))
    y[3] = 5.0
    start = problem.gradient(rng.normal(size=4))
    found = cg_step(problem, start, 2.0, 6)
    truth = np.linalg.solve(X.T @ X / n + lam * np.eye(4), X.T @ y / n)
    np.testing.assert_allclose(found.w, truth, rtol=1e-9)
    np.testing.assert_allclose(newton_step(problem, start, 2.0).w, truth, rtol=1e-9)


def test_residual_of_a_solve_is_measured_in_the_euclidean_norm():
    rng = np.random.default_rng(9)
    X, h, ridge, b, p = rng.normal(size=(6, 3)), rng.random(6), rng.random(3) + 1, *rng.normal(size=(2, 3, 2))
    hessian = Hessian(HostMatrix(X), HostMatrix(np.abs(X)), h, ridge, np.ones(3, bool))
    exact = b - (X.T @ (h[:, None] * X) + np.diag(ridge)) @ p
    found, size = hessian.residual(b, p)
    np.testing.assert_allclose(found, exact, rtol=1e-12)
    np.testing.assert_allclose(size, np.linalg.norm(exact, axis=0), rtol=1e-12)
    assert np.all(size > np.linalg.norm(exact, axis=0))


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_inexact_solves_widen_the_sandwich(monkeypatch, steps):
    """With conjugate gradients stopped early the centre is off by up to `pad`, and the radius covers ||g||_M / 2."""
    monkeypatch.setattr(inverse_module, "_SIDE", 0)
    monkeypatch.setattr(inverse_module, "_STEPS", steps)
    rng = np.random.default_rng(10)
    n, d = 12, 300
    X, y, lam = rng.normal(size=(n, d)) / 8, np.where(rng.random(n) < 0.5, 1.0, -1.0), 0.3
    model = jb.fit(jb.Problem(jb.losses.logistic(), jb.penalties.l2(lam)), X, y, tol=1e-3)
    with np.errstate(all="ignore"):
        model = to_host(model)
        problem = renew(model, to_host(prepare_edit(model, jb.set_targets([0], -y[:1]), whole=True)))
        at = problem.gradient(np.asarray(model.w, float))
        low, high = np.full(n, 0.05), np.full(n, 0.25)
        radius, shape, pad, centre = sandwich(problem, at, low, high, problem.free, True)
        eta = rng.normal(size=(3, d))
        found = shape.of_rows(HostMatrix(eta))
    H = X.T @ (problem.c[:, None] * low[:, None] * X) + lam * np.eye(d)
    root = np.sqrt(problem.c * (high - low))[:, None] * X
    x = np.linalg.solve(H, at.g)
    exact = at.w - x + np.linalg.solve(H, root.T @ (root @ x)) / 2
    assert shape.inverse.kind == "iterative"
    assert np.linalg.norm(centre - exact) <= pad and radius >= np.linalg.norm(root @ x) / 2
    assert np.all(found >= np.linalg.norm(root @ np.linalg.solve(H, eta.T), axis=0))
    # the error of the first solve over mu, once for itself and once more through M; that of the second solve
    known = shape.inverse
    error, back = known.solve(at.g)[1], root.T @ (root @ known.solve(at.g)[0])
    square = np.sum(shape.weight * np.sum(X**2, axis=1))
    np.testing.assert_allclose(pad, error + known.solve(back)[1] + square * error / lam, rtol=1e-6, atol=1e-11)
    length = np.linalg.norm(root @ known.solve(at.g)[0]) + np.sqrt(square) * error
    np.testing.assert_allclose(radius, length / 2, rtol=1e-6, atol=1e-11)
