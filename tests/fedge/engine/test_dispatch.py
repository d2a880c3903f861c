"""Flower's engine takes messages when they are pushed: its pause ends, and so does its thread."""

import subprocess
import sys
import threading
from queue import Queue

from fedge.engine import dispatch

FOR_EVER_S = 60.0


def test_a_push_ends_the_pause_once():
    stop = threading.Event()
    pause = dispatch._WakeableEvent(stop)
    dispatch.signal_push()
    assert pause.wait(FOR_EVER_S) is False
    assert pause.wait(0.001) is False  # nothing was pushed since
    stop.set()
    dispatch.signal_push()
    assert pause.is_set()
    assert pause.wait(FOR_EVER_S) is True


class Pushed:
    """Messages that Flower's thread asks for, node by node, one at a time."""

    def __init__(self, messages):
        self.messages = messages

    def get_message_ins(self, node_id, limit):
        return [self.messages[node_id].pop(0)] if self.messages[node_id] else []


def test_flowers_thread_takes_what_is_pushed_and_ends_when_it_is_told_to():
    """The real function of the Flower that is installed."""
    from flwr.server.superlink.fleet.vce import vce_api

    assert dispatch.wake_on_push()
    assert dispatch.wake_on_push()  # once is enough
    messages, queue, stop = {1: [], 2: []}, Queue(), threading.Event()
    thread = threading.Thread(
        target=vce_api.add_messages_to_queue, args=(Pushed(messages), queue, {1: 0, 2: 1}, stop), daemon=True
    )
    thread.start()
    for node, message in ((2, "b"), (1, "a")):
        messages[node].append(message)
        dispatch.signal_push()
        assert queue.get(timeout=FOR_EVER_S) == message
    stop.set()
    thread.join(FOR_EVER_S)
    assert not thread.is_alive()


def test_without_flowers_engine_nothing_is_loaded():
    program = (
        "import sys, fedge.engine.dispatch as d\n"
        "assert not d.wake_on_push()\n"
        "assert d._ENGINE not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
