import os
import socket
import sys
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedge.config.registers.option import ConfigError
from fedge.engine import loopback
from fedge.launch.flower_runs.ray_start import refuse_ray_that_cannot_start as refuse


def refusal(**environment):
    with pytest.raises(ConfigError) as caught:
        refuse(environment)
    assert str(caught.value).isprintable()
    return str(caught.value)


@pytest.fixture
def short_folder():
    """A folder whose path is short enough for sockets below it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def server():
    """A maker of servers that send what is given to whoever connects; its argument, its address."""
    running = []

    def make(answer):
        listening = socket.create_server(("127.0.0.1", 0))
        running.append(listening)

        def serve():
            connection, _ = listening.accept()
            with connection:
                connection.recv(100)
                connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        return f"127.0.0.1:{listening.getsockname()[1]}"

    yield make
    for listening in running:
        listening.close()


def test_a_folder_of_ones_own(tmp_path):
    refuse({"RAY_TMPDIR": str(tmp_path / "new")} if len(str(tmp_path)) < 30 else {"RAY_TMPDIR": "/tmp"})
    refuse({"RAY_TMPDIR": "/tmp", "RAY_ADDRESS": "local"})
    refuse({})


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    message = refusal(RAY_TMPDIR=str(tmp_path / "file"))
    assert message.startswith(f"RAY_TMPDIR must be a folder that Ray can write to, but {tmp_path}/file/ray: ")
    assert "fedge run, which needs no Ray" in message


def test_a_full_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "fedge.launch.flower_runs.ray_start.shutil.disk_usage", lambda path: SimpleNamespace(free=5 << 20)
    )
    assert "must have 100 MiB free for Ray, but " in refusal(RAY_TMPDIR=str(tmp_path))


def test_a_path_too_long_for_sockets(tmp_path):
    assert "characters too long; set e.g. RAY_TMPDIR=/tmp" in refusal(RAY_TMPDIR=str(tmp_path / ("x" * 90)))


@pytest.mark.parametrize("names", [["RAY_TMPDIR"], ["TMPDIR"], ["RAY_TMPDIR", "TMPDIR"]])
def test_the_folder_examined_is_the_one_used(short_folder, monkeypatch, names):
    """A path is refused exactly if a socket below it, of a run with the longest process ids, has no name."""
    monkeypatch.setattr(loopback, "has_reaper", lambda: True)
    monkeypatch.setattr(loopback, "remove_at_end", lambda folder: None)
    monkeypatch.setattr("os.getpid", lambda: 4194304)
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    if not sys.platform.startswith("linux") and names == ["TMPDIR"]:
        pytest.skip("Ray reads TMPDIR on Linux alone")
    accepted = set()
    for length in range(len(str(short_folder)) + 2, 40):
        folder = short_folder / ("x" * (length - len(str(short_folder)) - 1))
        for name in names:
            monkeypatch.setenv(name, str(folder if name == names[0] else short_folder / "other"))
        session = f"{loopback.session_folder()['_temp_dir']}/session_2025-01-01_00-00-00_000000_4194304"
        assert session.startswith(f"{folder}/ray/f")
        fits = len(f"{session}/sockets/plasma_store") <= (107 if sys.platform.startswith("linux") else 103)
        if fits:
            refuse(os.environ)
        else:
            assert f"{names[0]} must be a short path" in refusal(**os.environ)
        accepted.add(fits)
    assert accepted == {True, False}


def test_a_folder_without_a_name_is_ray_s_own():
    assert loopback.ray_folder({"RAY_TMPDIR": "", "TMPDIR": ""}) == loopback.ray_folder({})
    assert loopback.ray_folder({"RAY_TMPDIR": "here"})[1].is_absolute()


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:", "127.0.0.1:x", ":80", "nonsense", "ray://h"])
def test_no_address(address):
    assert "RAY_ADDRESS must be host:port of a Ray cluster" in refusal(RAY_ADDRESS=address)


@pytest.mark.parametrize("address", ["127.0.0.1:9", "127.0.0.1:99999999", "ray://127.0.0.1:9"])
def test_nobody_answers(address):
    assert "RAY_ADDRESS must name a Ray cluster that answers" in refusal(RAY_ADDRESS=address)


def test_somebody_else_answers(server):
    for answer in (b"HTTP/1.1 400 Bad Request\r\n\r\n", b""):
        assert "another program answers there" in refusal(RAY_ADDRESS=server(answer))


def test_a_mute_address(monkeypatch):
    monkeypatch.setattr("fedge.launch.flower_runs.ray_start._CONNECT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert "timed out" in refusal(RAY_ADDRESS=f"127.0.0.1:{listening.getsockname()[1]}")


def test_a_cluster_answers(server):
    """gRPC servers begin with the frame SETTINGS (type 4); what follows does not matter."""
    refuse({"RAY_ADDRESS": server(bytes([0, 0, 6, 4, 0, 0, 0, 0, 0]) + bytes(6))})
    refuse({"RAY_ADDRESS": "auto"})
