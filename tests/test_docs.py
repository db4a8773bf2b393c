"""The documentation holds: snippets run, every public name has a whole docstring and a place in the reference."""

import ast
import doctest
import importlib
import importlib.util
import inspect
import re
from pathlib import Path

import pytest

import jaxbounds as jb
from jaxbounds.certificates import Method
from jaxbounds.interfaces import Loss, Penalty

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), ROOT / "CONTRIBUTING.md", ROOT / "README.md"])


def script(name: str):
    """A module of the docs folder, which is no package."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


docstrings = script("docstrings")


# ---------------------------------------------------------------- the public names


def public(module) -> dict:
    """The functions and classes that a module offers, by full name; submodules are opened."""
    names = getattr(module, "__all__", None)
    if names is None:
        own = [name for name, item in vars(module).items() if getattr(item, "__module__", None) == module.__name__]
        names = [name for name in own if not name.startswith("_")]
    found = {}
    for name in names:
        item = getattr(module, name)
        found |= public(item) if inspect.ismodule(item) else {f"{module.__name__}.{name}": item}
    return found


UNLISTED = ("plots", "sklearn")  # public modules that `import jaxbounds` leaves alone, since they need more packages
PUBLIC = public(jb)
for extra in UNLISTED:
    if importlib.util.find_spec(f"jaxbounds.{extra}") is not None:
        PUBLIC |= public(importlib.import_module(f"jaxbounds.{extra}"))
UNIQUE = {id(item): name for name, item in reversed(PUBLIC.items())}  # one name for each
NAMES = sorted(UNIQUE.values())


def documented() -> list[str]:
    """Full names of what docs/api.md documents, in its order."""
    module, found = "", []
    for directive, name in re.findall(r"^\.\. (currentmodule|auto\w+):: (\S+)$", (DOCS / "api.md").read_text(), re.M):
        if directive == "currentmodule":
            module = name
        else:
            found.append(f"{module}.{name}")
    return found


def test_reference_lists_every_public_name_once():
    listed = [
        getattr(importlib.import_module(name.rpartition(".")[0]), name.rpartition(".")[2]) for name in documented()
    ]
    assert len({id(item) for item in listed}) == len(listed), "docs/api.md documents something twice"
    missing = sorted(name for key, name in UNIQUE.items() if key not in {id(item) for item in listed})
    assert not missing, f"add a line to docs/api.md for each of {missing}"


def test_names_on_one_page_are_those_of_the_docstrings():
    page = script("names").page()
    assert " at 0x" not in page and page == (DOCS / "names.md").read_text(), "run python docs/names.py"
    assert "* `jb.set_rows(rows, X_new, y_new=None, *, old_values=None)`: Whole rows" in page
    assert "* `jb.Bounds`: " in page and "    * `.distance`: Interval for ||w_new - w_old||\\_2" in page


# ---------------------------------------------------------------- docstrings

# What has no such section, and why.
WITHOUT = {
    "Returns": {"default_solver"},  # its first line says what
    "Raises": {"default_solver"},  # answers for every problem
    "Example": {
        "FitWarning",  # a warning
        "Loss", "Penalty", "Method", "Region", "Ball", "Solution", "Task",  # what extensions build on; never called
        "Decision", "Push",  # those of `decide` and `Monitor`
    },
}  # fmt: skip
CITED = {  # from a paper, or from a section of the library's own theory
    "attack_relabel", "attack_removal", "best_penalty", "fit_path", "from_sklearn", "influence",
    "largest_certified_relabel", "largest_certified_removal", "leave_one_out", "load_svmlight", "penalty_sweep",
    "rank_rows", "set_columns", "set_elements", "set_rows", "with_factor", "worst_case_relabel", "worst_case_relabels",
    "worst_case_removal", "worst_case_removals", "check_loss", "check_penalty",
}  # fmt: skip


def sections_of(item) -> dict[str, str]:
    return dict(docstrings.sections(inspect.getdoc(item) or ""))


def needs_source(name: str, item) -> bool:
    """Methods, losses and penalties, and what follows a paper."""
    module = item.__module__
    if isinstance(item, type):
        return issubclass(item, Method) and item is not Method
    return name in CITED or module in ("jaxbounds.losses", "jaxbounds.penalties", "jaxbounds.user_functions")


@pytest.mark.parametrize("full", NAMES)
def test_docstring_is_whole(full):
    item, name = PUBLIC[full], full.rpartition(".")[2]
    doc = inspect.getdoc(item) or ""
    summary = doc.split("\n\n")[0]
    assert summary, f"{full} has no docstring"
    assert summary.rstrip().endswith((".", ":")) and "\n" not in summary, f"{full}: one line first, then an empty one"
    found = sections_of(item)
    if not isinstance(item, type):
        parameters = list(inspect.signature(item).parameters)
        for section in ("Args", "Returns", "Raises", "Example"):
            wanted = name not in WITHOUT.get(section, ()) and (parameters or section in ("Returns", "Example"))
            assert not wanted or found.get(section), f"{full} has no section {section}"
        named = {n for names, _ in docstrings.items(found.get("Args", "")) for n in names.split(", ")}
        assert set(parameters) <= named, f"{full}: Args says nothing of {sorted(set(parameters) - named)}"
    elif name not in WITHOUT["Example"]:
        assert found.get("Example"), f"{full} has no section Example"
    if needs_source(name, item):
        assert "Source: " in doc, f"{full} does not say where it comes from"


def test_exceptions_are_needed():
    """No exception outlives its reason."""
    short = {full.rpartition(".")[2]: item for full, item in PUBLIC.items()}
    for section, names in WITHOUT.items():
        for name in names:
            assert name in short and section not in sections_of(short[name]), f"{name} has a section {section} by now"
    assert set(short) >= CITED


def test_public_methods_have_docstrings():
    for full, item in ((full, PUBLIC[full]) for full in NAMES):
        if isinstance(item, type) and not issubclass(item, Loss | Penalty):  # those are said once, in interfaces.py
            for name, member in vars(item).items():
                function = member.fget if isinstance(member, property) else member
                if not name.startswith("_") and inspect.isfunction(function):
                    assert inspect.getdoc(getattr(item, name)), f"{full}.{name} has no docstring"


def test_docstrings_become_restructured_text():
    doc = """One line with |x| and w*.

    A formula:

        R^2 = ||t||_C

    Args:
        a, b: (n,) numbers. c: a `code` word, two `Model`s,
            continued.

    Raises:
        TypeError: one. ValueError: another
        on two lines.

    Example:
        >>> 1 + 1
        2

    Source: none."""
    lines = docstrings.as_rst(inspect.cleandoc(doc))
    text = "\n".join(lines)
    assert lines[0] == r"One line with \|x\| and w\*."
    assert "\n::\n\n    R^2 = ||t||_C\n" in text
    assert "    * ``a``, ``b``: (n,) numbers.\n    * ``c``: a ``code`` word, two ``Model``\\ s, continued." in text
    assert "    * ``TypeError``: one.\n    * ``ValueError``: another on two lines." in text
    assert ">>> 1 + 1\n2\n" in text and text.rstrip().endswith("Source: none.")


# ---------------------------------------------------------------- pages


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """(line, text) of the fenced blocks of a language."""
    text = page.read_text()
    found = re.finditer(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)
    return [(text.count("\n", 0, match.start(1)), match[1]) for match in found]


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "pycon")], ids=lambda page: page.name)
def test_snippets_give_what_they_show(page):
    examples = []
    for line, text in blocks(page, "pycon"):
        for example in doctest.DocTestParser().get_examples(text):
            example.lineno += line
            examples.append(example)
    report: list[str] = []
    test = doctest.DocTest(examples, {"__name__": page.stem}, page.name, str(page), 0, None)
    failed, tried = doctest.DocTestRunner(verbose=False).run(test, out=report.append)
    assert tried and not failed, "".join(report)


@pytest.mark.slow
def test_blocks_of_the_readme_run_in_order(tmp_path, monkeypatch):
    text = (ROOT / "README.md").read_text()
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    found = re.finditer(r"^```python\n(.*?)^```$|\n\n((?:    [^\n]*\n|\n(?=    ))+)", text, re.M | re.S)
    code = [match[1] or re.sub("^    ", "", match[2], flags=re.M) for match in found]
    for block in [block for block in code if ".venv" not in block]:
        exec(compile(block, block.split("\n")[0], "exec"), names)
    names["monitor"].close()
    assert names["left"].errors.lower == names["left"].errors.upper and not names["push"].certified


def test_other_snippets_are_python():
    for page in PAGES:
        for _, text in blocks(page, "python"):
            ast.parse(text)


def test_files_and_tests_that_pages_name_exist():
    functions = "\n".join(path.read_text() for path in (ROOT / "tests").glob("test_*.py"))
    for page in PAGES:
        text = page.read_text()
        for name in re.findall(r"`((?:jaxbounds|tests|benchmarks|docs|notebooks)/[\w./]*)`", text):
            assert (ROOT / name).exists(), f"{page.name} names {name}"
        for name in re.findall(r"`(test_\w+)`", text):
            assert re.search(rf"^def {name}\(", functions, re.M), f"{page.name} names {name}"
        for name in re.findall(r"`jb\.([A-Za-z_]\w*)", text):
            assert hasattr(jb, name), f"{page.name} names jb.{name}"


def test_table_of_methods_is_what_they_check():
    text = (DOCS / "methods.md").read_text()
    table = re.findall(r"^\|(.*)\|$", text[text.index("| loss | penalty |") :].split("\n\n")[0], re.M)
    head, _, *rows = [[cell.strip().strip("`") for cell in line.split("|")] for line in table]
    methods = [getattr(jb, name)() for name in head[2:]]
    assert len(rows) > 8
    for loss, penalty, *said in rows:
        problem = jb.Problem(eval(f"jb.losses.{loss}"), eval(f"jb.penalties.{penalty}"))
        problem.check()
        assert [word == "yes" for word in said] == [method.applies(problem) for method in methods], f"{loss}, {penalty}"
