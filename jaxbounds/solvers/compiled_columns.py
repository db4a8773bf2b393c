"""The rounds of `ProximalGradient(compiled=True)`: coordinate descent on working sets, in C (descent.c)."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxbounds.matrix import Sparse
from jaxbounds.penalties import L1, ElasticNet
from jaxbounds.solvers.common import Task
from jaxbounds.solvers.compiled import REMEDY, call, check_machine, whole
from jaxbounds.solvers.quadratic import is_quadratic


def check(problem: Any) -> None:
    """Raise unless the C code knows the loss and the penalty, and the machine can build and run it."""
    loss, penalty = problem.loss, problem.penalty
    if not is_quadratic(problem):
        raise ValueError(f"ProximalGradient(compiled=True) knows the squared loss, not {loss.name}; {REMEDY}")
    if not isinstance(penalty, L1 | ElasticNet):
        raise ValueError(f"ProximalGradient(compiled=True) knows L1 and the elastic net, not {penalty.name}; {REMEDY}")
    check_machine()


def rounds(task: Task, w: jax.Array, s: jax.Array, v: jax.Array, squares: jax.Array, count) -> jax.Array:
    """w after so many rounds on a working set, chosen by v = X^T t, the pull of the data at w."""
    if not isinstance(task.matrix, Sparse):
        raise ValueError(f"ProximalGradient(compiled=True) reads sparse data, and X is dense; {REMEDY}")
    d, parts = w.shape[0], task.matrix.by_col.parts()
    lam = 0.0 if task.penalty.strong_convexity is None else task.penalty.strong_convexity
    l1 = task.penalty.subgradient(jnp.zeros(d))[1]
    every = lambda x: jnp.broadcast_to(jnp.asarray(x, jnp.float64), (d,))  # noqa: E731
    r = task.t(task.loss.dual(task.q(s), task.y))
    numbers = whole(count), whole(task.intercept)
    vectors = v, task.c, squares, every(lam), every(l1)
    lists = [array for part in (parts[0], parts[-1]) for array in (part.data, part.indices, part.start)]
    return call("descent", (w, r), *vectors, *numbers, whole(len(parts)), *lists)[0]
