"""Real streams of changes through `Monitor`: how many retrainings it saves, that it is never wrong, time per push.

Run ``JAXBOUNDS_SHARED=FOLDER python benchmarks/streams.py`` (minutes; FOLDER has data/) or ``--smoke`` (the smallest
stream). Each stream is pushed as it happened, in groups of so many rows; the monitor retrains as soon as a push is not
certified. At a sample of pushes the model is retrained for the comparison, to a far smaller gap.
"""

import csv
import gzip
import json
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from _record import finish, parser, table

import jaxbounds as jb
from jaxbounds.matrix import as_matrix
from jaxbounds.monitoring.committed import Committed
from jaxbounds.pytree import in_float64

TOL, TOL_TRUTH = 1e-10, 1e-13
SHARE = 0.05  # theta over the norm of w
Stream = tuple[jb.Problem, object, np.ndarray, Iterator, object]  # problem, X, y, changes, rows to watch


def cancer(folder: Path, group: int) -> Stream:
    """breast-cancer-wisconsin as it grew: 355 rows, additions, 4 corrected cells, 2 removed rows."""
    events = json.loads((folder / "stream/bcw_events.json").read_text())
    names = [row[0] for row in events[0]["rows"]]

    def arrays(rows):
        return (np.array([row[2:] for row in rows], float) - 3) / 3, np.array([row[1] for row in rows], float)

    def changes():
        for event in events[1:]:
            if event["op"] == "add":
                for k in range(0, len(event["rows"]), group):
                    rows = event["rows"][k : k + group]
                    names.extend(row[0] for row in rows)
                    yield jb.add_rows(*arrays(rows))
            elif event["op"] == "remove":
                gone = [row if isinstance(row, str) else row[0] for row in event["rows"]]
                yield jb.remove_rows([names.index(name) for name in gone])
            else:
                X, y = arrays(event["new"])
                yield jb.set_rows([names.index(row[0]) for row in event["new"]], X, y)

    X, y = arrays(events[0]["rows"])
    return jb.Problem(jb.losses.logistic(), jb.penalties.l2(1e-1)), X, y, changes(), X[::10]


def electricity(folder: Path, group: int) -> Stream:
    """elec: a window of 10,000 half hours that moves on through two years; up or down against the last day."""
    with gzip.open(folder / "stream/elec.csv.gz", "rt") as file:
        rows = np.array(list(csv.reader(file))[1:], float)
    X, y = np.column_stack([rows[:, :-1] - 0.5, np.ones(len(rows))]), np.where(rows[:, -1] > 0, 1.0, -1.0)
    size = 10_000

    def changes():
        for k in range(size, len(rows), group):
            new = slice(k, min(k + group, len(rows)))
            old = np.arange(k - size, k - size + len(y[new]))
            yield jb.combine(jb.remove_rows(old), jb.add_rows(X[new], y[new]))

    return jb.Problem(jb.losses.logistic(), jb.penalties.l2(1e-2)), X[:size], y[:size], changes(), X[:500]


def airports(folder: Path, group: int) -> Stream:
    """OpenFlights, snapshots 2010-2014: the time zone from the position, with corrections, additions and removals."""
    snapshots = []
    for path in sorted((folder / "openflights").glob("*.csv.gz")):
        with gzip.open(path, "rt", newline="") as file:
            rows = [row for row in csv.reader(file)][1:]
        if len(rows) > 1000:  # one snapshot is truncated
            snapshots.append({row[0]: row for row in rows if row[4]})

    def arrays(rows):
        X = [[float(r[1]) / 90, float(r[2]) / 180, float(r[3]) / 1e4, 1, *(r[5] == z for z in "EASOZN")] for r in rows]
        return np.array(X, float), np.array([float(row[4]) for row in rows])

    numbers = {name: k for k, name in enumerate(snapshots[0])}

    def changes():
        now = dict(snapshots[0])
        for later in snapshots[1:]:
            gone = [name for name in now if name not in later]
            moved = [name for name in later if name in now and later[name][1:6] != now[name][1:6]]
            new = [name for name in later if name not in now]
            for part in (moved[k : k + group] for k in range(0, len(moved), group)):
                yield jb.set_rows([numbers[name] for name in part], *arrays([later[name] for name in part]))
            for part in (new[k : k + group] for k in range(0, len(new), group)):
                for name in part:
                    numbers[name] = len(numbers) + returned[0]
                yield jb.add_rows(*arrays([later[name] for name in part]))
            if gone:
                yield jb.remove_rows([numbers.pop(name) for name in gone])
                returned[0] += len(gone)
            now = dict(later)

    returned = [0]  # numbers that are gone for good
    X, y = arrays(list(snapshots[0].values()))
    return jb.Problem(jb.losses.huber(2.0), jb.penalties.l2(1e-2)), X, y, changes(), None


def treebank(folder: Path, group: int) -> Stream:
    """English Web Treebank r2.4 to r2.9: adjectives against the rest, 254,829 words, 262,144 hashed features."""
    base = np.load(folder / "ud/ud_base.npz")
    adjective = json.loads((folder / "ud/ud_meta.json").read_text())["upos"].index("ADJ")

    def matrix(file, prefix=""):
        parts = tuple(file[prefix + name] for name in ("data", "indices", "indptr"))
        return sp.csr_array(parts, shape=file[prefix + "shape"])

    def labels(upos):
        return np.where(upos == adjective, 1.0, -1.0)

    def changes():
        for release in range(5, 10):
            delta = np.load(folder / f"ud/ud_delta_r2.{release}.npz")
            rows, new, y = delta["mod_ids"], matrix(delta, "mod_new_"), labels(delta["mod_new_upos"])
            for k in range(0, len(rows), group):
                yield jb.set_rows(rows[k : k + group], new[k : k + group], y[k : k + group])
            if len(delta["added_ids"]):
                yield jb.add_rows(matrix(delta, "added_"), labels(delta["added_upos"]))
            if len(delta["removed"]):
                yield jb.remove_rows(delta["removed"])

    X, y = matrix(base), labels(base["upos"])
    return jb.Problem(jb.losses.squared_hinge(), jb.penalties.l2(1e-3)), X, y, changes(), X[:2000]


STREAMS = {
    "breast cancer": (cancer, 1, ("theta", "labels"), 20),
    "electricity": (electricity, 48, ("theta", "labels"), 8),
    "airports": (airports, 5, ("theta",), 8),
    "treebank": (treebank, 20, ("theta", "labels"), 3),
}
MOST = {("treebank", "labels"): 60}  # pushes; the other streams run to their end
GROWTH = (100_000, 1_000_000, 10_000_000)


def replay(name: str, folder: Path, watch: str, most: int | None = None) -> dict:
    """One stream through one monitor."""
    make, group, _, samples = STREAMS[name]
    problem, X, y, changes, watched = make(folder, group)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a gap that stays above the tolerance is part of the bounds
        model = jb.fit(problem, X, y, tol=TOL)
        theta = SHARE * float(np.linalg.norm(model.w)) if watch == "theta" else None
        monitor = jb.Monitor(model, theta, X_watch=None if theta else watched)
        changes = list(changes)[:most]
        checked = set(np.unique(np.linspace(0, len(changes) - 1, samples).astype(int)).tolist())
        said, violations, retraining, methods = [], 0, [], {}
        for k, change in enumerate(changes):
            push = monitor.push(change)
            said.append(push.seconds)
            methods[push.method] = methods.get(push.method, 0) + 1
            if k in checked:
                violations += wrong(monitor, push, theta, None if theta else watched)
            if not push.certified:
                start = time.perf_counter()
                monitor.refit(tol=TOL)
                retraining.append(time.perf_counter() - start)
        retrained = len(retraining)
        if not retrained:  # how long it would have taken
            for _ in range(2):
                start = time.perf_counter()
                monitor.refit(tol=TOL)
                retraining = [time.perf_counter() - start]
    return {
        "name": name, "watch": watch, "share": SHARE, "watched": None if theta else watched.shape[0], "group": group,
        "rows": len(y), "columns": X.shape[1], "rows_end": len(monitor.rows), "pushes": len(changes),
        "retrained": retrained, "methods": methods, "checked": len(checked), "violations": violations,
        "seconds": [float(f"{np.quantile(said, q):.3g}") for q in (0.5, 0.95)],
        "refit": float(f"{np.median(retraining):.3g}"),
    }  # fmt: skip


def wrong(monitor: jb.Monitor, push: jb.Push, theta, watched) -> int:
    """Whether a model that is retrained now contradicts the push."""
    X, y, weight = monitor.data
    new = jb.fit(monitor.problem, X, y, sample_weight=weight, tol=TOL_TRUTH, warm_start=monitor.model.w)
    lam = float(monitor.problem.penalty.strong_convexity)
    w, old = np.asarray(new.w, float), np.asarray(monitor.model.w, float)
    slack = np.sqrt(2 * max(float(new.gap), 0.0) / lam) + 1e-14 * (1 + np.linalg.norm(w))
    apart = np.linalg.norm(w - old)
    bad = not push.lower - slack <= apart <= push.upper + slack
    if theta is not None:
        return int(bad or (push.certified and apart - slack >= theta))
    scores, before = watched @ w, np.sign(watched @ old)
    sure = np.abs(scores) > slack * np.sqrt(np.ravel((watched * watched).sum(axis=1)))
    changed = before != np.sign(scores)
    return int(bad or np.sum(changed & sure) > push.broken + push.open or np.sum(changed | ~sure) < push.broken)


@in_float64
def growth(n: int) -> dict:
    """Microseconds to plan, commit and certify 128 scattered elements in n rows of 4 entries, d = 1,000."""
    rng, d = np.random.default_rng(0), 1000
    columns = rng.integers(0, d // 4, 4 * n).astype(np.int32) + np.tile(np.arange(4, dtype=np.int32) * (d // 4), n)
    X = sp.csr_array((rng.normal(size=4 * n), columns, np.arange(0, 4 * n + 1, 4)), shape=(n, d))
    y, w = np.sign(rng.normal(size=n)), np.zeros(d)
    problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(1e-2))
    memory = Committed(problem, as_matrix(X), y, np.ones(n), w, w, None, n)
    times = []
    for _ in range(60):
        rows = rng.choice(n, 128, replace=False) if n < 10**6 else np.unique(rng.integers(0, n, 128))
        change = jb.set_elements(rows, rng.integers(0, d, rows.size), rng.normal(size=rows.size))
        marks = [time.perf_counter()]
        step = memory.plan(change, n)
        marks.append(time.perf_counter())
        memory.commit(step)
        marks.append(time.perf_counter())
        memory.disc()
        marks.append(time.perf_counter())
        times.append(np.diff(marks))
    plan, commit, disc = 1e6 * np.median(times[10:], axis=0)
    return {"n": n, "plan": round(plan), "commit": round(commit), "disc": round(disc)}


def report(payload: dict) -> str:
    """The section of RESULTS.md."""

    def row(p: dict) -> list[str]:
        watch = f"labels of {p['watched']:,} rows" if p["watched"] else f"move < {p['share']:.0%} of the norm of w"
        methods = ", ".join(f"{name} {count}" for name, count in p["methods"].items())
        speed = f"{1e3 * p['seconds'][0]:.2g} / {1e3 * p['seconds'][1]:.2g}"
        shape = f"{p['rows']:,} to {p['rows_end']:,} x {p['columns']:,}"
        saved = f"{p['pushes'] - p['retrained']} of {p['pushes']}"
        wrong = f"{p['violations']} of {p['checked']}"
        return [p["name"], shape, str(p["group"]), watch, saved, methods, wrong, speed, f"{1e3 * p['refit']:.3g}"]

    head = ["stream", "rows x columns", "rows a push", "certified", "retrainings saved", "answered by", "wrong",
            "ms a push, median / 95 %", "ms a retraining"]  # fmt: skip
    return f"""## Real streams through `Monitor` (`benchmarks/streams.py`)

The monitor retrains (tolerance {TOL:g}) whenever a push is not certified. "wrong" counts pushes, among those for \
which the model was retrained for the comparison, that the retrained model contradicts.

{table(head, [row(p) for p in payload["streams"]])}

A change of 128 scattered elements in n rows of 4 entries, d = 1,000, median microseconds: checking it and computing \
what it writes, committing that to the memory, and the certificate of all changes so far.

{table(["n", "plan", "commit", "certificate"], [[f"{p['n']:,}", *(str(p[k]) for k in ("plan", "commit", "disc"))]
                                                for p in payload["growth"]])}"""


def main() -> None:
    """Measure, print and record."""
    options = parser(__doc__).parse_args()
    if "JAXBOUNDS_SHARED" not in os.environ:
        raise SystemExit("JAXBOUNDS_SHARED must name the folder that has data/")
    folder = Path(os.environ["JAXBOUNDS_SHARED"]) / "data"
    runs = [("breast cancer", "theta")] if options.smoke else [(n, w) for n, s in STREAMS.items() for w in s[2]]
    found = []
    for name, watch in runs:
        found.append(replay(name, folder, watch, 20 if options.smoke else MOST.get((name, watch))))
        print(found[-1], flush=True)
    payload = {"streams": found, "growth": [growth(n) for n in (GROWTH[:1] if options.smoke else GROWTH)]}
    finish("streams", payload, options)
    print(report(payload))
    if any(p["violations"] for p in found):
        raise SystemExit("a push was wrong")


if __name__ == "__main__":
    main()
