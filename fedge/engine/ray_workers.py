"""Fedge's changes to Flower's Ray workers: dead ones are restarted, and no call history is kept.

Flower 1.25 returns a dead worker to the idle ones, where it fails every message. Ray can restart it, but
Flower does not request that, and the only way to request it is a private attribute of Ray. If another version
lacks the attribute, this is reported.
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
    for name, time in _STARTS.items():
        os.environ.setdefault(name, str(time))


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
