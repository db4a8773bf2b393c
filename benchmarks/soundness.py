"""The soundness campaign: hostile random problems, optima in 60 digits, and every certificate put to them.

    python benchmarks/soundness.py --minutes 60 --jobs 2     (goes on where the last run of this seed stopped)
    python benchmarks/soundness.py --attack --minutes 5      (ascend the violation by gradients)
    python benchmarks/soundness.py --case 1 137              (one case again, with all that it says)

A triple is one (model, change, certificate): each of its intervals, of the distance, of all coefficients, dual
variables and some scores, must hold the truth. It counts as tight if some truth but a dual variable's lies within 5 %
of the width from an end, or if the interval pins its value down to 8 digits.
"""

import json
import multiprocessing
import sys
import time
from pathlib import Path
from typing import Any

from _record import HERE, RESULTS, finish, parser, record, table
from paper import percent

EVERY = 60.0  # seconds between two records


def one(job: tuple[int, int]) -> dict[str, Any]:
    """The tally of one case, in a process of its own."""
    path = str(HERE.parent / "tests")
    if path not in sys.path:
        sys.path.insert(0, path)
        sys.modules.pop("soundness", None)  # the package of that name, not this script
    from soundness import campaign

    return campaign.run(*job)


def run(payload: dict, options) -> None:
    """Cases until the time is over or there are triples enough; the payload grows in place."""
    tally = _package("tally")
    start, saved, stream = time.monotonic(), time.monotonic(), str(options.seed)
    first = payload["next"].get(stream, 0)
    jobs = ((options.seed, number) for number in range(first, first + options.cases))
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        results = map(one, jobs) if options.jobs == 1 else pool.imap(one, jobs)
        for done, found in enumerate(results, 1):
            for text in found["failures"]:
                print("*** VIOLATED ***", text, flush=True)
            tally.merge(payload["tally"], found)
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
        pool.terminate()


def _package(name: str) -> Any:
    """A module of tests/soundness."""
    import importlib

    sys.path.insert(0, str(HERE.parent / "tests"))
    sys.modules.pop("soundness", None)
    return importlib.import_module(f"soundness.{name}")


def triples(payload: dict) -> int:
    """All (model, change, certificate) so far."""
    return sum(entry["tried"] for entry in payload["tally"]["certificates"].values())


def main() -> None:
    """Run, record, print."""
    arguments = parser(__doc__)
    add = arguments.add_argument
    add("--minutes", type=float, default=60.0)
    add("--triples", type=int, default=10**9, help="stop there")
    add("--cases", type=int, default=10**6, help="at most so many in this run")
    add("--seed", type=int, default=1, help="of the stream of cases")
    add("--jobs", type=int, default=1, help="processes")
    options = arguments.parse_args()
    target = Path(options.json or RESULTS / "soundness.json")
    payload = {"tally": _package("tally").empty(), "next": {}, "seconds": 0.0}
    if options.smoke:
        options.minutes, options.cases = 0.2, 3
    elif target.exists():
        payload = json.loads(target.read_text())["payload"]
    run(payload, options)
    finish("soundness", payload, options)
    if payload["tally"]["failures"]:
        raise SystemExit("bounds were violated")


if __name__ == "__main__":
    main()
