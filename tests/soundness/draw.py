"""Hostile random cases: a stored pair (w, alpha) of a problem, changes of every kind, and rows to score.

A case is plain arrays; `shift` scales it by powers of two on its way into the library (X 2^k, w 2^-k, lam 4^k), so that
norms up to 1e150 cost the truth nothing. Everything follows from (seed, number).
"""

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import exact
import jax
import numpy as np
import oracle
import scipy.sparse as sp

import jaxbounds as jb
from jaxbounds.array import put
from jaxbounds.matrix import as_matrix
from jaxbounds.model import Data, remember
from soundness import truth

SMOOTH = ("smoothed_hinge", "squared_hinge", "logistic", "squared", "huber", "modified_huber",
          "squared_epsilon_insensitive", "smoothed_quantile", "log_cosh", "poisson")  # fmt: skip
PENALTIES = ("l2", "vector l2", "elastic net", "l1", "lq")
SHAPES = ((12, 6), (12, 6), (12, 2), (6, 3), (5, 12), (1, 3), (2, 1), (1, 1), (30, 3), (30, 3), (24, 1), (3, 24),
          (2, 1), (1, 1))  # fmt: skip
DATA = ("plain", "duplicates", "constant", "empty", "separable", "one label", "tiny rows", "mixed rows",
        "mixed columns", "collinear", *["flat"] * 8)
KINDS = ("set_elements", "set_rows", "set_columns", "set_targets", "set_weights", "add_rows", "remove_rows",
         "add_columns", "remove_columns", "set_penalty", "combine", "nothing", "one row scaled")  # fmt: skip
TRAINING = ("optimal", "optimal", "suggested", "rough", "dual only", "primal only", "any", "zero")


@dataclass(frozen=True, eq=False)
class Case:
    """A model and what may change; all arrays before `shift`."""

    pr: oracle.Problem
    scale: str
    weight: np.ndarray
    w: np.ndarray
    b: float
    alpha: np.ndarray
    changes: tuple[list[oracle.Change], ...]
    X_test: np.ndarray
    dtype: str
    sparse: bool
    intercept: bool
    shift: int
    labels: dict[str, str]
    start: np.ndarray  # the old optimum, with the intercept last

    @cached_property
    def problem(self) -> jb.Problem:
        loss = getattr(jb.losses, self.pr.loss)(*np.atleast_1d([] if self.pr.param is None else self.pr.param))
        return jb.Problem(loss, self.penalty(vars(self.pr)), self.scale, intercept=self.intercept)

    @cached_property
    def model(self):
        """The library's memory of (w, alpha): nothing is fitted, nothing compiled."""
        X = np.ldexp(self.pr.X, self.shift).astype(self.dtype)
        with jax.enable_x64(True), np.errstate(all="ignore"):
            matrix = as_matrix(sp.csr_array(X) if self.sparse else X)
            w = np.ldexp(self.w, -self.shift).astype(self.dtype)
            data, w, alpha = put((Data(matrix, self.pr.y, self.weight), w, self.alpha))
            return remember(self.problem, data, w, alpha)

    def penalty(self, a: dict[str, Any]):
        """Our penalty of the oracle's fields, with the shift."""
        k = self.shift
        if a["penalty"] == "l1":
            return jb.penalties.l1(np.ldexp(a["kappa"], k))
        if a["penalty"] == "lq":
            return jb.penalties.lq(a["lam"] * 2.0 ** (k * a["q"]), a["q"])
        lam = np.ldexp(a["lam"], 2 * k)
        if a["penalty"] == "l2":
            return jb.penalties.l2(lam)
        return jb.penalties.elastic_net(lam, np.ldexp(a["l1"], k))

    def change(self, number: int):
        """The change of that number in the library's words."""
        parts = [self._part(kind, dict(a)) for kind, a in self.changes[number]]
        return parts[0] if len(parts) == 1 else jb.combine(*parts)

    def _part(self, kind: str, a: dict[str, Any]):
        if kind == "set_penalty":
            return jb.set_penalty(self.penalty(vars(self.pr) | a))
        for name in ("X_new", "values"):
            if name in a:
                a[name] = np.ldexp(a[name], self.shift).astype(self.dtype)
        return getattr(jb, kind)(**a)

    def tests(self, X: np.ndarray) -> np.ndarray:
        """Rows to score, with the shift."""
        return np.ldexp(X, self.shift)

    def after(self, number: int) -> tuple[oracle.Problem, np.ndarray]:
        """(the new problem in the bounds' numbering, its exact weights): removed rows have weight 0, columns zeros."""
        return changed(self.pr, self.weight, self.changes[number], self.scale)

    def truth(self, number: int) -> truth.Truth | None:
        pr, c = self.after(number)
        width = pr.X.shape[1]
        start = np.zeros(width + self.intercept)
        start[: self.w.size] = self.start[: self.w.size]
        start[width:] = self.start[self.w.size :]
        return truth.optimum(pr, c, self.intercept, start)


def changed(pr: oracle.Problem, weight, changes: list[oracle.Change], scale: str):
    """The new problem in the bounds' numbering and its exact weights."""
    n, d = pr.X.shape
    rows, cols = oracle.numbering(n, d, changes)
    X, y, new_weight, _ = oracle.apply_change(pr.X, pr.y, weight, changes, scale)
    size = max(n, rows.max(initial=-1) + 1), max(d, cols.max(initial=-1) + 1)
    full = np.zeros(size)
    full[np.ix_(rows, cols)] = X
    kept = sum(len(a["rows"]) for kind, a in changes if kind == "remove_rows" and a.get("keep_n"))
    divisor = len(rows) + kept if scale == "mean" else 1
    c, target = exact.array(np.zeros(size[0])), np.ones(size[0])
    c[rows], target[rows] = exact.weights(new_weight, divisor), y
    more = {k: v for kind, a in changes if kind == "set_penalty" for k, v in a.items()}
    return replace(pr, X=full, y=target, c=c.astype(float), **more), c


# ---------------------------------------------------------------- drawing


def pick(rng, values) -> Any:
    return values[int(rng.integers(len(values)))]


def draw(seed: int, number: int) -> Case | None:
    """Case `number` of a stream; None where even its old problem has no certain optimum."""
    rng = np.random.default_rng([seed, number])
    intercept = bool(rng.random() < 0.12)
    loss = "hinge" if not intercept and rng.random() < 0.08 else pick(rng, SMOOTH)
    names = PENALTIES[:3] if loss == "hinge" or intercept else PENALTIES
    penalty = pick(rng, names) if rng.random() < 0.5 else "l2"
    made, (n, d) = pick(rng, DATA), pick(rng, SHAPES)
    dtype = "float32" if rng.random() < 0.2 else "float64"
    scale = pick(rng, ("mean", "sum"))
    if made == "flat":  # little curvature but the penalty's: where the four-point inequality is tight
        loss = pick(rng, ("smoothed_hinge", "huber", "modified_huber", "squared", "logistic"))
    labels = {
        "loss": loss, "penalty": penalty, "data": made, "shape": f"{n} x {d}", "dtype": dtype, "scale": scale,
        "storage": pick(rng, ("dense", "dense", "sparse")), "intercept": "yes" if intercept else "no",
    }  # fmt: skip
    margin = loss in oracle.MARGIN_LOSSES

    def values(*shape):
        x = rng.normal(size=shape) * pick(rng, [0.0, 1.0, 1.0, 1.0]) if rng.random() < 0.02 else rng.normal(size=shape)
        return narrow(x * (rng.random(shape) < rng.choice([0.5, 0.9, 1.0])), dtype)

    X = _matrix(rng, made, n, d, dtype, values)

    def targets(k, X=None):
        if loss == "poisson":
            return rng.integers(0, 5, k).astype(float)
        s = rng.normal(size=k) if X is None else X @ rng.normal(size=X.shape[1]) + 0.3 * rng.normal(size=k)
        return np.where(s >= 0, 1.0, -1.0) if margin else s if rng.random() < 0.9 else s * 10.0 ** rng.uniform(-6, 4)

    if made == "separable" and margin:
        y = np.where(X @ rng.normal(size=d) >= 0, 1.0, -1.0)
    elif made == "one label" and margin:
        y = np.full(n, float(pick(rng, (-1.0, 1.0))))
    else:
        y = targets(n, X)
    weight = rng.uniform(0.5, 2.0, n) if rng.random() < 0.5 else np.ones(n)
    if rng.random() < 0.1:
        weight = weight * 10.0 ** rng.integers(-6, 7, n)
    ordinary = made == "flat" or rng.random() < 0.6

    minute = penalty in ("l2", "vector l2") and dtype == "float64" and rng.random() < 0.05  # rows of 1e-147, usual lam

    def strength(width: int = d) -> dict[str, Any]:
        power = rng.uniform(-3, 1) if ordinary else rng.uniform(-8, 3)
        lam = 10.0**power * (n if scale == "sum" else 1) * (2.0**980 if minute else 1.0)
        if penalty == "l1":
            return {"penalty": "l1", "kappa": float(lam) * 0.3}
        if penalty == "lq":
            return {"penalty": "lq", "lam": float(lam), "q": q}
        l1 = float(lam * 10.0 ** rng.uniform(-3, 1)) if penalty == "elastic net" else 0.0
        vector = penalty == "vector l2"
        lam = lam * 10.0 ** rng.uniform(-1, 1, width) if vector else float(lam)
        return {"penalty": "elastic_net" if penalty == "elastic net" else "l2", "lam": lam, "l1": l1}

    q = float(pick(rng, (1.5, 3.0, 2.5)))
    fields = {"lam": None, "kappa": None} | strength()
    pr = oracle.Problem(loss, X, y, weight / (n if scale == "mean" else 1), param=_parameter(rng, loss), **fields)
    c = exact.weights(weight, n if scale == "mean" else 1)
    best = truth.optimum(pr, c, intercept)
    if best is None or not np.all(np.isfinite(best.w.astype(float))):
        return None
    training = pick(rng, TRAINING[:6] if minute else TRAINING)
    w, b, alpha = _stored(rng, pr, best, training, dtype)
    shift = int(pick(rng, (0, 0, 0, 0, -20, 20, -400, 400, 415) if dtype == "float64" else (0, 0, -20, 20)))
    biggest = float(np.abs(X).max(initial=0.0))
    if biggest > 1e9 or penalty == "lq" or made in ("tiny rows", "mixed rows") and abs(shift) > 20:
        shift = 0
    if abs(shift) > 20 and float(np.max(pr.lam if pr.lam is not None else pr.kappa)) > 1e8:
        shift = 20
    shift = -490 if minute else shift
    changes = []
    for _ in range(int(rng.integers(8, 17))):
        kind = pick(rng, KINDS)
        found = _change(rng, kind, n, d, X, y, values, targets, strength, penalty, loss)
        if found is not None:
            changes.append(found)
    labels |= {"training": training, "norms": f"2^{shift}",
               "lam": _decade(np.multiply(pr.lam if pr.kappa is None else pr.kappa, 2.0**-980 if minute else 1.0))}
    X_test = np.vstack([rng.normal(size=(2, d)), X[:1], np.ones((1, d))])
    return Case(
        pr, scale, weight, w, b, alpha, tuple(changes), X_test, dtype, labels["storage"] == "sparse", intercept, shift,
        labels, np.append(best.w.astype(float), [float(best.b)] * intercept),
    )  # fmt: skip


def narrow(x: np.ndarray, dtype: str) -> np.ndarray:
    return np.asarray(x).astype(dtype).astype(float)


def _decade(lam) -> str:
    return f"1e{int(np.floor(np.log10(np.min(lam))))}"


def _parameter(rng, loss: str) -> Any:
    return {
        "smoothed_hinge": 10.0 ** rng.uniform(-2, 0.5), "huber": 10.0 ** rng.uniform(-1, 0.5),
        "squared_epsilon_insensitive": 10.0 ** rng.uniform(-2, 0), "poisson": float(rng.uniform(1.0, 4.0)),
        "smoothed_quantile": (float(rng.uniform(0.1, 0.9)), float(10.0 ** rng.uniform(-1.5, 0.3))),
    }.get(loss)  # fmt: skip


def _matrix(rng, made: str, n: int, d: int, dtype: str, values) -> np.ndarray:
    X = values(n, d)
    if made == "duplicates":
        X = X[rng.integers(0, max(1, n // 3), n)]
    elif made == "constant":
        X[:, int(rng.integers(d))] = narrow(np.array(rng.normal()), dtype)
    elif made == "empty":
        X[rng.random(n) < 0.3] = 0.0
        X[:, rng.random(d) < 0.3] = 0.0
    elif made == "tiny rows":
        X[rng.random(n) < 0.5] *= 1e-30 if dtype == "float32" else 1e-150
    elif made == "mixed rows":
        X = X * 10.0 ** rng.integers(-5, 6, n)[:, None]
    elif made == "mixed columns":
        X = X * 10.0 ** rng.integers(-4, 5, d)[None, :]
    elif made == "flat":
        X = X * 1e-3
    elif made == "collinear":
        X = np.outer(X[:, 0], rng.normal(size=d)) + 1e-6 * X
    return narrow(X, dtype)


def _stored(rng, pr: oracle.Problem, best: truth.Truth, training: str, dtype: str):
    """(w, b, alpha) as a training run of that quality leaves them."""
    n, d = pr.X.shape
    w, alpha = best.w.astype(float), best.alpha.astype(float)
    lo, hi = oracle.loss_domain(pr.loss, truth.float_parameter(pr.loss, pr.param, pr.y))
    size = 10.0 ** rng.uniform(-9, 0.3)
    scale = float(np.abs(w).max(initial=0.0)) or 1e-300
    moved = w + size * scale * rng.normal(size=d)
    noise = alpha + size * max(float(np.abs(alpha).max(initial=0.0)), 1e-12) * rng.normal(size=n)
    if training in ("rough", "primal only"):
        w = moved
    if training in ("rough", "dual only"):
        alpha = noise
    if training == "any":
        w, alpha = rng.normal(size=d) * 10.0 ** rng.uniform(-2, 2), rng.normal(size=n)
    if training == "zero":
        w, alpha = np.zeros(d), np.zeros(n)
    w = narrow(w, dtype)
    if training == "suggested":
        w = narrow(moved, dtype)
        param = truth.float_parameter(pr.loss, pr.param, pr.y)
        alpha = oracle.loss_dual(pr.loss, param, pr.coordinate(w) + (pr.orientation * float(best.b)))
    if pr.loss == "poisson":
        alpha = np.minimum(alpha, pr.y)
    return w, float(best.b), np.clip(alpha, lo, hi)


def _change(rng, kind, n, d, X, y, values, targets, strength, penalty, loss):
    """One change, as (constructor, arguments); None where this shape has none of that kind."""

    def some(size, most=3):
        return np.sort(rng.choice(size, int(rng.integers(1, min(size, most) + 1)), replace=False))

    def again(kind):
        return _change(rng, kind, n, d, X, y, values, targets, strength, penalty, loss)

    grow = float(pick(rng, (1.0, 1.0, 1.0, 1e-3, 1e2, 1e-9, 0.0)))
    tame = np.float32 if np.all(X == X.astype(np.float32)) else np.float64
    rows, cols = some(n), some(d)
    if kind == "combine":
        names = ["set_columns", "set_elements", "set_targets", "set_weights", "add_rows"]
        chosen = [names[k] for k in np.sort(rng.choice(len(names), 2, replace=False))]
        return [part for name in chosen for part in again(name)]
    if kind == "set_elements" or kind == "nothing":
        flat = some(n * d, 5)
        rows, cols = flat // d, flat % d
        new = X[rows, cols] + (0.0 if kind == "nothing" else grow) * rng.normal(size=len(rows))
        return [("set_elements", {"rows": rows, "cols": cols, "values": new.astype(tame).astype(float)})]
    if kind == "one row scaled":
        rows = some(n, 1)
        factor = pick(rng, (0.5, 2.0, -1.0, 0.0, 1 + 2.0**-20))
        return [("set_rows", {"rows": rows, "X_new": (X[rows] * factor).astype(tame).astype(float)})]
    if kind == "set_rows":
        y_new = targets(len(rows)) if rng.random() < 0.5 else None
        X_new = (grow * values(len(rows), d)).astype(tame).astype(float)
        return [(kind, {"rows": rows, "X_new": X_new, "y_new": y_new})]
    if kind == "set_columns":
        return [(kind, {"cols": cols, "X_new": (grow * values(n, len(cols))).astype(tame).astype(float)})]
    if kind == "set_targets":
        flip = loss in oracle.MARGIN_LOSSES and rng.random() < 0.7
        return [(kind, {"rows": rows, "y_new": -y[rows] if flip else targets(len(rows))})]
    if kind == "set_weights":
        weights = 10.0 ** rng.uniform(-0.5, 0.5, len(rows)) * float(pick(rng, (1, 1, 1e-9, 1e4)))
        return [(kind, {"rows": rows, "weights": weights})]
    if kind == "add_rows":
        k = int(rng.integers(1, 4))
        more = {"sample_weight": rng.uniform(0.5, 2.0, k)} if rng.random() < 0.5 else {}
        return [(kind, {"X_new": (grow * values(k, d)).astype(tame).astype(float), "y_new": targets(k)} | more)]
    if kind == "remove_rows":
        if n == 1:
            return None
        return [(kind, {"rows": rows[: n - 1], "keep_n": bool(rng.random() < 0.5)})]
    if kind == "add_columns":
        block = values(n, int(rng.integers(1, 3)))
        if penalty == "vector l2":
            width = d + block.shape[1]
            return [(kind, {"X_new": block}), ("set_penalty", strength(width=width))]
        return [(kind, {"X_new": block})]
    if kind == "remove_columns":
        return None if d == 1 else [(kind, {"cols": cols[: d - 1]})]
    return [("set_penalty", strength())]


def fitted(case: Case, rng) -> Case:
    """The case with a model of `fit`, sometimes, for the shape whose programs are compiled."""
    pr = case.pr
    if pr.X.shape != SHAPES[0] or case.shift or pr.penalty != "l2" or case.intercept or rng.random() > 0.5:
        return case
    if case.dtype != "float64" or case.sparse or np.ndim(pr.lam) or case.labels["data"] not in ("plain", "constant"):
        return case
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jb.FitWarning)
        model = jb.fit(case.problem, case.pr.X, case.pr.y, sample_weight=case.weight, tol=10.0 ** -rng.integers(2, 14))
    case = replace(case, w=np.asarray(model.w), alpha=np.asarray(model.alpha), labels=case.labels | {"training": "fit"})
    case.__dict__["model"] = model
    return case
