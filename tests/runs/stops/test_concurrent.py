"""Runs, reports and sweeps of one moment in one folder: none is lost, none is mixed with another."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from flower_runs import comparable
from small_runs import small_config

from fedge.report.listing import list_runs

FEDGE = Path(sys.executable).with_name("fedge")
AT_ONCE = 6

pytestmark = [pytest.mark.extended, pytest.mark.whole_runs, pytest.mark.timeout(600)]


def at_once(folder, commands):
    """Carry out commands of Fedge that start together; return (exit code, output) of each."""
    started = [
        subprocess.Popen(
            [FEDGE, *map(str, words)], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )
        for words in commands
    ]  # fmt: skip
    said = [process.communicate(timeout=900)[0] for process in started]
    return [(process.returncode, words) for process, words in zip(started, said, strict=True)]


@pytest.fixture
def options(tmp_path):
    """A file of options of a small run; runs lie in runs/."""
    config = {**small_config(tmp_path / "data"), "runs-dir": "runs"}
    (tmp_path / "small.toml").write_text("".join(f"{k} = {json.dumps(v)}\n" for k, v in config.items()))
    return "small.toml"


def test_runs_of_one_second_have_a_folder_each_and_the_bits_of_one_alone(tmp_path, options):
    """Without a name, so that date, time and seed make it; and `latest` is one of them."""
    done = at_once(tmp_path, [["run", "-c", options]] * AT_ONCE)
    assert [code for code, _ in done] == [0] * AT_ONCE, done
    runs = tmp_path / "runs"
    folders = [path for path in runs.iterdir() if not path.is_symlink()]
    assert len(folders) == AT_ONCE
    assert (runs / "latest").resolve() in folders
    assert [path.name for path in runs.iterdir() if path.name.startswith(".")] == []
    ids = {json.loads((path / "manifest.json").read_text())["status"] for path in folders}
    assert ids == {"completed"}
    first, *others = map(comparable, folders)
    assert all(other == first for other in others)
    assert len(list_runs(runs)) == AT_ONCE


def test_of_runs_with_one_name_one_is_carried_out(tmp_path, options):
    done = at_once(
        tmp_path, [["run", "-c", options, "-c", f'run-name="one" seed={n}'] for n in range(AT_ONCE)]
    )
    assert Counter(code for code, _ in done) == {0: 1, 4: AT_ONCE - 1}, done
    refused = [said for code, said in done if code == 4]
    assert all("run-name must be new" in said for said in refused), refused
    assert not any("Traceback" in said for _, said in done)
    (won,) = [number for number, (code, _) in enumerate(done) if code == 0]
    assert json.loads((tmp_path / "runs" / "one" / "manifest.json").read_text())["seed"] == won


def test_sweeps_of_one_file_at_once_do_its_work_once(tmp_path, options):
    """One has the folder's lock; the others say so. Started again, nothing is left to do."""
    (tmp_path / "study.toml").write_text(
        f'[sweep]\nseeds = [1, 2]\n[base]\nconfig = "{options}"\n[grid]\ntrain.lr = [0.01, 0.1]\n'
    )
    config = tmp_path / "small.toml"
    kept = [
        line for line in config.read_text().splitlines() if line.split(" = ")[0] not in ("seed", "runs-dir")
    ]
    config.write_text("\n".join(kept) + "\n")
    done = at_once(tmp_path, [["sweep", "study.toml"]] * 3)
    assert Counter(code for code, _ in done) == {0: 1, 4: 2}, done
    assert not any("Traceback" in said for _, said in done)
    folder = tmp_path / "runs" / "study"
    models = [path for path in folder.glob("*/checkpoints/final.safetensors") if "latest" not in path.parts]
    before = {path: path.read_bytes() for path in models}
    assert len(before) == 4
    rows = (folder / "runs.csv").read_text().splitlines()
    assert len(rows) == 5
    ((code, said),) = at_once(tmp_path, [["sweep", "study.toml"]])
    assert code == 0, said
    assert {path: path.read_bytes() for path in before} == before
    assert (folder / "runs.csv").read_text().splitlines() == rows


def test_reports_of_one_run_at_once_leave_a_whole_page(tmp_path, options):
    assert at_once(tmp_path, [["run", "-c", options]])[0][0] == 0
    done = at_once(tmp_path, [["report"]] * 4)
    assert [code for code, _ in done] == [0] * 4, done
    folder = (tmp_path / "runs" / "latest").resolve()
    assert (folder / "report.html").read_text().endswith("</html>")
    assert [path.name for path in folder.iterdir() if path.suffix == ".tmp"] == []
