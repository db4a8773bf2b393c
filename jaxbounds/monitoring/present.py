"""The data of a monitor as they are now: who is who among the rows, and the memory that the changes move."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jaxbounds.array import to_host
from jaxbounds.host import HostMatrix
from jaxbounds.kinds import AddColumns, AddRows, Change, Combined, RemoveColumns, RemoveRows, SetColumns, SetPenalty
from jaxbounds.matrix import Matrix, as_matrix
from jaxbounds.model import Model
from jaxbounds.monitoring.committed import Committed, committable
from jaxbounds.monitoring.overlay import grown
from jaxbounds.monitoring.rebuilt import Rebuilt, host_data
from jaxbounds.monitoring.shadow import approach

_WHOLE = (SetColumns, AddColumns, RemoveColumns, SetPenalty)  # changes of more than some rows


@dataclass(frozen=True, eq=False)
class Plan:
    """A checked change that is not carried out yet: what `Present.commit` needs."""

    engine: Any
    step: Any
    numbers: np.ndarray
    added: int
    count: int
    alive: int


class Present:
    """Rows with lifetime numbers, in `Committed` where that can be (slots, dead ones too), else in `Rebuilt`.

    Args:
        table: the data in compact numbers. numbers: (n,) their lifetime numbers, increasing. following: the number that
            the next new row gets. matrix: the data in the library's own layout, if it is at hand.
    """

    def __init__(self, table: Rebuilt, numbers: np.ndarray, following: int, matrix: Matrix | None = None):
        self.following = following
        self.place(table, numbers, matrix)

    @staticmethod
    def of(model: Model) -> "Present":
        """A model's own data; nothing of the model is ever written to."""
        data, n = model.data, model.alpha.shape[0]
        assert data is not None
        target, weight, w, alpha = to_host((data.target, data.weight, model.w, model.alpha))
        values = None if committable(model.problem) else host_data(data.matrix)
        return Present(Rebuilt(model.problem, values, target, weight, w, alpha, n), np.arange(n), n, data.matrix)

    def place(self, table: Rebuilt, numbers: np.ndarray, matrix: Matrix | None = None) -> None:
        """Take these data as the present ones, and compute their memory: O(entries)."""
        self.count, self.gone_sq, self.alive = table.count, table.gone_sq, table.target.shape[0]
        self.numbers = np.asarray(numbers, np.int64)
        self.engine: Any = table
        if committable(table.problem):
            trial = table.w if table.trial is None else table.trial
            matrix = as_matrix(table.X) if matrix is None else matrix
            self.engine = Committed(
                table.problem, matrix, table.target, table.weight, table.w, trial, table.alpha, table.count
            )

    def there(self) -> np.ndarray:
        """(slots,) False for rows that were removed."""
        engine = self.engine
        if isinstance(engine, Rebuilt):
            return np.ones(self.alive, bool)
        return engine.rows["weight"][: engine.size] > 0

    @property
    def rows(self) -> np.ndarray:
        """(n,) lifetime numbers."""
        there = self.there()
        return self.numbers[: there.shape[0]][there]

    def at(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Targets and weights of rows by their lifetime numbers; anything for those that are not there."""
        table, numbers = self.table(), self.rows
        slots = np.minimum(np.searchsorted(numbers, np.asarray(rows)), numbers.shape[0] - 1)
        return table.target[slots], table.weight[slots]

    def table(self) -> Rebuilt:
        """The data in compact numbers, in the order of `rows`."""
        engine = self.engine
        if isinstance(engine, Rebuilt):
            return engine
        slots = np.flatnonzero(self.there())
        target, weight, alpha = (engine.rows[name][slots] for name in ("target", "weight", "alpha"))
        w = engine.deployed.astype(engine.overlay.dtype)
        return Rebuilt(
            engine.problem, engine.overlay.take(slots), target, weight, w, alpha, self.count, self.gone_sq, engine.w
        )

    def plan(self, change: Change) -> Plan:
        """Check a change, which names rows by their lifetime numbers, and find what it writes."""
        parts = change.parts()
        engine, numbers = self.engine, self.numbers
        if isinstance(engine, Committed) and any(isinstance(part, _WHOLE) for part in parts):
            engine, numbers = self.table(), self.rows
        size, weight = (engine.size, engine.rows["weight"]) if isinstance(engine, Committed) else (self.alive, None)
        parts = tuple(self._in_slots(part, numbers[:size], weight) for part in parts)
        left = [part for part in parts if isinstance(part, RemoveRows)]
        added = sum(part.matrix.shape[0] for part in parts if isinstance(part, AddRows))
        alive = self.alive + added - sum(part.rows.shape[0] for part in left)
        count = self.count + added - sum(part.rows.shape[0] for part in left if not part.keep_n)
        if alive < 1:
            raise ValueError("remove_rows leaves no row at all; keep at least one")
        now = parts[0] if len(parts) == 1 else Combined(parts)
        step = engine.plan(now, count) if isinstance(engine, Committed) else engine.after(now, count)
        return Plan(engine, step, numbers, added, count, alive)

    def _in_slots(self, part: Any, numbers: np.ndarray, weight: np.ndarray | None) -> Change:
        """A part of a change with positions among `numbers` in place of lifetime numbers; dead rows have weight 0."""
        if not hasattr(part, "rows"):
            return part
        rows = np.asarray(part.rows).astype(np.int64)
        slots = np.minimum(np.searchsorted(numbers, rows), numbers.shape[0] - 1)
        found = numbers[slots] == rows
        if weight is not None:
            found &= weight[slots] > 0
        if not found.all():
            k = int(np.argmin(found))
            known = 0 <= rows[k] < self.following
            why = "was removed by an earlier push" if known else f"does not exist; rows are 0 to {self.following - 1}"
            raise ValueError(f"rows[{k}] = {rows[k]} {why}; `rows` of the monitor lists those that are there")
        return replace(part, rows=slots.astype(np.int32))

    def commit(self, plan: Plan) -> np.ndarray | None:
        """Carry a plan out; which columns stay, None for all."""
        engine = plan.engine
        fresh = self.following + np.arange(plan.added)
        self.following += plan.added
        if isinstance(engine, Rebuilt):
            table, kept_rows, kept_columns = plan.step
            self.place(table, np.concatenate([plan.numbers[kept_rows], fresh]))
            return kept_columns
        size = engine.size
        engine.commit(plan.step)
        self.numbers = grown(plan.numbers, engine.size)
        self.numbers[size : engine.size] = fresh
        self.count, self.alive = plan.count, plan.alive
        if engine.drifted():
            engine.recompute()
        if engine.size > 2 * plan.alive + 1024 or engine.overflowed():
            self.place(self.table(), self.rows)
        return None

    def approach(self, shares: tuple[float, ...]) -> Any:
        """Measure from points ever closer to the present optimum, one for each share of the gradient that is left.

        The memory is computed anew each time: no rounding is left of earlier commits.
        """
        table, rows, engine = self.table(), self.rows, self.engine
        matrix, trial = as_matrix(table.X), engine.w
        X = HostMatrix(table.X.astype(np.float64))  # once: a product with float32 data would cast them each time
        for share in shares:
            loss, lam = engine.scaled.loss, engine.lam_now(self.count)
            trial = approach(loss, X, table.target, table.weight, lam, trial, share)
            self.place(replace(table, trial=trial), rows, matrix)
            yield self.engine
