"""Findings on machine, environment and project: ok, a note, or an error."""

import importlib.util
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from fedge.config.registers.option import ConfigError
from fedge.doctor.gpus import Gpu, unused_gpus
from fedge.flower import TESTED, uses_superlink
from fedge.launch.flower_runs.background import standing_superlink
from fedge.launch.flower_runs.ray_start import refuse_ray_that_cannot_start
from fedge.native.library import UnavailableError, open_library
from fedge.process.resources.machine import Machine
from fedge.seeding import resolve_seed

WELL, TRAP, BROKEN = "ok", "note", "error"
_FEW_FILES = 1024
_LITTLE_SHM_MIB = 256
_RAY_BELOW = (2, 54)
_PACKAGES = ("fedge", "torch", "numpy", "polars")
_EXTRAS = {
    "ray": "ray", "memray": "profile", "dp_accounting": "privacy", "onnx": "onnx", "pandas": "pandas",
    "tensorboard": "tensorboard", "wandb": "wandb", "mlflow": "mlflow",
}  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """One line of the table.

    Attributes:
        name: subject.
        state: "ok", "note" (works, with a caveat) or "error" (a run will not work).
        words: the finding, and the next step.
    """

    name: str
    state: str
    words: str


def machine_findings(machine: Machine, gpus: list[Gpu], on_ray: bool) -> Iterator[Finding]:
    """Cores, memory, disk, GPUs and their limits."""
    limit_note = f", limited by a cgroup to {machine.cgroup}" if machine.cgroup else ""
    cores = f"{machine.usable_cores:g} of {machine.cores} usable{limit_note}"
    yield Finding("cores", WELL if machine.usable_cores >= 1 else TRAP, cores)
    free = machine.available_mib / machine.memory_mib
    words = f"{machine.available_mib:,.0f} of {machine.memory_mib:,.0f} MiB free"
    yield Finding("memory", WELL if free > 0.1 else TRAP, words)
    for number, gpu in enumerate(gpus):
        words = f"{gpu.name}, {gpu.free_mib:,.0f} of {gpu.memory_mib:,.0f} MiB free"
        note = "; in use by others" if gpu.free_mib < 0.9 * gpu.memory_mib else ""
        yield Finding(f"GPU {number}", TRAP if note else WELL, words + note)
    for words in unused_gpus():
        yield Finding("other GPU", TRAP, words)
    if not gpus:
        yield Finding("GPU", WELL, "no NVIDIA GPU found: clients train on the CPU")
    if machine.shm_mib is not None:
        is_small = on_ray and machine.shm_mib < _LITTLE_SHM_MIB
        hint = "; Ray spills the excess to disk: docker run --shm-size=1g" if is_small else ""
        yield Finding("/dev/shm", TRAP if is_small else WELL, f"{machine.shm_mib:,.0f} MiB free{hint}")
    if machine.open_files is not None:
        is_low = machine.open_files < _FEW_FILES
        hint = "; Ray needs more: ulimit -n 4096" if is_low else ""
        yield Finding("open files", TRAP if is_low else WELL, f"{machine.open_files:,} per process{hint}")


def installation_findings(on_ray: bool) -> Iterator[Finding]:
    """Installed packages and versions, with their caveats."""
    yield Finding("Python", WELL, f"{sys.version.split()[0]}, {sys.executable}")
    installed = {name: _version(name) for name in _PACKAGES}
    missing = [name for name, number in installed.items() if number is None]
    words = ", ".join(f"{name} {number or 'is missing'}" for name, number in installed.items())
    hint = f"; pip install {' '.join(missing)}" if missing else ""
    yield Finding("packages", BROKEN if missing else WELL, words + hint)
    yield _flower_finding()
    yield _ray_finding(on_ray)
    extras = {extra: importlib.util.find_spec(name) is not None for name, extra in _EXTRAS.items()}
    missing_extras = ", ".join(
        f"fedge[{extra}]" for extra, is_installed in extras.items() if not is_installed
    )
    yield Finding(
        "extras", WELL, "all are installed" if not missing_extras else f"not installed: {missing_extras}"
    )
    try:
        open_library()
        yield Finding("native step", WELL, "built")
    except UnavailableError as error:
        yield Finding("native step", WELL, f"PyTorch is used: {error} (docs/native.md)")


def _version(package: str) -> str | None:
    """Version of a package; None if not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _flower_finding() -> Finding:
    """Finding on the installed Flower."""
    installed = version("flwr")
    numbers = tuple(map(int, installed.split(".")[:2]))
    if numbers not in TESTED:
        words = f"{installed} is not tested; {', '.join(TESTED.values())} are (docs/flower-versions.md)"
        return Finding("Flower", BROKEN, words)
    if uses_superlink():
        words = "flwr run keeps a SuperLink in the background, with its first SEED; "
        words += "fedge run --engine flower does not"
        return Finding("Flower", TRAP, f"{installed}: {words}")
    return Finding("Flower", WELL, f"{installed}; flwr run always exits with 0, fedge run does not")


def _ray_finding(on_ray: bool) -> Finding:
    """Finding on the installed Ray."""
    try:
        installed = version("ray")
    except PackageNotFoundError:
        state = BROKEN if on_ray else WELL
        return Finding("Ray", state, "not installed; only flwr run needs it: pip install 'fedge[ray]'")
    if tuple(map(int, installed.split(".")[:2])) >= _RAY_BELOW:
        words = "listens on all interfaces and runs any code sent to it; pip install 'ray<2.54'"
        return Finding("Ray", BROKEN if on_ray else TRAP, f"{installed} {words}")
    if on_ray:
        try:
            refuse_ray_that_cannot_start()
        except ConfigError as error:
            return Finding("Ray", BROKEN, f"{installed}: {error}")
    return Finding("Ray", WELL, f"{installed}, on loopback only")


def environment_findings(
    configured_seed: int, on_flwr_run: bool = True, environment: Mapping[str, str] | None = None
) -> Iterator[Finding]:
    """Parts of the environment with effects on a run: seed, ports, a background SuperLink."""
    variables = os.environ if environment is None else environment
    try:
        seed, source = resolve_seed(configured_seed, variables)
        yield Finding("seed", WELL, f"{seed}, from {source}; SEED in the environment takes precedence")
    except ConfigError as error:
        yield Finding("seed", BROKEN, str(error))
        return
    if uses_superlink() and on_flwr_run:
        yield _superlink_finding(configured_seed, seed, variables)


def _superlink_finding(configured_seed: int, seed: int, variables: Mapping[str, str]) -> Finding:
    """Whether `flwr run` would use a SuperLink with the intended seed."""
    port = variables.get("FLWR_LOCAL_SUPERLINK_HTTP_API_PORT", "39091")
    process = standing_superlink(variables)
    if process is None:
        with socket.socket() as probe:
            is_taken = port.isdecimal() and probe.connect_ex(("127.0.0.1", int(port))) == 0
        words = (
            f"port {port} is taken by another program: flwr run will not work; fedge run --engine flower will"
        )
        advice = f"none in the background; flwr run starts one on port {port} with SEED as it is now"
        return Finding("SuperLink", TRAP if is_taken else WELL, words if is_taken else advice)
    running_seed = configured_seed
    with suppress(Exception):  # belongs to another user, or is gone
        running_seed = resolve_seed(configured_seed, process.environ())[0]
    if running_seed != seed:
        words = f"process {process.pid} would run with seed {running_seed}, not {seed}: kill {process.pid}"
        return Finding("SuperLink", TRAP, words)
    return Finding("SuperLink", WELL, f"process {process.pid} in the background, with seed {seed}")


def runs_folder_findings(runs_dir: str) -> Finding:
    """Whether run folders can be written."""
    folder = Path(runs_dir)
    above = (folder, *folder.absolute().parents)
    existing = next((path for path in above if os.path.exists(path)), Path("/"))
    if not existing.is_dir():
        return Finding("runs-dir", BROKEN, f"{existing.absolute()} is a file, not a folder; set runs-dir")
    if not os.access(existing, os.W_OK | os.X_OK):
        return Finding("runs-dir", BROKEN, f"{folder.absolute()} is not writable; set runs-dir")
    return Finding("runs-dir", WELL, f"{folder.absolute()} is writable")
