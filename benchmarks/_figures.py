"""The paper's two figures for one data set: label determination rate, and bound on ||w~ - w^||, a point a seed."""

from pathlib import Path

import numpy as np
from _experiment import METHODS, SIZES

COLOURS = {"theorem1": "#d62728", "cached": "#ff9f1c", "partial": "#1f5fbf"}
TITLES = {"spot": "elements", "rows": "rows", "columns": "columns"}


def draw(name: str, found: dict, folder: Path) -> list[Path]:
    """Write rate_<name>.png and distance_<name>.png."""
    from matplotlib.figure import Figure

    lams = sorted({cell["lam"] for cell in found["cells"]})
    paths = []
    for kind, key, label in (("rate", "rate", "labels decided"), ("distance", "bound", "distance")):
        figure = Figure(figsize=(2.6 * len(lams) + 1, 7.0), layout="constrained")
        axes = figure.subplots(len(SIZES), len(lams), sharey="row", squeeze=False)
        for row, scenario in zip(axes, SIZES, strict=True):
            for axis, lam in zip(row, lams, strict=True):
                cells = [c for c in found["cells"] if c["scenario"] == scenario and c["lam"] == lam]
                _panel(axis, cells, key)
                axis.set_title(f"{TITLES[scenario]}, lam {lam:g}", fontsize=9)
            row[0].set_ylabel(label)
        names = {"theorem1": "Theorem1 (before)", "cached": "Cached (before)", "partial": "Partial (after)"}
        marks = [figure.axes[0].plot([], [], "o", color=COLOURS[m], label=names[m])[0] for m in METHODS]
        if key == "bound":
            marks += figure.axes[0].plot([], [], "_", color="black", label="true distance")
        figure.legend(handles=marks, loc="outside upper center", ncols=4, frameon=False, title=name)
        folder.mkdir(parents=True, exist_ok=True)
        paths.append(folder / f"{kind}_{name}.png")
        figure.savefig(paths[-1], dpi=75)
    return paths


def _panel(axis, cells: list[dict], key: str) -> None:
    """The sizes side by side; at each the methods from left to right, a line joining the points of a seed."""
    for place, cell in enumerate(cells):
        count = len(cell["true"])
        jitter = np.linspace(-0.06, 0.06, count) if count > 1 else np.zeros(1)
        series = [np.array(cell[m][key] + [np.nan] * (count - len(cell[m][key]))) for m in METHODS]
        at = [place + offset + jitter for offset in (-0.25, 0.0, 0.25)]
        axis.plot(np.array(at), np.array(series), color="0.55", linewidth=0.5, zorder=1)
        for method, x, values in zip(METHODS, at, series, strict=True):
            axis.plot(x, values, "o", color=COLOURS[method], markersize=2.8, markeredgewidth=0)
        if key == "bound":
            true = np.where(np.array(cell["true"]) > 10 * np.array(cell["slack"]), cell["true"], np.nan)
            axis.plot(at[2] + 0.12, true, "_", color="black", markersize=5)
    axis.set_xticks(range(len(cells)), [f"{cell['size']:,}" for cell in cells])
    axis.set_xlim(-0.5, max(len(cells), 1) - 0.4)
    axis.tick_params(labelsize=8)
    if key == "bound":
        axis.set_yscale("log")
    else:
        axis.set_ylim(-0.04, 1.04)
