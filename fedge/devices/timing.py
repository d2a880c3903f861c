"""A run on the virtual clock without training: only jobs, arrivals and staleness.

Rules get constant models of one number, so neither training nor averaging costs time; bytes are those of the
real model. Parts that depend on models (losses in Oort's selection, groups) see equal clients.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from fedge.config.clock_tiers import clock_of_tiers, has_servers_above_leaves
from fedge.config.config import Config
from fedge.config.registers.option import ConfigError, shown
from fedge.config.registers.parts import CLOUD_RULES, SELECTIONS, SERVER_RULES
from fedge.config.registers.traits import TELLS_CLASSES
from fedge.config.topology import clients_per_leaf, refuse_more_places_than_devices
from fedge.devices.clients.evaluation import ClockEvaluation
from fedge.devices.clients.lookahead import LookAhead
from fedge.devices.clients.results import Population
from fedge.devices.population.availability import presence_of
from fedge.devices.population.duration import duration_of
from fedge.devices.population.fleet import fleet_of
from fedge.devices.predictions import refuse_absent_devices, refuse_impossible_times, refuse_unknown_power
from fedge.devices.procedure import Procedure
from fedge.devices.servers.private_buffer import private_sum
from fedge.devices.servers.server import DeviceServer
from fedge.devices.servers.vectors import Version, version_of
from fedge.devices.tiers.groups import ClockGroups
from fedge.devices.tiers.parent import cloud_arguments
from fedge.devices.tiers.servers_above import ServerPlace, servers_above
from fedge.devices.trial_calls import refuse_partial_work
from fedge.devices.work.jobs import Job
from fedge.devices.world import Listeners, World
from fedge.exchange.train import TrainReply
from fedge.rounds.measurements.moment import VersionRow
from fedge.rounds.measurements.results import RoundResult
from fedge.timing.laps import LapClock
from fedge.training.schedule import local_steps

_LOSS = 1.0  # of all jobs


@dataclass(frozen=True)
class TimedFleet:
    """Fleet to time.

    Attributes:
        devices: number of devices.
        windows: training windows of each device.
        model_bytes: size of the model sent, in bytes.
    """

    devices: int
    windows: int = 40
    model_bytes: int = 100_000


@dataclass(frozen=True, eq=False)
class _PlaceholderVersion(Version):
    """A model of one number, counted as many bytes."""

    claimed: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the model for which this one stands."""
        return self.claimed


class _IdentityTrainer:
    """Trainer that gives back a job's starting model at once."""

    def __init__(self, model_bytes: int) -> None:
        """Results count as this many bytes."""
        self._bytes = model_bytes

    def begin(self, job: Job) -> None:
        """Do nothing."""

    def forget(self, job: Job) -> None:
        """Do nothing."""

    def __contains__(self, job: object) -> bool:
        return True

    def result(self, job: Job) -> TrainReply:
        """The starting model as the result."""
        return TrainReply(job.start.state, 1, 1, _LOSS, 0.0, self._bytes)


class _NoEvaluation:
    """Evaluation asking no client."""

    def evaluate(self, *_: object) -> tuple[Mapping[int, Any], Mapping[int, Any]]:
        """No evaluations, and no failures."""
        return {}, {}

    validate = evaluate


def build_timed_run(
    config: Config, seed: int, crowd: TimedFleet, on_row: Callable[[VersionRow], None]
) -> Procedure:
    """A run on the virtual clock without training, before its first event.

    Args:
        config: configuration; its sections on devices, asynchrony, hierarchy and local epochs are read.
        seed: root of all random streams.
        crowd: number of devices, windows and bytes.
        on_row: called with each evaluation.

    Raises:
        ConfigError: a leaf has fewer devices than places, or a rule needs real models.
    """
    train = replace(config.train, local_steps=local_steps(config.train, [crowd.windows]))
    config = replace(config, train=train)
    count, devices, asynchrony = crowd.devices, config.devices, config.asynchrony
    _refuse_rules_that_need_models(config)
    refuse_partial_work(devices, asynchrony.rule)
    _refuse_real_time(config)
    sizes = clients_per_leaf(config.hierarchy, count)
    refuse_more_places_than_devices(asynchrony.concurrency, sizes)
    population = _population(sizes, crowd.windows)
    fleet = fleet_of(devices, np.arange(count), seed)
    refuse_impossible_times(fleet, population, config, crowd.model_bytes)
    refuse_unknown_power(fleet, config)
    presence = presence_of(devices, count, seed)
    refuse_absent_devices(population, config, presence)

    def on_evaluation(_: RoundResult, row: VersionRow, __: dict[str, float]) -> bool:
        on_row(row)
        return False

    world = World(
        config, seed, population, fleet, presence,
        cast(LookAhead, _IdentityTrainer(crowd.model_bytes)), cast(ClockEvaluation, _NoEvaluation()),
        frozenset(), LapClock(), Listeners(on_evaluation, lambda _: None),
        SELECTIONS.load(devices.selection), devices.arguments("selection"),
        duration_of(devices.duration, devices.arguments("duration")),
    )  # fmt: skip
    start = _start_version(crowd.model_bytes)
    rule, arguments = SERVER_RULES.load(asynchrony.rule), asynchrony.arguments("rule")
    servers = [
        DeviceServer(start, rule, arguments, size, None, private_sum(config.privacy, seed, leaf, count))
        for leaf, size in enumerate(sizes)
    ]
    groups = ClockGroups(config, (), seed) if has_servers_above_leaves(config.hierarchy) else None
    labels = None if groups is None else groups.labels.tolist()
    above = servers_above(
        config, servers, [float(size) for size in sizes], lambda place: _server_at(place, start), labels
    )
    return Procedure(world, servers, above, groups)


def _refuse_rules_that_need_models(config: Config) -> None:
    """Raise ConfigError for a server's rule, on any tier, needing trained models."""
    above_rules = [(CLOUD_RULES, options.cloud_rule) for options in clock_of_tiers(config)]
    for register, name in ((SERVER_RULES, config.asynchrony.rule), *above_rules):
        if register.has(name, TELLS_CLASSES):
            raise ConfigError(
                f"{register.option} {name} generates windows from trained models, which are missing here; "
                f'time the same buffer with {register.option}="fedbuff"'
            )


def _refuse_real_time(config: Config) -> None:
    """Raise ConfigError unless times are simulated."""
    asynchrony = config.asynchrony
    if asynchrony.is_real or asynchrony.replay:
        raise ConfigError(
            "fedge clock needs the virtual clock, whose times are simulated, but asynchrony.clock is "
            f"{asynchrony.clock} and asynchrony.replay is {shown(asynchrony.replay)}; leave them out"
        )


def _population(sizes: Sequence[int], windows: int) -> Population:
    """Devices 0, 1, … under leaves of the given sizes, all with equally many windows."""
    ids = range(sum(sizes))
    leaf_of = np.repeat(np.arange(len(sizes)), sizes).tolist()
    return Population(
        dict(zip(ids, leaf_of, strict=True)), dict.fromkeys(ids, windows), frozenset(), len(sizes)
    )


def _server_at(place: ServerPlace, start: Version) -> DeviceServer:
    """A server with servers below it."""
    rule = CLOUD_RULES.load(place.options.cloud_rule)
    arguments = cloud_arguments(rule, place.options.arguments("cloud_rule"))
    return DeviceServer(start, rule, arguments, len(place.leaves))


def _start_version(model_bytes: int) -> Version:
    """A model of one number, counted as `model_bytes` bytes."""
    base = version_of({"w": np.zeros(1, np.float32)})
    return _PlaceholderVersion(base.layout, base.vector, base.counters, model_bytes)
