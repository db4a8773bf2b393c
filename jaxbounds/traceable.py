"""Users' functions that cannot be traced: what jax says of them, in words that name the argument and the remedy."""

import contextlib
from collections.abc import Iterator

import jax

# NumPy, math or float(...) on a tracer; `if` and `while` on one; one as an index; a mask as an index
UNTRACEABLE = (
    jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError,
    jax.errors.TracerIntegerConversionError, jax.errors.NonConcreteBooleanIndexError,
)  # fmt: skip


def not_jax(name: str) -> TypeError:
    """The error to raise for a function of the user's."""
    return TypeError(f"{name} must be written with jax.numpy, for jax traces it: jnp.exp(x) for np.exp(x) and "
                     "math.exp(x), jnp.where(a, b, c) for `b if a else c`")  # fmt: skip


@contextlib.contextmanager
def traced_as(name: str) -> Iterator[None]:
    """Give the errors of jax about what cannot be traced the name of the argument that is to blame."""
    try:
        yield
    except UNTRACEABLE as error:
        raise not_jax(name) from error
