"""Penalties against 60-digit arithmetic and brute force; nothing here trusts the library's own formulas."""

import copy
import pickle

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import oracle
import pytest
import table

import jaxbounds as jb
from jaxbounds import penalties
from jaxbounds.array import put, to_host

U = 2.0**-53
TINY = 1e-306
RNG = np.random.default_rng(11)


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True)
def digits():
    with mp.workdps(120):
        yield


def big(x):
    return mp.mpf(float(x))


class Truth:
    """psi, psi* and grad psi* of one coefficient in mpmath; `kink` is the dual value where psi* has one."""

    def __init__(self, psi, conjugate, primal, kink=0.0, strong=None, bound=None):
        self.psi, self.conjugate, self.primal = psi, conjugate, primal
        self.kink, self.strong, self.bound = kink, strong, bound

    def young(self, w, v):
        return self.psi(big(w)) + self.conjugate(big(v)) - big(w) * big(v)


def net(lam, l1):
    m, k = big(lam), big(l1)

    def soft(v):
        return mp.sign(v) * max(abs(v) - k, 0)

    return Truth(
        lambda w: m / 2 * w * w + k * abs(w), lambda v: soft(v) ** 2 / (2 * m), lambda v: soft(v) / m, l1, strong=lam
    )


def power(lam, q):
    m, q = big(lam), big(q)

    def primal(v):
        return mp.sign(v) * (abs(v) / m) ** (1 / (q - 1))

    return Truth(lambda w: m / q * abs(w) ** q, lambda v: m * (1 - 1 / q) * (abs(v) / m) ** (1 + 1 / (q - 1)), primal)


def lasso(kappa):
    k = big(kappa)
    return Truth(lambda w: k * abs(w), lambda v: mp.mpf(0), lambda v: mp.mpf(0), kappa, bound=kappa)


def quartic(w, lam):
    return lam / 2 * w**2 + w**4


def kinked(w, lam, l1):
    return lam / 2 * w**2 + l1 * jnp.abs(w)


def logcosh(w):
    return jnp.logaddexp(w, -w) - np.log(2.0)


def sparse_conjugate(v, lam, l1):
    return jnp.maximum(jnp.abs(v) - l1, 0.0) ** 2 / (2 * lam)


TRUTHS = {
    "l2": (lambda: penalties.l2(0.3), net(0.3, 0.0)),
    "elastic_net": (lambda: penalties.elastic_net(0.3, 0.7), net(0.3, 0.7)),
    "elastic_net(1e-8)": (lambda: penalties.elastic_net(1e-8, 0.7), net(1e-8, 0.7)),
    "l1": (lambda: penalties.l1(0.7), lasso(0.7)),
    "lq(1.05)": (lambda: penalties.lq(0.3, 1.05), power(0.3, 1.05)),
    "lq(1.5)": (lambda: penalties.lq(0.3, 1.5), power(0.3, 1.5)),
    "lq(2)": (lambda: penalties.lq(0.3, 2), power(0.3, 2.0)),
    "lq(4)": (lambda: penalties.lq(0.3, 4), power(0.3, 4.0)),
}
USERS = {
    "kinked": (lambda: penalties.from_function(kinked, 0.3, (0.3, 0.7), smooth=False), net(0.3, 0.7)),
    "kinked, not declared": (lambda: penalties.from_function(kinked, None, (0.3, 0.7), smooth=False), net(0.3, 0.7)),
    "kinked, conjugate": (
        lambda: penalties.from_function(kinked, 0.3, (0.3, 0.7), conjugate=sparse_conjugate, smooth=False),
        net(0.3, 0.7),
    ),
}
ALL = {**TRUTHS, **USERS}


@pytest.fixture(params=list(TRUTHS))
def case(request):
    build, truth = TRUTHS[request.param]
    return build(), truth


@pytest.fixture(params=list(ALL))
def any_case(request):
    build, truth = ALL[request.param]
    return build(), truth


def magnitudes(low, high, n):
    return 10 ** RNG.uniform(low, high, n) * RNG.choice([-1.0, 1.0], n)


def points(truth, n):
    """(w, v): v of all sizes and at the kink of psi*, w = u exactly, near u to the last bit, and anywhere."""
    near = (truth.kink or 0.3) * (1 + magnitudes(-17, -1, n))
    v = np.concatenate([RNG.uniform(-2, 2, n), near, magnitudes(-9, 1, n)])
    if truth.bound is not None:
        v = np.clip(v, -truth.bound, truth.bound)
    u = np.array([float(truth.primal(big(x))) for x in v])
    choice = RNG.integers(0, 4, 3 * n)
    w = np.select([choice == 0, choice == 1], [u, u * (1 + magnitudes(-17, 0.5, 3 * n))], magnitudes(-8, 1, 3 * n))
    return np.where(choice == 3, -w, w), v


# ---------------------------------------------------------------- Fenchel-Young terms


@pytest.mark.parametrize("path", ["jit", "host"])
def test_fenchel_young_is_never_below_the_truth_and_tight(any_case, path, x64):
    penalty, truth = any_case
    user = not hasattr(penalty, "lam") and not hasattr(penalty, "kappa")
    w, v = points(truth, 60)
    if path == "jit":
        both = jax.jit(lambda p, w, v: (p.fenchel_young(w, v), p.excess(w, v)))(penalty, jnp.asarray(w), jnp.asarray(v))
    else:
        host = to_host(penalty)
        both = host.fenchel_young(w, v), host.excess(w, v)
    noise, floor = (64 * U, 1e-27) if user else (0.0, TINY)
    for x, d, young, excess in zip(w, v, *map(np.asarray, both), strict=True):
        exact, u = max(truth.young(x, d), 0), truth.primal(big(d))
        size = truth.psi(big(x)) + truth.conjugate(big(d)) + abs(big(x) * big(d))
        if user:  # a conjugate found as u v - psi(u) carries the rounding of both
            size += truth.psi(u) + abs(u * big(d))
        assert young >= 0 and excess >= 0
        assert big(young) >= exact * (1 - 16 * U) - TINY, (x, d, young, float(exact))
        scale = mp.sqrt(truth.strong / 2 if truth.strong else 0) * abs(u)
        if hasattr(penalty, "q"):
            rounding = 1e-13 * size / (float(penalty.q) - 1) ** 2
        else:
            rounding = (8 * U * scale) ** 2
        wide = (mp.sqrt(exact) * (1 + mp.mpf(1e-9)) + 8 * U * scale) ** 2
        assert big(young) <= wide + rounding + noise * size + floor, (x, d, young, float(exact))
        lam = big(truth.strong) if penalty.strong_convexity is not None else 0
        true_excess = max(exact - lam / 2 * (big(x) - u) ** 2 - mp.mpf(1e-100) * size, 0)
        assert big(excess) >= true_excess - 32 * U * abs(true_excess) - 16 * U * (exact if user else 0) - TINY
        slack = 1e-6 * exact + (noise + 64 * U) * size if user else 64 * U * abs(true_excess)
        assert big(excess) <= true_excess + slack + rounding + floor or truth.strong is None


def test_values_conjugates_and_primal_points(case, x64):
    penalty, truth = case
    w, v = points(truth, 20)
    value, conjugate, u = (np.asarray(x) for x in (penalty.value(w), penalty.conjugate(v), penalty.grad_conjugate(v)))
    low, high = (np.asarray(x) for x in penalty.conjugate_interval(v, v))
    for k, (x, d) in enumerate(zip(w, v, strict=True)):
        psi, exact = truth.psi(big(x)), truth.primal(big(d))
        power = 1
        if hasattr(penalty, "q"):
            power = (2 + abs(mp.log(abs(big(d)) / 0.3))) / (float(penalty.q) - 1)
        assert abs(value[k] - psi) <= 16 * U * psi + TINY
        assert abs(conjugate[k] - truth.conjugate(big(d))) <= 8 * U * (2 + power) * truth.conjugate(big(d)) + TINY
        assert abs(u[k] - exact) <= 4 * U * (2 + power) * abs(exact) + TINY
        assert low[k] - TINY <= exact <= high[k] + TINY
        if truth.bound is None:
            assert high[k] - low[k] <= 16 * U * (2 + power) * abs(exact) + TINY


def test_outside_the_domain_of_the_conjugate(x64):
    penalty = penalties.l1(0.7)
    v = np.array([-0.8, np.nextafter(0.7, 1.0), np.nan, 0.7, -0.7])
    w = np.array([1.0, 0.0, 1.0, 2.0, 2.0])
    for got in (penalty.fenchel_young(w, v), penalty.excess(w, v), penalty.conjugate(v)):
        assert np.array_equal(np.isposinf(got), [True, True, True, False, False])
    low, high = penalty.conjugate_interval(np.array([-0.7, -0.6, -0.7, 0.7]), np.array([0.6, 0.7, 0.7, 0.7]))
    assert np.array_equal(low, [-np.inf, 0, -np.inf, 0]) and np.array_equal(high, [0, np.inf, np.inf, np.inf])


def test_conjugate_interval_is_unbounded_where_the_derivative_saturates(x64):
    penalty = penalties.from_function(logcosh)
    low, high = penalty.conjugate_interval(np.array([-1.0, -0.5, 1.2]), np.array([0.5, 1.0, 1.3]))
    assert np.isneginf(low[0]) and np.isposinf(high[1]) and np.isposinf(high[2])
    assert np.isclose(low[1], np.arctanh(-0.5)) and np.isclose(high[0], np.arctanh(0.5))
    assert np.isposinf(penalty.fenchel_young(np.array([1.0]), np.array([1.2]))[0])


# ---------------------------------------------------------------- proximal points, subgradients, level sets


def test_subgradients_and_proximal_points(any_case, x64):
    penalty, truth = to_host(any_case[0]), any_case[1]
    w = np.concatenate([np.linspace(-3, 3, 25), magnitudes(-8, 1, 10)])
    low, high = (np.asarray(x) for x in penalty.subgradient(w))
    for k, x in enumerate(w):  # a subgradient supports psi from below
        for other in (-2.5, -1e-3, 0.0, x * 1.01, x * 0.99, 1e-3, 4.0):
            for slope in (low[k], high[k]):
                line = truth.psi(big(x)) + big(slope) * (big(other) - big(x))
                assert line <= truth.psi(big(other)) + 1e-14 * (1 + abs(line))
    for step in (1e-3, 0.4, 50.0):
        x = np.asarray(penalty.prox(w, step))
        low, high = (np.asarray(v) for v in penalty.subgradient(x))
        force, slack = (w - x) / step, 1e-11 * (1 + np.abs(w) / step)
        assert np.all((force >= low - slack) & (force <= high + slack))
    low, high = penalty.subgradient(np.zeros(1))
    if truth.kink:
        assert np.isclose(low[0], -truth.kink) and np.isclose(high[0], truth.kink)


def test_second_derivatives(x64):
    w = np.array([-2.0, 0.5, 3.0])
    assert np.array_equal(penalties.l2(0.3).second(w), [0.3] * 3)
    assert np.array_equal(penalties.elastic_net(0.3, 1).second(w), [0.3] * 3)
    assert np.array_equal(penalties.l1(0.3).second(w), [0.0] * 3)
    assert np.allclose(penalties.lq(0.3, 3).second(w), 0.6 * np.abs(w))
    assert np.all(np.isfinite(penalties.lq(0.3, 1.5).second(np.zeros(1))))
    assert np.allclose(penalties.from_function(quartic, 0.1, (0.1,)).second(w), 0.1 + 12 * w**2)


def test_level_sets(any_case, x64):
    penalty, truth = to_host(any_case[0]), any_case[1]
    if penalty.strong_convexity is None and penalty.level(1.0) is None:
        return
    for value in (0.0, 1e-12, 0.3, 40.0):
        edge = float(penalty.level(value))
        assert truth.psi(big(edge)) >= big(value) * (1 - 1e-14)
        if not hasattr(penalty, "fn"):
            assert truth.psi(big(edge) * (1 - mp.mpf(1e-13))) <= value


# ---------------------------------------------------------------- per-column parameters


def test_vectors_are_per_column_and_can_be_taken(x64):
    lam, l1, q = np.array([0.1, 0.5, 2.0]), np.array([0.0, 0.2, 1.0]), np.array([1.5, 2.0, 3.0])
    w, v = np.array([1.0, -2.0, 0.5]), np.array([0.3, -0.6, 2.0])
    cols = np.array([2, 0], np.int32)
    made = {
        "l2": (penalties.l2(lam), lambda k: penalties.l2(lam[k])),
        "net": (penalties.elastic_net(lam, l1), lambda k: penalties.elastic_net(lam[k], l1[k])),
        "mixed": (penalties.elastic_net(0.2, l1), lambda k: penalties.elastic_net(0.2, l1[k])),
        "l1": (penalties.l1(lam), lambda k: penalties.l1(lam[k])),
        "lq": (penalties.lq(lam, q), lambda k: penalties.lq(lam[k], q[k])),
        "user": (penalties.from_function(kinked, lam, (lam, l1)), lambda k: penalties.elastic_net(lam[k], l1[k])),
    }
    for whole, single in made.values():
        traced = jax.jit(lambda p: p.take(cols))(whole)
        for part, at in ((to_host(whole), np.arange(3)), (to_host(whole).take(cols), cols), (to_host(traced), cols)):
            young, value = np.asarray(part.fenchel_young(w[at], v[at])), np.asarray(part.value(w[at]))
            level = part.level(np.full(len(at), 0.3))
            for i, k in enumerate(at):
                one = to_host(single(k))
                assert np.isclose(value[i], one.value(w[k]), rtol=1e-14)
                expected = float(one.fenchel_young(w[k], v[k]))
                assert young[i] == expected or np.isclose(young[i], expected, rtol=1e-10, atol=1e-14)
                assert level is None or np.isclose(level[i], one.level(0.3)) or whole is made["user"][0]
    assert np.array_equal(made["l2"][0].take(np.array([7], np.int32)).lam, [2.0])  # out of range: the last
    assert penalties.l2(0.5).take(cols).lam.shape == ()


# ---------------------------------------------------------------- gradients


@pytest.mark.parametrize("name", ["l2", "elastic_net", "l1", "lq(1.5)", "lq(4)", "kinked"])
def test_gradients_are_finite_and_right(name, x64):
    penalty = ALL[name][0]()
    w = jnp.concatenate([jnp.linspace(-3, 3, 13), jnp.zeros(2)])
    v = jnp.concatenate([jnp.linspace(-0.65, 0.55, 13), jnp.zeros(1), 0.3 * jnp.ones(1)])
    calls = {
        "young": lambda w, v: jnp.sum(penalty.fenchel_young(w, v)),
        "excess": lambda w, v: jnp.sum(penalty.excess(w, v)),
        "prox": lambda w, v: jnp.sum(penalty.prox(w, jnp.float64(0.4))),
        "primal": lambda w, v: jnp.sum(penalty.grad_conjugate(v)),
        "value": lambda w, v: jnp.sum(penalty.value(w)),
    }
    grads = jax.jit(lambda w, v: {k: jax.grad(call, (0, 1))(w, v) for k, call in calls.items()})(w, v)
    assert all(np.all(np.isfinite(g)) for g in jax.tree.leaves(grads))
    u = penalty.grad_conjugate(v)
    away = np.abs(np.asarray(w)) > 1e-3
    slope = np.asarray(penalty.subgradient(w)[0])
    tol = 1e-6 if name == "kinked" else 1e-10
    assert np.allclose(grads["young"][0][away], (slope - np.asarray(v))[away], rtol=tol, atol=tol)
    assert np.allclose(grads["young"][1][away], np.asarray(u - w)[away], rtol=tol, atol=tol)
    if name == "lq(4)":
        steps = [np.asarray(penalty.prox(w + h, jnp.float64(0.4))) for h in (1e-5, -1e-5)]
        assert np.allclose(grads["prox"][0], (steps[0] - steps[1]) / 2e-5, atol=1e-8)


def test_parameters_have_gradients(x64):
    w, v = jnp.array([1.0, -2.0]), jnp.array([0.3, -0.9])
    for build, at in ((penalties.l2, 0.4), (lambda x: penalties.from_function(quartic, 0.1, (x,)), 0.4)):
        call = jax.jit(lambda x, build=build: jnp.sum(build(x).value(w) + build(x).grad_conjugate(v)))
        got, step = jax.grad(call)(at), 1e-6
        assert np.isclose(got, (call(at + step) - call(at - step)) / (2 * step), rtol=1e-5)


# ---------------------------------------------------------------- objects


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda: penalties.l2(0.0), ValueError, "lam = 0 is not allowed"),
        (lambda: penalties.l2([1.0, -2.0]), ValueError, r"lam\[1\] = -2"),
        (lambda: penalties.l2([1.0, 0.0]), ValueError, r"lam\[1\] = 0 is not allowed: column 1 .*Curvature\(\)"),
        (lambda: penalties.elastic_net([0, 1], 1), ValueError, r"lam\[0\] = 0 .*small lam.*intercept=True"),
        (lambda: penalties.l1(np.array([1.0, 0.0])), ValueError, r"kappa\[1\] = 0 .*elastic_net with l1 = 0"),
        (lambda: penalties.lq([1, 0], 1.5), ValueError, r"lam\[1\] = 0"),
        (lambda: penalties.l2([[1.0]]), ValueError, r"lam .* shape \(1, 1\)"),
        (lambda: penalties.l2([]), ValueError, "lam"),
        (lambda: penalties.l2("1"), TypeError, "lam"),
        (lambda: penalties.l2(True), TypeError, "lam"),
        (lambda: penalties.l2(np.inf), ValueError, "lam"),
        (lambda: penalties.elastic_net(1.0, -1e-3), ValueError, "l1 = -0.001 .* at least 0"),
        (lambda: penalties.elastic_net(0, 1), ValueError, "lam"),
        (lambda: penalties.l1(np.nan), ValueError, "kappa"),
        (lambda: penalties.lq(1.0, 1.0), ValueError, "q = 1 .* greater than 1"),
        (lambda: penalties.lq(-1.0, 2.0), ValueError, "lam"),
        (lambda: penalties.from_function(2.0), TypeError, "psi_j must be a function"),
        (lambda: penalties.from_function(logcosh, 0.0), ValueError, "strong_convexity"),
        (lambda: penalties.from_function(logcosh, smooth=1), TypeError, "smooth"),
        (lambda: penalties.from_function(logcosh, conjugate=1), TypeError, "conjugate must be a function"),
        (lambda: penalties.from_function(quartic, params=0.1), TypeError, "params"),
    ],
)
def test_bad_numbers_are_refused(call, error, text):
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("enabled", [False, True])
def test_parameters_stay_float64(enabled):
    with jax.enable_x64(enabled):
        made = [
            penalties.l2(1),
            penalties.l2(np.array([1, 2], np.int32)),
            penalties.elastic_net(np.float32(0.5), 0),
            penalties.lq(0.1, 2),
            penalties.from_function(quartic, 0.1, (0.1,)),
            jax.vmap(penalties.l2)(np.array([0.1, 0.2])),
            jax.jit(penalties.l2)(0.1),
        ]
        for penalty in made:
            for same in (penalty, pickle.loads(pickle.dumps(penalty)), copy.copy(penalty), copy.deepcopy(penalty)):
                leaves = jax.tree.leaves(same)
                assert all(leaf.dtype == jnp.float64 and isinstance(leaf, jax.Array) for leaf in leaves)
                assert all(np.array_equal(a, b) for a, b in zip(leaves, jax.tree.leaves(penalty), strict=True))
        value = penalties.l2(1 / 3).value(np.array([1 / 3]))
        assert value.dtype == np.float64 and abs(float(value[0]) - 1 / 54) < 1e-17


def test_names_and_properties():
    made = {name: build() for name, (build, _) in ALL.items()}
    assert made["l2"].quadratic and not any(p.quadratic for name, p in made.items() if name != "l2")
    smooth = {name for name, p in made.items() if p.smooth}
    assert smooth == {"l2", "lq(1.05)", "lq(1.5)", "lq(2)", "lq(4)"}
    assert made["l1"].dual_bound is not None and made["l2"].dual_bound is None
    assert {p.name for p in made.values()} == {"l2", "elastic_net", "l1", "lq", "kinked"}
    assert penalties.from_function(logcosh).smooth and penalties.from_function(logcosh).strong_convexity is None
    assert float(made["elastic_net"].strong_convexity) == 0.3 and made["lq(2)"].strong_convexity is None


# ---------------------------------------------------------------- one set of formulas, on NumPy and on jax


def everything(penalty, w, v, right, step):
    """Each public method."""
    return {
        "value": penalty.value(w),
        "conjugate": penalty.conjugate(v),
        "grad_conjugate": penalty.grad_conjugate(v),
        "conjugate_interval": penalty.conjugate_interval(v, right),
        "subgradient": penalty.subgradient(w),
        "young": penalty.fenchel_young(w, v),
        "excess": penalty.excess(w, v),
        "prox": penalty.prox(w, step),
        "second": penalty.second(w),
        "level": penalty.level(step),
    }


def same_numbers(host, device):
    for key, ours in host.items():
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(device[key]), strict=True):
            b = np.asarray(b)
            assert type(a) in (np.ndarray, np.float64) and a.dtype == b.dtype == np.float64, key
            assert np.array_equal(np.isfinite(a), np.isfinite(b)), key
            assert np.allclose(a, b, rtol=1e-11, atol=1e-13), (key, a, b)


@pytest.mark.parametrize("name", ["l2", "elastic_net", "l1", "lq(1.5)", "lq(4)", "kinked", "kinked, conjugate"])
def test_numpy_and_jax_agree(name):
    penalty = ALL[name][0]()
    w, v = np.array([-2.0, -0.4, 0.0, 0.3, 1.0, 5.0]), np.array([-0.6, 0.5, 0.1, -0.2, 0.65, 0.0])
    args = w, v, v + 0.02, np.full(6, 0.3)
    host = everything(to_host(penalty), *args)
    same_numbers(host, jax.jit(jax.vmap(everything, (None, 0, 0, 0, 0)))(penalty, *put(args)))


@pytest.mark.parametrize("name", list(ALL))
def test_empty_and_far_arguments(name):
    penalty, none = to_host(ALL[name][0]()), np.zeros(0)
    assert all(np.shape(a) == (0,) for a in jax.tree.leaves(everything(penalty, none, none, none, none)))
    far = np.array([-np.inf, -1e300, 1e300, np.inf])  # an infinite or overflowing radius must not turn into NaN
    low, high = penalty.conjugate_interval(far, far)
    assert np.isneginf(low[0]) and np.isposinf(high[3]) and np.all(low <= high)
    assert low[2] < np.inf and high[1] > -np.inf or name == "l1"


@pytest.mark.parametrize("name", [*TRUTHS, "kinked"])
def test_proximal_points_against_brute_force(name, x64):
    penalty, truth = ALL[name][0](), ALL[name][1]
    z = np.array([-4.0, -0.3, 0.0, 0.05, 0.7, 2.0])
    for step in (0.2, 3.0):
        x = np.asarray(penalty.prox(z, step))

        def objective(w, at, step=step):
            return truth.psi(w) + (w - at) ** 2 / (2 * big(step))

        for got, at in zip(x, z, strict=True):
            best, at = objective(big(got), big(at)), big(at)
            for other in [got + h for h in (-1.0, -1e-2, -1e-5, 1e-5, 1e-2, 1.0)] + [0.0]:
                assert best <= objective(big(other), at) + 1e-15, (at, got, other)


@pytest.mark.parametrize("name", list(TRUTHS))
def test_the_truth_is_the_supremum(name):
    truth = TRUTHS[name][1]
    reach = 2 if "1e-8" not in name else 1 << 20
    grid = [reach * mp.mpf(k) / 1024 for k in range(-2048, 2049)]
    values = [truth.psi(x) for x in grid]
    for v in (-0.5, 0.0, 0.25, 0.625):
        if abs(truth.primal(big(v))) < 2 * reach:
            best = max(v * x - f for x, f in zip(grid, values, strict=True))
            exact = truth.conjugate(big(v))
            assert best <= exact and exact - best <= 1e-5 * (1 + exact), (v, best, exact)


def gauss(w):
    return w * w / 2


def test_users_penalty_reproduces_the_built_in_without_parameters(x64):
    mine, truth = penalties.from_function(gauss, 1.0), net(1.0, 0.0)
    w, v = points(truth, 40)
    young, excess = np.asarray(mine.fenchel_young(w, v)), np.asarray(mine.excess(w, v))
    assert np.allclose(mine.grad_conjugate(v), v, rtol=1e-14)
    for x, d, b, e in zip(w, v, young, excess, strict=True):
        exact = truth.young(x, d)
        room = 256 * U * (big(x) ** 2 + big(d) ** 2)
        assert exact * (1 - 16 * U) - TINY <= big(b) <= exact * (1 + mp.mpf(1e-9)) + room
        assert 0 <= e <= 1e-9 * exact + room  # the exact value is 0


def test_one_compilation_for_several_numbers(x64):
    traces = []

    @jax.jit
    def run(penalty, w):
        traces.append(1)
        return penalty.value(w)

    builders = {
        "l2": penalties.l2,
        "net": lambda lam: penalties.elastic_net(lam, 0.1),
        "lq": lambda lam: penalties.lq(lam, 1.5),
        "user": lambda lam: penalties.from_function(quartic, lam, (lam,)),
    }
    for build in builders.values():
        before = len(traces)
        values = [run(build(lam), jnp.ones(3)) for lam in (0.1, 0.5, 2.0)]
        assert len(traces) == before + 1 and not np.array_equal(values[0], values[1])
        mapped = jax.vmap(lambda lam, build=build: run(build(lam), jnp.ones(3)))(jnp.array([0.1, 0.5, 2.0]))
        assert np.allclose(mapped, values, rtol=1e-12)


def test_other_types_are_taken_as_float64():
    for enabled in (False, True):
        with jax.enable_x64(enabled):
            penalty = penalties.elastic_net(0.3, 0.1)
            for w in ([1.0, 2.0], [1, 2], np.array([1, 2], np.int32), np.array([1, 2], np.float16), jnp.array([1, 2])):
                got = penalty.value(w)
                assert got.dtype == np.float64 and np.allclose(np.asarray(got), [0.25, 0.8], rtol=1e-15)
            assert np.shape(penalty.value(1)) == ()


@pytest.mark.parametrize("loss", ["logistic", "squared", "modified_huber"])
def test_a_tiny_lam_in_one_column_is_as_good_as_none(loss):
    """The remedy for a column without a penalty: Curvature is as tight as ever, and holds the unpenalised optimum."""
    rng = np.random.default_rng(0)
    X, T = rng.normal(size=(40, 3)), rng.normal(size=(10, 3))
    s = X @ np.array([1.0, -1.0, 0.5]) + rng.normal(size=40)
    y = np.sign(s) if loss in oracle.MARGIN_LOSSES else s
    widths = {}
    for lam in (0.1, 1e-10):
        vector = np.array([lam, 0.1, 0.1])
        old, new, without = (
            oracle.Problem(loss, X[k:], y[k:], np.full(40 - k, 1 / (40 - k)), lam=ridge)
            for k, ridge in ((0, vector), (2, vector), (2, vector * [0, 1, 1]))
        )
        old, new, free = oracle.solve(old), oracle.solve(new), oracle._newton_prox(without, np.zeros(3))
        problem = jb.Problem(getattr(jb.losses, loss)(), penalties.l2(vector))
        model = table.model_of(problem, X, y, None, old.w, old.alpha)
        scores = jb.bound(model, jb.remove_rows([0, 1]), jb.Curvature()).scores(T)
        lower, upper = np.asarray(scores.lower), np.asarray(scores.upper)
        assert np.all(lower <= T @ new.w + 1e-9) and np.all(T @ new.w - 1e-9 <= upper)
        widths[lam] = np.max(upper - lower) / np.linalg.norm(new.w - old.w)
        if lam < 1e-9:
            assert np.all(lower <= T @ free + 1e-7) and np.all(T @ free - 1e-7 <= upper)
    assert widths[1e-10] < 1e-6 and widths[0.1] < 1e-6
