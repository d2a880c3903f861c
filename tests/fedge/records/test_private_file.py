"""Facts of this machine alone stand in private.json, and nowhere in the manifest."""

import json
import os
import platform
import shutil
from pathlib import Path

import pytest
from small_runs import small_config

from fedge import simulate
from fedge.cli import main
from fedge.process.identity import this_process
from fedge.records.private_file import (
    code_folders_of,
    place_name,
    places_of,
    process_of,
    resume_words_of,
    without_places,
    write_private,
)


def test_places_by_hand():
    config = {"data.path": "/home/ann/hhar.npz", "runs-dir": "runs", "run-name": "/odd"}
    assert without_places(config) == {"data.path": "hhar.npz", "runs-dir": "runs", "run-name": "/odd"}
    assert [place_name(place) for place in ("/", "a/b", "/a/b", "synthetic", 3, None)] == [
        "", "a/b", "b", "synthetic", 3, None,
    ]  # fmt: skip


def test_what_is_written_is_read(tmp_path):
    write_private(tmp_path, {"data.path": "/data/x.npz", "runs-dir": "runs", "seed": 3}, " --leaves 'a b:1'")
    assert resume_words_of(tmp_path) == (["--leaves", "a b:1"], Path.cwd())
    assert places_of(tmp_path) == {"data.path": "/data/x.npz", "runs-dir": "runs"}
    assert process_of(tmp_path, {"process": {"pid": -1}})["pid"] == os.getpid()


@pytest.mark.parametrize("other", [{"boot": "5"}, {"host": "elsewhere"}, {"boot": None}, 3, None])
def test_a_run_folder_from_elsewhere_does_not_choose_an_address_and_certificates(tmp_path, other):
    write_private(tmp_path, {}, " --leaves 0.0.0.0:9093 --certs theirs")
    content = json.loads((tmp_path / "private.json").read_text())
    content["process"] = {**content["process"], **other} if isinstance(other, dict) else other
    (tmp_path / "private.json").write_text(json.dumps(content))
    assert resume_words_of(tmp_path)[0] == []


@pytest.mark.parametrize(
    "content", [None, "", "{", "3", "[]", '{"process": 3, "places": [1]}', '{"places": {"data.path": 3}}',
     '{"resume": 3}', '{"resume": {"words": "\'", "directory": "."}}', '{"resume": {"words": 3}}'],
)  # fmt: skip
def test_an_odd_file_says_nothing(tmp_path, content):
    if content is not None:
        (tmp_path / "private.json").write_text(content)
    assert places_of(tmp_path) == {}
    assert process_of(tmp_path, {}) == {}
    assert code_folders_of(tmp_path) == []
    assert resume_words_of(tmp_path)[0] == []


@pytest.mark.parametrize(
    "resume", [3, {"words": "'", "directory": "."}, {"words": 3}, {"words": "--leaves a:1"}]
)
def test_odd_words_to_resume_with_say_nothing(tmp_path, resume):
    (tmp_path / "private.json").write_text(json.dumps({"process": this_process(), "resume": resume}))
    assert resume_words_of(tmp_path)[0] == []


def test_a_run_of_an_earlier_version_has_its_process_in_the_manifest(tmp_path):
    assert process_of(tmp_path, {"process": {"pid": 7}}) == {"pid": 7}


def test_a_run_keeps_its_places_apart_and_goes_on_with_them(tmp_path, capsys):
    """The command finds the data, which the manifest does not know."""
    folder = simulate(small_config(tmp_path, run_name="it")).folder
    boot = Path("/proc/sys/kernel/random/boot_id")
    secrets = [
        str(tmp_path),
        json.dumps(platform.node()),
        boot.read_text().strip() if boot.exists() else str(tmp_path),
    ]
    manifests = [folder / "manifest.json", *folder.glob("checkpoints/round-*/manifest.json")]
    for path in manifests:
        assert [secret for secret in secrets if secret in path.read_text()] == [], path
    assert len(manifests) == 3
    assert all(secret in (folder / "private.json").read_text() for secret in secrets)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["config"]["data.path"], manifest["data"]["name"]) == ("small.npz", "small.npz")
    assert main(["resume", str(folder), "-c", "num-server-rounds=3"]) == 0
    (folder / "private.json").unlink()
    capsys.readouterr()
    assert main(["resume", str(folder), "-c", "num-server-rounds=4"]) == 4
    assert "data.path" in capsys.readouterr().err
    shutil.move(tmp_path / "small.npz", tmp_path / "moved.npz")
    again = f"num-server-rounds=4 data.path='{tmp_path / 'moved.npz'}'"
    assert main(["resume", str(folder), "-c", again]) == 0
