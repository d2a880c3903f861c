"""Schedules of step sizes against numbers worked out by hand, and those that cannot be."""

import io

import pytest
from small_runs import carry_out, small_config

from fedge import simulate
from fedge.config.registers.option import ConfigError
from fedge.config.sections.train import TrainConfig
from fedge.training.step_sizes import refuse_schedule, step_size


def sizes(rounds, **options):
    return [step_size(TrainConfig(lr=0.1, **options), r) for r in range(1, rounds + 1)]


def test_the_default_is_the_power_that_it_was():
    """To the last bit: η · γ^(r − 1)."""
    assert sizes(50, lr_decay=0.97) == [0.1 * 0.97 ** (r - 1) for r in range(1, 51)]


def test_cosine_by_hand():
    """cos 0, cos π/4, cos π/2, cos 3π/4, cos π; the last round's size stays."""
    found = sizes(6, schedule="cosine", schedule_args='{"rounds": 5, "last": 0}')
    assert found == pytest.approx([0.1, 0.0853553, 0.05, 0.0146447, 0, 0], abs=1e-7)


def test_warm_up_rises_in_equal_steps_before_any_schedule():
    given = '{"warmup": 2, "at": "3", "factor": 0.5}'
    assert sizes(4, schedule="steps", schedule_args=given) == pytest.approx([0.05, 0.1, 0.05, 0.05])
    assert sizes(3, lr_decay=0.5, schedule_args='{"warmup": 2}') == pytest.approx([0.05, 0.05, 0.025])


def own(global_round):
    return {1: 1.0, 2: float("nan")}[global_round]


def fails(global_round):
    raise KeyError("no")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule": f"{__name__}:own"}, "in round 2 it is nan"),
        ({"schedule": "cosine", "schedule_args": '{"rounds": 2, "last": 0}'}, "in round 2 it is 0"),
        ({"schedule": f"{__name__}:fails"}, "fails in global round 1: KeyError"),
        *(
            (
                {"schedule": "steps", "schedule_args": f'{{"at": {at}}}'},
                "at must be rounds of at least 1, sep",
            )
            for at in ('"2;3"', '""', "[]", "[0, 3]", "[2.5]", "true", "3")
        ),
        *(
            (
                {"schedule": "cosine", "schedule_args": f'{{"rounds": {n}}}'},
                "rounds must be a whole number of",
            )
            for n in ("0", "-5", "2.5", '"9"', "true")
        ),
    ],
)
def test_schedules_that_cannot_be_are_refused(options, message):
    with pytest.raises(ConfigError, match=message) as refused:
        refuse_schedule(TrainConfig(**options), 2)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("schedule", "given", "message"),
    [
        ("constant", '"warmup": -1', "warmup must be at least 0"),
        ("exponential", '"warmup": 2.5', "warmup must be a whole number"),
        ("cosine", '"rounds": 5, "last": -0.5', "last must be at least 0"),
        ("steps", '"at": "2", "factor": 0', "factor must be above 0"),
    ],
)
def test_arguments_out_of_range_are_refused_with_the_options(schedule, given, message):
    with pytest.raises(ConfigError, match=rf"train\.schedule-args\.{message}"):
        TrainConfig(schedule=schedule, schedule_args=f"{{{given}}}")


def test_a_run_takes_them(tmp_path):
    """A factor of a half at round 2 is a decay of a half; another optimiser goes on exactly after a stop."""
    config = small_config(tmp_path, train__lr_decay=0.5)
    steps = {"train.schedule": "steps", "train.schedule-args": '{"at": [2], "factor": 0.5}'}
    assert carry_out({**config, **steps}, "steps")["models"] == carry_out(config, "decay")["models"]
    config |= {"train.optimizer": "adamw", "scaffold.enabled": False, "train.schedule": "cosine"}
    config |= {"train.schedule-args": '{"rounds": 9}', "train.optimizer-args": '{"amsgrad": true}'}
    whole = carry_out({**config, "num-server-rounds": 3}, "whole")
    begun = simulate({**config, "run-name": "begun"}, terminal=io.StringIO())
    again = simulate({**config, "num-server-rounds": 3, "resume": str(begun.folder)}, terminal=io.StringIO())
    assert (again.folder / "checkpoints" / "final.safetensors").read_bytes() == whole["models"]
    with pytest.raises(ConfigError, match=r"train\.schedule cosine must be given rounds"):
        simulate({**config, "train.schedule-args": ""})
    with pytest.raises(ConfigError, match=r"scaffold\.enabled needs train\.optimizer to be sgd"):
        simulate({**config, "scaffold.enabled": True})
