"""Routes of jobs over the shared link of their leaf, and rounds that end on enough results."""

from dataclasses import astuple, dataclass
from typing import Any

from fedge.devices.work.jobs import Fate

COMING, RECEIVING, TRAINING, SENDING, BACK = range(5)
NOT_YET_US = 2**61  # when something happens of which nobody knows


@dataclass
class Route:
    """One job's way over shared links.

    Attributes:
        down_us, train_us, up_us: before its model comes, of training, before its result goes.
        back_us: of sending the result if nobody else were sending.
        cut_us: virtual time of its loss unless returned; None: never.
        lost_as: its outcome then.
        leg: its position.
    """

    down_us: int
    train_us: int
    up_us: int
    back_us: int
    cut_us: int | None = None
    lost_as: Fate = "late"
    leg: int = COMING

    def facts(self) -> list[Any]:
        """The route as JSON, for `Route(*facts)`."""
        return list(astuple(self))


@dataclass
class OpenRound:
    """A round with its end on enough results.

    Attributes:
        number: of its last job, an identifier among rounds.
        goal: awaited results.
        at_work: unfinished jobs.
        back: present results.
        is_ending: its end is noted.
    """

    number: int
    goal: int
    at_work: int
    back: int = 0
    is_ending: bool = False

    def facts(self) -> list[Any]:
        """The round as JSON, for `OpenRound(*facts)`."""
        return list(astuple(self))
