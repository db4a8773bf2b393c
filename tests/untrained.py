"""Models of a given w, made without a solver: nothing is compiled."""

import numpy as np
import scipy.sparse as sp

import jaxbounds as jb
from jaxbounds.array import put
from jaxbounds.matrix import as_matrix
from jaxbounds.model import Data, remember
from jaxbounds.pytree import in_float64


@in_float64
def model_at(problem: jb.Problem, X, y, weight, w, alpha=None):
    """The model of (w, alpha), alpha = -l' at the scores of w by default."""
    matrix = as_matrix(X)
    w = np.asarray(w).astype(matrix.dtype)
    dense = X.toarray() if sp.issparse(X) else np.asarray(X)
    if alpha is None:
        q = problem.loss.coordinate(dense.astype(float) @ w.astype(float), np.asarray(y, float))
        alpha = np.asarray(problem.loss.dual(q, np.asarray(y, float)))
    return remember(problem, put(Data(matrix, np.asarray(y, float), np.asarray(weight, float))), put(w), put(alpha))
