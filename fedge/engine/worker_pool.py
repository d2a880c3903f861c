"""Flower's pool of Ray workers, which gives no work to one that is dead: it waits aside until it answers.

Flower (1.25 to 1.42) puts a worker that has died back as the first one to be taken, where it fails every
message that it gets, until Ray has started it again; on a cluster that has lost a machine there may be no
room for it, and then for ever. Here a worker whose death is seen, and then each that is idle, is asked first
whether it is there; Ray starts it anew where and when there is room (`fedge.engine.ray_workers`).

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

    Flower's own: `pool`, the actors that are free; `num_actors`; `create_actor_fn`; `_future_to_actor`.
    """

    pool: list[Any]
    num_actors: int
    create_actor_fn: Callable[[], Any]
    _future_to_actor: dict[Any, Any]

    def __init__(self, *arguments: Any, **named: Any) -> None:
        """Begin with nobody aside."""
        super().__init__(*arguments, **named)
        self._changed = threading.Condition()
        self._aside: list[tuple[Any, Any]] = []  # actors, and their pending answers
        self._failed: set[Any] = set()  # futures of dead actors
        # future → time of assignment, allowed seconds
        self._limits: dict[Any, tuple[float, float]] = {}
        self._looked = 0.0
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
