"""A copy of a run that can be shared: results and settings, nothing of the machine, no names of persons.

Copied files are listed, so all else in the folder (logs, checkpoints, a tracker's files) stays.
Users become "user-1", "user-2", … in the order of their names; absolute paths keep their last name.
"""

import csv
import getpass
import io
import json
import platform
import re
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedge.config.option import ConfigError
from fedge.records.catalog import PARTITION, TABLES
from fedge.records.foreign import refuse_links
from fedge.records.manifest import read_manifest, write_manifest
from fedge.records.outputs import (
    CLUSTERS,
    CONFUSION,
    MODELS,
    checksums,
    damaged_outputs,
    kept_models,
    models_file,
)
from fedge.records.private import without_places
from fedge.records.timing_tables import MESSAGES

ARCHIVES = {".zip": "zip", ".tar": "tar", ".tar.gz": "gztar", ".tgz": "gztar"}
_PATH = re.compile(r"(?<![\w./\\])(?:/|[A-Za-z]:\\|\\\\)(?:[^\s/\\:;,'\"]+[/\\])+")
_SHORTEST = 2  # letters of a name to search in text


def export_run(folder: Path, target: Path) -> Path:
    """Write a copy of a run that can be shared into `target`, a new folder or archive; returns it.

    Args:
        folder: of a run that has ended.
        target: a folder, or a file whose name ends as `ARCHIVES` have it.

    Raises:
        ConfigError: the run goes on, holds links or is damaged, `target` is there, or cannot be written.
    """
    manifest = read_manifest(folder)
    refuse_links(folder)
    if manifest["status"] == "running":
        raise ConfigError(
            f"a run must have ended before it is exported, but {folder} goes on; wait or stop it"
        )
    if damaged := damaged_outputs(folder, manifest):
        raise ConfigError(
            f"a run must be whole to be exported, but {'; '.join(damaged)}; fedge resume {folder} makes it so"
        )
    if target.exists():
        raise ConfigError(f"DEST must be new, but {target} exists; choose another")
    ending = next((end for end in sorted(ARCHIVES, key=len, reverse=True) if target.name.endswith(end)), None)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".export-", dir=target.parent) as work:
            copy = Path(work) / folder.name
            _copy(folder, copy, manifest)
            if ending is None:
                copy.rename(target)
            else:
                shutil.make_archive(str(Path(work) / "a"), ARCHIVES[ending], work, copy.name)
                (found,) = (path for path in Path(work).iterdir() if path != copy)
                found.rename(target)
    except OSError as error:
        raise ConfigError(
            f"DEST must be writable, but {target}: {error.strerror or error}; choose another"
        ) from error
    return target


def _copy(folder: Path, copy: Path, manifest: Mapping[str, Any]) -> None:
    """Write the files of the copy."""
    tables = [table.path for table in TABLES if table not in (MESSAGES, PARTITION)]
    messages = [str(path.relative_to(folder)) for path in folder.glob(MESSAGES.path)]
    copy.mkdir()
    for name in (*tables, *messages, CLUSTERS, CONFUSION, MODELS, *map(models_file, kept_models(folder))):
        if (folder / name).is_file():
            (copy / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(folder / name, copy / name)
    if (folder / PARTITION.path).is_file():
        text = (folder / PARTITION.path).read_text(encoding="utf-8")
        (copy / PARTITION.path).write_text(without_users(text), encoding="utf-8")
    write_manifest(copy, _shared_manifest(manifest, checksums(copy)))


def without_users(partition: str) -> str:
    """Partition.csv with numbers for the names of users."""
    reader = csv.DictReader(io.StringIO(partition))
    rows = list(reader)
    number = {user: f"user-{k}" for k, user in enumerate(sorted({row["user"] for row in rows}), start=1)}
    text = io.StringIO()
    table = csv.DictWriter(text, reader.fieldnames or (), lineterminator="\n")
    table.writeheader()
    table.writerows({**row, "user": number[row["user"]]} for row in rows)
    return text.getvalue()


def _shared_manifest(manifest: Mapping[str, Any], outputs: Mapping[str, str]) -> dict[str, Any]:
    """The manifest of the copy."""
    kept = {key: value for key, value in manifest.items() if key != "process"}
    kept["config"] = without_places(kept.get("config", {}))
    shared: dict[str, Any] = json.loads(json.dumps(kept), object_hook=_scrubbed)
    return {**shared, "outputs": dict(outputs), "exported": True}


def _scrubbed(table: dict[str, Any]) -> dict[str, Any]:
    """A table whose texts have been scrubbed; tables in it have been before."""
    return {key: _scrub(value) for key, value in table.items()}


def _scrub(value: Any) -> Any:
    """Text without folders and the names of machine and account, in lists, too."""
    if isinstance(value, list):
        return [_scrub(item) for item in value]
    if not isinstance(value, str):
        return value
    return _without_names(_PATH.sub("", value))


def _without_names(text: str) -> str:
    """Text without the names of this machine and this account."""
    names = {platform.node(), Path.home().name}
    with suppress(KeyError, OSError, ImportError):
        names.add(getpass.getuser())
    for name in names:
        if len(name) >= _SHORTEST:
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "…", text)
    return text
