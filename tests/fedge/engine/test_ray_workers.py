"""Ray's workers at their start; replaced ones and variables set for Ray: tests/runs/faults/test_faults."""

from types import SimpleNamespace

import psutil
import pytest

from fedge.engine import ray_workers
from fedge.engine.ray_workers import StartingWorkers
from fedge.exchange.engine import RunError

AGENT = ["python", "-u", "agent.py"]
STARTING = ["python", "setup_worker.py", "default_worker.py", "--node"]


def process(name, words=()):
    """A process below Ray's raylet, as psutil shows it."""
    return SimpleNamespace(name=lambda: name, cmdline=lambda: list(words))


def gone():
    """A process that ended while it was looked at."""

    def name():
        raise psutil.NoSuchProcess(1)

    return SimpleNamespace(name=name, cmdline=name)


@pytest.fixture
def look(monkeypatch):
    """A function that shows a watch the processes of a moment, given in seconds; it expects two workers."""
    watch, now = StartingWorkers(), []
    monkeypatch.setattr(ray_workers, "time", SimpleNamespace(monotonic=lambda: now[-1]))

    def look(second, *processes):
        now.append(second)
        watch.refuse_dead(SimpleNamespace(children=lambda: [process("python", AGENT), *processes]), 2)

    return look


def test_workers_that_die_while_they_start_are_named(look):
    look(0, process("python", STARTING), process("ray::IDLE"))
    look(20, process("ray::IDLE"))
    look(22)
    look(31)
    with pytest.raises(RunError, match=r"^2 of 2 workers of Ray died at the start: killed, out of memory"):
        look(33, gone())


def test_one_of_two_that_dies_is_named_although_the_other_works(look):
    look(0, process("python", STARTING), process("python", STARTING))
    look(10, process("ray::ClientAppActor.run"))
    with pytest.raises(RunError, match=r"^1 of 2 workers of Ray died"):
        look(21, process("ray::ClientAppActor.run"))


def test_a_worker_that_ray_replaces_is_waited_for(look):
    look(0, process("ray::ClientAppActor"), process("ray::ClientAppActor"))
    look(2, process("ray::ClientAppActor"))
    look(9, process("ray::ClientAppActor"), process("python", STARTING))
    look(13, process("ray::ClientAppActor"), process("ray::IDLE"))
    look(600, process("ray::ClientAppActor"), process("ray::ClientAppActor.run"))
    look(1200, process("ray::ClientAppActor"), process("ray::ClientAppActor.run"))


def test_the_first_worker_is_waited_for_as_long_as_agents_may_take(look):
    look(0)
    look(59)
    with pytest.raises(RunError, match=r"^2 of 2 workers of Ray died"):
        look(61)
