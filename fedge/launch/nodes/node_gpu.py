"""Distribution of a machine's GPUs over its nodes, each of which starts with a different one if possible.

Nodes of one account lock files in a common folder. A node puts the least used GPU first in
``CUDA_VISIBLE_DEVICES``: its clients compute on the first, and processes of one client (`train.processes`)
also on the next ones. The system releases a lock when the node ends.
"""

import fcntl
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fedge.config.registers.option import shown
from hhar.quantity import quantity

VISIBLE = "CUDA_VISIBLE_DEVICES"
_HIDDEN = ("", "-1", "NoDevFiles")
_UUID = re.compile(r"UUID: ((?:GPU|MIG)-[^)\s]+)\)")
_MAX_OTHER_NODES = 64  # limit of nodes per GPU


def take_gpu() -> str:
    """Make this process and its children use another GPU first than other nodes; returns a line about it.

    The line is empty without a GPU, and for the only node on a single GPU.
    """
    names = gpu_names(_gpu_listing(), os.environ.get(VISIBLE))
    folder = _lock_folder() if names else None
    if folder is None:
        return ""
    index, num_others = lock_gpu(names, folder)
    if len(names) > 1:
        os.environ[VISIBLE] = ",".join([*names[index:], *names[:index]])
    gpu = f"GPU {index + 1} of {len(names)} ({names[index]})" if len(names) > 1 else "the GPU"
    if num_others:
        others = f"{quantity(num_others, 'other node')}"
        return f"this node shares {gpu} with {others} of this machine: they wait for each other"
    return f"this node takes {gpu}" if len(names) > 1 else ""


def gpu_names(listing: str, visible: str | None) -> list[str]:
    """Names of the GPUs available to a node, in the form of CUDA_VISIBLE_DEVICES.

    A GPU divided into slices (MIG) is represented by its slices.

    Args:
        listing: the driver's listing (``nvidia-smi -L``).
        visible: CUDA_VISIBLE_DEVICES; None for all.

    >>> gpu_names("GPU 0: H100 (UUID: GPU-a)\\nGPU 1: H100 (UUID: GPU-b)\\n", None)
    ['GPU-a', 'GPU-b']
    >>> gpu_names("GPU 0: H100 (UUID: GPU-a)\\n  MIG 1g.10gb Device 0: (UUID: MIG-c)\\n", None)
    ['MIG-c']
    """
    names: list[str] = []
    if visible in _HIDDEN:
        return names
    for name in _UUID.findall(listing):
        if name.startswith("MIG-") and names and names[-1].startswith("GPU-"):
            names.pop()
        names.append(name)
    if not names or visible is None:
        return names
    return [name.strip() for name in visible.split(",") if name.strip()]


def lock_gpu(names: Sequence[str], folder: Path) -> tuple[int, int]:
    """Index of the GPU with the fewest nodes, locked by this process, and its number of other nodes."""
    for others in range(_MAX_OTHER_NODES):
        for index, name in enumerate(names):
            if _try_lock(folder / f"{re.sub(r'[^A-Za-z0-9-]', '_', name)}.{others}"):
                return index, others
    return 0, _MAX_OTHER_NODES


def _try_lock(path: Path) -> bool:
    """Whether this process could lock a file; the lock lasts as long as the process and its children."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return False
    return True


def _lock_folder() -> Path | None:
    """Folder of this account's locks; None if its name is taken by another account."""
    path = Path(tempfile.gettempdir()) / f"fedge-gpus-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        status = path.lstat()
    except OSError:
        return None
    is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
    if not is_own:
        print(f"fedge: GPUs are not divided among nodes, since {shown(str(path))} is another account's")
    return path if is_own else None


def _gpu_listing() -> str:
    """The driver's listing of GPUs; empty without a driver."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ""
    try:
        result = subprocess.run(
            [tool, "-L"], capture_output=True, text=True, errors="replace", timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout if result.returncode == 0 else ""
