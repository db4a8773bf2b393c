"""Models from fitted scikit-learn estimators: the same objective written as a `Problem`, the same coefficients."""

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from jaxbounds.array import put
from jaxbounds.class_weights import sides
from jaxbounds.host import host_matrix
from jaxbounds.inputs import Inputs
from jaxbounds.interop.objectives import OBJECTIVES, REASONS, Objective, softmax_problem
from jaxbounds.interop.scalers import scaling
from jaxbounds.matrix import Matrix, as_matrix
from jaxbounds.messages import cut, few, first_bad
from jaxbounds.model import Data, Model, best_intercept, remember
from jaxbounds.multinomial import MultinomialModel, remember_multinomial
from jaxbounds.one_vs_rest import OneVsRest
from jaxbounds.own_labels import kept_classes
from jaxbounds.problem import Problem, as_sample_weight, as_targets, as_vector
from jaxbounds.pytree import in_float64
from jaxbounds.solvers.fit import FitWarning, fit
from jaxbounds.status import Status
from jaxbounds.storage import equal

_FAR = 0.05  # relative gap; default tolerances leave up to 0.04 on scaled data
_REMEDY = "fit a OneVsRestClassifier of it, or use jb.fit_one_vs_rest"


@in_float64
def from_sklearn(estimator: Any, X, y, sample_weight=None) -> Model:
    """The model of a fitted scikit-learn estimator or pipeline, ready for `bound`: nothing is retrained, w is kept.

    scikit-learn's objective is `Problem.primal` times a constant; s = X w + b, m = +1 or -1 times s:

        LogisticRegression       C P(w),  P = sum_i c_i log(1 + exp(-m_i)) + R(w)/C,  R = (1-r)/2 ||w||^2 + r ||w||_1
        LinearSVC, squared hinge 2C P(w), P = sum_i c_i max(0, 1-m_i)^2/2 + R(w)/(2C), R = ||w||^2/2 or ||w||_1
        LinearSVC, hinge         C P(w),  P = sum_i c_i max(0, 1-m_i) + ||w||^2/(2C)
        LinearSVR                the same with max(0, |s_i - y_i| - epsilon) in place of max(0, 1-m_i)
        Ridge, RidgeClassifier   2 P(w),  P = sum_i c_i (s_i - y_i)^2/2 + alpha/2 ||w||^2, classes as y = -1 and +1
        HuberRegressor           2/sigma P(w), P = sum_i c_i huber(s_i - y_i; epsilon sigma) + alpha sigma/2 ||w||^2
        Lasso, ElasticNet        P(w),    P = sum_i c_i/n (s_i - y_i)^2/2 + alpha R(w), with r = l1_ratio
        SGDClassifier, -Regressor  k P(w), P = sum_i c_i/n l(s_i, y_i) + alpha/k R(w), k l the loss (k = 1, 2 or 4)

    The last two have scale "mean", the others "sum"; c_i is the sample weight times the class weight of row i, for
    Lasso and ElasticNet rescaled to sum to n. Weights in changes are sample weights, and a row that changes its class
    or is new gets the weight of its class. What scikit-learn would compute anew stays as it was fitted, and a warning
    says so: "balanced" class weights, Lasso's rescaling, and sigma, HuberRegressor's scale_.

    The estimator's inexactness is the model's gap, so its bounds are valid after a loose fit, but wider (very wide
    after stochastic gradient steps, where `method=jb.Curvature()` helps); so is a parameter or a sample weight that
    differs from those it was fitted with. A relative gap above 0.05 of an estimator that has converged is warned of
    (FitWarning; not after stochastic gradient steps): the data may be others than those of its fit. alpha is -f'(q) at
    the estimator's scores; for losses with a kink, which leave it open, it comes from a fit of the same problem.
    `status` is MAX_STEPS if max_iter was used up, else CONVERGED, by the estimator's own tolerance: how exact that is
    says the gap.

    An intercept is not penalised, and the problem has intercept=True; the model's is the best one for the estimator's
    coefficients, which may differ from intercept_ by the estimator's tolerance. LIBLINEAR (LinearSVC, LinearSVR,
    LogisticRegression(solver="liblinear")) does penalise it, like a coefficient: with fit_intercept=True the model has
    a last column of constants, w[-1] = intercept_ / intercept_scaling, which rows given to the model, its changes and
    its bounds need not carry. `model.names` and `bounds.w("intercept")` call it "intercept"; `model.intercept`, which
    is what scores add to X w, is 0. With an L1 penalty alone and an intercept that is not penalised (Lasso, saga) no
    bound is known: such a model gives scores and can be refitted, and `bound` says what to change.

    A pipeline that ends in one of these may begin with scalers (StandardScaler, MinMaxScaler, MaxAbsScaler,
    RobustScaler). Its model lives on the scaled data: w is the last step's. But every row that you give (to changes, to
    `scores`, `labels`, ...) is in raw units, and the fitted scaler is applied to it. The scaler stays the fitted one:
    the bounds hold for retraining the last step, not for fitting the scaler anew. Added columns are not scaled.

    If it was fitted on a data frame, changes may name columns, `jb.set_columns(["age"], ...)`, and frames are read by
    name. New labels of a change are those of `classes_`, words or numbers. -1 and +1 (or class numbers) are taken as
    well, unless one is also the number of another class, as 1 is for classes 1 and 2. `labels` still answers +1, -1 and
    0; `model.decode_labels` turns that into the estimator's classes.

    Of more than two classes those that are one against the rest become an `OneVsRest`: LinearSVC, RidgeClassifier,
    SGDClassifier, and OneVsRestClassifier of anything above that has two classes, with or without scalers. Targets and
    labels are then positions in classes_, targets also the classes themselves, as above. LogisticRegression minimises
    the softmax loss instead, C P(w) with P = sum_i c_i log sum_k exp(s_ik - s_iy) + ||W||^2/(2C): with an L2 penalty
    and fit_intercept=False it becomes a `MultinomialModel`; with a free intercept no bound is known.

    With scikit-learn's defaults (C = 1, a free intercept, a loose tol) cheap certificates may decide little: ask for
    `Curvature()`, or `decide`; a stronger penalty and tol=1e-8 make them sharper.

    Args:
        estimator: a fitted LogisticRegression, LinearSVC, LinearSVR, Ridge, RidgeClassifier, HuberRegressor, Lasso,
            ElasticNet, SGDClassifier, SGDRegressor or OneVsRestClassifier (not a subclass of one), a BoundedClassifier
            or BoundedRegressor of `jaxbounds.sklearn`, or a pipeline of scalers and one of them.
        X: (n, d) the data it was fitted on, of any kind that `fit` takes, or a data frame; float32 stays float32.
        y: (n,) the targets it was fitted on, in its own labels: classes_[0] becomes -1, classes_[1] becomes +1.
        sample_weight: (n,) the positive weights it was fitted with, None if it had none.

    Returns:
        Model with the estimator's coefficients, in the dtype of the data; OneVsRest or MultinomialModel for more than
        two classes.

    Raises:
        TypeError: another kind of estimator; the message says what to pass instead.
        ValueError: the estimator is not fitted, an option has no exact translation (no penalty, positive=True,
            several targets, softmax with a free intercept, a loss with a kink and a free intercept, a step that is not
            a scaler), or the data do not fit it.
        ImportError: scikit-learn is not installed.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> from sklearn.linear_model import LogisticRegression
        >>> X, y = np.array([[1.0, 0.2], [-1.0, 0.1], [0.7, -0.4], [-0.5, 0.3]]), np.array(["yes", "no", "yes", "no"])
        >>> estimator = LogisticRegression(C=2.0, fit_intercept=False, tol=1e-8).fit(X, y)
        >>> model = jb.from_sklearn(estimator, X, y)
        >>> np.array_equal(model.w, estimator.coef_[0]), float(model.problem.penalty.lam)
        (True, 0.5)
        >>> labels = jb.bound(model, jb.set_targets([3], ["yes"]), jb.Curvature()).labels(X)
        >>> labels.tolist(), model.decode_labels(labels).tolist()
        ([1, -1, 1, -1], ['yes', 'no', 'yes', 'no'])

    Source: Fan et al. 2008 (LIBLINEAR); the objectives in scikit-learn's user guide, versions 1.5 to 1.9.
    """
    model = _model_of(estimator, X, y, sample_weight)
    _warn_of_kept(estimator, sample_weight)
    _warn_of_no_bound(model)
    _warn_of_gap(model)
    return model


def _model_of(estimator: Any, X, y, sample_weight) -> Any:
    """What `from_sklearn` returns."""
    whole = estimator
    first, estimator = _last_step(estimator)
    if type(estimator).__module__ == "jaxbounds.sklearn":
        return _of_bounded(estimator, whole, first)
    if _is_sklearns(estimator, "OneVsRestClassifier"):
        return _of_one_vs_rest(estimator, whole, first, X, y, sample_weight)
    translate = _translation(estimator)
    several = len(getattr(estimator, "classes_", ())) > 2
    if several and _is_sklearns(estimator, "LogisticRegression"):
        return _of_softmax(estimator, whole, first, X, y, sample_weight)
    objective = translate(estimator)
    problem, kind = objective.problem, type(estimator).__name__
    if several and objective.several is None:
        raise ValueError(f"estimator: this {kind} has {len(estimator.classes_)} classes, which it does not tell apart "
                         f"one against the rest; {_REMEDY}")  # fmt: skip
    steps, width = scaling(first), as_matrix(X).shape[1]
    coef = _coefficients(estimator, len(estimator.classes_) if several else 1, width)
    names = getattr(whole, "feature_names_in_", None)
    X = _in_order(X, names)
    matrix = as_matrix(whole[:-1].transform(X) if first else X)
    n, constant = matrix.shape[0], None
    if estimator.fit_intercept and not problem.intercept:
        constant = float(estimator.intercept_scaling)
        matrix = _with_constant(matrix, constant)
        coef = np.column_stack([coef, np.broadcast_to(estimator.intercept_, len(coef)) / constant])
    weight, kept = as_sample_weight(sample_weight, n), _Weights()
    if objective.targets == "signs":
        code = _codes(estimator, y, n)
        factor = _class_weights(estimator, y, sample_weight, objective.counted)
        positive, own = range(len(factor)) if several else (1,), objective.several == "own"
        if estimator.class_weight is not None:
            kept = _Weights.of(factor, own)
        each = [_against_rest(code, k, factor, several and own) for k in positive]
        each = [(sign, as_sample_weight(weight * of_row, n, "sample_weight times class_weight"))
                for sign, of_row in each]  # fmt: skip
    else:
        weight = weight * (n / np.sum(weight)) if objective.rescaled else weight
        each = [(as_targets(problem.loss, y, n), weight)]
    models = [_kept(estimator, problem, matrix, w, *parts) for w, parts in zip(coef, each, strict=True)]
    return _reading(models, steps, width, constant, names, getattr(estimator, "classes_", None), kept)


@dataclass(frozen=True)
class _Weights:
    """Class weights: those that each model knows of its two sides, and those of classes that count in all models."""

    each: tuple = ()
    whole: Any = None

    @staticmethod
    def of(factor: np.ndarray, own: bool) -> "_Weights":
        """`own`: of several classes each counts in its own model alone."""
        if len(factor) == 2:
            return _Weights((factor,))
        if own:
            return _Weights(tuple(np.array([1.0, one]) for one in factor))
        return _Weights(tuple(sides(factor, k) for k in range(len(factor))), factor)


def _warn_of_kept(estimator: Any, sample_weight: Any) -> None:
    """Say what stays as it was fitted where scikit-learn's retraining would compute it anew."""
    last = _last_step(estimator)[1]
    last, said = getattr(last, "estimator", last), None
    if _is_sklearns(last, "HuberRegressor"):
        said = (f"HuberRegressor's scale_ stays {last.scale_:.6g}; retraining would estimate it anew from the changed "
                "data. BoundedRegressor(loss='huber') has a fixed threshold")  # fmt: skip
    elif type(last).__name__ in ("Lasso", "ElasticNet") and sample_weight is not None and np.ptp(sample_weight) > 0:
        said = (f"{type(last).__name__}'s sample weights stay rescaled to the sum n of the old ones; retraining would "
                "rescale the changed ones anew")  # fmt: skip
    elif isinstance(getattr(last, "class_weight", None), str):
        said = ("class_weight='balanced' stays as it was computed for y; retraining would count the changed labels and "
                "rows anew. A dict in its place stays in both")  # fmt: skip
    if said is not None:
        warnings.warn(said, stacklevel=4)


def _warn_of_no_bound(model: Any) -> None:
    """Say that an L1 penalty alone and a free intercept leave no bound."""
    problem = getattr(model, "models", (model,))[0].problem
    if problem.intercept and problem.penalty.strong_convexity is None:
        warnings.warn(f"no bound is known for {problem.penalty.name} alone with an intercept that is not penalised: "
                      "the model gives scores and can be refitted; ElasticNet (l1_ratio < 1) has bounds, and so has "
                      "fit_intercept=False on centred data", stacklevel=4)  # fmt: skip


def _warn_of_gap(model: Any) -> None:
    """Say once that the coefficients are far from the optimum on these data, though their solver has converged."""
    models = getattr(model, "models", (model,))
    gaps = [float(one.gap) / max(abs(float(one.primal)), 1e-300) for one in models
            if one.source is not None and not one.source.startswith("SGD")  # whose steps never come close
            and int(one.status) == Status.CONVERGED]  # if not, scikit-learn has said so
    if gaps and not max(gaps) <= _FAR:
        warnings.warn(
            f"from_sklearn: on these data the relative duality gap of this {models[0].source} is {max(gaps):.1e}, more "
            "than its tolerance explains; bounds are valid, but wide. Pass the X, y and sample_weight that it was "
            "fitted on; if they are these, fit it with a smaller tol, or on scaled data", FitWarning, stacklevel=4,
        )  # fmt: skip


def _kept(estimator: Any, problem: Problem, matrix: Matrix, w, y, weight) -> Model:
    """The model at an estimator's coefficients."""
    data, w = put(Data(matrix, y, weight)), w.astype(matrix.dtype)
    b = best_intercept(problem, data, w)
    if problem.loss.smoothness is None:
        alpha = fit(problem, matrix, y, sample_weight=weight).alpha
    else:
        alpha = problem.loss.dual(problem.loss.coordinate(host_matrix(matrix).matvec(w.astype(np.float64)) + b, y), y)
    model = remember(problem, data, w, alpha, status=_status(estimator), n_steps=_n_steps(estimator), b=b)
    return replace(model, source=type(estimator).__name__)


def _reading(models: list[Any], steps, width: int, constant, names, classes, weights: _Weights) -> Any:
    """The model, or OneVsRest of several, that reads rows and changes as the estimator's user writes them."""
    several, first = len(models) > 1, models[0]
    numbered = several or isinstance(first, MultinomialModel)
    kept = None if classes is None else kept_classes(classes, numbered)
    if classes is not None and kept is None and not (numbered or first.problem.loss.classification):
        kept = -1, 1  # a squared loss would take any number for a target
    own = None if several else kept  # one of several models does not know the others' classes
    if several and not first.problem.loss.classification:
        own = -1, 1
    vectors, kinds = tuple(vector for _, vector in steps), tuple(name for name, _ in steps)
    names = None if names is None else tuple(map(str, names))
    each = weights.each or (None,) * len(models)
    known = [put(Inputs(vectors, kinds, width, constant, names, own, factor)) for factor in each]
    models = [replace(model, inputs=inputs if _says_anything(inputs) else None)
              for model, inputs in zip(models, known, strict=True)]  # fmt: skip
    return OneVsRest(tuple(models), kept, put(weights.whole)) if several else models[0]


def _says_anything(inputs: Inputs) -> bool:
    said = inputs.steps, inputs.constant, inputs.names, inputs.classes, inputs.class_weights
    return any(one not in ((), None) for one in said[:4]) or said[4] is not None


def _of_softmax(estimator: Any, whole: Any, first, X, y, sample_weight) -> Any:
    """The model of a LogisticRegression of more than two classes."""
    problem, names = softmax_problem(estimator), getattr(whole, "feature_names_in_", None)
    steps, d = scaling(first), as_matrix(X).shape[1]
    coef = _coefficients(estimator, len(estimator.classes_), d)
    X = _in_order(X, names)
    matrix = as_matrix(whole[:-1].transform(X) if first else X)
    n = matrix.shape[0]
    code = _codes(estimator, y, n)
    factor = _class_weights(estimator, y, sample_weight, True)
    kept = _Weights() if estimator.class_weight is None else _Weights((factor,))
    weight = as_sample_weight(sample_weight, n) * factor[code]
    data = put(Data(matrix, code.astype(np.float64), as_sample_weight(weight, n, "sample_weight times class_weight")))
    w = put(coef.astype(matrix.dtype))
    model = remember_multinomial(problem, data, w, _status(estimator), _n_steps(estimator))
    model = replace(model, source=type(estimator).__name__)
    return _reading([model], steps, d, None, names, estimator.classes_, kept)


def _of_one_vs_rest(estimator: Any, whole: Any, first, X, y, sample_weight) -> Any:
    """The models of the binary estimators that a OneVsRestClassifier has fitted."""
    if not hasattr(estimator, "estimators_"):
        raise ValueError("estimator: this OneVsRestClassifier is not fitted; call fit(X, y) first")
    if estimator.multilabel_:
        raise ValueError("estimator: this OneVsRestClassifier has several labels a row; pass its estimators_ one by "
                         "one")  # fmt: skip
    for k, one in enumerate(estimator.estimators_):
        if type(one).__name__ == "_ConstantPredictor":
            raise ValueError(f"estimator: class {cut(str(estimator.classes_[k]))} holds all rows or none, so that "
                             "nothing was fitted for it; fit on data of every class")  # fmt: skip
        if not hasattr(one, "classes_"):
            raise ValueError("estimator: this OneVsRestClassifier has regressors, whose targets are 0 and 1; a class "
                             "and the rest are -1 and +1 here: fit it with a classifier")  # fmt: skip
    names, steps, width = getattr(whole, "feature_names_in_", None), scaling(first), as_matrix(X).shape[1]
    X = _in_order(X, names)
    rows = whole[:-1].transform(X) if first else X
    code = _codes(estimator, y, as_matrix(rows).shape[0])
    positive = range(1, 2) if len(estimator.estimators_) == 1 else range(len(estimator.classes_))
    models = [_model_of(one, rows, (code == k).astype(int), sample_weight)
              for k, one in zip(positive, estimator.estimators_, strict=True)]  # fmt: skip
    own = models[0].inputs
    if own is not None:
        steps = steps + list(zip(own.steps, own.vectors, strict=True))
        names = own.names if names is None else names
    models = [replace(model, data=_same_matrix(model.data, models[0].data)) for model in models]
    kept = _Weights(tuple(None if model.inputs is None else model.inputs.class_weights for model in models))
    return _reading(models, steps, width, None if own is None else own.constant, names, estimator.classes_, kept)


def _same_matrix(data: Any, first: Any) -> Data:
    """The data with the matrix of others where it is the same."""
    return replace(data, matrix=first.matrix) if equal(data.matrix, first.matrix) else data


def _of_bounded(estimator: Any, whole: Any, first) -> Model:
    """The model that a BoundedClassifier or BoundedRegressor holds already."""
    models = getattr(estimator, "models_", ())
    if not models:
        raise ValueError(f"estimator: this {type(estimator).__name__} is not fitted; call fit(X, y) first")
    names, classes = getattr(whole, "feature_names_in_", None), getattr(estimator, "classes_", None)
    factor = getattr(estimator, "class_weight_", None)
    kept = _Weights() if factor is None else _Weights.of(factor, False)
    return _reading(list(models), scaling(first), models[0].w.shape[0], None, names, classes, kept)


def _is_sklearns(estimator: Any, name: str) -> bool:
    kind = type(estimator)
    return kind.__name__ == name and kind.__module__.startswith("sklearn.")


def _last_step(estimator: Any) -> tuple[list[tuple[str, Any]], Any]:
    """(the steps before the last one, the last one) of a pipeline; nothing and itself for any other estimator."""
    if not _is_sklearns(estimator, "Pipeline"):
        return [], estimator
    *first, (_, last) = estimator.steps
    return first, last


def _in_order(X, names):
    """The columns of a data frame in the order in which the estimator saw them."""
    if names is None or not hasattr(X, "columns"):
        return X
    missing = sorted(set(names) - set(X.columns))
    if missing:
        raise ValueError(f"X lacks the columns {few(missing)} on which the estimator was fitted")
    return X[list(names)]


def _n_steps(estimator: Any) -> int:
    steps = getattr(estimator, "n_iter_", None)
    return 0 if steps is None else int(np.max(steps))


def _status(estimator: Any) -> int:
    most = getattr(estimator, "max_iter", None)
    return int(Status.CONVERGED if most is None or most < 0 or _n_steps(estimator) < most else Status.MAX_STEPS)


def _translation(estimator: Any) -> Callable[[Any], Objective]:
    """The function that writes this estimator's objective as a Problem, if it is fitted, on two classes or more."""
    kind = estimator if isinstance(estimator, type) else type(estimator)
    name = kind.__name__
    translate = OBJECTIVES.get(name) if kind.__module__.startswith("sklearn.") else None
    if translate is None:
        reason = REASONS.get(name, "its objective is not known here (subclasses may change it)")
        raise TypeError(f"estimator: a {name} cannot be translated: {reason}; supported are {', '.join(OBJECTIVES)}, "
                        "and OneVsRestClassifier")  # fmt: skip
    if kind is estimator or not hasattr(estimator, "coef_"):
        raise ValueError(f"estimator: this {name} is not fitted; call fit(X, y) first")
    if len(getattr(estimator, "classes_", (-1, 1))) < 2:
        raise ValueError(f"estimator: this {name} has one class, and only two or more can be told apart; fit on more")
    return translate


def _with_constant(matrix: Matrix, value: float) -> Matrix:
    """The matrix with a last column of constants, in float64 where its dtype cannot hold the value exactly."""
    dtype = matrix.dtype if float(matrix.dtype.type(value)) == value else np.float64
    values: Any = matrix.to_scipy()
    column = np.full((matrix.shape[0], 1), value, dtype)
    return as_matrix(sp.hstack([values, column], format="csr") if sp.issparse(values) else np.hstack([values, column]))


def _coefficients(estimator: Any, count: int, width: int) -> np.ndarray:
    """coef_ as an array (count, width)."""
    coef = estimator.coef_.toarray() if sp.issparse(estimator.coef_) else np.asarray(estimator.coef_)
    coef, kind = coef.reshape(count, -1), type(estimator).__name__
    if coef.shape[1] != width:
        raise ValueError(f"X has {width} columns, but this {kind} was fitted on {coef.shape[1]}; pass the X it was "
                         "fitted on")  # fmt: skip
    return np.stack([as_vector(row, width, "estimator.coef_") for row in coef])


def _codes(estimator: Any, y, n: int) -> np.ndarray:
    """The number in classes_ of each label."""
    classes, y = np.asarray(estimator.classes_), np.asarray(y)
    if y.shape != (n,):
        raise ValueError(f"y must have shape ({n},), got {y.shape}")
    found = np.stack([y == label for label in classes], axis=1)
    what = f"is not one of the estimator's classes {few(classes.tolist())}"
    first_bad(~found.any(axis=1), y, "y", what, "pass the y it was fitted on")
    return found.argmax(axis=1)


def _class_weights(estimator: Any, y, sample_weight, counted: bool) -> np.ndarray:
    """The weight of each class; `counted` as in `Objective`."""
    classes = np.asarray(estimator.classes_)
    if estimator.class_weight is None:
        return np.ones(len(classes))
    try:
        from sklearn.utils.class_weight import compute_class_weight
    except ImportError as error:
        raise ImportError(
            "from_sklearn needs scikit-learn, which is not installed: pip install 'jaxbounds[data]'"
        ) from error
    counted = counted and "sample_weight" in inspect.signature(compute_class_weight).parameters
    options: dict[str, Any] = {"sample_weight": sample_weight} if counted else {}
    return compute_class_weight(estimator.class_weight, classes=classes, y=np.asarray(y), **options)


def _against_rest(code: np.ndarray, k: int, factor: np.ndarray, own: bool):
    """(+1 for class k and -1 for all others, the class weight of each row); `own`: that of class k alone counts."""
    return np.where(code == k, 1.0, -1.0), np.where(code == k, factor[k], 1.0) if own else factor[code]
