"""The numbers of a region against its certificate in 60 digits, at the region's own float trial pair.

The ball about the written-out float centre must hold the exact ball; so must every interval that is read off it.
"""

from dataclasses import dataclass
from typing import Any

import exact
import jax
import numpy as np
import oracle
from exact import MP
from pairs import Task

import jaxbounds as jb
from jaxbounds.array import to_host
from jaxbounds.certificates.centre import coefficients, new_scores
from jaxbounds.host import matrix_of

METHODS = (jb.Theorem1(), jb.Partial())  # Partial holds the regions of Cached


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


def pick(interval, mask):
    return interval[0][mask], interval[1][mask]


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
    ex, kept = t.ex, c.astype(float) > 0
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
        at = coefficients(model, edit, region)
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
        found = region.scores(model, edit, matrix_of(data, True))
        holds("score", found, centre - length, centre + length, context)
        n = edit.n
        own = new_scores(model, edit, region)
        holds("own score", pick(own, kept), (centre - length)[:n][kept], (centre + length)[:n][kept], context)
        p = None if pr.param is None else exact.number(pr.param)
        for i in np.flatnonzero(kept):
            s = centre[i] + np.array([-1, 1]) * length[i]
            q = exact.coordinate(pr.loss, s, exact.number(pr.y[i]))
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
    found = pick(region.duals(model, edit), kept)
    holds("alpha", found, alpha_low[kept], alpha_high[kept], context)
    gone = np.zeros(edit.d, bool)
    gone[edit.cols[edit.col_removed]] = True
    found = pick(region.coordinates(model, edit), ~gone)
    holds("w", found, low[~gone], high[~gone], context)
    return t


def level(task, ex):
    """|w_j| <= this, from psi_j(w_j) <= P(w)."""
    pr, p = task.new[0], None if task.pr.param is None else exact.number(task.pr.param)
    q = exact.coordinate(pr.loss, ex.X @ ex.w, exact.array(pr.y))
    l1 = exact.array(pr.l1, len(ex.w))
    P = sum((c * exact.value(pr.loss, p, z) for c, z in zip(ex.c, q, strict=True) if c > 0), MP.zero)
    P += sum(ex.lam / 2 * ex.w**2 + l1 * abs(ex.w), MP.zero)
    P = max(P, MP.mpf(10) ** -400)
    return np.array([2 * P / (a + exact.root(a * a + 2 * lam * P)) for a, lam in zip(l1, ex.lam, strict=True)])


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
    found = region.distance(to_host(task.model), edit)
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
                    if not np.all(np.isfinite(np.concatenate([region.w, region.alpha]))):
                        assert not np.isfinite(region.gap) and not np.isfinite(region.radius), context
                        continue  # an overflow at the trial pair: the region says nothing
                    found.append((type(method).__name__, region, check_region(task, edit, region, context)))
    return found


# ---------------------------------------------------------------- the optimum itself


def optimum(task: Task):
    """The new optimum to 45 digits (Newton from the oracle's), or None where its active set is not certain."""
    pr, c = task.new
    if pr.loss == "hinge":
        return None
    w = exact.array(oracle.solve(pr).w)
    return refined(pr, c, w, pr.X, *(exact.array(value, w.size) for value in (pr.lam, pr.l1)))


def refined(pr, c, w, X, lam, l1):
    """Newton steps from w on the columns that are not 0 there or have no l1, or None if the outcome is not certain."""
    X, y = exact.array(X), exact.array(pr.y)
    o = y if pr.margin else exact.array(np.ones(y.size))
    p = None if pr.param is None else exact.number(pr.param)
    kinked, sign = l1 > 0, np.array([MP.sign(z) for z in w])
    on = (w != 0) | ~kinked
    for _ in range(12):
        q = exact.coordinate(pr.loss, X @ w, y)
        g = lam * w + l1 * sign - X.T @ (c * o * np.array([exact.dual(pr.loss, p, z) for z in q]))
        if exact.norm(g[on]) < 1e-45:
            break
        H = (X.T * (c * np.array([second(pr.loss, p, z) for z in q]))) @ X + np.diag(lam)
        try:
            w[on] -= np.array(list(MP.lu_solve(MP.matrix(H[np.ix_(on, on)].tolist()), MP.matrix(g[on].tolist()))))
        except ZeroDivisionError:  # an intercept that no row determines
            return None
    sure = exact.norm(g[on]) < 1e-45 and all(abs(g[~on]) <= l1[~on]) and all((w * sign)[on & kinked] > 0)
    return w if sure else None


def second(loss, p, q):
    if loss == "logistic":
        return 1 / ((1 + MP.exp(q)) * (1 + MP.exp(-q)))
    if loss == "smoothed_hinge":
        return 1 / p if 1 - p < q < 1 else MP.zero
    inside = {"squared_hinge": q < 1, "huber": loss == "huber" and abs(q) < p}.get(loss, True)
    return MP.one if inside else MP.zero


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
