"""`fedge run` for a run on a SuperLink, as read from its words; the run itself is in tests/deployed."""

import subprocess
import sys
from pathlib import Path

import pytest

from fedge.config.registers.option import ConfigError
from fedge.flower import moves_federations
from fedge.launch import deployed
from fedge.launch.deployed import (
    _COLOURS,
    _RUN_ENDED,
    _RUN_STARTED,
    _flower_environment,
    _no_end_message,
    _refuse_unreachable,
    _RunOutput,
    _superlink_arguments,
    is_local_superlink,
)
from fedge.launch.projects.project import Project, read_toml
from fedge.link.certificates import CertificateRequest, make_certificates
from fedge.link.reach import free_port
from fedge.run.ending import Outcome


@pytest.mark.parametrize(
    "outcome", [Outcome("completed", Path("/a b/runs/x")), Outcome("failed", None, "", 4)]
)
def test_the_servers_last_line_is_understood(outcome):
    text = f"\x1b[92mINFO \x1b[0m: x\n{outcome.last_line('host')}\n\x1b[92mINFO\n"
    (found,) = _RUN_ENDED.findall(_COLOURS.sub("", text))
    assert found[:2] == (outcome.status, str(outcome.exit_code))
    assert found[2] == f"host:{outcome.folder or '(no run folder)'}"


def test_the_number_of_the_run_is_understood():
    assert (
        _RUN_STARTED.search("Loading…\nSuccess\n🎊 Successfully started run 16502784478933894197\n")[1][:4]
        == "1650"
    )


def test_an_address_of_this_machine_is_known():
    assert all(map(is_local_superlink, ("127.0.0.1:9093", "localhost:9093", "[::1]:9093")))
    assert not any(
        map(is_local_superlink, ("10.0.0.7:9093", "superlink.example.org:9093", "127.0.0.1.example.org:1"))
    )


def test_a_tunnel_is_another_machine_s(tmp_path):
    """Two processes that listen: one is called like a SuperLink, as `fedge superlink` starts it."""
    code = "import socket, sys, time; s = socket.create_server(('127.0.0.1', 0)); "
    code += "print(s.getsockname()[1], flush=True); time.sleep(600)"
    for words, here in ((["ssh"], False), (["flower-superlink"], True)):
        program = tmp_path / words[0]
        program.write_text(code)
        with subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, text=True) as listening:
            port = int(listening.stdout.readline())
            assert is_local_superlink(f"127.0.0.1:{port}") is here
            listening.kill()


@pytest.fixture
def project(tmp_path):
    """A project whose federation is a SuperLink that is not there."""
    make_certificates(tmp_path / "certs", CertificateRequest())
    address = f"127.0.0.1:{free_port()}"
    (tmp_path / "pyproject.toml").write_text(
        f'[tool.flwr.app]\n[tool.flwr.federations.there]\naddress = "{address}"\n'
        'root-certificates = "certs/ca.crt"\n[tool.flwr.federations.open]\n'
        f'address = "{address}"\ninsecure = true\n'
    )
    return Project(tmp_path)


@pytest.mark.parametrize("federation", ["there", "open"])
def test_a_superlink_that_is_not_there_is_refused_in_one_line(project, federation):
    with pytest.raises(
        ConfigError, match=rf"^address of federation {federation} .* 127\.0\.0\.1:.* does not answer"
    ) as e:
        _refuse_unreachable(project, federation, project.address(federation))
    assert "\n" not in str(e.value)


def test_whom_a_superlink_is_certified_by_is_a_file_of_the_project(project, tmp_path):
    assert project.authority("there") == (True, tmp_path / "certs" / "ca.crt")
    assert project.authority("open") == (False, None)


@pytest.mark.parametrize(
    ("address", "resume", "telling"),
    [
        ("127.0.0.1:{}", "", "the SuperLink at 127.0.0.1:{} no longer answers; start fedge superlink there "
         "again; resume with: fedge resume /r/x --app . --federation there; its log: flwr log 7 . there"),
        ("127.0.0.1:{}", "/r/y", "fedge resume /r/y --app . --federation there; its log"),
        ("127.0.0.1:{}", "/my runs/y", "fedge resume '/my runs/y' --app . --federation there; its log"),
        ("127.0.0.2:{}", "", "fedge run . there -c 'resume=\"x\"' with the options of the run;"),
    ],
    ids=["here", "resumed", "blank", "elsewhere"],
)  # fmt: skip
def test_how_a_run_goes_on_whose_server_said_nothing(address, resume, telling):
    port = free_port()
    told = {"resume": resume, "runs-dir": "/r", "run-name": "x"}
    words = _no_end_message(
        _RunOutput("7", None),
        [".", "there"],
        address.format(port),
        told,
        is_local_superlink(address.format(port)),
    )
    if moves_federations():  # Flower's own configuration names the SuperLink, not the project
        telling = telling.replace("flwr log 7 . there", "flwr log 7 there")
    assert telling.format(port) in words
    assert "\n" not in words


def test_a_run_that_was_not_taken_is_said():
    words = _no_end_message(_RunOutput("", None), [".", "there"], "127.0.0.1:1", {}, True)
    assert words == "the SuperLink did not accept the run; see the lines above"


def test_a_newer_flower_is_told_the_superlink_in_a_home_of_the_runs_own(project, tmp_path, monkeypatch):
    """A newer Flower reads no pyproject.toml; what the user's configuration has is used."""
    monkeypatch.setattr(deployed, "moves_federations", lambda: False)
    assert (_superlink_arguments([".", "there"]), _flower_environment(tmp_path, project, "there", "h:1")) == (
        [".", "there"],
        {},
    )
    monkeypatch.setattr(deployed, "moves_federations", lambda: True)
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "user"))
    found = _flower_environment(tmp_path, project, "there", "h:1")
    assert found == {"FLWR_HOME": str(tmp_path / "home")}
    link = read_toml(tmp_path / "home" / "config.toml", "it")["superlink"]["there"]
    assert link == {"address": "h:1", "root-certificates": str(tmp_path / "certs" / "ca.crt")}
    assert _superlink_arguments([".", "there"]) == ["there"]
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "config.toml").write_text('[superlink.there]\naddress = "h:1"\n')
    assert _flower_environment(tmp_path, project, "there", "h:1") == {}
