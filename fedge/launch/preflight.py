"""Checks before any worker starts: configuration, federation, data, GPU (contract C10)."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from fedge.config.config import Config
from fedge.config.flat import value_of
from fedge.config.registers.option import ConfigError, Scalar, shown
from fedge.config.registers.register import refuse_run_in_import
from fedge.data.prepared import load_source, shape_of
from fedge.engine.cluster import refuse_missing_on_cluster
from fedge.engine.federation import TOLD, Federation, refuse_hidden_gpu, refuse_missing_resources
from fedge.engine.loopback import attaches, refuse_listening_elsewhere
from fedge.flower import moves_federations, refuse_untested_flower, uses_superlink
from fedge.launch.flower_runs.background import keep_this_environment, refuse_ignored_settings
from fedge.launch.flower_runs.ray_start import refuse_ray_that_cannot_start
from fedge.launch.patience import reporting_slow_code
from fedge.launch.projects.moved_federations import connections, flower_config, restore_commented_lines
from fedge.launch.projects.packaged import is_packaged, packaged_file
from fedge.launch.projects.project import Project, parse_override, read_toml, refuse_unquoted
from fedge.process.logs import quiet_flower_log
from fedge.process.resources.room import refuse_low_limits
from fedge.records.folder import find_run, refuse_taken_name
from fedge.records.lock import RunLock
from fedge.run.preparation.parts import refuse_parts_that_do_not_fit
from fedge.run.preparation.prepare import Handover, Load, Prepared, deal_data, prepare_config
from fedge.run.preparation.resume import Resumption, find_resumption
from fedge.seeding import resolve_seed
from fedge.trackers.tracker import refuse_missing_extra

_SUPERNODES = "options.num-supernodes"


@reporting_slow_code()
@quiet_flower_log()
def check(
    run_config: Mapping[str, Any],
    federation: Federation,
    on_ray: bool = False,
    load: Load = load_source,
    is_sized: bool = False,
) -> Prepared:
    """Prepared run on a federation, after all checks short of starting it.

    Args:
        run_config: Flower's flat mapping.
        federation: federation of the run.
        on_ray: whether the clients are to run on Ray.
        load: loader of windows, which may cache them for several checks.
        is_sized: whether the federation's number of clients is fixed independently of the run.

    Raises:
        ConfigError: the run cannot work.
    """
    refuse_run_in_import()
    refuse_low_limits()
    refuse_untested_flower()
    prepared = prepare_config(run_config)
    config, seed = prepared.config, prepared.seed
    refuse_missing_extra(config.tracker)
    refuse_parts_that_do_not_fit(config)
    resumed = _load_resumption(config, seed)
    resumption = None if resumed is None else Handover(resumed)
    if not (on_ray and attaches(federation.init_args)):
        refuse_missing_resources(federation, on_ray)
    deal, num_clients, shape = None, 0, None
    if federation.is_auto:
        raise ConfigError(
            'options.backend.client-resources "auto" is for fedge run only; use the values printed by fedge '
            "doctor"
        )
    if federation.num_supernodes:
        if on_ray:
            refuse_listening_elsewhere(federation.init_args)
            refuse_ray_that_cannot_start()
            if attaches(federation.init_args):
                refuse_missing_on_cluster(federation)
            refuse_hidden_gpu(config.train.device, federation)
        num_clients, is_replaceable = (
            (federation.num_supernodes, False) if is_sized else _num_clients(config, federation, resumed)
        )
        dealt = deal_data(config, seed, num_clients, resumed, load, is_replaceable)
        deal, num_clients, shape = Handover(dealt), sum(dealt.clients_per_leaf), shape_of(dealt.windows)
    devices = {} if resumed is None else resumed.run.get("devices", {})
    return replace(
        prepared, resumption=resumption, deal=deal, num_clients=num_clients, shape=shape, computed_on=devices
    )


def _num_clients(config: Config, federation: Federation, resumed: Resumption | None) -> tuple[int, bool]:
    """Number of clients of a run, and whether one client per user may replace it."""
    if isinstance(config.clients, int):
        return config.clients, False
    if federation.is_default and resumed is not None:
        return sum(resumed.run["clients_per_leaf"]), False
    return federation.num_supernodes, federation.is_default


def _load_resumption(config: Config, seed: int) -> Resumption | None:
    """The run to resume; None for a new run. ConfigError if resuming is impossible."""
    if not config.resume:
        refuse_taken_name(config.runs_dir, config.run_name)
        return None
    RunLock(find_run(config.resume, config.runs_dir, "resume")).close()
    return find_resumption(config, seed)


REFUSED = 4  # exit code, as for `fedge run`


class _UnclearCommand(Exception):
    """Error: only Flower can interpret the command line."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _UnclearCommand(message)


def _refuse_mixed(overrides: Sequence[str]) -> None:
    """Raise ConfigError for words understood by `fedge run` only; Flower would misread file names."""
    if len(overrides) > 1 and any(text.strip().endswith(".toml") for text in overrides):
        raise ConfigError(
            f"-c of flwr run must be one .toml file or key=value pairs, not both, but is {list(overrides)}; "
            "use fedge run, which takes any number of both"
        )
    for text in overrides:
        if is_packaged(text.strip()):
            raise ConfigError(
                f"-c of flwr run must be a .toml file or key=value pairs, but is {text.strip()!r}; "
                f"use fedge run, or the file {packaged_file(text.strip())}"
            )


def _num_supernodes(federation_config: str | None) -> int | None:
    """Number of SuperNodes in ``--federation-config``; None for any other content."""
    try:
        settings = parse_override(federation_config or "")
    except ConfigError:
        return None
    count = settings.pop(_SUPERNODES, None)
    return count if type(count) is int and count > 0 and not settings else None


def _prepare_superlink(
    name: str | None, run_config: Mapping[str, Any], federation: Federation, stream: bool
) -> None:
    """Raise ConfigError unless the background SuperLink uses this command's seed, directory and options."""
    path = flower_config()
    superlinks, default = connections(read_toml(path, "Flower's configuration") if path.is_file() else {})
    link = superlinks.get(name or default or "", {})
    refuse_ignored_settings(link, value_of(run_config, "seed"), federation.init_args)
    keep_this_environment()
    if not stream:
        print("\nfedge: the run continues in the background: fedge status, or flwr run --stream", flush=True)


def _refuse_unforwarded_seed(address: str | None, configured: Scalar) -> None:
    """Raise ConfigError if SEED is set here, but the run's server is elsewhere and has another seed."""
    if address is None or (seed := resolve_seed(int(configured))[0]) == int(configured):
        return
    raise ConfigError(
        f"SEED must reach the run, but the SuperLink at {shown(address)} has its own environment, and "
        f"the run would have seed {configured}; use -c seed={seed}, or fedge run, which passes SEED on"
    )


def check_flwr_run(arguments: Sequence[str]) -> None:
    """Check the command line of ``flwr run``; exit with one line if the run cannot work.

    Flower would start the simulation first, and show a traceback for an unknown key. Command lines that
    cannot be interpreted here are left to Flower.

    Args:
        arguments: the words after ``flwr run``.
    """
    if TOLD in os.environ:  # already checked by `fedge run`
        return
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("app", nargs="?", default=".")
    parser.add_argument("federation", nargs="?")
    parser.add_argument("--run-config", "-c", action="append", default=[])
    parser.add_argument("--federation-config")
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--format")
    try:
        options = parser.parse_intermixed_args(list(arguments))
    except _UnclearCommand:
        return
    supernodes = _num_supernodes(options.federation_config)
    if options.app.startswith("@") or (options.federation_config and supernodes is None):
        return
    try:
        if moves_federations():
            with suppress(OSError, ValueError):  # Project reports errors in the file
                restore_commented_lines(Path(options.app) / "pyproject.toml")
        _refuse_mixed(options.run_config)
        refuse_unquoted([text for text in options.run_config if not text.strip().endswith(".toml")])
        project = Project(Path(options.app))
        project.refuse_unknown_to_flower(options.federation)
        # Flower joins several -c with spaces
        overrides = [" ".join(options.run_config)] if options.run_config else []
        federation = project.federation(options.federation)
        if supernodes is not None:
            federation = replace(federation, num_supernodes=supernodes, is_default=False)
        run_config = project.run_config(overrides)
        project.refuse_undeclared(overrides)
        check(run_config, federation, on_ray=True, is_sized=True)
        if not moves_federations():
            _refuse_unforwarded_seed(project.address(options.federation), value_of(run_config, "seed"))
        if uses_superlink():
            _prepare_superlink(options.federation, run_config, federation, options.stream)
    except ConfigError as error:
        print(f"\nfedge: {error}", file=sys.stderr, flush=True)
        raise SystemExit(REFUSED) from None
