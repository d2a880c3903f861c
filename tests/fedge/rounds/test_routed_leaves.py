"""Two leaves of this process over a ClientApp that adds a number to what it is sent, in process."""

import numpy as np
import pytest
from evaluations import classified
from flwr.clientapp import ClientApp

from fedge.config.flat import from_run_config
from fedge.engine.inprocess import InProcessGrid
from fedge.exchange.clients import Clients
from fedge.exchange.content import ARRAYS, arrays_of
from fedge.exchange.evaluate import evaluate_reply, models_to_evaluate
from fedge.exchange.joint import evaluate_part, joint_reply
from fedge.exchange.round_context import RoundContext
from fedge.exchange.train import train_reply
from fedge.leaf.leaf import Leaf
from fedge.leaf.strategies.rules import make_strategy
from fedge.rounds.evaluation import EvaluationRequest
from fedge.rounds.lines import own_models
from fedge.rounds.measurements.requests import ProbeRequest
from fedge.rounds.port import PortContext
from fedge.rounds.routed_leaves import EnginePort
from fedge.rounds.task import RunTask
from fedge.rounds.transport import RoundServices, Transport
from fedge.states.state_files import SharedStates
from fedge.timing.laps import LapClock
from fedge.training.local import TrainResult

SAMPLES, STEPS = 10, 5  # of five epochs of one batch
CLIENTS = 4


def context_of(global_round, leaf_round):
    return RoundContext(7, global_round, leaf_round, "nowhere", "log", 0, 5.0)


def state(value):
    return {"w": np.array([value], np.float32)}


adding = ClientApp()


broken = {}
"""Partition id → what this client fails in: "train" or "evaluate"."""


@adding.train()
def train(message, context):
    part = evaluate_part(message)
    if part is None or context.node_config["partition-id"] == 0:  # which knows nothing of joint questions
        return trained(message, context)
    if broken.get(context.node_config["partition-id"]) == "evaluate":
        raise RuntimeError("no windows")
    return joint_reply(message, evaluate_reply(part, right_of(part)), lambda: trained(message, context))


def trained(message, context):
    if broken.get(context.node_config["partition-id"]) == "train":
        raise RuntimeError("sensor unplugged")
    made = {"w": arrays_of(message, ARRAYS)["w"] + np.float32(1 + context.node_config["partition-id"])}
    return train_reply(message, TrainResult(made, 0.5, STEPS), SAMPLES, 0.1)


@adding.evaluate()
def evaluate(message, context):
    return evaluate_reply(message, right_of(message))


def right_of(message):
    """Evaluations that tell the model's number."""
    right = int(next(models_to_evaluate(message))[1]["w"][0])
    confusion = np.array([[right, 9 - right], [0, 0]])
    return {("own", "test"): classified(confusion, 1.0)}


@pytest.fixture
def routed(tmp_path):
    """Leaf 0 has clients 0 and 1 and begins with 0, leaf 1 has clients 2 and 3 and begins with 1."""
    config = from_run_config({})
    leaves = [
        Leaf(i, {2 * i: SAMPLES, 2 * i + 1: SAMPLES}, state(i), ["w"], make_strategy(config, 2), 0)
        for i in range(2)
    ]
    held_out = {client: {"val": 9, "test": 9} for client in range(CLIENTS)}
    with InProcessGrid(adding, CLIENTS, {}, 2) as grid:
        clients = Clients(grid, {client: client + 1 for client in range(CLIENTS)})
        facilities = RoundServices(clients, context_of, LapClock(), SharedStates(tmp_path, enabled=False))
        transport = Transport(facilities, dict.fromkeys(held_out, SAMPLES), retries=0)
        transport.timeout_s = 5.0
        transport.begin_round(1)
        yield leaves, transport, EnginePort(PortContext(RunTask(config, 7, held_out, 2), leaves, transport))


def test_all_leaves_train_in_one_exchange(routed):
    """Clients add 1, 2, 3 and 4: the leaves' means rise by 1.5 and 3.5."""
    leaves, transport, port = routed
    assert port.train(own_models(leaves), 1) == CLIENTS
    assert [float(leaf.model["w"][0]) for leaf in leaves] == [1.5, 4.5]
    assert len(transport.book.exchanges) == 1
    assert transport.book.failures == {}


def test_clients_evaluate_the_model_of_their_leaf(routed):
    _, transport, port = routed
    found = port.evaluate(EvaluationRequest({0: {"own": state(2)}, 1: {"own": state(7)}}, ("test",)))
    assert {c: int(e["own", "test"].confusion[0, 0]) for c, e in found.items()} == {0: 2, 1: 2, 2: 7, 3: 7}
    assert transport.book.failures == {}


def test_a_probe_moves_no_leaf(routed):
    leaves, _, port = routed
    probe = port.probe(ProbeRequest(leaves, state(5), 1))
    assert [float(model["w"][0]) for model in probe.models] == [6.5, 8.5]
    assert [float(leaf.model["w"][0]) for leaf in leaves] == [0, 1]


ASKED = EvaluationRequest({0: {"own": state(2)}, 1: {"own": state(7)}}, ("test",))


def right(found):
    return {client: int(e["own", "test"].confusion[0, 0]) for client, e in found.items()}


def test_clients_train_ahead_and_leaves_move_in_their_round(routed):
    """Clients 1, 2 and 3 do both in one exchange; client 0 is asked for its evaluation by itself."""
    leaves, transport, port = routed
    assert right(port.evaluate_and_train(ASKED, own_models(leaves), 2)) == {0: 2, 1: 2, 2: 7, 3: 7}
    assert [float(leaf.model["w"][0]) for leaf in leaves] == [0, 1]
    assert [len(exchange.numbers) for exchange in transport.book.exchanges] == [0, 0]  # they tell no times
    assert (transport.book.downlink_bytes, transport.book.uplink_bytes) == (CLIENTS * 4, 0)
    transport.begin_round(2)
    assert port.train(own_models(leaves), 2) == CLIENTS
    assert [float(leaf.model["w"][0]) for leaf in leaves] == [1.5, 4.5]
    assert (transport.book.downlink_bytes, transport.book.uplink_bytes) == (CLIENTS * 4, CLIENTS * 4)
    assert transport.book.exchanges == []
    assert port.train(own_models(leaves), 3) == CLIENTS
    assert [float(leaf.model["w"][0]) for leaf in leaves] == [3.0, 8.0]
    assert transport.book.failures == {}


@pytest.mark.parametrize("fails", ["train", "evaluate"])
def test_each_failure_is_of_its_round(routed, monkeypatch, fails):
    """Client 3 can only do one of both: its failure is that of the one, in the round that this belongs to."""
    leaves, transport, port = routed
    monkeypatch.setitem(broken, 3, fails)
    found = port.evaluate_and_train(ASKED, own_models(leaves), 2)
    assert right(found) == {0: 2, 1: 2, 2: 7, 3: 7}
    assert transport.book.failures == {}
    transport.begin_round(2)
    assert port.train(own_models(leaves), 2) == CLIENTS - (fails == "train")
    assert [float(leaf.model["w"][0]) for leaf in leaves] == [1.5, 4.0 if fails == "train" else 4.5]
    assert {c: f.kind for c, f in transport.book.failures.items()} == (
        {3: "exception"} if fails == "train" else {}
    )
