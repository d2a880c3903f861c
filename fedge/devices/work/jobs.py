"""A job: one device trains one model once. All of it except its result is known at its start."""

from dataclasses import astuple, dataclass, replace
from typing import Any, Literal

from fedge.devices.servers.vectors import Version
from fedge.states.memory import KeptVersion

Fate = Literal["trains", "dropped", "away", "late", "failed"]
_FACTS, _STEPS = 11, 2  # entries of a full job; and of steps, present for a shortened job or if others follow


@dataclass(frozen=True)
class Job:
    """One job.

    Attributes:
        number: number in the run, 1, 2, …
        device: partition id.
        server: number of its leaf.
        attempt: number of the device's job, 1, 2, …; selects its random streams.
        period: evaluations before its start, plus 1: the global round for its step size.
        staleness_from: number of versions of its server at the start.
        began_us, end_us: start and end in virtual time.
        there_us, trained_us: virtual times at which its model has arrived, and is trained, unless lost
            before.
        fate: "trains" and arrives; "dropped" out; left ("away"); stopped as "late" for its round or after
            `asynchrony.timeout-s`; or "failed" in the replayed run. Only those with "trains" are
            trained for real.
        start: starting model.
        steps: steps before it sends its model, if shortened; 0 for a full job.
        of_steps: all steps of a shortened job; 0 for a full one.
        kept: version of its device's memory to start from, or None.
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
    kept: KeptVersion | None = None

    @property
    def share(self) -> float:
        """Share of its steps taken by the device, 0..1."""
        return self.steps / self.of_steps if self.steps else 1.0

    @property
    def busy_us(self) -> int:
        """Virtual microseconds for which the job occupies its device."""
        return self.end_us - self.began_us

    @property
    def train_us(self) -> int:
        """Virtual microseconds of training, a part of `busy_us`."""
        return max(0, min(self.end_us, self.trained_us) - self.there_us)

    def ended(self, now_us: int) -> "Job":
        """The job, ended by a reply now."""
        return self if self.end_us == now_us else replace(self, end_us=now_us, trained_us=now_us)

    def stopped(self, end_us: int) -> "Job":
        """The job, stopped by its server before its end."""
        return replace(self, end_us=min(self.end_us, end_us), fate="late")

    def facts(self) -> list[Any]:
        """All but the model as JSON, to be restored by `restore_job`."""
        *values, _, steps, of_steps, kept = astuple(replace(self, start=None))  # type: ignore[arg-type]
        return [*values, *((steps, of_steps) if steps or kept else ()), *(kept or ())]


def restore_job(facts: list[Any], start: Version) -> Job:
    """The job restored from `facts`."""
    values, step_counts, kept = facts[:_FACTS], facts[_FACTS : _FACTS + _STEPS], facts[_FACTS + _STEPS :]
    job = Job(*values, start, *step_counts)  # type: ignore[call-arg]
    return replace(job, kept=KeptVersion(*kept)) if kept else job
