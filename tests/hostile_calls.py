"""Every public callable with plain arguments, and what kind of values each argument takes: the table of test_hostile.py.

`call` makes of its arguments something to compare: the bounds of a change, the leaves of a model, ...
"""

import functools
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
from hostile import REFUSED, choice, flag, function, index, labels, matrix, number, only, path_to, vector, weights, whole
from matplotlib.figure import Figure
from sklearn.linear_model import Ridge
from untrained import model_at

import jaxbounds as jb
from jaxbounds import losses, penalties, plots, sklearn, solvers, testing

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
FOLDER = Path(tempfile.mkdtemp(prefix="jaxbounds_hostile_"))
BAND = jb.Interval(Y - 1, Y + 1)


@dataclass(frozen=True)
class Entry:
    """A public callable.

    Attributes:
        call: takes the arguments by name, and returns something to compare.
        args: name -> (plain value, kind). trains: it compiles a solver, so that few forms are tried in the fast run.
        rtol: how closely the results of equal values agree. theirs: arguments are checked by scikit-learn, in its own words.
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
    return X[:k] + 0.5, functools.partial(matrix, rows=False, **options)


def refuse(kind, **options):
    return functools.partial(kind, **options)


@functools.cache
def several():
    """Models of three classes."""
    softmax = jb.Problem(losses.softmax(3), L2)
    return jb.fit(softmax, X, CLASSES, tol=1e-4), jb.fit_one_vs_rest(BINARY, X, CLASSES, tol=1e-4)


@functools.cache
def estimators():
    return sklearn.BoundedClassifier(tol=1e-4).fit(X, Y), sklearn.BoundedRegressor(tol=1e-4).fit(X, TARGET)


@functools.cache
def saved(kind):
    path = FOLDER / kind
    MODEL.save(path) if kind == "model" else jb.Monitor(MODEL, 0.5).save(path)
    return path


@functools.cache
def text_file():
    path = FOLDER / "data.txt"
    path.write_text("+1 1:0.5 3:2\n-1 2:1\n")
    return path


def on_figure(draw):
    return lambda **args: bool(draw(**args, ax=Figure().subplots()))


def fresh(name):
    """A path where nothing is."""
    path = FOLDER / name
    path.unlink(missing_ok=True)
    return path


def parameters(_):
    for bad in (None, 1.0, "abc", {}, ("a",), (np.nan,), (None,), object(), np.ones(2), (1j,)):
        yield repr(bad)[:20], bad, REFUSED


def phi(m):
    return jnp.logaddexp(0.0, -m)


def square(w):
    return w**2 / 2


def residual(s, y):
    return (s - y) ** 2 / 8


MODEL_ONLY = (MODEL, only(BINARY, jb.Model, W, CHANGE, BOUNDS))
WITH_DATA = (MODEL, only(BINARY, jb.Model, W, CHANGE, BOUNDS, BARE))
CHANGE_ONLY = (jb.remove_rows([2]), only(jb.set_targets, MODEL, BOUNDS, [CHANGE], EACH, jb.each_target_flipped(MODEL)))
METHOD = (jb.Cached(), only(jb.Cached, "cached", MODEL, CHANGE, optional=True))
PROBLEM = (BINARY, only(jb.Problem, LOGISTIC, L2, MODEL, jb.Problem(L2, LOGISTIC), jb.Problem(None, None),
                        jb.Problem(LOGISTIC, L2, "Mean"), jb.Problem(LOGISTIC, L2, intercept=1),
                        jb.Problem(losses.logistic, penalties.l2)))  # fmt: skip
PENALTY = (L2, only(penalties.l2, LOGISTIC, MODEL, "l2"))
PENALTIES = ([L2, penalties.l2(0.5)], only(0.1, [0.1], [L2, 0.1], ["l2"], [None], [], LOGISTIC, [LOGISTIC], penalties.l2))
CALLBACK = (None, function)
ROWS = (np.array([1, 4, 6]), refuse(index, size=N))
MAYBE_ROWS = ROWS
KEEP_N = (True, flag)
DATA = {"X": (X, refuse(matrix, columns=False)), "y": (Y, labels)}
FIT = {"sample_weight": (ONES, weights), "tol": (1e-6, number), "solver": (None, only(solvers.NewtonCG, "newton", 0, optional=True)),
       "warm_start": (W, vector), "max_steps": (50, refuse(whole, least=0, optional=True)), "callback": CALLBACK}  # fmt: skip
TEST = {"X": rows()}
X_TEST = {"X_test": rows()}
VALIDATION = {"X_val": (X, matrix), "y_val": (Y, labels)}
OLD_ROWS = X[:3]
UP_TO = (2, refuse(whole, most=N - 1))

CHANGES = {
    "set_elements": Entry(bounded(jb.set_elements), {
        "rows": ROWS, "cols": (np.array([0, 3, 1]), refuse(index, size=D)), "values": (np.array([0.5, 2.0, 1.5]), refuse(vector, scalar=True)),
    }),
    "set_elements, old_values": Entry(bounded(functools.partial(jb.set_elements, [1, 4], [0, 3], 2.0), BARE), {
        "old_values": (X[[1, 4], [0, 3]], refuse(vector, scalar=True))}),
    "set_rows": Entry(bounded(jb.set_rows), {
        "rows": (np.array([1, 4]), refuse(index, size=N)), "X_new": (X[:2] / 2, matrix), "y_new": (-Y[:2], refuse(labels, scalar=True))}),
    "set_rows, old_values": Entry(bounded(functools.partial(jb.set_rows, [1, 4], X[:2]), BARE), {"old_values": (X[[1, 4]], matrix)}),
    "set_columns": Entry(bounded(jb.set_columns), {
        "cols": (np.array([1, 3]), refuse(index, size=D, names=True)), "X_new": (X[:, :2] / 2, matrix)}),
    "set_columns, old_values": Entry(bounded(functools.partial(jb.set_columns, [1, 3], X[:, :2]), BARE), {"old_values": (X[:, [1, 3]], matrix)}),
    "set_targets": Entry(bounded(jb.set_targets), {"rows": ROWS, "y_new": (-Y[[1, 4, 6]], refuse(labels, scalar=True))}),
    "set_targets, old_values": Entry(bounded(functools.partial(jb.set_targets, [1, 4], 1.0), BARE), {"old_values": (X[[1, 4]], matrix)}),
    "set_targets, regression": Entry(bounded(functools.partial(jb.set_targets, [1, 4, 6]), LINE), {"y_new": (TARGET[:3], refuse(vector, scalar=True))}),
    "set_weights": Entry(bounded(jb.set_weights), {"rows": ROWS, "weights": (np.array([2.0, 0.5, 1.5]), refuse(weights, scalar=True))}),
    "set_weights, old_values": Entry(bounded(functools.partial(jb.set_weights, [1, 4], 2.0), BARE), {"old_values": (X[[1, 4]], matrix)}),
    "add_rows": Entry(bounded(jb.add_rows), {
        "X_new": (X[:3] / 2, matrix), "y_new": (Y[:3], refuse(labels, scalar=True)), "sample_weight": (np.array([2.0, 0.5, 1.5]), weights)}),
    "remove_rows": Entry(bounded(jb.remove_rows), {"rows": ROWS, "keep_n": KEEP_N}),
    "remove_rows, old_values": Entry(bounded(functools.partial(jb.remove_rows, [1, 4]), BARE), {"old_values": (X[[1, 4]], matrix)}),
    "add_columns": Entry(bounded(jb.add_columns), {"X_new": (X[:, :2] / 2, refuse(matrix, columns=False))}),
    "remove_columns": Entry(bounded(jb.remove_columns), {"cols": (np.array([1, 3]), refuse(index, size=D, names=True))}),
    "remove_columns, old_values": Entry(bounded(functools.partial(jb.remove_columns, [1, 3]), BARE), {"old_values": (X[:, [1, 3]], matrix)}),
    "set_penalty": Entry(bounded(jb.set_penalty), {"penalty": PENALTY}),
    "combine": Entry(lambda changes: jb.bound(MODEL, jb.combine(CHANGE, changes)), {"changes": (jb.remove_rows([3]), only(jb.set_targets, [CHANGE], MODEL))}),
    "stack": Entry(lambda changes: jb.bound_each(MODEL, jb.stack(changes)), {"changes": ([CHANGE, jb.remove_rows([3])], only([], [0.1], [None], [CHANGE, "x"], CHANGE, MODEL))}),
    "each_row_removed": Entry(lambda **a: jb.bound_each(MODEL, jb.each_row_removed(**(dict(model=MODEL) | a))), {"model": MODEL_ONLY, "rows": MAYBE_ROWS, "keep_n": KEEP_N}),
    "each_target_flipped": Entry(lambda **a: jb.bound_each(MODEL, jb.each_target_flipped(**a)), {"model": MODEL_ONLY, "rows": MAYBE_ROWS}),
    "each_penalty": Entry(lambda penalties: jb.bound_each(MODEL, jb.each_penalty(penalties)), {"penalties": PENALTIES}),
    "Change.apply": Entry(lambda **a: jb.remove_rows([1]).apply(**a)[1:], {"X": (X, refuse(matrix, columns=False)), "y": (Y, vector), "sample_weight": (ONES, weights)}),
}  # fmt: skip

QUESTIONS = {
    "bound": Entry(jb.bound, {"model": MODEL_ONLY, "change": CHANGE_ONLY, "method": METHOD}),
    "Bounds.w": Entry(BOUNDS.w, {"j": (np.array([0, 3]), refuse(index, size=D, lookup=True))}),
    "Bounds.alpha": Entry(BOUNDS.alpha, {"i": (ROWS[0], refuse(index, size=N, lookup=True))}),
    "Bounds.scores": Entry(BOUNDS.scores, TEST),
    "Bounds.labels": Entry(BOUNDS.labels, TEST),
    "Bounds.decided": Entry(BOUNDS.decided, TEST),
    "Model.scores": Entry(MODEL.scores, TEST),
    "bound_each": Entry(jb.bound_each, {
        "model": MODEL_ONLY, "changes": (EACH, only(CHANGE, [CHANGE], jb.remove_rows, MODEL)), "X": rows(), "method": METHOD,
        "batch_size": (3, refuse(whole, optional=True)), "callback": CALLBACK}),
    "EachBounds.w": Entry(EVERY.w, {"j": (np.array([0, 3]), refuse(index, size=D, lookup=True))}),
    "EachBounds.alpha": Entry(EVERY.alpha, {"i": (ROWS[0], refuse(index, size=N, lookup=True))}),
    "EachBounds.scores": Entry(EVERY.scores, TEST),
    "EachBounds.labels": Entry(EVERY.labels, TEST),
    "EachBounds.decided": Entry(EVERY.decided, TEST),
    "leave_one_out": Entry(jb.leave_one_out, {"model": MODEL_ONLY, "method": METHOD, "rows": MAYBE_ROWS, "keep_n": KEEP_N, "resolve": (False, flag), "callback": CALLBACK}),
    "cross_validate": Entry(jb.cross_validate, {
        "model": MODEL_ONLY, "folds": (np.array([0, 0, 1, 1, 2, 2, 0, 1]), only(0, 1, N + 1, 2.0, [[0], [0]], [[0, 99]], [[-1]], np.zeros(N), np.zeros(N + 1, int), np.full(N, -2), [[]], True, np.zeros(N, int))),
        "method": METHOD, "keep_n": KEEP_N, "resolve": (False, flag)}),
    "find_label_errors": Entry(jb.find_label_errors, {"model": MODEL_ONLY, "method": METHOD, "rows": MAYBE_ROWS, "keep_n": KEEP_N, "resolve": (False, flag), "callback": CALLBACK}),
    "find_label_errors, regression": Entry(functools.partial(jb.find_label_errors, LINE), {"threshold": (0.5, refuse(number, at_least=0.0))}),
    "influence": Entry(jb.influence, {"model": WITH_DATA, "X_test": rows(), "rows": MAYBE_ROWS, "top": (2, refuse(whole, most=3, optional=True)), "method": METHOD, "keep_n": KEEP_N}),
    "rank_rows": Entry(jb.rank_rows, {"model": WITH_DATA, "X_test": (X[:2], matrix), "y_test": (Y[:2], labels), "rows": MAYBE_ROWS, "method": METHOD, "keep_n": KEEP_N}),
    "worst_case_removal": Entry(jb.worst_case_removal, {"model": WITH_DATA, "k": UP_TO, "X_test": rows(), "keep_n": KEEP_N}),
    "worst_case_relabel": Entry(jb.worst_case_relabel, {"model": WITH_DATA, "k": UP_TO, "X_test": rows()}),
    "worst_case_removals": Entry(jb.worst_case_removals, {"model": WITH_DATA, "K": UP_TO, "X_test": rows(), "keep_n": KEEP_N}),
    "worst_case_relabels": Entry(jb.worst_case_relabels, {"model": WITH_DATA, "K": UP_TO, "X_test": rows()}),
    "largest_certified_removal": Entry(jb.largest_certified_removal, {"model": WITH_DATA, "X_test": rows(), "keep_n": KEEP_N}),
    "largest_certified_relabel": Entry(jb.largest_certified_relabel, {"model": WITH_DATA, "X_test": rows()}),
    "with_factor": Entry(lambda model: jb.with_factor(model).factor, {"model": WITH_DATA}),
    "penalty_sweep": Entry(jb.penalty_sweep, {"model": (MODEL, only(BINARY, jb.Model, [], [MODEL, 0.1], CHANGE)), "penalties": PENALTIES, **VALIDATION,
                                              "method": METHOD, "batch_size": (3, refuse(whole, optional=True))}),
    "Problem.primal": Entry(BINARY.primal, DATA | {"w": (W, vector), "sample_weight": (ONES, weights), "intercept": (0.5, refuse(number, above=None))}),
    "Problem.dual": Entry(BINARY.dual, DATA | {"alpha": (ONES / 2, vector), "sample_weight": (ONES, weights)}),
    "Problem.gap": Entry(BINARY.gap, DATA | {"w": (W, vector), "alpha": (ONES / 2, vector), "sample_weight": (ONES, weights), "intercept": (0.5, refuse(number, above=None))}),
    "Problem": Entry(lambda **a: jb.Problem(**(dict(loss=LOGISTIC, penalty=L2) | a)).primal(X, Y, W), {
        "loss": (LOGISTIC, only(losses.logistic, L2, "logistic")), "penalty": PENALTY, "scale": ("mean", choice), "intercept": (False, flag)}),
    "LabelsKnown": Entry(lambda **a: jb.decide(MODEL, CHANGE, jb.LabelsKnown(**a), timings=False).answer, {"X": rows(), "fraction": (0.5, refuse(number, most=1.0))}),
    "DistanceBelow": Entry(lambda **a: jb.DistanceBelow(**a).theta, {"theta": (0.5, number)}),
    "decide": Entry(lambda **a: jb.decide(**a).answer, {"model": MODEL_ONLY, "change": CHANGE_ONLY, "question": (QUESTION, only(jb.DistanceBelow, CHANGE, BOUNDS)), "timings": (False, flag)}),
    "Theorem1": Entry(lambda case: jb.bound(MODEL, CHANGE, jb.Theorem1(case)), {"case": ("i", lambda _: [c for c in choice("i") if c[1] is not None])}),
    "Pass": Entry(lambda cg_steps: jb.bound(MODEL, CHANGE, jb.Pass(cg_steps)), {"cg_steps": (3, whole)}),
    "Interval": Entry(lambda: 0), "Status": Entry(lambda: 0),
}  # fmt: skip

TRAINED = {
    "fit": Entry(lambda **a: jb.fit(**a).w, {"problem": PROBLEM} | DATA | FIT, trains=True, rtol=1e-3),
    "refit": Entry(lambda **a: jb.refit(**a, tol=0.5), {"model": WITH_DATA, "change": CHANGE_ONLY}, trains=True, rtol=1e-3, others=("options",)),
    "fit_path": Entry(lambda **a: jb.fit_path(**a).w, {"problem": PROBLEM} | DATA | {"penalties": PENALTIES, "callback": CALLBACK}, trains=True, rtol=1e-3, others=("options",)),
    "fit_one_vs_rest": Entry(lambda **a: jb.fit_one_vs_rest(**a).w, {
        "problem": PROBLEM, "X": DATA["X"], "y": (CLASSES, vector), "classes": (3, refuse(whole, least=3, optional=True))}, trains=True, rtol=1e-3, others=("options",)),
    "best_penalty": Entry(lambda **a: jb.best_penalty(**a).error, {
        "problem": (BINARY, only(jb.Problem, LOGISTIC, L2, jb.Problem(L2, LOGISTIC))), **DATA, **VALIDATION, "lo": (0.125, number), "hi": (0.5, number), "eps": (0.5, refuse(number, at_least=0.0)),
        "measure": ("error", choice), "fixed_ratio": (False, flag), "max_models": (4, refuse(whole, least=4)), "cells": (4, whole),
        "sample_weight": (ONES, weights), "callback": CALLBACK}, trains=True, rtol=1e-3, others=("options",)),
    "attack_removal": Entry(lambda **a: [attack.score for attack in jb.attack_removal(**a)], {"model": WITH_DATA, "k": UP_TO, "X_test": (X[:1], refuse(matrix, rows=False)), "keep_n": KEEP_N}, trains=True, rtol=1e-3),
    "attack_relabel": Entry(lambda **a: [attack.score for attack in jb.attack_relabel(**a)], {"model": WITH_DATA, "k": UP_TO, "X_test": (X[:1], refuse(matrix, rows=False))}, trains=True, rtol=1e-3),
    "from_sklearn": Entry(lambda **a: jb.bound(jb.from_sklearn(**(dict(estimator=Ridge(fit_intercept=False).fit(X, TARGET)) | a)), jb.remove_rows([0])), {
        "estimator": (Ridge(fit_intercept=False).fit(X, TARGET), only(Ridge, Ridge(), MODEL)), "X": (X, matrix), "y": (TARGET, vector), "sample_weight": (ONES, weights)}, rtol=1e-3),
    "OneVsRest.bound": Entry(lambda **a: several()[1].bound(**a), {"change": CHANGE_ONLY, "method": METHOD}, trains=True, rtol=1e-3),
    "OneVsRest.scores": Entry(lambda **a: several()[1].scores(**a), TEST, trains=True, rtol=1e-3),
    "OneVsRest.labels": Entry(lambda **a: several()[1].labels(**a), TEST, trains=True, rtol=1e-3),
    "OneVsRest.refit": Entry(lambda **a: several()[1].refit(**a, tol=0.5), {"change": CHANGE_ONLY}, trains=True, rtol=1e-3, others=("options",)),
    "OneVsRestBounds.scores": Entry(lambda **a: jb.bound(several()[1], jb.remove_rows([0])).scores(**a), TEST, trains=True, rtol=1e-3),
    "OneVsRestBounds.labels": Entry(lambda **a: jb.bound(several()[1], jb.remove_rows([0])).labels(**a), TEST, trains=True, rtol=1e-3),
    "OneVsRestBounds.decided": Entry(lambda **a: jb.bound(several()[1], jb.remove_rows([0])).decided(**a), TEST, trains=True, rtol=1e-3),
    "MultinomialModel.bound": Entry(lambda **a: several()[0].bound(**a), {"change": CHANGE_ONLY, "method": METHOD}, trains=True, rtol=1e-3),
    "MultinomialModel.scores": Entry(lambda **a: several()[0].scores(**a), TEST, trains=True, rtol=1e-3),
    "MultinomialModel.labels": Entry(lambda **a: several()[0].labels(**a), TEST, trains=True, rtol=1e-3),
    "MultinomialModel.refit": Entry(lambda **a: several()[0].refit(**a, tol=0.5), {"change": CHANGE_ONLY}, trains=True, rtol=1e-3, others=("options",)),
    "MultinomialBounds.scores": Entry(lambda **a: jb.bound(several()[0], jb.remove_rows([0])).scores(**a), TEST, trains=True, rtol=1e-3),
    "MultinomialBounds.labels": Entry(lambda **a: jb.bound(several()[0], jb.remove_rows([0])).labels(**a), TEST, trains=True, rtol=1e-3),
    "MultinomialBounds.decided": Entry(lambda **a: jb.bound(several()[0], jb.remove_rows([0])).decided(**a), TEST, trains=True, rtol=1e-3),
    "MultinomialBounds.probabilities": Entry(lambda **a: jb.bound(several()[0], jb.remove_rows([0])).probabilities(**a), TEST, trains=True, rtol=1e-3),
}  # fmt: skip

FUNCTIONS = {
    "losses.smoothed_hinge": Entry(losses.smoothed_hinge, {"gamma": (0.5, number)}),
    "losses.huber": Entry(losses.huber, {"delta": (0.5, number)}),
    "losses.poisson": Entry(losses.poisson, {"bound": (2.0, refuse(number, above=None))}),
    "losses.smoothed_quantile": Entry(losses.smoothed_quantile, {"tau": (0.25, number), "gamma": (0.5, number)}),
    "losses.squared_epsilon_insensitive": Entry(losses.squared_epsilon_insensitive, {"epsilon": (0.5, refuse(number, at_least=0.0))}),
    "losses.softmax": Entry(losses.softmax, {"classes": (3, refuse(whole, least=2))}),
    **{f"losses.{name}": Entry(getattr(losses, name)) for name in ("hinge", "log_cosh", "logistic", "modified_huber", "squared", "squared_hinge")},
    "losses.from_margin": Entry(lambda **a: losses.from_margin(**(dict(phi=phi) | a)).value(Y, Y), {
        "phi": (phi, function), "smoothness": (0.25, refuse(number, optional=True)), "params": ((), parameters), "derivative": CALLBACK, "second": CALLBACK,
        "conjugate": CALLBACK, "curvature_range": CALLBACK, "domain": ((0.0, 1.0), only((1.0, 0.0), (0.0,), (0.0, np.nan), ("a", "b"), ([0.0], [1.0]), optional=True))}),
    "losses.from_score": Entry(lambda **a: losses.from_score(**(dict(ell=residual) | a)).value(Y, Y), {
        "ell": (residual, function), "smoothness": (0.25, refuse(number, optional=True)), "params": ((), parameters), "derivative": CALLBACK, "second": CALLBACK,
        "conjugate": CALLBACK, "curvature_range": CALLBACK, "domain": ((0.0, 1.0), only((1.0, 0.0), (0.0,), (0.0, np.nan), ("a", "b"), optional=True))}),
    "penalties.l2": Entry(penalties.l2, {"lam": (0.5, refuse(number, vector=True))}),
    "penalties.elastic_net": Entry(penalties.elastic_net, {"lam": (0.5, refuse(number, vector=True)), "l1": (0.5, refuse(number, at_least=0.0, vector=True))}),
    "penalties.l1": Entry(penalties.l1, {"kappa": (0.5, refuse(number, vector=True))}),
    "penalties.lq": Entry(penalties.lq, {"lam": (0.5, refuse(number, vector=True)), "q": (1.5, refuse(number, above=1.0, vector=True))}),
    "penalties.from_function": Entry(lambda **a: penalties.from_function(**(dict(psi_j=square) | a)).value(W), {
        "psi_j": (square, function), "strong_convexity": (1.0, refuse(number, optional=True, vector=True)), "params": ((), parameters), "derivative": CALLBACK, "second": CALLBACK,
        "conjugate": CALLBACK, "smooth": (True, flag)}),
    "solvers.NewtonCG": Entry(lambda **a: solvers.NewtonCG(**a).check(BINARY), {"max_cg": (250, whole)}),
    "solvers.DualCoordinate": Entry(lambda **a: solvers.DualCoordinate(**a).check(BINARY), {"epochs": (2, refuse(whole, least=0)), "polish": (True, flag), "max_cg": (250, whole)}),
    "solvers.ProximalGradient": Entry(lambda **a: solvers.ProximalGradient(**a).check(BINARY), {"max_cg": (100, whole), "max_inner": (50, whole)}),
    "solvers.Optax": Entry(lambda **a: solvers.Optax(**(dict(transformation=optax.adam(0.1)) | a)).check(BINARY), {
        "transformation": (optax.adam(0.1), only(optax.adam, "adam")), "updates": (10, whole)}),
    "solvers.DualNewton": Entry(lambda: 0),
    "testing.check_loss": Entry(testing.check_loss, {"loss": (losses.squared(), only(losses.squared, L2)), "scores": (TARGET, refuse(vector, scalar=True, free=True)), "targets": (TARGET[:3], refuse(vector, scalar=True, free=True))}),
    "testing.check_penalty": Entry(testing.check_penalty, {"penalty": (L2, only(penalties.l2, LOGISTIC)), "points": (TARGET, refuse(vector, scalar=True, free=True))}),
    "progress": Entry(lambda **a: repr(jb.progress(**a, disable=True))[:10], {"description": ("x", lambda _: ())}, others=("options",)),
}  # fmt: skip

FILES = {
    "load": Entry(jb.load, {"path": (saved("model"), path_to(FOLDER)), "problem": (None, only(LOGISTIC, MODEL, jb.Problem, optional=True))}),
    "Model.save": Entry(lambda **a: MODEL.save(**(dict(path=FOLDER / "new") | a)), {"path": (FOLDER / "new", path_to(FOLDER)), "data": (True, flag)}),
    "load_svmlight": Entry(lambda **a: jb.load_svmlight(**a)[1], {
        "path": (text_file(), path_to(FOLDER)), "n_features": (4, refuse(whole, least=3, optional=True)), "zero_based": (False, flag_or_auto := lambda v: [c for c in flag(v)]),
        "cache": (False, lambda v: [c for c in flag(v) if not isinstance(c[1], str)])}),
    "Monitor": Entry(lambda **a: jb.Monitor(**a).push(CHANGE).upper, {
        "model": WITH_DATA, "theta": (0.5, refuse(number, optional=True)), "X_watch": rows(), "retrain": (False, flag), "path": (None, lambda _: [c for c in path_to(FOLDER)(fresh("m")) if c[1] is not None and c[0] not in ("text", "bytes")]),
        "methods": ([jb.Cached()], only([], [jb.Cached], ["Cached"], jb.Cached, jb.Cached(), [None], optional=True))}),
    "Monitor.push": Entry(lambda **a: jb.Monitor(MODEL, 0.5, methods=[jb.Cached()]).push(**a).upper, {"change": CHANGE_ONLY}),
    "Monitor.bounds": Entry(lambda **a: jb.Monitor(MODEL, 0.5).bounds(**a), {"method": METHOD}),
    "Monitor.save": Entry(lambda **a: jb.Monitor(MODEL, 0.5).save(**a), {"path": (FOLDER / "saved", path_to(FOLDER))}),
    "Monitor.refit": Entry(lambda: 0, others=("options",)),
    "Monitor.load": Entry(lambda **a: jb.Monitor.load(**a).rows, {
        "path": (saved("monitor"), path_to(FOLDER)), "problem": (None, only(LOGISTIC, MODEL, jb.Problem, optional=True)),
        "methods": ([jb.Cached()], only([], [jb.Cached], ["Cached"], jb.Cached, jb.Cached(), [None], optional=True))}),
}  # fmt: skip

ESTIMATORS = {
    "BoundedClassifier.fit": Entry(lambda **a: sklearn.BoundedClassifier(tol=0.5).fit(**a).coef_, {"X": DATA["X"], "y": (Y, lambda _: vector(Y, column=True)), "sample_weight": (ONES, refuse(vector, scalar=True))}, trains=True, rtol=1e-3, theirs=True),
    "BoundedRegressor.fit": Entry(lambda **a: sklearn.BoundedRegressor(tol=0.5).fit(**a).coef_, {"X": DATA["X"], "y": (TARGET, lambda _: vector(TARGET, column=True)), "sample_weight": (ONES, refuse(vector, scalar=True))}, trains=True, rtol=1e-3, theirs=True),
    "BoundedClassifier": Entry(lambda **a: sklearn.BoundedClassifier(**(dict(tol=0.5) | a)).fit(X, Y).coef_, {
        "loss": ("logistic", choice), "penalty": ("l2", choice), "alpha": (1.0, number), "fit_intercept": (True, flag),
        "class_weight": (None, lambda _: [c for c in choice("") if c[1] is not None and not isinstance(c[1], dict)]), "tol": (0.5, number), "max_steps": FIT["max_steps"], "solver": FIT["solver"]}, trains=True, rtol=1e-3, theirs=True, others=("l1_ratio",)),
    "BoundedRegressor": Entry(lambda **a: sklearn.BoundedRegressor(**(dict(tol=0.5) | a)).fit(X, TARGET).coef_, {
        "loss": ("squared", choice), "penalty": ("l2", choice), "alpha": (1.0, number), "fit_intercept": (True, flag), "tol": (0.5, number), "max_steps": FIT["max_steps"], "solver": FIT["solver"]}, trains=True, rtol=1e-3, theirs=True, others=("l1_ratio",)),
    "l1_ratio": Entry(lambda l1_ratio: sklearn.BoundedRegressor(penalty="elastic_net", tol=0.5, l1_ratio=l1_ratio).fit(X, TARGET).coef_, {"l1_ratio": (0.5, refuse(number, at_least=0.0, most=1.0))}, trains=True, rtol=1e-3, theirs=True),
    "BoundedClassifier.decision_function": Entry(lambda **a: estimators()[0].decision_function(**a), TEST, trains=True, rtol=1e-3, theirs=True),
    "BoundedClassifier.predict": Entry(lambda **a: estimators()[0].predict(**a), TEST, trains=True, rtol=1e-3, theirs=True),
    "BoundedRegressor.predict": Entry(lambda **a: estimators()[1].predict(**a), TEST, trains=True, rtol=1e-3, theirs=True),
    "BoundedClassifier.what_if": Entry(lambda **a: estimators()[0].what_if(**a).bounds, {"change": CHANGE_ONLY, "method": METHOD}, trains=True, rtol=1e-3, theirs=True),
    "BoundedClassifier.predict_interval": Entry(lambda **a: estimators()[0].predict_interval(**a), {"X": rows(), "change": (CHANGE, only(jb.set_targets, MODEL, [CHANGE], optional=True)), "method": METHOD}, trains=True, rtol=1e-3, theirs=True),
    "BoundedRegressor.what_if": Entry(lambda **a: estimators()[1].what_if(**a).bounds, {"change": (jb.remove_rows([0]), CHANGE_ONLY[1]), "method": METHOD}, trains=True, rtol=1e-3, theirs=True),
    "BoundedRegressor.predict_interval": Entry(lambda **a: estimators()[1].predict_interval(**a), {"X": rows(), "change": (jb.remove_rows([0]), only(jb.set_targets, MODEL, [CHANGE], optional=True)), "method": METHOD}, trains=True, rtol=1e-3, theirs=True),
}  # fmt: skip

PLOTS = {
    "plots.bounds_over_retrained": Entry(on_figure(plots.bounds_over_retrained), {"bounds": (BAND, only(BOUNDS, {"a": 1.0})), "retrained": (Y, vector), "before": (Y, vector)}, others=("ax",)),
    "plots.band_over_lam": Entry(on_figure(plots.band_over_lam), {"lam": (ONES, weights), "band": (BAND, only(BOUNDS)), "retrained": (Y, vector)}, others=("ax",)),
    "plots.certified_fraction": Entry(on_figure(plots.certified_fraction), {"largest": (np.arange(N) * 1.0, vector), "attacked": (np.arange(N) * 1.0, refuse(vector, infinite=True)), "most": (3, refuse(whole, least=0, optional=True))}, others=("ax",)),
    "plots.determination_rate": Entry(on_figure(plots.determination_rate), {"x": (ONES, weights), "labels": ({"a": [Y] * N}, only({"a": Y[:2]}, {"a": 0.0}))}, others=("ax",)),
}  # fmt: skip

TABLE = CHANGES | QUESTIONS | TRAINED | FUNCTIONS | FILES | ESTIMATORS | PLOTS
os.makedirs(FOLDER, exist_ok=True)
