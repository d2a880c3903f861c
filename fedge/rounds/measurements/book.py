"""Measurements of the current global round, and the table rows made from them.

`fedge.rounds.strategy` fills the record during the round; `fedge.records.recorder` writes its result.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fedge.cloud.offers import Offers
from fedge.cloud.region import Region
from fedge.cloud.step import CloudStep
from fedge.clustering.likeness.evidence import Questions
from fedge.config.tree import Path
from fedge.exchange.evaluate import EvaluateReply, Evaluation, SplitName, pool_evaluations
from fedge.exchange.failure import Failure
from fedge.exchange.round_context import LEAF, PERSONAL, Line
from fedge.exchange.train import TrainReply
from fedge.leaf.leaf import Leaf
from fedge.leaf.server import Server, bytes_up
from fedge.metrics.agreement import churn
from fedge.rounds.measurements.requests import Requests
from fedge.rounds.measurements.results import (
    ClientResult,
    CommonResult,
    InnerStep,
    LeafResult,
    ModelResult,
    RoundResult,
    Traffic,
    model_results,
)
from fedge.rounds.measurements.round_record import ServerRoundRecord, clusters_of, shown_gate
from fedge.serving.gate import GateResult
from fedge.serving.personal import PersonalResult, compare_personal
from fedge.serving.roles import served_role
from fedge.states.averaging import State
from fedge.states.distinct import DistinctContents
from fedge.states.files import state_bytes
from fedge.tasks.configured import CLASSIFICATION
from fedge.tasks.task import Task
from fedge.timing.timeline import ExchangeTimes


@dataclass
class RoundBook:
    """Record of one global round.

    Attributes:
        global_round: 1, 2, …; 0 before the first.
        train_loss: client → mean loss of its last accepted leaf round.
        train_seconds: client → seconds of training over all leaf rounds.
        came_from: client → former leaf, for clients that moved before this round.
        asked: client → number of leaf rounds in which it was asked to train its leaf's model.
        evaluated: client → its evaluations of its leaf's models.
        root: record of the cloud.
        inner: record of regions that group, offer or give a choice, in the order of their rounds.
        personal: leaf → result of fine-tuning, in rounds with fine-tuning.
        failures: client → its first failure.
        kept_model: leaf → number of leaf rounds with too few accepted replies.
        uplink_bytes, downlink_bytes: bytes of arrays from and to clients.
        traffic: path of a server → bytes of arrays to and from its parent.
        began: start of the round, by the clock of the exchanges.
        exchanges: times of work on each client's messages.
        requests: results requested from a leaf round by servers above leaves, besides models.
        folds: leaf → client → model of the other clients in the latest leaf round, if requested.
        models: evaluations of the algorithm's models, by client.
        common: results on the common test set.
        dispersion: leaf → dispersion of its clients' models in its latest accepted leaf round.
        trained: clients with accepted replies in the latest leaf round.
        asked_clients: number of clients asked to train in the latest leaf round.
        answered: number of models received in the latest leaf round, whether accepted or refused.
    """

    global_round: int
    train_loss: dict[int, float] = field(default_factory=dict)
    train_seconds: dict[int, float] = field(default_factory=dict)
    asked: dict[int, int] = field(default_factory=dict)
    evaluated: dict[int, EvaluateReply] = field(default_factory=dict)
    root: ServerRoundRecord = field(default_factory=ServerRoundRecord)
    inner: list[ServerRoundRecord] = field(default_factory=list)
    personal: dict[int, PersonalResult] = field(default_factory=dict)
    failures: dict[int, Failure] = field(default_factory=dict)
    kept_model: dict[int, int] = field(default_factory=dict)
    uplink_bytes: int = 0
    downlink_bytes: int = 0
    traffic: dict[Path, Traffic] = field(default_factory=dict)
    began: float = 0.0
    exchanges: list[ExchangeTimes] = field(default_factory=list)
    requests: Requests = field(default_factory=Requests)
    folds: dict[int, Mapping[int, State]] = field(default_factory=dict)
    models: list[ModelResult] = field(default_factory=list)
    came_from: Mapping[int, int] = field(default_factory=dict)
    common: list[CommonResult] = field(default_factory=list)
    dispersion: dict[int, float] = field(default_factory=dict)
    trained: set[int] = field(default_factory=set)
    asked_clients: int = 0
    answered: int = 0

    @property
    def cloud_uplink_bytes(self) -> int:
        """Bytes of arrays from servers to their parents."""
        return sum(traffic.up for traffic in self.traffic.values())

    @property
    def cloud_downlink_bytes(self) -> int:
        """Bytes of arrays from servers to their children."""
        return sum(traffic.down for traffic in self.traffic.values())

    def latest_record(self, path: Path) -> ServerRoundRecord | None:
        """Latest record of a server; None for a server that only averages its children."""
        return next((record for record in (*reversed(self.inner), self.root) if record.path == path), None)

    def records_above(self, path: Path) -> list[ServerRoundRecord]:
        """Latest record of the servers above a server, from the root down."""
        candidates = (self.latest_record(path[:tier]) for tier in range(len(path)))
        return [record for record in candidates if record is not None]

    def gate(self, leaf: Leaf) -> GateResult:
        """Decision of the gate at the child of the cloud above a leaf, or at the leaf itself."""
        return self.root.gates[leaf.path[0]]

    def note_sent(self, server: Server, up: int = 0, down: int = 0) -> None:
        """Count bytes between a server and its parent; those sent down are passed on to all servers below."""
        self.traffic.setdefault(server.path, Traffic()).add(up, down)
        if down:
            for child in server.below:
                self.note_sent(child, 0, down)

    def note_region(self, region: Region) -> None:
        """Record the bytes of a region's round: models up, their mean down, and corrections."""
        for server in region.below:
            self.note_sent(server, bytes_up(server), state_bytes(server.model))
            self.note_correction(server)

    def note_trained(self, client: int, reply: TrainReply, line: Line) -> None:
        """Record an accepted train reply; the loss of a fork does not count as the leaf's."""
        if line == LEAF:
            self.train_loss[client] = reply.loss
        self.note_seconds(client, reply.seconds)

    def note_seconds(self, client: int, seconds: float) -> None:
        """Record a client's seconds of training in a leaf round."""
        self.trained.add(client)
        self.train_seconds[client] = self.train_seconds.get(client, 0.0) + seconds

    def note_kept_model(self, leaf: int, leaf_rounds: int = 1) -> None:
        """Count leaf rounds in which a leaf kept its model because of too few accepted replies."""
        self.kept_model[leaf] = self.kept_model.get(leaf, 0) + leaf_rounds

    def note_asked(self, client: int, leaf_rounds: int = 1) -> None:
        """Count leaf rounds in which a client was asked to train its leaf's model."""
        self.asked[client] = self.asked.get(client, 0) + leaf_rounds

    def note_personal(self, leaf: Leaf, evaluated: Mapping[int, EvaluateReply]) -> bool:
        """Record clients' evaluations of a leaf's personal model; returns whether to serve it.

        Args:
            leaf: the leaf, after its gate has decided.
            evaluated: client → its evaluations of the personal model.
        """
        for client in (*leaf.clients, *leaf.unseen_clients):
            if client in self.evaluated and client in evaluated:
                self.evaluated[client] = {**self.evaluated[client], **evaluated[client]}
        replies = [self.evaluated[client] for client in leaf.clients if client in self.evaluated]
        complete = [reply for reply in replies if (PERSONAL, "val") in reply]
        before = pool_evaluations([reply[self.gate(leaf).role, "val"] for reply in complete])
        after = pool_evaluations([reply[PERSONAL, "val"] for reply in complete])
        if before is None or after is None:
            return False
        self.personal[leaf.index] = compare_personal(before, after)
        return self.personal[leaf.index].serves

    def note_models(self, leaves: Sequence[Leaf], evaluated: Mapping[int, EvaluateReply]) -> None:
        """Record clients' evaluations of the models of their algorithm, on test windows.

        Args:
            leaves: all leaves, in order.
            evaluated: client → its evaluations.
        """
        leaf_of = {client: leaf for leaf in leaves for client in (*leaf.clients, *leaf.unseen_clients)}
        for client, reply in sorted(evaluated.items()):
            leaf = leaf_of[client]
            self.models += model_results(client, leaf.index, client in leaf.unseen_clients, reply)

    def role_at(self, leaf: Leaf, unseen_clients: bool = False) -> str:
        """The role of a leaf's served model."""
        return served_role(self.gate(leaf), self.personal.get(leaf.index), unseen_clients)

    def note_questions(
        self,
        record: ServerRoundRecord,
        questions: Questions,
        children: Sequence[Server],
        have_models: bool = True,
    ) -> None:
        """Record the bytes of models sent to children for evaluation by their clients.

        A child's own model is not sent, and nothing is counted for a single leaf without a cloud.

        Args:
            record: record of the server's round.
            questions: per child, the models by role.
            children: the server's children, in order.
            have_models: whether the children have models of their own; not before the first round.
        """
        if len(children) > 1 or record.path:
            for child, asked in zip(children, questions, strict=True):
                own = DistinctContents([child.model] if have_models else [])
                sent_models = DistinctContents(model for model in asked.values() if model not in own)
                self.note_sent(child, down=sum(map(state_bytes, sent_models)))
                record.received.setdefault(child.number, DistinctContents()).update(sent_models)

    def note_cloud_step(
        self, record: ServerRoundRecord, step: CloudStep, offers: list[Offers], children: Sequence[Server]
    ) -> None:
        """Record a server's step and its bytes: per child, one model up and at most two down.

        The cluster's model is sent down, unless the child already got it for evaluation, and, for mixed
        offers, the mean of all children. A trial of new groups sends a fork down before and up after it.
        Nothing is counted for a single leaf without a cloud.
        """
        record.step, record.offers = step, offers
        if len(children) > 1 or record.path:
            for child, cluster, child_offers, trial in zip(
                children, step.offers, offers, step.trials, strict=True
            ):
                if not child.clients:  # sends and receives nothing
                    continue
                is_mixed = any(offer.blend < 1 for offer in child_offers.values())
                is_new = cluster is not None and cluster not in record.received.get(child.number, ())
                forks = [model for model in (child.models.trial, *child.models.folds) if model]
                starts = [model for model in (trial, *step.folds.get(child.number, ())) if model]
                self.note_sent(
                    child,
                    up=bytes_up(child) + sum(map(state_bytes, forks)),
                    down=state_bytes(child.model) * (is_new + is_mixed) + sum(map(state_bytes, starts)),
                )

    def note_correction(self, leaf: Server) -> None:
        """Record the bytes of a server's correction for its new drift, if any."""
        if leaf.drift is not None and leaf.drift.correction is not None:
            self.note_sent(leaf, down=state_bytes(leaf.drift.correction))

    def served(
        self, leaf: Leaf, unseen_clients: bool = False, split: SplitName = "test"
    ) -> dict[int, Evaluation]:
        """Client → evaluation of its served model.

        Args:
            leaf: the clients' leaf; clients come in order of ids, without failed ones.
            unseen_clients: whether to take its unseen clients instead of its known ones.
            split: split of their windows.
        """
        key = self.role_at(leaf, unseen_clients), split
        members = leaf.unseen_clients if unseen_clients else leaf.clients
        return {c: self.evaluated[c][key] for c in members if key in self.evaluated.get(c, {})}

    def before_and_after(self, client: int, leaf: Leaf) -> tuple[Evaluation, Evaluation] | None:
        """A client's evaluations, on test windows, of its leaf's model before and after fine-tuning.

        None unless there are both, so both means are over the same clients.
        """
        evaluated = self.evaluated.get(client, {})
        shared, tuned = (evaluated.get((role, "test")) for role in (self.gate(leaf).role, PERSONAL))
        return None if shared is None or tuned is None else (shared, tuned)

    def result(
        self, leaves: Sequence[Leaf], truth: Sequence[int] | None = None, learned: Task = CLASSIFICATION
    ) -> RoundResult:
        """The rows of the round.

        Args:
            leaves: all leaves, in order.
            truth: true group of each leaf, or None if unknown.
            learned: task of the run.
        """
        flags, root = (False, True), self.root
        tests = {
            c: t for leaf in leaves for is_unseen in flags for c, t in self.served(leaf, is_unseen).items()
        }
        vals = {
            c: t
            for leaf in leaves
            for is_unseen in flags
            for c, t in self.served(leaf, is_unseen, "val").items()
        }
        members = sorted(
            (client, leaf) for leaf in leaves for client in (*leaf.clients, *leaf.unseen_clients)
        )
        return RoundResult(
            global_round=self.global_round,
            clients=[
                self._client_row(client, leaf, tests.get(client), vals.get(client))
                for client, leaf in members
            ],
            leaves=[
                self._leaf_row(leaf, cluster, None if truth is None else truth[leaf.index])
                for leaf, cluster in zip(leaves, clusters_of(leaves, self.records_above), strict=True)
            ],
            cloud=root.step and _without_models(root.step),
            inner_steps=[
                InnerStep(record.path, record.number, _without_models(record.step))
                for record in self.inner
                if record.step is not None
            ],
            clients_ok=len(members) - len(self.failures),
            failures=dict(sorted(self.failures.items())),
            uplink_bytes=self.uplink_bytes,
            downlink_bytes=self.downlink_bytes,
            cloud_uplink_bytes=self.cloud_uplink_bytes,
            cloud_downlink_bytes=self.cloud_downlink_bytes,
            churn=None if root.labels_before is None else churn(root.labels_before, root.labels),
            truth=truth,
            began=self.began,
            exchanges=self.exchanges,
            learned=learned,
            models=self.models,
            common=self.common,
        )

    def _client_row(
        self, client: int, leaf: Leaf, test: Evaluation | None, val: Evaluation | None
    ) -> ClientResult:
        """The row of one client, from its evaluations of its served model."""
        tuning = self.before_and_after(client, leaf)
        return ClientResult(
            client=client,
            leaf=leaf.index,
            train_samples=leaf.train_samples.get(client, 0),
            train_loss=self.train_loss.get(client),
            test_samples=test.windows if test else 0,
            test_score=test.score if test else None,
            test_loss=test.loss if test else None,
            further=test.further if test else {},
            train_seconds=self.train_seconds.get(client),
            confusion=test.confusion if test else None,
            unseen_client=client in leaf.unseen_clients,
            shared_score=tuning[0].score if tuning else None,
            tuned_score=tuning[1].score if tuning else None,
            val_samples=val.windows if val else 0,
            val_score=val.score if val else None,
            val_loss=val.loss if val else None,
            asked=None if client in leaf.unseen_clients else self.asked.get(client, 0),
            came_from=self.came_from.get(client),
        )

    def _leaf_row(self, leaf: Leaf, cluster: int, group: int | None) -> LeafResult:
        """The row of one leaf."""
        test = pool_evaluations(list(self.served(leaf).values()))
        unseen = pool_evaluations(list(self.served(leaf, unseen_clients=True).values()))
        val = pool_evaluations(list(self.served(leaf, split="val").values()))
        return LeafResult(
            leaf=leaf.index,
            cluster=cluster,
            gate=shown_gate(leaf, self.records_above(leaf.path)),
            test_score=test.score if test else None,
            test_loss=test.loss if test else None,
            further=test.further if test else {},
            num_clients=len(leaf.clients),
            train_samples=leaf.weight,
            kept_model=self.kept_model.get(leaf.index, 0),
            personal=self.personal.get(leaf.index),
            serves=self.role_at(leaf),
            unseen_score=unseen.score if unseen else None,
            unseen_loss=unseen.loss if unseen else None,
            unseen_further=unseen.further if unseen else {},
            unseen_clients=len(leaf.unseen_clients),
            group=group,
            val_score=val.score if val else None,
            val_loss=val.loss if val else None,
        )


def _without_models(step: CloudStep) -> CloudStep:
    """A step without its models, which the record would keep in memory."""
    return replace(step, offers=[], trials=[], folds={})
