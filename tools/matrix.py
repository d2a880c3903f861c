"""Fedge's tests on the newest Flower allowed by pyproject.toml, in addition to the one in constraints.txt.

    python -m tools.matrix             `make matrix`: the newest for which the index has all packages
    python -m tools.matrix 1.41.0      another version

`make test` tests with the one in constraints.txt. The newest gets its own environment, build/flower-newest,
on top of the current one: only Flower, Ray and packages they need in other versions are installed there. If
the environment cannot be made, the tool reports this in one line, and does not fail.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedge.launch.projects.project import read_toml

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "build" / "flower-newest"
FIRST_WITH_SUPERLINK = "1.41"
# everything about Flower, and whole runs on both engines
TESTS = (
    "tests/fedge/test_flower.py",
    *(f"tests/fedge/{room}" for room in ("client", "engine", "exchange", "launch", "leaf", "rounds")),
    "tests/runs/engines/test_flower_versions.py",
)
# small federations of real processes, a minute each
DEPLOYED = ("tests/deployed/test_deployment.py", "tests/deployed/test_withdrawal.py")


class NotHere(RuntimeError):
    """Error: the environment cannot be made. One line."""


def requirements(project: dict[str, Any], version: str = "") -> tuple[str, str]:
    """Requirements for the index: the newest Flower and Ray allowed by a pyproject.toml.

    Args:
        project: its ``[project]`` table.
        version: version of Flower, instead of the newest.
    """
    flower = next(text for text in project["dependencies"] if text.startswith("flwr>="))
    upper_bound = flower.partition("<")[2]
    ray = next(text for text in project["optional-dependencies"]["ray"] if text.startswith("ray>="))
    return f"flwr=={version}" if version else f"flwr>={FIRST_WITH_SUPERLINK},<{upper_bound}", ray


def make(place: Path, packages: Sequence[str]) -> str:
    """Create an environment on top of this one, install `packages` into it; returns its version of Flower.

    Raises:
        NotHere: the index lacks a package, or cannot be reached.
    """
    shutil.rmtree(place, ignore_errors=True)
    python = place / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    script = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    site_packages = Path(_output_of([python, "-c", script]))
    parent_packages = sysconfig.get_paths()["purelib"]  # its own .pth files count, too
    (site_packages / "below.pth").write_text(
        f"import site; site.addsitedir({parent_packages!r})\n", encoding="utf-8"
    )
    pip = [
        str(python),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--upgrade",
        *packages,
    ]
    result = subprocess.run(pip, capture_output=True, text=True, check=False)
    if result.returncode:
        errors = [line for line in result.stderr.splitlines() if line.startswith("ERROR: ")]
        shutil.rmtree(place, ignore_errors=True)
        raise NotHere((errors or ["ERROR: pip failed"])[-1].removeprefix("ERROR: ")[:200])
    return _output_of([python, "-c", "from importlib.metadata import version; print(version('flwr'))"])


def write_commands(place: Path, scripts: Mapping[str, str]) -> None:
    """Write the project's commands into an environment; the project itself is in the one below.

    Args:
        place: the environment.
        scripts: command → "module:function".
    """
    for name, entry in scripts.items():
        module, _, function = entry.partition(":")
        path = place / "bin" / name
        path.write_text(
            f"#!{place / 'bin' / 'python'}\nimport sys\n\nfrom {module} import {function}\n\n"
            f"sys.exit({function}())\n",
            encoding="utf-8",
        )
        path.chmod(0o755)


def _output_of(command: Sequence[str | Path]) -> str:
    """Output of a command."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main(words: Sequence[str]) -> int:
    """Create the environment and run the tests in it; returns the exit code."""
    project = read_toml(ROOT / "pyproject.toml", "pyproject.toml")["project"]
    packages = requirements(project, words[0] if words else "")
    try:
        version = make(PLACE, packages)
    except NotHere as error:
        print(f"matrix: skipped, because {' '.join(packages)} cannot be had here: {error}")
        return 0
    write_commands(PLACE, project["scripts"])
    print(f"matrix: Flower {version}, in {PLACE.relative_to(ROOT)}", flush=True)
    pytest = [str(PLACE / "bin" / "python"), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m"]
    environment = {
        **os.environ,
        "PATH": f"{PLACE / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    for tests in (["not soak and not whole_runs", *TESTS], ["not soak", *DEPLOYED]):
        if code := subprocess.run([*pytest, *tests], cwd=ROOT, env=environment, check=False).returncode:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
