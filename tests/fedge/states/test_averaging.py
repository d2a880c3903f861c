import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedge.states.averaging import weighted_mean

FLOATS = hnp.arrays(np.float32, (3, 2), elements=st.floats(-1000, 1000, width=32))
WEIGHTS = st.floats(0.001, 1000)


@st.composite
def weighted_states(draw, min_size=1):
    """Draw K states of two entries, and their weights."""
    count = draw(st.integers(min_size, 5))
    states = [{"a": draw(FLOATS), "b": draw(FLOATS)[0]} for _ in range(count)]
    return states, [draw(WEIGHTS) for _ in range(count)]


def same_bits(one, other):
    return one.keys() == other.keys() and all(
        one[n].dtype == other[n].dtype
        and one[n].shape == other[n].shape
        and one[n].tobytes() == other[n].tobytes()
        for n in one
    )


def test_by_hand():
    """Weights 1 and 3: (1·[0, 4] + 3·[8, 0]) / 4 = [6, 1]."""
    states = [{"w": np.array([0.0, 4.0])}, {"w": np.array([8.0, 0.0])}]
    assert weighted_mean(states, [1, 3])["w"].tolist() == [6.0, 1.0]


def test_counters_are_copied_from_the_first():
    states = [{"n": np.array(n), "w": np.float32(n) * np.ones(2, np.float32)} for n in (4, 8)]
    mean = weighted_mean(states, [1, 1])
    assert mean["n"].tolist() == 4
    assert mean["n"].dtype == states[0]["n"].dtype
    assert mean["n"].shape == ()
    assert mean["n"] is not states[0]["n"]
    assert mean["w"].tolist() == [6.0, 6.0]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
def test_dtypes_and_shapes_stay(dtype, shape):
    mean = weighted_mean([{"w": np.ones(shape, dtype)}, {"w": np.zeros(shape, dtype)}], [1, 1])["w"]
    assert isinstance(mean, np.ndarray)
    assert (mean.dtype, mean.shape) == (dtype, shape)
    assert (mean == 0.5).all()


def test_the_sum_is_kept_in_float64():
    """In float32, 2²⁴ + 1 is 2²⁴: the two ones would be lost; in float64, (2²⁴ + 1 + 1) / 3 is not."""
    states = [{"w": np.array([v], np.float32)} for v in (2.0**24, 1.0, 1.0)]
    expected = np.float32((2.0**24 + 2) / 3)
    assert weighted_mean(states, [1, 1, 1])["w"][0] == expected
    assert np.float32(2.0**24) + np.float32(1) + np.float32(1) == np.float32(2.0**24)


@given(weighted_states())
def test_equal_input_gives_equal_bits_and_is_left_alone(case):
    states, weights = case
    copies = [{n: a.copy() for n, a in s.items()} for s in states]
    assert same_bits(weighted_mean(states, weights), weighted_mean(copies, weights))
    assert all(same_bits(s, c) for s, c in zip(states, copies, strict=True))


@given(weighted_states(min_size=2), st.randoms(use_true_random=False))
def test_order_matters_at_most_in_the_last_bits(case, rng):
    states, weights = case
    order = list(range(len(states)))
    rng.shuffle(order)
    mean, shuffled = (
        weighted_mean(states, weights),
        weighted_mean([states[i] for i in order], [weights[i] for i in order]),
    )
    for name in mean:
        np.testing.assert_allclose(mean[name], shuffled[name], rtol=1e-6, atol=1e-3 * 1e-6)


@given(weighted_states(), st.integers(-8, 8), st.floats(0.1, 1000))
def test_the_scale_of_the_weights_does_not_matter(case, power, factor):
    states, weights = case
    mean = weighted_mean(states, weights)
    assert same_bits(mean, weighted_mean(states, [w * 2.0**power for w in weights]))
    scaled = weighted_mean(states, [w * factor for w in weights])
    for name in mean:
        np.testing.assert_allclose(mean[name], scaled[name], rtol=1e-6, atol=1e-9)


@given(FLOATS, WEIGHTS)
def test_a_single_state_is_its_own_mean(array, weight):
    state = {"w": array, "zero": np.array([-0.0, 0.0], np.float32)}
    assert same_bits(weighted_mean([state], [weight]), state)


@given(weighted_states())
def test_the_mean_lies_between(case):
    states, weights = case
    mean = weighted_mean(states, weights)
    for name in mean:
        stack = np.stack([s[name] for s in states])
        assert (mean[name] >= stack.min(axis=0) - 1e-3).all()
        assert (mean[name] <= stack.max(axis=0) + 1e-3).all()


def test_a_weight_of_zero_takes_no_part():
    states = [{"w": np.array([1.0])}, {"w": np.array([7.0])}]
    assert weighted_mean(states, [0, 5])["w"].tolist() == [7.0]


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("weights", [[0, 0], [-1, 2], [float("nan"), 1], [float("inf"), 1], [1e308, 1e308]])
def test_weights_must_sum_to_something(weights):
    states = [{"w": np.zeros(1)}, {"w": np.ones(1)}]
    with pytest.raises(ValueError, match="weights must be non-negative with a positive finite sum"):
        weighted_mean(states, weights)


def test_what_does_not_fit_together_is_refused():
    one = {"w": np.zeros(2, np.float32)}
    with pytest.raises(ValueError, match="at least one state, got 0 states"):
        weighted_mean([], [])
    with pytest.raises(ValueError, match="got 1 states, 2 weights"):
        weighted_mean([one], [1, 2])
    with pytest.raises(ValueError, match=r"state 1 has other entries than state 0: \['v', 'w'\]"):
        weighted_mean([one, {"v": np.zeros(2)}], [1, 1])
    with pytest.raises(ValueError, match=r"entry 'w' has different shapes or dtypes"):
        weighted_mean([one, {"w": np.zeros(3, np.float32)}], [1, 1])
    with pytest.raises(ValueError, match="float64"):
        weighted_mean([one, {"w": np.zeros(2)}], [1, 1])
