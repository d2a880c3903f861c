"""Contradictions between sections are refused, and options that fit are not."""

import pytest

from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError

IFCA = {"cluster.method": "ifca", "cluster.count": "2"}


@pytest.mark.parametrize(
    ("together", "words"),
    [
        (
            {"scenario": "rotate", "scenario-groups": 4},
            "scenario-groups must be at most hierarchy.num-servers",
        ),
        ({"cluster.method": "oracle"}, "cluster.method oracle needs true groups"),
        ({"leaf.strategy": "krum"}, "scaffold.enabled needs leaf.strategy to be fedavg"),
        ({"cluster.method": "kmeans", "cluster.count": "4"}, "cluster.count must be at most"),
        ({"cluster.signal": "affinity"}, "needs hierarchy.num-servers of at least 4"),
        ({"privacy.kind": "local"}, "privacy.kind local needs SCAFFOLD off"),
        ({"privacy.kind": "local", "scaffold.enabled": False}, "needs a model without BatchNorm"),
        ({"personal.layers": "batch-norm", "train.model": "cnn-pool"}, "personal.layers"),
        (IFCA, "cluster.method ifca needs the gate off, because each of the cloud's models is the mean of"),
        ({**IFCA, "gate.enabled": False, "cluster.blend": 0.5}, "needs cluster.blend to be 1, because each"),
        ({**IFCA, "gate.enabled": False, "cluster.blend": "auto"}, "but it is 'auto'; set cluster.blend=1.0"),
        ({"scaffold.enabled": False, "scaffold.levels": 2}, "scaffold.levels must be 1 without SCAFFOLD"),
        ({"cluster.enabled": False, "cluster.probe-every": 2}, "probe-every must be 0 with cluster.enabled="),
        (
            {"scenario": "rotate", "cluster.method": "oracle", "cluster.probe-every": 2},
            "cluster.probe-every must be 0 with cluster.method oracle, which compares no leaves, but is 2",
        ),
        (
            {"train.lr-decay": 0.1, "num-server-rounds": 330},
            "train.lr-decay must leave a step size of at least 1.2e-38 in the last round, but 0.05 × 0.1^329 "
            "is less, from global round 38 on; raise train.lr-decay, or lower num-server-rounds to 37",
        ),
        (
            {
                "asynchrony.rule": "fedbuff",
                "devices.partial-work": True,
                "asynchrony.leaf-link-megabytes-s": 1.0,
            },
            "devices.partial-work must be false beside asynchrony.leaf-link-megabytes-s, because when",
        ),
        (
            {"train.processes": 2, "train.kernel": "native"},
            "train.kernel native needs train.processes to be 1, because the native step exchanges no",
        ),
        (
            {"train.processes": 4, "train.batch-size": 3},
            "train.batch-size must be at least train.processes, so that each has a window of a batch, but",
        ),
        (
            {"train.processes": 2, "train.task": "sequence"},
            "train.task sequence needs train.processes to be 1, because several processes know cross entropy",
        ),
        (
            {"train.kernel": "native", "train.task": "regression"},
            "train.kernel native needs a train.task whose loss it knows, but it is regression; set",
        ),
        ({"train.optimizer": "adam"}, "scaffold.enabled needs train.optimizer to be sgd, because control"),
        (
            {"train.optimizer": "adam", "scaffold.enabled": False, "train.kernel": "native"},
            "train.kernel native needs train.optimizer to be sgd, which is all that the native step does",
        ),
        ({"train.lr": 1e-40}, "train.lr must be at least 1.2e-38, because with less no weight moves"),
    ],
)
def test_contradictions_are_refused(together, words):
    with pytest.raises(ConfigError) as caught:
        from_run_config(together)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "together",
    [
        {"scenario": "rotate", "scenario-groups": 3},
        {"scenario": "rotate", "cluster.method": "oracle"},
        {"leaf.strategy": "krum", "scaffold.enabled": False},
        {"cluster.signal": "affinity", "hierarchy.num-servers": 4},
        {"privacy.kind": "local", "scaffold.enabled": False, "train.model": "cnn-pool"},
        {"cluster.enabled": False, "cluster.method": "oracle"},
        {**IFCA, "gate.enabled": False},
        {**IFCA, "cluster.enabled": False},
        {"train.lr-decay": 0.1, "num-server-rounds": 37},
        {"train.processes": 4, "train.kernel": "auto"},
    ],
)
def test_what_fits_is_accepted(together):
    from_run_config(together)
