"""`best_penalty`: a penalty whose validation error is certified to be near the best of a whole interval."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxbounds.arguments import as_choice, as_flag, as_whole, check_callback
from jaxbounds.array import put
from jaxbounds.bounds import publish
from jaxbounds.host import matrix_of
from jaxbounds.inputs import frame_inputs
from jaxbounds.matrix import as_matrix
from jaxbounds.messages import brief
from jaxbounds.model import Data, Model
from jaxbounds.penalties import L2, ElasticNet, Penalty, elastic_net, l2
from jaxbounds.penalty_search import Range, Search
from jaxbounds.problem import Problem, as_number, as_sample_weight, as_targets
from jaxbounds.pytree import in_float64, is_traced, pytree
from jaxbounds.rounding import U


@pytree
class Pieces:
    """The pieces into which the range of penalties was cut, (k,) each: for every penalty of piece p the validation
    measure is at least lower[p].

    Attributes:
        lam, l1: Interval of the two parameters (factors of lo's, where these are vectors). lower: certified.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(1.0))
        >>> X, y = np.eye(2), np.array([1.0, -1.0])
        >>> best = jb.best_penalty(problem, X, y, X, y, 0.1, 1.0)
        >>> best.pieces.lam.lower.tolist(), best.pieces.lower.tolist()
        ([0.1], [0.0])
    """

    lam: Any
    l1: Any
    lower: Any


@pytree
class BestPenalty:
    """A penalty, and how far from the best of the whole range it can be.

    Attributes:
        penalty: the best penalty found. model: trained under it.
        error: Interval of its validation measure (that of the exact optimum under this penalty).
        lower: no penalty of the range has a validation measure below this.
        n_trained: models trained. n_refined: trial points that took Newton steps. pieces: the bounds behind `lower`.
        status: CONVERGED if error.upper - lower <= eps, MAX_STEPS if `max_models` or `callback` came first, STALLED if
            the pieces cannot be cut any further and the next model is there already. All bounds are valid in any case.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(1.0))
        >>> X, y = np.eye(2), np.array([1.0, -1.0])
        >>> best = jb.best_penalty(problem, X, y, X, y, 0.1, 1.0)
        >>> float(best.error.upper), float(best.lower), jb.Status(best.status).name
        (0.0, 0.0, 'CONVERGED')
    """

    penalty: Penalty
    model: Model
    error: Any
    lower: Any
    n_trained: Any
    n_refined: Any
    pieces: Pieces
    status: Any


def best_penalty(
    problem: Problem | Model, X, y, X_val, y_val, lo, hi, *, eps: float = 0.01, measure: str = "error",
    fixed_ratio: bool = False, max_models: int = 100, cells: int = 64, sample_weight=None,
    callback: Callable[[dict], Any] | None = None, **options,
) -> BestPenalty:  # fmt: skip
    """The penalty with the best validation error of a whole interval, certified within eps, from few trained models.

    Between trained models trial points p are interpolated and their gradients bound the scores of the optimum for every
    lambda of a piece of the interval, not only at grid points: at least the fraction of validation rows that are
    certainly wrong. Pieces are cut until no bound is more than eps below the best trained model. Where even the bound
    at the middle of a piece is too low, its trial point takes a few Newton steps (smooth losses; some dozen products
    with the data) and the points around it are interpolated from it as well; only where that does not help, or where a
    middle is certain to be better than the best so far, the next model is trained.

    With the trial point p = w of a model trained exactly at lam0, u = w/c at lam = c lam0, and the ball is the one of a
    lambda change: centre w (1 + 1/c)/2, radius ||w|| |1 - 1/c|/2. The end of a score's interval is convex in 1/lam, so
    that a cell's is the hull of the two ends. Interpolating between models makes the radius second order.

    Where all scores tend to 0 (an elastic net near the least l1 with w = 0) no label is certain, and the search goes on
    until `max_models`: keep `hi` below it, or well above.

    Args:
        problem: loss, penalty (L2 or elastic net), scale, intercept; or a trained model, where training starts.
        X, y: training data as `fit` takes them. X_val: (m, d) validation rows; y_val: (m,) their targets.
        lo, hi: ends of the range: numbers for lambda (the l1 of an elastic net stays the problem's), or two penalties.
            Elastic nets that differ in both parameters span a rectangle, pieces of which are cut along the longer side.
        eps: how far from the best the answer may be: a fraction of mistakes, or a mean loss.
        measure: "error" (fraction of rows with y x.w <= 0) or "loss" (mean validation loss).
        fixed_ratio: the l1 of an elastic net is in proportion to lam (numbers: the problem's own ratio).
        max_models: stop there; the bounds stay valid. As many trial points may take Newton steps.
        cells: pieces that are cut at a time: more share their products with the data, fewer are cut in vain.
        sample_weight: (n,) positive, ones by default.
        callback: called after each model with a dict of n_trained, penalty, lower, upper; return True to stop.
        options: those of `fit` (tol, solver, max_steps).

    Returns:
        BestPenalty.

    Raises:
        TypeError: an argument has the wrong kind, or a tracer. ValueError: an argument does not fit, is named.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(60, 3)); y = np.where(X[:, 0] + rng.normal(size=60) > 0, 1.0, -1.0)
        >>> problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(1.0))
        >>> best = jb.best_penalty(problem, X[:40], y[:40], X[40:], y[40:], 1e-3, 10.0, eps=0.05)
        >>> bool(best.error.upper - best.lower <= 0.05), best.n_trained < 20
        (True, True)

    Source: Shibagaki, Suzuki, Karasuyama, Takeuchi 2015, "Regularization path of cross-validation error lower bounds".
    """
    if is_traced(problem, X, y, X_val, y_val, lo, hi, eps, sample_weight, options):
        raise TypeError("best_penalty trains models on the host; inside jit, vmap or grad use penalty_sweep")
    start = problem if isinstance(problem, Model) else None
    problem = problem.problem if isinstance(problem, Model) else problem
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be a jb.Problem or a trained model, got {type(problem).__name__}")
    problem.check()
    as_choice(measure, "measure", ("error", "loss"))
    as_flag(fixed_ratio, "fixed_ratio")
    if measure == "error" and not problem.loss.classification:
        raise ValueError(f'{problem.loss.name} has no labels to get wrong; use measure="loss"')
    check_callback(callback)
    if "warm_start" in options:
        raise TypeError("best_penalty has no warm_start, since each model starts at its neighbour: give the trained "
                        "model in place of the problem")  # fmt: skip
    unknown = sorted(set(options) - {"tol", "solver", "max_steps"})
    if unknown:
        raise TypeError(f"best_penalty has no option {brief(unknown[0])}; of fit it takes tol, solver and max_steps")
    eps_value = float(as_number(eps, "eps"))
    if eps_value < 0:
        raise ValueError(f"eps = {eps} must not be negative")
    for name, value, least in (("max_models", max_models, 4), ("cells", cells, 1)):
        as_whole(value, name, least)
    inputs, matrix = frame_inputs(X), as_matrix(X)
    n, d = matrix.shape
    test: Any = matrix_of(X_val, True, "X_val") if inputs is None else inputs.rows(X_val, d, True, "X_val")
    if test.shape[1] != d:
        raise ValueError(f"X_val must have {d} columns like X, got {test.shape[1]}")
    y_test = np.asarray(as_targets(problem.loss, y_val, test.shape[0], "y_val"))
    target = np.asarray(as_targets(problem.loss, y, n))
    weight = np.asarray(as_sample_weight(sample_weight, n))
    span = _range(problem.penalty, lo, hi, fixed_ratio, d)
    wide = jax.dtypes.canonicalize_dtype(np.float64) == np.float64
    options.setdefault("tol", 1e-10)
    with jax.enable_x64(True), np.errstate(all="ignore"):
        search = Search(problem, put(Data(matrix, target, weight)), test, y_test, span, measure, cells)
        status = search.run(eps_value, max_models, callback, start, options)
        best = search.best
        pieces = sorted(search.pieces, key=lambda piece: tuple(piece.low))
        ends = [span.at(np.array([getattr(piece, side) for piece in pieces])) for side in ("low", "high")]
        lam, l1 = (publish(ends[0][:, k], ends[1][:, k], wide) for k in (0, 1))
        found = Pieces(lam, l1, publish(np.array([piece.lower for piece in pieces]), np.zeros(()), wide).lower)
        low, high = search.measures[best]
        error = publish(np.asarray(low), np.asarray(high), wide)
        model = dataclasses.replace(search.models[best], inputs=inputs)
    counts = len(search.models), search.n_refined
    return BestPenalty(model.problem.penalty, model, error, search.lower, *counts, found, int(status))


@in_float64
def _range(penalty: Any, lo, hi, fixed_ratio: bool, d: int) -> Range:
    """The range of penalties from lo to hi, checked."""
    if not isinstance(penalty, L2 | ElasticNet):
        raise ValueError(
            f"best_penalty needs an L2 or elastic net penalty, and {penalty.name} is neither: no bound that holds for "
            "every lambda of an interval is known for it; use fit_path on a grid"
        )
    low_end, high_end = (_end(penalty, value, name, fixed_ratio) for value, name in ((lo, "lo"), (hi, "hi")))
    lam, l1 = _parameter("lam", low_end.lam, high_end.lam, d), None
    if isinstance(penalty, ElasticNet):
        l1 = _parameter("l1", low_end.l1, high_end.l1, d)
    low, high = (np.array([lam[0][k], 0.0 if l1 is None else l1[0][k]]) for k in (0, 1))
    if np.any(low > high):
        raise ValueError("lo must not be above hi; swap them")
    if fixed_ratio and l1 is not None and abs(high[1] * low[0] - low[1] * high[0]) > 8 * U * high[1] * low[0]:
        raise ValueError("fixed_ratio needs the same ratio l1 / lam at lo and hi")
    return Range(low, high, lam[1], None if l1 is None else 1.0 if l1[1] is None else l1[1], bool(fixed_ratio))


def _end(penalty: Any, value, name: str, fixed_ratio: bool) -> Any:
    """An end of the range as a penalty."""
    if isinstance(value, Penalty):
        if type(value) is not type(penalty):
            raise ValueError(f"{name} must be a penalty of the problem's kind ({penalty.name}), got {value.name}")
        return value
    if np.ndim(penalty.lam) or np.ndim(getattr(penalty, "l1", 0.0)):
        raise ValueError(f"{name} must be a penalty here: the problem's has a parameter of its own for each column")
    lam = float(as_number(value, name))
    if not lam > 0:
        raise ValueError(f"{name} = {value} must be positive")
    if isinstance(penalty, L2):
        return l2(lam)
    l1 = float(penalty.l1)
    return elastic_net(lam, lam * (l1 / float(penalty.lam)) if fixed_ratio else l1)


def _parameter(name: str, low, high, d: int):
    """((low factor, high factor), base vector or None for one number) of a parameter at both ends."""
    low, high = np.asarray(low, float), np.asarray(high, float)
    if low.ndim == high.ndim == 0:
        return (float(low), float(high)), None
    if {np.shape(x) for x in (low, high)} - {(), (d,)}:
        raise ValueError(f"{name} of lo and hi must be numbers or have {d} entries, one a column")
    low, high = np.broadcast_to(low, (d,)), np.broadcast_to(high, (d,))
    at = int(np.argmax(low))
    factor = high[at] / low[at] if low[at] > 0 else 1.0
    if np.any(np.abs(high - factor * low) > 4 * U * high):
        raise ValueError(f"{name} of hi must be a multiple of that of lo; one factor is searched for")
    return (1.0, float(factor)), low
