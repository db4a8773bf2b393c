"""What became of a fit or a bound: an integer leaf, and a sentence of advice for people."""

from enum import IntEnum


class Status(IntEnum):
    """Outcome of `fit` and `bound`; `Status(code).advice` is a full sentence.

    Example:
        >>> import jaxbounds as jb
        >>> jb.Status(1).name
        'MAX_STEPS'
    """

    CONVERGED = 0
    MAX_STEPS = 1
    STALLED = 2
    NONFINITE = 3
    INVALID = 4
    VACUOUS = 5
    NO_INTERCEPT = 6

    def __str__(self) -> str:
        return self.name

    def __format__(self, spec: str) -> str:
        """The name; the number where the format is one of integers, as in f"{status:d}"."""
        return format(int(self) if spec[-1:] in tuple("bcdeEfFgGnoxX%") else self.name, spec)

    @property
    def advice(self) -> str:
        """What happened, and what to do about it."""
        return _ADVICE[self]


_ADVICE = {
    Status.CONVERGED: "All is well: the fit (or the estimator's own) ended at its tolerance, the bounds are valid and "
    "their gap is finite.",
    Status.MAX_STEPS: "The solver ran out of steps before it reached the tolerance; bounds from this model are valid "
    "but wider than they need to be: raise max_steps (an estimator's max_iter) or tol, or continue with warm_start.",
    Status.STALLED: "The solver cannot reduce the duality gap any further in this precision; bounds from this model "
    "are valid: accept the gap, raise tol, or rescale the data.",
    Status.NONFINITE: "The objective overflowed or became NaN; rescale the rows of the data or raise the penalty.",
    Status.INVALID: "The change does not fit the model (an index out of range or repeated, a value that is not finite, "
    "a label that is not -1 or +1, a weight that is not positive, a penalty out of its range); the intervals are "
    "(-inf, inf).",
    Status.VACUOUS: "The bounds are valid but infinite: the new duality gap is not finite for this change; "
    "retrain with refit.",
    Status.NO_INTERCEPT: "Intercepts of any size are best, because all labels are of one class or the loss never rises "
    "in one direction; bounds on scores and on the intercept are infinite: add rows of the other class, or use "
    "intercept=False.",
}
