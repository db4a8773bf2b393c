"""`decide`: certified answers against retraining by the oracle, whatever the timings say."""

from collections import Counter

import numpy as np
import oracle
import pytest
from untrained import model_at

import jaxbounds as jb
from jaxbounds import decisions

LOSSES = {"logistic": jb.losses.logistic, "hinge": jb.losses.hinge, "squared_hinge": jb.losses.squared_hinge}


def setting(loss="logistic", seed=0, n=60, d=4):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.where(X @ rng.normal(size=d) + 0.5 * rng.normal(size=n) > 0, 1.0, -1.0)
    model = jb.fit(jb.Problem(LOSSES[loss](), jb.penalties.l2(0.05)), X, y, tol=1e-11)
    old = oracle.Problem(loss, X, y, np.full(n, 1 / n), lam=0.05)
    return model, old, rng


def retrained(old, kind, args):
    return oracle.solve(oracle.changed_problem(old, None, [(kind, args)], "mean")).w


@pytest.mark.parametrize("timings", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_answers_are_those_of_retraining(loss, timings):
    model, old, rng = setting(loss)
    X_test = rng.normal(size=(80, 4))
    for rows in ([0], [3, 4, 5]):
        args = {"rows": np.array(rows), "X_new": rng.normal(size=(len(rows), 4))}
        w, change = retrained(old, "set_rows", args), jb.set_rows(**args)
        found = jb.decide(model, change, jb.LabelsKnown(X_test), timings=timings)
        clear = np.abs(X_test @ w) > 1e-6
        assert np.array_equal(found.answer[clear], np.sign(X_test @ w)[clear])
        assert found.status == "decided" and found.steps[-1].open == 0
        moved = np.linalg.norm(w - np.asarray(model.w))
        for theta, answer in ((1.01 * moved, True), (0.99 * moved, False), (100 * moved, True), (moved / 100, False)):
            found = jb.decide(model, change, jb.DistanceBelow(theta), timings=timings)
            assert found.answer is answer and found.status == "decided", (rows, theta)


def test_stops_at_the_first_rung_that_answers():
    model, _, rng = setting()
    easy = jb.decide(model, jb.remove_rows([0]), jb.DistanceBelow(100.0), timings=False)
    assert isinstance(easy.method, jb.Cached) and [step.name for step in easy.steps] == ["Cached"]
    w = np.asarray(jb.refit(model, jb.remove_rows([0]), tol=1e-13).w)
    near = float(np.linalg.norm(w - np.asarray(model.w))) * (1 + 1e-4)
    hard = jb.decide(model, jb.remove_rows([0]), jb.DistanceBelow(near), timings=False)
    assert [step.name for step in hard.steps][:2] == ["Cached", "Partial"] and len(hard.steps) > 2
    assert all(step.seconds > 0 and step.radius >= 0 and step.open == 1 for step in hard.steps[:-1])
    some = jb.decide(model, jb.remove_rows([0]), jb.LabelsKnown(rng.normal(size=(50, 4)), fraction=0.5))
    assert np.mean(some.answer != 0) >= 0.5


def test_a_long_method_gives_way_to_retraining_that_is_quicker(monkeypatch):
    model, _, _ = setting()
    w = np.asarray(jb.refit(model, jb.remove_rows([0]), tol=1e-13).w)
    near = jb.DistanceBelow(float(np.linalg.norm(w - np.asarray(model.w))) * (1 + 1e-6))
    monkeypatch.setattr(decisions, "_SECONDS", {"Curvature": 1.0})  # a second for each unit of work
    monkeypatch.setattr(decisions, "_SLOW", {"Curvature": 1.0})
    monkeypatch.setattr(decisions, "_TRIES", Counter())
    for timings in (True, True, True, False):
        found = jb.decide(model, jb.remove_rows([0]), near, timings=timings)
        names = [step.name for step in found.steps]
        assert found.answer is True and ("Curvature" in names) == (not timings) and ("refit" in names) == timings


def test_ties_are_not_broken():
    """A score that is exactly 0, a distance that is exactly theta: no sign is made up."""
    X, y = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([1.0, 1.0])
    model = jb.fit(jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0), "sum"), X, y, tol=1e-14)
    change = jb.set_targets([0], [0.5])  # w goes from (1/2, 1/2) to (1/4, 1/2)
    found = jb.decide(model, change, jb.DistanceBelow(0.25))
    assert found.answer is None and found.status == "tie" and found.method == "refit"
    found = jb.decide(model, change, jb.LabelsKnown(np.array([[2.0, -1.0], [1.0, 1.0]])))
    assert found.answer.tolist() == [0, 1] and found.status == "tie"


def test_columns_and_rows_that_come_and_go():
    model, old, rng = setting()
    change = jb.combine(jb.remove_columns([1]), jb.remove_rows([2, 3]))
    args = [("remove_columns", {"cols": np.array([1])}), ("remove_rows", {"rows": np.array([2, 3])})]
    w = np.insert(oracle.solve(oracle.changed_problem(old, None, args, "mean")).w, 1, 0.0)
    moved = np.linalg.norm(w - np.asarray(model.w))
    for theta, answer in ((moved * (1 + 1e-6), True), (moved * (1 - 1e-6), False)):
        assert jb.decide(model, change, jb.DistanceBelow(theta)).answer is answer
    with pytest.MonkeyPatch.context() as patch:  # retraining alone gives the same
        patch.setattr(decisions, "LADDER", (jb.Cached(),))
        for theta, answer in ((moved * (1 + 1e-6), True), (moved * (1 - 1e-6), False)):
            found = jb.decide(model, change, jb.DistanceBelow(theta))
            assert found.answer is answer and found.method == "refit"


def test_without_data():
    model, _, _ = setting()
    change = jb.set_rows([0], np.ones((1, 4)), old_values=np.asarray(model.data.matrix.values)[:1])
    bare = model.without_data()
    assert jb.decide(bare, change, jb.DistanceBelow(100.0)).answer is True
    low = float(jb.bound(bare, change, jb.Partial()).distance.lower)
    high = float(jb.bound(bare, change, jb.Partial()).distance.upper)
    found = jb.decide(bare, change, jb.DistanceBelow((low + high) / 2))
    assert found.answer is None and found.status == "open"


def test_arguments():
    model, _, _ = setting()
    with pytest.raises(TypeError, match=r"question must be LabelsKnown\(X\) or DistanceBelow\(theta\), got float"):
        jb.decide(model, jb.remove_rows([0]), 0.1)
    for bad in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match="theta"):
            jb.DistanceBelow(bad)
    with pytest.raises(ValueError, match="fraction"):
        jb.LabelsKnown(np.eye(4), fraction=1.5)
    with pytest.raises(ValueError, match="X must have 4 columns"):
        jb.decide(model, jb.remove_rows([0]), jb.LabelsKnown(np.eye(3)))


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_a_change_of_nothing_says_where_the_exact_optimum_is(loss):
    """The penalty that the model has already: what its own inexactness can hide, from any coefficients."""
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(60, 4)), np.where(rng.normal(size=60) > 0, 1.0, -1.0)
    problem = jb.Problem(LOSSES[loss](), jb.penalties.l2(0.05))
    exact = oracle.solve(oracle.Problem(loss, X, y, np.full(60, 1 / 60), lam=0.05))
    for rough in (1e-6, 1e-2, 1.0):
        model = model_at(problem, X, y, np.ones(60), exact.w + rough * rng.normal(size=4))
        nothing = jb.set_penalty(model.problem.penalty)
        for method in (jb.Cached(), jb.Partial(), jb.Curvature()):
            if not method.applies(problem):
                continue
            bounds = jb.bound(model, nothing, method)
            w, apart = bounds.w(), np.linalg.norm(exact.w - np.asarray(model.w))
            assert np.all(w.lower <= exact.w + 1e-7) and np.all(exact.w - 1e-7 <= w.upper)
            assert bounds.distance.lower <= apart + 1e-7 and apart - 1e-7 <= bounds.distance.upper
        if loss == "logistic":  # the last is Curvature
            assert np.max(w.upper - w.lower) < 1e-6
    several = jb.OneVsRest((model, model))
    upper = np.asarray(jb.bound(several, nothing).scores(X).upper)
    np.testing.assert_array_equal(upper[:, 1], jb.bound(model, nothing).scores(X).upper)
