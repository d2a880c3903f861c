"""What a client keeps between rounds: SCAFFOLD's control variate c_i, one version per leaf round.

A client cannot know whether its reply counted: it may be refused, come too late, or never arrive. If it
moved on to c_i⁺ all the same, the leaf's c would no longer be the mean of the c_i (contract C6). So what it
has computed in a leaf round is kept under that round's number, and every train message says which of the
client's leaf rounds counted last: that version is its c_i. Nothing has to be undone, and a second or late
attempt at a round does no harm: it writes the same bits under the same number.

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

from fedge.exchange.round_context import RoundContext
from fedge.states.averaging import State
from fedge.states.files import FileState, map_state, write_state
from fedge.states.records import from_record, to_record

_KEY = "scaffold-control-"
_OPEN = 8  # files that are open at a time while all controls are read: there may be thousands


def load_control(context: Context, round_context: RoundContext, client: int, accepted: int) -> State | None:
    """Return the client's c_i as of the leaf round that counted last; None if none has yet (`accepted` 0).

    Raises:
        FileNotFoundError: it should be there and is not.
    """
    if accepted == 0:
        return None
    record = context.state.get(f"{_KEY}{accepted}")
    if isinstance(record, ArrayRecord):
        return from_record(record)
    path = _path(Path(round_context.data_folder), client, accepted)
    if not path.is_file():
        raise FileNotFoundError(f"the control variate of leaf round {accepted} is gone")
    return map_state(path)


def save_control(
    context: Context, round_context: RoundContext, client: int, accepted: int, control: State
) -> None:
    """Keep the c_i that becomes valid if the leaf round counts; its arrays must not change any more.

    Versions that cannot become valid any more are dropped.
    """
    if os.getpid() == round_context.server_pid:
        context.state[f"{_KEY}{round_context.leaf_round}"] = to_record(control)
        for key in [str(key) for key in context.state]:
            if key.startswith(_KEY) and _is_past(int(key.removeprefix(_KEY)), accepted, round_context):
                del context.state[key]
        return
    path = _path(Path(round_context.data_folder), client, round_context.leaf_round)
    path.parent.mkdir(exist_ok=True)
    write_state(path, control)
    for old in path.parent.glob("*.safetensors"):
        if _is_past(int(old.stem), accepted, round_context):
            old.unlink(missing_ok=True)


def _is_past(leaf_round: int, accepted: int, round_context: RoundContext) -> bool:
    """Tell whether a leaf round neither counted last nor still can."""
    return leaf_round < round_context.leaf_round and leaf_round != accepted


def all_controls(
    data_folder: Path, accepted: Mapping[int, int], contexts: Mapping[int, Context]
) -> dict[int, State]:
    """Return, at the server, the valid c_i of every client that has one; files are read when looked into.

    Args:
        data_folder: of the run.
        accepted: partition id → the client's leaf round that counted last, 0 for none.
        contexts: of the clients that live in this process, by partition id.
    """
    opened = lru_cache(_OPEN)(map_state)
    found: dict[int, State] = {}
    for client, leaf_round in accepted.items():
        record = contexts[client].state.get(f"{_KEY}{leaf_round}") if client in contexts else None
        path = _path(data_folder, client, leaf_round)
        if isinstance(record, ArrayRecord):
            found[client] = from_record(record)
        elif path.is_file():
            found[client] = _Unopened(path, opened)
    return found


def put_controls(data_folder: Path, controls: Mapping[int, State], accepted: Mapping[int, int]) -> None:
    """Let clients find these c_i, on whatever engine they run."""
    for client, control in controls.items():
        path = _path(data_folder, client, accepted[client])
        path.parent.mkdir(exist_ok=True)
        write_state(path, control)


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


def _path(data_folder: Path, client: int, leaf_round: int) -> Path:
    """Return the file of a version of a client's control, in the folder that goes when the run ends."""
    return data_folder / f"control-{client}" / f"{leaf_round}.safetensors"
