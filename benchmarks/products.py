"""Speed of the matrix products: nanoseconds per non-zero inside a jitted loop, next to scipy and to the memory's limit.

Run ``python benchmarks/products.py`` (a minute; ``--all``: minutes) or ``--smoke`` (seconds).
The sets are synthetic: power-law column popularity, of the size of rcv1, real-sim and (``--all``) news20.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from _record import best, finish, parser, table

from jaxbounds.matrix import Sparse, as_matrix

SIZES = {  # rows, columns, mean entries in a row
    "rcv1": (20_242, 47_236, 74),
    "real-sim": (72_309, 20_958, 51),
    "news20": (19_996, 1_355_191, 455),
    "smoke": (2_000, 3_000, 30),
}


def power_law(rows: int, columns: int, mean: int, seed: int = 0) -> sp.csr_array:
    """A random matrix whose columns are used with frequency 1 / rank^0.8, rows of norm one."""
    rng = np.random.default_rng(seed)
    lengths = np.clip((mean * rng.lognormal(-0.25, 0.7, rows)).astype(np.int64), 1, columns // 2)
    share = np.cumsum(np.arange(1, columns + 1) ** -0.8)
    ranks = np.searchsorted(share, rng.random(lengths.sum()) * share[-1])
    start = np.concatenate([[0], np.cumsum(lengths)])
    values = rng.lognormal(0.0, 0.5, ranks.size)
    X = sp.csr_array((values, rng.permutation(columns)[np.minimum(ranks, columns - 1)], start), shape=(rows, columns))
    X.sum_duplicates()
    norms = np.sqrt(X.multiply(X).sum(axis=1))
    X.data /= np.repeat(norms, np.diff(X.indptr))
    return X


@partial(jax.jit, static_argnames=("product", "loops"))
def _loop(matrix, vector, product, loops):
    """Run a product many times, each input depending on the last output."""

    def body(_, carry):
        v, _ = carry
        out = getattr(matrix, product)(v)
        return v + 1e-30 * out[0], out

    out = getattr(matrix, product)(vector)
    return jax.lax.fori_loop(0, loops, body, (vector, out))[1]


def measure(X: sp.csr_array, loops: int, repeats: int) -> dict[str, float]:
    """Nanoseconds per non-zero of every product."""
    scale = 1e9 / X.nnz
    XT = X.T
    rng = np.random.default_rng(1)
    w, t = rng.normal(size=X.shape[1]), rng.normal(size=X.shape[0])
    matrix = as_matrix(X)
    assert isinstance(matrix, Sparse)
    result = {"nnz": X.nnz, "build": scale * best(lambda: as_matrix(X), repeats)[0]}
    for product, part in (("matvec", matrix.by_row), ("rmatvec", matrix.by_col)):
        result[f"{product} bytes"] = sum(leaf.nbytes for leaf in jax.tree.leaves(part)) / X.nnz
    with jax.enable_x64(True):
        for product, vector in (("matvec", w), ("rmatvec", t)):
            call = partial(_loop, matrix, jnp.asarray(vector), product, loops)
            call().block_until_ready()
            result[product] = scale * best(lambda call=call: call().block_until_ready(), repeats)[0] / (loops + 1)
    result["scipy matvec"] = scale * best(lambda: X @ w, repeats * 3)[0]
    result["scipy rmatvec"] = scale * best(lambda: XT @ t, repeats * 3)[0]
    return result


def bandwidth(size: int, repeats: int) -> float:
    """GB/s at which one jitted sum reads an array of so many bytes."""
    with jax.enable_x64(True):
        array, total = jnp.ones(size // 8), jax.jit(jnp.sum)
        total(array).block_until_ready()
        return size / best(lambda: total(array).block_until_ready(), repeats)[0] / 1e9


def report(payload: dict) -> str:
    """The section of RESULTS.md."""
    sets, limit = payload["sets"], payload["bandwidth"]
    limits = []
    for name, s in sets.items():
        for product, what in (("matvec", "X@w"), ("rmatvec", "X^T t")):
            size, speed = s[f"{product} bytes"], s[f"{product} bytes"] / s[product]
            limits.append([f"{name} size", what, f"{size:.1f}", f"{speed:.1f}", f"{speed / limit:.2f}"])
    keys = ["matvec", "rmatvec", "build", "scipy matvec", "scipy rmatvec"]
    rows = [[f"{name} size", f"{s['nnz']:,}", *(f"{s[key]:.2f}" for key in keys)] for name, s in sets.items()]
    worst = max(found[key] / found[f"scipy {key}"] for found in sets.values() for key in keys[:2])
    return f"""## Sparse products (`benchmarks/products.py`), ns per non-zero inside a jitted loop

Least of {payload["repeats"]} loops of {payload["loops"]} products in float64. The slowest product takes {worst:.2f} \
times scipy's; `build` is the time of the layout, once a data set. Both products gather: rows and columns are stored \
in chunks, at twice the memory of a CSR matrix.

{table(["set", "non-zeros", "X@w", "X^T t", "build", "scipy X@w", "scipy X^T t"], rows)}

Limits: a jitted sum reads {payload["array"] / 2**20:,.0f} MiB at {limit:.1f} GB/s. The bytes are those of the layout \
(values, indices, owners, padding), once a product; the vectors come on top. A share above 1 means that the set lies \
in the cache.

{table(["set", "product", "bytes a non-zero", "GB/s", "share of the limit"], limits)}"""


def main() -> None:
    """Measure, print and record."""
    arguments = parser(__doc__)
    arguments.add_argument("--all", action="store_true", help="also the news20 size (1 GB, minutes)")
    options = arguments.parse_args()
    names = ["smoke"] if options.smoke else ["rcv1", "real-sim"] + ["news20"] * options.all
    loops, repeats = (3, 2) if options.smoke else (20, 5)
    array = 1 << (24 if options.smoke else 30)
    payload = {"loops": loops, "repeats": repeats, "array": array, "bandwidth": round(bandwidth(array, repeats), 2)}
    payload["sets"] = {}
    for name in names:
        found = measure(power_law(*SIZES[name]), loops, repeats)
        payload["sets"][name] = {key: value if key == "nnz" else round(value, 3) for key, value in found.items()}
    finish("products", payload, options)
    print(report(payload))


if __name__ == "__main__":
    main()
