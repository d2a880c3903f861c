"""Known holes in what Fedge is installed with, and the checksums to install it by.

    python -m tools.audit             `make audit`: asks OSV's database about what constraints.txt names
    python -m tools.audit --hashes    `make hashes`: writes constraints-hashes.txt, for Python 3.11.5 and on

Both need the network, and an environment of their own (`.audit`), so that nothing of Fedge's changes. An
audit that reached nobody has audited nothing: that is one line and no success.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.install import uv_variables

ROOT = Path(__file__).parents[1]
CONSTRAINTS, HASHES = ROOT / "constraints.txt", ROOT / "constraints-hashes.txt"
PLACE = ROOT / ".audit"
PROGRAMS = ("pip-audit==2.10.1", "uv>=0.5")
ACCEPTED = {  # hole → why it is none of ours
    "CVE-2025-62593": "Ray's dashboard, which no Ray of a run serves (SECURITY.md)",
    "CVE-2026-27482": "Ray's dashboard, which no Ray of a run serves (SECURITY.md)",
}
HEAD = """\
# Made by `make hashes` from constraints.txt: what the index has for Python 3.11.5 and newer, on any system.
#     pip install --require-hashes --no-deps -r constraints-hashes.txt
# torch: the index's own build; one of PyTorch's CPU-only builds is another file, and not of this list.
"""


class AuditError(RuntimeError):
    """What cannot be done. One line."""


def pinned(python: str = "python-version < '3.11'") -> list[str]:
    """Return ``name==version`` of constraints.txt, spelt as on an index, but what `python` alone needs."""
    lines = [line.strip().replace("_", "-") for line in CONSTRAINTS.read_text().splitlines()]
    return [line.split(";")[0].strip() for line in lines if line and line[0] != "#" and python not in line]


def program(name: str) -> str:
    """Return the path of a program of the environment, which is made if it is not there."""
    path = PLACE / "bin" / name
    if not path.exists():
        python = PLACE / "bin" / "python"
        try:
            subprocess.run([sys.executable, "-m", "venv", PLACE], check=True, capture_output=True)
            subprocess.run([python, "-m", "pip", "install", "-q", *PROGRAMS], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            raise AuditError("audit needs the network to install pip-audit; nothing was audited") from None
    return str(path)


def findings(report: Any) -> tuple[int, list[str], list[str]]:
    """Return (packages that were asked about, holes that are not accepted, those that are), one line each.

    Raises:
        AuditError: none of the packages is known to the database.
    """
    asked = [entry for entry in report["dependencies"] if "skip_reason" not in entry]
    if not asked:
        raise AuditError("audit reached no database that knows these packages; nothing was audited")
    new: list[str] = []
    accepted: list[str] = []
    for entry in asked:
        for hole in entry["vulns"]:
            names = {hole["id"], *hole.get("aliases", ())}
            why = next((ACCEPTED[name] for name in sorted(names & ACCEPTED.keys())), None)
            mended = ", ".join(hole.get("fix_versions", ())) or "no version"
            line = f"{entry['name']} {entry['version']}: {', '.join(sorted(names))}, mended in {mended}"
            (new if why is None else accepted).append(line if why is None else f"{line}; accepted: {why}")
    return len(asked), new, accepted


def audit() -> str:
    """Return what the audit has found where nothing of it is new.

    Raises:
        AuditError: it has found holes, or the database cannot be reached.
    """
    requirements = PLACE / "requirements.txt"
    words = [
        program("pip-audit"),
        "-r",
        str(requirements),
        "--no-deps",
        "--disable-pip",
        "-s",
        "osv",
        "-f",
        "json",
    ]
    requirements.write_text("\n".join(pinned()) + "\n")
    done = subprocess.run(
        [*words, "--progress-spinner", "off"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    try:
        count, new, accepted = findings(json.loads(done.stdout))
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        raise AuditError(f"audit could not reach its database; nothing was audited ({last[:150]})") from None
    if new:
        raise AuditError("\n".join([*new, f"{len(new)} known holes in {count} packages"]))
    return "\n".join([*accepted, f"{count} packages, no known hole that is not accepted"])


def write_hashes() -> str:
    """Write constraints-hashes.txt; returns what was written."""
    settings = subprocess.run([program("pip"), "config", "list"], capture_output=True, text=True, check=False)
    told = uv_variables(settings.stdout.splitlines(), os.environ)
    told = {
        name: told[name] for name in ("UV_DEFAULT_INDEX", "SSL_CERT_FILE") if name in told
    }  # no local files
    words = ["pip", "compile", "--no-deps", "--universal", "--generate-hashes", "--python-version", "3.11.5"]
    done = subprocess.run(
        [program("uv"), *words, "--no-header", "--no-annotate", "-q", str(CONSTRAINTS)],
        env={**os.environ, **told}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise AuditError(f"hashes could not be had: {done.stderr.strip()[-200:]}")
    HASHES.write_text(HEAD + done.stdout)
    return f"{HASHES.name}: {done.stdout.count('--hash=')} files of {len(pinned())} packages"


def main(words: Sequence[str]) -> int:
    """Carry out what the words say; returns the exit code."""
    try:
        print(write_hashes() if "--hashes" in words else audit())
    except AuditError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
