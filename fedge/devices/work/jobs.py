"""A job: one device trains one model once. Everything about a job except its result is known at its start."""

from dataclasses import astuple, dataclass, replace
from typing import Any, Literal

from fedge.devices.servers.vectors import Version
from fedge.states.memory import Kept

Fate = Literal["trains", "dropped", "away", "late", "failed"]
_FACTS, _STEPS = 11, 2  # of a full job; of steps, if others follow or it is cut short


@dataclass(frozen=True)
class Job:
    """One job.

    Attributes:
        number: counted through the run, 1, 2, …
        device: partition id.
        server: number of its leaf.
        attempt: number of the device's job, 1, 2, …; selects its random streams.
        period: evaluations before its start, plus 1: the global round of its step size.
        staleness_from: its server's number of versions at the start.
        began_us, end_us: virtual time.
        there_us, trained_us: virtual time of its model's arrival, and of the end of training, unless lost
            before.
        fate: "trains" and arrives; "dropped" out, went "away", or is stopped as "late": for its round, or
            beyond `asynchrony.timeout-s`; or has "failed" in the replayed run. Only the first one is trained
            for real.
        start: its starting model.
        steps: taken before sending its model, for a shortened job; 0: all.
        of_steps: all steps of such a job; 0 for a full one.
        kept: version of its device's memory to go on from; None without one.
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
    kept: Kept | None = None

    @property
    def share(self) -> float:
        """Share of its steps taken by its device, 0..1."""
        return self.steps / self.of_steps if self.steps else 1.0

    @property
    def busy_us(self) -> int:
        """Virtual time of its device at work."""
        return self.end_us - self.began_us

    @property
    def train_us(self) -> int:
        """Virtual time in which its device has trained, of `busy_us`."""
        return max(0, min(self.end_us, self.trained_us) - self.there_us)

    def ended(self, now_us: int) -> "Job":
        """The job, ended now with its reply."""
        return self if self.end_us == now_us else replace(self, end_us=now_us, trained_us=now_us)

    def stopped(self, end_us: int) -> "Job":
        """The job, stopped by its server before its end."""
        return replace(self, end_us=min(self.end_us, end_us), fate="late")

    def facts(self) -> list[Any]:
        """All but the model as JSON, for `restored`."""
        *whole, _, steps, of_steps, kept = astuple(replace(self, start=None))  # type: ignore[arg-type]
        return [*whole, *((steps, of_steps) if steps or kept else ()), *(kept or ())]


def restored(facts: list[Any], start: Version) -> Job:
    """The job of `facts`."""
    whole, cut, kept = facts[:_FACTS], facts[_FACTS : _FACTS + _STEPS], facts[_FACTS + _STEPS :]
    found = Job(*whole, start, *cut)  # type: ignore[call-arg]
    return replace(found, kept=Kept(*kept)) if kept else found
