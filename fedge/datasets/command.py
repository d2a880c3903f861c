"""The command ``fedge datasets``: list, download, prepare, info."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedge.config.registers.option import ConfigError
from hhar.quantity import quantity

if TYPE_CHECKING:
    from hhar.windows.window_file import Windows

_OPTIONS = ("rate_hz", "window_s", "stride_s", "sensors", "devices", "si", "users", "per_user", "part")


def add_datasets(commands: Any) -> None:
    """Add ``datasets`` and its subcommands to the parsers of `fedge`."""
    parser = commands.add_parser(
        "datasets",
        help="public data sets: list, download, prepare as window files",
        also=("data", "download"),
    )
    parser.set_defaults(command=_with_one_line_errors(_list_data_sets))
    actions = parser.add_subparsers(metavar="ACTION")
    listing = actions.add_parser("list", help="name, users, classes, rate, size, licence (the default)")
    listing.set_defaults(command=_with_one_line_errors(_list_data_sets))
    _add_download(actions.add_parser("download", help="fetch its files over https; repeated: continue"))
    _add_prepare(actions.add_parser("prepare", help="make a window file of a data set's files"))
    info = actions.add_parser(
        "info", help="description of a data set or a window file: source, licence, citation"
    )
    info.add_argument("what", help="name of a data set, or a window file (.npz)")
    info.set_defaults(command=_with_one_line_errors(_info))


def _add_download(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="data set")
    parser.add_argument("--to", type=Path, help="folder for its files (default: data/raw/NAME)")
    parser.add_argument("--url", default="", help="another https address of its file, such as a mirror's")
    parser.add_argument("--sha256", default="", help="required checksum of the file")
    parser.add_argument("--no-unpack", action="store_true", help="do not unpack archives")
    parser.set_defaults(command=_with_one_line_errors(_download))


def _add_prepare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="data set")
    parser.add_argument(
        "source", type=Path, nargs="?", help="folder of its files, or its archive (default: data/raw/NAME)"
    )
    parser.add_argument("out", type=Path, nargs="?", help="window file to write (default: data/NAME.npz)")
    parser.add_argument("--rate-hz", type=float, help="samples per second (default: the data set's)")
    parser.add_argument("--window-s", type=float, help="length of a window in seconds")
    parser.add_argument("--stride-s", type=float, help="distance between windows (default: half a window)")
    parser.add_argument(
        "--si",
        action="store_true",
        default=None,
        help="acceleration in m/s², even if published in g",
    )
    parser.add_argument("--sensors", choices=("acc", "acc+gyro"), help="hhar")
    parser.add_argument("--devices", choices=("phones", "watches", "all"), help="hhar")
    parser.add_argument(
        "--users", type=int, help="mnist, cifar10: number of users with a block each (default: 10)"
    )
    parser.add_argument("--per-user", type=int, help="mnist, cifar10: images of each (default: all)")
    parser.add_argument("--part", choices=("train", "test", "all"), help="mnist, cifar10 (default: train)")
    parser.add_argument("--compress", action="store_true", help="smaller file, slower to write and load")
    parser.set_defaults(command=_with_one_line_errors(_prepare), needs_room=True)


def _with_one_line_errors(
    command: Callable[[argparse.Namespace], int],
) -> Callable[[argparse.Namespace], int]:
    """A command with one-line errors for invalid input."""

    def run(options: argparse.Namespace) -> int:
        with _as_config_error():
            return command(options)

    return run


@contextmanager
def _as_config_error() -> Iterator[None]:
    from hhar.errors import HharError

    try:
        yield
    except HharError as error:
        raise ConfigError(str(error)) from error
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ConfigError(
            f"{error.filename or 'the disk'}: cannot be used ({error.strerror or error}); make room, or "
            "choose another folder"
        ) from error


def _list_data_sets(_: argparse.Namespace) -> int:
    """Carry out ``fedge datasets``."""
    from fedge.datasets.catalog import NAMES, card

    rows = [("name", "users", "classes", "rate", "download", "licence")]
    for name in NAMES:
        data_card = card(name)
        licence = data_card.licence.split(";")[0]
        rate = f"{data_card.rate_hz:g} Hz" if data_card.rate_hz else "images"
        rows.append(
            (
                name,
                str(data_card.users or "–"),
                str(len(data_card.classes)),
                rate,
                f"{data_card.megabytes:.0f} MB",
                licence,
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip())
    print("\nfedge datasets info NAME, download NAME, prepare NAME [SOURCE] [OUT]; own data: docs/data.md")
    return 0


def _download(options: argparse.Namespace) -> int:
    """Carry out ``fedge datasets download``."""
    from fedge.datasets.catalog import card
    from fedge.datasets.fetch import RAW, download
    from hhar.progress import progress_bars

    data_card = card(options.name)
    with progress_bars() as report:
        files = download(
            data_card,
            options.to,
            url=options.url,
            sha256=options.sha256,
            keep_packed=options.no_unpack,
            report=report,
        )
    for file, (path, sha256) in zip(data_card.files, files, strict=True):
        verdict = (
            "as expected" if options.sha256 or file.sha256 else "recorded: none is published to compare with"
        )
        print(f"{path}  sha256 {sha256} ({verdict})")
    print(f"licence: {data_card.licence}\ncite: {data_card.citation}")
    source_argument = "" if options.to in (None, RAW / data_card.name) else f" {shlex.quote(str(options.to))}"
    print(f"next: fedge datasets prepare {data_card.name}{source_argument}")
    return 0


def _prepare(options: argparse.Namespace) -> int:
    """Carry out ``fedge datasets prepare``."""
    from fedge.datasets.catalog import card, prepare
    from fedge.datasets.fetch import RAW
    from hhar.progress import progress_bars

    data_card = card(options.name)
    source = options.source or RAW / data_card.name
    target = options.out or Path("data") / f"{data_card.name}.npz"
    if options.source is None and not source.is_dir():
        raise ConfigError(
            f"{source} must be a folder with the files of {data_card.name}, but is not there; run `fedge "
            f"datasets download {data_card.name}`, or name where they lie"
        )
    _refuse_target(target)
    given = {key: getattr(options, key) for key in _OPTIONS}
    with progress_bars() as report:
        windows = prepare(data_card.name, source, near=target, report=report, **given)
    windows.save(target, compress=options.compress)
    users, shape = len(set(windows.user.tolist())), " × ".join(map(str, windows.x.shape[1:]))
    content = quantity(len(windows), "image" if windows.x.ndim == 4 else "window")
    classes = quantity(len(windows.classes), "class")
    print(f"{target}: {content} of {shape}, {quantity(users, 'user')}, {classes}")
    if "left_out" in windows.about:
        print(f"left out: {windows.about['left_out']}")
    print(f"licence: {data_card.licence}\ncite: {data_card.citation}")
    extra_options = ' train.model="cnn2d"' if windows.x.ndim == 4 else ""
    if _has_lone_sessions(windows):
        print("note: some users do everything once, so no session of theirs can be held out: split by blocks")
        extra_options = ' data.split="blocks"'
    run_options = f"data.path={json.dumps(str(target), ensure_ascii=False)}{extra_options}"
    print(f"next: fedge run -c {shlex.quote(run_options)}")
    return 0


def _refuse_target(target: Path) -> None:
    """Raise ConfigError for a place where no window file can be, before the work begins."""
    if target.suffix != ".npz" or target.is_dir():
        raise ConfigError(
            f"{target} must be a window file's name, ending in .npz; call it for example {target}.npz"
        )
    target.parent.mkdir(parents=True, exist_ok=True)


def _has_lone_sessions(windows: Windows) -> bool:
    """Whether a user has one session of each class at most."""
    if windows.session is None:
        return False
    users = set(windows.user.tolist())
    sessions = set(zip(windows.user.tolist(), windows.y.tolist(), windows.session.tolist(), strict=True))
    repeating = {user for (user, _), count in Counter(entry[:2] for entry in sessions).items() if count > 1}
    return repeating != users


def _info(options: argparse.Namespace) -> int:
    """Carry out ``fedge datasets info``."""
    from fedge.datasets.catalog import NAMES, card
    from hhar.windows.info import describe_file

    if options.what not in NAMES and (options.what.endswith(".npz") or os.path.isfile(options.what)):
        print(describe_file(options.what))
        return 0
    data_card = card(options.what)
    print("\n".join(f"{key:<10} {text}" for key, text in data_card.about(data_card.spec).items()))
    print(f"{'users':<10} {data_card.users or 'none: images are dealt to as many as asked for'}")
    print(f"{'classes':<10} {', '.join(data_card.classes)}")
    for file in data_card.files:
        print(
            f"{'file':<10} {file.url}\n{'sha256':<10} {file.sha256 or 'none is known: recorded at download'}"
        )
    return 0
