"""What users may pass: every input either works like its plain form, or is refused by name and with the remedy."""

import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from jax.experimental import sparse as jsparse

import jaxbounds as jb
from jaxbounds import losses, penalties
from jaxbounds.array import put
from jaxbounds.inputs import Inputs
from jaxbounds.matrix import as_matrix
from jaxbounds.messages import brief, few
from jaxbounds.model import Data, remember

N, D = 6, 4
RNG = np.random.default_rng(0)
X = np.round(RNG.normal(size=(N, D)) * 8) / 8  # exact in float16
X[1, 2] = X[4, 0] = 0.0
Y = np.array([1.0, -1.0, 1.0, 1.0, -1.0, -1.0])
SVM = jb.Problem(losses.smoothed_hinge(0.5), penalties.l2(0.1))


def make(loss, penalty, data=X, y=Y):
    with jax.enable_x64(True):
        arrays = put(Data(as_matrix(data), y, np.ones(N)))
        return remember(jb.Problem(loss, penalty), arrays, 0.1 * np.ones(D), np.full(N, 0.5))


MODEL = make(losses.smoothed_hinge(0.5), penalties.l2(0.1))
SPARSE = make(losses.smoothed_hinge(0.5), penalties.l2(0.1), sp.csr_array(X))
VECTOR = make(losses.smoothed_hinge(0.5), penalties.l2(np.ones(D)))
HINGE = make(losses.hinge(), penalties.l2(0.1))
LASSO = make(losses.logistic(), penalties.l1(0.1))
BARE = MODEL.without_data()
BOUNDS = jb.bound(MODEL, jb.set_targets([0], [-1.0]))


def bad(array, at, value):
    array = np.array(array, float)
    array[at] = value
    return array


def bound(change, model=MODEL, method=None):
    return jb.bound(model, change, method)


# call -> (error, what its message must say)
REFUSED = {
    # the data of a fit
    "NaN in X": (lambda: jb.fit(SVM, bad(X, (2, 1), np.nan), Y), r"X\[2, 1\] is nan.*finite: drop or impute"),
    "inf in sparse X": (lambda: jb.fit(SVM, sp.csr_array(bad(X, (2, 1), np.inf)), Y), r"X\[2, 1\] is inf"),
    "X is a row": (lambda: jb.fit(SVM, X[0], Y), r"X must be two-dimensional.*\(4,\).*row is X\[None, :\]"),
    "X has three axes": (lambda: jb.fit(SVM, X[None], Y), r"X must be two-dimensional"),
    "no rows": (lambda: jb.fit(SVM, X[:0], Y[:0]), r"X is empty.*\(0, 4\).*at least one"),
    "no columns": (lambda: jb.fit(SVM, X[:, :0], Y), r"X is empty.*\(6, 0\).*at least one"),
    "X is text": (lambda: jb.fit(SVM, X.astype(str), Y), r"X has dtype <U.*X.astype\(float\)"),
    "X is complex": (lambda: jb.fit(SVM, X + 1j, Y), r"X has dtype complex128.*real numbers"),
    "X is None": (lambda: jb.fit(SVM, None, Y), r"X has dtype object"),
    "X is ragged": (lambda: jb.fit(SVM, [[1.0], [1.0, 2.0]], Y), r"X must hold rows.*equally long"),
    "X is masked": (lambda: jb.fit(SVM, np.ma.masked_array(X, X > 1), Y), r"X is a masked array.*filled"),
    "labels 0/1": (lambda: jb.fit(SVM, X, (Y + 1) / 2), r"y must hold labels.*0/1.*convert with 2 \* y - 1"),
    "labels 0/1, integers": (lambda: jb.fit(SVM, X, (Y > 0).astype(int)), r"convert with 2 \* y - 1"),
    "labels are booleans": (lambda: jb.fit(SVM, X, Y > 0), r"y must hold labels.*booleans; convert with 2 \* y - 1"),
    "labels all 0": (lambda: jb.fit(SVM, X, np.zeros(N)), r"convert with 2 \* y - 1"),
    "a third label": (lambda: jb.fit(SVM, X, bad(Y, 3, 2.0)), r"y\[3\] = 2.0 is not a label; labels are -1 and \+1"),
    "NaN in y": (lambda: jb.fit(SVM, X, bad(Y, 3, np.nan)), r"y\[3\] = nan is not finite; remove or replace"),
    "y is short": (lambda: jb.fit(SVM, X, Y[:3]), r"y must have shape \(6,\), got \(3,\)"),
    "y is a column": (lambda: jb.fit(SVM, X, Y[:, None]), r"y must have shape \(6,\), got \(6, 1\); .*y.ravel\(\)"),
    "y is text": (lambda: jb.fit(SVM, X, ["a"] * N), r"y must hold real numbers, got dtype <U1; y\[0\] = .a. is text"),
    "y is ragged": (lambda: jb.fit(SVM, X, [[1], [1, 1]]), r"y must hold real numbers, got a ragged"),
    "y is masked": (lambda: jb.fit(SVM, X, np.ma.masked_array(Y, Y > 0)), r"y is a masked array.*fill or drop"),
    "weight 0": (lambda: jb.fit(SVM, X, Y, sample_weight=bad(np.ones(N), 2, 0)), r"sample_weight\[2\] = 0.0 is not"),
    "weight < 0": (lambda: jb.fit(SVM, X, Y, sample_weight=bad(np.ones(N), 2, -1)), r"sample_weight\[2\] = -1.0"),
    "weight NaN": (lambda: jb.fit(SVM, X, Y, sample_weight=bad(np.ones(N), 2, np.nan)), r"sample_weight\[2\] = nan"),
    "weights short": (lambda: jb.fit(SVM, X, Y, sample_weight=np.ones(3)), r"sample_weight must have shape \(6,\)"),
    # the other arguments of a fit
    "tol 0": (lambda: jb.fit(SVM, X, Y, tol=0), r"tol must be a positive number, got 0"),
    "tol NaN": (lambda: jb.fit(SVM, X, Y, tol=np.nan), r"tol must be a positive number, got nan"),
    "tol is text": (lambda: jb.fit(SVM, X, Y, tol="small"), r"tol must be a positive number, got 'small'"),
    "steps < 0": (lambda: jb.fit(SVM, X, Y, max_steps=-1), r"max_steps must be a whole number.*-1"),
    "half a step": (lambda: jb.fit(SVM, X, Y, max_steps=1.5), r"max_steps must be a whole number.*1.5"),
    "callback": (lambda: jb.fit(SVM, X, Y, callback=3), r"callback must be a function.*3"),
    "solver by name": (lambda: jb.fit(SVM, X, Y, solver="newton"), r"solver must be an object.*NewtonCG\(\)"),
    "solver class": (lambda: jb.fit(SVM, X, Y, solver=jb.solvers.NewtonCG), r"solver must be an object.*got NewtonCG"),
    "start is short": (lambda: jb.fit(SVM, X, Y, warm_start=np.zeros(3)), r"warm_start must have shape \(4,\)"),
    "start is NaN": (lambda: jb.fit(SVM, X, Y, warm_start=bad(np.zeros(D), 1, np.nan)), r"warm_start\[1\] = nan"),
    "no problem": (lambda: jb.fit(losses.hinge(), X, Y), r"problem must be a jb.Problem, got Hinge"),
    "swapped": (lambda: jb.fit(jb.Problem(penalties.l2(1.0), losses.hinge()), X, Y), r"loss must come from jb.losses"),
    "scale": (lambda: jb.fit(jb.Problem(losses.hinge(), penalties.l2(1.0), "Mean"), X, Y), r'scale must be "mean"'),
    "intercept": (
        lambda: jb.fit(jb.Problem(losses.hinge(), penalties.l2(1.0), intercept=True), X, Y),
        r"intercept=True needs a differentiable loss, and hinge .*a column of ones",
    ),
    "neither A nor B": (
        lambda: jb.fit(jb.Problem(losses.hinge(), penalties.l1(1.0)), X, Y),
        r"hinge is not smooth \(property A\).*l1 is not strongly convex \(property B\); use",
    ),
    "lam of 3 for 4": (
        lambda: jb.fit(jb.Problem(losses.hinge(), penalties.l2(np.ones(3))), X, Y), r"length 3, but X has 4 columns"),
    # parameters
    "lam 0": (lambda: penalties.l2(0.0), r"lam = 0 is not allowed; choose .* greater than 0"),
    "lam < 0": (lambda: penalties.elastic_net(-1, 1), r"lam = -1 is not allowed; choose"),
    "lam NaN": (lambda: penalties.l2(np.nan), r"lam = nan is not allowed"),
    "lam vector": (lambda: penalties.l2([1, 0, 1.0]), r"lam\[1\] = 0 is not allowed"),
    "lam is text": (lambda: penalties.l2("1"), r"lam must be a number.*'1'; pass"),
    "l1 < 0": (lambda: penalties.elastic_net(1.0, -1.0), r"l1 = -1 is not allowed; .*at least 0"),
    "kappa 0": (lambda: penalties.l1(0), r"kappa = 0 is not allowed"),
    "q 1": (lambda: penalties.lq(1.0, 1.0), r"q = 1 is not allowed; .*greater than 1"),
    "gamma 0": (lambda: losses.smoothed_hinge(0), r"gamma = 0 is not allowed"),
    "delta < 0": (lambda: losses.huber(-1.0), r"delta = -1 is not allowed"),
    # bound
    "no model": (lambda: jb.bound(SVM, jb.remove_rows([0])), r"model must come from fit, got Problem"),
    "no change": (lambda: jb.bound(MODEL, "x"), r"change must come from set_rows.*got str"),
    "method class": (lambda: bound(jb.remove_rows([0]), method=jb.Cached), r"method .*class Cached; call it"),
    "method by name": (lambda: bound(jb.remove_rows([0]), method="cached"), r"method must be .*got str"),
    "case i, hinge": (lambda: bound(jb.remove_rows([0]), HINGE, jb.Theorem1("i")), r"smooth loss \(property A\)"),
    "case iii, hinge": (lambda: bound(jb.remove_rows([0]), HINGE, jb.Theorem1("iii")), r"smooth loss \(property A\)"),
    "case ii, L1": (lambda: bound(jb.remove_rows([0]), LASSO, jb.Theorem1("ii")), r"\(property B\).*l1"),
    "case iii, L1": (lambda: bound(jb.remove_rows([0]), LASSO, jb.Theorem1("iii")), r"\(property B\)"),
    "case iv": (lambda: bound(jb.remove_rows([0]), method=jb.Theorem1("iv")), r"case must be .*got 'iv'"),
    "L1 for hinge": (lambda: bound(jb.set_penalty(penalties.l1(0.1)), HINGE), r"neither property .*add an L2 part"),
    "case ii, new L1": (
        lambda: bound(jb.set_penalty(penalties.l1(0.1)), MODEL, jb.Theorem1("ii")), r"\(property B\), and l1"),
    # indices
    "fractions": (lambda: jb.remove_rows([0.5]), r"rows must hold integers, got dtype float64; use"),
    "mask": (lambda: jb.remove_rows(np.ones(N, bool)), r"rows must hold integers, got dtype bool; use np.flatnonzero"),
    "negative": (lambda: jb.set_targets([2, -1], 1), r"rows\[1\] = -1 is out of range; numbers count from 0"),
    "repeated": (lambda: jb.set_weights([2, 3, 2], 1), r"rows\[2\] = 2 is repeated; name each only once"),
    "repeated columns": (lambda: jb.remove_columns([1, 1]), r"cols\[1\] = 1 is repeated"),
    "int64 wraps to 1": (lambda: jb.remove_rows(np.array([0, 2**32 + 1])), r"rows\[1\] = 4294967297 is out of range"),
    "uint64": (lambda: jb.remove_rows(np.array([1, 2**63], np.uint64)), r"rows\[1\] = 9223372036854775808 is out of"),
    "two axes": (lambda: jb.remove_rows([[1, 2]]), r"rows must be one-dimensional, got shape \(1, 2\)"),
    "none at all": (lambda: jb.remove_rows([]), r"rows is empty; name at least one"),
    "ragged": (lambda: jb.remove_rows([[1], [2, 3]]), r"rows must hold integers, got a ragged sequence"),
    "past the rows": (lambda: bound(jb.remove_rows([2, 6])), r"rows\[1\] = 6 is not a row of the data, which has 6"),
    "past the columns": (lambda: bound(jb.set_columns([4], np.ones((N, 1)))), r"cols\[0\] = 4 is not a column"),
    # elements
    "element lengths": (lambda: jb.set_elements([0, 1], [0], [1.0, 2.0]), r"rows and cols .* same length.*2 and 1"),
    "element values": (lambda: jb.set_elements([0, 1], [0, 1], [1.0, 2.0, 3.0]), r"values must have shape \(2,\)"),
    "element twice": (lambda: jb.set_elements([0, 1, 0], [2, 1, 2], 1.0), r"element 2, \(0, 2\), is repeated"),
    "element NaN": (lambda: jb.set_elements([0, 1], [0, 1], [1.0, np.nan]), r"values\[1\] = nan is not finite"),
    "element row": (lambda: bound(jb.set_elements([0, 6], [0, 1], 1.0)), r"rows\[1\] = 6 is not a row"),
    "element column": (lambda: bound(jb.set_elements([0, 5], [0, 4], 1.0)), r"cols\[1\] = 4 is not a column"),
    "element text": (lambda: jb.set_elements([0], [0], ["a"]), r"values must hold real numbers"),
    # rows and columns
    "row width": (lambda: bound(jb.set_rows([0], np.ones((1, 5)))), r"X_new must have 4 columns, got 5"),
    "row count": (lambda: jb.set_rows([0, 1], np.ones((1, D))), r"X_new must have 2 rows, got 1"),
    "row NaN": (lambda: jb.set_rows([0, 1], bad(np.ones((2, D)), (1, 2), np.nan)), r"X_new\[1, 2\] is nan"),
    "row labels 0/1": (lambda: bound(jb.set_rows([0, 1], np.ones((2, D)), [1, 0])), r"y_new\[1\] = 0.0.*2 \* y_new"),
    "row labels short": (lambda: jb.set_rows([0, 1], np.ones((2, D)), [1]), r"y_new must have shape \(2,\)"),
    "column height": (lambda: bound(jb.set_columns([0], np.ones((7, 1)))), r"X_new must have 6 rows, got 7"),
    "column count": (lambda: jb.set_columns([0], np.ones((N, 2))), r"X_new must have 1 columns, got 2"),
    "targets 0/1": (lambda: bound(jb.set_targets([0, 1], [0, 1])), r"y_new\[0\] = 0.0 is not a label.*2 \* y_new - 1"),
    "targets True": (lambda: jb.set_targets([0, 1], [True, True]), r"y_new .*booleans; convert .*2 \* y_new - 1"),
    "targets NaN": (lambda: jb.set_targets([0, 1], [1, np.nan]), r"y_new\[1\] = nan is not finite"),
    "new weight 0": (lambda: jb.set_weights([0], [0.0]), r"weights\[0\] = 0.0 is not positive; remove"),
    "new weight NaN": (lambda: jb.set_weights([0, 1], [1, np.nan]), r"weights\[1\] = nan"),
    "added width": (lambda: bound(jb.add_rows(np.ones((2, 5)), [1, 1])), r"X_new of add_rows must have 4 columns.*5"),
    "added labels": (lambda: bound(jb.add_rows(np.ones((2, D)), [1, 0])), r"y_new\[1\] = 0.0 is not a label"),
    "added y short": (lambda: jb.add_rows(np.ones((2, D)), [1]), r"y_new must have shape \(2,\)"),
    "added weight": (lambda: jb.add_rows(np.ones((2, D)), [1, 1], [1.0, -1]), r"sample_weight\[1\] = -1.0 is not"),
    "added nothing": (lambda: jb.add_rows(np.ones((0, D)), []), r"X_new is empty"),
    "added height": (lambda: bound(jb.add_columns(np.ones((5, 2)))), r"X_new of add_columns must have 6 rows.*5"),
    "added column, vector lam": (
        lambda: bound(jb.add_columns(np.ones((N, 1))), VECTOR), r"length 4, but .* 5 columns.*combine .*set_penalty"),
    "new vector lam": (lambda: bound(jb.set_penalty(penalties.l2(np.ones(3)))), r"length 3, but .* 4 columns"),
    "all rows": (lambda: bound(jb.remove_rows(np.arange(N))), r"remove_rows leaves no row at all; keep at least one"),
    "all rows, keep_n": (lambda: bound(jb.remove_rows(np.arange(N), keep_n=True)), r"remove_rows leaves no row at all"),
    "all columns": (lambda: bound(jb.remove_columns(np.arange(D))), r"remove_columns leaves no column at all; keep"),
    "no penalty": (lambda: jb.set_penalty(0.1), r"penalty must come from jb.penalties, got 0.1; write for"),
    # combined
    "combine nothing": (lambda: jb.combine(), r"combine needs at least one change"),
    "combine a number": (lambda: jb.combine(jb.remove_rows([0]), 3), r"changes\[1\] is not a change, got int"),
    "combine a list": (lambda: jb.combine([jb.remove_rows([0])]), r"changes\[0\] is not a change, got list"),
    "removed row": (
        lambda: bound(jb.combine(jb.remove_rows([3, 0]), jb.set_targets([1, 0], 1))),
        r"row 0 was removed by an earlier part of the change; drop one",
    ),
    "removed row, element": (
        lambda: bound(jb.combine(jb.remove_rows([0]), jb.set_elements([0], [1], 1))), r"row 0 was removed"),
    "removed column": (
        lambda: bound(jb.combine(jb.remove_columns([1]), jb.set_elements([0], [1], 1))), r"column 1 was removed"),
    "removed twice": (lambda: bound(jb.combine(jb.remove_rows([0]), jb.remove_rows([0]))), r"row 0 was removed"),
    # models without data
    "old rows": (lambda: bound(jb.remove_rows([0]), BARE), r"old_values is missing.*without its data"),
    "old elements": (lambda: bound(jb.set_elements([0], [0], 1.0), BARE), r"old_values is missing"),
    "old columns": (lambda: bound(jb.remove_columns([0]), BARE), r"old_values is missing"),
    "old width": (lambda: bound(jb.remove_rows([0], old_values=np.ones((1, 3))), BARE), r"old_values .* 4 columns"),
    "old height": (
        lambda: bound(jb.remove_columns([0], old_values=np.ones((3, 1))), BARE), r"old_values must have 6 rows"),
    "refit without data": (lambda: jb.refit(BARE, jb.remove_rows([0])), r"refit needs the data.*change.apply and fit"),
    # apply
    "apply past the rows": (lambda: jb.remove_rows([9]).apply(X, Y), r"rows\[0\] = 9 is not a row"),
    "apply to short y": (lambda: jb.remove_rows([0]).apply(X, Y[:3]), r"y must have shape \(6,\), got \(3,\)"),
    "apply to NaN": (lambda: jb.remove_rows([0]).apply(bad(X, (0, 0), np.nan), Y), r"X\[0, 0\] is nan"),
    "apply to removed": (
        lambda: jb.combine(jb.remove_rows([0]), jb.set_targets([0], [1])).apply(X, Y), r"row 0 was removed"),
    "apply all": (lambda: jb.remove_rows(np.arange(N)).apply(X, Y), r"remove_rows leaves no row at all"),
    # Bounds and Model
    "w of a fraction": (lambda: BOUNDS.w(0.5), r"j must hold integers, got dtype float64"),
    "w of a mask": (lambda: BOUNDS.w(np.ones(D, bool)), r"j must hold integers, got dtype bool"),
    "w past the end": (lambda: BOUNDS.w([0, 4]), r"j = 4 is out of range; numbers run from 0 to 3"),
    "w of -1": (lambda: BOUNDS.w(-1), r"j = -1 is out of range"),
    "alpha past the end": (lambda: BOUNDS.alpha(6), r"i = 6 is out of range; numbers run from 0 to 5"),
    "scores, width": (lambda: BOUNDS.scores(np.ones((2, 3))), r"X must have 4 columns.*got 3"),
    "scores, NaN": (lambda: BOUNDS.scores(bad(np.ones((2, D)), (1, 1), np.nan)), r"X\[1, 1\] is nan"),
    "scores of a row": (lambda: BOUNDS.scores(np.ones(D)), r"X must be two-dimensional.*X\[None, :\]"),
    "labels of text": (lambda: BOUNDS.labels([["a"] * D]), r"X has dtype <U1"),
    "decided, width": (lambda: BOUNDS.decided(np.ones((2, 5))), r"X must have 4 columns"),
    "model scores": (lambda: MODEL.scores(np.ones((2, 3))), r"X must have 4 columns like the training data, got 3"),
    # Problem
    "primal w": (lambda: SVM.primal(X, Y, np.zeros(3)), r"w must have shape \(4,\), got \(3,\)"),
    "primal NaN": (lambda: SVM.primal(X, Y, bad(np.zeros(D), 1, np.nan)), r"w\[1\] = nan is not finite"),
    "primal labels": (lambda: SVM.primal(X, (Y + 1) / 2, np.zeros(D)), r"convert with 2 \* y - 1"),
    "primal weights": (lambda: SVM.primal(X, Y, np.zeros(D), -np.ones(N)), r"sample_weight\[0\] = -1.0"),
    "primal intercept": (lambda: SVM.primal(X, Y, np.zeros(D), intercept=np.nan), r"intercept = nan is not finite"),
    "dual alpha": (lambda: SVM.dual(X, Y, np.zeros(D)), r"alpha must have shape \(6,\), got \(4,\)"),
    "gap alpha": (lambda: SVM.gap(X, Y, np.zeros(D), np.full(N, np.inf)), r"alpha\[0\] = inf is not finite"),
    "gap X": (lambda: SVM.gap(X[:, :0], Y, np.zeros(0), np.zeros(N)), r"X is empty"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    call, message = REFUSED[name]
    with pytest.raises((ValueError, TypeError)) as error:
        call()
    assert re.search(message, str(error.value), re.DOTALL), f"said: {error.value}"


LARGE, WORDS, NAMES = np.ones((500, 40)), "word " * 500, [f"column {j}" for j in range(300)]
NAMED = replace(MODEL, inputs=Inputs((), (), D, names=tuple("abcd")))
SWAPPED = {  # calls with values that no message may print whole
    "k": lambda: jb.worst_case_removal(MODEL, LARGE, 5), "top": lambda: jb.influence(MODEL, X, top=LARGE),
    "resolve": lambda: jb.leave_one_out(MODEL, resolve=LARGE), "keep_n": lambda: jb.leave_one_out(MODEL, keep_n=WORDS),
    "tol": lambda: jb.fit(SVM, X, Y, tol=LARGE), "max_steps": lambda: jb.fit(SVM, X, Y, max_steps=LARGE),
    "callback": lambda: jb.fit(SVM, X, Y, callback=LARGE.tolist()), "gamma": lambda: losses.smoothed_hinge(WORDS),
    "params": lambda: losses.from_margin(jnp.square, 2.0, params=LARGE), "classes": lambda: losses.softmax(LARGE),
    "phi": lambda: losses.from_margin(LARGE), "domain": lambda: losses.from_margin(jnp.square, 2.0, domain=LARGE),
    "intercept": lambda: jb.fit(jb.Problem(SVM.loss, SVM.penalty, intercept=NAMES), X, Y),
    "scale": lambda: jb.fit(jb.Problem(SVM.loss, SVM.penalty, scale=WORDS), X, Y),
    "case": lambda: bound(jb.remove_rows([0]), method=jb.Theorem1(case=WORDS)),
    "cg_steps": lambda: bound(jb.remove_rows([0]), method=jb.Pass(cg_steps=NAMES)),
    "batch_size": lambda: jb.bound_each(MODEL, jb.each_row_removed(MODEL), batch_size=LARGE),
    "retrain": lambda: jb.Monitor(MODEL, 1.0, retrain=LARGE), "theta": lambda: jb.Monitor(MODEL, LARGE),
    "cols": lambda: bound(jb.remove_columns(NAMES), NAMED), "y_new": lambda: bound(jb.set_targets([0], [WORDS]), NAMED),
    "one col": lambda: bound(jb.remove_columns([WORDS]), replace(MODEL, inputs=Inputs((), (), 300, names=(*NAMES,)))),
    "penalties": lambda: jb.penalty_sweep(MODEL, LARGE, X, Y), "measure": lambda: jb.best_penalty(
        SVM, X, Y, X, Y, 0.1, 1.0, measure=WORDS), "folds": lambda: jb.cross_validate(MODEL, LARGE),
    "threshold": lambda: jb.find_label_errors(make(losses.squared(), penalties.l2(1.0)), threshold=LARGE),
    "change": lambda: bound(LARGE), "model": lambda: jb.bound(LARGE, jb.remove_rows([0])),
}  # fmt: skip


@pytest.mark.parametrize("name", SWAPPED)
def test_messages_are_short(name):
    with pytest.raises((ValueError, TypeError)) as told:
        SWAPPED[name]()
    assert len(str(told.value)) < 320 and "\n" not in str(told.value)


def test_values_in_messages():
    said = {
        3: "3", 2.5: "2.5", None: "None", "text": "'text'", (1, 2): "(1, 2)", np.float64(0.1): "0.1", "x" * 99: None,
    }  # fmt: skip
    for value, text in said.items():
        assert brief(value) == text if text else len(brief(value)) == 60 and brief(value).endswith("...")
    assert brief(LARGE) == "ndarray of shape (500, 40)" and brief(NAMES) == "list of 300 items"
    assert brief(np.array(2)) == "2" and brief(np.ones(2)) == "ndarray of shape (2,)"
    assert brief("a\nb " * 3000).count("\n") == 0 and len(brief(np.array("x" * 500))) <= 60
    assert few("ab") == "['a', 'b']" and few(NAMES).endswith("'column 5', ...] (300 in all)")
    assert jax.jit(lambda v: len(brief(v)) + 0 * v)(1.0) <= 60


# ---------------------------------------------------------------- inputs that work


class Frame:
    """Something like a data frame: only NumPy's protocol."""

    def __init__(self, data):
        self.data = data

    def __array__(self, dtype=None, copy=None):
        return np.array(self.data, dtype=dtype)


def _read_only(data):
    data = np.array(data)
    data.setflags(write=False)
    return data


def _strided(data):
    wide = np.zeros((2 * data.shape[0], 3 * data.shape[1]))
    wide[::2, ::3] = data
    return wide[::2, ::3]


def _messy_csr(data):
    """Unsorted rows, explicit zeros, and every entry in two halves."""
    rows, cols = np.indices(data.shape)
    order = np.argsort(-cols.ravel(), kind="stable")
    rows, cols = rows.ravel()[order], cols.ravel()[order]
    values = data[rows, cols]
    order = np.argsort(np.concatenate([rows, rows]), kind="stable")
    start = np.arange(data.shape[0] + 1) * 2 * data.shape[1]
    return sp.csr_array(
        (np.concatenate([values, values])[order] / 2, np.concatenate([cols, cols])[order], start), shape=data.shape)


def _padded_bcoo(data):
    return jsparse.BCOO.fromdense(jnp.asarray(data, jnp.float32), nse=data.size + 3)


DENSE_FORMS = {
    "list": lambda a: a.tolist(),
    "Fortran": np.asfortranarray,
    "strided": _strided,
    "negative strides": lambda a: a[::-1, ::-1].copy()[::-1, ::-1],
    "read-only": _read_only,
    "big-endian": lambda a: a.astype(">f8"),
    "float32": lambda a: a.astype(np.float32),
    "float16": lambda a: a.astype(np.float16),
    "bfloat16": lambda a: jnp.asarray(a, jnp.bfloat16),
    "longdouble": lambda a: a.astype(np.longdouble),
    "integers": lambda a: a.astype(np.int16),
    "unsigned": lambda a: np.abs(a).astype(np.uint8),
    "booleans": lambda a: a > 0,
    "masked, nothing hidden": np.ma.masked_array,
    "array protocol": Frame,
    "jax": lambda a: jnp.asarray(a, jnp.float32),
}
SPARSE_FORMS = {
    "csr": sp.csr_array,
    "csr_matrix": sp.csr_matrix,
    "csc": sp.csc_array,
    "coo": sp.coo_array,
    "lil": sp.lil_array,
    "dok": sp.dok_array,
    "messy csr": _messy_csr,
    "integers": lambda a: sp.csr_array(a.astype(np.int32)),
    "float32": lambda a: sp.csr_array(a.astype(np.float32)),
    "BCOO": lambda a: jsparse.BCOO.fromdense(jnp.asarray(a, jnp.float32)),
    "BCOO, padded": _padded_bcoo,
    "BCSR": lambda a: jsparse.BCSR.fromdense(jnp.asarray(a, jnp.float32)),
}
FORMS = {f"dense {k}": v for k, v in DENSE_FORMS.items()} | {f"sparse {k}": v for k, v in SPARSE_FORMS.items()}


def plain(form, data):
    """The same numbers as a float64 array."""
    if "integers" in form:
        return np.trunc(data)
    if "unsigned" in form:
        return np.trunc(np.abs(data))
    return (data > 0).astype(float) if "booleans" in form else data


@pytest.mark.parametrize("form", FORMS)
def test_every_form_equals_the_plain_one(form):
    data, want = FORMS[form](X), plain(form, X)
    before = data.copy() if isinstance(data, np.ndarray) or sp.issparse(data) else None
    w = np.array([0.3, -0.2, 0.5, 0.1])
    assert np.isclose(float(SVM.primal(data, Y, w)), float(SVM.primal(want, Y, w)), rtol=1e-14)
    rows = [2, 0]
    block = np.asarray(X[:2])
    for model in (MODEL, SPARSE):
        close(model.scores(data), model.scores(want))
        got = bound(jb.set_rows(rows, FORMS[form](block)), model)
        base = bound(jb.set_rows(rows, plain(form, block)), model)
        close(got.radius, base.radius)
        close(got.scores(data).lower, base.scores(want).lower)
        assert np.array_equal(got.labels(data), base.labels(want))
        got = bound(jb.combine(jb.add_rows(data, Y), jb.set_columns([1], FORMS[form](X[:, :1]))), model)
        base = bound(jb.combine(jb.add_rows(want, Y), jb.set_columns([1], plain(form, X[:, :1]))), model)
        close(got.radius, base.radius)
    new, y, _ = jb.remove_rows([1]).apply(data, Y)
    close(new.toarray() if sp.issparse(new) else new, np.delete(want, 1, axis=0))
    assert y.shape == (N - 1,)
    if before is not None:
        same = (before != data).nnz == 0 if sp.issparse(data) else np.array_equal(before, data)
        assert same, "the caller's data were changed"


def close(got, want):
    np.testing.assert_allclose(np.asarray(got, np.float64), np.asarray(want, np.float64), rtol=1e-10, atol=1e-14)


TARGET_FORMS = {
    "list": lambda a: a.tolist(),
    "integers": lambda a: a.astype(np.int8),
    "float16": lambda a: a.astype(np.float16),
    "big-endian": lambda a: a.astype(">f8"),
    "read-only": _read_only,
    "strided": lambda a: np.repeat(a, 2)[::2],
    "jax": lambda a: jnp.asarray(a, jnp.float32),
    "array protocol": Frame,
    "masked, nothing hidden": np.ma.masked_array,
}


@pytest.mark.parametrize("form", TARGET_FORMS)
def test_every_form_of_vector_equals_the_plain_one(form):
    put_in = TARGET_FORMS[form]
    w = np.array([0.5, -0.25, 0.5, 1.0])
    want = float(SVM.gap(X, Y, w, np.ones(N), np.full(N, 2.0)))
    assert float(SVM.gap(X, put_in(Y), w, put_in(np.ones(N)), put_in(np.full(N, 2.0)))) == want
    k = [4, 1]
    pairs = [
        (jb.set_targets(k, put_in(-Y[k])), jb.set_targets(k, -Y[k])),
        (jb.set_weights(k, put_in(np.array([2.0, 3.0]))), jb.set_weights(k, [2.0, 3.0])),
        (jb.set_elements(k, [0, 3], put_in(np.array([2.0, 3.0]))), jb.set_elements(k, [0, 3], [2.0, 3.0])),
    ]
    for got, base in pairs:
        assert float(bound(got).radius) == float(bound(base).radius)


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64, np.uint64, ">i4", list, tuple, range, jnp.int32])
def test_every_form_of_index_equals_the_plain_one(kind):
    numbers = range(1, 4)
    if kind in (list, tuple):
        rows = kind(numbers)
    elif kind is jnp.int32:
        rows = jnp.arange(1, 4)
    else:
        rows = numbers if kind is range else np.arange(1, 4).astype(kind)
    assert float(bound(jb.remove_rows(rows)).radius) == float(bound(jb.remove_rows([1, 2, 3])).radius)
    assert BOUNDS.w(rows).lower.tolist() == [float(BOUNDS.w(j).lower) for j in numbers]
    assert float(bound(jb.remove_rows(2)).radius) == float(bound(jb.remove_rows([2])).radius)


def test_pandas():
    pandas = pytest.importorskip("pandas")
    frame, target = pandas.DataFrame(X), pandas.Series(Y)
    w = np.ones(D)
    assert float(SVM.primal(frame, target, w)) == float(SVM.primal(X, Y, w))
    assert float(bound(jb.set_rows([0], frame.iloc[[1]])).radius) == float(bound(jb.set_rows([0], X[[1]])).radius)


def test_fit_takes_what_the_table_takes():
    """A few forms through a whole fit; the rest share its first step, `as_matrix`."""
    want = jb.fit(SVM, X, Y, tol=1e-10)
    for data, y in ((_strided(X), Y.astype(int)), (X.astype(">f8"), Y.tolist()), (Frame(X), Frame(Y))):
        close(jb.fit(SVM, data, y, tol=1e-10).w, want.w)
    assert jb.fit(SVM, X.astype(np.float16), Y, tol=1e-6).w.dtype == np.float32
    for column in (X[:, :1], np.zeros((N, 1))):  # one column, and one that is empty
        assert float(jb.fit(SVM, column, Y).gap) <= 1e-8


def test_regression_takes_any_finite_target():
    problem = jb.Problem(losses.squared(), penalties.l2(1.0))
    assert np.isfinite(float(problem.primal(X, [0, 1, 2, 3, 4, 5], np.zeros(D))))
    with pytest.raises(ValueError, match=r"y\[1\] = inf is not finite"):
        problem.primal(X, bad(Y, 1, np.inf), np.zeros(D))


def test_infeasible_pairs_are_values_not_errors():
    assert float(SVM.gap(X, Y, np.zeros(D), np.full(N, 2.0))) == np.inf
    assert float(SVM.dual(X, Y, np.full(N, 2.0))) == -np.inf
