"""Strategies by which a leaf combines its clients' models: Flower's, with their settings per round.

FedAvg (McMahan et al. 2017), coordinate-wise median and trimmed mean (Yin et al. 2018), Krum and Multi-Krum
(Blanchard et al. 2017), Bulyan (El Mhamdi et al. 2018), server momentum (Hsu et al. 2019), adaptive server
optimisers (Reddi et al. 2021), q-FedAvg (Li et al. 2020).
"""

import copy
import inspect
import logging
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import Bulyan, FedAvg, FedAvgM, Krum, MultiKrum, QFedAvg, Strategy
from flwr.serverapp.strategy.fedopt import FedOpt

from fedge.config.config import Config
from fedge.config.registers.determinism import GLOBAL_STREAMS, call_checked
from fedge.config.registers.failing import own_error, own_errors
from fedge.config.registers.hooks import refuse_misspelt
from fedge.config.registers.option import ConfigError, shown
from fedge.config.registers.parts import CLOUD, RULES
from fedge.config.registers.register import Register
from fedge.config.sections.hierarchy import CloudConfig
from fedge.exchange.content import ARRAYS, CONFIG, METRICS, NUM_EXAMPLES
from fedge.exchange.round_context import RoundContext
from fedge.exchange.train import KEY_CLIPPING_NORM, TrainReply
from fedge.leaf.strategies.checks import first_not_finite
from fedge.leaf.strategies.grid import messages_of
from fedge.leaf.strategies.private_mean import PrivateMean
from fedge.leaf.strategies.strategy_state import (
    at_least_1d,
    contents_of,
    numbers_of,
    refuse_incompatible_state,
    states_of,
    unsaved_attribute,
)
from fedge.process.logs import deduplicate_flower_log, quiet_flower_log
from fedge.states.averaging import State, weighted_mean
from fedge.states.records import from_record, to_record
from fedge.training.settings import LocalTraining

logger = logging.getLogger(__name__)

_TRAIN_LOSS = "train_loss"  # key read by QFedAvg
_BY_DISTANCE = (Krum, MultiKrum, Bulyan)
_PACKAGES = ("flwr", "fedge")  # whose classes are no user's
_UNCALLED = frozenset({"start", "configure_evaluate", "aggregate_evaluate"})  # of Flower's `Strategy`
_EARLIER = ("aggregate_fit", "configure_fit", "initialize_parameters")  # of Flower's `flwr.server.strategy`


class _SharedRecord(ArrayRecord):
    """A record returning copies of its arrays without Flower's garbage collection at every call."""

    def to_numpy_ndarrays(self, *, keep_input: bool = True) -> list[np.ndarray]:
        """The arrays, or writable copies if `keep_input` is False."""
        arrays = [array.numpy() for array in self.values()]
        return arrays if keep_input else [array.copy() for array in arrays]


class ExactFedAvg(FedAvg):
    """Flower's FedAvg with `weighted_mean`: a float64 sum in a fixed order, with unchanged dtypes."""

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Average the replies in the given order, weighted by their number of training windows."""
        contents = [reply.content for reply in replies]
        if not contents:
            return None, None
        weights = [float(c.metric_records[METRICS][NUM_EXAMPLES]) for c in contents]  # type: ignore[arg-type]
        return to_record(
            weighted_mean([from_record(c.array_records[ARRAYS]) for c in contents], weights)
        ), None


class SelectiveMultiKrum(MultiKrum):
    """Flower's Multi-Krum; 0 selected means all replies minus the malicious ones minus two."""

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Average the replies closest together."""
        messages = list(replies)
        configured = self.num_nodes_to_select
        self.num_nodes_to_select = configured or max(1, len(messages) - self.num_malicious_nodes - 2)
        try:
            return super().aggregate_train(server_round, messages)
        finally:
            self.num_nodes_to_select = configured


def make_strategy(config: Config, num_training: int) -> Strategy:
    """A new Flower strategy for one leaf, without sampling of its own, because the leaf selects the clients.

    Args:
        config: configuration, of which `leaf`, `privacy` and `train` are read.
        num_training: number of training clients in a leaf round.
    """
    if config.privacy.kind not in ("off", "local"):
        return PrivateMean(config.privacy, num_training)
    return _construct(RULES, config.leaf.strategy, config.leaf.arguments("strategy"))


def make_cloud_rule(cloud: CloudConfig) -> Strategy:
    """A new Flower strategy for one group of leaves at the cloud.

    Args:
        cloud: section `cloud` of the configuration.

    Raises:
        ConfigError: construction fails.
    """
    return _construct(CLOUD, cloud.rule, cloud.arguments("rule"))


def _construct(register: Register, name: str, arguments: Mapping[str, Any]) -> Strategy:
    """Construct the strategy named by an option, with keyword arguments."""
    rule: Callable[..., Strategy] = register.load(name)
    defaults: dict[str, Any] = {"fraction_train": 1.0, "min_train_nodes": 1, "min_available_nodes": 1}
    if register.is_own(name):
        defaults = _accepted_arguments(rule, defaults)
    option = register.option
    try:
        with deduplicate_flower_log():
            strategy = rule(**{**defaults, **arguments})
    except own_errors() as error:
        raise ConfigError(
            f"{option} {name} cannot be made: {own_error(error)}; fix it, or change {option}-args"
        ) from error
    if not isinstance(strategy, Strategy):
        raise ConfigError(
            f"{option} must be a subclass of flwr.serverapp.strategy.Strategy, but {name} makes "
            f"{shown(strategy)}; derive it from FedAvg"
        )
    earlier = next((word for word in _EARLIER if hasattr(strategy, word)), None)
    if earlier:
        raise ConfigError(
            f"{option} {name} has a method {earlier}, of Flower's earlier strategies, which is never "
            f"called; write it as aggregate_train (docs/extend.md)"
        )
    if register.is_own(name):
        refuse_misspelt(type(strategy), Strategy, f"{option} {name}")
    return strategy


def note_of_uncalled(config: Config) -> str:
    """Note on methods of a user's strategies never called by a run; empty if there are none."""
    told = []
    for register, name in ((RULES, config.leaf.strategy), (CLOUD, config.cloud.rule)):
        code = register.load(name) if register.is_own(name) else None
        code = getattr(code, "part", code)  # an object given from Python
        code = code if inspect.isclass(code) else type(code)
        users = (kind for kind in code.__mro__ if kind.__module__.partition(".")[0] not in _PACKAGES)
        found = sorted({word for kind in users for word in vars(kind) if word in _UNCALLED})
        if found:
            told.append(f"{register.option} {name} defines {' and '.join(found)}, which a run never calls")
    return "; ".join([*told, "clients evaluate as evaluate.* and gate.* say"]) if told else ""


def _accepted_arguments(rule: Callable[..., Strategy], offered: Mapping[str, Any]) -> dict[str, Any]:
    """The offered keyword arguments accepted by a strategy."""
    parameters = inspect.signature(rule).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return dict(offered)
    names = {parameter.name for parameter in parameters}
    return {key: value for key, value in offered.items() if key in names}


@quiet_flower_log()
def refuse_strategy_that_fails(
    register: Register, name: str, strategy: Strategy, model: State, names: Sequence[str], clients: int
) -> None:
    """Raise ConfigError when a user's strategy fails on made-up replies.

    Args:
        register: register of the strategy.
        name: of the strategy.
        strategy: a new strategy.
        model: a model of the run; the made-up replies are this model plus noise.
        names: trainable entries.
        clients: number of clients at the smallest leaf, or of leaves under the cloud.
    """
    replies = _replies_around(model, clients)
    mean = weighted_mean([reply.state for reply in replies], [1.0] * clients)

    def run_rounds() -> tuple[list[State], list[Strategy]]:
        current, models, strategies = copy.deepcopy(strategy), [], []
        for leaf_round in (1, 2):  # some keep state only from the second round on
            if register is RULES and _configures(strategy):
                _configure(current, leaf_round, model, clients)
            current = copy.deepcopy(current)  # as in a run, where a failed round changes nothing
            result = combine(current, model, mean, replies, names, LocalTraining(), 0, (leaf_round, 0))
            entry = first_not_finite(result)
            if entry is not None:
                raise FloatingPointError(
                    f"entry {entry!r} of what it makes of {clients} replies is not finite"
                )
            models.append(result)
            strategies.append(current)
        return models, strategies

    with register.explaining_errors(name):
        before = contents_of(copy.deepcopy(strategy))
        if register is CLOUD and _configures(strategy):
            _refuse_state_from_messages(name, strategy, before, model, clients)
        _, strategies = call_checked(register, name, run_rounds)
    last = strategies[-1]
    unsaved = unsaved_attribute(last, before)
    if unsaved:
        raise ConfigError(
            f"{register.option} {name} must remember numbers, text, arrays, or lists and tables (by text) of "
            f"these, which checkpoints hold, but {unsaved!r}, changed by a round, is of type "
            f"{type(_value_of(last, unsaved)).__name__}; keep it as one of them"
        )
    for current in strategies:
        _refuse_unrestorable(f"{register.option} {name}", strategy, current, model)


def _configures(strategy: Strategy) -> bool:
    """Whether a user's class defines how a strategy makes messages."""
    of = next(kind for kind in type(strategy).__mro__ if "configure_train" in vars(kind))
    return of.__module__.partition(".")[0] not in _PACKAGES


def _configure(strategy: Strategy, leaf_round: int, model: State, clients: int) -> None:
    """Let a strategy make its messages of one leaf round, as in a run, before it combines the replies."""
    context = RoundContext(0, leaf_round, leaf_round, "", "", "", 1.0).to_record()
    with GLOBAL_STREAMS:
        drawn = random.getstate()  # FedAvg draws its nodes from the global stream
        try:
            messages_of(
                strategy, leaf_round, to_record(model), context, cast(Any, None), range(1, clients + 1)
            )
        finally:
            random.setstate(drawn)


def _refuse_state_from_messages(
    name: str, strategy: Strategy, before: Mapping[str, Any], model: State, clients: int
) -> None:
    """Raise ConfigError for a rule of the cloud relying on `configure_train`, which a cloud never calls.

    Args:
        name: of the rule.
        strategy: a new strategy; unchanged afterwards.
        before: its `contents_of`.
        model: a model of the run.
        clients: number of leaves under the cloud.
    """
    asked = copy.deepcopy(strategy)
    try:
        _configure(asked, 1, model, clients)
    except own_errors():  # nothing depends on it
        return
    changed = sorted(key for key, value in contents_of(asked).items() if value != before.get(key))
    if changed:
        raise ConfigError(
            f"cloud.rule {name} must not rely on configure_train, which is called at leaves only, but sets "
            f"{changed[0]!r} there; derive it from FedOpt, whose current_arrays is the group's last model"
        )


def _replies_around(model: State, clients: int) -> list[TrainReply]:
    """Made-up replies: the model plus a little noise, the same in every process."""
    rng = np.random.default_rng(0)
    replies = []
    for _ in range(clients):
        state = {
            name: a + (1e-3 * rng.standard_normal(a.shape)).astype(a.dtype) if a.dtype.kind == "f" else a
            for name, a in model.items()
        }
        replies.append(TrainReply(state, samples=10, steps=1, loss=1.0, seconds=1.0, uplink_bytes=0))
    return replies


def _refuse_unrestorable(option: str, fresh: Strategy, changed: Strategy, model: State) -> None:
    """Raise ConfigError for a strategy whose state cannot be restored into a new one."""
    try:
        refuse_incompatible_state(fresh, states_of(changed), numbers_of(changed), model)
    except ValueError as error:
        raise ConfigError(
            f"{option} must keep attributes in forms that a run can resume from after a stop, but after a "
            f"round {error}; begin it with None or in the form that it will have, arrays in those of the "
            f"model's entries, or of all of them in one vector"
        ) from error


def _value_of(strategy: Any, name: str) -> Any:
    """An attribute of a strategy, or of an inner strategy if the name has dots."""
    for part in name.split("."):
        strategy = vars(strategy)[part]
    return strategy


_READ_ANYWAY = {"server-round", KEY_CLIPPING_NORM}  # sent by Flower's strategies and privacy wrappers


def refuse_unread_keys(config: Config, reads: Collection[str]) -> None:
    """Raise ConfigError when a strategy sends clients keys not read by their algorithm.

    Args:
        config: configuration, of which `leaf`, `privacy` and `train` are read.
        reads: keys read by the algorithm.
    """
    strategy = make_strategy(config, 1)
    try:
        messages = messages_of(strategy, 1, ArrayRecord(), ConfigRecord(), cast(Any, None), [1])
    except own_errors():  # a user's strategy may need more clients; its trial decides
        return
    record = messages[0].content.get(CONFIG) if messages else None
    keys = set(record) if isinstance(record, ConfigRecord) else set()
    unread = sorted(keys - _READ_ANYWAY - set(reads))
    if unread:
        raise ConfigError(
            f"leaf.strategy {config.leaf.strategy} sends clients {unread[0]}, which train.algorithm "
            f"{config.train.algorithm} does not read; use another of the two (docs/own-method.md)"
        )
    if "proximal-mu" in keys and config.train.prox_mu:
        raise ConfigError(
            f"train.prox-mu must be 0 with leaf.strategy {config.leaf.strategy}, which says proximal-mu "
            f"itself, but is {config.train.prox_mu:g}; set train.prox-mu=0"
        )


def is_stateless(strategy: Strategy) -> bool:
    """Whether a strategy keeps no state between leaf rounds."""
    return isinstance(strategy, ExactFedAvg)


def combine(
    strategy: Strategy,
    model: State,
    mean: State,
    replies: Sequence[TrainReply],
    parameter_names: Sequence[str],
    settings: LocalTraining,
    seed: int,
    stream_key: tuple[int, ...],
    sent: Collection[str] | None = None,
) -> State:
    """The new model of a leaf.

    Flower's strategies get floating-point entries only, because integer counters would add to Krum's
    distances. Strategies stepping from the leaf's model get trainable entries only, because a BatchNorm
    variance must not take an Adam step. Strategies comparing replies by distance get updates in float64. The
    remaining entries are averaged, or copied from the first reply if they are counters.

    Args:
        strategy: strategy from `make_strategy`.
        model: the leaf's model at the start of the round.
        mean: mean of the replies, weighted by windows.
        replies: replies in partition-id order, at least as many as `fedge.leaf.strategies.quorum` requires.
        parameter_names: trainable entries of the model.
        settings: settings of the clients' training.
        seed: seed of the run.
        stream_key: coordinates of the noise's random stream: leaf round, leaf and so on.
        sent: entries of the model sent by clients; None for all.
    """
    if isinstance(strategy, ExactFedAvg):
        return mean
    if isinstance(strategy, PrivateMean):
        return strategy.released(model, replies, seed, stream_key, sent)
    names = [name for name, array in mean.items() if np.issubdtype(array.dtype, np.floating)]
    if isinstance(strategy, (FedOpt, FedAvgM, QFedAvg)):
        names = list(parameter_names)
    _prepare(strategy, {name: model[name] for name in names}, settings)
    # with small updates, distances between whole float32 models would be lost to rounding
    start = {n: model[n].astype(np.float64) for n in names} if isinstance(strategy, _BY_DISTANCE) else None
    contents = [_content(reply, names, start) for reply in replies]
    result = strategy.aggregate_train(stream_key[0], contents)
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[0], ArrayRecord | None):
        raise ValueError(
            f"aggregate_train of {type(strategy).__name__} must return a pair, ArrayRecord or None and "
            f"MetricRecord or None, but returned {shown(result)}"
        )
    combined, _ = result
    if combined is None:  # the strategy declined to combine these replies
        name, count = type(strategy).__name__, len(replies)
        logger.warning(
            "round %d: %s made no model of %d replies; the last one stays", stream_key[0], name, count
        )
        return model
    entries = from_record(combined)
    if lost := sorted(set(entries) - set(mean)):
        raise ValueError(
            f"{type(strategy).__name__} returned {lost[0]!r}, which is not an entry of the model"
        )
    if start is not None:
        entries = {n: start[n] + update for n, update in entries.items()}
    return {n: entries[n].astype(a.dtype).reshape(a.shape) if n in entries else a for n, a in mean.items()}


def _prepare(strategy: Any, current: Mapping[str, np.ndarray], settings: LocalTraining) -> None:
    """Set the strategy's last model to the leaf's, because the gate may have changed it."""
    if isinstance(strategy, FedOpt):
        strategy.current_arrays = {name: at_least_1d(array) for name, array in current.items()}
    elif hasattr(strategy, "current_arrays"):  # FedAvgM, QFedAvg
        strategy.current_arrays = _shared_record(current, list(current))
    if isinstance(strategy, QFedAvg):
        strategy.client_learning_rate = settings.lr


def _content(reply: TrainReply, names: Sequence[str], start: State | None = None) -> Message:
    """A reply in the form expected by Flower's strategies: one array record, one metric record.

    With `start`, it holds the update from `start` in float64 in place of the model.
    """
    state = reply.state if start is None else {name: reply.state[name] - start[name] for name in names}
    arrays = _shared_record(state, names)
    weight = reply.samples if reply.weight is None else reply.weight
    metrics = MetricRecord({NUM_EXAMPLES: weight, _TRAIN_LOSS: reply.loss})
    return Message(RecordDict({ARRAYS: arrays, METRICS: metrics}), 0, "train")


def _shared_record(state: State, names: Sequence[str]) -> ArrayRecord:
    """Entries of a state as a record for strategies, sharing its memory."""
    record = _SharedRecord()
    record.update(to_record(state, names))
    record.update(to_record({name: at_least_1d(state[name]) for name in names if not state[name].ndim}))
    return record
