"""Several classes: one-vs-rest and softmax against retraining in plain NumPy, formulas, hostile input."""

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
import scipy.sparse as sp
from scipy.special import logsumexp

import jaxbounds as jb
from jaxbounds.array import put, to_host
from jaxbounds.certificates.multinomial import moved_sums, outline_of
from jaxbounds.edit import prepare
from jaxbounds.matrix import as_matrix
from jaxbounds.model import Data
from jaxbounds.multinomial import remember_multinomial

K = 3
CHANGES = (
    "set_elements", "set_rows", "set_rows_targets", "set_columns", "set_targets", "set_weights", "add_rows",
    "remove_rows", "remove_rows_keep_n", "add_columns", "remove_columns", "set_penalty", "combine",
)  # fmt: skip


# ---------------------------------------------------------------- truth


def derivatives(W, X, y, c, lam):
    """(P, gradient (K, d), Hessian (K d, K d)) in plain NumPy."""
    S = X @ W.T
    logs = S - logsumexp(S, axis=1, keepdims=True)
    p, hot = np.exp(logs), np.eye(len(W))[y.astype(int)]
    value = -(c @ logs[np.arange(len(y)), y.astype(int)]) + (lam * W * W).sum() / 2
    G = lam * W + (c[:, None] * (p - hot)).T @ X
    blocks = [[(X.T * (c * p[:, k] * ((k == j) - p[:, j]))) @ X for j in range(len(W))] for k in range(len(W))]
    return value, G, np.block(blocks) + np.diag(np.tile(lam, len(W)))


def solve(X, y, c, lam, classes=K):
    """The optimum by damped Newton steps."""
    lam = np.broadcast_to(lam, X.shape[1]).astype(float)
    W = np.zeros((classes, X.shape[1]))
    for _ in range(100):
        value, G, H = derivatives(W, X, y, c, lam)
        step = -np.linalg.solve(H, G.ravel()).reshape(W.shape)
        if np.linalg.norm(G) < 1e-14:
            break
        t = 1.0
        while derivatives(W + t * step, X, y, c, lam)[0] > value + 1e-13 * abs(value) and t > 1e-9:
            t /= 2
        W = W + t * step
    return W


def draw(rng, kind, n=14, d=4, scale="mean", sparse=False, dtype=np.float64):
    """(data, weights, lam, change for us, change for the oracle, new lam)."""

    def block(rows, cols):
        return (rng.normal(size=(rows, cols)) * (rng.random((rows, cols)) < 0.8)).astype(dtype).astype(float)

    X, y, weight = block(n, d), rng.integers(0, K, n).astype(float), rng.uniform(0.5, 2.0, n)
    y[:K] = np.arange(K)
    unit = 1.0 if scale == "mean" else n
    lam = unit * (np.geomspace(0.05, 0.3, d) if kind != "add_columns" and rng.random() < 0.5 else 0.1)
    rows, cols = rng.permutation(n)[:2], rng.permutation(d)[:1]
    new_lam, two = lam, np.array([1.0, 2.0])
    args = {
        "set_elements": lambda: {"rows": rows, "cols": np.repeat(cols, 2), "values": block(1, 2)[0]},
        "set_rows": lambda: {"rows": rows, "X_new": block(2, d)},
        "set_rows_targets": lambda: {"rows": rows, "X_new": block(2, d), "y_new": (y[rows] + 1) % K},
        "set_columns": lambda: {"cols": cols, "X_new": block(n, 1)},
        "set_targets": lambda: {"rows": rows, "y_new": (y[rows] + 1) % K},
        "set_weights": lambda: {"rows": rows, "weights": rng.uniform(0.2, 3.0, 2)},
        "add_rows": lambda: {"X_new": block(2, d), "y_new": two, "sample_weight": two},
        "remove_rows": lambda: {"rows": rows},
        "remove_rows_keep_n": lambda: {"rows": rows, "keep_n": True},
        "add_columns": lambda: {"X_new": block(n, 1)},
        "remove_columns": lambda: {"cols": cols},
    }
    if kind == "set_penalty":
        new_lam = lam * 1.3
        changes, ours = [], jb.set_penalty(jb.penalties.l2(new_lam))
    elif kind == "combine":
        flip = {"rows": rows[1:], "y_new": (y[rows[1:]] + 1) % K}
        changes = [("remove_rows", {"rows": rows[:1]}), ("set_targets", flip), ("remove_columns", {"cols": cols}),
                   ("add_rows", args["add_rows"]())]  # fmt: skip
        ours = jb.combine(*(getattr(jb, name)(**a) for name, a in changes))
    else:
        name = {"set_rows_targets": "set_rows", "remove_rows_keep_n": "remove_rows"}.get(kind, kind)
        changes = [(name, args[kind]())]
        ours = getattr(jb, name)(**changes[0][1])
    data = X.astype(dtype)
    return X, y, weight, lam, sp.csr_array(data) if sparse else data, ours, changes, new_lam


def model_at(problem, data, y, weight, W):
    """The library's memory of any coefficients."""
    with jax.enable_x64(True), np.errstate(all="ignore"):
        matrix = as_matrix(data)
        made = put((Data(matrix, y, weight), np.asarray(W).astype(matrix.dtype)))
        return remember_multinomial(problem, *made)


def inside(interval, truth, what, slack=1e-9):
    lower, upper = np.asarray(interval.lower, float), np.asarray(interval.upper, float)
    room = slack * (1 + np.abs(truth))
    assert lower.shape == upper.shape == np.shape(truth), what
    assert np.all(lower <= truth + room) and np.all(truth - room <= upper), (what, lower, truth, upper)


def check_softmax(rng, kind, scale, sparse, dtype, rough):
    X, y, weight, lam, data, ours, changes, new_lam = draw(rng, kind, scale=scale, sparse=sparse, dtype=dtype)
    (n, d), unit = X.shape, 1 / len(y) if scale == "mean" else 1.0
    problem = jb.Problem(jb.losses.softmax(K), jb.penalties.l2(lam), scale)
    W = solve(X, y, weight * unit, lam) + rough * rng.normal(size=(K, d))
    model = model_at(problem, data, y, weight, W)
    old = np.asarray(model.w, float)
    Xn, yn, _, cn = oracle.apply_change(X, y, weight, changes, scale)
    cols = oracle.numbering(n, d, changes)[1]
    width = max(d, cols.max() + 1)
    lam_new = np.broadcast_to(new_lam, width)[cols]
    truth = np.zeros((K, width))
    truth[:, cols] = solve(Xn, yn, cn, lam_new)
    base = np.pad(old, ((0, 0), (0, width - d)))
    start = base[:, cols]
    _, G, _ = derivatives(start, Xn, yn, cn, lam_new)
    X_test = rng.normal(size=(20, width))
    S = X_test @ truth.T
    P = np.exp(S - logsumexp(S, axis=1, keepdims=True))
    what, radii = (kind, scale, sparse, dtype, rough), []
    for method in (jb.Cached(), jb.Pass()):
        bounds = jb.bound(model, ours, method)
        assert int(bounds.status) == jb.Status.CONVERGED
        inside(bounds.w(), truth, what)
        inside(bounds.scores(X_test), S, what)
        inside(bounds.probabilities(X_test), P, what)
        inside(bounds.distance, np.linalg.norm(truth - base), what)
        labels = np.asarray(bounds.labels(X_test))
        assert np.array_equal(labels[labels >= 0], S.argmax(axis=1)[labels >= 0]), what
        assert np.array_equal(np.asarray(bounds.decided(X_test)), labels >= 0)
        radii.append(float(bounds.metric_radius))
    # the formula: ||g|| in the metric 1/lam over 2 + rho
    most = np.linalg.norm((np.sqrt(cn)[:, None] * Xn), 2) ** 2
    size = np.sqrt((G * G / lam_new).sum())
    assert size / (2 + 4 * lam_new.min() / most) * (1 - 1e-9) <= radii[0] <= size / 2 * (1 + 1e-6) + 1e-13, what
    assert radii[1] <= radii[0]
    return radii[1] / radii[0]


def test_softmax_bounds_hold_for_every_change():
    rng = np.random.default_rng(0)
    shrunk = []
    for k, kind in enumerate(CHANGES * 2):
        options = ("mean", "sum")[k % 2], bool(k % 3), (np.float64, np.float32)[k % 5 == 0], (0.0, 1e-7, 0.1)[k % 3]
        shrunk.append(check_softmax(rng, kind, *options))
    assert np.median(shrunk) < 0.2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_softmax_bounds_hold_on_many_problems(seed):
    rng = np.random.default_rng([1, seed])
    for kind in CHANGES:
        scale, rough = str(rng.choice(["mean", "sum"])), float(rng.choice([0.0, 1e-10, 1e-3, 0.3]))
        check_softmax(rng, kind, scale, bool(rng.integers(2)), (np.float64, np.float32)[rng.integers(2)], rough)


def test_softmax_differences_are_tighter_than_intervals():
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(60, 4)), rng.integers(0, 5, 60)
    problem = jb.Problem(jb.losses.softmax(5), jb.penalties.l2(0.1))
    model = model_at(problem, X, y.astype(float), np.ones(60), solve(X, y, np.full(60, 1 / 60), 0.1, 5))
    bounds, X_test = jb.bound(model, jb.remove_rows([0, 3])), rng.normal(size=(400, 4))
    scores = bounds.scores(X_test)
    lower, upper = np.asarray(scores.lower), np.asarray(scores.upper)
    half, length = (upper - lower) / 2, np.linalg.norm(X_test, axis=1)
    assert np.allclose(half, (np.sqrt(0.8) * length * float(bounds.radius))[:, None], rtol=1e-6)
    order = np.sort(lower, axis=1)
    by_intervals = order[:, -1] > np.sort(np.where(lower == order[:, -1:], -np.inf, upper), axis=1)[:, -1]
    decided = np.asarray(bounds.decided(X_test))
    assert np.all(decided[by_intervals]) and decided.sum() > by_intervals.sum()


def test_softmax_sums_and_their_errors():
    """V and its pad against extended precision, for rows of very different sizes."""
    rng = np.random.default_rng(3)
    for size in (1.0, 1e4):
        X = rng.normal(size=(12, 4)) * np.geomspace(1, size, 12)[:, None]
        y, W = rng.integers(0, K, 12).astype(float), rng.normal(size=(K, 4))
        problem = jb.Problem(jb.losses.softmax(K), jb.penalties.l2(0.1), "sum")
        model = model_at(problem, X, y, np.ones(12), W)
        L, w = np.asarray(X, np.longdouble), np.asarray(W, np.longdouble)
        S = L @ w.T
        e = np.exp(S - S.max(axis=1, keepdims=True))
        T = np.eye(K)[y.astype(int)] - e / e.sum(axis=1, keepdims=True)
        V, pad = T.T @ L, np.asarray(model.v_pad)
        assert np.all(np.abs(np.asarray(model.v) - V) <= pad)
        assert np.all(pad <= 1e-10 * size**2)
        exact = float((0.1 * w * w).sum()) - 2 * float((w * V).sum()) + float((V * V).sum()) / 0.1
        assert float(model.gap) >= exact / 2 * (1 - 1e-12)


def test_softmax_duality():
    """The gap is P - D, by the loss's own value and conjugate, and 0 at the optimum."""
    rng = np.random.default_rng(10)
    X, y, c = rng.normal(size=(14, 4)), np.arange(14) % K * 1.0, np.full(14, 1 / 14)
    loss = SOFTMAX.loss
    for W in (rng.normal(size=(K, 4)), solve(X, y, c, 0.1)):
        model = model_at(SOFTMAX, X, y, np.ones(14), W)
        primal, _, _ = derivatives(W, X, y, c, np.full(4, 0.1))
        T = loss.dual(X @ W.T, y)
        V = (c[:, None] * T).T @ X
        dual = -np.sum(c * loss.conjugate(T, y)) - np.sum(V * V) / 0.2
        assert np.isclose(float(model.primal), primal, rtol=1e-13)
        assert np.isclose(float(np.sum(c * loss.value(X @ W.T, y))) + 0.05 * np.sum(W * W), primal, rtol=1e-13)
        assert primal - dual <= float(model.gap) + 1e-14 and float(model.gap) <= (primal - dual) * (1 + 1e-9) + 1e-14
    assert np.all(np.isinf(loss.conjugate(T + 1.0, y)))
    with pytest.raises(TypeError, match="score for each class"):
        SOFTMAX.gap(X, y, W, T)


def test_softmax_moved_sums_and_their_errors():
    """What a change makes of V, against extended precision, with rows and columns of very different sizes."""
    rng, kept = np.random.default_rng(9), []
    for kind in CHANGES * 2:
        X, y, weight, lam, data, ours, changes, _ = draw(rng, kind)
        scale = 10.0 ** rng.integers(-3, 4, size=(len(X), 1))
        X, (n, d) = X * scale, X.shape
        problem, W = jb.Problem(jb.losses.softmax(K), jb.penalties.l2(lam)), rng.normal(size=(K, d))
        model = to_host(model_at(problem, X, y, weight, W))
        edit = prepare(outline_of(model), ours)
        w_old = np.pad(W, ((0, 0), (0, edit.d - d)))
        w = np.where(edit.cols_where(edit.col_removed)[None, :], 0.0, w_old)
        v, v_pad, sigma_sq = moved_sums(model, edit, w_old, w)
        Xn, yn, _, cn = oracle.apply_change(X, y, weight, changes)
        cols = oracle.numbering(n, d, changes)[1]
        L, c = np.asarray(Xn, np.longdouble), np.asarray(cn, np.longdouble)[:, None]
        S = L @ np.asarray(w, np.longdouble)[:, cols].T
        e = np.exp(S - S.max(axis=1, keepdims=True))
        V = (c * (np.eye(K)[yn.astype(int)] - e / e.sum(axis=1, keepdims=True))).T @ L
        assert np.all(np.abs(v[:, cols] - V) <= v_pad[:, cols]), kind
        assert np.all(v_pad <= 1e-11 * np.abs(X).max() ** 2), kind
        assert sigma_sq >= np.linalg.norm(np.sqrt(cn)[:, None] * Xn, 2) ** 2 * (1 - 1e-12), kind
        kept.append(np.max(v_pad[:, cols]) / max(np.max(np.abs(V)), 1e-12))
    assert np.median(kept) < 1e-9


def test_softmax_fit_refit_and_jit():
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(14, 4)), np.arange(14) % K
    problem = jb.Problem(jb.losses.softmax(K), jb.penalties.l2(0.1))
    model = jb.fit(problem, X, y, tol=1e-12)
    W = solve(X, y, np.full(14, 1 / 14), 0.1)
    assert int(model.status) == 0 and float(model.gap) <= 1e-12 * float(model.primal)
    assert np.allclose(np.asarray(model.w), W, atol=1e-6) and model.alpha.shape == (14, K)
    assert np.array_equal(model.labels(X), (X @ W.T).argmax(axis=1))
    parts = jb.set_rows([1], X[:1] + 1, [2.0]), jb.set_weights([3], [2.0]), jb.remove_rows([0], keep_n=True)
    change = jb.combine(*parts)
    again = jb.refit(model, change, tol=1e-12)
    X_new, y_new, weight = change.apply(X, y)
    assert np.allclose(np.asarray(again.w), solve(X_new, y_new, weight / 14, 0.1), atol=1e-6)
    check_jit(model, X, jb.Cached())


def ends(bounds, X):
    scores = bounds.scores(X)
    return scores.lower, scores.upper, bounds.labels(X), bounds.status, bounds.distance.upper


def check_jit(model, X, method):
    """The same numbers under jit, with the model and the change traced."""
    rows, target = jnp.array([2]), jnp.array([1.0])
    host = ends(jb.bound(model, jb.set_targets(rows, target), method), X)
    call = jax.jit(lambda model, r, t: ends(jb.bound(model, jb.set_targets(r, t), method), X))
    for a, b in zip(host, call(model, rows, target), strict=True):
        assert np.allclose(np.asarray(a), np.asarray(b), rtol=1e-6, atol=1e-6)
    bad = call(model, rows, jnp.array([1.5]))
    assert int(bad[3]) == jb.Status.INVALID and np.all(np.asarray(bad[2]) == -1)
    assert np.all(np.isneginf(bad[0])) and np.all(np.isposinf(bad[1]))


@pytest.mark.slow
@pytest.mark.parametrize("sparse", [False, True])
def test_softmax_in_jit(sparse):
    rng = np.random.default_rng(8)
    X = rng.normal(size=(14, 4)) * (rng.random((14, 4)) < 0.7)
    model = jb.fit(SOFTMAX, sp.csr_array(X) if sparse else X, np.arange(14) % K, sample_weight=rng.uniform(1, 2, 14))
    for method in (jb.Cached(), jb.Pass(2)):
        check_jit(model, X, method)
    def first(lam):
        return jb.fit(jb.Problem(SOFTMAX.loss, jb.penalties.l2(lam)), X, np.arange(14) % K, tol=1e-13).w[0, 0]

    with jax.enable_x64(True):  # implicit differentiation
        rise = (float(first(0.1 + 1e-4)) - float(first(0.1 - 1e-4))) / 2e-4
        assert np.isclose(float(jax.grad(first)(0.1)), rise, rtol=1e-4)
    fitted = jax.jit(lambda X, y: jb.fit(SOFTMAX, X, y).w)(jnp.asarray(X), jnp.arange(14) % K)
    assert np.allclose(np.asarray(fitted), np.asarray(jb.fit(SOFTMAX, X, np.arange(14) % K).w), atol=1e-4)


SOFTMAX = jb.Problem(jb.losses.softmax(K), jb.penalties.l2(0.1))
LASSO, SHIFTED = jb.Problem(SOFTMAX.loss, jb.penalties.l1(0.1)), jb.Problem(SOFTMAX.loss, SOFTMAX.penalty, "mean", True)
OVR = jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: jb.losses.softmax(1), ValueError, "at least 2"),
        (lambda: jb.losses.softmax(2.0), ValueError, "whole number"),
        (lambda: jb.fit(SOFTMAX, np.eye(3), [0, 1, 3]), ValueError, r"y\[2\] = 3.0 is not one of the 3 classes"),
        (lambda: jb.fit(SOFTMAX, np.eye(3), [0, 1, 0.5]), ValueError, r"y\[2\] = 0.5 is not a class"),
        (lambda: jb.fit(SOFTMAX, np.eye(3), [0, 1, -1]), ValueError, "number classes from 0"),
        (lambda: jb.fit(SOFTMAX, np.eye(3), ["a", "b", "c"]), TypeError, "return_inverse"),
        (lambda: jb.fit(SOFTMAX, np.eye(3), [0, 1, 2], solver=jb.solvers.NewtonCG()), ValueError, "its own Newton-CG"),
        (lambda: jb.fit(LASSO, np.eye(3), [0, 1, 2]), ValueError, "needs an L2 penalty, and l1"),
        (lambda: jb.fit(SHIFTED, np.eye(3), [0, 1, 2]), ValueError, "column of ones"),
        (lambda: jb.fit_one_vs_rest(OVR, np.eye(3), [0, 0, 0]), ValueError, "at least 2 classes"),
        (lambda: jb.fit_one_vs_rest(OVR, np.eye(3), [0, 1, 5], classes=3), ValueError, r"y\[2\] = 5.0"),
        (lambda: jb.fit_one_vs_rest(OVR, np.eye(3), ["a", "b", "a"], classes=3), ValueError, "y holds 2 .* words"),
        (lambda: jb.fit_one_vs_rest(OVR, np.eye(3), ["a", "a", "a"]), ValueError, "at least 2 classes"),
        (lambda: jb.fit_one_vs_rest(OVR, np.eye(3), "abc"), TypeError, "dtype <U3"),
        (lambda: jb.fit_one_vs_rest(SOFTMAX, np.eye(3), [0, 1, 2]), ValueError, "margin loss, and softmax"),
    ],
)  # fmt: skip
def test_bad_classes_are_refused(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_bad_changes_are_refused():
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(14, 4)), np.arange(14) % K
    softmax = model_at(SOFTMAX, X, y.astype(float), np.ones(14), np.zeros((K, 4)))
    for bad in (3.0, -1.0, 0.5):
        with pytest.raises(ValueError, match=r"y_new\[0\]"):
            jb.bound(softmax, jb.combine(jb.remove_rows([0]), jb.set_targets([1], [bad])))
    with pytest.raises(ValueError, match="Cached.. and Pass.. only, got Curvature"):
        jb.bound(softmax, jb.remove_rows([0]), jb.Curvature())
    with pytest.raises(ValueError, match="softmax needs an L2 penalty"):
        jb.bound(softmax, jb.set_penalty(jb.penalties.l1(0.1)))
    with pytest.raises(ValueError, match="is not a row"):
        jb.bound(softmax, jb.remove_rows([14]))
    with pytest.raises(TypeError, match="change must come from"):
        jb.bound(softmax, "remove")
    with pytest.raises(ValueError, match="4 columns"):
        jb.bound(softmax, jb.remove_rows([0])).scores(np.zeros((1, 3)))


def test_questions_of_one_score_are_refused():
    """Their labels mean something else: 0 is a class here, and undecided there."""
    X, y = np.eye(4), np.arange(4) % K
    model, change = model_at(SOFTMAX, X, y.astype(float), np.ones(4), np.zeros((K, 4))), jb.remove_rows([0])
    for call in (
        lambda: jb.decide(model, change, jb.LabelsKnown(X)), lambda: jb.leave_one_out(model),
        lambda: jb.bound_each(model, change), lambda: jb.worst_case_removal(model, 1, X), lambda: jb.with_factor(model),
        lambda: jb.influence(model, X), lambda: jb.cross_validate(model, 2),
    ):  # fmt: skip
        with pytest.raises(TypeError, match="several classes|MultinomialModel"):
            call()


# ---------------------------------------------------------------- one-vs-rest


@pytest.mark.parametrize("intercept", [False, True])
def test_one_vs_rest(intercept):
    rng = np.random.default_rng(6)
    X = rng.normal(size=(14, 4)) + 2 * np.eye(4)[np.arange(14) % K]
    y, X_test = np.arange(14) % K, rng.normal(size=(40, 4))
    problem = jb.Problem(jb.losses.squared_hinge(), jb.penalties.l2(0.1), intercept=intercept)
    model = jb.fit_one_vs_rest(problem, X, y, tol=1e-10)
    assert model.classes == K and model.w.shape == (K, 4) and model.intercept.shape == (K,)
    X_new = X[:1] + 0.3
    change = jb.combine(jb.set_rows([0], X_new, [2]), jb.set_targets([4], [0]), jb.remove_rows([7]))
    again = jb.refit(model, change, tol=1e-12)
    for k in range(K):  # each class alone, with labels of our own making
        X_all, y_all, _ = change.apply(X, y)
        alone = jb.fit(problem, X_all, np.where(y_all == k, 1.0, -1.0), tol=1e-12)
        assert np.allclose(np.asarray(again.w[k]), np.asarray(alone.w), atol=1e-7)
    scores = np.asarray(again.scores(X_test))
    for method in (None, jb.Curvature()):
        bounds = jb.bound(model, change, method)
        inside(bounds.scores(X_test), scores, "scores", 1e-7)
        inside(bounds.w(), np.asarray(again.w), "w", 1e-7)
        inside(bounds.intercept, np.asarray(again.intercept), "intercept", 1e-7)
        inside(bounds.distance, np.linalg.norm(np.asarray(again.w) - np.asarray(model.w)), "distance", 1e-7)
        labels = np.asarray(bounds.labels(X_test))
        assert labels.dtype == np.int32 and int(bounds.status) == jb.Status.CONVERGED
        assert np.array_equal(labels[labels >= 0], scores.argmax(axis=1)[labels >= 0])
        assert np.array_equal(np.asarray(bounds.decided(X_test)), labels >= 0)
    assert (labels >= 0).mean() > 0.9
    with pytest.raises(ValueError, match=r"y_new\[0\] = 3.0 is not one of the 3 classes"):
        jb.bound(model, jb.set_targets([1], [3]))
    words = np.array(["dog", "ant", "cow"])  # numbered as np.unique orders them
    named = jb.fit_one_vs_rest(problem, X, words[y], tol=1e-10)
    place = np.array([1, 2, 0])  # ant, cow, dog
    assert named.classes_ == ("ant", "cow", "dog") and np.array_equal(named.w, np.asarray(model.w)[place])
    change = jb.combine(jb.set_rows([0], X_new, ["cow"]), jb.set_targets([4], "dog"), jb.remove_rows([7]))
    np.testing.assert_array_equal(jb.bound(named, change).w().upper, jb.bound(model, jb.combine(
        jb.set_rows([0], X_new, [2]), jb.set_targets([4], [0]), jb.remove_rows([7]))).w().upper[place])  # fmt: skip
    assert np.array_equal(named.decode_labels(named.labels(X_test)), words[model.labels(X_test)])
    assert jb.refit(named, jb.remove_rows([7]), tol=10.0).classes_ == named.classes_
    for shown in (np.array([1, 2, 3]), np.array([-1.0, 5.0, 10.0])):  # no class of no row is made up between them
        other = jb.fit_one_vs_rest(problem, X, shown[y], tol=1e-10)
        assert other.classes_ == tuple(shown.tolist()) and np.array_equal(other.w, np.asarray(model.w))
        upper = jb.bound(other, jb.set_targets([4], [shown[0]])).w().upper
        np.testing.assert_array_equal(upper, jb.bound(model, jb.set_targets([4], [0])).w().upper)
    if not intercept:
        with_gap = jb.fit_one_vs_rest(problem, X, y, classes=4, tol=1e-10)
        assert with_gap.classes == 4 and with_gap.classes_ is None


@pytest.mark.slow
def test_one_vs_rest_in_jit():
    rng = np.random.default_rng(7)
    X, y = rng.normal(size=(14, 4)), np.arange(14) % K
    model = jb.fit_one_vs_rest(jb.Problem(jb.losses.squared_hinge(), jb.penalties.l2(0.1)), X, y)

    @jax.jit
    def labels(model, rows, target):
        bounds = jb.bound(model, jb.set_targets(rows, target))
        scores = bounds.scores(X)
        return bounds.labels(X), bounds.status, scores.lower

    for target in (1.0, 2.0):
        got, status, lower = labels(model, jnp.array([3]), jnp.array([target]))
        bounds = jb.bound(model, jb.set_targets([3], [target]))
        assert np.array_equal(got, bounds.labels(X)) and int(status) == 0
        assert np.allclose(np.asarray(lower), np.asarray(bounds.scores(X).lower), rtol=1e-6, atol=1e-6)
    got, status, _ = labels(model, jnp.array([3]), jnp.array([7.0]))
    assert int(status) == jb.Status.INVALID and np.all(np.asarray(got) == -1)


def test_labels_of_intervals():
    from jaxbounds.classes import class_labels

    lower = np.array([[0.0, 2.0, -1.0], [0.0, 2.0, -1.0], [np.nan, 1.0, 0.0], [1.0, 1.0, 1.0], [-np.inf, 0.0, 1.0]])
    upper = np.array([[1.0, 3.0, 1.9], [1.0, 3.0, 2.0], [np.nan, 2.0, 0.5], [1.0, 1.0, 1.0], [np.inf, 0.5, 2.0]])
    assert class_labels(lower, upper).tolist() == [1, -1, -1, -1, -1]


def test_questions_of_one_score_say_what_takes_several_classes():
    X, y = np.eye(6), np.arange(6) % 3
    model = jb.fit_one_vs_rest(jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1)), X, y)
    with pytest.raises(TypeError, match="got OneVsRest: this takes two classes or regression"):
        jb.leave_one_out(model)
