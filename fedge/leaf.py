"""A leaf server: one of Flower's own strategies over its own clients, plus SCAFFOLD.

The strategy sees the leaf's clients through `LeafGrid`, a view of the real Grid in which only
`get_node_ids` differs, so any Flower strategy works per leaf unchanged. Called by `fedge.strategy`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAdam, FedAvg, FedMedian, FedTrimmedAvg, Krum
from flwr.serverapp.strategy.fedopt import FedOpt

from fedge.aggregation import State, batches, part_of, weighted_mean
from fedge.arrays import from_record, to_record
from fedge.config import LeafConfig
from fedge.messages import ARRAYS, CONTROL, METRICS, NUM_EXAMPLES, Errand, TrainReply
from fedge.scaffold import control_delta, updated_server_control, zero_control
from fedge.strategy_state import numbers_of, put_back, states_of
from fedge.training import LocalTraining


class ExactFedAvg(FedAvg):
    """Flower's FedAvg with `weighted_mean`: a float64 sum in a fixed order that keeps every dtype."""

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Average the replies, in the order given, weighted by their number of training windows."""
        contents = [reply.content for reply in replies]
        if not contents:
            return None, None
        weights = [float(c.metric_records[METRICS][NUM_EXAMPLES]) for c in contents]  # type: ignore[arg-type]
        return to_record(
            weighted_mean([from_record(c.array_records[ARRAYS]) for c in contents], weights)
        ), None


def make_strategy(config: LeafConfig) -> FedAvg:
    """Return a fresh Flower strategy for one leaf; the leaf decides who takes part, so all it sees train."""
    everyone: dict[str, Any] = {"fraction_train": 1.0, "min_train_nodes": 1, "min_available_nodes": 1}
    if config.strategy == "fedavg":
        return ExactFedAvg(**everyone)
    if config.strategy == "fedmedian":
        return FedMedian(**everyone)
    if config.strategy == "fedtrimmedavg":
        return FedTrimmedAvg(**everyone, beta=config.trim_fraction)
    if config.strategy == "krum":
        return Krum(**everyone, num_malicious_nodes=config.num_malicious)
    assert config.strategy == "fedadam"
    return FedAdam(**everyone, eta=config.server_lr)


class LeafGrid(Grid):
    """The Grid as one leaf sees it: only the given nodes exist."""

    def __init__(self, grid: Grid, node_ids: Sequence[int]) -> None:
        """Show `node_ids` of `grid`."""
        self._grid = grid
        self._node_ids = list(node_ids)

    def get_node_ids(self) -> Iterable[int]:
        """Return the nodes of this leaf."""
        return list(self._node_ids)

    def set_run(self, run_id: int) -> None:
        """Pass on."""
        self._grid.set_run(run_id)

    @property
    def run(self):  # type: ignore[no-untyped-def]  # Flower does not export the type
        """Pass on."""
        return self._grid.run

    def create_message(  # type: ignore[no-untyped-def]
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ):
        """Pass on."""
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Pass on."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Pass on."""
        return self._grid.pull_messages(message_ids)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Pass on."""
        return self._grid.send_and_receive(messages, timeout=timeout)


class Leaf:
    """One leaf server and what it keeps from round to round.

    Attributes:
        index: 0, 1, …
        clients: partition ids, ascending.
        train_samples: partition id → training windows.
        model: the model that it serves.
        start: the model with which it began the current global round.
        control: SCAFFOLD's c (float64, trainable entries only), or None when SCAFFOLD is off.
    """

    def __init__(
        self,
        index: int,
        train_samples: Mapping[int, int],
        model: State,
        parameter_names: Sequence[str],
        strategy: FedAvg,
        scaffold: bool,
    ) -> None:
        """Start with `model`; `train_samples` names the leaf's clients and their averaging weights."""
        self.index = index
        self.train_samples = dict(sorted(train_samples.items()))
        self.clients = tuple(self.train_samples)
        self.model = model
        self.start = model
        self._parameter_names = tuple(parameter_names)
        self._strategy = strategy
        self.control: State | None = zero_control(self._parameters(model)) if scaffold else None

    @property
    def weight(self) -> int:
        """Training windows of all its clients: the leaf's weight at the cloud."""
        return sum(self.train_samples.values())

    def configure_train(self, grid: Grid, node_ids: Sequence[int], errand: Errand) -> list[Message]:
        """Return the messages of one leaf round to the given nodes of this leaf."""
        arrays = to_record(self.model)
        leaf_grid = LeafGrid(grid, node_ids)
        messages = list(
            self._strategy.configure_train(errand.leaf_round, arrays, errand.to_record(), leaf_grid)
        )
        if self.control is not None and messages:
            control = to_record(self.control)
            for message in messages:
                message.content[CONTROL] = control
        return messages

    def aggregate_train(
        self, leaf_round: int, replies: Mapping[int, TrainReply], settings: LocalTraining
    ) -> None:
        """Take over the average of the replies (partition id → reply, ascending); none changes nothing.

        `settings` are those under which the clients trained.
        """
        if not replies:
            return
        if self.control is not None:
            self.control = self._updated_control(self.control, list(replies.values()), settings)
        self.model = self._average(leaf_round, list(replies.values()))

    def keep_states(self, keep: Callable[[State], State]) -> None:
        """Let `keep` decide where the leaf's states lie."""
        self.model = keep(self.model)
        if self.control is not None:
            self.control = keep(self.control)

    def states(self) -> dict[str, State]:
        """Return the states that the leaf keeps from round to round: model, control, its strategy's."""
        control = {} if self.control is None else {"control": self.control}
        own = {f"strategy.{name}": state for name, state in states_of(self._strategy).items()}
        return {"model": self.model, **control, **own}

    def facts(self) -> dict[str, Any]:
        """Return what else the leaf keeps from round to round, as JSON."""
        return {"strategy": numbers_of(self._strategy)}

    def restore(self, states: Mapping[str, State], facts: Mapping[str, Any]) -> None:
        """Go on with what `states` and `facts` gave; the arrays become the leaf's own."""
        self.model = states["model"]
        self.control = states.get("control")
        own = {n.removeprefix("strategy."): s for n, s in states.items() if n.startswith("strategy.")}
        put_back(self._strategy, own, facts["strategy"])

    def _updated_control(
        self, control: State, replies: Sequence[TrainReply], settings: LocalTraining
    ) -> State:
        """Return c⁺, worked out in parts: all Δc_i of a large model at once are many times the model."""
        updated = {name: np.empty_like(array) for name, array in control.items()}
        weights = [float(reply.samples) for reply in replies]
        for batch in batches(control):
            c, start = part_of(control, batch), part_of(self.model, batch)
            deltas = [
                control_delta(c, start, part_of(r.state, batch), r.steps, settings.lr, settings.momentum)
                for r in replies
            ]
            part = updated_server_control(c, deltas, weights, float(self.weight))
            for name, at in batch.items():
                updated[name].reshape(-1)[at] = part[name]
        return updated

    def _average(self, leaf_round: int, replies: Sequence[TrainReply]) -> State:
        """Return the new leaf model.

        Flower's strategies see floating-point entries only (counters would count as distances in Krum),
        and server optimisers trainable entries only: a BatchNorm variance must not get an Adam step.
        What the strategy does not see is averaged, or copied from the first reply if it is a counter.
        """
        mean = weighted_mean([reply.state for reply in replies], [reply.samples for reply in replies])
        if isinstance(self._strategy, ExactFedAvg):
            return mean
        names = [name for name, array in mean.items() if np.issubdtype(array.dtype, np.floating)]
        if isinstance(self._strategy, FedOpt):
            names = list(self._parameter_names)
            self._strategy.current_arrays = {name: self.model[name] for name in names}
        contents = [_content(r.state, names, r.samples) for r in replies]
        combined, _ = self._strategy.aggregate_train(leaf_round, contents)
        assert combined is not None
        seen = from_record(combined)
        return {n: seen[n].astype(a.dtype).reshape(a.shape) if n in seen else a for n, a in mean.items()}

    def _parameters(self, state: State) -> State:
        """Return the trainable entries of a state."""
        return {name: state[name] for name in self._parameter_names}


def _content(state: State, names: Sequence[str], samples: int) -> Message:
    """Return a message as Flower's strategies expect a reply: one array record, one metric record."""
    records = RecordDict({ARRAYS: to_record(state, names), METRICS: MetricRecord({NUM_EXAMPLES: samples})})
    return Message(records, 0, "train")
