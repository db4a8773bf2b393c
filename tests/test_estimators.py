"""BoundedClassifier and BoundedRegressor: scikit-learn's own checks, and what-if answers that hold for new fits."""

import copy
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import jaxbounds as jb
from jaxbounds.sklearn import BoundedClassifier, BoundedRegressor

N, D = 40, 5
SLACK = 1e-6  # what a relative gap of 1e-12 leaves
QUICK = {
    "check_no_attributes_set_in_init", "check_parameters_default_constructible", "check_get_params_invariance",
    "check_set_params", "check_estimators_unfitted", "check_do_not_raise_errors_in_init_or_set_param",
    "check_estimator_cloneable", "check_estimator_repr", "check_valid_tag_types", "check_mixin_order",
    "check_estimators_empty_data_messages", "check_complex_data", "check_classifiers_one_label",
    "check_requires_y_none",
}  # fmt: skip


def data(classes=("no", "yes")):
    rng = np.random.default_rng(11)
    X = rng.normal(size=(N, D))
    scores = X @ np.array([1.0, -1.0, 0.5, 0.0, 0.2]) + 0.4 * rng.normal(size=N)
    edges = np.quantile(scores, np.linspace(0, 1, len(classes) + 1)[1:-1])
    return X, np.asarray(classes)[np.searchsorted(edges, scores)], scores


def checks(estimator):
    """(estimator, check) of all of scikit-learn's checks."""
    try:
        from sklearn.utils.estimator_checks import estimator_checks_generator
    except ImportError:  # until scikit-learn 1.5
        return check_estimator(estimator, generate_only=True)
    return estimator_checks_generator(estimator)


@pytest.mark.parametrize("estimator", [BoundedClassifier(), BoundedRegressor()], ids=["classifier", "regressor"])
def test_quick_checks_of_scikit_learn(estimator):
    done = 0
    for one, check in checks(estimator):
        if getattr(check, "func", check).__name__ in QUICK:
            check(one)
            done += 1
    assert done >= 8


@pytest.mark.slow
@pytest.mark.parametrize("estimator", [BoundedClassifier(), BoundedRegressor()], ids=["classifier", "regressor"])
def test_check_estimator(estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own notes about skipped checks
        check_estimator(estimator)


def test_the_same_optimum_as_scikit_learns():
    X, y, scores = data()
    ours, theirs = BoundedClassifier(alpha=0.5, tol=1e-12), LogisticRegression(C=2.0, tol=1e-10, solver="newton-cg")
    for weight in (None, np.linspace(0.5, 2.0, N)):
        for class_weight in (None, {"yes": 2.0}):
            one = clone(ours).set_params(class_weight=class_weight).fit(X, y, sample_weight=weight)
            two = clone(theirs).set_params(class_weight=class_weight).fit(X, y, sample_weight=weight)
            np.testing.assert_allclose(one.coef_, two.coef_, atol=1e-6)
            np.testing.assert_allclose(one.intercept_, two.intercept_, atol=1e-6)
    one, two = BoundedRegressor(alpha=0.5, tol=1e-12).fit(X, scores), Ridge(0.5).fit(X, scores)
    np.testing.assert_allclose(one.coef_, two.coef_, atol=1e-8)
    np.testing.assert_allclose(one.predict(X), two.predict(X), atol=1e-7)


CHANGES = {
    "removed": lambda X, y: (jb.remove_rows([3, 17]), np.delete(X, [3, 17], 0), np.delete(y, [3, 17])),
    "targets": lambda X, y: (jb.set_targets([0, 5], y[[1, 2]]), X, np.concatenate([y[[1]], y[1:5], y[[2]], y[6:]])),
    "rows": lambda X, y: (jb.set_rows([0], X[[9]], y[[9]]), np.vstack([X[9], X[1:]]), np.append(y[9], y[1:])),
    "added": lambda X, y: (jb.add_rows(X[[7]] + 0.1, y[[8]]), np.vstack([X, X[7] + 0.1]), np.append(y, y[8])),
}


@pytest.mark.parametrize("classes", [("no", "yes"), (3, 7), (0.0, 1.0), ("a", "b", "c")], ids=str)
def test_what_if_holds_for_a_new_fit(classes):
    X, y, _ = data(classes)
    classifier = BoundedClassifier(alpha=0.5).fit(X, y)
    assert classifier.classes_.tolist() == sorted(classes)
    for kind, make in CHANGES.items():
        change, new_X, new_y = make(X, y)
        new = BoundedClassifier(alpha=0.5, tol=1e-12).fit(new_X, new_y)
        truth = new.decision_function(X)
        cross_check = LogisticRegression(C=2.0, tol=1e-10, solver="newton-cg").fit(new_X, new_y)
        if len(classes) == 2:
            np.testing.assert_allclose(truth, cross_check.decision_function(X), atol=1e-5)
        for method in (None, jb.Curvature()):
            found = classifier.what_if(change, method)
            interval = found.scores(X)
            assert np.all(interval.lower <= truth + SLACK) and np.all(truth - SLACK <= interval.upper), kind
            labels = found.labels(X)
            certain = found.decided(X)
            assert all(label is None or label == is_ for label, is_ in zip(labels, new.predict(X), strict=True))
            assert [label is not None for label in labels] == certain.tolist()
        assert certain.all(), kind  # Curvature decides them all
        np.testing.assert_array_equal(classifier.predict_interval(X, change, method).upper, interval.upper)
        assert found.status == jb.Status.CONVERGED and found.gap < 1e-5
        distance = found.distance if len(classes) == 2 else found.distance[0]
        moved = np.linalg.norm(new.coef_[0] - classifier.coef_[0])
        assert distance.lower - 1e-6 <= moved <= distance.upper + 1e-6


def test_regression_and_predict_interval():
    X, _, y = data()
    regressor = BoundedRegressor(alpha=0.5, tol=1e-3).fit(X, y)
    exact = Ridge(0.5).fit(X, y)
    interval = regressor.predict_interval(X)
    assert np.all(interval.lower <= exact.predict(X) + 1e-9) and np.all(exact.predict(X) - 1e-9 <= interval.upper)
    assert np.all(interval.lower <= regressor.predict(X) + 1e-12)
    found = regressor.what_if(jb.set_targets([3], [9.0]))
    new = Ridge(0.5).fit(X, np.where(np.arange(N) == 3, 9.0, y)).predict(X)
    interval = found.scores(X)
    assert np.all(interval.lower <= new + 1e-9) and np.all(new - 1e-9 <= interval.upper)
    with pytest.raises(ValueError, match="a regressor has no labels"):
        found.labels(X)


def test_in_a_grid_search_and_a_pipeline():
    X, y, _ = data()
    search = GridSearchCV(make_pipeline(StandardScaler(), BoundedClassifier()),
                          {"boundedclassifier__alpha": [0.1, 10.0]}, cv=8).fit(X, y)  # fmt: skip
    assert search.best_score_ > 0.7
    best = search.best_estimator_[-1]
    raw = jb.bound(jb.from_sklearn(search.best_estimator_, X, y), jb.set_rows([3], X[[4]]))
    scaled = best.what_if(jb.set_rows([3], search.best_estimator_[0].transform(X[[4]])))
    np.testing.assert_allclose(raw.scores(X).upper, scaled.scores(search.best_estimator_[0].transform(X)).upper)
    assert best.what_if(jb.remove_rows([0])).labels(search.best_estimator_[0].transform(X)).shape == (N,)


def test_columns_have_their_names():
    X, y, _ = data()
    frames = pytest.importorskip("pandas")
    names = ["age", "fare", "dose", "rate", "size"]
    frame = frames.DataFrame(X, columns=names)
    classifier = BoundedClassifier().fit(frame, y)
    assert classifier.feature_names_in_.tolist() == names
    found = classifier.what_if(jb.set_columns(["fare"], X[:, [0]]))
    plain = BoundedClassifier().fit(X, y).what_if(jb.set_columns([1], X[:, [0]]))
    np.testing.assert_array_equal(found.scores(frame[names[::-1]]).upper, plain.scores(X).upper)
    np.testing.assert_array_equal(found.w("fare").upper, plain.w(1).upper)
    ax = found.plot_coefficients(Figure().subplots())
    assert [tick.get_text() for tick in ax.get_yticklabels()] == names
    with pytest.raises(ValueError, match="'weight' is not one of the columns"):
        found.w("weight")


def test_rows_of_weight_zero_are_left_out():
    X, y, _ = data()
    weight = np.where(np.arange(N) < 3, 0.0, 1.0)
    one, two = BoundedClassifier().fit(X, y, sample_weight=weight), BoundedClassifier().fit(X[3:], y[3:])
    np.testing.assert_allclose(one.coef_, two.coef_, atol=1e-10)
    with pytest.raises(ValueError, match="3 rows of weight 0 were left out"):
        one.what_if(jb.remove_rows([0]))


def test_messages():
    X, y, scores = data()
    classifier = BoundedClassifier().fit(X, y)
    with pytest.raises(TypeError, match="change must come from set_rows"):
        classifier.what_if([3])
    with pytest.raises(ValueError, match=r"y_new\[0\] = 'maybe' is not one of the classes \['no', 'yes'\]"):
        classifier.what_if(jb.set_targets([0], ["maybe"]))
    with pytest.raises(ValueError, match=r"y_new\[0\] = 0.0 is not a label; .* in the classes \['no', 'yes'\]"):
        classifier.what_if(jb.set_targets([0], [0]))
    with pytest.raises(ValueError, match="loss must be one of"):
        BoundedClassifier(loss="squared").fit(X, y)
    with pytest.raises(ValueError, match="penalty must be l2"):
        BoundedRegressor(penalty="l3").fit(X, scores)
    with pytest.raises(ValueError, match="intercept=True needs a differentiable loss"):
        BoundedClassifier(loss="hinge").fit(X, y)
    with pytest.raises(ValueError, match="1 class"):
        BoundedClassifier().fit(X, np.zeros(N))
    with pytest.warns(jb.FitWarning, match="1 of 1 models stopped early.*raise max_steps") as said:
        BoundedClassifier(max_steps=1, tol=1e-14).fit(X, y)
    assert len(said) == 1


@pytest.mark.slow
def test_typical_user_code_runs():
    done = subprocess.run([sys.executable, str(Path(__file__).with_name("user_code.py"))], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def test_pickles_and_copies():
    X, y, _ = data()
    classifier = BoundedClassifier(loss=jb.losses.squared_hinge(), penalty=jb.penalties.l2(2.0)).fit(X, y)
    for twin in (pickle.loads(pickle.dumps(classifier)), copy.deepcopy(classifier)):
        change = jb.remove_rows([1])
        np.testing.assert_array_equal(twin.what_if(change).scores(X).upper, classifier.what_if(change).scores(X).upper)
