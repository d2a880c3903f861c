"""Leaf servers of their own compute what leaves of one process do, bit by bit, whatever happens to them."""

import io
import json
import shutil
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from daily import daily
from flower_runs import comparable
from leaf_servers import LEAVES, cloud, end, host_of, in_threads, start
from processes import leftovers
from safetensors.numpy import load_file
from small_runs import carry_out, small_config

from fedge import load_run, simulate
from fedge.algorithm import Algorithm, LeafPart, Sent
from fedge.callbacks import Callback
from fedge.edge.packets import orders
from fedge.records.manifest import read_manifest

FEDGE = {
    "cluster.signal": "affinity", "cluster.method": "agglomerative", "cluster.count": "auto",
    "cluster.level": 0.5, "cluster.patience": 2, "gate.enabled": False, "num-server-rounds": 4,
    "scenario": "label-permutation", "scenario-sizes": "2,1", "hierarchy.leaf-rounds": 2,
}  # fmt: skip
METHOD = {
    "scaffold.enabled": False, "gate.enabled": False, "train.model": "mlp-tiny",
    "hierarchy.leaf-rounds": 2, "hierarchy.fraction-train": 0.67,
}  # fmt: skip


def moved(client, fit, by):
    """A result of training with a number added to all weights."""
    trained = {name: fit.state[name] for name in client.parameters}
    away = {name: array + np.asarray(by, array.dtype) for name, array in trained.items()}
    return replace(fit, state={**fit.state, **away})


class Drawing(Algorithm):
    """Clients that go off by their number, and leaves that add noise of their own and remember their turn."""

    def train(self, client):
        return Sent(moved(client, client.fit(), 1e-3 * (client.id + client.rng("client").standard_normal())))

    class leaf(LeafPart):
        def start(self, model):
            return {"turn": np.zeros(3), "drawn": 0.0}

        def combine(self, leaf):
            turn, drawn = leaf.turn, float(leaf.rng("noise").standard_normal())
            assert [one.client // 3 for one in leaf.brought] == [turn.leaf] * len(leaf.brought)
            of_turn = np.array([turn.leaf, turn.global_round, turn.leaf_round], dtype=np.float64)
            leaf.memory |= {"turn": leaf.memory["turn"] + of_turn, "drawn": leaf.memory["drawn"] + drawn}
            size = np.float32(1e-3 * leaf.memory["drawn"] + 1e-5 * leaf.memory["turn"].sum())
            return {n: a + a.dtype.type(size) if n in leaf.parameters else a for n, a in leaf.mean.items()}


class Far(Algorithm):
    """Clients that in turn send a model so far off that their leaf refuses it."""

    def train(self, client):
        far = 1e6 * ((client.id + client.leaf_round) % 3 == 2)
        return Sent(moved(client, client.fit(), far))


CONFIGURATIONS = {
    "fedge": FEDGE | {"partition.unseen-clients": 1},
    "two levels": {"scaffold.levels": 2, "gate.enabled": False, "cluster.tau": -1.0},
    "personal": {"personal.leaf-rounds": 1, "gate.rule": "after-round", "partition.unseen-clients": 1},
    "steps": {
        "train.local-steps": "auto",
        "train.batch-size": 3,
        "scaffold.levels": 2,
        "gate.enabled": False,
    },
    "timed": {
        "devices.time-rounds": True,
        "devices.preset": "hierfavg",
        "hierarchy.leaf-rounds": 2,
    },
    "compressed": {
        "uplink.clients": "int8",
        "uplink.servers": "sign",
        "scaffold.enabled": False,
        "gate.enabled": False,
        "cluster.enabled": False,
    },
    "ifca": {
        "cluster.method": "ifca",
        "cluster.count": "2",
        "gate.enabled": False,
        "scaffold.enabled": False,
    },
    "fedadam": {"leaf.strategy": "fedadam", "scaffold.enabled": False, "hierarchy.fraction-train": 0.67},
    "soft family": {
        "cluster.method": "soft-family",
        "cluster.method-args": '{"dial": 1.0, "warmup": 1}',
        "scaffold.levels": 2,
        "hierarchy.leaf-rounds": 2,
    },
    "ditto": {**METHOD, "train.algorithm": "ditto", "partition.unseen-clients": 1},
    "feddyn": {**METHOD, "train.algorithm": "feddyn", "personal.leaf-rounds": 2},
    "esperhfl": {**METHOD, "train.algorithm": "esperhfl", "cluster.method": "esperhfl"},
    "own draws": {
        **METHOD,
        "train.algorithm": f"{__name__}:Drawing",
        "gate.enabled": True,
        "gate.rule": "after-round",
        "personal.leaf-rounds": 2,
    },
    "cloud rule": {
        "cloud.rule": "fedavgm",
        "cloud.rule-args": '{"server_momentum": 0.5}',
        "gate.enabled": False,
        "cluster.tau": -1.0,
    },
    "in files": {"transfer.spill-above-mb": 0.0, "scaffold.levels": 2, "partition.unseen-clients": 1},
    "private": {
        "privacy.kind": "client-adaptive",
        "privacy.noise-multiplier": 0.05,
        "scaffold.enabled": False,
    },
}


@pytest.mark.parametrize("name", daily(CONFIGURATIONS, ["esperhfl", "in files", "private"]))
def test_leaf_servers_make_the_same_bits(tmp_path, certificates, address, name):
    """All that a run computes: models, tables, clusters; times apart."""
    config = small_config(tmp_path, **{"num-server-rounds": 3}) | CONFIGURATIONS[name]
    wanted = carry_out(config, "here")
    with in_threads(address, certificates, tmp_path):
        outcome, _ = cloud({**config, "run-name": "there"}, address, certificates)
    assert outcome.status == "completed", outcome.reason
    in_files = "models go through files in" in (outcome.folder / "run.log").read_text()
    assert in_files == (config.get("transfer.spill-above-mb") == 0.0)
    found = comparable(outcome.folder)
    assert found.keys() <= wanted.keys()
    assert [key for key in found if key != "clusters" and found[key] != wanted[key]] == []
    assert read_manifest(outcome.folder)["engine"] == "leaves"


@pytest.mark.extended
def test_refused_replies_take_the_same_time(tmp_path, certificates, address):
    """The bytes of clients whose updates are too large are shared by nobody, here and there."""
    config = small_config(tmp_path) | METHOD | {
        "train.algorithm": f"{__name__}:Far", "guard.max-norm-factor": 5.0, "hierarchy.fraction-train": 1.0,
        "devices.time-rounds": True, "devices.preset": "hierfavg",
    }  # fmt: skip
    here = simulate({**config, "run-name": "here"}, terminal=io.StringIO())
    with in_threads(address, certificates, tmp_path):
        outcome, _ = cloud({**config, "run-name": "there"}, address, certificates)
    assert here.rounds["clients_failed"].min() > 0
    wanted, found = comparable(here.folder), comparable(outcome.folder)
    assert [key for key in found if key != "clusters" and found[key] != wanted[key]] == []


def test_no_model_of_a_client_reaches_the_cloud(tmp_path, certificates, address):
    """Leaf servers send their models, c_j, and summaries; c_i and clients' models stay with them.

    No trial is good enough, so that forks without some of a lone leaf's clients train on: the same bits.
    """
    sent, folds = [], []

    def listening(folder, leaf):
        host = host_of(folder, leaf)
        answer = host.answer

        def listened(packet, note):
            found = answer(packet, note)
            if found.kind == orders.DONE:
                sent.append((packet.kind, sorted(found.states)))
            folds.extend(found.facts.get("folds", []))
            return found

        host.answer = listened
        return host

    config = small_config(tmp_path) | FEDGE | {"cluster.min-gain": 9.0}
    wanted = carry_out(config, "here")
    with in_threads(address, certificates, tmp_path, make_host=listening):
        outcome, _ = cloud({**config, "run-name": "there"}, address, certificates)
    assert outcome.status == "completed", outcome.reason
    trained = {
        tuple(n for n in names if not n.startswith("summary."))
        for kind, names in sent
        if kind == orders.TRAIN
    }
    assert trained <= {("control", "model", "told")}
    assert {tuple(names) for kind, names in sent if kind == orders.EVALUATE} == {()}
    assert folds, "no leaf was judged by what its clients make without each other"
    found = comparable(outcome.folder)
    assert [key for key in found if key != "clusters" and found[key] != wanted[key]] == []
    steps = [json.loads(line) for line in (outcome.folder / "clusters.jsonl").read_text().splitlines()]
    gains = [trial["gain"] for step in steps for trial in step.get("trials", [])]
    assert len(gains) == len(set(gains)) == 3
    checkpoint = outcome.folder / "checkpoints"
    assert list(checkpoint.rglob("clients.safetensors")) == [] or all(
        not load_file(path) for path in checkpoint.rglob("clients.safetensors")
    )
    assert len(list(tmp_path.glob("leaf-*/run-*/controls/*.safetensors"))) >= LEAVES


class Breaking:
    """A leaf server that fails in a way of the test's choice when it has answered so many orders."""

    def __init__(self, host, orders_left, how):
        self.host, self.left, self.how = host, orders_left, how

    def __getattr__(self, name):
        return getattr(self.host, name)

    def answer(self, packet, note):
        found = self.host.answer(packet, note)
        self.left -= 1
        if self.left == 0:
            self.how(self)
        return found


def test_a_leaf_server_that_lost_its_memory_begins_again_where_it_was(tmp_path, certificates, address):
    """Leaf 1 forgets all but its disk after its fourth order, as a process does that is started anew."""
    config = small_config(tmp_path) | {"hierarchy.leaf-rounds": 2}
    wanted = carry_out(config, "here")

    def forget(breaking):
        breaking.host.close()
        breaking.host = host_of(tmp_path, 1)

    def make(folder, leaf):
        host = host_of(folder, leaf)
        return Breaking(host, 4, forget) if leaf == 1 else host

    with in_threads(address, certificates, tmp_path, make_host=make):
        outcome, _ = cloud({**config, "run-name": "there"}, address, certificates)
    assert outcome.status == "completed", outcome.reason
    assert comparable(outcome.folder)["models"] == wanted["models"]


def test_a_run_goes_on_with_its_leaf_servers_to_the_same_bits(tmp_path, certificates, address):
    """The cloud stops after round 2 of 4; the leaf servers stay, and in the end one has lost its disk."""
    config = small_config(tmp_path, **{"num-server-rounds": 4, "checkpoint.every": 1})
    wanted = carry_out(config, "here")
    with in_threads(address, certificates, tmp_path):
        cloud({**config, "run-name": "there", "num-server-rounds": 2}, address, certificates)
        outcome, _ = cloud(config, address, certificates, resume=str(tmp_path / "runs" / "there"))
        assert outcome.status == "completed", outcome.reason
        assert comparable(outcome.folder)["models"] == wanted["models"]
        for kept in tmp_path.glob("leaf-2/run-*"):
            shutil.rmtree(kept)
        outcome, _ = cloud(
            {**config, "num-server-rounds": 5}, address, certificates, resume=str(tmp_path / "runs" / "there")
        )
    assert outcome.status == "failed"
    assert "--folder must have the control variates of leaf round 4" in outcome.reason


class StopOnce(Callback):
    """A callback that ends the run's first process in its second round."""

    def end_round(self, round_):
        assert round_.global_round != 2, "stopped here"


def test_leaf_servers_that_stay_learn_what_a_resumed_run_changed(tmp_path, certificates, address):
    """They know the run from the cloud that ended, which had another time limit and no kernel in common."""
    limits, kernels = [], []

    def listening(folder, leaf):
        host = host_of(folder, leaf)
        answer, hello = host.answer, host.hello

        def listened(packet, note):
            found = answer(packet, note)
            if packet.kind == orders.TRAIN:
                limits.append(host._run[1].site.task.config.guard.client_timeout)
                kernels.append(host._run[0].get("kernel"))
            return found

        def says():
            known = {} if is_first else {orders.KERNELS: ""}
            return replace(hello(), facts={**hello().facts, **known})

        host.answer, host.hello = listened, says
        return host

    is_first = [True]
    config = small_config(tmp_path, **{"checkpoint.every": 1, "guard.client-timeout": 50.0})
    config |= {"scaffold.enabled": False, "train.model": "mlp-tiny"}
    with in_threads(address, certificates, tmp_path, make_host=listening):
        stopped = {**config, "callbacks": f"{__name__}:StopOnce", "run-name": "there"}
        outcome, _ = cloud(stopped, address, certificates)
        assert outcome.status == "failed"
        before, is_first[:] = len(limits), []
        further = {**config, "guard.client-timeout": 70.0, "num-server-rounds": 3}
        outcome, _ = cloud(further, address, certificates, resume=str(tmp_path / "runs" / "there"))
    assert outcome.status == "completed", outcome.reason
    assert set(limits[:before]) == {50.0}
    assert set(limits[before:]) == {70.0}
    assert set(kernels[before:]) == {"torch"}
    assert read_manifest(outcome.folder)["kernel"]["name"] == "torch"


def test_a_method_goes_on_with_its_leaf_servers_to_the_same_bits(tmp_path, certificates, address):
    """Memories stay at leaf servers, a few versions a client; the cloud has none."""
    config = small_config(tmp_path, **METHOD, **{"num-server-rounds": 4, "checkpoint.every": 1})
    config |= {"train.algorithm": "ditto", "checkpoint.keep": 1}
    carry_out(config, "here")
    with in_threads(address, certificates, tmp_path):
        cloud({**config, "run-name": "there", "num-server-rounds": 2}, address, certificates)
        outcome, _ = cloud(config, address, certificates, resume=str(tmp_path / "runs" / "there"))
    assert outcome.status == "completed", outcome.reason
    here, there = (load_run(tmp_path / "runs" / name) for name in ("here", "there"))
    assert comparable(there.folder)["models"] == comparable(here.folder)["models"]
    assert there.client_models.equals(here.client_models)
    assert not (there.folder / "memory").exists()
    for client in range(9):
        assert 1 <= len(list(tmp_path.glob(f"leaf-*/run-*/memory/client-{client:06d}/*"))) <= 4


def test_a_leaf_server_that_stays_away_loses_only_itself(tmp_path, certificates, address):
    """Two of three are there at the end: the run is partial, the third keeps its model."""
    config = small_config(tmp_path, **{"guard.start-timeout": 1.5, "cluster.tau": 2.0})
    gone, over = threading.Event(), threading.Event()

    def leave(breaking):
        gone.set()
        over.wait(60.0)

    def make(folder, leaf):
        host = host_of(folder, leaf)
        return Breaking(host, 4, leave) if leaf == 2 else host

    with in_threads(address, certificates, tmp_path, make_host=make):
        outcome, shown = cloud(config, address, certificates)
        over.set()
    assert gone.is_set()
    assert outcome.status == "partial", outcome.reason
    assert "leaf server gone" in shown + (outcome.folder / "run.log").read_text()


@pytest.fixture
def processes(tmp_path, certificates, address):
    """Leaf servers as processes; none is left at the end."""
    data = small_config(tmp_path)["data.path"]
    started = {leaf: start(leaf, address, certificates, tmp_path, tmp_path, data) for leaf in range(LEAVES)}
    yield started
    codes = [end(process) for process in started.values()]
    assert codes == [130] * LEAVES, [(tmp_path / f"leaf-{n}.out").read_text() for n in range(LEAVES)]
    assert leftovers(tmp_path) == []


@pytest.mark.extended
def test_processes_serve_run_after_run_and_may_be_killed_in_between(
    tmp_path, certificates, address, processes
):
    """Three processes, two runs; in the second one is killed in mid-run and started again: the same bits."""
    config = small_config(tmp_path, **{"num-server-rounds": 6, "guard.start-timeout": 120.0})
    wanted = carry_out(config, "here")
    outcome, _ = cloud({**config, "run-name": "first"}, address, certificates)
    assert outcome.status == "completed", outcome.reason
    assert comparable(outcome.folder)["models"] == wanted["models"]

    def kill_in_mid_run():
        table = tmp_path / "runs" / "second" / "metrics" / "global_rounds.csv"
        while not (table.is_file() and len(table.read_text().splitlines()) > 2):
            time.sleep(0.02)
        processes[1].kill()
        processes[1].wait()
        processes[1] = start(1, address, certificates, tmp_path, tmp_path, config["data.path"])

    killer = threading.Thread(target=kill_in_mid_run)
    killer.start()
    outcome, _ = cloud({**config, "run-name": "second"}, address, certificates)
    killer.join(20)
    assert outcome.status == "completed", outcome.reason
    assert comparable(outcome.folder)["models"] == wanted["models"]
    assert np.isfinite(
        next(iter(load_file(outcome.folder / "checkpoints" / "final.safetensors").values()))
    ).all()


def test_a_run_whose_leaf_server_is_gone_goes_on_without_it(tmp_path, certificates, address):
    """Its leaf keeps its model; the line says how, once; who comes later is asked."""
    config = small_config(
        tmp_path, gate__enabled=False, cluster__enabled=False, scaffold__enabled=False,
        guard__start_timeout=1.5,
    )  # fmt: skip
    with in_threads(address, certificates, tmp_path / "whole"):
        before, _ = cloud({**config, "run-name": "there"}, address, certificates)
    assert before.status == "completed", before.reason
    further = {**config, "run-name": "there", "num-server-rounds": 3}
    with in_threads(address, certificates, tmp_path / "two", leaves=2):
        stopped, said = cloud(further, address, certificates, resume=str(before.folder))
    assert "missing: partition 6, 7, 8; " in stopped.reason
    assert stopped.reason.endswith("or begin without it by guard.start-clients=6")
    with in_threads(address, certificates, tmp_path / "two", leaves=2):
        less = {**further, "guard.start-clients": 6}
        outcome, said = cloud(less, address, certificates, resume=str(before.folder))
    assert (outcome.status, outcome.exit_code) == ("partial", 3)
    assert "3 of 9 clients are missing (partition 6, 7, 8); the run begins without them" in said
    rows = load_run(outcome.folder).clients
    trained = rows.filter(rows["global_round"] == 3)["train_loss"].to_list()
    assert [loss is None for loss in trained] == [False] * 6 + [True] * 3


@pytest.mark.extended
def test_a_run_begins_without_a_leaf_server_that_is_not_there(tmp_path, certificates, address):
    """The cloud has the data: it knows the leaf's weight, and who comes later takes part."""
    config = small_config(
        tmp_path, gate__enabled=False, cluster__enabled=False, scaffold__enabled=False,
        guard__start_timeout=1.5, guard__start_clients=6,
    )  # fmt: skip
    with in_threads(address, certificates, tmp_path / "two", leaves=2):
        outcome, said = cloud({**config, "run-name": "there"}, address, certificates)
    assert (outcome.status, outcome.exit_code) == ("partial", 3), outcome.reason
    assert "3 of 9 clients are missing (partition 6, 7, 8); the run begins without them" in said
    rows = load_run(outcome.folder).clients
    trained = rows.filter(rows["global_round"] == 1)["train_loss"].to_list()
    assert [loss is None for loss in trained] == [False] * 6 + [True] * 3
