"""Pieces of one computation in as many threads as the process has cores (host; NumPy lets go of Python's lock)."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from jaxbounds.pytree import in_float64

# a process may be held to a few of the machine's cores (taskset, job schedulers, containers' cpusets)
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_threads(fn: Callable, pieces: Sequence, then: Callable = lambda piece, value: None) -> None:
    """then(piece, fn(piece)) for every piece, in order; fn runs in threads, `then` in this one."""
    run = in_float64(fn)  # jax's and NumPy's settings are each thread's own
    if len(pieces) == 1:
        then(pieces[0], run(pieces[0]))
        return
    with ThreadPoolExecutor(min(CORES, max(len(pieces), 1))) as pool:
        for piece, value in zip(pieces, pool.map(run, pieces), strict=True):
            then(piece, value)
