"""Window files of tables: the first images of each part, dealt in turn."""

import numpy as np
import pytest

from fedge.config.registers.option import ConfigError
from hhar.windows.window_file import load_windows
from studies.tables import data
from studies.tables.data import Recipe, images, main

SPLIT = ["train", "train", "test", "train", "test", "train"]


@pytest.fixture
def file(tmp_path):
    x = np.arange(6, dtype=np.uint8)[:, None, None] * np.ones((1, 4, 4), np.uint8)
    np.savez(tmp_path / "images.npz", x=x, y=np.array([0, 1, 0, 1, 1, 0]), split=np.array(SPLIT))
    return tmp_path / "images.npz"


def test_the_first_of_each_part_are_dealt_in_turn(file):
    """Training images 0, 1, 3 and the test image 2; two users; class by class, so nobody lacks one."""
    windows = images(file, Recipe("mnist", 3, 1, users=2))
    assert windows.x[:, 0, 0, 0].tolist() == [0, 1, 3, 2]
    assert windows.part.tolist() == ["train"] * 3 + ["test"]
    assert windows.user.tolist() == ["user-0000", "user-0001", "user-0000", "user-0000"]
    assert windows.y.tolist() == [0, 1, 1, 0]


def test_copies_go_to_different_users(file):
    windows = images(file, Recipe("mnist", 2, 1, users=4, copies=2))
    assert windows.x[:, 0, 0, 0].tolist() == [0, 0, 1, 1, 2, 2]
    assert windows.user[:4].tolist() == [f"user-000{n}" for n in range(4)]


def test_too_few_images_are_refused(file):
    with pytest.raises(ConfigError, match="must have 5 images of train, but has 4; choose another"):
        images(file, Recipe("mnist", 5, 1))


def test_a_file_without_a_split_is_refused(file, tmp_path):
    """`part`, as window files have it, is one."""
    with np.load(file) as found:
        x, y, split = found["x"], found["y"], found["split"]
    np.savez(tmp_path / "part.npz", x=x, y=y, part=split)
    assert images(tmp_path / "part.npz", Recipe("mnist", 2, 1)).part.tolist() == ["train", "train", "test"]
    np.savez(tmp_path / "bare.npz", x=x, y=y)
    with pytest.raises(ConfigError, match=r"must have x, y and split, but has x, y; name another file"):
        images(tmp_path / "bare.npz", Recipe("mnist", 1, 1))


def test_files_that_sweeps_name_are_written_once(file, tmp_path, monkeypatch, capsys):
    """One that is there stays; a source that is not named is asked for in one line."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(data, "FILES", {"small": Recipe("mnist", 2, 1)})
    (tmp_path / "s.toml").write_text('[sweep]\nseeds = [1, 2]\n[base]\ndata.path = "data/tables/small.npz"\n')
    assert main(["s.toml"]) == 2
    assert "needs mnist, but none is given; add --mnist FILE" in capsys.readouterr().err
    assert main(["s.toml", "--mnist", str(file)]) == 0
    assert capsys.readouterr().out == "data/tables/small.npz\n"
    assert len(load_windows(tmp_path / "data/tables/small.npz").y) == 3
    assert main(["s.toml"]) == 0
    assert capsys.readouterr().out == ""
