"""The paper's experiment on one data set: read, split, change, bound with every method, retrain, compare.

Used by paper.py. Smoothed hinge (gamma 0.5) and L2; rows of norm 1; 80 % of the rows train, the others are asked about.
A change replaces non-zero entries by uniform draws between their feature's smallest and largest value: so many chosen
entries, or all those of so many chosen rows or (non-empty) columns.
"""

import gzip
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from _record import best

import jaxbounds as jb

GAMMA = 0.5
LAMS = (1e-3, 1e-2, 1e-1, 1.0)
SIZES = {"spot": (1, 100, 10_000), "rows": (1, 10, 100), "columns": (1, 10, 100)}
METHODS = {"theorem1": jb.Theorem1, "cached": jb.Cached, "partial": jb.Partial}
TOL_OLD, TOL_RETRAIN, TOL_TRUTH = 1e-12, 1e-8, 1e-13
SLOW, FEW = 10.0, 2  # a method that needs more seconds than SLOW is run on FEW seeds of a cell


def read_bundled(name: str):
    """scikit-learn's digits (even against odd, grey values) or breast_cancer (standardised)."""
    import sklearn.datasets

    X, y = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
    if name == "digits":
        return X, np.where(y % 2 == 0, 1.0, -1.0)
    return (X - X.mean(axis=0)) / X.std(axis=0), np.where(y == 1, 1.0, -1.0)


def read_vw(path):
    """A file in Vowpal Wabbit's format with one namespace and numbered features: `label |f 9:0.06 14:0.03`."""
    labels, starts, columns, values = [], [0], [], []
    with gzip.open(path, "rt") if str(path).endswith(".gz") else open(path) as file:
        for line in file:
            label, _, rest = line.partition("|")
            pairs = [entry.split(":") for entry in rest.split()[1:]]
            labels.append(float(label.split()[0]))
            columns += [int(pair[0]) for pair in pairs]
            values += [float(pair[1]) if len(pair) > 1 else 1.0 for pair in pairs]
            starts.append(len(columns))
    return sp.csr_array((values, columns, starts), shape=(len(labels), max(columns) + 1)), np.asarray(labels)


def read_npz(path):
    """A sparse matrix as scipy saves it, NAME.npz, with its labels in NAME.labels.npy."""
    return sp.csr_array(sp.load_npz(path)), np.load(Path(path).with_suffix(".labels.npy"))


def read_file(path, kind: str = "auto"):
    """A LIBSVM, VW or .npz file with two labels; the larger one is +1."""
    if kind == "auto":
        suffixes = Path(path).suffixes
        kind = "vw" if ".vw" in suffixes else "npz" if suffixes[-1:] == [".npz"] else "libsvm"
    X, y = {"vw": read_vw, "npz": read_npz, "libsvm": jb.load_svmlight}[kind](path)
    labels = np.unique(y)
    if labels.size != 2:
        raise SystemExit(f"{Path(path).name} has {labels.size} labels; the experiment needs two")
    return X, np.where(y == labels[1], 1.0, -1.0)


def unit_rows(X) -> sp.csr_array:
    """The data with rows of norm 1."""
    X = sp.csr_array(X)
    norms = np.sqrt(np.ravel(X.multiply(X).sum(axis=1)))
    return sp.csr_array(sp.diags_array(1 / np.where(norms > 0, norms, 1.0)) @ X)


def available(X: sp.csr_array, scenario: str) -> int:
    """The largest change that the training data allow."""
    return {"spot": X.nnz, "rows": X.shape[0], "columns": _used(X).size}[scenario]


def _used(X) -> np.ndarray:
    return np.flatnonzero(np.bincount(X.indices, minlength=X.shape[1]))


def draw(X: sp.csr_array, scenario: str, size: int, rng: np.random.Generator):
    """A random change of a scenario."""
    low, high = (np.ravel(end.toarray()) for end in (X.min(axis=0), X.max(axis=0)))
    form = (lambda new: new.toarray()) if is_dense(X) else (lambda new: new)
    if scenario == "spot":
        rows, columns = X.nonzero()
        chosen = np.sort(rng.choice(rows.size, size, replace=False))
        rows, columns = rows[chosen], columns[chosen]
        return jb.set_elements(rows, columns, rng.uniform(low[columns], high[columns]))
    if scenario == "rows":
        chosen = np.sort(rng.choice(X.shape[0], size, replace=False))
        new = sp.csr_array(X[chosen])
        new.data = rng.uniform(low[new.indices], high[new.indices])
        return jb.set_rows(chosen, form(new))
    chosen = np.sort(rng.choice(_used(X), size, replace=False))
    new = sp.csr_array(X[:, chosen])
    new.data = rng.uniform(low[chosen[new.indices]], high[chosen[new.indices]])
    return jb.set_columns(chosen, form(new))


def is_dense(X) -> bool:
    return X.nnz > 0.3 * X.shape[0] * X.shape[1]


def violations(bounds, labels, truth, old_w, X_test) -> int:
    """True values outside their intervals, by more than the retrained model's own uncertainty; and wrong labels."""
    w, scores, norms = truth["w"], X_test @ truth["w"], np.sqrt(np.ravel(X_test.multiply(X_test).sum(axis=1)))
    slack = truth["slack"] + 1e-14 * (1 + np.linalg.norm(w))  # the second term: rounding of this very check
    count = np.sum((labels != 0) & (labels != np.sign(scores)) & (np.abs(scores) > slack * norms))
    for interval, value, room in (
        (bounds.w(), w, slack),
        (bounds.scores(X_test), scores, slack * norms),
        (bounds.distance, np.linalg.norm(w - old_w), slack),
    ):
        inside = (np.asarray(interval.lower) - room <= value) & (value <= np.asarray(interval.upper) + room)
        count += np.sum(~inside)
    return int(count)


def measure(model, change, X_test, methods) -> dict:
    """One point: what each method says at what cost, and what retraining gives at what cost."""
    lam = float(model.problem.penalty.strong_convexity)
    seconds, new = best(lambda: jb.refit(model, change, tol=TOL_RETRAIN), 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a gap that stays above the tolerance is accounted for: it is the slack
        new = jb.refit(model, change, tol=TOL_TRUTH, warm_start=new)
    w, old_w = np.asarray(new.w), np.asarray(model.w)
    truth = {"w": w, "slack": float(np.sqrt(2 * max(float(new.gap), 0.0) / lam))}
    point = {"true": float(np.linalg.norm(w - old_w)), "slack": truth["slack"], "retrain": seconds, "violations": 0}

    def ask(method):
        bounds = jb.bound(model, change, method)
        return bounds, float(bounds.distance.upper)

    for name in methods:
        seconds, (bounds, upper) = best(lambda name=name: ask(METHODS[name]()), 3, most=1.0)
        labels = np.asarray(bounds.labels(X_test))
        point[name] = {"rate": float(np.mean(labels != 0)), "bound": upper, "seconds": seconds}
        point["violations"] += violations(bounds, labels, truth, old_w, X_test)
    return point


def run_set(name: str, X, y, seeds: int, lams, sizes, say=print) -> dict:
    """The whole experiment on one set: cells (scenario, size, lam) with one point a seed."""
    X, cells, skipped = unit_rows(X), {}, set()
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(y.size)
        train, test = np.sort(order[: int(0.8 * y.size)]), np.sort(order[int(0.8 * y.size) :])
        X_train, X_test = sp.csr_array(X[train]), sp.csr_array(X[test])
        for lam in lams:
            problem = jb.Problem(jb.losses.smoothed_hinge(GAMMA), jb.penalties.l2(lam))
            data = X_train.toarray() if is_dense(X_train) else X_train
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # its gap is part of the bounds
                model = jb.fit(problem, data, y[train], tol=TOL_OLD)
            for kind, (scenario, size) in enumerate((s, k) for s, ks in sizes.items() for k in ks):
                if size > available(X_train, scenario):
                    skipped.add((scenario, size))
                    continue
                points = cells.setdefault((scenario, size, lam), [])
                change = draw(X_train, scenario, size, np.random.default_rng([seed, kind]))
                point = measure(model, change, X_test, _methods(points))
                points.append(point)
                if point["violations"]:
                    say(f"VIOLATED {point['violations']}: {name} {scenario} {size} lam {lam:g} seed {seed}")
        say(f"{name}: seed {seed} done")
    shape = {"rows": len(train), "columns": X.shape[1], "nonzeros": int(X_train.nnz), "test": len(test)}
    return {
        **shape,
        "skipped": [f"{scenario} {size}" for scenario, size in sorted(skipped)],
        "violations": sum(point["violations"] for points in cells.values() for point in points),
        "cells": [_compact(*key, points) for key, points in cells.items()],
    }


def _methods(points: list[dict]) -> list[str]:
    """All methods, but no slow one on more than a few seeds."""
    slow = {m for m in METHODS for p in points if m in p and p[m]["seconds"] > SLOW}
    return [m for m in METHODS if m not in slow or len(points) < FEW]


def _compact(scenario: str, size: int, lam: float, points: list[dict]) -> dict:
    """The points of a cell as lists over seeds, rounded to four digits."""

    def digits(values):
        return [float(f"{value:.4g}") for value in values]

    cell = {"scenario": scenario, "size": size, "lam": lam}
    cell |= {key: digits(p[key] for p in points) for key in ("true", "slack", "retrain")}
    for method in METHODS:
        asked = [p[method] for p in points if method in p]
        cell[method] = {key: digits(a[key] for a in asked) for key in ("rate", "bound", "seconds")}
    return cell
