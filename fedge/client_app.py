"""Flower's entry point for a client: each message leads to one pure call and one reply."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import torch
from flwr.app import Context, Message

from fedge.algorithm.client import Client as AlgorithmClient
from fedge.algorithm.client import Place, Plain
from fedge.algorithm.client_round import further_models, plain_training, run_algorithm
from fedge.algorithm.configured import algorithm_of
from fedge.client.frozen import whole_model
from fedge.client.guarded_app import GuardedApp
from fedge.client.memory import keep_memory, memory_in, memory_or_lost
from fedge.client.own_code import refuse_missing_code
from fedge.client.privacy import private_state
from fedge.client.process_team import train_together
from fedge.client.secret import secret_of
from fedge.client.spilled_states import states_in_files
from fedge.compression.configured import uplink_of_clients
from fedge.config.config import Config
from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import ALGORITHMS, MODELS
from fedge.config.registers.register import add_search_folders
from fedge.config.sections.train import TrainConfig
from fedge.data.own_windows import OwnData, client_data, names_own_data, own_data, partition_of_node
from fedge.data.prepared import ClientData, client_in, open_client
from fedge.data.scaling import Scale
from fedge.engine.capture import end_capture_here
from fedge.engine.dispatch import wake_on_push
from fedge.engine.flower_process import catch_interrupts, end_descendants_at_exit
from fedge.engine.loopback import keep_ray_on_loopback
from fedge.engine.ray_objects import take
from fedge.engine.ray_workers import (
    allow_slow_starts,
    keep_no_task_history,
    notice_lost_connections,
    restart_dead_workers,
    start_workers_on_demand,
)
from fedge.engine.worker_pool import spare_dead_workers, use_every_worker, use_joining_machines
from fedge.exchange.algorithm import OWN_MODELS, leaf_part_arrays, memory_place
from fedge.exchange.content import ARRAYS, CONTROL, OWN_CONTROL, arrays_of, config_of, options_of
from fedge.exchange.evaluate import (
    DESCRIBED,
    OWN,
    EvaluateReply,
    Evaluation,
    SplitName,
    evaluate_reply,
    gain_sums,
    models_to_evaluate,
    splits_to_evaluate,
)
from fedge.exchange.hello import (
    CPU,
    Hello,
    end_capture_reply,
    hello_reply,
    question_of,
    refuse_other_windows,
)
from fedge.exchange.joint import evaluate_part, joint_reply
from fedge.exchange.round_context import RoundContext
from fedge.exchange.train import clip_norm_of, train_reply
from fedge.native.library import usable_kernels
from fedge.privacy.noise import SYSTEM
from fedge.process.client_app import is_client_app
from fedge.process.endings.channels import exit_despite_channels
from fedge.process.identity import process_name
from fedge.process.logs import log_worker_to
from fedge.process.persistent_process import handles_further_messages
from fedge.seeding import Purpose, torch_stream
from fedge.states.averaging import State
from fedge.states.challenge import answer_to
from fedge.states.lazy_state import LazyState, kinds_of
from fedge.states.named_states import unpacked
from fedge.tasks.configured import task_of
from fedge.timing.calls import DESERIALISE, EVALUATE, LOAD, TRAIN, WorkClock
from fedge.training.describe import window_description
from fedge.training.evaluation import EvalResult, evaluate_parts
from fedge.training.gpu import refuse_gpu_without_bf16, settle_gpus
from fedge.training.kernels import TORCH
from fedge.training.local import TrainResult, train
from fedge.training.networks.fitting import fit_of
from fedge.training.networks.models import build_model, parameter_names
from fedge.training.networks.module_state import load_state, tensor_of
from fedge.training.networks.unsaved_state import Unsaved
from fedge.training.scaffold import correction
from fedge.training.schedule import local_training, step_kernel
from fedge.training.settings import LocalTraining

app = GuardedApp()
catch_interrupts()
end_descendants_at_exit()
exit_despite_channels()
keep_ray_on_loopback()
restart_dead_workers()
spare_dead_workers()
use_joining_machines()
use_every_worker()
keep_no_task_history()
notice_lost_connections()
allow_slow_starts()
start_workers_on_demand()
wake_on_push()


class _Call(NamedTuple):
    """A message to a client, with everything derived from it.

    Attributes:
        message: message as received.
        context: Flower's context of the node.
        config: configuration of the run.
        round: round in which the client takes part.
        data: the client's windows.
        client: the client's partition id.
    """

    message: Message
    context: Context
    config: Config
    round: RoundContext
    data: ClientData
    client: int


_workspace = threading.local()  # one network per worker thread, reused by all its clients


@app.query("hello")
def hello(message: Message, context: Context) -> Message:
    """Report this client's partition, the number of partitions, and whether it sees the server's state files.

    If the node names its own windows, describe them as well.
    """
    node = context.node_config
    partition, partitions = partition_of_node(node)
    question = question_of(message)
    refuse_missing_code(_options(message, context), question.code, partition, question.parts)
    description = None
    if names_own_data(node):
        config = _run_config(message, context)
        data = own_data(node, config, question.seed, is_first=True)
        _refuse_other_targets(config, data, partition)
        description = data.report
    if _options(message, context).get("privacy.noise-source") == SYSTEM:
        secret_of(context)  # before any reply is lost: a worker's state comes back with its reply
    device = device_name(str(_options(message, context).get("train.device", "auto")))
    if device != CPU:
        refuse_gpu_without_bf16(str(_options(message, context).get("train.precision", "")))
    kernels = None if _options(message, context).get("train.kernel", TORCH) == TORCH else usable_kernels()
    challenge_answer = answer_to(question.challenge)
    return hello_reply(Hello(partition, partitions, challenge_answer, description, device, kernels), message)


@app.query("end_capture")
def end_capture(message: Message, context: Context) -> Message:
    """End this worker's memory capture, if it has one."""
    return end_capture_reply(end_capture_here(), message)


@app.train()
def train_round(message: Message, context: Context) -> Message:
    """Train the leaf's model on this client's training windows, evaluating it first if requested."""
    clock = WorkClock()
    config = _run_config(message, context)
    with states_in_files(message, config.transfer, context.node_config) as set_aside:
        evaluate_first = evaluate_part(message)
        if evaluate_first is None:
            reply = _train_client(message, context, config, clock)
        else:
            evaluation = evaluate_reply(
                evaluate_first, _evaluate_models(evaluate_first, context, config, clock)
            )
            reply = joint_reply(message, evaluation, lambda: _train_client(message, context, config, clock))
        _release_network()
        set_aside(reply)
    return reply


def _refuse_other_targets(config: Config, own: OwnData, client: int) -> None:
    """Raise ConfigError if the y of a client's own windows does not fit the run's task."""
    try:
        task_of(config.train).refuse(own.laid.y, len(own.report.classes))
    except ValueError as error:
        raise ConfigError(
            f"train.task {config.train.task} takes {task_of(config.train).takes}, but of client {client}: "
            f"{error}; set another train.task (docs/tasks.md), or fix y"
        ) from error


def _train_client(message: Message, context: Context, config: Config, clock: WorkClock) -> Message:
    """Reply to a train message."""
    start_s = clock.seconds
    call = _open_call(message, context, config)
    model = _thread_network(config.train, call.data)
    clock.lap(LOAD)
    received = arrays_of(message, ARRAYS)
    assert received is not None
    start = whole_model(received, model, config.train, call.data, call.round.seed)
    correction = _scaffold_correction(message)
    clock.lap(DESERIALISE)
    if call.round.most_windows:
        call = call._replace(data=call.data.thinned(call.round.most_windows))
    client = _build_client(call, model, start, correction, clock)
    place = memory_place(message)
    memory, feedback, lost = memory_or_lost(place, call.client, context.node_config)
    part = run_algorithm(algorithm_of(config.train), client, memory)
    clock.lap(TRAIN)
    upload = _upload(call, model, received, part.sent, feedback, remembers=place.keep)
    clock.lap(TRAIN)
    kept, carried = keep_memory(
        place, call.client, call.round.leaf_round, part.memory, upload.feedback, context.node_config
    )
    clock.lap(TRAIN)
    result, windows = TrainResult(upload.state, part.loss, part.steps), len(call.data.train[1])
    return train_reply(
        message, result, windows, clock.seconds - start_s, upload.clipped, clock.finish,
        part.weight, part.arrays, kept, lost, carried,
    )  # fmt: skip


def _build_client(
    call: _Call, model: torch.nn.Module, start: State, correction: State | None, clock: WorkClock
) -> AlgorithmClient:
    """Client in a leaf round, as its algorithm sees it."""
    message, _, config, round_context, data, client = call
    x, y = _training_windows(config.train, data)
    draws = _dropout_stream(config.train, round_context, client)
    _load_start(model, start, config.train)
    return AlgorithmClient(
        received=start, x=x, y=y, network=model,
        settings=_training_settings(call),
        place=Place(round_context.seed, round_context.stream_of(client)),
        plain=_local_trainer(call, model, draws, clock),
        global_round=round_context.global_round, leaf_round=round_context.leaf_round,
        beside=unpacked(leaf_part_arrays(message)), correction=correction, config=config_of(message),
        draws=draws, id=client,
    )  # fmt: skip


def _training_windows(train: TrainConfig, data: ClientData) -> list[torch.Tensor]:
    """Training windows and labels for an algorithm; a user's algorithm gets copies.

    They are in a mapped file; a write to it would end the process with all its clients.
    """
    windows = [tensor_of(array) for array in data.train]
    return [tensor.clone() for tensor in windows] if ALGORITHMS.is_own(train.algorithm) else windows


def _load_start(model: torch.nn.Module, state: State, train: TrainConfig) -> None:
    """Load a model into the network for a user's algorithm, which may train it with its own steps.

    Otherwise the network has another client's weights, or none, depending on the order of clients on this
    thread.
    """
    if ALGORITHMS.is_own(train.algorithm):
        load_state(model, state)
        model.train()


def _local_trainer(
    call: _Call, model: torch.nn.Module, draws: torch.Generator | None, clock: WorkClock
) -> Plain:
    """Fedge's own local training on a client's windows, in this thread or in several processes."""
    config, data = call.config.train, call.data
    x, y = (tensor_of(array) for array in data.train)

    def train_in_processes(
        start: State, settings: LocalTraining, order: torch.Generator, correction: State | None
    ) -> TrainResult:
        device, limit_s = next(model.parameters()).device.type, call.round.timeout_s
        return train_together(config, data, device, start, settings, order, correction, draws, limit_s)

    def train_in_thread(
        start: State, settings: LocalTraining, order: torch.Generator, correction: State | None
    ) -> TrainResult:
        load_state(model, start)
        clock.lap(LOAD)
        return train(model, x, y, settings, order, correction=correction, draws=draws)

    return train_in_processes if config.processes > 1 else train_in_thread


class _Upload(NamedTuple):
    """A trained model as sent.

    Attributes:
        state: name → array, after noise for privacy and after compression.
        clipped: whether clipping for privacy changed it; None without privacy.
        feedback: memory of the compression for the client's next upload.
    """

    state: dict[str, np.ndarray]
    clipped: bool | None
    feedback: State


def _upload(
    call: _Call,
    model: torch.nn.Module,
    received: State,
    trained: State,
    feedback: State,
    *,
    remembers: bool,
) -> _Upload:
    """Upload of a trained model: the received entries, clipped and with noise, then compressed.

    Args:
        call: the message.
        model: network of the run.
        received: entries from the message; these are sent back.
        trained: the whole model.
        feedback: memory of the compression left with the client.
        remembers: whether the compression may leave memory.
    """
    message, context, config, round_context, _, client = call
    sent = {name: array for name, array in trained.items() if name in received}
    baseline = received if len(sent) == len(received) else {name: received[name] for name in sent}
    stream = round_context.stream_of(client)
    state, clipped = private_state(
        config.privacy, clip_norm_of(message), baseline, sent, (round_context.seed, *stream),
        secret_of(context) if config.privacy.noise_source == SYSTEM else b"",
    )  # fmt: skip
    uplink = uplink_of_clients(config.uplink, parameter_names(model) if config.uplink.is_on else ())
    if uplink is None:
        return _Upload(state, clipped, {})
    compressed = uplink.upload(baseline, state, feedback, round_context.seed, *stream, remembers=remembers)
    return _Upload(dict(compressed.state), clipped, dict(compressed.memory))


@app.evaluate()
def evaluate_round(message: Message, context: Context) -> Message:
    """Evaluate each of the given models on the requested splits of this client's windows."""
    clock = WorkClock()
    config = _run_config(message, context)
    with states_in_files(message, config.transfer, context.node_config):
        return evaluate_reply(message, _evaluate_models(message, context, config, clock), clock.finish)


def _evaluate_models(message: Message, context: Context, config: Config, clock: WorkClock) -> EvaluateReply:
    """Evaluations requested by a message."""
    call = _open_call(message, context, config)
    data = call.data
    model = _thread_network(config.train, data)
    splits = splits_to_evaluate(message)
    x, y, sizes = _split_windows(data, splits)
    clock.lap(LOAD)
    results: dict[tuple[str, SplitName], EvalResult] = {}
    description: list[float] | None = None
    for role, state in _evaluation_models(call, model, clock):
        clock.lap(DESERIALISE)
        _reset_network(model)
        load_state(model, state)
        clock.lap(LOAD)
        parts = evaluate_parts(
            model,
            x,
            y,
            sizes,
            threads=config.train.threads,
            kernel=step_kernel(config.train, call.round.kernel),
            task=task_of(config.train),
        )
        results.update({(role, split): part for split, part in zip(splits, parts, strict=True)})
        if role == DESCRIBED:
            description = window_description(model, x, y, data.classes)
        clock.lap(EVALUATE)
    evaluations = _evaluations(results)
    if description is not None:
        key = (DESCRIBED, splits[0])
        evaluations[key] = replace(evaluations[key], moments=np.array(description))
    return evaluations


def _evaluation_models(call: _Call, model: torch.nn.Module, clock: WorkClock) -> Iterator[tuple[str, State]]:
    """Yield (role, model) to evaluate; the role of an algorithm's models stands for all of them."""
    message, context, config, round_context, data, client = call
    for role, received in models_to_evaluate(message):
        state = whole_model(received, model, config.train, data, round_context.seed)
        if role != OWN_MODELS:
            yield role, state
            continue
        _reset_network(model)
        x, y = _training_windows(config.train, data)
        draws = _dropout_stream(config.train, round_context, client)
        _load_start(model, state, config.train)
        algorithm_client = AlgorithmClient(
            received=state, x=x, y=y, network=model,
            settings=_training_settings(call),
            place=Place(round_context.seed, round_context.stream_of(client), evaluates=True),
            plain=plain_training(model, tensor_of(data.train[0]), tensor_of(data.train[1]), draws),
            global_round=round_context.global_round, leaf_round=round_context.leaf_round, draws=draws,
            id=client,
        )  # fmt: skip
        place = memory_place(message)
        memory, _ = memory_in(place, client, context.node_config)
        models = further_models(algorithm_of(config.train), algorithm_client, memory, place.unseen)
        clock.lap(TRAIN)
        yield from ((f"{OWN_MODELS}/{name}", own_model) for name, own_model in models.items())


def _evaluations(results: Mapping[tuple[str, SplitName], EvalResult]) -> EvaluateReply:
    """Evaluations to report; on validation windows, models other than the own one are compared with it."""
    own_result = results.get((OWN, "val"))
    return {
        (role, split): Evaluation(
            part.sums,
            part.loss,
            part.samples,
            gain_sums(own_result.values, part.values)
            if own_result and split == "val" and part is not own_result
            else None,
            task=part.task,
        )
        for (role, split), part in results.items()
    }


def _split_windows(
    data: ClientData, splits: Sequence[SplitName]
) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    """x, y and the number of windows per split, one split after the other.

    Validation and test windows are adjacent, so both together need no copy.
    """
    if tuple(splits) == ("val", "test"):
        x, y = data.held_out
        return tensor_of(x), tensor_of(y), [data.num_val, len(y) - data.num_val]
    (split,) = splits
    x, y = {"train": data.train, "val": data.val, "test": data.test}[split]
    return tensor_of(x), tensor_of(y), [len(y)]


def _open_call(message: Message, context: Context, config: Config) -> _Call:
    """A message with its round, this client's windows and its id."""
    round_context = RoundContext.from_message(message)
    if round_context.log_path and process_name() != round_context.server:
        log_worker_to(round_context.log_path)
    client, _ = partition_of_node(context.node_config)
    if round_context.windows:
        data = client_in(take(round_context.windows), client, round_context.global_round)
    elif round_context.data_folder:
        data = open_client(round_context.data_folder, client, round_context.global_round)
    else:
        own_windows = own_data(context.node_config, config, round_context.seed)
        refuse_other_windows(message, client, own_windows.report.fingerprint)
        data = client_data(
            own_windows, Scale(round_context.mean, round_context.std), round_context.global_round
        )
    return _Call(message, context, config, round_context, data, client)


def _run_config(message: Message, context: Context) -> Config:
    """The checked configuration of a client's run."""
    return _checked_config(tuple(sorted(_options(message, context).items())))


def _options(message: Message, context: Context) -> Mapping[str, Any]:
    """Options of a client's run: the message's, else Flower's."""
    return options_of(message) or context.run_config


def _scaffold_correction(message: Message) -> State | None:
    """SCAFFOLD's c − c_i, which is added to every gradient; None without SCAFFOLD.

    The whole in float64 would have the size of two models, so it is computed entry by entry when used.
    """
    control, own_control = arrays_of(message, CONTROL), arrays_of(message, OWN_CONTROL)
    if control is None or own_control is None:
        return control

    return LazyState(
        kinds_of(control), lambda name: correction({name: control[name]}, {name: own_control[name]})[name]
    )


@lru_cache(maxsize=4)
def _checked_config(items: tuple[tuple[str, Any], ...]) -> Config:
    """Check a run configuration once per process instead of once per message."""
    return from_run_config(dict(items))


def _thread_network(config: TrainConfig, data: ClientData) -> torch.nn.Module:
    """This thread's network for the run; the caller loads its weights."""
    x, y = data.train
    add_search_folders(*data.search_folders)
    code = MODELS.load(config.model)  # a notebook may have redefined it
    fit = fit_of(config, data.classes, y.shape[1:], tokens=x.dtype == np.int64)
    is_custom = MODELS.is_own(config.model) or ALGORITHMS.is_own(config.algorithm)
    kind = (
        config.model, code, config.model_args, x.shape[1:], data.classes, config.device, config.precision,
        fit, is_custom,
    )  # fmt: skip
    if getattr(_workspace, "kind", None) != kind:
        arguments = config.arguments("model")
        network = build_model(config.model, x.shape[1:], data.classes, torch.Generator(), arguments, fit)
        device = device_of_thread(config.device)
        if device.type == "cuda":
            settle_gpus(config.precision)
            refuse_gpu_without_bf16(config.precision)
        _workspace.model = network.to(device)
        _workspace.unsaved = Unsaved(network) if is_custom else None
        _workspace.kind = kind
    model: torch.nn.Module = _workspace.model
    _reset_network(model)
    return model


def _release_network() -> None:
    """Release this thread's network, before the reply is sent, if the process gets no further message."""
    if is_client_app() and not handles_further_messages():
        _workspace.__dict__.clear()


def _reset_network(model: torch.nn.Module) -> None:
    """Make this thread's network forget everything of other clients besides its state."""
    unsaved: Unsaved | None = getattr(_workspace, "unsaved", None)
    if unsaved is not None and model is _workspace.model:
        unsaved.restore()


def _training_settings(call: _Call) -> LocalTraining:
    """Settings of local training in a round, created once for all clients of this thread in it.

    The run is part of the key: a process that stays has the user's code of another run imported again.
    """
    config, of_round = call.config.train, call.round
    key = config, (of_round.round_of_steps, of_round.local_steps, of_round.kernel), call.context.run_id
    cached = getattr(_workspace, "settings", None)
    if cached is None or cached[0] is not key[0] or cached[1:3] != key[1:]:
        cached = _workspace.settings = (*key, local_training(config, *key[1]))
    settings: LocalTraining = cached[3]
    return settings


def _dropout_stream(config: TrainConfig, round_context: RoundContext, client: int) -> torch.Generator | None:
    """Random state for a user's model in training; Fedge's own models need none."""
    if not MODELS.is_own(config.model):
        return None
    return torch_stream(round_context.seed, Purpose.DROPOUT, *round_context.stream_of(client))


_threads = count()  # threads training on GPUs in this process


def device_of_thread(setting: str) -> torch.device:
    """Device on which this thread's clients compute; threads are assigned to the visible GPUs in turn.

    On Ray, a worker sees one GPU, the one of its share.

    Raises:
        ConfigError: as in `choose_device`.
    """
    device = choose_device(setting)
    num_gpus = torch.cuda.device_count() if device.type == "cuda" else 0
    if num_gpus < 2:
        return device
    if not hasattr(_workspace, "gpu"):
        _workspace.gpu = next(_threads) % num_gpus
    torch.cuda.set_device(_workspace.gpu)  # per thread: its streams and memory peaks belong to this GPU
    return torch.device("cuda", _workspace.gpu)


@lru_cache(maxsize=4)
def device_name(setting: str) -> str:
    """Device of this process's clients: "cpu", or the name of the first GPU visible to them.

    Also "cpu" if a client requires a GPU and there is none; its training then reports this.
    """
    if setting == CPU or not torch.cuda.is_available():
        return CPU
    return str(torch.cuda.get_device_name())


def choose_device(setting: str) -> torch.device:
    """Device on which a client computes; on Ray, a client sees only the GPUs assigned by its federation.

    Raises:
        ConfigError: train.device is "cuda", but there is no GPU for this client.
    """
    if setting == "cpu":
        return torch.device("cpu")
    if torch.cuda.is_available():
        return torch.device("cuda")
    if setting == "cuda":
        raise ConfigError(
            'train.device is "cuda", but this client sees no GPU; set train.device="auto" or, on Ray, use a '
            "federation with options.backend.client-resources.num-gpus above 0"
        )
    return torch.device("cpu")
