"""How runs end, as their users see it: exit codes, manifests, `fedge status`, and nothing left behind.

Real processes, real signals, both engines.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from killed_runs import rounds_done
from processes import MARK, marked
from small_data import nine_users

from fedge.cli import main

ROOT = Path(__file__).parents[3]


def quick():
    """The options of a run that is soon done."""
    return f"report=false data.path='{nine_users()}' train.model='linear' train.local-epochs=1"


def endless():
    """The options of a run that only a signal ends."""
    return f"{quick()} num-server-rounds=100000 train.lr-decay=1.0 guard.start-timeout=600.0"


def environment(**variables):
    """This environment with this project's programs first on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    found = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **variables}
    found.pop("SEED", None)
    return found


def fedge(*words):
    """The command line of `fedge`."""
    return [sys.executable, "-m", "fedge.cli", *map(str, words)]


def broken_fedge(fault, *words):
    """The command line of `fedge` with a line of Python carried out before it."""
    code = f"import sys, time\n{fault}\nsys.argv[0] = 'fedge'\nfrom fedge.cli import main\nsys.exit(main())"
    return [sys.executable, "-c", code, *map(str, words)]


def finish(command, timeout=900, **options):
    """Run a command to its end."""
    env = options.pop("env", None) or environment()
    return subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=timeout, check=False, **options
    )


def manifest_of(runs):
    """The manifest of the last run, as it is written."""
    return json.loads((runs / "latest" / "manifest.json").read_text())


def status_of(runs):
    """Exit code and output of `fedge status`."""
    process = finish(fedge("status", "--runs-dir", runs))
    return process.returncode, process.stdout + process.stderr


def assert_report_or_note(runs, output, reason):
    """Assert that the report says the reason or, if there was no time for it, how to write it."""
    folder = (runs / "latest").resolve()
    note = f"note: the run's report is not written yet; write it with fedge report {folder}\n"
    if note in output:
        assert not (folder / "report.html").exists()
    else:
        assert f"The run failed: {reason}" in (folder / "report.html").read_text(), output


class Started:
    """A run that has finished its second round, with all processes below it."""

    def __init__(self, command):
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
        self.output = ""
        for line in self.process.stdout:
            self.output += line
            if line.startswith("round") and "2/100000" in line:
                break
        self.below = psutil.Process(self.process.pid).children(recursive=True)

    def end(self, timeout):
        """Wait for the end; returns the exit code."""
        self.output += self.process.communicate(timeout=timeout)[0]
        return self.process.returncode

    def left(self):
        """Processes below that are still there."""
        return [p for p in self.below if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize(
    ("engine", "number", "code"),
    [
        ("inprocess", signal.SIGTERM, 143),
        pytest.param("flower", signal.SIGTERM, 143, marks=pytest.mark.extended),
    ],
)
def test_a_signal_ends_the_run_and_all_its_processes(tmp_path, engine, number, code):
    """Exit code 128 + signal, manifest and report with the reason, finished rounds; no process left.

    How soon: test_chaos.py. Ctrl-C: tests/runs/engines/test_terminal.py.
    """
    options = endless().replace("report=false ", "")
    run = Started(fedge("run", "--engine", engine, "-c", f"{options} runs-dir='{tmp_path}'"))
    assert (len(run.below) > 3) == (engine == "flower"), run.output
    run.process.send_signal(number)
    assert run.end(timeout=60) == code, run.output
    assert psutil.wait_procs(run.below, timeout=60)[1] == []
    assert "Traceback" not in run.output
    assert run.output.count("resume with: fedge resume ") == 1
    manifest = manifest_of(tmp_path)
    reason = "interrupted (SIGTERM)"
    assert (manifest["status"], manifest["exit_code"], manifest["reason"]) == ("failed", code, reason)
    assert not (tmp_path / "latest" / "data").exists()
    assert len((tmp_path / "latest" / "metrics" / "global_rounds.csv").read_text().splitlines()) >= 3
    # on Flower, usually another process than the signalled one writes the page; it knows less of the reason
    assert_report_or_note(tmp_path, run.output, reason if engine == "inprocess" else "interrupted")
    if engine == "inprocess":
        found, text = status_of(tmp_path)
        assert found == code
        assert f"reason: {reason}\nnext: fedge resume {(tmp_path / 'latest').resolve()}\n" in text


@pytest.mark.extended
def test_a_simulation_that_cannot_answer_a_signal_has_its_end_said_for_it(tmp_path):
    """It hangs, and is killed: the lines and the report are those of a run that ends by itself."""
    options = endless().replace("report=false ", "")
    run = Started(fedge("run", "--engine", "flower", "-c", f"{options} runs-dir='{tmp_path}'"))
    simulations = [one for each in psutil.Process(run.process.pid).children() for one in each.children()]
    assert simulations
    for simulation in simulations:
        simulation.suspend()
    run.process.send_signal(signal.SIGINT)
    assert run.end(timeout=60) == 130, run.output
    folder = (tmp_path / "latest").resolve()
    lines = [line for line in run.output.splitlines() if line.startswith(("fedge:", "run folder", "resume"))]
    assert lines[-3:] == [
        "fedge: interrupted", f"run folder: {folder} (failed; see run.log)",
        f"resume with: fedge resume {folder}",
    ]  # fmt: skip
    assert_report_or_note(tmp_path, run.output, "interrupted")
    assert psutil.wait_procs(run.below, timeout=60)[1] == []


@pytest.mark.extended
def test_a_killed_simulation_has_its_report_written_for_it(tmp_path):
    """As when memory runs out: one line, exit code 4, and the finished rounds as a page."""
    options = endless().replace("report=false ", "")
    run = Started(fedge("run", "--engine", "flower", "-c", f"{options} runs-dir='{tmp_path}'"))
    for each in psutil.Process(run.process.pid).children():
        for simulation in each.children():
            simulation.kill()
    assert run.end(timeout=120) == 4, run.output
    folder, reason = (tmp_path / "latest").resolve(), manifest_of(tmp_path)["reason"]
    assert run.output.endswith(
        f"\nfedge: {reason}\nrun folder: {folder} (failed; see run.log)\n"
        f"once the cause is fixed, resume with: fedge resume {folder}\nreport: {folder / 'report.html'}\n"
    )
    assert f"The run failed: {reason}" in (folder / "report.html").read_text()
    assert psutil.wait_procs(run.below, timeout=60)[1] == []


@pytest.mark.extended
def test_ctrl_c_while_flower_starts(tmp_path):
    """The run folder is there, Ray is not yet: exit code 130, nothing is left."""
    command = fedge("run", "--engine", "flower", "-c", f"{endless()} runs-dir='{tmp_path}'")
    with (tmp_path / "output.txt").open("w") as output:
        process = subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=output, stderr=output)
    try:
        while not (tmp_path / "latest" / "manifest.json").exists():
            assert process.poll() is None, (tmp_path / "output.txt").read_text()
            time.sleep(0.05)
        below = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130, (tmp_path / "output.txt").read_text()
    finally:
        process.terminate()
        process.wait(timeout=60)
    assert len(below) >= 2
    assert not [p for p in below if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    manifest = manifest_of(tmp_path)
    assert (manifest["status"], manifest["reason"]) == ("failed", "interrupted")


@pytest.mark.extended
def test_ctrl_c_of_a_plain_flwr_run_is_in_the_manifest(tmp_path):
    """A terminal's Ctrl-C goes to all processes at once; Flower 1.25 kills its simulation 0.25 s later.

    That is enough to say what happened and how to go on.
    """
    run = Started(["flwr", "run", ".", "-c", f"{endless()} runs-dir='{tmp_path}'"])
    os.killpg(run.process.pid, signal.SIGINT)
    run.end(timeout=60)
    _, alive = psutil.wait_procs(run.below, timeout=60)  # the reaper ends Ray's helpers
    assert alive == []
    manifest = manifest_of(tmp_path)
    if manifest["status"] == "running" and os.getloadavg()[0] > 2 * (os.cpu_count() or 1):
        pytest.skip("Flower's 0.25 s are too short for anything on a machine that is so busy")
    assert (manifest["status"], manifest["exit_code"]) == ("failed", 130)
    assert manifest["reason"] == "interrupted"
    assert run.output.count("fedge: interrupted\n") == 1
    assert "(failed; see run.log)\nresume with: fedge resume " in run.output


def test_a_run_that_was_stopped_goes_on_and_a_killed_one_is_known_to_have_died(tmp_path):
    """Ctrl-Z, and fg after longer than a stall may take: nobody is given up. SIGKILL leaves "running" in the

    manifest; whoever reads it looks whether the process is there.
    """
    limits = "guard.stall-timeout=4 guard.client-timeout=4"
    run = Started(fedge("run", "-c", f"{endless()} {limits} runs-dir='{tmp_path}'"))
    run.process.send_signal(signal.SIGSTOP)
    time.sleep(6)
    code, text = status_of(tmp_path)
    assert (code, ": running, global round " in text, " of 100000\n" in text) == (1, True, True)
    done = rounds_done(tmp_path / "latest")
    run.process.send_signal(signal.SIGCONT)
    while rounds_done(tmp_path / "latest") < done + 3:
        assert run.process.poll() is None, run.end(timeout=60) or run.output
        time.sleep(0.02)
    run.process.kill()
    run.end(timeout=60)
    manifest = manifest_of(tmp_path)
    assert (manifest["status"], manifest.get("remarks", [])) == ("running", [])
    assert "failed" not in run.output
    code, text = status_of(tmp_path)
    assert code == 4
    assert ": failed, global round " in text
    assert f"reason: died: process {run.process.pid} ended without notice" in text


# --- stalls -------------------------------------------------------------------------------------------

HANGING_CLIENT = "import fedge.client_app as c; c.train = lambda *a, **k: time.sleep(600)"
HANGING_SERVER = "import fedge.cloud.step as c; c.OpenStep.finish = lambda *a: time.sleep(600)"


@pytest.mark.extended
@pytest.mark.parametrize("fault", [
    pytest.param(HANGING_CLIENT, id="client"),
    pytest.param(HANGING_SERVER, id="server"),
])  # fmt: skip
def test_a_run_in_which_nothing_happens_ends_as_stalled(tmp_path, fault):
    """A client that hangs is noticed by the waiting server, a server that hangs by its watchdog."""
    config = f"{quick()} num-server-rounds=2 guard.stall-timeout=5 runs-dir='{tmp_path}'"
    process = finish(broken_fedge(fault, "run", "-c", config))
    assert process.returncode == 5, process.stdout + process.stderr
    manifest = manifest_of(tmp_path)
    assert (manifest["status"], manifest["exit_code"]) == ("failed", 5)
    assert "stalled: no reply and no finished step for 5 s (guard.stall-timeout)" in manifest["reason"]
    assert manifest["reason"] in process.stdout
    log = (tmp_path / "latest" / "run.log").read_text()
    assert "stacks of all threads" in log
    assert "in <lambda>" in log  # the culprit
    assert not (tmp_path / "latest" / "data").exists()


HANGING_APP = """
import time
from flwr.clientapp import ClientApp
from fedge import client_app

app = ClientApp()
app.query("hello")(client_app.hello)

@app.train()
def train(message, context):
    time.sleep(600)
"""


def project(folder, old, new, **files):
    """Make an app of Fedge's pyproject.toml with one change in it."""
    text = (ROOT / "pyproject.toml").read_text()
    assert old in text
    folder.mkdir()
    (folder / "pyproject.toml").write_text(text.replace(old, new, 1))
    for name, content in files.items():
        (folder / f"{name}.py").write_text(content)
    return folder


@pytest.mark.extended
def test_hanging_workers_stall_a_run_on_ray(tmp_path):
    """Ray's workers hang, so Flower would wait for ever: exit code 5, and the workers are gone."""
    app = project(tmp_path / "app", "fedge.client_app:app", "hanging:app", hanging=HANGING_APP)
    config = f"{quick()} guard.stall-timeout=8 runs-dir='{tmp_path / 'runs'}'"
    mark = {MARK: str(tmp_path)}
    process = finish(fedge("run", app, "--engine", "flower", "-c", config), env=environment(**mark))
    assert process.returncode == 5, process.stdout + process.stderr
    manifest = manifest_of(tmp_path / "runs")
    assert manifest["exit_code"] == 5
    assert "data" in manifest  # the clients had said hello
    assert not [p for p in marked(tmp_path) if "ClientAppActor" in p.name()]


# --- engines that cannot work -------------------------------------------------------------------------


def test_an_engine_that_does_not_start_is_one_line_and_exit_4(tmp_path):
    """Ray refuses an option: the run does not wait for its clients, and the manifest has Ray's words."""
    app = project(
        tmp_path / "app",
        "options.num-supernodes = 9\n",
        "options.num-supernodes = 9\noptions.backend.init-args.bogus = 1\n",
    )
    process = finish(
        fedge("run", app, "--engine", "flower", "-c", f"{quick()} runs-dir='{tmp_path / 'runs'}'")
    )
    assert process.returncode == 4, process.stdout + process.stderr
    reason = manifest_of(tmp_path / "runs")["reason"]
    assert reason.startswith("the simulation engine did not start: Unknown keyword argument(s): bogus;")
    assert f"fedge: {reason}\n" in process.stdout
    assert "Traceback" not in process.stdout + process.stderr


CANNOT = {
    "address": ({"RAY_ADDRESS": "127.0.0.1:9"}, [], "RAY_ADDRESS must name a Ray cluster that answers"),
    "folder": (
        {"RAY_TMPDIR": "/proc"},
        [],
        "RAY_TMPDIR must be a folder that Ray can write to, but /proc/ray",
    ),
    "gpu": ({"CUDA_VISIBLE_DEVICES": ""}, ["local-simulation-gpu"], "this machine has no usable GPU"),
}


def told(text, telling, runs):
    """Assert that one line of Fedge's is all that was said, and that nothing was begun."""
    (line,) = text.strip().splitlines()
    assert line.startswith("fedge: "), line
    assert telling in line
    assert not runs.exists()


@pytest.mark.parametrize("what", CANNOT)
def test_what_ray_cannot_do_is_refused_before_it_starts(tmp_path, monkeypatch, capsys, what):
    """One line and exit code 4 from `fedge run`; called here, since no process is started."""
    variables, federation, telling = CANNOT[what]
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SEED", raising=False)
    config = f"{quick()} runs-dir='{tmp_path / 'runs'}'"
    assert main(["run", str(ROOT), *federation, "-c", config, "--engine", "flower"]) == 4
    told(capsys.readouterr().err, telling, tmp_path / "runs")


@pytest.mark.parametrize(
    "what", ["address", *(pytest.param(what, marks=pytest.mark.extended) for what in ("folder", "gpu"))]
)
def test_what_ray_cannot_do_is_refused_while_flower_loads_the_app(tmp_path, what):
    """The same from `flwr run`."""
    variables, federation, telling = CANNOT[what]
    words = ["flwr", "run", ".", *federation, "-c", f"{quick()} runs-dir='{tmp_path / 'runs'}'"]
    process = finish(words, env=environment(**variables))
    assert process.returncode == 4
    told(process.stderr, telling, tmp_path / "runs")


def test_more_cpus_per_client_than_there_are(tmp_path, capsys):
    app = project(tmp_path / "app", "client-resources.num-cpus = 1 ", "client-resources.num-cpus = 4096 ")
    config = f"{quick()} runs-dir='{tmp_path / 'runs'}'"
    assert main(["run", str(app), "--engine", "flower", "-c", config]) == 4
    told(capsys.readouterr().err, "num-cpus must be above 0 and at most the ", tmp_path / "runs")


# --- a disk that is full ------------------------------------------------------------------------------


@pytest.mark.extended
def test_a_table_that_cannot_be_written_ends_the_run(tmp_path):
    """test_crash.py fills the disk before every operation; here once in a process.

    File size limit of 10 kB, once the client data (1 MB) are written: partition.csv is larger.
    """
    config = f"{endless()} runs-dir='{tmp_path}'"
    process = finish(
        broken_fedge(
            "import fedge.data.prepared as d, resource\n"
            "write = d.write_client_data\n"
            "def limited(*a):\n"
            "    shape = write(*a)\n"
            "    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))\n"
            "    return shape\n"
            "import fedge.run.carry_out as r; r.write_client_data = limited",
            "run", "-c", config,
        )
    )  # fmt: skip
    assert process.returncode == 4, process.stdout + process.stderr
    manifest = manifest_of(tmp_path)
    assert (manifest["status"], manifest["exit_code"]) == ("failed", 4)
    assert manifest["reason"].startswith("cannot write partition.csv of ")
    assert manifest["reason"].endswith(
        "; allow larger files (ulimit -f), then start the run again"
    )  # no checkpoint is there yet
    assert "File too large" in manifest["reason"]
    assert f"fedge: {manifest['reason']}\n" in process.stdout
    assert "Traceback" not in process.stdout + process.stderr
    assert not (tmp_path / "latest" / "data").exists()
    code, text = status_of(tmp_path)
    assert code == 4
    assert "next: see " in text


@pytest.mark.extended
def test_a_log_on_a_full_device_ends_the_run(tmp_path):
    """run.log leads to /dev/full: a run whose warnings are lost does not go on, and says so once."""
    if not Path("/dev/full").exists():
        pytest.skip("this machine has no /dev/full")
    fault = (
        "import fedge.run.preparation.run_folder as r, os\n"
        "create = r.create_run_folder\n"
        "def full(*a):\n"
        "    folder = create(*a)\n"
        "    os.symlink('/dev/full', folder / 'run.log')\n"
        "    return folder\n"
        "r.create_run_folder = full"
    )
    process = finish(broken_fedge(fault, "run", "-c", f"{quick()} num-server-rounds=3 runs-dir='{tmp_path}'"))
    assert process.returncode == 4, process.stdout + process.stderr
    manifest = manifest_of(tmp_path)
    assert "run.log: No space left on device" in manifest["reason"]
    assert process.stderr == ""
    assert "Traceback" not in process.stdout
