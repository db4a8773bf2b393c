"""Single elements that change, on the host: grouped by row and by column in a few passes, none of which sorts them.

Under L2 with one lam nothing but the elements is listed (`Edit.rest`), so that the whole edit follows from where they
lie and what they held: that is all that `Scattered` keeps, in two arrays that a compiled program takes as they are.
"""

from typing import Any

import numpy as np

from jaxbounds.array import are_plain, hold, xp
from jaxbounds.edit import Edit, padded
from jaxbounds.kinds import Change, SetElements, check_range
from jaxbounds.model import Model
from jaxbounds.often import Ready
from jaxbounds.pytree import pytree, static
from jaxbounds.recalled import take, with_recalled
from jaxbounds.slots import grouped, repeated


@pytree
class Scattered:
    """Elements as they come, with padding past the end; rows and columns are in no order either.

    Attributes:
        places: (R + Q + 2 E,) int32 touched rows, touched columns, and the slots of each element in both.
        values: (2, E) float64 new and old values; of several elements of sparse data the new ones only, (1, E). Of one
            element also what the model remembers of its row and column, below these.
        matrix: these data: programs, whose model has none, find the old values in less time.
    """

    places: Any
    values: Any
    matrix: Any
    row_slots: int = static()
    col_slots: int = static()

    def edit(self, model: Model) -> Edit:
        """The change as the certificates see it."""
        n, d, problem = model.alpha.shape[0], model.w.shape[0], model.problem
        R, Q, E = self.row_slots, self.col_slots, self.values.shape[1]
        rows, cols, row, col = (self.places[end - size : end] for end, size in
                                ((R, R), (R + Q, Q), (R + Q + E, E), (R + Q + 2 * E, E)))  # fmt: skip
        target, weight = hold((take(model.rows.target, rows, 1.0), take(model.rows.weight, rows)))
        old = self.values[1] if self.matrix is None else self._old(model, rows, cols, row, col)
        no_row, no_col = xp.zeros_like(rows, dtype=bool), xp.zeros_like(cols, dtype=bool)
        return Edit(
            rows, cols, row, col, old, self.values[0], no_row, target, weight, no_row, no_col, no_col,
            xp.asarray(problem.unit(n)), problem.penalty.in_range().all(), problem.penalty, None, None, None, n, d,
            False, False, True, True, False,
        )  # fmt: skip

    def recall(self, model: Model) -> Model:
        """The model with no more of its memory than the change reads, if that came with the change."""
        return with_recalled(model, self.values[2:]) if self.values.shape[0] > 2 else model

    def _old(self, model: Model, rows, cols, row, col):
        """What the elements held, 0 in padding."""
        matrix = self.matrix if model.data is None else model.data.matrix
        real = row < self.row_slots
        at = xp.where(real, rows[xp.minimum(row, self.row_slots - 1)], 0)
        held = matrix.at(at, xp.where(real, cols[xp.minimum(col, self.col_slots - 1)], 0))
        return hold(xp.where(real, held.astype(np.float64), 0.0))


def scattered(known: Ready, change: Change) -> Scattered | None:
    """A change of single elements, checked; None for any other change, and for other penalties."""
    if type(change) is not SetElements or not known.by_elements:
        return None
    if not are_plain((change.rows, change.cols, change.values)):
        return None
    model = known.host
    check_range(change.rows, model.alpha.shape[0], "rows", "row")
    check_range(change.cols, model.w.shape[0], "cols", "column")
    return arranged(known, change.rows, change.cols, change.values)


def arranged(known: Ready, rows, cols, new) -> Scattered | None:
    """Elements of the data by their rows and columns; None if one is named twice."""
    model = known.host
    assert model.data is not None
    n, d, matrix = model.alpha.shape[0], model.w.shape[0], model.data.matrix
    if rows.size == 1:
        old = [vector.item(k) for k, vectors in zip((rows.item(), cols.item()), known.vectors, strict=True)
               for vector in vectors]  # fmt: skip
        values = np.array([new.astype(matrix.dtype).item(), matrix.at(rows, cols).item(), *old])[:, None]
        return Scattered(np.array([rows.item(), cols.item(), 0, 0], np.int32), values, None, 1, 1)
    rows, cols = rows.astype(np.int64), cols.astype(np.int64)
    key = rows * d + cols
    if not (key[1:] > key[:-1]).all() and repeated(key):
        return None
    (row_slots, row), (col_slots, col) = grouped(rows, n), grouped(cols, d)
    R, Q, E = padded(row_slots.size), padded(col_slots.size), padded(rows.size)
    parts = (R, row_slots, n), (Q, col_slots, d), (E, row, R), (E, col, Q)
    places = np.empty(R + Q + 2 * E, np.int32)
    start = 0
    for size, numbers, past in parts:
        places[start : start + numbers.size], places[start + numbers.size : start + size] = numbers, past
        start += size
    values = np.zeros((2 if known.matrix is None else 1, E))
    values[0, : rows.size] = new.astype(matrix.dtype)  # stored in the data's dtype, as `apply` does
    if known.matrix is None:
        values[1, : rows.size] = matrix.at(rows, cols)
    return Scattered(places, values, known.matrix, R, Q)
