"""Whole files: the old one or the new one, and synced before they get their name."""

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from fedge.process.durable import (
    commit,
    make_durable_folder,
    removed_on_failure,
    sync,
    write_bytes,
    write_output,
)


@pytest.fixture
def calls(monkeypatch):
    """The order in which files are synced and named."""
    found = []
    fsync, replace = os.fsync, Path.replace

    def note_fsync(descriptor):
        found.append(("fsync", os.readlink(f"/proc/self/fd/{descriptor}").rsplit("/", 1)[-1]))
        fsync(descriptor)

    def note_replace(before, after):
        found.append(("replace", after.name))
        return replace(before, after)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "replace", note_replace)
    return found


def test_content_is_synced_then_named_then_the_folder_synced(tmp_path, calls):
    path = tmp_path / "a.json"
    write_bytes(path, b"one")
    assert calls == [("fsync", "a.json.tmp"), ("replace", "a.json"), ("fsync", tmp_path.name)]
    assert path.read_bytes() == b"one"
    assert list(tmp_path.iterdir()) == [path]


def test_without_waiting_for_the_disk(tmp_path, calls):
    write_bytes(tmp_path / "a.json", b"one", durably=False)
    assert calls == [("replace", "a.json")]


def test_a_failure_leaves_what_was_there(tmp_path):
    path = tmp_path / "a.json"
    write_bytes(path, b"one")
    (tmp_path / "a.json.tmp").mkdir()
    with pytest.raises(IsADirectoryError):
        write_bytes(path, b"two")
    assert path.read_bytes() == b"one"
    with pytest.raises(FileNotFoundError):
        commit(tmp_path / "none", path)
    with pytest.raises(FileNotFoundError):
        sync(tmp_path / "none")


def test_every_folder_that_is_made_has_a_name_that_stays(tmp_path, calls):
    """Made in one go, three names: each is in a folder that was told to keep it, from above."""
    make_durable_folder(tmp_path / "a" / "b" / "c")
    assert calls == [("fsync", tmp_path.name), ("fsync", "a"), ("fsync", "b")]
    make_durable_folder(tmp_path / "a" / "b")
    assert len(calls) == 3


def test_an_output_is_there_whole_or_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    write_output(path, b"one")

    def fail(temporary, content):
        temporary.write_bytes(content[:1])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("fedge.process.durable.write_new", fail)
    with pytest.raises(OSError, match="No space"):
        write_output(path, b"two")
    assert path.read_bytes() == b"one"
    assert list(tmp_path.iterdir()) == [path]


def test_an_output_keeps_the_permissions_of_the_file_that_was_there(tmp_path):
    path = tmp_path / "pyproject.toml"
    path.write_bytes(b"one")
    path.chmod(0o640)
    write_output(path, b"two")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"two", 0o640)


def test_an_output_that_cannot_be_written_has_the_name_the_user_knows(tmp_path):
    path = tmp_path / "no" / "page.html"
    with pytest.raises(FileNotFoundError) as caught:
        write_output(path, b"one")
    assert caught.value.filename == str(path)


@pytest.mark.parametrize("is_link", [False, True])
def test_an_output_never_takes_the_place_of_a_device_or_a_pipe(tmp_path, is_link):
    pipe, path = tmp_path / "pipe", tmp_path / "out"
    os.mkfifo(pipe)
    if is_link:
        path.symlink_to(pipe)
    else:
        path = pipe
    found = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_output(path, b"one")
    reader.join(20)
    assert found == [b"one"]
    assert stat.S_ISFIFO(path.stat().st_mode)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="there is no /proc")
@pytest.mark.parametrize("is_link", [False, True])
def test_an_output_never_takes_the_place_of_the_name_of_an_open_file(tmp_path, is_link):
    """`-o /dev/stdout > FILE`: that is a link to the name of an open file."""
    with (tmp_path / "file").open("wb") as file:
        path = Path(f"/proc/self/fd/{file.fileno()}")
        if is_link:
            (tmp_path / "stdout").symlink_to(path)
            path = tmp_path / "stdout"
        write_output(path, b"one")
    assert (tmp_path / "file").read_bytes() == b"one"
    assert path.is_symlink() == is_link


def test_a_folder_whose_files_could_not_be_written_goes(tmp_path):
    folder = tmp_path / "new"
    with removed_on_failure(folder):
        folder.mkdir()
    assert folder.is_dir()
    (folder / "a").write_text("")
    with pytest.raises(KeyboardInterrupt), removed_on_failure(folder):
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())
