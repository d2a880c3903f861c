"""GPUs of this machine usable by a run, and names of the others."""

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
_GPU_LINE = re.compile(r"GPU \d+: .*\(UUID: (GPU-[^)]+)\)")
_SLICE_LINE = re.compile(r"\s+MIG (\S*?(\d+)gb\S*)\s.*\(UUID: (MIG-[^)]+)\)")


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA GPU.

    Attributes:
        name: product name.
        memory_mib: its memory in MiB.
        free_mib: free MiB.
    """

    name: str
    memory_mib: float
    free_mib: float


def gpus(environment: Mapping[str, str] | None = None) -> list[Gpu]:
    """GPUs listed by NVIDIA's driver and selected by CUDA_VISIBLE_DEVICES, in its order."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    listing = _command_output([tool, _QUERY, "--format=csv,noheader,nounits"])
    visible = (os.environ if environment is None else environment).get("CUDA_VISIBLE_DEVICES")
    return visible_gpus(listing, visible, _command_output([tool, "-L"]))


def _command_output(command: Sequence[str]) -> str:
    """Output of a command; empty on failure."""
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout if result.returncode == 0 else ""


def visible_gpus(text: str, visible: str | None, slices: str = "") -> list[Gpu]:
    """GPUs of a listing (index, uuid, name, MiB, MiB free) selected by `visible`.

    A GPU in MIG mode is represented by its slices: CUDA shows one of them at a time, and none beside whole
    GPUs unless named. UUIDs may be abbreviated while unambiguous.

    Args:
        text: the driver's listing.
        visible: CUDA_VISIBLE_DEVICES; None for all GPUs.
        slices: listing of GPUs with their slices (``nvidia-smi -L``).

    >>> visible_gpus("0, GPU-a, H100, 81559, 80000\\n1, GPU-b, H100, 81559, 81000\\n", "1")
    [Gpu(name='H100', memory_mib=81559.0, free_mib=81000.0)]
    """
    slices_by_uuid = _parse_slices(slices)
    full_gpus: list[Gpu] = []
    by_name: dict[str, Gpu] = {}
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != 5 or not all(_is_number(field) for field in fields[3:]):
            continue
        index, uuid = fields[:2]
        gpu = Gpu(fields[2], float(fields[3]), float(fields[4]))
        parts = {
            name: Gpu(f"{gpu.name} MIG {kind}", mib, mib) for name, kind, mib in slices_by_uuid.get(uuid, ())
        }
        if parts:
            first = next(iter(parts.values()))
            by_name.update({index: first, uuid: first, f"MIG-{uuid}": first, **parts})
        else:
            full_gpus.append(gpu)
            by_name.update({index: gpu, uuid: gpu})
    if visible is None:
        return full_gpus or list(by_name.values())[:1]
    if visible in _HIDDEN:
        return []
    selected = []
    for name in visible.split(","):  # CUDA ignores all from the first unknown name on
        match = _find_gpu(name.strip(), by_name)
        if match is None:
            break
        selected.append(match)
    return selected


def _find_gpu(name: str, by_name: Mapping[str, Gpu]) -> Gpu | None:
    """GPU of an index or a possibly abbreviated UUID; None if there is none, or several.

    Older drivers name a slice by its GPU and two numbers, e.g. MIG-GPU-UUID/1/0.
    """
    name = name.partition("/")[0]
    if name in by_name or not name.startswith(("GPU-", "MIG-")):
        return by_name.get(name)
    matches = [gpu for candidate, gpu in by_name.items() if candidate.startswith(name)]
    return matches[0] if len(matches) == 1 else None


def _parse_slices(text: str) -> dict[str, list[tuple[str, str, float]]]:
    """UUID of a GPU in MIG mode → UUID, profile (e.g. 3g.20gb) and MiB of each slice."""
    slices: dict[str, list[tuple[str, str, float]]] = {}
    gpu = ""
    for line in text.splitlines():
        if header := _GPU_LINE.match(line):
            gpu = header[1]
        elif entry := _SLICE_LINE.match(line):
            slices.setdefault(gpu, []).append((entry[3], entry[1], 1024 * float(entry[2])))
    return slices


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def unused_gpus(kfd: Path = Path("/dev/kfd")) -> list[str]:
    """GPUs not used by Fedge, each with the reason."""
    unused = []
    if kfd.exists():
        unused.append(
            "an AMD GPU (ROCm): untested; federations count NVIDIA GPUs, so num-gpus above 0 is refused, but "
            "fedge run with a ROCm build of PyTorch uses it as train.device = cuda"
        )
    if sys.platform == "darwin" and platform.machine() == "arm64":
        unused.append("Apple's GPU (MPS): not used, clients compute on the CPU")
    return unused
