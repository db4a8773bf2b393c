"""Concrete sets of rows that change a prediction, confirmed by retraining: how tight a worst-case certificate is."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxbounds.array import to_host
from jaxbounds.bounds import Interval, bound, publish
from jaxbounds.certificates.any_rows import metrics_of
from jaxbounds.certificates.row_changes import prepared
from jaxbounds.changes import remove_rows, set_penalty, set_targets
from jaxbounds.display import shown
from jaxbounds.host import HostMatrix
from jaxbounds.model import Model
from jaxbounds.pytree import in_float64, is_traced, is_wide
from jaxbounds.solvers.fit import FitWarning, fit, refit
from jaxbounds.worst_case import checked, count

_TOL = 1e-12
_GONE = 1e-290  # the weight of a removed row while the search goes on
_CLEAR = 1e-9  # of the stored score: nearer to 0 retraining cannot confirm a flip
_ROUNDS = 8  # times that the effects are computed afresh, at the model retrained so far


@dataclass(frozen=True, eq=False)
@shown
class Attack:
    """The rows found for one test row, and what retraining without them (or with their labels flipped) gives.

    Attributes:
        rows: (j,) the smallest set found that changes the label, or the best one of k rows where none does.
        score: Interval of the retrained score, from the duality gap of the retrained model.
        flips: True if the retrained label is certainly not the stored one.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0))
        >>> model = jb.fit(problem, np.ones((3, 1)), np.array([1.0, 1.0, -1.0]))
        >>> attack = jb.attack_removal(model, 2, np.array([[1.0]]))[0]
        >>> attack.flips, attack.rows.tolist()
        (True, [0, 1])
    """

    rows: np.ndarray
    score: Interval
    flips: bool


def attack_removal(model: Model, k: int, X_test, *, keep_n: bool = False) -> list[Attack]:
    """For each test row a set of at most k training rows whose removal pushes its score across 0, if one is found.

    Rows are ranked by their first-order effect -x.H^-1 push_i x_i on the score, in the metric of the penalty and of the
    Hessian (there divided by 1 - leverage), and by a greedy choice that is renewed at the retrained model; the smallest
    prefix that flips the label is sought by bisection. Every answer is confirmed by retraining; no set is no proof that
    none exists: the true smallest k lies above `largest_certified_removal` and not above the size of a set found. On
    the host only; about 3 log2(k) + 8 retrainings a test row.

    Args:
        model, k, keep_n: as in `worst_case_removal`. X_test: (m, d) data, a few rows.

    Returns:
        a list of m Attacks.

    Raises:
        ValueError, TypeError: as in `worst_case_removal`, or called with traced values.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0))
        >>> model = jb.fit(problem, np.ones((3, 1)), np.array([1.0, 1.0, -1.0]))
        >>> jb.attack_removal(model, 1, np.array([[1.0]]))[0].flips
        False

    Source: greedy data poisoning by influence, Koh and Liang 2017; Broderick, Giordano and Meager 2020.
    """
    k = count(model, k, "k", "attack_removal(model, k, X_test)")
    return _attacks(model, k, X_test, keep_n, False, "attack_removal")


def attack_relabel(model: Model, k: int, X_test) -> list[Attack]:
    """For each test row a set of at most k training labels whose flip pushes its score across 0, if one is found.

    Args:
        model, k: as in `worst_case_relabel`. X_test: (m, d) data, a few rows.

    Returns:
        a list of m Attacks.

    Raises:
        ValueError, TypeError: as in `worst_case_relabel`, or called with traced values.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(1.0))
        >>> model = jb.fit(problem, np.ones((5, 1)), np.array([1, 1, 1, 1, -1]))
        >>> attack = jb.attack_relabel(model, 3, np.array([[1.0]]))[0]
        >>> attack.flips, attack.rows.size
        (True, 2)

    Source: as `attack_removal`.
    """
    k = count(model, k, "k", "attack_relabel(model, k, X_test)")
    return _attacks(model, k, X_test, True, True, "attack_relabel")


def _attacks(model: Model, k: int, X_test, keep_n: bool, relabel: bool, name: str) -> list[Attack]:
    found = _searched(model, k, X_test, keep_n, relabel, name)
    return [Attack(rows, publish(lower, upper, is_wide()), flips) for rows, (lower, upper), flips in found]


@in_float64
def _searched(model: Model, k: int, X_test, keep_n: bool, relabel: bool, name: str) -> list:
    """(rows, (lower, upper) of the score, flips) for each test row."""
    matrix: Any = checked(model, X_test, keep_n, relabel, name)
    if is_traced(model, matrix):
        raise ValueError(f"{name} retrains on the host and cannot be used inside jit, vmap or grad; call it outside")
    if not isinstance(matrix, HostMatrix):
        matrix = HostMatrix(matrix.to_scipy())
    return [_Search(model, HostMatrix(matrix.values[[i]]), keep_n, relabel).best(k) for i in range(matrix.shape[0])]


class _Search:
    """Retrained scores of one test row. The search gives removed rows a vanishing weight, so that shapes stay."""

    def __init__(self, model: Model, row: HostMatrix, keep_n: bool, relabel: bool):
        self.model, self.row, self.keep_n, self.relabel = model, row, keep_n, relabel
        score = self._score(model)
        self.sign, self.clear = (1.0 if score >= 0 else -1.0), _CLEAR * abs(score)
        self.known: dict = {}

    def best(self, k: int) -> tuple:
        """The smallest set that flips the label over all orders, or the one that comes closest; retrained in truth."""
        orders = [self._cut(order[:k]) for order in (*self._orders(self.model, np.empty(0, int)), self._greedy(k))]
        found = [self._shortest(order) for order in orders if order.size]
        flipping = [rows for rows in found if self._pushed(rows) < 0]
        if flipping:
            return self._confirmed(min(flipping, key=len))
        return self._confirmed(min(found, key=self._pushed, default=np.empty(0, int)))

    def _cut(self, order):
        """The order up to where one class would be left."""
        while order.size and self._one_class(order):
            order = order[:-1]
        return order

    def _shortest(self, order):
        """The shortest prefix that flips the label, by bisection; all of it if it does not."""
        low, high = 0, order.size
        while self._pushed(order) < 0 and high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._pushed(order[:middle]) < 0 else (middle, high)
        return order[:high]

    def _greedy(self, k: int):
        """k rows in rounds: after each the effects are those at the retrained model."""
        chosen, model, step = np.empty(0, int), self.model, -(-k // _ROUNDS)
        while chosen.size < k:
            order = self._orders(model, chosen)[-1]
            order = order[: min(step, k - chosen.size)]
            if order.size == 0 or self._one_class(np.append(chosen, order)):
                break
            chosen = np.append(chosen, order)
            model = self._explored(chosen)
        return chosen

    def _orders(self, model: Model, gone) -> list[np.ndarray]:
        """Rows that push the score towards 0, the strongest first: one order for each metric."""
        case, tests = prepared(to_host(model), self.row, self.keep_n, self.relabel)
        orders = []
        for metric in metrics_of(case, tests):
            effect = -self.sign * case.push * metric.products(slice(0, 1))[0]
            if metric.inverse is not None:
                effect = effect / np.maximum(1 - case.c * case.second * metric.root**2, 1e-3)
            effect[gone] = 0.0
            order = np.argsort(effect, kind="stable")
            orders.append(order[effect[order] < 0])
        return orders

    def _explored(self, rows) -> Model:
        """The model retrained without the rows but for a vanishing weight, or with their labels flipped."""
        data: Any = self.model.data
        target, weight = np.array(data.target), np.array(data.weight)
        if self.relabel:
            target[rows] *= -1
        else:
            rescaled = self.model.problem.scale == "mean" and not self.keep_n
            weight *= target.size / (target.size - rows.size) if rescaled else 1.0
            weight[rows] = _GONE
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)
            return fit(self.model.problem, data.matrix, target, sample_weight=weight, warm_start=self.model, tol=_TOL)

    def _score(self, model: Model) -> float:
        return float(np.asarray(model.scores(self.row))[0])

    def _pushed(self, rows) -> float:
        """The score after retraining, negative where the label has clearly flipped."""
        key = tuple(np.sort(rows).tolist())
        if key not in self.known:
            self.known[key] = self.sign * self._score(self._explored(rows)) + self.clear
        return self.known[key]

    def _one_class(self, rows) -> bool:
        """Whether an intercept has no finite best value, since one class is left."""
        problem, y = self.model.problem, np.array(self.model.rows.target)
        if not (problem.intercept and problem.loss.classification):
            return False
        if self.relabel:
            y[rows] *= -1
        else:
            y = np.delete(y, rows)
        return bool(np.all(y == y[0]))

    def _confirmed(self, rows) -> tuple:
        """(rows, ends of the score that `refit` gives, whether the label is certainly another)."""
        if rows.size == 0:
            change: Any = set_penalty(self.model.problem.penalty)
        elif self.relabel:
            change = set_targets(rows, -np.asarray(self.model.rows.target)[rows])
        else:
            change = remove_rows(rows, keep_n=self.keep_n)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)  # the bounds below tell what is left of the gap
            new = refit(self.model, change, tol=_TOL)
        score: Any = bound(new, set_penalty(new.problem.penalty)).scores(self.row)
        lower, upper = np.asarray(score.lower)[0], np.asarray(score.upper)[0]
        return np.sort(rows), (lower, upper), bool(upper < 0 if self.sign > 0 else lower > 0)
