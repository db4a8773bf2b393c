"""load_svmlight and the figure: what they return, and what they say when something is missing."""

import bz2
import gzip
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse
from matplotlib.figure import Figure

from jaxbounds.interop import load_svmlight
from jaxbounds.plots import band_over_lam, bounds_over_retrained, certified_fraction, determination_rate

TEXT = b"+1 1:0.5 3:2 # a comment\n-1 2:1\n-1\n"


@pytest.mark.parametrize(("suffix", "pack"), [("txt", bytes), ("gz", gzip.compress), ("bz2", bz2.compress)])
def test_svmlight_reads_plain_and_compressed(tmp_path, suffix, pack):
    path = tmp_path / f"data.{suffix}"
    path.write_bytes(pack(TEXT))
    X, y = load_svmlight(path)
    assert scipy.sparse.issparse(X) and X.dtype == np.float64 and y.dtype == np.float64
    np.testing.assert_array_equal(X.toarray(), [[0.5, 0, 2], [0, 1, 0], [0, 0, 0]])
    np.testing.assert_array_equal(y, [1, -1, -1])


def test_svmlight_columns_can_be_given(tmp_path):
    path = tmp_path / "data.txt"
    path.write_bytes(TEXT)
    assert load_svmlight(path, n_features=7)[0].shape == (3, 7)
    assert load_svmlight(path, zero_based=True)[0].shape == (3, 4)


@pytest.mark.parametrize("text", [b"", b"one two three\n", b"1 a:b\n"])
def test_svmlight_names_a_bad_file(tmp_path, text):
    path = tmp_path / "broken.txt"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=r"^path: .*broken\.txt"):
        load_svmlight(path)


def test_svmlight_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_svmlight(tmp_path / "nowhere")


def test_svmlight_without_scikit_learn(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match=r"jaxbounds\[data\]"):
        load_svmlight(tmp_path / "any")


def test_svmlight_on_real_files(shared):
    X, y = load_svmlight(shared / "data" / "libsvm" / "heart_scale")
    assert X.shape == (270, 13) and set(np.unique(y)) == {-1.0, 1.0}
    assert load_svmlight(shared / "data" / "libsvm" / "a9a.gz")[0].shape == (32561, 123)


def _interval(lower, upper):
    return SimpleNamespace(lower=np.asarray(lower), upper=np.asarray(upper))


def test_figure_draws_every_band_and_the_truth():
    truth = np.array([0.3, -0.2, 0.1])
    bands = {"wide": _interval(truth - 1, truth + 1), "narrow": _interval(truth - 0.1, truth + 0.1)}
    ax = bounds_over_retrained(bands, truth, before=truth + 0.05, ax=Figure().subplots())
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["wide", "narrow", "before the change", "retrained"]
    drawn = next(line for line in ax.lines if line.get_label() == "retrained")
    np.testing.assert_array_equal(drawn.get_ydata(), np.sort(truth))


def test_figure_makes_its_own_axes():
    import matplotlib.pyplot as plt

    ax = bounds_over_retrained(_interval([-1.0], [1.0]), [0.0])
    assert ax.figure.number in plt.get_fignums()
    plt.close(ax.figure)


def test_figure_refuses_other_shapes():
    with pytest.raises(ValueError, match="must have shape"):
        bounds_over_retrained(_interval([-1.0], [1.0]), [0.0, 1.0], ax=Figure().subplots())


def test_figure_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"jaxbounds\[plot\]"):
        bounds_over_retrained(_interval([-1.0], [1.0]), [0.0])


def test_band_is_drawn_in_the_order_of_lam():
    ax = band_over_lam([1.0, 0.1], _interval([0.2, 0.1], [0.4, 0.3]), retrained=[0.3, 0.2], ax=Figure().subplots())
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), [[0.1, 0.2], [1.0, 0.3]])
    gaps = band_over_lam([1.0, 0.1], _interval([0.2, 0.1], [0.4, 0.3]), retrained=[np.nan, 0.2], ax=Figure().subplots())
    np.testing.assert_array_equal(gaps.lines[0].get_ydata(), [0.2, np.nan])
    with pytest.raises(ValueError, match="retrained must have shape"):
        band_over_lam([1.0, 0.1], _interval([0.2, 0.1], [0.4, 0.3]), retrained=[0.3], ax=Figure().subplots())


def test_certified_fraction_lies_below_the_attack():
    ax = certified_fraction([0, 1, 3, 3], attacked=[2, 2, 5, np.inf], ax=Figure().subplots())
    certified, attacked = (line.get_ydata() for line in ax.lines)
    np.testing.assert_array_equal(certified, [1, 0.75, 0.5, 0.5, 0, 0])
    np.testing.assert_array_equal(attacked, [1, 1, 0.5, 0.5, 0.5, 0.25])
    with pytest.raises(ValueError, match="attacked must have shape"):
        certified_fraction([1, 2], attacked=[1], ax=Figure().subplots())
    with pytest.raises(ValueError, match="m > 0"):
        certified_fraction([], ax=Figure().subplots())


def test_determination_rate():
    ax = determination_rate([1, 10], {"a": [[1, 0], [0, 0]], "b": [[1, -1], [1, 0]]}, ax=Figure().subplots())
    assert [line.get_ydata().tolist() for line in ax.lines] == [[0.5, 0.0], [1.0, 0.5]]
    with pytest.raises(ValueError, match="'a' has not"):
        determination_rate([1, 10], {"a": [[1, 0]]}, ax=Figure().subplots())


def _drawn(draw) -> np.ndarray:
    """The picture of a figure's axes, (height, width) bool where something else than white is."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = Figure(figsize=(4, 3), dpi=80)
    ax = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    draw(ax)
    ax.get_legend().remove()
    ax.set_axis_off()
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return (np.asarray(canvas.buffer_rgba())[:, :, :3] < 250).any(axis=2)


def test_a_band_of_no_width_is_drawn():
    lam, level = np.logspace(-3, 0, 9), np.full(9, 0.2)
    picture = _drawn(lambda ax: band_over_lam(lam, _interval(level, level), ax=ax))
    assert picture.any(axis=0).mean() > 0.85  # a line across the axes
    assert 1 <= picture.any(axis=1).sum() <= 4

    def bars(ax):
        bounds_over_retrained(_interval(level, level), level, ax=ax)
        for line in ax.lines:
            line.remove()

    assert _drawn(bars).any(axis=0).mean() > 0.85
    for lower, upper in ((-np.inf, np.inf), (0.0, np.inf)):  # what is not known draws nothing, and does no harm
        ends = _interval(np.full(9, lower), np.full(9, upper))
        assert np.isfinite(band_over_lam(lam, ends, retrained=level, ax=Figure().subplots()).get_ylim()).all()
        assert np.isfinite(bounds_over_retrained(ends, level, ax=Figure().subplots()).get_ylim()).all()


@pytest.mark.parametrize("x", [
    [1, 2, 3, 4, 5, 6, 7, 8], [1, 10], [0.02, 0.03, 0.05], [1, 2, 5, 10, 20, 50, 100], np.logspace(-12, 3, 40), [3.0],
    np.arange(10, 100, 3), [0.9, 9000.0],
])  # fmt: skip
def test_ticks_of_log_axes_do_not_overlap(x):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = Figure(figsize=(3.5, 3))
    ax = determination_rate(x, {"a": [[1]] * len(x)}, ax=figure.subplots())
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    low, high = ax.get_xlim()
    ticks = [*ax.xaxis.get_major_ticks(), *ax.xaxis.get_minor_ticks()]
    labels = [tick.label1 for tick in ticks if tick.label1.get_text() and low <= tick.get_loc() <= high]
    boxes = sorted((label.get_window_extent() for label in labels), key=lambda box: box.x0)
    assert len(boxes) >= min(2, len(x))
    assert all(left.x1 <= right.x0 for left, right in zip(boxes, boxes[1:], strict=False))
