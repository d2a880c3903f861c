"""Number of clients of a run, and a remark where that is not one per user."""

import numpy as np

from fedge.config.config import Config
from fedge.config.option import ConfigError
from fedge.config.parts import PARTITIONS
from fedge.config.traits import WHOLE_USERS
from hhar.windows.window_file import Windows

AUTO = "auto"
_ONE_EACH = "fedge run --clients {users}, or flwr run . --federation-config 'options.num-supernodes={users}'"


def clients_for(config: Config, windows: Windows, there: int) -> int:
    """Number of clients of a run whose options do not say it.

    One per user, where `partition.kind` deals users and the data name several; else as many as the federation
    has. The synthetic set has as many users as there are clients, unless `data.synthetic-users` says it;
    where users are to be cut (`partition.split-users`), fewer users than clients are intended; and
    `hierarchy.clients-per-server` may add up to something else.

    Args:
        config: of the run.
        windows: all of them.
        there: clients of the federation that nobody has chosen.
    """
    users = np.unique(windows.user).size
    sizes = config.hierarchy.clients_per_server
    is_said = sizes == AUTO or _sum(sizes) == users
    if not PARTITIONS.has(config.partition.kind, WHOLE_USERS) or users < 2 or not is_said:
        return there
    return max(users, there) if config.partition.split_users else users


def _sum(sizes: str) -> int:
    """Sum of "3,3,4"; 0 for text that is refused later."""
    parts = sizes.split(",")
    return sum(map(int, parts)) if all(p.strip().isdecimal() and len(p) < 10 for p in parts) else 0


def refuse_other_number(config: Config, there: int) -> None:
    """Raise ConfigError when a federation has another number of clients than the run is to have."""
    if config.clients not in (AUTO, there):
        raise ConfigError(
            f"clients must be the number of SuperNodes, but is {config.clients} for {there} of them; use "
            f"fedge run, which sets it, or flwr run . --federation-config "
            f"'options.num-supernodes={config.clients}'"
        )


def misfit(config: Config, windows: Windows, clients: int, one_each: str = _ONE_EACH) -> str | None:
    """A line where users are dealt and a client is not one user; None where all is as expected.

    `one_each` says how to have a client per user, with their number where "{users}" stands.
    """
    users = np.unique(windows.user).size
    if not PARTITIONS.has(config.partition.kind, WHOLE_USERS) or users == clients:
        return None
    if users < clients:
        return f"{clients} clients on {users} users: users are cut, and several clients are one person"
    return (
        f"{users} users on {clients} clients: some clients hold several users; for one each, "
        f"{one_each.format(users=users)}"
    )
