"""First weights of a run, and what of a model travels: whether a run can have what is asked for."""

from typing import TYPE_CHECKING

from fedge.config.config import Config
from fedge.config.option import ConfigError
from fedge.config.sections.train import TrainConfig
from hhar.windows.window_file import fingerprint

if TYPE_CHECKING:  # torch, which most runs need not wait for here
    from torch import nn


def described_start(config: TrainConfig) -> str:
    """The sha256 of the file of first weights; "" without one.

    Raises:
        ConfigError: it cannot be read.
    """
    if not config.start:
        return ""
    try:
        return fingerprint(config.start)
    except OSError as error:
        raise ConfigError(
            f"train.start must be a safetensors file, but {config.start} cannot be read: "
            f"{error.strerror or error}; name one that is there"
        ) from error


def refuse_start(config: TrainConfig, model: "nn.Module") -> None:
    """Raise ConfigError for a file of weights that the model cannot begin with, or where nothing is frozen.

    Args:
        config: of the run.
        model: of the run's kind.
    """
    from fedge.training.frozen import frozen_names
    from fedge.training.start import first_state

    if config.start:
        first_state(model, config)
    if config.exchange != "all" and not frozen_names(model, config):
        raise ConfigError(
            f"train.exchange {config.exchange} needs a model with frozen parameters, but of train.model "
            f"{config.model} all train; freeze some in its code (requires_grad_(False)), or set "
            f'train.exchange="all"'
        )


def refuse_start_that_owners_do_not_have(config: Config) -> None:
    """Raise ConfigError where clients are to have frozen entries of a file that is on another machine."""
    train = config.train
    if train.start and train.exchange != "all":
        raise ConfigError(
            f"train.exchange {train.exchange} with train.start needs clients that see what the server has "
            f"read, but leaf servers of their own and SuperNodes that own their data do not; set "
            f'train.exchange="all", or let the model\'s own code load the frozen part'
        )
