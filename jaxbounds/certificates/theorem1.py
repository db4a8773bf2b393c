"""Theorem 1 of the paper, corrected: the baseline every other certificate is compared with."""

from dataclasses import replace
from typing import Literal

from jaxbounds.arguments import as_choice
from jaxbounds.certificates.four_point import region
from jaxbounds.certificates.ledger import Ledger
from jaxbounds.certificates.region import Method
from jaxbounds.pytree import pytree, static


@pytree
class Theorem1(Method):
    """Balls of radius sqrt(2G/lam) around w^ and sqrt(2G/gamma) around t^, from the new duality gap G in O(|M|).

    Args:
        case: "i" (smooth loss only), "ii" (strongly convex penalty only), "iii" (both), None for what holds.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0))
        >>> model = jb.fit(problem, np.eye(2), np.ones(2), tol=1e-12)
        >>> bounds = jb.bound(model, jb.set_targets([0], [2.0]), jb.Theorem1())
        >>> bool(bounds.distance.upper > 1 / 3)
        True

    Source: Hanada et al. 2016, theorem 1, with the errata of its printed form mended.
    """

    case: Literal["i", "ii", "iii"] | None = static(default=None)

    def check(self, problem):
        as_choice(self.case, "case", ("i", "ii", "iii", None))
        if self.case in ("i", "iii") and problem.loss.smoothness is None:
            raise ValueError(f"case ({self.case}) needs a smooth loss (property A), and {problem.loss.name} is not")
        if self.case in ("ii", "iii") and problem.penalty.strong_convexity is None:
            raise ValueError(
                f"case ({self.case}) needs a strongly convex penalty (property B), and {problem.penalty.name} is not"
            )

    def certify(self, model, edits):
        (edit,) = edits
        ledger = Ledger(model, edit)
        found = region(ledger, ledger.keep(), mid=False)
        found = replace(found, primal=found.primal and self.case != "i", dual=found.dual and self.case != "ii")
        return ((edit, (found,)),)
