"""Time of a fit to a relative gap of 1e-6 on a set of rcv1's size, by loss and lam.

Run ``python benchmarks/training.py`` (a minute) or ``--smoke`` (seconds). The set is that of products.py, its labels
are the signs of a random linear score with noise. Compilation is apart: it is the first call less a later one.
"""

import numpy as np
from _record import best, finish, parser, table
from products import SIZES, power_law

import jaxbounds as jb
from jaxbounds.matrix import as_matrix

LOSSES = {
    "logistic": jb.losses.logistic,
    "squared_hinge": jb.losses.squared_hinge,
    "smoothed_hinge": lambda: jb.losses.smoothed_hinge(0.5),
}
LAMS = (1e-1, 1e-3, 1e-4, 1e-5)
TOL = 1e-6


def report(payload: dict) -> str:
    """The section of RESULTS.md."""
    times = payload["times"]
    rows = [[t["loss"], *(f"{ms:,.0f} ({n})" for ms, n in zip(t["ms"], t["steps"], strict=True))] for t in times]
    factor = max(t["ms"][-1] / t["ms"][0] for t in times)
    return f"""## Training (`benchmarks/training.py`), ms to a relative gap of 1e-6 (outer steps)

{payload["rows"]:,} x {payload["columns"]:,}, {payload["nonzeros"]:,} non-zeros, synthetic, of rcv1's size; least of \
{payload["repeats"]} fits from zero with the default solver, the data already in the library's layout. From the \
largest to the smallest lam a fit becomes up to {factor:.0f} times as long. The first fit of a loss compiles for \
{min(t["compile"] for t in times):.1f} to {max(t["compile"] for t in times):.1f} s.

{table(["loss", *(f"lam {lam:g}" for lam in payload["lams"])], rows)}"""


def main() -> None:
    """Measure, print and record."""
    options = parser(__doc__).parse_args()
    lams, repeats = (LAMS[:2], 2) if options.smoke else (LAMS, 3)
    X = power_law(*SIZES["smoke" if options.smoke else "rcv1"])
    rng = np.random.default_rng(0)
    scores = X @ rng.normal(size=X.shape[1])
    y = np.where(scores + 0.5 * np.std(scores) * rng.normal(size=scores.size) > 0, 1.0, -1.0)
    payload = {"rows": X.shape[0], "columns": X.shape[1], "nonzeros": int(X.nnz), "lams": lams, "repeats": repeats}
    payload["times"] = []
    data = as_matrix(X)
    for name, loss in list(LOSSES.items())[: 1 if options.smoke else None]:
        found = {"loss": name, "compile": 0.0, "ms": [], "steps": []}
        for lam in lams:
            problem = jb.Problem(loss(), jb.penalties.l2(lam))
            first, _ = best(lambda problem=problem: jb.fit(problem, data, y, tol=TOL), 1)
            seconds, model = best(lambda problem=problem: jb.fit(problem, data, y, tol=TOL), repeats)
            found["compile"] = round(max(found["compile"], first - seconds), 3)
            found["ms"].append(round(1e3 * seconds, 2))
            found["steps"].append(int(model.n_steps))
        payload["times"].append(found)
    finish("training", payload, options)
    print(report(payload))


if __name__ == "__main__":
    main()
