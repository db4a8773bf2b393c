"""Solvers of other packages, each as a run (tolerance) -> w on our objective; what is not installed is left out.

`peers(loss, kind)` gives the candidates for a loss with L2, or for the lasso and the elastic net. A peer is prepared
once a data set (its own layout of the data: timed apart), then set to a penalty; its grid goes from loose to tight.
None of these packages is a dependency of the library.
"""

import ctypes
import importlib.util
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

GAMMA = 0.5  # of the smoothed hinge
COARSE = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-12, 1e-14)
EPOCHS = (1, 2, 3, 4, 6, 8, 11, 16, 22, 32, 45, 64, 90, 128, 180, 256, 360, 512, 1024, 2048)


@dataclass(frozen=True)
class Peer:
    """A solver of another package.

    Attributes:
        name: package and solver.
        prepare: (X, y) -> the data in the peer's own layout.
        solve: (data, lam, l1, setting) -> w, for lam/2 |w|^2 + l1 |w|_1 and the mean of the losses.
        grid: settings from loose to tight.
    """

    name: str
    prepare: Callable[[Any, np.ndarray], Any]
    solve: Callable[[Any, float, float, float], np.ndarray]
    grid: tuple[float, ...] = COARSE


def _has(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def missing() -> list[str]:
    """What a full comparison would need and is not there."""
    packages = {"liblinear": "liblinear-official", "sklearn": "scikit-learn", "celer": "celer", "skglm": "skglm"}
    absent = [name for package, name in packages.items() if not _has(package)]
    return absent + ["a C compiler"] * (shutil.which("cc") is None)


def peers(loss: str, sparse: bool) -> list[Peer]:
    """The peers of a loss, the usually fastest first."""
    found = []
    if loss in ("logistic", "squared_hinge") and _has("liblinear"):
        numbers = {"logistic": (7, 0), "squared_hinge": (1, 2)}[loss]
        found += [_liblinear(number, 0.5 if loss == "squared_hinge" else 1.0) for number in numbers]
    if loss == "smoothed_hinge" and shutil.which("cc"):
        found += [_sdca(shrink) for shrink in (False, True)]
    if _has("sklearn"):
        found += _scikit(loss, sparse)
    if loss in ("lasso", "elastic_net"):
        found += [_coordinates("celer", loss)] * _has("celer") + [_coordinates("skglm", loss)] * _has("skglm")
    return found


def _liblinear(number: int, factor: float) -> Peer:
    from liblinear import liblinear as lib

    def prepare(X, y):
        return lib.problem(y, _csr(X)), y.size

    def solve(data, lam, l1, eps):
        problem, n = data
        parameter = lib.parameter(f"-s {number} -c {factor / (lam * n)} -e {eps} -q")
        raw = lib.liblinear.train(problem, parameter)
        w = np.ctypeslib.as_array(raw.contents.w, (problem.n,)).copy()
        sign = raw.contents.label[0]
        lib.liblinear.free_and_destroy_model(ctypes.pointer(raw))
        return sign * w

    return Peer(f"LIBLINEAR -s {number}", prepare, solve)


def _sdca(shrink: bool) -> Peer:
    def prepare(X, y):
        csr = _csr(X)
        return csr.indptr, csr.indices, csr.data, y, csr.shape[1]

    def solve(data, lam, l1, epochs):
        start, index, value, y, d = data
        pointer = lambda a, kind: a.ctypes.data_as(ctypes.POINTER(kind))  # noqa: E731
        w = np.empty(d)
        _compiled().sdca(
            y.size, d, pointer(start, ctypes.c_int), pointer(index, ctypes.c_int), pointer(value, ctypes.c_double),
            pointer(y, ctypes.c_double), ctypes.c_double(lam), ctypes.c_double(GAMMA), int(epochs), int(shrink),
            pointer(w, ctypes.c_double),
        )  # fmt: skip
        return w

    return Peer("compiled SDCA" + ", shrinking" * shrink, prepare, solve, EPOCHS)


def _compiled(cache: list = []) -> Any:  # noqa: B006  one library a process
    if not cache:
        target = Path(tempfile.mkdtemp()) / "sdca.so"
        source = Path(__file__).parent / "_sdca.c"
        subprocess.run(["cc", "-O3", "-march=native", "-shared", "-fPIC", "-o", target, source], check=True)
        cache.append(ctypes.CDLL(str(target)))
    return cache[0]


def _scikit(loss: str, sparse: bool) -> list[Peer]:
    from sklearn import linear_model, svm

    def prepare(X, y):
        return _columns(X, y) if loss in ("lasso", "elastic_net") else (_csr(X) if sparse else X, y)

    def fitted(make):
        def solve(data, lam, l1, tol):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return make(data[1].size, lam, l1, tol).fit(*data).coef_.ravel()

        return solve

    def logistic(solver):
        return lambda n, lam, l1, tol: linear_model.LogisticRegression(
            C=1 / (lam * n), tol=tol, solver=solver, fit_intercept=False, max_iter=3000
        )

    def ridge(solver):
        return lambda n, lam, l1, tol: linear_model.Ridge(lam * n, fit_intercept=False, tol=tol, solver=solver)

    def linear_svc(dual):
        return lambda n, lam, l1, tol: svm.LinearSVC(
            C=0.5 / (lam * n), loss="squared_hinge", dual=dual, tol=tol, fit_intercept=False, max_iter=3000
        )

    def net(n, lam, l1, tol):
        return linear_model.ElasticNet(
            lam + l1, l1_ratio=l1 / (lam + l1), fit_intercept=False, tol=tol, max_iter=100_000, selection="cyclic"
        )

    if loss == "logistic":
        solvers = ("lbfgs", "newton-cg", "saga") if sparse else ("newton-cholesky", "lbfgs", "newton-cg", "saga")
        return [Peer(f"scikit-learn {name}", prepare, fitted(logistic(name))) for name in solvers]
    if loss == "squared_hinge":
        name = "scikit-learn LinearSVC dual="
        return [Peer(f"{name}{dual}", prepare, fitted(linear_svc(dual))) for dual in (True, False)]
    if loss == "squared":
        solvers = ("sparse_cg", "lsqr", "sag") if sparse else ("cholesky", "lsqr", "svd")
        grids = {"cholesky": (1e-4,), "svd": (1e-4,)}
        return [
            Peer(f"scikit-learn Ridge {name}", prepare, fitted(ridge(name)), grids.get(name, COARSE))
            for name in solvers
        ]
    return [Peer("scikit-learn ElasticNet", prepare, fitted(net))] if loss in ("lasso", "elastic_net") else []


def _csr(X):
    """A csr_matrix with 32-bit indices: the one layout that all peers read."""
    csr = sp.csr_matrix(X)
    return sp.csr_matrix((csr.data, csr.indices.astype(np.int32), csr.indptr.astype(np.int32)), shape=csr.shape)


def _columns(X, y):
    return (_csr(X).tocsc() if sp.issparse(X) else np.asfortranarray(X)), y


def _coordinates(package: str, loss: str) -> Peer:
    """The lasso and the elastic net of celer and of skglm, which have one interface."""
    found = importlib.import_module(package)

    def solve(data, lam, l1, tol):
        settings = {"fit_intercept": False, "tol": tol, "max_iter": 1000, "max_epochs": 100_000}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if loss == "lasso":
                return found.Lasso(l1, **settings).fit(*data).coef_
            return found.ElasticNet(lam + l1, l1_ratio=l1 / (lam + l1), **settings).fit(*data).coef_

    return Peer(package, _columns, solve)
