"""manifest.json of a run: written atomically, and read by a single function.

A killed process cannot record its end, so the recorded status is checked against whether the process is
alive. Entries of the wrong type, e.g. after an edit, are ignored; the others are trusted.
"""

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from fedge.config.flat import options
from fedge.config.registers.option import ConfigError
from fedge.process.endings import exits
from fedge.process.escape import read_json
from fedge.process.identity import has_ended
from fedge.records.folder import MANIFEST as MANIFEST
from fedge.records.folder import write_json
from fedge.records.foreign_folder import UnusableFileError, refuse_foreign_files
from fedge.records.lock import is_locked
from fedge.records.private_file import process_of

_STATUSES = ("running", "completed", "partial", "failed")
_LARGEST = 2**63 - 1  # limit of whole numbers in a configuration


class RunFolderError(ConfigError):
    """Error: unreadable run folder. One line: the file, its fault, the next step."""


def write_manifest(folder: Path, manifest: Mapping[str, Any], durably: bool = True) -> None:
    """Replace a run's manifest atomically; without `durably`, without waiting for the disk.

    Raises:
        OSError: the disk is full or gone; the file is unchanged.
    """
    write_json(folder / MANIFEST, manifest, indent=2, durably=durably)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Manifest of a run, with its current `status`, `exit_code` and, if it failed, `reason`.

    A run recorded as "running" whose process is gone is returned as failed.

    Raises:
        RunFolderError: there is no such run, or its manifest is damaged.
    """
    manifest = {key: value for key, value in _read(folder / MANIFEST).items() if _is_valid_entry(key, value)}
    if "config" in manifest:
        manifest["config"] = _valid_options(manifest["config"])
    process = process_of(folder, manifest)
    # a process in another container, or hidden from this account, seems gone, but still holds its lock
    if manifest["status"] == "running" and has_ended(process) and not is_locked(folder):
        manifest.update(
            status="failed",
            exit_code=exits.FAILED,
            reason=f"died: process {process['pid']} ended without notice (killed, out of memory, reboot)",
        )
    if "exit_code" not in manifest or manifest["status"] == "running":
        manifest["exit_code"] = exits.BY_STATUS[manifest["status"]]
    return manifest


def _read(path: Path) -> dict[str, Any]:
    """Content of the file, with a valid status; RunFolderError otherwise."""
    try:
        refuse_foreign_files(path.parent)
        manifest = read_json(path.read_text(encoding="utf-8"))
    except UnusableFileError as error:
        raise RunFolderError(str(error)) from None
    except FileNotFoundError as error:
        raise RunFolderError(
            f"{path.parent} is not a run folder: it has no {MANIFEST}; give one, e.g. runs/NAME"
        ) from error
    except OSError as error:
        raise RunFolderError(
            f"{path} cannot be read: {error.strerror or error}; fix this, or name another run"
        ) from error
    except (ValueError, RecursionError):
        raise _damaged_error(path, "it is not JSON") from None
    if not isinstance(manifest, dict):
        raise _damaged_error(path, f"it must be a JSON object, but is a {type(manifest).__name__}")
    if manifest.get("status") not in _STATUSES:
        raise _damaged_error(path, f"its status must be one of {', '.join(_STATUSES)}")
    return manifest


def _damaged_error(path: Path, fault: str) -> RunFolderError:
    return RunFolderError(
        f"{MANIFEST} must be a run's manifest, but {path} is damaged: {fault}; inspect the folder by hand"
    )


# --- types of entries -----------------------------------------------------------------------------------


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return (type(value) is int or (type(value) is float and math.isfinite(value))) and abs(value) <= _LARGEST


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | bool) or _is_number(value)


def _list_of(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _table_of(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def _table_with(**checks: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Type check of tables with at least these entries, each of its type."""
    return lambda value: (
        isinstance(value, dict)
        and all(name in value and check(value[name]) for name, check in checks.items())
    )


_BOUNDS = ("lowest", "highest")
_IS_SCORE = _table_with(name=_is_text, higher_is_better=_is_bool, unit=_is_text, words=_is_text)
_IS_TASK = _table_with(name=_is_text, scores=_list_of(_IS_SCORE), loss_unit=_is_text)


def _has_bounds(task: Mapping[str, Any]) -> bool:
    """Whether the bounds of a task's loss and scores are numbers, if present."""
    bounds = [task.get("least_loss"), *(score.get(name) for score in task["scores"] for name in _BOUNDS)]
    return all(bound is None or _is_bound(bound) for bound in bounds)


def _is_bound(value: Any) -> bool:
    """Whether a value is a finite number of any size, e.g. -1e30 for no lower limit."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _are_names(value: Any) -> bool:
    """Whether a value is a list of distinct texts, as required for columns."""
    return _list_of(_is_text)(value) and len(set(value)) == len(value)


def _are_eras(value: Any) -> bool:
    """Whether a value is a list of [global round, group of each leaf], for every change of groups."""
    pairs = _list_of(lambda pair: isinstance(pair, list) and len(pair) == 2)(value)
    return pairs and all(_is_count(first) and _list_of(_is_count)(groups) for first, groups in value)


_ENTRY_CHECKS: dict[str, Callable[[Any], bool]] = {
    "exit_code": lambda value: _is_count(value) and value < 256,
    "reason": _is_text,
    "seed": _is_number,
    "seed_source": _is_text,
    "engine": _is_text,
    "started": _is_text,
    "ended": _is_text,
    "config": lambda value: isinstance(value, dict),
    "federation": _table_of(_is_number),
    "versions": _table_of(_is_text),
    "data": _table_with(
        name=_is_text, fingerprint=_is_text, synthetic=_is_bool, windows=_is_count,
        classes=_are_names, channels=_are_names, split=_is_text,
    ),
    "clients_per_leaf": _list_of(_is_count),
    "unseen_clients": _list_of(_is_count),
    "scenario": lambda value: value is None
    or (_table_with(kind=_is_text, groups=_list_of(_is_count))(value) and _are_eras(value.get("later", []))),
    "resumed": _list_of(_table_with(when=_is_text, after_round=_is_count, engine=_is_text)),
    "kernel": _table_of(_is_text),
    "devices": _table_of(_is_count),
    "device": _table_of(_is_text),
    "remarks": _list_of(_is_text),
    "stopped": _table_with(by=_is_text, after_round=_is_count, reason=_is_text),
    "privacy": _table_with(promise=_is_text, not_covered=_list_of(_is_text)),
    "uplink": _table_of(_table_with(model_bytes=_is_count, sent_bytes=_is_count)),
    "parts": _table_of(_table_with(name=_is_text)),
    "outputs": _table_of(_is_text),
    "traces": _table_of(_is_text),
    "task": lambda value: value is None or (_IS_TASK(value) and bool(value["scores"]) and _has_bounds(value)),
    "process": lambda value: isinstance(value, dict),
}  # fmt: skip


def invalid_entries(manifest: Mapping[str, Any], needed: Iterable[str]) -> list[str]:
    """Entries of a manifest with invalid values, or needed and missing."""
    return [key for key, value in manifest.items() if not _is_valid_entry(key, value)] + [
        key for key in needed if key not in manifest
    ]


def _is_valid_entry(key: str, value: Any) -> bool:
    """Whether an entry has a valid form; entries unknown to this version always have."""
    check = _ENTRY_CHECKS.get(key)
    return check is None or check(value)


def _valid_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Options that are scalars and, if known to this version, of their default's type."""
    known_options = options()

    def is_valid(key: str, value: Any) -> bool:
        _, rule = known_options.get(key, (value, {"words": (), "kind": type(value)}))
        if rule["kind"] is bool or isinstance(value, bool):
            return type(value) is rule["kind"]
        return isinstance(value, str) == (rule["kind"] is str) or value in rule["words"]

    return {key: value for key, value in config.items() if _is_scalar(value) and is_valid(key, value)}
