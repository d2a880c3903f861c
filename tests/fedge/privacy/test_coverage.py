"""What a run says of its privacy."""

from dataclasses import fields

import pytest

from fedge.clustering.registry import method_named, sent_for
from fedge.config.flat import from_run_config
from fedge.config.parts import GROUPINGS
from fedge.config.sections.cluster import ClusterConfig
from fedge.privacy.coverage import (
    CLIPPED,
    LOSSES,
    MODELS,
    PLACES,
    QUANTITIES,
    Mark,
    at_end,
    at_start,
    not_covered,
    promise,
    quantity_of,
)

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
        ({"cluster.blend": "auto"}, "cluster.blend"),
        ({"personal.leaf-rounds": 1}, "personal.leaf-rounds"),
    ],
)
def test_each_leak_is_said_with_its_option(changes, said):
    first, *_, last = not_covered(config(**changes))
    assert f"({said})" in first
    assert last == not_covered(config())[0]


GROUPED = {"cluster.enabled": True, "cluster.method": "agglomerative", "cluster.count": "2"}


def test_what_clients_send_for_a_grouping_is_said_with_its_option():
    said = not_covered(config(**GROUPED), ["losses of anything"])
    assert "losses of anything, by which leaves are grouped (cluster.signal)" in said
    assert not any("grouped" in line for line in not_covered(config(**GROUPED)))


@pytest.mark.parametrize("name", list(GROUPINGS.names))
def test_a_method_that_asks_clients_for_something_is_said(name):
    """Of every method, by its needs alone: those that compare released models ask for nothing."""
    section = ClusterConfig.__new__(ClusterConfig)
    for field in fields(ClusterConfig):
        object.__setattr__(section, field.name, field.default)
    object.__setattr__(section, "method", name)
    needs = method_named(section).needs(section)
    assert bool(sent_for(section)) == bool(needs & {"cross-losses", "pool", "updates", "description"})


def test_a_method_of_a_user_is_asked_as_any_other():
    def own(evidence, config, before):
        return [0] * len(evidence.models)

    own.needs = {"description"}
    name = GROUPINGS.given(own)
    try:
        cluster = config(**{"cluster.enabled": True, "cluster.method": name}).cluster
        assert sent_for(cluster) == ("class-wise means and deviations of features",)
    finally:
        GROUPINGS.forget(name)


def test_what_decides_by_plain_numbers_is_said():
    assert any("(hierarchy.num-servers)" in line for line in not_covered(config(**GROUPED)))
    assert any("(guard.min-clients)" in line for line in not_covered(config(**{"guard.min-clients": 2})))
    assert any("(callbacks)" in line for line in not_covered(config(callbacks="early-stopping")))
    local = {"privacy.kind": "local", "leaf.strategy": "qfedavg"}
    assert any("(leaf.strategy)" in line for line in not_covered(config(**local)))


def test_every_entry_of_a_reply_is_marked():
    """By the end of its name; a new one without a mark is an error."""
    for entry in (
        "arrays",
        "num-examples",
        "own/val/sums/confusion",
        "offered/val/differences",
        "leaf-0/val/loss",
        "described/val/moments",
    ):
        assert quantity_of(entry) in QUANTITIES
    with pytest.raises(KeyError, match="without a mark"):
        quantity_of("a-new-entry")


def test_marks_follow_the_kind():
    assert MODELS.mark("local") is Mark.NOISED
    assert LOSSES.mark("local") is Mark.PLAIN
    assert CLIPPED.mark("client-adaptive") is Mark.NOISED
    assert CLIPPED.mark("client-fixed") is Mark.PLAIN
    assert PLACES.mark("local") is Mark.PUBLIC


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
