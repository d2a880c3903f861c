"""Where a client stands in the run, as a message tells it, and which random streams follow from it."""

from dataclasses import replace

import pytest

from fedge.exchange.round_context import LEAF, PERSONAL, TRIAL, RoundContext, asked_version, asking_server
from fedge.exchange.train import train_messages
from fedge.states.records import to_record

CONTEXT = RoundContext(42, 3, 7, "/data", "/run.log", 99, 1.5)


@pytest.mark.parametrize("line", [LEAF, PERSONAL])
def test_it_arrives_as_it_was_sent(line):
    sent = replace(CONTEXT, line=line)
    (message,) = train_messages([1], to_record({}), sent)
    message.content["config"]["more"] = 1.0  # as Flower's privacy wrappers do
    assert RoundContext.from_message(message) == sent
    assert (asked_version(message), asking_server(message)) == (sent.version, sent.server)


def test_only_fine_tuning_draws_from_streams_of_its_own():
    streams = {line: replace(CONTEXT, line=line).stream_of(5) for line in (LEAF, TRIAL, PERSONAL)}
    assert streams[LEAF] == streams[TRIAL] == (7, 5)
    assert streams[PERSONAL][:2] == (7, 5)
    assert len(streams[PERSONAL]) == 3


def test_the_kernel_that_a_run_has_settled_on_arrives_and_is_else_not_sent():
    sent = replace(CONTEXT, kernel="native avx2")
    (message,) = train_messages([1], to_record({}), sent)
    assert RoundContext.from_message(message) == sent
    assert "kernel" not in CONTEXT.to_record()


def test_on_how_many_windows_a_probe_trains_arrives_and_is_not_sent_elsewhere():
    sent = replace(CONTEXT, most_windows=40)
    (message,) = train_messages([1], to_record({}), sent)
    assert RoundContext.from_message(message) == sent
    assert "most_windows" not in CONTEXT.to_record()
