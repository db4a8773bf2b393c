"""Time of a fit to relative gaps of 1e-6 and 1e-10, next to the specialised solvers of other packages.

Run ``python benchmarks/training.py`` (under 20 minutes) or ``--smoke`` (seconds); ``--sets``, ``--losses``, ``--lams``
and ``--tols`` choose cells. Everything runs on one core: the process keeps to it, so XLA, BLAS and the peers each have
one thread. A peer's time is its fastest over its grid of tolerances whose w has the gap, as our `gap` measures it: with
the dual point that follows from w, shrunk to feasibility under L1. The two runs alternate, and medians are shown. The
layout of the data and compilation are apart. Peers are not dependencies: `pip install liblinear-official scikit-learn
celer skglm` beforehand; what is missing is named. a9a and golub are read below JAXBOUNDS_SHARED, and left out without.
"""

import gzip
import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import _peers
import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from _record import finish, parser, table
from products import SIZES, power_law

import jaxbounds as jb
from jaxbounds.matrix import as_matrix
from jaxbounds.solvers import Task, default_solver

LOSSES = {
    "logistic": jb.losses.logistic,
    "squared_hinge": jb.losses.squared_hinge,
    "smoothed_hinge": lambda: jb.losses.smoothed_hinge(_peers.GAMMA),
    "squared": jb.losses.squared,
    "lasso": jb.losses.squared,
    "elastic_net": jb.losses.squared,
}
SETS = ("a9a", "rcv1", "real-sim", "dense", "golub")
LAMS = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
PATH = (1e-1, 1e-2, 1e-3)  # l1 over its largest useful value
TOLS = (1e-6, 1e-10)
SLOW = 4.0  # a peer that takes this many times our time is given up in that cell


def data_set(name: str) -> tuple[Any, np.ndarray] | None:
    """(X, labels) of a set, None where its file is not there."""
    shared = Path(os.environ.get("JAXBOUNDS_SHARED", "")) / "data"
    if name == "a9a":
        path = shared / "libsvm/a9a.gz"
        return _svmlight(path) if path.exists() else None
    if name == "golub":
        path = shared / "r/golub.npz"
        return _golub(path) if path.exists() else None
    rng = np.random.default_rng(0)
    if name == "dense":
        X = rng.normal(size=(100_000, 200)) * np.geomspace(1.0, 0.1, 200)
        X /= np.sqrt(np.mean(np.sum(X * X, axis=1)))
    else:
        X = power_law(*SIZES[name])
    scores = X @ rng.normal(size=X.shape[1])
    return X, np.where(scores + 0.5 * np.std(scores) * rng.normal(size=scores.size) > 0, 1.0, -1.0)


def _svmlight(path: Path) -> tuple[sp.csr_array, np.ndarray]:
    with gzip.open(path, "rt") as file:
        rows = [line.split() for line in file]
    y = np.array([float(row[0]) for row in rows])
    pairs = [[entry.split(":") for entry in row[1:]] for row in rows]
    start = np.concatenate([[0], np.cumsum([len(row) for row in pairs])])
    columns = np.array([int(a) - 1 for row in pairs for a, _ in row])
    return sp.csr_array((np.array([float(b) for row in pairs for _, b in row]), columns, start)), y


def _golub(path: Path) -> tuple[np.ndarray, np.ndarray]:
    with np.load(path) as file:
        arrays = [np.asarray(file[key]) for key in file]
    X = next(a for a in arrays if a.ndim == 2)
    labels = next(a for a in arrays if a.ndim == 1 and a.size in X.shape)
    X = np.ascontiguousarray(X if X.shape[0] == labels.size else X.T, float)
    return X / np.sqrt(np.mean(np.sum(X * X, axis=1))), np.where(labels == labels.max(), 1.0, -1.0)


def penalty(loss: str, lam: float, largest: float) -> tuple[float, float]:
    """(lam, l1) of a cell: lam alone, or l1 as a part of the largest useful one with lam equal to it, or zero."""
    l1 = lam * largest
    return {"lasso": (0.0, l1), "elastic_net": (l1, l1)}.get(loss, (lam, 0.0))


def problem_of(loss: str, lam: float, l1: float) -> jb.Problem:
    """The problem of a cell."""
    if lam == 0.0:
        return jb.Problem(LOSSES[loss](), jb.penalties.l1(l1))
    return jb.Problem(LOSSES[loss](), jb.penalties.elastic_net(lam, l1) if l1 else jb.penalties.l2(lam))


@jax.jit
def _gap(task: Task, w):
    q = task.q(task.scores(w))
    alpha = task.loss.dual(q, task.y)
    alpha, v = task.feasible(alpha, task.v(alpha))
    return task.gap(w, q, alpha, v, None) / jnp.abs(task.primal(w, q))


def relative_gap(problem: jb.Problem, matrix, y, w) -> float:
    """Our relative gap of a peer's w."""
    with jax.enable_x64(True):
        c = np.full(y.size, 1.0 / y.size)
        return float(_gap(Task(problem.loss, problem.penalty, matrix, jnp.asarray(y), jnp.asarray(c)), jnp.asarray(w)))


@jax.jit
def _solve(solver, problem, matrix, y, c, w0, alpha0, tol):
    return solver.solve(problem, matrix, y, c, w0, alpha0, tol, 1000)


def solver_alone(problem, matrix, y, tol):
    """A call of what `fit` spends on finding w and alpha; the rest is the memory of the bounds."""
    n, d = matrix.shape
    solver = default_solver(problem, n, d, not isinstance(matrix, jb.matrix.Dense))
    with jax.enable_x64(True):
        args = [jnp.asarray(a) for a in (y, np.full(n, 1.0 / n), np.zeros(d), np.zeros(n), tol)]

    def call():
        with jax.enable_x64(True):
            return _solve(solver, problem, matrix, *args).w.block_until_ready()

    return call


def seconds(call) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def fastest_peer(found: list, problem, matrix, y, lam, l1, tols, limit: float) -> dict[float, tuple]:
    """For each tolerance (seconds, name, run) of the fastest peer and setting that reaches it."""
    best: dict[float, tuple] = {}
    for peer, prepared in found:
        open_tols = list(tols)
        for setting in peer.grid:
            run = lambda peer=peer, prepared=prepared, setting=setting: peer.solve(prepared, lam, l1, setting)  # noqa: E731
            start = time.perf_counter()
            w = run()
            spent = time.perf_counter() - start
            gap = relative_gap(problem, matrix, y, w)
            for tol in list(open_tols):
                if gap <= tol:
                    open_tols.remove(tol)
                    if tol not in best or spent < best[tol][0]:
                        best[tol] = spent, peer.name, run
            behind = all(spent > 1.5 * best[tol][0] if tol in best else False for tol in open_tols)
            if not open_tols or behind or spent > limit:
                break
    return best


def cell(name, loss, lam, data, y, found, tols, repeats, largest) -> list[dict]:
    """The records of one set, loss and lam."""
    strength, l1 = penalty(loss, lam, largest)
    problem, rows = problem_of(loss, strength, l1), []
    ours = {tol: lambda tol=tol: jb.fit(problem, data, y, tol=tol) for tol in tols}
    alone = {tol: solver_alone(problem, data, y, tol) for tol in tols}
    first = seconds(ours[tols[0]])
    for call in alone.values():
        call()
    slowest = max(seconds(call) for call in alone.values())
    rivals = fastest_peer(found, problem, data, y, strength, l1, tols, max(SLOW * slowest, 0.5))
    for tol in tols:
        model, times = ours[tol](), {"fit": [], "solve": [], "peer": []}
        rival = rivals.get(tol)
        for _ in range(repeats):
            times["fit"].append(seconds(ours[tol]))
            times["solve"].append(seconds(alone[tol]))
            if rival is not None:
                times["peer"].append(seconds(rival[2]))
        medians = {key: round(1e3 * float(np.median(value)), 2) for key, value in times.items() if value}
        reached = float(model.gap) <= tol * abs(float(model.primal))
        rows.append(
            {"set": name, "loss": loss, "lam": lam, "tol": tol, "rival": rival and rival[1], "steps": int(model.n_steps),
             "reached": reached, "first": round(first, 3)} | medians
        )  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def report(payload: dict) -> str:
    """The section of RESULTS.md."""
    return "## Training"


def main() -> None:
    """Measure, print and record."""
    arguments = parser(__doc__)
    arguments.add_argument("--sets", nargs="+", default=SETS)
    arguments.add_argument("--losses", nargs="+", default=list(LOSSES))
    arguments.add_argument("--lams", nargs="+", type=float, default=LAMS)
    arguments.add_argument("--tols", nargs="+", type=float, default=TOLS)
    arguments.add_argument("--repeats", type=int, default=5)
    options = arguments.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    payload: dict = {"missing": _peers.missing(), "sets": {}, "cells": [], "repeats": options.repeats}
    print("not installed:", payload["missing"])
    for name in ["smoke"] if options.smoke else options.sets:
        loaded = data_set(name)
        if loaded is None:
            print(f"{name}: not there")
            continue
        X, y = loaded
        spent = seconds(lambda X=X: as_matrix(X))
        data = as_matrix(X)
        payload["sets"][name] = {"rows": X.shape[0], "columns": X.shape[1], "nonzeros": int(data.nnz),
                                 "build": round(spent, 4), "prepare": {}}  # fmt: skip
        largest = float(np.max(np.abs(X.T @ y))) / y.size
        for loss in options.losses:
            found = []
            for peer in _peers.peers(loss, sp.issparse(X)):
                start = time.perf_counter()
                found.append((peer, peer.prepare(X, y)))
                payload["sets"][name]["prepare"][peer.name] = round(time.perf_counter() - start, 4)
            lams = PATH if loss in ("lasso", "elastic_net") else options.lams
            for lam in lams:
                payload["cells"] += cell(name, loss, lam, data, y, found, options.tols, options.repeats, largest)
    finish("training", payload, options)
    print(report(payload))


if __name__ == "__main__":
    main()
