"""GPUs of this machine that a run can use, and those that it cannot, by name."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_QUERY = "--query-gpu=index,uuid,name,memory.total,memory.free"
_HIDDEN = ("", "-1", "NoDevFiles")


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA GPU.

    Attributes:
        name: of the product.
        memory_mib: that it has.
        free_mib: of it, nobody's now.
    """

    name: str
    memory_mib: float
    free_mib: float


def gpus(environment: Mapping[str, str] | None = None) -> list[Gpu]:
    """The GPUs that NVIDIA's driver lists and CUDA_VISIBLE_DEVICES shows, in its order."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    words = [tool, _QUERY, "--format=csv,noheader,nounits"]
    try:
        listing = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    visible = (os.environ if environment is None else environment).get("CUDA_VISIBLE_DEVICES")
    return listed(listing.stdout, visible) if listing.returncode == 0 else []


def listed(text: str, visible: str | None) -> list[Gpu]:
    """The GPUs of a listing (index, uuid, name, MiB, MiB free) that `visible` shows; None: all.

    >>> listed("0, GPU-a, H100, 81559, 80000\\n1, GPU-b, H100, 81559, 81000\\n", "1")
    [Gpu(name='H100', memory_mib=81559.0, free_mib=81000.0)]
    """
    by_name: dict[str, Gpu] = {}
    found = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != 5 or not all(_is_number(field) for field in fields[3:]):
            continue
        gpu = Gpu(fields[2], float(fields[3]), float(fields[4]))
        found.append(gpu)
        by_name.update({fields[0]: gpu, fields[1]: gpu})
    if visible is None:
        return found
    if visible in _HIDDEN:
        return []
    shown = []
    for name in visible.split(","):  # CUDA shows those before the first that it does not know
        gpu_there = by_name.get(name.strip())
        if gpu_there is None:
            break
        shown.append(gpu_there)
    return shown


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def others(kfd: Path = Path("/dev/kfd")) -> list[str]:
    """Unused GPUs, each with the reason."""
    found = []
    if kfd.exists():
        found.append(
            "an AMD GPU (ROCm): not tried; federations count NVIDIA's, so num-gpus above 0 is refused, and "
            "fedge run with a ROCm build of PyTorch takes it as train.device = cuda"
        )
    if sys.platform == "darwin" and platform.machine() == "arm64":
        found.append("Apple's GPU (MPS): not used, clients compute on the CPU")
    return found
