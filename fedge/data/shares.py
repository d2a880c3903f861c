"""Deals single windows to clients: by the class shares of each client, or by the user's code.

Shape letters: N windows, K clients, S leaf servers.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace

import numpy as np

from fedge.config.config import Config
from fedge.config.registers.determinism import FROM_RNG, call_checked
from fedge.config.registers.option import ConfigError, shown
from fedge.config.registers.parts import PARTITIONS
from fedge.config.registers.traits import DRAWN, TOPPED_UP
from fedge.config.topology import known_per_leaf, unseen_ids
from fedge.data.owners import NOBODY
from fedge.data.skew import fill_empty_clients, independent_shares
from fedge.data.split import TEST, TRAIN, UNUSED, VAL
from fedge.seeding import Purpose, numpy_stream
from hhar.windows.window_file import Windows

_MAX_DRAWS = 50


def deal_among_known(
    windows: Windows,
    reserved: np.ndarray,
    split: np.ndarray,
    config: Config,
    clients_per_leaf: Sequence[int],
    seed: int,
) -> np.ndarray:
    """The client (N,) of each window: unseen clients keep theirs, others go to training clients.

    Args:
        windows: N windows.
        reserved: (N,) unseen client of each window, or NOBODY.
        split: (N,) split.
        config: its `partition` section is read.
        clients_per_leaf: unseen clients included.
        seed: root of the stream for dealing.
    """
    count = config.partition.unseen_clients
    available = np.where(reserved == NOBODY, split, UNUSED)
    sizes = known_per_leaf(clients_per_leaf, count)
    if PARTITIONS.is_own(config.partition.kind):
        dealt = _deal_by_user_code(windows, available, config, sizes, seed)
    else:
        dealt = deal_windows(windows.labels, available, config, sizes, seed)
    known = np.setdiff1d(np.arange(sum(clients_per_leaf)), unseen_ids(clients_per_leaf, count))
    client = reserved.copy()
    client[dealt != NOBODY] = known[dealt[dealt != NOBODY]]
    return client


def _deal_by_user_code(
    windows: Windows, split: np.ndarray, config: Config, clients_per_leaf: Sequence[int], seed: int
) -> np.ndarray:
    """The client (N,) of each window as dealt by a user's function; NOBODY for windows left out."""
    kind, read_only = config.partition.kind, read_only_windows(windows)
    deal, arguments = PARTITIONS.load(kind), config.partition.arguments("kind")

    def call_deal() -> np.ndarray:
        return np.asarray(
            deal(read_only, list(clients_per_leaf), numpy_stream(seed, Purpose.PARTITION), **arguments)
        )

    with PARTITIONS.explaining_errors(kind):
        client = call_checked(PARTITIONS, kind, call_deal, FROM_RNG)
    last = sum(clients_per_leaf) - 1
    fits = client.shape == (len(windows.y),) and np.issubdtype(client.dtype, np.integer)
    if not fits or client.min() < NOBODY or client.max() > last:
        raise ConfigError(
            f"partition.kind {kind} must return a client 0..{last} for each of {len(windows.y)} windows, or "
            f"-1 for no client, but returned {shown(client)}; fix it"
        )
    return np.where(split == UNUSED, NOBODY, client)


def read_only_windows(windows: Windows) -> Windows:
    """The same windows in arrays protected from accidental changes by a user's code."""
    views = {}
    for field in fields(windows):
        value = getattr(windows, field.name)
        if isinstance(value, np.ndarray):
            views[field.name] = value.view()
            views[field.name].flags.writeable = False
    return replace(windows, **views)


def deal_windows(
    y: np.ndarray, split: np.ndarray, config: Config, clients_per_leaf: Sequence[int], seed: int
) -> np.ndarray:
    """The client (N,) of each window when windows are dealt at random within their split.

    Draws again, up to a fixed number of times, while a client would be left without windows of a split.
    """
    rng = numpy_stream(seed, Purpose.PARTITION)
    num_clients = sum(clients_per_leaf)
    shares_of: Shares = PARTITIONS.load(config.partition.kind)
    arguments = config.partition.arguments("kind")
    is_foreign = arguments.pop("test_deal", "matched") == "as-published"
    is_drawn, tops_up = (PARTITIONS.has(config.partition.kind, trait) for trait in (DRAWN, TOPPED_UP))
    for _ in range(_MAX_DRAWS):
        shares = shares_of(clients_per_leaf, int(y.max()) + 1, rng, **arguments)
        client = np.full(len(y), NOBODY, dtype=np.int64)
        for part in (TRAIN, VAL, TEST):
            if part == TEST and is_foreign:
                shares = independent_shares(clients_per_leaf, len(shares), rng, arguments["alpha_leaves"])
            held = np.zeros(num_clients, dtype=np.int64)
            for label in range(shares.shape[0]):
                members = rng.permutation(np.flatnonzero((split == part) & (y == label)))
                counts = _apportion(len(members), shares[label], held)
                client[members] = np.repeat(np.arange(num_clients), counts)
                held += counts
            if tops_up:
                client = fill_empty_clients(client, np.flatnonzero(split == part), clients_per_leaf)
        filled = [np.unique(client[split == part]).size for part in (TRAIN, VAL, TEST)]
        if min(filled) == num_clients or not is_drawn:
            break
    return client


Shares = Callable[..., np.ndarray]
"""(clients per leaf, classes, stream, arguments) → (classes, K): the share of each class's windows that each
client gets; rows sum to 1."""


def iid_shares(clients_per_leaf: Sequence[int], num_classes: int, rng: np.random.Generator) -> np.ndarray:
    """Give every client the same share of every class."""
    num_clients = sum(clients_per_leaf)
    return np.full((num_classes, num_clients), 1.0 / num_clients)


def imbalanced_shares(
    clients_per_leaf: Sequence[int], num_classes: int, rng: np.random.Generator, imbalance: float
) -> np.ndarray:
    """Give leaf 0 more of every class than each other leaf, with equal shares for a leaf's clients."""
    weights = np.ones(len(clients_per_leaf))
    weights[0] = imbalance
    leaf_shares = np.tile(weights / weights.sum(), (num_classes, 1))
    within = [np.full((num_classes, count), 1.0 / count) for count in clients_per_leaf]
    return _client_shares(leaf_shares, within)


def dirichlet_shares(
    clients_per_leaf: Sequence[int],
    num_classes: int,
    rng: np.random.Generator,
    alpha_leaves: float,
    alpha_clients: float,
) -> np.ndarray:
    """Draw every class's shares, of leaves and of a leaf's clients, from Dirichlet distributions."""
    leaf_shares = rng.dirichlet(np.full(len(clients_per_leaf), alpha_leaves), size=num_classes)
    within = [rng.dirichlet(np.full(k, alpha_clients), size=num_classes) for k in clients_per_leaf]
    return _client_shares(leaf_shares, within)


def _client_shares(leaf_shares: np.ndarray, within: Sequence[np.ndarray]) -> np.ndarray:
    """(classes, K) from the leaves' shares (classes, S) and, per leaf, its clients' (classes, k)."""
    columns = [leaf_shares[:, leaf : leaf + 1] * shares for leaf, shares in enumerate(within)]
    return np.concatenate(columns, axis=1)


def _apportion(total: int, shares: np.ndarray, held: np.ndarray) -> np.ndarray:
    """Integers near ``total * shares``, with sum `total`.

    Largest remainders first (Hamilton); among equal ones, the client with the fewest so far.
    """
    exact = total * shares
    counts = np.floor(exact).astype(np.int64)
    order = np.lexsort((held, -np.round(exact - counts, 9)))
    counts[order[: total - int(counts.sum())]] += 1
    return counts
