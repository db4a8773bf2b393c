"""Working sets: a problem on the few columns that matter, where most coefficients are 0."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import lax

from jaxbounds.losses import Squared
from jaxbounds.matrix import Dense, Matrix, Sparse
from jaxbounds.solvers.common import Task, kinks
from jaxbounds.solvers.linear import dot, is_direct, weighted_gram
from jaxbounds.solvers.quadratic import is_quadratic

_LEAST, _MOST = 32, 512  # columns of a block (dense: twice as many at least)
_WORK = 1.5e8  # operations for the Gram matrix of a block
_PASSES = 90  # the same, an entry of the data: products with these are what it saves
_LESS = 4  # how much less a block holds than the data where it is multiplied as often
_SMALL = 1 << 16  # data of so many entries are fast as they are, and compile in half the time
_RIDGE = 1e-12  # part of its diagonal that is added to a Gram matrix, so that equal columns can be factored
_GROUP = 32  # scores of which only the largest is compared


def width(task: Task) -> int | None:
    """How many columns make a block; None where all of them are as cheap, or single ones cannot be picked."""
    matrix, (n, d) = task.matrix, task.matrix.shape
    if isinstance(matrix, Sparse):
        stored = 3 * matrix.by_row.data.size  # an entry costs three times what it does in dense data
    elif isinstance(matrix, Dense) and matrix.shards == 1:
        stored = n * d
    else:
        return None
    if task.penalty.smooth or n * d <= _SMALL:
        return None
    most = math.isqrt(int(min(_WORK, _PASSES * stored)) // n)
    if not is_quadratic(task):
        most = min(most, stored // (_LESS * n))
    size = min(_MOST, 1 << max(most, 1).bit_length() - 1)
    least = 2 * _LEAST if isinstance(matrix, Dense) else _LEAST
    return size if least <= size < d else None


def in_use(task: Task, w: jax.Array) -> jax.Array:
    """(d,) mask of the coefficients that are not held at a kink at 0."""
    return ~kinks(task.penalty, w.shape[0]) | (w != 0)


def working_set(task: Task, w: jax.Array, v: jax.Array, metric: jax.Array, most: int) -> jax.Array:
    """The columns in use, and those that are nearest to it: by how far v_j = sum_i t_i x_ij is from moving w_j off 0.

    The distance is measured in the norm of the column, root metric_j, as celer does (Massias, Gramfort, Salmon 2018).
    """
    lo, hi = task.penalty.subgradient(jnp.zeros_like(w))
    beyond = jnp.maximum(v - hi, lo - v) / jnp.sqrt(metric)
    return _largest(jnp.where(in_use(task, w), jnp.inf, jnp.maximum(beyond, -1e300)), most)


def _largest(score: jax.Array, most: int) -> jax.Array:
    """The places of the largest scores (finite or inf): in the groups with the largest maxima, so few are sorted."""
    groups = -(-score.shape[0] // _GROUP)
    table = jnp.pad(score, (0, groups * _GROUP - score.shape[0]), constant_values=-jnp.inf).reshape(groups, _GROUP)
    group = lax.top_k(jnp.max(table, axis=1), min(most, groups))[1].astype(jnp.int32)
    place = lax.top_k(table[group].reshape(-1), most)[1].astype(jnp.int32)
    return group[place // _GROUP] * _GROUP + place % _GROUP


def _block(matrix: Matrix, columns: jax.Array) -> Dense:
    """Some columns as dense data."""
    if isinstance(matrix, Sparse):
        return Dense(matrix.by_col.dense(columns, matrix.shape[0]), one_way=True)
    assert isinstance(matrix, Dense)
    return Dense(matrix.values.at[:, columns].get(mode="promise_in_bounds").astype(jnp.float64), one_way=True)


def restricted(task: Task, w: jax.Array, s: jax.Array, v: jax.Array, columns: jax.Array) -> tuple[Task, Dense]:
    """The task on some columns, where the other coefficients are 0, and these columns as dense data.

    Under a quadratic loss many rows become as few as the columns: with X^T D X = R^T R the loss at u is |R u - z|^2 / 2
    and a constant, where R^T (z - R w) = v is minus its gradient at w. As v comes from the data, the small ridge in R
    makes this a step of a proximal point iteration, and does not move its end.
    """
    rows, penalty = _block(task.matrix, columns), task.penalty.take(columns)
    small = replace(task, penalty=penalty, matrix=rows)
    n, k = rows.shape
    if not is_quadratic(task) or (n <= 2 * k and is_direct(rows)):
        return small, rows
    weights = task.c * task.loss.second(task.q(s), task.y)
    gram = weighted_gram(small.rows(weights), weights, 0)
    ridge = jnp.where(jnp.diag(gram) > 0, _RIDGE * jnp.diag(gram), 1.0)
    factor = jnp.linalg.cholesky(gram + jnp.diag(ridge))
    w, v = w[columns], v[columns]
    z = dot(factor.T, w) + jax.scipy.linalg.solve_triangular(factor, v, lower=True)
    return Task(Squared(), penalty, Dense(factor.T, one_way=True), z, jnp.ones_like(z), False, False), rows
