"""Paths below ``runs-dir/latest`` in options, which would lead into the run itself once it begins."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedge.config.config import Config
from fedge.config.flat import from_run_config, options, to_run_config
from fedge.config.registers.option import arguments_of
from fedge.records.folder import LATEST

_OWN = ("resume", "runs-dir", "run-name")  # options about the run's own folder


def with_latest_run(config: Config) -> Config:
    """The options, with the folder of the latest run in place of the link to it.

    The link points to the new run from its first moment on, so a trace or log of the run before is named by
    its own folder, in the manifest, too.
    """
    link = Path(config.runs_dir) / LATEST
    if not link.is_symlink():
        return config
    before = to_run_config(config)
    after = {
        key: value if key in _OWN else _with_run(value, key, link, is_table=rule["table"])
        for key, (_, rule) in options().items()
        for value in [before[key]]
    }
    return config if after == before else from_run_config(after)


def _with_run(value: Any, key: str, link: Path, *, is_table: bool = False) -> Any:
    """A value of an option, or of an argument, without the link; any other value unchanged."""
    if is_table and isinstance(value, str):
        arguments = arguments_of(value, key)
        settled = _with_run(arguments, key, link)
        return value if settled == arguments else json.dumps(settled, ensure_ascii=False)
    if isinstance(value, Mapping):
        return {name: _with_run(item, key, link) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_run(item, key, link) for item in value]
    return _real_path(value, link) if isinstance(value, str) and LATEST in value else value


def _real_path(path: str, link: Path) -> str:
    """An existing path, with the folder that the link points to in its place."""
    absolute, prefix = os.path.abspath(path), os.path.abspath(link)
    is_below = absolute == prefix or absolute.startswith(prefix + os.sep)
    if not is_below or not os.path.exists(path):
        return path
    return str(link.parent / os.readlink(link)) + absolute.removeprefix(prefix)
