"""Fedge's changes to Flower's Ray workers: dead ones are restarted, and no call history is kept.

Flower 1.25 returns a dead worker to the idle ones, where it fails every message. Ray can restart it, but
Flower does not request that, and the only way to request it is a private attribute of Ray. If another version
lacks the attribute, this is reported.
"""

import logging
import os
import sys
import time
from contextlib import suppress

import psutil

from fedge.engine.loopback import KEEP
from fedge.exchange.engine import RunError
from hhar.quantity import quantity

logger = logging.getLogger(__name__)

_ACTORS = "flwr.simulation.ray_transport.ray_actor"
_TASK_HISTORY = "RAY_task_events_report_interval_ms"
_PRESTART = "RAY_prestart_worker_first_driver"
_IDLE, _PROGRAM = "ray::IDLE", "default_worker.py"  # name of a worker without a task, and its program before
_LOOK_S = 1.0
_MISSING_S = 10.0  # for which a worker may be missing: Ray replaces one that it sees die at once
_UNSEEN_S = 60.0  # likewise before Ray has started any, while it waits for its agents
_PINGS_MS = {  # Ray's defaults: five minutes and two
    "RAY_grpc_client_keepalive_time_ms": 30_000,
    "RAY_grpc_client_keepalive_timeout_ms": 60_000,
}
_STARTS = {  # Ray's defaults: half a minute and one
    "RAY_agent_register_timeout_ms": 600_000,
    "RAY_worker_register_timeout_seconds": 600,
}


def keep_no_task_history() -> None:
    """Disable the record of every call kept by a later Ray for its dashboard, which is off.

    Ray keeps 100,000 records of some kilobytes each, so its memory would grow throughout a long run. Users
    who want the record can set the variable.
    """
    os.environ.setdefault(_TASK_HISTORY, "0")


def notice_lost_connections() -> None:
    """Make a later Ray check connections to workers silent for 30 s.

    A reply lost while a machine is disconnected is noticed only by this check, and Ray's default is five
    minutes (ray-project/ray, pull request 44612). Set the variables for other times.
    """
    for name, milliseconds in _PINGS_MS.items():
        os.environ.setdefault(name, str(milliseconds))


def allow_slow_starts() -> None:
    """Make a later Ray wait ten minutes for its agents and workers, which start slowly on a busy machine.

    By default, Ray ends if an agent takes more than half a minute, e.g. on a busy laptop. A run waits no
    longer than guard.start-timeout. Set the variables for other times.
    """
    for name, limit in _STARTS.items():
        os.environ.setdefault(name, str(limit))


def start_workers_on_demand() -> None:
    """Make a later Ray start workers for clients alone, rather than some beforehand for which it waits.

    That wait stops every thread of the process; if one of those workers dies meanwhile, it lasts as long as a
    start may (`allow_slow_starts`). Users who want such workers can set the variable.
    """
    os.environ.setdefault(_PRESTART, "0")


class StartingWorkers:
    """Watch for workers that die while they start, which Ray notices only after ten minutes."""

    def __init__(self) -> None:
        self._looked_at = -_LOOK_S
        self._missing_since: float | None = None
        self._were_seen = False

    def refuse_dead(self, raylet: psutil.Process, expected: int) -> None:
        """Raise RunError if fewer workers than expected have been there for some time, and none is starting.

        Args:
            raylet: Ray's process that starts workers.
            expected: number of workers.
        """
        now = time.monotonic()
        if now < self._looked_at + _LOOK_S:
            return
        self._looked_at = now
        ready, starting = _count_workers(raylet)
        self._were_seen = self._were_seen or ready + starting > 0
        if ready >= expected or starting:
            self._missing_since = None
            return
        if self._missing_since is None:
            self._missing_since = now
        if now >= self._missing_since + (_MISSING_S if self._were_seen else _UNSEEN_S):
            raise RunError(
                f"{expected - ready} of {quantity(expected, 'worker')} of Ray died at the start: killed, "
                f"out of memory or crashed; free some memory, or look into Ray's logs (kept with {KEEP}=1)"
            )


def _count_workers(raylet: psutil.Process) -> tuple[int, int]:
    """Number of workers that have a task, and of those without one yet."""
    ready = starting = 0
    for process in raylet.children():
        with suppress(psutil.Error):
            name = process.name()
            has_task = name.startswith("ray::") and name != _IDLE
            ready += has_task
            starting += not has_task and (
                name == _IDLE or any(word.endswith(_PROGRAM) for word in process.cmdline())
            )
    return ready, starting


def restart_dead_workers() -> bool:
    """Make Ray restart dead workers; returns whether this version can.

    False without a warning if Flower's Ray engine is not loaded, because there are no such workers then.
    """
    module = sys.modules.get(_ACTORS)
    if module is None:
        return False
    options = getattr(getattr(module, "ClientAppActor", None), "_default_options", None)
    if not isinstance(options, dict):
        logger.warning(
            "this version of Flower or Ray hides the options of its workers; dead ones are not replaced"
        )
        return False
    options["max_restarts"] = -1
    return True
