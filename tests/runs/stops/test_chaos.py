"""SIGKILL of each process of a run on Ray, in each phase: how the run ends, and that nothing is left."""

import json
import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from ray_runs import ENDLESS, ROOT, RayRun

# says when its clients train, answer the cloud, answer the gates; slowly enough to be met there
PACED = """
import os, time
from pathlib import Path
from flwr.clientapp import ClientApp
from fedge import client_app
from fedge.exchange.evaluate import splits_to_evaluate

app = ClientApp()

def at(phase):
    Path(os.environ["FEDGE_TEST_PHASES"], phase).touch()
    time.sleep(0.2)

@app.query("hello")
def hello(message, context):
    at("hello")
    return client_app.hello(message, context)

@app.train()
def train(message, context):
    at("train")
    return client_app.train_round(message, context)

@app.evaluate()
def evaluate(message, context):
    at("evaluate" if len(splits_to_evaluate(message)) > 1 else "cloud")
    return client_app.evaluate_round(message, context)
"""
VICTIMS = ("flwr", "flower-simulati", "raylet", "gcs_server", "ray::ClientApp")
PHASES = ("start", "train", "cloud", "evaluate")
GONE_S = 20.0
SIGNALS = {"SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129}
MOMENTS = ("start", "hello", "train", "evaluate", "cloud", "checkpoint", "report")


@pytest.mark.parametrize(
    ("victim", "phase"),
    # all others with make soak
    [
        pytest.param(*it, marks=pytest.mark.extended)
        for it in (("flwr", "start"), ("flower-simulati", "train"))
    ],
)
def test_a_killed_process_leaves_nothing_behind(tmp_path, ray_home, victim, phase):
    kill_one(tmp_path, ray_home, victim, phase, gone_s=60.0)


@pytest.mark.extended
@pytest.mark.parametrize(
    ("program", "started"),
    [("fedge", "flower-simulati"), ("fedge", "flwr"), ("flwr", "flower-simulati")],
)
def test_a_starter_killed_before_the_started_has_loaded_fedge(tmp_path, ray_home, program, started):
    """The started cannot follow it then: all end nevertheless, and no file is left."""
    app, _, runs = paced_app(tmp_path)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    words = ["run", app, *(["--engine", "flower"] if program == "fedge" else [])]
    config = f"{ENDLESS} runs-dir='{runs}' run-name='it'"
    variables = {"TMPDIR": str(temporary), "FEDGE_TEST_PHASES": str(tmp_path / "phases")}
    with RayRun(tmp_path, *words, "-c", config, program=program, **variables) as run:
        run.wait_until(lambda: named(run, started), started)
        run.process.kill()
        run.process.wait(timeout=60)
        assert run.left(GONE_S) == []
        assert what_is_left(runs / "it", ray_home) == []
        assert list(temporary.iterdir()) == []


@pytest.mark.extended
def test_workers_killed_while_they_start_are_named(tmp_path, ray_home):
    """Ray itself waits ten minutes for each; `ENDLESS` lets the run wait as long."""
    app, _, runs = paced_app(tmp_path)
    words = ("run", app, "--engine", "flower", "-c", f"{ENDLESS} runs-dir='{runs}' run-name='it'")
    with RayRun(tmp_path, *words, program="fedge", FEDGE_TEST_PHASES=str(tmp_path)) as run:
        run.wait_until(lambda: starting_workers(run), "a worker that starts")
        deadline = time.monotonic() + 120
        while run.process.poll() is None and time.monotonic() < deadline:
            for worker in starting_workers(run):
                worker.kill()
            time.sleep(0.05)
        assert run.process.wait(timeout=60) == 4
        assert "workers of Ray died at the start" in run.output
        assert run.left(GONE_S) == []
        assert what_is_left(runs / "it", ray_home) == [], run.output


@pytest.mark.soak
def test_every_process_killed_in_every_phase(tmp_path, ray_home):
    """Prints how often, and how long what was left took to go."""
    took = []
    for victim in VICTIMS:
        for phase in PHASES:
            folder = tmp_path / f"{victim.strip(':')}-{phase}".replace(":", "")
            folder.mkdir()
            took.append(kill_one(folder, ray_home, victim, phase))
            shutil.rmtree(folder)
    kills = f"{len(took)} kills of {len(VICTIMS)} processes in {len(PHASES)} phases"
    print(f"\n{kills}; all gone {max(took):.1f} s after the run's end")


@pytest.mark.soak
def test_every_signal_in_every_moment(tmp_path, ray_home):
    """To `fedge run` on Ray, alone and with its whole group, as a terminal that is closed does it."""
    took = []
    for name, code in SIGNALS.items():
        for place, moment in enumerate(MOMENTS):
            folder = tmp_path / f"{name}-{moment}"
            folder.mkdir()
            took.append(signal_one(folder, ray_home, name, code, moment, to_group=place % 2 == 1))
            shutil.rmtree(folder)
    print(f"\n{len(took)} signals; all gone {max(took):.1f} s after the signal at the latest")


def signal_one(folder, ray_home, name, code, moment, to_group):
    """Send a signal to a run in some moment; returns the seconds until all was gone."""
    app, phases, runs = paced_app(folder)
    base = (
        ENDLESS
        if moment != "report"
        else ENDLESS.replace("=100000", "=2").replace("report=false", "report=true")
    )
    config = f"{base} cluster.signal='cross-loss' transfer.share-above-mb=0.0 runs-dir='{runs}' run-name='it'"
    words = ("run", app, "--engine", "flower", "-c", config)
    with RayRun(folder, *words, program="fedge", FEDGE_TEST_PHASES=str(phases)) as run:
        reach(run, moment, phases, runs / "it")
        number = getattr(signal, name)
        began = time.monotonic()
        if to_group:
            os.killpg(run.process.pid, number)
        else:
            run.process.send_signal(number)
        ended = run.process.wait(timeout=60)
        assert run.left(GONE_S) == []
        took = time.monotonic() - began
        assert what_is_left(runs / "it", ray_home) == [], run.output
        manifest = json.loads((runs / "it" / "manifest.json").read_text())
        found = (
            ended,
            manifest["status"],
            manifest["exit_code"],
            (manifest.get("reason") or "").split(" (")[0],
        )
        completed = [(one, "completed", 0, "") for one in (0, code)] if moment == "report" else []
        assert found in [(code, "failed", code, "interrupted"), *completed], run.output
        return took


def reach(run, moment, phases, folder):
    """Wait until a run is in some moment of its life."""
    there = {
        "start": (folder / "manifest.json").exists,
        "hello": (phases / "hello").exists,
        "checkpoint": lambda: list((folder / "checkpoints").glob(".*.part")),
        "report": (folder / "checkpoints" / "final.safetensors").exists,
    }
    if moment in there:
        run.wait_until(there[moment], moment)
        return
    run.wait_for(" 1/100000")
    for seen in phases.iterdir():
        seen.unlink()
    run.wait_until((phases / moment).exists, moment)


def paced_app(folder):
    """Make an app whose clients say what they do; returns its folder, that of what they say, that of runs."""
    app, phases, runs = folder / "app", folder / "phases", folder / "runs"
    app.mkdir()
    phases.mkdir()
    text = (ROOT / "pyproject.toml").read_text()
    (app / "pyproject.toml").write_text(text.replace("fedge.client_app:app", "paced:app"))
    (app / "paced.py").write_text(PACED)
    return app, phases, runs


def kill_one(folder, ray_home, victim, phase, gone_s=GONE_S):
    """Kill a process of a run in a phase; returns the seconds from the run's end until all was gone."""
    app, phases, runs = paced_app(folder)
    config = (
        f"{ENDLESS} cluster.signal='cross-loss' transfer.share-above-mb=0.0 runs-dir='{runs}' run-name='it'"
    )
    with RayRun(folder, "run", app, "-c", config, FEDGE_TEST_PHASES=str(phases)) as run:
        if phase == "start":
            run.wait_until(lambda: (runs / "it" / "manifest.json").exists() and named(run, victim), victim)
        else:
            run.wait_for(" 1/100000")
            for seen in phases.iterdir():
                seen.unlink()
            run.wait_until((phases / phase).exists, phase)
        named(run, victim)[0].kill()
        if victim == "ray::ClientApp" and phase != "start":
            run.wait_for(" 4/100000")  # it goes on without that client, and then with it
            assert run.output.count("note: a worker of Ray died") == 1
            run.process.kill()
        run.process.wait(timeout=120)
        began = time.monotonic()
        assert run.left(gone_s) == []
        took = time.monotonic() - began
        assert what_is_left(runs / "it", ray_home) == [], run.output
        manifest = json.loads((runs / "it" / "manifest.json").read_text())
        # who was killed cannot write that; everybody else's end is written down
        assert (manifest["status"], victim) in [
            ("running", "flower-simulati"),
            *(("failed", v) for v in VICTIMS),
        ]
        return took


def named(run, name):
    """The run's processes of a name, as the system has it."""
    found = []
    for process in run.processes():
        with suppress(psutil.Error):
            found += [process] if process.name().startswith(name) else []
    return found


def starting_workers(run):
    """The run's workers that Ray has started, and that have not yet told it so."""
    found = []
    for process in run.processes():
        with suppress(psutil.Error):
            words = process.cmdline()[:4]  # the raylet has the same among its further words
            found += [process] if any(word.endswith("default_worker.py") for word in words) else []
    return found


def what_is_left(folder, ray_home):
    """The files that only a running run has: state files, client windows, Ray's folders."""
    owners = [*Path("/dev/shm").glob("*fedge-states-*/owner"), *folder.glob("*fedge-states-*")]
    left = [owner for owner in owners if owner.is_dir() or str(folder) in owner.read_text()]
    left += folder.glob("data*")
    return [*left, *ray_home.glob("*")]
