"""One table of what an accelerator does next to the CPU of the same machine; makes its own data.

Run ``python benchmarks/gpu.py`` (minutes) or ``--smoke`` (seconds) where jax sees a GPU; without one only the CPU
column is measured, and nothing is recorded. Times are the least of a few warm calls, blocked until ready.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from _record import best, finish, parser, table
from jax.experimental.sparse import BCSR
from products import SIZES, power_law

import jaxbounds as jb
from jaxbounds.array import put
from jaxbounds.kinds import SetElements
from jaxbounds.matrix import Dense, as_matrix


def report(payload: dict) -> str:
    """The section of RESULTS.md."""
    names = list(payload["devices"])
    rows = []
    for what in payload["devices"][names[0]]:
        values = [payload["devices"][name][what] for name in names]
        rows.append([what, *(f"{value:.3g}" for value in values)])
        if len(values) > 1:
            rows[-1].append(f"{values[0] / values[1]:.2g}")
    head = ["", *names] + ["ratio"] * (len(names) > 1)
    return f"""## An accelerator next to its machine's CPU (`benchmarks/gpu.py`)

Dense: {payload["dense"][0]:,} x {payload["dense"][1]:,}; sparse: {payload["sparse"][0]:,} x {payload["sparse"][1]:,} \
with {payload["nonzeros"]:,} non-zeros. "of copy" is the share of the bandwidth that a copy of a large array reaches. \
Fits go to a relative gap of 1e-6.

{table(head, rows)}"""


def bandwidth(size: int) -> float:
    """GB/s of a copy of an array of so many bytes, read and written."""
    array = jnp.ones(size // 8, jnp.float64)
    copy = jax.jit(lambda x: x + 1.0)
    return 2 * size / seconds(lambda: copy(array)) / 1e9


def seconds(call: Callable[[], Any], repeats: int = 5) -> float:
    """Least seconds of a call, until its result is there."""
    jax.block_until_ready(call())
    return best(lambda: jax.block_until_ready(call()), repeats)[0]


def products(matrix, rng, copy: float, name: str) -> dict[str, float]:
    """Milliseconds of each product, and the share of the copy's bandwidth at which it reads the matrix once."""
    n, d = matrix.shape
    w, t = put((rng.normal(size=d), rng.normal(size=n)))
    found = {}
    parts = {"X w": (matrix, "matvec", w), "X^T t": (matrix, "rmatvec", t)}
    for what, (data, product, vector) in parts.items():
        read = data.values if isinstance(data, Dense) else data.by_row if product == "matvec" else data.by_col
        size = sum(leaf.nbytes for leaf in jax.tree.leaves(read))
        call = jax.jit(lambda data, vector, product=product: getattr(data, product)(vector))
        time = seconds(lambda call=call, data=data, vector=vector: call(data, vector))
        found[f"{name}: {what}, ms"] = 1e3 * time
        found[f"{name}: {what}, of copy"] = size / time / 1e9 / copy
    return found


def answers(problem, X, rng, candidates: int, name: str) -> dict[str, float]:
    """A fit, a single bound, every row left out, and a batch of changes of one element."""
    y, matrix = np.where(X @ rng.normal(size=X.shape[1]) > 0, 1.0, -1.0), as_matrix(X)
    model = jb.fit(problem, matrix, y, tol=1e-6)
    fit = best(lambda: jb.fit(problem, matrix, y, tol=1e-6), 3)[0]
    one = jb.set_elements([0], [0], 0.5)
    single = jax.jit(lambda model, change: jb.bound(model, change).distance.upper)
    with jax.enable_x64(True):
        bound = seconds(lambda: single(model, one))
    left = best(lambda: jb.leave_one_out(model, jb.Cached()), 3)[0]
    rows, cols = (rng.integers(0, size, (candidates, 1)).astype(np.int32) for size in X.shape)
    batch = put(SetElements(rows, cols, rng.random((candidates, 1))))
    each = seconds(lambda: jb.bound_each(model, batch).distance.upper, 3)
    return {
        f"{name}: fit, s": fit,
        f"{name}: jitted bound of one element, us": 1e6 * bound,
        f"{name}: every row left out (ball), ns a row": 1e9 * left / X.shape[0],
        f"{name}: bound_each, ns a one-element candidate": 1e9 * each / candidates,
    }


def measure(dense: np.ndarray, sparse, candidates: int) -> dict[str, float]:
    """Everything on the current default device."""
    rng = np.random.default_rng(1)
    found: dict[str, float] = {}
    with jax.enable_x64(True):
        found["copy, GB/s"] = copy = bandwidth(dense.nbytes * 2)
        for X, name in ((dense.astype(np.float64), "dense float64"), (dense, "dense float32"), (sparse, "sparse")):
            found |= products(as_matrix(X), rng, copy, name)
        w, t = put((rng.normal(size=sparse.shape[1]), rng.normal(size=sparse.shape[0])))
        library, across = (BCSR.from_scipy_sparse(X.tocsr()) for X in (sparse, sparse.T))
        product = jax.jit(lambda X, v: X @ v)
        found["sparse: jax's BCSR, X w, ms"] = 1e3 * seconds(lambda: product(library, w), 2)
        found["sparse: jax's BCSR, X^T t, ms"] = 1e3 * seconds(lambda: product(across, t), 2)
    logistic = jb.Problem(jb.losses.logistic(), jb.penalties.l2(1e-3))
    hinge = jb.Problem(jb.losses.squared_hinge(), jb.penalties.l2(1e-3))
    found |= answers(logistic, dense, rng, candidates, "dense, logistic")
    return found | answers(hinge, sparse, rng, candidates, "sparse, squared hinge")


def main() -> None:
    """Measure, print and record."""
    options = parser(__doc__).parse_args()
    shape, candidates = ((4_000, 64), 2_000) if options.smoke else ((200_000, 256), 100_000)
    dense = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    sparse = power_law(*SIZES["smoke" if options.smoke else "real-sim"])
    payload = {"dense": shape, "sparse": sparse.shape, "nonzeros": int(sparse.nnz), "devices": {}}
    for device in dict.fromkeys([jax.devices()[0], jax.devices("cpu")[0]]):
        here = contextlib.nullcontext() if device == jax.devices()[0] else jax.default_device(device)
        with here:
            payload["devices"][device.device_kind] = measure(dense, sparse, candidates)
    if jax.default_backend() == "cpu":
        print("jax sees no GPU: only the CPU was measured")
    else:
        finish("gpu", payload, options)
    print(report(payload))


if __name__ == "__main__":
    main()
