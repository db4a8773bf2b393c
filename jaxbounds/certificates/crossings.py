"""Leave-one-out for piecewise quadratic losses where rows change their pieces: a small active set, self-certified.

With f, H, a_j of the stored pieces at w (leave_one_out.py), the gradient of F_k at w + D is exactly

    f + H D + sum_j omega_j(x_j.D) x_j,   omega_j(d) = c_j (f'(q_j + d) - f'(q_j)) - a_j d,   omega_k(d) = -b_k - a_k d

and omega_j = 0 for every row that stays on its piece. For any numbers omega_S (S = {k} and the rows that cross),
D = -H^-1 (f + sum_S omega_j x_j) has the residual gradient g = sum_j rho_j x_j, rho_j = omega_j(x_j.D) - omega_S,j:

    rows i with dist_i > sqrt(e_i) ||D||_H cannot cross, and the others are few enough to look at one by one;
    the new optimum lies within ||g||/2 of w + D - g/(2 ridge), in the metric of ridge.

omega_S solves a piecewise linear system by Newton steps in |S| unknowns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxbounds.certificates.crossing_blocks import Near, solve_many
from jaxbounds.rounding import TINY, U, growth, norm_up, up
from jaxbounds.threads import in_threads

_ROUNDS = 25  # growths of the active set
_STEPS = 30  # Newton steps on it; the first third are not damped
_LARGEST = 400  # crossing rows, beyond which retraining is as quick
_CHUNK = 256  # candidates whose moves are looked at in one product
_MARGIN = 1.25  # how much further than at first the largest move may reach in the end


def solve(state: Any, rows, reach, m, m_pad, step):
    """(centre, half-width) of q_k for rows that others may cross for, and whether each is exact up to rounding.

    Args:
        reach: (n,) dist_i / sqrt(e_i); m, m_pad, step: for each row the first move x_k.D, its error and ||D||_H.
    """
    centre, half, exact = np.zeros(rows.size), np.full(rows.size, np.inf), np.zeros(rows.size, bool)
    order = np.argsort(reach, kind="stable")
    ranked = reach[order]
    near = Near.of(state, order, ranked, _MARGIN * np.max(step, initial=0.0))  # many rows look at the same few

    def settle(part):
        few = near.within(_MARGIN * np.max(step[part]))
        centre[part], half[part], exact[part] = solve_many(state, rows[part], few, m[part], m_pad[part], step[part])
        for slot in part[~exact[part]]:
            centre[slot], half[slot], exact[slot] = _active_set(state, rows[slot], order, ranked, m[slot])

    if rows.size:
        in_threads(settle, np.array_split(np.argsort(step, kind="stable"), -(-rows.size // _CHUNK)))
    return centre, half, exact


def _active_set(state: Any, k: int, order, ranked, m: float):
    """(centre, half-width, exact) of q_k: Newton on omega over k and the rows that cross, then its certificate."""
    inv = state.inv
    S, last = np.array([k]), np.array([state.q.size])
    omega = np.array([-(state.b[k] + state.a[k] * m)])
    for _ in range(_ROUNDS):
        N, h = inv.products(S, S), inv.products(S, last)[:, 0]
        omega, done = _newton(state, S, N, h, omega)
        near = order[: np.searchsorted(ranked, _norm(inv, S, omega), side="right")]
        moves, pads = _moves(inv, near, S, omega)
        loose = near[np.abs(moves) + pads >= state.dist[near]]
        loose = loose[~np.isin(loose, S)]
        if loose.size == 0 or not done or S.size > _LARGEST:
            break
        S, omega = np.append(S, loose), np.append(omega, np.zeros(loose.size))
    return *_certificate(state, S, omega, loose), done and loose.size == 0


def _newton(state: Any, S, N, h, omega):
    """A solution of omega = omega(d), d = -(h + N omega), and whether it was found; k is the first of S."""
    eye, c, b, a = np.eye(S.size), state.c[S] * state.lip, np.abs(state.b[S]), state.a[S]
    for step in range(_STEPS):
        d = -(h + N @ omega)
        value, slope = _omega(state, S, d)
        rest = value - omega
        # the stored coordinates themselves are not known any better
        noise = c * (state.pad[S] + 16 * U * (np.abs(state.q[S]) + np.abs(d) + 1)) + 16 * U * (b + a * np.abs(d))
        if np.all(np.abs(rest) <= noise + 16 * U * np.abs(omega)):
            return omega, True
        try:
            change = np.linalg.solve(eye + slope[:, None] * N, rest)
        except np.linalg.LinAlgError:
            return omega, False
        if step < _STEPS // 3:
            omega = omega + change
            continue
        # it cycles: the objective at w + D is convex along the step
        trials = [omega + size * change for size in (1.0, 0.5, 0.25, 0.1, 0.02)]
        omega = min(trials, key=lambda trial: _objective(state, S, N, h, trial))
    return omega, False


def _omega(state: Any, S, d):
    """omega(d) and its derivative."""
    c, a, b = state.c[S], state.a[S], state.b[S]
    slope, second = state.slopes(state.q[S] + d, S)
    value, slope = c * slope - b - a * d, c * second - a
    value[0], slope[0] = -b[0] - a[0] * d[0], -a[0]
    return value, slope


def _objective(state: Any, S, N, h, omega) -> float:
    """F_k(w + D) up to a constant."""
    d, q, y, loss = -(h + N @ omega), state.q[S], state.y[S], state.loss
    bend = state.c[S] * (loss.value(q + d, y) - loss.value(q, y))
    bend[0] = 0.0
    return float(omega @ N @ omega / 2 + np.sum(bend - state.b[S] * d - state.a[S] * d * d / 2))


def _norm(inv, S, omega) -> float:
    """Upper bound of ||D||_H = ||f + sum omega_j x_j||_{H^-1}."""
    at = np.append(S, inv.size.size - 1)
    z = np.append(omega, 1.0)
    size = np.abs(z) @ inv.size[at]
    square = z @ inv.products(at, at) @ z
    pad = inv.share * size**2 + 2 * size * (np.abs(z) @ inv.blur[at]) + growth(2 * z.size + 8) * size**2
    return float(np.sqrt(max(up(square), 0.0) + up(pad, z.size)) * (1 + 8 * U))


def _moves(inv, i, S, omega):
    """x_i.D = -x_i.H^-1 (f + sum omega_j x_j), and a bound on its error."""
    at, z = np.append(S, inv.size.size - 1), np.append(omega, 1.0)
    if inv.features is None:
        moves = -(inv.products(i, at) @ z)
    else:
        moves = -(inv.features[i] @ (z @ inv.features[at]))
    size, blur, r = np.abs(z) @ inv.size[at], np.abs(z) @ inv.blur[at], inv.size[i]
    pads = (inv.share + growth(z.size + 8)) * r * size + inv.blur[i] * size + r * blur
    return moves, up(pads, z.size)


def _certificate(state: Any, S, omega, loose):
    """(centre, half-width) of q_k from the residual gradient at w + D; all rows but S and `loose` surely stay."""
    inv, k = state.inv, S[0]
    at, z = np.append(S, loose), np.append(omega, np.zeros(loose.size))
    d, d_pad = _moves(inv, at, S, omega)
    rho = _omega(state, at, d)[0] - z
    # omega(d) is Lipschitz in d and in the stored coordinate; the rest is its own rounding
    q, c, a, b = state.q[at], state.c[at], state.a[at], np.abs(state.b[at])
    wide = state.pad[at] + d_pad + 4 * U * (np.abs(q) + np.abs(d))
    size = c * np.abs(state.slopes(q + d, at)[0]) + b + a * np.abs(d) + np.abs(z)
    rho_pad = 2 * c * state.lip * wide + 40 * U * size
    rho_pad[0] = state.b_pad[k] + a[0] * d_pad[0] + 40 * U * (a[0] * np.abs(d[0]) + b[0] + np.abs(z[0]))
    rho_pad = up(rho_pad, 16) + TINY
    X, tau, ridge = state.X[at], state.tau[at], state.ridge
    g = X.T @ rho
    size = np.abs(rho) @ tau
    off = rho_pad @ tau + growth(at.size + ridge.size + 16) * size
    half = tau[0] * (norm_up(np.sum(g * g / ridge), ridge.size) + off) / 2
    own = state.X[[k]] @ (g / ridge)
    centre = q[0] + d[0] - own[0] / 2
    half = half + tau[0] * off / 2 + d_pad[0] + state.pad[k] + 8 * U * (np.abs(q[0]) + np.abs(d[0]) + np.abs(own[0]))
    return centre, up(half, ridge.size + at.size)
