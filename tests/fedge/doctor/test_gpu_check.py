"""The self-check of GPUs: all that means anything on a CPU is carried out there; on a GPU all of it."""

import json

import numpy as np
import pytest
import torch

from fedge.cli import main
from fedge.doctor import gpu_check
from fedge.doctor.gpu_check import BAD, GOOD, SKIPPED, all_checks, check_gpus, distance, same

pytestmark = pytest.mark.whole_runs


@pytest.mark.extended
@pytest.mark.skipif(torch.cuda.is_available(), reason="there the check is of the GPU")
def test_on_a_cpu_the_same_code_finds_the_same_bits():
    found = {one.name: one for one in all_checks("cpu")}
    assert {name for name, one in found.items() if one.state == BAD} == set(), found
    assert {name for name, one in found.items() if one.state == SKIPPED} == {
        "precision", "memory of a client", "memory runs out"
    }  # fmt: skip
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

    monkeypatch.setattr(gpu_check, "_windows", broken)
    monkeypatch.setattr(gpu_check, "_whole_runs", lambda device: gpu_check.GpuCheck("", GOOD, "same models"))
    file = tmp_path / "gpu.json"
    failed = check_gpus("cpu", file)
    told = json.loads(file.read_text())
    states = [one["state"] for one in told["checks"]]
    assert failed == states.count(BAD) == 5
    assert states[-1] == GOOD
    assert "illegal memory access more" in told["checks"][0]["words"]
    assert len(capsys.readouterr().out.splitlines()) == len(states)


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
