"""Pass and Curvature: nearly exact on real data, exact for piecewise quadratics, sound to the last bit."""

import contextlib
import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
import scipy.sparse as sp
from pairs import draw
from regions import check_optimum

import jaxbounds as jb

SECOND = (jb.Pass(), jb.Curvature())
LOSSES = {
    "logistic": (jb.losses.logistic, None),
    "squared_hinge": (jb.losses.squared_hinge, None),
    "smoothed_hinge": (lambda: jb.losses.smoothed_hinge(0.5), 0.5),
}


@functools.cache
def data(name):
    """(X, y, X_test): rows of norm one, every fifth row is asked about."""
    datasets = pytest.importorskip("sklearn.datasets")
    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    y = np.where(y % 2 == 0, 1.0, -1.0)
    if name == "breast_cancer":
        X = (X - X.mean(axis=0)) / X.std(axis=0)
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    test = np.arange(len(y)) % 5 == 0
    return X[~test], y[~test], X[test]


@functools.cache
def trained(name, loss, lam):
    X, y, _ = data(name)
    param = LOSSES[loss][1]
    old = oracle.Problem(loss, X, y, np.full(len(y), 1 / len(y)), lam=lam, param=param)
    model = jb.fit(jb.Problem(LOSSES[loss][0](), jb.penalties.l2(lam)), X, y, tol=1e-12)
    return old, model


def changes(name, rng):
    """name -> change of the oracle: one and ten rows replaced, a hundred elements, one row removed."""
    X, y, _ = data(name)
    n, d = X.shape
    low, high = X.min(axis=0), X.max(axis=0)
    rows, flat = rng.permutation(n), rng.permutation(n * d)[:100]
    return {
        "1 row": ("set_rows", {"rows": rows[:1], "X_new": rng.uniform(low, high, (1, d))}),
        "10 rows": ("set_rows", {"rows": rows[1:11], "X_new": rng.uniform(low, high, (10, d))}),
        "100 elements": ("set_elements", {"rows": flat // d, "cols": flat % d,
                                          "values": rng.uniform(low[flat % d], high[flat % d])}),
        "row removed": ("remove_rows", {"rows": rows[11:12]}),
    }  # fmt: skip


def against_truth(name, old, model, change, method):
    """(half-width of the median score over the median true shift, distance bound over the true one)."""
    kind, args = change
    new = oracle.changed_problem(old, None, [change], "mean")
    truth = oracle.solve(new).w
    X_test, w = data(name)[2], np.asarray(model.w)
    bounds = jb.bound(model, getattr(jb, kind)(**args), method)
    scores = bounds.scores(X_test)
    lower, upper = np.asarray(scores.lower), np.asarray(scores.upper)
    slack = 1e-8 * (1 + np.linalg.norm(truth))
    assert np.all(lower <= X_test @ truth + slack) and np.all(upper >= X_test @ truth - slack)
    shift, moved = np.abs(X_test @ (truth - w)), np.linalg.norm(truth - w)
    assert float(bounds.distance.lower) <= moved + slack and float(bounds.distance.upper) >= moved - slack
    return np.median(upper - lower) / 2 / np.median(shift), float(bounds.distance.upper) / moved


@pytest.mark.slow
@pytest.mark.parametrize("lam", [1e-1, 1e-2, 1e-3])
@pytest.mark.parametrize("name", ["digits", "breast_cancer"])
def test_logistic_is_nearly_exact(name, lam):
    old, model = trained(name, "logistic", lam)
    for what, change in changes(name, np.random.default_rng(0)).items():
        half, distance = against_truth(name, old, model, change, jb.Curvature())
        assert half <= (0.02 if what == "row removed" else 0.05), (what, half)
        assert distance <= 1.02, (what, distance)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["squared_hinge", "smoothed_hinge"])
@pytest.mark.parametrize("name", ["digits", "breast_cancer"])
def test_piecewise_quadratic_is_exact(name, loss):
    for lam in (1e-2, 1e-3):
        old, model = trained(name, loss, lam)
        wanted = changes(name, np.random.default_rng(1))
        for what in ("10 rows", "row removed") if lam == 1e-2 else ("row removed",):
            half, distance = against_truth(name, old, model, wanted[what], jb.Curvature())
            assert half <= 1e-5 and distance <= 1 + 1e-5, (lam, what, half, distance)


@pytest.mark.parametrize(("name", "kinds", "gain"), [
    ("digits", ("1 row", "10 rows", "100 elements"), 50), ("breast_cancer", ("row removed",), 10)])  # fmt: skip
def test_pass_beats_the_paper(name, kinds, gain):
    """The median over lam in 1e-1, 1e-2, 1e-3 of the paper's radius over that of Pass."""
    gains = []
    for lam in (1e-1, 1e-2, 1e-3):
        model = trained(name, "logistic", lam)[1]
        wanted = changes(name, np.random.default_rng(2))
        for kind, args in [wanted[kind] for kind in kinds]:
            change = getattr(jb, kind)(**args)
            paper, ours = (float(jb.bound(model, change, m).radius) for m in (jb.Theorem1(), jb.Pass()))
            gains.append(paper / ours)
        if name == "breast_cancer":
            change = jb.set_penalty(jb.penalties.l2(1.2 * lam))
            paper, ours = (float(jb.bound(model, change, m).radius) for m in (jb.Theorem1(), jb.Pass()))
            gains.append(paper / ours)
    assert np.median(gains) >= gain, gains


def optima_inside(start, count, x64):
    """How many of so many random problems have an optimum known to 45 digits; it lies in every interval of each."""
    with jax.enable_x64(x64):
        tasks = [draw(np.random.default_rng(seed)) for seed in range(start, start + count)]
        return sum(check_optimum(task, SECOND) for task in tasks if task.pr.loss != "hinge")


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("block", range(4))
def test_optimum_to_45_digits_is_inside(block, x64):
    """No end point of any interval may be beyond the exact optimum, not by one bit."""
    assert optima_inside(7000 + 200 * block + 100 * x64, 24, x64) >= 10


@pytest.mark.full
@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("block", range(10))
def test_optimum_to_45_digits_is_inside_many(block, x64):
    assert optima_inside(20_000 + 1000 * block + 500 * x64, 200, x64) >= 80


def test_screening_moves_the_point():
    """Columns that become certain zeros move the reference point: slopes taken before that are those of another one."""
    assert check_optimum(draw(np.random.default_rng(21182)), (jb.Curvature(),))


@pytest.mark.parametrize("magnitude", [8, 75])
def test_extreme_scales(magnitude):
    known = []
    for seed in range(20):
        task = draw(np.random.default_rng(seed), training="any", magnitude=magnitude)
        if task.pr.loss != "hinge":
            failures = np.linalg.LinAlgError, ArithmeticError  # of the oracle
            with warnings.catch_warnings(), contextlib.suppress(*failures):
                warnings.simplefilter("ignore", RuntimeWarning)
                known.append(check_optimum(task, SECOND))
    assert magnitude > 8 or sum(known) >= 3


def random_problem(rng, n, d, sparse=False, loss="logistic", penalty=None, dtype=float):
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < (0.1 if sparse else 1.0))
    X = X.astype(dtype)
    y = np.where(X @ rng.normal(size=d) + rng.normal(size=n) > 0, 1.0, -1.0)
    problem = jb.Problem(LOSSES[loss][0](), penalty or jb.penalties.l2(0.05))
    return jb.fit(problem, sp.csr_array(X) if sparse else X, y, tol=1e-11), X, y


SHAPES = [(300, 20, False), (30, 400, False), (40, 600, True), (700, 500, True)]


@pytest.mark.slow
@pytest.mark.parametrize(("n", "d", "sparse"), SHAPES)
def test_every_shape(n, d, sparse):
    """d x d, n x n and sparse data: the same near-exactness."""
    rng = np.random.default_rng(n)
    for loss in ("logistic", "smoothed_hinge"):
        model, X, y = random_problem(rng, n, d, sparse, loss)
        change = ("set_rows", {"rows": np.array([0, 5]), "X_new": X[[7, 9]], "y_new": -y[[7, 9]]})
        old = oracle.Problem(loss, X, y, np.full(n, 1 / n), lam=0.05, param=LOSSES[loss][1])
        truth = oracle.solve(oracle.changed_problem(old, None, [change], "mean")).w
        bounds = jb.bound(model, jb.set_rows(**change[1]), jb.Curvature())
        scores, moved = bounds.scores(X), np.linalg.norm(truth - np.asarray(model.w))
        lower, upper = np.asarray(scores.lower), np.asarray(scores.upper)
        assert np.all(lower <= X @ truth + 1e-7) and np.all(upper >= X @ truth - 1e-7)
        assert np.median(upper - lower) / 2 <= 0.02 * np.median(np.abs(X @ (truth - np.asarray(model.w))))
        assert float(bounds.distance.upper) <= 1.02 * moved


def test_conjugate_gradients_where_no_inverse_fits(monkeypatch):
    """Large sparse data: inexact solves, their residuals counted."""
    from jaxbounds.certificates import inverse

    monkeypatch.setattr(inverse, "_SIDE", 8)
    rng = np.random.default_rng(3)
    for loss in ("logistic", "squared_hinge"):
        model, X, y = random_problem(rng, 80, 300, True, loss)
        change = ("remove_rows", {"rows": np.array([4])})
        old = oracle.Problem(loss, X, y, np.full(80, 1 / 80), lam=0.05)
        truth = oracle.solve(oracle.changed_problem(old, None, [change], "mean")).w
        bounds = jb.bound(model, jb.remove_rows([4]), jb.Curvature())
        scores = bounds.scores(sp.csr_array(X))
        lower, upper = np.asarray(scores.lower), np.asarray(scores.upper)
        assert np.all(lower <= X @ truth + 1e-7) and np.all(upper >= X @ truth - 1e-7)
        assert np.median(upper - lower) <= 0.05 * np.median(np.abs(X @ (truth - np.asarray(model.w))))
        w = bounds.w()
        assert np.all(np.asarray(w.lower) <= truth + 1e-7) and np.all(np.asarray(w.upper) >= truth - 1e-7)


@pytest.mark.parametrize("penalty", ["elastic_net", "l1"])
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge", "smoothed_hinge"])
def test_sparse_penalties(loss, penalty):
    """Zeros and signs become certain, then the answer is that of the smooth problem that is left."""
    X, y, X_test = data("breast_cancer")
    ours = jb.penalties.elastic_net(1e-2, 3e-3) if penalty == "elastic_net" else jb.penalties.l1(5e-3)
    fields = {"lam": 1e-2, "l1": 3e-3} if penalty == "elastic_net" else {"kappa": 5e-3}
    old = oracle.Problem(loss, X, y, np.full(len(y), 1 / len(y)), penalty=penalty, param=LOSSES[loss][1], **fields)
    model = jb.fit(jb.Problem(LOSSES[loss][0](), ours), X, y, tol=1e-11)
    rng = np.random.default_rng(5)
    for change in (("remove_rows", {"rows": rng.permutation(len(y))[:1]}),
                   ("set_rows", {"rows": rng.permutation(len(y))[:2], "X_new": X[:2]})):  # fmt: skip
        truth = oracle.solve(oracle.changed_problem(old, None, [change], "mean")).w
        bounds = jb.bound(model, getattr(jb, change[0])(**change[1]), jb.Curvature())
        w = bounds.w()
        lower, upper = np.asarray(w.lower), np.asarray(w.upper)
        assert np.all(lower <= truth + 1e-7) and np.all(upper >= truth - 1e-7)
        moved = np.linalg.norm(truth - np.asarray(model.w))
        assert float(bounds.distance.upper) <= moved * (1 + 1e-3) + 1e-7
        zeros = np.asarray(bounds.inactive_columns())
        assert zeros.sum() == (np.abs(truth) < 1e-9).sum() and np.all(np.abs(truth[zeros]) < 1e-9)


@pytest.mark.parametrize(("n", "d"), [(60, 5), (12, 30)])
def test_the_sandwich_costs_no_more_than_its_formula(monkeypatch, n, d):
    """(1/2) ||eta||_M ||g||_M for the very slopes that were used: the allowances add less than a tenth."""
    from jaxbounds.certificates import curvature

    seen, rng = [], np.random.default_rng(n)

    def spy(problem, at, low, high, mask, two_sided):
        seen.append((problem, at, low, high, curvature_sandwich(problem, at, low, high, mask, two_sided)))
        return seen[-1][-1]

    curvature_sandwich = curvature.sandwich
    monkeypatch.setattr(curvature, "sandwich", spy)
    model, X, y = random_problem(rng, n, d)
    for k in range(6):
        jb.bound(model, jb.set_rows([k], rng.normal(size=(1, d)), -y[[k]]), jb.Curvature())
    eta, ratios = rng.normal(size=(d, 8)), []
    for problem, at, low, high, (radius, shape, pad, _) in seen:
        X = problem.matrix.values
        inverse = np.linalg.inv((X.T * (problem.c * low)) @ X + np.diag(problem.lam))
        M = inverse @ ((X.T * (problem.c * (high - low))) @ X) @ inverse
        exact = np.sqrt(at.g @ M @ at.g) / 2 * np.sqrt(np.sum(eta * (M @ eta), axis=0))
        given = radius * shape.of_columns(eta) + pad * np.linalg.norm(eta, axis=0)
        ratios += list((given / exact)[exact > 1e-10 * np.linalg.norm(eta, axis=0)])
        assert np.all(given >= exact * (1 - 1e-6))
    assert len(ratios) >= 8 and np.median(ratios) <= 1.1, (len(ratios), np.median(ratios))


def user_loss(m, s):
    return s * jnp.logaddexp(0.0, -m / s)


def user_range(low, high, s):
    def curvature(m):
        return jax.nn.sigmoid(m / s) * jax.nn.sigmoid(-m / s) / s

    peak = jnp.where((low <= 0) & (high >= 0), 0.25 / s, 0.0)
    ends = curvature(low), curvature(high)
    return jnp.minimum(*ends), jnp.maximum(jnp.maximum(*ends), peak)


def test_user_losses():
    """A user's loss needs no more than its function; a curvature range makes it as tight as a built-in one."""
    rng = np.random.default_rng(0)
    _, X, y = random_problem(rng, 60, 5)
    widths = []
    for extra in ({}, {"curvature_range": user_range}):
        loss = jb.losses.from_margin(user_loss, 0.5, (0.5,), domain=(0.0, 1.0), **extra)
        model = jb.fit(jb.Problem(loss, jb.penalties.l2(0.05)), X, y, tol=1e-11)
        change = jb.set_rows([0], X[[3]], [-y[3]])
        truth = np.asarray(jb.refit(model, change, tol=1e-14).w)
        for method in SECOND:
            scores = jb.bound(model, change, method).scores(X)
            lower, upper = np.asarray(scores.lower), np.asarray(scores.upper)
            assert np.all(lower <= X @ truth + 1e-7) and np.all(upper >= X @ truth - 1e-7)
            shift = np.median(np.abs(X @ (truth - np.asarray(model.w))))
            widths.append(np.median(upper - lower) / 2 / shift)
    assert max(widths[1::2]) <= 1e-6 and max(widths) <= 0.5


@pytest.mark.parametrize(  # each method and each kind of data once; the other two pairs take as long again
    ("method", "sparse"),
    [pytest.param(jb.Pass(), True, marks=pytest.mark.slow),
     pytest.param(jb.Curvature(), False, marks=pytest.mark.slow),
     pytest.param(jb.Pass(), False, marks=pytest.mark.full),
     pytest.param(jb.Curvature(), True, marks=pytest.mark.full)],
    ids=str,
)  # fmt: skip
def test_compiled(method, sparse):
    """The same regions inside jit and vmap, up to the steps that are taken."""
    rng = np.random.default_rng(1)
    model, X, y = random_problem(rng, 30, 6, sparse)
    rows, values = np.array([[3], [11]]), rng.normal(size=(2, 1, 6))

    def question(rows, values):
        bounds = jb.bound(model, jb.set_rows(rows, values), method)
        return bounds.radius, bounds.scores(X[:4]).upper, bounds.status

    with jax.enable_x64(True):
        radius, upper, status = jax.jit(jax.vmap(question))(jnp.asarray(rows), jnp.asarray(values))
    for k in range(2):
        host = jb.bound(model, jb.set_rows(rows[k], values[k]), method)
        assert int(status[k]) == jb.Status.CONVERGED
        assert float(radius[k]) <= 2 * float(host.radius) + 1e-9
        truth = np.asarray(jb.refit(model, jb.set_rows(rows[k], values[k]), tol=1e-14).w)
        assert np.all(np.asarray(upper[k]) >= X[:4] @ truth - 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("method", [jb.Pass(), pytest.param(jb.Curvature(), marks=pytest.mark.full)], ids=str)
def test_gradients_are_finite(method):
    """Also at no change, where every radius is at rounding level (Curvature holds the regions of the others)."""
    rng = np.random.default_rng(2)
    model, X, y = random_problem(rng, 20, 4)

    def width(step):
        change = jb.set_elements([2, 5], [0, 1], X[[2, 5], [0, 1]] + step)
        scores = jb.bound(model, change, method).scores(X[:3])
        return jnp.sum(scores.upper - scores.lower), jnp.sum(scores.upper)

    with jax.enable_x64(True):
        slope = jax.jit(jax.jacfwd(lambda step: jnp.stack(width(step))))
        for step in (np.zeros(2), np.array([0.3, -0.2])):
            forward = slope(jnp.asarray(step))
            assert np.all(np.isfinite(forward))
        ahead, back = (width(step + size * np.array([1.0, 0.0]))[1] for size in (1e-4, -1e-4))
        np.testing.assert_allclose(forward[1, 0], (ahead - back) / 2e-4, rtol=1e-4)


def test_what_is_missing_is_named():
    X, y = np.eye(3), np.array([1.0, -1.0, 1.0])
    hinge = jb.fit(jb.Problem(jb.losses.hinge(), jb.penalties.l2(0.1)), X, y)
    for method in SECOND:
        with pytest.raises(ValueError, match=r"needs a smooth loss \(property A\), and hinge is not"):
            jb.bound(hinge, jb.remove_rows([0]), method)
    lasso = jb.fit(jb.Problem(jb.losses.logistic(), jb.penalties.l1(0.1)), X, y)
    with pytest.raises(ValueError, match=r"needs a strongly convex penalty \(property B\), and l1 is not"):
        jb.bound(lasso, jb.remove_rows([0]), jb.Pass())
    model = jb.fit(jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1)), X, y)
    with pytest.raises(ValueError, match="needs the data"):
        jb.bound(model.without_data(), jb.set_rows([0], X[:1], old_values=X[:1]), jb.Pass())
    with pytest.raises(ValueError, match="cg_steps must be a whole number"):
        jb.bound(model, jb.remove_rows([0]), jb.Pass(cg_steps=0))
