"""The gates of a server's children in one of its rounds: the evaluations by clients, and the decisions.

The rules are in `fedge.serving.gate`, the choice of a child's next model in `fedge.serving.decision`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fedge.cloud.offers import Offer
from fedge.config.sections.serving import GateConfig, PersonalConfig
from fedge.exchange.evaluate import OWN, EvaluateReply
from fedge.leaf.server import Server
from fedge.rounds.evaluation import EvaluationRequest
from fedge.rounds.measurements.round_record import ServerRoundRecord
from fedge.serving import decision as choosing
from fedge.serving import roles as serving
from fedge.serving.gate import GateResult
from fedge.states.averaging import State

Evaluated = Mapping[int, EvaluateReply]  # by client


@dataclass(frozen=True)
class Gates:
    """Gates of the children of one server.

    Attributes:
        children: the children, in order; modified by decisions.
        gate: section `gate` of the configuration.
        personal: section `personal`, which determines the models of unseen clients.
    """

    children: Sequence[Server]
    gate: GateConfig
    personal: PersonalConfig

    def evaluation_request(self, record: ServerRoundRecord) -> EvaluationRequest:
        """The gates' candidate models and the models of unseen clients, by child."""
        models: dict[int, dict[str, State]] = {}
        unseen_clients: dict[int, dict[str, State]] = {}
        for child in self.children:
            models[child.number] = choosing.candidates(child, record.offers_to(child), self.gate)
            unseen_clients[child.number] = serving.unseen_clients_evaluate(
                self.personal, child, models[child.number]
            )
        return EvaluationRequest(models, ("val", "test"), unseen_clients)

    def is_predetermined(self, record: ServerRoundRecord) -> bool:
        """Whether no evaluation can change the model with which any child continues."""
        return all(
            choosing.is_predetermined(self.gate, record.offers_to(child), child.models.own_line is not None)
            for child in self.children
        )

    def decide(self, record: ServerRoundRecord, asked: EvaluationRequest, evaluated: Evaluated) -> None:
        """Let every gate decide by its clients' evaluations, and apply the decision to its child.

        If all decisions are foreseen, this may come before the evaluations (see `decide_again`).

        Args:
            record: record of the round with the offers; the decisions are added.
            asked: the models evaluated by clients.
            evaluated: client → its evaluations.
        """
        for child in self.children:
            offer, decision = self._decide_child(child, record, evaluated)
            models, tentatively = asked.models[child.number], choosing.is_tentative(self.gate)
            choosing.serve_decision(child, decision, offer and offer[1], models, tentatively)
            role = serving.unseen_role(self.personal, child) if child.unseen_clients else None
            if not (role == OWN and child.is_apart):  # then those below serve theirs already
                model = asked.unseen_clients[child.number][role] if role else None
                child.models.serve_unseen(model, is_own=role == OWN)
            record.gates.append(replace(decision, unseen_role=role))

    def decide_again(self, record: ServerRoundRecord, evaluated: Evaluated) -> None:
        """Add clients' evaluations to foreseen decisions; the children have already continued."""
        for number, child in enumerate(self.children):
            previous, (_, decision) = record.gates[number], self._decide_child(child, record, evaluated)
            assert decision.role == previous.role
            record.gates[number] = replace(decision, unseen_role=previous.unseen_role)

    def _decide_child(
        self, child: Server, record: ServerRoundRecord, evaluated: Evaluated
    ) -> tuple[tuple[str, Offer] | None, GateResult]:
        """The offer considered by a child, if any, and its gate's decision."""
        replies = [evaluated[client] for client in child.clients if client in evaluated]
        offer = choosing.best_offer(record.offers_to(child), replies)
        return offer, choosing.gate_decision(self.gate, offer, child.models.own_line is not None, replies)
