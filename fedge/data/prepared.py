"""The windows of a run: chosen, normalised and laid out for reading by clients without loading.

The server writes one folder, ``<run>/data/``: ``x.npy`` and ``y.npy`` with every client's training,
validation and test windows side by side, and ``index.json`` with the bounds. Workers map the files into
memory, so all of them share one copy in the page cache. The folder is removed when the run ends.
"""

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fedge.config.config import Config
from fedge.config.planted import files_of
from fedge.config.registers.determinism import call_watched
from fedge.config.registers.failing import own_error, own_errors
from fedge.config.registers.option import ConfigError, nearest
from fedge.config.registers.parts import DATASETS, SCENARIOS
from fedge.config.registers.register import search_folders
from fedge.config.registers.traits import FILES
from fedge.config.sections.data import MOST_SYNTHETIC_USERS
from fedge.data.partition import Partition
from fedge.data.scaling import Scale, apply_scale, channel_sums, scale_of, unscalable
from fedge.data.scenario import Change
from fedge.process.durable import removed_on_failure
from fedge.process.escape import read_json
from fedge.states.averaging import State
from fedge.states.files import map_state, write_state
from hhar import synthetic_windows
from hhar.npy import map_array
from hhar.quantity import quantity
from hhar.regular import refuse_irregular
from hhar.windows.join import join, source_names
from hhar.windows.window_file import (
    WindowFileError,
    Windows,
    as_format,
    check_windows,
    fingerprint,
    fingerprint_windows,
    load_windows,
)

PREPARED = Path("data/hhar-windows.npz")
_INDEX, _FROZEN = "index.json", "frozen.safetensors"
_NAME = re.compile(r"[A-Za-z0-9][\w-]{0,80}")  # of a data set, and no path
_HHAR_USERS = 9
_MAX_CACHED_BYTES = 64 * 2**20


@dataclass(frozen=True)
class DataSource:
    """Source of the windows.

    Attributes:
        name: path of the window file, or "synthetic HHAR (9 users)".
        fingerprint: sha256 of the file, or of the synthetic arrays.
        synthetic: whether the data are made up, not measured on people.
    """

    name: str
    fingerprint: str
    synthetic: bool


def load_source(config: Config, num_clients: int) -> tuple[Windows, DataSource]:
    """Load the data of `data.path`, or make the synthetic set, the same for every seed.

    Raises:
        ConfigError: the file is missing or damaged, or a user's data set cannot be made.
    """
    if SCENARIOS.has(config.scenario, FILES):
        sources = [
            (path, _load_one_source(path, config, num_clients)[0]) for path in files_of(config.data.path)
        ]
        try:
            windows = join(sources)
        except WindowFileError as error:
            raise ConfigError(f"data.path: {error}") from error
        name = ", ".join(source_names([path for path, _ in sources]))
        synthetic = any(path in ("auto", "synthetic") for path, _ in sources)
        return windows, DataSource(name, fingerprint_windows(windows), synthetic)
    return _load_one_source(config.data.path, config, num_clients)


def source_identity(path: str, config: Config) -> tuple[Any, ...]:
    """Identity of what `load_source` reads for a path: states of files, code of functions.

    Args:
        path: `data.path`, or a node's own.
        config: its scenario is read, with which a path may name several files.
    """
    paths = files_of(path) if SCENARIOS.has(config.scenario, FILES) else [path]
    return tuple(DATASETS.load(name) if DATASETS.is_code(name) else _file_state(name) for name in paths)


def _file_state(path: str) -> tuple[int, ...]:
    """State of the file that a name stands for, different after every write; empty without a file."""
    named = PREPARED if path == "auto" else PREPARED.parent / f"{path}.npz"
    file = path if os.path.isfile(path) else named
    try:
        status = os.stat(file)
    except (OSError, ValueError):
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _load_one_source(path: str, config: Config, num_clients: int) -> tuple[Windows, DataSource]:
    """Load the data of one name; errors as in `load_source`."""
    if path == "auto":
        path = str(PREPARED) if PREPARED.is_file() else "synthetic"
    if path == "synthetic":
        users = config.data.synthetic_users or max(_HHAR_USERS, num_clients)
        if users > MOST_SYNTHETIC_USERS:
            raise ConfigError(
                f"the synthetic set has at most {MOST_SYNTHETIC_USERS} users, because each takes 0.1 s and "
                f"0.7 MB, but {num_clients} clients need {users}; set data.path to a window file"
            )
        windows = _make_synthetic(users)
        return windows, DataSource(
            f"synthetic HHAR ({quantity(users, 'user')})", fingerprint_windows(windows), True
        )
    if DATASETS.is_code(path):
        windows = _windows_from_function(path, config.data.arguments("path"))
        return windows, DataSource(_display_name(path), fingerprint_windows(windows), False)
    if _NAME.fullmatch(path) and not os.path.isfile(path):
        path = _prepared_file(path)
    try:
        return load_windows(path), DataSource(path, fingerprint(path), False)
    except WindowFileError as error:
        raise ConfigError(f"data.path: {error}") from error


def _prepared_file(name: str) -> str:
    """Output of `fedge datasets prepare` for a name.

    Raises:
        ConfigError: there is none.
    """
    file = str(PREPARED.parent / f"{name}.npz")
    if not os.path.isfile(file):
        hint = nearest(name, DATASETS.names)
        make = hint or f"; make it: fedge datasets download {name} && fedge datasets prepare {name}"
        raise ConfigError(
            f"data.path {name} needs {file}, which does not exist{make} (fedge datasets lists the names)"
        )
    return file


def _windows_from_function(name: str, arguments: Mapping[str, Any]) -> Windows:
    """The windows returned by the function behind a name.

    Args:
        name: name in `fedge.config.registers.parts.DATASETS`, or of a user's data set.
        arguments: of it, by keyword.

    Raises:
        ConfigError: the function fails, returns no windows, or others from another state of a global stream.
    """
    DATASETS.refuse_wrong_arguments(name, arguments)
    make = DATASETS.load(name)
    hint = "draw by a generator with a seed of its own, as numpy.random.default_rng(0)"
    try:
        if DATASETS.is_own(name):
            windows = call_watched(f"data.path {name}", lambda: make(**arguments), hint)
        else:
            windows = make(**arguments)
    except (ConfigError, KeyboardInterrupt):
        raise
    except own_errors() as error:
        raise ConfigError(
            f"data.path {name} cannot be made: {own_error(error)}; fix it, or change data.path-args"
        ) from error
    if not isinstance(windows, Windows):
        kind = type(windows).__name__
        raise ConfigError(
            f"data.path {name} must return hhar.Windows, but returned a {kind}; "
            f"fedge.from_pandas and fedge.from_images make them (docs/data.md)"
        )
    windows = as_format(windows)
    try:
        check_windows(windows, _display_name(name))
    except WindowFileError as error:
        raise ConfigError(f"data.path: {error}") from error
    return windows


def _display_name(name: str) -> str:
    """Name of data made by a function: the function's name, or its own description."""
    return str(getattr(DATASETS.load(name), "said", name))


@lru_cache(maxsize=1)
def _make_synthetic(users: int) -> Windows:
    """Make the synthetic set, once for the check before a run and for the run itself."""
    return synthetic_windows(num_users=users)


def forget_source(windows: Windows) -> None:
    """Free large windows of `load_source`, once the clients' data have been written.

    Small ones stay cached for the next run in this process.
    """
    if windows.x.nbytes > _MAX_CACHED_BYTES:
        _make_synthetic.cache_clear()


@dataclass(frozen=True)
class ClientBounds:
    """Rows of one client in x.npy: training, then validation, then test."""

    start: int
    val: int
    test: int
    stop: int


@dataclass(frozen=True)
class ClientData:
    """One client's windows, mapped read-only.

    Attributes:
        train: x (N, …) float32 or int64, and y (N, …) int64 or float32.
        held_out: the same of the validation windows, followed by the test windows.
        num_val: number of held-out windows for validation.
        classes: number of classes of the whole data set.
        search_folders: folders in which the server found a user's code.
        frozen: model entries not sent in messages; empty if there are none, or not here.
    """

    train: tuple[np.ndarray, np.ndarray]
    held_out: tuple[np.ndarray, np.ndarray]
    num_val: int
    classes: int
    search_folders: tuple[str, ...] = ()
    frozen: Mapping[str, np.ndarray] = field(default_factory=dict)

    def thinned(self, most: int) -> "ClientData":
        """The same with at most `most` training windows, evenly spaced in their order."""
        x, y = self.train
        if len(y) <= most:
            return self
        rows = np.arange(most) * len(y) // most
        return replace(self, train=(x[rows], y[rows]))

    @property
    def val(self) -> tuple[np.ndarray, np.ndarray]:
        """Validation windows: x and y (N, …)."""
        x, y = self.held_out
        return x[: self.num_val], y[: self.num_val]

    @property
    def test(self) -> tuple[np.ndarray, np.ndarray]:
        """Test windows: x and y (N, …)."""
        x, y = self.held_out
        return x[self.num_val :], y[self.num_val :]


@dataclass(frozen=True)
class DataShape:
    """Shape of the data, from which a model is built.

    Attributes:
        input_shape: shape of one window (C, T) or image (C, H, W).
        classes: how many.
        mean, std: mean and deviation of each channel by which windows were scaled; empty if they were not.
        y_shape, y_dtype: shape and dtype of one example's target.
        tokens: inputs are int64 and not scaled.
    """

    input_shape: tuple[int, ...]
    classes: int
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    y_shape: tuple[int, ...] = ()
    y_dtype: str = "int64"
    tokens: bool = False


def shape_of(windows: Windows) -> DataShape:
    """The sizes of unscaled windows."""
    y = windows.y
    tokens = windows.x.dtype == np.int64
    return DataShape(
        windows.x.shape[1:], len(windows.classes), (), (), y.shape[1:], y.dtype.name, tokens
    )  # fmt: skip


@dataclass(frozen=True)
class LaidOut:
    """Windows of some clients side by side, with a block for each change by the scenario during the run.

    Attributes:
        x: (N, C, …) float32, not scaled; or (N, …) int64.
        y: (N, …) int64 or float32.
        bounds: of the blocks, one after another.
        eras: (first global round, each client's block) of every stretch of rounds.
    """

    x: np.ndarray
    y: np.ndarray
    bounds: list[ClientBounds]
    eras: list[tuple[int, list[int]]]


def lay_out(windows: Windows, partition: Partition, clients: Sequence[int] | None = None) -> LaidOut:
    """The windows of clients side by side, with the scenario's changes.

    Args:
        windows: N windows.
        partition: per client its window indices.
        clients: whose windows, in this order; by default of all.
    """
    chosen = range(len(partition.clients)) if clients is None else clients
    blocks, eras = _plan_blocks(partition, chosen)
    order = np.concatenate([part for client, _ in blocks for part in partition.clients[client]])
    x, y = as_float(windows.x[order]), windows.y[order]
    bounds, start = [], 0
    for client, change in blocks:
        ends = start + np.cumsum([len(part) for part in partition.clients[client]])
        bounds.append(ClientBounds(start, int(ends[0]), int(ends[1]), int(ends[2])))
        if change is not None:
            rows = slice(start, int(ends[2]))
            x[rows], y[rows] = change.apply(x[rows], y[rows])
        start = int(ends[2])
    return LaidOut(x, y, bounds, eras)


def write_client_data(folder: Path, windows: Windows, partition: Partition, normalize: bool) -> DataShape:
    """Write the windows of all clients into `folder`, replacing its content.

    Args:
        folder: written as a whole under a temporary name, then moved into place.
        windows: N windows.
        partition: per client its window indices.
        normalize: scale each channel by the mean and standard deviation of all clients' training windows, as
            they are in global round 1.

    Raises:
        ConfigError: scaled windows are too large to compute with.
    """
    laid = lay_out(windows, partition)
    scale = Scale()
    if normalize:
        known = [c for c in range(len(partition.clients)) if c not in partition.unseen_clients]
        scale = scale_of([channel_sums(laid.x[b.start : b.val]) for b in (laid.bounds[c] for c in known)])
        apply_scale(laid.x, scale)
        _refuse_unscalable(laid, scale, windows.channels)
    write_laid_out(folder, laid, {"classes": len(windows.classes), "look_in": search_folders()})
    return replace(shape_of(windows), mean=scale.mean, std=scale.std)


def _refuse_unscalable(laid: LaidOut, scale: Scale, channels: Sequence[str]) -> None:
    """Raise ConfigError naming the first client with windows too large for the common scale."""
    for _, blocks in laid.eras:
        for client, block in enumerate(blocks):
            bounds = laid.bounds[block]
            if problem := unscalable(laid.x[bounds.start : bounds.stop], scale, channels):
                raise ConfigError(
                    f"data.normalize needs windows in units that clients share, but of client {client} "
                    f"{problem}; leave out the channel or these windows, or set data.normalize=false"
                )


def write_laid_out(folder: Path, laid: LaidOut, facts: Mapping[str, Any]) -> None:
    """Write windows into a folder, as a whole, replacing its content; `facts` go into its index, too."""
    temporary = folder.with_name(folder.name + ".tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    with removed_on_failure(temporary):
        _write_array(temporary / "x.npy", laid.x)
        _write_array(temporary / "y.npy", laid.y)
        index = {**facts, "bounds": [asdict(b) for b in laid.bounds], "eras": laid.eras}
        (temporary / _INDEX).write_text(json.dumps(index))
    shutil.rmtree(folder, ignore_errors=True)
    temporary.rename(folder)


class _Stream:
    """Stream around a file for NumPy, which reports a full disk without a reason if given the file itself."""

    def __init__(self, file: BinaryIO) -> None:
        self.write = file.write


def _write_array(path: Path, array: np.ndarray) -> None:
    """Write an array as np.save does; OSError has the reason and the file."""
    try:
        with path.open("wb") as file:
            np.lib.format.write_array(_Stream(file), array, allow_pickle=False)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _plan_blocks(
    partition: Partition, clients: Sequence[int]
) -> tuple[list[tuple[int, Change | None]], list[tuple[int, list[int]]]]:
    """Arrays to be written one after another, and their owners in time.

    Returns:
        Blocks (client, change of its windows): every client's of round 1 first, then those of later rounds.
            And (first global round, each client's block) of every stretch of rounds.
    """
    scenario = partition.scenario
    if scenario is None:
        return [(client, None) for client in clients], [(1, list(range(len(clients))))]
    block_of: dict[tuple[int, int], int] = {}
    blocks: list[tuple[int, Change | None]] = []
    eras = []
    for first, _ in scenario.eras:
        era_blocks = []
        for client in clients:
            change = scenario.change_of(client, first)
            key = (client, id(change))
            if key not in block_of:
                block_of[key] = len(blocks)
                blocks.append((client, change))
            era_blocks.append(block_of[key])
        eras.append((first, era_blocks))
    return blocks, eras


def as_float(x: np.ndarray) -> np.ndarray:
    """x as float32; bytes, which are brightness 0..255, become 0..1."""
    return x.astype(np.float32) / np.float32(255) if x.dtype == np.uint8 else x


def read_laid_out(folder: Path) -> tuple[LaidOut, dict[str, Any]]:
    """Map a folder of `write_laid_out`; returns its windows and the facts of its index.

    Raises:
        OSError: the folder is missing.
        ValueError, KeyError: the content is something else.
    """
    x, y, index = _map_folder(str(folder), folder_identity(str(folder)))
    eras = [(int(first), [int(number) for number in blocks]) for first, blocks in index["eras"]]
    return LaidOut(x, y, [ClientBounds(**b) for b in index["bounds"]], eras), index


def folder_identity(folder: str) -> tuple[int, ...]:
    """Digest, different for every write of a data folder."""
    status = os.stat(f"{folder}/{_INDEX}")  # no Path: thousands of clients ask in each round
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns


@lru_cache(maxsize=2)
def _map_folder(folder: str, identity: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Map a data folder; the cache holds this run's and at most one other.

    `identity` is its index file's: another run may have had the same path.
    """
    files = [Path(folder) / name for name in (_INDEX, "x.npy", "y.npy")]
    for file in files:
        refuse_irregular(file)
    index = read_json(files[0].read_text(encoding="utf-8"))
    return map_array(files[1]), map_array(files[2]), index


def open_client(folder: str, partition_id: int, global_round: int = 1) -> ClientData:
    """One client's windows in a global round as read-only views of the mapped files.

    Nothing is loaded. Rounds count from 1.

    Raises:
        FileNotFoundError: the folder is not on this machine.
        IndexError: there is no such client.
    """
    return client_in(all_windows(folder), partition_id, global_round)


@dataclass(frozen=True)
class AllWindows:
    """The windows of all clients as in a data folder, wherever they are stored.

    Attributes:
        x: (N, C, …) float32, scaled; or (N, …) int64.
        y: (N, …) int64 or float32.
        index: the folder's index: bounds, stretches of rounds, facts.
        frozen: model entries not sent in messages.
    """

    x: np.ndarray
    y: np.ndarray
    index: Mapping[str, Any]
    frozen: Mapping[str, np.ndarray] = field(default_factory=dict)


def write_frozen(folder: Path, frozen: State) -> State:
    """Store model entries not sent in messages beside the windows of a data folder; returns them mapped."""
    if not frozen:
        return frozen
    write_state(folder / _FROZEN, frozen)
    _map_frozen.cache_clear()
    return map_state(folder / _FROZEN)


@lru_cache(maxsize=2)
def _map_frozen(folder: str, identity: tuple[int, ...]) -> State:
    """Map the frozen entries in a data folder, written by `write_frozen`; empty without any."""
    path = Path(folder) / _FROZEN
    return map_state(path) if path.is_file() else {}


def all_windows(folder: Path | str) -> AllWindows:
    """Map all clients' windows in a data folder.

    Thousands of clients need them in each round, so files are read once per process and content.
    """
    path = str(folder)
    identity = folder_identity(path)
    return AllWindows(*_map_folder(path, identity), _map_frozen(path, identity))


def client_in(windows: AllWindows, partition_id: int, global_round: int = 1) -> ClientData:
    """One client's windows in a global round as views of all clients' windows; rounds count from 1.

    Raises:
        IndexError: there is no such client.
    """
    x, y, index = windows.x, windows.y, windows.index
    clients = [blocks for first, blocks in index["eras"] if first <= max(1, global_round)][-1]
    if not 0 <= partition_id < len(clients):
        raise IndexError(f"there is no client {partition_id}: there are clients 0 to {len(clients) - 1}")
    b = ClientBounds(**index["bounds"][clients[partition_id]])
    train, held_out = slice(b.start, b.val), slice(b.val, b.stop)
    return ClientData(
        (x[train], y[train]),
        (x[held_out], y[held_out]),
        b.test - b.val,
        index["classes"],
        tuple(index["look_in"]),
        windows.frozen,
    )
