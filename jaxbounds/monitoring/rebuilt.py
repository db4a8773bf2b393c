"""The present data of a monitor as a whole, and the memory of the deployed w^ on them: any problem, any change."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from jaxbounds.array import put, to_host
from jaxbounds.edit import prepare
from jaxbounds.host import HostMatrix
from jaxbounds.kinds import AddColumns, Change, RemoveColumns, RemoveRows
from jaxbounds.matrix import as_matrix
from jaxbounds.model import Data, Model, best_intercept, remember
from jaxbounds.problem import Problem
from jaxbounds.pytree import in_float64


@dataclass(frozen=True, eq=False)
class Rebuilt:
    """Data in compact numbers (an ndarray or CSR array, targets, sample weights) and w^ in their columns.

    `count` is what the mean divides by: more than the number of rows if some were removed with keep_n.
    `alpha` is kept for losses that are not smooth; others take a(w^).
    """

    problem: Problem
    X: Any
    target: np.ndarray
    weight: np.ndarray
    w: np.ndarray
    alpha: np.ndarray
    count: int
    gone_sq: float = 0.0  # sum of squares of the deployed coefficients whose columns were removed
    trial: np.ndarray | None = None  # a point closer to the optimum than w^, to measure from

    @property
    def sample_weight(self) -> np.ndarray:
        """Weights with which the mean over the rows is the mean over `count`."""
        n = self.target.shape[0]
        return self.weight * (n / self.count) if self.problem.scale == "mean" and n != self.count else self.weight

    @cached_property
    def model(self) -> Model:
        """The memory of (w^, alpha) on the present data: a few passes over them."""
        return self._remember()

    @in_float64
    def _remember(self) -> Model:
        data = put(Data(as_matrix(self.X), self.target, self.sample_weight))
        w = put(self.w)
        b = best_intercept(self.problem, data, w)
        alpha, ref, loss = self.alpha, None, to_host(self.problem.loss)
        if loss.smoothness is not None:
            score = HostMatrix(self.X).matvec(self.w.astype(np.float64)) + np.asarray(b)
            ref = np.asarray(loss.coordinate(score, self.target))
            alpha = np.asarray(loss.dual(ref, self.target))
        return remember(self.problem, data, w, put(alpha), None if ref is None else put(ref), b=put(b))

    @in_float64
    def after(self, change: Change, count: int) -> "tuple[Rebuilt, np.ndarray, np.ndarray]":
        """What a change makes of it, which rows stay and which columns; the change is checked, in compact numbers."""
        edit = prepare(*to_host((self.model, change)))
        applied: Any = change.apply(self.X, self.target, self.weight)
        X, y, weight = applied
        n, d = self.target.shape[0], self.w.shape[0]
        kept_rows, kept_columns = np.ones(n, bool), np.ones(d, bool)
        added = 0
        for part in change.parts():
            if isinstance(part, RemoveRows):
                kept_rows[np.asarray(part.rows)] = False
            if isinstance(part, RemoveColumns):
                kept_columns[np.asarray(part.cols)] = False
            if isinstance(part, AddColumns):
                added += part.matrix.shape[1]
        w = np.concatenate([self.w[kept_columns], np.zeros(added, self.w.dtype)])
        gone_sq = self.gone_sq + float(np.sum(self.w[~kept_columns].astype(np.float64) ** 2))
        columns = np.concatenate([np.flatnonzero(kept_columns), d + np.arange(added)])
        problem = replace(self.problem, penalty=put(edit.penalty.take(columns)))
        problem.check()
        fresh = Rebuilt(problem, X, y, np.asarray(weight), w, np.zeros(y.shape[0]), count, gone_sq)
        if problem.loss.smoothness is None:
            alpha = np.asarray(problem.loss.dual(problem.loss.coordinate(X @ w.astype(np.float64), y), y)).copy()
            old = self.alpha[kept_rows]
            alpha[: old.shape[0]] = np.asarray(problem.loss.clip(old, y[: old.shape[0]]))
            fresh = replace(fresh, alpha=alpha)
        return fresh, kept_rows, kept_columns


def host_data(matrix: Any) -> Any:
    """A matrix as an ndarray or a CSR array of its own."""
    values = matrix.to_scipy()
    return sp.csr_array(values) if sp.issparse(values) else np.array(values)
