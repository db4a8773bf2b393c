"""fit and refit: what they accept, keep, promise and refuse; the optima themselves are in test_solvers."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
import scipy.sparse as sp
from jax.experimental import sparse as jsp

import jaxbounds as jb

pytestmark = pytest.mark.slow  # compiles many solvers

N, D = 30, 7
RNG = np.random.default_rng(3)
X = np.where(RNG.random((N, D)) < 0.6, RNG.normal(size=(N, D)), 0.0)
Y = np.where(X @ RNG.normal(size=D) + 0.5 * RNG.normal(size=N) > 0, 1.0, -1.0)
WEIGHT = RNG.uniform(0.5, 2.0, N)
LOGISTIC = jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.05))
LASSO = jb.Problem(jb.losses.squared(), jb.penalties.l1(0.02))
HINGE = jb.Problem(jb.losses.hinge(), jb.penalties.l2(0.05))


def _same(model, other, atol=1e-6):
    np.testing.assert_allclose(np.asarray(model.w), np.asarray(other.w), atol=atol)
    np.testing.assert_allclose(np.asarray(model.alpha), np.asarray(other.alpha), atol=10 * atol)
    assert abs(float(model.primal) - float(other.primal)) <= 1e-9 * float(other.primal)


def _relative_gap(model):
    return float(model.gap) / float(model.primal)


@pytest.mark.parametrize("scale", ["mean", "sum"])
def test_weights_scale_and_tolerance(scale):
    c = WEIGHT / N if scale == "mean" else WEIGHT
    best = oracle.solve(oracle.Problem("logistic", X, Y, c, lam=0.05))
    problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.05), scale=scale)
    steps = []
    for tol in (1e-2, 1e-5, 1e-12):
        model = jb.fit(problem, X, Y, sample_weight=WEIGHT, tol=tol)
        assert int(model.status) == jb.Status.CONVERGED and 0 <= _relative_gap(model) <= 1.01 * tol
        assert float(problem.gap(X, Y, model.w, model.alpha, WEIGHT)) <= float(model.gap)
        steps.append(int(model.n_steps))
    assert steps == sorted(steps) and steps[0] < steps[2]
    np.testing.assert_allclose(np.asarray(model.w), best.w, atol=1e-6)
    np.testing.assert_allclose(np.asarray(model.alpha), best.alpha, atol=1e-6)
    np.testing.assert_allclose(float(model.primal), best.primal, rtol=1e-12)
    np.testing.assert_array_equal(np.asarray(model.data.weight), WEIGHT)


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        (X, np.float64),
        (X.astype(np.float32), np.float32),
        (X.astype(np.float16), np.float32),
        (np.round(4 * X).astype(np.int64), np.float64),
        (np.asfortranarray(X), np.float64),
        (X.tolist(), np.float64),
    ],
    ids=["float64", "float32", "float16", "int", "fortran", "lists"],
)
def test_dtypes(data, dtype):
    """w has the type of the data, all else is float64, with x64 on or off."""
    model = jb.fit(LOGISTIC, data, Y.astype(int))
    assert model.w.dtype == dtype and model.alpha.dtype == np.float64
    memory = jax.tree.leaves((model.gap, model.primal, model.rows, model.columns, model.totals, model.problem))
    assert all(isinstance(leaf, jax.Array) and leaf.dtype == np.float64 for leaf in memory)
    assert model.status.dtype == model.n_steps.dtype == np.int32
    best = oracle.solve(oracle.Problem("logistic", np.asarray(data, np.float64), Y, np.full(N, 1 / N), lam=0.05))
    np.testing.assert_allclose(np.asarray(model.w), best.w, atol=2e-4)
    np.testing.assert_allclose(float(model.primal), best.primal, rtol=1e-7)
    assert _relative_gap(model) <= 1e-8


FORMS = {
    "csr_matrix": sp.csr_matrix,
    "csr_array": sp.csr_array,
    "coo": sp.coo_array,
    "csc": sp.csc_array,
    "bcoo": lambda X: jsp.BCOO.fromdense(jnp.asarray(X)),
    "bcsr": lambda X: jsp.BCSR.fromdense(jnp.asarray(X)),
    "jax": jnp.asarray,
}


@pytest.mark.parametrize("form", FORMS)
def test_kinds_of_data(form):
    with jax.enable_x64(True):
        data = FORMS[form](X)
    model = jb.fit(LOGISTIC, data, Y)
    assert model.w.dtype == np.float64 and isinstance(model.w, jax.Array)
    _same(model, jb.fit(LOGISTIC, X, Y))


def test_a_fit_that_stops_early_warns_once():
    with pytest.warns(jb.FitWarning, match="stopped after 1 steps.*raise max_steps") as caught:
        model = jb.fit(LOGISTIC, X, Y, tol=1e-12, max_steps=1)
    assert len(caught) == 1 and caught[0].filename == __file__
    assert int(model.status) == jb.Status.MAX_STEPS and int(model.n_steps) == 1
    assert 1e-12 * float(model.primal) < float(model.gap) < np.inf
    best = jb.fit(LOGISTIC, X, Y, tol=1e-12)
    assert float(model.primal) - float(model.gap) <= float(best.primal)


@pytest.mark.parametrize("problem", [LOGISTIC, LASSO, HINGE], ids=["newton", "proximal", "dual"])
def test_warm_start(problem):
    model = jb.fit(problem, X, Y, tol=1e-10)
    assert int(jb.fit(problem, X, Y, tol=1e-9, warm_start=model).n_steps) <= 1
    if problem is not HINGE:  # its dual variables do not follow from w
        assert int(jb.fit(problem, X, Y, tol=1e-9, warm_start=np.asarray(model.w)).n_steps) <= 1


def test_callback():
    seen = []
    jb.fit(LOGISTIC, X, Y, tol=1e-12, callback=seen.append)
    assert all(set(info) == {"step", "gap", "primal", "tol"} for info in seen)
    assert [info["step"] for info in seen] == sorted({info["step"] for info in seen}) and seen[0]["step"] == 1
    assert seen[-1]["gap"] <= 1e-12 * seen[-1]["primal"] and seen[-1]["tol"] == 1e-12
    with pytest.warns(jb.FitWarning):
        model = jb.fit(LOGISTIC, X, Y, tol=1e-12, callback=lambda info: info["step"] >= 2)
    assert int(model.n_steps) < seen[-1]["step"] + 1

    with pytest.raises(ValueError, match="callback is called on the host"):
        jax.jit(lambda y: jb.fit(LOGISTIC, X, y, callback=print).w)(jnp.asarray(Y, jnp.float32))


def test_on_tracers():
    """fit inside jit, vmap and grad of the user's own, in float32 outside."""
    data, y = jnp.asarray(X, jnp.float32), jnp.asarray(Y, jnp.float32)
    lams = jnp.asarray([0.02, 0.05, 0.2], jnp.float32)

    def train(lam, data, y):
        return jb.fit(jb.Problem(jb.losses.logistic(), jb.penalties.l2(lam)), data, y, tol=1e-10)

    batch = jax.jit(jax.vmap(train, in_axes=(0, None, None)))(lams, data, y)
    assert batch.w.shape == (3, D) and batch.w.dtype == np.float32 and batch.alpha.dtype == np.float64
    assert np.all(np.asarray(batch.status) == jb.Status.CONVERGED)
    host = train(0.05, X, Y)
    np.testing.assert_allclose(np.asarray(batch.alpha)[1], np.asarray(host.alpha), atol=1e-5)
    np.testing.assert_allclose(np.asarray(batch.w)[1], np.asarray(host.w), atol=1e-5)

    def size(lam):
        return jnp.sum(train(lam, data, y).w ** 2)

    slope = jax.jit(jax.grad(size))(lams[1])
    moved = [float(np.sum(np.asarray(train(0.05 + h, X, Y).w) ** 2)) for h in (1e-5, -1e-5)]
    np.testing.assert_allclose(float(slope), (moved[0] - moved[1]) / 2e-5, rtol=1e-3)


CHANGES = {
    "set_elements": lambda: jb.set_elements([0, 4], [1, 2], [2.0, -1.0]),
    "set_rows": lambda: jb.set_rows([2, 5], np.ones((2, D)), [1.0, -1.0]),
    "set_columns": lambda: jb.set_columns([3], np.linspace(-1, 1, N)[:, None]),
    "set_targets": lambda: jb.set_targets([1, 7], -Y[[1, 7]]),
    "set_weights": lambda: jb.set_weights([0, 9], [3.0, 0.1]),
    "add_rows": lambda: jb.add_rows(np.ones((3, D)), [1.0, 1.0, -1.0], [1.0, 2.0, 0.5]),
    "remove_rows": lambda: jb.remove_rows([0, 3, 11]),
    "keep_n": lambda: jb.remove_rows([0, 3, 11], keep_n=True),
    "add_columns": lambda: jb.add_columns(np.linspace(-1, 1, N)[:, None]),
    "remove_columns": lambda: jb.remove_columns([2]),
    "set_penalty": lambda: jb.set_penalty(jb.penalties.elastic_net(0.1, 0.01)),
    "combined": lambda: jb.combine(jb.remove_rows([5]), jb.set_rows([0], np.ones((1, D))), jb.remove_columns([0])),
}


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("name", CHANGES)
def test_refit(name, kind):
    """refit is fit on the changed data."""
    change, options = CHANGES[name](), {"tol": 1e-11}
    data = X if kind == "dense" else sp.csr_array(X)
    lam = 0.05 if kind == "sparse" else np.geomspace(0.02, 0.2, D)
    if name == "add_columns":
        lam = 0.05
    problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(lam))
    model = jb.fit(problem, data, Y, sample_weight=WEIGHT, **options)
    new = jb.refit(model, change, **options)
    X_new, y_new, weight = change.apply(data, Y, WEIGHT)
    assert sp.issparse(X_new) == (kind == "sparse")
    if name == "keep_n":
        weight = weight * (len(y_new) / N)
    penalty = problem.penalty
    if name == "set_penalty":
        penalty = jb.penalties.elastic_net(0.1, 0.01)
    elif X_new.shape[1] < D and np.ndim(lam):
        penalty = jb.penalties.l2(np.delete(lam, 2 if name == "remove_columns" else 0))
    _same(new, jb.fit(jb.Problem(problem.loss, penalty), X_new, y_new, sample_weight=weight, **options))
    assert new.alpha.shape == y_new.shape and new.w.shape == X_new.shape[1:]


def test_refit_starts_from_the_old_model():
    model = jb.fit(HINGE, X, Y, tol=1e-10)
    still = jb.refit(model, jb.set_weights([0], [1.0]), tol=1e-9)
    assert int(still.n_steps) == 0
    with pytest.raises(ValueError, match="stored without it"):
        jb.refit(model.without_data(), jb.remove_rows([0]))
    with pytest.raises(ValueError, match="not a row of the data"):
        jb.refit(model, jb.remove_rows([N]))


def test_compilations(compilations):
    """Numbers never recompile; small shapes share what is compiled."""
    make = lambda gamma, lam: jb.Problem(jb.losses.smoothed_hinge(gamma), jb.penalties.l2(lam))  # noqa: E731
    jb.refit(jb.fit(make(0.5, 0.1), X[:9, :2], Y[:9]), jb.remove_rows([3]))  # compiles what no shape decides
    jb.fit(make(0.5, 0.1), X, Y)
    compilations.clear()
    for k in range(10):
        jb.fit(make(0.5 + 0.1 * k, 0.1 + 0.01 * k), X, Y, tol=10.0 ** -(k % 3 + 6), max_steps=50 + k)
    for n, d in ((N - 1, D), (N, D - 1), (20, 5)):
        jb.fit(make(0.4, 0.2), X[:n, :d], Y[:n], sample_weight=WEIGHT[:n])
    jb.refit(jb.fit(make(0.4, 0.2), X, Y), jb.remove_rows([3]))
    assert compilations == []
    jb.fit(make(0.5, 0.1), X, Y, callback=lambda info: None)
    first = len(compilations)
    jb.fit(make(0.6, 0.2), X, Y, callback=lambda info: None)
    assert first > 0 and len(compilations) == first


@pytest.mark.parametrize("data", [X, sp.csr_array(X)], ids=["dense", "sparse"])
def test_fits_of_numbers_carry_no_derivatives(data):
    """Products that know their transposes and the implicit function theorem cost half of the time to compile."""
    problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1))

    def solve(X, differentiable):
        task = jb.solvers.Task(problem.loss, problem.penalty, jb.matrix.as_matrix(data), Y, np.ones(N))
        task = task if differentiable else task.constant()
        return X + jb.solvers.NewtonCG().solve(task, task.matrix, Y, task.c, np.zeros(D), np.zeros(N), 1e-8, 9).w

    with jax.enable_x64(True):
        texts = [str(jax.make_jaxpr(solve, static_argnums=1)(0.0, kind)) for kind in (True, False)]
    assert ["_root" in text or "linear_solve" in text for text in texts] == [True, False]


@pytest.fixture
def compilations(caplog):
    """The names of the functions that are compiled while the test runs."""
    with jax.log_compiles(), caplog.at_level("WARNING", logger="jax"):
        names = _Compilations(caplog)
        yield names


class _Compilations:
    def __init__(self, caplog):
        self.caplog = caplog

    def names(self):
        texts = [record.getMessage() for record in self.caplog.records]
        return [text.split()[1] for text in texts if text.startswith("Compiling ")]

    def clear(self):
        self.caplog.clear()

    def __eq__(self, other):
        return self.names() == other

    def __len__(self):
        return len(self.names())

    def __repr__(self):
        return repr(self.names())


def test_refusals():
    def refuse(match, error=ValueError, problem=LOGISTIC, X=X, y=Y, **options):
        with pytest.raises(error, match=match):
            jb.fit(problem, X, y, **options)

    refuse("must be a jb.Problem", TypeError, problem=jb.losses.hinge())
    refuse("neither property holds", problem=jb.Problem(jb.losses.hinge(), jb.penalties.l1(0.1)))
    refuse("NewtonCG needs a differentiable loss", problem=HINGE, solver=jb.solvers.NewtonCG())
    refuse(r"like jb.solvers.NewtonCG\(\)", TypeError, solver=jb.solvers.NewtonCG)
    refuse("tol must be a positive number", tol=0.0)
    refuse("convert with 2", y=(Y > 0))
    refuse(r"y must have shape \(30,\)", y=Y[:-1])
    refuse(r"y\[4\] = 0.5 is not a label", y=np.where(np.arange(N) == 4, 0.5, Y))
    refuse(r"sample_weight\[2\] = 0.0 is not positive", sample_weight=np.where(np.arange(N) == 2, 0.0, 1.0))
    refuse(r"warm_start must have shape \(7,\)", warm_start=np.zeros(3))
    refuse("penalty has a parameter of length 3", problem=jb.Problem(LOGISTIC.loss, jb.penalties.l2(np.ones(3))))
    refuse(r"X\[1, 2\] is inf", X=np.where(np.arange(N * D).reshape(N, D) == D + 2, np.inf, X))


def test_no_warning_and_no_global_setting_from_a_plain_fit():
    before = jax.config.jax_enable_x64
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jb.fit(LOGISTIC, X.astype(np.float32), Y)
    assert jax.config.jax_enable_x64 == before


@pytest.mark.slow
def test_default_solver_on_awkward_shapes():
    """Few rows, many columns; and far from the origin."""
    rng = np.random.default_rng(0)
    wide, y = rng.normal(size=(38, 3051)), np.sign(rng.normal(size=38))
    for problem in (LOGISTIC, HINGE):
        model = jb.fit(problem, wide, y)
        assert int(model.status) == jb.Status.CONVERGED and int(model.n_steps) < 60
