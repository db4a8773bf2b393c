"""What is asked of one model again and again: its vectors on the host, and compiled programs for frequent questions.

Some hundreds of small NumPy calls answer a question at once, in milliseconds; a compiled program answers in tens of
microseconds, and takes a second or more to make. So the first `OFTEN` questions of a kind and size (fewer of large
ones) are answered by NumPy, and then one compilation serves all models and changes of the same shapes.
"""

import functools
import math
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import fields, replace
from typing import Any

import jax
import numpy as np

from jaxbounds.array import COMPUTE_ONCE, hold, on_host, to_host
from jaxbounds.edit import scalar_l2
from jaxbounds.kinds import Change, SetPenalty
from jaxbounds.matrix import Sparse
from jaxbounds.methods import check_method
from jaxbounds.model import Model
from jaxbounds.recalled import vectors

OFTEN = 256  # about as many answers of NumPy as cost a compilation
_LONG = 16  # 2^this numbers of a question take NumPy as long as its calls do
_SHORT = 127  # elements in a batch that take NumPy as long as a single question, about
_PROGRAMS = 64  # kept at a time
_HOST = np.ndarray, np.generic
_JOINED = 1 << 16  # numbers that are copied in microseconds
_FEW = 1 << 12  # numbers that are converted in less time than another argument takes
_EXACT = "d?i"  # dtypes that float64 holds
# sums stay in the thread that computes their terms: handing them to others costs more than they do
_OPTIONS = {key: f"{value},dot-library-rewriter" for key, value in COMPUTE_ONCE.items()}


class Ready:
    """A model on the host, made ready for many questions.

    Attributes:
        host: the model with NumPy leaves. matrix: the data as they are if they are sparse.
        steady: whether nobody can write to it.
    """

    def __init__(self, model: Model):
        self.host = to_host(model)
        bare = replace(model, data=None, factor=None, inputs=None, source=None)
        self._leaves, self._structure = jax.tree.flatten(bare)
        sparse = model.data is not None and isinstance(model.data.matrix, Sparse)
        self.matrix = model.data.matrix if sparse else None  # type: ignore[union-attr]
        self.steady = all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(model))
        self._programs: dict[Hashable, Program] = {}
        self._checked: set[type] = set()
        self._elements: Counter[int] = Counter()

    @functools.cached_property
    def strongly_convex(self) -> bool:
        """Whether the penalty is, so that a ball holds the new optimum."""
        return self.host.problem.penalty.strong_convexity is not None

    @functools.cached_property
    def vectors(self) -> list[list]:
        """What is kept of each row, and of each column."""
        return [jax.tree.leaves(kept) for kept in vectors(self.host)]

    @functools.cached_property
    def by_elements(self) -> bool:
        """Whether changed elements are all that a change of single elements lists (`Scattered`)."""
        scaled = self.host.inputs is not None and self.host.inputs.steps
        return self.host.data is not None and not scaled and scalar_l2(self.host.problem.penalty, 0)

    def often(self, each: int, count: int) -> bool:
        """Whether changes of `each` elements, `count` in all now, are asked in batches often enough for a program."""
        self._elements[each] += count
        return self._elements[each] > OFTEN * _SHORT

    def check(self, method: Any, change: Change) -> None:
        """Raise if the method does not apply; one without parameters is checked once where the penalty stays."""
        again = fields(method) or any(isinstance(part, SetPenalty) for part in change.parts())
        if again or type(method) not in self._checked:
            check_method(method, self.host.problem, change)
            self._checked.add(type(method))

    @functools.cached_property
    def memory(self) -> tuple[tuple, list]:
        """The form of the model's vectors and numbers, without its data, and these end to end unless they are long.

        A model may be new at every question, so that this must not cost O(n).
        """
        leaves = [leaf if leaf.size > _JOINED else to_host(leaf) for leaf in self._leaves]
        kinds = kinds_of(leaves)
        return (self._structure, kinds), jax.device_put(Pack(kinds, apart=True).join(leaves))

    def answer(self, question: Callable, method: Any, asked: Any) -> Any:
        """question(method, model, asked) if it is compiled by now, None if it is not asked often enough yet."""
        if not self.steady:
            return None
        leaves, structure = jax.tree.flatten((method, asked))
        key = question, structure, kinds_of(leaves)
        program = self._programs.get(key)
        if program is None:
            program = self._programs[key] = _program(*self.memory[0], *key)
        program.asked += 1 + (sum(leaf.size for leaf in leaves) >> _LONG)
        return program(self.memory[1], leaves) if program.asked > OFTEN else None


_READY: "weakref.WeakKeyDictionary[Model, Ready]" = weakref.WeakKeyDictionary()


def ready(model: Model) -> Ready | None:
    """The model made ready, kept as long as the model itself; None for tracers and on accelerators."""
    found = _READY.get(model)
    if found is None and on_host(model):
        found = Ready(model)
        if found.steady:
            _READY[model] = found
    return found


def kinds_of(leaves: list) -> tuple:
    """(shape, dtype, whether it is NumPy's) of arrays."""
    return tuple((leaf.shape, leaf.dtype.char, isinstance(leaf, _HOST)) for leaf in leaves)


class Pack:
    """Arrays as a program takes them: NumPy's end to end, few ones in one array of float64, and then those of jax.

    Every argument costs a microsecond or more, and ten formulas one; taking arrays apart costs nothing. Single numbers
    lie `apart` from vectors where not all programs read these, see `jaxbounds.recalled`.
    """

    def __init__(self, kinds: tuple, apart: bool = False):
        self._kinds = kinds
        few = sum(math.prod(shape) for shape, _, host in kinds if host) <= _FEW
        self._few = {k for k, (shape, _, host) in enumerate(kinds) if host and (not shape if apart else few)}
        groups: dict[tuple[str, bool], list[int]] = {}
        for k, (_, dtype, host) in enumerate(kinds):
            if host:
                groups.setdefault(("d" if k in self._few and dtype in _EXACT else dtype, k in self._few), []).append(k)
        self._groups = [(dtype, group) for (dtype, _), group in groups.items()]
        self._alone = [k for k, (_, _, host) in enumerate(kinds) if not host]

    def join(self, leaves: list) -> list:
        """The arrays of a program."""
        joined = [np.concatenate([leaves[k] for k in group], axis=None, dtype=dtype) for dtype, group in self._groups]
        return joined + [leaves[k] for k in self._alone]

    def split(self, arrays: list) -> list:
        """The leaves again, inside a program."""
        leaves, rest = {}, iter(arrays)
        for _, group in self._groups:
            array, start = next(rest), 0
            for k in group:
                shape, dtype, _ = self._kinds[k]
                stop = start + math.prod(shape)
                leaves[k], start = array[start:stop].reshape(shape).astype(dtype), stop
        leaves |= hold({k: leaf for k, leaf in leaves.items() if k in self._few})
        return [leaves[k] if k in leaves else next(rest) for k in range(len(self._kinds))]


class Program:
    """A question in one compiled program, and how often it was asked."""

    def __init__(self, form, memory, question: Callable, structure, asked):
        self.asked = 0
        pack, self._pack = Pack(memory, apart=True), Pack(asked)

        def run(memory, given):
            model = jax.tree.unflatten(form, pack.split(memory))
            method, asked = jax.tree.unflatten(structure, self._pack.split(given))
            return question(method, model, asked)

        self._run = jax.jit(run, compiler_options=_OPTIONS)
        self._compiling, self._compiled = threading.Lock(), False

    def __call__(self, memory: list, leaves: list) -> Any:
        given = self._pack.join(leaves)
        if self._compiled:
            return self._run(memory, given)
        with self._compiling:  # one thread compiles for all
            answer = self._run(memory, given)
            self._compiled = True
        return answer


_program = functools.lru_cache(maxsize=_PROGRAMS)(Program)
