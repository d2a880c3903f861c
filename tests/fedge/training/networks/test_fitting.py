"""Inputs and answers of a model follow from the task."""

import pytest

from fedge.config.registers.option import ConfigError
from fedge.config.sections.train import TrainConfig
from fedge.training.networks.fitting import fit_of
from fedge.training.networks.own_models import OwnFit


def test_each_task_asks_for_its_answers():
    assert fit_of(TrainConfig(), 6, (), tokens=False) == OwnFit(False, (6,), "logits")
    assert fit_of(TrainConfig(task="regression"), 1, (), tokens=False) == OwnFit(False, (1,), "answers")
    assert fit_of(TrainConfig(task="multilabel"), 3, (3,), tokens=False).answer == (3,)
    assert fit_of(TrainConfig(task="sequence"), 9, (4, 4), tokens=True) == OwnFit(True, (9, 4, 4), "answers")


def test_a_task_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match=r"train\.task must be one of classification, regression"):
        fit_of(TrainConfig(task="regresion"), 1, (), tokens=False)
