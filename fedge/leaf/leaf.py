"""A leaf server: one of Flower's strategies (`strategies.rules`) over the leaf's clients, plus SCAFFOLD.

The strategy sees the leaf's clients through `fedge.leaf.strategies.grid`, a view of the real Grid in which
only `get_node_ids` differs, so any Flower strategy works per leaf unchanged.
"""

import copy
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedge.algorithm.leaf_part import LeafTurn
from fedge.compression.sending import Sending
from fedge.config.registers.determinism import GLOBAL_STREAMS
from fedge.config.registers.failing import own_error, own_errors
from fedge.config.tree import Path
from fedge.exchange.content import CONTROL
from fedge.exchange.engine import RunError
from fedge.exchange.failure import words_of
from fedge.exchange.round_context import LEAF, RoundContext
from fedge.exchange.schema import ReplyRejected
from fedge.exchange.train import TrainReply
from fedge.leaf.algorithm import ALGORITHM, LeafAlgorithm, replies_to_leaf
from fedge.leaf.controls import CONTROL_PART, Controls, moved_control
from fedge.leaf.drift import Drift, corrected_control
from fedge.leaf.models import LeafModels
from fedge.leaf.server import Server
from fedge.leaf.strategies.aggregation import Contribution
from fedge.leaf.strategies.checks import NormHistory, refuse_impossible
from fedge.leaf.strategies.grid import messages_of
from fedge.leaf.strategies.rules import combine, is_stateless
from fedge.leaf.strategies.strategy_state import (
    numbers_of,
    refuse_incompatible_state,
    restore_strategy,
    states_of,
)
from fedge.leaf.training_history import Turns
from fedge.states.averaging import State, for_each_part, part_of
from fedge.states.lazy_state import computed_state
from fedge.states.named_states import states_under
from fedge.states.records import to_record
from fedge.states.restore_checks import checked_number, state
from fedge.training.scaffold import control_delta, drift_length, updated_server_control, zero_control
from fedge.training.settings import LocalTraining

logger = logging.getLogger(__name__)

_STRATEGY = "strategy."  # prefix of the names of its strategy's states


@dataclass(frozen=True)
class _Step:
    """Result of a leaf round: the strategy with its new state, c⁺ and the model."""

    strategy: Strategy
    control: State | None
    model: State
    algorithm: LeafAlgorithm | None


class Leaf:
    """One leaf server and its state from round to round.

    Attributes:
        index: 0, 1, …
        path: position in the tree, from the root down; for leaves directly under the cloud, their index.
        is_apart: always False, because a leaf has no servers below it.
        clients: partition ids of the training clients, ascending.
        unseen_clients: partition ids of clients that only evaluate the leaf's models.
        train_samples: partition id → number of training windows, the client's weight in means.
        models: the trained and served models.
        control: SCAFFOLD's c (float64, trainable entries only), or None if SCAFFOLD is off.
        drift: movement since the last cloud step, or None unless SCAFFOLD is on two levels.
        client_controls: partition id → SCAFFOLD's c_i (float64, trainable entries only) after the client's
            last accepted leaf round; missing if zero.
        norms: norms of the recent accepted updates.
        variances: entries of its model that must not be negative.
        algorithm: state of its clients' algorithm; None if the algorithm needs none.
        turns: training history of its clients; None if no selection reads it.
        parameter_names: trainable entries of the model.
        sending: compression of its uplink; None for uncompressed models.
        held_out: number of the leaf's clients excluded from training a fork.
    """

    def __init__(
        self,
        index: int,
        train_samples: Mapping[int, int],
        model: State,
        parameter_names: Sequence[str],
        strategy: Strategy,
        scaffold_levels: int,
        unseen_clients: Sequence[int] = (),
        variances: Sequence[str] = (),
        algorithm: LeafAlgorithm | None = None,
    ) -> None:
        """Start with `model`; for further arguments see the attributes.

        Args:
            model: initial model of all leaves, or of the leaf's group.
            strategy: combines replies.
            scaffold_levels: 0: off, 1: between leaf and clients, 2: also between cloud and leaf.
        """
        self.index = index
        self.path: Path = (index,)
        self.is_apart = False
        self.train_samples = dict(sorted(train_samples.items()))
        self.clients = tuple(self.train_samples)
        self.unseen_clients = tuple(sorted(unseen_clients))
        self.variances = tuple(variances)
        self.models = LeafModels(model)
        self.parameter_names = tuple(parameter_names)
        self._strategy = strategy
        self.client_controls: Controls = {}
        self.norms = NormHistory(len(self.clients))
        self.control: State | None = None
        if scaffold_levels:
            self.control = zero_control({name: model[name] for name in parameter_names})
        self.drift = Drift(model) if scaffold_levels > 1 else None
        self._sent_control: State | None = self.control
        self.algorithm = algorithm
        self.turns: Turns | None = None
        self.sending: Sending | None = None
        self.held_out = 0
        self._parent_correction: State | None = None
        self._is_fork = False

    def fork(self, model: State, scaffold: bool, without: Collection[int] = ()) -> "Leaf":
        """A copy of the leaf for training `model` with the same clients, without effect on this leaf.

        The fork copies the strategy's state (moments of a server optimiser, a clipping norm). With
        `scaffold`, its clients get the same control variates as the leaf's (c_j + u_j on two levels).

        Args:
            model: model to train.
            scaffold: whether clients get control variates, if those of the leaf do.
            without: clients of the leaf excluded from training the fork.
        """
        samples = {c: n for c, n in self.train_samples.items() if c not in without}
        fork = Leaf(
            self.index, samples, model, self.parameter_names, copy.deepcopy(self._strategy), 0,
            self.unseen_clients, self.variances, self.algorithm and self.algorithm.copied(),
        )  # fmt: skip
        fork.path = self.path
        fork.client_controls = self.client_controls
        fork.norms = copy.deepcopy(self.norms)
        fork.control, fork._sent_control = (self.control, self._sent_control) if scaffold else (None, None)
        fork._is_fork, fork.turns = True, self.turns
        fork.held_out = len(self.train_samples) - len(samples)
        return fork

    @property
    def number(self) -> int:
        """Index among the children of its parent."""
        return self.path[-1]

    @property
    def model(self) -> State:
        """The model from which the next leaf round starts."""
        return self.models.model

    @property
    def weight(self) -> int:
        """Number of training windows of all training clients, the leaf's weight at the cloud."""
        return sum(self.train_samples.values())

    def contribution(self, version: int) -> Contribution:
        """The leaf's contribution to the cloud; call once per cloud round, as it advances the compression.

        A leaf without clients sends nothing; its contribution has weight 0.

        Args:
            version: global round of its starting model.
        """
        state = self.model if self.sending is None or not self.clients else self.sending.send(self.model)
        return Contribution(self.number, state, self.weight, version)

    @property
    def below(self) -> Sequence[Server]:
        """Empty: only clients are below a leaf."""
        return ()

    def set_correction(self, above: State | None) -> None:
        """Set the sum of the corrections of the servers above; `keep_states` adds it to the control."""
        self._parent_correction = above

    @property
    def sent_control(self) -> State | None:
        """The control variate sent to clients: c_j + u_j + the corrections of the servers above."""
        return self._sent_control

    def begin(self, model: State, group: int = 0) -> None:
        """Start the run with a model, the same for all leaves of a group."""
        self.models.begin(model)
        if self.drift is not None:
            self.drift = Drift(model, group=group)

    def configure_train(
        self, grid: Grid, node_ids: Sequence[int], round_context: RoundContext
    ) -> list[Message]:
        """The train messages of one leaf round to the given nodes of this leaf.

        Raises:
            RunError: the strategy makes no messages, or a user's strategy fails.
        """
        arrays, leaf_round = to_record(self.model), round_context.leaf_round
        try:
            with GLOBAL_STREAMS:  # FedAvg draws its nodes from a global stream
                messages = messages_of(
                    self._strategy, leaf_round, arrays, round_context.to_record(), grid, node_ids
                )
        except RunError:
            raise
        except own_errors() as error:
            raise RunError(
                f"leaf.strategy: configure_train of {type(self._strategy).__name__} failed in leaf round "
                f"{leaf_round}: {own_error(error)}; fix it"
            ) from error
        if node_ids and not messages:
            raise RunError(
                f"leaf.strategy must send its clients messages, but configure_train of "
                f"{type(self._strategy).__name__} made none; derive it from FedAvg, or call FedAvg's"
            )
        if self._sent_control is not None and messages:
            control = to_record(self._sent_control)
            for message in messages:
                message.content[CONTROL] = control
        return messages

    def aggregate_train(
        self,
        round_context: RoundContext,
        replies: Mapping[int, TrainReply],
        mean: State,
        settings: LocalTraining,
        keep: Callable[[State], State] = lambda state: state,
    ) -> dict[int, ReplyRejected]:
        """Update the leaf to the strategy's combination of the replies, if it is finite.

        A fork does not change control variates.

        Returns:
            Clients whose reply cannot be combined even alone. If any, the leaf is unchanged, and the call can
                be repeated without them. Empty if the leaf was updated, or keeps its model for a reason other
                than a single reply.

        Args:
            round_context: the leaf round.
            replies: partition id → reply, ascending; at least as many as the strategy needs.
            mean: mean of their models, weighted by windows.
            settings: settings of the clients' training.
            keep: stores large states in files or in memory.
        """
        try:
            step = self._next_step(replies, mean, settings, round_context)
        except own_errors() as error:  # arithmetic, or an error in a strategy
            logger.warning("leaf %d cannot combine its replies: %s", self.index, words_of(error))
            arguments = settings, round_context
            rejections = {
                client: self._fails_alone(client, reply, *arguments) for client, reply in replies.items()
            }
            return {client: rejected for client, rejected in rejections.items() if rejected is not None}
        if self.control is not None and not self._is_fork:
            self._move_client_controls(replies, settings, keep)
        self._strategy, self.control, self.algorithm = step.strategy, step.control, step.algorithm
        if self.algorithm is not None and not self._is_fork:
            self.algorithm.note_kept(replies)
        if self.drift is not None:
            steps = [reply.steps for reply in replies.values()]
            weights = [reply.mean_weight for reply in replies.values()]
            self.drift.length += drift_length(steps, weights, settings.lr, settings.momentum)
        self.models.trained(LEAF, step.model)
        return {}

    def _move_client_controls(
        self, replies: Mapping[int, TrainReply], settings: LocalTraining, keep: Callable[[State], State]
    ) -> None:
        """Set c_i⁺ of every client with an accepted reply, one by one, as each is as large as two models."""
        assert self._sent_control is not None
        for client, reply in replies.items():
            control = self.client_controls.get(client)
            moved = moved_control(control, self._sent_control, self.model, reply, settings)
            self.client_controls[client] = computed_state(keep(moved))

    def _next_step(
        self,
        replies: Mapping[int, TrainReply],
        mean: State,
        settings: LocalTraining,
        round_context: RoundContext,
    ) -> "_Step":
        """Next state of the leaf; arguments as for `aggregate_train`.

        Raises:
            FloatingPointError: c_i⁺ is not finite.
            Exception: any error of the strategy.
        """
        control = self.control
        if control is not None and not self._is_fork:
            control = self._updated_control(control, replies, settings)
        strategy = self._strategy if is_stateless(self._strategy) else copy.deepcopy(self._strategy)
        model = combine(
            strategy, self.model, mean, list(replies.values()), self.parameter_names, settings,
            round_context.seed, round_context.stream_of(self.index),
            None if self.algorithm is None else self.algorithm.form.sent,
        )  # fmt: skip
        algorithm = self.algorithm and self.algorithm.copied()
        if algorithm is not None:
            turn = LeafTurn(
                self.index, round_context.global_round, round_context.leaf_round, round_context.seed,
                round_context.stream_of(self.index),
            )  # fmt: skip
            model = algorithm.combined(
                self.model, model, replies_to_leaf(replies), len(self.clients), settings.lr, turn
            )
        refuse_impossible(model, self.variances)
        refuse_impossible(control or {})
        return _Step(strategy, control, model, algorithm)

    def _fails_alone(
        self, client: int, reply: TrainReply, settings: LocalTraining, round_context: RoundContext
    ) -> ReplyRejected | None:
        """Reason why a reply cannot be combined even alone, or None."""
        try:
            self._next_step({client: reply}, reply.state, settings, round_context)
        except own_errors() as error:  # as in `aggregate_train`
            return ReplyRejected("cannot be combined", words_of(error))
        return None

    def keep_states(self, keep: Callable[[State], State]) -> None:
        """Pass all large states through `keep`, which stores them in files or in memory."""
        self.models.keep(keep)
        if self._is_fork:  # a fork sends the leaf's control variate, which the leaf stores
            return
        if self.control is not None:
            self.control = keep(self.control)
        for client, control in self.client_controls.items():
            self.client_controls[client] = keep(control)
        self._sent_control = self.control
        if self.control is not None and self.drift is not None and self.drift.correction is not None:
            self.drift.correction = keep(self.drift.correction)
            self._sent_control = corrected_control(self.control, self.drift.correction)
        if self._sent_control is not None and self._parent_correction is not None:
            self._sent_control = corrected_control(self._sent_control, self._parent_correction)
        if self._sent_control is not None and self._sent_control is not self.control:
            self._sent_control = keep(self._sent_control)

    def states(self) -> dict[str, State]:
        """The leaf's states between rounds: models, control variates, and those of its strategy."""
        control: dict[str, State] = {} if self.control is None else {"control": self.control}
        if self.drift is not None:
            control |= self.drift.states()
        if self.algorithm is not None:
            control |= self.algorithm.states()
        sending = {} if self.sending is None else self.sending.states()
        return {**self.models.states(), **control, **self._strategy_states(), **sending}

    def _strategy_states(self) -> dict[str, State]:
        """The strategy's states, under the prefixed names used among the leaf's."""
        return {f"{_STRATEGY}{name}": state for name, state in states_of(self._strategy).items()}

    def facts(self) -> dict[str, Any]:
        """The leaf's other state between rounds, as JSON."""
        drift = {} if self.drift is None else {"drift": self.drift.facts()}
        return {
            "repeated": self.models.repeated(),
            "norms": list(self.norms.norms),
            "strategy": numbers_of(self._strategy),
            **drift,
            **({} if self.algorithm is None else {"algorithm": self.algorithm.facts()}),
            **({} if self.turns is None else {"turns": self.turns.facts()}),
            **({} if self.sending is None else {"sending": self.sending.facts()}),
        }

    def restore(self, states: Mapping[str, State], facts: Mapping[str, Any]) -> None:
        """Restore the result of `states` and `facts`; the arrays become the leaf's own.

        Raises:
            ValueError, FloatingPointError: they do not belong to this leaf.
        """
        self.models.restore(states, facts["repeated"])
        for model in self.models.states().values():
            refuse_impossible(model, self.variances)
        if self.control is not None:
            self.control = state(states["control"], self.control, "the control variate of a leaf")
        if self.drift is not None:
            self.drift = Drift.restored(states, facts["drift"], self.model, self.control)
        if self.algorithm is not None:
            self.algorithm.restore(states.get(ALGORITHM, {}), facts["algorithm"])
            self._refuse_strangers(self.algorithm.kept, "a memory")
        if self.sending is not None:
            self.sending.restore(states, facts["sending"])
        self.norms.norms.extend(checked_number(norm, "the norm of an update", 0) for norm in facts["norms"])
        if self.turns is not None:
            self.turns = Turns.of_facts(facts["turns"])
            self._refuse_strangers([client for client, *_ in self.turns.facts()], "turns")
        self.refuse_other_strategy(states, facts)
        restore_strategy(self._strategy, states_under(_STRATEGY, states), facts["strategy"])

    def _refuse_strangers(self, clients: Iterable[int], kind: str) -> None:
        """Raise ValueError for a client that does not train at this leaf."""
        strangers = set(clients) - set(self.clients)
        if strangers:
            raise ValueError(
                f"leaf {self.index} must have {kind} of its own clients, but has of {min(strangers)}"
            )

    def round_states(self) -> tuple[dict[str, State], dict[str, Any]]:
        """State at the start of a leaf round, other than the model: states, and facts as JSON."""
        states = self._strategy_states()
        if self.control is not None:
            states["control"] = self.control
        if self._sent_control is not None:
            states["told"] = self._sent_control
        facts: dict[str, Any] = {"norms": list(self.norms.norms), "strategy": numbers_of(self._strategy)}
        if self.turns is not None:
            facts["turns"] = self.turns.facts()
        if self.algorithm is not None:
            states |= self.algorithm.states()
            facts["algorithm"] = self.algorithm.facts()
        return states, facts | ({} if self.drift is None else {"drift": self.drift.length})

    def put_round_states(self, states: Mapping[str, State], facts: Mapping[str, Any]) -> None:
        """Set `round_states` of this leaf from another process; the model and the c_i are not included."""
        self.control, self._sent_control = states.get("control"), states.get("told")
        self.norms.norms.clear()
        self.norms.norms.extend(facts["norms"])
        restore_strategy(self._strategy, states_under(_STRATEGY, states), facts["strategy"])
        if self.turns is not None:
            self.turns = Turns.of_facts(facts["turns"])
        if self.algorithm is not None:
            self.algorithm.restore(states.get(ALGORITHM, {}), facts["algorithm"])
        if self.drift is not None:
            self.drift.length = float(facts["drift"])

    def refuse_other_strategy(self, states: Mapping[str, State], facts: Mapping[str, Any]) -> None:
        """Raise ValueError unless the strategy can hold the state for `put_round_states`."""
        refuse_incompatible_state(
            self._strategy, states_under(_STRATEGY, states), facts["strategy"], self.model
        )

    def _updated_control(
        self, control: State, replies: Mapping[int, TrainReply], settings: LocalTraining
    ) -> State:
        """c⁺, computed in parts, because all Δc_i of a large model at once would take too much memory.

        A client is always weighted by its number of dealt windows, so c stays the mean of the c_i.
        """
        sent_control = self._sent_control
        assert sent_control is not None
        updated = {name: np.empty_like(array) for name, array in control.items()}
        weights = [float(self.train_samples[client]) for client in replies]

        def work(batch: dict[str, slice]) -> None:
            c, sent, start = (part_of(s, batch) for s in (control, sent_control, self.model))
            deltas = [
                control_delta(sent, start, part_of(r.state, batch), r.steps, settings.lr, settings.momentum)
                for r in replies.values()
            ]
            part = updated_server_control(c, deltas, weights, float(self.weight))
            for name, span in batch.items():
                updated[name].reshape(-1)[span] = part[name]

        for_each_part(work, control, CONTROL_PART)
        return updated
