"""Any optax transformation as a solver: its updates, our duality gap."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxbounds.arguments import as_whole
from jaxbounds.pytree import pytree, static
from jaxbounds.solvers.base import Solver, require_smooth
from jaxbounds.solvers.common import Progress, Solution, Task, primal_point
from jaxbounds.solvers.implicit import finish

_PATIENCE = 100  # outer steps in which the gap must fall by a tenth: first-order methods crawl, and their gap swings


@pytree
class _State:
    best: Progress
    w: jax.Array
    inner: Any  # the transformation's own state


def _stored(state: Any) -> tuple[Any, Any]:
    """(value, gradient) at the present point, if the transformation ends with a line search that kept them."""
    import optax

    while type(state) is tuple and state:  # chains
        state = state[-1]
    if isinstance(state, optax.ScaleByZoomLinesearchState | optax.ScaleByBacktrackingLinesearchState):
        return state.value, state.grad
    return None, None


@pytree
class Optax(Solver):
    """Minimise with any optax transformation, and stop on the duality gap; for a differentiable loss and penalty.

    One step is a fixed number of updates of w with the gradient psi'(w) - X^T(c o alpha(w)), then the gap of
    (w, alpha(w)). The best point is kept; a run that diverges ends with status NONFINITE, one that no longer gains
    with STALLED. Transformations that ask for value, grad or value_fn (line searches, `optax.lbfgs`) get them. A fit
    compiles once for each transformation object: create it once, outside of loops.

    Args:
        transformation: optax.GradientTransformation, such as optax.lbfgs() or optax.adam(1e-2).
        updates: updates in one step.

    Example:
        >>> import numpy as np, optax, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1))
        >>> solver = jb.solvers.Optax(optax.lbfgs())
        >>> model = jb.fit(problem, np.array([[1.0], [-1.0], [2.0]]), np.array([1, -1, 1]), solver=solver)
        >>> float(model.gap) <= 1e-8 * float(model.primal)
        True
    """

    transformation: Any = static()
    updates: int = static(default=10)

    beyond = 1.0

    def check(self, problem: Any) -> None:
        """Raise unless loss and penalty are differentiable and the settings are what they should be."""
        loss, penalty = problem.loss, problem.penalty
        if not (hasattr(self.transformation, "init") and hasattr(self.transformation, "update")):
            raise TypeError(
                "transformation: Optax needs an optax.GradientTransformation, such as optax.lbfgs(); got "
                f"{type(self.transformation).__name__}"
            )
        as_whole(self.updates, "updates", 1)
        require_smooth(self, loss)
        if not penalty.smooth:
            raise ValueError(f"Optax needs a smooth penalty, and {penalty.name} is not; use ProximalGradient")

    def init(self, task: Task, w0, alpha0) -> _State:
        """The state at w0 (alpha0 is not used: the dual point follows from w)."""
        point, _ = primal_point(task, w0, task.scores(w0))
        with jax.numpy_dtype_promotion("standard"):
            return _State(Progress.start(*point), w0, self.transformation.init(w0))

    def step(self, task: Task, state: _State, tol) -> _State:
        """A few updates, then the gap."""
        del tol
        import optax

        update = optax.with_extra_args_support(self.transformation).update

        def value_and_grad(w):
            q = task.q(task.scores(w))
            return task.primal(w, q), task.penalty.subgradient(w)[0] - task.v(task.loss.dual(q, task.y))

        def value_fn(w):
            value, grad = value_and_grad(lax.stop_gradient(w))
            return value + jnp.sum((w - lax.stop_gradient(w)) * grad)  # adds 0, and has this gradient

        def one(carry, _):
            w, inner = carry
            value, grad = _stored(inner)
            if grad is None:
                value, grad = value_and_grad(w)
            else:  # infinite before the first line search
                value, grad = lax.cond(jnp.isfinite(value), lambda: (value, grad), lambda: value_and_grad(w))
            change, inner = update(grad, inner, w, value=value, grad=grad, value_fn=value_fn)
            return (optax.apply_updates(w, change), inner), None

        with jax.numpy_dtype_promotion("standard"):
            carry: Any = lax.scan(one, (state.w, state.inner), length=self.updates)[0]
        w, inner = carry
        point, _ = primal_point(task, w, task.scores(w))
        return _State(state.best.update(*point, jnp.any(w != state.w), _PATIENCE), w, inner)

    def finish(self, task: Task, state: _State, tol) -> Solution:
        """The result of a state."""
        return finish(task, state.best, tol)
