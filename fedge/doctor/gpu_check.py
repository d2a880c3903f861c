"""``fedge doctor --gpu``: do the GPUs of this machine behave as docs/gpu.md says? The result is one file.

Every check trains with Fedge's own code on generated windows, and prints one line with its figures. A failed
check reports its reason, and the others continue. The file names no person, host or folder.
"""

import io
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedge.client.guarded_app import is_out_of_gpu_memory
from fedge.config.registers.option import ConfigError
from fedge.doctor.gpu_speeds import CLIENTS, Subject, batched_speeds, speeds_of
from fedge.doctor.gpus import gpus
from fedge.parallel.team import Team, TeamKind
from fedge.process.durable import write_output
from fedge.process.resources.threads import available_cores
from fedge.process.versions import versions
from fedge.states.averaging import State
from fedge.training.device_speeds import keep_speeds
from fedge.training.gpu import BF16, FLOAT32, TF32, settle_gpus
from fedge.training.kernels import AUTO, TORCH
from fedge.training.local import train
from fedge.training.networks.models import build_model
from fedge.training.networks.module_state import get_state
from fedge.training.settings import LocalTraining

FILE = Path("fedge-gpu.json")
GOOD, BAD, SKIPPED = "ok", "failed", "skipped"
_MODELS = ("linear", "cnn", "cnn-pool")
_CHANNELS, _SAMPLES, _CLASSES, _BATCH, _BATCHES = 6, 128, 6, 32, 40
_SETTINGS = LocalTraining(lr=0.05, momentum=0.9, batch_size=_BATCH, clip_norm=1.0)
# permitted distance between kinds of arithmetic after an epoch, relative to the largest weight
_TOLERANCE = 1e-2
_TOLERANCES = {TF32: 10 * _TOLERANCE, BF16: 50 * _TOLERANCE}
_BATCHED = ("linear", "cnn", "cnn-pool", "gru")
_THREADS = 4
_MIB = 2**20
_IMPOSSIBLE_BYTES = 2**50


ProjectNetwork = Callable[[], tuple[Subject, Mapping[str, Any]]]
"""Gives network and windows of a project, and what a measurement of them depends on."""


@dataclass(frozen=True)
class GpuCheck:
    """Result of one check.

    Attributes:
        name: name of the check.
        state: "ok", "failed" or "skipped".
        words: the finding, in one line.
        figures: its figures.
    """

    name: str
    state: str
    words: str
    figures: Mapping[str, Any] = field(default_factory=dict)


class Skipped(Exception):
    """Reason for which a check cannot be made here."""


def all_checks(device: str = "cuda", project: ProjectNetwork | None = None) -> Iterator[GpuCheck]:
    """All checks one by one, on "cuda", or on "cpu" where they are meaningful.

    Args:
        device: device to check.
        project: function giving the project's network; None without a project.
    """
    settle_gpus(FLOAT32)
    yield from (_run_check(f"{name}: bits, speeds", _check_bits_and_speeds, name, device) for name in _MODELS)
    yield _run_check("precision", _check_precision, device)
    yield _run_check(f"{_THREADS} clients at a time", _check_concurrent_clients, device)
    yield _run_check("memory of a client", _check_memory, device)
    yield _run_check("memory runs out", _check_out_of_memory, device)
    yield _run_check("several processes (NCCL)", _check_two_processes, device)
    yield _run_check("whole runs", _check_whole_runs, device)
    yield from (_run_check(f"{name}: clients batched", _check_batched, name, device) for name in _BATCHED)
    yield _run_check("this project", _check_project, project, device)


def _run_check(name: str, check: Callable[..., GpuCheck], *arguments: Any) -> GpuCheck:
    """Result of a check, even if it fails."""
    try:
        return replace(check(*arguments), name=name)
    except Skipped as reason:
        return GpuCheck(name, SKIPPED, str(reason))
    except Exception as error:
        return GpuCheck(name, BAD, " ".join(f"{type(error).__name__}: {error}".split())[:500])


def _generate_windows() -> tuple[Tensor, Tensor]:
    """Generated windows: x (1280, 6, 128) float32, y (1280,) int64."""
    generator = torch.Generator().manual_seed(0)
    count = _BATCH * _BATCHES
    y = torch.randint(0, _CLASSES, (count,), generator=generator)
    x = torch.randn(count, _CHANNELS, _SAMPLES, generator=generator)
    x[torch.arange(count), y] += 1.0
    return x, y


def _train_epoch(name: str, device: str, **changes: Any) -> tuple[State, float]:
    """State after an epoch of a network from its initial weights, and ms per step."""
    model = build_model(name, (_CHANNELS, _SAMPLES), _CLASSES, torch.Generator().manual_seed(1)).to(device)
    x, y = _generate_windows()
    started = time.perf_counter()
    state = train(model, x, y, replace(_SETTINGS, **changes), torch.Generator().manual_seed(3)).state
    return state, (time.perf_counter() - started) / _BATCHES * 1e3


def same(one: State, other: State) -> bool:
    """Whether two states agree in every bit."""
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def distance(one: State, other: State) -> float:
    """Largest difference of two states, relative to the largest weight of the first."""
    largest = max(float(np.abs(array).max()) for array in one.values())
    return max(float(np.abs(one[name] - other[name]).max()) for name in one) / largest


def _check_bits_and_speeds(name: str, device: str) -> GpuCheck:
    """Bits of repeated training and of graph and plain steps; distance to a CPU core; ms per step."""
    _train_epoch(name, device)  # warm-up: libraries choose their kernels
    graph, graph_ms = _train_epoch(name, device)
    second, second_ms = _train_epoch(name, device)
    plain, plain_ms = _train_epoch(name, device, cuda_graph=False)
    core, core_ms = _train_epoch(name, "cpu", kernel=TORCH)
    _, native_ms = _train_epoch(name, "cpu", kernel=AUTO)
    core_distance = distance(core, graph)
    ms = {"graph": min(graph_ms, second_ms), "plain": plain_ms, "core": core_ms, "native": native_ms}
    equal = {"two trainings": same(graph, second), "graph and plain": same(graph, plain)}
    fastest = min(ms, key=lambda kind: ms[kind])
    words = ", ".join(f"{kind} {value:.2f}" for kind, value in ms.items())
    unequal = [pair for pair, is_equal in equal.items() if not is_equal]
    bits = f"bits differ: {', '.join(unequal)}" if unequal else "same bits"
    state = GOOD if not unequal and core_distance < _TOLERANCE else BAD
    words = f"{bits}, {core_distance:.1e} from a core; ms per step: {words}; fastest: {fastest}"
    return GpuCheck(
        "", state, words, {"ms": ms, "same": equal, "distance": core_distance, "fastest": fastest}
    )


def _check_precision(device: str) -> GpuCheck:
    """Distances of TF32 and bf16 from float32, their bits in two trainings, and their speeds."""
    if device == "cpu":
        raise Skipped("a CPU has no TF32")
    exact, exact_ms = _train_epoch("cnn-pool", device)
    words, figures, is_good = [f"ms per step {exact_ms:.2f}"], {"float32": {"ms": exact_ms}}, True
    for precision in (TF32, BF16):
        settle_gpus(precision)
        try:
            rounded, _ = _train_epoch("cnn-pool", device, precision=precision)
            second, ms = _train_epoch("cnn-pool", device, precision=precision)
            plain, _ = _train_epoch("cnn-pool", device, precision=precision, cuda_graph=False)
        finally:
            settle_gpus(FLOAT32)
        error, is_same = distance(exact, rounded), same(rounded, second) and same(rounded, plain)
        is_good = is_good and is_same and 0 < error < _TOLERANCES[precision]
        words.append(f"{precision} {ms:.2f}, {error:.1e} from float32, {'same' if is_same else 'OTHER'} bits")
        figures[precision] = {"ms": ms, "distance": error, "same": is_same}
    return GpuCheck("", GOOD if is_good else BAD, "; ".join(words), figures)


def _check_concurrent_clients(device: str) -> GpuCheck:
    """Bits of clients sharing a GPU as threads, without graphs, against a client alone."""
    alone, _ = _train_epoch("cnn-pool", device, cuda_graph=False)
    with ThreadPoolExecutor(_THREADS) as pool:
        futures = [
            pool.submit(_train_epoch, "cnn-pool", device, cuda_graph=False) for _ in range(2 * _THREADS)
        ]
        equal = [same(alone, future.result()[0]) for future in futures]
    words = f"{sum(equal)} of {len(equal)} have the same bits as a client alone"
    return GpuCheck("", GOOD if all(equal) else BAD, words)


def _check_memory(device: str) -> GpuCheck:
    """Peak memory of one client's tensors, and of PyTorch's cache."""
    if device == "cpu":
        raise Skipped("fedge doctor measures it on a CPU")
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    _train_epoch("cnn", device)
    allocated, reserved = (
        peak() / _MIB for peak in (torch.cuda.max_memory_allocated, torch.cuda.max_memory_reserved)
    )
    free, total = (number / _MIB for number in torch.cuda.mem_get_info())
    figures = {"allocated_mib": allocated, "reserved_mib": reserved, "free_mib": free, "total_mib": total}
    words = f"tensors {allocated:,.0f} MiB, PyTorch {reserved:,.0f} MiB; {free:,.0f} of {total:,.0f} MiB free"
    return GpuCheck("", GOOD, words, figures)


def _check_out_of_memory(device: str) -> GpuCheck:
    """Whether an out-of-memory error is recognised, and the GPU works afterwards."""
    if device == "cpu":
        raise Skipped("not tried on a CPU")
    before, _ = _train_epoch("linear", device)
    try:
        torch.empty(_IMPOSSIBLE_BYTES, dtype=torch.uint8, device=device)
    except RuntimeError as error:
        is_recognised = is_out_of_gpu_memory(f"{type(error).__name__}: {error}")
        after, _ = _train_epoch("linear", device)
        state = GOOD if is_recognised and same(before, after) else BAD
        return GpuCheck(
            "",
            state,
            "recognised; training continues" if state == GOOD else f"unexpected error: {error}"[:300],
        )
    return GpuCheck("", BAD, "an impossible allocation succeeded")


def _check_two_processes(device: str) -> GpuCheck:
    """Training of one client by two processes, against one."""
    count = torch.cuda.device_count() if device == "cuda" else 2
    if count < 2:
        raise Skipped("needs two GPUs")
    one, _ = _train_epoch("cnn-pool", device)
    model = build_model("cnn-pool", (_CHANNELS, _SAMPLES), _CLASSES, torch.Generator().manual_seed(1))
    x, y = _generate_windows()
    team = Team(2)
    try:
        kind = TeamKind("cnn-pool", {}, (_CHANNELS, _SAMPLES), _CLASSES, device)
        order = torch.Generator().manual_seed(3)
        two = team.train(kind, get_state(model), (x.numpy(), y.numpy()), _SETTINGS, order).state
    finally:
        team.close()
    error = distance(one, two)
    return GpuCheck(
        "", GOOD if error < _TOLERANCE else BAD, f"{error:.1e} from one process", {"distance": error}
    )


def _check_whole_runs(device: str) -> GpuCheck:
    """Final models of two equal whole runs, compared bit by bit."""
    from fedge.launch.simulate import simulate

    sums = []
    with tempfile.TemporaryDirectory(prefix="fedge-gpu-") as folder:
        for name in ("first", "second"):
            config = {
                "data.path": "synthetic", "train.model": "cnn-pool", "train.device": device, "report": False,
                "num-server-rounds": 2, "runs-dir": folder, "run-name": name, "seed": 1,
            }  # fmt: skip
            result = simulate(config, terminal=io.StringIO())
            if result.status != "completed":
                return GpuCheck("", BAD, f"a run ended as {result.status}: {result.reason}"[:500])
            sums.append((result.folder / "checkpoints" / "final.safetensors").read_bytes())
    equal = sums[0] == sums[1]
    return GpuCheck("", GOOD if equal else BAD, "same models" if equal else "models of equal runs differ")


class Recurrent(nn.Module):
    """A GRU over time, and a layer on its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(_CHANNELS, 64, batch_first=True)
        self.head = nn.Linear(64, _CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (B, classes) of x (B, C, T)."""
        out: Tensor = self.gru(x.transpose(1, 2))[0]
        answers: Tensor = self.head(out[:, -1])
        return answers


def _build_network(name: str) -> nn.Module:
    """A network with the same weights at every call."""
    if name == "gru":
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            return Recurrent()
    return build_model(name, (_CHANNELS, _SAMPLES), _CLASSES, torch.Generator().manual_seed(1))


def _check_batched(name: str, device: str) -> GpuCheck:
    """Speed of several clients' steps in one, against one recorded step after another."""
    x, y = _generate_windows()
    try:
        speeds = batched_speeds(Subject(lambda: _build_network(name), x, y, _SETTINGS), device)
    except RuntimeError as error:
        raise Skipped(f"cannot be batched: {' '.join(str(error).split())[:200]}") from None
    fastest = max(speeds.batched, speeds.recorded)
    words = (
        f"{CLIENTS} clients, steps per second: in turn {speeds.in_turn:,.0f}, batched {speeds.batched:,.0f}, "
        f"recorded {speeds.recorded:,.0f}: {fastest / speeds.in_turn:.2f} × in turn; "
        f"{speeds.distance:.1e} apart"
    )
    is_good = speeds.is_same and speeds.distance < _TOLERANCE
    return GpuCheck("", GOOD if is_good else BAD, words, {"clients": CLIENTS, **asdict(speeds)})


def _check_project(project: ProjectNetwork | None, device: str) -> GpuCheck:
    """Speeds of the project's network on cores and GPU, remembered for train.device auto."""
    if project is None:
        raise Skipped("needs a project with data; call it in the folder of one")
    try:
        subject, conditions = project()
    except ConfigError as error:
        raise Skipped(f"the project's run cannot work: {error}") from None
    settle_gpus(subject.settings.precision)
    try:
        speeds = speeds_of(subject, device)
    finally:
        settle_gpus(FLOAT32)
    keep_speeds(conditions, speeds)
    faster = "the GPU" if speeds.gpu > speeds.cores else "cores"
    words = (
        f"steps per second: {available_cores()} cores {speeds.cores:,.0f}, GPU plain {speeds.plain:,.0f}, "
        f"graph {speeds.graph:,.0f}; train.device auto takes {faster} from now on"
    )
    return GpuCheck("", GOOD, words, asdict(speeds))


def can_check() -> bool:
    """Whether there is a GPU."""
    return torch.cuda.is_available()


def check_gpus(device: str = "cuda", file: Path = FILE, project: ProjectNetwork | None = None) -> int:
    """Make all checks, print a line on each, and write them to a file; returns the number of failures.

    `project` gives the network of the project, if any.
    """
    checks = []
    for check in all_checks(device, project):
        checks.append(check)
        print(f"{check.state:8} {check.name}: {check.words}", flush=True)
    report = {
        "versions": versions(),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "gpus": [asdict(gpu) for gpu in gpus()],
        "seen": [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())],
        "system": sys.platform,
        "checks": [asdict(check) for check in checks],
    }
    write_output(file, (json.dumps(report, indent=2) + "\n").encode())
    return sum(check.state == BAD for check in checks)
