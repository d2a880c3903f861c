"""Compression beside options that it would break: one line each, before anything starts."""

import pytest

from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError

OFF = {"scaffold.enabled": False, "gate.enabled": False, "cluster.enabled": False}
SERVERS = {**OFF, "uplink.servers": "int8"}

REFUSED = {
    "scaffold": (
        {"uplink.clients": "int8"},
        "uplink.clients 'int8' needs scaffold.enabled=false, because control variates are sums .* or use "
        "top-k or sign",
    ),
    "noise at the leaf": (
        {**OFF, "uplink.clients": "sign", "privacy.kind": "client-fixed", "train.model": "linear"},
        "needs privacy.kind off or local, because compression comes after the noise",
    ),
    "virtual clock": (
        {**OFF, "uplink.clients": "sign", "asynchrony.rule": "fedbuff"},
        "must be none with asynchrony.rule fedbuff, whose clock counts uncompressed models",
    ),
    "gate": ({**SERVERS, "gate.enabled": True}, "needs gate.enabled=false, because a server that keeps"),
    "groups": ({**SERVERS, "cluster.enabled": True}, "needs cluster.enabled=false, because evidence"),
    "blend": ({**SERVERS, "cluster.blend": 0.5}, r"needs cluster.blend=1\.0, because the mean of all"),
    "layers": (
        {**SERVERS, "personal.layers": "head"}, 'needs personal.layers="none", because layers that a leaf',
    ),
    "rule of a region": (
        {**SERVERS, "hierarchy.tree": "2x2x*", "cloud.rule": "fedavgm", "cloud.rule-tiers": "1"},
        "needs cloud.rule-tiers of the root alone, because a rule between regions",
    ),
    "two levels": (
        {**SERVERS, "scaffold.enabled": True, "scaffold.levels": 2},
        "needs scaffold.levels=1, because corrections between servers",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_broken_promises_are_refused(case):
    options, words = REFUSED[case]
    with pytest.raises(ConfigError, match=words) as refused:
        from_run_config(options)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "options",
    [
        {"uplink.clients": "top-k"},
        {"uplink.clients": "sign"},
        {**OFF, "uplink.clients": "float16", "privacy.kind": "local", "train.model": "linear"},
        {**SERVERS, "privacy.kind": "client-fixed", "train.model": "linear"},
        {**SERVERS, "scaffold.enabled": True, "hierarchy.tree": "2x2x*"},
    ],
)
def test_what_breaks_nothing_is_taken(options):
    from_run_config(options)
