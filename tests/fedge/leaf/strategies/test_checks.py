import numpy as np
from any_states import states
from hypothesis import given
from hypothesis import strategies as st

from fedge.leaf.strategies.aggregation import Contribution
from fedge.leaf.strategies.checks import NormHistory, finite_mean, first_not_finite
from fedge.states.averaging import weighted_mean


def brought(states, weights):
    """Contributions of children from child → state and child → weight."""
    return [Contribution(child, state, weights[child], version=0) for child, state in states.items()]


@given(states(), st.data())
def test_one_number_that_is_none_is_found_anywhere(state, data):
    """Property: finite states pass; a NaN or infinity at any place costs only the state that has it."""
    assert finite_mean(brought({1: state, 2: state}, {1: 1.0, 2: 5.0}))[1] == {}
    spoilt = [n for n, a in state.items() if a.size and np.issubdtype(a.dtype, np.floating)]
    if not spoilt:
        return
    name = data.draw(st.sampled_from(spoilt))
    bad = {n: a.copy() for n, a in state.items()}
    where = data.draw(st.integers(0, bad[name].size - 1))
    bad[name].reshape(-1)[where] = data.draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    assert first_not_finite(bad) == name
    others = {1: state, 5: {n: -a for n, a in state.items()}}
    mean, refused = finite_mean(brought({1: state, 3: bad, 5: others[5]}, {1: 2.0, 3: 1.0, 5: 3.0}))
    assert {c: str(r) for c, r in refused.items()} == {3: f"rejected: not finite (entry {name!r})"}
    expected = weighted_mean([others[1], others[5]], [2.0, 3.0])
    assert {n: a.tobytes() for n, a in mean.items()} == {n: a.tobytes() for n, a in expected.items()}


def test_infinities_that_cancel_are_found():
    """inf and −inf at one place make NaN; both clients are named, and without any other there is no mean."""
    states = {0: {"a": np.array([np.inf], np.float32)}, 1: {"a": np.array([-np.inf], np.float32)}}
    mean, refused = finite_mean(brought(states, {0: 1.0, 1: 1.0}))
    assert mean is None
    assert set(refused) == {0, 1}
    assert finite_mean([]) == (None, {})


def test_a_bad_number_far_into_a_large_entry_is_found():
    """Entries are looked through in parts of 2^20."""
    large = np.zeros(2**21 + 7, np.float32)
    assert first_not_finite({"a": np.zeros(3, np.float32), "b": large}) is None
    large[-1] = np.nan
    assert first_not_finite({"a": np.zeros(3, np.float32), "b": large}) == "b"


# --- the size of updates --------------------------------------------------------------------------------


def test_updates_far_above_the_median_by_hand():
    """Median of 1, 2, 3, 100 is 2.5; with factor 3 the limit is 7.5. The history takes in the others only."""
    history = NormHistory(4)
    refused = history.too_large({0: 1.0, 1: 2.0, 2: 3.0, 3: 100.0}, 3.0)
    assert {c: str(r) for c, r in refused.items()} == {
        3: "rejected: update too large (norm 100, the leaf's median is 2.5)"
    }
    assert list(history.norms) == [1.0, 2.0, 3.0]
    # median of 1, 2, 3, 6.1: 2.5 again; alone, client 3 would have been the median itself
    assert not history.too_large({3: 6.1}, 3.0)
    assert list(history.norms) == [1.0, 2.0, 3.0, 6.1]


def test_factor_zero_lets_all_pass_and_remembers_nothing():
    history = NormHistory(2)
    assert not history.too_large({0: 1.0, 1: 1e300}, 0.0)
    assert not history.norms


def test_infinite_norms_are_refused_even_alone():
    assert set(NormHistory(1).too_large({0: float("inf")}, 2.0)) == {0}
    assert set(NormHistory(3).too_large({0: float("inf"), 1: float("inf"), 2: 1.0}, 2.0)) == {0, 1}


def test_a_leaf_that_stands_still_refuses_nobody():
    """A median of zero says nothing about how large an update may be."""
    assert not NormHistory(3).too_large({0: 0.0, 1: 0.0, 2: 1.0}, 5.0)


@given(
    st.lists(st.floats(0.5, 2), min_size=3, max_size=9),
    st.floats(1e3, 1e30) | st.just(float("inf")),
    st.randoms(use_true_random=False),
)
def test_a_minority_cannot_move_the_limit(honest, attack, random):
    """Property: whatever fewer than half of the clients send, in any order and for many rounds, only they
    are refused (honest norms lie within a factor of 4, the limit is 5 times the median).
    """
    bad = (len(honest) - 1) // 2
    norms = [*honest, *[attack] * bad]
    clients = list(range(len(norms)))
    random.shuffle(clients)
    history = NormHistory(len(norms))
    for _ in range(12):
        refused = history.too_large(dict(zip(clients, norms, strict=True)), 5.0)
        assert set(refused) == set(clients[len(honest) :])
    assert len(history.norms) <= 10 * len(norms)
