"""One set of formulas for NumPy and JAX: `xp.f(...)` is jax.numpy's if an argument is a jax array, else NumPy's.

Concrete calls on the CPU run on NumPy: no compilation, whatever the shapes. Inside jit, vmap and grad, and on an
accelerator, the same lines run on jax.numpy.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import NamedSharding, PartitionSpec

Array: TypeAlias = Any  # a NumPy array, a jax array or a tracer


def leaves(trees: tuple) -> list:
    """The leaves of several arguments; iterators, of which jax warns, hold none."""
    return jax.tree.leaves(tuple(tree for tree in trees if not isinstance(tree, Iterator)))


_PLAIN = {np.ndarray, np.float64, np.bool_, np.int32, np.int64, float, int, bool, str, type(None)}


def are_plain(args) -> bool:
    """True if all arguments are NumPy arrays, numbers, text or None."""
    return all(type(a) in _PLAIN for a in args)


def uses_jax(args) -> bool:
    """True if a jax array (or tracer) is among the arguments or their items."""
    for a in args:  # what is plain is seen at once: instance checks of jax.Array are slow
        if type(a) not in _PLAIN and (isinstance(a, jax.Array) or (isinstance(a, list | tuple) and uses_jax(a))):
            return True
    return False


class _Namespace:
    """numpy or jax.numpy, chosen call by call."""

    def __getattr__(self, name: str) -> Any:
        host, device = getattr(np, name), getattr(jnp, name)
        if not callable(host) or isinstance(host, type):
            return host

        def call(*args, **kwargs):
            for a in args:  # as `uses_jax`, without its call
                if type(a) not in _PLAIN and uses_jax((a,)):
                    return device(*args, **kwargs)
            return host(*args, **kwargs)

        setattr(self, name, call)
        return call


xp = _Namespace()


def squared(x):
    """x^2 in float64: squares of float32 numbers would be rounded, and vanish below 1e-19."""
    return xp.square(x.astype(xp.float64, copy=False))


def segment_sum(values, index, size: int):
    """out[k] = sum of the values whose index is k; indices past the end are dropped."""
    if uses_jax((values, index)):
        return jax.ops.segment_sum(values, index, num_segments=size)
    return np.bincount(index, values, minlength=size + 1)[:size]


def scatter_set(array, index, values):
    """array with array[index] = values; indices past the end are dropped."""
    if uses_jax((array, index, values)):
        return jnp.asarray(array).at[index].set(values, mode="drop")
    inside = index < array.shape[0]
    array = np.array(array)
    array[index[inside]] = np.broadcast_to(values, index.shape)[inside]
    return array


def scatter_add(array, index, values):
    """array with array[index] += values, index by index; indices past the end are dropped."""
    if uses_jax((array, index, values)):
        return jnp.asarray(array).at[index].add(values, mode="drop")
    return array + segment_sum(values, xp.minimum(index, array.shape[0]), array.shape[0])


def hold(tree):
    """The tree, computed once where a program is compiled with `COMPUTE_ONCE`; elsewhere this does nothing.

    XLA's CPU compiler computes a value anew in every loop that reads it, which makes long formulas three times longer.
    """
    return jax.lax.optimization_barrier(tree) if uses_jax(jax.tree.leaves(tree)) else tree


COMPUTE_ONCE = {"xla_disable_hlo_passes": "cse_barrier_expander"}  # of XLA's CPU compiler; others ignore it


def ratio(a, b, where):
    """a / b where the mask holds, 0 elsewhere, with finite derivatives."""
    return xp.where(where, a / xp.where(where, b, 1.0), 0.0)


def fori_loop(start: int, stop: int, body, state, done=None):
    """jax.lax.fori_loop, or a Python loop on NumPy, which ends early where done(old state, new state) says so."""
    if uses_jax(jax.tree.leaves(state)):
        return jax.lax.fori_loop(start, stop, body, state)
    for k in range(start, stop):
        old, state = state, body(k, state)
        if done is not None and done(old, state):
            break
    return state


def while_loop(going, body, state):
    """jax.lax.while_loop, or a Python loop on NumPy."""
    if uses_jax(jax.tree.leaves(state)):
        return jax.lax.while_loop(going, body, state)
    while going(state):
        state = body(state)
    return state


def stop_gradient(tree):
    """jax.lax.stop_gradient; NumPy carries no gradient."""
    return jax.lax.stop_gradient(tree) if uses_jax(jax.tree.leaves(tree)) else tree


@jax.custom_jvp
def _carry(value, model):
    del model
    return value


@_carry.defjvp
def _carry_jvp(primals, tangents):
    return primals[0], tangents[1]


def carry(value, model):
    """value, with the derivative of model, a function that the compiler drops unless a derivative is taken."""
    return _carry(value, model()) if uses_jax((value,)) else value


def reinterpret(x, dtype):
    """The same bits as another type of the same width."""
    return jax.lax.bitcast_convert_type(x, dtype) if uses_jax((x,)) else np.asarray(x).view(dtype)


def to_host(tree: Any) -> Any:
    """The tree with NumPy leaves (no copy of what lies on the CPU); itself if it has no others."""
    if not uses_jax(jax.tree.leaves(tree)):
        return tree
    return jax.tree.map(lambda leaf: np.asarray(leaf) if uses_jax((leaf,)) else leaf, tree)


def put(tree):
    """The tree with jax leaves: float64 NumPy arrays would be cut to float32 at a jit boundary with x64 off."""
    leaves, structure = jax.tree.flatten(tree)
    host = [isinstance(leaf, np.ndarray | np.generic) for leaf in leaves]
    if not any(host):
        return tree
    with jax.enable_x64(True):
        moved = iter(jax.device_put([leaf for leaf, is_host in zip(leaves, host, strict=True) if is_host]))
    return structure.unflatten([next(moved) if is_host else leaf for leaf, is_host in zip(leaves, host, strict=True)])


def on_host(*trees) -> bool:
    """True if every array is concrete and lies whole on the CPU."""
    for leaf in leaves(trees):
        if uses_jax((leaf,)):
            if isinstance(leaf, Tracer):
                return False
            devices = leaf.devices()
            if len(devices) > 1 or next(iter(devices)).platform != "cpu":
                return False
    return True


def is_spread(x) -> bool:
    """True for an array that lies on several devices."""
    return isinstance(x, jax.Array) and not isinstance(x, Tracer) and len(x.devices()) > 1


def everywhere(tree, like):
    """The tree on the devices of the array `like`: vectors as long as its rows are dealt as they are, the rest copied.

    Nothing happens where `like` lies on one device.
    """
    if not is_spread(like):
        return tree
    if not isinstance(like.sharding, NamedSharding):
        raise ValueError("data on several devices must be laid out by a NamedSharding, as jax.device_put(X, "
                         "NamedSharding(mesh, PartitionSpec('rows'))) does")  # fmt: skip
    mesh, rows = like.sharding.mesh, next(iter(like.sharding.spec), None)

    def moved(leaf):
        if not isinstance(leaf, jax.Array | np.ndarray | np.generic) or isinstance(leaf, Tracer) or is_spread(leaf):
            return leaf
        by_row = leaf.ndim == 1 and leaf.size == like.shape[0]
        return jax.device_put(leaf, NamedSharding(mesh, PartitionSpec(rows) if by_row else PartitionSpec()))

    return jax.tree.map(moved, tree)


def whole(tree):
    """The tree on the host: what lies on several devices, also of other processes, is copied whole."""

    def moved(leaf):
        if is_spread(leaf) and not leaf.is_fully_replicated:
            everyone = NamedSharding(leaf.sharding.mesh, PartitionSpec())
            leaf = jax.jit(lambda x: x, out_shardings=everyone)(leaf)
        return np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf

    return jax.tree.map(moved, tree)


def readable(tree):
    """The tree with NumPy leaves if every array is concrete and lies on the CPU, itself otherwise."""
    return to_host(tree) if on_host(tree) else tree
