"""Flower as an engine: its Grid, and what has to be found out about what is behind it."""

import sys
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

import psutil
from flwr.app import Message
from flwr.serverapp import Grid

from fedge.exchange.engine import RunError
from fedge.exchange.failure import Failure, raised, worker_died
from fedge.process.logs import first_engine_error

_POLL_S = 0.01
_GUARD = "fedge.client.guarded_app.ClientError: "
_CORE = ("raylet", "gcs_server")  # as the system names them
_DEAD_WORKER = ("ActorUnavailableError", "ActorDiedError", "WorkerCrashedError", "OutOfMemoryError")


class FlowerEngine:
    """Flower's Grid as `fedge.exchange.engine.Engine`; Ray behind it is asked where Flower does not tell."""

    in_order = False  # the clients of what was pushed at once start in any order

    def __init__(self, grid: Grid, stopped: threading.Event | None = None) -> None:
        """Take Flower's grid and, where it is known, the event that its engine sets when it stops."""
        self._grid = grid
        self._stopped = stopped or threading.Event()
        self._ray_was_up = False
        self._core: list[psutil.Process] | None = None  # Ray's processes without which no reply will come

    @property
    def grid(self) -> Grid:
        """Flower's own."""
        return self._grid

    @property
    def worker_ids(self) -> Sequence[int]:
        """Workers are processes."""
        return ()

    def get_node_ids(self) -> Iterable[int]:
        """Return the nodes that are registered."""
        return self._grid.get_node_ids()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages; returns their ids."""
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that are there."""
        return self._grid.pull_messages(message_ids)

    def wait(self, timeout_s: float) -> None:
        """Wait for one poll, at most so many seconds: Flower cannot be asked to tell."""
        time.sleep(min(_POLL_S, timeout_s))

    def give_up_late(self, limit_s: float) -> None:
        """Do nothing: worker processes end themselves after as many seconds (`fedge.client.guarded_app`)."""

    def failure_of(self, reply: Message) -> Failure:
        """Return why a client failed; Flower hands on Ray's exceptions as text, after their class."""
        reason = reply.error.reason or ""
        if any(reason.startswith(f"<class 'ray.exceptions.{name}'>") for name in _DEAD_WORKER):
            return worker_died()
        failure = raised(reason)
        return Failure(failure.kind, failure.detail.removeprefix(_GUARD))

    def refuse_stopped(self) -> None:
        """Raise RunError when the engine has stopped: it says so, or Ray was up and is down again.

        Flower keeps the ServerApp waiting for ever after its simulation engine has crashed (Ray did not
        start, no worker fits into it) or was interrupted.
        """
        ray = sys.modules.get("ray")
        # another thread may be importing it right now
        is_up = ray is not None and hasattr(ray, "is_initialized") and ray.is_initialized()
        if self._stopped.is_set() and not (is_up or self._ray_was_up):
            words = first_engine_error() or "run.log or the lines above have its last words"
            raise RunError(f"the simulation engine did not start: {words}; fedge run needs no Ray")
        if self._stopped.is_set() or (self._ray_was_up and not is_up):
            raise RunError(
                "the simulation engine stopped while clients were at work; run.log has its last words"
            )
        self._ray_was_up = is_up
        if is_up:
            self._refuse_dead_core()

    def _refuse_dead_core(self) -> None:
        """Raise RunError when one of Ray's own processes is gone, for which Ray itself waits a minute."""
        if self._core is None:
            self._core = [p for p in psutil.Process().children() if p.name() in _CORE]
        for process in self._core:
            with suppress(psutil.NoSuchProcess):
                if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                    continue
            raise RunError(f"the simulation engine died: process {process.pid} of Ray was killed or crashed")

    def spans_machines(self) -> bool:
        """Tell whether Ray spreads its workers over machines: then any client may run on any of them."""
        ray = sys.modules.get("ray")
        return ray is not None and ray.is_initialized() and sum(bool(n["Alive"]) for n in ray.nodes()) > 1
