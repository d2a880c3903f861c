"""Presets have the medians, means and shares that they say."""

import numpy as np
import pytest

from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import DEVICES
from fedge.devices.population.fleet import check_fleet
from fedge.devices.population.presets import (
    PHONES,
    equal,
    fedrevive,
    fedscale,
    half_normal,
    hhar_phones,
    lognormal,
)
from hhar.facts import DEVICES as PHONES_AND_WATCHES

MANY = np.zeros(20_000, np.int64)


def rng():
    return np.random.default_rng(1)


@pytest.mark.parametrize("name", [name for name in DEVICES.names if name != "trace"])
def test_every_preset_is_a_fleet_and_follows_from_its_stream(name):
    one, two = (DEVICES.load(name)(MANY[:9], rng()) for _ in range(2))
    check_fleet(one, 9, name)
    assert one.per_job_s.tolist() == two.per_job_s.tolist()
    assert one.per_window_s.tolist() == two.per_window_s.tolist()


def test_log_normal_has_its_median_and_spread():
    fleet = lognormal(MANY, rng(), seconds=0.1, sigma=0.5, megabytes=2.0)
    assert np.median(fleet.per_window_s) == pytest.approx(0.1, rel=0.03)
    assert np.log(fleet.per_window_s).std() == pytest.approx(0.5, rel=0.03)
    assert np.median(fleet.down) == pytest.approx(2e6, rel=0.03)
    assert fleet.up.tolist() == (fleet.down / 2).tolist()
    far = lognormal(MANY, rng(), seconds=0.1, delay=0.5)
    assert set(far.down_s) == set(far.up_s) == {0.5}
    assert set(fleet.down_s) == set(fleet.up_s) == {0.0}


def test_devices_of_a_user_share_a_factor():
    owner = np.array([0, 0, 1, 1])
    speed = lognormal(owner, rng(), sigma=0.0, user_sigma=1.0).per_window_s
    assert speed[0] == speed[1] != speed[2] == speed[3]


def test_fedrevive_has_its_three_means():
    fleet = fedrevive(MANY, rng())
    means, counts = np.unique(fleet.per_job_s, return_counts=True)
    assert means.tolist() == [1.0, 1.3, 1.6]
    assert counts / len(MANY) == pytest.approx([0.25, 0.5, 0.25], abs=0.02)
    assert fleet.noise == "exponential"
    assert set(fleet.up_s.tolist()) == {0.15, 0.25}


def test_hhar_phones_are_four_tiers_of_their_data_sheets():
    """4 × 1.5 GHz against 4 × 1.4, 2 × 1.0 and 1 × 1.4."""
    fleet = hhar_phones(MANY, rng(), seconds=0.1, megabytes=3.0)
    speeds, counts = np.unique(fleet.per_window_s, return_counts=True)
    assert speeds == pytest.approx([0.1, 0.1 * 6 / 5.6, 0.3, 0.1 * 6 / 1.4])
    assert counts / len(MANY) == pytest.approx([0.25] * 4, abs=0.02)
    assert (fleet.down[0], fleet.up[0]) == (3e6, 1.5e6)
    assert set(PHONES) <= {device.model for device in PHONES_AND_WATCHES.values()}


def test_fedscale_by_hand(tmp_path):
    """10 ms of inference: 30 ms per sample. 800 kbit/s: 100,000 bytes a second."""
    path = tmp_path / "capacity.csv"
    path.write_text("computation,communication\n10,800\n")
    fleet = fedscale(MANY[:3], rng(), path=str(path))
    assert fleet.per_window_s.tolist() == pytest.approx([0.03] * 3)
    assert fleet.down.tolist() == fleet.up.tolist() == [1e5] * 3
    drawn = fedscale(MANY, rng())
    assert np.median(drawn.per_window_s) == pytest.approx(0.005 * np.e, rel=0.03)
    assert np.log(drawn.per_window_s).std() == pytest.approx(0.6, rel=0.03)
    path.write_text("communication\n800\n")
    with pytest.raises(ConfigError, match=r"must have a column computation, but .* has none"):
        fedscale(MANY[:1], rng(), path=str(path))


def test_fedrevive_has_a_second_schedule():
    fleet = fedrevive(MANY, rng(), shifted=True)
    assert set(fleet.per_job_s) == {0.1}
    assert set(fleet.up_s) == {0.05, 0.1}
    assert set(fleet.down_s) == {0.02}


def test_durations_of_their_own():
    assert half_normal(MANY[:2], rng(), seconds=3.0).per_job_s.tolist() == [3.0, 3.0]
    assert half_normal(MANY[:2], rng()).noise == "half-normal"
    assert equal(MANY[:2], rng(), seconds=2.0).per_job_s.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("value", [-1.0, float("nan"), "much", True])
def test_what_is_no_size_is_refused(value):
    with pytest.raises(ConfigError, match=r"preset-args\.sigma must be a number of at least 0"):
        lognormal(MANY[:1], rng(), sigma=value)


@pytest.mark.parametrize(
    ("preset", "name"),
    [(lognormal, "megabytes"), (hhar_phones, "megabytes"), (fedscale, "kilobits")],
    ids=lambda part: getattr(part, "__name__", part),
)
def test_links_that_carry_nothing_are_refused(preset, name):
    with pytest.raises(ConfigError, match=rf"preset-args\.{name} must be above 0, but is 0; try"):
        preset(MANY[:1], rng(), **{name: 0})
