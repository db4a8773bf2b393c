"""Newton's method on n dual weights and the Gram matrix of the rows, for far fewer rows than columns."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxbounds.penalties import L2
from jaxbounds.pytree import pytree
from jaxbounds.solvers.base import Solver, require_smooth
from jaxbounds.solvers.common import (
    TINY,
    Progress,
    Solution,
    Task,
    line_search,
    primal_point,
)
from jaxbounds.solvers.implicit import finish
from jaxbounds.solvers.linear import Centred, Rows, dot, fits_dense, weighted_gram


def gram(matrix: Rows, scale: jax.Array) -> jax.Array:
    """X diag(scale) X^T, (n, n)."""
    if fits_dense(matrix.matrix if isinstance(matrix, Centred) else matrix):
        return weighted_gram(matrix, scale, 1)
    return lax.map(lambda row: matrix.matvec(scale * matrix.rmatvec(row)), jnp.eye(matrix.shape[0]))


@pytree
class _State:
    best: Progress  # its w are the weights t
    t: jax.Array
    s: jax.Array  # scores
    rest: jax.Array  # the weights of alpha(w), minus t
    pull: jax.Array  # K rest
    gram: jax.Array


@pytree
class DualNewton(Solver):
    """Newton's method on n weights, w = X^T t / lam, for a differentiable loss and L2; for n far below d.

    The Gram matrix K = X diag(1/lam) X^T is formed once, and then holds everything: scores K t, penalty t.K t / 2, and,
    with r = c o alpha(w) - t, the penalty's part of the duality gap r.K r / 2. The Newton direction solves
    (I + D K) z = r with D = diag(c f''), by the Cholesky factor of I + D^1/2 K D^1/2, which is always positive
    definite. A step costs n^3/3 whatever the number of columns. With an intercept the rows are centred, and D becomes
    D - D 1 1^T D / 1^T D 1.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1))
        >>> model = jb.fit(problem, np.eye(2, 9), np.array([1, -1]), solver=jb.solvers.DualNewton())
        >>> float(model.gap) <= 1e-8 * float(model.primal)
        True
    """

    def check(self, problem: Any) -> None:
        """Raise unless the loss is differentiable and the penalty L2."""
        loss, penalty = problem.loss, problem.penalty
        require_smooth(self, loss)
        if not penalty.quadratic:
            raise ValueError(f"DualNewton needs an L2 penalty, and {penalty.name} is not; leave solver out")

    def init(self, task: Task, w0, alpha0) -> _State:
        """The state at the weights of alpha0 or, if that is better, of the dual point that follows from w0."""
        lam = task.penalty.strong_convexity
        d, rows = task.matrix.shape[1], task.rows(task.c)
        if jnp.ndim(lam) == 0:  # vmap over lam shares the matrix
            K = gram(rows, jnp.ones(d, jnp.float64)) / lam
        else:
            K = gram(rows, 1.0 / lam)
        follows = task.loss.dual(task.q(task.scores(w0)), task.y)
        first, second = (self._point(task, K, task.t(alpha)) for alpha in (alpha0, follows))
        better = second[0][3] < first[0][3]
        point, s, rest, pull = jax.tree.map(lambda a, b: jnp.where(better, b, a), first, second)
        return _State(Progress.start(*point), point[0], s, rest, pull, K)

    def _point(self, task: Task, K, t):
        pulled = dot(K, t)
        s = task.balanced(pulled)
        q = task.q(s)
        alpha = task.loss.dual(q, task.y)
        rest = task.t(alpha) - t
        pull = dot(K, rest)
        rows = task.c * task.loss.fenchel_young(q, alpha, task.y, q)
        gap = jnp.sum(rows) + jnp.maximum(0.5 * jnp.sum(rest * pull), 0.0)
        primal = jnp.sum(task.c * task.loss.value(q, task.y)) + 0.5 * jnp.sum(t * pulled)
        return (t, alpha, q, gap, primal), s, rest, pull

    def step(self, task: Task, state: _State, tol) -> _State:
        """One Newton step with line search."""
        del tol
        root = jnp.sqrt(task.c * task.loss.second(task.q(state.s), task.y))
        size = jnp.maximum(jnp.linalg.norm(root), TINY)

        def project(a):  # the answer of the intercept
            return a - jnp.multiply.outer(root / size, dot(root / size, a)) if task.intercept else a

        system = project(project(root[:, None] * state.gram * root[None, :]).T) + jnp.eye(root.shape[0])
        factor = jnp.linalg.cholesky(system), True
        z = state.rest - root * project(jax.scipy.linalg.cho_solve(factor, project(root * state.pull)))
        z = jnp.where(jnp.all(jnp.isfinite(z)), z, 0.0)
        ds = dot(state.gram, z)
        # on the line the penalty is that of one coefficient: lam = z.K z, from w = t.K z / lam
        lam = jnp.maximum(jnp.sum(z * ds), TINY)
        at = jnp.sum(state.t * ds) / lam
        line = replace(task, penalty=L2(lam))
        length = line_search(line, task.loss, at[None], state.s, jnp.ones(1), ds, state.best.primal)
        point, s, rest, pull = self._point(task, state.gram, state.t + length * z)
        best = state.best.update(*point, length > 0)
        return _State(best, point[0], s, rest, pull, state.gram)

    def finish(self, task: Task, state: _State, tol) -> Solution:
        """The result of a state: its coefficients, and their gap on the data themselves."""
        frozen = lax.stop_gradient(task)
        w = frozen.penalty.grad_conjugate(frozen.rows(frozen.c).rmatvec(state.best.w))
        (w, alpha, ref, gap, primal), _ = primal_point(frozen, w, frozen.scores(w))
        return finish(task, replace(state.best, w=w, alpha=alpha, ref=ref, gap=gap, primal=primal), tol)
