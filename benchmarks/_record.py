"""What every benchmark shares: its options, and the record of a run as JSON.

A record holds the payload of one benchmark and where it was measured: commit, date, versions, kind of machine, card.
`python benchmarks/_results.py` makes RESULTS.md from the records. Files that start with "_" are not benchmarks.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import jax

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PACKAGES = ("jax", "jaxlib", "numpy", "scipy", "jaxbounds")
WRITTEN = ("benchmarks/results", "benchmarks/figures", "benchmarks/RESULTS.md")  # what a run changes does not count


def parser(description: str | None) -> argparse.ArgumentParser:
    """The options that every benchmark has: --smoke and --json."""
    result = argparse.ArgumentParser(description=(description or "").split("\n")[0])
    result.add_argument("--smoke", action="store_true", help="smallest sizes, a few seconds; nothing is recorded")
    result.add_argument("--json", metavar="PATH", help="write the record here instead of benchmarks/results/")
    return result


def finish(name: str, payload: dict, options: argparse.Namespace) -> None:
    """Record a run where its options say; a smoke run is recorded only with --json."""
    if options.json or not options.smoke:
        print(f"written: {record(name, payload, options.json).name}; now run python benchmarks/_results.py")


def record(name: str, payload: dict, path: str | os.PathLike[str] | None = None) -> Path:
    """Write the record of a run to a path, benchmarks/results/<name>.json by default."""
    target = RESULTS / f"{name}.json" if path is None else Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"name": name, **origin(), "payload": payload}, indent=1)
    text = re.sub(r"\[[^\[\]{}]*\]", lambda found: re.sub(r"\s+", " ", found[0]), text)  # lists of numbers on one line
    target.write_text(text + "\n")
    return target


def origin() -> dict:
    """Commit, date, versions, machine and card of this process."""
    commit, changed = _commit()
    versions = {"python": platform.python_version()}
    versions |= {package: importlib.metadata.version(package) for package in PACKAGES}
    return {
        "commit": commit,
        "changed": changed,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "versions": versions,
        "machine": machine(),
        "card": "none" if jax.default_backend() == "cpu" else jax.devices()[0].device_kind,
    }


def machine() -> str:
    """The kind of machine, such as "2 x86-64 cores, 24 GiB"."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} {platform.machine().replace('_', '-')} cores, {memory:.0f} GiB"


def _commit() -> tuple[str, list[str]]:
    """The commit, "-dirty" if files differ from it, and in which top-level folders they do."""

    def git(*args: str) -> str:
        return subprocess.run(["git", *args], cwd=HERE.parent, capture_output=True, text=True, check=True).stdout

    try:
        commit = git("rev-parse", "--short=10", "HEAD").strip()
        lines = git("status", "--porcelain", "--", ".", *(f":!{path}" for path in WRITTEN)).splitlines()
    except (OSError, subprocess.CalledProcessError):
        return "unknown", []
    changed = sorted({line[3:].strip('"').split("/")[0] for line in lines})
    return commit + "-dirty" * bool(changed), changed


def best(call: Callable[[], object], repeats: int, most: float = float("inf")) -> tuple[float, object]:
    """Least seconds of up to so many calls, no further one after `most` seconds in all; and what the last returned."""
    seconds, spent, result = float("inf"), 0.0, None
    for _ in range(repeats):
        start = time.perf_counter()
        result = call()
        last = time.perf_counter() - start
        seconds, spent = min(seconds, last), spent + last
        if spent > most:
            break
    return seconds, result


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
