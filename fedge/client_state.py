"""What a client keeps between rounds: SCAFFOLD's control variate c_i, one version per leaf round.

A client cannot know whether its reply counted: it may be refused, come too late, or never arrive. If it
moved on to c_i⁺ all the same, the leaf's c would no longer be the mean of the c_i (contract C6). So what it
has computed in a leaf round is kept under that round's number, and every train message says which of the
client's leaf rounds counted last: that version is its c_i. Nothing has to be undone, and a second or late
attempt at a round does no harm: it writes the same bits under the same number.

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

_KEY = "scaffold-control-"


def load_control(context: Context, errand: Errand, client: int, accepted: int) -> State | None:
    """Return the client's c_i as of the leaf round that counted last; None if none has yet (`accepted` 0).

    Raises:
        FileNotFoundError: it should be there and is not.
    """
    if accepted == 0:
        return None
    if os.getpid() != errand.server_pid:
        return load_file(_folder(errand, client) / f"{accepted}.safetensors")
    record = context.state.get(f"{_KEY}{accepted}")
    if not isinstance(record, ArrayRecord):
        raise FileNotFoundError(f"the control variate of leaf round {accepted} is gone")
    return from_record(record)


def save_control(context: Context, errand: Errand, client: int, accepted: int, control: State) -> None:
    """Keep the c_i that becomes valid if the errand's leaf round counts; its arrays must not change any more.

    Versions that cannot become valid any more are dropped.
    """
    if os.getpid() == errand.server_pid:
        context.state[f"{_KEY}{errand.leaf_round}"] = to_record(control)
        for key in [str(key) for key in context.state]:
            if key.startswith(_KEY) and _is_past(int(key.removeprefix(_KEY)), accepted, errand):
                del context.state[key]
        return
    folder = _folder(errand, client)
    folder.mkdir(exist_ok=True)
    write_state(folder / f"{errand.leaf_round}.safetensors", control)
    for path in folder.glob("*.safetensors"):
        if _is_past(int(path.stem), accepted, errand):
            path.unlink(missing_ok=True)


def _is_past(leaf_round: int, accepted: int, errand: Errand) -> bool:
    """Tell whether a leaf round neither counted last nor still can."""
    return leaf_round < errand.leaf_round and leaf_round != accepted


def _folder(errand: Errand, client: int) -> Path:
    """Return the folder of a client's control, in the folder that goes when the run ends."""
    return Path(errand.data_folder) / f"control-{client}"
