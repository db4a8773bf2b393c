"""Work in other processes: spawned ones give the same bits; after a fork jax itself warns (docs/faq.md)."""

import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from untrained import model_at

import jaxbounds as jb

ROOT = Path(__file__).resolve().parent.parent


def ends(model, row: int):
    """What a worker computes: the score intervals of a removal."""
    scores = jb.bound(model, jb.remove_rows([row])).scores(np.eye(2))
    return np.asarray(scores.lower), np.asarray(scores.upper)


def test_spawned_workers_give_the_same_bits():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 2)), np.sign(rng.normal(size=20))
    model = model_at(jb.Problem(jb.losses.logistic(), jb.penalties.l2(0.1)), X, y, np.ones(20), np.zeros(2))
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        there = pool.submit(ends, model, 3).result(timeout=120)
    for got, want in zip(there, ends(model, 3), strict=True):
        assert np.array_equal(got, want)


FORK = """
import os, warnings
import numpy as np
import jaxbounds as jb
jb.fit(jb.Problem(jb.losses.squared(), jb.penalties.l2(1.0)), np.eye(2), np.ones(2))  # starts jax's threads
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
print([str(one.message) for one in said if issubclass(one.category, RuntimeWarning | DeprecationWarning)])
"""


@pytest.mark.slow
def test_jax_warns_of_forks():
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0 and "os.fork() was called" in done.stdout and "deadlock" in done.stdout, done
