"""Models from fitted scikit-learn estimators: the same objective written as a `Problem`, the same coefficients."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from jaxbounds import losses, penalties
from jaxbounds.array import put
from jaxbounds.host import host_matrix
from jaxbounds.matrix import Matrix, as_matrix
from jaxbounds.model import Data, Model, best_intercept, remember
from jaxbounds.penalties import Penalty
from jaxbounds.problem import Problem, as_sample_weight, as_targets, as_vector, first_bad
from jaxbounds.pytree import in_float64
from jaxbounds.solvers.fit import fit
from jaxbounds.status import Status


@in_float64
def from_sklearn(estimator: Any, X, y, sample_weight=None) -> Model:
    """The model of a fitted scikit-learn estimator, ready for `bound`: nothing is retrained, its w is kept.

    scikit-learn's objective is `Problem.primal` times a constant; s = X w + b, m = +1 or -1 times s:

        LogisticRegression       C P(w),  P = sum_i c_i log(1 + exp(-m_i)) + R(w)/C,  R = (1-r)/2 ||w||^2 + r ||w||_1
        LinearSVC, squared hinge 2C P(w), P = sum_i c_i max(0, 1-m_i)^2/2 + R(w)/(2C), R = ||w||^2/2 or ||w||_1
        LinearSVC, hinge         C P(w),  P = sum_i c_i max(0, 1-m_i) + ||w||^2/(2C)
        Ridge                    2 P(w),  P = sum_i c_i (s_i - y_i)^2/2 + alpha/2 ||w||^2
        Lasso, ElasticNet        P(w),    P = sum_i c_i/n (s_i - y_i)^2/2 + alpha R(w), with r = l1_ratio

    The first four have scale "sum", and c_i is the sample weight times the class weight of row i. Lasso and ElasticNet
    have scale "mean", and c is the sample weight rescaled to sum to n. These weights belong to the model: a change
    leaves them as they are, where scikit-learn would compute "balanced" class weights and Lasso's rescaling anew.

    The estimator's inexactness is the model's gap, so its bounds are valid after a loose fit, but wider; so is a
    parameter or a sample weight that differs from those it was fitted with. alpha is -f'(q) at the estimator's scores;
    for the hinge, whose kink leaves it open, it comes from a fit of the same problem. `status` is MAX_STEPS if the
    estimator used up its max_iter.

    An intercept is not penalised, and the problem has intercept=True; the model's is the best one for the estimator's
    coefficients, which may differ from intercept_ by the estimator's tolerance.

    LIBLINEAR (LinearSVC, LogisticRegression(solver="liblinear")) does penalise it, like a coefficient. With
    fit_intercept=True the model therefore has a last column of constants: w[-1] = intercept_ / intercept_scaling, and
    every X given to the model, its changes and its bounds carries intercept_scaling as its last column.

    Args:
        estimator: a fitted LogisticRegression, LinearSVC, Ridge, Lasso or ElasticNet (not a subclass of one).
        X: (n, d) the data it was fitted on, of any kind that `fit` takes; float32 stays float32.
        y: (n,) the targets it was fitted on, in its own labels: classes_[0] becomes -1, classes_[1] becomes +1.
        sample_weight: (n,) the positive weights it was fitted with, None if it had none.

    Returns:
        Model with the estimator's coefficients, in the dtype of the data.

    Raises:
        TypeError: another kind of estimator; the message says what to pass instead.
        ValueError: the estimator is not fitted, an option has no exact translation (no penalty, positive=True,
            several classes or targets), or the data do not fit it.
        ImportError: scikit-learn is not installed.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> from sklearn.linear_model import LogisticRegression
        >>> X, y = np.array([[1.0, 0.2], [-1.0, 0.1], [0.7, -0.4], [-0.5, 0.3]]), np.array(["yes", "no", "yes", "no"])
        >>> estimator = LogisticRegression(C=2.0, fit_intercept=False, tol=1e-8).fit(X, y)
        >>> model = jb.from_sklearn(estimator, X, y)
        >>> np.array_equal(model.w, estimator.coef_[0]), float(model.problem.penalty.lam)
        (True, 0.5)
        >>> jb.bound(model, jb.remove_rows([3])).labels(X).tolist()
        [1, -1, 1, -1]

    Source: Fan et al. 2008 (LIBLINEAR); the objectives in scikit-learn's user guide, versions 1.5 to 1.9.
    """
    problem = _translation(estimator)(estimator)
    kind = type(estimator).__name__
    matrix = as_matrix(X)
    n, d = matrix.shape
    coef = estimator.coef_.toarray() if sp.issparse(estimator.coef_) else np.asarray(estimator.coef_)
    if coef.size != d:
        raise ValueError(f"X has {d} columns, but this {kind} was fitted on {coef.size}; pass the X it was fitted on")
    w = as_vector(coef.ravel(), d, "estimator.coef_")
    if estimator.fit_intercept and not problem.intercept:
        scaling = float(estimator.intercept_scaling)
        matrix, w = _with_constant(matrix, scaling), np.append(w, np.ravel(estimator.intercept_)[0] / scaling)
    weight = as_sample_weight(sample_weight, n)
    if problem.loss.classification:
        y, weight = _labels(estimator, y, weight, sample_weight)
    else:
        y = as_targets(problem.loss, y, n)
    if problem.scale == "mean":
        weight = weight * (n / np.sum(weight))
    data, w = put(Data(matrix, y, weight)), w.astype(matrix.dtype)
    b = best_intercept(problem, data, w)
    if problem.loss.smoothness is None:
        alpha = fit(problem, matrix, y, sample_weight=weight).alpha
    else:
        alpha = problem.loss.dual(problem.loss.coordinate(host_matrix(matrix).matvec(w.astype(np.float64)) + b, y), y)
    n_steps = 0 if estimator.n_iter_ is None else int(np.max(estimator.n_iter_))
    ended = estimator.max_iter is None or n_steps < estimator.max_iter
    status = Status.CONVERGED if ended else Status.MAX_STEPS
    return remember(problem, data, w, alpha, status=int(status), n_steps=n_steps, b=b)


def _penalty(strength: float, l1_ratio: float, cause: str) -> Penalty:
    """strength ((1 - l1_ratio)/2 ||w||^2 + l1_ratio ||w||_1)."""
    if not strength > 0:
        raise ValueError(f"{cause} means no penalty, and then no bound holds: the optimum could move without limit; "
                         "fit with a penalty")  # fmt: skip
    if l1_ratio == 0:
        return penalties.l2(strength)
    if l1_ratio == 1:
        return penalties.l1(strength)
    return penalties.elastic_net(lam=strength * (1 - l1_ratio), l1=strength * l1_ratio)


def _logistic_regression(estimator: Any) -> Problem:
    if getattr(estimator, "multi_class", None) == "multinomial":  # until scikit-learn 1.7
        raise ValueError('multi_class="multinomial" has another objective, with two weight vectors; leave it out')
    style = getattr(estimator, "penalty", "deprecated")  # since scikit-learn 1.8 by l1_ratio and C alone
    l1_ratio = {"l1": 1.0, "l2": 0.0}.get(style, estimator.l1_ratio or 0.0)
    strength = 0.0 if style is None else 1.0 / float(estimator.C)
    penalty = _penalty(strength, l1_ratio, "penalty=None or C=inf")
    free = bool(estimator.fit_intercept) and estimator.solver != "liblinear"
    return Problem(losses.logistic(), penalty, scale="sum", intercept=free)


def _linear_svc(estimator: Any) -> Problem:
    if estimator.multi_class == "crammer_singer":
        raise ValueError('multi_class="crammer_singer" has another objective; use multi_class="ovr"')
    squared = estimator.loss == "squared_hinge"
    strength = 1.0 / (2.0 * float(estimator.C)) if squared else 1.0 / float(estimator.C)
    penalty = _penalty(strength, float(estimator.penalty == "l1"), "C=inf")
    return Problem(losses.squared_hinge() if squared else losses.hinge(), penalty, scale="sum")


def _ridge(estimator: Any) -> Problem:
    return _least_squares(estimator, 0.0, "sum")


def _lasso(estimator: Any) -> Problem:
    return _least_squares(estimator, 1.0, "mean")


def _elastic_net(estimator: Any) -> Problem:
    return _least_squares(estimator, float(estimator.l1_ratio), "mean")


def _least_squares(estimator: Any, l1_ratio: float, scale: Any) -> Problem:
    if estimator.positive:
        raise ValueError("positive=True constrains the coefficients, which a Problem cannot; use positive=False")
    if np.ndim(estimator.coef_) > 1 and estimator.coef_.shape[0] != 1:
        raise ValueError(f"this {type(estimator).__name__} has {estimator.coef_.shape[0]} targets; fit one estimator "
                         "for each and pass them one by one")  # fmt: skip
    penalty = _penalty(float(np.squeeze(estimator.alpha)), l1_ratio, "alpha=0")
    return Problem(losses.squared(), penalty, scale=scale, intercept=bool(estimator.fit_intercept))


_TRANSLATIONS: dict[str, Callable[[Any], Problem]] = {
    "LogisticRegression": _logistic_regression,
    "LinearSVC": _linear_svc,
    "Ridge": _ridge,
    "Lasso": _lasso,
    "ElasticNet": _elastic_net,
}
_REASONS = {
    "GridSearchCV": "pass its best_estimator_",
    "RandomizedSearchCV": "pass its best_estimator_",
    "HalvingGridSearchCV": "pass its best_estimator_",
    "HalvingRandomSearchCV": "pass its best_estimator_",
    "Pipeline": "transform X with its first steps, pipeline[:-1].transform(X), and pass its last step, pipeline[-1]",
    "LogisticRegressionCV": "fit a LogisticRegression with the C (and l1_ratio) it chose",
    "RidgeCV": "fit a Ridge with the alpha it chose",
    "LassoCV": "fit a Lasso with the alpha it chose",
    "ElasticNetCV": "fit an ElasticNet with the alpha and l1_ratio it chose",
    "SGDClassifier": "stochastic gradient steps end far from the optimum; fit a LogisticRegression or a LinearSVC",
    "SGDRegressor": "stochastic gradient steps end far from the optimum; fit a Ridge or an ElasticNet",
    "SVC": "it has a kernel and an unpenalised intercept; fit a LinearSVC",
    "HuberRegressor": "it also estimates a scale; train jb.losses.huber with jb.fit",
    "LinearRegression": "it has no penalty, and then no bound holds; fit a Ridge",
    "RidgeClassifier": "its labels are regression targets; fit a Ridge on y = -1 and +1",
}


def _translation(estimator: Any) -> Callable[[Any], Problem]:
    """The function that writes this estimator's objective as a Problem, once it is known to be fitted and binary."""
    kind = estimator if isinstance(estimator, type) else type(estimator)
    name = kind.__name__
    translate = _TRANSLATIONS.get(name) if kind.__module__.startswith("sklearn.") else None
    if translate is None:
        reason = _REASONS.get(name, "its objective is not known here (subclasses may change it)")
        raise TypeError(f"estimator: a {name} cannot be translated: {reason}; supported are {', '.join(_TRANSLATIONS)}")
    if kind is estimator or not hasattr(estimator, "coef_"):
        raise ValueError(f"estimator: this {name} is not fitted; call fit(X, y) first")
    classes = len(getattr(estimator, "classes_", (-1, 1)))
    if classes != 2:
        raise ValueError(f"estimator: this {name} has {classes} classes, and only two are supported yet; "
                         "fit one estimator for each class against the rest")  # fmt: skip
    return translate


def _with_constant(matrix: Matrix, value: float) -> Matrix:
    """The matrix with a last column of constants, in float64 where its dtype cannot hold the value exactly."""
    dtype = matrix.dtype if float(matrix.dtype.type(value)) == value else np.float64
    values: Any = matrix.to_scipy()
    column = np.full((matrix.shape[0], 1), value, dtype)
    return as_matrix(sp.hstack([values, column], format="csr") if sp.issparse(values) else np.hstack([values, column]))


def _labels(estimator: Any, y, weight, sample_weight):
    """Labels -1/+1, and the sample weights times the class weights."""
    classes, y = np.asarray(estimator.classes_), np.asarray(y)
    positive = y == classes[1]
    what = f"is not one of the estimator's classes {classes.tolist()}"
    first_bad(~(positive | (y == classes[0])), y, "y", what, "pass the y it was fitted on")
    sign = as_vector(np.where(positive, 1.0, -1.0), weight.shape[0], "y")
    if estimator.class_weight is None:
        return sign, weight
    try:
        from sklearn.utils.class_weight import compute_class_weight
    except ImportError as error:
        raise ImportError(
            "from_sklearn needs scikit-learn, which is not installed: pip install 'jaxbounds[data]'"
        ) from error
    # since scikit-learn 1.7, "balanced" counts the rows by their sample weights
    counted = "sample_weight" in inspect.signature(compute_class_weight).parameters
    options: dict[str, Any] = {"sample_weight": sample_weight} if counted else {}
    factor = compute_class_weight(estimator.class_weight, classes=classes, y=y, **options)
    weight = weight * np.where(positive, factor[1], factor[0])
    return sign, as_sample_weight(weight, weight.shape[0], "sample_weight times class_weight")
