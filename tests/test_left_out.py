"""Leave-one-out, cross-validation and label errors against true retrains, by an independent solver or refit."""

import functools
from dataclasses import replace

import jax
import numpy as np
import oracle
import pytest
import scipy.sparse as sp

import jaxbounds as jb
from jaxbounds.array import put, to_host
from jaxbounds.certificates import crossings
from jaxbounds.certificates.leave_one_out import EXACT, leave_one_out
from jaxbounds.certificates.removed import ball_scores, pass_scores
from jaxbounds.left_out import loss_range
from jaxbounds.left_out_scores import HOW
from jaxbounds.matrix import as_matrix
from jaxbounds.model import Data, remember
from jaxbounds.pytree import in_float64

N, D = 24, 4
LOSSES = {"logistic": jb.losses.logistic, "smoothed_hinge": lambda: jb.losses.smoothed_hinge(0.5),
          "hinge": jb.losses.hinge, "huber": lambda: jb.losses.huber(0.7), "squared": jb.losses.squared}  # fmt: skip
PARAMS = {"smoothed_hinge": 0.5, "huber": 0.7}
VECTOR = np.geomspace(0.05, 0.2, D)


@functools.cache
def data(loss, seed=0):
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((N, D)) < 0.7, rng.normal(size=(N, D)), 0.0)
    score = X @ np.linspace(1.5, -1.0, D) + 0.7 * rng.normal(size=N)
    y = np.where(score > 0, 1.0, -1.0) if loss in oracle.MARGIN_LOSSES else score
    return X, y, rng.choice([0.5, 1.0, 2.0], N)


def penalty_of(name):
    return {"l2": lambda: jb.penalties.l2(0.1), "vector": lambda: jb.penalties.l2(VECTOR),
            "elastic_net": lambda: jb.penalties.elastic_net(0.1, 0.02)}[name]()  # fmt: skip


def fit(loss="logistic", penalty="l2", scale="mean", wrap=np.asarray, weighted=True, intercept=False, tol=1e-9):
    X, y, weight = data(loss)
    problem = jb.Problem(LOSSES[loss](), penalty_of(penalty), scale=scale, intercept=intercept)
    return jb.fit(problem, wrap(X), y, sample_weight=weight if weighted else None, tol=tol)


@functools.cache
def truth(loss, penalty, scale, keep_n, weighted=True, single=False, folds=None):
    """The score of each row in the model that the oracle trains without it, or without its fold (i mod folds)."""
    X, y, weight = data(loss)
    X = X.astype(np.float32).astype(float) if single else X
    weight, scores = weight if weighted else np.ones(N), np.empty(N)
    for k in range(folds or N):
        gone = np.arange(N) % (folds or N) == k
        kept = ~gone
        c = weight[kept] / (1 if scale == "sum" else N if keep_n else kept.sum())
        lam, l1 = (VECTOR, 0.0) if penalty == "vector" else (0.1, 0.02 if penalty == "elastic_net" else 0.0)
        kind = "elastic_net" if penalty == "elastic_net" else "l2"
        problem = oracle.Problem(loss, X[kept], y[kept], c, kind, PARAMS.get(loss), lam, l1)
        scores[gone] = X[gone] @ oracle.solve(problem).w
    return scores


def assert_holds(found, scores, loss, rows=None, tol=1e-9):
    """Scores, errors, labels and the mean loss hold what the retrained models say."""
    rows = np.arange(N) if rows is None else np.asarray(rows)
    y, scores = data(loss)[1][rows], scores[rows]
    assert np.asarray(found.rows).tolist() == rows.tolist()
    lower, upper = np.asarray(found.scores.lower, float), np.asarray(found.scores.upper, float)
    assert np.all(lower - tol <= scores) and np.all(scores <= upper + tol)
    margin = loss in oracle.MARGIN_LOSSES
    mean = np.mean(oracle.loss_value(loss, PARAMS.get(loss), y * scores if margin else scores - y))
    assert float(found.loss.lower) - tol <= mean <= float(found.loss.upper) + tol
    if not margin:
        assert found.errors is None and found.labels is None and found.correct is None
        assert not np.any(np.asarray(found.undecided))
        return
    wrong = y * scores < 0
    assert int(found.errors.lower) <= wrong.sum() <= int(found.errors.upper)
    correct = np.asarray(found.correct)
    assert np.all(~wrong[correct > 0]) and np.all(wrong[correct < 0])
    undecided = np.asarray(found.undecided)
    np.testing.assert_array_equal(undecided, (lower <= 0) & (upper >= 0))
    np.testing.assert_array_equal(np.asarray(found.labels)[~undecided], np.sign(scores)[~undecided])
    assert int(found.errors.upper) - int(found.errors.lower) == undecided.sum()


def single(X):
    return X.astype(np.float32)


CASES = [
    ("logistic", "l2", "mean", np.asarray), ("logistic", "l2", "sum", sp.csr_array),
    ("logistic", "vector", "mean", single), ("smoothed_hinge", "l2", "mean", sp.csr_array),
    ("smoothed_hinge", "elastic_net", "mean", np.asarray), ("smoothed_hinge", "elastic_net", "sum", sp.csr_array),
    ("hinge", "l2", "mean", sp.csr_array), ("huber", "l2", "mean", single),
    ("squared", "elastic_net", "mean", sp.csr_array), ("squared", "l2", "sum", np.asarray),
]  # fmt: skip


@pytest.mark.parametrize("loss, penalty, scale, wrap", CASES, ids=lambda value: getattr(value, "__name__", str(value)))
def test_every_true_retrain_is_inside(loss, penalty, scale, wrap):
    model, widths = fit(loss, penalty, scale, wrap), {}
    for keep_n in (False, True) if scale == "mean" else (False,):
        scores = truth(loss, penalty, scale, keep_n, single=wrap is single)
        for method in (None, jb.Theorem1(), jb.Cached(), jb.Partial(), jb.Pass()):
            if isinstance(method, jb.Pass) and loss == "hinge":
                continue
            found = jb.leave_one_out(model, method, keep_n=keep_n)
            assert_holds(found, scores, loss)
            widths[type(method)] = np.median(np.asarray(found.scores.upper) - np.asarray(found.scores.lower))
            assert found.how.shape == (N,) and sum(found.used().values()) == N
        assert widths[jb.Cached] <= widths[jb.Theorem1] and widths[jb.Partial] <= widths[jb.Cached] * (1 + 1e-9)
        if jb.Pass in widths:
            assert widths[jb.Pass] < 0.5 * widths[jb.Cached]
        if penalty != "elastic_net" and loss != "hinge":
            assert widths[type(None)] < (1e-9 if loss in ("squared", "huber") else 0.5 * widths[jb.Cached])


@pytest.mark.parametrize("loss", ["logistic", "smoothed_hinge", "hinge"])
@pytest.mark.parametrize("method", [None, jb.Cached()], ids=["default", "Cached"])
def test_resolve_leaves_nothing_open(loss, method):
    model = fit(loss, wrap=sp.csr_array)
    scores = truth(loss, "l2", "mean", False)
    before = jb.leave_one_out(model, method)
    found = jb.leave_one_out(model, method, resolve=True)
    assert_holds(found, scores, loss)
    assert not np.any(np.asarray(found.undecided)) and int(found.errors.lower) == int(found.errors.upper)
    touched = np.asarray(found.how) != np.asarray(before.how)
    assert np.all(np.asarray(before.undecided)[touched])
    if method is not None:
        assert np.any(touched)


@pytest.mark.parametrize("loss, width", [("huber", 1e-6), ("logistic", 1e-8)])
def test_a_number_settles_widths_too(loss, width):
    """For regression too; the first rows alone, from the widest method."""
    model, rows = fit(loss, wrap=sp.csr_array), np.arange(4)
    scores = truth(loss, "l2", "mean", False)
    wide = jb.leave_one_out(model, jb.Cached(), rows)
    assert np.max(wide.scores.upper - wide.scores.lower) > width
    found = jb.leave_one_out(model, jb.Cached(), rows, resolve=width)
    assert np.max(found.scores.upper - found.scores.lower) <= width and not np.any(found.undecided)
    assert_holds(found, scores, loss, rows)
    same = jb.leave_one_out(model, jb.Cached(), rows, resolve=1e6)
    labels = jb.leave_one_out(model, jb.Cached(), rows, resolve=True)
    np.testing.assert_array_equal(same.scores.upper, labels.scores.upper)  # labels are settled whatever the width
    folds = jb.cross_validate(model, [rows], resolve=width)
    assert np.max(folds.scores.upper - folds.scores.lower) <= width


def test_a_tie_stays_open():
    X, y = np.array([[0.0], [1.0], [-1.0], [0.0]]), np.array([1.0, 1.0, -1.0, -1.0])
    for loss in ("logistic", "smoothed_hinge"):
        model = jb.fit(jb.Problem(LOSSES[loss](), jb.penalties.l2(0.1)), X, y)
        found = jb.leave_one_out(model, resolve=True)
        assert np.asarray(found.undecided).tolist() == [True, False, False, True]
        assert (int(found.errors.lower), int(found.errors.upper)) == (0, 2)


@pytest.mark.parametrize("loss", ["logistic", pytest.param("huber", marks=pytest.mark.slow)])
def test_an_intercept(loss):
    model, y = fit(loss, intercept=True, wrap=sp.csr_array), data(loss)[1]
    rows, X = np.arange(0, N, 7), data(loss)[0]
    scores = np.full(N, np.nan)
    for k in rows:
        retrained = jb.refit(model, jb.remove_rows([k]), tol=1e-13)
        scores[k] = float(retrained.scores(X[[k]])[0])
    found = jb.leave_one_out(model, rows=rows, resolve=True)
    assert_holds(found, scores, loss, rows, tol=1e-6)
    assert_holds(jb.leave_one_out(model, jb.Pass(), rows), scores, loss, rows, tol=1e-6)
    found = jb.cross_validate(model, [rows[:2], rows[2:]], jb.Pass())
    assert np.all(np.asarray(found.scores.upper) - np.asarray(found.scores.lower) < np.ptp(y) + 10)


@pytest.mark.parametrize("sparse", [False, True])
def test_the_ball_and_the_pass_are_those_of_bound(sparse):
    for loss, penalty, scale in (("logistic", "l2", "mean"), ("smoothed_hinge", "elastic_net", "sum")):
        model = fit(loss, penalty, scale, sp.csr_array if sparse else np.asarray)
        X, rows = data(loss)[0], np.arange(N)
        for keep_n in (False, True):
            each = jb.bound_each(model, jb.each_row_removed(model, None, keep_n), X).scores()
            if penalty == "l2":
                ends = in_float64(ball_scores)(to_host(model), rows, keep_n)
                for a, b in zip(ends, (each.lower, each.upper), strict=True):
                    np.testing.assert_allclose(np.asarray(a), np.diag(np.asarray(b)), rtol=1e-9, atol=1e-9)
            lower, upper = in_float64(pass_scores)(model, rows, keep_n)
            for k in (1, 12):
                interval = jb.bound(model, jb.remove_rows([k], keep_n), jb.Pass()).scores(X[[k]])
                assert upper[k] - lower[k] < 6 * (interval.upper[0] - interval.lower[0])
                assert lower[k] <= interval.upper[0] and interval.lower[0] <= upper[k]


def test_the_pass_in_blocks_is_the_pass_row_by_row():
    model = fit("logistic", wrap=sp.csr_array)
    together = in_float64(pass_scores)(model, np.arange(N), False)
    for k in (0, 7, 23):
        alone = in_float64(pass_scores)(model, np.array([k]), False)
        for a, b in zip(together, alone, strict=True):
            np.testing.assert_allclose(a[k], b[0], rtol=1e-10)


def test_active_sets_side_by_side_are_those_one_by_one(monkeypatch):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(400, 12)) / 3
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=400) > 0, 1.0, -1.0)
    for loss, target in (("smoothed_hinge", y), ("huber", X[:, 0] + rng.normal(size=400))):
        model = jb.fit(jb.Problem(LOSSES[loss](), jb.penalties.l2(1e-3)), X, target, tol=1e-6)
        together = leave_one_out(model)
        with monkeypatch.context() as patch:
            patch.setattr(crossings, "solve_many", lambda state, rows, *_: (np.zeros(rows.size),) * 2 + (rows < 0,))
            alone = leave_one_out(model)
        assert np.mean(together.how == EXACT) > 0.99
        np.testing.assert_array_equal(together.how, alone.how)
        np.testing.assert_allclose(together.lower, alone.lower, atol=1e-11)
        # where nobody crosses, the block knows the answer without an active set
        assert np.all(together.upper - together.lower <= 1.1 * (alone.upper - alone.lower) + 1e-13)


def draw(rng):
    """A hostile problem, its model at any pair (w, alpha), and the oracle's view of it."""
    n, d, loss = int(rng.integers(2, 12)), int(rng.integers(1, 9)), str(rng.choice(list(LOSSES)))
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-3, 3)
    X = X * 10.0 ** rng.uniform(-4, 4, (n, 1)) if rng.random() < 0.3 else X
    X[rng.integers(n)] = X[rng.integers(n)] * rng.integers(0, 2)
    X[rng.random(X.shape) < rng.choice([0.0, 0.6])] = 0.0
    X = X.astype(rng.choice([np.float32, np.float64]))
    score = X @ rng.normal(size=d)
    score = score + rng.choice([0.0, 1.0]) * np.max(np.abs(score)) * rng.normal(size=n)
    y = np.where(score > 0, 1.0, -1.0) if loss in oracle.MARGIN_LOSSES else score
    lam, l1 = 10.0 ** rng.uniform(-5, 2) * (np.geomspace(1, 30, d) if rng.random() < 0.2 else 1.0), 0.0
    penalty = jb.penalties.l2(lam)
    if rng.random() < 0.3:
        l1 = 10.0 ** rng.uniform(-4, 0)
        penalty = jb.penalties.elastic_net(lam, l1)
    weight, scale = rng.choice([0.1, 1.0, 5.0], n), str(rng.choice(["mean", "sum"]))
    old = oracle.Problem(loss, X.astype(float), y, weight / (n if scale == "mean" else 1),
                         "elastic_net" if l1 else "l2", PARAMS.get(loss), lam, l1)  # fmt: skip
    w = rng.normal(size=d) * 10.0 ** rng.uniform(-3, 1)
    if rng.random() < 0.7:
        w = oracle.solve(old).w * (1 + 10.0 ** rng.uniform(-17, -0.5) * rng.normal(size=d))
    w = w.astype(X.dtype)
    alpha = oracle.loss_dual(loss, PARAMS.get(loss), old.coordinate(w.astype(float)))
    alpha = alpha * (1 + 10.0 ** rng.uniform(-16, -1) * rng.normal(size=n))
    alpha = np.clip(alpha, *oracle.loss_domain(loss, PARAMS.get(loss)))
    matrix, problem = sp.csr_array(X) if rng.random() < 0.5 else X, jb.Problem(LOSSES[loss](), penalty, scale=scale)
    model = in_float64(remember)(problem, put(Data(as_matrix(matrix), y, weight)), put(w), put(alpha))
    return model, old, weight, scale


@pytest.mark.slow
def test_hostile_problems():
    asked = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        try:
            model, old, weight, scale = draw(rng)
        except ArithmeticError:
            continue
        keep_n, n = bool(rng.random() < 0.5), len(weight)
        methods = [None, jb.Cached(), jb.Partial()] + [jb.Pass(int(rng.integers(1, 9)))] * (old.loss != "hinge")
        found = [jb.leave_one_out(model, method, keep_n=keep_n) for method in methods]
        for k in range(n):
            kept = np.arange(n) != k
            c = weight[kept] / (1 if scale == "sum" else n if keep_n else n - 1)
            problem, x = replace(old, X=old.X[kept], y=old.y[kept], c=c), old.X[k]
            try:
                best = oracle.solve(problem)
            except ArithmeticError:
                continue
            # the oracle's own distance from the optimum; extended precision leaves 1e-18 of the objective
            length = float(np.sqrt(np.sum(x**2 / (problem.lam + np.zeros(x.size)))))
            off = length * np.sqrt(2 * max(best.gap, 0.0) + 1e-18 * abs(best.primal))
            off = off + 1e-14 * np.abs(x) @ np.abs(best.w)
            for one in found:
                asked += 1
                lower, upper = float(one.scores.lower[k]), float(one.scores.upper[k])
                assert lower <= upper and lower - off <= x @ best.w <= upper + off, (seed, k, one.used())
    assert asked > 800


def test_folds():
    loss = "smoothed_hinge"
    model, scores = fit(loss), truth("smoothed_hinge", "l2", "mean", False, folds=4)
    of_row = np.arange(N) % 4
    found = jb.cross_validate(model, 4)
    assert_holds(found, scores, loss)
    np.testing.assert_array_equal(found.fold, of_row)
    for folds in (of_row, [np.flatnonzero(of_row == f) for f in range(4)]):
        same = jb.cross_validate(model, folds)
        np.testing.assert_array_equal(same.scores.lower, found.scores.lower)
    part = jb.cross_validate(model, np.where(of_row < 2, of_row, -1), jb.Curvature())
    assert_holds(part, scores, loss, np.flatnonzero(of_row < 2))
    assert np.max(np.asarray(part.scores.upper) - np.asarray(part.scores.lower)) < 1e-9
    settled = jb.cross_validate(model, 4, resolve=True)
    assert_holds(settled, scores, loss)
    assert not np.any(np.asarray(settled.undecided)) and np.any(np.asarray(found.undecided))
    keep = jb.cross_validate(model, 4, jb.Curvature(), keep_n=True)
    assert_holds(keep, truth(loss, "l2", "mean", True, folds=4), loss)


@pytest.mark.parametrize("wide, sparse", [(False, True), (True, False)])
def test_jit_equals_host(wide, sparse):
    model = fit("logistic", wrap=sp.csr_array if sparse else np.asarray)

    def ask(model):
        return jb.leave_one_out(model), jb.leave_one_out(model, jb.Pass(), [3, 1]), jb.cross_validate(model, 3)

    with jax.enable_x64(wide):
        host, traced = ask(model), jax.jit(ask)(model)
    for a, b in zip(traced, host, strict=True):
        for name in ("rows", "labels", "correct", "undecided", "how"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
        assert int(a.errors.lower) == int(b.errors.lower) and int(a.errors.upper) == int(b.errors.upper)
        for one, other in ((a.scores, b.scores), (a.loss, b.loss)):
            low, high = np.asarray(one.lower, np.float64), np.asarray(one.upper, np.float64)
            lower, upper = np.asarray(other.lower), np.asarray(other.upper)
            assert np.all(low <= lower + 1e-14) and np.all(high >= upper - 1e-14)
            tol = 1e-9 if wide else 1e-6
            np.testing.assert_allclose(low, lower, rtol=tol, atol=tol)
            np.testing.assert_allclose(high, upper, rtol=tol, atol=tol)
            assert one.lower.dtype == (np.float64 if wide else np.float32)


def test_planted_flips_are_found():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(120, D))
    X[:, 0] += np.where(rng.random(120) < 0.5, 3.0, -3.0)
    y, flipped = np.where(X[:, 0] > 0, 1.0, -1.0), rng.choice(120, 7, replace=False)
    y[flipped] *= -1
    for loss in ("logistic", "smoothed_hinge"):
        model = jb.fit(jb.Problem(LOSSES[loss](), jb.penalties.l2(0.05)), X, y)
        found = jb.find_label_errors(model, resolve=True)
        far = np.abs(X[:, 0]) > 1
        assert set(flipped[far[flipped]]) <= set(found.rows.tolist())
        assert not set(found.rows.tolist()) & set(np.flatnonzero(far)) - set(flipped)
        margin = np.asarray(found.margin)
        assert np.all(np.diff(margin) <= 0) and np.all(margin > 0) and found.undecided.size == 0
        scores = np.asarray(found.scores.lower), np.asarray(found.scores.upper)
        assert np.all(np.max([y[found.rows] * end for end in scores], axis=0) <= -margin)


def test_residuals_beyond_a_threshold():
    model, y = fit("huber"), data("huber")[1]
    residual = np.abs(truth("huber", "l2", "mean", False) - y)
    threshold = float(np.median(residual))
    found = jb.find_label_errors(model, jb.Cached(), threshold=threshold)
    rows, margin = np.asarray(found.rows), np.asarray(found.margin)
    assert np.all(residual[rows] >= threshold + margin - 1e-9)
    assert set(np.flatnonzero(residual > threshold)) - set(rows) <= set(np.asarray(found.undecided).tolist())
    sure = jb.find_label_errors(model, jb.Cached(), threshold=threshold, resolve=True)
    assert set(np.asarray(sure.rows).tolist()) == set(np.flatnonzero(residual > threshold).tolist())
    assert sure.undecided.size == 0 and np.all(np.diff(np.asarray(sure.margin)) <= 0)


def test_the_range_of_a_loss():
    rng = np.random.default_rng(7)
    for name, make in LOSSES.items():
        loss, margin = to_host(make()), name in oracle.MARGIN_LOSSES
        y = np.where(rng.random(200) < 0.5, 1.0, -1.0) if margin else rng.normal(size=200)
        lower, upper = np.sort(rng.normal(size=(2, 200)) * 10.0 ** rng.uniform(-9, 2, 200), axis=0)
        low, high = in_float64(loss_range)(loss, lower, upper, y)
        inside = lower + (upper - lower) * np.linspace(0, 1, 101)[:, None]
        values = oracle.loss_value(name, PARAMS.get(name), y * inside if margin else inside - y)
        assert np.all(low <= values.min(axis=0)) and np.all(high >= values.max(axis=0))
        if margin:
            assert np.all(values.min(axis=0) - low <= 1e-12 * (1 + np.abs(values.min(axis=0)) + upper - lower))
        low, high = in_float64(loss_range)(loss, np.full(200, -np.inf), np.full(200, np.inf), y)
        assert np.all(low == 0) and np.all(np.isinf(high))


def shifted_logistic(m):
    return jax.numpy.logaddexp(0.0 * m, -m) - 3.0


def test_a_users_loss_that_is_negative():
    X, y, _ = data("logistic")
    loss = jb.losses.from_margin(shifted_logistic, smoothness=0.25)
    model = jb.fit(jb.Problem(loss, jb.penalties.l2(0.1)), X, y, tol=1e-9)
    scores = truth("logistic", "l2", "mean", False, weighted=False)
    mean = np.mean(np.logaddexp(0.0, -y * scores) - 3.0)
    for method, width in ((None, 0.1), (jb.Pass(), 2e-3)):
        found = jb.leave_one_out(model, method)
        assert np.all(found.scores.lower <= scores) and np.all(scores <= found.scores.upper)
        assert found.loss.lower <= mean <= found.loss.upper <= found.loss.lower + width


def test_without_data_the_ball_still_answers():
    model = fit("logistic")
    bare, full = jb.leave_one_out(model.without_data()), jb.leave_one_out(model, jb.Cached())
    np.testing.assert_allclose(bare.scores.lower, full.scores.lower, rtol=1e-12)
    assert bare.used() == {"Cached": N}
    with pytest.raises(ValueError, match="needs the data"):
        jb.leave_one_out(model.without_data(), jb.Pass())


def test_the_callback_hears_and_stops():
    model, heard = fit("smoothed_hinge", "elastic_net"), []
    jb.leave_one_out(model, jb.Curvature(), [0, 1, 2], callback=heard.append)
    assert [told["done"] for told in heard] == [1, 2, 3] and heard[0] == {"method": "Curvature", "done": 1, "total": 3}
    stopped = jb.leave_one_out(model, jb.Curvature(), [0, 1, 2], callback=lambda told: True)
    assert np.isfinite(stopped.scores.upper[0]) and np.all(np.isinf(stopped.scores.upper[1:]))
    assert HOW[int(stopped.how[0])] == "Curvature"
    folds, seen = np.array([0, 0, 1, 1, 1] + [-1] * (N - 5)), []
    jb.cross_validate(model, folds, callback=seen.append)
    assert seen[-1] == {"method": "Cached", "done": 5, "total": 5}
    heard.clear()

    def stop(told):
        heard.append(told)
        return True

    part = jb.cross_validate(model, folds, jb.Curvature(), resolve=1e-300, callback=stop)
    assert [told["done"] for told in heard] == [2] and np.isinf(part.scores.upper).tolist() == [False] * 2 + [True] * 3
    heard.clear()  # a stop ends what would settle the rest too
    jb.leave_one_out(model, jb.Curvature(), [0, 1], resolve=1e-300, callback=stop)
    assert heard == [{"method": "Curvature", "done": 1, "total": 2}]


def test_hostile_input():
    model, regression = fit("logistic"), fit("huber")
    alone = jb.fit(jb.Problem(LOSSES["squared"](), jb.penalties.l2(0.1)), np.ones((1, 2)), np.ones(1))
    ask, cv, find = jb.leave_one_out, jb.cross_validate, jb.find_label_errors
    for call, error, message in (
        (lambda: ask(3), TypeError, "model must come from fit"), (lambda: ask(model, jb.Pass), TypeError, "call it"),
        (lambda: ask(model, rows=[0, 0]), ValueError, "repeated"), (lambda: ask(alone), ValueError, "one row"),
        (lambda: ask(model, rows=[N]), ValueError, "is not a row"),
        (lambda: ask(model, rows=[-1]), ValueError, "out of range"), (lambda: ask(model, rows=[]), ValueError, "empty"),
        (lambda: ask(model, rows=[0.5]), TypeError, "integers"),
        (lambda: ask(fit("hinge"), jb.Pass()), ValueError, "smooth loss"),
        (lambda: ask(model.without_data(), resolve=True), ValueError, "needs the data"),
        (lambda: ask(model, resolve="labels"), TypeError, "resolve must be True, False or a width .*got 'labels'"),
        (lambda: ask(model, resolve=0.0), ValueError, "resolve = 0.0 must be positive"),
        (lambda: ask(model, resolve=np.nan), ValueError, "resolve = nan must be positive"),
        (lambda: jb.worst_case_removal(model, data("logistic")[0], 5), TypeError,
         r"k must be .* got ndarray of shape .*the order is worst_case_removal\(model, k, X_test\)"),
        (lambda: jb.worst_case_removals(model, 5, data("logistic")[0]), TypeError,
         r"K must be .* got ndarray of shape .*the order is worst_case_removals\(model, X_test, K\)"),
        (lambda: jb.worst_case_relabels(model, 5, None), TypeError, r"is worst_case_relabels\(model, X_test, K\)"),
        (lambda: jb.worst_case_relabel(model, None, 5), TypeError, r"order is worst_case_relabel\(model, k, X_test\)"),
        (lambda: jb.attack_removal(model, None, 5), TypeError, r"order is attack_removal\(model, k, X_test\)"),
        (lambda: jb.attack_relabel(model, None, 5), TypeError, r"order is attack_relabel\(model, k, X_test\)"),
        (lambda: cv(model, 1), ValueError, "between 2"), (lambda: cv(model, N + 1), ValueError, "between 2"),
        (lambda: cv(model, True), ValueError, "folds must be"), (lambda: cv(model, 2.5), ValueError, "folds must be"),
        (lambda: cv(model, [[0, 1], [1, 2]]), ValueError, "row 1 is in folds 0 and 1"),
        (lambda: cv(model, [[0], []]), ValueError, "empty"), (lambda: cv(model, [[N]]), ValueError, "is not a row"),
        (lambda: cv(model, [np.arange(N)]), ValueError, "all rows"),
        (lambda: cv(model, np.zeros(3, int)), ValueError, "fold of each row"),
        (lambda: cv(model, np.zeros(N)), ValueError, "integers; got float64"),
        (lambda: cv(model, np.full(N, -1)), ValueError, "no row"),
        (lambda: cv(model, np.full(N, -2)), ValueError, "is not a fold"),
        (lambda: cv(model.without_data(), 2), ValueError, "with its data"),
        (lambda: find(model, threshold=1.0), ValueError, "threshold is for regression"),
        (lambda: find(regression), ValueError, "threshold"),
        (lambda: find(regression, threshold=np.nan), ValueError, "threshold"),
        (lambda: find(regression, threshold=-1.0), ValueError, "threshold"),
        (lambda: jax.jit(find)(model), TypeError, "inside jit"),
        (lambda: jax.jit(lambda m: ask(m, resolve=True))(model), TypeError, "leave them out inside jit"),
        (lambda: jax.jit(lambda m: cv(m, 2, resolve=True))(model), TypeError, "leave them out inside jit"),
        (lambda: jax.jit(lambda r: ask(model, rows=r))(np.arange(3)), TypeError, "known outside jit"),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            call()
