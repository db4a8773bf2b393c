"""What attacks have found: each was a violated bound, a crash or a needless width."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbounds as jb

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(12, 3))
Y = np.sign(X[:, 0] + 0.3 * DRAW.normal(size=12))
PROBLEM = jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.01))


@pytest.mark.parametrize("method", [jb.Cached(), jb.Partial(), jb.Pass()], ids=lambda m: type(m).__name__)
def test_traced_float32_scores_hold_the_optimum(method):
    """All rows become 0: the new optimum is 0 exactly, at the edge of the ball."""
    X = np.array([[0.3], [0.7], [-0.9]], np.float32)
    model = jb.fit(jb.Problem(jb.losses.squared(), jb.penalties.l2(0.05)), X, np.array([1.0, -1.0, 0.5]), tol=1e-12)
    change = jb.set_rows(np.arange(3), np.zeros((3, 1), np.float32))

    def scores(X):
        found = jb.bound(model, change, method).scores(X)
        return found.lower, found.upper

    with jax.enable_x64(True):
        lower, upper = jax.jit(scores)(jnp.linspace(0.05, 0.95, 40, dtype=jnp.float32)[:, None])
    assert np.all(np.asarray(lower) <= 0) and np.all(np.asarray(upper) >= 0)


@pytest.mark.slow
def test_traced_float32_squares_do_not_vanish():
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(12, 3)) * 1e-21).astype(np.float32)
    y = np.where(rng.normal(size=12) > 0, 1.0, -1.0)
    problem, change = jb.Problem(jb.losses.logistic(), jb.penalties.l2(1e-43)), jb.set_targets(np.array([0]), -y[:1])

    def ends(X):
        bounds = jb.bound(jb.fit(problem, X, y, tol=1e-10), change)
        return bounds.w().lower, bounds.w().upper

    with jax.enable_x64(True):
        lower, upper = map(np.asarray, jax.jit(ends)(jnp.asarray(X)))
        true = np.asarray(jb.refit(jb.fit(problem, X, y), change, tol=1e-13).w)
    assert np.all(lower <= true) and np.all(true <= upper), (lower, true, upper)
    assert np.all(upper - lower <= 3 * np.abs(true).max())


@pytest.mark.slow
def test_self_concordant_traced_without_touched_rows():
    X, y = np.eye(3), np.array([1.0, -1.0, 1.0])
    model = jb.with_factor(jb.fit(jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1)), X, y, tol=1e-12))
    with jax.enable_x64(True):
        radius = jax.jit(lambda lam: jb.bound(model, jb.set_penalty(jb.penalties.l2(lam)), jb.SelfConcordant()).radius)
        assert np.isfinite(float(radius(0.11)))


def test_self_concordant_each_penalty():
    X, y = np.eye(3), np.array([1.0, -1.0, 1.0])
    model = jb.with_factor(jb.fit(jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1)), X, y, tol=1e-12))
    each = jb.each_penalty(jax.vmap(jb.penalties.l2)(jnp.asarray([0.09, 0.11])))
    assert np.all(np.isfinite(np.asarray(jb.bound_each(model, each, X, method=jb.SelfConcordant()).radius)))


@pytest.mark.slow
def test_curvature_bounds_travel():
    X, y = np.random.default_rng(0).normal(size=(12, 3)), np.array([1.0, -1.0] * 6)
    model = jb.fit(jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.05)), X, y, tol=1e-10)
    bounds = jb.bound(model, jb.set_targets([0], [-1.0]), jb.Curvature())
    assert np.all(np.isfinite(jax.jit(lambda X: bounds.scores(X).upper)(jnp.asarray(X))))
    assert np.all(np.isfinite(jax.jit(lambda b: b.scores(X).upper)(bounds)))


@pytest.mark.slow
@pytest.mark.parametrize("loss", [jb.losses.logistic(), jb.losses.huber(0.5)], ids=str)
def test_a_factor_is_no_wider_at_small_lam(loss):
    """Residuals are divided by the least eigenvalue of the Hessian, and not by lam."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 3))
    y = np.where(rng.normal(size=60) > 0, 1.0, -1.0)
    model = jb.fit(jb.Problem(loss, jb.penalties.l2(1e-7)), X, y, tol=1e-14)
    change = jb.set_weights([4], [1.5])
    formed, stored = (float(jb.bound(m, change, jb.Curvature()).radius) for m in (model, jb.with_factor(model)))
    assert stored <= 1e-6 * float(jb.bound(model, change).radius) and stored <= 1e4 * formed, (stored, formed)


def test_a_factor_that_overflows_is_refused():
    with pytest.warns(jb.FitWarning):
        model = jb.fit(jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0)), np.array([[1e160], [1.0]]), np.ones(2))
    with pytest.raises(ValueError, match="rescale"):
        jb.with_factor(model)


def own_loss(m):
    return jnp.logaddexp(0.0, -m)


def test_constants_inside_jit_do_not_reach_a_users_function():
    """A callback must not call jax; everything is a constant here, so only the place gives it away."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 3)), np.array([1.0, -1.0] * 6)
    loss = jb.losses.from_margin(own_loss, smoothness=0.25, domain=(0.0, 1.0))
    model = jb.fit(jb.Problem(loss, jb.penalties.l2(0.1)), X, y)
    for ask in (lambda: jb.worst_case_removal(model, 2, X), lambda: jb.largest_certified_removal(model, X),
                lambda: jb.leave_one_out(model).scores.upper):  # fmt: skip
        with pytest.raises(ValueError, match="your own functions"):
            jax.jit(lambda t, ask=ask: ask() + t)(0)
    with pytest.raises(ValueError, match="attack_removal retrains on the host"):
        plain = jb.fit(jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1)), X, y)
        jax.jit(lambda t: (jb.attack_removal(plain, 2, X[:1]), t)[1])(0)


def test_leave_one_out_of_a_constant_model_inside_jit():
    X, y = np.random.default_rng(0).normal(size=(12, 3)), np.array([1.0, -1.0] * 6)
    model = jb.fit(jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1)), X, y)
    with jax.enable_x64(True):
        inside = jax.jit(lambda t: jb.leave_one_out(model).scores.upper + t)(0.0)
    np.testing.assert_allclose(inside, jb.leave_one_out(model).scores.upper, rtol=1e-12)


@pytest.mark.slow
def test_partial_has_the_same_bits_in_any_batch():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(40, 5)), np.where(rng.normal(size=40) > 0, 1.0, -1.0)
    for penalty in (jb.penalties.elastic_net(0.05, 0.02), jb.penalties.l2(np.geomspace(0.05, 0.4, 5))):
        model = jb.fit(jb.Problem(jb.losses.logistic(), penalty), X, y)
        each = jb.each_target_flipped(model)
        whole = jb.bound_each(model, each, X[:3], jb.Partial())
        for size in (1, 3):
            parts = jb.bound_each(model, each, X[:3], jb.Partial(), batch_size=size)
            for a, b in ((parts.radius, whole.radius), (parts.scores().upper, whole.scores().upper)):
                np.testing.assert_array_equal(a, b)


def test_fold_numbers_do_not_wrap():
    model = jb.fit(PROBLEM, X, Y)
    with pytest.raises(ValueError, match="folds"):
        jb.cross_validate(model, np.repeat([2**32, 0, 1], 4))


def test_models_of_other_data_with_the_same_row_norms_are_refused():
    models = [jb.fit(PROBLEM, X, Y), jb.fit(PROBLEM, -X, Y)]
    with pytest.raises(ValueError, match="same data"):
        jb.penalty_sweep(models, [jb.penalties.l2(0.02)], X, Y)


@pytest.mark.parametrize("bad", [-0.05, 0.0, np.nan, np.inf])
def test_a_batch_of_penalties_is_checked(bad):
    with pytest.raises(ValueError, match="lam"):
        jb.fit_path(PROBLEM, X, Y, jax.vmap(jb.penalties.l2)(np.array([0.1, bad])))


def test_fractions_of_mistakes_are_rounded_to_nearest():
    model = jb.fit(PROBLEM, np.eye(2), np.array([1.0, -1.0]))
    test, labels = np.tile([[1.0, 0.0]], (6, 1)), np.array([-1.0] * 5 + [1.0])
    errors = jb.penalty_sweep(model, jax.vmap(jb.penalties.l2)(np.array([0.2, 0.3])), test, labels).errors
    assert np.all(errors.lower <= 5 / 6) and np.all(errors.upper >= 5 / 6)


def test_arguments_are_named():
    model = jb.fit(PROBLEM, X, Y)
    with pytest.raises(TypeError, match="keep_n"):
        jb.leave_one_out(model, keep_n="no")
    with pytest.raises(TypeError, match="model must come from fit, got int"):
        jb.penalty_sweep(3, [jb.penalties.l2(0.1)], X, Y)
    with pytest.raises(TypeError, match="callback"):
        jb.leave_one_out(model, jb.Pass(), callback=3)
    regression = jb.fit(jb.Problem(jb.losses.squared(), jb.penalties.l2(0.1)), X, X[:, 0])
    for bad in ("1", np.ones(12), 1j):
        with pytest.raises((TypeError, ValueError), match="threshold"):
            jb.find_label_errors(regression, threshold=bad)
