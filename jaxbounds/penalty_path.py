"""Many penalties on the same data: `fit_path`, and `penalty_sweep`, validation errors without retraining."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import scipy.sparse as sp

from jaxbounds.arguments import check_callback
from jaxbounds.array import on_host, to_host, xp
from jaxbounds.batches import candidate, each_penalty, listed_penalties, size_of
from jaxbounds.bounds import publish
from jaxbounds.certificates import Method
from jaxbounds.classes import not_a_model
from jaxbounds.host import host_matrix
from jaxbounds.inputs import frame_inputs, rows_of
from jaxbounds.kinds import SetPenalty
from jaxbounds.matrix import as_matrix
from jaxbounds.model import Model
from jaxbounds.path_family import family_of, path_scores
from jaxbounds.penalties import L1, L2, LQ, ElasticNet, Penalty, elastic_net, l1, l2, lq
from jaxbounds.problem import Problem, as_targets
from jaxbounds.pytree import in_float64, is_traced, pytree
from jaxbounds.solvers.fit import fit
from jaxbounds.sweeps import bound_each
from jaxbounds.validation import error_rate, mean_loss

_MAKERS: dict[type, Any] = {L2: l2, ElasticNet: elastic_net, L1: l1, LQ: lq}  # they check their parameters


@pytree
class Path:
    """Models trained on the same data under different penalties.

    Attributes:
        models: one for each penalty, in the order given. penalties: the penalties.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0))
        >>> path = jb.fit_path(problem, np.eye(2), np.ones(2), [jb.penalties.l2(lam) for lam in (1.0, 0.1)])
        >>> path.w.shape
        (2, 2)
    """

    models: tuple
    penalties: tuple

    @property
    @in_float64
    def w(self):
        """(L, d) coefficients."""
        return xp.stack([model.w for model in self.models])

    @property
    @in_float64
    def gap(self):
        """(L,) duality gaps."""
        return xp.stack([model.gap for model in self.models])


@pytree
class PenaltySweep:
    """What validation would say of each penalty, one entry a penalty.

    Attributes:
        errors: Interval (L,) of the fraction of validation mistakes; None for regression.
        loss: Interval (L,) of the mean validation loss; of `squared` half the mean squared error.
        scores: Interval (L, m) of the validation scores.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> model = jb.fit(jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1)), np.eye(2), np.array([1.0, -1.0]))
        >>> sweep = jb.penalty_sweep(model, [jb.penalties.l2(0.2)], np.eye(2), np.array([1.0, 1.0]))
        >>> sweep.errors.lower.tolist(), sweep.errors.upper.tolist()
        ([0.5], [0.5])
    """

    errors: Any
    loss: Any
    scores: Any


def fit_path(
    problem: Problem, X, y, penalties, *, callback: Callable[[dict], Any] | None = None, **options
) -> Path:
    """Train one model for each penalty, each started from the one before it.

    They are trained in the order given: decreasing lambda is the cheap one, since the path then starts at w = 0.

    Args:
        problem: loss and scale; its own penalty does not matter.
        X, y: training data as `fit` takes them.
        penalties: a sequence of penalties, or one whose parameters have a leading axis, as `jax.vmap(l2)(lams)` gives.
        callback: called after each model with a dict of `done`, `total` and `model`; return True to stop there.
        options: those of `fit`: sample_weight, tol, solver, warm_start (of the first), max_steps.

    Returns:
        Path: models (each with its gap), penalties, w (L, d); shorter where `callback` stopped it.

    Raises:
        TypeError: penalties are none, or a tracer. ValueError: as in `fit`.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0))
        >>> path = jb.fit_path(problem, np.eye(2), np.ones(2), [jb.penalties.l2(lam) for lam in (1.0, 0.1)])
        >>> [round(float(w), 4) for w in path.w[:, 0]]
        [0.3333, 0.8333]

    Source: warm starts along the path, Friedman, Hastie and Tibshirani 2010.
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be a jb.Problem, got {type(problem).__name__}")
    if is_traced(problem, X, y, penalties, options):
        raise TypeError("fit_path runs on the host; inside jit, vmap or grad use fit")
    check_callback(callback)
    models: list[Model] = []
    wanted, inputs, matrix = each_of(penalties), frame_inputs(X), as_matrix(X)
    for k, penalty in enumerate(wanted):
        here = dataclasses.replace(problem, penalty=penalty)
        models.append(dataclasses.replace(fit(here, matrix, y, **options), inputs=inputs))
        options["warm_start"] = models[-1]
        news = {"done": k + 1, "total": len(wanted), "model": models[-1]}
        if callback is not None and callback(news):
            break
    return Path(tuple(models), tuple(wanted[: len(models)]))


def each_of(penalties) -> list[Penalty]:
    """A sequence of penalties, or one with a leading axis, as a list."""
    penalties = checked_penalties(penalties)
    changes: Any = each_penalty(penalties)  # checks them
    if isinstance(penalties, list):
        return penalties
    singles: Any = [candidate(changes, k) for k in range(size_of(changes))]
    for change in singles:
        make = _MAKERS.get(type(change.penalty))
        if make is not None:
            make(*(to_host(getattr(change.penalty, f.name)) for f in dataclasses.fields(change.penalty)))  # vmap hid it
    return [change.penalty for change in singles]


def checked_penalties(penalties) -> Penalty | list:
    """One penalty with a leading axis, or a list of penalties."""
    return penalties if isinstance(penalties, Penalty) else listed_penalties(penalties)


def penalty_sweep(
    model: Model | Sequence[Model] | Path, penalties, X_val, y_val, method: Method | None = None,
    batch_size: int | None = None,
) -> PenaltySweep:  # fmt: skip
    """The validation error and loss of every penalty, in guaranteed intervals and without retraining.

    A validation row is a mistake if y x.w <= 0 (a score of 0 is one, as sign(score) != y). It adds to the lower end if
    its score is certainly on the wrong side, and to the upper end unless it is certainly on the right one: a row that
    the bounds leave undecided adds to the upper end only.

    With several models the intervals of each score are intersected first. Models with L2 or elastic net penalties and
    their data also give trial points between them: polynomials in log lambda through the nearest models, whose
    gradients are second order small (on the host, where no method is named). Inside jit the balls of the models alone
    are intersected.

    Args:
        model: a trained model, or several trained on the same data under different penalties.
        penalties: L penalties, as `each_penalty` takes them.
        X_val: (m, d) validation rows; y_val: (m,) their targets.
        method: as in `bound_each`, `Cached()` by default: O(1) for each lambda of L2, scores by projection.
        batch_size: penalties at a time, as in `bound_each`.

    Returns:
        PenaltySweep; `errors` is None for regression losses.

    Raises:
        TypeError: an argument has the wrong kind. ValueError: shapes or labels do not fit, the method does not apply.

    Example:
        >>> import jax, numpy as np, jaxbounds as jb
        >>> model = jb.fit(jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0)), np.eye(2), np.ones(2))
        >>> penalties = jax.vmap(jb.penalties.l2)(np.array([0.5, 1.0, 2.0]))
        >>> sweep = jb.penalty_sweep(model, penalties, np.eye(2), np.ones(2))
        >>> bool((sweep.loss.lower <= np.array([0.125, 2 / 9, 0.32])).all()), sweep.errors
        (True, None)

    Source: Shibagaki, Suzuki, Karasuyama, Takeuchi 2015, score bounds along the regularization path.
    """
    wide = jax.dtypes.canonicalize_dtype(np.float64) == np.float64
    with jax.enable_x64(True), np.errstate(all="ignore"):
        models = _models(model)
        loss = models[0].problem.loss
        changes: Any = each_penalty(checked_penalties(penalties))
        d = models[0].w.shape[0]
        matrix = rows_of(models[0], X_val, d, on_host(models, changes, X_val), "X_val")
        if matrix.shape[1] != d:
            raise ValueError(f"X_val must have {d} columns like the training data, got {matrix.shape[1]}")
        y = as_targets(loss, y_val, matrix.shape[0], "y_val")
        lower, upper = -xp.inf, xp.inf
        for one in models:
            scores: Any = bound_each(one, changes, matrix, method, batch_size).scores()
            lower, upper = xp.maximum(lower, scores.lower), xp.minimum(upper, scores.upper)
        if method is None and len(models) > 1 and on_host(models, changes, X_val):
            better = _between(models, changes, matrix)
            lower, upper = np.maximum(lower, better[0]), np.minimum(upper, better[1])
        if on_host(loss, lower, upper, y):
            loss, y, lower, upper = to_host((loss, y, lower, upper))
        errors = publish(*error_rate(lower, upper, y), wide) if loss.classification else None
        return PenaltySweep(
            errors, publish(*mean_loss(loss, lower, upper, y), wide), publish(lower, upper, wide)
        )


def _models(model: Any) -> tuple:
    if not isinstance(model, Model | Path | Sequence):
        raise TypeError(f"{not_a_model(model)} (a Path or a sequence of models serves too)")
    models = (model,) if isinstance(model, Model) else model.models if isinstance(model, Path) else tuple(model)
    if not models:
        raise ValueError("model is an empty sequence; pass at least one trained model")
    for k, one in enumerate(models):
        if not isinstance(one, Model):
            raise TypeError(f"model[{k}] is none: {not_a_model(one)}")
        if one.w.shape != models[0].w.shape or one.alpha.shape != models[0].alpha.shape:
            raise ValueError(f"model[{k}] was trained on data of another shape than model[0]")
        if not is_traced(one, models[0]) and not _alike(one, models[0]):
            raise ValueError(f"model[{k}] differs from model[0] in more than its penalty; train them on the same data, "
                             "with the same loss, scale and intercept")  # fmt: skip
    return models


def _alike(one: Model, other: Model) -> bool:
    """Whether two models have the same loss, scale, targets, weights, row norms and data."""
    asked = [(m.problem.loss, m.rows.target, m.rows.weight, m.rows.norm_sq) for m in to_host((one, other))]
    values, structures = zip(*map(jax.tree.flatten, asked), strict=True)
    if one.data is not None and other.data is not None and one.data.matrix is not other.data.matrix:
        here, there = (sp.csr_array(data.matrix.to_scipy()) for data in (one.data, other.data))
        difference: Any = here != there
        if difference.nnz:
            return False
    named = [(m.problem.scale, m.problem.intercept) for m in (one, other)]
    return named[0] == named[1] and structures[0] == structures[1] and all(map(np.array_equal, *values))


def _between(models, changes, matrix):
    """Score intervals from trial points between the models, (-inf, inf) where there is no such family."""
    first, nothing = models[0], (-np.inf, np.inf)
    if not isinstance(changes, SetPenalty) or any(one.data is None for one in models):
        return nothing
    models, changes = to_host((models, changes))
    family = family_of([one.problem.penalty for one in models], changes.penalty, first.w.shape[0])
    if family is None:
        return nothing
    data: Any = models[0].data
    problem = to_host(first.problem)
    return path_scores(problem, host_matrix(first.data.matrix), data.target, data.weight, models, family, matrix)
