"""What a client keeps between rounds: SCAFFOLD's control variate c_i.

In the server's own process it lies in Flower's `Context.state`, by reference. Under Ray that state would
travel with every message to whichever worker is free and back, so there it is a file beside the windows.
"""

import os
from pathlib import Path

from flwr.app import ArrayRecord, Context
from safetensors.numpy import load_file

from fedge.aggregation import State
from fedge.arrays import from_record, to_record
from fedge.messages import Errand
from fedge.state_file import write_state

_KEY = "scaffold-control"


def load_control(context: Context, errand: Errand, client: int) -> State | None:
    """Return the client's c_i, or None before its first round."""
    if os.getpid() == errand.server_pid:
        record = context.state.get(_KEY)
        return from_record(record) if isinstance(record, ArrayRecord) else None
    path = _path(errand, client)
    return load_file(path) if path.is_file() else None


def save_control(context: Context, errand: Errand, client: int, control: State) -> None:
    """Keep the client's c_i; its arrays must not change any more."""
    if os.getpid() == errand.server_pid:
        context.state[_KEY] = to_record(control)
        return
    write_state(_path(errand, client), control)


def _path(errand: Errand, client: int) -> Path:
    """Return the file of a client's control, in the folder that goes when the run ends."""
    return Path(errand.data_folder) / f"control-{client}.safetensors"
