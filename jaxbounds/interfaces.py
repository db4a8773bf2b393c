"""What a loss and a penalty must provide: the two abstract classes behind `jb.losses` and `jb.penalties`.

All methods are elementwise, take and return float64 arrays, and open a 64-bit scope themselves.
"""

import abc
import functools
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbounds.array import are_plain, uses_jax, xp
from jaxbounds.pytree import in_float64, is_traced
from jaxbounds.rounding import U
from jaxbounds.secant import reach, usable
from jaxbounds.traceable import UNTRACEABLE, not_jax

LAM_RANGE = (1e-260, 1e260)  # of strong convexity: beyond it the metric of lam is not one of float64 numbers


def check_strength(name: str, value) -> None:
    """Raise on a strong convexity beyond `LAM_RANGE`; tracers are not looked at, see `Penalty.in_range`."""
    if is_traced(value):
        return
    numbers = np.ravel(np.asarray(value, np.float64))
    bad = np.flatnonzero((numbers < LAM_RANGE[0]) | (numbers > LAM_RANGE[1]))
    if bad.size:
        where = f"{name}[{bad[0]}]" if np.ndim(value) else name
        raise ValueError(
            f"{where} = {numbers[bad[0]]:g} is not allowed: beside it squares of float64 numbers vanish or overflow, "
            f"and no bound would hold; choose values from {LAM_RANGE[0]:g} to {LAM_RANGE[1]:g}, and rescale X"
        )


def _holds_jax(self) -> bool:
    """True if a jax array (or tracer) is among the parameters; what is plain is seen without flattening."""
    return not are_plain(vars(self).values()) and uses_jax(jax.tree.leaves(self))


def _numeric(method):
    """Run a method with 64-bit types on float64 versions of its arguments, whatever the caller's setting."""

    @functools.wraps(method)
    def wrapped(self, *args, **kwargs):
        namespace = jnp if uses_jax(args) or uses_jax(kwargs.values()) or _holds_jax(self) else np

        def convert(a):
            return None if a is None else namespace.asarray(a, namespace.float64)

        # as in jax, infinities and NaN are values, and branches that are not taken are computed too
        try:
            with jax.enable_x64(True), np.errstate(all="ignore"):
                return method(self, *map(convert, args), **{key: convert(a) for key, a in kwargs.items()})
        except UNTRACEABLE as error:
            raise not_jax(f"{type(self).__name__}.{method.__name__}") from error

    return wrapped


def _wrap_methods(cls) -> None:
    """`_numeric` for the public methods and properties that a class defines."""
    for name, member in list(vars(cls).items()):
        if name.startswith("_"):
            continue
        if inspect.isfunction(member):
            setattr(cls, name, _numeric(member))
        elif isinstance(member, property) and member.fget is not None:
            setattr(cls, name, property(_numeric(member.fget)))


class Loss(abc.ABC):
    """A convex function f of the natural coordinate q (and, for `from_score`, of the target y).

    Attributes:
        name: for messages.
        classification: True if the targets are labels -1 and +1.
        nonnegative: True if f >= 0 is known.
        smoothness: upper bound of f'' (= 1/gamma, property A), a float64 scalar, or None.
        defined_by_ref: True if alpha is only known through coordinates `ref` with alpha = -f'(ref) (users' losses).
        domain_by_row: True if the domain of alpha depends on the target.
        least_target: targets must be at least this, None for no limit.
        piecewise_quadratic: True if f' is continuous and piecewise linear; `kinks` are where its slope changes.
        kinks: tuple of float64 scalars, increasing; () unless piecewise_quadratic.
    """

    name: str = "loss"
    classification: bool = True
    nonnegative: bool = True
    defined_by_ref: bool = False
    domain_by_row: bool = False
    least_target: float | None = None
    piecewise_quadratic: bool = False
    kinks: Any = ()
    smoothness: Any

    def __init_subclass__(cls):
        _wrap_methods(cls)

    @_numeric
    def coordinate(self, s, y):
        """The natural coordinate q of a score."""
        return y * s if self.classification else s - y

    @_numeric
    def orientation(self, y):
        """dq/ds: y for margin losses, 1 otherwise."""
        return y if self.classification else xp.ones_like(y)

    @abc.abstractmethod
    def value(self, q, y) -> jax.Array:
        """f(q)."""

    @abc.abstractmethod
    def dual(self, q, y) -> jax.Array:
        """alpha = -f'(q); one valid choice where f has a kink."""

    @_numeric
    def dual_interval(self, q, y) -> tuple[jax.Array, jax.Array]:
        """(lo, hi) containing the set -d f(q), rounded outward and cut with the domain."""
        lo, hi = self.domain(y)
        a = self.dual(q, y)
        pad = 8 * U * xp.where(xp.isinf(a), 0.0, xp.abs(a))
        return xp.maximum(a - pad, lo), xp.minimum(a + pad, hi)

    @abc.abstractmethod
    def conjugate(self, alpha, y) -> jax.Array:
        """f*(-alpha), +inf outside the domain."""

    @abc.abstractmethod
    def domain(self, y) -> tuple[jax.Array, jax.Array]:
        """(lo, hi) of the feasible alpha, arrays like y, possibly infinite."""

    @abc.abstractmethod
    def fenchel_young(self, q, alpha, y, ref=None) -> jax.Array:
        """f(q) + f*(-alpha) + alpha q >= 0 without cancellation; +inf where alpha is not feasible.

        The result is never below the exact value by more than 16 units of roundoff: where -f'(q) itself has to be
        rounded, the distance of alpha from it is widened by that rounding (at most 3 units of -f'(q)).

        Args:
            q, alpha, y: coordinates, dual variables and targets, one shape.
            ref: for users' losses, coordinates at which alpha = -f'(ref) holds exactly; built-ins ignore it.
        """

    @abc.abstractmethod
    def second(self, q, y) -> jax.Array:
        """One generalised second derivative of f at q, for Newton steps."""

    @abc.abstractmethod
    def curvature(self, lo, hi, y) -> tuple[jax.Array, jax.Array]:
        """(min, max) of f'' for q in [lo, hi], rounded outward; a kink in the interval counts with both sides."""

    @_numeric
    def secant(self, q, lo, hi, y) -> tuple[jax.Array, jax.Array]:
        """Range of the secant slopes (f'(q + d) - f'(q)) / d over d in [lo, hi], rounded outward.

        At d = 0 the slope is f''(q), on both sides of a kink. Losses with `piecewise_quadratic` give low == high where
        no kink is crossed. Numbers below the smallest normal float may count as 0.

        Args:
            q: coordinates; lo <= hi: changes of the coordinate, possibly infinite.

        Returns:
            (low, high) in [0, smoothness]; all of it where a number is NaN or the range is empty.
        """
        known, (left, right) = usable(q, lo, hi, y), reach(q, lo, hi)
        low, high = self.curvature(xp.minimum(q, left), xp.maximum(q, right), y)
        most = xp.inf if self.smoothness is None else self.smoothness
        return xp.where(known & (low > 0), low, 0.0), xp.where(known & (high < most), high, most)

    @_numeric
    def step_point(self, q, alpha, y, kappa) -> jax.Array:
        """The coordinate m = q + kappa (a - alpha) after the step a = -f'(m) of `dual_step`; smooth losses only."""
        return q + kappa * (self.dual_step(q, alpha, y, kappa) - alpha)

    @abc.abstractmethod
    def dual_step(self, q, alpha, y, kappa) -> jax.Array:
        """The exact coordinate step of SDCA: argmax over a of -f*(-a) - kappa/2 (a - alpha)^2 - q a.

        Args:
            q: coordinates at the present primal point; alpha: present dual variables.
            kappa: c_i ||x_i||^2 / lam >= 0.
        """

    @_numeric
    def feasible(self, alpha, y, value) -> jax.Array:
        """`value` where alpha is feasible, +inf elsewhere (NaN too)."""
        lo, hi = self.domain(y)
        return xp.where((alpha >= lo) & (alpha <= hi), value, xp.inf)

    @_numeric
    def clip(self, alpha, y) -> jax.Array:
        """alpha cut to the domain."""
        lo, hi = self.domain(y)
        return xp.clip(alpha, lo, hi)


class Penalty(abc.ABC):
    """A convex function psi_j of each coefficient.

    Attributes:
        name: for messages.
        strong_convexity: lower bound lam of psi_j'' (property B), a scalar or (d,), or None.
        dual_bound: kappa if |v_j| <= kappa is needed (psi* finite), else None.
        smooth: True if psi_j has no kinks.
        quadratic: True if psi_j = lam/2 w^2, so that u = v / lam.
        piecewise_quadratic: True if psi_j = lam/2 w^2 + l1 |w|, lam and l1 possibly 0.
    """

    name: str = "penalty"
    smooth: bool = False
    quadratic: bool = False
    piecewise_quadratic: bool = False
    strong_convexity: Any
    dual_bound: Any = None

    def __init_subclass__(cls):
        _wrap_methods(cls)

    @abc.abstractmethod
    def value(self, w) -> jax.Array:
        """psi_j(w_j)."""

    @abc.abstractmethod
    def conjugate(self, v) -> jax.Array:
        """psi_j*(v_j), +inf outside its domain."""

    @abc.abstractmethod
    def grad_conjugate(self, v) -> jax.Array:
        """u_j = grad psi_j*(v_j), the coefficient that v suggests."""

    @abc.abstractmethod
    def conjugate_interval(self, v_lo, v_hi) -> tuple[jax.Array, jax.Array]:
        """(inf d psi_j*(v_lo), sup d psi_j*(v_hi)), rounded outward."""

    @abc.abstractmethod
    def subgradient(self, w) -> tuple[jax.Array, jax.Array]:
        """(lo, hi) of d psi_j(w_j)."""

    @abc.abstractmethod
    def fenchel_young(self, w, v) -> jax.Array:
        """B_j = psi_j(w_j) + psi_j*(v_j) - w_j v_j >= 0 without cancellation, +inf outside the domain of psi_j*.

        The result is never below the exact value by more than 16 units of roundoff: where u = grad psi*(v) has to be
        rounded, the distance of w from it is widened by that rounding.
        """

    @abc.abstractmethod
    def excess(self, w, v) -> jax.Array:
        """B_j - lam/2 (w_j - u_j)^2 >= 0 with lam = `strong_convexity`, without cancellation; B_j if there is none."""

    @abc.abstractmethod
    def prox(self, z, step) -> jax.Array:
        """argmin over w of psi_j(w) + (w - z_j)^2 / (2 step)."""

    @abc.abstractmethod
    def second(self, w) -> jax.Array:
        """Second derivative of the smooth part, for Newton steps."""

    @_numeric
    def in_range(self) -> Any:
        """Whether the parameters are what the constructor asks for: under vmap and jit it could not look."""
        strong = self.strong_convexity
        return xp.asarray(True) if strong is None else (strong >= LAM_RANGE[0]) & (strong <= LAM_RANGE[1])

    def level(self, value) -> jax.Array | None:
        """The largest |w_j| with psi_j(w_j) <= value, rounded up, or None if unknown."""
        return None

    @in_float64
    def take(self, cols):
        """The penalty of the given columns: vector parameters are gathered, numbers stay."""
        return jax.tree.map(lambda leaf: xp.take(leaf, cols, mode="clip") if np.ndim(leaf) == 1 else leaf, self)

    def _distance(self, w, v):
        """|w - u|, widened by the rounding of u."""
        u = self.grad_conjugate(v)
        return xp.abs(w - u) + 4 * U * xp.abs(u)
