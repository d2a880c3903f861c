"""Replies are matched to questions by the message's id, on the real in-process engine."""

import time

import pytest
from flwr.app import ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedge.engine.flower_engine import FlowerEngine
from fedge.engine.inprocess import InProcessGrid
from fedge.exchange.clients import Clients
from fedge.exchange.content import METRICS
from fedge.exchange.delivery import collect
from fedge.exchange.round_context import RoundContext
from fedge.exchange.train import train_messages
from fedge.states.records import to_record

CLIENTS = 3
CONTEXT = RoundContext(42, 3, 7, "/data", "/run.log", 0, 1.5)


def replying(change):
    """An app whose clients answer with their partition, after `change` (reply, partition)."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context) -> Message:
        partition = int(context.node_config["partition-id"])
        values = {"mine": partition, "version": message.content["config"]["leaf_round"]}
        reply = Message(RecordDict({METRICS: MetricRecord(values)}), reply_to=message)
        change(reply, partition)
        return reply

    return app


def questions():
    return train_messages(range(1, CLIENTS + 1), to_record({}), CONTEXT)


def exchanged(change):
    with InProcessGrid(replying(change), CLIENTS, {}, 2) as grid:
        clients = Clients(grid, {partition: partition + 1 for partition in range(CLIENTS)})
        return clients.exchange(questions(), 30.0)


@pytest.mark.parametrize(("restart_s", "replies"), [(0.05, 2), (20.0, 3)])
def test_a_worker_that_starts_again_slowly_is_waited_for(monkeypatch, restart_s, replies):
    """It refuses one message and then takes ten times as long to start as a client may work."""
    monkeypatch.setattr("fedge.exchange.clients.RESTART_S", restart_s)
    monkeypatch.setattr("fedge.exchange.delivery.RESTART_S", restart_s)
    refused = []

    def start_again(message, context):
        reply = Message(RecordDict({METRICS: MetricRecord({"version": 7})}), reply_to=message)
        if context.node_config["partition-id"] != 1:
            return reply
        if not refused:
            refused.append(message)
            words = "<class 'ray.exceptions.ActorUnavailableError'>:<'The actor is restarting.'>"
            return Message(Error(0, words), reply_to=message)
        time.sleep(0.5)
        return reply

    with InProcessGrid(start_again, CLIENTS, {}, 2) as grid:
        clients = Clients(FlowerEngine(grid), {partition: partition + 1 for partition in range(CLIENTS)})
        exchange = clients.exchange(questions(), 0.05)
    assert len(exchange.replies) == replies
    assert len(exchange.failures) == CLIENTS - replies


@pytest.mark.parametrize("source", [1, 2, 0, -5, 10**9])
def test_a_forged_source_replaces_nobody(source):
    """Client 2 says that it is another node, or one that nobody knows: its reply is still its own."""

    def forge(reply, partition):
        if partition == 2:
            reply.metadata.__dict__["_src_node_id"] = source

    replies = exchanged(forge).replies
    assert {client: reply.content[METRICS]["mine"] for client, reply in replies.items()} == {0: 0, 1: 1, 2: 2}
    assert [reply.metadata.src_node_id for reply in replies.values()] == [1, 2, 3]


@pytest.mark.parametrize("version", [6, 0, 7.0, 10**400], ids=str)
def test_a_reply_from_another_version_of_the_model_does_not_count(version):
    def change(reply, partition):
        if partition == 1:
            reply.content[METRICS].__dict__["_data"]["version"] = version

    exchange = exchanged(change)
    assert list(exchange.replies) == [0, 2]
    assert {c: f.kind for c, f in exchange.failures.items()} == {1: "rejected: other version"}


def test_a_reply_to_no_question_is_dropped():
    class Twice(InProcessGrid):
        def pull_messages(self, message_ids):
            for reply in super().pull_messages(message_ids):
                yield reply
                yield reply  # and once more
                stranger = Message(RecordDict({"c": ConfigRecord()}), 1, "train")
                stranger.metadata.__dict__["_reply_to_message_id"] = "none of yours"
                yield stranger

    with Twice(replying(lambda *_: None), CLIENTS, {}, 1) as grid:
        answers = collect(grid, [questions()], 30.0)
    assert sorted(question.metadata.dst_node_id for question, _ in answers) == [1, 2, 3]
    assert all(reply.content[METRICS]["mine"] + 1 == q.metadata.dst_node_id for q, reply in answers)
