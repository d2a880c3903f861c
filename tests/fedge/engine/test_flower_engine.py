"""Reports of Flower's engine on its clients, and facts found out about it."""

import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from coming_nodes import Script, deployment
from flwr.app import Error, Message, RecordDict
from grpc import RpcError, StatusCode

from fedge.engine import flower_engine
from fedge.engine.flower_engine import FlowerEngine
from fedge.engine.worker_pool import OverTimeError
from fedge.exchange.engine import RunError
from fedge.exchange.hello import Hello, hello_message
from fedge.exchange.round_context import RoundContext
from fedge.exchange.train import train_messages
from fedge.link.bound_nodes import bind_nodes, export_bindings
from fedge.states.records import arrays_in, to_record


def failed(reason, code=0):
    """An error reply as Flower's simulation engine makes it."""
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
        (
            "<class 'flwr.clientapp.client_app.ClientAppException'>:<'ray::f()\n"
            "fedge.client.guarded_app.ClientError: KeyError: 'a' (my.py, line 3)\n\n"
            "Exception ClientAppException occurred. Message: KeyError: 'a' (my.py, line 3)'>",
            "exception",
            "KeyError: 'a' (my.py, line 3)",
        ),
        (
            "<class 'fedge.client.guarded_app.ClientError'>:<'KeyError: 'a' (my.py, line 3)'>",
            "exception",
            "KeyError: 'a' (my.py, line 3)",
        ),
    ],
)
def test_a_failure_is_what_flower_says_of_it(reason, kind, words):
    failure = FlowerEngine(None).failure_of(failed(reason))
    assert failure.kind == kind
    assert failure.detail.startswith(words)


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (5, "node gone", "its SuperNode was ended"),
        (8, "node failed", "its ClientApp was killed"),
        (3, "node failed", "the SuperLink has lost the message"),
        (2, "exception", "RuntimeError: sensor unplugged"),
    ],
)
def test_a_superlink_speaks_for_nodes_that_are_gone(code, kind, words):
    """Its codes are Flower's; in a simulation they mean other things, and what Ray says counts."""
    reply = failed("RuntimeError: sensor unplugged", code)
    failure = FlowerEngine(None, nodes_come_back=True).failure_of(reply)
    assert failure.kind == kind
    assert failure.detail.startswith(words)
    assert FlowerEngine(None).failure_of(reply).kind == "exception"


@pytest.mark.parametrize(("may_take_s", "is_over"), [(0.01, True), (600.0, False)])
def test_a_client_app_that_is_gone_may_have_ended_itself_over_its_time(may_take_s, is_over):
    """A SuperNode says the same of one that was killed, and so late that both can be."""
    grid = SimpleNamespace(push_messages=lambda messages: ["7" for _ in messages])
    engine = FlowerEngine(grid, nodes_come_back=True)
    context = RoundContext(42, 1, 1, "", "", "", may_take_s)
    (question,) = train_messages([1], to_record({}), context)
    assert engine.push_messages([question]) == ["7"]
    time.sleep(0.02)
    question.metadata.__dict__["_message_id"] = "7"
    failure = engine.failure_of(Message(Error(8, "crashed"), reply_to=question))
    assert failure.kind == "node failed"
    assert failure.detail.startswith("its ClientApp was killed")
    assert ("no reply within 0.01 s, which is guard.client-timeout" in failure.detail) == is_over


def test_codes_are_flowers():
    from flwr.common.constant import ErrorCode

    assert (ErrorCode.NODE_UNAVAILABLE, ErrorCode.CLIENT_APP_CRASHED) == (5, 8)
    assert (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE) == (3, 4)


def test_a_run_that_is_stopped_from_outside_ends():
    try:
        from flwr.supercore.run import RunNotRunningException
    except ImportError:  # older Flowers
        from flwr.common.typing import RunNotRunningException

    def stopped(*_):
        raise RunNotRunningException

    engine = FlowerEngine(SimpleNamespace(get_node_ids=stopped, pull_messages=stopped), nodes_come_back=True)
    for call in (engine.get_node_ids, lambda: engine.pull_messages({"1"})):
        with pytest.raises(RunError, match=r"stopped from outside, e\.g\. by flwr stop"):
            call()


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


def test_an_exception_in_a_deployment_is_its_class_and_words():
    """A SuperNode hands on both in brackets."""
    reason = "<class 'fedge.config.registers.option.ConfigError'>:<'windows must be there, but are not'>"
    failure = FlowerEngine(None, nodes_come_back=True).failure_of(failed(reason))
    assert failure.detail == "ConfigError: windows must be there, but are not"


@pytest.mark.parametrize("said", ["1.2.3", "e", "...", "1e999", "0"])
def test_a_limit_that_is_no_number_is_an_exception_as_any_other(said):
    """A client's error in the words of Fedge's own limit ends nothing."""
    failure = FlowerEngine(None).failure_of(failed(f"{OverTimeError}:<'{said}'>"))
    assert failure.kind == "exception"


class Unreadable(Script):
    """A grid of whose replies some are no messages, and which loses then all that it had pulled."""

    def pull_messages(self, message_ids):
        found = super().pull_messages(message_ids)
        for reply in found:
            if reply.metadata.src_node_id in self.spoilt:
                raise self.spoilt[reply.metadata.src_node_id]
        return found


class Link(RpcError):
    """The SuperLink cannot be reached."""

    def __init__(self, code=StatusCode.UNAVAILABLE):
        self.code = lambda: code


def asked_and_answered(script, engine):
    """Ask two nodes who they are and let them answer; returns their questions' ids."""
    ids = engine.push_messages([hello_message(node) for node in script.nodes])
    script.say_hello(*script.nodes)
    return ids


@pytest.mark.parametrize("error", [ValueError("not a message"), KeyError("x"), RecursionError()])
def test_a_reply_that_cannot_be_read_is_a_failure_and_takes_no_other_with_it(error):
    script = Unreadable()
    script.nodes, script.spoilt = {11: Hello(0, 2), 12: Hello(1, 2)}, {11: error}
    engine = FlowerEngine(script, nodes_come_back=True)
    first, second = asked_and_answered(script, engine)
    found = {reply.metadata.reply_to_message_id: reply for reply in engine.pull_messages([first, second])}
    assert found.keys() == {first, second}
    assert str(engine.failure_of(found[first])) == "node failed: its reply cannot be read"
    assert not found[second].has_error()


def test_a_link_that_is_down_is_no_reply_of_a_node():
    script = Unreadable()
    script.nodes, script.spoilt = {11: Hello(0, 1)}, {11: Link()}
    engine = FlowerEngine(script, nodes_come_back=True)
    ids = asked_and_answered(script, engine)
    with pytest.raises(RunError, match="the SuperLink no longer answers"):
        engine.pull_messages(ids)


@pytest.mark.parametrize("call", ["get_node_ids", "push_messages", "pull_messages"])
@pytest.mark.parametrize("code", [StatusCode.UNAVAILABLE, StatusCode.CANCELLED])
def test_a_superlink_that_is_gone_is_one_line_of_whatever_is_asked(call, code):
    """In the words of gRPC the reason of a run was its whole state."""

    class Gone(Script):
        def raises(self, *_):
            raise Link(code)

        get_node_ids = push_messages = pull_messages = raises

    message = hello_message(11)
    asked = {"get_node_ids": (), "push_messages": ([message],), "pull_messages": (["id"],)}[call]
    with pytest.raises(RunError, match=f"SuperLink no longer answers .{code.name}.; start fedge superlink"):
        list(getattr(FlowerEngine(Gone(), nodes_come_back=True), call)(*asked))


def test_a_reply_is_to_the_question_by_which_it_was_found(monkeypatch):
    """Its content has words of its own."""
    script, engine = deployment(0, 1)
    first, second = asked_and_answered(script, engine)
    for reply in script.replies.values():
        reply.metadata.__dict__["_reply_to_message_id"] = second
    found = engine.pull_messages([first, second])
    assert [reply.metadata.reply_to_message_id for reply in found] == sorted([first, second])


def test_whose_key_is_of_which_partition_is_known_of_a_deployment(tmp_path, monkeypatch):
    environment = {}
    export_bindings(environment, tmp_path)
    bind_nodes(tmp_path, {11: 1})
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert FlowerEngine(None, nodes_come_back=True).partition_of_key(11) == 1
    assert FlowerEngine(None).partition_of_key(11) is None


class Serialising:
    """A grid that keeps an array's bytes with it, as Flower does, and notes what lay there at each call."""

    def __init__(self):
        self.calls, self.arrays = [], []

    def push_messages(self, messages):
        for message in messages:
            for array in arrays_in(message.content):
                array.slice_array()
                if all(array is not other for other in self.arrays):
                    self.arrays.append(array)
        self.calls.append((len(messages), sum("_chunks" in array.__dict__ for array in self.arrays)))
        return [f"{len(self.calls)}-{place}" for place, _ in enumerate(messages)]


@pytest.mark.parametrize(("large", "calls"), [(True, [(1, 2), (1, 2), (1, 2)]), (False, [(3, 4)])])
def test_large_messages_are_sent_one_by_one_and_their_bytes_let_go(monkeypatch, large, calls):
    """Three messages with one model and a control of each one's own; the model's bytes are made once."""
    monkeypatch.setattr(flower_engine, "_LARGE_BYTES", 0 if large else 1e6)
    grid, model = Serialising(), to_record({"w": np.zeros(100)})
    common = {"arrays": model, "config": RoundContext(0, 1, 1, "", "", "elsewhere", 60.0).to_record()}
    content = [{**common, "control": to_record({"w": np.full(100, float(n))})} for n in range(3)]
    messages = [Message(RecordDict(each), node, "train") for node, each in enumerate(content, start=1)]
    ids = FlowerEngine(grid, nodes_come_back=True).push_messages(messages)
    assert len(set(ids)) == 3
    assert grid.calls == calls
    assert any("_chunks" in array.__dict__ for array in grid.arrays) != large
