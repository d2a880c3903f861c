"""How long a job takes, by hand; what cannot be a fleet is refused."""

from dataclasses import replace

import numpy as np
import pytest

from fedge.config.registers.option import ConfigError
from fedge.devices.population.draws import Draw
from fedge.devices.population.fleet import (
    Durations,
    Fleet,
    check_fleet,
    fast_job_s,
    mean_job_s,
    watts_of,
    with_power,
)

ONE = Fleet(
    np.array([0.5]), np.array([2.0]), np.array([100.0]), np.array([50.0]), np.array([0.1]), np.array([0.2])
)
DRAW = Draw(normal=-1.0, uniform=0.5, dropout=0.0, dropout_point=0.0)


def taken(fleet, windows, model_bytes, draw=DRAW):
    """Microseconds until a job of the first device has its model, is trained, and is back."""
    durations = Durations(fleet)
    return durations.job_times(0, model_bytes, durations.times(0, windows, draw))


def test_a_job_by_hand():
    """0.1 + 200/100 down, 2 + 0.5 · 4 training, 0.2 + 200/50 up: 10.3 s."""
    assert taken(ONE, 4, 200) == (2_100_000, 6_100_000, 10_300_000)


def test_what_is_sent_back_can_be_others_bytes():
    """4 s less on the way up, of 200/50; 1 s for 50 bytes."""
    durations = Durations(ONE)
    found = durations.job_times(0, 200, durations.times(0, 4, DRAW), up_bytes=50)
    assert found == (2_100_000, 6_100_000, 7_300_000)


@pytest.mark.parametrize(
    ("noise", "sigma", "factor"),
    [("log-normal", 0.5, np.exp(-0.5)), ("exponential", 0.0, np.log(2)), ("half-normal", 0.0, 1.0)],
)
def test_noise_multiplies_training_alone(noise, sigma, factor):
    found = taken(replace(ONE, noise=noise, sigma=sigma), 4, 200)
    assert found[2] == round((6.3 + 4.0 * factor) * 1e6)


def test_normal_noise_is_added_and_nothing_falls_below_zero():
    """z = −1 and z' = Φ⁻¹(0.8413447) = 1: 4 − 1.5 s of training, 0.2 + 0.3 s of delay."""
    draw = DRAW._replace(uniform=0.8413447460685429)
    fleet = replace(ONE, noise="normal", sd=np.array([1.5]), delay_sd=np.array([0.3]))
    assert taken(fleet, 4, 200, draw) == (2_100_000, 4_600_000, 9_100_000)
    assert taken(replace(fleet, sd=np.array([9.0])), 4, 200, draw) == (2_100_000, 2_100_000, 6_600_000)
    assert taken(fleet, 4, 200, DRAW._replace(uniform=0.0))[2] == 2_100_000 + 2_500_000 + 4_000_000
    assert taken(replace(ONE, noise="normal"), 4, 200) == (2_100_000, 6_100_000, 10_300_000)


def test_usual_and_quickest_of_normal_noise():
    """Means above 0: 4 s hardly cut at sd 1; 0.2 s of sd 0.3 as samples have it; 3.09 deviations below."""
    fleet = replace(ONE, noise="normal", sd=np.array([1.0]), delay_sd=np.array([0.3]))
    delays = np.maximum(0, 0.2 + 0.3 * np.random.default_rng(0).standard_normal(200_000)).mean()
    assert mean_job_s(fleet, np.array([4]), 200) == pytest.approx([6.1 + 4 + delays], rel=1e-3)
    assert fast_job_s(fleet, np.array([4]), 200) == pytest.approx([6.1 + 0.91])


def test_a_job_takes_a_microsecond_at_least():
    nothing = np.zeros(1)
    endless = np.array([np.inf])
    assert taken(Fleet(nothing, nothing, endless, endless, nothing, nothing), 9, 9) == (0, 0, 1)


def test_a_job_that_would_never_end_can_be_counted():
    assert taken(replace(ONE, up=np.array([5e-324])), 4, 200)[2] == 10**18


def test_usual_and_quickest_jobs_by_hand():
    """6.3 s of transfers and 4 s of training, times √(2/π) on average and less than 0.00125 in 1 of 1,000."""
    half, windows = replace(ONE, noise="half-normal"), np.array([4])
    assert mean_job_s(half, windows, 200) == pytest.approx([6.3 + 4 * np.sqrt(2 / np.pi)])
    assert fast_job_s(half, windows, 200) == pytest.approx([6.305])
    draws = np.exp(0.5 * np.random.default_rng(0).standard_normal(20_000))
    loud = replace(ONE, sigma=0.5)
    assert mean_job_s(loud, windows, 200) == pytest.approx([6.3 + 4 * draws.mean()], rel=0.005)
    assert fast_job_s(loud, windows, 200) == pytest.approx([6.3 + 4 * np.quantile(draws, 0.001)], rel=0.01)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"down": np.array([0.0])}, "down above 0"),
        ({"per_window_s": np.array([-1.0])}, "per_window_s of 0"),
        ({"per_job_s": np.array([np.nan])}, "per_job_s of 0"),
        ({"up_s": np.array([1.0, 2.0])}, "each of 1 devices a up_s"),
        ({"down_s": np.array([1])}, "down_s"),
        ({"noise": "loud"}, "noise of log-normal, exponential, half-normal, normal"),
        ({"train_watts": np.array([-1.0])}, "train_watts of 0"),
        ({"sd": np.array([-1.0])}, "sd of 0"),
        ({"delay_sd": np.array([1.0, 2.0])}, "each of 1 devices a delay_sd"),
        ({"sigma": -1.0}, "sigma of 0 to 10"),
    ],
)
def test_what_cannot_be_is_refused(change, words):
    assert check_fleet(ONE, 1, "it") is ONE
    with pytest.raises(ConfigError, match=words):
        check_fleet(replace(ONE, **change), 1, "it")


def test_jobs_without_any_time_are_refused():
    nothing, endless = np.zeros(2), np.array([100.0, np.inf])
    with pytest.raises(
        ConfigError, match="it must make every job take time, but those of device 1 take none"
    ):
        check_fleet(Fleet(nothing, nothing, endless, endless, nothing, nothing), 2, "it")


def test_what_is_no_fleet_is_refused():
    with pytest.raises(ConfigError, match=r"must return a fedge\.devices\.Fleet"):
        check_fleet([1.0], 1, "it")


def test_power_is_that_of_the_preset_or_of_an_option():
    assert watts_of(ONE) is None
    train, radio = watts_of(with_power(replace(ONE, train_watts=np.array([3.0])), 5.0, 2.0))
    assert (train, radio) == (3.0, 2.0)
    assert watts_of(with_power(ONE, 0.0, 2.0))[0] == 0.0
    assert with_power(ONE, 0.0, 0.0) is ONE
