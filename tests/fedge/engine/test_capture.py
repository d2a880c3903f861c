"""The end of captures: workers are asked until each has answered; what is no answer costs nothing.

Captures of real runs are in tests/fedge/profile/test_command.py.
"""

from types import SimpleNamespace

import pytest
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, RecordDict

from fedge.engine import capture
from fedge.exchange.hello import end_capture_reply

ODD = [{}, {"pid": "x"}, {"pid": "\x1b[2J"}, {"pid": [1]}, {"pid": float("nan")}, {"pid": float("inf")}]


class Workers:
    """A Grid of two workers, of which the first answers oddly, then not at all."""

    def __init__(self, odd):
        self.odd, self.asked = odd, 0

    def get_node_ids(self):
        return [1, 2]

    def send_and_receive(self, messages, timeout):
        self.asked += 1
        first, second = messages
        return [*self.odd(first), end_capture_reply(7, second)]


def none_of(record):
    return lambda question: [Message(RecordDict({"config": record}), reply_to=question)]


@pytest.mark.parametrize(
    "odd",
    [
        *(none_of(ConfigRecord(said)) for said in ODD), none_of(ArrayRecord()),
        lambda question: [Message(RecordDict(), reply_to=question)],
        lambda question: [Message(Error(2, "\x1b[2J"), reply_to=question)],
    ],
)  # fmt: skip
def test_what_is_no_answer_ends_nothing_but_its_own_wait(odd, monkeypatch, caplog):
    ended = []
    roles = [SimpleNamespace(role="worker", pid=7), SimpleNamespace(role="server", pid=8)]
    monkeypatch.setattr(capture.capture, "is_captured", lambda: True)
    monkeypatch.setattr(capture.capture, "end", lambda: ended.append(1))
    monkeypatch.setattr(capture.memory, "measure", lambda: roles)
    workers = Workers(odd)
    capture.end_captures(workers)
    assert (workers.asked, ended) == (1, [1])
    assert all(line.isprintable() for line in caplog.messages)
