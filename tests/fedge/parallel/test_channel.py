"""Messages arrive whole and in order, and the end of the other side is noticed."""

import socket
import threading

import pytest

from fedge.parallel.channel import ClosedError, receive, send_message


def test_messages_arrive_whole_and_in_order():
    ours, theirs = socket.socketpair()
    sent = [{"n": 0}, {"text": "ü" * 500_000}, {"list": [1.5, None, [True]]}]
    with ours, theirs:
        thread = threading.Thread(target=lambda: [send_message(ours, message) for message in sent])
        thread.start()
        assert [receive(theirs) for _ in sent] == sent
        thread.join()


def test_the_end_of_the_other_side_is_an_error():
    ours, theirs = socket.socketpair()
    ours.sendall(b"\x05\0\0\0")  # in the middle of a length
    ours.close()
    with theirs, pytest.raises(ClosedError):
        receive(theirs)
    with pytest.raises(ClosedError):
        send_message(ours, {})
