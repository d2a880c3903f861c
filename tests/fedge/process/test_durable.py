"""Whole files: the old one or the new one, and synced before they get their name."""

import os
from pathlib import Path

import pytest

from fedge.process.durable import commit, make_durable_folder, sync, write_bytes


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
