"""Estimators in scikit-learn's manner that answer what-if questions: `BoundedClassifier`, `BoundedRegressor`."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from jaxbounds import losses, penalties
from jaxbounds.arguments import as_array, as_flag, as_numbers, checked_sparse, first_word, is_real
from jaxbounds.array import put
from jaxbounds.bounds import Interval, bound
from jaxbounds.certificates import Method
from jaxbounds.changes import set_penalty
from jaxbounds.class_weights import sides
from jaxbounds.inputs import Inputs
from jaxbounds.interop.sklearn import from_sklearn
from jaxbounds.kinds import Change, check_change
from jaxbounds.messages import brief
from jaxbounds.problem import Problem, as_number, as_vector
from jaxbounds.solvers.fit import FitWarning, fit
from jaxbounds.status import Status
from jaxbounds.what_if import WhatIf

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils.class_weight import compute_class_weight
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted
except ImportError as error:
    raise ImportError("jaxbounds.sklearn needs scikit-learn: pip install 'jaxbounds[data]'") from error

__all__ = ["BoundedClassifier", "BoundedRegressor"]
_FLOATS: Any = (np.float64, np.float32)


def _validated(estimator: Any, *data: Any, **options: Any) -> Any:
    """scikit-learn's check of X and y, which also keeps the names and the number of the columns."""
    for value, name in zip(data, ("X", "y"), strict=False):
        _refuse_unseen(value, name, name == "X" or options.get("y_numeric", False))
    options |= {"accept_sparse": "csr", "dtype": _FLOATS}
    with np.errstate(all="ignore"):  # a long double beyond float64 becomes inf, which is refused
        try:
            from sklearn.utils.validation import validate_data
        except ImportError:  # until scikit-learn 1.5
            return estimator._validate_data(*data, **options)
        return validate_data(estimator, *data, **options)


def _refuse_unseen(value: Any, name: str, numeric: bool) -> None:
    """Raise for what scikit-learn would read as numbers: hidden entries, broken sparse data, dates and text in X.

    `numeric`: words are refused, too, with what to do about them.
    """
    if sp.issparse(value):
        checked_sparse(value, name)
    elif type(value).__module__.startswith("jax.experimental.sparse"):
        raise TypeError(f"{name} is a {type(value).__name__}; estimators take the sparse matrices of scipy: convert it")
    elif value is not None:
        array = as_array(value, name)
        if array.dtype.kind in ("mMSUV" if name == "X" else "mMV") or (numeric and first_word(array) is not None):
            raise TypeError(f"{name} has dtype {array.dtype}; expected real numbers: {as_numbers(array, name)}")


class _Bounded(BaseEstimator):
    """What both have in common: parameters, the models and the questions."""

    loss: Any
    penalty: Any
    alpha: float
    l1_ratio: float
    fit_intercept: bool
    tol: float
    max_steps: int | None
    solver: Any

    def what_if(self, change: Change, method: Method | None = None) -> WhatIf:
        """Bounds on what `fit` would give on the changed data, without fitting.

        Row numbers are those of the X given to `fit`; columns may be named if that was a data frame, and new targets
        are in the estimator's own labels. Class weights that `fit` computed stay as they are.

        Args:
            change: from `jb.set_rows`, `jb.remove_rows`, ..., `jb.combine`.
            method: as in `jb.bound`.

        Returns:
            WhatIf: `labels(X)`, `scores(X)`, `decided(X)`, `distance`, `w(name)`.

        Raises:
            ValueError: the change does not fit the data, or rows of weight 0 were left out of the fit.
        """
        check_is_fitted(self)
        check_change(change)
        if self._left_out:
            raise ValueError(f"{self._left_out} rows of weight 0 were left out of the fit, so that row numbers have no "
                             "meaning; fit without them")  # fmt: skip
        model: Any = from_sklearn(self, None, None)
        found = bound(model, change, method)
        return WhatIf(getattr(found, "bounds", (found,)), getattr(self, "classes_", None), self._names())

    def predict_interval(self, X: Any, change: Change | None = None, method: Method | None = None) -> Interval:
        """Intervals that hold the exact optimum's `decision_function` (or predictions, for regression).

        Without a change they say what the fit's own inexactness can hide; with one, what retraining would give.

        Args:
            X: (m, d) rows. change: of the training data, or None. method: as in `jb.bound`.

        Returns:
            Interval (m,), or (m, K) for K > 2 classes.
        """
        check_is_fitted(self)
        if change is not None:
            return self.what_if(change, method).scores(X)
        same = set_penalty(self.models_[0].problem.penalty)
        return WhatIf(tuple(bound(model, same, method) for model in self.models_)).scores(X)

    def _names(self) -> tuple[str, ...] | None:
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else tuple(map(str, names))

    def _problem(self, choices: dict[str, Any]) -> Problem:
        """min over w, b of sum_i c_i l(x_i.w + b, y_i) + alpha R(w)."""
        loss = choices.get(self.loss) if isinstance(self.loss, str) else self.loss
        if loss is None:
            raise ValueError(f"loss must be one of {sorted(choices)} or one of jb.losses, got {brief(self.loss)}")
        penalty = self.penalty
        if isinstance(penalty, str):
            if penalty not in ("l2", "l1", "elastic_net"):
                raise ValueError(f"penalty must be l2, l1, elastic_net or one of jb.penalties, got {brief(penalty)}")
            ratio = {"l2": 0.0, "l1": 1.0}.get(penalty, self.l1_ratio)
            ratio = float(as_number(ratio, "l1_ratio"))
            if not 0 <= ratio <= 1:
                raise ValueError(f"l1_ratio must lie in [0, 1], got {brief(self.l1_ratio)}")
            if ratio == 0:
                penalty = penalties.l2(self.alpha)
            elif ratio == 1:
                penalty = penalties.l1(self.alpha)
            else:
                penalty = penalties.elastic_net(lam=self.alpha * (1 - ratio), l1=self.alpha * ratio)
        return Problem(loss, penalty, scale="sum", intercept=as_flag(self.fit_intercept, "fit_intercept"))

    def _weights(self, sample_weight: Any, n: int) -> Any:
        """Checked sample weights, where 0 leaves a row out."""
        if sample_weight is None:
            return np.ones(n)
        weight = as_array(sample_weight, "sample_weight")
        if not is_real(weight.dtype):
            raise TypeError(f"sample_weight must hold real numbers, got dtype {weight.dtype}; convert it")
        with np.errstate(over="ignore"):
            weight = weight.astype(np.float64)
        if weight.ndim == 0:
            weight = np.full(n, weight)
        if weight.shape != (n,):
            raise ValueError(f"sample_weight.shape == {weight.shape}, expected {(n,)}!")
        if not np.all(np.isfinite(weight)) or np.any(weight < 0):
            raise ValueError("sample_weight must hold finite numbers that are not negative")
        if not np.any(weight > 0):
            raise ValueError("Invalid input: all values in sample_weight are zero")
        return weight

    def _train(self, problem: Problem, X: Any, targets: list[Any], weight: Any) -> None:
        kept = weight > 0
        self._left_out = int(np.sum(~kept))
        if self._left_out:
            X, targets, weight = X[kept], [target[kept] for target in targets], weight[kept]
        names, factors, models = self._names(), getattr(self, "class_weight_", None), []
        for k, target in enumerate(targets):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FitWarning)  # said once for all models below
                model = fit(problem, X, target, sample_weight=weight, tol=self.tol, solver=self.solver,
                            max_steps=self.max_steps)  # fmt: skip
            if names is not None or factors is not None:
                known = None if factors is None else sides(factors, k) if len(targets) > 1 else factors
                model = replace(model, inputs=put(Inputs((), (), X.shape[1], names=names, class_weights=known)))
            models.append(model)
        self.models_ = tuple(models)
        early = [Status(int(model.status)) for model in models if int(model.status) != Status.CONVERGED]
        if early:
            warnings.warn(f"{len(early)} of {len(models)} models stopped early. {early[0].advice}", FitWarning,
                          stacklevel=3)  # fmt: skip
        self.n_iter_ = max(1, *(int(model.n_steps) for model in models))
        self._set_coefficients()

    def _set_coefficients(self) -> None:
        self.coef_ = np.stack([np.asarray(model.w) for model in self.models_])
        self.intercept_ = np.array([float(model.intercept) for model in self.models_])

    def _decision(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        X = _validated(self, X, reset=False)
        scores = np.stack([np.asarray(model.scores(X)) for model in self.models_], axis=1)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.sparse = True
        return tags


class BoundedClassifier(ClassifierMixin, _Bounded):
    """A linear classifier that answers `what_if(change)` with guarantees: min sum_i c_i l(m_i) + alpha R(w).

    m_i = y_i (x_i.w + b), c_i is the sample weight times the class weight, R(w) = (1 - r)/2 ||w||^2 + r ||w||_1 with
    r = 0, 1 or l1_ratio. With the defaults it minimises what LogisticRegression(C=1/alpha) does. More than two classes
    are fitted one against the rest.

    Args:
        loss: "logistic", "squared_hinge", "smoothed_hinge" (gamma = 1), "hinge", or one of `jb.losses`.
        penalty: "l2", "l1", "elastic_net", or one of `jb.penalties` (then alpha and l1_ratio are not used).
        alpha: strength of the penalty.
        l1_ratio: share of the L1 part of "elastic_net", in [0, 1].
        fit_intercept: whether there is an intercept, which is not penalised; it needs a smooth loss and, for bounds, a
            penalty that is not "l1".
        class_weight: None, "balanced" or a dictionary from class to weight.
        tol, solver, max_steps: as in `jb.fit`.

    Attributes:
        classes_: (K,) labels. class_weight_: (K,) their weights, or None.
        coef_: (1, d), or (K, d) for K > 2. intercept_: (1,) or (K,).
        models_: the trained `jb.Model`s, for everything else of the library. n_iter_: most steps of a solver.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> from jaxbounds.sklearn import BoundedClassifier
        >>> X, y = np.array([[2.0], [-1.0], [1.0], [-2.0]]), np.array(["yes", "no", "yes", "no"])
        >>> classifier = BoundedClassifier(alpha=0.5).fit(X, y)
        >>> classifier.what_if(jb.remove_rows([3])).labels([[3.0], [-0.3]]).tolist()
        ['yes', None]
    """

    def __init__(
        self, loss="logistic", penalty="l2", *, alpha=1.0, l1_ratio=0.5, fit_intercept=True, class_weight=None,
        tol=1e-8, max_steps=None, solver=None,
    ):  # fmt: skip
        self.loss = loss
        self.penalty = penalty
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.tol = tol
        self.max_steps = max_steps
        self.solver = solver

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "BoundedClassifier":
        """Train on X (n, d) and labels y (n,) of any kind, with weights >= 0; returns itself."""
        X, y = _validated(self, X, y)
        check_classification_targets(y)
        if y.dtype.kind == "f":  # scikit-learn 1.5 takes a long double beyond float64
            as_vector(y, X.shape[0], "y")
        weight = self._weights(sample_weight, X.shape[0])
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(np.unique(codes[weight > 0])) < 2:
            only = self.classes_[codes[weight > 0][0]]
            raise ValueError(f"y needs at least two classes, and it has 1 class: {brief(only)}")
        self.class_weight_ = None
        if self.class_weight is not None:
            self.class_weight_ = compute_class_weight(self.class_weight, classes=self.classes_, y=y)
            weight = weight * self.class_weight_[codes]
        smoothed = losses.smoothed_hinge(1.0)
        problem = self._problem({"logistic": losses.logistic(), "squared_hinge": losses.squared_hinge(),
                                 "smoothed_hinge": smoothed, "hinge": losses.hinge()})  # fmt: skip
        positive = range(len(self.classes_)) if len(self.classes_) > 2 else (1,)
        self._train(problem, X, [np.where(codes == k, 1.0, -1.0) for k in positive], weight)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores of the rows of X: (m,) for two classes, positive for classes_[1]; (m, K) for more."""
        return self._decision(X)

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest class of each row of X."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]


class BoundedRegressor(RegressorMixin, _Bounded):
    """A linear regressor that answers `what_if(change)` with guarantees: min sum_i c_i l(s_i, y_i) + alpha R(w).

    s_i = x_i.w + b, c_i is the sample weight, and R(w) = (1 - r)/2 ||w||^2 + r ||w||_1 with r = 0, 1 or l1_ratio. With
    the defaults it minimises half of what Ridge(alpha) does.

    Args:
        loss: "squared", "huber" (delta = 1.35), or one of `jb.losses`.
        penalty: "l2", "l1", "elastic_net", or one of `jb.penalties` (then alpha and l1_ratio are not used).
        alpha: strength of the penalty.
        l1_ratio: share of the L1 part of "elastic_net", in [0, 1].
        fit_intercept: whether there is an intercept, which is not penalised; it needs a smooth loss and, for bounds, a
            penalty that is not "l1".
        tol, solver, max_steps: as in `jb.fit`.

    Attributes:
        coef_: (d,). intercept_: a number. models_: the trained `jb.Model` alone. n_iter_: steps of the solver.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> from jaxbounds.sklearn import BoundedRegressor
        >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0.1, 0.9, 2.1, 2.9])
        >>> interval = BoundedRegressor(alpha=0.1).fit(X, y).what_if(jb.remove_rows([1])).scores([[1.5]])
        >>> bool(interval.lower[0] <= 1.52 <= interval.upper[0])
        True
    """

    def __init__(
        self, loss="squared", penalty="l2", *, alpha=1.0, l1_ratio=0.5, fit_intercept=True, tol=1e-8, max_steps=None,
        solver=None,
    ):  # fmt: skip
        self.loss = loss
        self.penalty = penalty
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_steps = max_steps
        self.solver = solver

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "BoundedRegressor":
        """Train on X (n, d) and targets y (n,), with weights >= 0; returns itself."""
        X, y = _validated(self, X, y, y_numeric=True)
        problem = self._problem({"squared": losses.squared(), "huber": losses.huber(1.35)})
        self._train(problem, X, [as_vector(y, X.shape[0], "y")], self._weights(sample_weight, X.shape[0]))
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Predictions (m,) for the rows of X."""
        return self._decision(X)

    def _set_coefficients(self) -> None:
        (model,) = self.models_
        self.coef_, self.intercept_ = np.asarray(model.w), float(model.intercept)
