"""Models that `fit` trained on a data frame know its columns by name, and read every later frame by name."""

import jax
import numpy as np
import pytest
from sklearn.svm import LinearSVC

import jaxbounds as jb

pd = pytest.importorskip("pandas")

N, NAMES = 24, ["age", "fare", "dose"]
LOGISTIC = jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1))


def data():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(N, 3)) * np.array([1.0, 3.0, 0.3])
    y = np.where(X @ np.array([1.0, -0.5, 2.0]) + 0.5 * rng.normal(size=N) > 0, 1.0, -1.0)
    return X, y, pd.DataFrame(X, columns=NAMES)


def same(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_a_model_of_a_frame_knows_its_names():
    X, y, frame = data()
    model, plain = jb.fit(LOGISTIC, frame, y), jb.fit(LOGISTIC, X, y)
    assert model.names == tuple(NAMES) and plain.names == ("0", "1", "2")
    turned = frame[NAMES[::-1]]
    same(model.scores(turned), plain.scores(X))
    pairs = [
        (jb.set_rows([2], turned.iloc[[5]]), jb.set_rows([2], X[[5]])),
        (jb.add_rows(turned.iloc[:2], y[:2]), jb.add_rows(X[:2], y[:2])),
        (jb.set_columns(["dose", "age"], frame[["age", "dose"]] + 1.0), jb.set_columns([2, 0], X[:, [2, 0]] + 1.0)),
        (jb.set_elements([1, 2], ["fare", "age"], 0.5), jb.set_elements([1, 2], [1, 0], 0.5)),
        (jb.remove_columns("fare"), jb.remove_columns([1])),
    ]  # fmt: skip
    for named, numbered in pairs:
        one, other = jb.bound(model, named), jb.bound(plain, numbered)
        same(one.w("age"), other.w(0))
        same(one.scores(turned), other.scores(X))
        new = jb.refit(model, named)
        same(new.w, jb.refit(plain, numbered).w)
        same(new.scores(turned[[name for name in turned if name in new.names]]), new.scores(frame[list(new.names)]))
    assert new.names == ("age", "dose")
    with pytest.raises(ValueError, match=r"X lacks the columns \['age'\] of the training data"):
        model.scores(frame[["fare", "dose"]])
    with pytest.raises(ValueError, match=r"X has the columns \['more'\], which the training data lack; drop them"):
        model.scores(frame.assign(more=1.0))
    with pytest.raises(ValueError, match="X has several columns named 'age'; rename all but one, or pass X.to_numpy"):
        jb.fit(LOGISTIC, frame.set_axis(["age", "fare", "age"], axis=1), y)
    with pytest.raises(ValueError, match="X has several columns named 'fare'"):
        model.scores(frame[["age", "fare", "fare", "dose"]])


def test_every_question_reads_frames_by_name():
    X, y, frame = data()
    turned = frame[NAMES[::-1]]
    model, plain = jb.fit(LOGISTIC, frame, y), jb.fit(LOGISTIC, X, y)
    change, penalties = jb.remove_rows([1]), [jb.penalties.l2(0.2)]
    elements = jb.stack([jb.set_elements([0], [1], 2.0), jb.set_elements([3], [0], 1.0)])
    for ask in (
        lambda model, X: jb.bound_each(model, elements, X).scores(),
        lambda model, X: jb.penalty_sweep(model, penalties, X, y).scores,
        lambda model, X: jb.influence(model, X).scores,
        lambda model, X: jb.rank_rows(model, X, y),
        lambda model, X: jb.worst_case_removal(model, 2, X),
        lambda model, X: jb.worst_case_removals(model, X, 2).labels,
        lambda model, X: jb.worst_case_relabel(model, 2, X),
        lambda model, X: jb.largest_certified_removal(model, X),
        lambda model, X: jb.largest_certified_relabel(model, X),
        lambda model, X: jb.decide(model, change, jb.LabelsKnown(X), timings=False).answer,
        lambda model, X: [one.rows for one in jb.attack_removal(model, 2, X[:2])],
        lambda model, X: [one.rows for one in jb.attack_relabel(model, 2, X[:2])],
        lambda model, X: jb.leave_one_out(model).scores,
        lambda model, X: jb.cross_validate(model, 4).scores,
        lambda model, X: jb.find_label_errors(model).margin,
    ):
        same(ask(model, turned), ask(plain, X))
    monitors = [jb.Monitor(one, theta=5.0, X_watch=rows) for one, rows in ((model, turned), (plain, X))]
    for pushed in ((jb.add_rows(turned.iloc[:2], y[:2]), jb.add_rows(X[:2], y[:2])),
                   (jb.set_columns(["dose"], turned[["dose"]].iloc[[*range(N), 0, 1]] + 0.1),
                    jb.set_columns([2], X[[*range(N), 0, 1]][:, [2]] + 0.1))):  # fmt: skip
        one, other = (monitor.push(part) for monitor, part in zip(monitors, pushed, strict=True))
        assert (one.answer, one.lower, one.upper, one.open) == (other.answer, other.lower, other.upper, other.open)
    assert [monitor.refit().names for monitor in monitors] == [tuple(NAMES), ("0", "1", "2")]
    same(monitors[0].bounds().scores(turned), monitors[1].bounds().scores(X))


def test_everything_that_trains_keeps_names(tmp_path):
    X, y, frame = data()
    turned, classes = frame[NAMES[::-1]], np.arange(N) % 3
    softmax = jb.Problem(jb.losses.softmax(3), jb.penalties.l2(0.1))
    several = [(jb.fit_one_vs_rest(LOGISTIC, data, classes), jb.fit(softmax, data, classes)) for data in (frame, X)]
    for model, plain in zip(*several, strict=True):
        assert model.names == tuple(NAMES)
        same(model.scores(turned), plain.scores(X))
        bounds, other = (jb.bound(one, jb.remove_rows([0])) for one in (model, plain))
        same(bounds.scores(turned), other.scores(X))
        named, numbered = jb.set_rows([0], turned.iloc[[1]]), jb.set_rows([0], X[[1]])
        same(jb.bound(model, named).scores(turned), jb.bound(plain, numbered).scores(X))
        assert jb.refit(model, named).names == tuple(NAMES)
    path = jb.fit_path(LOGISTIC, frame, y, [jb.penalties.l2(1.0), jb.penalties.l2(0.1)])
    assert all(model.names == tuple(NAMES) for model in path.models)
    seen = jb.penalty_sweep(path, [jb.penalties.l2(0.3)], turned, y).scores
    plain = jb.fit_path(LOGISTIC, X, y, [jb.penalties.l2(1.0), jb.penalties.l2(0.1)])
    same(seen, jb.penalty_sweep(plain, [jb.penalties.l2(0.3)], X, y).scores)
    ask = LOGISTIC, frame, y, turned, y, 0.01, 1.0
    best, other = jb.best_penalty(*ask, eps=0.1), jb.best_penalty(LOGISTIC, X, y, X, y, 0.01, 1.0, eps=0.1)
    assert best.model.names == tuple(NAMES)
    same(best.error, other.error)
    with pytest.raises(ValueError, match=r"X_val lacks the columns \['dose'\]"):
        jb.best_penalty(LOGISTIC, frame, y, turned[["fare", "age"]], y, 0.01, 1.0)
    warm = jb.fit(LOGISTIC, frame, y, warm_start=jb.fit(LOGISTIC, frame, y))
    warm.save(tmp_path / "model")
    same(jb.load(tmp_path / "model").scores(turned), warm.scores(X))


def test_frames_of_numbered_columns_are_read_by_position():
    X, y, _ = data()
    model = jb.fit(LOGISTIC, pd.DataFrame(X), y)
    assert model.inputs is None
    same(model.scores(pd.DataFrame(X)), model.scores(X))
    named = jb.fit(LOGISTIC, pd.DataFrame(X, columns=NAMES), y)  # whose frames are read by name, and these have none
    for frame in (pd.DataFrame(X), pd.DataFrame(X, columns=["age", "fare", 0]),
                  pd.DataFrame(X, columns=pd.MultiIndex.from_product([["a"], NAMES]))):  # fmt: skip
        with pytest.raises(ValueError, match=r"X lacks the columns .*; X.to_numpy\(\) goes by position"):
            named.scores(frame)
        with pytest.raises(ValueError, match=r"X_new must have the columns of the training data: .*to_numpy"):
            jb.bound(named, jb.add_rows(frame.iloc[:1], [1]))


def test_old_values_go_by_name_or_by_position_as_the_new_ones_do():
    """Turned together, a frame and an array would give bounds that the refit leaves."""
    X, y, frame = data()
    model = jb.fit(LOGISTIC, frame, y, tol=1e-12).without_data()
    new = frame[NAMES[::-1]].iloc[[1]] * 3
    for make in (
        lambda old: jb.set_rows([0], new, old_values=old), lambda old: jb.set_columns(NAMES, new, old_values=old),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="old_values must have the columns of X_new, in the same order"):
            make(X[[0]])
    interval = jb.bound(model, jb.set_rows([0], new, old_values=frame[NAMES[::-1]].iloc[[0]])).w()
    truth = np.asarray(jb.fit(LOGISTIC, np.vstack([3 * X[1], X[1:]]), y, tol=1e-12).w)
    assert np.all(interval.lower <= truth) and np.all(truth <= interval.upper)


def test_elements_of_a_named_model_take_the_short_way():
    X, y, frame = data()
    problem = jb.Problem(jb.losses.squared(), jb.penalties.l2(0.1))
    model, plain = jb.fit(problem, frame, y), jb.fit(problem, X, y)
    many = jb.stack([jb.set_elements([k, k + 1], [0, 2], [1.0, 2.0]) for k in range(5)])
    same(jb.bound_each(model, many).distance, jb.bound_each(plain, many).distance)


def test_fit_inside_jit_on_a_frame():
    X, y, frame = data()
    with jax.enable_x64(True):
        scores = jax.jit(lambda y: jb.fit(LOGISTIC, frame, y).scores(frame[NAMES[::-1]]))(y)
    np.testing.assert_allclose(np.asarray(scores), np.asarray(jb.fit(LOGISTIC, X, y).scores(X)), atol=1e-3)


def test_an_index_of_a_frame_holds_labels_and_no_positions():
    X, y, frame = data()
    gapped = frame.iloc[::2]
    model = jb.fit(LOGISTIC, gapped, y[::2])
    rows = gapped.index[gapped["age"] > 0][:2]
    k, change, one = len(rows), jb.remove_rows([0]), np.ones(3)
    said = r" must hold positions, counted from 0, and got a .*Index, which holds labels; pass np.flatnonzero\(mask\)"
    for name, ask in (
        ("rows", lambda: jb.set_rows(rows, X[:k])),
        ("rows", lambda: jb.remove_rows(rows)),
        ("rows", lambda: jb.remove_rows(frame.index)),
        ("rows", lambda: jb.set_targets(rows, y[:k])),
        ("rows", lambda: jb.set_weights(rows, 2.0)),
        ("rows", lambda: jb.set_elements(rows, [0] * k, 1.0)),
        ("cols", lambda: jb.remove_columns(pd.DataFrame(X).columns)),
        ("rows", lambda: jb.each_row_removed(model, rows)),
        ("rows", lambda: jb.each_target_flipped(model, rows)),
        ("rows", lambda: jb.leave_one_out(model, rows=rows)),
        ("rows", lambda: jb.find_label_errors(model, rows=rows)),
        ("rows", lambda: jb.influence(model, gapped, rows)),
        ("rows", lambda: jb.rank_rows(model, rows=rows)),
        (r"folds\[1\]", lambda: jb.cross_validate(model, [[0], rows])),
        ("folds", lambda: jb.cross_validate(model, pd.Index(np.arange(N // 2) % 2))),
        ("i", lambda: jb.bound(model, change).alpha(rows)),
        ("i", lambda: jb.bound_each(model, jb.stack([change])).alpha(rows)),
    ):
        with pytest.raises(TypeError, match=f"^{name}{said}"):
            ask()
    places = pd.Series(gapped.index.get_indexer(rows), index=rows)  # numbers in a series are values, not labels
    same(jb.remove_rows(places).rows, np.flatnonzero(gapped["age"] > 0)[:2])
    same(jb.bound(model, jb.remove_columns(gapped.columns[:1])).scores(one[None, :]).lower,
         jb.bound(model, jb.remove_columns([0])).scores(one[None, :]).lower)  # fmt: skip


def test_one_row_of_a_frame_is_read_by_name():
    X, y, frame = data()
    model = jb.fit(LOGISTIC, frame, y)
    row = frame[NAMES[::-1]].loc[5]  # a series, indexed by the names
    pairs = [
        (jb.set_rows([2], row), jb.set_rows([2], X[[5]])),
        (jb.set_rows([5], frame[NAMES[::-1]].loc[2], old_values=row), jb.set_rows([5], X[[2]])),
        (jb.remove_rows([5], old_values=row), jb.remove_rows([5])),
        (jb.set_targets([5], -y[5], old_values=row), jb.set_targets([5], -y[5])),
        (jb.set_weights([5], 2.0, old_values=row), jb.set_weights([5], 2.0)),
    ]
    for k, (named, numbered) in enumerate(pairs):
        one, other = jb.bound(model.without_data() if k else model, named), jb.bound(model, numbered)
        np.testing.assert_allclose(one.scores(frame).upper, other.scores(X).upper, rtol=1e-12)
    with pytest.raises(ValueError, match="X_new must have the columns of the training data: missing"):
        jb.bound(model, jb.set_rows([2], row.rename({"age": "year"})))
    remedy = r"two-dimensional .*; one row is {0}\[None, :\], .* a data frame frame.loc\[\[i\]\], or {0}.to_frame\(\).T"
    for name, ask in (("X", lambda X: model.scores(X)), ("X_new", lambda X: jb.add_rows(X, [1.0]))):
        for vector in (row, X[5]):
            with pytest.raises(ValueError, match=remedy.format(name)):
                ask(vector)
    same(model.scores(row.to_frame().T), model.scores(X[[5]]))
    same(model.scores(frame.loc[[5]]), model.scores(X[5][None, :]))


def test_added_columns_have_no_names():
    X, y, frame = data()
    model, new = jb.fit(LOGISTIC, frame, y), np.cos(np.arange(2.0 * N)).reshape(N, 2)
    one = jb.add_columns(pd.DataFrame({"more": new[:, 0]}))
    wide = frame.assign(more=new[:, 0])[["more", *NAMES[::-1]]]
    same(jb.bound(model, one).scores(wide), jb.bound(model, one).scores(np.column_stack([X, new[:, :1]])))
    refitted = jb.refit(model, one)
    assert refitted.names == (*NAMES, "3")
    same(refitted.scores(wide), refitted.scores(np.column_stack([X, new[:, :1]])))
    for frames, arrays in (
        (jb.add_rows(wide.iloc[:1], [1]), jb.add_rows(np.append(X[0], new[0, 0])[None], [1])),
        (jb.set_rows([3], wide.iloc[:1]), jb.set_rows([3], np.append(X[0], new[0, 0])[None])),
    ):
        same(jb.bound(refitted, frames).distance, jb.bound(refitted, arrays).distance)
    two, wider = jb.add_columns(new), wide.assign(last=new[:, 1])
    for ask in (jb.bound(model, two).scores, jb.refit(model, two).scores):
        with pytest.raises(ValueError, match=r"X has the columns \['more', 'last'\] beside .* pass X.to_numpy\(\)"):
            ask(wider)
        with pytest.raises(ValueError, match="X must have 5 columns like the training data, got 4"):
            ask(wide)
        ask(np.column_stack([X, new]))


def test_a_column_too_many_is_not_taken_for_the_intercept():
    X, y, frame = data()
    model = jb.from_sklearn(LinearSVC(tol=1e-8, random_state=0).fit(frame, y), frame, y)
    assert model.names == (*NAMES, "intercept")
    with pytest.raises(ValueError, match=r"X has the columns \['more'\], which the training data lack; drop them"):
        model.scores(frame.assign(more=5.0))
    same(model.scores(frame.assign(intercept=1.0)[["intercept", *NAMES]]), model.scores(X))
