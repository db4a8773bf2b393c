"""Single elements that change, on the host: sorted and grouped by row and by column in a few passes.

Under L2 with one lam nothing but the elements is listed (`Edit.rest`), so that the whole edit follows from where they
lie and what they held: that is all that `Scattered` keeps, in two arrays that a compiled program takes as they are.
"""

from typing import Any

import numpy as np

from jaxbounds.array import xp
from jaxbounds.draft import lookup
from jaxbounds.edit import Edit, padded, scalar_l2
from jaxbounds.kinds import Change, SetElements, check_range
from jaxbounds.model import Model
from jaxbounds.pytree import pytree, static
from jaxbounds.slots import distinct, edges, order_of


@pytree
class Scattered:
    """Elements in the order of their rows, with padding past the end.

    Attributes:
        places: (R + Q + 2 E,) int32 touched rows, touched columns, and the slots of each element in both.
        values: (2, E) float64 old and new values.
    """

    places: Any
    values: Any
    row_slots: int = static()
    col_slots: int = static()

    def edit(self, model: Model) -> Edit:
        """The change as the certificates see it."""
        n, d, problem = model.alpha.shape[0], model.w.shape[0], model.problem
        R, Q, E = self.row_slots, self.col_slots, self.values.shape[1]
        rows, cols, row, col = (self.places[end - size : end] for end, size in
                                ((R, R), (R + Q, Q), (R + Q + E, E), (R + Q + 2 * E, E)))  # fmt: skip
        inside, at = rows < n, xp.minimum(rows, n - 1)
        target, weight = xp.where(inside, model.rows.target[at], 1.0), xp.where(inside, model.rows.weight[at], 0.0)
        no_row, no_col = xp.zeros_like(rows, dtype=bool), xp.zeros_like(cols, dtype=bool)
        return Edit(
            rows, cols, row, col, self.values[0], self.values[1], no_row, target, weight, no_row, no_col, no_col,
            xp.asarray(problem.unit(n)), problem.penalty.in_range().all(), problem.penalty, None, None, None, n, d,
            False, False, True, True, False,
        )  # fmt: skip


def scattered(model: Model, change: Change) -> Scattered | None:
    """A change of single elements, checked; None for any other change, and for other penalties."""
    if type(change) is not SetElements or not isinstance(model.w, np.ndarray):
        return None
    scaled = model.inputs is not None and model.inputs.steps
    if model.data is None or scaled or not scalar_l2(model.problem.penalty, 0):
        return None
    rows, cols, new = (np.asarray(x) for x in (change.rows, change.cols, change.values))
    check_range(rows, model.alpha.shape[0], "rows", "row")
    check_range(cols, model.w.shape[0], "cols", "column")
    return arranged(model, rows, cols, new)


def arranged(model: Model, rows, cols, new, to=padded) -> Scattered | None:
    """Elements of the data by their rows and columns; None if one is named twice."""
    assert model.data is not None
    n, d, matrix = model.alpha.shape[0], model.w.shape[0], model.data.matrix
    order = order_of(rows.astype(np.int64) * d + cols, n * d)
    rows, cols, new = rows[order], cols[order], new[order]
    first = edges(rows)
    if (~first[1:] & (cols[1:] == cols[:-1])).any():
        return None
    (row_slots, row), (col_slots, col) = (rows[first], np.cumsum(first) - 1), distinct(cols, d)
    R, Q, E = to(row_slots.size), to(col_slots.size), to(rows.size)
    parts = (R, row_slots, n), (Q, col_slots, d), (E, row, R), (E, col, Q)
    places = np.empty(R + Q + 2 * E, np.int32)
    start = 0
    for size, numbers, past in parts:
        places[start : start + numbers.size], places[start + numbers.size : start + size] = numbers, past
        start += size
    values = np.zeros((2, E))
    values[0, : rows.size] = lookup(matrix, rows, cols, np)
    values[1, : rows.size] = new.astype(matrix.dtype)  # stored in the data's dtype, as `apply` does
    return Scattered(places, values, R, Q)
