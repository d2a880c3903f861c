"""A reply of unknown time is sent with 0 s; one of a known time as before."""

import sys
from types import ModuleType

import pytest

from fedge.flower import has_one_port
from fedge.link import untimed_replies


class State:
    """A SuperNode's state with the time of one message, as Flower's has them."""

    def get_message_processing_duration(self, message_id):
        if message_id != "timed":
            raise ValueError(f"Start time or end time for message ID {message_id} is missing.")
        return 2.5


def test_a_reply_of_unknown_time_is_sent(monkeypatch):
    module = ModuleType(untimed_replies._STATE)
    module.InMemoryNodeState = type("InMemoryNodeState", (State,), {})
    monkeypatch.setitem(sys.modules, untimed_replies._STATE, module)
    untimed_replies.send_untimed()
    state = module.InMemoryNodeState()
    assert state.get_message_processing_duration("timed") == 2.5
    assert state.get_message_processing_duration("not yet") == 0.0


def test_a_flower_without_such_times_is_left_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, untimed_replies._STATE, ModuleType(untimed_replies._STATE))
    untimed_replies.send_untimed()


@pytest.mark.skipif(has_one_port(), reason="as Flower 1.25 has it")
def test_flower_drops_a_reply_that_it_finds_before_its_time_is_noted(monkeypatch):
    """A ClientApp at work whose reply is there already: the order in which Flower keeps both."""
    from flwr.supercore.object_store.in_memory_object_store import InMemoryObjectStore
    from flwr.supernode.nodestate.in_memory_nodestate import InMemoryNodeState

    before = InMemoryNodeState.get_message_processing_duration
    monkeypatch.setattr(InMemoryNodeState, "get_message_processing_duration", before)
    monkeypatch.setattr(InMemoryNodeState, "_cleanup_old_message_times", lambda _: None)  # no message is kept
    state = InMemoryNodeState(InMemoryObjectStore())
    state.record_message_processing_start("5")
    with pytest.raises(ValueError, match="missing"):
        state.get_message_processing_duration("5")
    untimed_replies.send_untimed()
    assert state.get_message_processing_duration("5") == 0.0
    state.record_message_processing_end("5")
    assert state.get_message_processing_duration("5") > 0
