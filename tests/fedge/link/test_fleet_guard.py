"""Replies that get in, and those that do not: another's, another run's, a second one, one to nothing."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from types import SimpleNamespace

import grpc
import pytest
from flwr.common import ConfigRecord
from flwr.common.typing import RunStatus
from flwr.proto.fleet_pb2 import PullMessagesRequest, PullMessagesResponse, PushMessagesRequest
from flwr.proto.message_pb2 import Message, Metadata, ObjectTree, PullObjectRequest
from flwr.proto.node_pb2 import Node
from hypothesis import given
from hypothesis import strategies as st

from fedge.link.fleet_guard import PULL, PULL_OBJECT, PUSH, FleetGuard

RUN, NODE = 5, 11


def message(**said):
    return Message(metadata=Metadata(**said))


def push(node=NODE, tree=None, more=(), **changes):
    """A reply to question "q" as its node would send it, but for some changes."""
    said = {"run_id": RUN, "message_id": "r", "src_node_id": NODE, "reply_to_message_id": "q", **changes}
    tree = said["message_id"] if tree is None else tree
    return PushMessagesRequest(
        node=Node(node_id=node), messages_list=[message(**said), *more],
        message_object_trees=[ObjectTree(object_id=tree)],
    )  # fmt: skip


@pytest.fixture
def guard():
    """Two nodes have been handed a question each."""
    found = FleetGuard()
    for node, name in ((NODE, "q"), (12, "other's")):
        given = PullMessagesResponse(messages_list=[message(message_id=name, run_id=RUN)])
        found.wrap(PULL, lambda request, _, given=given: given)(
            PullMessagesRequest(node=Node(node_id=node)), None
        )
    return found


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (push(src_node_id=12), "in its own name"),
        (push(reply_to_message_id="other's"), "must answer its own questions"),
        (push(reply_to_message_id="nothing"), "must answer its own questions"),
        (push(reply_to_message_id=""), "must answer its own questions"),
        (push(node=12), "must answer its own questions"),
        (push(node=99), "must answer its own questions"),
        (push(run_id=6), "its question's run"),
        (push(tree="x"), "content must have the reply's id"),
        (push(more=[message(message_id="z")]), "must have exactly one reply"),
        (PushMessagesRequest(node=Node(node_id=NODE)), "must have exactly one reply"),
    ],
)
def test_what_is_no_answer_to_its_own_question_does_not_get_in(guard, request_, words):
    assert words in guard.claim(request_)
    assert guard.claim(push()) == ""


def test_a_question_is_answered_once_and_the_same_answer_may_come_again(guard):
    assert guard.claim(push()) == ""
    assert guard.claim(push()) == ""  # what was sent may have been lost
    assert guard.claim(push(message_id="r2")) == "a question has only one reply"


def test_of_many_at_once_one_gets_in(guard):
    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(lambda n: guard.claim(push(message_id=f"r{n}")), range(200)))
    assert said.count("") == 1


class Refused(Exception):
    """Exception of gRPC for a refused call."""


class Call:
    """A call's context."""

    def abort(self, code, words):
        raise Refused(code, words)


def test_what_could_not_be_kept_leaves_room_for_another(guard):
    def broken(request, context):
        raise Refused("the key is not the node's")

    with pytest.raises(Refused):
        guard.wrap(PUSH, broken)(push(), Call())
    kept = []
    guard.wrap(PUSH, lambda request, _: kept.append(request))(push(message_id="r2"), Call())
    with pytest.raises(Refused) as refused:
        guard.wrap(PUSH, lambda request, _: kept.append(request))(push(), Call())
    assert refused.value.args == (grpc.StatusCode.PERMISSION_DENIED, "a question has only one reply")
    assert len(kept) == 1


def test_other_methods_are_as_they_were(guard):
    assert guard.wrap("/flwr.proto.Fleet/GetRun", print) is print


@given(
    st.lists(st.tuples(st.sampled_from([11, 12, 13]), st.sampled_from("abcd"), st.booleans()), max_size=40)
)
def test_no_node_gets_in_with_what_it_was_not_handed(acts):
    """(node, question, whether it is handed or answered)."""
    guard, handed, answered = FleetGuard(), set(), set()
    for node, name, is_handed in acts:
        if is_handed:
            question = f"{name}{node}"  # Flower's ids of messages are unique
            guard.record_questions(
                node, PullMessagesResponse(messages_list=[message(message_id=question, run_id=RUN)])
            )
            handed.add((node, question))
            continue
        for other in (11, 12, 13):
            question, reply = f"{name}{other}", f"of {node}"
            found = guard.claim(push(node, src_node_id=node, reply_to_message_id=question, message_id=reply))
            assert (found == "") == ((node, question) in handed)
            answered.add(question)


def test_what_is_remembered_is_bounded(guard, monkeypatch):
    monkeypatch.setattr("fedge.link.fleet_guard._MOST_QUESTIONS", 3)
    for number in range(9):
        name = f"q{number}"
        guard.record_questions(
            NODE, PullMessagesResponse(messages_list=[message(message_id=name, run_id=RUN)])
        )
    kept = [n for n in range(9) if guard.claim(push(reply_to_message_id=f"q{n}")) == ""]
    assert kept == [6, 7, 8]


# --- objects that are announced and not there yet -----------------------------------------------------------


@pytest.fixture
def announced():
    """Flower's own answer to a SuperNode's request for an object, the request, and what sends the content.

    The ServerApp has announced the object; its content is still under way.
    """
    runs = pytest.importorskip("flwr.server.superlink.linkstate.in_memory_linkstate")
    handler = pytest.importorskip("flwr.server.superlink.fleet.message_handler.message_handler")
    stores = pytest.importorskip("flwr.supercore.object_store.in_memory_object_store")
    store, content = stores.InMemoryObjectStore(verify=False), b"content"
    state = runs.InMemoryLinkState(SimpleNamespace(exists=lambda _: True), store)
    run = state.create_run(None, None, "hash", {}, "", ConfigRecord(), None)
    for status in ("starting", "running"):
        state.update_run_status(run, RunStatus(status, "", ""))
    name = sha256(content).hexdigest()
    store.preregister(run, ObjectTree(object_id=name))
    request = PullObjectRequest(node=Node(node_id=NODE), run_id=run, object_id=name)
    return partial(handler.pull_object, state=state, store=store), request, lambda: store.put(name, content)


def test_an_object_that_is_still_under_way_is_to_be_asked_for_again(announced):
    pull, request, send = announced
    guarded = FleetGuard().wrap(PULL_OBJECT, lambda given, _: pull(given))
    answer = guarded(request, Call())
    assert (answer.object_found, answer.object_available, answer.object_content) == (True, False, b"")
    send()
    answer = guarded(request, Call())
    assert (answer.object_found, answer.object_available, answer.object_content) == (True, True, b"content")


def test_flowers_own_answer_is_an_error_and_the_reason_for_the_guard(announced):
    """Where this fails, Flower has fixed it, and the guard may go once no older version is supported."""
    pull, request, _ = announced
    with pytest.raises(ValueError, match="cannot be zero"):
        pull(request)


def test_other_errors_of_an_object_are_passed_on():
    def broken(request, context):
        raise ValueError("Run 5 not found")

    with pytest.raises(ValueError, match="Run 5 not found"):
        FleetGuard().wrap(PULL_OBJECT, broken)(None, Call())
