"""SIGKILL of each process of a run on Ray, in each phase: how the run ends, and that nothing is left."""

import json
import shutil
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
app.query("hello")(client_app.hello)

def at(phase):
    Path(os.environ["FEDGE_TEST_PHASES"], phase).touch()
    time.sleep(0.2)

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


@pytest.mark.parametrize(
    ("victim", "phase"),
    [("flwr", "start"), ("flower-simulati", "train")],  # all others with make soak
)
def test_a_killed_process_leaves_nothing_behind(tmp_path, victim, phase):
    kill_one(tmp_path, victim, phase, gone_s=60.0)


@pytest.mark.soak
def test_every_process_killed_in_every_phase(tmp_path):
    """Prints how often, and how long what was left took to go."""
    took = []
    for victim in VICTIMS:
        for phase in PHASES:
            folder = tmp_path / f"{victim.strip(':')}-{phase}".replace(":", "")
            folder.mkdir()
            took.append(kill_one(folder, victim, phase))
            shutil.rmtree(folder)
    kills = f"{len(took)} kills of {len(VICTIMS)} processes in {len(PHASES)} phases"
    print(f"\n{kills}; all gone {max(took):.1f} s after the run's end")


def kill_one(folder, victim, phase, gone_s=GONE_S):
    """Kill a process of a run in a phase; returns the seconds from the run's end until all was gone."""
    app, phases, runs = folder / "app", folder / "phases", folder / "runs"
    app.mkdir()
    phases.mkdir()
    text = (ROOT / "pyproject.toml").read_text()
    (app / "pyproject.toml").write_text(text.replace("fedge.client_app:app", "paced:app"))
    (app / "paced.py").write_text(PACED)
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
        simulation = named(run, "flower-simulati")
        named(run, victim)[0].kill()
        if victim == "ray::ClientApp" and phase != "start":
            run.wait_for(" 4/100000")  # it goes on without that client, and then with it
            run.process.kill()
        run.process.wait(timeout=120)
        began = time.monotonic()
        assert run.left(gone_s) == []
        took = time.monotonic() - began
        assert what_is_left(runs / "it", simulation) == [], run.output
        manifest = json.loads((runs / "it" / "manifest.json").read_text())
        # who was killed cannot write that; everybody else's end is written down
        assert (manifest["status"], victim) in [
            ("running", "flower-simulati"),
            *(("failed", v) for v in VICTIMS),
        ]
        return took


def named(run, name):
    """Return the run's processes of a name, as the system has it."""
    found = []
    for process in run.processes():
        with suppress(psutil.Error):
            found += [process] if process.name().startswith(name) else []
    return found


def what_is_left(folder, simulation):
    """Return the files that only a running run has: state files, client windows, Ray's folder."""
    owners = [*Path("/dev/shm").glob("*fedge-states-*/owner"), *folder.glob("*fedge-states-*")]
    left = [owner for owner in owners if owner.is_dir() or str(folder) in owner.read_text()]
    left += folder.glob("data*")
    return left + [path for s in simulation if (path := Path(f"/tmp/ray/f{s.pid}")).exists()]
