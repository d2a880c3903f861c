"""Books, summaries and evaluations as packets have them, and back."""

import numpy as np
from evaluations import classified

from fedge.edge.packets import orders
from fedge.exchange.failure import Failure
from fedge.link.frames import Packet, chunks_of, packet_of
from fedge.rounds.measurements.book import RoundBook
from fedge.tasks.configured import CLASSIFICATION
from fedge.timing.timeline import ExchangeTimes


def sent(facts, states=None):
    """Facts and states as they arrive."""
    found = packet_of(chunks_of(Packet("k", facts, states or {})))
    return found.facts, found.states


def test_a_leaf_s_book_is_taken_into_the_round_s():
    """Times count from the moment of packing, 100 there and 7 here; process 42 of leaf 1 is 20,000,042."""
    there = RoundBook(3, train_loss={4: 0.5}, train_seconds={4: 2.0}, kept_model={1: 1})
    there.failures[5] = Failure("no reply", "within 5 s")
    there.uplink_bytes, there.downlink_bytes, there.answered = 10, 20, 2
    times = ExchangeTimes()
    times.add(4, 90.0, 99.0, [42.0, 7.0, 91.0, *[0.5] * 5, 0.0, 0.0])
    there.exchanges.append(times)
    told, _ = sent(orders.packed_book(there, 100.0))

    here = RoundBook(3, train_loss={0: 0.1}, train_seconds={4: 1.0}, uplink_bytes=1, answered=3)
    orders.add_to_book(here, 1, told)
    assert (here.train_loss, here.train_seconds) == ({0: 0.1, 4: 0.5}, {4: 3.0})
    assert (here.uplink_bytes, here.downlink_bytes, here.kept_model) == (11, 20, {1: 1})
    assert (here.answered, here.asked_clients) == (5, 2)
    assert orders.failures_of(told) == {5: Failure("no reply", "within 5 s")}
    exchange = ExchangeTimes()
    orders.add_calls(exchange, 1, told, 7.0)
    assert exchange.rows[0, :6].tolist() == [4, -3, 6, 20_000_042, 7, -2]


def test_evaluations_arrive_as_they_were():
    found = {
        3: {
            ("own", "val"): classified(np.array([[1, 2], [3, 4]]), 1 / 3),
            ("offered", "val"): classified(np.array([[2, 1], [3, 4]]), float("inf"), (0, 1)),
        }
    }
    facts, _ = sent({"evaluated": orders.packed_evaluations(found)})
    back = orders.evaluations_of(facts["evaluated"], CLASSIFICATION, 2)
    assert back.keys() == found.keys()
    for key, evaluation in found[3].items():
        got = back[3][key]
        assert got.confusion.dtype == np.int64
        assert got.confusion.tolist() == evaluation.confusion.tolist()
        assert (got.loss, got.differences) == (evaluation.loss, evaluation.differences)


def test_summaries_arrive_as_they_were():
    rng = np.random.default_rng(0)
    seen = {2: [rng.normal(size=5), rng.normal(size=3)], 0: [rng.normal(size=5), rng.normal(size=3)]}
    _, states = sent({}, {**orders.packed_summaries(seen), "model": {"w": np.zeros(1)}})
    back = orders.summaries_of(states)
    assert back.keys() == seen.keys()
    for client, kinds in seen.items():
        for got, kind in zip(back[client], kinds, strict=True):
            np.testing.assert_array_equal(got, kind)
