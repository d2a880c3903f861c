"""Facts of a run's data, from the windows dealt here or from the owners' descriptions of theirs.

If clients own their data, the server never sees a window. It receives counts, names and sums, and derives the
same facts from them: client weights, the common scale, model sizes.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from fedge.config.config import Config
from fedge.config.registers.option import ConfigError, shown
from fedge.config.topology import clients_per_leaf, known_per_leaf, unseen_ids
from fedge.data.composition import Holding, class_counts, holdings
from fedge.data.order import TimeOrder, time_order
from fedge.data.outliers import KIND, SPLITS, outlying_clients
from fedge.data.own_windows import WindowsReport
from fedge.data.partition import Partition
from fedge.data.prepared import DataShape, DataSource
from fedge.data.scaling import ChannelSums, Scale, scale_of
from fedge.data.scenario import make_scenario
from fedge.leaf.strategies.quorum import refuse_missing_quorum
from fedge.records.private_file import place_name
from fedge.run.preparation.leaks import leak_remarks
from fedge.run.preparation.parts import (
    refuse_last_batch_of_one,
    refuse_model_that_does_not_fit,
    refuse_rule_that_fails,
)
from fedge.run.preparation.population import alike_remarks, refuse_other_number, user_count_remark
from fedge.run.preparation.prepare import Deal
from fedge.run.preparation.resume import Resumption, refuse_other_data
from fedge.run.preparation.shortfalls import split_remarks, untrained_class_remarks
from fedge.run.preparation.targets import target_remarks
from hhar.quantity import quantity


@dataclass(frozen=True)
class DataFacts:
    """Facts of a run's data for terminal and manifest.

    Attributes:
        source: origin of the data.
        windows: number of windows.
        classes, channels: names of the classes and of the channels.
        dtype: dtype of the windows as recorded.
        about: the data's own description.
        order: whether windows are in order of time; None if it does not matter or is unknown.
        partition: windows by client and split.
        clients_per_leaf: number of clients of each leaf, in order.
        holdings: rows of partition.csv.
        remarks: remarks on clients that are not users, names easily confused, and windows or classes without
            use.
        left_out: client → reason for leaving its statistics out of the common scale.
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
    remarks: Sequence[str]
    left_out: Mapping[int, str] = field(default_factory=dict)

    @property
    def taught(self) -> np.ndarray:
        """Training windows of each class, (clients, C); C is 0 if windows have no classes."""
        return class_counts(self.holdings, self.classes, len(self.partition.clients))

    def describe(self) -> dict[str, Any]:
        """The facts as JSON, for the manifest."""
        facts = asdict(self.source)
        if self.order is not None:
            facts["time_order"] = "kept" if self.order.is_kept else "lost"
        facts |= {
            "name": place_name(self.source.name), "windows": self.windows, "classes": list(self.classes),
            "channels": list(self.channels), "split": self.partition.split_kind,
        }  # fmt: skip
        if self.about:
            facts["about"] = dict(self.about)
        if self.left_out:
            facts["left_out"] = {str(client): reason for client, reason in self.left_out.items()}
        facts["clients"] = [
            dict(zip(SPLITS, map(len, parts), strict=True)) for parts in self.partition.clients
        ]
        return facts


def facts_of_deal(config: Config, deal: Deal) -> DataFacts:
    """Facts of windows dealt by this process."""
    windows, dealt, sizes = deal.windows, deal.partition, deal.clients_per_leaf
    remark = user_count_remark(config, windows, sum(sizes))
    held = list(holdings(windows, dealt, sizes))
    remarks = [
        *([remark] if remark else []), *alike_remarks(windows), *split_remarks(windows, dealt, config),
        *leak_remarks(windows, dealt, config), *untrained_class_remarks(held, windows.classes),
        *target_remarks(config, windows),
    ]  # fmt: skip
    return DataFacts(
        deal.source, len(windows.y), windows.classes, windows.channels, windows.x.dtype.name, windows.about,
        time_order(windows) if dealt.split_kind == "blocks" else None, dealt, sizes,
        held, remarks,
    )  # fmt: skip


@dataclass(frozen=True)
class OwnersData:
    """Data of a run whose clients own them.

    Attributes:
        facts: facts of the data.
        shape: sizes and scale of clients' windows.
        scale: common scale of all clients.
    """

    facts: DataFacts
    shape: DataShape
    scale: Scale


def data_of_owners(
    config: Config,
    seed: int,
    reports: Mapping[int, WindowsReport],
    resumption: Resumption | None,
    clients: int,
) -> OwnersData:
    """Facts of a run's data from the owners' descriptions.

    Args:
        config: the run's configuration.
        seed: the run's seed.
        reports: partition id → the client's description, for all clients with which the run begins.
        resumption: the run to resume, which must have the same data; None for a new run.
        clients: number of clients of the run.

    Raises:
        ConfigError: clients, data and configuration do not fit together.
    """
    refuse_other_number(config, clients)
    if config.hierarchy.associates:
        raise ConfigError(
            f"hierarchy.association {config.hierarchy.association} needs windows dealt by the server, but "
            f'clients own theirs; set hierarchy.association="none"'
        )
    sizes = clients_per_leaf(config.hierarchy, clients)
    refuse_missing_quorum(config, known_per_leaf(sizes, config.partition.unseen_clients))
    first = _common_report(reports)
    source = _joint_source(reports)
    if resumption is not None:
        refuse_other_data(resumption, source.fingerprint, sizes, of_owners=True)
    unseen = unseen_ids(sizes, config.partition.unseen_clients)
    _refuse_without_windows(reports)
    _refuse_leaf_without_clients(reports, sizes, unseen)
    known_clients = [client for client in reports if client not in unseen]
    scale, odd = _common_scale(
        {client: reports[client].sums for client in known_clients}, first.channels, config
    )
    shape = _shape(first, scale)
    refuse_model_that_does_not_fit(config, shape)
    refuse_last_batch_of_one(
        config, shape, {client: reports[client].windows("train") for client in known_clients}, sizes
    )
    refuse_rule_that_fails(config, shape, known_per_leaf(sizes, config.partition.unseen_clients))
    planted = make_scenario(config, first.channels, len(first.classes), sizes, seed)
    dealt = Partition(_placeholder_windows(reports, clients), first.split_kind, frozenset(unseen), planted)
    total = sum(report.windows(split) for report in reports.values() for split in SPLITS)
    held = list(_holdings(reports, dealt, sizes))
    facts = DataFacts(
        source, total, first.classes, first.channels, first.dtype, _common_description(reports), None, dealt,
        sizes, held, untrained_class_remarks(held, first.classes), odd,
    )  # fmt: skip
    return OwnersData(facts, shape, scale)


def part_of_owners(
    config: Config, seed: int, clients: int, reports: Mapping[int, WindowsReport], scale: Scale
) -> tuple[Partition, DataShape]:
    """Partition and sizes at a leaf server, from the descriptions of its own clients.

    Args:
        config: the run's configuration.
        seed: the run's seed.
        clients: number of clients of the run.
        reports: partition id → the client's description, for this leaf's clients.
        scale: common scale of all clients of the run.
    """
    first, sizes = reports[min(reports)], clients_per_leaf(config.hierarchy, clients)
    planted = make_scenario(config, first.channels, len(first.classes), sizes, seed)
    unseen = frozenset(unseen_ids(sizes, config.partition.unseen_clients))
    dealt = Partition(_placeholder_windows(reports, clients), first.split_kind, unseen, planted)
    return dealt, _shape(first, scale)


def _shape(first: WindowsReport, scale: Scale) -> DataShape:
    """Sizes of the data, from the first client's description."""
    return DataShape(
        first.input_shape, len(first.classes), scale.mean, scale.std, first.y_shape, first.y_dtype,
        first.dtype == "int64",
    )  # fmt: skip


def _common_report(reports: Mapping[int, WindowsReport]) -> WindowsReport:
    """Description of the first client; ConfigError if another client's windows are of a different kind."""
    first_client = min(reports)
    first = reports[first_client]
    for client, report in reports.items():
        for name in KIND:
            if getattr(report, name) != getattr(first, name):
                raise ConfigError(
                    f"windows of all clients must have the same {name.replace('_', ' ')}, but partition "
                    f"{client} has {shown(getattr(report, name))} and partition {first_client} has "
                    f"{shown(getattr(first, name))}; prepare all of them the same way"
                )
    return first


def _common_description(reports: Mapping[int, WindowsReport]) -> dict[str, str]:
    """Entries of the data's own description given by more than half of the clients, in most clients' order.

    They go on the card of a model for all clients, so no single owner determines them.
    """
    counts = Counter(entry for report in reports.values() for entry in report.about.items())
    common = {key: text for (key, text), count in counts.items() if 2 * count > len(reports)}
    ((order, _),) = Counter(tuple(report.about) for report in reports.values()).most_common(1)
    return {key: common[key] for key in (*order, *sorted(common)) if key in common}


def _common_scale(
    sums: Mapping[int, ChannelSums], channels: Sequence[str], config: Config
) -> tuple[Scale, dict[int, str]]:
    """Common scale, and the clients left out of it, each with the reason.

    Raises:
        ConfigError: half of the clients or more would be left out.
    """
    if not config.data.normalize or not channels:  # tokens have no scale
        return Scale(), {}
    odd = outlying_clients(sums, tuple(channels))
    if 2 * len(odd) >= len(sums):
        client, reason = next(iter(odd.items()))
        raise ConfigError(
            f"data.normalize needs windows in units that most clients share, but those of {len(odd)} of "
            f"{len(sums)} are out of proportion: partition {client}: {reason}; prepare all the same way, or "
            f"set data.normalize=false"
        )
    return scale_of([channel_sums for client, channel_sums in sums.items() if client not in odd]), odd


def _joint_source(reports: Mapping[int, WindowsReport]) -> DataSource:
    """Origin of the data; the fingerprint is a hash of all clients' fingerprints, in order."""
    names = sorted({report.source for report in reports.values()})
    shown_names = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
    digest = hashlib.sha256("\n".join(report.fingerprint for report in reports.values()).encode()).hexdigest()
    synthetic = any(report.synthetic for report in reports.values())
    return DataSource(f"{quantity(len(reports), 'owner')} ({shown_names})", digest, synthetic)


def _refuse_without_windows(reports: Mapping[int, WindowsReport]) -> None:
    """Raise ConfigError for the first client without windows in some split."""
    for client, report in reports.items():
        for split in SPLITS:
            if report.windows(split) == 0:
                raise ConfigError(
                    f"every client must have windows of every split, but partition {client} has no {split} "
                    f"windows; give it more windows"
                )


def _refuse_leaf_without_clients(
    reports: Mapping[int, WindowsReport], sizes: Sequence[int], unseen: Collection[int]
) -> None:
    """Raise ConfigError for the first leaf without any training client present."""
    for leaf in range(len(sizes)):
        members = range(sum(sizes[:leaf]), sum(sizes[: leaf + 1]))
        if not any(client in reports and client not in unseen for client in members):
            raise ConfigError(
                f"guard.start-clients needs a training client at every leaf, but leaf {leaf} has none "
                f"(partition {members.start} to {members.stop - 1}); start one of them"
            )


def _placeholder_windows(
    reports: Mapping[int, WindowsReport], clients: int
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Per client and split, an array of the right number of windows, taking no memory."""
    offset, placeholders = 0, []
    for client in range(clients):
        parts = []
        for split in SPLITS:
            windows = reports[client].windows(split) if client in reports else 0
            parts.append(np.broadcast_to(np.int64(offset), windows))  # any number, without memory
            offset += windows
        placeholders.append((parts[0], parts[1], parts[2]))
    return placeholders


def _holdings(
    reports: Mapping[int, WindowsReport], dealt: Partition, sizes: Sequence[int]
) -> Iterator[Holding]:
    """Windows of every client by split and class; users and devices are blank, as only owners know them."""
    leaf_of = np.repeat(np.arange(len(sizes)), sizes).tolist()
    for client, report in reports.items():
        leaf = leaf_of[client]
        group = dealt.scenario.groups[leaf] if dealt.scenario else None
        for split in SPLITS:
            for label, count in zip(report.labels, report.counts[split], strict=True):
                if count:
                    unseen = int(client in dealt.unseen_clients)
                    yield Holding(client, leaf, split, "", "", label, count, unseen, group)
