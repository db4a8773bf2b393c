"""Which data can be stored, whatever the layout."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from jaxbounds.arguments import is_real
from jaxbounds.chunks import INT32_MAX


def dtype_for(dtype: Any, name: str, remedy: Callable[[], str] | None = None) -> Any:
    """The dtype in which data of this dtype are stored; `remedy` says what to do where they are no numbers."""
    if not is_real(dtype):
        what = f"convert it with {name}.astype(float)" if remedy is None else remedy()
        raise TypeError(f"{name} has dtype {dtype}; expected real numbers: {what}")
    if not jnp.issubdtype(dtype, jnp.floating):
        return np.dtype(np.float64)
    return np.dtype(np.float32 if jnp.finfo(dtype).bits <= 32 else np.float64)


def check_shape(shape: tuple[int, ...], name: str) -> None:
    if len(shape) != 2:
        hint = ""
        if len(shape) == 1:
            hint = (f"; one row is {name}[None, :], one column {name}[:, None], and one row of a data frame "
                    f"frame.loc[[i]], or {name}.to_frame().T if it is a series already")  # fmt: skip
        raise ValueError(f"{name} must be two-dimensional (rows, columns); it has shape {shape}{hint}")
    if 0 in shape:
        raise ValueError(f"{name} is empty: it has shape {shape}; at least one row and one column are needed")
    if max(shape) > INT32_MAX:
        raise ValueError(f"{name} has shape {shape}; rows and columns are numbered with 32-bit integers, "
                         f"so each side can be at most {INT32_MAX}")  # fmt: skip


def not_finite(name: str, row: int, col: int, value: Any) -> str:
    return f"{name}[{row}, {col}] is {value}; all data must be finite: drop or impute such entries"


def from_jax_sparse(X: Any, name: str) -> sp.coo_array | sp.csr_array:
    """A scipy matrix from BCOO or BCSR, whose padding entries have out-of-range indices."""
    if X.n_batch or X.n_dense:
        raise ValueError(f"{name} is a {type(X).__name__} with batch or dense dimensions; use n_batch=0 and n_dense=0")
    check_shape(X.shape, name)
    dtype = dtype_for(X.dtype, name)
    data = np.asarray(X.data).astype(dtype)
    if hasattr(X, "indptr"):
        indptr, cols = np.asarray(X.indptr), np.asarray(X.indices)
        rows = np.repeat(np.arange(X.shape[0]), np.diff(indptr))
        data, cols = data[: rows.size], cols[: rows.size]
    else:
        rows, cols = np.asarray(X.indices).T
    keep = (rows < X.shape[0]) & (cols < X.shape[1])
    return sp.coo_array((data[keep], (rows[keep], cols[keep])), shape=X.shape)
