"""Speed of the matrix products: nanoseconds per non-zero inside a jitted loop, next to scipy.

Run ``python benchmarks/products.py`` (a minute) or ``--smoke`` (seconds); ``--json PATH`` also writes the table.
The sets are synthetic: power-law column popularity, of the size of rcv1, real-sim and (``--all``) news20.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from jaxbounds.matrix import as_matrix

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


def _best(call, repeats: int) -> float:
    """Least seconds of a call."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def measure(X: sp.csr_array, loops: int, repeats: int) -> dict[str, float]:
    """Nanoseconds per non-zero of every product."""
    scale = 1e9 / X.nnz
    XT = X.T
    rng = np.random.default_rng(1)
    w, t = rng.normal(size=X.shape[1]), rng.normal(size=X.shape[0])
    matrix = as_matrix(X)
    result = {"nnz": X.nnz, "build": scale * _best(lambda: as_matrix(X), repeats)}
    with jax.enable_x64(True):
        for product, vector in (("matvec", w), ("rmatvec", t)):
            call = partial(_loop, matrix, jnp.asarray(vector), product, loops)
            call().block_until_ready()
            result[product] = scale * _best(lambda call=call: call().block_until_ready(), repeats) / (loops + 1)
    result["scipy matvec"] = scale * _best(lambda: X @ w, repeats * 3)
    result["scipy rmatvec"] = scale * _best(lambda: XT @ t, repeats * 3)
    return result


def main() -> None:
    """Measure, print, and perhaps write, the table."""
    parser = argparse.ArgumentParser(description="Speed of the matrix products.")
    parser.add_argument("--smoke", action="store_true", help="one small set, a few seconds")
    parser.add_argument("--all", action="store_true", help="also the news20 size (1 GB, minutes)")
    parser.add_argument("--json", metavar="PATH", help="write the table here")
    options = parser.parse_args()
    names = ["smoke"] if options.smoke else ["rcv1", "real-sim"] + ["news20"] * options.all
    table = {}
    for name in names:
        loops, repeats = (3, 2) if options.smoke or name == "news20" else (20, 5)
        table[name] = measure(power_law(*SIZES[name]), loops, repeats)
        if len(table) == 1:
            print("ns per non-zero  " + "".join(f"{key:>15}" for key in table[name]))
        print(f"{name:<17}" + "".join(f"{v:>15}" if k == "nnz" else f"{v:>15.2f}" for k, v in table[name].items()))
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"unit": "ns per non-zero", "jax": jax.__version__, "sets": table}, file, indent=1)


if __name__ == "__main__":
    main()
