"""Docstrings are plain text, with sections; this turns one into reStructuredText.

Sections are Args, Attributes, Returns, Raises and Example, each at the left margin with an indented body. In Args,
Attributes and Raises an item is `names: text`; several may share a line. Outside of sections indented lines are
formulas. Stars, bars and underscores are what they are in formulas, never markup; only `code` is.
"""

import re
import textwrap
from collections.abc import Iterator

SECTIONS = ("Args", "Attributes", "Returns", "Raises", "Example")
_TITLES = {"Args": "Arguments"}
_NAMES = r"[A-Za-z_]\w*(?:, [A-Za-z_]\w*)*: "
_ITEM = re.compile(rf"(?:^|(?<=[.;)] )){_NAMES}", re.MULTILINE)


def sections(doc: str) -> Iterator[tuple[str, str]]:
    """(name, text) of each part in order; the name is "" for text between sections."""
    name, lines = "", []
    for line in doc.splitlines():
        header = line[:-1] if line.endswith(":") and line[:-1] in SECTIONS else None
        outside = bool(name and line.strip() and not line.startswith(" "))
        if header is not None or outside:
            yield name, textwrap.dedent("\n".join(lines)).strip("\n")
            name, lines = header or "", []
        if header is None:
            lines.append(line)
    yield name, textwrap.dedent("\n".join(lines)).strip("\n")


def items(text: str) -> list[tuple[str, str]]:
    """(names, text) of the items of a section; text before the first item has the names ""."""
    starts = [m.start() for m in _ITEM.finditer(text)]
    pieces = [text[a:b] for a, b in zip([0, *starts], [*starts, len(text)], strict=True) if text[a:b].strip()]
    found = []
    for piece in pieces:
        names = re.match(_NAMES, piece)
        body = piece[names.end() :] if names else piece
        found.append((names.group()[:-2] if names else "", " ".join(body.split())))
    return found


def escape(text: str) -> str:
    """Plain text as reStructuredText: `code` becomes literal, everything else stands for itself."""
    parts = re.split(r"(``.+?``|`[^`\n]+`)", text)
    for k, part in enumerate(parts):
        if k % 2 == 0:
            parts[k] = re.sub(r"([\\*|_`])", r"\\\1", part)
        else:  # an escaped space ends the literal where a letter follows
            parts[k] = f"``{part.strip('`')}``" + ("\\ " if parts[k + 1][:1].isalnum() else "")
    return "".join(parts)


def _prose(text: str) -> list[str]:
    """Paragraphs, with indented lines as literal blocks."""
    lines, inside = [], False
    for line in text.splitlines():
        formula = line.startswith("    ") or (inside and not line.strip())
        if formula and not inside:
            lines += ["", "::", ""]
        elif inside and not formula:
            lines.append("")
        inside = formula
        lines.append(line if formula else escape(line))
    return lines


def as_rst(doc: str) -> list[str]:
    """The lines of a docstring as reStructuredText."""
    lines = []
    for name, text in sections(doc):
        if not name:
            lines += [*_prose(text), ""]
        elif name == "Example":
            lines += [".. rubric:: Example", "", *text.splitlines(), ""]
        elif name == "Returns":
            lines += [f":Returns: {escape(' '.join(text.split()))}", ""]
        else:
            lines += [f":{_TITLES.get(name, name)}:"]
            for names, body in items(text):
                code = ", ".join(f"``{one}``" for one in names.split(", ")) + ": " if names else ""
                lines.append(f"    * {code}{escape(body)}")
            lines.append("")
    return lines
