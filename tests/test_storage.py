"""`Model.save` and `jb.load`: the same model to the last bit, or a clean refusal."""

import errno
import io
import json
import os
import pickle
import resource
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from untrained import model_at

import jaxbounds as jb
from jaxbounds import storage
from jaxbounds.inputs import Inputs
from jaxbounds.interfaces import Loss, Penalty
from jaxbounds.multinomial import remember_multinomial

N, D = 20, 5
LOSSES = {
    "logistic": jb.losses.logistic, "smoothed_hinge": lambda: jb.losses.smoothed_hinge(0.5),
    "hinge": jb.losses.hinge, "squared_hinge": jb.losses.squared_hinge, "squared": jb.losses.squared,
    "huber": lambda: jb.losses.huber(1.5),
}  # fmt: skip
PENALTIES = {
    "l2": lambda: jb.penalties.l2(0.1), "l2 each": lambda: jb.penalties.l2(np.linspace(0.1, 1, D)),
    "elastic_net": lambda: jb.penalties.elastic_net(0.1, 0.02), "l1": lambda: jb.penalties.l1(0.05),
    "lq": lambda: jb.penalties.lq(0.1, 1.5),
}  # fmt: skip


def phi(m, temperature):
    return temperature * jnp.logaddexp(0.0, -m / temperature)


def same(a, b):
    """Equal structure, and equal leaves to the last bit."""
    (first, tree), (second, other) = jax.tree.flatten(a), jax.tree.flatten(b)
    assert tree == other
    for x, y in zip(first, second, strict=True):
        assert isinstance(x, jax.Array) and isinstance(y, jax.Array) and x.dtype == y.dtype and x.shape == y.shape
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def example(loss=None, penalty=None, X=None, **options):
    rng = np.random.default_rng(3)
    problem = jb.Problem(loss or jb.losses.logistic(), penalty or jb.penalties.l2(0.1), **options)
    X = rng.normal(size=(N, D)) if X is None else X
    y = np.sign(rng.normal(size=N))
    alpha = None if problem.loss.defined_by_ref else problem.loss.clip(np.full(N, 0.3), y)
    return model_at(problem, X, y, rng.uniform(1, 2, N), rng.normal(size=D), alpha)


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("loss", LOSSES)
def test_every_pair_comes_back_to_the_last_bit(tmp_path, loss, penalty):
    made, against = LOSSES[loss](), PENALTIES[penalty]()
    if made.smoothness is None and against.strong_convexity is None:
        pytest.skip("no such problem")
    kinds = list(LOSSES).index(loss) + list(PENALTIES).index(penalty)
    X = np.random.default_rng(kinds).normal(size=(N, D))
    X = (X, sp.csr_array(X * (X > 0)), X.astype(np.float32), sp.csr_array(X * (X > 0), dtype=np.float32))[kinds % 4]
    model = example(made, against, X, scale=("mean", "sum")[kinds % 2], intercept=loss == "logistic")
    path = tmp_path / "model"  # no .npz: the name is used as it is
    model.save(path)
    same(jb.load(path), model)
    model.save(str(path), data=False)
    same(jb.load(path), model.without_data())
    assert os.listdir(tmp_path) == ["model"]


def test_loaded_models_give_the_same_bounds_and_keep_their_factor(tmp_path):
    model = jb.with_factor(example())
    model.save(tmp_path / "m.npz")
    loaded = jb.load(tmp_path / "m.npz")
    same(loaded, model)
    for method in (jb.Cached(), jb.SelfConcordant()):
        a, b = (jb.bound(m, jb.remove_rows([3]), method).w() for m in (model, loaded))
        assert np.array_equal(a.lower, b.lower) and np.array_equal(a.upper, b.upper)
    with np.load(tmp_path / "m.npz") as file:  # an ordinary .npz
        assert np.array_equal(file["model.w"], model.w) and json.loads(file["header"].tobytes())["version"] == 1


def test_functions_of_the_user_must_be_given_again(tmp_path):
    path = tmp_path / "m"
    loss = jb.losses.from_margin(phi, smoothness=0.5, params=(0.5,), domain=(0.0, 1.0))
    model = example(loss)
    model.save(path)
    with pytest.raises(ValueError, match="pass problem="):
        jb.load(path)
    same(jb.load(path, model.problem), model)
    same(jb.load(path, jb.Problem(loss, jb.penalties.l2(0.1))), model)
    other = jb.losses.from_margin(phi, smoothness=0.5, params=(0.25,), domain=(0.0, 1.0))
    for wrong in (jb.Problem(other, jb.penalties.l2(0.1)), jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1)),
                  jb.Problem(loss, jb.penalties.l2(0.2)), jb.Problem(loss, jb.penalties.l2(0.1), "sum")):  # fmt: skip
        with pytest.raises(ValueError, match="not the one that was saved"):
            jb.load(path, wrong)

    def other_phi(m, temperature):
        return 2 * phi(m, temperature)

    other_phi.__name__ = "phi"
    forged = jb.losses.from_margin(other_phi, smoothness=0.5, params=(0.5,), domain=(0.0, 1.0))
    with pytest.raises(ValueError, match="not what its problem gives"):
        jb.load(path, jb.Problem(forged, jb.penalties.l2(0.1)))
    with pytest.raises(TypeError, match="problem must be a jb.Problem"):
        jb.load(path, loss)


def several(loss=None, K=3, **options):
    """OneVsRest on shared data, untrained."""
    first, rng, y = example(loss, **options), np.random.default_rng(2), np.arange(N) % K
    X, weight = first.data.matrix.to_scipy(), np.asarray(first.data.weight)
    signs = [np.where(y == k, 1.0, -1.0) for k in range(K)]
    models = [model_at(first.problem, X, sign, weight, rng.normal(size=D)) for sign in signs]
    return jb.OneVsRest(tuple(models))


def multinomial(X=None, K=3):
    rng, problem = np.random.default_rng(5), jb.Problem(jb.losses.softmax(K), jb.penalties.l2(np.linspace(0.1, 1, D)))
    with jax.enable_x64(True), np.errstate(all="ignore"):
        matrix = storage.as_matrix(rng.normal(size=(N, D)) if X is None else X)
        y, weight = (np.arange(N) % K).astype(float), rng.uniform(1, 2, N)
        data, w = storage.put((storage.Data(matrix, y, weight), rng.normal(size=(K, D)).astype(matrix.dtype)))
        return remember_multinomial(problem, data, w)


def forged(many, classes=None, source=None):
    """(content, arrays) of a file of OneVsRest with these, or without them."""
    arrays = {}
    content: dict = {"models": storage._shared(storage.whole(many).models, arrays)}
    if classes is not None:
        content["classes"] = {"tuple": classes}
    for node in content["models"]:
        del node["fields"]["source"]
        if source is not None:
            node["fields"]["source"] = source
    return content, arrays


@pytest.mark.parametrize("X", [None, np.float32, sp.csr_array], ids=["dense", "float32", "sparse"])
def test_models_of_several_classes_come_back(tmp_path, X):
    X = None if X is None else X(np.random.default_rng(3).normal(size=(N, D)) * (np.arange(D) > 1))
    path, test = tmp_path / "m", np.eye(D)
    one, many, soft = example(X=X, intercept=True), several(X=X, intercept=True), multinomial(X)
    for model in (many, soft):
        model.save(path)
        loaded = jb.load(path)
        same(loaded, model)
        change = jb.combine(jb.set_targets([3], [0]), jb.remove_rows([5]))
        upper = jb.bound(model, change).scores(test).upper
        np.testing.assert_array_equal(jb.bound(loaded, change).scores(test).upper, upper)
    many.save(path)
    with np.load(path) as file:  # the data matrix and the problem once
        stored = [name for name in file.files if name.startswith(("model1.", "model2."))]
        assert stored and not any(".matrix" in name or ".problem" in name for name in stored)
    one.save(tmp_path / "one")
    assert path.stat().st_size < 3 * (tmp_path / "one").stat().st_size
    many.save(path, data=False)
    same(jb.load(path), many.without_data())
    with pytest.raises(ValueError, match="need its training data"):
        soft.save(path, data=False)
    assert storage._read(*forged(many), None).classes_ is None  # as files without classes and source are
    for classes, source in ((["a", "b"], None), (["a", "b", "b"], None), (["a", "b", 3 * [1]], None), (None, 1)):
        with pytest.raises((ValueError, TypeError), match="not 3 different|source is no text|unknown to"):
            storage._read(*forged(many, classes, source), None)
    read = replace(soft, inputs=Inputs((), (), D, names=tuple("abcde"), classes=("x", "y", "z")))
    read.save(tmp_path / "read")
    same(jb.load(tmp_path / "read"), read)
    same(jb.load(path), many.without_data())  # the old file stays


def test_functions_of_the_user_in_several_classes(tmp_path):
    loss = jb.losses.from_margin(phi, smoothness=0.5, params=(0.5,), domain=(0.0, 1.0))
    model, path = several(loss), tmp_path / "m"
    model.save(path)
    same(jb.load(path, model.models[0].problem), model)
    with pytest.raises(ValueError, match="pass problem="):
        jb.load(path)
    other = jb.losses.from_margin(phi, smoothness=0.5, params=(0.25,), domain=(0.0, 1.0))
    with pytest.raises(ValueError, match=r"its model.problem.loss.params.0 is 0.25, in the file 0.5") as told:
        jb.load(path, jb.Problem(other, jb.penalties.l2(0.1)))
    assert len(str(told.value)) < 300
    mixed = jb.OneVsRest((model.models[0], several(other).models[1]))
    with pytest.raises(ValueError, match=r"models\[0\] and models\[1\] hold different functions"):
        mixed.save(path)


def test_inputs_come_back(tmp_path):
    with jax.enable_x64(True):
        vectors = jax.device_put((np.linspace(0.0, 1.0, D - 1), np.ones(D - 1)))
    full = Inputs(vectors, ("subtract", "divide"), D - 1, 2.5, tuple("abcd"), ("no", "yes"))
    path, change = tmp_path / "m", jb.combine(jb.set_columns(["b"], np.ones((N, 1))), jb.set_targets([2], ["yes"]))
    for inputs in (full, Inputs((), (), D), replace(full, classes=None, constant=None), replace(full, names=None)):
        model = replace(example(), inputs=inputs)
        model.save(path)
        same(jb.load(path), model)
    model = replace(example(), inputs=full)
    model.save(path)
    test = np.ones((1, D - 1))
    np.testing.assert_array_equal(jb.bound(jb.load(path), change).scores(test).upper,
                                  jb.bound(model, change).scores(test).upper)  # fmt: skip
    bad = [
        replace(full, width=D), replace(full, width=D + 1), replace(full, steps=("subtract", "power")),
        replace(full, steps=("subtract",)), replace(full, names=("a", "b")), replace(full, names=(1, 2, 3, 4)),
        replace(full, constant="1"), replace(full, vectors=(vectors[0], np.ones(2))), replace(full, classes="no"),
        replace(full, vectors=(vectors[0], np.full(D - 1, np.nan))), replace(full, width=None),
    ]  # fmt: skip
    for inputs in bad:
        replace(example(), inputs=inputs).save(path)
        with pytest.raises(ValueError, match="path: .* cannot be read"):
            jb.load(path)


def test_every_flipped_bit_and_every_truncation_is_refused(tmp_path):
    path = tmp_path / "m"
    example().save(path)
    good, rng = path.read_bytes(), np.random.default_rng(0)
    for at in [*rng.integers(len(good), size=150), *range(len(good) - 100, len(good))]:
        bad = bytearray(good)
        bad[at] ^= 1 << rng.integers(8)
        path.write_bytes(bad)
        with pytest.raises(ValueError, match="path: .* (is damaged|is not a file)"):
            jb.load(path)
    for size in [0, 1, 50, *rng.integers(len(good), size=30), len(good) - 1]:
        path.write_bytes(good[:size])
        with pytest.raises(ValueError, match="path: .* is (damaged|not a file)"):
            jb.load(path)
    path.write_bytes(good + b"x")
    with pytest.raises(ValueError, match="is not a file"):
        jb.load(path)


class Bomb:
    """Unpickling it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def test_nothing_in_a_file_is_executed(tmp_path, monkeypatch):
    path, trap = tmp_path / "m", str(tmp_path / "trap")
    bomb = np.array([Bomb(trap)], object)
    for text in (pickle.dumps(Bomb(trap)), b"", b"PK\x05\x06" + bytes(18)):
        path.write_bytes(text)
        with pytest.raises(ValueError, match="is not a file of jaxbounds"):
            jb.load(path)
    np.savez(tmp_path / "m.npz", header=bomb)
    with pytest.raises(ValueError, match="is not a file of jaxbounds"):
        jb.load(tmp_path / "m.npz")
    write = np.lib.format.write_array
    monkeypatch.setattr(np.lib.format, "write_array", lambda f, a, **_: write(f, a, allow_pickle=True))
    path.write_bytes(storage.packed("model", {}, {"w": bomb}))  # sealed as it should be
    with pytest.raises(ValueError, match="is not a file of jaxbounds"):
        jb.load(path)
    assert not os.path.exists(trap)


def test_what_this_version_does_not_know_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "m"
    model = example(X=sp.csr_array(np.eye(N, D)))

    def attempt(change, match, kind="model"):
        arrays: dict = {}
        tree = storage.encode(model, "model", arrays)
        path.write_bytes(storage.packed(kind, change(tree, arrays) or tree, arrays))
        with pytest.raises(ValueError, match=match):
            jb.load(path)

    attempt(lambda tree, _: tree["fields"].update(colour=1), "differs from this version's in colour")
    attempt(lambda tree, _: tree["fields"].pop("ref") and None, "differs from this version's in ref")
    attempt(lambda tree, _: {**tree, "class": "Popen"}, "unknown to this version")
    attempt(lambda tree, _: {"class": "Dense", "fields": {"values": 1, "shards": 1}}, "holds no model")
    attempt(lambda tree, arrays: arrays.update(more=np.ones(1)), "unknown arrays: more")
    attempt(lambda tree, arrays: arrays.update({"model.w": np.ones(D + 1)}), "is not an array of shape")
    attempt(lambda tree, arrays: arrays.update({"model.rows.score": np.ones(N, np.float32)}), "rows.score is not")
    attempt(lambda tree, arrays: arrays.update({"model.data.matrix.indices": arrays["model.data.matrix.indices"] + 7}),
            "cannot be read")  # fmt: skip
    attempt(lambda tree, arrays: arrays.update({"model.w": arrays["model.w"] + 1}), "not what its problem gives")
    attempt(lambda tree, arrays: None, "holds a monitor, not a model", kind="monitor")
    model, rest = multinomial(), several()
    attempt(lambda tree, arrays: arrays.update({"model.score": np.ones((N, 2))}), "its score is not an array")
    attempt(lambda tree, arrays: arrays.update({"model.target": np.full(N, 3.0)}), "not one of the classes")
    attempt(lambda tree, arrays: arrays.update({"model.score": arrays["model.score"] * 2}), "not what its coefficients")
    attempt(lambda tree, arrays: tree["fields"]["problem"]["fields"].update(intercept=True), "unpenalised intercept")
    attempt(lambda tree, arrays: tree["fields"].update(data=None), "its data are missing|its row_terms or its data")
    model = rest.models[0]
    attempt(lambda tree, _: {"models": []}, "cannot be read")
    attempt(lambda tree, _: {"models": [tree]}, "no models of two classes")
    attempt(lambda tree, _: {"models": [tree, 3]}, "cannot be read")
    empty = lambda tree: {**tree, "fields": {**tree["fields"], "problem": None}}  # noqa: E731
    attempt(lambda tree, _: {"models": [empty(tree), tree]}, "cannot be read")
    attempt(lambda tree, _: {"models": [tree, tree], "more": 1}, "unknown to this version")
    monkeypatch.setattr(storage, "VERSION", 2)
    arrays: dict = {}
    path.write_bytes(storage.packed("model", storage.encode(model, "model", arrays), arrays))
    monkeypatch.setattr(storage, "VERSION", 1)
    with pytest.raises(ValueError, match="format version 2, and this library reads version 1"):
        jb.load(path)


def test_an_old_file_stays_when_a_new_one_cannot_be_written(tmp_path, monkeypatch):
    path = tmp_path / "m"
    old, new = example(), example(jb.losses.squared())
    old.save(path)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, limit[1]))  # as if the disk were full
    try:
        with pytest.raises(OSError) as caught:
            new.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert caught.value.errno == errno.EFBIG
    same(jb.load(path), old)

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            new.save(path)
    same(jb.load(path), old)
    assert os.listdir(tmp_path) == ["m"]
    new.save(path)
    same(jb.load(path), new)
    with pytest.raises(FileNotFoundError):
        new.save(tmp_path / "nowhere" / "m")
    with pytest.raises(FileNotFoundError):
        jb.load(tmp_path / "nothing")


def test_every_class_of_the_library_can_be_saved():
    """A new loss or penalty needs no work here, but its name must be its own."""
    own = [c for c in (*Loss.__subclasses__(), *Penalty.__subclasses__()) if c.__module__.startswith("jaxbounds.")]
    assert {c.__name__ for c in own} <= set(storage._classes()) and len({c.__name__ for c in own}) == len(own)
    with pytest.raises(TypeError, match="cannot be saved"):
        storage.encode(io.BytesIO(), "x", {})


def test_svmlight_files_are_cached(tmp_path):
    pytest.importorskip("sklearn")
    path, kept = tmp_path / "data.txt", tmp_path / "data.txt.npz"
    path.write_text("+1 1:0.5 3:2\n-1 2:1\n")
    os.utime(path, ns=(10**18, 10**18))

    def values(**options):
        X, y = jb.load_svmlight(path, **options)
        return X.toarray().tolist(), y.tolist()

    plain = values()
    assert not kept.exists() and values(cache=True) == plain and kept.exists()
    path.write_text("-1 1:0.5 3:2\n-1 2:1\n")  # the same size
    os.utime(path, ns=(10**18, 10**18))
    assert values(cache=True) == plain  # the cache was read
    assert values(cache=True, n_features=4)[0][0] == [0.5, 0.0, 2.0, 0.0]
    os.utime(path, ns=(10**18, 10**18 + 1))
    assert values(cache=True)[1] == [-1.0, -1.0]
    kept.write_bytes(kept.read_bytes()[:-1])  # a damaged cache is not believed
    assert values(cache=True) == values() == values(cache=tmp_path / "elsewhere")
    assert (tmp_path / "elsewhere").read_bytes() == kept.read_bytes()
    path.write_text("+1 1:7\n")  # too young to be told from a later change by its time stamp
    assert values(cache=True) == ([[7.0]], [1.0])
    stamp = os.stat(path).st_mtime_ns
    path.write_text("-1 1:7\n")
    os.utime(path, ns=(stamp, stamp))
    assert values(cache=True) == ([[7.0]], [-1.0])
