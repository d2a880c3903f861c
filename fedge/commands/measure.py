"""Arguments of ``fedge sweep``, ``status``, ``profile`` and ``doctor``, which other rooms carry out."""

import argparse
from pathlib import Path
from typing import Any

from fedge.commands.arguments import add_run_arguments, check_workers
from fedge.records.folder import find_run


def add_sweep(commands: Any) -> None:
    """Add the subcommand ``sweep``."""
    sweep = commands.add_parser(
        "sweep",
        help="run and compare many runs, several at a time; repeated: continue",
        also=("search", "tune", "grid"),
    )
    sweep.add_argument(
        "files", nargs="+", type=Path, metavar="FILE.toml", help="sweep files; see docs/sweeps.md"
    )
    sweep.add_argument("--dry-run", action="store_true", help="check and list the runs without starting any")
    sweep.add_argument(
        "--workers", type=int, default=1, help="clients in training at a time in a run (default: 1)"
    )
    sweep.add_argument("--jobs", type=int, help="runs at a time (default: cores divided by workers)")
    sweep.add_argument(
        "--launcher", choices=("local", "slurm", "ray"), default="local",
        help="place of the runs: here, an array of Slurm jobs (writes its script), or tasks of a Ray "
             "cluster",
    )  # fmt: skip
    sweep.add_argument(
        "--address", metavar="HOST:PORT", help="ray: address of the cluster (default: RAY_ADDRESS)"
    )
    sweep.add_argument(
        "--sbatch",
        default="",
        metavar="OPTIONS",
        help='slurm: options for sbatch, as --sbatch="--time=02:00:00 --mem=4G"',
    )
    sweep.add_argument("--submit", action="store_true", help="slurm: submit the script")
    sweep.add_argument("--only", metavar="RUN", help="execute one run of the sweep, without a comparison")
    sweep.set_defaults(command=_sweep, needs_room=True)


def add_status(commands: Any) -> None:
    """Add the subcommand ``status``."""
    status = commands.add_parser(
        "status", help="print a run's state; the exit code is the run's", also=("ps",)
    )
    status.add_argument("run", nargs="?", default="latest", help="run folder or its name (default: latest)")
    status.add_argument("--runs-dir", default="runs", help="folder of all run folders (default: runs)")
    status.set_defaults(command=_print_status)


def add_profile(commands: Any) -> None:
    """Add the subcommand ``profile``."""
    profile = commands.add_parser("profile", help="profile a run's memory, on either engine")
    add_run_arguments(profile)
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
    profile.set_defaults(command=_profile, needs_room=True)


def add_doctor(commands: Any) -> None:
    """Add the subcommand ``doctor``."""
    doctor = commands.add_parser(
        "doctor",
        help="check this machine for a run or, as doctor deployment, as one of several machines",
        also=("check", "env"),
    )
    add_run_arguments(doctor)
    doctor.add_argument(
        "--superlink", metavar="HOST:PORT", help="deployment: SuperLink of this machine's fedge node"
    )
    doctor.add_argument("--cloud", metavar="HOST:PORT", help="deployment: cloud of its fedge leaf")
    doctor.add_argument(
        "--control", metavar="HOST:PORT", help="deployment: of fedge superlink on this machine"
    )
    doctor.add_argument(
        "--certs", type=Path, default=Path("certs"), help="deployment: its certificates (default: certs)"
    )
    doctor.add_argument(
        "--gpu",
        action="store_true",
        help="check bits, speeds and memory of this machine's GPUs, and write a file",
    )
    doctor.add_argument("--json", action="store_true", help="print JSON")
    doctor.set_defaults(command=_doctor)


def _sweep(options: argparse.Namespace) -> int:
    """Carry out ``fedge sweep``."""
    from fedge.sweep.command import run_sweeps  # loads Polars, not needed by other commands

    return run_sweeps(options)


def _profile(options: argparse.Namespace) -> int:
    """Carry out ``fedge profile``."""
    check_workers(options.workers)
    from fedge.profile.command import profile

    return profile(options)


def _doctor(options: argparse.Namespace) -> int:
    """Carry out ``fedge doctor``."""
    check_workers(options.workers)
    from fedge.doctor.command import doctor

    return doctor(options)


def _print_status(options: argparse.Namespace) -> int:
    """Carry out ``fedge status``; returns the run's exit code."""
    from fedge.records.reading.status import read_status, status_lines
    from fedge.run.preparation.resume import resume_obstacle

    status = read_status(find_run(options.run, options.runs_dir))
    is_intact = status.status != "failed" and not status.damaged
    print("\n".join(status_lines(status, "" if is_intact else resume_obstacle(status.folder))))
    return status.exit_code
