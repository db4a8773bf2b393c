"""One case of the campaign: drawn, solved, and put to every certificate that applies."""

from typing import Any

import numpy as np

import jaxbounds as jb
from soundness import check, classes, draw, families, tally

CHEAP = ("Theorem1", "Cached", "Partial")
SOFTMAX = 4  # every so many cases bring one of several classes
CLOSELY = 2  # changes of a case that are asked one by one
DEAR = ("Theorem1 (i)", "Theorem1 (ii)", "Pass", "Pass (1 step)", "Curvature")


def run(seed: int, number: int) -> dict[str, Any]:
    """The tally of one case; what raises is a failure too."""
    counts, case = tally.empty(), draw.draw(seed, number)
    if number % SOFTMAX == 0:
        labels, outcomes = classes.outcomes(np.random.default_rng([seed, number, 2]))
        record(counts, f"{seed} {number}", labels, list(enumerate(outcomes)))
    if case is None:
        counts["unknown"] += 1
        return counts
    counts["cases"] += 1
    rng = np.random.default_rng([seed, number, 1])
    try:
        case = draw.fitted(case, rng)
        labels = case.labels | {"gap": decade(case.model)}
        outcomes = list(asked(case, rng))
    except Exception as error:
        counts["failures"].append(f"case {seed} {number} {case.labels}: {type(error).__name__}: {error}"[:600])
        return counts
    record(counts, f"{seed} {number}", labels, outcomes)
    return counts


def record(counts: dict[str, Any], case: str, labels: dict[str, str], outcomes: list) -> None:
    """Count the outcomes of a case, and describe those that are wrong."""
    tally.add(counts, labels, (found for _, found in outcomes))
    for change, found in outcomes:
        if found.wrong:
            what = f"case {case} change {change} {found.certificate}, {found.kind}, {labels}"
            counts["failures"].append(f"{what}: {found.wrong[:3]}")


def asked(case: draw.Case, rng):
    """(number of the change, outcome) of all certificates, the dear ones by turns."""
    truths = [case.truth(k) for k in range(len(case.changes))]
    model = case.model
    some = [t if k < CLOSELY else None for k, t in enumerate(truths)]
    dear = [name for name in DEAR if rng.random() < 0.5]
    yield from check.one_by_one(case, some, model, (*CHEAP, *dear))
    if has_factor(case):
        stored = jb.with_factor(model)
        yield from check.one_by_one(case, some, stored, ("SelfConcordant", "Curvature"), " (factor)")
    for name, method in (("bound_each Cached", jb.Cached()), ("bound_each Theorem1", jb.Theorem1())):
        if method.applies(model.problem) and rng.random() < 0.5:
            yield from check.batch(case, truths, model, method, name)
    for name, family in families.FAMILIES.items():
        if name in ("left_out", "alike") or rng.random() < 0.7:
            yield from family(case, rng)


def has_factor(case: draw.Case) -> bool:
    pr = case.pr
    large = np.abs(pr.X).max(initial=0.0) * 2.0 ** min(case.shift, 1000) > 1e120
    return pr.penalty == "l2" and np.ndim(pr.lam) == 0 and pr.loss != "hinge" and not case.intercept and not large


def decade(model) -> str:
    """The relative duality gap of a stored model, as a decade."""
    gap = float(model.gap) / max(abs(float(model.primal)), 1e-300)
    return "inf" if not np.isfinite(gap) else f"1e{int(np.clip(np.floor(np.log10(max(gap, 1e-17))), -17, 9))}"
