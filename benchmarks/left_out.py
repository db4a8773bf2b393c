"""Every row left out, in units of a product with the data (the mid ball) and of one training run (the closed form).

Run ``python benchmarks/left_out.py`` (two minutes) or ``--smoke`` (seconds). Medians, the calls taken in turns.
"""

import time

import numpy as np
import scipy.sparse as sp
from _record import finish, parser, table

import jaxbounds as jb
from jaxbounds.array import to_host
from jaxbounds.certificates.removed import ball_scores
from jaxbounds.pytree import in_float64

LOSSES = {"smoothed hinge": lambda: jb.losses.smoothed_hinge(0.5), "logistic": jb.losses.logistic}


def report(payload: dict) -> str:
    """The section of RESULTS.md."""
    ball = [[r["loss"], r["size"], *(f"{1e3 * r[k]:.1f}" for k in ("product", "ball", "all")),
             f"{r['ball'] / r['product']:.2f}", f"{r['all'] / r['product']:.2f}"] for r in payload["ball"]]  # fmt: skip
    closed = [[r["loss"], r["size"], f"{r['fit']:.3g}", f"{r['left']:.3g}", f"{r['left'] / r['fit']:.1f}",
               r["intercept"], f"{r['exact']:.0%}"] for r in payload["closed"]]  # fmt: skip
    return f"""## Every row left out (`benchmarks/left_out.py`)

Medians of {payload["repeats"]} rounds, taken in turns in one process; lam 1e-3. The mid ball on sparse text-like data \
of {payload["terms"]} entries a row: its scores alone, and all of `leave_one_out(model, Cached())` with labels, errors \
and the mean loss.

{table(["loss", "rows x columns", "X w, ms", "ball, ms", "whole call, ms", "ball / X w", "call / X w"], ball)}

The closed form on dense data, against `fit` to 1e-8; "exact": rows whose new optimum is known to rounding.

{table(["loss", "rows x columns", "fit, s", "all rows left out, s", "ratio", "intercept", "exact"], closed)}"""


def medians(calls: dict, repeats: int) -> dict:
    """Median seconds of each call, in turns, after one call of each."""
    times: dict = {name: [] for name in calls}
    for round_ in range(repeats + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if round_:
                times[name].append(time.perf_counter() - start)
    return {name: float(np.median(values)) for name, values in times.items()}


def text_like(rng, n: int, d: int, terms: int):
    """Rows of unit length whose columns follow a power law."""
    cols = (d * rng.random((n, terms)) ** 3).astype(np.int32)
    X = sp.csr_array((rng.random(n * terms) + 0.1, cols.ravel(), np.arange(n + 1) * terms), (n, d))
    X.sum_duplicates()
    return sp.csr_array(sp.diags_array(1 / np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())) @ X)


def labels(rng, X):
    scores = X @ rng.normal(size=X.shape[1])
    return np.where(scores + 0.3 * np.std(scores) * rng.normal(size=X.shape[0]) > 0, 1.0, -1.0)


def main() -> None:
    """Measure, print and record."""
    options = parser(__doc__).parse_args()
    rng, repeats, terms = np.random.default_rng(0), 2 if options.smoke else 7, 75
    payload: dict = {"repeats": repeats, "terms": terms, "ball": [], "closed": []}
    n, d = (2_000, 1_000) if options.smoke else (60_000, 20_000)
    X = text_like(rng, n, d, terms)
    y, w, every = labels(rng, X), rng.normal(size=d), np.arange(n, dtype=np.int32)
    for name, loss in LOSSES.items():
        model = jb.fit(jb.Problem(loss(), jb.penalties.l2(1e-3)), X, y, tol=1e-6)
        calls = {
            "product": lambda: X @ w,
            "ball": lambda model=model: in_float64(ball_scores)(to_host(model), every, False),
            "all": lambda model=model: jb.leave_one_out(model, jb.Cached()),
        }
        payload["ball"].append({"loss": name, "size": f"{n:,} x {d:,}", **medians(calls, 3 * repeats)})
    sizes = [(500, 20)] if options.smoke else [(20_000, 200), (100_000, 200)]
    for n, d in sizes:
        X = rng.normal(size=(n, d)) / np.sqrt(d)
        y = labels(rng, X)
        for name, loss in LOSSES.items():
            for intercept in (False, True) if d < 200 or n < 100_000 else (False,):
                problem = jb.Problem(loss(), jb.penalties.l2(1e-3), intercept=intercept)
                model = jb.fit(problem, X, y, tol=1e-8)
                calls = {"fit": lambda problem=problem, X=X, y=y: jb.fit(problem, X, y, tol=1e-8),
                         "left": lambda model=model: jb.leave_one_out(model)}  # fmt: skip
                scores = jb.leave_one_out(model).scores
                width = np.asarray(scores.upper) - np.asarray(scores.lower)
                payload["closed"].append({
                    "loss": name, "size": f"{n:,} x {d:,}", "intercept": "yes" if intercept else "no",
                    **medians(calls, min(repeats, 3)), "exact": float(np.mean(width < 1e-8)),
                })  # fmt: skip
    finish("left_out", payload, options)
    print(report(payload))


if __name__ == "__main__":
    main()
