"""Real runs through `flwr run` on Ray, as a user starts them."""

import fcntl
import json
import os
import subprocess
import time
from pathlib import Path

import pytest
from any_networks import kernels
from flower_runs import (
    ROOT,
    SERVING,
    SMALL,
    comparable,
    flwr_run,
    one_worker_run,
    without,
    write_overrides,
)
from processes import leftovers
from small_data import nine_users
from timing_sums import assert_times_add_up

from fedge import simulate
from fedge.config.flat import options
from fedge.launch.preflight import check_flwr_run


@pytest.fixture(scope="session")
def smoke(tmp_path_factory):
    """The smoke run: five global rounds of the default run on Ray, once for all processes that test."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "smoke"
    folder.mkdir(exist_ok=True)
    ended = folder / "ended.json"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ended.exists():
            config = {"num-server-rounds": 5, "runs-dir": str(folder / "runs"), "data.path": "synthetic"}
            process = flwr_run(folder, config, seed="42", mark=folder)
            left = [str(one) for one in leftovers(folder, wait_s=5.0)]
            ended.write_text(
                json.dumps([process.args, process.returncode, process.stdout, process.stderr, left])
            )
    *process, left = json.loads(ended.read_text())
    assert left == [], "processes were left behind"
    return subprocess.CompletedProcess(*process), folder / "runs" / "latest"


def test_smoke_config_is_the_smoke_run():
    """configs/smoke.toml changes nothing but the number of rounds."""
    assert (ROOT / "configs" / "smoke.toml").read_text().splitlines()[-1] == "num-server-rounds = 5"


def test_smoke_run_completes(smoke):
    """The manifest says completed, names seed, data, engine, versions, and all options."""
    process, run = smoke
    assert process.returncode == 0, process.stdout + process.stderr
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["status"] == "completed"
    assert (manifest["seed"], manifest["seed_source"], manifest["engine"]) == (42, "environment", "flower")
    assert manifest["data"]["synthetic"] is True
    assert len(manifest["data"]["fingerprint"]) == 64
    assert set(manifest["config"]) == set(options())
    assert manifest["federation"]["num-supernodes"] == 9
    assert {"flwr", "ray", "torch", "numpy"} <= set(manifest["versions"])
    assert manifest["started"] <= manifest["ended"]


def test_smoke_run_leaves_its_files(smoke):
    """Five rows of rounds, 15 of leaves, 45 of clients, five cluster lines; no copy of the data."""
    _, run = smoke
    counts = {"global_rounds.csv": 5, "leaf_rounds.csv": 15, "clients.csv": 45}
    for table, count in counts.items():
        assert len(without((run / "metrics" / table).read_text())) == count
    assert len((run / "clusters.jsonl").read_text().splitlines()) == 5
    roles = {row["role"] for row in without((run / "memory.csv").read_text())}
    assert roles == {"server", "worker", "ray", "other"}  # the last is what cleans up after a kill
    assert_times_add_up(run, messages_per_round=18)
    assert all(float(row["uss_mib"]) > 0 for row in without((run / "memory.csv").read_text())[:2])
    assert (run / "checkpoints" / "final.safetensors").stat().st_size > 3 * 23174 * 4
    assert not (run / "data").exists()


def test_smoke_run_is_quiet(smoke):
    """The terminal shows what a person reads: Flower's two lines and ours; warnings are in run.log."""
    process, run = smoke
    lines = [line for line in (process.stdout + process.stderr).splitlines() if line.strip()]
    assert len(lines) <= 25, "\n".join(lines)
    assert sum(line.startswith("round ") for line in lines) == 5
    assert not any(
        word in line for line in lines for word in ("Warning", "WARNING", "INFO", "Traceback", "pid=")
    )
    assert any("synthetic data" in line for line in lines)
    assert any(str(run.resolve().name) in line for line in lines)
    assert (run / "run.log").stat().st_size > 0


def test_the_smoke_run_has_the_bits_of_one_in_process(smoke, tmp_path):
    """Contract C3, for the default run: Ray with its workers, and threads in this process; native steps."""
    config = {"num-server-rounds": 5, "data.path": "synthetic", "seed": 42, "report": False}
    with (tmp_path / "terminal.txt").open("w") as terminal:
        outcome = simulate({**config, "runs-dir": str(tmp_path)}, terminal=terminal)
    on_ray, in_process = comparable(smoke[1]), comparable(outcome.folder)
    for part in on_ray:
        assert on_ray[part] == in_process[part], f"{part} differs"
    told, here = (json.loads((folder / "manifest.json").read_text()) for folder in (smoke[1], outcome.folder))
    assert told["config"]["train.kernel"] == here["config"]["train.kernel"] == "auto"
    assert told["kernel"] == here["kernel"]
    name = here["kernel"]["name"]
    assert (name.removeprefix("native ") in kernels()) if kernels() else name == "torch"


@pytest.mark.extended
@pytest.mark.parametrize("workers", ["all", "one"])
def test_engines_and_workers_give_the_same_bits(tmp_path, workers):
    """Contract C3: Ray with its workers, Ray with one worker, and threads in this process."""
    # two levels of SCAFFOLD have what one has, too
    config = {**SMALL, **SERVING, "scaffold.levels": 2, "data.path": nine_users()}
    run = {"all": flwr_run, "one": one_worker_run}[workers]
    process = run(tmp_path, {**config, "runs-dir": str(tmp_path / "ray")})
    folder = tmp_path / "ray" / "latest"
    assert (folder / "manifest.json").is_file(), process.stdout + process.stderr
    memory = without((folder / "memory.csv").read_text())
    pids = {row["pid"] for row in memory if row["role"] == "worker"}
    assert (len(pids) == 1) == (workers == "one")
    with (tmp_path / "terminal.txt").open("w") as terminal:
        outcome = simulate({**config, "seed": 5, "runs-dir": str(tmp_path / "inprocess")}, terminal=terminal)
    on_ray, in_process = comparable(folder), comparable(outcome.folder)
    for part in on_ray:
        assert on_ray[part] == in_process[part], f"{part} differs"


CANNOT = [
    ((), {"train.lrr": 0.1}, "train.lrr is not a configuration key; did you mean train.lr?"),
    ((), {"cluster.tau": "high"}, "cluster.tau must be a number"),
    ((), {"data.path": "nowhere.npz"}, "nowhere.npz"),
    ((), {"hierarchy.clients-per-server": "4,4,2"}, "adds up to 10 and there are 9"),
    (("local-simulation-gpu",), {}, "this machine has no usable GPU"),
    ((), {"train.device": "cuda"}, "the federation gives clients no GPU"),
]


def skip_with_a_gpu(words):
    if words == ("local-simulation-gpu",) and Path("/dev/nvidia0").exists():
        pytest.skip("this machine has a GPU")


@pytest.mark.parametrize(("words", "config", "telling"), CANNOT)
def test_what_cannot_work_is_refused_as_flower_loads_the_app(
    tmp_path, monkeypatch, capsys, words, config, telling
):
    """Contract C10: one line, exit code 4; called here, since nothing is started."""
    skip_with_a_gpu(words)
    monkeypatch.setenv("SEED", "5")
    overrides = write_overrides(tmp_path, {**config, "runs-dir": str(tmp_path / "runs")})
    with pytest.raises(SystemExit) as ended:
        check_flwr_run([str(ROOT), *words, "-c", overrides])
    assert ended.value.code == 4
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("fedge: ")
    assert telling in line
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("words", "config", "telling"),
    [CANNOT[0], *(pytest.param(*case, marks=pytest.mark.extended) for case in CANNOT[1:])],
)
def test_what_cannot_work_is_refused_in_one_line(tmp_path, words, config, telling):
    """Contract C10: before Flower starts anything, with a failing exit code."""
    skip_with_a_gpu(words)
    began = time.monotonic()
    process = flwr_run(tmp_path, {**config, "runs-dir": str(tmp_path / "runs")}, *words)
    assert time.monotonic() - began < 30
    assert process.returncode == 4
    (line,) = process.stderr.strip().splitlines()
    assert line.startswith("fedge: ")
    assert telling in line
    assert not (tmp_path / "runs").exists()


@pytest.mark.extended
def test_a_run_that_fails_on_ray_says_so_and_ends(tmp_path):
    """Clients that all fail: one line, manifest failed, the process ends by itself."""
    config = {**SMALL, "train.lr": 1e6, "train.clip-norm": 0.0, "runs-dir": str(tmp_path / "runs")}
    process = flwr_run(tmp_path, config, timeout=120)
    manifest = json.loads((tmp_path / "runs" / "latest" / "manifest.json").read_text())
    assert (manifest["status"], manifest["exit_code"]) == ("failed", 4)
    assert "no client could train in global round 1; client 0: FloatingPointError: " in manifest["reason"]
    assert "Traceback" not in process.stdout + process.stderr
    assert manifest["reason"] in process.stdout
