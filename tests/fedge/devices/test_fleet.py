"""How long a job takes, by hand; what cannot be a fleet is refused."""

from dataclasses import replace

import numpy as np
import pytest

from fedge.config.option import ConfigError
from fedge.devices.draws import Draw
from fedge.devices.fleet import Durations, Fleet, check_fleet, quickest_s, usual_s, watts_of, with_power

ONE = Fleet(
    np.array([0.5]), np.array([2.0]), np.array([100.0]), np.array([50.0]), np.array([0.1]), np.array([0.2])
)
DRAW = Draw(normal=-1.0, uniform=0.5, dropout=0.0, where=0.0)


def test_a_job_by_hand():
    """0.1 + 200/100 down, 2 + 0.5 · 4 training, 0.2 + 200/50 up: 10.3 s."""
    assert Durations(ONE).of(0, 4, 200, DRAW) == (2_100_000, 6_100_000, 10_300_000)


@pytest.mark.parametrize(
    ("noise", "sigma", "factor"),
    [("log-normal", 0.5, np.exp(-0.5)), ("exponential", 0.0, np.log(2)), ("half-normal", 0.0, 1.0)],
)
def test_noise_multiplies_training_alone(noise, sigma, factor):
    found = Durations(replace(ONE, noise=noise, sigma=sigma)).of(0, 4, 200, DRAW)
    assert found[2] == round((6.3 + 4.0 * factor) * 1e6)


def test_a_job_takes_a_microsecond_at_least():
    nothing = np.zeros(1)
    endless = np.array([np.inf])
    assert Durations(Fleet(nothing, nothing, endless, endless, nothing, nothing)).of(0, 9, 9, DRAW) == (
        0,
        0,
        1,
    )


def test_a_job_that_would_never_end_can_be_counted():
    assert Durations(replace(ONE, up=np.array([5e-324]))).of(0, 4, 200, DRAW)[2] == 10**18


def test_usual_and_quickest_jobs_by_hand():
    """6.3 s of transfers and 4 s of training, times √(2/π) on average and less than 0.00125 in 1 of 1,000."""
    half, windows = replace(ONE, noise="half-normal"), np.array([4])
    assert usual_s(half, windows, 200) == pytest.approx([6.3 + 4 * np.sqrt(2 / np.pi)])
    assert quickest_s(half, windows, 200) == pytest.approx([6.305])
    draws = np.exp(0.5 * np.random.default_rng(0).standard_normal(20_000))
    loud = replace(ONE, sigma=0.5)
    assert usual_s(loud, windows, 200) == pytest.approx([6.3 + 4 * draws.mean()], rel=0.005)
    assert quickest_s(loud, windows, 200) == pytest.approx([6.3 + 4 * np.quantile(draws, 0.001)], rel=0.01)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"down": np.array([0.0])}, "down above 0"),
        ({"per_window_s": np.array([-1.0])}, "per_window_s of 0"),
        ({"per_job_s": np.array([np.nan])}, "per_job_s of 0"),
        ({"up_s": np.array([1.0, 2.0])}, "each of 1 devices a up_s"),
        ({"down_s": np.array([1])}, "down_s"),
        ({"noise": "loud"}, "noise of log-normal, exponential, half-normal"),
        ({"train_watts": np.array([-1.0])}, "train_watts of 0"),
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
