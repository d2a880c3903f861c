import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import (
    adjusted_rand_score,
    homogeneity_completeness_v_measure,
    normalized_mutual_info_score,
    rand_score,
)

from fedge.metrics.agreement import agreement, churn

PAIRS = st.integers(1, 12).flatmap(
    lambda n: st.tuples(*[st.lists(st.integers(0, 3), min_size=n, max_size=n)] * 2)
)


def test_the_truth_under_other_numbers():
    assert agreement([0, 0, 1, 1], [1, 1, 0, 0]) == agreement([0], [3])
    found = agreement([0, 0, 1, 1], [1, 1, 0, 0])
    assert (found.ari, found.nmi, found.homogeneity, found.completeness) == (1.0, 1.0, 1.0, 1.0)


def test_by_hand():
    """Groups {a b}{c d}, clusters {a b c}{d}: of 6 pairs 2 are joined in truth, 3 in clusters, 1 in both.

    Expected 2 · 3 / 6 = 1, largest (2 + 3)/2: ari (1 − 1)/(2.5 − 1) = 0. Mutual information
    ½ ln(½ / (½ · ¾)) + ¼ ln(¼ / (½ · ¾)) + ¼ ln(¼ / (½ · ¼)) = ½ ln 4/3 + ¼ ln 2/3 + ¼ ln 2.
    """
    found = agreement([0, 0, 1, 1], [0, 0, 0, 1])
    information = np.log(4 / 3) / 2 + np.log(2 / 3) / 4 + np.log(2) / 4
    clusters = -(3 / 4 * np.log(3 / 4) + 1 / 4 * np.log(1 / 4))
    assert found.ari == 0.0
    assert found.homogeneity == pytest.approx(information / np.log(2))
    assert found.completeness == pytest.approx(information / clusters)
    assert found.nmi == pytest.approx(information / ((np.log(2) + clusters) / 2))


def test_one_cluster_is_complete_and_says_nothing():
    found = agreement([0, 0, 1, 1], [0, 0, 0, 0])
    assert (found.ari, found.nmi, found.homogeneity, found.completeness) == (0.0, 0.0, 0.0, 1.0)


@given(PAIRS)
def test_against_scikit_learn(pair):
    truth, labels = pair
    found = agreement(truth, labels)
    assert found.ari == pytest.approx(adjusted_rand_score(truth, labels), abs=1e-12)
    assert found.nmi == pytest.approx(normalized_mutual_info_score(truth, labels), abs=1e-9)
    homogeneity, completeness, _ = homogeneity_completeness_v_measure(truth, labels)
    assert found.homogeneity == pytest.approx(homogeneity, abs=1e-9)
    assert found.completeness == pytest.approx(completeness, abs=1e-9)
    expected = 1 - rand_score(truth, labels) if len(truth) > 1 else 0.0
    assert churn(truth, labels) == pytest.approx(expected, abs=1e-12)


def test_churn_by_hand():
    """{a b}{c}{d} becomes {a}{b c}{d}: a and b part, b and c join: 2 of 6 pairs."""
    assert churn([0, 0, 1, 2], [0, 1, 1, 2]) == pytest.approx(2 / 6)
    assert churn(np.array([0, 1]), np.array([1, 0])) == 0.0
    assert churn([0], [0]) == 0.0
