"""Data files in the svmlight / LIBSVM text format."""

import os
from typing import Any, cast

import numpy as np
import scipy.sparse


def load_svmlight(
    path: str | os.PathLike[str], n_features: int | None = None, zero_based: bool | str = "auto"
) -> tuple[scipy.sparse.csr_matrix, np.ndarray]:
    """Read a data file in the svmlight / LIBSVM format, plain or compressed (.gz, .bz2).

    Each line is ``target index:value index:value ...``; what is not listed is zero. scikit-learn does the reading.

    Args:
        path: The file.
        n_features: Number of columns d. Needed for a file whose last columns may be empty, such as a test set;
            None takes the largest index that occurs.
        zero_based: True if the first column is number 0, False if it is 1; "auto" decides by whether a 0 occurs.

    Returns:
        ``(X, y)``: a scipy CSR matrix (n, d) and the targets (n,), both float64. Targets are as in the file.

    Raises:
        ImportError: scikit-learn is not installed.
        OSError: The file cannot be read.
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
    try:
        from sklearn.datasets import load_svmlight_file
    except ImportError as error:
        raise ImportError(
            "load_svmlight needs scikit-learn, which is not installed: pip install 'jaxbounds[data]'"
        ) from error
    path = os.fspath(path)
    try:
        loaded = cast(Any, load_svmlight_file)(path, n_features=n_features, zero_based=zero_based)
        X, y = scipy.sparse.csr_matrix(loaded[0]), np.asarray(loaded[1], np.float64)
    except ValueError as error:
        raise ValueError(f"path: {path} could not be read as svmlight / LIBSVM data ({error})") from error
    n, d = loaded[0].shape
    if n == 0 or d == 0:
        raise ValueError(f"path: {path} holds no data ({n} rows, {d} columns)")
    return X, y
