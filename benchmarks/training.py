"""Time of a fit to relative gaps of 1e-6 and 1e-10, next to the specialised solvers of other packages.

Run ``python benchmarks/training.py`` (half an hour) or ``--smoke`` (seconds); ``--sets``, ``--data``, ``--losses``,
``--lams`` and ``--tols`` choose cells, and those measured before are kept in the record. The process keeps to one core,
so XLA, BLAS and the peers have one thread each, and times are processor times. A peer's time is its fastest over its
grid of tolerances whose w has the gap, as our `gap` measures it: with the dual point that follows from w, shrunk to
feasibility under L1. The two runs alternate, and medians are shown. The layout of the data and compilation are apart.
Peers are not dependencies: `pip install liblinear-official scikit-learn celer skglm` beforehand; what is missing is
named. a9a and golub are read below JAXBOUNDS_SHARED, and left out without.
"""

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
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
from _experiment import read_file
from _record import RESULTS, finish, parser, table
from products import SIZES, power_law

import jaxbounds as jb
from jaxbounds.matrix import Dense, as_matrix
from jaxbounds.solvers import DualCoordinate, ProximalGradient, Task, default_solver

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
COMPILED = {  # our solvers in C, tried too
    **dict.fromkeys(("logistic", "squared_hinge", "smoothed_hinge"), DualCoordinate(compiled=True)),
    **dict.fromkeys(("lasso", "elastic_net"), ProximalGradient(compiled=True)),  # on sparse data
}
PATH = (1e-1, 1e-2, 1e-3)  # l1 over its largest useful value
TOLS = (1e-6, 1e-10)
FIRST = {"logistic": 1e-2, "elastic_net": 1e-1}  # lam of the fits whose compilation is timed
SLOW = 4.0  # a peer that takes this many times our time is given up in that cell


def data_set(name: str) -> tuple[Any, np.ndarray] | None:
    """(X, labels) of a set, None where its file is not there."""
    shared = Path(os.environ.get("JAXBOUNDS_SHARED", "")) / "data"
    if name == "a9a":
        path = shared / "libsvm/a9a.gz"
        return read_file(path) if path.exists() else None
    if Path(name).suffix:
        X, y = read_file(name)
        return X.astype(float), y
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


def solver_alone(problem, matrix, y, tol, solver=None):
    """A call of what `fit` spends on finding w and alpha; the rest is the memory of the bounds."""
    n, d = matrix.shape
    solver = solver or default_solver(problem, n, d, not isinstance(matrix, Dense))
    with jax.enable_x64(True):
        args = [jnp.asarray(a) for a in (y, np.full(n, 1.0 / n), np.zeros(d), np.zeros(n), tol)]

    def call():
        with jax.enable_x64(True):
            return _solve(solver, problem, matrix, *args).w.block_until_ready()

    return call


def fastest_own(problem, matrix, y, tol, solver=None):
    """A call with the fastest of our tolerances that has the gap, which a fit goes beyond by up to a hundredth."""
    found = []
    for own in (100 * tol, 10 * tol, tol):
        call = solver_alone(problem, matrix, y, own, solver)
        call()
        spent, w = processor(call)
        if own == tol or relative_gap(problem, matrix, y, w) <= tol:
            found.append((spent, call))
    return min(found, key=lambda pair: pair[0])[1]


def processor(call) -> tuple[float, Any]:
    """(processor seconds, result) of one call; unlike wall time it hardly sees what else runs on the machine."""
    start = time.process_time()
    result = call()
    return time.process_time() - start, result


def in_time(call, seconds: float) -> tuple[float, Any] | None:
    """`processor` of a call in a forked process, None if it takes longer: some solvers never meet a tiny tolerance."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=lambda: there.send(processor(call)), daemon=True)
    child.start()
    found = here.recv() if here.poll(seconds) else None
    child.kill()
    child.join()
    return found


def fastest_peer(peers: list, problem, matrix, y, lam, l1, tols, limit: float) -> dict[float, tuple]:
    """For each tolerance (seconds, name, run) of the fastest peer and setting that reaches it."""
    best: dict[float, tuple] = {}
    for peer, prepared in peers:
        open_tols = list(tols)
        for setting in peer.grid:
            run = lambda peer=peer, prepared=prepared, setting=setting: peer.solve(prepared, lam, l1, setting)  # noqa: E731
            first = setting == peer.grid[0]  # compiles, if anything does
            found = processor(run) if first else in_time(run, 1.5 * limit + 1.0)
            if found is None:
                break
            spent, w = found
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
    alone = {tol: fastest_own(problem, data, y, tol) for tol in tols}
    first = processor(ours[tols[0]])[0]
    in_c = {}
    if loss in COMPILED and shutil.which("cc") and not (l1 and isinstance(data, Dense)):
        solver = COMPILED[loss]
        solver.check(problem)
        in_c = {tol: fastest_own(problem, data, y, tol, solver) for tol in tols}
    slowest = max(processor(call)[0] for call in alone.values())
    rivals = fastest_peer(found, problem, data, y, strength, l1, tols, max(SLOW * slowest, 0.5))
    for tol in tols:
        whole, model = processor(ours[tol])
        times, rival = {"solve": [], "compiled": [], "peer": []}, rivals.get(tol)
        for _ in range(repeats):
            times["solve"].append(processor(alone[tol])[0])
            if tol in in_c:
                times["compiled"].append(processor(in_c[tol])[0])
            if rival is not None:
                times["peer"].append(processor(rival[2])[0])
        medians = {key: round(1e3 * float(np.median(value)), 2) for key, value in times.items() if value}
        found = {"set": name, "loss": loss, "lam": lam, "tol": tol, "rival": rival and rival[1]} | medians
        found |= {"fit": round(1e3 * whole, 2), "steps": int(model.n_steps), "first": round(first, 2)}
        rows.append(found | {"reached": float(model.gap) <= tol * abs(float(model.primal))})
        print(rows[-1], flush=True)
    return rows


def _geometric(ratios: list[float]) -> str:
    return f"{np.exp(np.mean(np.log(ratios))):.2f}" if ratios else "none"


def _summary(cells: list[dict]) -> list[list[str]]:
    """Our time over the best peer's, by loss and in all: geometric mean and worst at large lam and at small lam."""
    rows, losses = [], list(dict.fromkeys(cell["loss"] for cell in cells))
    lines = [(loss, [loss], ["solve"]) for loss in losses]
    lines += [("all", losses, ["solve"]), ("all, faster of two", losses, ["solve", "compiled"])]
    for line, among, solvers in lines:
        chosen = [cell for cell in cells if cell["loss"] in among and cell["rival"]]
        ratios = [(cell["lam"], min(cell[key] for key in solvers if key in cell) / cell["peer"]) for cell in chosen]
        large = [ratio for lam, ratio in ratios if lam >= 1e-3]
        small = [ratio for lam, ratio in ratios if lam < 1e-3]
        worst = lambda ratios: f"{max(ratios):.2f}" if ratios else ""  # noqa: E731
        ahead = f"{sum(ratio <= 1 for ratio in large + small)} of {len(chosen)}"
        rows.append([line, ahead, _geometric(large), worst(large), _geometric(small), worst(small)])
    return rows


def report(payload: dict) -> str:
    """The section of RESULTS.md."""
    cells, sets = payload["cells"], payload["sets"]
    lams = sorted({cell["lam"] for cell in cells}, reverse=True)
    found = {(cell["loss"], cell["set"], cell["tol"], cell["lam"]): cell for cell in cells}

    def entry(cell: dict | None) -> str:
        if cell is None:
            return ""
        in_c = f" ({cell['compiled']:,.1f})" if "compiled" in cell else ""
        return f"{cell['solve']:,.1f}{in_c} / " + (f"{cell['peer']:,.1f}" if cell["rival"] else "-")

    rows = [
        [loss, name, f"{tol:g}", *(entry(found.get((loss, name, tol, lam))) for lam in lams)]
        for loss, name, tol in dict.fromkeys(key[:3] for key in found)
    ]
    rivals = [cell["rival"] for cell in cells if cell["rival"]]
    ranked = sorted(set(rivals), key=lambda name: (-rivals.count(name), name))
    counts = ", ".join(f"{name} {rivals.count(name)}" for name in ranked)
    shapes = [
        [name, f"{s['rows']:,} x {s['columns']:,}", f"{s['nonzeros']:,}", f"{1e9 * s['build'] / s['nonzeros']:.0f}",
         f"{1e9 * max(s['prepare'].values(), default=0.0) / s['nonzeros']:.0f}",
         f"{np.median([c['fit'] - c['solve'] for c in cells if c['set'] == name]):,.0f}"]
        for name, s in sets.items()
    ]  # fmt: skip
    missed = [cell for cell in cells if not cell["reached"]]
    compiled = "; ".join(f"{t['cold']:.1f} s ({loss.replace('_', ' ')}; {t['cached']:.1f} with jax's persistent cache)"
                         for loss, t in payload["first"].items())  # fmt: skip
    return f"""## Training (`benchmarks/training.py`), ms to relative gaps of 1e-6 and 1e-10, next to other packages

Processor time on one thread each, medians of {payload["repeats"]} or more alternating runs: ours / the best peer's. A \
peer's time is its fastest over a grid of tolerances whose w has the gap, as our `gap` measures it; - where none got \
there in {SLOW:g} times our time. Ours, chosen likewise, is the default solver alone, in brackets \
`DualCoordinate(compiled=True)` or, under L1, `ProximalGradient(compiled=True)`; the last line takes the faster one \
of the two in each cell; "bounds" below is what `fit` adds for the memory of the bounds. For the lasso and the \
elastic net the columns are l1 over its largest useful value (lam is as large as l1). Not installed: \
{", ".join(payload["missing"]) or "none"}. Cells that the last run left out are those of earlier ones. Ours did not \
reach the gap in {len(missed)} of {len(cells)} cells. The best peer: {counts}.

{table(["loss", "ahead", "lam >= 1e-3: mean ratio", "worst", "lam < 1e-3: mean ratio", "worst"], _summary(cells))}

{table(["set", "size", "non-zeros", "layout, ns a non-zero", "slowest peer's", "bounds, ms"], shapes)}

A first `fit` and `bound` in a new process (rcv1's size) compile for {compiled}.

{table(["loss", "set", "gap", *(f"{lam:g}" for lam in lams)], rows)}"""


def first_call(name: str, loss: str) -> None:
    """Print the seconds that a first fit and bound take in this process, beyond those of a second."""
    loaded = data_set(name)
    assert loaded is not None
    X, y = loaded
    problem = problem_of(loss, *penalty(loss, FIRST[loss], float(np.max(np.abs(X.T @ y))) / y.size))
    data = as_matrix(X)

    def once() -> Any:
        return jb.bound(jb.fit(problem, data, y), jb.remove_rows([3])).distance

    print(processor(once)[0] - processor(once)[0])


def compilation(name: str, loss: str) -> dict[str, float]:
    """Seconds of compilation of a first fit and bound, without and with jax's persistent cache."""
    with tempfile.TemporaryDirectory() as cache:
        settings = {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
        command = [sys.executable, __file__, "--first", name, loss]
        cold, cached = (
            float(subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=True).stdout)
            for _ in range(2)
        )
    return {"cold": round(cold, 3), "cached": round(cached, 3)}


def with_earlier(payload: dict, options: Any) -> dict:
    """The payload, and the cells of the record that it lacks."""
    path = RESULTS / "training.json"
    if options.smoke or not path.exists():
        return payload
    old = json.loads(path.read_text())["payload"]
    key = lambda cell: tuple(cell[k] for k in ("set", "loss", "lam", "tol"))  # noqa: E731
    cells = {key(cell): cell for cell in [*old["cells"], *payload["cells"]]}
    sets = old["sets"] | payload["sets"]
    for name in old["sets"].keys() & payload["sets"].keys():
        sets[name] = sets[name] | {"prepare": old["sets"][name]["prepare"] | payload["sets"][name]["prepare"]}
    return payload | {"cells": list(cells.values()), "sets": sets, "repeats": min(old["repeats"], payload["repeats"])}


def main() -> None:
    """Measure, print and record."""
    arguments = parser(__doc__)
    arguments.add_argument("--sets", nargs="*", default=SETS)
    arguments.add_argument("--data", nargs="*", default=[], metavar="FILE", help="LIBSVM, VW or .npz files as sets")
    arguments.add_argument("--losses", nargs="+", default=list(LOSSES))
    arguments.add_argument("--lams", nargs="+", type=float, default=LAMS)
    arguments.add_argument("--tols", nargs="+", type=float, default=TOLS)
    arguments.add_argument("--repeats", type=int, default=5)
    arguments.add_argument("--first", nargs=2, metavar=("SET", "LOSS"), help="print only how long a first fit compiles")
    options = arguments.parse_args()
    if options.first:
        return first_call(*options.first)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if options.smoke:
        options.losses, options.lams, options.repeats = ["logistic"], [1e-1, 1e-3], 2
    payload: dict = {"missing": _peers.missing(), "sets": {}, "cells": [], "repeats": options.repeats}
    nothing = {"cold": 0.0, "cached": 0.0}
    payload["first"] = {loss: nothing if options.smoke else compilation("rcv1", loss) for loss in FIRST}
    print("not installed:", ", ".join(payload["missing"]) or "none")
    for source in ["smoke"] if options.smoke else [*options.sets, *options.data]:
        loaded, name = data_set(source), Path(source).name.split(".")[0]
        if loaded is None:
            print(f"{name}: not there")
            continue
        X, y = loaded
        as_matrix(X[:8])  # starts jax
        spent, data = processor(lambda X=X: as_matrix(X))
        payload["sets"][name] = {"rows": X.shape[0], "columns": X.shape[1], "nonzeros": int(data.nnz),
                                 "build": round(spent, 4), "prepare": {}}  # fmt: skip
        largest = float(np.max(np.abs(X.T @ y))) / y.size
        for loss in options.losses:
            found = []
            for peer in _peers.peers(loss, sp.issparse(X)):
                spent, prepared = processor(lambda peer=peer, X=X, y=y: peer.prepare(X, y))
                found.append((peer, prepared))
                payload["sets"][name]["prepare"][peer.name] = round(spent, 4)
            lams = [lam for lam in PATH if lam in options.lams] if loss in ("lasso", "elastic_net") else options.lams
            for lam in lams:
                payload["cells"] += cell(name, loss, lam, data, y, found, options.tols, options.repeats, largest)
        finish("training", with_earlier(payload, options), options)
    print(report(payload))


if __name__ == "__main__":
    main()
