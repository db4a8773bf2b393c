"""Pipelines of scikit-learn as models: changes and rows in raw units, columns by name, against the step's own refit."""

import copy
import pickle
from dataclasses import replace

import jax
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import LinearSVC

import jaxbounds as jb

N, D = 40, 5
LOGISTIC = LogisticRegression(C=0.5, solver="newton-cholesky", tol=1e-10, max_iter=1000)
SVC = LinearSVC(C=0.1, tol=1e-10, max_iter=1_000_000, random_state=0)
RIDGE = Ridge(alpha=0.5, tol=1e-12)
SLACK = 1e-6  # what scikit-learn's own tolerance leaves


def data():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(N, D)) * np.array([1.0, 100.0, 1e-3, 5.0, 2.0]) + np.array([3.0, -400.0, 0.0, 0.0, 1.0])
    margin = (X - X.mean(axis=0)) / X.std(axis=0) @ np.array([1.0, -1.0, 0.5, 0.0, 0.2]) + 0.3 * rng.normal(size=N)
    return X, np.where(margin > 0, 1, 0), margin


def changes(X):
    """Name -> (change, in raw units)."""
    return {
        "removed": jb.remove_rows([3, 17]),
        "elements": jb.set_elements([0, 5, 9], [1, 4, 2], [-350.0, 1.5, 1e-3]),
        "rows": jb.set_rows([11], X[[2]]),
        "column": jb.set_columns([1], X[:, [1]] + 5.0),
        "added": jb.add_rows(X[[7]] * 1.1, [1.0]),
        "all": jb.combine(jb.remove_rows([8]), jb.set_elements([4], [0], [2.0]), jb.remove_columns([3])),
    }


PIPELINES = {
    "standard_logistic": make_pipeline(StandardScaler(), LOGISTIC),
    "minmax_svc": make_pipeline(MinMaxScaler((-1, 1)), SVC),
    "robust_ridge": make_pipeline(RobustScaler(), RIDGE),
    "two_scalers": Pipeline([("a", MaxAbsScaler()), ("b", "passthrough"), ("c", StandardScaler()), ("d", LOGISTIC)]),
}


@pytest.mark.parametrize("name", PIPELINES)
def test_bounds_in_raw_units_contain_the_steps_refit(name):
    X, labels, numbers = data()
    ridge = name.endswith("ridge")
    y, target = (numbers, numbers) if ridge else (labels, 2.0 * labels - 1.0)
    pipe = clone(PIPELINES[name]).fit(X, y)
    model = jb.from_sklearn(pipe, X, y)
    d = pipe[-1].coef_.size
    np.testing.assert_array_equal(np.asarray(model.w)[:d], pipe[-1].coef_.ravel())
    output = pipe.predict if ridge else pipe.decision_function
    np.testing.assert_allclose(np.asarray(model.scores(X)), output(X), atol=SLACK)
    for kind, change in changes(X).items():
        new_X, new_y, _ = change.apply(X, target)
        kept = np.arange(D) if kind != "all" else np.array([0, 1, 2, 4])
        raw = np.array(X[: len(new_y)])
        raw[:] = 0.0
        raw[:, kept] = new_X if kind != "added" else new_X[: len(raw)]
        raw = np.vstack([raw, new_X[len(raw) :]]) if kind == "added" else raw
        step = clone(pipe[-1]).fit(pipe[:-1].transform(raw)[:, kept], new_y)
        test = pipe[:-1].transform(X)[:, kept]
        truth = step.predict(test) if ridge else step.decision_function(test)
        for method in (None, jb.Curvature()):
            interval = jb.bound(model, change, method).scores(X)
            assert np.all(interval.lower <= truth + SLACK) and np.all(truth - SLACK <= interval.upper), kind
        assert np.max(interval.upper - interval.lower) < 1e-3, kind  # Curvature is exact up to the step's tolerance


def test_no_change_in_raw_units_is_no_change():
    X, y, _ = data()
    pipe = clone(PIPELINES["standard_logistic"]).fit(X, y)
    model = jb.from_sklearn(pipe, X, y)
    nothing = jb.bound(model, jb.set_weights([0], [1.0]))
    same = jb.set_rows([1, 2], X[[1, 2]]), jb.set_columns([0], X[:, [0]]), jb.set_elements([1], [1], X[1, [1]])
    for change in same:
        assert jb.bound(model, change).gap == pytest.approx(float(nothing.gap), rel=1e-9, abs=1e-15)


def test_everything_else_takes_raw_units_too():
    X, y, _ = data()
    pipe = clone(PIPELINES["minmax_svc"]).fit(X, y)
    model = jb.from_sklearn(pipe, X, y)
    change = jb.combine(jb.set_rows([2, 3], X[[9, 10]]), jb.remove_rows([5]))
    bounds = jb.bound(model, change)
    retrained = jb.refit(model, change, tol=1e-12)
    scores = np.asarray(retrained.scores(X))
    interval = bounds.scores(X)
    assert np.all(interval.lower <= scores) and np.all(scores <= interval.upper)
    again = jb.bound(retrained, jb.set_rows([0], X[[1]])).scores(X)  # a refitted model still speaks raw units
    truth = np.asarray(jb.refit(retrained, jb.set_rows([0], X[[1]]), tol=1e-12).scores(X))
    assert np.all(again.lower <= truth + 1e-9) and np.all(truth - 1e-9 <= again.upper)
    decision = jb.decide(model, change, jb.LabelsKnown(X))
    assert np.all((decision.answer == 0) | (decision.answer == np.sign(scores)))
    assert decision.status == "decided"
    fewer = jb.decide(model, jb.remove_columns([1]), jb.LabelsKnown(X))
    truth = jb.refit(model, jb.remove_columns([1]), tol=1e-12).scores(np.delete(X, 1, axis=1))
    assert np.all((fewer.answer == 0) | (fewer.answer == np.sign(np.asarray(truth))))
    batch = jb.stack([jb.set_elements([0], [1], X[1, 1]), jb.set_elements([3], [0], 2.0)])
    each = jb.bound_each(model, batch, X)
    for k, one in enumerate((jb.set_elements([0], [1], X[1, 1]), jb.set_elements([3], [0], 2.0))):
        single = jb.bound(model, one)
        np.testing.assert_allclose(each.scores().upper[k], single.scores(X).upper, rtol=1e-9)
        np.testing.assert_allclose(each[k].distance.upper, single.distance.upper, rtol=1e-9)
    sweep = jb.penalty_sweep(model, [jb.penalties.l2(4.0)], X, 2.0 * y - 1.0)
    direct = jb.bound(model, jb.set_penalty(jb.penalties.l2(4.0))).scores(X)
    np.testing.assert_allclose(sweep.scores.upper[0], direct.upper, rtol=1e-9)
    np.testing.assert_allclose(jb.influence(model, X[:2], top=2).scores.upper,
                               jb.influence(jb.from_sklearn(pipe[-1], pipe[:-1].transform(X), y),
                                            pipe[:-1].transform(X)[:2], top=2).scores.upper, rtol=1e-9)  # fmt: skip


def test_copies_still_take_raw_units():
    X, y, _ = data()
    pipe = clone(PIPELINES["minmax_svc"]).fit(X, y)
    model, change = jb.from_sklearn(pipe, X, y), jb.set_rows([2], X[[9]])
    upper = jb.bound(model, change).scores(X).upper
    for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(jb.bound(twin, change).scores(X).upper, upper)


def test_old_values_are_raw_too():
    X, y, _ = data()
    pipe = clone(PIPELINES["minmax_svc"]).fit(X, y)
    model = jb.from_sklearn(pipe, X, y)
    pairs = [
        (jb.set_rows([1], X[[3]]), jb.set_rows([1], X[[3]], old_values=X[[1]])),
        (jb.remove_rows([4]), jb.remove_rows([4], old_values=X[[4]])),
        (jb.set_elements([6], [2], 0.0), jb.set_elements([6], [2], 0.0, old_values=X[6, [2]])),
        (jb.set_columns([0], X[:, [0]] + 1), jb.set_columns([0], X[:, [0]] + 1, old_values=X[:, [0]])),
    ]
    for with_data, without in pairs:
        one = jb.bound(model, with_data, jb.Theorem1()).gap
        assert float(jb.bound(model.without_data(), without, jb.Theorem1()).gap) == pytest.approx(float(one), rel=1e-6)


@pytest.mark.slow
def test_old_columns_without_data_are_raw_in_every_kind_of_change():
    """Small raw units: read as the model's own they would seem to move nothing, and the bound would be violated."""
    X, _, y = data()
    X = X * 1e-3
    ridge = clone(RIDGE).set_params(fit_intercept=False)
    pipe = make_pipeline(StandardScaler(), ridge).fit(X, y)
    model = jb.from_sklearn(pipe, X, y)
    for change, kept in ((jb.remove_columns([0, 1], old_values=X[:, :2]), [2, 3, 4]),
                         (jb.set_columns([0, 1], X[:, [1, 0]], old_values=X[:, :2]), None)):  # fmt: skip
        bounds = jb.bound(model.without_data(), change)
        np.testing.assert_allclose(bounds.gap, jb.bound(model, change).gap, rtol=1e-9)
        units, w = pipe[0].transform(X if kept else X[:, [1, 0, 2, 3, 4]]), np.zeros(D)
        w[kept or slice(None)] = clone(ridge).fit(units[:, kept or slice(None)], y).coef_
        distance = np.linalg.norm(w - np.asarray(model.w))
        assert bounds.distance.lower - SLACK <= distance <= bounds.distance.upper + SLACK


def test_raw_changes_inside_jit():
    import jax

    X, y, _ = data()
    pipe = clone(PIPELINES["minmax_svc"]).fit(X, y)
    model = jb.from_sklearn(pipe, X, y)

    @jax.jit
    def ends(model, value, row):
        change = jb.combine(jb.set_elements([0], [1], value), jb.set_rows([2], row))
        bounds = jb.bound(model, change)
        with jax.enable_x64(True):
            return bounds.gap, bounds.scores(row).upper

    value, row = np.array([-350.0]), X[[9]]
    with jax.enable_x64(True):
        gap, upper = ends(model, value, row)
    host = jb.bound(model, jb.combine(jb.set_elements([0], [1], value), jb.set_rows([2], row)))
    assert float(gap) == pytest.approx(float(host.gap), rel=1e-9)
    np.testing.assert_allclose(np.asarray(upper), host.scores(row).upper, rtol=1e-6)


def test_sparse_data_with_a_scaler_that_keeps_zeros():
    X, y, _ = data()
    sparse = sp.csr_matrix(np.where(np.abs(X) > np.median(np.abs(X), axis=0), X, 0.0))
    pipe = make_pipeline(MaxAbsScaler(), clone(SVC)).fit(sparse, y)
    dense, model = jb.from_sklearn(pipe, sparse.toarray(), y), jb.from_sklearn(pipe, sparse, y)
    for change in (jb.set_rows([1], sparse[[3]]), jb.set_columns([2], sparse[:, [1]]), jb.add_rows(sparse[[4]], [1.0])):
        one, other = jb.bound(model, change), jb.bound(dense, change)
        np.testing.assert_allclose(one.scores(sparse).upper, other.scores(sparse.toarray()).upper, rtol=1e-9)


# ---------------------------------------------------------------- names


class Frame:
    """As much of a data frame as is read here."""

    def __init__(self, values, columns):
        self.values, self.columns, self.shape = np.asarray(values), list(columns), np.shape(values)

    def __len__(self):
        return len(self.values)

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype)

    def __getitem__(self, names):
        return Frame(self.values[:, [self.columns.index(name) for name in names]], names)


unknown_frame = pytest.mark.filterwarnings("ignore:X does not have valid feature names")  # scikit-learn on Frame


@unknown_frame
def test_columns_and_labels_by_name():
    X, y, _ = data()
    words, names = np.where(y == 1, "yes", "no"), np.array(["age", "fare", "dose", "rate", "size"], object)
    pipe = make_pipeline(StandardScaler(), clone(SVC)).fit(X, words)
    pipe[0].feature_names_in_ = names  # as fitting on a data frame leaves them
    model = jb.from_sklearn(pipe, Frame(X[:, ::-1], names[::-1]), words)
    np.testing.assert_array_equal(np.asarray(model.w)[:D], pipe[-1].coef_[0])
    upset = Frame(X[[9]][:, ::-1], names[::-1])
    pairs = [
        (jb.set_columns(["fare"], X[:, [0]]), jb.set_columns([1], X[:, [0]])),
        (jb.set_elements([1, 2, 1], ["size", "size", "age"], 1.0), jb.set_elements([1, 2, 1], [4, 4, 0], 1.0)),
        (jb.remove_columns("rate"), jb.remove_columns([3])),
        (jb.set_targets([0, 1], ["no", "yes"]), jb.set_targets([0, 1], [-1, 1])),
        (jb.set_rows([3], upset, ["yes"]), jb.set_rows([3], X[[9]], [1])),
        (jb.combine(jb.add_rows(upset, "no"), jb.remove_rows([2])),
         jb.combine(jb.add_rows(X[[9]], [-1]), jb.remove_rows([2]))),
    ]  # fmt: skip
    new = X[:, [0, 2]] + [0.3, -0.2]
    turned = Frame(new[:, ::-1], ["dose", "age"])  # a data frame is read by name, whatever the order of its columns
    before = Frame(X[:, [2, 0]], ["dose", "age"])
    pairs += [(jb.set_columns(columns, turned), jb.set_columns([0, 2], new)) for columns in (["age", "dose"], [0, 2])]
    for old, numbered in (
        (jb.set_columns(["age", "dose"], turned, old_values=before), pairs[-1][1]),
        (jb.remove_columns([0, 2], old_values=before), jb.remove_columns([0, 2])),
        (jb.set_targets([9], "no", old_values=upset), jb.set_targets([9], [-1])),
        (jb.set_weights([9], 2.0, old_values=upset), jb.set_weights([9], 2.0)),
        (jb.remove_rows([9], old_values=upset), jb.remove_rows([9])),
    ):
        np.testing.assert_allclose(jb.bound(model.without_data(), old).gap, jb.bound(model, numbered).gap, 1e-9, 1e-12)
    for named, numbered in pairs:
        one, other = jb.bound(model, named), jb.bound(model, numbered)
        np.testing.assert_array_equal(one.gap, other.gap)
    np.testing.assert_array_equal(one.scores(upset).upper, other.scores(X[[9]]).upper)
    refitted = jb.refit(model, pairs[2][0])
    assert refitted.inputs.names == ("age", "fare", "dose", "size")
    assert jb.decide(model, pairs[0][0], jb.DistanceBelow(100.0)).answer is True
    mixed = [named for named, _ in pairs]
    each, plain = jb.bound_each(model, jb.stack(mixed, model)), jb.bound_each(model, jb.stack([p for _, p in pairs]))
    np.testing.assert_array_equal(each.distance.upper, plain.distance.upper)
    alike = jb.stack([jb.set_columns(name, X[:, [0]]) for name in ("fare", "size")], model)
    assert np.asarray(alike.cols).tolist() == [[1], [4]]


@unknown_frame
def test_names_that_are_not_known_are_refused():
    X, y, _ = data()
    pipe = clone(PIPELINES["minmax_svc"]).fit(X, y)
    plain = jb.from_sklearn(pipe, X, y)
    with pytest.raises(ValueError, match="cols holds names .'age', .* and these data have none; pass column numbers"):
        jb.bound(plain, jb.set_columns(["age"], X[:, [0]]))
    with pytest.raises(ValueError, match=r"y_new\[0\] = 'yes' is not one of the classes \[0, 1\]"):
        jb.bound(plain, jb.set_targets([0], ["yes"]))
    with pytest.raises(ValueError, match="these data have none"):
        jb.set_columns(["age"], X[:, [0]]).apply(X, y)
    with pytest.raises(ValueError, match=r"cols\[1\] = 'a' is repeated"):
        jb.set_columns(["a", "a"], X[:, :2])
    with pytest.raises(ValueError, match=r"changes\[0\] has names .* say whose they are, stack\(changes, model\)"):
        jb.stack([jb.remove_columns(["a"])])
    with pytest.raises(ValueError, match="these data have none"):
        jb.stack([jb.remove_columns(["a"])], plain)
    pipe[0].feature_names_in_ = np.array(list("abcde"), object)
    model = jb.from_sklearn(pipe, Frame(X, "abcde"), y)
    with pytest.raises(ValueError, match=r"cols\[0\] = 'age' is not a column of the training data; they are \['a', "):
        jb.bound(model, jb.set_columns(["age"], X[:, [0]]))
    with pytest.raises(ValueError, match=r"missing \['e'\], unknown \['f'\]"):
        jb.bound(model, jb.set_rows([0], Frame(X[[0]], "abcdf")))
    for cols in (["a"], [0]):
        with pytest.raises(ValueError, match=r"columns that cols names: missing \['a'\], unknown \['b'\]; X_new.to_n"):
            jb.bound(model, jb.set_columns(cols, Frame(X[:, [0]], "b")))
    with pytest.raises(ValueError, match="old_values must have the columns of X_new, in the same order"):
        jb.set_rows([0], Frame(X[[0]], "abcde"), old_values=Frame(X[[0]], "edcba"))
    with pytest.raises(ValueError, match=r"X lacks the columns \['e'\]"):
        model.scores(Frame(X[:, :4], "abcd"))
    with pytest.raises(ValueError, match=r"X lacks the columns \['e'\]"):
        jb.from_sklearn(pipe, Frame(X, "abcdf"), y)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_real_data_frames(library):
    frames = pytest.importorskip(library)
    X, y, _ = data()
    names = ["age", "fare", "dose", "rate", "size"]
    frame = frames.DataFrame({name: X[:, j] for j, name in enumerate(names)})
    pipe = make_pipeline(StandardScaler(), clone(SVC)).fit(frame, y)
    model = jb.from_sklearn(pipe, frame, y)
    assert model.inputs.names == tuple(names)
    bounds = jb.bound(model, jb.set_columns(["fare"], frame[["fare"]]))
    upper = bounds.scores(frame[names[::-1]]).upper
    np.testing.assert_array_equal(upper, bounds.scores(X).upper)
    change, upset = jb.set_columns(["fare"], frame[["fare"]] + 1.0), frame[names[::-1]]
    for question in (jb.LabelsKnown(upset), jb.LabelsKnown(X)):
        decision = jb.decide(model, change, question)
        assert decision.status == "decided"
        np.testing.assert_array_equal(decision.answer, jb.bound(model, change, jb.Curvature()).labels(X))
    fewer = jb.decide(model, jb.remove_columns(["dose"]), jb.LabelsKnown(upset), timings=False)  # also after retraining
    np.testing.assert_array_equal(fewer.answer, jb.decide(model, jb.remove_columns([2]), jb.LabelsKnown(X)).answer)
    plain = jb.fit(jb.Problem(jb.losses.squared_hinge(), jb.penalties.l2(1.0)), frame, 2.0 * y - 1.0)
    assert plain.names == tuple(names)
    np.testing.assert_array_equal(jb.decide(plain, jb.remove_rows([1]), jb.LabelsKnown(upset)).answer,
                                  jb.decide(plain, jb.remove_rows([1]), jb.LabelsKnown(X)).answer)  # fmt: skip
    with pytest.raises(ValueError, match=r"X lacks the columns \['age'\]"):
        jb.decide(model, change, jb.LabelsKnown(frame[names[1:]]))


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(("first", "message"), [
    (PCA(2), "step 'pca' of the pipeline is a PCA, .* it mixes the columns; supported are StandardScaler"),
    (Normalizer(), "Normalizer.*divides a row by its own length"),
    (MinMaxScaler(clip=True), "clip=True. cuts values off"),
    (FunctionTransformer(np.log1p), "FunctionTransformer has a function of its own"),
    (type("StandardScaler", (StandardScaler,), {"__module__": "mine"})(), "it is not known here"),
])  # fmt: skip
def test_other_steps_are_refused(first, message):
    X, y, _ = data()
    pipe = make_pipeline(first, LogisticRegression()).fit(np.abs(X), y)
    with pytest.raises(ValueError, match=message):
        jb.from_sklearn(pipe, np.abs(X), y)


def test_pipelines_that_are_not_fitted_or_end_in_something_else():
    X, y, _ = data()
    with pytest.raises(ValueError, match="not fitted"):
        jb.from_sklearn(make_pipeline(StandardScaler(), LogisticRegression()), X, y)
    with pytest.raises(ValueError, match="step 'standardscaler' of this Pipeline is not fitted"):
        jb.from_sklearn(make_pipeline(StandardScaler(), clone(LOGISTIC).fit(X, y)), X, y)
    with pytest.raises(TypeError, match="a StandardScaler cannot be translated"):
        jb.from_sklearn(make_pipeline(StandardScaler()).fit(X), X, y)


@pytest.mark.parametrize("intercept", [False, True])
def test_questions_about_training_rows_do_not_scale_them_twice(intercept):
    """Every function that asks about rows of the data themselves, as on the same model of scaled data."""
    X, y, _ = data()
    pipe = make_pipeline(StandardScaler(), clone(LOGISTIC).set_params(fit_intercept=intercept)).fit(X, y)
    model = jb.from_sklearn(pipe, X, y)
    plain = replace(model, inputs=None)
    folds = np.arange(N) % 4
    for method in (None, jb.Cached(), jb.Pass(), jb.Curvature()):
        rows = np.arange(6)
        ends = [jb.leave_one_out(one, method, rows).scores for one in (model, plain)]
        np.testing.assert_array_equal(ends[0].lower, ends[1].lower)
        np.testing.assert_array_equal(ends[0].upper, ends[1].upper)
        assert np.all(ends[0].lower <= ends[0].upper)
    for row in rows[:3]:
        kept = np.arange(N) != row
        truth = clone(pipe[-1]).fit(pipe[0].transform(X[kept]), y[kept])
        score = truth.decision_function(pipe[0].transform(X[row : row + 1]))[0]
        assert ends[0].lower[row] - SLACK <= score <= ends[0].upper[row] + SLACK
    for ask in (
        lambda one: jb.leave_one_out(one, resolve=True).scores,
        lambda one: jb.cross_validate(one, folds, jb.Pass()).scores,
        lambda one: jb.cross_validate(one, folds, resolve=True).scores,
        lambda one: jb.find_label_errors(one).margin,
        lambda one: jb.certificates.leave_one_out.leave_one_out(one) if not intercept else 0.0,
        lambda one: jb.rank_rows(one),
    ):
        got, want = jax.tree.leaves(ask(model)), jax.tree.leaves(ask(plain))
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a, b)
    (found,), (same,) = jb.attack_removal(model, 4, X[:1]), jb.attack_removal(plain, 4, pipe[0].transform(X[:1]))
    np.testing.assert_array_equal(found.rows, same.rows)
    np.testing.assert_allclose(found.score.upper, same.score.upper, atol=1e-6)


# ---------------------------------------------------------------- the script a new user writes


def test_six_lines():
    """Which predictions survive the removal of five rows? Compared with retraining the pipeline's last step."""
    X, y = load_breast_cancer(return_X_y=True)
    pipe = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    model = jb.from_sklearn(pipe, X, y)
    change = jb.remove_rows([3, 73, 190, 297, 541])
    bounds = jb.bound(model, change)
    decision = jb.decide(model, change, jb.LabelsKnown(X))

    kept = np.delete(np.arange(len(y)), [3, 73, 190, 297, 541])
    tight = LogisticRegression(solver="newton-cholesky", tol=1e-12, max_iter=1000)
    scores = tight.fit(pipe[0].transform(X[kept]), y[kept]).decision_function(pipe[0].transform(X))
    interval, labels, truth = bounds.scores(X), np.asarray(bounds.labels(X)), np.where(scores > 0, 1, -1)
    assert np.all(interval.lower <= scores + 1e-9) and np.all(scores - 1e-9 <= interval.upper)
    np.testing.assert_array_equal(labels[labels != 0], truth[labels != 0])
    assert decision.status == "decided" and decision.method != "refit"
    np.testing.assert_array_equal(decision.answer, truth)
    easy = np.asarray(jb.bound(model, jb.remove_rows([3, 8, 15, 16, 23])).labels(X))
    assert np.mean(easy != 0) > 0.95
