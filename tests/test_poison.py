"""Locality: a bound may read only what its change touches, and its cost must not grow with the rest of the data.

Everything that a change does not touch (entries of X, targets, weights, and the memory of rows and columns) is
overwritten with NaN; the scalars of the bound must stay the same to the last bit.
"""

import concurrent.futures
import functools
import threading
import tracemalloc
from dataclasses import fields, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

import jaxbounds as jb
from jaxbounds import losses, penalties
from jaxbounds.array import put
from jaxbounds.matrix import Dense, as_matrix
from jaxbounds.model import Data, remember

N, D = 26, 9
RNG = np.random.default_rng(5)
X = np.where(RNG.random((N, D)) < 0.45, RNG.normal(size=(N, D)), 0.0)
X[4], X[:, 6] = 0.0, 0.0
LABELS = np.where(RNG.random(N) < 0.5, 1.0, -1.0)
REALS = RNG.normal(size=N)
WEIGHT = RNG.uniform(0.4, 2.0, N)
W = RNG.normal(size=D)
W[2] = 0.0


def _soft_margin(m, scale):
    return scale * jnp.logaddexp(0.0, -m / scale)


def _bump(s, y):
    return jnp.log(jnp.cosh(s - y))


LOSSES = {
    "smoothed_hinge": lambda: losses.smoothed_hinge(0.5),
    "hinge": losses.hinge,
    "squared_hinge": losses.squared_hinge,
    "logistic": losses.logistic,
    "squared": losses.squared,
    "huber": lambda: losses.huber(0.7),
    "own margin": lambda: losses.from_margin(_soft_margin, smoothness=0.5, params=(0.5,), domain=(0.0, 1.0)),
    "own score": lambda: losses.from_score(_bump, smoothness=1.0),
}
PENALTIES = {
    "l2": lambda: penalties.l2(0.3),
    "l2 vector": lambda: penalties.l2(np.geomspace(0.1, 1.0, D)),
    "elastic net": lambda: penalties.elastic_net(0.3, 0.05),
}
METHODS = {"Theorem1": jb.Theorem1(), "Cached": jb.Cached(), "Partial": jb.Partial()}


def make_model(loss, penalty="l2", sparse=False, scale="mean", dtype=np.float64):
    """Any pair (w, alpha) is a model: nothing is fitted, nothing compiled."""
    loss = LOSSES[loss]()
    y = LABELS if loss.classification else REALS
    with jax.enable_x64(True):
        ref = np.asarray(loss.coordinate(X @ W, y)) + 0.3 * RNG.normal(size=N)
        alpha = np.asarray(loss.dual(ref, y))
    problem = jb.Problem(loss, PENALTIES[penalty](), scale)
    matrix = as_matrix((sp.csr_array(X) if sparse else X).astype(dtype))
    with jax.enable_x64(True):
        return remember(problem, put(Data(matrix, y, WEIGHT)), W.astype(dtype), alpha, ref)


def make_changes(loss, sparse):
    """name -> (change, touched rows, touched columns, touched elements (n, d))."""
    margin = LOSSES[loss]().classification

    def targets(rows):
        return -LABELS[rows] if margin else REALS[rows] + 0.5

    def block(k):
        new = np.where(RNG.random((k, D)) < 0.4, RNG.normal(size=(k, D)), 0.0)
        return new, sp.csr_array(new) if sparse else new

    def touched(rows, new=None):
        mask = np.zeros((N, D), bool)
        mask[rows] = True
        cols = np.arange(D)
        if sparse:
            used = (X[rows] != 0).any(axis=0)
            cols = np.flatnonzero(used if new is None else used | (new != 0).any(axis=0))
        return rows, cols, mask

    spots = np.array([3, 3, 17, 4]), np.array([1, 7, 0, 1])
    named = np.zeros((N, D), bool)
    named[spots] = True
    rows = np.array([20, 2, 9])
    swap, swap_data = block(3)
    more, more_data = block(2)
    return {
        "set_elements": (jb.set_elements(*spots, [0.4, 0.0, -1.1, 0.3]), spots[0], spots[1], named),
        "set_rows": (jb.set_rows(rows, swap_data, targets(rows)), *touched(rows, swap)),
        "set_targets": (jb.set_targets(rows, targets(rows)), *touched(rows)),
        "set_weights": (jb.set_weights(rows, [0.2, 3.0, 1.0]), *touched(rows)),
        "remove_rows": (jb.remove_rows(rows), *touched(rows)),
        "remove_rows keep_n": (jb.remove_rows(rows, keep_n=True), *touched(rows)),
        "add_rows": (jb.add_rows(more_data, targets(rows[:2]), [1.0, 0.5]), *touched(rows[:0], more)),
        "combined": (
            jb.combine(jb.set_targets(rows[:1], targets(rows[:1])), jb.remove_rows(rows[1:], keep_n=True)),
            *touched(rows),
        ),
    }


def _spoil(array, keep):
    array = np.array(array)
    array[~keep] = np.nan
    return array


def poison(model, rows, cols, elements):
    """The model with NaN in every entry and every memory of rows and columns but the touched ones."""
    row, col = np.isin(np.arange(N), rows), np.isin(np.arange(D), cols)
    matrix, data = model.data.matrix, model.data
    if isinstance(matrix, Dense):
        spoiled = Dense(_spoil(matrix.values, elements))
    else:
        stores = []
        for store, keep in ((matrix.by_row, elements), (matrix.by_col, elements.T)):
            values, owner = np.asarray(store.data), np.asarray(store.owner)
            empty = values == 0  # padding
            stores.append(replace(store, data=_spoil(values, keep[owner[:, None], np.asarray(store.indices)] | empty)))
        spoiled = replace(matrix, by_row=stores[0], by_col=stores[1])

    def all_fields(part, keep):
        return replace(part, **{f.name: _spoil(getattr(part, f.name), keep) for f in fields(part)})

    poisoned = replace(
        model,
        w=_spoil(model.w, col),
        alpha=_spoil(model.alpha, row),
        ref=_spoil(model.ref, row),
        rows=all_fields(model.rows, row),
        columns=all_fields(model.columns, col),
        data=Data(spoiled, _spoil(data.target, row), _spoil(data.weight, row)),
    )
    return put(poisoned)


def summary(bounds):
    distance = bounds.distance
    return bounds.gap, bounds.radius, bounds.dual_radius, bounds.status, distance.lower, distance.upper


def assert_same_bits(got, want, what):
    for name, a, b in zip(("gap", "radius", "dual_radius", "status", "lower", "upper"), got, want, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.dtype == b.dtype and a.tobytes() == b.tobytes(), f"{what}: {name} {b!r} became {a!r}"


def cases(loss, penalty, sparse):
    """(name, change, touched) that must be local for this penalty."""
    for name, (change, *touched) in make_changes(loss, sparse).items():
        if penalty != "l2" and name in ("remove_rows", "add_rows"):
            continue  # 1/n changes, so w - u moves in every column: O(d) unless the penalty is plain L2
        yield name, change, touched


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("loss", LOSSES)
def test_host_reads_only_what_is_touched(loss, penalty, sparse):
    own = loss.startswith("own")
    if own and penalty != "l2":
        pytest.skip("users' functions run on jax, which is slow for one call: one penalty is enough")
    model = make_model(loss, penalty, sparse)
    for name, change, touched in cases(loss, penalty, sparse):
        spoiled = poison(model, *touched)
        for method in ["Cached"] if own else METHODS:
            if method == "Partial" and name == "set_elements":
                continue  # its columns and rows are read as wholes: O(n |J| + d |I|)
            want = summary(jb.bound(model, change, METHODS[method]))
            assert np.isfinite(want[0]) and np.isfinite(want[-1]), f"{name}, {method}: vacuous"
            assert_same_bits(summary(jb.bound(spoiled, change, METHODS[method])), want, f"{name}, {method}")


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_more_rows_are_local_in_sum_scale(sparse):
    model = make_model("logistic", "elastic net", sparse, scale="sum", dtype=np.float32)
    for name, (change, *touched) in make_changes("logistic", sparse).items():
        want = summary(jb.bound(model, change))
        assert_same_bits(summary(jb.bound(poison(model, *touched), change)), want, name)


@pytest.mark.parametrize(
    "loss, penalty, sparse, name",
    [
        ("smoothed_hinge", "l2", False, "set_elements"),
        ("smoothed_hinge", "l2", False, "remove_rows"),
        ("smoothed_hinge", "l2", True, "set_elements"),
        ("smoothed_hinge", "l2", True, "remove_rows"),
        ("logistic", "elastic net", False, "set_rows"),
        ("logistic", "elastic net", True, "set_targets"),
        ("hinge", "l2", True, "set_rows"),
        ("hinge", "l2", True, "add_rows"),
    ],
)
def test_jit_reads_only_what_is_touched(loss, penalty, sparse, name):
    model = make_model(loss, penalty, sparse)
    change, *touched = make_changes(loss, sparse)[name]
    fn = jax.jit(lambda model, change: summary(jb.bound(model, change)))
    want = fn(model, change)
    assert np.isfinite(np.asarray(want[-1]))
    assert_same_bits(fn(poison(model, *touched), change), want, name)


def test_poison_is_seen_where_it_is_read():
    """The control: spoiling one touched thing too many changes the answer."""
    for sparse in (False, True):
        model = make_model("smoothed_hinge", "l2", sparse)
        change, rows, cols, mask = make_changes("smoothed_hinge", sparse)["set_rows"]
        want = float(jb.bound(model, change).radius)
        less = mask & (np.arange(N) != 2)[:, None]
        for touched in ((rows[1:], cols, mask), (rows, cols[1:], mask), (rows, cols, less)):
            assert float(jb.bound(poison(model, *touched), change).radius) != want


def _big(n, d, sparse):
    rng = np.random.default_rng(1)
    if sparse:
        data = sp.csr_array((rng.normal(size=4 * n), rng.integers(0, d, 4 * n), np.arange(n + 1) * 4), shape=(n, d))
    else:
        data = rng.normal(size=(n, d))
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    problem = jb.Problem(losses.smoothed_hinge(0.5), penalties.l2(0.1))
    with jax.enable_x64(True):
        return remember(problem, put(Data(as_matrix(data), y, np.ones(n))), 0.1 * np.ones(d), rng.random(n))


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_memory_of_a_bound_does_not_grow(sparse):
    """Ten times the rows, and for sparse data ten times the columns: not one more large array."""
    peaks = []
    for scale in (1, 10):
        n, d = 3_000 * scale, 300 * scale if sparse else 6
        model = _big(n, d, sparse)
        row = model.data.matrix.rows(np.array([5]))
        new = sp.csr_array((np.ones(len(row[1])), (row[0], row[1])), shape=(1, d)) if sparse else np.ones((1, d))
        used = []
        for change in (
            jb.set_elements([7], [3], 0.5),
            jb.set_rows([5], new),
            jb.set_targets([5], [1.0]),
            jb.set_weights([5], [2.0]),
            jb.remove_rows([5]),
            jb.remove_rows([5], keep_n=True),
            jb.add_rows(new, [1.0]),
        ):
            for method in (jb.Theorem1(), jb.Cached()):
                summary(jb.bound(model, change, method))
                tracemalloc.start()
                summary(jb.bound(model, change, method))
                used.append(tracemalloc.get_traced_memory()[1])
                tracemalloc.stop()
        peaks.append(np.array(used))
    grown = peaks[1] - peaks[0]
    assert (grown < 16_000).all(), f"bytes at the peak: {peaks[0].tolist()}, then {peaks[1].tolist()}"


# ---------------------------------------------------------------- one candidate of a batch


EACH = {"Cached": jb.Cached(), "Theorem1": jb.Theorem1(), "Partial": jb.Partial(), "Pass": jb.Pass(),
        "Curvature": jb.Curvature()}  # fmt: skip
X_TEST = RNG.normal(size=(3, D))


def facts(each, but=None):
    """All that a batch says, without candidate `but`."""
    found = [each.gap, each.radius, each.dual_radius, each.status, *parts_of(each.distance), *parts_of(each.scores())]
    return [np.delete(np.asarray(part), [] if but is None else but, axis=0) for part in found]


def parts_of(interval):
    return interval.lower, interval.upper


def same_bits(got, want, what):
    for a, b in zip(got, want, strict=True):
        assert a.dtype == b.dtype and a.tobytes() == b.tobytes(), f"{what}: {b!r} became {a!r}"


@pytest.mark.parametrize("method", EACH)
def test_a_huge_candidate_changes_no_other(method):
    """Values whose squares or products overflow, beside ordinary candidates of every kind: NaN stays where it is."""
    model = make_model("smoothed_hinge")
    changes = [change for change, *_ in make_changes("smoothed_hinge", False).values()]
    for huge in (1e160, 1e300):
        poisons = [jb.set_elements([3, 5], [0, 1], [huge, -huge]), jb.set_rows([7], np.full((1, D), huge)),
                   jb.add_rows(np.full((1, D), huge), [1.0]), jb.set_weights([3], [huge])]  # fmt: skip
        kinds = poisons if method in ("Cached", "Theorem1") else poisons[:1]
        for poison_ in kinds:
            fine = jb.bound_each(model, jb.stack([changes[0], *changes]), X_TEST, EACH[method])
            bad = jb.bound_each(model, jb.stack([poison_, *changes]), X_TEST, EACH[method])
            same_bits(facts(bad, 0), facts(fine, 0), f"{method}, {huge:g}, {type(poison_).__name__}")
            for part in facts(bad):
                assert not np.isnan(part).any(), f"{method}: NaN in {part}"


def test_candidates_of_any_sizes_and_batches_give_the_same_bits():
    """Spots of several sizes in every order: each reads its own elements, whatever lies beside it."""
    model, rng = make_model("logistic"), np.random.default_rng(1)
    for sizes in ((4, 3, 5), (3, 5, 4), (1, 2, 3), (7, 1, 1, 3), (2, 2, 2), (8, 3, 1, 4)):
        changes = [
            jb.set_elements(rng.permutation(N)[:k], rng.integers(0, D, k), 10.0**i * rng.normal(size=k))
            for i, k in enumerate(sizes)
        ]
        want = facts(jb.bound_each(model, jb.stack(changes), X_TEST))
        for size in (1, 2, 3):
            same_bits(facts(jb.bound_each(model, jb.stack(changes), X_TEST, batch_size=size)), want, f"{sizes}, {size}")
        one = [jb.bound(model, change) for change in changes]
        np.testing.assert_allclose(want[5], [bounds.distance.upper for bounds in one], rtol=1e-5)
        np.testing.assert_allclose(want[7], [bounds.scores(X_TEST).upper for bounds in one], rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("method", ["Cached", "Theorem1", "Partial", "Pass", "Curvature"])
def test_overflow_decides_nothing(method):
    """Where sums overflow, intervals are infinite, labels open and nothing is screened; no NaN gets out."""
    model = make_model("squared_hinge")
    row = np.full((1, D), 1e200)
    for change in (jb.set_rows([2], row, [1.0]), jb.add_rows(-row, [-1.0]), jb.set_elements([2], [1], [1e308])):
        bounds = jb.bound(model, change, EACH[method])
        for interval in (bounds.w(), bounds.alpha(), bounds.scores(X_TEST), bounds.distance):
            for end in parts_of(interval):
                assert not np.isnan(end).any(), f"{method}: NaN in {interval}"
            assert np.all(np.asarray(interval.lower) <= np.asarray(interval.upper)), f"{method}: empty {interval}"
        open_ = np.isinf(bounds.scores(X_TEST).upper) & np.isinf(bounds.scores(X_TEST).lower)
        assert not np.asarray(bounds.labels(X_TEST))[open_].any()
    for lower, upper in ((np.nan, np.nan), (np.nan, -1.0), (1.0, np.nan)):
        decided = np.asarray(jb.bounds.labels_of(np.array([lower]), np.array([upper])))
        assert decided == (np.sign(lower) if lower > 0 else np.sign(upper) if upper < 0 else 0)


@pytest.mark.slow
def test_x64_off_gives_the_same_bounds_rounded_outward():
    """On the host float64 either way; inside jit float32 ends, at most two units outside the float64 ones."""
    model = make_model("logistic")
    change = make_changes("logistic", False)["set_rows"][0]

    def ends(model, change):
        bounds = jb.bound(model, change)
        return [end for interval in (bounds.scores(X_TEST), bounds.distance) for end in parts_of(interval)]

    with jax.enable_x64(True):
        wide, wide_jit = ends(model, change), jax.jit(ends)(model, change)
    with jax.enable_x64(False):
        off, off_jit = ends(model, change), jax.jit(ends)(model, change)
    for k, (a, b, c, d) in enumerate(zip(wide, wide_jit, off, off_jit, strict=True)):
        a, b, c, d = (np.asarray(x) for x in (a, b, c, d))
        assert a.dtype == b.dtype == c.dtype == np.float64 and d.dtype == np.float32
        assert a.tobytes() == c.tobytes()
        np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-9)
        outward = d.astype(float) <= b if k % 2 == 0 else d.astype(float) >= b
        assert outward.all(), f"{d} is inside {b}"
        np.testing.assert_allclose(d, b, rtol=3e-7, atol=1e-37)


# ---------------------------------------------------------------- threads


def in_threads(calls):
    """The results of calls that start together, a thread each; the first error is raised."""
    gate = threading.Barrier(len(calls))
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(lambda call: (gate.wait(), call())[1], calls))


@pytest.mark.slow
def test_threads_get_what_one_thread_gets():
    """fit, bound in all forms, and sweeps, from many threads at once, some with x64 on: the bits of a serial run."""
    problems = [jb.Problem(LOSSES[name](), penalties.l2(0.3)) for name in ("logistic", "smoothed_hinge")]
    model = make_model("smoothed_hinge")
    changes = [change for change, *_ in make_changes("smoothed_hinge", False).values()]
    compiled = jax.jit(lambda model, change: parts_of(jb.bound(model, change).distance))

    def fitted(k):
        found = jb.fit(problems[k % 2], X, LABELS, sample_weight=WEIGHT, tol=1e-10)
        return np.asarray(found.w), np.asarray(found.alpha), np.asarray(found.gap)

    def asked(k):
        bounds = jb.bound(model, changes[k % len(changes)], list(EACH.values())[k % 5])
        return *map(np.asarray, summary(bounds)), *map(np.asarray, parts_of(bounds.scores(X_TEST)))

    def swept(k):
        each = jb.bound_each(model, jb.each_row_removed(model), X_TEST)
        left_out = jb.leave_one_out(model)
        return *facts(each), *map(np.asarray, parts_of(left_out.scores))

    def jitted(k):
        with jax.enable_x64(k % 2 == 0):
            return tuple(map(np.asarray, compiled(model, changes[0])))

    calls = [functools.partial(fn, k) for k in range(6) for fn in (fitted, asked, swept, jitted)]
    before = jax.config.jax_enable_x64
    want = [call() for call in calls]
    for _ in range(3):
        for got, expected in zip(in_threads(calls), want, strict=True):
            same_bits(got, expected, "threads")
    assert jax.config.jax_enable_x64 == before


@pytest.mark.slow
def test_threads_push_to_one_monitor():
    """Pushes from many threads are taken one by one: all arrive, and the end is that of any order."""
    y = np.where(X @ np.arange(1.0, D + 1) > 0, 1.0, -1.0)
    problem = jb.Problem(losses.logistic(), penalties.l2(0.3))
    model = jb.fit(problem, X, y, tol=1e-12)
    monitor = jb.Monitor(model, 0.05)

    def push(k):
        said = [monitor.push(jb.set_weights([k], [1.0 + j])) for j in range(5)]
        reader = monitor.bounds().distance, monitor.rows, monitor.data
        return [s.number for s in said], reader

    found = in_threads([functools.partial(push, k) for k in range(8)])
    assert sorted(number for numbers, _ in found for number in numbers) == list(range(1, 41))
    weight = np.ones(N)
    weight[:8] = 5.0
    np.testing.assert_array_equal(monitor.data[2], weight)
    apart = np.linalg.norm(np.asarray(jb.fit(problem, X, y, sample_weight=weight, tol=1e-12).w) - np.asarray(model.w))
    last = monitor.push(jb.set_weights([0], [5.0]))
    assert last.lower - 1e-7 <= apart <= last.upper + 1e-7
