"""A Ray cluster of machines that see nothing of each other's files, on one machine, loopback only.

Carried out as a program in namespaces of its own (``unshare``): there is no interface but the loopback one,
each further node has its own /tmp, /dev/shm, process ids and clock, and all ends with the program.
"""

import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[3]
ADDRESS = "127.0.0.2:6379"
_BIN = Path(sys.executable).parent
_ALONE = ["unshare", "--user", "--map-root-user", "--mount", "--net", "--pid", "--fork", "--kill-child",
          "--mount-proc"]  # fmt: skip
_NODE = ["unshare", "--mount", "--pid", "--time", "--fork", "--kill-child", "--mount-proc"]
_OWN_FILES = "mount -t tmpfs tmpfs /dev/shm; mount -t tmpfs tmpfs /tmp; exec"
_START_S = 240.0
_LOSE = "FEDGE_TEST_LOSE"


def is_possible():
    """Tell whether this machine lets us make namespaces, with a loopback interface and file systems."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    words = [*_ALONE, "sh", "-c", "ip link set lo up && mount -t tmpfs tmpfs /dev/shm"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def run_on_cluster(folder, *words, timeout=900, lose="", python=sys.executable):
    """Carry out ``fedge WORDS`` in a folder on a cluster of three nodes; returns the finished process.

    Args:
        folder: of the project.
        words: of the command.
        timeout: seconds.
        lose: "for good": one of the further nodes dies while it has a client at work, after global round 1;
            "and back": another takes its place a global round later; "joins": none dies, and after global
            round 1 one more comes.
        python: of the environment that all of it runs in.
    """
    program = [*_ALONE, str(python), __file__, *map(str, words)]
    path = f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), _LOSE: lose}
    environment.update(RAY_USAGE_STATS_ENABLED="0", FLWR_TELEMETRY_ENABLED="0", RAY_ADDRESS=ADDRESS)
    environment.pop("SEED", None)
    return subprocess.run(
        program, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )


def main(*words):
    """Start the cluster, carry out the run; the exit code is the run's."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    temporary = Path(f"/tmp/fr{time.monotonic_ns() % 10**9}")
    with open("cluster.log", "w") as log:
        _ray(log, [], "--head", "--port=6379", "--include-dashboard=false", f"--temp-dir={temporary}", host=2)
        _wait_for_head()
        further = [_ray(log, _NODE, f"--address={ADDRESS}", host=host) for host in (3, 4)]
        _wait_for_nodes(3)
        run = subprocess.Popen([sys.executable, "-m", "fedge.cli", *words])
        if (lose := os.environ.get(_LOSE)) == "joins":
            _wait_for_round(run, 1)
            _ray(log, _NODE, f"--address={ADDRESS}", host=5)
        elif lose:
            _kill_at_work(run, further[-1])
            if lose == "and back":
                _wait_for_round(run, _rounds() + 1)
                _ray(log, _NODE, f"--address={ADDRESS}", host=5)
        code = run.wait()
    shutil.rmtree(temporary, ignore_errors=True)
    os._exit(code)


def _rounds():
    """Number of global rounds that the run named "cluster" has done."""
    with suppress(OSError):
        return len(Path("runs/cluster/metrics/global_rounds.csv").read_text().splitlines()) - 1
    return 0


def _wait_for_round(run, count):
    """Wait until so many global rounds are done."""
    while _rounds() < count and run.poll() is None:
        time.sleep(0.05)


def await_work(run, machine):
    """Wait until a machine, whose process this is, has a client at work, after global round 1."""
    import psutil

    _wait_for_round(run, 1)
    while run.poll() is None:
        with suppress(psutil.Error):
            below = psutil.Process(machine.pid).children(recursive=True)
            if any("ClientAppActor.run" in " ".join(process.cmdline()) for process in below):
                return
        time.sleep(0.01)


def _kill_at_work(run, node):
    """Kill a node and all on it, after global round 1, while it has a client at work."""
    await_work(run, node)
    node.kill()
    print(f"node lost after global round {_rounds()}", flush=True)


def _ray(log, within, *words, host):
    """Start a node with one core."""
    command = [str(_BIN / "ray"), "start", f"--node-ip-address=127.0.0.{host}", "--num-cpus=1", "--block",
               "--object-store-memory=100000000", *words]  # fmt: skip
    if within:
        command = [*within, "--monotonic", f"{host}0000", "bash", "-c", f"{_OWN_FILES} {' '.join(command)}"]
    return subprocess.Popen(command, stdout=log, stderr=log)


def _wait_for_head():
    """Wait until the head's port is open."""
    import socket

    host, _, port = ADDRESS.partition(":")
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
            return
        time.sleep(0.2)
    raise TimeoutError(Path("cluster.log").read_text())


def _wait_for_nodes(count):
    """Wait until so many nodes are there."""
    from fedge.config.registers.option import ConfigError
    from fedge.engine.cluster import machines

    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        with suppress(ConfigError):
            if len(machines(ADDRESS)) == count:
                return
    raise TimeoutError(Path("cluster.log").read_text())


if __name__ == "__main__":
    main(*sys.argv[1:])
