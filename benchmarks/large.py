"""Data larger than they should be: trained, bounded and streamed from disk by RowBlocks, with the memory it takes.

Run ``python benchmarks/large.py SIZE...`` with sizes of `SIZES` (by default those of a few minutes), or ``--smoke``.
Sizes run before are kept in the record. Each is a process of its own, whose memory is watched; the data (8 to 12 bytes
an entry) are written to a temporary folder first.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from _record import RESULTS, finish, parser, table

import jaxbounds as jb

SIZES = {  # rows, columns, entries a row before repeated ones are dropped, type of the values
    "tiny": (20_000, 50_000, 40, "float32"),
    "packages": (842_000, 2_500_000, 47, "float64"),
    "kdd-a / 10": (840_000, 2_020_000, 37, "float32"),
    "kdd-a": (8_400_000, 20_200_000, 37, "float32"),
}
IN_MEMORY = ("packages",)  # also fitted without RowBlocks, for comparison
BLOCK = 200_000  # rows that are drawn at once
LAM = 1e-3


def draw(folder: Path, n: int, d: int, each: int, dtype: str) -> np.ndarray:
    """Write CSR arrays of rows of norm 1 with power-law columns, block by block; returns targets of a planted model."""
    rng = np.random.default_rng(0)
    planted = rng.normal(size=d)
    y, start = np.empty(n), np.zeros(n + 1, np.int64)
    with open(folder / "values", "wb") as values, open(folder / "columns", "wb") as columns:
        for first in range(0, n, BLOCK):
            k = min(BLOCK, n - first)
            cols = np.sort((d * rng.random((k, each), np.float32).astype(np.float64) ** 4).astype(np.int32), axis=1)
            new = np.diff(cols, axis=1, prepend=-1) > 0
            counts = new.sum(axis=1)
            start[first + 1 : first + k + 1] = start[first] + np.cumsum(counts)
            row, col = np.repeat(np.arange(k), counts), cols[new]
            (1 / np.sqrt(counts))[row].astype(dtype).tofile(values)
            col.tofile(columns)
            score = np.bincount(row, planted[col], minlength=k) / np.sqrt(counts)
            y[first : first + k] = np.where(score + 0.3 * rng.normal(size=k) > 0, 1.0, -1.0)
    np.save(folder / "indptr.npy", start)
    for raw, name, kind in (("values", "data", dtype), ("columns", "indices", "int32")):
        with open(folder / f"{name}.npy", "wb") as file:
            np.lib.format.write_array_header_1_0(
                file, {"descr": np.lib.format.dtype_to_descr(np.dtype(kind)), "fortran_order": False,
                       "shape": (int(start[-1]),)},
            )  # fmt: skip
            with open(folder / raw, "rb") as part:
                shutil.copyfileobj(part, file, 1 << 24)
        os.unlink(folder / raw)
    return y


class Watch:
    """The most memory of this process, without mapped files, since `reset` (Linux)."""

    def __init__(self):
        self.most = 0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            self.most = max(self.most, self._now())
            time.sleep(0.01)

    def reset(self):
        """Start anew."""
        self.most = 0

    @staticmethod
    def _now() -> int:
        with open("/proc/self/status") as lines:
            return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon")), 0)


def measure(name: str, folder: Path) -> dict:
    """Everything about one size."""
    n, d, each, dtype = SIZES[name]
    y = draw(folder, n, d, each, dtype)
    watch, result = Watch(), {"name": name, "rows": n, "columns": d, "dtype": dtype}
    problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(LAM))

    def timed(key: str, call):
        start = time.perf_counter()
        found = call()
        result[key] = round(time.perf_counter() - start, 4)
        return found

    blocks = timed("open", lambda: jb.RowBlocks(folder, columns=d))
    result |= {"entries": blocks.nnz, "bytes": sum(f.stat().st_size for f in folder.iterdir())}
    for _ in range(2):  # the first brings the pages in
        timed("pass", lambda: blocks.matvec(np.ones(d)))
        timed("pass_back", lambda: blocks.rmatvec(y))
    model = timed("fit", lambda: jb.fit(problem, blocks, y, tol=1e-6))
    result |= {"steps": int(model.n_steps), "gap": float(model.gap) / float(model.primal)}
    result["peak_fit"] = watch.most
    rng = np.random.default_rng(1)
    rows, cols = rng.choice(n, 100, replace=False), rng.choice(d, 100, replace=False)
    changes = {"remove": jb.remove_rows(rows[:1]), "elements": jb.set_elements(rows, cols, 0.5)}
    for key, change in changes.items():
        jb.bound(model, change)
        timed(f"bound_{key}", lambda change=change: jb.bound(model, change).distance)
    bounds = jb.bound(model, changes["remove"])
    decided = timed("stream", lambda: bounds.decided(blocks))
    result |= {"decided": float(np.mean(np.asarray(decided))), "peak": watch.most}
    if name in IN_MEMORY:
        del model, bounds, decided
        X = blocks.load()
        timed("fit_in_memory", lambda: jb.fit(problem, X, y, tol=1e-6))
        result["peak_in_memory"] = watch.most
    return result


def run(name: str) -> dict:
    """One size in a process of its own."""
    folder = Path(tempfile.mkdtemp())
    try:
        command = [sys.executable, __file__, "--child", str(folder), name]
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    finally:
        shutil.rmtree(folder)


def report(payload: dict) -> str:
    """The section of RESULTS.md."""
    rows = []
    for r in payload["sizes"]:
        memory = f"{r['fit_in_memory']:.1f} s, {r['peak_in_memory'] / 2**30:.1f} GiB" if "fit_in_memory" in r else "-"
        rows.append([
            r["name"], f"{r['rows']:,} x {r['columns']:,}", f"{r['entries'] / 1e6:.1f} M {r['dtype']}",
            f"{r['bytes'] / 2**30:.2f}", f"{r['open']:.1f}", f"{1e9 * r['pass'] / r['entries']:.1f}",
            f"{1e9 * r['pass_back'] / r['entries']:.1f}", f"{r['fit']:.1f} ({r['steps']})", f"{r['gap']:.0e}",
            f"{r['stream']:.1f}", f"{1e3 * r['bound_remove']:.0f} / {1e3 * r['bound_elements']:.0f}",
            f"{r['peak'] / 2**30:.2f}", memory,
        ])  # fmt: skip
    head = ["data", "size", "entries", "file, GiB", "open, s", "X w, ns an entry", "X^T t", "fit, s (steps)",
            "relative gap", "labels of all rows, s", "bound, ms: a row removed / 100 elements set", "peak memory, GiB",
            "fit in memory, peak"]  # fmt: skip
    return f"""## Data from disk (`benchmarks/large.py`)

Synthetic CSR data with power-law columns and rows of norm 1, in a folder that RowBlocks maps (in the page cache); \
logistic loss, L2 with lam = {LAM}, fitted to a relative gap of 1e-6 from w = 0, compilation included. "open" reads \
and checks every entry once. The bound is that of `Cached`, with its distance; the labels are those certified for all \
rows after one row has been removed. Peak memory is that of the process, targets and all vectors included, without \
mapped pages of the file. {payload["note"]}

{table(head, rows)}"""


def main() -> None:
    """Measure, print and record."""
    options_parser = parser(__doc__)
    options_parser.add_argument("sizes", nargs="*", help=f"of {', '.join(SIZES)}")
    options_parser.add_argument("--note", default="", help="a sentence on this run for RESULTS.md")
    options_parser.add_argument("--child", help="(internal) the folder of a process that measures one size")
    options = options_parser.parse_args()
    if options.child:
        print(json.dumps(measure(options.sizes[0], Path(options.child))))
        return
    names = ["tiny"] if options.smoke else options.sizes or ["tiny", "kdd-a / 10"]
    path = RESULTS / "large.json"
    old = json.loads(path.read_text())["payload"]["sizes"] if path.exists() and not options.smoke else []
    found = {size["name"]: size for size in [*old, *map(run, names)]}
    payload = {"note": options.note, "sizes": [found[name] for name in SIZES if name in found]}
    finish("large", payload, options)
    print(report(payload))


if __name__ == "__main__":
    main()
