"""Gradient attacks: ascend the share of a bound that the truth uses up, over the data, the change and the model.

    share = true distance / upper end,   or   (eta.w* - middle) / half width of a score's interval; sound while <= 1

The optimum's derivative is the implicit function's: one Newton step from the solved optimum, its Hessian held fixed.
What the ascent ends with is judged by `check` against a truth in 60 digits.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import oracle

import jaxbounds as jb
from jaxbounds.matrix import Dense
from jaxbounds.model import Data, remember
from soundness.check import Outcome, expected, judge, says
from soundness.draw import Case

N, D = 6, 3
GAMMA = 0.5
CHANGES = ("set_rows", "remove_rows", "set_penalty", "set_targets")
GOALS = ("distance", "score")
METHODS = {"Theorem1": jb.Theorem1(), "Cached": jb.Cached(), "Partial": jb.Partial(), "Pass": jb.Pass(),
           "Curvature": jb.Curvature()}  # fmt: skip
PARAM = {"smoothed_hinge": GAMMA}
STEPS = 0.5 ** np.arange(8)


def slope(loss: str, q):
    """-f'(q)."""
    if loss == "logistic":
        return jax.nn.sigmoid(-q)
    return jnp.clip((1 - q) / GAMMA, 0.0, 1.0) if loss == "smoothed_hinge" else -q


def second(loss: str, q):
    if loss == "logistic":
        return jax.nn.sigmoid(q) * jax.nn.sigmoid(-q)
    return jnp.where((q < 1) & (q > 1 - GAMMA), 1 / GAMMA, 0.0) if loss == "smoothed_hinge" else jnp.ones_like(q)


def value(loss: str, q):
    if loss == "logistic":
        return jnp.logaddexp(0.0, -q)
    h = jnp.maximum(1 - q, 0.0)
    return jnp.where(h < GAMMA, h * h / (2 * GAMMA), h - GAMMA / 2) if loss == "smoothed_hinge" else q * q / 2


def optimum(loss: str, X, y, c, lam):
    """(w*, the norm of its gradient): Newton with the best of some step lengths, then one differentiable step."""
    regression = loss == "squared"

    def coordinate(w, X):
        return X @ w - y if regression else y * (X @ w)

    def gradient(w, X, c, lam):
        t = slope(loss, coordinate(w, X)) * (1.0 if regression else y)
        return lam * w - X.T @ (c * t)

    def hessian(w):
        return (X.T * (c * second(loss, coordinate(w, X)))[None, :]) @ X + lam * jnp.eye(X.shape[1])

    def step(_, w):
        p = jnp.linalg.solve(hessian(w), gradient(w, X, c, lam))
        tries = w[None, :] - STEPS[:, None] * p[None, :]
        at = jax.vmap(lambda z: c @ value(loss, coordinate(z, X)) + lam / 2 * z @ z)(tries)
        return tries[jnp.argmin(at)]

    fixed = jax.lax.stop_gradient
    held = jax.tree.map(fixed, (X, c, lam))
    X_, c_, lam_ = X, c, lam
    X, c, lam = held
    w = fixed(jax.lax.fori_loop(0, 40, step, jnp.zeros(X.shape[1])))
    H = fixed(hessian(w))
    return w - jnp.linalg.solve(H, gradient(w, X_, c_, lam_)), jnp.linalg.norm(gradient(w, X, c, lam))


@dataclass(frozen=True)
class Attack:
    """What is attacked."""

    loss: str
    change: str
    method: str

    def dual(self, raw):
        """A feasible alpha of any number."""
        return raw if self.loss == "squared" else jax.nn.sigmoid(raw)

    def shares(self, theta: dict[str, Any], y):
        """How much of the bounds of the distance and of a score the truth uses up; 0 where no optimum was found."""
        X, lam = theta["X"], jnp.exp(theta["lam"])
        problem = jb.Problem(getattr(jb.losses, self.loss)(*([PARAM[self.loss]] if self.loss in PARAM else [])),
                             jb.penalties.l2(lam), "sum")  # fmt: skip
        model = remember(problem, Data(Dense(X), y, jnp.ones(N)), theta["w"], self.dual(theta["alpha"]))
        c, y_new, lam_new = jnp.ones(N), y, lam
        if self.change == "set_rows":
            change, X = jb.set_rows(np.array([0]), theta["row"][None, :]), X.at[0].set(theta["row"])
        elif self.change == "remove_rows":
            change, c = jb.remove_rows(np.array([0])), c.at[0].set(0.0)
        elif self.change == "set_targets":
            y_new = y.at[0].multiply(-1.0)
            change = jb.set_targets(np.array([0]), y_new[:1])
        else:
            lam_new = jnp.exp(theta["lam_new"])
            change = jb.set_penalty(jb.penalties.l2(lam_new))
        w, residual = optimum(self.loss, X, y_new, c, lam_new)
        bounds = jb.bound(model, change, METHODS[self.method])
        found = bounds.scores(theta["eta"][None, :])
        middle, half = (found.lower[0] + found.upper[0]) / 2, (found.upper[0] - found.lower[0]) / 2
        shares = jnp.stack([
            jnp.linalg.norm(w - theta["w"]) / bounds.distance.upper, (theta["eta"] @ w - middle) / half
        ])  # fmt: skip
        good = (residual < 1e-10 * (1 + jnp.linalg.norm(w))) & jnp.isfinite(shares)
        return jnp.where(good, shares, 0.0)

    def run(self, seed: int, restarts: int, steps: int, rounds: int = 1):
        """(the best share of every restart, their parameters, y): Adam on all at once, goals by turns (see GOALS)."""
        rng = np.random.default_rng([seed, *map(ord, f"{self}")])
        with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):  # which optax needs
            y = jnp.asarray(rng.normal(size=N) if self.loss == "squared" else np.where(rng.random(N) < 0.5, 1.0, -1.0))
            start = {"X": (N, D), "row": (D,), "w": (D,), "alpha": (N,), "eta": (D,), "lam": (), "lam_new": ()}
            size = 10.0 ** rng.uniform(-1.5, 0.5, restarts)
            theta = {k: jnp.asarray(np.multiply.outer(size, np.ones(s)) * rng.normal(size=(restarts, *s)))
                     for k, s in start.items()}  # fmt: skip
            rule = optax.adam(0.05)
            goal = jnp.arange(restarts) % len(GOALS)
            both = jax.vmap(jax.value_and_grad(lambda theta, goal: self.shares(theta, y)[goal]))

            @jax.jit
            def ascend(theta, state, best, at):
                def step(_, carry):
                    theta, state, best, at = carry
                    share, slopes = both(theta, goal)
                    better = share > best
                    at = jax.tree.map(lambda a, b: jnp.where(better.reshape(-1, *[1] * (a.ndim - 1)), a, b), theta, at)
                    slopes = jax.tree.map(lambda g: jnp.where(jnp.isfinite(g), -g, 0.0), slopes)
                    update, state = rule.update(slopes, state)
                    theta = optax.apply_updates(theta, update)
                    theta |= {k: jnp.clip(theta[k], -6.0, 3.0) for k in ("lam", "lam_new")}
                    return theta, state, jnp.maximum(best, share), at

                return jax.lax.fori_loop(0, steps, step, (theta, state, best, at))

            state, best, at = rule.init(theta), jnp.zeros(restarts), theta
            for _ in range(rounds):
                theta, state, best, at = ascend(theta, state, best, at)
            return np.asarray(best), {k: np.asarray(z) for k, z in at.items()}, np.asarray(y)

    def judged(self, theta: dict[str, Any], y) -> Outcome | None:
        """The end of one restart against the truth in 60 digits."""
        lam, param = float(np.exp(theta["lam"])), PARAM.get(self.loss)
        pr = oracle.Problem(self.loss, theta["X"], y, np.ones(N), param=param, lam=lam)
        with jax.enable_x64(True):
            alpha = np.asarray(self.dual(jnp.asarray(theta["alpha"])))
        args = {
            "set_rows": {"rows": np.array([0]), "X_new": theta["row"][None, :]}, "remove_rows": {"rows": np.array([0])},
            "set_targets": {"rows": np.array([0]), "y_new": -y[:1]},
            "set_penalty": {"penalty": "l2", "lam": float(np.exp(theta["lam_new"])), "l1": 0.0},
        }[self.change]  # fmt: skip
        case = Case(pr, "sum", np.ones(N), theta["w"], 0.0, alpha, ([(self.change, args)],), theta["eta"][None, :],
                    "float64", False, False, 0, {}, np.zeros(D))  # fmt: skip
        t = case.truth(0)
        if t is None:
            return None
        X = case.X_test
        found = says(jb.bound(case.model, case.change(0), METHODS[self.method]), X)
        return judge(self.method, self.change, [(w, found[w], v, e) for w, v, e in expected(case, t, X)])
