"""A client's own windows, if clients own their data: SuperNodes on their own machines.

A node's configuration names the windows in one of three ways:

    data-folder   a folder written by `fedge deal`: this client's share of a data set, dealt in advance
    own-data      a window file or data set of this client alone; it is split here
    data          a data set on every node; the client takes the share dealt to it by the run

The server learns only a description of the windows (`WindowsReport`): counts, names of classes and channels,
sums of channels.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from fedge.config.config import Config
from fedge.config.registers.option import ConfigError, shown
from fedge.config.registers.parts import PARTITIONS, SCENARIOS
from fedge.config.registers.register import search_folders
from fedge.config.topology import clients_per_leaf
from fedge.data.partition import Partition, own_partition, partition
from fedge.data.prepared import (
    ClientBounds,
    ClientData,
    LaidOut,
    folder_identity,
    lay_out,
    load_source,
    read_laid_out,
    source_identity,
    write_laid_out,
)
from fedge.data.scaling import ChannelSums, Scale, apply_scale, channel_sums, unscalable
from hhar.windows.window_file import MAX_ABOUT, Windows

FOLDER, OWN, SHARE = "data-folder", "own-data", "data"  # keys of a node's configuration
_SPLITS = ("train", "val", "test")
_LONGEST = 2**24  # characters of a client's description
_LONGEST_NAME = 500
_MOST_WINDOWS = 10**9  # of a client and split


@dataclass(frozen=True)
class WindowsReport:
    """Client's description of its windows.

    Attributes:
        source: name of the file or data set, without its path.
        fingerprint: sha256 of the client's windows before scaling.
        synthetic: whether the data are made up, not measured on people.
        split_kind: "given", "session" or "blocks".
        input_shape: shape of one window (C, T) or image (C, H, W).
        dtype: dtype of the windows as recorded.
        classes, channels: their names.
        about: description stored with the data.
        counts: "train", "val" and "test" → windows of each class, in the order of the classes, in round 1; or
            of all, if windows have no class.
        sums: sums of the training windows in round 1.
        y_shape, y_dtype: shape and dtype of one window's target.
    """

    source: str
    fingerprint: str
    synthetic: bool
    split_kind: str
    input_shape: tuple[int, ...]
    dtype: str
    classes: tuple[str, ...]
    channels: tuple[str, ...]
    about: Mapping[str, str]
    counts: Mapping[str, tuple[int, ...]]
    sums: ChannelSums
    y_shape: tuple[int, ...] = ()
    y_dtype: str = "int64"

    @property
    def labels(self) -> tuple[str, ...]:
        """Names by which windows are counted: their classes, or none."""
        return self.classes if self.y_dtype == "int64" and not self.y_shape else ("",)

    def to_text(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @staticmethod
    def of_text(text: str) -> "WindowsReport":
        """Read the text of `to_text`.

        Raises:
            ValueError: the file is something else.
        """
        if len(text) > _LONGEST:
            raise ValueError(f"{len(text):,} characters are told, at most {_LONGEST:,} are read")
        try:
            content = json.loads(text)
            counts = {split: tuple(map(_parse_count, content["counts"][split])) for split in _SPLITS}
            sums = content["sums"]
            report = WindowsReport(
                str(content["source"]), str(content["fingerprint"]), bool(content["synthetic"]),
                str(content["split_kind"]),
                tuple(map(_parse_count, content["input_shape"])), str(content["dtype"]),
                tuple(map(str, content["classes"])), tuple(map(str, content["channels"])),
                {str(key): str(text) for key, text in content["about"].items()}, counts,
                ChannelSums(
                    _parse_count(sums["count"]), _parse_numbers(sums["mean"]), _parse_numbers(sums["spread"])
                ),
                tuple(map(_parse_count, content["y_shape"])), str(content["y_dtype"]),
            )  # fmt: skip
        except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from None
        if any(report.windows(split) > _MOST_WINDOWS for split in _SPLITS):
            raise ValueError(f"a client has at most {_MOST_WINDOWS:,} windows of a split")
        if any(len(counts[split]) != len(report.labels) for split in _SPLITS):
            raise ValueError("counts must have a number for each class")
        if report.y_dtype not in ("int64", "float32") or not all(report.y_shape):
            raise ValueError("y must be int64 or float32")
        if not len(report.sums.mean) == len(report.sums.spread) == len(report.channels):
            raise ValueError("sums must have a number for each channel")
        if not all(map(str.isprintable, [*report._names(), *report._about_texts()])):
            raise ValueError("names must be printable")
        if any(len(name) > _LONGEST_NAME for name in report._names()):
            raise ValueError(f"names must have at most {_LONGEST_NAME} characters")
        if sum(map(len, report._about_texts())) > MAX_ABOUT:
            raise ValueError(f"data say at most {MAX_ABOUT:,} characters about themselves")
        tokens = report.dtype == "int64"
        if report.input_shape[:1] != (len(report.channels),) and not (tokens and not report.channels):
            raise ValueError("a window must have a row for each channel")
        values = 0 if tokens else report.windows("train") * math.prod(report.input_shape[1:])
        if report.sums.count != values:
            raise ValueError("sums must be those of the training windows")
        return report

    def _names(self) -> list[str]:
        """All names, which reports and tables show."""
        names = [self.source, self.fingerprint, self.split_kind, self.dtype, self.y_dtype]
        return [*names, *self.classes, *self.channels]

    def _about_texts(self) -> list[str]:
        """Description in the data, names and texts."""
        return [text for entry in self.about.items() for text in entry]

    def windows(self, split: str) -> int:
        """The windows of a split."""
        return sum(self.counts[split])


def _parse_count(value: Any) -> int:
    """A whole number of at least 0, or raise ValueError."""
    if type(value) is not int or value < 0:
        raise ValueError(f"{shown(value)} is not a count")
    return value


def _parse_numbers(values: Any) -> tuple[float, ...]:
    """Numbers of channels, which may be beyond all bounds (`fedge.data.outliers`), or raise ValueError."""
    if not isinstance(values, list) or any(type(value) not in (int, float) for value in values):
        raise ValueError("sums must be lists of numbers")
    return tuple(float(value) for value in values)


@dataclass(frozen=True)
class OwnData:
    """A client's windows.

    Attributes:
        laid: the windows, not scaled.
        report: their description.
        search_folders: folders to search for a user's code.
    """

    laid: LaidOut
    report: WindowsReport
    search_folders: tuple[str, ...]

    def bounds(self, global_round: int) -> ClientBounds:
        """Rows of each split in a global round, counted from 1."""
        (block,) = [blocks for first, blocks in self.laid.eras if first <= max(1, global_round)][-1]
        return self.laid.bounds[block]


def partition_of_node(node_config: Mapping[str, Any]) -> tuple[int, int]:
    """Partition of a node, and the number of partitions.

    Raises:
        ConfigError: its configuration does not say.
    """
    numbers = [node_config.get(key) for key in ("partition-id", "num-partitions")]
    partition_id, partitions = numbers
    if type(partition_id) is not int or type(partitions) is not int or not 0 <= partition_id < partitions:
        raise ConfigError(
            f"a SuperNode's --node-config must hold partition-id and num-partitions, whole numbers with "
            f"0 <= partition-id < num-partitions, but holds {shown(partition_id)} and {shown(partitions)}; "
            f"write --node-config 'partition-id=0 num-partitions=9 …'"
        )
    return partition_id, partitions


def names_own_data(node_config: Mapping[str, Any]) -> bool:
    """Whether a node's configuration names the client's windows."""
    return any(key in node_config for key in (FOLDER, OWN, SHARE))


def own_data(node_config: Mapping[str, Any], config: Config, seed: int, is_first: bool = False) -> OwnData:
    """The windows named in a node's configuration.

    Args:
        node_config: configuration of the node.
        config: the run's configuration.
        seed: seed of the run.
        is_first: whether it is the client's first call: then a folder's windows are checked by fingerprint.

    Raises:
        ConfigError: several sources, none readable, or windows unsuitable for the run.
    """
    paths = [(key, str(node_config[key])) for key in (FOLDER, OWN, SHARE) if key in node_config]
    client, clients = partition_of_node(node_config)
    if len(paths) != 1:
        raise ConfigError(
            f"a SuperNode's configuration must name its windows by one of {FOLDER}, {OWN}, {SHARE}, but that "
            f"of partition {client} has {' and '.join(key for key, _ in paths) or 'none of them'}; change it"
        )
    ((key, place),) = paths
    try:
        if key == FOLDER:
            return _load_share(place, is_first)
        parts = [(SCENARIOS, config.scenario), *([(PARTITIONS, config.partition.kind)] * (key == SHARE))]
        code = [register.load(name) for register, name in parts if register.is_own(name)]
        origin = (*source_identity(place, config), *code)
        return _load_dealt(key, place, config, seed, client, clients, origin)
    except ConfigError as error:
        raise ConfigError(f"partition {client}, {key}={shown(place)}: {error}") from error


def _load_share(folder: str, is_first: bool = False) -> OwnData:
    """Inverse of `write_share`."""
    try:
        data = _map_share(folder, folder_identity(folder))
        if is_first and _fingerprint(data.laid) != data.report.fingerprint:
            raise ValueError("its windows have another fingerprint")
        return data
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ConfigError(
            f"must be a folder that fedge deal wrote, but {type(error).__name__}: {error}; write it again"
        ) from error


@lru_cache(maxsize=1)
def _map_share(folder: str, identity: tuple[int, ...]) -> OwnData:
    """Map a folder once per process; `identity` is the identity of its files."""
    laid, facts = read_laid_out(Path(folder))
    report = WindowsReport.of_text(facts["told"])
    _refuse_other_form(laid, report)
    return OwnData(laid, report, tuple(search_folders()))


def _refuse_other_form(laid: LaidOut, report: WindowsReport) -> None:
    """Raise ValueError unless windows have the form and the counts of their description."""
    form = (laid.x.shape[1:], laid.y.shape[1:], laid.y.dtype.name, len(laid.y))
    if form != (report.input_shape, report.y_shape, report.y_dtype, len(laid.x)):
        raise ValueError("x.npy and y.npy do not have the form described")
    if laid.x.dtype.name != ("int64" if report.dtype == "int64" else "float32"):
        raise ValueError(f"x.npy is of {laid.x.dtype.name}")
    for bounds in laid.bounds:
        edges = list(asdict(bounds).values())
        if (
            any(type(row) is not int for row in edges)
            or edges != sorted(edges)
            or edges[0] < 0
            or edges[-1] > len(laid.x)
        ):
            raise ValueError("bounds are not rows of x.npy, in order")
    rounds = [first for first, _ in laid.eras]
    blocks = [client_blocks for _, client_blocks in laid.eras]
    if not rounds or rounds[0] != 1 or any(a >= b for a, b in pairwise(rounds)):
        raise ValueError("stretches of rounds do not begin with the first, in order")
    if not all(
        len(client_blocks) == 1 and 0 <= client_blocks[0] < len(laid.bounds) for client_blocks in blocks
    ):
        raise ValueError("a stretch of rounds has no windows")
    first = laid.bounds[blocks[0][0]]
    sizes = first.val - first.start, first.test - first.val, first.stop - first.test
    if sizes != tuple(map(report.windows, _SPLITS)):
        raise ValueError("there are not as many windows as described")


def write_share(folder: Path, data: OwnData) -> None:
    """Write a client's windows into a folder for its node: raw, with their description."""
    write_laid_out(folder, data.laid, {"told": data.report.to_text()})


@lru_cache(maxsize=1)
def _load_dealt(
    key: str, path: str, config: Config, seed: int, client: int, clients: int, origin: tuple[Any, ...]
) -> OwnData:
    """A client's windows of a data set; the most recent ones are cached.

    `origin` identifies the files and the code that they come from, because a process may stay for other runs.
    """
    source_config = replace(config, data=replace(config.data, path=path))
    sizes = clients_per_leaf(config.hierarchy, clients)
    windows, source = load_source(source_config, clients)
    if key == OWN:
        dealt = own_partition(windows, config, sizes, client, seed)
    else:
        dealt = partition(windows, config, sizes, seed)
    return share_of(windows, dealt, client, Path(source.name).name, source.synthetic)


def share_of(windows: Windows, dealt: Partition, client: int, source: str, synthetic: bool) -> OwnData:
    """One client's part of dealt windows.

    Args:
        windows: all of them.
        dealt: windows of each client.
        client: its partition id.
        source: name of the data.
        synthetic: whether the data are made up, not measured on people.
    """
    laid = lay_out(windows, dealt, [client])
    first = laid.bounds[0]
    parts = (slice(first.start, first.val), slice(first.val, first.test), slice(first.test, first.stop))
    counts = {
        split: _count_by_class(windows, laid.y[part]) for split, part in zip(_SPLITS, parts, strict=True)
    }
    report = WindowsReport(
        source, _fingerprint(laid), synthetic, dealt.split_kind, laid.x.shape[1:], windows.x.dtype.name,
        tuple(windows.classes), tuple(windows.channels), dict(windows.about), counts,
        channel_sums(laid.x[parts[0]]), laid.y.shape[1:], laid.y.dtype.name,
    )  # fmt: skip
    return OwnData(laid, report, tuple(search_folders()))


def _count_by_class(windows: Windows, y: np.ndarray) -> tuple[int, ...]:
    """Number of y (N, …) of each class; without classes, of all."""
    if not windows.has_labels:
        return (len(y),)
    return tuple(np.bincount(y, minlength=len(windows.classes)).tolist())


def _fingerprint(laid: LaidOut) -> str:
    """The sha256 of a client's windows, labels and splits."""
    digest = hashlib.sha256(json.dumps([[asdict(b) for b in laid.bounds], laid.eras]).encode())
    for array in (laid.x, laid.y):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def client_data(data: OwnData, scale: Scale, global_round: int) -> ClientData:
    """A client's windows in a global round, with the server's scale."""
    x = _scale_windows(data, scale)
    bounds = data.bounds(global_round)
    train, held_out = slice(bounds.start, bounds.val), slice(bounds.val, bounds.stop)
    y = data.laid.y
    return ClientData(
        (x[train], y[train]), (x[held_out], y[held_out]),
        bounds.test - bounds.val, len(data.report.classes), data.search_folders,
    )  # fmt: skip


_newest_scaled: list[tuple[OwnData, Scale, np.ndarray]] = []


def _scale_windows(data: OwnData, scale: Scale) -> np.ndarray:
    """A client's scaled windows (N, C, …) float32; the most recent ones are cached."""
    for cached, cached_scale, x in _newest_scaled:
        if cached is data and cached_scale == scale:
            return x
    x = np.array(data.laid.x)
    apply_scale(x, scale)
    if problem := unscalable(x, scale, data.report.channels):
        raise ConfigError(
            f"data.normalize needs windows in units that clients share, but here {problem}; leave out the "
            f"channel or these windows, or set data.normalize=false"
        )
    x.flags.writeable = False
    _newest_scaled[:] = [(data, scale, x)]
    return x
