"""Trees of servers as users write them, and those refused in one line."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedge
from fedge.config.flat import from_run_config, to_run_config
from fedge.config.registers.option import ConfigError
from fedge.config.sections.hierarchy import HierarchyConfig
from fedge.config.topology import clients_per_leaf
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
    ("text", "fault"),
    [
        ("(2,)", "a comma before a bracket that closes"), ("(,2)", "a comma behind a bracket that opens"),
        ("(2,,3)", "two commas in a row"), ("((2)(3))", "lacks a comma"),
        ("2,", "begins or ends with a comma"),
        ("(())", "a server without children"), ("(2", "leaves a bracket open"),
        ("2)", "closes a bracket that is not open"), ("2,3", "lacks the brackets around all of it"),
        ("(0,1)", "'0', where a leaf has 1 to"), ("(2 2)", "a space between two digits"),
        ("2 2x3", "a space between two digits"), ("[2,2]", "'['"), ("2X3", "'X'"),
        ("(2,*)", "both brackets"), ("2xx3", "without a number on both sides"),
        ("02x3", "begins with 0, '02'"),
        ("2x*x3", "not the clients of the leaves"), ("1x1234567", "'1234567'"),
    ],
)  # fmt: skip
def test_the_refusal_of_a_tree_says_what_is_wrong(text, fault):
    with pytest.raises(ConfigError) as refused:
        parse_tree(text)
    assert f"but {text!r} " in str(refused.value)
    assert fault in str(refused.value)


@given(st.text("x*(),0123 ]", min_size=1, max_size=8))
def test_any_text_is_a_tree_or_has_a_fault(text):
    """Whitespace means nothing beside other characters; what is refused is so for a reason."""
    try:
        tree, refusal = parse_tree(text), ""
    except ConfigError as error:
        tree, refusal = None, str(error)
    assert not refusal.split("; ")[0].endswith(repr(text))
    if tree is not None:
        assert parse_tree(text.replace(" ", "")) == tree
        assert not any(a[-1:].isdigit() and b[:1].isdigit() for a, b in pairwise(text.split()))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tree": "2x3x4", "num_servers": 5}, "num-servers must not contradict hierarchy.tree, which says 6"),
        ({"tree": "2x3x4", "clients_per_server": "4,4"}, "clients-per-server must not contradict"),
        ({"tree": "2x3x4", "names": "cloud,leaf"}, "hierarchy.names must be different names for 3 tiers"),
        ({"tree": "2x3x4", "names": "a,b,a"}, "hierarchy.names must be different names"),
        ({"tree": "1x3x3", "names": "1,0,2"}, "must not have a number as a name, .* but has '1'; set for"),
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


MANY = {"scenario": "rotate", "scenario-groups": 2}


@pytest.mark.parametrize(
    ("tree", "options", "words"),
    [
        ("3x3", {"scenario": "rotate", "scenario-groups": 4}, "must be at most the number of leaves in"),
        ("3x3", {"scenario": "rotate", "scenario-sizes": "1,1"}, "must add up to the number of leaves in"),
        ("3x3", {**MANY, "scenario-moves": "2:2"}, "or raise the number of leaves in"),
        ("3x3", {"hierarchy.participation": "1,2"}, "has 2; change it, or the number of leaves in"),
        ("3x3", {"cluster.method": "kmeans", "cluster.count": "4"}, "at most the number of leaves in"),
        ("2x2x3", {"cluster.method": "kmeans", "cluster.count": "3"}, "at most the children of the cloud ("),
        (
            "4x2x3", {"cluster.method": "kmeans", "cluster.count": "3", "cluster.tiers": "0,1"},
            "at most the children of a region (",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_a_tree_names_the_tree(tree, options, words):
    with pytest.raises(ConfigError) as refused:
        from_run_config({"hierarchy.tree": tree, **options})
    assert f"{words} hierarchy.tree".replace("( ", "(") in str(refused.value)
    assert "num-servers" not in str(refused.value)


def test_clients_that_do_not_fit_a_tree():
    with pytest.raises(
        ConfigError, match=r"^hierarchy\.tree .* '3x3' has 9 and there are 10; set clients=9, or"
    ):
        clients_per_leaf(HierarchyConfig(tree="3x3"), 10)
    with pytest.raises(
        ConfigError, match=r"^the number of leaves in hierarchy\.tree must be at most the number"
    ):
        clients_per_leaf(HierarchyConfig(tree="9x*"), 5)


def test_no_other_message_names_the_option_beside_a_tree():
    """Messages take `leaves_option`; these are its defaults, keys of options, and what no tree reaches."""
    root = Path(fedge.__file__).parent
    naming = {
        path.relative_to(root).as_posix(): path.read_text().count("hierarchy.num-servers")
        for path in root.rglob("*.py")
        if "hierarchy.num-servers" in path.read_text()
    }
    assert naming == {
        "config/sections/hierarchy.py": 2, "config/participation.py": 1, "config/topology.py": 1,
        "config/effects.py": 1, "config/flat.py": 1, "clustering/deal_test/reach.py": 1,
        "privacy/coverage.py": 1, "launch/leaf_servers/leaf_command.py": 1,
    }  # fmt: skip


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
