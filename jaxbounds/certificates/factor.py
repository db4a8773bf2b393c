"""A stored factor of the Hessian at w^, and the Hessians that follow from it by low-rank updates.

    H = kappa X^T diag(h) X + lam I + U diag(D) U^T,   r columns of U for the rows that changed: O(d^2 r) to form,
    H^-1 = B - B U (I + D U^T B U)^-1 D U^T B,   B = V (kappa S + lam I)^-1 V^T from the eigenvectors V of X^T diag(h) X

Nothing is trusted but the formed H, whose rounding is known: every solution is judged by its residual.
"""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxbounds.array import put, readable, segment_sum, uses_jax, xp
from jaxbounds.certificates.centre import with_data
from jaxbounds.certificates.ellipsoid import Shape, row_norms
from jaxbounds.certificates.inverse import dense, dot, gram, inverse_of, least_eigenvalue, residual_norm
from jaxbounds.certificates.renewed import NewProblem
from jaxbounds.classes import not_a_model
from jaxbounds.edit import Edit, scalar_l2
from jaxbounds.host import HostMatrix, host_matrix
from jaxbounds.messages import brief
from jaxbounds.model import Model, lam_of
from jaxbounds.problem import Problem
from jaxbounds.pytree import in_float64, pytree
from jaxbounds.recalled import take
from jaxbounds.rounding import TINY, U, growth, norm_up, root, up

_SIDE = 4096  # columns up to which a factor is formed
_BLOCK = 1 << 22  # numbers of one block of directions


@pytree
class Factor:
    """X^T diag(h) X at the model's w^, formed and decomposed, and the gradient's data part there."""

    h: Any  # (n,) c_i f''(q_i)
    h_error: Any  # relative error of h for the exact scores, of losses whose f'' is known to a relative error
    gram: Any  # (d, d)
    error: Any  # bound of ||gram - X^T diag(h) X||
    vectors: Any  # (d, d), about
    values: Any  # (d,), about
    lam: Any
    least: Any  # lower bound of the least eigenvalue of X^T diag(h) X + lam I
    lengths: Any  # (n,) upper bounds of ||x_i|| in the metric of (X^T diag(h) X + lam I)^-1
    v: Any  # (d,) sum_i c_i t_i x_i at t = a(w^)
    v_pad: Any  # (d,)


def check_factor(problem: Problem) -> None:
    """Raise, naming the missing property, if no factor is stored for such a problem."""
    if problem.loss.smoothness is None:
        raise ValueError(f"a factor needs a smooth loss (property A), and {problem.loss.name} is not")
    if not scalar_l2(problem.penalty, 0):
        raise ValueError(f"a factor needs an L2 penalty with one lam, and the penalty is {brief(problem.penalty)}")
    if problem.intercept:
        raise ValueError("no factor is stored for problems with an unpenalised intercept; use Curvature() without it")


@in_float64
def with_factor(model: Model) -> Model:
    """The same model with a factor of its Hessian, from which later second-order bounds cost no n d^2.

    `Curvature` then updates X^T diag(c l'') X by the rows that changed instead of forming it again, and
    `SelfConcordant` needs no pass over the data at all. Takes n d^2 + 10 d^3 operations and 2 d^2 numbers once.

    Args:
        model: with its data, a smooth loss, an L2 penalty with one lam, no intercept, and at most 4,096 columns.

    Returns:
        Model.

    Raises:
        ValueError: naming what is missing.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1))
        >>> model = jb.with_factor(jb.fit(problem, np.eye(3), np.array([1.0, -1.0, 1.0]), tol=1e-12))
        >>> model.factor.gram.shape
        (3, 3)

    Source: Woodbury's identity.
    """
    if not isinstance(model, Model):
        raise TypeError(not_a_model(model))
    check_factor(model.problem)
    if model.data is None:
        raise ValueError("a factor needs the data, and the model was stored without it")
    if model.w.shape[0] > _SIDE:
        raise ValueError(f"a factor of {model.w.shape[0]} columns is too large; {_SIDE} is the most")
    here = readable(model)
    data, loss = with_data(here), here.problem.loss
    matrix: Any = host_matrix(data.matrix)
    (n, d), magnitude = matrix.shape, matrix.map(xp.abs)
    c, lam = data.weight * here.problem.unit(n), lam_of(here.problem.penalty, d)
    free = xp.ones(d) > 0
    problem = NewProblem(loss, here.problem.penalty, matrix, magnitude, data.target, c, lam, free, False)
    at = problem.gradient(here.w.astype(xp.float64))
    h, norms = c * loss.second(at.q, data.target), row_norms(matrix)
    G = gram(matrix, h)
    if not uses_jax((G,)) and not np.all(np.isfinite(G)):
        raise ValueError("the Hessian is not finite: rows of the data are too large for their squares; rescale X")
    error = up(growth(n + 8) * xp.sum(h * norms**2), n + 8) + d * TINY
    values, vectors = jnp.linalg.eigh(G) if uses_jax((G,)) else np.linalg.eigh(G)
    h_error = up(xp.max(xp.expm1(at.score_pad + 2 * U * xp.abs(at.q)))) + 32 * U
    H = G + lam[0] * xp.eye(d)
    P = inverse_of(H)
    least = least_eigenvalue(P, residual_norm(H, P, error + 4 * U * xp.max(xp.abs(H))), lam[0] * (1 - 4 * U))
    factor = Factor(h, h_error, G, error, vectors, values, lam[0], least, norms, at.v, at.pad)
    return replace(model, factor=put(replace(factor, lengths=stored(factor).of_rows(matrix))))


@pytree
class Reference(Shape):
    """||eta|| in the metric of H^-1, judged by residuals; `solve` gives H^-1 b."""

    H: Any  # (d, d)
    error: Any  # bound on its own rounding
    least: Any  # lower bound of the least eigenvalue
    vectors: Any  # (d, d)
    spectrum: Any  # (d,) of the part before the update
    left: Any  # (d, r) B U
    core: Any  # (r, r) (I + D U^T B U)^-1 D
    share: Any  # H >= share times the stored H^

    def apply(self, b):
        """About H^-1 B for a (d, k) array."""
        x = _spectral(self.vectors, self.spectrum, b)
        return x - dot(self.left, dot(self.core, dot(self.left.T, b)))

    def solve(self, b):
        """(X, bounds of ||H^-1 b_k - x_k||) for the columns b_k of a (d, k) array, refined once."""
        x = self.apply(b)
        x = x + self.apply(b - dot(self.H, x))
        r = b - dot(self.H, x)
        d = b.shape[0]
        rounding = growth(d + 4) * (dot(xp.abs(self.H), xp.abs(x)) + xp.abs(b))
        off = norm_up(xp.sum((xp.abs(r) + rounding) ** 2, axis=0), d + 4)
        return x, up((off + self.error * norm_up(xp.sum(x**2, axis=0), d)) / self.least, 16)

    def of_columns(self, eta):
        """Upper bound for each column of a (d, k) array."""
        x, error = self.solve(eta)
        d = eta.shape[0]
        noise = growth(d + 4) * xp.sum(xp.abs(eta * x), axis=0) + norm_up(xp.sum(eta**2, axis=0), d + 4) * error
        return up(root(xp.maximum(xp.sum(eta * x, axis=0), 0.0) + noise), 16)

    def of_rows(self, matrix):
        if not isinstance(matrix, HostMatrix):
            return self.of_columns(dense(matrix).T)
        size = max(1, _BLOCK // matrix.shape[1])
        blocks = [HostMatrix(matrix.values[k : k + size]) for k in range(0, matrix.shape[0], size)]
        return np.concatenate([self.of_columns(dense(block).astype(np.float64).T) for block in blocks])

    def of_axes(self):
        return self.of_columns(xp.eye(self.H.shape[0]))

    def of_direction(self, eta):
        return self.of_columns(eta[:, None])[0]

    def largest(self):
        return up(1.0 / root(self.least))


def _spectral(vectors, spectrum, b):
    return dot(vectors, dot(vectors.T, b) / spectrum[:, None])


def stored(factor: Factor) -> Reference:
    """X^T diag(h) X + lam I as it is."""
    nothing = xp.zeros_like(factor.gram, shape=(factor.gram.shape[0], 0))
    return updated(factor, xp.asarray(1.0), factor.lam, nothing, xp.zeros_like(factor.h, shape=0))


def kept_lengths(factor: Factor, reference: Reference):
    """(n,) upper bounds of ||x_i|| in the metric of H^-1 for the rows of the stored factor."""
    share = reference.share
    return up(factor.lengths / root(xp.where(share > 0, share, 1.0))) + xp.where(share > 0, 0.0, xp.inf)


def kept_share(factor: Factor, kappa, lam, vectors, weights):
    """A number s with H >= s H^, H as in `updated` and H^ as it was stored; it may be negative.

    s = min(kappa, lam/lam^) - tau, tau the norm of D^(1/2) U^T H^^-1 U D^(1/2) over the columns with weights -D.
    """
    whole = xp.minimum(kappa, lam / factor.lam) * (1 - 8 * U)
    if not vectors.shape[1]:
        return whole
    X = vectors * root(xp.maximum(-weights, 0.0))[None, :]
    d, k = X.shape
    P, error = stored(factor).solve(X)
    size = dot(xp.abs(X).T, xp.abs(P))
    tau = norm_up(xp.sum(dot(X.T, P) ** 2), k * k + 4) + growth(d + 8) * norm_up(xp.sum(size**2), k * k + 4)
    tau = up(tau + norm_up(xp.sum(X**2), k * d) * norm_up(xp.sum(error**2), k), 16)
    return whole - tau


def updated(factor: Factor, kappa, lam, vectors, weights) -> Reference:
    """kappa X^T diag(h) X + lam I + U diag(D) U^T, for U = `vectors` (d, r) and D = `weights` (r,)."""
    d, r = vectors.shape
    eye = xp.eye(d)
    H = kappa * factor.gram + lam * eye + dot(vectors * weights[None, :], vectors.T)
    size = kappa * norm_up(xp.sum(factor.gram**2), d * d) + xp.sum(xp.abs(weights) * xp.sum(vectors**2, axis=0))
    error = up(kappa * factor.error + growth(r + 8) * up(size, d + r) + 4 * U * lam, 16)
    # V^T H V has these diagonals, about; a least eigenvalue of 0 is as good as any where rounding made it negative
    spectrum = kappa * xp.maximum(factor.values, 0.0) + lam
    left = _spectral(factor.vectors, spectrum, vectors)
    inner = xp.eye(r) + weights[:, None] * dot(vectors.T, left)
    core, share = solved(inner, xp.diag(weights)), kept_share(factor, kappa, lam, vectors, weights)
    least = xp.maximum(lam * (1 - 4 * U), share * factor.least * (1 - 8 * U))
    return Reference(H, error, least, factor.vectors, spectrum, left, core, share)


def solved(a, b):
    """a^-1 b, zeros where it does not exist: residuals say what it is worth."""
    if uses_jax((a, b)):
        x = jnp.linalg.solve(a, b)
    else:
        try:
            x = np.linalg.solve(a, b)
        except np.linalg.LinAlgError:
            x = np.zeros_like(b)
    return xp.where(xp.all(xp.isfinite(x)), x, 0.0)


@pytree
class Touched:
    """The touched rows before and after the change, written out: (d, R) each."""

    old: Any
    new: Any
    h_old: Any  # (R,) kappa c_i f''(q_i) at w^
    kappa: Any


def touched_rows(model: Model, edit: Edit) -> Touched:
    """What a change of rows does to X; it must list no column."""
    factor: Any = model.factor
    n, d, R = model.alpha.shape[0], model.w.shape[0], edit.rows.shape[0]
    slot, col, value = with_data(model).matrix.rows(xp.minimum(edit.rows, n - 1))
    value = xp.where((edit.rows < n)[slot], value.astype(xp.float64), 0.0)
    old = segment_sum(value, slot * d + col, R * d)  # under jit a position may be listed again with zeros
    live = (edit.row < R) & (edit.col < edit.cols.shape[0])
    to = xp.where(live, edit.row * d + edit.cols[xp.minimum(edit.col, edit.cols.shape[0] - 1)], R * d)
    # listed entries cancel exactly before the new ones come in their place
    new = (old - segment_sum(edit.old, to, R * d)) + segment_sum(edit.new, to, R * d)
    kappa = xp.asarray(edit.unit / model.problem.unit(n))
    return Touched(old.reshape(R, d).T, new.reshape(R, d).T, kappa * take(factor.h, edit.rows), kappa)


@pytree
class Decrement:
    """A gradient in the metric of H^-1: p = H^-1 g within `error`, and ||g|| <= `length`."""

    p: Any
    error: Any
    length: Any


def decrement(reference: Reference, g, pad) -> Decrement:
    """H^-1 g and its length for a gradient known within `pad`."""
    d = g.shape[0]
    off = norm_up(xp.sum(pad**2), d + 4)
    p, error = reference.solve(g[:, None])
    p, error = p[:, 0], error[0]
    noise = growth(d + 4) * xp.sum(xp.abs(g * p)) + norm_up(xp.sum(g**2), d + 4) * error
    length = root(xp.maximum(xp.sum(g * p), 0.0) + noise) + off * reference.largest()
    return Decrement(p, up(error + off / reference.least), up(length, 16))


def relative_set(reference: Reference, w, step: Decrement, least, most) -> tuple:
    """(radius, shape, pad, centre) of the set that A H <= K <= B H gives, K the mean Hessian between w and w*:

    |eta.(w* - w + (1/A + 1/B)/2 H^-1 g)| <= (1/A - 1/B)/2 ||eta|| ||g||, norms in the metric of H^-1. B may be inf.
    """
    known = least > 0
    high, low = 1.0 / xp.where(known, least, 1.0), 1.0 / most
    theta = (high + low) / 2
    centre = w - theta * step.p
    rounding = 4 * U * norm_up(xp.sum((xp.abs(w) + theta * xp.abs(step.p)) ** 2), w.shape[0] + 4)
    radius = up((high - low + 4 * U * high) / 2 * step.length)
    pad = up(theta * step.error + rounding)
    known = known & xp.isfinite(radius) & xp.isfinite(pad)
    return xp.where(known, radius, xp.inf), reference, xp.where(known, pad, xp.inf), xp.where(known, centre, w)
