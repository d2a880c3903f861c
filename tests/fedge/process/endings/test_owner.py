"""Folders whose owner was killed go at the next start; those of the living, and others' things, stay."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from fedge.engine import loopback
from fedge.launch.nodes.node_folder import make_node_folder
from fedge.process.endings.owner import note_owner, remove_ownerless
from fedge.process.identity import namespace, this_process

NODE = (
    "import tempfile; tempfile.tempdir = {place!r}; "
    "from fedge.launch.nodes.node_folder import make_node_folder; print(make_node_folder())"
)
RAY = (
    "import os; from pathlib import Path; from fedge.engine import loopback; "
    "loopback.has_reaper = lambda: True; os.environ['RAY_TMPDIR'] = {place!r}; "
    "print(Path(loopback.session_folder()['_temp_dir']).parent)"
)


def ray_folder():
    """The folder of a Ray of this process."""
    return Path(loopback.session_folder()["_temp_dir"]).parent


@pytest.mark.parametrize(("made_by_another", "make"), [(NODE, make_node_folder), (RAY, ray_folder)])
def test_the_folder_of_a_killed_process_goes(tmp_path, monkeypatch, made_by_another, make):
    """And those of this process, which lives, stay: it makes two."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("FEDGE_KEEP_RAY_LOGS", raising=False)
    monkeypatch.setattr(loopback, "has_reaper", lambda: True)
    code = made_by_another.format(place=str(tmp_path))
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    left = Path(told.strip())
    assert left.is_dir()
    mine = make()
    assert list(mine.parent.iterdir()) == [mine]
    again = make()
    assert sorted(mine.parent.iterdir()) == sorted([mine, again])


def test_what_nobody_can_tell_stays(tmp_path):
    """A link to a folder of a dead process, words that are none, a file, another machine's or container's."""
    dead = {**this_process(), "start": -1, "namespace": namespace()}
    places = {
        "odd": "[" * 9999, "list": "[]", "elsewhere": json.dumps({**dead, "host": "another"}),
        "container": json.dumps({**dead, "namespace": "pid:[1]"}),
    }  # fmt: skip
    for name, text in places.items():
        (tmp_path / f"f-{name}").mkdir()
        (tmp_path / f"f-{name}" / "process.json").write_text(text)
    (tmp_path / "aside").mkdir()
    (tmp_path / "aside" / "process.json").write_text(json.dumps(dead))
    (tmp_path / "f-link").symlink_to(tmp_path / "aside")
    (tmp_path / "f-file").write_text(json.dumps(dead))
    (tmp_path / "f-empty").mkdir()
    before = sorted(tmp_path.iterdir())
    remove_ownerless(tmp_path.glob("f-*"))
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "aside" / "process.json").exists()
    (tmp_path / "f-list" / "process.json").write_text(json.dumps(dead))
    remove_ownerless(tmp_path.glob("f-*"))
    assert sorted(tmp_path.iterdir()) == [path for path in before if path.name != "f-list"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root makes folders of others")
def test_folders_of_other_accounts_stay(tmp_path):
    folder = tmp_path / "f-other"
    folder.mkdir()
    note_owner(folder)
    told = json.loads((folder / "process.json").read_text())
    (folder / "process.json").write_text(json.dumps({**told, "start": -1}))
    os.chown(folder, 12345, 12345)
    remove_ownerless([folder])
    assert folder.is_dir()
    os.chown(folder, 0, 0)
    remove_ownerless([folder])
    assert not folder.exists()
