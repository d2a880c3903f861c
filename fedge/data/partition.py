"""Windows → clients, each with its own training, validation and test windows.

`user` and `device` deal whole owners and then split; the others split first and then deal windows, so that
no client ever trains on a recording that another is tested on. Unseen clients hold whole users in any case,
of whom no other client has a window.
Shape letters: N windows, K clients, S leaf servers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedge.config.choices import SORTED
from fedge.config.config import Config
from fedge.config.option import ConfigError, shown
from fedge.config.parts import DRAWN, FILES, OWNERS, PARTITIONS, SCENARIOS
from fedge.config.sections.data import PartitionConfig
from fedge.config.topology import known_per_leaf, unseen_ids
from fedge.data.scenario import Scenario, make_scenario
from fedge.data.split import TEST, TRAIN, UNUSED, VAL, blocks, groups_of, split_by_blocks, split_by_session
from fedge.seeding import Purpose, numpy_stream
from hhar.windows.join import SEPARATOR, source_of
from hhar.windows.window_file import Windows

_SPLIT_NAMES = {TRAIN: "training", VAL: "validation", TEST: "test"}
_MAX_DRAWS = 50
NOBODY = -1  # in place of a client: the window is not used


@dataclass(frozen=True)
class Partition:
    """Who holds what.

    Attributes:
        clients: per client, per split (training, validation, test): sorted window indices.
        split_kind: "session" or "blocks".
        unseen_clients: clients that hold users whom no other client has; they take no part in training.
        scenario: what is done to the windows of whole leaves, or None.
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
        seed: root of the streams that deal users, shuffle sessions and windows, and draw the scenario.

    Raises:
        ConfigError: too few users or devices, no sessions to split by, a client without training, validation
            or test windows, or unseen clients or a scenario that the data do not allow.
    """
    kind = _split_kind(windows, config)
    _refuse_unseen_clients_without_users(windows, config, clients_per_leaf)
    order = _Order(config.partition, seed)
    if config.scenario == "rate" and windows.x.ndim != 3:
        raise ConfigError("scenario rate needs windows in time, but the data are images; use scenario gain")
    planted = make_scenario(config, windows.channels, len(windows.classes), clients_per_leaf, seed)
    unseen_clients = unseen_ids(clients_per_leaf, config.partition.unseen_clients)
    if PARTITIONS.has(config.partition.kind, OWNERS):
        if SCENARIOS.has(config.scenario, FILES):
            assert planted is not None
            client = _deal_by_source(windows, planted, order)
            group = client
        else:
            client, group = _deal_owners(windows, config, sum(clients_per_leaf), kind, order)
        used = _held(client, windows.y, planted)
        split = _split_apart(windows, config, kind, group, np.isin(client, unseen_clients), used, seed)
    else:
        client = _reserve_users(windows.user, unseen_clients, order)
        reserved = client != NOBODY
        split = _split_apart(windows, config, kind, _codes(windows.user), reserved, None, seed)
        client = _deal_among_known(windows, client, split, config, clients_per_leaf, seed)
        split[~_held(client, windows.y, planted)] = UNUSED
    clients = _indices(client, split, sum(clients_per_leaf))
    _refuse_empty(clients, windows, config, kind, planted)
    return Partition(clients, kind, frozenset(unseen_clients), planted)


def own_partition(
    windows: Windows, config: Config, clients_per_leaf: Sequence[int], client: int, seed: int
) -> Partition:
    """Give one client all windows, split by themselves: nobody else has to be there.

    Args:
        windows: N windows, all of them the client's.
        config: its `data` section and the scenario are read.
        clients_per_leaf: as in `partition`.
        client: its partition id.
        seed: root of the streams that shuffle sessions and draw the scenario.

    Raises:
        ConfigError: there are no sessions to split by, or windows of a split are missing.
    """
    kind = _split_kind(windows, config)
    planted = make_scenario(config, windows.channels, len(windows.classes), clients_per_leaf, seed)
    unseen = unseen_ids(clients_per_leaf, config.partition.unseen_clients)
    owner = np.full(len(windows.y), client)
    split = np.full(len(windows.y), UNUSED)
    rows = np.flatnonzero(_held(owner, windows.y, planted))
    rng = numpy_stream(seed, Purpose.SPLIT, 2, client)
    split[rows] = _split(windows, rows, config, kind, np.zeros(len(rows), dtype=np.int64), rng)
    clients = _indices(owner, split, sum(clients_per_leaf))
    _refuse_empty([clients[client]], windows, config, kind, None)
    return Partition(clients, kind, frozenset(unseen), planted)


def _held(client: np.ndarray, y: np.ndarray, planted: Scenario | None) -> np.ndarray:
    """Tell of each window (N,) whether the group of its client holds its class; True for NOBODY's."""
    used = np.ones(len(y), dtype=bool)
    if planted is None:
        return used
    for mine in groups_of(client):
        k = int(client[mine[0]])
        held = None if k == NOBODY else planted.change_of(k).held
        if held is not None:
            used[mine] = held[y[mine]]
    return used


def _indices(
    client: np.ndarray, split: np.ndarray, num_clients: int
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return every client's window indices per split: TRAIN, VAL, TEST."""
    nothing = np.empty(0, dtype=np.int64)
    found: list[list[np.ndarray]] = [[nothing] * 3 for _ in range(num_clients)]
    for mine in groups_of(client * (UNUSED + 1) + split):
        k, part = int(client[mine[0]]), int(split[mine[0]])
        if k != NOBODY and part != UNUSED:
            found[k][part] = mine
    return [(train, val, test) for train, val, test in found]


def _split_kind(windows: Windows, config: Config) -> str:
    """Return "session" or "blocks", or refuse sessions that are not there."""
    if config.data.split == "session" and windows.session is None:
        raise ConfigError(
            'data.split is "session", but the window file names no sessions; set data.split="blocks"'
        )
    if config.data.split == "auto":
        return "blocks" if windows.session is None else "session"
    return config.data.split


def _split_apart(
    windows: Windows,
    config: Config,
    kind: str,
    group: np.ndarray,
    unseen: np.ndarray,
    used: np.ndarray | None,
    seed: int,
) -> np.ndarray:
    """Return the split of each window (N,), where those of unseen clients have no influence on the others'.

    Args:
        windows: N windows.
        config: its `data` section is read.
        kind: "session" or "blocks".
        group: (N,) stratifies the sessions.
        unseen: (N,) whether the window is an unseen client's.
        used: (N,) False for windows that are UNUSED and as if they were not there; None uses all.
        seed: root of the streams that shuffle sessions.
    """
    split = np.full(len(group), UNUSED)
    for where, mine in (((), ~unseen), ((1,), unseen)):
        rows = np.flatnonzero(mine if used is None else mine & used)
        if len(rows):
            rng = numpy_stream(seed, Purpose.SPLIT, *where)
            split[rows] = _split(windows, rows, config, kind, group[rows], rng)
    return split


def _split(
    windows: Windows, rows: np.ndarray, config: Config, kind: str, group: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return the split of the windows at `rows`, whose sessions `group` stratifies."""
    y = windows.y[rows]
    if kind == "session":
        return split_by_session(group, _sessions(windows)[rows], y, config.data, rng)
    # a user that is cut over several clients is a stream of its own at each
    return split_by_blocks(_pair_codes(group, _streams(windows)[rows]), y, config.data)


def _streams(windows: Windows) -> np.ndarray:
    """Return a number per user and device: windows of one stream are in time order."""
    return _codes(windows.user) if windows.device is None else _pair_codes(windows.user, windows.device)


def _codes(labels: np.ndarray) -> np.ndarray:
    """Return labels as whole numbers 0, 1, … in sorted order of the distinct labels."""
    return np.unique(labels, return_inverse=True)[1]


def _pair_codes(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return one whole number per distinct pair."""
    outer, inner = _codes(first), _codes(second)
    return _codes(outer * (int(inner.max()) + 1) + inner)


def _sessions(windows: Windows) -> np.ndarray:
    """Return a number per session; equal names of two users are two sessions."""
    assert windows.session is not None
    return _pair_codes(windows.user, windows.session)


# --- whole users or devices ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Order:
    """In which order owners are dealt: who stands where is a draw, unless `partition.deal` is "sorted".

    Attributes:
        config: its `deal` is read.
        seed: of the run.
    """

    config: PartitionConfig
    seed: int

    def of(self, count: int, *where: int) -> np.ndarray:
        """Return the places (count,) of owners 0, 1, …, in sorted order of their names."""
        if self.config.deal == SORTED:
            return np.arange(count)
        own = self.config.deal_seed
        return numpy_stream(self.seed if own is None else own, Purpose.DEAL, *where).permutation(count)


def _deal_by_source(windows: Windows, planted: Scenario, order: _Order) -> np.ndarray:
    """Return the client (N,) of each window: users of file g are dealt to the clients of leaves of group g.

    Raises:
        ConfigError: a file has fewer users than its leaves have clients.
    """
    source, user = source_of(windows), _codes(windows.user)
    leaf_of = np.repeat(np.arange(len(planted.groups)), planted.clients_per_leaf)
    client = np.full(len(user), NOBODY, dtype=np.int64)
    for group in range(len(planted.changes)):
        rows = np.flatnonzero(source == group)
        mine = np.flatnonzero(np.array(planted.groups)[leaf_of] == group)
        owner = _codes(user[rows])
        count = int(owner.max()) + 1
        if count < len(mine):
            raise ConfigError(
                f"scenario {planted.kind} needs a user for each client, but "
                f"{windows.user[rows[0]].split(SEPARATOR)[0]} has {count} users for {len(mine)} clients at "
                f"{planted.groups.count(group)} leaves; use a smaller federation, or scenario-sizes"
            )
        client[rows] = mine[order.of(count, group)[owner] % len(mine)]
    return client


def _deal_owners(
    windows: Windows, config: Config, num_clients: int, kind: str, order: _Order
) -> tuple[np.ndarray, np.ndarray]:
    """Return (client, group that stratifies its sessions) per window for whole users or devices."""
    what = config.partition.kind
    owner = _codes(PARTITIONS.load(what)(windows))
    num_owners = int(owner.max()) + 1
    owner = order.of(num_owners)[owner]
    if num_owners >= num_clients:
        client = owner % num_clients
    elif not config.partition.split_users:
        raise ConfigError(
            f"partition.kind={what} needs at least one {what} per client, but there are {num_owners} "
            f"{what}s for {num_clients} clients; use at most that many (--clients {num_owners}), or set "
            f"partition.split-users=true"
        )
    else:
        client = _cut_owners(windows, owner, num_clients, kind, config)
    # One motion may be recorded on several devices: then its split must be the same at every client.
    return client, client if what == "user" else _codes(windows.user)


def _cut_owners(
    windows: Windows, owner: np.ndarray, num_clients: int, kind: str, config: Config
) -> np.ndarray:
    """Return the client (N,) of each window when every owner is cut over one or more clients in a row.

    Without sessions a user is cut in time, on each of their devices alike, and split afterwards. A device is
    cut between its users: it is split as a whole, and a block of its time would be of one split only.
    """
    cut_users = config.partition.kind == "user"
    stream = _streams(windows) if cut_users else owner
    guard_windows = config.data.guard_windows if cut_users else 0
    client = np.empty(len(owner), dtype=np.int64)
    first, num_owners = 0, int(owner.max()) + 1
    for value, members in enumerate(groups_of(owner)):
        share = num_clients // num_owners + (value < num_clients % num_owners)
        if kind == "session":
            client[members] = first + _deal_sessions_evenly(
                _sessions(windows)[members], windows.y[members], share
            )
        else:
            part = _deal_blocks(stream[members], windows.y[members], share, guard_windows)
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
    """Return who made each window (N,)."""
    return windows.user


def devices(windows: Windows) -> np.ndarray:
    """Return on which device each window (N,) was recorded.

    Raises:
        ConfigError: the data do not say.
    """
    if windows.device is None:
        raise ConfigError(
            'partition.kind is "device", but the window file names no devices; set partition.kind="user"'
        )
    return windows.device


# --- unseen clients ----------------------------------------------------------------------------------------


def _refuse_unseen_clients_without_users(
    windows: Windows, config: Config, clients_per_leaf: Sequence[int]
) -> None:
    """Raise ConfigError when unseen clients cannot hold users of whom no other client has a window."""
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
            f"{unseen_clients} per leaf, take all of {users} users; lower it or hierarchy.num-servers"
        )


def _reserve_users(users: np.ndarray, unseen_clients: Sequence[int], order: _Order) -> np.ndarray:
    """Return the unseen client (N,) of each window if each such gets one user, NOBODY for all others'.

    The users of unseen clients are evenly spaced among all users in the order of the deal; with as many users
    as clients and leaves of one size they are those that partition.kind=user would give them.
    """
    client = np.full(len(users), NOBODY, dtype=np.int64)
    user = _codes(users)
    num_users = int(user.max()) + 1
    user = order.of(num_users)[user]
    for turn, unseen_client in enumerate(unseen_clients, start=1):
        client[user == turn * num_users // len(unseen_clients) - 1] = unseen_client
    return client


def _deal_among_known(
    windows: Windows,
    reserved: np.ndarray,
    split: np.ndarray,
    config: Config,
    clients_per_leaf: Sequence[int],
    seed: int,
) -> np.ndarray:
    """Return the client (N,) of each window: unseen clients keep theirs, others go to those who train.

    Args:
        windows: N windows.
        reserved: (N,) unseen client of each window, or NOBODY.
        split: (N,) split.
        config: its `partition` section is read.
        clients_per_leaf: unseen clients included.
        seed: root of the stream that deals.
    """
    count = config.partition.unseen_clients
    left = np.where(reserved == NOBODY, split, UNUSED)
    sizes = known_per_leaf(clients_per_leaf, count)
    if PARTITIONS.is_own(config.partition.kind):
        dealt = _deal_as_asked(windows, left, config, sizes, seed)
    else:
        dealt = _deal_windows(windows.y, left, config, sizes, seed)
    known = np.setdiff1d(np.arange(sum(clients_per_leaf)), unseen_ids(clients_per_leaf, count))
    client = reserved.copy()
    client[dealt != NOBODY] = known[dealt[dealt != NOBODY]]
    return client


def _deal_as_asked(
    windows: Windows, split: np.ndarray, config: Config, clients_per_leaf: Sequence[int], seed: int
) -> np.ndarray:
    """Return the client (N,) of each window as a function of the user's deals them; NOBODY for the rest."""
    kind, rng = config.partition.kind, numpy_stream(seed, Purpose.PARTITION)
    deal = PARTITIONS.load(kind)
    with PARTITIONS.carried_out(kind):
        found = np.asarray(deal(windows, list(clients_per_leaf), rng, **config.partition.arguments("kind")))
    most = sum(clients_per_leaf) - 1
    fits = found.shape == windows.y.shape and np.issubdtype(found.dtype, np.integer)
    if not fits or found.min() < NOBODY or found.max() > most:
        raise ConfigError(
            f"partition.kind {kind} must return a client 0..{most} for each of {len(windows.y)} windows, or "
            f"-1 for nobody, but returned {shown(found)}; mend it"
        )
    return np.where(split == UNUSED, NOBODY, found)


# --- single windows -----------------------------------------------------------------------------------


def _deal_windows(
    y: np.ndarray, split: np.ndarray, config: Config, clients_per_leaf: Sequence[int], seed: int
) -> np.ndarray:
    """Return the client (N,) of each window when windows are dealt at random within their split.

    Draws again, up to a fixed number of times, while a client would be left without windows of a split.
    """
    rng = numpy_stream(seed, Purpose.PARTITION)
    num_clients = sum(clients_per_leaf)
    shares_of: Shares = PARTITIONS.load(config.partition.kind)
    is_drawn = PARTITIONS.has(config.partition.kind, DRAWN)
    for _ in range(_MAX_DRAWS):
        shares = shares_of(config.partition, clients_per_leaf, int(y.max()) + 1, rng)
        client = np.full(len(y), NOBODY, dtype=np.int64)
        for part in (TRAIN, VAL, TEST):
            held = np.zeros(num_clients, dtype=np.int64)
            for label in range(shares.shape[0]):
                members = rng.permutation(np.flatnonzero((split == part) & (y == label)))
                counts = _apportion(len(members), shares[label], held)
                client[members] = np.repeat(np.arange(num_clients), counts)
                held += counts
        filled = [np.unique(client[split == part]).size for part in (TRAIN, VAL, TEST)]
        if min(filled) == num_clients or not is_drawn:
            break
    return client


Shares = Callable[[PartitionConfig, Sequence[int], int, np.random.Generator], np.ndarray]
"""(configuration, clients per leaf, classes, stream) → (classes, K): the share of each class's windows that
each client gets; rows sum to 1."""


def iid_shares(
    config: PartitionConfig, clients_per_leaf: Sequence[int], num_classes: int, rng: np.random.Generator
) -> np.ndarray:
    """Give every client the same of every class."""
    num_clients = sum(clients_per_leaf)
    return np.full((num_classes, num_clients), 1.0 / num_clients)


def imbalanced_shares(
    config: PartitionConfig, clients_per_leaf: Sequence[int], num_classes: int, rng: np.random.Generator
) -> np.ndarray:
    """Give leaf 0 more of every class than each other leaf; its clients the same each."""
    weights = np.ones(len(clients_per_leaf))
    weights[0] = config.imbalance
    leaf_shares = np.tile(weights / weights.sum(), (num_classes, 1))
    within = [np.full((num_classes, count), 1.0 / count) for count in clients_per_leaf]
    return _within_leaves(leaf_shares, within)


def dirichlet_shares(
    config: PartitionConfig, clients_per_leaf: Sequence[int], num_classes: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw every class's shares, of leaves and of a leaf's clients, from Dirichlet distributions."""
    leaf_shares = rng.dirichlet(np.full(len(clients_per_leaf), config.alpha_leaves), size=num_classes)
    within = [rng.dirichlet(np.full(k, config.alpha_clients), size=num_classes) for k in clients_per_leaf]
    return _within_leaves(leaf_shares, within)


def _within_leaves(leaf_shares: np.ndarray, within: Sequence[np.ndarray]) -> np.ndarray:
    """Return (classes, K) from the leaves' shares (classes, S) and, per leaf, its clients' (classes, k)."""
    columns = [leaf_shares[:, leaf : leaf + 1] * shares for leaf, shares in enumerate(within)]
    return np.concatenate(columns, axis=1)


def _apportion(total: int, shares: np.ndarray, held: np.ndarray) -> np.ndarray:
    """Return whole numbers near ``total * shares`` that sum to `total`.

    Largest remainders first (Hamilton); among equal ones, who holds the least so far.
    """
    exact = total * shares
    counts = np.floor(exact).astype(np.int64)
    order = np.lexsort((held, -np.round(exact - counts, 9)))
    counts[order[: total - int(counts.sum())]] += 1
    return counts


_REMEDIES = {
    "user": 'use fewer clients, or set data.split="blocks"',
    "device": 'use fewer clients, or set data.split="blocks"',
    "dirichlet": "raise partition.alpha-leaves and partition.alpha-clients, or use fewer clients",
    "iid": "use fewer clients or more data",
    "imbalance": "lower partition.imbalance or use fewer clients",
}


def _refuse_empty(
    clients: list[tuple[np.ndarray, np.ndarray, np.ndarray]],
    windows: Windows,
    config: Config,
    kind: str,
    planted: Scenario | None,
) -> None:
    """Raise ConfigError for the first client that lacks windows of a split."""
    dealt = config.partition.kind
    remedy = (
        _REMEDIES["iid"]
        if kind == "blocks" and dealt in ("user", "device")
        else _REMEDIES.get(dealt, "change how it deals")
    )
    for k, parts in enumerate(clients):
        for part, indices in enumerate(parts):
            held = planted.change_of(k).held if planted else None
            if len(indices) == 0 and held is not None:
                classes = ", ".join(np.array(windows.classes)[held])
                raise ConfigError(
                    f"scenario {config.scenario} must leave every client {_SPLIT_NAMES[part]} windows, but "
                    f"client {k} has none of {classes}; use fewer clients, fewer scenario-groups, another "
                    f'seed or data.split="blocks"'
                )
            if len(indices) == 0:
                raise ConfigError(
                    f"partition.kind={dealt} must give every client {_SPLIT_NAMES[part]} windows, "
                    f"but client {k} of {len(clients)} has none; {remedy}"
                )
