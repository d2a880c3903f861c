"""A federation of real processes: SuperLink with TLS, SuperNodes with keys, each with windows of its own."""

import json
import shutil
import subprocess
from collections import Counter
from types import SimpleNamespace

import pytest
from deployment import BIN, Deployment
from flower_runs import comparable
from once import once
from processes import leftovers
from small_runs import carry_out, small_config

from fedge import load_run
from fedge.launch.deal import deal_into
from fedge.link.certificates import CertificateRequest, make_certificates

NODES = 2  # three in the soak tests
LOST_S = 120.0  # a message that a node restarts without is sent again within the test's time
METHOD = {
    "train.algorithm": "ditto", "scaffold.enabled": False, "scaffold.levels": 1, "num-server-rounds": 2,
    "report": False,
}  # fmt: skip

pytestmark = [pytest.mark.extended, pytest.mark.whole_runs]


@pytest.fixture(scope="module")
def carried_out(tmp_path_factory):
    """(deployment, what `fedge run . deployed` gave, the options) of one run of two nodes."""
    return once(tmp_path_factory, "deployment", lambda: carry_out_deployed(tmp_path_factory))


def carry_out_deployed(tmp_path_factory):
    """The second node is Flower's own command. One more has a key that nobody registered."""
    folder = tmp_path_factory.mktemp("deployed")
    options = small_config(
        folder / "data", hierarchy__num_servers=2, clients=NODES, num_server_rounds=1, report=True,
        scaffold__levels=2, guard__client_timeout=LOST_S,
    )  # fmt: skip
    deal_into(folder / "dealt", options)
    deployment = Deployment(folder, {**options, "data.path": "nowhere.npz", "runs-dir": "runs"})
    deployment.project = (deployment.app / "pyproject.toml").read_text()
    with deployment:
        deployment.register(NODES)
        deployment.start_node(0, NODES, folder / "dealt" / "client-0")
        deployment.start_supernode(1, NODES, folder / "dealt" / "client-1")
        make_certificates(folder / "others", CertificateRequest(nodes=1))
        shutil.copy(deployment.certs / "ca.crt", folder / "others" / "ca.crt")
        stranger = deployment.start_supernode(
            0, NODES, folder / "dealt" / "client-0", name="stranger", certs=folder / "others"
        )
        done = run_deployed(deployment, 'run-name="there"')
        deployment.stranger = stranger.poll()
        words = " ".join(f"{key}={json.dumps(value)}" for key, value in METHOD.items())
        deployment.method = run_deployed(deployment, f'run-name="method" {words}')
    kept = ("folder", "app", "mark", "project", "stranger", "method")
    return SimpleNamespace(**{name: getattr(deployment, name) for name in kept}), done, options


def run_deployed(deployment, options):
    return subprocess.run(
        [str(BIN / "fedge"), "run", ".", "deployed", "-c", options],
        cwd=deployment.app, env=deployment.environment(deployment.folder / "user", SEED="3"),
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip


def test_the_run_ends_well_and_its_folder_is_where_it_was_started(carried_out):
    deployment, done, _ = carried_out
    folder = deployment.app / "runs" / "there"
    assert done.returncode == 0, done.stdout + done.stderr
    assert "fedge: run completed, exit code 0: " in done.stdout
    assert str(folder) in done.stdout
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["status"], manifest["seed"]) == ("completed", 3)
    assert manifest["data"]["name"] == f"{NODES} owners (small.npz)"
    assert (folder / "report.html").stat().st_size > 10_000
    assert not list((deployment.folder / "superlink").glob("runs*"))


def test_the_bits_are_those_of_a_run_in_process(carried_out):
    """Every table and model but partition.csv: names of users stay with the owners."""
    deployment, _, options = carried_out
    here = carry_out({**options, "report": False, "runs-dir": str(deployment.folder / "here")}, "here")
    there = comparable(deployment.app / "runs" / "there")
    for name in ("global", "leaf", "clients", "confusion", "models"):
        assert there[name] == here[name], name


def test_a_method_whose_memory_stays_with_the_nodes_has_the_bits_of_a_run_in_process(carried_out):
    """Ditto: each node's own model lies on its machine, and nowhere else."""
    deployment, _, options = carried_out
    assert deployment.method.returncode == 0, deployment.method.stdout + deployment.method.stderr
    given = {**options, **METHOD, "runs-dir": str(deployment.folder / "here")}
    here, folder = carry_out(given, "method"), deployment.app / "runs" / "method"
    there = comparable(folder)
    for name in ("global", "leaf", "clients", "confusion", "models"):
        assert there[name] == here[name], name
    assert not list(folder.rglob("client-*"))
    assert len(list((deployment.folder / "state").rglob("client-*"))) == NODES


def test_nodes_say_with_their_replies_what_they_hold(carried_out):
    """A node is one worker, whichever ClientApp answers; its SuperNode and SuperExec are there, too."""
    deployment, _, _ = carried_out
    run = load_run(deployment.app / "runs" / "there")
    assert Counter(run.memory["role"]) == {"server": 1, "worker": NODES, "node": 3 + 2}
    of_nodes = run.memory.filter(run.memory["role"] != "server")
    assert min(*of_nodes["rss_mib"], *of_nodes["fds"], *of_nodes["threads"]) >= 1
    assert set(of_nodes["machine"]) == {None}  # that of the server
    nodes = set(run.memory.filter(run.memory["role"] == "node")["pid"])
    assert len(run.workers) == NODES
    assert set(run.workers["id"]) <= nodes
    html = (deployment.app / "runs" / "there" / "report.html").read_text()
    assert "Nodes have measured themselves" in html


def test_a_node_whose_key_is_not_registered_does_not_get_in(carried_out):
    deployment, _, _ = carried_out
    assert deployment.stranger not in (None, 0)


def test_the_project_is_as_it_was(carried_out):
    """`flwr run` of newer Flowers edits it."""
    deployment, _, _ = carried_out
    assert (deployment.app / "pyproject.toml").read_text() == deployment.project


def test_nothing_is_left_running(carried_out):
    deployment, _, _ = carried_out
    assert leftovers(deployment.mark) == []
