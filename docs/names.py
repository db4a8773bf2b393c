"""All public names on one page, from the signatures and first lines of the docstrings: python docs/names.py

Writes docs/names.md, in the order of docs/api.md; tests/test_docs.py fails while it is not what this gives.
"""

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from jaxbounds.certificates import Method
from jaxbounds.own_labels import Labelled
from jaxbounds.solvers.base import Solver

HERE = Path(__file__).resolve().parent
UNLISTED = "jaxbounds.plots", "jaxbounds.sklearn"  # not imported with the package
_HEAD = """# All names on one page

Signatures and first lines, made by `python docs/names.py` from the docstrings; the [API reference](api.md) has them whole, and so has `help(jb.fit)`. `import jaxbounds as jb` comes first, and `import jaxbounds.plots`, `import jaxbounds.sklearn` for those two.
"""  # noqa: E501


def signature(item) -> str:
    """(X, y, *, tol=1e-06), without types."""
    found = inspect.signature(item)
    bare = [p.replace(annotation=p.empty) for p in found.parameters.values() if p.name not in ("self", "cls")]
    return str(found.replace(parameters=bare, return_annotation=found.empty))


def first_line(item) -> str:
    """The docstring's, whose stars and underscores are no markup outside of `code`."""
    line = (inspect.getdoc(item) or "").split("\n")[0].rstrip(":.")
    parts = re.split(r"(`[^`]*`)", line)
    return "".join(part if k % 2 else re.sub(r"(\*|(?<!\w)_)", r"\\\1", part) for k, part in enumerate(parts))


def entries(module: str, name: str) -> Iterator[str]:
    """Lines about one function, or about a class and what its objects are asked."""
    item = getattr(importlib.import_module(module), name)
    path = f"{'jb' + module.removeprefix('jaxbounds') if module not in UNLISTED else module}.{name}"
    doc = inspect.getdoc(item) or ""
    called = not isinstance(item, type) or "Args:" in doc
    yield f"* `{path}{signature(item) if called else ''}`: {first_line(item)}"
    # methods and solvers are handed over, not asked; what only extensions build on has no example
    asked = isinstance(item, type) and not issubclass(item, Method | Solver) and "Example:" in doc
    members = dict(vars(item)) | (dict(vars(Labelled)) if asked and issubclass(item, Labelled) else {})
    for key, member in members.items() if asked else ():
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if not key.startswith("_") and inspect.isfunction(function) and inspect.getdoc(function):
            takes = "" if isinstance(member, property) else signature(function)
            yield f"    * `.{key}{takes}`: {first_line(function)}"


def page() -> str:
    """The text of docs/names.md."""
    lines, module = [_HEAD], ""
    pattern = r"^(#+ .+)$|^\.\. (currentmodule|auto\w+):: (\S+)$"
    for heading, directive, name in re.findall(pattern, (HERE / "api.md").read_text(), re.M):
        if heading and not heading.startswith("# "):
            lines += ["", heading, ""]
        elif directive == "currentmodule":
            module = name
        elif directive:
            lines += entries(module, name)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"


if __name__ == "__main__":
    (HERE / "names.md").write_text(page())
