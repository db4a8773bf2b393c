"""A monitor whose process is killed again and again, at any of its writes: run as `killed_pushes.py FOLDER KILLS SEED`.

Each child opens the monitor, checks it against a simulation, pushes on, and kills itself with SIGKILL at a chosen call
of os.write (after a part of it), os.fsync, os.replace or os.ftruncate. Children are forked before jax has started, so
that each is a process of its own that dies whole. Prints how many pushes were acknowledged, and how many kills it took.
"""

import os
import signal
import sys

import numpy as np

import jaxbounds as jb
from jaxbounds.matrix import as_matrix
from jaxbounds.model import Data, remember
from jaxbounds.pytree import in_float64

N, D = 12, 3


@in_float64
def first_model():
    """A model that nobody trained: nothing is compiled."""
    rng = np.random.default_rng(0)
    problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(0.1))
    data = Data(as_matrix(rng.normal(size=(N, D))), rng.normal(size=N), np.ones(N))
    return remember(problem, data, np.zeros(D), np.zeros(N))


class Simulation:
    """The data as they must be after each push: rows by lifetime number."""

    def __init__(self, model):
        X, y = np.asarray(model.data.matrix.values), np.asarray(model.data.target)
        self.rows = {i: (X[i].copy(), y[i]) for i in range(N)}
        self.next = N

    def change(self, number: int):
        """The change of a push, carried out here as well."""
        rng = np.random.default_rng(number)
        row = int(rng.choice(sorted(self.rows)))
        x, y = rng.normal(size=D), float(rng.normal())
        kind = number % 4
        if kind == 0 or len(self.rows) < 3:
            self.rows[self.next] = x, y
            self.next += 1
            return jb.add_rows(x[None, :], [y])
        if kind == 1:
            self.rows[row] = self.rows[row][0], y
            return jb.set_targets([row], [y])
        if kind == 2:
            del self.rows[row]
            return jb.remove_rows([row])
        self.rows[row][0][number % D] = y
        return jb.set_elements([row], [number % D], [y])

    def check(self, monitor) -> None:
        """Everything is there."""
        X, y, _ = monitor.data
        assert monitor.rows.tolist() == sorted(self.rows), (monitor.rows, sorted(self.rows))
        for k, number in enumerate(sorted(self.rows)):
            assert np.array_equal(X[k], self.rows[number][0]) and y[k] == self.rows[number][1], number


def kill_at(calls: int, rng) -> None:
    """Die at the so-many-th system call that changes files."""
    left = [calls]

    def deadly(name):
        real = getattr(os, name)

        def call(*args):
            left[0] -= 1
            if left[0]:
                return real(*args)
            if name == "write":
                real(args[0], bytes(args[1])[: rng.integers(len(args[1]) + 1)])
            elif rng.random() < 0.5:
                real(*args)
            os.kill(os.getpid(), signal.SIGKILL)

        setattr(os, name, call)

    for name in ("write", "fsync", "replace", "ftruncate"):
        deadly(name)


def run(path: str, acknowledged: int, pipe: int, calls: int, rng) -> None:
    """A child: open, check, push until it dies."""
    tell = os.write
    model = first_model()
    kill_at(calls, rng)
    monitor = jb.Monitor.load(path) if os.path.exists(path) else jb.Monitor(model, theta=1e9, path=path)
    number = monitor.trail[-1]["number"] if monitor.trail else 0
    assert acknowledged <= number <= acknowledged + 1, (acknowledged, number)
    assert [record["number"] for record in monitor.trail] == list(range(1, number + 1))
    simulation = Simulation(model)
    for k in range(1, number + 1):
        simulation.change(k)
    simulation.check(monitor)
    assert [name for name in os.listdir(os.path.dirname(path)) if name.endswith(".tmp")] == []
    tell(pipe, b"%d\n" % number)  # what was read is on the disk
    while True:
        number += 1
        monitor.push(simulation.change(number))
        tell(pipe, b"%d\n" % number)
        if number % 5 == 0:
            monitor.save(path)


def main() -> None:
    folder, kills, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    path, acknowledged = os.path.join(folder, "monitor.npz"), 0
    rng = np.random.default_rng(seed)
    for _ in range(kills):
        calls, child_rng = int(rng.integers(1, 25)), np.random.default_rng(int(rng.integers(1 << 30)))
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                run(path, acknowledged, writing, calls, child_rng)
            except BaseException as error:
                print(f"{type(error).__name__}: {error}", flush=True)
                os._exit(1)
        os.close(writing)
        with os.fdopen(reading) as told:
            numbers = told.read().split()
        acknowledged = int(numbers[-1]) if numbers else acknowledged
        status = os.waitpid(child, 0)[1]
        if not os.WIFSIGNALED(status):
            raise SystemExit(f"the monitor failed after {acknowledged} pushes, with {calls} calls left")
    print(f"{acknowledged} pushes acknowledged, {kills} kills survived")


if __name__ == "__main__":
    main()
