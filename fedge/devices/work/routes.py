"""Routes of jobs over their leaf's shared link, and rounds that end when enough results are back."""

from dataclasses import astuple, dataclass
from typing import Any

from fedge.devices.work.jobs import Fate

COMING, RECEIVING, TRAINING, SENDING, BACK = range(5)
NOT_YET_US = 2**61  # time of an event not known yet


@dataclass
class Route:
    """A job's route over shared links.

    Attributes:
        down_us, train_us, up_us: before its model is sent, of training, before its result is sent.
        back_us: of sending the result if alone on the link.
        cut_us: virtual time at which it is lost unless it has returned; None for never.
        lost_as: its outcome in this case.
        leg: current part of the route.
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
    """A round that ends when enough results are back.

    Attributes:
        number: number of its last job, which identifies the round.
        goal: number of results to wait for.
        at_work: number of unfinished jobs.
        back: number of results so far.
        is_ending: whether its end is scheduled.
    """

    number: int
    goal: int
    at_work: int
    back: int = 0
    is_ending: bool = False

    def facts(self) -> list[Any]:
        """The round as JSON, for `OpenRound(*facts)`."""
        return list(astuple(self))
