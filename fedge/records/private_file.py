"""Private file of a run: its process and its paths on this machine.

``private.json`` shows whether the run's process is alive, and where its data and code are for resuming. No
result depends on it, and `fedge export-run` leaves it out. Earlier versions recorded the process in the
manifest.
"""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedge.config.registers.register import search_folders
from fedge.process.identity import is_of_this_boot, this_process
from fedge.records.folder import write_json

PRIVATE = "private.json"
_ABOUT = "of this machine; needed to resume the run, not for sharing"
_PLACES = ("data.path", "runs-dir", "train.start")  # options whose values may be local paths


def write_private(folder: Path, config: Mapping[str, Any], resume_words: str = "") -> None:
    """Record this process as the one carrying out the run in `folder`, and the paths in the run's options.

    Args:
        folder: the run folder.
        config: options of the run.
        resume_words: further arguments of the command that resumes it.

    Raises:
        OSError: the disk is full or gone.
    """
    places = {key: config[key] for key in _PLACES if key in config}
    content = {"about": _ABOUT, "process": this_process(), "places": places, "code": search_folders()}
    if resume_words:
        content["resume"] = {"words": resume_words, "directory": str(Path.cwd())}
    write_json(folder / PRIVATE, content, indent=2)


def code_folders_of(folder: Path) -> list[str]:
    """Folders on this machine searched by a run for custom code."""
    folders = _read(folder).get("code")
    return [str(path) for path in folders] if isinstance(folders, list) else []


def resume_words_of(folder: Path) -> tuple[list[str], Path]:
    """Further arguments of the command that resumes a run, and the directory in which they were given.

    There are none from before this machine's last start, or from another machine: a run folder from elsewhere
    must not choose the address at which this machine listens, nor whose certificates it accepts.
    """
    content = _read(folder)
    process, recorded = content.get("process"), content.get("resume")
    if not isinstance(process, dict) or not is_of_this_boot(process):
        return [], Path()
    words, directory = (
        (recorded.get("words"), recorded.get("directory")) if isinstance(recorded, dict) else ("", "")
    )
    if not isinstance(words, str) or not isinstance(directory, str):
        return [], Path()
    try:
        return shlex.split(words), Path(directory)
    except ValueError:  # damaged
        return [], Path()


def without_places(config: Mapping[str, Any]) -> dict[str, Any]:
    """Options without folders of this machine: absolute paths are reduced to their last name."""
    return {key: place_name(value) if key in _PLACES else value for key, value in config.items()}


def place_name(place: Any) -> Any:
    """Last name of an absolute path; anything else unchanged."""
    path = Path(place) if isinstance(place, str) else None
    return path.name if path is not None and path.is_absolute() else place


def process_of(folder: Path, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """Process carrying out a run, in the form of `this_process`; empty if unknown."""
    process = _read(folder).get("process", manifest.get("process"))
    return process if isinstance(process, dict) else {}


def places_of(folder: Path) -> dict[str, str]:
    """Option → path on this machine, of a run to resume."""
    places = _read(folder).get("places")
    if not isinstance(places, dict):
        return {}
    return {key: place for key, place in places.items() if key in _PLACES and isinstance(place, str)}


def _read(folder: Path) -> dict[str, Any]:
    """Content of the file; empty if missing or damaged."""
    path = folder / PRIVATE
    try:
        content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
