"""The books: every job once, times that add up, the Gini coefficient by hand."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.devices.servers.vectors import version_of
from fedge.devices.work.jobs import Job
from fedge.devices.work.ledger import Ledger, gini
from fedge.exchange.failure import Failure

START = version_of({"w": np.zeros(1, np.float32)})


def kept():
    """Books of two devices: device 1 had 3 s of work that counted, and 1 s that was lost."""
    ledger = Ledger(2)
    ledger.end_of(Job(1, 1, 0, 1, 1, 0, 0, 3_000_000, 0, 3_000_000, "trains", START), "updates")
    ledger.end_of(
        Job(2, 1, 0, 2, 1, 0, 3_000_000, 4_000_000, 3_000_000, 4_000_000, "dropped", START), "dropped"
    )
    ledger.staleness.update([0, 0, 6])
    ledger.losses[1] = 0.5
    ledger.failures[0] = Failure("exception", "why")
    ledger.moved["up"] += 7
    return ledger


def test_a_row_per_device():
    idle, busy = kept().devices(5_000_000, {0: 0, 1: 0}, {0: 4, 1: 6})
    assert (idle.jobs, idle.idle_s, idle.contribution) == (0, 5.0, 0.0)
    assert (busy.jobs, busy.updates, busy.dropped, busy.late) == (2, 1, 1, 0)
    assert (busy.busy_s, busy.wasted_s, busy.idle_s) == (4.0, 1.0, 1.0)
    assert (busy.train_samples, busy.contribution) == (6, 1.0)
    assert kept().mean_staleness == 2.0
    assert Ledger(1).mean_staleness is None


def test_books_go_on_from_their_facts():
    ledger, again = kept(), Ledger(2)
    again.restore(json.loads(json.dumps(ledger.facts())), ledger.counts)
    assert again.facts() == ledger.facts()
    assert all(np.array_equal(again.counts[name], ledger.counts[name]) for name in ledger.counts)
    again.begin_period()
    assert (again.losses, again.failures) == ({}, {})


def test_gini_by_hand():
    """1, 2, 5 in order: (−2·1 + 0·2 + 2·5) / (3 · 8) = 1/3."""
    assert gini(np.array([5, 1, 2])) == pytest.approx(1 / 3)
    assert gini(np.zeros(3)) == 0.0


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20), st.integers(1, 9))
def test_gini_is_a_matter_of_shares(values, factor):
    numbers = np.array(values)
    assert 0 <= gini(numbers) <= 1 - 1 / len(numbers) + 1e-12
    assert gini(numbers * factor) == pytest.approx(gini(numbers))
    assert gini(numbers[::-1]) == pytest.approx(gini(numbers))
