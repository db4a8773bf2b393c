"""What every solver is and does alike."""

import abc
from typing import Any

from jax import lax

from jaxbounds.interfaces import Loss
from jaxbounds.solvers.common import Solution, Task, run


class Solver(abc.ABC):
    """A frozen config; `jaxbounds.solvers.common` says what the methods do."""

    beyond = 0.01  # a last step may take the gap this far below the goal

    @abc.abstractmethod
    def check(self, problem: Any) -> None:
        """Raise if the solver does not fit the problem."""

    @abc.abstractmethod
    def init(self, task: Task, w0, alpha0) -> Any:
        """The state at a start."""

    @abc.abstractmethod
    def step(self, task: Task, state: Any, tol) -> Any:
        """One outer step."""

    @abc.abstractmethod
    def finish(self, task: Task, state: Any, tol) -> Solution:
        """The result of a state."""

    def run(self, task: Task, state: Any, tol, max_steps) -> Any:
        """Step until done."""
        return run(self, task, state, tol, max_steps, self.beyond)

    def solve(self, problem: Any, matrix, y, c, w0, alpha0, tol, max_steps) -> Solution:
        """Minimise from (w0, alpha0); traceable, and differentiable in everything but the start."""
        differentiable = getattr(problem, "differentiable", True)
        task = Task(problem.loss, problem.penalty, matrix, y, c, getattr(problem, "intercept", False), differentiable)
        frozen, w0, alpha0 = lax.stop_gradient((task.constant(), w0, alpha0))
        return self.finish(task, self.run(frozen, self.init(frozen, w0, alpha0), tol, max_steps), tol)


def require_smooth(solver: Solver, loss: Loss) -> None:
    """Raise unless the loss is differentiable."""
    if loss.smoothness is None:
        raise ValueError(
            f"{type(solver).__name__} needs a differentiable loss, and {loss.name} declares no smoothness; use "
            "DualCoordinate, or a smoothed loss"
        )
