"""Checks of `train.algorithm` against the other options, and the form of its replies."""

from dataclasses import replace
from typing import TYPE_CHECKING

from fedge.config.config import Config
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import SERVER_RULES
from fedge.config.registers.traits import ROUNDS
from fedge.config.sections.train import TrainConfig
from fedge.data.prepared import DataShape
from fedge.run.preparation.examples import examples_of
from hhar.windows.window_file import Windows

if TYPE_CHECKING:  # torch, which most runs need not load here
    from fedge.algorithm.leaf_part import LeafPart
    from fedge.exchange.algorithm import ReplyForm

_DEFAULT = TrainConfig.__dataclass_fields__["algorithm"].default


def is_default_algorithm(config: Config) -> bool:
    """Whether `train.algorithm` is the default: clients follow the options of `train` and `scaffold`."""
    return bool(config.train.algorithm == _DEFAULT)


def refuse_algorithm(config: Config) -> None:
    """Raise ConfigError if an algorithm cannot be imported, constructed, or combined with other options."""
    if is_default_algorithm(config) and not config.train.algorithm_args:
        return
    from fedge.algorithm.configured import algorithm_of, leaf_part_of

    algorithm, part = algorithm_of(config.train), leaf_part_of(config.train)
    if is_default_algorithm(config):
        return
    name = f"train.algorithm {config.train.algorithm}"
    if config.scaffold.enabled and not algorithm.corrected:
        raise ConfigError(
            f"{name} does not use SCAFFOLD's control variates, but scaffold.enabled is true; add "
            f"scaffold.enabled=false"
        )
    if config.train.processes > 1:
        raise ConfigError(
            f"{name} supports only train.processes=1, because several processes train by the options alone, "
            f"but it is {config.train.processes}; set train.processes=1"
        )
    if config.asynchrony.is_on:
        _refuse_algorithm_on_clock(config, name, part)
    if part.combines() and not config.leaf.is_mean:
        raise ConfigError(
            f"{name} computes the leaf's model itself and needs leaf.strategy fedavg, but it is "
            f"{config.leaf.strategy}; change one of the two"
        )


def _refuse_algorithm_on_clock(config: Config, name: str, part: "LeafPart") -> None:
    """Raise ConfigError if an algorithm has no meaning on the virtual clock."""
    rule = config.asynchrony.rule
    if part.combines() and part.reads_replies and not SERVER_RULES.has(rule, ROUNDS):
        in_rounds = " or ".join(SERVER_RULES.names_with(ROUNDS))
        raise ConfigError(
            f"{name} has a leaf part that combines replies to one model, so asynchrony.rule must work in "
            f"rounds ({in_rounds}), but is {rule}; set one of them otherwise"
        )
    if config.devices.partial_work:
        raise ConfigError(
            f"{name} needs devices.partial-work to be false, because how much of its work is done after some "
            f"steps only the algorithm knows; add devices.partial-work=false"
        )


def refuse_unread_settings(config: Config) -> None:
    """Raise ConfigError if the leaf strategy sends settings not read by the clients' algorithm."""
    from fedge.algorithm.configured import algorithm_of
    from fedge.leaf.strategies.rules import refuse_unread_keys

    refuse_unread_keys(config, algorithm_of(config.train).reads)


def form_of_algorithm(config: Config, shape: DataShape, windows: Windows | None) -> "ReplyForm | None":
    """Form of the clients' replies, found by a trial of their algorithm; None if the options determine it.

    Args:
        config: the run's configuration.
        shape: sizes of the data.
        windows: the run's windows; None if clients own them.

    Raises:
        ConfigError: the algorithm fails, or sends arrays a run cannot accept.
    """
    if is_default_algorithm(config):
        return _form_of_uplink(config)
    from torch import Generator

    from fedge.leaf.trial import try_algorithm
    from fedge.training.networks.fitting import fit_of
    from fedge.training.networks.models import build_model

    train = config.train
    network = build_model(
        train.model, shape.input_shape, shape.classes, Generator(), train.arguments("model"),
        fit_of(train, shape.classes, shape.y_shape, tokens=shape.tokens),
    )  # fmt: skip
    form = try_algorithm(config, network, *examples_of(shape, windows, config.train))
    _refuse_unprotected_messages(config, form)
    return replace(form, keeps=form.keeps or _keeps_feedback(config))


def _keeps_feedback(config: Config) -> bool:
    """Whether clients keep the compression error of a reply for the next one (error feedback)."""
    from fedge.compression.configured import keeps_feedback

    return keeps_feedback(config.uplink)


def _form_of_uplink(config: Config) -> "ReplyForm | None":
    """Form of the replies of the default algorithm with error feedback; None without error feedback."""
    if not _keeps_feedback(config):
        return None
    from fedge.exchange.algorithm import ReplyForm

    return ReplyForm((), keeps=True, plain=True)


def _refuse_unprotected_messages(config: Config, form: "ReplyForm") -> None:
    """Raise ConfigError if clients send anything besides the model that privacy does not cover."""
    from fedge.algorithm.configured import leaf_part_of
    from fedge.exchange.content import ARRAYS
    from fedge.privacy.coverage import refuse

    decides_by = leaf_part_of(config.train).decides_by()
    refuse(config, f"train.algorithm {config.train.algorithm}", {**form.leaving(), ARRAYS: decides_by})
