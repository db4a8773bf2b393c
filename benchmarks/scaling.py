"""Time of a bound against the number of rows at a change of fixed size: it must not grow.

Run ``python benchmarks/scaling.py`` (two minutes, 2 GB) or ``--smoke`` (seconds).
Nothing is trained: any pair (w, alpha) makes a model, and its bounds cost the same.
"""

import jax
import numpy as np
import scipy.sparse as sp
from _record import best, finish, parser, table

import jaxbounds as jb
from jaxbounds import often
from jaxbounds.array import put
from jaxbounds.matrix import as_matrix
from jaxbounds.model import Data, remember

TOUCHED = 10  # rows or elements that change
D_DENSE, D_SPARSE, NNZ_ROW = 20, 50_000, 10
MANY = 10_000


def make(n: int, sparse: bool):
    """A model of n rows, the changes to time, and those to time as they are answered when such are asked often."""
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
    many = rng.choice(n * d, MANY, replace=False)
    frequent = {
        "1 element": jb.set_elements(rows[:1], [d // 2], 0.5),
        f"{MANY:,} elements": jb.set_elements(many // d, many % d, 0.5),
        f"{TOUCHED} rows": jb.set_rows(rows, block(TOUCHED)),
    }
    return model, frequent, {
        "elements": jb.set_elements(rows, rng.choice(d, TOUCHED, replace=False), 0.5),
        "rows": jb.set_rows(rows, block(TOUCHED)),
        "targets": jb.set_targets(rows, -y[rows]),
        "weights": jb.set_weights(rows, 2.0),
        "remove": jb.remove_rows(rows),
        "add": jb.add_rows(block(TOUCHED), y[:TOUCHED]),
    }  # fmt: skip


def milliseconds(model, change, repeats: int) -> float:
    """Least time of a bound with its distance."""
    return 1e3 * best(lambda: jb.bound(model, change).distance, repeats + 1)[0]


def report(payload: dict) -> str:
    """The section of RESULTS.md."""
    kinds = list(payload["times"][0]["ms"])
    rows = [[t["data"], f"{t['n']:,}", *(f"{t['ms'][kind]:.1f}" for kind in kinds)] for t in payload["times"]]
    frequent = [
        [t["data"], f"{t['n']:,}", *(f"{1e3 * ms:,.0f}" for ms in t["often"].values())] for t in payload["times"]
    ]
    times = [ms for t in payload["times"] for ms in t["ms"].values()]
    largest = max(t["n"] for t in payload["times"])
    grown = f"These grew by more than 5 ms and a factor of 3: {', '.join(payload['grown'])}." * bool(payload["grown"])
    return f"""## One bound against the number of rows (`benchmarks/scaling.py`), ms

One call of `bound` with `Cached` and its distance, {payload["touched"]} touched rows or elements, least of \
{payload["repeats"]} calls; the data have {D_DENSE} columns, or {D_SPARSE:,} with {NNZ_ROW} entries a row. All times \
up to {largest:,} rows lie between {min(times):.1f} and {max(times):.1f} ms. {grown or "None grows with the rows"}\
{"" if grown else ": what is left is the fixed cost of some hundreds of small NumPy calls."}

{table(["data", "rows", *kinds], rows)}

Once such questions are asked often (more than {often.OFTEN} times alike) they are answered by compiled programs, \
least of {10 * payload["repeats"]} calls, us ({MANY:,} elements touch up to as many rows, where there are so many):

{table(["data", "rows", *payload["times"][0]["often"]], frequent)}"""


def main() -> None:
    """Measure, print and record; exit status 1 if a time grows with n (not in a smoke run)."""
    options = parser(__doc__).parse_args()
    sizes = [1_000, 10_000, 100_000] if options.smoke else [1_000, 10_000, 100_000, 1_000_000]
    repeats = 5 if options.smoke else 20
    payload = {"touched": TOUCHED, "repeats": repeats, "times": [], "grown": []}
    for data in ("dense", "sparse"):
        found = []
        for n in sizes:
            model, frequent, changes = make(n, data == "sparse")
            usual, often.OFTEN = often.OFTEN, 1 << 30
            found.append({kind: round(milliseconds(model, change, repeats), 3) for kind, change in changes.items()})
            often.OFTEN = 0
            fast = {kind: round(milliseconds(model, change, 10 * repeats), 4) for kind, change in frequent.items()}
            often.OFTEN = usual
            payload["times"].append({"data": data, "n": n, "ms": found[-1], "often": fast})
        payload["grown"] += [f"{data} {kind}" for kind in found[0] if found[-1][kind] > 3 * found[0][kind] + 5]
    finish("scaling", payload, options)
    print(report(payload))
    if payload["grown"] and not options.smoke:  # a smoke run shows that it runs, not how fast
        raise SystemExit("grows with n: " + ", ".join(payload["grown"]))


if __name__ == "__main__":
    main()
