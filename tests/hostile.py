"""Hostile values for every kind of argument, each with the plain value that it stands for, or REFUSED if it has none.

A kind is a function from a plain argument to cases (name, hostile value, plain value or REFUSED). A value with a plain
form may be taken, and then gives what the plain one gives, or be refused; REFUSED ones must be refused by name.
"""

import decimal
import fractions
import re
import warnings

import jax.numpy as jnp
import numpy as np
import pandas as pd
import scipy.sparse as sp
from jax.experimental import sparse as jsparse

import jaxbounds as jb

try:
    import polars as pl
except ImportError:  # not in the environment of the lowest versions
    pl = None

REFUSED = object()
NOT_ARRAYS = {
    "text": "abc", "bytes": b"abc", "a dict": {0: 1}, "a set": {1, 2}, "an object": object(), "a class": float,
    "a generator": (k for k in ()), "a function": len,
}  # fmt: skip


class Frame:
    """Something like a data frame: only NumPy's protocol."""

    def __init__(self, data):
        self.data = data

    def __array__(self, dtype=None, copy=None):
        return np.array(self.data, dtype=dtype)


class Unreadable:
    """An array protocol that fails."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("no array here")


def _with(array, at, value, dtype=None):
    array = np.array(array, dtype or object if value is None else dtype)
    array[at] = value
    return array


def _read_only(array):
    array = np.array(array)
    array.setflags(write=False)
    return array


def _masked(array, at):
    hidden = np.zeros(np.shape(array), bool)
    hidden[at] = True
    return np.ma.masked_array(array, hidden)


def _arrays(a):
    """The same numbers in other clothes."""
    yield "a list", a.tolist()
    yield "a tuple", tuple(a.tolist())
    yield "strided", np.repeat(a, 2, axis=0)[::2]
    yield "negative strides", a[::-1].copy()[::-1]
    yield "read-only", _read_only(a)
    yield "big-endian", a.astype(a.dtype.newbyteorder(">"))
    yield "objects", a.astype(object)
    yield "masked, nothing hidden", np.ma.masked_array(a)
    yield "the array protocol", Frame(a)


def _polars(a):
    if pl is not None:
        yield "polars", pl.Series(a) if a.ndim == 1 else pl.DataFrame(a, schema=[f"c{j}" for j in range(a.shape[1])])


def _polars_null(a):
    if pl is not None:
        holed = _with(a, -1, None).tolist()
        yield "polars, null", pl.Series(holed) if a.ndim == 1 else pl.DataFrame(holed, orient="row")


def _floats(a):
    yield "float16", a.astype(np.float16)
    yield "float32", a.astype(np.float32)
    yield "long double", a.astype(np.longdouble)
    yield "bfloat16", jnp.asarray(a, jnp.bfloat16)
    yield "a jax array", jnp.asarray(a, jnp.float32)
    if np.array_equal(a, np.trunc(a)):
        yield "int8", a.astype(np.int8)
        yield "int64", a.astype(np.int64)
        if np.all(a >= 0):
            yield "uint64", a.astype(np.uint64)


def _broken_numbers(a, first):
    """Arrays of the right shape that hold no real numbers."""
    yield "NaN", _with(a, first, np.nan)
    yield "inf", _with(a, first, np.inf)
    yield "-inf", _with(a, first, -np.inf)
    yield "NaN in float32", _with(a, first, np.nan, np.float32)
    yield "a long double beyond float64", _with(a, first, np.longdouble("1e4000"), np.longdouble)
    yield "complex", a + 1j
    yield "text in it", a.astype(str)
    yield "None in it", _with(a, first, None)
    yield "dates", a.astype(int).astype("datetime64[s]")
    yield "durations", a.astype(int).astype("timedelta64[s]")
    yield "records", np.zeros(a.shape, [("a", float), ("b", float)])
    yield "a hidden entry", _masked(a, first)
    yield "a hidden entry, whole", _masked(a.astype(int), first)
    yield "an unreadable array", Unreadable()


def matrix(a, rows=True, columns=True, vector=False):
    """(n, d) data; `rows`, `columns`: whether their numbers are fixed; `vector`: whether one row may be a vector."""
    n, d = a.shape
    first = (n - 1, d - 1)
    for name, value in (*_arrays(a), *_floats(a)):
        yield name, value, a
    yield "Fortran order", np.asfortranarray(a), a
    yield "booleans", a > 0, (a > 0).astype(float)
    yield "integers", a.astype(np.int32), np.trunc(a)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        yield "np.matrix", np.matrix(a), a
    yield "pandas", pd.DataFrame(a), a
    yield "pandas, nullable", pd.DataFrame(a).astype("Float64"), a
    yield from ((name, value, a) for name, value in _polars(a))
    yield from ((name, value, a) for name, value in _sparse_forms(a))
    for name, value in (*NOT_ARRAYS.items(), *_broken_numbers(a, first), *_no_matrices(a, first, vector)):
        yield name, value, REFUSED
    yield from ((name, value, REFUSED) for name, value in _sparse_refused(a, first))
    if columns:
        yield "a column too many", np.hstack([a, a[:, :1]]), REFUSED
        yield "sparse, a column too few", sp.csr_array(np.hstack([a, a])[:, : d + 2]), REFUSED
    if rows:
        yield "a row too many", np.vstack([a, a[:1]]), REFUSED
        yield "a row too many, sparse", sp.csr_array(np.vstack([a, a[:1]])), REFUSED


def _no_matrices(a, first, vector):
    yield "a number", 1.5
    if not vector:
        yield "a single row", a[0]
    yield "three axes", a[None]
    yield "no rows", a[:0]
    yield "no columns", a[:, :0]
    yield "an empty list", []
    yield "ragged", [*a[:-1].tolist(), a[-1, :-1].tolist()] if len(a) > 1 else [[1.0, [2.0]]]
    yield "integers beyond float64", [[10**400] * a.shape[1]] * len(a)
    yield "a list of masked rows", [*a[:-1], _masked(a[-1], first[1])]
    yield "pandas, NaN", pd.DataFrame(_with(a, first, np.nan))
    yield "pandas, None", pd.DataFrame(_with(a, first, None))
    yield "pandas, NA", pd.DataFrame(_with(a, first, pd.NA, object)).astype("Float64")
    yield "pandas, text", pd.DataFrame(a).astype(str)
    yield from _polars_null(a)


def _sparse_forms(a):
    csr, coo = sp.csr_array(a), sp.coo_array(a)
    yield "csr", csr
    yield "csc", sp.csc_array(a)
    yield "coo", coo
    yield "csr_matrix", sp.csr_matrix(a)
    yield "lil", sp.lil_array(a)
    yield "dok", sp.dok_array(a)
    yield "bsr", sp.bsr_array(a)
    yield "dia", sp.dia_array(a)
    yield "csr, float32", sp.csr_array(a.astype(np.float32))
    full, d = sp.csr_array(np.ones_like(a)), a.shape[1]
    yield "csr, explicit zeros", sp.csr_array((a.ravel(), full.indices, full.indptr), shape=a.shape)
    yield "csr, unsorted", sp.csr_array((a[:, ::-1].ravel(), np.tile(np.arange(d)[::-1], len(a)), full.indptr), a.shape)
    twice = np.tile(coo.row, 2), np.tile(coo.col, 2)
    yield "coo, duplicates", sp.coo_array((np.tile(coo.data / 2, 2), twice), shape=a.shape)
    long = sp.csr_array(a)
    long.indices, long.indptr = long.indices.astype(np.int64), long.indptr.astype(np.int64)
    yield "csr, int64", long
    still = sp.csr_array(a)
    for part in (still.data, still.indices, still.indptr):
        part.setflags(write=False)
    yield "csr, read-only", still
    yield "BCOO", jsparse.BCOO.fromdense(jnp.asarray(a, jnp.float32))
    yield "BCSR", jsparse.BCSR.fromdense(jnp.asarray(a, jnp.float32))


def _sparse_refused(a, first):
    yield "csr, NaN", sp.csr_array(_with(a, first, np.nan))
    yield "coo, inf", sp.coo_array(_with(a, first, np.inf))
    yield "csr, complex", sp.csr_array(a + 1j)
    yield "csr, a sum beyond float64", sp.coo_array(([1e308, 1e308], ([0, 0], [0, 0])), shape=a.shape)
    for name, part, at, value in (
        ("a column that is not there", "indices", 0, 10**6), ("a negative column", "indices", 0, -1),
        ("entries that are not there", "indptr", -1, 10**6), ("falling row starts", "indptr", 1, -3),
    ):  # fmt: skip
        for kind in (sp.csr_array, sp.csc_array):
            broken = kind(np.ones_like(a))
            getattr(broken, part)[at] = value
            yield f"{kind.__name__}, {name}", broken
    for axis in (0, 1):
        broken = sp.coo_array(np.ones_like(a))
        broken.coords[axis][0] = 10**6
        yield f"coo, out of range on axis {axis}", broken


def vector(a, scalar=False, column=False, free=False, infinite=False, gaps=False):
    """(k,) numbers; one may stand for all, a column be read as a vector, k be free, infinity be meant, NaN a gap."""
    for name, value in (*_arrays(a), *_floats(a)):
        yield name, value, a
    yield "pandas", pd.Series(a, index=np.arange(len(a))[::-1]), a
    yield "pandas, nullable", pd.Series(a).astype("Float64"), a
    yield from ((name, value, a) for name, value in _polars(a))
    bad = [*NOT_ARRAYS.items(), *_broken_numbers(a, len(a) - 1)]
    bad += [
        ("none", a[:0]), ("an empty list", []), ("ragged", [[1.0], [1.0, 2.0]]),
        ("a row", a[None]), ("three axes", a[None, None]), ("sparse", sp.csr_array(a[None])),
        ("integers beyond float64", [10**400] * len(a)), ("a list of masked numbers", [*a[:-1], _masked(a[-1:], 0)]),
        ("pandas, NaN", pd.Series(_with(a, -1, np.nan))), ("pandas, None", pd.Series(_with(a, -1, None))),
        ("pandas, NA", pd.Series(a).astype("Float64").where(np.arange(len(a)) > 0)),
        *_polars_null(a),
    ]  # fmt: skip
    if not free:
        bad += [("one too many", np.append(a, a[:1])), ("one too few", a[:-1])]
    if infinite:
        bad = [item for item in bad if item[0] not in ("inf", "-inf", "a long double beyond float64")]
    if gaps:
        bad = [(name, value) for name, value in bad if not re.search("nan|null|NA|None", name, re.IGNORECASE)]
    if not column:
        bad.append(("a column", a[:, None]))
    if not scalar:
        bad.append(("a number", 1.0))
    yield from ((name, value, REFUSED) for name, value in bad)


def labels(a, **options):
    """(k,) labels -1 and +1."""
    yield from vector(a, **options)
    for name, value in (
        ("0/1", (a + 1) / 2), ("0/1, whole", (a > 0).astype(int)), ("booleans", a > 0), ("zeros", np.zeros_like(a)),
        ("a third label", _with(a, 0, 2.0)), ("nearly a label", _with(a, 0, np.nextafter(1.0, 2.0))),
    ):  # fmt: skip
        yield name, value, REFUSED


def weights(a, **options):
    """(k,) positive numbers."""
    yield from vector(a, **options)
    yield "booleans", np.ones(len(a), bool), np.ones(len(a))
    for value in (0.0, -0.0, -1.0, -5e-324):
        yield f"{value} in it", _with(a, 0, value), REFUSED


def index(a, size=None, names=False, lookup=False):
    """(k,) distinct numbers below `size`; `names`: text names columns; `lookup`: any shape, also twice the same."""
    a = np.asarray(a)
    for name, value in _arrays(a):
        yield name, value, a
    for kind in (np.int8, np.uint8, np.int32, np.uint64):
        yield np.dtype(kind).name, a.astype(kind), a
    yield "a jax array", jnp.asarray(a), a
    yield "pandas", pd.Series(a), a
    yield "pandas, nullable", pd.Series(a).astype("Int64"), a
    yield "an Index", pd.Index(a), a
    yield from ((name, value, a) for name, value in _polars(a))
    if np.all(np.diff(a) == 1):
        yield "a range", range(int(a[0]), int(a[-1]) + 1), a
    bad = [item for item in NOT_ARRAYS.items() if not (names and item[0] in ("text",))]
    bad += [
        ("fractions", a + 0.5), ("whole floats", a.astype(float)), ("a mask", np.ones(4, bool)), ("complex", a + 0j),
        ("text in it", a.astype(str)), ("None in it", _with(a, 0, None)), ("NaN", _with(a, 0, np.nan, float)),
        ("dates", a.astype("datetime64[s]")), ("a slice", slice(0, 2)), ("ragged", [[1], [1, 2]]),
        ("negative", _with(a, -1, -1)), ("2**32 too large", _with(a, -1, a[-1] + 2**32)),
        ("2**31", _with(a, -1, 2**31)), ("a hidden entry", _masked(a, 0)),
        ("2**63 too large", a.astype(np.uint64) + np.uint64(2**63)), ("10**30", [10**30]),
        ("sparse", sp.csr_array(a[None])), ("an unreadable array", Unreadable()),
        ("pandas, NA", pd.Series(a).astype("Int64").where(np.arange(len(a)) > 0)), ("records", np.zeros(2, "i4,i4")),
        ("a list of masked numbers", [_masked(a[:1], 0)]), ("no floats", np.zeros(0)), *_polars_null(a),
    ]  # fmt: skip
    if not lookup:
        bad += [("none", a[:0]), ("an empty list", []), ("two axes", a[None]), ("repeated", np.repeat(a, 2))]
    if size is not None:
        bad += [("out of range", _with(a, -1, size)), ("far out of range", _with(a, -1, 2**31 - 2))]
    yield from ((name, value, REFUSED) for name, value in bad)


def whole(k, least=1, most=None, optional=False):
    """A whole number from `least` to `most`."""
    for kind in (np.int16, np.int64, np.uint8):
        yield np.dtype(kind).name, kind(k), k
    yield "a jax number", jnp.asarray(k, jnp.int32), k
    yield "an array", np.array(k), k
    yield "a whole float", float(k), k
    bad = [
        ("too small", least - 1), ("far too small", -(10**30)), ("a fraction", k + 0.5), ("NaN", np.nan),
        ("inf", np.inf), ("text", str(k)), ("bytes", b"2"), ("a list", [k]), ("a vector", np.array([k])),
        ("complex", k + 1j), ("True", True), ("an object", object()), ("np.True_", np.True_),
        ("nothing", np.ma.masked), ("Fraction", fractions.Fraction(2 * k + 1, 2)), ("a dict", {}),
    ]  # fmt: skip
    if not optional:
        bad.append(("None", None))
    if most is not None:
        bad += [("too large", most + 1), ("far too large", 10**30)]
    yield from ((name, value, REFUSED) for name, value in bad)


def number(x, above=0.0, at_least=None, optional=False, vector=False, most=None):
    """A finite number above a limit; `vector`: one for each column will do."""
    yield "np.float64", np.float64(x), x
    yield "float32", np.float32(x), float(np.float32(x))
    yield "float16", np.float16(x), float(np.float16(x))
    yield "an array", np.array(x), x
    yield "a jax number", jnp.asarray(x, jnp.float32), float(np.float32(x))
    yield "long double", np.longdouble(x), x
    yield "objects", np.array(x, object), x
    yield "Decimal", decimal.Decimal(x), x
    yield "Fraction", fractions.Fraction(x), x
    bad = [
        ("NaN", np.nan), ("inf", np.inf), ("-inf", -np.inf), ("text", str(x)), ("bytes", b"1"), ("a dict", {}),
        ("complex", x + 1j), ("an object", object()), ("a class", float), ("hidden", np.ma.masked),
        ("a date", np.datetime64("2020-01-01")), ("an empty list", []), ("pd.NA", pd.NA), ("10**400", 10**400),
        ("beyond float64", np.longdouble("1e4000")), ("sparse", sp.csr_array([[x]])), ("two axes", [[x, x]]),
    ]  # fmt: skip
    if not vector:
        bad += [("a pair", [x, x]), ("an array of one", np.array([x]))]
    if not optional:
        bad.append(("None", None))
    if at_least is not None:
        bad += [("too small", at_least - 1e-9), ("far too small", -1e300)]
    elif above is not None:
        bad += [("0", above), ("too small", above - 1.0)]
    if most is not None:
        bad.append(("too large", most + 1e-9))
    yield from ((name, value, REFUSED) for name, value in bad)


def flag(value):
    """True or False."""
    yield "np.bool_", np.bool_(value), value
    for bad in (0, 1, 2.0, "yes", "", None, [], [True], np.array([True]), np.nan, {}, object(), np.ma.masked):
        yield repr(bad)[:20], bad, REFUSED


def flag_or_width(value):
    """True, False or a positive width."""
    yield "np.bool_", np.bool_(value), value
    for bad in (0, -1.0, "yes", "", None, [], [True], np.array([True]), np.nan, np.inf, {}, object(), np.ma.masked):
        yield repr(bad)[:20], bad, REFUSED


def choice(value):
    """One of a few words."""
    for bad in ("", value.upper() + "x", b"error", 0, None, [value], {}, object(), np.nan, np.array([value, value])):
        yield repr(bad)[:20], bad, REFUSED


def only(*also, optional=False):
    """An object of the library: nothing else serves."""

    def kind(_):
        others = [0.1, "abc", b"abc", {}, [], object(), len, np.ones(2), np.nan, jb.Interval(0.0, 1.0), *also]
        for other in others if optional else [*others, None]:
            name = other.__name__ if isinstance(other, type) else repr(other)[:40].split("\n")[0]
            yield name, other, REFUSED

    return kind


def function(_):
    """A function of one argument, or None."""
    for bad in (0, "abc", [len], {}, np.ones(2), object()):
        yield repr(bad)[:20], bad, REFUSED


def path_to(folder):
    """A file that can be read: a path, never an open file or a number."""

    def kind(path):
        yield "text", str(path), path
        yield "bytes", str(path).encode(), path
        for bad in (0, 1, 1.5, None, b"\x00", "", [], {}, object(), np.nan, str(folder), "a\x00b", True):
            yield repr(bad)[:20], bad, REFUSED

    return kind
