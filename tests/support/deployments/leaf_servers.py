"""Leaf servers for tests: in threads of this process, or real processes; the cloud is this process."""

import io
import os
import signal
import subprocess
import sys
import threading
import traceback
from contextlib import contextmanager
from pathlib import Path

from processes import MARK

from fedge.client_app import app as client_app
from fedge.edge.host import LeafHost
from fedge.engine.federation import Federation
from fedge.engine.inprocess import InProcessGrid
from fedge.launch.leaf_servers.leaf import run_with_leaves
from fedge.launch.preflight import check
from fedge.link.admission import HELLO
from fedge.link.dial import Link
from fedge.link.frames import Packet
from fedge.run.node_site import NodeSites
from fedge.run.site import open_site

FEDGE = Path(sys.executable).with_name("fedge")
LEAVES = 3


class Quiet:
    """The side of a leaf server that has nothing to say when its link is up; `answer` is the subclass's."""

    def hello(self):
        return Packet(HELLO)

    def welcome(self, packet):
        pass

    def close(self):
        pass


def cloud(config, address, certificates, clients=9, resume="", owners=False):
    """Carry out a run whose leaf servers dial `address`; returns its outcome and what the terminal showed."""
    federation, terminal = Federation(clients), io.StringIO()
    config = {**config, "resume": resume}
    prepared = check(config, Federation() if owners else federation, is_sized=True)
    outcome = run_with_leaves(
        config, federation, prepared, address, certificates, terminal=terminal, owners=owners
    )
    return outcome, terminal.getvalue()


def host_of(folder, leaf, app=client_app):
    """Host of a leaf server whose clients are threads; its user has the cloud's file."""

    def engine(run_config, total, mine):
        return InProcessGrid(app, total, run_config, 1, mine)

    def opening(facts):
        return open_site(
            folder / f"leaf-{leaf}", leaf, engine, facts, data=str(facts["config"].get("data.path", ""))
        )

    return LeafHost(opening)


def host_of_owners(folder, leaf, dealt, clients=9, leaves=LEAVES):
    """Host of a leaf server whose clients are threads that own windows, as SuperNodes do.

    Windows are those that `fedge deal` wrote into the folder `dealt`; nodes know no option of any run.
    """
    mine = range(leaf * clients // leaves, (leaf + 1) * clients // leaves)
    grid = InProcessGrid(client_app, clients, {}, 1, mine)
    for context in grid._contexts.values():
        client = context.node_config["partition-id"]
        context.node_config["data-folder"] = str(dealt / f"client-{client}")
    sites = NodeSites(folder / f"leaf-{leaf}", leaf, grid)
    return LeafHost(sites.open, sites.describe_owners)


@contextmanager
def in_threads(address, certificates, folder, leaves=LEAVES, make_host=host_of):
    """Let leaf servers live in threads; gives their hosts."""
    links = [Link(address, certificates, leaf) for leaf in range(leaves)]
    hosts = [make_host(folder, leaf) for leaf in range(leaves)]

    def serve(link, host):
        while not link.is_stopped:
            link.serve(host, 60.0, getattr(host, "most_bytes", lambda: (2**36, 2**28)))

    threads = [threading.Thread(target=serve, args=pair) for pair in zip(links, hosts, strict=True)]
    for thread in threads:
        thread.start()
    try:
        yield hosts
    finally:
        for link in links:
            link.stop()
        for thread in threads:
            thread.join(20)
        for host in hosts:
            host.close()
        frames = sys._current_frames()
        stuck = ["".join(traceback.format_stack(frames[t.ident])) for t in threads if t.is_alive()]
        assert not stuck, stuck


def start(leaf, address, certificates, folder, mark, data, at=None):
    """Start a leaf server, or all below the server at a path, as a process; `data` is its user's file."""
    who, name = ([leaf], f"leaf-{leaf}") if at is None else (["--at", at], f"server-{at}")
    words = [FEDGE, "leaf", *who, "--cloud", address, "--certs", certificates, "--workers", 1, "--data", data]
    with (folder / f"{name}.out").open("ab") as out:
        return subprocess.Popen(
            list(map(str, words)), cwd=folder, stdout=out, stderr=out,
            env={**os.environ, MARK: str(mark)}, start_new_session=True,
        )  # fmt: skip


def end(process):
    """Ask a leaf server to end, as Ctrl-C does; return its exit code."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        return process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
