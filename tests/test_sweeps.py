"""`bound_each` against a loop of `bound`: every kind of change, ragged batches, any batch size, bad elements."""

import functools
import os
import runpy
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

import jaxbounds as jb
from jaxbounds import threads
from jaxbounds.array import to_host

N, D = 60, 8
METHODS = (jb.Theorem1(), jb.Cached(), jb.Partial())
RNG = np.random.default_rng(0)
X_BASE = np.where(RNG.random((N, D)) < 0.6, RNG.normal(size=(N, D)), 0.0)
X_BASE[7] = 0.0  # an empty row
Y = np.where(X_BASE[:, 0] + 0.5 * RNG.normal(size=N) > 0, 1.0, -1.0)
X_TEST = RNG.normal(size=(5, D))
PENALTIES = {
    "l2": lambda: jb.penalties.l2(0.02),
    "vector": lambda: jb.penalties.l2(np.geomspace(0.02, 0.2, D)),
    "elastic_net": lambda: jb.penalties.elastic_net(0.05, 0.01),
    "l1": lambda: jb.penalties.l1(0.02),
}


@functools.cache
def model_of(penalty="l2", sparse=False, dtype="float64", loss="smoothed_hinge"):
    X = X_BASE.astype(dtype)
    losses = {"smoothed_hinge": lambda: jb.losses.smoothed_hinge(0.5), "hinge": jb.losses.hinge,
              "logistic": jb.losses.logistic}  # fmt: skip
    problem = jb.Problem(losses[loss](), PENALTIES[penalty]())
    weight = np.linspace(0.5, 1.5, N)
    return jb.fit(problem, sp.csr_array(X) if sparse else X, Y, sample_weight=weight, tol=1e-9)


def mixed(penalty="l2", sparse=False):
    """Changes of every kind and of several sizes."""
    wrap = sp.csr_array if sparse else np.asarray
    new = PENALTIES["elastic_net" if penalty == "l2" else "l2"]()
    return [
        jb.remove_rows([1, 2]), jb.set_elements([1, 2, 3], [0, 0, 1], 5.0), jb.set_elements([3], [4], [1.0]),
        jb.set_rows([1], wrap(X_BASE[5:6])), jb.set_rows([1, 4], wrap(X_BASE[5:7]), [1, -1]),
        jb.set_columns([2], wrap(X_BASE[:, 1:2])), jb.set_columns([5, 2], wrap(X_BASE[:, 1:3])),
        jb.set_targets([3], [-Y[3]]), jb.set_targets([7, 9], [1, 1]), jb.set_weights([3, 9], [2.0, 0.5]),
        jb.add_rows(wrap(X_BASE[:2]), [1, -1], [1.0, 3.0]), jb.add_rows(wrap(X_BASE[:1]), [1]), jb.remove_rows([5]),
        jb.remove_rows([5, 8, 30], keep_n=True), jb.remove_columns([3]), jb.set_penalty(new),
        jb.combine(jb.set_elements([1], [1], 2.0), jb.remove_rows([7]), jb.set_targets([2], [1])),
        jb.combine(jb.set_rows([4], wrap(X_BASE[:1])), jb.set_columns([0], wrap(X_BASE[:, 3:4]))),
        jb.combine(jb.set_columns([0], wrap(X_BASE[:, 3:4])), jb.set_rows([4], wrap(X_BASE[:1])), jb.remove_rows([0])),
        jb.combine(jb.add_rows(wrap(X_BASE[:1]), [1]), jb.remove_columns([1]), jb.remove_rows([0])),
    ]  # fmt: skip


def facts(each):
    """Everything that a batch says, as (B, ...) arrays."""
    intervals = [each.distance, each.scores(X_TEST)]
    return [np.asarray(x) for i in intervals for x in (i.lower, i.upper)] + [
        np.asarray(x) for x in to_host((each.gap, each.radius, each.dual_radius))
    ]


def assert_same(each, rtol):
    """Equal to bounds of one change at a time: `rtol` of what the interval spans and of the values it holds."""
    found = facts(each)
    for b in range(len(each)):
        one = each[b]
        alone = [x for i in (one.distance, one.scores(X_TEST)) for x in (i.lower, i.upper)]
        alone += [one.gap, one.radius, one.dual_radius]
        assert int(each.status[b]) == int(one.status)
        scale = 1.0 + float(np.max(np.abs(np.asarray(one.scores(X_TEST).upper))))
        for got, want in zip(found, alone, strict=True):
            np.testing.assert_allclose(got[b], np.asarray(want), rtol=rtol, atol=rtol * scale)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("penalty", ["l2", "vector", "elastic_net"])
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_equals_a_loop(penalty, sparse, method):
    batch = jb.stack(mixed(penalty, sparse))
    assert isinstance(batch, jb.ChangeBatch) and len(batch) == 20
    each = jb.bound_each(model_of(penalty, sparse), batch, X_TEST, method)
    # the inner solvers of Partial are stopped early: other rounding, slightly other trial points
    assert_same(each, 1e-4 if isinstance(method, jb.Partial) else 1e-9)


@pytest.mark.parametrize("case", ["hinge", "logistic-float32", "l1", "without_data"])
def test_other_problems(case):
    changes = mixed()
    if case == "l1":
        model = model_of("l1")
        changes = changes[:6]
    elif case == "without_data":
        model = model_of().without_data()
        old = to_host(X_BASE)
        changes = [jb.remove_rows([1, 2], old_values=old[[1, 2]]), jb.remove_rows([4], old_values=old[[4]]),
                   jb.set_elements([3], [4], [1.0], old_values=old[[3], [4]]),
                   jb.set_columns([2], X_BASE[:, 1:2], old_values=old[:, [2]])]  # fmt: skip
    else:
        model = model_of(loss=case.split("-")[0], dtype="float32" if "float32" in case else "float64")
    assert_same(jb.bound_each(model, jb.stack(changes), X_TEST), 1e-9)


@pytest.mark.parametrize("sparse", [False, True])
def test_any_batch_size_gives_the_same_bits(sparse):
    model = model_of(sparse=sparse)
    for batch in (jb.stack(mixed(sparse=sparse)), jb.each_row_removed(model)):
        whole = facts(jb.bound_each(model, batch, X_TEST))
        for size in (1, 7, 1000):
            for a, b in zip(facts(jb.bound_each(model, batch, X_TEST, batch_size=size)), whole, strict=True):
                np.testing.assert_array_equal(a, b)


def test_sweeps_of_rows_labels_and_penalties():
    model = model_of()
    removed = jb.each_row_removed(model)
    assert removed.rows.shape == (N, 1)
    assert_same(jb.bound_each(model, removed, X_TEST), 1e-9)
    assert jb.each_row_removed(model, [3, 5], keep_n=True).keep_n
    flipped = jb.each_target_flipped(model, [0, 7, 9])
    np.testing.assert_array_equal(np.asarray(flipped.target)[:, 0], -Y[[0, 7, 9]])
    assert_same(jb.bound_each(model, flipped, X_TEST), 1e-9)
    lams = np.geomspace(1e-3, 1.0, 6)
    for penalties in (jax.vmap(jb.penalties.l2)(jnp.asarray(lams)), [jb.penalties.l2(x) for x in lams],
                      [jb.penalties.l2(0.1), jb.penalties.elastic_net(0.1, 0.01),
                       jb.penalties.l2(np.geomspace(0.1, 1.0, D)), jb.penalties.l1(0.02)]):  # fmt: skip
        assert_same(jb.bound_each(model, jb.each_penalty(penalties), X_TEST), 1e-9)


def test_leave_one_out_of_ridge_holds_the_closed_form():
    X, y, lam = X_BASE, X_BASE @ np.ones(D) + 0.1 * np.arange(N), 0.1
    model = jb.fit(jb.Problem(jb.losses.squared(), jb.penalties.l2(lam)), X, y, tol=1e-12)
    each = jb.bound_each(model, jb.each_row_removed(model), X_TEST)
    interval, distance = each.scores(), each.distance
    old = np.linalg.solve(X.T @ X / N + lam * np.eye(D), X.T @ y / N)
    for k in range(N):
        kept = np.delete(np.arange(N), k)
        w = np.linalg.solve(X[kept].T @ X[kept] / (N - 1) + lam * np.eye(D), X[kept].T @ y[kept] / (N - 1))
        assert np.all(interval.lower[k] <= X_TEST @ w) and np.all(X_TEST @ w <= interval.upper[k])
        assert distance.lower[k] - 1e-12 <= np.linalg.norm(w - old) <= distance.upper[k] + 1e-12
        # a tight bound, not only a true one: the mid ball is at most r_P / sqrt(2) wide
        assert distance.upper[k] <= 20 * np.linalg.norm(w - old) + 1e-6


@pytest.mark.parametrize("kind", ["number", "value", "label", "repeated", "all_rows"])
def test_a_bad_element_leaves_the_others_alone(kind):
    model = model_of()
    if kind == "label":
        good = jb.stack([jb.set_targets([k, k + 1], [1, -1]) for k in range(6)])
        target = np.array(good.target)
        target[2, 0] = 0.5
        with jax.enable_x64(True):
            bad = type(good)(good.rows, jnp.asarray(target))
    elif kind == "all_rows":
        changes = [jb.remove_rows([k]) for k in range(5)]
        good, bad = (jb.stack([*changes[:2], jb.remove_rows(rows), *changes[2:]]) for rows in ([9], np.arange(N)))
    else:
        good = jb.stack([jb.set_elements([k, k + 1], [0, 3], [1.0, 2.0]) for k in range(6)])
        rows, cols, values = (np.array(x) for x in (good.rows, good.cols, good.values))
        if kind == "number":
            rows[2, 1] = N + 3
        elif kind == "value":
            values[2, 1] = np.nan
        else:
            rows[2, 1], cols[2, 1] = rows[2, 0], cols[2, 0]
        with jax.enable_x64(True):
            bad = type(good)(*map(jnp.asarray, (rows, cols, values)))
    before, after = jb.bound_each(model, good, X_TEST), jb.bound_each(model, bad, X_TEST)
    assert np.asarray(after.status).tolist() == [0, 0, int(jb.Status.INVALID), 0, 0, 0]
    others = [0, 1, 3, 4, 5]
    for a, b in zip(facts(before), facts(after), strict=True):
        np.testing.assert_array_equal(a[others], b[others])
    assert np.all(np.asarray(after.scores().lower[2]) == -np.inf) and np.all(np.asarray(after.labels()[2]) == 0)
    assert after.distance.upper[2] == np.inf and not np.any(np.asarray(after.decided())[2])


@pytest.mark.parametrize("bad", [-0.1, 0.0, np.nan, np.inf])
@pytest.mark.parametrize("kind", ["l2", "elastic_net", "negative l1", "vector", "l1"])
def test_a_bad_penalty_is_invalid_alone(kind, bad):
    lams, shifts = np.array([0.1, 0.2, 0.3]), np.array([0.01, 0.02, 0.03])
    if kind == "negative l1":
        bad = -0.01 if bad == 0.0 else bad
    (shifts if kind == "negative l1" else lams)[1] = bad
    with jax.enable_x64(True):
        if kind in ("l2", "l1"):
            penalties = jax.vmap(getattr(jb.penalties, kind))(jnp.asarray(lams))
        elif kind == "vector":
            penalties = jax.vmap(jb.penalties.l2)(jnp.full((3, D), 0.1).at[1, 4].set(bad))
        else:
            penalties = jax.vmap(jb.penalties.elastic_net)(jnp.asarray(lams), jnp.asarray(shifts))
    each = jb.bound_each(model_of(), jb.each_penalty(penalties), X_TEST)
    assert np.asarray(each.status).tolist() == [0, int(jb.Status.INVALID), 0]
    upper = np.asarray(each.scores().upper)
    assert np.all(upper[1] == np.inf) and np.all(np.isfinite(upper[::2]))
    assert each.distance.upper[1] == np.inf and int(each[1].status) == int(jb.Status.INVALID)


@pytest.mark.parametrize("penalty", ["l2", "l1"])
def test_a_bad_candidate_spares_coefficients_and_boxes(penalty):
    model = model_of(penalty)
    for changes in ([jb.remove_rows([0]), jb.remove_rows([300])], [jb.remove_rows([0]), jb.remove_rows(np.arange(N))],
                    [jb.remove_rows([300]), jb.remove_rows([301])]):  # fmt: skip
        each = jb.bound_each(model, jb.stack(changes), X_TEST)
        assert int(each.status[1]) == int(jb.Status.INVALID)
        for interval in (each.w(), each.alpha([2]), each.scores()):
            assert np.all(np.asarray(interval.lower[1]) == -np.inf) and np.all(np.asarray(interval.upper[1]) == np.inf)
        if int(each.status[0]) == 0:
            np.testing.assert_allclose(each.w().upper[0], each[0].w().upper, rtol=1e-9)
        with pytest.raises(ValueError, match="is not a row|no row at all"):
            each[1]


def test_items_that_do_not_fit_together_are_named():
    each = jb.bound_each(model_of(), jb.stack([jb.add_rows(X_BASE[:1], [1]), jb.remove_rows([3])]))
    with pytest.raises(ValueError, match="differ in their numbers of rows or columns"):
        each.alpha()
    assert each.alpha([0]).upper.shape == (2, 1)
    assert each.changes[-1].rows.tolist() == [3]
    with pytest.raises(TypeError, match="slice"):
        each[0:1]
    with pytest.raises(ValueError, match="share a leading axis"):
        jb.each_penalty(jax.vmap(jb.penalties.l2)(jnp.zeros(0)))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("penalty", ["l2", "elastic_net"])
def test_added_columns_widen_the_test_rows(penalty, sparse):
    model, wrap = model_of(penalty, sparse), sp.csr_array if sparse else np.asarray
    alike = [jb.add_columns(wrap(X_BASE[:, k : k + 2])) for k in range(4)]
    wide = np.hstack([X_TEST, X_TEST[:, :2]])
    for changes in (alike, [*alike, jb.combine(alike[0], jb.remove_rows([3]))]):
        each = jb.bound_each(model, jb.stack(changes), wide)
        for b in range(len(each)):
            np.testing.assert_allclose(each.scores().upper[b], each[b].scores(wide).upper, rtol=1e-9)
            np.testing.assert_allclose(each.distance.upper[b], each[b].distance.upper, rtol=1e-9)
        with pytest.raises(ValueError, match="X must have 10 columns"):
            each.scores(X_TEST)
    with pytest.raises(ValueError, match="X must have 8 or 10 columns"):
        jb.bound_each(model, jb.stack([*alike, jb.remove_rows([3])]), wide)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS[1:], ids=str)
def test_the_accelerators_path_agrees_and_compiles_once(method, monkeypatch):
    model, changes = model_of(), jb.each_row_removed(model_of(), np.arange(9))
    host = facts(jb.bound_each(model, changes, X_TEST, method))
    host_w = jb.bound_each(model, changes, X_TEST, method).w([0, 3]).upper
    monkeypatch.setattr(jb.sweeps, "on_host", lambda *trees: False)
    each = jb.bound_each(model, changes, X_TEST, method)
    for a, b in zip(facts(each), host, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4 if isinstance(method, jb.Partial) else 1e-9)
    np.testing.assert_allclose(each.w([0, 3]).upper, host_w, rtol=1e-4)
    before = jb.sweeps._map._cache_size()
    jb.bound_each(model, jb.each_row_removed(model, np.arange(9, 18)), X_TEST, method)
    assert jb.sweeps._map._cache_size() == before


@pytest.mark.slow
def test_vmap_and_jit_agree():
    model, changes = model_of(), jb.each_row_removed(model_of(), np.arange(6))
    host = jb.bound_each(model, changes, X_TEST)

    def ask(model, changes, X):
        each = jb.bound_each(model, changes, X, batch_size=4)
        return each.distance.upper, each.scores().lower, each.status

    traced = jax.jit(ask)(model, changes, jnp.asarray(X_TEST))
    mapped = jax.vmap(lambda change: jb.bound(model, change).distance.upper)(changes)
    for a, b in zip(traced, (host.distance.upper, host.scores().lower, host.status), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(np.asarray(mapped), np.asarray(host.distance.upper), rtol=1e-6)


def test_two_hundred_sizes_compile_nothing_and_fifty_lams_trace_once():
    model, events = model_of(), []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **_: events.append(event) if "compile" in event or "trace" in event else None
    )
    rng = np.random.default_rng(1)
    for size in rng.integers(1, N * D, 200):
        at = rng.choice(N * D, size, replace=False)
        jb.bound(model, jb.set_elements(at // D, at % D, 1.0)).distance  # noqa: B018
    jb.bound_each(model, jb.stack([jb.remove_rows(np.arange(k)) for k in range(1, 40)])).distance  # noqa: B018
    assert not events
    traces = []

    @jax.jit
    def upper(problem, change):
        traces.append(1)
        moved = jb.bound(model, jb.combine(change, jb.set_penalty(problem.penalty)))
        return moved.distance.upper

    for k in range(50):
        lam = (0.1 + 0.01 * k, np.float32(0.1 + 0.01 * k), np.float64(0.2), 1)[k % 4]
        upper(jb.Problem(jb.losses.smoothed_hinge(0.5), jb.penalties.l2(lam)), jb.remove_rows([k % 3]))
    assert len(traces) == 1


def test_items_of_batches():
    changes = mixed()
    batch = jb.stack(changes)
    for b, change in enumerate(changes):
        for got, want in zip(batch[b].apply(X_BASE, Y), change.apply(X_BASE, Y), strict=True):
            if want is not None:
                np.testing.assert_array_equal(got, want)
    with pytest.raises(IndexError, match="change 20 of a batch of 20"):
        batch[20]
    each = jb.bound_each(model_of(), batch, X_TEST)
    np.testing.assert_allclose(each.w(0).upper[3], each[3].w(0).upper)
    assert each.alpha([0, 1]).lower.shape == (20, 2)
    assert float(each[-1].gap) == pytest.approx(float(each.gap[19]), rel=1e-9)


def test_errors_name_what_is_wrong():
    model = model_of()
    one = jb.remove_rows([0, 1])
    for call, message in (
        (lambda: jb.stack([]), "changes is empty"),
        (lambda: jb.stack([one, 3]), r"changes\[1\] is not a change, got int"),
        (lambda: jb.bound_each(model, one), "changes is a single change"),
        (lambda: jb.bound_each(model, jb.add_rows(X_BASE[:1], [1])), "changes is a single change"),
        (lambda: jb.bound_each(model, [one]), "changes must come from stack"),
        (lambda: jb.bound_each(one, one), "model must come from fit"),
        (lambda: jb.bound_each(model, jb.stack([one]), batch_size=0), "batch_size must be a whole number"),
        (lambda: jb.bound_each(model, jb.stack([one]), method=jb.Cached), "call it"),
        (lambda: jb.bound_each(model, jb.stack([one]), X_BASE[:, :3]), "X must have 8 columns"),
        (lambda: jb.bound_each(model, jb.stack([one])).scores(), "X is missing"),
        (lambda: jb.each_row_removed(model, [N]), r"rows\[0\] = 60 is not a row"),
        (lambda: jb.each_row_removed(model, [1, 1]), "is repeated"),
        (lambda: jb.each_penalty(jb.penalties.l2(0.1)), "share a leading axis"),
        (lambda: jb.each_target_flipped(jb.fit(jb.Problem(jb.losses.squared(), jb.penalties.l2(0.1)), X_BASE, Y)),
         "no labels to flip"),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError), match=message):
            call()


@pytest.mark.parametrize("penalty", ["jb.penalties.l2(0.1)", "jb.penalties.l2(np.full(d, 0.1))"])
def test_ten_thousand_candidates_stay_under_a_gigabyte(penalty):
    program = f"""
import pathlib, re, resource, jax, numpy as np, scipy.sparse as sp, jaxbounds as jb
from jaxbounds.array import put
from jaxbounds.matrix import as_matrix
from jaxbounds.model import Data, remember
n, d, k, m = 10_000, 100_000, 10, 10_000 if {"full" not in penalty} else 60
rng = np.random.default_rng(0)
X = sp.csr_array((rng.normal(size=n * k), rng.integers(0, d, n * k), np.arange(n + 1) * k), shape=(n, d))
y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
with jax.enable_x64(True):
    problem = jb.Problem(jb.losses.smoothed_hinge(0.5), {penalty})
    model = remember(problem, put(Data(as_matrix(X), y, np.ones(n))), 0.1 * rng.normal(size=d), rng.random(n))
each = jb.bound_each(model, jb.each_row_removed(model, np.arange(m)), X[:50])
assert each.scores().upper.shape == (m, 50) and np.all(np.isfinite(np.asarray(each.distance.upper)))
status = pathlib.Path("/proc/self/status")  # ru_maxrss also counts what the parent held when it forked
peak = re.search(r"VmHWM:\\s*(\\d+)", status.read_text())[1] if status.exists() else 0
print(int(peak) / 2**20)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=Path(__file__).parent)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1.0, f"{done.stdout} GiB"


def test_callback_counts_candidates():
    """Progress of the host loop, in order; results do not depend on batches or threads."""
    model = jb.fit(jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0)), np.eye(6), np.ones(6))
    seen, changes = [], jb.each_row_removed(model)
    some = jb.bound_each(model, changes, np.eye(6), batch_size=2, callback=seen.append)
    assert seen == [{"done": k, "total": 6} for k in (2, 4, 6)]
    whole = jb.bound_each(model, changes, np.eye(6))
    np.testing.assert_array_equal(some.scores().upper, whole.scores().upper)
    with pytest.raises(ValueError, match="callback"):
        jax.jit(lambda m: jb.bound_each(m, changes, callback=seen.append).gap)(model)


def test_as_many_threads_as_the_process_may_use_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 5, 6}, raising=False)
    assert runpy.run_path(str(threads.__file__))["CORES"] == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    assert runpy.run_path(str(threads.__file__))["CORES"] == os.cpu_count()
