"""Preparation of a run: configuration, seed, the run to go on with, the data as dealt.

Loads no torch: most errors of users are found here, and reported at once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fedge.config.config import Config
from fedge.config.flat import from_run_config
from fedge.config.topology import clients_per_leaf, known_per_leaf, refuse_more_places_than_devices
from fedge.data.devices import deal_devices
from fedge.data.partition import Partition, partition
from fedge.data.prepared import DataSource, load_source, shape_of
from fedge.leaf.quorum import refuse_missing_quorum
from fedge.run.algorithms import form_of_algorithm
from fedge.run.common_test import refuse_other_common_test
from fedge.run.parts import refuse_last_batch_of_one, refuse_model_that_does_not_fit, refuse_rule_that_fails
from fedge.run.population import clients_for, refuse_other_number
from fedge.run.resume import Resumption, refuse_other_data
from fedge.run.targets import refuse_other_targets
from fedge.seeding import resolve_seed
from hhar.windows.window_file import Windows

if TYPE_CHECKING:
    from fedge.exchange.algorithm import ReplyForm

_T = TypeVar("_T")
Load = Callable[[Config, int], tuple[Windows, DataSource]]


class Handover(Generic[_T]):
    """Something large that is given away: only its taker keeps it in memory."""

    def __init__(self, value: _T) -> None:
        self._values = [value]

    def take(self) -> _T:
        """The value, once."""
        return self._values.pop()


@dataclass(frozen=True)
class Deal:
    """The windows of a run, and their deal to clients.

    Attributes:
        windows: all of them.
        source: where they come from.
        partition: per client its windows.
        clients_per_leaf: number of clients of each leaf.
        form: of the algorithm's messages; None where the options say all.
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
        config: of the run, checked.
        seed: in force.
        seed_source: where it was given.
        resumption: the run to go on with, as it was found; None for a new run, or if nobody has looked.
        deal: the data; None where the number of clients is not known yet.
        num_clients: of the run; 0 where it is not known yet.
    """

    config: Config
    seed: int
    seed_source: str
    resumption: Handover[Resumption] | None = None
    deal: Handover[Deal] | None = None
    num_clients: int = 0


def prepare(run_config: Mapping[str, Any]) -> Prepared:
    """Everything that follows from Flower's flat mapping and the environment alone.

    Raises:
        ConfigError: an option cannot be, or SEED.
    """
    config = from_run_config(run_config)
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
        config: of the run.
        seed: in force.
        num_clients: as many as the federation has.
        resumption: the run that goes on, whose data these must be.
        load: gives the windows; for many runs on the same ones.
        follow_users: nobody has chosen `num_clients`: there may be one per user instead.

    Raises:
        ConfigError: clients, data and configuration do not fit.
    """
    cut = in_pieces(config)
    loaded = load(config, num_clients) if follow_users and not cut else None
    if loaded is not None:
        num_clients = _clients_of(config, loaded, num_clients)
    refuse_other_number(config, num_clients)
    sizes = clients_per_leaf(config.hierarchy, num_clients)
    known = known_per_leaf(sizes, config.partition.unseen_clients)
    refuse_missing_quorum(config, known)
    if config.hierarchy.moves:
        from fedge.rounds.mobility import refuse_moves_that_cannot_be  # and Flower, which few runs need here

        refuse_moves_that_cannot_be(config, sizes, seed)
    if config.asynchrony.is_on:
        refuse_more_places_than_devices(config.asynchrony.concurrency, known)
    windows, source = loaded or load(config, 1 if cut else num_clients)
    if resumption is not None:
        refuse_other_data(resumption, source.fingerprint, sizes)
    shape = shape_of(windows)
    deal = deal_devices if cut else partition
    refuse_other_targets(config, windows, lambda: deal(windows, config, sizes, seed))
    refuse_other_common_test(config, shape)
    refuse_model_that_does_not_fit(config, shape, windows)
    dealt = deal(windows, config, sizes, seed)
    trained = {c: len(part[0]) for c, part in enumerate(dealt.clients) if c not in dealt.unseen_clients}
    refuse_last_batch_of_one(config, shape, trained)
    refuse_rule_that_fails(config, shape, known)
    return Deal(windows, source, dealt, sizes, form_of_algorithm(config, shape, windows))


def clients_of_data(config: Config, there: int, load: Load = load_source) -> int:
    """How many clients a run has for which nobody has said it; `there` where the data do not say.

    Raises:
        ConfigError: the data cannot be loaded.
    """
    return there if in_pieces(config) else _clients_of(config, load(config, there), there)


def in_pieces(config: Config) -> bool:
    """Whether users are cut into devices, so that there are fewer people than clients."""
    return config.asynchrony.is_on and config.devices.pieces > 0


def _clients_of(config: Config, loaded: tuple[Windows, DataSource], there: int) -> int:
    """How many clients follow from the data; of the synthetic set, as many as there are anyway."""
    windows, source = loaded
    if source.synthetic and not config.data.synthetic_users:
        return there
    return clients_for(config, windows, there)
