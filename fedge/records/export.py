"""Copy of a run for sharing: results and settings, without facts of the machine or names of persons.

The files to copy are listed, so everything else in the folder (logs, checkpoints, a tracker's files) is left
out. Users become "user-1", "user-2", … in the order of their names; absolute paths are reduced to their last
part.
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

from fedge.config.registers.option import ConfigError
from fedge.config.registers.own_places import own_home
from fedge.records.folder import resume_command
from fedge.records.foreign_folder import refuse_links
from fedge.records.manifest import read_manifest, write_manifest
from fedge.records.outputs import (
    CLUSTERS,
    CONFUSION,
    MODELS,
    checksums,
    damaged_outputs,
    damaged_tables,
    kept_models,
    models_file,
)
from fedge.records.private_file import without_places
from fedge.records.tables.catalog import PARTITION, TABLES
from fedge.records.tables.timing_tables import MESSAGES

ARCHIVES = {".zip": "zip", ".tar": "tar", ".tar.gz": "gztar", ".tgz": "gztar"}
_PATH = re.compile(r"(?<![\w./\\])(?:/|[A-Za-z]:\\|\\\\)(?:[^\s/\\:;,'\"]+[/\\])+")
_SHORTEST_NAME = 2  # shortest name to search for


def export_run(folder: Path, target: Path) -> Path:
    """Write a copy of a run for sharing to `target`, a new folder or archive; returns it.

    Args:
        folder: run folder of an ended run.
        target: a folder, or a file with an ending of `ARCHIVES`.

    Raises:
        ConfigError: the run is in progress, contains links or is damaged; or `target` exists or cannot be
            written.
    """
    manifest = read_manifest(folder)
    refuse_links(folder)
    if manifest["status"] == "running":
        raise ConfigError(
            f"a run must have ended before export, but {folder} is in progress; wait for it, or stop it"
        )
    if damaged := damaged_outputs(folder, manifest):
        # checkpoints contain the models again, and only the lengths of tables
        lost_tables = damaged_tables(folder, manifest)
        remedy = (
            "restore it from a copy, or start the run again"
            if lost_tables
            else f"{resume_command(folder)} repairs it"
        )
        raise ConfigError(f"a run must be intact for export, but {'; '.join(damaged)}; {remedy}")
    if target.exists():
        raise ConfigError(f"DEST must be new, but {target} exists; choose another")
    ending = next((end for end in sorted(ARCHIVES, key=len, reverse=True) if target.name.endswith(end)), None)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".export-", dir=target.parent) as scratch:
            copy = Path(scratch) / folder.name
            _write_copy(folder, copy, manifest)
            if ending is None:
                copy.rename(target)
            else:
                shutil.make_archive(str(Path(scratch) / "a"), ARCHIVES[ending], scratch, copy.name)
                (archive,) = (path for path in Path(scratch).iterdir() if path != copy)
                archive.rename(target)
    except OSError as error:
        raise ConfigError(
            f"DEST must be writable, but {target}: {error.strerror or error}; choose another"
        ) from error
    return target


def _write_copy(folder: Path, copy: Path, manifest: Mapping[str, Any]) -> None:
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
    """partition.csv with numbers instead of users' names."""
    reader = csv.DictReader(io.StringIO(partition))
    rows = list(reader)
    pseudonyms = {user: f"user-{k}" for k, user in enumerate(sorted({row["user"] for row in rows}), start=1)}
    text = io.StringIO()
    table = csv.DictWriter(text, reader.fieldnames or (), lineterminator="\n")
    table.writeheader()
    table.writerows({**row, "user": pseudonyms[row["user"]]} for row in rows)
    return text.getvalue()


def _shared_manifest(manifest: Mapping[str, Any], outputs: Mapping[str, str]) -> dict[str, Any]:
    """Manifest of the copy."""
    entries = {key: value for key, value in manifest.items() if key != "process"}
    entries["config"] = without_places(entries.get("config", {}))
    shared: dict[str, Any] = json.loads(json.dumps(entries), object_hook=_scrub_table)
    return {**shared, "outputs": dict(outputs), "exported": True}


def _scrub_table(table: dict[str, Any]) -> dict[str, Any]:
    """A table with its texts scrubbed; nested tables have already been scrubbed."""
    return {key: _scrub(value) for key, value in table.items()}


def _scrub(value: Any) -> Any:
    """Text, or texts in a list, without folders and the names of machine and account."""
    if isinstance(value, list):
        return [_scrub(item) for item in value]
    if not isinstance(value, str):
        return value
    return _without_names(_PATH.sub("", value))


def _without_names(text: str) -> str:
    """Text without the names of this machine and this account."""
    names = {platform.node(), (own_home() or Path()).name}
    with suppress(KeyError, OSError, ImportError):
        names.add(getpass.getuser())
    for name in names:
        if len(name) >= _SHORTEST_NAME:
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "…", text)
    return text
