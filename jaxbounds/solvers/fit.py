"""`fit` and `refit`: from data to a model, with the solver that suits the problem."""

import dataclasses
import os
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jax import lax

from jaxbounds.arguments import as_positive, as_whole, check_callback
from jaxbounds.array import carry, everywhere, is_spread, on_host, put, to_host
from jaxbounds.classes import ClassModel, not_a_model
from jaxbounds.edit import bucket, prepare
from jaxbounds.inputs import frame_inputs, read
from jaxbounds.kinds import Change, check_change
from jaxbounds.matrix import Dense, Matrix, as_matrix, one_way
from jaxbounds.model import Data, Model, best_intercept, remember
from jaxbounds.penalties import Penalty
from jaxbounds.problem import Problem, as_sample_weight, as_targets, as_vector
from jaxbounds.pytree import in_float64, is_traced
from jaxbounds.row_blocks import RowBlocks
from jaxbounds.softmax import Softmax
from jaxbounds.solvers.common import Task
from jaxbounds.solvers.default import blockwise_solver, check_blockwise, default_solver
from jaxbounds.status import Status
from jaxbounds.traceable import traced_as

_SMALL = 1 << 16  # data up to this many dense entries are padded to powers of two, so that shapes share a compilation
_IDLE = 1e-290  # the weight of a padding row


class FitWarning(UserWarning):
    """A fit stopped before it reached its tolerance."""


@in_float64
def fit(
    problem: Problem,
    X,
    y,
    *,
    sample_weight=None,
    tol: float = 1e-8,
    solver: Any = None,
    warm_start: Any = None,
    max_steps: int | None = None,
    callback: Callable | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Model:
    """Train a model: minimise sum_i c_i l(x_i.w + b, y_i) + psi(w) until the relative duality gap is below tol.

    The intercept b is 0 unless the problem has one; it is not penalised, and always the best one for w.

    Args:
        problem: loss, penalty and scale.
        X: (n, d) NumPy or jax array, scipy sparse matrix or array, BCOO or BCSR, `RowBlocks` from disk, or a data frame
            (pandas, polars), whose columns the model then knows by name: later frames and changes may name them.
        y: (n,) labels -1/+1 for margin losses, class numbers for softmax, numbers otherwise.
        sample_weight: (n,) positive, ones by default.
        tol: relative duality gap, gap / max(|P|, tiny), at which the solver ends. That of the model, whose w has the
            dtype of the data and whose alpha is feasible beyond rounding, may come out larger.
        solver: one of `jb.solvers`; chosen from the problem and the shape of the data by default.
        warm_start: a Model or (d,) coefficients to start from; the intercept starts as the best one for them.
        max_steps: most outer steps (default 1000).
        callback: called between chunks of steps with a dict of `step`, `gap`, `primal`, `tol`; return True to stop.
        checkpoint: the path of a file that holds the state of the fit between steps, written as often as 5 % of the
            time allows and deleted once the fit has converged. If it is there, a fit of the same problem, solver and
            data goes on from it (tol and max_steps may differ).

    Returns:
        Model, or for softmax a MultinomialModel. A fit that stops early warns once (FitWarning) and says why in
        `status`; its bounds stay valid.

    Raises:
        ValueError, TypeError: unusable data, or a solver that does not fit the problem.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1))
        >>> model = jb.fit(problem, np.array([[1.0], [-1.0], [2.0]]), np.array([1, -1, 1]))
        >>> float(model.gap) <= 1e-8 * float(model.primal)
        True
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be a jb.Problem, got {type(problem).__name__}")
    if isinstance(problem.loss, Softmax):
        from jaxbounds.multinomial import fit_multinomial

        if checkpoint is not None:
            raise ValueError("softmax is trained without checkpoints; leave checkpoint out")
        return fit_multinomial(
            problem, X, y, sample_weight=sample_weight, tol=tol, solver=solver, warm_start=warm_start,
            max_steps=max_steps, callback=callback,
        )  # type: ignore[return-value]  # fmt: skip
    problem.check()
    _check_intercept(problem)
    inputs, matrix = frame_inputs(X), as_matrix(X)
    n, d = matrix.shape
    y, weight = as_targets(problem.loss, y, n), as_sample_weight(sample_weight, n)
    _check_parameters(problem.penalty, d)
    blocks = isinstance(matrix, RowBlocks)
    if solver is None:
        dense = isinstance(matrix, Dense)
        solver = blockwise_solver(problem) if blocks else default_solver(problem, n, d, not dense)
    if isinstance(solver, type) or not hasattr(solver, "check"):
        name = solver.__name__ if isinstance(solver, type) else type(solver).__name__
        raise TypeError(f"solver must be an object of jb.solvers, like jb.solvers.NewtonCG(); got {name}")
    solver.check(problem)
    if blocks:
        check_blockwise(solver)
    concrete = not is_traced(problem, matrix, y, weight, warm_start, tol, max_steps)
    if concrete:
        _check_options(tol, max_steps, callback)
    if callback is not None and not concrete:
        raise ValueError("callback is called on the host and cannot be used inside jit, vmap or grad; leave it out")
    if checkpoint is not None and not concrete:
        raise ValueError("checkpoint is a file and cannot be used inside jit, vmap or grad; leave it out")
    w0, alpha0 = _start(problem, warm_start, y, d)
    values = matrix.values if isinstance(matrix, Dense) else None
    spread = is_spread(values)
    if checkpoint is not None and spread:
        raise ValueError("checkpoint holds the state of one device, and X lies on several; leave it out")
    problem, y, weight, w0, alpha0 = everywhere((problem, y, weight, w0, alpha0), values)
    data = put(Data(matrix, y, weight))
    task = Task(problem.loss, problem.penalty, matrix, y, weight * problem.unit(n), problem.intercept)
    task, w0, alpha0 = put((task.constant() if concrete and _is_ours(problem) else task, w0, alpha0))
    if concrete and not (spread or blocks) and n * d <= _SMALL:
        task, w0, alpha0 = _padded(task, w0, alpha0)
    steps = 1000 if max_steps is None else max_steps
    tol_leaf, steps_leaf = put(everywhere((np.float64(tol), np.int32(steps)), values)) if concrete else (tol, steps)
    with traced_as(f"solver: what {type(solver).__name__} calls"):
        if callback is None and checkpoint is None:
            solution = _solve(solver, task, w0, alpha0, tol_leaf, steps_leaf)
        else:
            file = None if checkpoint is None else _checkpoint(checkpoint, solver, task)
            solution = _solve_in_chunks(solver, task, w0, alpha0, tol_leaf, steps, callback, file)
    del task, w0, alpha0  # vectors as long as the data's sides, before the model's own come to be
    found = solution.w, solution.alpha, solution.ref
    w, alpha, ref = (a[:k] for a, k in zip(to_host(found) if on_host(found) else found, (d, n, n), strict=True))
    w, b = w.astype(matrix.dtype, copy=False), None
    if problem.intercept and not concrete:  # the best one for the stored w, with the derivatives of the optimum
        b = carry(lax.stop_gradient(best_intercept(problem, data, w)), lambda: solution.intercept)
    model = remember(problem, data, w, alpha, ref, solution.status, solution.n_steps, b)
    model = dataclasses.replace(model, inputs=inputs)
    if concrete and not is_traced(model):  # a user's function may hold tracers of its own
        _warn(model, tol)
    return model


@in_float64
def refit(model: Model, change: Change, **options) -> Model:
    """Retrain exactly on the changed data, warm-started from the old model.

    Args:
        model: with its data. change: any change. options: those of `fit`.

    Returns:
        Model of the new problem, in compact numbers.

    Raises:
        TypeError: inside jit, vmap or grad. ValueError: the model was stored without its data, or the change does not
            fit.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0))
        >>> model = jb.fit(problem, np.eye(2), np.ones(2))
        >>> jb.refit(model, jb.remove_rows([0])).alpha.shape
        (1,)
    """
    if isinstance(model, ClassModel):
        return model.refit(change, **options)
    if not isinstance(model, Model):
        raise TypeError(not_a_model(model))
    check_change(change)
    if is_traced(model, change, options, jnp.zeros(())):  # the last: where jax is tracing, constants are tracers too
        raise TypeError("refit puts the new data together on the host and cannot be used inside jit, vmap or grad; "
                        "call it outside, or fit on the new data")  # fmt: skip
    if model.data is None:
        raise ValueError("refit needs the data, and this model was stored without it; use change.apply and fit instead")
    data, inputs, change = model.data, model.inputs, read(model, change)
    model = dataclasses.replace(model, inputs=None)
    edit = prepare(model, change)
    X, y, weight = change.apply(data.matrix, np.asarray(data.target), np.asarray(data.weight))
    rows, columns = _kept(edit.n, edit.rows, edit.row_removed), _kept(edit.d, edit.cols, edit.col_removed)
    problem = dataclasses.replace(model.problem, penalty=put(edit.penalty.take(columns)))
    spread = lambda a, size: np.pad(np.asarray(a, np.float64), (0, size - a.shape[0]))  # noqa: E731
    old = dataclasses.replace(
        model, w=spread(model.w, edit.d)[columns], alpha=spread(model.alpha, edit.n)[rows], data=None
    )
    unit = problem.unit(len(y))
    if edit.unit != unit:  # keep_n: the mean still divides by the old number of rows
        weight = np.asarray(weight) * (float(edit.unit) / unit)
    options.setdefault("warm_start", old)
    new = fit(problem, X, y, sample_weight=weight, **options)
    return new if inputs is None else dataclasses.replace(new, inputs=put(inputs.kept(columns)))


def _kept(size: int, index, removed):
    """The numbers below size that are not removed; index may be padded with numbers past the end."""
    return np.setdiff1d(np.arange(size), np.asarray(index)[np.asarray(removed)])


def _check_intercept(problem: Problem) -> None:
    if problem.intercept and problem.loss.smoothness is None:
        raise ValueError(
            f"intercept=True needs a differentiable loss, and {problem.loss.name} declares no smoothness; use a "
            "smoothed loss (smoothed_hinge), or intercept=False and a column of ones in X (a penalised intercept)"
        )


def _check_options(tol, max_steps, callback) -> None:
    as_positive(tol, "tol")
    if max_steps is not None:
        as_whole(max_steps, "max_steps", 0, 2**31 - 1, none="for the default")
    check_callback(callback)


def _check_parameters(penalty: Penalty, d: int) -> None:
    for leaf in jax.tree.leaves(penalty):
        if np.ndim(leaf) == 1 and leaf.shape[0] != d:
            raise ValueError(f"penalty has a parameter of length {leaf.shape[0]}, but X has {d} columns")


def _start(problem: Problem, warm_start, y, d: int):
    """Coefficients and dual variables to start from."""
    n = y.shape[0]
    w0, alpha0 = np.zeros(d), None
    if isinstance(warm_start, Model):
        if warm_start.w.shape != (d,):
            raise ValueError(f"warm_start has {warm_start.w.shape[0]} coefficients, but X has {d} columns")
        w0 = warm_start.w.astype(jnp.float64)
        alpha0 = warm_start.alpha if warm_start.alpha.shape == (n,) else None
    elif warm_start is not None:
        w0 = as_vector(warm_start, d, "warm_start")
    if alpha0 is None:
        alpha0 = np.zeros(n)
    loss, alpha0 = to_host((problem.loss, alpha0)) if on_host(problem, alpha0, y) else (problem.loss, alpha0)
    return w0, loss.clip(alpha0, y)


def _is_ours(problem: Problem) -> bool:
    """Whether loss and penalty are the library's own: a user's functions may hold tracers, and are differentiated."""
    modules = {type(problem.loss).__module__, type(problem.penalty).__module__}
    return "jaxbounds.user_functions" not in modules and all(name.startswith("jaxbounds.") for name in modules)


def _padded(task: Task, w0, alpha0):
    """The same task with idle rows and zero columns, in sizes that are powers of two."""
    n, d = task.matrix.shape
    N, D = max(bucket(n), 8), max(bucket(d), 4)

    def pad(a, size, value):
        a = np.asarray(a)
        return np.concatenate([a, np.full(size - a.shape[0], value)])

    matrix = _padded_matrix(task.matrix, N, D)
    padded = dataclasses.replace(
        task,
        penalty=task.penalty.take(np.minimum(np.arange(D), d - 1)),
        matrix=matrix if task.differentiable else one_way(matrix),
        y=pad(task.y, N, np.asarray(task.y)[0]),  # a class that is there: with one class alone there is no intercept
        c=pad(task.c, N, _IDLE),
    )
    return put((padded, pad(w0, D, 0.0), pad(alpha0, N, 0.0)))


def _padded_matrix(matrix: Matrix, n: int, d: int) -> Matrix:
    if isinstance(matrix, Dense):
        values = np.asarray(matrix.values)
        return put(Dense(np.pad(values, ((0, n - values.shape[0]), (0, d - values.shape[1])))))
    csr = sp.csr_array(matrix.to_scipy(), copy=True)
    csr.resize((n, d))
    return as_matrix(csr)


@jax.jit
def _solve(solver, task: Task, w0, alpha0, tol, max_steps):
    return solver.solve(task, task.matrix, task.y, task.c, w0, alpha0, tol, max_steps)


def _checkpoint(path, solver, task: Task) -> Any:
    from jaxbounds.solvers.checkpoint import Checkpoint  # files know every kind of model, and some are made by fit

    return Checkpoint(path, solver, task)


def _solve_in_chunks(solver, task: Task, w0, alpha0, tol, max_steps: int, callback, file: Any):
    """Run a few steps at a time (one with a checkpoint), and tell the callback and the checkpoint in between."""
    state = None if file is None else file.read(jax.eval_shape(_init, solver, task, w0, alpha0))
    if state is None:
        state = _init(solver, task, w0, alpha0)
    chunk = 1
    while True:
        done = int(state.best.n_steps)
        state = _run(solver, task, state, tol, put(np.int32(min(done + chunk, max_steps))))
        best = state.best
        stop = callback is not None and callback(
            {"step": int(best.n_steps), "gap": float(best.gap), "primal": float(best.primal), "tol": float(tol)}
        )
        ended = int(best.n_steps) >= max_steps or int(best.n_steps) == done or int(best.status) != Status.MAX_STEPS
        if stop or ended or bool(best.reached(tol)):
            if file is not None:
                file.close(state, bool(best.reached(tol)))
            return _finish(solver, task, state, tol)
        if file is None:
            chunk = min(2 * chunk, 16)
        else:
            file.write(state)


_init = jax.jit(lambda solver, task, w0, alpha0: solver.init(task, w0, alpha0))
_run = jax.jit(lambda solver, task, state, tol, steps: solver.run(task, state, tol, steps))
_finish = jax.jit(lambda solver, task, state, tol: solver.finish(task, state, tol))


def _warn(model: Model, tol: float) -> None:
    status = Status(int(model.status))
    if status == Status.CONVERGED:
        return
    if status == Status.NO_INTERCEPT:
        warnings.warn(f"fit: {status.advice}", FitWarning, stacklevel=4)
        return
    relative = float(model.gap) / max(abs(float(model.primal)), 1e-300)
    warnings.warn(
        f"fit stopped after {int(model.n_steps)} steps with a relative duality gap of {relative:.1e}, tol is "
        f"{tol:.1e}. {status.advice}",
        FitWarning,
        stacklevel=4,
    )
