"""The training problem, its dual, and the duality gap as a sum of Fenchel-Young terms (never a difference)."""

from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from jaxbounds.arguments import as_array, as_choice, as_flag, as_numbers, is_real
from jaxbounds.array import is_spread, on_host, put, to_host, xp
from jaxbounds.host import HostMatrix, matrix_of
from jaxbounds.losses import Loss
from jaxbounds.matrix import Matrix
from jaxbounds.messages import brief, first_bad
from jaxbounds.penalties import Penalty
from jaxbounds.pytree import in_float64, is_traced, pytree, static
from jaxbounds.softmax import Softmax


@pytree
class Problem:
    """P(w, b) = sum_i c_i l(x_i.w + b, y_i) + psi(w), c_i = sample_weight_i / n ("mean") or sample_weight_i ("sum").

    Args:
        loss: one of `jb.losses`, or your own through `from_margin` / `from_score`.
        penalty: one of `jb.penalties`, or your own through `from_function`.
        scale: "mean" divides the loss by the number of rows, "sum" does not.
        intercept: True for a b that is minimised over and not penalised, False for b = 0. The dual then has the
            constraint sum_i c_i t_i = 0. (For a penalised intercept append a column of ones to X instead.)

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1))
        >>> X, y = np.array([[1.0], [-2.0]]), np.array([1.0, -1.0])
        >>> round(float(problem.primal(X, y, np.zeros(1))), 4)
        0.6931

    Source: Hanada, Shibagaki, Sakuma, Takeuchi 2016, equations 1 and 2.
    """

    loss: Loss
    penalty: Penalty
    scale: Literal["mean", "sum"] = static(default="mean")
    intercept: bool = static(default=False)

    @in_float64
    def primal(self, X, y, w, sample_weight=None, intercept=0.0):
        """P(w, b), the training objective.

        Args:
            X: (n, d) data; y: (n,) targets; w: (d,) coefficients; sample_weight: (n,) or None for ones.
            intercept: added to every score.

        Returns:
            a float64 scalar.
        """
        problem, matrix, y, c, w = self._ready(X, y, sample_weight, w, "w", 1)
        return put(problem.objective(matrix, y, c, w, as_number(intercept, "intercept")))

    @in_float64
    def dual(self, X, y, alpha, sample_weight=None):
        """D(alpha), a lower bound on P(w) for every w; -inf where alpha is not feasible.

        With an intercept alpha is feasible if |sum_i c_i t_i| <= 1e-9 sum_i c_i |t_i|, which is what floating point
        can do: D is then a lower bound on P(w, b) up to b sum_i c_i t_i.

        Args:
            alpha: (n,) dual variables in the paper's sign, alpha_i in -d phi(m_i) at the optimum.

        Returns:
            a float64 scalar.
        """
        problem, matrix, y, c, alpha = self._ready(X, y, sample_weight, alpha, "alpha", 0)
        loss = problem.loss
        conjugate = loss.conjugate(alpha, y) + alpha * loss.coordinate(xp.zeros_like(y), y)
        v = dual_vector(loss, matrix, y, c, alpha)
        value = -xp.sum(c * conjugate) - xp.sum(problem.penalty.conjugate(v))
        return put(xp.where(problem.balanced(y, c, alpha), value, -xp.inf))

    @in_float64
    def gap(self, X, y, w, alpha, sample_weight=None, intercept=0.0):
        """P(w) - D(alpha) = sum_i c_i FY_i + sum_j B_j >= 0, without cancellation.

        Args:
            w: (d,) coefficients; alpha: (n,) dual variables in the paper's sign.

        Returns:
            a float64 scalar, inf where alpha is not feasible.
        """
        problem, matrix, y, c, w = self._ready(X, y, sample_weight, w, "w", 1)
        alpha = as_vector(alpha, matrix.shape[0], "alpha")
        loss = problem.loss
        q = loss.coordinate(matrix.matvec(w) + as_number(intercept, "intercept"), y)
        v = dual_vector(loss, matrix, y, c, alpha)
        value = xp.sum(c * loss.fenchel_young(q, alpha, y)) + xp.sum(problem.penalty.fenchel_young(w, v))
        return put(xp.where(problem.balanced(y, c, alpha), value, xp.inf))

    def _ready(self, X, y, sample_weight, vector, name, axis):
        """Checked arguments, all on the host or all on the device."""
        self.check()
        host = on_host(self, X, y, sample_weight, vector)
        matrix = matrix_of(X, host)
        y = as_targets(self.loss, y, matrix.shape[0])
        c = as_sample_weight(sample_weight, matrix.shape[0]) * self.unit(matrix.shape[0])
        return (to_host(self) if host else self), matrix, y, c, as_vector(vector, matrix.shape[axis], name)

    def unit(self, n: int) -> float:
        """c_i for a sample weight of one among n rows."""
        return 1.0 / n if self.scale == "mean" else 1.0

    def objective(self, matrix: Matrix | HostMatrix, y, c, w, intercept=0.0):
        """P(w) on prepared data."""
        q = self.loss.coordinate(matrix.matvec(w) + intercept, y)
        return xp.sum(c * self.loss.value(q, y)) + xp.sum(self.penalty.value(w))

    def balanced(self, y, c, alpha):
        """Whether sum_i c_i t_i = 0 up to rounding, which an unpenalised intercept asks of a dual point."""
        t = c * self.loss.orientation(y) * alpha
        return (not self.intercept) | (xp.abs(xp.sum(t)) <= BALANCE * xp.sum(xp.abs(t)))

    def check(self) -> None:
        """Raise if no guarantee can be given for this pair of loss and penalty."""
        if isinstance(self.loss, Softmax):
            raise TypeError("softmax has a score for each class and serves fit, refit and bound alone; a model's "
                            "primal and gap are its attributes")  # fmt: skip
        if not isinstance(self.loss, Loss):
            raise TypeError(f"loss must come from jb.losses, got {brief(self.loss)}; write for example "
                            "jb.losses.logistic(), with its parameters in the parentheses")  # fmt: skip
        if not isinstance(self.penalty, Penalty):
            raise TypeError(no_penalty(self.penalty))
        as_choice(self.scale, "scale", ("mean", "sum"))
        as_flag(self.intercept, "intercept")
        if self.loss.smoothness is None and self.penalty.strong_convexity is None:
            raise ValueError(
                f"neither property holds: the loss {self.loss.name} is not smooth (property A) and the penalty "
                f"{self.penalty.name} is not strongly convex (property B); use a smoothed loss, or add an L2 part "
                "(elastic_net)"
            )


def no_penalty(penalty: Any) -> str:
    """What is wrong with an argument that should be a penalty."""
    return f"penalty must come from jb.penalties, got {brief(penalty)}; write for example jb.penalties.l2(lam)"


BALANCE = 1e-9  # a root in floats leaves U |s| relative to t, for scores up to 1e6
LABELS = "labels are -1 and +1 (convert 0/1 with 2 * {} - 1)"


def dual_vector(loss: Loss, matrix: Matrix | HostMatrix, y, c, alpha):
    """v = sum_i c_i t_i x_i with t = orientation * alpha."""
    return matrix.rmatvec(c * loss.orientation(y) * alpha)


def as_vector(value, size: int, name: str):
    """`value` as a float64 vector of the given length, finite on the host."""
    if is_spread(value):
        require_all(jnp.isfinite(value), name, "a number that is not finite", "remove or replace it")
    elif not is_traced(value):
        value = _numbers(value, name)
        first_bad(~np.isfinite(value), value, name, "is not finite", "remove or replace it")
    if xp.shape(value) != (size,):
        hint = f"; flatten it with {name}.ravel()" if np.prod(xp.shape(value)) == size and xp.ndim(value) > 1 else ""
        raise ValueError(f"{name} must have shape ({size},), got {xp.shape(value)}{hint}")
    return value if isinstance(value, np.ndarray) else xp.asarray(value, dtype=xp.float64)


def as_targets(loss: Loss, y, n: int, name: str = "y"):
    """Checked targets: -1/+1 for margin losses, finite numbers otherwise."""
    if loss.classification and is_spread(y):
        require_all(xp.abs(y) == 1, name, "something that is not a label", LABELS.format(name))
    elif loss.classification and not is_traced(y):
        array = as_array(y, name)
        values = set(np.unique(array.reshape(-1)[:10_000]).tolist()) if array.dtype.kind in "biuf" else set()
        if array.dtype.kind == "b" or (0 in values and values <= {0, 1}):
            raise ValueError(f"{name} must hold labels -1 and +1, got 0/1 or booleans; convert with 2 * {name} - 1")
    y = as_vector(y, n, name)
    if loss.classification and not is_traced(y) and not is_spread(y):
        array = np.asarray(y)
        first_bad(np.abs(array) != 1, array, name, "is not a label", LABELS.format(name))
    if loss.least_target is not None and not is_traced(y):
        array, least = np.asarray(y), loss.least_target
        what = f"is below {least:g}, the least target of the loss {loss.name}"
        first_bad(array < least, array, name, what, "correct or drop it")
    return y


def as_sample_weight(weight, n: int, name: str = "sample_weight"):
    """Checked sample weights, ones by default."""
    if weight is None:
        return np.ones(n)
    weight = as_vector(weight, n, name)
    if is_spread(weight):
        require_all(weight > 0, name, "a weight that is not positive", "remove such rows instead")
    elif not is_traced(weight):
        array = np.asarray(weight)
        first_bad(array <= 0, array, name, "is not positive", "remove such rows instead")
    return weight


def as_number(value, name: str):
    """`value` as a float64 scalar, finite on the host."""
    if not is_traced(value):
        value = _numbers(value, name)
        first_bad(~np.isfinite(value), value, name, "is not finite", "choose a finite number")
    if xp.shape(value) != ():
        raise ValueError(f"{name} must be one number, got shape {xp.shape(value)}")
    return xp.asarray(value, dtype=xp.float64)


def _numbers(value, name):
    array = as_array(value, name)
    if not is_real(array.dtype):
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}; {as_numbers(array, name)}")
    with np.errstate(over="ignore"):  # a long double beyond float64 becomes inf, which is refused
        return array.astype(np.float64)


def require_all(mask, name, what, remedy):
    """Raise unless the mask, on several devices, holds everywhere."""
    if not bool(mask.all()):
        raise ValueError(f"{name} holds {what}; {remedy}")
