"""Subtrees that are one process each: the same bits by any cut, after kills, and without one that lies."""

import argparse
import copy
import threading
import time
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
from daily import daily
from flower_runs import comparable
from leaf_servers import cloud, end, host_of, in_threads, start
from processes import leftovers
from small_runs import carry_out, small_config

from fedge.edge.packets import orders
from fedge.launch.leaf_servers.subtree import subtree_of
from fedge.link.admission import HELLO
from fedge.link.certificates import CertificateRequest, make_certificates
from fedge.link.dial import Link, Refused
from fedge.link.frames import Packet
from fedge.link.gate import OVER
from fedge.link.leaves_below import SubtreeQuery
from fedge.link.reach import free_port

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
    below = SubtreeQuery(address, certificates, path)
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


def run_cut(config, cut, address, certificates, folder, name, spoil=None, over=None, every=None):
    """Run with subtrees as processes, and leaf servers for the other leaves; gives the outcome.

    `spoil` gets the hosts of region 1, `every` those of all subtrees.
    """
    paths, leaves = cut
    with ExitStack() as stack:
        for path in paths:
            how = every or (spoil if spoil and path == "1" else lambda host: None)
            stack.enter_context(subtree(path, address, certificates, folder, config["data.path"], how))
        if leaves:
            stack.enter_context(in_threads(address, certificates, folder, leaves=leaves))
        outcome, _ = cloud({**config, "run-name": name}, address, certificates, clients=config["clients"])
        if over is not None:
            over.set()
    return outcome


ALONE = {
    "hierarchy.tree": "2x2x2", "clients": 8, "hierarchy.region-rounds": "2", "hierarchy.leaf-rounds": 2,
    "gate.enabled": False, "cluster.tau": -1.0, "num-server-rounds": 3,
}  # fmt: skip
DEEPER = {
    "hierarchy.tree": "2x2x2x1", "clients": 8, "hierarchy.region-rounds": "2,2", "cluster.enabled": False,
    "gate.enabled": False, "scaffold.enabled": False, "leaf.strategy": "fedadam",
    "devices.time-rounds": True, "devices.preset": "hierfavg",
}  # fmt: skip
ONE_ROUND = {**ALONE, "hierarchy.region-rounds": "1"}
BY_THEMSELVES = {  # configuration, cut, and region orders of a run with three global rounds, or two
    "two regions": (ALONE, (["0", "1"], 0), 6),
    "one region, the leaves of the other": (ALONE, (["1"], 2), 3),
    "regions of one round": (ONE_ROUND, (["0", "1"], 0), 6),
    "an upper region and a lower one": (DEEPER, (["0.1", "1"], 2), 4 + 2),
}


def kinds_in(packet):
    """Kind of an order, or kinds of those in a bundle."""
    return {kind for _, kind, _ in packet.facts["parts"]} if packet.kind == orders.BUNDLE else {packet.kind}


def counting(seen):
    """Keep which orders come to a process on its links, and which states its answers have."""

    def spoil(host):
        answer = host.answer

        def counted(packet, note):
            found = answer(packet, note)
            if found.kind == orders.DONE:
                seen.append((packet.kind, sorted(packet.states), sorted(found.states)))
                evaluates = kinds_in(packet) == {orders.EVALUATE}
                assert not evaluates or len({id(state) for state in packet.states.values()}) <= 2
            return found

        host.answer = counted

    return spoil


@pytest.mark.parametrize(
    "name", daily(BY_THEMSELVES, ["an upper region and a lower one", "regions of one round"])
)
def test_a_region_in_its_own_process_carries_its_rounds_out_and_sends_one_model(
    tmp_path, certificates, address, name
):
    """One order a round of the server above; a leaf's c goes along if there is one, but no leaf's model.

    Those come where the region has one round only, once for all of its leaf rounds. Evaluations of all of its
    leaves are asked at once: own and offered model come once for all.
    """
    options, cut, wanted_orders = BY_THEMSELVES[name]
    config = {**small_config(tmp_path), **options}
    wanted, seen = carry_out(config, "here"), []
    outcome = run_cut(config, cut, address, certificates, tmp_path, "there", every=counting(seen))
    assert outcome.status == "completed", outcome.reason
    found = comparable(outcome.folder)
    assert [key for key in found if key != "clusters" and found[key] != wanted[key]] == []
    regions = [(sent, got) for kind, sent, got in seen if kind == orders.REGION]
    assert len(regions) == wanted_orders
    asked = [kind for kind, *_ in seen if kind not in (orders.BEGIN, OVER)]
    rounds = config["num-server-rounds"]
    assert sorted(asked) == sorted([orders.REGION] * wanted_orders + [orders.BUNDLE] * len(cut[0]) * rounds)
    for sent, got in regions:
        leaves = {name.split("/")[0] for name in got if name.endswith("/model")}
        assert len(leaves) == (2 if options is ONE_ROUND else 0)
        assert [name for name in sent if "control" not in name and "strategy" not in name] == ["model"]
        assert ("model" in got) is not bool(leaves)


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


def global_round_of(packet):
    """Of an order, or of those in a bundle."""
    facts = packet.facts["parts"][0][2] if packet.kind == orders.BUNDLE else packet.facts
    return facts["global_round"]


def lying(leaves):
    """From round 2 on, models that some leaves have trained have an entry that is not finite."""

    def spoil(host):
        answer = host.answer

        def lied(packet, note):
            found = answer(packet, note)
            if kinds_in(packet) == {orders.TRAIN} and global_round_of(packet) > 1:
                for leaf in leaves:
                    model = found.states[f"{leaf}/{orders.MODEL}"]
                    spoilt = {name: np.full_like(array, np.nan) for name, array in model.items()}
                    found.states[f"{leaf}/{orders.MODEL}"] = spoilt
            return found

        host.answer = lied

    return spoil


def silent(over, kind=orders.TRAIN):
    """From round 2 on, training is not answered."""

    def spoil(host):
        answer = host.answer

        def answered(packet, note):
            if kinds_in(packet) == {kind} and global_round_of(packet) > 1:
                over.wait(120.0)
            return answer(packet, note)

        host.answer = answered

    return spoil


def test_a_subtree_that_lies_is_one_that_is_gone(tmp_path, certificates, address):
    """Its clients have failed; all others have the bits of a run in which it was gone."""
    plain = {"cluster.enabled": False, "scaffold.enabled": False, "scaffold.levels": 1}
    plain |= {"hierarchy.region-rounds": "1"}  # or it would carry them out by itself
    config = {**small_config(tmp_path), **TREE, **plain, "num-server-rounds": 2, "guard.start-timeout": 3.0}
    over, cut = threading.Event(), (["0", "1"], 0)
    lied = run_cut(config, cut, address, certificates, tmp_path / "lied", "lied", lying([2, 3]))
    gone = run_cut(config, cut, address, certificates, tmp_path / "gone", "gone", silent(over), over)
    assert {lied.status, gone.status} == {"partial"}, (lied.reason, gone.reason)
    assert comparable(lied.folder)["models"] == comparable(gone.folder)["models"]
    assert "leaf server rejected" in (lied.folder / "run.log").read_text()
    assert "leaf server gone" in (gone.folder / "run.log").read_text()


@pytest.mark.extended
def test_a_hello_that_lies_costs_only_its_leaf_server(tmp_path, certificates, address):
    """Leaf 3 says in its hello that its process is something else than a name; it is not let in."""
    config = {**small_config(tmp_path), **ALONE, "num-server-rounds": 1, "guard.start-timeout": 1.5}
    config |= {"guard.start-clients": 6}
    liar, refused = Link(address, certificates, 3), []

    def lie():
        host = host_of(tmp_path, 3)
        host.hello = lambda: Packet(HELLO, {orders.SUBTREE: []})
        try:
            liar.serve(host, 20.0)
        except Refused as error:
            refused.append(str(error))

    thread = threading.Thread(target=lie)
    with in_threads(address, certificates, tmp_path, leaves=3):
        thread.start()
        outcome, _ = cloud(config, address, certificates, clients=8)
        thread.join(20)
    assert outcome.status == "partial", outcome.reason
    assert "Traceback" not in (outcome.folder / "run.log").read_text()
    assert [line.isprintable() and "its hello is refused: subtree" in line for line in refused] == [True]


LIES = {
    "a model that is not finite": lambda facts, states: states.update(
        model={name: np.full_like(array, np.nan) for name, array in states["model"].items()}
    ),
    "clients of others": lambda facts, states: facts["rounds"][0][0][3]["train_loss"].append([0, 0.5]),
    "fewer leaf rounds": lambda facts, states: facts["rounds"].pop(),
}


@pytest.mark.extended
@pytest.mark.parametrize("lie", LIES)
def test_a_region_that_lies_is_one_that_is_gone(tmp_path, certificates, address, lie):
    """From round 2 on; its clients have failed, the others have the bits of a run in which it was gone."""
    plain = {"cluster.enabled": False, "num-server-rounds": 2, "guard.start-timeout": 3.0}
    config, cut = {**small_config(tmp_path), **ALONE, **plain}, (["0", "1"], 0)

    def lying(host):
        answer = host.answer

        def lied(packet, note):
            found = answer(packet, note)
            if packet.kind == orders.REGION and packet.facts["global_round"] > 1:
                found = copy.deepcopy(found)
                LIES[lie](found.facts, found.states)
            return found

        host.answer = lied

    over = threading.Event()
    lied = run_cut(config, cut, address, certificates, tmp_path / "lied", "lied", lying)
    gone = run_cut(
        config, cut, address, certificates, tmp_path / "gone", "gone", silent(over, orders.REGION), over
    )
    assert {lied.status, gone.status} == {"partial"}, (lied.reason, gone.reason)
    assert comparable(lied.folder)["models"] == comparable(gone.folder)["models"]
    assert "leaf server rejected" in (lied.folder / "run.log").read_text()
    assert "leaf server gone" in (gone.folder / "run.log").read_text()


@pytest.mark.extended
@pytest.mark.parametrize("tree", [
    pytest.param(TREE, id="round by round"),
    pytest.param(ALONE, id="regions by themselves"),
])  # fmt: skip
def test_a_subtree_is_killed_in_mid_run_and_comes_back_and_the_cloud_stops_and_resumes(
    tmp_path, certificates, address, tree
):
    """Kills at two tiers, by real processes: the same bits, and nothing is left."""
    config = {**small_config(tmp_path), **tree, "num-server-rounds": 5, "checkpoint.every": 1}
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
