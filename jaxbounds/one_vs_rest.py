"""Several classes by one binary model for each: training, and labels certified against all other classes."""

import weakref
from dataclasses import replace
from typing import Any

import numpy as np

from jaxbounds.arguments import as_whole
from jaxbounds.array import on_host, put, readable, xp
from jaxbounds.bounds import Bounds, Interval, bound, published
from jaxbounds.class_weights import present_of, weighted
from jaxbounds.classes import ClassModel, argmax, as_classes, check_targets, class_labels, each_target, is_class
from jaxbounds.inputs import frame_inputs, rows_of
from jaxbounds.kinds import Change, Combined
from jaxbounds.matrix import as_matrix
from jaxbounds.model import Model
from jaxbounds.names import numbered, text
from jaxbounds.problem import Problem
from jaxbounds.pytree import in_float64, is_traced, pytree, static
from jaxbounds.rounding import norm_down, norm_up
from jaxbounds.solvers.fit import fit, refit
from jaxbounds.status import Status


@pytree
class OneVsRest(ClassModel):
    """One binary model for each class, trained to tell it from all others; from `fit_one_vs_rest`.

    Attributes:
        models: tuple of K models; they share one data matrix.
        classes_: tuple of the classes, words or numbers as they were given; None if they are class numbers.
        class_weights: (K,) what the sample weights of each class are multiplied by in all models, or None.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> X, y = np.repeat(np.eye(3), 4, axis=0), np.repeat([0, 1, 2], 4)
        >>> model = jb.fit_one_vs_rest(jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1)), X, y)
        >>> model.labels(np.eye(3)).tolist()
        [0, 1, 2]
    """

    models: tuple[Model, ...]
    classes_: tuple | None = static(default=None)
    class_weights: Any = None

    @property
    def classes(self) -> int:
        """K."""
        return len(self.models)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, see `Model.names`."""
        return self.models[0].names

    @property
    def w(self):
        """(K, d) coefficients."""
        return xp.stack([model.w for model in self.models])

    @property
    def intercept(self):
        """(K,) intercepts, 0 without one."""
        return xp.stack([model.intercept for model in self.models])

    @in_float64
    def scores(self, X):
        """The models' scores: (m, d) data to (m, K) float64."""
        matrix = self.models[0].rows_like(X, on_host(self), "X")
        return xp.stack([model.scores(matrix) for model in self.models], axis=1)

    @in_float64
    def labels(self, X):
        """The class with the largest score: (m,) int32."""
        return argmax(self.scores(X))

    def without_data(self) -> "OneVsRest":
        """The same models without their data matrix; a change must then bring its `old_values`."""
        return replace(self, models=tuple(model.without_data() for model in self.models))

    def bound(self, change: Change, method: Any = None) -> "OneVsRestBounds":
        """See `jb.bound`: targets of the change are class numbers, and every method of binary models serves."""
        each = zip(self._weighed(), self.changes(change), strict=True)
        return OneVsRestBounds(tuple(bound(model, part, method) for model, part in each), self.classes_)

    def refit(self, change: Change, **options) -> "OneVsRest":
        """See `jb.refit`."""
        each = zip(self._weighed(), self.changes(change), strict=True)
        models = tuple(refit(model, part, **options) for model, part in each)
        return replace(self, models=tuple(map(_with_weights, models, self.models)))

    @in_float64
    def changes(self, change: Change) -> list[Change]:
        """The change as each class sees it: targets +1 for the class, -1 for all others."""
        if isinstance(change, Change):
            change = numbered(self, change)
        check_targets(change, self)
        if self.class_weights is not None:
            parts = readable(change).parts()
            parts, _ = weighted(parts, (None,) * len(parts), self.class_weights, True, self._present)
            change = Combined(parts)
        return [each_target(change, lambda target, k=k: _versus(target, k, self.classes)) for k in range(self.classes)]

    def _weighed(self) -> tuple[Model, ...]:
        """The models as `changes` speaks to them: with the weights of the classes in every change already."""
        if self.class_weights is None:
            return self.models
        found = _WEIGHED.get(self)
        if found is None:
            found = tuple(_with_weights(model, None) for model in self.models)
            if not is_traced(self):
                _WEIGHED[self] = found  # bounds remember what they know of a model
        return found

    def _present(self, rows):
        """The class numbers and weights of rows, see `class_weights.Present`."""
        each = [present_of(model)(rows) for model in self.models]
        return argmax(xp.stack([target for target, _ in each], axis=1)).astype(xp.float64), each[0][1]


_WEIGHED: "weakref.WeakKeyDictionary[OneVsRest, tuple[Model, ...]]" = weakref.WeakKeyDictionary()


def _with_weights(model: Model, like: Model | None) -> Model:
    """The model with the class weights of another, or with none."""
    if model.inputs is None:
        return model
    weights = None if like is None or like.inputs is None else like.inputs.class_weights
    return replace(model, inputs=replace(model.inputs, class_weights=weights))


def _versus(target, k: int, classes: int):
    """+1 for class k, -1 for another; NaN, which is invalid, for what is no class."""
    target = readable(target)
    return put(xp.where(is_class(target, classes), xp.where(target == k, 1.0, -1.0), xp.nan))


@pytree
class OneVsRestBounds:
    """Guaranteed intervals for the K binary models that retraining on the changed data would give.

    The K new optima lie in K sets that do not depend on each other, so the range of a difference x.(w_k - w_l) is that
    of the scores' intervals, and a label is certain where the winner's lower end is above all other upper ends.

    Attributes:
        bounds: tuple of the K models' `Bounds`.
        classes_: of the model.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> X, y = np.repeat(np.eye(3), 4, axis=0), np.repeat([0, 1, 2], 4)
        >>> model = jb.fit_one_vs_rest(jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1)), X, y)
        >>> bounds = jb.bound(model, jb.set_targets([0], [1]))
        >>> bounds.labels(np.eye(3)).tolist(), bounds.scores(np.eye(3)).lower.shape
        ([0, 1, 2], (3, 3))
    """

    bounds: tuple[Bounds, ...]
    classes_: tuple | None = static(default=None)

    @published
    def w(self, j=None):
        """Interval (K, d) for every coefficient, or (K,) and the shape of j for those of columns j; see `Bounds.w`."""
        return self._each(lambda part: part.w(j), 0)

    @published
    def scores(self, X):
        """Interval (m, K) for the retrained scores of each row of X (m, d); d counts old and added columns."""
        matrix = self._rows(X)
        return self._each(lambda part: part.scores(matrix), 1)

    @property
    @published
    def intercept(self):
        """Interval (K,) of the intercepts, 0 without one."""
        return self._each(lambda part: part.intercept, 0)

    @property
    @published
    def distance(self):
        """Interval for the distance of all coefficients, the root of the sum over classes of ||w_new - w_old||^2."""
        lower, upper = self._each(lambda part: part.distance, 0)
        k = len(self.bounds) + 2
        return norm_down(xp.sum(lower**2), k), norm_up(xp.sum(upper**2), k)

    @in_float64
    def labels(self, X):
        """Certified class numbers (m,) int32, -1 where these bounds do not decide."""
        matrix = self._rows(X)
        return put(class_labels(*self._each(lambda part: part.scores(matrix), 1)))

    @in_float64
    def decided(self, X):
        """Whether the class of each row is certain: (m,) bool."""
        return self.labels(X) >= 0

    @property
    def status(self):
        """int32: the first that is not CONVERGED, as `jb.Status` numbers them."""
        codes = xp.stack([part.status for part in self.bounds])
        return xp.max(xp.where(codes == Status.INVALID, Status.INVALID + 100, codes)) % 100

    def _rows(self, X):
        """The rows as a matrix of the models, read once for all of them."""
        first = self.bounds[0]
        return rows_of(first.model, X, first.parts[0][0].d, on_host(first.model, first.parts, X))

    def _each(self, ask, axis: int):
        found: list[Interval] = [ask(part) for part in self.bounds]
        ends = [[part.lower for part in found], [part.upper for part in found]]
        return tuple(xp.stack([xp.asarray(end) for end in side], axis=axis) for side in ends)


@in_float64
def fit_one_vs_rest(problem: Problem, X, y, *, classes: int | None = None, **options) -> OneVsRest:
    """Train one binary model for each class, which tells it from all others.

    Args:
        problem: with a margin loss, such as logistic; the same for every class.
        X: (n, d) data of any kind that `fit` takes.
        y: (n,) class numbers 0, ..., K - 1, or words or other whole numbers, whose classes are then numbered in the
            order of np.unique; see `OneVsRest.classes_` and `decode_labels`.
        classes: K where y holds class numbers, for classes without rows; by default those of y.
        options: those of `fit`, as `sample_weight` and `tol`; `warm_start` is an `OneVsRest`.

    Returns:
        OneVsRest. `bound` on it gives certified class numbers.

    Raises:
        ValueError, TypeError: as `fit`; y holds something else than class numbers, or the loss has no margin.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> X, y = np.repeat(np.eye(3), 4, axis=0), np.repeat([0, 1, 2], 4)
        >>> model = jb.fit_one_vs_rest(jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1)), X, y)
        >>> jb.bound(model, jb.remove_rows([5])).decided(np.eye(3)).tolist()
        [True, True, True]

    Source: Rifkin and Klautau 2004.
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be a jb.Problem, got {type(problem).__name__}")
    if getattr(problem.loss, "classification", None) is False:
        raise ValueError(
            f"one-vs-rest needs a margin loss, and {problem.loss.name} is not one; use for example jb.losses.logistic"
        )
    problem.check()
    classes = None if classes is None else as_whole(classes, "classes", 2, none="for the largest number in y plus 1")
    inputs, matrix = frame_inputs(X), as_matrix(X)
    y, own = _numbered_classes(y, matrix.shape[0], classes)
    if classes is None:
        classes = int(np.max(np.asarray(y))) + 1
        if classes < 2:
            raise ValueError(f"one-vs-rest needs at least 2 classes, and y holds {classes}; give classes=")
    start = options.pop("warm_start", None)
    if start is not None and (not isinstance(start, OneVsRest) or start.classes != classes):
        raise ValueError(f"warm_start must be an OneVsRest of {classes} classes")
    models = []
    for k in range(classes):
        if start is not None:
            options["warm_start"] = start.models[k]
        model = fit(problem, matrix, xp.where(y == k, 1.0, -1.0), **options)
        models.append(replace(model, inputs=inputs))
    return OneVsRest(tuple(models), own)


def _numbered_classes(y: Any, n: int, classes: int | None) -> tuple[Any, tuple | None]:
    """(class numbers, the classes as they were given, None if they are these numbers)."""
    words = None if isinstance(y, str) else text(y)
    if words is not None:
        found, y = np.unique(words, return_inverse=True)
        if classes not in (None, found.size):
            raise ValueError(f"y holds {found.size} different words, and classes is {classes}; leave it out, or number "
                             "the classes from 0")  # fmt: skip
        return y.astype(np.float64), tuple(found.tolist())
    if classes is not None or is_traced(y):
        if classes is None:
            raise ValueError("classes is needed where y is traced: its largest number is not known there")
        return as_classes(y, n, classes), None
    numbers = np.asarray(as_classes(y, n, any_number=True))
    found, y = np.unique(numbers, return_inverse=True)
    same = np.array_equal(found, np.arange(found.size))
    return y.astype(np.float64), None if same else tuple(int(label) for label in found)
