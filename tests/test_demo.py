"""`python -m jaxbounds`: its report, its exit statuses, its figure and its complaints."""

import argparse
import subprocess
import sys

import numpy as np
import pytest

from jaxbounds import demo


@pytest.fixture
def small_file(tmp_path):
    """Thirty sparse rows in LIBSVM format."""
    path = tmp_path / "small.txt"
    rng = np.random.default_rng(0)
    lines = []
    for i in range(30):
        label = 1 if i % 2 else -1
        entries = [f"{j + 1}:{label * (j == 0) + rng.normal():.4f}" for j in range(6) if rng.random() < 0.7 or j == 0]
        lines.append(f"{label} {' '.join(entries)}")
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.mark.parametrize("change", ["rows:2", "elements:4", "columns:1", "remove:2"])
def test_every_change_on_a_sparse_file(small_file, capsys, change):
    assert demo.main(["--data", small_file, "--change", change, "--lam", "0.1"]) == 0
    out = capsys.readouterr().out
    assert "no bound was violated" in out
    assert all(f"\n{name} " in out for name in demo.METHODS)
    assert "24 training rows" in out and f"change {change}" in out


@pytest.mark.parametrize(
    ("loss", "penalty", "method"),
    [
        ("hinge", "l2", "cached"),
        ("squared_hinge", "elastic_net", "theorem1"),
        ("logistic", "l1", "cached"),
        ("squared", "l2", "partial"),
        ("huber", "l2", "cached"),
    ],
)
def test_losses_and_penalties(small_file, capsys, loss, penalty, method):
    arguments = ["--data", small_file, "--loss", loss, "--penalty", penalty, "--method", method, "--change", "rows:1"]
    assert demo.main(arguments) == 0
    out = capsys.readouterr().out
    assert f"\n{method} " in out and "no bound was violated" in out


def test_bundled_data_and_figure(tmp_path, capsys):
    picture = tmp_path / "out.png"
    assert demo.main(["--method", "cached", "--plot", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 5000
    out = capsys.readouterr().out
    assert "breast_cancer" in out and str(picture) in out


def test_the_same_seed_gives_the_same_numbers(small_file, capsys):
    def table():
        assert demo.main(["--data", small_file, "--seed", "3", "--method", "cached"]) == 0
        return capsys.readouterr().out.split("method")[0]

    assert table() == table()


def test_a_violated_bound_gives_status_one(small_file, capsys, monkeypatch):
    def shifted(interval):
        return type(interval)(np.asarray(interval.lower) + 10.0, np.asarray(interval.upper) + 10.0)

    monkeypatch.setattr(demo, "_host", shifted)
    assert demo.main(["--data", small_file, "--method", "cached"]) == 1
    assert "BOUNDS WERE VIOLATED" in capsys.readouterr().out


def test_nan_counts_as_violated():
    interval = argparse.Namespace(lower=np.array([np.nan, 0.0]), upper=np.array([1.0, 1.0]))
    assert demo._outside(interval, np.array([0.5, 0.5]), 0.0) == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--data", "nowhere.txt"], "nowhere.txt"),
        (["--change", "rows:100000"], "at most"),
        (["--lam", "-1"], "lam"),
        (["--data", "digits", "--positive", "11"], "--positive"),
        (["--loss", "hinge", "--penalty", "l1"], "penalt"),
    ],
)
def test_a_question_that_cannot_be_run_gives_status_two(capsys, arguments, complaint):
    assert demo.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("python -m jaxbounds: error: ") and complaint in captured.err


@pytest.mark.parametrize("text", ["rows", "rows:", "rows:0", "rows:-3", "cells:5", "rows:x"])
def test_a_malformed_change_is_refused(capsys, text):
    with pytest.raises(SystemExit) as error:
        demo.main(["--change", text])
    assert error.value.code == 2
    assert "KIND:COUNT" in capsys.readouterr().err


def test_many_labels_need_a_choice(tmp_path, capsys):
    path = tmp_path / "three.txt"
    path.write_text("".join(f"{i % 3} 1:{i + 1} 2:{(7 * i) % 5 - 2}\n" for i in range(30)))
    assert demo.main(["--data", str(path), "--change", "rows:1"]) == 2
    assert "--positive" in capsys.readouterr().err
    assert demo.main(["--data", str(path), "--change", "rows:1", "--positive", "2", "--method", "cached"]) == 0
    assert demo.main(["--data", str(path), "--change", "rows:1", "--loss", "squared", "--method", "cached"]) == 0
    assert "regression" in capsys.readouterr().out


@pytest.mark.slow
def test_as_a_program(small_file):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "jaxbounds", "--data", small_file, "--method", "cached"],
        capture_output=True, text=True, timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "no bound was violated" in done.stdout


def test_real_files(shared, capsys):
    for name in ("heart_scale", "w1a"):
        path = str(shared / "data" / "libsvm" / name)
        assert demo.main(["--data", path, "--method", "cached", "--change", "elements:20"]) == 0
        assert "no bound was violated" in capsys.readouterr().out
