"""Files packaged with Fedge's code: options and federations of its pyproject.toml, and configurations.

The wheel has them in ``fedge/packaged``; in a checkout they are the files at its top.
"""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

from fedge.config.option import ConfigError, nearest

PREFIX = "fedge:"  # before the name of a configuration, where a file's could stand

_PACKAGE = Path(__file__).parents[1]
_SENTENCE = re.compile(r".*?(?<!\bal)[.?](?=\s|$)", re.DOTALL)  # "et al." ends none


def packaged_folder() -> Path:
    """The folder with Fedge's own pyproject.toml and ``configs``.

    Raises:
        ConfigError: the installation lacks them.
    """
    for folder in (_PACKAGE / "packaged", _PACKAGE.parent):
        if (folder / "configs").is_dir() and (folder / "pyproject.toml").is_file():
            return folder
    raise ConfigError(
        f"Fedge's installation must have its default configuration, but {_PACKAGE} has none; install it again"
    )


def packaged_names() -> tuple[str, ...]:
    """The names of all packaged configurations: "hierfl" and so on, then "baselines/ifca"."""
    top = packaged_folder() / "configs"
    found = [path.relative_to(top).with_suffix("").as_posix() for path in top.rglob("*.toml")]
    return tuple(sorted(found, key=lambda name: ("/" in name, name)))


def is_packaged(text: str) -> bool:
    """Whether a text names a packaged configuration, one that is there or not."""
    return text.startswith(PREFIX)


def packaged_file(text: str) -> Path:
    """The file of a packaged configuration.

    Args:
        text: its name after "fedge:", as "fedge:baselines/ifca"; ".toml" may follow.

    Raises:
        ConfigError: there is none of that name.
    """
    name = text.removeprefix(PREFIX).removesuffix(".toml")
    names = packaged_names()
    if name not in names:
        near = _nearest_of(name, names)
        raise ConfigError(
            f"{PREFIX}… must name a configuration that comes with Fedge, but is {text!r}"
            f"{near}; fedge configs lists them"
        )
    return packaged_folder() / "configs" / f"{name}.toml"


def _nearest_of(name: str, names: tuple[str, ...]) -> str:
    """Suggestion of the nearest configuration, with or without its folder."""
    whole = {known.split("/")[-1]: known for known in names}
    near = get_close_matches(name.split("/")[-1], whole, n=1, cutoff=0.5)
    return f"; did you mean {PREFIX}{whole[near[0]]}?" if near else nearest(name, names)


def described() -> Iterator[tuple[str, str]]:
    """Yield each packaged configuration as ``-c`` takes it, and the first sentence of its comment."""
    for name in packaged_names():
        lines = (packaged_folder() / "configs" / f"{name}.toml").read_text(encoding="utf-8").splitlines()
        end = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
        comment = " ".join(line.removeprefix("#").strip() for line in lines[:end])
        sentence = _SENTENCE.match(comment)
        yield PREFIX + name, sentence.group() if sentence else comment
