"""A Slurm cluster on one machine: slurmctld, munged and a slurmd per node, in namespaces of their own.

As a program, by root, in the namespaces of `ALONE`: nothing outside them is reached or reaches it, and all of
it ends with the program. Nodes have addresses of their own on the loopback interface, memory counts as on
clusters that share nodes, and jobs are tracked without cgroups.

    python slurm_cluster.py FOLDER COMMAND...

carries out a command beside the daemons, in FOLDER, where their files are in slurm/; the exit code is the
command's.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ALONE = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
DAEMONS = ("slurmctld", "slurmd", "munged", "sbatch")
NODES, CORES, MIB = 4, 4, 8000
_CONF = """
ClusterName=trial
SlurmctldHost={host}(10.77.0.1)
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerNode={half}
SlurmdParameters=config_overrides
ReturnToService=2
MailProg=/bin/true
{nodes}
PartitionName=main Nodes=ALL Default=YES State=UP
"""


def is_there():
    """Tell whether a cluster can be started: Slurm's and MUNGE's programs, and root."""
    path = f"{os.environ['PATH']}{os.pathsep}/usr/sbin"
    return os.geteuid() == 0 and all(shutil.which(name, path=path) for name in (*DAEMONS, "unshare", "ip"))


def in_cluster(folder, words, **keywords):
    """Carry out a command in a cluster of its own; returns the finished process."""
    command = [*ALONE, sys.executable, __file__, str(folder), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **keywords)


def _configure(folder):
    """Write slurm.conf; returns its path."""
    host = os.uname().nodename
    nodes = "\n".join(
        f"NodeName=n{n} NodeHostname={host} NodeAddr=10.77.0.{10 + n} Port={16820 + n} "
        f"CPUs={CORES} RealMemory={MIB}"
        for n in range(NODES)
    )
    conf = folder / "slurm.conf"
    conf.write_text(_CONF.format(host=host, folder=folder, nodes=nodes, half=MIB // 2))
    return conf


def _addresses(folder):
    """Give the controller and the nodes addresses and names; without one, Slurm resolves no name."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    last = [1, *range(10, 10 + NODES)]
    for number in last:
        subprocess.run(["ip", "addr", "add", f"10.77.0.{number}/32", "dev", "lo"], check=True)
    names = [os.uname().nodename, *(f"n{n}" for n in range(NODES))]
    lines = [f"10.77.0.{number} {name}\n" for number, name in zip(last, names, strict=True)]
    (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))
    subprocess.run(["mount", "--bind", str(folder / "hosts"), "/etc/hosts"], check=True)


def main(folder, *words):
    """Start the daemons, carry out a command, and return its exit code."""
    own = Path(folder) / "slurm"
    (own / "state").mkdir(parents=True)
    _addresses(own)
    os.environ["PATH"] += f"{os.pathsep}/usr/sbin"
    os.environ["SLURM_CONF"] = str(_configure(own))
    (own / "munge.key").write_bytes(os.urandom(1024))
    (own / "munge.key").chmod(0o400)
    munge = {
        "--socket": "munge.socket",
        "--key-file": "munge.key",
        "--pid-file": "munged.pid",
        "--log-file": "munge.log",
        "--seed-file": "munge.seed",
    }
    paths = [f"{option}={own / name}" for option, name in munge.items()]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(["munged", "--force", *paths], check=True, **quiet)
    subprocess.run(["slurmctld"], check=True, **quiet)
    for node in range(NODES):
        (own / f"n{node}").mkdir()
        subprocess.run(["slurmd", "-N", f"n{node}"], check=True, **quiet)
    deadline = time.monotonic() + 60
    while _idle() < NODES:
        assert time.monotonic() < deadline, (own / "slurmctld.log").read_text()
        time.sleep(0.5)
    return subprocess.run(words, cwd=folder, check=False).returncode


def _idle():
    """Number of nodes that wait for work."""
    words = ["sinfo", "--noheader", "--Node", "--states=idle"]
    return len(subprocess.run(words, capture_output=True, text=True, check=False).stdout.splitlines())


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
