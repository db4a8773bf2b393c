"""The mid ball: the four-point inequality with what the model remembers, at a cost of the touched elements."""

from jaxbounds.array import xp
from jaxbounds.certificates.ball import Ball
from jaxbounds.certificates.four_point import region
from jaxbounds.certificates.ledger import Ledger, Point
from jaxbounds.certificates.region import Method
from jaxbounds.pytree import pytree


@pytree
class Cached(Method):
    """Mid balls at two trial duals, alpha^ kept and alpha = a(w^) in touched rows; O(|M|), the default.

    A ball around c = (w+u)/2 with R^2 = (G - gamma/4 ||t-a||_C^2)/lam - ||w-u||^2/4, shrunk where the loss is smooth,
    never wider in radius than sqrt(G/lam); for coefficients also the joint boxes and the domain of alpha.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0))
        >>> model = jb.fit(problem, np.eye(2), np.ones(2), tol=1e-12)
        >>> bounds = jb.bound(model, jb.set_targets([0], [2.0]))
        >>> bool(bounds.w(0).lower <= 2 / 3 <= bounds.w(0).upper)
        True

    Source: the four-point inequality (strong convexity and co-coercivity at the optimum).
    """

    def certify(self, model, edits):
        return tuple((edit, tuple(cached_regions(Ledger(model, edit)))) for edit in edits)


def cached_regions(ledger: Ledger) -> list[Ball]:
    """The mid balls at both trial duals."""
    edit, keep = ledger.edit, ledger.keep()
    found = [region(ledger, keep)]
    if ledger.loss.smoothness is None:
        return found
    fresh = ledger.suggest(keep.w)
    if edit.rest:
        return found + [region(ledger, fresh, whole_rows=True)]
    # rows that are not listed in full keep alpha: their other entries are not at hand
    alpha, ref = xp.where(edit.full, fresh.alpha, keep.alpha), xp.where(edit.full, fresh.ref, keep.ref)
    return found + [region(ledger, Point(keep.w, alpha, ref))]
