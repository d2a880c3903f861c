"""Flower's pool of Ray workers, which gives no work to one that is dead: it waits aside until it answers.

Flower (1.25 to 1.42) puts a worker that has died back as the first one to be taken, where it fails every
message that it gets, until Ray has started it again; on a cluster that has lost a machine there may be no
room for it, and then for ever. Here a worker whose death is seen, and then each that is idle, is asked first
whether it is there; Ray starts it anew where and when there is room (`fedge.engine.ray_workers`).

Flower counts workers once, when a run begins. Here a cluster that has grown gives more of them: a machine
that joins a healthy run gets work as soon as its workers answer, each by a thread of its own.

A client that takes too long ends its worker (`fedge.client.guarded_app`). Its words then stay on its
machine; from here it is known by the time that went by.
"""

import logging
import math
import sys
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from flwr.app import Message

from fedge.exchange.evaluate import EVALUATE
from fedge.exchange.round_context import RoundContext
from fedge.exchange.train import TRAIN

logger = logging.getLogger(__name__)

_BACKEND = "flwr.server.superlink.fleet.vce.backend.raybackend"
_POOL = "BasicActorPool"
_LOOK_S = 0.2
_PATIENCE_S = 60.0  # for the first worker of all to be there again
_GROW_S = 5.0  # from one look at the cluster's size to the next
_ENGINE, _WORKER, _EXECUTOR = "flwr.server.superlink.fleet.vce.vce_api", "worker", "ThreadPoolExecutor"
_MOST_THREADS = 2**16  # of the engine; one is started for each worker
_ACTORS, _SIZE = "flwr.simulation.ray_transport.ray_actor", "pool_size_from_resources"


class OverTimeError(Exception):
    """A worker has died over a client whose time was over; as text the seconds that it had."""


_newest: "weakref.ref[PatientPool] | None" = None  # of this process, which has one


def free_workers() -> list[Any]:
    """The workers of this process's pool that are there and have nothing to do."""
    pool = _newest and _newest()
    return list(pool.pool) if pool else []


def num_workers() -> int:
    """How many workers this process's pool has; 0 before there is one."""
    pool = _newest and _newest()
    return pool.num_actors if pool else 0


class PatientPool:
    """Flower's pool with patience: actors are workers, futures their answers.

    Flower's own: `pool`, the actors that are free; `num_actors`; `create_actor_fn`; `client_resources`;
    `_future_to_actor`.
    """

    pool: list[Any]
    num_actors: int
    create_actor_fn: Callable[[], Any]
    client_resources: dict[str, float]
    _future_to_actor: dict[Any, Any]

    def __init__(self, *arguments: Any, **named: Any) -> None:
        """Begin with nobody aside."""
        super().__init__(*arguments, **named)
        self._changed = threading.Condition()
        self._aside: list[tuple[Any, Any]] = []  # actors, and their pending answers
        self._failed: set[Any] = set()  # futures of dead actors
        # future → time of assignment, allowed seconds
        self._limits: dict[Any, tuple[float, float]] = {}
        self._looked = self._grew = 0.0
        global _newest
        _newest = weakref.ref(self)

    def submit(self, actor_fn: Callable[..., Any], job: tuple[Any, ...]) -> Any:
        """Give a job to a worker that is free, waiting for one; returns its future.

        Raises:
            ActorUnavailableError: none has been there for a minute.
        """
        with self._changed:
            actor, given = self._free(), time.monotonic()
            future = actor_fn(actor, *job)
            self._future_to_actor[future] = actor
            self._limits[future] = given, min(map(limit_s, job))
            return future

    def fetch_result_and_return_actor_to_pool(self, future: Any) -> tuple[Any, Any]:
        """Message and context of a future, and its worker to the free ones.

        Raises:
            OverTimeError: the worker has died, and its client's time was over.
            Exception: as Ray has it.
        """
        ray = _ray()
        try:
            _, message, context = ray.get(future)
        except ray.exceptions.RayTaskError:
            raise  # the client's own exception: its worker lives
        except ray.exceptions.RayError as error:
            self._failed.add(future)
            given, may_take_s = self._limits[future]
            if time.monotonic() - given >= may_take_s:  # nobody else could have killed it so late
                raise OverTimeError(f"{may_take_s:g}") from error
            raise
        self.add_actor_back_to_pool(future)
        return message, context

    def add_actor_back_to_pool(self, future: Any) -> None:
        """Let a future's worker be free again; if it has died, it and all that are free answer first."""
        with self._changed:
            actor = self._future_to_actor.pop(future)
            del self._limits[future]
            self.pool.append(actor)
            if future in self._failed:
                self._failed.discard(future)
                logger.info("a worker has died; it gets work again once Ray has started it anew")
                self._aside += [(one, one.__ray_ready__.remote()) for one in self.pool]
                self.pool.clear()
            self._changed.notify()
        self._grow()

    def _grow(self) -> None:
        """Have as many workers as the cluster has room for, where that is more than there are."""
        with self._changed:
            if time.monotonic() < self._grew + _GROW_S:
                return
            self._grew = time.monotonic()
        try:
            more = room_for(self.client_resources) - self.num_actors
        except Exception as error:  # the cluster does not answer just now
            logger.info("the cluster's size is not known: %s", error)
            return
        if more < 1:
            return
        now = self.num_actors
        logger.info("the cluster has grown: %d workers in place of %d", now + more, now)
        made = [self.create_actor_fn() for _ in range(more)]
        with self._changed:
            self._aside += [(actor, actor.__ray_ready__.remote()) for actor in made]
            self.num_actors += more
        _threads.add(more)

    def _free(self) -> Any:
        """A worker that is free, once there is one."""
        alone_since = time.monotonic()
        while True:
            if self._aside and time.monotonic() > self._looked + _LOOK_S:
                self._look()
            if self.pool:
                return self.pool.pop()
            if len(self._aside) < self.num_actors:  # somebody is at work, and will be free
                alone_since = time.monotonic()
            if time.monotonic() > alone_since + _PATIENCE_S:
                raise _ray().exceptions.ActorUnavailableError("no worker is there any more", None)
            self._changed.wait(_LOOK_S)

    def _look(self) -> None:
        """Take back actors that answer; ask the others again."""
        ray, aside = _ray(), self._aside
        self._looked, self._aside = time.monotonic(), []
        for actor, answer in aside:
            ready, _ = ray.wait([answer], timeout=0)
            if not ready:
                self._aside.append((actor, answer))
                continue
            try:
                ray.get(answer)
                self.pool.append(actor)
            except ray.exceptions.ActorDiedError:  # Ray will not start it again
                anew = self.create_actor_fn()
                self._aside.append((anew, anew.__ray_ready__.remote()))
            except ray.exceptions.RayError:
                self._aside.append((actor, actor.__ray_ready__.remote()))


class _Threads:
    """Threads of Flower's engine that take messages, each for one worker at a time; more can be added."""

    def __init__(self) -> None:
        self._work: Callable[[], None] | None = None

    def seen(self, work: Callable[[], None]) -> None:
        """Take in the work of such a thread."""
        self._work = work

    def add(self, count: int) -> None:
        """Start more; they end as Flower's own do."""
        for _ in range(count if self._work else 0):
            threading.Thread(target=self._work, name="joined", daemon=True).start()


_threads = _Threads()


def room_for(client_resources: dict[str, float]) -> int:
    """Workers that the cluster has room for by now, as Flower counts; 0 where it hides how."""
    size = getattr(sys.modules.get(_ACTORS), _SIZE, None)
    return 0 if size is None else int(size(client_resources))


def use_joining_machines() -> bool:
    """Let Flower's engine of this process take more workers in mid-run; tell whether that was possible.

    Called where the ClientApp is loaded, before the engine starts its threads; does nothing the second time.
    Private names of Flower: where a version has others, a machine that joins waits for a worker to die.
    """
    module = sys.modules.get(_ENGINE)
    works = getattr(module, _WORKER, None)
    if works is None or hasattr(works, "__wrapped__"):
        return works is not None

    @wraps(works)
    def work(*given: Any, **named: Any) -> None:
        _threads.seen(partial(works, *given, **named))
        works(*given, **named)

    setattr(module, _WORKER, work)
    return True


def use_every_worker() -> bool:
    """Let Flower's engine of this process have a thread for each worker; tell whether that was possible.

    Flower leaves their number to Python, which starts at most four more than this machine has cores, 32 in
    all: of a cluster's workers beyond that, or of many on a small machine, none would get work. Called
    before the engine starts its threads; does nothing the second time.
    """
    module = sys.modules.get(_ENGINE)
    executor = getattr(module, _EXECUTOR, None)
    if executor is None or isinstance(executor, partial):
        return executor is not None
    setattr(module, _EXECUTOR, partial(executor, max_workers=_MOST_THREADS))
    return True


def spare_dead_workers() -> bool:
    """Let Flower's Ray engine of this process have a pool that gives dead workers nothing; tell whether so.

    False without a word where that engine is not loaded. Private names of Flower: their absence is said.
    """
    backend = sys.modules.get(_BACKEND)
    if backend is None:
        return False
    base = getattr(backend, _POOL, None)
    if base is None or not all(hasattr(base, name) for name in ("submit", "add_actor_back_to_pool")):
        logger.warning("this version of Flower hides its pool of workers; one that is dead may be given work")
        return False
    if not issubclass(base, PatientPool):
        setattr(backend, _POOL, type(_POOL, (PatientPool, base), {}))
    return True


def limit_s(given: Any) -> float:
    """The seconds that a client may take for a message; infinite for anything else."""
    if isinstance(given, Message) and given.metadata.message_type in (TRAIN, EVALUATE):
        return RoundContext.of(given).timeout_s
    return math.inf


def _ray() -> Any:
    """Ray, which Flower's engine has loaded."""
    return sys.modules["ray"]
