"""The memory of a model into which changes are committed, in place, at the cost of the touched rows alone.

A trial w stays, the deployed one or one that is closer to the present optimum; the dual variables of touched rows
become a(w) (F = 0 there), or stay for losses that are not smooth. With that pair any number of commits later the
four-point inequality (theory 4.2) bounds the retrained model of all changes together, from a handful of sums, which
also tell its distance from the deployed model: with b = w - w^ and the disc's centre w - theta e,

    ||c - w^||^2 = ||b - theta e||^2

Everything is kept in "sum" scale, where rows that come or go rescale
nothing: the mean over N rows with lam is the sum with N lam, and v does not depend on it.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np

from jaxbounds.array import put, to_host
from jaxbounds.certificates.four_point import shrunk_ball
from jaxbounds.edit import bucket, prepare, scalar_l2
from jaxbounds.host import host_matrix
from jaxbounds.kinds import Change, Combined, SetElements, SetTargets
from jaxbounds.matrix import Matrix
from jaxbounds.model import (
    Columns,
    Data,
    Model,
    Rows,
    coordinate_pad,
    fenchel_bounds,
    gamma_of,
    known_ref,
    remember,
    score_pad,
)
from jaxbounds.monitoring.overlay import Overlay, grown
from jaxbounds.penalties import l2
from jaxbounds.problem import Problem
from jaxbounds.pytree import in_float64
from jaxbounds.rounding import TINY, U, down, growth, norm_down, norm_up, up

_DRIFT = 1e-6  # share of a sum that accumulated rounding may reach before everything is summed again


def committable(problem: Problem) -> bool:
    """Whether changes of rows can be committed: an L2 penalty with one lam, and no intercept."""
    return scalar_l2(problem.penalty, 0) and not problem.intercept


@dataclass(frozen=True)
class Sums:
    """Sums over all rows or columns, in "sum" scale; e = w - u at the lam of the last recompute."""

    fenchel: float  # upper bound of sum c FY
    square: float  # lower bound of sum c (alpha - a)^2
    sigma_sq: float  # upper bound of ||C^(1/2) X||^2
    e_e: float  # about ||e||^2, and a bound on its error
    e_e_error: float
    e_w: float  # about e.w, and a bound on its error
    e_w_error: float
    e_b: float  # about e.b, and a bound on its error
    e_b_error: float
    pad_sq: float  # upper bound of the squared norm of what the stored e is off by
    w_w: float
    terms: int  # most summands in a score


@dataclass(frozen=True)
class Step:
    """What a change writes: new contents of rows and columns, and the new sums. Nothing is changed yet."""

    rows: np.ndarray
    contents: tuple  # (slot in rows, column, value), sorted
    row_values: dict[str, np.ndarray]
    cols: np.ndarray
    column_values: dict[str, np.ndarray]
    sums: Sums
    count: int


@dataclass(frozen=True)
class Disc:
    """||w* - c|| <= radius with c = w - theta (by_e e + by_w w), and (lower, upper) of ||w* - w^||."""

    radius: float
    theta: float
    by_e: float
    by_w: float
    lower: float
    upper: float


@partial(jax.jit, donate_argnums=0)
def _scatter(arrays, index, values):
    return jax.tree.map(lambda a, v: a.at[index].set(v, mode="drop"), arrays, values)


def write(arrays: dict[str, Any], index, values: dict[str, Any]) -> dict[str, Any]:
    """arrays with values written at index, in place: on an accelerator the old buffers are donated and gone.

    Only for buffers that their owner alone holds.
    """
    if any(isinstance(a, jax.Array) for a in arrays.values()):
        return _scatter(arrays, index, values)
    for name, value in values.items():
        arrays[name][index] = value
    return arrays


class Committed:
    """The memory of (w, alpha) on data that change.

    Args:
        problem: see `committable`. matrix, target, weight: the data now. deployed: w^. w: the trial point.
        alpha: dual variables, only used for losses that are not smooth; others take a(w).
        count: what the mean divides by.
    """

    @in_float64
    def __init__(self, problem: Problem, matrix: Matrix, target, weight, deployed, w, alpha, count: int):
        self.problem, self.count = to_host(problem), count
        self.lam = self.lam_now(count)
        scaled = Problem(problem.loss, l2(self.lam), "sum")
        self.scaled = to_host(scaled)
        data, loss, ref = put(Data(matrix, target, weight)), self.scaled.loss, None
        if loss.smoothness is not None:
            ref = loss.coordinate(host_matrix(matrix).matvec(np.asarray(w, np.float64)), target)
            alpha = loss.dual(ref, target)
        model = to_host(remember(scaled, data, put(w), put(alpha), put(ref), b=put(np.zeros(()))))
        self.w, self.deployed = np.array(model.w, np.float64), np.array(deployed, np.float64)
        self.b = self.w - self.deployed
        self.overlay = Overlay(to_host(matrix))
        names = {"target": model.rows.target, "weight": model.rows.weight, "alpha": model.alpha, "ref": model.ref}
        names |= {"fenchel": model.rows.fenchel, "square": model.rows.square}
        self.rows = {name: np.array(value) for name, value in names.items()}  # private: written to in place
        self.columns = {"v": np.array(model.columns.v), "v_pad": np.array(model.columns.v_pad)}
        self.size = self.rows["alpha"].shape[0]
        totals = model.totals
        self.sums = Sums(
            fenchel=float(totals.fenchel),
            square=float(totals.square),
            sigma_sq=float(totals.sigma_sq),
            w_w=float(self.w @ self.w),
            terms=model.row_terms,
            **self._sum_e(),
        )

    def lam_now(self, count: int) -> float:
        """lam in "sum" scale."""
        return float(self.problem.penalty.strong_convexity) * (count if self.problem.scale == "mean" else 1)

    def _sum_e(self) -> dict[str, float]:
        """The sums over all of e, and their errors."""
        e, k = self.w - self.columns["v"] / self.lam, self.w.shape[0] + 8
        found = {"pad_sq": self._pad_sq(slice(None), self.columns["v"], self.columns["v_pad"])}
        for name, other in (("e_e", e), ("e_w", self.w), ("e_b", self.b)):
            found[name] = float(e @ other)
            found[name + "_error"] = float(growth(k) * up(np.abs(e) @ np.abs(other), k))
        return found

    def _pad_sq(self, cols, v, v_pad) -> float:
        u, w = np.abs(v) / self.lam, np.abs(self.w[cols])
        pad = up(v_pad / self.lam + 8 * U * (u + w))
        return float(up(np.sum(pad**2), pad.shape[0]) + pad.shape[0] * TINY)

    def _old(self, name: str, rows, fill: float = 0.0) -> np.ndarray:
        array = self.rows[name]
        return np.where(rows < self.size, array[np.minimum(rows, self.size - 1)], fill)

    @in_float64
    def plan(self, change: Change, count: int) -> Step:
        """What committing a change of rows would write; the change is checked, in row slots. Costs its rows' entries.

        `count`: what the mean divides by afterwards.
        """
        loss, n = self.scaled.loss, self.size
        rows, cols, slot, col, old, new, target, weight = self._entries(change)
        R = rows.shape[0]

        def by_row(x):
            return np.bincount(slot, x, R)

        def by_col(x):
            return np.bincount(col, x, cols.shape[0])

        at = new * self.w[cols][col]
        terms = max(self.sums.terms, int(np.bincount(slot, new != 0, R).max(initial=1)))
        score, size = by_row(at), up(by_row(np.abs(at)), terms)
        alpha_old = self._old("alpha", rows)
        alpha, ref, fenchel, square = self._duals(score, size, target, terms)
        if loss.smoothness is None:  # any other than the old alpha would put F where none was
            kept = rows < n
            alpha, ref = np.where(kept, alpha_old, alpha), np.where(kept, self._old("ref", rows), ref)
            _, _, fenchel, square = self._duals(score, size, target, terms, alpha, ref)

        weight_old = self._old("weight", rows)
        was = weight_old * loss.orientation(self._old("target", rows, 1.0)) * alpha_old
        now = weight * loss.orientation(target) * alpha
        gain, less = now[slot] * new, was[slot] * old
        v_old, pad_old = self.columns["v"][cols], self.columns["v_pad"][cols]
        v = v_old + by_col(gain - less)
        v_pad = growth(min(R, slot.shape[0]) + 12) * by_col(np.abs(gain) + np.abs(less))
        v_pad = up(pad_old + v_pad + 2 * U * (np.abs(v_old) + np.abs(v))) + TINY

        live = weight > 0
        alpha, fenchel, square = (np.where(live, x, 0.0) for x in (alpha, fenchel, square))
        row_values = {"target": target, "weight": weight, "alpha": alpha, "ref": ref}
        row_values |= {"fenchel": fenchel, "square": square}
        sums = self._sums_after(rows, weight_old, weight * fenchel, weight * square, terms)
        sums = self._e_after(sums, cols, v_old, pad_old, v, v_pad)
        moved = np.sum((np.sqrt(weight[slot]) * new - np.sqrt(weight_old[slot]) * old) ** 2)
        k = slot.shape[0] + 16
        fresh = np.sum(weight[slot] * new**2)
        sigma_sq = min(sums.sigma_sq + up(fresh, k), (np.sqrt(sums.sigma_sq) + np.sqrt(up(moved, k))) ** 2)
        sums = replace(sums, sigma_sq=float(up(sigma_sq)))
        kept = (new != 0) & live[slot]
        contents = slot[kept], cols[col[kept]].astype(np.int32), new[kept].astype(self.overlay.dtype)
        return Step(rows, contents, row_values, cols, {"v": v, "v_pad": v_pad}, sums, count)

    def _duals(self, score, size, target, terms: int, alpha=None, ref=None) -> list[np.ndarray]:
        """(alpha, ref, FY, (alpha - a)^2) at scores known within rounding; alpha = a(w) by default."""
        loss, R = self.scaled.loss, score.shape[0]
        if loss.defined_by_ref:  # users' functions are compiled: few shapes
            more = bucket(R) - R
            score, size, target = np.pad(score, (0, more)), np.pad(size, (0, more)), np.pad(target, (0, more), "edge")
            alpha, ref = (None if x is None else np.pad(x, (0, more), "edge") for x in (alpha, ref))
        q = loss.coordinate(score, target)
        ref = q if ref is None else ref
        alpha = loss.dual(q, target) if alpha is None else alpha
        pad = coordinate_pad(q, score_pad(size, terms))
        found = fenchel_bounds(loss, q, pad, alpha, target, known_ref(loss, self.scaled.penalty, ref))
        return [np.asarray(x)[:R] for x in (alpha, ref, *found)]

    def _entries(self, change: Change) -> tuple:
        """(rows, columns, row slot, column slot, old, new, target, weight): touched rows with all their entries."""
        n = self.size
        target, weight = self.rows["target"][:n], self.rows["weight"][:n]
        parts: tuple[Any, ...] = change.parts()
        if all(isinstance(part, SetElements) for part in parts):
            # rows are listed in full as soon as a part is about rows: this one sets the target that is there
            row = np.asarray(parts[0].rows)[:1]
            if row[0] < n:
                change = Combined((*parts, SetTargets(row, target[row])))
        none: Any = None
        blank = Rows(target, weight, *(none,) * 6)
        view = Model(
            self.scaled, self.w, none, self.rows["alpha"][:n], none, none, none, none, none, blank,
            Columns(*(none,) * 6), none, Data(self.overlay, target, weight),  # type: ignore[arg-type]
        )  # fmt: skip
        edit = prepare(view, to_host(change))
        R, Q = np.searchsorted(edit.rows, edit.n), np.searchsorted(edit.cols, edit.d)
        E = np.searchsorted(edit.row, R)
        rows, cols = edit.rows[:R].astype(np.int64), edit.cols[:Q].astype(np.int64)
        weight = np.where(edit.row_removed[:R], 0.0, edit.weight[:R])
        return rows, cols, edit.row[:E], edit.col[:E], edit.old[:E], edit.new[:E], edit.target[:R], weight

    def _sums_after(self, rows, weight_old, fenchel, square, terms: int) -> Sums:
        sums, k = self.sums, rows.shape[0] + 4
        gone = down(np.sum(weight_old * self._old("fenchel", rows)), k)
        F = up(max(up(sums.fenchel, 2) - gone, 0.0) + up(np.sum(fenchel), k), 2)
        gone = up(np.sum(weight_old * self._old("square", rows)), k)
        T = down(max(down(sums.square, 2) - gone, 0.0) + down(np.sum(square), k), 2)
        return replace(sums, fenchel=float(F), square=float(T), terms=terms)

    def _e_after(self, sums: Sums, cols, v_old, pad_old, v, v_pad) -> Sums:
        """How the sums over e = w - v / lam move, and what rounding adds to their errors."""
        w, k = self.w[cols], cols.shape[0] + 8
        before, after = w - v_old / self.lam, w - v / self.lam
        e_e = sums.e_e + float(np.sum(after**2 - before**2))
        size = float(up(np.sum(after**2) + np.sum(before**2), k))

        def dot(vector, old: float, old_error: float) -> tuple[float, float]:
            new = old + float(np.sum((after - before) * vector))
            cross = up(np.sum((np.abs(after) + np.abs(before)) * np.abs(vector)), k)
            return new, float(up(old_error + growth(k) * cross + 2 * U * (abs(new) + abs(old))))

        e_w, e_w_error = dot(w, sums.e_w, sums.e_w_error)
        e_b, e_b_error = dot(self.b[cols], sums.e_b, sums.e_b_error)
        gone = down(self._pad_sq(cols, v_old, pad_old), 2 * k) / (1 + growth(2 * k))
        pad_sq = max(up(sums.pad_sq, 2) - gone, 0.0) + self._pad_sq(cols, v, v_pad)
        return replace(
            sums,
            e_e=max(e_e, 0.0),
            e_e_error=float(up(sums.e_e_error + growth(k) * size + 2 * U * (abs(e_e) + sums.e_e))),
            e_w=e_w,
            e_w_error=e_w_error,
            e_b=e_b,
            e_b_error=e_b_error,
            pad_sq=float(up(pad_sq, 2)),
        )

    def commit(self, step: Step) -> None:
        """Write what `plan` has found: a handful of scattered writes, whatever the number of rows and columns."""
        size = max(self.size, int(step.rows[-1]) + 1) if step.rows.size else self.size
        if size > self.rows["alpha"].shape[0]:
            self.rows = {name: grown(array, size) for name, array in self.rows.items()}
        write(self.rows, step.rows, step.row_values)
        write(self.columns, step.cols, step.column_values)
        if step.rows.size:
            self.overlay.write(step.rows, *step.contents)
        self.size, self.sums, self.count = size, step.sums, step.count

    def drifted(self) -> bool:
        """Whether accumulated rounding has become visible, or lam has moved far from where e was summed."""
        sums, ratio = self.sums, self.lam_now(self.count) / self.lam
        return sums.e_e_error > _DRIFT * sums.e_e or not 0.5 < ratio < 2.0

    def overflowed(self) -> bool:
        """Whether numbers too large for floats went in: nothing is certain then, and no sum ever comes back."""
        sums = self.sums
        return not np.isfinite([sums.fenchel, sums.sigma_sq, sums.e_e, sums.e_w, sums.e_b, sums.pad_sq]).all()

    @in_float64
    def recompute(self) -> None:
        """Sum over all columns again, at the present lam: O(d)."""
        self.lam = self.lam_now(self.count)
        self.scaled = replace(self.scaled, penalty=to_host(l2(self.lam)))
        self.sums = replace(self.sums, **self._sum_e())

    @in_float64
    def disc(self) -> Disc:
        """The mid ball around the retrained model (theory 4.2), from the sums alone."""
        sums, d, lam = self.sums, self.w.shape[0], self.lam_now(self.count)
        by_e = self.lam / lam
        by_w, by_w_pad = (0.0, 0.0) if by_e == 1.0 else (1.0 - by_e, 8 * U * (1.0 + by_e))
        e_norm, w_norm = np.sqrt(sums.e_e), np.sqrt(sums.w_w)
        error = by_e**2 * sums.e_e_error + 2 * by_e * abs(by_w) * sums.e_w_error
        off = by_e * (np.sqrt(sums.pad_sq) + 8 * U * e_norm) + by_w_pad * w_norm  # of e itself
        pad = off + np.sqrt(error)  # |sqrt(s + error) - sqrt(s)| <= sqrt(error)
        pad = up(pad * np.sqrt(lam), 16)
        whole = max(by_e**2 * sums.e_e + 2 * by_e * by_w * sums.e_w + by_w**2 * sums.w_w, 0.0)
        slack = growth(d + 16) * (by_e * e_norm + abs(by_w) * w_norm) ** 2
        slack = slack + 4 * d * TINY * (1.0 + by_e + abs(by_w)) ** 2  # squares that vanish
        E = norm_up(lam * (whole + slack), 16) + pad
        gamma = float(gamma_of(self.scaled.loss))
        half = max(sums.fenchel - gamma / 4 * sums.square, 0.0)
        gap = up(sums.fenchel + E**2 / 2, 16)
        theta, radius_sq = shrunk_ball(_Known(gamma, lam, sums.sigma_sq), sums.fenchel, 0.0, E, gap, half)  # type: ignore
        theta = float(theta)
        radius = up((up(np.sqrt(radius_sq), 16) + theta * up(pad) + 8 * U * theta * E) / np.sqrt(lam), 16)
        b_norm = float(np.linalg.norm(self.b))
        near = b_norm**2 + theta**2 * whole - 2 * theta * (by_e * sums.e_b + by_w * float(self.b @ self.w))
        bulk = b_norm + theta * (by_e * e_norm + abs(by_w) * w_norm)
        error = up(growth(2 * d + 32) * bulk**2 + theta**2 * error + 2 * theta * by_e * sums.e_b_error, 16)
        far = up(radius + theta * off)
        lower = max(norm_down(max(near - error, 0.0), d + 24) - far, 0.0)
        upper = up(norm_up(max(near, 0.0) + error, d + 24) + far, 16)
        # N lam and 1/N are rounded: the optimum moves by that share of its norm; b is rounded too
        slip = 8 * U * (w_norm + upper + float(np.linalg.norm(self.deployed)))
        lower, upper = max(down(lower) - slip, 0.0), up(upper + slip)
        return Disc(float(up(radius + slip)), theta, by_e, by_w, float(lower), float(upper))

    @in_float64
    def scores(self, disc: Disc, rows) -> tuple[np.ndarray, np.ndarray]:
        """(lower, upper) of x.w* for rows of a `HostMatrix`: O(d) and the rows' entries."""
        e = self.w - self.columns["v"] / self.lam
        centre = self.w - disc.theta * (disc.by_e * e + disc.by_w * self.w)
        size = np.abs(self.w) + disc.theta * (disc.by_e * np.abs(e) + abs(disc.by_w) * np.abs(self.w))
        terms, magnitude = rows.row_terms, rows.map(np.abs)
        middle = rows.matvec(centre)
        pad = (growth(terms + 4) + 16 * U) * up(magnitude.matvec(size), terms) + terms * TINY
        length = norm_up(rows.map(np.square).matvec(np.ones(self.w.shape[0])), terms + 4)
        half = up(disc.radius * length + pad)
        return middle - half, middle + half


@dataclass(frozen=True)
class _Known:
    """What `shrunk_ball` asks of a ledger."""

    gamma: Any
    lam_min: Any
    bound: Any

    def sigma_sq(self):
        return self.bound
