"""The small active sets of crossings.py for many removed rows at once, padded to one size.

Only the rows nearest to their kinks can ever cross. They are few, so their products with each other are made once; a
block of removed rows brings its own products with them, and then everything is looked up.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from jaxbounds.rounding import TINY, U, growth, up

_ROUNDS = 4  # growths of the active sets
_STEPS = 10  # Newton steps on them
_LARGEST = 60  # rows that cross
_NEAR = 4000  # rows near their kinks


@dataclass(frozen=True)
class Near:
    """The rows nearest to their kinks, those within a distance `beyond` in units of ||D||_H."""

    rows: np.ndarray  # (F,) the nearest first
    reach: np.ndarray  # (F + 1,) their distances, and that of the next one
    place: np.ndarray  # (n,) where a row stands among them, F if it does not
    products: np.ndarray  # (F + 1, F + 1) of them with each other in the metric of H^-1, zeros at the end
    square: np.ndarray  # (n,) of each row with itself, and with f
    last: np.ndarray
    errors: np.ndarray  # (3, F): what the scales of a look at them are multiplied by
    beyond: float

    @staticmethod
    def of(state: Any, order, ranked, most: float) -> Near:
        """The rows that may cross while ||D||_H <= most, as far as there is room for them."""
        inv, n = state.inv, state.q.size
        count = min(int(np.searchsorted(ranked, most, side="right")), _NEAR)
        rows, reach = order[:count], np.append(ranked, np.inf)[: count + 1]
        products, place = np.zeros((count + 1, count + 1)), np.full(n, count)
        products[:-1, :-1] = inv.products(rows, rows)
        place[rows] = np.arange(count)
        errors = np.stack([inv.size[rows], inv.blur[rows], inv.root[rows]]) * (1 + growth(32))
        square, last = inv.with_last()
        return Near(rows, reach, place, products, square, last, errors, float(reach[-1]))

    def within(self, most: float) -> Near:
        """Those that may cross while ||D||_H <= most."""
        count = int(np.searchsorted(self.reach[:-1], most, side="right"))
        return replace(self, rows=self.rows[:count], errors=self.errors[:, :count], beyond=float(self.reach[count]))


@dataclass(frozen=True)
class Look:
    """What the rows near their kinks do if row k leaves and nobody crosses: (B, F) numbers, a line for each k."""

    omega: np.ndarray  # (B,)
    products: np.ndarray  # with row k
    moves: np.ndarray  # x_i.D = -(h_i + omega N_ik)
    room: np.ndarray  # lower bounds of what is left of the way to the kink, inf for row k itself
    scales: np.ndarray  # (B, 3) of their errors

    @staticmethod
    def at(state: Any, near: Near, rows, m, m_pad) -> Look:
        inv, n = state.inv, state.q.size
        a, b, b_pad = state.a[rows], state.b[rows], state.b_pad[rows]
        omega = -(b + a * m)
        omega_pad = up(b_pad + a * (m_pad + 40 * U * np.abs(m)) + 4 * U * np.abs(b))
        products = inv.products(rows, near.rows)
        moves = products * -omega[:, None]
        moves -= near.last[near.rows]
        size = np.abs(omega) * inv.size[rows] + inv.size[n]
        blur = np.abs(omega) * inv.blur[rows] + inv.blur[n]
        scales = np.stack([(inv.share + 8 * U) * size + blur, size, omega_pad * inv.root[rows]], axis=1)
        room = scales @ near.errors
        room += np.abs(moves)
        np.subtract(state.dist[near.rows], room, out=room)
        own = near.place[rows]
        here = own < near.rows.size
        room[np.flatnonzero(here), own[here]] = np.inf
        return Look(omega, products, moves, room, scales)

    def some(self, which) -> Look:
        """That of some of the rows."""
        return Look(*(part[which] for part in (self.omega, self.products, self.moves, self.room, self.scales)))


@dataclass(frozen=True)
class Sets:
    """Row k and the rows that cross when it leaves: (B, s) numbers, padded with k itself where `live` is False."""

    at: np.ndarray  # (B, s - 1) places among the rows near their kinks, the last of all at padding
    S: np.ndarray
    live: np.ndarray
    N: np.ndarray  # (B, s, s) products x.H^-1 x, 0 at padding
    h: np.ndarray  # products with f
    size: np.ndarray
    blur: np.ndarray
    q: np.ndarray
    pad: np.ndarray
    a: np.ndarray
    b: np.ndarray
    c: np.ndarray

    @staticmethod
    def of(state: Any, near: Near, look: Look, rows, at) -> Sets:
        inv, end = state.inv, len(near.products) - 1
        live = np.hstack([np.ones((rows.size, 1), bool), at < end])
        inside = np.where(live[:, 1:], at, 0)
        S = np.where(live, np.hstack([rows[:, None], near.rows[inside]]), rows[:, None])
        N = np.empty((*S.shape, S.shape[1]))
        N[:, 1:, 1:] = near.products.ravel().take(at[:, :, None] * (end + 1) + at[:, None, :])
        own = np.take_along_axis(look.products, inside, axis=1)
        N[:, 0, 1:] = N[:, 1:, 0] = np.where(live[:, 1:], own, 0.0)
        N[:, 0, 0] = near.square[rows]
        h, size, blur = (np.where(live, values[S], 0.0) for values in (near.last, inv.size, inv.blur))
        old = (values[S] for values in (state.q, state.pad, state.a, state.b, state.c))
        return Sets(at, S, live, N, h, size, blur, *old)

    def moves(self, omega):
        """x_i.D over S."""
        return -((self.N @ omega[:, :, None])[:, :, 0] + self.h)

    def scales(self, omega):
        """The scales (size, blur) of the error of sum_S omega_j x_j, (B,) each."""
        return np.sum(np.abs(omega) * self.size, axis=1), np.sum(np.abs(omega) * self.blur, axis=1)

    def some(self, which) -> Sets:
        """The sets of some of the rows."""
        return Sets(*(getattr(self, field.name)[which] for field in fields(self)))


def solve_many(state: Any, rows, near: Near, m, m_pad, step):
    """(centre, half-width, done) of q_k for rows k that few others cross for; what is not done is left to `solve`.

    Args:
        near: the rows that may cross; m, m_pad, step: for each row the first move x_k.D, its error and ||D||_H.
    """
    look = Look.at(state, near, rows, m, m_pad)
    crosses = ~(look.room > 0)
    count, inside = crosses.sum(axis=1), step < near.beyond
    done = inside & (count == 0)
    centre, half = state.q[rows] + m, np.where(done, m_pad + state.pad[rows], np.inf)
    todo = np.flatnonzero(inside & (count > 0) & (count <= _LARGEST))
    look, own = look.some(todo), look.omega[todo]
    whose, at = np.nonzero(crosses[todo])
    omega = np.zeros(at.size)
    for _ in range(_ROUNDS):
        if not todo.size:
            break
        look.room[whose, at] = np.inf  # these are watched
        place = np.arange(at.size) - np.searchsorted(whose, whose)
        ats = np.full((todo.size, place.max() + 1), len(near.products) - 1)
        ats[whose, place] = at
        sets = Sets.of(state, near, look, rows[todo], ats)
        start = np.zeros(sets.S.shape)
        start[:, 0], start[whose, place + 1] = own, omega
        end, found = _newton(state, sets, start)
        far, row, loose = _loose(state, near, look, sets, end, step[todo])
        found &= ~far
        grows = np.bincount(row, minlength=todo.size)
        settled = found & (grows == 0)
        which = todo[settled]
        centre[which], half[which] = _certificate(state, sets.some(settled), end[settled])
        done[which] = True
        again = found & (grows > 0) & (grows + np.bincount(whose, minlength=todo.size) <= _LARGEST)
        omega, own, look = end[whose, place + 1], end[again, 0], look.some(again)
        keep, more, renumber = again[whose], again[row], np.cumsum(again) - 1
        whose = renumber[np.concatenate([whose[keep], row[more]])]
        sort = np.argsort(whose, kind="stable")
        at, omega = np.concatenate([at[keep], loose[more]]), np.concatenate([omega[keep], np.zeros(more.sum())])
        whose, at, omega, todo = whose[sort], at[sort], omega[sort], todo[again]
    return centre, half, done


def _omega(state: Any, sets: Sets, d):
    """omega(d) and its derivative; row k itself leaves, and padding counts nothing."""
    a, b = sets.a, sets.b
    slope, second = state.slopes(sets.q + d, sets.S)
    value, slope = sets.c * slope - b - a * d, sets.c * second - a
    value[:, 0], slope[:, 0] = -b[:, 0] - a[:, 0] * d[:, 0], -a[:, 0]
    return np.where(sets.live, value, 0.0), np.where(sets.live, slope, 0.0)


def _newton(state: Any, sets: Sets, omega):
    """Solutions of omega = omega(d), and which were found."""
    found, all_sets, end, left = np.zeros(len(omega), bool), sets, omega, np.arange(len(omega))
    value, slope = _omega(state, sets, sets.moves(omega))
    for _ in range(_STEPS):
        matrix = slope[:, :, None] * sets.N
        np.einsum("bii->bi", matrix)[:] += 1.0
        try:
            omega = omega + np.linalg.solve(matrix, (value - omega)[:, :, None])[:, :, 0]
        except np.linalg.LinAlgError:
            break
        d = sets.moves(omega)
        value, slope = _omega(state, sets, d)
        # the stored coordinates themselves are not known any better
        noise = sets.c * state.lip * (sets.pad + 16 * U * (np.abs(sets.q) + np.abs(d) + 1))
        noise = noise + 16 * U * (np.abs(sets.b) + sets.a * np.abs(d) + np.abs(omega))
        good = np.all((np.abs(value - omega) <= noise) | ~sets.live, axis=1)
        end[left], found[left] = omega, good
        if good.all():
            break
        left = left[~good]
        sets, omega, value, slope = all_sets.some(left), omega[~good], value[~good], slope[~good]
    return end, found


def _loose(state: Any, near: Near, look: Look, sets: Sets, omega, step):
    """(which sets end too far to say, rows outside the sets that may cross where these end: number of set, place)."""
    inv, i = state.inv, near.rows
    change = omega.copy()  # D is the first D and -H^-1 sum_S change_j x_j
    change[:, 0] -= look.omega
    (size, blur), width = sets.scales(change), change.shape[1]
    square = np.einsum("bi,bi->b", change, (sets.N @ change[:, :, None])[:, :, 0])
    off = inv.share * size**2 + 2 * size * blur + growth(2 * width + 8) * size**2
    norm = np.sqrt(np.maximum(up(square), 0.0) + up(off, width)) * (1 + 8 * U)
    far = ~(up(step + norm) < near.beyond)
    row, at = np.nonzero(~(look.room > norm[:, None] * (inv.root[i] * (1 + 8 * U))))
    others = near.products[at[:, None], sets.at[row]]
    moves = look.moves[row, at] - change[row, 0] * look.products[row, at]
    moves = moves - np.einsum("pj,pj->p", others, change[row, 1:])
    r, own_blur = inv.size[i[at]], inv.blur[i[at]]
    pads = (inv.share + growth(width + 12)) * r * size[row] + own_blur * size[row] + r * blur[row]
    pads = pads + np.einsum("pj,jp->p", look.scales[row], near.errors[:, at])
    loose = ~(np.abs(moves) + up(pads, width + 8) < state.dist[i[at]])
    return far, row[loose], at[loose]


def _certificate(state: Any, sets: Sets, omega):
    """(centre, half-width) of q_k from the residual gradient at w + D; all rows outside the sets surely stay."""
    inv, k, width = state.inv, sets.S[:, 0], sets.S.shape[1]
    q, a, b, d = sets.q, sets.a, np.abs(sets.b), sets.moves(omega)
    size, blur = sets.scales(omega)
    size, blur = size + inv.size[-1], blur + inv.blur[-1]
    d_pad = ((inv.share + growth(width + 9)) * size + blur)[:, None] * sets.size + size[:, None] * sets.blur
    d_pad = up(d_pad, width + 1)
    value, noise = _omega(state, sets, d)[0], 40 * U * (a * np.abs(d) + b + np.abs(omega))
    # omega(d) is Lipschitz in d and in the stored coordinate; the rest is its own rounding
    wide = sets.pad + d_pad + 4 * U * (np.abs(q) + np.abs(d))
    pads = 2 * sets.c * state.lip * wide + 2 * noise + 40 * U * np.abs(value)
    pads[:, 0] = state.b_pad[k] + a[:, 0] * d_pad[:, 0] + noise[:, 0]
    rest = np.where(sets.live, up(np.abs(value - omega) + pads, 16) + TINY, 0.0)
    # the gradient is at most sum_S rest_j tau_j in the metric of 1/ridge
    half = state.tau[k] * up(np.sum(rest * state.tau[sets.S], axis=1), width)
    rounding = 8 * U * (np.abs(q[:, 0]) + np.abs(d[:, 0]))
    return q[:, 0] + d[:, 0], up(half + d_pad[:, 0] + state.pad[k] + rounding, 16)
