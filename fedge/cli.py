# PYTHON_ARGCOMPLETE_OK
"""The command `fedge`.

Exit codes: 0 completed, 2 a command line that cannot be read, 3 partial, 4 failed or refused, 5 stalled,
130 on Ctrl-C, 143 on SIGTERM, 141 when nobody reads what it prints; of `fedge status` also 1, still running.
"""

import argparse
import json
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedge.config.describe import json_schema, option_table
from fedge.config.flat import check_keys, fold_tables
from fedge.config.flat import options as all_options
from fedge.config.option import ConfigError, Scalar
from fedge.datasets.command import add_datasets
from fedge.launch.clock_command import add_clock
from fedge.launch.command_line import Parser, read, refuse_misplaced, show_options
from fedge.launch.completion import SHELLS, complete, shell_code
from fedge.launch.deal import add_deal
from fedge.launch.leaf_command import add_leaf, add_leaves, refuse_with_leaves
from fedge.launch.new_project import new_project
from fedge.launch.node_command import add_node
from fedge.launch.packaged import described
from fedge.launch.project import CLIENT_APP, Project, parse_override
from fedge.launch.superlink_command import add_superlink
from fedge.link.command import add_commands as add_link_commands
from fedge.process import exits
from fedge.process.collection import spared_imports
from fedge.process.streams import forget_unread, open_missing_streams, replace_unprintable
from fedge.records.folder import find_run
from fedge.report.commands import add_commands
from fedge.use.commands import add_commands as add_model_commands

if TYPE_CHECKING:
    from fedge.engine.federation import Federation
    from fedge.run.prepare import Prepared

# What a command needs is loaded when it is carried out: shells ask for completion at every key.


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, of this process if `argv` is None; returns the exit code."""
    owns_process = argv is None
    if owns_process:
        open_missing_streams()
        replace_unprintable()
    try:
        _refuse_lost_folder()
        parser = _parser()
        complete(parser)
        options = read(parser, sys.argv[1:] if argv is None else argv)
        options.owns_process = owns_process
        return int(options.command(options))
    except BrokenPipeError:  # whoever read what is printed has gone, as `head` does
        return exits.UNREAD
    except ConfigError as error:
        print(f"fedge: {error}", file=sys.stderr)
        return exits.FAILED
    except KeyboardInterrupt as error:
        return (exits.interrupted_by(error) or exits.Interrupted()).exit_code
    finally:
        if owns_process:
            forget_unread()


def _refuse_lost_folder() -> None:
    """Raise ConfigError in a working directory that is gone: libraries end the process there, in riddles."""
    try:
        Path.cwd()
    except OSError as error:
        raise ConfigError(
            f"the working directory must be there, but: {error.strerror}; cd to one that is"
        ) from None


def _parser() -> Parser:
    """Return the parser of all subcommands."""
    parser = Parser(prog="fedge", description="Hierarchical, clustered federated learning.")
    parser.add_argument("--version", action="version", version=f"fedge {version('fedge')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_run_commands(commands)
    _add_profile(commands)
    _add_doctor(commands)
    _add_project_commands(commands)
    add_deal(commands)
    add_clock(commands)
    add_datasets(commands)
    add_commands(commands)
    add_model_commands(commands)
    add_link_commands(commands)
    return parser


def _add_run_commands(commands: Any) -> None:
    """Add what carries runs out and goes on with them."""
    run = commands.add_parser(
        "run", help="carry out a run, as `flwr run` would, with an exit code that tells the truth"
    )
    _add_run_arguments(run)
    add_leaves(run)
    run.set_defaults(command=_run)
    status = commands.add_parser("status", help="print how a run stands; the exit code is the run's")
    status.add_argument("run", nargs="?", default="latest", help="run folder or its name (default: latest)")
    status.add_argument("--runs-dir", default="runs", help="folder of all run folders (default: runs)")
    status.set_defaults(command=_print_status)
    resume = commands.add_parser("resume", help="go on with a run that was stopped, as it began")
    resume.add_argument(
        "run", nargs="?", default="latest", help="its folder, as runs/NAME (default: latest, the newest)"
    )
    resume.add_argument("-c", "--run-config", action="append", default=[], metavar="OVERRIDE",
        help="what is to differ, as 'num-server-rounds=200'; see docs/running.md for what may")  # fmt: skip
    resume.add_argument("--engine", choices=("inprocess", "flower"), help="default: the one that it ran on")
    resume.add_argument(
        "--workers", type=int, help="inprocess: clients that train at a time (default: cores, or GPUs)"
    )
    resume.add_argument("--app", default=".", help="flower: folder of pyproject.toml (default: .)")
    resume.add_argument("--federation", help="flower: name in [tool.flwr.federations] (default: its default)")
    resume.add_argument(
        "--trust-code", action="store_true",
        help="import code that the run names and that is not Fedge's; remembered",
    )  # fmt: skip
    add_leaves(resume)
    resume.set_defaults(command=_resume)
    sweep = commands.add_parser(
        "sweep", help="carry out many runs, several at a time, and compare them; again: go on"
    )
    sweep.add_argument(
        "files", nargs="+", type=Path, metavar="FILE.toml", help="sweep files; see docs/sweeps.md"
    )
    sweep.add_argument("--dry-run", action="store_true", help="check and list the runs, start none")
    sweep.add_argument(
        "--workers", type=int, default=1, help="clients that train at a time in a run (default: 1)"
    )
    sweep.add_argument("--jobs", type=int, help="runs at a time (default: cores divided by workers)")
    sweep.add_argument(
        "--launcher", choices=("local", "slurm", "ray"), default="local",
        help="where runs are carried out: here, as an array of Slurm jobs, whose script is written, or as "
        "tasks of a Ray cluster",
    )  # fmt: skip
    sweep.add_argument("--address", metavar="HOST:PORT", help="ray: of the cluster (default: RAY_ADDRESS)")
    sweep.add_argument(
        "--sbatch",
        default="",
        metavar="OPTIONS",
        help='slurm: for sbatch, as --sbatch="--time=02:00:00 --mem=4G"',
    )
    sweep.add_argument("--submit", action="store_true", help="slurm: hand the script to sbatch")
    sweep.add_argument("--only", metavar="RUN", help="carry out one run of the sweep, and compare nothing")
    sweep.set_defaults(command=_sweep)


def _add_profile(commands: Any) -> None:
    """Add what tells where memory goes."""
    profile = commands.add_parser("profile", help="show where a run's memory goes, on either engine")
    _add_run_arguments(profile)
    profile.add_argument(
        "-o", "--output", help="folder of the profile (default: profiles/TIME-ENGINE), or page"
    )
    profile.add_argument(
        "--compare", nargs=2, metavar=("A", "B"), help="compare two profiles, by their folders: before, after"
    )
    profile.add_argument(
        "--max-growth",
        type=float,
        metavar="PERCENT",
        help="with --compare: exit code 4 if RSS or USS grew more",
    )
    profile.set_defaults(command=_profile)


def _add_doctor(commands: Any) -> None:
    """Add what says what a machine can do."""
    doctor = commands.add_parser("doctor", help="say what this machine and environment can do for a run")
    _add_run_arguments(doctor)
    doctor.add_argument("--json", action="store_true", help="print all of it for programs")
    doctor.set_defaults(command=_doctor)


def _add_project_commands(commands: Any) -> None:
    """Add what helps to write a study: projects, configurations, options, tables, completion."""
    new = commands.add_parser("new", help="write a small project with its own model, options and federations")
    new.add_argument("folder", type=Path, help="its folder, new or empty, which gives its name: my-study")
    new.set_defaults(command=_new)
    add_superlink(commands)
    add_leaf(commands)
    add_node(commands)
    configs = commands.add_parser("configs", help="list the configurations that come with Fedge, for -c")
    configs.set_defaults(command=_print_configs)
    completion = commands.add_parser(
        "completion", help='print what a shell needs to complete words: eval "$(fedge completion bash)"'
    )
    completion.add_argument("shell", choices=SHELLS)
    completion.set_defaults(command=_print_completion)
    options = commands.add_parser("options", help="print a table of all configuration keys (Markdown)")
    options.add_argument(
        "--json-schema", nargs="?", const="config", choices=("config", "pyproject"),
        help="print a JSON schema instead, with which editors check a file for -c, or pyproject.toml",
    )  # fmt: skip
    options.set_defaults(command=_print_options)
    methods = commands.add_parser("methods", help="list what clients can do, by name (train.algorithm)")
    methods.set_defaults(command=_print_methods)
    tables = commands.add_parser("tables", help="print what every column of a run's tables means (Markdown)")
    tables.set_defaults(command=_print_tables)


def _add_run_arguments(parser: Parser) -> None:
    """Add what says which run is meant."""
    parser.add_argument(
        "app", nargs="?", default=".", help="folder of pyproject.toml, or of none: all defaults (default: .)"
    )
    parser.add_argument(
        "federation", nargs="?", help="name in [tool.flwr.federations] (default: its default)"
    )
    parser.add_argument(
        "-c", "--run-config", action="append", default=[], metavar="OVERRIDE",
        help="'key=value …', FILE.toml or one of `fedge configs`, as fedge:hierfl; repeatable, later win",
    )  # fmt: skip
    parser.add_argument(
        "--engine",
        choices=("inprocess", "flower"),
        default="inprocess",
        help="threads here, or Flower on Ray",
    )
    parser.add_argument(
        "--address", metavar="HOST:PORT", help="flower: a Ray cluster to use (default: RAY_ADDRESS)"
    )
    parser.add_argument(
        "--workers", type=int, help="inprocess: clients that train at a time (default: cores, or GPUs)"
    )
    parser.add_argument(
        "--clients", type=int, metavar="N",
        help="number of clients, on either engine (default: the option clients; auto: one per user)",
    )  # fmt: skip
    show_options(parser)


def _run(options: argparse.Namespace) -> int:
    """Carry out ``fedge run``."""
    _check_workers(options.workers)
    _use_cluster(options)
    refuse_misplaced(options.app, "the folder of pyproject.toml")
    refuse_misplaced(options.federation, "the federation")
    project = _project(options)
    project.refuse_other_server()
    options.client_app = project.client_app
    run_config = project.run_config(options.run_config) | _said(options)
    federation = project.federation(options.federation)
    if project.packaged:
        with suppress(OSError):  # a run does not care whether anybody reads it
            print("no pyproject.toml in this folder: options and federations are Fedge's own", flush=True)
    address = project.address(options.federation)
    if address is not None:
        return _run_deployed(options, project, address, run_config)
    if federation.is_auto:
        from fedge.doctor.command import resolved  # measures a client: other runs need not load it

        federation, shares = resolved(federation, run_config)
        if not shares.per_gpu:  # on GPUs, as many threads as there are suit a run in this process best
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


def _said(options: argparse.Namespace) -> dict[str, Scalar]:
    """Return the options that have an argument of their own."""
    return {} if options.clients is None else {"clients": options.clients}


def _project(options: argparse.Namespace) -> Project:
    """Return the project that is meant; from here on `options.app` is its folder."""
    project = Project(Path(options.app))
    options.app = str(project.folder)
    return project


# after a signal; with Flower, its processes are ended first
_LEAVE_S = {"inprocess": exits.LEAVE_S, "flower": exits.LEAVE_S + 4}


def _check_workers(workers: int | None) -> None:
    """Raise ConfigError for a number of workers that cannot be."""
    if workers is not None and workers < 1:
        raise ConfigError(f"--workers must be at least 1, but is {workers}; leave it out for one per core")


def _resume(options: argparse.Namespace) -> int:
    """Carry out ``fedge resume``: the run's own configuration, with `options` on top."""
    _check_workers(options.workers)
    run_config, engine, federation = _as_it_began(options.run)
    named = dict(run_config)
    for text in options.run_config:
        override = parse_override(text)
        check_keys(list(override))
        run_config = fold_tables({**run_config, **override})
    from fedge.run.foreign_parts import refuse_code_of_others

    refuse_code_of_others(named, run_config, options.trust_code)
    options.engine = options.engine or engine
    if options.engine == "flower":
        project = _project(options)
        if (address := project.address(options.federation)) is not None:
            return _run_deployed(options, project, address, run_config)
        federation = project.federation(options.federation)
    return _carry_out(options, run_config, federation)


def _as_it_began(run: str) -> "tuple[dict[str, Scalar], str, Federation]":
    """Return configuration, last engine and federation of the run that a word names."""
    from fedge.config.register import look_in
    from fedge.config.trust import own_folders
    from fedge.engine.federation import Federation
    from fedge.records.private import code_folders_of
    from fedge.run.resume import open_resumption, run_config_of

    found = open_resumption(find_run(run, str(all_options()["runs-dir"][0])))
    look_in(*own_folders(code_folders_of(found.folder)))
    last = [{**found.run, **found.manifest}, *found.manifest.get("resumed", [])][-1]
    described = found.run["federation"]
    federation = Federation(described["num-supernodes"], described["num-cpus"], described["num-gpus"])
    return run_config_of(found), str(last["engine"]), federation


def _use_cluster(options: argparse.Namespace) -> None:
    """Let Ray, which this process starts others for, use the cluster that the command line names."""
    address = getattr(options, "address", None)
    if address is None:
        return
    if options.engine != "flower":
        raise ConfigError("--address needs --engine flower, because threads use no Ray; add that")
    os.environ["RAY_ADDRESS"] = address


def _carry_out(options: argparse.Namespace, run_config: dict[str, Scalar], federation: "Federation") -> int:
    """Carry out a run on the engine that `options` name; returns the exit code."""
    from fedge.launch.flower import run_on_flower
    from fedge.launch.preflight import check

    on_flower = options.engine == "flower"
    if getattr(options, "owners", False) and not options.leaves:
        raise ConfigError("--owners is for leaf servers, but there are none; add --leaves HOST:PORT")
    if getattr(options, "leaves", None):
        return _run_with_leaves(options, run_config, federation)
    if options.engine not in _LEAVE_S:
        raise ConfigError("this run has leaf servers of its own; go on with --leaves HOST:PORT")
    with exits.signals_as_exceptions(_LEAVE_S[options.engine]) if options.owns_process else nullcontext():
        prepared = check(run_config, federation, on_ray=on_flower)
        clients = prepared.num_clients or federation.num_supernodes
        if not on_flower:
            federation = replace(federation, num_supernodes=clients)
            return _run_in_process(run_config, federation, options, prepared)
        config = prepared.config
        del prepared  # the run is another process's, and reads the data itself
        there = replace(federation, num_supernodes=clients)
        return run_on_flower(options.app, options.federation, run_config, config, there)


def _run_with_leaves(
    options: argparse.Namespace, run_config: dict[str, Scalar], federation: "Federation"
) -> int:
    """Run as the cloud of leaf servers that are processes of their own."""
    named = getattr(options, "client_app", CLIENT_APP)
    refuse_with_leaves(options.engine, options.workers, named, CLIENT_APP)
    from fedge.launch.leaf import run_with_leaves
    from fedge.launch.preflight import check

    with exits.signals_as_exceptions() if options.owns_process else nullcontext():
        # owners have the windows, and the cloud none
        prepared = check(run_config, replace(federation, num_supernodes=0) if options.owners else federation)
        said = prepared.num_clients or (options.owners and prepared.config.clients)
        clients = said if isinstance(said, int) and said else federation.num_supernodes
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
    """Run on threads of this process."""
    with spared_imports():  # loads torch, which a refused run need not wait for
        from fedge.launch.simulate import client_app_named, run_in_process

    app = client_app_named(getattr(options, "client_app", CLIENT_APP))
    outcome = run_in_process(
        run_config, federation, options.workers, None, options.owns_process, prepared, app
    )
    return outcome.exit_code


def _sweep(options: argparse.Namespace) -> int:
    """Carry out ``fedge sweep``."""
    from fedge.sweep.command import run_sweeps  # loads Polars, which other commands need not wait for

    return run_sweeps(options)


def _profile(options: argparse.Namespace) -> int:
    """Carry out ``fedge profile``."""
    _check_workers(options.workers)
    from fedge.profile.command import profile

    return profile(options)


def _doctor(options: argparse.Namespace) -> int:
    """Carry out ``fedge doctor``."""
    _check_workers(options.workers)
    from fedge.doctor.command import doctor

    return doctor(options)


def _print_status(options: argparse.Namespace) -> int:
    """Carry out ``fedge status``; its exit code is the run's."""
    from fedge.records.status import read_status, status_lines

    status = read_status(find_run(options.run, options.runs_dir))
    print("\n".join(status_lines(status)))
    return status.exit_code


def _new(options: argparse.Namespace) -> int:
    """Carry out ``fedge new``."""
    for file in new_project(options.folder):
        print(file)
    print(f"next: cd {shlex.quote(str(options.folder))} && fedge run -c num-server-rounds=5")
    return 0


def _print_configs(_: argparse.Namespace) -> int:
    """Carry out ``fedge configs``."""
    found = list(described())
    width = max(len(name) for name, _ in found)
    for name, meaning in found:
        print(f"{name:{width}}  {meaning}")
    return 0


def _print_completion(options: argparse.Namespace) -> int:
    """Carry out ``fedge completion``."""
    print(shell_code(options.shell))
    return 0


def _print_options(options: argparse.Namespace) -> int:
    """Carry out ``fedge options``."""
    if options.json_schema:
        schema = json_schema(options.json_schema == "pyproject")
        print(json.dumps(schema, indent=2))
    else:
        print(option_table())
    return 0


def _print_methods(_: argparse.Namespace) -> int:
    """Print what stands behind every name of `train.algorithm`."""
    from fedge.config.parts import ALGORITHMS

    width = max(map(len, ALGORITHMS.names))
    for entry in ALGORITHMS:
        print(f"{entry.name:{width}}  {entry.doc}")
    return 0


def _print_tables(_: argparse.Namespace) -> int:
    """Carry out ``fedge tables``."""
    from fedge.records.catalog import page

    print(page(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
