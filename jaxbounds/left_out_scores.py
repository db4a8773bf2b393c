"""Left-out scores on the host: by the cheapest certificate first, then up the ladder where a question is open."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from jaxbounds.array import on_host, to_host
from jaxbounds.batches import stack
from jaxbounds.bounds import bound
from jaxbounds.callbacks import inside_trace, on_the_host
from jaxbounds.certificates import Cached, Curvature, Method, Pass, Theorem1
from jaxbounds.certificates.leave_one_out import leave_one_out as closed_form
from jaxbounds.certificates.left_out_closed import closed_applies, closed_scores
from jaxbounds.certificates.left_out_intercept import intercept_applies, intercept_scores
from jaxbounds.certificates.removed import ball_applies, ball_scores, pass_applies, pass_scores
from jaxbounds.changes import remove_rows, set_penalty
from jaxbounds.host import HostMatrix, host_matrix
from jaxbounds.kinds import Change
from jaxbounds.logistic import Logistic
from jaxbounds.matrix import Sparse
from jaxbounds.model import Model
from jaxbounds.pytree import in_float64, is_traced
from jaxbounds.solvers.fit import FitWarning, refit
from jaxbounds.sweeps import bound_each

HOW = ("Cached", "Newton", "second order", "exact", "Theorem1", "Partial", "Pass", "Curvature", "refit")
_FACTOR = 1e10  # n d min(n, d) up to which a dense factor is worth its time, a few seconds
_LARGEST = 4000  # rows or columns of that factor
_LOOKS = 1e6  # rows times rows whose wide intervals get another look
_BLOCK = 256  # rows at a time where every candidate sees the rows of the others
_CG_STEPS = (5, 40)  # of the passes before retraining, which costs hundreds of products
_TOLS = (1e-10, 1e-16)  # of retraining: usual, and float64's floor


class Ends:
    """Intervals of m scores that shrink, and what shrank each of them last, a number in HOW."""

    def __init__(self, size: int):
        self.lower, self.upper = np.full(size, -np.inf), np.full(size, np.inf)
        self.how = np.zeros(size, np.int8)

    def cut(self, at, ends, how) -> None:
        """Intersect the intervals at `at` with others."""
        low, high = np.fmax(self.lower[at], ends[0]), np.fmin(self.upper[at], ends[1])
        self.how[at] = np.where((low > self.lower[at]) | (high < self.upper[at]), how, self.how[at])
        self.lower[at], self.upper[at] = low, high

    def all(self):
        """(lower, upper, how)."""
        return self.lower, self.upper, self.how


IsOpen = Callable[[Any, Any, Any], Any]  # (lower, upper, rows) to a mask


def label_open(lower, upper, rows):
    """Whether an interval leaves the sign of the score open."""
    return ~((lower > 0) | (upper < 0))


@in_float64
def row_scores(model: Model, rows, method: Method | None, keep_n: bool, is_open: IsOpen | None, callback):
    """(lower, upper, how) of each row's score without it, open ones settled if `is_open` is given."""
    model = replace(model, inputs=None)  # training rows are asked about, and they are in the model's own units

    def host(model: Model):
        ends, reports = Ends(rows.size), _Reports(callback)
        _first(model, rows, method, keep_n, ends, reports.of(rows.size))
        if is_open is not None and not reports.stopped:
            _settle(model, rows, method, keep_n, ends, is_open, reports)
        return ends.all()

    return _on_host(host, model, rows.size)


@in_float64
def fold_scores(model: Model, rows, fold, method: Method, keep_n: bool, is_open: IsOpen | None, callback):
    """(lower, upper, how) of each row's score without its fold."""
    model = replace(model, inputs=None)

    def host(model: Model):
        ends, groups = Ends(rows.size), [np.flatnonzero(fold == f) for f in np.unique(fold)]
        reports = _Reports(callback)
        told = reports.of(rows.size)
        _by_groups(model, rows, groups, method, keep_n, ends, told)
        if is_open is not None and not reports.stopped:
            _climb_each(model, rows, groups, keep_n, ends, is_open, _rungs(model, method), told)
        return ends.all()

    return _on_host(host, model, rows.size)


def _on_host(host, model: Model, size: int):
    """host(model); inside a trace as a callback."""
    if not is_traced(model) and not inside_trace():
        return host(model if on_host(model) else jax.device_put(model, jax.devices("cpu")[0]))
    kinds = np.float64, np.float64, np.int8
    return on_the_host(host, [jax.ShapeDtypeStruct((size,), kind) for kind in kinds], model)


class _Reports:
    """The callback of a user, and whether it has asked to stop."""

    def __init__(self, callback: Callable | None):
        self.callback, self.stopped = callback, False

    def of(self, total: int) -> Callable[[str, int], bool]:
        """A function of a method's name and the rows done, of so many; it says whether to stop."""

        def told(name, done):
            if self.callback is not None and not self.stopped:
                self.stopped = bool(self.callback({"method": name, "done": int(done), "total": int(total)}))
            return self.stopped

        return told


def _code(method: Method) -> int:
    return HOW.index(type(method).__name__)


def _values(model: Model) -> Any:
    """The training data as an array or a CSR array."""
    data: Any = model.data
    matrix: Any = host_matrix(data.matrix)
    return matrix.values


def _pair(interval: Any):
    return np.asarray(interval.lower, np.float64), np.asarray(interval.upper, np.float64)


def _has_closed_form(model: Model) -> bool:
    """Whether one factorisation answers all rows at a cost near that of training."""
    problem, data = model.problem, model.data
    if data is None or not problem.penalty.quadratic or (problem.intercept and not closed_applies(model)):
        return False
    if not isinstance(problem.loss, Logistic) and not problem.loss.piecewise_quadratic:
        return False
    n, d = data.matrix.shape
    cheap = not isinstance(data.matrix, Sparse) or n * d * min(n, d) <= _FACTOR
    return cheap and min(n, d) <= _LARGEST


def _first(model: Model, rows, method: Method | None, keep_n: bool, ends: Ends, told) -> None:
    """The intervals of the method that was asked for."""
    every = np.arange(rows.size)
    closed, method = method is None and _has_closed_form(model), Cached() if method is None else method
    if closed and not model.problem.intercept:
        found = closed_form(model, rows, keep_n)
        ends.cut(slice(None), found[:2], found.how)
        return
    name = type(method).__name__
    if ball_applies(model) and not isinstance(method, Theorem1):
        ends.cut(slice(None), ball_scores(to_host(model), rows, keep_n), _code(Cached()))
        if isinstance(method, Cached):
            return
    if isinstance(method, Cached) and intercept_applies(model):
        *found, loose = intercept_scores(model, rows, keep_n)
        ends.cut(slice(None), found, _code(method))
        if closed:
            *found, how = closed_scores(model, rows, keep_n)
            loose &= ~(found[1] - found[0] < ends.upper - ends.lower)
            ends.cut(slice(None), found, how)
        if np.sum(loose) * model.alpha.size > _LOOKS:  # each looks at all rows again
            loose &= np.isinf(ends.lower)
        every = every[loose]
        if not every.size:
            return
    if model.data is None:
        raise ValueError(f"leave_one_out by {name} needs the data, and this model was stored without it")
    if isinstance(method, Pass) and pass_applies(model):
        found = pass_scores(model, rows, keep_n, method.cg_steps, lambda done: told(name, done))
        ends.cut(every, found, _code(method))
        return
    _by_groups(model, rows, every[:, None], method, keep_n, ends, told)


def _by_groups(model: Model, rows, groups, method: Method, keep_n: bool, ends: Ends, told) -> None:
    """The intervals of each group of rows without that group, by `bound_each`, or `bound` where that is no quicker."""
    values, done = _values(model), 0
    for block in _blocks(groups, _BLOCK if method.flat and not model.problem.intercept else 1):
        at = np.concatenate(block)
        X, changes = values[rows[at]], [remove_rows(rows[group], keep_n) for group in block]
        if len(changes) == 1:
            found = _pair(bound(model, changes[0], method).scores(X))
        else:
            low, high = _pair(bound_each(model, stack(changes), X, method).scores())
            own = np.repeat(np.arange(len(block)), [len(group) for group in block]), np.arange(at.size)
            found = low[own], high[own]
        ends.cut(at, found, _code(method))
        done += at.size
        if told(type(method).__name__, done):
            return


def _blocks(groups, most: int):
    """Groups together as long as they hold at most so many rows."""
    block, size = [], 0
    for group in groups:
        if block and size + len(group) > most:
            yield block
            block, size = [], 0
        block.append(group)
        size += len(group)
    yield block


def _rungs(model: Model, above: Method | None) -> list[Method]:
    """The methods stronger than one (None: all) that apply and are cheaper than retraining."""
    n, d = model.alpha.shape[0], model.w.shape[0]
    ladder: list[Method] = [Cached(), Pass(), *([Curvature()] if n * d * min(n, d) <= _FACTOR else [])]
    first = next((k + 1 for k, rung in enumerate(ladder) if isinstance(above, type(rung))), 0)
    return [rung for rung in ladder[first:] if rung.applies(model.problem)]


def _settle(model: Model, rows, method: Method | None, keep_n: bool, ends: Ends, is_open: IsOpen, reports) -> None:
    """Up the ladder with the rows that are open: the pass in blocks, the rest row by row."""

    def still_open():
        return np.flatnonzero(is_open(ends.lower, ends.upper, rows))

    rungs = _rungs(model, Cached() if method is None else method)
    if pass_applies(model) and any(isinstance(rung, Pass) for rung in rungs):
        rungs = [rung for rung in rungs if not isinstance(rung, Pass)]
        for steps in _CG_STEPS:
            at = still_open()
            told = reports.of(at.size)
            found = pass_scores(model, rows[at], keep_n, steps, lambda done, told=told: told("Pass", done))
            ends.cut(at, found, _code(Pass()))
            if reports.stopped:
                return
    groups = still_open()[:, None]
    _climb_each(model, rows, groups, keep_n, ends, is_open, rungs, reports.of(len(groups)))


def _climb_each(model: Model, rows, groups, keep_n: bool, ends: Ends, is_open: IsOpen, rungs, told) -> None:
    """Each group of rows without that group, up the rungs and at last by retraining."""
    values, done = _values(model), 0
    for at in groups:
        _climb(model, remove_rows(rows[at], keep_n), values[rows[at]], at, rows, ends, is_open, rungs)
        done += len(at)
        if told("refit", done):
            return


def _climb(model: Model, change: Change, X, at, rows, ends: Ends, is_open: IsOpen, rungs: list[Method]) -> None:
    """Bounds of one change, rung by rung and at last by retraining, until no row at `at` is open."""
    tries: list = [(_code(rung), lambda rung=rung: bound(model, change, rung)) for rung in rungs]
    tries += [(HOW.index("refit"), lambda tol=tol: _retrained(model, change, tol)) for tol in _TOLS]
    for how, bounds in tries:
        if not np.any(is_open(ends.lower[at], ends.upper[at], rows[at])):
            return
        ends.cut(at, _pair(bounds().scores(HostMatrix(X))), how)


def _retrained(model: Model, change: Change, tol: float):
    """Bounds around the model retrained without rows: what is left of its gap."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # the floor may lie above tol: the bounds say so
        new = refit(model, change, tol=tol)
    return bound(new, set_penalty(new.problem.penalty), _rungs(model, None)[-1])
