"""``fedge run`` and ``fedge resume``: a run in this process, on Ray, with leaf servers, or on a SuperLink."""

import argparse
import os
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedge.commands.arguments import add_run_arguments, check_workers, project_of
from fedge.config.flat import check_keys, fold_tables
from fedge.config.flat import options as all_options
from fedge.config.registers.engines import CHOICES, engine_kind
from fedge.config.registers.option import ConfigError, Scalar
from fedge.launch.command_line import refuse_option_as_place
from fedge.launch.leaf_servers.leaf_command import add_leaves, refuse_with_leaves, restore_leaves
from fedge.launch.projects.project import CLIENT_APP, Project, parse_override
from fedge.process.collection import uncollected_imports
from fedge.process.endings import exits
from fedge.records.folder import find_run

if TYPE_CHECKING:
    from fedge.engine.federation import Federation
    from fedge.run.preparation.prepare import Prepared


def add_run(commands: Any) -> None:
    """Add the subcommands ``run`` and ``resume``."""
    run = commands.add_parser(
        "run",
        help="execute a run, like `flwr run`, with a reliable exit code",
        also=("train", "start", "simulate", "launch"),
    )
    add_run_arguments(run)
    add_leaves(run)
    run.set_defaults(command=_run, needs_room=True)
    resume = commands.add_parser(
        "resume", help="resume a stopped run with its original settings", also=("continue", "restart")
    )
    resume.add_argument(
        "run", nargs="?", default="latest", help="its folder, as runs/NAME (default: latest, the newest)"
    )
    resume.add_argument("-c", "--run-config", action="append", default=[], metavar="OVERRIDE",
        help="changed options, as 'num-server-rounds=200'; see docs/running.md")  # fmt: skip
    resume.add_argument("--engine", choices=CHOICES, help="default: the run's former engine")
    resume.add_argument(
        "--workers", type=int, help="inprocess: clients in training at a time (default: cores, or GPUs)"
    )
    resume.add_argument(
        "--address", metavar="HOST:PORT", help="flower: a Ray cluster for resuming (default: RAY_ADDRESS)"
    )
    resume.add_argument("--app", default=".", help="flower: folder of pyproject.toml (default: .)")
    resume.add_argument("--federation", help="flower: name in [tool.flwr.federations] (default: its default)")
    resume.add_argument(
        "--trust-code", action="store_true",
        help="trust code named by the run from outside Fedge; remembered",
    )  # fmt: skip
    add_leaves(resume)
    resume.set_defaults(command=_resume, needs_room=True)


def _run(options: argparse.Namespace) -> int:
    """Carry out ``fedge run``."""
    check_workers(options.workers)
    _use_cluster(options)
    refuse_option_as_place(options.app, "the folder of pyproject.toml")
    refuse_option_as_place(options.federation, "the federation")
    project = project_of(options)
    project.refuse_other_server()
    options.client_app = project.client_app
    run_config = project.run_config(options.run_config) | _explicit_options(options)
    federation = project.federation(options.federation)
    if project.packaged:
        with suppress(OSError):  # the terminal may be closed
            print(f"{project.why_packaged}: options and federations are Fedge's own", flush=True)
    address = project.address(options.federation)
    if address is not None:
        return _run_deployed(options, project, address, run_config)
    if federation.is_auto:
        from fedge.doctor.command import resolved  # measures a client; not needed by other runs

        federation, shares = resolved(federation, run_config)
        if not shares.per_gpu:  # with GPUs, one thread per GPU is best in process
            options.workers = options.workers or shares.at_a_time
    return _carry_out(options, run_config, federation)


def _run_deployed(
    options: argparse.Namespace, project: Project, address: str, run_config: dict[str, Scalar]
) -> int:
    """Carry out a run on the SuperLink at an address; returns the exit code."""
    from fedge.launch.deployed import run_deployed

    name = options.federation or project.default_federation
    with exits.signals_as_exceptions(exits.LEAVE_S) if options.owns_process else nullcontext():
        return run_deployed(project, name, address, run_config)


def _explicit_options(options: argparse.Namespace) -> dict[str, Scalar]:
    """Options given by dedicated arguments."""
    return {} if options.clients is None else {"clients": options.clients}


def _resume(options: argparse.Namespace) -> int:
    """Carry out ``fedge resume``: the run's own configuration, with overrides applied."""
    check_workers(options.workers)
    run_config, engine, federation, clients = _load_original_run(options.run)
    original_config = dict(run_config)
    for text in options.run_config:
        override = parse_override(text)
        check_keys(list(override))
        run_config = fold_tables({**run_config, **override})
    from fedge.run.preparation.foreign_parts import refuse_code_of_others

    refuse_code_of_others(original_config, run_config, options.trust_code)
    is_deployed = not options.engine and engine_kind(engine).on_ray and not federation.num_supernodes
    if not (options.engine or engine_kind(engine).chosen):
        restore_leaves(options, find_run(options.run, str(all_options()["runs-dir"][0])))
    options.engine = options.engine or engine
    if not federation.num_supernodes:  # a deployment's; elsewhere it has as many clients as the run
        federation = replace(federation, num_supernodes=clients)
    _use_cluster(options)
    if engine_kind(options.engine).on_ray:
        project = project_of(options)
        if (address := project.address(options.federation)) is not None:
            return _run_deployed(options, project, address, run_config)
        if is_deployed and options.federation is None:
            raise ConfigError(_no_deployment_message(project))
        federation = project.federation(options.federation)
    return _carry_out(options, run_config, federation)


def _no_deployment_message(project: Project) -> str:
    """Message for a run on SuperNodes without a named federation."""
    candidates = " or ".join(name for name in project.federations if project.address(name) is not None)
    return (
        f"this run has SuperNodes; resume it with --federation {candidates}"
        if candidates
        else f"this run has SuperNodes, but {project.path} has no federation with an address; resume it with "
        f"--app and the folder of its project, and --federation NAME"
    )


def _load_original_run(run: str) -> "tuple[dict[str, Scalar], str, Federation, int]":
    """Configuration, last engine, federation and number of clients of an existing run."""
    from fedge.config.registers.register import add_search_folders
    from fedge.config.registers.trust import own_folders
    from fedge.engine.federation import Federation
    from fedge.records.private_file import code_folders_of
    from fedge.run.preparation.resume import open_resumption, run_config_of

    resumption = open_resumption(find_run(run, str(all_options()["runs-dir"][0])))
    add_search_folders(*own_folders(code_folders_of(resumption.folder)))
    last = [{**resumption.run, **resumption.manifest}, *resumption.manifest.get("resumed", [])][-1]
    recorded = resumption.run["federation"]
    federation = Federation(recorded["num-supernodes"], recorded["num-cpus"], recorded["num-gpus"])
    return run_config_of(resumption), str(last["engine"]), federation, sum(resumption.run["clients_per_leaf"])


def _use_cluster(options: argparse.Namespace) -> None:
    """Set RAY_ADDRESS to the cluster given on the command line, for the processes starting Ray."""
    address = getattr(options, "address", None)
    if address is None:
        return
    if not engine_kind(options.engine).on_ray:
        raise ConfigError(
            "--address needs --engine flower, because threads do not use Ray; add --engine flower"
        )
    os.environ["RAY_ADDRESS"] = address


def _carry_out(options: argparse.Namespace, run_config: dict[str, Scalar], federation: "Federation") -> int:
    """Carry out a run on the chosen engine; returns the exit code."""
    from fedge.launch.flower_runs.flower import run_on_flower
    from fedge.launch.preflight import check

    kind = engine_kind(options.engine)
    if getattr(options, "owners", False) and not options.leaves:
        raise ConfigError("--owners needs leaf servers, but there are none; add --leaves HOST:PORT")
    if getattr(options, "leaves", None):
        return _run_with_leaves(options, run_config, federation)
    if not kind.chosen:
        raise ConfigError("this run has separate leaf servers; resume it with --leaves HOST:PORT")
    leave_s = exits.LEAVE_S + kind.ends_others_s
    with exits.signals_as_exceptions(leave_s) if options.owns_process else nullcontext():
        prepared = check(run_config, federation, on_ray=kind.on_ray)
        clients = prepared.num_clients or federation.num_supernodes
        if kind.in_this_process:
            federation = replace(federation, num_supernodes=clients)
            return _run_in_process(run_config, federation, options, prepared)
        config = prepared.config
        del prepared  # another process carries out the run and loads the data itself
        flower_federation = replace(federation, num_supernodes=clients)
        return run_on_flower(options.app, options.federation, run_config, config, flower_federation)


def _run_with_leaves(
    options: argparse.Namespace, run_config: dict[str, Scalar], federation: "Federation"
) -> int:
    """Carry out a run as the cloud of leaf servers in separate processes."""
    client_app = getattr(options, "client_app", CLIENT_APP)
    refuse_with_leaves(options.leaves, options.engine, options.workers, client_app, CLIENT_APP)
    from fedge.launch.leaf_servers.leaf import run_with_leaves
    from fedge.launch.preflight import check

    with exits.signals_as_exceptions() if options.owns_process else nullcontext():
        # with owners, the cloud has no windows
        prepared = check(run_config, replace(federation, num_supernodes=0) if options.owners else federation)
        num_clients = prepared.num_clients or (options.owners and prepared.config.clients)
        clients = num_clients if isinstance(num_clients, int) and num_clients else federation.num_supernodes
        federation = replace(federation, num_supernodes=clients)
        outcome = run_with_leaves(
            run_config, federation, prepared, options.leaves, options.certs, options.owns_process,
            owners=options.owners,
        )  # fmt: skip
    return outcome.exit_code


def _run_in_process(
    run_config: dict[str, Scalar],
    federation: "Federation",
    options: argparse.Namespace,
    prepared: "Prepared",
) -> int:
    """Carry out a run on threads of this process."""
    with uncollected_imports():  # loads torch, deferred past cheap checks
        from fedge.launch.simulate import client_app_named, run_in_process

    app = client_app_named(getattr(options, "client_app", CLIENT_APP))
    outcome = run_in_process(
        run_config, federation, options.workers, None, options.owns_process, prepared, app
    )
    return outcome.exit_code
