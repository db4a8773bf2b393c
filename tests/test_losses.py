"""Losses against 60-digit arithmetic and brute force; nothing here trusts the library's own formulas."""

import copy
import pickle

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from jaxbounds import losses
from jaxbounds.array import put, to_host
from jaxbounds.testing import check_loss

U = 2.0**-53
TINY = 1e-306  # results below the smallest normal float may be flushed to zero
RNG = np.random.default_rng(7)


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True)
def digits():
    with mp.workdps(60):
        yield


# ---------------------------------------------------------------- truth


def big(x):
    return mp.mpf(float(x))


class Truth:
    """f, -f' and f*(-alpha) of a built-in loss in mpmath; `curve` is the curvature of f* where alpha is uncertain."""

    def __init__(self, f, dual, conjugate, domain, kinks, curve=1.0):
        self.f, self.dual, self.conjugate = f, dual, conjugate
        self.domain, self.kinks, self.curve = domain, kinks, curve

    def young(self, q, alpha):
        q, alpha = big(q), big(alpha)
        with mp.workdps(1100 if abs(q) > 50 else 120):
            return self.f(q) + self.conjugate(alpha) + alpha * q


def clip(x, lo, hi):
    return max(lo, min(hi, x))


def smoothed_hinge(gamma):
    g = big(gamma)

    def f(q):
        return mp.mpf(0) if q >= 1 else (1 - q) ** 2 / (2 * g) if q >= 1 - g else 1 - q - g / 2

    return Truth(f, lambda q: clip((1 - q) / g, 0, 1), lambda a: g * a * a / 2 - a, (0, 1), (1.0, 1 - gamma), gamma)


def huber(delta):
    d = big(delta)

    def f(q):
        return q * q / 2 if abs(q) <= d else d * abs(q) - d * d / 2

    return Truth(f, lambda q: -clip(q, -d, d), lambda a: a * a / 2, (-delta, delta), (delta, -delta))


def entropy(a):
    return a * mp.log(a) if a > 0 else mp.mpf(0)


def epsilon_insensitive(epsilon):
    e = big(epsilon)

    def soft(q):
        return q - clip(q, -e, e)

    kinks = (epsilon, -epsilon)
    return Truth(lambda q: soft(q) ** 2 / 2, lambda q: -soft(q), lambda a: a * a / 2 + e * abs(a), EVERYWHERE, kinks)


def quantile(tau, gamma):
    t, rest, g = big(tau), big(1.0 - tau), big(gamma)

    def dual(q):
        return -clip(q / g, -t, rest)

    def f(q):
        a = dual(q)
        return -a * q - g * a * a / 2

    return Truth(f, dual, lambda a: g * a * a / 2, (tau - 1.0, tau), (-gamma * tau, gamma * (1.0 - tau)), gamma)


def modified_huber_value(q):
    return -4 * q if q < -1 else max(1 - q, 0) ** 2


def log_cosh_conjugate(a):
    return (entropy(1 + a) + entropy(1 - a)) / 2


RESIDUAL = ("squared", "huber", "squared_epsilon_insensitive", "smoothed_quantile", "log_cosh")
EVERYWHERE = (-np.inf, np.inf)
TRUTHS = {
    "smoothed_hinge(0.5)": (lambda: losses.smoothed_hinge(0.5), smoothed_hinge(0.5)),
    "smoothed_hinge(1e-10)": (lambda: losses.smoothed_hinge(1e-10), smoothed_hinge(1e-10)),
    "smoothed_hinge(7.3)": (lambda: losses.smoothed_hinge(7.3), smoothed_hinge(7.3)),
    "hinge": (losses.hinge, Truth(lambda q: max(1 - q, 0), lambda q: mp.mpf(q < 1), lambda a: -a, (0, 1), (1.0,))),
    "squared_hinge": (
        losses.squared_hinge,
        Truth(lambda q: max(1 - q, 0) ** 2 / 2, lambda q: max(1 - q, 0), lambda a: a * a / 2 - a, (0, np.inf), (1.0,)),
    ),
    "logistic": (
        losses.logistic,
        Truth(
            lambda q: mp.log1p(mp.exp(-q)),
            lambda q: 1 / (1 + mp.exp(q)),
            lambda a: entropy(a) + entropy(1 - a),
            (0, 1),
            (0.0,),
        ),
    ),
    "squared": (
        losses.squared,
        Truth(lambda q: q * q / 2, lambda q: -q, lambda a: a * a / 2, EVERYWHERE, (0.0,)),
    ),
    "huber(0.7)": (lambda: losses.huber(0.7), huber(0.7)),
    "huber(1e-8)": (lambda: losses.huber(1e-8), huber(1e-8)),
    "squared_epsilon_insensitive(0.3)": (lambda: losses.squared_epsilon_insensitive(0.3), epsilon_insensitive(0.3)),
    "smoothed_quantile(0.8, 0.25)": (lambda: losses.smoothed_quantile(0.8, 0.25), quantile(0.8, 0.25)),
    "modified_huber": (
        losses.modified_huber,
        Truth(modified_huber_value, lambda q: 2 * clip(1 - q, 0, 2), lambda a: a * a / 4 - a, (0, 4), (1.0, -1.0)),
    ),
    "log_cosh": (
        losses.log_cosh,
        Truth(lambda q: mp.log(mp.cosh(q)), lambda q: -mp.tanh(q), log_cosh_conjugate, (-1, 1), (0.0,)),
    ),
}
SMALL = [name for name in TRUTHS if "1e-" not in name and "7.3" not in name]  # one of each kind


@pytest.fixture(params=list(TRUTHS))
def case(request):
    build, truth = TRUTHS[request.param]
    return build(), truth


def compiled(names):
    """The names as parameters; what compiles much for the newer losses is slow."""
    new = ("squared_epsilon", "smoothed_quantile", "modified", "log_cosh")
    return [pytest.param(name, marks=[pytest.mark.slow] if name.startswith(new) else []) for name in names]


@pytest.fixture(params=compiled(SMALL))
def kind(request):
    build, truth = TRUTHS[request.param]
    return build(), truth


def magnitudes(low, high, n):
    return 10 ** RNG.uniform(low, high, n) * RNG.choice([-1.0, 1.0], n)


def coordinates(truth, n):
    """Far out, near the kinks to the last bit, and in between."""
    kinks = RNG.choice(truth.kinks, n)
    return np.concatenate(
        [RNG.uniform(-5, 5, n), kinks * (1 + magnitudes(-17, 0, n)), kinks + magnitudes(-17, 3, n), kinks, -kinks]
    )


def near_duals(truth, q):
    """alpha = a(q) + D with D from 1e-17 to 1 (relative or absolute), the ends of the domain, and exact hits."""
    a = np.array([float(truth.dual(big(x))) for x in q])
    lo, hi = truth.domain
    choice = RNG.integers(0, 5, len(q))
    ends = RNG.choice([v for v in (lo, hi, 0.5, 1e-20, 1e-300, 1 - U) if np.isfinite(v)], len(q))
    parts = [a * (1 + magnitudes(-17, 0.3, len(q))), a + magnitudes(-17, 0, len(q)), ends, a, 1 - (1 - a) * (
        1 + magnitudes(-16, 0, len(q)))]
    return np.clip(np.select([choice == k for k in range(5)], parts), lo, hi)


def as_jax(*arrays):
    return tuple(jnp.asarray(a, jnp.float64) for a in arrays)


# ---------------------------------------------------------------- Fenchel-Young terms


@pytest.mark.parametrize("path", ["jit", "constant", "host"])
def test_fenchel_young_is_never_below_the_truth_and_tight(case, path, x64):
    loss, truth = case
    q = coordinates(truth, 60)
    alpha = near_duals(truth, q)
    if path == "jit":
        young = jax.jit(lambda loss, *args: loss.fenchel_young(*args))(loss, *as_jax(q, alpha, q))
    elif path == "constant":  # XLA reassociates (1 - q) - gamma when gamma is a constant
        young = jax.jit(lambda *args: loss.fenchel_young(*args))(*as_jax(q, alpha, q))
    else:
        young = to_host(loss).fenchel_young(q, alpha, q)
        assert type(young) is np.ndarray
    for x, a, value in zip(q, alpha, np.asarray(young), strict=True):
        exact = truth.young(x, a)
        assert value >= 0
        assert big(value) >= exact * (1 - 16 * U) - TINY, (x, a, value, float(exact))
        rounding = 8 * U * (1 + mp.sqrt(truth.curve) * abs(truth.dual(big(x))))
        wide = mp.sqrt(exact) * (1 + mp.mpf(1e-11)) + rounding
        assert big(value) <= wide**2 + 8 * U * truth.curve * abs(1 - a) + TINY, (x, a, value, float(exact))


def test_logistic_far_out(x64):
    loss, truth = losses.logistic(), TRUTHS["logistic"][1]
    q = np.array([690.7, 690.8, 709.0, 745.0, 1000.0, 1e5] * 2) * np.repeat([1.0, -1.0], 6)
    for alpha in (0.0, 1.0, 0.5, 1e-300, 1e-200, 1 - U):
        for value, x in zip(np.asarray(loss.fenchel_young(q, np.full(12, alpha), q)), q, strict=True):
            with mp.workdps(400):
                a, m = big(alpha), big(x)
                # log(1+e^-m) = max(-m, 0) here, to within e^-690
                exact = max(-m, 0) + truth.conjugate(a) + a * m
            assert np.isfinite(value)
            assert exact * (1 - 16 * U) - 1e-299 <= value <= exact * (1 + mp.mpf(1e-12)) + 2e-12


def test_fenchel_young_refuses_infeasible_and_nan(kind, x64):
    loss, truth = kind
    lo, hi = truth.domain
    outside = np.array([v for v in (lo - 1e-9, hi + 1e-9, np.nan) if not np.isinf(v)])
    q = np.full_like(outside, 0.3)
    assert np.all(np.isposinf(loss.fenchel_young(q, outside, q)))
    assert np.all(np.isposinf(loss.conjugate(outside[:-1], q[:-1])))
    assert np.isnan(loss.fenchel_young(np.array([np.nan]), np.array([0.5]), np.array([1.0]))).all()
    inside = np.array([max(lo, -1.0), min(hi, 1.0)])
    assert np.array_equal(loss.clip(np.array([-1e9, 1e9]), inside), np.clip([-1e9, 1e9], lo, hi))


def test_values_duals_and_conjugates(case, x64):
    loss, truth = case
    q = coordinates(truth, 20)
    alpha = near_duals(truth, q)
    got = [np.asarray(v) for v in (loss.value(q, q), loss.dual(q, q), loss.conjugate(alpha, q))]
    lo, hi = (np.asarray(v) for v in loss.dual_interval(q, q))
    for k, (x, a) in enumerate(zip(q, alpha, strict=True)):
        with mp.workdps(500):
            f, dual, conjugate = truth.f(big(x)), truth.dual(big(x)), truth.conjugate(big(a))
        assert abs(got[0][k] - f) <= 16 * U * abs(f) + 8 * U * U + TINY
        assert abs(got[1][k] - dual) <= 8 * U * abs(dual) + TINY
        assert abs(got[2][k] - conjugate) <= 16 * U * (abs(conjugate) + abs(a)) + TINY
        assert lo[k] - TINY <= dual <= hi[k] + TINY
        assert hi[k] - lo[k] <= 40 * U * abs(dual) + TINY or x == 1.0
    assert np.all(lo >= truth.domain[0]) and np.all(hi <= truth.domain[1])


def test_subdifferentials_at_kinks(x64):
    q = np.array([1.0, np.nextafter(1.0, 0.0), np.nextafter(1.0, 2.0)])
    lo, hi = losses.hinge().dual_interval(q, q)
    assert np.array_equal(lo, [0, 1, 0]) and np.array_equal(hi, [1, 1, 0])
    lo, hi = losses.smoothed_hinge(0.5).dual_interval(np.array([2.0, 0.25, -1.0]), q)
    assert lo[0] == hi[0] == 0 and lo[1] == hi[1] == 1 and lo[2] == hi[2] == 1  # screening needs exact 0 and 1


# ---------------------------------------------------------------- curvature and the dual step


def test_curvature_contains_every_secant_slope(kind, x64):
    loss, truth = kind
    n = 300
    lo = np.concatenate([RNG.uniform(-3, 3, n), RNG.choice(truth.kinks, n) + magnitudes(-17, 0, n)])
    hi = lo + np.abs(magnitudes(-6, 0.5, 2 * n))
    low, high = (np.asarray(v) for v in jax.jit(lambda loss, *a: loss.curvature(*a))(loss, *as_jax(lo, hi, lo)))
    assert np.all(low >= 0) and np.all(low <= high)
    if loss.smoothness is not None:
        assert np.all(high <= float(loss.smoothness))
    for _ in range(5):
        a, b = np.sort(RNG.uniform(0, 1, (2, 2 * n)), axis=0) * (hi - lo) + lo
        for k in np.flatnonzero(b > a)[::7]:
            slope = (truth.dual(big(a[k])) - truth.dual(big(b[k]))) / (big(b[k]) - big(a[k]))
            assert low[k] <= slope <= high[k]


def test_curvature_is_exact_away_from_kinks(x64):
    lo, hi = np.array([0.6, 1.1, -3.0, 0.9, 1.0, 0.5]), np.array([0.7, 5.0, 0.2, 1.5, 1.0, 0.5])
    low, high = losses.smoothed_hinge(0.5).curvature(lo, hi, lo)
    assert np.array_equal(low, [2, 0, 0, 0, 0, 0]) and np.array_equal(high, [2, 0, 0, 2, 2, 2])
    low, high = losses.huber(0.7).curvature(np.array([-0.6, 0.8]), np.array([0.6, 2.0]), lo[:2])
    assert np.array_equal(low, [1, 0]) and np.array_equal(high, [1, 0])
    low, high = losses.hinge().curvature(np.array([0.0, 0.0]), np.array([0.5, 1.0]), lo[:2])
    assert np.array_equal(low, [0, 0]) and np.array_equal(high, [0, np.inf])


def test_dual_step_maximises_its_objective(case, x64):
    loss, truth = case
    q, kappa = (v.ravel() for v in np.meshgrid(np.linspace(-3, 3, 13), [0.0, 1e-3, 0.3, 1.0, 40.0, 1e6]))
    lo, hi = max(truth.domain[0], -4.0), min(truth.domain[1], 4.0)
    alpha = RNG.uniform(lo, hi, q.shape)
    new = np.asarray(loss.dual_step(q, alpha, q, kappa))
    assert np.all((new >= truth.domain[0]) & (new <= truth.domain[1]))
    points = np.asarray(loss.step_point(q, alpha, q, kappa))
    assert np.allclose(points, q + kappa * (new - alpha), rtol=1e-9, atol=1e-9 * (1 + kappa.max() * 1e-3))

    def objective(a, k):
        return -truth.conjugate(big(a)) - big(kappa[k]) / 2 * (big(a) - big(alpha[k])) ** 2 - big(q[k]) * big(a)

    for k in range(0, len(q), 3):
        best = objective(new[k], k)
        near = new[k] + np.array([-1.0, 1.0]) * 1e-4 * min(1.0, truth.domain[1] - truth.domain[0])
        for other in [*np.clip(near, *truth.domain), *np.linspace(lo, hi, 9)]:
            assert objective(other, k) <= best + 1e-12 * (1 + abs(best)), (q[k], kappa[k], alpha[k], new[k], other)


# ---------------------------------------------------------------- gradients


def test_gradients_are_finite_and_right(kind, x64):
    loss, truth = kind
    q = np.concatenate([np.linspace(-4, 4, 17), truth.kinks, [1e3, -1e3]])
    alpha = np.clip(np.linspace(-0.1, 1.1, len(q)), max(truth.domain[0], -5), min(truth.domain[1], 5))
    q, alpha = as_jax(q, alpha)

    calls = {
        "young": lambda q, alpha: loss.fenchel_young(q, alpha, q),
        "value": lambda q, alpha: loss.value(q, q),
        "dual": lambda q, alpha: loss.dual(q, q),
        "step": lambda q, alpha: loss.dual_step(q, alpha, q, jnp.ones_like(q)),
        "conjugate": lambda q, alpha: loss.conjugate(alpha, q),
    }

    @jax.jit
    def run(loss, q, alpha):
        grads = {k: jax.grad(lambda *a, f=f: jnp.sum(f(*a)), (0, 1))(q, alpha) for k, f in calls.items()}
        return grads, loss.dual(q, q), loss.second(q, q)

    grads, dual, second = jax.tree.map(np.asarray, run(loss, q, alpha))
    q, alpha = np.asarray(q), np.asarray(alpha)
    inside = (alpha > truth.domain[0]) & (alpha < truth.domain[1])
    assert all(np.all(np.isfinite(g[0])) and np.all(np.isfinite(g[1][inside])) for g in grads.values())
    smooth = np.min(np.abs(q[:, None] - np.array(truth.kinks)), axis=1) > 1e-3
    smooth &= inside & (np.abs(q) < 5)
    assert np.allclose(grads["young"][0][smooth], (alpha - dual)[smooth], rtol=1e-9, atol=1e-12)
    assert np.allclose(grads["value"][0][smooth], -dual[smooth], rtol=1e-12)
    assert np.allclose(grads["dual"][0][smooth], -second[smooth], rtol=1e-9, atol=1e-12)


def test_dual_step_gradient_of_the_logistic(x64):
    loss, (q, alpha, kappa) = losses.logistic(), as_jax(0.3, 0.2, 2.0)
    step = jax.jit(lambda q: loss.dual_step(q, alpha, q, kappa))
    got, h = jax.jit(jax.grad(step))(q), 1e-5
    assert np.isclose(got, (step(q + h) - step(q - h)) / (2 * h), rtol=1e-7)
    at_zero = jax.jit(jax.grad(jax.grad(lambda q: loss.value(q, q))))(jnp.zeros(()))
    assert np.isclose(at_zero, 0.25)


# ---------------------------------------------------------------- objects


@pytest.mark.parametrize("build", [losses.smoothed_hinge, losses.huber])
@pytest.mark.parametrize(
    "bad, error, text",
    [
        (0.0, ValueError, "greater than 0"),
        (-1, ValueError, "= -1 is not allowed"),
        (np.nan, ValueError, "finite"),
        (np.inf, ValueError, "finite"),
        ("0.5", TypeError, "'0.5'"),
        (True, TypeError, "True"),
        (None, TypeError, "None"),
        (1j, TypeError, "number"),
        ([0.5, 0.5], ValueError, r"shape \(2,\)"),
        (np.array([True]), TypeError, "number"),
    ],
)
def test_bad_numbers_are_refused(build, bad, error, text):
    with pytest.raises(error, match=text) as info:
        build(bad)
    assert ("gamma" if build is losses.smoothed_hinge else "delta") in str(info.value)


@pytest.mark.parametrize("number", [1, 0.5, np.float32(0.5), np.int64(2), np.array(0.25), np.float16(0.5)])
@pytest.mark.parametrize("enabled", [False, True])
def test_numbers_become_float64_and_stay(number, enabled):
    with jax.enable_x64(enabled):
        loss = losses.smoothed_hinge(number)
        for same in (loss, pickle.loads(pickle.dumps(loss)), copy.copy(loss), copy.deepcopy(loss)):
            assert same.gamma.dtype == jnp.float64 and isinstance(same.gamma, jax.Array)
            assert float(same.gamma) == float(number)
            assert float(same.smoothness) == 1 / float(number)


@pytest.mark.parametrize("enabled", [False, True])
def test_methods_open_their_own_scope(enabled):
    with jax.enable_x64(enabled):
        third = 1 / 3
        for loss in (losses.smoothed_hinge(0.7), to_host(losses.smoothed_hinge(0.7))):
            value = loss.value(np.array([third], np.float64), np.array([1]))
            assert value.dtype == np.float64
            assert float(value[0]) == (1 - third) ** 2 / 1.4 or abs(float(value[0]) - (1 - third) ** 2 / 1.4) < 1e-16
        inside = jax.jit(lambda gamma, q: losses.smoothed_hinge(gamma).value(q, q))
        assert inside(0.7, np.float32(0.25)).dtype == jnp.float64


def test_parameters_can_be_mapped_and_do_not_recompile(x64):
    gammas = np.array([0.2, 0.4, 0.8])
    mapped = jax.vmap(losses.smoothed_hinge)(gammas)
    assert mapped.gamma.dtype == jnp.float64 and np.array_equal(mapped.gamma, gammas)
    values = jax.vmap(lambda loss: loss.value(jnp.float64(0.9), jnp.float64(1.0)))(mapped)
    assert np.allclose(values, 0.1**2 / (2 * gammas), rtol=1e-15)
    assert np.isclose(jax.grad(lambda g: losses.smoothed_hinge(g).value(jnp.float64(0.9), 1.0))(0.5), -0.02)
    traces = []

    @jax.jit
    def run(loss, q):
        traces.append(1)
        return loss.value(q, q)

    for gamma in gammas:
        run(losses.smoothed_hinge(gamma), jnp.ones(3))
    assert len(traces) == 1


def test_names_and_properties():
    table = {name: build() for name, (build, _) in TRUTHS.items()}
    for name, loss in table.items():
        assert loss.name == name.split("(")[0]
        assert loss.classification == (loss.name not in RESIDUAL)
        assert loss.nonnegative and not loss.defined_by_ref
    assert table["hinge"].smoothness is None
    got = {name: float(loss.smoothness) for name, loss in table.items() if loss.smoothness is not None}
    assert got["smoothed_hinge(0.5)"] == 2 and got["logistic"] == 0.25 and got["squared_hinge"] == 1
    assert got["squared"] == got["huber(0.7)"] == 1
    y, s = np.array([-1.0, 1.0]), np.array([2.0, 3.0])
    assert np.array_equal(losses.hinge().coordinate(s, y), [-2, 3]) and np.array_equal(losses.hinge().orientation(y), y)
    assert np.array_equal(losses.squared().coordinate(s, y), [3, 2])
    assert np.array_equal(losses.squared().orientation(y), [1, 1])


# ---------------------------------------------------------------- users' losses


def softplus_margin(m, t):
    return t * jnp.logaddexp(0.0, -m / t)


def piecewise_margin(m, gamma):
    return jnp.where(m >= 1, 0.0, jnp.where(m >= 1 - gamma, (1 - m) ** 2 / (2 * gamma), 1 - m - gamma / 2))


def poisson_score(s, y):
    return jnp.exp(s) - y * s


def absolute_score(s, y, scale):
    return scale * jnp.abs(s - y)


def hinge_conjugate(v, gamma):
    return jnp.where((v >= -1) & (v <= 0), v + gamma * v * v / 2, jnp.inf)


def test_users_margin_loss_matches_the_built_in(x64):
    mine = to_host(losses.from_margin(softplus_margin, 0.5, (0.5,), domain=(0.0, 1.0)))
    theirs = losses.logistic()
    q, ref = (v.ravel() for v in np.meshgrid(np.linspace(-15, 15, 31), np.linspace(-7, 9, 17)))
    assert np.allclose(mine.value(q, q), theirs.value(2 * q, q) / 2, rtol=1e-13)
    alpha = np.asarray(mine.dual(ref, q))
    assert np.allclose(alpha, theirs.dual(2 * ref, q), rtol=1e-13)
    exact = np.asarray(theirs.fenchel_young(2 * q, alpha, q)) / 2
    for young in (mine.fenchel_young(q, alpha, q, ref), mine.fenchel_young(q, alpha, q)):
        assert np.all(young >= exact * (1 - 1e-12) - 1e-25)  # alpha is rounded, -f'(ref) is not
        assert np.all(young <= exact + 64 * U * (1 + np.abs(q)) * (2 + np.abs(ref)))
    assert np.allclose(mine.conjugate(alpha, q), np.asarray(theirs.conjugate(alpha, q)) / 2, rtol=1e-9, atol=1e-13)
    assert np.allclose(mine.second(q, q), 2 * np.asarray(theirs.second(2 * q, q)), rtol=1e-12)
    low, high = mine.curvature(q, q + 1, q)
    assert np.all(low == 0) and np.all(high == 0.5)


@pytest.mark.parametrize("path", ["jit", "host"])
def test_users_fenchel_young_against_mpmath(path, x64):
    loss = losses.from_margin(softplus_margin, 0.5, (0.5,))
    ref = RNG.uniform(-6, 6, 200)
    q = ref + magnitudes(-12, 1, 200)
    call = jax.jit(lambda loss, *a: (loss.dual(a[1], a[0]), loss.fenchel_young(a[0], a[0], a[0], a[1])))
    host = to_host(loss)
    _, young = call(loss, *as_jax(q, ref)) if path == "jit" else (0, host.fenchel_young(q, q, q, ref))
    for x, r, value in zip(q, ref, np.asarray(young), strict=True):
        x, r = big(x), big(r)
        slope = -1 / (1 + mp.exp(2 * r))
        exact = (mp.log1p(mp.exp(-2 * x)) - mp.log1p(mp.exp(-2 * r))) / 2 - slope * (x - r)
        assert big(value) >= exact * (1 - 16 * U)
        assert value <= min((x - r) ** 2 / 4 * (1 + 64 * U), exact + 64 * U * (1 + abs(x) + abs(r)))


def test_users_dual_at_the_ends_of_its_domain(x64):
    mine = to_host(losses.from_margin(piecewise_margin, 2.0, (0.5,), domain=(0, 1)))
    theirs = to_host(losses.smoothed_hinge(0.5))
    q, alpha = (v.ravel() for v in np.meshgrid(np.linspace(-4, 4, 17), [0.0, 1e-9, 0.3, 1 - 1e-9, 1.0]))
    exact = theirs.fenchel_young(q, alpha, q)
    assert np.allclose(mine.fenchel_young(q, alpha, q), exact, rtol=1e-12, atol=1e-12)
    assert np.all(np.isposinf(mine.fenchel_young(q[:2], np.array([-0.1, 1.1]), q[:2])))
    supplied = to_host(losses.from_margin(piecewise_margin, 2.0, (0.5,), conjugate=hinge_conjugate))
    assert np.allclose(supplied.conjugate(alpha, q), theirs.conjugate(alpha, q), rtol=1e-14, atol=1e-15)
    assert np.all(np.isposinf(supplied.fenchel_young(q[:2], np.array([-0.1, 1.1]), q[:2])))
    logistic = to_host(losses.from_margin(softplus_margin, 0.5, (0.5,)))
    assert np.all(np.isposinf(logistic.fenchel_young(q[:2], np.array([-0.1, 1.1]), q[:2])))  # never attained
    new = mine.dual_step(q, alpha, q, np.full_like(q, 3.0))
    assert np.allclose(new, theirs.dual_step(q, alpha, q, np.full_like(q, 3.0)), atol=1e-9)


def test_users_score_loss(x64):
    loss = losses.from_score(poisson_score)
    y, s = np.array([0.5, 2.0, 7.0, 1.0]), np.array([-1.0, 0.5, 2.0, 0.0])
    assert not loss.classification and loss.smoothness is None and loss.defined_by_ref and not loss.nonnegative
    assert np.array_equal(loss.coordinate(s, y), s) and np.array_equal(loss.orientation(y), np.ones(4))
    assert np.allclose(loss.value(s, y), np.exp(s) - y * s, rtol=1e-15)
    assert np.allclose(loss.dual(s, y), y - np.exp(s), rtol=1e-14)
    alpha = np.array([0.2, 1.5, -3.0, 0.0])  # exp(s) = y - alpha
    rate = y - alpha
    assert np.allclose(loss.conjugate(alpha, y), rate * np.log(rate) - rate, rtol=1e-12, atol=1e-12)
    exact = np.exp(s) - rate - (s - np.log(rate)) * rate
    young = np.asarray(loss.fenchel_young(s, alpha, y))
    assert np.all(young >= exact - 1e-16) and np.allclose(young, exact, rtol=1e-12, atol=1e-13)
    kappa = np.full(4, 0.7)
    new, point = np.asarray(loss.dual_step(s, alpha, y, kappa)), np.asarray(loss.step_point(s, alpha, y, kappa))
    assert np.allclose(new, y - np.exp(point), rtol=1e-12) and np.allclose(point, s + kappa * (new - alpha), rtol=1e-12)


def test_users_kinks_are_seen(x64):
    loss = losses.from_score(absolute_score, params=(2.0,))
    lo, hi = loss.dual_interval(np.array([1.0, 1.5, 0.0]), np.array([1.0, 1.0, 0.0]))
    assert np.allclose(lo, [-2, -2, -2]) and np.allclose(hi, [2, -2, 2])
    low, high = loss.curvature(np.zeros(1), np.ones(1), np.ones(1))
    assert low[0] == 0 and np.isposinf(high[0])


def test_users_gradients_are_finite(x64):
    mine, theirs = losses.from_margin(softplus_margin, 0.5, (0.5,)), losses.logistic()
    q, alpha = as_jax(np.linspace(-3, 3, 7), np.linspace(0.1, 0.9, 7))

    @jax.jit
    def run(mine, q, alpha):
        ones = jnp.ones(7)
        value = jax.grad(lambda mine: mine.value(jnp.zeros(1), jnp.ones(1))[0])(mine)
        return value.params[0], [
            jax.grad(lambda *a, f=f: jnp.sum(f(*a)), (0, 1))(q, alpha)
            for f in (
                lambda q, a: mine.fenchel_young(q, a, q),
                lambda q, a: theirs.fenchel_young(2 * q, a, q) / 2,
                lambda q, a: mine.dual_step(q, a, q, ones),
                lambda q, a: theirs.dual_step(2 * q, a, q, 2 * ones),
            )
        ]

    temperature, grads = run(mine, q, alpha)
    assert np.isclose(temperature, np.log(2))
    for got, exact in (grads[:2], grads[2:]):
        assert np.allclose(got[0], exact[0], atol=1e-9) and np.allclose(got[1], exact[1], atol=1e-9)


def linear(m):
    return -m


def constant_slope(m):
    return -jnp.ones_like(m)


def narrow(lo, hi, t):
    return jnp.zeros_like(lo), jnp.where(lo > 5, 1e-3, 1 / t)


def test_supplied_pieces_are_used(x64):
    loss = losses.from_margin(linear, 1.0, derivative=constant_slope, second=constant_slope)
    q = np.array([0.3, 4.0])
    assert np.array_equal(loss.dual(q, q), [1, 1]) and np.array_equal(loss.second(q, q), [-1, -1])
    loss = losses.from_margin(softplus_margin, 0.5, (0.5,), curvature_range=narrow)
    low, high = loss.curvature(np.array([0.0, 6.0]), np.array([1.0, 7.0]), q)
    assert np.all(low == 0) and np.allclose(high, [2.0, 1e-3])


def returns_pair(m):
    return m, m


def returns_vector(m):
    return jnp.stack([m, m])


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda: losses.from_margin(None), TypeError, "phi must be a function"),
        (lambda: losses.from_margin(3.0), TypeError, "phi must be a function"),
        (lambda: losses.from_score(returns_pair), TypeError, "argument"),
        (lambda: losses.from_margin(returns_pair), ValueError, "one real number"),
        (lambda: losses.from_margin(returns_vector), ValueError, "one real number"),
        (lambda: losses.from_margin(linear, derivative=2.0), TypeError, "derivative must be a function"),
        (lambda: losses.from_margin(linear, smoothness=0), ValueError, "smoothness"),
        (lambda: losses.from_margin(linear, smoothness="1"), TypeError, "smoothness"),
        (lambda: losses.from_margin(softplus_margin, params=0.5), TypeError, r"params=\(value,\)"),
        (lambda: losses.from_margin(softplus_margin, params=("a",)), TypeError, r"params\[0\]"),
        (lambda: losses.from_margin(linear, domain=(1.0, 0.0)), ValueError, "domain"),
        (lambda: losses.from_margin(linear, domain=1.0), TypeError, "domain"),
    ],
)
def test_bad_pieces_are_refused(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_one_compilation_per_function(x64):
    traces = []

    def phi(m, t):
        traces.append(1)
        return t * m * m / 2

    run = jax.jit(lambda loss, q: loss.value(q, q))
    made = [losses.from_margin(phi, 3.0, (t,)) for t in (1.0, 2.0, 3.0)]
    before = len(traces)
    for loss in made:
        run(loss, jnp.ones(3))
    assert len(traces) == before + 1


@pytest.mark.parametrize("enabled", [False, True])
def test_users_losses_pickle_and_stay_float64(enabled):
    with jax.enable_x64(enabled):
        loss = losses.from_margin(softplus_margin, 0.5, (0.5,), domain=(0, 1))
        again = pickle.loads(pickle.dumps(loss))
        assert again.fn is softplus_margin
        assert all(leaf.dtype == jnp.float64 for leaf in jax.tree.leaves((loss, again)))
        value = loss.value(np.array([1 / 3]), np.array([1.0]))
        assert value.dtype == np.float64 and abs(float(value[0]) - np.logaddexp(0, -2 / 3) / 2) < 1e-15


# ---------------------------------------------------------------- one set of formulas, on NumPy and on jax


def softplus_plain(m):
    return jnp.logaddexp(0.0, -m)


def squared_score(s, y):
    return (s - y) ** 2 / 2


USERS = {
    "user, margin": lambda: losses.from_margin(softplus_margin, 0.5, (0.5,), domain=(0.0, 1.0)),
    "user, no parameters": lambda: losses.from_margin(softplus_plain, smoothness=0.25),
    "user, conjugate": lambda: losses.from_margin(piecewise_margin, 2.0, (0.5,), conjugate=hinge_conjugate),
    "user, score": lambda: losses.from_score(squared_score, 1.0),
}
EVERY = {**{name: build for name, (build, _) in TRUTHS.items()}, **USERS}


def everything(loss, q, right, alpha, y, kappa):
    """Each public method; alpha lies inside every domain, and right of every q."""
    return {
        "coordinate": loss.coordinate(q, y),
        "orientation": loss.orientation(y),
        "value": loss.value(q, y),
        "dual": loss.dual(q, y),
        "dual_interval": loss.dual_interval(q, y),
        "conjugate": loss.conjugate(alpha, y),
        "domain": loss.domain(y),
        "young": loss.fenchel_young(q, alpha, y),
        "young, ref": loss.fenchel_young(q, loss.dual(right, y), y, right),
        "second": loss.second(q, y),
        "curvature": loss.curvature(q, right, y),
        "feasible": loss.feasible(alpha, y, q),
        "clip": loss.clip(q, y),
        "dual_step": loss.dual_step(q, alpha, y, kappa),
        "step_point": loss.step_point(q, alpha, y, kappa),
    }


def same_numbers(host, device):
    assert host.keys() == device.keys()
    for key, ours in host.items():
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(device[key]), strict=True):
            a, b = np.broadcast_arrays(a, np.asarray(b))
            assert b.dtype == np.float64, key
            assert np.array_equal(np.isfinite(a), np.isfinite(b)), key
            assert np.allclose(a, b, rtol=1e-11, atol=1e-13), (key, a, b)


def slopes(loss, q, right, alpha, y, kappa):
    """d value / d q and d young / d q, one entry."""
    del right, kappa
    return jax.grad(lambda q: loss.value(q, y))(q), jax.grad(lambda q: loss.fenchel_young(q, alpha, y))(q)


@pytest.mark.parametrize("name", compiled(EVERY))
def test_numpy_and_jax_agree(name):
    loss = EVERY[name]()
    limit = 0.9 * min(getattr(TRUTHS.get(name, (0, None))[1], "domain", (0, 1))[1], 1.0)
    q, alpha = np.array([-3.1, -0.4, 0.3, 0.62, 0.93, 1.7, 40.0]), limit * np.linspace(0.05, 1.0, 7)
    y, kappa = np.where(np.arange(7) % 2, 1.0, -1.0), np.full(7, 0.8)
    args = q, q + 1.0, alpha, y, kappa
    host = everything(to_host(loss), *args)
    for key, leaf in host.items():
        assert all(type(a) in (np.ndarray, np.float64, float) for a in jax.tree.leaves(leaf)), key
        assert all(np.asarray(a).dtype == np.float64 for a in jax.tree.leaves(leaf)), key

    def run(loss, *args):
        return everything(loss, *args), () if name in USERS else slopes(loss, *args)

    device, grads = jax.jit(jax.vmap(run, (None, 0, 0, 0, 0, 0)))(loss, *put(args))
    same_numbers(host, device)
    if name in USERS:
        return  # see test_users_gradients_are_finite
    in_value, in_young = grads
    assert in_value.dtype == in_young.dtype == np.float64
    assert np.allclose(np.asarray(in_value), -host["dual"], rtol=1e-11, atol=1e-14)
    away = np.min(np.abs(q[:, None] - np.array([1.0, 0.5, 0.7])), axis=1) > 0.05  # not at kinks
    away &= (name != "smoothed_hinge(1e-10)") & (np.abs(q) < 30)
    assert np.allclose(np.asarray(in_young)[away], (alpha - host["dual"])[away], rtol=1e-6, atol=1e-6)


def test_other_types_are_taken_as_float64():
    for enabled in (False, True):
        with jax.enable_x64(enabled):
            loss = losses.logistic()
            exact = loss.value(np.array([1.0, 2.0]), np.array([1.0, 1.0]))
            for q in ([1.0, 2.0], [1, 2], np.array([1, 2], np.int32), np.array([1, 2], np.float16), jnp.array([1, 2])):
                got = loss.value(q, np.ones(2, bool))
                assert got.dtype == np.float64 and np.allclose(np.asarray(got), exact, rtol=1e-15)
            assert np.shape(loss.value(1.0, 1)) == ()


@pytest.mark.parametrize("name", list(EVERY))
def test_empty_and_far_coordinates(name):
    loss, none = to_host(EVERY[name]()), np.zeros(0)
    assert all(np.shape(a) == (0,) for a in jax.tree.leaves(everything(loss, none, none, none, none, none)))
    far = np.array([np.inf, 1e308, -1e308, -np.inf])  # an infinite radius must not turn into NaN
    lo, hi = loss.dual_interval(far, np.ones(4))
    left, right = (float(end[0]) for end in loss.domain(np.ones(1)))
    assert np.all(lo <= hi) and np.all(lo >= left) and np.all(hi <= right)
    assert lo[0] <= max(left, -1.8e308) and hi[3] >= min(right, 1.0)


@pytest.mark.parametrize("name", SMALL)
def test_the_truth_is_the_supremum(name):
    truth = TRUTHS[name][1]
    grid = [mp.mpf(k) / 64 for k in range(-1024, 1025)] + [big(k) for k in truth.kinks]
    values = [truth.f(x) for x in grid]
    lo, hi = truth.domain
    for alpha in (0.0, 0.125, 0.5, 0.6875):
        best = max(-alpha * x - f for x, f in zip(grid, values, strict=True))
        exact = truth.conjugate(big(alpha))
        assert best <= exact and exact - best <= 2e-4, (alpha, best, exact)  # the grid misses at most 1/128^2
    for outside in (lo - 0.25, hi + 0.25):
        if np.isfinite(outside):  # then the supremum grows without end
            assert max(-outside * x - f for x, f in zip(grid, values, strict=True)) > 2


def test_users_loss_reproduces_the_logistic_without_parameters(x64):
    mine = losses.from_margin(softplus_plain, smoothness=0.25)
    q, ref = RNG.uniform(-20, 20, 60), RNG.uniform(-20, 20, 60)
    ref[:20] = q[:20] + magnitudes(-14, -3, 20)
    alpha = np.asarray(mine.dual(ref, q))
    by_ref, by_alpha = (np.asarray(mine.fenchel_young(q, alpha, q, *more)) for more in ((ref,), ()))
    truth = TRUTHS["logistic"][1]
    for k, (x, r) in enumerate(zip(q, ref, strict=True)):
        x, r = big(x), big(r)
        exact = truth.f(x) - truth.f(r) + truth.dual(r) * (x - r)  # alpha is the dual of ref, unrounded
        room = 64 * U * (1 + abs(x) + abs(r))
        assert exact * (1 - 16 * U) <= big(by_ref[k]) <= exact + room
        stored = truth.young(q[k], alpha[k])
        assert stored * (1 - 16 * U) <= big(by_alpha[k]) <= stored * (1 + mp.mpf(1e-6)) + room
    assert np.all(by_ref <= (q - ref) ** 2 / 8 * (1 + 64 * U))


@pytest.mark.parametrize("build", [softplus_margin, piecewise_margin])
def test_users_parameters_do_not_recompile(build, x64):
    traces = []

    @jax.jit
    def run(loss, q):
        traces.append(1)
        return loss.fenchel_young(q, loss.dual(q, q), q, q + 1.0)

    values = [run(losses.from_margin(build, 4.0, (t,)), jnp.arange(3.0)) for t in (0.25, 0.5, 1.0)]
    assert len(traces) == 1 and not np.array_equal(values[0], values[1])
    made = jax.vmap(lambda t: losses.from_margin(build, 4.0, (t,)))(jnp.array([0.25, 0.5, 1.0]))
    mapped = jax.vmap(lambda loss: run(loss, jnp.arange(3.0)))(made)
    assert np.allclose(mapped, values, rtol=1e-12)


# ---------------------------------------------------------------- Poisson: its domain and its f depend on the target


def poisson_truth(bound):
    """(g, g', g*) of the extended exponential, with the top rate as a float has it."""
    b = big(bound)
    top = mp.exp(b)

    def g(s):
        z = max(s - b, 0)
        return mp.exp(min(s, b)) * (1 + z + z * z / 2)

    def slope(s):
        return mp.exp(min(s, b)) * (1 + max(s - b, 0))

    def conjugate(r):
        return entropy(r) - r if r <= top else r * b + top * ((r / top - 1) ** 2 / 2 - 1)

    return g, slope, conjugate


@pytest.mark.parametrize("path", [pytest.param("jit", marks=pytest.mark.slow), "host"])
@pytest.mark.parametrize("bound", [2.0, -1.0])
def test_poisson_against_mpmath(bound, path, x64):
    loss, (g, slope, conjugate) = losses.poisson(bound), poisson_truth(bound)
    n = 300
    y = np.abs(RNG.choice([0.0, 1.0, 2.0, 3.0, 7.0, 20.0], n))
    q = np.where(RNG.random(n) < 0.5, RNG.uniform(-6, 4, n), bound + magnitudes(-16, 0, n))
    q[:60] = np.log(np.maximum(y[:60], 0.1)) * (1 + magnitudes(-16, -2, 60))  # rows that fit well: y - e^s cancels
    q[60:70] = RNG.uniform(-80, -30, 10)
    call = jax.jit(lambda loss, q, r, y: (loss.dual(r, y), loss.value(q, y), loss.second(q, y)))
    near = q + np.where(RNG.random(n) < 0.5, magnitudes(-15, 0.5, n), 0.0)
    args = as_jax(q, near, y) if path == "jit" else (q, near, y)
    here = loss if path == "jit" else to_host(loss)
    alpha, value, second = map(np.asarray, (call if path == "jit" else lambda loss, q, r, y: (
        loss.dual(r, y), loss.value(q, y), loss.second(q, y)))(here, *args))  # fmt: skip
    young = jax.jit(lambda loss, q, a, y: (loss.fenchel_young(q, a, y), loss.conjugate(a, y)))
    more = as_jax(q, alpha, y) if path == "jit" else (q, alpha, y)
    fy, star = map(np.asarray, young(here, *more) if path == "jit" else (
        here.fenchel_young(*more), here.conjugate(alpha, y)))  # fmt: skip
    lo, hi = (np.asarray(end) for end in loss.dual_interval(near, y))
    for k in range(n):
        s, r, t, a = big(q[k]), big(near[k]), big(y[k]), big(alpha[k])
        exact = t - slope(r)
        size = (1 + abs(mp.log(t))) * U * t if t > 0 else 0  # the rounding of log y stands for one of y
        assert abs(a - exact) <= 16 * U * abs(exact) + 4 * size + 1e-300
        assert lo[k] - 4 * size <= exact <= hi[k] + 4 * size and lo[k] <= alpha[k] <= hi[k] <= y[k]
        assert abs(value[k] - (g(s) - t * s)) <= 32 * U * (g(s) + t * abs(s))
        assert abs(second[k] - mp.exp(min(s, big(bound)))) <= 8 * U * second[k]
        rate = t - a
        star_exact = conjugate(rate)
        assert abs(star[k] - star_exact) <= 32 * U * (abs(entropy(rate)) + rate * (1 + abs(bound)))
        true = g(s) + star_exact - rate * s
        noise = (16 * U * (abs(a) + abs(slope(s) - t)) + 8 * size) ** 2 / mp.exp(min(s, big(bound)))
        crossing = 64 * U * (t + rate) * (1 + abs(s)) if (s > bound) != (rate > mp.exp(bound)) else 0
        assert big(fy[k]) >= true * (1 - 16 * U) - TINY, (q[k], y[k], alpha[k], fy[k], float(true))
        room = mp.sqrt(noise) * mp.sqrt(true) * 8 + noise * 16 + crossing
        assert big(fy[k]) <= true * (1 + mp.mpf(1e-11)) + room + 1e-300, (q[k], y[k], alpha[k], fy[k], float(true))
    assert np.all(np.isposinf(loss.fenchel_young(q[:3], y[:3] + 1e-9, y[:3])))


def test_poisson_slopes_against_mpmath(x64):
    loss, (_, slope, _) = losses.poisson(1.0), poisson_truth(1.0)
    n = 400
    q, y = RNG.uniform(-3, 3, n), np.full(n, 2.0)
    ends = np.sort(magnitudes(-9, 1, (2 * n)).reshape(2, n), axis=0)
    low, high = to_host(loss).secant(q, *ends, y)
    assert np.all(low >= 0) and np.all(high <= float(loss.smoothness))
    for k in range(n):
        for d in (*ends[:, k], ends[0, k] / 3 + ends[1, k] * 2 / 3):
            exact = (slope(big(q[k]) + big(d)) - slope(big(q[k]))) / big(d)
            assert low[k] <= exact <= high[k]
        tight = [(slope(big(q[k]) + big(d)) - slope(big(q[k]))) / big(d) for d in ends[:, k]]
        assert low[k] >= tight[0] * (1 - mp.mpf(1e-13)) and high[k] <= tight[1] * (1 + mp.mpf(1e-13))
    low, high = loss.secant(q[:3], np.array([-np.inf, -1.0, np.nan]), np.array([0.5, np.inf, 1.0]), y[:3])
    assert low[0] == low[2] == 0 and np.allclose(high[1:], np.e)
    assert np.array_equal(loss.curvature(np.array([3.0]), np.array([4.0]), y[:1])[1], [loss.smoothness])


@pytest.mark.slow
def test_poisson_dual_step_and_gradients(x64):
    loss = losses.poisson(1.5)
    q, kappa = (v.ravel() for v in np.meshgrid(np.linspace(-4, 4, 9), [0.0, 1e-3, 0.5, 30.0, 1e5]))
    y = np.where(np.arange(q.size) % 3, 2.0, 0.0)
    alpha = y - RNG.uniform(0, 9, q.size)
    new, point = (np.asarray(f(q, alpha, y, kappa)) for f in (loss.dual_step, loss.step_point))
    assert np.all(new <= y) and np.allclose(new, loss.dual(point, y), rtol=1e-12)
    assert np.allclose(point, q + kappa * (new - alpha), rtol=1e-8, atol=1e-8)
    args = as_jax(q, alpha, y)
    grads = jax.jit(jax.grad(lambda q, a, y: jnp.sum(loss.value(q, y) + loss.fenchel_young(q, a, y)), (0, 1)))(*args)
    assert all(np.all(np.isfinite(g)) for g in grads)
    inside = np.abs(q - 1.5) > 1e-9
    slope = -np.asarray(loss.dual(q, y))
    assert np.allclose(np.asarray(grads[0])[inside], (2 * slope + alpha)[inside], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda: losses.squared_epsilon_insensitive(-0.1), "epsilon = -0.1"),
        (lambda: losses.smoothed_quantile(0.0, 1.0), "tau = 0 "),
        (lambda: losses.smoothed_quantile(1.0, 1.0), "tau = 1 .*between 0 and 1"),
        (lambda: losses.smoothed_quantile(0.5, 0.0), "gamma = 0"),
        (lambda: losses.poisson(np.inf), "bound = inf"),
        (lambda: losses.poisson(301), "at most 300"),
    ],
)
def test_more_bad_numbers_are_refused(call, text):
    with pytest.raises(ValueError, match=text):
        call()


def test_check_loss_passes_the_new_losses():
    for loss in (
        losses.squared_epsilon_insensitive(0.3), losses.squared_epsilon_insensitive(0), losses.log_cosh(),
        losses.smoothed_quantile(0.05, 3.0), losses.modified_huber(), losses.poisson(2.0),
    ):  # fmt: skip
        check_loss(loss)
    flat = losses.squared_epsilon_insensitive(0).secant(np.zeros(2), -np.ones(2), np.ones(2), np.ones(2))
    assert np.array_equal(flat, np.ones((2, 2)))  # without a tube it is the squared loss
