"""`Monitor`: a deployed model on data that keep changing. Is it still certified, or is it time to retrain?"""

import os
import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jaxbounds.array import put
from jaxbounds.bounds import Bounds, bound, check_method
from jaxbounds.certificates import Cached, Curvature, Method, Pass
from jaxbounds.changes import set_penalty
from jaxbounds.committed import Committed, committable
from jaxbounds.host import HostMatrix
from jaxbounds.journal import Journal
from jaxbounds.kinds import AddColumns, Change, Combined, RemoveColumns, SetColumns, SetPenalty
from jaxbounds.lifetimes import in_slots, moves
from jaxbounds.matrix import as_matrix
from jaxbounds.model import Model
from jaxbounds.monitor_file import Saved, described, logged, reader_of, restored
from jaxbounds.overlay import grown
from jaxbounds.problem import Problem
from jaxbounds.pytree import in_float64, is_traced
from jaxbounds.rebuilt import Rebuilt, host_data
from jaxbounds.shadow import approach
from jaxbounds.solvers.fit import fit
from jaxbounds.storage import check_problem, pack, remove_unfinished, unpack, write_atomically
from jaxbounds.watch import Answer, Push, Watch

_METHODS = (Cached(), Pass(), Curvature())
_SHARES = (1e-3, 1e-6)  # of the gradient that Newton steps leave, if the first does not answer
_LOG = 1 << 24  # bytes of log that are worth a new snapshot
_WHOLE = (SetColumns, AddColumns, RemoveColumns, SetPenalty)  # changes of more than some rows


class Monitor:
    """Watch a deployed model while its training data change; know after each push whether it is still certified.

    The certificate is about all changes since the deployment together: ||w_new - w||_2 < theta for the coefficients
    that retraining on the present data would give, and (or) the same labels on the rows X_watch. Changes of rows under
    an L2 penalty with one lam and no intercept are committed into the monitor's own memory at the cost of the touched
    rows; all others rebuild that memory in a few passes over the data. The models and bounds in your hands are never
    written to. Rows are numbered for life: those of the model 0 to n-1, added ones by the next numbers, across
    retraining; the number of a removed row never comes back. Columns are numbered as in the present data.

    Args:
        model: from `fit` or `from_sklearn`, with its data.
        theta: tolerance on ||w_new - w||_2, or None.
        X_watch: (m, d) rows whose labels must stay as the deployed model gives them, or None.
        retrain: True to retrain and deploy as soon as a push is not certified; False to leave that to you (`refit`).
        path: of a file that does not exist yet: the monitor is kept there and, with a log beside it (path + ".log"),
            loses nothing that `push` has acknowledged, whenever the process dies. See `Monitor.load`.
        methods: tried in this order until one answers; `Cached()` costs the touched rows, the others passes over the
            data. By default Cached, Pass, and on small data Curvature.

    Raises:
        TypeError, ValueError: an argument is of no use. FileExistsError: path exists.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0))
        >>> model = jb.fit(problem, np.eye(3), np.ones(3))
        >>> monitor = jb.Monitor(model, theta=0.5)
        >>> monitor.push(jb.add_rows([[1.0, 0.0, 0.0]], [0.9])).certified
        True
        >>> monitor.push(jb.set_targets([3], [9.0])).certified
        False
        >>> monitor.refit().alpha.shape, monitor.rows.tolist()
        ((4,), [0, 1, 2, 3])

    Source: the four-point inequality, with sums that changes update.
    """

    @in_float64
    def __init__(
        self,
        model: Model,
        theta: float | None = None,
        *,
        X_watch: Any = None,
        retrain: bool = False,
        path: str | os.PathLike[str] | None = None,
        methods: Sequence[Method] | None = None,
    ):
        if not isinstance(model, Model):
            raise TypeError(f"model must come from fit, got {type(model).__name__}")
        if is_traced(model):
            raise TypeError("Monitor runs on the host; build it outside jit, vmap and grad")
        if model.data is None:
            raise ValueError("model was stored without its data, and a monitor needs them; save it with data=True")
        watch = Watch.of(model, theta, X_watch)
        data, n = model.data, model.alpha.shape[0]
        table = Rebuilt(
            model.problem, host_data(data.matrix), np.array(data.target), np.array(data.weight), np.array(model.w),
            np.array(model.alpha), n,
        )  # fmt: skip
        self._set_up(model, watch, table, np.arange(n), n, methods)
        self._retrain, self._number = _flag(retrain), 0
        self._trail: list[Any] = []
        self._identity = secrets.token_hex(16)
        if path is not None:
            self._start_log(os.fspath(path))

    def _set_up(self, model: Model, watch: Watch, table: Rebuilt, numbers, following: int, methods) -> None:
        self._lock, self._path, self._journal = threading.RLock(), None, None
        self._methods = _METHODS if methods is None else tuple(methods)
        for method in self._methods:
            check_method(method)
        self._model, self._watch, self._next = model, watch, following
        self._place(table, numbers)

    def _place(self, table: Rebuilt, numbers: np.ndarray, matrix: Any = None) -> None:
        """Take data in compact numbers as the present ones (`matrix`: the same as the library's own layout)."""
        self._count, self._gone_sq = table.count, table.gone_sq
        self._numbers, self._alive = np.asarray(numbers, np.int64), table.target.shape[0]
        self._engine: Any = table
        if committable(table.problem):
            trial = table.w if table.trial is None else table.trial
            matrix = as_matrix(table.X) if matrix is None else matrix
            self._engine = Committed(
                table.problem, matrix, table.target, table.weight, table.w, trial, table.alpha, table.count
            )

    def _table(self) -> tuple[Rebuilt, np.ndarray]:
        """The present data in compact numbers, and the lifetime numbers of their rows."""
        engine = self._engine
        if isinstance(engine, Rebuilt):
            return engine, self._numbers
        slots = np.flatnonzero(engine.rows["weight"][: engine.size] > 0)
        rows = {name: engine.rows[name][slots] for name in ("target", "weight", "alpha")}
        w = engine.deployed.astype(engine.overlay.dtype)
        table = Rebuilt(
            engine.problem, engine.overlay.take(slots), rows["target"], rows["weight"], w, rows["alpha"], self._count,
            self._gone_sq, engine.w,
        )  # fmt: skip
        return table, self._numbers[slots]

    @property
    def model(self) -> Model:
        """The deployed model (without its data after `load`)."""
        return self._model

    @property
    def rows(self) -> np.ndarray:
        """(n,) lifetime numbers of the present rows, in the order of the present data."""
        with self._lock:
            if isinstance(self._engine, Rebuilt):
                return self._numbers.copy()
            return self._numbers[np.flatnonzero(self._engine.rows["weight"][: self._engine.size] > 0)]

    @property
    def data(self) -> tuple[Any, np.ndarray, np.ndarray]:
        """(X, y, sample_weight) now, copies."""
        with self._lock:
            table = self._table()[0]
            return table.X.copy(), table.target.copy(), table.weight.copy()

    @property
    def problem(self) -> Problem:
        """The problem that retraining would solve now."""
        return put(self._engine.problem)

    @property
    def trail(self) -> tuple[dict[str, Any], ...]:
        """One record for each push and each deployment, in order; it is kept in the file and the log too."""
        return tuple(self._trail)

    def bounds(self, method: Method | None = None) -> Bounds:
        """`Bounds` on the model that retraining on the present data would give, in the order of `rows`; O(entries)."""
        with self._lock:
            model = self._table()[0].model
        return bound(model, set_penalty(model.problem.penalty), method)

    @in_float64
    def push(self, change: Change) -> Push:
        """Take a change of the data in, and say whether the deployed model is still certified.

        Args:
            change: any change or `combine`; it names rows by their lifetime numbers, and `set_columns` and
                `add_columns` bring a row for each of `monitor.rows`.

        Returns:
            Push. When it returns, the change is on the disk if the monitor has a path.

        Raises:
            ValueError, TypeError: the change does not fit; nothing has happened then.
            OSError: the log could not be written; nothing has happened then.
        """
        start = time.perf_counter()
        with self._lock:
            plan = self._plan(change)
            number = self._number + 1
            if self._journal is not None:
                self._journal.append(*logged(change, number))
            self._commit(plan)
            said = self._say(start, plan[2])
            if self._journal is not None:
                self._journal.append({"said": said}, {})
            self._trail.append(said)
            if self._retrain and said["answer"] is not True:
                said["retrained"] = True
                self.refit()
            elif self._journal is not None and self._journal.size > _LOG:
                self._snapshot()
            return Push.of(said)

    def _plan(self, change: Any) -> tuple:
        """(engine, what it would write, rows added, lifetime numbers, count, alive): nothing is changed yet."""
        if not isinstance(change, Change):
            raise TypeError(f"change must come from set_rows, remove_rows, ..., combine; got {type(change).__name__}")
        if is_traced(change):
            raise TypeError("push runs on the host; call it outside jit, vmap and grad")
        parts = change.parts()
        whole = any(isinstance(part, _WHOLE) for part in parts)
        engine, numbers = self._engine, self._numbers
        if whole and isinstance(engine, Committed):
            engine, numbers = self._table()
        if self._watch.X is not None and any(isinstance(part, AddColumns) for part in parts):
            raise ValueError("add_columns: X_watch has no values for new columns; start another monitor after it")
        if isinstance(engine, Committed):
            there = engine.rows["weight"][: engine.size] > 0
        else:
            there = np.ones(numbers.shape[0], bool)
        parts = tuple(in_slots(part, numbers[: there.shape[0]], there, self._next) for part in parts)
        added, gone, uncounted = moves(parts)
        alive, count = self._alive + added - gone, self._count + added - gone + uncounted
        if alive < 1:
            raise ValueError("remove_rows leaves no row at all; keep at least one")
        now = parts[0] if len(parts) == 1 else Combined(parts)
        step = engine.plan(now, count) if isinstance(engine, Committed) else engine.after(now, count)
        return engine, step, added, numbers, count, alive

    def _commit(self, plan: tuple) -> None:
        engine, step, added, numbers, count, alive = plan
        fresh = self._next + np.arange(added)
        self._next, self._number = self._next + added, self._number + 1
        if isinstance(engine, Committed):
            size = engine.size
            engine.commit(step)
            self._numbers = grown(numbers, engine.size)
            self._numbers[size : engine.size] = fresh
            self._count, self._alive = count, alive
            if engine.drifted():
                engine.recompute()
            if engine.size > 2 * alive + 1024:
                self._place(*self._table())
        else:
            table, kept_rows, kept_columns = step
            self._watch = self._watch.without(kept_columns)
            self._place(table, np.concatenate([numbers[kept_rows], fresh]))

    def _say(self, start: float, added: int) -> dict[str, Any]:
        """The record of the push that was just committed."""
        answer, method = self._answer()
        return {
            "op": "push", "answer": answer.answer, "method": method, "lower": answer.lower, "upper": answer.upper,
            "open": answer.open, "broken": answer.broken, "rows": [self._next - added, self._next],
            "number": self._number, "time": time.time(), "seconds": time.perf_counter() - start, "retrained": False,
        }  # fmt: skip

    def _answer(self) -> tuple[Answer, str]:
        """Climb the methods until one answers."""
        rest, answer, name = self._methods, None, "Cached"
        if isinstance(self._engine, Committed) and isinstance(rest[0], Cached):
            answer, rest = self._watch.by_disc(self._engine, self._gone_sq), rest[1:]
            if answer.answer is not None or not rest:
                return answer, name
            if isinstance(rest[0], Pass) and self._engine.scaled.loss.smoothness is not None:
                answer, name, rest = self._approach(answer), "Pass", rest[1:]
                if answer.answer is not None or not rest:
                    return answer, name
        return self._watch.climb(self._table()[0].model, rest, self._gone_sq, answer, name)

    def _approach(self, answer: Answer) -> Answer:
        """Measure from a point closer to the present optimum, and go on measuring from it after later pushes.

        The memory is then computed anew: no rounding is left of earlier commits.
        """
        table, numbers = self._table()
        matrix, X, trial = as_matrix(table.X), HostMatrix(table.X), self._engine.w
        for share in _SHARES:
            loss, lam = self._engine.scaled.loss, self._engine.lam_now(self._count)
            trial = approach(loss, X, table.target, table.weight, lam, trial, share)
            self._place(replace(table, trial=trial), numbers, matrix)
            answer = answer.and_also(self._watch.by_disc(self._engine, self._gone_sq), self._watch)
            if answer.answer is not None:
                break
        return answer

    @in_float64
    def refit(self, **options: Any) -> Model:
        """Retrain on the present data and deploy the result.

        Args:
            options: those of `fit`; the warm start is the deployed w.

        Returns:
            Model of the present data, in the order of `rows`.
        """
        with self._lock:
            table, numbers = self._table()
            options.setdefault("warm_start", table.w if table.trial is None else table.trial)
            problem = put(table.problem)
            model = fit(problem, table.X, table.target, sample_weight=table.sample_weight, **options)
            self._model = model
            self._watch = self._watch.deployed(model)
            w, alpha = np.array(model.w), np.array(model.alpha)
            self._place(replace(table, problem=problem, w=w, alpha=alpha, gone_sq=0.0, trial=None), numbers)
            self._trail.append({"op": "refit", "number": self._number, "time": time.time(), "gap": float(model.gap)})
            if self._journal is not None:
                self._snapshot()
            return model

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the monitor to a sealed file, whole or not at all: data, deployed model, row numbers and trail.

        To its own path it writes a new snapshot there; elsewhere a copy without a log.

        Raises:
            OSError: the file cannot be written; an old one is then still there.
        """
        with self._lock:
            if self._path is not None and os.path.realpath(path) == os.path.realpath(self._path):
                self._snapshot()
            else:
                self._write(path, logged=False)

    def _write(self, path: str | os.PathLike[str], logged: bool) -> None:
        table, numbers = self._table()
        saved = Saved(
            self._model, table, numbers, self._watch, self._next, self._number, self._retrain, self._identity, logged,
            self._trail,
        )  # fmt: skip
        content, arrays = described(saved)
        write_atomically(path, lambda file: pack(file, "monitor", content, arrays))

    def _snapshot(self) -> None:
        """Write everything to the monitor's own file, then empty the log: records that both hold are read once."""
        assert self._path is not None and self._journal is not None
        self._write(self._path, logged=True)
        self._journal.restart()

    def _start_log(self, path: str) -> None:
        if os.path.exists(path):
            raise FileExistsError(f"path: {path} exists; open it with Monitor.load, or choose another path")
        journal = Journal(path + ".log", self._identity, fresh=True)
        try:
            self._write(path, logged=True)
        except BaseException:
            journal.close()
            os.unlink(path + ".log")
            raise
        self._path, self._journal = path, journal

    @classmethod
    @in_float64
    def load(
        cls, path: str | os.PathLike[str], problem: Problem | None = None, *, methods: Sequence[Method] | None = None
    ) -> "Monitor":
        """Read a monitor back, with every push that was acknowledged; one that has a log goes on writing it.

        Args:
            path: as given to `Monitor` or `save`. problem: needed if it holds functions of yours. methods: see Monitor.

        Returns:
            Monitor. Its deployed model has no training data of its own; `data` are the present ones.

        Raises:
            ValueError: a file is damaged, of another kind or version, or open in another monitor; the log is missing.
            OSError: a file cannot be read.
        """
        check_problem(problem)
        path = os.fspath(path)
        with open(path, "rb") as file:
            try:
                saved = restored(*unpack(file, "monitor"), problem)
            except (ValueError, TypeError, KeyError, AssertionError) as error:
                raise ValueError(f"path: {path} cannot be read: it {error}") from error
        monitor = cls.__new__(cls)
        monitor._set_up(saved.model, saved.watch, saved.table, saved.numbers, saved.next, methods)
        monitor._number, monitor._trail = saved.number, saved.trail
        monitor._retrain, monitor._identity = saved.retrain, saved.identity
        if saved.logged:
            monitor._path, monitor._journal = path, Journal(path + ".log", saved.identity)
            try:
                remove_unfinished(path)
                monitor._replay()
            except BaseException:
                monitor.close()
                raise
        return monitor

    def _replay(self) -> None:
        """Commit what the log holds beyond the snapshot; a last push whose answer was not written is asked again."""
        assert self._journal is not None
        records: Any = self._journal.records[1:]
        for content, arrays in records:
            if "said" in content:
                if content["said"]["number"] == self._number > self._answered():
                    self._trail.append(content["said"])
                continue
            if content["number"] <= self._number:
                continue  # the snapshot came later
            if content["number"] != self._number + 1:
                raise ValueError(f"path: the log {self._journal.path} misses push {self._number + 1}")
            self._commit(self._plan(reader_of(content, arrays)))
        self._journal.records = self._journal.records[:1]
        if self._number > self._answered():
            said = self._say(time.perf_counter(), 0)
            self._journal.append({"said": said}, {})
            self._trail.append(said)

    def _answered(self) -> int:
        return self._trail[-1]["number"] if self._trail else 0

    def close(self) -> None:
        """Give the log free for another monitor; this one takes no more pushes if it has one."""
        with self._lock:
            if self._journal is not None:
                self._journal.close()

    def __enter__(self) -> "Monitor":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _flag(retrain: Any) -> bool:
    if not isinstance(retrain, bool):
        raise TypeError(f"retrain must be True or False, got {retrain!r}")
    return retrain
