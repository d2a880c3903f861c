"""The step size of a round, by hand; all else is the configuration's."""

import pytest

from fedge.config.sections.train import TrainConfig
from fedge.training.schedule import local_training


def test_the_step_size_decays_from_round_one_on():
    config = TrainConfig(lr=0.2, lr_decay=0.9)
    assert local_training(config, 1).lr == 0.2
    assert local_training(config, 11).lr == pytest.approx(0.2 * 0.9**10)


def test_without_decay_all_rounds_are_alike():
    config = TrainConfig(lr_decay=1.0)
    assert local_training(config, 1) == local_training(config, 1000)


def test_the_rest_is_the_configuration_s():
    config = TrainConfig(
        momentum=0.5, local_epochs=7, batch_size=16, prox_mu=0.1, threads=2, cuda_graph="off"
    )
    found = local_training(config, 3)
    assert (found.epochs, found.batch_size) == (7, 16)
    assert (found.prox_mu, found.threads, found.cuda_graph) == (0.1, 2, False)
