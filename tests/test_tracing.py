"""Bounds inside jit, vmap and grad, with x64 on and off; what compiles and what does not; copies keep float64."""

import copy
import pickle
import subprocess
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

import jaxbounds as jb
from jaxbounds import losses, penalties
from jaxbounds.array import put
from jaxbounds.matrix import as_matrix
from jaxbounds.model import Data, remember

N, D = 12, 4
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, D))
X[2, 1] = X[7, 3] = 0.0
Y = np.where(RNG.random(N) < 0.5, 1.0, -1.0)
X_TEST = np.concatenate([RNG.normal(size=(5, D)), np.zeros((1, D))])
COMPILED = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **_: COMPILED.append(event) if event.endswith("backend_compile_duration") else None
)


def make(sparse=False, n=N, d=D):
    """A model near its optimum, without a solver."""
    data = X if n == N else RNG.normal(size=(n, d))
    y = Y if n == N else np.where(RNG.random(n) < 0.5, 1.0, -1.0)
    loss = losses.smoothed_hinge(0.5)
    w = 0.5 * data.T @ y / n
    with jax.enable_x64(True):
        alpha = np.asarray(loss.dual(y * (data @ w), y))
        arrays = put(Data(as_matrix(sp.csr_array(data) if sparse else data), y, np.ones(n)))
        return remember(jb.Problem(loss, penalties.l2(1.0)), arrays, w, alpha)


MODEL, SPARSE = make(), make(sparse=True)


def everything(model, change, X_test):
    """All numbers that Bounds offers."""
    bounds = jb.bound(model, change)
    intervals = (bounds.w(), bounds.alpha(), bounds.scores(X_test), bounds.distance, bounds.intercept)
    sure = (bounds.labels(X_test), bounds.decided(X_test), bounds.inactive_rows(), bounds.inactive_columns())
    return (bounds.gap, bounds.radius, bounds.dual_radius), intervals, sure, (bounds.row_map, bounds.column_map)


def stack(changes):
    """Changes of one kind and shape with a leading axis."""
    with jax.enable_x64(True):
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *changes)


def numbers(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


MIXED = jb.combine(
    jb.set_elements([3, 4], [0, 2], [0.5, -1.0]),
    jb.set_rows([6], X[[1]] / 2, [1.0]),
    jb.remove_rows([0]),
    jb.add_rows(X[:1] + 1.0, [-1.0]),
    jb.set_weights([8], [2.0]),
)


@pytest.mark.parametrize(
    "model, change, wide",
    [(MODEL, MIXED, True), (MODEL, MIXED, False), (SPARSE, jb.set_columns([1], sp.csr_array(X[:, [0]])), False)],
    ids=["unlike kinds, x64", "unlike kinds", "sparse column"],
)
def test_jit_equals_host(model, change, wide):
    with jax.enable_x64(wide):
        host, traced = everything(model, change, X_TEST), jax.jit(everything)(model, change, jnp.asarray(X_TEST))
    for a, b in zip(numbers(traced[0]), numbers(host[0]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
        assert a.dtype == b.dtype == np.float64
    for a, b in zip(traced[1], host[1], strict=True):
        lower, upper, low, high = (np.asarray(x) for x in (a.lower, a.upper, b.lower, b.upper))
        assert low.dtype == high.dtype == np.float64
        assert np.isfinite(low).all() and np.isfinite(high).all()
        if wide:
            assert lower.dtype == np.float64
            np.testing.assert_allclose(lower, low, rtol=1e-12, atol=1e-13)
            np.testing.assert_allclose(upper, high, rtol=1e-12, atol=1e-13)
        else:
            assert lower.dtype == upper.dtype == np.float32
            assert (lower.astype(np.float64) <= low).all() and (upper.astype(np.float64) >= high).all()
            np.testing.assert_allclose(lower, low, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(upper, high, rtol=1e-5, atol=1e-6)
    for a, b in zip(numbers(traced[2:]), numbers(host[2:]), strict=True):
        assert a.dtype == b.dtype and np.array_equal(a, b)


def judge(change):
    bounds = jb.bound(MODEL, change)
    scores, distance = bounds.scores(X_TEST), bounds.distance
    return bounds.status, bounds.radius, bounds.labels(X_TEST), scores, distance, bounds.w(0)


def _spoil(batch, field, k, value):
    """The batch with one entry of element k overwritten."""
    leaf = np.array(getattr(batch, field))
    leaf[k] = value
    return put(replace(batch, **{field: leaf}))


PAIRS = [(0, 3), (5, 2), (9, 1), (4, 11)]
BATCHES = {
    "set_elements": (
        [jb.set_elements(rows, [0, 2], [0.1 * k, -0.2]) for k, rows in enumerate(PAIRS)],
        [("values", [0.1, np.nan]), ("rows", [5, N]), ("cols", [-1, 2]), ("values", [np.inf, 1.0])],
    ),
    "set_targets": (
        [jb.set_targets(rows, -Y[list(rows)]) for rows in PAIRS],
        [("target", [0.0, 1.0]), ("target", [1.0, np.nan]), ("rows", [2, 2]), ("rows", [-1, 2])],
    ),
    "remove_rows": (
        [jb.remove_rows(rows) for rows in PAIRS],
        [("rows", [3, 3]), ("rows", [0, N]), ("rows", [2**31 - 1, 0]), ("rows", [-(2**31), 0])],
    ),
}


@pytest.mark.parametrize("kind", BATCHES)
def test_one_bad_element_of_a_batch_harms_no_other(kind):
    changes, faults = BATCHES[kind]
    batch, fn = stack(changes), jax.jit(jax.vmap(judge))
    want = fn(batch)
    for k, change in enumerate(changes):
        bounds = jb.bound(MODEL, change)
        np.testing.assert_allclose(np.asarray(want[1])[k], bounds.radius, rtol=1e-12)
        assert np.array_equal(np.asarray(want[2])[k], bounds.labels(X_TEST))
        assert (np.asarray(want[3].upper, np.float64)[k] >= np.asarray(bounds.scores(X_TEST).upper) - 1e-13).all()
    for k, (field, value) in enumerate(faults):
        got = fn(_spoil(batch, field, k, value))
        status, radius, labels, scores, distance, w = (jax.tree.map(np.asarray, part) for part in got)
        assert status[k] == jb.Status.INVALID and radius[k] == np.inf and (labels[k] == 0).all()
        for interval in (scores, distance, w):
            assert (interval.lower[k] == -np.inf).all() and (interval.upper[k] == np.inf).all()
        others = np.arange(len(changes)) != k
        for a, b in zip(numbers(got), numbers(want), strict=True):
            assert a[others].tobytes() == b[others].tobytes(), f"{field} = {value} harmed another element"


def test_vmap_over_lam():
    lams = np.array([0.3, 1.0, 4.0])
    with jax.enable_x64(True):
        lams = jnp.asarray(lams)

    @jax.jit
    @jax.vmap
    def sweep(lam):
        bounds = jb.bound(MODEL, jb.set_penalty(penalties.l2(lam)))
        return bounds.radius, bounds.scores(X_TEST)

    radius, scores = sweep(lams)
    for k, lam in enumerate(np.asarray(lams)):
        bounds = jb.bound(MODEL, jb.set_penalty(penalties.l2(lam)))
        np.testing.assert_allclose(np.asarray(radius)[k], bounds.radius, rtol=1e-12)
        assert (np.asarray(scores.lower, np.float64)[k] <= np.asarray(bounds.scores(X_TEST).lower) + 1e-13).all()


REVERSE = pytest.mark.xfail(
    raises=UserWarning, reason="reverse mode transposes float64 gathers outside the 64-bit scope; forward mode works"
)


@pytest.mark.parametrize(
    "differentiate, wide",
    [(jax.grad, True), (jax.jacfwd, False), pytest.param(jax.grad, False, marks=REVERSE)],
    ids=["grad, x64", "jacfwd", "grad"],
)
def test_gradient_of_a_score_bound(differentiate, wide):
    def upper(row):
        return jb.bound(MODEL, jb.set_rows([3], row[None, :])).scores(X_TEST[:1]).upper[0]

    start = np.array([0.5, -0.25, 1.0, 0.75])
    with jax.enable_x64(wide):
        gradient = np.asarray(jax.jit(differentiate(upper))(jnp.asarray(start)))
    assert gradient.dtype == (np.float64 if wide else np.float32)
    step = 1e-6 * np.eye(D)
    slope = [(float(upper(start + h)) - float(upper(start - h))) / 2e-6 for h in step]
    np.testing.assert_allclose(gradient, slope, rtol=1e-4, atol=1e-5)


def test_gradient_is_finite_at_kinks_and_zeros():
    """New values equal to the old ones: distances vanish, and roots of zero must not give NaN."""

    def width(values):
        bounds = jb.bound(MODEL, jb.set_elements([3, 5], [1, 2], values))
        scores = bounds.scores(X_TEST)
        return jnp.sum(scores.upper - scores.lower) + bounds.distance.upper

    gradient = jax.jit(jax.jacfwd(width))
    for values in (X[[3, 5], [1, 2]], np.zeros(2)):
        assert np.isfinite(np.asarray(gradient(jnp.asarray(values, jnp.float32)))).all()


def test_traced_numbers_are_range_checked():
    bounds = jb.bound(MODEL, jb.set_targets([0], [1.0]))
    got = jax.jit(lambda j: bounds.w(j))(jnp.asarray([0, D, 3, -1]))
    inside = np.array([True, False, True, False])
    assert np.isfinite(np.asarray(got.lower)[inside]).all()
    assert (np.asarray(got.lower)[~inside] == -np.inf).all() and (np.asarray(got.upper)[~inside] == np.inf).all()
    with pytest.raises(TypeError, match="rows must hold integers"):
        jax.eval_shape(lambda j: jb.remove_rows(j), jnp.ones(2))


# ---------------------------------------------------------------- copies


CHANGES = [
    jb.set_elements([1], [2], [1 / 3]),
    jb.set_rows([0], X[[1]] / 3, [1.0]),
    jb.set_rows([0], sp.csr_array(X[[1]] / 3)),
    jb.set_columns([0], X[:, [1]] / 3),
    jb.set_targets([4], [-1.0]),
    jb.set_weights([4], [1 / 3]),
    jb.add_rows(X[:2] / 3, [1.0, -1.0], [1 / 3, 1.0]),
    jb.remove_rows([3], keep_n=True),
    jb.add_columns(X[:, [1]] / 3),
    jb.remove_columns([0]),
    jb.set_penalty(penalties.l2(1 / 3)),
    MIXED,
]
COPIES = {"pickle": lambda x: pickle.loads(pickle.dumps(x)), "copy": copy.copy, "deepcopy": copy.deepcopy}


def same_leaves(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert np.asarray(x).dtype == np.asarray(y).dtype, f"{np.asarray(x).dtype} became {np.asarray(y).dtype}"
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


@pytest.mark.parametrize("way", COPIES)
def test_copies_keep_every_bit(way):
    duplicate = COPIES[way]
    for model in (MODEL, SPARSE, MODEL.without_data()):
        same_leaves(model, duplicate(model))
        assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(duplicate(model)))
    for change in CHANGES:
        again = duplicate(change)
        same_leaves(change, again)
        bounds = jb.bound(MODEL, change)
        assert float(jb.bound(duplicate(MODEL), again).radius) == float(bounds.radius)
        kept = duplicate(bounds)
        same_leaves(bounds, kept)
        assert float(kept.distance.upper) == float(bounds.distance.upper)
        assert np.array_equal(kept.w().lower, bounds.w().lower)


# ---------------------------------------------------------------- compilations


def test_host_calls_compile_nothing():
    model, sparse = make(n=1200, d=6), make(sparse=True, n=1300, d=7)
    before = len(COMPILED)
    for k in RNG.integers(1, 1001, 30):
        rows = RNG.permutation(1200)[:k]
        block = RNG.normal(size=(k, 6))
        for change in (
            jb.set_elements(rows, RNG.integers(0, 6, k), RNG.normal(size=k)),
            jb.set_rows(rows, block),
            jb.set_targets(rows, np.ones(k)),
            jb.remove_rows(rows),
            jb.add_rows(block, np.ones(k)),
        ):
            bounds = jb.bound(model, change)
            bounds.distance, bounds.scores(block), bounds.labels(block)  # noqa: B018
        bounds = jb.bound(sparse, jb.set_targets(rows, -np.ones(k)), jb.Theorem1())
        bounds.w(), bounds.alpha(), bounds.row_map  # noqa: B018
    assert len(COMPILED) == before, f"{len(COMPILED) - before} compilations"
    jax.jit(lambda x: x * 3.0 + len(COMPILED))(jnp.ones(3))  # the control: the counter counts
    assert len(COMPILED) > before


def test_jit_traces_once_per_shape():
    traces = []

    @jax.jit
    def radius(model, change):
        traces.append(1)
        return jb.bound(model, change, jb.Theorem1()).radius

    for row in (0, 5, 9):
        for lam in (0.5, 2.0):
            model = replace(MODEL, problem=replace(MODEL.problem, penalty=penalties.l2(lam)))
            radius(model, jb.set_targets([row], [1.0]))
    assert len(traces) == 1


def test_import_leaves_the_configuration_alone():
    code = (
        "import jax; before = dict(jax.config.values)\n"
        "import jaxbounds, jaxbounds.demo\n"
        "after = dict(jax.config.values)\n"
        "assert {k: after[k] for k in before} == before, [k for k in before if after[k] != before[k]]"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_structures_of_different_classes_differ():
    """jit must never run what was compiled for another class with as many fields."""
    objects = [jb.losses.logistic(), jb.losses.squared(), jb.losses.hinge(), jb.losses.squared_hinge(),
               jb.losses.smoothed_hinge(0.5), jb.losses.huber(0.5), jb.penalties.l2(0.1), jb.penalties.l1(0.1)]
    structures = [jax.tree.structure(x) for x in objects]
    assert all(a != b for k, a in enumerate(structures) for b in structures[:k])
