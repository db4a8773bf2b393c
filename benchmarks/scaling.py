"""Time of a bound against the number of rows at a change of fixed size: it must not grow.

Run ``python benchmarks/scaling.py`` (a minute, 2 GB) or ``--smoke`` (seconds); ``--json PATH`` also writes the table.
Nothing is trained: any pair (w, alpha) makes a model, and its bounds cost the same.
"""

import argparse
import json
import time

import jax
import numpy as np
import scipy.sparse as sp

import jaxbounds as jb
from jaxbounds.array import put
from jaxbounds.matrix import as_matrix
from jaxbounds.model import Data, remember

TOUCHED = 10  # rows or elements that change
D_DENSE, D_SPARSE, NNZ_ROW = 20, 50_000, 10


def make(n: int, sparse: bool):
    """A model of n rows, and the changes to time."""
    rng = np.random.default_rng(0)
    d = D_SPARSE if sparse else D_DENSE

    def block(k):
        if not sparse:
            return rng.normal(size=(k, d))
        cols = rng.integers(0, d, k * NNZ_ROW)
        return sp.csr_array((rng.normal(size=cols.size), cols, np.arange(k + 1) * NNZ_ROW), shape=(k, d))

    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    problem = jb.Problem(jb.losses.smoothed_hinge(0.5), jb.penalties.l2(0.1))
    with jax.enable_x64(True):
        data = put(Data(as_matrix(block(n)), y, np.ones(n)))
        model = remember(problem, data, 0.1 * rng.normal(size=d), rng.random(n))
    rows = rng.choice(n, TOUCHED, replace=False)
    return model, {
        "elements": jb.set_elements(rows, rng.choice(d, TOUCHED, replace=False), 0.5),
        "rows": jb.set_rows(rows, block(TOUCHED)),
        "targets": jb.set_targets(rows, -y[rows]),
        "weights": jb.set_weights(rows, 2.0),
        "remove": jb.remove_rows(rows),
        "add": jb.add_rows(block(TOUCHED), y[:TOUCHED]),
    }


def milliseconds(model, change, repeats: int) -> float:
    """Least time of a bound with its distance."""
    best = np.inf
    for _ in range(repeats + 1):
        start = time.perf_counter()
        jb.bound(model, change).distance  # noqa: B018
        best = min(best, time.perf_counter() - start)
    return 1e3 * best


def main() -> None:
    """Measure and print; exit status 1 if a time grows with n (not in a smoke run)."""
    parser = argparse.ArgumentParser(description="Time of a bound against the number of rows.")
    parser.add_argument("--smoke", action="store_true", help="n up to 1e5, a few seconds")
    parser.add_argument("--json", metavar="PATH", help="write the table here")
    options = parser.parse_args()
    sizes = [1_000, 10_000, 100_000] if options.smoke else [1_000, 10_000, 100_000, 1_000_000]
    table, grown = {}, []
    for sparse in (False, True):
        name = "sparse" if sparse else "dense"
        for n in sizes:
            model, changes = make(n, sparse)
            times = {kind: milliseconds(model, change, 5 if options.smoke else 20) for kind, change in changes.items()}
            if not table:
                print("ms per bound         n" + "".join(f"{kind:>11}" for kind in times))
            table[f"{name} {n}"] = times
            print(f"{name:<12}{n:>10}" + "".join(f"{t:>11.2f}" for t in times.values()), flush=True)
        first, last = table[f"{name} {sizes[0]}"], table[f"{name} {sizes[-1]}"]
        grown += [f"{name} {kind}" for kind in first if last[kind] > 3 * first[kind] + 5]
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"unit": "ms", "touched": TOUCHED, "times": table, "grown": grown}, file, indent=1)
    if grown and not options.smoke:  # a smoke run shows that it runs, not how fast
        raise SystemExit("grows with n: " + ", ".join(grown))


if __name__ == "__main__":
    main()
