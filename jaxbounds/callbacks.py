"""NumPy computations on values that may be traced: run at once, or as a callback inside jit."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxbounds.array import to_host
from jaxbounds.pytree import in_float64, is_traced
from jaxbounds.user_functions import FunctionLoss, FunctionPenalty


def on_the_host(compute, shapes, *args) -> tuple:
    """compute(*args) in NumPy: at once, or as a callback inside jit, vmap and grad.

    Args:
        compute: a function of pytrees of NumPy arrays that returns a tuple of arrays and does not call jax.
        shapes: what it returns, `jax.ShapeDtypeStruct`s.
        args: pytrees.
    """
    if not is_traced(*args) and not inside_trace():
        return compute(*to_host(args))
    leaves, structure = jax.tree.flatten(args)
    leaves = [jnp.asarray(leaf) for leaf in leaves]
    dtypes = [leaf.dtype for leaf in leaves]

    @in_float64  # of the callback's own thread
    def callback(*words):
        args = structure.unflatten(map(_from_words, words, dtypes))
        return tuple(_to_words(np.asarray(value)) for value in compute(*args))

    wanted = tuple(jax.eval_shape(_as_words, shape) for shape in shapes)
    # jax hands a callback its arguments outside our 64-bit scope, where float64 would be cut to float32
    found = jax.pure_callback(callback, wanted, *map(_as_words, leaves), vmap_method="sequential")
    return tuple(
        words if shape.dtype.itemsize < 8 else jax.lax.bitcast_convert_type(words, shape.dtype)
        for words, shape in zip(found, shapes, strict=True)
    )


def inside_trace() -> bool:
    """Whether jax is tracing here, so that even constants become tracers."""
    return is_traced(jnp.zeros(()))


def own_functions(problem) -> bool:
    """Whether a user's loss or penalty is in the problem: a callback must not call jax, and so not these."""
    return isinstance(problem.loss, FunctionLoss) or isinstance(problem.penalty, FunctionPenalty)


def refuse_own_functions(problem, name: str, *args) -> None:
    """Raise inside jit if the problem holds a user's loss or penalty."""
    if own_functions(problem) and (is_traced(*args) or inside_trace()):
        raise ValueError(
            f"{name} cannot be used inside jit, vmap or grad with your own functions: it is a callback to the host, "
            "which must not call jax; call it outside"
        )


def _as_words(x):
    """A traced array of 64-bit numbers as pairs of 32-bit words."""
    return jax.lax.bitcast_convert_type(x, np.uint32) if x.dtype.itemsize == 8 else x


def _to_words(x):
    return np.ascontiguousarray(x)[..., None].view(np.uint32) if x.dtype.itemsize == 8 else x


def _from_words(words, dtype):
    words = np.ascontiguousarray(words)
    return words.view(dtype)[..., 0] if dtype.itemsize == 8 else words
