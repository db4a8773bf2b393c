"""Proximal steps under the squared loss: few products, and a gap that is known without the rows."""

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
import scipy.sparse as sp

import jaxbounds as jb
from jaxbounds import matrix as matrix_module
from jaxbounds.matrix import as_matrix
from jaxbounds.solvers import ProximalGradient, Task
from jaxbounds.solvers.common import start_scores
from jaxbounds.solvers.linear import column_scale
from jaxbounds.solvers.quadratic import quadratic_steps

N, D = 700, 40
RNG = np.random.default_rng(11)
X = np.where(RNG.random((N, D)) < 0.6, RNG.normal(size=(N, D)), 0.0) * np.geomspace(1.0, 0.05, D)
X[:, 3], X[:, 8] = 0.0, X[:, 9]  # an empty column, columns alike
Y = X @ np.where(np.arange(D) % 4 == 0, 3.0, 0.0) + 2.0 + 0.3 * RNG.normal(size=N)
C = RNG.uniform(0.5, 2.0, N) / N
LARGEST = float(np.max(np.abs(X.T @ (C * Y))))
PENALTIES = {
    "l1": lambda at: jb.penalties.l1(at),
    "l1 each": lambda at: jb.penalties.l1(at * np.linspace(0.5, 2.0, D)),
    "elastic net": lambda at: jb.penalties.elastic_net(0.1 * at, at),
    "lq": lambda at: jb.penalties.lq(at, 1.5),
}


def _task(penalty, data, intercept):
    return Task(jb.losses.squared(), penalty, as_matrix(data), jnp.asarray(Y), jnp.asarray(C), intercept)


def _steps(task, w, count, goal=0.0):
    """(w, s, v, lipschitz, gap) after so many steps from w, and the true gap there."""
    scale = column_scale(task.matrix, task.c, task.intercept)
    s = start_scores(task, w)
    v = task.v(task.loss.dual(task.q(s), task.y))
    metric = jnp.where(scale > 0, scale, 1.0)
    found = quadratic_steps(task, w, s, v, metric, jnp.ones(()), count, count, goal)
    q = task.q(task.scores(found[0]))
    alpha = task.loss.dual(q, task.y)
    alpha, pull = task.feasible(alpha, task.v(alpha))
    return found, task.gap(found[0], q, alpha, pull, None), task.primal(found[0], q)


CASES = [(name, form, form != "dense") for name in PENALTIES for form in ("sparse", "tall")]
CASES += [("l1", "dense", False), ("elastic net", "tall", False)]


@pytest.mark.parametrize(("name", "form", "intercept"), CASES)
def test_the_gap_is_known_and_falls(name, form, intercept, monkeypatch):
    """After 3 and 60 steps, from 0 and from elsewhere: w, scores and gap belong together."""
    monkeypatch.setattr(matrix_module, "_TALL", 1 if form == "tall" else 1 << 40)
    with jax.enable_x64(True):
        task = _task(PENALTIES[name](0.05 * LARGEST), sp.csr_array(X) if form == "sparse" else X, intercept)
        run = jax.jit(_steps)
        for start in (jnp.zeros(D), jnp.asarray(RNG.normal(size=D))):
            gaps = []
            for count in (3, 60):
                (w, s, v, _, gap), true, primal = run(task, start, count)
                np.testing.assert_allclose(s, task.scores(w), rtol=0, atol=1e-11)
                np.testing.assert_allclose(v, task.v(task.loss.dual(task.q(s), task.y)), rtol=0, atol=1e-12)
                np.testing.assert_allclose(gap, true / primal, rtol=1e-7, atol=1e-12)
                gaps.append(float(true))
            assert gaps[1] < 0.2 * gaps[0]


def test_steps_end_at_the_goal():
    """And go on beyond the least number only as long as they are fast."""
    with jax.enable_x64(True):
        task = _task(PENALTIES["elastic net"](0.3 * LARGEST), X, False)
        (*_, gap), *_ = _steps(task, jnp.zeros(D), 500, goal=jnp.asarray(1e-3))
        assert 1e-12 < float(gap) <= 1e-3


@pytest.mark.parametrize("intercept", [False, True])
def test_few_coefficients_take_as_many_steps(intercept):
    """On a support that stays the steps are conjugate gradients: k of them end at the optimum of k columns."""
    rng = np.random.default_rng(4)
    w, data = np.array([2.0, -1.0, 1.0]), rng.normal(size=(50, 3)) @ (np.eye(3) + 0.5)
    with jax.enable_x64(True):
        task = Task(jb.losses.squared(), jb.penalties.elastic_net(1e-3, 1e-3), as_matrix(sp.csr_array(data)),
                    jnp.asarray(data @ w), jnp.full(50, 0.02), intercept)  # fmt: skip
        gaps = [float(_steps(task, jnp.asarray(0.9 * w), count)[0][4]) for count in (2, 3)]
    assert gaps[1] < 1e-7 < 1e-4 < gaps[0]


@pytest.mark.slow
@pytest.mark.parametrize(("form", "intercept"), [("sparse", False), ("tall", True)])
def test_the_optimum(form, intercept, monkeypatch):
    """The model is the oracle's, on data that are not factored."""
    monkeypatch.setattr(matrix_module, "_TALL", 1)
    rng = np.random.default_rng(0)
    data = np.where(rng.random((2000, 600)) < 0.1, rng.normal(size=(2000, 600)), 0.0)
    y = data[:, :20] @ rng.normal(size=20) + 1.0 + 0.1 * rng.normal(size=2000)
    kappa = 0.05 * float(np.max(np.abs(data.T @ (y - y.mean())))) / 2000
    for penalty, terms in (
        (jb.penalties.l1(kappa), {"penalty": "l1", "kappa": kappa}),
        (jb.penalties.elastic_net(kappa, kappa), {"penalty": "elastic_net", "lam": kappa, "l1": kappa}),
    ):
        problem = jb.Problem(jb.losses.squared(), penalty, intercept=intercept)
        model = jb.fit(problem, sp.csr_array(data) if form == "sparse" else data, y, tol=1e-10,
                       solver=ProximalGradient(working_sets=False))  # fmt: skip
        assert int(model.status) == 0
        shift = (data.mean(axis=0), y.mean()) if intercept else (0.0, 0.0)
        exact = oracle.Problem("squared", data - shift[0], y - shift[1], np.full(2000, 1 / 2000), **terms)
        best = oracle.primal(exact, oracle.solve(exact).w)
        assert abs(oracle.primal(exact, np.asarray(model.w)) - best) <= 1e-9 * best
