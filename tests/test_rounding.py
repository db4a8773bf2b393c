"""Every number a certificate gives, against the same formula in 60 digits for the exact stored floats.

The trial pair (w, alpha) of each region is a pair of float arrays; `exact` evaluates the certificate there without
rounding, and the region's ball about its written-out float centre must hold the exact ball. Optima refined to 50
digits check the formulas themselves. pytest -m full runs the long versions.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import exact
import jax
import numpy as np
import oracle
import pytest
import scipy.sparse as sp
from exact import MP

import jaxbounds as jb
from jaxbounds import support
from jaxbounds.array import put, to_host
from jaxbounds.host import matrix_of
from jaxbounds.matrix import as_matrix
from jaxbounds.model import Data, remember

METHODS = (jb.Theorem1(), jb.Partial())  # Partial holds the regions of Cached
KINDS = (
    "set_elements", "set_rows", "set_columns", "set_targets", "set_weights", "add_rows", "remove_rows", "add_columns",
    "remove_columns", "set_penalty", "combine",
)  # fmt: skip
LOSSES = ("smoothed_hinge", "logistic", "squared", "squared_hinge", "huber", "hinge")
TRAINING = ("optimal", "rough", "suggested", "float32", "any")


# ---------------------------------------------------------------- random problems and changes


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
        with jax.enable_x64(True):
            matrix = as_matrix(sp.csr_array(pr.X) if self.sparse else pr.X)
            data, w, alpha = put((Data(matrix, pr.y, self.weight), self.w, self.alpha))
            return remember(problem, data, w, alpha)

    @cached_property
    def change(self):
        parts = [
            jb.set_penalty(penalty_of(a)) if kind == "set_penalty" else getattr(jb, kind)(**a) for kind, a in self.changes
        ]
        return parts[0] if len(parts) == 1 else jb.combine(*parts)

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

    fixed: (n, d, number of rows, columns or elements that change), dense. magnitude: rows of norm 10^-m, 1 or 10^m.
    """
    loss = loss or str(rng.choice(LOSSES))
    kind = kind or str(rng.choice(KINDS))
    training = training or str(rng.choice(TRAINING))
    n, d = (int(rng.integers(2, 13)), int(rng.integers(1, 7))) if fixed is None else fixed[:2]
    scale = str(rng.choice(["mean", "sum"]))
    single = training == "float32"

    def values(*shape):
        x = rng.normal(size=shape) * rng.choice([0.0, 1.0, 1.0, 1.0], size=shape)
        x = x * 10.0 ** (magnitude * rng.integers(-1, 2, size=(shape[0], 1)))
        return x.astype(np.float32) if single else x

    def targets(k):
        return rng.choice([-1.0, 1.0], k) if loss in oracle.MARGIN_LOSSES else rng.normal(size=k)

    X, y, weight = values(n, d), targets(n), rng.uniform(0.5, 2.0, n) if rng.random() < 0.7 else np.ones(n)
    penalty = str(rng.choice(["l2", "elastic_net"]))

    def strength(vector):
        lam = 10.0 ** rng.uniform(-3, 1) * (n if scale == "sum" else 1) * (rng.uniform(0.5, 2.0, d) if vector else 1.0)
        l1 = float(rng.uniform(0, 0.2)) if penalty == "elastic_net" else 0.0
        return {"penalty": penalty, "lam": lam if vector else float(lam), "l1": l1}

    param = {"smoothed_hinge": 10.0 ** rng.uniform(-2, 0.3), "huber": rng.uniform(0.2, 2.0)}.get(loss)
    vector = kind != "add_columns" and rng.random() < 0.2
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
        y_new = targets(len(rows)) if rng.random() < 0.5 else None
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
        return [(kind, {"rows": rows[: n - 1], "keep_n": bool(rng.random() < 0.5)})]
    if kind == "add_columns":
        return [(kind, {"X_new": values(n, int(rng.integers(1, 3)))})]
    if kind == "remove_columns":
        return [(kind, {"cols": cols[: d - 1]})] if d > 1 else change(rng, "set_rows", n, d, X, values, targets, strength)
    return [(kind, strength())]


# ---------------------------------------------------------------- the comparison


@dataclass(frozen=True, eq=False)
class Truth:
    """The exact certificate at a region's trial pair with the region's own theta (a float)."""

    ex: exact.Exact
    theta: Any
    radius: Any  # in the norm sqrt(sum lam_j z_j^2)
    mu: Any
    dual_radius: Any

    @property
    def centre(self):
        return self.ex.w - self.theta * (self.ex.w - self.ex.u)


def truth(task: Task, edit, region) -> Truth:
    pr, c = task.new
    w, alpha = np.zeros(edit.d), np.zeros(edit.n)
    w[: len(task.w)], alpha[: len(task.alpha)] = task.w, to_host(task.model.alpha)
    for full, slots, number in ((w, region.w, edit.cols), (alpha, region.alpha, edit.rows)):
        inside = number < full.size
        full[number[inside]] = slots[inside]
    alpha = np.where(c.astype(float) > 0, alpha, 0.0)
    ex = exact.evaluate(pr, w, alpha, c)
    theta, mu = exact.number(region.theta), exact.number(region.mu)
    excess = ex.B - ex.moved_lam / 2
    rest = 1 - theta  # 1/(2 + rho')
    top = ex.F + excess
    if theta == 0.5:
        top -= ex.gamma * ex.dual_moved**2 / 4
    elif theta > 0.5:
        C = np.sqrt(c.astype(float))[:, None] * np.asarray(pr.X, float)
        sigma_sq = max(np.linalg.norm(C, 2) ** 2, 1e-300)
        rho, have = float(ex.gamma * min(ex.lam)) / sigma_sq, float((2 * theta - 1) / rest)
        if have > rho * (1 + 1e-9) + 1e-6 * (have > 1e8):
            assert have <= 2 * rho * (1 + 1e-9) or have > 1e8, f"shrunk by {have}, rho is {rho}"
            top += 2 * exact.root(ex.F * ex.G)
    radius = exact.root(2 * top * rest + (rest * rest) * ex.moved_lam)
    G = ex.G_mid if mu > 0 else 2 * ex.G
    return Truth(ex, theta, radius, mu, exact.root(G / ex.gamma) if ex.gamma > 0 else MP.inf)


def outer(x):
    """An upper end as it is published: NaN is infinite."""
    return MP.inf if np.isnan(x) else exact.number(x)


def holds(name, interval, low, high, context=""):
    """lower <= low and high <= upper, exactly, elementwise."""
    lower, upper = (np.atleast_1d(np.asarray(a)) for a in interval)
    for i, (a, b) in enumerate(zip(np.atleast_1d(low), np.atleast_1d(high), strict=True)):
        below, above = -outer(-lower[i]), outer(upper[i])
        assert a > b or (below <= a and b <= above), (
            f"{name}[{i}] {context}: [{MP.nstr(a, 20)}, {MP.nstr(b, 20)}] is not inside [{lower[i]!r}, {upper[i]!r}], "
            f"beyond by {MP.nstr(max(below - a, b - above), 5)}"
        )


def check_region(task: Task, edit, region, context="") -> Truth:
    model, (pr, c), t = to_host(task.model), task.new, truth(task, edit, region)
    ex = t.ex
    assert outer(region.gap) >= ex.G, f"gap {context}: {region.gap!r} < {MP.nstr(ex.G, 25)}"
    matrix = np.asarray(pr.X, float)
    v_low, v_high = ex.v_domain()
    reach_v = min(t.dual_radius + t.mu * ex.dual_moved, exact.root(2 * ex.G / ex.gamma)) if region.dual else MP.inf
    N = ex.column_sums()
    spread = np.array([exact.root(z) * reach_v if z > 0 else MP.zero for z in N])
    low, high = np.maximum(v_low, ex.v - spread), np.minimum(v_high, ex.v + spread)
    l1 = exact.array(pr.l1, edit.d)
    low, high = ((np.sign(z.astype(float)) * np.maximum(abs(z) - l1, 0)) / ex.lam for z in (low, high))
    size = level(task, ex)
    low, high = np.maximum(low, -size), np.minimum(high, size)
    alpha_low, alpha_high = (exact.array(np.full(edit.n, MP.zero + z)) for z in ex.alpha_domain)
    if region.primal:
        at = support.coefficients(model, edit, region)
        if np.isfinite(region.radius) and np.all(np.isfinite(at.centre + at.centre_pad)):
            over = np.maximum(abs(exact.array(at.centre) - t.centre) - exact.array(at.centre_pad), MP.zero)
            need = t.radius + exact.root(sum(ex.lam * over**2, MP.zero))
            assert exact.number(region.radius) >= need, f"radius {context}: {region.radius!r} < {MP.nstr(need, 25)}"
            for name, value, pad, true in (("v", at.v, at.v_pad, ex.v), ("e", at.e, at.e_pad, ex.w - ex.u)):
                off = abs(exact.array(value) - true)
                holds(name, (np.zeros(edit.d), pad), off, off, context)
        reach = exact.root(sum(ex.lam * (t.theta * (ex.w - ex.u)) ** 2, MP.zero)) + t.radius
        assert outer(region.reach) >= reach / exact.root(min(ex.lam)), f"reach {context}"
        half = np.array([t.radius / exact.root(z) for z in ex.lam])
        low, high = np.maximum(low, t.centre - half), np.minimum(high, t.centre + half)
        if pr.penalty == "l2" and region.dual:
            for box in joint_boxes(ex, N):
                low, high = np.maximum(low, box[0]), np.minimum(high, box[1])
        data = np.vstack([matrix, np.eye(edit.d), np.full((1, edit.d), 0.3)])
        exact_data = exact.array(data)
        centre = exact_data @ t.centre
        length = np.array([exact.root(z) for z in (exact_data**2) @ (1 / ex.lam)]) * t.radius
        found = support.scores(model, edit, region, matrix_of(data, True))
        holds("score", found, centre - length, centre + length, context)
        n = edit.n
        own = support.new_scores(model, edit, region)
        kept = c.astype(float) > 0
        holds("own score", (own[0][kept], own[1][kept]), (centre - length)[:n][kept], (centre + length)[:n][kept], context)
        p = None if pr.param is None else exact.number(pr.param)
        for i in np.flatnonzero(kept):
            q = [exact.coordinate(pr.loss, s, exact.number(pr.y[i])) for s in (centre[i] - length[i], centre[i] + length[i])]
            ends = [exact.dual(pr.loss, p, z) for z in (max(q), min(q))]
            if pr.loss == "hinge":
                ends[1] = MP.one if min(q) <= 1 else MP.zero
            alpha_low[i], alpha_high[i] = max(alpha_low[i], ends[0]), min(alpha_high[i], ends[1])
        check_distance(task, edit, region, t, context)
    if region.dual:
        middle = (1 - t.mu) * ex.alpha + t.mu * ex.a
        half = np.array([t.dual_radius / exact.root(z) if z > 0 else MP.inf for z in c])
        alpha_low, alpha_high = np.maximum(alpha_low, middle - half), np.minimum(alpha_high, middle + half)
        assert outer(region.dual_radius) >= t.dual_radius, f"dual radius {context}"
    kept = c.astype(float) > 0
    found = support.duals(model, edit, region)
    holds("alpha", (found[0][kept], found[1][kept]), alpha_low[kept], alpha_high[kept], context)
    gone = np.zeros(edit.d, bool)
    gone[edit.cols[edit.col_removed]] = True
    found = support.coordinates(model, edit, region)
    holds("w", (found[0][~gone], found[1][~gone]), low[~gone], high[~gone], context)
    return t


def level(task, ex):
    """|w_j| <= this, from psi_j(w_j) <= P(w)."""
    pr, p = task.new[0], None if task.pr.param is None else exact.number(task.pr.param)
    q = exact.coordinate(pr.loss, ex.X @ ex.w, exact.array(pr.y))
    l1 = exact.array(pr.l1, len(ex.w))
    P = sum((c * exact.value(pr.loss, p, z) for c, z in zip(ex.c, q, strict=True) if c > 0), MP.zero)
    P += sum(ex.lam / 2 * ex.w**2 + l1 * abs(ex.w), MP.zero)
    return np.array([2 * P / (a + exact.root(a * a + 2 * lam * P)) if P > 0 else MP.zero for a, lam in zip(l1, ex.lam, strict=True)])


def joint_boxes(ex, N):
    """lam (w-c)^2 + share gamma lam^2/(2 N) (w-u)^2 <= G - lam/4 ||w-u||^2 (+ 2 sqrt(F G) where t = a is enforced)."""
    for share in (1, 2):
        joint = ex.G - ex.moved_lam / 4 + (2 * exact.root(ex.F * ex.G) if share == 2 else 0)
        low, high = [], []
        for j, z in enumerate(N):
            k = share * ex.gamma * ex.lam[j] / (2 * z) if z > 0 else MP.mpf(10) ** 400
            middle = (ex.centre[j] + k * ex.u[j]) / (1 + k)
            half = exact.root(joint / (ex.lam[j] * (1 + k)) - k * (ex.centre[j] - ex.u[j]) ** 2 / (1 + k) ** 2)
            low.append(middle - half)
            high.append(middle + half)
        yield np.array(low), np.array(high)


def check_distance(task, edit, region, t, context):
    old = np.zeros(edit.d)
    old[: len(task.w)] = task.w
    old = exact.array(old)
    gone = np.zeros(edit.d, bool)
    gone[edit.cols[edit.col_removed]] = True
    apart, lost = exact.norm((t.centre - old)[~gone]), exact.norm(old[gone])
    radius = t.radius / exact.root(min(t.ex.lam))
    low, high = max(apart - radius, MP.zero), apart + radius
    found = support.distance(to_host(task.model), edit, region)
    holds("distance", found, exact.root(lost**2 + low**2), exact.root(lost**2 + high**2), context)


def check(task: Task, methods=METHODS):
    """All regions of all methods; returns [(region, truth)]."""
    found = []
    for method in methods:
        bounds = jb.bound(task.model, task.change, method)
        with jax.enable_x64(True), np.errstate(all="ignore"):
            for k, (edit, regions) in enumerate(to_host(bounds.parts)):
                for r, region in enumerate(regions):
                    context = f"({type(method).__name__} part {k} region {r})"
                    found.append((type(method).__name__, region, check_region(task, edit, region, context)))
    return found


# ---------------------------------------------------------------- the optimum itself


def optimum(task: Task):
    """The new optimum to 45 digits (Newton from the oracle's), or None where its active set is not certain."""
    pr, c = task.new
    if pr.loss == "hinge":
        return None
    w = exact.array(oracle.solve(pr).w)
    X, y, lam, l1 = exact.array(pr.X), exact.array(pr.y), exact.array(pr.lam, w.size), exact.array(pr.l1, w.size)
    o = y if pr.margin else exact.array(np.ones(y.size))
    p = None if pr.param is None else exact.number(pr.param)
    on, sign = np.array([z != 0 for z in w]), np.array([MP.sign(z) for z in w])
    for _ in range(12):
        q = exact.coordinate(pr.loss, X @ w, y)
        g = lam * w + l1 * sign - X.T @ (c * o * np.array([exact.dual(pr.loss, p, z) for z in q]))
        if exact.norm(g[on]) < 1e-45:
            break
        H = (X.T * (c * np.array([second(pr.loss, p, z) for z in q]))) @ X + np.diag(lam)
        w[on] -= np.array(list(MP.lu_solve(MP.matrix(H[np.ix_(on, on)].tolist()), MP.matrix(g[on].tolist()))))
    sure = exact.norm(g[on]) < 1e-45 and all(abs(g[~on]) <= l1[~on]) and all(w[on] * sign[on] > 0)
    return w if sure else None


def second(loss, p, q):
    if loss == "logistic":
        return 1 / ((1 + MP.exp(q)) * (1 + MP.exp(-q)))
    inside = {"smoothed_hinge": 1 - (p or 0) < q < 1, "squared_hinge": q < 1, "huber": abs(q) < (p or 0)}.get(loss, True)
    return (1 / p if loss == "smoothed_hinge" else MP.one) if inside else MP.zero


def check_optimum(task: Task, methods=METHODS) -> bool:
    """The public intervals hold the optimum; False where it is not known well enough."""
    w = optimum(task)
    if w is None:
        return False
    pr, c = task.new
    q = exact.coordinate(pr.loss, exact.array(pr.X) @ w, exact.array(pr.y))
    p = None if pr.param is None else exact.number(pr.param)
    alpha = np.array([exact.dual(pr.loss, p, z) if b > 0 else MP.zero for z, b in zip(q, c, strict=True)])
    X = np.vstack([pr.X, np.eye(w.size)])
    old = np.zeros(w.size)
    old[: len(task.w)] = task.w
    for method in methods:
        bounds, name = jb.bound(task.model, task.change, method), type(method).__name__
        scores, moved = exact.array(X) @ w, exact.norm(w - exact.array(old))
        for what, interval, value in (
            ("w", bounds.w(), w), ("alpha", bounds.alpha(), alpha), ("scores", bounds.scores(X), scores),
            ("distance", bounds.distance, np.array([moved])),
        ):  # fmt: skip
            holds(f"optimal {what}", (np.asarray(interval.lower), np.asarray(interval.upper)), value, value, name)
    return True


# ---------------------------------------------------------------- the tests


def run(seeds, **options):
    """Check one problem a seed; returns radius/exact where the exact radius is not negligible."""
    ratios = []
    for seed in seeds:
        task = draw(np.random.default_rng(seed), **options)
        try:
            found = check(task)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {task.pr.loss}, {task.pr.penalty}, {task.changes}: {error}") from None
        for _, region, t in found:
            if region.primal and t.radius > 1e-6 * (1 + exact.root(t.ex.moved_lam)):
                ratios.append(float(exact.number(region.radius) / t.radius))
    return ratios


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("block", range(5))
def test_exact_regions_are_inside(block, x64):
    start = 300 * block + 150 * x64
    with jax.enable_x64(x64):
        ratios = run(range(start, start + 30))
    assert np.median(ratios) <= 1.05


@pytest.mark.full
@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("block", range(10))
def test_exact_regions_are_inside_many(block, x64):
    start = 10_000 + 1000 * block + 500 * x64
    with jax.enable_x64(x64):
        ratios = run(range(start, start + 100))
    assert np.median(ratios) <= 1.05


@pytest.mark.parametrize("x64", [False, True])
def test_optimum_is_inside(x64):
    with jax.enable_x64(x64):
        known = [check_optimum(draw(np.random.default_rng(seed))) for seed in range(5000 + 40 * x64, 5040 + 40 * x64)]
    assert sum(known) >= 20


@pytest.mark.parametrize("training", TRAINING)
@pytest.mark.parametrize("loss", LOSSES)
def test_changes_below_the_rounding(loss, training):
    rng = np.random.default_rng([LOSSES.index(loss), TRAINING.index(training)])
    task = draw(rng, "set_elements", loss, training)
    a = task.changes[0][1]
    old = task.pr.X[a["rows"], a["cols"]]
    task = replace(task, changes=[("set_elements", a | {"values": np.nextafter(old, np.full(old.shape, np.inf, old.dtype))})])
    check(task)


@pytest.mark.parametrize("magnitude", [75, 150])
def test_extreme_scales(magnitude):
    for seed in range(20):
        run([seed], training="any", magnitude=magnitude)


@pytest.mark.parametrize(
    ("kind", "loss"), [("set_rows", "logistic"), ("set_elements", "smoothed_hinge"), ("remove_rows", "squared")]
)
def test_compiled_regions(kind, loss):
    """The same formulas under jit: multiply-adds fuse and sums are reordered."""
    compiled = jax.jit(jb.bound)
    for seed in range(12):
        task = draw(np.random.default_rng(seed), kind, loss, fixed=(6, 3, 2))
        bounds = compiled(task.model, task.change)
        with jax.enable_x64(True), np.errstate(all="ignore"):
            for edit, regions in to_host(bounds.parts):
                for region in regions:
                    check_region(task, edit, region, f"(seed {seed})")


def test_a_radius_without_allowance_is_too_small():
    """Least squares with t = a(w): the mid ball has radius ||w - u||/2, which floats undershoot half of the time."""
    below = 0
    for seed in range(60):
        task = draw(np.random.default_rng(seed), "set_rows", "squared", "optimal")
        pr = replace(task.new[0], penalty="l2", lam=float(np.max(task.new[0].lam)), l1=0.0)
        alpha = oracle.dual_point(pr, task.w)
        u = pr.X.T @ (pr.c * alpha) / pr.lam
        naive = np.sqrt(0.25 * np.sum((pr.c * (alpha - oracle.dual_point(pr, task.w)) ** 2)) / pr.lam
                        + np.sum((task.w - u) ** 2) / 4)  # fmt: skip
        below += exact.number(naive) < exact.evaluate(pr, task.w, alpha).R
    assert below >= 12
