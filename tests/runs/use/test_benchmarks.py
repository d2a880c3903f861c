"""Benchmarks' replacements of Fedge's own parts still fit."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from any_networks import needs_native

from benchmarks.engines import carry_out, write_windows
from benchmarks.grouping.truth import CASES, CONFIG
from benchmarks.plain import PlainRound, Trained
from benchmarks.works import WORKS
from fedge.config.flat import from_run_config
from fedge.launch.projects.project import flatten, read_toml
from fedge.native.plan import Plan, plan_of
from hhar.windows.window_file import load_windows


@pytest.mark.extended
def test_clients_that_do_not_train_are_believed(tmp_path):
    """Two epochs of three windows, one a step: every reply counts, or `carry_out` refuses the run."""
    data = tmp_path / "windows.npz"
    write_windows(data, [3] * 3, [2] * 3, channels=1, samples=4, classes=2)
    config = {
        "num-server-rounds": 1, "data.path": str(data), "train.model": "linear", "train.local-epochs": 2,
        "train.batch-size": 1, "scaffold.enabled": False, "report": False,
    }  # fmt: skip
    code = "from benchmarks.echo import main; main()"
    command = [sys.executable, "-c", code, "inprocess", "echo", "0"]
    run = carry_out("inprocess", config, tmp_path / "run", 3, command=command)
    assert len(run.round_s(0)) == 1


def test_cases_are_configurations_that_nothing_refuses():
    """Each with the options of `configs/fedge.toml` and leaves of equal size."""
    for case in CASES.values():
        options = {**flatten(read_toml(CONFIG, "config")), "hierarchy.num-servers": case.leaves}
        options |= {"num-server-rounds": case.rounds, "data.path": ", ".join(case.data)}
        config = from_run_config({**options, **case.options})
        assert case.clients % case.leaves == 0
        assert config.cluster.deals


@pytest.mark.parametrize("name", WORKS)
@pytest.mark.parametrize("evaluated", [False, True])
def test_works_are_written_in_their_shape(tmp_path, name, evaluated):
    work = replace(WORKS[name], sizes=(70, 70, 70))
    work.write(tmp_path / "windows.npz", evaluated)
    windows = load_windows(str(tmp_path / "windows.npz"))
    held = 15 if evaluated else 12
    assert windows.x.shape == (3 * (70 + 2 * held), *work.shape)
    assert work.network()(torch.from_numpy(windows.x[:2])).shape == (2, work.classes)


@pytest.mark.parametrize("name", WORKS)
def test_the_plain_pool_averages_every_works_network(name):
    """Nine clients that send their leaf's model back leave all as it was; a counter is one number."""
    done = PlainRound([32] * 9, 1, name)
    before = done.models[0]
    done.take([Trained(client, before, 1, 1.0) for client in range(9)])
    for entry, array in done.models[0].items():
        np.testing.assert_allclose(torch.from_numpy(array), before[entry], rtol=1e-6, atol=1e-7)


@needs_native
@pytest.mark.parametrize("name", WORKS)
def test_the_native_step_knows_all_works(name):
    work = WORKS[name]
    assert isinstance(plan_of(work.network(), work.shape), Plan)


def test_arithmetic_of_a_window_by_hand():
    """Of the GRU 3 × 64 × (6 + 64) weights at 128 steps, of the head 64 × 6, each twice; three times in all
    but for the gradient of the input, 2 × 3 × 64 × 6 at 128 steps."""
    recurrent, head = 2 * 3 * 64 * 70 * 128, 2 * 64 * 6
    assert WORKS["gru"].flop_per_window() == 3 * (recurrent + head) - 2 * 3 * 64 * 6 * 128
    first = 2 * 9 * 32 * 26 * 26
    rest = 2 * 9 * 32 * 64 * 24 * 24 + 2 * 64 * 144 * 128 + 2 * 1280
    assert WORKS["mnist"].flop_per_window() == 2 * first + 3 * rest
