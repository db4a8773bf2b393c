"""A long life of one `Monitor`: 100,000 pushed changes, checked against the truth all along, and what it costs.

    python benchmarks/long_stream.py --pushes 100000      (minutes; --minutes ends it earlier, and says so)

Changes of all kinds arrive at random, rows come and go, and the model is retrained whenever a push is not certified.
Every so many pushes the optimum of the present data is solved by tests/oracle.py, which shares no code. Drift shows as
a bound that grows against that of a new memory of the same data; the memory of the process and the number of
compilations are read at the same times.
"""

import gc
import sys
import time
import warnings
from pathlib import Path

import jax
import numpy as np
from _record import HERE, finish, parser, table

import jaxbounds as jb

sys.path.insert(0, str(HERE.parent / "tests"))
import oracle  # noqa: E402

N, D, LAM, THETA = 400, 8, 1.0, 0.1  # rows, columns, lam in "sum" scale, the distance that is certified
KINDS = ("elements", "elements", "rows", "targets", "weights", "add", "remove")
COMPILED = "/jax/core/compile/backend_compile_duration"


def draw(rng: np.random.Generator, monitor: jb.Monitor, rows: np.ndarray):
    """A change of a few of the present rows."""
    kind = KINDS[int(rng.integers(len(KINDS)))]
    if kind in ("add", "remove"):  # so that there are always about N
        kind = "add" if rows.size < N or (rows.size < 1.2 * N and rng.random() < 0.5) else "remove"
    k = int(rng.integers(1, 4))
    some = np.sort(rng.choice(rows, k, replace=False))
    if kind == "elements":
        return jb.set_elements(some, rng.integers(0, D, k), rng.normal(size=k))
    if kind == "rows":
        return jb.set_rows(some, rng.normal(size=(k, D)), np.sign(rng.normal(size=k)))
    if kind == "targets":
        return jb.set_targets(some, np.sign(rng.normal(size=k)))
    if kind == "weights":
        return jb.set_weights(some, rng.uniform(0.5, 2.0, k))
    if kind == "add":
        return jb.add_rows(rng.normal(size=(k, D)), np.sign(rng.normal(size=k)), rng.uniform(0.5, 2.0, k))
    return jb.remove_rows(some)


def resident() -> float:
    """Megabytes of memory of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return float("nan")


def check(monitor: jb.Monitor, said: jb.Push) -> dict:
    """The last push against the optimum of the present data, and against a memory that is made anew."""
    X, y, weight = monitor.data
    best = oracle.solve(oracle.Problem("logistic", np.asarray(X), y, weight, lam=LAM))
    slack = np.sqrt(2 * max(best.gap, 0.0) / LAM) + 1e-13
    apart = float(np.linalg.norm(best.w - np.asarray(monitor.model.w)))
    wrong = not said.lower - slack <= apart <= said.upper + slack or said.certified and apart - slack >= THETA
    anew = float(monitor.bounds(jb.Cached()).distance.upper)
    return {"wrong": int(wrong), "drift": said.upper / anew if said.method == "Cached" else None}


def run(pushes: int, minutes: float, every: int, seed: int) -> dict:
    """The stream; its figures at the checks."""
    rng, compiled = np.random.default_rng(seed), [0]
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, seconds, **_: compiled.__setitem__(0, compiled[0] + (name == COMPILED)))  # fmt: skip
    X, y = rng.normal(size=(N, D)), np.sign(rng.normal(size=N))
    problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(LAM), "sum")
    model = jb.fit(problem, X, y, tol=1e-12)
    monitor, start, points, retrained, done = jb.Monitor(model, THETA), time.monotonic(), [], 0, 0
    rows, seconds = monitor.rows, []
    for done in range(1, pushes + 1):
        change = draw(rng, monitor, rows)
        said = monitor.push(change)
        seconds.append(said.seconds)
        if not said.certified:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", jb.FitWarning)
                monitor.refit(tol=1e-10)
            retrained += 1
        rows = monitor.rows
        if done % every == 0 or done == pushes:
            found = check(monitor, monitor.push(jb.set_weights(rows[:1], [1.0])))
            gc.collect()
            found |= {"push": done, "megabytes": round(resident(), 1), "compiled": compiled[0], "rows": rows.size}
            points.append(found)
            print(found, f"{time.monotonic() - start:.0f} s", flush=True)
            if time.monotonic() - start > 60 * minutes:
                break
    return {
        "wanted": pushes, "pushes": done, "every": every, "retrained": retrained, "points": points,
        "milliseconds": [round(1e3 * float(np.quantile(seconds, q)), 3) for q in (0.5, 0.95)],
        "seconds": round(time.monotonic() - start, 1), "trail": len(monitor.trail),
    }  # fmt: skip


def report(payload: dict) -> str:
    """The section of RESULTS.md."""
    points = payload["points"]
    drift = [p["drift"] for p in points if p["drift"] is not None]
    chosen = [points[int(k)] for k in np.unique(np.linspace(0, len(points) - 1, 8).astype(int))]
    rows = [[f"{p['push']:,}", str(p["rows"]), f"{p['megabytes']:.0f}", str(p["compiled"])] for p in chosen]
    early = "" if payload["pushes"] == payload["wanted"] else f" (of {payload['wanted']:,} that were planned)"
    apart = max(points[-1]["push"] - points[0]["push"], 1)
    per_push = 2**20 * (points[-1]["megabytes"] - points[0]["megabytes"]) / apart
    return f"""## A long life of one monitor (`benchmarks/long_stream.py`)

{payload["pushes"]:,} pushes{early} of random changes of all kinds to about {N} rows and {D} columns (logistic, L2), \
{payload["retrained"]:,} retrainings. {sum(p["wrong"] for p in points)} of {len(points)} pushes that were checked \
contradict the optimum of their data. The bound over that of a memory made anew from the same data, where the stored \
sums answered ({len(drift)} checks): at most {max(drift, default=float("nan")):.3g}. A push took \
{payload["milliseconds"][0]:.2g} ms (95 %: {payload["milliseconds"][1]:.2g}). The process grew by {per_push:.0f} bytes \
a push, of which the trail, which keeps every answer by design, is {payload["trail"]:,} records.

{table(["push", "rows", "MB resident", "compilations so far"], rows)}"""


def main() -> None:
    """Run, record, print."""
    arguments = parser(__doc__)
    arguments.add_argument("--pushes", type=int, default=100_000)
    arguments.add_argument("--minutes", type=float, default=60.0)
    arguments.add_argument("--every", type=int, default=1000)
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()
    if options.smoke:
        options.pushes, options.every = 60, 30
    payload = run(options.pushes, options.minutes, options.every, options.seed)
    finish("long_stream", payload, options)
    print(report(payload))
    if any(p["wrong"] for p in payload["points"]):
        raise SystemExit("a push was wrong")


if __name__ == "__main__":
    main()
