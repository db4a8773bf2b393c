"""A failing case made small: fewer rows, columns and parts of the change, rounder numbers, while it still fails."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import oracle

from soundness.draw import Case


def shrink(case: Case, number: int, fails: Callable[[Case], bool]) -> Case:
    """The smallest case found of which `fails` still says True; only change `number` is kept, as number 0."""
    case = alone(case, number)
    found = True
    while found:
        found = False
        for smaller in simpler(case):
            try:
                found = fails(smaller)
            except Exception:  # an invalid case, which is no smaller one
                found = False
            if found:
                case = smaller
                break
    return case


def alone(case: Case, number: int) -> Case:
    """The case with one of its changes."""
    return replace(case, changes=(case.changes[number],))


def simpler(case: Case) -> Iterator[Case]:
    """Cases one step simpler, the boldest first."""
    (change,), pr = case.changes, case.pr
    n, d = pr.X.shape
    for k in range(len(change)):
        if len(change) > 1:
            yield replace(case, changes=([*change[:k], *change[k + 1 :]],))
    for i in range(n):
        if n > 1:
            rows = np.delete(np.arange(n), i)
            yield replace(
                case, changes=(list(renumbered(change, i, "rows")),), weight=case.weight[rows], alpha=case.alpha[rows],
                pr=replace(pr, X=pr.X[rows], y=pr.y[rows], c=pr.c[rows]),
            )  # fmt: skip
    for j in range(d):
        if d > 1 and np.ndim(pr.lam) == 0:
            cols = np.delete(np.arange(d), j)
            yield replace(
                case, changes=(list(renumbered(change, j, "cols")),), w=case.w[cols], start=np.delete(case.start, j),
                pr=replace(pr, X=pr.X[:, cols]), X_test=case.X_test[:, cols],
            )  # fmt: skip
    if case.shift:
        yield replace(case, shift=0)
    if case.sparse:
        yield replace(case, sparse=False)
    if (case.weight != 1).any():
        yield replace(case, weight=np.ones(n))
    for digits in (0, 1, 3):
        for name in ("X", "y"):
            value = rounded(getattr(pr, name), digits)
            if not np.array_equal(value, getattr(pr, name)):
                yield replace(case, pr=replace(pr, **{name: value}))
        for name in ("w", "alpha"):
            value = rounded(getattr(case, name), digits)
            if not np.array_equal(value, getattr(case, name)):
                yield replace(case, **{name: value})
        for k, (kind, args) in enumerate(change):
            for key in ("X_new", "values", "y_new", "weights"):
                if isinstance(args.get(key), np.ndarray) and not np.array_equal(rounded(args[key], digits), args[key]):
                    yield replace(case, changes=([*change[:k], (kind, args | {key: rounded(args[key], digits)}),
                                                  *change[k + 1 :]],))  # fmt: skip


def rounded(values: np.ndarray, digits: int) -> np.ndarray:
    """To so many digits after the first."""
    return np.array([float(f"{z:.{digits}e}") for z in np.ravel(values)]).reshape(np.shape(values))


def renumbered(change: list[oracle.Change], gone: int, key: str) -> Iterator[oracle.Change]:
    """The change in the numbers without row or column `gone`."""
    for kind, args in change:
        args = dict(args)
        if key in args:
            kept = np.asarray(args[key]) != gone
            if not kept.any():
                continue
            count = len(kept)
            args[key] = args[key][kept] - (args[key][kept] > gone)
            for name in ("rows", "cols", "values", "y_new", "weights"):
                if name != key and isinstance(args.get(name), np.ndarray) and len(args[name]) == count:
                    args[name] = args[name][kept]
            if "X_new" in args:
                args["X_new"] = args["X_new"][kept] if key == "rows" else args["X_new"][:, kept]
        elif "X_new" in args and not (key == "rows" and kind in ("set_rows", "add_rows")):
            args["X_new"] = np.delete(args["X_new"], gone, axis=0 if key == "rows" else 1)
        yield kind, args


def failing(certificate: str) -> Callable[[Case], bool]:
    """Whether `bound` with that method, or a batch of the change twice, misses the truth."""
    import jaxbounds as jb
    from soundness import check

    def fails(case: Case) -> bool:
        truth = case.truth(0)
        if truth is None:
            return False
        if certificate.startswith("bound_each"):
            method = jb.Theorem1() if "Theorem1" in certificate else jb.Cached()
            double = replace(case, changes=case.changes * 2)
            return any(found.wrong for _, found in check.batch(double, [truth] * 2, double.model, method, ""))
        return any(found.wrong for _, found in check.one_by_one(case, [truth], case.model, (certificate,)))

    return fails
