"""Files read by parts of a run (speeds, availability, moves, arrivals, …) and their hashes, for resuming."""

import os
from collections.abc import Iterator
from pathlib import Path

from fedge.config.common_test import OF_CLIENTS
from fedge.config.config import Config
from fedge.config.flat import options, to_run_config
from fedge.config.registers.option import ConfigError, arguments_of
from fedge.data.prepared import PREPARED
from hhar.windows.window_file import fingerprint

_LOG = "devices/arrivals.csv"  # log of a replayed run; as fedge.devices.timeline.real_arrivals writes it
# tables of parts on which no result depends, or whose results are compared themselves
_WITHOUT_RESULTS = ("tracker-args", "callbacks-args", "data.path-args")
_OF_DEVICES = "devices."


def described_traces(config: Config) -> dict[str, str]:
    """SHA-256 of each file named by an argument of a part, by the common test set, or for replay.

    An argument counts as a file if a file of that name exists; those of `devices` only if clients are timed.
    Keys are options, e.g. "devices.preset-args.path".

    Raises:
        ConfigError: a file cannot be read.
    """
    return {option: _sha256(option, path) for option, path in _files(config)}


def _sha256(option: str, path: Path) -> str:
    """The sha256 of a file; ConfigError if it cannot be read."""
    try:
        return fingerprint(path)
    except OSError as error:
        raise ConfigError(
            f"{option} must be a file that can be read, but {path}: {error.strerror or error}; check it"
        ) from error


def _files(config: Config) -> Iterator[tuple[str, Path]]:
    """Option and path of each file."""
    are_devices = config.asynchrony.is_on or config.devices.time_rounds
    values = to_run_config(config)
    for key, (_, rule) in options().items():
        if not rule["table"] or key in _WITHOUT_RESULTS or (key.startswith(_OF_DEVICES) and not are_devices):
            continue
        for name, value in arguments_of(str(values[key]), key).items():
            if isinstance(value, str) and os.path.isfile(value):
                yield f"{key}.{name.replace('-', '_')}", Path(value)
    if (common := config.evaluate.common) not in ("", OF_CLIENTS):
        path = Path(common) if os.path.isfile(common) else PREPARED.parent / f"{common}.npz"
        if path.is_file():
            yield "evaluate.common", path
    if are_devices and (replay := config.asynchrony.replay):
        log = Path(replay) / _LOG if Path(replay).is_dir() else Path(replay)
        if log.is_file():
            yield "asynchrony.replay", log
