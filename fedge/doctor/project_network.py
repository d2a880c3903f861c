"""A project's network and the windows of its largest client, to be measured."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from fedge.config.registers.option import ConfigError
from fedge.data.prepared import as_float
from fedge.doctor.gpu_speeds import Subject
from fedge.engine.federation import Federation
from fedge.launch.preflight import check
from fedge.training.device_speeds import setting
from fedge.training.networks.start import drawn_network
from fedge.training.schedule import local_training


def project_network(
    run_config: Mapping[str, Any], federation: Federation
) -> tuple[Subject, Mapping[str, Any]]:
    """The largest client's network and training windows, and the settings behind their measurement.

    Args:
        run_config: all options.
        federation: of the run.

    Raises:
        ConfigError: the run cannot work.
    """
    prepared = check({**run_config, "run-name": "", "resume": ""}, federation)
    if prepared.deal is None or prepared.shape is None:
        raise ConfigError("--gpu needs a federation of known size to measure its network; name one with NAME")
    deal, shape, config = prepared.deal.take(), prepared.shape, prepared.config.train
    largest: np.ndarray = max((parts[0] for parts in deal.partition.clients), key=len)
    x, y = as_float(deal.windows.x[largest]), deal.windows.y[largest]

    def make() -> nn.Module:
        return drawn_network(
            config, prepared.seed, shape.input_shape, shape.classes, shape.y_shape, tokens=shape.tokens
        )

    settings = replace(local_training(config, 1), augment=None)
    subject = Subject(make, torch.from_numpy(x), torch.from_numpy(y), settings)
    return subject, setting(make(), shape.input_shape, config)
