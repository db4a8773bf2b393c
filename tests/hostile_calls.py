"""Every public callable with plain arguments, and the kind of values that each takes: the table of test_hostile.py.

`call` makes of its arguments something to compare: the bounds of a change, the leaves of a model, ...
"""

import warnings
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from hostile import (
    REFUSED,
    choice,
    flag,
    flag_or_width,
    function,
    index,
    labels,
    matrix,
    number,
    only,
    vector,
    weights,
    whole,
)
from sklearn.linear_model import Ridge
from untrained import model_at

import jaxbounds as jb
from jaxbounds import losses, penalties, solvers

N, D = 8, 4
RANDOM = np.random.default_rng(0)
X = np.round(RANDOM.normal(size=(N, D)) * 8) / 8  # exact in bfloat16
X[1, 2] = X[4, 0] = 0.0
Y = np.array([1.0, -1.0, 1.0, 1.0, -1.0, -1.0, 1.0, -1.0])
TARGET = np.round(RANDOM.normal(size=N) * 8) / 8
ONES, W = np.ones(N), np.array([0.25, -0.5, 0.125, 0.5])
L2, LOGISTIC = penalties.l2(0.25), losses.logistic()
BINARY, REGRESSION = jb.Problem(LOGISTIC, L2), jb.Problem(losses.squared(), L2)
MODEL = model_at(BINARY, X, Y, ONES, W)
LINE = model_at(REGRESSION, X, TARGET, ONES, W)
BARE = MODEL.without_data()
CHANGE = jb.set_targets([0], [-1.0])
BOUNDS = jb.bound(MODEL, CHANGE)
EACH = jb.each_row_removed(MODEL)
EVERY = jb.bound_each(MODEL, EACH)
QUESTION = jb.DistanceBelow(0.5)
CLASSES = np.array([0.0, 1.0, 2.0, 0.0, 1.0, 2.0, 0.0, 1.0])


@dataclass(frozen=True)
class Entry:
    """A public callable.

    Attributes:
        call: takes the arguments by name, and returns something to compare.
        args: name -> (plain value, kind). trains: it compiles a solver, so that few forms are tried in the fast run.
        rtol: how closely the results of equal values agree. theirs: arguments are checked by scikit-learn,
    in its own words.
        others: arguments that are not values, or are in an entry of their own.
    """

    call: Any
    args: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    trains: bool = False
    rtol: float = 1e-6
    theirs: bool = False
    others: tuple[str, ...] = ()


def bounded(make, model=MODEL):
    """The bounds of the change that `make` makes."""
    return lambda **args: jb.bound(model, make(**args))


def rows(k=2, **options):
    return X[:k] + 0.5, partial(matrix, rows=False, **options)


@cache
def several():
    """Models of three classes."""
    softmax = jb.Problem(losses.softmax(3), L2)
    return jb.fit(softmax, X, CLASSES, tol=1e-4), jb.fit_one_vs_rest(BINARY, X, CLASSES, tol=1e-4)


def from_ridge(**a):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jb.FitWarning)  # some forms hold other values than it was trained on
        model = jb.from_sklearn(**(dict(estimator=Ridge(fit_intercept=False).fit(X, TARGET)) | a))
    return jb.bound(model, jb.remove_rows([0]))


def numbers_or_words(a):
    """(k,) class numbers; words are classes as well."""
    yield from ((name, value, wanted) for name, value, wanted in vector(a) if name != "text in it")
    yield "words", np.array(["a", "b", "c"])[a.astype(int)], a


def no_words(a):
    """Targets, where all text is meant: labels in words, see test_own_labels."""
    return (case for case in vector(a) if case[0] != "text in it")


def own_labels(a):
    """Labels of any shape and dtype that hold no other values."""
    for name, value in (("a list", a.tolist()), ("whole", a.astype(int)), ("a jax array", jnp.asarray(a, jnp.float32))):
        yield name, value, a
    for name, value in (
        ("text", "abc"), ("None", None), ("None in it", [None, 1]), ("NaN", a * np.nan), ("another", a + 7),
        ("fractions", a + 0.25), ("text in it", a.astype(str)), ("an object", object()), ("a dict", {0: 1}),
        ("a hidden entry", np.ma.masked_array(a, a == a[0])), ("ragged", [[1], [1, 2]]), ("complex", a + 1j),
    ):  # fmt: skip
        yield name, value, REFUSED


MODEL_ONLY = (MODEL, only(BINARY, jb.Model, W, CHANGE, BOUNDS))
WITH_DATA = (MODEL, only(BINARY, jb.Model, W, CHANGE, BOUNDS, BARE))
CHANGE_ONLY = (jb.remove_rows([2]), only(jb.set_targets, MODEL, BOUNDS, [CHANGE], EACH, jb.each_target_flipped(MODEL)))
METHOD = (jb.Cached(), only(jb.Cached, "cached", MODEL, CHANGE, optional=True))
PROBLEM = (BINARY, only(jb.Problem, LOGISTIC, L2, MODEL, jb.Problem(L2, LOGISTIC), jb.Problem(None, None),
    jb.Problem(LOGISTIC, L2, "Mean"), jb.Problem(LOGISTIC, L2, intercept=1), jb.Problem(losses.logistic, penalties.l2)))
PENALTY = (L2, only(penalties.l2, LOGISTIC, MODEL, "l2"))
PENALTIES = ([L2, penalties.l2(0.5)], only(0.1, [0.1], [L2, 0.1], ["l2"], [None], [], LOGISTIC, [LOGISTIC],
    penalties.l2))
CALLBACK = (None, function)
ROWS = (np.array([1, 4, 6]), partial(index, size=N))
KEEP_N = (True, flag)
RESOLVE = (False, flag_or_width)
DATA = {"X": (X, partial(matrix, columns=False)), "y": (Y, labels)}
FIT = {"sample_weight": (ONES, weights), "tol": (1e-6, number),
    "solver": (None, only(solvers.NewtonCG, "newton", 0, optional=True)), "warm_start": (W, vector),
    "max_steps": (50, partial(whole, least=0, optional=True)), "callback": CALLBACK}
TEST = {"X": rows()}
VALIDATION = {"X_val": (X, matrix), "y_val": (Y, labels)}
UP_TO = (2, partial(whole, most=N - 1))

CHANGES = {
    "set_elements": Entry(bounded(jb.set_elements),
        {"rows": ROWS, "cols": (np.array([0, 3, 1]), partial(index, size=D)),
        "values": (np.array([0.5, 2.0, 1.5]), partial(vector, scalar=True)),
    }),
    "set_elements, old_values": Entry(bounded(partial(jb.set_elements, [1, 4], [0, 3], 2.0), BARE),
        {"old_values": (X[[1, 4], [0, 3]], partial(vector, scalar=True))}),
    "set_rows": Entry(bounded(jb.set_rows),
        {"rows": (np.array([1, 4]), partial(index, size=N)), "X_new": (X[:2] / 2, matrix),
        "y_new": (-Y[:2], partial(labels, scalar=True))}),
    "set_rows, old_values": Entry(bounded(partial(jb.set_rows, [1, 4], X[:2]), BARE),
        {"old_values": (X[[1, 4]], matrix)}),
    "set_columns": Entry(bounded(jb.set_columns),
        {"cols": (np.array([1, 3]), partial(index, size=D, names=True)), "X_new": (X[:, :2] / 2, matrix)}),
    "set_columns, old_values": Entry(bounded(partial(jb.set_columns, [1, 3], X[:, :2]), BARE),
        {"old_values": (X[:, [1, 3]], matrix)}),
    "set_targets": Entry(bounded(jb.set_targets),
        {"rows": ROWS, "y_new": (-Y[[1, 4, 6]], partial(labels, scalar=True))}),
    "set_targets, old_values": Entry(bounded(partial(jb.set_targets, [1, 4], 1.0), BARE),
        {"old_values": (X[[1, 4]], matrix)}),
    "set_targets, regression": Entry(bounded(partial(jb.set_targets, [1, 4, 6]), LINE),
        {"y_new": (TARGET[:3], partial(vector, scalar=True))}),
    "set_weights": Entry(bounded(jb.set_weights),
        {"rows": ROWS, "weights": (np.array([2.0, 0.5, 1.5]), partial(weights, scalar=True))}),
    "set_weights, old_values": Entry(bounded(partial(jb.set_weights, [1, 4], 2.0), BARE),
        {"old_values": (X[[1, 4]], matrix)}),
    "add_rows": Entry(bounded(jb.add_rows),
        {"X_new": (X[:3] / 2, matrix), "y_new": (Y[:3], partial(labels, scalar=True)),
        "sample_weight": (np.array([2.0, 0.5, 1.5]), weights)}),
    "remove_rows": Entry(bounded(jb.remove_rows), {"rows": ROWS, "keep_n": KEEP_N}),
    "remove_rows, old_values": Entry(bounded(partial(jb.remove_rows, [1, 4]), BARE),
        {"old_values": (X[[1, 4]], matrix)}),
    "add_columns": Entry(bounded(jb.add_columns), {"X_new": (X[:, :2] / 2, partial(matrix, columns=False))}),
    "remove_columns": Entry(bounded(jb.remove_columns),
        {"cols": (np.array([1, 3]), partial(index, size=D, names=True))}),
    "remove_columns, old_values": Entry(bounded(partial(jb.remove_columns, [1, 3]), BARE),
        {"old_values": (X[:, [1, 3]], matrix)}),
    "set_penalty": Entry(bounded(jb.set_penalty), {"penalty": PENALTY}),
    "combine": Entry(lambda changes: jb.bound(MODEL, jb.combine(CHANGE, changes)),
        {"changes": (jb.remove_rows([3]), only(jb.set_targets, [CHANGE], MODEL))}),
    "stack": Entry(lambda changes, model: jb.bound_each(MODEL, jb.stack(changes, model)),
        {"model": (MODEL, only(BINARY, jb.Model, W, CHANGE, optional=True)),
        "changes": ([CHANGE, jb.remove_rows([3])], only([], [0.1], [None], [CHANGE, "x"], CHANGE, MODEL))}),
    "each_row_removed": Entry(lambda **a: jb.bound_each(MODEL, jb.each_row_removed(**(dict(model=MODEL) | a))),
        {"model": MODEL_ONLY, "rows": ROWS, "keep_n": KEEP_N}),
    "each_target_flipped": Entry(lambda **a: jb.bound_each(MODEL, jb.each_target_flipped(**a)),
        {"model": MODEL_ONLY, "rows": ROWS}),
    "each_penalty": Entry(lambda penalties: jb.bound_each(MODEL, jb.each_penalty(penalties)), {"penalties": PENALTIES}),
    "Change.apply": Entry(lambda **a: jb.remove_rows([1]).apply(**a)[1:],
        {"X": (X, partial(matrix, columns=False)), "y": (Y, no_words), "sample_weight": (ONES, weights)}),
}

QUESTIONS = {
    "bound": Entry(jb.bound, {"model": MODEL_ONLY, "change": CHANGE_ONLY, "method": METHOD}),
    "Bounds.w": Entry(BOUNDS.w, {"j": (np.array([0, 3]), partial(index, size=D, lookup=True))}),
    "Bounds.alpha": Entry(BOUNDS.alpha, {"i": (ROWS[0], partial(index, size=N, lookup=True))}),
    "Bounds.scores": Entry(BOUNDS.scores, TEST),
    "Bounds.labels": Entry(BOUNDS.labels, TEST),
    "Bounds.decided": Entry(BOUNDS.decided, TEST),
    "Model.scores": Entry(MODEL.scores, TEST),
    "Model.labels": Entry(MODEL.labels, TEST),
    "Model.encode_labels": Entry(MODEL.encode_labels, {"labels": (Y[:4], own_labels)}),
    "Model.decode_labels": Entry(lambda **a: MODEL.decode_labels(**a).astype(float), {"labels": (Y[:4], own_labels)}),
    "bound_each": Entry(jb.bound_each, {"model": MODEL_ONLY,
        "changes": (EACH, only(CHANGE, [CHANGE], jb.remove_rows, MODEL)), "X": rows(), "method": METHOD,
        "batch_size": (3, partial(whole, optional=True)), "callback": CALLBACK}),
    "EachBounds.w": Entry(EVERY.w, {"j": (np.array([0, 3]), partial(index, size=D, lookup=True))}),
    "EachBounds.alpha": Entry(EVERY.alpha, {"i": (ROWS[0], partial(index, size=N, lookup=True))}),
    "EachBounds.scores": Entry(EVERY.scores, TEST),
    "EachBounds.labels": Entry(EVERY.labels, TEST),
    "EachBounds.decided": Entry(EVERY.decided, TEST),
    "leave_one_out": Entry(jb.leave_one_out,
        {"model": MODEL_ONLY, "method": METHOD, "rows": ROWS, "keep_n": KEEP_N, "resolve": RESOLVE,
        "callback": CALLBACK}),
    "cross_validate": Entry(jb.cross_validate,
        {"model": MODEL_ONLY, "folds": (np.array([0, 0, 1, 1, 2, 2, 0, 1]),
        only(0, 1, N + 1, 2.0, [[0], [0]], [[0, 99]], [[-1]], np.zeros(N), np.zeros(N + 1, int), np.full(N, -2), [[]],
        True, np.zeros(N, int))), "method": METHOD, "keep_n": KEEP_N, "resolve": RESOLVE, "callback": CALLBACK}),
    "find_label_errors": Entry(jb.find_label_errors,
        {"model": MODEL_ONLY, "method": METHOD, "rows": ROWS, "keep_n": KEEP_N, "resolve": RESOLVE,
        "callback": CALLBACK}),
    "find_label_errors, regression": Entry(partial(jb.find_label_errors, LINE),
        {"threshold": (0.5, partial(number, at_least=0.0))}),
    "influence": Entry(jb.influence, {"model": WITH_DATA, "X_test": rows(), "rows": ROWS,
        "top": (2, partial(whole, most=3, optional=True)), "method": METHOD, "keep_n": KEEP_N}),
    "rank_rows": Entry(jb.rank_rows, {"model": WITH_DATA, "X_test": (X[:2], matrix), "y_test": (Y[:2], labels),
        "rows": ROWS, "method": METHOD, "keep_n": KEEP_N}),
    "worst_case_removal": Entry(jb.worst_case_removal,
        {"model": WITH_DATA, "k": UP_TO, "X_test": rows(), "keep_n": KEEP_N}),
    "worst_case_relabel": Entry(jb.worst_case_relabel, {"model": WITH_DATA, "k": UP_TO, "X_test": rows()}),
    "worst_case_removals": Entry(jb.worst_case_removals,
        {"model": WITH_DATA, "K": UP_TO, "X_test": rows(), "keep_n": KEEP_N}),
    "worst_case_relabels": Entry(jb.worst_case_relabels, {"model": WITH_DATA, "K": UP_TO, "X_test": rows()}),
    "largest_certified_removal": Entry(jb.largest_certified_removal,
        {"model": WITH_DATA, "X_test": rows(), "keep_n": KEEP_N}),
    "largest_certified_relabel": Entry(jb.largest_certified_relabel, {"model": WITH_DATA, "X_test": rows()}),
    "with_factor": Entry(lambda model: jb.with_factor(model).factor, {"model": WITH_DATA}),
    "penalty_sweep": Entry(jb.penalty_sweep,
        {"model": (MODEL, only(BINARY, jb.Model, [], [MODEL, 0.1], CHANGE)), "penalties": PENALTIES, **VALIDATION,
        "method": METHOD, "batch_size": (3, partial(whole, optional=True))}),
    "Problem.primal": Entry(BINARY.primal,
        DATA | {"w": (W, vector), "sample_weight": (ONES, weights), "intercept": (0.5, partial(number, above=None))}),
    "Problem.dual": Entry(BINARY.dual, DATA | {"alpha": (ONES / 2, vector), "sample_weight": (ONES, weights)}),
    "Problem.gap": Entry(BINARY.gap, DATA | {"w": (W, vector), "alpha": (ONES / 2, vector),
        "sample_weight": (ONES, weights), "intercept": (0.5, partial(number, above=None))}),
    "Problem": Entry(lambda **a: jb.Problem(**(dict(loss=LOGISTIC, penalty=L2) | a)).primal(X, Y, W),
        {"loss": (LOGISTIC, only(losses.logistic, L2, "logistic")), "penalty": PENALTY, "scale": ("mean", choice),
        "intercept": (False, flag)}),
    "LabelsKnown": Entry(lambda **a: jb.decide(MODEL, CHANGE, jb.LabelsKnown(**a), timings=False).answer,
        {"X": rows(), "fraction": (0.5, partial(number, most=1.0))}),
    "DistanceBelow": Entry(lambda **a: jb.DistanceBelow(**a).theta, {"theta": (0.5, number)}),
    "decide": Entry(lambda **a: jb.decide(**a).answer,
        {"model": MODEL_ONLY, "change": CHANGE_ONLY, "question": (QUESTION, only(jb.DistanceBelow, CHANGE, BOUNDS)),
        "timings": (False, flag)}),
    "Theorem1": Entry(lambda case: jb.bound(MODEL, CHANGE, jb.Theorem1(case)),
        {"case": ("i", lambda _: [c for c in choice("i") if c[1] is not None])}),
    "Pass": Entry(lambda cg_steps: jb.bound(MODEL, CHANGE, jb.Pass(cg_steps)), {"cg_steps": (3, whole)}),
    "Interval": Entry(lambda: 0), "Status": Entry(lambda: 0),
}

TRAINED = {
    "fit": Entry(lambda **a: jb.fit(**a).w, {"problem": PROBLEM} | DATA | FIT, trains=True, rtol=1e-3,
        others=("checkpoint",)),
    "refit": Entry(lambda **a: jb.refit(**a, tol=0.5), {"model": WITH_DATA, "change": CHANGE_ONLY}, trains=True,
        rtol=1e-3, others=("options",)),
    "fit_path": Entry(lambda **a: jb.fit_path(**a).w,
        {"problem": PROBLEM} | DATA | {"penalties": PENALTIES, "callback": CALLBACK}, trains=True, rtol=1e-3,
        others=("options",)),
    "fit_one_vs_rest": Entry(lambda **a: jb.fit_one_vs_rest(**a).w,
        {"problem": PROBLEM, "X": DATA["X"], "y": (CLASSES, numbers_or_words),
        "classes": (3, partial(whole, least=3, optional=True))}, trains=True, rtol=1e-3, others=("options",)),
    "best_penalty": Entry(lambda **a: jb.best_penalty(**a).error,
        {"problem": (BINARY, only(jb.Problem, LOGISTIC, L2, jb.Problem(L2, LOGISTIC))), **DATA, **VALIDATION,
        "lo": (0.125, number), "hi": (0.5, number), "eps": (0.5, partial(number, at_least=0.0)),
        "measure": ("error", choice), "fixed_ratio": (False, flag), "max_models": (4, partial(whole, least=4)),
        "cells": (4, whole), "sample_weight": (ONES, weights), "callback": CALLBACK}, trains=True, rtol=1e-3,
        others=("options",)),
    "attack_removal": Entry(lambda **a: [attack.score for attack in jb.attack_removal(**a)],
        {"model": WITH_DATA, "k": UP_TO, "X_test": (X[:1], partial(matrix, rows=False)), "keep_n": KEEP_N}, trains=True,
        rtol=1e-3),
    "attack_relabel": Entry(lambda **a: [attack.score for attack in jb.attack_relabel(**a)],
        {"model": WITH_DATA, "k": UP_TO, "X_test": (X[:1], partial(matrix, rows=False))}, trains=True, rtol=1e-3),
    "from_sklearn": Entry(from_ridge,
        {"estimator": (Ridge(fit_intercept=False).fit(X, TARGET), only(Ridge, Ridge(), MODEL)), "X": (X, matrix),
        "y": (TARGET, vector), "sample_weight": (ONES, weights)}, rtol=1e-3),
    "OneVsRest.bound": Entry(lambda **a: several()[1].bound(**a), {"change": CHANGE_ONLY, "method": METHOD},
        trains=True, rtol=1e-3),
    "OneVsRest.scores": Entry(lambda **a: several()[1].scores(**a), TEST, trains=True, rtol=1e-3),
    "OneVsRest.labels": Entry(lambda **a: several()[1].labels(**a), TEST, trains=True, rtol=1e-3),
    "OneVsRest.encode_labels": Entry(lambda **a: several()[1].encode_labels(**a),
        {"labels": (CLASSES[:4], own_labels)}, trains=True),
    "OneVsRest.decode_labels": Entry(lambda **a: several()[1].decode_labels(**a).astype(float),
        {"labels": (CLASSES[:4], own_labels)}, trains=True),
    "OneVsRest.refit": Entry(lambda **a: several()[1].refit(**a, tol=0.5), {"change": CHANGE_ONLY}, trains=True,
        rtol=1e-3, others=("options",)),
    "OneVsRestBounds.w": Entry(lambda **a: jb.bound(several()[1], jb.remove_rows([0])).w(**a),
        {"j": (np.array([0, 3]), partial(index, size=D, lookup=True))}, trains=True, rtol=1e-3),
    "OneVsRestBounds.scores": Entry(lambda **a: jb.bound(several()[1], jb.remove_rows([0])).scores(**a), TEST,
        trains=True, rtol=1e-3),
    "OneVsRestBounds.labels": Entry(lambda **a: jb.bound(several()[1], jb.remove_rows([0])).labels(**a), TEST,
        trains=True, rtol=1e-3),
    "OneVsRestBounds.decided": Entry(lambda **a: jb.bound(several()[1], jb.remove_rows([0])).decided(**a), TEST,
        trains=True, rtol=1e-3),
    "MultinomialModel.bound": Entry(lambda **a: several()[0].bound(**a), {"change": CHANGE_ONLY, "method": METHOD},
        trains=True, rtol=1e-3),
    "MultinomialModel.scores": Entry(lambda **a: several()[0].scores(**a), TEST, trains=True, rtol=1e-3),
    "MultinomialModel.labels": Entry(lambda **a: several()[0].labels(**a), TEST, trains=True, rtol=1e-3),
    "MultinomialModel.encode_labels": Entry(lambda **a: several()[0].encode_labels(**a),
        {"labels": (CLASSES[:4], own_labels)}, trains=True),
    "MultinomialModel.decode_labels": Entry(lambda **a: several()[0].decode_labels(**a).astype(float),
        {"labels": (CLASSES[:4], own_labels)}, trains=True),
    "MultinomialModel.refit": Entry(lambda **a: several()[0].refit(**a, tol=0.5), {"change": CHANGE_ONLY}, trains=True,
        rtol=1e-3, others=("options",)),
    "MultinomialBounds.scores": Entry(lambda **a: jb.bound(several()[0], jb.remove_rows([0])).scores(**a), TEST,
        trains=True, rtol=1e-3),
    "MultinomialBounds.labels": Entry(lambda **a: jb.bound(several()[0], jb.remove_rows([0])).labels(**a), TEST,
        trains=True, rtol=1e-3),
    "MultinomialBounds.decided": Entry(lambda **a: jb.bound(several()[0], jb.remove_rows([0])).decided(**a), TEST,
        trains=True, rtol=1e-3),
    "MultinomialBounds.probabilities": Entry(lambda **a: jb.bound(several()[0], jb.remove_rows([0])).probabilities(**a),
        TEST, trains=True, rtol=1e-3),
}
