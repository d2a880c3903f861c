import csv
import gc
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from flwr.app import Context, Message

from fedge.client_app import app as client_app
from fedge.config.registers.engines import IN_PROCESS
from fedge.engine.flower_engine import FlowerEngine
from fedge.engine.inprocess import InProcessGrid
from fedge.exchange.finding import find_clients
from fedge.exchange.hello import HELLO, Hello, Question, hello_reply, question_of
from fedge.exchange.train import TRAIN
from fedge.run.run import run
from fedge.states import state_files as shared_states
from fedge.states.challenge import answer_to, write_challenge
from fedge.states.files import REPLY, FileState
from fedge.states.state_files import SharedStates

pytestmark = pytest.mark.whole_runs

STATE = {"weight": np.arange(6, dtype=np.float32).reshape(2, 3)}  # 24 bytes


@pytest.fixture
def memory(tmp_path, monkeypatch):
    """A folder that stands for /dev/shm."""
    folder = tmp_path / "shm"
    folder.mkdir()
    monkeypatch.setattr(shared_states, "MEMORY", folder)
    return folder


@pytest.fixture
def run_folder(tmp_path):
    folder = tmp_path / "runs" / "one"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def shared(memory, run_folder):
    """Shared states that keep what is larger than 20 bytes, in memory."""
    made = SharedStates(run_folder)
    made.prepare(20, 24, 1000)
    yield made
    made.close()


def files(folder):
    """The names of all files in the state folders in `folder`, without owner and challenge."""
    own = ("owner", "challenge-")
    return sorted(p.name for p in folder.glob("*states*/*") if not p.name.startswith(own))


# --- what is kept -------------------------------------------------------------------------------------


def test_large_states_are_kept_as_files_as_long_as_they_are_used(shared, memory):
    kept = shared.keep(STATE)
    assert isinstance(kept, FileState)
    np.testing.assert_array_equal(kept["weight"], STATE["weight"])
    assert shared.keep(kept) is kept
    other = shared.keep(STATE)
    assert files(memory) == ["server-1", "server-2"]
    del kept
    gc.collect()
    assert files(memory) == ["server-2"]
    del other
    gc.collect()
    assert files(memory) == []


@pytest.mark.skipif(not Path("/proc/self/smaps").is_file(), reason="the system does not tell")
def test_what_is_kept_once_more_leaves_memory_and_can_be_read_again(shared):
    kept = shared.keep({"weight": np.ones(2**20, np.float32)})
    assert kept["weight"].sum() == 2**20
    assert mapped_kib(kept.ticket.path) > 4000
    assert shared.keep(kept) is kept
    assert mapped_kib(kept.ticket.path) == 0
    assert kept["weight"].sum() == 2**20


def mapped_kib(path):
    """KiB of a file that are mapped into this process's memory now."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if line.endswith(path))
    return next(int(line.split()[1]) for line in lines[first:] if line.startswith("Rss:"))


def test_small_states_stay_as_they_are(shared, memory):
    """20 bytes is not above 20 bytes."""
    small = {"weight": np.zeros(5, np.float32)}
    assert shared.keep(small) is small
    assert files(memory) == []


def test_replies_are_swept_and_what_is_open_stays_valid(shared, memory):
    kept = shared.keep(STATE)
    folder = next(memory.iterdir())
    for name in (f"{REPLY}1", f"{REPLY}2.part"):
        (folder / name).write_bytes(b"x")
    shared.sweep()
    assert files(memory) == ["server-1"]
    np.testing.assert_array_equal(kept["weight"], STATE["weight"])


def test_a_reply_that_goes_by_itself_while_they_are_swept_is_no_fault(shared, memory, monkeypatch):
    """A client that was given up may still replace its file."""
    shared.keep(STATE)
    folder, glob = next(memory.iterdir()), Path.glob
    for number in (1, 2):
        (folder / f"{REPLY}{number}").write_bytes(b"x")

    def found(self, pattern):
        paths = sorted(glob(self, pattern))
        paths[0].unlink()
        return paths

    with monkeypatch.context() as patched:
        patched.setattr(Path, "glob", found)
        shared.sweep()
    assert not list(folder.glob(f"{REPLY}*"))


def test_the_folder_goes_at_the_end(shared, memory):
    kept = shared.keep(STATE)
    assert os.stat(next(memory.iterdir())).st_mode & 0o077 == 0
    shared.close()
    shared.close()
    assert list(memory.iterdir()) == []
    assert shared.challenge == ""
    assert shared.keep(STATE) is STATE
    np.testing.assert_array_equal(kept["weight"], STATE["weight"])


def test_a_model_that_is_not_above_the_limit_leaves_no_folder(memory, run_folder):
    made = SharedStates(run_folder)
    assert os.path.isfile(made.challenge)
    made.prepare(24, 24, 1000)
    assert (list(memory.iterdir()), list(run_folder.iterdir()), made.challenge) == ([], [], "")
    assert made.keep(STATE) is STATE


def test_without_a_folder_in_memory_the_run_folder_is_taken(tmp_path, run_folder):
    made = SharedStates(run_folder, memory=tmp_path / "nowhere")
    made.prepare(20, 24, 1000)
    kept = made.keep(STATE)
    assert files(run_folder) == ["server-1"]
    del kept
    made.close()
    assert list(run_folder.iterdir()) == []


def test_where_there_is_no_room(memory, run_folder, monkeypatch, caplog):
    """A round of 1000 bytes: 999 in memory is too little, so the run folder; 999 there too, so messages."""
    room = {True: 999, False: 1000}
    monkeypatch.setattr(shared_states, "_room", lambda folder, in_memory: room[in_memory])
    made = SharedStates(run_folder)
    made.prepare(20, 24, 1000)
    assert str(made.folder).startswith(str(run_folder))
    assert made.challenge == "", "whoever could answer has"
    assert list(memory.iterdir()) == []
    made.close()
    room[False] = 999
    other = SharedStates(run_folder)
    other.prepare(20, 24, 1000)
    assert (other.challenge, list(memory.iterdir()), list(run_folder.iterdir())) == ("", [], [])
    (warning,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert "has room for them; from now on models go in messages" in warning


def test_a_folder_that_fills_up_or_vanishes_costs_a_warning(shared, memory, caplog):
    (next(memory.iterdir()) / "owner").unlink()
    next(memory.iterdir()).rmdir()
    assert shared.keep(STATE) is STATE
    assert shared.keep(STATE) is STATE
    (warning,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert "No such file" in warning
    assert "\n" not in warning


# --- what killed runs leave ---------------------------------------------------------------------------

OWNER = """
import sys
from pathlib import Path
from fedge.states.state_files import SharedStates
shared = SharedStates(Path(sys.argv[1]), memory=Path(sys.argv[2]))
print(shared.challenge, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other_run(tmp_path, memory):
    """Start a process that owns a state folder, in memory or in its run folder; return it and the folder."""
    started = []

    def start(in_memory=True):
        folder = tmp_path / "runs" / f"other{len(started)}"
        folder.mkdir(parents=True)
        words = [str(folder), str(memory if in_memory else tmp_path / "nowhere")]
        process = subprocess.Popen(
            [sys.executable, "-c", OWNER, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        path = process.stdout.readline().strip()
        return process, os.path.dirname(path)

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("in_memory", [True, False])
def test_the_folder_of_a_killed_run_goes_and_that_of_a_living_one_stays(other_run, run_folder, in_memory):
    living, stays = other_run(in_memory)
    killed, goes = other_run(in_memory)
    assert str(living.pid) in stays
    SharedStates(run_folder).close()
    assert os.path.isdir(stays)
    assert os.path.isdir(goes)
    killed.kill()
    killed.wait()
    SharedStates(run_folder, enabled=False)
    assert os.path.isdir(stays)
    assert not os.path.exists(goes)


def test_only_state_folders_of_ours_are_removed(memory, run_folder, tmp_path):
    """A half removed folder goes; a link and other names stay."""
    (memory / "fedge-states-1-half").mkdir()
    (memory / "fedge-states-1-half" / "server-1").write_bytes(b"x")
    (tmp_path / "precious").mkdir()
    (memory / "fedge-states-2-link").symlink_to(tmp_path / "precious")
    (memory / "other").mkdir()
    SharedStates(run_folder).close()
    assert sorted(p.name for p in memory.iterdir()) == ["fedge-states-2-link", "other"]
    assert (tmp_path / "precious").is_dir()


# --- who shares ---------------------------------------------------------------------------------------


def answering(shares):
    """A client app that answers a hello as the clients `shares` say, whatever they see."""

    def app(message: Message, context: Context) -> Message:
        if message.metadata.message_type == HELLO:
            node = context.node_config
            partition = int(node["partition-id"])
            seen = answer_to(question_of(message).challenge) if partition in shares else ""
            return hello_reply(Hello(partition, int(node["num-partitions"]), seen), message)
        return client_app(message, context)

    return app


def test_clients_show_whether_they_see_the_challenge(tmp_path):
    """Their answers are compared with the number that only a reader of the file can know."""
    told = write_challenge(tmp_path)
    (tmp_path / "owner").write_text("")
    for challenge, expected in (
        (told, True),
        (f"{told[:-1]}x", False),
        (str(tmp_path / "owner"), False),
        ("", False),
    ):
        with InProcessGrid(client_app, 2, {}, 1) as grid:
            clients = find_clients(grid, 10, Question(challenge))
            assert [clients.shares(node) for node in grid.get_node_ids()] == [expected] * 2
            assert clients.any_shares is expected


@pytest.mark.parametrize(("machines", "expected"), [(1, True), (2, False)])
def test_nobody_shares_when_ray_spreads_over_machines(tmp_path, monkeypatch, machines, expected):
    """Ray may run any client anywhere, so it does not matter where it said hello."""
    nodes = [{"Alive": True}] * machines + [{"Alive": False}]
    ray = SimpleNamespace(is_initialized=lambda: True, nodes=lambda: nodes)
    monkeypatch.setitem(sys.modules, "ray", ray)
    told = write_challenge(tmp_path)
    with InProcessGrid(client_app, 2, {}, 1) as grid:
        assert find_clients(FlowerEngine(grid), 10, Question(told)).any_shares is expected


# --- whole runs: the in-process engine under another name uses files, as other processes would -------


def rows(folder, table):
    """A table without its times."""
    with (folder / "metrics" / table).open(newline="") as file:
        found = list(csv.DictReader(file))
    return [{k: v for k, v in row.items() if k not in ("seconds", "train_seconds")} for row in found]


def results(folder):
    """Results whose bytes must be equal in equal runs."""
    tables = ("global_rounds.csv", "leaf_rounds.csv", "clients.csv")
    found = {table: rows(folder, table) for table in tables}
    found["clusters"] = (folder / "clusters.jsonl").read_bytes()
    found["models"] = (folder / "checkpoints" / "final.safetensors").read_bytes()
    return found


@pytest.fixture
def study(tmp_path, memory):
    """Carry out three rounds of the smallest network, and say which state files the clients saw."""

    def carry_out(app=client_app, engine="flower", **changes):
        config = {
            "num-server-rounds": 3,
            "hierarchy.leaf-rounds": 2,
            "train.model": "mlp-tiny",
            "train.local-epochs": 1,
            "gate.min-gain": -1.0,
            "data.path": "synthetic",
            "runs-dir": str(tmp_path / "runs"),
            "report": False,
            **changes,
        }
        seen = []

        def watched(message: Message, context: Context) -> Message:
            reply = app(message, context)
            seen.append(files(memory))
            return reply

        with InProcessGrid(watched, 9, config, 2) as grid, (tmp_path / "terminal.txt").open("w") as terminal:
            outcome = run(grid, config, engine, {}, lambda _: terminal)
        gc.collect()
        assert list(memory.iterdir()) == []
        assert list(outcome.folder.glob("*states*")) == []
        return outcome, seen

    return carry_out


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"scaffold.enabled": False, "cluster.signal": "update", "cluster.tau": -1.0},
        {"scaffold.enabled": False, "leaf.strategy": "fedmedian"},
        pytest.param({"scaffold.enabled": False, "leaf.strategy": "krum"}, marks=pytest.mark.extended),
        pytest.param({"scaffold.enabled": False, "leaf.strategy": "fedadam"}, marks=pytest.mark.extended),
    ],
)
def test_files_and_messages_give_the_same_bits(study, changes):
    """Models, metrics and counted bytes, with SCAFFOLD and offers, and for Flower's own strategies."""
    by_file, seen = study(**changes, **{"transfer.share-above-mb": 0.0})
    by_message, nothing_seen = study(**changes, **{"transfer.share-above-mb": 1e9})
    in_process, elsewhere = study(engine=IN_PROCESS.name, **changes, **{"transfer.spill-above-mb": 0.0})
    assert f"models go through files in {in_process.folder}" in (in_process.folder / "run.log").read_text()
    assert all(names == [] for names in elsewhere)  # none is in memory
    assert by_file.status == "completed"
    assert results(by_file.folder) == results(by_message.folder) == results(in_process.folder)
    assert int(rows(by_file.folder, "global_rounds.csv")[0]["uplink_bytes"]) > 0
    assert any(name.startswith(REPLY) for names in seen for name in names)
    assert all(names == [] for names in nothing_seen)


def test_in_one_process_small_models_stay_in_memory(memory, run_folder):
    """Nothing is made but in the run folder; the rest of what is kept is as between processes."""
    made = SharedStates(run_folder, in_one_process=True)
    assert (list(memory.iterdir()), list(run_folder.iterdir())) == ([], [])
    made.prepare(20, 24, 1000)
    kept = made.keep(STATE)
    assert files(run_folder) == ["server-1"]
    np.testing.assert_array_equal(kept["weight"], STATE["weight"])
    made.prepare(24, 24, 1000)
    assert (list(run_folder.iterdir()), made.keep(STATE) is STATE) == ([], True)


def test_a_server_whose_clients_see_no_file_of_it_keeps_its_own_in_the_run_folder(memory, run_folder):
    made = SharedStates(run_folder)
    assert len(list(memory.iterdir())) == 1
    made.disable_sharing()
    assert (made.challenge, list(memory.iterdir())) == ("", [])
    made.prepare(20, 24, 1000)
    kept = made.keep(STATE)
    assert (files(run_folder), list(memory.iterdir())) == (["server-1"], [])
    np.testing.assert_array_equal(kept["weight"], STATE["weight"])
    made.close()
    off = SharedStates(run_folder, enabled=False)
    off.disable_sharing()
    off.prepare(20, 24, 1000)
    assert off.keep(STATE) is STATE


def test_in_one_process_a_full_disk_leaves_models_in_memory(run_folder, caplog):
    made = SharedStates(run_folder, in_one_process=True)
    made.prepare(20, 24, 1e18)
    assert caplog.messages[-1] == (
        f"a round's models need 1000000000000 MB, and {run_folder} has no room for them; from now on models "
        f"stay in memory"
    )
    assert made.keep(STATE) is STATE


def test_files_go_with_their_round(study):
    """At most per leaf: a start, a model, an offer and two control variates; per client its control, a reply.

    One control more is there while it takes the place of another.
    """
    _, seen = study(**{"transfer.share-above-mb": 0.0, "num-server-rounds": 5})
    kept = [[name for name in names if not name.startswith(REPLY)] for names in seen]
    assert 3 <= max(map(len, kept)) <= 5 * 3 + 9 + 1
    at_the_end = max(len(names) for names in seen[-9:])
    assert at_the_end <= 5 * 3 + 9  # nothing of the last training is left
    assert all(len(names) - len(own) <= 9 for names, own in zip(seen, kept, strict=True))


def test_clients_elsewhere_get_arrays(study):
    """Clients 0 and 4 do not see the files: same bits."""
    mixed, seen = study(answering({1, 2, 3, 5, 6, 7, 8}), **{"transfer.share-above-mb": 0.0})
    everyone, _ = study(**{"transfer.share-above-mb": 0.0})
    none, nothing_seen = study(answering(set()), **{"transfer.share-above-mb": 0.0})
    own_files, none_in_memory = study(answering(set()), **{"transfer.spill-above-mb": 0.0})
    assert results(mixed.folder) == results(everyone.folder) == results(none.folder)
    assert results(own_files.folder) == results(none.folder)
    assert any(seen)
    assert not any(nothing_seen)
    assert not any(none_in_memory)
    logs = [(run.folder / "run.log").read_text() for run in (none, own_files)]
    assert [
        f"models go through files in {run.folder}" in log
        for run, log in zip((none, own_files), logs, strict=True)
    ] == [False, True]


def test_a_failed_run_leaves_no_files(study):
    def broken(message: Message, context: Context) -> Message:
        if message.metadata.message_type == TRAIN and message.content["config"]["leaf_round"] == 2:
            raise RuntimeError("no battery")
        return client_app(message, context)

    outcome, seen = study(broken, **{"transfer.share-above-mb": 0.0})
    assert outcome.status == "failed"
    assert any(seen)


def test_a_damaged_reply_is_its_clients_failure(study):
    """One flipped byte in what client 4 wrote in leaf round 3: named, left out, and the run goes on."""

    def damaging(message: Message, context: Context) -> Message:
        reply = client_app(message, context)
        is_train = message.metadata.message_type == TRAIN
        if is_train and (context.node_config["partition-id"], message.content["config"]["leaf_round"]) == (
            4,
            3,
        ):
            with open(reply.content["arrays"]["path"], "r+b") as file:
                file.seek(-1, os.SEEK_END)
                last = file.read(1)[0]
                file.seek(-1, os.SEEK_END)
                file.write(bytes([last ^ 1]))
        return reply

    outcome, _ = study(damaging, **{"transfer.share-above-mb": 0.0})
    assert outcome.status == "partial"
    assert [row["clients_failed"] for row in rows(outcome.folder, "global_rounds.csv")] == ["0", "1", "0"]
    assert "client 4 failed" in json.dumps(json.loads((outcome.folder / "manifest.json").read_text()))


def test_a_client_without_room_answers_in_the_message(study, monkeypatch):
    from fedge.states.files import StateFileError

    def full(path, state):
        raise StateFileError(f"cannot write state {path}: No space left on device")

    expected, _ = study(**{"transfer.share-above-mb": 0.0})
    monkeypatch.setattr("fedge.exchange.train.write_state", full)
    outcome, _ = study(**{"transfer.share-above-mb": 0.0})
    assert results(outcome.folder) == results(expected.folder)
    assert (
        "No space left on device; the model goes in the message" in (outcome.folder / "run.log").read_text()
    )


def test_no_file_descriptor_is_lost(study):
    study(**{"transfer.share-above-mb": 0.0})
    before = psutil.Process().num_fds()
    study(**{"transfer.share-above-mb": 0.0})
    assert psutil.Process().num_fds() <= before
