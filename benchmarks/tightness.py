"""How tight every certificate is, from Theorem1 to Curvature, and what it costs: bound / truth by loss, lam and change.

    python benchmarks/tightness.py --data a9a.gz rcv1_small.vw.gz    (a quarter of an hour)

The small sets of scikit-learn and, with `--data`, any files in LIBSVM's format (.vw: Vowpal Wabbit's), plain or .gz.
Every interval is compared with the retrained optimum. `--smoke` takes seconds; `--draw` only draws the figure again.
"""

import json
import tempfile
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from _experiment import (
    GAMMA,
    SLOW,
    TOL_OLD,
    TOL_RETRAIN,
    TOL_TRUTH,
    available,
    draw,
    read_bundled,
    read_file,
    unit_rows,
)
from _record import HERE, RESULTS, best, finish, parser, record, table
from _tightness_figure import draw_widths
from paper import number, percent

import jaxbounds as jb

LOSSES = {
    "smoothed hinge": lambda: jb.losses.smoothed_hinge(GAMMA),
    "logistic": jb.losses.logistic,
    "squared hinge": jb.losses.squared_hinge,
}
LAMS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
FILE_LAMS = (1e-3, 1e-2, 1e-1)  # of the larger sets, so that a run ends in a quarter of an hour
NARROW = 200  # coefficients are compared too if there are no more columns
CHANGES = (
    ("spot", 1), ("spot", 100), ("rows", 1), ("rows", 10), ("columns", 1), ("removal", 1), ("removal", 10),
    ("lambda", 1.2),
)  # fmt: skip
RUNGS = {"Theorem1": jb.Theorem1, "Cached": jb.Cached, "SelfConcordant": jb.SelfConcordant, "Partial": jb.Partial,
         "Pass": jb.Pass, "Curvature": jb.Curvature}  # fmt: skip
FACTOR = 4096  # columns up to which a model gets its factor, beforehand
KEYS = ("distance", "width", "labels", "cost", "gain")
KNOWN = 100  # a true move counts in ratios if it is so many times as large as what is uncertain in it
TABLED, FROM = ("logistic", "smoothed hinge"), 1e-3  # what the tables show
NEEDED = ((50, "digits", ("spot", "rows")), (10, "breast_cancer", ("removal", "lambda")))  # gains of Pass, in radius


# --- measuring


def make_change(X: sp.csr_array, lam: float, kind: str, size: float, rng: np.random.Generator):
    """A change of the training data, drawn like the paper's, or of lam."""
    if kind == "lambda":
        return jb.set_penalty(jb.penalties.l2(size * lam))
    if kind == "removal":
        return jb.remove_rows(np.sort(rng.choice(X.shape[0], int(size), replace=False)))
    return draw(X, kind, int(size), rng)


def truth_of(model, change, lam: float) -> dict:
    """The retrained coefficients, how far they may be from the optimum, and the seconds of an ordinary retraining."""
    seconds, new = best(lambda: jb.refit(model, change, tol=TOL_RETRAIN), 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a gap that stays above the tolerance is accounted for: it is the slack
        new = jb.refit(model, change, tol=TOL_TRUTH, warm_start=new)
    w = np.asarray(new.w)
    return {"w": w, "slack": float(np.sqrt(2 * max(float(new.gap), 0.0) / lam)), "seconds": seconds}


def answers(method, model, change) -> bool:
    """Whether a rung applies."""
    return method.applies(model.problem) and method.missing(model, change) is None


def ask(model, change, method, X_test):
    """What a rung says: the bounds, their distance interval, the ends of the scores."""
    bounds = jb.bound(model, change, method)
    interval, scores = bounds.distance, bounds.scores(X_test)
    return bounds, float(interval.lower), float(interval.upper), np.asarray(scores.lower), np.asarray(scores.upper)


def mistakes(w, true: float, X_test, room: float, found) -> int:
    """Intervals that miss the truth by more than its slack, and wrong labels."""
    bounds, near, far, low, high = found
    scores, norms = X_test @ w, np.sqrt(np.ravel(X_test.multiply(X_test).sum(axis=1)))
    labels = np.where(low > 0, 1, np.where(high < 0, -1, 0))
    inside = [near - room <= true <= far + room]
    inside += [(low - room * norms <= scores) & (scores <= high + room * norms)]
    inside += [(labels == 0) | (labels == np.sign(scores)) | (np.abs(scores) <= room * norms)]
    if w.size <= NARROW:
        ends = bounds.w()
        inside += [(np.asarray(ends.lower) - room <= w) & (w <= np.asarray(ends.upper) + room)]
    return int(sum(np.sum(~np.asarray(each)) for each in inside))


def measure(model, change, lam: float, X_test, rungs) -> dict:
    """One point: every rung against the retrained optimum, as ratios."""
    truth = truth_of(model, change, lam)
    w, old_w = truth["w"], np.asarray(model.w)
    true, moved = float(np.linalg.norm(w - old_w)), float(np.median(np.abs(X_test @ (w - old_w))))
    room = truth["slack"] + 1e-14 * (1 + np.linalg.norm(w))  # the second term: rounding of this very check
    used, scored = true >= KNOWN * room, moved >= KNOWN * room  # rows have norm 1
    point = {"used": used, "scored": used and scored, "violations": {}, "rungs": {}}
    for name in rungs:
        seconds, found = best(lambda name=name: ask(model, change, RUNGS[name](), X_test), 3, most=0.5)
        bounds, near, far, low, high = found
        wrong = mistakes(w, true, X_test, room, found)
        if wrong:
            point["violations"][name] = f"{wrong}: distance [{near!r}, {far!r}], true {true!r}, slack {room!r}"
        point["rungs"][name] = {
            "distance": far / true if used else np.nan,
            "width": float(np.median(high - low)) / 2 / moved if point["scored"] else np.nan,
            "labels": float(np.mean((low > 0) | (high < 0))),
            "cost": seconds / truth["seconds"],
            "gain": float(bounds.radius),  # divided below
            "seconds": seconds,
        }
    radius = point["rungs"]["Theorem1"]["gain"]
    for found in point["rungs"].values():
        found["gain"] = radius / max(found["gain"], 1e-300)
    return point


def run_set(name: str, X, y, seeds: int, plan: dict, say=print) -> dict:
    """All cells (loss, lam, change, size) of a set, and its shape."""
    X, points = unit_rows(X), {}
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(y.size)
        train, test = np.sort(order[: int(0.8 * y.size)]), np.sort(order[int(0.8 * y.size) :])
        X_train, X_test = sp.csr_array(X[train]), sp.csr_array(X[test])
        data = X_train.toarray() if X_train.nnz > 0.3 * X_train.shape[0] * X_train.shape[1] else X_train
        for loss in plan["losses"]:
            for lam in plan["lams"]:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # its gap is part of the bounds
                    problem = jb.Problem(LOSSES[loss](), jb.penalties.l2(lam))
                    model = jb.fit(problem, data, y[train], tol=TOL_OLD)
                    model = jb.with_factor(model) if X.shape[1] <= FACTOR else model
                for number_, (kind, size) in enumerate(plan["changes"]):
                    if kind in ("spot", "rows", "columns") and size > available(X_train, kind):
                        continue
                    found = points.setdefault((loss, lam, kind, size), [])
                    slow = {r for p in found for r, asked in p["rungs"].items() if asked["seconds"] > SLOW}
                    change = make_change(X_train, lam, kind, size, np.random.default_rng([seed, number_]))
                    new_lam = size * lam if kind == "lambda" else lam
                    asked = [r for r in RUNGS if r not in slow and answers(RUNGS[r](), model, change)]
                    found.append(measure(model, change, new_lam, X_test, asked))
                    for rung, what in found[-1]["violations"].items():
                        say(f"*** VIOLATED *** {name}, {loss}, lam {lam:g}, {kind} {size}, seed {seed}, {rung}: {what}")
            say(f"{name}: seed {seed}, {loss} done")
    shape = {"rows": len(train), "columns": X.shape[1], "test": len(test), "seeds": seeds, "lams": plan["lams"]}
    return {**shape, "cells": [compact(*key, found) for key, found in points.items()]}


def compact(loss: str, lam: float, kind: str, size: float, points: list[dict]) -> dict:
    """A cell: medians over seeds, a list over rungs each; how many points count, and how many are within 2 x true."""
    cell = {"loss": loss, "lam": lam, "change": kind, "size": size, "points": len(points)}
    cell |= {key: sum(bool(p[key]) for p in points) for key in ("used", "scored")}
    cell["violations"] = sum(len(p["violations"]) for p in points)
    asked = [[p["rungs"][rung] for p in points if rung in p["rungs"]] for rung in RUNGS]
    for key in KEYS:
        values = [np.array([found[key] for found in rung]) for rung in asked]
        values = [v[~np.isnan(v)] for v in values]
        cell[key] = [float(f"{np.median(v):.4g}") if v.size else None for v in values]
    cell["within"] = [int(sum(found["distance"] <= 2 for found in rung)) for rung in asked]
    cell["compared"] = [int(sum(not np.isnan(found["distance"]) for found in rung)) for rung in asked]
    return cell


# --- the report


def label(cell: dict) -> str:
    """The name of a change: "spot 100", "lambda x 1.2"."""
    return f"lambda x {cell['size']:g}" if cell["change"] == "lambda" else f"{cell['change']} {cell['size']:g}"


def pooled(cells: list[dict], key: str, rung: str) -> np.ndarray:
    """One number a cell, without those that are missing."""
    at = list(RUNGS).index(rung)
    return np.array([cell[key][at] for cell in cells if cell[key][at] is not None])


def entry(cells: list[dict], key: str, form=number) -> str:
    """Medians over cells, a rung each."""
    found = [pooled(cells, key, rung) for rung in RUNGS]
    return " / ".join(form(float(np.median(f))) if f.size else "-" for f in found)


def tabled(found: dict) -> list[dict]:
    """The cells that the tables are about."""
    return [c for c in found["cells"] if c["loss"] in TABLED and c["lam"] >= FROM]


def by_change(found: dict) -> str:
    """The table of a set: a row for each change and loss."""
    rows, cells = [], tabled(found)
    for change in dict.fromkeys(map(label, cells)):
        for loss in TABLED:
            at = [c for c in cells if label(c) == change and c["loss"] == loss]
            if at:
                rates = entry(at, "labels", lambda rate: percent(rate).removesuffix(" %"))
                rows.append([change, loss, entry(at, "distance"), entry(at, "width"), rates, entry(at, "cost", brief)])
    return table(["change", "loss", "distance", "half-width", "labels, %", "time"], rows)


def listed(lams: list[float]) -> str:
    """0.001, 0.01"""
    return ", ".join(f"{lam:g}" for lam in lams)


def brief(value: float) -> str:
    """Two digits."""
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"


def gains(payload: dict) -> str:
    """How much smaller the radius is than Theorem1's, by set and change: Pass / Curvature."""
    names = list(dict.fromkeys(label(c) for found in payload["sets"].values() for c in tabled(found)))
    rows = []
    for name, found in payload["sets"].items():
        parts = []
        for change in names:
            at = [c for c in tabled(found) if label(c) == change]
            both = [pooled(at, "gain", rung) for rung in ("Pass", "Curvature")]
            parts.append(" / ".join(_factor(float(np.median(b))) if b.size else "-" for b in both))
        rows.append([name, *parts])
    return table(["set", *names], rows)


def _factor(value: float) -> str:
    return f"{value:.1e}" if value >= 1e5 else number(value)


def needed(payload: dict) -> str:
    """Prose: what Pass was to gain, and whether it does."""
    parts = []
    for least, name, kinds in NEEDED:
        if name in payload["sets"]:
            cells = [c for c in tabled(payload["sets"][name]) if c["change"] in kinds]
            found = pooled(cells, "gain", "Pass")
            if found.size:
                middle = float(np.median(found))
                verdict = "met" if middle >= least else "NOT met"
                parts.append(f"{_factor(middle)} on {name}, {' and '.join(kinds)} (needed: {least}; {verdict})")
    return f" In the median it is smaller by a factor of {'; '.join(parts)}." if parts else ""


def shares(cells: list[dict]) -> str:
    """Share of points with a distance bound of at most twice the true distance, a rung each."""
    result = []
    for at in range(len(RUNGS)):
        compared = sum(c["compared"][at] for c in cells)
        result.append(percent(sum(c["within"][at] for c in cells) / compared) if compared else "-")
    return " / ".join(result)


def verdict(payload: dict) -> str:
    """Prose: what each rung gives, and at what cost."""
    cells = [c for found in payload["sets"].values() for c in found["cells"]]
    names = " / ".join(f"`{rung}`" for rung in RUNGS)
    by_set = "; ".join(f"{name} {shares(found['cells'])}" for name, found in payload["sets"].items())
    costs = "; ".join(f"{name} {entry(found['cells'], 'cost', brief)}" for name, found in payload["sets"].items())
    cheap = {rung: pooled(cells, "cost", rung) for rung in RUNGS}
    cheaper = " / ".join(percent(float(np.mean(found < 1))) if found.size else "-" for found in cheap.values())
    return f"""**Distance.** The bound is at most twice the true distance in {shares(cells)} of the points \
({names}; all losses and lams): {by_set}.

**Scores.** Half the width of a score's interval over the score's true move (medians over test rows) is the stricter \
measure: below 0.5 an interval cannot hold both the old score and the new one. Over all cells it is \
{entry(cells, "width")}, and {entry(cells, "labels", percent)} of the test labels are decided.

**Radius.** `Pass` against `Theorem1`, at lam >= {FROM:g} with {" and ".join(TABLED)}.{needed(payload)} A table \
below has all sets and changes.

**Cost.** Bound and scores of all test rows over a warm-started retraining: {costs}; cheaper than that retraining in \
{cheaper} of the cells."""


def by_lam(payload: dict) -> str:
    """The table of all sets and changes together: a row for each lam and each loss."""
    cells = [c for found in payload["sets"].values() for c in found["cells"]]
    groups = {f"lam {lam:g}": [c for c in cells if c["lam"] == lam] for lam in payload["lams"]}
    groups |= {loss: [c for c in cells if c["loss"] == loss] for loss in payload["losses"]}
    rates = {name: entry(at, "labels", lambda rate: percent(rate).removesuffix(" %")) for name, at in groups.items()}
    rows = [[name, entry(at, "distance"), entry(at, "width"), rates[name], shares(at)] for name, at in groups.items()]
    return table(["cells", "distance", "half-width", "labels, %", "points within 2 x true"], rows)


def report(payload: dict) -> str:
    """The section of RESULTS.md."""
    sets = payload["sets"]
    cells = [c for found in sets.values() for c in found["cells"]]
    count, used, scored, violated = (sum(c[k] for c in cells) for k in ("points", "used", "scored", "violations"))
    shapes = "; ".join(
        f"{name} {found['rows']:,} x {found['columns']:,}, {found['test']:,} test rows, {found['seeds']} "
        + ("seeds" if found["seeds"] > 1 else "seed")
        + ("" if found["lams"] == payload["lams"] else f" and only lam {listed(found['lams'])}")
        for name, found in sets.items()
    )
    once = sum(0 < c["compared"][i] < c["used"] for c in cells for i in range(len(RUNGS)))
    slow = f" {once} times a rung took over {SLOW:g} s in a cell and was not asked again." if once else ""
    tables = "\n\n".join(f"**{name}**\n\n{by_change(found)}" for name, found in sets.items())
    return f"""## How tight, at what cost (`benchmarks/tightness.py`)

L2 with lam {listed(payload["lams"])}; {", ".join(payload["losses"])} (hinge smoothed by {GAMMA}); rows of norm 1. \
Training sets: {shapes}; seeds and lams are few to save time. \
Entries, rows and columns are drawn anew as in the paper's experiment, rows removed, \
lam multiplied. Retraining is `jb.refit` to a relative gap of 1e-8, compiled and warm-started; the truth is one to \
1e-13, and what its gap leaves open is its slack. Times are the least of up to three calls in the same minute, with \
other work on the machine.{slow}

**{violated} violations** in {count:,} points, {len(RUNGS)} rungs each: distances, scores of all test rows and decided \
labels, with up to {NARROW} columns also coefficients, were compared with the truth, allowing for its slack. \
{count - used:,} points whose optimum moves by less than {KNOWN} slacks, and for the scores {count - scored:,} whose \
median score does, are left out of the ratios. `SelfConcordant` is asked where it applies (logistic loss, no columns \
changed, a stored factor, whose making is not timed); `Curvature` uses the factor too. Where a half-width is below \
the slack, the truth is known less well than the interval says, and the check sees errors of the size of the slack only.

{verdict(payload)}

![half-width of score intervals over the true move](figures/tightness.png)

### By lam and loss

Each entry: {" / ".join(f"`{rung}`" for rung in RUNGS)}; medians over sets, changes and, by turns, losses and lams.

{by_lam(payload)}

### Gain in radius over `Theorem1`

`Pass` / `Curvature`; medians over the cells with lam >= {FROM:g}, {" and ".join(TABLED)}.

{gains(payload)}

### By set and change

Each entry: {" / ".join(f"`{rung}`" for rung in RUNGS)}; medians over lam >= {FROM:g} of medians over seeds. Distance: \
bound over true distance. Half-width: as above. Time: over that of retraining. "-": nothing moves measurably.

{tables}"""


def main() -> None:
    """Run, record, draw, print."""
    options = _options()
    target = Path(options.json or RESULTS / "tightness.json")
    if options.draw:
        draw_widths(json.loads(target.read_text())["payload"], list(RUNGS), label, HERE / "figures")
        return
    plan = {"losses": options.losses, "lams": options.lams, "changes": CHANGES}
    if options.smoke:
        plan |= {"losses": ["logistic"], "lams": [1e-2], "changes": [("rows", 1), ("lambda", 1.2)]}
    inputs = [(name, options.seeds, plan["lams"], lambda name=name: read_bundled(name)) for name in options.set]
    inputs += [
        (Path(p).name.split(".")[0], options.file_seeds, options.file_lams, lambda p=p: read_file(p))
        for p in options.data
    ]
    payload = {"losses": plan["losses"], "lams": plan["lams"], "sets": {}}
    for name, seeds, lams, read in inputs:
        found = run_set(name, *read(), seeds, plan | {"lams": lams}, lambda text: print(text, flush=True))
        payload["sets"][name] = found
        if not options.smoke:
            record("tightness", payload, options.json)  # so that an interrupted run leaves what it has
    with tempfile.TemporaryDirectory() as scratch:
        draw_widths(payload, list(RUNGS), label, Path(scratch) if options.smoke else HERE / "figures")
    finish("tightness", payload, options)
    print(report(payload).split("\n###")[0])
    if any(c["violations"] for found in payload["sets"].values() for c in found["cells"]):
        raise SystemExit("bounds were violated")


def _options():
    arguments = parser(__doc__)
    add = arguments.add_argument
    add("--set", nargs="*", default=["digits", "breast_cancer"], choices=["digits", "breast_cancer"])
    add("--data", nargs="*", default=[], metavar="FILE", help="LIBSVM or VW files, perhaps .gz")
    add("--losses", nargs="+", default=list(LOSSES), choices=list(LOSSES))
    add("--lams", type=float, nargs="+", default=list(LAMS))
    add("--file-lams", type=float, nargs="+", default=list(FILE_LAMS), help="of the files")
    add("--seeds", type=int, default=2, help="of scikit-learn's sets; more take longer")
    add("--file-seeds", type=int, default=1, help="of the files")
    add("--draw", action="store_true", help="only draw the figure of the recorded run again")
    options = arguments.parse_args()
    if options.smoke:
        options.set, options.data, options.seeds = ["breast_cancer"], [], 1
    return options


if __name__ == "__main__":
    main()
