"""Requirements on the installed Flower, whichever it is."""

import subprocess
import sys
from importlib.metadata import version

import pytest
from flwr.app import Message, RecordDict

from fedge import flower
from fedge.cli import main
from fedge.config.registers.option import ConfigError


def test_the_version_is_flowers():
    assert ".".join(map(str, flower.flower_version())) == ".".join(version("flwr").split(".")[:2])
    assert flower.flower_version() in flower.TESTED


@pytest.mark.parametrize(("minor", "is_new"), [(25, False), (41, True), (42, True)])
def test_newer_versions_keep_a_superlink(minor, is_new, monkeypatch):
    monkeypatch.setattr(flower, "flower_version", lambda: (1, minor))
    flower.refuse_untested_flower()
    found = {flower.moves_federations(), flower.uses_superlink(), flower.has_one_port()}
    assert found == {is_new}


@pytest.mark.parametrize("minor", [24, 26, 40, 43])
def test_an_untested_version_is_refused_in_one_line(minor, monkeypatch):
    monkeypatch.setattr(flower, "flower_version", lambda: (1, minor))
    with pytest.raises(ConfigError, match=r"^flwr must be 1\.25, 1\.41, 1\.42, but is .*pip install"):
        flower.refuse_untested_flower()


def test_asking_loads_nothing_of_flower():
    code = "import sys, fedge.flower as f; f.uses_superlink(); print('flwr' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_messages_can_be_made_without_a_superlink():
    """On newer versions than 1.25, this raises RuntimeError in a process that is no task."""
    flower.identify_task()
    message = Message(RecordDict(), 7, "query")
    assert message.metadata.dst_node_id == 7


@pytest.mark.parametrize(
    "words",
    [
        ["run", "-c", "data.path=synthetic"],
        ["node", "0", "--of", "3", "--data", "windows.npz", "--superlink", "127.0.0.1:1"],
        ["leaf", "0", "--cloud", "127.0.0.1:1"],
        ["superlink"],
    ],
    ids=lambda words: words[0],
)
def test_every_command_that_serves_refuses_it(words, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(flower, "flower_version", lambda: (1, 30))
    assert main(words) != 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("fedge: flwr must be 1.25, 1.41, 1.42, but is ")
