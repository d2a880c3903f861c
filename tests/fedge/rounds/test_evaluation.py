"""Clients and models of an evaluation, and answers that count: a leaf, a known and an unseen client."""

import numpy as np
import pytest
from evaluations import classified
from flwr.serverapp.strategy import FedAvg

from fedge.config.flat import from_run_config
from fedge.exchange.clients import Clients
from fedge.exchange.evaluate import evaluate_reply, models_to_evaluate, splits_to_evaluate
from fedge.exchange.round_context import RoundContext
from fedge.leaf.leaf import Leaf
from fedge.rounds.evaluation import Evaluating, EvaluationRequest
from fedge.rounds.task import RunTask
from fedge.rounds.transport import RoundServices, Transport
from fedge.states.state_files import SharedStates
from fedge.timing.laps import LapClock

HELD_OUT = {0: {"val": 4, "test": 2}, 1: {"val": 3, "test": 5}}


def context_of(global_round, leaf_round):
    return RoundContext(7, global_round, leaf_round, "nowhere", "log", 0, 5.0)


def state(value):
    return {"w": np.array([value], np.float32)}


@pytest.fixture
def evaluating(tmp_path):
    """Evaluation in global round 2, and its transport."""
    leaf = Leaf(0, {0: 10}, state(0), ["w"], FedAvg(), 0, unseen_clients=[1])
    clients = Clients(None, {client: 100 + client for client in HELD_OUT})
    facilities = RoundServices(clients, context_of, LapClock(), SharedStates(tmp_path, enabled=False))
    transport = Transport(facilities, {0: 10}, retries=0)
    transport.begin_round(2)
    return Evaluating(transport, [leaf], RunTask(from_run_config({}), 7, HELD_OUT, 2)), transport


def asked_of(messages):
    """Client → role → value of the model that it is to evaluate."""
    return {
        message.metadata.dst_node_id - 100: {r: float(m["w"][0]) for r, m in models_to_evaluate(message)}
        for message in messages
    }


def right(count, windows, loss=1.0):
    return classified(np.array([[count, windows - count], [0, 0]]), loss)


def test_known_and_unseen_clients_evaluate_their_own_models(evaluating):
    asks, _ = evaluating
    asked = EvaluationRequest({0: {"own": state(1)}}, ("val", "test"), {0: {"cluster": state(2)}})
    messages = asks.messages(asked)
    assert asked_of(messages) == {0: {"own": 1}, 1: {"cluster": 2}}
    assert splits_to_evaluate(messages[0]) == ["val", "test"]


def test_unseen_clients_are_not_asked_what_is_not_theirs(evaluating):
    asks, _ = evaluating
    assert asked_of(asks.messages(EvaluationRequest({0: {"leaf-0": state(1)}}, ("val",)))) == {
        0: {"leaf-0": 1}
    }


def test_answers_that_count(evaluating):
    asks, transport = evaluating
    asked = EvaluationRequest({0: {"own": state(1)}}, ("val", "test"), {0: {"own": state(1)}})
    messages = asks.messages(asked)
    of_0 = {("own", "val"): right(3, 4), ("own", "test"): right(1, 2)}
    of_1 = {("own", "val"): right(3, 3), ("own", "test"): right(1, 9)}  # 5 windows are its test split
    replies = [evaluate_reply(m, said) for m, said in zip(messages, (of_0, of_1), strict=True)]
    found = asks.take(asked, replies)
    assert list(found) == [0]
    assert found[0]["own", "val"].confusion.tolist() == [[3, 1], [0, 0]]
    assert list(transport.book.failures) == [1]


def test_a_model_that_has_diverged_is_noted_and_its_evaluation_counts(evaluating):
    asks, transport = evaluating
    asked = EvaluationRequest({0: {"own": state(1)}}, ("val",))
    (message,) = asks.messages(asked)
    found = asks.take(asked, [evaluate_reply(message, {("own", "val"): right(2, 4, loss=np.inf)})])
    assert list(found) == [0]
    assert transport.book.failures[0].kind == "loss not finite"
