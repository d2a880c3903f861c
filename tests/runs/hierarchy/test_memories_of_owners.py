"""Methods with a memory where clients own their data: it lies with them, and the bits are the same."""

import io
import json
import shutil

import pytest
from flower_runs import comparable
from small_runs import small_config

from fedge import load_run, simulate
from fedge.client.memory import KEY
from fedge.client_app import app as client_app
from fedge.config.registers.parts import ALGORITHMS
from fedge.engine.inprocess import InProcessGrid
from fedge.launch.deal import deal_into
from fedge.run.run import run

pytestmark = pytest.mark.whole_runs
CLIENTS = 9
SAME = ("global", "leaf", "confusion", "models")
METHODS = [name for name in ALGORITHMS.names if name != "fedavg"]


class Owners:
    """Clients of this process, each with a folder of its windows and one of its memories."""

    def __init__(self, folder, config):
        self.folder, self.config = folder, {**config, "clients": CLIENTS, "checkpoint.keep": 1}
        deal_into(folder / "dealt", self.config)

    def memories(self, client):
        return self.folder / "memories" / str(client)

    def app(self, message, context):
        client = context.node_config["partition-id"]
        context.node_config = {
            **context.node_config,
            "data-folder": str(self.folder / "dealt" / f"client-{client}"),
            KEY: str(self.memories(client)),
        }
        return client_app(message, context)

    def carried_out(self, name, wanted="completed", **changes):
        given = {**self.config, "data.path": "nowhere.npz", "run-name": name, **changes}
        with InProcessGrid(self.app, CLIENTS, given, 2) as grid:
            done = run(grid, given, "inprocess", {}, lambda _: io.StringIO())
        assert done.status == wanted, done.reason
        return load_run(done.folder)


def config_of(folder, method, **changes):
    return small_config(
        folder, train__algorithm=method, scaffold__enabled=False, train__model="mlp-tiny",
        hierarchy__num_servers=3, hierarchy__fraction_train=0.67, **changes,
    )  # fmt: skip


def plain(config):
    done = simulate({**config, "clients": CLIENTS, "run-name": "plain"}, terminal=io.StringIO())
    assert done.status == "completed", done.reason
    return done


@pytest.mark.parametrize("method", ["ditto", pytest.param("esperhfl", marks=pytest.mark.extended)])
def test_a_run_that_goes_on_has_the_bits_of_one_in_process(method, tmp_path):
    """Two rounds and two more; the server's folder has no memory, clients' have a few versions."""
    config = config_of(tmp_path, method, num_server_rounds=4)
    wanted = plain(config)
    owners = Owners(tmp_path, config)
    begun = owners.carried_out("there", **{"num-server-rounds": 2})
    again = owners.carried_out("", resume=str(begun.folder))
    here, there = comparable(wanted.folder), comparable(again.folder)
    assert {name: there[name] for name in SAME} == {name: here[name] for name in SAME}
    assert again.client_models.equals(wanted.client_models)
    assert not (again.folder / "memory").exists()
    for client in range(CLIENTS):
        assert 1 <= len(list(owners.memories(client).rglob("*.safetensors"))) <= 4


def test_what_uplinks_could_not_send_stays_with_clients(tmp_path):
    """Beside a method's memory; a run that goes on has the bits of one in process."""
    config = config_of(tmp_path, "ditto", num_server_rounds=3, gate__enabled=False, cluster__enabled=False)
    config["uplink.clients"] = "sign"
    wanted, owners = plain(config), Owners(tmp_path, config)
    begun = owners.carried_out("there", **{"num-server-rounds": 2})
    again = owners.carried_out("", resume=str(begun.folder))
    assert comparable(again.folder)["models"] == comparable(wanted.folder)["models"]
    assert again.client_models.equals(wanted.client_models)


@pytest.mark.extended
@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_the_same_bits(method, tmp_path):
    config = config_of(tmp_path, method)
    wanted, there = plain(config), Owners(tmp_path, config).carried_out("there")
    assert comparable(there.folder)["models"] == comparable(wanted.folder)["models"]
    assert there.client_models.equals(wanted.client_models)


def test_rounds_that_a_crash_undoes_leave_no_trace(tmp_path):
    """The checkpoint of the last round is lost, clients' newer versions are not."""
    config = config_of(tmp_path, "ditto", num_server_rounds=3, checkpoint__every=1)
    wanted, owners = plain(config), Owners(tmp_path, config)
    owners.config["checkpoint.keep"] = 2
    begun = owners.carried_out("there")
    shutil.rmtree(begun.folder / "checkpoints" / "round-000003")
    manifest = json.loads((begun.folder / "manifest.json").read_text())
    (begun.folder / "manifest.json").write_text(
        json.dumps({**manifest, "status": "running", "exit_code": None})
    )
    again = owners.carried_out("", resume=str(begun.folder))
    assert comparable(again.folder)["models"] == comparable(wanted.folder)["models"]
    assert again.client_models.equals(wanted.client_models)


def test_a_node_that_lost_its_memory_is_named_and_begins_anew(tmp_path):
    """In the tables of the round in which it trains again; the others' models are as ever."""
    config = config_of(tmp_path, "ditto", num_server_rounds=3, checkpoint__every=1)
    config["hierarchy.fraction-train"] = 1.0
    owners = Owners(tmp_path, config)
    begun = owners.carried_out("there", **{"num-server-rounds": 2})
    whole = shutil.copytree(begun.folder, tmp_path / "copy")
    shutil.copytree(tmp_path / "memories", tmp_path / "kept")
    wanted = owners.carried_out("", resume=str(begun.folder))
    shutil.rmtree(begun.folder)
    shutil.copytree(whole, begun.folder)
    shutil.rmtree(tmp_path / "memories")
    shutil.copytree(tmp_path / "kept", tmp_path / "memories")
    shutil.rmtree(owners.memories(4))
    again = owners.carried_out("", "partial", resume=str(begun.folder))
    assert again.rounds["failures"].to_list()[-1] == "memory lost 1"
    assert "client 4 failed: memory lost" in (again.folder / "run.log").read_text()
    own = [done.client_models.filter(done.client_models["global_round"] == 3) for done in (again, wanted)]
    others = [table.filter(table["client"] != 4) for table in own]
    assert others[0].equals(others[1])
    assert again.clients["train_loss"].equals(wanted.clients["train_loss"])  # Ditto's model has no memory
