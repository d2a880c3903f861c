"""Set up .venv: Fedge, editable, with some of its extras and the versions in constraints.txt.

    python tools/install.py ray

uv is used if it is installed, else pip. uv reads none of pip's settings, but a source of packages set for pip
is meant for every installer, so it is passed on to uv. Bytecode is not written: Python writes it at the first
import of a module, and only few of the installed modules are imported.

VENV in the environment selects another folder than .venv; TORCH=cpu adds PyTorch's index of wheels without
CUDA, which are gigabytes smaller.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

CPU_INDEX = "https://download.pytorch.org/whl/cpu"  # from pytorch.org/get-started
_ROOT = Path(__file__).resolve().parents[1]
_VENV = Path(os.environ.get("VENV", _ROOT / ".venv"))
_UV_VARIABLES = {  # pip's setting → uv's variable
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
}


def uv_variables(lines: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Variables passing pip's settings to uv; settings of uv itself take precedence.

    Args:
        lines: output of `pip config list`, which reads files and variables: ``global.find-links='/wheels'``.
        environment: current environment variables.
    """
    variables: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition("=")
        variable = _UV_VARIABLES.get(name.rpartition(".")[2])
        if variable and variable not in environment:
            text = value.strip().strip("'\"").replace("\\n", " ")
            variables[variable] = (
                ",".join(text.split()) if variable == "UV_FIND_LINKS" else " ".join(text.split())
            )
    if "UV_INDEX" in variables:  # pip takes the best version of all indexes, uv the one of the first index
        variables.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    return variables


def install(extras: Sequence[str]) -> None:
    """Create .venv if it is missing, and install into it."""
    uv = shutil.which("uv")
    python = _VENV / ("Scripts" if os.name == "nt" else "bin") / "python"
    packages = ["-c", "constraints.txt", "-e", f".[{','.join(extras)}]"]
    if os.environ.get("TORCH") == "cpu":
        packages += ["--extra-index-url", CPU_INDEX]
    if not python.exists():
        new = (  # by now, make has put bytecode into the folder
            [uv, "venv", "--quiet", "--seed", "--allow-existing", "--python", sys.executable]
            if uv
            else [sys.executable, "-m", "venv"]
        )
        _run([*new, str(_VENV)])
    if uv:
        settings = subprocess.run(
            [str(python), "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
        )
        variables = uv_variables(settings.stdout.splitlines(), os.environ)
        _run([uv, "pip", "install", "--quiet", "--python", str(python), *packages], variables)
    else:
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
        _run([*pip, *packages])


def _run(command: Sequence[str], variables: Mapping[str, str] | None = None) -> None:
    """Carry out a command in the checkout, or end with its exit code."""
    result = subprocess.run(command, cwd=_ROOT, env={**os.environ, **(variables or {})}, check=False)
    if result.returncode:
        sys.exit(result.returncode)


if __name__ == "__main__":
    install(sys.argv[1:])
