"""`fedge devices convert`: published traces of devices converted to tables for runs."""

import argparse
import csv
import io
from pathlib import Path
from typing import Any

from fedge.config.registers.option import ConfigError
from fedge.devices.population.convert import KINDS, SPEEDS, ConvertedFile, converted
from fedge.launch.command_line import Parser
from fedge.process.durable import output_file
from hhar.quantity import quantity

_SUMMARY = "{out}: {rows} rows; {use}"
_SPEEDS_USE = 'devices.preset="trace", devices.preset-args.path="{out}"'
_TIMES_USE = 'devices.availability="trace", devices.availability-args.path="{out}"'


def add_devices(commands: Any) -> None:
    """Add ``fedge devices`` and its subcommands."""
    parser = commands.add_parser("devices", help="convert published traces of devices")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    convert = actions.add_parser("convert", help="convert a published trace to a CSV or Parquet file")
    assert isinstance(convert, Parser)
    convert.add_argument("kind", choices=KINDS, help="kind of the file; sources in docs/devices.md")
    convert.add_argument("source", type=Path, metavar="FILE", help="published file")
    convert.add_argument("out", type=Path, metavar="OUT", help="table to write: .csv or .parquet")
    convert.add_argument(
        "--seconds-per-window",
        type=float,
        metavar="S",
        help="flash-speeds: seconds of training, missing in the file",
    )
    convert.set_defaults(command=_convert)


def _convert(options: argparse.Namespace) -> int:
    """Carry out ``fedge devices convert``."""
    out: Path = options.out
    if out.suffix not in (".csv", ".parquet"):
        raise ConfigError(f"OUT must end in .csv or .parquet, but is {out}; choose another name")
    table = converted(options.kind, options.source, options.seconds_per_window)
    try:
        with output_file(out) as path:
            rows = _write_parquet(table, path) if out.suffix == ".parquet" else _write_csv(table, path)
    except OSError as error:
        raise ConfigError(
            f"OUT must be writable, but {out}: {error.strerror or error}; choose another"
        ) from error
    use = _SPEEDS_USE if table.columns == SPEEDS else _TIMES_USE
    print(_SUMMARY.format(out=out, rows=rows, use=use.format(out=out)))
    for reason, count in table.left_out.items():
        print(f"left out: {quantity(count, 'device')}, {reason}")
    return 0


def _write_csv(table: ConvertedFile, out: Path) -> int:
    """Write a CSV file row by row; returns the number of rows."""
    count = 0
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table.columns)
        for row in table.rows:
            writer.writerow(row)
            count += 1
    return count


def _write_parquet(table: ConvertedFile, out: Path) -> int:
    """Write a Parquet file; returns the number of rows."""
    import polars as pl

    rows = [(str(device), *numbers) for device, *numbers in table.rows]
    schema = {name: pl.Float64 if index else pl.String for index, name in enumerate(table.columns)}
    content = io.BytesIO()  # Polars raises its own error for a full disk
    pl.DataFrame(rows, schema=schema, orient="row").write_parquet(content)
    out.write_bytes(content.getvalue())
    return len(rows)
