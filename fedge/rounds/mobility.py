"""Mobility: moves of clients between leaves before a global round. A mobility is one function

    move(places, turn, further arguments by keyword) → {client: new leaf} for moving clients

called before every global round. It gets the places of clients (`Places`) and the round (`MoveTurn`) with a
random generator, and keeps no state. Unseen clients never move. `fedge.leaf.moving` says what a client takes
along.
"""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from fedge.cloud.aggregator import CloudAggregator
from fedge.config.config import Config
from fedge.config.registers.determinism import FROM_RNG, call_again, call_checked
from fedge.config.registers.option import ConfigError, shown
from fedge.config.registers.parts import MOBILITIES
from fedge.config.topology import leaf_of_clients, unseen_ids
from fedge.data.table_files import table_of
from fedge.leaf.leaf import Leaf
from fedge.leaf.moving import move
from fedge.seeding import Purpose, numpy_stream
from fedge.states.averaging import State

logger = logging.getLogger(__name__)

_KEY = "hierarchy.mobility"
_MOST_TRIED_ROUNDS = 1000
_HOME = "home"
_NEAR = 1e-9  # tolerance for probabilities that sum to 1


@dataclass(frozen=True)
class Places:
    """Places of the training clients; every array is (n,), in the order of `ids`.

    Attributes:
        ids: partition ids, int64, ascending.
        leaf: current leaf, int64.
        home: initial leaf, int64.
        windows: number of training windows, int64; 1 in the trial before a run.
        leaves: number of leaves.
        unseen: unseen client → its leaf.
    """

    ids: np.ndarray
    leaf: np.ndarray
    home: np.ndarray
    windows: np.ndarray
    leaves: int
    unseen: Mapping[int, int]


@dataclass(frozen=True)
class MoveTurn:
    """The round of the moves.

    Attributes:
        global_round: the global round before which clients move, 1, 2, …
        rng: random generator, seeded by run and round.
    """

    global_round: int
    rng: np.random.Generator


Moves = Mapping[int, int]
Mobility = Callable[..., Moves]


# --- built in -----------------------------------------------------------------------------------------


def schedule(places: Places, turn: MoveTurn, moves: str) -> Moves:
    """Listed moves: "3: 4>1; 6: 4>home" sends client 4 to leaf 1 before round 3, and back before 6.

    Raises:
        ConfigError: the text is malformed.
    """
    return _parse_moves(moves, places).get(turn.global_round, {})


def _parse_moves(text: str, places: Places) -> dict[int, dict[int, int]]:
    """Global round → client → leaf."""
    home = dict(zip(places.ids.tolist(), places.home.tolist(), strict=True))
    moves: dict[int, dict[int, int]] = {}
    for part in str(text).split(";"):
        number, colon, entries = part.partition(":")
        words = [re.fullmatch(r"\s*(\d{1,9})\s*>\s*(\d{1,9}|home)\s*", word) for word in entries.split(",")]
        if not colon or not re.fullmatch(r"\s*[1-9]\d{0,8}\s*", number) or not all(words):
            raise ConfigError(
                f'{_KEY}-args.moves must be rounds with clients and leaves as "3: 4>1, 5>0; 6: 4>home", but '
                f"is {shown(text)}; fix it"
            )
        round_moves = moves.setdefault(int(number), {})
        for word in words:
            assert word is not None
            client, leaf = int(word[1]), word[2]
            if client in round_moves:
                raise ConfigError(
                    f"{_KEY}-args.moves must send a client to one leaf in a round, but sends {client} twice "
                    f"in round {int(number)}; fix it"
                )
            round_moves[client] = home.get(client, 0) if leaf == _HOME else int(leaf)
    return moves


def markov(
    places: Places, turn: MoveTurn, stay: float = 0.9, matrix: Sequence[Sequence[float]] | None = None
) -> Moves:
    """Independent Markov chains: a client stays with probability `stay`, or moves to a uniform other leaf.

    Moves start before global round 2, from each client's home.

    Args:
        places: places of clients.
        turn: the round.
        stay: probability of staying, 0 to 1.
        matrix: in place of `stay`, transition matrix (leaves, leaves) whose rows sum to 1.

    Raises:
        ConfigError: the probabilities are invalid.
    """
    chances = _chances(stay, matrix, places.leaves)
    if turn.global_round == 1:
        return {}
    ends = np.cumsum(chances, axis=1)
    ends[:, -1] = np.inf  # rounding
    drawn = turn.rng.random(len(places.ids))
    destinations = [
        int(np.searchsorted(ends[leaf], draw, side="right"))
        for leaf, draw in zip(places.leaf, drawn, strict=True)
    ]
    return dict(zip(places.ids.tolist(), destinations, strict=True))


def _chances(stay: Any, matrix: Any, leaves: int) -> np.ndarray:
    """Transition matrix (S, S), float64."""
    if matrix is None:
        if isinstance(stay, bool) or not isinstance(stay, int | float) or not 0 <= stay <= 1:
            raise ConfigError(f"{_KEY}-args.stay must be a number of 0 to 1, but is {shown(stay)}; try 0.9")
        elsewhere = (1 - stay) / max(1, leaves - 1)
        uniform: np.ndarray = np.full((leaves, leaves), elsewhere) + np.eye(leaves) * (stay - elsewhere)
        return uniform
    try:
        chances = np.array(matrix, dtype=np.float64)
    except (TypeError, ValueError):
        chances = np.zeros(0)
    is_valid = chances.shape == (leaves, leaves) and np.isfinite(chances).all() and (chances >= 0).all()
    if not is_valid or not np.allclose(chances.sum(axis=1), 1.0, rtol=0, atol=_NEAR):
        raise ConfigError(
            f"{_KEY}-args.matrix must be {leaves} rows of {leaves} chances, each row adding up to 1, but is "
            f"{shown(matrix)}; fix it"
        )
    return chances


def trace(places: Places, turn: MoveTurn, path: str) -> Moves:
    """Moves from a CSV or Parquet file with columns round (or global_round), client, leaf.

    A row places a client at a leaf from its round on. Rows for staying or unseen clients have no effect, so a
    run's clients.csv can be replayed.

    Raises:
        ConfigError: the file cannot be read, or has wrong columns or values.
    """
    file = Path(str(path))
    stat = file.stat() if file.is_file() else None
    key = (stat.st_size, stat.st_mtime_ns) if stat else (0, 0)
    moves = _read_moves(str(file), key).get(turn.global_round, {})
    return {client: leaf for client, leaf in moves.items() if places.unseen.get(client) != leaf}


@lru_cache(maxsize=4)
def _read_moves(path: str, state: tuple[int, int]) -> dict[int, dict[int, int]]:
    """Global round → client → leaf from a file, cached until its `state` (size, time) changes."""
    option = f"{_KEY}-args.path"
    names, rows = table_of(Path(path), option)
    rounds = next((name for name in ("round", "global_round") if name in names), None)
    if rounds is None or not {"client", "leaf"} <= set(names):
        raise ConfigError(
            f"{option} must have columns round, client and leaf, but {path} has {shown(list(names))}; fix it"
        )
    moves: dict[int, dict[int, int]] = {}
    for place, row in rows:
        cells = [str(row[name]).strip() for name in (rounds, "client", "leaf")]
        if not all(cell.isdecimal() and len(cell) < 10 for cell in cells):
            raise ConfigError(
                f"{option} must have whole numbers of at least 0 as round, client and leaf, but {place} has "
                f"{shown(cells)}; fix it"
            )
        number, client, leaf = map(int, cells)
        if moves.setdefault(number, {}).setdefault(client, leaf) != leaf:
            raise ConfigError(
                f"{option} must have a client at one leaf in a round, but {place} has client {client} at "
                f"leaf {leaf}, too; fix it"
            )
    return moves


# --- calls --------------------------------------------------------------------------------------------


class Mover:
    """Calls a run's mobility.

    Attributes:
        home: partition id → initial leaf of a training client.
    """

    def __init__(self, config: Config, seed: int, home: Mapping[int, int], unseen: Mapping[int, int]) -> None:
        """Store the constants of the run.

        Args:
            config: configuration, of which `hierarchy` is read.
            seed: seed of the run.
            home: partition id → initial leaf, for training clients.
            unseen: partition id → leaf, for unseen clients, which never move.
        """
        self._hierarchy = config.hierarchy
        self._seed = seed
        self.home = dict(sorted(home.items()))
        self._unseen = dict(unseen)

    def move_clients(
        self,
        global_round: int,
        leaves: Sequence[Leaf],
        cloud: CloudAggregator,
        keep: Callable[[State], State],
    ) -> dict[int, int]:
        """Move clients before a global round, and log it; return client → its former leaf.

        Args:
            global_round: 1, 2, …
            leaves: all leaves, in order; modified.
            cloud: notified of the moves.
            keep: stores large states in files or in memory.

        Raises:
            ConfigError: as for `moves`.
        """
        leaf_of = {client: leaf.index for leaf in leaves for client in leaf.clients}
        windows = {client: count for leaf in leaves for client, count in leaf.train_samples.items()}
        came_from = move(leaves, self.moves(global_round, leaf_of, windows))
        if came_from:
            logger.info("global round %d: clients that came from another leaf: %s", global_round, came_from)
        cloud.note_moves(bool(came_from), any(not leaf.clients for leaf in leaves))
        for leaf in leaves:
            leaf.keep_states(keep)
            if not leaf.clients:
                logger.warning(
                    "global round %d: leaf %d has no clients: it keeps its model and takes part in nothing",
                    global_round, leaf.index,
                )  # fmt: skip
        return came_from

    def moves(
        self, global_round: int, leaf_of: Mapping[int, int], windows: Mapping[int, int]
    ) -> dict[int, int]:
        """Client → new leaf, for clients moving before a global round.

        Args:
            global_round: 1, 2, …
            leaf_of: training client → its leaf.
            windows: client → number of training windows.

        Raises:
            ConfigError: a user's mobility fails, or moves an unseen client or to an unknown leaf.
        """
        ids = list(self.home)
        current, home, window_counts = (
            np.array([mapping[client] for client in ids], np.int64)
            for mapping in (leaf_of, self.home, windows)
        )
        leaves = self._hierarchy.num_servers
        places = Places(np.array(ids, np.int64), current, home, window_counts, leaves, self._unseen)
        turn = MoveTurn(global_round, numpy_stream(self._seed, Purpose.MOBILITY, global_round))
        name = self._hierarchy.mobility
        with MOBILITIES.explaining_errors(name):
            result = MOBILITIES.load(name)(places, turn, **self._hierarchy.arguments("mobility"))
        self._refuse_invalid_moves(result, global_round)
        return {int(c): int(leaf) for c, leaf in sorted(result.items()) if leaf_of[int(c)] != int(leaf)}

    def _refuse_invalid_moves(self, moves: Any, global_round: int) -> None:
        """Raise ConfigError unless all moves are of training clients to existing leaves."""
        rule = f"{_KEY} {self._hierarchy.mobility} must send clients that train to leaves"
        if not isinstance(moves, Mapping):
            raise ConfigError(
                f"{rule}, client → leaf, but before global round {global_round} it returned {shown(moves)}; "
                f"fix it"
            )
        for pair in moves.items():
            are_integers = all(isinstance(n, int | np.integer) and not isinstance(n, bool) for n in pair)
            if not are_integers or pair[0] not in self.home or not 0 <= pair[1] < self._hierarchy.num_servers:
                raise ConfigError(
                    f"{rule} 0 to {self._hierarchy.num_servers - 1}, but before global round {global_round} "
                    f"it sends {shown(pair[0])} to {shown(pair[1])}; fix it"
                )


def mover_of(config: Config, seed: int, leaves: Sequence[Leaf]) -> Mover | None:
    """Mover of a run's clients, at its start; None if they never move."""
    if not config.hierarchy.moves:
        return None
    home = {client: leaf.index for leaf in leaves for client in leaf.clients}
    unseen = {client: leaf.index for leaf in leaves for client in leaf.unseen_clients}
    return Mover(config, seed, home, unseen)


def refuse_impossible_moves(config: Config, sizes: Sequence[int], seed: int) -> None:
    """Raise ConfigError for a mobility that fails, gives invalid moves or ignores the seed, by a trial.

    Args:
        config: configuration of the run.
        sizes: number of clients of each leaf.
        seed: seed of the run.
    """
    if not config.hierarchy.moves:
        return
    unseen = set(unseen_ids(sizes, config.partition.unseen_clients))
    places = dict(enumerate(leaf_of_clients(sizes)))
    home = {client: leaf for client, leaf in places.items() if client not in unseen}
    mover = Mover(config, seed, home, {client: places[client] for client in unseen})
    name = config.hierarchy.mobility

    def moves() -> list[dict[int, int]]:
        leaf_of, rounds = dict(home), []
        for global_round in range(1, min(config.num_server_rounds, _MOST_TRIED_ROUNDS) + 1):
            ask = partial(mover.moves, global_round, leaf_of, dict.fromkeys(home, 1))
            rounds.append(call_again(MOBILITIES, name, ask, FROM_RNG))
            leaf_of |= rounds[-1]
        return rounds

    call_checked(MOBILITIES, name, moves, FROM_RNG)
