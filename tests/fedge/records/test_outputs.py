"""Results that are not what the run wrote are found; those of a run that goes on are not looked at."""

import pytest
from run_folders import round_result, write_run

from fedge import load_run
from fedge.cli import main
from fedge.records.manifest import RunFolderError, read_manifest
from fedge.records.outputs import MODELS, OUTPUTS, checksums, damaged_outputs, damaged_tables, has_checksum
from fedge.records.recorder import Recorder


@pytest.fixture
def folder(tmp_path):
    """A run that has ended as the recorder ends one."""
    folder = write_run(tmp_path / "runs" / "first", [round_result(1, [5, 6, 7, 8])])
    sums = {"metrics/clients.csv": 1}
    with Recorder(folder, {name: (folder / name).stat().st_size for name in (*OUTPUTS, *sums)},
                  read_manifest(folder)) as recorder:  # fmt: skip
        recorder.end("completed", 0)
    return folder


def flip(path):
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(bytes(content))


def empty(path):
    path.write_bytes(b"")


def test_all_results_have_a_checksum(folder):
    manifest = read_manifest(folder)
    assert manifest["outputs"] == checksums(folder)
    assert set(manifest["outputs"]) == set(OUTPUTS)
    assert damaged_outputs(folder, manifest) == []


@pytest.mark.parametrize(
    "damage", [flip, empty, lambda path: path.unlink()], ids=["flipped", "empty", "gone"]
)
@pytest.mark.parametrize("name", OUTPUTS)
def test_a_damaged_result_is_said(folder, capsys, name, damage):
    damage(folder / name)
    word = "not as the run wrote it" if (folder / name).exists() else "missing"
    assert damaged_outputs(folder, read_manifest(folder)) == [f"{name} is {word}"]
    assert main(["status", "first", "--runs-dir", str(folder.parent)]) == 4
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "first: completed, global round 1 of 1" or name == "metrics/global_rounds.csv"
    assert f"damaged: {name} is {word}" in lines
    assert lines[-1].startswith("next: restore the files")  # without a checkpoint
    if name == MODELS:
        with pytest.raises(RunFolderError, match=r"final\.safetensors is (damaged|missing)"):
            load_run(folder).models()


def test_a_run_that_goes_on_has_none(folder):
    assert damaged_outputs(folder, {"status": "running"}) == []
    assert damaged_outputs(folder, {"outputs": {"../elsewhere": "x"}}) == []


def test_fits_by_hand(tmp_path):
    """sha256 of "ab" and of nothing, from `sha256sum`."""
    ab = "fb8e20fc2e4c3f248c60c39bd652f3c1347298bb977b8b4d5903b85055620603"
    nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    (tmp_path / "abc").write_text("abc")
    assert has_checksum(tmp_path / "abc", ab, 2)
    assert not has_checksum(tmp_path / "abc", ab)
    assert not has_checksum(tmp_path / "abc", ab, 4)
    assert has_checksum(tmp_path / "abc", nothing, 0)
    assert not has_checksum(tmp_path / "none", nothing)


def test_a_page_on_a_table_that_was_changed_says_so(folder, capsys):
    """A table that lost its last line is whole by its form: only the checksum tells."""
    table = folder / "metrics" / "clients.csv"
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:-1]))
    line = "metrics/clients.csv is not as the run wrote it"
    assert damaged_tables(folder, read_manifest(folder)) == [line]
    assert main(["report", str(folder)]) == 0
    assert line in (folder / "report.html").read_text()
    page = folder.parent / "page.html"
    assert main(["compare", str(folder), "--out", str(page)]) == 0
    assert f"fedge: first: {line}\n" in capsys.readouterr().err
    assert f"first: {line}" in page.read_text()


def test_tables_of_a_run_that_goes_on_are_not_looked_at(folder):
    manifest = {**read_manifest(folder), "status": "running"}
    empty(folder / "metrics" / "clients.csv")
    assert damaged_tables(folder, manifest) == []
