"""Single bounds that are asked often: the compiled answers are those of NumPy, and what is asked later is the same."""

import copy
import pickle
import re
from typing import Any

import jax
import numpy as np
import pytest
import scipy.sparse as sp

import jaxbounds as jb
from jaxbounds import often, slots, sweeps
from jaxbounds import scattered as scattered_elements
from jaxbounds.chunks import make_chunks

N, D = 40, 6
LOSSES = {"smoothed_hinge": lambda: jb.losses.smoothed_hinge(0.5), "squared": jb.losses.squared}


def model_of(loss="smoothed_hinge", dtype="float64", sparse=False, lam=0.05):
    rng = np.random.default_rng(1)
    X = np.where(rng.random((N, D)) < 0.7, rng.normal(size=(N, D)), 0.0).astype(dtype)
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=N) > 0, 1.0, -1.0)
    problem = jb.Problem(LOSSES[loss](), jb.penalties.l2(lam))
    X = sp.csr_array(X) if sparse else X
    return jb.fit(problem, X, y, sample_weight=np.linspace(0.5, 1.5, N), tol=1e-6)


def elements(size, seed=0) -> Any:
    rng = np.random.default_rng(seed)
    at = rng.choice(N * D, size, replace=False)
    return jb.set_elements(at // D, at % D, rng.normal(size=size))


def facts(bounds):
    moved = bounds.distance
    return [float(x) for x in (moved.lower, moved.upper, bounds.gap, bounds.radius, bounds.dual_radius, bounds.status)]


def is_compiled(bounds):
    return isinstance(bounds.found, jax.Array)


def both(monkeypatch, model, change, method=None):
    """The bounds of NumPy and those of the compiled program."""
    monkeypatch.setattr(often, "OFTEN", 10**9)
    host = jb.bound(model, change, method)
    monkeypatch.setattr(often, "OFTEN", 0)
    return host, jb.bound(model, change, method)


CASES = [("smoothed_hinge", "float64", False, jb.Cached()), ("squared", "float64", True, jb.Cached()),
         ("smoothed_hinge", "float32", True, jb.Theorem1())]  # fmt: skip


@pytest.mark.parametrize(("loss", "dtype", "sparse", "method"), CASES, ids=str)
def test_compiled_elements_equal_numpy_and_hold_the_truth(monkeypatch, loss, dtype, sparse, method):
    model = model_of(loss, dtype, sparse)
    for seed in range(4):
        change = elements(16, seed)  # they share rows and columns
        host, compiled = both(monkeypatch, model, change, method)
        assert is_compiled(compiled)
        np.testing.assert_allclose(facts(compiled), facts(host), rtol=1e-9, atol=1e-9)
        new = jb.refit(model, change, tol=1e-12)
        moved = np.linalg.norm(np.asarray(new.w, np.float64) - np.asarray(model.w, np.float64))
        slack = 1e-5 if dtype == "float32" else 1e-9
        assert facts(compiled)[0] - slack <= moved <= facts(compiled)[1] + slack


@pytest.mark.parametrize(("loss", "dtype", "sparse", "method"), CASES, ids=str)
def test_one_element_reads_no_vector_of_the_model(monkeypatch, loss, dtype, sparse, method):
    model = model_of(loss, dtype, sparse)
    for row, col, new in ((0, 0, 0.5), (N - 1, D - 1, -2.0), (7, 3, 0.0)):
        host, compiled = both(monkeypatch, model, jb.set_elements([row], [col], new), method)
        assert is_compiled(compiled)
        np.testing.assert_allclose(facts(compiled), facts(host), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(compiled.w().upper, host.w().upper, rtol=1e-12)
    known = often.ready(model)
    (program,) = known._programs.values()
    change = scattered_elements.scattered(known, jb.set_elements([1], [2], 3.0))
    leaves = jax.tree.leaves((method, change))
    with jax.enable_x64(True):
        made = program._run.lower(known.memory[1], program._pack.join(leaves)).compile()
    read = re.findall(r"\[(\d+)\]\S* parameter", made.as_text().split("ENTRY")[1])
    assert read and max(map(int, read)) <= 64  # so that XLA runs it in one thread: 512 bytes


def test_compiled_changes_of_rows_equal_numpy(monkeypatch):
    model, rng = model_of(), np.random.default_rng(3)
    rows = np.array([4, 11, 30])
    y = -np.asarray(model.rows.target)[rows]
    changes = [jb.combine(jb.remove_rows(rows[:1]), jb.set_rows(rows[1:], rng.normal(size=(2, D)), y[1:])),
               jb.combine(jb.set_weights(rows, 2.0), jb.set_penalty(jb.penalties.l2(0.1)))]  # fmt: skip
    for change in changes:
        host, compiled = both(monkeypatch, model, change)
        assert is_compiled(compiled)
        np.testing.assert_allclose(facts(compiled), facts(host), rtol=1e-9, atol=1e-9)


def test_what_is_asked_later_is_what_numpy_says(monkeypatch):
    model, X = model_of(), np.random.default_rng(2).normal(size=(3, D))
    host, compiled = both(monkeypatch, model, elements(16))
    copies = [compiled, copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled)), jax.jit(lambda b: b)(compiled)]
    for found in copies:
        for got, want in ((found.scores(X), host.scores(X)), (found.w(), host.w()), (found.alpha([1]), host.alpha([1])),
                          (found.distance, host.distance)):  # fmt: skip
            np.testing.assert_allclose(got.lower, want.lower, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(got.upper, want.upper, rtol=1e-12, atol=1e-12)
    assert (np.asarray(compiled.row_map) == np.arange(N)).all()
    assert jax.tree.structure(compiled) == jax.tree.structure(host)


def test_a_program_is_made_for_frequent_questions_and_serves_models_of_the_same_shapes(monkeypatch):
    monkeypatch.setattr(often, "OFTEN", 3)
    often._program.cache_clear()
    model, other = model_of(), model_of(lam=0.07)
    found = [jb.bound(model, elements(16, k)) for k in range(4)]
    assert [is_compiled(bounds) for bounds in found] == [False, False, False, True]
    late = jb.bound(other, elements(16, 1))
    assert is_compiled(late)
    _, want = both(monkeypatch, other, elements(16, 1))
    assert facts(late) == facts(want)


def test_numbers_of_a_model_that_can_be_written_to_are_read_anew(monkeypatch):
    monkeypatch.setattr(often, "OFTEN", 0)
    with jax.enable_x64(True):
        model = jax.tree.map(np.array, model_of())  # a user's own
    before = facts(jb.bound(model, elements(3)))
    model.totals.fenchel[...] += 1.0
    assert facts(jb.bound(model, elements(3)))[1] > before[1]


def test_repeated_elements_and_bad_numbers():
    model = model_of()
    with pytest.raises(ValueError, match=r"element 2, \(3, 1\), is repeated"):
        jb.set_elements([3, 4, 3], [1, 0, 1], 1.0)
    with pytest.raises(ValueError, match=rf"rows\[1\] = {N} is not a row of the data, which has {N}"):
        jb.bound(model, jb.set_elements([0, N], [1, 1], 1.0))
    with pytest.raises(ValueError, match=rf"cols\[0\] = {D} is not a column of the data, which has {D}"):
        jb.bound(model, jb.set_elements([0], [D], 1.0))
    twice = type(elements(1))(np.array([3, 3]), np.array([1, 1]), np.array([5.0, 7.0]))  # not what a constructor makes
    once = jb.set_elements(3, 1, 7.0)
    np.testing.assert_allclose(facts(jb.bound(model, twice)), facts(jb.bound(model, once)), 1e-9, 1e-9)


def test_grouping_lists_each_row_and_column_once():
    known = often.Ready(model_of())
    model = known.host
    for seed, size in enumerate((1, 2, 7, 40, 200)):
        change = elements(size, seed)
        found = scattered_elements.scattered(known, change)
        assert found is not None
        edit = found.edit(model)
        rows, cols = edit.rows[edit.rows < N], edit.cols[edit.cols < D]
        np.testing.assert_array_equal(np.sort(rows), np.unique(change.rows))
        np.testing.assert_array_equal(np.sort(cols), np.unique(change.cols))
        table = np.zeros((N, D))
        table[edit.rows[edit.row[:size]], edit.cols[edit.col[:size]]] = edit.new[:size]
        want = np.zeros((N, D))
        want[change.rows, change.cols] = change.values
        np.testing.assert_array_equal(table, want)
        old = np.asarray(model.data.matrix.values)[edit.rows[edit.row[:size]], edit.cols[edit.col[:size]]]
        np.testing.assert_array_equal(edit.old[:size], old)


def test_equal_numbers_have_one_leader_and_others_another():
    """Also where many share a slot of the hash table: multiples of 2^60 all do."""
    rng = np.random.default_rng(0)
    for numbers in (rng.integers(0, 2**40, 500), rng.integers(0, 99, 500), np.arange(300), np.array([7]),
                    np.repeat(np.arange(8) << 60, 3), np.arange(2000) // 3 * 2**31):  # fmt: skip
        leader = slots.leaders(numbers)
        np.testing.assert_array_equal(numbers[leader], numbers)
        assert np.unique(leader).size == np.unique(numbers).size
        assert slots.repeated(numbers) == (np.unique(numbers).size < numbers.size)
        found, place = slots.grouped(numbers, 2**63)
        np.testing.assert_array_equal(found[place], numbers)
        assert np.unique(found).size == found.size


def test_an_element_named_twice_among_many_goes_the_long_way():
    known, change = often.Ready(model_of()), elements(100)
    at = np.append(np.arange(100), 57)
    twice = type(change)(change.rows[at], change.cols[at], np.append(change.values, 0.5))
    assert scattered_elements.scattered(known, twice) is None
    once = type(change)(change.rows, change.cols, np.where(np.arange(100) == 57, 0.5, change.values))
    model = model_of()
    np.testing.assert_allclose(facts(jb.bound(model, twice)), facts(jb.bound(model, once)), 1e-9, 1e-9)


def test_changes_keep_their_values_at_a_jit_boundary():
    """They are NumPy arrays, which jax cuts to float32 with x64 off; and no alias of the caller's arrays."""
    values = np.array([1.0 + 1e-12])
    change: Any = jb.set_elements([0], [0], values)
    values[0] = 5.0
    assert float(change.values[0]) == 1.0 + 1e-12

    def kept(change):
        with jax.enable_x64(True):
            return change.values - 1.0 > 1e-13

    assert bool(jax.jit(kept)(change)[0])
    assert jb.stack([change, change]).values.shape == (2, 1)


def test_stored_values_are_found_by_bisection():
    for seed, density in enumerate((0.0, 0.05, 0.4, 1.0)):
        rng = np.random.default_rng(seed)
        X = np.where(rng.random((13, 37)) < density, rng.normal(size=(13, 37)), 0.0).astype(np.float32)
        chunks = make_chunks(sp.csr_array(X), "X")
        rows, cols = rng.integers(0, 13, 200), rng.integers(0, 37, 200)
        host = jax.tree.map(np.asarray, chunks)
        np.testing.assert_array_equal(host.at(rows, cols), X[rows, cols])
        np.testing.assert_array_equal(jax.jit(lambda c, r, j: c.at(r, j))(chunks, rows, cols), X[rows, cols])


def test_programs_find_the_old_values_of_many_elements(monkeypatch):
    """Sparse data are looked up for one element by NumPy, for more by a program: both know what the data held."""
    model = model_of(sparse=True)
    for size in (1, 7, 40):
        found = scattered_elements.scattered(often.Ready(model), elements(size))
        assert found is not None and (found.matrix is None) == (size == 1)
        host, compiled = both(monkeypatch, model, elements(size))
        np.testing.assert_allclose(facts(compiled), facts(host), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(compiled.w().lower, host.w().lower, rtol=1e-12, atol=1e-12)


def test_small_batches_are_compiled_once_they_came_often(monkeypatch):
    monkeypatch.setattr(often, "OFTEN", 1)
    model, before = model_of(lam=0.06), sweeps._each_block._cache_size()
    batch = jb.stack([elements(3, seed) for seed in range(20)])
    found = [facts_each(jb.bound_each(model, batch)) for _ in range(3)]
    assert sweeps._each_block._cache_size() == before + 1
    np.testing.assert_allclose(found[2], found[0], rtol=1e-9, atol=1e-9)


def facts_each(each):
    return [np.asarray(x) for x in (each.distance.lower, each.distance.upper, each.gap, each.radius, each.dual_radius)]
