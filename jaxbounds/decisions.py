"""`decide`: climb from the cheapest certificate to a full retraining until a question is answered."""

import time
import warnings
from abc import abstractmethod
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jaxbounds.arguments import as_flag
from jaxbounds.bounds import Bounds, Interval, bound, labels_of
from jaxbounds.certificates import Cached, Curvature, Method, Partial, Pass, SelfConcordant
from jaxbounds.changes import set_penalty
from jaxbounds.classes import ClassModel, not_a_model, or_one_class
from jaxbounds.display import shown
from jaxbounds.host import HostMatrix, matrix_of
from jaxbounds.inputs import rows_of
from jaxbounds.kinds import Change, check_change
from jaxbounds.matrix import as_matrix
from jaxbounds.methods import problem_after
from jaxbounds.model import Model
from jaxbounds.names import NamedRows, frame_columns, numbered
from jaxbounds.problem import as_number
from jaxbounds.pytree import in_float64, is_traced
from jaxbounds.rounding import norm_down, norm_up, up
from jaxbounds.solvers.fit import FitWarning, refit

LADDER: tuple[Method, ...] = (Cached(), SelfConcordant(), Partial(), Pass(), Curvature())
_TOLS = (1e-10, 1e-16)  # of the last rung: usual, and float64's floor
_PARTIAL_GAIN = 8.0  # Partial rarely shrinks an interval more than this


class Question:
    """What a decision is about."""

    @abstractmethod
    def ask(self, bounds: Any) -> "Reply":
        """What is certain by these bounds."""


@dataclass(frozen=True, eq=False)
@shown
class Reply:
    """The answer as far as it is certain, and how far from certain the rest is.

    Attributes:
        answer: labels, True, False, or None.
        final: whether the question is answered.
        open: how many labels (or 1 for a distance) are still open.
        need: by what factor the widest open interval must shrink before it can decide.
    """

    answer: Any
    final: bool
    open: int
    need: float


@dataclass(frozen=True, eq=False)
@shown
class LabelsKnown(Question):
    """Which labels will the retrained model give? Answered when at least a fraction of them is certain.

    A label is the sign of a score, whatever the loss is: for regression whether a prediction is above or below 0.

    Args:
        X: (m, d) test rows, in the columns of `Bounds.scores`; a data frame is read by name if the model has names.
        fraction: share of the labels that must be certain, in (0, 1].

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> jb.LabelsKnown(np.eye(2)).fraction
        1.0
    """

    X: Any
    fraction: float = 1.0

    def __post_init__(self):
        fraction = float(as_number(self.fraction, "fraction"))
        if not 0 < fraction <= 1:
            raise ValueError(f"fraction = {self.fraction} must lie in (0, 1]")
        rows: Any = matrix_of(as_matrix(self.X), True)
        names = frame_columns(self.X)
        object.__setattr__(self, "X", rows.values if names is None else NamedRows(rows.values, names))
        object.__setattr__(self, "fraction", fraction)

    def ask(self, bounds):
        interval = bounds.scores(self.X)
        low, high = np.asarray(interval.lower, float), np.asarray(interval.upper, float)
        labels = np.asarray(labels_of(low, high))
        known = labels != 0
        half, middle = (high - low)[~known] / 2, np.abs(low + high)[~known] / 2
        with np.errstate(all="ignore"):
            need = float(np.max(half / middle, initial=1.0))
        need = np.inf if np.isnan(need) else need
        return Reply(labels, bool(known.mean() >= self.fraction), int((~known).sum()), need)


@dataclass(frozen=True, eq=False)
@shown
class DistanceBelow(Question):
    """Will the retrained coefficients be closer than theta to the old ones? Yes and no are both certified.

    Args:
        theta: a positive number.

    Example:
        >>> import jaxbounds as jb
        >>> jb.DistanceBelow(0.1).theta
        0.1
    """

    theta: float

    def __post_init__(self):
        theta = float(as_number(self.theta, "theta"))
        if not theta > 0:
            raise ValueError(f"theta = {self.theta} must be positive")
        object.__setattr__(self, "theta", theta)

    def ask(self, bounds):
        interval = bounds.distance
        low, high = float(interval.lower), float(interval.upper)
        if high < self.theta or low > self.theta:
            return Reply(high < self.theta, True, 0, 1.0)
        apart = abs((low + high) / 2 - self.theta)
        return Reply(None, False, 1, (high - low) / 2 / apart if apart > 0 else np.inf)


@dataclass(frozen=True, eq=False)
@shown
class Step:
    """One rung that was tried.

    Attributes:
        name: of the method, or "refit".
        seconds: it took.
        radius: upper bound of ||w_new - centre||_2 it gave.
        open: labels (or distances) still undecided after it.
    """

    name: str
    seconds: float
    radius: float
    open: int


@dataclass(frozen=True, eq=False)
@shown
class Decision:
    """The answer to a question, and how it was found.

    Attributes:
        answer: (m,) labels (+1, -1, 0 undecided), or True / False, or None in a tie.
        method: the method that answered, "refit" for retraining.
        bounds: the last bounds (those of the retrained model for "refit").
        steps: what was tried, cheapest first.
        status: "decided", "tie" if even float64's floor leaves the question open, or "open" if the model was stored
            without the data that retraining needs.
    """

    answer: Any
    method: Any
    bounds: Any
    steps: tuple[Step, ...]
    status: str


_SECONDS: dict[str, float] = {}  # least seconds of a unit of work so far, by rung
_TRIES: Counter[str] = Counter()
_LONG = 1.0  # seconds that are worth learning, twice, what retraining takes instead
_SLOW: dict[str, float] = {}  # the least work that took a rung so long


def decide(model: Model, change: Change, question: Question, *, timings: bool = True) -> Decision:
    """Answer a question about the retrained model at the least cost: from Cached to Curvature, then retraining.

    Stops at the first rung that answers. Rungs that do not apply to the problem are left out, and so are rungs that,
    by past timings, cost more than a tighter one or could not shrink the intervals enough. Timings never change the
    certified answer, only which rungs are tried.

    Args:
        model: from `fit`. change: any change. question: `LabelsKnown(X)` or `DistanceBelow(theta)`.
        timings: False to try every rung in order.

    Returns:
        Decision. What float64 cannot settle is 0 or None with status "tie".

    Raises:
        TypeError: an argument has the wrong kind, or a tracer. ValueError: the change does not fit the model.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0))
        >>> model = jb.fit(problem, np.eye(2), np.ones(2))
        >>> decision = jb.decide(model, jb.set_targets([0], [2.0]), jb.DistanceBelow(1.0))
        >>> decision.answer, decision.method
        (True, Cached())
    """
    as_flag(timings, "timings")
    if not isinstance(question, Question):
        raise TypeError(f"question must be LabelsKnown(X) or DistanceBelow(theta), got {type(question).__name__}")
    if is_traced(model, change):
        raise TypeError("decide runs on the host; inside jit, vmap or grad use bound")
    if isinstance(model, ClassModel):
        raise TypeError("decide answers for models of one score; for several classes ask jb.bound(...).decided(X)"
                        + or_one_class(model))  # fmt: skip
    if not isinstance(model, Model):
        raise TypeError(not_a_model(model))
    check_change(change)
    change = numbered(model, change)
    problem = problem_after(model.problem, change)
    rungs = [m for m in LADDER if m.applies(problem) and m.missing(model, change) is None]
    steps: list[Step] = []
    reply: Any = None
    last = [] if model.data is None else ["refit"]
    for k, method in enumerate(rungs):
        later = [type(other).__name__ for other in rungs[k + 1 :]] + last
        if timings and reply is not None and _skip(method, later, model, reply):
            continue
        bounds, reply, step = _try(type(method).__name__, lambda m=method: bound(model, change, m), question, model)
        steps.append(step)
        if reply.final:
            return Decision(reply.answer, method, bounds, tuple(steps), "decided")
    if model.data is None:
        return Decision(reply.answer, rungs[-1], bounds, tuple(steps), "open")
    for tol in _TOLS:
        run = lambda t=tol: Retrained.of(model, change, t, question)  # noqa: E731
        retrained, reply, step = _try("refit", run, question, model)
        steps.append(step)
        if reply.final:
            break
    status = "decided" if reply.final else "tie"
    return Decision(reply.answer, "refit", retrained.bounds, tuple(steps), status)


def _try(name: str, run, question: Question, model: Model):
    start = time.perf_counter()
    bounds = run()
    reply = question.ask(bounds)
    seconds = time.perf_counter() - start
    _SECONDS[name] = min(_SECONDS.get(name, np.inf), seconds / _work(name, model))  # the first also compiles
    _TRIES[name] += 1
    if seconds > _LONG:
        _SLOW[name] = min(_SLOW.get(name, np.inf), _work(name, model))
    return bounds, reply, Step(name, seconds, float(bounds.radius), reply.open)


def _work(name: str, model: Model) -> float:
    """Numbers that a rung reads, about; only their ratios between models matter."""
    n, d = model.alpha.shape[0], model.w.shape[0]
    entries = n * d if model.data is None else n * model.row_terms
    light = {"Cached": n + d, "SelfConcordant": d * d, "Partial": n + d, "Pass": entries, "refit": entries}
    return light.get(name, float(entries) * min(n, d)) + 1e4


def _skip(method: Method, later: list[str], model: Model, reply: Reply) -> bool:
    """Whether a tighter rung is cheaper by past timings, or this one cannot shrink the intervals enough."""
    name = type(method).__name__
    if isinstance(method, Partial) and reply.need > _PARTIAL_GAIN and later:
        return True
    if name not in _SECONDS:
        return False
    here, slow = _SECONDS[name] * _work(name, model), _work(name, model) >= _SLOW.get(name, np.inf) / 2
    if slow and "refit" in later and _TRIES["refit"] < 2:
        return True
    quicker = [other for other in later if other in _SECONDS and _SECONDS[other] * _work(other, model) < here]
    return any(slow or other != "refit" for other in quicker)


@dataclass(frozen=True, eq=False)
@shown
class Retrained:
    """Bounds around a retrained model, in the old model's numbering."""

    bounds: Bounds  # of the retrained model on its own data
    w: np.ndarray  # its coefficients in the old numbering
    old: np.ndarray
    kept: np.ndarray
    model: Model  # the old one

    @staticmethod
    @in_float64
    def of(model: Model, change: Change, tol: float, question: Question) -> "Retrained":
        """Retrain, and bound what is left of the gap: by Curvature if the question needs it."""
        maps = bound(model, change, Cached())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)  # the floor may lie above tol: the bounds say so
            new = refit(model, change, tol=tol)
        same = set_penalty(new.problem.penalty)
        known = Curvature().applies(new.problem) and Curvature().missing(new, same) is None
        column_map = np.asarray(maps.column_map)
        kept = np.flatnonzero(column_map >= 0)
        w, old = np.zeros(len(column_map)), np.zeros(len(column_map))
        w[kept], old[: model.w.shape[0]] = np.asarray(new.w, float), np.asarray(model.w, float)
        found = Retrained(bound(new, same), w, old, kept, model)
        if known and not question.ask(found).final:
            found = replace(found, bounds=bound(new, same, Curvature()))
        return found

    @property
    def radius(self):
        """Upper bound of ||w_new - centre||_2."""
        return self.bounds.radius

    def scores(self, X) -> Any:
        """Interval of x.w_new for rows in the old numbering."""
        matrix: Any = rows_of(self.model, X, len(self.w), True)
        return self.bounds.scores(HostMatrix(matrix.values[:, self.kept]))

    @property
    def distance(self) -> Interval:
        """Interval of ||w_new - w_old||_2."""
        interval: Any = self.bounds.w()
        low, high = np.zeros_like(self.w), np.zeros_like(self.w)
        low[self.kept], high[self.kept] = np.asarray(interval.lower, float), np.asarray(interval.upper, float)
        near = np.maximum(np.maximum(low - self.old, self.old - high), 0.0)
        far = np.maximum(np.abs(high - self.old), np.abs(self.old - low))
        own: Any = self.bounds.distance
        moved = float(own.upper)  # from the retrained w to the optimum
        k = len(self.w) + 8  # a difference rounds once more
        apart = np.sum((self.w - self.old) ** 2)
        lower = max(norm_down(np.sum(near**2), k), norm_down(apart, k) - up(moved))
        return Interval(lower, up(min(norm_up(np.sum(far**2), k), norm_up(apart, k) + moved)))
