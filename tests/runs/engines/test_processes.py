"""Runs whose clients train on several processes: results, deaths in mid-round, what is left after an end.

Real runs as their users start them; both engines.
"""

import json

import numpy as np
import psutil
import pytest
import torch
from flower_runs import comparable, one_worker_run
from ray_runs import RayRun
from small_data import nine_users

from fedge import load_run, simulate
from fedge.client.process_team import first_gpu
from fedge.parallel.member import device_of
from fedge.process.resources.memory import TRAINER


def options(tmp_path, name, **changes):
    """The options of a run of two rounds on nine users."""
    return {
        "num-server-rounds": 2, "seed": 3, "report": False, "train.local-epochs": 2, "train.batch-size": 8,
        # without a kink, at which the order of sums could decide more than a last bit
        "train.model": "linear",
        "data.path": str(nine_users()), "runs-dir": str(tmp_path / "runs"), "run-name": name,
        **{key.replace("__", ".").replace("_", "-"): value for key, value in changes.items()},
    }  # fmt: skip


def written(tmp_path, config):
    """The path of a file with these options."""
    path = tmp_path / f"{config['run-name']}.toml"
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in config.items()))
    return path


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A run with two processes per client, and its folder's parent."""
    tmp_path = tmp_path_factory.mktemp("processes")
    before = set(psutil.Process().children())  # a tracker's, of a test before
    with (tmp_path / "terminal.txt").open("w") as terminal:
        run = simulate(options(tmp_path, "two", train__processes=2), workers=1, terminal=terminal)
    assert run.status == "completed", run.reason
    assert set(psutil.Process().children()) <= before
    return run


@pytest.mark.extended  # of models without runs: tests/fedge/parallel/test_team.py
def test_two_processes_train_as_one_does(tmp_path, undisturbed):
    """Equal to one process but for the order of sums; the processes are in the memory table."""
    with (tmp_path / "terminal.txt").open("w") as terminal:
        one = simulate(options(tmp_path, "one"), workers=1, terminal=terminal)
    for leaf in (0, 1, 2):
        ours, theirs = undisturbed.models()[leaf], one.models()[leaf]
        for name in theirs:
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-5, atol=1e-5, err_msg=name)
    memory = undisturbed.memory
    assert memory["role"].to_list().count("trainer") == 2 * 2  # in each of two rounds


@pytest.mark.extended
def test_a_process_killed_in_mid_round_changes_no_bit(tmp_path, undisturbed):
    """The client's call is tried again on new processes."""
    config = options(tmp_path, "killed", train__processes=2)
    words = ["run", "--workers", "1", "-c", written(tmp_path, config)]
    with RayRun(tmp_path, *words, program="fedge") as run:
        run.wait_until(lambda: len(run.named(TRAINER)) == 2, "processes that train")
        run.wait_for("round 1/2")
        run.named(TRAINER)[0].kill()
        assert run.process.wait(120) in (0, 3)
        assert run.left() == []
    assert comparable(load_run(tmp_path / "runs" / "killed").folder) == comparable(undisturbed.folder)


@pytest.mark.extended
def test_a_killed_run_leaves_no_process(tmp_path):
    config = options(tmp_path, "endless", train__processes=2, num_server_rounds=100_000, train__lr_decay=1.0)
    words = ["run", "--workers", "1", "-c", written(tmp_path, config)]
    with RayRun(tmp_path, *words, program="fedge") as run:
        run.wait_for("accuracy")
        run.process.kill()
        assert run.left() == []


@pytest.mark.extended
def test_rays_workers_have_processes_of_their_own(tmp_path, undisturbed):
    config = options(tmp_path, "ray", train__processes=2)
    process = one_worker_run(tmp_path, config, seed="3")
    assert process.returncode == 0, process.stderr
    assert comparable(tmp_path / "runs" / "ray") == comparable(undisturbed.folder)


def test_teams_of_a_process_take_turns_at_its_gpus():
    """Two teams of two on four GPUs: 0 and 1, 2 and 3; a third one shares with the first."""
    places = [
        [device_of({"device": "cuda", "first_gpu": first_gpu(team, 2, 4)}, rank).index for rank in range(2)]
        for team in range(3)
    ]
    assert places == [[0, 1], [2, 3], [0, 1]]
    assert [first_gpu(team, 3, 4) for team in range(2)] == [0, 0]  # no room for two
    assert first_gpu(5, 2, 2) == 0  # what a worker of Ray sees is its own
    assert device_of({"device": "cpu", "first_gpu": 2}, 1) == torch.device("cpu")
