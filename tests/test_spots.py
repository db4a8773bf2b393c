"""Many changes of single elements: vectors without sorting or merging, compiled where they are many."""

import functools

import jax
import numpy as np
import pytest
import scipy.sparse as sp

import jaxbounds as jb
from jaxbounds import often, sweeps
from jaxbounds.array import COMPUTE_ONCE, hold

N, D = 40, 6
RNG = np.random.default_rng(0)


@functools.cache
def model_of(dtype="float64", sparse=False, loss="smoothed_hinge"):
    rng = np.random.default_rng(1)
    X = np.where(rng.random((N, D)) < 0.7, rng.normal(size=(N, D)), 0.0).astype(dtype)
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=N) > 0, 1.0, -1.0)
    losses = {"smoothed_hinge": lambda: jb.losses.smoothed_hinge(0.5), "hinge": jb.losses.hinge,
              "squared": jb.losses.squared}  # fmt: skip
    problem = jb.Problem(losses[loss](), jb.penalties.l2(0.05))
    return jb.fit(problem, sp.csr_array(X) if sparse else X, y, sample_weight=np.linspace(0.5, 1.5, N), tol=1e-6)


def ragged(count=60, most=9):
    """Candidates of 1 to `most` elements that often share rows and columns."""
    changes = []
    for _ in range(count):
        at = RNG.choice(N * D, RNG.integers(1, most + 1), replace=False)
        changes.append(jb.set_elements(at // D, at % D, RNG.normal(size=at.size)))
    return changes


def facts(each):
    moved = each.distance
    return [np.asarray(x) for x in (moved.lower, moved.upper, each.gap, each.radius, each.dual_radius)]


def assert_as_bound(each, changes, method):
    assert (np.asarray(each.status) == 0).all()
    for b, change in enumerate(changes):
        one = jb.bound(each.model, change, method)
        alone = facts(one)
        for got, want in zip(facts(each), alone, strict=True):
            np.testing.assert_allclose(got[b], want, rtol=1e-9, atol=1e-9)


CASES = [(jb.Cached(), "float64", False, "smoothed_hinge"), (jb.Cached(), "float32", True, "smoothed_hinge"),
         (jb.Theorem1(), "float64", True, "squared"), (jb.Cached(), "float64", False, "hinge")]  # fmt: skip


@pytest.mark.parametrize(("method", "dtype", "sparse", "loss"), CASES, ids=str)
def test_ragged_candidates_equal_a_loop(method, dtype, sparse, loss):
    model, changes = model_of(dtype, sparse, loss), ragged()
    assert_as_bound(jb.bound_each(model, jb.stack(changes), method=method), changes, method)


@pytest.mark.parametrize("each", [1, 4])
def test_the_compiled_program_equals_a_loop(monkeypatch, each):
    monkeypatch.setattr(often, "OFTEN", 0)
    monkeypatch.setattr(sweeps, "_BLOCK", 16)
    model = model_of("float32", True)
    changes = [jb.set_elements(at // D, at % D, RNG.normal(size=each))
               for at in (RNG.choice(N * D, each, replace=False) for _ in range(70))]  # fmt: skip
    batch = jb.stack(changes)
    found = jb.bound_each(model, batch)
    assert_as_bound(found, changes, jb.Cached())
    for size in (5, 23):  # blocks are always the same size
        for got, want in zip(facts(jb.bound_each(model, batch, batch_size=size)), facts(found), strict=True):
            np.testing.assert_array_equal(got, want)
    with jax.enable_x64(True):
        rows, cols = np.array(batch.rows), np.array(batch.cols)
        values = np.array(batch.values)
    rows[3, 0], cols[5, 0], values[7, 0] = N, -1, np.nan
    if each > 1:
        rows[9, 1], cols[9, 1] = rows[9, 0], cols[9, 0]  # the same element twice
    poisoned = jb.bound_each(model, type(batch)(rows, cols, values))
    bad = np.isin(np.arange(70), [3, 5, 7] + [9] * (each > 1))
    assert (np.asarray(poisoned.status)[bad] == int(jb.Status.INVALID)).all()
    assert np.isinf(facts(poisoned)[1][bad]).all()
    for got, want in zip(facts(poisoned), facts(found), strict=True):
        np.testing.assert_array_equal(got[~bad], want[~bad])


def test_scores_of_many_spots_hold_the_retrained_ones():
    model, changes = model_of(), ragged(12, 3)
    X = RNG.normal(size=(3, D))
    interval = jb.bound_each(model, jb.stack(changes), X).scores()
    for b, change in enumerate(changes):
        scores = np.asarray(jb.refit(model, change, tol=1e-12).scores(X))
        assert (np.asarray(interval.lower)[b] <= scores + 1e-9).all()
        assert (scores <= np.asarray(interval.upper)[b] + 1e-9).all()


def test_held_values_are_computed_once():
    """XLA's option exists: without it a value that is read twice is computed twice."""

    def flops(options):
        def run(x):
            y = hold(x * x * x * x * x * x)
            return 2.0 / (y + 1.0), y / (x + 2.0), y * jax.numpy.sqrt(y + 3.0)

        compiled = jax.jit(run, compiler_options=options).lower(np.ones(64, np.float32)).compile()
        return compiled.cost_analysis()["flops"]

    if jax.default_backend() == "cpu":
        assert flops(COMPUTE_ONCE) < flops(None)
