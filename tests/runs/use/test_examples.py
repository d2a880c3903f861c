"""The worked examples, from a folder outside the checkout, on both engines."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedge import simulate
from fedge.cli import main as fedge
from fedge.launch.projects.project import flatten, read_toml
from hhar import Windows

pytestmark = pytest.mark.whole_runs

PYTHON = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TOML = re.compile(r"^```toml\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FENCED = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
EXAMPLES = Path(__file__).parents[3] / "examples"
PARTS = {
    "my_model": {"train.model": "my_model:Gru", "train.model-args.hidden": 4},
    "my_lora": {"train.model": "my_lora:Transformer", "train.model-args.hidden": 8},
    "my_data": {"data.path": "my_data:rows_of_digits", "data.path-args.writers": 4},
    "my_rule": {"leaf.strategy": "my_rule:GeometricMedian", "scaffold.enabled": False},
    "my_grouping": {"cluster.method": "my_grouping:largest_gap"},
    "my_family": {"cluster.method": "my_family:Soft"},
    "my_method": {"train.algorithm": "my_method:Ditto", "scaffold.enabled": False},
    "my_attack": {
        "train.algorithm": "my_attack:SignFlip",
        "train.algorithm-args.attackers": "0,2",
        "scaffold.enabled": False,
    },
    "my_callback": {"callbacks": "my_callback:Settled"},
    "my_gate": {"gate.rule": "my_gate:probably_better", "gate.rule-args.confidence": 0.6},
    "my_losses": {"train.loss": "my_losses:focal", "train.metrics": "my_losses:balanced_accuracy"},
    "my_noise": {"train.augment": "my_noise:louder"},
    "my_codes": {"uplink.clients": "my_codes:RandomK", "scaffold.enabled": False},
    "my_choice": {
        "hierarchy.selection": "my_choice:newest_first",
        "hierarchy.participation": "my_choice:growing",
    },
}
TINY = {
    **PARTS["my_data"],
    "num-server-rounds": 2,
    "train.local-epochs": 1,
    "train.model": "linear",
    "hierarchy.num-servers": 2,
    "report": False,
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A copy of the examples, in which the test works."""
    folder = tmp_path / "my-study"
    shutil.copytree(EXAMPLES, folder, ignore=shutil.ignore_patterns("__pycache__", "runs"))
    page = (EXAMPLES.parent / "docs" / "own-method.md").read_text()
    (folder / "mine.py").write_text(PYTHON.findall(page)[0])  # the page's file of that name
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield folder
    for name in (*PARTS, "mine"):
        sys.modules.pop(name, None)


def test_each_is_short():
    files = list(EXAMPLES.glob("my_*.py"))
    others = {"my_characters", "my_fleet", "my_task"}  # carried out by test_tasks.py, and below
    assert {file.stem for file in files} == {*PARTS, *others}
    assert all(len(file.read_text().splitlines()) < 60 for file in files)


@pytest.mark.parametrize("name", PARTS)
def test_each_runs_by_itself(name, project):
    run = simulate({**TINY, **PARTS[name]}, clients=4)
    assert (run.status, run.exit_code) == ("completed", 0), run.reason
    parts = json.loads((run.folder / "manifest.json").read_text())["parts"].values()
    own = [part["sha256"] for part in parts if part["name"].startswith(f"{name}:")]
    named = [value for value in PARTS[name].values() if str(value).startswith(f"{name}:")]
    assert [len(sha256) for sha256 in own] == [64] * len(named)


def test_attackers_send_the_opposite_of_their_update(project):
    """Three clients under one leaf, client 1 an attacker, with the step of length 2 backwards."""
    attacks = {**TINY, **PARTS["my_attack"], "hierarchy.num-servers": 1, "num-server-rounds": 1}
    attacks |= {"data.path-args.writers": 3, "train.start": ""}

    def model(attackers, scale):
        own = {"train.algorithm-args.attackers": attackers, "train.algorithm-args.scale": scale}
        run = simulate({**attacks, **own}, clients=3)
        assert run.status == "completed", run.reason
        return run.models()[0]

    start, honest = model("0,1,2", 0.0), model("", 1.0)
    still, attacked = model("1", 0.0), model("1", 2.0)
    for name in honest:
        share = honest[name] - still[name]  # of client 1 in the mean update
        np.testing.assert_allclose(attacked[name], still[name] - 2 * share, atol=1e-6)
        assert not np.array_equal(still[name], start[name])
        assert np.abs(share).max() > 1e-3


def carried_out(*words):
    """Run `fedge run` in this folder; returns the bytes of the final models."""
    environment = {**os.environ, "FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    name = "flower" if "flower" in words else "inprocess"
    command = [Path(sys.executable).parent / "fedge", "run", ".", "-c", f'run-name="{name}"', *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    folder = Path("runs") / name
    manifest = json.loads((folder / "manifest.json").read_text())
    return (folder / "checkpoints" / "final.safetensors").read_bytes(), manifest


@pytest.mark.extended
def test_all_together_have_the_same_bits_on_both_engines(project):
    """With more clients than the federation has, as many as there are users, and ended by the callback."""
    users = "data.path-args.writers=6 num-server-rounds=9"
    words = ["-c", users, "-c", 'callbacks-args."my_callback:Settled".rounds=2']
    (models, here), (same, there) = carried_out(*words), carried_out(*words, "--engine", "flower")
    assert models == same
    assert here["clients_per_leaf"] == there["clients_per_leaf"] == [3, 3]
    assert here["stopped"] == there["stopped"]
    assert here["stopped"]["by"] == "my_callback:Settled"
    assert here["stopped"]["after_round"] < 9


def said_on_pages():
    """The commands of the pages on parts of one's own."""
    pages = [
        (EXAMPLES.parent / "docs" / f"own-{what}.md").read_text() for what in ("model", "method", "gate")
    ]
    return [line for page in pages for block in FENCED.findall(page) for line in block.splitlines()]


@pytest.mark.parametrize("command", said_on_pages())
def test_the_commands_of_the_pages_run(command, project):
    """In the project of the examples; shortened to a round of a pass."""
    words = shlex.split(command)
    assert words.pop(0) == "fedge"
    assert fedge([*words, "-c", "num-server-rounds=1 train.local-epochs=1 report=false"]) == 0


def test_the_study_of_the_page_can_be_read(project, capsys):
    """docs/own-method.md: three methods, with planted groups and without, five seeds."""
    page = (EXAMPLES.parent / "docs" / "own-method.md").read_text()
    (study,) = re.findall(r"^```toml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    (project / "study.toml").write_text(study)
    assert fedge(["sweep", "study.toml", "--dry-run"]) == 0
    assert "30 runs" in capsys.readouterr().out


def test_objects_go_in_directly(project):
    sys.path.insert(0, str(project))
    import my_data
    import my_gate
    import my_grouping
    import my_model
    import my_rule

    config = {"num-server-rounds": 2, "train.local-epochs": 1, "hierarchy.num-servers": 2, "report": False}
    config |= {"scaffold.enabled": False, "train.model-args.hidden": 4, "leaf.strategy-args.steps": 3}
    objects = {
        "model": my_model.Gru,
        "rule": my_rule.GeometricMedian,
        "grouping": my_grouping.largest_gap,
        "gate": my_gate.probably_better,
    }
    windows = my_data.rows_of_digits(4)
    assert isinstance(windows, Windows)
    given = simulate(config, data=windows, clients=4, **objects)
    assert given.status == "completed", given.reason
    assert given.config["train.model"] == "my_model:Gru"
    names = {f"my_{kind}" for kind in objects}
    named = {key: value for name in names for key, value in PARTS[name].items() if ":" in str(value)}
    data = {"data.path": "my_data:rows_of_digits", "data.path-args.writers": 4}
    by_name = simulate({**config, **named, **data}, clients=4)
    finals = [(run.folder / "checkpoints" / "final.safetensors").read_bytes() for run in (given, by_name)]
    assert finals[0] == finals[1]


def test_a_run_that_goes_on_says_that_its_code_has_changed(project, capsys):
    changes = {**TINY, **PARTS["my_model"], "num-server-rounds": 1}
    first = simulate(changes, clients=4)
    with open(project / "my_model.py", "a") as file:
        file.write("\n# a remark\n")
    going_on = {**changes, "num-server-rounds": 2, "resume": str(first.folder)}
    assert simulate(going_on, clients=4).status == "completed"
    assert "the code of train.model my_model:Gru has changed since the run began" in capsys.readouterr().out


def test_the_task_runs_on_its_data(project):
    options = {"train.task": "my_task:Counts", "train.model": "linear", "data.path": "my_task:visits"}
    small = {"num-server-rounds": 2, "train.local-epochs": 1, "hierarchy.num-servers": 2, "report": False}
    run = simulate({**options, **small}, clients=8)
    sys.modules.pop("my_task", None)
    assert (run.status, run.exit_code) == ("completed", 0), run.reason
    assert run.rounds["test_deviance_mean"].is_not_null().all()


def test_the_parts_of_the_virtual_clock_on_the_page_run(tmp_path, monkeypatch):
    """my_fleet.py with the options of docs/extend.md: all five parts, by name."""
    page = (EXAMPLES.parent / "docs" / "extend.md").read_text()
    (tmp_path / "fleet.toml").write_text(next(one for one in TOML.findall(page) if "my_fleet:damped" in one))
    options = read_toml(tmp_path / "fleet.toml", "the page")
    shutil.copy(EXAMPLES / "my_fleet.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    off = {"scaffold.enabled": False, "gate.enabled": False, "cluster.enabled": False}
    small = {
        **off, **flatten(options), "clients": 9, "num-server-rounds": 3, "asynchrony.concurrency": 2,
        "asynchrony.evaluate-every-s": 4.0, "hierarchy.num-servers": 1, "train.model": "linear",
        "train.local-epochs": 1, "data.path": "synthetic", "report": False,
    }  # fmt: skip
    run = simulate(small)
    sys.modules.pop("my_fleet", None)
    assert run.status == "completed"
    assert run.versions["version"].to_list() == run.versions["updates"].to_list()  # a model at every arrival
    assert run.versions["updates"][-1] > 2
    there = run.devices.filter(run.devices["updates"] > 0)["device"].to_list()
    assert there
    assert all(device % 3 == 0 for device in there)  # the first shift of eight hours
    took = run.jobs.select((run.jobs["ended_s"] - run.jobs["began_s"]).round(6)).to_series()
    attempts = run.jobs["attempt"].to_list()
    relative = [seconds / (1 + 0.5 / attempt) for seconds, attempt in zip(took, attempts, strict=True)]
    assert all(0.9 <= each <= 1.1 or 3.6 <= each <= 4.4 for each in relative)
    assert len(set(relative)) > 2
    assert {part["name"] for part in run.manifest["parts"].values()} >= {
        "my_fleet:damped", "my_fleet:two_kinds", "my_fleet:warming_up", "my_fleet:shifts",
        "my_fleet:least_lately",
    }  # fmt: skip
