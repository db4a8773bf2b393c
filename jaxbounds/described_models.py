"""What tables say of a model from elsewhere: its classes, a penalised intercept, how its fit ended; and of a bound."""

from typing import Any

import numpy as np

from jaxbounds.display import Rows, is_unknown, listed, number, status_text
from jaxbounds.status import Status


def fit_status(model: Any) -> str:
    """What became of a fit, or of an estimator's own fit what is known of it here."""
    if model.source is None or is_unknown(model.status) or np.ndim(model.status):
        return status_text(model.status)
    status = Status(int(model.status))
    ended = "did not run out of steps" if status == Status.CONVERGED else "used up its max_iter (raise it)"
    return f"{status.name}: fitted by {model.source}, which {ended}; the gap says how exact that is."


def bound_status(code: Any, *distances: Any) -> str:
    """What became of a bound, and whether all is finite where the distance is known."""
    if not distances or is_unknown((code, distances)) or int(code) != Status.CONVERGED:
        return status_text(code)
    if all(np.isfinite(np.asarray(distance.upper)) for distance in distances):
        return f"{Status.CONVERGED.name}: All is well, the bounds are valid and finite."
    return (f"{Status.CONVERGED.name}: The bounds are valid, but intervals of coefficients and scores are infinite, "
            "for without strong convexity no radius is known: add an L2 part, or retrain.")  # fmt: skip


def classes_row(model: Any) -> Rows:
    """The classes as the user wrote them, where they are not the targets already."""
    return [] if model.classes_ is None else [("classes", listed([repr(label) for label in model.classes_]))]


def class_name(found: Any, k: int) -> str:
    """class 2, or class 'cow'."""
    return f"class {k if found.classes_ is None else repr(found.classes_[k])}"


def penalised_row(model: Any) -> Rows:
    """A penalised intercept, which is one of the coefficients."""
    inputs: Any = model.inputs
    if inputs is None or inputs.constant_place is None:
        return []
    (name, j), constant = inputs.constant_place, inputs.constant
    value = "" if is_unknown(model.w) or model.w.ndim > 1 else f" = {number(float(model.w[j]) * constant)}"
    return [(name, f"penalised: w[{j}] * {number(constant)}{value}")]
