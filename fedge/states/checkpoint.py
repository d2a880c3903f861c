"""Checkpoints: the state of a run after a global round, in one folder, complete or absent.

``checkpoints/round-000007/`` holds one safetensors file per group of states and, written last,
``manifest.json``: the sha256 of every file and of the manifest itself, and further state of the run (its
*facts*). Everything is written under a temporary name and made durable before the folder is renamed, so a
process killed at any moment leaves earlier checkpoints untouched. Reading verifies every byte.

"""

import hashlib
import json
import math
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from fedge.config.registers.option import ConfigError
from fedge.process.durable import sync
from fedge.process.escape import printable
from fedge.process.resources.room import remedy
from fedge.process.resources.threads import in_threads
from fedge.states.averaging import State
from fedge.states.files import FileState, JoinedStates, StateFileError, map_state, write_state

FOLDER = "checkpoints"
MANIFEST = "manifest.json"
_FORMAT = 1
_NAME = re.compile(r"round-(\d{6,})")
_GROUP = re.compile(r"[a-z]+")
_LONGEST = 200  # characters of a fault
IN_USE = "; remove this folder, then resume from an earlier checkpoint, or start a new run"
_UNFINISHED = ".round-*"  # being written or removed
_BLOCK_BYTES = 2**20

Groups = Mapping[str, Mapping[str, State]]  # group → name → state; a group is a file


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written, or has changed since it was written; the message is one line."""


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint, as read.

    Attributes:
        folder: path of the checkpoint.
        global_round: the last included round; 0 before the first.
        facts: further state, as JSON.
        groups: the states as views of the mapped files, entries in order; copy entries to keep them.
    """

    folder: Path
    global_round: int
    facts: Mapping[str, Any]
    groups: Groups


def write_checkpoint(
    parent: Path, global_round: int, groups: Groups, facts: Mapping[str, Any], beside: Iterable[Path] = ()
) -> Path:
    """Write the checkpoint of a global round into `parent`, replacing one of the same round.

    Args:
        parent: the run's folder of checkpoints; created if missing.
        global_round: the last included round.
        groups: the states; a group without any gets no file.
        facts: JSON.
        beside: growing files of the run, made durable together with the checkpoint.

    Raises:
        CheckpointError: the disk is full or gone. Checkpoints of other rounds are as they were.
        TypeError, ValueError: a fact is not JSON, or safetensors has no word for a dtype.
    """
    folder = parent / f"round-{global_round:06d}"
    unfinished = parent / f".{folder.name}.part"
    try:
        parent.mkdir(exist_ok=True)
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        files = {group: _write_group(unfinished, group, states) for group, states in groups.items() if states}
        content = {"format": _FORMAT, "round": global_round, "files": files, "facts": facts}
        (unfinished / MANIFEST).write_bytes(_manifest_bytes(content))
        in_threads(sync, [*beside, *sorted(unfinished.iterdir()), unfinished])  # takes as long as one alone
        _remove(folder)
        unfinished.rename(folder)
        sync(parent)
    except (OSError, StateFileError) as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        culprit = getattr(error, "filename", None)
        if culprit is not None and not Path(culprit).is_relative_to(parent):  # one of the run's tables
            reason = f"{culprit}: {reason}"
        next_step = (
            f"earlier ones are intact: {remedy(error)}, then fedge resume {shlex.quote(str(parent.parent))}"
            if checkpoints(parent)
            else f"it is the first: {remedy(error)}, then start the run again"
        )
        raise CheckpointError(f"cannot write checkpoint {folder}: {reason}; {next_step}") from error
    return folder


def _write_group(folder: Path, group: str, states: Mapping[str, State]) -> dict[str, Any]:
    """Write one file of states; returns its entry in the manifest."""
    path = folder / f"{group}.safetensors"
    write_state(path, JoinedStates(states))
    return {"sha256": _sha256(path), "states": [[name, len(state)] for name, state in states.items()]}


def _manifest_bytes(content: Any) -> bytes:
    """The manifest with its own sha256; equal content gives equal bytes, which can be compared."""
    text = json.dumps(content)  # without indents: a thread beside the round writes it, in C and so at once
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f'{{"content": {text}, "sha256": "{digest}"}}\n'.encode()


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint, having compared every byte with its checksum.

    Raises:
        CheckpointError: a named part is missing or damaged.
    """
    with refusing_impossible_values(folder):
        content = _read_manifest(folder)
        if not all(map(_GROUP.fullmatch, content["files"])) or not isinstance(content["facts"], dict):
            raise ValueError("its manifest is of another form")
        groups = {
            group: dict(
                _states(_map_verified(folder / f"{group}.safetensors", entry["sha256"]), entry["states"])
            )
            for group, entry in content["files"].items()
        }
        return Checkpoint(folder, content["round"], content["facts"], groups)


@contextmanager
def refusing_impossible_values(folder: Path, next_step: str = "") -> Iterator[None]:
    """Raise CheckpointError, in one line, if a checkpoint in use holds impossible values.

    Checksums do not exclude this, because a faulty writer writes matching ones.

    Args:
        folder: folder of the checkpoint.
        next_step: for the user, if no other checkpoint is tried.
    """
    try:
        yield
    except (StateFileError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        if isinstance(error, ConfigError):
            raise
        missing = " must be there, but is missing" if isinstance(error, KeyError) else ""
        description = printable(f"{type(error).__name__}: {error}{missing}"[:_LONGEST])
        raise CheckpointError(
            f"checkpoint {folder} is damaged: it says what cannot be: {description}{next_step}"
        ) from None
    except RecursionError:
        raise CheckpointError(
            f"checkpoint {folder} is damaged: it is nested without end{next_step}"
        ) from None


def _read_manifest(folder: Path) -> Any:
    """The content of a checkpoint's manifest, or raise CheckpointError."""
    path = folder / MANIFEST
    try:
        raw = path.read_bytes()
        content = json.loads(raw)["content"]
        is_intact = _manifest_bytes(content) == raw
    except OSError as error:
        raise CheckpointError(
            f"checkpoint {folder} is damaged: {MANIFEST}: {error.strerror or error}"
        ) from error
    except (ValueError, KeyError, TypeError, RecursionError):
        is_intact = False
    if not is_intact:
        raise CheckpointError(f"checkpoint {folder} is damaged: {MANIFEST} is not what was written")
    if content["format"] != _FORMAT:
        raise CheckpointError(
            f"checkpoint {folder} has format {content['format']}, which this version of Fedge does not read"
        )
    if folder.name != f"round-{content['round']:06d}":
        raise CheckpointError(f"checkpoint {folder} is damaged: its manifest is of round {content['round']}")
    return content


def _map_verified(path: Path, sha256: str) -> FileState:
    """Map a file of states after comparing its checksum, or raise CheckpointError."""
    try:
        if _sha256(path) != sha256:
            raise CheckpointError(f"checkpoint {path.parent} is damaged: {path.name} has another sha256")
        return map_state(path)
    except OSError as error:
        raise CheckpointError(
            f"checkpoint {path.parent} is damaged: {path.name}: {error.strerror or error}"
        ) from error


class _Part(Mapping[str, np.ndarray]):
    """One state of a joined file."""

    def __init__(self, joined: FileState, entries: Mapping[str, str]) -> None:
        self._joined = joined
        self._entries = entries

    def __getitem__(self, name: str) -> np.ndarray:
        return self._joined[self._entries[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def _states(joined: FileState, states: Iterable[tuple[str, int]]) -> Iterator[tuple[str, State]]:
    """The states of a joined file: name and number of entries, in the order of the file.

    Raises:
        ValueError: they do not match the file, which valid checksums do not exclude.
    """
    entries, seen = iter(joined), set()
    for name, count in states:
        names = list(islice(entries, count))
        if name in seen or len(names) != count or not all(entry.startswith(f"{name}/") for entry in names):
            raise ValueError(f"state {name} with {count} entries is not in its file")
        seen.add(name)
        yield name, _Part(joined, {entry[len(name) + 1 :]: entry for entry in names})
    if (extra := next(entries, None)) is not None:
        raise ValueError(f"entry {extra} is of no state")


def newest_valid_checkpoint(
    parent: Path, before: float = math.inf
) -> tuple[Checkpoint | None, list[CheckpointError]]:
    """The newest complete checkpoint, or None, and the faults of newer ones.

    Args:
        parent: the run's folder of checkpoints.
        before: only earlier rounds are considered.
    """
    faults: list[CheckpointError] = []
    for folder in reversed(checkpoints(parent)):
        if _round_of(folder) < before:
            try:
                return read_checkpoint(folder), faults
            except CheckpointError as error:
                faults.append(error)
    return None, faults


def rounds_kept(parent: Path) -> int:
    """Global round of the newest checkpoint, complete or not; 0 if there is none."""
    return max(map(_round_of, checkpoints(parent)), default=0)


def checkpoints(parent: Path) -> list[Path]:
    """The folders of all checkpoints, complete or not, oldest first."""
    folders = [path for path in parent.glob("round-*") if _NAME.fullmatch(path.name) and path.is_dir()]
    return sorted(folders, key=_round_of)


def _round_of(folder: Path) -> int:
    """The round in a checkpoint's name."""
    return int(folder.name.removeprefix("round-"))


def prune(parent: Path, keep: int, after: int | None = None) -> None:
    """Remove all but the newest `keep` checkpoints, leftovers of broken writes, and rounds past `after`."""
    folders = checkpoints(parent)
    later = [path for path in folders if after is not None and _round_of(path) > after]
    older = [path for path in folders if path not in later][:-keep]
    for path in (*later, *older):
        _remove(path)
    for path in parent.glob(_UNFINISHED):
        shutil.rmtree(path, ignore_errors=True)


def remove_all(parent: Path) -> None:
    """Remove every checkpoint of a run without a continuation."""
    for folder in checkpoints(parent):
        _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a checkpoint after renaming it: half removed, it would look like a damaged one."""
    trash = folder.with_name(f".{folder.name}.gone")
    shutil.rmtree(trash, ignore_errors=True)
    if folder.exists():
        folder.rename(trash)
        shutil.rmtree(trash, ignore_errors=True)


def _sha256(path: Path) -> str:
    """The sha256 of a file, read block by block."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
