"""Class weights of estimators: rows that change their class, or are new, weigh what scikit-learn's refit gives them."""

import jax
import numpy as np
import pytest

pytest.importorskip("sklearn")
from sklearn.base import clone
from sklearn.linear_model import HuberRegressor, Lasso, LogisticRegression, RidgeClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import jaxbounds as jb
from jaxbounds.sklearn import BoundedClassifier

N, D = 24, 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D)) * [1.0, 100.0, 1e-2] + [0.0, 3.0, 0.0]
UNITS = (X - X.mean(axis=0)) / X.std(axis=0)
NUMBERS = np.argmax(UNITS + 0.5 * RNG.normal(size=(N, D)), axis=1)
WEIGHT = RNG.uniform(0.5, 2.0, N)
SVC = LinearSVC(C=0.3, dual=True, tol=1e-9, max_iter=1_000_000, random_state=0)
SOFTMAX = LogisticRegression(C=0.5, fit_intercept=False, solver="newton-cg", tol=1e-10)
FREE = LogisticRegression(C=0.5, solver="newton-cholesky", tol=1e-10)
FACTORS = {"ant": 4.0, "bee": 0.5, "cow": 2.0}
# name: (estimator, classes)
CASES = {
    "logistic": (FREE, 2),
    "svc": (SVC, 2),
    "ridge": (RidgeClassifier(alpha=0.5), 2),
    "bounded": (BoundedClassifier(alpha=2.0, tol=1e-12), 2),
    "ridge of three": (RidgeClassifier(alpha=0.5), 3),
    "ridge, equal": (RidgeClassifier(alpha=0.5), 3),
    "svc of three": (SVC, 3),
    "softmax": (SOFTMAX, 3),
    "bounded of three": (BoundedClassifier(alpha=2.0, tol=1e-12), 3),
}
CHANGES = {
    "flipped": lambda: jb.set_targets([0, 3], ["bee", "ant"]),
    "rows": lambda: jb.set_rows([1], X[[2]], ["ant"]),
    "added": lambda: jb.add_rows(X[:2] * 1.1, ["bee", "ant"]),
    "added, weighing": lambda: jb.add_rows(X[:2] * 1.1, ["bee", "ant"], [0.7, 3.0]),
    "weights": lambda: jb.set_weights([2, 5], [3.0, 0.2]),
    "targets, weights": lambda: jb.combine(jb.set_targets([0, 3], ["bee", "ant"]), jb.set_weights([3, 4], [2.0, 0.3])),
    "weights, targets": lambda: jb.combine(jb.set_weights([3, 4], [2.0, 0.3]), jb.set_targets([0, 3], ["bee", "ant"])),
    "back again": lambda: jb.combine(jb.remove_rows([7]), jb.set_targets([0], "bee"), jb.set_targets([0, 1], "ant")),
}


def words(classes):
    return np.array(["ant", "bee", "cow"])[NUMBERS if classes == 3 else NUMBERS % 2]


def case(name):
    """(fitted pipeline, y, model)."""
    estimator, classes = CASES[name]
    y = words(classes)
    class_weight = {label: 2.0 if name == "ridge, equal" else FACTORS[label] for label in np.unique(y)}
    pipe = make_pipeline(StandardScaler(), clone(estimator).set_params(class_weight=class_weight))
    pipe.fit(X, y, **{f"{pipe.steps[-1][0]}__sample_weight": WEIGHT})
    return pipe, y, jb.from_sklearn(pipe, X, y, WEIGHT)


def edited(kind, y):
    """(X, y, sample_weight) as a user of scikit-learn writes them."""
    moved, y, weight = X.copy(), y.copy(), WEIGHT.copy()
    if kind in ("flipped", "targets, weights", "weights, targets"):
        y[[0, 3]] = ["bee", "ant"]
    if kind == "rows":
        moved[1], y[1] = X[2], "ant"
    if kind.startswith("added"):
        new = [0.7, 3.0] if kind == "added, weighing" else [1.0, 1.0]
        moved, y, weight = np.vstack([X, X[:2] * 1.1]), np.append(y, ["bee", "ant"]), np.append(weight, new)
    if kind == "weights":
        weight[[2, 5]] = [3.0, 0.2]
    if kind in ("targets, weights", "weights, targets"):
        weight[[3, 4]] = [2.0, 0.3]
    if kind == "back again":
        y[[0, 1]] = "ant"
        moved, y, weight = (np.delete(one, 7, axis=0) for one in (moved, y, weight))
    return moved, y, weight


def refitted(pipe, kind, y):
    """Scores of the last step, fitted anew on the changed data after the same scaler."""
    moved, y, weight = edited(kind, y)
    last = clone(pipe[-1]).fit(pipe[0].transform(moved), y, sample_weight=weight)
    return last.decision_function(pipe[0].transform(X))


@pytest.mark.parametrize("name", CASES)
def test_every_row_weighs_what_the_refit_gives_it(name):
    pipe, y, model = case(name)
    for kind, make in CHANGES.items():
        truth = refitted(pipe, kind, y)
        new = jb.refit(model, make(), tol=1e-12)
        np.testing.assert_allclose(np.asarray(new.scores(X)), truth, atol=1e-5, err_msg=kind)
        interval = jb.bound(model, make()).scores(X)
        assert np.all(interval.lower <= truth + 1e-6) and np.all(truth - 1e-6 <= interval.upper), kind
        if name.startswith("bounded"):
            asked = pipe[-1].what_if(jb.set_targets([0, 3], ["bee", "ant"])).scores(UNITS)
            same = jb.bound(model, jb.set_targets([0, 3], ["bee", "ant"])).scores(X)
            np.testing.assert_allclose(asked.upper, same.upper, rtol=1e-9)
    again = jb.bound(new, jb.set_targets([1], "bee")), jb.bound(model, jb.set_targets([1], "bee"))
    assert all(np.all(np.isfinite(bounds.scores(X).upper)) for bounds in again)  # a refitted model keeps the factors
    moved, labels, weight = edited(kind, y)
    labels[1] = "bee"
    last = clone(pipe[-1]).fit(pipe[0].transform(moved), labels, sample_weight=weight)
    scores, interval = last.decision_function(pipe[0].transform(X)), again[0].scores(X)
    assert np.all(interval.lower <= scores + 1e-6) and np.all(scores - 1e-6 <= interval.upper)


def test_a_bound_that_kept_the_old_weight_would_miss():
    """The factor matters: with the old class's weight the refit lies outside."""
    pipe, y, model = case("svc")
    change = jb.set_targets([0], ["ant" if y[0] == "bee" else "bee"])
    ratio = FACTORS[y[0]] / FACTORS["ant" if y[0] == "bee" else "bee"]
    kept = jb.combine(change, jb.set_weights([0], [WEIGHT[0] * ratio]))
    right, wrong = (jb.refit(model, one, tol=1e-12).scores(X) for one in (change, kept))
    assert np.max(np.abs(np.asarray(right) - np.asarray(wrong))) > 1e-2


def test_batches_traces_files_and_monitors_weigh_alike(tmp_path):
    pipe, y, model = case("svc")
    assert np.asarray(model.inputs.class_weights).tolist() == [4.0, 0.5]
    changes = [make() for make in CHANGES.values()]
    each = jb.bound_each(model, jb.stack(changes, model))
    alone = [jb.bound(model, change) for change in changes]
    np.testing.assert_allclose(each.distance.upper, [one.distance.upper for one in alone], rtol=1e-9)
    flipped = jb.bound_each(model, jb.each_target_flipped(model, [0, 3]))
    other = {"ant": "bee", "bee": "ant"}
    by_hand = [jb.bound(model, jb.set_targets([k], [other[y[k]]])).distance.upper for k in (0, 3)]
    np.testing.assert_allclose(flipped.distance.upper, by_hand, rtol=1e-9)
    row = jax.jit(lambda k, sign: jb.bound(model, jb.set_targets(k, sign)).distance.upper)
    np.testing.assert_allclose(row(np.array([0]), model.encode_labels([other[y[0]]])), by_hand[0], rtol=1e-6)
    model.save(tmp_path / "model")
    loaded = jb.load(tmp_path / "model")
    bare = loaded.without_data()
    old = jb.set_targets([0], [other[y[0]]], old_values=X[[0]])
    for one in (loaded, bare):
        np.testing.assert_allclose(jb.bound(one, old).distance.upper, by_hand[0], rtol=1e-9)
    monitor = jb.Monitor(model, 100.0, path=tmp_path / "monitor")
    monitor.push(jb.remove_rows([1]))
    monitor.push(jb.set_targets([3], [other[y[3]]]))
    monitor.push(jb.add_rows(X[[4]], ["ant"], [0.5]))
    monitor.push(jb.set_weights([24], [2.0]))
    monitor.push(jb.combine(jb.set_weights([5], [0.25]), jb.set_targets([24], ["bee"])))
    monitor.close()
    labels, weight = np.append(y, "bee"), np.append(WEIGHT, 2.0)
    labels[3], weight[5] = other[y[3]], 0.25
    kept = np.arange(N + 1) != 1
    wanted = (weight * np.array([FACTORS[label] for label in labels]))[kept]
    again = jb.Monitor.load(tmp_path / "monitor")
    for one in (monitor, again):
        np.testing.assert_allclose(one.data[2], wanted, rtol=1e-15)
        np.testing.assert_array_equal(one.data[1], np.where(labels == "bee", 1.0, -1.0)[kept])
    several = case("ridge of three")[2]
    several.save(tmp_path / "several")
    change = jb.set_targets([0], ["cow"])
    loaded = jb.load(tmp_path / "several")
    np.testing.assert_array_equal(jb.bound(loaded, change).scores(X).upper, jb.bound(several, change).scores(X).upper)


@pytest.mark.parametrize("name", ["ridge of three", "bounded of three", "svc of three"])
def test_one_model_of_several_knows_its_weights_or_says_so(name):
    pipe, y, model = case(name)
    one = model.models[1]  # a bee against ants and cows, which weigh 4 and 2 where class weights count in all models
    if name == "svc of three":
        assert np.asarray(one.inputs.class_weights).tolist() == [1.0, 0.5]
        truth = jb.bound(model, jb.set_targets([0], ["bee"])).bounds[1].distance.upper
        np.testing.assert_allclose(jb.bound(one, jb.set_targets([0], [1])).distance.upper, truth, rtol=1e-9)
        return
    with pytest.raises(ValueError, match="class_weight differs among the classes .* ask the model of all"):
        jb.bound(one, jb.set_targets([0], [1]))
    with pytest.raises(ValueError, match="class_weight differs among the classes"):
        jb.refit(one, jb.add_rows(X[:1], [-1]))
    each = jb.bound_each(model.models[1], jb.stack([jb.add_rows(X[:1], [sign]) for sign in (-1, 1)]))
    assert np.asarray(each.status).tolist() == [jb.Status.INVALID, jb.Status.CONVERGED]
    added = jb.bound(model, jb.add_rows(X[:1], ["bee"])).bounds[1].distance.upper
    np.testing.assert_allclose(jb.bound(one, jb.add_rows(X[:1], [1])).distance.upper, added, rtol=1e-9)
    with pytest.raises(ValueError, match="relabel (keeps the weight of every row|flips labels, and squared has none)"):
        jb.worst_case_relabel(one, 1, X[:2])
    if name == "ridge of three":
        with pytest.raises(ValueError, match="is not a label"):  # though the squared loss takes any number
            jb.refit(case("ridge, equal")[2].models[1], jb.set_targets([0], [2]))
    jb.bound(model, jb.remove_rows([0]))
    again = jb.refit(model, jb.set_targets([0], ["bee"]), tol=1e-12)
    assert np.isnan(again.models[1].inputs.class_weights[0])


def test_models_of_the_estimators_of_this_library_know_the_weights_too():
    y = words(2)
    estimator = BoundedClassifier(alpha=2.0, class_weight=FACTORS, fit_intercept=False, tol=1e-12).fit(UNITS, y)
    (one,), flipped = estimator.models_, np.where(np.arange(N) == 0, "ant" if y[0] == "bee" else "bee", y)
    interval = jb.bound(one, jb.set_targets([0], [1 if flipped[0] == "bee" else -1]), jb.Curvature()).scores(UNITS)
    truth = clone(estimator).fit(UNITS, flipped).decision_function(UNITS)
    assert np.all(interval.lower <= truth + 1e-6) and np.all(truth - 1e-6 <= interval.upper)
    with pytest.raises(ValueError, match="relabel keeps the weight of every row"):
        jb.worst_case_relabel(one, 1, UNITS[:2])


@pytest.mark.parametrize("name", ["svc", "ridge of three", "softmax"])
def test_traced_rows_weigh_alike(name):
    model = case(name)[2]
    label = model.encode_labels(["bee"])
    for make in (lambda k: jb.set_targets(k, label), lambda k: jb.set_weights(k, np.array([2.0]))):
        traced = jax.jit(lambda k, make=make: jb.bound(model, make(k)).scores(X[:2]).upper)(np.array([1]))
        np.testing.assert_allclose(traced, jb.bound(model, make([1])).scores(X[:2]).upper, rtol=1e-5)


def test_worst_cases_of_flips_are_refused():
    """They keep every weight, which a flip under class weights does not."""
    model = case("logistic")[2]
    for ask in (jb.worst_case_relabel, jb.attack_relabel):
        with pytest.raises(ValueError, match="relabel keeps the weight of every row, and with class_weight a flipped"):
            ask(model, 1, X[:2])
    assert jb.worst_case_removal(model, 1, X[:2]).shape == (2,)


def test_what_retraining_would_compute_anew_is_said():
    X, y = UNITS, UNITS @ np.ones(D) + np.sin(np.arange(N))
    with pytest.warns(UserWarning, match="HuberRegressor's scale_ stays 0.*retraining would estimate it anew"):
        jb.from_sklearn(HuberRegressor(tol=1e-8).fit(X, y), X, y)
    with pytest.warns(UserWarning, match="Lasso's sample weights stay rescaled to the sum n"):
        jb.from_sklearn(Lasso(0.1, fit_intercept=False, tol=1e-10).fit(X, y, WEIGHT), X, y, WEIGHT)
    with pytest.warns(UserWarning, match="no bound is known for l1 alone with an intercept that is not penalised"):
        jb.from_sklearn(Lasso(0.1, tol=1e-10).fit(X, y), X, y)
    jb.from_sklearn(Lasso(0.1, fit_intercept=False, tol=1e-10).fit(X, y), X, y)  # warnings are errors in this suite


def test_weights_that_are_counted_stay_those_of_the_fit():
    y = words(2)
    estimator = clone(SVC).set_params(class_weight="balanced").fit(UNITS, y)
    with pytest.warns(UserWarning, match="class_weight='balanced' stays as it was computed for y"):
        model = jb.from_sklearn(estimator, UNITS, y)
    factors = dict(zip(["ant", "bee"], N / (2 * np.array([np.sum(y == "ant"), np.sum(y == "bee")])), strict=True))
    fixed = clone(SVC).set_params(class_weight=factors)
    flipped = np.where(np.arange(N) == 0, "bee" if y[0] == "ant" else "ant", y)
    truth = fixed.fit(UNITS, flipped).decision_function(UNITS)
    new = jb.refit(model, jb.set_targets([0], flipped[:1]), tol=1e-12)
    np.testing.assert_allclose(np.asarray(new.scores(UNITS)), truth, atol=1e-5)
    one = OneVsRestClassifier(clone(SVC).set_params(class_weight={0: 1.0, 1: 3.0})).fit(UNITS, words(3))
    model, change = jb.from_sklearn(one, UNITS, words(3)), jb.set_targets([0, 3], ["bee", "ant"])
    labels = words(3)
    labels[[0, 3]] = ["bee", "ant"]
    truth = clone(one).fit(UNITS, labels).decision_function(UNITS)
    np.testing.assert_allclose(np.asarray(jb.refit(model, change, tol=1e-12).scores(UNITS)), truth, atol=1e-5)
