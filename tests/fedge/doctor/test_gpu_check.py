"""The self-check of GPUs: all that means anything on a CPU is carried out there; on a GPU all of it."""

import json

import numpy as np
import pytest
import torch

from fedge.cli import main
from fedge.config.registers.option import ConfigError
from fedge.doctor import gpu_check, gpu_speeds
from fedge.doctor.gpu_check import BAD, GOOD, SKIPPED, all_checks, check_gpus, distance, same
from fedge.doctor.project_network import project_network
from fedge.engine.federation import Federation
from fedge.launch.preflight import check
from fedge.training.device_speeds import recorded_speeds, setting
from fedge.training.networks.models import build_model

pytestmark = pytest.mark.whole_runs


@pytest.mark.extended
@pytest.mark.skipif(torch.cuda.is_available(), reason="there the check is of the GPU")
def test_on_a_cpu_the_same_code_finds_the_same_bits():
    found = {one.name: one for one in all_checks("cpu")}
    assert {name for name, one in found.items() if one.state == BAD} == set(), found
    assert {name for name, one in found.items() if one.state == SKIPPED} == {
        "precision", "memory of a client", "memory runs out", "this project", "cnn: clients batched",
        "cnn-pool: clients batched",
    }  # fmt: skip
    assert "cannot be batched" in found["cnn: clients batched"].words  # in the layout of a CPU
    batched = found["gru: clients batched"].figures
    assert batched["is_same"]
    assert batched["distance"] < 1e-5
    figures = found["cnn: bits, speeds"].figures
    assert figures["same"] == {"two trainings": True, "graph and plain": True}
    assert figures["fastest"] in figures["ms"]


@pytest.mark.extended
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu_nothing_fails(tmp_path):
    assert check_gpus(file=tmp_path / "gpu.json") == 0


def test_a_check_that_breaks_is_a_line_and_the_others_go_on(tmp_path, monkeypatch, capsys):
    """Windows that cannot be trained on break every check that trains."""

    def broken():
        raise RuntimeError("CUDA error: an illegal memory access\nmore")

    monkeypatch.setattr(gpu_check, "_generate_windows", broken)
    monkeypatch.setattr(
        gpu_check, "_check_whole_runs", lambda device: gpu_check.GpuCheck("", GOOD, "same models")
    )
    file = tmp_path / "gpu.json"
    failed = check_gpus("cpu", file)
    told = json.loads(file.read_text())
    states = [one["state"] for one in told["checks"]]
    assert failed == states.count(BAD) == 9
    assert told["checks"][8]["state"] == GOOD
    assert states[-1] == SKIPPED  # without a project
    assert "illegal memory access more" in told["checks"][0]["words"]
    assert len(capsys.readouterr().out.splitlines()) == len(states)


def test_a_projects_network_is_measured_and_remembered_for_its_runs(tmp_path, monkeypatch):
    """With the windows and options of the run, on two cores and, in place of a GPU, on one."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(gpu_speeds, "_SECONDS", 0.01)
    monkeypatch.setattr(gpu_speeds, "available_cores", lambda: 2)
    options = {"data.path": "synthetic", "train.model": "linear", "train.batch-size": 8}
    federation = Federation(4)
    found = gpu_check._check_project(lambda: project_network(options, federation), "cpu")
    assert found.state == GOOD
    assert "train.device auto takes" in found.words
    prepared = check(options, federation)
    shape = prepared.shape
    model = build_model("linear", shape.input_shape, shape.classes, torch.Generator().manual_seed(9))
    speeds = recorded_speeds(setting(model, shape.input_shape, prepared.config.train))
    assert found.figures == {"cores": speeds.cores, "plain": speeds.plain, "graph": speeds.graph}
    assert min(found.figures.values()) > 10


def test_a_project_whose_run_cannot_work_is_skipped_with_the_reason():
    def broken():
        raise ConfigError("data.path must exist")

    found = gpu_check._run_check("", gpu_check._check_project, broken, "cpu")
    assert (found.state, found.words) == (SKIPPED, "the project's run cannot work: data.path must exist")


def test_bits_and_distances():
    """Of a largest weight of 4 another is .5 away: an eighth; one bit is none of the same."""
    one = {"w": np.array([1.0, -4.0], np.float32), "n": np.array([3])}
    other = {"w": np.array([1.5, -4.0], np.float32), "n": np.array([3])}
    assert distance(one, other) == 0.125
    assert same(one, {name: array.copy() for name, array in one.items()})
    assert not same(one, {**one, "w": np.nextafter(one["w"], np.float32(9))})
    assert not same(one, {"w": one["w"]})


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_is_said_in_a_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", "--gpu"]) == 4
    assert "--gpu needs an NVIDIA GPU that PyTorch can use" in capsys.readouterr().err
    assert not (tmp_path / gpu_check.FILE).exists()
