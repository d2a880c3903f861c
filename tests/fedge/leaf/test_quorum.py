import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.config.flat import from_run_config
from fedge.config.option import ConfigError
from fedge.engine.federation import Federation
from fedge.launch.preflight import check
from fedge.leaf.quorum import needed_replies, num_training, refuse_missing_quorum


def config(**values):
    keys = {
        "strategy": "leaf.strategy",
        "malicious": "leaf.num-malicious",
        "trim": "leaf.trim-fraction",
        "selected": "leaf.num-selected",
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
        ({"strategy": "krum"}, [9, 2], r"needs 3 clients for leaf\.num-malicious=0, but leaf 1 trains 2"),
        ({"strategy": "krum", "malicious": 1}, [4], r"krum needs 5 clients for leaf\.num-malicious=1, but"),
        ({"strategy": "bulyan", "malicious": 1}, [6], r"bulyan needs 7 clients"),
        ({"strategy": "bulyan"}, [9], r"leaf\.num-malicious must be at least 1 for leaf\.strategy bulyan"),
        ({"strategy": "multikrum", "selected": 9}, [9], r"leaf\.num-selected must be at most .* is 9 and"),
        ({"strategy": "multikrum", "selected": 7, "malicious": 1}, [9], r"leaf\.num-selected must be"),
        ({"strategy": "krum", "fraction": 0.5}, [5], "trains 2 in a leaf round"),
        ({"strategy": "fedtrimmedavg", "trim": 0.2}, [4], r"0\.2 of 4 is none .*; set at least .*=0\.26"),
        ({"strategy": "fedtrimmedavg"}, [2], r"set leaf\.trim-fraction=0, or use leaves of 3"),
    ],
)  # fmt: skip
def test_too_small(values, sizes, telling):
    with pytest.raises(ConfigError, match=telling):
        refuse_missing_quorum(config(**values), sizes)


@given(st.integers(3, 500))
def test_the_advice_is_enough(size):
    with pytest.raises(ConfigError) as caught:
        refuse_missing_quorum(config(strategy="fedtrimmedavg", trim=0.001), [size])
    advice = float(str(caught.value).rpartition("leaf.trim-fraction=")[2])
    refuse_missing_quorum(config(strategy="fedtrimmedavg", trim=advice), [size])


def test_a_leaf_always_trains_somebody():
    assert [num_training(config(fraction=f), 3) for f in (1.0, 0.5, 0.01)] == [3, 2, 1]


def test_it_is_known_before_the_start():
    strategy = {
        "leaf.strategy": "fedtrimmedavg",
        "leaf.trim-fraction": 0.1,
        "scaffold.enabled": False,
        "data.path": "synthetic",
    }
    with pytest.raises(ConfigError, match=r"leaf\.trim-fraction must cut"):
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
