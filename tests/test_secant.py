"""Ranges of secant slopes against exact fractions and 60-digit arithmetic."""

import functools
from fractions import Fraction

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from jaxbounds import losses
from jaxbounds.array import put, to_host
from jaxbounds.testing import check_loss

TINY = 2.3e-308  # smaller numbers may be flushed to zero
EPS = mp.mpf(10) ** -40  # what mpmath's numbers may be off
RNG = np.random.default_rng(11)
PATHS = ["host", "jit", "constant"]

# loss, curved piece [left, right] as exact numbers
PIECEWISE = {
    "smoothed_hinge(0.5)": (lambda: losses.smoothed_hinge(0.5), 1 - Fraction(0.5), 1),
    "smoothed_hinge(0.1)": (lambda: losses.smoothed_hinge(0.1), 1 - Fraction(0.1), 1),
    "smoothed_hinge(1e-10)": (lambda: losses.smoothed_hinge(1e-10), 1 - Fraction(1e-10), 1),
    "smoothed_hinge(7.3e5)": (lambda: losses.smoothed_hinge(7.3e5), 1 - Fraction(7.3e5), 1),
    "squared_hinge": (losses.squared_hinge, -(Fraction(10) ** 500), 1),
    "huber(0.7)": (lambda: losses.huber(0.7), -Fraction(0.7), Fraction(0.7)),
    "huber(1e-8)": (lambda: losses.huber(1e-8), -Fraction(1e-8), Fraction(1e-8)),
}


@pytest.fixture(autouse=True)
def digits():
    with mp.workdps(60):
        yield


def magnitudes(low, high, n):
    return 10 ** RNG.uniform(low, high, n) * RNG.choice([-1.0, 1.0], n)


def pick(n, *options):
    return np.choose(RNG.integers(0, len(options), n), [np.broadcast_to(o, n) for o in options])


def cases(kinks, n):
    """(q, lo, hi): near and exactly at the kinks, tiny and huge, infinite, single points, 0 inside and at an end."""
    kink, other = (RNG.choice(kinks, n) for _ in range(2))
    near = kink + magnitudes(-17, 3, n), kink * (1 + magnitudes(-17, 0, n)), kink
    q = pick(n, RNG.uniform(-6, 6, n), *near, magnitudes(-300, 0, n), magnitudes(0, 5, n), -kink)

    def change():
        to = other - q  # rounded: which side of the kink it lies on takes exact arithmetic to see
        far = pick(n, np.inf, -np.inf, magnitudes(4, 300, n))
        beside = pick(n, to, to, np.nextafter(to, np.inf), np.nextafter(to, -np.inf), to + magnitudes(-17, 0, n))
        return pick(n, magnitudes(-300, 4, n), magnitudes(-3, 1, n), beside, beside, 0.0, far)

    first = change()
    ends = np.sort([first, pick(n, change(), change(), change(), first)], axis=0)
    ok = (ends[0] < np.inf) & (ends[1] > -np.inf)
    return np.array([q[ok], *ends[:, ok]])


def secant(loss, path, q, lo, hi):
    y = np.ones_like(q)
    if path == "host":
        out = to_host(loss).secant(q, lo, hi, y)
        assert all(type(end) is np.ndarray for end in out)
    elif path == "jit":
        out = jax.jit(jax.vmap(lambda loss, *a: loss.secant(*a), (None, 0, 0, 0, 0)))(loss, *put((q, lo, hi, y)))
    else:  # XLA reassociates sums with constants
        out = jax.jit(lambda *a: loss.secant(*a))(*put((q, lo, hi, y)))
    low, high = (np.asarray(end) for end in out)
    assert low.dtype == high.dtype == np.float64 and low.shape == high.shape == q.shape
    assert np.all(low >= 0) and np.all(low <= high) and np.all(high <= float(loss.smoothness))
    return low, high


def close(bound, truth):
    return abs(Fraction(float(bound)) - truth) <= Fraction(1e-13) * truth + Fraction(4 * TINY)


# ---------------------------------------------------------------- piecewise quadratic losses


def shares(left, right, q, ends):
    """All slopes over d in [ends] as shares of the curvature: (extreme candidates, further ones), exactly."""

    def share(d):  # the definition: difference of the derivative over difference of the coordinate
        return (min(max(q + d, left), right) - min(max(q, left), right)) / d

    lo, hi = (Fraction(10) ** 499 * (1 if e > 0 else -1) if np.isinf(e) else Fraction(e) for e in ends)
    extreme = {share(d) for d in (lo, hi, left - q, right - q) if d != 0 and lo <= d <= hi}
    if lo <= 0 <= hi:
        extreme |= {Fraction(left < q <= right), Fraction(left <= q < right)}
    inner = [lo + (hi - lo) * Fraction(t) for t in (1e-9, 0.3, 0.9)]
    return extreme, [share(d) for d in inner if d != 0]


@functools.lru_cache
def piecewise_truth(name):
    """Ranges (q, lo, hi) and, as shares of the curvature, the least and the largest slope of each."""
    build, left, right = PIECEWISE[name]
    ranges = cases(np.array([float(k) for k in build().kinks]), 700)
    truth = []
    for q, *ends in ranges.T:
        extreme, inner = shares(left, right, Fraction(q), ends)
        truth.append((min(extreme), max(extreme)))
        assert all(min(extreme) <= slope <= max(extreme) for slope in inner)
    return ranges, truth


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", list(PIECEWISE))
def test_piecewise_slopes_are_enclosed_tightly_and_exactly_away_from_kinks(name, path):
    loss = PIECEWISE[name][0]()
    ranges, truth = piecewise_truth(name)
    low, high = secant(loss, path, *ranges)
    value = Fraction(float(loss.smoothness))  # the float stands for the curvature
    single, flushed = 0, np.any((ranges != 0) & (np.abs(ranges) < TINY), axis=0) & (path != "host")
    for k, (a, b) in enumerate(truth):
        a, b = a * value, b * value
        at = (ranges[:, k], low[k], high[k], float(a), float(b))
        assert Fraction(low[k]) <= a and b <= Fraction(high[k]), at
        if flushed[k]:  # it counts as 0
            continue
        assert close(low[k], a) and close(high[k], b), at
        if a == b and (a == 0 or a == value):
            single += 1
            assert low[k] == high[k] == a, at
    assert single > 100


def test_kinks_and_which_losses_have_them():
    for name, (build, left, right) in PIECEWISE.items():
        loss = build()
        expect = [float(right)] if name == "squared_hinge" else [float(left), float(right)]
        assert loss.piecewise_quadratic and [float(k) for k in loss.kinks] == expect
        assert all(k.dtype == np.float64 and k.shape == () for k in loss.kinks)
        assert [float(k) for k in jax.jit(lambda loss: loss.kinks)(loss)] == expect
    assert losses.squared().piecewise_quadratic and losses.squared().kinks == ()
    for loss in (losses.hinge(), losses.logistic(), losses.from_margin(softplus)):
        assert not loss.piecewise_quadratic and loss.kinks == ()


@pytest.mark.parametrize("path", ["host", "jit"])
def test_squared_and_hinge(path):
    q, lo, hi = cases(np.array([1.0]), 100)
    low, high = secant(losses.squared(), path, q, lo, hi)
    assert np.all(low == 1) and np.all(high == 1)
    q, lo, hi = np.array([0.0, 2.0, 0.0, 2.0, 1.0, 0.5]), np.array([-1.0, 0, 0.5, -3, 0, 0.5]), np.full(6, 0.5)
    loss = losses.hinge() if path == "jit" else to_host(losses.hinge())
    low, high = loss.secant(q, lo, hi, q)
    assert np.all(np.asarray(low) == 0) and np.array_equal(high, [0, 0, 0, np.inf, np.inf, np.inf])


# ---------------------------------------------------------------- logistic loss


def sigma(x):
    return 1 / (1 + mp.exp(-x))


def chord(q, d):
    a, b = min(q, q + d), max(q, q + d)
    return sigma(b) * sigma(-a) * (-mp.expm1(-abs(d)) / abs(d) if d else 1)


def highest(q):
    """The d of the highest secant slope of the logistic loss at q > 0, by bisection."""
    lo, hi = -2 * q, -q
    for _ in range(60):
        mid = (lo + hi) / 2
        lo, hi = (mid, hi) if sigma(q + mid) * sigma(-q - mid) < chord(q, mid) else (lo, mid)
    return lo


def test_the_chord_is_the_difference():
    for q, d in ((0.3, 2.0), (-4.0, 7.0), (20.0, -19.0)):
        q, d = mp.mpf(q), mp.mpf(d)
        assert abs(chord(q, d) - (sigma(q + d) - sigma(q)) / d) < mp.mpf(10) ** -45


@functools.lru_cache
def logistic_truth():
    """Ranges (q, lo, hi) with the least slope, the largest (None where the search goes too far) and some others."""
    n = 250
    adversarial = cases(np.array([1.0, 1e-9, 30.0]), n)
    q, near = RNG.uniform(-12, 12, n), RNG.uniform(-30, 30, (2, n))
    short = near * magnitudes(-12, 0, n)
    tops = np.array([float(highest(abs(mp.mpf(x)))) * np.sign(x) for x in q])
    beside = np.sort([tops * (1 + magnitudes(-17, -1, n)), pick(n, 0.0, tops * 3)], axis=0)  # of the highest slope
    far = np.sort([pick(n, near[k], magnitudes(-320, 308, n)) for k in (0, 1)], axis=0)
    plain = [np.array([q, *ends]) for ends in (np.sort(near, axis=0), np.sort(short, axis=0), beside)]
    ranges = np.concatenate([adversarial, *plain, [magnitudes(2, 308, n), *far]], axis=1)
    ranges = np.where(np.isinf(ranges), np.sign(ranges) * 1e305, ranges)
    truth = []
    for column in ranges.T:
        x, a, b = (mp.mpf(float(v)) for v in column)
        ends = [chord(x, a), chord(x, b)]
        inner = [chord(x, d) for d in (a + (b - a) / 10, (a + b) / 2, mp.mpf(0), -x, -3 * x / 2) if a <= d <= b]
        if abs(x) < 1e4:
            d = highest(abs(x)) * mp.sign(x)
            inner += [chord(x, d)] if a < d < b else []
        truth.append((min(ends), max(ends + inner) if abs(x) < 1e4 else None, ends + inner))
    return ranges, truth


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
def test_logistic_slopes_are_enclosed_and_tight(path):
    ranges, truth = logistic_truth()
    low, high = secant(losses.logistic(), path, *ranges)
    for k, (least, most, every) in enumerate(truth):
        at = (ranges[:, k], low[k], high[k], least, most)
        assert low[k] <= min(every) and max(every) * (1 - EPS) <= high[k], at
        room = 4e-14 + 2.0**-51 * min(abs(ranges[0, k]), 750)  # q + d is rounded
        assert low[k] >= least * (1 - room) - 4 * TINY, at
        if most is not None:
            inner = np.abs(ranges[1:, k]).max() < abs(ranges[0, k])  # no further than 0: the highest slope is an end
            assert high[k] <= most * (1 + room + (0.0 if inner else 1e-11)) + 4 * TINY, at


# ---------------------------------------------------------------- users' losses


def softplus(m):
    return jnp.logaddexp(0.0, -m)


def softplus_slope(m):
    return -jax.nn.sigmoid(-m)


def softplus_range(lo, hi):
    near = jnp.where((lo <= 0) & (hi >= 0), 0.0, jnp.minimum(jnp.abs(lo), jnp.abs(hi)))
    far = jnp.maximum(jnp.abs(lo), jnp.abs(hi))
    return tuple(jax.nn.sigmoid(x) * jax.nn.sigmoid(-x) for x in (far, near))


def wrong_range(lo, hi):  # right for short intervals only
    low, high = softplus_range(lo, hi)
    return low, jnp.where(hi - lo > 10.0, high / 2, high)


@pytest.mark.parametrize("path", PATHS)
def test_users_losses(path):
    plain = losses.from_margin(softplus, 0.25)
    ranged = losses.from_margin(softplus, 0.25, derivative=softplus_slope, curvature_range=softplus_range)
    adversarial = cases(np.array([1.0, 1e-9]), 200)
    q, ends = RNG.uniform(-6, 6, 200), np.sort(RNG.uniform(0.1, 5, (2, 200)), axis=0)
    short = np.sort(q + magnitudes(-14, -1, 200) * np.array([[1], [0.5]]), axis=0) - q
    q, lo, hi = np.concatenate([adversarial, [q, *ends], [q, *short]], axis=1)
    low, high = secant(plain, path, q, lo, hi)
    assert np.all(low == 0) and np.all(high == 0.25)
    low, high = secant(ranged, path, q, lo, hi)
    ours = secant(losses.logistic(), path, q, lo, hi)  # proved above
    assert np.all(low <= ours[1]) and np.all(high >= ours[0])
    for k in range(len(q)):
        a, b = (np.clip(end, -1e4, 1e4) for end in (lo[k], hi[k]))
        for d in (a, b, (a + b) / 2):
            if lo[k] <= d <= hi[k]:
                assert low[k] <= chord(mp.mpf(q[k]), mp.mpf(float(d))) * (1 - EPS) <= high[k] + TINY, (
                    q[k],
                    lo[k],
                    hi[k],
                    low[k],
                    high[k],
                )
    hull = losses.Loss.secant(to_host(ranged), q, lo, hi, q)
    assert np.all(low >= hull[0]) and np.all(high <= hull[1])
    wide = slice(len(q) - 400, len(q) - 200)  # |d| of order 1: the ends help
    assert np.median((high - low)[wide] / (hull[1] - hull[0])[wide]) < 0.9


def test_a_wrong_range_is_reported():
    check_loss(losses.from_margin(softplus, 0.25, derivative=softplus_slope, curvature_range=softplus_range))
    wrong = losses.from_margin(softplus, 0.25, derivative=softplus_slope, curvature_range=wrong_range)
    with pytest.raises(ValueError, match="range of secant slopes .* correct `curvature_range`"):
        check_loss(wrong)


# ---------------------------------------------------------------- shared

EVERY = {
    **{name: build for name, (build, _, _) in PIECEWISE.items()},
    "squared": losses.squared,
    "hinge": losses.hinge,
    "logistic": losses.logistic,
    "user": lambda: losses.from_margin(softplus, 0.25),
    "user, range": lambda: losses.from_margin(softplus, 0.25, curvature_range=softplus_range),
}


@pytest.mark.parametrize("name", list(EVERY))
def test_nothing_is_known_of_bad_numbers(name):
    loss = EVERY[name]()
    nan, inf = np.nan, np.inf
    q, lo, hi, y = np.array(
        [
            (nan, 0, 0, 1),
            (0, nan, 0, 1),
            (0, 0, nan, 1),
            (0, 0, 0, nan),
            (inf, 0, 0, 1),
            (0, 1, -1, 1),
            (0, inf, inf, 1),
        ]
    ).T
    most = inf if loss.smoothness is None else float(loss.smoothness)
    for low, high in (to_host(loss).secant(q, lo, hi, y), jax.jit(loss.secant)(*put((q, lo, hi, y)))):
        assert np.all(np.asarray(low) == 0) and np.all(np.asarray(high) == most)
    low, high = loss.secant(q[:0], q[:0], q[:0], q[:0])
    assert low.shape == high.shape == (0,)


@pytest.mark.parametrize("name", list(EVERY))
def test_gradients_are_finite(name):
    loss = EVERY[name]()
    q, lo, hi = cases(np.array([1.0, 0.7, 0.5]), 300)
    bad = np.array([[np.nan, 0.0], [0.0, np.nan], [0.0, 1.0]])
    short = np.array([[2.0, 0.3, -5.0], [-1e-300, -1e-9, 0.0], [1e-300, 0.0, 0.0]])
    q, lo, hi = np.concatenate([np.array([q, lo, hi])[:, np.abs(q) < 1e3], bad, short], axis=1)
    fair = np.abs(lo) + np.abs(hi) > 1e-100  # a share of 1e-300 / d has a derivative that overflows

    @jax.jit
    def run(loss, q, lo, hi):
        def total(loss, *args):
            low, high = loss.secant(*args, jnp.ones_like(q))
            return jnp.sum(low) + jnp.sum(jnp.where(jnp.isinf(high), 0.0, high))

        return jax.grad(total, (0, 1, 2, 3))(loss, q, lo, hi)

    with jax.enable_x64(True):
        inside, *grads = jax.tree.map(np.asarray, run(loss, *put((q, lo, hi))))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(inside))
    assert all(np.isfinite(g[fair]).all() for g in grads)


def test_gradients_are_right():
    with jax.enable_x64(True):
        args = jnp.array([1.3, -3.0, 0.2]), jnp.array([-6.0, 0.1, -0.3]), jnp.array([0.2, 0.9, 0.4])  # peak, ends, ends
        for loss in (losses.logistic(), losses.smoothed_hinge(0.5), losses.huber(0.7), losses.squared_hinge()):
            run = jax.jit(lambda *a, loss=loss: loss.secant(*a, jnp.ones(3)))
            pull = jax.jit(lambda ct, *a, run=run: jax.vjp(run, *a)[1](ct))
            for low in (1.0, 0.0):
                grads = pull((jnp.full(3, low), jnp.full(3, 1.0 - low)), *args)
                for which, grad in enumerate(grads):
                    up, down = ([a + s * (i == which) for i, a in enumerate(args)] for s in (1e-6, -1e-6))
                    slope = (run(*up)[low == 0] - run(*down)[low == 0]) / 2e-6
                    assert np.allclose(grad, slope, atol=1e-7), (loss.name, low, which)
