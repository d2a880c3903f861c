"""All data sets by name: their cards, and their files as windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from fedge.config.registers.option import nearest
from fedge.datasets.archives import as_folder
from fedge.datasets.cards import DataCard
from hhar.errors import HharError
from hhar.progress import ProgressCallback, no_progress
from hhar.windows.window_file import Windows

_MODULES = {
    "hhar": "hhar",
    "motionsense": "motionsense",
    "uci-har": "uci_har",
    "wisdm": "wisdm",
    "pamap2": "pamap2",
    "mnist": "mnist",
    "cifar10": "cifar10",
}
NAMES = tuple(_MODULES)
STANDARD_GRAVITY = 9.80665  # m/s², by definition
_IN_G, _IN_SI = "gravity in g", "gravity in m/s²"
_WINDOW_OPTIONS = ("rate_hz", "window_s", "stride_s", "sensors")  # options for cutting windows


def card(name: str) -> DataCard:
    """The card of a data set.

    Raises:
        HharError: no data set of this name.
    """
    data_card: DataCard = _module(name).CARD
    return data_card


def prepare(
    name: str,
    source: str | Path,
    *,
    report: ProgressCallback = no_progress,
    near: Path | None = None,
    **options: Any,
) -> Windows:
    """The windows of a data set's files as published.

    Args:
        name: name of the data set.
        source: folder with its files at any depth, or its archive.
        report: called with the progress.
        near: file beside which an archive is temporarily unpacked; by default the archive itself.
        **options: rate_hz, window_s, stride_s (a half of the window unless given), si, and others in the
            card's `options`. `si=True` gives acceleration in m/s² and the channel names of the others to a
            data set in g, for joining with others.

    Raises:
        HharError: files are missing or damaged, or the data set has no such option.
    """
    module, data_card = _module(name), card(name)
    given = {key: value for key, value in options.items() if value is not None}
    _refuse_unknown_options(data_card, given)
    is_si = bool(given.pop("si", False)) and _IN_G in data_card.units
    path = Path(source)
    spec = _window_spec(data_card, given)
    reader_options = {key: value for key, value in given.items() if key not in _WINDOW_OPTIONS}
    with as_folder(path, near or path, report) as folder:
        windows: Windows = module.read(folder, *([spec] if spec else []), report=report, **reader_options)
    windows = replace(windows, about={**data_card.about(spec), **windows.about})
    return in_si(windows) if is_si else windows


def in_si(windows: Windows) -> Windows:
    """Windows with acceleration in m/s² and gyroscopes named gyro, as x float32 (N, C, T)."""
    x = windows.x.astype(np.float32)
    x[:, [name.startswith("acc") for name in windows.channels]] *= np.float32(STANDARD_GRAVITY)
    names = tuple(name.replace("gyr_", "gyro_") for name in windows.channels)
    units = windows.about["units"].replace(_IN_G, _IN_SI)
    return replace(windows, x=x, channels=names, about={**windows.about, "units": units})


def _module(name: str) -> Any:
    """The module of a data set."""
    if name not in _MODULES:
        raise HharError(
            f"data set: must be one of {', '.join(NAMES)}, is {name[:80]!r}"
            f"{nearest(name, NAMES) or '; fedge.from_pandas takes data of your own'}"
        )
    return import_module(f"fedge.datasets.{_MODULES[name]}")


def _refuse_unknown_options(data_card: DataCard, given: Mapping[str, Any]) -> None:
    for key in given:
        if key not in data_card.options and not (key == "si" and data_card.spec is not None):
            flags = ", ".join("--" + option.replace("_", "-") for option in data_card.options)
            raise HharError(
                f"{data_card.name}: --{key.replace('_', '-')} must be an option of it, is not; it takes "
                f"{flags}"
            )


def _window_spec(data_card: DataCard, given: Mapping[str, Any]) -> Any:
    """How windows are to be cut; None for images."""
    if data_card.spec is None:
        return None
    changes = {key: value for key, value in given.items() if key in _WINDOW_OPTIONS}
    if "window_s" in changes and "stride_s" not in changes:
        changes["stride_s"] = changes["window_s"] / 2
    return replace(data_card.spec, **changes)
