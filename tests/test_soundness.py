"""The soundness campaign in small, what it found, and the means it rests on (benchmarks/soundness.py has the long run).

A failure names its case: `python benchmarks/soundness.py --case SEED NUMBER` repeats it and makes it small.
"""

from dataclasses import replace

import jax
import numpy as np
import oracle
import pytest
from soundness import campaign, check, draw, regressions, shrink, tally
from soundness.attack import Attack

import jaxbounds as jb
from jaxbounds.array import put
from jaxbounds.matrix import as_matrix
from jaxbounds.model import Data, remember

SEED = 20_000  # no stream of the long run


def tried(cases):
    """The tally of some cases of a stream; fails with all that was violated."""
    counts = tally.empty()
    for number in cases:
        tally.merge(counts, campaign.run(SEED, number))
    assert not counts["failures"], "\n".join(counts["failures"])
    return counts


def test_certificates_hold_on_hostile_cases():
    counts = tried(range(8))
    assert sum(entry["tried"] for entry in counts["certificates"].values()) > 400
    assert counts["unknown"] <= 4, "the truth is not known often enough"
    for name in ("Theorem1", "Cached"):
        entry = counts["certificates"][name]
        assert entry["tight"] >= 0.2 * entry["tried"], f"{name} is hardly ever tight: {entry}"


@pytest.mark.slow
def test_certificates_hold_on_more_hostile_cases():
    counts = tried(range(100, 112))
    assert sum(entry["tried"] for entry in counts["certificates"].values()) > 600


@pytest.mark.parametrize("name", regressions.CASES)
def test_what_was_once_broken_holds(name):
    case = regressions.CASES[name]
    truth = case.truth(0)
    assert truth is not None
    found = list(check.one_by_one(case, [truth], case.model, ("Theorem1", "Cached", "Partial", "Pass", "Curvature")))
    double = replace(case, changes=case.changes * 2)
    for method in (jb.Cached(), jb.Theorem1()):
        found += check.batch(double, [truth] * 2, double.model, method, f"bound_each {method}")
    assert not [f"{outcome.certificate}: {outcome.wrong}" for _, outcome in found if outcome.wrong]
    assert len(found) == 9


def half_square(w):
    return w * w / 2


@pytest.mark.parametrize("lam", [1e-300, 1e-261, 1e261, np.array([1.0, 1e300])])
def test_penalties_beside_which_squares_vanish_are_refused(lam):
    """lam (w - u)^2 was denormal at lam = 1e293, and g^2 / lam at 1e-295: bounds of such problems were wrong."""
    penalties = jb.penalties
    for make in (penalties.l2, lambda lam: penalties.elastic_net(lam, 0.1), lambda lam: penalties.lq(lam, 1.5)):
        with pytest.raises(ValueError, match=r"lam(\[1\])? = 1e[-+]\d+ is not allowed: .* rescale X"):
            make(lam)
    with pytest.raises(ValueError, match=r"strong_convexity(\[1\])? = 1e[-+]\d+ is not allowed"):
        penalties.from_function(half_square, strong_convexity=lam)


@pytest.mark.parametrize("lam", [-1.0, 1e-261, 1e261])
def test_penalties_that_tracers_bring_out_of_range_bound_nothing(lam):
    """As under jit, where no constructor looks: a model of such a penalty, and a change to one."""
    l2, rng = jb.penalties.l2, np.random.default_rng(0)
    X, y = rng.normal(size=(12, 3)), np.sign(rng.normal(size=12))
    with jax.enable_x64(True):
        out = jax.tree.map(lambda _: np.float64(lam), l2(1.0))
        data, w, alpha = put((Data(as_matrix(X), y, np.ones(12)), np.zeros(3), np.full(12, 0.5)))
        model, bad = (remember(jb.Problem(jb.losses.logistic(), p), data, w, alpha) for p in (l2(1.0), out))
    assert np.isnan(np.asarray(bad.w)).all() and int(bad.status) == jb.Status.INVALID
    fine = jb.set_penalty(l2(1.0))
    for method in (jb.Theorem1(), jb.Cached(), jb.Partial(), jb.Pass(), jb.Curvature()):
        for asked, change in ((model, jb.set_penalty(out)), (bad, jb.remove_rows([0])), (bad, fine)):
            found = jb.bound(asked, change, method)
            assert np.isinf(np.asarray(found.scores(X[:1]).upper)).all(), method
            assert np.isinf(float(found.distance.upper)) and int(found.status) != jb.Status.CONVERGED
    intervals = [
        jb.leave_one_out(bad).scores, jb.influence(bad, X[:1]).scores, jb.worst_case_removals(bad, X[:1], 1).scores,
        jb.worst_case_relabels(bad, X[:1], 1).scores, jb.penalty_sweep(bad, [l2(1.0)], X[:1], y[:1]).scores,
        jb.bound_each(bad, jb.each_row_removed(bad), X[:1]).scores(),
    ]  # fmt: skip
    assert all(np.isneginf(found.lower).all() and np.isposinf(found.upper).all() for found in intervals)


def test_candidates_of_several_sizes_read_their_own_elements():
    """4 + 3 + 5 elements are 3 x 4: once the second candidate took one of the third's."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 6))
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    pr = oracle.Problem("logistic", X, y, np.full(20, 1 / 20), lam=0.1)
    best = oracle.solve(pr)
    case = draw.Case(
        pr, "mean", np.ones(20), best.w, 0.0, best.alpha, (), X[:2], "float64", False, False, 0, {}, best.w
    )  # fmt: skip
    for sizes in ((4, 3, 5), (3, 5, 4), (1, 2, 3), (2, 2, 1, 3), (4, 4)):
        changes = [
            jb.set_elements(np.arange(k) + 4 * i, np.arange(k) % 6, 10.0**i * rng.normal(size=k))
            for i, k in enumerate(sizes)
        ]
        for method in (jb.Cached(), jb.Theorem1()):
            each = jb.bound_each(case.model, jb.stack(changes), method=method)
            one = [jb.bound(case.model, change, method).distance.upper for change in changes]
            np.testing.assert_allclose(each.distance.upper, one, rtol=1e-5, err_msg=f"{sizes}")


def test_truths_agree_with_the_oracle():
    agreed = set()
    for number in range(40):
        case = draw.draw(SEED + 1, number)
        if case is None or case.intercept or case.pr.loss == "poisson":
            continue
        truth = case.truth(0)
        pr = case.after(0)[0]
        keep = pr.c > 0
        strength = np.min(pr.kappa if pr.penalty == "l1" else pr.lam)
        if truth is None or np.abs(pr.X).max() > 1e3 or strength < 1e-2:
            continue
        best = oracle.solve(replace(pr, X=pr.X[keep], y=pr.y[keep], c=pr.c[keep]))
        size = np.abs(best.w).max(initial=1e-12)
        if pr.penalty != "l1":
            np.testing.assert_allclose(truth.w.astype(float), best.w, atol=1e-6 * size, err_msg=f"case {number}")
        agreed.add(pr.penalty)
    assert len(agreed) >= 3


def test_judge_sees_one_unit_in_the_last_place():
    exact = check.split(check.exact.array([0.1]) + check.exact.MP.mpf(10) ** -20)
    below, above = np.nextafter(0.1, 0), np.nextafter(0.1, 1)
    for lower, upper, wrong in ((below, 0.1, True), (0.1, above, False), (above, 1.0, True), (-np.inf, np.inf, False),
                                (np.nan, 1.0, True), (np.inf, -np.inf, True)):  # fmt: skip
        found = check.judge("", "", [("w", (lower, upper), exact, np.array(0.0))])
        assert bool(found.wrong) == wrong, (lower, upper, found)


def test_failures_are_made_small():
    """The loop that shrinks finds the one row and the one element that matter to a made-up failure."""
    cases = filter(None, (draw.draw(SEED + 2, k) for k in range(50)))
    case = next(case for case in cases if case.pr.X.shape == (12, 6) and case.pr.penalty == "l2")
    case = replace(case, changes=([("set_weights", {"rows": np.array([2, 5]), "weights": np.array([1.5, 3.0])})],))
    x = case.pr.X[5, 3]
    small = shrink.shrink(case, 0, lambda c: bool((np.sign(c.pr.X) == np.sign(x)).any() and len(c.changes[0]) == 1))
    assert small.pr.X.shape == (1, 1) and small.shift == 0
    assert len(small.changes[0][0][1]["rows"]) == 1


def test_tallies_add_up():
    one, two = campaign.run(SEED, 0), campaign.run(SEED, 1)
    both = tally.empty()
    for part in (one, two):
        tally.merge(both, part)
    total = sum(entry["tried"] for entry in both["certificates"].values())
    assert total == sum(e["tried"] for part in (one, two) for e in part["certificates"].values())
    for entries in both["strata"].values():
        assert sum(entry["tried"] for entry in entries.values()) == total
    some = both["certificates"]["Cached"]
    assert tally.quantile(some, 0.0) is None or tally.quantile(some, 0.0) <= tally.quantile(some, 1.0) <= 1.0


@pytest.mark.slow
def test_gradient_attacks_do_not_pass():
    """An ascent uses up most of a bound, and never more than all of it."""
    attack = Attack("logistic", "set_rows", "Cached")
    best, at, y = attack.run(0, restarts=4, steps=40)
    assert 0.8 < best.max() <= 1 + 1e-12
    for k in np.argsort(-best)[:2]:
        found = attack.judged({name: values[k] for name, values in at.items()}, y)
        assert found is not None and not found.wrong, found


def test_the_attacks_optimum_has_the_implicit_functions_derivative():
    rng = np.random.default_rng(3)
    with jax.enable_x64(True):
        from soundness.attack import optimum

        X, y = rng.normal(size=(6, 3)), np.where(rng.random(6) < 0.5, 1.0, -1.0)
        fn = jax.jit(lambda lam: optimum("logistic", X, y, np.ones(6), lam)[0])
        found = jax.jacfwd(fn)(0.3)
        want = (fn(0.3 + 1e-6) - fn(0.3 - 1e-6)) / 2e-6
        np.testing.assert_allclose(found, want, rtol=1e-6)
