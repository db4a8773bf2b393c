"""The one way objects are made here: frozen dataclasses that are pytrees and stay float64."""

import dataclasses
import functools
from typing import Any, TypeVar, dataclass_transform

import jax
import numpy as np
from jax.core import Tracer

from jaxbounds.array import leaves
from jaxbounds.display import shown

T = TypeVar("T")


def static(**kwargs) -> Any:
    """A field that is part of the tree's structure (a name, a flag, a size), not a leaf."""
    return dataclasses.field(metadata={"static": True}, **kwargs)


def _rebuild(cls, values):
    with jax.enable_x64(True):
        return cls(**{k: jax.tree.map(_as_jax, v) for k, v in values.items()})


def _as_jax(leaf):
    return jax.numpy.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf


def _as_numpy(leaf):
    return np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf


def is_wide() -> bool:
    """Whether 64-bit types are on here."""
    return jax.dtypes.canonicalize_dtype(np.float64) == np.float64


def _kept_wide(leaf):
    """A float64 array of NumPy as one of jax, which no jit boundary cuts to float32 with x64 off."""
    if not (isinstance(leaf, np.ndarray) and leaf.dtype == np.float64):
        return leaf
    with jax.enable_x64(True):
        return jax.device_put(leaf)


def reduce(self):
    """`__reduce__` that keeps float64."""
    # jax itself unpickles float64 arrays as float32 when x64 is off
    values = {f.name: jax.tree.map(_as_numpy, getattr(self, f.name)) for f in dataclasses.fields(self)}
    return _rebuild, (type(self), values)


@dataclass_transform(frozen_default=True, field_specifiers=(static, dataclasses.field))
def pytree(cls: type[T]) -> type[T]:
    """Make `cls` a frozen dataclass and a pytree whose float64 leaves survive pickle and copy.

    A class whose leaves may be NumPy arrays when it meets a user's jit says so by `on_host = True`.
    """
    cls.__reduce__ = reduce  # type: ignore[method-assign]
    cls.__deepcopy__ = lambda self, memo: _rebuild(*reduce(self)[1])  # type: ignore[attr-defined]
    shown(cls)
    made = dataclasses.dataclass(frozen=True, eq=False)(cls)
    numbers = [f.name for f in dataclasses.fields(made) if not f.metadata.get("static")]  # type: ignore[arg-type]
    fixed = [f.name for f in dataclasses.fields(made) if f.metadata.get("static")]  # type: ignore[arg-type]

    on_host = getattr(made, "on_host", False)

    # not register_dataclass: jaxlib calls the structures of two such classes equal if their fields are as many, and
    # jit then now and then runs what was compiled for another class
    def flatten(self):
        values = [getattr(self, name) for name in numbers]
        if on_host and not is_wide():
            values = [_kept_wide(value) for value in values]
        return values, (made, *[getattr(self, name) for name in fixed])

    def flatten_with_keys(self):
        return [(jax.tree_util.GetAttrKey(name), getattr(self, name)) for name in numbers], flatten(self)[1]

    def unflatten(static_values, children):
        return made(**dict(zip(numbers, children, strict=True)), **dict(zip(fixed, static_values[1:], strict=True)))

    jax.tree_util.register_pytree_with_keys(made, flatten_with_keys, unflatten, flatten)
    return made  # type: ignore[return-value]


def in_float64(fn):
    """Run `fn` with 64-bit types, whatever the caller's setting, also inside the caller's jit.

    On NumPy, infinities and NaN are ordinary values, as they are in jax.
    """

    @functools.wraps(fn)
    def wrapped(*args, **kwargs):
        with jax.enable_x64(True), np.errstate(all="ignore"):
            return fn(*args, **kwargs)

    return wrapped


def is_traced(*trees) -> bool:
    """True if any leaf is a tracer: then values cannot be checked on the host."""
    return any(isinstance(leaf, Tracer) for leaf in leaves(trees))
