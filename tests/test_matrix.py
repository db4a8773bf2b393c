"""Dense and Sparse: products, rows, columns and the checks of as_matrix."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from jax.experimental import sparse as jsp

from jaxbounds import chunks
from jaxbounds import matrix as matrix_module
from jaxbounds.array import put
from jaxbounds.chunks import check_positions
from jaxbounds.draft import lookup
from jaxbounds.matrix import Dense, Sparse, as_matrix

N, D = 37, 23


def _data(rng, density=0.2):
    X = np.where(rng.random((N, D)) < density, rng.normal(size=(N, D)), 0.0)
    X[5], X[:, 7] = 0.0, 0.0
    X[9] = rng.normal(size=D)
    X[9, 7] = 0.0
    return X


FORMS = {
    "dense": lambda X: X,
    "fortran": np.asfortranarray,
    "big-endian": lambda X: X.astype(">f8"),
    "read-only": lambda X: np.frombuffer(X.tobytes()).reshape(X.shape),
    "lists": lambda X: X.tolist(),
    "csr": sp.csr_array,
    "csr_matrix": sp.csr_matrix,
    "csc": sp.csc_array,
    "coo": sp.coo_array,
    "lil": sp.lil_array,
}


@pytest.mark.parametrize("form", FORMS)
def test_products_rows_and_columns(form):
    rng = np.random.default_rng(0)
    X = _data(rng)
    w, t, p = rng.normal(size=D), rng.normal(size=N), rng.random(N)
    matrix = as_matrix(FORMS[form](X))
    assert matrix.shape == (N, D) and matrix.dtype == np.float64
    with jax.enable_x64(True):
        np.testing.assert_allclose(jax.jit(lambda m, v: m.matvec(v))(matrix, jnp.asarray(w)), X @ w, atol=1e-13)
        np.testing.assert_allclose(jax.jit(lambda m, v: m.rmatvec(v))(matrix, jnp.asarray(t)), X.T @ t, atol=1e-13)
        normal = matrix.normal(jnp.asarray(p), jnp.asarray(w))
        np.testing.assert_allclose(normal, X.T @ (p * (X @ w)), atol=1e-12)
        np.testing.assert_allclose(matrix.map(jnp.abs).matvec(jnp.abs(jnp.asarray(w))), abs(X) @ abs(w), atol=1e-13)
        np.testing.assert_array_equal(matrix.to_dense(), X)
        host = matrix.to_scipy()
        np.testing.assert_array_equal(host.toarray() if sp.issparse(host) else host, X)
        idx = np.array([9, 5, 0, 9 + 4])
        for take, truth in ((lambda m, i: m.rows(i), X[idx]), (lambda m, i: m.columns(i), X.T[idx])):
            for result in (take(matrix, idx), jax.jit(take)(matrix, jnp.asarray(idx))):
                slot, other, value = (np.asarray(a) for a in result)
                built = np.zeros_like(truth)
                np.add.at(built, (slot, other), value)
                np.testing.assert_array_equal(built, truth)
        assert isinstance(matrix.rows(idx)[2], np.ndarray)
        assert matrix.nnz == (np.count_nonzero(X) if isinstance(matrix, Sparse) else X.size)
    assert matrix.row_terms >= np.count_nonzero(X, axis=1).max()
    assert matrix.col_terms >= np.count_nonzero(X, axis=0).max()


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("blocks", [1, 5])
def test_float32_values_give_float64_results(kind, blocks, monkeypatch):
    rng = np.random.default_rng(1)
    X = _data(rng).astype(np.float32)
    if blocks > 1:
        monkeypatch.setattr(matrix_module, "_BLOCK_ENTRIES", 8 * D)
    matrix = as_matrix(X if kind == "dense" else sp.csr_array(X))
    assert matrix.dtype == np.float32
    w, t, p = rng.normal(size=D), rng.normal(size=N), rng.random(N)
    exact = X.astype(np.float64)
    with jax.enable_x64(True):
        for out, truth in (
            (matrix.matvec(jnp.asarray(w)), exact @ w),
            (matrix.rmatvec(jnp.asarray(t)), exact.T @ t),
            (matrix.normal(jnp.asarray(p), jnp.asarray(w)), exact.T @ (p * (exact @ w))),
        ):
            assert out.dtype == np.float64
            np.testing.assert_allclose(out, truth, atol=1e-13)


def test_products_under_vmap_and_grad():
    rng = np.random.default_rng(2)
    X = _data(rng)
    W = rng.normal(size=(3, D))
    for matrix in (as_matrix(X), as_matrix(sp.csr_array(X))):
        with jax.enable_x64(True):
            np.testing.assert_allclose(jax.vmap(matrix.matvec)(jnp.asarray(W)), W @ X.T, atol=1e-13)
            grad = jax.grad(lambda w, m=matrix: jnp.sum(m.matvec(w) ** 2))(jnp.asarray(W[0]))
            np.testing.assert_allclose(grad, 2 * X.T @ (X @ W[0]), atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_gradients_are_taken_outside_the_64_bit_scope(kind, dtype, monkeypatch):
    monkeypatch.setattr(matrix_module, "_BLOCK_ENTRIES", 8 * D)
    X = _data(np.random.default_rng(2)).astype(dtype)
    matrix = as_matrix(kind(X))
    with jax.enable_x64(True):
        w, t = jnp.linspace(-1.0, 1.0, D), jnp.linspace(1.0, 2.0, N)

    def forward(w):
        with jax.enable_x64(True):
            return jnp.sum(matrix.matvec(w) ** 2)

    def backward(t):
        with jax.enable_x64(True):
            return jnp.sum(matrix.rmatvec(t) ** 2)

    exact, w_, t_ = X.astype(np.float64), np.asarray(w), np.asarray(t)
    for grad, truth in (
        (jax.jit(jax.grad(forward))(w), 2 * exact.T @ (exact @ w_)),
        (jax.grad(backward)(t), 2 * exact @ (exact.T @ t_)),
    ):
        assert grad.dtype == np.float64
        np.testing.assert_allclose(grad, truth, atol=1e-12)


def test_dtypes():
    X = np.eye(3)
    for dtype, stored in ((np.int8, "float64"), (bool, "float64"), (np.float16, "float32"), (np.float32, "float32")):
        assert str(as_matrix(X.astype(dtype)).dtype) == stored
        if dtype is not np.float16:  # scipy has no sparse float16
            assert str(as_matrix(sp.csr_array(X.astype(dtype))).dtype) == stored
    assert as_matrix(jnp.eye(3, dtype=jnp.bfloat16)).dtype == np.float32
    for bad in (X.astype(complex), X.astype(object), X.astype(str)):
        with pytest.raises(TypeError, match="features has dtype"):
            as_matrix(bad, "features")


def test_jax_sparse_with_padding():
    X = _data(np.random.default_rng(3)).astype(np.float32)
    padded = jsp.BCOO.fromdense(jnp.asarray(X), nse=np.count_nonzero(X) + 9)
    for form in (padded, jsp.BCSR.fromdense(jnp.asarray(X))):
        np.testing.assert_array_equal(as_matrix(form).to_scipy().toarray(), X)
    np.testing.assert_array_equal(jax.jit(lambda m: as_matrix(m).values)(padded), X)


def test_duplicates_are_summed_and_the_input_is_left_alone():
    data, rows, cols = np.array([1.0, 2.0, 4.0]), np.array([0, 0, 1]), np.array([1, 1, 0])
    coo = sp.coo_array((data, (rows, cols)), shape=(2, 2))
    np.testing.assert_array_equal(as_matrix(coo).to_scipy().toarray(), [[0, 3], [4, 0]])
    csr = sp.csr_array((np.array([1.0, 2.0, 5.0, 4.0]), np.array([1, 1, 0, 0]), np.array([0, 3, 4])), shape=(2, 2))
    matrix = as_matrix(csr)
    np.testing.assert_array_equal(matrix.to_scipy().toarray(), [[5, 3], [4, 0]])
    assert csr.nnz == 4 and matrix.nnz == 3


def test_arrays_are_copied():
    X = np.eye(3)
    matrix = as_matrix(X)
    X[0, 0] = 7.0
    assert float(matrix.values[0, 0]) == 1.0


def test_as_many_chunks_as_rows():
    X = np.zeros((32, 70))
    X[0] = 1.0
    for j in range(1, 30):
        X[j, j] = 2.0
    matrix = as_matrix(sp.csr_array(X))
    with jax.enable_x64(True):
        np.testing.assert_array_equal(matrix.matvec(jnp.ones(70)), X.sum(axis=1))
        np.testing.assert_array_equal(matrix.rmatvec(jnp.ones(32)), X.sum(axis=0))


def test_all_zero_sparse():
    matrix = as_matrix(sp.csr_array((4, 3)))
    with jax.enable_x64(True):
        np.testing.assert_array_equal(matrix.matvec(jnp.ones(3)), np.zeros(4))
        np.testing.assert_array_equal(matrix.rmatvec(jnp.ones(4)), np.zeros(3))
        assert matrix.rows(np.array([1]))[2].size == 0 and matrix.columns(np.array([1]))[2].size == 0


def test_refusals():
    bad = np.eye(3)
    bad[1, 2] = np.nan
    for form in (bad, sp.csr_array(bad), jnp.asarray(bad, jnp.float32)):
        with pytest.raises(ValueError, match=r"X\[1, 2\] is nan"):
            as_matrix(form)
    with pytest.raises(ValueError, match="two-dimensional"):
        as_matrix(np.ones(3))
    with pytest.raises(ValueError, match="empty"):
        as_matrix(np.ones((0, 3)))
    with pytest.raises(ValueError, match="32-bit"):
        as_matrix(sp.coo_array(([1.0], ([0], [3_000_000_000])), shape=(2, 3_000_000_001)))
    with pytest.raises(ValueError, match="split the rows"):
        check_positions(2**31, "X")
    with pytest.raises(ValueError, match="masked"):
        as_matrix(np.ma.masked_equal(np.eye(2), 0.0))


def test_similar_sizes_share_shapes():
    rng = np.random.default_rng(4)
    first = sp.csr_array(rng.random((300, 50)) * (rng.random((300, 50)) < 0.3))
    second = first.copy()
    second.data[:5] = 0.0
    second.eliminate_zeros()
    a, b = as_matrix(first), as_matrix(second)
    assert jax.tree.structure(a) == jax.tree.structure(b)
    assert [x.shape for x in jax.tree.leaves(a)] == [x.shape for x in jax.tree.leaves(b)]


def test_tracers_give_dense():
    with jax.enable_x64(True):
        out = jax.jit(lambda X: as_matrix(X).matvec(jnp.ones(2)))(jnp.asarray([[1.0, 2.0], [3.0, 4.0]]))
    np.testing.assert_array_equal(out, [3.0, 7.0])
    assert isinstance(as_matrix(np.eye(2)), Dense)


def test_single_entries():
    """Bisection in the padded rows of sparse data, empty rows and rows of any length."""
    rng = np.random.default_rng(5)
    for n, d, density in ((1, 1, 0.5), (9, 40, 0.02), (12, 90, 0.3), (5, 70, 0.95), (4, 6, 0.0)):
        X = sp.csr_array(rng.normal(size=(n, d)) * (rng.random((n, d)) < density))
        rows, cols = rng.integers(0, n, 300), rng.integers(0, d, 300)
        for matrix in (as_matrix(X), as_matrix(X.toarray())):
            np.testing.assert_array_equal(lookup(matrix, rows, cols, np), X.toarray()[rows, cols])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_by_blocks_are_those_of_the_whole(dtype, monkeypatch):
    """In a batch and in derivatives too; the last block overlaps the one before it."""
    rng = np.random.default_rng(0)
    X = sp.csr_array(np.where(rng.random((301, 203)) < 0.2, rng.normal(size=(301, 203)), 0.0).astype(dtype))
    matrix: Any = as_matrix(X)
    W, T = rng.normal(size=(3, 203)), rng.normal(size=(3, 301))

    def others(m, t):
        return m.by_col.reduce(t, jnp.abs), m.by_row.reduce(None, jnp.square)

    def found(matrix):
        chunks._reduce.clear_cache()
        with jax.enable_x64(True):
            products = [
                jax.jit(lambda m, w, t: (m.matvec(w), m.rmatvec(t), *others(m, t))),
                jax.jit(jax.vmap(lambda m, w, t: (m.matvec(w), m.rmatvec(t)), in_axes=(None, 0, 0))),
                jax.jit(jax.grad(lambda m, w, t: jnp.sum(jnp.sin(m.matvec(w))) + jnp.sum(m.rmatvec(t) ** 3), (1, 2))),
            ]
            calls = [(matrix, W[0], T[0]), (matrix, W, T), (matrix, W[0], T[0])]
            return [np.asarray(a) for f, args in zip(products, calls, strict=True) for a in f(*put(args))]

    whole = found(matrix)
    monkeypatch.setattr(chunks, "_LARGE", 1)
    monkeypatch.setattr(chunks, "_AT_ONCE", 100)
    assert min(part.owner.size for part in (matrix.by_row, matrix.by_col)) > 200
    blocks = found(matrix)
    split: Any = as_matrix(X)  # with the ends of its columns apart
    assert matrix.by_col.rest is None and split.by_col.rest.owner.size > 100
    for found_now in (blocks, found(split)):
        for one, other in zip(whole, found_now, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    chunks._reduce.clear_cache()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_columns_whose_ends_lie_apart_hold_the_same_entries(dtype, monkeypatch):
    monkeypatch.setattr(chunks, "_LARGE", 1)
    rng = np.random.default_rng(0)
    X = np.where(rng.random((61, 43)) < rng.random(43) ** 3, rng.normal(size=(61, 43)), 0.0).astype(dtype)
    X[:, 0], X[:, 1], X[:, 2] = 1.0, 0.0, np.arange(61) < 16
    matrix: Any = as_matrix(sp.csr_array(X))
    columns, longest = np.array([2, 0, 1, 40, 2]), np.count_nonzero(X, axis=0).max()
    host, idx = jax.tree.map(np.asarray, matrix.by_col), jnp.asarray(columns, jnp.int32)
    assert longest <= matrix.by_col.longest() <= longest + 8 and matrix.col_terms >= longest
    np.testing.assert_array_equal(matrix.to_scipy().toarray(), X)
    with jax.enable_x64(True):
        traced = jax.jit(lambda m, i: m.columns(i))(matrix, idx)
    for slot, row, value in (matrix.columns(columns), traced):
        assert np.all(np.diff(slot) >= 0)
        out = np.zeros((5, 61), dtype)
        np.add.at(out, (np.asarray(slot), np.asarray(row)), np.asarray(value))
        np.testing.assert_array_equal(out, X[:, columns].T)
    with jax.enable_x64(True):
        np.testing.assert_array_equal(jax.jit(lambda m, i: m.by_col.dense(i, 61))(matrix, idx), X[:, columns])
    np.testing.assert_array_equal(host.at(np.arange(43), np.arange(43)), np.diag(X[:43]))
