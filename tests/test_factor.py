"""A stored factor: the same answers as Hessians formed anew, sound to the last bit, and no pass over the data."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
import scipy.sparse as sp
from pairs import draw
from regions import check_optimum

import jaxbounds as jb
from jaxbounds.array import to_host

ROWS = ("set_elements", "set_rows", "set_targets", "set_weights", "add_rows", "remove_rows", "set_penalty", "combine")
SMOOTH = ("logistic", "squared", "smoothed_hinge", "squared_hinge", "huber")


def with_factor(task):
    """The task with a model that has a factor, or None where none is stored."""
    if np.ndim(task.pr.lam) or task.pr.penalty != "l2" or task.pr.loss == "hinge":
        return None
    task.__dict__["model"] = jb.with_factor(task.model)
    return task


def optima_inside(seeds, x64, **options):
    """How many random problems with a factor have an optimum known to 45 digits; every interval holds it."""
    known = 0
    with jax.enable_x64(x64):
        for seed in seeds:
            rng = np.random.default_rng(seed)
            kind, loss = str(rng.choice(ROWS)), "logistic" if rng.random() < 0.5 else str(rng.choice(SMOOTH))
            task = with_factor(draw(rng, kind, loss, **options))
            if task is None:
                continue
            columns = any(kind.endswith("columns") for kind, _ in task.changes)
            other = task.new[0].penalty != "l2" or np.ndim(task.new[0].lam) > 0
            methods = [jb.Curvature()]
            if loss == "logistic" and not columns and not other:
                methods.append(jb.SelfConcordant())
            known += check_optimum(task, methods)
    return known


@pytest.mark.parametrize("x64", [False, True])
def test_optimum_to_45_digits_is_inside(x64):
    assert optima_inside(range(100 * x64, 100 * x64 + 60), x64) >= 15


@pytest.mark.full
@pytest.mark.parametrize("block", range(10))
def test_optimum_to_45_digits_is_inside_many(block):
    assert optima_inside(range(1000 + 500 * block, 1500 + 500 * block), bool(block % 2)) >= 120


def problem(loss="logistic", lam=0.01, n=120, d=7, dtype=float, seed=0, **options):
    """(data for the oracle, a trained model with a factor)."""
    rng = np.random.default_rng(seed)
    X = (0.4 * rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.6)).astype(dtype)
    y = np.where(X @ rng.normal(size=d) + rng.normal(size=n) > 0, 1.0, -1.0)
    old = oracle.Problem(loss, X.astype(float), y, np.full(n, 1 / n), lam=lam)
    make = jb.losses.logistic if loss == "logistic" else jb.losses.squared_hinge
    model = jb.fit(jb.Problem(make(), jb.penalties.l2(lam)), options.pop("storage", np.asarray)(X), y, tol=1e-12)
    return old, jb.with_factor(model)


CHANGES = {
    "row": ("set_rows", {"rows": [3], "X_new": 0.2 * np.ones((1, 7))}),
    "removed": ("remove_rows", {"rows": [5, 11]}),
    "kept n": ("remove_rows", {"rows": [8], "keep_n": True}),
    "flip": ("set_targets", {"rows": [2], "y_new": [-1.0]}),
    "weight": ("set_weights", {"rows": [2, 4], "weights": [3.0, 0.5]}),
    "added": ("add_rows", {"X_new": 0.3 * np.ones((2, 7)), "y_new": [1.0, -1.0]}),
    "cells": ("set_elements", {"rows": [0, 9], "cols": [1, 6], "values": [0.4, -0.2]}),
}


def change_of(kind, args):
    return getattr(jb, kind)(**{k: np.asarray(v) if isinstance(v, list) else v for k, v in args.items()})


def formula(new, w):
    """T nu / 2 of the new problem at w."""
    s = new.y * (new.X @ w)
    a = 1 / (1 + np.exp(s))
    H = (new.X.T * (new.c * a * (1 - a))) @ new.X + new.lam * np.eye(w.size)
    g = new.lam * w - new.X.T @ (new.c * new.y * a)
    nu, ell = np.sqrt(g @ np.linalg.solve(H, g)), np.sqrt(np.max(np.sum(new.X.T * np.linalg.solve(H, new.X.T), axis=0)))
    return -np.log1p(-ell * nu) * nu / 2


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_second_order_without_a_pass(storage, dtype):
    """A fraction of the true move, and nearly the formula's radius at the exact ell."""
    old, model = problem(dtype=dtype, storage=storage)
    X = np.random.default_rng(1).normal(size=(20, 7))
    for name, (kind, args) in CHANGES.items():
        true = oracle.solve(oracle.changed_problem(old, None, [(kind, args)], "mean")).w
        bounds = jb.bound(model, change_of(kind, args), jb.SelfConcordant())
        moved, scores = np.linalg.norm(true - np.asarray(model.w, float)), bounds.scores(X)
        slack = 1e-9
        exact = formula(oracle.changed_problem(old, None, [(kind, args)], "mean"), np.asarray(model.w, float))
        region = to_host(bounds.parts)[0][1][-1]
        assert exact * (1 - 1e-6) <= region.radius <= 1.35 * exact, (name, exact, region.radius)
        assert np.all(np.asarray(scores.lower) <= X @ true + slack), name
        assert np.all(np.asarray(scores.upper) >= X @ true - slack), name
        assert float(bounds.radius) <= 0.2 * moved, (name, float(bounds.radius), moved)
        assert float(bounds.distance.lower) - slack <= moved <= float(bounds.distance.upper) + slack


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_a_stored_factor_gives_what_a_formed_one_gives(loss):
    _, model = problem(loss)
    X = np.random.default_rng(1).normal(size=(20, 7))
    for name, (kind, args) in CHANGES.items():
        change = change_of(kind, args)
        formed, stored = (jb.bound(m, change, jb.Curvature()) for m in (replace(model, factor=None), model))
        moved = float(stored.distance.upper)
        for bounds in (formed, stored):
            assert float(bounds.radius) <= 1e-3 * moved, (name, float(bounds.radius), moved)
        a, b = formed.scores(X), stored.scores(X)
        assert np.all(np.asarray(a.lower) <= np.asarray(b.upper) + 1e-9), name
        assert np.all(np.asarray(b.lower) <= np.asarray(a.upper) + 1e-9), name


def test_jit_and_vmap_agree_with_the_host():
    _, model = problem()
    X = np.random.default_rng(1).normal(size=(5, 7))
    rows = np.arange(4)[:, None]

    def upper(model, row):
        bounds = jb.bound(model, jb.remove_rows(row), jb.SelfConcordant())
        return bounds.scores(X).upper, bounds.radius

    with jax.enable_x64(True):
        many = jax.jit(jax.vmap(upper, (None, 0)))(model, rows)
        for k in range(4):
            one = upper(model, rows[k])
            np.testing.assert_allclose(many[0][k], one[0], rtol=1e-9)
            np.testing.assert_allclose(many[1][k], one[1], rtol=1e-6)


def test_jit_of_sparse_data_and_of_changes_on_top_of_each_other():
    """Padded rows and positions that are listed twice: the last value counts, whatever the order of a scatter."""
    _, model = problem(storage=sp.csr_array)
    change = jb.combine(jb.set_rows([3], 0.2 * np.ones((1, 7))), jb.set_elements([3, 5], [0, 0], [0.7, 0.0]))
    X = np.random.default_rng(1).normal(size=(5, 7))

    def ends(model, value):
        last = jb.combine(jb.set_rows([3], 0.2 * jnp.ones((1, 7))), jb.set_elements([3, 5], [0, 0], value))
        found = jb.bound(model, last, jb.SelfConcordant()).scores(X)
        return found.lower, found.upper

    with jax.enable_x64(True):
        inside = jax.jit(ends)(model, jnp.array([0.7, 0.0]))
        outside = jb.bound(model, change, jb.SelfConcordant()).scores(X)
    np.testing.assert_allclose(inside[0], outside.lower, rtol=1e-8)
    np.testing.assert_allclose(inside[1], outside.upper, rtol=1e-8)


def test_factor_under_jit():
    _, model = problem()
    with jax.enable_x64(True):
        made = jax.jit(jb.with_factor)(replace(model, factor=None))
        bounds = [jb.bound(m, jb.remove_rows([3]), jb.SelfConcordant()) for m in (made, model)]
    np.testing.assert_allclose(float(bounds[0].radius), float(bounds[1].radius), rtol=1e-3)


def test_what_is_missing_is_named():
    _, model = problem()
    X, y = np.eye(3), np.array([1.0, -1.0, 1.0])

    def fitted(loss, penalty, **options):
        return jb.fit(jb.Problem(loss, penalty, **options), X, y)

    with pytest.raises(ValueError, match="smooth loss"):
        jb.with_factor(fitted(jb.losses.hinge(), jb.penalties.l2(0.1)))
    with pytest.raises(ValueError, match="L2 penalty with one lam"):
        jb.with_factor(fitted(jb.losses.squared(), jb.penalties.elastic_net(0.1, 0.1)))
    with pytest.raises(ValueError, match="intercept"):
        jb.with_factor(fitted(jb.losses.logistic(), jb.penalties.l2(0.1), intercept=True))
    with pytest.raises(ValueError, match="needs the data"):
        jb.with_factor(model.without_data())
    with pytest.raises(ValueError, match="jb.with_factor"):
        jb.bound(fitted(jb.losses.logistic(), jb.penalties.l2(0.1)), jb.remove_rows([0]), jb.SelfConcordant())
    with pytest.raises(ValueError, match="whole columns"):
        jb.bound(model, jb.remove_columns([0]), jb.SelfConcordant())
    with pytest.raises(ValueError, match="logistic"):
        jb.bound(fitted(jb.losses.squared(), jb.penalties.l2(0.1)), jb.remove_rows([0]), jb.SelfConcordant())
    with pytest.raises(ValueError, match="one lam"):
        jb.bound(model, jb.set_penalty(jb.penalties.elastic_net(0.1, 0.1)), jb.SelfConcordant())
