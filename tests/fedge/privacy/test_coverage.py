"""What a run says of its privacy."""

import pytest

from fedge.config.flat import from_run_config
from fedge.privacy.coverage import at_end, at_start, not_covered, promise

CLOSED = {
    "privacy.kind": "server-fixed", "scaffold.enabled": False, "train.model": "linear",
    "data.normalize": False, "gate.enabled": False, "cluster.enabled": False,
}  # fmt: skip


def config(**changes):
    return from_run_config({**CLOSED, **changes})


def test_little_leaves_where_all_is_closed():
    (left,) = not_covered(config())
    assert left.startswith("all that the tables hold")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data.normalize": True}, "data.normalize"),
        ({"gate.enabled": True}, "gate.enabled"),
        ({"cluster.enabled": True, "cluster.method": "ifca", "cluster.count": "2"}, "cluster.method"),
        ({"cluster.enabled": True, "cluster.signal": "cross-loss"}, "cluster.signal"),
        ({"cluster.blend": "auto"}, "cluster.blend"),
        ({"personal.leaf-rounds": 1}, "personal.leaf-rounds"),
    ],
)
def test_each_leak_is_said_with_its_option(changes, said):
    first, *_, last = not_covered(config(**changes))
    assert f"({said})" in first
    assert last == not_covered(config())[0]


def test_signals_of_noisy_models_leak_nothing():
    for signal in ("weights", "update", "update-head"):
        assert len(not_covered(config(**{"cluster.enabled": True, "cluster.signal": signal}))) == 1


def test_one_leaf_has_no_cloud_that_could_learn():
    alone = {"hierarchy.num-servers": 1, "gate.enabled": True, "cluster.blend": "auto"}
    assert len(not_covered(config(**alone))) == 1


def test_what_is_said():
    start = at_start(config(), "dp-accounting 0.6.0")
    assert start == f"privacy is {promise('server-fixed')}; not covered: {not_covered(config())[0]}"
    assert promise("local").startswith("local: ")
    assert at_start(config(), None) == (
        f"{start}; epsilon will not be added up, because dp-accounting is not installed "
        "(pip install 'fedge[privacy]')"
    )
    assert at_end(config(), 3.14159, 8) == (
        f"privacy: epsilon 3.142 at delta 1e-05 was spent in 8 leaf rounds; {start}"
    )
    assert at_end(config(), None, 1).startswith(
        "privacy: epsilon of 1 leaf round was not added up, because dp-accounting is not installed "
        "(pip install 'fedge[privacy]'); "
    )
    quiet = config(**{"privacy.noise-multiplier": 0.0})
    assert at_end(quiet, None, 3) == at_start(quiet, None)
    assert "nothing is promised" in at_start(quiet, None)
