"""What a model that is read from a file must be: every part of the shape and type that training gives it."""

import dataclasses
from typing import Any

import jax
import numpy as np

from jaxbounds.arguments import as_whole
from jaxbounds.array import put
from jaxbounds.certificates.factor import Factor
from jaxbounds.class_weights import check_class_weights
from jaxbounds.inputs import Inputs
from jaxbounds.matrix import Dense, Sparse
from jaxbounds.model import Columns, Data, Model, Rows, Totals
from jaxbounds.multinomial import MultinomialModel, check_multinomial, metric, objective
from jaxbounds.one_vs_rest import OneVsRest
from jaxbounds.own_labels import is_classes
from jaxbounds.problem import Problem
from jaxbounds.softmax import Softmax


def check(model: Any) -> None:
    """Raise, in words that follow the file's name, unless it is a whole model of one class or several."""
    if isinstance(model, OneVsRest):
        if len(model.models) < 2 or not all(isinstance(one, Model) for one in model.models):
            raise ValueError("it holds no models of two classes or more")
        _check_classes(model.classes_, len(model.models))
        for one in model.models:
            check_model(one)
        if len({(one.alpha.shape, one.w.shape) for one in model.models}) > 1:
            raise ValueError("its models have different shapes")
        check_class_weights(model.class_weights, len(model.models))
    elif isinstance(model, MultinomialModel):
        _check_multinomial(model)
    elif isinstance(model, Model):
        check_model(model)
    else:
        raise ValueError("it holds no model")


def _check_array(value: Any, name: str, shape: tuple, dtypes: tuple = (np.float64,)) -> None:
    if not isinstance(value, np.ndarray) or value.shape != shape or value.dtype not in dtypes:
        raise ValueError(f"its {name} is not an array of shape {shape}")


def check_model(model: Model) -> None:
    """Raise if a part of a model has not the shape or type that `remember` gives it, or if P(w) is not what it says."""
    model.problem.check()
    n, d = np.shape(model.alpha)[0], np.shape(model.w)[0]

    _check_array(model.w, "w", (d,), (np.float32, np.float64))
    for name, shape in (("alpha", (n,)), ("ref", (n,)), ("intercept", ()), ("gap", ()), ("primal", ())):
        _check_array(getattr(model, name), name, shape)
    for name in ("status", "n_steps"):
        _check_array(getattr(model, name), name, (), (np.int32,))
    parts = [("rows", Rows, (n,)), ("columns", Columns, (d,)), ("totals", Totals, ())]
    for part, kind, shape in parts:
        if not isinstance(getattr(model, part), kind):
            raise ValueError(f"its {part} are missing")
        for field in dataclasses.fields(kind):
            _check_array(getattr(getattr(model, part), field.name), f"{part}.{field.name}", shape)
    as_whole(model.row_terms, "row_terms", 0, 2**31)
    _check_penalty(model.problem, d)
    _check_data(model.data, n, d)
    factor = model.factor
    if factor is not None:
        if not isinstance(factor, Factor):
            raise ValueError("its factor is none")
        shapes = {"gram": (d, d), "vectors": (d, d), "h": (n,), "lengths": (n,), "values": (d,), "v": (d,)}
        shapes["v_pad"] = (d,)
        for field in dataclasses.fields(Factor):
            _check_array(getattr(factor, field.name), f"factor.{field.name}", shapes.get(field.name, ()))
    _check_inputs(model.inputs, d, 2)
    _check_classes(model.classes_, 2)
    _check_source(model.source)
    _check_primal(model, n)


def _check_penalty(problem: Problem, d: int) -> None:
    for leaf in jax.tree.leaves(problem.penalty):
        if np.ndim(leaf) > 1 or (np.ndim(leaf) == 1 and leaf.shape[0] != d):
            raise ValueError(f"its penalty has a parameter of shape {np.shape(leaf)}")


def _check_inputs(inputs: Any, d: int, classes: int) -> None:
    if inputs is not None and not isinstance(inputs, Inputs):
        raise ValueError("its inputs are none")
    if inputs is not None:
        inputs.check(d)
        check_class_weights(inputs.class_weights, classes)


def _check_source(source: Any) -> None:
    if not isinstance(source, str | None):
        raise ValueError("its source is no text")


def _check_classes(classes: Any, count: int) -> None:
    if not is_classes(classes, count):
        raise ValueError(f"its classes_ are not {count} different labels")


def _check_data(data: Any, n: int, d: int) -> None:
    if data is None:
        return
    if not isinstance(data, Data) or not isinstance(data.matrix, Dense | Sparse):
        raise ValueError("its data are not a matrix, targets and weights")
    if isinstance(data.matrix, Dense):
        _check_array(data.matrix.values, "data", (n, d), (np.float32, np.float64))
    if data.matrix.shape != (n, d):
        raise ValueError(f"its data have shape {data.matrix.shape} instead of {(n, d)}")
    _check_array(data.target, "data.target", (n,))
    _check_array(data.weight, "data.weight", (n,))


def _check_primal(model: Model, n: int) -> None:
    """A user's function is only known by its name: another one of that name would give another objective."""
    problem, rows = put(model.problem), model.rows
    q = problem.loss.coordinate(rows.score, rows.target)
    losses = rows.weight * problem.unit(n) * np.asarray(problem.loss.value(q, rows.target))
    penalties = np.asarray(problem.penalty.value(model.w))
    stored, size = float(model.primal), np.sum(np.abs(losses)) + np.sum(np.abs(penalties))
    if abs(np.sum(losses) + np.sum(penalties) - stored) > 1e-6 * size:
        raise ValueError(f"its P(w) = {stored:.6g} is not what its problem gives: pass the problem= that was saved")


def _check_multinomial(model: MultinomialModel) -> None:
    problem = model.problem
    if not isinstance(problem, Problem) or not isinstance(problem.loss, Softmax) or not problem.loss.classes >= 2:
        raise ValueError("its problem has not the loss softmax")
    check_multinomial(problem)
    (n, d), K = (np.shape(model.alpha)[0], np.shape(model.w)[1]), problem.loss.classes
    _check_array(model.w, "w", (K, d), (np.float32, np.float64))
    shapes: dict[str, tuple] = {"gap": (), "primal": (), "sigma_sq": (), "target": (n,), "weight": (n,)}
    shapes |= {"score_abs": (n,), "alpha": (n, K), "score": (n, K), "v": (K, d), "v_pad": (K, d)}
    for name, shape in shapes.items():
        _check_array(getattr(model, name), name, shape)
    for name in ("status", "n_steps"):
        _check_array(getattr(model, name), name, (), (np.int32,))
    as_whole(model.row_terms, "row_terms", 0, 2**31)
    if model.data is None:
        raise ValueError("its data are missing")
    _check_penalty(problem, d)
    _check_data(model.data, n, d)
    _check_inputs(model.inputs, d, K)
    _check_classes(model.classes_, K)
    _check_source(model.source)
    if not np.isin(model.target, np.arange(K)).all():
        raise ValueError("its target is not one of the classes")
    with np.errstate(all="ignore"):
        c, w = model.weight * problem.unit(n), model.w.astype(np.float64)
        value = float(objective(problem.loss, model.target, c, metric(problem.penalty, d), w, model.score))
    if abs(value - float(model.primal)) > 1e-6 * abs(value):
        raise ValueError(f"its P(w) = {float(model.primal):.6g} is not what its coefficients give, {value:.6g}")
