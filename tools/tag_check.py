"""Check of a commit's tag against its version, before an upload to a package index: `make dist`.

The version is in pyproject.toml, because Flower refuses an app without one there; a release's tag repeats
it.
"""

import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]


def objection(tags: Sequence[str], released: str) -> str | None:
    """Fault of a commit's tags for a version, or None.

    Args:
        tags: tags of the commit, e.g. v0.2.0.
        released: version in pyproject.toml.
    """
    version_tags = [tag for tag in tags if tag[:1] == "v" and tag[1:2].isdigit()]
    if not version_tags or f"v{released}" in version_tags:
        return None
    return (
        f"the tag is {', '.join(version_tags)}, but pyproject.toml has version {released}; change one of them"
    )


def main() -> int:
    """Print whether tag and version agree; returns the exit code."""
    command = ["git", "tag", "--points-at", "HEAD"]
    try:
        tags = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False).stdout.split()
    except FileNotFoundError:  # no git: a source distribution, which was tagged before it was made
        tags = []
    fault = objection(tags, version("fedge"))
    print(fault or f"version {version('fedge')}{'' if tags else ', not tagged'}")
    return int(fault is not None)


if __name__ == "__main__":
    sys.exit(main())
