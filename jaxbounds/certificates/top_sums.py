"""Sums of the k largest of many terms: the most that any k rows can add (host, NumPy float64)."""

import numpy as np

from jaxbounds.rounding import up


def top_sums(terms, ks) -> np.ndarray:
    """Sums of the k largest positive terms of each row, (len(ks), rows), rounded up; ks ascend up to their number."""
    n, most = terms.shape[1], ks[-1]
    largest = terms if most == n else np.partition(terms, n - most, axis=1)[:, n - most :]
    if len(ks) == 1:
        return up(np.sum(np.maximum(largest, 0.0), axis=1), most)[None]
    sums = np.cumsum(np.maximum(np.sort(largest, axis=1)[:, ::-1], 0.0), axis=1)
    return up(sums[:, np.array(ks) - 1].T, most)


def top_sum(terms, k: int) -> float:
    """The sum of the k largest positive terms, rounded up."""
    return float(top_sums(terms[None], (k,))[0, 0])
