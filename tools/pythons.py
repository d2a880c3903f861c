"""The tests without whole runs, on every Python on this machine: `make pythons`.

    python -m tools.pythons 3.10 3.13

Each has its own environment below build/, made as `make test` makes .venv. A missing Python is reported and
skipped.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

SUPPORTED = ("3.10", "3.11", "3.12", "3.13")
_ROOT = Path(__file__).resolve().parents[1]
_TESTS = [
    *("-q", "-p", "no:cacheprovider", "-n", "auto", "--dist", "worksteal"),
    *("-m", "not soak and not extended and not whole_runs", "--ignore=tests/runs"),
]


def interpreter(version: str) -> str | None:
    """Command of a working Python of a version ("3.12"), on the path or from pyenv."""
    installed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    commands = [str(path / "bin" / "python") for path in sorted(installed.glob(f"{version}.*"), reverse=True)]
    on_path = shutil.which(f"python{version}")
    for command in [*commands, *([on_path] if on_path else [])]:
        code = "import sys; print('%d.%d' % sys.version_info[:2])"
        answer = subprocess.run([command, "-c", code], capture_output=True, text=True, check=False)
        if answer.stdout.strip() == version:
            return command
    return None


def try_on(version: str, command: str) -> bool:
    """Set up an environment and run the tests in it; returns whether all passed."""
    environment = _ROOT / "build" / f"python-{version}"
    python = environment / "bin" / "python"
    install = [command, "tools/install.py", "dev"]
    result = subprocess.run(install, cwd=_ROOT, env={**os.environ, "VENV": str(environment)}, check=False)
    if result.returncode:
        return False
    path = f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
    command_line = [str(python), "-m", "pytest", *_TESTS]
    return not subprocess.run(
        command_line, cwd=_ROOT, env={**os.environ, "PATH": path}, check=False
    ).returncode


def main(versions: Sequence[str]) -> int:
    """Try all versions; returns the exit code."""
    results = {}
    for version in versions or SUPPORTED:
        command = interpreter(version)
        results[version] = (
            "not here" if command is None else "passed" if try_on(version, command) else "failed"
        )
    for version, result in results.items():
        print(f"Python {version}: {result}")
    return int("failed" in results.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
