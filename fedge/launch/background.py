"""The SuperLink that `flwr run` of Flower 1.27 and later leaves in the background, looked at before a run.

It keeps the environment and the working directory of its first user: a later SEED does not reach its
runs, and they look for data, and put their folders, where it works. Such a run is refused with the words to
write.
Flower's changes to the project before Fedge's code runs are undone (`fedge.launch.moved`).
"""

import os
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from fedge.config.option import ConfigError, Scalar, shown
from fedge.launch.superlink import KEEP_ENVIRONMENT
from fedge.seeding import resolve_seed

_PORT = "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT"
_PORTS = ("39091", "39093")  # of Flower's SuperLink on this machine: its HTTP API's, its Control API's
_LOCAL = (None, ":local:", ":local-in-memory:")
_KNOWN_INIT = {"num-cpus", "num-gpus", "logging-level", "log-to-driver", "include-dashboard"}
_INSTEAD = "or use fedge run --engine flower, whose SuperLink is its own"


def refuse_what_does_not_reach(
    connection: Mapping[str, Any],
    configured_seed: Scalar,
    init_args: Mapping[str, Any],
    environment: Mapping[str, str] | None = None,
) -> None:
    """Raise ConfigError when the run would not follow this command.

    Args:
        connection: the SuperLink that Flower's configuration names.
        configured_seed: `seed` of the run config.
        init_args: of the federation for Ray, keys with dashes.
        environment: of this process by default.
    """
    variables = os.environ if environment is None else environment
    if dropped := sorted(set(init_args) - _KNOWN_INIT):
        raise ConfigError(
            f"flwr run of this Flower takes of options.backend.init-args only "
            f"{', '.join(sorted(_KNOWN_INIT))}, but the federation has {dropped[0]}; leave it out, {_INSTEAD}"
        )
    if connection.get("address") not in _LOCAL:
        if variables.get("SEED", "").strip():
            raise ConfigError(
                f"SEED must reach the run, but the SuperLink at {shown(connection['address'])} has an "
                f"environment of its own; write -c seed={variables['SEED'].strip()}"
            )
        return
    superlink = standing_superlink(variables)
    if superlink is not None:
        _refuse_another_start(superlink, configured_seed, variables)


def standing_superlink(environment: Mapping[str, str]) -> psutil.Process | None:
    """The process of the SuperLink that Flower keeps on this machine; None without one."""
    ports = (environment.get(_PORT, _PORTS[0]), environment.get("FLWR_LOCAL_CONTROL_API_PORT", _PORTS[1]))
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            words = process.cmdline()
            programs = [Path(word).name for word in words[:3]]
            if "flower-superlink" in programs and any(w.rpartition(":")[2] in ports for w in words[1:]):
                return process
    return None


def _refuse_another_start(
    superlink: psutil.Process, configured_seed: Scalar, variables: Mapping[str, str]
) -> None:
    """Raise ConfigError when a SuperLink was started with another seed, elsewhere, or to install packages."""
    end = f"end it, as kill {superlink.pid}, and say this again"
    who = f"the SuperLink in the background (process {superlink.pid})"
    try:
        started, place, words = superlink.environ(), superlink.cwd(), superlink.cmdline()
    except psutil.Error:
        raise ConfigError(f"{who} must be yours, but cannot be looked into; {_INSTEAD[3:]}") from None
    configured = int(configured_seed)
    wanted, there = (resolve_seed(configured, env)[0] for env in (variables, started))
    if wanted != there:
        had = f"started with SEED={started['SEED']}" if started.get("SEED") else "started without SEED"
        write = "" if started.get("SEED") else f", or write -c seed={wanted}"
        raise ConfigError(
            f"the seed must be {wanted}, but {who} was {had} and the run would have {there}; {end}{write}, "
            f"{_INSTEAD}"
        )
    if Path(place) != Path.cwd():
        raise ConfigError(
            f"data and run folders must be sought in {Path.cwd()}, but {who} works in {place}; {end}, "
            f"say cd {shlex.quote(place)} first, {_INSTEAD}"
        )
    if started.get(KEEP_ENVIRONMENT) != "1" and "--disable-runtime-dependency-installation" not in words:
        raise ConfigError(
            f"{who} must not install the app's dependencies anew for every run "
            f"(gigabytes, other versions), but was started without {KEEP_ENVIRONMENT}=1; {end}, {_INSTEAD}"
        )


def keep_this_environment() -> None:
    """Let a SuperLink that this process starts run apps in the environment that is there."""
    os.environ.setdefault(KEEP_ENVIRONMENT, "1")
