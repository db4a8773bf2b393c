"""Run by test_devices.py in processes of their own: the same answers from data that lie on several devices.

    python devices.py one               four devices in this process
    python devices.py two PORT RANK     one of two processes of one device each
"""

import os
import re
import sys

if sys.argv[1] == "one":
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"

import jax

if sys.argv[1] == "two":  # before anything else touches jax
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{sys.argv[2]}", 2, int(sys.argv[3]))

import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import jaxbounds as jb
from jaxbounds import bounds, model, sweeps
from jaxbounds.solvers import fit

N, D = 64_000, 128
PROGRAMS = ((fit, "_solve"), (model, "_memory_jit"), (bounds, "_certify_jit"), (sweeps, "_map"))
PROBLEM = jb.Problem(jb.losses.smoothed_hinge(0.5), jb.penalties.l2(0.02))


def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D)).astype(np.float32)
    return X, np.where(X[:, 0] + 0.5 * rng.normal(size=N) > 0, 1.0, -1.0), rng.normal(size=(5, D))


def watch(seen: dict):
    """Note the memory and the communication of every compiled program."""
    for module, name in PROGRAMS:
        plain = getattr(module, name)

        def watched(*args, plain=plain, name=name):
            program = plain.lower(*args).compile()
            memory, text = program.memory_analysis(), program.as_text()
            moved = re.findall(r"= \w+\[([\d,]*)\]\S* (?:all-gather|all-to-all|collective-permute)\(", text)
            largest = max((int(np.prod([int(k) for k in shape.split(",")])) for shape in moved if shape), default=0)
            seen.setdefault(name, []).append(
                (memory.temp_size_in_bytes + memory.argument_size_in_bytes, largest, "all-reduce" in text)
            )
            return plain(*args)

        setattr(module, name, watched)


def close(a, b, what, tol=1e-5):
    a, b = np.asarray(a), np.asarray(b)
    assert np.all(np.abs(a - b) <= tol * (1 + np.abs(b))), f"{what}: {np.abs(a - b).max()}"


CHANGES = {"elements": jb.set_elements([3, N - 1], [1, 2], 0.5), "removed": jb.remove_rows([7]),
           "column": jb.set_columns([2], np.zeros((N, 1)))}  # fmt: skip


def assert_same(there, here, X_test):
    """Coefficients, bounds, a batch and every row left out."""
    close(there.w, here.w, "w")
    for name, change in CHANGES.items():
        a, b = jb.bound(there, change), jb.bound(here, change)
        close(a.distance.upper, b.distance.upper, name)
        close(a.scores(X_test).lower, b.scores(X_test).lower, name)
    removed = jb.each_row_removed(here, np.arange(8))
    close(jb.bound_each(there, removed).distance.upper, jb.bound_each(here, removed).distance.upper, "bound_each")
    left = [jb.leave_one_out(each, jb.Cached()) for each in (there, here)]
    close(left[0].scores.lower, left[1].scores.lower, "leave_one_out")


def one():
    X, y, X_test = data()
    seen = {}
    watch(seen)
    here = jb.fit(PROBLEM, X, y, tol=1e-10)
    with jax.enable_x64(True):  # on one device the host takes this part
        model._memory_jit(PROBLEM, here.data, here.w, here.intercept, here.alpha, here.ref, PROBLEM.unit(N))
    alone = {name: found[0] for name, found in seen.items()}
    seen.clear()
    mesh = jax.make_mesh((4,), ("rows",), axis_types=(AxisType.Auto,))
    rows = NamedSharding(mesh, PartitionSpec("rows"))
    with jax.enable_x64(True):
        X_dealt, y_dealt = jax.device_put(X, rows), jax.device_put(y, rows)
    there = jb.fit(PROBLEM, X_dealt, y_dealt, tol=1e-10)
    assert len(there.alpha.devices()) == len(there.data.matrix.values.devices()) == 4
    for name, (size, _, _) in alone.items():
        dealt, largest, reduces = seen[name][0]
        assert reduces, f"{name} reads its rows from one device"
        assert dealt <= 0.35 * size, f"{name}: {dealt} of {size} bytes a device"
    assert_same(there, here, X_test)
    removed = jb.each_row_removed(here, np.arange(8))
    with jax.enable_x64(True):
        candidates = type(removed)(jax.device_put(np.asarray(removed.rows), rows))
    dealt = jb.bound_each(here, candidates, X_test)
    close(dealt.distance.upper, jb.bound_each(here, removed).distance.upper, "candidates on four devices")
    close(dealt.scores().lower, jb.bound_each(here, removed, X_test).scores().lower, "their scores")
    for name, found in seen.items():
        for _, largest, _ in found:
            assert largest <= 2 * N + 5 * D, f"{name} gathers {largest} numbers on one device"
    with jax.enable_x64(True):
        for bad, message in (((X_dealt.at[5, 1].set(np.nan), y_dealt), "X has entries that are not finite"),
                             ((X_dealt, y_dealt.at[3].set(2.0)), "y holds something that is not a label")):  # fmt: skip
            try:
                jb.fit(PROBLEM, *bad)
            except ValueError as error:
                assert message in str(error), error
            else:
                raise AssertionError(message)
    print("the same")


def two(rank: int):
    X, y, X_test = data()
    rows = NamedSharding(jax.make_mesh((2,), ("rows",), axis_types=(AxisType.Auto,)), PartitionSpec("rows"))
    mine = slice(rank * N // 2, (rank + 1) * N // 2)
    with jax.enable_x64(True):
        X_dealt, y_dealt = (jax.make_array_from_process_local_data(rows, values[mine]) for values in (X, y))
    there, here = jb.fit(PROBLEM, X_dealt, y_dealt, tol=1e-10), jb.fit(PROBLEM, X, y, tol=1e-10)
    assert len(there.data.matrix.values.devices()) == 2
    assert_same(there, here, X_test)
    print("the same")


if __name__ == "__main__":
    one() if sys.argv[1] == "one" else two(int(sys.argv[3]))
