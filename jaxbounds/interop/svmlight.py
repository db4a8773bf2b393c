"""Data files in the svmlight / LIBSVM text format."""

import os
import time
from typing import Any, cast

import numpy as np
import scipy.sparse

from jaxbounds.arguments import as_choice, as_path, as_whole, checked_sparse
from jaxbounds.problem import as_vector
from jaxbounds.storage import UNREADABLE, pack, unpack, write_atomically

_RACE = 2_000_000_000  # nanoseconds: a file this young may change once more without its time stamp telling


def load_svmlight(
    path: str | os.PathLike[str],
    n_features: int | None = None,
    zero_based: bool | str = "auto",
    cache: bool | str | os.PathLike[str] = False,
) -> tuple[scipy.sparse.csr_matrix, np.ndarray]:
    """Read a data file in the svmlight / LIBSVM format, plain or compressed (.gz, .bz2).

    Each line is ``target index:value index:value ...``; what is not listed is zero. scikit-learn does the reading.

    Args:
        path: The file.
        n_features: Number of columns d. Needed for a file whose last columns may be empty, such as a test set;
            None takes the largest index that occurs.
        zero_based: True if the first column is number 0, False if it is 1; "auto" decides by whether a 0 occurs.
        cache: True to keep the arrays in a sealed .npz file beside the text (path + ".npz"), or where to keep them.
            It is read in place of the text, and written anew if it is damaged, or if the text has another size or
            time stamp or was read with other options.

    Returns:
        ``(X, y)``: a scipy CSR matrix (n, d) and the targets (n,), both float64. Targets are as in the file.

    Raises:
        ImportError: scikit-learn is not installed.
        OSError: The file cannot be read, or the cache cannot be written.
        ValueError: The file is not in this format, or is empty.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "two_rows.txt")
        >>> with open(path, "w") as file:
        ...     _ = file.write("+1 1:0.5 3:2\\n-1 2:1\\n")
        >>> X, y = load_svmlight(path)
        >>> X.shape, y.tolist()
        ((2, 3), [1.0, -1.0])

    Source: the format of SVMlight (Joachims 1999) and LIBSVM (Chang and Lin 2011).
    """
    path = as_path(path)
    n_features = None if n_features is None else as_whole(n_features, "n_features", 1, none="for the largest index")
    if not isinstance(zero_based, bool):
        as_choice(zero_based, "zero_based", ("auto", True, False))
    if cache is False:
        return _read(path, n_features, zero_based)
    kept = path + ".npz" if cache is True else as_path(cast(Any, cache), "cache")
    source = os.stat(path)
    key: dict[str, Any] = {"size": source.st_size, "time": source.st_mtime_ns}
    key |= {"n_features": n_features, "zero_based": zero_based}
    found = _cached(kept, key)
    if found is not None:
        return found
    settled = time.time_ns() - source.st_mtime_ns > _RACE
    X, y = _read(path, n_features, zero_based)
    arrays = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "y": y}
    key |= {"settled": settled, "shape": [int(k) for k in cast(Any, X.shape)]}
    write_atomically(kept, lambda file: pack(file, "svmlight", key, arrays))
    return X, y


def _cached(kept: str, key: dict[str, Any]) -> tuple[scipy.sparse.csr_matrix, np.ndarray] | None:
    """What was read before with this key, or None."""
    try:
        with open(kept, "rb") as file:
            found, arrays = unpack(file, "svmlight")
    except (OSError, ValueError):
        return None
    if any(found.get(name) != value for name, value in key.items()) or not found["settled"]:
        return None
    try:
        parts: Any = tuple(arrays[name] for name in ("data", "indices", "indptr"))
        X: Any = scipy.sparse.csr_matrix(parts, shape=found["shape"])
        return checked_sparse(X, "X"), as_vector(arrays["y"], found["shape"][0], "y")
    except UNREADABLE:
        return None


def _read(path: str, n_features: int | None, zero_based: bool | str) -> tuple[scipy.sparse.csr_matrix, np.ndarray]:
    try:
        from sklearn.datasets import load_svmlight_file
    except ImportError as error:
        raise ImportError(
            "load_svmlight needs scikit-learn, which is not installed: pip install 'jaxbounds[data]'"
        ) from error
    try:
        loaded = cast(Any, load_svmlight_file)(path, n_features=n_features, zero_based=zero_based)
        X, y = scipy.sparse.csr_matrix(loaded[0]), np.asarray(loaded[1], np.float64)
    except ValueError as error:
        raise ValueError(f"path: {path} could not be read as svmlight / LIBSVM data ({error})") from error
    n, d = loaded[0].shape
    if n == 0 or d == 0:
        raise ValueError(f"path: {path} holds no data ({n} rows, {d} columns)")
    return X, y
