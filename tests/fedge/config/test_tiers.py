"""Options of servers of a tier: what each can have, refused in one line that says why."""

import pytest

from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.config.tree import parse_tiers

TRIALS = {
    "cluster.count": "auto", "cluster.method": "agglomerative", "cluster.signal": "affinity",
    "cluster.patience": 2,
}  # fmt: skip
IFCA = {"cluster.method": "ifca", "cluster.count": "2", "gate.enabled": False}


def config(**options):
    return from_run_config({"hierarchy.tree": "2x3x4x2", "hierarchy.names": "a,b,c,d", **options})


def test_by_default_the_cloud_alone_groups_and_leaves_a_choice():
    deep = config()
    assert deep.meeting_tiers == {0}
    assert [deep.cluster_at(tier).enabled for tier in range(3)] == [True, False, False]
    assert [deep.gate_at(tier).enabled for tier in range(3)] == [True, False, False]
    assert not any(deep.has_rule_at(tier) for tier in range(3))


def test_tiers_are_said_by_number_or_name():
    options = {"cluster.tiers": "b, c", "gate.tiers": "2", "cloud.rule": "fedavgm", "cloud.rule-tiers": "1"}
    deep = config(**options, **{"scaffold.enabled": False})
    assert deep.meeting_tiers == {0, 1, 2}
    assert [deep.cluster_at(tier).enabled for tier in range(3)] == [False, True, True]
    assert [deep.gate_at(tier).enabled for tier in range(3)] == [False, False, True]
    assert [deep.has_rule_at(tier) for tier in range(3)] == [False, True, False]


@pytest.mark.parametrize("text", ["", "3", "d", "-1", "a;b"])
def test_a_tier_of_no_servers_over_servers_is_refused(text):
    with pytest.raises(ConfigError, match=r"cluster.tiers must name tiers .*\(a, b, c\)"):
        parse_tiers(text, ["a", "b", "c", "d"], "cluster.tiers")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (TRIALS, "a trial of new groups takes forks of leaves"),
        ({"cluster.method": "oracle", "scenario": "rotate"}, "true groups are planted in leaves"),
        ({**IFCA, "cluster.tiers": "c"}, "servers above would replace the models"),
        ({"gate.rule": "after-round", "gate.tiers": "c"}, "must still be there after it"),
        ({"gate.rule": "after-round", "cluster.tiers": "c"}, "must still be there after it"),
        ({"gate.rule": "after-round", "personal.layers": "head"}, "a region's own line has no layers"),
        (
            {"cluster.count": "5", "cluster.method": "agglomerative", "cluster.tiers": "c"},
            "at most the children",
        ),
    ],
)
def test_what_a_tier_cannot_have_is_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        config(**options)


@pytest.mark.parametrize(
    "options",
    [
        {**TRIALS, "cluster.tiers": "c"},
        {"cluster.method": "oracle", "scenario": "rotate", "cluster.tiers": "c"},
        {"gate.rule": "after-round", "gate.tiers": "c", "hierarchy.region-rounds": "1,2"},
        {"gate.rule": "after-round"},
        {"personal.layers": "head", "cluster.tiers": "0,1,2", "gate.tiers": "0,2"},
        {**IFCA, "cluster.tiers": "b", "hierarchy.tree": "1x3x4x2"},
    ],
)
def test_what_it_can_have_is_taken(options):
    assert config(**options).hierarchy.tiers == 4
