"""Reading of audits; and checksums are those of the versions that are installed."""

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import flwr
import pytest
import real_holes

from tools import audit

HOLE = {"id": "GHSA-1", "aliases": ["CVE-2030-1"], "fix_versions": ["2.0"]}
KNOWN = {"id": "GHSA-2", "aliases": ["CVE-2025-62593"], "fix_versions": ["2.52.0"]}


def report(*vulns, **more):
    return {"dependencies": [{"name": "ray", "version": "2.51.1", "vulns": list(vulns), **more}]}


def test_holes_are_told_from_those_that_are_accepted_with_their_reason():
    assert audit.findings(report()) == (1, [], [])
    count, new, accepted = audit.findings(report(HOLE, KNOWN))
    assert (count, new) == (1, ["ray 2.51.1: CVE-2030-1, GHSA-1, fixed in 2.0"])
    assert accepted == [
        "ray 2.51.1: CVE-2025-62593, GHSA-2, fixed in 2.52.0; accepted: Ray's dashboard, which no Ray of a "
        "run serves (SECURITY.md)"
    ]


def test_who_knows_no_package_has_audited_nothing():
    with pytest.raises(audit.AuditError, match=r"nothing was audited$"):
        audit.findings(report(skip_reason="not found"))


def advisory(package="Ray", ecosystem="PyPI", aliases=(), **more):
    """A hole as OSV writes it."""
    part = {"package": {"name": package, "ecosystem": ecosystem}, **more}
    return {"id": "GHSA-9", "modified": "2030-05-06T07:08:09Z", "aliases": list(aliases), "affected": [part]}


def between(*events):
    return {"ranges": [{"type": "ECOSYSTEM", "events": list(events)}]}


@pytest.fixture
def osv(tmp_path, monkeypatch):
    """Audit ray 2.51.1, alone, by a database of these holes."""
    monkeypatch.setattr(audit, "pinned", lambda: ["ray==2.51.1"])

    def by(*holes):
        path = tmp_path / "all.zip"
        with zipfile.ZipFile(path, "w") as files:
            files.writestr("README", "")
            for number, hole in enumerate(holes):
                files.writestr(f"{number}.json", json.dumps(hole))
        return audit.main([str(path)])

    return by


@pytest.mark.parametrize(
    "more",
    [
        {"versions": ["2.50.0", "2.51.1"]},
        {"versions": ["odd", "2.51.1.0"]},
        between({"introduced": "0"}, {"fixed": "2.52.0"}),
        between({"introduced": "2.51.1"}),
        between({"fixed": "2.52.0"}, {"introduced": "2.9.0"}, {"fixed": "1.5"}, {"introduced": "0"}),
        between({"introduced": "0"}, {"last_affected": "2.51.1"}),
        between({"introduced": "0"}, {"fixed": "some day"}),
    ],
    ids=["listed", "listed otherwise", "before fixed", "from on", "second range", "last", "odd"],
)
def test_a_copy_of_the_database_knows_what_is_affected(osv, capsys, more):
    assert osv(advisory(**more)) == 1
    assert "ray 2.51.1: GHSA-9" in capsys.readouterr().err
    assert osv(advisory(**more, aliases=["CVE-2025-62593"])) == 0
    said = capsys.readouterr().out
    assert "accepted: Ray's dashboard" in said
    assert said.endswith("by OSV as of 2030-05-06, 1 holes\n")


@pytest.mark.parametrize(
    "hole",
    [
        advisory(versions=["2.51.0"]),
        advisory(**between({"introduced": "0"}, {"fixed": "2.51.1"})),
        advisory(**between({"introduced": "2.52"})),
        advisory(**between({"introduced": "0"}, {"last_affected": "2.51.0"})),
        advisory("ray-cli", versions=["2.51.1"]),
    ],
)
def test_what_is_not_affected_is_not_said_to_be(osv, capsys, hole):
    assert osv(hole) == 0
    assert capsys.readouterr().out == (
        "1 packages, no known hole that is not accepted, by OSV as of 2030-05-06, 1 holes\n"
    )


def test_what_is_no_such_database_has_audited_nothing(osv, capsys, tmp_path):
    withdrawn = {**advisory(versions=["2.51.1"]), "withdrawn": "2030-01-01T00:00:00Z"}
    found = [osv(), osv(withdrawn), osv(advisory(ecosystem="npm", versions=["2.51.1"])), osv([1])]
    (tmp_path / "text.zip").write_text("text")
    found += [audit.main([str(tmp_path / name)]) for name in ("text.zip", "gone.zip")]
    assert found == [1] * 6
    assert [line.endswith("; nothing was audited") for line in capsys.readouterr().err.splitlines()] == [
        True
    ] * 6


def test_what_is_really_known_of_what_is_pinned_is_accepted_with_its_reason(tmp_path, capsys):
    """Real holes: those of the pinned versions are found, each has its reason; those of others are not."""
    path = tmp_path / "all.zip"
    with zipfile.ZipFile(path, "w") as files:
        for hole in (*real_holes.OF_THE_PINNED, *real_holes.OF_OTHER_VERSIONS):
            files.writestr(f"{hole[0]}.json", json.dumps(real_holes.as_osv(*hole)))
    assert audit.main([str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    count = len(audit.pinned())
    told = "no known hole that is not accepted, by OSV as of 2026-10-01, 20 holes"
    assert lines[-1] == f"{count} packages, {told}"
    found = {re.search(r"GHSA(-[a-z0-9]{4}){3}", line)[0] for line in lines[:-1]}
    assert found == {identifier for identifier, *_ in real_holes.OF_THE_PINNED}


def test_what_holes_are_accepted_for_is_not_there():
    """Neither Fedge nor Flower's code that it loads names Ray Data, PKCS#7 or the verifier of chains."""
    roots = [audit.ROOT / "fedge", audit.ROOT / "hhar", Path(flwr.__file__).parent]
    texts = [path.read_text() for root in roots for path in root.rglob("*.py")]
    assert len(texts) > 500
    named = re.compile(r"\bray\.data\b|\bread_webdataset\b|x509\.verification|pkcs7|SECT\d")
    assert [text for text in texts if named.search(text)] == []


@pytest.mark.extended
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
@pytest.mark.extended
def test_pip_reads_the_checksums():
    """Installed packages are not downloaded; a file that pip cannot read is an error."""
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
