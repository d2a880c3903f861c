"""Marks of quantities sent by a client: noised, public, or plain (without noise); set where each is produced.

A module that makes replies declares the name of each quantity, and builds replies with
`marked_values`, which raises for a name without a mark. A grouping method's needs and a client's algorithm
declare their quantities in the same way. `fedge.privacy.coverage` derives from all marks the gaps in a run's
promise, and refusals.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

_Value = TypeVar("_Value")
EVERY_KIND = frozenset({"server-fixed", "server-adaptive", "client-fixed", "client-adaptive", "local"})


class Mark(Enum):
    """How a quantity leaves a client under a kind of privacy."""

    NOISED = "noised"
    PUBLIC = "public"
    PLAIN = "plain"


@dataclass(frozen=True)
class Quantity:
    """A quantity leaving clients.

    Attributes:
        words: description.
        noised: kinds of privacy with noise on the quantity before anybody but its leaf sees it.
        is_public: public knowledge before the client's reply.
        refused: reason for refusing a private run with a decision by the plain quantity, as the end of "…,
            but"; empty if the quantity is only listed.
    """

    words: str
    noised: frozenset[str] = frozenset()
    is_public: bool = False
    refused: str = ""

    def mark(self, kind: str) -> Mark:
        """Form in which the quantity leaves a client under a kind of privacy."""
        if self.is_public:
            return Mark.PUBLIC
        return Mark.NOISED if kind in self.noised else Mark.PLAIN


Leaving = Mapping[str, Quantity]
"""Name of an entry, or the end of it after its last "/", or "sums/*" for any of a folder → what it is."""

MODELS = Quantity("trained models", EVERY_KIND)
SINGLE_MODELS = Quantity(
    "models of single clients", frozenset({"local"}),
    refused="adds its noise to the leaf's mean, but {what} makes the leaf's model from single replies",
)  # fmt: skip
ARRAYS_BESIDE = Quantity(
    "arrays beside the model", refused="clips and noises the model alone, but {what} also sends {entry}"
)
CLIPPED = Quantity("whether updates were clipped", frozenset({"client-adaptive"}))
SCALES = Quantity("mean and std of raw windows")
WINDOWS = Quantity("numbers of windows")
CLASS_COUNTS = Quantity("numbers of windows of each class")
WEIGHTS = Quantity("weights that clients give themselves")
CHECKSUMS = Quantity("checksums of what clients keep")
MEMORIES = Quantity("memories, which leave clients on a Ray cluster alone: its server keeps their files")
LOSSES = Quantity("losses")
ACCURACIES = Quantity("scores")
SPREADS = Quantity("how far the models of a leaf's clients lie apart", frozenset({"local"}))
DESCRIPTIONS = Quantity("class-wise means and deviations of features")
WHO_FAILED = Quantity("who failed")
MACHINES = Quantity("what machines hold and took")
PLACES = Quantity("which client it is, and of which round it speaks", is_public=True)


class UnmarkedError(LookupError):
    """An entry leaving clients without a mark: a programming error in the sender."""


def quantity_of(entry: str, leaving: Leaving) -> Quantity:
    """The quantity of a reply's entry: "train-loss", "own/val/sums/confusion", …

    Raises:
        UnmarkedError: the entry has no mark.

    >>> quantity_of("own/val/sums/anything", {"sums/*": ACCURACIES}).words
    'scores'
    """
    folder, _, last = entry.rpartition("/")
    for name in (entry, last, f"{folder.rpartition('/')[2]}/*"):
        if name in leaving:
            return leaving[name]
    raise UnmarkedError(f"{entry} leaves clients without a mark: noised, public or plain")


def marked_values(values: Mapping[str, _Value], leaving: Leaving) -> dict[str, _Value]:
    """Values of a reply by name, each of which has a mark.

    Raises:
        UnmarkedError: one has none.
    """
    for name in values:
        quantity_of(name, leaving)
    return dict(values)
