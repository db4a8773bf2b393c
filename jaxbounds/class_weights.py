"""Class weights of an estimator: a row that changes its class, or is new, gets the weight of its new class.

Row i weighs c_i = s_i f(class of i), where s_i is its sample weight. Users' changes speak of classes and of sample
weights s; here they become changes that say every new c, as retraining with fixed class weights f would have it.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from jaxbounds.array import readable, xp
from jaxbounds.kinds import AddRows, SetRows, SetTargets, SetWeights
from jaxbounds.pytree import is_traced

Present = Callable[[Any], tuple[Any, Any]]  # rows -> their targets and weights before the change


def factor(target: Any, class_weights: Any, several: bool) -> Any:
    """f of each target, NaN for what is no class: class numbers where there are several, else -1 and +1."""
    found = target * xp.nan
    for k in range(class_weights.shape[0]):
        found = xp.where(target == (k if several else 2 * k - 1), class_weights[k], found)
    return found


def sides(class_weights: np.ndarray, k: int) -> np.ndarray:
    """The class weights of a model that tells class k from the rest: (rest, class k), NaN where the rest differ."""
    rest = np.delete(class_weights, k)
    return np.array([rest[0] if np.ptp(rest) == 0 else np.nan, class_weights[k]])


def check_class_weights(factors: Any, classes: int) -> None:
    """Raise unless these are None or class weights; for what is read from files."""
    if factors is None:
        return
    if not isinstance(factors, np.ndarray) or factors.shape != (classes,) or factors.dtype != np.float64:
        raise ValueError(f"its class_weights are not an array of shape {(classes,)}")
    if np.any(factors <= 0) or np.any(np.isinf(factors)):
        raise ValueError("its class_weights are not all positive")


def present_of(model: Any) -> Present:
    """The targets and weights of a model's rows; a softmax model keeps them itself."""

    def at(rows):
        memory = getattr(model, "rows", model)
        target, weight = readable(memory.target), readable(memory.weight)
        rows = xp.clip(rows, 0, target.shape[0] - 1)  # others are refused later
        return xp.take(target, rows), xp.take(weight, rows)

    return at


class _Latest:
    """What earlier parts of a change have set of rows, each candidate of a batch apart."""

    def __init__(self):
        self.layers: list = []

    def set(self, key: Any, values: Any) -> None:
        if key.shape[0]:
            order = xp.argsort(key)
            self.layers.append((xp.take(key, order), xp.take(values, order)))

    def of(self, key: Any, values: Any) -> Any:
        """The values, but for the keys that were set."""
        for known, latest in self.layers:
            at = xp.minimum(xp.searchsorted(known, key), known.shape[0] - 1)
            values = xp.where(xp.take(known, at) == key, xp.take(latest, at), values)
        return values


def weighted(parts: Any, owners: Any, class_weights: Any, several: bool, present: Present) -> tuple[tuple, tuple]:
    """(parts, owners) with a weight c beside every target, and c in place of every sample weight.

    Raises ValueError where a single change on the host needs a class weight that the model does not know.
    """
    f = lambda target: factor(target, class_weights, several)  # noqa: E731
    targets, samples = _Latest(), _Latest()
    found: list = []

    def add(part, owner):
        weight = getattr(part, "weight", None)
        if owner is None and weight is not None and not is_traced(class_weights, weight):
            if np.isnan(class_weights).any() and np.isnan(weight).any():
                raise ValueError("class_weight differs among the classes that this model holds for the rest, so that "
                                 "the weights that come with this change are not known to it: ask the model of all "
                                 "classes, jb.bound(model, change)")  # fmt: skip
        found.append((part, owner))

    for part, owner in zip(parts, owners, strict=True):
        match part:
            case AddRows():
                weight = f(part.target) if part.weight is None else part.weight * f(part.target)
                add(replace(part, weight=weight), owner)
            case SetWeights():
                key, (target, _) = _key(part.rows, owner), present(part.rows)
                samples.set(key, part.weight)
                add(replace(part, weight=part.weight * f(targets.of(key, target))), owner)
            case (SetRows() | SetTargets()) if part.target is not None:
                key, (target, weight) = _key(part.rows, owner), present(part.rows)
                targets.set(key, part.target)
                sample = samples.of(key, weight / f(target))
                add(part, owner)
                add(SetWeights(part.rows, sample * f(part.target), part.old_values), owner)
            case _:
                add(part, owner)
    return tuple(part for part, _ in found), tuple(owner for _, owner in found)


def _key(rows: Any, owner: Any) -> Any:
    """A number for each row of each candidate."""
    return rows.astype(xp.int64) + (0 if owner is None else owner.astype(xp.int64) << 32)
