"""Theorem 2: re-optimise the touched coefficients and the touched dual variables, then take the mid ball there."""

import numpy as np

from jaxbounds.array import fori_loop, xp
from jaxbounds.certificates.cached import cached_regions
from jaxbounds.certificates.four_point import region
from jaxbounds.certificates.ledger import Ledger, Point
from jaxbounds.certificates.linear import conjugate_gradients
from jaxbounds.certificates.region import Method
from jaxbounds.edit import Edit, prepare
from jaxbounds.kinds import SetElements
from jaxbounds.pytree import pytree
from jaxbounds.rounding import TINY


@pytree
class Partial(Method):
    """Partial optimisation: w_J in the touched columns (cost n |J|) and alpha_I in the touched rows (cost d |I|).

    Spot changes: J and I are the columns and rows of the elements; rows: only I; columns: only J. The result is
    intersected with `Cached`, because a moved centre can make single end points worse.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0))
        >>> model = jb.fit(problem, np.eye(2), np.ones(2), tol=1e-12)
        >>> change = jb.set_rows([0], [[3.0, 0.0]])
        >>> bool(jb.bound(model, change, jb.Partial()).radius <= jb.bound(model, change).radius)
        True

    Source: Hanada et al. 2016, theorem 2.
    """

    def edits(self, model, change):
        found = (prepare(model, change),)
        if model.data is None or not any(isinstance(part, SetElements) for part in change.parts()):
            return found
        return found + (prepare(model, change, whole=True),)

    def certify(self, model, edits):
        parts = []
        for edit in edits:
            ledger = Ledger(model, edit)
            regions = cached_regions(ledger)
            if edit is edits[-1]:
                regions += partial_regions(ledger)
            parts.append((edit, tuple(regions)))
        return tuple(parts)


def partial_regions(ledger: Ledger) -> list:
    """Mid balls at the partial optima, together and apart."""
    edit, keep = ledger.edit, ledger.keep()
    fresh = ledger.suggest(keep.w)
    start = _pick(edit.full, fresh, keep)
    w = primal_step(ledger, keep.w)
    best = dual_step(ledger, start)
    moved = _pick(edit.full, ledger.suggest(w), keep)
    return [
        region(ledger, Point(w, best.alpha, best.ref)),
        region(ledger, Point(keep.w, best.alpha, best.ref)),
        region(ledger, Point(w, moved.alpha, moved.ref)),
    ]


def _pick(mask, new: Point, old: Point) -> Point:
    return Point(new.w, xp.where(mask, new.alpha, old.alpha), xp.where(mask, new.ref, old.ref))


def primal_step(ledger: Ledger, w, steps: int = 8):
    """Minimise P~ over the coefficients of the whole touched columns, the others fixed; any result is a valid point."""
    edit, loss, penalty = ledger.edit, ledger.loss, ledger.penalty_slots
    if loss.smoothness is None:
        return w
    free = edit.whole & ~edit.col_removed
    y, c = edit.target, ledger.c
    live = c > 0

    def coordinate(w):
        return loss.coordinate(ledger.scores(w)[0], y)

    def value(w):
        terms = xp.where(live, c * loss.value(coordinate(w), y), 0.0)
        return edit.total_r(terms) + edit.total_q(xp.where(free, penalty.value(w), 0.0))

    def slope(w):
        t = xp.where(live, c * loss.orientation(y) * loss.dual(coordinate(w), y), 0.0)
        return -edit.by_col(edit.of_row(t) * edit.new)

    if penalty.smooth:

        def newton(_, w):
            g = xp.where(free, slope(w) + penalty.subgradient(w)[0], 0.0)
            curvature = xp.where(live, c * loss.second(coordinate(w), y), 0.0)
            ridge = xp.where(free, penalty.second(w), 1.0)

            def hessian(p):
                s = edit.by_row(edit.new * edit.of_col(p))
                return xp.where(free, edit.by_col(edit.of_row(curvature * s) * edit.new), 0.0) + ridge * p

            p = conjugate_gradients(hessian, -g, 30, total=edit.total_q, spread=edit.to_q)
            trials = [w + size * p for size in (1.0, 0.5, 0.25, 0.05, 0.005)]
            return least(edit, value, [w, *trials])

        return fori_loop(0, steps, newton, w, done=np.array_equal)

    frobenius = edit.total_e(xp.where(edit.of_col(free), edit.of_row(c) * edit.new**2, 0.0))
    size = edit.to_q(1.0 / (loss.smoothness * frobenius + TINY))

    def proximal(_, state):
        w, ahead, momentum = state
        new = xp.where(free, penalty.prox(ahead - size * slope(ahead), size), ahead)
        after = (1 + xp.sqrt(1 + 4 * momentum**2)) / 2
        return new, new + (momentum - 1) / after * (new - w), after

    new, _, _ = fori_loop(0, 10 * steps, proximal, (w, w, xp.ones(())))
    return least(edit, value, [w, new])


def least(edit: Edit, value, points):
    """The point of least value; the first one if no other is less (NaN is never less)."""
    best, level = points[0], value(points[0])
    for point in points[1:]:
        new = value(point)
        best, level = xp.where(edit.to_q(new < level), point, best), xp.where(new < level, new, level)
    return best


def dual_step(ledger: Ledger, point: Point, steps: int = 40) -> Point:
    """Maximise D~ over alpha in the full touched rows by proximal gradient steps, the others fixed."""
    edit, loss = ledger.edit, ledger.loss
    if ledger.edit.penalty.strong_convexity is None:
        return point
    free = edit.full & ~edit.row_removed & (ledger.c > 0)
    norms = edit.by_row(edit.new**2)
    kappa = edit.to_r(edit.total_r(xp.where(free, ledger.c * norms, 0.0)) / ledger.lam_min) + xp.zeros_like(norms)

    def step(_, state):
        point, ahead, momentum = state
        v = ledger.columns(ahead)[0]
        u = xp.where(ledger.live, ledger.penalty_slots.grad_conjugate(v), 0.0)
        q = loss.coordinate(edit.by_row(edit.new * edit.of_col(u)), edit.target)
        alpha, ref = ascend(q, ahead.alpha)
        new = Point(point.w, xp.where(free, alpha, point.alpha), xp.where(free, ref, point.ref))
        after = (1 + xp.sqrt(1 + 4 * momentum**2)) / 2
        push = new.alpha + (momentum - 1) / after * (new.alpha - point.alpha)
        return new, Point(point.w, loss.clip(push, edit.target), new.ref), after

    def ascend(q, alpha):
        if not loss.defined_by_ref:
            return loss.dual_step(q, alpha, edit.target, kappa), q
        ref = loss.step_point(q, alpha, edit.target, kappa)
        return loss.dual(ref, edit.target), ref

    def done(old, new):
        return all(np.array_equal(a.alpha, b.alpha) for a, b in zip(old[:2], new[:2], strict=True))

    return fori_loop(0, steps, step, (point, point, xp.ones(())), done)[0]
