"""The unpenalised intercept: training, its balanced dual points, derivatives, against oracles that share no code."""

import warnings

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import optax
import oracle
import pytest
import scipy.sparse as sp
from scipy.optimize import brentq

import jaxbounds as jb
from jaxbounds.intercept import balanced_intercept, has_intercept
from jaxbounds.pytree import pytree

pytestmark = pytest.mark.slow  # compiles many solvers

N, D = 30, 4
RNG = np.random.default_rng(3)
X = np.where(RNG.random((N, D)) < 0.8, RNG.normal(size=(N, D)) + [2.0, 0.0, -1.0, 0.0], 0.0)
TRUTH = np.array([1.0, -1.0, 0.5, 0.1])
NOISE = RNG.normal(size=N)
LABELS = np.where(X @ TRUTH - 1.0 + NOISE > 0, 1.0, -1.0)
REALS = X @ TRUTH + 7.0 + 0.5 * NOISE
WEIGHT = RNG.uniform(0.4, 2.0, N)
LAM = np.array([0.02, 0.1, 0.3, 0.05])


def _phi(m, scale):
    return scale * jnp.logaddexp(0.0, -m / scale)


def _bowl(s, y, width):
    return width**2 * (jnp.sqrt(1.0 + ((s - y) / width) ** 2) - 1.0)


LOSSES = {  # the loss, its name and parameter in the oracle
    "logistic": (jb.losses.logistic(), "logistic", None),
    "smoothed_hinge": (jb.losses.smoothed_hinge(0.5), "smoothed_hinge", 0.5),
    "squared_hinge": (jb.losses.squared_hinge(), "squared_hinge", None),
    "squared": (jb.losses.squared(), "squared", None),
    "huber": (jb.losses.huber(0.7), "huber", 0.7),
    "from_margin": (jb.losses.from_margin(_phi, smoothness=1.0, params=(1.0,), domain=(0.0, 1.0)), "logistic", None),
}
PENALTIES = {  # the penalty, its lam and its l1
    "l2": (jb.penalties.l2(0.05), 0.05, 0.0),
    "vector": (jb.penalties.l2(LAM), LAM, 0.0),
    "elastic_net": (jb.penalties.elastic_net(0.03, 0.02), 0.03, 0.02),
    "l1": (jb.penalties.l1(0.03), 0.0, 0.03),
}


def targets(loss):
    return LABELS if loss.classification else REALS


class Oracle:
    """Newton steps on [X 1] with a proximal term on the support, in NumPy: the optimum of (w, b)."""

    def __init__(self, loss, param, lam, l1, data, y, c):
        n, d = data.shape
        self.pr = oracle.Problem(loss, np.column_stack([data, np.ones(n)]), y, c, param=param)
        self.lam, self.l1 = np.append(lam * np.ones(d), 0.0), np.append(l1 * np.ones(d), 0.0)
        z = np.zeros(d + 1)
        for _ in range(100):
            z, old = self._step(z), z
            if np.max(np.abs(z - old)) < 1e-14 * (1 + np.max(np.abs(z))):
                break
        self.w, self.b, self.primal = z[:-1], z[-1], self.objective(z)

    def objective(self, z):
        value = oracle.loss_value(self.pr.loss, self.pr.param, self.pr.coordinate(z))
        return self.pr.c @ value + np.sum(self.lam / 2 * z**2 + self.l1 * np.abs(z))

    def gradient(self, z):
        """Of the smooth part."""
        alpha = oracle.loss_dual(self.pr.loss, self.pr.param, self.pr.coordinate(z))
        return self.lam * z - self.pr.X.T @ (self.pr.c * self.pr.orientation * alpha)

    def _step(self, z):
        """A Newton step: the quadratic model by cyclic coordinate descent, then halving until the objective falls."""
        second = oracle.loss_second(self.pr.loss, self.pr.param, self.pr.coordinate(z))
        H = (self.pr.X.T * (self.pr.c * second)) @ self.pr.X + np.diag(self.lam) + 1e-9 * np.eye(len(z))
        g, new = self.gradient(z), z.copy()
        for _ in range(3000):
            before = new.copy()
            for j in range(len(z)):
                r = H[j, j] * new[j] - (g[j] + H[j] @ (new - z))
                new[j] = np.sign(r) * max(abs(r) - self.l1[j], 0.0) / H[j, j]
            if np.max(np.abs(new - before)) < 1e-16:
                break
        step, now = 1.0, self.objective(z)
        while self.objective(z + step * (new - z)) > now + 1e-15 and step > 1e-10:
            step /= 2
        return z + step * (new - z)

    def residual(self, w, b):
        """How far (w, b) is from stationary: the least subgradient, and the slope in b."""
        z = np.append(w, b)
        g = self.gradient(z)
        least = np.where(z == 0, np.maximum(np.abs(g) - self.l1, 0.0), np.abs(g + np.sign(z) * self.l1))
        return np.max(least)


def truth(loss, penalty, data=X, weight=None, scale="mean"):
    _, name, param = LOSSES[loss]
    weight = np.ones(N) if weight is None else weight
    c = weight / N if scale == "mean" else weight
    return Oracle(name, param, *PENALTIES[penalty][1:], data, targets(LOSSES[loss][0]), c)


def imbalance(model):
    """|sum c t| / sum c |t|."""
    y = np.asarray(model.data.target)
    t = np.asarray(model.data.weight) * np.asarray(model.problem.loss.orientation(y)) * np.asarray(model.alpha)
    return abs(t.sum()) / np.abs(t).sum()


CASES = [(loss, penalty, "dense", np.float64, "mean") for loss in LOSSES for penalty in ("l2", "l1")] + [
    ("logistic", "vector", "dense", np.float64, "sum"),
    ("huber", "elastic_net", "dense", np.float64, "sum"),
    ("smoothed_hinge", "elastic_net", "sparse", np.float64, "mean"),
    ("logistic", "l2", "sparse", np.float32, "mean"),
    ("squared", "l2", "dense", np.float32, "sum"),
    ("squared", "l1", "sparse", np.float64, "mean"),
]


@pytest.mark.parametrize(("loss", "penalty", "kind", "dtype", "scale"), CASES)
def test_optimum(loss, penalty, kind, dtype, scale):
    """Against the oracle's optimum and its optimality conditions; weights on every second case."""
    problem = jb.Problem(LOSSES[loss][0], PENALTIES[penalty][0], scale, intercept=True)
    weight = WEIGHT if CASES.index((loss, penalty, kind, dtype, scale)) % 2 else None
    data, y = X.astype(dtype), targets(problem.loss)
    model = jb.fit(problem, data if kind == "dense" else sp.csr_array(data), y, sample_weight=weight, tol=1e-12)
    best = truth(loss, penalty, data.astype(float), weight, scale)
    w, b = np.asarray(model.w, np.float64), float(model.intercept)
    loose = dtype == np.float32
    assert int(model.status) == jb.Status.CONVERGED
    assert model.w.dtype == dtype and model.intercept.dtype == np.float64
    np.testing.assert_allclose(np.append(w, b), np.append(best.w, best.b), atol=1e-4 if loose else 1e-6)
    np.testing.assert_allclose(float(model.primal), best.primal, rtol=1e-10 if loose else 1e-12)
    assert best.residual(w, b) <= (1e-5 if loose else 1e-7)
    assert abs(best.gradient(np.append(w, b))[-1]) <= 1e-14 * len(w) * (1 + abs(b))  # balanced at the stored w
    assert imbalance(model) <= 1e-12
    args = X.astype(dtype), y, model.w, model.alpha, weight
    gap = float(problem.gap(*args, intercept=b))
    assert 0 <= gap <= float(model.gap) and float(model.gap) <= (1e-9 if loose else 1e-12) * best.primal
    primal = float(problem.primal(*args[:3], weight, b))
    dual = float(problem.dual(*args[:2], model.alpha, weight))
    assert abs(primal - float(model.primal)) <= 1e-14 * primal
    assert dual <= best.primal * (1 + 1e-13) and primal - dual <= float(model.gap) + 1e-13 * primal
    np.testing.assert_allclose(np.asarray(model.scores(data)), data @ w + b, rtol=1e-12)


def test_what_is_remembered():
    """Scores hold b, their rounding allowance too."""
    problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(0.05), intercept=True)
    model = jb.fit(problem, X, REALS)
    w, b = np.asarray(model.w), float(model.intercept)
    assert abs(b) > 5 and model.row_terms == D + 1
    np.testing.assert_allclose(np.asarray(model.rows.score), X @ w + b, rtol=1e-14)
    assert np.all(np.asarray(model.rows.score_abs) >= np.abs(X) @ np.abs(w) + abs(b))
    for i in range(5):
        with mpmath.workdps(60):
            exact = mpmath.fsum([mpmath.mpf(x) * mpmath.mpf(v) for x, v in zip(X[i], w, strict=True)]) + mpmath.mpf(b)
            alpha, q = mpmath.mpf(float(model.alpha[i])), exact - mpmath.mpf(REALS[i])
            assert (q + alpha) ** 2 / 2 <= mpmath.mpf(float(model.rows.fenchel[i]))
    plain = jb.fit(jb.Problem(problem.loss, problem.penalty), X, REALS)
    assert float(plain.intercept) == 0.0 and plain.row_terms == D


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_gap_of_a_half_trained_model_bounds_its_suboptimality(steps):
    for loss, penalty in (("logistic", "l2"), ("logistic", "l1"), ("huber", "elastic_net")):
        problem = jb.Problem(LOSSES[loss][0], PENALTIES[penalty][0], intercept=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", jb.FitWarning)
            model = jb.fit(
                problem, X, targets(problem.loss), max_steps=steps, warm_start=np.array([3.0, -1.0, 0.0, 2.0])
            )
        best = truth(loss, penalty)
        assert float(model.primal) - best.primal <= float(model.gap) * (1 + 1e-12) + 1e-15
        assert imbalance(model) <= 1e-12


# ---------------------------------------------------------------- solvers


@pytest.mark.slow
def test_few_rows():
    """Columns far from 0, where only centred rows are well conditioned."""
    rng = np.random.default_rng(5)
    wide, y = rng.normal(size=(12, 100)) + 5.0, np.where(np.arange(12) % 3 == 0, 1.0, -1.0)
    problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1), intercept=True)
    assert isinstance(jb.solvers.default_solver(problem, 12, 100, sparse=False), jb.solvers.DualNewton)
    best = Oracle("logistic", None, 0.1, 0.0, wide, y, np.full(12, 1 / 12))
    for solver in (jb.solvers.DualNewton(), jb.solvers.NewtonCG()):
        model = jb.fit(problem, wide, y, tol=1e-13, solver=solver)
        assert int(model.status) == jb.Status.CONVERGED and int(model.n_steps) <= 10
        assert best.residual(model.w, model.intercept) <= 1e-8


def test_optax():
    problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.05), intercept=True)
    model, best = jb.fit(problem, X, LABELS, solver=jb.solvers.Optax(optax.lbfgs()), tol=1e-11), truth("logistic", "l2")
    assert int(model.status) == jb.Status.CONVERGED
    np.testing.assert_allclose(np.append(model.w, model.intercept), np.append(best.w, best.b), atol=1e-5)


def test_far_columns_and_targets():
    """The intercept takes any shift of the data, at no cost in steps."""
    problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.05), intercept=True)
    best, far = jb.fit(problem, X, LABELS, tol=1e-10), jb.fit(problem, X + 1e6, LABELS, tol=1e-10)
    np.testing.assert_allclose(np.asarray(far.w), np.asarray(best.w), atol=1e-5)
    assert int(far.n_steps) <= int(best.n_steps) + 1
    problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(0.05), intercept=True)
    best, far = jb.fit(problem, X, REALS, tol=1e-10), jb.fit(problem, X, REALS + 1e6, tol=1e-10)
    np.testing.assert_allclose(np.asarray(far.w), np.asarray(best.w), atol=1e-7)
    np.testing.assert_allclose(float(far.intercept) - 1e6, float(best.intercept), atol=1e-7)


def test_rare_class():
    """A stiff loss at its kinks: a line search with a fixed direction for b took 488 steps here, and gave up."""
    rng = np.random.default_rng(0)
    data, y = rng.normal(size=(N, D)) - 3.0, -np.ones(N)
    data[0], y[0] = data[0] + 6.0, 1.0
    weight = np.where(y > 0, 1e-3, 1.0)
    for lam in (1e-3, 1e-8):
        problem = jb.Problem(jb.losses.smoothed_hinge(1e-3), jb.penalties.l2(lam), intercept=True)
        model = jb.fit(problem, data, y, sample_weight=weight)
        assert int(model.status) == jb.Status.CONVERGED and int(model.n_steps) <= 10
        assert imbalance(model) <= 1e-12


def test_no_active_row():
    """Squared hinge without a row in its curved part, where the intercept has no curvature."""
    problem = jb.Problem(jb.losses.squared_hinge(), jb.penalties.l2(1e-6), intercept=True)
    model = jb.fit(problem, 100 * LABELS[:, None] * np.ones(D), LABELS, warm_start=np.full(D, 1.0))
    assert int(model.status) == jb.Status.CONVERGED and np.isfinite(float(model.intercept))
    assert abs(100 * np.sum(np.asarray(model.w)) + float(model.intercept) - 1.0) < 1e-3


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("loss", ["logistic", "smoothed_hinge", "squared_hinge"])
def test_one_class_has_no_intercept(loss, sign):
    problem = jb.Problem(LOSSES[loss][0], PENALTIES["l2"][0], intercept=True)
    with pytest.warns(jb.FitWarning, match="all labels are of one class.*add rows of the other class") as caught:
        model = jb.fit(problem, X, np.full(N, sign))
    assert len(caught) == 1 and caught[0].filename == __file__
    assert int(model.status) == jb.Status.NO_INTERCEPT
    assert sign * float(model.intercept) > 0 and np.all(np.isfinite(np.asarray(model.w)))
    assert 0 <= float(model.gap) <= 1e-20


def test_warm_start_and_refit():
    problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.05), intercept=True)
    model = jb.fit(problem, X, LABELS, sample_weight=WEIGHT, tol=1e-12)
    again = jb.fit(problem, X, LABELS, sample_weight=WEIGHT, tol=1e-10, warm_start=model)
    assert int(again.n_steps) == 0
    np.testing.assert_allclose(float(again.intercept), float(model.intercept), rtol=1e-13)
    for change in (jb.remove_rows([0, 3]), jb.set_targets([1], [-LABELS[1]]), jb.add_columns(X[:, :1] ** 2)):
        new, other = jb.refit(model, change, tol=1e-12), jb.fit(problem, *change.apply(X, LABELS, WEIGHT)[:2],
            sample_weight=change.apply(X, LABELS, WEIGHT)[2], tol=1e-12)  # fmt: skip
        np.testing.assert_allclose(np.asarray(new.w), np.asarray(other.w), atol=1e-6)
        np.testing.assert_allclose(float(new.intercept), float(other.intercept), atol=1e-6)


def test_refusals():
    smooth = jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.05), intercept=True)
    kinked = jb.Problem(jb.losses.hinge(), jb.penalties.l2(0.05), intercept=True)
    for call, match in (
        (lambda: jb.fit(kinked, X, LABELS), "needs a differentiable loss, and hinge .*use a smoothed loss"),
        (lambda: jb.fit(smooth, X, LABELS, solver=jb.solvers.DualCoordinate()), "DualCoordinate cannot.*use NewtonCG"),
    ):
        with pytest.raises(ValueError, match=match):
            call()
    with pytest.raises(TypeError, match="intercept must be True or False, got 1"):
        jb.fit(jb.Problem(smooth.loss, smooth.penalty, intercept=1), X, LABELS)


def test_dual_points_that_are_not_balanced_are_not_feasible():
    problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.05), intercept=True)
    alpha = np.full(N, 0.25)
    assert LABELS.sum() != 0 and float(problem.dual(X, LABELS, alpha)) == -np.inf
    assert float(problem.gap(X, LABELS, np.zeros(D), alpha)) == np.inf
    share = np.where(LABELS > 0, 0.25 / np.sum(LABELS > 0), 0.25 / np.sum(LABELS < 0))
    assert np.isfinite(float(problem.dual(X, LABELS, share)))
    plain = jb.Problem(problem.loss, problem.penalty)
    np.testing.assert_allclose(float(problem.dual(X, LABELS, share)), float(plain.dual(X, LABELS, share)))
    for b in (-2.0, 0.0, 1.5):
        primal = float(problem.primal(X, LABELS, TRUTH, intercept=b))
        gap = float(problem.gap(X, LABELS, TRUTH, share, intercept=b))
        np.testing.assert_allclose(gap, primal - float(problem.dual(X, LABELS, share)), rtol=1e-12)


# ---------------------------------------------------------------- derivatives, tracers


@pytest.mark.parametrize(
    ("solver", "loss", "penalty"),
    [
        (jb.solvers.NewtonCG(), jb.losses.SmoothedHinge, jb.penalties.L2),
        (jb.solvers.ProximalGradient(), jb.losses.Huber, lambda lam: jb.penalties.ElasticNet(lam, 0.05)),
        (jb.solvers.ProximalGradient(), lambda _: jb.losses.logistic(), jb.penalties.L1),
    ],
    ids=["newton", "proximal", "l1"],
)
def test_implicit_derivatives(solver, loss, penalty):
    """Of w, b, alpha and P together, in the parameters, the weights, the data and the targets."""
    with jax.enable_x64(True):
        y = jnp.asarray(REALS if loss is jb.losses.Huber else LABELS)
        parameters = jnp.asarray([0.9, 0.03]), jnp.asarray(WEIGHT / N), jnp.asarray(X), y
        u, r = jnp.cos(jnp.arange(D, dtype=jnp.float64)), jnp.sin(jnp.arange(N, dtype=jnp.float64)) / N

    @jax.jit
    def value(numbers, c, data, y):
        with jax.enable_x64(True):
            problem = jb.Problem(loss(numbers[0]), penalty(numbers[1]), intercept=True)
            start = jnp.zeros(D), jnp.zeros(N)
            out = solver.solve(problem, jb.matrix.as_matrix(data), y, c, *start, 1e-13, 300)
            return jnp.sum(u * out.w) + 0.7 * out.intercept + jnp.sum(r * out.alpha) + out.primal

    grads = jax.jit(jax.grad(value, argnums=(0, 1, 2, 3)))(*parameters)
    rng = np.random.default_rng(5)
    for k, grad in enumerate(grads):
        if k == 3 and loss is not jb.losses.Huber:
            continue  # labels do not move
        way = rng.normal(size=grad.shape) * (np.asarray(grad) != 0)
        moved = []
        for h in (1e-5, -1e-5):
            with jax.enable_x64(True):
                at = [p + h * jnp.asarray(way) if i == k else p for i, p in enumerate(parameters)]
            moved.append(float(value(*at)))
        slope = (moved[0] - moved[1]) / 2e-5
        assert np.any(np.asarray(grad) != 0)
        np.testing.assert_allclose(np.sum(np.asarray(grad) * way), slope, rtol=2e-4, atol=1e-7)


def test_on_tracers():
    """vmap and grad of the user's own, in the default type."""
    data, y = jnp.asarray(X, float), jnp.asarray(LABELS, float)
    lams = jnp.asarray([0.02, 0.05, 0.05], float)

    def train(lam, y):
        problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(lam), intercept=True)
        model = jb.fit(problem, data, y, tol=1e-10)
        return model.intercept.astype(data.dtype), (model.intercept, model.status)

    ys = jnp.stack([y, y, jnp.ones_like(y)])
    slope, (b, status) = jax.jit(jax.vmap(jax.grad(train, has_aux=True)))(lams, ys)
    assert np.asarray(status).tolist() == [jb.Status.CONVERGED, jb.Status.CONVERGED, jb.Status.NO_INTERCEPT]
    assert b.dtype == np.float64
    make = lambda lam: jb.Problem(jb.losses.logistic(), jb.penalties.l2(lam), intercept=True)  # noqa: E731
    host = [float(jb.fit(make(lam), X, LABELS, tol=1e-12).intercept) for lam in (0.05, 0.05 + 1e-5, 0.05 - 1e-5)]
    np.testing.assert_allclose(float(b[1]), host[0], atol=1e-5)
    np.testing.assert_allclose(float(slope[1]), (host[1] - host[2]) / 2e-5, rtol=1e-3)
    assert float(slope[2]) == 0


def test_traces():
    """Numbers never trace again, and small shapes share a compilation."""
    traces = []

    @pytree
    class Counting(jb.solvers.NewtonCG):
        def step(self, *args):
            traces.append(1)
            return super().step(*args)

    solver = Counting()
    for k, (n, d) in enumerate([(N, D), (N, D), (N - 1, D), (20, 3)]):
        problem = jb.Problem(jb.losses.smoothed_hinge(0.5 + k), jb.penalties.l2(0.1 + k), intercept=True)
        jb.fit(problem, X[:n, :d], LABELS[:n], tol=10.0 ** -(6 + k), solver=solver)
        if k == 0:
            first = len(traces)
    assert 0 < first == len(traces)


# ---------------------------------------------------------------- the root


def _slope_at(name, param, s, y, c):
    if name in oracle.MARGIN_LOSSES:
        return lambda b: -np.sum(c * y * oracle.loss_dual(name, param, y * (s + b)))
    return lambda b: -np.sum(c * oracle.loss_dual(name, param, s + b - y))


@pytest.mark.parametrize("loss", [*LOSSES, "hinge"])
def test_root(loss):
    """Against brentq, on NumPy and on tracers, for scores and weights of every size."""
    made, name, param = LOSSES.get(loss, (jb.losses.hinge(), "hinge", None))
    on_device = jax.jit(lambda *args: balanced_intercept(made, *args))
    rng = np.random.default_rng(8)
    for size, shift in ((0.0, 0.0), (1.0, 0.0), (1.0, 300.0), (1e3, -1e4), (1e-3, 1e6), (30.0, -3.0)):
        s = size * rng.normal(size=N) + shift
        y = np.where(rng.random(N) < 0.3, 1.0, -1.0) if made.classification else rng.normal(size=N)
        c = rng.uniform(0.1, 2.0, N) * 10.0 ** rng.uniform(-3, 3)
        slope, far = _slope_at(name, param, s, y, c), 2e3 + 2 * np.max(np.abs(s))
        with jax.enable_x64(True):
            found = [float(balanced_intercept(made, s, y, c)), float(on_device(*map(jnp.asarray, (s, y, c))))]
        root = brentq(slope, -far, far, xtol=1e-12, rtol=1e-14)
        for b in found:
            if loss == "hinge":  # a step function: its sign changes at b
                room = 1e-9 * (1 + abs(b))
                assert slope(b - room) <= 0 <= slope(b + room)
            else:
                rounding = 20 * np.sum(c) * np.finfo(float).eps * (1 + abs(b) + np.max(np.abs(s)))
                assert abs(slope(b)) <= rounding * max(1.0, float(made.smoothness))
                assert abs(slope(b)) <= abs(slope(root)) + rounding
        assert has_intercept(made, s, y, c)


def test_root_in_many_digits():
    s, y, c = X @ TRUTH, LABELS, WEIGHT / N
    b = float(balanced_intercept(jb.losses.logistic(), s, y, c))
    with mpmath.workdps(40):
        rows = [(mpmath.mpf(float(k)), int(t), mpmath.mpf(float(v))) for k, t, v in zip(s, y, c, strict=True)]
        exact = mpmath.findroot(lambda b: mpmath.fsum(v * t / (1 + mpmath.exp(t * (k + b))) for k, t, v in rows), b)
        assert abs(mpmath.mpf(b) - exact) <= 1e-14 * (1 + abs(exact))


def test_flat_roots_and_none():
    """Separated classes: any intercept between them; one class: none; a user's loss that overflows on the way."""
    loss, s, y, c = jb.losses.squared_hinge(), np.array([-9.0, -7.0, 5.0, 6.0]), np.array([-1.0, -1, 1, 1]), np.ones(4)
    assert -4.0 <= float(balanced_intercept(loss, s, y, c)) <= 6.0 and has_intercept(loss, s, y, c)
    for made in (jb.losses.logistic(), jb.losses.hinge(), LOSSES["from_margin"][0]):
        assert not has_intercept(made, s, np.ones(4), c)
        assert np.isfinite(balanced_intercept(made, s, np.ones(4), c))
    counts = jb.losses.from_score(lambda s, y: jnp.exp(s) - s * y, smoothness=1e3)
    assert abs(float(balanced_intercept(counts, np.zeros(4), np.array([1.0, 2, 3, 6]), c)) - np.log(3)) < 1e-14
    assert not has_intercept(counts, np.zeros(4), np.zeros(4), c)
    own = jb.losses.from_score(_bowl, smoothness=1.0, params=(0.5,))
    b = float(balanced_intercept(own, s, 1e3 * y, c))
    assert abs(np.sum((s + b - 1e3 * y) / np.sqrt(1 + ((s + b - 1e3 * y) / 0.5) ** 2))) < 1e-12
