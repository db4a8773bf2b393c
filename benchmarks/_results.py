"""RESULTS.md from the records in benchmarks/results: `python benchmarks/_results.py` writes it, `--check` compares.

Each benchmark writes its own section from its payload (its function `report`); notes.json holds sections that were
measured by hand. The outcome depends on the records alone.
"""

import argparse
import difflib
import json
import runpy
import sys

from _record import HERE, RESULTS

ORDER = ("paper", "tightness", "questions", "labels", "cases", "sweeps", "left_out", "scaling", "large", "products",
         "training", "soundness", "long_stream", "mutation")  # fmt: skip
TARGET = HERE / "RESULTS.md"
INTRODUCTION = """# Measured

Made from the records in `results/` by `python benchmarks/_results.py`; do not edit. Every number comes from the \
script named above it, at the commit and on the machine named below it; sections at the end without a script were \
measured by hand. Times move by a factor of two with what else runs on a machine: ratios within one run are what to \
look at."""


def section(found: dict) -> str:
    """One benchmark: its report, and where it was measured."""
    module = runpy.run_path(str(HERE / f"{found['name']}.py"))  # by its path: tests/ has a package of such a name
    report = module["report"](found["payload"]).strip()
    return f"{report}\n\n*{origin(found)}*"


def origin(found: dict) -> str:
    """Where a record was measured, in words."""
    differs = f" (uncommitted changes in: {', '.join(found['changed'])})" if found["changed"] else ""
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    card = "no GPU" if found["card"] == "none" else found["card"]
    return f"Commit {found['commit']}{differs}, {found['date']}; {found['machine']}, {card}; {versions}."


def document() -> str:
    """The whole of RESULTS.md."""
    records = {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
    notes = records.pop("notes", {"sections": []})
    names = [name for name in ORDER if name in records] + [name for name in records if name not in ORDER]
    parts = [INTRODUCTION, *(section(records[name]) for name in names)]
    for note in notes["sections"]:
        parts.append(f"## {note['title']}\n\n" + "\n".join(note["text"]) + f"\n\n*{note['origin']}*")
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Write RESULTS.md, or exit with status 1 if it differs."""
    parser = argparse.ArgumentParser(description="Make benchmarks/RESULTS.md from the records.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with status 1 if the file differs")
    options = parser.parse_args()
    text = document()
    if not options.check:
        TARGET.write_text(text)
        return
    old = TARGET.read_text() if TARGET.exists() else ""
    if old != text:
        lines = difflib.unified_diff(old.splitlines(), text.splitlines(), "RESULTS.md", "records", "", "", 0, "")
        print(*list(lines)[:20], sep="\n")
        print("benchmarks/RESULTS.md differs from its records; run python benchmarks/_results.py", file=sys.stderr)
        raise SystemExit(1)


if __name__ == "__main__":
    main()
