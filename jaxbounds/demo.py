"""The what-if demo behind `python -m jaxbounds`: train, change the data, bound, and compare with retraining."""

import argparse
import contextlib
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import jax
import numpy as np
import scipy.sparse

import jaxbounds as jb

BUNDLED = ("breast_cancer", "digits")
LOSSES: dict[str, Callable[[], Any]] = {
    "smoothed_hinge": lambda: jb.losses.smoothed_hinge(0.5),
    "hinge": lambda: jb.losses.hinge(),
    "squared_hinge": lambda: jb.losses.squared_hinge(),
    "logistic": lambda: jb.losses.logistic(),
    "squared": lambda: jb.losses.squared(),
    "huber": lambda: jb.losses.huber(1.0),
}
PENALTIES: dict[str, Callable[[float], Any]] = {
    "l2": lambda lam: jb.penalties.l2(lam),
    "elastic_net": lambda lam: jb.penalties.elastic_net(lam, 0.1 * lam),
    "l1": lambda lam: jb.penalties.l1(lam),
}
METHODS: dict[str, Callable[[], Any]] = {
    "theorem1": lambda: jb.Theorem1(),
    "cached": lambda: jb.Cached(),
    "partial": lambda: jb.Partial(),
    "pass": lambda: jb.Pass(),
    "curvature": lambda: jb.Curvature(),
}
CHANGES = ("rows", "elements", "columns", "remove")
REGRESSION = ("squared", "huber")


@dataclass(frozen=True)
class Split:
    """A training set, test rows, and what to call them."""

    name: str
    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray


@dataclass(frozen=True)
class Answer:
    """What one method says, evaluated on the host, and the seconds it took."""

    name: str
    w: Any
    alpha: Any
    scores: Any
    labels: np.ndarray | None
    distance: Any
    seconds: float


def _change_spec(text: str) -> tuple[str, int]:
    kind, _, count = text.partition(":")
    if kind not in CHANGES or not count.isdigit() or int(count) < 1:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not KIND:COUNT with KIND one of {', '.join(CHANGES)} and COUNT at least 1, such as rows:10"
        )
    return kind, int(count)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m jaxbounds",
        description="Train a linear model, change its data, bound the retrained model without retraining, then retrain "
        "and compare. Exit status: 0 all bounds held, 1 a bound was violated, 2 the question could not be run.",
    )
    add = parser.add_argument
    add("--data", default="breast_cancer", metavar="FILE",
        help="a LIBSVM file (may be .gz), or one of scikit-learn's sets: breast_cancer (default), digits")
    add("--positive", type=float, metavar="LABEL",
        help="the label that counts as +1, all others as -1 (default: the larger of two labels; 8 for digits)")
    add("--loss", choices=LOSSES, default="smoothed_hinge", help="default: %(default)s (gamma 0.5)")
    add("--penalty", choices=PENALTIES, default="l2", help="default: %(default)s; elastic_net has l1 = lam/10")
    add("--lam", type=float, default=1e-2, help="strength of the penalty, for the mean loss (default: %(default)s)")
    add("--change", type=_change_spec, default=("rows", 10), metavar="KIND:COUNT",
        help="rows:10 (default), elements:100, columns:3: that many are chosen at random and every non-zero becomes "
        "a uniform draw between its feature's smallest and largest value; remove:5 deletes rows")
    add("--method", choices=("all", *METHODS), default="all", help="how to bound (default: all of them, side by side)")
    add("--seed", type=int, default=0, help="of the split and the change (default: %(default)s)")
    add("--plot", metavar="OUT.png", help="also draw the bounds over the retrained values (needs matplotlib)")
    return parser


def _read(data: str, positive: float | None, regression: bool) -> tuple[str, Any, np.ndarray]:
    """Load a set; returns its name, the matrix with rows of norm 1, and targets."""
    if data in BUNDLED:
        try:
            import sklearn.datasets
        except ImportError as error:
            raise ImportError(
                "the bundled data come with scikit-learn, which is not installed: pip install 'jaxbounds[data]'"
            ) from error
        bunch: Any = getattr(sklearn.datasets, f"load_{data}")()
        X, labels = np.asarray(bunch.data, np.float64), np.asarray(bunch.target, np.float64)
        spread = X.std(axis=0)
        X = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
        positive = 8.0 if positive is None and data == "digits" else positive
        norms = np.linalg.norm(X, axis=1)
        X = X / np.where(norms > 0, norms, 1.0)[:, None]
    else:
        X, labels = jb.load_svmlight(data)
        norms = np.sqrt(np.ravel(X.multiply(X).sum(axis=1)))
        X = scipy.sparse.csr_array(scipy.sparse.diags_array(1.0 / np.where(norms > 0, norms, 1.0)) @ X)
    distinct = np.unique(labels)
    if positive is not None:
        if positive not in distinct:
            raise ValueError(f"--positive {positive:g}: no row has this label; there are {_short(distinct)}")
        labels = np.where(labels == positive, 1.0, -1.0)
        text = f"label {positive:g} against the rest"
    elif distinct.size == 2:
        labels = np.where(labels == distinct[1], 1.0, -1.0)
        text = f"label {distinct[1]:g} against {distinct[0]:g}"
    elif regression:
        text = "regression"
    else:
        raise ValueError(
            f"--data {data}: {distinct.size} different labels ({_short(distinct)}); a margin loss needs two: choose "
            "one with --positive, or a regression loss with --loss squared or --loss huber"
        )
    return f"{data}, {text}", X, labels


def _short(values: np.ndarray) -> str:
    text = ", ".join(f"{value:g}" for value in values[:8])
    return text + (", ..." if values.size > 8 else "")


def _split(name: str, X: Any, y: np.ndarray, rng: np.random.Generator) -> Split:
    """80 % of the rows to train on, 20 % to ask about."""
    order = rng.permutation(y.size)
    cut = max(int(0.8 * y.size), 1)
    train, test = np.sort(order[:cut]), np.sort(order[cut:])
    if test.size == 0:
        raise ValueError(f"--data: {y.size} rows are too few to split into a training and a test set")
    return Split(name, X[train], y[train], X[test], y[test])


def _redraw(values: np.ndarray, columns: np.ndarray, X: Any, rng: np.random.Generator) -> np.ndarray:
    """Uniform draws between the smallest and largest value of each entry's feature; zeros stay zero."""
    low, high = X.min(axis=0), X.max(axis=0)
    if scipy.sparse.issparse(X):
        low, high = low.toarray(), high.toarray()
    low, high = np.ravel(low), np.ravel(high)
    return np.where(values != 0, rng.uniform(low[columns], high[columns]), 0.0)


def _change(kind: str, count: int, X: Any, rng: np.random.Generator) -> Any:
    """The random change that was asked for."""
    n, d = X.shape
    entries = scipy.sparse.coo_array(X)
    available = {"rows": n, "remove": n - 1, "columns": d, "elements": entries.nnz}[kind]
    if count > available:
        raise ValueError(f"--change {kind}:{count}: the training set allows at most {available}")
    chosen = np.sort(rng.choice(available, count, replace=False))
    if kind == "remove":
        return jb.remove_rows(chosen)
    if kind == "elements":
        rows, cols = entries.coords[0][chosen], entries.coords[1][chosen]
        return jb.set_elements(rows, cols, _redraw(entries.data[chosen], cols, X, rng))
    new = X[chosen] if kind == "rows" else X[:, chosen]
    if scipy.sparse.issparse(X):
        new = scipy.sparse.coo_array(new)
        cols = new.coords[1] if kind == "rows" else chosen[new.coords[1]]
        new = scipy.sparse.csr_array((_redraw(new.data, cols, X, rng), new.coords), shape=new.shape)
    else:
        cols = np.arange(d) if kind == "rows" else chosen
        new = _redraw(new, np.broadcast_to(cols, new.shape), X, rng)
    return jb.set_rows(chosen, new) if kind == "rows" else jb.set_columns(chosen, new)


def _timed(call: Callable[[], tuple[Any, Any]], repeats: int) -> tuple[Any, float]:
    """The first of what a call returns, and the median seconds until the second is there, compilation apart."""
    jax.block_until_ready(call()[1])
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        result, needed = call()
        jax.block_until_ready(needed)
        seconds.append(time.perf_counter() - start)
    return result, float(np.median(seconds))


def _host(interval: Any) -> Any:
    """The same interval with NumPy float64 ends."""
    return type(interval)(np.asarray(interval.lower, np.float64), np.asarray(interval.upper, np.float64))


def _ask(name: str, model: Any, change: Any, X_test: Any, classification: bool) -> Answer:
    method = METHODS[name]()

    def call() -> tuple[Any, Any]:
        bounds: Any = cast(Any, jb.bound)(model, change, method=method)
        return bounds, bounds.distance.upper

    bounds, seconds = _timed(call, 7)
    return Answer(
        name,
        _host(bounds.w()),
        _host(bounds.alpha()),
        _host(bounds.scores(X_test)),
        np.asarray(bounds.labels(X_test)) if classification else None,
        _host(bounds.distance),
        seconds,
    )


def _outside(interval: Any, truth: Any, slack: Any) -> int:
    """How many true values lie outside by more than the retrained model's own uncertainty (NaN counts as outside)."""
    truth = np.asarray(truth)
    inside = (interval.lower - slack <= truth) & (truth <= interval.upper + slack)
    return int(np.sum(~inside))


@dataclass(frozen=True)
class Truth:
    """The retrained model in NumPy, with how far it may itself be from the exact optimum."""

    w: np.ndarray
    alpha: np.ndarray | None
    kept: np.ndarray
    scores: np.ndarray
    distance: float
    slack_w: float
    slack_alpha: float
    gap: float


def _truth(old: Any, new: Any, X_test: Any, removed: np.ndarray) -> Truth:
    """From a gap G: ||w - w*|| <= sqrt(2 G / lam), and |alpha_i - alpha*_i| <= sqrt(2 G / (gamma c_i))."""
    w, w_old, gap = np.asarray(new.w), np.asarray(old.w), float(new.gap)
    lam, smoothness = new.problem.penalty.strong_convexity, new.problem.loss.smoothness
    # L1 has no modulus to turn a gap into a distance: allow 1e-4 of the largest coefficient there.
    slack_w = 1e-4 * float(np.max(np.abs(w))) if lam is None else float(np.sqrt(2 * gap / np.min(np.asarray(lam))))
    alpha, slack_alpha = None, 0.0
    if smoothness is not None:
        alpha = np.asarray(new.alpha)
        slack_alpha = float(np.sqrt(2 * gap * float(smoothness) * alpha.size))
    kept = np.setdiff1d(np.arange(old.alpha.size), removed)
    distance = float(np.linalg.norm(w - w_old))
    return Truth(w, alpha, kept, np.asarray(X_test @ w), distance, slack_w + 1e-9, slack_alpha + 1e-9, gap)


def _violations(answer: Answer, truth: Truth, norms: np.ndarray) -> int:
    count = _outside(answer.w, truth.w, truth.slack_w)
    count += _outside(answer.scores, truth.scores, truth.slack_w * (norms + 1e-3))
    count += _outside(answer.distance, truth.distance, truth.slack_w)
    if truth.alpha is not None:
        kept = type(answer.alpha)(answer.alpha.lower[truth.kept], answer.alpha.upper[truth.kept])
        count += _outside(kept, truth.alpha, truth.slack_alpha)
    if answer.labels is not None:
        clear = np.abs(truth.scores) > truth.slack_w * norms
        count += int(np.sum(clear & (answer.labels != 0) & (answer.labels != np.sign(truth.scores))))
    return count


def _values(title: str, before: np.ndarray, interval: Any, truth: np.ndarray, count: int = 5) -> Iterator[str]:
    """The rows of one table: those values that the change moves most."""
    yield f"{title:<18}{'before':>12}{'lower':>12}{'retrained':>12}{'upper':>12}"
    for j in np.argsort(-np.abs(truth - before), kind="stable")[:count]:
        ends = f"{interval.lower[j]:>12.5f}{truth[j]:>12.5f}{interval.upper[j]:>12.5f}"
        yield f"  {'#' + str(j):<16}{before[j]:>12.5f}{ends}"


def _summary(answers: list[Answer], truth: Truth, norms: np.ndarray, retrain: float) -> Iterator[str]:
    moved = f"{'||w_new - w_old||':>20}{'over true':>11}"
    yield f"{'method':<10}{moved}{'decided':>9}{'time':>10}{'of retraining':>15}{'violated':>10}"
    for answer in answers:
        upper = float(answer.distance.upper)
        ratio = f"{upper / truth.distance:.2f}" if truth.distance > 0 else "-"
        decided = "-" if answer.labels is None else f"{np.mean(answer.labels != 0):.1%}"
        yield (
            f"{answer.name:<10}{'<= ' + format(upper, '.5f'):>20}{ratio:>11}{decided:>9}"
            f"{_seconds(answer.seconds):>10}{answer.seconds / retrain:>15.2g}{_violations(answer, truth, norms):>10}"
        )
    everything = "-" if answers[0].labels is None else "100.0%"
    yield f"{'retraining':<10}{truth.distance:>20.5f}{'1':>11}{everything:>9}{_seconds(retrain):>10}{'1':>15}"


def _seconds(value: float) -> str:
    return f"{value * 1e6:.0f} us" if value < 1e-3 else f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.1f} s"


def _draw(path: str, answers: list[Answer], truth: Truth, w_old: Any, scores_old: Any, title: str) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("--plot needs matplotlib, which is not installed: pip install 'jaxbounds[plot]'") from error
    from jaxbounds.plots import bounds_over_retrained

    figure = Figure(figsize=(10.0, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    bounds_over_retrained({a.name: a.scores for a in answers}, truth.scores, before=scores_old, ax=left)
    bounds_over_retrained({a.name: a.w for a in answers}, truth.w, before=w_old, ax=right)
    left.set(title="scores of the test rows", xlabel="test row, sorted by its retrained score")
    right.set(title="coefficients", xlabel="feature, sorted by its retrained coefficient")
    right.get_legend().remove()
    figure.suptitle(title, fontsize="medium")
    figure.savefig(path, dpi=110)


@contextlib.contextmanager
def _progress(total: int) -> Iterator[tuple[Callable[[str], None], Callable[[dict], None] | None]]:
    """(begin, callback): `begin` names the step that starts, `callback` is for `fit`; a bar is drawn on a terminal."""
    try:
        from tqdm import tqdm
    except ImportError:
        yield lambda step: None, None
        return
    with tqdm(total=total, disable=None, leave=False, bar_format="{desc:<44} {bar} {n}/{total} {elapsed}") as bar:
        current = ""

        def begin(step: str) -> None:
            nonlocal current
            bar.update(int(current != ""))
            current = step
            bar.set_description_str(step)

        def callback(info: dict) -> None:
            relative = info["gap"] / max(abs(info["primal"]), 1e-300)
            bar.set_description_str(f"{current}: step {info['step']}, gap {relative:.0e}")

        yield begin, None if bar.disable else callback


def run(args: argparse.Namespace) -> int:
    """Answer the question in parsed arguments; prints the report and returns the exit status."""
    rng = np.random.default_rng(args.seed)
    split = _split(*_read(args.data, args.positive, args.loss in REGRESSION), rng)
    classification = bool(np.all(np.abs(split.y) == 1))
    kind, count = args.change
    change = _change(kind, count, split.X, rng)
    problem = jb.Problem(LOSSES[args.loss](), PENALTIES[args.penalty](args.lam))
    names = [name for name in METHODS if METHODS[name]().applies(problem)] if args.method == "all" else [args.method]
    with _progress(3 + len(names)) as (begin, callback):
        begin("training")
        model = jb.fit(problem, split.X, split.y, callback=callback)
        answers = []
        for name in names:
            begin(f"bounding: {name}")
            answers.append(_ask(name, model, change, split.X_test, classification))
        begin("retraining, timed")
        X_new, y_new, _ = change.apply(split.X, split.y)

        def retrain() -> tuple[Any, Any]:
            new = jb.fit(problem, X_new, y_new, warm_start=model.w)
            return new, new.w

        _, retraining = _timed(retrain, 5)
        begin("retraining, exactly")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a gap that stays above 1e-12 is accounted for below
            new = jb.refit(model, change, tol=1e-12)
    removed = np.asarray(change.rows) if kind == "remove" else np.zeros(0, np.int32)
    truth = _truth(model, new, split.X_test, removed)
    square = split.X_test.multiply(split.X_test) if scipy.sparse.issparse(split.X_test) else split.X_test**2
    norms = np.sqrt(np.ravel(square.sum(axis=1)))
    scores_old = np.asarray(split.X_test @ np.asarray(model.w))
    best = min(answers, key=lambda answer: float(answer.distance.upper))
    n, d = split.X.shape
    task = f"{args.loss} + {args.penalty}, lam {args.lam:g}, change {kind}:{count}, seed {args.seed}"
    print(f"{split.name}: {n} training rows, {d} features, {norms.size} test rows\n{task}\n")
    for title, before, interval, after in (
        ("coefficient", np.asarray(model.w), best.w, truth.w),
        ("score of test row", scores_old, best.scores, truth.scores),
    ):
        print(*_values(title, before, interval, after), sep="\n", end="\n\n")
    print(*_summary(answers, truth, norms, retraining), sep="\n", end="\n\n")
    violated = sum(_violations(answer, truth, norms) for answer in answers)
    verdict = "no bound was violated" if not violated else f"{violated} BOUNDS WERE VIOLATED"
    print(f"{verdict} (retrained to a gap of {truth.gap:.1e}: its coefficients are known to {truth.slack_w:.1e})")
    if args.plot:
        _draw(args.plot, answers, truth, np.asarray(model.w), scores_old, f"{split.name}\n{task}")
        print(f"figure written to {args.plot}")
    return int(violated > 0)


def main(argv: list[str] | None = None) -> int:
    """The command line. Args: `argv` without the program's name (None: the process's own). Returns the exit status."""
    args = _parser().parse_args(argv)
    try:
        return run(args)
    except (ValueError, OSError, ImportError) as error:
        print(f"python -m jaxbounds: error: {error}", file=sys.stderr)
        return 2
