"""Shell completion of options and their values, configurations and runs.

Shells call this at every keystroke, so it loads nothing heavy, and argcomplete only when called by a shell.
argcomplete quotes names with special characters; names that cannot be quoted, e.g. with a line break, are
left out.
"""

import argparse
import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedge.config.flat import options
from fedge.config.registers.option import ConfigError
from fedge.launch.projects.packaged import PREFIX, packaged_names
from fedge.launch.projects.project import Project
from fedge.records.folder import LATEST
from fedge.records.manifest import MANIFEST

SHELLS = ("bash", "zsh", "fish")
Completer = Callable[..., list[str]]


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer a shell's completion request and exit; return at once for other calls."""
    if "_ARGCOMPLETE" not in os.environ:
        return
    import argcomplete

    for action, completer in _completers(parser):
        action.completer = completer  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser, always_complete_options=False)


def shell_code(shell: str) -> str:
    """Shell code to register the completion."""
    import argcomplete

    return str(argcomplete.shellcode(["fedge"], shell=shell))


def _completers(parser: argparse.ArgumentParser) -> Iterator[tuple[argparse.Action, Completer]]:
    """Each argument of each command with its completer."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _completers(command)
        elif action.dest in _COMPLETERS:
            yield action, _COMPLETERS[action.dest]


def overrides(prefix: str, **_: Any) -> list[str]:
    """Candidates after -c: keys, values after a key, packaged configurations and .toml files."""
    before, space, word = prefix.rpartition(" ")
    key, equals, _value = word.partition("=")
    if equals:
        candidates = [f"{key}={value}" for value in _option_values(key)]
    else:
        candidates = [f"{key}=" for key in options()]
        if not before:
            candidates += [PREFIX + name for name in packaged_names()] + _toml_files(word)
    return [before + space + text for text in candidates if text.startswith(word)]


def _option_values(key: str) -> list[str]:
    """Values of an option as written after -c; its default if they are not listed."""
    default, rule = options().get(key, ("", {"choices": (), "words": ()}))
    if isinstance(default, bool):
        return ["true", "false"]
    return [json.dumps(value) for value in (*rule["choices"], *rule["words"])] or [json.dumps(default)]


def _toml_files(prefix: str) -> list[str]:
    """Folders and .toml files whose path starts with `prefix`."""
    top, _, start = prefix.rpartition("/")
    names = []
    with suppress(OSError):
        for path in Path(f"{top}/" if top or prefix.startswith("/") else ".").iterdir():
            is_hidden = not start and path.name.startswith(".")
            if path.name.startswith(start) and _can_be_quoted(path.name) and not is_hidden:
                name = f"{top}/{path.name}" if top or prefix.startswith("/") else path.name
                names += [f"{name}/"] if path.is_dir() else [name] if path.suffix == ".toml" else []
    return names


def _can_be_quoted(name: str) -> bool:
    """Whether argcomplete can quote a name; it leaves ~ to the shell."""
    return name.isprintable() and not name.startswith("~")


def runs(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    """Names of the runs in the runs directory."""
    parent = Path(getattr(parsed_args, "runs_dir", None) or "runs")
    with suppress(OSError):
        names = sorted(path.name for path in parent.iterdir() if (path / MANIFEST).is_file())
        return [name for name in (LATEST, *names) if name.startswith(prefix) and _can_be_quoted(name)]
    return []


def federations(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    """Federations of the app's pyproject.toml."""
    with suppress(ConfigError):
        names = Project(Path(getattr(parsed_args, "app", None) or ".")).federations
        return [name for name in names if name.startswith(prefix) and _can_be_quoted(name)]
    return []


def files(prefix: str, **_: Any) -> list[str]:
    """Folders and .toml files."""
    return [name for name in _toml_files(prefix) if name.startswith(prefix)]


_COMPLETERS: dict[str, Completer] = {
    "run_config": overrides,
    "federation": federations,
    "run": runs,
    "runs": runs,
    "files": files,
}
