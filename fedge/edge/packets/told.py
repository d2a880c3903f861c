"""Plain JSON from another machine: numbers, texts and rows, each checked before use."""

from collections.abc import Mapping
from typing import Any

from fedge.config.registers.option import shown


class ToldError(ValueError):
    """An impossible fact in a message: its name and fault. One line."""

    def __init__(self, what: str, how: str) -> None:
        super().__init__(f"{what}: {how}")


def whole_number(value: Any, least: int, most: int, what: str) -> int:
    """A whole number from `least` to `most`.

    >>> whole_number(3, 0, 3, "version")
    3
    """
    if type(value) is not int or not least <= value <= most:
        allowed = f"{least}" if least == most else f"{least} to {most}"
        raise ToldError(what, f"{shown(value)}, but it can be {allowed}")
    return value


def finite_number(value: Any, least: float, most: float, what: str) -> float:
    """A finite number from `least` to `most`; whole ones are numbers, NaN and truths are not."""
    if type(value) not in (int, float) or not least <= value <= most or not abs(value) <= 1.7e308:
        raise ToldError(what, f"{shown(value)}, but it can be {least:g} to {most:g}")
    return float(value)


def text(value: Any, longest: int, what: str) -> str:
    """A printable text of at most so many characters."""
    if not isinstance(value, str) or len(value) > longest or not value.isprintable():
        raise ToldError(what, f"no printable text of at most {longest} characters: {shown(value)}")
    return value


def mapping(value: Any, what: str) -> Mapping[str, Any]:
    """A table of names."""
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ToldError(what, f"{shown(value)} is no table")
    return value


def truth(value: Any, what: str) -> bool:
    """A truth."""
    if type(value) is not bool:
        raise ToldError(what, shown(value))
    return value


def values(value: Any, what: str, most: int | None = None) -> list[Any]:
    """A list of anything, of at most so many values."""
    if not isinstance(value, list):
        raise ToldError(what, shown(value))
    rows([[each] for each in value], 1, most, what)
    return value


def rows(value: Any, width: int, most: int | None, what: str) -> list[list[Any]]:
    """At most so many lists of `width` values each."""
    if not isinstance(value, list) or (most is not None and len(value) > most):
        raise ToldError(what, f"no list of at most {most} rows: {shown(value)}")
    if not all(isinstance(row, list | tuple) and len(row) == width for row in value):
        raise ToldError(what, f"rows must have {width} values")
    return value
