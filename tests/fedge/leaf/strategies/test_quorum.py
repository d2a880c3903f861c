import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.engine.federation import Federation
from fedge.launch.preflight import check
from fedge.leaf.strategies.quorum import fewest_training, needed_replies, num_training, refuse_missing_quorum

MALICIOUS = r"leaf\.strategy-args\.num-malicious-nodes"
SELECTED = r"leaf\.strategy-args\.num-nodes-to-select"


def config(**values):
    keys = {
        "strategy": "leaf.strategy",
        "malicious": "leaf.strategy-args.num-malicious-nodes",
        "trim": "leaf.strategy-args.beta",
        "selected": "leaf.strategy-args.num-nodes-to-select",
        "fraction": "hierarchy.fraction-train",
    }
    return from_run_config({"scaffold.enabled": False, **{keys[k]: v for k, v in values.items()}})


@pytest.mark.parametrize(
    ("values", "sizes"),
    [
        ({}, [1, 1]),
        ({"strategy": "krum"}, [3, 4]),
        ({"strategy": "krum", "malicious": 1}, [5]),
        ({"strategy": "krum", "fraction": 0.5}, [6]),
        ({"strategy": "fedtrimmedavg", "trim": 0.2}, [5]),  # 0.2 · 5 = 1
        ({"strategy": "fedtrimmedavg", "trim": 0.0}, [1]),
        ({"strategy": "fedtrimmedavg", "trim": 0.34}, [3]),
        ({"strategy": "multikrum", "selected": 7}, [9]),
        ({"strategy": "multikrum", "selected": 6, "malicious": 1}, [9]),
    ],
)
def test_large_enough(values, sizes):
    refuse_missing_quorum(config(**values), sizes)


@pytest.mark.parametrize(
    ("values", "sizes", "telling"),
    [
        ({"strategy": "krum"}, [9, 2], rf"needs 3 clients for {MALICIOUS}=0, but leaf 1 trains 2"),
        ({"strategy": "krum", "malicious": 1}, [4], rf"krum needs 5 clients for {MALICIOUS}=1, but"),
        ({"strategy": "bulyan", "malicious": 1}, [6], r"bulyan needs 7 clients"),
        ({"strategy": "bulyan"}, [6], r"bulyan needs 7 clients"),  # one malicious, unless said
        ({"strategy": "bulyan", "malicious": 0}, [9], rf"{MALICIOUS} must be at least 1, but is 0"),
        ({"strategy": "multikrum", "selected": 9}, [9], rf"{SELECTED} must be at most .* is 9 and"),
        ({"strategy": "multikrum", "selected": 7, "malicious": 1}, [9], rf"{SELECTED} must be"),
        ({"strategy": "krum", "malicious": 1.0}, [9], rf"{MALICIOUS} must be a whole number, but is 1\.0"),
        ({"strategy": "fedtrimmedavg", "trim": 0.5}, [9], r"args\.beta must be at most 0\.49, but is 0\.5"),
        ({"strategy": "krum", "fraction": 0.5}, [5], "trains 2 in a leaf round"),
        ({"strategy": "fedtrimmedavg", "trim": 0.2}, [4], r"0\.2 of 4 is none .*; set at least .*=0\.26"),
        ({"strategy": "fedtrimmedavg"}, [2], r"set leaf\.strategy-args\.beta=0, or use leaves of 3"),
    ],
)  # fmt: skip
def test_too_small(values, sizes, telling):
    with pytest.raises(ConfigError, match=telling):
        refuse_missing_quorum(config(**values), sizes)


@given(st.integers(3, 500))
def test_the_advice_is_enough(size):
    with pytest.raises(ConfigError) as caught:
        refuse_missing_quorum(config(strategy="fedtrimmedavg", trim=0.001), [size])
    advice = float(str(caught.value).rpartition("leaf.strategy-args.beta=")[2])
    refuse_missing_quorum(config(strategy="fedtrimmedavg", trim=advice), [size])


@pytest.mark.parametrize("strategy", ["krum", "multikrum", "bulyan"])
@pytest.mark.parametrize("leaves", [1, 2])
@pytest.mark.parametrize("size", range(1, 12))
@pytest.mark.parametrize("malicious", range(4))
def test_who_follows_the_advice_starts(strategy, leaves, size, malicious):
    """An option that is to be lowered can be, and as far as is said is enough."""
    least = 1 if strategy == "bulyan" else 0
    given = config(strategy=strategy, malicious=max(least, malicious))
    given = replace(given, hierarchy=replace(given.hierarchy, num_servers=leaves))
    try:
        refuse_missing_quorum(given, [size] * leaves)
    except ConfigError as error:
        advice = str(error).rpartition("; ")[2]
        lower = re.search(rf"lower {MALICIOUS} to (\d+)", advice)
        assert (lower is not None) == (size >= (7 if strategy == "bulyan" else 3))
        if lower is not None:
            refuse_missing_quorum(config(strategy=strategy, malicious=int(lower[1])), [size] * leaves)
        assert ("lower hierarchy.num-servers" in advice) == (leaves > 1)
        assert advice.count("lower") == (lower is not None) + (leaves > 1)


def test_a_leaf_always_trains_somebody():
    assert [num_training(config(fraction=f), 3) for f in (1.0, 0.5, 0.01)] == [3, 2, 1]


def participation(said, rounds=9, servers=2, arguments="", **values):
    return from_run_config(
        {
            "hierarchy.participation": said,
            "hierarchy.participation-args": arguments,
            "hierarchy.num-servers": servers,
            "num-server-rounds": rounds,
            **values,
        }
    )


def test_numbers_of_each_leaf_and_round():
    config = participation("1: all,2; 5: 0.5; 7: 1")
    found = [[num_training(config, size, r, leaf) for leaf, size in ((0, 5), (1, 4))] for r in (1, 4, 5, 7)]
    assert found == [[5, 2], [5, 2], [2, 2], [1, 1]]
    assert fewest_training(config, [5, 4]) == (0, 1)
    assert fewest_training(participation("1: all,2; 5: 0.5; 7: 1", rounds=6), [5, 4]) == (0, 2)
    assert fewest_training(participation("3,1"), [3, 3]) == (1, 1)


def test_fewer_clients_than_a_number_asks_for_are_all():
    assert num_training(participation("3"), 2) == 2


def ramp(global_round, leaf, clients, last=4):
    return min(global_round, last) if leaf else 0.5


def test_code_says_the_numbers():
    config = participation(f"{__name__}:ramp", arguments='{"last": 3}')
    assert [num_training(config, 6, r, 1) for r in (1, 2, 3, 4)] == [1, 2, 3, 3]
    assert num_training(config, 6, 4, 0) == 3
    assert fewest_training(config, [6, 6]) == (1, 1)


def zero(global_round, leaf, clients):
    return 1 if global_round < 3 else 0


def half_more(global_round, leaf, clients):
    return 1.5


def nothing(global_round, leaf, clients):
    return None


@pytest.mark.parametrize(("name", "at"), [("zero", 3), ("half_more", 1), ("nothing", 1)])
def test_code_that_says_no_number_is_refused_before_the_start(name, at):
    with pytest.raises(ConfigError, match=rf"must return a whole number .* in global round {at} it returned"):
        refuse_missing_quorum(participation(f"{__name__}:{name}"), [4, 4])


@pytest.mark.parametrize(
    ("said", "values", "telling"),
    [
        ("1: all; 4: 3,5", {}, r"asks for 5 of leaf 1 from round 4 on, which has 4"),
        ("1: 3; 4: 2,1", {"guard.min-clients": 2}, r"guard\.min-clients must be .* leaf 1 trains 1"),
        ("1: 3; 4: 2", {"leaf.strategy": "krum", "scaffold.enabled": False}, "krum needs 3 clients"),
    ],
)
def test_too_few_or_too_many_in_a_later_round(said, values, telling):
    with pytest.raises(ConfigError, match=telling):
        refuse_missing_quorum(participation(said, **values), [4, 4])


def test_it_is_known_before_the_start():
    strategy = {
        "leaf.strategy": "fedtrimmedavg",
        "leaf.strategy-args.beta": 0.1,
        "scaffold.enabled": False,
        "data.path": "synthetic",
    }
    with pytest.raises(ConfigError, match=r"leaf\.strategy-args\.beta must cut"):
        check(strategy, Federation(9))


@given(st.integers(1, 49).map(lambda percent: percent / 100), st.integers(1, 120))
def test_a_trimmed_mean_of_enough_replies_cuts_somebody(trim, replies):
    """Property: the quorum is the smallest number of which a client is cut at each end, so it is no mean."""
    needed = needed_replies(config(strategy="fedtrimmedavg", trim=trim))
    assert (replies >= needed) == (int(trim * replies) >= 1)


@given(st.integers(0, 5), st.integers(0, 12), st.integers(1, 40))
def test_multi_krum_of_enough_replies_leaves_out_the_malicious_and_two(malicious, selected, replies):
    needed = needed_replies(config(strategy="multikrum", malicious=malicious, selected=selected))
    if replies >= needed:
        assert (selected or replies - malicious - 2) <= replies - malicious - 2
        assert replies >= 2 * malicious + 3
