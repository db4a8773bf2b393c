"""Time of a candidate in `bound_each`, by kind of change, on a set of rcv1's size, against a loop of `bound`.

Run ``python benchmarks/sweeps.py`` (a minute) or ``--smoke`` (seconds). Nothing is trained: any pair makes a model.
"""

import jax
import numpy as np
from _record import best, finish, parser, table
from products import SIZES, power_law

import jaxbounds as jb
from jaxbounds.array import put
from jaxbounds.matrix import as_matrix
from jaxbounds.model import Data, remember

TEST_ROWS = 100


def report(payload: dict) -> str:
    """The section of RESULTS.md."""
    rows = []
    for name, t in payload["kinds"].items():
        per_element = f"{1e3 * t['us'] / t['elements']:,.0f}" if t["elements"] else "-"
        rows.append([name, f"{t['candidates']:,}", f"{t['elements']:g}", f"{t['us']:.3g}", per_element, str(t["loop"])])
    gains = [t["loop"] / t["us"] for t in payload["kinds"].values()]
    return f"""## Many candidates in one call (`benchmarks/sweeps.py`)

{payload["rows"]:,} x {payload["columns"]:,}, {payload["nonzeros"]:,} non-zeros, smoothed hinge + L2, `Cached`, \
distance of every candidate; with scores: also those of {TEST_ROWS} rows. Least of {payload["repeats"]} calls. A batch \
is {min(gains):.0f} to {max(gains):.0f} times as fast as a loop of `bound`. Compiled prototypes of single kernels \
reached 5 to 13 ns for a candidate of one element, 14 to 20 ns an element for 100 (30 to 93 ns with the grouping of \
elements) and 17 ns a row for leave-one-out from stored sums. Here elements run in a compiled program of the formulas \
that everything else uses, with both regions, grouping, checks and rounding allowances; the other kinds are NumPy. \
Every row left out has a form of its own, `leave_one_out`, at less than a microsecond a row.

{table(["changes", "candidates", "touched elements each", "us a candidate", "ns an element", "`bound`, us"], rows)}"""


def make(size: str):
    """A model on a power-law set."""
    X = power_law(*SIZES[size])
    rng = np.random.default_rng(0)
    y = np.where(rng.random(X.shape[0]) < 0.5, 1.0, -1.0)
    problem = jb.Problem(jb.losses.smoothed_hinge(0.5), jb.penalties.l2(0.1))
    with jax.enable_x64(True):
        data = put(Data(as_matrix(X), y, np.ones(X.shape[0])))
        return remember(problem, data, 0.1 * rng.normal(size=X.shape[1]), rng.random(X.shape[0])), X


def spots(rng, X, candidates: int, elements: int):
    """Candidates of equally many elements, stacked without building each change."""
    rows, cols = (rng.integers(0, size, (candidates, elements)) for size in X.shape)
    like = jb.set_elements([0], [0], 1.0)
    return put(type(like)(rows.astype(np.int32), cols.astype(np.int32), rng.random((candidates, elements))))


def main() -> None:
    """Measure, print and record."""
    options = parser(__doc__).parse_args()
    model, X = make("smoke" if options.smoke else "rcv1")
    rng, scale = np.random.default_rng(1), 1 if options.smoke else 100
    ragged = [jb.set_rows(rng.choice(X.shape[0], k, False), X[:k]) for k in rng.integers(1, 9, 3 * scale)]
    removed, mean = jb.each_row_removed(model, np.arange(min(100 * scale, X.shape[0]))), X.nnz / X.shape[0]
    kinds = {
        "1 element": (spots(rng, X, 1000 * scale, 1), 1.0, None),
        "100 elements": (spots(rng, X, 10 * scale, 100), 100.0, None),
        "one row removed": (removed, mean, None),
        "one row removed, with scores": (removed, mean, X[:TEST_ROWS]),
        "one label flipped": (jb.each_target_flipped(model, np.arange(100)), mean, None),
        "1 to 8 rows replaced": (jb.stack(ragged), 4.5 * mean, None),
        "another lam": (jb.each_penalty([jb.penalties.l2(lam) for lam in np.geomspace(1e-3, 1, 10 * scale)]), 0, None),
    }
    payload = {"rows": X.shape[0], "columns": X.shape[1], "nonzeros": int(X.nnz), "repeats": 3, "kinds": {}}
    for name, (changes, elements, test) in kinds.items():
        each = jb.bound_each(model, changes, test)
        count = len(each)

        def one(each=each, test=test):
            bounds = each[0]
            return bounds.distance, test is not None and bounds.scores(test)

        seconds = best(lambda changes=changes, test=test: jb.bound_each(model, changes, test), payload["repeats"])[0]
        us = 1e6 * seconds / count
        payload["kinds"][name] = {
            "candidates": count, "elements": round(float(elements), 1), "us": round(us, 4),
            "loop": round(1e6 * best(one, 5)[0]),
        }  # fmt: skip
    finish("sweeps", payload, options)
    print(report(payload))


if __name__ == "__main__":
    main()
