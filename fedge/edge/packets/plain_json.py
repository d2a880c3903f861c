"""Plain JSON from another machine: numbers, texts and rows, each checked before use."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fedge.config.registers.option import shown
from fedge.exchange.failure import words_of
from fedge.exchange.schema import ReplyRejected
from fedge.link.gate import NUMBER


class FactError(ValueError):
    """An impossible fact in a message: its name and fault. One line."""

    def __init__(self, name: str, fault: str) -> None:
        super().__init__(f"{name}: {fault}")


def whole_number(value: Any, least: int, most: int, name: str) -> int:
    """A whole number from `least` to `most`.

    >>> whole_number(3, 0, 3, "version")
    3
    """
    if type(value) is not int or not least <= value <= most:
        allowed = f"{least}" if least == most else f"{least} to {most}"
        raise FactError(name, f"{shown(value)}, but it can be {allowed}")
    return value


def finite_number(value: Any, least: float, most: float, name: str) -> float:
    """A finite number from `least` to `most`; integers are accepted, NaN and bools are not."""
    if type(value) not in (int, float) or not least <= value <= most or not abs(value) <= 1.7e308:
        raise FactError(name, f"{shown(value)}, but it can be {least:g} to {most:g}")
    return float(value)


def text(value: Any, longest: int, name: str) -> str:
    """A printable text of at most `longest` characters."""
    if not isinstance(value, str) or len(value) > longest or not value.isprintable():
        raise FactError(name, f"no printable text of at most {longest} characters: {shown(value)}")
    return value


def mapping(value: Any, name: str) -> Mapping[str, Any]:
    """A table of names."""
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise FactError(name, f"{shown(value)} is no table")
    return value


def truth(value: Any, name: str) -> bool:
    """A bool."""
    if type(value) is not bool:
        raise FactError(name, shown(value))
    return value


def values(value: Any, name: str, most: int | None = None) -> list[Any]:
    """A list of any values, at most `most` of them."""
    if not isinstance(value, list):
        raise FactError(name, shown(value))
    rows([[entry] for entry in value], 1, most, name)
    return value


def rows(value: Any, width: int, most: int | None, name: str) -> list[list[Any]]:
    """At most `most` lists of `width` values each."""
    if not isinstance(value, list) or (most is not None and len(value) > most):
        raise FactError(name, f"no list of at most {most} rows: {shown(value)}")
    if not all(isinstance(row, list | tuple) and len(row) == width for row in value):
        raise FactError(name, f"rows must have {width} values")
    return value


def only(facts: Mapping[str, Any], required: Collection[str], optional: Collection[str] = ()) -> None:
    """Raise unless facts are those in `required`; `optional` ones and the message's number are allowed."""
    mismatched = (facts.keys() ^ set(required)) - {NUMBER, *optional}
    if mismatched:
        raise FactError("facts", ", ".join(sorted(map(shown, mismatched))[:3]))


@contextmanager
def refusing(refusal: Callable[[str], Exception]) -> Iterator[None]:
    """Context for checks of a packet: any exception becomes a refusal with the same message.

    All exceptions are caught, because another machine can put anything into a packet.
    """
    try:
        yield
    except ReplyRejected as error:
        raise refusal(str(error.failure)) from None
    except FactError as error:
        raise refusal(str(error)) from None
    except Exception as error:
        raise refusal(f"not readable: {words_of(error)}") from None
