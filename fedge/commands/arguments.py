"""Arguments common to several commands: the run, and the number of clients in training at a time."""

import argparse
from pathlib import Path

from fedge.config.registers.engines import CHOICES, IN_PROCESS
from fedge.config.registers.option import ConfigError
from fedge.launch.command_line import Parser, show_options
from fedge.launch.projects.project import Project


def add_run_arguments(parser: Parser) -> None:
    """Add the arguments describing a run."""
    parser.add_argument(
        "app",
        nargs="?",
        default=".",
        help="project folder; without a pyproject.toml: all defaults (default: .)",
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
        choices=CHOICES,
        default=IN_PROCESS.name,
        help="threads here, or Flower on Ray",
    )
    parser.add_argument(
        "--address", metavar="HOST:PORT", help="flower: a Ray cluster to use (default: RAY_ADDRESS)"
    )
    parser.add_argument(
        "--workers", type=int, help="inprocess: clients in training at a time (default: cores, or GPUs)"
    )
    parser.add_argument(
        "--clients", type=int, metavar="N",
        help="number of clients, on either engine (default: the option clients; auto: one per user)",
    )  # fmt: skip
    show_options(parser)


def project_of(options: argparse.Namespace) -> Project:
    """Project of the command line; sets `options.app` to its folder."""
    project = Project(Path(options.app))
    options.app = str(project.folder)
    return project


def check_workers(workers: int | None) -> None:
    """Raise ConfigError for an impossible number of workers."""
    if workers is not None and workers < 1:
        raise ConfigError(f"--workers must be at least 1, but is {workers}; omit it for one per core")
