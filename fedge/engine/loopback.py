"""Ray restricted to this machine: every Ray started by a run listens on loopback only, without dashboard.

By default, Ray 2 listens on all interfaces without a password, and runs any code sent to it. To use other
machines, a run attaches explicitly to a cluster (``address`` in a federation's ``init-args``, or
RAY_ADDRESS); the cluster's addresses are left as they are.
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

from fedge.config.registers.option import ConfigError, shown
from fedge.engine.federation import TOLD, federation_of_this_process
from fedge.process.endings.exits import leaving_if_stuck
from fedge.process.endings.owner import note_owner, remove_ownerless
from fedge.process.endings.reaper import has_reaper, remove_at_end

LOOPBACK = "127.0.0.1"
KEEP = "FEDGE_KEEP_RAY_LOGS"  # if set, Ray's session folder is kept
START_S = 900.0  # longer than Ray waits for its own processes, or for a cluster
_OWN_ADDRESSES = ("", "local")  # addresses for a Ray started by the run
_TABLE = "options.backend.init-args"
_SIMULATION = "flwr-simulation"  # program whose process starts Ray in newer Flower versions
_ENGINE = "flwr.server.superlink.fleet.vce.backend.raybackend"
_WRAPPED = "_fedge_on_loopback"


def attaches(init_args: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> bool:
    """Whether a run attaches explicitly to an existing Ray cluster.

    Args:
        init_args: start arguments of Ray, keys with dashes or underscores.
        environment: environment variables; None for this process's.
    """
    variables = os.environ if environment is None else environment
    address = init_args.get("address")
    if address is None or address == "auto":
        address = variables.get("RAY_ADDRESS", "") or (address or "")
    return address not in _OWN_ADDRESSES


def refuse_listening_elsewhere(
    init_args: Mapping[str, Any], environment: Mapping[str, str] | None = None
) -> None:
    """Raise ConfigError if the federation's own Ray would be reachable from outside, or have a dashboard.

    Args:
        init_args: as for `attaches`.
        environment: as for `attaches`.
    """
    if attaches(init_args, environment):
        return
    arguments = {key.replace("-", "_"): value for key, value in init_args.items()}
    address = arguments.get("_node_ip_address")
    if address is not None and not is_loopback(address):
        raise ConfigError(
            f"{_TABLE}._node-ip-address must be a loopback address, because Ray runs code from anyone, "
            f'but is {shown(address)}; remove it, or attach to a cluster with {_TABLE}.address="HOST:PORT"'
        )
    if arguments.get("include_dashboard"):
        raise ConfigError(
            f"{_TABLE}.include-dashboard must be false, because Ray's dashboard runs code from anyone, "
            f"but is {shown(arguments['include_dashboard'])}; remove it, or attach to a cluster with "
            f"a dashboard"
        )


def is_loopback(address: Any) -> bool:
    """Whether an address is a loopback address."""
    if address == "localhost":
        return True
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    return (getattr(parsed, "ipv4_mapped", None) or parsed).is_loopback


def own_arguments(init_args: Mapping[str, Any]) -> dict[str, Any]:
    """Start arguments for the run's own Ray: `init_args`, on loopback, without dashboard.

    Raises:
        ConfigError: `init_args` contradict this.
    """
    refuse_listening_elsewhere(init_args)
    address = init_args.get("_node_ip_address") or LOOPBACK
    # "local", because by default Ray attaches to any cluster on this machine
    return {**init_args, "address": "local", "_node_ip_address": address, "include_dashboard": False}


def session_folder() -> dict[str, str]:
    """Start arguments for a private folder of a Ray's logs and sockets, removed with the run.

    Ray's own folder is open to all accounts; the parent of this one is not. Folders of runs killed with their
    reapers are removed first. Empty, for Ray's default, if there is no reaper to remove the folder or the
    user wants to keep it (`KEEP`).
    """
    if os.environ.get(KEEP) or not has_reaper():
        return {}
    parent = ray_folder()[1]
    remove_ownerless(parent.glob("f*"))
    folder = _make_private(parent, f"f{os.getpid()}")
    remove_at_end(folder)
    note_owner(folder)
    return {"_temp_dir": str(folder / "s")}  # short, because socket paths have a limited length


def ray_folder(environment: Mapping[str, str] | None = None) -> tuple[str, Path]:
    """The variable for Ray's folder of temporary files, as for Ray itself, and the folder.

    Args:
        environment: as for `attaches`.
    """
    variables = os.environ if environment is None else environment
    names = ("RAY_TMPDIR", "TMPDIR") if sys.platform.startswith("linux") else ("RAY_TMPDIR",)
    name = next((name for name in names if variables.get(name)), "RAY_TMPDIR")
    return name, Path(variables.get(name) or "/tmp").absolute() / "ray"


def _make_private(parent: Path, name: str) -> Path:
    """Create a folder for this account only, under another name if its own is taken."""
    if not parent.is_dir():
        with suppress(FileExistsError):
            parent.mkdir(parents=True)
            parent.chmod(0o1777)  # like /tmp: shared by the Rays of all accounts
    folder = parent / name
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        folder = folder.with_name(f"{name}-{secrets.token_hex(4)}")
        folder.mkdir(mode=0o700)
    return folder


def passed_init_args() -> dict[str, Any]:
    """Start arguments of Ray, if Flower passes on fewer than the federation has."""
    if TOLD not in os.environ:
        return {}
    init_args = federation_of_this_process().init_args
    return {key.replace("-", "_"): value for key, value in init_args.items()}


def load_ray_engine() -> None:
    """Load Flower's Ray engine in a simulation process.

    Newer Flower versions load it after the apps, too late to change how Ray is started.
    """
    if Path(sys.argv[0] if sys.argv else "").name == _SIMULATION:
        with suppress(ImportError):  # moved in another Flower, or no Ray: Flower reports it
            import_module(_ENGINE)


def keep_ray_on_loopback() -> bool:
    """Make every later start of Ray in this process use `own_arguments`; returns whether this was possible.

    Flower starts Ray only with a federation's arguments, so this one place covers every federation, however
    it is started. False if Ray is not loaded, in a thread other than the main one, or if Ray is already
    running, started by others.
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
        kwargs = {**passed_init_args(), **kwargs}
        with leaving_if_stuck(START_S):
            if args or attaches(kwargs):  # the first argument is an address
                return start(*args, **kwargs)
            return start(**{**session_folder(), **own_arguments(kwargs)})

    setattr(init, _WRAPPED, True)
    setattr(ray, "init", init)  # noqa: B010 - a module has no such attribute for mypy
    return True
