"""What the package builds on: public interfaces alone, and the versions that pyproject.toml names."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOREIGN = ("jax", "jaxlib", "numpy", "scipy", "optax", "sklearn", "matplotlib", "tqdm", "pandas")
CLOSED = ("jax.interpreters", "jax.experimental", "jax.extend", "jax.lib", "numpy.core")  # public, but not stable


UNSTABLE = {  # used where nothing stable does it; whatever else appears here needs as good a reason
    "block_product.py": (
        "jax.experimental.buffer_callback", "jax.extend.core.Primitive", "jax.interpreters.ad",
        "jax.interpreters.batching", "jax.interpreters.mlir",
    ),  # a callback that never waits for the threads it runs on (pure_callback does), as a linear operation
}  # fmt: skip


def imported(tree: ast.AST):
    """(line, full name) of whatever is imported from elsewhere, and of attributes of such modules."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for item in node.names:
                names[item.asname or item.name.split(".")[0]] = item.name if item.asname else item.name.split(".")[0]
                yield node.lineno, item.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for item in node.names:
                names[item.asname or item.name] = f"{node.module}.{item.name}"
                yield node.lineno, f"{node.module}.{item.name}"
    for node in ast.walk(tree):
        chain, inner = [], node
        while isinstance(inner, ast.Attribute):
            chain.append(inner.attr)
            inner = inner.value
        if chain and isinstance(inner, ast.Name) and inner.id in names:
            yield node.lineno, ".".join([names[inner.id], *reversed(chain)])


def is_private(name: str) -> bool:
    """Whether a name of another project is private, or in a part that its authors do not keep stable."""
    parts = name.split(".")
    if parts[0] not in FOREIGN:
        return False
    return any(part.startswith("_") and not part.endswith("__") for part in parts) or name.startswith(CLOSED)


@pytest.mark.parametrize("path", sorted(ROOT.glob("jaxbounds/**/*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_only_public_names_of_others_are_used(path):
    known = UNSTABLE.get(path.name, ())
    names = [(line, name) for line, name in imported(ast.parse(path.read_text())) if is_private(name)]
    found = [(line, name) for line, name in names if not (known and name.startswith(known))]
    assert not found, f"{path.name}: {found}"


def test_private_names_would_be_seen():
    text = "import jax\nfrom jax._src import core\nimport numpy as np\njax.interpreters.mlir\nnp._core\nnp.__version__"
    assert sum(is_private(name) for _, name in imported(ast.parse(text))) >= 3
    assert not is_private("numpy.__version__") and not is_private("jaxbounds._x")


def test_the_lowest_versions_are_those_of_pyproject():
    """`.ci/lowest.txt` pins what pyproject.toml asks for, so that CI tests what is promised."""
    lowest = ROOT / ".ci" / "lowest.txt"
    if not lowest.exists():
        pytest.skip("not in the source distribution")
    pinned = dict(re.findall(r"^([\w-]+)==([\d.]+)", lowest.read_text(), re.M))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    wanted = [*project["project"]["dependencies"], *extras["data"], *extras["plot"], *extras["progress"]]
    for requirement in wanted:
        name, least = re.fullmatch(r"([\w-]+)>=([\d.]+)", requirement).groups()
        assert pinned[name].startswith(least), requirement
    assert project["tool"]["pytest"]["ini_options"]["filterwarnings"] == ["error"]
