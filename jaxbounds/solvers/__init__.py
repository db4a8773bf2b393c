"""Solvers: frozen configs that minimise a problem, each stating what it needs.

Every solver has ``check(problem)``, ``solve(problem, matrix, y, c, w0, alpha0, tol, max_steps) -> Solution``, and the
pieces of its loop (``init``, ``step``, ``run``, ``finish``; see `jaxbounds.solvers.common`) for callers that want to
look at a fit while it runs.
"""

from jaxbounds.solvers.common import Solution, Task
from jaxbounds.solvers.default import default_solver
from jaxbounds.solvers.dual import DualCoordinate
from jaxbounds.solvers.gram import DualNewton
from jaxbounds.solvers.newton import NewtonCG
from jaxbounds.solvers.optax import Optax
from jaxbounds.solvers.proximal import ProximalGradient

__all__ = [
    "DualCoordinate",
    "DualNewton",
    "NewtonCG",
    "Optax",
    "ProximalGradient",
    "Solution",
    "Task",
    "default_solver",
]
