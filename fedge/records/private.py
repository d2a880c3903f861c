"""Private file of a run: its process and its places on this machine, which are nobody else's.

``private.json`` tells whether the run's process lives, and where its data and code lie when it goes on. No
result depends on it; `fedge export-run` leaves it out. A run of an earlier version has the process in its
manifest.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedge.config.register import looked_in
from fedge.process.identity import this_process
from fedge.records.folder import write_whole

PRIVATE = "private.json"
_ABOUT = "of this machine; what goes on with the run needs it, what is shared should not have it"
_PLACES = ("data.path", "runs-dir", "train.start")  # options with possible local paths


def write_private(folder: Path, config: Mapping[str, Any]) -> None:
    """Write that this process carries out the run in `folder`, and the places that its options name.

    Raises:
        OSError: the disk is full or gone.
    """
    places = {key: config[key] for key in _PLACES if key in config}
    content = {"about": _ABOUT, "process": this_process(), "places": places, "code": looked_in()}
    write_whole(folder / PRIVATE, content, indent=2)


def code_folders_of(folder: Path) -> list[str]:
    """The folders on this machine in which a run looked for code of the user's."""
    folders = _read(folder).get("code")
    return [str(path) for path in folders] if isinstance(folders, list) else []


def without_places(config: Mapping[str, Any]) -> dict[str, Any]:
    """Options without folders of this machine: of an absolute path, the last name stays."""
    return {key: place_name(value) if key in _PLACES else value for key, value in config.items()}


def place_name(place: Any) -> Any:
    """The last name of an absolute path; anything else as it is."""
    path = Path(place) if isinstance(place, str) else None
    return path.name if path is not None and path.is_absolute() else place


def process_of(folder: Path, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """The process that carries out a run, as `this_process` gives it; empty where it is not known."""
    process = _read(folder).get("process", manifest.get("process"))
    return process if isinstance(process, dict) else {}


def places_of(folder: Path) -> dict[str, str]:
    """Option → place on this machine, of a run that is to go on."""
    places = _read(folder).get("places")
    if not isinstance(places, dict):
        return {}
    return {key: place for key, place in places.items() if key in _PLACES and isinstance(place, str)}


def _read(folder: Path) -> dict[str, Any]:
    """Content of the file; empty where it is missing or damaged."""
    path = folder / PRIVATE
    try:
        content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
