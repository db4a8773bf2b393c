"""The small active sets of crossings.py for many removed rows at once, padded to one size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxbounds.rounding import TINY, U, growth, norm_up, up

_ROUNDS = 3  # growths of the active sets
_STEPS = 10  # Newton steps on them
_LARGEST = 60  # rows that cross


@dataclass(frozen=True)
class Sets:
    """Row k and the rows that cross when it leaves: (B, s) numbers, padded with k itself where `live` is False."""

    S: np.ndarray
    live: np.ndarray
    N: np.ndarray  # (B, s + 1, s + 1) products x.H^-1 x over S and the vector f, 0 at padding
    size: np.ndarray  # (B, s + 1)
    blur: np.ndarray

    @staticmethod
    def of(inv: Any, S, live) -> Sets:
        last = np.full((len(S), 1), inv.size.size - 1)
        at, there = np.hstack([S, last]), np.hstack([live, last >= 0])
        if inv.features is None:
            N = inv.kernel[at[:, :, None], at[:, None, :]]
        else:
            x = inv.features[at]
            N = x @ x.transpose(0, 2, 1)
        N = np.where(there[:, :, None] & there[:, None, :], N, 0.0)
        return Sets(S, live, N, np.where(there, inv.size[at], 0.0), np.where(there, inv.blur[at], 0.0))

    def moves(self, omega):
        """x_i.D over S, and the scales of D's own error: (moves, size, blur), (B, s) and (B,) each."""
        z = _with_one(omega)
        size, blur = np.sum(np.abs(z) * self.size, axis=1), np.sum(np.abs(z) * self.blur, axis=1)
        return -np.einsum("bij,bj->bi", self.N, z)[:, :-1], size, blur


def _with_one(omega):
    return np.hstack([omega, np.ones((len(omega), 1))])


def solve_many(state: Any, rows, order, ranked, near, crossed, m):
    """(centre, half-width, done) of q_k for rows k that few others cross for; what is not done is left to `solve`.

    Args:
        near: numbers of rows; crossed: (near, B) which of them may cross at the first move m of each row k.
    """
    centre, half, done = np.zeros(rows.size), np.full(rows.size, np.inf), np.zeros(rows.size, bool)
    lists = [near[column] for column in crossed.T]
    todo = np.array([b for b in range(rows.size) if len(lists[b]) <= _LARGEST], int)
    start = -(state.b[rows] + state.a[rows] * m)
    omegas = [np.append(start[b], np.zeros(len(lists[b]))) for b in range(rows.size)]
    for _ in range(_ROUNDS):
        if not todo.size:
            break
        width = 1 + max(len(lists[b]) for b in todo)
        S, omega, live = np.repeat(rows[todo][:, None], width, axis=1), np.zeros((todo.size, width)), None
        live = np.arange(width) < np.array([1 + len(lists[b]) for b in todo])[:, None]
        S[:, 1:][live[:, 1:]] = np.concatenate([lists[b] for b in todo])
        omega[live] = np.concatenate([omegas[b] for b in todo])
        sets = Sets.of(state.inv, S, live)
        omega, found = _newton(state, sets, omega)
        loose, whose = _loose(state, sets, omega, order, ranked)
        settled = found & (np.bincount(whose, minlength=todo.size) == 0)
        at = todo[settled]
        if at.size:
            few = Sets(*(part[settled] for part in (S, live, sets.N, sets.size, sets.blur)))
            centre[at], half[at] = _certificate(state, few, omega[settled])
            done[at] = True
        again = np.flatnonzero(found & ~settled)
        for b in again:
            lists[todo[b]] = np.append(lists[todo[b]], loose[whose == b])
            omegas[todo[b]] = np.append(omega[b][live[b]], np.zeros(np.sum(whose == b)))
        todo = np.array([todo[b] for b in again if len(lists[todo[b]]) <= _LARGEST], int)
    return centre, half, done


def _omega(state: Any, sets: Sets, d):
    """omega(d) and its derivative; row k itself leaves, and padding counts nothing."""
    S = sets.S
    c, a, b = state.c[S], state.a[S], state.b[S]
    slope, second = state.slopes(state.q[S] + d, S)
    value, slope = c * slope - b - a * d, c * second - a
    value[:, 0], slope[:, 0] = -b[:, 0] - a[:, 0] * d[:, 0], -a[:, 0]
    return np.where(sets.live, value, 0.0), np.where(sets.live, slope, 0.0)


def _newton(state: Any, sets: Sets, omega):
    """Solutions of omega = omega(d), and which were found."""
    S, width = sets.S, sets.S.shape[1]
    c, b, a = state.c[S] * state.lip, np.abs(state.b[S]), state.a[S]
    for _ in range(_STEPS):
        d = sets.moves(omega)[0]
        value, slope = _omega(state, sets, d)
        rest = value - omega
        noise = c * (state.pad[S] + 16 * U * (np.abs(state.q[S]) + np.abs(d) + 1)) + 16 * U * (b + a * np.abs(d))
        found = np.all((np.abs(rest) <= noise + 16 * U * np.abs(omega)) | ~sets.live, axis=1)
        if found.all():
            break
        try:
            step = np.linalg.solve(np.eye(width) + slope[:, :, None] * sets.N[:, :-1, :-1], rest[:, :, None])[:, :, 0]
        except np.linalg.LinAlgError:
            break
        omega = np.where(found[:, None], omega, omega + step)
    return omega, found


def _loose(state: Any, sets: Sets, omega, order, ranked):
    """(row, set) for the rows outside each set that may cross where it ends."""
    inv, z = state.inv, _with_one(omega)
    square = np.einsum("bi,bij,bj->b", z, sets.N, z)
    _, size, blur = sets.moves(omega)
    pad = inv.share * size**2 + 2 * size * blur + growth(2 * z.shape[1] + 8) * size**2
    norm = np.sqrt(np.maximum(up(square), 0.0) + up(pad, z.shape[1])) * (1 + 8 * U)
    front = np.searchsorted(ranked, norm, side="right")
    near = order[: front.max(initial=0)]
    last = inv.size.size - 1
    if inv.features is None:
        weights = np.zeros((last + 1, len(z)))
        np.add.at(weights, (sets.S, np.arange(len(z))[:, None]), np.where(sets.live, omega, 0.0))
        weights[last] = 1.0
        moves = -(inv.kernel[near] @ weights)
    else:
        D = np.einsum("bs,bsd->bd", np.where(sets.live, omega, 0.0), inv.features[sets.S]) + inv.features[last]
        moves = -(inv.features[near] @ D.T)
    r, own_blur = inv.size[near][:, None], inv.blur[near][:, None]
    pads = up((inv.share + growth(z.shape[1] + 8)) * r * size + own_blur * size + r * blur, z.shape[1])
    loose = (np.arange(near.size)[:, None] < front) & (np.abs(moves) + pads >= state.dist[near][:, None])
    row, whose = np.nonzero(loose)
    row = near[row]
    inside = np.any((sets.S[whose] == row[:, None]) & sets.live[whose], axis=1)
    return row[~inside], whose[~inside]


def _certificate(state: Any, sets: Sets, omega):
    """(centre, half-width) of q_k from the residual gradient at w + D; all rows outside the sets surely stay."""
    inv, S, live, k = state.inv, sets.S, sets.live, sets.S[:, 0]
    d, size, blur = sets.moves(omega)
    r, own_blur, width = sets.size[:, :-1], sets.blur[:, :-1], S.shape[1]
    d_pad = (inv.share + growth(width + 9)) * r * size[:, None] + own_blur * size[:, None] + r * blur[:, None]
    d_pad = up(d_pad, width + 1)
    rho = np.where(live, _omega(state, sets, d)[0] - omega, 0.0)
    q, c, a, b = state.q[S], state.c[S], state.a[S], np.abs(state.b[S])
    wide = state.pad[S] + d_pad + 4 * U * (np.abs(q) + np.abs(d))
    scale = c * np.abs(state.slopes(q + d, S)[0]) + b + a * np.abs(d) + np.abs(omega)
    rho_pad = 2 * c * state.lip * wide + 40 * U * scale
    rho_pad[:, 0] = state.b_pad[k] + a[:, 0] * d_pad[:, 0] + 40 * U * (a * np.abs(d) + b + np.abs(omega))[:, 0]
    rho_pad = np.where(live, up(rho_pad, 16) + TINY, 0.0)
    ridge, tau = state.ridge, state.tau[S]
    x = state.X[S.reshape(-1)]
    x = (x if isinstance(x, np.ndarray) else x.toarray()).reshape(*S.shape, ridge.size)
    g = np.einsum("bs,bsd->bd", rho, x)
    off = np.sum(rho_pad * tau, axis=1) + growth(width + ridge.size + 16) * np.sum(np.abs(rho) * tau, axis=1)
    half = tau[:, 0] * (norm_up(np.sum(g * g / ridge, axis=1), ridge.size) + off) / 2
    own = np.einsum("bd,bd->b", x[:, 0], g / ridge)
    middle = q[:, 0] + d[:, 0] - own / 2
    rounding = 8 * U * (np.abs(q[:, 0]) + np.abs(d[:, 0]) + np.abs(own))
    return middle, up(half + tau[:, 0] * off / 2 + d_pad[:, 0] + state.pad[k] + rounding, ridge.size + width)
