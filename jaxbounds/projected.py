"""Test rows with the products that all candidates of a sweep share."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxbounds.certificates.centre import extend
from jaxbounds.host import HostMatrix
from jaxbounds.model import Model


@dataclass(frozen=True)
class ProjectedRows:
    """A matrix on the host with its products that all candidates and regions share."""

    matrix: HostMatrix
    magnitude: HostMatrix
    square: HostMatrix
    at_w: Any  # X w^, (m,)
    at_delta: Any  # X delta
    size_w: Any  # |X| |w^|
    size_delta: Any  # |X| |delta|
    norm_sq: Any  # ||x||^2


def project(model: Model, matrix: HostMatrix) -> ProjectedRows:
    """The products of test rows with the model's vectors."""
    magnitude, square = matrix.map(np.abs), matrix.map(np.square)
    w, delta = (extend(v.astype(np.float64), matrix.shape[1]) for v in (model.w, model.columns.delta))
    return ProjectedRows(
        matrix, magnitude, square, matrix.matvec(w), matrix.matvec(delta), magnitude.matvec(np.abs(w)),
        magnitude.matvec(np.abs(delta)), square.matvec(np.ones(matrix.shape[1])),
    )  # fmt: skip
