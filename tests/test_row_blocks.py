"""RowBlocks and checkpoints: data that are read a block of rows at a time, and fits that go on after a kill."""

import copy
import os
import pickle
import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
import scipy.sparse as sp

import jaxbounds as jb
from jaxbounds import row_files
from jaxbounds.array import put
from jaxbounds.matrix import as_matrix
from jaxbounds.model import Data, remember
from jaxbounds.pytree import in_float64

N, D = 61, 23


def table(rng, dtype: Any = np.float64, density=0.25) -> Any:
    """Rows, one of them empty and one full, and an empty column."""
    X = np.where(rng.random((N, D)) < density, rng.normal(size=(N, D)), 0.0).astype(dtype)
    X[5], X[9] = 0.0, rng.normal(size=D)
    X[:, 7] = 0.0
    return X


def npz(folder, X, **options):
    sp.save_npz(folder / "X.npz", sp.csr_array(X), **{"compressed": False, **options})
    return folder / "X.npz"


def npy(folder, X):
    np.save(folder / "X.npy", X)
    return folder / "X.npy"


def three_arrays(folder, X):
    csr = sp.csr_array(X)
    for name in ("data", "indices", "indptr"):
        array = getattr(csr, name)
        np.save(folder / f"{name}.npy", array.astype(np.int64) if name == "indices" else array)
    return folder


class Again:
    """Blocks of rows that can be read again."""

    def __init__(self, X):
        self.X = X

    def __iter__(self):
        return (self.X[k : k + 17] for k in range(0, N, 17))


SOURCES = {
    "npz": npz,
    "npy": npy,
    "folder": three_arrays,
    "array": lambda folder, X: X,
    "csr": lambda folder, X: sp.csr_array(X),
    "unsorted": lambda folder, X: sp.csr_array(sp.csr_array(X)[:, np.random.default_rng(1).permutation(D)]),
    "list": lambda folder, X: [npz(folder, X[:20]), sp.coo_array(X[20:21]), sp.csc_array(X[21:])],
    "iterable": lambda folder, X: Again(X),
    "function": lambda folder, X: lambda: iter(Again(sp.csr_array(X))),
}


@pytest.fixture
def small_pieces(monkeypatch):
    """Blocks of a few rows."""
    monkeypatch.setattr(row_files, "_DENSE", 100)
    monkeypatch.setattr(row_files, "_SPARSE", 30)
    monkeypatch.setattr(row_files, "_PER_COLUMN", 2)


def written_out(entries, shape):
    """(slot, other, value) as an array."""
    out = np.zeros(shape)
    np.add.at(out, tuple(np.asarray(part) for part in entries[:2]), np.asarray(entries[2], np.float64))
    return out


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("source", SOURCES)
def test_products_and_entries(source, dtype, tmp_path, small_pieces):
    rng = np.random.default_rng(3)
    X = table(rng, dtype)
    blocks = jb.RowBlocks(SOURCES[source](tmp_path, X), columns=D if source == "folder" else None)
    if source == "unsorted":
        X = X[:, np.random.default_rng(1).permutation(D)]
    exact = X.astype(np.float64)
    assert blocks.shape == (N, D) and blocks.dtype == dtype and as_matrix(blocks) is blocks
    assert blocks.nnz == (np.count_nonzero(X) if blocks.sparse else X.size)
    counts = np.count_nonzero(X, axis=1).max(), np.count_nonzero(X, axis=0).max()
    assert (blocks.row_terms, blocks.col_terms) == (counts if blocks.sparse else (D, N))
    whole = blocks.load()
    np.testing.assert_array_equal(whole.toarray() if blocks.sparse else whole, X)
    w, t, c = rng.normal(size=D), rng.normal(size=N), rng.random(N)
    np.testing.assert_allclose(blocks.matvec(w), exact @ w, atol=1e-13)
    np.testing.assert_allclose(blocks.rmatvec(t), exact.T @ t, atol=1e-13)
    np.testing.assert_allclose(blocks.normal(c, w), exact.T @ (c * (exact @ w)), atol=1e-12)
    np.testing.assert_allclose(blocks.map(np.abs).map(np.square).matvec(w), exact**2 @ w, atol=1e-12)
    C = sp.csc_array(np.where(rng.random((D, 4)) < 0.5, 1.5, 0.0))
    np.testing.assert_allclose(blocks.matmat(C), exact @ C.toarray(), atol=1e-12)
    rows, cols = np.array([9, 5, 60, 0, 5]), np.array([22, 7, 0, 0])
    np.testing.assert_array_equal(written_out(blocks.rows(rows), (5, D)), X[rows])
    np.testing.assert_array_equal(written_out(blocks.columns(cols), (4, N)), X[:, cols].T)
    i, j = rng.integers(0, N, 40), rng.integers(0, D, 40)
    np.testing.assert_array_equal(blocks.at(i, j), X[i, j])
    assert blocks.rows(rows)[2].dtype == blocks.at(i, j).dtype == dtype


@pytest.mark.parametrize("sparse", [False, True])
def test_inside_jit_vmap_and_grad(sparse):
    rng = np.random.default_rng(4)
    X = table(rng)
    blocks = jb.RowBlocks(sp.csr_array(X) if sparse else X)
    w = rng.normal(size=D)
    with jax.enable_x64(True):
        np.testing.assert_array_equal(jax.jit(blocks.matvec)(w), blocks.matvec(w))
        np.testing.assert_array_equal(jax.vmap(blocks.matvec, 1, 1)(jnp.eye(D)), X)
        np.testing.assert_allclose(jax.jacrev(blocks.matvec)(jnp.asarray(w)), X, atol=1e-15)
        np.testing.assert_allclose(jax.jacfwd(blocks.rmatvec)(jnp.ones(N)), X.T, atol=1e-15)
        rows, cols = np.array([9, 5, 0]), np.array([22, 7])
        found = jax.jit(lambda rows, cols: (blocks.rows(rows), blocks.columns(cols)))(rows, cols)
        np.testing.assert_array_equal(written_out(found[0], (3, D)), X[rows])
        np.testing.assert_array_equal(written_out(found[1], (2, N)), X[:, cols].T)
        np.testing.assert_array_equal(jax.jit(blocks.at)(rows, rows), X[rows, rows])


def test_sums_over_blocks_stay_within_their_allowances(small_pieces):
    """v and the scores of a model on blocks against exact rational sums, with terms that cancel."""
    rng = np.random.default_rng(5)
    X = (table(rng, np.float32) * np.float32(10) ** rng.integers(-6, 7, (N, D))).astype(np.float32)
    for values in (X, sp.csr_array(X)):
        model = untrained(jb.RowBlocks(values), rng)
        w, t = np.asarray(model.w, np.float64), np.asarray(model.rows.target * model.rows.weight * model.alpha) / N
        for i in range(0, N, 7):
            exact = sum(Fraction(float(x)) * Fraction(float(v)) for x, v in zip(X[i], w, strict=True))
            pad = (D + 4) * 2.0**-53 * float(model.rows.score_abs[i])
            assert abs(Fraction(float(model.rows.score[i])) - exact) <= Fraction(pad) + Fraction(1e-300)
        for j in range(D):
            exact = sum(Fraction(float(x)) * Fraction(float(v)) for x, v in zip(X[:, j], t, strict=True))
            assert abs(Fraction(float(model.columns.v[j])) - exact) <= Fraction(float(model.columns.v_pad[j]))


@in_float64
def untrained(matrix, rng, intercept=False) -> Any:
    """A model that nobody trained, weights included: nothing is compiled."""
    y, weight = np.where(rng.random(N) < 0.5, 1.0, -1.0), rng.uniform(0.5, 2.0, N)
    problem = jb.Problem(jb.losses.smoothed_hinge(0.5), jb.penalties.l2(0.3), intercept=intercept)
    data = put(Data(as_matrix(matrix), y, weight))
    return remember(problem, data, (0.1 * rng.normal(size=D)).astype(matrix.dtype), rng.random(N))


def row_changes(rng):
    new = np.round(rng.normal(size=(2, D)), 3)
    return {
        "rows": jb.set_rows([3, 60], new, [1.0, -1.0]),
        "elements": jb.set_elements([0, 17, 17], [7, 0, 22], [2.0, 0.0, 1.0]),
        "targets": jb.set_targets([4], [1.0]),
        "weights": jb.set_weights([16, 17], [3.0, 0.5]),
        "add": jb.add_rows(new, [1.0, -1.0]),
        "remove": jb.remove_rows([0, 16, 17, 60]),
        "penalty": jb.set_penalty(jb.penalties.l2(0.5)),
        "several": jb.combine(
            jb.set_elements([9], [2], [4.0]), jb.remove_rows([2, 3]), jb.add_rows(sp.csr_array(new), [1.0, 1.0]),
            jb.set_rows([59], new[:1]), jb.set_weights([1], [2.0]),
        ),
    }  # fmt: skip


@pytest.mark.parametrize(("sparse", "intercept"), [(False, False), (True, False), (True, True)])
def test_bounds_are_those_of_data_in_memory(sparse, intercept, small_pieces):
    rng = np.random.default_rng(6)
    X = table(rng)
    values = sp.csr_array(X) if sparse else X
    changes = row_changes(rng) | {
        "columns": jb.set_columns([2, 7], rng.normal(size=(N, 2))),
        "more": jb.add_columns(rng.normal(size=(N, 1))),
        "fewer": jb.remove_columns([9]),
    }
    if intercept:
        changes = {name: changes[name] for name in ("several", "columns")}
    here, there = (untrained(m, np.random.default_rng(7), intercept) for m in (values, jb.RowBlocks(values)))
    np.testing.assert_allclose(float(there.gap), float(here.gap), rtol=1e-9)
    for name, change in changes.items():
        for method in (jb.Cached(), jb.Pass()):
            a, b = jb.bound(here, change, method), jb.bound(there, change, method)
            tests = table(rng)[:, : len(a.column_map)]
            tests = np.pad(tests, ((0, 0), (0, len(a.column_map) - tests.shape[1])), constant_values=0.3)
            for x, y in ((a.scores(tests), b.scores(jb.RowBlocks(tests))), (a.alpha(), b.alpha()), (a.w(), b.w())):
                np.testing.assert_allclose(y.lower, x.lower, rtol=1e-8, atol=1e-10, err_msg=f"{name} {method}")
                np.testing.assert_allclose(y.upper, x.upper, rtol=1e-8, atol=1e-10, err_msg=f"{name} {method}")
            np.testing.assert_array_equal(b.labels(jb.RowBlocks(tests)), a.labels(tests))
    if intercept:
        return
    each = jb.each_row_removed(here)
    a, b = jb.bound_each(here, each, X).scores(), jb.bound_each(there, each, jb.RowBlocks(values)).scores()
    np.testing.assert_allclose(b.lower, a.lower, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("source", ["npz", "npy", "function"])
def test_apply_reads_past_the_rows_that_change(source, tmp_path, small_pieces):
    rng = np.random.default_rng(8)
    X, y, weight = table(rng), np.where(rng.random(N) < 0.5, 1.0, -1.0), rng.random(N) + 0.5
    blocks = jb.RowBlocks(SOURCES[source](tmp_path, X))
    for name, change in row_changes(rng).items():
        for w in (None, weight):
            wanted, found = change.apply(X, y, w), change.apply(blocks, y, w)
            assert isinstance(found[0], jb.RowBlocks)
            rows = found[0].load()
            np.testing.assert_array_equal(rows.toarray() if blocks.sparse else rows, wanted[0], err_msg=name)
            for a, b in zip(found[1:], wanted[1:], strict=True):
                np.testing.assert_array_equal(a, b)
    # again on the outcome, and single rows of it
    changed: Any
    changed, y, weight = row_changes(rng)["several"].apply(blocks, y, weight)
    expected: Any
    expected, _, _ = jb.set_elements([0], [0], [7.0]).apply(changed.load(), y, weight)
    found, _, _ = jb.set_elements([0], [0], [7.0]).apply(changed, y, weight)
    expected = expected.toarray() if sp.issparse(expected) else expected
    rows = np.array([60, 0, 58, 2, 3])
    np.testing.assert_array_equal(written_out(found.rows(rows), (5, D)), expected[rows])
    with pytest.raises(ValueError, match="change of columns"):
        jb.remove_columns([0]).apply(blocks, np.ones(N))
    with pytest.raises(ValueError, match="leaves no row"):
        jb.remove_rows(np.arange(N)).apply(blocks, np.ones(N))


@pytest.mark.parametrize("name", ["logistic", pytest.param("hinge", marks=pytest.mark.slow)])
def test_training_and_retraining_against_the_oracle(name, small_pieces):
    rng = np.random.default_rng(9)
    X = table(rng, np.float32)
    y, weight = np.where(X @ rng.normal(size=D) + rng.normal(size=N) > 0, 1.0, -1.0), rng.uniform(0.5, 2.0, N)
    blocks = jb.RowBlocks(sp.csr_array(X))
    problem = jb.Problem(getattr(jb.losses, name)(), jb.penalties.l2(0.05), scale="sum")
    truth = oracle.Problem(name, X.astype(np.float64), y, weight, lam=0.05)
    tol = 1e-9
    model = jb.fit(problem, blocks, y, sample_weight=weight, tol=tol)
    best = oracle.solve(truth)
    assert float(model.gap) <= 1e-6 * float(model.primal)  # w is stored as float32
    assert model.w.dtype == np.float32
    np.testing.assert_allclose(model.w, best.w, atol=1e-3)
    if name == "hinge":
        return
    tests = jb.RowBlocks(table(rng))
    change, removed = jb.remove_rows([1, 4]), [("remove_rows", {"rows": [1, 4]})]
    new = oracle.solve(oracle.changed_problem(truth, weight, removed, "sum"))
    interval = jb.bound(model, change).scores(tests)
    scores = tests.load() @ new.w
    assert np.all(interval.lower <= scores) and np.all(scores <= interval.upper)
    assert np.max(interval.upper - interval.lower) < 5.0
    again: Any = jb.refit(model, change, tol=tol)
    assert isinstance(again.data.matrix, jb.RowBlocks)
    np.testing.assert_allclose(again.scores(tests), scores, atol=1e-3)


@pytest.mark.slow
def test_bounds_inside_jit_and_decisions():
    rng = np.random.default_rng(14)
    X = table(rng)
    model = untrained(jb.RowBlocks(sp.csr_array(X)), rng)
    assert jb.decide(model, jb.remove_rows([1]), jb.DistanceBelow(1e-3)).answer is False
    for change in (jb.remove_rows([1, 4]), jb.set_elements([0, 3], [2, 9], [1.0, 0.0]), jb.set_columns([3], X[:, 4:5])):
        with jax.enable_x64(True):
            traced = jax.jit(lambda model, change: jb.bound(model, change).scores(X))(model, change)
            host = jb.bound(model, change).scores(X)
        np.testing.assert_allclose(traced.lower, host.lower, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(traced.upper, host.upper, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_intercepts_l1_and_gradients():
    rng = np.random.default_rng(10)
    X = table(rng)
    y = np.where(X @ rng.normal(size=D) + 0.3 + rng.normal(size=N) > 0, 1.0, -1.0)
    blocks = jb.RowBlocks(X)
    for problem in (
        jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.05), intercept=True),
        jb.Problem(jb.losses.squared_hinge(), jb.penalties.elastic_net(0.01, 0.02)),
        jb.Problem(jb.losses.logistic(), jb.penalties.l1(0.02), intercept=True),
    ):
        a, b = (jb.fit(problem, data, y, tol=1e-11) for data in (X, blocks))
        np.testing.assert_allclose(b.w, a.w, atol=1e-5)
        np.testing.assert_allclose(b.intercept, a.intercept, atol=1e-5)
        if problem.penalty.strong_convexity is not None:
            x, z = (jb.bound(model, jb.remove_rows([2])).scores(X) for model in (a, b))
            np.testing.assert_allclose(z.lower, x.lower, atol=1e-4)

    def size(lam, data):
        model = jb.fit(jb.Problem(jb.losses.logistic(), jb.penalties.l2(lam)), data, y, tol=1e-12)
        return jnp.sum(model.w.astype(jnp.float32) ** 2)

    np.testing.assert_allclose(jax.grad(size)(0.1, blocks), jax.grad(size)(0.1, X), rtol=1e-4)


def changing():
    """Blocks that are others at the second reading."""
    calls = []

    def read():
        calls.append(0)
        yield np.ones((3 if len(calls) == 1 else 2, 2))

    return read


REFUSED = {
    "one pass": (lambda f: iter([np.eye(2)]), TypeError, "read only once"),
    "nothing": (lambda f: [], ValueError, "empty"),
    "a number": (lambda f: 3, TypeError, "source must be"),
    "one row": (lambda f: np.ones(3), ValueError, "two-dimensional"),
    "widths": (lambda f: [np.eye(2), np.eye(3)], ValueError, "same columns"),
    "mixed": (lambda f: [np.eye(2), sp.eye_array(2, format="csr")], ValueError, "sparse, or none"),
    "nan": (lambda f: [np.eye(2), np.array([[1.0, np.nan]])], ValueError, r"X\[2, 1\] is nan"),
    "sparse inf": (lambda f: sp.csr_array([[0.0, 1.0], [np.inf, 0.0]]), ValueError, r"X\[1, 0\] is inf"),
    "masked": (lambda f: [np.eye(2), np.ma.array(np.eye(2), mask=np.eye(2))], ValueError, "masked entries"),
    "masked stream": (lambda f: lambda: iter([np.ma.array(np.eye(2), mask=np.eye(2))]), ValueError, "masked entries"),
    "beyond float64": (lambda f: np.full((1, 2), np.longdouble("1e400")), ValueError, r"X\[0, 0\] is inf"),
    "text": (lambda f: np.array([["a"]]), TypeError, "dtype"),
    "complex": (lambda f: np.array([[1j]]), TypeError, "dtype"),
    "empty": (lambda f: np.zeros((0, 3)), ValueError, "empty"),
    "compressed": (lambda f: npz(f, np.eye(2), compressed=True), ValueError, "compressed=False"),
    "twice": (
        lambda f: sp.csr_array((np.ones(2), np.array([1, 1]), np.array([0, 0, 2])), shape=(2, 2)),
        ValueError, r"X\[1\] holds column 1 twice",
    ),
    "no columns": (lambda f: three_arrays(f, np.eye(2)), ValueError, "columns is missing"),
    "no file": (lambda f: f / "none.npy", FileNotFoundError, "none.npy"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_unusable_sources_are_refused(name, tmp_path):
    make, error, text = REFUSED[name]
    with pytest.raises(error, match=text):
        jb.RowBlocks(make(tmp_path))


def test_data_that_change_later_are_noticed(tmp_path):
    """Files that are written to (a shorter one would end the process), and loaders that shuffle."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    (tmp_path / "csr").mkdir()
    for source, damage in (
        (npy(tmp_path, X), lambda path: os.truncate(path, 400)),
        (npz(tmp_path, X), lambda path: os.utime(path, ns=(0, 10**9))),
        (three_arrays(tmp_path / "csr", X), lambda path: os.utime(path / "indices.npy", ns=(0, 10**9))),
    ):
        blocks = jb.RowBlocks(source, columns=3)
        moved = f"{source}.moved"
        os.rename(source, moved)  # what is mapped stays what it was
        blocks.matvec(np.ones(3))
        os.rename(moved, source)
        damage(source)
        for read, what in ((blocks.matvec, np.ones(3)), (blocks.rows, np.array([39])), (as_matrix, blocks)):
            with pytest.raises(RuntimeError, match="have changed since they were checked.*was written to"):
                read(what)
    for kind in (np.asarray, sp.csr_array):
        blocks = jb.RowBlocks(lambda: (kind(X[part]) for part in np.split(rng.permutation(40), 2)))  # noqa: B023
        with pytest.raises(RuntimeError, match="other rows at first"):
            blocks.matvec(np.ones(3))
        with pytest.raises(RuntimeError, match="other rows at first"):
            blocks.take(np.array([1]))


def test_damaged_files_are_refused_before_a_product_trusts_them(tmp_path):
    folder = three_arrays(tmp_path, np.eye(4))
    with pytest.raises(ValueError, match="hold columns 0 to 3"):
        jb.RowBlocks(folder, columns=3)
    np.save(folder / "indptr.npy", np.array([0, 2, 1, 3, 4]))
    with pytest.raises(ValueError, match="do not rise"):
        jb.RowBlocks(folder, columns=4)
    np.save(folder / "indptr.npy", np.array([0, 1, 2, 3, 9]))
    with pytest.raises(ValueError, match="do not rise"):
        jb.RowBlocks(folder, columns=4)
    np.savez(tmp_path / "other.npz", a=np.eye(2))
    with pytest.raises(ValueError, match="holds no CSR matrix"):
        jb.RowBlocks(tmp_path / "other.npz")
    blocks = jb.RowBlocks(changing())
    with pytest.raises(RuntimeError, match="have changed"):
        blocks.matvec(np.ones(2))


def test_what_needs_the_data_as_a_whole_is_refused_by_name(tmp_path):
    rng = np.random.default_rng(11)
    X = table(rng)
    model = untrained(jb.RowBlocks(sp.csr_array(X)), rng)
    with pytest.raises(ValueError, match=r"RowBlocks\.load"):
        jb.leave_one_out(model)
    with pytest.raises(ValueError, match=r"use Pass"):
        jb.bound(model, jb.remove_rows([0]), jb.Curvature())
    with pytest.raises(ValueError, match=r"RowBlocks\.load"):
        jb.with_factor(model)
    with pytest.raises(ValueError, match="use data=False"):
        model.save(tmp_path / "model")
    with pytest.raises(TypeError, match="without_data"):
        pickle.dumps(model)
    assert copy.deepcopy(model).data.matrix is model.data.matrix
    pickle.loads(pickle.dumps(model.without_data()))
    model.save(tmp_path / "model", data=False)
    for solver in (jb.solvers.DualCoordinate(), jb.solvers.DualNewton()):
        with pytest.raises(ValueError, match="RowBlocks"):
            jb.fit(model.problem, model.data.matrix, model.rows.target, solver=solver)


def small_fit(path, X, y, lam=0.01, **options):
    problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(lam))
    return jb.fit(problem, X, y, tol=1e-12, checkpoint=path, **options)


def test_an_interrupted_fit_goes_on_where_it_stopped(tmp_path):
    rng = np.random.default_rng(12)
    X = rng.normal(size=(N, D))
    y = np.where(X @ rng.normal(size=D) + rng.normal(size=N) > 0, 1.0, -1.0)
    path = tmp_path / "fit"
    whole = small_fit(path, X, y)
    assert not path.exists() and int(whole.status) == jb.Status.CONVERGED
    with pytest.warns(jb.FitWarning):
        part = small_fit(path, X, y, max_steps=2)
    assert path.exists() and int(part.n_steps) == 2
    for other in (
        lambda: small_fit(path, X, -y),
        lambda: small_fit(path, X + 1e-3, y),
        lambda: small_fit(path, X, y, lam=0.02),
        lambda: small_fit(path, X, y, solver=jb.solvers.NewtonCG(max_cg=7)),
        lambda: small_fit(path, X, y, sample_weight=np.full(N, 2.0)),
    ):
        with pytest.raises(ValueError, match="another problem"):
            other()
    steps = []
    resumed = small_fit(path, X, y, callback=lambda info: steps.append(info["step"]))
    assert steps[0] == 3 and not path.exists()
    np.testing.assert_array_equal(resumed.w, whole.w)
    np.testing.assert_array_equal(resumed.alpha, whole.alpha)
    assert int(resumed.n_steps) == int(whole.n_steps)
    path.write_bytes(b"something else")
    with pytest.raises(ValueError, match="delete it"):
        small_fit(path, X, y)
    with pytest.raises(ValueError, match="checkpoint"):
        jax.jit(lambda X: small_fit(path, X, y).w)(X)


LONG = """
import sys, time, numpy as np, jaxbounds as jb
rng = np.random.default_rng(0)
X = rng.normal(size=(400, 30))
y = np.where(X @ rng.normal(size=30) + rng.normal(size=400) > 0, 1.0, -1.0)
pause = float(sys.argv[2])
def told(info):
    print(info["step"], flush=True)
    time.sleep(pause)
problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(1e-4))
model = jb.fit(problem, jb.RowBlocks(X), y, tol=1e-12, checkpoint=sys.argv[1], callback=told)
print(np.asarray(model.w).tobytes().hex())
"""


def run_long(path, pause) -> Any:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p or "." for p in sys.path)}
    command = [sys.executable, "-c", LONG, str(path), str(pause)]
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE)


@pytest.mark.slow
def test_a_killed_process_is_resumed(tmp_path):
    whole = run_long(tmp_path / "other", 0.0).communicate(timeout=120)[0].split()
    child = run_long(tmp_path / "fit", 5.0)
    assert [child.stdout.readline().strip() for _ in range(3)] == ["1", "2", "3"]
    child.send_signal(signal.SIGKILL)
    child.wait(timeout=60)
    child.stdout.close()
    assert (tmp_path / "fit").exists()
    resumed = run_long(tmp_path / "fit", 0.0).communicate(timeout=120)[0].split()
    assert int(resumed[0]) > 1 and resumed[-1] == whole[-1]
    assert not list(tmp_path.iterdir())


MEMORY = """
import resource, sys, threading, time, numpy as np, scipy.sparse as sp, jaxbounds as jb
def anonymous():
    for line in open("/proc/self/status"):
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
n, d, each = 200_000, 20_000, 40
problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(1e-2))
jb.fit(problem, jb.RowBlocks(sp.random_array((300, 40), density=0.2, format="csr")), np.tile([1.0, -1.0], 150))
blocks = jb.RowBlocks(sys.argv[1], columns=d) if sys.argv[2] == "blocks" else None
if blocks is None:
    X = sp.csr_array(tuple(np.load(f"{sys.argv[1]}/{k}.npy") for k in ("data", "indices", "indptr")), shape=(n, d))
y = np.where(np.arange(n) % 3 == 0, 1.0, -1.0)
before, most, done = anonymous(), [0], []
def watch():
    while not done:
        most[0] = max(most[0], anonymous())
        time.sleep(0.002)
thread = threading.Thread(target=watch)
thread.start()
model = jb.fit(problem, X if blocks is None else blocks, y, tol=1e-4)
jb.bound(model, jb.remove_rows([0])).scores(X[:10] if blocks is None else blocks)
done.append(1)
thread.join()
print((most[0] - before) / (n * each * 12.0))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_peak_memory(tmp_path):
    """In units of 12 bytes an entry, vectors and what compilation takes included, beside the data that a user holds."""
    rng = np.random.default_rng(13)
    n, d, each = 200_000, 20_000, 40
    np.save(tmp_path / "data.npy", rng.random(n * each))
    steps = rng.integers(1, d // each, (n, each), dtype=np.int32)
    np.save(tmp_path / "indices.npy", (np.cumsum(steps, axis=1, dtype=np.int32) - 1).reshape(-1))
    np.save(tmp_path / "indptr.npy", np.arange(n + 1, dtype=np.int32) * each)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p or "." for p in sys.path)}
    for kind, most in (("blocks", 1.5), ("memory", 6.0)):
        command = [sys.executable, "-c", MEMORY, str(tmp_path), kind]
        start = time.monotonic()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-2000:]
        assert float(done.stdout) < most, f"{kind}: {done.stdout} in {time.monotonic() - start:.0f} s"


def test_many_rows_of_few_columns():
    """Where data in memory are preconditioned with some of their rows, blocks are not."""
    rng = np.random.default_rng(8)
    X = rng.normal(size=(4000, 3)).astype(np.float32)
    y = np.where(X[:, 0] + rng.normal(size=4000) > 0, 1.0, -1.0)
    problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(1e-2))
    np.testing.assert_allclose(jb.fit(problem, jb.RowBlocks(X), y).w, jb.fit(problem, X, y).w, atol=1e-5)
