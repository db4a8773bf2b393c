"""Guaranteed bounds on retrained linear models: what would the optimum be after a change of the data?"""

from jaxbounds import certificates, losses, penalties, solvers, testing
from jaxbounds.batches import ChangeBatch, each_penalty, each_row_removed, each_target_flipped, stack
from jaxbounds.best_penalty import BestPenalty, best_penalty
from jaxbounds.bounds import Bounds, Interval, bound
from jaxbounds.certificates import Cached, Curvature, Partial, Pass, SelfConcordant, Theorem1, with_factor
from jaxbounds.changes import (
    add_columns,
    add_rows,
    combine,
    remove_columns,
    remove_rows,
    set_columns,
    set_elements,
    set_penalty,
    set_rows,
    set_targets,
    set_weights,
)
from jaxbounds.decisions import Decision, DistanceBelow, LabelsKnown, decide
from jaxbounds.interop import from_sklearn, load_svmlight
from jaxbounds.left_out import (
    CrossValidation,
    LabelErrors,
    LeaveOneOut,
    cross_validate,
    find_label_errors,
    leave_one_out,
)
from jaxbounds.model import Model
from jaxbounds.penalty_path import Path, PenaltySweep, fit_path, penalty_sweep
from jaxbounds.problem import Problem
from jaxbounds.solvers.fit import FitWarning, fit, refit
from jaxbounds.status import Status
from jaxbounds.sweeps import EachBounds, bound_each

__version__ = "0.1.0"

__all__ = [
    "BestPenalty", "Bounds", "Cached", "ChangeBatch", "CrossValidation", "Curvature", "Decision", "DistanceBelow",
    "EachBounds", "FitWarning", "Interval", "LabelErrors", "LabelsKnown", "LeaveOneOut", "Model", "Partial", "Pass",
    "Path", "PenaltySweep", "Problem", "SelfConcordant", "Status", "Theorem1", "add_columns", "add_rows",
    "best_penalty", "bound", "bound_each", "certificates", "combine", "cross_validate", "decide", "each_penalty",
    "each_row_removed", "each_target_flipped", "find_label_errors", "fit", "fit_path", "from_sklearn", "leave_one_out",
    "load_svmlight", "losses", "penalties", "penalty_sweep", "refit", "remove_columns", "remove_rows", "set_columns",
    "set_elements", "set_penalty", "set_rows", "set_targets", "set_weights", "solvers", "stack", "testing",
    "with_factor",
]  # fmt: skip
