"""Numbers with their nouns, for messages."""

_PLURALS = {"leaf": "leaves"}
_HISSING = ("s", "x", "ch", "sh")
_VOWELS = "aeiou"


def quantity(number: float | str, noun: str, separated: bool = False) -> str:
    """Number and noun: "1 leaf", "2 leaves", "3 global rounds".

    Args:
        number: number of things; "?" if unknown.
        noun: noun in the singular, with any adjectives before it.
        separated: commas between thousands.

    >>> quantity(1, "leaf server"), quantity(2, "class"), quantity(1944, "window", separated=True)
    ('1 leaf server', '2 classes', '1,944 windows')
    """
    said = f"{number:,}" if separated else f"{number:g}" if isinstance(number, float) else str(number)
    return f"{said} {noun if said == '1' else plural(noun)}"


def plural(noun: str) -> str:
    """Plural of a noun.

    >>> plural("leaf server"), plural("wrist watch"), plural("leaf"), plural("entry"), plural("day")
    ('leaf servers', 'wrist watches', 'leaves', 'entries', 'days')
    """
    words, space, last = noun.rpartition(" ")
    many = last + ("es" if last.endswith(_HISSING) else "s")
    if last.endswith("y") and last[-2:-1] not in _VOWELS:
        many = f"{last[:-1]}ies"
    return words + space + _PLURALS.get(last, many)
