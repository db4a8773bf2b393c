"""Guaranteed bounds on retrained linear models: what would the optimum be after a change of the data?"""

from jaxbounds import certificates, losses, penalties, solvers, testing
from jaxbounds.attacks import Attack, attack_relabel, attack_removal
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
from jaxbounds.influences import Influence, RowRanks, influence, rank_rows
from jaxbounds.interop import from_sklearn, load_svmlight
from jaxbounds.label_errors import LabelErrors, find_label_errors
from jaxbounds.left_out import CrossValidation, LeaveOneOut, cross_validate, leave_one_out
from jaxbounds.model import Model
from jaxbounds.monitor import Monitor
from jaxbounds.monitoring.watch import Push
from jaxbounds.multinomial import MultinomialModel
from jaxbounds.multinomial_bounds import MultinomialBounds
from jaxbounds.one_vs_rest import OneVsRest, OneVsRestBounds, fit_one_vs_rest
from jaxbounds.penalty_path import Path, PenaltySweep, fit_path, penalty_sweep
from jaxbounds.problem import Problem
from jaxbounds.progress import progress
from jaxbounds.row_blocks import RowBlocks
from jaxbounds.solvers.fit import FitWarning, fit, refit
from jaxbounds.status import Status
from jaxbounds.storage import load
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
    "Attack", "BestPenalty", "Bounds", "Cached", "ChangeBatch", "CrossValidation", "Curvature", "Decision",
    "DistanceBelow", "EachBounds", "FitWarning", "Influence", "Interval", "LabelErrors", "LabelsKnown", "LeaveOneOut",
    "Model", "Monitor", "MultinomialBounds", "MultinomialModel", "OneVsRest", "OneVsRestBounds", "Partial", "Pass",
    "Path", "PenaltySweep", "Problem", "Push", "RowBlocks", "RowRanks", "SelfConcordant", "Status", "Theorem1",
    "WorstCase", "add_columns", "add_rows", "attack_relabel", "attack_removal", "best_penalty", "bound", "bound_each",
    "certificates", "combine", "cross_validate", "decide", "each_penalty", "each_row_removed", "each_target_flipped",
    "find_label_errors", "fit", "fit_one_vs_rest", "fit_path", "from_sklearn", "influence",
    "largest_certified_relabel", "largest_certified_removal", "leave_one_out", "load", "load_svmlight", "losses",
    "penalties", "penalty_sweep", "progress", "rank_rows", "refit", "remove_columns", "remove_rows", "set_columns",
    "set_elements", "set_penalty", "set_rows", "set_targets", "set_weights", "solvers", "stack", "testing",
    "with_factor", "worst_case_relabel", "worst_case_relabels", "worst_case_removal", "worst_case_removals",
]  # fmt: skip
