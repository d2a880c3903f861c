"""Leaf servers with SuperNodes of their own, all of them processes: the same bits, and what breaks.

Three nodes at two leaf servers; the cloud has no windows. `-m soak` prints what users see.
"""

import json
import shutil
import time

import polars as pl
import pytest
from deployment import wait_until, words_of
from flower_runs import comparable
from leaves_of_nodes import Leaves
from processes import leftovers
from small_runs import carry_out, small_config

TABLES = ("global", "leaf", "clients", "confusion", "models")  # users stay with the owners
CLIENTS = 3

pytestmark = [pytest.mark.whole_runs, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def leaves(tmp_path_factory):
    """Cloud, leaf servers and nodes, and what the same run computes in this process."""
    folder = tmp_path_factory.mktemp("leaves")
    options = small_config(
        folder / "data", hierarchy__num_servers=2, clients=CLIENTS, num_server_rounds=3, scaffold__levels=2,
        guard__return_timeout=20,
    )  # fmt: skip
    with Leaves(folder, options, CLIENTS) as there:
        there.expected = carry_out({**options, "runs-dir": str(folder / "here")}, "here")
        yield there
    assert leftovers(there.mark) == []


def is_as_in_one_process(leaves, folder):
    found = comparable(folder)
    return all(found[name] == leaves.expected[name] for name in TABLES)


def finished(leaves, name, run):
    """Wait for the end of a run; return its exit code and its folder, and print what was said."""
    code = run.wait(600)
    print(f"--- {name}: exit code {code}\n{leaves.said(f'run-{name}')}")
    return code, leaves.folder / "runs" / name


def wait_for_round(leaves, name, round_):
    wait_until(lambda: f"round {round_}" in leaves.said(f"run-{name}"), 240, f"round {round_} of {name}")


@pytest.mark.extended
def test_leaf_servers_of_nodes_give_the_same_bits(leaves):
    code, folder = finished(leaves, "whole", leaves.run("whole"))
    assert code == 0
    assert is_as_in_one_process(leaves, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["engine"], manifest["data"]["name"]) == ("leaves", f"{CLIENTS} owners (small.npz)")


@pytest.mark.soak
def test_a_leaf_server_is_killed_and_started_again(leaves):
    run = leaves.run("restarted")
    wait_for_round(leaves, "restarted", 1)
    leaves.leaves[0].kill()
    leaves.leaves[0].wait()
    leaves.start_leaf(0)
    code, folder = finished(leaves, "restarted", run)
    assert code == 0
    assert is_as_in_one_process(leaves, folder)


@pytest.mark.soak
def test_the_app_of_a_leaf_server_is_killed(leaves):
    """Flower finds it after a minute; then `fedge leaf` ends, and is started again."""
    import psutil

    run = leaves.run("app")
    wait_for_round(leaves, "app", 1)
    below = psutil.Process(leaves.leaves[1].pid).children(recursive=True)
    (app,) = [p for p in below if "flwr-serverapp" in words_of(p)]
    app.kill()
    assert leaves.leaves[1].wait(150) == 4
    assert "the leaf server, or its SuperLink, was killed or has crashed" in leaves.said("leaf-1")
    leaves.start_leaf(1)
    code, folder = finished(leaves, "app", run)
    assert code == 0
    assert is_as_in_one_process(leaves, folder)


@pytest.mark.soak
def test_a_node_that_is_killed_and_comes_back_costs_nothing(leaves):
    run = leaves.run("back")
    wait_for_round(leaves, "back", 1)
    leaves.nodes[1].kill()
    leaves.nodes[1].wait()
    leaves.start_node(1)
    code, folder = finished(leaves, "back", run)
    assert code == 0
    assert is_as_in_one_process(leaves, folder)


@pytest.mark.soak
def test_a_node_that_stays_away_costs_only_itself(leaves):
    run = leaves.run("gone")
    wait_for_round(leaves, "gone", 1)
    leaves.nodes[1].kill()
    leaves.nodes[1].wait()
    code, folder = finished(leaves, "gone", run)
    leaves.start_node(1)
    time.sleep(1)
    assert code == 3
    assert json.loads((folder / "manifest.json").read_text())["status"] == "partial"
    assert "node gone" in leaves.said("run-gone") + (folder / "run.log").read_text()


# --- fewer than all: guard.start-clients ---------------------------------------------------------------

# waits for nodes that never come: the next one if those that are there have not all answered in it
PATIENCE_S = (25, 60, 120)


@pytest.fixture(scope="module")
def fewer(tmp_path_factory):
    """Two leaf servers of two nodes each, of which node 1 is not there."""
    folder = tmp_path_factory.mktemp("fewer")
    options = small_config(
        folder / "data", hierarchy__num_servers=2, clients=4, num_server_rounds=2, scaffold__enabled=False,
        gate__enabled=False, cluster__enabled=False, guard__start_clients=3, guard__return_timeout=60,
    )  # fmt: skip
    with Leaves(folder, options, 4, without=[1]) as there:
        yield there
    assert leftovers(there.mark) == []


def trained_in(folder, round_):
    """Clients that trained in a global round."""
    rows = pl.read_csv(folder / "metrics" / "clients.csv")
    rows = rows.filter((pl.col("global_round") == round_) & pl.col("train_loss").is_not_null())
    return rows["client"].to_list()


def is_connected(fewer, client):
    """Whether a node has connected to its leaf server."""
    return "SuperNode ID: " in fewer.said(f"node-{client}")


def end(process):
    process.terminate()
    process.wait(60)


def patiently(fewer, name, begin):
    """Begin a run, or a resumed one, until its wait is long enough; give its exit code and what it said last.

    The quorum is exactly the nodes that are there, so none of them is taken for one that is gone.
    """
    for seconds in PATIENCE_S:
        before = len(fewer.said(name)) if (fewer.folder / f"{name}.out").exists() else 0
        code = begin(**{"guard.start-timeout": seconds}).wait(600)
        said = fewer.said(name)[before:]
        if "start-timeout: " not in said:
            break
    print(f"--- {name}: exit code {code}\n{said}")
    return code, said


@pytest.mark.extended
@pytest.mark.timeout(2400)  # five minutes beside other work, two of them for nodes that never come
def test_a_quorum_with_leaf_servers_of_nodes(fewer):
    """A run begins without a node, goes on without another, which it knows, and without a whole leaf server.

    The node without which it began comes later and stays out; a new run cannot begin without a leaf server.
    """
    folder = fewer.folder / "runs" / "fewer"

    def go_on(rounds, clients):
        further = {"num-server-rounds": rounds, "guard.start-clients": clients}
        return patiently(fewer, "resume-fewer", lambda **wait: fewer.resume("fewer", **further, **wait))

    def begin(**wait):
        shutil.rmtree(folder, ignore_errors=True)
        return fewer.run("fewer", **wait)

    wait_until(lambda: all(is_connected(fewer, client) for client in fewer.nodes), 120, "the nodes")
    code, said = patiently(fewer, "run-fewer", begin)
    assert code == 3, said
    assert "1 of 4 clients is missing (partition 1); the run begins without them" in said
    assert "they never take part: their windows are unknown" in said
    assert trained_in(folder, 2) == [0, 2, 3]
    end(fewer.nodes[3])
    fewer.start_node(1)
    wait_until(lambda: is_connected(fewer, 1), 120, "node 1")
    code, said = go_on(rounds=3, clients=2)
    assert code == 3, said
    assert "2 of 4 clients are missing (partition 1, 3)" in said
    assert trained_in(folder, 3) == [0, 2]
    assert (
        "partition 1 stays out: the run has begun without its windows"
        in (fewer.folder / "leaf-0" / "leaf.log").read_text()
    )
    fewer.start_node(3)
    end(fewer.leaves[1])
    code, said = go_on(rounds=4, clients=1)
    assert code == 3, said
    assert "3 of 4 clients are missing (partition 1, 2, 3)" in said
    assert trained_in(folder, 4) == [0]
    code, said = patiently(
        fewer, "run-refused", lambda **wait: fewer.run("refused", **{"guard.start-clients": 1}, **wait)
    )
    assert code == 4
    assert "but leaf 1 has none (partition 2 to 3); start one of them" in said
