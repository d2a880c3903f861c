"""Federations moved by Flower: restored in pyproject.toml, and read from their new place.

On Flower 1.41 and 1.42, `flwr run` copies ``[tool.flwr.federations]`` to ``~/.flwr/config.toml`` and comments
the tables out in the user's pyproject.toml. It does not recognise a header with another spelling, e.g.
``[tool."flwr".federations]``, which is the same table in TOML; Fedge's own projects use this one.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedge.config.registers.own_places import own_home
from fedge.process.durable import write_output

_HEADER = re.compile(r"\s*\[(.*)\]")
_MOVED = "tool.flwr.federations"
_TITLE = "# CONFIGURATION MIGRATION NOTICE:"
_EDGE = "#######################################################################"


def restore_commented_lines(path: Path) -> bool:
    """Restore lines commented out by `flwr run` in a pyproject.toml; True if there were any.

    The file is written only if commenting the result out again gives the present text, so nothing else can
    change.
    """
    with path.open(encoding="utf-8", newline="") as file:
        text = file.read()
    if _TITLE not in text:
        return False
    lines = text.splitlines(keepends=True)
    first = next(i for i, line in enumerate(lines) if line.startswith(_TITLE)) - 1
    last = next((i for i in range(first + 2, len(lines)) if lines[i].startswith(_EDGE)), None)
    if first < 0 or not lines[first].startswith(_EDGE) or last is None:
        return False
    # the notice has an empty line before and after it
    begin, end = first - (lines[first - 1].strip() == ""), last + 1 + (lines[last + 1 :][:1] == ["\n"])
    notice = lines[begin:end]
    restored = lines[:begin] + _uncomment(lines[end:])
    if _comment_out(restored, notice) != lines:
        return False
    write_output(path.resolve(), "".join(restored).encode())  # the user's file may be a link
    return True


@contextmanager
def keeping_federations(path: Path) -> Iterator[None]:
    """Context to restore a pyproject.toml if `flwr run` comments federations out meanwhile."""
    original = path.read_bytes()
    try:
        yield
    finally:
        if path.read_bytes() != original:
            restore_commented_lines(path)


def _uncomment(lines: list[str]) -> list[str]:
    """Lines with commented federations restored as tables."""
    restored, in_federation = [], True  # the notice precedes the first federation
    for line in lines:
        uncommented = line.removeprefix("# ")
        if (header := _HEADER.match(uncommented)) and (uncommented == line or header[1].startswith(_MOVED)):
            in_federation = header[1].startswith(_MOVED)
        restored.append(uncommented if in_federation else line)
    return restored


def _comment_out(lines: list[str], notice: list[str]) -> list[str]:
    """Lines as `flwr run` would leave them."""
    commented: list[str] = []
    in_federation, has_notice = False, False
    for line in lines:
        if header := _HEADER.match(line):
            in_federation = header[1].startswith(_MOVED)
        if in_federation and not has_notice:
            commented += notice
            has_notice = True
        commented.append(f"# {line}" if in_federation and line.strip() else line)
    return commented


def flower_config(environment: Mapping[str, str] | None = None) -> Path:
    """Path of this user's Flower configuration; for an account without a home, a path that cannot exist."""
    variables = os.environ if environment is None else environment
    home = variables.get("FLWR_HOME") or (own_home() or Path(os.devnull)) / ".flwr"
    return Path(home) / "config.toml"


def connections(table: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """SuperLinks of Flower's configuration by name, and the name of the default one."""
    links = table.get("superlink")
    if not isinstance(links, Mapping):
        return {}, None
    default = links.get("default")
    superlinks = {name: dict(link) for name, link in links.items() if isinstance(link, Mapping)}
    return superlinks, default if isinstance(default, str) else None
