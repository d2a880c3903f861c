"""Fedge's changes to Flower's Ray workers: a dead one is started again, and none keeps a history.

Flower 1.25 puts a dead worker back among the free ones, where it fails every message that it gets. Ray can
start it again by itself, but Flower does not ask for that; the only way to ask is a private attribute of
Ray's, so its absence in another version is said aloud.
"""

import logging
import os
import sys

logger = logging.getLogger(__name__)

_ACTORS = "flwr.simulation.ray_transport.ray_actor"
_TASK_HISTORY = "RAY_task_events_report_interval_ms"
_PINGS_MS = {  # Ray's defaults: five minutes and two
    "RAY_grpc_client_keepalive_time_ms": 30_000,
    "RAY_grpc_client_keepalive_timeout_ms": 60_000,
}
_STARTS = {  # Ray's defaults: half a minute and one
    "RAY_agent_register_timeout_ms": 600_000,
    "RAY_worker_register_timeout_seconds": 600,
}


def keep_no_task_history() -> None:
    """Tell a Ray that starts later not to keep a record of every call for its dashboard, which nobody opens.

    It keeps 100,000 of them, some kilobytes each: its memory would grow through the whole of a long run.
    Users who want the record set the variable.
    """
    os.environ.setdefault(_TASK_HISTORY, "0")


def notice_lost_connections() -> None:
    """Let a Ray that starts later ask a worker that is silent for 30 s whether its connection still holds.

    A reply that is lost while a machine is cut off is missed only then, and by default Ray waits five minutes
    (ray-project/ray, pull request 44612). For another time, set the variables.
    """
    for name, milliseconds in _PINGS_MS.items():
        os.environ.setdefault(name, str(milliseconds))


def allow_slow_starts() -> None:
    """Let a Ray that starts later wait ten minutes for its agents and workers, slow on a busy machine.

    By itself it ends when an agent takes more than half a minute, as on a laptop that does much else. A run
    waits no longer than guard.start-timeout. For other times, set the variables.
    """
    for name, time in _STARTS.items():
        os.environ.setdefault(name, str(time))


def restart_dead_workers() -> bool:
    """Let Ray start a worker again whenever one dies; tell whether that was possible.

    False without a word where Flower's Ray engine is not loaded: then there are no such workers.
    """
    module = sys.modules.get(_ACTORS)
    if module is None:
        return False
    options = getattr(getattr(module, "ClientAppActor", None), "_default_options", None)
    if not isinstance(options, dict):
        logger.warning(
            "this version of Flower or Ray hides the options of its workers; one that dies is not replaced"
        )
        return False
    options["max_restarts"] = -1
    return True
