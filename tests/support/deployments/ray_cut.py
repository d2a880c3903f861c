"""A Ray cluster of machines with a network card each, of which one is cut off without a word.

Carried out as a program in namespaces of its own (``unshare``): pairs of virtual network cards join two
machines to that of the head, which passes on what they say to each other; nothing outside is reached, and all
ends with the program. The card of the last machine goes dark while it has a client at work: nobody hears that
it is gone, and it goes on by itself.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import ray_cluster
from machines_apart import ALONE, ip
from support_folders import PYTHONPATH

HEAD = "10.77.0.1"
ADDRESS = f"{HEAD}:6379"
_RAY = "exec {ray} start --address={address} --node-ip-address=10.77.{host}.2 {more}"
_MORE = ["--num-cpus=1", "--block", "--object-store-memory=100000000"]
_MACHINE = """
ip link set lo up
until ip link show card >/dev/null 2>&1; do sleep 0.1; done
ip addr add 10.77.{host}.2/24 dev card && ip link set card up && ip route add default via 10.77.{host}.1
mount -t tmpfs tmpfs /dev/shm; mount -t tmpfs tmpfs /tmp
"""
_BACK = "FEDGE_TEST_BACK_AFTER_S"
_NODE = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


def run_and_cut(folder, *words, back_after_s=None, timeout=900):
    """Carry out ``fedge WORDS`` in a folder, whose run is named "cluster"; returns the finished process.

    Args:
        folder: of the project.
        words: of the command.
        back_after_s: seconds until the machine is reached again; None for never.
        timeout: seconds.
    """
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment.update(RAY_USAGE_STATS_ENABLED="0", FLWR_TELEMETRY_ENABLED="0", RAY_ADDRESS=ADDRESS)
    environment[_BACK] = "" if back_after_s is None else str(back_after_s)
    environment.pop("SEED", None)
    program = [*ALONE, sys.executable, __file__, *map(str, words)]
    return subprocess.run(
        program, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )


def main(*words):
    """Start the cluster, carry out the run; the exit code is the run's."""
    ip("link", "set", "lo", "up")
    ip("addr", "add", f"{HEAD}/32", "dev", "lo")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    ray_cluster.ADDRESS = ADDRESS
    ray = Path(sys.executable).parent / "ray"
    temporary = Path(f"/tmp/fr{time.monotonic_ns() % 10**9}")
    with open("cluster.log", "w") as log:
        subprocess.Popen(
            [ray, "start", "--head", "--port=6379", f"--node-ip-address={HEAD}", f"--temp-dir={temporary}",
             "--include-dashboard=false", *_MORE], stdout=log, stderr=log,
        )  # fmt: skip
        ray_cluster._wait_for_head()
        machines = [start_machine(ray, host, log) for host in (3, 4)]
        ray_cluster._wait_for_nodes(3)
        run = subprocess.Popen([sys.executable, "-m", "fedge.cli", *words])
        ray_cluster.await_work(run, machines[-1])
        print(f"cut off after global round {ray_cluster._rounds()}", flush=True)
        in_its_network(machines[-1], "ip", "link", "set", "card", "down")
        if back := os.environ[_BACK]:
            time.sleep(float(back))
            in_its_network(machines[-1], "ip", "link", "set", "card", "up")
            in_its_network(machines[-1], "ip", "route", "add", "default", "via", "10.77.4.1")
        code = run.wait()
    shutil.rmtree(temporary, ignore_errors=True)
    os._exit(code)


def in_its_network(machine, *words):
    """Carry out a command in the network of a machine."""
    subprocess.run(["nsenter", f"--net=/proc/{machine.pid}/ns/net", *words], check=True)


def start_machine(ray, host, log):
    """Start a machine 10.77.HOST.2 with one core; returns the process below which all of it is."""
    script = _MACHINE + _RAY.format(ray=ray, address=ADDRESS, host=host, more=" ".join(_MORE))
    ip("link", "add", f"here{host}", "type", "veth", "peer", "name", f"card{host}")
    ip("addr", "add", f"10.77.{host}.1/24", "dev", f"here{host}")
    ip("link", "set", f"here{host}", "up")
    machine = subprocess.Popen([*_NODE, "bash", "-c", script.format(host=host)], stdout=log, stderr=log)
    here = os.readlink("/proc/self/ns/net")
    while os.readlink(f"/proc/{machine.pid}/ns/net") == here:
        time.sleep(0.05)
    ip("link", "set", f"card{host}", "netns", str(machine.pid), "name", "card")
    return machine


if __name__ == "__main__":
    main(*sys.argv[1:])
