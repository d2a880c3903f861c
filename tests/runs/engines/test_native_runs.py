"""Runs with the native step: the same bytes whatever drives the clients and after a break; what is said."""

import io
import json

import pytest
from any_networks import kernels, needs_native
from flower_runs import comparable
from ray_runs import ROOT, RayRun

from fedge import simulate
from fedge.native.library import best_kernel

TINY = {
    "report": False, "data.path": "synthetic", "train.model": "cnn", "train.local-epochs": 1, "seed": 5,
    "num-server-rounds": 2, "train.kernel": "native", "scaffold.levels": 2,
}  # fmt: skip


def carry_out(runs, name, workers=2, **changes):
    """Run TINY with changes; returns the folder and what the terminal showed."""
    terminal = io.StringIO()
    changes = {key.replace("__", ".").replace("_", "-"): value for key, value in changes.items()}
    config = {**TINY, "runs-dir": str(runs), "run-name": name, **changes}
    outcome = simulate(config, workers=workers, terminal=terminal)
    assert outcome.status == "completed", outcome.reason
    return outcome.folder, terminal.getvalue()


def on_ray(runs, name, folder, config):
    """Carry out a configuration by Flower on Ray."""
    options = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
    with RayRun(folder, "run", str(ROOT), "-c", f"{options} runs-dir='{runs}' run-name='{name}'") as run:
        run.process.wait(timeout=900)
    assert manifest(runs / name)["status"] == "completed", run.output


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("native")


@pytest.fixture(scope="module")
def whole(runs):
    """A run of two global rounds."""
    return carry_out(runs, "whole")[0]


@needs_native
def test_the_manifest_names_the_kernel(whole):
    assert manifest(whole)["kernel"]["name"].removeprefix("native ") in kernels()
    assert manifest(whole)["config"]["train.kernel"] == "native"


@needs_native
def test_any_number_of_workers_gives_the_same_bytes(whole, runs):
    one, _ = carry_out(runs, "one", workers=1)
    assert comparable(one) == comparable(whole)


@needs_native
def test_a_run_that_goes_on_gives_the_same_bytes(whole, runs):
    carry_out(runs, "broken", num_server_rounds=1)
    again, said = carry_out(runs, "", resume=str(runs / "broken"))
    assert "the kernel was" not in said
    assert comparable(again) == comparable(whole)


@pytest.mark.extended
@needs_native
def test_ray_gives_the_same_bytes(whole, runs, tmp_path):
    on_ray(runs, "ray", tmp_path, TINY)
    assert manifest(runs / "ray")["kernel"] == manifest(whole)["kernel"]
    assert comparable(runs / "ray") == comparable(whole)


@needs_native
@pytest.mark.skipif(len(kernels()) < 2, reason="this processor has one kernel")
def test_another_kernel_than_before_is_said(runs, monkeypatch):
    """As after a move to another machine, and as on one that has a better one besides."""
    changes = {"train__model": "linear", "num_server_rounds": 1}
    monkeypatch.setenv("FEDGE_KERNEL", best_kernel())
    folder, _ = carry_out(runs, "moved", **changes)
    best = best_kernel()
    monkeypatch.setenv("FEDGE_KERNEL", "plain")
    _, said = carry_out(runs, "", resume=str(folder), **{**changes, "num_server_rounds": 2})
    assert f"the kernel was native {best}, is native plain" in said
    monkeypatch.delenv("FEDGE_KERNEL")
    _, said = carry_out(runs, "", resume=str(folder), **{**changes, "num_server_rounds": 3})
    assert "the kernel was" not in said
    assert manifest(folder)["kernel"]["name"] == "native plain"


def test_without_it_pytorch_trains_and_says_so_once(runs, monkeypatch):
    """The same bytes as without the option."""
    monkeypatch.setenv("FEDGE_KERNEL", "none-such")
    folder, said = carry_out(runs, "without", train__kernel="auto", train__model="linear")
    lines = [line for line in said.splitlines() if "train.kernel: PyTorch trains" in line]
    assert len(lines) == 1
    assert manifest(folder)["kernel"]["name"] == "torch"
    plain, _ = carry_out(runs, "plain", train__kernel="torch", train__model="linear")
    assert comparable(plain) == comparable(folder)


def test_native_is_refused_where_it_cannot_be(runs, monkeypatch):
    monkeypatch.setenv("FEDGE_KERNEL", "none-such")
    with pytest.raises(ValueError, match=r"^train\.kernel native needs the native step, but "):
        carry_out(runs, "refused")
