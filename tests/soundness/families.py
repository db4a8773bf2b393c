"""Certificates that speak of whole families of changes: every row left out or flipped, every penalty of a range."""

from collections.abc import Iterator
from dataclasses import replace

import exact
import numpy as np
import oracle

import jaxbounds as jb
from soundness.check import Outcome, directions, expected, judge, split
from soundness.draw import Case, narrow

BATCHED = {"Cached": jb.Cached(), "Theorem1": jb.Theorem1(), "Pass": jb.Pass(), "Partial": jb.Partial()}
CHEAP = ("Cached", "Theorem1")
ALIKE = 24  # changes of one kind
ALONG = 8  # changes whose optima's directions are scored
PAIRS, WORST = 4, 6  # sets of two rows that are tried against the worst case: at random, and those that move most


def each(case: Case, changes) -> tuple[Case, list]:
    """The case with those changes, and their truths."""
    case = replace(case, changes=tuple(changes))
    return case, [case.truth(k) for k in range(len(case.changes))]


def left_out(case: Case, rng) -> Iterator[tuple[int, Outcome]]:
    """leave_one_out, influence, worst_case_removals and batches of removals against every row's removal."""
    n, model = len(case.pr.y), case.model
    if n < 2 or not at_once(case) and rng.random() < 0.5:
        return
    keep_n = bool(rng.integers(2))
    form = "keep_n" if keep_n else "n - 1"
    case, truths = each(case, [[("remove_rows", {"rows": np.array([k]), "keep_n": keep_n})] for k in range(n)])
    if any(t is None for t in truths):
        return
    X_test = scored(case, truths)
    known = known_of(case, truths, X_test)
    own = [{what: (v, e) for what, v, e in expected(case, t, case.tests(case.pr.X[[k]]))} for k, t in enumerate(truths)]
    found = jb.leave_one_out(model, keep_n=keep_n).scores
    for k in range(n):
        yield k, judge(f"leave_one_out ({form})", "remove_rows", [
            ("scores", (found.lower[k], found.upper[k]), *own[k]["scores"])])  # fmt: skip
    if not case.intercept:
        stored = exact.array(X_test) @ exact.array(np.ldexp(case.w, -case.shift).astype(case.dtype))
        found = jb.influence(model, X_test, keep_n=keep_n)
        if np.array_equal(np.asarray(found.rows)[:, 0], np.arange(n)):
            scores = found.scores
            moves = [split(exact.array(X_test) @ t.w * exact.number(2) ** -case.shift - stored) for t in truths]
            for k in range(n):
                error = known[k]["scores"][1]
                yield k, judge("influence", "remove_rows", [
                    ("scores", (scores.lower[k], scores.upper[k]), moves[k], error)])  # fmt: skip
    yield from worst(case, known, X_test, keep_n, rng)
    changes = jb.each_row_removed(model) if not keep_n else jb.stack([case.change(k) for k in range(n)])
    for name, method in BATCHED.items():
        if method.applies(model.problem) and at_once(case) and (name in CHEAP or rng.random() < 0.25):
            yield from batch(f"bound_each {name}", "remove_rows", jb.bound_each(model, changes, X_test, method), known)


def batch(name: str, kind: str, found, known) -> Iterator[tuple[int, Outcome]]:
    """An EachBounds with its X against the truth of each candidate, None where that is not known."""
    scores, distance = found.scores(), found.distance
    for k, truth in enumerate(known):
        if truth is not None:
            yield k, judge(name, kind, [
                ("scores", (scores.lower[k], scores.upper[k]), *truth["scores"]),
                ("distance", (distance.lower[k], distance.upper[k]), *truth["distance"])])  # fmt: skip


def known_of(case: Case, truths, X_test) -> list:
    """Per change a dict of what is known, None where nothing is."""
    return [t and {what: (v, e) for what, v, e in expected(case, t, X_test)} for t in truths]


def scored(case: Case, truths) -> np.ndarray:
    """The case's test rows and the directions in which some optima move: there a ball's ends are nearly attained."""
    along = [directions(case, t)[-1] for t in truths[:ALONG] if t is not None]
    return case.tests(np.vstack([case.X_test, *along]))


def at_once(case: Case) -> bool:
    """Whether batches of its changes are computed as one, and truths are cheap."""
    strong = case.problem.penalty.strong_convexity is not None
    return strong and not case.intercept and case.pr.loss != "hinge"


def worst(case: Case, known, X_test, keep_n: bool, rng) -> Iterator[tuple[int, Outcome]]:
    """worst_case_removals for one and two rows."""
    problem, n = case.problem, len(case.pr.y)
    if problem.penalty.strong_convexity is None or problem.loss.smoothness is None:
        return
    K = min(2, n - 1)
    scores = jb.worst_case_removals(case.model, X_test, K, keep_n=keep_n).scores
    yield 0, judge("worst_case_removals (1)", "remove_rows", [
        (f"without {k}: scores", (scores.lower[0], scores.upper[0]), *known[k]["scores"]) for k in range(n)])
    if K == 2:
        pairs = [np.sort(rng.choice(n, 2, replace=False)) for _ in range(PAIRS)] + worst_pairs(known)
        case, truths = each(case, [[("remove_rows", {"rows": rows, "keep_n": keep_n})] for rows in pairs])
        truth = [scores_of(case, t, X_test) for t in truths if t is not None]
        yield 0, judge("worst_case_removals (2)", "remove_rows", [
            ("scores", (scores.lower[1], scores.upper[1]), *found) for found in truth])


def worst_pairs(known) -> list[np.ndarray]:
    """For some test rows the two rows whose removals, one at a time, move the score furthest up, and down."""
    scores = np.array([found["scores"][0][0] for found in known])
    order = np.argsort(scores, axis=0, kind="stable")
    pairs = [np.sort(order[at, j]) for j in range(order.shape[1] - 1, -1, -1) for at in ([0, 1], [-2, -1])]
    return pairs[:WORST]


def scores_of(case: Case, t, X_test):
    """(exact scores, their error)."""
    return next((v, e) for what, v, e in expected(case, t, X_test) if what == "scores")


def flipped(case: Case, rng) -> Iterator[tuple[int, Outcome]]:
    """worst_case_relabels and a batch of flips."""
    problem, n = case.problem, len(case.pr.y)
    strong = problem.penalty.strong_convexity is not None and problem.loss.smoothness is not None
    if n < 2 or case.pr.loss not in oracle.MARGIN_LOSSES or not strong:
        return
    y = case.pr.y
    case, truths = each(case, [[("set_targets", {"rows": np.array([k]), "y_new": -y[[k]]})] for k in range(n)])
    X_test = scored(case, truths)
    worst = jb.worst_case_relabels(case.model, X_test, 1).scores
    known = known_of(case, truths, X_test)
    yield 0, judge("worst_case_relabels (1)", "set_targets", [
        (f"flip {k}: scores", (worst.lower[0], worst.upper[0]), *found["scores"])
        for k, found in enumerate(known) if found])  # fmt: skip
    if not case.intercept:
        for name in CHEAP:
            found = jb.bound_each(case.model, jb.each_target_flipped(case.model), X_test, BATCHED[name])
            yield from batch(f"bound_each {name}", "set_targets", found, known)


def along_lambda(case: Case, rng) -> Iterator[tuple[int, Outcome]]:
    """penalty_sweep from one model and from two, each_penalty, and best_penalty's promise on the range."""
    simple = case.pr.penalty in ("l2", "elastic_net") and np.ndim(case.pr.lam) == 0 and case.pr.loss != "hinge"
    if not simple or case.dtype == "float32":
        return
    factors = np.sort(10.0 ** rng.uniform(-2, 2, 6) if rng.random() < 0.5 else 10.0 ** rng.uniform(-0.2, 0.2, 6))
    pr = case.pr
    fields = [{"penalty": pr.penalty, "lam": float(pr.lam * f), "l1": float(pr.l1)} for f in factors]
    case, truths = each(case, [[("set_penalty", a)] for a in fields])
    X_test = scored(case, truths)
    penalties = [case.penalty(a) for a in fields]
    y_test = np.ones(len(X_test))
    models, known = [case.model], known_of(case, truths, X_test)
    if truths[0] is not None:
        t, param = truths[0], (0.0, pr.y) if pr.loss == "poisson" else pr.param
        w, alpha = t.w.astype(float) * (1 + 1e-6 * rng.normal()), t.alpha.astype(float)
        alpha = np.clip(alpha, *oracle.loss_domain(pr.loss, param))
        near = replace(case, pr=replace(pr, **fields[0]), w=w, alpha=alpha)
        models.append(near.model)
    for name, stored in (("penalty_sweep", models[:1]), ("penalty_sweep (2 models)", models)):
        if len(stored) == 2 and len(models) == 1:
            continue
        scores = jb.penalty_sweep(stored if len(stored) > 1 else stored[0], penalties, X_test, y_test).scores
        for k, truth in enumerate(known):
            if truth is not None:
                yield k, judge(name, "set_penalty", [
                    ("scores", (scores.lower[k], scores.upper[k]), *truth["scores"])])  # fmt: skip
    if not case.intercept:
        for name in CHEAP:
            found = jb.bound_each(case.model, jb.each_penalty(penalties), X_test, BATCHED[name])
            yield from batch(f"bound_each {name}", "set_penalty", found, known)


def alike(case: Case, rng) -> Iterator[tuple[int, Outcome]]:
    """Many changes of one kind and size, which a batch computes as one."""
    if not at_once(case):
        return
    n, d = case.pr.X.shape
    margin, size = case.pr.loss in oracle.MARGIN_LOSSES, 10.0 ** rng.uniform(-3, 1)

    def one() -> dict:
        rows = rng.choice(n, min(2, n), replace=False)
        target = -case.pr.y[rows] if margin else case.pr.y[rows] + size
        X_new = np.abs(case.pr.X).max(initial=1e-3) * size * rng.normal(size=(len(rows), d))
        return {
            "set_elements": {"rows": rows, "cols": rng.integers(0, d, len(rows)), "values": X_new[:, 0]},
            "set_rows": {"rows": rows, "X_new": X_new},
            "set_targets": {"rows": rows, "y_new": target},
            "set_weights": {"rows": rows, "weights": case.weight[rows] * np.exp(size * rng.normal())},
            "add_rows": {"X_new": X_new, "y_new": case.pr.y[rows]},
        }[kind]

    kind = str(rng.choice(["set_elements", "set_rows", "set_targets", "set_weights", "add_rows"]))
    changes = [[(kind, {k: narrow(v, case.dtype) if k in ("X_new", "values") else v for k, v in one().items()})]
               for _ in range(ALIKE)]  # fmt: skip
    case, truths = each(case, changes)
    X_test = scored(case, truths)
    known, stacked = known_of(case, truths, X_test), jb.stack([case.change(k) for k in range(ALIKE)])
    for name, method in BATCHED.items():
        if method.applies(case.problem) and (name in CHEAP or rng.random() < 0.1):
            found = jb.bound_each(case.model, stacked, X_test, method)
            yield from batch(f"bound_each {name}", kind, found, known)


FAMILIES = {"alike": alike, "left_out": left_out, "flipped": flipped, "along_lambda": along_lambda}
