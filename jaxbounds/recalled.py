"""The memory of a model where no more of it is at hand than a change reads.

XLA's CPU runtime hands steps that read long arrays to its threads, also where each takes nanoseconds: two changes of
threads cost half a small bound. Where all arrays of a program are short, it stays in the thread that asks.
"""

from dataclasses import replace
from typing import Any

import jax

from jaxbounds.array import xp
from jaxbounds.model import Model
from jaxbounds.pytree import pytree, static


@pytree
class Recalled:
    """A vector of `size` numbers, of which those at a change's slots are known."""

    values: Any
    size: int = static()

    @property
    def shape(self) -> tuple[int]:
        """That of the whole vector."""
        return (self.size,)


def take(vector, slots, fill=0.0):
    """vector[slots], `fill` past the end; nothing else of the vector is read."""
    if isinstance(vector, Recalled):
        return vector.values
    return xp.where(slots < vector.shape[0], xp.take(vector, slots, mode="clip"), fill)


def vectors(model: Model) -> tuple:
    """What is kept of each row, and what is kept of each column."""
    return (model.alpha, model.ref, model.rows), (model.w, model.columns)


def with_recalled(model: Model, values) -> Model:
    """The model with these (k, slots) numbers for its vectors, in the order of `vectors`."""
    leaves, structure = jax.tree.flatten(vectors(model))
    known = [Recalled(value, leaf.shape[0]) for value, leaf in zip(values, leaves, strict=True)]
    (alpha, ref, rows), (w, columns) = structure.unflatten(known)
    return replace(model, alpha=alpha, ref=ref, rows=rows, w=w, columns=columns)
