"""Papers' protocols, in whole runs."""

import io

import polars as pl
import pytest
from flower_runs import comparable, flwr_run
from small_runs import small_config

from fedge import simulate
from fedge.config.registers.option import ConfigError

pytestmark = pytest.mark.whole_runs


def carried_out(config, name="here", **more):
    done = simulate({**config, "run-name": name}, terminal=io.StringIO(), **more)
    assert done.status == "completed", done.reason
    return done


def test_every_client_takes_the_same_number_of_steps(tmp_path):
    """Windows are dealt unevenly; an epoch of the mean client is as good as its number of steps."""
    config = small_config(tmp_path, **UNEVEN)
    auto = carried_out({**config, "train.local-steps": "auto"}, "auto")
    sizes = auto.clients.filter(pl.col("global_round") == 1)["train_samples"].to_list()
    assert len(set(sizes)) > 1
    steps = -(-sum(sizes) // (len(sizes) * 2)) * 3
    told = carried_out({**config, "train.local-steps": steps}, "told")
    epochs = carried_out(config, "epochs")
    assert comparable(auto.folder) == comparable(told.folder)
    assert comparable(auto.folder)["models"] != comparable(epochs.folder)["models"]


UNEVEN = {
    "partition__kind": "dirichlet",
    "partition__kind_args": '{"alpha-leaves": 3.0, "alpha-clients": 1.0}',  # one key, as flwr run takes it
    "train__batch_size": 2, "train__local_epochs": 3, "scaffold__levels": 2, "gate__enabled": False,
}  # fmt: skip


@pytest.mark.extended
def test_ray_gives_the_same_bits_for_steps(tmp_path):
    config = small_config(tmp_path, **UNEVEN) | {"train.local-steps": "auto"}
    whole = carried_out(config)
    done = flwr_run(tmp_path, {**config, "run-name": "ray"}, seed="3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert comparable(tmp_path / "runs" / "ray") == comparable(whole.folder)


def test_options_that_say_the_same_twice_are_named(tmp_path):
    """Epochs beside a number of steps have no effect, and the run says so."""
    terminal = io.StringIO()
    config = small_config(tmp_path, train__local_epochs=7, train__local_steps=3)
    simulate(config, terminal=terminal)
    assert "train.local-epochs=7 has no effect: it needs train.local-steps" in terminal.getvalue()
    with pytest.raises(ConfigError, match=r"train\.local-steps"):
        simulate({**config, "train.local-steps": "many"}, terminal=io.StringIO())


RARELY = {
    "cluster off": {"cluster.enabled": False, "gate.enabled": False},
    "a gate that decides in every second round": {"cluster.every": 2},
    "a method with models of its own": {
        "train.algorithm": "ditto", "scaffold.enabled": False, "gate.enabled": False,
    },
    "fine-tuning": {"personal.leaf-rounds": 1, "personal.every": 2, "gate.enabled": False},
}  # fmt: skip


@pytest.mark.parametrize("name", RARELY)
def test_rounds_without_evaluation_change_nothing_else(tmp_path, name):
    """The rounds with one have the rows that they have anyway; the others have empty columns; it goes on."""
    config = small_config(tmp_path, num_server_rounds=5) | RARELY[name]
    always = carried_out(config, "always")
    rarely = carried_out({**config, "evaluate.every": 3}, "rarely")
    assert rarely.problems == []
    assert comparable(rarely.folder)["models"] == comparable(always.folder)["models"]
    measured = rarely.rounds["test_accuracy_mean"].is_not_null()
    needed = {"a gate that decides in every second round": {1}, "fine-tuning": {2, 4}}.get(name, set())
    assert set(rarely.rounds["global_round"].filter(measured)) == {3, 5} | needed
    columns = ["global_round", "client", "test_accuracy", "test_loss", "train_loss"]
    both = rarely.clients.select(columns).filter(pl.col("test_accuracy").is_not_null())
    rounds = sorted({3, 5} | needed)
    assert both.equals(always.clients.select(columns).filter(pl.col("global_round").is_in(rounds)))
    begun = carried_out({**config, "evaluate.every": 3, "num-server-rounds": 3}, "begun")
    again = simulate(
        {**config, "evaluate.every": 3, "resume": str(begun.folder), "run-name": ""}, terminal=io.StringIO()
    )
    assert again.status == "completed", again.reason
    if "personal.every" not in config:  # the third round was the last, and so fine-tuned
        assert comparable(again.folder) == comparable(rarely.folder)


def test_early_stopping_waits_for_an_evaluation(tmp_path):
    """Fewer rounds of patience than from one evaluation to the next would always end the run."""
    config = small_config(tmp_path, num_server_rounds=8) | {
        "callbacks": "early-stopping", "callbacks-args.early-stopping.patience": 2, "evaluate.every": 3,
        "gate.enabled": False,
    }  # fmt: skip
    with pytest.raises(ConfigError, match=r"patience of early-stopping must be at least evaluate\.every, 3"):
        simulate(config, terminal=io.StringIO())
    done = carried_out({**config, "callbacks-args.early-stopping.patience": 3})
    assert done.rounds.height >= 3
