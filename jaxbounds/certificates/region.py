"""What a certificate is: a method that finds regions, sets that must hold the new optimum."""

from abc import abstractmethod
from typing import Any

from jaxbounds.array import xp
from jaxbounds.batches import Flat
from jaxbounds.edit import Edit, prepare
from jaxbounds.kinds import Change
from jaxbounds.matrix import Matrix
from jaxbounds.model import Model


class Region:
    """A set that must hold the new optimum, known by its support function: what it says of any linear function.

    Attributes:
        gap: upper bound of the new duality gap at the trial pair behind it.
        length: upper bound of ||w* - c||_2 for the set's centre c, if `primal`.
        dual_radius: sum_i c_i (t*_i - m_i)^2 <= dual_radius^2 for some m, if `dual`.
    """

    gap: Any
    length: Any
    dual_radius: Any
    primal: bool
    dual: bool

    @abstractmethod
    def coordinates(self, model: Model, edit: Edit) -> tuple[Any, Any]:
        """(lower, upper) of every coefficient."""

    @abstractmethod
    def scores(self, model: Model, edit: Edit, matrix: Matrix) -> tuple[Any, Any]:
        """(lower, upper) of x.w* for each row x of a matrix."""

    def offset(self, model: Model, edit: Edit) -> tuple[Any, Any]:
        """(lower, upper) of the intercept: 0 without one."""
        return xp.zeros(()), xp.zeros(())

    @abstractmethod
    def duals(self, model: Model, edit: Edit) -> tuple[Any, Any]:
        """(lower, upper) of every dual variable."""

    @abstractmethod
    def distance(self, model: Model, edit: Edit) -> tuple[Any, Any]:
        """(lower, upper) of ||w* - w^||, coefficients of removed columns counted in full."""


class Method:
    """A way to bound: which edits it needs, and the regions it finds for each.

    Attributes:
        flat: True if it takes many candidates laid end to end.
    """

    flat: bool = True

    def check(self, problem) -> None:
        """Raise, naming the missing property, if the method does not apply."""

    def applies(self, problem) -> bool:
        """Whether `check` finds nothing missing."""
        try:
            self.check(problem)
        except ValueError:
            return False
        return True

    def missing(self, model: Model, change: Change | Flat) -> str | None:
        """What this model or this change lacks for the method, in a sentence; None if nothing."""
        return None

    def edits(self, model: Model, change: Change | Flat) -> tuple[Edit, ...]:
        """The change as the method sees it; the first edit lists only what the change touches."""
        return (prepare(model, change),)

    @abstractmethod
    def certify(self, model: Model, edits: tuple[Edit, ...]) -> tuple[tuple[Edit, tuple[Region, ...]], ...]:
        """Sets that hold the new optimum: for each edit its regions."""
