"""Findings: fine, a trap, a failure to come."""

import re
from dataclasses import replace

import pytest

from fedge.doctor import findings
from fedge.doctor.gpus import Gpu
from fedge.process.resources.machine import Machine

MACHINE = Machine(8, 8.0, 32_000.0, 30_000.0, "", 16_000.0, 65_536)


def states(found):
    return {finding.name: finding.state for finding in found}


def words_of(found, name):
    return next(finding.words for finding in found if finding.name == name)


def test_a_good_machine_has_no_notes():
    gpu = Gpu("H100", 80_000.0, 79_000.0)
    found = list(findings.machine_findings(MACHINE, [gpu], on_ray=True))
    assert set(states(found).values()) == {"ok"}
    assert "GPU 0" in states(found)
    assert "GPU" not in states(found)


@pytest.mark.parametrize(
    ("change", "name", "words"),
    [
        ({"usable_cores": 0.5, "cgroup": "0.5 cores"}, "cores", "0.5 of 8 usable, limited by a cgroup"),
        ({"available_mib": 100.0}, "memory", "100 of 32,000 MiB free"),
        ({"shm_mib": 64.0}, "/dev/shm", "64 MiB free; Ray spills .* --shm-size=1g"),
        ({"open_files": 256}, "open files", "256 per process; Ray needs more: ulimit -n"),
    ],
)
def test_what_is_scarce_is_a_note(change, name, words):
    found = list(findings.machine_findings(replace(MACHINE, **change), [], on_ray=True))
    assert states(found)[name] == "note"
    assert re.search(words, words_of(found, name))


def test_a_gpu_that_others_use_is_a_note():
    found = list(findings.machine_findings(MACHINE, [Gpu("T4", 15_000.0, 2_000.0)], on_ray=False))
    assert states(found)["GPU 0"] == "note"


@pytest.mark.parametrize(
    ("versions", "on_ray", "name", "state", "words"),
    [
        ({"ray": "2.55.1"}, True, "Ray", "error", "listens on all interfaces"),
        ({"ray": "2.55.1"}, False, "Ray", "note", "ray<2.54"),
        ({"flwr": "1.99.0"}, False, "Flower", "error", "is not tested"),
        ({"flwr": "1.30.0"}, False, "Flower", "error", "1.25, 1.41, 1.42 are"),
        ({"flwr": "1.25.0"}, False, "Flower", "ok", "exits with 0"),
    ],
)
def test_versions_have_their_traps(versions, on_ray, name, state, words, monkeypatch):
    real = findings.version
    monkeypatch.setattr(findings, "version", lambda package: versions.get(package) or real(package))
    monkeypatch.setattr(findings, "uses_superlink", lambda: False)
    found = list(findings.installation_findings(on_ray))
    assert states(found)[name] == state
    assert words in words_of(found, name)


def test_a_package_that_is_missing_is_an_error_and_no_end(monkeypatch):
    real = findings.version

    def version(package):
        if package == "polars":
            raise findings.PackageNotFoundError(package)
        return real(package)

    monkeypatch.setattr(findings, "version", version)
    found = list(findings.installation_findings(on_ray=False))
    assert states(found)["packages"] == "error"
    assert words_of(found, "packages").endswith("polars is missing; pip install polars")


def test_the_seed_that_a_run_will_have():
    assert words_of(findings.environment_findings(5, environment={"SEED": "7"}), "seed").startswith(
        "7, from env"
    )
    assert words_of(findings.environment_findings(5, environment={}), "seed").startswith("5, from config")
    assert states(findings.environment_findings(5, environment={"SEED": "x"})) == {"seed": "error"}


def test_a_superlink_in_the_background_is_looked_at(monkeypatch):
    monkeypatch.setattr(findings, "uses_superlink", lambda: True)
    free = {"FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": "39873", "FLWR_LOCAL_CONTROL_API_PORT": "39874"}
    found = list(findings.environment_findings(5, environment=free))
    assert "none in the background" in words_of(found, "SuperLink")


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    assert findings.runs_folder_findings(str(tmp_path / "runs")).state == "ok"
    (tmp_path / "file").touch()
    for place in ("file", "file/runs"):
        found = findings.runs_folder_findings(str(tmp_path / place))
        assert (found.state, "is a file" in found.words) == ("error", True)
    monkeypatch.setattr("os.access", lambda *_: False)
    assert findings.runs_folder_findings(str(tmp_path / "runs")).state == "error"
