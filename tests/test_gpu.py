"""Full precision on accelerators: no product of float32 numbers in TF32, and on a GPU the answers of the CPU."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

import jaxbounds as jb
from jaxbounds.array import put
from jaxbounds.matrix import as_matrix

N, D = 40, 6
RNG = np.random.default_rng(0)
PROBLEM = jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.05))
METHODS = (jb.Theorem1(), jb.Cached(), jb.Partial(), jb.Pass(), jb.Curvature())
on_gpu = pytest.mark.skipif(jax.default_backend() != "gpu", reason="jax sees no GPU")


def data():
    X = RNG.normal(size=(N, D)).astype(np.float32)
    return X, np.where(X[:, 0] + 0.3 * RNG.normal(size=N) > 0, 1.0, -1.0)


def ends(model, change, method, X_test):
    bounds = jb.bound(model, change, method)
    return bounds.distance.upper, bounds.w(), bounds.scores(X_test)


def imprecise(text: str) -> list[str]:
    """The products of float32 numbers in a program that a GPU may compute in TF32."""
    products = [line for line in text.splitlines() if "dot_general" in line or "convolution" in line]
    return [line for line in products if re.search(r"xf32>|xbf16>|xf16>", line) and "HIGHEST" not in line]


def test_the_search_for_imprecise_products_finds_one():
    product = jax.jit(lambda a, b: a @ b).lower(*(jax.ShapeDtypeStruct((4, 4), jnp.float32),) * 2).as_text()
    assert imprecise(product)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_no_program_multiplies_in_tf32(method):
    X, y = data()
    model, change = jb.fit(PROBLEM, X, y), jb.set_rows([3], X[4:5])
    program = jax.jit(lambda model, X_test: ends(model, change, method, X_test))
    with jax.enable_x64(True):
        text = program.lower(put(model), jnp.asarray(X[:5])).as_text()
    assert not imprecise(text)


def test_no_fit_multiplies_in_tf32():
    X, y = data()
    program = jax.jit(lambda X, y: jb.fit(PROBLEM, X, y).w)
    assert not imprecise(program.lower(jnp.asarray(X), jnp.asarray(y, jnp.float32)).as_text())


@on_gpu
def test_products_on_the_gpu_are_those_of_float64():
    X = 1.0 + RNG.normal(size=(257, 130)).astype(np.float32) * np.float32(2.0**-12)  # TF32 keeps 10 bits of these
    w, t = RNG.normal(size=130), RNG.normal(size=257)
    for matrix in (as_matrix(X), as_matrix(sp.csr_array(X))):
        with jax.enable_x64(True):
            np.testing.assert_allclose(matrix.matvec(jnp.asarray(w)), X.astype(np.float64) @ w, rtol=0, atol=1e-11)
            np.testing.assert_allclose(matrix.rmatvec(jnp.asarray(t)), X.astype(np.float64).T @ t, rtol=0, atol=1e-11)


@on_gpu
@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_bounds_on_the_gpu_are_those_of_the_cpu(method):
    X, y = data()
    change = jb.set_rows([3], X[4:5])
    with jax.default_device(jax.devices("cpu")[0]):
        model = jb.fit(PROBLEM, X, y)
        host = ends(model, change, method, X[:5])
    with jax.enable_x64(True):
        device = ends(jax.device_put(model, jax.devices()[0]), change, method, X[:5])
    for a, b in zip(jax.tree.leaves(host), jax.tree.leaves(device), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)


@on_gpu
def test_fits_on_the_gpu_reach_the_optimum_of_the_cpu():
    X, y = data()
    with jax.default_device(jax.devices("cpu")[0]):
        host = jb.fit(PROBLEM, X, y, tol=1e-12)
    device = jb.fit(PROBLEM, X, y, tol=1e-12)
    np.testing.assert_allclose(host.w, device.w, atol=1e-6)
