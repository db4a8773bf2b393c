"""Labels in the estimator's own classes, a penalised intercept by its name, and what tables say of such models."""

from functools import partial

import jax
import numpy as np
import pytest

pytest.importorskip("sklearn")
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.svm import LinearSVC

import jaxbounds as jb
from jaxbounds.described_models import bound_status
from jaxbounds.what_if import WhatIf

N, D = 24, 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D))
SIGNS = np.where(X[:, 0] + 0.5 * RNG.normal(size=N) > 0, 1, -1)
NUMBERS = np.argmax(X + 0.3 * RNG.normal(size=(N, D)), axis=1)
TEST = np.vstack([X[:6], np.zeros((1, D))])


def two(classes):
    """(y, the model of a RidgeClassifier on it)."""
    y = np.array(classes)[(SIGNS + 1) // 2]
    return y, jb.from_sklearn(RidgeClassifier().fit(X, y), X, y)


def three(classes, penalised=True):
    """(y, the model of a LinearSVC, or of a softmax, on it)."""
    y = np.array(classes)[NUMBERS]
    estimator = LinearSVC(C=0.5, dual=True, tol=1e-9, max_iter=1_000_000, random_state=0)
    if not penalised:
        estimator = LogisticRegression(fit_intercept=False, tol=1e-8)
    return y, jb.from_sklearn(estimator.fit(X, y), X, y)


def changes(first, second):
    return [jb.set_targets([0, 3], [second, first]), jb.set_rows([1], X[[2]], [first]), jb.add_rows(X[:1], [second]),
            jb.combine(jb.remove_rows([5]), jb.set_targets([4], [first]))]  # fmt: skip


@pytest.mark.parametrize("classes", [(0, 1), (10, 20), (-1, 0), (0.0, 3.0), ("no", "yes"), (-1, 1)])
def test_changes_take_the_labels_of_two_classes_as_the_estimator_does(classes):
    y, model = two(classes)
    for own, signs in zip(changes(*classes), changes(-1, 1), strict=True):
        bounds, same = jb.bound(model, own), jb.bound(model, signs)
        np.testing.assert_array_equal(bounds.scores(TEST).upper, same.scores(TEST).upper)
        moved, labels, _ = signs.apply(X, SIGNS)
        truth = RidgeClassifier().fit(moved, np.array(classes)[(labels > 0).astype(int)])
        scores, interval = truth.decision_function(TEST), bounds.scores(TEST)
        assert np.all(interval.lower <= scores + 1e-9) and np.all(scores - 1e-9 <= interval.upper)
        known = model.decode_labels(bounds.labels(TEST))
        assert all(a is None or a == b for a, b in zip(known, truth.predict(TEST), strict=True))
    np.testing.assert_allclose(jb.refit(model, own).scores(TEST), scores, atol=1e-6)
    free = jb.from_sklearn(RidgeClassifier(fit_intercept=False).fit(X, y), X, y)
    for several in (changes(*classes), [jb.set_targets([k], [classes[0]]) for k in range(3)]):
        each = jb.bound_each(free, jb.stack(several, free), TEST).scores()
        for k, own in enumerate(several):
            np.testing.assert_allclose(each.upper[k], jb.bound(free, own).scores(TEST).upper, rtol=1e-9)
    assert model.encode_labels(y).tolist() == SIGNS.tolist()
    assert model.decode_labels([-1, 0, 1]).tolist() == [classes[0], None, classes[1]]


def test_numbers_are_the_estimators_classes_where_targets_would_be_others():
    """1 is the class 1 if the classes are 1 and 2, though the target +1 is the other one's."""
    for classes in ((1, 2), (-2, -1), (-3, 1)):
        y, model = two(classes)
        _, words = two(("no", "yes"))
        first, second = classes
        pairs = [*zip(changes(first, second), changes("no", "yes"), strict=True)]
        for own, said in pairs:
            wanted = jb.bound(words, said).scores(TEST)
            np.testing.assert_array_equal(jb.bound(model, own).scores(TEST).upper, wanted.upper)
            np.testing.assert_allclose(jb.refit(model, own).scores(TEST), jb.refit(words, said).scores(TEST))
            assert jb.decide(model, own, jb.DistanceBelow(9.0)).answer is True
        single = [own for own, _ in pairs[:1]] * 2
        each = jb.bound_each(model, jb.stack(single)).distance.upper
        np.testing.assert_allclose(each, jb.bound(words, pairs[0][1]).distance.upper, rtol=1e-9)
        flipped = jb.bound_each(model, jb.each_target_flipped(model, [0, 3])).distance.upper
        other = {first: second, second: first}
        by_hand = [jb.bound(model, jb.set_targets([k], [other[y[k]]])).distance.upper for k in (0, 3)]
        np.testing.assert_allclose(flipped, by_hand, rtol=1e-9)
        own = jb.set_targets([0, 3], model.encode_labels([second, first]))
        np.testing.assert_array_equal(jb.bound(model, own).gap, jb.bound(model, pairs[0][0]).gap)
        monitor = jb.Monitor(model, 9.0)
        monitor.push(pairs[0][0])
        assert monitor.data[1][[0, 3]].tolist() == [1.0, -1.0]
    y, model = two((1, 2))
    in_jit = jax.jit(lambda label: jb.bound(model, jb.set_targets([0], label[None])).distance.upper)
    for label in np.array([1.0, 2.0]):
        plain = jb.bound(model, jb.set_targets([0], label)).distance.upper
        np.testing.assert_allclose(in_jit(label), plain, rtol=1e-6, atol=1e-9)
    assert in_jit(np.float64(-1.0)) == np.inf
    for ask in (partial(jb.refit, model), partial(jb.bound, model), jb.Monitor(model, 9.0).push):
        for label in (0, -1, 7):  # which a squared loss alone would take for targets
            with pytest.raises(ValueError, match=rf"y_new\[1\] = {label}.0 is not one of the classes \[1, 2\]"):
                ask(jb.set_targets([0, 1], [1, label]))
    each = jb.bound_each(model, jb.stack([jb.set_targets([0], [label]) for label in (-1, 1)]))
    assert np.asarray(each.status).tolist() == [jb.Status.INVALID, jb.Status.CONVERGED]
    y, model = two((5, 7))
    with pytest.raises(ValueError, match=r"y_new\[0\] = 6.0 is not a label; .*write y_new in the classes \[5, 7\]"):
        jb.bound(model, jb.set_targets([0], [6]))
    y, model = three((1, 2, 3))
    assert model.encode_labels(y).tolist() == y.tolist()
    for several in (model, three((1, 2, 3), penalised=False)[1]):
        named = three(("ant", "bee", "cow"), penalised=several is model)[1]
        upper = jb.bound(several, jb.set_targets([0, 3], [3, 1])).scores(TEST).upper
        np.testing.assert_array_equal(upper, jb.bound(named, jb.set_targets([0, 3], ["cow", "ant"])).scores(TEST).upper)
        with pytest.raises(ValueError, match=r"y_new\[0\] = 0.0 is not one of the classes \[1, 2, 3\]"):
            jb.bound(several, jb.set_targets([0], [0]))
    for labels in ([7], ["one"], [None], [[1, 2], [3, 4]]):
        with pytest.raises(ValueError, match=r"labels\[\d\] = .* is not one of the classes \[1, 2, 3\]"):
            model.encode_labels(labels)
    for labels in ([3], [-2], [0.5], ["a"]):
        with pytest.raises(ValueError, match=r"labels\[0\] = .* is not a label of this model; .* \[-1, 0, 1, 2\]"):
            model.decode_labels(labels)
    line = jb.from_sklearn(Ridge().fit(X, X[:, 0]), X, X[:, 0])
    with pytest.raises(ValueError, match="no labels"):
        line.decode_labels([1])


def test_words_that_look_like_numbers_are_these_numbers():
    y, model = two(("1", "2"))
    _, words = two(("no", "yes"))
    for number, word in ((1, "no"), (2, "yes")):
        wanted = jb.bound(words, jb.set_targets([0, 3], [word, word])).scores(TEST).upper
        for label in (number, str(number), model.encode_labels(str(number)).item()):
            got = jb.bound(model, jb.set_targets([0, 3], [label, label])).scores(TEST).upper
            np.testing.assert_array_equal(got, wanted)


def test_classes_that_are_one_number_in_float64_are_not_read_as_numbers():
    y, model = two((2**53, 2**53 + 1))
    with pytest.raises(ValueError, match="are not all different numbers in float64; fit on words"):
        jb.bound(model, jb.set_targets([0], [2**53]))
    assert np.all(np.isfinite(jb.bound(model, jb.remove_rows([0])).scores(TEST).upper))


def test_apply_takes_words_and_data_frames():
    pandas = pytest.importorskip("pandas")
    frame, y = pandas.DataFrame(X, columns=["age", "fare", "dose"]), np.where(SIGNS > 0, "yes", "no")
    change = jb.combine(
        jb.set_columns(["dose", "age"], frame[["age", "dose"]] + 1.0), jb.set_targets([0, 3], ["perhaps", "no"]),
        jb.add_rows(frame[["dose", "fare", "age"]].iloc[:1], ["yes"]), jb.remove_columns("fare"),
    )  # fmt: skip
    wanted = np.vstack([X + [1.0, 0.0, 1.0], X[:1]])[:, [0, 2]]
    for labels in (y, y.astype(object), list(y), pandas.Series(y)):
        moved, new, weight = change.apply(frame, labels)
        np.testing.assert_array_equal(moved, wanted)
        assert new.tolist() == ["perhaps", *y[1:3], "no", *y[4:], "yes"] and weight is None
    numbers = np.where(SIGNS > 0, 2, 1)
    assert jb.set_targets([0], [1]).apply(X, numbers)[1][0] == 1
    with pytest.raises(ValueError, match="y holds words, and y_new numbers; write y_new in words"):
        jb.set_targets([0], [1]).apply(frame, y)
    with pytest.raises(ValueError, match=r"y_new\[0\] = 'no' is a word, and the targets are numbers here"):
        jb.set_targets([0], ["no"]).apply(frame, numbers)


@pytest.mark.parametrize("classes", [("ant", "bee", "cow"), (10, 20, 30), (-1, 5, 7), (0, 1, 5), (0, 1, 2)])
@pytest.mark.parametrize("kind", ["one against the rest", "softmax"])
def test_several_classes_are_kept(tmp_path, classes, kind):
    y, model = three(classes, kind != "softmax")
    assert model.classes == 3 and model.classes_ == (None if classes == (0, 1, 2) else classes)
    numbers = jb.bound(model, jb.set_targets([0, 3], [2, 0])).scores(TEST).upper
    change = jb.set_targets([0, 3], [classes[2], classes[0]])
    np.testing.assert_array_equal(jb.bound(model, change).scores(TEST).upper, numbers)
    assert model.decode_labels([[2, -1]]).tolist() == [[classes[2], None]]
    model.save(tmp_path / "model")
    loaded = jb.load(tmp_path / "model")
    assert loaded.classes_ == model.classes_ and loaded.encode_labels(y).tolist() == NUMBERS.tolist()
    np.testing.assert_array_equal(jb.bound(loaded, change).scores(TEST).upper, numbers)
    if model.classes_ is not None:
        assert repr(classes[1]) in repr(model)


def test_a_penalised_intercept_has_a_name():
    y = np.array([0, 1])[(SIGNS + 1) // 2]
    estimator = LinearSVC(intercept_scaling=2.0, dual=True, tol=1e-8, max_iter=1_000_000, random_state=0).fit(X, y)
    model = jb.from_sklearn(estimator, X, y)
    assert model.names == ("0", "1", "2", "intercept") and float(model.intercept) == 0.0
    assert f"penalised: w[3] * 2 = {estimator.intercept_[0]:.4g}" in repr(model)
    bounds = jb.bound(model, jb.remove_rows([0]))
    interval, column = bounds.w("intercept"), bounds.w(3)
    assert interval.upper == column.upper and np.shape(bounds.w(["intercept"]).lower) == (1,)
    truth = LinearSVC(intercept_scaling=2.0, dual=True, tol=1e-8, max_iter=1_000_000, random_state=0).fit(X[1:], y[1:])
    assert interval.lower <= truth.intercept_[0] / 2 + 1e-6 and truth.intercept_[0] / 2 - 1e-6 <= interval.upper
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    axes = WhatIf((bounds,)).plot_coefficients(Figure().subplots())
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["0", "1", "2", "intercept"]
    gone = jb.bound(model, jb.remove_columns(["intercept"]))
    assert gone.w("intercept").upper == 0.0
    with pytest.raises(ValueError, match="j holds names .'age', .* these data have none"):
        bounds.w("age")
    free = jb.from_sklearn(RidgeClassifier().fit(X, y), X, y)
    assert free.names == ("0", "1", "2")
    with pytest.raises(ValueError, match="these data have none"):
        jb.bound(free, jb.remove_rows([0])).w("intercept")


def test_a_column_of_the_user_may_be_called_intercept():
    pandas = pytest.importorskip("pandas")
    names = ["age", "intercept", "fare"]
    frame, y = pandas.DataFrame(X, columns=names), (SIGNS + 1) // 2
    model = jb.from_sklearn(LinearSVC(dual=True, random_state=0).fit(frame, y), frame, y)
    assert model.names == (*names, "(intercept)")
    bounds = jb.bound(model, jb.remove_columns(["age"]))
    assert bounds.w("age").upper == 0.0
    whole = bounds.w()
    for j, name in enumerate(model.names):
        assert bounds.w(name).upper == whole.upper[j]
    np.testing.assert_array_equal(bounds.w(["fare", "age"]).lower, whole.lower[np.array([2, 0])])
    with pytest.raises(ValueError, match=r"j\[0\] = 'dose' is not a column of the training data; they are \['age', "):
        bounds.w("dose")
    free = jb.bound(jb.from_sklearn(RidgeClassifier().fit(frame[["age"]], y), frame[["age"]], y), jb.remove_rows([0]))
    with pytest.raises(ValueError, match="one that is not penalised is the attribute intercept"):
        free.w("intercept")


def test_tables_say_what_is_known_of_a_fit_and_of_a_bound():
    y = (SIGNS + 1) // 2
    whole = jb.from_sklearn(RidgeClassifier().fit(X, y), X, y)
    assert "CONVERGED: fitted by RidgeClassifier, which did not run out of steps" in repr(whole)
    assert "All is well" not in repr(whole) and "fitted by" not in repr(jb.refit(whole, jb.remove_rows([0])))
    with pytest.warns(match="failed to converge"):
        early = LogisticRegression(C=100.0, max_iter=1).fit(X, y)
    early = jb.from_sklearn(early, X, y)
    assert "MAX_STEPS: fitted by LogisticRegression, which used up its max_iter" in repr(early)
    bounds = jb.bound(whole, jb.remove_rows([0]))
    assert "CONVERGED: All is well, the bounds are valid and finite." in repr(bounds)
    empty = jb.bound(early, jb.remove_rows(np.flatnonzero(SIGNS < 0)))
    assert not np.isfinite(empty.distance.upper) and "VACUOUS: " in repr(empty) and "All is well" not in repr(empty)
    for upper, said in ((1.0, "All is well"), (np.inf, "intervals of coefficients and scores are infinite")):
        assert said in bound_status(jb.Status.CONVERGED, jb.Interval(0.0, 1.0), jb.Interval(0.0, upper))
    assert bound_status(jb.Status.INVALID, jb.Interval(0.0, 1.0)).startswith("INVALID: ")


def test_labels_of_a_model_are_the_signs_of_its_scores():
    rows = np.array([[1.0], [-2.0], [3.0], [0.0]])
    signs = np.array([1.0, -1.0, 1.0, -1.0])
    for loss, y in ((jb.losses.logistic(), signs), (jb.losses.squared(), signs)):
        model = jb.fit(jb.Problem(loss, jb.penalties.l2(0.1)), rows, y)
        labels = model.labels(rows)
        assert labels.dtype == np.int32 and labels.tolist() == [1, -1, 1, -1]  # a score of 0 is no +1, as in predict
        assert jax.jit(lambda model: model.labels(rows))(model).tolist() == labels.tolist()
    words = np.array(["yes", "no", "yes", "no"])
    for estimator in (RidgeClassifier(fit_intercept=False), LogisticRegression(fit_intercept=False, tol=1e-10)):
        estimator.fit(rows, words)
        model = jb.from_sklearn(estimator, rows, words)
        assert model.decode_labels(model.labels(rows)).tolist() == estimator.predict(rows).tolist()
    with pytest.raises(ValueError, match=r"the loss squared has no labels: its targets are numbers; use scores\(X\)"):
        jb.fit(jb.Problem(jb.losses.squared(), jb.penalties.l2(0.1)), rows, rows[:, 0]).labels(rows)
