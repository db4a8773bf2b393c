"""Random small problems with a stored pair (w, alpha), and a change of any kind, for the rounding tests."""

from dataclasses import dataclass, replace
from functools import cached_property

import exact
import jax
import numpy as np
import oracle
import scipy.sparse as sp

import jaxbounds as jb
from jaxbounds.array import put
from jaxbounds.matrix import as_matrix
from jaxbounds.model import Data, remember

KINDS = (
    "set_elements", "set_rows", "set_columns", "set_targets", "set_weights", "add_rows", "remove_rows", "add_columns",
    "remove_columns", "set_penalty", "combine",
)  # fmt: skip
LOSSES = ("smoothed_hinge", "logistic", "squared", "squared_hinge", "huber", "hinge")
TRAINING = ("optimal", "rough", "suggested", "float32", "any")


@dataclass(frozen=True, eq=False)
class Task:
    """A stored pair (w, alpha) of an old problem, and a change in the contract's names."""

    pr: oracle.Problem
    scale: str
    weight: np.ndarray
    w: np.ndarray
    alpha: np.ndarray
    changes: list
    sparse: bool

    @cached_property
    def model(self):
        pr = self.pr
        loss = getattr(jb.losses, pr.loss)(*(() if pr.param is None else (pr.param,)))
        problem = jb.Problem(loss, penalty_of(vars(pr)), self.scale)
        with jax.enable_x64(True), np.errstate(all="ignore"):
            matrix = as_matrix(sp.csr_array(pr.X) if self.sparse else pr.X)
            data, w, alpha = put((Data(matrix, pr.y, self.weight), self.w, self.alpha))
            return remember(problem, data, w, alpha)

    @cached_property
    def change(self):
        def build(kind, a):
            return jb.set_penalty(penalty_of(a)) if kind == "set_penalty" else getattr(jb, kind)(**a)

        return jb.combine(*(build(kind, a) for kind, a in self.changes))

    @cached_property
    def new(self):
        """(the new problem in the bounds' numbering, exact c): what was removed has weight 0 and only zeros."""
        pr, (n, d) = self.pr, self.pr.X.shape
        rows, cols = oracle.numbering(n, d, self.changes)
        X, y, weight, _ = oracle.apply_change(pr.X, pr.y, self.weight, self.changes, self.scale)
        size = max(n, rows.max() + 1), max(d, cols.max() + 1)
        full = np.zeros(size)
        full[np.ix_(rows, cols)] = X
        kept = sum(len(a["rows"]) for kind, a in self.changes if kind == "remove_rows" and a.get("keep_n"))
        divisor = len(rows) + kept if self.scale == "mean" else 1
        c = exact.array(np.zeros(size[0]))
        c[rows] = exact.weights(weight, divisor)
        target = np.ones(size[0])
        target[rows] = y
        more = {k: v for kind, a in self.changes if kind == "set_penalty" for k, v in a.items()}
        return replace(pr, X=full, y=target, c=c.astype(float), **more), c


def penalty_of(a):
    if a["penalty"] == "l2":
        return jb.penalties.l2(a["lam"])
    return jb.penalties.elastic_net(a["lam"], a["l1"])


def draw(rng, kind=None, loss=None, training=None, fixed=None, magnitude=0) -> Task:
    """One random small problem with its stored pair and its change.

    fixed: (n, d, number of rows, columns or elements that change, penalty), for one shape and structure.
    magnitude: rows of norm 10^-m, 1 or 10^m.
    """
    loss = loss or str(rng.choice(LOSSES))
    kind = kind or str(rng.choice(KINDS))
    training = training or str(rng.choice(TRAINING))
    n, d = (int(rng.integers(2, 13)), int(rng.integers(1, 7))) if fixed is None else fixed[:2]
    scale = str(rng.choice(["mean", "sum"])) if fixed is None else "mean"
    single = training == "float32"

    def values(*shape):
        x = rng.normal(size=shape) * rng.choice([0.0, 1.0, 1.0, 1.0], size=shape)
        x = x * 10.0 ** (magnitude * rng.integers(-1, 2, size=(shape[0], 1)))
        return x.astype(np.float32) if single else x

    def targets(k):
        return rng.choice([-1.0, 1.0], k) if loss in oracle.MARGIN_LOSSES else rng.normal(size=k)

    X, y, weight = values(n, d), targets(n), rng.uniform(0.5, 2.0, n) if rng.random() < 0.7 else np.ones(n)
    penalty = str(rng.choice(["l2", "elastic_net"])) if fixed is None else fixed[3]

    def strength(vector):
        lam = 10.0 ** rng.uniform(-3, 1) * (n if scale == "sum" else 1) * (rng.uniform(0.5, 2.0, d) if vector else 1.0)
        l1 = float(rng.uniform(0, 0.2)) if penalty == "elastic_net" else 0.0
        return {"penalty": penalty, "lam": lam if vector else float(lam), "l1": l1}

    param = {"smoothed_hinge": 10.0 ** rng.uniform(-2, 0.3), "huber": rng.uniform(0.2, 2.0)}.get(loss)
    vector = fixed is None and kind != "add_columns" and rng.random() < 0.2
    unit = 1 / n if scale == "mean" else 1.0
    pr = oracle.Problem(loss, X.astype(float), y, weight * unit, param=param, **strength(vector))
    w, alpha = stored(rng, pr, training)
    if magnitude:
        w = w * 10.0 ** (magnitude * int(rng.integers(-1, 2)))
    most = None if fixed is None else fixed[2]
    changes = change(rng, kind, n, d, X, values, targets, lambda: strength(vector), most)
    return Task(replace(pr, X=X), scale, weight, w, alpha, changes, fixed is None and bool(rng.random() < 0.3))


def stored(rng, pr, training):
    """(w, alpha) as a training run of the given quality leaves them."""
    n, d = pr.X.shape
    lo, hi = oracle.loss_domain(pr.loss, pr.param)
    if training == "any":
        return rng.normal(size=d), np.clip(rng.normal(size=n), lo, hi)
    best = oracle.solve(pr)
    if training == "optimal":
        return best.w, best.alpha
    if training == "rough":
        return best.w + 1e-2 * rng.normal(size=d), np.clip(best.alpha + 1e-2 * rng.normal(size=n), lo, hi)
    w = best.w.astype(np.float32) if training == "float32" else best.w + 1e-8 * rng.normal(size=d)
    return w, oracle.dual_point(pr, np.asarray(w, float))


def change(rng, kind, n, d, X, values, targets, strength, exactly=None):
    """A change of the given kind, as (constructor, arguments)."""

    def some(size, most=3):
        count = int(rng.integers(1, min(size, most) + 1)) if exactly is None else exactly
        return np.sort(rng.choice(size, count, replace=False))

    if kind == "combine":
        names = ["set_columns", "set_elements", "set_targets", "set_weights", "add_rows"]
        parts = [names[k] for k in np.sort(rng.choice(len(names), 2, replace=False))]
        return [c for part in parts for c in change(rng, part, n, d, X, values, targets, strength, exactly)]
    rows, cols = some(n), some(d)
    if kind == "set_elements":
        flat = some(n * d, 4)
        rows, cols = flat // d, flat % d
        small = rng.choice([1.0, 1e-3, 1e-13])
        new = X[rows, cols] + np.asarray(small * rng.normal(size=len(rows)), X.dtype)
        return [(kind, {"rows": rows, "cols": cols, "values": new})]
    if kind == "set_rows":
        y_new = targets(len(rows)) if exactly is None and rng.random() < 0.5 else None
        return [(kind, {"rows": rows, "X_new": values(len(rows), d), "y_new": y_new})]
    if kind == "set_columns":
        return [(kind, {"cols": cols, "X_new": values(n, len(cols))})]
    if kind == "set_targets":
        return [(kind, {"rows": rows, "y_new": targets(len(rows))})]
    if kind == "set_weights":
        return [(kind, {"rows": rows, "weights": rng.uniform(0.2, 3.0, len(rows))})]
    if kind == "add_rows":
        k = int(rng.integers(1, 4))
        return [(kind, {"X_new": values(k, d), "y_new": targets(k), "sample_weight": rng.uniform(0.5, 2.0, k)})]
    if kind == "remove_rows":
        return [(kind, {"rows": rows[: n - 1], "keep_n": exactly is None and bool(rng.random() < 0.5)})]
    if kind == "add_columns":
        return [(kind, {"X_new": values(n, int(rng.integers(1, 3)))})]
    if kind == "remove_columns":
        return [(kind, {"cols": cols[: d - 1]})] if d > 1 else [("set_columns", {"cols": cols, "X_new": 0 * X})]
    return [(kind, strength())]
