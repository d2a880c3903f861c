"""Setting of a run on the virtual clock, and callbacks for its events."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedge.config.config import Config
from fedge.devices.clients.evaluation import ClockEvaluation
from fedge.devices.clients.lookahead import LookAhead
from fedge.devices.clients.probing import DeviceProbe
from fedge.devices.clients.results import Population
from fedge.devices.population.availability import Presence
from fedge.devices.population.duration import Duration
from fedge.devices.population.fleet import Fleet
from fedge.devices.population.selection import Selection, uniform
from fedge.devices.work.jobs import Job
from fedge.rounds.measurements.moment import VersionRow
from fedge.rounds.measurements.results import RoundResult
from fedge.timing.laps import LapClock


@dataclass(frozen=True)
class JobRow:
    """One job of a traced device; a row of devices/jobs.csv.

    Attributes:
        job: the job as started.
        outcome: "updates", or the reason for its loss.
        staleness: staleness of the arrival; None if it did not arrive.
    """

    job: Job
    outcome: str
    staleness: int | None


@dataclass(frozen=True)
class Listeners:
    """Callbacks for events.

    Attributes:
        on_evaluation: called with the rows of an evaluation; returns whether the run should end there.
        on_job: called with each ended job of a traced device.
    """

    on_evaluation: Callable[[RoundResult, VersionRow, dict[str, float]], bool]
    on_job: Callable[[JobRow], None]


@dataclass(frozen=True)
class World:
    """Setting of the procedure: devices, their speeds and presence, and access to the real clients.

    Attributes:
        config: configuration of the run.
        seed: seed in effect.
        population: clients and leaves of the run.
        fleet: a row per client; rows of unseen clients are not used.
        presence: presence of devices over time.
        look_ahead: trains jobs on real clients.
        evaluation: evaluates on real clients.
        traced: devices whose jobs are listed.
        clock: laps of real time.
        hooks: callbacks.
        selection: function to pick devices for jobs.
        selection_arguments: its keyword arguments.
        duration: the user's function for training times; None for those of the fleet.
        give_back: lets the system drop the pages of models in files for now.
        probe: compares devices' updates of the run's first model; None without training.
    """

    config: Config
    seed: int
    population: Population
    fleet: Fleet
    presence: Presence
    look_ahead: LookAhead
    evaluation: ClockEvaluation
    traced: frozenset[int]
    clock: LapClock
    hooks: Listeners
    selection: Selection = uniform
    selection_arguments: Mapping[str, Any] = field(default_factory=dict)
    duration: Duration | None = None
    give_back: Callable[[], None] = lambda: None
    probe: DeviceProbe | None = None
