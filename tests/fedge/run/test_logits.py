"""A run says at its start that its network returns probabilities to a loss that takes logits."""

import pytest
from small_runs import small_config
from torch import nn

from fedge import simulate


class Probabilities(nn.Sequential):
    def __init__(self, input_shape, classes):
        size = input_shape[0] * input_shape[1]
        super().__init__(nn.Flatten(), nn.Linear(size, classes), nn.Softmax(1))


class Logits(nn.Sequential):
    def __init__(self, input_shape, classes):
        super().__init__(nn.Flatten(), nn.Linear(input_shape[0] * input_shape[1], classes))


def own_loss(answers, y):
    return 1 - answers.gather(1, y[:, None])[:, 0]


@pytest.mark.parametrize(
    ("model", "options", "is_said"),
    [
        (Probabilities, {}, True),
        (Probabilities, {"train.loss": f"{__name__}:own_loss"}, False),
        (Logits, {}, False),
    ],
)
def test_a_run_says_that_its_loss_expects_logits(model, options, is_said, tmp_path):
    config = small_config(tmp_path) | {
        "train.model": f"{__name__}:{model.__name__}", "scaffold.enabled": False, "num-server-rounds": 1,
        **options,
    }  # fmt: skip
    run = simulate(config)
    assert run.status == "completed"
    assert ("seems to end with softmax" in (run.folder / "run.log").read_text()) == is_said
