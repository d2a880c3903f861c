"""Liars as processes over real TLS: a rogue leaf server, a rogue cloud, rogue nodes of a SuperLink."""

import json
import os
import subprocess
import sys

import psutil
import pytest
from deployment import BIN, Deployment, wait_until
from leaf_servers import LEAVES, cloud, end, start
from processes import MARK, leftovers
from small_runs import small_config
from spoilt import LIAR, TIMES, of_the_others, rows_of
from support_folders import FOLDERS, SUPPORT

from fedge.config.flat import from_run_config, to_run_config
from fedge.data.prepared import load_source
from fedge.edge.packets import orders
from fedge.launch.deal import deal_into
from fedge.link import gate as gate_module
from fedge.link.certificates import CertificateRequest, make_certificates
from fedge.link.frames import Packet, chunks_of
from fedge.link.gate import OVER, LeafGate, LeafGone
from fedge.link.reach import free_port
from fedge.records.manifest import read_manifest

pytestmark = [pytest.mark.extended, pytest.mark.whole_runs, pytest.mark.timeout(600)]


@pytest.fixture
def certificates(tmp_path):
    make_certificates(tmp_path / "certs", CertificateRequest(leaves=LEAVES))
    return tmp_path / "certs"


def rogue(mode, address, certificates, folder):
    """Start a rogue leaf server."""
    words = [sys.executable, SUPPORT / "liars" / "rogue_leaf.py", LIAR, address, certificates, folder, mode]
    path = os.pathsep.join(map(str, [*FOLDERS, *sys.path]))
    with (folder / f"rogue-{mode}.out").open("ab") as out:
        return subprocess.Popen(
            list(map(str, words)), cwd=folder, stdout=out, stderr=out, start_new_session=True,
            env={**os.environ, MARK: str(folder), "PYTHONPATH": path},
        )  # fmt: skip


def run_with(mode, tmp_path, certificates, config):
    """Carry out a run with two honest leaf servers and a rogue one; return its folder and what was shown."""
    address, folder = f"127.0.0.1:{free_port()}", tmp_path / mode
    folder.mkdir()
    data = config["data.path"]
    honest = [
        start(leaf, address, certificates, folder, tmp_path, data) for leaf in range(LEAVES) if leaf != LIAR
    ]
    liar = rogue(mode, address, certificates, folder)
    try:
        outcome, shown = cloud({**config, "run-name": mode}, address, certificates)
        assert liar.poll() is None, (folder / f"rogue-{mode}.out").read_text()
    finally:
        liar.kill()
        liar.wait()
        codes = [end(process) for process in honest]
    assert codes == [130] * len(honest)
    assert outcome.status == "partial", outcome.reason
    return outcome.folder, shown


def test_a_rogue_leaf_server_is_one_that_is_gone(tmp_path, certificates):
    """It lies in each answer: numbers, others' clients, notes, escapes, garbage, megabytes."""
    config = small_config(tmp_path, **{"guard.start-timeout": 60.0, "cluster.tau": 2.0})
    lying, shown = run_with("lies", tmp_path, certificates, config)
    away, _ = run_with("away", tmp_path, certificates, config)
    found, wanted = of_the_others(lying), of_the_others(away)
    assert [name for name in wanted if found[name] != wanted[name]] == []
    log = (lying / "run.log").read_text()
    assert all(line.isprintable() for line in [*log.splitlines(), *shown.splitlines()])
    assert "Traceback" not in log
    assert "leaf server rejected" in log
    assert read_manifest(lying)["status"] == "partial"
    assert leftovers(tmp_path) == []


CODE = "import pathlib\npathlib.Path('carried-out').touch()\n\ndef make(*shape):\n    raise SystemExit\n"


def bad_orders(facts):
    """Give what a rogue cloud asks, ways out of a folder, code, escapes, and things that are no orders."""
    run = {"run": facts["run"], "global_round": 1}
    train = {"leaf_round": "../../x", "line": "leaf", "fork": False, "without": [], "leaf": {}, "version": 0}
    yield Packet(orders.TELL, {"config": {"data.path": "/etc/passwd"}, "seed": 1, "clients": 9, "leaf": 0})
    for model in ("evil:make", "subprocess:Popen", "os:system"):
        yield Packet(orders.BEGIN, {**facts, "config": {**facts["config"], "train.model": model}})
    for path in (
        "/etc/passwd",
        "elsewhere.npz",
    ):  # this side's own is read, and is another
        config = {**facts["config"], "data.path": path}
        yield Packet(orders.BEGIN, {**facts, "config": config, "fingerprint": "0" * 64})
    for change in (
        {"run": "\x1b[2J"},
        {"clients": 10**12},
        {"config": {"\x1b[2J": 1}},
        {"config": "x"},
        {"leaf": 7},
    ):
        yield Packet(orders.BEGIN, {**facts, **change})
    yield Packet(orders.BEGIN, facts)
    yield Packet(orders.TRAIN, {**train, **run})
    yield Packet(orders.TRAIN, {**train, **run, "leaf_round": 1, "version": "../../../etc/passwd"})
    for name in ("../controls/1", "/etc/passwd", "../../../x"):
        known = {"own": [orders.HERE, name]}
        yield Packet(orders.EVALUATE, {**run, "known": known, "unseen": {}, "phase": "", "splits": ["val"]})
    yield Packet(orders.PROBE, {**run, "leaf_round": 1, "line": "\x1b[2J", "updates": False})
    yield Packet("\x1b[2J", run)


def files_in(folder):
    """Files outside the leaf server's own folder and its output, with their times."""
    outside = (path for path in folder.rglob("*") if "leaf-0" not in path.relative_to(folder).parts[0])
    return {path: path.stat().st_mtime_ns for path in outside}


def test_a_rogue_cloud_gets_nothing_carried_out_and_nothing_written(tmp_path, certificates, monkeypatch):
    """`fedge leaf` as a process: each order is refused in a line, and the last honest one is answered."""
    config = from_run_config(small_config(tmp_path / "data"))
    facts = {
        "run": "a run", "leaf": 0, "clients": 9, "seed": 3, "config": to_run_config(config),
        "fingerprint": load_source(config, 9)[1].fingerprint,
    }  # fmt: skip
    where = tmp_path / "machine"
    where.mkdir()
    (where / "evil.py").write_text(CODE)
    with LeafGate("127.0.0.1:0", certificates, LEAVES, Packet("welcome", {"\x1b[2J": "x" * 10**5})) as gate:
        process = start(0, gate.address, certificates, where, tmp_path, facts["config"]["data.path"])
        try:
            gate.ask(0, Packet("nothing"), 60.0)
            before = files_in(where)
            said = [(each.kind, gate.ask(0, each, 60.0)) for each in bad_orders(facts)]
            with monkeypatch.context() as patched:  # bytes that are no packet; it hangs up, and dials again
                garbage = [b"H\xff{not a head", b"H"]
                patched.setattr(
                    gate_module, "chunks_of", lambda p: garbage if p.kind == "x" else chunks_of(p)
                )
                with pytest.raises(LeafGone):
                    gate.ask(0, Packet("x"), 3.0, limit_s=2.0)
            assert psutil.Process(process.pid).memory_info().rss < 2**31
            assert gate.ask(0, Packet(orders.BEGIN, facts), 60.0).kind == orders.DONE
            assert files_in(where) == before
            gate.ask(0, Packet(OVER), 10.0)
        finally:
            code = end(process)
    done = [kind for kind, answer in said if answer.kind == orders.DONE]
    assert done == [orders.BEGIN]  # the one that was honest
    words = [answer.facts["words"] for _, answer in said if answer.kind == orders.FAILED]
    assert len(words) == len(said) - 1
    assert all(word.isprintable() and len(word) <= 400 for word in words)
    assert code == 130
    assert not (where / "carried-out").exists()
    out = (where / "leaf-0.out").read_text() + (where / "leaf-0" / "leaf.log").read_text()
    assert all(line.isprintable() for line in out.splitlines())
    assert max(map(len, out.splitlines())) < 2000


# --- nodes --------------------------------------------------------------------------------------------------

NODES, ROGUE, ROUNDS = 3, 1, 5
TRIES = ("steals", "unasked", "elsewhere", "twice")
IN_PLACE = ("again@2", "odd@3", "empty@4")  # what it sends in place of its second, third and fourth training


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """Give a deployment of three nodes' keys, and one more that is registered; two honest nodes run."""
    folder = tmp_path_factory.mktemp("rogue-nodes")
    options = small_config(
        folder / "data", hierarchy__num_servers=2, hierarchy__leaf_rounds=1, clients=NODES,
        num_server_rounds=ROUNDS, guard__retries=0, cluster__tau=2.0, scaffold__levels=2,
    )  # fmt: skip
    deal_into(folder / "dealt", options)
    deployment = Deployment(folder, {**options, "data.path": "nowhere.npz", "runs-dir": "runs"})
    with deployment:
        deployment.register(NODES + 1)
        for node in set(range(NODES)) - {ROGUE}:
            deployment.start_node(node, NODES, folder / "dealt" / f"client-{node}")
        yield deployment
    assert leftovers(deployment.mark) == []


def intruder(nodes, name, claims=0):
    """Start a node with the fourth key that says it holds another's partition, with the windows of that."""
    certs = nodes.folder / f"certs-of-{name}"
    certs.mkdir()
    for there, own in (("ca.crt", "ca.crt"), (f"node-{NODES}", f"node-{claims}")):
        (certs / own).write_bytes((nodes.certs / there).read_bytes())
        (certs / own).chmod(0o600)
    return nodes.start_node(claims, NODES, nodes.folder / "dealt" / f"client-{claims}", name, certs)


def lying(nodes, *lies, **environment):
    """Start the rogue; its output goes to rogue-LIE.log."""
    words = [
        "python", SUPPORT / "liars" / "rogue_node.py", ",".join(lies), ROGUE, "--of", NODES, "--superlink",
        f"127.0.0.1:{nodes.fleet}", "--certs", nodes.certs, "--data-folder",
        nodes.folder / "dealt" / f"client-{ROGUE}",
    ]  # fmt: skip
    path = os.pathsep.join(map(str, [*FOLDERS, *sys.path]))
    node = nodes.start(f"rogue-{lies[0]}", words, PYTHONPATH=path, PYTHONUNBUFFERED="1", **environment)
    nodes.nodes[f"rogue-{lies[0]}"] = node
    return node


def carried_out(nodes, name, late=lambda: None):
    """Carry out a run; return its exit code, folder, and what it said. `late` is called after round 1."""
    log = nodes.folder / f"run-{name}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [BIN / "fedge", "run", ".", "deployed", "-c", f'run-name="{name}"'], cwd=nodes.app, stdout=out,
            stderr=out, stdin=subprocess.DEVNULL, env=nodes.environment(nodes.folder / "user", SEED="3"),
        )  # fmt: skip
    wait_until(lambda: process.poll() is not None or "round 1" in log.read_text(), 300, "round 1")
    late()
    return process.wait(400), nodes.app / "runs" / name, log.read_text()


def but_the_rogue_s(folder):
    """All that a run leaves but the rows of the rogue's own."""
    rows = {
        table: [
            {name: value for name, value in row.items() if name not in TIMES}
            for row in rows_of(folder, table) if row.get("client") != str(ROGUE)
        ]
        for table in ("clients.csv", "leaf_rounds.csv")
    }  # fmt: skip
    files = ("clusters.jsonl", "checkpoints/final.safetensors")
    return {**rows, **{name: (folder / name).read_bytes() for name in files}}


def ended(process):
    process.terminate()
    process.wait(30)


@pytest.mark.soak  # alone on its machine: which messages the rogue spoils goes by time
def test_rogue_nodes_lose_themselves_alone(nodes):
    """One tries all that it may not, and lies in two rounds; one claims a partition that is another's.

    Beside it the same run in which the rogue fails in these rounds, while the other one comes late.
    """
    claiming, rogue = intruder(nodes, "intruder"), lying(nodes, *TRIES, *IN_PLACE)
    code, lied, said = carried_out(nodes, "lied")
    ended(rogue)
    ended(claiming)
    assert code == 3, said
    told = (nodes.folder / f"rogue-{TRIES[0]}.log").read_text()
    came = {tuple(line.split()[1:3]) for line in told.splitlines() if line.startswith("LIE ")}
    print(sorted(came))
    assert {lie for lie, done in came if done == "taken"} == {"odd", "empty"}
    assert {lie for lie, _ in came} == {*TRIES, "again", "odd", "empty"}
    wrong = "a node says that it holds partition 0, but its key is that of partition 3"
    assert f"a node stays out: {wrong}" in (lied / "run.log").read_text()
    # its second training was asked for with an evaluation, and once more by itself
    faults = [{"what": "raise", "client": ROGUE, "rounds": [2, 3]}]
    failing = lying(nodes, "fails", FEDGE_FAULTS=json.dumps(faults))
    code, failed, said = carried_out(nodes, "failed", late=lambda: intruder(nodes, "late"))
    ended(failing)
    assert code == 3, said
    assert "its key is that of partition 3" in (failed / "run.log").read_text()
    found, wanted = but_the_rogue_s(lied), but_the_rogue_s(failed)
    assert [name for name in wanted if found[name] != wanted[name]] == []
    assert "Traceback" not in (lied / "run.log").read_text()


def test_a_node_that_gives_its_own_partition_up_for_another_s_is_named(nodes):
    """Nobody else can hold what its key is of: the run ends at once, and not after its time to start."""
    certs = nodes.folder / "certs-of-the-unfaithful"
    certs.mkdir()
    for there, own in (("ca.crt", "ca.crt"), (f"node-{ROGUE}", "node-0")):
        (certs / own).write_bytes((nodes.certs / there).read_bytes())
        (certs / own).chmod(0o600)
    process = nodes.start_node(0, NODES, nodes.folder / "dealt" / "client-0", "unfaithful", certs)
    code, _, said = carried_out(nodes, "unfaithful")
    ended(process)
    assert code == 4
    assert f"says that it holds partition 0, but its key is that of partition {ROGUE}" in said
