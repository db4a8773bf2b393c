"""Label errors: what `find_label_errors` reports with certainty, against the wrong labels that are known.

Planted flips on scikit-learn's digits and breast_cancer, and real corrections in --data: part-of-speech tags that
later releases of a treebank changed, published house prices that were corrected, two rows of iris with wrong features.
The ceiling of every left-out rule is the same question with all open rows settled by retraining without them.
``python benchmarks/labels.py --data FOLDER`` takes minutes; ``--smoke``.
"""

import csv
import json
import time
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from _experiment import read_bundled, unit_rows
from _record import finish, parser, table

import jaxbounds as jb

FLIPPED = 0.05  # share of labels planted wrong
WORDS = 3900  # rows of the treebank: every corrected one of the tag, and others drawn at random
TAGS, RELEASES = ("ADJ", "AUX", "NOUN"), ("r2.5", "r2.6")  # later ones also changed the guidelines
WIDE = 3.0  # residuals beyond so many robust standard deviations are reported


def ask(X, y, wrong, lam: float, loss=None, threshold=None) -> dict:
    """Reported rows and hits: certified at once, and with the open rows settled by retraining."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = jb.fit(jb.Problem(loss or jb.losses.logistic(), jb.penalties.l2(lam)), X, y, tol=1e-9)
        start = time.perf_counter()
        found = jb.find_label_errors(model, threshold=threshold)
        seconds = time.perf_counter() - start
        exact = jb.find_label_errors(model, threshold=threshold, resolve=True)
    rows, all_rows = np.asarray(found.rows), np.asarray(exact.rows)
    return {
        "rows": int(y.size), "lam": lam, "wrong": int(np.size(wrong)), "seconds": seconds,
        "found": int(rows.size), "hits": int(np.isin(rows, wrong).sum()), "open": int(np.size(found.undecided)),
        "exact": int(all_rows.size), "exact hits": int(np.isin(all_rows, wrong).sum()),
        "contradicted": int(np.sum(~np.isin(rows, all_rows))), "ties": int(np.size(exact.undecided)),
    }  # fmt: skip


def planted(name: str, lam: float, rows: int | None = None) -> dict:
    """Flipped labels of a bundled set, rows of norm 1."""
    X, y = read_bundled(name)
    X, rng = np.asarray(unit_rows(X).toarray()), np.random.default_rng(0)
    X, y = X[:rows], y[:rows].copy()
    wrong = rng.choice(y.size, int(FLIPPED * y.size), replace=False)
    y[wrong] *= -1
    return ask(X, y, wrong, lam)


def words(folder: Path, tag: str, lam: float) -> dict:
    """A tag against all others; wrong are the rows whose answer a later release changed."""
    tags = json.loads((folder / "ud_meta.json").read_text())["upos"]
    with np.load(folder / "ud_base.npz") as base:
        X = sp.csr_array((base["data"], base["indices"], base["indptr"]), shape=tuple(base["shape"]))
        old = base["upos"]
    new = old.copy()
    for release in RELEASES:
        with np.load(folder / f"ud_delta_{release}.npz") as delta:
            ours = delta["mod_ids"] < old.size
            new[delta["mod_ids"][ours]] = delta["mod_new_upos"][ours]
    is_tag = old == tags.index(tag)
    wrong = np.flatnonzero(is_tag != (new == tags.index(tag)))
    rng = np.random.default_rng(0)
    others = np.setdiff1d(np.arange(old.size), wrong)
    chosen = np.concatenate([wrong, rng.choice(others, WORDS - wrong.size, replace=False)])
    return ask(unit_rows(X[chosen]), np.where(is_tag[chosen], 1.0, -1.0), np.arange(wrong.size), lam)


def houses(path: Path, lam: float) -> dict:
    """Boston: the published median values, eight of which were corrected later."""
    with path.open() as file:
        lines = list(csv.DictReader(file))
    names = [name for name in lines[0] if name not in ("town", "tract", "medv", "cmedv")]
    X = np.array([[float(line[name]) for name in names] for line in lines])
    y, corrected = (np.array([float(line[name]) for line in lines]) for name in ("medv", "cmedv"))
    X = np.column_stack([(X - X.mean(axis=0)) / X.std(axis=0), np.ones(y.size)])
    loss = jb.losses.huber(5.0)
    model = jb.fit(jb.Problem(loss, jb.penalties.l2(lam)), X, y, tol=1e-9)
    residual = np.abs(np.asarray(model.scores(X)) - y)
    threshold = float(WIDE * 1.4826 * np.median(residual))
    return ask(X, y, np.flatnonzero(y != corrected), lam, loss, threshold)


def flowers(path: Path, lam: float) -> dict:
    """Iris as UCI has it, setosa against the others; rows 34 and 37 have wrong features, and right labels."""
    with path.open() as file:
        lines = [line for line in csv.reader(file) if line]
    X = np.array([[float(value) for value in line[:4]] for line in lines])
    y = np.where([line[4] == "Iris-setosa" for line in lines], 1.0, -1.0)
    X = np.column_stack([(X - X.mean(axis=0)) / X.std(axis=0), np.ones(y.size)])
    return ask(X, y, np.array([34, 37]), lam)


def share(hits: int, of: int) -> str:
    """A share, or a dash where there is nothing to share."""
    return f"{hits / of:.2f}" if of else "-"


def report(payload: dict) -> str:
    """The section of RESULTS.md."""
    lines = []
    for name, f in payload["sets"].items():
        lines.append([name, f"{f['lam']:g}", f"{f['rows']:,}", f"{f['wrong']}", f"{f['found']}", f"{f['hits']}",
                      share(f["hits"], f["found"]), share(f["hits"], f["wrong"]), f"{f['open']}",
                      f"{f['exact']}", share(f["exact hits"], f["exact"]), share(f["exact hits"], f["wrong"]),
                      f"{f['contradicted']}"])  # fmt: skip
    return f"""## Label errors (`benchmarks/labels.py`)

`find_label_errors` reports rows that the model retrained without them certainly contradicts. *Wrong* are the labels \
known to be wrong: {payload["flipped"]:.0%} planted flips, or what was corrected later (tags of a treebank: every \
corrected word of the tag among others drawn at random; Boston house prices: residuals beyond {payload["wide"]:g} \
robust standard deviations; iris: two rows whose features are wrong, not their labels). *Exact* is the same question \
with every open row settled by retraining without it: its recall is the ceiling of what left-out predictions of this \
model can show, and the labels missing there agree with the model that never saw them. *Contradicted*: reported rows \
that retraining does not confirm.

{table(["set", "lam", "rows", "wrong", "reported", "of these wrong", "precision", "recall", "open",
        "exact: reported", "precision", "recall", "contradicted"], lines)}"""


def main() -> None:
    """Run, record, print."""
    arguments = parser(__doc__)
    arguments.add_argument("--data", metavar="FOLDER", type=Path, help="folder with ud/, r/ and iris/")
    options = arguments.parse_args()
    sets = {"breast_cancer, planted": planted("breast_cancer", 1e-2, 200 if options.smoke else None)}
    if not options.smoke:
        sets["digits, planted"] = planted("digits", 1e-3)
    if options.data and not options.smoke:
        for tag in TAGS:
            sets[f"treebank, {tag}"] = words(options.data / "ud", tag, 1e-4)
            print(f"{tag} done", flush=True)
        sets["Boston"] = houses(options.data / "r" / "BostonHousing2.csv", 1e-2)
        sets["iris"] = flowers(options.data / "iris" / "iris_uci.csv", 1e-2)
    payload = {"flipped": FLIPPED, "wide": WIDE, "sets": sets}
    finish("labels", payload, options)
    print(report(payload))


if __name__ == "__main__":
    main()
