"""Tiers of servers over servers on the virtual clock: what they have of their own, and what is refused."""

import pytest
from virtual_world import config_of

from fedge.config.clock_tiers import clock_of_tiers, has_servers_above_leaves
from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError


def deep(tiers, tree="2x2x3x2", **more):
    return config_of(hierarchy__tree=tree, asynchrony__tiers=tiers, **more)


def test_regions_have_what_the_cloud_has_unless_they_say_otherwise():
    config = deep(
        '{"region-2": {"rule": "fedavg", "every": 3, "delay-s": 0.1, "megabytes-s": 2.0}}',
        asynchrony__cloud_rule_args='{"buffer": 2}', asynchrony__cloud_delay_s=1.0,
    )  # fmt: skip
    cloud, first, second = clock_of_tiers(config)
    assert cloud is first is config.asynchrony
    assert (second.cloud_rule, second.cloud_every, second.cloud_delay_s) == ("fedavg", 3, 0.1)
    assert second.arguments("cloud_rule") == {}  # those of the cloud's rule are not for another
    assert second.concurrency == cloud.concurrency


def test_tiers_are_said_by_name_by_number_and_several_at_once():
    by_name, by_number = (deep(f'{{"{name}": {{"every": 2}}}}') for name in ("region-1", "1"))
    assert [of.cloud_every for of in clock_of_tiers(by_name)] == [1, 2, 1]
    assert [of.cloud_every for of in clock_of_tiers(by_number)] == [1, 2, 1]
    assert [of.cloud_every for of in clock_of_tiers(deep('{"1,2": {"every": 4}}'))] == [1, 4, 4]


def test_keys_of_a_file_are_a_table():
    config = from_run_config({
        "hierarchy.tree": "2x2x2", "asynchrony.tiers.region.rule": "fedbuff",
        "asynchrony.tiers.region.rule-args.buffer": 2,
    })  # fmt: skip
    assert clock_of_tiers(config)[1].arguments("cloud_rule") == {"buffer": 2}


def test_there_is_a_cloud_above_several_leaves_or_a_region():
    trees = {"1x4": False, "2x4": True, "1x1x4": True, "": False}
    assert {
        tree: has_servers_above_leaves(config_of(hierarchy__tree=tree).hierarchy) for tree in trees
    } == trees


@pytest.mark.parametrize(
    ("tiers", "words"),
    [
        ('{"cloud": {"every": 2}}', r"whose options are asynchrony\.cloud-rule"),
        ('{"leaf": {"every": 2}}', r"asynchrony\.tiers must name tiers of servers over servers"),
        ('{"region-1": 3}', r"asynchrony\.tiers\.region-1 must be a table of rule, rule-args"),
        ('{"region-1": {"evry": 2}}', r"has 'evry'; did you mean every\?"),
        ('{"region-1": {"every": 0}}', r"asynchrony\.tiers\.region-1: every must be at least 1"),
        ('{"region-1": {"rule": "fedbuf"}}', r"did you mean fedbuff\?"),
        ('{"region-2": {"rule-args": {"buffer": 4}}}',
         r"asynchrony\.tiers\.region-2\.rule-args\.buffer must be at most the children of a region-2 "
         r"\(hierarchy\.tree\), because a leaf sends nothing while it waits, but is 4 for 3"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(tiers, words):
    with pytest.raises(ConfigError, match=words):
        deep(tiers)


def test_tiers_without_a_deeper_tree_are_refused():
    with pytest.raises(ConfigError, match=r"without a deeper hierarchy\.tree"):
        config_of(asynchrony__tiers='{"region": {"every": 2}}', hierarchy__num_servers=2)


def test_rounds_of_regions_and_groups_at_regions_are_refused():
    with pytest.raises(ConfigError, match=r'hierarchy\.region-rounds="1", because asynchrony\.tiers says'):
        deep("", hierarchy__region_rounds="2")
    with pytest.raises(
        ConfigError, match=r'needs cluster\.tiers="0", because on the virtual clock the cloud'
    ):
        deep("", cluster__enabled=True, cluster__tiers="1")


def test_the_cloud_may_group_its_regions_and_a_region_still_needs_its_buffer():
    """A group may become a region alone, so the cloud's buffer is 1; those below a region stay together."""
    found = {"cluster__enabled": True, "cluster__method": "agglomerative", "cluster__count": "2"}
    assert deep("", **found).cluster.enabled
    with pytest.raises(ConfigError, match=r"must be at most the smallest group"):
        deep("", asynchrony__cloud_rule_args='{"buffer": 2}', **found)
    full = '{"region-2": {"rule": "fedbuff", "rule-args": {"buffer": 3}}}'
    assert clock_of_tiers(deep(full, **found))[2].arguments("cloud_rule") == {"buffer": 3}


def test_rounds_that_are_only_timed_have_edges_of_tiers_alone():
    timed = {"hierarchy.tree": "2x2x2", "devices.time-rounds": True}
    config = from_run_config({**timed, "asynchrony.tiers.region.megabytes-s": 2.0})
    assert [of.cloud_megabytes_s for of in clock_of_tiers(config)] == [10.0, 2.0]
    with pytest.raises(ConfigError, match=r"region must have delay-s, megabytes-s, but has 'every'"):
        clock_of_tiers(from_run_config({**timed, "asynchrony.tiers.region.every": 2}))
