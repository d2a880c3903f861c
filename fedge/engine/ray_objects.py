"""Windows of all clients in Ray's object store: sent once to each machine, and mapped by its workers.

For clusters whose machines do not share the server's files. Nothing is written to disk, and the object lasts
as long as the run's process, which holds it. A message carries the object's name, as encoded by Ray.
"""

import base64
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedge.data.prepared import AllWindows, all_windows

_held: dict[str, Any] = {}  # an object is freed with its last reference


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
    """Windows stored by `hand_out`, mapped read-only on this machine.

    Raises:
        RuntimeError: this process is not a Ray worker, or the server is gone.
    """
    ray = sys.modules.get("ray")
    if (
        ray is None or not ray.is_initialized()
    ):  # the key is unpickled below: only in processes where Ray unpickles anyway
        raise RuntimeError("windows are in Ray's object store, but this process is not a Ray worker")
    return AllWindows(*ray.get(ray.cloudpickle.loads(base64.b64decode(text))))
