"""Clients on threads of this process: nothing that one of them does reaches another, or the server."""

import time

import numpy as np
import psutil
import pytest
import torch
from flwr.app import Error, Message, RecordDict
from flwr.clientapp import ClientApp

from fedge.client.guarded_app import GuardedApp
from fedge.engine.inprocess import InProcessGrid
from fedge.exchange.clients import Clients
from fedge.exchange.content import ARRAYS, CONFIG, METRICS, arrays_of, replied_state
from fedge.exchange.round_context import RoundContext
from fedge.exchange.train import TRAIN, train_messages, train_reply
from fedge.process.identity import process_name
from fedge.states.records import to_record
from fedge.training.local import TrainResult

CLIENTS = 3
CONTEXT = RoundContext(42, 3, 7, "/data", "/run.log", process_name(), 60.0)


def model():
    return {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "n": np.array(4)}


def exchanged(act, workers=1, app=ClientApp):
    """Let clients train, by `act` (message, context); returns the exchange and what was sent."""
    made, sent = app(), model()

    @made.train()
    def train(message: Message, context) -> Message:
        return act(message, context)

    with InProcessGrid(made, CLIENTS, {}, workers) as grid:
        clients = Clients(grid, {partition: partition + 1 for partition in range(CLIENTS)})
        exchange = clients.exchange(train_messages(range(1, CLIENTS + 1), to_record(sent), CONTEXT), 30.0)
    return exchange, sent


def through_torch(message):
    message.content[ARRAYS].to_torch_state_dict()["w"].add_(100)


def through_a_view(message):
    torch.from_numpy(arrays_of(message, ARRAYS)["w"]).mul_(0)


def through_numpy(message):
    arrays_of(message, ARRAYS)["w"][...] = 7


def through_flower(message):
    message.content[ARRAYS].to_numpy_ndarrays()[0][...] = 7


def by_other_records(message):
    message.content[ARRAYS]["w"] = to_record({"w": np.zeros(1)})["w"]
    message.content[CONFIG]["leaf_round"] = 1


def by_no_records(message):
    del message.content[ARRAYS]
    message.content[CONFIG].clear()


def by_metadata(message):
    message.metadata.__dict__["_dst_node_id"] = 1


EDITS = [
    through_torch, through_a_view, through_numpy, through_flower, by_other_records, by_no_records,
    by_metadata,
]  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_a_client_that_edits_what_it_received_changes_nobody_else(edit):
    """One worker, so that client 0 is done before the others look."""
    seen = {}

    def act(message, context):
        client = context.node_config["partition-id"]
        if client == 0:
            edit(message)
            raise RuntimeError("edited")
        seen[client] = {name: array.copy() for name, array in arrays_of(message, ARRAYS).items()}
        seen[client]["round"] = message.content[CONFIG]["leaf_round"]
        return train_reply(message, TrainResult(model(), 0.5, 4), 5, 1.0)

    exchange, sent = exchanged(act)
    assert {client: str(failure) for client, failure in exchange.failures.items()}.keys() == {0}
    assert list(exchange.replies) == [1, 2]
    for found in (sent, seen[1], seen[2]):
        assert all(np.array_equal(found[name], model()[name]) for name in model())
    assert seen[1]["round"] == seen[2]["round"] == 7


def test_a_client_that_keeps_on_writing_changes_no_reply():
    """All clients answer from one buffer, as networks that threads share: each reply has its own bits."""
    shared = np.zeros(4, np.float32)

    def act(message, context):
        shared[...] = context.node_config["partition-id"]
        return train_reply(message, TrainResult({"w": shared}, 0.5, 4), 5, 1.0)

    exchange, _ = exchanged(act)
    shared[...] = np.nan
    states = {client: replied_state(reply, None)["w"] for client, reply in exchange.replies.items()}
    assert {client: state.tolist() for client, state in states.items()} == {
        c: [c] * 4 for c in range(CLIENTS)
    }


class Mute(Exception):
    def __str__(self):
        raise ValueError("no words")


class Quitter(Exception):
    def __str__(self):
        raise SystemExit(3)


class Mutes(SystemExit):
    def __str__(self):
        raise KeyboardInterrupt


@pytest.mark.parametrize("app", [ClientApp, GuardedApp])
@pytest.mark.parametrize("error", [Mute, Quitter, Mutes, KeyboardInterrupt, GeneratorExit])
def test_an_exception_that_cannot_be_told_costs_its_client_only(error, app):
    began = time.monotonic()

    def act(message, context):
        if context.node_config["partition-id"] == 0:
            raise error
        return train_reply(message, TrainResult(model(), 0.5, 4), 5, 1.0)

    exchange, _ = exchanged(act, app=app)
    assert list(exchange.replies) == [1, 2]
    assert exchange.failures[0].kind == "exception"
    assert error.__name__ in str(exchange.failures[0])
    assert time.monotonic() - began < 10


def test_what_is_no_reply_costs_its_client_only():
    class Odd(Message):
        @property
        def content(self):
            raise SystemExit("not with me")

    def act(message, context):
        reply = train_reply(message, TrainResult(model(), 0.5, 4), 5, 1.0)
        if context.node_config["partition-id"] == 0:
            reply.__class__ = Odd
        return reply

    exchange, _ = exchanged(act)
    assert list(exchange.replies) == [1, 2]
    assert all(reply.metadata.message_type == TRAIN for reply in exchange.replies.values())
    assert all(reply.content[METRICS]["steps"] == 4 for reply in exchange.replies.values())


@pytest.mark.parametrize("said", ["not a number", "1.2.3", "nan", "", None])
def test_a_client_that_says_it_was_given_up_has_failed_as_any_other(said):
    """Its error carries the engine's own code, with what is no number of seconds."""
    question = Message(RecordDict(), 1, "train")
    reply = Message(Error(200, said), reply_to=question)
    with InProcessGrid(ClientApp(), 1, {}, 1) as grid:
        assert grid.failure_of(reply).kind == "exception"


def test_a_message_to_a_node_that_is_not_there_fails_and_holds_nobody_up():
    with InProcessGrid(lambda message, _: Message(RecordDict(), reply_to=message), 2, {}, 1) as grid:
        asked = [Message(RecordDict(), node, TRAIN) for node in (2**62, 1)]
        replies = list(grid.send_and_receive(asked, timeout=30.0))
        away, there = sorted(replies, key=lambda reply: int(reply.metadata.reply_to_message_id))
    assert str(grid.failure_of(away)) == "KeyError: 4611686018427387904"
    assert not there.has_error()


def test_it_opens_no_port():
    """Looked at from within a client, while all else of the engine is there."""
    process, seen = psutil.Process(), []
    before = {one.laddr for one in process.net_connections("inet")}

    def act(message, context):
        seen.append({one.laddr for one in process.net_connections("inet")} - before)
        raise RuntimeError("enough")

    exchanged(act, workers=2)
    assert len(seen) == CLIENTS
    assert set().union(*seen) == set()
