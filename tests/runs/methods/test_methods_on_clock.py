"""Methods of clients in whole runs on the virtual clock: memories, leaf parts, models of their own."""

import hashlib
import io
import json
from pathlib import Path

import pytest
from daily import daily
from killed_runs import carry_out_with_kills, uninterrupted
from small_data import nine_users
from small_runs import small_config

from fedge import simulate
from fedge.algorithm.configured import leaf_part_of
from fedge.client_app import app as client_app
from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import ALGORITHMS
from fedge.data.prepared import all_windows
from fedge.engine.inprocess import InProcessGrid
from fedge.run.run import run
from fedge.states.checkpoint import checkpoints, read_checkpoint
from fedge.states.memory import path_of

pytestmark = pytest.mark.whole_runs
METHODS = [name for name in ALGORITHMS.names if name != "fedavg"]
FLAT = {
    "hierarchy.num-servers": 1, "scaffold.enabled": False, "cluster.enabled": False, "gate.enabled": False,
}  # fmt: skip
FINAL, MODELS = "checkpoints/final.safetensors", "metrics/client_models.csv"


def in_rounds(method):
    """Whether a method's leaf part needs the replies of a round."""
    part = leaf_part_of(from_run_config({"train.algorithm": method, "scaffold.enabled": False}).train)
    return part.combines() and part.reads_replies


def rule_of(method, buffer):
    """Options of the clock for a method: rounds where it needs them, else buffers."""
    if in_rounds(method):
        return {"asynchrony.rule": "fedavg"}
    return {"asynchrony.rule": "fedbuff", "asynchrony.rule-args": json.dumps({"buffer": buffer})}


def carried_out(config, name, **how):
    done = simulate({**config, "run-name": name}, terminal=io.StringIO(), **how)
    assert done.status == "completed", done.reason
    return done


def memories(folder):
    """Path → bytes of all versions of memories."""
    return {file.relative_to(folder): file.read_bytes() for file in folder.glob("memory/*/*")}


def valid_memories(folder):
    """Client → bytes of the version of its memory that the newest checkpoint says is valid."""
    newest = read_checkpoint(checkpoints(folder / "checkpoints")[-1])
    kept = {c: v[0] for leaf in newest.facts["procedure"]["algorithms"] for c, v in leaf.items()}
    return {c: path_of(folder / "memory", int(c), number).read_bytes() for c, number in kept.items()}


@pytest.mark.parametrize("method", daily(METHODS, ["ditto", "feddyn"]))
def test_without_delays_a_method_is_that_of_rounds_bit_for_bit(method, tmp_path):
    """All at work, equally fast, and no cloud: models, own models' scores and all memories are the same."""
    config = small_config(tmp_path, **{"train__model": "mlp-tiny", "train__algorithm": method}) | FLAT
    clock = {
        "asynchrony.concurrency": 9, "devices.preset": "equal", "asynchrony.evaluate-every-s": 1.0,
        **rule_of(method, 9),
    }  # fmt: skip
    rounds, on_clock = carried_out(config, "rounds"), carried_out({**config, **clock}, "clock")
    for name in (FINAL, MODELS):
        assert (on_clock.folder / name).read_bytes() == (rounds.folder / name).read_bytes(), name
    assert memories(on_clock.folder) == memories(rounds.folder)
    assert bool(memories(rounds.folder)) == (method not in ("fedprox", "fedbabu"))


UNEVEN = {
    **FLAT, "hierarchy.num-servers": 3, "clients": 18, "devices.pieces": 2, "devices.dropout": 0.1,
    "asynchrony.concurrency": 6, "asynchrony.evaluate-every-s": 0.5, "num-server-rounds": 4,
    "partition.unseen-clients": 1, "train.model": "mlp-tiny", "asynchrony.max-staleness": 3,
    "checkpoint.every": 1,
}  # fmt: skip


def uneven(folder, method):
    """A run in which devices differ, jobs get lost, and some clients are unseen."""
    config = small_config(folder) | UNEVEN | rule_of(method, 2) | {"train.algorithm": method}
    if in_rounds(method):
        del config["asynchrony.max-staleness"]
    return config


@pytest.mark.parametrize("method", daily(["ditto", "feddyn"], ["ditto"]))
def test_a_method_goes_on_exactly_after_a_stop(method, tmp_path):
    """Two evaluations and then two more are four in one go, by other numbers of workers."""
    config = uneven(tmp_path, method)
    whole = carried_out(config, "whole", workers=1)
    begun = carried_out({**config, "num-server-rounds": 2}, "begun", workers=2)
    again = carried_out({**config, "resume": str(begun.folder)}, "", workers=2)
    for name in (FINAL, MODELS, "devices/versions.csv", "devices/jobs.csv"):
        assert (again.folder / name).read_bytes() == (whole.folder / name).read_bytes(), name
    assert valid_memories(again.folder) == valid_memories(whole.folder) != {}
    if method == "ditto":
        assert set(whole.client_models["unseen_client"]) == {True, False}


class Apart(InProcessGrid):
    """Clients that see no file of the server's but their windows, as on other machines of a Ray cluster."""

    def hand_out(self, data_folder):
        return str(data_folder)


@pytest.mark.extended
def test_memories_that_messages_carry_are_the_same(tmp_path, monkeypatch):
    """Written by the server, at the moment when a reply is admitted."""
    monkeypatch.setattr("fedge.client_app.take", lambda folder: all_windows(Path(folder)))
    config = uneven(tmp_path, "ditto")
    whole = carried_out(config, "whole")
    given = {**config, "run-name": "carried"}
    with Apart(client_app, 18, given, 2) as grid:
        done = run(grid, given, "inprocess", {}, lambda _: io.StringIO())
    assert done.status == "completed", done.reason
    for name in (FINAL, MODELS, "devices/versions.csv"):
        assert (done.folder / name).read_bytes() == (whole.folder / name).read_bytes(), name
    assert valid_memories(done.folder) == valid_memories(whole.folder)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"train.algorithm": "feddyn"}, "must work in rounds \\(fedavg\\), but is fedbuff"),
        (
            {"train.algorithm": "ditto", "devices.partial-work": True},
            "needs devices.partial-work to be false",
        ),
    ],
)
def test_what_has_no_meaning_there_is_refused(more, words, tmp_path):
    config = {**small_config(tmp_path), **FLAT, "asynchrony.rule": "fedbuff", **more}
    with pytest.raises(ConfigError, match=words):
        simulate(config, terminal=io.StringIO())


# --- other engines, and kills -------------------------------------------------------------------------

KILLED = {
    "report": False, "train.model": "mlp-tiny", "train.local-epochs": 1, "seed": 5, "run-name": "killed",
    "data.path": nine_users(), **FLAT, "hierarchy.num-servers": 3, "num-server-rounds": 8, "clients": 36,
    "devices.pieces": 2, "devices.dropout": 0.1, "asynchrony.concurrency": 12,
    "asynchrony.evaluate-every-s": 2.0,
}  # fmt: skip
FILES = (FINAL, MODELS, "devices/versions.csv", "devices/jobs.csv", "devices/devices.csv")


@pytest.mark.extended
@pytest.mark.parametrize("method", METHODS)
def test_the_same_bytes_by_any_number_of_workers(method, tmp_path):
    config = {**KILLED, "num-server-rounds": 4, "train.algorithm": method, **rule_of(method, 3)}
    config["runs-dir"] = str(tmp_path)
    runs = [carried_out(config, f"workers-{workers}", workers=workers) for workers in (1, 2, 4)]
    for name in FILES:
        assert len({hashlib.sha256((done.folder / name).read_bytes()).hexdigest() for done in runs}) == 1, (
            name
        )
    assert len({json.dumps(sorted(map(str, valid_memories(done.folder).items()))) for done in runs}) == 1


@pytest.mark.extended
@pytest.mark.parametrize("method", ["ditto", "apfl", "feddyn"])
def test_killed_at_random_moments_in_process_and_on_ray(method, tmp_path):
    """SIGKILL, in process three times, on Ray once; the bytes are those of a run without a break."""
    config = {**KILLED, "train.algorithm": method, **rule_of(method, 3)}
    for name in ("here", "ray"):
        (tmp_path / name).mkdir()
    here = carry_out_with_kills(tmp_path / "here", config, kills=3, seed=5)
    on_ray = carry_out_with_kills(tmp_path / "ray", config, kills=1, seed=6, options=("--engine", "flower"))
    whole = uninterrupted(tmp_path, config)
    for name in FILES:
        assert len({(of / name).read_bytes() for of in (here, on_ray, whole)}) == 1, name
    assert valid_memories(here) == valid_memories(on_ray) == valid_memories(whole) != {}
