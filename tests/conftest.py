"""Settings of the test run: strict promotion, one thread per worker, a compilation cache, and the shared data.

Environment:
    JAXBOUNDS_TEST_X64=1         run with jax_enable_x64 on (off is the default, and what most users have).
    JAXBOUNDS_TEST_CACHE=DIR     jax's compilation cache (default .cache/jax in the checkout; "" switches it off).
    JAXBOUNDS_TEST_SEED=N        draw other random numbers (default 0; a test draws the same ones in any order).
    JAXBOUNDS_SHARED=DIR         data that are not part of the repository (default ../shared beside the checkout).
    JAXBOUNDS_REQUIRE_SHARED=1   tests that need those data fail without them; otherwise they are skipped.
"""

import gc
import os
import zlib
from pathlib import Path

# Parallel workers share the cores: one thread each. This must happen before jax and NumPy are first loaded.
if "PYTEST_XDIST_WORKER" in os.environ:
    flag = "--xla_cpu_multi_thread_eigen"
    if flag not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}=false".strip()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
os.environ.setdefault("MPLBACKEND", "Agg")

import jax  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

MOST_MAPS = 25_000
ROOT = Path(__file__).resolve().parent.parent

settings.register_profile("jaxbounds", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("explore", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "jaxbounds"))


def pytest_configure(config):
    """Global jax settings: they belong to the tests alone, the package never makes any."""
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_numpy_rank_promotion", "raise")
    jax.config.update("jax_enable_x64", os.environ.get("JAXBOUNDS_TEST_X64", "0") == "1")
    cache = os.environ.get("JAXBOUNDS_TEST_CACHE", str(ROOT / ".cache" / "jax"))
    if cache:
        jax.config.update("jax_compilation_cache_dir", cache)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        # A second worker can meet an entry that is still being written; jax then compiles afresh.
        config.addinivalue_line("filterwarnings", "ignore:Error reading persistent compilation cache entry:UserWarning")


def pytest_runtest_teardown(item):
    """Compiled functions are dropped before their memory maps reach the limit of 65,530, where processes crash."""
    maps = Path("/proc/self/maps")
    if zlib.crc32(item.nodeid.encode()) % 16 == 0 and maps.exists():
        with maps.open() as lines:
            if sum(1 for _ in lines) > MOST_MAPS:
                jax.clear_caches()
                gc.collect()


def pytest_report_header():
    return f"jax {jax.__version__}, x64 {'on' if jax.config.jax_enable_x64 else 'off'}"


@pytest.fixture(autouse=True)
def own_random_numbers(request):
    """A module's RNG starts afresh in every test, so that no test depends on the ones that ran before it."""
    if hasattr(request.module, "RNG"):
        seed = int(os.environ.get("JAXBOUNDS_TEST_SEED", "0"))
        request.module.RNG = np.random.default_rng([seed, zlib.crc32(request.node.nodeid.encode())])


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of the shared data; skips the test where there is none."""
    path = Path(os.environ.get("JAXBOUNDS_SHARED", ROOT.parent / "shared"))
    if not path.is_dir():
        text = f"no shared data at {path}: set JAXBOUNDS_SHARED to the folder that has cases/ and data/"
        if os.environ.get("JAXBOUNDS_REQUIRE_SHARED") == "1":
            pytest.fail(text)
        pytest.skip(text)
    return path
