"""GPUs of this machine that a run can use, and those that it cannot, by name."""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_QUERY = "--query-gpu=index,uuid,name,memory.total,memory.free"
_HIDDEN = ("", "-1", "NoDevFiles")
_WHOLE = re.compile(r"GPU \d+: .*\(UUID: (GPU-[^)]+)\)")
_SLICE = re.compile(r"\s+MIG (\S*?(\d+)gb\S*)\s.*\(UUID: (MIG-[^)]+)\)")


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
    listing = _said([tool, _QUERY, "--format=csv,noheader,nounits"])
    visible = (os.environ if environment is None else environment).get("CUDA_VISIBLE_DEVICES")
    return listed(listing, visible, _said([tool, "-L"]))


def _said(words: Sequence[str]) -> str:
    """Output of a command; empty where it fails."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def listed(text: str, visible: str | None, slices: str = "") -> list[Gpu]:
    """The GPUs of a listing (index, uuid, name, MiB, MiB free) that `visible` shows; None: all.

    A GPU in MIG mode is its slices: CUDA shows one of them at a time, and none beside whole GPUs unless it is
    named. UUIDs may be cut short, as far as they are still of one alone.

    Args:
        text: of the driver's listing.
        visible: CUDA_VISIBLE_DEVICES.
        slices: its listing of GPUs with the slices of each (``nvidia-smi -L``).

    >>> listed("0, GPU-a, H100, 81559, 80000\\n1, GPU-b, H100, 81559, 81000\\n", "1")
    [Gpu(name='H100', memory_mib=81559.0, free_mib=81000.0)]
    """
    cut = _slices_of(slices)
    whole: list[Gpu] = []
    by_name: dict[str, Gpu] = {}
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != 5 or not all(_is_number(field) for field in fields[3:]):
            continue
        index, uuid = fields[:2]
        gpu = Gpu(fields[2], float(fields[3]), float(fields[4]))
        parts = {name: Gpu(f"{gpu.name} MIG {kind}", mib, mib) for name, kind, mib in cut.get(uuid, ())}
        if parts:
            first = next(iter(parts.values()))
            by_name.update({index: first, uuid: first, f"MIG-{uuid}": first, **parts})
        else:
            whole.append(gpu)
            by_name.update({index: gpu, uuid: gpu})
    if visible is None:
        return whole or list(by_name.values())[:1]
    if visible in _HIDDEN:
        return []
    shown = []
    for name in visible.split(","):  # CUDA shows those before the first that it does not know
        gpu_there = _named(name.strip(), by_name)
        if gpu_there is None:
            break
        shown.append(gpu_there)
    return shown


def _named(name: str, by_name: Mapping[str, Gpu]) -> Gpu | None:
    """The GPU of an index or a UUID, which may be cut short; None for none or several.

    Older drivers name a slice by its GPU and two numbers, as MIG-GPU-UUID/1/0.
    """
    name = name.partition("/")[0]
    if name in by_name or not name.startswith(("GPU-", "MIG-")):
        return by_name.get(name)
    found = [gpu for known, gpu in by_name.items() if known.startswith(name)]
    return found[0] if len(found) == 1 else None


def _slices_of(text: str) -> dict[str, list[tuple[str, str, float]]]:
    """UUID of a GPU in MIG mode → UUID, profile as 3g.20gb, and MiB of each of its slices."""
    found: dict[str, list[tuple[str, str, float]]] = {}
    gpu = ""
    for line in text.splitlines():
        if whole := _WHOLE.match(line):
            gpu = whole[1]
        elif part := _SLICE.match(line):
            found.setdefault(gpu, []).append((part[3], part[1], 1024 * float(part[2])))
    return found


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
