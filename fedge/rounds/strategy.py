"""HierarchicalStrategy: clients under leaf servers, leaf servers under a cloud, as one Flower Strategy.

One global round (McMahan et al. 2017 at the leaves; Liu et al. 2020, HierFAVG, for the two levels):
`leaf-rounds` exchanges in which all leaves train at once, a hook that calls the cloud aggregator, and one
exchange in which clients evaluate their leaf's own and offered model. The strategy routes; what is computed
stands in `fedge.leaf.leaf`, `fedge.cloud.step`, `fedge.cloud.offers`, `fedge.serving.gate`,
`fedge.serving.decision` and `fedge.serving.personal`; which replies count, in `fedge.leaf.counting` and
`fedge.rounds.evaluation`.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fedge.client.guarded_app import last_words
from fedge.cloud import control as cloud_control
from fedge.cloud.aggregator import CloudAggregator
from fedge.cloud.offers import Offers, blends_of, make_offers
from fedge.cloud.step import CloudRound, Probe
from fedge.clustering.evidence import Answers, Questions, collect_answers
from fedge.config.sections import Config
from fedge.exchange.clients import Clients, Exchange
from fedge.exchange.content import ARRAYS, CONTROL, total_payload_bytes
from fedge.exchange.engine import RunError
from fedge.exchange.evaluate import EvaluateReply
from fedge.exchange.failure import Failure
from fedge.exchange.round_context import LEAF, OWN_LINE, PERSONAL, TRIAL, Line, RoundContext
from fedge.exchange.train import tell_accepted, train_messages
from fedge.leaf import checks as guard
from fedge.leaf.counting import Checked, Counted, checked_reply, count_replies
from fedge.leaf.leaf import Leaf
from fedge.leaf.quorum import needed_replies, num_training
from fedge.process.threads import in_threads
from fedge.rounds.book import RoundBook
from fedge.rounds.evaluation import Asked, Evaluating
from fedge.rounds.results import RoundResult
from fedge.seeding import Purpose, numpy_stream
from fedge.serving import decision as choosing
from fedge.serving import personal
from fedge.serving import roles as serving
from fedge.states.averaging import State
from fedge.states.records import from_record, to_record
from fedge.states.shared import SharedStates
from fedge.timing.laps import LapClock
from fedge.training.schedule import local_training

logger = logging.getLogger(__name__)

_BESIDE: Sequence[Line] = (OWN_LINE, TRIAL)  # what trains beside the model of a leaf
_CLOUD = "cloud/"  # before the name of a state that the cloud keeps
_NO_TIME = 1e-9  # seconds per window while nothing is known: the order of clients, and no waiting for it

RoundHook = Callable[[RoundResult, dict[str, float]], None]


class HierarchicalStrategy(Strategy):
    """Holds the leaves, sends all their messages at once and routes each reply to its leaf."""

    def __init__(
        self,
        config: Config,
        seed: int,
        clients: Clients,
        leaves: Sequence[Leaf],
        cloud: CloudAggregator,
        round_context: Callable[[int, int], RoundContext],
        on_round: RoundHook,
        clock: LapClock,
        shared: SharedStates,
        held_out: Mapping[int, Mapping[str, int]],
        classes: int,
        truth: Sequence[int] | None = None,
        own_layers: Collection[str] = (),
    ) -> None:
        """Put the parts together.

        Args:
            config: the run's configuration.
            seed: root of the streams that sample clients.
            clients: who is there.
            leaves: in order; together they hold every client once, unseen clients included.
            cloud: called after the leaf rounds of every global round in which it is due.
            round context: (global round, leaf round) → what clients must know.
            on_round: called with every round's result and laps.
            clock: charged throughout the round.
            shared: keeps large states in files.
            held_out: partition id → windows of its "val" and "test" split.
            classes: of the data.
            truth: the group that each leaf is truly in, where a scenario planted groups.
            own_layers: entries of a model that a leaf keeps as its own when it takes an offer.
        """
        self.leaves = list(leaves)
        self._config = config
        self._seed = seed
        self._clients = clients
        self._cloud = cloud
        self._round_context = round_context
        self._on_round = on_round
        self._clock = clock
        self._shared = shared
        self._held_out = held_out
        self._evaluating = Evaluating(clients, self.leaves, held_out, classes)
        self._truth = truth
        self._own_layers = own_layers
        self._told: set[tuple[int, str]] = set()
        self._leaf_of = {
            client: leaf for leaf in self.leaves for client in (*leaf.clients, *leaf.unseen_clients)
        }
        self._labels = np.arange(len(self.leaves))  # until the first cloud step every leaf stands alone
        self._seconds_per_window = _NO_TIME  # as last measured
        self._restored: int | None = None  # the global round after which this run goes on
        self._book = RoundBook(0)
        self._training = _Training(LEAF, self.leaves)

    # --- Flower's five steps ------------------------------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of leaf round `server_round`, counted through the run, of all that train.

        `arrays` and `config` are Flower's single global model and settings; every leaf has its own.
        """
        round_context = self._training_round_context(server_round)
        messages: list[Message] = []
        for leaf in self._training.leaves:
            nodes = [self._clients.node(client) for client in self._sample(leaf, round_context)]
            made = leaf.configure_train(grid, nodes, round_context)
            if leaf.control is not None:
                tell_accepted(made, {self._clients.node(c): r for c, r in leaf.accepted.items()})
            self._clients.send_tickets(made, {ARRAYS: leaf.model, CONTROL: leaf.told_control})
            messages.extend(made)
        return messages

    def _training_round_context(self, leaf_round: int) -> RoundContext:
        """Return the round context of a leaf round of what trains now."""
        return replace(self._round_context(self._book.global_round, leaf_round), line=self._training.line)

    def _sample(self, leaf: Leaf, round_context: RoundContext) -> list[int]:
        """Return the clients of a leaf that train in a leaf round, drawn by (seed, round, leaf)."""
        count = num_training(self._config, len(leaf.clients))
        if count == len(leaf.clients):
            return list(leaf.clients)
        rng = numpy_stream(self._seed, Purpose.SAMPLING, *round_context.stream_of(leaf.index))
        return sorted(int(c) for c in rng.choice(leaf.clients, size=count, replace=False))

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Give every leaf its clients' replies, which come in partition-id order."""
        per_leaf = self._checked_replies(replies)
        settings = local_training(self._config.train, self._book.global_round)
        round_context = self._training_round_context(server_round)
        for leaf in self._training.leaves:
            counted = self._counted(leaf, per_leaf.pop(leaf.index))
            if self._has_quorum(leaf, len(counted.replies), server_round):
                assert counted.mean is not None
                leaf.aggregate_train(round_context, counted.replies, counted.mean, settings, self._seed)
            leaf.keep_states(self._shared.keep)
        return None, None

    def _checked_replies(self, messages: Iterable[Message]) -> dict[int, dict[int, Checked]]:
        """Return leaf → client → reply that may count, for what trains now; note why others do not."""
        per_leaf: dict[int, dict[int, Checked]] = {leaf.index: {} for leaf in self._training.leaves}
        messages = list(messages)
        each = in_threads if self._shared.probe else map  # checksums are worth threads
        for message, checked in zip(messages, each(self._checked_reply, messages), strict=True):
            client = self._clients.partition(message.metadata.src_node_id)
            if isinstance(checked, guard.ReplyRejected):
                self._note_failure(client, checked.failure)
            else:
                per_leaf[self._leaf_of[client].index][client] = checked
        self._shared.sweep()  # what has been opened stays valid
        return per_leaf

    def _checked_reply(self, message: Message) -> Checked | guard.ReplyRejected:
        """Return a client's answer, looked through, or why it does not count."""
        client = self._clients.partition(message.metadata.src_node_id)
        leaf = self._training.leaf_at(self._leaf_of[client].index)
        return checked_reply(message, client, leaf, self._config)

    def _counted(self, leaf: Leaf, checked: Mapping[int, Checked]) -> Counted:
        """Return the replies that count at a leaf and their mean, having kept the books on all."""
        counted = count_replies(leaf, checked, self._config.guard.max_norm_factor)
        for client, rejected in counted.refused.items():
            self._note_failure(client, rejected.failure)
        for client, reply in counted.replies.items():
            self._book.note_trained(client, reply, self._training.line)
        self._book.uplink_bytes += sum(entry.reply.uplink_bytes for entry in checked.values())
        if counted.replies:
            trained = sum(leaf.train_samples[client] for client in counted.replies)
            self._seconds_per_window = sum(reply.seconds for reply in counted.replies.values()) / trained
        return counted

    def _has_quorum(self, leaf: Leaf, count: int, leaf_round: int) -> bool:
        """Tell whether `count` replies may change a leaf's model; say so if not."""
        needed = needed_replies(self._config)
        if count < needed and self._training.line == LEAF:
            self._book.kept_model[leaf.index] = self._book.kept_model.get(leaf.index, 0) + 1
            logger.warning(
                "global round %d, leaf round %d: leaf %d keeps its model: %d of %d replies that it needs",
                self._book.global_round, leaf_round, leaf.index, count, needed,
            )  # fmt: skip
        return count >= needed

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return one message per client with its leaf's own model and, if there is one, the offer."""
        asked = self._asked_for_gates()
        return self._evaluating.messages(asked, self._round_context(self._book.global_round, server_round))

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Let every leaf's gate decide on its clients' evaluations, and the leaf go on accordingly."""
        asked = self._asked_for_gates()
        self._book.evaluated = self._evaluations(asked, replies)
        config = self._config.gate
        for leaf in self.leaves:
            evaluated = self._book.evaluations_at(leaf)
            offer = choosing.best_offer(self._book.offers_to(leaf), evaluated)
            decision = choosing.decide(config, offer, leaf.models.own_line is not None, evaluated)
            models = asked.models[leaf.index]
            choosing.settle(leaf, decision, offer and offer[1], models, choosing.is_tentative(config))
            role = serving.unseen_role(self._config.personal, leaf) if leaf.unseen_clients else None
            leaf.models.serve_unseen(asked.unseen_clients[leaf.index][role] if role else None)
            self._book.gates.append(replace(decision, unseen_role=role))
        if self._book.step and self._config.scaffold.levels > 1:
            self._begin_new_drifts()
        return None

    def _begin_new_drifts(self) -> None:
        """After a cloud step and its gates: correct each leaf towards those it stands together with."""
        groups = [
            cloud_control.group_of(int(label), leaf.model, self._book.offers_to(leaf))
            for label, leaf in zip(self._labels, self.leaves, strict=True)
        ]
        cloud_control.depart(self.leaves, groups, self._own_layers)
        for leaf in self.leaves:
            leaf.keep_states(self._shared.keep)
            self._book.note_correction(leaf)

    def _asked_for_gates(self) -> Asked:
        """Return the models that gates choose from, and those that unseen clients are served."""
        config = self._config
        models: dict[int, dict[str, State]] = {}
        unseen_clients: dict[int, dict[str, State]] = {}
        for leaf in self.leaves:
            models[leaf.index] = choosing.candidates(leaf, self._book.offers_to(leaf), config.gate)
            unseen_clients[leaf.index] = serving.unseen_clients_evaluate(
                config.personal, leaf, models[leaf.index]
            )
        return Asked(models, ("val", "test"), unseen_clients)

    def _evaluations(self, asked: Asked, replies: Iterable[Message]) -> dict[int, EvaluateReply]:
        """Return the evaluations that count, client by client, having noted the failures."""
        evaluated, failures = self._evaluating.read(asked, replies)
        for client, failure in failures:
            self._note_failure(client, failure)
        return evaluated

    def summary(self) -> None:
        """Log who stands where."""
        for leaf in self.leaves:
            logger.info(
                "leaf %d: clients %s, unseen clients %s, %d training windows",
                leaf.index, list(leaf.clients), list(leaf.unseen_clients), leaf.weight,
            )  # fmt: skip

    def unseen_models(self) -> dict[int, State]:
        """Return leaf → what it serves unseen clients, where that is another model than known clients get."""
        models = {leaf.index: leaf.models for leaf in self.leaves}
        return {i: m.unseen for i, m in models.items() if m.unseen is not None and m.unseen is not m.served}

    # --- what survives the process --------------------------------------------------------------------

    def states(self) -> dict[str, State]:
        """Return the states that the next global round starts from: ``<leaf>/<kind>``, ``cloud/<kind>``."""
        own = {f"{leaf.index}/{kind}": s for leaf in self.leaves for kind, s in leaf.states().items()}
        return own | {_CLOUD + kind: state for kind, state in self._cloud.states().items()}

    @property
    def accepted(self) -> dict[int, int]:
        """Partition id → the client's leaf round that counted last, 0 for none."""
        return {client: leaf_round for leaf in self.leaves for client, leaf_round in leaf.accepted.items()}

    def facts(self) -> dict[str, Any]:
        """Return what else the next global round needs, as JSON."""
        return {
            "labels": self._labels.tolist(),
            "leaves": [leaf.facts() for leaf in self.leaves],
            "cloud": self._cloud.facts(),
        }

    def restore(self, global_round: int, states: Mapping[str, State], facts: Mapping[str, Any]) -> None:
        """Go on after `global_round` with what `states` and `facts` gave then."""
        for leaf, own_facts in zip(self.leaves, facts["leaves"], strict=True):
            leaf.restore(_under(f"{leaf.index}/", states), own_facts)
        self._labels = np.array(facts["labels"], dtype=np.int64)
        self._cloud.restore(_under(_CLOUD, states), facts["cloud"])
        self._restored = global_round

    # --- the run ------------------------------------------------------------------------------------

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run up to global round `num_rounds`, from `initial_arrays` or after the round that was restored.

        `timeout` is seconds per exchange.

        Flower's own loop knows one model and one exchange per round; this one knows leaf rounds and the
        cloud. `train_config`, `evaluate_config` and `evaluate_fn` belong to Flower's loop and are unused.

        Returns:
            An empty Flower result: a hierarchy has a model per leaf, found in `leaves`.

        Raises:
            RunError: no client at all could train, or the engine stopped.
        """
        self.summary()
        initial = self._shared.keep(from_record(initial_arrays))
        for leaf in self.leaves:
            if self._restored is None:
                leaf.begin(initial)
            leaf.keep_states(self._shared.keep)
        for global_round in range((self._restored or 0) + 1, num_rounds + 1):
            self._book = RoundBook(global_round, began=self._clock.began)
            if global_round == 1:
                self._choose_first(grid, timeout)
            begun = self._cloud.begin([leaf.model for leaf in self.leaves])
            self._train(grid, initial_arrays, timeout)
            self._cloud_hook(grid, begun, global_round, timeout)
            self._evaluate(grid, initial_arrays, timeout)
            if personal.is_due(self._config.personal, global_round, num_rounds):
                self._personalise(grid, initial_arrays, timeout)
            result = self._book.result(self.leaves, self._labels, self._truth)
            self._clock.lap("report")
            self._on_round(result, self._clock.finish())
        return Result()

    def _choose_first(self, grid: Grid, timeout_s: float) -> None:
        """Before the first round: where the cloud has several models, let every leaf choose one."""
        choice = self._cloud.first_choice(len(self.leaves))
        if choice is not None:
            self._labels, models = choice.choose(self._ask(grid, choice.questions, timeout_s))
            for leaf, model in zip(self.leaves, models, strict=True):
                leaf.begin(model, int(self._labels[leaf.index]))

    def _train(self, grid: Grid, arrays: ArrayRecord, timeout_s: float) -> None:
        """Run the leaf rounds of the current global round."""
        per_global = self._config.hierarchy.leaf_rounds
        for within in range(1, per_global + 1):
            leaf_round = (self._book.global_round - 1) * per_global + within
            # first, so that both lines train with the same control variates
            self._train_beside(grid, arrays, timeout_s, leaf_round)
            self._leaf_round(grid, arrays, timeout_s, _Training(LEAF, self.leaves), leaf_round)
            if self._book.counted == 0:
                client, failure = min(self._book.failures.items())
                raise RunError(
                    f"no client could train in global round {self._book.global_round}; client {client}: "
                    f"{failure}"
                )

    def _leaf_round(
        self, grid: Grid, arrays: ArrayRecord, timeout_s: float, training: "_Training", leaf_round: int
    ) -> None:
        """Run one exchange in which leaves, or forks of them, train."""
        self._training = training
        messages = list(self.configure_train(leaf_round, arrays, ConfigRecord(), grid))
        exchange = self._exchange(grid, messages, timeout_s, self._seconds_per_window)
        self._book.counted = 0
        self.aggregate_train(leaf_round, exchange.replies.values())
        self._clock.lap("aggregate")

    def _train_beside(self, grid: Grid, arrays: ArrayRecord, timeout_s: float, leaf_round: int) -> None:
        """Let leaves train what stands beside their model, too.

        That is the own line of a leaf that took an offer tentatively, and the model of the cluster that is
        proposed for it.
        """
        for line in _BESIDE:
            models = {leaf: leaf.models.training(line) for leaf in self.leaves}
            forks = [leaf.fork(model, scaffold=True) for leaf, model in models.items() if model is not None]
            if forks:
                self._leaf_round(grid, arrays, timeout_s, _Training(line, forks), leaf_round)
            for fork in forks:
                self.leaves[fork.index].models.trained(line, fork.model)

    def _personalise(self, grid: Grid, arrays: ArrayRecord, timeout_s: float) -> None:
        """Fine-tune what every leaf serves for the clients that it knows, and serve it if that helps them."""
        rounds = self._config.personal.leaf_rounds
        forks = [leaf.fork(leaf.models.served, scaffold=False) for leaf in self.leaves]
        for within in range(1, rounds + 1):
            number = (self._book.global_round - 1) * rounds + within
            self._leaf_round(grid, arrays, timeout_s, _Training(PERSONAL, forks), number)
        models = {fork.index: {PERSONAL: fork.model} for fork in forks}
        unseen_clients = models if self._config.personal.unseen_clients == "same" else {}
        found = self._let_evaluate(grid, Asked(models, ("val", "test"), unseen_clients), timeout_s)
        for leaf, fork in zip(self.leaves, forks, strict=True):
            if self._book.note_personal(leaf, found):
                leaf.models.serve_personal(fork.model)
        self._clock.lap("gate")

    def _cloud_hook(self, grid: Grid, begun: CloudRound, global_round: int, timeout_s: float) -> None:
        """Between global rounds: let the cloud cluster the leaves and make its offers."""
        if self._cloud.is_due(global_round):
            models = [leaf.model for leaf in self.leaves]
            weights = [leaf.weight for leaf in self.leaves]
            meeting = begun.meet(models, weights, global_round)
            start = meeting.probe_start()
            probe = None if start is None else self._probe(grid, start, timeout_s)
            hearing = meeting.hear(probe, [leaf.models.trial for leaf in self.leaves])
            questions = hearing.questions
            step = hearing.finish(self._ask(grid, questions, timeout_s) if any(questions) else None)
            cloud_control.arrive(self.leaves)
            made = {id(m): m for m in (*step.offers, *step.trials) if m is not None}
            kept = {key: self._shared.keep(model) for key, model in made.items()}
            offers, trials = ([kept.get(id(model)) for model in m] for m in (step.offers, step.trials))
            step = replace(step, offers=offers, trials=trials)
            self._book.note_cloud_step(step, self._offers(step.offers), self.leaves)
            for leaf in self.leaves:
                cluster = step.offers[leaf.index] if leaf.unseen_clients else None
                leaf.models.meet_cloud(cluster, step.trials[leaf.index])
            if global_round > self._config.cluster.start_round:
                self._book.labels_before = self._labels
            self._labels = step.labels
        self._clock.lap("cluster")

    def _offers(self, clusters: Sequence[State | None]) -> list[Offers]:
        """Return what every leaf is offered, given its cluster's model."""
        models, weights = [leaf.model for leaf in self.leaves], [leaf.weight for leaf in self.leaves]
        blends = blends_of(self._config.cluster.blend)
        offers = make_offers(models, clusters, weights, blends, self._own_layers)
        distinct = {id(offer.model): offer.model for mine in offers for offer in mine.values()}
        kept = {key: self._shared.keep(model) for key, model in distinct.items()}
        return [{r: replace(o, model=kept[id(o.model)]) for r, o in mine.items()} for mine in offers]

    def _probe(self, grid: Grid, start: State, timeout_s: float) -> Probe:
        """Let all leaves train one model for a leaf round, which counts for nothing but comparison."""
        start = self._shared.keep(start)
        leaf_round = self._book.global_round * self._config.hierarchy.leaf_rounds
        nodes = [self._clients.node(client) for leaf in self.leaves for client in leaf.clients]
        round_context = self._round_context(self._book.global_round, leaf_round)
        messages = train_messages(nodes, to_record(start), round_context)
        self._clients.send_tickets(messages, {ARRAYS: start})
        exchange = self._exchange(grid, messages, timeout_s, self._seconds_per_window, phase="cluster")
        per_leaf = self._checked_replies(exchange.replies.values())
        means: list[State | None] = []
        for leaf in self.leaves:
            replies = {client: checked.reply for client, checked in per_leaf[leaf.index].items()}
            self._book.uplink_bytes += sum(reply.uplink_bytes for reply in replies.values())
            states = {client: reply.state for client, reply in replies.items()}
            means.append(guard.finite_mean(states, leaf.train_samples)[0])
        return Probe(start, [start if mean is None else self._shared.keep(mean) for mean in means])

    def _ask(self, grid: Grid, questions: Questions, timeout_s: float) -> Answers:
        """Let clients evaluate the models that the cloud asks about on their validation windows."""
        kept = {id(m): self._shared.keep(m) for roles in questions for m in roles.values()}
        models = {leaf: {r: kept[id(m)] for r, m in roles.items()} for leaf, roles in enumerate(questions)}
        self._book.note_questions([models[leaf.index] for leaf in self.leaves], self.leaves)
        bytes_before = self._book.downlink_bytes
        evaluated = self._let_evaluate(grid, Asked(models, ("val",)), timeout_s, phase="cluster")
        clients = [client for leaf in self.leaves for client in leaf.clients]
        return collect_answers(
            evaluated,
            leaf_of={client: self._leaf_of[client].index for client in clients},
            windows={client: self._held_out[client]["val"] for client in clients},
            downlink_bytes=self._book.downlink_bytes - bytes_before,
        )

    def _let_evaluate(
        self, grid: Grid, asked: Asked, timeout_s: float, phase: str = ""
    ) -> dict[int, EvaluateReply]:
        """Run an exchange in which clients evaluate models; return their evaluations, client by client."""
        round_context = self._round_context(self._book.global_round, self._book.global_round)
        exchange = self._exchange(
            grid, self._evaluating.messages(asked, round_context), timeout_s, phase=phase
        )
        return self._evaluations(asked, exchange.replies.values())

    def _evaluate(self, grid: Grid, arrays: ArrayRecord, timeout_s: float) -> None:
        """Run the evaluation exchange and the gates."""
        messages = list(self.configure_evaluate(self._book.global_round, arrays, ConfigRecord(), grid))
        exchange = self._exchange(grid, messages, timeout_s)
        self.aggregate_evaluate(self._book.global_round, exchange.replies.values())
        self._clock.lap("gate")

    def _exchange(
        self,
        grid: Grid,
        messages: Sequence[Message],
        timeout_s: float,
        seconds_per_window: float = _NO_TIME,
        phase: str = "",
    ) -> Exchange:
        """Send and receive, keeping the books on bytes, failures and time.

        `seconds_per_window` is what a training window is expected to take; `phase` is charged with all of the
        time, where the exchange is no step of its own.
        """
        self._book.downlink_bytes += total_payload_bytes(messages)
        self._clock.lap(phase or "configure")
        costs_s = {
            client: samples * seconds_per_window
            for leaf in self.leaves
            for client, samples in leaf.train_samples.items()
        }
        exchange = self._clients.exchange(
            messages, timeout_s, None if phase else self._clock, self._config.guard.retries,
            self._last_words, costs_s,
        )  # fmt: skip
        if not phase:  # the timelines are those of the phase "wait"
            self._book.exchanges.append(exchange.times)
        for client, failure in exchange.failures.items():
            self._note_failure(client, failure)
        self._clock.lap(phase or "check")
        return exchange

    def _last_words(self, client: int) -> str | None:
        """Return what a client whose worker has died left behind; log where it stood."""
        words = last_words(self._round_context(self._book.global_round, 0).data_folder, client)
        if words:
            logger.info("client %d stood here when its time was over:\n%s", client, words)
        return words

    def _note_failure(self, client: int, failure: Failure) -> None:
        """Keep the first failure of a client in this global round; log it the first time in the run.

        What happens again and again would fill the log; the metrics count it.
        """
        if (client, failure.kind) not in self._told:
            self._told.add((client, failure.kind))
            logger.warning("global round %d: client %d failed: %s", self._book.global_round, client, failure)
        self._book.failures.setdefault(client, failure)


def _under(prefix: str, states: Mapping[str, State]) -> dict[str, State]:
    """Return the states whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): s for name, s in states.items() if name.startswith(prefix)}


@dataclass(frozen=True)
class _Training:
    """What trains in an exchange: the leaves, or forks of some."""

    line: Line
    leaves: Sequence[Leaf]

    def leaf_at(self, index: int) -> Leaf:
        """Return the leaf, or its fork, of an index."""
        return next(leaf for leaf in self.leaves if leaf.index == index)
