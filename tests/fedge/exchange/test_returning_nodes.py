"""Exchanges during which nodes go, come back, or lose what they were asked."""

import threading
import time

import pytest
from coming_nodes import deployment
from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict

from fedge.exchange import returning_nodes
from fedge.exchange.finding import find_clients
from fedge.exchange.hello import HELLO, Hello
from fedge.exchange.round_context import RoundContext

CONTEXT = RoundContext(0, 1, 1, "", "", "elsewhere", 60.0)


@pytest.fixture
def run(monkeypatch):
    """A function that lets clients be asked while a script goes on in another thread."""
    monkeypatch.setattr(returning_nodes, "_LOOK_S", 0.05)

    def asked(steps, *partitions, retries=1, wait_s=0.0):
        script, engine = deployment(*partitions)
        done = threading.Event()

        def hellos():
            while not done.wait(0.02):
                script.say_hello(*list(script.nodes))

        greeting = threading.Thread(target=hellos)
        greeting.start()
        clients = find_clients(engine, 10.0)
        clients.wait_for_gone(wait_s)
        acting = threading.Thread(target=lambda: steps(script))
        acting.start()
        messages = [
            Message(RecordDict({"config": CONTEXT.to_record()}), clients.node(p), "train") for p in partitions
        ]
        try:
            return clients, clients.exchange(messages, 20.0, retries=retries)
        finally:
            acting.join()
            done.set()
            greeting.join()

    return asked


def wait_for(script, node, kind="train"):
    """The question of a kind that a node has, once it has it."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if asked := script.asked(node, kind):
            return asked[0]
        time.sleep(0.01)
    raise AssertionError(f"node {node} was not asked")


def train(script, node):
    question = wait_for(script, node)
    told = RecordDict({"metrics": MetricRecord({"version": 1}), "of": ConfigRecord({"node": node})})
    script.answer(question, Message(told, reply_to=question))


def test_a_node_that_goes_loses_only_itself(run):
    """The SuperLink answers for it, in its own name."""

    def steps(script):
        wait_for(script, 12)
        script.go(12)
        train(script, 11)
        train(script, 13)

    clients, exchange = run(steps, 0, 1, 2)
    assert list(exchange.replies) == [0, 2]
    assert {client: failure.kind for client, failure in exchange.failures.items()} == {1: "node gone"}
    assert clients.node(1) == 12


def test_who_comes_back_within_the_exchange_is_asked_once_more(run):
    """Under another id, while others are still at work: nobody is lost."""

    def steps(script):
        wait_for(script, 12)
        script.go(12)
        script.nodes[21] = Hello(1, 3)
        train(script, 21)
        train(script, 11)
        train(script, 13)

    clients, exchange = run(steps, 0, 1, 2, retries=0)
    assert list(exchange.replies) == [0, 1, 2]
    assert exchange.replies[1].content["of"]["node"] == 21
    assert not exchange.failures
    assert (clients.node(1), clients.partition(12), clients.partition(21)) == (21, 1, 1)


@pytest.mark.parametrize("back_as", [12, 21], ids=["its id", "another id"])
def test_who_has_gone_is_waited_for(run, back_as):
    """Also when nobody else is at work any more; a key gives a node the id that it had."""

    def steps(script):
        wait_for(script, 12)
        script.go(12)
        train(script, 11)
        time.sleep(0.2)
        script.nodes[back_as] = Hello(1, 2)
        train(script, back_as)

    _, exchange = run(steps, 0, 1, retries=0, wait_s=10.0)
    assert list(exchange.replies) == [0, 1]
    assert exchange.replies[1].content["of"]["node"] == back_as
    assert not exchange.failures


def test_who_stays_away_is_waited_for_once(run):
    """An exchange that finds a node gone waits for it; those after it do not."""

    def steps(script):
        wait_for(script, 12)
        script.go(12)
        train(script, 11)

    began = time.monotonic()
    clients, exchange = run(steps, 0, 1, wait_s=5.0)
    took_s = time.monotonic() - began
    assert took_s >= 5.0
    assert list(exchange.failures) == [1]
    script = clients._engine._grid
    acting = threading.Thread(target=lambda: train(script, 11))
    clients.wait_for_gone(5.0)
    acting.start()
    began = time.monotonic()
    messages = [
        Message(RecordDict({"config": CONTEXT.to_record()}), clients.node(p), "train") for p in (0, 1)
    ]
    assert list(clients.exchange(messages, 60.0).failures) == [1]
    assert time.monotonic() - began < 4
    acting.join()


def test_a_node_that_does_not_exist_any_more_is_gone_at_once():
    """Flower takes no message for it: the id that it returns is None."""
    script, engine = deployment(0, 1)
    greeting = threading.Timer(0.1, lambda: script.say_hello(11, 12))
    greeting.start()
    clients = find_clients(engine, 10.0)
    del script.nodes[11]
    acting = threading.Thread(target=lambda: train(script, 12))
    acting.start()
    messages = [
        Message(RecordDict({"config": CONTEXT.to_record()}), clients.node(p), "train") for p in (0, 1)
    ]
    exchange = clients.exchange(messages, 20.0)
    acting.join()
    assert list(exchange.replies) == [1]
    assert exchange.failures[0].kind == "node gone"


@pytest.mark.parametrize("retries", [0, 1])
def test_a_question_that_a_node_has_lost_is_asked_again(run, monkeypatch, retries):
    """It answers who it is, which it was asked later, and not what it was asked before."""
    monkeypatch.setattr(returning_nodes, "_FIRST_PATIENCE_S", 0.2)

    def steps(script):
        lost = wait_for(script, 12)
        del script.pending[lost.metadata.message_id]
        train(script, 11)
        if retries:
            train(script, 12)

    _, exchange = run(steps, 0, 1, retries=retries)
    assert list(exchange.replies) == ([0, 1] if retries else [0])
    assert [failure.kind for failure in exchange.failures.values()] == ([] if retries else ["node failed"])


def test_a_node_that_is_slow_is_not_taken_for_one_that_has_lost_something(run, monkeypatch):
    """It works on one message after another: asked who it is, it answers behind the first question."""
    monkeypatch.setattr(returning_nodes, "_FIRST_PATIENCE_S", 0.1)

    def steps(script):
        greeted = script.say_hello
        script.say_hello = lambda *nodes: greeted(*(n for n in nodes if n != 12))
        wait_for(script, 12, HELLO)
        train(script, 11)
        train(script, 12)

    _, exchange = run(steps, 0, 1, retries=0)
    assert list(exchange.replies) == [0, 1]
    assert not exchange.failures
