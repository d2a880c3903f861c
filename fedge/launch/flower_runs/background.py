"""Checks of the background SuperLink kept between runs by `flwr run` of Flower 1.41 and 1.42.

It keeps the environment and the working directory of its first user: a later SEED does not reach its runs,
and it looks for data and run folders in its own directory. Such a run is refused, with the command to use
instead. Flower's changes to the project before Fedge's code runs are undone
(`fedge.launch.projects.moved_federations`).
"""

import os
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from fedge.config.registers.option import ConfigError, Scalar, shown
from fedge.launch.flower_runs.superlink import KEEP_ENVIRONMENT
from fedge.seeding import resolve_seed

_PORT = "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT"
_PORTS = ("39091", "39093")  # HTTP API and Control API of Flower's SuperLink
_LOCAL = (None, ":local:", ":local-in-memory:")
_KNOWN_INIT = {"num-cpus", "num-gpus", "logging-level", "log-to-driver", "include-dashboard"}
_INSTEAD = "or use fedge run --engine flower, which starts its own SuperLink"


def refuse_ignored_settings(
    connection: Mapping[str, Any],
    configured_seed: Scalar,
    init_args: Mapping[str, Any],
    environment: Mapping[str, str] | None = None,
) -> None:
    """Raise ConfigError if the run would not follow this command's seed, directory or options.

    Args:
        connection: the SuperLink named in Flower's configuration.
        configured_seed: `seed` of the run config.
        init_args: the federation's arguments for Ray, keys with dashes.
        environment: environment variables; None for this process's.
    """
    variables = os.environ if environment is None else environment
    if dropped := sorted(set(init_args) - _KNOWN_INIT):
        raise ConfigError(
            f"options.backend.init-args for flwr run of this Flower version may only have "
            f"{', '.join(sorted(_KNOWN_INIT))}, but the federation has {dropped[0]}; remove it, {_INSTEAD}"
        )
    if connection.get("address") not in _LOCAL:
        if variables.get("SEED", "").strip():
            raise ConfigError(
                f"SEED must reach the run, but the SuperLink at {shown(connection['address'])} has its "
                f"own environment; use -c seed={variables['SEED'].strip()}"
            )
        return
    superlink = standing_superlink(variables)
    if superlink is not None:
        _refuse_mismatched_superlink(superlink, configured_seed, variables)


def standing_superlink(environment: Mapping[str, str]) -> psutil.Process | None:
    """Process of the SuperLink kept by Flower on this machine; None without one."""
    ports = (environment.get(_PORT, _PORTS[0]), environment.get("FLWR_LOCAL_CONTROL_API_PORT", _PORTS[1]))
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            command = process.cmdline()
            programs = [Path(word).name for word in command[:3]]
            if "flower-superlink" in programs and any(w.rpartition(":")[2] in ports for w in command[1:]):
                return process
    return None


def _refuse_mismatched_superlink(
    superlink: psutil.Process, configured_seed: Scalar, variables: Mapping[str, str]
) -> None:
    """Raise ConfigError if the SuperLink has another seed or directory, or installs packages for each run."""
    end = f"end it (kill {superlink.pid}) and repeat the command"
    superlink_text = f"the background SuperLink (process {superlink.pid})"
    try:
        environment, folder, command = superlink.environ(), superlink.cwd(), superlink.cmdline()
    except psutil.Error:
        raise ConfigError(
            f"{superlink_text} must belong to this account, but it cannot be inspected; {_INSTEAD[3:]}"
        ) from None
    configured = int(configured_seed)
    expected_seed, seed_of_run = (resolve_seed(configured, env)[0] for env in (variables, environment))
    if expected_seed != seed_of_run:
        start_description = (
            f"started with SEED={environment['SEED']}" if environment.get("SEED") else "started without SEED"
        )
        alternative = "" if environment.get("SEED") else f", or add -c seed={expected_seed}"
        raise ConfigError(
            f"the seed must be {expected_seed}, but {superlink_text} was {start_description} and the run "
            f"would have {seed_of_run}; {end}{alternative}, {_INSTEAD}"
        )
    if Path(folder) != Path.cwd():
        raise ConfigError(
            f"the working directory must be {Path.cwd()}, but {superlink_text} works in {folder}; {end}, "
            f"run cd {shlex.quote(folder)} first, {_INSTEAD}"
        )
    if (
        environment.get(KEEP_ENVIRONMENT) != "1"
        and "--disable-runtime-dependency-installation" not in command
    ):
        raise ConfigError(
            f"{superlink_text} must not install the app's dependencies again for every run "
            f"(gigabytes, other versions), but it was started without {KEEP_ENVIRONMENT}=1; {end}, {_INSTEAD}"
        )


def keep_this_environment() -> None:
    """Make a SuperLink started by this process run apps in the installed environment."""
    os.environ.setdefault(KEEP_ENVIRONMENT, "1")
