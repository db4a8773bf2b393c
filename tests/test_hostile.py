"""Each argument of each public callable takes whatever is thrown at it as it takes the plain form, or refuses it.

`hostile.py` holds the values, `hostile_calls.py` and `hostile_rest.py` the table of callables; a new public name that
is not in the table fails `test_nothing_public_is_missing`.
"""

import inspect
import re
import zlib
from typing import Any

import jax
import numpy as np
import pytest
from hostile import REFUSED
from hostile_calls import Entry
from hostile_rest import TABLE

import jaxbounds as jb
from jaxbounds import plots, sklearn

THEIRS = OverflowError, UserWarning, RuntimeWarning  # what scikit-learn lets through
PIECES = {"problem": ("loss", "penalty", "scale", "intercept")}  # the arguments of an argument may be named instead
FEW = ("strided",)  # the form that compiles no other solver
REMEDY = r"must|;|: |use |pass |choose|expected|at least|need|lack|instead"


def told(result: Any) -> list[np.ndarray]:
    """The numbers of a result."""
    if isinstance(result, jb.Bounds):
        result = [result.gap, result.radius, result.w(), result.alpha(), result.status]
    elif isinstance(result, jb.EachBounds):
        result = [result.gap, result.radius, result.distance, result.status]
    return [np.asarray(leaf) for leaf in jax.tree.leaves(result)]


def alike(got: list[np.ndarray], want: list[np.ndarray], rtol: float) -> bool:
    """Equal shapes and nearly equal numbers."""
    pairs = list(zip(got, want, strict=False))
    return len(got) == len(want) and all(a.shape == b.shape for a, b in pairs) and all(
        np.allclose(a.astype(float), b.astype(float), rtol, 1e-9, equal_nan=True) if a.dtype.kind in "biuf" else True
        for a, b in pairs)  # fmt: skip


def fault(entry: Entry, plain: dict, name: str, label: str, hostile: Any, stands: Any, known: dict) -> str | None:
    """What is wrong with the way in which a callable takes a hostile value."""
    try:
        got = told(entry.call(**plain | {name: hostile}))
    except (ValueError, TypeError) as error:
        names = (*plain, "data") if label.startswith(("a row too", "one too")) else (name, *PIECES.get(name, ()))
        said = str(error)
        if entry.theirs:
            return None
        if not any(re.search(rf"\b{one}\b", said) for one in names):
            return f"not named: {type(error).__name__}: {said}"
        return None if re.search(REMEDY, said) else f"no remedy: {said}"
    except OSError as error:
        named = name in ("path", "checkpoint", "source") and re.search("_hostile|abc|no such file", str(error))
        return None if named else f"{type(error).__name__}: {error}"
    except Exception as error:  # warnings are errors here too
        return None if entry.theirs and isinstance(error, THEIRS) else f"{type(error).__name__}: {error}"
    if stands is REFUSED:
        return None if entry.theirs and "text" in label else "taken"  # scikit-learn reads numbers in words
    key = zlib.crc32(repr(stands).encode())
    if key not in known:
        known[key] = told(entry.call(**plain | {name: stands}))
    return None if alike(got, known[key], entry.rtol) else f"not what {stands!r} gives"


def faults(name: str, few: bool) -> list[str]:
    """All of an entry; `few`: a tenth of the forms that have a plain one, others for each callable."""
    entry = TABLE[name]
    plain = {argument: value for argument, (value, _) in entry.args.items()}
    found, count = [], zlib.crc32(name.encode())
    entry.call(**plain)
    for argument, (value, kind) in entry.args.items():
        known: dict = {}
        for label, hostile, stands in kind(value):
            count += stands is not REFUSED
            if stands is not REFUSED and (label not in FEW if entry.trains and few else few and count % 10):
                continue
            said = fault(entry, plain, argument, label, hostile, stands, known)
            if said is not None:
                found.append(f"{name}({argument}={label}): {said[:200]}")
    return found


@pytest.mark.parametrize("name", TABLE)
def test_hostile_values_work_or_are_refused_by_name(name):
    found = faults(name, few=True)
    assert not found, "\n".join(found)


@pytest.mark.full
@pytest.mark.parametrize("name", TABLE)
def test_every_form_of_a_value_gives_what_the_plain_one_gives(name):
    found = faults(name, few=False)
    assert not found, "\n".join(found)


# ---------------------------------------------------------------- nothing is forgotten

MADE_HERE = {  # results, which users read and never make, and what only the library's own parts call
    "Attack", "BestPenalty", "Bounds", "ChangeBatch", "CrossValidation", "Decision", "EachBounds", "FitWarning",
    "Influence", "LabelErrors", "LeaveOneOut", "Model", "MultinomialBounds", "MultinomialModel", "OneVsRest",
    "OneVsRestBounds", "Path", "PenaltySweep", "Push", "RowRanks", "WorstCase", "Interval", "Status", "Cached",
    "Curvature", "Partial", "SelfConcordant", "losses.Loss", "penalties.Penalty", "solvers.Solution", "solvers.Task",
    "solvers.default_solver", "certificates.Ball", "certificates.Method", "certificates.Region", "RowBlocks.at",
    "RowBlocks.columns", "RowBlocks.map", "RowBlocks.matmat", "RowBlocks.matvec", "RowBlocks.normal",
    "RowBlocks.product", "RowBlocks.rmatvec", "RowBlocks.rows", "RowBlocks.take", "RowBlocks.with_rows",
}  # fmt: skip
INNER = {  # methods by which the library's parts talk to each other; users get them checked by `fit` and `bound`
    "certify", "check", "edits", "missing", "applies", "ask", "init", "step", "finish", "run", "solve", "balanced",
    "objective", "unit", "rows_like", "changes", "of", "set_fit_request", "set_score_request", "get_metadata_routing",
    "get_params", "set_params", "score",
}  # fmt: skip


def public() -> dict[str, Any]:
    """Every public callable by the name it has in the table."""
    found: dict[str, Any] = {}
    modules = {"": jb, "losses.": jb.losses, "penalties.": jb.penalties, "solvers.": jb.solvers,
               "testing.": jb.testing, "certificates.": jb.certificates, "plots.": plots}  # fmt: skip
    for prefix, module in [*modules.items(), ("", sklearn)]:
        own = [n for n, o in vars(module).items() if getattr(o, "__module__", "") == module.__name__ and n[0] != "_"]
        for name in getattr(module, "__all__", own):
            thing = getattr(module, name)
            if inspect.ismodule(thing) or (prefix and thing in found.values()):
                continue
            found[prefix + name] = thing
            if inspect.isclass(thing) and not prefix:
                methods = inspect.getmembers(thing, lambda m: inspect.isfunction(m) or inspect.ismethod(m))
                inner = [item for item in methods if item[0][0] != "_" and item[0] not in INNER]
                found |= {f"{name}.{key}": method for key, method in inner if _arguments(method)}
    return found


def _arguments(thing: Any) -> list[str]:
    """The names of what users hand over."""
    try:
        parameters = inspect.signature(thing).parameters
    except (TypeError, ValueError):
        return []
    return [name for name in parameters if name not in ("self", "cls")]


def test_nothing_public_is_missing():
    missing = []
    for name, thing in public().items():
        if name in MADE_HERE:
            continue
        entries = [entry for key, entry in TABLE.items() if key == name or key.startswith(f"{name}, ")]
        if not entries:
            missing.append(name)
            continue
        seen = {argument for entry in entries for argument in (*entry.args, *entry.others)}
        missing += [f"{name}({argument}=)" for argument in _arguments(thing) if argument not in seen]
    assert not missing, "no entry in tests/hostile_calls.py for: " + ", ".join(missing)
    assert set(MADE_HERE) <= set(public())
