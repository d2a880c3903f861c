"""What sections must not say together is refused, and what fits is not."""

import pytest

from fedge.config.option import ConfigError
from fedge.config.sections import from_run_config


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
    ],
)
def test_what_fits_is_accepted(together):
    from_run_config(together)
