"""What each sweep answers, and what it costs, against retraining and against the usual estimates of the same numbers.

Leave-one-out against approximate leave-one-out, influence functions and scikit-learn; lambda against a grid of
retrained models; deletions against attacks; planted label errors. On digits and
breast_cancer, and on LIBSVM or VW files given by --data. ``python benchmarks/questions.py`` takes minutes; ``--smoke``.
"""

import time
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from _experiment import read_bundled, read_file, unit_rows
from _record import HERE, finish, parser, table
from sklearn.linear_model import LogisticRegression

import jaxbounds as jb
from jaxbounds.plots import band_over_lam, bounds_over_retrained, certified_fraction, determination_rate

LAMS = (1e-3, 1e-2)
SAMPLE = 20  # rows that are really left out
GRID = 30  # penalties of a sweep
TESTS, K = 50, 40  # test rows and deletions
FLIPPED = 0.05  # share of labels planted wrong


def timed(call):
    """(seconds, result) of one call after a first one that compiles."""
    call()
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def trained(X, y, lam, tol=1e-9, loss=None):
    """A logistic model by default."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return jb.fit(jb.Problem(loss or jb.losses.logistic(), jb.penalties.l2(lam)), X, y, tol=tol)


def inside(interval, truth, room=1e-6) -> int:
    """How many truths lie in their interval."""
    return int(np.sum((np.asarray(interval.lower) <= truth + room) & (np.asarray(interval.upper) >= truth - room)))


# --- leave-one-out


def estimates(X, y, w, lam):
    """(approximate leave-one-out, influence function): scores without each row, logistic loss (dense, NumPy)."""
    n = y.size
    score = X @ w
    a = 1 / (1 + np.exp(y * score))
    H = (X.T * (a * (1 - a) / n)) @ X + lam * np.eye(w.size)
    e = np.sum(X * np.linalg.solve(H, X.T).T, axis=1) / n
    step = y * a * e
    return score - step / (1 - a * (1 - a) * e), score - step


def leave_one_out(X, y, lam, rng) -> dict:
    """Intervals, estimates and true retrains of the same rows."""
    model = trained(X, y, lam)
    seconds, found = timed(lambda: jb.leave_one_out(model, keep_n=True))
    rows = rng.choice(y.size, min(SAMPLE, y.size), replace=False)
    start, truth = time.perf_counter(), []
    for i in rows:
        new = jb.refit(model, jb.remove_rows([i], keep_n=True), tol=1e-12)
        truth.append(float((X[[i]] @ np.asarray(new.w, float))[0]))
    ours, truth = (time.perf_counter() - start) / rows.size, np.array(truth)
    peer = LogisticRegression(C=1 / (lam * y.size), fit_intercept=False, warm_start=True, tol=1e-6, max_iter=1000)
    peer.fit(X, y)
    start = time.perf_counter()
    for i in rows:
        kept = np.arange(y.size) != i
        peer.fit(X[kept], y[kept])  # C is that of 1/n
    theirs = (time.perf_counter() - start) / rows.size
    low, high = np.asarray(found.scores.lower)[rows], np.asarray(found.scores.upper)[rows]
    moved = np.abs(truth - (X @ np.asarray(model.w, float))[rows])
    result = {
        "rows": int(y.size), "seconds": seconds, "refit": ours, "sklearn": theirs, "used": found.used(),
        "open": int(np.sum(np.asarray(found.undecided))),
        "errors": [int(found.errors.lower), int(found.errors.upper)],
        "inside": inside(type(found.scores)(low, high), truth), "of": int(rows.size),
        "half": float(np.median((high - low) / 2 / moved)),
        "mid": float(np.median(np.abs((low + high) / 2 - truth) / moved)),
    }  # fmt: skip
    if not sp.issparse(X):
        for name, guess in zip(("alo", "influence"), estimates(X, y, np.asarray(model.w, float), lam), strict=True):
            result[name] = float(np.median(np.abs(guess[rows] - truth) / moved))
            result[f"{name} worst"] = float(np.max(np.abs(guess[rows] - truth) / moved))
    result["figure"] = {"lower": low.tolist(), "upper": high.tolist(), "truth": truth.tolist()}
    return result


# --- lambda


def penalties(X, y, X_val, y_val, rng) -> dict:
    """A grid from three trained models, and the search for the best lambda."""
    problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(1.0))
    lams = np.geomspace(1e-4, 1e-1, GRID)
    grid = [jb.penalties.l2(float(lam)) for lam in lams]
    path = jb.fit_path(problem, X, y, [jb.penalties.l2(float(lam)) for lam in np.geomspace(1e-1, 1e-4, 4)], tol=1e-8)
    seconds, sweep = timed(lambda: jb.penalty_sweep(path, grid, X_val, y_val))
    start = time.perf_counter()
    truth = jb.fit_path(problem, X, y, grid[::-1], tol=1e-10)
    retrain = time.perf_counter() - start
    scores = np.array([X_val @ np.asarray(model.w, float) for model in truth.models[::-1]])
    errors = np.mean(y_val * scores <= 0, axis=1)
    start = time.perf_counter()
    best = jb.best_penalty(problem, X, y, X_val, y_val, 1e-4, 1e-1, eps=0.01)
    search = time.perf_counter() - start
    width = np.asarray(sweep.errors.upper) - np.asarray(sweep.errors.lower)
    return {
        "seconds": seconds, "retrain": retrain, "models": len(path.models), "width": float(np.max(width)),
        "inside": inside(sweep.errors, errors, 1e-12), "of": GRID, "trained": int(best.n_trained), "search": search,
        "best": [float(best.lower), float(best.error.upper)], "grid": float(np.min(errors)),
        "figure": {"lam": lams.tolist(), "lower": np.asarray(sweep.errors.lower).tolist(),
                   "upper": np.asarray(sweep.errors.upper).tolist(), "truth": errors.tolist()},
    }  # fmt: skip


# --- deletions


def deletions(X, y, X_test, lam) -> dict:
    """The largest certified k of each test row, and the least k that an attack needed."""
    model = trained(X, y, lam)
    seconds, largest = timed(lambda: np.asarray(jb.largest_certified_removal(model, X_test)))
    hard = np.argsort(largest, kind="stable")[:8]
    start = time.perf_counter()
    attacks = jb.attack_removal(model, K, X_test[hard])
    attacked = [float(a.rows.size) if a.flips else np.inf for a in attacks]
    return {
        "seconds": seconds, "tests": int(X_test.shape[0]), "median": float(np.median(largest)),
        "least": int(largest.min()), "attack": (time.perf_counter() - start) / len(attacks),
        "pairs": [[int(c), a if np.isfinite(a) else None] for c, a in zip(largest[hard], attacked, strict=True)],
        "figure": {"largest": largest.tolist()},
    }  # fmt: skip


# --- label errors


def planted(X, y, lam, rng) -> dict:
    """Flipped labels, found by certificates."""
    wrong = rng.choice(y.size, int(FLIPPED * y.size), replace=False)
    noisy = y.copy()
    noisy[wrong] *= -1
    seconds, found = timed(lambda: jb.find_label_errors(trained(X, noisy, lam)))
    rows = np.asarray(found.rows)
    hits = int(np.isin(rows, wrong).sum())
    return {"planted": int(wrong.size), "found": int(rows.size), "hits": hits, "seconds": seconds,
            "open": int(np.size(found.undecided))}  # fmt: skip


# --- determination rates


def rates(X, y, X_test, lam, rng) -> dict:
    """Share of test labels decided after k rows were replaced by others, by method."""
    model = jb.with_factor(trained(X, y, lam))
    sizes, found = [1, 3, 10, 30], {}
    for method in (jb.Theorem1(), jb.Cached(), jb.SelfConcordant(), jb.Pass(), jb.Curvature()):
        each = []
        for k in sizes:
            rows, source = rng.choice(y.size, k, replace=False), rng.choice(y.size, k, replace=False)
            bounds = jb.bound(model, jb.set_rows(rows, X[source], y[source]), method)
            each.append(float(np.mean(np.asarray(bounds.labels(X_test)) != 0)))
        found[type(method).__name__] = each
    return {"sizes": sizes, "rates": found}


def measure(X, y, seed: int, sparse: bool, smoke: bool) -> dict:
    """All questions about one set."""
    X = unit_rows(X)
    X = sp.csr_array(X) if sparse else np.asarray(X.toarray() if sp.issparse(X) else X)
    rng = np.random.default_rng(seed)
    order = rng.permutation(y.size)
    train, test = order[: int(0.8 * y.size)], order[int(0.8 * y.size) :]
    train = train[:200] if smoke else train
    X, y, X_test, y_test = X[train], y[train], X[test], y[test]
    lams = LAMS[-1:] if smoke else LAMS
    found = {"rows": int(y.size), "columns": X.shape[1], "tests": int(y_test.size)}
    found["leave_one_out"] = {str(lam): leave_one_out(X, y, lam, rng) for lam in lams}
    found["penalties"] = penalties(X, y, X_test, y_test, rng)
    found["label_errors"] = {str(lam): planted(X, y, lam, rng) for lam in lams}
    if not sparse:
        found["deletions"] = {str(lam): deletions(X, y, X_test[:TESTS], lam) for lam in lams}
        found["rates"] = rates(X, y, X_test, LAMS[0], rng)
    return found


# --- the report


def short(value: float) -> str:
    """Two digits."""
    return f"{value:.1e}" if value < 1e-2 else f"{value:.2g}" if value < 10 else f"{value:.0f}"


def report(payload: dict) -> str:
    """The section of RESULTS.md."""
    loo, sweeps, cuts, errors = [], [], [], []
    for name, found in payload["sets"].items():
        for lam, f in found["leave_one_out"].items():
            loo.append([name, lam, f"{f['rows']:,}", short(f["seconds"]), short(f["rows"] * f["refit"]),
                        short(f["rows"] * f["sklearn"]), f"{f['open']}", f"{f['errors'][0]} to {f['errors'][1]}",
                        f"{f['inside']}/{f['of']}", short(f["half"]),
                        *(f"{short(f[k])} ({short(f[k + ' worst'])})" if k in f else "-" for k in ("alo", "influence")),
                        ", ".join(f"{n} {k}" for k, n in f["used"].items())])  # fmt: skip
        f = found["penalties"]
        sweeps.append([name, f"{f['models']}", short(f["seconds"]), short(f["retrain"]), f"{f['width']:.3f}",
                       f"{f['inside']}/{f['of']}", f"{f['trained']}", short(f["search"]),
                       f"{f['best'][0]:.3f} to {f['best'][1]:.3f}", f"{f['grid']:.3f}"])  # fmt: skip
        for lam, f in found.get("deletions", {}).items():
            pairs = ", ".join(f"{c}/{'>' + str(payload['k']) if a is None else int(a)}" for c, a in f["pairs"])
            cuts.append([name, lam, f"{f['tests']}", short(f["seconds"]), f"{f['least']}", f"{f['median']:g}", pairs])
        for lam, f in found["label_errors"].items():
            precision = f["hits"] / f["found"] if f["found"] else float("nan")
            errors.append([name, lam, f"{f['planted']}", f"{f['found']}", f"{f['hits']}", f"{precision:.2f}",
                           f"{f['hits'] / f['planted']:.2f}", f"{f['open']}"])  # fmt: skip
    head = ["set", "lam"]
    return f"""## Questions about many changes (`benchmarks/questions.py`)

Logistic loss + L2, rows of norm 1, four fifths for training; times in seconds on one machine with other work on it, \
after compilation. Ratios count.

**Every row left out**, 1/n kept. `leave_one_out` against {payload["sample"]} rows that were really left out: time for \
all rows against retraining (ours, warm-started; scikit-learn's lbfgs, warm-started; both extrapolated from the \
sample), rows whose label stays open, the interval of the number of mistakes, truths inside. As shares of the score's \
true move (medians; in brackets the worst of the sample): half-width of the interval, error of approximate \
leave-one-out and of the influence function, which come with no guarantee.

{table([*head, "rows", "ours", "refit", "scikit-learn", "open", "mistakes", "inside", "half-width", "ALO", "influence",
        "how"], loo)}

![left-out scores](figures/questions_left_out.png)

**lambda.** `penalty_sweep` of {payload["grid"]} lambdas in [1e-4, 1e-1] from a few trained models, against training \
each: greatest width of the validation error's interval, truths inside; `best_penalty` to within 0.01 of the best on \
the whole interval: models trained, certified range of the best error, best error on the grid.

{table(["set", "models", "sweep", "retrain all", "width", "inside", "trained", "search", "best is in", "on the grid"],
       sweeps)}

![validation error over lambda](figures/questions_lambda.png)

**Any k rows deleted.** `largest_certified_removal` for each test row; for the eight weakest the certified k against \
the least k with which `attack_removal` flipped the label by a real retraining (at most {payload["k"]} rows).

{table([*head, "test rows", "seconds", "least k", "median k", "certified/attacked"], cuts)}

![share of predictions that k deletions cannot change](figures/questions_deletions.png)

**Label errors.** {payload["flipped"]:.0%} of the labels were flipped; `find_label_errors` reports rows whose left-out \
prediction is certain to contradict their label. Precision and recall are the model's: every report is right about the \
model.

{table([*head, "planted", "reported", "of these planted", "precision", "recall", "open"], errors)}

**Labels decided** after k rows were replaced (lam {LAMS[0]:g}), by method.

![share of labels decided](figures/questions_rates.png)"""


def draw(payload: dict, folder: Path) -> None:
    """The figures, one panel a set."""
    from types import SimpleNamespace

    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    sets = payload["sets"]

    def panels(names, name, one):
        figure = Figure(figsize=(4.2 * len(names), 3.0), layout="constrained")
        for axis, key in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
            one(axis, sets[key])
            axis.set_title(key, fontsize=9)
        figure.savefig(folder / f"questions_{name}.png", dpi=75)

    def left_out(axis, found):
        f = next(iter(found["leave_one_out"].values()))["figure"]
        bounds_over_retrained(SimpleNamespace(**f), f["truth"], ax=axis)

    def over_lam(axis, found):
        f = found["penalties"]["figure"]
        band_over_lam(f["lam"], SimpleNamespace(**f), retrained=f["truth"], ax=axis)

    def deleted(axis, found):
        certified_fraction(next(iter(found["deletions"].values()))["figure"]["largest"], ax=axis)

    def decided(axis, found):
        f = found["rates"]
        labels = {k: [np.arange(1000) < 1000 * rate for rate in each] for k, each in f["rates"].items()}
        determination_rate(f["sizes"], labels, ax=axis)

    panels(list(sets), "left_out", left_out)
    panels(list(sets), "lambda", over_lam)
    dense = [name for name, found in sets.items() if "deletions" in found]
    panels(dense, "deletions", deleted)
    panels(dense, "rates", decided)


def main() -> None:
    """Run, record, draw, print."""
    arguments = parser(__doc__)
    arguments.add_argument("--data", nargs="*", default=[], metavar="FILE", help="LIBSVM or VW files, perhaps .gz")
    options = arguments.parse_args()
    payload = {"sample": SAMPLE, "grid": GRID, "k": K, "flipped": FLIPPED, "sets": {}}
    names = ["breast_cancer"] if options.smoke else ["digits", "breast_cancer"]
    for name in names:
        payload["sets"][name] = measure(*read_bundled(name), 0, False, options.smoke)
        print(f"{name} done", flush=True)
    for path in [] if options.smoke else options.data:
        payload["sets"][Path(path).name.split(".")[0]] = measure(*read_file(path), 0, True, False)
        print(f"{path} done", flush=True)
    if not options.smoke:
        draw(payload, HERE / "figures")
    finish("questions", payload, options)
    print(report(payload))


if __name__ == "__main__":
    main()
