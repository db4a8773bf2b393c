"""Large changes of a batch, asked one at a time: the same bounds, in order, from a few programs."""

from typing import Any

import jax
import numpy as np
import pytest
import scipy.sparse as sp

import jaxbounds as jb
from jaxbounds import large, often
from jaxbounds.batches import groups_of
from jaxbounds.edit import pad
from jaxbounds.often import Ready

N, D = 60, 8


def model_of(sparse, dtype="float64", penalty=None):
    rng = np.random.default_rng(1)
    X = np.where(rng.random((N, D)) < 0.6, rng.normal(size=(N, D)), 0.0).astype(dtype)
    X[:, 0] = np.where(np.arange(N) < 3, X[:, 0], 0.0)  # a column that touches little
    y = np.where(X[:, 1] + 0.3 * rng.normal(size=N) > 0, 1.0, -1.0)
    problem = jb.Problem(jb.losses.smoothed_hinge(0.5), penalty or jb.penalties.l2(0.05))
    return jb.fit(problem, sp.csr_array(X) if sparse else X, y, sample_weight=np.linspace(0.5, 1.5, N), tol=1e-6)


def block(rng, shape, sparse):
    X = np.where(rng.random(shape) < 0.5, rng.normal(size=shape), 0.0)
    return sp.csr_array(X) if sparse else X


def mixed(sparse, seed=0):
    """Small and large changes of several kinds, in no order."""
    rng, changes = np.random.default_rng(seed), []
    for k in range(2):
        for size in (1, 30):
            at = rng.choice(N * D, size, replace=False)
            changes.append(jb.set_elements(at // D, at % D, rng.normal(size=size)))
            rows = rng.choice(N, size, replace=False)
            changes.append(jb.set_rows(rows, block(rng, (size, D), sparse)))
            changes.append(jb.combine(jb.remove_rows(rows), jb.set_penalty(jb.penalties.l2(0.04 + 0.01 * k))))
        changes.append(jb.set_columns([k], block(rng, (N, 1), sparse)))
        changes.append(jb.remove_columns([0, k + 1]))
        changes.append(jb.add_rows(block(rng, (20, D), sparse), np.ones(20)))
    return changes


def facts(bounds):
    moved = bounds.distance
    return [np.asarray(x) for x in (moved.lower, moved.upper, bounds.gap, bounds.radius, bounds.dual_radius)]


@pytest.fixture(params=[0, 10**9], ids=["compiled", "numpy"])
def asked(request, monkeypatch):
    """Large candidates from programs or from NumPy; gives what a loop of `bound` says, always from NumPy."""

    def loop(model, changes, method=None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(often, "OFTEN", 10**9)
            return [np.array(x) for x in zip(*(facts(jb.bound(model, c, method)) for c in changes), strict=True)]

    monkeypatch.setattr(often, "OFTEN", request.param)
    monkeypatch.setattr(large, "_LARGE", 16)
    return loop


CASES = [(True, "float64", jb.Cached()), (False, "float32", jb.Theorem1())]


@pytest.mark.slow
@pytest.mark.parametrize(("sparse", "dtype", "method"), CASES, ids=["sparse", "dense"])
def test_small_and_large_changes_in_one_batch_equal_a_loop(asked, sparse, dtype, method):
    model, changes = model_of(sparse, dtype), mixed(sparse)
    each = jb.bound_each(model, jb.stack(changes), method=method)
    assert (np.asarray(each.status) == 0).all()
    for got, one in zip(facts(each), asked(model, changes, method), strict=True):
        np.testing.assert_allclose(got, one, rtol=1e-9, atol=1e-9)
    again = jb.bound_each(model, jb.stack(changes), method=method, batch_size=3)
    for got, same in zip(facts(again), facts(each), strict=True):
        np.testing.assert_allclose(got, same, rtol=1e-12, atol=1e-12)


def test_large_changes_under_a_penalty_of_another_kind(asked):
    model = model_of(False, penalty=jb.penalties.elastic_net(0.05, 0.01))
    changes = mixed(False)[1:2] + [jb.set_columns([2], np.ones((N, 1)))]
    each = jb.bound_each(model, jb.stack(changes))
    for got, want in zip(facts(each), asked(model, changes), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


def test_a_bad_large_change_is_invalid_alone(asked):
    model, rng = model_of(True), np.random.default_rng(2)
    changes = [jb.set_elements(at // D, at % D, 1.0) for at in (rng.choice(N * D, 20, replace=False) for _ in range(6))]
    batch: Any = jb.stack(changes)
    with jax.enable_x64(True):
        rows, cols, values = np.array(batch.rows), np.array(batch.cols), np.array(batch.values)
    rows[0, 3], cols[1, 2], values[2, 1] = N, -1, np.nan
    rows[3, 1], cols[3, 1] = rows[3, 0], cols[3, 0]  # the same element twice
    found, whole = (jb.bound_each(model, b) for b in (type(batch)(rows, cols, values), batch))
    assert np.asarray(found.status).tolist() == [int(jb.Status.INVALID)] * 4 + [0, 0]
    for got, want in zip(facts(found), facts(whole), strict=True):
        np.testing.assert_array_equal(got[4:], want[4:])
    assert np.isinf(facts(found)[1][:4]).all()
    targets: Any = jb.stack([jb.set_targets(np.arange(20) + k, np.ones(20)) for k in range(3)])
    with jax.enable_x64(True):
        rows = np.array(targets.rows)
    rows[1, 0] = rows[1, 1]
    statuses = jb.bound_each(model, type(targets)(rows, np.asarray(targets.target), None, targets.own)).status
    assert np.asarray(statuses).tolist() == [0, int(jb.Status.INVALID), 0]


def test_large_changes_of_many_sizes_compile_few_programs(monkeypatch):
    monkeypatch.setattr(often, "OFTEN", 0)
    monkeypatch.setattr(large, "_LARGE", 16)
    often._program.cache_clear()
    model, rng = model_of(True), np.random.default_rng(3)
    at = [rng.choice(N * D, size, replace=False) for size in range(33, 65)]
    jb.bound_each(model, jb.stack([jb.set_elements(k // D, k % D, 1.0) for k in at]))
    assert often._program.cache_info().currsize <= 2  # 32 or 64 rows, 8 columns, 64 elements


def test_new_entries_of_sparse_data_count():
    """Dense rows set into sparse data, or added to it, touch all their columns."""
    model = often.Ready(model_of(True)).host
    dense = [jb.set_rows([k], np.ones((1, D))) for k in (0, 1)], [jb.add_rows(np.ones((1, D)), [1.0])] * 2
    for changes in dense:
        (group,) = groups_of(jb.stack(changes))
        assert (large.touched(model, group) >= D).all()


def test_large_changes_are_padded_alike_but_not_to_the_size_of_one_that_is_far_larger():
    """Near ones share their sizes; a huge one among them neither makes them huge nor is held beside them."""
    model = model_of(False)
    edits = [large._alone(model, Ready(model), group, 0) for size in (7, 10, 9, 50, 6, 9, 5)
             for group in groups_of(jb.stack([jb.set_rows(np.arange(size), np.ones((size, D)))]))]  # fmt: skip
    sizes = [asked.sizes for asked in large._alike([*edits[:4], None, *edits[4:]]) if asked is not None]
    alone = [pad(edit).sizes for edit in edits]
    assert sizes == [alone[1]] * 3 + [alone[3]] + [alone[5]] * 3 and alone[0] != alone[1] and alone[4] != alone[5]


def test_elements_do_not_wait_for_each_other():
    """They have their final sizes: each is answered, and let go, before the next one is put together."""
    model, made = model_of(False), []
    known = Ready(model)

    def several():
        for k in range(3):
            made.append(k)
            yield large.arranged(known, np.arange(20), np.full(20, k), np.ones(20))

    for k, _ in enumerate(large._alike(several())):
        assert len(made) == k + 1
