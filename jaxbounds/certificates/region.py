"""The set a certificate returns: balls around cheap centres that must hold the new primal and dual optimum."""

from abc import abstractmethod
from typing import Any

from jaxbounds.batches import Flat
from jaxbounds.edit import Edit, prepare
from jaxbounds.kinds import Change
from jaxbounds.model import Model
from jaxbounds.pytree import pytree, static


@pytree
class Region:
    """sum_j lam_j (w*_j - c_j)^2 <= radius^2 and sum_i c_i (t*_i - m_i)^2 <= dual_radius^2.

    The centres are c = w - theta e with e = w - u, and m = (1 - mu) t + mu a. Only their values at touched rows and
    columns are stored; elsewhere e = e_delta delta + e_w w^ and v = v_scale v^, from the model's own vectors.
    `beta` are multiples of whole old rows that v gains on top (spot changes whose alpha moved).
    For L2, lam (w*_j - w_j + e_j/2)^2 + share gamma/(2 N_j) (lam w*_j - v_j)^2 <= joint, N_j = sum_i c_i x_ij^2,
    for share 1 and 2.
    """

    gap: Any
    radius: Any
    lam_min: Any  # lam_min ||x||^2 <= sum_j lam_j x_j^2
    theta: Any
    dual_radius: Any
    mu: Any
    v_radius: Any  # bound of ||t* - t||_C
    joint: Any  # (2,) right sides for share 1 and 2
    offset_low: Any  # ||c - w^||, columns that leave not counted
    offset_up: Any
    reach: Any  # ||w* - w||
    objective: Any  # upper bound of P~(w)
    e_delta: Any
    e_w: Any
    v_scale: Any
    w: Any  # (Q,)
    e: Any  # (Q,)
    e_pad: Any  # (Q,)
    v: Any  # (Q,)
    v_pad: Any  # (Q,)
    alpha: Any  # (R,)
    a: Any  # (R,)
    a_pad: Any  # (R,)
    score: Any  # (R,) x~_i.w
    score_pad: Any  # (R,)
    beta: Any  # (R,)
    beta_size: Any  # (R,) the scale of beta's rounding error
    primal: bool = static(default=True)  # radius is meaningful
    dual: bool = static(default=True)


class Method:
    """A way to bound: which edits it needs, and the regions it finds for each."""

    def check(self, problem) -> None:
        """Raise, naming the missing property, if the method does not apply."""

    def edits(self, model: Model, change: Change | Flat) -> tuple[Edit, ...]:
        """The change as the method sees it; the first edit lists only what the change touches."""
        return (prepare(model, change),)

    @abstractmethod
    def certify(self, model: Model, edits: tuple[Edit, ...]) -> tuple[tuple[Edit, tuple[Region, ...]], ...]:
        """Sets that hold the new optimum: for each edit its regions."""

