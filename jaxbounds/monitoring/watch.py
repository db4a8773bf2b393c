"""What a monitor has to certify of the deployed model, and what discs and bounds say about it."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jaxbounds.bounds import bound
from jaxbounds.certificates import Curvature
from jaxbounds.changes import set_penalty
from jaxbounds.display import shown
from jaxbounds.host import HostMatrix
from jaxbounds.model import Model
from jaxbounds.monitoring.committed import Committed
from jaxbounds.problem import as_number
from jaxbounds.rounding import down, growth, norm_down, norm_up, up

_CURVATURE = 1e9  # entries times the shorter side, about what Curvature multiplies, up to which it is tried


@dataclass(frozen=True)
@shown
class Push:
    """What `Monitor.push` says of the deployed model, on the data after the push.

    Attributes:
        certified: whether the deployed model is certified; what is not decided is not.
        answer: True: certified to be within theta and to keep all watched labels. False: certified not to.
            None: these bounds do not decide.
        method: the name of the method that answered, or of the last one that was tried.
        lower, upper: of ||w_new - w||_2, w_new being what retraining on all data so far would give.
        open: watched labels that are not decided. broken: watched labels that retraining is certain to change.
        rows: lifetime numbers of the rows that the push added: the first one, and one past the last.
        number: of the push, counting from 1.
        seconds: it took. retrained: whether the monitor then retrained and deployed the new model.
    """

    answer: bool | None
    method: str
    lower: float
    upper: float
    open: int
    broken: int
    rows: tuple[int, int]
    number: int
    seconds: float
    retrained: bool = False

    @property
    def certified(self) -> bool:
        """Whether the deployed model is certified; what is not decided is not."""
        return self.answer is True

    @staticmethod
    def of(record: dict[str, Any]) -> "Push":
        """From its record in the trail."""
        fields: Any = {key: record[key] for key in Push.__dataclass_fields__}
        fields["rows"] = tuple(record["rows"])
        return Push(**fields)


@dataclass(frozen=True, eq=False)
class Answer:
    """What is certain of the deployed model, see `Push`.

    `near`: all watched labels are certain because w* is close to w^. `low`, `high`: the watched scores, if computed.
    """

    answer: bool | None
    lower: float
    upper: float
    open: int
    broken: int
    near: bool
    low: Any
    high: Any

    def and_also(self, other: "Answer", watch: "Watch") -> "Answer":
        """Both hold: the intersection of all intervals."""
        lower, upper = max(self.lower, other.lower), min(self.upper, other.upper)
        low, high = self.low, self.high
        if other.low is not None:
            low = other.low if low is None else np.maximum(low, other.low)
            high = other.high if high is None else np.minimum(high, other.high)
        return watch.judge(lower, upper, low, high, self.near or other.near)


@dataclass(frozen=True, eq=False)
class Watch:
    """theta and the watched rows; at least one of the two.

    `labels` and `reach` are the deployed labels and a lower bound of |x.w| / ||x||: a model that is closer to w gives
    the same label.
    """

    theta: float | None
    X: HostMatrix | None
    labels: Any = None
    reach: float = np.inf

    @staticmethod
    def of(model: Model, theta: Any, X_watch: Any) -> "Watch":
        """Checked."""
        if theta is None and X_watch is None:
            raise ValueError("nothing to watch: give theta (a tolerance on ||w_new - w||), X_watch (rows), or both")
        if theta is not None:
            theta = float(as_number(theta, "theta"))
            if not theta > 0:
                raise ValueError(f"theta = {theta} must be positive")
        if X_watch is None:
            return Watch(theta, None)
        if not model.problem.loss.classification:
            raise ValueError(f"X_watch is about labels, and the loss {model.problem.loss.name} has none; use theta")
        matrix: Any = model.rows_like(X_watch, True, "X_watch")
        return Watch(theta, matrix).deployed(model)

    def deployed(self, model: Model) -> "Watch":
        """For another deployed model."""
        if self.X is None:
            return self
        w, X = np.asarray(model.w, np.float64), self.X
        score = X.matvec(w) + float(np.asarray(model.intercept))
        reach = np.zeros(1)
        if not model.problem.intercept:
            k = X.row_terms + 4
            pad = growth(k) * up(X.map(np.abs).matvec(np.abs(w)), k)
            length = norm_up(X.map(np.square).matvec(np.ones(w.shape[0])), k)
            reach = down(np.maximum(np.abs(score) - pad, 0.0) / length)
        return replace(self, labels=np.sign(score), reach=float(np.min(reach)))

    def without(self, kept: np.ndarray) -> "Watch":
        """Only the columns marked in `kept` are left; the deployed labels stay, and come from all of them."""
        if self.X is None or kept.all():
            return self
        return replace(self, X=HostMatrix(self.X.values[:, np.flatnonzero(kept)]), reach=0.0)

    def by_disc(self, engine: Committed, gone_sq: float) -> Answer:
        """From the sums alone if that is enough, else with the watched rows' products."""
        disc = engine.disc()
        lower, upper = _with_gone(disc.lower, disc.upper, gone_sq)
        if self.X is None or disc.upper < self.reach:
            return self.judge(lower, upper, None, None, disc.upper < self.reach)
        return self.judge(lower, upper, *engine.scores(disc, self.X), False)

    def climb(
        self, model: Model, methods: Any, gone_sq: float, answer: Answer | None, name: str
    ) -> tuple[Answer, str]:
        """Try methods on a model of the present data until one answers; (what is then known, the last one's name)."""
        same = set_penalty(model.problem.penalty)
        size = float(model.alpha.shape[0]) * model.row_terms * min(model.alpha.shape[0], model.w.shape[0])
        for method in methods:
            usable = method.applies(model.problem) and method.missing(model, same) is None
            if not usable or (isinstance(method, Curvature) and size > _CURVATURE):
                continue
            found = self.by_bounds(bound(model, same, method), gone_sq)
            answer, name = found if answer is None else answer.and_also(found, self), type(method).__name__
            if answer.answer is not None:
                break
        if answer is None:
            answer = self.by_bounds(bound(model, same), gone_sq)
        return answer, name

    def by_bounds(self, bounds: Any, gone_sq: float) -> Answer:
        """From bounds on the retrained model."""
        distance = bounds.distance
        lower, upper = _with_gone(float(distance.lower), float(distance.upper), gone_sq)
        if self.X is None:
            return self.judge(lower, upper, None, None, False)
        interval = bounds.scores(self.X)
        low, high = (np.asarray(end, float) for end in (interval.lower, interval.upper))
        return self.judge(lower, upper, low, high, False)

    def judge(self, lower: float, upper: float, low: Any, high: Any, near: bool) -> Answer:
        """True if all is certain to hold, False if something is certain not to; NaN decides nothing."""
        holds = self.theta is None or upper < self.theta
        fails = self.theta is not None and lower > self.theta
        unknown = broken = 0
        if self.X is not None and not near:
            if low is None:
                unknown = self.X.shape[0]
            else:
                same = ((self.labels > 0) & (low > 0)) | ((self.labels < 0) & (high < 0))
                other = ((self.labels > 0) & (high < 0)) | ((self.labels < 0) & (low > 0))
                unknown, broken = int(np.sum(~(same | other))), int(np.sum(other))
        answer = False if fails or broken else True if holds and not unknown else None
        return Answer(answer, lower, upper, unknown, broken, near, low, high)


def _with_gone(lower: float, upper: float, gone_sq: float) -> tuple[float, float]:
    """Distances that also count the coefficients of removed columns."""
    if gone_sq == 0.0:
        return lower, upper
    return float(norm_down(lower**2 + gone_sq, 8)), float(norm_up(upper**2 + gone_sq, 8))
