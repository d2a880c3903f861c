"""What a client keeps between rounds: SCAFFOLD's control variate c_i.

In the server's own process it lies in Flower's `Context.state`, by reference. Under Ray that state would
travel with every message to whichever worker is free and back, so there it is a file beside the windows.
The server reads all of them for a checkpoint, and puts them back, as files, when a run is resumed.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Context

from fedge.aggregation import State
from fedge.arrays import from_record, to_record
from fedge.messages import Errand
from fedge.state_file import FileState, map_state, write_state

_KEY = "scaffold-control"
_OPEN = 8  # files that are open at a time while all controls are read: there may be thousands


def load_control(context: Context, errand: Errand, client: int) -> State | None:
    """Return the client's c_i, or None before its first round."""
    record = context.state.get(_KEY)
    if isinstance(record, ArrayRecord):
        return from_record(record)
    path = _path(Path(errand.data_folder), client)
    return map_state(path) if path.is_file() else None


def save_control(context: Context, errand: Errand, client: int, control: State) -> None:
    """Keep the client's c_i; its arrays must not change any more."""
    if os.getpid() == errand.server_pid:
        context.state[_KEY] = to_record(control)
        return
    write_state(_path(Path(errand.data_folder), client), control)


def all_controls(data_folder: Path, num_clients: int, contexts: Mapping[int, Context]) -> dict[int, State]:
    """Return, at the server, the c_i of every client that has one; files are read when looked into.

    Args:
        data_folder: of the run.
        num_clients: clients are 0, 1, …
        contexts: of the clients that live in this process, by partition id.
    """
    opened = lru_cache(_OPEN)(map_state)
    found: dict[int, State] = {}
    for client in range(num_clients):
        record = contexts[client].state.get(_KEY) if client in contexts else None
        path = _path(data_folder, client)
        if isinstance(record, ArrayRecord):
            found[client] = from_record(record)
        elif path.is_file():
            found[client] = _Unopened(path, opened)
    return found


def put_controls(data_folder: Path, controls: Mapping[int, State]) -> None:
    """Let clients find these c_i, on whatever engine they run."""
    for client, control in controls.items():
        write_state(_path(data_folder, client), control)


class _Unopened(Mapping[str, np.ndarray]):
    """A state whose file is opened when it is looked into and closed when others were since."""

    def __init__(self, path: Path, opened: Callable[[Path], FileState]) -> None:
        self._path = path
        self._opened = opened

    def __getitem__(self, name: str) -> np.ndarray:
        return self._opened(self._path)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._opened(self._path))

    def __len__(self) -> int:
        return len(self._opened(self._path))


def _path(data_folder: Path, client: int) -> Path:
    """Return the file of a client's control, in the folder that goes when the run ends."""
    return data_folder / f"control-{client}.safetensors"
