"""What an audit is taken for, and that checksums are those of the versions that are installed."""

import re
import subprocess
import sys

import pytest

from tools import audit

HOLE = {"id": "GHSA-1", "aliases": ["CVE-2030-1"], "fix_versions": ["2.0"]}
KNOWN = {"id": "GHSA-2", "aliases": ["CVE-2025-62593"], "fix_versions": ["2.52.0"]}


def report(*vulns, **more):
    return {"dependencies": [{"name": "ray", "version": "2.51.1", "vulns": list(vulns), **more}]}


def test_holes_are_told_from_those_that_are_accepted_with_their_reason():
    assert audit.findings(report()) == (1, [], [])
    count, new, accepted = audit.findings(report(HOLE, KNOWN))
    assert (count, new) == (1, ["ray 2.51.1: CVE-2030-1, GHSA-1, mended in 2.0"])
    assert accepted == [
        "ray 2.51.1: CVE-2025-62593, GHSA-2, mended in 2.52.0; accepted: Ray's dashboard, which no Ray of a "
        "run serves (SECURITY.md)"
    ]


def test_who_knows_no_package_has_audited_nothing():
    with pytest.raises(audit.AuditError, match=r"nothing was audited$"):
        audit.findings(report(skip_reason="not found"))


@pytest.mark.slow
def test_without_a_network_it_says_so_in_one_line(tmp_path, monkeypatch):
    """A real pip that finds no index."""
    monkeypatch.setattr(audit, "PLACE", tmp_path / "env")
    monkeypatch.setattr(audit, "PROGRAMS", ("no-such-package-fedge",))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(audit.AuditError, match="needs the network"):
        audit.audit()


def test_every_version_has_checksums():
    """`make hashes` after a change of constraints.txt."""
    text = audit.HASHES.read_text()
    assert text.startswith(audit.HEAD)
    entries = re.findall(
        r"^([^\s#][^\s;]*)[^\\]*\\\n((?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", text, re.M
    )
    assert sorted(name for name, _ in entries) == sorted(name.lower() for name in audit.pinned())


@pytest.mark.slow
def test_pip_reads_the_checksums():
    """What is installed already is not downloaded; a file that pip cannot read is an error."""
    words = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--no-index",
        "--no-deps",
        "--require-hashes",
    ]
    done = subprocess.run([*words, "-r", str(audit.HASHES)], capture_output=True, text=True, check=False)
    assert "Invalid requirement" not in done.stderr
    assert "Hashes are required" not in done.stderr
