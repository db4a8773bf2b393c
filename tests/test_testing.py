"""check_loss and check_penalty: silent on what is right, one clear sentence on what is wrong."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbounds import losses, penalties
from jaxbounds.losses import SmoothedHinge
from jaxbounds.penalties import L2
from jaxbounds.pytree import pytree
from jaxbounds.testing import check_loss, check_penalty


def softplus(m, t):
    return t * jnp.logaddexp(0.0, -m / t)


def softplus_slope(m, t):
    return -1 / (1 + jnp.exp(m / t))


def overflowing(m):
    return jnp.log(1 + jnp.exp(-20 * m))


def wave(m):
    return m * m + jnp.cos(3 * m)


def pseudo_huber(s, y, delta):
    return delta**2 * (jnp.sqrt(1 + ((s - y) / delta) ** 2) - 1)


def absolute(s, y):
    return jnp.abs(s - y)


def hinge_by_where(m):
    return jnp.where(m < 1, 1 - m, 0.0)


def piecewise(m, gamma):
    return jnp.where(m >= 1, 0.0, jnp.where(m >= 1 - gamma, (1 - m) ** 2 / (2 * gamma), 1 - m - gamma / 2))


def _bump(x, width=1e-3):
    size = jnp.abs(x)
    return jnp.where(size < width, x * x / 2, width * (size - width / 2))


def narrow_peak(m):  # second derivative 11 within 1e-3 of 2.345
    return m * m / 2 + 10 * _bump(m - 2.345)


def flat_spot(w):  # second derivative 0 within 1e-3 of 2.345
    return w * w / 2 - _bump(w - 2.345)


def dip(m):  # concave close to 3 only
    return m * m / 200 - jnp.exp(-((m - 3.0) ** 2))


def growing(s, y):  # second derivative y^2
    return (y * s) ** 2 / 2


def concave_above_two(s, y):
    return jnp.where(y > 2, -s * s, s * s)


def flipped_slope(m, t):
    return -softplus_slope(m, t)


def high_second(m, t):
    return jnp.full_like(m, 0.7)


def high_range(lo, hi, t):
    return jnp.full_like(lo, 0.4), jnp.full_like(hi, 0.5)


def high_entropy(v, t):
    return entropy(v, t) + 0.1


def half_entropy(v, t):
    return jnp.where(v > -0.5, entropy(v, t), jnp.inf)


def reciprocal(w):
    return 1 / w


def ridge(w, lam):
    return lam / 2 * w * w


def low_conjugate(v, lam, l1):
    return net_conjugate(v, lam, l1) / 2


def low_second(w, lam, l1):
    return -jnp.ones_like(w)


def half_slope(m, t):
    return 0.5 * softplus_slope(m, t)


def negative_second(m, t):
    return -jnp.ones_like(m)


def entropy(v, t):
    a = -v
    inside = (a > 0) & (a < 1)
    b = jnp.where(inside, a, 0.5)
    value = t * (b * jnp.log(b) + (1 - b) * jnp.log(1 - b))
    return jnp.where(inside, value, jnp.where((a == 0) | (a == 1), 0.0, jnp.inf))


def low_entropy(v, t):
    return entropy(v, t) - 0.1


def small_range(lo, hi, t):
    return jnp.zeros_like(lo), 0.01 * jnp.ones_like(hi)


def quartic(w, lam):
    return lam / 2 * w**2 + w**4


def net(w, lam, l1):
    return lam / 2 * w**2 + l1 * jnp.abs(w)


def net_conjugate(v, lam, l1):
    return jnp.maximum(jnp.abs(v) - l1, 0.0) ** 2 / (2 * lam)


def ridge_conjugate(v, lam, l1):
    return v**2 / (2 * lam)


def logcosh(w):
    return jnp.logaddexp(w, -w)


def net_slope_outside(w, lam, l1):
    return lam * w + 2 * l1 * jnp.sign(w)


GOOD_LOSSES = {
    "smoothed_hinge": lambda: losses.smoothed_hinge(0.5),
    "smoothed_hinge, short": lambda: losses.smoothed_hinge(1e-6),
    "smoothed_hinge, long": lambda: losses.smoothed_hinge(50.0),
    "hinge": losses.hinge,
    "squared_hinge": losses.squared_hinge,
    "logistic": losses.logistic,
    "squared": losses.squared,
    "huber": lambda: losses.huber(0.7),
    "user": lambda: losses.from_margin(softplus, 0.5, (0.5,), domain=(0, 1)),
    "user, supplied": lambda: losses.from_margin(softplus, 0.5, (0.5,), derivative=softplus_slope, conjugate=entropy),
    "user, kink": lambda: losses.from_margin(hinge_by_where),
    "user, score": lambda: losses.from_score(pseudo_huber, 1.0, (2.0,)),
    "user, score with a kink": lambda: losses.from_score(absolute),
}
BAD_LOSSES = {
    "not convex": (lambda: losses.from_margin(wave), "loss wave: it is not convex"),
    "overflow": (lambda: losses.from_margin(overflowing), "at q = -60 is inf"),
    "smoothness": (lambda: losses.from_margin(softplus, 0.3, (0.5,)), "declared smoothness 0.3 is too small"),
    "derivative": (lambda: losses.from_margin(softplus, 0.5, (0.5,), derivative=half_slope), "supply `derivative`"),
    "second": (lambda: losses.from_margin(softplus, 0.5, (0.5,), second=negative_second), "second derivative at"),
    "conjugate": (lambda: losses.from_margin(softplus, 0.5, (0.5,), conjugate=low_entropy), "conjugate is wrong"),
    "range": (lambda: losses.from_margin(softplus, 0.5, (0.5,), curvature_range=small_range), "curvature range"),
    "domain": (lambda: losses.from_margin(softplus, 0.5, (0.5,), domain=(0, 0.5)), "correct `domain`"),
    "not convex, dip": (lambda: losses.from_margin(dip), "loss dip: it is not convex"),
    "not convex, target": (lambda: losses.from_score(concave_above_two), "for the target 2.5: it is not convex"),
    "smoothness, slightly": (lambda: losses.from_margin(softplus, 0.499, (0.5,)), "declared smoothness 0.499"),
    "smoothness, piece": (lambda: losses.from_margin(piecewise, 1.9, (0.5,)), "declared smoothness 1.9"),
    "smoothness, kink": (lambda: losses.from_margin(hinge_by_where, 1e4), "near q = 1; .* None if there is"),
    "smoothness, peak": (lambda: losses.from_margin(narrow_peak, 4.0), "rises at the rate 11 near q = 2.34"),
    "smoothness, target": (lambda: losses.from_score(growing, 1.0), "target 2.5: the declared smoothness 1 is too"),
    "derivative, sign": (lambda: losses.from_margin(softplus, 0.5, (0.5,), derivative=flipped_slope), "lies above"),
    "second, above": (lambda: losses.from_margin(softplus, 0.5, (0.5,), second=high_second), r"be in \[0, 0.5\]"),
    "conjugate, above": (lambda: losses.from_margin(softplus, 0.5, (0.5,), conjugate=high_entropy), "conjugate is"),
    "conjugate, domain": (lambda: losses.from_margin(softplus, 0.5, (0.5,), conjugate=half_entropy), "conjugate is"),
    "range, above": (lambda: losses.from_margin(softplus, 0.5, (0.5,), curvature_range=high_range), "curvature range"),
    "score": (lambda: losses.from_score(pseudo_huber, 0.5, (2.0,)), "for the target -1: the declared smoothness"),
}
GOOD_PENALTIES = {
    "l2": lambda: penalties.l2(0.3),
    "l2, vector": lambda: penalties.l2([0.1, 1.0, 10.0]),
    "elastic_net": lambda: penalties.elastic_net(0.3, 0.2),
    "elastic_net, mixed": lambda: penalties.elastic_net(0.3, [0.0, 0.2]),
    "l1": lambda: penalties.l1(0.7),
    "lq(1.05)": lambda: penalties.lq(0.3, 1.05),
    "lq(1.5)": lambda: penalties.lq(0.3, 1.5),
    "lq(4)": lambda: penalties.lq(0.3, 4),
    "user": lambda: penalties.from_function(quartic, 0.1, (0.1,)),
    "user, kink": lambda: penalties.from_function(net, 0.3, (0.3, [0.2, 0.7]), smooth=False),
    "user, conjugate": lambda: penalties.from_function(net, 0.3, (0.3, 0.2), conjugate=net_conjugate, smooth=False),
    "user, not strongly convex": lambda: penalties.from_function(logcosh),
}
BAD_PENALTIES = {
    "not convex": (lambda: penalties.from_function(wave), "penalty wave: it is not convex"),
    "strong convexity": (lambda: penalties.from_function(quartic, 0.2, (0.1,)), "strong convexity 0.2 is too large"),
    "conjugate": (
        lambda: penalties.from_function(net, 0.3, (0.3, 0.2), conjugate=ridge_conjugate),
        "conjugate is wrong",
    ),
    "derivative": (
        lambda: penalties.from_function(net, 0.3, (0.3, 0.2), derivative=net_slope_outside),
        "the subgradient at w = .*supply `derivative`",
    ),
    "not finite": (lambda: penalties.from_function(reciprocal), "the value at w = 0 is inf"),
    "strong convexity, slightly": (lambda: penalties.from_function(ridge, 1.0001, (1.0,)), "strong convexity 1.0001"),
    "strong convexity, spot": (lambda: penalties.from_function(flat_spot, 0.9), "rises at the rate 0 near w = 2.34"),
    "strong convexity, kink": (lambda: penalties.from_function(net, 0.4, (0.3, 0.7)), "strong convexity 0.4 is too"),
    "conjugate, below": (lambda: penalties.from_function(net, 0.3, (0.3, 0.2), conjugate=low_conjugate), "conjugate"),
    "second": (lambda: penalties.from_function(net, 0.3, (0.3, 0.2), second=low_second), "second derivative at"),
    "column": (lambda: penalties.from_function(quartic, [0.1, 0.2], (0.1,)), "in column 1: the declared strong"),
}


@pytest.mark.parametrize("name", list(GOOD_LOSSES))
def test_right_losses_pass(name):
    assert check_loss(GOOD_LOSSES[name]()) is None


@pytest.mark.parametrize("name", list(GOOD_PENALTIES))
def test_right_penalties_pass(name):
    assert check_penalty(GOOD_PENALTIES[name]()) is None


@pytest.mark.parametrize("enabled", [False, True])
def test_checks_run_with_x64_off_and_on(enabled):
    with jax.enable_x64(enabled):
        check_loss(losses.logistic())
        check_loss(GOOD_LOSSES["user"]())
        check_penalty(GOOD_PENALTIES["user"]())


def _one_sentence(text):
    """What is wrong; what to do."""
    assert "\n" not in text and len(text) < 300
    assert text.startswith(("the loss ", "the penalty ")) and text.count("; ") == 1 and "array" not in text


@pytest.mark.parametrize("name", list(BAD_LOSSES))
def test_wrong_losses_are_reported(name):
    build, text = BAD_LOSSES[name]
    with pytest.raises(ValueError, match=text) as info:
        check_loss(build())
    _one_sentence(str(info.value))


@pytest.mark.parametrize("name", list(BAD_PENALTIES))
def test_wrong_penalties_are_reported(name):
    build, text = BAD_PENALTIES[name]
    with pytest.raises(ValueError, match=text) as info:
        check_penalty(build())
    _one_sentence(str(info.value))


def test_a_kink_off_the_grid_is_found_when_it_is_given():
    def shifted(m):  # automatic differentiation picks slope +1 on the flat side's end
        return jnp.where(m <= 0.123, 0.123 - m, 0.0) + 0.0 * m

    def slope(m):
        return jnp.where(m == 0.123, 1.0, jnp.where(m < 0.123, -1.0, 0.0))

    check_loss(losses.from_margin(shifted))
    wrong = losses.from_margin(shifted, derivative=slope)
    with pytest.raises(ValueError, match="at q = 0.123 is 1"):
        check_loss(wrong, scores=np.array([-1.0, 0.0, 0.123, 0.5, 2.0]))


def test_only_concrete_losses_and_penalties():
    with pytest.raises(TypeError, match="check_loss needs a loss"):
        check_loss(penalties.l2(1.0))
    with pytest.raises(TypeError, match="check_penalty needs a penalty"):
        check_penalty(losses.hinge())
    with pytest.raises(TypeError, match="outside jit"):
        jax.vmap(lambda g: check_loss(losses.smoothed_hinge(g)))(jnp.ones(2))
    with pytest.raises(TypeError, match="outside jit"):
        jax.jit(lambda g: check_penalty(penalties.l2(g)))(1.0)


# ---------------------------------------------------------------- every method is looked at


def _broken(base, method, change):
    """The class with one method replaced."""

    def replaced(self, *args):
        return change(getattr(base, method)(self, *args), *args)

    return pytree(type(f"{base.__name__}_{method}", (base,), {method: replaced}))


def _halved(value, *_):
    return tuple(v / 2 for v in value) if isinstance(value, tuple) else value / 2


def _zero(value, *_):
    return value * 0


BROKEN_LOSS = [
    ("value", _halved, "lies above the function"),
    ("dual", _halved, "lies above the function"),
    ("dual_interval", _halved, "correct `dual_interval`"),
    ("second", lambda value, *_: value * 3, "second derivative"),
    ("curvature", _halved, "curvature range"),
    ("conjugate", _halved, "conjugate is wrong"),
    ("domain", _halved, "correct `domain`"),
    ("fenchel_young", _zero, "Fenchel-Young term 0 .* below its true value"),
    ("fenchel_young", lambda value, *_: -value, "Fenchel-Young term"),
    ("dual_step", _zero, "dual coordinate step"),
]
BROKEN_PENALTY = [
    ("value", _halved, "lies above the function"),
    ("subgradient", _halved, "lies above the function"),
    ("conjugate", _halved, "conjugate is wrong"),
    ("grad_conjugate", lambda value, v: value + 1e-3, "Fenchel-Young|gradient of the conjugate"),
    ("conjugate_interval", _halved, "interval"),
    ("fenchel_young", _zero, "Fenchel-Young term 0 .* below its true value"),
    ("excess", lambda value, w, v: (w - v / 0.3) ** 2, "the excess"),
    ("prox", _halved, "the proximal point"),
    ("second", lambda value, w: -value, "second derivative"),
    ("level", _halved, "beyond the level"),
]


@pytest.mark.parametrize("method, change, text", BROKEN_LOSS)
def test_each_method_of_a_loss_is_looked_at(method, change, text):
    with pytest.raises(ValueError, match=text) as info:
        check_loss(_broken(SmoothedHinge, method, change)(losses.smoothed_hinge(0.5).gamma))
    _one_sentence(str(info.value))


@pytest.mark.parametrize("method, change, text", BROKEN_PENALTY)
def test_each_method_of_a_penalty_is_looked_at(method, change, text):
    with pytest.raises(ValueError, match=text) as info:
        check_penalty(_broken(L2, method, change)(penalties.l2(0.3).lam))
    _one_sentence(str(info.value))


def test_settings_stay_as_they_were():
    before = jax.config.jax_enable_x64, np.geterr()
    check_loss(losses.logistic(), scores=[-3, 0.25, 1e3])
    check_loss(losses.from_score(pseudo_huber, 1.0, (2.0,)), targets=[7.0])
    check_penalty(penalties.l1(0.2), points=[-1.0, 0.0, 5.0])
    assert before == (jax.config.jax_enable_x64, np.geterr())
