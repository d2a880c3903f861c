"""The cloud's connection to separate leaf servers, a `fedge.rounds.port.LeafPort`.

An order goes to all leaf servers at once (`fedge.edge.dispatch`); each runs its clients and answers with its
model. A restarted leaf server starts from the states in the order, so nothing is lost or counted twice. A
leaf without a valid answer keeps its model (contract C12).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fedge.cloud.probe import Probe
from fedge.cloud.region import Region
from fedge.edge.answers import Schema, Trained
from fedge.edge.dispatch import Dispatch, Order
from fedge.edge.packets import orders
from fedge.edge.region_answers import check_region_answer
from fedge.edge.remote_regions import RegionsAway
from fedge.exchange.algorithm import OWN_MODELS
from fedge.exchange.engine import RunError
from fedge.exchange.evaluate import EvaluateReply, SplitName
from fedge.exchange.round_context import LEAF
from fedge.leaf.algorithm import ALGORITHM
from fedge.leaf.leaf import Leaf
from fedge.link.frames import Packet
from fedge.link.gate import LeafGate
from fedge.rounds.evaluation import EvaluationRequest, roles_of
from fedge.rounds.lines import TrainingLine
from fedge.rounds.measurements.requests import ProbeRequest, Receiver, Requests
from fedge.rounds.port import PortContext, RunFacts
from fedge.states.averaging import State
from fedge.states.lazy_state import RemoteState
from fedge.states.restore_checks import checked_facts, checked_int


class EdgeLeaves:
    """Leaf servers behind a gate."""

    def __init__(self, gate: LeafGate, facts: RunFacts, context: PortContext) -> None:
        """Store the arguments; a leaf server learns of the run with its first order."""
        self._facts = facts
        self._leaves = list(context.leaves)
        self._transport = context.transport
        task = context.task
        self._schema = Schema(task, context.transport.context(0).local_steps)
        self._dispatch = Dispatch(gate, facts, context, self._schema)
        self._versions = dict.fromkeys(range(len(self._leaves)), 0)  # of client controls, by leaf
        self._saved_versions: list[dict[int, int]] = []
        self._regions = RegionsAway(
            task.config,
            context.regions,
            task.own_layers,
            lambda leaves: gate.one_process(leaves, orders.SUBTREE),
        )

    # --- questions --------------------------------------------------------------------------------

    def train(self, training: TrainingLine, leaf_round: int) -> int:
        """Let leaf servers train a line for a leaf round, or regions on their own for several."""
        book, is_own = self._transport.book, training.line == LEAF
        spans = (
            {span.linked_leaf: span for span in self._regions.begin(leaf_round, book.requests)}
            if is_own
            else {}
        )
        leaves = [leaf for leaf in training.leaves if not is_own or self._regions.span_of(leaf) is None]
        leaf_orders = {
            leaf.index: Order(self._train_order(leaf, training, leaf_round), leaf.clients) for leaf in leaves
        }
        for index, span in spans.items():
            packet = self._dispatch.order(orders.REGION, *span.order(self._versions, self._saved_versions))
            leaf_orders[index] = Order(packet, span.clients, span)
        requests = {leaf.index: self._training_request(leaf, training, leaf_round) for leaf in leaves}

        def read(leaf: int, answer: Packet) -> Packet:
            if leaf in spans:
                return check_region_answer(
                    self._schema, answer, spans[leaf], self._versions, book.global_round
                )
            return self._schema.trained(answer, requests[leaf], book.global_round)

        answers = self._dispatch.ask(leaf_orders, read) if leaf_orders else {}
        counted = 0
        for leaf in leaves:
            answer = answers.get(leaf.index)
            if answer is not None:
                counted += self._apply_answer(leaf, training, answer)
            elif is_own:
                book.note_kept_model(leaf.index)
        for index, span in spans.items():
            span.answer = answers.get(index)
        for span in self._regions.spans if is_own else ():
            counted += span.record_leaf_round(leaf_round, self._transport)
            if span.answer is not None and leaf_round == span.last:
                self._versions |= span.move(self._transport.shared.keep)
        self._transport.lap("aggregate")
        return counted

    def has_combined(self, region: Region) -> bool:
        """Whether a region ran the round now ending in its own process."""
        return self._regions.has_combined(region)

    def _training_request(self, leaf: Leaf, training: TrainingLine, leaf_round: int) -> Trained:
        """Training requested from one leaf server, for checking its answer."""
        book, is_own = self._transport.book, training.line == LEAF
        requests = book.requests if is_own else Requests()
        updates, has_folds = requests.updates_of(leaf.index), leaf.index in requests.alone
        version, dispersion = self._versions[leaf.index], requests.dispersion
        return Trained(leaf, training.line, leaf_round, version, updates, has_folds, dispersion)

    def _train_order(self, leaf: Leaf, training: TrainingLine, leaf_round: int) -> Packet:
        """Order of a leaf round to one leaf server."""
        states, facts = leaf.round_states()
        index = leaf.index
        requests = self._transport.book.requests if training.line == LEAF else Requests()
        order = {
            "leaf_round": leaf_round,
            "line": training.line,
            "fork": leaf is not self._leaves[index],
            "without": sorted(set(self._leaves[index].clients) - set(leaf.clients)),
            "leaf": facts,
            "version": self._versions[index],
            "needed": sorted({versions[index] for versions in self._saved_versions}),
            "updates": requests.updates_of(index) is not None,
            "dispersion": requests.dispersion,
            "alone": index in requests.alone,
        }
        if leaf.algorithm is not None:
            order["memories"] = leaf.algorithm.needed(self._leaves[index].clients)
        return self._dispatch.order(orders.TRAIN, order, {orders.MODEL: leaf.model, **states})

    def _apply_answer(self, leaf: Leaf, training: TrainingLine, answer: Packet) -> int:
        """Update a leaf, or a fork, from its server's answer; return the number of accepted replies."""
        facts, book, index = answer.facts, self._transport.book, leaf.index
        if leaf is self._leaves[index]:
            leaf.put_round_states(orders.with_own_control(answer.states), facts["leaf"])
        elif leaf.algorithm is not None:
            leaf.algorithm.restore(answer.states.get(ALGORITHM, {}), facts["leaf"][ALGORITHM])
        if facts["moved"]:
            leaf.models.trained(LEAF, answer.states[orders.MODEL])
        leaf.keep_states(self._transport.shared.keep)
        self._versions[index] = int(facts["version"])
        record = facts["book"]
        if training.line != LEAF:
            record = {**record, "train_loss": []}
        orders.add_to_book(book, index, record)
        if training.line == LEAF:
            _pass_on_summaries(book.requests.receivers_of(index), index, answer)
        if facts.get("dispersion") is not None:
            book.dispersion[index] = float(facts["dispersion"])
        if facts["folds"]:
            fold_models = {name: RemoteState(name, leaf.model) for _, name in facts["folds"]}
            book.folds[index] = {int(client): fold_models[name] for client, name in facts["folds"]}
        return int(facts["counted"])

    def probe(self, request: ProbeRequest) -> Probe:
        """Let leaf servers train one model for comparison only."""
        start, leaves, receiver = request.start, request.leaves, request.receiver
        updates = None if receiver is None else receiver.updates
        order = {"leaf_round": request.leaf_round, "line": request.line, "updates": updates is not None}
        order |= {"most_windows": request.most_windows} if request.most_windows else {}
        packet = self._dispatch.order(orders.PROBE, order, {orders.MODEL: start})
        answers = self._dispatch.ask(
            {leaf.index: Order(_with_algorithm(packet, leaf), leaf.clients) for leaf in leaves},
            lambda leaf, answer: self._schema.probed(answer, self._leaves[leaf], start, updates),
            phase="cluster",
        )
        models: list[State] = []
        for leaf in leaves:
            answer = answers.get(leaf.index)
            moved = answer is not None and answer.facts["moved"]
            models.append(
                self._transport.shared.keep(answer.states[orders.MODEL]) if answer and moved else start
            )
            if answer is not None:
                orders.add_to_book(self._transport.book, leaf.index, answer.facts["book"])
                _pass_on_summaries([receiver] if receiver else [], leaf.index, answer)
        return Probe(start, models, updates)

    def evaluate(self, request: EvaluationRequest, phase: str = "") -> dict[int, EvaluateReply]:
        """Let clients of all leaves evaluate models."""
        leaf_orders: dict[int, Order] = {}
        roles: dict[int, dict[int, list[str]]] = {}
        for leaf in self._leaves:
            known, unseen = request.models.get(leaf.index, {}), request.unseen_clients.get(leaf.index, {})
            roles[leaf.index] = {c: roles_of(known, leaf) for c in (leaf.clients if known else ())}
            roles[leaf.index] |= {c: roles_of(unseen, leaf) for c in (leaf.unseen_clients if unseen else ())}
            if roles[leaf.index]:
                packet = self._evaluate_order(known, unseen, request.splits, phase)
                has_own_models = OWN_MODELS in known or OWN_MODELS in unseen
                packet = _with_algorithm(packet, leaf, memory=False) if has_own_models else packet
                leaf_orders[leaf.index] = Order(packet, list(roles[leaf.index]))
        evaluations: dict[int, EvaluateReply] = {}
        answers = self._dispatch.ask(
            leaf_orders,
            lambda leaf, answer: (answer, self._schema.evaluated(answer, roles[leaf], request.splits)),
            phase,
        )
        for index, (answer, evaluated) in answers.items():
            orders.add_to_book(self._transport.book, index, answer.facts["book"])
            evaluations |= evaluated
        return dict(sorted(evaluations.items()))

    def _evaluate_order(
        self, known: Mapping[str, State], unseen: Mapping[str, State], splits: Sequence[SplitName], phase: str
    ) -> Packet:
        """Order to one leaf server to evaluate models; models it keeps are only named."""
        states: dict[str, State] = {}

        def add_models(models: Mapping[str, State], group: str) -> dict[str, list[str]]:
            references = {}
            for role, model in models.items():
                if isinstance(model, RemoteState):
                    references[role] = [orders.HERE, model.name]
                else:
                    states[f"{group}/{role}"] = model
                    references[role] = [orders.SENT, f"{group}/{role}"]
            return references

        order = {"known": add_models(known, "known"), "unseen": add_models(unseen, "unseen"), "phase": phase}
        return self._dispatch.order(orders.EVALUATE, order | {"splits": list(splits)}, states)

    # --- state beyond the process ---------------------------------------------------------------------

    def facts(self) -> dict[str, Any]:
        """State of the run for a checkpoint, as JSON."""
        self._saved_versions = [*self._saved_versions, dict(self._versions)][-self._facts.checkpoints - 1 :]
        return {"versions": list(self._versions.items())}

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Restore the result of `facts`."""
        if not checked_facts(facts, {"versions"}).get("versions") and any(
            leaf.control is not None for leaf in self._leaves
        ):
            raise RunError(
                "the clients' control variates of this run are in its checkpoint, not at leaf servers; "
                "resume without --leaves"
            )
        for leaf, version in facts.get("versions", []):
            leaf = checked_int(leaf, "a leaf server of a checkpoint", below=len(self._leaves))
            self._versions[leaf] = checked_int(version, f"the version of leaf server {leaf}")
        self._saved_versions = [dict(self._versions)]

    def close(self) -> None:
        """Release the threads."""
        self._dispatch.close()


def _with_algorithm(order: Packet, leaf: Leaf, memory: bool = True) -> Packet:
    """An order, with the state of the algorithm of a leaf's clients added, if any.

    Args:
        order: order to probe or to evaluate.
        leaf: the cloud's copy of the leaf.
        memory: whether to add the leaf part's memory, which evaluation does not need.
    """
    if leaf.algorithm is None:
        return order
    states = {**order.states, **leaf.algorithm.states()} if memory else order.states
    return Packet(order.kind, {**order.facts, ALGORITHM: leaf.algorithm.facts()}, states)


def _pass_on_summaries(receivers: Sequence[Receiver], leaf: int, answer: Packet) -> None:
    """Pass the summaries of clients' updates in a leaf's answer to the receivers."""
    for client, summaries in sorted(orders.summaries_of(answer.states).items()) if receivers else ():
        for receiver in receivers:
            receiver.take(client, leaf, summaries)
