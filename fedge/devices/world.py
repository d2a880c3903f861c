"""World of a run on the virtual clock, and listeners to its events."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedge.config.config import Config
from fedge.devices.clients.evaluation import ClockEvaluation
from fedge.devices.clients.lookahead import LookAhead
from fedge.devices.clients.probing import Probing
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
        job: as started.
        outcome: "updates", or the reason of the loss.
        staleness: of the arrival; None without any.
    """

    job: Job
    outcome: str
    staleness: int | None


@dataclass(frozen=True)
class Listeners:
    """Listeners to events.

    Attributes:
        on_evaluation: the rows of an evaluation; answers whether the run is to end there.
        on_job: an ended job of a traced device.
    """

    on_evaluation: Callable[[RoundResult, VersionRow, dict[str, float]], bool]
    on_job: Callable[[JobRow], None]


@dataclass(frozen=True)
class World:
    """World of the procedure: present devices, their speed, and the network to them.

    Attributes:
        config: of the run.
        seed: in force.
        who: devices of the run.
        fleet: a row per client; those of unseen clients are not used.
        presence: when devices are there.
        ahead: lets devices train.
        evaluating: lets clients evaluate.
        traced: devices with listed jobs.
        clock: real time, charged throughout.
        hooks: receive events.
        selection: picks devices for work.
        selection_arguments: of it, by keyword.
        duration: of the user's, how long jobs train; None: as the fleet says.
        give_back: tells the system that models in files are unused for now.
        probing: lets devices make updates of the run's first model; None where nobody trains.
    """

    config: Config
    seed: int
    who: Population
    fleet: Fleet
    presence: Presence
    ahead: LookAhead
    evaluating: ClockEvaluation
    traced: frozenset[int]
    clock: LapClock
    hooks: Listeners
    selection: Selection = uniform
    selection_arguments: Mapping[str, Any] = field(default_factory=dict)
    duration: Duration | None = None
    give_back: Callable[[], None] = lambda: None
    probing: Probing | None = None
