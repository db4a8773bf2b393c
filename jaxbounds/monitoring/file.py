"""What a monitor's file and the records of its log hold."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jaxbounds.arguments import as_flag, as_positive, as_whole
from jaxbounds.array import put
from jaxbounds.class_weights import check_class_weights
from jaxbounds.host import HostMatrix
from jaxbounds.inputs import Inputs
from jaxbounds.kinds import Change
from jaxbounds.matrix import Dense, Sparse, as_matrix
from jaxbounds.model import Model
from jaxbounds.monitoring.rebuilt import Rebuilt, host_data
from jaxbounds.monitoring.watch import Watch
from jaxbounds.own_labels import is_classes
from jaxbounds.penalties import Penalty
from jaxbounds.problem import Problem, as_sample_weight, as_targets, as_vector
from jaxbounds.storage import Reader, encode, has_functions
from jaxbounds.stored import check_model

_ADDED = 1 << 26  # columns that one change may add to a watched model: more take all memory
_TABLE = ("target", "weight", "w", "alpha")


@dataclass(frozen=True, eq=False)
class Saved:
    """A monitor, taken apart."""

    model: Model
    table: Rebuilt
    numbers: np.ndarray
    watch: Watch
    inputs: Inputs | None
    next: int
    number: int
    retrain: bool
    identity: str
    logged: bool
    trail: list


def described(saved: Saved) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """(content, arrays) of a monitor's file."""
    arrays: dict[str, np.ndarray] = {}
    table, watch = saved.table, saved.watch
    content = {
        "model": encode(saved.model.without_data(), "model", arrays),
        "penalty": encode(table.problem.penalty, "penalty", arrays),
        "X": encode(as_matrix(table.X), "X", arrays),
        "table": {name: encode(getattr(table, name), f"table.{name}", arrays) for name in _TABLE},
        "count": table.count,
        "gone_sq": table.gone_sq,
        "numbers": encode(saved.numbers, "numbers", arrays),
        "theta": watch.theta,
        "X_watch": None if watch.X is None else encode(as_matrix(watch.X.values), "X_watch", arrays),
        "labels": encode(watch.labels, "labels", arrays),
        "reach": watch.reach,
        "inputs": encode(saved.inputs, "inputs", arrays),
    }
    if has_functions(content["penalty"]):
        if table.problem.penalty is not saved.model.problem.penalty:
            _same_functions(saved.model.problem.penalty, table.problem.penalty)
        _drop(arrays, "penalty")
        content["penalty"] = None
    for name in ("next", "number", "retrain", "identity", "logged", "trail"):
        content[name] = getattr(saved, name)
    return content, arrays


def _same_functions(old: Penalty, new: Penalty) -> None:
    """A penalty of the user's is only saved as part of the model's problem."""
    before: dict[str, np.ndarray] = {}
    after: dict[str, np.ndarray] = {}
    same = encode(old, "p", before) == encode(new, "p", after) and before.keys() == after.keys()
    if not same or any(not np.array_equal(before[name], after[name]) for name in before):
        raise ValueError("the present penalty holds functions of yours, which no file can; refit first")


def _drop(arrays: dict[str, np.ndarray], prefix: str) -> None:
    for name in [name for name in arrays if name.split(".")[0] == prefix]:
        del arrays[name]


def restored(content: dict[str, Any], arrays: dict[str, np.ndarray], problem: Problem | None) -> Saved:
    """The monitor that `described` has written; ValueError for what it cannot have written."""
    _check_header(content)
    reader = Reader(arrays, problem)
    model = reader.decode(content["model"])
    if not isinstance(model, Model):
        raise ValueError("holds no model")
    check_model(model)
    model = put(model)
    penalty = model.problem.penalty if content["penalty"] is None else put(reader.decode(content["penalty"]))
    matrix = reader.decode(content["X"])
    if not isinstance(penalty, Penalty) or not isinstance(matrix, Dense | Sparse):
        raise ValueError("holds no penalty or no data")
    table: dict[str, Any] = {name: reader.decode(content["table"][name]) for name in _TABLE}
    numbers, following = reader.decode(content["numbers"]), content["next"]
    (n, d), X = matrix.shape, host_data(as_matrix(matrix))
    as_targets(model.problem.loss, table["target"], n)
    as_sample_weight(table["weight"], n)
    as_vector(table["w"], d, "w")
    as_vector(table["alpha"], n, "alpha")
    rising = numbers.shape == (n,) and numbers.dtype == np.int64 and (np.diff(numbers, prepend=-1) > 0).all()
    if not rising or numbers[-1] >= following:
        raise ValueError("holds impossible row numbers")
    inputs = reader.decode(content.get("inputs"))  # files of earlier versions have none
    if inputs is not None:
        if not isinstance(inputs, Inputs):
            raise ValueError("holds no inputs")
        inputs.check(d)
        check_class_weights(inputs.class_weights, 2)
        if not is_classes(inputs.classes, 2):
            raise ValueError("holds inputs whose classes are not two different labels")
    kept = replace(model.problem, penalty=penalty)
    now = Rebuilt(kept, X, count=content["count"], gone_sq=float(content["gone_sq"]), **table)
    watch = Watch(content["theta"], None)
    labels = reader.decode(content["labels"])
    if content["X_watch"] is not None:
        rows = host_data(as_matrix(reader.decode(content["X_watch"])))
        if rows.shape[1] != d or labels.shape != rows.shape[:1] or not np.isin(labels, (-1, 0, 1)).all():
            raise ValueError("holds X_watch of another shape, or no labels")
        watch = Watch(content["theta"], HostMatrix(rows), labels, float(content["reach"]))
    reader.check_all_used()
    return Saved(
        model, now, numbers, watch, put(inputs), following, content["number"], content["retrain"],
        content["identity"], content["logged"], content["trail"],
    )  # fmt: skip


def _check_header(content: Any) -> None:
    """Raise unless the numbers and flags of a monitor are of the kinds that `described` writes."""
    for name, least in (("count", 1), ("next", 1), ("number", 0)):
        as_whole(content[name], name, least, 2**62)
    for name in ("retrain", "logged"):
        as_flag(content[name], name)
    gone, reach, trail = content["gone_sq"], content["reach"], content["trail"]
    if content["theta"] is not None:
        as_positive(content["theta"], "theta")
    if not (isinstance(gone, float | int) and 0 <= gone < np.inf and isinstance(reach, float) and reach >= 0):
        raise ValueError("holds impossible distances")
    if not isinstance(content["identity"], str) or not isinstance(trail, list):
        raise ValueError("holds no identity or no trail")
    for record in trail:
        if record["op"] not in ("push", "refit") or not isinstance(record["number"], int):
            raise ValueError("holds a trail with something else than pushes and refits")


def logged(change: Change, number: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """(content, arrays) of the record of a push."""
    arrays: dict[str, np.ndarray] = {}
    tree = encode(change, "change", arrays)
    if has_functions(tree):
        raise ValueError("set_penalty: a function of yours cannot be logged; use a monitor without path")
    return {"number": number, "change": tree}, arrays


def reader_of(content: dict[str, Any], arrays: dict[str, np.ndarray], d: int) -> Change:
    """The change of a record, made for data of d columns."""
    change = put(Reader(arrays, most=d + _ADDED).decode(content["change"]))
    if not isinstance(change, Change):
        raise ValueError("path: the log holds a record without a change")
    return change
