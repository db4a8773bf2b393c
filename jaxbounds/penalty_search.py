"""The search behind `best_penalty`: pieces of the range, cut or given a new model where their lower bound is least."""

import dataclasses
import itertools
import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp

from jaxbounds.array import to_host
from jaxbounds.batches import each_penalty
from jaxbounds.certificates.penalty_cells import Cells
from jaxbounds.host import HostMatrix, host_matrix
from jaxbounds.model import Data, Model
from jaxbounds.path_family import NEAR, Between, Family, coordinates, interpolation, solutions
from jaxbounds.penalties import Penalty, elastic_net, l2
from jaxbounds.problem import Problem
from jaxbounds.rounding import TINY
from jaxbounds.solvers.fit import FitWarning, fit
from jaxbounds.status import Status
from jaxbounds.sweeps import bound_each
from jaxbounds.trial_points import refined
from jaxbounds.validation import error_rate, mean_loss

_LEAST = 1e-12  # in log lambda: shorter pieces are not cut, nearer models not trained
_ROUNDS = 12  # of cutting before the next point is refined, or the next model trained, in any case
_SHARE = 0.7  # of the width of a piece's intervals; if more is left at its middle, cutting does not help
_WIDE = 1e100  # infinite widths count as this
_GAIN, _LAST_GAIN = 0.5, 0.1  # of eps: what a new model must promise on the way, and at the end


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
    """Coordinates from low to high, (2,) each.

    Attributes:
        lower: of the validation measure in all of it. inside, most: its least and largest value at the middle alone,
            from the same trial point.
        share: of the width of its scores' intervals that the middle alone has.
        reach: distance within which a new node enters its trial point. stale: whether one has come.
    """

    low: np.ndarray
    high: np.ndarray
    lower: float
    inside: float
    most: float
    share: float
    reach: float
    stale: bool

    @property
    def middle(self) -> np.ndarray:
        return (self.low + self.high) / 2


@dataclasses.dataclass(frozen=True)
class Node:
    """A point (lambda, mu), and coefficients near its optimum: of a trained model (with its alpha), or refined."""

    point: np.ndarray
    w: np.ndarray
    alpha: Any


class Search:
    """Trained models, and pieces of the range with lower bounds of the validation measure.

    A piece whose bound is too low is cut if the bound at its middle alone would do, since then its length is to blame;
    else the trial point is. Where no piece is left to cut, the trial point that does worst takes Newton steps and joins
    the nodes that trial points are interpolated from; where that was done, the next model is trained.

    Attributes:
        models, points: trained models and their (lambda, mu). measures: (lower, upper) of each.
        nodes: models and refined trial points, `n_refined` of them. pieces: what the range was cut into.
    """

    def __init__(self, problem: Problem, data: Data, test: HostMatrix, y_test, span: Range, measure: str, cells: int):
        self.problem, self.data, self.span, self.measure, self.cells = problem, data, span, measure, cells
        self.host, self.test, self.y_test = to_host(problem), test, y_test
        matrix: Any = host_matrix(data.matrix)
        target, weight, d = np.asarray(data.target), np.asarray(data.weight), matrix.shape[1]
        # coefficients of empty columns are 0 under every penalty
        self.columns = np.unique(matrix.values.indices) if sp.issparse(matrix.values) else slice(None)
        metric = (np.ones(d) if span.metric is None else np.broadcast_to(span.metric, (d,)))[self.columns]
        l1 = None if span.l1 is None else np.broadcast_to(span.l1, (d,))[self.columns]
        nothing = np.zeros((0, 2))
        family = Family(metric, l1, nothing, nothing)
        matrix, small = (HostMatrix(part.values[:, self.columns]) for part in (matrix, test))
        self.between = Between(self.host, matrix, target, weight, family, small)
        self.models: list[Model] = []
        self.points: list[np.ndarray] = []
        self.measures: list[tuple[float, float]] = []
        self.nodes: list[Node] = []
        self.n_refined = 0
        self.pieces: list[Piece] = []

    @property
    def best(self) -> int:
        """The number of the model with the least upper bound."""
        return int(np.argmin([upper for _, upper in self.measures]))

    @property
    def lower(self) -> float:
        """No penalty of the range has a validation measure below this."""
        return min(piece.lower for piece in self.pieces)

    @property
    def upper(self) -> float:
        """The upper bound of the best model."""
        return self.measures[self.best][1]

    def run(self, eps: float, max_models: int, callback, warm_start, options) -> Status:
        """Train and cut until the best model is within eps of every bound."""
        most_refined = max_models if self.between.training.smooth else 0
        for z in itertools.product(*([0.0, 1.0][::-1] if k in self.span.free else [0.0] for k in (0, 1))):
            self._train(np.array(z), warm_start, options)
        self.pieces = self._bounded([Piece(np.zeros(2), np.ones(2), -np.inf, -np.inf, np.inf, 1.0, np.inf, True)])
        rounds = 0
        while True:
            low = [piece for piece in self.pieces if not self.upper - piece.lower <= eps]
            ready = [piece for piece in low if piece.stale or self._to_cut(piece, eps)]
            if ready and rounds < _ROUNDS:
                self._bound(sorted(ready, key=lambda piece: piece.lower)[: self.cells])
                rounds += 1
                continue
            rounds = 0
            worst = self._better(eps * (_GAIN if low else _LAST_GAIN))
            if worst is None and not low:
                return Status.CONVERGED
            if worst is None:
                worst = min(low, key=lambda piece: (piece.inside, -self._from_nodes(piece.middle).min()))
                if self.n_refined < most_refined and self._from_nodes(worst.middle).min() > _LEAST:
                    self._refine(worst.middle)
                    continue
            if len(self.models) >= max_models:
                return Status.MAX_STEPS if low else Status.CONVERGED
            apart = self._apart(self.points, worst.middle)
            if apart.min() <= _LEAST:  # its model is there, and not exact enough
                if not self._long(worst):
                    return Status.STALLED
                self._bound([worst])
                continue
            self._train(worst.middle, self.models[int(np.argmin(apart))], options)
            if callback is not None and callback(self._news()):
                return Status.MAX_STEPS if low else Status.CONVERGED

    def _better(self, gain: float) -> Piece | None:
        """The piece with the best middle, where a model would be better by more than `gain` than the best so far."""
        best = min(self.pieces, key=lambda piece: piece.most)
        fresh = self._apart(self.points, best.middle).min() > _LEAST
        return best if best.most < self.upper - gain and fresh else None

    def _bound(self, chosen: list[Piece]) -> None:
        """Bound pieces afresh that have new models near by, and the halves of the others."""
        parts = []
        for piece in chosen:
            if piece.stale:
                parts.append(piece)
                continue
            side, middle = int(np.argmax(self.span.length(piece.low, piece.high))), piece.middle
            for low, high in ((piece.low[side], middle[side]), (middle[side], piece.high[side])):
                ends = piece.low.copy(), piece.high.copy()
                ends[0][side], ends[1][side] = low, high
                parts.append(dataclasses.replace(piece, low=ends[0], high=ends[1]))
        gone = set(map(id, chosen))
        self.pieces = [piece for piece in self.pieces if id(piece) not in gone] + self._bounded(parts)

    def _to_cut(self, piece: Piece, eps: float) -> bool:
        """Whether its length is to blame for the bound of a piece, and it can be cut."""
        enough = self.upper - piece.inside <= eps or not self.between.training.smooth  # such points are not refined
        return enough and piece.share <= _SHARE and self._long(piece)

    def _long(self, piece: Piece) -> bool:
        """Whether the piece can be cut."""
        return bool(np.max(self.span.length(piece.low, piece.high)) > _LEAST)

    def _news(self) -> dict:
        return {"n_trained": len(self.models), "penalty": self.models[-1].problem.penalty, "lower": self.lower,
                "upper": self.upper}  # fmt: skip

    def _apart(self, points, z) -> np.ndarray:
        """Distances of points from coordinates z."""
        return np.linalg.norm(coordinates(np.array(points)) - coordinates(self.span.at(z[None, :])), axis=1)

    def _from_nodes(self, z) -> np.ndarray:
        """Distances of the nodes from coordinates z."""
        return self._apart([node.point for node in self.nodes], z)

    def _add(self, point, w, alpha=None) -> None:
        """A new node, in place of one at the same point."""
        self.nodes = [node for node in self.nodes if not np.array_equal(node.point, point)]
        self.nodes.append(Node(point, w, alpha))
        if self.pieces:
            middles = self.span.at(np.array([piece.middle for piece in self.pieces]))
            apart = np.linalg.norm(coordinates(middles) - coordinates(point[None, :]), axis=1)
            self.pieces = [
                dataclasses.replace(piece, stale=True) if near < piece.reach else piece
                for piece, near in zip(self.pieces, apart, strict=True)
            ]

    def _refine(self, z) -> None:
        """One more node: the trial point at coordinates z after Newton steps."""
        point, points = self.span.at(z[None, :]), np.array([node.point for node in self.nodes])
        start = np.stack([node.w for node in self.nodes], axis=1) @ interpolation(points, point)[:, 0]
        self.n_refined += 1
        self._add(point[0], refined(self.between.training, start, *point[0]))

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
        (w,), (alpha,) = (part.T for part in solutions([model]))
        self._add(point, w[self.columns], alpha)
        ends = np.broadcast_to(point[:, None, None], (2, 2, 1))
        cells = Cells(ends[0], ends[1], diagonal=True)
        lower, upper = self.between.scores(point[None, :], w[self.columns, None], alpha[:, None], cells, point[None, :])
        own: Any = bound_each(model, each_penalty([problem.penalty]), self.test).scores()
        lower, upper = np.maximum(lower, own.lower), np.minimum(upper, own.upper)
        low, high = self._measured(lower, upper)
        self.measures.append((float(low[0]), float(high[0])))

    def _bounded(self, parts: list[Piece]) -> list[Piece]:
        """The pieces with bounds from the models so far, at least those that they come with."""
        low, high, middle = (
            self.span.at(np.array([getattr(part, name) for part in parts])) for name in ("low", "high", "middle")
        )
        whole = Cells(*(np.stack([low[:, k], high[:, k]]) for k in (0, 1)), diagonal=self.span.diagonal)
        inside = Cells(*(np.stack([middle[:, k]] * 2) for k in (0, 1)), diagonal=True)
        points, w = np.array([node.point for node in self.nodes]), np.stack([node.w for node in self.nodes], axis=1)
        alpha = None if self.between.training.smooth else np.stack([node.alpha for node in self.nodes], axis=1)
        found = self.between.several(points, w, alpha, [whole, inside], middle)
        (lower, _), (inside, most) = (self._measured(*ends) for ends in found)
        lower, inside = (np.where(np.isnan(end), -np.inf, end) for end in (lower, inside))
        most = np.where(np.isnan(most), np.inf, most)
        width, at_middle = (np.sum(np.minimum(upper - lower, _WIDE), axis=1) for lower, upper in found)
        share, reach = at_middle / np.maximum(width, TINY), np.full(len(parts), np.inf)
        if len(self.nodes) >= NEAR:
            apart = np.linalg.norm(coordinates(middle)[:, None] - coordinates(points)[None, :], axis=2)
            reach = np.sort(apart, axis=1)[:, NEAR - 1]
        return [
            Piece(part.low, part.high, max(part.lower, float(values[0])), *values[1:], stale=False)
            for part, values in zip(parts, np.stack([lower, inside, most, share, reach], axis=1).tolist(), strict=True)
        ]

    def _measured(self, lower, upper):
        """(lower, upper), (K,) each, of the validation measure."""
        if self.measure == "error":
            return error_rate(lower, upper, self.y_test)
        return mean_loss(self.host.loss, lower, upper, self.y_test)
