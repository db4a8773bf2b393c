"""Which solver suits a problem."""

from typing import Any

from jaxbounds.solvers.dual import DualCoordinate
from jaxbounds.solvers.gram import DualNewton
from jaxbounds.solvers.newton import NewtonCG
from jaxbounds.solvers.proximal import ProximalGradient

# Up to these rows, and from this d / n on, DualNewton beats NewtonCG: 1.2 to 1.7 times in the geometric mean over
# losses and lam of 1e-5 to 1e-1, up to 12 times at the small end, though slower by up to 4 at the easy one.
_GRAM_ROWS, _GRAM_RATIO = 256, 8


def default_solver(
    problem: Any, n: int, d: int, sparse: bool
) -> DualCoordinate | DualNewton | NewtonCG | ProximalGradient:
    """The solver for a problem on (n, d) data.

    A loss with kinks needs DualCoordinate, a penalty that is not both smooth and strongly convex ProximalGradient;
    L2 on few rows with many columns (dense, n <= 256, 8 n <= d) is fastest with DualNewton, whose steps do not depend
    on d, and everything else with NewtonCG, which factors Hessians where conjugate gradients are slow.

    Args:
        problem: has .loss and .penalty.
        n, d: rows and columns.
        sparse: whether the data are stored sparse.

    Example:
        >>> import collections, jaxbounds.losses as losses, jaxbounds.penalties as penalties
        >>> problem = collections.namedtuple("Problem", "loss penalty")(losses.hinge(), penalties.l2(0.1))
        >>> type(default_solver(problem, 100, 10, sparse=False)).__name__
        'DualCoordinate'
    """
    if problem.loss.smoothness is None:
        return DualCoordinate()
    if problem.penalty.quadratic and not sparse and n <= _GRAM_ROWS and _GRAM_RATIO * n <= d:
        return DualNewton()
    if problem.penalty.smooth and problem.penalty.strong_convexity is not None:
        return NewtonCG()
    return ProximalGradient()


def blockwise_solver(problem: Any) -> DualCoordinate | DualNewton | NewtonCG | ProximalGradient:
    """The solver for a problem on `RowBlocks`: one that needs nothing but products with the data.

    Example:
        >>> import collections, jaxbounds.losses as losses, jaxbounds.penalties as penalties
        >>> problem = collections.namedtuple("Problem", "loss penalty")(losses.hinge(), penalties.l2(0.1))
        >>> blockwise_solver(problem).epochs
        0
    """
    found = default_solver(problem, 1, 1, sparse=True)
    return DualCoordinate(epochs=0) if problem.loss.smoothness is None else found


def check_blockwise(solver: Any) -> None:
    """Raise unless a solver needs nothing but products with the data."""
    if getattr(solver, "compiled", False):
        raise ValueError(f"{type(solver).__name__}(compiled=True) reads data in memory, and RowBlocks reads blocks of "
                         "rows; leave out compiled=True")  # fmt: skip
    if getattr(solver, "epochs", 0) or not getattr(solver, "polish", True):
        raise ValueError("DualCoordinate's epochs read single rows, and RowBlocks reads blocks of rows; use "
                         "DualCoordinate(epochs=0), or leave solver out")  # fmt: skip
    if isinstance(solver, DualNewton):
        raise ValueError("DualNewton needs the data in memory, and RowBlocks reads them in blocks; leave solver out")
