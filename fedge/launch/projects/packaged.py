"""Files packaged with Fedge: options and federations of its pyproject.toml, and configurations.

The wheel has them in ``fedge/packaged``; in a checkout they are at the top of the repository.
"""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

from fedge.config.registers.option import ConfigError, nearest

PREFIX = "fedge:"  # prefix of a configuration's name, to tell it from a file

_PACKAGE = Path(__file__).parents[2]
_SENTENCE = re.compile(r".*?(?<!\bal)[.?](?=\s|$)", re.DOTALL)  # "et al." does not end a sentence


def packaged_folder() -> Path:
    """Folder of Fedge's pyproject.toml and ``configs``.

    Raises:
        ConfigError: the installation lacks them.
    """
    for folder in (_PACKAGE / "packaged", _PACKAGE.parent):
        if (folder / "configs").is_dir() and (folder / "pyproject.toml").is_file():
            return folder
    raise ConfigError(
        f"Fedge's installation must have its default configuration, but {_PACKAGE} has none; reinstall Fedge"
    )


def packaged_names() -> tuple[str, ...]:
    """Names of all packaged configurations: "hierfl" and others, then "baselines/ifca" and others."""
    top = packaged_folder() / "configs"
    names = [path.relative_to(top).with_suffix("").as_posix() for path in top.rglob("*.toml")]
    return tuple(sorted(names, key=lambda name: ("/" in name, name)))


def is_packaged(text: str) -> bool:
    """Whether a text has the form of a packaged configuration's name; it need not exist."""
    return text.startswith(PREFIX)


def packaged_like(text: str) -> str:
    """Name of the configuration meant by a word or path, e.g. "configs/hierfl.toml"; or empty."""
    name = text.removeprefix("./").removeprefix("configs/").removesuffix(".toml")
    return PREFIX + name if name in packaged_names() else ""


def packaged_file(text: str) -> Path:
    """File of a packaged configuration.

    Args:
        text: its name after "fedge:", e.g. "fedge:baselines/ifca"; ".toml" may follow.

    Raises:
        ConfigError: there is no configuration of this name.
    """
    name = text.removeprefix(PREFIX).removesuffix(".toml")
    names = packaged_names()
    if name not in names:
        hint = _suggestion(name, names) or "; fedge configs lists them"
        raise ConfigError(f"{PREFIX}… must name a configuration of Fedge, but is {text!r}{hint}")
    return packaged_folder() / "configs" / f"{name}.toml"


def _suggestion(name: str, names: tuple[str, ...]) -> str:
    """Suggestion of the nearest configuration, with or without its folder."""
    full_names = {full_name.split("/")[-1]: full_name for full_name in names}
    matches = get_close_matches(name.split("/")[-1], full_names, n=1, cutoff=0.5)
    return f"; did you mean {PREFIX}{full_names[matches[0]]}?" if matches else nearest(name, names)


def packaged_configurations() -> Iterator[tuple[str, str]]:
    """Yield the name of each packaged configuration, as for ``-c``, and the first sentence of its comment."""
    for name in packaged_names():
        lines = (packaged_folder() / "configs" / f"{name}.toml").read_text(encoding="utf-8").splitlines()
        end = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
        comment = " ".join(line.removeprefix("#").strip() for line in lines[:end])
        sentence = _SENTENCE.match(comment)
        yield PREFIX + name, sentence.group() if sentence else comment
