"""A clock that stands still while nothing runs; a run that is really stopped: runs/stops/test_exits.py."""

import time

from fedge.process.endings import awake as module
from fedge.process.endings.awake import awake, keeping


def test_time_in_which_nobody_looked_does_not_count(monkeypatch):
    """With 0.1 s instead of 2.5 s: 0.3 s at once are a stop, 0.3 s in steps of 0.02 s are not."""
    monkeypatch.setattr(module, "STOPPED_S", 0.1)
    with keeping():
        began = awake()
        time.sleep(0.3)
        assert awake() - began < 0.01
        real = time.monotonic()
        while time.monotonic() - real < 0.3:
            awake()
        assert awake() - began >= 0.2


def test_who_does_not_keep_it_loses_nothing(monkeypatch):
    monkeypatch.setattr(module, "STOPPED_S", 0.1)
    began = awake()
    time.sleep(0.2)
    with keeping():
        assert awake() - began >= 0.2
