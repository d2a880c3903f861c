"""Files of a fleet (speeds, availability, arrivals) and their hashes, for resuming."""

import os
from collections.abc import Iterator
from pathlib import Path

from fedge.config.config import Config
from fedge.config.registers.option import ConfigError
from hhar.windows.window_file import fingerprint

_OF_DEVICES = ("preset", "availability", "selection", "duration")
_LOG = "devices/arrivals.csv"  # log of a replayed run; as fedge.devices.timeline.real_arrivals writes it


def described_traces(config: Config) -> dict[str, str]:
    """SHA-256 of each file named by an option of `devices`, if time is virtual; else empty.

    An argument counts as a file if a file of that name exists. Keys are options, e.g.
    "devices.preset-args.path".

    Raises:
        ConfigError: a file cannot be read.
    """
    if not (config.asynchrony.is_on or config.devices.time_rounds):
        return {}
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
    """Option and path of each file of the fleet."""
    for part in _OF_DEVICES:
        for name, value in config.devices.arguments(part).items():
            if isinstance(value, str) and os.path.isfile(value):
                yield f"devices.{part}-args.{name}", Path(value)
    if replay := config.asynchrony.replay:
        log = Path(replay) / _LOG if Path(replay).is_dir() else Path(replay)
        if log.is_file():
            yield "asynchrony.replay", log
