"""A clock that stands still while nothing runs; a run that is really stopped: runs/stops/test_exits.py."""

from types import SimpleNamespace

import pytest

from fedge.process.endings import awake_clock as module
from fedge.process.endings.awake_clock import STOPPED_S, awake, keeping


@pytest.fixture
def wait(monkeypatch):
    """Function that lets so many seconds pass for the clock."""
    now = [1000.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def wait(seconds):
        now[0] += seconds

    return wait


def test_time_in_which_nobody_looked_does_not_count(wait):
    """A long gap at once is a stop, the same time in steps is not."""
    with keeping():
        began = awake()
        wait(STOPPED_S + 0.5)
        assert awake() == began
        for _ in range(4):
            wait(STOPPED_S / 2)
            awake()
        assert awake() - began == pytest.approx(2 * STOPPED_S)


def test_who_does_not_keep_it_loses_nothing(wait):
    began = awake()
    wait(STOPPED_S + 0.5)
    with keeping():
        assert awake() - began == pytest.approx(STOPPED_S + 0.5)
