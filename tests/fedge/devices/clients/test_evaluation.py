"""Clients with test windows evaluate a version; who fails loses only itself."""

import numpy as np
from evaluations import classified
from flwr.clientapp import ClientApp
from virtual_world import config_of

from fedge.devices.clients.access import ClientAccess, Waiting
from fedge.devices.clients.evaluation import ClockEvaluation
from fedge.devices.servers.vectors import version_of
from fedge.engine.inprocess import InProcessGrid
from fedge.exchange.clients import Clients
from fedge.exchange.evaluate import OWN, evaluate_reply, models_to_evaluate
from fedge.exchange.round_context import RoundContext
from fedge.process.identity import process_name
from fedge.timing.laps import LapClock


def test_each_client_is_asked_that_has_test_windows():
    """Client 1 has none, client 2 raises, client 3 counts a window too many, client 4's loss is infinite."""
    made, asked = ClientApp(), []

    @made.evaluate()
    def evaluate(message, context):
        client = context.node_config["partition-id"]
        asked.append(client)
        ((role, state),) = models_to_evaluate(message)
        assert role == OWN
        if client == 2:
            raise RuntimeError("no")
        right = int(state["w"][0]) + (client == 3)
        loss = np.inf if client == 4 else 0.5
        return evaluate_reply(message, {(OWN, "test"): classified(np.array([[right, 0], [1, 0]]), loss)})

    def contexts(period, attempt):
        return RoundContext(3, period, attempt, "", "", process_name(), 30.0)

    with InProcessGrid(made, 5, {}, 2) as grid:
        clients = Clients(grid, {client: client + 1 for client in range(5)})
        windows = {0: 4, 1: 0, 2: 4, 3: 4, 4: 4}
        waiting = Waiting(grid, 30.0, LapClock(), lambda: None)
        evaluating = ClockEvaluation(ClientAccess(waiting, clients, config_of(), contexts), windows, 2)
        version = version_of({"w": np.array([3.0], np.float32)})
        found, failures = evaluating.evaluate(lambda _: version, 7)
    assert sorted(asked) == [0, 2, 3, 4]
    assert found.keys() == {0, 4}
    assert found[0].confusion.tolist() == [[3, 0], [1, 0]]
    assert failures.keys() == {2, 3, 4}
    assert failures[4].kind == "loss not finite"
