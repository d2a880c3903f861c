import csv
import io
from itertools import cycle

import pytest
import torch
from small_runs import small_config

from fedge import client_app, simulate
from fedge.cli import main
from fedge.engine.inprocess import InProcessGrid
from fedge.process.versions import versions
from fedge.records.manifest import read_manifest
from fedge.run.preparation import run_folder


def test_what_is_run_on_is_said_and_recorded(tmp_path):
    terminal = io.StringIO()
    config = small_config(tmp_path, partition__unseen_clients=1, scenario="gain")
    folder = simulate(config, terminal=terminal).folder
    lines = terminal.getvalue().splitlines()
    assert lines[0] == (
        "Fedge: 2 global rounds, 9 clients under 3 leaves (3,3,3), model linear, seed 3 (from config)"
    )
    assert lines[1] == f"data: {config['data.path']}, 144 windows, split by session"
    assert lines[2] == "unseen clients: 3 clients hold their users out of training"
    assert lines[3].startswith("scenario: gain, planted groups of the leaves ")
    manifest = read_manifest(folder)
    assert manifest["data"]["windows"] == 144
    assert manifest["clients_per_leaf"] == [3, 3, 3]
    assert manifest["unseen_clients"] == [2, 5, 8]
    assert manifest["scenario"]["kind"] == "gain"
    assert (folder / "partition.csv").is_file()


def test_servers_between_leaves_and_cloud_are_counted(tmp_path):
    terminal = io.StringIO()
    tree = {"hierarchy.tree": "2x2x2x*", "hierarchy.names": "hq,country,city,hall"}
    simulate({**small_config(tmp_path, num_server_rounds=1), **tree}, terminal=terminal)
    line = terminal.getvalue().splitlines()[0]
    assert "9 clients under 8 leaves (2,1,1,1,1,1,1,1) under 4 cities under 2 countries, model" in line


def test_every_round_is_said_recorded_and_timed(tmp_path):
    terminal = io.StringIO()
    folder = simulate(small_config(tmp_path, num_server_rounds=3), terminal=terminal).folder
    assert sum(line.startswith("round ") or "/3" in line for line in terminal.getvalue().splitlines()) >= 3
    with (folder / "timing.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["global_round"] for row in rows] == ["1", "2", "3"]
    assert float(rows[1]["record"]) > 0  # what round 1 took to write is charged to round 2
    assert "global round 3 done in" in (folder / "run.log").read_text()


@pytest.mark.parametrize(
    "clock", [{}, {"asynchrony.rule": "fedbuff", "scaffold.enabled": False, "hierarchy.leaf-rounds": 1}]
)
def test_remarks_of_an_engine_are_notes_of_the_run(tmp_path, monkeypatch, clock):
    """After any round, also of the virtual clock: on Ray, a worker may die in each."""
    remarks = iter([(), ("a worker died",)])
    monkeypatch.setattr(InProcessGrid, "new_remarks", lambda _: next(remarks, ()))
    terminal = io.StringIO()
    config = small_config(tmp_path, cluster__enabled=False, gate__enabled=False)
    folder = simulate({**config, **clock}, terminal=terminal).folder
    assert terminal.getvalue().count("note: a worker died") == 2  # then, and at the end
    assert "a worker died" in read_manifest(folder)["remarks"]


def test_synthetic_data_are_never_silent(tmp_path):
    terminal = io.StringIO()
    config = small_config(tmp_path, data__path="synthetic", num_server_rounds=1, train__model="mlp-tiny")
    folder = simulate(config, terminal=terminal).folder
    words = "synthetic data: scores say nothing about people"
    assert f"note: {words}" in terminal.getvalue()
    assert words in (folder / "run.log").read_text()


def test_a_run_that_goes_on_says_from_where_and_what_has_changed(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("SEED", raising=False)
    folder = simulate(small_config(tmp_path, run_name="run"), terminal=io.StringIO()).folder
    assert main(["resume", str(folder), "-c", "num-server-rounds=3", "--workers", "1"]) == 0
    shown = capsys.readouterr().out
    assert f"resuming {folder} after global round 2" in shown
    assert "the last bits may differ" not in shown
    before = versions()
    monkeypatch.setattr(run_folder, "versions", lambda: {**before, "numpy": "9.9"})
    assert main(["resume", str(folder), "-c", "num-server-rounds=4", "--workers", "1"]) == 0
    words = f"note: the last bits may differ from here on: numpy was {before['numpy']}, is 9.9"
    assert words in capsys.readouterr().out
    resumed = read_manifest(folder)["resumed"]
    assert [entry["after_round"] for entry in resumed] == [2, 3]


def test_the_final_table_is_that_of_the_last_round(tmp_path):
    terminal = io.StringIO()
    folder = simulate(small_config(tmp_path), terminal=terminal).folder
    with (folder / "metrics" / "leaf_rounds.csv").open() as file:
        last = [row for row in csv.DictReader(file) if row["global_round"] == "2"]
    table = terminal.getvalue().splitlines()[-12:]
    for row in last:
        assert any(f"{float(row['test_accuracy']):.4f}" in line for line in table), table


@pytest.mark.skipif(torch.cuda.is_available(), reason="the second machine has no GPU")
def test_what_clients_compute_on_is_said_and_recorded(tmp_path, capsys, monkeypatch):
    """As on a machine with a GPU, and again on one without: the kernel's words follow."""
    terminal, gpu = io.StringIO(), "NVIDIA H100 80GB HBM3"
    options = {"num_server_rounds": 1, "train__kernel": "auto", "train__precision": "tf32"}
    config = small_config(tmp_path, run_name="run", **options)
    with monkeypatch.context() as machine:
        machine.setattr(client_app, "device_name", lambda _: gpu)
        folder = simulate(config, terminal=terminal, workers=2).folder
    lines = terminal.getvalue().splitlines()
    assert f"clients compute on {gpu}" in lines
    assert "note: train.kernel: PyTorch trains, since clients train on a GPU" in lines
    assert sum("train.cuda-graph: steps are not recorded as graphs, since 2 threads" in x for x in lines) == 2
    manifest = read_manifest(folder)
    assert manifest["devices"] == {gpu: 9}
    assert manifest["kernel"] == {"name": "torch", "why": "clients train on a GPU"}
    assert main(["resume", str(folder), "-c", "num-server-rounds=2", "--workers", "1"]) == 0
    shown = capsys.readouterr().out
    assert f"note: results may differ from here on: clients computed on {gpu}, now on the CPU\n" in shown
    assert "note: train.precision tf32 has no effect: clients compute on the CPU\n" in shown
    assert "\nclients compute on" not in shown
    assert read_manifest(folder)["devices"] == {"cpu": 9}


@pytest.mark.parametrize(
    ("precision", "names", "expected"),
    [
        pytest.param("bf16", ["NVIDIA H100"], [], id="GPUs round"),
        pytest.param(
            "bf16", ["NVIDIA H100", "cpu"], ["bf16: clients on the CPU compute in float32"], id="some round"
        ),
        pytest.param("bf16", ["cpu"], ["bf16 has no effect: PyTorch trains"], id="none rounds"),
        pytest.param(
            "tf32", ["NVIDIA H100", "cpu"], ["tf32: clients on the CPU compute in float32"], id="tf32 on some"
        ),
        pytest.param("tf32", ["NVIDIA H100"], [], id="tf32"),
    ],
)
def test_clients_that_do_not_round_products_are_said(tmp_path, monkeypatch, precision, names, expected):
    """By PyTorch; the native step rounds on a CPU, too."""
    terminal, devices = io.StringIO(), cycle(names)
    monkeypatch.setattr(client_app, "device_name", lambda _: next(devices))
    monkeypatch.setattr(client_app, "refuse_gpu_without_bf16", lambda _: None)
    monkeypatch.setenv("FEDGE_KERNEL", "torch")
    options = {"num_server_rounds": 1, "train__kernel": "auto", "train__precision": precision}
    simulate(small_config(tmp_path, **options), terminal=terminal, workers=1)
    told = [line for line in terminal.getvalue().splitlines() if "train.precision" in line]
    assert sorted(set(told)) == [f"note: train.precision {words}" for words in expected]
