"""What fitted scikit-learn estimators minimise, written as a `Problem`: one function for each kind of estimator."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from jaxbounds import losses, penalties
from jaxbounds.messages import brief
from jaxbounds.penalties import Penalty
from jaxbounds.problem import Problem


@dataclass(frozen=True)
class Objective:
    """The problem of an estimator, and how its targets and weights become the problem's.

    Attributes:
        problem: scikit-learn's objective is P times a constant.
        targets: "signs" if two classes become -1 and +1, "numbers" for regression.
        rescaled: whether the sample weights are rescaled to the sum n.
        counted: whether "balanced" class weights count the rows by their sample weights (since scikit-learn 1.7).
        several: more than two classes are told apart one against the rest, and the weight of a class counts "all", in
            every model, or "own", in that of the class alone; None if that is not what the estimator does.
    """

    problem: Problem
    targets: Literal["signs", "numbers"] = "numbers"
    rescaled: bool = False
    counted: bool = False
    several: Literal["all", "own"] | None = None


def _epsilon_insensitive(s, y, epsilon):
    return jnp.maximum(jnp.abs(s - y) - epsilon, 0.0)


def _epsilon_insensitive_slope(s, y, epsilon):
    return jnp.where(jnp.abs(s - y) > epsilon, jnp.sign(s - y), 0.0)


def _epsilon_insensitive_conjugate(v, y, epsilon):
    return jnp.where(jnp.abs(v) <= 1.0, v * y + epsilon * jnp.abs(v), jnp.inf)


def _squared_insensitive(s, y, epsilon):
    return jnp.maximum(jnp.abs(s - y) - epsilon, 0.0) ** 2 / 2


def _squared_insensitive_slope(s, y, epsilon):
    return jnp.sign(s - y) * jnp.maximum(jnp.abs(s - y) - epsilon, 0.0)


def _squared_insensitive_conjugate(v, y, epsilon):
    return v * y + epsilon * jnp.abs(v) + v * v / 2


def epsilon_insensitive(epsilon: float) -> Any:
    """max(0, |s - y| - epsilon), which is not smooth."""
    return losses.from_score(
        _epsilon_insensitive, None, (epsilon,), derivative=_epsilon_insensitive_slope,
        conjugate=_epsilon_insensitive_conjugate, domain=(-1.0, 1.0),
    )  # fmt: skip


def squared_epsilon_insensitive(epsilon: float) -> Any:
    """max(0, |s - y| - epsilon)^2 / 2."""
    built_in = getattr(losses, "squared_epsilon_insensitive", None)
    if built_in is not None and epsilon > 0:
        return built_in(epsilon)
    if epsilon == 0:
        return losses.squared()
    return losses.from_score(
        _squared_insensitive, 1.0, (epsilon,), derivative=_squared_insensitive_slope,
        conjugate=_squared_insensitive_conjugate,
    )  # fmt: skip


def penalty_of(strength: float, l1_ratio: float, cause: str) -> Penalty:
    """strength ((1 - l1_ratio)/2 ||w||^2 + l1_ratio ||w||_1)."""
    if not strength > 0:
        raise ValueError(f"{cause} means no penalty, and then no bound holds: the optimum could move without limit; "
                         "fit with a penalty")  # fmt: skip
    if l1_ratio == 0:
        return penalties.l2(strength)
    if l1_ratio == 1:
        return penalties.l1(strength)
    return penalties.elastic_net(lam=strength * (1 - l1_ratio), l1=strength * l1_ratio)


def _logistic_regression(estimator: Any) -> Objective:
    if getattr(estimator, "multi_class", None) == "multinomial":  # until scikit-learn 1.7
        raise ValueError('multi_class="multinomial" has another objective, with two weight vectors; leave it out')
    style = getattr(estimator, "penalty", "deprecated")  # since scikit-learn 1.8 by l1_ratio and C alone
    l1_ratio = {"l1": 1.0, "l2": 0.0}.get(style, estimator.l1_ratio or 0.0)
    strength = 0.0 if style is None else 1.0 / float(estimator.C)
    penalty = penalty_of(strength, l1_ratio, "penalty=None or C=inf")
    free = bool(estimator.fit_intercept) and estimator.solver != "liblinear"
    return Objective(Problem(losses.logistic(), penalty, scale="sum", intercept=free), "signs", counted=True)


def _splits_classes(estimator: Any) -> bool:
    """Whether a LogisticRegression fits more than two classes one against the rest."""
    from sklearn import __version__ as version

    old = tuple(int(part) for part in version.split(".")[:2]) < (1, 6)
    apart = ("liblinear", "newton-cholesky") if old else ("liblinear",)
    return estimator.solver in apart or getattr(estimator, "multi_class", None) == "ovr"


def softmax_problem(estimator: Any) -> Problem:
    """What a LogisticRegression of more than two classes minimises, if there are bounds for it."""
    name, classes = f"this LogisticRegression has {len(estimator.classes_)} classes", len(estimator.classes_)
    if _splits_classes(estimator):
        raise ValueError(f"{name}, one against the rest; fit a OneVsRestClassifier of a LogisticRegression instead, "
                         "or use jb.fit_one_vs_rest")  # fmt: skip
    binary = _logistic_regression(estimator).problem
    if not getattr(binary.penalty, "quadratic", False) or binary.intercept:
        what = "an intercept that is not penalised" if binary.intercept else "an L1 penalty"
        raise ValueError(f"{name}, and minimises the softmax loss with {what}, for which no bound is known; fit it "
                         "with an L2 penalty and fit_intercept=False (and a column of ones in X), or fit a "
                         "OneVsRestClassifier of a LogisticRegression, or use jb.fit_one_vs_rest")  # fmt: skip
    return Problem(losses.softmax(classes), binary.penalty, scale="sum")  # type: ignore[arg-type]


def _linear_svc(estimator: Any) -> Objective:
    if estimator.multi_class == "crammer_singer":
        raise ValueError('multi_class="crammer_singer" has another objective; use multi_class="ovr"')
    squared = estimator.loss == "squared_hinge"
    strength = 1.0 / (2.0 * float(estimator.C)) if squared else 1.0 / float(estimator.C)
    penalty = penalty_of(strength, float(estimator.penalty == "l1"), "C=inf")
    loss = losses.squared_hinge() if squared else losses.hinge()
    return Objective(Problem(loss, penalty, scale="sum"), "signs", counted=True, several="own")


def _linear_svr(estimator: Any) -> Objective:
    epsilon, squared = float(estimator.epsilon), estimator.loss == "squared_epsilon_insensitive"
    loss = squared_epsilon_insensitive(epsilon) if squared else epsilon_insensitive(epsilon)
    strength = 1.0 / (2.0 * float(estimator.C)) if squared else 1.0 / float(estimator.C)
    return Objective(Problem(loss, penalty_of(strength, 0.0, "C=inf"), scale="sum"))


def _ridge(estimator: Any) -> Objective:
    return _least_squares(estimator, 0.0, "sum")


def _ridge_classifier(estimator: Any) -> Objective:
    return Objective(_squared_problem(estimator, 0.0, "sum"), "signs", several="all")


def _lasso(estimator: Any) -> Objective:
    return _least_squares(estimator, 1.0, "mean")


def _elastic_net(estimator: Any) -> Objective:
    return _least_squares(estimator, float(estimator.l1_ratio), "mean")


def _least_squares(estimator: Any, l1_ratio: float, scale: Any) -> Objective:
    if np.ndim(estimator.coef_) > 1 and estimator.coef_.shape[0] != 1:
        raise ValueError(f"this {type(estimator).__name__} has {estimator.coef_.shape[0]} targets; fit one estimator "
                         "for each and pass them one by one")  # fmt: skip
    return Objective(_squared_problem(estimator, l1_ratio, scale), rescaled=scale == "mean")


def _squared_problem(estimator: Any, l1_ratio: float, scale: Any) -> Problem:
    if estimator.positive:
        raise ValueError("positive=True constrains the coefficients, which a Problem cannot; use positive=False")
    penalty = penalty_of(float(np.squeeze(estimator.alpha)), l1_ratio, "alpha=0")
    return Problem(losses.squared(), penalty, scale=scale, intercept=bool(estimator.fit_intercept))


def _huber_regressor(estimator: Any) -> Objective:
    sigma = float(estimator.scale_)
    penalty = penalty_of(float(estimator.alpha) * sigma, 0.0, "alpha=0")
    loss = losses.huber(float(estimator.epsilon) * sigma)
    return Objective(Problem(loss, penalty, scale="sum", intercept=bool(estimator.fit_intercept)))


# loss of SGDClassifier or SGDRegressor -> (loss here, how many times it theirs is)
_SGD: dict[str, Callable[[float], tuple[Any, float]]] = {
    "hinge": lambda epsilon: (losses.hinge(), 1.0),
    "squared_hinge": lambda epsilon: (losses.squared_hinge(), 2.0),
    "log_loss": lambda epsilon: (losses.logistic(), 1.0),
    "modified_huber": lambda epsilon: (losses.smoothed_hinge(2.0), 4.0),
    "squared_error": lambda epsilon: (losses.squared(), 1.0),
    "huber": lambda epsilon: (losses.huber(epsilon), 1.0),
    "epsilon_insensitive": lambda epsilon: (epsilon_insensitive(epsilon), 1.0),
    "squared_epsilon_insensitive": lambda epsilon: (squared_epsilon_insensitive(epsilon), 2.0),
}


def _sgd(estimator: Any) -> Objective:
    name = type(estimator).__name__
    if estimator.loss not in _SGD:
        raise ValueError(f"this {name} has loss={brief(estimator.loss)}, which is 0 at w = 0 whatever the data: it has "
                         'no optimum worth a bound; use loss="hinge"')  # fmt: skip
    loss, times = _SGD[estimator.loss](float(estimator.epsilon))
    if loss.smoothness is None and estimator.fit_intercept:
        smooth = '"squared_hinge" or "modified_huber" (a smoothed hinge)'
        if not hasattr(estimator, "classes_"):
            smooth = '"squared_epsilon_insensitive" or "huber"'
        raise ValueError(f"this {name} has loss={brief(estimator.loss)}, which is not smooth, and an intercept that is "
                         "not penalised; no bound is known for the two together: fit with fit_intercept=False and a "
                         f"column of ones in X (a penalised intercept), or with loss={smooth}")  # fmt: skip
    l1_ratio = {"l2": 0.0, "l1": 1.0, "elasticnet": float(estimator.l1_ratio or 0.0)}.get(estimator.penalty, 0.0)
    strength = 0.0 if estimator.penalty is None else float(estimator.alpha) / times
    penalty = penalty_of(strength, l1_ratio, "penalty=None or alpha=0")
    problem = Problem(loss, penalty, scale="mean", intercept=bool(estimator.fit_intercept))
    if not hasattr(estimator, "classes_"):
        return Objective(problem)
    return Objective(problem, "signs", several="own")


OBJECTIVES: dict[str, Callable[[Any], Objective]] = {
    "LogisticRegression": _logistic_regression,
    "LinearSVC": _linear_svc,
    "Ridge": _ridge,
    "Lasso": _lasso,
    "ElasticNet": _elastic_net,
    "RidgeClassifier": _ridge_classifier,
    "LinearSVR": _linear_svr,
    "HuberRegressor": _huber_regressor,
    "SGDClassifier": _sgd,
    "SGDRegressor": _sgd,
}
_KERNEL = (
    "it has an intercept that is not penalised and a loss that is not smooth; no bound is known for the two, even with "
    'kernel="linear"'
)
REASONS = {
    "GridSearchCV": "pass its best_estimator_",
    "RandomizedSearchCV": "pass its best_estimator_",
    "HalvingGridSearchCV": "pass its best_estimator_",
    "HalvingRandomSearchCV": "pass its best_estimator_",
    "TransformedTargetRegressor": "transform y yourself and fit its regressor",
    "OneVsOneClassifier": "its votes have no bound; fit a OneVsRestClassifier or use jb.fit_one_vs_rest",
    "CalibratedClassifierCV": "pass the classifier that it calibrates",
    "LogisticRegressionCV": "fit a LogisticRegression with the C (and l1_ratio) it chose",
    "RidgeCV": "fit a Ridge with the alpha it chose",
    "RidgeClassifierCV": "fit a RidgeClassifier with the alpha it chose",
    "LassoCV": "fit a Lasso with the alpha it chose",
    "ElasticNetCV": "fit an ElasticNet with the alpha and l1_ratio it chose",
    "SVC": f"{_KERNEL}; fit a LinearSVC, which penalises its intercept like the coefficient of a column of ones, or "
    "use jb.fit with jb.losses.smoothed_hinge and intercept=True",
    "SVR": f"{_KERNEL}; fit a LinearSVR, which penalises its intercept like the coefficient of a column of ones",
    "NuSVC": "its objective has no penalty of fixed strength; fit a LinearSVC",
    "NuSVR": "its objective has no penalty of fixed strength; fit a LinearSVR",
    "Perceptron": "it has no penalty; fit an SGDClassifier or a LinearSVC",
    "PassiveAggressiveClassifier": "it minimises no objective; fit a LinearSVC",
    "PassiveAggressiveRegressor": "it minimises no objective; fit a LinearSVR",
    "SGDOneClassSVM": "its offset is part of the penalty; no bound is known",
    "LinearRegression": "it has no penalty, and then no bound holds; fit a Ridge",
    "QuantileRegressor": "it has an L1 penalty and a loss that is not smooth, and then no bound holds",
    "PoissonRegressor": "its loss is not smooth; train a loss with a score bound with jb.fit",
    "MultiTaskLasso": "it has several targets and a penalty of groups; its objective is not known here",
    "ARDRegression": "it estimates its penalty from the data; fit a Ridge with the alpha it found",
    "BayesianRidge": "it estimates its penalty from the data; fit a Ridge with alpha=lambda_/alpha_",
}
