"""Guaranteed bounds on retrained linear models: what would the optimum be after a change of the data?"""

from jaxbounds import certificates, losses, penalties, solvers, testing
from jaxbounds.attacks import Attack, attack_relabel, attack_removal
from jaxbounds.batches import ChangeBatch, each_penalty, each_row_removed, each_target_flipped, stack
from jaxbounds.bounds import Bounds, Interval, bound
from jaxbounds.certificates import Cached, Curvature, Partial, Pass, Theorem1
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
from jaxbounds.influences import Influence, RowRanks, influence, rank_rows
from jaxbounds.interop import from_sklearn, load_svmlight
from jaxbounds.model import Model
from jaxbounds.problem import Problem
from jaxbounds.solvers.fit import FitWarning, fit, refit
from jaxbounds.status import Status
from jaxbounds.sweeps import EachBounds, bound_each
from jaxbounds.worst_case import (
    WorstCase,
    largest_certified_relabel,
    largest_certified_removal,
    worst_case_relabel,
    worst_case_relabels,
    worst_case_removal,
    worst_case_removals,
)

__version__ = "0.1.0"

__all__ = [
    "Attack", "Bounds", "Cached", "ChangeBatch", "Curvature", "Decision", "DistanceBelow", "EachBounds",
    "FitWarning", "Influence", "Interval", "LabelsKnown", "Model", "Partial", "Pass", "Problem", "RowRanks",
    "Status", "Theorem1", "WorstCase", "add_columns", "add_rows", "attack_relabel", "attack_removal", "bound",
    "bound_each", "certificates", "combine", "decide", "each_penalty", "each_row_removed",
    "each_target_flipped", "fit", "from_sklearn", "influence", "largest_certified_relabel",
    "largest_certified_removal", "load_svmlight", "losses", "penalties", "rank_rows", "refit",
    "remove_columns", "remove_rows", "set_columns", "set_elements", "set_penalty", "set_rows", "set_targets",
    "set_weights", "solvers", "stack", "testing", "worst_case_relabel", "worst_case_relabels",
    "worst_case_removal", "worst_case_removals",
]  # fmt: skip
