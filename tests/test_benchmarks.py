"""A benchmark whose data are missing ends with one line, as `fedge` does."""

from functools import partial

import pytest

from benchmarks.commands import exit_with
from benchmarks.grouping import sensors
from studies.protocols.prepare import main as prepare


def test_missing_data_are_one_line(tmp_path):
    words = [str(tmp_path / name) for name in ("none.npz", "a.npz", "b.npz")]
    with pytest.raises(SystemExit, match=r"none\.npz: window file must exist; make one with") as ended:
        exit_with(partial(sensors.main, words))
    assert "\n" not in ended.value.code


@pytest.mark.parametrize("code", [None, 0, 3])
def test_else_the_code_is_that_of_the_command(code):
    with pytest.raises(SystemExit) as ended:
        exit_with(lambda: code)
    assert ended.value.code == code


def test_images_that_are_missing_or_damaged_are_one_line(tmp_path, capsys):
    (tmp_path / "text.npz").write_text("text")
    for name in ("none.npz", "text.npz"):
        assert prepare([str(tmp_path / name), str(tmp_path / "out.npz")]) == 1
        said = capsys.readouterr().err
        assert f"{name} must hold x, y, split and classes, but: " in said
        assert said.count("\n") == 1
