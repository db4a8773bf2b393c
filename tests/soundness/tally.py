"""Counts over outcomes: tried, violated, tight, and how near the truth came to an end, by certificate and stratum."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from soundness.check import Outcome

EDGES = np.arange(-16.0, 0.25, 0.25)  # of log10(slack over width); slack is at most 1/2
STRATA = ("loss", "penalty", "data", "shape", "dtype", "scale", "storage", "intercept", "training", "norms", "lam",
          "gap")  # fmt: skip


def empty() -> dict[str, Any]:
    return {"certificates": {}, "strata": {}, "failures": [], "cases": 0, "unknown": 0}


def _entry() -> dict[str, Any]:
    return {"tried": 0, "violated": 0, "tight": 0, "narrow": 0, "vacuous": 0, "least": None, "room": None,
            "histogram": [0] * (len(EDGES) + 1)}  # fmt: skip


def _least(a: float | None, b: float | None) -> float | None:
    return b if a is None else a if b is None else min(a, b)


def add(tally: dict[str, Any], labels: dict[str, str], outcomes: Iterable[Outcome]) -> None:
    """Count the outcomes of one case."""
    for found in outcomes:
        named = {"certificate": found.certificate, "change": found.kind} | labels
        places = [tally["certificates"].setdefault(found.certificate, _entry())]
        for name in ("change", *STRATA):
            places.append(tally["strata"].setdefault(name, {}).setdefault(named[name], _entry()))
        for place in places:
            place["tried"] += 1
            place["violated"] += bool(found.wrong)
            place["tight"] += bool(found.tight)
            place["narrow"] += bool(found.narrow)
            place["vacuous"] += bool(found.vacuous)
            if np.isfinite(found.slack) and not found.wrong:
                place["least"] = _least(place["least"], float(found.slack))
                place["room"] = _least(place["room"], float(found.room))
                place["histogram"][int(np.searchsorted(EDGES, np.log10(max(found.slack, 1e-300))))] += 1


def merge(tally: dict[str, Any], more: dict[str, Any]) -> None:
    """Add the counts of another run."""
    tally["failures"] += more["failures"]
    for key in ("cases", "unknown"):
        tally[key] += more[key]
    _merge(tally["certificates"], more["certificates"])
    for name, entries in more["strata"].items():
        _merge(tally["strata"].setdefault(name, {}), entries)


def _merge(entries, more) -> None:
    for name, b in more.items():
        a = entries.setdefault(name, _entry())
        for key in ("tried", "violated", "tight", "narrow", "vacuous"):
            a[key] += b[key]
        a["least"], a["room"] = _least(a["least"], b["least"]), _least(a["room"], b["room"])
        a["histogram"] = [x + y for x, y in zip(a["histogram"], b["histogram"], strict=True)]


def quantile(entry: dict[str, Any], share: float) -> float | None:
    """The slack below which a share of the outcomes lies, to a quarter of a decade (upper edge)."""
    counts = np.cumsum(entry["histogram"])
    if not counts[-1]:
        return None
    at = int(np.searchsorted(counts, share * counts[-1]))
    return float(10.0 ** EDGES[min(at, len(EDGES) - 1)])
