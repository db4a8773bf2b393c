"""Files of models and monitors: sealed .npz archives that hold arrays and a JSON header, and never a pickle.

An archive is an ordinary .npz (readable with np.load) of uncompressed arrays; `header` holds JSON that says how they
make up an object, and the zip comment holds the SHA-256 of everything before it. Only classes named here are built, so
reading executes nothing; a flipped or missing byte anywhere is refused. The seal finds damage, not forgery: load files
only from where you trust the numbers.
"""

import contextlib
import dataclasses
import hashlib
import io
import json
import math
import os
import secrets
import struct
import zipfile
from collections.abc import Callable
from dataclasses import replace
from typing import Any, BinaryIO

import jax
import numpy as np
import scipy.sparse as sp

from jaxbounds import kinds
from jaxbounds.arguments import as_flag, as_path
from jaxbounds.array import put, whole
from jaxbounds.certificates.factor import Factor
from jaxbounds.classes import ClassModel
from jaxbounds.inputs import Inputs
from jaxbounds.interfaces import Loss, Penalty
from jaxbounds.matrix import Dense, Sparse, as_matrix
from jaxbounds.messages import brief, cut
from jaxbounds.model import Columns, Data, Model, Rows, Totals
from jaxbounds.multinomial import MultinomialModel
from jaxbounds.one_vs_rest import OneVsRest
from jaxbounds.problem import Problem
from jaxbounds.pytree import in_float64
from jaxbounds.softmax import Softmax
from jaxbounds.stored import check

VERSION = 1
PROBLEM = "model.problem"  # where a model's problem is among the arrays
# what odd contents lead to, the last two in files that are made to exhaust their reader
UNREADABLE = (
    ValueError, TypeError, LookupError, AttributeError, AssertionError, ArithmeticError, RecursionError, MemoryError,
)  # fmt: skip
_SEAL = b"sha256:"
_SEAL_SIZE = len(_SEAL) + 64
_PARTS = (Model, MultinomialModel, Problem, Softmax, Data, Rows, Columns, Totals, Factor, Dense, Inputs)
_BLOCK = 1 << 20


def _classes() -> dict[str, type]:
    """Everything that a file may hold: the library's own classes, users' functions aside."""
    changes = [c for c in vars(kinds).values() if isinstance(c, type) and issubclass(c, kinds.Change)]
    functions = [*Loss.__subclasses__(), *Penalty.__subclasses__()]
    functions = [c for c in functions if c.__module__.startswith("jaxbounds.")]
    found = (*_PARTS, *(c for c in changes if c is not kinds.Change), *functions)
    return {c.__name__: c for c in found}


def encode(value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    """JSON for an object; its arrays are added to `arrays` under dotted names."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        arrays[name] = np.asarray(value)
        return {"array": name}
    if isinstance(value, tuple):
        return {"tuple": [encode(item, f"{name}.{k}", arrays) for k, item in enumerate(value)]}
    if isinstance(value, Sparse):
        csr = value.to_scipy()
        parts = {key: encode(getattr(csr, key), f"{name}.{key}", arrays) for key in ("data", "indices", "indptr")}
        return {"csr": parts, "shape": list(value.shape)}
    if isinstance(value, Dense):
        value = Dense(value.values)  # on whatever devices the rows were, they come back on one
    cls: Any = type(value)
    if _classes().get(cls.__name__) is cls:
        names = [field.name for field in dataclasses.fields(cls)]
        return {"class": cls.__name__, "fields": {k: encode(getattr(value, k), f"{name}.{k}", arrays) for k in names}}
    if callable(value):
        return {"function": getattr(value, "__name__", type(value).__name__)}
    raise TypeError(f"{name} is a {type(value).__name__}, which cannot be saved; use the losses and penalties of jb")


def has_functions(node: Any) -> bool:
    """Whether users' functions are in a tree: they are named in the file, but never written."""
    if isinstance(node, dict):
        return "function" in node or any(has_functions(item) for item in node.values())
    return isinstance(node, list) and any(has_functions(item) for item in node)


class Reader:
    """Objects from JSON and arrays.

    Args:
        arrays: by name, as read from a file. problem: the user's own, or None.
        most: columns that sparse data may have; by default what the arrays hold, for a model has a number for each.
    """

    def __init__(self, arrays: dict[str, np.ndarray], problem: Problem | None = None, most: int | None = None):
        self.arrays, self.problem, self.used = arrays, problem, set()
        self.most = sum(array.size for array in arrays.values()) if most is None else most

    def decode(self, node: Any) -> Any:
        """The object that `encode` has turned into this node; ValueError for anything else."""
        if node is None or isinstance(node, bool | int | float | str):
            return node
        match node:
            case {"array": str(name)} if len(node) == 1 and name in self.arrays:
                self.used.add(name)
                return self.arrays[name]
            case {"tuple": list(items)} if len(node) == 1:
                return tuple(self.decode(item) for item in items)
            case {"csr": dict(parts), "shape": [int(n), int(d)]} if set(parts) == {"data", "indices", "indptr"}:
                if d > self.most:  # a few bytes could ask for all memory
                    raise ValueError(f"holds sparse data of {d} columns, and no file of this size has so many")
                return _matrix([self.decode(parts[key]) for key in ("data", "indices", "indptr")], (n, d))
            case {"class": "Problem"} if self.problem is not None or has_functions(node):
                return self._given(node)
            case {"class": str(name), "fields": dict(fields)} if name in (known := _classes()):
                wanted = {f.name for f in dataclasses.fields(known[name])}
                later = {"source", "one_way", "own", "class_weights"} & wanted  # earlier files have the defaults
                if set(fields) | later != wanted:
                    odd = sorted(set(fields) ^ wanted)
                    raise ValueError(f"its {name} differs from this version's in {', '.join(odd)}")
                if has_functions(list(fields.values())) and not issubclass(known[name], Model):
                    raise ValueError(f"its {name} holds a user's function, which no file can")
                found = known[name](**{key: self.decode(item) for key, item in fields.items()})
                return Dense(found.values) if isinstance(found, Dense) else found  # how it lay is not part of it
        raise ValueError(f"it holds something unknown to this version: {cut(str(node))}")

    def check_all_used(self) -> None:
        """Raise if there are arrays that nothing has named."""
        if unknown := sorted(set(self.arrays) - self.used):
            raise ValueError(f"it holds unknown arrays: {', '.join(unknown[:5])}")

    def _given(self, node: Any) -> Problem:
        """The user's problem, if it is the one that was saved, as far as names and numbers tell."""
        if self.problem is None:
            raise ValueError("its problem holds functions of yours, which no file can: pass problem=, the same one")
        arrays: dict[str, np.ndarray] = {}
        if encode(self.problem, PROBLEM, arrays) != node:
            raise ValueError(f"problem= is not the one that was saved, which has {', '.join(_named(node))}")
        for name, value in arrays.items():
            self.used.add(name)
            saved = self.arrays.get(name)
            if saved is None or not _same(value, saved):
                raise ValueError(f"problem= is not the one that was saved: its {name} is {brief(value)}, in the file "
                                 f"{brief(saved)}")  # fmt: skip
        return self.problem


def _named(node: Any) -> list[str]:
    """The classes and functions in a tree."""
    if not isinstance(node, dict):
        return [name for item in node for name in _named(item)] if isinstance(node, list) else []
    own = [node[key] for key in ("class", "function") if key in node and node[key] != "Problem"]
    return own + [name for item in node.values() for name in _named(item)]


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _matrix(parts: list, shape: tuple[int, int]) -> Sparse:
    """Sparse data, checked: products trust their indices."""
    csr = sp.csr_array(tuple(parts), shape=shape)
    csr.check_format(full_check=True)
    matrix = as_matrix(csr)
    assert isinstance(matrix, Sparse)
    return matrix


def pack(file: BinaryIO, kind: str, content: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Write a sealed archive into an empty file that can be read back."""
    header = {"format": "jaxbounds", "kind": kind, "version": VERSION, "content": content}
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, array in {"header": text, **arrays}.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    file.seek(-2, os.SEEK_END)
    file.write(struct.pack("<H", _SEAL_SIZE))  # of the comment, the last entry of a zip file
    file.write(_SEAL + _digest(file, file.tell()))


def unpack(file: BinaryIO, kind: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """(content, arrays) of a sealed archive; ValueError, in words that follow "the file ...", for any other bytes."""
    file.seek(0, os.SEEK_END)
    size = file.tell() - _SEAL_SIZE
    file.seek(max(size, 0))
    seal = file.read(_SEAL_SIZE)
    if size < 22 or not seal.startswith(_SEAL):
        raise ValueError("is not a file of jaxbounds, or its end is missing")
    if seal != _SEAL + _digest(file, size):
        raise ValueError("is damaged: its checksum is wrong")
    try:
        arrays = _members(file)
        header = json.loads(arrays.pop("header").tobytes())
        found, version, content = header["kind"], header["version"], header["content"]
    except (*UNREADABLE, OSError, EOFError, RuntimeError, struct.error, zipfile.BadZipFile) as error:
        raise ValueError(f"is not a file of jaxbounds ({error})") from error
    if version != VERSION or set(header) != {"format", "kind", "version", "content"}:
        raise ValueError(f"has format version {version}, and this library reads version {VERSION}: update jaxbounds")
    if found != kind:
        raise ValueError(f"holds a {found}, not a {kind}")
    return content, arrays


def _members(file: BinaryIO) -> dict[str, np.ndarray]:
    arrays = {}
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if sum(member.file_size for member in members) > file.seek(0, os.SEEK_END):
            raise ValueError("its members are larger than the file")
        for member in members:
            if member.compress_type != zipfile.ZIP_STORED or not member.filename.endswith(".npy"):
                raise ValueError(f"unknown member {member.filename}")
            with archive.open(member) as stream:
                arrays[member.filename.removesuffix(".npy")] = _array(stream, member)
    return arrays


def _array(stream: Any, member: zipfile.ZipInfo) -> np.ndarray:
    """The array of a member; memory is taken only for numbers that are there."""
    np.lib.format.read_magic(stream)
    shape, by_column, dtype = np.lib.format.read_array_header_1_0(stream)
    if not dtype.isnative or dtype.kind not in "biuf":
        raise ValueError(f"{member.filename} has dtype {dtype}")
    data = bytearray(stream.read())
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{member.filename} has shape {shape} and {len(data)} bytes")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if by_column else "C")


def _digest(file: BinaryIO, size: int) -> bytes:
    """SHA-256 of the first bytes of a file, which is left there."""
    digest = hashlib.sha256()
    file.seek(0)
    while size > 0:
        block = file.read(min(_BLOCK, size))
        if not block:
            break
        digest.update(block)
        size -= len(block)
    return digest.hexdigest().encode()


def packed(kind: str, content: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
    """A sealed archive as bytes."""
    file = io.BytesIO()
    pack(file, kind, content, arrays)
    return file.getvalue()


def write_atomically(path: str | os.PathLike[str], write: Callable[[BinaryIO], None]) -> None:
    """Write a file that is either whole and on the disk, or not there: an old one stays until the new one is."""
    target = os.path.realpath(as_path(path))
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(6)}.tmp")
    try:
        with open(temporary, "x+b") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    sync_folder(folder)


def remove_unfinished(path: str | os.PathLike[str]) -> None:
    """Remove what processes that were killed in `write_atomically` have left beside a file."""
    folder, name = os.path.split(os.path.realpath(os.fspath(path)))
    for other in os.listdir(folder):
        if other.startswith(f".{name}.") and other.endswith(".tmp"):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(folder, other))


def sync_folder(folder: str) -> None:
    """Make a new name in a folder last (systems that cannot open folders need not)."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def save_model(model: Model | ClassModel, path: str | os.PathLike[str], data: bool = True) -> None:
    """`Model.save`."""
    data = as_flag(data, "data")
    arrays: dict[str, np.ndarray] = {}
    model = whole(model if data else model.without_data())
    if isinstance(model, OneVsRest):
        tree: Any = {"models": _shared(model.models, arrays)}
        for key, value in (("classes", model.classes_), ("class_weights", model.class_weights)):
            tree |= {} if value is None else {key: encode(value, key, arrays)}
    else:
        tree = encode(model, "model", arrays)
    write_atomically(path, lambda file: pack(file, "model", tree, arrays))


def _shared(models: tuple[Model, ...], arrays: dict[str, np.ndarray]) -> list:
    """Trees of models; the problem and the data matrix that they share are in the first alone."""
    first, *others = models
    trees = [encode(first, "model", arrays)]
    for k, model in enumerate(others, 1):
        if equal(model.problem, first.problem):
            model = replace(model, problem=None)
        if model.data is not None and first.data is not None and equal(model.data.matrix, first.data.matrix):
            model = replace(model, data=replace(model.data, matrix=None))
        trees.append(encode(model, f"model{k}", arrays))
        if has_functions(trees[k]):
            raise ValueError(f"models[0] and models[{k}] hold different functions of yours; save them one by one")
    return trees


def equal(a: Any, b: Any) -> bool:
    """Whether two trees agree to the last bit."""
    (first, structure), (second, other) = jax.tree.flatten(a), jax.tree.flatten(b)
    return structure == other and all(
        x is y or _same(np.asarray(x), np.asarray(y)) for x, y in zip(first, second, strict=True)
    )


@in_float64
def load(path: str | os.PathLike[str], problem: Problem | None = None) -> Model:
    """Read a model that `Model.save` wrote.

    Args:
        path: the file, exactly as given to `save`.
        problem: needed if the loss or the penalty is a function of yours, which is not in the file; the same one.

    Returns:
        Model, `OneVsRest` or `MultinomialModel`, equal to the saved one to the last bit, with x64 on and off. How it
        reads rows and changes (scaler, names of columns and labels, from a pipeline) comes back with it.

    Raises:
        ValueError: the file is damaged, truncated, of another kind or version, or needs (another) `problem`.
        TypeError: `problem` is not a problem. OSError: the file cannot be read.

    Example:
        >>> import os, tempfile, numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0))
        >>> model = jb.fit(problem, np.eye(2), np.ones(2))
        >>> path = os.path.join(tempfile.mkdtemp(), "model.npz")
        >>> model.save(path)
        >>> bool((jb.load(path).w == model.w).all())
        True
    """
    check_problem(problem)
    path = as_path(path)
    with open(path, "rb") as file:
        try:
            content, arrays = unpack(file, "model")
            return _read(content, arrays, problem)
        except UNREADABLE as error:
            raise ValueError(f"path: {path} {reason(error)}") from error


def reason(error: Exception) -> str:
    """What is wrong with a file, in words that follow its name."""
    text = str(error)
    return text if text.startswith(("is ", "has ", "holds ")) else f"cannot be read: {text}"


def check_problem(problem: Any) -> None:
    """Raise if it is neither None nor a problem."""
    if problem is not None and not isinstance(problem, Problem):
        raise TypeError(f"problem must be a jb.Problem or None, got {type(problem).__name__}")


def _read(content: Any, arrays: dict[str, np.ndarray], problem: Problem | None) -> Any:
    """The model of a file, with every shape and type checked."""
    reader = Reader(arrays, problem)
    more = "classes", "class_weights"
    if isinstance(content, dict) and set(content) | set(more) == {"models", *more}:
        models = _with_shared([reader.decode(node) for node in content["models"]])
        model = OneVsRest(models, *(reader.decode(content.get(key)) for key in more))
    else:
        model = reader.decode(content)
    check(model)
    reader.check_all_used()
    return put(model)


def _with_shared(models: list) -> tuple[Model, ...]:
    """Models as `_shared` had them."""
    first, filled = models[0], []
    for model in models:
        if model.problem is None:
            model = replace(model, problem=first.problem)
        if model.data is not None and model.data.matrix is None:
            model = replace(model, data=replace(model.data, matrix=first.data.matrix))
        filled.append(model)
    return tuple(filled)
