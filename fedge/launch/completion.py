"""Completion in a shell: options and their values, configurations, runs …

Shells ask at every key, so nothing heavy is loaded; argcomplete itself only when a shell asks. It quotes
words that shells would take for more than a name; names that cannot be quoted, as with a line end, are not
offered.
"""

import argparse
import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedge.config.flat import options
from fedge.config.option import ConfigError
from fedge.launch.packaged import PREFIX, packaged_names
from fedge.launch.project import Project
from fedge.records.folder import LATEST
from fedge.records.manifest import MANIFEST

SHELLS = ("bash", "zsh", "fish")
Completer = Callable[..., list[str]]


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer the shell and end the process where it is a shell that asks; else return at once."""
    if "_ARGCOMPLETE" not in os.environ:
        return
    import argcomplete

    for action, completer in _completers(parser):
        action.completer = completer  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser, always_complete_options=False)


def shell_code(shell: str) -> str:
    """Shell code that makes a shell ask for completions."""
    import argcomplete

    return str(argcomplete.shellcode(["fedge"], shell=shell))


def _completers(parser: argparse.ArgumentParser) -> Iterator[tuple[argparse.Action, Completer]]:
    """Yield each argument of each command with its completer."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _completers(command)
        elif action.dest in _BY_NAME:
            yield action, _BY_NAME[action.dest]


def overrides(prefix: str, **_: Any) -> list[str]:
    """Words that may follow -c: keys, after a key its values, packaged configurations, .toml files."""
    before, space, word = prefix.rpartition(" ")
    key, equals, _value = word.partition("=")
    if equals:
        found = [f"{key}={value}" for value in _values(key)]
    else:
        found = [f"{key}=" for key in options()]
        if not before:
            found += [PREFIX + name for name in packaged_names()] + _toml_files(word)
    return [before + space + text for text in found if text.startswith(word)]


def _values(key: str) -> list[str]:
    """Values of an option as they are written after -c; its default where there is no list of them."""
    default, rule = options().get(key, ("", {"choices": (), "words": ()}))
    if isinstance(default, bool):
        return ["true", "false"]
    return [json.dumps(value) for value in (*rule["choices"], *rule["words"])] or [json.dumps(default)]


def _toml_files(prefix: str) -> list[str]:
    """Folders and .toml files whose names begin so."""
    top, _, start = prefix.rpartition("/")
    found = []
    with suppress(OSError):
        for path in Path(f"{top}/" if top or prefix.startswith("/") else ".").iterdir():
            is_hidden = not start and path.name.startswith(".")
            if path.name.startswith(start) and _can_be_quoted(path.name) and not is_hidden:
                name = f"{top}/{path.name}" if top or prefix.startswith("/") else path.name
                found += [f"{name}/"] if path.is_dir() else [name] if path.suffix == ".toml" else []
    return found


def _can_be_quoted(name: str) -> bool:
    """Whether a name stands for itself once argcomplete has quoted it: ~ it leaves to the shell."""
    return name.isprintable() and not name.startswith("~")


def runs(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    """The names of the runs in the folder of all runs."""
    parent = Path(getattr(parsed_args, "runs_dir", None) or "runs")
    with suppress(OSError):
        names = sorted(path.name for path in parent.iterdir() if (path / MANIFEST).is_file())
        return [name for name in (LATEST, *names) if name.startswith(prefix) and _can_be_quoted(name)]
    return []


def federations(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    """The federations of the app's pyproject.toml."""
    with suppress(ConfigError):
        names = Project(Path(getattr(parsed_args, "app", None) or ".")).federations
        return [name for name in names if name.startswith(prefix) and _can_be_quoted(name)]
    return []


def files(prefix: str, **_: Any) -> list[str]:
    """.toml files and folders."""
    return [name for name in _toml_files(prefix) if name.startswith(prefix)]


_BY_NAME: dict[str, Completer] = {
    "run_config": overrides,
    "federation": federations,
    "run": runs,
    "runs": runs,
    "files": files,
}
