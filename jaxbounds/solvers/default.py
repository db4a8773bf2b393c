"""Which solver suits a problem."""

from typing import Any

from jaxbounds.solvers.dual import DualCoordinate
from jaxbounds.solvers.newton import NewtonCG
from jaxbounds.solvers.proximal import ProximalGradient


def default_solver(problem: Any, n: int, d: int, sparse: bool) -> DualCoordinate | NewtonCG | ProximalGradient:
    """The solver for a problem on (n, d) data.

    A loss with kinks needs DualCoordinate, a penalty that is not both smooth and strongly convex ProximalGradient;
    everything else is fastest with NewtonCG, which factors small Hessians and uses conjugate gradients on large ones.

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
    del n, d, sparse
    if problem.loss.smoothness is None:
        return DualCoordinate()
    if problem.penalty.smooth and problem.penalty.strong_convexity is not None:
        return NewtonCG()
    return ProximalGradient()
