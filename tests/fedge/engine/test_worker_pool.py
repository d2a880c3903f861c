"""The pool of workers, with a Ray that is made up; real machines die in runs/engines/test_ray_cluster.py."""

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from flwr.app import Error, Message

from fedge.engine import worker_pool
from fedge.engine.flower_engine import FlowerEngine
from fedge.engine.worker_pool import (
    OverTimeError,
    PatientPool,
    spare_dead_workers,
    use_every_worker,
    use_joining_machines,
    workers_with_room,
)
from fedge.exchange.failure import dead_worker_failure, timeout_failure
from fedge.exchange.round_context import RoundContext
from fedge.exchange.train import train_messages
from fedge.states.records import to_record


class RayError(Exception):
    """As Ray's: all its exceptions."""


class TaskError(RayError):
    """The call has raised."""


class Unavailable(RayError):
    """The actor may come back."""


class Died(RayError):
    """The actor will not come back."""


EXCEPTIONS = SimpleNamespace(
    RayError=RayError, RayTaskError=TaskError, ActorUnavailableError=Unavailable, ActorDiedError=Died
)


def raise_or_return(future):
    if isinstance(future.holds, Exception):
        raise future.holds
    return future.holds


class Future:
    """An actor's answer, or the exception of its call."""

    def __init__(self, holds):
        self.holds = holds


class Actor:
    """Lives or not."""

    def __init__(self, error=None):
        self.error = error
        self.jobs = []
        self.__ray_ready__ = SimpleNamespace(remote=lambda: Future(self.error))

    def run(self, job):
        self.jobs.append(job)
        return Future(self.error or ("0", f"reply {job}", "context"))


class FlowersPool:
    """Flower's pool, as far as it is used."""

    def __init__(self, actors):
        self.pool, self.num_actors, self._future_to_actor = list(actors), len(actors), {}
        self.made, self.client_resources = [], {"num_cpus": 1}

    def create_actor_fn(self):
        self.made.append(Actor())
        return self.made[-1]


class Pool(PatientPool, FlowersPool):
    pass


@pytest.fixture(autouse=True)
def ray(monkeypatch):
    """A Ray whose futures are there at once."""
    made_up = SimpleNamespace(
        get=raise_or_return, wait=lambda futures, timeout: (futures, []), exceptions=EXCEPTIONS
    )
    monkeypatch.setitem(sys.modules, "ray", made_up)
    monkeypatch.setattr(worker_pool, "_LOOK_S", 0.01)


def ask(pool, job):
    """Give a job as Flower's backend does; returns the reply, or the exception."""
    future = None
    try:
        future = pool.submit(lambda actor, job: actor.run(job), (job,))
        return pool.fetch_result_and_return_actor_to_pool(future)[0]
    except (RayError, OverTimeError) as error:
        if future is not None:
            pool.add_actor_back_to_pool(future)
        return error


def test_a_dead_worker_gets_one_job_and_no_more_until_it_is_there_again():
    alive, dead = Actor(), Actor(Unavailable("connection refused"))
    pool = Pool([alive, dead])
    assert isinstance(ask(pool, 0), Unavailable)
    assert [ask(pool, job) for job in range(1, 6)] == [f"reply {job}" for job in range(1, 6)]
    assert dead.jobs == [0]
    assert pool.pool == [alive]
    dead.error = None
    for job in (6, 7):  # what it was asked before is answered; it is asked once more
        time.sleep(0.02)
        ask(pool, job)
    assert sorted(map(id, pool.pool)) == sorted(map(id, [alive, dead]))


def test_all_workers_of_a_machine_that_has_died_cost_one_job():
    """The others of it were free: each is asked whether it is there before it gets anything."""
    pool = Pool([Actor(), *(Actor(Unavailable("gone")) for _ in range(3))])
    assert isinstance(ask(pool, 0), Unavailable)
    assert [ask(pool, job) for job in range(1, 4)] == ["reply 1", "reply 2", "reply 3"]


@pytest.mark.parametrize(("limit_s", "over"), [(0.05, True), (60.0, False)])
def test_a_worker_that_dies_when_its_client_s_time_is_over_has_ended_itself(limit_s, over):
    """The engine then says which limit; where another killed it, that the worker has died."""

    class Slow(Actor):
        def run(self, job):
            time.sleep(0.1)
            return super().run(job)

    context = RoundContext(42, 1, 1, "", "", "", limit_s)
    (question,) = train_messages([1], to_record({}), context)
    error = ask(Pool([Slow(Unavailable("gone"))]), question)
    assert isinstance(error, OverTimeError if over else Unavailable)
    reason = f"{type(error)}:<'{error}'>"  # as Flower's engine hands it on
    if not over:
        reason = "<class 'ray.exceptions.ActorUnavailableError'>:<'gone'>"
    question.metadata.__dict__["_message_id"] = "1"
    engine = FlowerEngine(None)
    failure = engine.failure_of(Message(Error(0, reason), reply_to=question))
    assert failure == (timeout_failure(0.05) if over else dead_worker_failure())
    assert len(engine.new_remarks()) == (not over)


def test_deaths_of_workers_are_told_once():
    """Their clients are tried again, so the run's tables say nothing of them."""
    pool, engine = Pool([Actor(), Actor(Unavailable("gone")), Actor(Unavailable("gone"))]), FlowerEngine(None)
    assert engine.new_remarks() == ()
    ask(pool, 0)
    assert pool.deaths == 1
    (line,) = engine.new_remarks()
    assert line.startswith("a worker of Ray died: ")
    assert engine.new_remarks() == ()


def test_a_worker_that_ray_gives_up_has_another_in_its_place():
    pool = Pool([Actor(Died("for good"))])
    assert isinstance(ask(pool, 0), Died)
    assert ask(pool, 1) == "reply 1"
    assert len(pool.made) == 1
    assert pool.num_actors == 1


def test_an_exception_of_a_client_costs_its_worker_nothing():
    worker = Actor(TaskError("division by zero"))
    pool = Pool([worker])
    assert isinstance(ask(pool, 0), TaskError)
    assert pool.pool == [worker]


def test_a_job_waits_for_a_worker_that_is_at_work():
    """Flower has as many threads as workers, and one of those may be away."""
    pool = Pool([Actor()])
    future = pool.submit(lambda actor, job: actor.run(job), ("first",))
    replies = []
    second = threading.Thread(target=lambda: replies.append(ask(pool, "second")))
    second.start()
    time.sleep(0.05)
    assert replies == []
    assert pool.fetch_result_and_return_actor_to_pool(future) == ("reply first", "context")
    second.join(5)
    assert replies == ["reply second"]


def test_without_any_worker_a_job_fails_in_the_end(monkeypatch):
    monkeypatch.setattr(worker_pool, "_PATIENCE_S", 0.05)
    pool = Pool([Actor(Unavailable("gone"))])
    ask(pool, 0)
    assert str(ask(pool, 1)) == "('no worker is left', None)"


def test_another_flower_is_said_and_none_is_not(monkeypatch, caplog):
    monkeypatch.delitem(sys.modules, worker_pool._BACKEND, raising=False)
    assert not spare_dead_workers()
    assert not caplog.records
    monkeypatch.setitem(sys.modules, worker_pool._BACKEND, SimpleNamespace())
    assert not spare_dead_workers()
    assert "hides its pool of workers" in caplog.text


# --- machines that join ---------------------------------------------------------------------------------


@pytest.fixture
def cluster(monkeypatch):
    """A cluster whose size can be said: `cluster.room`; sizes are looked at after each job."""
    made_up = SimpleNamespace(room=2, asked=[])

    def size(resources):
        made_up.asked.append(resources)
        if isinstance(made_up.room, Exception):
            raise made_up.room
        return made_up.room

    actors = SimpleNamespace(pool_size_from_resources=size)
    monkeypatch.setitem(sys.modules, worker_pool._ACTORS, actors)
    monkeypatch.setattr(worker_pool, "_GROW_S", 0.0)
    return made_up


def test_a_machine_that_joins_gives_workers_once_they_answer(cluster):
    pool = Pool([Actor(), Actor()])
    ask(pool, 0)
    assert (pool.num_actors, pool.made) == (2, [])
    cluster.room = 4
    ask(pool, 1)
    assert (pool.num_actors, len(pool.made), len(pool.pool)) == (4, 2, 2)
    time.sleep(0.02)
    ask(pool, 2)
    assert sorted(map(id, pool.made)) == sorted(map(id, [a for a in pool.pool if a in pool.made]))
    assert (len(pool.pool), pool.num_actors) == (4, 4)
    assert cluster.asked[-1] == {"num_cpus": 1}


@pytest.mark.parametrize(
    "room", [1, 0, ValueError("ActorPool is empty"), RuntimeError("no answer")], ids=repr
)
def test_a_cluster_that_shrinks_or_does_not_answer_takes_no_worker_away(cluster, room):
    pool = Pool([Actor(), Actor()])
    cluster.room = room
    assert ask(pool, 0) == "reply 0"
    assert (pool.num_actors, pool.made, len(pool.pool)) == (2, [], 2)


def test_the_cluster_is_looked_at_now_and_then_only(cluster, monkeypatch):
    monkeypatch.setattr(worker_pool, "_GROW_S", 60.0)
    pool = Pool([Actor()])
    for job in range(5):
        ask(pool, job)
    assert len(cluster.asked) == 1


def test_each_worker_that_joins_has_a_thread_of_the_engine(cluster, monkeypatch):
    """The thread does what Flower's do, with what these were given."""
    began, end = [], threading.Event()

    def worker(messages, *, stop):
        began.append(messages)
        assert stop.wait(30)

    engine = SimpleNamespace(worker=worker)
    monkeypatch.setitem(sys.modules, worker_pool._ENGINE, engine)
    monkeypatch.setattr(worker_pool, "_threads", worker_pool._EngineThreads())
    assert use_joining_machines()
    assert use_joining_machines()
    assert engine.worker.__wrapped__ is worker
    first = threading.Thread(target=engine.worker, args=("queue",), kwargs={"stop": end})
    first.start()
    cluster.room, pool = 4, Pool([Actor()])
    ask(pool, 0)
    deadline = time.monotonic() + 10
    while len(began) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    end.set()
    first.join(10)
    assert began == ["queue"] * 4


def test_each_of_many_workers_has_a_thread_of_flower_s_own_engine(monkeypatch):
    """Eight more than Python would start on this machine are at work at the same time."""
    # the real one: tests/runs/faults/test_faults.py
    engine = SimpleNamespace(ThreadPoolExecutor=ThreadPoolExecutor)
    monkeypatch.setitem(sys.modules, worker_pool._ENGINE, engine)
    assert use_every_worker()
    assert use_every_worker()
    workers = min(32, (os.cpu_count() or 1) + 4) + 8
    together = threading.Barrier(workers)
    with engine.ThreadPoolExecutor() as executor:
        arrived = [executor.submit(together.wait, 20) for _ in range(workers)]
    assert sorted(one.result() for one in arrived) == list(range(workers))


def test_without_flower_s_engine_no_worker_is_used(monkeypatch):
    monkeypatch.delitem(sys.modules, worker_pool._ENGINE, raising=False)
    assert not use_every_worker()


def test_without_flower_s_engine_nothing_joins(monkeypatch):
    monkeypatch.delitem(sys.modules, worker_pool._ENGINE, raising=False)
    monkeypatch.delitem(sys.modules, worker_pool._ACTORS, raising=False)
    assert not use_joining_machines()
    assert workers_with_room({"num_cpus": 1}) == 0
