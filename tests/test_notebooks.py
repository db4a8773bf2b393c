"""The notebooks as they are stored: executed in order, small, without warnings. CI runs them anew with nbmake."""

import json
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def test_there_is_one_for_each_question():
    assert [path.name[0] for path in NOTEBOOKS] == list("123456")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_executed_small_and_clean(path):
    text = path.read_text(encoding="utf-8")
    assert len(text) < 300_000
    notebook = json.loads(text)
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    cells = [(cell["cell_type"], "".join(cell["source"]), cell) for cell in notebook["cells"]]
    first, question, _ = cells[0]
    assert first == "markdown" and question.startswith("# ") and "?" in question
    prose = [source for kind, source, _ in cells if kind == "markdown"]
    assert prose[-1].startswith("## The answer") and cells[-1][1].count("assert ") > 2  # its numbers are checked
    code = [cell for kind, _, cell in cells if kind == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"stream", "display_data", "execute_result"}
    assert all(output.get("name") != "stderr" for output in outputs)
    assert any("image/png" in output.get("data", {}) for output in outputs)
    said = "".join("".join(output.get("text", "")) for output in outputs) + "".join(source for _, source, _ in cells)
    assert not re.search(r"(?<![\w.])/(home|root|tmp|work|Users|usr|opt)/|[A-Z]:\\\\|Warning", said)
