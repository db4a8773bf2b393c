"""The memory that training on sparse data takes, in multiples of the data: values, column numbers and row pointers."""

import dataclasses
import tracemalloc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

import jaxbounds as jb
from jaxbounds import chunks, model
from jaxbounds.array import put
from jaxbounds.matrix import as_matrix, one_way
from jaxbounds.model import Data, remember
from jaxbounds.solvers import NewtonCG, Task

N, D, EACH = 6000, 4000, 160
PROBLEM = jb.Problem(jb.losses.logistic(), jb.penalties.l2(1e-3))


def drawn(dtype: type) -> Any:
    """EACH entries a row, evenly spaced; columns of any length."""
    rng = np.random.default_rng(0)
    columns = np.sort((rng.integers(D, size=(N, 1)) + np.arange(0, D, D // EACH)) % D, axis=1).astype(np.int32)
    start = np.arange(0, N * EACH + 1, EACH, dtype=np.int32)
    return sp.csr_array((rng.random(N * EACH).astype(dtype) + 1, columns.reshape(-1), start), shape=(N, D))


def size(X: Any) -> int:
    return X.data.nbytes + X.indices.nbytes + X.indptr.nbytes


def peak(call) -> int:
    """The most bytes at a time that Python and NumPy held for a call, once what is loaded at first is there."""
    call()
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_both_layouts_take_little_more_than_twice_the_data(dtype):
    X = drawn(dtype)
    assert peak(lambda: as_matrix(X)) < 2.6 * size(X)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_short_columns_take_little_padding(dtype, monkeypatch):
    """Most columns of large data hold one entry or two: chunks of one width take 2.7 times the data."""
    monkeypatch.setattr(chunks, "_LARGE", 1)
    monkeypatch.setattr(chunks, "_MANY", 1 << 10)
    rng = np.random.default_rng(0)
    columns = (30_000 * rng.random((10_000, 47)) ** 4).astype(np.int32)
    X = sp.csr_array((np.ones(columns.size, dtype), columns.reshape(-1), np.arange(0, columns.size + 1, 47)))
    X.sum_duplicates()
    X.indptr = X.indptr.astype(np.int32)
    assert sum(leaf.nbytes for leaf in jax.tree.leaves(as_matrix(X))) < 2.35 * size(X)
    assert peak(lambda: as_matrix(X)) < 2.8 * size(X)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_a_model_remembers_is_computed_without_a_copy_of_the_data(dtype, monkeypatch):
    monkeypatch.setattr(model, "_LARGE", 1)
    X, rng = drawn(dtype), np.random.default_rng(1)
    with jax.enable_x64(True):
        data = put(Data(as_matrix(X), np.where(rng.random(N) < 0.5, 1.0, -1.0), np.ones(N)))
        w, alpha, ref = put((rng.normal(size=D).astype(dtype), rng.random(N), rng.normal(size=N)))
    assert peak(lambda: remember(PROBLEM, data, w, alpha, ref)) < 0.3 * size(X)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_solver_takes_vectors_alone_beside_the_data(dtype):
    """Of data too large to be drawn here, 100 times those above, whose shapes are all that is compiled."""
    small: Any = as_matrix(drawn(np.float32))
    times, most = 100, 0.02 * 100 * size(drawn(dtype))

    def longer(part):
        chunks, kinds = part.owner.shape[0] * times, {"data": dtype, "indices": np.int32, "owner": np.int32}
        shapes = {key: (chunks, *getattr(part, key).shape[1:]) for key in kinds}
        return dataclasses.replace(part, **{key: jax.ShapeDtypeStruct(shapes[key], kinds[key]) for key in kinds})

    matrix: Any = one_way(dataclasses.replace(small, by_row=longer(small.by_row), by_col=longer(small.by_col)))
    vectors: Any = [jax.ShapeDtypeStruct((k,), jnp.float64) for k in (N, D)]
    rows, columns = vectors
    task = Task(PROBLEM.loss, PROBLEM.penalty, matrix, rows, rows, differentiable=False)
    with jax.enable_x64(True):
        solve = jax.jit(lambda task, w, alpha: NewtonCG().solve(task, task.matrix, task.y, task.c, w, alpha, 1e-6, 100))
        used: Any = solve.lower(task, columns, rows).compile().memory_analysis()
        magnitudes: Any = chunks._reduce.lower(matrix.by_col, rows, jnp.abs).compile().memory_analysis()
    assert used.temp_size_in_bytes < most and magnitudes.temp_size_in_bytes < most
