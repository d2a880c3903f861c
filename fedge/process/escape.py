"""Text from elsewhere, made harmless: for terminals, logs and pages, and for tables that spreadsheets open.

A control character in an exception or a name can clear a screen, rename a window or forge a line of a log;
characters that turn the direction of writing can make a line read as another. None of them is let through.
"""

from collections.abc import Iterable

_FORMULA = "=+-@"  # begins what a spreadsheet works out instead of showing (OWASP, CSV injection)


def printable(text: str) -> str:
    r"""Return text in which whatever a terminal would not simply show is written as an escape.

    >>> printable("sensor \x1b[2J lost\n")
    'sensor \\x1b[2J lost\\n'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def harmless(row: Iterable[object]) -> list[object]:
    """The cells of a row of a table, texts among them by `cell`."""
    return [cell(value) if isinstance(value, str) else value for value in row]


def cell(text: str) -> str:
    """Text for a cell of a table: printable, and never a formula.

    >>> cell("=cmd|' /C calc'!A0"), cell("nexus4_1")
    ("'=cmd|' /C calc'!A0", 'nexus4_1')
    """
    text = printable(text)
    return f"'{text}" if text.startswith(tuple(_FORMULA)) else text
