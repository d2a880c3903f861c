"""Groups as options say them: sizes, files, rounds; contradictions are refused in one line."""

import pytest

from fedge.config.flat import from_run_config
from fedge.config.planted import files_of, group_count, moves, planted_numbers
from fedge.config.registers.option import ConfigError


def config(leaves=6, **keys):
    named = {key.replace("__", ".").replace("_", "-"): value for key, value in keys.items()}
    return from_run_config({"scenario": "rotate", "hierarchy.num-servers": leaves, **named})


def test_lists_are_read():
    assert planted_numbers("", "key", "1,5") == []
    assert planted_numbers(" 1, 5 ", "key", "1,5") == [1, 5]
    assert moves("") == []
    assert moves("10:2, 20:1") == [(10, 2), (20, 1)]
    assert files_of("a.npz, b c.npz,") == ["a.npz", "b c.npz"]


@pytest.mark.parametrize(
    ("keys", "count"),
    [
        ({}, 2),
        ({"scenario_groups": 3}, 3),
        ({"scenario_sizes": "1,2,3"}, 3),
        ({"scenario_sizes": "1,5", "scenario_groups": 2}, 2),
        ({"scenario": "datasets", "data__path": "a.npz,b.npz,c.npz"}, 3),
    ],
    ids=str,
)
def test_how_many_groups_there_are(keys, count):
    assert group_count(config(**keys)) == count


@pytest.mark.parametrize(
    ("keys", "telling"),
    [
        ({"scenario_sizes": "1,4"}, "adds up to 5 and there are 6"),
        ({"scenario_sizes": "6"}, "two groups or more"),
        ({"scenario_sizes": "1,2,3", "scenario_groups": 4}, "as many as scenario-groups"),
        ({"scenario_sizes": "1;5"}, "positive whole numbers"),
        ({"scenario_sizes": "0,6"}, "positive whole numbers"),
        ({"scenario_groups": 7}, "at most hierarchy.num-servers"),
        ({"scenario_from": 5, "scenario_until": 4}, "must not come before scenario-from"),
        ({"scenario_moves": "5"}, "rounds and leaves"),
        ({"scenario_moves": "5:1,5:1"}, "rising order"),
        ({"scenario_moves": "1:1"}, "names round 1"),
        ({"scenario_moves": "9:1", "scenario_until": 8}, "names round 9"),
        ({"scenario_moves": "9:5"}, "at most 4 can move"),
        ({"scenario": "label-skew", "scenario_from": 2}, "cannot begin, end or move"),
        ({"scenario": "datasets"}, "a window file for each group"),
        ({"scenario": "datasets", "data__path": "a.npz,b.npz", "scenario_until": 3}, "cannot begin, end or"),
        ({"scenario": "datasets", "data__path": "a.npz,b.npz", "scenario_sizes": "1,2,3"}, "as many groups"),
        (
            {"scenario": "datasets", "data__path": "a.npz,b.npz", "partition__kind": "iid"},
            "must be user|to be user",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(keys, telling):
    with pytest.raises(ConfigError, match=telling) as refused:
        config(**keys)
    assert "\n" not in str(refused.value)


def test_nothing_is_refused_where_nothing_is_planted():
    assert config(scenario="none", scenario_sizes="1,1").scenario == "none"
