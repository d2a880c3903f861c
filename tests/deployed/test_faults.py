"""Faults of a deployment of real processes: the fault, the user's view, and whose bits come out.

`make soak` prints the faults of docs/machines.md: `-m soak tests/deployed/test_faults.py -s`.
"""

import json
import signal
import subprocess
import time

import psutil
import pytest
from deployment import BIN, ONE_PORT, Deployment, wait_until, words_of
from flower_runs import comparable
from small_runs import carry_out, small_config

from fedge.launch.deal import deal_into

NODES = 3
TABLES = ("global", "leaf", "clients", "confusion", "models")
CAME_FIRST = "round 1"

pytestmark = pytest.mark.soak


class Faults:
    """A deployment of three nodes that is whole again before each fault."""

    def __init__(self, folder):
        options = small_config(
            folder / "data", hierarchy__num_servers=2, clients=NODES, num_server_rounds=2, scaffold__levels=2
        )
        deal_into(folder / "dealt", options)
        self.folder = folder
        self.expected = carry_out({**options, "runs-dir": str(folder / "here")}, "here")
        self.deployment = Deployment(
            folder, {**options, "data.path": "nowhere.npz", "runs-dir": "runs", "guard.retries": 1}
        )
        self.deployment.start_superlink()
        self.deployment.register(NODES)

    def fix(self, nodes=NODES):
        """Start what does not run."""
        if self.deployment.superlink.poll() is not None:
            self.deployment.start_superlink()
        for node in range(nodes):
            self.start(node)

    def start(self, node, windows=None):
        """Start a node, unless it runs."""
        there = self.deployment.nodes.get(node)
        if there is None or there.poll() is not None:
            windows = node if windows is None else windows
            self.deployment.start_node(node, NODES, self.folder / "dealt" / f"client-{windows}")

    def run(self, *words, command="run"):
        """Start a command of Fedge in the user's project."""
        return Command(self, [str(BIN / "fedge"), command, *words])


class Command:
    """A command of Fedge in the background."""

    def __init__(self, faults, words):
        self.deployment = faults.deployment
        self.faults = faults
        self.log = faults.folder / f"command-{time.monotonic_ns()}.log"
        self.began = time.monotonic()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                words, cwd=self.deployment.app, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=self.deployment.environment(faults.folder / "user", SEED="3"),
            )  # fmt: skip

    @property
    def said(self):
        """Output so far."""
        return self.log.read_text(errors="replace")

    def wait_for(self, text, seconds=180):
        """Wait until it has printed something."""

        def is_so():
            assert self.process.poll() is None or text in self.said, self.said
            return text in self.said

        wait_until(is_so, seconds, f"{text!r} in {self.log}")

    def wait(self, seconds=420):
        """Wait for its end; returns the exit code."""
        return self.process.wait(seconds)


@pytest.fixture(scope="module")
def faults(tmp_path_factory):
    there = Faults(tmp_path_factory.mktemp("faults"))
    with_table = []
    there.rows = with_table
    try:
        yield there
    finally:
        there.deployment.stop()
        for row in with_table:
            print("|", " | ".join(map(str, row)), "|")


@pytest.fixture
def run(faults, request):
    """Start a run on a whole deployment; gives the command."""
    faults.fix()
    name = request.node.name
    command = faults.run(".", "deployed", "-c", f'run-name="{name}"')
    command.folder = faults.deployment.app / "runs" / name
    yield command
    if command.process.poll() is None:
        command.process.send_signal(signal.SIGINT)
        command.wait(60)
    print(f"--- {name}: {time.monotonic() - command.began:.0f} s\n{command.said}")


def is_as_if_nothing_had_been(faults, folder):
    """Tell whether a run folder has the bits of the run in process."""
    found = comparable(folder)
    return all(found[name] == faults.expected[name] for name in TABLES)


def status(folder):
    return json.loads((folder / "manifest.json").read_text())["status"]


def work_of(node):
    """Wait until a node has a ClientApp; return its process."""
    parent = psutil.Process(node.pid)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for child in parent.children():
            if "flower-supernode" not in (words_of(child) or "flower-supernode"):
                return child
        time.sleep(0.01)
    raise AssertionError("no ClientApp came")


def supernode_of(node):
    """The process of Flower's SuperNode in a `fedge node`."""
    (found,) = [c for c in psutil.Process(node.pid).children() if "flower-supernode" in words_of(c)]
    return found


def test_a_node_is_killed_and_comes_back(faults, run):
    run.wait_for(CAME_FIRST)
    node = faults.deployment.nodes[1]
    work_of(node)
    node.kill()
    node.wait()
    faults.start(1)
    assert run.wait() == 0, run.said
    assert is_as_if_nothing_had_been(faults, run.folder)


def test_a_node_is_killed_and_stays_away(faults, run):
    run.wait_for(CAME_FIRST)
    node = faults.deployment.nodes[1]
    work_of(node)
    node.kill()
    node.wait()
    assert run.wait() == 3, run.said
    assert status(run.folder) == "partial"
    assert "node gone" in run.said


DROPS = """
import os, sys
from pathlib import Path

if "flower-supernode" in sys.orig_argv:
    from flwr.supernode.nodestate.in_memory_nodestate import InMemoryNodeState

    before, replies = InMemoryNodeState.get_message_processing_duration, Path(os.environ["REPLIES"])

    def duration(self, message_id):
        replies.write_text(replies.read_text() + ".")
        if len(replies.read_text()) in (1, 4):
            raise ValueError(f"Start time or end time for message ID {message_id} is missing.")
        return before(self, message_id)

    InMemoryNodeState.get_message_processing_duration = duration
"""


@pytest.mark.skipif(ONE_PORT, reason="as Flower 1.25 does it")
def test_replies_come_before_their_times_are_noted(faults, tmp_path):
    """Flower 1.25 drops them: here the first answer, and one to work. Nothing is lost, nothing restarted."""
    faults.fix()
    faults.deployment.nodes[1].terminate()
    faults.deployment.nodes[1].wait()
    (tmp_path / "sitecustomize.py").write_text(DROPS)
    replies = tmp_path / "replies"
    replies.write_text("")
    windows = faults.folder / "dealt" / "client-1"
    more = {"PYTHONPATH": str(tmp_path), "REPLIES": str(replies)}
    node = faults.deployment.start_node(1, NODES, windows, "untimed", **more)
    try:
        run = faults.run(".", "deployed", "-c", 'run-name="untimed"')
        assert run.wait() == 0, run.said
    finally:
        node.terminate()
        node.wait()
    said = (faults.folder / "untimed.log").read_text()
    assert len(replies.read_text()) >= 4
    assert "Failed to send" not in said, said[-3000:]
    assert "restarting" not in said, said[-3000:]
    assert is_as_if_nothing_had_been(faults, faults.deployment.app / "runs" / "untimed")


def test_a_client_app_is_killed(faults, run):
    run.wait_for(CAME_FIRST)
    work_of(faults.deployment.nodes[1]).kill()
    assert run.wait() == 0, run.said
    assert is_as_if_nothing_had_been(faults, run.folder)


def test_a_node_is_stopped_for_a_while(faults, run):
    run.wait_for(CAME_FIRST)
    work_of(faults.deployment.nodes[1])
    halted = supernode_of(faults.deployment.nodes[1])
    halted.suspend()
    time.sleep(15)
    halted.resume()
    assert run.wait() == 0, run.said
    assert is_as_if_nothing_had_been(faults, run.folder)


def test_a_node_is_stopped_for_long(faults, run):
    run.wait_for(CAME_FIRST)
    work_of(faults.deployment.nodes[1])
    halted = supernode_of(faults.deployment.nodes[1])
    halted.suspend()
    code = run.wait()
    halted.resume()
    assert code == 3, run.said
    assert "node gone" in run.said


def test_a_node_joins_late(faults):
    faults.fix()
    faults.deployment.nodes[2].terminate()
    faults.deployment.nodes[2].wait()
    command = faults.run(".", "deployed", "-c", 'run-name="late"')
    time.sleep(20)
    faults.start(2)
    assert command.wait() == 0, command.said
    assert is_as_if_nothing_had_been(faults, faults.deployment.app / "runs" / "late")


def test_a_node_that_never_joins_is_named(faults):
    faults.fix()
    faults.deployment.nodes[2].terminate()
    faults.deployment.nodes[2].wait()
    command = faults.run(".", "deployed", "-c", 'run-name="never" guard.start-timeout=20')
    assert command.wait() == 4
    assert "missing: partition 2" in command.said


def test_a_node_comes_back_with_other_windows(faults, run):
    run.wait_for(CAME_FIRST)
    node = faults.deployment.nodes[1]
    work_of(node)
    node.kill()
    node.wait()
    faults.start(1, windows=0)
    assert run.wait() == 3, run.said
    assert "the windows of partition 1 must be those of the start of the run, but are others" in run.said
    faults.deployment.nodes[1].terminate()
    faults.deployment.nodes[1].wait()


def test_two_nodes_hold_one_partition(faults):
    faults.fix(nodes=2)
    if faults.deployment.nodes.get(2) and faults.deployment.nodes[2].poll() is None:
        faults.deployment.nodes[2].terminate()
        faults.deployment.nodes[2].wait()
    double = faults.deployment.start("double", [
        "fedge", "node", 1, "--of", NODES, "--superlink", f"127.0.0.1:{faults.deployment.fleet}",
        "--certs", double_certs(faults), "--data-folder", faults.folder / "dealt" / "client-1",
    ])  # fmt: skip
    try:
        command = faults.run(".", "deployed", "-c", 'run-name="double"')
        assert command.wait() == 4
        assert "says that it holds partition 1, but its key is that of partition 2" in command.said
    finally:
        double.terminate()
        double.wait()


def double_certs(faults):
    """A folder of certificates whose node-1 has the key of node 2."""
    folder = faults.folder / "double-certs"
    folder.mkdir(exist_ok=True)
    for name, there in (("ca.crt", "ca.crt"), ("node-2", "node-1"), ("node-2.pub", "node-1.pub")):
        (folder / there).write_bytes((faults.deployment.certs / name).read_bytes())
    return folder


def resumed(faults, folder):
    """Go on with a run; return the command."""
    command = faults.run(str(folder), "--federation", "deployed", command="resume")
    assert command.wait() == 0, command.said
    return command


def test_ctrl_c_and_resume(faults, run):
    run.wait_for(CAME_FIRST)
    run.process.send_signal(signal.SIGINT)
    assert run.wait() == 130, run.said
    assert f"fedge: run stopped; resume with: fedge resume {run.folder} " in run.said
    wait_until(lambda: status(run.folder) == "failed", 60, "the run has ended")
    resumed(faults, run.folder)
    assert is_as_if_nothing_had_been(faults, run.folder)


def test_fedge_run_is_killed_and_the_run_goes_on(faults, run):
    run.wait_for(CAME_FIRST)
    run.process.kill()
    run.wait()
    wait_until(lambda: status(run.folder) == "completed", 120, "the run has ended")
    assert is_as_if_nothing_had_been(faults, run.folder)


def test_the_server_app_is_killed_and_the_run_resumed(faults, run):
    run.wait_for(CAME_FIRST)
    below = psutil.Process(faults.deployment.superlink.pid).children(recursive=True)
    (app,) = [p for p in below if "flwr-serverapp" in words_of(p)]
    app.kill()
    assert run.wait() == 4, run.said
    assert (
        f"the run's server was killed or has crashed; resume with: fedge resume {run.folder} --app ."
        in run.said
    )
    resumed(faults, run.folder)
    assert is_as_if_nothing_had_been(faults, run.folder)


def test_the_superlink_is_killed_and_the_run_resumed(faults, run):
    run.wait_for(CAME_FIRST)
    faults.deployment.superlink.kill()
    faults.deployment.superlink.wait()
    code = run.wait()
    assert code == 4, run.said
    assert "no longer answers; start fedge superlink there again; resume with: fedge resume" in run.said
    time.sleep(2)
    faults.fix()
    resumed(faults, run.folder)
    assert is_as_if_nothing_had_been(faults, run.folder)


def test_a_run_goes_on_without_a_node_that_is_gone_for_good(faults, run):
    run.wait_for(CAME_FIRST)
    run.process.send_signal(signal.SIGINT)
    assert run.wait() == 130, run.said
    wait_until(lambda: status(run.folder) == "failed", 60, "the run has ended")
    gone = faults.deployment.nodes[2]
    gone.kill()
    gone.wait()
    words = (str(run.folder), "--federation", "deployed", "-c", "guard.start-timeout=90")
    refused = faults.run(*words, command="resume")
    assert refused.wait() == 4, refused.said
    assert "missing: partition 2; " in refused.said
    assert "begin without it by guard.start-clients=2" in refused.said
    without = faults.run(*words, "-c", "guard.start-clients=2", command="resume")
    assert without.wait() == 3, without.said
    assert "1 of 3 clients is missing (partition 2); the run begins without them" in without.said
    assert status(run.folder) == "partial"


def test_no_superlink_is_said_in_one_line(faults):
    faults.fix()
    faults.deployment.superlink.terminate()
    faults.deployment.superlink.wait()
    command = faults.run(".", "deployed", "-c", 'run-name="none"')
    assert command.wait() == 4
    assert command.said.count("\n") == 1, command.said
    assert "SuperLink" in command.said
