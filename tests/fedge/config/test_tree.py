"""Trees of servers as users write them, and those refused in one line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.config.flat import from_run_config, to_run_config
from fedge.config.registers.option import ConfigError
from fedge.config.sections.hierarchy import HierarchyConfig
from fedge.config.tree import Tree, dotted, names_of_tiers, numbers_of_tiers, parse_tree


def written(tree):
    """A tree as the clients of every leaf in brackets."""
    return f"({','.join(map(written, tree.children))})" if tree.children else str(tree.clients)


def trees(depth):
    if depth == 0:
        return st.integers(1, 50).map(lambda clients: Tree(clients=clients))
    return st.lists(trees(depth - 1), min_size=1, max_size=3).map(lambda children: Tree(tuple(children)))


@given(st.integers(0, 3).flatmap(trees))
def test_any_tree_is_read_as_it_is_written(tree):
    assert parse_tree(written(tree)) == tree
    assert parse_tree(f" {written(tree)} ".replace(",", " , ")) == tree
    paths = tree.paths(tree.tiers - 1)
    assert len(set(paths)) == len(paths) == len(list(tree.leaves()))
    assert paths == sorted(paths)


def test_a_tree_says_how_many_leaves_and_clients_there_are():
    config = HierarchyConfig(tree="((3,3),(2,2,2))", region_rounds="4", leaf_rounds=2)
    assert (config.num_servers, config.clients_per_server) == (5, "3,3,2,2,2")
    assert (config.tiers, config.branches, config.leaf_rounds_per_global) == (3, 2, 8)
    assert config.tier_names == ["cloud", "region", "leaf"]
    assert config.shape.paths(1) == [(0,), (1,)]
    assert [dotted(path) for path in config.shape.paths(2)] == ["0.0", "0.1", "1.0", "1.1", "1.2"]


def test_leaves_under_one_cloud_are_what_they_were():
    config = HierarchyConfig()
    assert (config.tiers, config.branches, config.leaf_rounds_per_global) == (2, 3, 1)
    assert config.shape.paths(1) == [(0,), (1,), (2,)]
    alone = HierarchyConfig(tree="9")
    assert (alone.tiers, alone.num_servers, alone.clients_per_server) == (2, 1, "9")


def test_a_configuration_with_a_tree_survives_the_way_there_and_back():
    config = from_run_config({"hierarchy.tree": "2x3x*", "hierarchy.names": "hq, city ,hall"})
    assert from_run_config(to_run_config(config)) == config
    assert config.hierarchy.tier_names == ["hq", "city", "hall"]


@pytest.mark.parametrize(
    "text",
    ["2x", "x2", "2x3x", "0x3", "2x0", "2x*x3", "(2,3", "2,3)", "()", "((),2)", "(2,,3)", "(,2)", "(2)(3)",
     "2(3)", "two", "2x3.5", "-2x3", "(2,-3)", "(0,1)", "((2,2),3)", "1x1x1x1x1x1x1x1x1", "999x999x2",
     "9" * 5000, "(" * 5000],
)  # fmt: skip
def test_what_is_no_tree_is_refused(text):
    with pytest.raises(ConfigError, match=r"^hierarchy\.tree must (be|have)"):
        HierarchyConfig(tree=text)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tree": "2x3x4", "num_servers": 5}, "num-servers must not contradict hierarchy.tree, which says 6"),
        ({"tree": "2x3x4", "clients_per_server": "4,4"}, "clients-per-server must not contradict"),
        ({"tree": "2x3x4", "names": "cloud,leaf"}, "hierarchy.names must be different names for 3 tiers"),
        ({"tree": "2x3x4", "names": "a,b,a"}, "hierarchy.names must be different names"),
        ({"tree": "2x3x4", "region_rounds": "0"}, "hierarchy.region-rounds must be whole numbers"),
        ({"tree": "2x2x2x2", "region_rounds": "1,2,3"}, "one number, or one for each of 2 tiers"),
    ],
)
def test_what_contradicts_a_tree_is_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        HierarchyConfig(**options)


def test_numbers_and_names_of_tiers():
    assert numbers_of_tiers("2", 3, "k") == (2, 2, 2)
    assert numbers_of_tiers("2, 3", 2, "k") == (2, 3)
    assert names_of_tiers("", 2) == ["cloud", "leaf"]


DEEP = {"hierarchy.tree": "2x3x4"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"asynchrony.rule": "fedbuff", "cluster.tiers": "1"}, "virtual clock"),
        (
            {
                "cluster.count": "auto",
                "cluster.method": "agglomerative",
                "cluster.signal": "affinity",
                "cluster.patience": 2,
            },
            "forks of leaves",
        ),
        ({"cluster.method": "oracle", "scenario": "rotate"}, "planted in leaves"),
        ({"gate.rule": "after-round", "personal.layers": "head"}, "own line"),
        ({"gate.rule": "after-round", "cluster.tiers": "0,1"}, "must still be there"),
        ({"scaffold.levels": 4}, "scaffold.levels must be at most 3"),
    ],
)  # fmt: skip
def test_what_a_deeper_tree_cannot_have_is_refused_before_work_starts(options, words):
    from_run_config(DEEP)
    with pytest.raises(ConfigError, match=words):
        from_run_config({**DEEP, **options})


def test_levels_end_at_the_depth_of_the_tree():
    assert from_run_config({**DEEP, "scaffold.levels": 3}).scaffold.levels == 3
    with pytest.raises(ConfigError, match="levels must be at most 2, the tiers of servers, but is 3"):
        from_run_config({"scaffold.levels": 3})
