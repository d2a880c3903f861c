"""How long a job takes, by hand; what cannot be a fleet is refused."""

from dataclasses import replace

import numpy as np
import pytest

from fedge.config.option import ConfigError
from fedge.devices.draws import Draw
from fedge.devices.fleet import Durations, Fleet, check_fleet

ONE = Fleet(
    np.array([0.5]), np.array([2.0]), np.array([100.0]), np.array([50.0]), np.array([0.1]), np.array([0.2])
)
DRAW = Draw(normal=-1.0, uniform=0.5, dropout=0.0, where=0.0)


def test_a_job_by_hand():
    """0.1 + 200/100 down, 2 + 0.5 · 4 training, 0.2 + 200/50 up: 10.3 s."""
    assert Durations(ONE).us(0, 4, 200, DRAW) == 10_300_000


@pytest.mark.parametrize(
    ("noise", "sigma", "factor"),
    [("log-normal", 0.5, np.exp(-0.5)), ("exponential", 0.0, np.log(2)), ("half-normal", 0.0, 1.0)],
)
def test_noise_multiplies_training_alone(noise, sigma, factor):
    found = Durations(replace(ONE, noise=noise, sigma=sigma)).us(0, 4, 200, DRAW)
    assert found == round((6.3 + 4.0 * factor) * 1e6)


def test_a_job_takes_a_microsecond_at_least():
    nothing = np.zeros(1)
    endless = np.array([np.inf])
    assert Durations(Fleet(nothing, nothing, endless, endless, nothing, nothing)).us(0, 9, 9, DRAW) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"down": np.array([0.0])}, "down above 0"),
        ({"per_window_s": np.array([-1.0])}, "per_window_s of 0"),
        ({"per_job_s": np.array([np.nan])}, "per_job_s of 0"),
        ({"up_s": np.array([1.0, 2.0])}, "each of 1 devices a up_s"),
        ({"down_s": np.array([1])}, "down_s"),
        ({"noise": "loud"}, "noise of log-normal, exponential, half-normal"),
        ({"sigma": -1.0}, "sigma of 0 to 10"),
    ],
)
def test_what_cannot_be_is_refused(change, words):
    assert check_fleet(ONE, 1, "it") is ONE
    with pytest.raises(ConfigError, match=words):
        check_fleet(replace(ONE, **change), 1, "it")


def test_what_is_no_fleet_is_refused():
    with pytest.raises(ConfigError, match=r"must return a fedge\.devices\.Fleet"):
        check_fleet([1.0], 1, "it")
