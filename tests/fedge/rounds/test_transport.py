"""The book of a round and what clients are told; bytes and times are counted in whole runs."""

import logging

import numpy as np
import pytest

from fedge.exchange.clients import Clients
from fedge.exchange.failure import Failure
from fedge.exchange.round_context import LEAF, TRIAL, RoundContext
from fedge.rounds.transport import RoundServices, Transport
from fedge.states.state_files import SharedStates
from fedge.timing.laps import LapClock


def context_of(global_round, leaf_round):
    return RoundContext(0, global_round, leaf_round, "nowhere", "log", 0, 5.0)


@pytest.fixture
def transport(tmp_path):
    """Nobody is there: the tests below send no messages."""
    facilities = RoundServices(
        Clients(None, {}), context_of, LapClock(), SharedStates(tmp_path, enabled=False)
    )
    return Transport(facilities, {0: 10, 1: 20}, retries=0)


def test_every_round_has_a_book_of_its_own(transport):
    transport.begin_round(1)
    transport.note_failure(0, Failure("no reply", "within 5 s"))
    transport.begin_round(2)
    assert transport.book.global_round == 2
    assert transport.book.failures == {}


def test_the_first_failure_of_a_client_counts_and_each_kind_is_told_once(transport, caplog):
    first, second = Failure("no reply", "within 5 s"), Failure("exception", "gone")
    with caplog.at_level(logging.WARNING):
        for number in (1, 2):
            transport.begin_round(number)
            transport.note_failure(3, first)
            transport.note_failure(3, second)
            assert transport.book.failures == {3: first}
    assert [record.message for record in caplog.records] == [
        "global round 1: client 3 failed: no reply within 5 s", "global round 1: client 3 failed: gone",
    ]  # fmt: skip


def test_what_took_long_is_not_asked_together_with_more(transport):
    """Half a minute, or half of a client's time."""
    found = []
    for timeout_s, train_s in ((3600.0, 30.0), (3600.0, 31.0), (10.0, 5.0), (10.0, 6.0)):
        transport.timeout_s, transport.train_s = timeout_s, train_s
        found.append(transport.has_trained_soon)
    assert found == [True, False, True, False]


def test_how_long_clients_trained_is_known_from_one_exchange_to_the_next(transport, monkeypatch):
    clock = transport._clock
    monkeypatch.setattr(transport, "_exchange", lambda *words: None)
    began = clock.now()
    transport.train([])
    assert 0 <= transport.train_s <= clock.now() - began


def test_large_models_do_not_wait_at_the_server(transport):
    small, large = ({"w": np.zeros(size, np.float32)} for size in (8_000_000, 8_000_001))
    assert transport.can_hold_replies(small)
    assert not transport.can_hold_replies(large)


def test_clients_are_told_the_round_and_what_trains(transport):
    transport.begin_round(4)
    assert transport.context(9) == context_of(4, 9)
    assert transport.context(9).line == LEAF
    assert transport.context(9, TRIAL).line == TRIAL
    assert transport.context(9, global_round=5) == context_of(5, 9)
