"""Memory of clients between rounds: a state per client and leaf round, in a file of the run folder.

A client cannot know whether its reply was accepted. So a leaf round writes a new version beside the older
ones, and the next message names the valid version: that of the client's last accepted reply. A repeated round
starts from the same version; a refused round, or one undone by a crash, has no effect.
"""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedge.states.averaging import State
from fedge.states.files import FileState, StateFileError, Ticket, open_state, write_state
from fedge.states.restore_checks import MOST, checked_choice, checked_int

FOLDER = "memory"  # in the run folder
MemoryVersion = tuple[int, int]
"""(client, leaf round)"""
MOST_BYTES = MOST - 1  # of a version, in every report of its size


@dataclass(frozen=True)
class KeptVersion:
    """A version of a client's memory.

    Attributes:
        leaf_round: leaf round in which it was written.
        checksum: of its file.
        array_bytes: of its arrays.
    """

    leaf_round: int
    checksum: str
    array_bytes: int


def version_from_facts(facts: Sequence[Any]) -> KeptVersion:
    """The version of a client's memory with these attributes, in order.

    Raises:
        ValueError: they are not attributes of a version.
    """
    leaf_round, checksum, array_bytes = facts
    return KeptVersion(
        checked_int(leaf_round, "the leaf round of a memory"),
        checked_choice(checksum, "the checksum of a memory"),
        checked_int(array_bytes, "the bytes of a memory"),
    )  # fmt: skip


def path_of(folder: Path, client: int, leaf_round: int) -> Path:
    """File of a version of a client's memory."""
    return folder / f"client-{client:06d}" / f"round-{leaf_round:06d}.safetensors"


def read_memory(folder: Path, client: int, kept: KeptVersion) -> FileState:
    """A version of a client's memory, mapped.

    Raises:
        StateFileError: missing or damaged.
    """
    path = path_of(folder, client, kept.leaf_round)
    return open_state(Ticket(str(path), kept.checksum, kept.array_bytes))


def write_memory(
    folder: Path, client: int, leaf_round: int, memory: State, durably: bool = False
) -> KeptVersion:
    """Write a version of a client's memory, packed; a version of the same round is replaced.

    Args:
        folder: folder of all clients' files.
        client: its partition id.
        leaf_round: leaf round in which the version is written.
        memory: packed.
        durably: wait for the disk; in a run's folder the checkpoint does.

    Raises:
        StateFileError: the disk is full or gone.
    """
    path = path_of(folder, client, leaf_round)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StateFileError(f"cannot write memory {path}: {error.strerror or error}") from error
    ticket = write_state(path, memory, durably)
    return KeptVersion(leaf_round, ticket.checksum, ticket.array_bytes)


class RemoteMemories:
    """The server's control of memories stored with clients' data: the versions kept by clients.

    Attributes:
        run: name of the run among others of a client's machine.
    """

    def __init__(self, run: str, checkpoints: int) -> None:
        """Keep the versions needed by `checkpoints` of the newest checkpoints, and one more."""
        self.run = run
        self._pinned: deque[Mapping[int, Collection[int]]] = deque(maxlen=checkpoints + 1)

    def begin(self, counted: Mapping[int, KeptVersion]) -> None:
        """Start or resume a run with these valid versions of clients."""
        self.pin(counted)

    def pin(self, counted: Mapping[int, KeptVersion], further: Iterable[MemoryVersion] = ()) -> list[Path]:
        """Keep the versions needed by a checkpoint, and further ones; their files are not on this machine."""
        rounds = {client: {kept.leaf_round} for client, kept in counted.items()}
        for client, leaf_round in further:
            rounds.setdefault(client, set()).add(leaf_round)
        self._pinned.append(rounds)
        return []

    def sweep(self, counted: Mapping[int, KeptVersion], further: Iterable[MemoryVersion] = ()) -> None:
        """Do nothing: clients remove versions no longer needed when they store the next one."""

    def needed(self, client: int) -> list[int]:
        """Leaf rounds of a client's versions needed by checkpoints."""
        return sorted({number for rounds in self._pinned for number in rounds.get(client, ())})


class LeafServerMemories:
    """A leaf server's control of memories on its clients' machines; the cloud decides which versions to keep.

    Attributes:
        run: name of the run among others of a client's machine.
    """

    def __init__(self, run: str) -> None:
        """Start without versions to keep."""
        self.run = run
        self._needed: Mapping[str, Sequence[int]] = {}

    def take(self, needed: Mapping[str, Sequence[int]]) -> None:
        """Read client → leaf rounds of versions to keep from an order."""
        self._needed = needed

    def needed(self, client: int) -> list[int]:
        """Leaf rounds of a client's versions to keep."""
        return list(self._needed.get(str(client), ()))


def forget_memories(folder: Path, client: int, kept_rounds: Collection[int]) -> None:
    """Remove a client's versions of all leaf rounds but some."""
    for path in path_of(folder, client, 0).parent.glob("round-*.safetensors"):
        if path.stem.removeprefix("round-").isdecimal() and _round_of(path) not in kept_rounds:
            path.unlink(missing_ok=True)


class MemoryKeeper:
    """The server's control of the files of clients' memory in its run folder: the versions to keep."""

    def __init__(self, folder: Path, checkpoints: int) -> None:
        """Keep the versions needed by the newest `checkpoints` checkpoints.

        Args:
            folder: folder of all clients' files.
            checkpoints: number kept; versions are kept for one more, since the oldest is removed only after
                the newest is written.
        """
        self.folder = folder
        self._pinned: deque[frozenset[Path]] = deque(maxlen=checkpoints + 1)

    def begin(self, counted: Mapping[int, KeptVersion]) -> None:
        """Begin or resume a run: later versions are removed, and valid ones must exist.

        Args:
            counted: client → the valid version; empty in a new run.

        Raises:
            StateFileError: a version is missing or damaged.
        """
        if not counted:
            shutil.rmtree(self.folder, ignore_errors=True)
            return
        for client, kept in counted.items():
            read_memory(self.folder, client, kept)
        newest = {path_of(self.folder, c, k.leaf_round).parent: k.leaf_round for c, k in counted.items()}
        files = self._files()
        undone = {path for path in files if _round_of(path) > newest.get(path.parent, -1)}
        for path in undone:
            path.unlink(missing_ok=True)
        self._pinned.append(frozenset(files) - undone)

    def pin(self, counted: Mapping[int, KeptVersion], further: Iterable[MemoryVersion] = ()) -> list[Path]:
        """Keep the versions needed by a checkpoint, and further ones.

        Returns:
            Their files, to be made durable with the checkpoint.
        """
        paths = self._paths(counted, further)
        self._pinned.append(frozenset(paths))
        return paths

    def sweep(self, counted: Mapping[int, KeptVersion], further: Iterable[MemoryVersion] = ()) -> None:
        """Remove versions neither valid now, nor part of a checkpoint, nor among further ones."""
        retained = set(self._paths(counted, further)).union(*self._pinned)
        for path in self._files():
            if path not in retained:
                path.unlink(missing_ok=True)

    def _paths(self, counted: Mapping[int, KeptVersion], further: Iterable[MemoryVersion] = ()) -> list[Path]:
        versions = {*((client, kept.leaf_round) for client, kept in counted.items()), *further}
        return [path_of(self.folder, *version) for version in sorted(versions)]

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("client-*/round-*.safetensors"))


def _round_of(path: Path) -> int:
    """Leaf round in a file's name."""
    return int(path.stem.removeprefix("round-"))
