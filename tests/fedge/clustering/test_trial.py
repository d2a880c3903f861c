"""Trials of proposed groups."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.clustering.evidence import Answers
from fedge.clustering.trial import PRESENT, PROPOSED, gain_of, others, questions

MODELS = [{"w": np.array([float(4**leaf)], np.float32)} for leaf in range(4)]  # 1, 4, 16, 64
NAN = float("nan")


def values(asked):
    return [{role: float(model["w"][0]) for role, model in roles.items()} for roles in asked]


FORKS = [{"w": np.array([float(leaf)], np.float32)} for leaf in range(4)]


def test_by_hand():
    """{0 1 2 3} into {0 1} and {2 3}, weights 1, 2, 1, 1. Leaf 0 compares leaf 1's fork with the mean of the
    models 4, 16, 64 by weights 2, 1, 1: 88 / 4 = 22.
    """
    asked = values(questions(np.array([0, 0, 1, 1]), np.zeros(4, int), FORKS, MODELS, [1, 2, 1, 1]))
    assert asked[0] == {PROPOSED: 1.0, PRESENT: 22.0}
    assert asked[1] == {PROPOSED: 0.0, PRESENT: pytest.approx((1 + 16 + 64) / 3)}
    assert asked[2] == {PROPOSED: 3.0, PRESENT: pytest.approx((1 + 8 + 64) / 4)}
    assert asked[3] == {PROPOSED: 2.0, PRESENT: pytest.approx((1 + 8 + 16) / 4)}


def test_who_is_not_asked():
    """Leaf 2 would be alone, which is no model of strangers; leaves 0 and 1 compare two others with one.
    Leaf 3 is alone now.
    """
    forks = [*FORKS[:2], None, FORKS[3]]
    asked = questions(np.array([0, 0, 1, 0]), np.array([0, 0, 0, 1]), forks, MODELS, [1] * 4)
    assert [sorted(roles) for roles in asked] == [[PRESENT, PROPOSED], [PRESENT, PROPOSED], [], []]
    same = questions(np.array([0, 0, 1, 1]), np.array([0, 0, 1, 1]), FORKS, MODELS, [1] * 4)
    assert same == [{}, {}, {}, {}]


def answers(present, proposed):
    count = len(present)
    return Answers(
        {PRESENT: np.array(present), PROPOSED: np.array(proposed)}, np.full(count, 9), np.arange(count)
    )


def test_gain_by_hand():
    """Losses fall by ln 2, rise by ln 2, fall by ln 4; the fourth client has not answered: mean ln 4 / 3."""
    found = gain_of(answers([2.0, 1.0, 4.0, 1.0], [1.0, 2.0, 1.0, NAN]))
    assert found is not None
    assert found.gain == pytest.approx(np.log(4) / 3)
    assert (found.better, found.clients) == (pytest.approx(2 / 3), 3)


def test_no_answer_is_no_gain():
    assert gain_of(answers([NAN, 1.0], [1.0, NAN])) is None
    assert gain_of(Answers({PRESENT: np.ones(2)}, np.ones(2), np.arange(2))) is None


@given(st.lists(st.integers(0, 3), min_size=1, max_size=7), st.data())
def test_others_are_the_cluster_without_the_leaf(labels, data):
    leaf = data.draw(st.integers(0, len(labels) - 1))
    found = others(np.array(labels), leaf)
    assert leaf not in found
    assert {*found, leaf} == {at for at, label in enumerate(labels) if label == labels[leaf]}
