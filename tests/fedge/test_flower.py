"""Requirements on the installed Flower, whichever it is."""

import subprocess
import sys
from importlib.metadata import version

from flwr.app import Message, RecordDict

from fedge import flower


def test_the_version_is_flowers():
    assert ".".join(map(str, flower.flower_version())) == ".".join(version("flwr").split(".")[:2])
    assert flower.flower_version() >= (1, 24)


def test_a_superlink_comes_after_the_move_of_federations(monkeypatch):
    """1.26 moves federations and still runs without a SuperLink."""
    kinds = {}
    for minor in (24, 25, 26, 27, 42):
        monkeypatch.setattr(flower, "flower_version", lambda minor=minor: (1, minor))
        kinds[minor] = (flower.moves_federations(), flower.uses_superlink())
    assert kinds == {
        24: (False, False), 25: (False, False), 26: (True, False), 27: (True, True), 42: (True, True)
    }  # fmt: skip


def test_asking_loads_nothing_of_flower():
    code = "import sys, fedge.flower as f; f.uses_superlink(); print('flwr' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_messages_can_be_made_without_a_superlink():
    """From 1.38 on this raises RuntimeError in a process that is no task."""
    flower.identify_task()
    message = Message(RecordDict(), 7, "query")
    assert message.metadata.dst_node_id == 7
