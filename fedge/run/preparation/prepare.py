"""Preparation of a run: configuration, seed, the run to resume, and the partition of the data.

Loads no torch: most user errors are found here and reported at once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fedge.config.config import Config
from fedge.config.flat import from_run_config
from fedge.config.topology import clients_per_leaf, known_per_leaf, refuse_more_places_than_devices
from fedge.data.devices import deal_devices
from fedge.data.partition import Partition, partition
from fedge.data.prepared import DataShape, DataSource, load_source, shape_of
from fedge.leaf.strategies.quorum import refuse_missing_quorum
from fedge.run.preparation.algorithms import form_of_algorithm
from fedge.run.preparation.common_test import refuse_other_common_test
from fedge.run.preparation.latest_run import with_latest_run
from fedge.run.preparation.parts import (
    refuse_last_batch_of_one,
    refuse_model_that_does_not_fit,
    refuse_rule_that_fails,
)
from fedge.run.preparation.population import clients_for, refuse_other_number
from fedge.run.preparation.resume import Resumption, refuse_other_data
from fedge.run.preparation.targets import refuse_other_targets
from fedge.seeding import resolve_seed
from hhar.windows.window_file import Windows

if TYPE_CHECKING:
    from fedge.exchange.algorithm import ReplyForm

_T = TypeVar("_T")
Load = Callable[[Config, int], tuple[Windows, DataSource]]


class Handover(Generic[_T]):
    """A large value handed over once, then kept in memory by its taker only."""

    def __init__(self, value: _T) -> None:
        self._values = [value]

    def take(self) -> _T:
        """The value; IndexError if it was taken before."""
        return self._values.pop()

    def peek(self) -> _T:
        """The value, without taking it; IndexError if it was taken before."""
        return self._values[-1]


@dataclass(frozen=True)
class Deal:
    """Windows of a run, dealt to clients.

    Attributes:
        windows: all windows.
        source: their origin.
        partition: windows of each client.
        clients_per_leaf: number of clients of each leaf.
        form: form of the algorithm's messages; None if the options determine it.
    """

    windows: Windows
    source: DataSource
    partition: Partition
    clients_per_leaf: list[int]
    form: "ReplyForm | None" = None


@dataclass(frozen=True)
class Prepared:
    """Prepared inputs of a run.

    Attributes:
        config: the run's configuration, checked.
        seed: the run's seed.
        seed_source: where the seed was given.
        resumption: the run to resume, as found; None for a new run, or if not looked up yet.
        deal: the data; None if the number of clients is not known yet.
        num_clients: number of clients; 0 if it is not known yet.
        shape: sizes of the data; None if they are not loaded.
        computed_on: devices of the run to resume → clients on each; empty for a new run.
        device: "name" of the device chosen for train.device auto, and "why"; empty if there was no choice.
    """

    config: Config
    seed: int
    seed_source: str
    resumption: Handover[Resumption] | None = None
    deal: Handover[Deal] | None = None
    num_clients: int = 0
    shape: DataShape | None = None
    computed_on: Mapping[str, int] = field(default_factory=dict)
    device: Mapping[str, str] = field(default_factory=dict)


def prepare_config(run_config: Mapping[str, Any]) -> Prepared:
    """Configuration and seed from Flower's flat mapping and the environment.

    Raises:
        ConfigError: an option or SEED is invalid.
    """
    config = with_latest_run(from_run_config(run_config))
    seed, seed_source = resolve_seed(config.seed)
    return Prepared(config, seed, seed_source)


def deal_data(
    config: Config,
    seed: int,
    num_clients: int,
    resumption: Resumption | None,
    load: Load = load_source,
    follow_users: bool = False,
) -> Deal:
    """Load the windows of a run and deal them to its clients.

    Args:
        config: the run's configuration.
        seed: the run's seed.
        num_clients: number of clients of the federation.
        resumption: the run to resume, which must have the same data; None for a new run.
        load: loader of windows, which may cache them for several runs.
        follow_users: whether `num_clients` is only a default, replaceable by one client per user.

    Raises:
        ConfigError: clients, data and configuration do not fit together.
    """
    cut = splits_users(config)
    loaded = load(config, num_clients) if follow_users and not cut else None
    if loaded is not None:
        num_clients = _implied_clients(config, loaded, num_clients)
    refuse_other_number(config, num_clients)
    sizes = clients_per_leaf(config.hierarchy, num_clients)
    known_clients = known_per_leaf(sizes, config.partition.unseen_clients)
    refuse_missing_quorum(config, known_clients)
    if config.hierarchy.moves:
        from fedge.rounds.mobility import refuse_impossible_moves  # slow import, rarely needed

        refuse_impossible_moves(config, sizes, seed)
    if config.asynchrony.is_on:
        refuse_more_places_than_devices(config.asynchrony.concurrency, known_clients)
    windows, source = loaded or load(config, 1 if cut else num_clients)
    if resumption is not None:
        refuse_other_data(resumption, source.fingerprint, sizes)
    shape = shape_of(windows)
    deal = deal_devices if cut else partition
    refuse_other_targets(config, windows, lambda: deal(windows, config, sizes, seed))
    refuse_other_common_test(config, shape, windows.classes, windows.channels)
    refuse_model_that_does_not_fit(config, shape, windows)
    dealt = deal(windows, config, sizes, seed)
    trained = {c: len(part[0]) for c, part in enumerate(dealt.clients) if c not in dealt.unseen_clients}
    refuse_last_batch_of_one(config, shape, trained, sizes)
    refuse_rule_that_fails(config, shape, known_clients)
    return Deal(windows, source, dealt, sizes, form_of_algorithm(config, shape, windows))


def clients_of_data(config: Config, default: int, load: Load = load_source) -> int:
    """Number of clients implied by the data if none was chosen; `default` if they imply none.

    Raises:
        ConfigError: the data cannot be loaded.
    """
    return default if splits_users(config) else _implied_clients(config, load(config, default), default)


def splits_users(config: Config) -> bool:
    """Whether users are split into devices, so there are fewer users than clients."""
    return config.asynchrony.is_on and config.devices.pieces > 0


def _implied_clients(config: Config, loaded: tuple[Windows, DataSource], default: int) -> int:
    """Number of clients implied by the data; `default` for the synthetic set, whose users adapt to it."""
    windows, source = loaded
    if source.synthetic and not config.data.synthetic_users:
        return default
    return clients_for(config, windows, default)
