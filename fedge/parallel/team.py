"""Processes training for one client at a time; started once, used in every round.

Starting a process, with its imports and connections, takes seconds, too long for every round. So a worker
keeps its processes as long as it lives. If one dies, the others of its team are ended, because they would
wait for it. The client's call fails; its next one, allowed by `guard.retries` in the same leaf round, starts
new processes.
"""

import base64
import fcntl
import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from typing import Any, BinaryIO

import numpy as np
import torch

from fedge.config.registers.option import ConfigError
from fedge.parallel.arrays import Block, Layout, nameless_file
from fedge.parallel.channel import ClosedError, receive, send_message
from fedge.process.endings.parent import tie_children_to_parent
from fedge.process.python import python_words
from fedge.process.resources.memory import TRAINER
from fedge.training.gpu import FLOAT32
from fedge.training.local import TrainResult
from fedge.training.networks.module_state import State, tensor_of
from fedge.training.settings import LocalTraining, check_data

logger = logging.getLogger(__name__)

_GRACE_S = 2.0  # time for the others to report failure, too
_LAST_WORDS = 2000  # characters of a process's output before it died
_MOST_PRINTED = 2**20  # bytes of output kept from job to job
_LOOPBACK = "lo" if sys.platform.startswith("linux") else "lo0"
_ERRORS = {"FloatingPointError": FloatingPointError, "ConfigError": ConfigError, "ValueError": ValueError,
           "MemoryError": MemoryError}  # fmt: skip


class TeamError(RuntimeError):
    """A process of a client died, failed, or did not reply in time. One line."""


@dataclass(frozen=True)
class TeamKind:
    """Kind of network for the processes to build, by `fedge.training.networks.models.build_model`.

    Attributes:
        model: name of the model.
        arguments: keyword arguments of a user's model.
        input_shape: shape of a window, (C, T) or (C, H, W).
        classes: number of logits.
        device: "cpu", or "cuda" for one GPU per process.
        look_in: folders with the user's code.
        precision: precision on GPUs, see `fedge.training.gpu`.
        first_gpu: GPU of the first process; the others use the next ones.
        tokens: windows are int64, from 0 on; else float32.
    """

    model: str
    arguments: Mapping[str, Any]
    input_shape: tuple[int, ...]
    classes: int
    device: str = "cpu"
    look_in: Sequence[str] = ()
    precision: str = FLOAT32
    first_gpu: int = 0
    tokens: bool = False


@dataclass(frozen=True)
class _Process:
    """One process, as seen by its client."""

    process: "subprocess.Popen[bytes]"
    connection: socket.socket
    printed: BinaryIO


@dataclass
class _Open:
    """Resources that a team releases at its end, in this order."""

    members: list[_Process] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)
    files: list[BinaryIO] = field(default_factory=list)

    def close(self) -> None:
        """End the processes, and release everything."""
        for member in self.members:
            member.connection.close()
            with suppress(ProcessLookupError):
                member.process.kill()
        for member in self.members:
            member.process.wait()
            member.printed.close()
        for descriptor in self.descriptors:
            os.close(descriptor)
        for file in self.files:
            file.close()
        self.members, self.descriptors, self.files = [], [], []


class Team:
    """`size` processes training a client's model together; for use by one thread at a time."""

    def __init__(self, size: int) -> None:
        """Team whose processes start at the first training, and end with this object or its thread."""
        self.size = size
        self._open = _Open()
        weakref.finalize(self, self._open.close)
        self._states: Block | None = None
        self._windows: Block | None = None
        # content of the memory for windows
        self._shared_windows: tuple[np.ndarray, np.ndarray, Layout] | None = None

    @property
    def pids(self) -> list[int]:
        """Process ids; empty before the first training."""
        return [member.process.pid for member in self._open.members]

    def close(self) -> None:
        """End the processes; another training starts new ones."""
        self._open.close()
        self._states = self._windows = self._shared_windows = None

    def train(
        self,
        kind: TeamKind,
        start: Mapping[str, np.ndarray],
        windows: tuple[np.ndarray, np.ndarray],
        settings: LocalTraining,
        generator: torch.Generator,
        correction: Mapping[str, np.ndarray] | None = None,
        draws: torch.Generator | None = None,
        timeout_s: float = 1e6,
    ) -> TrainResult:
        """Train as `fedge.training.local.train` does, with each process on its share of every batch.

        Args:
            kind: kind of the network.
            start: initial state.
            windows: x float32 or int64 (N, …) and y int64 (N); must not change during the life of the team.
            settings: as in `fedge.training.local.train`.
            generator: as in `fedge.training.local.train`.
            correction: as in `fedge.training.local.train`.
            draws: as there; each process gets its own stream, derived from this one.
            timeout_s: seconds after which the processes are abandoned.

        Raises:
            TeamError: a process died, was late, or failed for another reason than those below.
            ConfigError: the model cannot be trained by several processes.
            ValueError, FloatingPointError: as in `fedge.training.local.train`.
        """
        x, y = windows
        check_data(tensor_of(x), tensor_of(y))
        self._start(settings.threads)
        job = self._prepare_job(kind, start, windows, settings, generator, correction, draws)
        answers = self._send_job(job, time.monotonic() + timeout_s)
        assert self._states is not None
        state: State = {name: view.copy() for name, view in self._states.views(job["state"]).items()}
        return TrainResult(state, answers[0]["loss"], answers[0]["steps"])

    def _prepare_job(
        self,
        kind: TeamKind,
        start: Mapping[str, np.ndarray],
        windows: tuple[np.ndarray, np.ndarray],
        settings: LocalTraining,
        generator: torch.Generator,
        correction: Mapping[str, np.ndarray] | None,
        draws: torch.Generator | None,
    ) -> dict[str, Any]:
        """Copy arrays to shared memory; returns the message, and advances the generators."""
        assert self._states is not None
        order = base64.b64encode(generator.get_state().numpy().tobytes()).decode()
        for _ in settings.passes(len(windows[1])):
            torch.randperm(len(windows[1]), generator=generator)
        layout = self._states.put({**start, **{f"correction {n}": a for n, a in (correction or {}).items()}})
        return {
            "kind": asdict(kind),
            "settings": _settings_to_json(settings),
            "state": layout[: len(start)],
            "correction": None if correction is None else [
                (name.removeprefix("correction "), *rest) for name, *rest in layout[len(start) :]
            ],
            "windows": self._share_windows(windows),
            "order": order,
            "draws": None if draws is None else torch.randint(2**62, (self.size,), generator=draws).tolist(),
        }  # fmt: skip

    def _share_windows(self, windows: tuple[np.ndarray, np.ndarray]) -> Layout:
        """Layout of the windows in shared memory, where they are copied unless they are still there."""
        assert self._windows is not None
        if self._shared_windows is not None:
            # keeping the last call's arrays prevents others from having their addresses
            unchanged = [
                _array_key(old) == _array_key(new)
                for old, new in zip(self._shared_windows, windows, strict=False)
            ]
            if all(unchanged):
                return self._shared_windows[2]
        x, y = windows
        self._shared_windows = (x, y, self._windows.put({"x": x, "y": y}))
        return self._shared_windows[2]

    # --- processes ------------------------------------------------------------------------------------

    def _start(self, threads: int) -> None:
        """Start the processes unless all are alive."""
        if self._open.members and all(m.process.poll() is None for m in self._open.members):
            return
        if self._open.members:
            logger.warning("a process that trains for a client has ended; new ones are started")
        self.close()
        states, windows = nameless_file("states"), nameless_file("windows")
        self._open.descriptors += [states, windows]
        meeting, descriptors = self._meeting_place()
        for rank in range(self.size):
            self._open.members.append(
                _start_process(rank, self.size, threads, [states, windows], meeting, descriptors)
            )
        self._states, self._windows = Block(states), Block(windows)
        logger.info("%d processes train for this worker's clients: %s", self.size, self.pids)

    def _meeting_place(self) -> tuple[str, list[int]]:
        """Path of the file through which the processes find each other, and its descriptors."""
        if sys.platform.startswith("linux"):
            descriptor = nameless_file("meeting")
            self._open.descriptors.append(descriptor)
            return f"/proc/self/fd/{descriptor}", [descriptor]
        file = tempfile.NamedTemporaryFile(prefix="fedge-meeting-")  # noqa: SIM115  # closed with the team
        self._open.files.append(file)
        return file.name, []

    def _send_job(self, job: dict[str, Any], deadline: float) -> list[dict[str, Any]]:
        """Send a job to all processes; returns their replies, in order."""
        answers: dict[int, dict[str, Any]] = {}
        with selectors.DefaultSelector() as selector:
            for rank, member in enumerate(self._open.members):
                selector.register(member.connection, selectors.EVENT_READ, rank)
            try:
                for member in self._open.members:
                    send_message(member.connection, job)
                while len(answers) < self.size:
                    ready = selector.select(max(0.0, deadline - time.monotonic()))
                    if not ready:
                        break
                    for key, _ in ready:
                        answers[key.data] = receive(self._open.members[key.data].connection)
                        selector.unregister(key.fileobj)
                        if "error" in answers[key.data]:
                            deadline = min(deadline, time.monotonic() + _GRACE_S)
            except ClosedError:
                raise self._close_with(self._death_error()) from None
            except BaseException:  # interrupted: later replies must not be taken for those of another job
                self.close()
                raise
        for member in self._open.members:
            _truncate_output(member.printed)
        errors = [answers[rank] for rank in sorted(answers) if "error" in answers[rank]]
        if errors:
            raise self._most_informative_error(errors, all_answered=len(answers) == self.size)
        if len(answers) < self.size:
            raise self._close_with(TeamError("the processes of train.processes did not answer in time"))
        return [answers[rank] for rank in range(self.size)]

    def _most_informative_error(self, errors: Sequence[dict[str, Any]], all_answered: bool) -> Exception:
        """The most informative error; processes waiting for a failed one are ended."""
        first = min(errors, key=lambda e: list(_ERRORS).index(e["error"]) if e["error"] in _ERRORS else 9)
        if not all_answered or first["error"] not in _ERRORS:
            self.close()
        if first["error"] in _ERRORS:
            return _ERRORS[first["error"]](first["words"])
        return TeamError(
            f"a process of train.processes failed: {first['error']}: {_one_line(first['words'])}"
        )

    def _close_with(self, error: TeamError) -> TeamError:
        """An error, after the processes have been ended."""
        self.close()
        return error

    def _death_error(self) -> TeamError:
        """Error for the process that died first, or for any that died."""
        deadline = time.monotonic() + _GRACE_S
        while time.monotonic() < deadline:
            for rank, member in enumerate(self._open.members):
                code = member.process.poll()
                if code is None:
                    continue
                outcome = f"was ended by {_signal_name(-code)}" if code < 0 else f"ended with code {code}"
                last_line = _last_line(member.printed)
                return TeamError(f"process {rank} of train.processes={self.size} {outcome}{last_line}")
            time.sleep(0.01)
        return TeamError(f"one of train.processes={self.size} processes closed its connection")


def _start_process(
    rank: int, size: int, threads: int, blocks: Sequence[int], meeting: str, descriptors: Sequence[int]
) -> _Process:
    """Start one process, with its inherited descriptors."""
    own_end, process_end = socket.socketpair()
    output = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the team
    flags = fcntl.fcntl(output, fcntl.F_GETFL)
    fcntl.fcntl(output, fcntl.F_SETFL, flags | os.O_APPEND)  # for `_truncate_output`
    arguments = [*map(str, (rank, size, process_end.fileno(), *blocks)), meeting]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "OMP_NUM_THREADS": str(threads),
        "GLOO_SOCKET_IFNAME": _LOOPBACK,
        "NCCL_SOCKET_IFNAME": _LOOPBACK,
        "NCCL_IB_DISABLE": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",  # it warns of parameters although all are used
    }
    tie_children_to_parent(environment)
    with process_end:
        process = subprocess.Popen(
            python_words("-m", TRAINER, *arguments),
            pass_fds=[process_end.fileno(), *blocks, *descriptors],
            env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip
    return _Process(process, own_end, output)


def _array_key(array: object) -> tuple[int, tuple[int, ...], str]:
    """Address, shape and dtype of an array."""
    assert isinstance(array, np.ndarray)
    return array.ctypes.data, array.shape, array.dtype.str


def _signal_name(number: int) -> str:
    """Text such as "signal 9 (SIGKILL)"."""
    with suppress(ValueError):
        return f"signal {number} ({signal.Signals(number).name})"
    return f"signal {number}"


def _truncate_output(output: BinaryIO) -> None:
    """Empty a process's output if it is large; only its last line is ever used."""
    if os.fstat(output.fileno()).st_size > _MOST_PRINTED:
        os.ftruncate(output.fileno(), 0)


def _last_line(output: BinaryIO) -> str:
    """The last line printed by a process, after a colon; empty without one."""
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _LAST_WORDS))
    lines = output.read().decode(errors="replace").strip().splitlines()
    return f": {_one_line(lines[-1])}" if lines else ""


def _one_line(text: str) -> str:
    """Text without line breaks."""
    return " ".join(text.split())


def _settings_to_json(settings: LocalTraining) -> dict[str, Any]:
    """Settings as JSON, without the task, which every process has."""
    return {entry.name: getattr(settings, entry.name) for entry in fields(settings) if entry.name != "task"}
