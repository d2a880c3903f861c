"""Folders of nodes that were killed go at the next start; those of living ones, and others' things, stay."""

import json
import subprocess
import sys
import tempfile

from fedge.launch.nodes import node_folder
from fedge.process.identity import this_process

OF_ANOTHER = "from fedge.launch.nodes.node_folder import make_node_folder; print(make_node_folder())"


def test_the_folder_of_a_killed_node_goes(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = f"import tempfile; tempfile.tempdir = {str(tmp_path)!r}; {OF_ANOTHER}"
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    (left,) = tmp_path.iterdir()
    assert str(left) == told.strip()
    mine = node_folder.make_node_folder()
    assert list(tmp_path.iterdir()) == [mine]
    again = node_folder.make_node_folder()  # this process lives
    assert sorted(tmp_path.iterdir()) == sorted([mine, again])


def test_what_nobody_can_tell_stays(tmp_path, monkeypatch):
    """A link to a folder of a dead process, words that are none, a file, another machine's."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead = json.dumps({**this_process(), "start": -1})
    places = {"odd": "[" * 9999, "list": "[]", "elsewhere": json.dumps({**this_process(), "host": "another"})}
    for name, text in places.items():
        folder = tmp_path / f"fedge-node-{name}"
        folder.mkdir()
        (folder / "process.json").write_text(text)
    aside = tmp_path / "aside"
    aside.mkdir()
    (aside / "process.json").write_text(dead)
    (tmp_path / "fedge-node-link").symlink_to(aside)
    (tmp_path / "fedge-node-file").write_text(dead)
    (tmp_path / "fedge-node-empty").mkdir()
    before = sorted(tmp_path.iterdir())
    node_folder._reap()
    assert sorted(tmp_path.iterdir()) == before
    assert (aside / "process.json").exists()
