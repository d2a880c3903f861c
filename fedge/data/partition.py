"""Windows → clients, each with its own training, validation and test windows.

`user` and `device` deal whole owners (`owners`) and then split; the others split first and then deal windows
(`shares`), so no client trains on another's test recording. Unseen clients always hold whole users,
exclusively. Shape letters: N windows, K clients, S leaf servers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedge.config.config import Config
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import PARTITIONS, SCENARIOS
from fedge.config.registers.traits import FILES, OWNERS
from fedge.config.topology import unseen_ids
from fedge.data.association import associated
from fedge.data.owners import (
    NOBODY,
    DealOrder,
    deal_by_source,
    deal_owners,
    refuse_unseen_clients_without_users,
    reserve_users,
)
from fedge.data.scenario import Scenario, make_scenario
from fedge.data.shares import deal_among_known
from fedge.data.split import TEST, TRAIN, UNUSED, VAL, fewest_windows_to_cut, groups_of
from fedge.data.window_split import (
    codes,
    pair_codes,
    session_codes,
    split_apart,
    split_kind,
    split_rows,
    stream_codes,
)
from fedge.seeding import Purpose, numpy_stream
from hhar.quantity import quantity
from hhar.windows.window_file import Windows

_SPLIT_NAMES = {TRAIN: "training", VAL: "validation", TEST: "test"}


@dataclass(frozen=True)
class Partition:
    """Holdings of all clients.

    Attributes:
        clients: per client, per split (training, validation, test): sorted window indices.
        split_kind: "given", "session" or "blocks".
        unseen_clients: clients with exclusive users; they take no part in training.
        scenario: changes of the windows of whole leaves, or None.
    """

    clients: list[tuple[np.ndarray, np.ndarray, np.ndarray]]
    split_kind: str
    unseen_clients: frozenset[int] = frozenset()
    scenario: Scenario | None = None


def partition(windows: Windows, config: Config, clients_per_leaf: Sequence[int], seed: int) -> Partition:
    """Deal the windows to the clients of the hierarchy.

    Args:
        windows: N windows.
        config: its `partition` and `data` sections and the scenario are read.
        clients_per_leaf: S numbers; clients 0..k0-1 belong to leaf 0, the next k1 to leaf 1, …; the last
            `partition.unseen-clients` of each are unseen clients.
        seed: root of the streams for dealing users, shuffling sessions and windows, and drawing the scenario.

    Raises:
        ConfigError: too few users or devices, no sessions to split by, a client without training, validation
            or test windows, or unseen clients or a scenario impossible with the data.
    """
    kind = split_kind(windows, config)
    refuse_unseen_clients_without_users(windows, config, clients_per_leaf)
    order = DealOrder(config.partition, seed)
    scenario = _draw_scenario(windows, config, clients_per_leaf, seed)
    unseen_clients = unseen_ids(clients_per_leaf, config.partition.unseen_clients)
    if PARTITIONS.has(config.partition.kind, OWNERS):
        if SCENARIOS.has(config.scenario, FILES):
            assert scenario is not None
            client = deal_by_source(windows, scenario, order)
            group = client
        else:
            client, group = deal_owners(windows, config, sum(clients_per_leaf), kind, order)
        used = _is_held(client, windows.labels, scenario)
        split = split_apart(windows, config, kind, group, np.isin(client, unseen_clients), used, seed)
    else:
        client = reserve_users(windows.user, unseen_clients, order)
        reserved = client != NOBODY
        split = split_apart(windows, config, kind, codes(windows.user), reserved, None, seed)
        client = deal_among_known(windows, client, split, config, clients_per_leaf, seed)
        split[~_is_held(client, windows.labels, scenario)] = UNUSED
    clients = _indices_by_client(client, split, sum(clients_per_leaf))
    _refuse_empty(clients, windows, config, kind, scenario)
    clients = associated(clients, windows, config, clients_per_leaf, seed)
    return Partition(clients, kind, frozenset(unseen_clients), scenario)


def own_partition(
    windows: Windows, config: Config, clients_per_leaf: Sequence[int], client: int, seed: int
) -> Partition:
    """Give one client all windows, and split them independently of other clients.

    Args:
        windows: N windows, all of them the client's.
        config: its `data` section and the scenario are read.
        clients_per_leaf: as in `partition`.
        client: its partition id.
        seed: root of the streams for shuffling sessions and drawing the scenario.

    Raises:
        ConfigError: there are no sessions to split by, or windows of a split are missing.
    """
    kind = split_kind(windows, config)
    scenario = _draw_scenario(windows, config, clients_per_leaf, seed)
    unseen = unseen_ids(clients_per_leaf, config.partition.unseen_clients)
    owner = np.full(len(windows.y), client)
    split = np.full(len(windows.y), UNUSED)
    rows = np.flatnonzero(_is_held(owner, windows.labels, scenario))
    rng = numpy_stream(seed, Purpose.SPLIT, 2, client)
    if not len(rows):
        assert scenario is not None
        classes = ", ".join(np.array(windows.classes)[scenario.change_of(client).held])
        raise ConfigError(
            f"scenario {config.scenario} must leave every client windows, but of {classes} it has none; "
            f"add windows of them, or set another scenario"
        )
    split[rows] = split_rows(windows, rows, config, kind, np.zeros(len(rows), dtype=np.int64), rng)
    clients = _indices_by_client(owner, split, sum(clients_per_leaf))
    _refuse_empty_own(clients[client], windows, config, kind)
    return Partition(clients, kind, frozenset(unseen), scenario)


def _draw_scenario(
    windows: Windows, config: Config, clients_per_leaf: Sequence[int], seed: int
) -> Scenario | None:
    """The run's scenario; ConfigError where windows lack the time, classes or channels it changes."""
    scenario = make_scenario(config, windows.channels, len(windows.classes), clients_per_leaf, seed)
    x, y = windows.x, windows.y
    for change in scenario.changes if scenario else ():
        uses_classes = change.labels is not None or change.held is not None
        for is_lacking, requirement in (
            (change.span != 1 and x.ndim != 3, f"in time (N, channels, samples), but x is {x.shape}"),
            (uses_classes and not windows.has_labels, f"with a class each, but y is {y.dtype} {y.shape}"),
            (change.matrix is not None and x.dtype == np.int64, "of channels, but x are tokens (int64)"),
        ):
            if is_lacking:
                raise ConfigError(
                    f"scenario {config.scenario} needs windows {requirement}; set another scenario"
                )
    return scenario


def _is_held(client: np.ndarray, y: np.ndarray, scenario: Scenario | None) -> np.ndarray:
    """(N,) bool: whether the group of each window's client holds its class; True for NOBODY's windows."""
    used = np.ones(len(y), dtype=bool)
    if scenario is None:
        return used
    for rows in groups_of(client):
        k = int(client[rows[0]])
        held = None if k == NOBODY else scenario.change_of(k).held
        if held is not None:
            used[rows] = held[y[rows]]
    return used


def _indices_by_client(
    client: np.ndarray, split: np.ndarray, num_clients: int
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Every client's window indices per split: TRAIN, VAL, TEST."""
    empty = np.empty(0, dtype=np.int64)
    indices: list[list[np.ndarray]] = [[empty] * 3 for _ in range(num_clients)]
    for rows in groups_of(client * (UNUSED + 1) + split):
        k, part = int(client[rows[0]]), int(split[rows[0]])
        if k != NOBODY and part != UNUSED:
            indices[k][part] = rows
    return [(train, val, test) for train, val, test in indices]


_REMEDIES = {
    "dirichlet": "raise alpha-leaves and alpha-clients in partition.kind-args, or use fewer clients",
    "quantity": "lower partition.kind-args.sigma or use fewer clients",
    "imbalance": "lower partition.kind-args.imbalance or use fewer clients",
}
_MORE_DATA, _SPLIT_BY_BLOCKS = "use fewer clients or more data", 'set data.split="blocks"'


def _refuse_empty(
    clients: list[tuple[np.ndarray, np.ndarray, np.ndarray]],
    windows: Windows,
    config: Config,
    kind: str,
    scenario: Scenario | None,
) -> None:
    """Raise ConfigError for the first client without windows of a split."""
    cuts = kind == "blocks"
    lacking = sum(any(len(indices) == 0 for indices in parts) for parts in clients)
    others_note = (
        f" ({quantity(lacking - 1, 'other client')} without windows of a split)" if lacking > 1 else ""
    )
    for k, parts in enumerate(clients):
        for part in (part for part, indices in enumerate(parts) if len(indices) == 0):
            held = scenario.change_of(k).held if scenario else None
            # looks at the windows of all clients
            reason = _reason(windows, parts, config, kind) + others_note
            if held is not None:
                classes = ", ".join(np.array(windows.classes)[held])
                raise ConfigError(
                    f"scenario {config.scenario} must leave every client {_SPLIT_NAMES[part]} windows, but "
                    f"client {k} has none of {classes}{reason}; use fewer clients, fewer scenario-groups, "
                    f"another seed{'' if cuts else f', or {_SPLIT_BY_BLOCKS}'}"
                )
            raise ConfigError(
                f"partition.kind={config.partition.kind} must give every client {_SPLIT_NAMES[part]} "
                f"windows, but client {k} of {len(clients)} has none{reason}; {_remedy(config, cuts)}"
                f"{_guard_note(windows, parts, config, kind)}"
            )


def _refuse_empty_own(
    parts: tuple[np.ndarray, np.ndarray, np.ndarray], windows: Windows, config: Config, kind: str
) -> None:
    """Raise ConfigError if a client's own windows leave a split empty."""
    for part, indices in enumerate(parts):
        if len(indices) == 0:
            blocks = "" if kind == "blocks" else f", or {_SPLIT_BY_BLOCKS}"
            raise ConfigError(
                f"its windows must be split into training, validation and test windows, but it has no "
                f"{_SPLIT_NAMES[part]} windows{_reason(windows, parts, config, kind)}; add windows{blocks}"
            )


def _remedy(config: Config, cuts: bool) -> str:
    """Options to set if a client has no windows of a split; `cuts`: recordings are cut in time already."""
    kind = config.partition.kind
    if PARTITIONS.is_own(kind):
        first = "change how it deals"
    elif kind == "quantity" and config.partition.arguments("kind")["sigma"] == 0:
        first = _MORE_DATA
    else:
        first = _REMEDIES.get(kind, _MORE_DATA)
    return first if cuts else f"{first}, or {_SPLIT_BY_BLOCKS}"


def _reason(windows: Windows, parts: Sequence[np.ndarray], config: Config, kind: str) -> str:
    """Reason why a client with windows has none of a split; "" if the split is not the cause.

    Args:
        windows: windows of all clients.
        parts: indices of the client's windows of each split.
        config: configuration, of which section `data` is read.
        kind: kind of the split.
    """
    rows = np.concatenate(list(parts)).astype(np.int64)
    split_text = config.data.split if config.data.split == kind else f"{config.data.split} (here {kind})"
    if not rows.size:
        return ""
    if kind == "given":
        return f", because data.split={split_text} takes the split that comes with the data"
    if kind == "session":
        count = quantity(len(np.unique(session_codes(windows)[rows])), "session")
        return f", because data.split={split_text} keeps sessions whole, and its windows are of {count}"
    return _small_class_note(windows, parts, config, kind)


def _small_class_note(windows: Windows, parts: Sequence[np.ndarray], config: Config, kind: str) -> str:
    """Words on a client with fewer windows of each class than blocks of time are cut from; else "".

    Args:
        windows: windows of all clients.
        parts: indices of the client's windows of each split.
        config: configuration, of which section `data` is read.
        kind: kind of the split.
    """
    rows = np.concatenate(list(parts)).astype(np.int64)
    fewest = fewest_windows_to_cut(config.data)
    if kind != "blocks" or not rows.size or _largest_class_size(windows, rows) >= fewest:
        return ""
    if not windows.has_labels:
        return (
            f" among {quantity(rows.size, 'window')}, which are cut in time if a user has at least {fewest}"
        )
    classes = len(np.unique(windows.y[rows]))
    sizes = f"{quantity(rows.size, 'window')} of {quantity(classes, 'class')}"
    return (
        f" among {sizes}, each of which is cut in time by itself if a user has at least "
        f"{fewest} windows of it"
    )


def _guard_note(windows: Windows, parts: Sequence[np.ndarray], config: Config, kind: str) -> str:
    """Words on the guard, if a client has too few windows of a class because of it alone; else ""."""
    rows = np.concatenate(list(parts)).astype(np.int64)
    unguarded = replace(config.data, guard_windows=0)
    if not _small_class_note(windows, parts, config, kind):
        return ""
    is_enough = _largest_class_size(windows, rows) >= fewest_windows_to_cut(unguarded)
    return ", or set data.guard-windows=0 if windows do not overlap" if is_enough else ""


def _largest_class_size(windows: Windows, rows: np.ndarray) -> int:
    """The largest number of windows of one stream and class at `rows` (n,), at least one."""
    return int(
        np.unique(pair_codes(stream_codes(windows)[rows], windows.labels[rows]), return_counts=True)[1].max()
    )
