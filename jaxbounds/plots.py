"""Figures. matplotlib is loaded when one is drawn; it comes with the `plot` extra."""

from collections.abc import Mapping
from typing import Any

import numpy as np

_SHADES = ("#dfeaf5", "#b5d0e8", "#84b1d9", "#5a92c6")
_LINE = 1.0  # points of a line along the middle, all that is seen of a band of no width
_TICKS = 6  # most labels on a logarithmic axis


def _axes(ax: Any) -> Any:
    """The axes to draw on, those of a new figure by default."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("a figure needs matplotlib: pip install 'jaxbounds[plot]'") from error
    return plt.subplots(figsize=(7.0, 4.0), layout="constrained")[1]


def _middle(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # nowhere if both ends are infinite
        return lower / 2 + upper / 2


def _log_axis(ax: Any, x: np.ndarray) -> None:
    """Powers of ten, or where they are fewer than two a few of the points themselves, far enough apart to be read."""
    from matplotlib.ticker import LogLocator, NullFormatter

    ax.set_xscale("log")
    ax.xaxis.set_minor_formatter(NullFormatter())
    points = np.unique(x[np.isfinite(x) & (x > 0)])
    if points.size and np.floor(np.log10(points[-1])) - np.ceil(np.log10(points[0])) < 1:
        apart = np.log(points[-1] / points[0]) / _TICKS
        kept = [points[0]]
        for point in points[1:]:
            if np.log(point / kept[-1]) >= apart:
                kept.append(point)
        ax.set_xticks(kept, [f"{point:.3g}" for point in kept])
    else:
        ax.xaxis.set_major_locator(LogLocator(numticks=_TICKS))


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
    ax = _axes(ax)
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
        ax.hlines(_middle(lower, upper)[order], place - 0.5, place + 0.5, color=shade, linewidth=_LINE)
        handles.append(band)
    if before is not None:
        old = np.asarray(before, np.float64)
        handles += ax.plot(place, old[order], ".", color="#d95f02", markersize=3.5, label="before the change")
    handles += ax.plot(place, truth[order], ".", color="black", markersize=3.5, label="retrained")
    ax.axhline(0.0, color="grey", linewidth=0.6)
    ax.set_xlim(-0.5, max(truth.size - 0.5, 0.5))
    ax.legend(handles=handles, frameon=False, fontsize="small")
    return ax


def band_over_lam(lam: Any, band: Any, *, retrained: Any = None, ax: Any = None) -> Any:
    """Draw an interval for each lam, such as the validation error of `penalty_sweep`, as a band over log lam.

    Args:
        lam: (L,) positive numbers in any order.
        band: `Interval` of shape (L,).
        retrained: what retraining really gives, (L,), or None.
        ax: The matplotlib axes to draw on; None makes a new figure.

    Returns:
        The matplotlib axes.

    Raises:
        ImportError: matplotlib is not installed. ValueError: The shapes differ.

    Example:
        >>> from types import SimpleNamespace
        >>> from matplotlib.figure import Figure
        >>> band = SimpleNamespace(lower=[0.1, 0.0], upper=[0.2, 0.3])
        >>> band_over_lam([0.1, 1.0], band, retrained=[0.1, 0.2], ax=Figure().subplots()).get_xscale()
        'log'
    """
    ax = _axes(ax)
    lam, lower, upper = (np.asarray(x, np.float64) for x in (lam, band.lower, band.upper))
    shapes = {"lam": lam, "band.lower": lower, "band.upper": upper}
    if retrained is not None:
        shapes["retrained"] = np.asarray(retrained, np.float64)
    for name, values in shapes.items():
        if values.ndim != 1 or values.shape != lam.shape:
            raise ValueError(f"lam, the band and retrained must have one common shape (L,): {name} has {values.shape}")
    order = np.argsort(lam, kind="stable")
    band = lam[order], lower[order], upper[order]
    ax.fill_between(*band, color=_SHADES[1], linewidth=0, label="certain to be within")
    if retrained is not None:
        ax.plot(lam[order], shapes["retrained"][order], ".", color="black", markersize=3.5, label="retrained")
    ax.plot(lam[order], _middle(*band[1:]), color=_SHADES[1], linewidth=_LINE, zorder=1)
    _log_axis(ax, lam)
    ax.set(xlabel="lam")
    ax.legend(frameon=False, fontsize="small")
    return ax


def certified_fraction(largest: Any, *, attacked: Any = None, most: int | None = None, ax: Any = None) -> Any:
    """Draw the share of predictions that no k rows can change, over k, and of those that no known attack changes.

    Args:
        largest: (m,) the largest certified k of each prediction, as `largest_certified_removal` gives it.
        attacked: (m,) the least k that an attack needed, larger than `most` where none succeeded, or None.
        most: the largest k to draw; by default the largest finite one given.
        ax: The matplotlib axes to draw on; None makes a new figure.

    Returns:
        The matplotlib axes.

    Raises:
        ImportError: matplotlib is not installed. ValueError: The shapes differ, or there is no prediction.

    Example:
        >>> from matplotlib.figure import Figure
        >>> ax = certified_fraction([0, 2, 5], attacked=[1, 4, 7], ax=Figure().subplots())
        >>> ax.lines[0].get_ydata()[:3].round(2).tolist()
        [1.0, 0.67, 0.67]
    """
    ax, largest = _axes(ax), np.asarray(largest)
    if largest.ndim != 1 or not largest.size:
        raise ValueError(f"largest must have shape (m,) with m > 0, got {largest.shape}")
    least = None if attacked is None else np.asarray(attacked)
    if least is not None and least.shape != largest.shape:
        raise ValueError(f"attacked must have the shape of largest, {largest.shape}, got {least.shape}")
    known = largest if least is None else np.concatenate([largest, least[np.isfinite(least)]])
    k = np.arange((int(known.max()) if most is None else most) + 1)
    certain = np.mean(largest[None, :] >= k[:, None], axis=1)
    ax.step(k, certain, where="post", color=_SHADES[3], label="certified")
    if least is not None:
        ax.step(k, np.mean(least[None, :] > k[:, None], axis=1), where="post", color="black", linewidth=0.8,
                label="not flipped by the attack")  # fmt: skip
    ax.set(xlabel="rows k", ylabel="share of predictions", ylim=(-0.02, 1.02))
    ax.legend(frameon=False, fontsize="small")
    return ax


def determination_rate(x: Any, labels: Mapping[str, Any], *, ax: Any = None) -> Any:
    """Draw the share of labels that bounds decide, over lam or the size of a change, a line for each method.

    Args:
        x: (L,) positive numbers, drawn on a logarithmic axis.
        labels: name -> L arrays of certified labels (0 is undecided), one for each x.
        ax: The matplotlib axes to draw on; None makes a new figure.

    Returns:
        The matplotlib axes.

    Raises:
        ImportError: matplotlib is not installed. ValueError: A line has not as many entries as x.

    Example:
        >>> from matplotlib.figure import Figure
        >>> ax = determination_rate([1, 10], {"Cached": [[1, -1], [1, 0]]}, ax=Figure().subplots())
        >>> ax.lines[0].get_ydata().tolist()
        [1.0, 0.5]
    """
    ax, x = _axes(ax), np.asarray(x, np.float64)
    for name, found in labels.items():
        if len(found) != x.size:
            raise ValueError(f"labels must have one array for each of the {x.size} x; {name!r} has {len(found)}")
        ax.plot(x, [np.mean(np.asarray(each) != 0) for each in found], ".-", markersize=5, label=name)
    _log_axis(ax, x)
    ax.set(ylabel="share of labels decided", ylim=(-0.02, 1.02))
    ax.legend(frameon=False, fontsize="small")
    return ax
