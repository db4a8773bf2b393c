"""from_sklearn: the same objective and coefficients, bounds that hold for scikit-learn's own refits, and refusals."""

import sys
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import (
    ElasticNet,
    HuberRegressor,
    Lasso,
    LogisticRegression,
    LogisticRegressionCV,
    MultiTaskLasso,
    Ridge,
    RidgeClassifier,
    SGDClassifier,
    SGDRegressor,
)
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR
from sklearn.utils.class_weight import compute_class_weight

import jaxbounds as jb

pytestmark = pytest.mark.filterwarnings(
    "ignore:(class_w|Huber|Lasso|ElasticNet).* stay.*; retraining would", "ignore:no bound is known for l1 alone with",
)  # fmt: skip
VERSION = tuple(int(part) for part in sklearn.__version__.split(".")[:2])
N, D = 40, 5
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D)) * (RNG.random((N, D)) < 0.7)
TRUTH = np.array([1.0, -1.0, 0.5, 0.0, 0.0])
LABELS = np.where(X @ TRUTH + 0.5 + RNG.normal(size=N) > 0, "yes", "no")
SIGNS = np.where(LABELS == "yes", 1.0, -1.0)
TARGETS = X @ TRUTH + 0.3 * RNG.normal(size=N)
WEIGHT = RNG.uniform(0.5, 2.0, N)


def logistic(l1_ratio=0.0, **options):
    """A LogisticRegression in the parameter style of the installed version."""
    if VERSION >= (1, 8):
        options["l1_ratio"] = l1_ratio
    elif l1_ratio in (0.0, 1.0):
        options["penalty"] = "l1" if l1_ratio else "l2"
    else:
        options |= {"penalty": "elasticnet", "l1_ratio": l1_ratio}
    defaults = {"fit_intercept": False, "tol": 1e-10, "max_iter": 100_000, "random_state": 0}
    return LogisticRegression(**(defaults | options))


def svc(**options):
    return LinearSVC(**({"fit_intercept": False, "tol": 1e-9, "max_iter": 10_000_000, "random_state": 0} | options))


def regressor(kind, **options):
    return kind(fit_intercept=False, tol=1e-12, **options)


NEWTON, SAGA, LIBLINEAR = ({"solver": name} for name in ("newton-cholesky", "saga", "liblinear"))
# name: (estimator, l1_ratio and loss of its objective)
CASES = {
    "logistic": (logistic(C=0.5, **NEWTON), 0.0, "logistic"),
    "logistic_lbfgs": (logistic(C=2.0, tol=1e-6), 0.0, "logistic"),
    "logistic_balanced": (logistic(C=0.5, class_weight="balanced", **NEWTON), 0.0, "logistic"),
    "logistic_l1": (logistic(1.0, C=0.7, **SAGA), 1.0, "logistic"),
    "logistic_elastic": (logistic(0.3, C=0.7, class_weight={"no": 2.0}, **SAGA), 0.3, "logistic"),
    "liblinear": (logistic(C=2.0, fit_intercept=True, intercept_scaling=2.5, **LIBLINEAR), 0.0, "logistic"),
    "liblinear_l1": (logistic(1.0, C=0.7, fit_intercept=True, class_weight="balanced", **LIBLINEAR), 1.0, "logistic"),
    "svc": (svc(C=0.6), 0.0, "squared_hinge"),
    "svc_intercept": (svc(C=0.6, fit_intercept=True, class_weight="balanced"), 0.0, "squared_hinge"),
    "svc_l1": (svc(C=0.3, penalty="l1", dual=False), 1.0, "squared_hinge"),
    "svc_hinge": (svc(C=0.2, loss="hinge", fit_intercept=True, intercept_scaling=0.5), 0.0, "hinge"),
    "svc_hinge_weights": (svc(C=0.2, loss="hinge", class_weight={"yes": 0.5, "no": 3.0}), 0.0, "hinge"),
    "ridge": (regressor(Ridge, alpha=1.5), 0.0, "squared"),
    "lasso": (regressor(Lasso, alpha=0.1), 1.0, "squared"),
    "elastic": (regressor(ElasticNet, alpha=0.2, l1_ratio=0.4), 0.4, "squared"),
    "logistic_free": (logistic(C=0.5, fit_intercept=True, **NEWTON), 0.0, "logistic"),
    "logistic_free_l1": (logistic(1.0, C=0.7, fit_intercept=True, class_weight="balanced", **SAGA), 1.0, "logistic"),
    "ridge_free": (Ridge(alpha=1.5, tol=1e-12), 0.0, "squared"),
    "lasso_free": (Lasso(alpha=0.1, tol=1e-12), 1.0, "squared"),
    "elastic_free": (ElasticNet(alpha=0.2, l1_ratio=0.4, tol=1e-12), 0.4, "squared"),
    "elastic_l2": (regressor(ElasticNet, alpha=0.2, l1_ratio=0.0), 0.0, "squared"),
}
FITTED = {}


def fitted(name, weighted=False, sparse=False):
    """(estimator, model) of a case; fitted once."""
    key = name, weighted, sparse
    if key not in FITTED:
        estimator, _, loss = CASES[name]
        data, y, weight = sp.csr_matrix(X) if sparse else X, TARGETS if loss == "squared" else LABELS, WEIGHT
        weight = weight if weighted else None
        with warnings.catch_warnings():
            if name == "elastic_l2":  # coordinate descent without an l1 part is discouraged, and converges here
                warnings.simplefilter("ignore", (UserWarning, ConvergenceWarning))
            estimator = clone(estimator).fit(data, y, sample_weight=weight)
        FITTED[key] = estimator, jb.from_sklearn(estimator, data, y, weight)
    return FITTED[key]


def penalised(estimator):
    """Whether the intercept is a coefficient of the model."""
    liblinear = isinstance(estimator, LinearSVC) or getattr(estimator, "solver", None) == "liblinear"
    return estimator.fit_intercept and liblinear


def with_constant(estimator):
    """The X of the model."""
    return np.column_stack([X, np.full(N, estimator.intercept_scaling)]) if penalised(estimator) else X


def objective(estimator, l1_ratio, loss, w, weighted, b=0.0):
    """(scikit-learn's own objective, the factor between it and P)."""
    scores, weight = with_constant(estimator) @ w + b, WEIGHT if weighted else np.ones(N)
    penalty = (1 - l1_ratio) / 2 * w @ w + l1_ratio * np.abs(w).sum()
    if loss == "squared":
        if isinstance(estimator, Ridge):
            return weight @ (scores - TARGETS) ** 2 + estimator.alpha * w @ w, 2.0
        return np.average((scores - TARGETS) ** 2, weights=weight) / 2 + estimator.alpha * penalty, 1.0
    factor = estimator.class_weight or {}
    if factor == "balanced":
        counted = weight if VERSION >= (1, 7) else np.ones(N)
        factor = {label: counted.sum() / (2 * counted[LABELS == label].sum()) for label in ("no", "yes")}
    weight = weight * np.array([factor.get(label, 1.0) for label in LABELS])
    margin, C = SIGNS * scores, estimator.C
    if loss == "logistic":
        return C * weight @ np.log1p(np.exp(-margin)) + penalty, C
    hinge = np.maximum(1 - margin, 0)
    return (C * weight @ hinge**2 + penalty, 2 * C) if loss == "squared_hinge" else (C * weight @ hinge + penalty, C)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_objective_and_coefficients(name, weighted):
    _, l1_ratio, loss = CASES[name]
    estimator, model = fitted(name, weighted)
    w = np.asarray(model.w)
    np.testing.assert_array_equal(w[:D], estimator.coef_.ravel())
    assert model.problem.intercept == (estimator.fit_intercept and not penalised(estimator))
    if penalised(estimator):
        np.testing.assert_allclose(w[D] * estimator.intercept_scaling, estimator.intercept_, rtol=1e-14)
    b = float(model.intercept)
    if model.problem.intercept:
        np.testing.assert_allclose(b, np.ravel(estimator.intercept_)[0], atol=1e-6)
    for at in (w, RNG.normal(size=w.shape)):
        value, factor = objective(estimator, l1_ratio, loss, at, weighted, b)
        primal = model.problem.primal(with_constant(estimator), model.data.target, at, model.data.weight, b)
        assert float(primal) * factor == pytest.approx(value, rel=1e-12)
    assert 0 <= float(model.gap) < 1e-6 * float(model.primal)
    if name != "elastic_l2":  # scikit-learn's coordinate descent does not see that it has converged
        assert int(model.status) == jb.Status.CONVERGED
    expected = estimator.predict(X) if loss == "squared" else estimator.decision_function(X)
    exact = 1e-6 if model.problem.intercept else 1e-12
    np.testing.assert_allclose(np.asarray(model.scores(with_constant(estimator))), expected, rtol=1e-12, atol=exact)


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_fit(name):
    estimator, model = fitted(name, weighted=True)
    y, weight = np.asarray(model.data.target), np.asarray(model.data.weight)
    other = jb.fit(model.problem, with_constant(estimator), y, sample_weight=weight)
    gaps = float(model.gap) + float(other.gap)
    assert abs(float(model.primal) - float(other.primal)) <= gaps + 1e-13 * float(model.primal)
    lam = float(model.totals.lam_min)
    if model.problem.intercept:
        np.testing.assert_allclose(float(model.intercept), float(other.intercept), atol=1e-3)
    if lam > 0:
        assert np.linalg.norm(np.asarray(model.w) - np.asarray(other.w)) <= 2 * np.sqrt(gaps / lam)


def _insensitive(s, y, epsilon):
    return np.maximum(np.abs(s - y) - epsilon, 0)


def _huber(s, y, delta):
    r = np.abs(s - y)
    return np.where(r <= delta, r**2 / 2, delta * r - delta**2 / 2)


SGD = {"random_state": 0, "max_iter": 50, "tol": None, "alpha": 0.05}
SGD_LOSSES = {  # as scikit-learn's user guide defines them, of the margin or of score and target
    "hinge": lambda s, y, e: np.maximum(1 - y * s, 0),
    "squared_hinge": lambda s, y, e: np.maximum(1 - y * s, 0) ** 2,
    "log_loss": lambda s, y, e: np.log1p(np.exp(-y * s)),
    "modified_huber": lambda s, y, e: np.where(y * s >= -1, np.maximum(1 - y * s, 0) ** 2, -4 * y * s),
    "squared_error": lambda s, y, e: (s - y) ** 2 / 2,
    "huber": _huber,
    "epsilon_insensitive": _insensitive,
    "squared_epsilon_insensitive": lambda s, y, e: _insensitive(s, y, e) ** 2,
}


def sgd_objective(estimator, s, y, w, weight):
    ratio = {"l2": 0.0, "l1": 1.0, "elasticnet": estimator.l1_ratio}[estimator.penalty]
    penalty = (1 - ratio) / 2 * w @ w + ratio * np.abs(w).sum()
    return np.mean(weight * SGD_LOSSES[estimator.loss](s, y, estimator.epsilon)) + estimator.alpha * penalty


def svr_objective(estimator, s, y, w, weight):
    power = 2 if estimator.loss.startswith("squared") else 1
    return estimator.C * weight @ _insensitive(s, y, estimator.epsilon) ** power + w @ w / 2


def huber_objective(estimator, s, y, w, weight):
    sigma, epsilon = estimator.scale_, estimator.epsilon
    z = np.abs(s - y) / sigma
    loss = sigma + sigma * np.where(z < epsilon, z**2, 2 * epsilon * z - epsilon**2)
    return weight @ loss + estimator.alpha * w @ w - weight.sum() * sigma  # without what is constant in w


def ridge_objective(estimator, s, y, w, weight):
    return weight @ (s - y) ** 2 + estimator.alpha * w @ w


MORE = {
    "ridge_classifier": (RidgeClassifier(alpha=0.7, class_weight="balanced"), ridge_objective, 2.0),
    "svr": (LinearSVR(C=0.5, epsilon=0.1, tol=1e-10, max_iter=1_000_000, random_state=0), svr_objective, 0.5),
    "svr_squared": (LinearSVR(C=0.5, epsilon=0.1, loss="squared_epsilon_insensitive", intercept_scaling=2.0, tol=1e-10,
                              max_iter=1_000_000, random_state=0), svr_objective, 1.0),
    "huber": (HuberRegressor(alpha=0.3, epsilon=1.2, tol=1e-10, max_iter=10_000), huber_objective, None),
    "sgd_log": (SGDClassifier(loss="log_loss", penalty="elasticnet", class_weight="balanced", **SGD), sgd_objective,
                1.0),
    "sgd_modified": (SGDClassifier(loss="modified_huber", **SGD), sgd_objective, 4.0),
    "sgd_squared_hinge": (SGDClassifier(loss="squared_hinge", average=True, **SGD), sgd_objective, 2.0),
    "sgd_least_squares": (SGDClassifier(loss="squared_error", fit_intercept=False, **SGD), sgd_objective, 1.0),
    "sgd_huber": (SGDRegressor(loss="huber", epsilon=0.5, **SGD), sgd_objective, 1.0),
    "sgd_insensitive": (SGDRegressor(loss="squared_epsilon_insensitive", epsilon=0.2, **SGD), sgd_objective, 2.0),
}  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param(k, marks=pytest.mark.slow if k == "svr" else ()) for k in MORE])
def test_more_objectives(name):
    estimator, value_of, factor = MORE[name]
    classes = hasattr(estimator, "class_weight")
    y, weight = (LABELS if classes else TARGETS), WEIGHT.copy()
    estimator = clone(estimator).fit(X, y, sample_weight=weight)
    model = jb.from_sklearn(estimator, X, y, weight)
    target = SIGNS if classes else TARGETS
    if classes and estimator.class_weight == "balanced":  # these two count rows, not weights
        weight = weight * np.where(SIGNS > 0, N / (2 * np.sum(SIGNS > 0)), N / (2 * np.sum(SIGNS < 0)))
    factor = 2 / estimator.scale_ if factor is None else factor
    full = np.column_stack([X, np.full(N, estimator.intercept_scaling)]) if isinstance(estimator, LinearSVR) else X
    b = float(model.intercept)
    rng = np.random.default_rng(3)
    for w in (np.asarray(model.w), rng.normal(size=full.shape[1])):
        value = value_of(estimator, full @ w + b, target, w, weight)
        primal = model.problem.primal(full, model.data.target, w, model.data.weight, b)
        assert float(primal) * factor == pytest.approx(value, rel=1e-12)
    if not name.startswith("sgd"):  # stochastic steps end anywhere
        assert float(model.gap) < 1e-6 * float(model.primal)
        expected = estimator.decision_function(X) if classes else estimator.predict(X)
        np.testing.assert_allclose(np.asarray(model.scores(X)), expected, atol=1e-6)
    elif name == "sgd_least_squares":  # their bounds hold all the same
        exact = jb.fit(model.problem, full, model.data.target, sample_weight=model.data.weight, tol=1e-12)
        interval = jb.bound(model, jb.set_penalty(model.problem.penalty)).scores(X)
        scores = np.asarray(exact.scores(X))
        assert np.all(interval.lower <= scores + 1e-9) and np.all(scores - 1e-9 <= interval.upper)


def test_rows_need_not_carry_the_constant():
    estimator, model = fitted("svc_intercept")
    full = with_constant(estimator)
    np.testing.assert_array_equal(np.asarray(model.scores(X)), np.asarray(model.scores(full)))
    short, whole = (jb.bound(model, jb.set_rows([3], rows)) for rows in (X[[5]], full[[5]]))
    for one, other in ((short.scores(X), whole.scores(full)), (short.distance, whole.distance)):
        np.testing.assert_array_equal(one.upper, other.upper)
    new = jb.add_columns(np.ones((N, 1)))
    wide = jb.bound(model, new).scores(np.column_stack([X, np.ones(N)]))
    np.testing.assert_array_equal(wide.upper, jb.bound(model, new).scores(np.column_stack([full, np.ones(N)])).upper)
    with pytest.raises(ValueError, match="X must have 5 columns"):
        jb.bound(model, jb.remove_rows([0])).scores(X[:, :3])


def change_list(d, loss):
    flip = np.array([-1.0, 1.0]) * SIGNS[[4, 30]] if loss != "squared" else TARGETS[[4, 30]] + [1.0, -2.0]
    rows = np.array([[0.5, -1.0, 0.0, 1.0, 0.3]])
    return {
        "removed": jb.remove_rows([3, 17]),
        "elements": jb.set_elements([0, 5, 9], [1, 4, 0], [2.0, -1.0, 0.0]),
        "targets": jb.set_targets([4, 30], flip),
        "rows": jb.set_rows([11], np.column_stack([rows, np.full((1, d - D), 1.0)]), None),
    }


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", ["logistic", "logistic_l1", "logistic_elastic", "liblinear_l1", "svc", "svc_intercept",
                                  "svc_l1", "svc_hinge_weights", "ridge", "lasso", "elastic"])  # fmt: skip
def test_bounds_contain_scikit_learns_refit(name, sparse):
    estimator, model = fitted(name, sparse=sparse)
    loss, full = CASES[name][2], with_constant(estimator)
    for kind, change in change_list(full.shape[1], loss).items():
        new_X, new_y, weight = change.apply(full, np.asarray(model.data.target), np.ones(N))
        refit = clone(estimator)
        if loss != "squared" and estimator.class_weight is not None:  # the same weights, whatever the labels are
            refit.set_params(class_weight=dict(zip((-1.0, 1.0), model.inputs.class_weights.tolist(), strict=True)))
        refit.fit(sp.csr_matrix(new_X[:, :D]) if sparse else new_X[:, :D], new_y, sample_weight=weight)
        w = refit.coef_.ravel()
        if estimator.fit_intercept:
            w = np.append(w, refit.intercept_ / estimator.intercept_scaling)
        bounds = jb.bound(model, change)
        slack = 1e-5  # the refit's own inexactness
        for interval, value in ((bounds.w(), w), (bounds.scores(full), full @ w)):
            assert np.all(interval.lower <= value + slack) and np.all(value - slack <= interval.upper), kind
        distance = np.linalg.norm(w - np.asarray(model.w))
        assert bounds.distance.lower - slack <= distance <= bounds.distance.upper + slack, kind
        if name in ("logistic", "svc", "ridge") and kind == "elements":  # and they are no trivial ones
            assert bounds.distance.upper < 10 * distance + 0.5, kind


@pytest.mark.parametrize("name", ["logistic_lbfgs", "logistic_l1", "svc", "svc_hinge", "lasso"])
def test_loose_fits_give_wider_bounds_that_hold(name):
    tight, good = fitted(name)
    y = TARGETS if name == "lasso" else LABELS
    loose = clone(tight).set_params(max_iter=1)
    with pytest.warns(ConvergenceWarning):
        loose.fit(X, y)
    model = jb.from_sklearn(loose, X, y)
    assert float(model.gap) > 1e3 * float(good.gap) and int(model.status) == jb.Status.MAX_STEPS
    assert "wider" in jb.Status(int(model.status)).advice and int(model.n_steps) == 1
    assert float(model.primal) - float(good.primal) <= float(model.gap)
    nothing = jb.set_targets([0], np.asarray(model.data.target)[:1])  # the bounds are around the optimum all the same
    interval = jb.bound(model, nothing).w()
    w = np.asarray(good.w)
    assert np.all(interval.lower <= w + 1e-5) and np.all(w - 1e-5 <= interval.upper)


@pytest.mark.parametrize("labels", [(0, 1), (False, True), (3, 7), (-1.0, 1.0), ("b", "a")])
def test_labels_are_the_estimators_own(labels):
    y = np.where(SIGNS > 0, labels[1], labels[0])
    estimator = logistic(C=0.5, **NEWTON).fit(X, y)
    model = jb.from_sklearn(estimator, X, y.tolist())
    expected = np.where(y == estimator.classes_[1], 1.0, -1.0)
    np.testing.assert_array_equal(np.asarray(model.data.target), expected)
    assert float(model.gap) < 1e-8


@pytest.mark.parametrize("convert", [sp.csc_matrix, sp.coo_array, lambda a: a.tolist()], ids=["csc", "coo", "lists"])
@pytest.mark.parametrize("name", ["logistic", "liblinear"])
def test_any_kind_of_data(name, convert):
    estimator, dense = fitted(name)
    model = jb.from_sklearn(estimator, convert(X), LABELS)
    np.testing.assert_array_equal(np.asarray(model.w), np.asarray(dense.w))
    assert float(model.gap) < 1e-6


def test_float32_stays_float32():
    estimator = svc(C=0.6, fit_intercept=True).fit(X.astype(np.float32), LABELS)
    model = jb.from_sklearn(estimator, X.astype(np.float32), LABELS)
    assert model.w.dtype == np.float32 and model.data.matrix.dtype == np.float32 and model.gap.dtype == np.float64
    assert float(model.gap) < 1e-6 * float(model.primal)
    estimator = svc(C=0.6, fit_intercept=True, intercept_scaling=0.1).fit(X.astype(np.float32), LABELS)
    model = jb.from_sklearn(estimator, X.astype(np.float32), LABELS)
    assert model.w.dtype == np.float64  # float32 cannot hold 0.1
    assert float(model.gap) < 1e-6 * float(model.primal)


def test_sparsified_coefficients():
    estimator = clone(CASES["logistic_l1"][0]).fit(X, LABELS).sparsify()
    np.testing.assert_array_equal(np.asarray(jb.from_sklearn(estimator, X, LABELS).w), fitted("logistic_l1")[1].w)


@pytest.mark.parametrize("penalty", ["l1", "l2", "elasticnet"])
def test_penalty_parameter(penalty):
    """The style of scikit-learn 1.5 to 1.7, deprecated from 1.8 on."""
    options = {"l1_ratio": 0.3} if penalty == "elasticnet" else {}
    estimator = LogisticRegression(penalty=penalty, fit_intercept=False, tol=1e-8, max_iter=10_000, **SAGA, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(X, LABELS)
    model = jb.from_sklearn(estimator, X, LABELS)
    assert model.problem.penalty.name == {"l1": "l1", "l2": "l2", "elasticnet": "elastic_net"}[penalty]
    assert float(model.gap) < 1e-6


# ---------------------------------------------------------------- several classes

NOISE = 0.4 * np.random.default_rng(1).normal(size=(N, 3))
THREE = np.array(["ant", "bee", "cow"])[np.argmax(X[:, :3] + NOISE, axis=1)]
SEVERAL = {
    "svc": svc(C=0.5, fit_intercept=True, class_weight={"bee": 3.0, "cow": 0.5}),
    "svc_hinge": svc(C=0.2, loss="hinge", class_weight="balanced"),
    "svc_plain": svc(C=0.5, fit_intercept=True),
    "ridge": RidgeClassifier(alpha=2.0),
    "ridge_balanced": RidgeClassifier(alpha=2.0, class_weight="balanced"),
    "one_vs_rest": OneVsRestClassifier(logistic(C=0.5, fit_intercept=True, **NEWTON)),
    "one_vs_rest_balanced": OneVsRestClassifier(svc(C=0.5, fit_intercept=True, class_weight="balanced")),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_several_classes_one_against_the_rest(name):
    estimator = clone(SEVERAL[name]).fit(X, THREE)
    model, classes = jb.from_sklearn(estimator, X, THREE), np.array(["ant", "bee", "cow"])
    assert isinstance(model, jb.OneVsRest) and model.classes == 3
    assert all(one.data.matrix.values is model.models[0].data.matrix.values for one in model.models)
    assert max(float(one.gap / one.primal) for one in model.models) < 1e-6  # else its objective would be another
    np.testing.assert_allclose(np.asarray(model.scores(X)), estimator.decision_function(X), atol=1e-5)
    assert np.array_equal(classes[model.labels(X)], estimator.predict(X))
    change = jb.combine(jb.remove_rows([4]), jb.set_targets([7, 8], ["cow", "ant"]), jb.set_rows([1], X[[2]], ["bee"]))
    numbers = jb.combine(jb.remove_rows([4]), jb.set_targets([7, 8], [2, 0]), jb.set_rows([1], X[[2]], [1]))
    retrained = np.asarray(jb.refit(model, change, tol=1e-12).scores(X))
    if name != "one_vs_rest_balanced":
        if estimator_weights := getattr(estimator, "class_weight", None):  # "balanced" stays as it was counted
            counted = compute_class_weight(estimator_weights, classes=classes, y=THREE)
            estimator = clone(estimator).set_params(class_weight=dict(zip(classes, counted, strict=True)))
        moved, words, kept = X.copy(), THREE.copy(), np.arange(N) != 4
        moved[1], words[[7, 8, 1]] = X[2], ["cow", "ant", "bee"]
        truth = clone(estimator).fit(moved[kept], words[kept]).decision_function(X)
        np.testing.assert_allclose(retrained, truth, atol=1e-5)
    for method in (None, jb.Partial()):
        bounds, same = jb.bound(model, change, method), jb.bound(model, numbers, method)
        interval, labels = bounds.scores(X), np.asarray(bounds.labels(X))
        assert np.all(interval.lower <= retrained + 1e-7) and np.all(retrained - 1e-7 <= interval.upper)
        assert np.array_equal(labels[labels >= 0], retrained.argmax(axis=1)[labels >= 0])
        np.testing.assert_array_equal(interval.upper, same.scores(X).upper)
    with pytest.raises(ValueError, match=r"y_new\[0\] = 'dog' is not one of the classes \['ant', 'bee', 'cow'\]"):
        jb.bound(model, jb.set_targets([0], ["dog"]))


def test_sgd_of_several_classes_weighs_the_class_alone():
    estimator = SGDClassifier("log_loss", alpha=0.1, class_weight={"ant": 4.0}, max_iter=2000, tol=None, random_state=0)
    model = jb.from_sklearn(estimator.fit(X, THREE), X, THREE)
    np.testing.assert_array_equal(np.asarray(model.w), estimator.coef_)
    weights = np.array([one.data.weight for one in model.models])
    np.testing.assert_array_equal(weights, np.where((THREE == "ant") & (np.arange(3) == 0)[:, None], 4.0, 1.0))
    assert max(float(one.gap / one.primal) for one in model.models) < 1e-3


@pytest.mark.parametrize("sparse", [False, True])
def test_multinomial_logistic_regression_without_an_intercept(sparse):
    data, weight = sp.csr_matrix(X) if sparse else X, WEIGHT
    options = {"C": 0.5, "class_weight": {"bee": 2.0}, "solver": "newton-cg", "tol": 1e-10}
    estimator = logistic(**options).fit(data, THREE, weight)
    model = jb.from_sklearn(estimator, data, THREE, weight)
    assert isinstance(model, jb.MultinomialModel) and float(model.gap / model.primal) < 1e-8
    np.testing.assert_array_equal(np.asarray(model.w), estimator.coef_)
    bounds = jb.bound(model, jb.remove_rows([3, 5]), jb.Pass())
    kept = np.delete(np.arange(N), [3, 5])
    truth = logistic(**options).fit(X[kept], THREE[kept], weight[kept]).decision_function(X)
    interval = bounds.scores(data)
    assert np.all(interval.lower <= truth + 1e-6) and np.all(truth - 1e-6 <= interval.upper)
    assert np.max(interval.upper - interval.lower) < 0.5


def test_a_pipeline_of_several_classes():
    """In raw units and by name, with the scaler outside and inside."""
    raw = X * np.array([1.0, 100.0, 1e-3, 5.0, 2.0]) + np.array([3.0, -40.0, 0.0, 1.0, 0.0])
    names = ["age", "fare", "dose", "rate", "size"]
    frame = pytest.importorskip("pandas").DataFrame(raw, columns=names)
    scaled, one = StandardScaler(), logistic(C=0.5, fit_intercept=True, **NEWTON)
    change = jb.combine(jb.set_columns(["fare"], raw[:, [1]] + 7.0), jb.set_targets([3], "bee"))
    ends, unit = [], StandardScaler().fit(raw)
    softmax = make_pipeline(scaled, logistic(C=0.5, solver="newton-cg")).fit(frame, THREE)
    model = jb.from_sklearn(softmax, frame, THREE)
    plain = jb.from_sklearn(softmax[-1], softmax[:-1].transform(frame), THREE)
    other = jb.combine(jb.set_columns([1], unit.transform(raw + 7.0)[:, [1]]), jb.set_targets([3], [1]))
    bounds, retrained = jb.bound(model, change), jb.refit(model, change, tol=1e-12)
    np.testing.assert_allclose(bounds.scores(frame[names[::-1]]).upper,
                               jb.bound(plain, other).scores(unit.transform(raw)).upper, rtol=1e-9)  # fmt: skip
    truth = np.asarray(retrained.scores(raw))
    scores = np.asarray(model.scores(frame[names[::-1]]))
    np.testing.assert_allclose(scores, softmax.decision_function(frame), atol=1e-9)
    np.testing.assert_allclose(truth, np.asarray(jb.refit(plain, other, tol=1e-12).scores(unit.transform(raw))))
    assert retrained.inputs.names == tuple(names)
    for pipe in (make_pipeline(scaled, OneVsRestClassifier(one)), OneVsRestClassifier(make_pipeline(scaled, one))):
        pipe = pipe.fit(frame, THREE)
        model = jb.from_sklearn(pipe, frame, THREE)
        scores = np.asarray(model.scores(frame[names[::-1]]))
        np.testing.assert_allclose(scores, pipe.decision_function(frame), atol=1e-7)
        bounds = jb.bound(model, change, jb.Curvature())
        ends.append(bounds.scores(frame[names[::-1]]))
        retrained = jb.refit(model, change, tol=1e-12)
        truth = np.asarray(retrained.scores(raw))
        assert np.all(ends[-1].lower <= truth + 1e-9) and np.all(truth - 1e-9 <= ends[-1].upper)
        assert np.array_equal(bounds.decided(raw), bounds.labels(raw) >= 0)
    moved, words = unit.transform(np.where(np.arange(D) == 1, raw + 7.0, raw)), THREE.copy()
    words[3] = "bee"
    test = unit.transform(raw)
    np.testing.assert_allclose(OneVsRestClassifier(one).fit(moved, words).decision_function(test), truth, atol=1e-6)
    np.testing.assert_allclose(ends[0].upper, ends[1].upper, atol=1e-9)


def test_bounded_classifiers_of_several_classes():
    from jaxbounds.sklearn import BoundedClassifier

    classifier = BoundedClassifier().fit(X, THREE)
    model = jb.from_sklearn(classifier, X, THREE)
    change = jb.set_targets([3, 9], ["bee", "cow"])
    upper = classifier.what_if(change).scores(X).upper
    np.testing.assert_array_equal(jb.bound(model, change).scores(X).upper, upper)


def test_one_against_the_rest_inside_logistic_regression(monkeypatch):
    """liblinear, and newton-cholesky before scikit-learn 1.6."""
    estimator = logistic(solver="lbfgs", tol=1e-4).fit(X, THREE)
    monkeypatch.setattr(sklearn, "__version__", "1.5.2")
    for solver in ("liblinear", "newton-cholesky"):
        with pytest.raises(ValueError, match="one against the rest; fit a OneVsRestClassifier"):
            jb.from_sklearn(estimator.set_params(solver=solver), X, THREE)
    assert jb.from_sklearn(estimator.set_params(solver="newton-cg"), X, THREE).classes == 3


@pytest.mark.parametrize(("estimator", "message"), [
    (logistic(fit_intercept=True), "3 classes, .* softmax loss with an intercept that is not penalised.*jb.fit_one_"),
    (logistic(1.0, **SAGA, tol=1e-2), "softmax loss with an L1 penalty.*fit_intercept=False.*jb.fit_one_vs_rest"),
    (LinearSVC(multi_class="crammer_singer", tol=0.1, max_iter=1_000_000), "crammer_singer"),
    (OneVsRestClassifier(Ridge()), "has regressors.*fit it with a classifier"),
    (OneVsRestClassifier(SVC()), "a SVC cannot be translated"),
])  # fmt: skip
def test_other_estimators_of_several_classes(estimator, message):
    with pytest.raises((ValueError, TypeError), match=message):
        jb.from_sklearn(estimator.fit(X, THREE), X, THREE)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(("estimator", "message"), [
    (GridSearchCV(Ridge(), {"alpha": [1.0]}), "a GridSearchCV cannot be translated: pass its best_estimator_"),
    (SVC(kernel="linear"), "SVC.*intercept that is not penalised.*fit a LinearSVC"),
    (SVR(), "SVR.*not smooth.*fit a LinearSVR"),
    (LogisticRegressionCV(), "LogisticRegressionCV.*fit a LogisticRegression"),
    (MultiTaskLasso(), "MultiTaskLasso.*several targets"),
    (type("Lasso", (Lasso,), {"__module__": "mine"})(), "subclasses may change it"),
    (None, "a NoneType cannot be translated"),
])  # fmt: skip
def test_other_estimators_are_refused(estimator, message):
    with pytest.raises(TypeError, match=f"{message}.*supported are LogisticRegression, LinearSVC, Ridge, Lasso, Elas"):
        jb.from_sklearn(estimator, X, TARGETS)


@pytest.mark.parametrize(("estimator", "message"), [
    (logistic(C=np.inf), "no penalty"),
    (Ridge(alpha=0.0, fit_intercept=False), "alpha=0 means no penalty"),
    (Ridge(fit_intercept=False, positive=True), "positive=True"),
    (ElasticNet(alpha=0.1, fit_intercept=False, positive=True), "positive=True"),
    (LinearSVC(multi_class="crammer_singer"), "crammer_singer"),
    (SGDClassifier(loss="perceptron"), "has loss='perceptron', which is 0 at w = 0"),
    (SGDClassifier(), "loss='hinge', which is not smooth, and an intercept"),
    (SGDRegressor(loss="epsilon_insensitive"), "which is not smooth, and an intercept"),
    (SGDClassifier(loss="log_loss", penalty=None), "penalty=None or alpha=0 means no penalty"),
    (HuberRegressor(alpha=0.0), "alpha=0 means no penalty"),
])  # fmt: skip
def test_other_options_are_refused(estimator, message):
    y = TARGETS if isinstance(estimator, Ridge | ElasticNet | HuberRegressor | SGDRegressor) else LABELS
    with pytest.raises(ValueError, match=message):
        jb.from_sklearn(estimator.fit(X, y), X, y)


def test_no_penalty_and_multinomial_in_the_old_style_are_refused():
    estimator = clone(CASES["logistic"][0]).fit(X, LABELS)
    estimator.penalty = None
    with pytest.raises(ValueError, match="penalty=None or C=inf means no penalty"):
        jb.from_sklearn(estimator, X, LABELS)
    estimator.multi_class = "multinomial"
    with pytest.raises(ValueError, match="multinomial"):
        jb.from_sklearn(estimator, X, LABELS)


def test_unfitted_and_several_targets_are_refused():
    for estimator in (LinearSVC(), LinearSVC):
        with pytest.raises(ValueError, match="this LinearSVC is not fitted"):
            jb.from_sklearn(estimator, X, LABELS)
    for estimator in (Ridge(fit_intercept=False), Lasso(alpha=0.1, fit_intercept=False)):
        with pytest.raises(ValueError, match="has 2 targets"):
            jb.from_sklearn(estimator.fit(X, np.column_stack([TARGETS, TARGETS])), X, TARGETS)


def test_data_that_do_not_fit_are_refused():
    estimator, _ = fitted("logistic")
    with pytest.raises(ValueError, match="X has 3 columns, but this LogisticRegression was fitted on 5"):
        jb.from_sklearn(estimator, X[:, :3], LABELS)
    with pytest.raises(ValueError, match=r"y must have shape \(40,\), got \(39,\)"):
        jb.from_sklearn(estimator, X, LABELS[1:])
    with pytest.raises(ValueError, match=r"y must have shape \(39,\), got \(40,\)"):
        jb.from_sklearn(fitted("ridge")[0], X[1:], TARGETS)
    with pytest.raises(ValueError, match=r"y\[7\] = maybe is not one of the estimator's classes \['no', 'yes'\]"):
        jb.from_sklearn(estimator, X, np.where(np.arange(N) == 7, "maybe", LABELS))
    with pytest.raises(ValueError, match=r"y\[0\] = -?1.0 is not one of the estimator's classes"):
        jb.from_sklearn(estimator, X, SIGNS)
    with pytest.raises(ValueError, match=r"sample_weight\[3\] = 0.0 is not positive"):
        jb.from_sklearn(estimator, X, LABELS, np.where(np.arange(N) == 3, 0.0, 1.0))
    with pytest.raises(ValueError, match="sample_weight times class_weight.* is not positive"):
        jb.from_sklearn(svc().fit(X, LABELS).set_params(class_weight={"no": 0.0}), X, LABELS)


def test_other_data_than_those_of_the_fit_are_noticed():
    half = N // 2
    estimators = logistic(tol=1e-4, C=10.0), svc(tol=1e-4, C=10.0), RidgeClassifier(), make_pipeline(
        StandardScaler(), logistic(tol=1e-4, C=10.0))  # fmt: skip
    for estimator in estimators:
        estimator.fit(X[:half], LABELS[:half])
        jb.from_sklearn(estimator, X[:half], LABELS[:half])  # says nothing
        with pytest.warns(jb.FitWarning, match="more than its tolerance explains; .* Pass the X, y and sample_weight"):
            jb.from_sklearn(estimator, X[half:], LABELS[half:])
    classes = np.arange(N) % 3
    several = OneVsRestClassifier(logistic(C=10.0)).fit(X, classes)
    with pytest.warns(jb.FitWarning) as said:  # once, not for each class
        jb.from_sklearn(several, X, classes[::-1])
    assert len(said) == 1 and said[0].filename == __file__
    steps = SGDClassifier(loss="log_loss", fit_intercept=False, random_state=0).fit(X[:half], LABELS[:half])
    jb.from_sklearn(steps, X[half:], LABELS[half:])  # their own gap is as large


def test_without_scikit_learn(monkeypatch):
    estimator, _ = fitted("logistic_balanced")
    monkeypatch.setitem(sys.modules, "sklearn.utils.class_weight", None)
    with pytest.raises(ImportError, match=r"jaxbounds\[data\]"):
        jb.from_sklearn(estimator, X, LABELS)
