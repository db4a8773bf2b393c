"""The state of a long fit on disk: an interrupted fit goes on where it stopped, to the same result."""

import contextlib
import hashlib
import os
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbounds.arguments import as_path
from jaxbounds.array import put
from jaxbounds.solvers.common import Task
from jaxbounds.storage import UNREADABLE, encode, pack, reason, remove_unfinished, unpack, write_atomically

_SHARE = 0.05  # of the time goes into writing


class Checkpoint:
    """A file that holds the state of a solver.

    Args:
        path: the file. solver, task: what is being solved; another problem's file is refused.
    """

    def __init__(self, path: str | os.PathLike[str], solver: Any, task: Task):
        self.path = as_path(path, "checkpoint")
        self.solved = _description(solver, task)
        self.matrix_sum = _matrix_sum(task)
        self.written, self.took = -np.inf, 0.0
        remove_unfinished(self.path)

    def read(self, like: Any) -> Any:
        """The state in the file, of the structure and shapes of `like`; None if there is no file."""
        try:
            with open(self.path, "rb") as file:
                content, arrays = unpack(file, "checkpoint")
        except FileNotFoundError:
            return None
        except UNREADABLE as error:
            raise ValueError(f"checkpoint: {self.path} {reason(error)}; delete it to start anew") from error
        leaves, structure = jax.tree.flatten(like)
        found = [arrays.get(f"state{k}") for k in range(len(leaves))]
        same = all(
            a is not None and a.shape == leaf.shape and a.dtype == leaf.dtype
            for a, leaf in zip(found, leaves, strict=True)
        )
        here, size = self.matrix_sum
        if content != self.solved or not same or abs(float(arrays["matrix_sum"]) - here) > 1e-9 * size:
            raise ValueError(f"checkpoint: {self.path} is of another problem, solver or data; delete it, or choose "
                             "another path")  # fmt: skip
        return put(structure.unflatten(found))

    def write(self, state: Any) -> None:
        """Write the state, unless that was done so shortly ago that writing would take more than its share of time."""
        if time.monotonic() - self.written >= self.took / _SHARE:
            self._write(state)

    def close(self, state: Any, converged: bool) -> None:
        """Delete the file of a fit that has converged; any other goes on from its last state."""
        if not converged:
            self._write(state)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path)

    def _write(self, state: Any) -> None:
        start = time.monotonic()
        arrays = {f"state{k}": np.asarray(leaf) for k, leaf in enumerate(jax.tree.leaves(state))}
        arrays["matrix_sum"] = np.array(self.matrix_sum[0])
        write_atomically(self.path, lambda file: pack(file, "checkpoint", self.solved, arrays))
        self.written = time.monotonic()
        self.took = self.written - start


def _description(solver: Any, task: Task) -> dict[str, Any]:
    """The solver, the functions and their numbers, and a digest of targets and weights."""
    arrays: dict[str, np.ndarray] = {}
    functions = encode((task.loss, task.penalty), "problem", arrays)
    digest = hashlib.sha256()
    for name, array in [*sorted(arrays.items()), ("y", np.asarray(task.y)), ("c", np.asarray(task.c))]:
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    return {
        "solver": repr(solver), "problem": functions, "intercept": task.intercept, "shape": list(task.matrix.shape),
        "digest": digest.hexdigest(),
    }  # fmt: skip


@jax.jit
def _sums(matrix):
    n, d = matrix.shape
    s = matrix.matvec(jnp.cos(jnp.arange(d, dtype=jnp.float64)))
    other = jnp.sin(jnp.arange(n, dtype=jnp.float64))
    return jnp.sum(s * other), jnp.sqrt(jnp.sum(s**2) * n)


def _matrix_sum(task: Task) -> tuple[float, float]:
    """A number that tells matrices apart, and its size: sum_ij sin(i) X_ij cos(j)."""
    total, size = _sums(task.matrix)
    return float(total), float(size)
