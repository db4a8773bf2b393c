"""Intervals that must contain what retraining would give: `bound` and `Bounds`."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ParamSpec

import jax
import numpy as np

from jaxbounds.arguments import as_array, refuse_labels
from jaxbounds.array import on_host, put, to_host, xp
from jaxbounds.batches import Flat
from jaxbounds.certificates import Cached, Method, Theorem1
from jaxbounds.certificates.fallback import fallback
from jaxbounds.certificates.unpenalised import certify_with_intercept
from jaxbounds.classes import ClassModel, not_a_model
from jaxbounds.display import shown
from jaxbounds.edit import Edit, prepare
from jaxbounds.host import on_device
from jaxbounds.inputs import rows_of
from jaxbounds.kinds import Change, check_change
from jaxbounds.methods import check_method
from jaxbounds.model import Model
from jaxbounds.names import named_columns, numbered
from jaxbounds.often import Ready, ready
from jaxbounds.pytree import in_float64, is_traced, is_wide, pytree, reduce
from jaxbounds.scattered import Scattered, scattered
from jaxbounds.status import Status
from jaxbounds.wording import touched

P = ParamSpec("P")


@pytree
class Interval:
    """lower <= value <= upper, elementwise.

    Arrays are float64: jax arrays with x64 on, NumPy arrays with x64 off; inside a trace with x64 off they are float32,
    rounded outward.

    Example:
        >>> import jaxbounds as jb
        >>> jb.Interval(1.0, 2.0).upper
        2.0
    """

    lower: Any
    upper: Any


@jax.custom_jvp
def _nextafter(x, towards):
    """The neighbouring float, with the gradient of the identity (jax knows none)."""
    return jax.numpy.nextafter(x, towards)


_nextafter.defjvps(lambda tangent, out, x, towards: tangent, None)


def publish(lower, upper, wide: bool) -> Interval:
    """The interval in the caller's precision, rounded outward; NaN becomes infinite."""
    lower = xp.where(xp.isnan(lower), -xp.inf, lower)
    upper = xp.where(xp.isnan(upper), xp.inf, upper)
    if wide:
        return put(Interval(lower, upper))
    if is_traced(lower, upper):
        low, high = lower.astype(xp.float32), upper.astype(xp.float32)
        infinity = xp.asarray(xp.inf, dtype=xp.float32)
        return Interval(_nextafter(low, -infinity), _nextafter(high, infinity))
    return Interval(np.asarray(lower), np.asarray(upper))


def published(method: Callable[P, Any]) -> Callable[P, Interval]:
    """Run in float64 and publish the interval in the caller's precision."""

    @functools.wraps(method)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> Interval:
        wide = is_wide()
        with jax.enable_x64(True), np.errstate(all="ignore"):
            lower, upper = method(*args, **kwargs)
            return publish(lower, upper, wide)

    return wrapped


def labels_of(lower, upper):
    """+1, -1, or 0 where the interval of a score does not decide; written so that NaN decides nothing."""
    return put(xp.where(lower > 0, 1, xp.where(upper < 0, -1, 0)).astype(xp.int32))


@dataclasses.dataclass(frozen=True, eq=False)
@shown
class Bounds:
    """Guaranteed intervals for the model that retraining on the changed data would give.

    Numbers are the old ones; added rows and columns follow. Removed rows have alpha [0, 0], removed columns w [0, 0].

    Attributes:
        fallback: int32, 0 unless the method found nothing of its own: 1 if Cached answered for it, 2 if Partial did.
        method: the method asked for. touched: how many rows, columns and elements the change set, added and removed.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0))
        >>> model = jb.fit(problem, np.eye(2), np.ones(2))
        >>> bounds = jb.bound(model, jb.set_targets([0], [2.0]))
        >>> bounds.labels(np.array([[1.0, 0.0], [0.0, 0.0]])).tolist()
        [1, 0]
    """

    model: Model
    regions: Any  # those of each edit, or a function that finds them when they are asked for
    found: Any  # (gap, radius, dual radius, status), or what a program found: these and the distance in one array
    fallback: Any = None
    touched: Any = None  # (kinds,) int32, see `wording.touched`
    method: Any = None

    @functools.cached_property
    def parts(self) -> Any:
        """Each edit with its regions."""
        return self.regions() if callable(self.regions) else self.regions

    @functools.cached_property
    def _summary(self) -> tuple:
        if isinstance(self.found, tuple):
            return self.found
        *numbers, status = np.asarray(self.found)[:4]
        return put((*numbers, np.int32(status)))

    @property
    def gap(self) -> Any:
        """Upper bound of the new duality gap at the best trial pair."""
        return self._summary[0]

    @property
    def radius(self) -> Any:
        """Upper bound of ||w_new - centre||_2 (inf if the penalty is not strongly convex)."""
        return self._summary[1]

    @property
    def dual_radius(self) -> Any:
        """Upper bound of ||alpha_new - centre||_C (inf if the loss is not smooth)."""
        return self._summary[2]

    @property
    def status(self) -> Any:
        """int32; `jb.Status(code).advice` says what it means."""
        return self._summary[3]

    @published
    def w(self, j=None):
        """Interval for every coefficient, or for those of columns j.

        Args:
            j: None, an integer or integers in the bounds' numbering, or names of columns where the model knows them;
                "intercept" is the last coefficient of a model whose intercept is penalised.

        Returns:
            Interval of shape (d,) or of the shape of j.
        """
        return self._at(_evaluate(self, "coordinates"), named_columns(self.model, j), "j")

    @published
    def alpha(self, i=None):
        """Interval for every dual variable (paper's sign), or for those numbered i.

        Args:
            i: None, an integer or integers in the bounds' numbering.

        Returns:
            Interval of shape (n,) or of the shape of i.
        """
        return self._at(_evaluate(self, "duals"), i, "i")

    @published
    def scores(self, X):
        """Interval for the retrained score x.w of each row of X.

        Args:
            X: (m, d) data of any kind `fit` takes; d counts the old columns and the added ones.

        Returns:
            Interval (m,).

        Raises:
            ValueError: X has the wrong number of columns or is not finite.
        """
        return self._scores(X)

    @property
    @published
    def intercept(self):
        """Interval of the intercept, [0, 0] without one; one that is penalised is a coefficient, `w("intercept")`."""
        return _evaluate(self, "offset")

    @property
    def distance(self) -> Interval:
        """Interval for ||w_new - w_old||_2: retrain when its upper end exceeds your tolerance."""
        if isinstance(self.found, tuple):
            return self._distance()
        found = np.asarray(self.found)
        ends = Interval(found[4, ...], found[5, ...])
        return put(ends) if is_wide() else ends

    @published
    def _distance(self):
        return _evaluate(self, "distance")

    @in_float64
    def labels(self, X):
        """Certified labels: +1, -1, or 0 where these bounds do not decide.

        They are the sign of the score whatever the loss is: for regression whether the prediction is above or below 0.

        Args:
            X: (m, d) data.

        Returns:
            (m,) int32.
        """
        return labels_of(*self._scores(X))

    @in_float64
    def decided(self, X):
        """Whether the label of each row, the sign of its score, is certain: (m,) bool."""
        return self.labels(X) != 0

    @in_float64
    def inactive_rows(self):
        """Rows whose new alpha is certified to be 0, so that they do not matter: (n,) bool (safe sample screening)."""
        lower, upper = _evaluate(self, "duals")
        return put((lower >= 0) & (upper <= 0))

    @in_float64
    def inactive_columns(self):
        """Columns whose new coefficient is certified to be 0: (d,) bool (safe feature screening)."""
        lower, upper = _evaluate(self, "coordinates")
        return put((lower >= 0) & (upper <= 0))

    @property
    def row_map(self):
        """(n,) where each row of the bounds' numbering is in compact numbers, -1 if it was removed."""
        edit = self.parts[0][0]
        return _compact(edit.rows_where(edit.row_removed))

    @property
    def column_map(self):
        """(d,) where each column of the bounds' numbering is in compact numbers, -1 if it was removed."""
        edit = self.parts[0][0]
        return _compact(edit.cols_where(edit.col_removed))

    def _scores(self, X):
        d = self.parts[0][0].d
        matrix = rows_of(self.model, X, d, on_host(self.model, self.parts, X))
        if matrix.shape[1] != d:
            raise ValueError(f"X must have {d} columns (old and added ones), got {matrix.shape[1]}")
        return _evaluate(self, "scores", matrix)

    def _at(self, interval, index, name):
        lower, upper = interval
        if index is None:
            return lower, upper
        refuse_labels(index, name)
        if not is_traced(index):
            numbers = as_array(index, name, "integers")
            if numbers.dtype.kind not in "iu":
                raise TypeError(f"{name} must hold integers, got dtype {numbers.dtype}; use np.flatnonzero for a mask")
            bad = numbers[(numbers < 0) | (numbers >= lower.shape[0])]
            if bad.size:
                raise ValueError(f"{name} = {bad.flat[0]} is out of range; numbers run from 0 to {lower.shape[0] - 1}")
            return lower[numbers], upper[numbers]
        inside = (index >= 0) & (index < lower.shape[0])  # jax would clamp
        lower, upper = (xp.take(end, index, mode="clip") for end in (lower, upper))
        return xp.where(inside, lower, -xp.inf), xp.where(inside, upper, xp.inf)


def _flatten(bounds: Bounds):
    # regions of host calls stay NumPy until the bounds travel through a jax transformation
    settled = _settled(bounds)
    return put(on_device(tuple(getattr(settled, f.name) for f in dataclasses.fields(settled)))), None


def _settled(bounds: Bounds) -> Bounds:
    """The same bounds, their regions found."""
    return dataclasses.replace(bounds, regions=bounds.parts, found=bounds._summary)


jax.tree_util.register_pytree_node(Bounds, _flatten, lambda _, children: Bounds(*children))
Bounds.__reduce__ = lambda self: reduce(_settled(self))  # type: ignore[method-assign]


def _evaluate(bounds: Bounds, what: str, *args):
    """The intersection of what all regions say; everything if the change was invalid."""
    model, parts, status, known = bounds.model, bounds.parts, bounds.status, ready(bounds.model)
    if known is not None and isinstance(parts[0][0].rows, np.ndarray) and on_host(args):
        return intersect(known.host, parts, np.asarray(status), what, args)
    if on_host(model, parts, status, args):
        model, parts, status = to_host((model, parts, status))
        return intersect(model, parts, status, what, args)
    return _intersect_jit(model, on_device(parts), status, what, args)


def intersect(model, parts, status, what: str, args):
    """(lower, upper) of region.what(model, edit, *args), intersected over all regions."""
    lower, upper = -xp.inf, xp.inf
    for edit, regions in parts:
        for region in regions:
            low, high = getattr(region, what)(model, edit, *args)
            lower = xp.maximum(lower, xp.where(xp.isnan(low), -xp.inf, low))
            upper = xp.minimum(upper, xp.where(xp.isnan(high), xp.inf, high))
    valid = status != Status.INVALID
    return xp.where(valid, lower, -xp.inf), xp.where(valid, upper, xp.inf)


_intersect_jit = functools.partial(jax.jit, static_argnames="what")(intersect)


def _compact(gone):
    return put(xp.where(gone, -1, xp.cumsum(~gone) - 1).astype(xp.int32))


def certify(method: Method, model: Model, change: Change | Flat):
    """The regions of each edit, and the summary over them."""
    if model.problem.intercept:
        assert isinstance(change, Change)  # batches ask one by one
        parts = certify_with_intercept(method, model, change)
    else:
        parts = method.certify(model, method.edits(model, change))
    return parts, *summary(parts), fallback(method, model.problem, parts)


def summary(parts):
    """(gap, radius, dual radius, status) over the regions of all edits."""
    regions = [region for _, found in parts for region in found]
    inf = xp.asarray(xp.inf)

    def least(values):
        return functools.reduce(xp.minimum, [xp.where(xp.isnan(x), xp.inf, x) for x in values], inf)

    gap = least([r.gap for r in regions])
    radius = least([r.length for r in regions if r.primal])
    dual = least([r.dual_radius for r in regions if r.dual])
    valid = parts[0][0].valid
    status = xp.where(xp.isfinite(gap), int(Status.CONVERGED), int(Status.VACUOUS))
    status = xp.where(valid, status, int(Status.INVALID)).astype(xp.int32)
    gap, radius, dual = (xp.where(valid, x, xp.inf) for x in (gap, radius, dual))
    return gap, radius, dual, status


_certify_jit = jax.jit(certify)


@in_float64
def bound(model: Model, change: Change, method: Method | None = None) -> Bounds:
    """Bounds on the retrained model without retraining, at a cost that follows the size of the change.

    On the CPU a call is NumPy. With `Cached` and `Theorem1` the 257th call for models and changes of the same kind and
    sizes compiles a program, once, in a second or two; later calls take a tenth of the time. Both give the same
    intervals up to rounding, which both allow for. What else is asked of such bounds is computed when it is asked for.

    Args:
        model: from `fit`, `fit_one_vs_rest` or `from_sklearn`; inexact training only widens the bounds.
        change: from `set_rows`, `remove_rows`, ..., `combine`.
        method: `Cached()` by default; from cheap to tight: `Theorem1()`, `Cached()`, `Partial()`, `Pass()`,
            `Curvature()`.

    Returns:
        Bounds; for several classes OneVsRestBounds or MultinomialBounds, whose labels are class numbers.

    Raises:
        TypeError: an argument has the wrong kind. ValueError: the change does not fit the model, or the method needs a
        property that the problem lacks.

    Example:
        >>> import numpy as np, jaxbounds as jb
        >>> problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0))
        >>> model = jb.fit(problem, np.eye(2), np.ones(2))
        >>> interval = jb.bound(model, jb.set_rows([0], [[2.0, 0.0]])).scores(np.eye(2))
        >>> interval.lower.shape
        (2,)
    """
    if isinstance(model, ClassModel):
        return model.bound(change, method)
    if not isinstance(model, Model):
        raise TypeError(not_a_model(model))
    check_change(change)
    change = numbered(model, change)
    known = ready(model)
    method = check_method(Cached() if method is None else method)
    if known is None:
        check_method(method, model.problem, change)
    else:
        known.check(method, change)
    if (missing := method.missing(model, change)) is not None:
        raise ValueError(missing)
    said = {"touched": touched(change), "method": method}
    if known is not None and isinstance(method, Cached | Theorem1) and not model.problem.intercept:
        asked = scattered(known, change)
        if asked is None and on_host(change):
            asked = prepare(known.host, to_host(change), host=True)
        if asked is not None:
            return _bound_touched(model, known, method, asked, said)
    if known is None or not on_host(change):
        parts, *found, weaker = _certify_jit(method, model, change)
        return Bounds(model, parts, tuple(found), weaker, **said)
    parts, *found = certify(method, known.host, to_host(change))
    *found, weaker = put(found)
    return Bounds(model, parts, tuple(found), weaker, **said)


def _bound_touched(model: Model, known: Ready, method: Method, asked: Edit | Scattered, said: dict) -> Bounds:
    """Bounds from what the change touches alone, by a compiled program where such changes come often."""

    def regions():
        return method.certify(known.host, (_edit_of(known.host, asked),))

    if known.strongly_convex:
        if (answer := known.answer(summarise, method, asked)) is not None:
            return Bounds(model, regions, answer, _none_weaker(), **said)
    parts = regions()
    return Bounds(model, parts, put(summary(parts)), _none_weaker(), **said)


@functools.cache  # a transfer costs as much as a third of the answer
def _none_weaker() -> Any:
    return put(np.int32(0))


def _edit_of(model: Model, asked: Edit | Scattered) -> Edit:
    return asked.edit(model) if isinstance(asked, Scattered) else asked


def summarise(method: Method, model: Model, asked: Edit | Scattered):
    """Gap, radius, dual radius, status and the ends of the distance of a change, in one float64 array: (6,)."""
    model = asked.recall(model) if isinstance(asked, Scattered) else model
    parts = method.certify(model, (_edit_of(model, asked),))
    *numbers, status = summary(parts)
    distance = intersect(model, parts, status, "distance", ())
    return xp.stack([*numbers, status.astype(np.float64), *distance])
