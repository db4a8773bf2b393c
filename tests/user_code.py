"""What a user writes, as pyright must accept it; `python tests/user_code.py` runs it."""

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import jaxbounds as jb
from jaxbounds.sklearn import BoundedClassifier, BoundedRegressor


def own_phi(m, temperature):
    return temperature * jnp.logaddexp(0.0, -m / temperature)


def library() -> float:
    """Train, change, bound, decide, retrain."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3))
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    problem = jb.Problem(jb.losses.smoothed_hinge(gamma=0.5), jb.penalties.l2(1e-2), scale="mean")
    model = jb.fit(problem, X, y, tol=1e-8)
    change = jb.combine(jb.set_rows([3, 8], X[[1, 2]]), jb.remove_rows([5]), jb.set_penalty(jb.penalties.l2(2e-2)))
    bounds = jb.bound(model, change, jb.Curvature())
    interval = bounds.scores(X)
    width: np.ndarray = np.asarray(interval.upper - interval.lower)
    labels = bounds.labels(X)
    assert labels.shape == (30,) and bool(bounds.decided(X).any())
    if float(bounds.distance.upper) > 0.1:
        model = jb.refit(model, change)
    decision = jb.decide(model, jb.set_targets([0], [-1]), jb.LabelsKnown(X))
    print(decision.method, decision.answer)
    each = jb.bound_each(model, jb.each_row_removed(model), X[:2])
    print(each.scores().lower.shape, len(each), each[0].status)
    left = jb.leave_one_out(model, callback=jb.progress(disable=True))
    print(left.errors.upper, left.used(), jb.Status(int(model.status)).advice)
    own = jb.Problem(jb.losses.from_margin(own_phi, smoothness=0.5, params=(0.5,)), jb.penalties.l2(0.1))
    print(jb.testing.check_loss(own.loss), float(jb.fit(own, X, y).gap))
    return float(width.max())


def differentiated(lam: float) -> jax.Array:
    """fit and bound inside jax's transformations."""
    X, y = jnp.eye(3), jnp.array([1.0, -1.0, 1.0])

    def radius(value):
        model = jb.fit(jb.Problem(jb.losses.squared(), jb.penalties.l2(value)), X, y)
        return bound_radius(model)

    def bound_radius(model: jb.Model):
        with jax.enable_x64(True):
            return jnp.asarray(jb.bound(model, jb.remove_rows([0])).radius, jnp.float32)

    return jax.jit(radius)(jnp.asarray(lam))


def scikit_learn() -> np.ndarray:
    """Six lines: which predictions survive the removal of five rows?"""
    X, y = load_breast_cancer(return_X_y=True)
    pipe = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    model = jb.from_sklearn(pipe, X, y)
    bounds = jb.bound(model, jb.remove_rows([3, 8, 15, 16, 23]))
    print(bounds, bounds.distance.upper)
    return np.asarray(bounds.labels(X))


def estimators() -> None:
    """What-if questions of estimators."""
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    classifier = BoundedClassifier(alpha=10.0).fit(X, y)
    found = classifier.what_if(jb.set_targets([3], [1]), jb.Curvature())
    print(found.labels(X)[:3], found.distance.upper, classifier.predict(X)[:3])
    regressor = BoundedRegressor(loss="huber").fit(X, y.astype(float))
    interval = regressor.predict_interval(X, change=jb.remove_rows([1]))
    print(np.max(interval.upper - interval.lower), regressor.coef_.shape)


if __name__ == "__main__":
    print(library(), differentiated(0.5), scikit_learn().mean())
    estimators()
