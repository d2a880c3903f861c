"""The gates of all leaves in a global round: their clients' evaluations, and the decisions.

The rules stand in `fedge.serving.gate`, a leaf's next model in `fedge.serving.decision`.
"""

from collections.abc import Sequence
from dataclasses import replace

from fedge.cloud.offers import Offer
from fedge.config.config import Config
from fedge.leaf.server import Server
from fedge.rounds.book import RoundBook
from fedge.rounds.evaluation import Asked
from fedge.serving import decision as choosing
from fedge.serving import personal
from fedge.serving import roles as serving
from fedge.serving.gate import GateResult
from fedge.states.averaging import State


def asked_for_gates(config: Config, leaves: Sequence[Server], book: RoundBook) -> Asked:
    """The models that gates choose from, and those that unseen clients are served.

    Args:
        config: its sections on gate and personal models are read.
        leaves: before their gates decide.
        book: of the round, with the leaves' offers.
    """
    models: dict[int, dict[str, State]] = {}
    unseen_clients: dict[int, dict[str, State]] = {}
    for leaf in leaves:
        models[leaf.index] = choosing.candidates(leaf, book.offers_to(leaf), config.gate)
        unseen_clients[leaf.index] = serving.unseen_clients_evaluate(
            config.personal, leaf, models[leaf.index]
        )
    return Asked(models, ("val", "test"), unseen_clients)


def is_foreseen(config: Config, leaves: Sequence[Server], book: RoundBook) -> bool:
    """Whether every leaf will go on with the same model under any evaluations of its clients.

    Args:
        config: its section on the gate is read.
        leaves: before their gates decide.
        book: of the round, with the leaves' offers.
    """
    return all(
        choosing.is_foreseen(config.gate, book.offers_to(leaf), leaf.models.own_line is not None)
        for leaf in leaves
    )


def clients_evaluate(config: Config, leaves: Sequence[Server], book: RoundBook, num_rounds: int) -> bool:
    """Whether clients evaluate their served models in a round: it is due, or a decision needs it.

    Args:
        config: its sections on evaluation, gate and personal models are read.
        leaves: before their gates decide.
        book: of the round, with the leaves' offers.
        num_rounds: global rounds in all.
    """
    return (
        config.evaluate.is_due(book.global_round, num_rounds)
        or personal.is_due(config.personal, book.global_round, num_rounds)
        or not is_foreseen(config, leaves, book)
    )


def decide_gates(config: Config, leaves: Sequence[Server], book: RoundBook, asked: Asked) -> None:
    """Let every leaf's gate decide on its clients' evaluations, and the leaf go on accordingly.

    Where all is foreseen, this may come before anybody has evaluated (`decide_again`).

    Args:
        config: its sections on gate and personal models are read.
        leaves: change.
        book: of the round, with the evaluations; takes in the decisions.
        asked: models that the clients evaluate.
    """
    for leaf in leaves:
        offer, decision = _decided(config, leaf, book)
        models, tentatively = asked.models[leaf.index], choosing.is_tentative(config.gate)
        choosing.settle(leaf, decision, offer and offer[1], models, tentatively)
        role = serving.unseen_role(config.personal, leaf) if leaf.unseen_clients else None
        leaf.models.serve_unseen(asked.unseen_clients[leaf.index][role] if role else None)
        book.gates.append(replace(decision, unseen_role=role))


def decide_again(config: Config, leaves: Sequence[Server], book: RoundBook) -> None:
    """Put clients' evaluations into decisions that were foreseen; leaves have gone on already.

    Args:
        config: as of `decide_gates`.
        leaves: after it.
        book: of the round, with the evaluations and the decisions.
    """
    for number, leaf in enumerate(leaves):
        before, (_, decision) = book.gates[number], _decided(config, leaf, book)
        assert decision.role == before.role
        book.gates[number] = replace(decision, unseen_role=before.unseen_role)


def _decided(config: Config, leaf: Server, book: RoundBook) -> tuple[tuple[str, Offer] | None, GateResult]:
    """The offer that a leaf considers, if any, and its gate's decision."""
    evaluated = book.evaluations_at(leaf)
    offer = choosing.best_offer(book.offers_to(leaf), evaluated)
    return offer, choosing.decide(config.gate, offer, leaf.models.own_line is not None, evaluated)
