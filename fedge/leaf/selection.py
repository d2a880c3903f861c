"""Selection of a leaf's clients for a leaf round. A selection is one function

    select(clients, turn, further arguments by keyword) → partition ids of the training clients

called for every leaf in each leaf round that trains only some of its clients (a user's selection in every
leaf round). It gets what the leaf knows about its clients (`Candidates`) and about the round (`Turn`),
including a random generator, and keeps no state, so resumed runs, separate leaf servers and both engines
choose the same clients.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fedge.config.registers.determinism import FROM_RNG, call_again, call_checked
from fedge.config.registers.option import ConfigError, shown
from fedge.config.registers.parts import CLIENT_SELECTIONS
from fedge.config.sections.hierarchy import HierarchyConfig
from fedge.leaf.training_history import Candidates
from fedge.seeding import Purpose, numpy_stream

_KEY = "hierarchy.selection"


@dataclass(frozen=True)
class Turn:
    """The leaf round for which clients are chosen.

    Attributes:
        count: number of clients to choose, at most all.
        leaf: number of the leaf.
        global_round, leaf_round: 1, 2, …; leaf rounds are counted over the run.
        rng: random generator, seeded by run, leaf and round.
    """

    count: int
    leaf: int
    global_round: int
    leaf_round: int
    rng: np.random.Generator


Selection = Callable[..., Sequence[int]]


def uniform(clients: Candidates, turn: Turn) -> Sequence[int]:
    """Uniform sampling without replacement (McMahan et al. 2017)."""
    return list(turn.rng.choice(clients.ids, size=turn.count, replace=False))


def by_size(clients: Candidates, turn: Turn) -> Sequence[int]:
    """Sampling without replacement, with probability proportional to the number of windows.

    Source: Li et al. 2020, "On the Convergence of FedAvg on Non-IID Data", scheme I. There clients are drawn
    with replacement and their models averaged with equal weights; here the mean is weighted by windows, so
    large clients count for more than if all clients trained.
    """
    return list(turn.rng.choice(clients.ids, size=turn.count, replace=False, p=_shares(clients)))


def round_robin(clients: Candidates, turn: Turn) -> Sequence[int]:
    """Round-robin: the clients asked least often, by id."""
    return list(clients.ids[np.lexsort((clients.ids, clients.begun))][: turn.count])


def without_reuse(clients: Candidates, turn: Turn) -> Sequence[int]:
    """Uniform among the clients asked least often, so none is asked again before all others."""
    drawn = turn.rng.permutation(len(clients.ids))
    return list(clients.ids[np.lexsort((drawn, clients.begun))][: turn.count])


def power_of_choice(clients: Candidates, turn: Turn, candidates: int = 0) -> Sequence[int]:
    """Draw `candidates` clients with probability by windows, and choose those with the highest loss.

    Source: Cho et al. 2020, "Client Selection in Federated Learning: Convergence Analysis and Power-of-Choice
    Selection Strategies", variant rpow-d: it uses each client's last mean training loss, not the loss of the
    current model; clients without a loss come first.

    Args:
        clients: clients of the leaf.
        turn: the leaf round.
        candidates: d of the paper, at least `turn.count` and at most all; 0 for twice `turn.count`.

    Raises:
        ConfigError: d is not a whole number of at least 0.
    """
    if type(candidates) is not int or candidates < 0:
        raise ConfigError(
            f"{_KEY}-args.candidates must be a whole number of at least 0, but is {shown(candidates)}; try 0"
        )
    count = min(len(clients.ids), max(candidates or 2 * turn.count, turn.count))
    drawn = turn.rng.choice(len(clients.ids), size=count, replace=False, p=_shares(clients))
    losses = np.where(np.isnan(clients.losses), np.inf, clients.losses)[drawn]
    return list(clients.ids[drawn[np.argsort(-losses, kind="stable")]][: turn.count])


def _shares(clients: Candidates) -> np.ndarray:
    """Each client's share of all windows, (n,) float64."""
    windows = clients.windows.astype(np.float64)
    shares: np.ndarray = windows / windows.sum()
    return shares


def reads_turns(name: str) -> bool:
    """Whether a selection may depend on earlier rounds: all but `uniform` and `by_size`."""
    return CLIENT_SELECTIONS.load(name) not in (uniform, by_size)


def selected(
    config: HierarchyConfig,
    clients: Candidates,
    count: int,
    seed: int,
    stream_key: tuple[int, ...],
    leaf: int,
    global_round: int,
) -> list[int]:
    """The training clients of a leaf in a leaf round, ascending.

    Args:
        config: configuration, of which `selection` is read.
        clients: clients of the leaf.
        count: number of clients to choose.
        seed: seed of the run.
        stream_key: coordinates of the random stream: leaf round and so on.
        leaf: number of the leaf.
        global_round: global round of the leaf round.

    Raises:
        ConfigError: a user's selection fails, or chooses no client, one twice, or one of another leaf.
    """
    name = config.selection
    if count >= len(clients.ids) and not CLIENT_SELECTIONS.is_own(name):
        return [int(client) for client in clients.ids]
    turn = Turn(count, leaf, global_round, stream_key[0], numpy_stream(seed, Purpose.SAMPLING, *stream_key))
    with CLIENT_SELECTIONS.explaining_errors(name):
        chosen = CLIENT_SELECTIONS.load(name)(clients, turn, **config.arguments("selection"))
        result = list(chosen) if isinstance(chosen, Sequence | np.ndarray | set | frozenset) else chosen
    _refuse_invalid_choice(name, result, clients, turn)
    return sorted(map(int, result))


def _refuse_invalid_choice(name: str, result: Any, clients: Candidates, turn: Turn) -> None:
    """Raise ConfigError unless a selection chose clients of the leaf, each once."""
    ids = {int(client) for client in clients.ids}
    rule = (
        f"{_KEY} {name} must return clients of its leaf, each once and at least one, but at leaf {turn.leaf}"
    )
    if not isinstance(result, list) or not result:
        raise ConfigError(f"{rule} in leaf round {turn.leaf_round} it returned {shown(result)}; fix it")
    for client in result:
        if isinstance(client, bool) or not isinstance(client, int | np.integer) or int(client) not in ids:
            raise ConfigError(
                f"{rule} in leaf round {turn.leaf_round} it returned {shown(client)}, which is none of "
                f"{shown(sorted(ids))}; fix it"
            )
    if len(set(map(int, result))) < len(result):
        raise ConfigError(f"{rule} in leaf round {turn.leaf_round} it returned {shown(result)}; fix it")


def try_client_selection(config: HierarchyConfig) -> None:
    """Raise ConfigError for a selection that fails on made-up clients, or ignores the seed."""

    def select(clients: int, past_turns: int) -> list[int]:
        turns = np.full(clients, past_turns)
        losses = np.full(clients, np.nan if past_turns == 0 else 0.5)
        windows = 10 * (1 + np.arange(clients) * 3 % 4)
        candidates = Candidates(
            np.arange(clients) + clients, windows, turns, turns.copy(), turns.copy(), losses
        )
        return selected(config, candidates, clients // 2, 0, (1 + past_turns, 0), 0, 1 + past_turns)

    for past_turns in (0, 3):
        select(4, past_turns)

    def selections() -> list[list[int]]:
        name = config.selection
        return [call_again(CLIENT_SELECTIONS, name, partial(select, count, 0), FROM_RNG) for count in (4, 16)]

    call_checked(CLIENT_SELECTIONS, config.selection, selections, FROM_RNG)
