"""Checks of a run's initial weights and of its frozen entries."""

from typing import TYPE_CHECKING

from fedge.config.config import Config
from fedge.config.registers.option import ConfigError
from fedge.config.sections.train import TrainConfig
from hhar.windows.window_file import fingerprint

if TYPE_CHECKING:  # torch, which most runs need not load here
    from torch import nn


def described_start(config: TrainConfig) -> str:
    """The sha256 of the file of initial weights; "" without one.

    Raises:
        ConfigError: the file cannot be read.
    """
    if not config.start:
        return ""
    try:
        return fingerprint(config.start)
    except OSError as error:
        raise ConfigError(
            f"train.start must be a safetensors file, but {config.start} cannot be read: "
            f"{error.strerror or error}; name an existing file"
        ) from error


def refuse_start(config: TrainConfig, model: "nn.Module") -> None:
    """Raise ConfigError if the file of weights does not fit the model, or if nothing is frozen as required.

    Args:
        config: the run's training options.
        model: a network of the run.
    """
    from fedge.training.networks.frozen import frozen_names
    from fedge.training.networks.start import first_state

    if config.start:
        first_state(model, config)
    if config.exchange != "all" and not frozen_names(model, config):
        raise ConfigError(
            f"train.exchange {config.exchange} needs a model with frozen parameters, but all of train.model "
            f"{config.model} train; freeze some in its code (requires_grad_(False)), or set "
            f'train.exchange="all"'
        )


def refuse_start_missing_at_owners(config: Config) -> None:
    """Raise ConfigError if clients on other machines would need frozen entries from a file at the server."""
    train = config.train
    if train.start and train.exchange != "all":
        raise ConfigError(
            f"train.exchange {train.exchange} with train.start needs clients that can read the server's "
            f"file, but separate leaf servers and SuperNodes with their own data cannot; set "
            f'train.exchange="all", or let the model\'s own code load the frozen part'
        )
