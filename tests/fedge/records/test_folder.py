import re
import time
from datetime import timezone
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedge.config.registers.option import ConfigError
from fedge.records import folder as folder_module
from fedge.records.folder import (
    client_data_folder,
    create_run_folder,
    data_folders,
    dated_name,
    refuse_taken_name,
    remove_client_data,
    time_written,
)


def test_only_a_name_that_is_there_is_taken(tmp_path):
    refuse_taken_name(str(tmp_path), "")
    refuse_taken_name(str(tmp_path), "new")
    (tmp_path / "old").mkdir()
    with pytest.raises(ConfigError, match=r"run-name must be new, but .*old exists"):
        refuse_taken_name(str(tmp_path), "old")


def test_a_working_directory_that_is_gone_is_named_as_the_cause(tmp_path, monkeypatch):
    """The code of a part may have removed it; another runs-dir would not help."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(ConfigError, match=r"^the working directory must exist .* but was removed"):
        create_run_folder("runs", "first", 42)


def test_a_named_run_and_latest(tmp_path):
    first = create_run_folder(str(tmp_path / "runs"), "first", 42)
    assert first == tmp_path / "runs" / "first"
    assert first.is_dir()
    assert (tmp_path / "runs" / "latest").resolve() == first
    second = create_run_folder(str(tmp_path / "runs"), "second", 42)
    assert (tmp_path / "runs" / "latest").resolve() == second
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == ["first", "latest", "second"]


def test_latest_moves_with_its_folder(tmp_path):
    create_run_folder(str(tmp_path / "runs"), "first", 42)
    (tmp_path / "runs").rename(tmp_path / "moved")
    assert (tmp_path / "moved" / "latest").resolve() == tmp_path / "moved" / "first"


def test_unnamed_runs_have_date_time_and_seed(tmp_path):
    names = [create_run_folder(str(tmp_path), "", 7).name for _ in range(3)]
    assert len(set(names)) == 3
    for name in names:
        assert re.fullmatch(r"\d{8}-\d{6}-seed7(-\d)?", name)


def test_the_folder_is_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert create_run_folder("runs", "x", 1) == tmp_path / "runs" / "x"


def test_a_taken_name_is_refused_and_nothing_is_touched(tmp_path):
    folder = create_run_folder(str(tmp_path), "first", 42)
    (folder / "kept").write_text("x")
    create_run_folder(str(tmp_path), "second", 42)
    with pytest.raises(
        ConfigError, match=r"^run-name must be new, but .*first exists; choose another, or leave"
    ):
        create_run_folder(str(tmp_path), "first", 42)
    assert (folder / "kept").read_text() == "x"
    assert (tmp_path / "latest").resolve().name == "second"


def test_a_runs_dir_that_is_no_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for runs_dir in (tmp_path / "file", tmp_path / "file" / "below"):
        for name in ("", "x"):
            with pytest.raises(
                ConfigError, match=r"^runs-dir must be a writable folder, but .*file.*: .*; choose an"
            ):
                create_run_folder(str(runs_dir), name, 42)


def test_a_folder_named_latest_is_left_alone(tmp_path, caplog):
    (tmp_path / "latest").mkdir()
    folder = create_run_folder(str(tmp_path), "first", 42)
    assert folder.is_dir()
    assert not (tmp_path / "latest").is_symlink()
    assert "cannot point" in caplog.text
    assert sorted(p.name for p in tmp_path.iterdir()) == ["first", "latest"]


def test_client_data_and_what_an_interrupted_write_left_go(tmp_path):
    for name in ("data", "data.tmp", "metrics"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("x")
    remove_client_data(tmp_path / "data")
    remove_client_data(tmp_path / "data")
    assert [p.name for p in tmp_path.iterdir()] == ["metrics"]


def test_every_attempt_at_a_run_has_data_of_its_own(tmp_path):
    (tmp_path / "data-notes").mkdir()
    folders = [client_data_folder(tmp_path, resumed) for resumed in (0, 1, 12)]
    assert [folder.name for folder in folders] == ["data", "data-1", "data-12"]
    assert data_folders(tmp_path) == []
    for folder in (*folders[:2], tmp_path / "data-12.tmp"):
        folder.mkdir()
    assert data_folders(tmp_path) == sorted(folders)
    for folder in data_folders(tmp_path):
        remove_client_data(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["data-notes"]


def test_of_two_runs_of_one_name_that_come_at_once_one_is_refused(tmp_path, monkeypatch):
    """The other one's folder came between the look and the making."""
    real = folder_module.refuse_taken_name
    looks = []

    def look(runs_dir, name):
        looks.append(name)
        if len(looks) == 1:
            (tmp_path / "a").mkdir()
            return
        real(runs_dir, name)

    monkeypatch.setattr(folder_module, "refuse_taken_name", look)
    with pytest.raises(ConfigError, match="run-name must be new"):
        folder_module.create_run_folder(str(tmp_path), "a", 1)


@pytest.fixture(scope="module", params=["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"])
def zone(request):
    """A time zone of this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield
    time.tzset()


@given(seconds=st.floats(-(2.0**63), 2.0**63))
@example(-62135596800.0)
@example(253402300799.0)
def test_a_file_was_written_at_some_time_whatever_its_file_system_says(zone, seconds):
    """File systems keep any 64 bits; times of the years 1971 to 9998 stay what they are."""
    path = SimpleNamespace(stat=lambda: SimpleNamespace(st_mtime=seconds))
    local, universal = time_written(path), time_written(path, timezone.utc)
    assert abs(local.astimezone(timezone.utc) - universal).total_seconds() <= 3600
    if 31_536_000 <= seconds < 253_339_228_800:
        assert abs(universal.timestamp() - seconds) < 1e-3


def test_a_name_says_date_time_and_seed():
    assert re.fullmatch(r"\d{8}-\d{6}-seed7", dated_name(7))
    assert re.fullmatch(r"\d{8}-\d{6}-seed7-\d{6}", dated_name(7, with_microseconds=True))


def test_a_folder_is_absolute_once_the_working_directory_is_gone(tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    assert folder_module.short(here / "runs") == "runs"
    here.rmdir()
    assert folder_module.short(here / "runs") == str(here / "runs")
    assert folder_module.short(tmp_path / "runs") == str(tmp_path / "runs")
