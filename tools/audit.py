"""Known vulnerabilities of Fedge's dependencies, and the checksums with which to install them.

    python -m tools.audit             `make audit`: queries OSV's database for the packages in constraints.txt
    python -m tools.audit all.zip     `make audit OSV=all.zip`: queries a copy of it, without a network
    python -m tools.audit --hashes    `make hashes`: writes constraints-hashes.txt, for Python 3.11.5 and on

The first and the last need the network, and an environment of their own (`.audit`), so Fedge's does not
change. For machines without a network, OSV publishes its vulnerabilities of Python packages as one archive
with a JSON file each (https://google.github.io/osv.dev/data/). If the database cannot be reached, nothing has
been audited: the tool prints one line and fails.
"""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from tools.install import uv_variables

ROOT = Path(__file__).parents[1]
CONSTRAINTS, HASHES = ROOT / "constraints.txt", ROOT / "constraints-hashes.txt"
PLACE = ROOT / ".audit"
PROGRAMS = ("pip-audit==2.10.1", "uv>=0.5")
_DASHBOARD = "Ray's dashboard, which no Ray of a run serves (SECURITY.md)"
_RAY_DATA = "Ray Data, which nothing here loads"
_VERIFIER = "cryptography's verifier of chains, which nothing here calls: TLS is gRPC's own"
ACCEPTED = {  # → why it does not affect Fedge; Flower 1.25 pins Ray 2.51.1 and cryptography below 45
    "CVE-2025-62593": _DASHBOARD,
    "CVE-2026-27482": _DASHBOARD,
    "CVE-2025-34351": "Ray has no password: its sockets are on loopback alone (SECURITY.md)",
    "CVE-2026-41486": _RAY_DATA,
    "CVE-2026-57516": _RAY_DATA,
    "CVE-2026-69247": "decrypting PKCS#7, which nothing here does",
    "CVE-2026-69249": _VERIFIER,
    "CVE-2026-34073": _VERIFIER,
    "CVE-2026-26007": "keys on SECT curves, which nothing here takes: Fedge and Flower use P-256 and P-384",
    "GHSA-537c-gmf6-5ccf": "OpenSSL inside cryptography, which reads a deployment's own keys (SECURITY.md)",
}
HEAD = """\
# Made by `make hashes` from constraints.txt: what the index has for Python 3.11.5 and newer, on any system.
#     pip install --require-hashes --no-deps -r constraints-hashes.txt
# torch: the index's own build; one of PyTorch's CPU-only builds is another file, and not of this list.
"""


class AuditError(RuntimeError):
    """A failed audit. One line."""


def pinned(python: str = "python-version < '3.11'") -> list[str]:
    """``name==version`` from constraints.txt, spelt as on an index, except those needed only by `python`."""
    lines = [line.strip().replace("_", "-") for line in CONSTRAINTS.read_text().splitlines()]
    return [line.split(";")[0].strip() for line in lines if line and line[0] != "#" and python not in line]


def program(name: str) -> str:
    """Path of a program in the environment, which is created if it is missing."""
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
    """(number of packages queried, vulnerabilities not accepted, vulnerabilities accepted), one line each.

    Raises:
        AuditError: the database knows none of the packages.
    """
    entries = [entry for entry in report["dependencies"] if "skip_reason" not in entry]
    if not entries:
        raise AuditError("audit reached no database that knows these packages; nothing was audited")
    new: list[str] = []
    accepted: list[str] = []
    for entry in entries:
        for vulnerability in entry["vulns"]:
            names = {vulnerability["id"], *vulnerability.get("aliases", ())}
            reason = next((ACCEPTED[name] for name in sorted(names & ACCEPTED.keys())), None)
            fixed = ", ".join(vulnerability.get("fix_versions", ())) or "no version"
            line = f"{entry['name']} {entry['version']}: {', '.join(sorted(names))}, fixed in {fixed}"
            (new if reason is None else accepted).append(
                line if reason is None else f"{line}; accepted: {reason}"
            )
    return len(entries), new, accepted


def audit() -> str:
    """Findings of the audit, if none of them is new.

    Raises:
        AuditError: it found vulnerabilities, or the database cannot be reached.
    """
    requirements = PLACE / "requirements.txt"
    command = [
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
    result = subprocess.run(
        [*command, "--progress-spinner", "off"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    try:
        count, new, accepted = findings(json.loads(result.stdout))
    except ValueError:
        last = (result.stderr.strip().splitlines() or ["no word"])[-1]
        raise AuditError(f"audit could not reach its database; nothing was audited ({last[:150]})") from None
    if new:
        raise AuditError("\n".join([*new, f"{len(new)} known holes in {count} packages"]))
    return "\n".join([*accepted, f"{count} packages, no known hole that is not accepted"])


def audit_by(archive: Path) -> str:
    """Findings of an audit by a copy of OSV's database, if none of them is new.

    Raises:
        AuditError: there are vulnerabilities, or the archive is not OSV's database.
    """
    try:
        with zipfile.ZipFile(archive) as files:
            entries = [json.loads(files.read(name)) for name in files.namelist() if name.endswith(".json")]
            vulnerabilities = [entry for entry in entries if any(True for _ in _affected_packages(entry))]
            newest = max(str(entry["modified"]) for entry in vulnerabilities)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile):
        raise AuditError(f"{archive} is no copy of OSV's database of PyPI; nothing was audited") from None
    report = {"dependencies": [_audit_entry(line, vulnerabilities) for line in pinned()]}
    count, new, accepted = findings(report)
    source = f"by OSV as of {newest[:10]}, {len(vulnerabilities)} holes"
    if new:
        raise AuditError("\n".join([*new, f"{len(new)} known holes in {count} packages, {source}"]))
    return "\n".join([*accepted, f"{count} packages, no known hole that is not accepted, {source}"])


def _affected_packages(vulnerability: Any) -> Iterator[Any]:
    """PyPI packages affected by a vulnerability, unless it has been withdrawn."""
    if not vulnerability.get("withdrawn"):
        yield from (
            part for part in vulnerability.get("affected", []) if part["package"]["ecosystem"] == "PyPI"
        )


def _audit_entry(line: str, vulnerabilities: Sequence[Any]) -> dict[str, Any]:
    """Entry of a line ``name==version``, in pip-audit's form."""
    name, version = line.split("==")
    matches = []
    for vulnerability in vulnerabilities:
        for part in _affected_packages(vulnerability):
            is_same = canonicalize_name(part["package"]["name"]) == canonicalize_name(name)
            if is_same and _is_affected(part, version):
                fixed = [event["fixed"] for events in _ranges(part) for event in events if "fixed" in event]
                aliases = vulnerability.get("aliases", [])
                matches.append({"id": vulnerability["id"], "aliases": aliases, "fix_versions": fixed})
    return {"name": name, "version": version, "vulns": matches}


def _ranges(part: Any) -> list[Any]:
    """Events of each range of versions."""
    return [entry["events"] for entry in part.get("ranges", []) if entry["type"] == "ECOSYSTEM"]


def _is_affected(part: Any, version: str) -> bool:
    """Whether a version is listed as affected, or is in an affected range; local parts are ignored."""
    installed = Version(version.split("+")[0])
    return any(_equals(installed, listed) for listed in part.get("versions", [])) or any(
        _is_in_range(installed, events) for events in _ranges(part)
    )


def _equals(installed: Version, listed: str) -> bool:
    try:
        return Version(listed) == installed
    except InvalidVersion:
        return False


def _is_in_range(installed: Version, events: Sequence[Any]) -> bool:
    """Whether a version is in a range: from "introduced" on, before "fixed", up to "last_affected".

    A range with unreadable ends may include any version.
    """
    is_inside = False
    try:
        ends = sorted((Version(end), kind) for event in events for kind, end in event.items())
    except InvalidVersion:
        return True
    for end, kind in ends:
        if kind == "introduced" and installed >= end:
            is_inside = True
        elif (kind == "fixed" and installed >= end) or (kind == "last_affected" and installed > end):
            is_inside = False
    return is_inside


def write_hashes() -> str:
    """Write constraints-hashes.txt; returns a line about it."""
    settings = subprocess.run([program("pip"), "config", "list"], capture_output=True, text=True, check=False)
    variables = uv_variables(settings.stdout.splitlines(), os.environ)
    variables = {
        name: variables[name] for name in ("UV_DEFAULT_INDEX", "SSL_CERT_FILE") if name in variables
    }  # no local files
    options = ["--no-deps", "--universal", "--generate-hashes", "--python-version", "3.11.5"]
    result = subprocess.run(
        [program("uv"), "pip", "compile", *options, "--no-header", "--no-annotate", "-q", str(CONSTRAINTS)],
        env={**os.environ, **variables}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if result.returncode:
        raise AuditError(f"hashes could not be had: {result.stderr.strip()[-200:]}")
    HASHES.write_text(HEAD + result.stdout)
    return f"{HASHES.name}: {result.stdout.count('--hash=')} files of {len(pinned())} packages"


def main(words: Sequence[str]) -> int:
    """Carry out a command line; returns the exit code."""
    try:
        if "--hashes" in words:
            print(write_hashes())
        else:
            print(audit_by(Path(words[0])) if words else audit())
    except AuditError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
