"""Number of clients of a run, and a remark if clients and users do not correspond."""

import unicodedata
from collections import Counter
from collections.abc import Iterable

import numpy as np

from fedge.config.config import Config
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import PARTITIONS
from fedge.config.registers.traits import WHOLE_USERS
from hhar.quantity import quantity
from hhar.windows.window_file import Windows

AUTO = "auto"
_ONE_EACH = "fedge run --clients {users}, or flwr run . --federation-config 'options.num-supernodes={users}'"


def clients_for(config: Config, windows: Windows, default: int) -> int:
    """Number of clients of a run whose options leave it open.

    One per user, if `partition.kind` deals users and the data name several; else the federation's number.
    With its argument `split-users`, users may be cut, so there are at least as many as in the federation.
    Sizes in `hierarchy.clients-per-server` must add up to the number of users; otherwise the federation's
    number stays.

    Args:
        config: the run's configuration.
        windows: all windows of the run.
        default: number of clients of the federation, if only a default.
    """
    users = np.unique(windows.user).size
    sizes = config.hierarchy.clients_per_server
    fits_sizes = sizes == AUTO or _sum_of_sizes(sizes) == users
    if not PARTITIONS.has(config.partition.kind, WHOLE_USERS) or users < 2 or not fits_sizes:
        return default
    return max(users, default) if config.partition.cuts_owners else users


def _sum_of_sizes(sizes: str) -> int:
    """Sum of "3,3,4"; 0 for text refused later."""
    parts = sizes.split(",")
    return sum(map(int, parts)) if all(p.strip().isdecimal() and len(p) < 10 for p in parts) else 0


def refuse_other_number(config: Config, num_clients: int) -> None:
    """Raise ConfigError if the federation's number of clients differs from the option `clients`."""
    if config.clients not in (AUTO, num_clients):
        raise ConfigError(
            f"clients must be the number of SuperNodes, {num_clients}, but is {config.clients}; use "
            f"fedge run, which sets it, or flwr run . --federation-config "
            f"'options.num-supernodes={config.clients}'"
        )


def user_count_remark(
    config: Config, windows: Windows, clients: int, one_each: str = _ONE_EACH
) -> str | None:
    """Remark if users are dealt but a client is not exactly one user; None otherwise.

    `one_each` is the advice for one client per user; "{users}" in it is replaced by their number.
    """
    users = np.unique(windows.user).size
    if not PARTITIONS.has(config.partition.kind, WHOLE_USERS) or users == clients:
        return None
    client_count, user_count = quantity(clients, "client"), quantity(users, "user")
    if users < clients:
        return f"{client_count} for {user_count}: users are cut, and several clients share a person"
    return (
        f"{user_count} for {client_count}: "
        f"{'the client holds' if clients == 1 else 'some clients hold'} several users; "
        f"for one each, {one_each.format(users=users)}"
    )


def alike_remarks(windows: Windows) -> list[str]:
    """Remarks on users and on classes whose names differ only in case, spaces or encoding.

    Each such name counts separately, which is unwanted if an author spells a name in two ways. Users are
    counted, not named: people's names do not belong in a log.
    """
    users, classes = np.unique(windows.user).tolist(), windows.classes
    return [
        f"{len(alike)} of {quantity(len(names), noun)} have names that differ only in case, spaces or "
        f"encoding, and count as different{examples}; if they are the same, correct the data"
        for noun, names in (("user", users), ("class", classes))
        if (alike := _alike(names))
        for examples in [f" ({', '.join(map(repr, alike[:_SHOWN]))})" if noun == "class" else ""]
    ]


_SHOWN = 4  # names in a remark


def _alike(names: Iterable[str]) -> list[str]:
    """Names differing from others only in case, spaces or Unicode form."""
    plain = {name: "".join(unicodedata.normalize("NFKC", name).casefold().split()) for name in names}
    times = Counter(plain.values())
    return [name for name, form in plain.items() if times[form] > 1]
