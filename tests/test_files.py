"""Files that are cut, flipped, forged or made to exhaust their reader are refused; full disks, kills lose nothing."""

import io
import json
import os
import pickle
import resource
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from untrained import model_at

import jaxbounds as jb
from jaxbounds import storage

PROBLEM = jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1))
X, Y = np.array([[1.0, 0.5], [-1.0, 0.25], [0.5, -2.0]]), np.array([1.0, -1.0, 1.0])
MODEL = model_at(PROBLEM, X, Y, np.ones(3), np.array([0.5, -0.25]))
SPARSE = model_at(PROBLEM, sp.csr_array(X), Y, np.ones(3), np.array([0.5, -0.25]))


def kinds(folder):
    """(path, how to read it, what is in it) of a model and a monitor."""
    model, monitor = folder / "model", folder / "monitor"
    SPARSE.save(model)
    jb.Monitor(MODEL, 0.5, X_watch=X[:1]).save(monitor)
    return ((model, jb.load, "model"), (monitor, jb.Monitor.load, "monitor"))


def refused(path, read, content):
    path.write_bytes(content)
    with pytest.raises(ValueError, match="path: .*"):
        read(path)


def sealed(content: bytes) -> bytes:
    """The same bytes with a seal that fits."""
    body = content[: -storage._SEAL_SIZE]
    return body + storage._SEAL + storage._digest(io.BytesIO(body), len(body))


@pytest.mark.parametrize("step", [97, pytest.param(1, marks=pytest.mark.full)])
def test_no_beginning_of_a_file_is_read(tmp_path, step):
    for path, read, _ in kinds(tmp_path):
        whole = path.read_bytes()
        for size in {*range(0, len(whole), step), *range(max(0, len(whole) - 30), len(whole))}:
            refused(path, read, whole[:size])


@pytest.mark.parametrize("count", [100, pytest.param(3000, marks=pytest.mark.full)])
def test_flipped_bits_are_refused_and_with_a_new_seal_do_no_harm(tmp_path, count):
    rng = np.random.default_rng(0)
    for path, read, _ in kinds(tmp_path):
        whole = path.read_bytes()
        for at in rng.integers(len(whole), size=count):
            bad = bytearray(whole)
            bad[at] ^= 1 << rng.integers(8)
            refused(path, read, bad)
            path.write_bytes(sealed(bytes(bad)))  # forged: other numbers, or a refusal, and nothing else
            try:
                read(path)
            except ValueError as error:
                assert "path: " in str(error)


HOSTILE = [None, True, -1, 1.5, 1e400, "x", "", [], {}, [1, 2], {"array": "nothing"}, {"class": "Popen", "fields": {}},
           {"tuple": [None]}, {"function": "eval"}, 10**30, {"array": "header"}]  # fmt: skip


def places(node, path=()):
    """The paths to all nodes of a JSON tree."""
    yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def put_at(node, path, value):
    if not path:
        return value
    copy = dict(node) if isinstance(node, dict) else list(node)
    copy[path[0]] = put_at(copy[path[0]], path[1:], value)
    return copy


@pytest.mark.parametrize("each", [40, pytest.param(1, marks=pytest.mark.full)])
def test_forged_headers_are_refused_or_give_whole_objects(tmp_path, each):
    for path, read, kind in kinds(tmp_path):
        with open(path, "rb") as file:
            content, arrays = storage.unpack(file, kind)
        trials = [(place, value) for place in places(content) for value in HOSTILE]
        for place, value in trials[::each]:
            path.write_bytes(storage.packed(kind, put_at(content, place, value), arrays))
            try:
                made = read(path)
            except ValueError as error:
                assert "path: " in str(error)
                continue
            answer = jb.bound(made, jb.remove_rows([0], old_values=X[:1])) if kind == "model" else made.push(
                jb.remove_rows([made.rows[0]])).upper  # fmt: skip
            assert answer is not None


@pytest.mark.parametrize("wrong", [2, 0, -1, 1.5, "1", None, 10**400])
def test_files_of_other_versions_are_refused(tmp_path, monkeypatch, wrong):
    for path, read, kind in kinds(tmp_path):
        with open(path, "rb") as file:
            content, arrays = storage.unpack(file, kind)
        monkeypatch.setattr(storage, "VERSION", wrong)
        forged = storage.packed(kind, content, arrays)
        monkeypatch.undo()
        refused(path, read, forged)
        refused(path, read, storage.packed("svmlight", content, arrays))


class Bomb:
    """Unpickling it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def test_pickles_in_a_monitor_or_its_log_are_not_opened(tmp_path, monkeypatch):
    trap, path = str(tmp_path / "trap"), tmp_path / "monitor"
    with jb.Monitor(MODEL, 0.5, path=path) as monitor:
        monitor.push(jb.set_weights([0], [2.0]))
    log = tmp_path / "monitor.log"
    good, write = log.read_bytes(), np.lib.format.write_array
    bomb = np.array([Bomb(trap)], object)
    from jaxbounds.monitoring.journal import _framed

    monkeypatch.setattr(np.lib.format, "write_array", lambda f, a, **_: write(f, a, allow_pickle=True))
    log.write_bytes(good + _framed({"number": 2, "change": {"array": "x"}}, {"x": bomb}))
    forged = storage.packed("monitor", {}, {"x": bomb})
    monkeypatch.undo()
    with pytest.raises(ValueError, match="is damaged at byte"):
        jb.Monitor.load(path)
    for content in (forged, pickle.dumps(Bomb(trap))):
        refused(path, jb.Monitor.load, content)
    assert not os.path.exists(trap)


def npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def archive(members, method=zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as made:
        for name, data in members:
            made.writestr(name, data)
    return sealed(file.getvalue()[:-2] + struct.pack("<H", storage._SEAL_SIZE) + bytes(storage._SEAL_SIZE))


def test_files_that_would_take_all_memory_are_refused(tmp_path):
    path = tmp_path / "m"
    head = "{'descr': '<f8', 'fortran_order': False, 'shape': %s, }"
    text = npy(head.replace("<f8", "|u1") % "(2,)", b"{}")
    for shape in ("(10**15,)", f"({10**15},)", "(-1,)", f"({2**40}, {2**40})", f"({10**30},)", "(1.5,)", "None"):
        refused(path, jb.load, archive([("header.npy", text), ("w.npy", npy(head % shape, bytes(8)))]))
    refused(path, jb.load, archive([("header.npy", text), ("w.npy", npy("__import__('os').abort()"))]))
    refused(path, jb.load, archive([("header.npy", npy(head.replace("<f8", "|O") % "(1,)", pickle.dumps([1])))]))
    refused(path, jb.load, archive([("header.npy", text), ("w.npy", bytes(10**6))], zipfile.ZIP_DEFLATED))
    deep = b"[" * 10**5
    refused(path, jb.load, archive([("header.npy", npy(head.replace("<f8", "|u1") % f"({len(deep)},)", deep))]))
    bomb = bytearray(archive([("header.npy", text), ("w.npy", bytes(10**4))]))
    entry = bomb.rindex(b"PK\x01\x02")  # many names for the same bytes
    end = bomb.rindex(b"PK\x05\x06")
    again = bytes(bomb[entry:end]) * 1000
    bomb[end:end] = again
    bomb[end + len(again) + 8 : end + len(again) + 12] = struct.pack("<HH", 1002, 1002)
    size = struct.unpack_from("<I", bomb, end + len(again) + 12)[0] + len(again)
    struct.pack_into("<I", bomb, end + len(again) + 12, size)
    path.write_bytes(sealed(bytes(bomb)))
    with pytest.raises(ValueError, match="larger than the file"):
        jb.load(path)


def test_sparse_data_are_no_wider_than_the_file(tmp_path):
    path = tmp_path / "m"
    SPARSE.save(path)
    with open(path, "rb") as file:
        content, arrays = storage.unpack(file, "model")
    text = json.dumps(content)
    assert '"shape": [3, 2]' in text
    for shape in ("[3, 2147483647]", f"[3, {2**62}]", "[2147483647, 2]", "[-3, 2]", "[3, -2]"):
        refused(path, jb.load, storage.packed("model", json.loads(text.replace("[3, 2]", shape)), arrays))
    arrays["model.data.matrix.indices"] = arrays["model.data.matrix.indices"] * 0 + 10**6
    refused(path, jb.load, storage.packed("model", content, arrays))


def test_a_full_disk_loses_no_push(tmp_path):
    """A limit of the file size stands for the end of the disk: real short writes, in the log and in a snapshot."""
    rng, path = np.random.default_rng(0), tmp_path / "m"
    monitor, done, failed = jb.Monitor(MODEL, 10.0, path=path, methods=[jb.Cached()]), 0, 0
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    for _ in range(30):
        room = int(os.path.getsize(tmp_path / "m.log") + rng.integers(-200, 6000))
        resource.setrlimit(resource.RLIMIT_FSIZE, (max(room, 1), limit[1]))
        try:
            monitor.push(jb.set_weights([0], [1.0 + done]))
            done += 1
            if rng.random() < 0.3:
                monitor.save(path)
        except OSError:
            failed += 1
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        assert monitor.data[2][0] == max(1.0, done)
    assert done > 5 and failed > 5
    monitor.close()
    again = jb.Monitor.load(path)
    assert len(again.trail) == done and again.data[2][0] == max(1.0, done)


@pytest.mark.parametrize("kills", [4, pytest.param(300, marks=pytest.mark.full)])
def test_killed_processes_leave_whole_models(tmp_path, kills):
    """SIGKILL at random calls of fsync and replace, and at random times; see killed_saves.py."""
    script = Path(__file__).with_name("killed_saves.py")
    path = os.pathsep.join([str(script.parent.parent), str(script.parent), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-W", "error", str(script), str(tmp_path), str(kills), "1"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}, timeout=600)
    assert done.returncode == 0 and f"{kills} kills survived" in done.stdout, done.stdout + done.stderr
