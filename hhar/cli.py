"""The command `hhar`: download, prepare, info, thin, synthesize."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from hhar.errors import HharError
from hhar.progress import progress_bars
from hhar.quantity import quantity
from hhar.raw.download import UCI_URL, alone_in, check_url, download
from hhar.raw.prepare import DEVICE_GROUPS, prepare
from hhar.raw.unpack import unpack
from hhar.synthetic.generate import recordings_by_device, synthetic_windows
from hhar.synthetic.raw_csv import write_raw
from hhar.windows.cut import WindowSpec, build_windows
from hhar.windows.info import describe_file, size_of_window
from hhar.windows.thin import thin
from hhar.windows.window_file import load_windows, save_windows

DEFAULT_RAW = Path("data/hhar-raw")
DEFAULT_WINDOWS = Path("data/hhar-windows.npz")
ARCHIVE_NAME = "heterogeneity-activity-recognition.zip"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns 0, 2 after an error (one line on stderr), or 130 after Ctrl-C."""
    arguments = make_parser().parse_args(argv)
    try:
        arguments.run(arguments)
    except HharError as error:
        print(f"hhar: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(
            f"hhar: {error.filename or 'the disk'}: cannot be used ({error.strerror or error}); make room, "
            "or choose another path",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        resumes = arguments.command == "download"
        hint = "run the same command again to resume" if resumes else "partial output is not used"
        print(f"hhar: stopped; {hint}", file=sys.stderr)
        return 130
    return 0


def make_parser() -> argparse.ArgumentParser:
    """Parser of the command line, with five subcommands."""
    parser = argparse.ArgumentParser(prog="hhar", description="HHAR (Stisen et al. 2015) as window files.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary, add in (
        ("download", "fetch the archive from UCI and unpack it", _add_download),
        ("prepare", "convert raw CSV files to a window file", _add_prepare),
        ("info", "describe a window file", _add_info),
        ("thin", "make a smaller window file from a larger one", _add_thin),
        ("synthesize", "make a synthetic set with HHAR's structure", _add_synthesize),
    ):
        add(commands.add_parser(name, help=summary, description=f"{summary[:1].upper()}{summary[1:]}."))
    return parser


def _add_download(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", default=UCI_URL, help="https address of the zip (default: UCI's)")
    parser.add_argument(
        "--to",
        type=Path,
        default=DEFAULT_RAW,
        help=f"folder for archive and CSV files (default: {DEFAULT_RAW})",
    )
    parser.add_argument("--sha256", help="expected SHA-256 of the archive; always recorded beside it")
    parser.add_argument("--no-unpack", action="store_true", help="only fetch the archive")
    parser.set_defaults(run=_download)


def _add_prepare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "raw",
        type=Path,
        nargs="?",
        default=DEFAULT_RAW,
        help=f"folder of the CSV files (default: {DEFAULT_RAW})",
    )
    parser.add_argument(
        "--out", type=Path, default=DEFAULT_WINDOWS, help=f"window file to write (default: {DEFAULT_WINDOWS})"
    )
    _add_window_options(parser)
    parser.set_defaults(run=_prepare)


def _add_info(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        type=Path,
        nargs="?",
        default=DEFAULT_WINDOWS,
        help=f"window file (default: {DEFAULT_WINDOWS})",
    )
    parser.set_defaults(run=_info)


def _add_thin(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="window file to read")
    parser.add_argument("out", type=Path, help="window file to write")
    parser.add_argument(
        "--keep-every",
        type=int,
        default=1,
        metavar="N",
        help="keep every N-th window of each user (default: 1)",
    )
    parser.add_argument(
        "--mean-of",
        type=int,
        default=1,
        metavar="K",
        help="replace K consecutive samples by their mean, which divides the sampling rate by K (default: 1)",
    )
    parser.add_argument("--compress", action="store_true", help="smaller file, slower to write and load")
    parser.set_defaults(run=_thin)


def _add_synthesize(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", type=Path, nargs="?", help="window file to write")
    parser.add_argument(
        "--raw",
        type=Path,
        metavar="FOLDER",
        help="write raw CSV files in UCI's layout instead (always all devices)",
    )
    parser.add_argument("--users", type=int, default=9, help="number of users (default: 9)")
    parser.add_argument("--seed", type=int, default=0, help="seed of all random draws (default: 0)")
    parser.add_argument(
        "--fraction",
        type=float,
        default=1.0,
        help="fraction of each bout's length; 1 is HHAR's full size (default: 1)",
    )
    parser.add_argument(
        "--small", action="store_true", help="the embedded set: six short bouts per activity, three phones"
    )
    _add_window_options(parser)
    parser.set_defaults(run=_synthesize)


def _add_window_options(parser: argparse.ArgumentParser) -> None:
    default = WindowSpec()
    parser.add_argument(
        "--sensors", choices=("acc", "acc+gyro"), default=default.sensors, help="(default: %(default)s)"
    )
    parser.add_argument(
        "--devices", choices=tuple(DEVICE_GROUPS), default="phones", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--rate-hz", type=float, default=default.rate_hz, help="samples per second (default: %(default)s)"
    )
    parser.add_argument(
        "--window-s", type=float, default=default.window_s, help="length of a window (default: %(default)s)"
    )
    parser.add_argument(
        "--stride-s", type=float, default=None, help="distance between windows (default: half a window)"
    )
    parser.add_argument("--compress", action="store_true", help="smaller file, slower to write and load")


def _spec(arguments: argparse.Namespace) -> WindowSpec:
    stride_s = arguments.window_s / 2 if arguments.stride_s is None else arguments.stride_s
    return WindowSpec(arguments.sensors, arguments.rate_hz, arguments.window_s, stride_s)


def _download(arguments: argparse.Namespace) -> None:
    check_url(arguments.url)
    archive = arguments.to / ARCHIVE_NAME
    with progress_bars() as report, alone_in(arguments.to):
        checksum = download(arguments.url, archive, sha256=arguments.sha256, report=report)
        files = [] if arguments.no_unpack else unpack(archive, arguments.to, report=report)
    print(f"{archive}  sha256 {checksum}")
    for path in files:
        print(path)


def _prepare(arguments: argparse.Namespace) -> None:
    with progress_bars() as report:
        windows = prepare(arguments.raw, _spec(arguments), arguments.devices, report)
    save_windows(arguments.out, windows, compress=arguments.compress)
    print(f"{arguments.out}: {quantity(len(windows), 'window')} of {size_of_window(windows)}")


def _info(arguments: argparse.Namespace) -> None:
    print(describe_file(arguments.file))


def _thin(arguments: argparse.Namespace) -> None:
    windows = thin(load_windows(arguments.file), arguments.keep_every, arguments.mean_of)
    save_windows(arguments.out, windows, compress=arguments.compress)
    print(f"{arguments.out}: {quantity(len(windows), 'window')} of {size_of_window(windows)}")


def _synthesize(arguments: argparse.Namespace) -> None:
    if (arguments.out is None) == (arguments.raw is None):
        raise HharError("synthesize: needs either a window file or --raw FOLDER; give one of the two")
    if arguments.raw is not None:
        with progress_bars() as report:
            rows = write_raw(
                arguments.raw, arguments.users, arguments.seed, fraction=arguments.fraction, report=report
            )
        for name, count in rows.items():
            print(f"{arguments.raw / name}: {quantity(count, 'row')}")
        return
    spec = _spec(arguments)
    if arguments.small:
        stride_s = spec.window_s if arguments.stride_s is None else spec.stride_s
        windows = synthetic_windows(
            arguments.users,
            arguments.seed,
            sensors=spec.sensors,
            rate_hz=spec.rate_hz,
            window_s=spec.window_s,
            stride_s=stride_s,
        )
    else:
        with progress_bars() as report:
            groups = recordings_by_device(
                arguments.users,
                arguments.seed,
                report,
                devices=arguments.devices,
                sensors=spec.sensor_names,
                fraction=arguments.fraction,
            )
            windows = build_windows(groups, spec)
    save_windows(arguments.out, windows, compress=arguments.compress)
    print(f"{arguments.out}: {quantity(len(windows), 'synthetic window')} of {size_of_window(windows)}")
