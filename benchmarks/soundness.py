"""The soundness campaign: hostile random problems, optima in 60 digits, and every certificate put to them.

    python benchmarks/soundness.py --minutes 60 --jobs 2     (goes on where the last run of this seed stopped)
    python benchmarks/soundness.py --attack --minutes 10     (ascend the share of a bound that the truth uses up)
    python benchmarks/soundness.py --case 1 137              (one case again, and each failure in it made small)

A triple is one (model, change, certificate): each of its intervals, of the distance, of all coefficients, dual
variables and some scores as far as it has them, must hold the truth. It counts as tight if some truth other than a dual
variable's lies within 5 % of the width from an end, or if an interval pins its value down to 8 digits.
"""

import contextlib
import importlib
import json
import multiprocessing
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from _record import HERE, RESULTS, finish, parser, record, table
from paper import percent

EVERY = 60.0  # seconds between two records
RESTARTS, STEPS, ROUNDS = 16, 100, 4  # of an attack
ATTACKED = [
    (loss, change, method)
    for method in ("Cached", "Theorem1", "Pass", "Curvature", "Partial")
    for loss, change in (
        ("logistic", "set_rows"), ("smoothed_hinge", "remove_rows"), ("squared", "set_rows"),
        ("logistic", "set_penalty"), ("smoothed_hinge", "set_targets"),
    )
]  # fmt: skip


def package(name: str) -> Any:
    """A module of tests/soundness, the package of this script's name."""
    path = str(HERE.parent / "tests")
    if path not in sys.path:
        sys.path.insert(0, path)
        sys.modules.pop("soundness", None)
    return importlib.import_module(f"soundness.{name}")


# --- the campaign


def one(job: tuple[int, int]) -> dict[str, Any]:
    """The tally of one case, in a process of its own."""
    return package("campaign").run(*job)


def run(payload: dict, options) -> None:
    """Cases until the time is over or there are triples enough; the payload grows in place."""
    start = saved = time.monotonic()
    stream = str(options.seed)
    first = payload["next"].get(stream, 0)
    jobs = ((options.seed, number) for number in range(first, first + options.cases))
    with contextlib.ExitStack() as stack:
        results: Any = map(one, jobs)
        if options.jobs > 1:
            pool = stack.enter_context(multiprocessing.get_context("spawn").Pool(options.jobs))
            results = pool.imap(one, jobs)
        for done, found in enumerate(results, 1):
            for text in found["failures"]:
                print("*** VIOLATED ***", text, flush=True)
            package("tally").merge(payload["tally"], found)
            payload["next"][stream] = first + done
            now = time.monotonic()
            over = now - start > 60 * options.minutes or triples(payload) >= options.triples
            if over or now - saved > EVERY:
                payload["seconds"] = round(payload["seconds"] + now - saved, 1)
                saved = now
                if not options.smoke:
                    record("soundness", payload, options.json)
                print(f"{triples(payload):,} triples, case {first + done}, {now - start:.0f} s", flush=True)
            if over:
                break


def triples(payload: dict) -> int:
    """All (model, change, certificate) so far."""
    return sum(entry["tried"] for entry in payload["tally"]["certificates"].values())


def again(seed: int, number: int) -> None:
    """Print a case, what fails in it, and the failure made small."""
    draw, campaign, shrink = package("draw"), package("campaign"), package("shrink")
    case = draw.draw(seed, number)
    if case is None:
        print("the optimum of the old problem is not known well enough: no case")
        return
    print(case.labels)
    rng = np.random.default_rng([seed, number, 1])
    for change, found in campaign.asked(draw.fitted(case, rng), rng):
        if found.wrong:
            print(f"change {change}, {found.certificate}, {found.kind}:", *found.wrong, sep="\n    ")
            fails = shrink.failing(found.certificate)
            if change < len(case.changes) and fails(shrink.alone(case, change)):
                print(shrink.shrink(case, change, fails))


# --- gradient attacks


def attack(payload: dict, options) -> None:
    """One attack after the other, those that were run least first, until the time is over."""
    module, start = package("attack"), time.monotonic()
    found = payload.setdefault("attacks", {})
    for what in sorted(ATTACKED, key=lambda what: found.get(" ".join(what), {"runs": 0})["runs"]):
        ascent, name = module.Attack(*what), " ".join(what)
        entry = found.setdefault(name, {"runs": 0, "restarts": 0, "judged": 0, "violated": 0})
        restarts, steps = (4, 10) if options.smoke else (RESTARTS, STEPS)
        best, ends, y = ascent.run(options.seed + entry["runs"], restarts, steps, 1 if options.smoke else ROUNDS)
        for k in np.argsort(-best)[:4]:  # judged in 60 digits
            outcome = ascent.judged({key: values[k] for key, values in ends.items()}, y)
            if outcome is not None:
                entry["judged"] += 1
                entry["violated"] += bool(outcome.wrong)
                if outcome.wrong:
                    text = f"attack {name}, run {entry['runs']}, restart {k}: {outcome.wrong[:3]}"
                    payload["tally"]["failures"].append(text)
                    print("*** VIOLATED ***", text, flush=True)
        entry["runs"] += 1
        entry["restarts"] += restarts
        for goal, name_ in enumerate(module.GOALS):
            entry[name_] = max(entry.get(name_, 0.0), float(best[goal :: len(module.GOALS)].max()))
        print(f"{name}: {entry}", flush=True)
        if not options.smoke:
            record("soundness", payload, options.json)
        if time.monotonic() - start > 60 * options.minutes:
            break


# --- the report


def report(payload: dict) -> str:
    """The section of RESULTS.md."""
    tally = payload["tally"]
    certificates, strata = tally["certificates"], tally["strata"]
    violated = sum(entry["violated"] for entry in certificates.values())
    streams = ", ".join(f"seed {seed}: cases 0 to {count - 1:,}" for seed, count in payload["next"].items())
    head = ["", "triples", "violated", "tight", "exact to 8 digits", "vacuous", "least slack", "1 %", "10 %", "50 %"]
    return f"""## Soundness campaign (`benchmarks/soundness.py`)

{triples(payload):,} triples (model, change, certificate) from {tally["cases"]:,} hostile models ({streams}); \
{violated:,} violated. {tally["unknown"]:,} more models were left out because their own optimum was not certain. \
Cases cross losses, penalties, scales, dtypes, storage, intercepts, changes of every kind, models trained to relative \
gaps from 1e-17 to infinity, lam from 1e-8 to 1e3, rows of norm 1e-150 to 1e150, duplicates, constants, empty rows and \
columns, separable and one-sided labels, one row, one column. The truth is solved in 60 digits without the library, to \
a relative error below 1e-24 (hinge: 1e-18). Slack is the distance of the nearest truth from an end of its interval \
over the interval's width, of all quantities of a triple but dual variables, whose domain's ends are often attained, \
and a distance's lower end at 0; \
quantiles of it are upper edges of quarters of a decade. "Tight" triples have a slack of at most 5 % or an interval \
that pins its value down to 8 digits; "vacuous" ones have no finite interval of positive width.

{table(["certificate", *head[1:]], [line(name, certificates[name]) for name in sorted(certificates)])}

By stratum:

{table(["stratum", *head[1:]], [line(f"{kind}: {name}", strata[kind][name]) for kind in sorted(strata)
                                for name in sorted(strata[kind], key=order)])}
{attacks(payload)}"""


def order(name: str):
    """Numbers by size, words by the alphabet."""
    try:
        return 0, float(name), ""
    except ValueError:
        return 1, 0.0, name


def line(name: str, entry: dict) -> list[str]:
    """A row of the tables."""
    tried, least = entry["tried"], entry["least"]
    quantile = package("tally").quantile
    slack = ["-" if (q := quantile(entry, share)) is None else f"{q:.1g}" for share in (0.01, 0.1, 0.5)]
    shares = [percent(entry[key] / tried) for key in ("tight", "narrow", "vacuous")]
    return [name, f"{tried:,}", f"{entry['violated']:,}", *shares, "-" if least is None else f"{least:.1g}", *slack]


def attacks(payload: dict) -> str:
    """The table of the gradient attacks."""
    found = payload.get("attacks", {})
    if not found:
        return ""
    rows = [
        [name, str(e["restarts"]), f"{e['distance']:.9f}", f"{e['score']:.9f}", f"{e['violated']} of {e['judged']}"]
        for name, e in found.items()
    ]
    return f"""
### Gradient attacks

Adam on data, change, model, dual variables, lam and direction at once, through the certificate and the implicit \
derivative of the optimum: the largest share of a bound that the truth uses up (true distance over its upper end; \
score's deviation from the middle over half the width). A sound bound has at most 1. The best ends of each run are \
judged in 60 digits.

{table(["attack", "restarts", "share of distance", "share of score", "violated"], rows)}"""


def main() -> None:
    """Run, record, print."""
    options = _options()
    if options.case:
        again(*options.case)
        return
    target = Path(options.json or RESULTS / "soundness.json")
    payload = {"tally": package("tally").empty(), "next": {}, "seconds": 0.0}
    if options.smoke:
        options.minutes, options.cases = 0.2, 2
    elif target.exists():
        payload = json.loads(target.read_text())["payload"]
    if options.attack:
        attack(payload, options)
    else:
        run(payload, options)
    finish("soundness", payload, options)
    print(report(payload).split("\nBy stratum")[0])
    if payload["tally"]["failures"]:
        raise SystemExit("bounds were violated")


def _options():
    arguments = parser(__doc__)
    add = arguments.add_argument
    add("--minutes", type=float, default=60.0)
    add("--triples", type=int, default=10**9, help="stop there")
    add("--cases", type=int, default=10**6, help="at most so many in this run")
    add("--seed", type=int, default=1, help="of the stream of cases")
    add("--jobs", type=int, default=1, help="processes")
    add("--attack", action="store_true", help="gradient attacks instead of random cases")
    add("--case", type=int, nargs=2, metavar=("SEED", "NUMBER"), help="one case again")
    return arguments.parse_args()


if __name__ == "__main__":
    main()
