"""How far `distance.upper` lies above the true distance, on the 60 shared cases: medians by kind of change and method.

Run ``JAXBOUNDS_SHARED=FOLDER python benchmarks/cases.py`` (seconds; FOLDER has cases/) or ``--smoke`` (five cases).
The optima were solved elsewhere; tests/test_cases.py checks that all intervals contain them.
"""

import os
import sys

import numpy as np
from _record import HERE, finish, parser, table

sys.path.insert(0, str(HERE.parent / "tests"))


def report(payload: dict) -> str:
    """The section of RESULTS.md."""
    points, methods = payload["points"], payload["methods"]

    def row(name: str, chosen: list[dict]) -> list[str]:
        return [name, str(len(chosen)), *(f"{np.median([p[m] for p in chosen]):.2f}" for m in methods)]

    kinds = sorted({p["kind"] for p in points})
    rows = [row("all", points), *(row(kind, [p for p in points if p["kind"] == kind]) for kind in kinds)]
    widest = max(kinds, key=lambda kind: np.median([p["Cached"] for p in points if p["kind"] == kind]))
    least = min(p[m] for p in points for m in methods)
    gained = np.mean([p["Partial"] < 0.99 * p["Cached"] for p in points])
    return f"""## The shared cases (`benchmarks/cases.py`): `distance.upper` over the true distance

Medians over the {len(points)} cases whose optimum moves; the smallest ratio is {least:.3f} (below 1 would be a \
violation). `Partial` lowers the bound of `Cached` by over 1 % in {gained:.0%} of the cases. The bounds \
are widest for the kind "{widest}".

{table(["change", "cases", *(f"`{m}`" for m in methods)], rows)}"""


def main() -> None:
    """Measure, print and record."""
    options = parser(__doc__).parse_args()
    if "JAXBOUNDS_SHARED" not in os.environ:
        raise SystemExit("JAXBOUNDS_SHARED must name the folder that has cases/")
    import test_cases

    names, methods = test_cases.oracle.CASES, {"Theorem1": "theorem1", "Cached": "cached", "Partial": "partial"}
    points = []
    for name in names[::12] if options.smoke else names:
        case = test_cases.case_of(name)
        if not case.moves:
            continue
        true = np.linalg.norm(case.w_new - case.w_old)
        upper = {m: float(test_cases.bounds_of(name, "fit", key).distance.upper) for m, key in methods.items()}
        points.append({"kind": case.kind} | {m: float(f"{found / true:.4g}") for m, found in upper.items()})
    payload = {"methods": list(methods), "points": points}
    finish("cases", payload, options)
    print(report(payload))
    if min(p[m] for p in points for m in methods) < 1 - 1e-6:
        raise SystemExit("a bound lies below the true distance")


if __name__ == "__main__":
    main()
