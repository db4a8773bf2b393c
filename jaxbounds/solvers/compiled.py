"""Solvers' inner loops in C: built by the machine's C compiler when the first is asked for, called through jax.ffi."""

import ctypes
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

REMEDY = "leave out compiled=True"
_SOURCES = ("sdca", "descent")
_LOCK, _BUILT = threading.Lock(), []  # a target can be registered only once


def check_machine() -> None:
    """Raise unless the machine can build and run the C code."""
    if jax.default_backend() != "cpu":
        raise ValueError(f"compiled=True runs on the CPU, not on {jax.default_backend()}; {REMEDY}")
    build()


def build() -> None:
    """Compile the C code and register it with jax, once a process; nothing is left on disk."""
    with _LOCK:
        if not _BUILT:
            library = _library()
            for name in _SOURCES:
                handler = jax.ffi.pycapsule(getattr(library, f"jaxbounds_{name}"))
                jax.ffi.register_ffi_target(f"jaxbounds_{name}", handler, platform="cpu")
            _BUILT.append(library)


def _library() -> ctypes.CDLL:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise RuntimeError(f"compiled=True needs a C compiler on the PATH (cc, gcc, clang); {REMEDY}")
    sources = [str(Path(__file__).with_name(f"{name}.c")) for name in _SOURCES]
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "jaxbounds.so"
        command = [compiler, "-O3", "-march=native", "-shared", "-fPIC", f"-I{jax.ffi.include_dir()}"]
        found = subprocess.run([*command, *sources, "-o", str(library), "-lm"], capture_output=True, text=True)
        if found.returncode:
            raise RuntimeError(f"{compiler} could not compile the C code ({found.stderr.strip()[:300]}); {REMEDY}")
        return ctypes.CDLL(str(library))


def call(name: str, changed: tuple[jax.Array, jax.Array], *arguments) -> tuple[jax.Array, jax.Array]:
    """The two float64 vectors as the C code leaves them."""
    shapes = tuple(jax.ShapeDtypeStruct(x.shape, np.float64) for x in changed)
    first, second = jax.ffi.ffi_call(f"jaxbounds_{name}", shapes, vmap_method="sequential")(*changed, *arguments)
    return first, second


def whole(x: Any) -> jax.Array:
    """An integer as the C code reads it."""
    return jnp.asarray(x, jnp.int32).reshape(1)


def due(count, before, after, goal, most: int, final: bool):
    """Passes until the next look at the gap, as it fell until now; none where a final phase will be the faster one."""
    fall = jnp.maximum(jnp.log(before / after), 1e-3) / count.astype(jnp.float64)  # a pass
    needed = jnp.log(after / goal) / fall
    longest = jnp.minimum(2 * count, most).astype(jnp.float64)
    found = jnp.clip(jnp.where(jnp.isnan(needed), longest, jnp.ceil(needed)), 1.0, longest)
    slow = (after > 0.5 * before) & (count >= most)
    return jnp.where(slow & final, 0, found).astype(jnp.int32)
