"""Liars at both ends of the link, as processes over real TLS: a rogue leaf server, and a rogue cloud."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from leaf_servers import LEAVES, cloud, end, free_port, start
from processes import MARK, leftovers
from small_runs import small_config
from spoilt import LIAR, of_the_others

from fedge.config.flat import from_run_config, to_run_config
from fedge.data.prepared import load_source
from fedge.edge import orders
from fedge.link import gate as gate_module
from fedge.link.certificates import Wanted, make_certificates
from fedge.link.frames import Packet, chunks_of
from fedge.link.gate import OVER, LeafGate, LeafGone
from fedge.records.manifest import read_manifest

SUPPORT = Path(__file__).parents[1] / "support"

pytestmark = [pytest.mark.extended, pytest.mark.whole_runs, pytest.mark.timeout(600)]


@pytest.fixture
def certificates(tmp_path):
    make_certificates(tmp_path / "certs", Wanted(leaves=LEAVES))
    return tmp_path / "certs"


def rogue(mode, address, certificates, folder):
    """Start a rogue leaf server."""
    words = [sys.executable, SUPPORT / "rogue_leaf.py", LIAR, address, certificates, folder, mode]
    path = os.pathsep.join(map(str, [SUPPORT, *sys.path]))
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
    """Return what lies outside the leaf server's own folder, its output apart."""
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
