"""A run that ends by versions, updates, bytes or joules: at that moment, with all that arrives then."""

import re
from dataclasses import replace

import numpy as np
import pytest
from virtual_world import carried_out, config_of

from fedge.config.registers.option import ConfigError
from fedge.devices.population.fleet import Fleet
from fedge.devices.predictions import refuse_unknown_power

SMALL = {
    "asynchrony__rule_args": '{"buffer": 1}', "asynchrony__concurrency": 2, "devices__preset": "equal",
    "asynchrony__evaluate_every_s": 10.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("limit", "seconds", "updates", "words"),
    [
        ({}, 30.0, 60, ""),
        ({"end_versions": 7}, 4.0, 8, "asynchrony.end-versions 7 was reached at 4 virtual s"),
        ({"end_updates": 8}, 4.0, 8, "asynchrony.end-updates 8 was reached at 4"),
        # a model has 16 bytes: two down at 0 s, two up and two down at every second after it
        ({"end_megabytes": 100e-6}, 2.0, 4, "asynchrony.end-megabytes 0.0001 was reached at 2"),
    ],
)
def test_a_run_ends_at_its_limit(limit, seconds, updates, words):
    config = config_of(**SMALL, **{f"asynchrony__{name}": most for name, most in limit.items()})
    procedure, noted = carried_out(config, 4)
    assert procedure.clock.now_us == seconds * 1e6
    assert noted.rows[-1].updates == updates
    assert re.match(words or "$", procedure.ending)
    assert len(noted.rows) == (1 if limit else 3)


def test_joules_by_hand():
    """2 W in training alone, two jobs of a second at a time: 4 J, 8 J; a limit of 5 J is passed at 2 s."""
    nothing, endless = np.zeros(4), np.full(4, np.inf)
    fleet = Fleet(nothing, np.ones(4), endless, endless, nothing, nothing, train_watts=np.full(4, 2.0))
    procedure, noted = carried_out(config_of(**SMALL, asynchrony__end_joules=5.0), 4, fleet=fleet)
    assert procedure.ledger.joules == 8.0 == noted.rows[-1].joules
    assert procedure.clock.now_us == 2_000_000
    with pytest.raises(ConfigError, match=r"end-joules needs the power of the devices"):
        refuse_unknown_power(replace(fleet, train_watts=None), config_of(asynchrony__end_joules=5.0))
