"""Flower's pool of Ray workers, changed to set dead workers aside until they answer again.

Flower (1.25 to 1.42) returns a dead worker to the front of the pool, where it fails every message until Ray
has restarted it; on a cluster after the loss of a machine, there may never be room for a restart. Here, after
a worker's death, it and every idle worker must answer before getting work; Ray restarts it where and when
there is room (`fedge.engine.ray_workers`).

Flower counts workers only once, when a run begins. Here a growing cluster adds workers: a machine joining a
running job gets work as soon as its workers answer, each through its own thread.

A client over its time limit ends its worker (`fedge.client.guarded_app`). The reason stays on the worker's
machine; here it is inferred from the elapsed time.
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
_PATIENCE_S = 60.0  # wait for the first worker to return if all are gone
_GROW_S = 5.0  # between checks of the cluster's size
_ENGINE, _WORKER, _EXECUTOR = "flwr.server.superlink.fleet.vce.vce_api", "worker", "ThreadPoolExecutor"
_MOST_THREADS = 2**16  # limit for the engine, which starts one per worker
_ACTORS, _SIZE = "flwr.simulation.ray_transport.ray_actor", "pool_size_from_resources"


class OverTimeError(Exception):
    """Error: a worker died after its client's time limit; as text, the limit in seconds."""


_newest: "weakref.ref[PatientPool] | None" = None  # pool of this process, which has at most one


def free_workers() -> list[Any]:
    """Idle workers of this process's pool."""
    pool = _newest and _newest()
    return list(pool.pool) if pool else []


def num_workers() -> int:
    """Number of workers of this process's pool; 0 before there is one."""
    pool = _newest and _newest()
    return pool.num_actors if pool else 0


def num_deaths() -> int:
    """Number of workers of this process's pool that died at work, other than by their client's time limit."""
    pool = _newest and _newest()
    return pool.deaths if pool else 0


class PatientPool:
    """Flower's pool with dead workers set aside; actors are workers, futures their answers.

    `deaths` counts workers that died at work, other than by their client's time limit.

    Attributes of Flower's class: `pool`, the free actors; `num_actors`; `create_actor_fn`;
    `client_resources`; `_future_to_actor`.
    """

    pool: list[Any]
    num_actors: int
    create_actor_fn: Callable[[], Any]
    client_resources: dict[str, float]
    _future_to_actor: dict[Any, Any]

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        """Pool with no worker set aside."""
        super().__init__(*arguments, **keywords)
        self._changed = threading.Condition()
        self._aside: list[tuple[Any, Any]] = []  # actors and their pending answers
        self._failed: set[Any] = set()  # futures of dead actors
        self.deaths = 0
        # future → time of assignment, allowed seconds
        self._limits: dict[Any, tuple[float, float]] = {}
        self._last_check = self._last_growth_check = 0.0
        global _newest
        _newest = weakref.ref(self)

    def submit(self, actor_fn: Callable[..., Any], job: tuple[Any, ...]) -> Any:
        """Assign a job to a free worker, waiting for one; returns its future.

        Raises:
            ActorUnavailableError: no worker has been available for a minute.
        """
        with self._changed:
            actor, assigned_at = self._free_worker(), time.monotonic()
            future = actor_fn(actor, *job)
            self._future_to_actor[future] = actor
            self._limits[future] = assigned_at, min(map(limit_s, job))
            return future

    def fetch_result_and_return_actor_to_pool(self, future: Any) -> tuple[Any, Any]:
        """Message and context of a future; its worker becomes free.

        Raises:
            OverTimeError: the worker has died, and its client's time limit is over.
            Exception: any other exception of Ray.
        """
        ray = _ray()
        try:
            _, message, context = ray.get(future)
        except ray.exceptions.RayTaskError:
            raise  # the client's own exception: its worker is alive
        except ray.exceptions.RayError as error:
            self._failed.add(future)
            assigned_at, allowed_s = self._limits[future]
            if time.monotonic() - assigned_at >= allowed_s:  # so late, only the client's guard ends a worker
                raise OverTimeError(f"{allowed_s:g}") from error
            self.deaths += 1
            raise
        self.add_actor_back_to_pool(future)
        return message, context

    def add_actor_back_to_pool(self, future: Any) -> None:
        """Free a future's worker; if it has died, it and all idle workers must answer first."""
        with self._changed:
            actor = self._future_to_actor.pop(future)
            del self._limits[future]
            self.pool.append(actor)
            if future in self._failed:
                self._failed.discard(future)
                logger.info("a worker has died; it gets work again once Ray has restarted it")
                self._aside += [(idle, idle.__ray_ready__.remote()) for idle in self.pool]
                self.pool.clear()
            self._changed.notify()
        self._grow()

    def _grow(self) -> None:
        """Add workers if the cluster has room for more."""
        with self._changed:
            if time.monotonic() < self._last_growth_check + _GROW_S:
                return
            self._last_growth_check = time.monotonic()
        try:
            additional = workers_with_room(self.client_resources) - self.num_actors
        except Exception as error:  # the cluster does not answer at present
            logger.info("the cluster's size is unknown: %s", error)
            return
        if additional < 1:
            return
        current = self.num_actors
        logger.info("the cluster has grown: %d workers instead of %d", current + additional, current)
        actors = [self.create_actor_fn() for _ in range(additional)]
        with self._changed:
            self._aside += [(actor, actor.__ray_ready__.remote()) for actor in actors]
            self.num_actors += additional
        _threads.add(additional)

    def _free_worker(self) -> Any:
        """A free worker; waits for one."""
        idle_since = time.monotonic()
        while True:
            if self._aside and time.monotonic() > self._last_check + _LOOK_S:
                self._check_aside()
            if self.pool:
                return self.pool.pop()
            if len(self._aside) < self.num_actors:  # some worker is busy, and will be free
                idle_since = time.monotonic()
            if time.monotonic() > idle_since + _PATIENCE_S:
                raise _ray().exceptions.ActorUnavailableError("no worker is left", None)
            self._changed.wait(_LOOK_S)

    def _check_aside(self) -> None:
        """Put responding workers back into the pool; the others are asked again."""
        ray, aside = _ray(), self._aside
        self._last_check, self._aside = time.monotonic(), []
        for actor, answer in aside:
            ready, _ = ray.wait([answer], timeout=0)
            if not ready:
                self._aside.append((actor, answer))
                continue
            try:
                ray.get(answer)
                self.pool.append(actor)
            except ray.exceptions.ActorDiedError:  # Ray will not restart it
                replacement = self.create_actor_fn()
                self._aside.append((replacement, replacement.__ray_ready__.remote()))
            except ray.exceptions.RayError:
                self._aside.append((actor, actor.__ray_ready__.remote()))


class _EngineThreads:
    """Threads of Flower's engine, each serving one worker at a time; more can be added."""

    def __init__(self) -> None:
        self._work: Callable[[], None] | None = None

    def seen(self, work: Callable[[], None]) -> None:
        """Record the function run by the engine's threads."""
        self._work = work

    def add(self, count: int) -> None:
        """Start more threads; they end like Flower's own."""
        for _ in range(count if self._work else 0):
            threading.Thread(target=self._work, name="joined", daemon=True).start()


_threads = _EngineThreads()


def workers_with_room(client_resources: dict[str, float]) -> int:
    """Number of workers for which the cluster has room now, by Flower's count; 0 if unknown."""
    size = getattr(sys.modules.get(_ACTORS), _SIZE, None)
    return 0 if size is None else int(size(client_resources))


def use_joining_machines() -> bool:
    """Make Flower's engine in this process accept workers during a run; returns whether this version can.

    Called when the ClientApp is loaded, before the engine starts its threads; further calls have no effect.
    Uses private names of Flower; without them, a joining machine gets no work until a worker dies.
    """
    module = sys.modules.get(_ENGINE)
    worker = getattr(module, _WORKER, None)
    if worker is None or hasattr(worker, "__wrapped__"):
        return worker is not None

    @wraps(worker)
    def work(*arguments: Any, **keywords: Any) -> None:
        _threads.seen(partial(worker, *arguments, **keywords))
        worker(*arguments, **keywords)

    setattr(module, _WORKER, work)
    return True


def use_every_worker() -> bool:
    """Make Flower's engine in this process have a thread per worker; returns whether this version can.

    Flower leaves their number to Python: this machine's cores plus four, at most 32. Further workers of a
    cluster, or of a small machine, would get no work. Called before the engine starts its threads; further
    calls have no effect.
    """
    module = sys.modules.get(_ENGINE)
    executor = getattr(module, _EXECUTOR, None)
    if executor is None or isinstance(executor, partial):
        return executor is not None
    setattr(module, _EXECUTOR, partial(executor, max_workers=_MOST_THREADS))
    return True


def spare_dead_workers() -> bool:
    """Replace the pool of Flower's Ray engine in this process by `PatientPool`; returns whether it could.

    False without a warning if the engine is not loaded. Uses private names of Flower; their absence is
    reported.
    """
    backend = sys.modules.get(_BACKEND)
    if backend is None:
        return False
    base = getattr(backend, _POOL, None)
    if base is None or not all(hasattr(base, name) for name in ("submit", "add_actor_back_to_pool")):
        logger.warning("this version of Flower hides its pool of workers; dead ones may be given work")
        return False
    if not issubclass(base, PatientPool):
        setattr(backend, _POOL, type(_POOL, (PatientPool, base), {}))
    return True


def limit_s(argument: Any) -> float:
    """Seconds allowed to a client for a message; infinite for any other argument."""
    if isinstance(argument, Message) and argument.metadata.message_type in (TRAIN, EVALUATE):
        return RoundContext.from_message(argument).timeout_s
    return math.inf


def _ray() -> Any:
    """The ray module, loaded by Flower's engine."""
    return sys.modules["ray"]
