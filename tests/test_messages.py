"""What is said to those who pass the wrong thing: the message names the remedy."""

import re

import numpy as np
import pytest
from sklearn.linear_model import Lasso, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import jaxbounds as jb
from jaxbounds.sklearn import BoundedClassifier, BoundedRegressor

X = np.array([[1.0, 0.5], [-1.0, 0.2], [2.0, -0.3], [-0.5, -1.0]])
Y = np.array([1.0, -1.0, 1.0, -1.0])
PROBLEM = jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1))
CHANGE = jb.remove_rows([0])
ASK = {
    "bound": lambda model: jb.bound(model, CHANGE),
    "refit": lambda model: jb.refit(model, CHANGE),
    "decide": lambda model: jb.decide(model, CHANGE, jb.DistanceBelow(1.0)),
    "bound_each": lambda model: jb.bound_each(model, jb.stack([CHANGE])),
    "stack": lambda model: jb.stack([CHANGE], model),
    "Monitor": lambda model: jb.Monitor(model, theta=1.0),
    "leave_one_out": lambda model: jb.leave_one_out(model),
    "cross_validate": lambda model: jb.cross_validate(model, 2),
    "find_label_errors": lambda model: jb.find_label_errors(model),
    "influence": lambda model: jb.influence(model, X),
    "rank_rows": lambda model: jb.rank_rows(model),
    "each_row_removed": lambda model: jb.each_row_removed(model),
    "each_target_flipped": lambda model: jb.each_target_flipped(model),
    "penalty_sweep": lambda model: jb.penalty_sweep(model, [jb.penalties.l2(1.0)], X, Y),
    "worst_case_removal": lambda model: jb.worst_case_removal(model, 1, X),
    "worst_case_relabels": lambda model: jb.worst_case_relabels(model, X, 1),
    "largest_certified_removal": lambda model: jb.largest_certified_removal(model, X),
    "attack_removal": lambda model: jb.attack_removal(model, 1, X),
    "with_factor": lambda model: jb.with_factor(model),
}
SEVERAL = "bound", "refit", "stack"  # these take models of several classes


@pytest.mark.parametrize("name", ASK)
def test_what_is_no_model_is_told_how_to_become_one(name):
    estimator = LogisticRegression()
    for wrong, remedy in (
        (estimator, r"got LogisticRegression; pass jb.from_sklearn\(estimator, X, y\)"),
        (make_pipeline(StandardScaler(), estimator), r"got Pipeline; pass jb.from_sklearn\(estimator, X, y\)"),
        (BoundedClassifier(), r"got BoundedClassifier; ask estimator.what_if\(change\), or pass jb.from_sklearn"),
        (CHANGE, r"got RemoveRows; the model comes first, then the change, as in jb.bound\(model, change\)"),
        (PROBLEM, r"got Problem; pass jb.fit\(problem, X, y\)"),
    ):
        with pytest.raises(TypeError, match=f"model must come from fit, {remedy}"):
            ASK[name](wrong)


def test_bound_with_its_arguments_swapped():
    with pytest.raises(TypeError, match="got RemoveRows; the model comes first"):
        jb.bound(CHANGE, jb.fit(PROBLEM, X, Y))


@pytest.mark.parametrize("name", sorted(set(ASK) - set(SEVERAL)))
def test_models_of_several_classes_name_one_of_their_models(name):
    model = jb.fit_one_vs_rest(PROBLEM, X, [0, 1, 2, 1])
    with pytest.raises(TypeError, match=r"several classes|two classes") as error:
        ASK[name](model)
    assert re.search(r"or one class against the rest, model.models\[k\]", str(error.value))
    softmax = jb.fit(jb.Problem(jb.losses.softmax(3), jb.penalties.l2(0.1)), X, [0, 1, 2, 1])
    with pytest.raises(TypeError, match=r"jb.bound\(") as error:
        ASK[name](softmax)
    assert "models[k]" not in str(error.value)  # it has none


def test_words_are_encoded_and_not_converted():
    words, mixed = np.where(Y > 0, "yes", "no"), np.array([[1.0, "red"], [2.0, "blue"]] * 2, object)
    model = jb.fit(PROBLEM, X, Y)
    categories = r"has dtype object; expected real numbers: {}\[0, 1\] = 'red' is text: encode .* pandas.get_dummies"
    labels = r"{}\[0\] = 'yes' is text: write .* for example np.where\({} == 'yes', 1, -1\); fit_one_vs_rest takes"
    for name, ask in (
        ("X", lambda: jb.fit(PROBLEM, mixed, Y)),
        ("X", lambda: jb.fit_one_vs_rest(PROBLEM, mixed, words)),
        ("X", lambda: model.scores(mixed)),
        ("X_new", lambda: jb.add_rows(mixed, Y)),
        ("X_new", lambda: jb.set_rows([0, 1, 2, 3], mixed)),
        ("X_val", lambda: jb.penalty_sweep(model, [jb.penalties.l2(1.0)], mixed, Y)),
        ("X", lambda: BoundedClassifier().fit(mixed, words)),
    ):
        with pytest.raises(TypeError, match="^" + name + " " + categories.format(name)):
            ask()
    for name, ask in (
        ("y", lambda: jb.fit(PROBLEM, X, words)),
        ("y", lambda: jb.fit(PROBLEM, X, words.astype(object))),
        ("y_val", lambda: jb.penalty_sweep(model, [jb.penalties.l2(1.0)], X, words)),
        ("y_test", lambda: jb.rank_rows(model, X, words)),
        ("y", lambda: BoundedRegressor().fit(X, words)),
    ):
        with pytest.raises(TypeError, match=f"^{name} .*" + labels.format(name, name)):
            ask()
    with pytest.raises(TypeError, match=r"sample_weight\[0\] = 'a' is text: pass numbers"):
        jb.fit(PROBLEM, X, Y, sample_weight=list("abcd"))
    with pytest.raises(TypeError, match=r"convert it with X.astype\(float\)"):
        jb.fit(PROBLEM, X.astype(str), Y)  # numbers in text can be converted


def test_an_l1_penalty_with_a_free_intercept_is_told_what_to_change():
    with pytest.warns(UserWarning, match="no bound is known for l1 alone with an intercept that is not penalised"):
        model = jb.from_sklearn(Lasso(alpha=0.1, tol=1e-10).fit(X, X[:, 0]), X, X[:, 0])
    remedy = r"add an L2 part \(elastic_net, l1_ratio < 1 in scikit-learn\), or take intercept=False and a column of"
    for ask in (lambda: jb.bound(model, CHANGE), lambda: jb.leave_one_out(model, jb.Cached())):
        with pytest.raises(ValueError, match=remedy):
            ask()
    ones = np.column_stack([X, np.ones(len(X))])  # the remedy, followed
    fitted = Lasso(alpha=0.1, tol=1e-10, fit_intercept=False).fit(ones, X[:, 0])
    assert np.isfinite(float(jb.bound(jb.from_sklearn(fitted, ones, X[:, 0]), CHANGE).gap))


def test_a_problem_of_names_is_told_what_to_write():
    for problem, remedy in (
        (jb.Problem(jb.losses.logistic(), "l2"), r"penalty must .* got 'l2'; write .* jb.penalties.l2\(lam\)"),
        (jb.Problem(jb.losses.logistic(), 0.1), r"penalty must .* got 0.1; write .* jb.penalties.l2\(lam\)"),
        (jb.Problem("logistic", jb.penalties.l2(0.1)), r"loss must .* got 'logistic'; write .* jb.losses.logistic\("),
        (jb.Problem(jb.losses.logistic, jb.penalties.l2(0.1)), r"loss must .*function.*; write .* jb.losses.logi"),
    ):
        for ask in (
            lambda p: jb.fit(p, X, Y),
            lambda p: jb.fit_one_vs_rest(p, X, [0, 1, 0, 1]),
            lambda p: jb.best_penalty(p, X, Y, X, Y, 0.1, 1.0),
            lambda p: p.primal(X, Y, np.zeros(2)),
        ):
            with pytest.raises(TypeError, match=remedy):
                ask(problem)
    with pytest.raises(TypeError, match=r"got 'l2'; write for example jb.penalties.l2\(lam\)"):
        jb.set_penalty("l2")
