"""Whether a method applies to a problem and its change."""

import dataclasses
from typing import Any

from jaxbounds.batches import Flat
from jaxbounds.certificates import Method
from jaxbounds.certificates.unpenalised import check_intercept
from jaxbounds.kinds import Change, SetPenalty
from jaxbounds.problem import Problem


def problem_after(problem: Problem, change: Change | Flat) -> Problem:
    """The problem with the penalty that a change sets."""
    for part in change.parts():
        if isinstance(part, SetPenalty):
            problem = dataclasses.replace(problem, penalty=part.penalty)
    return problem


def check_method(method: Any, problem: Any = None, change: Any = None, name: str = "method") -> Method:
    """The method; raises if it is none, or does not apply to the problem after the change."""
    if not isinstance(method, Method):
        what = f"the class {method.__name__}; call it" if isinstance(method, type) else type(method).__name__
        raise TypeError(f"{name} must be Theorem1(), Cached(), Partial(), Pass() or Curvature(), got {what}")
    if change is not None:
        problem = problem_after(problem, change)
        problem.check()
        method.check(problem)
        check_intercept(problem)
    return method
