"""A copy that can be shared: nothing of the machine or of persons in its bytes, and it can still be read."""

import getpass
import json
import platform
import shutil
from pathlib import Path

import pytest
from small_runs import USERS, small_config

from fedge import load_run, simulate
from fedge.cli import main
from fedge.config.registers.option import ConfigError
from fedge.records.export import _scrub, export_run, without_users
from fedge.records.folder import write_json
from fedge.records.outputs import damaged_outputs
from fedge.report.run_page import write_report

HOST = "machine-of-ann"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run whose manifest says more than it should, as those of other versions and after failures."""
    place = tmp_path_factory.mktemp("somewhere")
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(platform, "node", lambda: HOST)  # one that no byte of a number is by chance
    folder = simulate({**small_config(place, run_name="it"), "tracker": "tensorboard"}).folder
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["config"]["data.path"] = manifest["data"]["name"] = str(place / "small.npz")
    manifest["process"] = json.loads((folder / "private.json").read_text())["process"]
    manifest["remarks"] = [
        f"seen on {platform.node()} by {getpass.getuser()}: {place}/small.npz and {folder}/x"
    ]
    write_json(folder / "manifest.json", manifest)
    yield folder
    monkeypatch.undo()


def secrets_of(folder):
    """Secrets of a run folder."""
    private = json.loads((folder / "private.json").read_text())
    place = str(folder.parents[1])
    return [
        place,
        str(Path.home()) + "/",
        private["process"]["boot"],
        private["process"]["host"],
        place.split("/")[-2],
    ]


@pytest.mark.slow
def test_no_byte_tells_of_the_machine(folder, tmp_path):
    copy = export_run(folder, tmp_path / "shared")
    write_report(copy)
    files = [path for path in copy.rglob("*") if path.is_file()]
    for path in files:
        content = path.read_bytes()
        assert [secret for secret in secrets_of(folder) if secret.encode() in content] == [], path
    manifest = json.loads((copy / "manifest.json").read_text())
    assert "process" not in manifest
    assert manifest["remarks"] == ["seen on … by …: small.npz and x"]
    assert manifest["config"]["data.path"] == "small.npz"
    names = {str(path.relative_to(copy)) for path in files}
    assert {"metrics/clients.csv", "checkpoints/final.safetensors", "timing.csv"} < names
    assert not names & {"private.json", "run.log", "tracker.json", ".lock"}
    assert not any(name.startswith(("tensorboard", "checkpoints/round")) for name in names)


def test_the_copy_can_be_read_and_has_the_numbers(folder, tmp_path):
    copy, run = load_run(export_run(folder, tmp_path / "shared")), load_run(folder)
    assert (copy.status, copy.problems) == ("completed", [])
    for name in ("rounds", "leaves", "clients", "clusters", "timing", "memory", "messages"):
        assert getattr(copy, name).equals(getattr(run, name)), name
    assert damaged_outputs(copy.folder, copy.manifest) == []
    assert [{n: a.tolist() for n, a in m.items()} for m in copy.models()] == [
        {n: a.tolist() for n, a in m.items()} for m in run.models()
    ]
    assert sorted(copy.partition["user"].unique()) == [f"user-{k}" for k in range(1, len(USERS) + 1)]
    assert copy.partition.drop("user").equals(run.partition.drop("user"))
    assert copy.manifest["exported"]


@pytest.mark.parametrize("ending", [".zip", ".tar", ".tar.gz", ".tgz"])
def test_an_archive_holds_the_copy(folder, tmp_path, capsys, ending):
    target = tmp_path / "new" / f"shared{ending}"
    assert main(["export-run", str(folder), str(target)]) == 0
    assert capsys.readouterr().out == f"{target}\n"
    kind = {".zip": "zip", ".tar": "tar"}.get(ending, "gztar")
    shutil.unpack_archive(target, tmp_path / "out", kind)
    assert load_run(tmp_path / "out" / "it").status == "completed"
    assert [path.name for path in target.parent.iterdir()] == [target.name]


def test_what_is_refused(folder, tmp_path):
    with pytest.raises(ConfigError, match="DEST must be new"):
        export_run(folder, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"DEST must be writable, but .*file/it: "):
        export_run(folder, tmp_path / "file" / "it")
    damaged = shutil.copytree(folder, tmp_path / "damaged")
    (damaged / "metrics" / "clients.csv").unlink()
    with pytest.raises(
        ConfigError,
        match=r"must be intact for export, but metrics/clients\.csv is missing; restore it from a copy, or",
    ):
        export_run(damaged, tmp_path / "shared")
    without_models = shutil.copytree(folder, tmp_path / "without-models")
    (without_models / "checkpoints" / "final.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"final\.safetensors is missing; fedge resume .* repairs it$"):
        export_run(without_models, tmp_path / "shared")
    manifest = json.loads((folder / "manifest.json").read_text())
    write_json(damaged / "manifest.json", {**manifest, "status": "running"})
    with pytest.raises(ConfigError, match="must have ended before export"):
        export_run(damaged, tmp_path / "shared")
    assert not (tmp_path / "shared").exists()


@pytest.mark.parametrize(
    ("text", "scrubbed"),
    [
        ("cannot write metrics of /home/ann/runs/x; make room", "cannot write metrics of x; make room"),
        ("a/b, 3/4 and ../c stay", "a/b, 3/4 and ../c stay"),
        (r"C:\Users\ann\x.npz", "x.npz"),
        ("see https://flower.ai/docs for more", "see https://flower.ai/docs for more"),
        (["/a/b", 3, ["/c/d"]], ["b", 3, ["d"]]),
        (None, None),
    ],
)
def test_text_by_hand(text, scrubbed):
    assert _scrub(text) == scrubbed


def test_users_by_hand():
    assert without_users("client,user,n\n0,zoe,1\n1,ann,2\n2,zoe,3\n") == (
        "client,user,n\n0,user-2,1\n1,user-1,2\n2,user-2,3\n"
    )
