"""Keyword arguments that an option says as well: given, they are refused, not preferred in silence."""

import inspect

import pytest

from fedge.config.flat import options
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import OPTIMIZERS, SCHEDULES
from fedge.config.registers.register import _registers
from fedge.config.sections.train import TrainConfig
from fedge.training.optimizers import refuse_optimizer
from fedge.training.step_sizes import refuse_schedule, step_size

SAME = {"decay": "lr-decay", "mu": "prox-mu"}  # argument → option of its section that may be meant

# arguments named like an option of their section, and why both can be given
APART = {
    ("train.optimizer", "momentum"): "train.momentum is for sgd alone, and a note says so",
    ("train.optimizer", "lr_decay"): "Adagrad's own, per step",
    ("train.schedule", "decay"): "refused",
    ("train.optimizer", "lr"): "refused",
    ("train.optimizer", "weight_decay"): "refused",
    ("train.algorithm", "lr"): "of another model, θ",
    ("train.algorithm", "decay"): "of another model, added to train.weight-decay",
    ("train.algorithm", "epochs"): "of another model; local-epochs stands for the leaf's",
    ("train.algorithm", "mu"): "of the method's own term, beside FedProx's",
    ("cluster.method", "level"): "tested-family's own; a note says that cluster.level is for auto",
    ("asynchrony.rule", "staleness"): "a weight, where max-staleness is a bound",
    ("asynchrony.cloud-rule", "staleness"): "a weight, where max-staleness is a bound",
}


def namesakes():
    """(option of a part, argument) → options of its section with the argument's name."""
    found, keys = {}, set(options())
    for register in _registers:
        section = register.option.rpartition(".")[0]
        if f"{register.option}-args" not in keys:
            continue
        for entry in register:
            if not entry.code:
                continue
            code = register.load(entry.name)
            try:
                words = [*inspect.signature(code).parameters, *entry.arguments]
            except ValueError:
                words = [*entry.arguments]
            for word in words:
                dashed = word.replace("_", "-")
                meant = {f"{section}.{each}" for each in (dashed, SAME.get(word, dashed), f"local-{dashed}")}
                meant |= {f"{section}.max-{dashed}"}
                if meant & keys:
                    found[register.option, word] = meant & keys
    return found


def test_every_argument_named_like_an_option_is_known():
    """A new part whose argument repeats an option must refuse it, or say here how the two differ."""
    assert namesakes().keys() == APART.keys()


@pytest.mark.parametrize("decay", [0.5, 0.99])
def test_a_schedule_has_one_decay(decay):
    config = TrainConfig(lr_decay=0.9, schedule_args=f'{{"decay": {decay}}}')
    for ask in (lambda: refuse_schedule(config, 3), lambda: step_size(config, 2)):
        with pytest.raises(ConfigError) as refused:
            ask()
        assert str(refused.value) == (
            f"train.schedule-args.decay must be left out, because train.lr-decay says it, but is {decay}; "
            f"set train.lr-decay={decay} instead"
        )


def own_schedule(global_round, decay=0.5):
    return decay ** (global_round - 1)


def test_a_schedule_of_ones_own_may_have_any_argument():
    assert SCHEDULES.is_own(f"{__name__}:own_schedule")
    config = TrainConfig(lr=1.0, schedule=f"{__name__}:own_schedule", schedule_args='{"decay": 0.25}')
    refuse_schedule(config, 2)
    assert step_size(config, 2) == 0.25


@pytest.mark.parametrize("optimizer", [*OPTIMIZERS.names[2:], "torch.optim:Adam", "torch.optim:SGD"])
@pytest.mark.parametrize("word", ["lr", "weight-decay", "weight_decay"])
def test_an_optimiser_has_one_step_size_and_one_weight_decay(optimizer, word):
    config = TrainConfig(optimizer=optimizer, weight_decay=0.1, optimizer_args=f'{{"{word}": 0.2}}')
    dashed = word.replace("_", "-")
    with pytest.raises(ConfigError) as refused:
        refuse_optimizer(config)
    assert str(refused.value) == (
        f"train.optimizer-args.{dashed} must be left out, because train.{dashed} says it, but is 0.2; set "
        f"train.{dashed}=0.2 instead"
    )
