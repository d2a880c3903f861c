import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.config import ConfigError, from_run_config
from fedge.federation import Federation
from fedge.leaf_sizes import refuse_small_leaves, training_clients
from fedge.preflight import check


def config(**values):
    keys = {
        "strategy": "leaf.strategy",
        "malicious": "leaf.num-malicious",
        "trim": "leaf.trim-fraction",
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
        ({"strategy": "fedtrimmedavg"}, [5]),  # 0.2 · 5 = 1
        ({"strategy": "fedtrimmedavg", "trim": 0.0}, [1]),
        ({"strategy": "fedtrimmedavg", "trim": 0.34}, [3]),
    ],
)
def test_large_enough(values, sizes):
    refuse_small_leaves(config(**values), sizes)


@pytest.mark.parametrize(
    ("values", "sizes", "telling"),
    [
        ({"strategy": "krum"}, [9, 2], r"= 3 clients per leaf, but leaf 1 has 2 that train; lower leaf\.num"),
        ({"strategy": "krum", "malicious": 1}, [4], r"leaf\.num-malicious \+ 3 = 5 clients per leaf, but"),
        ({"strategy": "krum", "fraction": 0.5}, [5], "has 2 that train"),
        ({"strategy": "fedtrimmedavg"}, [4], r"0\.2 of 4 is none .*; set at least leaf\.trim-fraction=0\.26"),
        ({"strategy": "fedtrimmedavg"}, [2], r"set at least leaf\.trim-fraction=0, or use leaves of 3"),
    ],
)  # fmt: skip
def test_too_small(values, sizes, telling):
    with pytest.raises(ConfigError, match=telling):
        refuse_small_leaves(config(**values), sizes)


@given(st.integers(3, 500))
def test_the_advice_is_enough(size):
    with pytest.raises(ConfigError) as caught:
        refuse_small_leaves(config(strategy="fedtrimmedavg", trim=0.001), [size])
    advice = float(str(caught.value).rpartition("leaf.trim-fraction=")[2])
    refuse_small_leaves(config(strategy="fedtrimmedavg", trim=advice), [size])


def test_a_leaf_always_trains_somebody():
    assert [training_clients(f, 3) for f in (1.0, 0.5, 0.01)] == [3, 2, 1]


def test_it_is_known_before_the_start():
    strategy = {"leaf.strategy": "fedtrimmedavg", "scaffold.enabled": False, "data.path": "synthetic"}
    with pytest.raises(ConfigError, match=r"leaf\.trim-fraction must cut"):
        check(strategy, Federation(9))
