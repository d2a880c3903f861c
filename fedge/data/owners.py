"""Deals whole users, or whole devices, to clients.

Shape letters: N windows, K clients, S leaf servers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedge.config.config import Config
from fedge.config.registers.choices import SORTED
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import PARTITIONS
from fedge.config.registers.traits import WHOLE_USERS
from fedge.config.sections.data import PartitionConfig
from fedge.config.topology import known_per_leaf
from fedge.data.scenario import Scenario
from fedge.data.split import blocks, groups_of
from fedge.data.window_split import codes, session_codes, stream_codes
from fedge.seeding import Purpose, numpy_stream
from hhar.quantity import quantity
from hhar.windows.join import SEPARATOR, source_of
from hhar.windows.window_file import Windows

NOBODY = -1  # in place of a client: the window is not used


@dataclass(frozen=True)
class DealOrder:
    """Order in which owners are dealt: a draw, unless `partition.deal` is "sorted".

    Attributes:
        config: its `deal` is read.
        seed: seed of the run.
    """

    config: PartitionConfig
    seed: int

    def places_of(self, count: int, *stream_path: int) -> np.ndarray:
        """The places (count,) of owners 0, 1, …, in sorted order of their names."""
        if self.config.deal == SORTED:
            return np.arange(count)
        deal_seed = self.config.deal_seed
        return numpy_stream(
            self.seed if deal_seed is None else deal_seed, Purpose.DEAL, *stream_path
        ).permutation(count)


def deal_by_source(windows: Windows, scenario: Scenario, order: DealOrder) -> np.ndarray:
    """The client (N,) of each window: users of file g are dealt to the clients of leaves of group g.

    Raises:
        ConfigError: a file has fewer users than its leaves have clients.
    """
    source, user = source_of(windows), codes(windows.user)
    leaf_of = np.repeat(np.arange(len(scenario.groups)), scenario.clients_per_leaf)
    client = np.full(len(user), NOBODY, dtype=np.int64)
    for group in range(len(scenario.changes)):
        rows = np.flatnonzero(source == group)
        ids = np.flatnonzero(np.array(scenario.groups)[leaf_of] == group)
        owner = codes(user[rows])
        count = int(owner.max()) + 1
        if count < len(ids):
            raise ConfigError(
                f"scenario {scenario.kind} needs a user for each client, but "
                f"{windows.user[rows[0]].split(SEPARATOR)[0]} has {count} users for {len(ids)} clients at "
                f"{scenario.groups.count(group)} leaves; use a smaller federation, or scenario-sizes"
            )
        client[rows] = ids[clients_of_owners(order.places_of(count, group)[owner], count, len(ids))]
    return client


def deal_owners(
    windows: Windows, config: Config, num_clients: int, kind: str, order: DealOrder
) -> tuple[np.ndarray, np.ndarray]:
    """(client, stratum of its sessions) per window for whole users or devices."""
    owner_kind = config.partition.kind
    owner = codes(PARTITIONS.load(owner_kind)(windows))
    num_owners = int(owner.max()) + 1
    owner = order.places_of(num_owners)[owner]
    if num_owners >= num_clients:
        client = clients_of_owners(owner, num_owners, num_clients)
    elif not config.partition.cuts_owners:
        raise ConfigError(
            f"partition.kind={owner_kind} needs at least one {owner_kind} per client, but the data have "
            f"{quantity(num_owners, owner_kind)} for {num_clients} clients; use at most that many "
            f"(--clients {num_owners}), or set partition.kind-args.split-users=true"
        )
    else:
        client = _cut_owners(windows, owner, num_clients, kind, config)
    # One motion may be recorded on several devices: then its split must be the same at every client.
    return client, client if owner_kind == "user" else codes(windows.user)


def clients_of_owners(owner: np.ndarray, num_owners: int, num_clients: int) -> np.ndarray:
    """Client of each owner, an integer array of the shape of `owner`; numbers of owners differ by 1 at most.

    Remaining owners, after an equal number for every client, go to clients at equal distances. Given to the
    first clients, they would all be under the first leaves, whose clients would then differ from the others',
    and a test of leaves would detect the difference.

    Args:
        owner: numbers of owners, 0..num_owners − 1, of any shape.
        num_owners: at least `num_clients`.
        num_clients: at least 1.

    >>> clients_of_owners(np.arange(10), 10, 4).tolist()
    [0, 1, 2, 3, 0, 1, 2, 3, 0, 2]
    """
    even = num_owners // num_clients * num_clients
    remainder = max(num_owners - even, 1)
    return np.where(owner < even, owner % num_clients, (owner - even) * num_clients // remainder)


def _cut_owners(
    windows: Windows, owner: np.ndarray, num_clients: int, kind: str, config: Config
) -> np.ndarray:
    """The client (N,) of each window if every owner is divided among one or more successive clients.

    Without sessions a user is cut in time, on each of their devices alike, and split afterwards. A device is
    cut between its users: a recording is split as a whole, and a block of its time would belong to one split
    only.
    """
    cut_users = PARTITIONS.has(config.partition.kind, WHOLE_USERS)
    stream = stream_codes(windows) if cut_users else owner
    guard_windows = config.data.guard_windows if cut_users else 0
    client = np.empty(len(owner), dtype=np.int64)
    first, num_owners = 0, int(owner.max()) + 1
    for value, members in enumerate(groups_of(owner)):
        share = num_clients // num_owners + (value < num_clients % num_owners)
        if kind == "session":
            client[members] = first + _deal_sessions_evenly(
                session_codes(windows)[members], windows.labels[members], share
            )
        else:
            part = _deal_blocks(stream[members], windows.labels[members], share, guard_windows)
            client[members] = np.where(part == NOBODY, NOBODY, first + part)
        first += share
    return client


def _deal_sessions_evenly(session: np.ndarray, y: np.ndarray, share: int) -> np.ndarray:
    """Deal an owner's sessions, class after class, to `share` clients in turn; 0..share-1 per window."""
    sessions, first = np.unique(session, return_index=True)
    order = sessions[np.lexsort((first, y[first]))]
    turn = {int(s): position % share for position, s in enumerate(order)}
    return np.array([turn[int(s)] for s in session], dtype=np.int64)


def _deal_blocks(stream: np.ndarray, y: np.ndarray, share: int, guard_windows: int) -> np.ndarray:
    """Cut each class of each stream, in file order, into `share` blocks; returns 0..share-1 per window.

    The last windows before a cut go to NOBODY, because they overlap the first ones of the next client.
    """
    part = np.empty(len(y), dtype=np.int64)
    for members in blocks(stream, y):
        n = len(members)
        dealt = np.arange(n) * share // n
        guarded = np.minimum(np.arange(n) + guard_windows, n - 1)
        part[members] = np.where(dealt[guarded] == dealt, dealt, NOBODY)
    return part


def users(windows: Windows) -> np.ndarray:
    """User of each window (N,)."""
    return windows.user


def devices(windows: Windows) -> np.ndarray:
    """Device on which each window (N,) was recorded.

    Raises:
        ConfigError: the data do not name devices.
    """
    if windows.device is None:
        raise ConfigError(
            'partition.kind is "device", but the window file names no devices; set partition.kind="user"'
        )
    return windows.device


def refuse_unseen_clients_without_users(
    windows: Windows, config: Config, clients_per_leaf: Sequence[int]
) -> None:
    """Raise ConfigError when unseen clients cannot hold users exclusively."""
    unseen_clients, kind = config.partition.unseen_clients, config.partition.kind
    known = sum(known_per_leaf(clients_per_leaf, unseen_clients))
    users = np.unique(windows.user).size
    if unseen_clients and kind == "device":
        raise ConfigError(
            f"partition.unseen-clients needs whole users, but partition.kind=device deals each "
            f"user's windows to "
            f"several clients, and partition.unseen-clients is {unseen_clients}; set partition.kind=user"
        )
    if unseen_clients and kind == "user" and users < sum(clients_per_leaf):
        raise ConfigError(
            f"partition.unseen-clients needs whole users, but {users} users are too few for "
            f"{sum(clients_per_leaf)} clients; use at most that many (--clients {users})"
        )
    count = sum(clients_per_leaf) - known
    if unseen_clients and users <= count:
        raise ConfigError(
            f"partition.unseen-clients must leave users to train on, but {count} unseen clients, "
            f"{unseen_clients} per leaf, take all of {users} users; lower it or "
            f"{config.hierarchy.leaves_option}"
        )


def reserve_users(users: np.ndarray, unseen_clients: Sequence[int], order: DealOrder) -> np.ndarray:
    """The unseen client (N,) of each window, one user for each unseen client; NOBODY for other windows.

    The users of unseen clients are evenly spaced among all users in the order of the deal; with as many users
    as clients and leaves of one size, the same users as with partition.kind=user.
    """
    client = np.full(len(users), NOBODY, dtype=np.int64)
    user = codes(users)
    num_users = int(user.max()) + 1
    user = order.places_of(num_users)[user]
    for turn, unseen_client in enumerate(unseen_clients, start=1):
        client[user == turn * num_users // len(unseen_clients) - 1] = unseen_client
    return client
