"""The printed formulas of Hanada et al. 2016, each with a small problem where it fails or says nothing, and ours there.

Smoothed hinge and L2 unless said otherwise. `search` takes the first of a fixed stream of random problems on which the
printed form fails; Theorem1 must hold on that problem and on all that came before it.
"""

import functools
from dataclasses import dataclass, replace

import exact
import numpy as np
import oracle
import pytest

import jaxbounds as jb

GAMMA = 0.5


@dataclass(frozen=True, eq=False)
class Case:
    """A trained SVM (w, a), the same with X_new for X (w_new, a_new), and G, the new gap at the old pair."""

    old: oracle.Problem
    X_new: np.ndarray
    w: np.ndarray
    a: np.ndarray
    G: float
    w_new: np.ndarray
    a_new: np.ndarray

    @property
    def n(self):
        return len(self.a)

    @property
    def lam(self):
        return self.old.lam

    @property
    def r_P(self):
        return np.sqrt(2 * self.G / self.lam)

    @property
    def r_D(self):
        return np.sqrt(2 * self.n * self.G / GAMMA)

    @property
    def margins(self):
        return self.old.y * (self.X_new @ self.w)

    @functools.cached_property
    def model(self):
        problem = jb.Problem(jb.losses.smoothed_hinge(GAMMA), jb.penalties.l2(self.lam))
        return jb.fit(problem, self.old.X, self.old.y, tol=1e-12)

    def bound(self, method):
        rows = np.flatnonzero(np.any(self.X_new != self.old.X, axis=1))
        return jb.bound(self.model, jb.set_rows(rows, self.X_new[rows]), method)


def make(seed, *, grow=1.0, size=1.0, noise=0.3, column=False) -> Case:
    """Rows of norm about `size`; one row (or column) is drawn anew, `grow` times as large."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(4, 10)), int(rng.integers(2, 5))
    X = size * rng.normal(size=(n, d))
    y = np.where(X @ rng.normal(size=d) + noise * size * rng.normal(size=n) > 0, 1.0, -1.0)
    lam = float(10 ** rng.uniform(-2, 0))
    old = oracle.Problem("smoothed_hinge", X, y, np.full(n, 1 / n), param=GAMMA, lam=lam)
    new = X.copy()
    if column:
        new[:, 0] = grow * size * rng.normal(size=n)
    else:
        new[0] = grow * size * rng.normal(size=d)
    return solved(old, new)


def solved(old, X_new) -> Case:
    before, new = oracle.solve(old), replace(old, X=X_new)
    after = oracle.solve(new)
    G = oracle.gap(new, before.w, before.alpha)
    return Case(old, X_new, before.w, before.alpha, G, after.w, after.alpha)


def inside(interval, value, slack=1e-9):
    lower, upper = np.asarray(interval.lower), np.asarray(interval.upper)
    return bool(np.all(lower <= value + slack) and np.all(value - slack <= upper))


def ours_hold(case):
    for method in (jb.Theorem1("i"), jb.Theorem1("ii"), jb.Theorem1()):
        bounds = case.bound(method)
        assert inside(bounds.w(), case.w_new) and inside(bounds.alpha(), case.a_new)


def search(fails, **options) -> Case:
    """The first problem of the stream where the printed form fails."""
    for seed in range(300):
        case = make(seed, **options)
        if fails(case):
            ours_hold(case)
            return case
    raise AssertionError("the printed form held on all 300 problems")


def alpha_of(margin):
    return np.clip((1 - margin) / GAMMA, 0, 1)


def test_theorem_1_i_alpha_swaps_min_and_max():
    def vacuous(case):
        printed = np.minimum(0, case.a - case.r_D), np.maximum(1, case.a + case.r_D)
        assert np.all(printed[0] <= 0) and np.all(printed[1] >= 1)  # never less than the whole domain
        mine = case.bound(jb.Theorem1("i")).alpha()
        return np.any(np.asarray(mine.upper) - np.asarray(mine.lower) < 0.9)

    search(vacuous)


def test_theorem_1_i_w_is_loose_by_root_n():
    def loose(case):
        column = np.linalg.norm(case.X_new, axis=0)
        v = case.X_new.T @ (case.old.y * case.a) / case.n
        right = column * np.sqrt(2 * case.G / (GAMMA * case.n)) / case.lam
        printed = column * np.sqrt(2 * case.G / GAMMA) / case.lam
        np.testing.assert_allclose(printed, np.sqrt(case.n) * right)
        mine = case.bound(jb.Theorem1("i")).w()
        ends = v / case.lam - right, v / case.lam + right
        return np.allclose(mine.lower, ends[0], rtol=1e-6) and np.allclose(mine.upper, ends[1], rtol=1e-6)

    search(loose, grow=0.5)


def test_sphere_of_alpha_forgets_n():
    def fails(case):
        moved = np.linalg.norm(case.a_new - case.a)
        assert moved <= case.r_D * (1 + 1e-6)
        return moved > np.sqrt(2 * case.G / GAMMA) + 1e-6

    search(fails)


def test_lower_alpha_takes_a_column_norm():
    def fails(case):
        k = min(case.X_new.shape)
        printed = alpha_of(case.margins[:k] + np.linalg.norm(case.X_new, axis=0)[:k] * case.r_P)
        right = alpha_of(case.margins + np.linalg.norm(case.X_new, axis=1) * case.r_P)
        assert np.all(right <= case.a_new + 1e-6)
        return np.any(printed > case.a_new[:k] + 1e-6)

    search(fails, grow=3.0)


def test_upper_w_starts_from_alpha():
    def fails(case):
        assert np.all(case.w_new <= case.w + case.r_P + 1e-9)
        return case.w_new.max() > case.a.min() + case.r_P + 1e-6

    search(fails)


def printed_row_norm_squared(case):
    return np.sum(case.old.X**2, axis=1) - np.sum(case.X_new**2 - case.old.X**2, axis=1)


def test_norm_update_with_a_minus_is_unsafe():
    def fails(case):
        square = printed_row_norm_squared(case)
        if np.any(square < 0):
            return False
        low = alpha_of(case.margins + np.sqrt(square) * case.r_P)
        high = alpha_of(case.margins - np.sqrt(square) * case.r_P)
        return np.any(low > case.a_new + 1e-6) or np.any(high < case.a_new - 1e-6)

    search(fails, grow=1.0)


def test_norm_update_with_a_minus_is_not_a_number():
    case = search(lambda case: np.any(printed_row_norm_squared(case) < 0), grow=2.0)
    assert np.all(np.isfinite(case.bound(jb.Theorem1()).alpha().lower))


def test_appendix_domain_term_lacks_lambda():
    """Read with max/min, the domain term n^-1 sum z cuts off the new optimum when lam < 1."""

    def fails(case):
        z = case.old.y[:, None] * case.X_new
        low, high = np.minimum(z, 0).sum(axis=0) / case.n, np.maximum(z, 0).sum(axis=0) / case.n
        assert np.all(low / case.lam <= case.w_new + 1e-9) and np.all(case.w_new <= high / case.lam + 1e-9)
        return np.any(low > case.w_new + 1e-6) or np.any(high < case.w_new - 1e-6)

    search(fails)


def test_appendix_w_is_vacuous_as_printed():
    def vacuous(case):
        z = case.old.y[:, None] * case.X_new
        reach = np.linalg.norm(case.X_new, axis=0) * np.sqrt(2 * case.G / GAMMA) / case.lam
        centre = z.T @ case.a / (case.n * case.lam)
        low, high = np.minimum(np.minimum(z, 0).sum(axis=0) / case.n, centre - reach), centre + reach
        mine = case.bound(jb.Theorem1("i")).w()
        narrow = np.asarray(mine.upper) - np.asarray(mine.lower) < 0.5 * (high - low)
        return bool(np.all(narrow))

    search(vacuous)


def test_appendix_upper_alpha_has_the_wrong_sign():
    def fails(case):
        margin = case.margins - np.linalg.norm(case.X_new, axis=1) * case.r_P
        third = (margin <= 1) & (margin >= 1 - GAMMA)
        return np.any((-(1 - margin) / GAMMA < case.a_new - 1e-6)[third])

    search(fails, grow=0.5)


def test_theorem_2_does_not_tighten_every_end():
    """Partial optimisation over the changed column: a smaller radius, but an end point moves outward."""

    def fails(case):
        w, new = case.w.copy(), replace(case.old, X=case.X_new)
        rest, z = case.X_new[:, 1:] @ w[1:], case.X_new[:, 0]
        low, high = -1e3, 1e3
        for _ in range(200):  # the derivative in w_0 increases
            w[0] = (low + high) / 2
            slope = case.lam * w[0] - np.mean(case.old.y * z * alpha_of(case.old.y * (rest + z * w[0])))
            low, high = (w[0], high) if slope < 0 else (low, w[0])
        G = oracle.gap(new, w, case.a)
        assert G <= case.G * (1 + 1e-9)
        r = np.sqrt(2 * G / case.lam)
        cached, partial = (case.bound(method).w() for method in (jb.Cached(), jb.Partial()))
        assert np.all(np.asarray(partial.lower) >= np.asarray(cached.lower))
        assert np.all(np.asarray(partial.upper) <= np.asarray(cached.upper))
        assert inside(partial, case.w_new)
        return G < case.G and (w[0] + r > case.w[0] + case.r_P + 1e-6 or w[0] - r < case.w[0] - case.r_P - 1e-6)

    search(fails, column=True)


def test_scores_from_boxes_are_loose():
    def loose(case):
        x = np.ones((1, case.w.size))
        bounds = case.bound(jb.Theorem1("ii"))
        scores, box = bounds.scores(x), bounds.w()
        from_boxes = np.sum(np.asarray(box.upper) - np.asarray(box.lower))
        from_ball = (np.asarray(scores.upper) - np.asarray(scores.lower))[0]
        np.testing.assert_allclose(from_ball, 2 * case.r_P * np.sqrt(case.w.size), rtol=1e-5)
        assert inside(scores, x @ case.w_new)
        return from_boxes > 0.99 * np.sqrt(case.w.size) * from_ball

    search(loose)


def test_distance_from_boxes_is_loose():
    def loose(case):
        bounds = case.bound(jb.Theorem1("ii"))
        box, ours = bounds.w(), float(bounds.distance.upper)
        reach = np.maximum(case.w - np.asarray(box.lower), np.asarray(box.upper) - case.w)
        assert np.linalg.norm(case.w_new - case.w) <= ours
        np.testing.assert_allclose(ours, case.r_P, rtol=1e-5)
        return np.linalg.norm(reach) > 0.99 * np.sqrt(case.w.size) * ours

    search(loose)


def test_kept_dual_is_infeasible_for_l1():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8, 3))
    y = np.where(rng.normal(size=8) > 0, 1.0, -1.0)
    old = oracle.Problem("logistic", X, y, np.full(8, 1 / 8), "l1", kappa=0.02)
    X_new = X.copy()
    X_new[0] = 2.0 * rng.normal(size=3)
    before, after = oracle.solve(old), oracle.solve(replace(old, X=X_new))
    assert exact.evaluate(replace(old, X=X_new), before.w, before.alpha).G == exact.INF
    problem = jb.Problem(jb.losses.logistic(), jb.penalties.l1(0.02))
    bounds = jb.bound(jb.fit(problem, X, y, tol=1e-10), jb.set_rows([0], X_new[:1]), jb.Theorem1())
    assert np.isfinite(bounds.gap)
    assert inside(bounds.w(), after.w) and inside(bounds.alpha(), after.alpha)
    assert np.all(np.isfinite(bounds.w().upper))


@pytest.mark.parametrize("keep_n", [False, True])
def test_rows_may_be_removed(keep_n):
    case = make(3)
    n = case.n
    new = replace(case.old, X=case.old.X[1:], y=case.old.y[1:], c=np.full(n - 1, 1 / (n if keep_n else n - 1)))
    best, bounds = oracle.solve(new), jb.bound(case.model, jb.remove_rows([0], keep_n), jb.Theorem1())
    assert inside(bounds.w(), best.w) and inside(bounds.alpha(np.arange(1, n)), best.alpha)
    assert float(bounds.distance.upper) >= np.linalg.norm(best.w - case.w)


def test_rows_may_be_added():
    case = make(4)
    n = case.n
    x, label = np.ones((1, case.w.size)), np.array([-1.0])
    new = replace(case.old, X=np.vstack([case.old.X, x]), y=np.append(case.old.y, label), c=np.full(n + 1, 1 / (n + 1)))
    best, bounds = oracle.solve(new), jb.bound(case.model, jb.add_rows(x, label), jb.Theorem1())
    assert inside(bounds.w(), best.w) and inside(bounds.alpha(), best.alpha)
