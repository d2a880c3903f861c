"""Checkpoints: after which rounds, with what in them; a run goes on from any with the same bits."""

import io
import threading

import numpy as np
import pytest
from flower_runs import comparable
from small_runs import small_config

from fedge import load_run, simulate
from fedge.callbacks.callback import Callback
from fedge.cli import main
from fedge.run import snapshot
from fedge.states.checkpoint import CheckpointError, checkpoints, read_checkpoint, write_checkpoint


def carried_out(config):
    """The folder of a completed run."""
    run = simulate(config, terminal=io.StringIO())
    assert run.status == "completed", run.reason
    return run.folder


@pytest.mark.parametrize(
    ("every", "keep", "rounds"),
    [(1, 2, [4, 5]), (2, 9, [0, 2, 4, 5]), (3, 1, [5]), (0, 9, [])],
    ids=["every round, two kept", "every second, and the last", "one kept", "none"],
)
def test_which_rounds_are_kept(tmp_path, every, keep, rounds):
    """Round 0 stands for what is known before the first; the last round is always kept unless none is."""
    folder = carried_out(
        small_config(tmp_path, num_server_rounds=5, checkpoint__every=every, checkpoint__keep=keep)
    )
    found = [path.name for path in checkpoints(folder / "checkpoints")]
    assert found == [f"round-{number:06}" for number in rounds]


def test_a_checkpoint_holds_leaves_clients_and_how_far_the_tables_were(tmp_path):
    """Nine control variates, one per client; offsets are the sizes that the tables end with."""
    folder = carried_out(small_config(tmp_path, num_server_rounds=3))
    (*_, last) = checkpoints(folder / "checkpoints")
    checkpoint = read_checkpoint(last)
    assert checkpoint.global_round == 3
    assert sorted(map(int, checkpoint.groups["clients"])) == list(range(9))
    models = [name for name in checkpoint.groups["leaves"] if name.endswith("model")]
    assert len(models) == 3
    for table, offset in checkpoint.facts["offsets"].items():
        assert (folder / table).stat().st_size == offset, table
    assert checkpoint.facts["offsets"].keys() <= checkpoint.facts["sha256"].keys()


def without_an_entry(clients):
    del clients["8"]["head.weight"]


def of_another_shape(clients):
    clients["8"]["head.weight"] = clients["8"]["head.weight"][:, :-1]


def with_a_stranger(clients):
    clients["99"] = clients["8"]


@pytest.mark.parametrize("change", [without_an_entry, of_another_shape, with_a_stranger])
def test_control_variates_that_no_client_here_can_have_are_refused(tmp_path, change, capsys):
    """Before a round, in one line: at the client they would be a failure of its own."""
    folder = carried_out(small_config(tmp_path, num_server_rounds=2))
    (*_, last) = checkpoints(folder / "checkpoints")
    kept = read_checkpoint(last)
    groups = {
        group: {name: {n: np.array(a) for n, a in state.items()} for name, state in states.items()}
        for group, states in kept.groups.items()
    }
    change(groups["clients"])
    write_checkpoint(folder / "checkpoints", 2, groups, kept.facts)
    capsys.readouterr()
    assert main(["resume", str(folder), "-c", "num-server-rounds=3"]) == 4
    said = capsys.readouterr().out
    (line,) = (
        line for line in said.splitlines() if "is damaged: it says what cannot be: ValueError: " in line
    )
    assert "control variate of client " in line
    assert "round 3/3" not in said


@pytest.mark.slow
@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_a_run_goes_on_from_any_round_with_the_same_bits(tmp_path, monkeypatch, after):
    """Later checkpoints are spoilt, so that the run goes on after that round."""
    monkeypatch.delenv("SEED", raising=False)
    whole = carried_out(small_config(tmp_path, num_server_rounds=4, checkpoint__keep=9, run_name="whole"))
    expected = comparable(whole)
    for path in checkpoints(whole / "checkpoints")[after + 1 :]:
        (path / "manifest.json").write_bytes(b"damaged")
    assert main(["resume", str(whole), "--workers", "1"]) == 0
    assert comparable(whole) == expected


class SlowDisk(Callback):
    """The checkpoint of round 1 is written only once the server has begun round 2."""

    def __init__(self):
        self.has_begun, self.waited = threading.Event(), None

    def write(self, parent, global_round, *arguments, **options):
        if global_round == 1:
            self.waited = self.has_begun.wait(20)
        return write_checkpoint(parent, global_round, *arguments, **options)

    def begin_leaf_round(self, leaf_round):
        if leaf_round.global_round == 2:
            self.has_begun.set()


def test_a_round_begins_while_the_checkpoint_of_the_one_before_is_written(tmp_path, monkeypatch):
    disk = SlowDisk()
    monkeypatch.setattr(snapshot, "write_checkpoint", disk.write)
    config = small_config(tmp_path, num_server_rounds=2, checkpoint__keep=9)
    run = simulate(config, callbacks=[disk], terminal=io.StringIO())
    assert run.status == "completed", run.reason
    assert disk.waited
    assert [path.name[-1] for path in checkpoints(run.folder / "checkpoints")] == ["0", "1", "2"]


def test_a_checkpoint_that_cannot_be_written_ends_the_run_before_its_next_row(tmp_path, monkeypatch):
    def write(parent, global_round, *arguments, **options):
        if global_round == 2:
            raise CheckpointError("cannot write checkpoint: No space left on device")
        return write_checkpoint(parent, global_round, *arguments, **options)

    monkeypatch.setattr(snapshot, "write_checkpoint", write)
    run = simulate(small_config(tmp_path, num_server_rounds=4), terminal=io.StringIO())
    assert (run.status, run.exit_code) == ("failed", 4)
    assert "No space left" in run.reason
    assert run.rounds["global_round"].to_list() == [1, 2]
    monkeypatch.undo()
    assert main(["resume", str(run.folder), "--workers", "1"]) == 0
    assert load_run(run.folder).rounds["global_round"].to_list() == [1, 2, 3, 4]
