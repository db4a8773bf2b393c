"""What models of several classes share: class numbers as targets, labels from intervals, and who answers `bound`."""

import abc
import dataclasses
from typing import Any

import numpy as np
from jax import lax

from jaxbounds.arguments import as_array, is_real
from jaxbounds.array import uses_jax, xp
from jaxbounds.kinds import Change, Combined, check_change
from jaxbounds.messages import first_bad
from jaxbounds.own_labels import Labelled, codes_of, remedy
from jaxbounds.problem import Problem, as_vector
from jaxbounds.pytree import is_traced


class ClassModel(Labelled):
    """A model with one vector of coefficients for each class; `bound` and `refit` hand their work to it."""

    classes: Any  # K
    undecided = -1

    def _codes(self):
        return codes_of(tuple(range(self.classes)) if self.classes_ is None else self.classes_, True)

    @abc.abstractmethod
    def bound(self, change: Change, method: Any = None) -> Any:
        """What `jb.bound` returns for this model."""

    @abc.abstractmethod
    def refit(self, change: Change, **options) -> Any:
        """What `jb.refit` returns for this model."""

    @abc.abstractmethod
    def without_data(self) -> Any:
        """The model without its data matrix."""

    def save(self, path, data: bool = True) -> None:
        """See `Model.save`; `jb.load` reads it back."""
        from jaxbounds.storage import save_model  # it needs every class that a model is made of

        save_model(self, path, data)


def not_a_model(model: Any) -> str:
    """What is wrong with an argument that should be a `Model`, and what to pass instead."""
    kind = type(model)
    said = f"model must come from fit, got {kind.__name__}"
    if isinstance(model, ClassModel):
        return f"{said}: this takes two classes or regression; ask jb.bound(model, change){or_one_class(model)}"
    if isinstance(model, Change):
        return f"{said}; the model comes first, then the change, as in jb.bound(model, change)"
    if kind.__module__ == "jaxbounds.sklearn":
        return f"{said}; ask estimator.what_if(change), or pass jb.from_sklearn(estimator, X, y)"
    if hasattr(model, "get_params") or kind.__module__.startswith("sklearn."):
        return f"{said}; pass jb.from_sklearn(estimator, X, y), with the X and y that it was fitted on"
    if isinstance(model, Problem):
        return f"{said}; pass jb.fit(problem, X, y)"
    return said


def or_one_class(model: "ClassModel") -> str:
    """The remedy that a model of several classes has where one of two is asked for."""
    return ", or one class against the rest, model.models[k]" if hasattr(model, "models") else ""


def as_classes(
    y: Any, n: int, classes: int | None = None, name: str = "y", more: str = "", any_number: bool = False
) -> Any:
    """Checked class numbers as float64, or `any_number` that is whole; `classes` is how many there are, None for any.

    `more` is a remedy.
    """
    if not is_traced(y):
        dtype = as_array(y, name).dtype
        if dtype.kind == "b" or not is_real(dtype):
            raise TypeError(
                f"{name} must hold class numbers 0, 1, ..., got dtype {dtype}; convert labels with names, "
                f"{name} = np.unique(labels, return_inverse=True)"
            )
    y = as_vector(y, n, name)
    if not is_traced(y):
        array = np.asarray(y)
        bad = ((array < 0) & (not any_number)) | (array != np.floor(array))
        first_bad(bad, array, name, "is not a class", f"number classes from 0{more}")
        if classes is not None:
            what = f"is not one of the {classes} classes 0, ..., {classes - 1}"
            first_bad(array >= classes, array, name, what, f"correct it, or train with more classes{more}")
    return y


def is_class(target: Any, classes: int) -> Any:
    """Where a target is a class number: what tracers are held to."""
    return (target >= 0) & (target < classes) & (target == xp.floor(target))


def each_target(change: Change, fn: Any) -> Change:
    """The change with fn applied to the new targets of each part."""
    if isinstance(change, Combined):
        return Combined(tuple(each_target(part, fn) for part in change.changes))
    target = getattr(change, "target", None)
    return change if target is None else dataclasses.replace(change, target=fn(target))  # type: ignore[reportCallIssue]


def check_targets(change: Change, model: Any) -> None:
    """Raise on the first new target that is no class; tracers are not looked at."""
    known = model.classes_

    def check(target):
        if is_traced(target):
            return target
        return as_classes(target, np.shape(target)[0], model.classes, "y_new", remedy(known))

    check_change(change)
    each_target(change, check)


def argmax(x: Any) -> Any:
    """The first column with the largest entry of each row, int32: jax's own needs int64 to be on when it runs.

    A loop, not where x equals its maximum: a compiler may compute x twice there, and round it in two ways.
    """
    if not uses_jax((x,)):
        return np.argmax(x, axis=1).astype(np.int32)

    def better(k, state):
        most, first = state
        column = lax.dynamic_index_in_dim(x, k, 1, keepdims=False)
        above = column > most
        return xp.where(above, column, most), xp.where(above, k.astype(np.int32), first)

    return lax.fori_loop(1, x.shape[1], better, (x[:, 0], xp.zeros_like(x[:, 0], dtype=np.int32)))[1]


def class_labels(lower: Any, upper: Any) -> Any:
    """(m,) int32 from (m, K) ends: the class whose lower end is above all other upper ends, -1 if there is none."""
    first = argmax(upper)[:, None] == np.arange(np.shape(upper)[1], dtype=np.int32)[None, :]
    top, second = xp.max(upper, axis=1), xp.max(xp.where(first, -xp.inf, upper), axis=1)
    wins = lower > xp.where(first, second[:, None], top[:, None])  # never with a NaN
    return xp.where(xp.any(wins, axis=1), argmax(xp.where(wins, 1.0, 0.0)), -1).astype(xp.int32)
