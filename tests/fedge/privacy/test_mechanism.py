"""The arithmetic of private updates, by hand and against adversarial neighbours."""

import math

import dp_accounting
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedge.privacy.mechanism import (
    clip_scale,
    clipped,
    count_std,
    gaussian_log_delta,
    gaussian_multiplier,
    next_clip_norm,
    released_mean,
    update_multiplier,
)

SIZE = 4
MODEL = {"w": np.array([0.5, -0.25, 0.0]), "b": np.array([[2.0]]), "steps": np.array(7)}


def state(values, steps=9):
    """(4,) float64 → a model state; its step counter is what the client says."""
    return {"w": values[:3].copy(), "b": values[3:].reshape(1, 1).copy(), "steps": np.array(steps)}


def flat(model):
    return np.concatenate([model["w"], model["b"].ravel()])


def mean(states, clip_norm, asked, noise_std=0.0, seed=0):
    return released_mean(MODEL, states, clip_norm, asked, noise_std, np.random.default_rng(seed))


# --- clipping ---------------------------------------------------------------------------------------------


def test_clipping_by_hand():
    """(3, 0, 0, 4) has norm 5: divided by 5 for C = 1, as it is for C = 5 and 6; zero stays zero."""
    update = np.array([3.0, 0, 0, 4])
    for clip_norm, factor, was_clipped in ((1.0, 0.2, True), (5.0, 1.0, False), (6.0, 1.0, False)):
        sent, said = clipped(MODEL, state(flat(MODEL) + update), clip_norm)
        np.testing.assert_allclose(flat(sent) - flat(MODEL), factor * update, rtol=1e-12)
        assert said is was_clipped
    sent, said = clipped(MODEL, MODEL, 1.0)
    assert (flat(sent) == flat(MODEL)).all()
    assert said is False
    assert clip_scale(math.inf, 1.0) == 0.0


def test_counters_do_not_leave_a_client():
    """No noise covers what is not floating point."""
    trained = state(flat(MODEL) + 1, steps=99)
    assert clipped(MODEL, trained, 1.0)[0]["steps"] == 7
    assert mean([trained], 1.0, 1)[0]["steps"] == 7


# --- the mean ---------------------------------------------------------------------------------------------


def test_mean_by_hand():
    """Updates (3, 0, 0, 4) → a fifth of it and (0, 1, 0, 0) as it is, four asked: their sum over 4."""
    replies = [state(flat(MODEL) + np.array(u)) for u in ((3.0, 0, 0, 4), (0, 1.0, 0, 0))]
    released, norms = mean(replies, 1.0, 4)
    np.testing.assert_allclose(flat(released) - flat(MODEL), [0.15, 0.25, 0, 0.2], rtol=1e-12)
    assert norms == pytest.approx([5, 1])


def test_nobody_replies():
    """The noise alone is released: whether anybody replied cannot be read off."""
    released, norms = mean([], 1.0, 4, noise_std=1.0)
    assert norms == []
    assert (flat(released) != flat(MODEL)).all()


def test_inputs_are_not_modified_and_dtypes_stay():
    model = {name: array.astype(np.float32) for name, array in MODEL.items()}
    trained = {name: array + np.float32(1) for name, array in model.items()}
    before = [{n: a.copy() for n, a in s.items()} for s in (model, trained)]
    released, _ = released_mean(model, [trained], 1.0, 2, 0.5, np.random.default_rng(0))
    for is_, was in zip((model, trained), before, strict=True):
        assert all((is_[name] == was[name]).all() for name in was)
    assert {n: (a.shape, a.dtype) for n, a in released.items()} == {
        n: (a.shape, a.dtype) for n, a in model.items()
    }


def test_large_states_are_worked_on_in_parts():
    """2^20 + 3 and 5 numbers: the same as all at once."""
    model = {"a": np.zeros(2**20 + 3, np.float32), "b": np.ones(5, np.float32)}
    trained = {name: array + np.float32(1) for name, array in model.items()}
    released, norms = released_mean(model, [trained], 1.0, 2, 0.0, np.random.default_rng(0))
    assert norms == pytest.approx([math.sqrt(2**20 + 8)])
    for name, array in model.items():
        np.testing.assert_allclose(released[name], array + 0.5 / norms[0], rtol=1e-6)


# --- sensitivity ------------------------------------------------------------------------------------------

UPDATE = arrays(
    np.float64, SIZE, elements=st.floats(-1e30, 1e30, allow_subnormal=False) | st.floats(-2, 2)
)  # fmt: skip
# the worst neighbour: the longest updates, all along one line
EXTREME = st.sampled_from([np.array(u, float) for u in ((1e30, 0, 0, 0), (-1e30, 0, 0, 0), (0, 0, 0, 0))])
CLIP_NORMS = st.floats(1e-3, 1e3)


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(
    others=st.lists(UPDATE | EXTREME, max_size=5),
    one=UPDATE | EXTREME,
    instead=UPDATE | EXTREME,
    at=st.integers(0, 5),
    silent=st.integers(0, 3),
    clip_norm=CLIP_NORMS,
)
def test_one_client_moves_the_mean_by_at_most_what_is_claimed(others, one, instead, at, silent, clip_norm):
    """C / n if its reply is there or not, 2C / n if it is any other; n is all that were asked."""
    replies = [state(flat(MODEL) + update) for update in others]
    at = min(at, len(replies))
    asked = len(replies) + 1 + silent
    bound = clip_norm / asked * (1 + 1e-9) + 1e-14  # as far as float64 goes

    def released(update):
        there = [] if update is None else [state(flat(MODEL) + update)]
        return flat(mean([*replies[:at], *there, *replies[at:]], clip_norm, asked)[0])

    assert np.linalg.norm(released(one) - released(None)) <= bound
    assert np.linalg.norm(released(one) - released(instead)) <= 2 * bound


def test_the_claimed_sensitivity_is_reached():
    """It is not claimed too large: one long update against none, and against its opposite."""
    far = np.array([1e6, 0, 0, 0])
    none, plus, minus = (
        flat(mean([state(flat(MODEL) + u)] if u is not None else [], 3.0, 4)[0]) for u in (None, far, -far)
    )
    assert np.linalg.norm(plus - none) == pytest.approx(3 / 4)
    assert np.linalg.norm(plus - minus) == pytest.approx(2 * 3 / 4)


@settings(deadline=None, max_examples=200)
@given(
    asked=st.integers(1, 1000),
    share=st.floats(0.01, 0.99),
    clip_norm=CLIP_NORMS,
    norm=st.floats(0, 1e6),
)
def test_mean_and_count_together_are_worth_the_multiplier(asked, share, clip_norm, norm):
    """One client moves the sum by min(norm, C) and the count by ½: over their noises, at most 1/z in all.

    The sum's noise is z_Δ C, the count's σ_b = n/20, and z is any multiplier below 2 σ_b.
    """
    multiplier = share * asked / 10
    count_noise = count_std(asked, multiplier)
    of_mean = update_multiplier(multiplier, count_noise)
    moved = min(norm, clip_norm) / (of_mean * clip_norm)
    counted = 0.5 / count_noise
    assert math.hypot(moved, counted) <= 1 / multiplier * (1 + 1e-9)
    assert math.hypot(1 / of_mean, counted) == pytest.approx(1 / multiplier)


@given(
    bits=st.lists(st.booleans(), max_size=9),
    bit=st.booleans(),
    silent=st.integers(0, 3),
    quantile=st.floats(0, 1),
)
def test_one_client_moves_the_count_by_a_half(bits, bit, silent, quantile):
    """Read off log C⁺: η/n · ½ for a reply that is there or not, twice that for another one."""
    asked, lr = len(bits) + 1 + silent, 0.7

    def log_norm(all_bits):
        return math.log(next_clip_norm(1.0, all_bits, asked, 0.0, quantile, lr))

    there, not_there, other = log_norm([*bits, bit]), log_norm(bits), log_norm([*bits, not bit])
    assert abs(there - not_there) == pytest.approx(lr / asked / 2, abs=1e-12)
    assert abs(there - other) == pytest.approx(lr / asked, abs=1e-12)


# --- the adaptive norm ------------------------------------------------------------------------------------


def test_next_norm_by_hand():
    """Andrew et al. 2021: C exp(−η (b̃ − γ)).

    All of four clipped: b̃ = 0, so exp(0.2 · 0.5). None clipped: exp(−0.2 · 0.5). One clipped, one not, two
    silent: b̃ = ½, as it was. Noise of +4 on the count is a whole share.
    """
    cases = (
        ([False] * 4, 0.0, math.exp(0.1)),
        ([True] * 4, 0.0, math.exp(-0.1)),
        ([True, False], 0.0, 1.0),
        ([False] * 4, 4.0, math.exp(-0.1)),
    )
    for bits, noise, expected in cases:
        assert next_clip_norm(1.0, bits, 4, noise, 0.5, 0.2) == pytest.approx(expected)


def test_the_norm_stays_a_number():
    assert next_clip_norm(1.0, [False], 1, 0.0, 1.0, 1e300) == pytest.approx(1e30)
    assert next_clip_norm(1.0, [True], 1, 0.0, 0.0, 1e300) == pytest.approx(1e-30)


def test_without_noise_there_is_none():
    assert count_std(8, 0.0) == update_multiplier(0.0, 0.0) == 0.0


# --- calibration of one release ---------------------------------------------------------------------------


@pytest.mark.parametrize("multiplier", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_delta_is_the_integral(epsilon, multiplier):
    """δ = ∫ max(0, p(x) − e^ε p(x − 1)) dx for p the density of N(0, z²): the definition, numerically."""
    x, step = np.linspace(-60, 60, 1_200_001, retstep=True)
    here, there = (np.exp(-0.5 * ((x - at) / multiplier) ** 2) for at in (0, 1))
    density = np.maximum(0, here - math.exp(epsilon) * there) / (multiplier * math.sqrt(2 * math.pi))
    assert math.exp(gaussian_log_delta(epsilon, multiplier)) == pytest.approx(
        density.sum() * step, rel=1e-5, abs=1e-12
    )


@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.3])
@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 1.0, 8.0, 50.0])
def test_noise_of_one_release_is_that_of_the_library(epsilon, delta):
    found = gaussian_multiplier(epsilon, delta)
    assert found == pytest.approx(dp_accounting.get_sigma_gaussian(epsilon, delta), rel=1e-6)
    assert gaussian_log_delta(epsilon, found) <= math.log(delta)
    assert gaussian_log_delta(epsilon, found * 0.999) > math.log(delta)


@given(st.floats(0.01, 1.0), st.floats(1e-9, 0.1))
def test_the_classical_formula_is_never_less(epsilon, delta):
    """√(2 ln(1.25/δ)) / ε is enough for ε up to 1 (Dwork and Roth 2014, theorem A.1)."""
    assume(epsilon <= 1)
    assert gaussian_multiplier(epsilon, delta) <= math.sqrt(2 * math.log(1.25 / delta)) / epsilon
