"""Runs on a Ray cluster whose machines see nothing of the server's files: three nodes in namespaces."""

import json
import shutil

import pytest
from flower_runs import ROOT, SMALL, comparable, write_overrides
from ray_cluster import is_possible, run_on_cluster

from fedge import load_run, simulate

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(not is_possible(), reason="this machine allows no namespaces"),
]

CONFIG = {**SMALL, "num-server-rounds": 2, "seed": 5}


@pytest.fixture(scope="module")
def in_process(tmp_path_factory):
    """The same run on threads of this process."""
    folder = tmp_path_factory.mktemp("in-process")
    with (folder / "terminal.txt").open("w") as terminal:
        config = {**CONFIG, "runs-dir": str(folder), "run-name": "whole"}
        return simulate(config, num_supernodes=9, terminal=terminal).folder


def project(tmp_path):
    """Make a project's folder, which no other node sees."""
    shutil.copyfile(ROOT / "pyproject.toml", tmp_path / "pyproject.toml")
    shutil.copyfile(ROOT / "README.md", tmp_path / "README.md")
    return tmp_path


def words(tmp_path, **more):
    overrides = write_overrides(tmp_path, {**CONFIG, "run-name": "cluster", **more})
    return ["run", "--engine", "flower", "-c", overrides]


def test_nodes_without_a_common_file_system_give_the_same_bits(tmp_path, in_process):
    """Windows come through the object store, models in messages; all three nodes work."""
    done = run_on_cluster(project(tmp_path), *words(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    folder = tmp_path / "runs" / "cluster"
    assert comparable(folder) == comparable(in_process)
    assert load_run(folder).workers["worker"].n_unique() == 3
    assert json.loads((folder / "manifest.json").read_text())["status"] == "completed"
