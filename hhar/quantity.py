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
    text = f"{number:,}" if separated else f"{number:g}" if isinstance(number, float) else str(number)
    return f"{text} {noun if text == '1' else plural(noun)}"


def plural(noun: str) -> str:
    """Plural of a noun.

    >>> plural("leaf server"), plural("wrist watch"), plural("leaf"), plural("entry"), plural("day")
    ('leaf servers', 'wrist watches', 'leaves', 'entries', 'days')
    """
    adjectives, space, word = noun.rpartition(" ")
    regular = word + ("es" if word.endswith(_HISSING) else "s")
    if word.endswith("y") and word[-2:-1] not in _VOWELS:
        regular = f"{word[:-1]}ies"
    return adjectives + space + _PLURALS.get(word, regular)
