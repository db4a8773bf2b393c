"""Penalties as points (lambda, mu) of one family lam = lambda m, l1 = mu k, and trial points between trained models."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxbounds.certificates.penalty_cells import Cells, Rows, Training, cell_scores, try_points
from jaxbounds.penalties import L2, ElasticNet
from jaxbounds.rounding import U

NEAR = 4  # models that a trial point is interpolated from
_NUMBERS = 1 << 22  # numbers that one batch of cells may hold in each of its arrays


@dataclass(frozen=True)
class Family:
    """L2 (k None) and elastic net penalties lam = lambda m, l1 = mu k.

    Attributes:
        metric: (d,) m. l1: (d,) k or None. models: (M, 2) the (lambda, mu) of trained models; targets: (L, 2).
    """

    metric: np.ndarray
    l1: np.ndarray | None
    models: np.ndarray
    targets: np.ndarray


def family_of(penalties, batch, d: int) -> Family | None:
    """The family of trained models' penalties and of a batch of L more (leading axis), None if they have none."""
    every = [*penalties, batch]
    if not all(isinstance(penalty, L2 | ElasticNet) for penalty in every):
        return None
    lam = _multiples([penalty.lam for penalty in penalties], batch.lam, d)
    l1 = _multiples([getattr(penalty, "l1", np.zeros(())) for penalty in penalties],
                    getattr(batch, "l1", np.zeros(np.shape(batch.lam)[:1])), d)  # fmt: skip
    if lam is None or l1 is None:
        return None
    M = len(penalties)
    points = np.stack([lam[0], l1[0]], axis=1)
    return Family(lam[1], l1[1] if points[:, 1].any() else None, points[:M], points[M:])


def _multiples(singles, batch, d: int):
    """(factors, base (d,)) with every parameter = factor * base, None if they are not multiples of one vector."""
    rows = np.stack([np.broadcast_to(np.asarray(one, float), (d,)) for one in singles])
    batch = np.asarray(batch, float)
    more = np.broadcast_to(batch[:, None], (batch.shape[0], d)) if batch.ndim == 1 else batch
    values = np.concatenate([rows, more])
    if all(np.ndim(one) == 0 for one in singles) and batch.ndim == 1:
        return values[:, 0], np.ones(d)
    positive = np.flatnonzero(values.any(axis=1))
    if not positive.size:
        return values[:, 0], np.ones(d)
    base = values[positive[0]]
    at = int(np.argmax(base))
    factors = values[:, at] / base[at]
    apart = np.abs(values - factors[:, None] * base[None, :])
    return (factors, base) if np.all(apart <= 4 * U * values) else None


def coordinates(points: np.ndarray) -> np.ndarray:
    """(N, 2) log lambda and log mu (from 1e-6 lambda on), in which the optimum moves smoothly."""
    lam, l1 = points.T
    return np.stack([np.log(lam), np.log(l1 + 1e-6 * lam)], axis=1)


def interpolation(models: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """(M, K) weights, summing to one, that interpolate from the nearest models; any weights are sound.

    A polynomial in log lambda where all models lie on a curve, else a linear function of both coordinates.
    """
    at, to = coordinates(models), coordinates(targets)
    moving = np.ptp(np.concatenate([at, to]), axis=0) > 0
    at, to = at[:, moving], to[:, moving]
    curve = at.shape[1] <= 1 or np.linalg.matrix_rank(np.concatenate([at, to]) - at[:1], tol=1e-9) <= 1
    weights = np.zeros((len(at), len(to)))
    for k, target in enumerate(to):
        shift = at - target[None, :]
        apart = np.linalg.norm(shift, axis=1)
        near = np.argsort(apart, kind="stable")[:NEAR]
        if curve:
            axis = shift[near][:, np.argmax(np.ptp(np.concatenate([at, to]), axis=0))] if at.shape[1] else np.zeros(1)
            axis = axis / max(np.max(np.abs(axis)), 1e-300)
            basis = np.stack([axis**power for power in range(np.unique(axis).size)])
        else:
            basis = np.concatenate([np.ones((1, near.size)), shift[near].T])
        weights[near, k] = np.linalg.lstsq(basis, np.eye(len(basis))[0], rcond=None)[0]
    return weights


def chord(models: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """(M, K) convex weights: linear between the two nearest models on either side in lambda, else the nearest one."""
    at, to = coordinates(models), coordinates(targets)
    weights = np.zeros((len(at), len(to)))
    for k, target in enumerate(to):
        apart = np.linalg.norm(at - target[None, :], axis=1)
        first = int(np.argmin(apart))
        beyond = np.where((at - target[None, :]) @ (at[first] - target) < 0, apart, np.inf)
        other = int(np.argmin(beyond))
        share = 0.0 if np.isinf(beyond[other]) else (models[first, 0] - targets[k, 0])
        span = models[first, 0] - models[other, 0]
        share = min(max(share / span, 0.0), 1.0) if share and span else 0.0
        weights[first, k] += 1.0 - share
        weights[other, k] += share
    return weights


class Between:
    """Score intervals for cells of penalties, from trial points between trained models."""

    def __init__(self, problem, matrix, y, weight, family: Family, test):
        self.training = Training.of(problem, matrix, y, weight, family.metric, family.l1)
        self.test = Rows.of(test, family.metric)
        self.size = max(1, _NUMBERS // (matrix.shape[0] + 2 * matrix.shape[1] + test.shape[0]))

    def scores(self, points: np.ndarray, w: np.ndarray, alpha: np.ndarray, cells: Cells, middles: np.ndarray):
        """(lower, upper), (K, m) each.

        Args:
            points: (M, 2) the models' (lambda, mu); w: (d, M), alpha: (n, M) theirs.
            cells: K cells of penalties. middles: (K, 2) where in the cells the trial points are made for.
        """
        return self.several(points, w, alpha, [cells], middles)[0]

    def several(self, points, w, alpha, sets: list[Cells], middles) -> list[tuple]:
        """`scores` of several sets of K cells from the same trial points."""
        weights = (interpolation if self.training.smooth else chord)(points, middles)
        found = []
        for start in range(0, len(middles), self.size):
            part = slice(start, start + self.size)
            mixed = None if self.training.smooth else alpha @ weights[:, part]
            trials = try_points(self.training, w @ weights[:, part], mixed)
            pieces = [Cells(cells.lam[:, part], cells.l1[:, part], cells.diagonal) for cells in sets]
            found.append([cell_scores(self.training, trials, piece, self.test) for piece in pieces])
        return [tuple(map(np.concatenate, zip(*each, strict=True))) for each in zip(*found, strict=True)]


def solutions(models) -> tuple[np.ndarray, np.ndarray]:
    """(w (d, M), alpha (n, M)) of trained models, float64."""
    columns: Any = [(np.asarray(one.w, np.float64), np.asarray(one.alpha)) for one in models]
    return np.stack([w for w, _ in columns], axis=1), np.stack([alpha for _, alpha in columns], axis=1)


def path_scores(problem, matrix, y, weight, models, family: Family, test):
    """(lower, upper), (L, m) each, for the family's targets."""
    between = Between(problem, matrix, y, weight, family, test)
    ends = np.broadcast_to(family.targets.T[:, None, :], (2, 2, len(family.targets)))
    cells = Cells(ends[0], ends[1], diagonal=True)
    return between.scores(family.models, *solutions(models), cells, family.targets)
