"""A product with data that only the host can read, as one linear operation of jax: jit, vmap, grad and jvp know it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.experimental.buffer_callback import buffer_callback  # pure_callback copies, and waits for threads it may hold
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from jaxbounds.callbacks import on_the_host
from jaxbounds.pytree import in_float64

_product = Primitive("block_product")


def block_product(blocks: Any, vector: jax.Array, transposed: bool = False) -> jax.Array:
    """X w, or X^T t if transposed, on a tracer.

    Args:
        blocks: hashable, with shape and ``product(vector, transposed)``, which computes on NumPy arrays.
        vector: float64 (d,), or (n,) if transposed.
    """
    return _product.bind(jnp.asarray(vector), blocks=blocks, transposed=transposed)


def _out(blocks, transposed):
    return jax.ShapeDtypeStruct((blocks.shape[1 if transposed else 0],), np.float64)


@in_float64
def _on_cpu(vector, *, blocks, transposed):
    def write(_, out, vector):
        np.asarray(out)[:] = blocks.product(np.asarray(vector), transposed)

    return buffer_callback(write, _out(blocks, transposed))(vector)


@in_float64
def _elsewhere(vector, *, blocks, transposed):
    return on_the_host(lambda v: (blocks.product(v, transposed),), (_out(blocks, transposed),), vector)[0]


def _transpose(cotangent, vector, *, blocks, transposed):
    return (_product.bind(cotangent, blocks=blocks, transposed=not transposed),)


def _batched(args, axes, **which):
    vectors = jnp.moveaxis(args[0], axes[0], 0)
    return jax.lax.map(lambda vector: _product.bind(vector, **which), vectors), 0


def _shape(vector, *, blocks, transposed):
    out = _out(blocks, transposed)
    return ShapedArray(out.shape, out.dtype)


_product.def_impl(jax.jit(_product.bind, static_argnames=("blocks", "transposed")))
_product.def_abstract_eval(_shape)
ad.deflinear2(_product, _transpose)
batching.primitive_batchers[_product] = _batched
mlir.register_lowering(_product, mlir.lower_fun(_elsewhere, multiple_results=False))
mlir.register_lowering(_product, mlir.lower_fun(_on_cpu, multiple_results=False), platform="cpu")
