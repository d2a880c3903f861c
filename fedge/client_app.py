"""Flower entry of a client: a message comes in, one pure call is made, a reply goes out.

What a client keeps between rounds is SCAFFOLD's control variate, in Flower's `Context.state`.
"""

import os
import time
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedge import messages
from fedge.aggregation import State
from fedge.config import Config, ConfigError, TrainConfig, from_run_config
from fedge.data import ClientData, open_client
from fedge.logs import log_worker_to
from fedge.messages import Errand, Hello, JudgeReply, Judgement
from fedge.model import build_model, parameter_names
from fedge.scaffold import correction, updated_client_control, zero_control
from fedge.seeding import Purpose, torch_stream
from fedge.training import LocalTraining, TrainResult, evaluate, load_state, tensor_of, train

app = ClientApp()

_CONTROL = "scaffold-control"


@app.query("hello")
def hello(message: Message, context: Context) -> Message:
    """Tell which partition this client holds, of how many."""
    node = context.node_config
    return messages.hello_reply(Hello(int(node["partition-id"]), int(node["num-partitions"])), message)


@app.train()
def train_round(message: Message, context: Context) -> Message:
    """Train the leaf's model on this client's training windows."""
    began = time.perf_counter()
    errand, config, data, client = _open(message, context)
    start = messages.from_record(message.content.array_records[messages.ARRAYS])
    server_control = _server_control(message)
    model = _model(config.train, data)
    own_control = _own_control(context, start, parameter_names(model)) if server_control is not None else None
    x, y = data.train
    settings = local_training(config.train, errand.global_round)
    result = train(
        model,
        tensor_of(x),
        tensor_of(y),
        settings,
        torch_stream(errand.seed, Purpose.BATCHES, errand.leaf_round, client),
        correction=None
        if server_control is None or own_control is None
        else correction(server_control, own_control),
        state=start,
    )
    delta = _update_control(context, server_control, own_control, start, result, settings)
    seconds = time.perf_counter() - began
    return messages.train_reply(message, result.state, delta, len(y), result.loss, seconds)


@app.evaluate()
def judge_round(message: Message, context: Context) -> Message:
    """Evaluate the leaf's own and offered model on this client's validation and test windows."""
    _, config, data, _ = _open(message, context)
    model = _model(config.train, data)
    judgements: JudgeReply = {}
    roles: tuple[tuple[messages.ModelRole, str], ...] = (
        ("own", messages.ARRAYS),
        ("offered", messages.OFFERED),
    )
    splits: tuple[tuple[messages.SplitName, tuple[np.ndarray, np.ndarray]], ...] = (
        ("val", data.val),
        ("test", data.test),
    )
    for role, record in roles:
        if record not in message.content.array_records:
            continue
        load_state(model, messages.from_record(message.content.array_records[record]))
        for split, (x, y) in splits:
            result = evaluate(model, tensor_of(x), tensor_of(y), threads=config.train.threads)
            judgements[role, split] = Judgement(result.confusion, result.loss)
    return messages.judge_reply(message, judgements)


def local_training(config: TrainConfig, global_round: int) -> LocalTraining:
    """Return the settings of local training in a global round (1, 2, …)."""
    return LocalTraining(
        lr=config.lr * config.lr_decay ** (global_round - 1),
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        clip_norm=config.clip_norm,
        label_smoothing=config.label_smoothing,
        epochs=config.local_epochs,
        batch_size=config.batch_size,
        prox_mu=config.prox_mu,
        threads=config.threads,
    )


def _open(message: Message, context: Context) -> tuple[Errand, Config, ClientData, int]:
    """Return what a message and its context say: errand, configuration, this client's windows and id."""
    errand = Errand.of(message)
    if os.getpid() != errand.server_pid:
        log_worker_to(errand.log_path)
    client = int(context.node_config["partition-id"])
    config = _config(tuple(sorted(context.run_config.items())))
    return errand, config, open_client(errand.data_folder, client), client


@lru_cache(maxsize=4)
def _config(items: tuple[tuple[str, Any], ...]) -> Config:
    """Check a run configuration once per process, not once per message."""
    return from_run_config(dict(items))


def _model(config: TrainConfig, data: ClientData) -> torch.nn.Module:
    """Return a network of the run's kind on the device; its weights are loaded by the caller."""
    x, _ = data.train
    device = choose_device(config.device)
    generator = torch.Generator()
    return build_model(config.model, x.shape[1], x.shape[2], data.classes, generator).to(device)


def choose_device(wanted: str) -> torch.device:
    """Return where a client computes; Ray shows a client only the GPUs that its federation gives it.

    Raises:
        ConfigError: train.device is "cuda", but there is no GPU for this client.
    """
    if wanted == "cpu":
        return torch.device("cpu")
    if torch.cuda.is_available():
        return torch.device("cuda")
    if wanted == "cuda":
        raise ConfigError(
            'train.device is "cuda", but this client sees no GPU; use a federation with options.backend.'
            'client-resources.num-gpus above 0, or train.device="auto"'
        )
    return torch.device("cpu")


# --- SCAFFOLD -----------------------------------------------------------------------------------------


def _server_control(message: Message) -> State | None:
    """Return the leaf's c, or None when SCAFFOLD is off."""
    records = message.content.array_records
    return messages.from_record(records[messages.CONTROL]) if messages.CONTROL in records else None


def _own_control(context: Context, start: State, trainable: list[str]) -> State:
    """Return this client's c_i: zero before its first round."""
    if _CONTROL in context.state:
        return messages.from_record(context.state.array_records[_CONTROL])
    return zero_control({name: start[name] for name in trainable})


def _update_control(
    context: Context,
    server_control: State | None,
    own_control: State | None,
    start: State,
    result: TrainResult,
    settings: LocalTraining,
) -> State | None:
    """Store c_i⁺ and return Δc_i = c_i⁺ − c_i; None when SCAFFOLD is off."""
    if server_control is None or own_control is None:
        return None
    updated = updated_client_control(
        own_control, server_control, start, result.state, result.steps, settings.lr, settings.momentum
    )
    context.state[_CONTROL] = messages.to_record(updated)
    return {name: array - own_control[name] for name, array in updated.items()}
