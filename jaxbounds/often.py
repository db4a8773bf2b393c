"""What is asked of one model again and again: its vectors on the host, and compiled programs for frequent questions.

Some hundreds of small NumPy calls answer a question at once, in milliseconds; a compiled program answers in tens of
microseconds, and takes a second or more to make. So the first `OFTEN` questions of a kind and size (fewer of large
ones) are answered by NumPy, and then one compilation serves all models and changes of the same shapes.
"""

import functools
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import fields, replace
from typing import Any

import jax
import numpy as np

from jaxbounds.array import COMPUTE_ONCE, on_host, to_host
from jaxbounds.edit import scalar_l2
from jaxbounds.kinds import Change, SetPenalty
from jaxbounds.matrix import Sparse
from jaxbounds.methods import check_method
from jaxbounds.model import Model

OFTEN = 256  # about as many answers of NumPy as cost a compilation
_LONG = 16  # 2^this numbers of a question take NumPy as long as its calls do
_SHORT = 127  # elements in a batch that take NumPy as long as a single question, about
_PROGRAMS = 64  # kept at a time


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
    def memory(self) -> tuple[Hashable, list]:
        """The form of the model's vectors and numbers, without its data, and these: all float64 numbers in one array.

        What a program takes apart in no time would cost a microsecond an argument.
        """
        single = tuple(leaf.ndim == 0 and leaf.dtype == np.float64 for leaf in self._leaves)
        numbers = np.array([leaf for leaf, alone in zip(self._leaves, single, strict=True) if alone])
        others = [leaf for leaf, alone in zip(self._leaves, single, strict=True) if not alone]
        return (self._structure, single), [jax.device_put(numbers), *others]

    def answer(self, question: Callable, method: Any, asked: Any) -> tuple | None:
        """question(method, model, asked) if it is compiled by now, None if it is not asked often enough yet."""
        if not self.steady:
            return None
        leaves, structure = jax.tree.flatten(asked)
        key = question, jax.tree.structure(method), structure, tuple(leaf.shape for leaf in leaves)
        program = self._programs.get(key)
        if program is None:
            program = self._programs[key] = _program(self.memory[0], tuple(v.shape for v in self.memory[1]), *key)
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


class Program:
    """A question in one compiled program, and how often it was asked."""

    def __init__(self, memory, question: Callable, method, structure):
        self.asked = 0
        form, single = memory

        def run(memory, leaves):
            numbers, rest = iter(memory[0]), iter(memory[1:])
            model = jax.tree.unflatten(form, [next(numbers) if alone else next(rest) for alone in single])
            return question(jax.tree.unflatten(method, ()), model, jax.tree.unflatten(structure, leaves))

        self.run = jax.jit(run, compiler_options=COMPUTE_ONCE)
        self._compiling, self._compiled = threading.Lock(), False

    def __call__(self, memory: list, leaves: list) -> tuple:
        if self._compiled:
            return self.run(memory, leaves)
        with self._compiling:  # one thread compiles for all
            answer = self.run(memory, leaves)
            self._compiled = True
        return answer


@functools.lru_cache(maxsize=_PROGRAMS)
def _program(memory, _shapes, question: Callable, method, structure, _sizes) -> Program:
    return Program(memory, question, method, structure)
