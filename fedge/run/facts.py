"""Facts of a run's data: from windows dealt here, or from their owners' descriptions.

Where clients own their data the server never sees a window. It learns counts, names and sums, and makes of
them the same facts as of windows: weights of clients, the common scale, sizes of models.
"""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedge.config.config import Config
from fedge.config.option import ConfigError, shown
from fedge.config.topology import clients_per_leaf, known_per_leaf, unseen_ids
from fedge.data.composition import Holding, class_counts, holdings
from fedge.data.order import TimeOrder, time_order
from fedge.data.outliers import left_out
from fedge.data.own import WindowsReport
from fedge.data.partition import Partition
from fedge.data.prepared import DataShape, DataSource
from fedge.data.scaling import ChannelSums, Scale, scale_of
from fedge.data.scenario import make_scenario
from fedge.leaf.quorum import refuse_missing_quorum
from fedge.run.parts import refuse_last_batch_of_one, refuse_model_that_does_not_fit, refuse_rule_that_fails
from fedge.run.population import misfit, refuse_other_number
from fedge.run.prepare import Deal
from fedge.run.resume import Resumption, refuse_other_data

_SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class DataFacts:
    """Facts of a run's data for terminal and manifest.

    Attributes:
        source: where they come from.
        windows: how many there are.
        classes, channels: their names.
        dtype: of the windows as they were recorded.
        about: the data's description of themselves.
        order: whether blocks of time are such; None where nobody asks or the server cannot tell.
        partition: number of windows by client and split.
        clients_per_leaf: in order.
        holdings: of every client, for partition.csv.
        misfit: remark where clients are not users; None otherwise.
        left_out: clients that tell of windows out of all proportion → why; the others' statistics scale all.
    """

    source: DataSource
    windows: int
    classes: Sequence[str]
    channels: Sequence[str]
    dtype: str
    about: Mapping[str, str]
    order: TimeOrder | None
    partition: Partition
    clients_per_leaf: list[int]
    holdings: Sequence[Holding]
    misfit: str | None
    left_out: Mapping[int, str] = field(default_factory=dict)

    @property
    def taught(self) -> np.ndarray:
        """(clients, C) training windows of each class; without columns where windows have no classes."""
        return class_counts(self.holdings, self.classes, len(self.partition.clients))


def facts_of_deal(config: Config, deal: Deal) -> DataFacts:
    """Facts of windows that have been dealt here."""
    windows, dealt, sizes = deal.windows, deal.partition, deal.clients_per_leaf
    return DataFacts(
        deal.source, len(windows.y), windows.classes, windows.channels, windows.x.dtype.name, windows.about,
        time_order(windows) if dealt.split_kind == "blocks" else None, dealt, sizes,
        list(holdings(windows, dealt, sizes)), misfit(config, windows, sum(sizes)),
    )  # fmt: skip


@dataclass(frozen=True)
class OwnersData:
    """The data of a run whose clients own them.

    Attributes:
        facts: of them.
        shape: of a window as clients have it, and how it is scaled.
        scale: of all clients.
    """

    facts: DataFacts
    shape: DataShape
    scale: Scale


def data_of_owners(
    config: Config, seed: int, told: Mapping[int, WindowsReport], resumption: Resumption | None, clients: int
) -> OwnersData:
    """Facts of a run from its clients' descriptions of their windows.

    Args:
        config: of the run.
        seed: in force.
        told: partition id → description by the client, of all clients that the run begins with.
        resumption: the run that goes on, whose data these must be.
        clients: how many the run has.

    Raises:
        ConfigError: clients, data and configuration do not fit.
    """
    refuse_other_number(config, clients)
    if config.hierarchy.associates:
        raise ConfigError(
            f"hierarchy.association {config.hierarchy.association} needs windows that the server deals, but "
            f'clients own theirs; set hierarchy.association="none"'
        )
    sizes = clients_per_leaf(config.hierarchy, clients)
    refuse_missing_quorum(config, known_per_leaf(sizes, config.partition.unseen_clients))
    first = _alike(told)
    source = _source(told)
    if resumption is not None:
        refuse_other_data(resumption, source.fingerprint, sizes)
    unseen = unseen_ids(sizes, config.partition.unseen_clients)
    _refuse_without_windows(told)
    _refuse_leaf_without_clients(told, sizes, unseen)
    known = [client for client in told if client not in unseen]
    scale, odd = _pooled({client: told[client].sums for client in known}, first.channels, config)
    shape = _shape(first, scale)
    refuse_model_that_does_not_fit(config, shape)
    refuse_last_batch_of_one(config, shape, {client: told[client].windows("train") for client in known})
    refuse_rule_that_fails(config, shape, known_per_leaf(sizes, config.partition.unseen_clients))
    planted = make_scenario(config, first.channels, len(first.classes), sizes, seed)
    dealt = Partition(_counted(told, clients), first.split_kind, frozenset(unseen), planted)
    total = sum(one.windows(split) for one in told.values() for split in _SPLITS)
    facts = DataFacts(
        source, total, first.classes, first.channels, first.dtype, first.about, None, dealt, sizes,
        list(_holdings(told, dealt, sizes)), None, odd,
    )  # fmt: skip
    return OwnersData(facts, shape, scale)


def part_of_owners(
    config: Config, seed: int, clients: int, told: Mapping[int, WindowsReport], scale: Scale
) -> tuple[Partition, DataShape]:
    """Facts of a leaf server from its own clients' descriptions; of others it knows nothing.

    Args:
        config: of the run.
        seed: in force.
        clients: of the run.
        told: partition id → description by the client, of this leaf's.
        scale: of all clients of the run.
    """
    first, sizes = told[min(told)], clients_per_leaf(config.hierarchy, clients)
    planted = make_scenario(config, first.channels, len(first.classes), sizes, seed)
    unseen = frozenset(unseen_ids(sizes, config.partition.unseen_clients))
    dealt = Partition(_counted(told, clients), first.split_kind, unseen, planted)
    return dealt, _shape(first, scale)


def _shape(first: WindowsReport, scale: Scale) -> DataShape:
    """The sizes of the data, as the first client tells them of its own."""
    return DataShape(
        first.input_shape, len(first.classes), scale.mean, scale.std, first.y_shape, first.y_dtype,
        first.dtype == "int64",
    )  # fmt: skip


def _alike(told: Mapping[int, WindowsReport]) -> WindowsReport:
    """The first client's, or raise ConfigError where another's windows are of another kind."""
    at = min(told)
    first = told[at]
    for client, one in told.items():
        for name in ("classes", "channels", "input_shape", "dtype", "split_kind", "y_shape", "y_dtype"):
            if getattr(one, name) != getattr(first, name):
                raise ConfigError(
                    f"windows of all clients must have the same {name.replace('_', ' ')}, but partition "
                    f"{client} has {shown(getattr(one, name))} and partition {at} has "
                    f"{shown(getattr(first, name))}; prepare them alike"
                )
    return first


def _pooled(
    sums: Mapping[int, ChannelSums], channels: Sequence[str], config: Config
) -> tuple[Scale, dict[int, str]]:
    """Scale of all clients, and the clients left out of it, each with the reason.

    Raises:
        ConfigError: half of the clients or more would be left out.
    """
    if not config.data.normalize or not channels:  # tokens have no scale
        return Scale(), {}
    odd = left_out(sums, tuple(channels))
    if 2 * len(odd) >= len(sums):
        client, why = next(iter(odd.items()))
        raise ConfigError(
            f"data.normalize takes windows in units that most clients share, but of {len(odd)} of "
            f"{len(sums)} they are out of proportion: partition {client}: {why}; prepare them alike, or "
            f"-c data.normalize=false"
        )
    return scale_of([told for client, told in sums.items() if client not in odd]), odd


def _source(told: Mapping[int, WindowsReport]) -> DataSource:
    """Where the data come from; the fingerprint is that of all clients' in order."""
    names = sorted({one.source for one in told.values()})
    some = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
    digest = hashlib.sha256("\n".join(one.fingerprint for one in told.values()).encode()).hexdigest()
    synthetic = any(one.synthetic for one in told.values())
    return DataSource(f"{len(told)} owners ({some})", digest, synthetic)


def _refuse_without_windows(told: Mapping[int, WindowsReport]) -> None:
    """Raise ConfigError for the first client that lacks windows of a split."""
    for client, one in told.items():
        for split in _SPLITS:
            if one.windows(split) == 0:
                raise ConfigError(
                    f"every client must have windows of every split, but partition {client} has no {split} "
                    f"windows; give it more of them"
                )


def _refuse_leaf_without_clients(
    told: Mapping[int, WindowsReport], sizes: Sequence[int], unseen: Collection[int]
) -> None:
    """Raise ConfigError for the first leaf of whose clients none is there that trains."""
    for leaf in range(len(sizes)):
        members = range(sum(sizes[:leaf]), sum(sizes[: leaf + 1]))
        if not any(client in told and client not in unseen for client in members):
            raise ConfigError(
                f"guard.start-clients lets a run begin without clients, but leaf {leaf} has none left that "
                f"trains (partition {members.start} to {members.stop - 1}); start one of them"
            )


def _counted(
    told: Mapping[int, WindowsReport], clients: int
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Per client, per split as many numbers as it has windows: that of the first of them."""
    at, found = 0, []
    for client in range(clients):
        parts = []
        for split in _SPLITS:
            windows = told[client].windows(split) if client in told else 0
            parts.append(np.broadcast_to(np.int64(at), windows))  # as many as a client says, in no memory
            at += windows
        found.append((parts[0], parts[1], parts[2]))
    return found


def _holdings(told: Mapping[int, WindowsReport], dealt: Partition, sizes: Sequence[int]) -> Iterator[Holding]:
    """Windows of every client; users and devices stay with the owner."""
    leaf_of = np.repeat(np.arange(len(sizes)), sizes).tolist()
    for client, one in told.items():
        leaf = leaf_of[client]
        group = dealt.scenario.groups[leaf] if dealt.scenario else None
        for split in _SPLITS:
            for label, count in zip(one.labels, one.counts[split], strict=True):
                if count:
                    unseen = int(client in dealt.unseen_clients)
                    yield Holding(client, leaf, split, "", "", label, count, unseen, group)
