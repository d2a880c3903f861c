"""Folders of an account: by the variable, below its home, or refused where there is neither."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedge.config.registers.option import ConfigError
from fedge.config.registers.own_places import own_home, own_place


def test_the_variable_and_then_the_home(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert own_place("XDG_STATE_HOME", ".local", "state") == Path("/state")
    for none in ("", "relative/state"):  # which the specification has ignored
        monkeypatch.setenv("XDG_STATE_HOME", none)
        assert own_place("XDG_STATE_HOME", ".local", "state") == Path("/home/me/.local/state")


def without_home(monkeypatch):
    def nobody(*_):
        raise KeyError("getpwuid(): uid not found")

    for variable in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "FLWR_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)


def test_an_account_without_a_home(monkeypatch):
    without_home(monkeypatch)
    assert own_home() is None
    with pytest.raises(
        ConfigError, match=r"must have a home folder, but has none; set HOME or XDG_STATE_HOME"
    ):
        own_place("XDG_STATE_HOME", ".local", "state")


# of commands that look for something at home, or write there
COMMANDS = [
    ["doctor", "deployment"],
    ["run", "-c", "num-server-rounds=1 train.model=linear train.local-epochs=1 run-name=one"],
    ["resume", "one", "-c", "num-server-rounds=2"],
    ["status", "one"],
    ["export-run", "one", "copy"],
    ["export", "one", "--onnx", "models"],
    ["run", "project"],
]


NOBODY = """
import pwd, sys
def nobody(number):
    raise KeyError(f"getpwuid(): uid not found: {number}")
pwd.getpwuid = nobody
from fedge.cli import main
sys.exit(main())
"""


@pytest.mark.whole_runs
@pytest.mark.extended
def test_no_command_trips_over_an_account_without_a_home(tmp_path):
    """As in a container that is started with any user id: OpenShift does so."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "pyproject.toml").write_text("[tool.flwr.app]\n")
    kept = {name: os.environ[name] for name in os.environ if not name.startswith(("HOME", "XDG_", "FLWR_H"))}
    for words in COMMANDS:
        done = subprocess.run(
            [sys.executable, "-c", NOBODY, *words], cwd=tmp_path, env=kept, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip
        said = f"{words}: {done.stdout[-1000:]}{done.stderr[-3000:]}"
        assert "Traceback" not in said
        told = {"doctor": "set HOME or XDG_STATE_HOME", "project": "federations must be in"}
        refused = [word for word in words if word in told]
        assert done.returncode == (4 if refused else 0), said
        assert all(told[word] in " ".join(said.split()) for word in refused)
