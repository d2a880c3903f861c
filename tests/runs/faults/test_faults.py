"""Faults of clients, on both engines: threads of this process, and Ray under `flwr run`.

`faulty_client` is a ClientApp in its own right, so nothing of Fedge is replaced for these tests.
"""

import csv
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import faulty_client
import numpy as np
import pytest
import ray
import torch
from flwr.app import Context, Error, Message, RecordDict
from processes import MARK, leftovers
from safetensors.numpy import load_file

from fedge.client.guarded_app import ClientError, GuardedApp
from fedge.config.registers.option import ConfigError
from fedge.engine import ray_workers
from fedge.engine.federation import Federation
from fedge.engine.flower_engine import FlowerEngine
from fedge.engine.inprocess import InProcessGrid
from fedge.engine.workers import Workers
from fedge.launch.preflight import check
from fedge.run.run import run
from hhar.synthetic.generate import synthetic_windows
from hhar.windows.window_file import save_windows

CLIENTS = 4
SMALL = {
    "report": False,
    "num-server-rounds": 3,
    "seed": 5,
    "hierarchy.num-servers": 2,
    "hierarchy.leaf-rounds": 2,
    "train.model": "mlp-tiny",
    "train.local-epochs": 1,
    "partition.kind": "iid",
    "guard.retries": 0,
    "guard.start-timeout": 400.0,  # on a busy machine Ray takes its time
}


@pytest.fixture(scope="module")
def window_file(tmp_path_factory):
    """Four synthetic users, 864 windows."""
    path = tmp_path_factory.mktemp("windows") / "four.npz"
    save_windows(path, synthetic_windows(CLIENTS, seed=1))
    return str(path)


class Ended:
    """A run that has ended: its manifest, its tables, its terminal."""

    def __init__(self, folder, terminal):
        self.folder = folder
        self.terminal = terminal
        self.manifest = json.loads((folder / "manifest.json").read_text())
        self.status = self.manifest["status"]

    def table(self, name):
        with (self.folder / "metrics" / name).open(newline="") as file:
            return list(csv.DictReader(file))

    def column(self, name, table="global_rounds.csv"):
        return [row[name] for row in self.table(table)]

    @property
    def results(self):
        """Results whose bytes must be equal in equal runs."""
        timed = ("seconds", "train_seconds")
        found = {
            name: [{k: v for k, v in row.items() if k not in timed} for row in self.table(name)]
            for name in ("global_rounds.csv", "leaf_rounds.csv", "clients.csv")
        }
        found["clusters"] = (self.folder / "clusters.jsonl").read_text()
        found["models"] = (self.folder / "checkpoints" / "final.safetensors").read_bytes()
        return found

    @property
    def log(self):
        return (self.folder / "run.log").read_text()


@pytest.fixture
def in_process(tmp_path, window_file, monkeypatch):
    """Run on threads of this process with faults; `spy` is called with strategy and grid at the end."""

    def carry_out(faults=(), app=faulty_client.app, spy=None, engine=lambda grid: grid, **changes):
        monkeypatch.setenv("FEDGE_FAULTS", json.dumps(list(faults)))
        config = {**SMALL, "data.path": window_file, "runs-dir": str(tmp_path / "runs"), **changes}
        terminal = tmp_path / "terminal.txt"
        made = []
        import fedge.run.build as run_module

        original = run_module.HierarchicalStrategy
        monkeypatch.setattr(
            run_module, "HierarchicalStrategy", lambda *a: made.append(original(*a)) or made[-1]
        )
        with InProcessGrid(app, CLIENTS, config, 2) as grid, terminal.open("w") as stream:
            outcome = run(engine(grid), config, "inprocess", {}, lambda _: stream)
            if spy:
                spy(made[0], grid)
        monkeypatch.setattr(run_module, "HierarchicalStrategy", original)
        return Ended(outcome.folder, terminal.read_text())

    return carry_out


@pytest.fixture
def on_ray(tmp_path, window_file):
    """Run `flwr run` on a project whose clientapp is the faulty one, two workers."""

    def carry_out(faults=(), timeout=400, **changes):
        project = tmp_path / "project"
        if not project.exists():
            project.mkdir()
            shutil.copy(faulty_client.__file__, project / "faulty_client.py")
            text = (Path(__file__).parents[3] / "pyproject.toml").read_text()
            text = text.replace("fedge.client_app:app", "faulty_client:app")
            text = text.replace("options.num-supernodes = 9", f"options.num-supernodes = {CLIENTS}", 1)
            cpus = max(1, (os.cpu_count() or 1) // 2)
            text = text.replace("num-cpus = 1 ", f"num-cpus = {cpus} ", 1)
            (project / "pyproject.toml").write_text(text)
        config = {**SMALL, "data.path": window_file, "runs-dir": str(tmp_path / "ray-runs"), **changes}
        overrides = tmp_path / "overrides.toml"
        overrides.write_text(
            "".join(
                f"{'.'.join(json.dumps(p) for p in key.split('.'))} = {json.dumps(value)}\n"
                for key, value in config.items()
            )
        )
        bin_folder = Path(sys.executable).parent
        root = str(Path(__file__).parents[3])
        environment = {
            **os.environ,
            "FEDGE_FAULTS": json.dumps(list(faults)),
            MARK: str(tmp_path),
            "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(project), root]),
        }
        environment.pop("SEED", None)
        process = subprocess.run(
            [str(bin_folder / "flwr"), "run", ".", "-c", str(overrides)],
            cwd=project, env=environment, capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip
        folder = tmp_path / "ray-runs" / "latest"
        assert (folder / "manifest.json").is_file(), process.stdout + process.stderr
        assert leftovers(tmp_path) == [], "processes were left behind"
        return Ended(folder.resolve(), process.stdout + process.stderr)

    return carry_out


def control_matches(strategy, grid):
    """Assert contract C6 at every leaf: c is the weighted mean of the clients' c_i; they keep nothing."""
    assert not any(context.state for context in grid._contexts.values())
    for leaf in strategy.leaves:
        states = [leaf.client_controls.get(client) for client in leaf.clients]
        for name, control in leaf.control.items():
            own = [np.zeros_like(control) if s is None else s[name] for s in states]
            mean = np.average(own, axis=0, weights=list(leaf.train_samples.values()))
            np.testing.assert_allclose(control, mean, rtol=0, atol=1e-12)


# --- one bad thing, in one round ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "kind", "telling"),
    [
        ("raise", "exception", "RuntimeError: sensor unplugged"),
        ("raise-after-training", "exception", "RuntimeError: lost on the way"),
        ("exit-0", "exception", "SystemExit(0): the client tried to end its process"),
        ("exit-3", "exception", "SystemExit(3): the client tried to end its process"),
        ("none", "exception", "the client returned NoneType instead of a reply"),
        ("number", "exception", "the client returned int instead of a reply"),
        ("other-message", "exception", "a message that does not reply to the one it was sent"),
        ("out-of-memory", "exception", "Unable to allocate"),
        ("empty", "rejected: not readable", "KeyError"),
        ("nan", "rejected: not finite", "entry 'hidden.weight'"),
        ("infinite", "rejected: not finite", "entry 'hidden.weight'"),
        ("shape", "rejected: other shape", "entry 'hidden.weight'"),
        ("dtype", "rejected: other dtype", "float64 instead of float32"),
        ("missing", "rejected: other entries", "hidden.weight"),
        ("extra", "rejected: other entries", "more"),
        ("samples", "rejected: samples out of range", "1000000000"),
        ("no-samples", "rejected: samples out of range", "(0, but"),
        ("half-sample", "rejected: not readable", "num-examples must be a whole number, but is 0.5"),
        ("no-steps", "rejected: steps out of range", "(0, but"),
        ("nan-loss", "rejected: loss not finite", "(nan)"),
    ],
)
def test_a_training_fault_costs_one_client_one_round(in_process, what, kind, telling):
    """Client 1 in round 2: the run goes on, names client and reason once, and ends partial; c stays exact."""
    ended = in_process([{"what": what, "client": 1, "rounds": [2]}], spy=control_matches)
    assert ended.status == "partial"
    assert ended.column("clients_failed") == ["0", "1", "0"]
    assert ended.column("failures") == ["", f"{kind} 1", ""]
    (remark,) = [line for line in ended.manifest["remarks"] if "failed" in line]
    assert remark.startswith("client 1 failed, first in round 2: ")
    assert telling in remark
    assert sum("client 1 failed" in line for line in ended.log.splitlines()) == 1
    assert "Traceback" not in ended.terminal
    lost = [r for r in ended.table("clients.csv") if (r["global_round"], r["client"]) == ("2", "1")]
    assert lost[0]["train_loss"] == ""
    assert all(
        np.isfinite(a).all() for a in load_file(ended.folder / "checkpoints/final.safetensors").values()
    )


@pytest.mark.parametrize(
    ("what", "kind", "counts"),
    [
        ("raise", "exception", False),
        ("none", "exception", False),
        ("negative-count", "rejected: count out of range", False),
        ("too-many", "rejected: count out of range", False),
        ("no-own", "rejected: other entries", False),
        ("wrong-counts", "rejected: counts do not add up", False),
        ("half-counts", "rejected: counts do not add up", False),
        ("evaluated-nan", "loss not finite", True),
    ],
)
def test_an_evaluating_fault_costs_one_client_one_round(in_process, what, kind, counts):
    """An evaluation that does not add up is not pooled; a loss that is no number is only said."""
    ended = in_process([{"what": what, "client": 1, "rounds": [2], "message": "evaluate"}])
    assert ended.status == "partial"
    assert ended.column("failures") == ["", f"{kind} 1", ""]
    evaluated = [r for r in ended.table("clients.csv") if (r["global_round"], r["client"]) == ("2", "1")]
    assert (evaluated[0]["test_accuracy"] != "") is counts


def test_what_happens_again_is_logged_once(in_process):
    """Three rounds × two leaf rounds of the same fault: one line in the log, a count per round."""
    ended = in_process([{"what": "nan", "client": 1}, {"what": "raise", "client": 3}])
    assert ended.column("failures") == ["exception 1; rejected: not finite 1"] * 3
    assert sum("client 1 failed" in line for line in ended.log.splitlines()) == 1
    assert sum("client 3 failed" in line for line in ended.log.splitlines()) == 1


def test_a_reply_that_does_not_count_leaves_no_trace(in_process):
    """A round in which client 1's reply is refused has the bits of one in which it sent nothing at all."""
    kept = [
        in_process([{"what": what, "client": 1, "rounds": [2]}])
        for what in ("raise", "raise-after-training", "nan", "shape", "samples")
    ]
    first = kept[0].results
    for ended in kept[1:]:
        assert ended.results["models"] == first["models"]
        assert ended.results["leaf_rounds.csv"] == first["leaf_rounds.csv"]


def test_control_variates_survive_refusals_under_sampling(in_process):
    """Contract C6 with two leaf rounds, a fault in either, and clients that come and go."""
    faults = [
        {"what": "nan", "client": 0, "rounds": [1, 3]},
        {"what": "raise-after-training", "client": 1, "rounds": [2]},
        {"what": "samples", "client": 2},
    ]
    ended = in_process(
        faults,
        spy=control_matches,
        **{"num-server-rounds": 5, "hierarchy.leaf-rounds": 3, "hierarchy.num-servers": 1},
    )
    assert ended.status == "partial"
    in_process(
        faults,
        spy=control_matches,
        **{"num-server-rounds": 5, "hierarchy.num-servers": 1, "hierarchy.fraction-train": 0.5},
    )


def test_a_control_of_a_client_that_is_refused_stays(in_process):
    """Client 1 is refused in all rounds but the first: its c_i is that of a run of one round."""
    kept = []

    def spy(strategy, grid):
        kept.append({name: entry.copy() for name, entry in strategy.leaves[0].client_controls[1].items()})

    in_process([{"what": "nan", "client": 1, "rounds": [2, 3]}], spy=spy)
    in_process([], spy=spy, **{"num-server-rounds": 1})
    three, one = kept
    for name, entry in one.items():
        assert entry.any()
        np.testing.assert_array_equal(three[name], entry)


# --- too few replies ------------------------------------------------------------------------------------


def test_a_leaf_with_too_few_replies_keeps_its_model(in_process):
    """guard.min-clients 2 of 2: leaf 0 stands still in round 2, leaf 1 goes on; the round says so."""
    config = {"guard.min-clients": 2, "cluster.tau": 1.01, "num-server-rounds": 2, "hierarchy.leaf-rounds": 1}
    ended = in_process([{"what": "raise", "client": 1, "rounds": [2]}], spy=control_matches, **config)
    before = in_process([], **{**config, "num-server-rounds": 1})
    after, first = (load_file(e.folder / "checkpoints/final.safetensors") for e in (ended, before))
    assert all(np.array_equal(after[name], first[name]) for name in after if name.startswith("leaf-0/"))
    assert any(not np.array_equal(after[name], first[name]) for name in after if name.startswith("leaf-1/"))
    assert ended.column("kept_model", "leaf_rounds.csv") == ["0", "0", "1", "0"]
    assert "leaf 0 keeps its model: 1 of 2 replies that it needs" in ended.log
    assert "leaf 0 kept its model in 1 leaf round, because it had too few valid replies" in ended.terminal


def test_a_leaf_without_any_reply_keeps_its_model(in_process):
    ended = in_process([{"what": "nan", "client": c, "rounds": [2]} for c in (0, 1)], spy=control_matches)
    assert ended.status == "partial"
    assert ended.column("kept_model", "leaf_rounds.csv") == ["0", "0", "2", "0", "0", "0"]


@pytest.mark.parametrize("what", ["raise", "nan"])
def test_a_round_in_which_nothing_counts_ends_the_run(in_process, what):
    ended = in_process([{"what": what, "client": c, "rounds": [2]} for c in range(CLIENTS)])
    assert ended.status == "failed"
    assert ended.manifest["reason"].startswith("no client could train in global round 2; client 0: ")


@pytest.mark.parametrize(
    ("config", "telling"),
    [
        (
            {"guard.min-clients": 3},
            "guard.min-clients must be at most the clients that a leaf trains, but is 3",
        ),
        (
            {"leaf.strategy": "krum"},
            "leaf.strategy krum needs 3 clients for leaf.strategy-args.num-malicious-nodes=0",
        ),
        (
            {"leaf.strategy": "bulyan", "leaf.strategy-args.num-malicious-nodes": 1},
            "leaf.strategy bulyan needs 7 clients",
        ),
        (
            {"privacy.kind": "server-adaptive"},
            "privacy.noise-multiplier must be below a tenth of the clients",
        ),
        ({"privacy.kind": "local", "train.model": "cnn"}, "needs a model without BatchNorm"),
        ({"privacy.kind": "local", "scaffold.enabled": True}, "needs SCAFFOLD off"),
        ({"privacy.kind": "server-fixed", "leaf.strategy": "fedmedian"}, "needs leaf.strategy to be fedavg"),
        (
            {"privacy.kind": "server-fixed", "guard.max-norm-factor": 5},
            "guard.max-norm-factor must be 0 with privacy.kind server-fixed, because by it",
        ),
        ({"guard.max-norm-factor": 0.5}, "guard.max-norm-factor must be 0 or at least 1"),
    ],
)
def test_what_can_never_work_is_refused_before_a_run(config, telling, window_file):
    whole = {
        **SMALL, "data.path": window_file, "scaffold.enabled": False, "train.model": "linear", **config,
    }  # fmt: skip
    with pytest.raises(ConfigError, match=telling) as caught:
        check(whole, Federation(CLIENTS))
    assert "\n" not in str(caught.value)


# --- second attempts --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, window_file):
    """The results of a run in which nothing goes wrong."""
    folder = tmp_path_factory.mktemp("undisturbed")
    config = {**SMALL, "data.path": window_file, "runs-dir": str(folder / "runs")}
    with InProcessGrid(faulty_client.app, CLIENTS, config, 2) as grid, (folder / "t.txt").open("w") as stream:
        outcome = run(grid, config, "inprocess", {}, lambda _: stream)
    assert outcome.status == "completed"
    return Ended(outcome.folder, "").results


def once(what, tmp_path, **where):
    """A fault that happens once."""
    marks = tmp_path / "marks"
    marks.mkdir(exist_ok=True)
    return {"what": what, "client": 1, "rounds": [2], "times": 1, "marks": str(marks), **where}


@pytest.mark.parametrize("what", ["raise", "raise-after-training", "none", "exit-0", "late"])
def test_a_second_attempt_gives_the_bits_of_the_first(in_process, undisturbed, tmp_path, what):
    """guard.retries 1: the run completes as if nothing had been, c_i included; the log knows better."""
    config = {"guard.retries": 1, "guard.client-timeout": 3.0}
    ended = in_process([once(what, tmp_path)], spy=control_matches, **config)
    assert ended.status == "completed"
    assert ended.results == undisturbed
    assert "client 1 failed and is tried again: " in ended.log


LOCAL = {"privacy.kind": "local", "train.model": "linear", "scaffold.enabled": False, "guard.retries": 1}


def released(path):
    """(client, leaf round) → digests of the models that it released, attempt by attempt."""
    found = {}
    for line in path.read_text().splitlines():
        client, leaf_round, digest = line.split()
        found.setdefault((int(client), int(leaf_round)), []).append(digest)
    return found


def assert_one_release(found):
    """Some were asked for twice; whoever was released the same bytes, all others other ones."""
    assert any(len(digests) > 1 for digests in found.values())
    assert all(len(set(digests)) == 1 for digests in found.values())
    assert len({digests[0] for digests in found.values()}) == len(found)


@pytest.mark.parametrize("source", ["seed", "system"])
@pytest.mark.parametrize("what", ["raise-after-training", "late"])
def test_a_second_attempt_releases_nothing_that_the_first_did_not(
    in_process, tmp_path, monkeypatch, what, source
):
    """With noise of clients' own two releases of one update would spend twice, and one is counted."""
    monkeypatch.setenv("FEDGE_RELEASED", str(tmp_path / "released"))
    short = {"num-server-rounds": 2, "guard.client-timeout": 3.0, "privacy.noise-source": source}
    ended = in_process([once(what, tmp_path)], **LOCAL, **short)
    assert ended.status == "completed"
    assert_one_release(released(tmp_path / "released"))


def test_attempts_come_to_an_end(in_process, tmp_path):
    """guard.retries 2: a client that fails three times in a leaf round has failed."""
    fault = {**once("raise", tmp_path), "times": 3}
    ended = in_process([fault], **{"guard.retries": 2})
    assert ended.status == "partial"
    assert ended.log.count("client 1 failed and is tried again") == 2


@pytest.mark.parametrize(
    ("deaths", "restart_s", "status"), [(99, 60.0, "completed"), (10**9, 0.5, "partial")]
)
def test_a_message_that_a_dying_worker_took_is_no_attempt(in_process, monkeypatch, deaths, restart_s, status):
    """Ray's own words for it, and no sign that the client had begun: sent again, but not for ever.

    However often: on a busy machine a worker takes as long to start again as fifty messages take to fail.
    """
    monkeypatch.setattr("fedge.exchange.clients.RESTART_S", restart_s)
    left = [deaths]

    def unlucky(message, context):
        if context.node_config["partition-id"] == 1 and message.metadata.message_type == "train" and left[0]:
            left[0] -= 1
            words = "<class 'ray.exceptions.ActorUnavailableError'>:<'The actor is restarting..'>"
            return Message(Error(0, words), reply_to=message)
        return faulty_client.app(message, context)

    short = {"num-server-rounds": 1, "hierarchy.leaf-rounds": 1}
    ended = in_process(app=unlucky, engine=FlowerEngine, **short)
    assert ended.status == status
    assert (left == [0]) == (status == "completed")


# --- clients that hang ------------------------------------------------------------------------------------


def test_a_client_that_hangs_is_given_up(in_process):
    """Both threads are held at once; others take their place, and the run ends while they still sleep."""
    began = time.monotonic()
    faults = [
        {"what": "hang", "client": c, "rounds": [2], "message": m} for c, m in ((0, "train"), (2, "evaluate"))
    ]
    ended = in_process(
        faults, spy=control_matches, **{"guard.client-timeout": 3.0, "hierarchy.leaf-rounds": 1}
    )
    assert time.monotonic() - began < faulty_client.HANG_S / 2
    assert ended.status == "partial"
    assert ended.column("failures") == ["", "no reply 2", ""]
    assert (
        "client 0 failed, first in round 2: no reply within 3 s, which is guard.client-timeout"
        in ended.terminal
    )


def test_a_process_ends_while_a_client_hangs(tmp_path, window_file):
    """`fedge.simulate` in a process of its own: the thread that hangs does not keep it alive."""
    program = (
        "import json, sys, faulty_client, fedge.launch.simulate as s; grid = s.InProcessGrid\n"
        "s.InProcessGrid = lambda _, *words: grid(faulty_client.app, *words)\n"
        "print(s.simulate(json.loads(sys.argv[1]), num_supernodes=4, workers=2).status)"
    )
    config = {**SMALL, "data.path": window_file, "runs-dir": str(tmp_path), "guard.client-timeout": 3.0}
    environment = {
        **os.environ,
        "FEDGE_FAULTS": json.dumps([{"what": "hang", "client": 1, "rounds": [3]}]),
        "PYTHONPATH": os.pathsep.join(
            [str(Path(faulty_client.__file__).parent), str(Path(__file__).parents[3])]
        ),
    }
    process = subprocess.run(
        [sys.executable, "-c", program, json.dumps(config)],
        env=environment, capture_output=True, text=True, timeout=faulty_client.HANG_S - 10, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines()[-1] == "partial"


def test_threads_that_never_come_back_are_replaced():
    """Two jobs hold both threads; once they are given up, a third is done, and theirs are not handed in."""
    release, done = threading.Event(), []
    workers = Workers(
        2, lambda job: release.wait(100) and job if job < 2 else job, lambda job, _: done.append(job)
    )
    for job in (0, 1, 2):
        workers.submit(job)
    deadline = time.monotonic() + 60
    given_up = []
    while len(given_up) < 2 and time.monotonic() < deadline:
        given_up += workers.give_up_late(0.05)
    while not done and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sorted(given_up) == [0, 1]
    release.set()
    assert workers.close(5.0)
    assert done == [2]


def test_close_does_not_wait_for_ever():
    release = threading.Event()
    workers = Workers(1, lambda job: release.wait(100), lambda *_: None)
    workers.submit(0)
    workers.submit(1)
    time.sleep(0.05)
    assert not workers.close(0.1)
    release.set()


# --- the guard around any ClientApp -------------------------------------------------------------------------


def call(app):
    message = Message(RecordDict(), 1, "query.hello")
    message.metadata.__dict__["_message_id"] = "17"  # as every engine sets it
    return app(message, Context(1, 1, {}, RecordDict(), {}))


@pytest.mark.parametrize("what", ["none", "number", "exit-0", "exit-3", "other-message"])
def test_guarded_app_always_answers_or_raises(what):
    app = GuardedApp()
    app.query("hello")(faulty_client.FAULTS[what])
    with pytest.raises(ClientError):
        call(app)


def test_guarded_app_passes_on_replies_and_exceptions():
    app = GuardedApp()
    app.query("hello")(lambda message, _: Message(RecordDict(), reply_to=message))
    assert isinstance(call(app), Message)
    app = GuardedApp()
    app.query("hello")(faulty_client.FAULTS["raise"])
    with pytest.raises(RuntimeError, match="sensor unplugged"):
        call(app)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has …\nmore"),
        RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported later"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
)
def test_memory_of_a_gpu_that_ran_out_is_said_with_what_to_change(error):
    """Words of PyTorch 2 on a GPU, as its exceptions have them."""

    def run_out(message, context):
        raise error

    app = GuardedApp()
    app.query("hello")(run_out)
    with pytest.raises(
        ClientError, match=r"no memory left .*; lower train.batch-size, .* train.device=cpu"
    ) as e:
        call(app)
    assert str(error).splitlines()[0] in str(e.value)
    assert "\n" not in str(e.value)


ON_RAY_S = 40.0  # on a busy machine the other clients of a leaf take ten seconds, in the worker that is left


# --- Flower's Ray workers ---------------------------------------------------------------------------------


@pytest.mark.extended
def test_workers_are_asked_to_restart_and_wait_in_a_pool_that_spares_the_dead():
    """On the Flower and Ray that are installed, the private names are where they are looked for."""
    program = (
        "import flwr.simulation.ray_transport.ray_actor as a, fedge.engine.ray_workers as r\n"
        "import flwr.server.superlink.fleet.vce.backend.raybackend as b, fedge.engine.worker_pool as w\n"
        "base = b.BasicActorPool\n"
        "assert r.restart_dead_workers() and w.spare_dead_workers() and w.spare_dead_workers()\n"
        "assert b.BasicActorPool.__mro__[1:3] == (w.PatientPool, base)\n"
        "import flwr.server.superlink.fleet.vce.vce_api as v\n"
        "assert w.use_joining_machines() and hasattr(v.worker, '__wrapped__')\n"
        "assert w.use_every_worker() and v.ThreadPoolExecutor()._max_workers > 10_000\n"
        "assert callable(getattr(a, w._SIZE))\n"
        "print(a.ClientAppActor._default_options['max_restarts'])"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert process.stdout.split()[-1] == "-1"


@pytest.mark.parametrize("module", [types.SimpleNamespace(), types.SimpleNamespace(ClientAppActor=object())])
def test_a_version_without_that_option_is_said(monkeypatch, caplog, module):
    monkeypatch.setitem(sys.modules, ray_workers._ACTORS, module)
    with caplog.at_level(logging.WARNING):
        assert not ray_workers.restart_dead_workers()
    assert "dead ones are not replaced" in caplog.text


def test_without_ray_nothing_is_loaded_or_said(monkeypatch, caplog):
    monkeypatch.delitem(sys.modules, ray_workers._ACTORS, raising=False)
    assert not ray_workers.restart_dead_workers()
    assert not caplog.records


@pytest.mark.extended
def test_faults_on_ray(on_ray, in_process):
    """One of everything, in turn, as a user meets it: killed workers, exits, None, NaN, a client that hangs.

    Every round after a fault has all clients again; no traceback reaches the terminal; the process ends; and
    the models have the bits of a run in this process in which the same clients failed.
    """
    faults = [
        {"what": "kill", "client": 1, "rounds": [2]},
        {"what": "exit-0", "client": 0, "rounds": [4]},
        {"what": "none", "client": 2, "rounds": [4]},
        {"what": "number", "client": 3, "rounds": [5]},
        {"what": "nan", "client": 1, "rounds": [5]},
        {"what": "hang", "client": 2, "rounds": [7]},
        {"what": "kill", "client": 0, "rounds": [8], "message": "evaluate"},
    ]
    config = {"num-server-rounds": 9, "hierarchy.leaf-rounds": 1, "guard.client-timeout": ON_RAY_S}
    ended = on_ray(faults, **config)
    assert ended.status == "partial"
    assert ended.column("failures") == [
        "", "worker died 1", "", "exception 2", "exception 1; rejected: not finite 1", "", "no reply 1",
        "worker died 1", "",
    ]  # fmt: skip
    assert "Traceback" not in ended.terminal
    assert "client 1 failed, first in round 2: worker died" in ended.terminal
    assert "client 2 failed, first in round 4: the client returned NoneType" in ended.terminal
    assert "client 2 stood here when its time was over" in ended.log
    assert "faulty_client.py" in ended.log.split("stood here when its time was over")[1]
    same = in_process(
        [{**f, "what": "raise" if f["what"] in ("kill", "hang") else f["what"]} for f in faults], **config
    )
    assert ended.results["models"] == same.results["models"]
    assert ended.results["clients.csv"] == same.results["clients.csv"]


@pytest.mark.extended
def test_a_killed_worker_costs_nothing_with_a_second_attempt(on_ray, undisturbed, tmp_path):
    """SIGKILL before and after training, and a hang: with guard.retries 1, the bits of a quiet run."""
    faults = [
        once("kill", tmp_path),
        once("kill-after-training", tmp_path, client=2),
        once("hang", tmp_path, client=3, rounds=[3]),
    ]
    ended = on_ray(faults, **{"guard.retries": 1, "guard.client-timeout": ON_RAY_S})
    assert ended.status == "completed"
    assert ended.results == undisturbed
    assert "client 1 failed and is tried again: worker died" in ended.log
    assert f"client 3 failed and is tried again: no reply within {ON_RAY_S:g} s" in ended.log


@pytest.mark.extended
def test_a_second_attempt_in_another_worker_releases_the_same(on_ray, tmp_path, monkeypatch):
    """Noise of the system's generator: the secret is Flower's state of the node, not the worker's."""
    monkeypatch.setenv("FEDGE_RELEASED", str(tmp_path / "released"))
    changes = {"num-server-rounds": 2, "privacy.noise-source": "system", "guard.client-timeout": 60.0}
    ended = on_ray([once("kill-after-training", tmp_path)], **LOCAL, **changes)
    assert ended.status == "completed"
    assert_one_release(released(tmp_path / "released"))


@pytest.mark.parametrize(
    ("tell", "unset", "value", "kept"),
    [
        (
            ray_workers.notice_lost_connections,
            "RAY_grpc_client_keepalive_time_ms",
            "30000",
            "RAY_grpc_client_keepalive_timeout_ms",
        ),
        (
            ray_workers.allow_slow_starts,
            "RAY_agent_register_timeout_ms",
            "600000",
            "RAY_worker_register_timeout_seconds",
        ),
    ],
    ids=["lost connections", "slow starts"],
)
def test_ray_is_told_its_times_unless_the_user_has_set_them(tell, unset, value, kept, monkeypatch):
    """Half a minute is too short for an agent's imports beside five other runs."""
    monkeypatch.delenv(unset, raising=False)
    monkeypatch.setenv(kept, "5")
    tell()
    assert (os.environ[unset], os.environ[kept]) == (value, "5")


def test_the_installed_ray_reads_every_variable_that_is_set_for_it():
    """A name that Ray has dropped would be set in vain."""
    program = (Path(ray.__file__).parent / "core" / "src" / "ray" / "raylet" / "raylet").read_bytes()
    names = [ray_workers._TASK_HISTORY, ray_workers._PRESTART, *ray_workers._PINGS_MS, *ray_workers._STARTS]
    assert [name for name in names if name.removeprefix("RAY_").encode() not in program] == []


def test_ray_keeps_no_task_history_unless_asked_to(monkeypatch):
    """Its record of calls would grow through a long run (65 KB per global round of 9 clients)."""
    name = "RAY_task_events_report_interval_ms"
    monkeypatch.delenv(name, raising=False)
    ray_workers.keep_no_task_history()
    assert os.environ[name] == "0"
    monkeypatch.setenv(name, "1000")
    ray_workers.keep_no_task_history()
    assert os.environ[name] == "1000"
