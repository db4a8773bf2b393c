"""`Monitor`: after every push its intervals hold what retraining gives, and nothing acknowledged is ever lost."""

import itertools
import os
import subprocess
import sys
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
import scipy.sparse as sp
from untrained import model_at

import jaxbounds as jb
from jaxbounds.array import put
from jaxbounds.monitoring.committed import Committed, write
from jaxbounds.pytree import in_float64

N, D = 40, 6
LOSSES = {
    "logistic": (jb.losses.logistic, None), "smoothed_hinge": (lambda: jb.losses.smoothed_hinge(0.5), 0.5),
    "squared_hinge": (jb.losses.squared_hinge, None), "squared": (jb.losses.squared, None),
    "huber": (lambda: jb.losses.huber(1.0), 1.0), "hinge": (jb.losses.hinge, None),
}  # fmt: skip
KINDS = ("elements", "rows", "targets", "weights", "remove", "remove keep_n", "add", "two")


def optimum(loss, X, y, weight, count, lam, scale, l1=0.0):
    """(w of the retrained model, its error) by the independent path."""
    X = (X.toarray() if sp.issparse(X) else X).astype(float)
    c = weight / count if scale == "mean" else weight
    kind = "l2" if l1 == 0 else "elastic_net"
    found = oracle.solve(oracle.Problem(loss, X, y, c, kind, LOSSES[loss][1], lam=lam, l1=l1))
    return found.w, np.sqrt(2 * max(found.gap, 0.0) / lam)


def targets(loss, size, rng):
    return np.sign(rng.normal(size=size)) if loss in oracle.MARGIN_LOSSES else rng.normal(size=size)


def draw(kind, rows, loss, rng, d=D):
    """(a change of this kind, how the count of the mean moves)."""
    k = int(rng.integers(1, 4))
    chosen = rng.choice(rows, k, replace=False)
    if kind == "elements":
        return jb.set_elements(chosen, rng.integers(0, d, k), rng.normal(size=k)), 0
    if kind == "rows":
        return jb.set_rows(chosen, rng.normal(size=(k, d)), targets(loss, k, rng)), 0
    if kind == "targets":
        return jb.set_targets(chosen, targets(loss, k, rng)), 0
    if kind == "weights":
        return jb.set_weights(chosen, rng.uniform(0.5, 2, k)), 0
    if kind == "remove":
        return jb.remove_rows(chosen), -k
    if kind == "remove keep_n":
        return jb.remove_rows(chosen, keep_n=True), 0
    if kind == "add":
        return jb.add_rows(rng.normal(size=(k, d)), targets(loss, k, rng)), k
    both = jb.combine(jb.set_rows(chosen[:1], rng.normal(size=(1, d))), jb.add_rows(rng.normal(size=(1, d)), [1.0]))
    return both, 1


def check(monitor, said, loss, count, lam, scale, watched=None, l1=0.0):
    """The truth lies in the intervals; returns the distance."""
    X, y, weight = monitor.data
    w, error = optimum(loss, X, y, weight, count, lam, scale, l1)
    deployed = np.asarray(monitor.model.w, float)
    apart = np.linalg.norm(w - deployed)
    slack = error + 1e-13
    assert said.lower - slack <= apart <= said.upper + slack, (loss, said, apart)
    if watched is not None:
        before, after = np.sign(watched @ deployed), np.sign(watched @ w)
        assert said.broken <= np.sum(before != after) <= said.broken + said.open
    return apart


@pytest.mark.parametrize("loss", LOSSES)
def test_every_push_is_sound(loss):
    rng = np.random.default_rng(len(loss))
    ratios = []
    for trial, scale in enumerate(("mean", "sum")[: 1 if loss == "hinge" else 2]):
        lam = 10.0 ** rng.uniform(-1, 0) * (N if scale == "sum" else 1)
        X = rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.6)
        X = (sp.csr_array(X), X.astype(np.float32), X)[(trial + len(loss)) % 3]
        y, weight, count = targets(loss, N, rng), rng.uniform(0.5, 2, N), N
        w = optimum(loss, X, y, weight, N, lam, scale)[0] + 10.0 ** rng.uniform(-9, -3) * rng.normal(size=D)
        problem = jb.Problem(LOSSES[loss][0](), jb.penalties.l2(lam), scale)
        model, watched = model_at(problem, X, y, weight, w), rng.normal(size=(4, D))
        margin = loss in oracle.MARGIN_LOSSES
        monitor = jb.Monitor(model, theta=0.05, X_watch=watched if margin else None, methods=[jb.Cached()])
        for kind in KINDS:
            change, more = draw(kind, monitor.rows, loss, rng)
            count += more
            said = monitor.push(change)
            apart = check(monitor, said, loss, count, lam, scale, watched if margin else None)
            assert said.method == "Cached" and (said.answer is not True or apart < 0.05)
            ratios.append(said.upper / apart)
        anew = float(monitor.bounds(jb.Cached()).distance.upper)
        assert said.upper < 1.3 * anew  # as good as a memory that is computed from the present data
    assert np.median(ratios) < 8


def phi(m, temperature):
    return temperature * jnp.logaddexp(0.0, -m / temperature)


def test_functions_of_the_user_are_watched_too(tmp_path):
    """The same as logistic: phi at temperature 1."""
    loss, rng = jb.losses.from_margin(phi, smoothness=0.25, params=(1.0,), domain=(0.0, 1.0)), np.random.default_rng(8)
    X, y = rng.normal(size=(N, D)), np.sign(rng.normal(size=N))
    model = model_at(jb.Problem(loss, jb.penalties.l2(0.3)), X, y, np.ones(N), np.zeros(D))
    monitor = jb.Monitor(model, theta=0.5)
    for kind in ("targets", "add", "elements"):
        change, _ = draw(kind, monitor.rows, "logistic", rng)
        said = monitor.push(change)
        check(monitor, said, "logistic", len(monitor.rows), 0.3, "mean")
    monitor.save(tmp_path / "m")
    with pytest.raises(ValueError, match="pass problem="):
        jb.Monitor.load(tmp_path / "m")
    assert jb.Monitor.load(tmp_path / "m", model.problem).trail == monitor.trail


@pytest.mark.parametrize("loss, intercept, l1", [("squared", False, 0.02), ("logistic", True, 0.0)])
def test_other_problems_and_changes_rebuild_the_memory(loss, intercept, l1):
    """Elastic net, an intercept, columns, another penalty: sound as well, and the ladder goes on to Pass."""
    rng = np.random.default_rng(5)
    X, y, lam = rng.normal(size=(N, D)), targets(loss, N, rng), 0.3
    penalty = jb.penalties.elastic_net(lam, l1) if l1 else jb.penalties.l2(lam)
    problem = jb.Problem(LOSSES[loss][0](), penalty, intercept=intercept)
    model = model_at(problem, X, y, np.ones(N), 0.1 * rng.normal(size=D))
    monitor, count = jb.Monitor(model, theta=0.05), N
    for kind in KINDS:
        change, more = draw(kind, monitor.rows, loss, rng)
        said, count = monitor.push(change), count + more
        if not intercept:
            check(monitor, said, loss, count, lam, "mean", l1=l1)
    table = monitor._present.table()
    bounds = monitor.bounds(jb.Cached())
    assert float(bounds.distance.lower) - 1e-12 <= said.upper and table.count == count
    assert monitor.bounds().model.alpha.shape == monitor.rows.shape


def test_points_that_follow_the_optimum_answer_sharply():
    """Where the first ball does not decide, Newton steps on the host do, and later pushes measure from there."""
    rng = np.random.default_rng(7)
    model, count, methods = trained(3), N, []
    watched = rng.normal(size=(6, D))
    monitor = jb.Monitor(model, theta=0.4, X_watch=watched, methods=[jb.Cached(), jb.Pass()])
    for kind in KINDS * 3:
        change, more = draw(kind, monitor.rows, "logistic", rng)
        said, count = monitor.push(change), count + more
        apart = check(monitor, said, "logistic", count, 0.3, "mean", watched)
        assert said.answer is not None
        assert said.method == "Cached" or said.upper - said.lower < 0.1 * apart
        methods.append(said.method)
    assert {"Cached", "Pass"} == set(methods) and monitor.model is model


def test_columns_come_and_go():
    rng = np.random.default_rng(6)
    X, y, lam = rng.normal(size=(N, D)), np.sign(rng.normal(size=N)), 0.2
    w = optimum("logistic", X, y, np.ones(N), N, lam, "mean")[0]
    problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(lam))
    watched = rng.normal(size=(5, D))
    monitor = jb.Monitor(model_at(problem, X, y, np.ones(N), w), 1.0, X_watch=watched)
    with pytest.raises(ValueError, match="X_watch has no values for new columns"):
        monitor.push(jb.add_columns(np.ones((N, 1))))
    monitor.push(jb.remove_rows([0, 7]))
    monitor.push(jb.set_columns([2], rng.normal(size=(N - 2, 1))))
    said = monitor.push(jb.remove_columns([1]))
    kept = np.delete(np.arange(D), 1)
    new, error = optimum("logistic", *monitor.data, N - 2, lam, "mean")
    apart = np.hypot(np.linalg.norm(new - w[kept]), w[1])
    assert said.lower - error <= apart <= said.upper + error
    changed = np.sum(np.sign(watched[:, kept] @ new) != np.sign(watched @ w))
    assert said.broken <= changed <= said.broken + said.open
    monitor = jb.Monitor(model_at(problem, X, y, np.ones(N), w), 1.0)
    said = monitor.push(jb.combine(jb.add_columns(rng.normal(size=(N, 2))), jb.remove_columns([0])))
    new, error = optimum("logistic", *monitor.data, N, lam, "mean")
    old = np.append(np.delete(w, 0), [0.0, 0.0])
    assert said.lower - error <= np.hypot(np.linalg.norm(new - old), w[0]) <= said.upper + error
    said = monitor.push(jb.set_penalty(jb.penalties.l2(0.4)))
    new, error = optimum("logistic", *monitor.data, N, 0.4, "mean")
    assert said.lower - error <= np.hypot(np.linalg.norm(new - old), w[0]) <= said.upper + error


def trained(seed=0, **options):
    """A converged logistic model, made by the oracle."""
    rng = np.random.default_rng(seed)
    X, lam = rng.normal(size=(N, D)), 0.3
    y = np.sign(X @ rng.normal(size=D) + rng.normal(size=N))
    w = optimum("logistic", X, y, np.ones(N), N, lam, "mean")[0]
    return model_at(jb.Problem(jb.losses.logistic(), jb.penalties.l2(lam)), X, y, np.ones(N), w)


def test_rows_are_numbered_for_life_and_models_in_hand_stay(tmp_path):
    model = trained()
    leaves = [np.array(leaf) for leaf in jax.tree.leaves(model)]
    bounds = jb.bound(model, jb.remove_rows([1]))
    before = bounds.w()
    monitor = jb.Monitor(model, 1.0)
    assert monitor.push(jb.add_rows(np.ones((2, D)), [1, -1])).rows == (N, N + 2)
    monitor.push(jb.remove_rows([0, N]))
    assert monitor.push(jb.combine(jb.remove_rows([5]), jb.add_rows(np.zeros((1, D)), [1]))).rows == (N + 2, N + 3)
    assert monitor.rows.tolist() == [i for i in range(1, N + 3) if i not in (5, N)]
    assert repr(monitor).startswith(f"Monitor of {N} rows, 3 pushes, 0 refits\n")
    wrong = [
        (jb.remove_rows([0]), "removed by an earlier push"), (jb.set_targets([99], [1]), "not exist"),
        (jb.remove_rows(monitor.rows), "leaves no row"), (jb.set_targets([1], [3]), "not a label"),
        (jb.set_rows([1], np.ones((1, D + 1))), "X_new"), (jb.set_elements([1], [D], [1.0]), "cols"),
    ]  # fmt: skip
    for bad, match in wrong:
        count = len(monitor.trail)
        with pytest.raises(ValueError, match=match):
            monitor.push(bad)
        assert len(monitor.trail) == count
    for bad, match in ((3, "change must come from"), (None, "change must come from")):
        with pytest.raises(TypeError, match=match):
            monitor.push(bad)
    refitted = monitor.refit(tol=1e-11)
    assert monitor.model is refitted and refitted.alpha.shape == (N,) and monitor.trail[-1]["op"] == "refit"
    assert monitor.push(jb.set_targets([N + 1], [-1.0])).upper < 1e-4  # it was -1 already
    assert monitor.push(jb.add_rows(np.ones((1, D)), [1])).rows == (N + 3, N + 4)
    with pytest.raises(ValueError, match="removed by an earlier push"):
        monitor.push(jb.set_weights([5], [2.0]))
    for leaf, old in zip(jax.tree.leaves(model), leaves, strict=True):
        assert np.array_equal(leaf, old)
    after = bounds.w()
    assert np.array_equal(before.lower, after.lower) and np.array_equal(before.upper, after.upper)

    # retrain=True: deploy anew as soon as a push is not certified
    eager = jb.Monitor(model, 1e-3, retrain=True, path=tmp_path / "eager")
    said = eager.push(jb.remove_rows([3, 4]))
    assert said.answer is not True and said.retrained and eager.model is not model
    assert [record["op"] for record in eager.trail] == ["push", "refit"]
    assert eager.push(jb.set_weights([7], [1.0])).certified
    eager.close()
    again = jb.Monitor.load(tmp_path / "eager")
    assert again.trail == eager.trail and np.array_equal(again.model.w, eager.model.w)


def test_answers_of_what_is_watched():
    rng, model = np.random.default_rng(1), trained()
    w = np.asarray(model.w)
    watched = np.stack([w, -w, w + 5 * rng.normal(size=D)])
    monitor = jb.Monitor(model, X_watch=watched)
    said = monitor.push(jb.set_weights([0], [1.0]))
    assert said.certified and said.open == said.broken == 0
    # turning all labels round turns the predictions round: certain not to hold
    y = monitor.data[1]
    said = monitor.push(jb.set_targets(monitor.rows, -y))
    assert said.answer is False and said.broken > 0 and not said.certified
    monitor = jb.Monitor(model, theta=0.1, methods=[jb.Cached()])
    assert monitor.push(jb.set_targets(monitor.rows, -y)).answer is False
    nothing = np.zeros((1, D))  # a tie is never certified
    assert jb.Monitor(model, X_watch=nothing).push(jb.set_weights([0], [1.0])).answer is None


@pytest.mark.parametrize("arguments, match", [
    ({}, "nothing to watch"), ({"theta": 0.0}, "theta"), ({"theta": np.nan}, "theta"), ({"theta": "1"}, "theta"),
    ({"X_watch": np.ones((2, D + 1))}, "X_watch must have 6 columns"), ({"X_watch": [[np.nan] * D]}, "X_watch"),
    ({"theta": 1.0, "retrain": 1}, "retrain"), ({"theta": 1.0, "methods": [jb.Cached]}, "methods.0. must be"),
])  # fmt: skip
def test_hostile_arguments(arguments, match):
    with pytest.raises((ValueError, TypeError), match=match):
        jb.Monitor(trained(), **arguments)


def test_models_that_cannot_be_watched():
    model = trained()
    with pytest.raises(ValueError, match="stored without its data"):
        jb.Monitor(model.without_data(), 1.0)
    with pytest.raises(TypeError, match="model must come from fit"):
        jb.Monitor(np.ones(3), 1.0)
    problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0))
    regression = model_at(problem, np.ones((3, 1)), np.ones(3), np.ones(3), np.zeros(1))
    with pytest.raises(ValueError, match="has none; use theta"):
        jb.Monitor(regression, X_watch=np.ones((1, 1)))
    free = jb.Problem(jb.losses.squared(), jb.penalties.l1(0.1), intercept=True)
    with pytest.raises(ValueError, match="bounds with intercept=True need a strongly convex penalty"):
        jb.Monitor(model_at(free, np.ones((3, 1)), np.ones(3), np.ones(3), np.zeros(1)), 1.0)
    free = jb.Problem(jb.losses.squared(), jb.penalties.l2(0.1), intercept=True)
    monitor = jb.Monitor(model_at(free, np.ones((3, 1)), np.ones(3), np.ones(3), np.zeros(1)), 1.0)
    with pytest.raises(ValueError, match="bounds with intercept=True need a strongly convex penalty"):
        monitor.push(jb.combine(jb.remove_rows([0]), jb.set_penalty(jb.penalties.l1(0.1))))
    assert monitor.rows.tolist() == [0, 1, 2] and not monitor.trail  # nothing has happened
    monitor = jb.Monitor(model, 1.0)
    with pytest.raises(TypeError, match="push runs on the host"):
        jax.jit(lambda v: monitor.push(jb.set_targets([0], v)))(jnp.ones(1))


def test_long_streams_do_not_drift():
    """Thousands of pushes that undo each other: the sums stay within their stated errors, and the radius comes back."""
    rng, model = np.random.default_rng(2), trained()
    monitor = jb.Monitor(model, 1.0, methods=[jb.Cached()])
    X, y, _ = monitor.data
    first = monitor.push(jb.set_weights([0], [1.0])).upper
    for k in range(60):
        row = int(rng.integers(N))
        monitor.push(jb.set_elements([row], [k % D], [1e3 * rng.normal()]))
        monitor.push(jb.set_targets([row], [-y[row]]))
        monitor.push(jb.set_rows([row], X[row][None, :], [y[row]]))
    engine = monitor._present.engine
    assert isinstance(engine, Committed)
    e = engine.w - engine.columns["v"] / engine.lam
    exact = Committed(engine.problem, put(model.data.matrix), y, np.ones(N), engine.w, engine.w, None, N)
    assert np.all(np.abs(engine.columns["v"] - exact.columns["v"]) <= engine.columns["v_pad"] + exact.columns["v_pad"])
    assert abs(engine.sums.e_e - e @ e) <= engine.sums.e_e_error + exact.sums.e_e_error
    assert abs(engine.sums.e_w - e @ engine.w) <= engine.sums.e_w_error + exact.sums.e_w_error
    assert engine.sums.fenchel >= np.sum(engine.rows["fenchel"][:N])
    last = monitor.push(jb.set_weights([0], [1.0])).upper
    assert last < 1e-8 and first < 1e-8
    assert engine.overlay.cols.shape[0] < 20_000  # old contents are swept


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_overflow_decides_nothing_and_passes(loss):
    rng, lam = np.random.default_rng(3), 0.3
    X, y = rng.normal(size=(N, D)), targets(loss, N, rng)
    w = optimum(loss, X, y, np.ones(N), N, lam, "mean")[0]
    model = model_at(jb.Problem(LOSSES[loss][0](), jb.penalties.l2(lam)), X, y, np.ones(N), w)
    monitor = jb.Monitor(model, 0.1, methods=[jb.Cached()])
    for size in (1e100, 1e160, 1e308):
        assert monitor.push(jb.set_elements([3, 5], [0, 0], [size, -size])).answer is not True
        assert monitor.push(jb.set_rows([3, 5], X[[3, 5]], y[[3, 5]])).upper < 1e-6


def test_rows_that_come_and_go_leave_no_memory_behind():
    model, rng = trained(), np.random.default_rng(4)
    monitor = jb.Monitor(model, 1e9, methods=[jb.Cached()])
    for _ in range(60):
        rows = monitor.push(jb.add_rows(rng.normal(size=(50, D)), np.sign(rng.normal(size=50)))).rows
        monitor.push(jb.remove_rows(np.arange(*rows)))
    assert monitor._present.engine.size < 2 * N + 1024 + 100 and monitor.rows.tolist() == list(range(N))


@in_float64
def test_donated_buffers_are_written_in_place():
    index = put(np.array([1, 3]))
    values = put({"a": np.array([5.0, 6.0]), "b": np.array([7.0, 8.0])})
    host = {"a": np.zeros(4), "b": np.ones(4)}
    device = put({name: array.copy() for name, array in host.items()})
    old = device["a"]
    written = write(device, index, values)
    assert old.is_deleted() and write(host, np.asarray(index), jax.tree.map(np.asarray, values)) is host
    for name in host:
        assert np.array_equal(written[name], host[name])


def test_save_load_and_log(tmp_path):
    model, path = trained(), tmp_path / "monitor"
    watched = np.random.default_rng(0).normal(size=(3, D))
    with jb.Monitor(model, 0.5, X_watch=watched, path=path) as monitor:
        monitor.push(jb.add_rows(sp.csr_array(np.eye(D)), np.ones(D)))
        monitor.push(jb.combine(jb.remove_rows([0]), jb.set_targets([1], [1.0])))
        monitor.save(tmp_path / "copy")
        with pytest.raises(ValueError, match="open in another monitor"):
            jb.Monitor.load(path)
        with pytest.raises(FileExistsError):
            jb.Monitor(model, 0.5, path=path)
    with pytest.raises(ValueError, match="was closed"):
        monitor.push(jb.remove_rows([1]))
    log = tmp_path / "monitor.log"
    good = log.read_bytes()
    for cut in range(1, 60, 7):  # a torn last record is dropped; here it is the record of an answer
        log.write_bytes(good[:-cut])
        with jb.Monitor.load(path) as loaded:
            assert loaded.rows.tolist() == monitor.rows.tolist() and len(loaded.trail) == 2
    rng = np.random.default_rng(1)
    for at in rng.integers(len(good), size=25):  # any other damage is refused
        bad = bytearray(good)
        bad[at] ^= 1 << rng.integers(8)
        log.write_bytes(bad)
        with pytest.raises(ValueError, match="is damaged at byte"):
            jb.Monitor.load(path)
    log.unlink()
    with pytest.raises(ValueError, match="the log .* is missing"):
        jb.Monitor.load(path)
    log.write_bytes(good)
    copy = jb.Monitor.load(tmp_path / "copy")
    with jb.Monitor.load(path) as loaded:
        for other in (copy, loaded):
            assert other.trail == monitor.trail and np.array_equal(other.rows, monitor.rows)
            assert all(np.array_equal(a, b) for a, b in zip(other.data, monitor.data, strict=True))
            assert np.array_equal(other.model.w, model.w) and other.model.data is None
        change = jb.set_rows([2], np.ones((1, D)), [1.0])
        assert copy.push(change).upper == pytest.approx(loaded.push(change).upper, rel=1e-6)
    jb.Monitor(model, 0.5, path=tmp_path / "other").close()
    log.write_bytes((tmp_path / "other.log").read_bytes())
    with pytest.raises(ValueError, match="belongs to another monitor"):
        jb.Monitor.load(path)
    whole = path.read_bytes()
    for bad in (whole[:100], whole[:-1], whole[:200] + b"?" + whole[201:]):
        path.write_bytes(bad)
        with pytest.raises(ValueError, match="path: .* is (damaged|not a file)"):
            jb.Monitor.load(path)
    with pytest.raises(ValueError, match="holds a monitor, not a model"):
        jb.load(tmp_path / "copy")


def test_a_push_that_cannot_be_logged_has_not_happened(tmp_path, monkeypatch):
    monitor = jb.Monitor(trained(), 0.5, path=tmp_path / "m")
    monitor.push(jb.remove_rows([0]))
    calls = itertools.count()

    def full(handle, data, real=os.write):
        if next(calls) % 2:
            raise OSError(28, "No space left on device")
        return real(handle, bytes(data)[:40])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            monitor.push(jb.remove_rows([1]))
    with monkeypatch.context() as patched:  # as in a process made by fork
        patched.setattr(os, "getpid", lambda: 1)
        with pytest.raises(ValueError, match="a copy made by fork"):
            monitor.push(jb.remove_rows([1]))
    assert len(monitor.trail) == 1 and 1 in monitor.rows
    monitor.push(jb.remove_rows([2]))
    monitor.close()
    assert np.array_equal(jb.Monitor.load(tmp_path / "m").rows, monitor.rows)


def test_threads_take_turns():
    monitor = jb.Monitor(trained(), 1e3, methods=[jb.Cached()])
    threads = [threading.Thread(target=lambda k=k: [monitor.push(jb.set_weights([k], [float(j)])) for j in (2, 3, 1)])
               for k in range(8)]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(record["number"] for record in monitor.trail) == list(range(1, 25))
    assert monitor.push(jb.set_weights([0], [1.0])).upper < 1e-8


@pytest.mark.parametrize(
    "kills", [6, pytest.param(60, marks=pytest.mark.slow), pytest.param(300, marks=pytest.mark.full)]
)
def test_killed_processes_lose_nothing_acknowledged(tmp_path, kills):
    """SIGKILL at random calls of write, fsync, replace and truncate; see killed_pushes.py."""
    script = Path(__file__).with_name("killed_pushes.py")
    path = os.pathsep.join([str(script.parent.parent), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-W", "error", str(script), str(tmp_path), str(kills), "1"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}, timeout=600)
    assert done.returncode == 0 and f"{kills} kills survived" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("constant", [False, True])
def test_a_model_behind_a_scaler_takes_raw_units(tmp_path, constant):
    """Pushes by name, columns that leave, refits and files: always what the same pushes of scaled rows give."""
    pytest.importorskip("sklearn")
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import LinearSVC

    rng, names = np.random.default_rng(4), ["age", "fare", "dose"]
    frame = pytest.importorskip("pandas").DataFrame(rng.normal(size=(30, 3)) * [1.0, 100.0, 1e-3] + 5.0, columns=names)
    raw, y = frame.to_numpy(), np.sign(rng.normal(size=30))
    last = LinearSVC(C=0.02, tol=1e-8) if constant else Ridge(alpha=5.0, fit_intercept=False)
    pipe = make_pipeline(StandardScaler(), last).fit(frame, y)
    model, scale = jb.from_sklearn(pipe, frame, y), pipe[0]
    ones = np.ones((30, int(constant)))
    own = jb.from_sklearn(pipe[-1], scale.transform(frame), y)
    shown = {"X_watch": frame[names[::-1]][:5]} if constant else {}
    theirs = {"X_watch": np.hstack([scale.transform(frame), ones])[:5]} if constant else {}
    monitor = jb.Monitor(model, 0.5, path=tmp_path / "m", **shown)
    plain = jb.Monitor(own, 0.5, **theirs)
    moved = raw[[3]] + [[0.1, 7.0, 0.0]]
    one = scale.transform(frame[:1].assign(fare=raw[0, 1] + 9.0))[0, 1]
    pairs = [
        (jb.set_elements([0], ["fare"], raw[0, 1] + 9.0), jb.set_elements([0], [1], one)),
        (jb.add_rows(frame[:2] * 1.1, [1.0, -1.0]), jb.add_rows(scale.transform(frame[:2] * 1.1), [1.0, -1.0])),
        (jb.combine(jb.set_rows([3], moved), jb.remove_rows([4])),
         jb.combine(jb.set_rows([3], scale.transform(frame[:1] * 0 + moved)), jb.remove_rows([4]))),
        (jb.remove_columns("age"), jb.remove_columns([0])),
        (jb.set_elements([5], ["dose"], 5.0), jb.set_elements([5], [1], (5.0 - scale.mean_[2]) / scale.scale_[2])),
    ]  # fmt: skip
    for k, (raw_change, scaled_change) in enumerate(pairs):
        said, other = monitor.push(raw_change), plain.push(scaled_change)
        assert said.upper == pytest.approx(other.upper, rel=1e-9) and said.answer == other.answer
        if k == 1:
            monitor.refit(tol=1e-10), plain.refit(tol=1e-10)
        if k == 3:
            assert monitor.inputs.names == ("fare", "dose")
    X, target, weight = monitor.data
    np.testing.assert_allclose(X, plain.data[0], rtol=1e-12)
    test = raw[:4, 1:]
    with pytest.raises(ValueError, match="'age' is not a column"):
        monitor.push(jb.remove_columns("age"))
    monitor.close()
    with jb.Monitor.load(tmp_path / "m") as loaded:
        assert loaded.inputs.names == ("fare", "dose") and loaded.model.inputs.names == tuple(names)
        interval = loaded.bounds(jb.Pass()).scores(test)
        retrained = loaded.refit(tol=1e-12)
        scores = np.asarray(retrained.scores(test))  # raw again
        assert np.all(interval.lower <= scores + 1e-9) and np.all(scores - 1e-9 <= interval.upper)
        z = (test - scale.mean_[1:]) / scale.scale_[1:]
        truth = optimum("squared_hinge" if constant else "squared", X, target, weight, len(target),
                        float(model.problem.penalty.lam), "sum")[0]  # fmt: skip
        np.testing.assert_allclose(scores, np.hstack([z, ones[:4]]) @ truth, atol=1e-6)
        loaded.save(tmp_path / "copy")
    assert jb.Monitor.load(tmp_path / "copy").model.inputs.names == ("fare", "dose")
