"""Subtrees that are one process each: the same bits by any cut, after kills, and without one that lies."""

import argparse
import threading
import time
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
from flower_runs import comparable
from leaf_servers import cloud, end, free_port, in_threads, start
from processes import leftovers
from small_runs import carry_out, small_config

from fedge.edge import orders
from fedge.launch.subtree import subtree_of
from fedge.link.below import Below
from fedge.link.certificates import CertificateRequest, make_certificates

TREE = {
    "hierarchy.tree": "2x2x2", "clients": 8, "hierarchy.region-rounds": "2", "scaffold.levels": 3,
    "gate.enabled": False, "cluster.tau": -1.0, "num-server-rounds": 3,
}  # fmt: skip
DEEP = {
    "hierarchy.tree": "2x2x2x1", "clients": 8, "cluster.enabled": False, "cluster.tiers": "0",
    "gate.tiers": "0,1", "scaffold.enabled": False, "leaf.strategy": "fedadam",
}  # fmt: skip


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """A folder with certificates of leaf servers and of servers over them."""
    folder = tmp_path_factory.mktemp("tls") / "certs"
    make_certificates(folder, CertificateRequest(leaves=8, paths=("0", "1", "0.0", "0.1", "1.1")))
    return folder


@pytest.fixture
def address():
    return f"127.0.0.1:{free_port()}"


@contextmanager
def subtree(path, address, certificates, folder, data, spoil=lambda host: None):
    """Let a process's leaf servers live in threads of this one; `spoil` gets each host."""
    words = {"cloud": address, "certs": certificates, "at": path, "workers": 2, "trust_code": False}
    options = argparse.Namespace(**words, data=data)
    below = Below(address, certificates, path)
    made, stopped = [], threading.Event()

    def serve():
        leaves = below.leaves(120.0)
        if leaves and not stopped.is_set():
            made.append(subtree_of(folder / f"server-{path}", leaves, options))
            for host in made[0]._hosts:
                spoil(host)
            made[0].serve(120.0)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        below.stop()
        for each in made:
            for link in each._links:
                link.stop()
        thread.join(30)
        assert not thread.is_alive()


def run_cut(config, cut, address, certificates, folder, name, spoil=None, over=None):
    """Run with subtrees as processes, and leaf servers for the other leaves; gives the outcome."""
    paths, leaves = cut
    with ExitStack() as stack:
        for path in paths:
            how = spoil if spoil and path == "1" else lambda host: None
            stack.enter_context(subtree(path, address, certificates, folder, config["data.path"], how))
        if leaves:
            stack.enter_context(in_threads(address, certificates, folder, leaves=leaves))
        outcome, _ = cloud({**config, "run-name": name}, address, certificates, clients=config["clients"])
        if over is not None:
            over.set()
    return outcome


CUTS = {
    "all by regions": (TREE, (["0", "1"], 0)),
    "one region, the leaves of the other": (TREE, (["1"], 2)),
    "at several depths": (DEEP, (["0.0", "0.1", "1"], 0)),
}


@pytest.mark.parametrize("name", CUTS)
def test_any_cut_into_processes_makes_the_same_bits(tmp_path, certificates, address, name):
    options, cut = CUTS[name]
    config = {**small_config(tmp_path), **options}
    wanted = carry_out(config, "here")
    outcome = run_cut(config, cut, address, certificates, tmp_path, "there")
    assert outcome.status == "completed", outcome.reason
    found = comparable(outcome.folder)
    assert [key for key in found if key != "clusters" and found[key] != wanted[key]] == []
    assert not list(tmp_path.glob("server-*/leaf-*/run-*/data"))  # windows are gone with the last leaf


def lying(host):
    """From round 2 on, trained models have an entry that is not finite."""
    answer = host.answer

    def lied(packet, note):
        found = answer(packet, note)
        if packet.kind == orders.TRAIN and packet.facts["global_round"] > 1 and orders.MODEL in found.states:
            model = {n: np.full_like(a, np.nan) for n, a in found.states[orders.MODEL].items()}
            return type(found)(found.kind, found.facts, {**found.states, orders.MODEL: model})
        return found

    host.answer = lied


def silent(over):
    """From round 2 on, training is not answered."""

    def spoil(host):
        answer = host.answer

        def answered(packet, note):
            if packet.kind == orders.TRAIN and packet.facts["global_round"] > 1:
                over.wait(120.0)
            return answer(packet, note)

        host.answer = answered

    return spoil


def test_a_subtree_that_lies_is_one_that_is_gone(tmp_path, certificates, address):
    """Its clients have failed; all others have the bits of a run in which it was gone."""
    plain = {"cluster.enabled": False, "scaffold.enabled": False, "scaffold.levels": 1}
    config = {**small_config(tmp_path), **TREE, **plain, "num-server-rounds": 2, "guard.start-timeout": 3.0}
    over, cut = threading.Event(), (["0", "1"], 0)
    lied = run_cut(config, cut, address, certificates, tmp_path / "lied", "lied", lying)
    gone = run_cut(config, cut, address, certificates, tmp_path / "gone", "gone", silent(over), over)
    assert {lied.status, gone.status} == {"partial"}, (lied.reason, gone.reason)
    assert comparable(lied.folder)["models"] == comparable(gone.folder)["models"]
    assert "leaf server rejected" in (lied.folder / "run.log").read_text()
    assert "leaf server gone" in (gone.folder / "run.log").read_text()


def test_a_subtree_is_killed_in_mid_run_and_comes_back_and_the_cloud_stops_and_resumes(
    tmp_path, certificates, address
):
    """Kills at two tiers, by real processes: the same bits, and nothing is left."""
    config = {**small_config(tmp_path), **TREE, "num-server-rounds": 5, "checkpoint.every": 1}
    wanted = carry_out(config, "here")
    where = address, certificates, tmp_path, tmp_path, config["data.path"]
    processes = {path: start(None, *where, at=path) for path in ("0", "1")}

    def kill_in_mid_run():
        table = tmp_path / "runs" / "there" / "metrics" / "global_rounds.csv"
        while not (table.is_file() and len(table.read_text().splitlines()) > 1):
            time.sleep(0.02)
        processes["1"].kill()
        processes["1"].wait()
        processes["1"] = start(None, *where, at="1")

    killer = threading.Thread(target=kill_in_mid_run)
    killer.start()
    try:
        half = {**config, "run-name": "there", "num-server-rounds": 3}
        stopped, _ = cloud(half, address, certificates, clients=8)
        killer.join(60)
        assert stopped.status == "completed", stopped.reason
        outcome, _ = cloud(config, address, certificates, clients=8, resume=str(tmp_path / "runs" / "there"))
    finally:
        codes = {path: end(process) for path, process in processes.items()}
    assert outcome.status == "completed", outcome.reason
    assert comparable(outcome.folder)["models"] == wanted["models"]
    assert codes == {"0": 130, "1": 130}, (tmp_path / "server-1.out").read_text()
    assert leftovers(tmp_path) == []
