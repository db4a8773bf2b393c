"""The search behind `best_penalty`: a queue of pieces of the range, cut where the certified lower bound is least."""

import dataclasses
import heapq
import itertools
import warnings
from typing import Any

import numpy as np

from jaxbounds.array import to_host
from jaxbounds.batches import each_penalty
from jaxbounds.certificates.penalty_cells import Cells
from jaxbounds.host import HostMatrix, host_matrix
from jaxbounds.model import Data, Model
from jaxbounds.path_family import Between, Family, solutions
from jaxbounds.penalties import Penalty, elastic_net, l2
from jaxbounds.problem import Problem
from jaxbounds.solvers.fit import FitWarning, fit
from jaxbounds.status import Status
from jaxbounds.sweeps import bound_each
from jaxbounds.validation import error_rate, mean_loss


@dataclasses.dataclass(frozen=True)
class Range:
    """All penalties lam = lambda m, l1 = mu k with (lambda, mu) in a rectangle, or on its diagonal.

    Attributes:
        low, high: (2,) ends of lambda and mu. ray: whether lambda and mu keep their ratio.
    """

    low: np.ndarray
    high: np.ndarray
    metric: Any
    l1: Any
    ray: bool

    @property
    def free(self) -> tuple[int, ...]:
        """The parameters that are cut: one if the range is a curve, none if it is a point."""
        moving = tuple(int(k) for k in np.flatnonzero(self.high > self.low))
        return moving[:1] if self.ray else moving

    @property
    def diagonal(self) -> bool:
        """Whether kappa s is linear along the range (penalty_cells.py)."""
        return len(self.free) < 2

    def at(self, z: np.ndarray) -> np.ndarray:
        """The (lambda, mu) of (N, 2) coordinates in [0, 1]: geometric, linear where the low end is 0."""
        low, high = self.low[None, :], self.high[None, :]
        positive = low > 0
        ratio = np.where(positive, high / np.where(positive, low, 1.0), 1.0)
        values = np.where(positive, low * ratio**z, low + (high - low) * z)
        values = np.clip(values, low, high)
        values = np.where(z <= 0, low, np.where(z >= 1, high, values))
        if self.ray:
            values[:, 1] = values[:, 0] * (self.high[1] / self.high[0])
        return values

    def length(self, low, high) -> np.ndarray:
        """(2,) logarithmic lengths of the sides between coordinates, 0 where nothing is to be cut."""
        positive = self.low > 0
        log = np.log(np.where(positive, self.high / np.where(positive, self.low, 1.0), np.e**4))
        return (high - low) * np.where([k in self.free for k in (0, 1)], log, 0.0)

    def penalty(self, point) -> Penalty:
        """The penalty of one (lambda, mu)."""
        lam = point[0] if self.metric is None else point[0] * self.metric
        if self.l1 is None:
            return l2(lam)
        return elastic_net(lam, point[1] * self.l1)


@dataclasses.dataclass(frozen=True)
class Piece:
    """Coordinates from low to high, (2,) each; the models that were known when it was bounded."""

    low: np.ndarray
    high: np.ndarray
    known: int


class Search:
    """Trained models, and pieces of the range with lower bounds of the validation measure.

    Attributes:
        models, points: trained models and their (lambda, mu). measures: (lower, upper) of each.
        queue: (lower bound, number, Piece), least first.
    """

    def __init__(self, problem: Problem, data: Data, test: HostMatrix, y_test, span: Range, measure: str, cells: int):
        self.problem, self.data, self.span, self.measure, self.cells = problem, data, span, measure, cells
        self.host, self.test, self.y_test = to_host(problem), test, y_test
        matrix: Any = host_matrix(data.matrix)
        target, weight, d = np.asarray(data.target), np.asarray(data.weight), matrix.shape[1]
        metric = np.ones(d) if span.metric is None else span.metric
        l1 = None if span.l1 is None else np.broadcast_to(span.l1, (d,))
        nothing = np.zeros((0, 2))
        family = Family(metric, l1, nothing, nothing)
        self.between = Between(self.host, matrix, target, weight, family, test)
        self.models: list[Model] = []
        self.points: list[np.ndarray] = []
        self.measures: list[tuple[float, float]] = []
        self.queue: list[tuple[float, int, Piece]] = []
        self.count = itertools.count()

    @property
    def best(self) -> int:
        """The number of the model with the least upper bound."""
        return int(np.argmin([upper for _, upper in self.measures]))

    @property
    def lower(self) -> float:
        """No penalty of the range has a validation measure below this."""
        return self.queue[0][0]

    @property
    def upper(self) -> float:
        """The upper bound of the best model."""
        return self.measures[self.best][1]

    def run(self, eps: float, max_models: int, callback, warm_start, options) -> Status:
        """Train and cut until the best model is within eps of every bound."""
        for z in itertools.product(*([0.0, 1.0][::-1] if k in self.span.free else [0.0] for k in (0, 1))):
            self._train(np.array(z), warm_start, options)
        self._push(-np.inf, np.zeros(2), np.ones(2))
        while not self.upper - self.lower <= eps:
            lower, _, piece = self.queue[0]
            if piece.known < len(self.models):  # models trained since may raise its bound
                heapq.heappop(self.queue)
                self._push(lower, piece.low, piece.high)
                continue
            if len(self.models) >= max_models:
                return Status.MAX_STEPS
            lengths = self.span.length(piece.low, piece.high)
            side = int(np.argmax(lengths))
            middle = (piece.low + piece.high) / 2
            if lengths[side] <= 1e-12:
                return Status.STALLED
            heapq.heappop(self.queue)
            self._train(middle, self.models[self._nearest(middle)], options)
            for low, high in ((piece.low[side], middle[side]), (middle[side], piece.high[side])):
                part = piece.low.copy(), piece.high.copy()
                part[0][side], part[1][side] = low, high
                self._push(lower, *part)
            if callback is not None and callback(self._news()):
                return Status.MAX_STEPS
        return Status.CONVERGED

    def _news(self) -> dict:
        return {"n_trained": len(self.models), "penalty": self.models[-1].problem.penalty, "lower": self.lower,
                "upper": self.upper}  # fmt: skip

    def _nearest(self, z) -> int:
        apart = np.log(np.array(self.points)[:, 0]) - np.log(self.span.at(z[None, :])[0, 0])
        return int(np.argmin(np.abs(apart)))

    def _train(self, z, warm_start, options) -> None:
        """Train at coordinates z, and bound the measure of the exact optimum there."""
        point = self.span.at(z[None, :])[0]
        problem = dataclasses.replace(self.problem, penalty=self.span.penalty(point))
        data = self.data
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)  # what is left of the gap is in the bounds
            model = fit(problem, data.matrix, data.target, sample_weight=data.weight, warm_start=warm_start, **options)
        self.models.append(model)
        self.points.append(point)
        ends = np.broadcast_to(point[:, None, None], (2, 2, 1))
        cells = Cells(ends[0], ends[1], diagonal=True)
        lower, upper = self.between.scores(point[None, :], *solutions([model]), cells, point[None, :])
        own: Any = bound_each(model, each_penalty([problem.penalty]), self.test).scores()
        lower, upper = np.maximum(lower, own.lower), np.minimum(upper, own.upper)
        low, high = self._measured(lower, upper)
        self.measures.append((float(low[0]), float(high[0])))

    def _push(self, lower: float, low, high) -> None:
        """Queue a piece with its lower bound, which is at least that of the piece it was cut from."""
        bound = float(np.min(self._measured(*self._scores(low, high))[0]))
        lower = max(lower, bound) if bound == bound else lower
        heapq.heappush(self.queue, (lower, next(self.count), Piece(low, high, len(self.models))))

    def _scores(self, low, high):
        """(lower, upper), (K, m) each: the scores in every cell of a piece."""
        free, span = self.span.free, self.span
        each = max(1, round(self.cells ** (1 / max(len(free), 1))))
        counts = [each if k in free else 1 for k in (0, 1)]
        edges = [np.linspace(low[k], high[k], counts[k] + 1) for k in (0, 1)]
        starts = np.array(list(itertools.product(edges[0][:-1], edges[1][:-1])))
        stops = np.array(list(itertools.product(edges[0][1:], edges[1][1:])))
        first, last, middle = span.at(starts), span.at(stops), span.at((starts + stops) / 2)
        cells = Cells(*(np.stack([first[:, k], last[:, k]]) for k in (0, 1)), diagonal=span.diagonal)
        return self.between.scores(np.array(self.points), *solutions(self.models), cells, middle)

    def _measured(self, lower, upper):
        """(lower, upper), (K,) each, of the validation measure."""
        if self.measure == "error":
            return error_rate(lower, upper, self.y_test)
        return mean_loss(self.host.loss, lower, upper, self.y_test)
