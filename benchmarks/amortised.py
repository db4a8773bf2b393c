"""The paper's table of ratios, bound / warm-started retraining: one call at a time, and many changes in one call.

    python benchmarks/amortised.py --set digits --data a9a.gz rcv1_small.vw.gz    (some minutes)

The data, changes and problem are those of paper.py; one seed, `Cached`, the distance of every change. Data in LIBSVM's
format (.vw: Vowpal Wabbit's), plain or .gz, or .npz with labels beside it; sets measured before are kept in the record.
`--smoke` takes seconds.
"""

import json
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from _experiment import (
    GAMMA,
    LAMS,
    SIZES,
    TOL_OLD,
    TOL_RETRAIN,
    available,
    draw,
    is_dense,
    read_bundled,
    read_file,
    unit_rows,
)
from _record import RESULTS, best, finish, parser, record, table
from paper import COLUMNS, PUBLISHED, number

import jaxbounds as jb
from jaxbounds import often

CANDIDATES = 1000
TOUCHED = 3_000_000  # elements that the changes of one batch touch at most; fewer candidates where they are larger


def batch(X: sp.csr_array, scenario: str, size: int, count: int, rng: np.random.Generator):
    """Random changes of a scenario, as `draw` makes one, for `bound_each`."""
    low, high = (np.ravel(end.toarray()) for end in (X.min(axis=0), X.max(axis=0)))
    form = (lambda new: new.toarray()) if is_dense(X) else (lambda new: new)
    if scenario == "spot":
        rows, cols = X.nonzero()
        at = np.stack([rng.choice(rows.size, size, replace=False) for _ in range(count)])
        rows, cols = rows[at].astype(np.int32), cols[at].astype(np.int32)
        like = jb.set_elements([0], [0], 1.0)
        return type(like)(rows, cols, rng.uniform(low[cols], high[cols]))  # stacked without building each change
    along = X if scenario == "rows" else sp.csc_array(X)
    used = np.flatnonzero(np.diff(along.indptr))
    changes = []
    for _ in range(count):
        chosen = np.sort(rng.choice(used, size, replace=False))
        new = along[chosen] if scenario == "rows" else along[:, chosen]
        columns = new.indices if scenario == "rows" else np.repeat(chosen, np.diff(new.indptr))
        new.data = rng.uniform(low[columns], high[columns])
        change = jb.set_rows if scenario == "rows" else jb.set_columns
        changes.append(change(chosen, form(new)))
    return jb.stack(changes)


def touched(X: sp.csr_array, scenario: str, size: int) -> float:
    """Elements that a change lists, about."""
    return size if scenario == "spot" else size * X.nnz / X.shape[int(scenario == "columns")]


def warm(call, repeats: int) -> float:
    """Least seconds of up to so many calls, after one that compiles what is to be compiled."""
    call()
    return best(call, repeats, most=5.0)[0]


def run_set(X, y, lams, sizes, candidates: int, say) -> dict:
    """Times of one set: retraining and single bounds for every lam, batches for the first."""
    X = unit_rows(X)
    data, cells = X.toarray() if is_dense(X) else X, []
    cases = [(scenario, size) for scenario, found in sizes.items() for size in found if size <= available(X, scenario)]
    each = {}
    for lam in lams:
        problem = jb.Problem(jb.losses.smoothed_hinge(GAMMA), jb.penalties.l2(lam))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its gap is part of the bounds
            model = jb.fit(problem, data, y, tol=TOL_OLD)
        for scenario, size in cases:
            rng = np.random.default_rng(size)
            change = draw(X, scenario, size, rng)
            retrain = warm(lambda m=model, c=change: jb.refit(m, c, tol=TOL_RETRAIN), 4)
            single = warm(lambda m=model, c=change: jb.bound(m, c).distance, 100)
            if (scenario, size) not in each:
                count = int(max(1, min(candidates, TOUCHED / touched(X, scenario, size))))
                changes = batch(X, scenario, size, count, rng)
                each[scenario, size] = count, warm(lambda m=model, c=changes: jb.bound_each(m, c).distance, 3) / count
            count, seconds = each[scenario, size]
            cell = {"lam": lam, "scenario": scenario, "size": size, "candidates": count}
            cells.append(cell | {k: float(f"{v:.3g}") for k, v in
                                 (("retrain", retrain), ("single", single), ("each", seconds))})  # fmt: skip
        say(f"lam {lam:g} done")
    return {"rows": X.shape[0], "columns": X.shape[1], "nonzeros": int(X.nnz), "cells": cells}


def ratios(payload: dict, key: str) -> list[list[str]]:
    """The paper's table: a row for each lam and set."""
    rows = []
    for lam in payload["lams"]:
        for name, found in payload["sets"].items():
            cells = {(c["scenario"], c["size"]): c for c in found["cells"] if c["lam"] == lam}
            if not cells:
                continue
            rows.append([f"{lam:g}", name, *(f"{cells[at][key] / cells[at]['retrain']:.1g}" if at in cells else "-"
                                             for at in COLUMNS)])  # fmt: skip
        if lam == 1e-3:
            rows += [[f"{lam:g}", f"*{name}*", *published] for name, published in PUBLISHED.items()]
    return rows


def times(payload: dict) -> list[list[str]]:
    """Milliseconds at the first lam."""
    rows = []
    for name, found in payload["sets"].items():
        cells = {(c["scenario"], c["size"]): c for c in found["cells"] if c["lam"] == payload["lams"][0]}
        rows.append([name, *(" / ".join(number(1e3 * cells[at][k]) for k in ("each", "single", "retrain"))
                             if at in cells else "-" for at in COLUMNS)])  # fmt: skip
    return rows


def report(payload: dict) -> str:
    """The section of RESULTS.md."""
    sets, lam = payload["sets"], payload["lams"][0]
    shapes = "; ".join(f"{name} {found['rows']:,} x {found['columns']:,}, {found['nonzeros']:,} non-zeros"
                       for name, found in sets.items())  # fmt: skip
    at = [c for found in sets.values() for c in found["cells"] if c["lam"] == lam]
    below = [c for c in at if c["each"] / c["retrain"] <= min(_published(c))]
    few = [c for c in at if c["candidates"] < payload["candidates"]]
    fewer = sorted({f"{c['scenario']} {c['size']:,}: {c['candidates']:,}" for c in few})
    smaller = f" (fewer where they touch much: {'; '.join(fewer)})" if fewer else ""
    head = [f"{scenario} {size:,}" for scenario, size in COLUMNS]
    return f"""## The paper's table, one call and many in one (`benchmarks/amortised.py`)

Bound / warm-started retraining, from host call to host result. Smoothed hinge + L2 on {shapes}. \
Amortised: `bound_each` of {payload["candidates"]:,} changes{smaller}, their grouping and checks included, in a \
thread for each core, divided by their number. Single: `bound` of a change that is there, and its distance, when \
such changes come often. Retraining: `jb.refit` to a relative gap of {TOL_RETRAIN:g}, compiled and warm-started, \
least of up to four. Of the {len(at)} amortised cells at lam = {lam:g}, {len(below)} are at or below both published \
ones, whose retraining is that paper's own: ratios of fast retraining are larger, and times in ms tell more than \
ratios.

Amortised:

{table(["lam", "set", *head], ratios(payload, "each"))}

Single calls:

{table(["lam", "set", *head], ratios(payload, "single"))}

Times at lam = {lam:g}, ms: amortised / single / retraining.

{table(["set", *head], times(payload))}"""


def _published(cell: dict) -> list[float]:
    at = COLUMNS.index((cell["scenario"], cell["size"]))
    return [float(found[at]) for found in PUBLISHED.values()]


def earlier(options) -> dict:
    """The sets in the record; those that were measured at some lams alone have no line at the others."""
    path = Path(options.json) if options.json else RESULTS / "amortised.json"
    if options.smoke or not path.exists():
        return {}
    return json.loads(path.read_text())["payload"]["sets"]


def main() -> None:
    """Measure, print and record."""
    arguments = parser(__doc__)
    arguments.add_argument("--set", nargs="*", default=[], choices=["digits", "breast_cancer"])
    arguments.add_argument("--data", nargs="*", default=[], metavar="FILE", help="LIBSVM or VW files, perhaps .gz")
    arguments.add_argument("--lams", type=float, nargs="+", default=list(LAMS))
    options = arguments.parse_args()
    if not options.set and not options.data:
        options.set = ["digits"]
    sizes, candidates = SIZES, CANDIDATES
    if options.smoke:
        options.lams, sizes, candidates = [1e-3], {key: found[:1] for key, found in SIZES.items()}, 20
    else:
        often.OFTEN = 0  # every single bound as after some hundreds of its kind
    payload = {"lams": list(LAMS), "candidates": candidates, "sets": earlier(options)}
    inputs = [(name, lambda name=name: read_bundled(name)) for name in options.set]
    inputs += [(Path(p).name.split(".")[0], lambda p=p: read_file(p)) for p in options.data]
    for name, read in inputs:
        X, y = read()
        rows = slice(300 if options.smoke else None)
        found = run_set(X[rows], y[rows], options.lams, sizes, candidates, lambda s, n=name: print(n, s, flush=True))
        before = payload["sets"].get(name, {"cells": []})["cells"]
        found["cells"] += [cell for cell in before if cell["lam"] not in options.lams]
        payload["sets"][name] = found
        if not options.smoke:
            record("amortised", payload, options.json)  # so that an interrupted run leaves what it has
    finish("amortised", payload, options)
    print(report(payload))


if __name__ == "__main__":
    main()
