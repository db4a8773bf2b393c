"""The figure of tightness.py: half-width of score intervals over the true move, by lam, a panel for each change."""

from pathlib import Path

import numpy as np

COLOURS = ("#d62728", "#ff9f1c", "#00a5c8", "#1f5fbf", "#2a9d5c", "#7b3fa0")


def draw_widths(payload: dict, rungs: list[str], label, folder: Path) -> Path:
    """Write tightness.png, medians over sets, losses and seeds: lines, and crosses for the sets that lack some lams."""
    from matplotlib.figure import Figure

    cells = [c for found in payload["sets"].values() for c in found["cells"]]
    changes, lams = list(dict.fromkeys(map(label, cells))), sorted(payload["lams"])
    whole = [c for found in payload["sets"].values() if found["lams"] == payload["lams"] for c in found["cells"]]
    others = [c for found in payload["sets"].values() if found["lams"] != payload["lams"] for c in found["cells"]]
    columns = min(4, len(changes))
    figure = Figure(figsize=(2.7 * columns + 0.6, 2.5 * -(-len(changes) // columns) + 0.6), layout="constrained")
    axes = np.ravel(figure.subplots(-(-len(changes) // columns), columns, sharex=True, sharey=True, squeeze=False))
    for axis, change in zip(axes, changes, strict=False):
        for at, (rung, colour) in enumerate(zip(rungs, COLOURS, strict=True)):
            for chosen, form, name in ((whole, "o-", rung), (others, "x", None)):
                here = [c for c in chosen if label(c) == change]
                line = [_middle([c["width"][at] for c in here if c["lam"] == lam]) for lam in lams]
                axis.plot(lams, line, form, color=colour, label=name, linewidth=1.2, markersize=3 + (form == "x"))
        axis.axhline(1.0, color="0.6", linewidth=0.8, linestyle=":")
        axis.set(xscale="log", yscale="log")
        axis.set_title(change, fontsize=9)
        axis.tick_params(labelsize=8)
    for axis in axes[len(changes) :]:
        axis.set_visible(False)
    figure.supxlabel("lam", fontsize=9)
    figure.supylabel("half-width / true move of the score", fontsize=9)
    handles = axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=len(rungs), frameon=False, fontsize=9)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tightness.png"
    figure.savefig(path, dpi=75)
    return path


def _middle(values: list) -> float:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else np.nan
