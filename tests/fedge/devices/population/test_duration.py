"""A duration of the user's: what it is told, what it may say, and that a run goes by it."""

import numpy as np
import pytest
from virtual_world import carried_out, config_of, outcome

from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import DURATIONS
from fedge.devices.population.duration import Work, checked_seconds, duration_of
from fedge.devices.population.selection import History


def work_of(**changes):
    given = {"device": 1, "attempt": 2, "leaf": 0, "windows": 8, "steps": 2, "model_bytes": 12, "now_s": 1.5,
             "usual_s": 0.5, "history": History.of(np.ones(2, np.int64)), "seed": 3}  # fmt: skip
    return Work(**{**given, **changes})


def test_chance_is_of_seed_device_and_attempt():
    one = work_of().rng.random()
    assert work_of().rng.random() == one
    others = [work_of(device=0), work_of(attempt=3), work_of(seed=4)]
    assert len({one, *(work.rng.random() for work in others)}) == 4
    work = work_of()
    assert work.rng.random() != work.rng.random()  # one stream, which goes on


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), float("inf"), "2", None, True, 2e9])
def test_what_is_no_duration_is_one_line(seconds):
    with pytest.raises(ConfigError, match=r"seconds above 0.* for device 1, job 2, at 1\.5 virtual s"):
        checked_seconds(lambda work: seconds, work_of())


def test_an_exception_is_one_line():
    with pytest.raises(
        ConfigError, match=r"devices\.duration raised KeyError: 'x' \(\S+, line \d+\) for device 1"
    ):
        checked_seconds(lambda work: {}["x"], work_of())


def test_the_presets_takes_no_arguments_here():
    assert duration_of("preset", {}) is None
    with pytest.raises(ConfigError, match=r"duration-args must be empty"):
        duration_of("preset", {"seconds": 1})


TOLD = []


def by_attempt(work, first=1.0):
    """The first job of a device takes `first`, later ones half of its newest result."""
    TOLD.append((work.device, work.attempt, work.windows, work.steps, work.model_bytes, work.now_s))
    newest = work.history.seconds[work.device]
    return first if np.isnan(newest) else newest / 2


def test_a_run_goes_by_it():
    """Devices all alike: jobs of 1, a half and a quarter of a second, of both devices."""
    TOLD.clear()
    name = DURATIONS.given(by_attempt)
    try:
        config = config_of(
            devices__preset="equal", devices__duration=name, devices__duration_args='{"first": 1.0}',
            asynchrony__concurrency=2, asynchrony__evaluate_every_s=1.8, num_server_rounds=1,
            asynchrony__rule_args='{"buffer": 2}',
        )  # fmt: skip
        found = outcome(*carried_out(config, 2))
        ends = [(facts[1], facts[7]) for facts, _, _ in found["jobs"]]
        assert ends == [(device, end) for end in (1_000_000, 1_500_000, 1_750_000) for device in (0, 1)]
        assert sorted(TOLD)[:2] == [(0, 1, 4, 1, 16, 0.0), (0, 2, 4, 1, 16, 1.0)]
        assert found == outcome(*carried_out(config, 2, workers=2))
    finally:
        DURATIONS.forget(name)
