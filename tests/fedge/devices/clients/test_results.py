"""The rows of an evaluation: pooled at leaves, a row per client that was evaluated or has trained."""

import numpy as np
import pytest
from evaluations import classified

from fedge.devices.clients.results import Period, Population, mean_score, round_result
from fedge.exchange.failure import Failure

WHO = Population({0: 0, 1: 0, 2: 1, 3: 1}, {0: 5, 1: 6, 2: 7}, frozenset({3}), 2, truth=[0, 1])
MOVED = {"up": 1, "down": 2, "cloud_up": 3, "cloud_down": 4}


def evaluation(right, wrong):
    return classified(np.array([[right, wrong], [0, 0]]), 0.5)


EVALUATED = {0: evaluation(3, 1), 2: evaluation(1, 3), 3: evaluation(1, 1)}


def test_rows_by_hand():
    period = Period(4, {1: 0.7}, {2: Failure("exception", "x")}, MOVED, 0.0)
    result = round_result(WHO, period, EVALUATED)
    assert [(c.client, c.test_score, c.train_loss) for c in result.clients] == [
        (0, 0.75, None), (1, None, 0.7), (2, 0.25, None), (3, 0.5, None),
    ]  # fmt: skip
    assert [c.unseen_client for c in result.clients] == [False, False, False, True]
    first, second = result.leaves
    assert (first.num_clients, first.train_samples, first.test_score) == (2, 11, 0.75)
    assert (second.num_clients, second.unseen_clients, second.unseen_score) == (1, 1, 0.5)
    assert first.gate.decision == "off"
    assert (result.uplink_bytes, result.downlink_bytes) == (1, 2)
    assert (result.cloud_uplink_bytes, result.cloud_downlink_bytes) == (3, 4)
    assert result.clients_ok == 3
    assert result.truth == [0, 1]


def test_means_over_clients():
    assert mean_score(WHO, EVALUATED, unseen=False) == pytest.approx(0.5)
    assert mean_score(WHO, EVALUATED, unseen=True) == 0.5
    assert mean_score(WHO, {}, unseen=True) is None


def test_devices_of_a_leaf():
    assert WHO.devices_of(0) == [0, 1]
    assert WHO.devices_of(1) == [2]
