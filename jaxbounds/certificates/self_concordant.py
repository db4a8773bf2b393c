"""The logistic loss from a stored factor: a second-order set without a pass over the data."""

from jaxbounds.array import xp
from jaxbounds.certificates.cached import cached_regions
from jaxbounds.certificates.ellipsoid import Ellipsoid
from jaxbounds.certificates.factor import (
    Touched,
    decrement,
    kept_lengths,
    relative_set,
    touched_rows,
    updated,
)
from jaxbounds.certificates.inverse import dot
from jaxbounds.certificates.ledger import Ledger
from jaxbounds.certificates.region import Method
from jaxbounds.edit import scalar_l2
from jaxbounds.kinds import AddColumns, RemoveColumns, SetColumns
from jaxbounds.logistic import Logistic
from jaxbounds.model import coordinate_pad, lam_of, score_pad
from jaxbounds.pytree import pytree
from jaxbounds.rounding import TINY, U, growth, root, up


@pytree
class SelfConcordant(Method):
    """One Newton step of the logistic loss from the stored factor, and how far the optimum can be from it.

    With H the new Hessian at w^, nu = ||g|| of the new gradient there and ell = max_i ||x_i|| in the metric of H^-1,
    q = ell nu < 1 and T = -log(1 - q), the new optimum lies within T nu / 2 of w^ - T (2 - q) / (2 q) H^-1 g in the
    norm of H: about ell nu^2 / 2, second order in the change. Costs d^2 a touched row; for changes of rows, cells,
    targets, weights and the penalty of a model from `with_factor`. Intersected with `Cached`.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1))
        >>> model = jb.with_factor(jb.fit(problem, np.eye(3), np.array([1.0, -1.0, 1.0]), tol=1e-12))
        >>> change = jb.set_weights([0], [1.1])
        >>> float(jb.bound(model, change, jb.SelfConcordant()).radius) < 0.2 * float(jb.bound(model, change).radius)
        True

    Source: self-concordance of the logistic loss (Bach 2010), with both ends of the Hessian used.
    """

    flat = False

    def check(self, problem):
        if not isinstance(problem.loss, Logistic):
            raise ValueError(f"SelfConcordant needs the logistic loss, and this one is {problem.loss.name}; use Pass()")
        if not scalar_l2(problem.penalty, 0) or problem.intercept:
            raise ValueError("SelfConcordant needs an L2 penalty with one lam and no intercept; use Curvature()")

    def missing(self, model, change):
        if model.factor is None or model.data is None:
            return "SelfConcordant needs a stored factor and the data: model = jb.with_factor(model)"
        if any(isinstance(part, SetColumns | AddColumns | RemoveColumns) for part in change.parts()):
            return "SelfConcordant does not bound changes of whole columns; use Curvature()"
        return None

    def certify(self, model, edits):
        (edit,) = edits
        ledger = Ledger(model, edit)
        return ((edit, (*cached_regions(ledger), newton_set(ledger))),)


def newton_set(ledger: Ledger) -> Ellipsoid:
    """The set of one Newton step."""
    model, edit, loss, d = ledger.model, ledger.edit, ledger.loss, ledger.edit.d
    factor, touched, y = model.factor, touched_rows(model, edit), edit.target
    lam, w = lam_of(edit.penalty, d)[0], model.w.astype(xp.float64)

    score, pad = ledger.scores(ledger.keep().w)
    q = loss.coordinate(score, y)
    q_pad = coordinate_pad(q, pad)
    live = ledger.c > 0
    h = xp.where(live, ledger.c * loss.second(q, y), 0.0)
    vectors = xp.concatenate([touched.old, touched.new], axis=1)
    reference = updated(factor, touched.kappa, lam, vectors, xp.concatenate([-touched.h_old, h]))
    step = decrement(reference, *_gradient(ledger, touched, w, lam, q, q_pad))

    # the stored and the new h are within a relative `off` of the Hessian at the exact scores
    off = xp.maximum(factor.h_error, up(xp.max(xp.where(live, xp.expm1(q_pad), 0.0), initial=0.0) + 32 * U))
    crude = up(root(up(xp.max(model.rows.norm_sq), d + 8) / lam))
    kept = xp.minimum(xp.max(kept_lengths(factor, reference)), crude)
    ell = xp.maximum(kept, xp.max(xp.where(live, reference.of_columns(touched.new), 0.0), initial=0.0))
    product = up(ell * step.length / (1 - off), 16)
    inside = (product < 1) & (off < 0.5)
    p = xp.where(inside, xp.maximum(product, 1e-300), 0.5)
    T = -xp.log1p(-p)
    least, most = p / T * (1 - off) * (1 - 16 * U), p / ((1 - p) * T) * (1 + off) * (1 + 16 * U)
    radius, shape, pad, centre = relative_set(reference, w, step, xp.where(inside, least, 0.0), most)
    unknown, inf = xp.zeros(edit.n), xp.full(edit.n, xp.inf)
    return Ellipsoid(
        xp.asarray(xp.inf), radius, shape, pad, centre, xp.zeros(d) > 0, 0.0, unknown, unknown, -inf, inf,
        xp.asarray(xp.inf), intercept=False, dual=False,
    )  # fmt: skip


def _gradient(ledger: Ledger, touched: Touched, w, lam, q, q_pad):
    """grad P~(w^) and a bound on its error, from the stored gradient and the touched rows."""
    model, edit, old, loss = ledger.model, ledger.edit, ledger.old, ledger.loss
    factor, kappa = model.factor, touched.kappa
    old_q = loss.coordinate(old.score, old.target)
    old_pad = coordinate_pad(old_q, score_pad(old.score_abs, model.row_terms))

    def pull(rows, c, q, pad, y):
        """sum_i c_i t_i x_i over the slots, t = a, and a bound on its error."""
        a = loss.dual(q, y)
        a_pad = up(loss.smoothness * pad + 16 * U * xp.abs(a)) + TINY
        t = xp.where(c > 0, c * loss.orientation(y) * a, 0.0)
        size = dot(xp.abs(rows), xp.where(c > 0, c * (a_pad + growth(edit.rows.shape[0] + 12) * xp.abs(a)), 0.0))
        return dot(rows, t), up(size, edit.rows.shape[0] + 8)

    gain, gain_pad = pull(touched.new, ledger.c, q, q_pad, edit.target)
    loss_, loss_pad = pull(touched.old, ledger.c_kept, old_q, old_pad, old.target)
    v = kappa * factor.v + gain - loss_
    size = xp.abs(kappa * factor.v) + xp.abs(gain) + xp.abs(loss_) + lam * xp.abs(w)
    return lam * w - v, up(kappa * factor.v_pad + gain_pad + loss_pad + 8 * U * size)
