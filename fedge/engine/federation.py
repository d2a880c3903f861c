"""Requirements of a federation of pyproject.toml on the machine, and checks of the machine against them."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from fedge.config.registers.option import ConfigError, shown
from fedge.process.resources.machine import CGROUPS, limits

AUTO = "auto"  # value of client-resources: choose for this machine (`fedge doctor`)
TOLD = "FEDGE_FEDERATION"  # environment variable with `Federation.to_json`, if Flower does not pass it on
_SIMULATION = "flwr-simulation"  # Flower's program for a simulation behind a SuperLink


@dataclass(frozen=True)
class Federation:
    """A simulated federation.

    Attributes:
        num_supernodes: number of clients; 0 if unknown (a deployed federation).
        num_cpus: CPUs per client, as counted by Ray.
        num_gpus: GPU share per client.
        engine_cpus: number of CPUs configured for Ray; 0 for Ray's own count.
        init_args: all start arguments of Ray, keys with dashes.
        is_default: whether it was not chosen; the number of clients may then differ (`Config.clients`).
        is_auto: whether clients' resources are still to be determined (``client-resources = "auto"``).
    """

    num_supernodes: int = 0
    num_cpus: float = 1.0
    num_gpus: float = 0.0
    engine_cpus: float = 0.0
    init_args: Mapping[str, Any] = field(default_factory=dict, compare=False)
    is_default: bool = field(default=False, compare=False)
    is_auto: bool = field(default=False, compare=False)

    def describe(self) -> dict[str, Any]:
        """Fields recorded in the manifest."""
        return {"num-supernodes": self.num_supernodes, "num-cpus": self.num_cpus, "num-gpus": self.num_gpus}

    def to_json(self) -> str:
        """Fields for a process of its simulation (`TOLD`), as JSON."""
        resources = {"num-cpus": self.num_cpus, "num-gpus": self.num_gpus}
        backend = {"client-resources": resources, "init-args": dict(self.init_args)}
        return json.dumps({"num-supernodes": self.num_supernodes, "backend": backend})


def from_backend(num_supernodes: int, backend: Any) -> Federation:
    """Federation of Flower's backend configuration; Flower's default is 2 CPUs."""
    tables = _dashed_keys("", backend)
    requested = tables.get("client-resources") or {"num-cpus": 2}
    resources = _dashed_keys("client-resources", {} if requested == AUTO else requested)
    init_args = _dashed_keys("init-args", tables.get("init-args") or {})
    return Federation(
        num_supernodes,
        _amount("client-resources.num-cpus", resources.get("num-cpus", 1)),
        _amount("client-resources.num-gpus", resources.get("num-gpus", 0)),
        _amount("init-args.num-cpus", init_args.get("num-cpus") or 0),
        init_args,
        is_auto=requested == AUTO,
    )


def _amount(key: str, value: Any) -> float:
    """A number of CPUs or GPUs from the backend's table; ConfigError if invalid."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1e9:
        raise ConfigError(
            f"options.backend.{key} must be a number of at least 0, but is {shown(value)}; set e.g. {key} = 1"
        )
    return float(value)


def _dashed_keys(name: str, table: Any) -> dict[str, Any]:
    """A table with dashes in its keys; Flower also permits underscores."""
    if not isinstance(table, Mapping):
        raise ConfigError(
            f"options.backend{'.' * bool(name)}{name} must be a table, but is {shown(table)}; see the "
            f"federations of Fedge's pyproject.toml"
        )
    return {key.replace("_", "-"): value for key, value in table.items()}


def federation_of_this_process(argv: Sequence[str] | None = None) -> Federation:
    """Federation for which Flower's simulation process was started.

    Flower does not pass it to the ServerApp. On Flower 1.25, the process is started with ``--num-supernodes``
    and ``--backend-config``; behind a SuperLink it receives both in a message, and Fedge's own SuperLink sets
    `TOLD`. In any other process, the result is a Federation of unknown size.
    """
    arguments = list(sys.argv if argv is None else argv)
    options = {option: arguments[i + 1] for i, option in enumerate(arguments[:-1]) if option.startswith("--")}
    if "--num-supernodes" in options:
        backend = json.loads(options.get("--backend-config", "{}"))
        return from_backend(int(options["--num-supernodes"]), backend)
    if not arguments or Path(arguments[0]).stem != _SIMULATION:
        return Federation()
    if TOLD in os.environ:
        settings = json.loads(os.environ[TOLD])
        return from_backend(settings["num-supernodes"], settings["backend"])
    return _federation_from_stack()


def _federation_from_stack() -> Federation:
    """Federation passed to Flower's main loop, a function on this process's stack.

    Uses private names of Flower; without them, the federation is unknown.
    """
    for frame in sys._current_frames().values():
        frame_below: FrameType | None = frame
        while frame_below is not None:
            is_flowers = frame_below.f_globals.get("__name__", "").startswith("flwr.")
            names = frame_below.f_locals if is_flowers else {}
            count, backend = names.get("num_supernodes"), names.get("backend_config_stream")
            if isinstance(count, int) and isinstance(backend, str):
                return from_backend(count, json.loads(backend))
            frame_below = frame_below.f_back
    return Federation()


def refuse_missing_resources(federation: Federation, on_ray: bool) -> None:
    """Raise ConfigError if the machine lacks the resources of a client, with which Flower fails."""
    refuse_missing_gpu(federation)
    refuse_missing_cpus(federation, on_ray)


def refuse_missing_gpu(federation: Federation) -> None:
    """Raise ConfigError if clients need a GPU share and the machine has no NVIDIA GPU.

    Flower itself would wait forever.
    """
    if federation.num_gpus > 0 and not has_gpu():
        raise ConfigError(
            f"options.backend.client-resources.num-gpus is {federation.num_gpus:g}, but this machine has "
            f"no usable GPU; use a federation without it, e.g. flwr run . local-simulation"
        )


def refuse_hidden_gpu(device: str, federation: Federation) -> None:
    """Raise ConfigError if clients are to use a GPU (`train.device`) hidden from them by Ray."""
    if device == "cuda" and federation.num_gpus == 0:
        raise ConfigError(
            'train.device is "cuda", but the federation gives clients no GPU; use one with options.backend.'
            'client-resources.num-gpus above 0, or train.device="auto"'
        )


def refuse_missing_cpus(federation: Federation, on_ray: bool) -> None:
    """Raise ConfigError if a client needs more CPUs than the machine has, or than Ray counts on it.

    Flower itself would wait forever, or end without a reason.
    """
    available = federation.engine_cpus or (cpus_of_ray() if on_ray else os.cpu_count() or 1)
    if not 0 < federation.num_cpus <= available:
        counting = " that Ray counts" if on_ray else ""
        raise ConfigError(
            f"options.backend.client-resources.num-cpus must be above 0 and at most the {available:g} CPUs"
            f"{counting} here, but is {federation.num_cpus:g}; change it, set init-args.num-cpus, or use "
            f"another federation"
        )


def cpus_of_ray(cgroups: Path = CGROUPS) -> int:
    """Number of CPUs counted by Ray itself on this machine.

    Only whole CPUs of a container's quota count, so half a CPU is none; affinity is ignored.
    """
    cores = os.cpu_count() or 1
    if os.environ.get("RAY_USE_MULTIPROCESSING_CPU_COUNT"):
        return cores
    quota = limits(cgroups, Path(os.devnull))[0]
    return cores if quota is None else int(min(quota, cores))


def has_gpu() -> bool:
    """Whether the NVIDIA driver lists a GPU; queried by nvidia-smi, so torch need not be loaded."""
    tool = shutil.which("nvidia-smi")
    if tool is None or os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1", "NoDevFiles"):
        return False
    try:
        listing = subprocess.run(
            [tool, "-L"], capture_output=True, text=True, errors="replace", timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return listing.returncode == 0 and "GPU" in listing.stdout
