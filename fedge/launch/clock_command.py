"""`fedge clock`: preview of a study's virtual clock, without training."""

import argparse
import csv
import resource
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedge.config.registers.option import ConfigError
from fedge.launch.command_line import Parser
from fedge.launch.projects.project import Project
from fedge.process.durable import output_file
from hhar.quantity import quantity

if TYPE_CHECKING:
    from fedge.devices.timing import TimedFleet
    from fedge.rounds.measurements.moment import VersionRow

_SWITCHED_OFF = ("scaffold.enabled", "gate.enabled", "cluster.enabled")  # these take no virtual time
_IGNORED_PREFIXES = ("scaffold.", "gate.", "cluster.")  # options ignored by a clock
_MEBI = 2**20


def add_clock(commands: Any) -> None:
    """Add ``fedge clock``."""
    clock = commands.add_parser(
        "clock", help="run the virtual clock without training: versions, staleness, devices at work"
    )
    assert isinstance(clock, Parser)
    clock.add_argument(
        "--app", default=".", help="project folder, with or without pyproject.toml (default: .)"
    )
    clock.add_argument(
        "-c", "--run-config", action="append", default=[], metavar="OVERRIDE",
        help="as for the run: asynchrony, devices, hierarchy, epochs, evaluations and seed are used",
    )  # fmt: skip
    clock.add_argument("--devices", type=int, metavar="N", help="number of devices (default: option clients)")
    clock.add_argument(
        "--windows", type=int, default=40, metavar="N", help="training windows of each (default: 40)"
    )
    clock.add_argument(
        "--megabytes", type=float, default=0.1, metavar="MB", help="10^6 bytes of the model (default: 0.1)"
    )
    clock.add_argument("-o", "--output", type=Path, metavar="PAGE", help="page with curves to write")
    clock.add_argument("--csv", type=Path, metavar="FILE", help="table of all evaluations to write")
    clock.set_defaults(command=_run_clock, needs_room=True)


def _run_clock(options: argparse.Namespace) -> int:
    """Carry out ``fedge clock``."""
    from fedge.devices.timing import TimedFleet  # imported late: shells run completion at every keystroke

    run_config = Project(Path(options.app)).run_config(options.run_config)
    fleet = TimedFleet(
        _num_devices(options.devices, run_config), options.windows, round(options.megabytes * 1e6)
    )
    for name, value in (("--windows", fleet.windows), ("--megabytes", fleet.model_bytes)):
        if value < 1:
            raise ConfigError(f"{name} must be above 0, but is {value}; omit it for the default")
    start, cpu_start = time.perf_counter(), time.process_time()
    rows, summary = run_study_clock(run_config, fleet)
    unit = _MEBI if sys.platform == "darwin" else 1024
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    lines = [
        summary,
        f"{time.perf_counter() - start:.1f} s of real time, {time.process_time() - cpu_start:.1f} s of CPU, "
        f"{peak_mib:.0f} MiB at the peak",
    ]
    print(*lines, sep="\n")
    _write_outputs(rows, lines, options.output, options.csv)
    return 0


def _num_devices(requested: int | None, run_config: Mapping[str, Any]) -> int:
    """Number of devices to simulate."""
    count = run_config.get("clients", "auto") if requested is None else requested
    if not isinstance(count, int) or count < 1:
        raise ConfigError(f"clients must be the number of devices, but is {count}; add --devices 1000")
    return count


def run_study_clock(run_config: Mapping[str, Any], fleet: "TimedFleet") -> "tuple[list[VersionRow], str]":
    """Run a study's clock without training, printing a line per evaluation; returns rows and a summary.

    Args:
        run_config: the run's options, flat; SCAFFOLD, gate and clustering are switched off.
        fleet: number of devices, windows per device, and bytes of the model.

    Raises:
        ConfigError: no rule is set, or clients, configuration and rule do not fit together.
    """
    from fedge.config.effects import options_without_effect
    from fedge.config.flat import from_run_config
    from fedge.devices.predictions import unchanged_model_advice
    from fedge.devices.timing import build_timed_run
    from fedge.run.preparation.parts import refuse_clock_parts_that_do_not_fit
    from fedge.seeding import resolve_seed

    config = from_run_config({**run_config, **dict.fromkeys(_SWITCHED_OFF, False), "clients": fleet.devices})
    rule = config.asynchrony.rule
    if not config.asynchrony.is_on:
        raise ConfigError("fedge clock needs a virtual clock; add -c 'asynchrony.rule=\"fedbuff\"'")
    refuse_clock_parts_that_do_not_fit(config)
    for line in options_without_effect(config):
        if not line.startswith(_IGNORED_PREFIXES):
            print(f"note: {line}")
    seed, _ = resolve_seed(config.seed)
    rows: list[VersionRow] = []

    def on_row(row: "VersionRow") -> None:
        rows.append(row)
        print(row.words(), flush=True)

    procedure = build_timed_run(config, seed, fleet, on_row)
    procedure.begin()
    procedure.run_until(config.num_server_rounds)
    if (remark := unchanged_model_advice(procedure)) is not None:
        print(f"note: {remark}")
    return rows, (
        f"{rule}: {quantity(fleet.devices, 'device')}, {config.asynchrony.concurrency} at work under "
        f"{quantity(config.hierarchy.num_servers, 'leaf')}, "
        f"seed {seed}; {quantity(procedure.clock.events, 'event')}; no training"
    )


def _write_outputs(rows: "list[VersionRow]", lines: list[str], page: Path | None, table: Path | None) -> None:
    """Write page and table, if requested."""
    from fedge.report.clock_page import COLUMNS, cells, write_clock_page

    try:
        if table is not None:
            with output_file(table) as part, part.open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(COLUMNS)
                writer.writerows(map(cells, rows))
        if page is not None:
            write_clock_page(rows, lines, page)
            print(page)
    except OSError as error:
        raise ConfigError(
            f"output must be writable, but {error.filename or page}: "
            f"{error.strerror or error}; choose another path"
        ) from error
