"""Nodes of a machine take GPUs in turn, share evenly, and let go at their end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedge.launch.nodes import node_gpu
from fedge.launch.nodes.node_gpu import VISIBLE, gpu_names, lock_gpu, take_gpu

TWO = "GPU 0: H100 (UUID: GPU-a)\nGPU 1: H100 (UUID: GPU-b)\n"
CUT = (
    "GPU 0: A100 (UUID: GPU-a)\n  MIG 3g.20gb Device 0: (UUID: MIG-c)\n"
    "  MIG 3g.20gb Device 1: (UUID: MIG-d)\n"
    "GPU 1: A100 (UUID: GPU-b)\n"
)


@pytest.mark.parametrize(
    ("listing", "visible", "expected"),
    [
        (TWO, None, ["GPU-a", "GPU-b"]),
        (TWO, "1", ["1"]),
        (TWO, "1, GPU-a", ["1", "GPU-a"]),
        (TWO, "", []),
        (TWO, "-1", []),
        (CUT, None, ["MIG-c", "MIG-d", "GPU-b"]),
        ("", "0", []),
        ("no devices were found", None, []),
    ],
)
def test_the_gpus_that_a_node_may_use(listing, visible, expected):
    assert gpu_names(listing, visible) == expected


HOLD = """
import sys
from pathlib import Path
from fedge.launch.nodes.node_gpu import lock_gpu
print(*lock_gpu(sys.argv[2:], Path(sys.argv[1])), flush=True)
sys.stdin.read()
"""


def another(folder, *names):
    """A process that has taken a GPU until its input ends; and what it has taken."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), *names], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    return process, process.stdout.readline().split()


def test_nodes_take_different_gpus_then_share_evenly_and_one_that_ends_makes_room(tmp_path):
    made = [another(tmp_path, "GPU-a", "1") for _ in range(4)]
    try:
        assert [told for _, told in made] == [["0", "0"], ["1", "0"], ["0", "1"], ["1", "1"]]
        made[1][0].communicate(timeout=20)
        assert lock_gpu(["GPU-a", "1"], tmp_path) == (1, 0)
    finally:
        for process, _ in made:
            process.communicate(timeout=20)


def test_a_node_sees_its_gpu_first_and_says_which(tmp_path, monkeypatch):
    """The names after it stay visible: for processes of one client."""
    monkeypatch.setattr(node_gpu, "_gpu_listing", lambda: TWO)
    monkeypatch.setattr(node_gpu, "_lock_folder", lambda: tmp_path)
    monkeypatch.delenv(VISIBLE, raising=False)
    other, _ = another(tmp_path, "GPU-a", "GPU-b")
    try:
        assert take_gpu() == "this node takes GPU 2 of 2 (GPU-b)"
        assert os.environ[VISIBLE] == "GPU-b,GPU-a"
    finally:
        other.communicate(timeout=20)


def test_on_one_gpu_a_word_says_that_it_is_shared(tmp_path, monkeypatch):
    monkeypatch.setattr(node_gpu, "_gpu_listing", lambda: TWO)
    monkeypatch.setattr(node_gpu, "_lock_folder", lambda: tmp_path)
    monkeypatch.setenv(VISIBLE, "1")
    assert take_gpu() == ""
    other, told = another(tmp_path, "1")
    other.communicate(timeout=20)
    assert told == ["0", "1"]
    assert take_gpu() == (
        "this node shares the GPU with 1 other node of this machine: they wait for each other"
    )
    assert os.environ[VISIBLE] == "1"


def test_without_a_gpu_nothing_is_said_or_changed(monkeypatch):
    monkeypatch.setattr(node_gpu, "_gpu_listing", lambda: "")
    monkeypatch.delenv(VISIBLE, raising=False)
    assert take_gpu() == ""
    assert VISIBLE not in os.environ


def test_locks_lie_in_a_folder_of_the_account_and_a_stranger_s_is_not_used(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(node_gpu.tempfile, "gettempdir", lambda: str(tmp_path))
    assert node_gpu._lock_folder() == tmp_path / f"fedge-gpus-{os.getuid()}"
    assert Path(node_gpu._lock_folder()).stat().st_mode & 0o777 == 0o700
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    node_gpu._lock_folder().rmdir()
    (tmp_path / f"fedge-gpus-{os.getuid()}").symlink_to(elsewhere)
    assert node_gpu._lock_folder() is None
    assert "another account's" in capsys.readouterr().out
