"""Numbers with their nouns, as said to users."""

_PLURALS = {"leaf": "leaves", "entry": "entries"}
_HISSING = ("s", "x", "ch", "sh")


def quantity(number: float | str, noun: str, separated: bool = False) -> str:
    """Number and noun: "1 leaf", "2 leaves", "3 global rounds".

    Args:
        number: of things; "?" where nobody knows.
        noun: in the singular, with any adjectives before it.
        separated: commas between thousands.

    >>> quantity(1, "leaf server"), quantity(2, "class"), quantity(1944, "window", separated=True)
    ('1 leaf server', '2 classes', '1,944 windows')
    """
    words, _, last = noun.rpartition(" ")
    many = _PLURALS.get(last, last + ("es" if last.endswith(_HISSING) else "s"))
    said = f"{number:,}" if separated else f"{number:g}" if isinstance(number, float) else str(number)
    return f"{said} {noun}" if said == "1" else f"{said} {words}{' ' * bool(words)}{many}"
