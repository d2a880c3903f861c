"""Ray on this machine alone: every Ray that a run starts listens on loopback only, without dashboard.

By itself Ray 2 listens on all interfaces, asks nobody for a password, and runs all code that it is sent. Who
wants machines of others attaches a run to a cluster on purpose (``address`` in a federation's ``init-args``,
or RAY_ADDRESS); that cluster's addresses are left as they are.
"""

import ipaddress
import os
import secrets
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

from fedge.config.option import ConfigError, shown
from fedge.engine.federation import TOLD, federation_of_this_process
from fedge.process.exits import leaving_if_stuck
from fedge.process.reaper import has_reaper, remove_at_end

LOOPBACK = "127.0.0.1"
KEEP = "FEDGE_KEEP_RAY_LOGS"  # set to anything: Ray's session folder stays
START_S = 900.0  # longer than Ray waits for its own processes, or for a cluster
_OWN = ("", "local")  # addresses for a Ray of the run's own
_TABLE = "options.backend.init-args"
_SIMULATION = "flwr-simulation"  # the program whose process starts Ray, where there is one
_ENGINE = "flwr.server.superlink.fleet.vce.backend.raybackend"
_WRAPPED = "_fedge_on_loopback"


def attaches(init_args: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> bool:
    """Whether a run attaches to a Ray cluster that is there, on purpose.

    Args:
        init_args: for Ray, keys with dashes or underscores.
        environment: of the process; this one's by default.
    """
    variables = os.environ if environment is None else environment
    address = init_args.get("address")
    if address is None or address == "auto":
        address = variables.get("RAY_ADDRESS", "") or (address or "")
    return address not in _OWN


def refuse_listening_elsewhere(
    init_args: Mapping[str, Any], environment: Mapping[str, str] | None = None
) -> None:
    """Raise ConfigError when a federation asks for an own Ray that others can reach, or for a dashboard.

    Args:
        init_args: as for `attaches`.
        environment: as for `attaches`.
    """
    if attaches(init_args, environment):
        return
    given = {key.replace("-", "_"): value for key, value in init_args.items()}
    address = given.get("_node_ip_address")
    if address is not None and not is_loopback(address):
        raise ConfigError(
            f"{_TABLE}._node-ip-address must be a loopback address, because Ray runs what anybody sends it, "
            f'but is {shown(address)}; leave it out, or attach to a cluster with {_TABLE}.address="HOST:PORT"'
        )
    if given.get("include_dashboard"):
        raise ConfigError(
            f"{_TABLE}.include-dashboard must be false, because Ray's dashboard runs what anybody sends it, "
            f"but is {shown(given['include_dashboard'])}; leave it out, or attach to a cluster that has one"
        )


def is_loopback(address: Any) -> bool:
    """Whether an address is this machine's own and nobody else's."""
    if address == "localhost":
        return True
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback


def own_arguments(init_args: Mapping[str, Any]) -> dict[str, Any]:
    """Start arguments of a Ray of the run's own: `init_args`, on loopback, without dashboard.

    Raises:
        ConfigError: `init_args` say otherwise.
    """
    refuse_listening_elsewhere(init_args)
    address = init_args.get("_node_ip_address") or LOOPBACK
    # "local": by default, Ray would attach to any cluster on this machine
    return {**init_args, "address": "local", "_node_ip_address": address, "include_dashboard": False}


def session_folder() -> dict[str, str]:
    """Where a Ray of the run's own has its logs and sockets: a private folder that goes with the run.

    Ray lets everybody into its own; the folder above keeps other accounts out. Nothing where nobody would
    remove it, or the user wants to keep it (`KEEP`): then Ray's own choice.
    """
    if os.environ.get(KEEP) or not has_reaper():
        return {}
    folder = _make_private(Path(os.environ.get("RAY_TMPDIR") or "/tmp") / "ray", f"f{os.getpid()}")
    remove_at_end(folder)
    return {"_temp_dir": str(folder / "s")}  # short: the paths of sockets in it have a limit


def _make_private(parent: Path, name: str) -> Path:
    """Make a folder for this account alone, under another name where somebody has taken its own."""
    if not parent.is_dir():
        with suppress(FileExistsError):
            parent.mkdir(parents=True)
            parent.chmod(0o1777)  # as /tmp itself: Rays of all accounts have folders in it
    folder = parent / name
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        folder = folder.with_name(f"{name}-{secrets.token_hex(4)}")
        folder.mkdir(mode=0o700)
    return folder


def init_args_told() -> dict[str, Any]:
    """Start arguments of Ray where Flower passes on less than a federation says."""
    if TOLD not in os.environ:
        return {}
    told = federation_of_this_process().init_args
    return {key.replace("-", "_"): value for key, value in told.items()}


def load_ray_engine() -> None:
    """Load Flower's Ray engine in a process that is to be one.

    Newer Flowers load it after the apps, when nothing could be said any more about how Ray is started.
    """
    if Path(sys.argv[0] if sys.argv else "").name == _SIMULATION:
        with suppress(
            ImportError
        ):  # it is elsewhere in another Flower, or there is no Ray: Flower will say so
            import_module(_ENGINE)


def keep_ray_on_loopback() -> bool:
    """Let every start of Ray in this process from now on use `own_arguments`; tell whether that is so.

    Flower starts Ray with a federation's arguments and nothing else, so this is the one place that holds for
    every federation, however it is started. False where Ray is not loaded, or is up: it is somebody's.
    """
    load_ray_engine()
    ray = sys.modules.get("ray")
    if ray is None or not hasattr(ray, "init") or threading.current_thread() is not threading.main_thread():
        return False
    if hasattr(ray.init, _WRAPPED):
        return True
    if ray.is_initialized():
        return False
    start = ray.init

    @wraps(start)
    def init(*args: Any, **kwargs: Any) -> Any:
        kwargs = {**init_args_told(), **kwargs}
        with leaving_if_stuck(START_S):
            if args or attaches(kwargs):  # its first argument is an address
                return start(*args, **kwargs)
            return start(**{**session_folder(), **own_arguments(kwargs)})

    setattr(init, _WRAPPED, True)
    setattr(ray, "init", init)  # noqa: B010 - a module has no such attribute for mypy
    return True
