"""Device of a run in this process if `train.device` is "auto"; chosen once, before the run starts.

On Ray, in a deployment and at leaf servers, `auto` means a GPU if the client sees one, because a GPU was
assigned to it explicitly, by num-gpus or by starting the node there.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from fedge.config.registers.option import ConfigError
from fedge.engine.federation import Federation
from fedge.exchange.hello import CPU
from fedge.launch.preflight import check
from fedge.process.resources.threads import available_cores
from fedge.run.preparation.prepare import Prepared
from fedge.training.device_speeds import (
    GPU,
    TrainingPlaces,
    chosen_device,
    recorded_speeds,
    setting,
    step_gflop,
    would_record,
)
from fedge.training.networks.start import drawn_network
from fedge.training.schedule import local_steps, local_training

_OPTION, _AUTO = "train.device", "auto"


def settle_device(
    run_config: Mapping[str, Any], federation: Federation, workers: int | None, prepared: Prepared | None
) -> tuple[Mapping[str, Any], Prepared | None]:
    """Options for a run's clients, and its prepared inputs with the reason; unchanged without a GPU.

    Args:
        run_config: the run's options, flat.
        federation: federation of the run.
        workers: requested number of clients at a time; None for one per core or GPU.
        prepared: prepared inputs of the run; None to prepare here those needed for the choice.
    """
    if run_config.get(_OPTION, _AUTO) != _AUTO or not torch.cuda.is_available():
        return run_config, prepared
    try:
        prepared = prepared or check(run_config, federation)
    except ConfigError:  # reported by the run itself
        return run_config, None
    if prepared.computed_on:
        previous = CPU if set(prepared.computed_on) == {CPU} else GPU
        return {**run_config, _OPTION: previous}, prepared
    if prepared.shape is None:
        return run_config, prepared
    device, reason = _choose_device(prepared, federation, workers)
    return {**run_config, _OPTION: device}, replace(prepared, device={"name": device, "why": reason})


def _choose_device(prepared: Prepared, federation: Federation, workers: int | None) -> tuple[str, str]:
    """Device and reason for a run's network."""
    shape, train = prepared.shape, prepared.config.train
    assert shape is not None
    model = drawn_network(
        train, prepared.seed, shape.input_shape, shape.classes, shape.y_shape, tokens=shape.tokens
    )
    measured = recorded_speeds(setting(model, shape.input_shape, train))
    gflop = step_gflop(model, shape.input_shape, train.batch_size, tokens=shape.tokens)
    clients = prepared.num_clients or federation.num_supernodes
    concurrency = max(1, min(workers or available_cores(), available_cores(), clients))
    places = TrainingPlaces(concurrency, max(1, min(torch.cuda.device_count(), clients)))
    is_alone = workers is None or workers <= places.gpus  # threads sharing a GPU record no CUDA graphs
    return chosen_device(places, gflop, measured, is_alone and _would_record_steps(model, prepared))


def _would_record_steps(model: nn.Module, prepared: Prepared) -> bool:
    """Whether a GPU would record the steps of a client of mean size."""
    if prepared.deal is None:
        return False
    partition = prepared.deal.peek().partition
    sizes = [
        len(parts[0])
        for number, parts in enumerate(partition.clients)
        if number not in partition.unseen_clients
    ]
    train = prepared.config.train
    settings = local_training(train, 1, local_steps(train, sizes))
    return would_record(model, settings, sum(sizes) // len(sizes))
