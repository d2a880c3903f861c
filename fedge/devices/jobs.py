"""A job: one device trains one model once. Everything about it but its result is known when it is begun."""

from dataclasses import astuple, dataclass, replace
from typing import Any, Literal

from fedge.devices.vectors import Version

Fate = Literal["trains", "dropped", "away", "late", "failed"]
_FACTS = 11  # of a job that is not cut short


@dataclass(frozen=True)
class Job:
    """One job.

    Attributes:
        number: counted through the run, 1, 2, …
        device: partition id.
        server: number of the leaf that gave it.
        attempt: the device's how-manieth job, 1, 2, …; its random streams stand at it.
        period: evaluations before it was begun, plus 1: the global round whose step size it takes.
        staleness_from: versions that its server had made when it was begun.
        began_us, end_us: virtual time.
        there_us, trained_us: virtual time at which its model has come, and has been trained, if it is not
            lost before.
        fate: "trains" and arrives; "dropped" out, went "away", or is told to stop because it is "late": for
            its round, or beyond `asynchrony.timeout-s`; or has "failed" in the run that is done again. Only
            the first one is trained for real.
        start: the model that it starts from.
        steps: that its device takes before it sends its model, of a job that is cut short; 0: all.
        of_steps: all steps of such a job; 0 of one that is not cut short.
    """

    number: int
    device: int
    server: int
    attempt: int
    period: int
    staleness_from: int
    began_us: int
    end_us: int
    there_us: int
    trained_us: int
    fate: Fate
    start: Version
    steps: int = 0
    of_steps: int = 0

    @property
    def share(self) -> float:
        """Share of its steps that its device takes, 0..1."""
        return self.steps / self.of_steps if self.steps else 1.0

    @property
    def busy_us(self) -> int:
        """Virtual time that its device is at work."""
        return self.end_us - self.began_us

    @property
    def train_us(self) -> int:
        """Virtual time in which its device has trained, of `busy_us`."""
        return max(0, min(self.end_us, self.trained_us) - self.there_us)

    def ended(self, now_us: int) -> "Job":
        """The job as one that has ended now, when its reply has come."""
        return self if self.end_us == now_us else replace(self, end_us=now_us, trained_us=now_us)

    def stopped(self, end_us: int) -> "Job":
        """The job as one that its server stops, at a time at which it would still be at work."""
        return replace(self, end_us=min(self.end_us, end_us), fate="late")

    def facts(self) -> list[Any]:
        """All but the model as JSON, for `restored`."""
        *whole, _, steps, of_steps = astuple(replace(self, start=None))  # type: ignore[arg-type]
        return [*whole, steps, of_steps] if steps else whole


def restored(facts: list[Any], start: Version) -> Job:
    """The job that `facts` were of."""
    whole, cut = facts[:_FACTS], facts[_FACTS:]
    return Job(*whole, start, *cut)  # type: ignore[call-arg]
