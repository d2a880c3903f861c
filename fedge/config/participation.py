"""Participation: the number of training clients of each leaf in a leaf round, by global round.

    "2"               two clients of every leaf
    "2, 0.5, all"     two of leaf 0, half of leaf 1, all of leaf 2
    "1: all; 10: 2"   all clients until round 9, two of every leaf from round 10 on

A number with a decimal point is a share of the leaf's clients. A user's own function
(`hierarchy.participation = "module:Name"`) is called in `fedge.leaf.strategies.quorum`.
"""

import re
from dataclasses import dataclass

from fedge.config.registers.option import ConfigError, shown

Number = int | float
"""Clients of a leaf, or as a float a share of them above 0 and at most 1."""

_KEY = "hierarchy.participation"
_LONGEST = 9  # digits of a number


@dataclass(frozen=True)
class Participation:
    """Numbers of clients, by round and leaf.

    Attributes:
        steps: (first global round, one number for all leaves or one per leaf), in order of rounds.
    """

    steps: tuple[tuple[int, tuple[Number, ...]], ...]

    def number_at(self, global_round: int, leaf: int) -> Number:
        """The number of a leaf in a global round.

        >>> parse_participation("1: all; 10: 2, 0.5", 2).number_at(10, 1)
        0.5
        """
        numbers = next(numbers for first, numbers in reversed(self.steps) if first <= global_round)
        return numbers[leaf if len(numbers) > 1 else 0]

    @property
    def rounds(self) -> tuple[int, ...]:
        """Global rounds at which the numbers change, ascending; the first is 1."""
        return tuple(first for first, _ in self.steps)


def parse_participation(
    text: str, leaves: int, leaves_option: str = "hierarchy.num-servers"
) -> Participation:
    """Parse the text of `hierarchy.participation`.

    Args:
        text: in the format of the module's docstring.
        leaves: number of leaves.
        leaves_option: the option for their number, for errors.

    Raises:
        ConfigError: the text is malformed.
    """
    steps = []
    for part in text.split(";"):
        first_round, colon, numbers_text = part.rpartition(":")
        if colon and not re.fullmatch(r"\s*[1-9][0-9]{0,8}\s*", first_round):
            raise _parse_error(text)
        numbers = tuple(_number(word.strip(), text) for word in numbers_text.split(","))
        if len(numbers) not in (1, leaves):
            raise ConfigError(
                f"{_KEY} must have one number for all leaves or one for each of {leaves}, but {shown(text)} "
                f"has {len(numbers)}; change it, or {leaves_option}"
            )
        steps.append((int(first_round) if colon else 1, numbers))
    first_rounds = [first for first, _ in steps]
    if first_rounds[0] != 1 or first_rounds != sorted(set(first_rounds)):
        raise ConfigError(
            f"{_KEY} must name rounds in ascending order from round 1 on, but {shown(text)} names "
            f'{", ".join(map(str, first_rounds))}; set for example {_KEY}="1: all; 10: 2"'
        )
    return Participation(tuple(steps))


def _number(word: str, text: str) -> Number:
    """One number: "all", "3" or "0.5"."""
    if word == "all":
        return 1.0
    if word.isdecimal() and len(word) <= _LONGEST and int(word) > 0:
        return int(word)
    if re.fullmatch(r"[01]?\.[0-9]{1,9}", word) and 0 < float(word) <= 1:
        return float(word)
    raise _parse_error(text)


def _parse_error(text: str) -> ConfigError:
    return ConfigError(
        f'{_KEY} must be clients per leaf as "2" or "3,2,2", shares as "0.5", "all", rounds before them as '
        f'"1: all; 10: 2", or code as "module:Name", but is {shown(text)}; set for example {_KEY}="2"'
    )
