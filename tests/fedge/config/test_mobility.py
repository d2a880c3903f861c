"""Clients cannot go from leaf to leaf beside options that need them to stay."""

import pytest

from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError

MOVES = {"hierarchy.mobility": "markov"}
CLOCK = {
    "scaffold.enabled": False, "cluster.enabled": False, "gate.enabled": False, "asynchrony.rule": "fedbuff",
}  # fmt: skip


@pytest.mark.parametrize(
    ("options", "telling"),
    [
        ({"hierarchy.tree": "2x2x3", "cluster.enabled": False}, "needs leaves under one cloud"),
        ({"scenario": "rotate"}, 'needs scenario="none"'),
        ({"scaffold.levels": 2}, "needs scaffold.levels=1"),
        ({"cluster.method": "stocfl"}, "others remember clients by their leaf"),
        ({"cluster.method": "ifca", "cluster.count": "2", "gate.enabled": False}, "others remember clients"),
        ({"cluster.method": "agglomerative", "cluster.count": "auto", "hierarchy.num-servers": 4,
          "cluster.signal": "affinity", "cluster.patience": 2},
         'a cluster.count other than "auto"'),
        ({"cloud.rule": "fedmedian"}, 'needs cloud.rule="fedavg"'),
        ({"privacy.kind": "server-fixed", "scaffold.enabled": False, "train.model": "cnn-pool"},
         'needs privacy.kind "off" or "local"'),
    ],
)  # fmt: skip
def test_what_needs_clients_to_stay_is_named(options, telling):
    with pytest.raises(ConfigError, match=r"^hierarchy\.mobility markov needs ") as caught:
        from_run_config(MOVES | options)
    assert telling in str(caught.value)
    from_run_config(options)


def test_the_virtual_clock_gives_each_device_to_one_leaf():
    with pytest.raises(ConfigError, match=r"needs asynchrony.rule=.off., because the virtual clock"):
        from_run_config(MOVES | CLOCK)


@pytest.mark.parametrize(
    "options",
    [
        {}, {"cluster.enabled": False}, {"gate.rule": "after-round"}, {"personal.leaf-rounds": 1},
        {"privacy.kind": "local", "scaffold.enabled": False, "train.model": "cnn-pool"},
        {"cluster.method": "agglomerative", "cluster.count": "2"},
    ],
)  # fmt: skip
def test_beside_all_else_they_go(options):
    assert from_run_config(MOVES | options).hierarchy.moves
