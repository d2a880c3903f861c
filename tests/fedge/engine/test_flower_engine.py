"""What Flower's engine says of its clients, and what is found out about it."""

import sys
import threading
from types import SimpleNamespace

import pytest
from flwr.app import Error, Message, RecordDict

from fedge.engine.flower_engine import FlowerEngine
from fedge.exchange.engine import RunError


def failed(reason, code=0):
    """Return an error reply as Flower's simulation engine makes it."""
    question = Message(RecordDict(), 1, "train")
    question.metadata.__dict__["_message_id"] = "1"
    return Message(Error(code, reason), reply_to=question)


@pytest.mark.parametrize(
    ("reason", "kind", "words"),
    [
        ("<class 'ray.exceptions.ActorDiedError'>:<'The actor died…'>", "worker died", "its process"),
        ("<class 'ray.exceptions.OutOfMemoryError'>:<'killed'>", "worker died", "its process"),
        ("<class 'a.b'>:<'trace\nRuntimeError: sensor unplugged'>", "exception", "RuntimeError: sensor"),
        ("x\nfedge.client.guarded_app.ClientError: it returned 7'>", "exception", "it returned 7"),
        ("RuntimeError: <class 'ray.exceptions.ActorDiedError'>:<''>", "exception", "RuntimeError"),
    ],
)
def test_a_failure_is_what_flower_says_of_it(reason, kind, words):
    failure = FlowerEngine(None).failure_of(failed(reason))
    assert failure.kind == kind
    assert failure.detail.startswith(words)


def test_an_engine_that_stopped_ends_the_run(monkeypatch):
    up = SimpleNamespace(is_initialized=lambda: True)
    down = SimpleNamespace(is_initialized=lambda: False)
    stopped = threading.Event()
    engine = FlowerEngine(None, stopped)
    monkeypatch.setitem(sys.modules, "ray", down)
    engine.refuse_stopped()  # not up yet
    monkeypatch.setitem(sys.modules, "ray", up)
    engine.refuse_stopped()
    monkeypatch.setitem(sys.modules, "ray", down)
    with pytest.raises(RunError, match="stopped while clients were at work"):
        engine.refuse_stopped()
    stopped.set()
    with pytest.raises(RunError, match="did not start"):
        FlowerEngine(None, stopped).refuse_stopped()
