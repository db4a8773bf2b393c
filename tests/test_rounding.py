"""Every number a certificate gives, against the same formula in 60 digits for the exact stored floats.

The trial pair (w, alpha) of each region is a pair of float arrays; `exact` evaluates the certificate there without
rounding (regions.py compares). Optima refined to 45 digits check the formulas themselves. pytest -m full runs the long
version.
"""

from dataclasses import replace

import exact
import jax
import numpy as np
import oracle
import pytest
from pairs import LOSSES, TRAINING, Task, draw
from regions import check, check_optimum, check_region

import jaxbounds as jb
from jaxbounds.array import to_host


def run(seeds, **options):
    """Check one problem a seed; returns radius/exact where the exact radius is not negligible."""
    ratios = []
    for seed in seeds:
        task = draw(np.random.default_rng(seed), **options)
        try:
            found = check(task)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {task.pr.loss}, {task.pr.penalty}, {task.changes}: {error}") from None
        for _, region, t in found:
            if region.primal and t.radius > 1e-6 * (1 + exact.root(t.ex.moved_lam)):
                ratios.append(float(exact.number(region.radius) / t.radius))
    return ratios


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("block", range(5))
def test_exact_regions_are_inside(block, x64):
    start = 300 * block + 150 * x64
    with jax.enable_x64(x64):
        ratios = run(range(start, start + 30))
    assert np.median(ratios) <= 1.05


@pytest.mark.full
@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("block", range(10))
def test_exact_regions_are_inside_many(block, x64):
    start = 10_000 + 1000 * block + 500 * x64
    with jax.enable_x64(x64):
        ratios = run(range(start, start + 100))
    assert np.median(ratios) <= 1.05


@pytest.mark.parametrize("x64", [False, True])
def test_optimum_is_inside(x64):
    with jax.enable_x64(x64):
        known = [check_optimum(draw(np.random.default_rng(seed))) for seed in range(5000 + 40 * x64, 5040 + 40 * x64)]
    assert sum(known) >= 20


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("training", ["optimal", "suggested"])
def test_changes_below_the_rounding(loss, training):
    rng = np.random.default_rng([LOSSES.index(loss), TRAINING.index(training)])
    task = draw(rng, "set_elements", loss, training)
    a = task.changes[0][1]
    old = task.pr.X[a["rows"], a["cols"]]
    new = np.nextafter(old, np.full(old.shape, np.inf, old.dtype))
    check(replace(task, changes=[("set_elements", a | {"values": new})]))


@pytest.mark.parametrize("magnitude", [75, 150])
def test_extreme_scales(magnitude):
    for seed in range(20):
        run([seed], training="any", magnitude=magnitude)


@pytest.mark.parametrize(
    ("kind", "loss", "penalty"),
    [("set_rows", "logistic", "l2"), ("set_elements", "smoothed_hinge", "l2"), ("remove_rows", "huber", "elastic_net")],
)
def test_compiled_regions(kind, loss, penalty):
    """The same formulas under jit: multiply-adds fuse and sums are reordered."""
    compiled = jax.jit(jb.bound)
    for seed in range(12):
        task = draw(np.random.default_rng(seed), kind, loss, fixed=(6, 3, 2, penalty))
        bounds = compiled(task.model, task.change)
        with jax.enable_x64(True), np.errstate(all="ignore"):
            for edit, regions in to_host(bounds.parts):
                for region in regions:
                    check_region(task, edit, region, f"(seed {seed})")


def test_a_radius_without_allowance_is_too_small():
    """Least squares with t = a(w): the mid ball has radius ||w - u||/2, which floats undershoot half of the time."""
    below = 0
    for seed in range(60):
        task = draw(np.random.default_rng(seed), "set_rows", "squared", "optimal")
        pr = replace(task.new[0], penalty="l2", lam=float(np.max(task.new[0].lam)), l1=0.0)
        alpha = oracle.dual_point(pr, task.w)
        u = pr.X.T @ (pr.c * alpha) / pr.lam
        naive = np.sqrt(np.sum((task.w - u) ** 2)) / 2
        below += exact.number(naive) < exact.evaluate(pr, task.w, alpha).R
    assert below >= 12


def test_difference_of_sums_in_float32():
    """A million rows: P - D in float32 is below the gap, the stored sum of Fenchel-Young terms is not."""
    rng = np.random.default_rng(0)
    n = 1_000_000
    X = rng.normal(size=(n, 2)).astype(np.float32)
    y = (X @ np.array([1.0, -1.0], np.float32) + rng.normal(size=n).astype(np.float32)).astype(float)
    pr = oracle.Problem("squared", X, y, np.full(n, 1 / n), lam=0.1)
    wide = X.astype(float)
    w = np.linalg.solve(wide.T @ wide / n + 0.1 * np.eye(2), wide.T @ y / n).astype(np.float32)
    alpha = y - wide @ w.astype(float)
    single = replace(pr, y=y.astype(np.float32), c=pr.c.astype(np.float32), lam=np.float32(0.1))
    t = alpha.astype(np.float32)
    v = X.T @ (single.c * t)
    P = single.c @ (single.coordinate(w) ** 2 / 2) + (single.lam / 2 * w * w).sum()
    D = single.c @ (t * single.y - t * t / 2) - (v * v / single.lam / 2).sum()
    assert P.dtype == D.dtype == np.float32
    true = oracle.gap(pr, w, alpha)
    assert P - D < true or P - D > 1e3 * true
    task = Task(pr, "mean", np.ones(n), w, alpha, [], False)
    assert true <= float(task.model.gap) <= 1e-9


def test_another_penalty_is_counted_at_its_own_strength():
    """|w_j| <= sqrt(2 P(w^)/lam) needs the new penalty's P."""
    X, y = np.ones((2, 1)), np.full(2, 10.0)
    problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(1e-3))
    bounds = jb.bound(jb.fit(problem, X, y), jb.set_penalty(jb.penalties.l2(10.0)), jb.Theorem1())
    assert np.asarray(bounds.w().lower)[0] <= 10 / 11 <= np.asarray(bounds.w().upper)[0]
