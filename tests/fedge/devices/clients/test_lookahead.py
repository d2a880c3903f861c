"""Real workers ahead of the clock: the result of the job that is asked for, whatever else is under way."""

import threading
import time

import numpy as np
import pytest
from flwr.clientapp import ClientApp
from virtual_world import WINDOWS, app, config_of

from fedge.devices.clients.access import ClientAccess, Waiting
from fedge.devices.clients.lookahead import LookAhead
from fedge.devices.servers.vectors import version_of
from fedge.devices.work.jobs import Job
from fedge.engine.inprocess import InProcessGrid
from fedge.exchange.clients import Clients
from fedge.exchange.content import ARRAYS, arrays_of
from fedge.exchange.failure import Failure
from fedge.exchange.round_context import RoundContext
from fedge.exchange.train import TrainReply, train_reply
from fedge.process.identity import process_name
from fedge.timing.laps import LapClock
from fedge.training.local import TrainResult

START = version_of({"w": np.zeros(2, np.float32), "steps": np.array(0)})


def job(number, device, end_us, attempt=1):
    return Job(number, device, 0, attempt, 1, 0, 0, end_us, 0, end_us, "trains", START)


def ahead(grid, clients=3, timeout_s=30.0, retries=1):
    clock = LapClock()
    access = ClientAccess(
        Waiting(grid, timeout_s, clock, lambda: None),
        Clients(grid, {device: device + 1 for device in range(clients)}), config_of(guard__retries=retries),
        lambda period, attempt: RoundContext(3, period, attempt, "", "", process_name(), timeout_s),
    )  # fmt: skip
    return LookAhead(access, dict.fromkeys(range(clients), WINDOWS))


def noted(order, gate, broken=()):
    """Clients that note their turns and wait for `gate`."""
    made = ClientApp()

    @made.train()
    def train(message, context):
        device = context.node_config["partition-id"]
        order.append(device)
        gate.wait(20)
        start = arrays_of(message, ARRAYS)
        state = {"w": start["w"] + np.float32(device), "steps": start["steps"] + 1}
        if device in broken:
            state["w"] = state["w"] * np.float32(np.nan)
        return train_reply(message, TrainResult(state, 1.0, 1), WINDOWS, 0.0)

    return made


def test_what_ends_first_is_trained_first():
    """One worker is busy with job 1; of those that wait, device 2 ends before device 1."""
    order, gate = [], threading.Event()
    with InProcessGrid(noted(order, gate), 3, {}, 1) as grid:
        look = ahead(grid)
        look.begin(job(1, 0, 500))
        while not order:
            time.sleep(0.001)
        for each in (job(2, 1, 900), job(3, 2, 100)):
            look.begin(each)
            assert each in look
        gate.set()
        found = [look.result(each).state["w"][0] for each in (job(3, 2, 100), job(1, 0, 500), job(2, 1, 900))]
    assert order == [0, 2, 1]
    assert found == [2.0, 0.0, 1.0]


def test_a_client_that_fails_is_tried_again_and_then_counts_as_failed():
    with InProcessGrid(app(fails={(1, 1)}), 3, {}, 2) as grid:
        look = ahead(grid)
        for each in (job(1, 0, 10), job(2, 1, 20)):
            look.begin(each)
        assert isinstance(look.result(job(1, 0, 10)), TrainReply)
        failure = look.result(job(2, 1, 20))
    assert isinstance(failure, Failure)
    assert "device 1, attempt 1" in str(failure)


def test_a_reply_that_is_no_model_is_refused():
    gate = threading.Event()
    gate.set()
    with InProcessGrid(noted([], gate, broken={2}), 3, {}, 1) as grid:
        look = ahead(grid)
        look.begin(job(1, 2, 10))
        assert "not finite" in str(look.result(job(1, 2, 10)))


@pytest.mark.timeout(60)
def test_a_client_that_hangs_is_given_up():
    gate = threading.Event()
    with InProcessGrid(noted([], gate), 3, {}, 1) as grid:
        look = ahead(grid, timeout_s=0.2, retries=0)
        look.begin(job(1, 0, 10))
        failure = look.result(job(1, 0, 10))
        gate.set()
    assert failure.kind == "no reply"
