"""Example of sequences: the next character in twelve sonnets of Shakespeare, each sonnet a user.

The text, of 1609, is in the public domain.
"""

from importlib.resources import files

import numpy as np

from fedge.config.registers.option import ConfigError
from hhar.windows.window_file import Windows

# 0 is any other character
ALPHABET = "~\n abcdefghijklmnopqrstuvwxyz,.:;'?!-"


def sonnets(length: int = 32, step: int = 8) -> Windows:
    """Pieces of the text as tokens (N, length), y (N, length) the character after each; for `sequence`.

    Letters are lower case. The data have their own split (`part`): the first ten lines of each sonnet are for
    training, the next two for validation, the last two for test. No piece crosses these bounds, so training
    and test pieces do not overlap.

    Args:
        length: characters of a piece.
        step: characters from the start of one training piece to the next.

    Raises:
        ConfigError: pieces longer than two lines, or no step.
    """
    if not 4 <= length <= 64 or not 1 <= step <= 64:
        raise ConfigError(
            f"data.path-args: length must be 4 to 64 and step 1 to 64, but they are {length} and {step}; "
            f"take for example 32 and 8"
        )
    examples: list[tuple[np.ndarray, str, str]] = []
    for number, sonnet in texts().items():
        lines = sonnet.splitlines(keepends=True)
        for part, part_lines in (("train", lines[:10]), ("val", lines[10:12]), ("test", lines[12:])):
            codes = encode_text("".join(part_lines))
            starts = range(0, len(codes) - length, step)
            examples += [
                (codes[start : start + length + 1], part, f"sonnet-{number:03d}") for start in starts
            ]
    pieces = np.stack([piece for piece, _, _ in examples])
    return Windows(
        x=pieces[:, :-1].copy(),
        y=pieces[:, 1:].copy(),
        user=np.array([user for _, _, user in examples]),
        device=None,
        session=None,
        classes=tuple(_NAMES.get(letter, letter) for letter in ALPHABET),
        channels=(),
        part=np.array([part for _, part, _ in examples]),
    )


_NAMES = {"~": "other", "\n": "new line", " ": "blank"}


def texts() -> dict[int, str]:
    """The sonnets by number, fourteen lines each."""
    text = (files(__package__) / "sonnets.txt").read_text(encoding="utf-8")
    return {int(head): body for head, _, body in (block.partition("\n") for block in text.split("\n# ")[1:])}


def encode_text(text: str) -> np.ndarray:
    """The characters of a text as numbers in `ALPHABET`, int64.

    >>> encode_text("A cab!").tolist()
    [3, 2, 5, 3, 4, 35]
    """
    numbers = {letter: number for number, letter in enumerate(ALPHABET)}
    return np.array([numbers.get(letter, 0) for letter in text.lower()], dtype=np.int64)
