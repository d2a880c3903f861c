"""Users divided into devices: each device has a few stretches of one user's time (`devices.pieces`).

This allows more devices than there are people with recordings. A user's validation and test windows stay
together at the first of its devices, so an evaluation asks one client per user. Shape letter: N windows.
"""

from collections.abc import Sequence

import numpy as np

from fedge.config.config import Config
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import SCENARIOS
from fedge.config.registers.traits import FILES
from fedge.config.topology import unseen_ids
from fedge.data.owners import NOBODY, DealOrder, reserve_users
from fedge.data.partition import Partition
from fedge.data.scenario import make_scenario
from fedge.data.split import TEST, TRAIN, VAL, groups_of
from fedge.data.window_split import codes, split_apart, split_kind
from hhar.windows.window_file import Windows

_Split = tuple[np.ndarray, np.ndarray, np.ndarray]


def deal_devices(windows: Windows, config: Config, clients_per_leaf: Sequence[int], seed: int) -> Partition:
    """Deal the windows of every user to its own devices.

    Devices are numbered user by user, in the order of `partition.deal`, so a leaf has those of a few users.
    Unseen clients hold whole users, as in every partition.

    Args:
        windows: N windows.
        config: its sections on devices, data and partition, and the scenario, are read.
        clients_per_leaf: unseen clients included.
        seed: root of the streams for session splits and the scenario.

    Raises:
        ConfigError: there are fewer devices than users, or a device would have nothing to train on.
    """
    if SCENARIOS.has(config.scenario, FILES):
        raise ConfigError(
            f"devices.pieces must be 0 with scenario {config.scenario}, which decides itself which client "
            f"gets which windows, but is {config.devices.pieces}; set devices.pieces=0"
        )
    kind = split_kind(windows, config)
    unseen = unseen_ids(clients_per_leaf, config.partition.unseen_clients)
    if unseen:
        _refuse_too_few_users(windows, len(unseen))
    order = DealOrder(config.partition, seed)
    client = reserve_users(windows.user, unseen, order)
    split = split_apart(windows, config, kind, codes(windows.user), client != NOBODY, None, seed)
    scenario = make_scenario(config, windows.channels, len(windows.classes), clients_per_leaf, seed)
    clients: list[_Split] = [(_NO_ROWS, _NO_ROWS, _NO_ROWS)] * sum(clients_per_leaf)
    for members in groups_of(client):
        if client[members[0]] != NOBODY:
            clients[int(client[members[0]])] = _split_rows(members, split)
    known = [number for number in range(sum(clients_per_leaf)) if number not in set(unseen)]
    place = order.places_of(len(np.unique(windows.user)))[codes(windows.user)]
    users = [rows for rows in groups_of(place) if client[rows[0]] == NOBODY]
    for user, rows in enumerate(users):
        user_devices = known[
            _first_device(user, len(users), len(known)) : _first_device(user + 1, len(users), len(known))
        ]
        train, val, test = _split_rows(rows, split)
        for device, piece in zip(user_devices, _cut_pieces(train, len(user_devices), config), strict=True):
            clients[device] = (piece, _NO_ROWS, _NO_ROWS)
        if user_devices:
            clients[user_devices[0]] = (clients[user_devices[0]][0], val, test)
    _refuse_devices_without_windows(clients, len(users), len(known))
    if scenario is not None:
        clients = [
            _keep_held_classes(parts, windows.labels, scenario.change_of(k).held)
            for k, parts in enumerate(clients)
        ]
        _refuse_devices_without_windows(clients, len(users), len(known))
    return Partition(clients, kind, frozenset(unseen), scenario)


_NO_ROWS = np.empty(0, dtype=np.int64)


def _first_device(user: int, users: int, devices: int) -> int:
    """The number of a user's first device, for an even distribution of devices."""
    return user * devices // users


def _split_rows(rows: np.ndarray, split: np.ndarray) -> _Split:
    """The training, validation and test windows among some."""
    train, val, test = (rows[split[rows] == part] for part in (TRAIN, VAL, TEST))
    return train, val, test


def _cut_pieces(train: np.ndarray, devices: int, config: Config) -> list[np.ndarray]:
    """The windows of each of a user's devices, sorted.

    The user's windows are cut, in file order, into `devices.pieces` parts, each part into as many stretches
    as there are devices: each device has one of every part. For a device with fewer than
    `devices.least-windows`, stretches extend into its neighbours'.
    """
    parts = np.array_split(train, config.devices.pieces)
    least = -(-config.devices.least_windows // config.devices.pieces)
    stretches: list[list[np.ndarray]] = [[] for _ in range(devices)]
    for part in parts:
        for device in range(devices):
            if len(part):
                begin, end = device * len(part) // devices, (device + 1) * len(part) // devices
                count = min(len(part), max(least, end - begin))
                stretches[device].append(part[(begin + np.arange(count)) % len(part)])
    return [np.unique(np.concatenate(pieces)) if pieces else _NO_ROWS for pieces in stretches]


def _keep_held_classes(parts: _Split, y: np.ndarray, held: np.ndarray | None) -> _Split:
    """A client's windows of its group's classes."""
    if held is None:
        return parts
    train, val, test = (rows[held[y[rows]]] for rows in parts)
    return train, val, test


def _refuse_too_few_users(windows: Windows, unseen: int) -> None:
    """Raise ConfigError if unseen clients would leave no users for training."""
    users = len(np.unique(windows.user))
    if users <= unseen:
        raise ConfigError(
            f"partition.unseen-clients must leave users to train, but {unseen} unseen clients hold a whole "
            f"user each and there are {users}; lower it"
        )


def _refuse_devices_without_windows(clients: Sequence[_Split], users: int, devices: int) -> None:
    """Raise ConfigError when there are fewer devices than users, or one has nothing to train on."""
    if devices < users:
        raise ConfigError(
            f"clients must give every user a device, but leaves {devices} for {users} users; raise it, or "
            "set devices.pieces=0"
        )
    empty = next((client for client, parts in enumerate(clients) if not len(parts[0])), None)
    if empty is not None:
        raise ConfigError(
            f"clients must leave every device training windows, but device {empty} of "
            f"{len(clients)} has none; lower {'' if devices == users else 'it, or '}data.val-fraction and "
            f"data.test-fraction"
        )
