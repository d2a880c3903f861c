"""Plain files are opened; a pipe in their place is one line at once, wherever a user may name a file."""

import os
from types import SimpleNamespace

import pytest
from odd_tables import NO_FILES, put_no_file

from fedge.config.registers.option import ConfigError
from fedge.devices.population.convert import converted
from fedge.devices.timeline.real_arrivals import read_job_ends
from fedge.inference.windows import read_raw_windows
from hhar.errors import HharError
from hhar.regular import open_regular, refuse_irregular
from hhar.windows.window_file import WindowFileError, load_windows


def test_a_plain_file_and_a_link_to_one(tmp_path):
    (tmp_path / "x").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("x")
    for name in ("x", "link"):
        with open_regular(tmp_path / name) as stream:
            assert stream.read() == b"abc"
        refuse_irregular(tmp_path / name)


@pytest.mark.parametrize(
    ("how", "words"),
    [("pipe", "a pipe"), ("folder", "a folder"), ("socket", "a socket"), ("device", "a device"),
     ("link to a pipe", "a pipe")],
)  # fmt: skip
@pytest.mark.timeout(20)
def test_others_are_named(tmp_path, how, words):
    put_no_file(tmp_path / "x", how)
    for act in (open_regular, refuse_irregular):
        with pytest.raises(HharError, match=f"x: must be a plain file, is {words}; name the file itself"):
            act(tmp_path / "x")
    open_files = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for _ in range(20):
        with pytest.raises(HharError):
            open_regular(tmp_path / "x")
    assert not open_files or len(os.listdir("/proc/self/fd")) == open_files


@pytest.mark.parametrize("how", NO_FILES)
@pytest.mark.parametrize(
    "read",
    [
        load_windows,
        lambda path: read_raw_windows(path, SimpleNamespace()),
        lambda path: read_job_ends(str(path)),
        lambda path: converted("fedscale-capacity", path),
        lambda path: converted("flash-speeds", path, 1.0),
    ],
    ids=["windows", "predict", "replay", "pickles", "json"],
)
@pytest.mark.timeout(20)
def test_readers_of_files_wait_for_none(tmp_path, how, read):
    put_no_file(tmp_path / "x", how)
    with pytest.raises((ConfigError, WindowFileError)) as caught:
        read(tmp_path / "x")
    assert str(tmp_path / "x") in str(caught.value)
    assert "\n" not in str(caught.value)
