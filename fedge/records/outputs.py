"""Check of a run's results for changes, by the checksums in its manifest."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from fedge.records.tables.catalog import PARTITION, ROUND_TABLES
from fedge.records.tables.device_tables import DEVICE_TABLES
from fedge.records.tables.growing_file import running_digest
from fedge.records.tables.model_tables import CLIENT_MODELS, COMMON_TEST, MEMBERSHIPS

CLUSTERS = "clusters.jsonl"
CONFUSION = "metrics/confusion.json"
MODELS = "checkpoints/final.safetensors"
_KEPT_FILE = re.compile(r"checkpoints/models-([1-9][0-9]{0,8}|best)\.safetensors")
OUTPUTS = (
    *(table.path for table in ROUND_TABLES if not table.optional),
    CLUSTERS,
    CONFUSION,
    PARTITION.path,
    MODELS,
)
# further results: of runs on the virtual clock, with clients' own models, mixtures or a common test set
_FURTHER_OUTPUTS = (
    *(table.path for table in DEVICE_TABLES),
    CLIENT_MODELS.path,
    MEMBERSHIPS.path,
    COMMON_TEST.path,
)


def models_file(name: str = "") -> str:
    """File of a run's models: the final ones, or those kept under a name, e.g. "10" or "best"."""
    return f"checkpoints/models-{name}.safetensors" if name else MODELS


def kept_models(folder: Path) -> list[str]:
    """Names of models kept beside the final ones: numbers, then "best"."""
    files = [path.relative_to(folder).as_posix() for path in (folder / MODELS).parent.glob("models-*")]
    names = [match[1] for file in files if (match := _KEPT_FILE.fullmatch(file))]
    return sorted(names, key=lambda name: (len(name) if name.isdecimal() else 99, name))


def is_kept_model(file: str) -> bool:
    """Whether a file, by its path in the run folder, holds models kept beside the final ones.

    >>> is_kept_model("checkpoints/models-10.safetensors"), is_kept_model(MODELS)
    (True, False)
    """
    return _KEPT_FILE.fullmatch(file) is not None


def checksums(folder: Path) -> dict[str, str]:
    """SHA-256 of every existing result, by file.

    Raises:
        OSError: a result cannot be read.
    """
    names = (*OUTPUTS, *_FURTHER_OUTPUTS, *map(models_file, kept_models(folder)))
    return {name: running_digest(folder / name).hexdigest() for name in names if (folder / name).is_file()}


def damaged_outputs(folder: Path, manifest: Mapping[str, Any]) -> list[str]:
    """One line for each result missing or changed since the run wrote it; empty before the run's end."""
    return _damage_lines(folder, manifest, (*OUTPUTS, *_FURTHER_OUTPUTS))


def damaged_tables(folder: Path, manifest: Mapping[str, Any]) -> list[str]:
    """One line for each damaged table of an ended run, like `damaged_outputs`.

    Models are not checked, as they may be large and no page shows them.
    """
    if manifest.get("status") not in ("completed", "partial"):
        return []
    return _damage_lines(folder, manifest, [name for name in (*OUTPUTS, *_FURTHER_OUTPUTS) if name != MODELS])


def _damage_lines(folder: Path, manifest: Mapping[str, Any], names: Collection[str]) -> list[str]:
    return [
        f"{name} is {'not as the run wrote it' if (folder / name).is_file() else 'missing'}"
        for name, sha256 in manifest.get("outputs", {}).items()
        if (name in names or (MODELS in names and is_kept_model(name)))
        and not has_checksum(folder / name, sha256)
    ]


def has_checksum(path: Path, sha256: str, size: int | None = None) -> bool:
    """Whether a file, or its first `size` bytes, has a checksum."""
    try:
        if size is not None and path.stat().st_size < size:
            return False
        return running_digest(path, size).hexdigest() == sha256
    except OSError:
        return False
