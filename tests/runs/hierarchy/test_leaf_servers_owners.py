"""Leaf servers whose clients own their windows compute what a run in one process does, bit by bit.

Clients are threads here, with the configuration of a SuperNode; real ones: tests/deployed/test_leaves.py.
"""

import re
import shutil
from functools import partial

import polars as pl
import pytest
from daily import daily
from flower_runs import comparable
from flwr.app import ArrayRecord
from leaf_servers import cloud, host_of, host_of_owners, in_threads
from small_runs import carry_out, small_config

from fedge import load_run
from fedge.client import spilled_states
from fedge.exchange import content
from fedge.launch.deal import deal_into
from fedge.records.manifest import read_manifest
from fedge.states.files import FileState
from fedge.states.records import from_record

TABLES = ("global", "leaf", "clients", "confusion", "models")  # users stay with the owners


def owned(tmp_path, levels=2, **changes):
    """Options of a run, those of its cloud, which has no windows, and a maker of its leaf servers."""
    config = small_config(tmp_path, scaffold__levels=levels, partition__unseen_clients=1, **changes)
    deal_into(tmp_path / "dealt", {**config, "clients": 9})
    return config, {**config, "data.path": "nowhere.npz"}, partial(host_of_owners, dealt=tmp_path / "dealt")


def stopped_and_resumed(of_cloud, address, certificates, folder, between=lambda: None):
    """Carry out one round, then the rest in a run that goes on; `between` is called when it stands still."""
    half = {**of_cloud, "run-name": "there", "num-server-rounds": 1}
    first, _ = cloud(half, address, certificates, owners=True)
    assert first.status == "completed", first.reason
    between()
    runs = str(folder / "runs" / "there")
    outcome, _ = cloud(of_cloud, address, certificates, resume=runs, owners=True)
    return outcome


class Forgetful:
    """A leaf server that is a new process after so many orders: it knows its folder, and its nodes."""

    def __init__(self, make, orders_left):
        self.make, self.left, self.host = make, orders_left, make()

    def __getattr__(self, name):
        return getattr(self.host, name)

    def answer(self, packet, note):
        self.left -= 1
        if self.left == 0:
            self.host.close()
            self.host = self.make()
        return self.host.answer(packet, note)


def test_windows_that_clients_own_give_the_same_bits(tmp_path, certificates, address):
    """SCAFFOLD on two levels, clusters, an unseen client per leaf; the cloud has no data.

    Leaf server 1 is a new process in mid-run. Then another run on the same leaf servers, without SCAFFOLD.
    """
    config, of_cloud, make = owned(tmp_path, num_server_rounds=3)
    wanted = carry_out(config, "here")
    other = {"scaffold.enabled": False, "train.lr": 0.05, "scaffold.levels": 1}

    def make_host(folder, leaf):
        return Forgetful(partial(make, folder, leaf), 5) if leaf == 1 else make(folder, leaf)

    with in_threads(address, certificates, tmp_path, make_host=make_host) as hosts:
        outcome, _ = cloud({**of_cloud, "run-name": "there"}, address, certificates, owners=True)
        again, _ = cloud({**of_cloud, **other, "run-name": "again"}, address, certificates, owners=True)
    assert outcome.status == "completed", outcome.reason
    assert hosts[1].left < 0
    found = comparable(outcome.folder)
    assert [name for name in TABLES if found[name] != wanted[name]] == []
    assert read_manifest(outcome.folder)["data"]["name"] == "9 owners (small.npz)"
    assert again.status == "completed", again.reason
    assert comparable(again.folder)["models"] == carry_out({**config, **other}, "other")["models"]


def test_large_models_of_cloud_leaf_servers_and_nodes_lie_in_files_with_the_same_bits(
    tmp_path, certificates, address, monkeypatch
):
    """Clients have a process of their own here as far as their states are concerned; nothing stays behind."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(spilled_states, "is_client_app", lambda: True)
    seen = []

    def watched(message, keep):
        content.store_large_states(message, keep)
        records = [r for r in message.content.values() if isinstance(r, ArrayRecord)]
        seen.extend(isinstance(from_record(record), FileState) for record in records)

    monkeypatch.setattr(spilled_states, "store_large_states", watched)
    config, of_cloud, make = owned(tmp_path, num_server_rounds=2, transfer__spill_above_mb=0.0)
    wanted = carry_out(config, "here")
    with in_threads(address, certificates, tmp_path, make_host=make):
        outcome, _ = cloud({**of_cloud, "run-name": "there"}, address, certificates, owners=True)
    assert outcome.status == "completed", outcome.reason
    found = comparable(outcome.folder)
    assert [name for name in TABLES if found[name] != wanted[name]] == []
    assert seen
    assert all(seen)
    assert "models go through files in" in (outcome.folder / "run.log").read_text()
    assert list(tmp_path.rglob("fedge-states-*")) == []


@pytest.mark.extended
def test_a_run_goes_on_with_owners_to_the_same_bits(tmp_path, certificates, address):
    config, of_cloud, make = owned(tmp_path, num_server_rounds=3, checkpoint__every=1)
    wanted = carry_out(config, "here")
    with in_threads(address, certificates, tmp_path, make_host=make):
        outcome = stopped_and_resumed(of_cloud, address, certificates, tmp_path)
    assert outcome.status == "completed", outcome.reason
    assert comparable(outcome.folder)["models"] == wanted["models"]


@pytest.mark.extended
def test_a_run_with_owners_goes_on_without_a_leaf_server_that_is_gone(tmp_path, certificates, address):
    """The checkpoint knows what its clients told: the scale, and the data's fingerprint, are as before."""
    _config, of_cloud, make = owned(
        tmp_path, levels=1, gate__enabled=False, cluster__enabled=False, num_server_rounds=2,
        guard__start_timeout=3.0, guard__start_clients=6,
    )  # fmt: skip
    first = {**of_cloud, "run-name": "there", "num-server-rounds": 1, "guard.start-timeout": 60.0}
    with in_threads(address, certificates, tmp_path, make_host=make):
        before, _ = cloud(first, address, certificates, owners=True)
    assert before.status == "completed", before.reason
    data = read_manifest(before.folder)["data"]
    with in_threads(address, certificates, tmp_path, leaves=2, make_host=make):
        outcome, said = cloud(of_cloud, address, certificates, resume=str(before.folder), owners=True)
    assert (outcome.status, outcome.exit_code) == ("partial", 3), outcome.reason
    assert "3 of 9 clients are missing (partition 6, 7, 8)" in said
    assert read_manifest(outcome.folder)["data"] == data
    rows = load_run(outcome.folder).clients
    trained = rows.filter((rows["global_round"] == 2) & (rows["leaf"] < 2))["train_loss"]
    assert trained.drop_nulls().len() == 4  # one client of each leaf is unseen


def absent(make, hosts_without):
    """A maker of leaf servers some of whose clients are not there."""

    def made(folder, leaf):
        host = make(folder, leaf)
        grid = host._ask_clients.__self__._engine
        for client in hosts_without:
            grid._contexts.pop(client + 1, None)
        return host

    return made


def trained_in(folder, round_):
    """Clients that trained in a global round."""
    rows = load_run(folder).clients
    rows = rows.filter((rows["global_round"] == round_) & rows["train_loss"].is_not_null())
    return rows["client"].to_list()


@pytest.mark.extended
def test_a_run_begins_without_some_clients_of_its_leaf_servers_and_goes_on_with_them_kept_out(
    tmp_path, certificates, address
):
    """Nothing is known of their windows: they take no part, then or later; others may go and come back."""
    _config, of_cloud, make = owned(
        tmp_path, levels=1, gate__enabled=False, cluster__enabled=False, num_server_rounds=2,
        guard__start_timeout=6.0, guard__start_clients=6, guard__return_timeout=1.0,
    )  # fmt: skip
    of_cloud = {**of_cloud, "partition.unseen-clients": 0, "run-name": "there"}
    first = {**of_cloud, "num-server-rounds": 1}
    with in_threads(address, certificates, tmp_path, make_host=absent(make, (1, 5))):
        before, said = cloud(first, address, certificates, owners=True)
    assert (before.status, before.exit_code) == ("partial", 3), before.reason
    assert "2 of 9 clients are missing (partition 1, 5); the run begins without them" in said
    assert "they never take part: their windows are unknown" in said
    assert trained_in(before.folder, 1) == [0, 2, 3, 4, 6, 7, 8]
    data = read_manifest(before.folder)["data"]
    assert data["name"] == "7 owners (small.npz)"
    with in_threads(address, certificates, tmp_path, make_host=absent(make, (8,))):
        outcome, said = cloud(of_cloud, address, certificates, resume=str(before.folder), owners=True)
    assert (outcome.status, outcome.exit_code) == ("partial", 3), outcome.reason
    assert "3 of 9 clients are missing (partition 1, 5, 8); the run begins without them" in said
    assert "they may join later, except partition 1, 5, whose windows are unknown" in said
    assert trained_in(outcome.folder, 2) == [0, 2, 3, 4, 6, 7]
    assert read_manifest(outcome.folder)["data"] == data


def test_a_run_cannot_begin_without_a_leaf_server_of_owners(tmp_path, certificates, address):
    """Nobody knows its clients' windows, which weigh its model: one line says so, before work starts."""
    _config, of_cloud, make = owned(
        tmp_path, num_server_rounds=2, guard__start_timeout=2.0, guard__start_clients=6
    )
    with in_threads(address, certificates, tmp_path, leaves=2, make_host=make):
        outcome, _ = cloud({**of_cloud, "run-name": "there"}, address, certificates, owners=True)
    assert outcome.status == "failed"
    assert outcome.reason == (
        "guard.start-clients needs a training client at every leaf, but leaf 2 has none "
        "(partition 6 to 8); start one of them"
    )


def test_a_leaf_server_says_which_of_its_clients_do_not_come(tmp_path, certificates, address):
    """Before the cloud's own time is over, which knows their number alone."""
    _config, of_cloud, make = owned(tmp_path, guard__start_timeout=3.0)
    with in_threads(address, certificates, tmp_path, make_host=absent(make, (4,))):
        outcome, _ = cloud({**of_cloud, "run-name": "there"}, address, certificates, owners=True)
    assert outcome.status == "failed"
    assert "leaf server 1: RunError: guard.start-timeout: 2 of 3 clients answered within" in outcome.reason
    assert "missing: partition 4" in outcome.reason


METHODS = {
    "ditto": {"train__algorithm": "ditto"},
    "uplink": {"uplink__clients": "top-k", "uplink__clients_args": '{"share": 0.25}'},
}


@pytest.mark.parametrize("method", daily(METHODS, ["ditto"]))
def test_memories_of_owners_behind_leaf_servers_give_the_same_bits(
    tmp_path, certificates, address, monkeypatch, method
):
    """A round, and two more after a stop; what lies with clients are the versions that are needed."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    changes = {"scaffold__enabled": False, "train__model": "mlp-tiny", **METHODS[method]}
    config, of_cloud, make = owned(
        tmp_path, levels=1, num_server_rounds=3, checkpoint__every=1, checkpoint__keep=1, **changes
    )
    wanted = carry_out(config, "here")
    with in_threads(address, certificates, tmp_path, make_host=make):
        outcome = stopped_and_resumed(of_cloud, address, certificates, tmp_path)
    assert outcome.status == "completed", outcome.reason
    found = comparable(outcome.folder)
    assert [name for name in TABLES if found[name] != wanted[name]] == []
    kept = [len(list(client.iterdir())) for client in (tmp_path / "state").rglob("client-*")]
    assert len(kept) == 6
    assert set(kept) <= {1, 2, 3, 4}
    assert not list((tmp_path / "runs" / "there").rglob("client-*"))


def test_a_memory_that_an_owner_lost_behind_a_leaf_server_is_named(
    tmp_path, certificates, address, monkeypatch
):
    """It begins anew, its reply counts, and the tables of that round name it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    changes = {"scaffold__enabled": False, "train__model": "mlp-tiny", **METHODS["ditto"]}
    _, of_cloud, make = owned(tmp_path, levels=1, num_server_rounds=2, checkpoint__every=1, **changes)
    with in_threads(address, certificates, tmp_path, make_host=make):

        def lose():
            for folder in (tmp_path / "state").rglob("client-000001"):
                shutil.rmtree(folder)

        outcome = stopped_and_resumed(of_cloud, address, certificates, tmp_path, between=lose)
    assert outcome.status == "partial", outcome.reason
    run = load_run(outcome.folder)
    assert run.rounds["failures"].to_list() == [None, "memory lost 1"]
    mine = run.clients.filter((pl.col("client") == 1) & (pl.col("global_round") == 2))
    assert mine["train_loss"].is_not_null().all()


@pytest.mark.parametrize(
    ("owners", "telling"),
    [
        (True, r"leaf server \d: its clients own no windows; start it with fedge leaf --nodes"),
        (False, r"leaf server \d cannot continue: its clients own their windows; start the cloud"),
    ],
    ids=["no owners", "owners"],
)
def test_who_owns_the_windows_must_be_said_on_both_sides(tmp_path, certificates, address, owners, telling):
    config, of_cloud, make = owned(tmp_path)
    given, make = (of_cloud, host_of) if owners else (config, make)
    with in_threads(address, certificates, tmp_path, make_host=make):
        outcome, _ = cloud(given, address, certificates, owners=owners)
    assert outcome.status == "failed"
    assert re.search(telling, outcome.reason)
