"""`Monitor`: a deployed model on data that keep changing. Is it still certified, or is it time to retrain?"""

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jaxbounds.arguments import as_flag, as_path
from jaxbounds.array import put
from jaxbounds.bounds import Bounds, bound, check_method
from jaxbounds.certificates import Cached, Curvature, Method, Pass
from jaxbounds.changes import set_penalty
from jaxbounds.classes import not_a_model
from jaxbounds.display import shown
from jaxbounds.inputs import Inputs, read
from jaxbounds.kinds import AddColumns, Change, check_change
from jaxbounds.messages import brief
from jaxbounds.model import Model
from jaxbounds.monitoring.committed import Committed
from jaxbounds.monitoring.file import Saved, described, logged, reader_of, restored
from jaxbounds.monitoring.journal import Journal
from jaxbounds.monitoring.present import Plan, Present
from jaxbounds.monitoring.watch import Answer, Push, Watch
from jaxbounds.problem import Problem
from jaxbounds.pytree import in_float64, is_traced
from jaxbounds.solvers.fit import fit
from jaxbounds.storage import UNREADABLE, check_problem, pack, reason, remove_unfinished, unpack, write_atomically
from jaxbounds.wording import pushed, touched

_METHODS = (Cached(), Pass(), Curvature())
_SHARES = (1e-3, 1e-6)  # of the gradient that Newton steps leave, if the first does not answer
_LOG = 1 << 24  # bytes of log that are worth a new snapshot


@shown
class Monitor:
    """Watch a deployed model while its training data change; know after each push whether it is still certified.

    The certificate is about all changes since the deployment together: ||w_new - w||_2 < theta for the coefficients
    that retraining on the present data would give, and (or) the same labels on the rows X_watch. Changes of rows under
    an L2 penalty with one lam and no intercept are committed into the monitor's own memory at the cost of the touched
    rows; all others rebuild that memory in a few passes over the data. The models and bounds in your hands are never
    written to. Rows are numbered for life: those of the model 0 to n-1, added ones by the next numbers, across
    retraining; the number of a removed row never comes back. Columns are numbered as in the present data.

    Args:
        model: from `fit` or `from_sklearn`, with its data. One behind a scaler takes pushes and X_watch in raw units,
            one with names also by name; the scaler stays the fitted one.
        theta: tolerance on ||w_new - w||_2, or None.
        X_watch: (m, d) rows whose labels must stay as the deployed model gives them, or None.
        retrain: True to retrain and deploy as soon as a push is not certified; False to leave that to you (`refit`).
        path: of a file that does not exist yet: the monitor is kept there and, with a log beside it (path + ".log"),
            loses nothing that `push` has acknowledged, whenever the process dies. See `Monitor.load`.
        methods: tried in this order until one answers. `Cached()` costs the touched rows, the others passes over the
            data; after `Pass()` has moved its point towards the present optimum, later pushes are measured from there,
            so that `Cached()` mostly answers again. By default Cached, Pass, and on small data Curvature.

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
            raise TypeError(not_a_model(model))
        if is_traced(model):
            raise TypeError("Monitor runs on the host; build it outside jit, vmap and grad")
        if model.data is None:
            raise ValueError("model was stored without its data, and a monitor needs them; save it with data=True")
        check_method(Cached(), model.problem, set_penalty(model.problem.penalty))
        watch = Watch.of(model, theta, X_watch)
        self._set_up(model, watch, Present.of(model), methods, model.inputs)
        self._retrain, self._number = as_flag(retrain, "retrain"), 0
        self._trail: list[Any] = []
        self._identity = secrets.token_hex(16)
        if path is not None:
            self._start_log(as_path(path))

    def _set_up(
        self, model: Model, watch: Watch, present: Present, methods: Sequence[Method] | None, inputs: Inputs | None
    ) -> None:
        self._lock, self._path, self._journal = threading.RLock(), None, None
        if not isinstance(methods, Sequence | None) or isinstance(methods, str | bytes):
            raise TypeError(f"methods must be a sequence of methods, as (Cached(), Pass()), got {brief(methods)}")
        self._methods = _METHODS if methods is None else tuple(methods)
        for k, method in enumerate(self._methods):
            check_method(method, name=f"methods[{k}]")
        if not self._methods:
            raise ValueError("methods is empty; give at least Cached()")
        self._model, self._watch, self._present, self.inputs = model, watch, present, inputs

    @property
    def model(self) -> Model:
        """The deployed model (without its data after `load`)."""
        return self._model

    @property
    def rows(self) -> np.ndarray:
        """(n,) lifetime numbers of the present rows, in the order of the present data."""
        with self._lock:
            return self._present.rows

    @property
    def data(self) -> tuple[Any, np.ndarray, np.ndarray]:
        """(X, y, sample_weight) now, copies; X as the model has it, after a pipeline's scaler."""
        with self._lock:
            table = self._present.table()
            return table.X.copy(), table.target.copy(), table.weight.copy()

    @property
    def problem(self) -> Problem:
        """The problem that retraining would solve now."""
        return put(self._present.engine.problem)

    @property
    def trail(self) -> tuple[dict[str, Any], ...]:
        """One record for each push and each deployment, in order; it is kept in the file and the log too."""
        return tuple(self._trail)

    def bounds(self, method: Method | None = None) -> Bounds:
        """`Bounds` on the model that retraining on the present data would give, in the order of `rows`; O(entries)."""
        with self._lock:
            model = replace(self._present.table().model, inputs=self.inputs)
            covered = pushed(self._trail)
        return replace(bound(model, set_penalty(model.problem.penalty), method), touched=covered)

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
            OSError: the log could not be written; nothing has happened then. With retrain=True also if the new model
                could not be written: the push is then in the log, and the new model deployed in this process only.
        """
        start = time.perf_counter()
        with self._lock:
            change = self._read(change)
            plan = self._plan(change)
            if self._journal is not None:
                self._journal.append(*logged(change, self._number + 1))
            self._commit(plan)
            said = self._say(start, plan.added, change)
            self._log_answer(said)
            self._trail.append(said)
            if self._retrain and said["answer"] is not True:
                said["retrained"] = True
                self.refit()
            elif self._journal is not None and self._journal.size > _LOG:
                with contextlib.suppress(OSError):  # the log holds everything, and goes on
                    self._snapshot()
            return Push.of(said)

    def _read(self, change: Any) -> Change:
        """The change in the numbers and units of the present data, which is what is planned and logged."""
        check_change(change)
        if is_traced(change):
            raise TypeError("push runs on the host; call it outside jit, vmap and grad")
        return put(read(self, change, self._present.at))

    def _plan(self, change: Change) -> Plan:
        if self._watch.X is not None and any(isinstance(part, AddColumns) for part in change.parts()):
            raise ValueError("add_columns: X_watch has no values for new columns; start another monitor after it")
        check_method(Cached(), self._present.engine.problem, change)  # else no method would answer afterwards
        return self._present.plan(change)

    def _commit(self, plan: Plan) -> None:
        kept_columns = self._present.commit(plan)
        self._number += 1
        if kept_columns is not None:
            self._watch = self._watch.without(kept_columns)
            if self.inputs is not None:
                self.inputs = put(self.inputs.kept(np.flatnonzero(kept_columns)))

    def _say(self, start: float, added: int, change: Change) -> dict[str, Any]:
        """The record of the push of a change that was just committed."""
        answer, method = self._answer()
        following = self._present.following
        return {
            "op": "push", "answer": answer.answer, "method": method, "lower": answer.lower, "upper": answer.upper,
            "open": answer.open, "broken": answer.broken, "rows": [following - added, following],
            "number": self._number, "time": time.time(), "seconds": time.perf_counter() - start, "retrained": False,
            "touched": touched(change)[:-1].tolist(),
        }  # fmt: skip

    def _log_answer(self, said: dict[str, Any]) -> None:
        if self._journal is not None:
            with contextlib.suppress(OSError):  # the change is in the log, and `load` asks again
                self._journal.append({"said": said}, {})

    def _answer(self) -> tuple[Answer, str]:
        """Climb the methods until one answers."""
        present, watch, rest = self._present, self._watch, self._methods
        answer, name = None, "Cached"
        if isinstance(present.engine, Committed) and isinstance(rest[0], Cached):
            answer, rest = watch.by_disc(present.engine, present.gone_sq), rest[1:]
            smooth = present.engine.scaled.loss.smoothness is not None
            if answer.answer is None and rest and isinstance(rest[0], Pass) and smooth:
                name, rest = "Pass", rest[1:]
                for engine in present.approach(_SHARES):
                    answer = answer.and_also(watch.by_disc(engine, present.gone_sq), watch)
                    if answer.answer is not None:
                        break
            if answer.answer is not None or not rest:
                return answer, name
        return watch.climb(present.table().model, rest, present.gone_sq, answer, name)

    @in_float64
    def refit(self, **options: Any) -> Model:
        """Retrain on the present data and deploy the result.

        Args:
            options: those of `fit`; it starts from the point closest to the optimum that the monitor knows.

        Returns:
            Model of the present data, in the order of `rows`.
        """
        with self._lock:
            table, numbers = self._present.table(), self._present.rows
            options.setdefault("warm_start", table.w if table.trial is None else table.trial)
            problem = put(table.problem)
            model = fit(problem, table.X, table.target, sample_weight=table.sample_weight, **options)
            self._model = replace(model, inputs=self.inputs)
            self._watch = self._watch.deployed(model)
            w, alpha = np.array(model.w), np.array(model.alpha)
            deployed = replace(table, problem=problem, w=w, alpha=alpha, gone_sq=0.0, trial=None)
            self._present.place(deployed, numbers)
            self._trail.append({"op": "refit", "number": self._number, "time": time.time(), "gap": float(model.gap)})
            if self._journal is not None:
                self._snapshot()
            return self._model

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the monitor to a sealed file, whole or not at all: data, deployed model, row numbers and trail.

        To its own path it writes a new snapshot there; elsewhere a copy without a log.

        Raises:
            OSError: the file cannot be written; an old one is then still there.
        """
        path = as_path(path)
        with self._lock:
            if self._path is not None and os.path.realpath(path) == os.path.realpath(self._path):
                self._snapshot()
            else:
                self._write(path, logged=False)

    def _write(self, path: str | os.PathLike[str], logged: bool) -> None:
        present = self._present
        saved = Saved(
            self._model, present.table(), present.rows, self._watch, self.inputs, present.following, self._number,
            self._retrain, self._identity, logged, self._trail,
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
        path = as_path(path)
        with open(path, "rb") as file:
            try:
                saved = restored(*unpack(file, "monitor"), problem)
            except UNREADABLE as error:
                raise ValueError(f"path: {path} {reason(error)}") from error
        monitor = cls.__new__(cls)
        present = Present(saved.table, saved.numbers, saved.next)
        monitor._set_up(saved.model, saved.watch, present, methods, saved.inputs)
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
        last: Any = None
        for content, arrays in records:
            if "said" in content:
                if content["said"]["number"] == self._number > self._answered():
                    self._trail.append(content["said"])
                continue
            if content["number"] <= self._number:
                continue  # the snapshot came later
            if content["number"] != self._number + 1:
                raise ValueError(f"path: the log {self._journal.path} misses push {self._number + 1}")
            change = reader_of(content, arrays, self._present.engine.w.shape[0])
            plan = self._plan(change)
            last = plan.added, change
            self._commit(plan)
        self._journal.records = self._journal.records[:1]
        if self._number > self._answered():
            said = self._say(time.perf_counter(), *last)
            self._log_answer(said)
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


