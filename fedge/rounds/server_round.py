"""A server's round with its children: probes, questions, offers, gates, corrections.

The server is the cloud, or a region that groups its children, combines their models by a rule or gives them a
choice. Children are leaves or regions; questions to a region go to the clients of all its leaves.

The server's computations are in `fedge.cloud.step`, the mixing of offers in `fedge.cloud.offers`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedge.cloud import control as cloud_control
from fedge.cloud.aggregator import CloudAggregator
from fedge.cloud.offers import Offers, blends_of, make_offers
from fedge.cloud.probe import Probe
from fedge.cloud.region import Region, leaves_below
from fedge.cloud.step import CloudRound, CloudStep
from fedge.clustering.likeness.evidence import Answers, Questions, collect_answers
from fedge.config.sections.serving import GateConfig
from fedge.config.tree import Path, dotted
from fedge.exchange.evaluate import SplitName
from fedge.exchange.round_context import PROBE
from fedge.leaf.folds import by_client
from fedge.leaf.server import Server
from fedge.leaf.strategies.aggregation import Contribution, mean_of
from fedge.rounds.evaluation import EvaluationRequest
from fedge.rounds.gates import Gates
from fedge.rounds.measurements.requests import ProbeRequest, Receiver
from fedge.rounds.measurements.round_record import ServerRoundRecord
from fedge.rounds.port import LeafPort
from fedge.rounds.task import RunTask
from fedge.rounds.transport import Transport
from fedge.states.averaging import State
from fedge.states.distinct import StateCache
from fedge.states.restore_checks import group_labels

_CLOUD = "cloud/"  # prefix of the name of a server's state


@dataclass(frozen=True)
class ServerSeat:
    """A server with its children and its state.

    Attributes:
        path: position in the tree, from the root down.
        children: the children, in order.
        cloud: groups the children's models, and combines them.
        task: task of the run.
        region: the server as a child of its parent; None for the root.
    """

    path: Path
    children: Sequence[Server]
    cloud: CloudAggregator
    task: RunTask
    region: Region | None = None

    @property
    def every(self) -> int:
        """Number of leaf rounds per round of the server."""
        return self.task.config.hierarchy.leaf_rounds_of(len(self.path))

    @property
    def gate(self) -> GateConfig:
        """Whether, and how, children may refuse offers."""
        return self.task.config.gate_at(len(self.path))


class ServerRounds:
    """Runs the rounds of a server with its children.

    Attributes:
        path: path of the server.
        prefix: prefix of the names of its states.
        labels: (S,) cluster of each child; before the first step, each child is its own cluster.
        record: record of the current round.
    """

    def __init__(self, seat: ServerSeat, transport: Transport, port: LeafPort) -> None:
        """Store the constants of the run.

        Args:
            seat: the server and its children.
            transport: holds the record of the round.
            port: runs probes, and lets clients evaluate models.
        """
        self.path = seat.path
        self.prefix = "/".join(filter(None, (dotted(seat.path), _CLOUD)))
        self.labels = np.arange(len(seat.children))
        self.record = ServerRoundRecord(seat.path)
        self._seat, self._children = seat, seat.children
        self._cloud = seat.cloud
        self._transport = transport
        self._port = port
        self._leaves = [leaf for child in self._children for leaf in leaves_below(child)]
        self._child_of = {leaf.index: leaf.path[len(seat.path)] for leaf in self._leaves}
        self.gates = Gates(self._children, seat.gate, seat.task.config.personal)
        self._cloud_round: CloudRound | None = None

    # --- a round --------------------------------------------------------------------------------------------

    def choose_first(self) -> None:
        """Before the first round, let every child choose between the server's models, if it has several."""
        choice = self._cloud.first_choice(len(self._children))
        if choice is not None:
            self.labels, models = choice.choose(self._ask(choice.questions, have_models=False))
            for child, model in zip(self._children, models, strict=True):
                child.begin(model, int(self.labels[child.number]))

    def begin_if_due(self, leaf_round: int) -> None:
        """Begin a round of the server if this is its first leaf round, and record the children's models."""
        number, offset = divmod(leaf_round - 1, self._seat.every)
        if offset:
            return
        book, root = self._transport.book, not self.path
        has_gates, received = root or self._seat.gate.enabled, {} if number else self.record.received
        self.record = ServerRoundRecord(
            self.path, number + 1, self.labels, self._cloud.config.enabled, has_gates, received=received
        )
        self._cloud_round = self._cloud.begin([child.model for child in self._children], number + 1)
        if root:
            book.root = self.record
        else:
            book.inner.append(self.record)
        requests, cloud_round = book.requests, self._cloud_round
        if cloud_round.updates is not None:
            requests.receivers.append(Receiver(cloud_round.updates, self._child_of))
        requests.alone |= self._leaf_indices(cloud_round.alone)
        requests.dispersion |= cloud_round.memory.needs("dispersion")

    def _leaf_indices(self, children: Collection[int]) -> frozenset[int]:
        """Indices of the leaves among these children."""
        return frozenset(leaf.index for leaf in self._leaves if self._child_of[leaf.index] in children)

    def hold_if_due(self, leaf_round: int) -> None:
        """After the leaf rounds of a round with a cloud step, group the children and make offers.

        Without one, updates from one start are kept for the first step (`cluster.start-round`).
        """
        if not self._cloud.is_due(self.record.number):
            assert self._cloud_round is not None
            self._cloud_round.take_updates(self._cloud_round.updates)
            return
        step = self._run_step(leaf_round)
        if self.record.number > self._cloud.config.start_round:
            self.record.labels_before = self.labels
        self.labels = self.record.labels = step.labels

    def combine(self, leaf_round: int) -> None:
        """End a region's round: the step, the children's gates, new drifts."""
        region, book, keep = self._seat.region, self._transport.book, self._transport.shared.keep
        assert region is not None
        region.gather(book.global_round, keep)
        self.hold_if_due(leaf_round)
        self._transport.lap("cluster")
        request = self.gates.evaluation_request(self.record)
        is_predetermined = self.gates.is_predetermined(self.record)
        evaluated = {} if is_predetermined else self._port.evaluate(request.of_leaves(self._children))
        self.gates.decide(self.record, request, evaluated)
        if self._cloud.has_rule and (shared := self._shared_offer()) is not None:
            region.set_own_model(shared)
        self.begin_new_drifts()
        for child in self._children:
            if isinstance(child, Region):
                child.depart()
        region.keep_states(keep)
        self._transport.lap("gate")

    def _shared_offer(self) -> State | None:
        """The offer shared by all children, if there is one."""
        models = {
            id(offer.model): offer.model
            for child_offers in self.record.offers
            for offer in child_offers.values()
        }
        is_one = len(models) == 1 and all(self.record.offers)
        return next(iter(models.values())) if is_one else None

    def begin_new_drifts(self) -> None:
        """After a step and its gates, correct each child towards the mean of its group."""
        book, step, region = self._transport.book, self.record.step, self._seat.region
        if step is None or self._children[0].drift is None:
            return
        groups = [
            cloud_control.group_of(
                int(label) if step.memberships is None else "family",
                child.model,
                self.record.offers_to(child),
            )
            for label, child in zip(self.labels, self._children, strict=True)
        ]
        cloud_control.start_drifts(self._children, groups, self._seat.task.own_layers, step.memberships)
        if region is not None:
            region.correct_below()
        for child in self._children:
            if region is None:
                child.set_correction(None)  # the cloud has no parent; a region passes corrections on itself
            child.keep_states(self._transport.shared.keep)
            book.note_correction(child)

    # --- its step -------------------------------------------------------------------------------------------

    def _run_step(self, leaf_round: int) -> CloudStep:
        """Run the server's step: group the children, and set their offers."""
        children, book = self._children, self._transport.book
        cloud_round, record = self._cloud_round, self.record
        assert cloud_round is not None
        contributions = [child.contribution(version=book.global_round) for child in children]
        child_of = self._child_of_client()
        losses = {c: (child_of[c], loss) for c, loss in book.train_loss.items() if c in child_of}
        received = cloud_round.receive(contributions, record.number, losses, self._dispersion())
        start = received.probe_start()
        probe = None if start is None else self._probe(cloud_round, start, leaf_round)
        open_step = received.open(probe, [child.models.trial for child in children], self._all_folds())
        step = open_step.finish(self._ask(open_step.questions) if any(open_step.questions) else None)
        cloud_control.record_drift_ends(children)
        step = self._store_models(step)
        book.note_cloud_step(record, step, self._make_offers(step.offers), children)
        for child, cluster, trial in zip(children, step.offers, step.trials, strict=True):
            child.models.apply_cloud_step(
                cluster if child.unseen_clients and child.clients else None,
                trial,
                step.folds.get(child.number, ()),
            )
        return step

    def _child_of_client(self) -> dict[int, int]:
        """Partition id → child of the server, for training clients; may change when clients move."""
        return {client: child.number for child in self._children for client in child.clients}

    def _probe(self, cloud_round: CloudRound, start: State, leaf_round: int) -> Probe:
        """Run a probe of the children from a model."""
        updates = cloud_round.probed_updates(start, self.record.number)
        receiver = None if updates is None else Receiver(updates, self._child_of)
        if start is cloud_round.first:  # so clients repeat the draws of the first leaf round
            windows = cloud_round.setting.even_windows
            request = ProbeRequest(self._leaves, start, 1, receiver, PROBE, windows)
        else:
            request = ProbeRequest(self._leaves, start, leaf_round, receiver)
        return self._probe_by_child(self._port.probe(request))

    def _dispersion(self) -> np.ndarray | None:
        """(S,) dispersion of clients' models at each child; for a region the mean over its leaves."""
        by_leaf = self._transport.book.dispersion
        if not self._transport.book.requests.dispersion:
            return None
        by_child = [
            [by_leaf[leaf.index] for leaf in leaves_below(s) if leaf.index in by_leaf] for s in self._children
        ]
        return np.array([float(np.mean(values)) if values else np.nan for values in by_child])

    def _probe_by_child(self, probe: Probe) -> Probe:
        """Probe by child, from a probe by leaf; for a region the mean over its leaves."""
        model_of = dict(zip((leaf.index for leaf in self._leaves), probe.models, strict=True))
        models: list[State] = []
        for server in self._children:
            below = leaves_below(server)
            contributions = [Contribution(leaf.index, model_of[leaf.index], leaf.weight, 0) for leaf in below]
            models.append(mean_of(contributions) if server.below else contributions[0].state)
        return replace(probe, models=models)

    def _all_folds(self) -> dict[int, Mapping[int, State]]:
        """Child leaf → client → model trained without this client, by forks if there are any."""
        assert self._cloud_round is not None
        leaves, folds_of = self._leaf_indices(self._cloud_round.alone), self._transport.book.folds
        recorded = {self._child_of[leaf]: folds for leaf, folds in folds_of.items() if leaf in leaves}
        forks = {
            child.number: by_client(child.clients, child.models.folds)
            for child in self._children
            if child.models.folds
        }
        return {**recorded, **forks}

    def _ask(self, questions: Questions, have_models: bool = True) -> Answers:
        """Let clients evaluate the models of the server's questions, on the requested windows."""
        split: SplitName = "train" if self._cloud.config.asks_training_losses else "val"
        book, store = self._transport.book, StateCache(self._transport.shared.keep)
        models = {
            child: {role: store(model) for role, model in roles.items()}
            for child, roles in enumerate(questions)
        }
        by_child = [models[child.number] for child in self._children]
        book.note_questions(self.record, by_child, self._children, have_models)
        bytes_before = book.downlink_bytes
        request = EvaluationRequest(models, (split,)).of_leaves(self._children)
        evaluated = self._port.evaluate(request, phase="cluster")
        return collect_answers(
            evaluated,
            leaf_of=self._child_of_client(),
            windows=self._seat.task.windows(split),
            downlink_bytes=book.downlink_bytes - bytes_before,
        )

    def _store_models(self, step: CloudStep) -> CloudStep:
        """A step with its models stored in files or in memory, as configured."""
        store = StateCache(self._transport.shared.keep)
        offers, trials = (
            [None if model is None else store(model) for model in models]
            for models in (step.offers, step.trials)
        )
        folds = {leaf: [store(model) for model in models] for leaf, models in step.folds.items()}
        return replace(step, offers=offers, trials=trials, folds=folds)

    def _make_offers(self, clusters: Sequence[State | None]) -> list[Offers]:
        """Offers for every child, from the clusters' models."""
        models = [child.model for child in self._children]
        weights = [child.weight for child in self._children]
        # a region's leaves insert their personal entries themselves
        personal_entries = () if self._children[0].below else self._seat.task.own_layers
        offers = make_offers(models, clusters, weights, blends_of(self._cloud.config.blend), personal_entries)
        store = StateCache(self._transport.shared.keep)
        return [
            {role: replace(offer, model=store(offer.model)) for role, offer in child_offers.items()}
            if child.clients
            else {}  # its clients have all moved away: it keeps its model
            for child, child_offers in zip(self._children, offers, strict=True)
        ]

    # --- state beyond the process ---------------------------------------------------------------------

    def states(self) -> dict[str, State]:
        """States from earlier rounds needed by the next one."""
        return self._cloud.memory.states()

    def facts(self) -> dict[str, Any]:
        """Other state, as JSON."""
        return {"labels": self.labels.tolist(), "cloud": self._cloud.memory.facts()}

    def restore(self, states: Mapping[str, State], facts: Mapping[str, Any]) -> None:
        """Restore the result of `states` and `facts`.

        Raises:
            ValueError: they do not belong to these children's.
        """
        self.labels = group_labels(facts["labels"], "labels of clusters", len(self._children))
        self._cloud.memory.restore(states, facts["cloud"])
        self._cloud.memory.refuse_foreign_state(self._children[0].model, len(self._children))
