"""Runs in which only what trains travels, or whose first weights come from a file."""

import io

import numpy as np
import pytest
from flower_runs import comparable, flwr_run
from leaf_servers import cloud, in_threads
from safetensors.numpy import load_file, save_file
from small_runs import carry_out, small_config
from support_folders import PYTHONPATH

from fedge import simulate
from fedge.config.registers.option import ConfigError

pytestmark = pytest.mark.whole_runs
HALF = {"train.model": "half_frozen:HalfFrozen", "hierarchy.num-servers": 3, "num-server-rounds": 3}
FROZEN = 4 * (32 * 8 + 8)  # bytes: weights and biases of the first layer
KINDS = {
    "default": {},
    "personal": {"personal.layers": "both", "gate.min-gain": -1.0, "partition.unseen-clients": 1},
    "two levels": {"scaffold.levels": 2, "gate.enabled": False, "cluster.tau": -1.0},
    "memory": {"train.algorithm": "ditto", "scaffold.enabled": False},
    "optimiser at leaf and cloud": {
        "leaf.strategy": "fedadam", "cloud.rule": "fedavgm", "scaffold.enabled": False, "gate.enabled": False,
        "hierarchy.fraction-train": 0.67,
    },
    "regions": {"hierarchy.tree": "3x1x*", "hierarchy.region-rounds": "2"},
}  # fmt: skip
BYTES = ("uplink_bytes", "downlink_bytes", "cloud_uplink_bytes", "cloud_downlink_bytes")


def tables(found):
    """Results of a run without its bytes on the way."""
    rows = [{k: v for k, v in row.items() if k not in BYTES} for row in of_rounds(found)]
    return {**found, "global": rows}


def of_rounds(found):
    return found["global"]


def both(folder, **changes):
    """Results of two runs: everything travels, or only trainable entries."""
    config = small_config(folder) | HALF | changes
    return carry_out(config, "all"), carry_out({**config, "train.exchange": "trainable"}, "trainable")


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_is_computed_and_fewer_bytes_travel(kind, tmp_path):
    everything, trained = both(tmp_path, **KINDS[kind])
    assert tables(trained) == tables(everything)
    clients = 9
    for before, after in zip(of_rounds(everything), of_rounds(trained), strict=True):
        first = before["global_round"] == "1"
        replies = int(before["uplink_bytes"]) - int(after["uplink_bytes"])
        assert replies > 0
        assert replies % FROZEN == 0
        saved = int(before["downlink_bytes"]) - int(after["downlink_bytes"]) + FROZEN * clients * first
        assert saved >= replies
        assert saved % FROZEN == 0


def test_bytes_by_hand(tmp_path):
    """Nine clients get the model to train, then the leaf's and the cloud's to evaluate, and send one back."""
    plain = {"scaffold.enabled": False, "cluster.enabled": False, "gate.enabled": False}
    _, trained = both(tmp_path, **plain)
    model = (
        4 * (8 * 4) + 8 + 4 * (8 * 2 + 2)
    )  # BatchNorm's weight, bias, mean and variance, its counter, the head
    rows = of_rounds(trained)
    assert [int(row["uplink_bytes"]) for row in rows] == [9 * model] * 3
    down = [int(row["downlink_bytes"]) for row in rows]
    assert down[0] - down[1] == 9 * FROZEN
    assert down[1] == down[2] == 3 * 9 * model


def test_a_run_goes_on_exactly_after_a_stop(tmp_path):
    config = small_config(tmp_path) | HALF | {"num-server-rounds": 4, "train.exchange": "trainable"}
    config |= {"train.algorithm": "ditto", "scaffold.enabled": False}
    whole = simulate({**config, "run-name": "whole"}, terminal=io.StringIO())
    begun = simulate({**config, "run-name": "begun", "num-server-rounds": 2}, terminal=io.StringIO())
    again = simulate({**config, "resume": str(begun.folder)}, terminal=io.StringIO())
    assert comparable(again.folder) == comparable(whole.folder)


def test_privacy_and_the_virtual_clock_take_part(tmp_path):
    config = small_config(tmp_path) | {"train.exchange": "trainable", "scaffold.enabled": False}
    config |= {"train.model": "half_frozen:HalfFrozenPlain", "num-server-rounds": 2}
    private = carry_out({**config, "privacy.kind": "client-fixed", "gate.enabled": False}, "private")
    assert private["models"]
    clock = {
        "asynchrony.rule": "fedbuff", "asynchrony.concurrency": 2, "cluster.enabled": False,
        "gate.enabled": False, "hierarchy.num-servers": 1,
    }  # fmt: skip
    done = simulate({**config, **clock, "run-name": "clock"}, terminal=io.StringIO())
    assert done.status == "completed", done.reason
    model = load_file(done.folder / "checkpoints" / "final.safetensors")
    assert model["leaf-0/hidden.weight"].shape == (8, 32)


@pytest.mark.extended
def test_ray_and_leaf_servers_compute_the_same_bits(tmp_path, certificates, address, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    config = small_config(tmp_path) | HALF | {"train.exchange": "trainable", "partition.unseen-clients": 1}
    config["checkpoint.models"] = "1,best"
    wanted = carry_out(config, "here")
    kept = kept_models(tmp_path / "runs" / "here")
    assert set(kept) == {"models-1", "models-best"}
    done = flwr_run(tmp_path, {**config, "run-name": "ray"}, seed="3")
    found = comparable(tmp_path / "runs" / "ray")
    assert [key for key in found if key != "clusters" and found[key] != wanted[key]] == [], done.stderr
    assert kept_models(tmp_path / "runs" / "ray") == kept
    with in_threads(address, certificates, tmp_path):
        outcome, _ = cloud({**config, "run-name": "there"}, address, certificates)
    found = comparable(outcome.folder)
    assert [key for key in found if key != "clusters" and found[key] != wanted[key]] == []
    assert kept_models(outcome.folder) == kept


def kept_models(folder):
    """Name → arrays of the models that a run keeps beside the final ones."""
    found = sorted((folder / "checkpoints").glob("models-*.safetensors"))
    return {path.stem: {name: a.tobytes() for name, a in load_file(path).items()} for path in found}


def test_a_run_begins_with_the_weights_of_a_file_and_goes_on_with_no_other(tmp_path):
    """The frozen layer of the final model is the file's; a file that has changed is refused."""
    weights = {"hidden.weight": np.full((8, 32), 0.25, np.float32)}
    file = tmp_path / "backbone.safetensors"
    save_file(weights, file)
    config = small_config(tmp_path) | HALF | {"train.start": str(file), "num-server-rounds": 1}
    for exchange in ("all", "trainable"):
        done = simulate({**config, "train.exchange": exchange, "run-name": exchange}, terminal=io.StringIO())
        model = load_file(done.folder / "checkpoints" / "final.safetensors")
        np.testing.assert_array_equal(model["leaf-1/hidden.weight"], weights["hidden.weight"])
        assert str(tmp_path) not in (done.folder / "manifest.json").read_text()
    save_file({"hidden.weight": weights["hidden.weight"] + 1}, file)
    with pytest.raises(ConfigError, match=r"train\.start must be the file that .* began with"):
        simulate(
            {**config, "resume": str(done.folder), "num-server-rounds": 2, "train.exchange": "trainable"}
        )


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"hiden.weight": np.zeros((8, 32), np.float32)}, "but has 'hiden.weight'"),
        ({"hidden.weight": np.zeros((8, 31), np.float32)}, r"float32 \(8, 32\), but holds float32 \(8, 31\)"),
        ({"hidden.weight": np.zeros((8, 32))}, "but holds float64"),
        ({"hidden.bias": np.full(8, np.nan, np.float32)}, "must hold finite numbers, but 'hidden.bias'"),
        (None, "No such file or directory; name a safetensors file"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_in_one_line(weights, message, tmp_path):
    file = tmp_path / "weights.safetensors"
    if weights is not None:
        save_file(weights, file)
    config = small_config(tmp_path) | HALF | {"train.start": str(file), "run-name": "never"}
    with pytest.raises(ConfigError, match=message) as refused:
        simulate(config)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "runs" / "never").exists()


def test_nothing_frozen_and_a_method_that_thaws_are_refused(tmp_path):
    config = small_config(tmp_path) | {"train.exchange": "trainable", "scaffold.enabled": False}
    with pytest.raises(
        ConfigError, match=r"needs a model with frozen parameters, but all of train\.model linear"
    ):
        simulate(config)
    with pytest.raises(ConfigError, match=r"must leave frozen parameters as they are .* 'hidden\.weight'"):
        simulate({**config, **HALF, "train.algorithm": "half_frozen:Thawing"})
