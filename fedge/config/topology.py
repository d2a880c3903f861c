"""Clients of each leaf: clients 0..k0-1 under leaf 0, the next k1 under leaf 1, …

The last `partition.unseen-clients` clients of every leaf are unseen: they never train.
"""

import operator
from collections.abc import Sequence

from fedge.config.registers.option import ConfigError, shown
from fedge.config.sections.hierarchy import HierarchyConfig
from fedge.config.tree import dotted
from hhar.quantity import quantity


def clients_per_leaf(config: HierarchyConfig, num_clients: int) -> list[int]:
    """The number of clients of each leaf.

    "auto" splits the clients evenly; with a remainder, the first leaves get one more.

    Raises:
        ConfigError: the numbers do not match the number of clients or `num-servers`.

    >>> clients_per_leaf(HierarchyConfig(num_servers=3), 10)
    [4, 3, 3]
    >>> clients_per_leaf(HierarchyConfig(num_servers=2, clients_per_server="4,6"), 10)
    [4, 6]
    """
    if config.clients_per_server == "auto":
        if num_clients < config.num_servers:
            raise ConfigError(
                f"{config.leaves_option} must be at most the number of clients, but is {config.num_servers} "
                f"for {quantity(num_clients, 'client')}; lower it, or raise clients, in a federation its "
                "number of SuperNodes"
            )
        share, rest = divmod(num_clients, config.num_servers)
        return [share + (leaf < rest) for leaf in range(config.num_servers)]
    sizes = _parse_sizes(config.clients_per_server)
    if len(sizes) != config.num_servers:
        raise ConfigError(
            f"hierarchy.clients-per-server must name one number per leaf server, but "
            f"{config.clients_per_server!r} names {len(sizes)} and hierarchy.num-servers is "
            f"{config.num_servers}; set one to fit the other"
        )
    if sum(sizes) != num_clients and config.tree:
        raise ConfigError(
            f"hierarchy.tree must have as many clients as there are, but {shown(config.tree)} has "
            f"{sum(sizes)} and there are {num_clients}; set clients={sum(sizes)}, or change the tree"
        )
    if sum(sizes) != num_clients:
        raise ConfigError(
            f"hierarchy.clients-per-server must add up to the federation's SuperNodes, but "
            f"{config.clients_per_server!r} adds up to {sum(sizes)} and there are {num_clients}; "
            f'change it, set "auto", or use another federation'
        )
    return sizes


def configured_clients(config: HierarchyConfig) -> int:
    """Total number of clients over all leaves; 0 for "auto".

    Raises:
        ConfigError: `hierarchy.clients-per-server` is malformed.

    >>> configured_clients(HierarchyConfig(num_servers=2, clients_per_server="4,6"))
    10
    """
    return 0 if config.clients_per_server == "auto" else sum(_parse_sizes(config.clients_per_server))


def leaf_of_clients(sizes: Sequence[int]) -> list[int]:
    """The leaf of each client, given `sizes` clients per leaf.

    >>> leaf_of_clients([2, 1])
    [0, 0, 1]
    """
    return [leaf for leaf, size in enumerate(sizes) for _ in range(size)]


def leaf_numbers_below(config: HierarchyConfig) -> dict[str, list[int]]:
    """Path of each server between cloud and leaves, such as "1.0" → numbers of the leaves below it.

    >>> leaf_numbers_below(HierarchyConfig(tree="2x2x4"))
    {'0': [0, 1], '1': [2, 3]}
    """
    leaves = config.shape.paths(config.tiers - 1) if config.tiers > 2 else []
    numbers: dict[str, list[int]] = {}
    for number, path in enumerate(leaves):
        for tier in range(1, len(path)):
            numbers.setdefault(dotted(path[:tier]), []).append(number)
    return numbers


def sizes_of_branches(config: HierarchyConfig, sizes: Sequence[int]) -> list[int]:
    """Number of clients below each child of the root, given the number at each leaf.

    >>> sizes_of_branches(HierarchyConfig(tree="((2,3),(4))"), [2, 3, 4])
    [5, 4]
    >>> sizes_of_branches(HierarchyConfig(num_servers=2), [2, 3])
    [2, 3]
    """
    branches = [below for path, below in leaf_numbers_below(config).items() if "." not in path]
    return [sum(sizes[leaf] for leaf in below) for below in branches] or list(sizes)


def known_per_leaf(sizes: Sequence[int], unseen_clients: int) -> list[int]:
    """Number of training clients of each leaf, given `sizes` clients per leaf.

    Raises:
        ConfigError: a leaf would have no training client.
    """
    smallest = min(range(len(sizes)), key=lambda leaf: sizes[leaf])
    if sizes[smallest] <= unseen_clients:
        raise ConfigError(
            f"partition.unseen-clients must leave every leaf a client that trains, but is "
            f"{unseen_clients} and leaf {smallest} has {sizes[smallest]} in all; lower it, or "
            "give the leaf more clients"
        )
    return [size - unseen_clients for size in sizes]


def unseen_ids(sizes: Sequence[int], unseen_clients: int) -> list[int]:
    """Ids of the unseen clients, ascending: the last `unseen_clients` of each leaf.

    >>> unseen_ids([3, 4], 1)
    [2, 6]
    """
    ends = [sum(sizes[: leaf + 1]) for leaf in range(len(sizes))]
    return [client for end in ends for client in range(end - unseen_clients, end)]


def places_per_leaf(concurrency: int, leaves: int) -> list[int]:
    """Number of devices of each leaf training at a time; the first leaves get the remainder.

    >>> places_per_leaf(10, 4)
    [3, 3, 2, 2]
    """
    share, rest = divmod(concurrency, leaves)
    return [share + (leaf < rest) for leaf in range(leaves)]


def refuse_more_places_than_devices(concurrency: int, known: Sequence[int]) -> None:
    """Raise ConfigError when a leaf's share of `asynchrony.concurrency` is zero or exceeds its devices.

    Args:
        concurrency: over all leaves.
        known: number of training clients of each leaf.
    """
    for leaf, (places, devices) in enumerate(
        zip(places_per_leaf(concurrency, len(known)), known, strict=True)
    ):
        if not 0 < places <= devices:
            raise ConfigError(
                f"asynchrony.concurrency must give every leaf work for 1 device up to all it has, but "
                f"{concurrency} gives leaf {leaf} work for {places} and it has {devices}; "
                f"{_suggest_concurrency(concurrency, known)}"
            )


def _suggest_concurrency(concurrency: int, known: Sequence[int]) -> str:
    """Next step for an error: a concurrency suited to leaves with these numbers of clients."""
    least, most = len(known), min(known) * len(known)
    while all(map(operator.le, places_per_leaf(most + 1, least), known)):
        most += 1  # the first leaves have the remainder, and may have more clients
    if most < least:
        return "give every leaf a client that trains, or set fewer leaves"
    return f"set asynchrony.concurrency={min(max(concurrency, least), most)}, or more clients"


def _parse_sizes(text: str) -> list[int]:
    """Parse the sizes of leaves: "4,3,2" → [4, 3, 2]."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) < 10 and int(part) > 0 for part in parts):
        raise ConfigError(
            f'hierarchy.clients-per-server must be "auto" or positive whole numbers as "4,3,2", but is '
            f'{shown(text)}; set for example hierarchy.clients-per-server="3,3,3"'
        )
    return [int(part) for part in parts]
