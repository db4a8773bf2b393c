"""Cells of loss x penalty x change x dtype x storage x scale: random problems, changes and their true optima.

Every cell is made twice from one random stream: for the library (`Made`) and for the oracle, which shares no code.
"""

import functools
import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import scipy.sparse as sp

import jaxbounds as jb
from jaxbounds.array import put
from jaxbounds.matrix import as_matrix
from jaxbounds.model import Data, remember

GAMMA, DELTA, EPSILON, QUANTILE = 0.5, 0.8, 0.2, (0.7, 0.4)


def user_logistic(m):
    return jnp.logaddexp(0.0, -m)


def user_huber(s, y, delta):
    r = jnp.abs(s - y)
    return jnp.where(r <= delta, r * r / 2, delta * r - delta * delta / 2)


def user_ridge(w, lam):
    return lam / 2 * w * w


# name -> (the oracle's loss, its parameter, ours)
LOSSES = {
    "smoothed_hinge": ("smoothed_hinge", GAMMA, lambda: jb.losses.smoothed_hinge(GAMMA)),
    "hinge": ("hinge", None, jb.losses.hinge),
    "squared_hinge": ("squared_hinge", None, jb.losses.squared_hinge),
    "logistic": ("logistic", None, jb.losses.logistic),
    "squared": ("squared", None, jb.losses.squared),
    "huber": ("huber", DELTA, lambda: jb.losses.huber(DELTA)),
    "modified_huber": ("modified_huber", None, jb.losses.modified_huber),
    "log_cosh": ("log_cosh", None, jb.losses.log_cosh),
    "epsilon_insensitive": (
        "squared_epsilon_insensitive", EPSILON, lambda: jb.losses.squared_epsilon_insensitive(EPSILON)
    ),
    "smoothed_quantile": ("smoothed_quantile", QUANTILE, lambda: jb.losses.smoothed_quantile(*QUANTILE)),
    "from_margin": ("logistic", None, lambda: jb.losses.from_margin(user_logistic, 0.25, domain=(0.0, 1.0))),
    "from_score": ("huber", DELTA, lambda: jb.losses.from_score(user_huber, 1.0, (DELTA,), domain=(-DELTA, DELTA))),
}  # fmt: skip
MORE = ("modified_huber", "log_cosh", "epsilon_insensitive", "smoothed_quantile")  # with each penalty, not each change
PENALTIES = ("l2", "vector_l2", "elastic_net", "l1", "lq1.5", "lq3", "from_function")
OTHER = {"l2": "elastic_net", "vector_l2": "l2", "elastic_net": "vector_l2", "l1": "elastic_net", "lq1.5": "l1",
         "lq3": "l2", "from_function": "l2"}  # fmt: skip
CHANGES = (
    "set_elements", "set_rows", "set_rows_targets", "set_columns", "set_targets", "set_weights", "add_rows",
    "remove_rows", "remove_rows_keep_n", "add_columns", "remove_columns", "set_penalty", "other_penalty",
    "combine_overlap", "combine_rows", "combine_penalty", "combine_wide",
)  # fmt: skip
DTYPES, STORAGES, SCALES = ("float64", "float32"), ("dense", "sparse"), ("mean", "sum")
METHODS = (jb.Theorem1(), jb.Cached(), jb.Partial())  # of every cell


class Cell(NamedTuple):
    loss: str
    penalty: str
    change: str
    dtype: str
    storage: str
    scale: str

    def __str__(self):
        return "-".join(self)


def strong(penalty: str) -> bool:
    """Property B."""
    return penalty in ("l2", "vector_l2", "elastic_net", "from_function")


def after_penalty(cell: Cell) -> str:
    return OTHER[cell.penalty] if cell.change == "other_penalty" else cell.penalty


def second_order(cell: Cell) -> list:
    """The methods that read all data, where their assumptions hold."""
    if cell.loss == "hinge":
        return []
    found = [jb.Pass(), jb.Curvature()] if strong(after_penalty(cell)) else [jb.Curvature()]
    return [jb.SelfConcordant(), *found] if has_factor(cell) else found


def has_factor(cell: Cell) -> bool:
    """Whether SelfConcordant applies, to a model with its factor."""
    rows = cell.change not in ("combine_overlap", "combine_wide") and "columns" not in cell.change
    return cell.loss == "logistic" and cell.penalty == after_penalty(cell) == "l2" and rows


def possible(cell: Cell) -> bool:
    """Property A or B before and after the change."""
    return cell.loss != "hinge" or strong(cell.penalty) and strong(after_penalty(cell))


@functools.cache
def every_cell() -> tuple[Cell, ...]:
    return tuple(filter(possible, itertools.starmap(Cell, itertools.product(
        LOSSES, PENALTIES, CHANGES, DTYPES, STORAGES, SCALES))))  # fmt: skip


@functools.cache
def pairwise() -> tuple[Cell, ...]:
    """A greedy cover of every pair of values of two different columns of the table; of MORE only loss and penalty."""
    cells = list(every_cell())
    np.random.default_rng(0).shuffle(cells)
    wanted = [list(enumerate(cell))[: 2 if cell.loss in MORE else None] for cell in cells]
    pairs = [frozenset(itertools.combinations(columns, 2)) for columns in wanted]
    missing, chosen = frozenset().union(*pairs), []
    while missing:
        k = max(range(len(pairs)), key=lambda k: len(pairs[k] & missing))
        chosen.append(Cell(*cells[k]))
        missing -= pairs[k]
    return tuple(chosen)


def penalty_of(name: str, d: int, factor: float = 1.0) -> tuple[dict[str, Any], Any]:
    """(the oracle's fields, our penalty); `factor` scales all its numbers."""
    vector = factor * np.geomspace(0.05, 0.4, d)
    lam, l1, kappa = 0.1 * factor, 0.04 * factor, 0.08 * factor
    if name == "l2":
        return {"penalty": "l2", "lam": lam}, jb.penalties.l2(lam)
    if name == "vector_l2":
        return {"penalty": "l2", "lam": vector}, jb.penalties.l2(vector)
    if name == "elastic_net":
        return {"penalty": "elastic_net", "lam": lam, "l1": l1}, jb.penalties.elastic_net(lam, l1)
    if name == "l1":
        return {"penalty": "l1", "kappa": kappa}, jb.penalties.l1(kappa)
    if name == "from_function":
        return {"penalty": "l2", "lam": vector}, jb.penalties.from_function(user_ridge, vector, (vector,))
    q = float(name[2:])
    return {"penalty": "lq", "lam": lam, "q": q}, jb.penalties.lq(lam, q)


@dataclass(frozen=True, eq=False)
class Made:
    """A cell made real: old data, the same change for us and for the oracle, the old and the new optimum."""

    cell: Cell
    problem: jb.Problem
    X: Any
    y: np.ndarray
    sample_weight: np.ndarray | None
    old: oracle.Problem
    new: oracle.Problem
    changes: list[oracle.Change]
    penalties: list[Any]
    rows: np.ndarray
    cols: np.ndarray
    before: oracle.Optimum
    after: oracle.Optimum
    X_test: np.ndarray

    @property
    def n(self) -> int:
        """Rows in the bounds' numbering: old ones and added ones."""
        added = sum(len(a["X_new"]) for kind, a in self.changes if kind == "add_rows")
        return self.old.X.shape[0] + added

    @property
    def d(self) -> int:
        return self.X_test.shape[1]

    @property
    def w(self) -> np.ndarray:
        """The new optimum in the bounds' numbering."""
        return oracle.embed(self.after.w, self.cols, self.d)

    @property
    def alpha(self) -> np.ndarray:
        return oracle.embed(self.after.alpha, self.rows, self.n)

    def change(self, old_values: bool = False):
        """Our change, with the old values it needs for a model without data."""
        return combined(self.changes, self.penalties, self.old.X if old_values else None, self.cell.dtype)

    def model(self, w=None, alpha=None, ref=None):
        """A model of any pair, the old optimum by default."""
        w = self.before.w if w is None else w
        alpha = self.before.alpha if alpha is None else alpha
        return model_of(self.problem, self.X, self.y, self.sample_weight, w, alpha, ref)

    def inexact(self, rng, size: float = 0.05):
        """A model of a perturbed w and a perturbed, feasible alpha."""
        w = (self.before.w + size * rng.normal(size=self.before.w.size)).astype(self.cell.dtype).astype(float)
        q = self.old.coordinate(w) + size * rng.normal(size=self.y.size)
        if self.cell.loss in ("from_margin", "from_score"):  # these define alpha by where it was taken
            ref = q if self.old.margin else q + self.y
            with jax.enable_x64(True):
                return self.model(w, np.asarray(self.problem.loss.dual(ref, self.y)), ref)
        noise = size * rng.normal(size=q.size)
        alpha = oracle.loss_dual(self.old.loss, self.old.param, q) + noise
        return self.model(w, np.clip(alpha, *oracle.loss_domain(self.old.loss, self.old.param)))


def model_of(problem, X, y, sample_weight, w, alpha, ref=None):
    """The library's memory of a pair (w, alpha), without a fit."""
    weight = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, float)
    with jax.enable_x64(True), np.errstate(all="ignore"):
        matrix = as_matrix(X)
        w = np.asarray(w, float).astype(matrix.dtype)
        data, w, alpha, ref = put((Data(matrix, np.asarray(y, float), weight), w, alpha, ref))
        return remember(problem, data, w, alpha, ref)


def one_change(kind: str, a: dict[str, Any], penalty, old_X, dtype: str):
    """A change in our own words."""
    a = dict(a)
    if kind == "set_penalty":
        return jb.set_penalty(penalty)
    if "X_new" in a:
        a["X_new"] = np.asarray(a["X_new"], dtype)
    if old_X is not None and kind not in ("add_rows", "add_columns"):
        if kind == "set_elements":
            a["old_values"] = old_X[a["rows"], a["cols"]]
        else:
            a["old_values"] = (old_X[a["rows"]] if "rows" in a else old_X[:, a["cols"]]).astype(dtype)
    return getattr(jb, kind)(**a)


def combined(changes: list[oracle.Change], penalties: list[Any], old_X, dtype: str):
    parts = [one_change(*change, penalty, old_X, dtype) for change, penalty in zip(changes, penalties, strict=True)]
    return parts[0] if len(parts) == 1 else jb.combine(*parts)


def random_matrix(rng, n: int, d: int, dtype: str) -> np.ndarray:
    """About half zeros."""
    return (rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.6)).astype(dtype).astype(float)


def targets(rng, k: int, margin: bool) -> np.ndarray:
    return np.where(rng.random(k) < 0.5, 1.0, -1.0) if margin else rng.normal(size=k)


def draw_changes(rng, cell: Cell, n: int, d: int, y, margin: bool) -> list[oracle.Change]:
    """The change of a cell, as a list of the contract's constructors."""

    def block(k, m):
        return random_matrix(rng, k, m, cell.dtype)

    def some(size, k):
        return rng.permutation(size)[:k]

    def elements(k, rows=None, cols=None):
        flat = some(n * d, k)
        rows, cols = flat // d if rows is None else rows, flat % d if cols is None else cols
        values = rng.normal(size=k).astype(cell.dtype).astype(float)
        return "set_elements", {"rows": rows, "cols": cols, "values": values}

    def set_rows(rows, target=False):
        args = {"rows": rows, "X_new": block(len(rows), d)}
        return "set_rows", args | ({"y_new": targets(rng, len(rows), margin)} if target else {})

    def set_targets(rows):
        return "set_targets", {"rows": rows, "y_new": -y[rows] if margin else y[rows] + rng.normal(size=len(rows))}

    def set_weights(rows):
        return "set_weights", {"rows": rows, "weights": rng.uniform(0.2, 3.0, len(rows))}

    def add_rows(k, width=d, weighted=True):
        args = {"X_new": block(k, width), "y_new": targets(rng, k, margin)}
        return "add_rows", args | ({"sample_weight": rng.uniform(0.5, 2.0, k)} if weighted else {})

    def set_columns(cols):
        return "set_columns", {"cols": cols, "X_new": block(n, len(cols))}

    def set_penalty(name, factor, size=d):
        return "set_penalty", penalty_of(name, size, factor)[0] | {"_name": name, "_factor": factor}

    vector = cell.penalty in ("vector_l2", "from_function")
    r = some(n, 4)
    match cell.change:
        case "set_elements":
            return [elements(int(rng.integers(1, 6)))]
        case "set_rows":
            return [set_rows(r[:2])]
        case "set_rows_targets":
            return [set_rows(r[:2], True)]
        case "set_columns":
            return [set_columns(some(d, 1))]
        case "set_targets":
            return [set_targets(r[:2])]
        case "set_weights":
            return [set_weights(r[:3])]
        case "add_rows":
            return [add_rows(2, weighted=bool(rng.integers(2)))]
        case "remove_rows":
            return [("remove_rows", {"rows": r[: int(rng.integers(1, 4))]})]
        case "remove_rows_keep_n":
            return [("remove_rows", {"rows": r[:2], "keep_n": True})]
        case "add_columns":
            more = [set_penalty(cell.penalty, 1.1, d + 1)] if vector else []
            return [("add_columns", {"X_new": block(n, 1)}), *more]
        case "remove_columns":
            return [("remove_columns", {"cols": some(d, 2)})]
        case "set_penalty":
            return [set_penalty(cell.penalty, float(rng.choice([0.5, 0.9, 1.3])))]
        case "other_penalty":
            return [set_penalty(OTHER[cell.penalty], 1.0)]
        case "combine_overlap":
            cols = some(d, 2)
            last = elements(3, np.array([r[0], r[1], r[3]]), np.array([cols[0], cols[1], cols[0]]))
            return [set_targets(r[:1]), elements(2, r[:2], cols), set_rows(r[:2], True), set_columns(cols[:1]),
                    set_targets(r[1:3]), last]  # fmt: skip
        case "combine_rows":
            return [("remove_rows", {"rows": r[:2]}), add_rows(1), set_weights(r[2:3]), elements(2, r[2:], some(d, 2))]
        case "combine_penalty":
            return [set_rows(r[:1]), set_penalty(cell.penalty, 1.2), ("remove_rows", {"rows": r[1:2]})]
    more = [set_penalty(cell.penalty, 1.0, d + 1)] if vector else []
    return [("add_columns", {"X_new": block(n, 1)}), add_rows(1, d + 1), ("remove_columns", {"cols": some(d, 1)}),
            set_targets(r[:1]), *more]  # fmt: skip


@functools.lru_cache(maxsize=64)
def make(cell: Cell, seed: int = 0, n: int = 12, d: int = 5) -> Made:
    """A random problem of a cell, and its optima before and after the change."""
    rng = np.random.default_rng([*map(ord, str(cell)), seed])
    loss, param, ours = LOSSES[cell.loss]
    margin = loss in oracle.MARGIN_LOSSES
    X = random_matrix(rng, n, d, cell.dtype)
    if cell.storage == "sparse":
        X[int(rng.integers(n))] = 0.0
    s = X @ rng.normal(size=d) + 0.5 * rng.normal(size=n)
    y = np.where(s > 0, 1.0, -1.0) if margin else s
    weighted = bool(rng.integers(2)) or cell.change == "set_weights"
    sample_weight = rng.uniform(0.5, 2.0, n) if weighted else None
    fields, penalty = penalty_of(cell.penalty, d, 1.0 if cell.scale == "mean" else float(n))
    c = (np.ones(n) if sample_weight is None else sample_weight) / (n if cell.scale == "mean" else 1)
    old = oracle.Problem(loss, X, y, c, **({"param": param} | fields))
    changes, penalties = [], []
    for kind, args in draw_changes(rng, cell, n, d, y, margin):
        penalty_new = None
        if kind == "set_penalty":
            size = max(np.size(args.get("lam", 0.0)), d)
            unit = 1.0 if cell.scale == "mean" else float(n)
            args, penalty_new = penalty_of(args["_name"], size, args["_factor"] * unit)
        changes.append((kind, args))
        penalties.append(penalty_new)
    new = oracle.changed_problem(old, sample_weight, changes, cell.scale)
    rows, cols = oracle.numbering(n, d, changes)
    width = d + sum(np.shape(a["X_new"])[1] for kind, a in changes if kind == "add_columns")
    data = X.astype(cell.dtype)
    return Made(
        cell, jb.Problem(ours(), penalty, cell.scale), sp.csr_array(data) if cell.storage == "sparse" else data, y,
        sample_weight, old, new, changes, penalties, rows, cols, oracle.solve(old), oracle.solve(new),
        rng.normal(size=(6, width)),
    )  # fmt: skip
