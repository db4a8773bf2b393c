"""Class weights of an estimator: a row that changes its class, or is new, gets the weight of its new class.

Row i weighs c_i = s_i f(class of i), where s_i is its sample weight. Users' changes speak of classes and of sample
weights s; here they become changes that say every new c, as retraining with fixed class weights f would have it.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from jaxbounds.array import readable, xp
from jaxbounds.kinds import AddRows, SetRows, SetTargets, SetWeights

Present = Callable[[Any], tuple[Any, Any]]  # rows -> their targets and weights before the change


def factor(target: Any, class_weights: Any, several: bool) -> Any:
    """f of each target, NaN for what is no class: class numbers where there are several, else -1 and +1."""
    found = target * xp.nan
    for k in range(class_weights.shape[0]):
        found = xp.where(target == (k if several else 2 * k - 1), class_weights[k], found)
    return found


def present_of(model: Any) -> Present:
    """The targets and weights of a model's rows; a softmax model keeps them itself."""

    def at(rows):
        memory = getattr(model, "rows", model)
        target, weight = readable(memory.target), readable(memory.weight)
        rows = xp.clip(rows, 0, target.shape[0] - 1)  # others are refused later
        return target[rows], weight[rows]

    return at


class _Latest:
    """What earlier parts of a change have set of rows, each candidate of a batch apart."""

    def __init__(self):
        self.layers: list = []

    def set(self, key: Any, values: Any) -> None:
        if key.shape[0]:
            order = xp.argsort(key)
            self.layers.append((key[order], values[order]))

    def of(self, key: Any, values: Any) -> Any:
        """The values, but for the keys that were set."""
        for known, latest in self.layers:
            at = xp.minimum(xp.searchsorted(known, key), known.shape[0] - 1)
            values = xp.where(known[at] == key, latest[at], values)
        return values


def weighted(parts: Any, owners: Any, class_weights: Any, several: bool, present: Present) -> tuple[tuple, tuple]:
    """(parts, owners) with a weight c beside every target, and c in place of every sample weight."""
    f = lambda target: factor(target, class_weights, several)  # noqa: E731
    targets, samples = _Latest(), _Latest()
    found: list = []

    def add(part, owner):
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
