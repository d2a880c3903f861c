"""Groups of leaves that share a model: when and how leaves are compared; refused where rounds are needed."""

import numpy as np
import pytest
from virtual_world import config_of

from fedge.clustering.likeness.evidence import Answers
from fedge.clustering.likeness.updates import Likeness
from fedge.config.registers.option import ConfigError
from fedge.devices.tiers.groups import ClockGroups, refuse_methods_of_rounds

STATES = [{"head.weight": np.array([[1.0, 0.0]])}, {"head.weight": np.array([[0.0, 1.0]])}] * 2


def groups(**changes):
    given = {"cluster__enabled": True, "cluster__method": "agglomerative", "cluster__count": "2"}
    config = config_of(hierarchy__num_servers=4, **{**given, **changes})
    return ClockGroups(config, ["head.weight"], seed=1)


def test_they_are_what_was_said():
    config = config_of(hierarchy__num_servers=3, asynchrony__groups="1,0,1")
    said = ClockGroups(config, ["w"], seed=1)
    assert said.labels.tolist() == [0, 1, 0]
    assert not said.is_due(1)
    assert not said.asks_losses


def test_they_are_found_by_models_after_as_many_comparisons_as_it_takes():
    found = groups(cluster__start_round=2, cluster__every=3, cluster__patience=2)
    assert [n for n in range(1, 9) if found.is_due(n)] == [2, 5, 8]
    assert not found.asks_losses
    first = found.compare(STATES, [1.0] * 4, None, 2)
    assert first.labels.tolist() == [0, 0, 0, 0]
    again = groups(cluster__patience=2)
    again.restore(found.facts())
    second = again.compare(STATES, [1.0] * 4, None, 5)
    assert second.labels.tolist() == again.labels.tolist() == [0, 1, 0, 1]
    assert second.facts["events"] == [{"kind": "split", "before": [[0, 1, 2, 3]], "after": [[0, 2], [1, 3]]}]


def test_they_are_found_by_losses():
    found = groups(cluster__signal="cross-loss")
    assert found.asks_losses
    losses = {f"leaf-{i}": np.array([0.1 if i % 2 == j % 2 else 2.0 for j in range(4)]) for i in range(4)}
    answers = Answers(losses, np.full(4, 9), np.arange(4), 77)
    step = found.compare(STATES, [1.0] * 4, answers, 1)
    assert step.labels.tolist() == [0, 1, 0, 1]
    assert step.facts["exchange_bytes"] == 77


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        ({"cluster__signal": "update"}, "needs starts"),
        ({"cluster__method": "ifca", "cluster__count": "2"}, "needs pool"),
        ({"cluster__method": "cfl", "cluster__count": "threshold"}, r"cfl .* needs "),
    ],
)
def test_what_needs_rounds_is_refused(cluster, words):
    config = config_of(
        hierarchy__num_servers=4, cluster__enabled=True, **{"cluster__method": "agglomerative", **cluster}
    )
    with pytest.raises(ConfigError, match=words):
        refuse_methods_of_rounds(config.cluster)


def test_the_deal_test_needs_no_rounds():
    """It asks for one probe, and is made once; where nobody answers it is made at the next comparison."""
    auto = {"cluster__signal": "affinity", "cluster__count": "auto", "cluster__patience": 2}
    found = groups(**auto)
    refuse_methods_of_rounds(config_of(
        hierarchy__num_servers=4, cluster__enabled=True, cluster__method="agglomerative", **auto
    ).cluster)  # fmt: skip
    assert (found.asks_updates, found.asks_losses, found.is_due(1)) == (True, False, True)
    assert found.test(None, 1, 9).facts == {
        "probe": True, "exchange_bytes": 9, "skipped": "no device has answered"
    }  # fmt: skip
    assert found.is_due(2)
    leaf_of = np.repeat(np.arange(4), 5)
    alike = np.where(np.equal.outer(leaf_of == 3, leaf_of == 3), 0.9, 0.1)
    step = found.test(Likeness(alike[None], leaf_of, 2), 2, 9)
    assert step.labels.tolist() == found.labels.tolist() == [0, 0, 0, 1]
    again = groups(**auto)
    again.restore(found.facts())
    assert not again.is_due(3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"asynchrony__groups": "0,1,0,1"}, "groups are either given or found"),
        ({"cluster__blend": 0.5}, r"needs cluster\.blend=1\.0"),
        ({"hierarchy__num_servers": 1}, "cannot be compared with others"),
        ({"asynchrony__cloud_rule_args": '{"buffer": 2}'}, "at most the smallest group"),
    ],
)
def test_what_cannot_be_together_is_refused(changes, words):
    given = {"hierarchy__num_servers": 4, "cluster__enabled": True, "cluster__count": "threshold", **changes}
    with pytest.raises(ConfigError, match=words):
        config_of(**given)
