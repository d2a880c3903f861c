"""Foreign text made harmless for terminals, logs, pages and spreadsheets.

A control character in an exception or a name can clear a screen, rename a window or forge a line of a log;
bidirectional controls can make a line read as another. All of these are escaped.
"""

import json
import re
from collections.abc import Iterable
from typing import Any
from unicodedata import bidirectional, category

_TURNING = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
_FORMULA = re.compile(r"'*[=+\-@]")  # starts a formula in a spreadsheet's cell (OWASP, CSV injection)


def printable(text: str) -> str:
    r"""Text with escapes instead of characters not displayed by a terminal.

    >>> printable("sensor \x1b[2J lost\n")
    'sensor \\x1b[2J lost\\n'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def on_page(text: str) -> str:
    r"""Text of several lines for a page, with escapes for invalid characters and bidirectional controls.

    >>> on_page("two\nlines \u202e \ud800")
    'two\nlines \\u202e \\ud800'
    """
    if text.isprintable():
        return text
    return "".join(c if _is_on_page(c) else c.encode("unicode_escape").decode("ascii") for c in text)


def _is_on_page(character: str) -> bool:
    """Whether a page may contain a character: no control, lone surrogate, bidi mark or line separator."""
    if character in "\n\t":
        return True
    return category(character) not in ("Cc", "Cs", "Zl", "Zp") and bidirectional(character) not in _TURNING


def read_json(text: str) -> Any:
    r"""JSON of a foreign file, with lone surrogates escaped, so all texts can be encoded.

    >>> read_json('{"a": ["\\ud800"]}')
    {'a': ['\\ud800']}

    Raises:
        ValueError: the text is not JSON.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("lists and tables are nested without end") from None
    return _encodable(value) if "\\ud" in text.lower() else value


def _encodable(value: Any) -> Any:
    """A JSON value with lone surrogates in its texts escaped."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    return value


def toml_value(value: str | bool | int | float) -> str:
    r"""TOML of a value: its JSON, except for the character DEL, which TOML text must not contain.

    >>> print(toml_value('a "b"\x7f'), toml_value(True), toml_value(1e-5))
    "a \"b\"\u007f" true 1e-05
    """
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def escape_cells(row: Iterable[object]) -> list[object]:
    """Cells of a table row, with texts passed through `cell`."""
    return [cell(value) if isinstance(value, str) else value for value in row]


def cell(text: str) -> str:
    """Text for a table cell: printable, and never a formula. `cell_text` restores the printable text.

    >>> cell("=cmd|' /C calc'!A0"), cell("nexus4_1")
    ("'=cmd|' /C calc'!A0", 'nexus4_1')
    """
    text = printable(text)
    return f"'{text}" if _FORMULA.match(text) else text


def cell_text(cell: str) -> str:
    """Text of a cell written by `cell`.

    >>> cell_text("'-1"), cell_text("'tis")
    ('-1', "'tis")
    """
    return cell.removeprefix("'") if _FORMULA.match(cell) else cell
