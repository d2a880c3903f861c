"""Losses and scores of one's own: what they do by hand, and how wrong ones are refused, each in one line."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import TASKS
from fedge.config.sections.train import TrainConfig
from fedge.tasks import Score, Task
from fedge.tasks.configured import CLASSIFICATION, refuse_task_that_fails, scores_of, task_entry, task_of

Y = torch.tensor([0, 1, 1])
ANSWERS = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]])


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """Let my_losses be imported as from a user's folder."""
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parent), *sys.path])


def test_by_default_it_is_classification():
    assert task_of(TrainConfig()) is CLASSIFICATION


def test_a_loss_of_ones_own_takes_the_place_of_cross_entropy_with_its_arguments():
    """(1 − p)^γ · −log p; the mean of a batch is that of its examples; the native step knows none of it."""
    task = task_of(TrainConfig(loss="my_losses:focal", loss_args='{"gamma": 1.0}'))
    p = F.softmax(ANSWERS, dim=1)[torch.arange(3), Y]
    assert torch.allclose(task.losses(ANSWERS, Y), -(1 - p) * p.log())
    assert task.loss(ANSWERS, Y, 0.1) == pytest.approx(float((-(1 - p) * p.log()).mean()))
    assert not task.native
    assert task.least_loss == -np.inf
    entropies = F.cross_entropy(ANSWERS, Y, reduction="none")
    weighted = task_of(TrainConfig(loss="my_losses:weighted")).losses(ANSWERS, Y)
    assert torch.allclose(weighted, entropies * torch.tensor([1.0, 4.0, 4.0]))


def test_scores_of_ones_own_come_after_those_of_the_task():
    """Rows true: class 0 all right, class 1 one of two: recalls 1 and 1/2."""
    task = task_of(TrainConfig(metrics="my_losses:balanced_accuracy,my_losses:errors"))
    assert [score.name for score in task.scores] == ["accuracy", "macro_f1", "balanced_accuracy", "errors"]
    sums = {"confusion": task.sums(ANSWERS, Y)["confusion"].numpy()}
    assert [task.scores[2](sums), task.scores[3](sums), task.score(sums)] == [0.75, 1.0, 2 / 3]
    assert task.native
    assert torch.equal(task.loss(ANSWERS, Y, 0.1), F.cross_entropy(ANSWERS, Y, label_smoothing=0.1))
    refuse_task_that_fails(TrainConfig(metrics="my_losses:errors", loss="my_losses:focal"), 3)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"loss": "my_losses:nope"},
            r"^train\.loss my_losses:nope cannot be imported: my_losses has no nope",
        ),
        ({"loss": "my_losses:mean_of_batch"}, r"^train\.loss \S+ must return a loss for each of 6 examples"),
        (
            {"loss": "torch.nn:CrossEntropyLoss"},
            r"^train\.loss \S+ must be a function of \(answers, y\), but",
        ),
        ({"loss": "my_losses:detached"}, r"^train\.loss \S+ must be differentiable"),
        (
            {"loss": "my_losses:writes"},
            r"^train\.loss \S+ must leave its arguments as they are, but writes to y",
        ),
        ({"loss": "my_losses:fails"}, r"^train\.loss \S+ failed: RuntimeError: no such column .* fix it"),
        ({"loss": "my_losses:focal", "loss_args": '{"gama": 1}'}, r"did you mean gamma"),
        ({"metrics": "my_losses:no_score"}, r"^train\.metrics must name fedge\.tasks\.Score objects"),
        ({"metrics": "my_losses:directionless"}, r"must say which direction is better, .* set True or False"),
        ({"metrics": "my_losses:spaced"}, r"name must be small letters, digits and underscores"),
        ({"metrics": "my_losses:taken"}, r"macro_f1 is a column already; rename"),
        ({"metrics": "my_losses:broken"}, r"score broken failed on a made-up confusion matrix: KeyError"),
        (
            {"metrics": "my_losses:outside"},
            r"score outside must lie in 0\.\.inf, as declared, but is -1",
        ),
        ({"metrics": "my_losses:no_number"}, r"score no_number must lie in -inf\.\.inf"),
    ],
)
def test_what_cannot_be_is_one_line(settings, words):
    with pytest.raises(ConfigError, match=words) as caught:
        refuse_task_that_fails(TrainConfig(**settings), 3)
    assert "\n" not in str(caught.value)


DENSE = """
import numpy as np, torch
from fedge.tasks import Score, Task

class Pixels(Task):
    scores = (Score("dice", lambda s: float(2 * s["both"] / max(1, s["all"])), higher_is_better=True),)
    def losses(self, answers, y, smoothing=0.0):
        return torch.nn.functional.cross_entropy(answers, y, reduction="none").mean(dim=(1, 2))
    def form(self, outputs):
        return {name: np.zeros((), np.int64) for name in ("both", "all")}
    def sums(self, answers, y):
        front = answers.argmax(dim=1) == 1
        return {"both": (front & (y == 1)).sum(), "all": front.sum() + (y == 1).sum()}
    def values(self, answers, y):
        return (answers.argmax(dim=1) == y).double().mean(dim=(1, 2))

class Shaped(Pixels):
    def answer_shape(self, outputs, y_shape):
        return (outputs, *y_shape)
"""


def test_a_task_with_a_class_per_pixel_is_told_to_say_the_shape_of_its_answers(tmp_path, monkeypatch):
    (tmp_path / "dense.py").write_text(DENSE)
    monkeypatch.syspath_prepend(tmp_path)
    y = np.tile(np.eye(4, dtype=np.int64), (3, 1, 1))
    refuse_task_that_fails(TrainConfig(task="dense:Shaped"), 2, y)
    shapes = r"answers \(3, 2\) and y \(3, 4, 4\): .* defines answer_shape\(outputs, y_shape\)"
    with pytest.raises(ConfigError, match=rf"^train\.task dense:Pixels failed: .* {shapes}") as caught:
        refuse_task_that_fails(TrainConfig(task="dense:Pixels"), 2, y)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["top/5", 5])
def test_a_sum_whose_name_no_message_can_have_is_one_line(name, tmp_path, monkeypatch):
    """Clients could not send `top/5`, so no evaluation of the run arrived."""
    (tmp_path / "named_sums.py").write_text(DENSE.replace('"all"', repr(name)))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "named_sums", raising=False)
    y = np.tile(np.eye(4, dtype=np.int64), (3, 1, 1))
    with pytest.raises(ConfigError, match=rf"sums by texts without a slash, .* but has {name!r}") as caught:
        refuse_task_that_fails(TrainConfig(task="named_sums:Shaped"), 2, y)
    assert "\n" not in str(caught.value)


def test_a_manifest_names_scores_without_their_code():
    config = TrainConfig(metrics="my_losses:errors")
    scores, unit = scores_of(task_entry(config))
    assert [(s.name, s.label, s.higher_is_better, s.unit) for s in scores][2] == (
        "errors", "errors", False, "windows",
    )  # fmt: skip
    assert unit == "nat"
    assert scores_of(None) == (tuple(CLASSIFICATION.scores), "nat")


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"unit": 5}, "unit of score gain must be text, but is 5"),
        ({"words": None}, "words of score gain must be text, but is None"),
        ({"lowest": None}, "must have numbers as lowest and highest"),
        ({"highest": math.nan}, "must have numbers as lowest and highest"),
        ({"lowest": 1, "highest": 0}, r"in this order, but has \(1, 0\)"),
        ({"lowest": True}, "must have numbers as lowest and highest"),
        ({"least_loss": None}, "must have a number as least_loss"),
        ({"least_loss": math.nan}, "must have a number as least_loss"),
    ],
    ids=str,
)
def test_a_score_of_other_kinds_is_one_line(told, words):
    """They went into the manifest, and no reader of it knew the task."""

    class Own(Task):
        least_loss = told.get("least_loss", 0.0)
        scores = (
            Score("gain", lambda sums: 0.0, True, **{k: v for k, v in told.items() if k != "least_loss"}),
        )

    name = TASKS.given(Own)
    try:
        with pytest.raises(ConfigError, match=words) as caught:
            task_of(TrainConfig(task=name))
    finally:
        TASKS.forget(name)
    assert "\n" not in str(caught.value)
