"""Softmax models: hostile cases, optima in 60 digits, and what the bounds say of coefficients and scores."""

from typing import Any

import exact
import jax
import numpy as np
import oracle
from exact import MP

import jaxbounds as jb
from jaxbounds.array import put
from jaxbounds.matrix import as_matrix
from jaxbounds.model import Data
from jaxbounds.multinomial import remember_multinomial
from soundness import check
from soundness.draw import narrow, pick

METHODS = {"softmax Cached": jb.Cached(), "softmax Pass": jb.Pass()}
DATA = ("plain", "tiny", "large", "duplicates", "empty", "one class")


def probabilities(S: np.ndarray) -> np.ndarray:
    """Rows of exact scores to rows of exact probabilities."""
    out = np.empty(S.shape, object)
    for i, row in enumerate(S):
        e = [MP.exp(s - max(row)) for s in row]
        out[i] = [z / sum(e) for z in e]
    return out


def gradient(W, X, c, onehot, lam):
    """lam W - sum_i c_i (onehot_i - p_i) x_i, exactly."""
    P = probabilities(X @ W.T)
    return P, W * lam - ((onehot - P) * c[:, None]).T @ X


def optimum(X: np.ndarray, y: np.ndarray, c: np.ndarray, lam: np.ndarray, K: int):
    """(W*, a bound on ||W - W*||_F): Newton, damped where it must be; None if that is not certain."""
    exactly, ridge = exact.array(X), exact.array(lam)
    onehot = exact.array(np.eye(K)[y.astype(int)])
    (n, d), W = X.shape, np.zeros((K, X.shape[1]))
    weight, hot = c.astype(float), np.eye(K)[y.astype(int)]

    def slope(W):
        S = X @ W.T
        P = np.exp(S - S.max(axis=1, keepdims=True))
        P /= P.sum(axis=1, keepdims=True)
        return P, lam * W - ((hot - P) * weight[:, None]).T @ X

    def newton(P, g):
        H = np.zeros((K * d, K * d))
        for i in range(n):
            H += weight[i] * np.kron(np.diag(P[i]) - np.outer(P[i], P[i]), np.outer(X[i], X[i]))
        H += np.diag(np.tile(lam, K))
        s = np.sqrt(np.diag(H))
        return (np.linalg.solve(H / s[:, None] / s[None, :], g.ravel() / s) / s).reshape(K, d)

    for _ in range(200):
        P, g = slope(W)
        p, size = newton(P, g), np.linalg.norm(g / np.sqrt(lam))
        t = 1.0
        while t > 1e-6 and np.linalg.norm(slope(W - t * p)[1] / np.sqrt(lam)) > (1 - 0.1 * t) * size:
            t /= 2
        if t <= 1e-6:
            break
        W = W - t * p
    W = exact.array(W)
    for _ in range(12):
        P, g = gradient(W, exactly, c, onehot, ridge)
        size = exact.norm(g.ravel())
        error = size / min(ridge)
        if error <= exact.number(1e-24) * exact.norm(W.ravel()):
            return W, error
        step = newton(P.astype(float), np.array([[float(z / size) for z in row] for row in g]))
        W = W - exact.array(step) * size
    return None


def outcomes(rng: np.random.Generator) -> tuple[dict[str, str], list[check.Outcome]]:
    """The labels and the outcomes of a random case with a few changes."""
    made, dtype, scale = pick(rng, DATA), pick(rng, ("float64", "float64", "float32")), pick(rng, ("mean", "sum"))
    n, d, K = pick(rng, ((8, 2, 3), (6, 3, 2), (3, 1, 4), (1, 2, 3)))
    X = rng.normal(size=(n, d)) * {"tiny": 1e-6, "large": 1e3}.get(made, 1.0)
    if made == "duplicates":
        X = X[rng.integers(0, max(1, n // 2), n)]
    if made == "empty":
        X[rng.random(n) < 0.4] = 0.0
    X, y = narrow(X, dtype), rng.integers(0, 1 if made == "one class" else K, n).astype(float)
    weight = rng.uniform(0.5, 2.0, n) if rng.random() < 0.5 else np.ones(n)
    lam = np.zeros(d) + 10.0 ** rng.uniform(-5, 2) * (rng.uniform(0.5, 2, d) if rng.random() < 0.3 else 1.0)
    found = optimum(X, y, exact.weights(weight, n if scale == "mean" else 1), lam, K)
    training = pick(rng, ("optimal", "rough", "any", "zero"))
    labels = {
        "loss": "softmax", "penalty": "l2", "data": made, "shape": f"{n} x {d}, {K} classes", "dtype": dtype,
        "scale": scale, "storage": "dense", "intercept": "no", "training": training, "norms": "2^0",
        "lam": f"1e{int(np.floor(np.log10(lam.min())))}", "gap": "-",
    }  # fmt: skip
    if found is None:
        return labels, []
    W = found[0].astype(float)
    W = {"optimal": W, "rough": W * (1 + 10.0 ** rng.uniform(-8, 0) * rng.normal(size=W.shape)),
         "any": rng.normal(size=W.shape), "zero": 0 * W}[training]  # fmt: skip
    W = narrow(W, dtype)
    problem = jb.Problem(jb.losses.softmax(K), jb.penalties.l2(lam if np.ptp(lam) else float(lam[0])), scale)
    with jax.enable_x64(True), np.errstate(all="ignore"):
        made_ = put((Data(as_matrix(X.astype(dtype)), y, weight), W.astype(dtype)))
        model = remember_multinomial(problem, *made_)
    result = []
    for _ in range(3):
        (kind, args), new_lam = _change(rng, n, d, K, X, lam, dtype)
        change = jb.set_penalty(jb.penalties.l2(new_lam)) if kind == "set_penalty" else getattr(jb, kind)(**args)
        parts = [] if kind == "set_penalty" else [(kind, args)]
        Xn, yn, wn, _ = oracle.apply_change(X, y, weight, parts, scale)
        kept = len(args.get("rows", [])) if args.get("keep_n") else 0
        c = exact.weights(wn, len(yn) + kept if scale == "mean" else 1)
        truth = optimum(Xn, yn, c, np.zeros(d) + new_lam, K)
        if truth is not None:
            result += _judged(model, change, kind, *truth, W, X, rng)
    return labels, result


def _change(rng, n: int, d: int, K: int, X, lam, dtype: str):
    """((kind, arguments), the new lam)."""
    rows = np.sort(rng.choice(n, int(rng.integers(1, min(n, 2) + 1)), replace=False))
    kind = pick(rng, ("set_rows", "set_targets", "remove_rows", "set_weights", "set_penalty", "add_rows"))
    if kind == "remove_rows" and len(rows) == n:
        kind = "set_targets"
    block = narrow(rng.normal(size=(len(rows), d)) * np.abs(X).max(initial=1e-6), dtype)
    target = rng.integers(0, K, len(rows)).astype(float)
    args: dict[str, Any] = {
        "set_rows": {"rows": rows, "X_new": block}, "set_targets": {"rows": rows, "y_new": target},
        "remove_rows": {"rows": rows, "keep_n": bool(rng.integers(2))},
        "set_weights": {"rows": rows, "weights": rng.uniform(0.2, 3.0, len(rows))}, "set_penalty": {},
        "add_rows": {"X_new": block, "y_new": target},
    }[kind]  # fmt: skip
    new = lam * float(pick(rng, (0.5, 1.01, 3.0))) if kind == "set_penalty" else lam
    return (kind, args), new if np.ptp(new) else float(new[0])


def _judged(model, change, kind: str, W, error, old, X, rng) -> list[check.Outcome]:
    X_test = np.vstack([X[:1], rng.normal(size=(2, X.shape[1]))])
    exactly = exact.array(X_test)
    norms = np.array([exact.norm(x) for x in exactly])
    S = exactly @ W.T
    P, reach = probabilities(S), np.repeat(norms, S.shape[1]) * error
    moved = exact.norm((W - exact.array(old)).ravel())
    truth = [("w", W.ravel(), error), ("scores", S.ravel(), reach), ("probabilities", P.ravel(), 2 * reach),
             ("distance", np.array([moved]), error)]  # fmt: skip
    result = []
    for name, method in METHODS.items():
        bounds = jb.bound(model, change, method)
        says = {"w": bounds.w(), "scores": bounds.scores(X_test), "probabilities": bounds.probabilities(X_test),
                "distance": bounds.distance}  # fmt: skip
        quantities = [
            (what, (np.ravel(says[what].lower), np.ravel(says[what].upper)), check.split(value), np.array(slack, float))
            for what, value, slack in truth
        ]
        result.append(check.judge(name, kind, quantities))
    return result
