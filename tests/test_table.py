"""The table of cells against full retraining by the oracle: every certificate must hold the true new optimum."""

import itertools

import numpy as np
import oracle
import pytest
import scipy.sparse as sp
import table

import jaxbounds as jb

pytestmark = pytest.mark.slow  # many cells

SLACK = 2e-9  # the oracle's own error


def inside(interval, truth, what, slack=SLACK):
    lower, upper = np.asarray(interval.lower, float), np.asarray(interval.upper, float)
    assert lower.shape == upper.shape == np.shape(truth), what
    assert not np.any(np.isnan(lower) | np.isnan(upper)), what
    room = slack * (1 + np.abs(truth))
    bad = ~((lower <= truth + room) & (upper >= truth - room))
    assert not np.any(bad), (what, lower[bad], np.asarray(truth)[bad], upper[bad])


def check(made: table.Made, bounds: jb.Bounds, what: str, sparse: bool = False):
    """All that bounds say, against the truth."""
    w, alpha = made.w, made.alpha
    assert int(bounds.status) in (jb.Status.CONVERGED, jb.Status.VACUOUS), what
    assert float(bounds.gap) >= 0 and float(bounds.radius) >= 0 and float(bounds.dual_radius) >= 0, what
    inside(bounds.w(), w, f"{what} w")
    duals = bounds.alpha()
    inside(duals, alpha, f"{what} alpha")
    removed = np.setdiff1d(np.arange(made.n), made.rows)
    assert np.all(np.asarray(duals.lower)[removed] == 0) and np.all(np.asarray(duals.upper)[removed] == 0), what
    scores, X = made.X_test @ w, sp.csr_array(made.X_test) if sparse else made.X_test
    inside(bounds.scores(X), scores, f"{what} scores")
    labels = np.asarray(bounds.labels(X))
    assert not np.any((labels * scores < 0) & (np.abs(scores) > SLACK)), f"{what} labels"
    base = np.append(np.asarray(bounds.model.w, float), np.zeros(made.d - len(bounds.model.w)))
    inside(bounds.distance, np.linalg.norm(w - base), f"{what} distance")
    assert np.all(np.abs(alpha[np.asarray(bounds.inactive_rows())]) <= SLACK), f"{what} rows"
    assert np.all(np.abs(w[np.asarray(bounds.inactive_columns())]) <= SLACK), f"{what} columns"
    for found, kept in ((bounds.row_map, made.rows), (bounds.column_map, made.cols)):
        expected = np.full(len(found), -1)
        expected[kept] = np.arange(len(kept))
        np.testing.assert_array_equal(found, expected)


def cases(made: table.Made):
    """Theorem 1's cases whose assumptions hold before and after the change."""
    smooth, convex = made.problem.loss.smoothness is not None, table.strong(made.cell.penalty)
    return [case for case, holds in (("i", smooth), ("ii", convex), ("iii", smooth and convex)) if holds]


def check_cell(cell: table.Cell, seed: int = 0, thorough: bool = False):
    """Every certificate of a cell; without `thorough` the start, one case and one model without data go by turns."""
    made = table.make(cell, seed)
    change, told = made.change(), made.change(old_values=True)
    rng = np.random.default_rng([*map(ord, str(cell)), seed])
    starts, named, bare = ["optimum", "inexact"], cases(made), list(table.METHODS)
    if not thorough:
        starts, named, bare = ([pool[int(rng.integers(len(pool)))]] for pool in (starts, named, bare))
        if cell.penalty == "from_function":  # slow on the host: every step of an inversion calls the user's function
            named = []
    for start in starts:
        model = made.model() if start == "optimum" else made.inexact(rng)
        if table.has_factor(cell):
            model = jb.with_factor(model)
        assert float(model.gap) >= 0
        radii = {}
        for method in (*table.METHODS, *map(jb.Theorem1, named), *table.second_order(cell)):
            bounds = jb.bound(model, change, method)
            check(made, bounds, f"{cell} {start} {method}", sparse=isinstance(method, jb.Partial))
            radii.setdefault(type(method), float(bounds.radius))
        check_order(radii)
        for method in bare:
            bounds = jb.bound(model.without_data(), told, method)
            check(made, bounds, f"{cell} {start} {method} without data")
            assert float(bounds.radius) >= radii[type(method)] * (1 - 1e-9)


def check_order(radii):
    first, mid, partial = (radii[kind] for kind in (jb.Theorem1, jb.Cached, jb.Partial))
    if np.isfinite(first):
        assert mid <= first / np.sqrt(2) * (1 + 1e-6) + 1e-12
        assert partial <= mid
    for kind in (jb.Pass, jb.Curvature):
        assert radii.get(kind, partial) <= partial


@pytest.mark.parametrize("cell", table.pairwise(), ids=str)
def test_cell(cell):
    check_cell(cell)


GROUPS = [key for key, _ in itertools.groupby(sorted({cell[:3] for cell in table.every_cell()}))]


@pytest.mark.full
@pytest.mark.parametrize("group", GROUPS, ids="-".join)
def test_every_cell(group):
    for cell in table.every_cell():
        if cell[:3] == group:
            for seed in (1, 2):
                check_cell(cell, seed, thorough=True)


def test_cover():
    """The default run meets every pair of loss and penalty, and every certificate with every change."""
    cells = table.pairwise()
    assert {c.change for c in cells} == set(table.CHANGES)
    wanted = {(c.loss, c.penalty) for c in table.every_cell()}
    assert {(c.loss, c.penalty) for c in cells} == wanted
    assert len(wanted) == len(table.LOSSES) * len(table.PENALTIES) - 3  # hinge with l1 and lq has neither property


@pytest.mark.parametrize("penalty", ["l1", "lq1.5", "lq3"])
def test_neither_property(penalty):
    with pytest.raises(ValueError, match="neither property"):
        jb.fit(jb.Problem(jb.losses.hinge(), table.penalty_of(penalty, 2)[1]), np.eye(2), np.array([1.0, -1.0]))


FITTED = [
    table.Cell("logistic", "l2", "set_rows", "float64", "dense", "mean"),
    table.Cell("smoothed_hinge", "elastic_net", "remove_rows", "float32", "dense", "mean"),
    table.Cell("hinge", "l2", "set_elements", "float64", "sparse", "sum"),
    table.Cell("squared", "l1", "set_targets", "float32", "sparse", "sum"),
    table.Cell("from_margin", "vector_l2", "combine_wide", "float64", "dense", "mean"),
]


@pytest.mark.parametrize(("cell", "tol"), list(zip(FITTED, (1e-10, 1e-3, 1e-10, 1e-3, 1e-3), strict=True)), ids=str)
def test_fitted(cell, tol):
    """From `fit`, precise or not."""
    made = table.make(cell)
    model = jb.fit(made.problem, made.X, made.y, sample_weight=made.sample_weight, tol=tol)
    for method in table.METHODS:
        check(made, jb.bound(model, made.change(), method), f"{cell} {tol} {method}")


def test_user_loss_without_ref():
    """A user's loss defines alpha by where it was taken: an alpha without that must not make the gap too small."""
    made = table.make(table.Cell("from_margin", "l2", "set_targets", "float64", "dense", "mean"))
    model = made.model(made.before.w + 0.3, np.full(len(made.y), 0.5))
    true = oracle.gap(made.old, np.asarray(model.w, float), np.asarray(model.alpha, float))
    assert float(model.gap) >= true * (1 - 1e-12)
    check(made, jb.bound(model, made.change()), "no ref")


def test_new_values_are_rounded():
    """float32 data with float64 changes: bounds and `apply` speak of the same rounded values."""
    cell = table.Cell("squared", "l2", "set_rows", "float32", "dense", "mean")
    made = table.make(cell)
    rough = np.float64(1) / 3 + 2.0**-27 * np.arange(made.d)
    change, rounded = (jb.set_rows([0], [row]) for row in (rough, rough.astype(np.float32)))
    for X in (made.X, sp.csr_array(made.X)):
        np.testing.assert_array_equal(*(np.asarray(c.apply(X, made.y)[0][[0]].sum(axis=0)) for c in (change, rounded)))
    first, second = (jb.bound(made.model(), c) for c in (change, rounded))
    assert float(first.gap) == float(second.gap) and float(first.radius) == float(second.radius)


@pytest.mark.parametrize("cell", table.pairwise()[::3], ids=str)
def test_apply(cell):
    """`apply` gives the data that the oracle gives."""
    made = table.make(cell)
    X, y, weight = made.change().apply(made.X, made.y, made.sample_weight)
    want = oracle.apply_change(made.old.X, made.y, made.sample_weight, made.changes, cell.scale)
    assert X.dtype == cell.dtype and sp.issparse(X) == (cell.storage == "sparse")
    np.testing.assert_array_equal(X.toarray() if sp.issparse(X) else X, want[0])
    np.testing.assert_array_equal(y, want[1])
    np.testing.assert_allclose(np.ones(len(y)) if weight is None else weight, want[2])
