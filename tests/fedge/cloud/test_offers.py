import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.cloud.offers import GRID, blends_of, make_offers, mix, with_own_entries
from fedge.states.averaging import weighted_mean


def state(body, head=0.0, count=0):
    """A model of two entries and a BatchNorm counter."""
    return {
        "body": np.array([body], np.float32),
        "head": np.array([head], np.float32),
        "norm.count": np.array(count),
    }


def bodies(offers):
    """Offers by role: λ and the body."""
    return [{role: (o.blend, float(o.model["body"][0])) for role, o in mine.items()} for mine in offers]


# leaves 0 and 1 are one cluster, leaf 2 is alone; weights 1, 3 and 4
OWN = [state(0, 1, 1), state(8, 2, 2), state(20, 3, 3)]
CLUSTER = weighted_mean(OWN[:2], [1, 3])
CLUSTERS = [CLUSTER, CLUSTER, None]
WEIGHTS = [1, 3, 4]


@pytest.mark.parametrize(
    ("blend", "offered"),
    [
        (1.0, [{"offered": (1.0, 6.0)}] * 2 + [{}]),
        (0.0, [{"offered": (0.0, 13.0)}] * 3),
        (0.5, [{"offered": (0.5, 9.5)}] * 2 + [{"offered": (0.5, 16.5)}]),
    ],
)
def test_by_hand(blend, offered):
    """Cluster model (1·0 + 3·8)/4 = 6; global model (1·0 + 3·8 + 4·20)/8 = 13.

    Half of each: (6 + 13)/2 = 9.5; for leaf 2, which is its own cluster, (20 + 13)/2 = 16.5.
    """
    assert bodies(make_offers(OWN, CLUSTERS, WEIGHTS, blends_of(blend))) == offered


def test_a_grid_by_hand():
    """λ = 0.25: (6 + 3·13)/4 = 11.25 and (20 + 39)/4 = 14.75; a leaf alone is not offered its own model."""
    offers = make_offers(OWN, CLUSTERS, WEIGHTS, blends_of("auto"))
    cluster = {0: 13.0, 0.25: 11.25, 0.5: 9.5, 0.75: 7.75, 1: 6.0}
    alone = {0: 13.0, 0.25: 14.75, 0.5: 16.5, 0.75: 18.25}
    expected = [
        {f"offered-{b:g}": (b, body) for b, body in line.items()} for line in (cluster, cluster, alone)
    ]
    assert bodies(offers) == expected
    assert offers[0]["offered-0.5"].model is offers[1]["offered-0.5"].model
    assert offers[0]["offered-0"].model is offers[2]["offered-0"].model
    assert offers[0]["offered-1"].model is CLUSTER


@pytest.mark.parametrize("blend", ["auto", 0.0, 0.5, 1.0])
def test_one_cluster_is_offered_once_whatever_is_blended(blend):
    whole = weighted_mean(OWN, WEIGHTS)
    for mine in make_offers(OWN, [whole] * 3, WEIGHTS, blends_of(blend)):
        assert list(mine) == ["offered"]
        assert mine["offered"].blend == 1
        assert mine["offered"].model is whole
    assert make_offers(OWN[:1], [None], [1], blends_of(blend)) == [{}]


def test_leaves_that_are_all_alone_may_still_share():
    """tau above 1 and λ = 0.5: leaf 1 is offered (8 + 13)/2 = 10.5."""
    offers = make_offers(OWN, [None] * 3, WEIGHTS, (0.5,))
    assert bodies(offers)[1] == {"offered": (0.5, 10.5)}
    assert make_offers(OWN, [None] * 3, WEIGHTS, (1.0,)) == [{}, {}, {}]


def test_a_leaf_keeps_its_own_entries():
    """Head and counter are each leaf's own, the body is the cluster's; the arrays are not copied."""
    offers = make_offers(OWN, CLUSTERS, WEIGHTS, (1.0,), ["head", "norm.count"])
    for own, mine in zip(OWN[:2], offers[:2], strict=True):
        model = mine["offered"].model
        assert list(model) == list(own)
        assert model["body"] is CLUSTER["body"]
        assert model["head"] is own["head"]
        assert model["norm.count"] is own["norm.count"]
    assert with_own_entries(CLUSTER, OWN[0], ()) is CLUSTER


@given(st.lists(st.integers(-50, 50), min_size=2, max_size=5), st.sampled_from(GRID))
def test_a_mix_lies_between(values, blend):
    one, other = state(values[0]), state(values[1])
    body = float(mix(one, other, blend)["body"][0])
    assert body == blend * values[0] + (1 - blend) * values[1]
    assert mix(one, other, 1.0) is one
    assert mix(one, other, 0.0) is other
    assert mix(one, other, blend)["body"].dtype == np.float32


@given(st.lists(st.integers(1, 99), min_size=2, max_size=4))
def test_the_global_model_weighs_by_windows(weights):
    """λ = 0 is the mean of all leaves, whoever is clustered with whom."""
    own = [state(10 * i) for i in range(len(weights))]
    (first, *_) = make_offers(own, [None] * len(own), weights, (0.0,))
    expected = np.average([10.0 * i for i in range(len(own))], weights=weights)
    assert first["offered"].model["body"][0] == pytest.approx(expected, rel=1e-6)
