"""The rest of the table of public callables: losses, penalties, solvers, files, estimators and figures."""

import atexit
import shutil
import tempfile
from functools import cache, partial
from pathlib import Path
from unittest.mock import MagicMock

import jax.numpy as jnp
import numpy as np
import optax
from hostile import REFUSED, choice, flag, function, number, only, path_to, vector, weights, whole
from hostile_calls import (
    BINARY,
    BOUNDS,
    CALLBACK,
    CHANGE,
    CHANGE_ONLY,
    CHANGES,
    DATA,
    FIT,
    L2,
    LOGISTIC,
    METHOD,
    MODEL,
    ONES,
    QUESTIONS,
    TARGET,
    TEST,
    TRAINED,
    WITH_DATA,
    Entry,
    N,
    W,
    X,
    Y,
    rows,
    several,
)

import jaxbounds as jb
from jaxbounds import losses, penalties, plots, sklearn, solvers, testing

FOLDER = Path(tempfile.mkdtemp(prefix="jaxbounds_hostile_"))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
BAND = jb.Interval(Y - 1, Y + 1)


@cache
def estimators():
    return sklearn.BoundedClassifier(tol=1e-4).fit(X, Y), sklearn.BoundedRegressor(tol=1e-4).fit(X, TARGET)


@cache
def saved(kind):
    path = FOLDER / kind
    MODEL.save(path) if kind == "model" else jb.Monitor(MODEL, 0.5).save(path)
    return path


@cache
def text_file():
    path = FOLDER / "data.txt"
    path.write_text("+1 1:0.5 3:2\n-1 2:1\n")
    return path


def on_figure(draw):
    return lambda **args: bool(draw(**args, ax=MagicMock()))


def fresh(name):
    """A path where nothing is."""
    path = FOLDER / name
    path.unlink(missing_ok=True)
    return path


def parameters(_):
    for bad in (None, 1.0, "abc", {}, ("a",), (np.nan,), (None,), object(), np.ones(2), (1j,)):
        yield repr(bad)[:20], bad, REFUSED


def phi(m):
    return jnp.logaddexp(0.0, -m)


def square(w):
    return w**2 / 2


def residual(s, y):
    return (s - y) ** 2 / 8


FUNCTIONS = {
    "losses.smoothed_hinge": Entry(losses.smoothed_hinge, {"gamma": (0.5, number)}),
    "losses.huber": Entry(losses.huber, {"delta": (0.5, number)}),
    "losses.poisson": Entry(losses.poisson, {"bound": (2.0, partial(number, above=None))}),
    "losses.smoothed_quantile": Entry(losses.smoothed_quantile, {"tau": (0.25, number), "gamma": (0.5, number)}),
    "losses.squared_epsilon_insensitive": Entry(losses.squared_epsilon_insensitive,
        {"epsilon": (0.5, partial(number, at_least=0.0))}),
    "losses.softmax": Entry(losses.softmax, {"classes": (3, partial(whole, least=2))}),
    **{f"losses.{name}": Entry(getattr(losses, name)) for name in ("hinge", "log_cosh", "logistic", "modified_huber",
        "squared", "squared_hinge")},
    "losses.from_margin": Entry(lambda **a: losses.from_margin(**(dict(phi=phi) | a)).value(Y, Y),
        {"phi": (phi, function), "smoothness": (0.25, partial(number, optional=True)), "params": ((), parameters),
        "derivative": CALLBACK, "second": CALLBACK, "conjugate": CALLBACK, "curvature_range": CALLBACK,
        "domain": ((0.0, 1.0), only((1.0, 0.0), (0.0,), (0.0, np.nan), ("a", "b"), ([0.0], [1.0]), optional=True))}),
    "losses.from_score": Entry(lambda **a: losses.from_score(**(dict(ell=residual) | a)).value(Y, Y),
        {"ell": (residual, function), "smoothness": (0.25, partial(number, optional=True)), "params": ((), parameters),
        "derivative": CALLBACK, "second": CALLBACK, "conjugate": CALLBACK, "curvature_range": CALLBACK,
        "domain": ((0.0, 1.0), only((1.0, 0.0), (0.0,), (0.0, np.nan), ("a", "b"), optional=True))}),
    "penalties.l2": Entry(penalties.l2, {"lam": (0.5, partial(number, vector=True))}),
    "penalties.elastic_net": Entry(penalties.elastic_net,
        {"lam": (0.5, partial(number, vector=True)), "l1": (0.5, partial(number, at_least=0.0, vector=True))}),
    "penalties.l1": Entry(penalties.l1, {"kappa": (0.5, partial(number, vector=True))}),
    "penalties.lq": Entry(penalties.lq,
        {"lam": (0.5, partial(number, vector=True)), "q": (1.5, partial(number, above=1.0, vector=True))}),
    "penalties.from_function": Entry(lambda **a: penalties.from_function(**(dict(psi_j=square) | a)).value(W),
        {"psi_j": (square, function), "strong_convexity": (1.0, partial(number, optional=True, vector=True)),
        "params": ((), parameters), "derivative": CALLBACK, "second": CALLBACK, "conjugate": CALLBACK,
        "smooth": (True, flag)}),
    "solvers.NewtonCG": Entry(lambda **a: solvers.NewtonCG(**a).check(BINARY), {"max_cg": (250, whole)}),
    "solvers.DualCoordinate": Entry(lambda **a: solvers.DualCoordinate(**a).check(BINARY),
        {"epochs": (2, partial(whole, least=0)), "polish": (True, flag), "max_cg": (250, whole),
        "compiled": (False, flag)}),
    "solvers.ProximalGradient": Entry(lambda **a: solvers.ProximalGradient(**a).check(BINARY),
        {"max_cg": (100, whole), "max_inner": (50, whole), "working_sets": (True, flag), "compiled": (False, flag)}),
    "solvers.Optax": Entry(lambda **a: solvers.Optax(**(dict(transformation=optax.adam(0.1)) | a)).check(BINARY),
        {"transformation": (optax.adam(0.1), only(optax.adam, "adam")), "updates": (10, whole)}),
    "solvers.DualNewton": Entry(lambda: 0),
    "testing.check_loss": Entry(testing.check_loss,
        {"loss": (losses.squared(), only(losses.squared, L2)),
        "scores": (TARGET, partial(vector, scalar=True, free=True)),
        "targets": (TARGET[:3], partial(vector, scalar=True, free=True))}),
    "testing.check_penalty": Entry(testing.check_penalty,
        {"penalty": (L2, only(penalties.l2, LOGISTIC)), "points": (TARGET, partial(vector, scalar=True, free=True))}),
    "progress": Entry(lambda **a: repr(jb.progress(**a, disable=True))[:10], {"description": ("x", lambda _: ())},
        others=("options",)),
}

FILES = {
    "load": Entry(jb.load, {"path": (saved("model"), path_to(FOLDER)),
        "problem": (None, only(LOGISTIC, MODEL, jb.Problem, optional=True))}),
    "fit, checkpoint": Entry(lambda **a: jb.fit(BINARY, X, Y, tol=0.5, **a).w,
        {"checkpoint": (FOLDER / "fit", lambda path: [c for c in path_to(FOLDER)(path) if c[1] is not None])},
        trains=True, rtol=1e-3),
    "RowBlocks": Entry(lambda **a: jb.RowBlocks(**a).shape, {"source": (X, only("no such file", [X, X[:, :2]]))},
        others=("columns",)),
    "Model.save": Entry(lambda **a: MODEL.save(**(dict(path=FOLDER / "new") | a)),
        {"path": (FOLDER / "new", path_to(FOLDER)), "data": (True, flag)}),
    "MultinomialModel.save": Entry(lambda **a: several()[0].save(**(dict(path=FOLDER / "new") | a)),
        {"path": (FOLDER / "new", path_to(FOLDER)), "data": (True, flag)}, trains=True),
    "OneVsRest.save": Entry(lambda **a: several()[1].save(**(dict(path=FOLDER / "new") | a)),
        {"path": (FOLDER / "new", path_to(FOLDER)), "data": (True, flag)}, trains=True),
    "load_svmlight": Entry(lambda **a: jb.load_svmlight(**a)[1],
        {"path": (text_file(), path_to(FOLDER)), "n_features": (4, partial(whole, least=3, optional=True)),
        "zero_based": (False, flag), "cache": (False, lambda v: [c for c in flag(v) if not isinstance(c[1], str)])}),
    "Monitor": Entry(lambda **a: jb.Monitor(**a).push(CHANGE).upper,
        {"model": WITH_DATA, "theta": (0.5, partial(number, optional=True)), "X_watch": rows(),
        "retrain": (False, flag), "path": (None,
        lambda _: [c for c in path_to(FOLDER)(fresh("m")) if c[1] is not None and c[0] not in ("text", "bytes")]),
        "methods": ([jb.Cached()], only([], [jb.Cached], ["Cached"], jb.Cached, jb.Cached(), [None], optional=True))}),
    "Monitor.push": Entry(lambda **a: jb.Monitor(MODEL, 0.5, methods=[jb.Cached()]).push(**a).upper,
        {"change": CHANGE_ONLY}),
    "Monitor.bounds": Entry(lambda **a: jb.Monitor(MODEL, 0.5).bounds(**a), {"method": METHOD}),
    "Monitor.save": Entry(lambda **a: jb.Monitor(MODEL, 0.5).save(**a), {"path": (FOLDER / "saved", path_to(FOLDER))}),
    "Monitor.refit": Entry(lambda: 0, others=("options",)),
    "Monitor.load": Entry(lambda **a: jb.Monitor.load(**a).rows,
        {"path": (saved("monitor"), path_to(FOLDER)),
        "problem": (None, only(LOGISTIC, MODEL, jb.Problem, optional=True)),
        "methods": ([jb.Cached()], only([], [jb.Cached], ["Cached"], jb.Cached, jb.Cached(), [None], optional=True))}),
}

ESTIMATORS = {
    "BoundedClassifier.fit": Entry(lambda **a: sklearn.BoundedClassifier(tol=0.5).fit(**a).coef_,
        {"X": DATA["X"], "y": (Y, lambda _: vector(Y, column=True)),
        "sample_weight": (ONES, partial(vector, scalar=True))}, trains=True, rtol=1e-3, theirs=True),
    "BoundedRegressor.fit": Entry(lambda **a: sklearn.BoundedRegressor(tol=0.5).fit(**a).coef_,
        {"X": DATA["X"], "y": (TARGET, lambda _: vector(TARGET, column=True)),
        "sample_weight": (ONES, partial(vector, scalar=True))}, trains=True, rtol=1e-3, theirs=True),
    "BoundedClassifier": Entry(lambda **a: sklearn.BoundedClassifier(**(dict(tol=0.5) | a)).fit(X, Y).coef_,
        {"loss": ("logistic", choice), "penalty": ("l2", choice), "alpha": (1.0, number), "fit_intercept": (True, flag),
        "class_weight": (None, lambda _: [c for c in choice("") if c[1] is not None and not isinstance(c[1], dict)]),
        "tol": (0.5, number), "max_steps": FIT["max_steps"], "solver": FIT["solver"]}, trains=True, rtol=1e-3,
        theirs=True, others=("l1_ratio",)),
    "BoundedRegressor": Entry(lambda **a: sklearn.BoundedRegressor(**(dict(tol=0.5) | a)).fit(X, TARGET).coef_,
        {"loss": ("squared", choice), "penalty": ("l2", choice), "alpha": (1.0, number), "fit_intercept": (True, flag),
        "tol": (0.5, number), "max_steps": FIT["max_steps"], "solver": FIT["solver"]}, trains=True, rtol=1e-3,
        theirs=True, others=("l1_ratio",)),
    "l1_ratio": Entry(lambda l1_ratio: sklearn.BoundedRegressor(penalty="elastic_net", tol=0.5,
        l1_ratio=l1_ratio).fit(X, TARGET).coef_, {"l1_ratio": (0.5, partial(number, at_least=0.0, most=1.0))},
        trains=True, rtol=1e-3, theirs=True),
    "BoundedClassifier.decision_function": Entry(lambda **a: estimators()[0].decision_function(**a), TEST, trains=True,
        rtol=1e-3, theirs=True),
    "BoundedClassifier.predict": Entry(lambda **a: estimators()[0].predict(**a), TEST, trains=True, rtol=1e-3,
        theirs=True),
    "BoundedRegressor.predict": Entry(lambda **a: estimators()[1].predict(**a), TEST, trains=True, rtol=1e-3,
        theirs=True),
    "BoundedClassifier.what_if": Entry(lambda **a: estimators()[0].what_if(**a).bounds,
        {"change": CHANGE_ONLY, "method": METHOD}, trains=True, rtol=1e-3, theirs=True),
    "BoundedClassifier.predict_interval": Entry(lambda **a: estimators()[0].predict_interval(**a),
        {"X": rows(), "change": (CHANGE, only(jb.set_targets, MODEL, [CHANGE], optional=True)), "method": METHOD},
        trains=True, rtol=1e-3, theirs=True),
    "BoundedRegressor.what_if": Entry(lambda **a: estimators()[1].what_if(**a).bounds,
        {"change": (jb.remove_rows([0]), CHANGE_ONLY[1]), "method": METHOD}, trains=True, rtol=1e-3, theirs=True),
    "BoundedRegressor.predict_interval": Entry(lambda **a: estimators()[1].predict_interval(**a),
        {"X": rows(), "change": (jb.remove_rows([0]), only(jb.set_targets, MODEL, [CHANGE], optional=True)),
        "method": METHOD}, trains=True, rtol=1e-3, theirs=True),
}

PLOTS = {
    "plots.bounds_over_retrained": Entry(on_figure(plots.bounds_over_retrained),
        {"bounds": (BAND, only(BOUNDS, {"a": 1.0})), "retrained": (Y, vector), "before": (Y, vector)}, others=("ax",)),
    "plots.band_over_lam": Entry(on_figure(plots.band_over_lam),
        {"lam": (ONES, weights), "band": (BAND, only(BOUNDS)), "retrained": (Y, partial(vector, gaps=True))},
        others=("ax",)),
    "plots.certified_fraction": Entry(on_figure(plots.certified_fraction),
        {"largest": (np.arange(N) * 1.0, vector), "attacked": (np.arange(N) * 1.0, partial(vector, infinite=True)),
        "most": (3, partial(whole, least=0, optional=True))}, others=("ax",)),
    "plots.determination_rate": Entry(on_figure(plots.determination_rate),
        {"x": (ONES, weights), "labels": ({"a": [Y] * N}, only({"a": Y[:2]}, {"a": 0.0}))}, others=("ax",)),
}

TABLE = CHANGES | QUESTIONS | TRAINED | FUNCTIONS | FILES | ESTIMATORS | PLOTS
