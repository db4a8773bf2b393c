"""Figures. matplotlib is loaded when one is drawn; it comes with the `plot` extra."""

from collections.abc import Mapping
from typing import Any

import numpy as np

_SHADES = ("#dfeaf5", "#b5d0e8", "#84b1d9", "#5a92c6")


def bounds_over_retrained(bounds: Any, retrained: Any, *, before: Any = None, ax: Any = None) -> Any:
    """Draw intervals as bands over the values that retraining really gives, sorted by the latter.

    Args:
        bounds: An `Interval` of shape (m,), or a mapping from a name to such an interval (drawn widest first).
        retrained: The true values after retraining, (m,).
        before: The values of the old model, (m,), or None.
        ax: The matplotlib axes to draw on; None makes a new figure.

    Returns:
        The matplotlib axes.

    Raises:
        ImportError: matplotlib is not installed.
        ValueError: The shapes differ.

    Example:
        >>> import numpy as np
        >>> from types import SimpleNamespace
        >>> from matplotlib.figure import Figure
        >>> truth = np.array([0.3, -0.2, 0.1])
        >>> band = SimpleNamespace(lower=truth - 0.1, upper=truth + 0.2)
        >>> ax = bounds_over_retrained(band, truth, ax=Figure().subplots())
        >>> len(ax.lines)
        2
    """
    if ax is None:
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise ImportError("a figure needs matplotlib: pip install 'jaxbounds[plot]'") from error
        ax = plt.subplots(figsize=(7.0, 4.0), layout="constrained")[1]
    truth = np.asarray(retrained, np.float64)
    named = bounds if isinstance(bounds, Mapping) else {"bounds": bounds}
    bands = {name: (np.asarray(b.lower, np.float64), np.asarray(b.upper, np.float64)) for name, b in named.items()}
    for name, (lower, upper) in bands.items():
        if truth.ndim != 1 or lower.shape != truth.shape or upper.shape != truth.shape:
            raise ValueError(
                f"bounds and retrained must have one common shape (m,): {name!r} has {lower.shape} and "
                f"{upper.shape}, retrained has {truth.shape}"
            )
    order = np.argsort(truth, kind="stable")
    place = np.arange(truth.size)
    widths = {name: float(np.mean(upper - lower)) for name, (lower, upper) in bands.items()}
    handles = []
    for depth, name in enumerate(sorted(bands, key=lambda name: -widths[name])):
        lower, upper = bands[name]
        shade = _SHADES[min(depth, len(_SHADES) - 1)]
        band = ax.bar(place, (upper - lower)[order], 1.0, lower[order], color=shade, linewidth=0, label=name)
        handles.append(band)
    if before is not None:
        old = np.asarray(before, np.float64)
        handles += ax.plot(place, old[order], ".", color="#d95f02", markersize=3.5, label="before the change")
    handles += ax.plot(place, truth[order], ".", color="black", markersize=3.5, label="retrained")
    ax.axhline(0.0, color="grey", linewidth=0.6)
    ax.set_xlim(-0.5, max(truth.size - 0.5, 0.5))
    ax.legend(handles=handles, frameon=False, fontsize="small")
    return ax
