"""Every certificate's intervals for a case against its truth."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import exact
import numpy as np
import oracle

import jaxbounds as jb
from jaxbounds.methods import problem_after
from soundness.draw import Case
from soundness.truth import Truth, float_parameter

NARROW = 1e-8  # an interval so narrow, relative to its value, pins the answer down
NEAR = 0.05  # of its width: an end so close to the truth is tight
METHODS = {
    "Theorem1": jb.Theorem1(), "Theorem1 (i)": jb.Theorem1("i"), "Theorem1 (ii)": jb.Theorem1("ii"),
    "Cached": jb.Cached(), "Partial": jb.Partial(), "Pass": jb.Pass(), "Pass (1 step)": jb.Pass(1),
    "Curvature": jb.Curvature(), "SelfConcordant": jb.SelfConcordant(),
}  # fmt: skip


@dataclass
class Outcome:
    """One (model, change, certificate): what it says about each quantity, against the truth."""

    certificate: str
    kind: str
    wrong: list[str]  # the intervals that miss the truth
    slack: float  # the least distance of a truth from an end, over the interval's width (not of alpha)
    room: float  # the same distance, over the size of the value
    tight: bool
    narrow: bool
    vacuous: bool


def split(values) -> tuple[np.ndarray, np.ndarray]:
    """Exact values as sums of two floats."""
    values = np.atleast_1d(values)
    high = np.array([float(z) for z in values])
    low = np.array([float(z - exact.number(h)) if np.isfinite(h) else 0.0 for z, h in zip(values, high, strict=True)])
    return high, low


def judge(name: str, kind: str, quantities: list[tuple[str, Any, Any, Any]]) -> Outcome:
    """(what, (lower, upper), (high, low) parts of the values, errors) -> the outcome.

    (high - end) + low has the sign of the exact difference: where they nearly cancel, the difference is exact.
    """
    wrong, slack, room, narrow, vacuous = [], np.inf, np.inf, False, True
    for what, (lower, upper), (high, low), error in quantities:
        lower, upper = np.atleast_1d(np.asarray(lower, float)), np.atleast_1d(np.asarray(upper, float))
        assert lower.shape == high.shape, f"{name}: {what} has shape {lower.shape}, the truth {high.shape}"
        with np.errstate(all="ignore"):
            below, above = (high - lower) + low, (upper - high) - low
            bad = ~((below >= -error) & (above >= -error))  # NaN is wrong
            for i in np.flatnonzero(bad):
                wrong.append(f"{what}[{i}]: {high[i]!r} + {low[i]!r} is not in [{lower[i]!r}, {upper[i]!r}], beyond by "
                             f"{max(-below[i], -above[i]):.3g}")  # fmt: skip
            if what == "alpha":
                continue  # its domain's ends are often attained
            fine = ~bad & (upper > lower) & np.isfinite(lower) & np.isfinite(upper)
            if not fine.any():
                continue
            vacuous = False
            trivial = (what == "distance") & (lower == 0)  # no distance is below 0: that end says nothing
            least = np.maximum(np.where(trivial, above, np.minimum(below, above)), 0.0)[fine]
            width, size = np.maximum(below + above, 1e-320)[fine], np.maximum(np.abs(high), 1e-300)[fine]
            slack, room = min(slack, float((least / width).min())), min(room, float((least / size).min()))
            narrow |= bool((width <= NARROW * size).any())
    return Outcome(name, kind, wrong, slack, room, slack <= NEAR or narrow, narrow, vacuous)


def kind_of(changes) -> str:
    return changes[0][0] if len(changes) == 1 else "combine"


def expected(case: Case, t: Truth, X_test) -> list[tuple[str, Any, Any]]:
    """(what, exact value, error) of everything that bounds speak of, in the library's scaling."""
    grow = exact.number(2) ** -case.shift
    old = np.zeros(len(t.w))
    old[: len(case.w)] = np.ldexp(case.w, -case.shift).astype(case.dtype)
    w = t.w * grow
    moved = exact.norm(w - exact.array(old))
    X = exact.array(X_test)
    norms = np.array([exact.norm(x) for x in X])
    y, reach = case.pr.y, exact.number(1e6 + float(np.abs(case.pr.X).sum()))  # more than the norm of any row
    smooth = oracle.smoothness(case.pr.loss, float_parameter(case.pr.loss, case.pr.param, y))
    smooth = exact.number(1.0 if smooth is None else float(np.max(smooth)))
    found = [
        ("w", w, t.error * grow), ("alpha", t.alpha, 2 * smooth * (reach * t.error + t.error_b)),
        ("scores", X @ w + t.b, norms * t.error * grow + t.error_b), ("distance", np.array([moved]), t.error * grow),
        *([("intercept", np.array([t.b]), t.error_b)] if case.intercept else []),
    ]  # fmt: skip
    return [(what, split(value), np.array(error, float)) for what, value, error in found]


def says(bounds, X_test) -> dict[str, Any]:
    found = {"w": bounds.w(), "alpha": bounds.alpha(), "scores": bounds.scores(X_test), "distance": bounds.distance}
    found["intercept"] = bounds.intercept
    return {what: (interval.lower, interval.upper) for what, interval in found.items()}


def applies(method, model, change, problem_after) -> bool:
    return method.applies(problem_after) and method.missing(model, change) is None


def one_by_one(case: Case, truths: list, model, names=METHODS, suffix="") -> Iterator[tuple[int, Outcome]]:
    """`bound` with every method that applies, for every change whose truth is known."""
    for number, t in enumerate(truths):
        if t is None:
            continue
        change = case.change(number)
        after = problem_after(model.problem, change)
        X_test = case.tests(directions(case, t))
        truth = expected(case, t, X_test)
        for name, method in METHODS.items():
            if name not in names or not applies(method, model, change, after):
                continue
            found, kind = says(jb.bound(model, change, method), X_test), kind_of(case.changes[number])
            yield number, judge(name + suffix, kind, [(what, found[what], v, e) for what, v, e in truth])


def directions(case: Case, t: Truth) -> np.ndarray:
    """The case's test rows, and the direction in which the optimum moves."""
    width = len(t.w)
    X = np.zeros((len(case.X_test) + 1, width))
    X[:-1, : case.X_test.shape[1]] = case.X_test
    old = np.zeros(width)
    old[: len(case.w)] = case.w
    moved = (t.w - exact.array(old)).astype(float)
    X[-1] = moved / max(float(np.abs(moved).max(initial=0.0)), 1e-300)
    return X


def batch(case: Case, truths: list[Truth | None], model, method, name: str) -> Iterator[tuple[int, Outcome]]:
    """`bound_each` over the changes that keep the width."""
    d = len(case.w)
    numbers = [k for k, t in enumerate(truths) if t is not None and len(t.w) == d]
    if len(numbers) < 2:
        return
    X_test = case.tests(case.X_test)
    found = jb.bound_each(model, jb.stack([case.change(k) for k in numbers]), X=X_test, method=method)
    scores, distance = found.scores(), found.distance
    for b, k in enumerate(numbers):
        truth = {what: (v, e) for what, v, e in expected(case, truths[k], X_test)}
        yield k, judge(name, kind_of(case.changes[k]), [
            ("scores", (scores.lower[b], scores.upper[b]), *truth["scores"]),
            ("distance", (distance.lower[b], distance.upper[b]), *truth["distance"]),
        ])  # fmt: skip


def quiet(call, *args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jb.FitWarning)
        return call(*args, **options)
