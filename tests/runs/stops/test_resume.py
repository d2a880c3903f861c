"""Real runs that are killed (SIGKILL), go on, and end with the bytes of a run that nothing stopped."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from flower_runs import ROOT, comparable, write_overrides
from killed_runs import carry_out_with_kills, rounds_done, start, tiny, uninterrupted, wait_until

from fedge.cli import main

ADAM = {"scaffold.enabled": False, "leaf.strategy": "fedadam"}
# `fedge WORDS…` in a process in which something happens first: the code that is put in


@pytest.mark.parametrize(
    "extra",
    [pytest.param({}, marks=pytest.mark.extended), pytest.param(ADAM, marks=pytest.mark.extended)],
    ids=["scaffold", "fedadam"],
)
def test_killed_three_times_at_random_moments(tmp_path, extra):
    config = {**tiny(), **extra, "num-server-rounds": 12}
    folder = carry_out_with_kills(tmp_path, config, kills=3, seed=1)
    assert comparable(folder) == comparable(uninterrupted(tmp_path, config))
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["status"] == "completed"
    done = [entry["after_round"] for entry in manifest["resumed"]]
    assert len(done) == 3
    assert done == sorted(done)
    assert not list(folder.glob("data*"))


KILL = (
    "import os, signal, fedge.{module} as m\ncalls = []\noriginal = m.{name}\n"
    + """
def killed(*args, **kwargs):
    calls.append(args)
    if len(calls) == {call}:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(*args, **kwargs)
m.{name} = killed
"""
)


@pytest.mark.parametrize(
    ("name", "call", "goes_on_after"),
    [
        # round 2, before its first file: round 0 had one file, round 1 two
        pytest.param("_write_group", 4, 1, marks=pytest.mark.extended),
        pytest.param("_write_group", 5, 1, marks=pytest.mark.extended),  # between its files
        pytest.param("_manifest_bytes", 3, 1, marks=pytest.mark.extended),  # before its manifest
        ("_remove", 3, 1),  # before it gets its name
        pytest.param("prune", 3, 2, marks=pytest.mark.extended),  # once it has it
    ],
)
def test_killed_in_the_middle_of_a_checkpoint(tmp_path, name, call, goes_on_after):
    """The process kills itself at that call; nothing of the half-written checkpoint is taken for one.

    Kills before every file operation are in test_crash.py.
    """
    config = {**tiny(), "num-server-rounds": 4}
    overrides = write_overrides(tmp_path, {**config, "runs-dir": str(tmp_path / "runs")})
    module = "run.snapshot" if name == "prune" else "states.checkpoint"
    process = start(KILL.format(module=module, name=name, call=call), "run", ".", "-c", overrides)
    output, _ = process.communicate(timeout=900)
    assert process.returncode == -signal.SIGKILL, output
    folder = tmp_path / "runs" / "killed"
    assert rounds_done(folder) == 2
    assert (list((folder / "checkpoints").glob(".*.part")) != []) == (goes_on_after == 1)
    assert main(["resume", str(folder)]) == 0
    manifest = json.loads((folder / "manifest.json").read_text())
    assert [entry["after_round"] for entry in manifest["resumed"]] == [goes_on_after]
    assert comparable(folder) == comparable(uninterrupted(tmp_path, config))
    assert len(list((folder / "checkpoints").iterdir())) == 3  # final, and two rounds


def test_a_living_run_is_not_resumed(tmp_path):
    """By a second process, in one line; the first is not disturbed."""
    config = {**tiny(), "num-server-rounds": 10_000, "train.lr-decay": 1.0, "runs-dir": str(tmp_path)}
    process = start("", "run", ".", "-c", write_overrides(tmp_path, config))
    folder = tmp_path / "killed"
    wait_until(lambda: rounds_done(folder) > 1, process, "round 2")
    second = start("", "resume", str(folder))
    output, _ = second.communicate(timeout=900)
    assert (second.returncode, output.count("\n")) == (4, 1)
    assert "is still in progress; wait for it, or stop it" in output
    done = rounds_done(folder)
    wait_until(lambda: rounds_done(folder) > done, process, "another round")
    process.kill()
    process.communicate()


@pytest.mark.extended
def test_many_at_once(tmp_path):
    """They begin one name, share a folder of runs, go on with one run: nobody writes to another's."""
    config = {**tiny(), "num-server-rounds": 3, "runs-dir": str(tmp_path / "runs")}
    ends = together([["run", ".", "-c", write_overrides(tmp_path, config)]] * 3)
    assert sorted(code for code, _ in ends) == [0, 4, 4]
    refused = [output for code, output in ends if code == 4]
    assert all("run-name must be new, but " in output and output.count("\n") == 1 for output in refused)
    config["run-name"] = ""
    ends = together([["run", ".", "-c", write_overrides(tmp_path, config)]] * 3)
    assert [code for code, _ in ends] == [0, 0, 0]
    folders = [path for path in (tmp_path / "runs").iterdir() if not path.is_symlink()]
    whole = comparable(tmp_path / "runs" / "killed")
    assert len(folders) == 4
    assert all(comparable(folder) == whole for folder in folders)
    more = ["-c", "num-server-rounds=30"]
    ends = together([["resume", str(tmp_path / "runs" / "killed"), *more]] * 3)
    codes = [code for code, _ in ends]
    assert codes.count(0) >= 1
    assert set(codes) <= {0, 4}  # who comes when it is over is told that nothing is left to do
    assert all("is still in progress" in output for code, output in ends if code == 4)
    assert rounds_done(tmp_path / "runs" / "killed") == 30


def together(commands):
    """Carry out `fedge WORDS…` side by side; returns (exit code, output) of each."""
    processes = [start("", *words) for words in commands]
    outputs = [process.communicate(timeout=900)[0] for process in processes]
    return [(process.returncode, output) for process, output in zip(processes, outputs, strict=True)]


@pytest.mark.extended
def test_killed_on_ray_resumed_in_this_process(tmp_path, ray_home):
    """All processes of `flwr run`'s simulation die at once; engine and workers are others afterwards."""
    config = {**tiny(), "num-server-rounds": 400, "runs-dir": str(tmp_path / "runs")}
    program = Path(sys.executable).parent / "flower-simulation"
    words = ["--app", ".", "--num-supernodes", "9", "--run-config", write_overrides(tmp_path, config)]
    folder = tmp_path / "runs" / "killed"
    with (tmp_path / "output.txt").open("w") as output:
        process = subprocess.Popen([program, *words], cwd=ROOT, stdout=output, stderr=output, env=no_seed())
    try:
        wait_until(lambda: rounds_done(folder) >= 3, process, "round 3")
    finally:
        for one in [*psutil.Process(process.pid).children(recursive=True), process]:
            one.send_signal(signal.SIGKILL)
        process.wait()
    done = rounds_done(folder)
    assert done < 300
    rounds = ["-c", f"num-server-rounds={done + 2}"]
    assert main(["resume", str(folder), "--engine", "inprocess", "--workers", "2", *rounds]) == 0
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["engine"], manifest["resumed"][0]["engine"]) == ("flower", "inprocess")
    whole = uninterrupted(tmp_path, {**config, "num-server-rounds": done + 2})
    assert comparable(folder) == comparable(whole)


def no_seed():
    """The environment without SEED, which would win over the configuration."""
    return {name: value for name, value in os.environ.items() if name != "SEED"}


# --- a full disk --------------------------------------------------------------------------------------

# No file may grow beyond `limit` bytes once the name `before` is called for the third time.
LIMIT = (
    "import resource, fedge.{module} as m\ncalls = []\noriginal = {name}\n"
    + """
def limited(*args, **kwargs):
    calls.append(args)
    if len(calls) == 3:
        resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, resource.RLIM_INFINITY))
    return original(*args, **kwargs)
{name} = limited
"""
)


@pytest.mark.parametrize(
    ("module", "name", "limit", "telling"),
    [
        pytest.param(
            "records.recorder",
            "m.Recorder.write_round",
            1000,
            "cannot write metrics of ",
            marks=pytest.mark.extended,
        ),
        ("run.snapshot", "m.write_checkpoint", 2000, "cannot write checkpoint "),
    ],
)
def test_a_disk_that_is_full_ends_the_run_in_one_line(tmp_path, module, name, limit, telling):
    """Round 3's rows, or round 2's checkpoint: exit code 4, what was written before is whole and goes on."""
    config = {**tiny(), "num-server-rounds": 5, "runs-dir": str(tmp_path / "runs")}
    code = LIMIT.format(module=module, name=name, limit=limit)
    process = start(code, "run", ".", "-c", write_overrides(tmp_path, config))
    output, _ = process.communicate(timeout=900)
    assert process.returncode == 4, output
    lines = [line for line in output.splitlines() if line.startswith("fedge: ") and telling in line]
    assert len(lines) == 1, output
    assert "File too large" in lines[0]
    assert "Traceback" not in output
    folder = tmp_path / "runs" / "killed"
    assert main(["resume", str(folder)]) == 0
    assert comparable(folder) == comparable(uninterrupted(tmp_path, config))


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 24 MB in memory; only root may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"cannot mount a small file system: {error}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


# Something takes the last byte of the disk once three rounds are written.
FILL = """
import contextlib, fedge.records.recorder as m
calls, original = [], m.Recorder.write_round
def filling(*args, **kwargs):
    written = original(*args, **kwargs)
    calls.append(args)
    if len(calls) == 3:
        ballast = open({ballast!r}, "wb", buffering=0)
        for size in (2**20, 2**12, 1):
            with contextlib.suppress(OSError):
                while ballast.write(b"x" * size):
                    pass
    return written
m.Recorder.write_round = filling
"""


@pytest.mark.extended
def test_a_small_disk_that_fills_up(small_disk, tmp_path):
    """A real one, the second of its kind: test_crash.py fills the disk before every operation."""
    config = {**tiny(), "num-server-rounds": 5, "runs-dir": str(small_disk)}
    ballast, folder = small_disk / "ballast", small_disk / "killed"
    process = start(FILL.format(ballast=str(ballast)), "run", ".", "-c", write_overrides(tmp_path, config))
    output, _ = process.communicate(timeout=900)
    assert rounds_done(folder) == 3
    assert process.returncode == 4, output
    assert "No space left on device" in output
    assert "Traceback" not in output
    ballast.unlink()
    assert main(["resume", str(folder)]) == 0
    assert comparable(folder) == comparable(uninterrupted(tmp_path, config))
