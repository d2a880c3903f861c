"""Windows of all clients in Ray's object store: sent once to each machine, mapped by all workers there.

For a cluster whose machines do not see the server's files. Nothing of it is on a disk, and it goes with the
run, whose process holds it. A message carries the name of the object, as Ray writes it.
"""

import base64
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedge.data.prepared import AllWindows, all_windows

_held: dict[str, Any] = {}  # handed out by this process: an object goes with its last reference


def hand_out(folder: Path) -> str:
    """Put the windows of a data folder into the object store; returns the key for `take`."""
    import ray

    windows = all_windows(folder)
    reference = ray.put((windows.x, windows.y, dict(windows.index), dict(windows.frozen)))
    text = base64.b64encode(ray.cloudpickle.dumps(reference)).decode()
    _held.clear()
    _held[text] = reference
    return text


@lru_cache(maxsize=1)
def take(text: str) -> AllWindows:
    """The windows that `hand_out` has put into the store, mapped read-only on this machine.

    Raises:
        RuntimeError: this process is no worker of Ray's, or the server is gone.
    """
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():  # a name is unpickled below: only where Ray does so anyway
        raise RuntimeError("windows are in Ray's object store, but this process is none of Ray's workers")
    return AllWindows(*ray.get(ray.cloudpickle.loads(base64.b64decode(text))))
