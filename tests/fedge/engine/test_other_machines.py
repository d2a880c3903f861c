"""Measurements by workers elsewhere, with a made-up Ray; real ones in runs/engines/test_ray_cluster.py."""

import os
import sys
from types import SimpleNamespace

import pytest

from fedge.engine import other_machines
from fedge.engine.other_machines import query_remote_workers
from fedge.process.identity import PID_BITS
from fedge.process.resources.memory import ProcessMemory


class RayError(Exception):
    """The worker has died."""


def answer(future):
    if isinstance(future, RayError):
        raise future
    return future


class Worker:
    """Carries out what it is asked; one elsewhere says so, and has a clock that is ahead."""

    def __init__(self, elsewhere=None, ahead=0.0, dead=False):
        self.elsewhere, self.ahead, self.dead = elsewhere, ahead, dead
        self.__ray_call__ = SimpleNamespace(remote=self.call)

    def call(self, function):
        if self.dead:
            return RayError()
        if function is other_machines._read_clock:
            return function(self) + self.ahead
        return self.elsewhere or function(self)


@pytest.fixture
def look(monkeypatch):
    def look(*workers):
        ray = SimpleNamespace(
            get=answer,
            wait=lambda futures, num_returns, timeout: (futures, []),
            exceptions=SimpleNamespace(RayError=RayError),
            util=SimpleNamespace(get_node_ip_address=lambda: "10.0.0.1"),
        )
        monkeypatch.setitem(sys.modules, "ray", ray)
        monkeypatch.setattr(other_machines, "free_workers", lambda: workers)
        return query_remote_workers()

    return look


def test_workers_of_another_machine_are_named_and_its_clock_is_asked_once(look):
    """Two workers and one raylet beside both: three processes; who has died is left out."""
    raylet, there = (3 << PID_BITS | 5, ProcessMemory("ray", 5, 1.0)), 3 << PID_BITS

    def worker(pid):
        said = "10.0.0.2", [(there | pid, ProcessMemory("worker", pid, 2.0)), raylet], ("avx2", "plain")
        return Worker(said, ahead=5000.0)

    found = look(worker(7), Worker(dead=True), worker(8))
    assert [(one.role, one.pid, one.machine, one.number) for one in found.processes] == [
        ("worker", 7, "10.0.0.2", there | 7),
        ("ray", 5, "10.0.0.2", there | 5),
        ("worker", 8, "10.0.0.2", there | 8),
    ]
    assert found.kernels == {("avx2", "plain"): 2}
    ((machine, clock),) = found.clocks.items()
    assert (machine, clock.name) == (3, "10.0.0.2")
    assert clock.low <= 5000.0 <= clock.high < clock.low + 1.0


def test_a_worker_of_this_machine_has_its_clock_and_process_id(look):
    found = look(Worker())
    assert found.clocks == {}
    (one,) = found.processes
    assert (one.role, one.pid, one.machine, one.number) == ("worker", os.getpid(), "", 0)


def test_without_workers_nobody_is_asked(look):
    assert not look().processes
