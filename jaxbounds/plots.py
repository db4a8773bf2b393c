"""Figures. matplotlib is loaded when one is drawn; it comes with the `plot` extra."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxbounds.arguments import as_array, as_whole, is_real
from jaxbounds.messages import brief, first_bad

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


def _vector(
    values: Any, name: str, size: int | None = None, positive: bool = False, finite: bool = True, gaps: bool = False
) -> np.ndarray:
    """(size,) numbers, checked; `gaps` may be NaN."""
    array = as_array(values, name)
    if not is_real(array.dtype):
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}; convert it with .astype(float)")
    if array.ndim != 1 or not array.size or size not in (None, array.size):
        raise ValueError(f"{name} must have shape ({size or 'm'},) with m > 0, got {array.shape}")
    with np.errstate(over="ignore"):
        array = array.astype(np.float64)
    bad = (np.isinf(array) & finite) | (np.isnan(array) & (not gaps))
    first_bad(bad, array, name, "is not finite", "remove or replace it")
    if positive:
        first_bad(array <= 0, array, name, "is not positive", "the axis is logarithmic: leave it out")
    return array


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


def _ends(band: Any, name: str, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The ends of an Interval (size,), infinite ones as they are."""
    if not (hasattr(band, "lower") and hasattr(band, "upper")):
        raise TypeError(f"{name} must be an Interval, got {type(band).__name__}; pass what scores(X) or w() returns")
    lower, upper = (_vector(end, name, size, finite=False) for end in (band.lower, band.upper))
    return lower, upper


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
    truth = _vector(retrained, "retrained")
    named = bounds if isinstance(bounds, Mapping) else {"bounds": bounds}
    bands = {name: _ends(band, "bounds", truth.size) for name, band in named.items()}
    if not bands:
        raise ValueError("bounds is empty; give an Interval, or a mapping from names to Intervals")
    old = None if before is None else _vector(before, "before", truth.size)
    ax = _axes(ax)
    order = np.argsort(truth, kind="stable")
    place = np.arange(truth.size)
    widths = {name: float(np.mean(upper - lower)) for name, (lower, upper) in bands.items()}
    handles = []
    for depth, name in enumerate(sorted(bands, key=lambda name: -widths[name])):
        lower, upper = bands[name]
        shade = _SHADES[min(depth, len(_SHADES) - 1)]
        known = np.isfinite(lower) & np.isfinite(upper)  # a bar of infinite height cannot be drawn
        lower, upper = np.where(known, lower, truth)[order], np.where(known, upper, truth)[order]
        band = ax.bar(place, upper - lower, 1.0, lower, color=shade, linewidth=0, label=name)
        at, middle = place[known[order]], _middle(lower, upper)[known[order]]
        ax.hlines(middle, at - 0.5, at + 0.5, color=shade, linewidth=_LINE)
        handles.append(band)
    if old is not None:
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
        retrained: what retraining really gives, (L,), NaN where it was not done, or None.
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
    lam = _vector(lam, "lam", positive=True)
    lower, upper = _ends(band, "band", lam.size)
    truth = None if retrained is None else _vector(retrained, "retrained", lam.size, gaps=True)
    ax = _axes(ax)
    order = np.argsort(lam, kind="stable")
    band = lam[order], lower[order], upper[order]
    ax.fill_between(*band, color=_SHADES[1], linewidth=0, label="certain to be within")
    if truth is not None:
        ax.plot(lam[order], truth[order], ".", color="black", markersize=3.5, label="retrained")
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
    largest = _vector(largest, "largest")
    least = None if attacked is None else _vector(attacked, "attacked", largest.size, finite=False)
    most = None if most is None else as_whole(most, "most", 0, none="for the largest k given")
    ax = _axes(ax)
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
    x = _vector(x, "x", positive=True)
    if not isinstance(labels, Mapping) or not labels:
        raise TypeError(f"labels must be a mapping from names to lists of arrays of labels, got {brief(labels)}")
    shares = {}
    for name, found in labels.items():
        if not hasattr(found, "__len__") or len(found) != x.size:
            raise ValueError(f"labels must have one array for each of the {x.size} x; {brief(name)} has not")
        shares[name] = [np.mean(as_array(each, f"labels[{brief(name)}]") != 0) for each in found]
    ax = _axes(ax)
    for name, share in shares.items():
        ax.plot(x, share, ".-", markersize=5, label=name)
    _log_axis(ax, x)
    ax.set(ylabel="share of labels decided", ylim=(-0.02, 1.02))
    ax.legend(frameon=False, fontsize="small")
    return ax
