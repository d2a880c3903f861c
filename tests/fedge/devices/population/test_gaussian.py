"""Types of devices with normal times: by hand, by their moments, and what cannot be a type."""

import numpy as np
import pytest

from fedge.config.registers.option import ConfigError
from fedge.devices.population.draws import JobDraws
from fedge.devices.population.fleet import Durations, check_fleet
from fedge.devices.population.gaussian import gaussian


def fleet_of(count, **types):
    made = gaussian(np.zeros(count, np.int64), np.random.default_rng(3), types or None)
    return check_fleet(made, count, "gaussian")


def test_types_are_dealt_by_their_shares():
    found = fleet_of(4000, phone={"share": 3, "seconds": 2.0}, watch={"seconds": 5.0, "seconds-sd": 0.5})
    assert set(found.per_job_s) == {2.0, 5.0}
    assert (found.per_job_s == 2.0).mean() == pytest.approx(0.75, abs=0.02)
    assert set(zip(found.per_job_s, found.sd, strict=True)) == {(2.0, 0.0), (5.0, 0.5)}


def test_three_types_where_none_are_named():
    found = fleet_of(3000)
    assert [(found.per_job_s == seconds).mean() for seconds in (1.0, 2.0, 4.0)] == pytest.approx(
        [1 / 3] * 3, abs=0.03
    )


def test_jobs_are_drawn_anew_and_by_seed_device_and_attempt():
    """Mean 2, deviation 0.4; delays of 0.3, deviation 0.1; the same job, the same times."""
    durations = Durations(fleet_of(2, phone={"seconds": 2, "seconds_sd": 0.4, "delay": 0.3, "delay_sd": 0.1}))
    drawn = [durations.times(1, 9, JobDraws(7).draw(1, attempt)) for attempt in range(1, 2001)]
    trains = np.array([times.train_s for times in drawn])
    delays = np.array([times.up_s for times in drawn])
    assert (trains.mean(), trains.std()) == pytest.approx((2.0, 0.4), abs=0.03)
    assert (delays.mean(), delays.std()) == pytest.approx((0.3, 0.1), abs=0.01)
    assert abs(np.corrcoef(trains, delays)[0, 1]) < 0.06
    assert durations.times(1, 9, JobDraws(7).draw(1, 5)) == drawn[4]
    assert durations.times(0, 9, JobDraws(7).draw(0, 5)) != drawn[4]


@pytest.mark.parametrize(
    ("types", "words"),
    [
        (3, "must be a table of types"),
        ({}, "must be a table of types"),
        ({"phone": 2.0}, "must be a table of types"),
        ({"phone": {"second": 2.0}}, "did you mean seconds"),
        ({"phone": {"seconds": -1.0}}, r"types\.phone\.seconds must be a number"),
        ({"phone": {"delay_sd": True}}, r"types\.phone\.delay_sd must be a number"),
        ({"phone": {"share": 0}}, "a share above 0"),
    ],
)
def test_what_cannot_be_is_one_line(types, words):
    with pytest.raises(ConfigError, match=words):
        gaussian(np.zeros(2, np.int64), np.random.default_rng(0), types)
