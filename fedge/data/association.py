"""Association: clients assigned to leaves, once, by their dealt windows.

    associate(clients, places, rng, further arguments by keyword) → (n,) leaf of each client

The function gets the dealt clients (`DealtClients`) and the number of places of each leaf, (S,) int64, all to
be filled. Clients' windows are then exchanged accordingly: everywhere else, clients 0..k0-1 belong to leaf 0,
the next k1 to leaf 1, and so on, whatever data they hold (`partition.csv` has their users). Unseen clients
stay where they were. Shape letters: n training clients, S leaves, C classes.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedge.config.config import Config
from fedge.config.registers.determinism import FROM_RNG, call_checked
from fedge.config.registers.option import ConfigError, shown
from fedge.config.registers.parts import ASSOCIATIONS
from fedge.config.topology import unseen_ids
from fedge.data.table_files import table_of
from fedge.seeding import Purpose, numpy_stream
from hhar.windows.window_file import Windows

Parts = tuple[np.ndarray, np.ndarray, np.ndarray]
_KEY = "hierarchy.association"
_MIN_GAIN = 1e-12  # smallest useful gain of a swap
_MAX_PAIRS = 2 * 10**8  # examined pairs of clients
_MAX_SWEEPS = 20


@dataclass(frozen=True)
class DealtClients:
    """Training clients, as dealt.

    Attributes:
        ids: (n,) int64, numbers of the deal, ascending.
        counts: (n, C) int64, training windows of each class; C is 0 where windows have no class.
        windows: (n,) int64, training windows.
    """

    ids: np.ndarray
    counts: np.ndarray
    windows: np.ndarray


Association = Callable[..., Sequence[int]]


# --- built in -----------------------------------------------------------------------------------------


def label_balance(
    clients: DealtClients, places: np.ndarray, rng: np.random.Generator, delays: str = ""
) -> np.ndarray:
    """Leaves whose class shares are close to those of all clients: the least Σ_l Σ_c |N_lc / N_l − N_c / N|.

    Source: Mhaisen et al. 2022, "Optimal User-Edge Assignment in Hierarchical Federated Learning Based on
    Statistical Properties and Network Topology Constraints": distances between the leaves' class shares are
    made small under limits of reach. Differences: every leaf has the places of
    `hierarchy.clients-per-server`; the sum is reduced by swaps of two clients until none helps, where the
    paper solves an integer program; pairs in `delays` are within reach.

    Args:
        clients: the clients, as dealt.
        places: (S,) of each leaf.
        rng: unused.
        delays: file of `delays_of` with the possible pairs; empty if all are possible.
    """
    _refuse_without_classes(clients, "label-balance")
    costs = np.where(np.isfinite(delays_of(delays, clients, len(places))), 0.0, np.inf)
    all_shares = clients.counts.sum(axis=0) / clients.counts.sum()

    def leaf_costs(counts: np.ndarray) -> np.ndarray:
        """Distance of leaves (…, C), each with windows, to all clients."""
        distances: np.ndarray = np.abs(_shares(counts) - all_shares).sum(axis=-1)
        return distances

    return _reduce_by_swaps(clients, places, costs, leaf_costs)


def share(
    clients: DealtClients, places: np.ndarray, rng: np.random.Generator, gamma: float = 1.0, delays: str = ""
) -> np.ndarray:
    """Mean delay of clients plus γ × the mean divergence of leaves: Σ_l N_l / N · KL(P_l ‖ P).

    P_l are the shares of classes of leaf l, P those of all clients, KL in nats.

    Source: Deng et al. 2021, "SHARE: Shaping Data Distribution at Edge for Communication-Efficient
    Hierarchical Federated Learning". Differences: the leaves are given, while the paper chooses them among
    the clients; every leaf has its places; both aims are one sum, reduced by swaps of two clients until none
    helps.

    Args:
        clients: the clients, as dealt.
        places: (S,) of each leaf.
        rng: unused.
        gamma: γ, at least 0, in seconds per nat.
        delays: file of `delays_of`; empty: there are none.

    Raises:
        ConfigError: γ is no such number, or windows have no class.
    """
    _refuse_without_classes(clients, "share")
    if isinstance(gamma, bool) or not isinstance(gamma, int | float) or not 0 <= gamma < math.inf:
        raise ConfigError(f"{_KEY}-args.gamma must be a number of at least 0, but is {shown(gamma)}; try 1.0")
    costs = delays_of(delays, clients, len(places)) / len(clients.ids)
    total = clients.counts.sum()
    all_shares = clients.counts.sum(axis=0) / total

    def leaf_costs(counts: np.ndarray) -> np.ndarray:
        """Weighted divergence of leaves (…, C)."""
        shares = _shares(counts)
        ratio = np.divide(shares, all_shares, out=np.ones_like(shares), where=shares > 0)
        divergences: np.ndarray = (
            gamma * (counts.sum(axis=-1) / total) * (shares * np.log(ratio)).sum(axis=-1)
        )
        return divergences

    return _reduce_by_swaps(clients, places, costs, leaf_costs)


def _shares(counts: np.ndarray) -> np.ndarray:
    """Shares of classes (…, C) of numbers of windows (…, C), each row with one at least."""
    shares: np.ndarray = counts / counts.sum(axis=-1, keepdims=True)
    return shares


def delays_of(path: str, clients: DealtClients, leaves: int) -> np.ndarray:
    """(n, S) float64: seconds between client and leaf in a file; infinite for missing pairs; 0 if no file.

    Args:
        path: CSV or Parquet with columns client (number of the deal), leaf, delay; empty for no file.
        clients: the clients, as dealt.
        leaves: S.

    Raises:
        ConfigError: the file is unreadable, or has other columns or numbers.
    """
    if not path:
        return np.zeros((len(clients.ids), leaves))
    option, file = f"{_KEY}-args.delays", Path(str(path))
    header, rows = table_of(file, option)
    if not {"client", "leaf", "delay"} <= set(header):
        raise ConfigError(f"{option} must have columns client, leaf and delay, but {path} has not; fix it")
    row_of = {int(client): row for row, client in enumerate(clients.ids)}
    delays = np.full((len(clients.ids), leaves), np.inf)
    for place, row in rows:
        try:
            client, leaf, delay = int(row["client"]), int(row["leaf"]), float(row["delay"])
        except (TypeError, ValueError):
            client, leaf, delay = -1, -1, math.nan
        if client < 0 or not 0 <= leaf < leaves or not 0 <= delay < math.inf:
            raise ConfigError(
                f"{option} must have client, leaf (0 to {leaves - 1}) and seconds of at least 0, but {place} "
                f"has {shown(dict(row))}; fix it"
            )
        if client in row_of:  # others are unseen clients, or not of this run
            delays[row_of[client], leaf] = delay
    return delays


def _refuse_without_classes(clients: DealtClients, name: str) -> None:
    """Raise ConfigError where windows have no class by which leaves could be alike."""
    if not clients.counts.shape[1]:
        raise ConfigError(
            f"{_KEY} {name} needs windows of one class each, but these have none; use another, or "
            f'{_KEY}="none"'
        )


def _reduce_by_swaps(
    clients: DealtClients,
    places: np.ndarray,
    costs: np.ndarray,
    leaf_costs: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    """(n,) leaves by which Σ costs + Σ leaf_costs is no larger after any swap of two clients.

    Args:
        clients: as dealt, the start of the search if possible for all.
        places: (S,) of each leaf.
        costs: (n, S) of each client at each leaf; infinite for impossible pairs.
        leaf_costs: cost of leaves by their windows of each class (…, C).
    """
    leaf = _initial_leaves(costs, places)
    counts, rows = clients.counts, np.arange(len(leaf))
    sums = np.zeros((len(places), counts.shape[1]), dtype=np.int64)
    np.add.at(sums, leaf, counts)
    for _ in range(max(1, min(_MAX_SWEEPS, _MAX_PAIRS // max(1, len(leaf) ** 2)))):
        has_changed = False
        for client in rows:
            current, targets = leaf[client], leaf
            change = counts - counts[client]  # gain of leaf `current` by a swap with each
            before = (
                leaf_costs(sums[current])
                + leaf_costs(sums)[targets]
                + costs[client, current]
                + costs[rows, targets]
            )
            after = leaf_costs(sums[current] + change) + leaf_costs(sums[targets] - change)
            gain = before - (after + costs[client, targets] + costs[rows, current])
            gain[targets == current] = -np.inf
            partner = int(np.argmax(gain))
            if gain[partner] > _MIN_GAIN:
                sums[current] += change[partner]
                sums[leaf[partner]] -= change[partner]
                leaf[client], leaf[partner] = leaf[partner], current
                has_changed = True
        if not has_changed:
            break
    return leaf


def _initial_leaves(costs: np.ndarray, places: np.ndarray) -> np.ndarray:
    """(n,) leaves at the start of the search: as dealt, or the cheapest assignment if this is impossible.

    Raises:
        ConfigError: the possible pairs allow no assignment of all clients.
    """
    dealt = np.repeat(np.arange(len(places)), places)
    if np.isfinite(costs[np.arange(len(dealt)), dealt]).all():
        return dealt
    from scipy.optimize import linear_sum_assignment

    place_costs = costs[:, dealt]
    try:
        rows, columns = linear_sum_assignment(place_costs)
    except ValueError:
        raise ConfigError(
            f"{_KEY}-args.delays must leave every client a leaf with a place for it, but does not; add rows, "
            f"or change the numbers of clients per leaf"
        ) from None
    leaf: np.ndarray = dealt[columns[np.argsort(rows)]]
    return leaf


# --- asked --------------------------------------------------------------------------------------------


def associated(
    parts: Sequence[Parts], windows: Windows, config: Config, clients_per_leaf: Sequence[int], seed: int
) -> list[Parts]:
    """Windows of each client, exchanged between clients by the association of a run.

    Args:
        parts: per client, as dealt.
        windows: windows of the run.
        config: its sections on hierarchy and partition are read.
        clients_per_leaf: S numbers.
        seed: root of the run's streams.

    Raises:
        ConfigError: a user's association fails, or leaves a place free.
    """
    if not config.hierarchy.associates:
        return list(parts)
    unseen = set(unseen_ids(clients_per_leaf, config.partition.unseen_clients))
    known = [client for client in range(len(parts)) if client not in unseen]
    places = np.array(clients_per_leaf, np.int64) - config.partition.unseen_clients
    dealt = DealtClients(
        np.array(known, np.int64), *_count_windows([parts[client][0] for client in known], windows)
    )
    name, arguments = config.hierarchy.association, config.hierarchy.arguments("association")
    associate = ASSOCIATIONS.load(name)

    def compute_leaves() -> np.ndarray:
        stream = numpy_stream(seed, Purpose.ASSOCIATION)
        return _check_leaves(name, associate(dealt, places.copy(), stream, **arguments), places)

    with ASSOCIATIONS.explaining_errors(name):
        leaf = call_checked(ASSOCIATIONS, name, compute_leaves, FROM_RNG)
    order = np.argsort(leaf, kind="stable")  # of leaf 0 first, each leaf's in the order of the deal
    exchanged = list(parts)
    for client, source in zip(known, order, strict=True):
        exchanged[client] = parts[known[source]]
    return exchanged


def _count_windows(train: Sequence[np.ndarray], windows: Windows) -> tuple[np.ndarray, np.ndarray]:
    """Per client its training windows of each class (n, C), and all of them (n,)."""
    has_classes = windows.y.ndim == 1 and windows.y.dtype.kind in "iu" and len(windows.classes) > 0
    classes = len(windows.classes) if has_classes else 0
    empty = np.zeros(0, np.int64)
    counts = [np.bincount(windows.y[rows], minlength=classes) if classes else empty for rows in train]
    return np.array(counts, np.int64).reshape(len(train), classes), np.array(
        [len(r) for r in train], np.int64
    )


def _check_leaves(name: str, result: Any, places: np.ndarray) -> np.ndarray:
    """(n,) leaves from an association; ConfigError unless they fill every place."""
    leaf = np.zeros(0)
    with suppress(ValueError):  # of lists of several lengths
        leaf = np.asarray(result) if isinstance(result, Sequence | np.ndarray) else leaf
    fits = leaf.shape == (int(places.sum()),) and leaf.dtype.kind in "iu"
    fits = fits and leaf.min() >= 0 and leaf.max() < len(places)
    if not fits or np.bincount(leaf, minlength=len(places)).tolist() != places.tolist():
        raise ConfigError(
            f"{_KEY} {name} must return the leaf of each of {int(places.sum())} clients, "
            f"{shown(places.tolist())} of each leaf, but returned {shown(result)}; fix it"
        )
    leaves: np.ndarray = leaf
    return leaves
