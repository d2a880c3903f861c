"""Run folders from elsewhere: whoever goes on with one writes nowhere else, none reads for ever."""

import os
import shutil
import socket

import pytest
from run_folders import round_result, write_run

from fedge import load_run
from fedge.cli import main
from fedge.config.registers.option import ConfigError
from fedge.records.export import export_run
from fedge.records.foreign_folder import refuse_foreign_files, refuse_links
from fedge.run.preparation.resume import open_resumption


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "whole", [round_result(1, [5, 6, 7, 8])], planned=3)


@pytest.fixture
def folder(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "runs" / "it", symlinks=True)


def places(folder):
    """Files and folders of a run folder, and some names that do not exist."""
    found = sorted(path.relative_to(folder) for path in folder.rglob("*"))
    assert len(found) > 8
    return [*found, "new", "metrics/new"]


def put(path, make):
    """Put something else in the place of a file or a folder."""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    make(path)


def test_no_link_is_written_through(folder, whole, tmp_path):
    """Each file and each folder replaced by a link, to what is there or not: the run does not go on."""
    outside = shutil.copytree(whole, tmp_path / "outside")
    before = {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()}
    refuse_links(folder)
    for place in places(folder):
        for target in (outside / place, "nowhere", ".."):
            shutil.rmtree(folder)
            shutil.copytree(whole, folder)
            put(folder / place, lambda path, target=target: path.symlink_to(target))
            for use in (open_resumption, lambda run: export_run(run, tmp_path / "copy")):
                with pytest.raises(ConfigError) as caught:
                    use(folder)
                assert "\n" not in str(caught.value)
                assert str(place) in str(caught.value) or "manifest.json" in str(place)
    assert before == {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()}


def test_what_trackers_link_within_their_folder_is_theirs(folder):
    (folder / "wandb" / "run-1").mkdir(parents=True)
    (folder / "wandb" / "latest-run").symlink_to("run-1")
    refuse_links(folder)
    (folder / "mlflow").symlink_to("wandb")
    with pytest.raises(ConfigError, match="mlflow leads to wandb; replace it by a copy"):
        refuse_links(folder)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: socket.socket(socket.AF_UNIX).bind(path.name)],
                         ids=["pipe", "socket"])  # fmt: skip
def test_nobody_waits_for_a_pipe(folder, whole, monkeypatch, capsys, make):
    """In the place of each file: to read it, to go on with it, to list it, to ask how it stands."""
    for place in places(folder):
        shutil.rmtree(folder)
        shutil.copytree(whole, folder)
        monkeypatch.chdir((folder / place).parent)
        put(folder / place, make)
        for use in (load_run, open_resumption, refuse_foreign_files):
            with pytest.raises(ConfigError) as caught:
                use(folder)
            assert "\n" not in str(caught.value)
        assert main(["runs", "--runs-dir", str(folder.parent)]) == 0
        assert main(["status", str(folder)]) in (0, 1, 4)
        assert "Traceback" not in "".join(capsys.readouterr())


@pytest.mark.timeout(60)
def test_no_json_without_an_end_is_read(folder, whole, capsys):
    """A sparse file of 64 GiB takes no room, and all memory of who reads it."""
    checkpoint = "checkpoints/round-000001/manifest.json"
    for place in ("manifest.json", "private.json", "metrics/confusion.json", checkpoint):
        shutil.rmtree(folder)
        shutil.copytree(whole, folder)
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        with (folder / place).open("wb") as file:
            file.truncate(2**36)
        for use in (load_run, open_resumption, refuse_foreign_files):
            with pytest.raises(ConfigError, match=f"{place} has {2**36}; remove it"):
                use(folder)
        assert main(["status", str(folder)]) == 4
        assert main(["runs", "--runs-dir", str(folder.parent)]) == 0
    assert "Traceback" not in "".join(capsys.readouterr())


def test_a_link_to_a_run_is_a_run(folder):
    """`latest` is one; and who only reads may keep tables elsewhere."""
    link = folder.with_name("latest")
    link.symlink_to(folder.name)
    assert load_run(link).name == folder.name
    table = folder / "timing.csv"
    table.rename(folder.with_name("elsewhere.csv"))
    table.symlink_to("../elsewhere.csv")
    assert len(load_run(folder).timing)
